//! What the flush thread of a set does, and why it stopped.
//!
//! ```text
//!   none -> ready -> at work -> ready       the engine's function returned, and its flush was installed
//!                            -> ready, with an error, which stays until `retry`: it left its flush, or returned one
//!   any -> closing                          it ends after what it does
//! ```
//! Under the lock of the manager.

#![forbid(unsafe_code)]

use std::thread::{self, ThreadId};

use paranoid_memtable::{Error, Result};

/// The state of the flush thread of a set.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    at: At,
    /// Whether it runs the engine's function.
    pub(crate) is_at_work: bool,
    error: Option<Error>,
    /// Once it runs.
    id: Option<ThreadId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    None,
    /// With an error it waits until it is told to try again.
    Ready,
    Closing,
}

impl ThreadState {
    /// Begins the thread. `false`: there is one.
    pub(crate) fn begin(&mut self) -> bool {
        if self.at != At::None {
            return false;
        }
        *self = ThreadState {
            at: At::Ready,
            ..ThreadState::default()
        };
        true
    }

    /// Notes that the thread is this one.
    pub(crate) fn run(&mut self) {
        self.id = Some(thread::current().id());
    }

    /// Whether it is the calling thread.
    pub(crate) fn is_this_one(&self) -> bool {
        self.id.is_some_and(|id| id == thread::current().id())
    }

    /// Notes that the thread ends.
    pub(crate) fn end(&mut self) {
        let error = thread::panicking().then_some(Error::FlushPanicked);
        *self = ThreadState {
            error,
            ..ThreadState::default()
        };
    }

    /// Whether the thread flushes sealed tables without a command.
    pub(crate) fn is_live(&self) -> bool {
        self.at == At::Ready && self.error.is_none()
    }

    /// Whether there is no thread, or it is to end.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.at, At::None | At::Closing)
    }

    /// Why the thread failed. What its function returns says more than that it left its flush.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.clone().filter(|_| !self.is_at_work)
    }

    /// Has a thread that failed try again.
    pub(crate) fn retry(&mut self) {
        if self.at == At::Ready && !self.is_at_work {
            self.error = None;
        }
    }

    /// Has the thread end after what it does.
    pub(crate) fn close(&mut self) {
        if self.at != At::None {
            self.at = At::Closing;
        }
    }

    /// Notes that the engine's function returned.
    pub(crate) fn end_work(&mut self, flushed: Result<()>) {
        self.is_at_work = false;
        if let Err(error) = flushed {
            self.fail(error);
        }
    }

    pub(crate) fn fail(&mut self, error: Error) {
        if self.at != At::None {
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

    /// What the function returns is the cause; a flush that it left is one if it returns none,
    /// closed meanwhile or not.
    #[test]
    fn a_flush_that_was_left_is_an_error_unless_the_function_returns_one() {
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
