//! The state of a set's flush thread: what it does, and why it failed.
//!
//! ```text
//!   none -> ready -> at work -> ready    the engine's function installed its flush and returned
//!                            -> ready, with an error until `retry`: the function returned it, or
//!                               dropped its job without an install
//!   any but none -> closing              ends after the flush under way
//! ```
//! Under the lock of the manager.

#![forbid(unsafe_code)]

use std::thread::{self, ThreadId};

use paranoid_memtable::{Error, Result};

/// The state of the flush thread of a set.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    stage: Stage,
    /// Whether the thread runs the engine's function.
    pub(crate) is_at_work: bool,
    error: Option<Error>,
    /// The thread, once it runs.
    id: Option<ThreadId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    None,
    /// Flushes what is sealed, or waits for `retry` if there is an error.
    Ready,
    Closing,
}

impl ThreadState {
    /// Marks the thread as begun. Returns false if the set has one.
    pub(crate) fn begin(&mut self) -> bool {
        if self.stage != Stage::None {
            return false;
        }
        *self = ThreadState {
            stage: Stage::Ready,
            ..ThreadState::default()
        };
        true
    }

    /// Records the calling thread as the flush thread.
    pub(crate) fn run(&mut self) {
        self.id = Some(thread::current().id());
    }

    /// Whether the flush thread is the calling thread.
    pub(crate) fn is_this_one(&self) -> bool {
        self.id.is_some_and(|id| id == thread::current().id())
    }

    /// Records that the thread ends, and whether it panicked.
    pub(crate) fn end(&mut self) {
        let error = thread::panicking().then_some(Error::FlushPanicked);
        *self = ThreadState {
            error,
            ..ThreadState::default()
        };
    }

    /// Whether the thread flushes each table that is sealed.
    pub(crate) fn is_live(&self) -> bool {
        self.stage == Stage::Ready && self.error.is_none()
    }

    /// Whether there is no thread, or it ends now.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::None | Stage::Closing)
    }

    /// Why the thread failed. `None` while its function runs: the function may still return the
    /// cause, which says more than a dropped job.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.clone().filter(|_| !self.is_at_work)
    }

    /// Makes a thread that failed try again.
    pub(crate) fn retry(&mut self) {
        if self.stage == Stage::Ready && !self.is_at_work {
            self.error = None;
        }
    }

    /// Makes the thread end after the flush under way.
    pub(crate) fn close(&mut self) {
        if self.stage != Stage::None {
            self.stage = Stage::Closing;
        }
    }

    /// Records that the engine's function returned.
    pub(crate) fn end_work(&mut self, flushed: Result<()>) {
        self.is_at_work = false;
        if let Err(error) = flushed {
            self.fail(error);
        }
    }

    /// Records an error, unless there is no thread.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.stage != Stage::None {
            self.error = Some(error);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn flushing() -> ThreadState {
        let mut state = ThreadState::default();
        assert!(state.begin() && !state.begin());
        state.is_at_work = true;
        state
    }

    /// The error that the function returns is the cause. If it returns none, its dropped job is. A
    /// `close` meanwhile changes neither.
    #[test]
    fn a_dropped_job_is_an_error_unless_the_function_returns_one() {
        for closes in [false, true] {
            for (returned, is_own) in [(Ok(()), false), (Err(Error::Frozen), true)] {
                let mut state = flushing();
                state.fail(Error::InvalidArgument("left".into()));
                assert!(state.error().is_none() && !state.is_live());
                state.retry();
                if closes {
                    state.close();
                }
                state.end_work(returned);
                assert_eq!(
                    matches!(state.error(), Some(Error::Frozen)),
                    is_own,
                    "{state:?}"
                );
                assert_eq!(
                    matches!(state.error(), Some(Error::InvalidArgument(_))),
                    !is_own,
                    "{state:?}"
                );
                state.retry();
                assert_eq!(
                    (state.is_live(), state.is_over()),
                    (!closes, closes),
                    "{state:?}"
                );
            }
        }
    }

    #[test]
    fn an_installed_flush_leaves_the_thread_ready() {
        let mut state = flushing();
        state.end_work(Ok(()));
        assert!(state.is_live() && state.error().is_none());
    }
}
