//! Whether a flush is under way, and writers that wait for its end.
//!
//! * FLUSHES-1: a writer waits only while a flush is under way, and for no longer than its deadline. Who ends a flush, by
//!   an install or without one, wakes all of them.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::time::Instant;

use crate::planted::{Bug, planted};
use crate::sync::{Condvar, Mutex};

/// Whether a flush is under way.
#[derive(Debug)]
pub(crate) struct Flushes {
    state: Mutex<Flushing>,
    ended: Condvar,
}

/// Whether a flush is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushing {
    No,
    Yes,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The flush has ended.
    Ended,
    /// There was none.
    ForNothing,
    /// The deadline passed.
    TooLong,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Flushes { state: Mutex::new(Flushing::No), ended: Condvar::new() }
    }

    /// Begins a flush; returns whether there was one.
    pub(crate) fn begin(&self) -> Flushing {
        std::mem::replace(&mut *self.state.lock(), Flushing::Yes)
    }

    pub(crate) fn end(&self) {
        *self.state.lock() = Flushing::No;
        if !planted(Bug::FlushEndWakesNobody) {
            self.ended.notify_all();
        }
    }

    /// Waits for the end of the flush that is under way (FLUSHES-1).
    pub(crate) fn wait(&self, deadline: Instant) -> Waited {
        let mut state = self.state.lock();
        if *state == Flushing::No {
            return Waited::ForNothing;
        }
        while *state == Flushing::Yes {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TooLong;
            }
            state = self.ended.wait_timeout(state, left);
        }
        Waited::Ended
    }
}
