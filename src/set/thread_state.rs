//! What the flush thread of a set does, and why it stopped.
//!
//! ```text
//!   none -> ready -> flushing -> ready             the engine's function returned, and its flush was installed
//!                             -> left -> failed    it left its flush, or returned an error, which is kept
//!           ready <- retry --------- failed
//!   any -> closing                                 it ends after what it does
//! ```
//! Under the lock of the manager.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// The state of the flush thread of a set.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    at: At,
    error: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    None,
    Ready,
    /// It runs the engine's function.
    Flushing,
    /// The function has left its flush without an install, and has not returned yet.
    Left,
    /// It waits until it is told to try again.
    Failed,
    Closing,
}

/// What a flush thread is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command {
    Retry,
    Close,
}

impl ThreadState {
    /// Begins the thread. `false`: there is one.
    pub(crate) fn begin(&mut self) -> bool {
        if self.at != At::None {
            return false;
        }
        *self = ThreadState { at: At::Ready, error: None };
        true
    }

    /// Whether the thread flushes sealed tables without a command.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.at, At::Ready | At::Flushing)
    }

    /// Whether there is no thread, or it is to end.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.at, At::None | At::Closing)
    }

    /// Why the thread failed.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.clone()
    }

    pub(crate) fn obey(&mut self, command: Command) {
        match (command, self.at) {
            (Command::Retry, At::Failed) => *self = ThreadState { at: At::Ready, error: None },
            (Command::Retry, _) | (Command::Close, At::None) => {}
            (Command::Close, at) => {
                if at == At::Left {
                    // An error that the function returns takes the place of this one.
                    self.leave();
                }
                self.at = At::Closing;
            }
        }
    }

    /// Notes a call of the engine's function.
    pub(crate) fn begin_work(&mut self) {
        self.at = At::Flushing;
    }

    /// Notes that a flush ended without an install. If it was the thread's, the function's result says more.
    pub(crate) fn leave(&mut self) {
        match self.at {
            At::Flushing => self.at = At::Left,
            _ => self.fail(Error::InvalidArgument("a flush ended without an install".into())),
        }
    }

    /// Notes that the engine's function returned.
    pub(crate) fn end_work(&mut self, flushed: Result<()>) {
        match (flushed, self.at) {
            (Err(error), _) => self.fail(error),
            (Ok(()), At::Left) => self.leave(),
            (Ok(()), At::Flushing) => self.at = At::Ready,
            (Ok(()), _) => {}
        }
    }

    fn fail(&mut self, error: Error) {
        if self.at != At::None {
            self.error = Some(error);
        }
        if matches!(self.at, At::Ready | At::Flushing | At::Left) {
            self.at = At::Failed;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn flushing() -> ThreadState {
        let mut state = ThreadState::default();
        assert!(state.begin() && !state.begin());
        state.begin_work();
        state
    }

    /// What the function returns is the cause; a flush that it left is one if it returns none, closed meanwhile or not.
    #[test]
    fn a_flush_that_was_left_is_an_error_unless_the_function_returns_one() {
        for closes in [false, true] {
            for (returned, is_own) in [(Ok(()), false), (Err(Error::Frozen), true)] {
                let mut state = flushing();
                state.leave();
                assert!(state.error().is_none() && !state.is_live());
                state.obey(Command::Retry);
                if closes {
                    state.obey(Command::Close);
                }
                state.end_work(returned);
                assert_eq!(matches!(state.error(), Some(Error::Frozen)), is_own, "{state:?}");
                assert_eq!(matches!(state.error(), Some(Error::InvalidArgument(_))), !is_own, "{state:?}");
                state.obey(Command::Retry);
                assert_eq!((state.is_live(), state.is_over()), (!closes, closes), "{state:?}");
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
