//! Sleepers: threads that sleep until a number is visible. Each is woken by a flag of its own.
//!
//! The list is under the lock of the publication. A thread waits for its flag without that lock.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::SequenceNumber;
use paranoid_memtable::sibling::{Condvar, Mutex};

/// The flag that one thread sleeps on.
#[derive(Debug)]
pub(crate) struct Flag {
    is_up: Mutex<bool>,
    woken: Condvar,
}

impl Flag {
    /// Sleeps until another thread calls `wake`, or returns at once if one has.
    pub(crate) fn wait(&self) {
        let mut is_up = self.is_up.lock();
        while !*is_up {
            is_up = self.woken.wait(is_up);
        }
    }

    /// Wakes the thread of this flag, asleep or about to be.
    pub(crate) fn wake(&self) {
        *self.is_up.lock() = true;
        self.woken.notify_all();
    }
}

/// The threads that sleep, by the number that each waits for.
#[derive(Debug, Default)]
pub(crate) struct Sleepers(Vec<(SequenceNumber, Arc<Flag>)>);

impl Sleepers {
    /// Adds a thread that waits until `last` is visible.
    pub(crate) fn add(&mut self, last: SequenceNumber) -> Arc<Flag> {
        let flag = Arc::new(Flag {
            is_up: Mutex::new(false),
            woken: Condvar::new(),
        });
        self.0.push((last, Arc::clone(&flag)));
        flag
    }

    /// Removes the threads that wait for a number up to `visible`, and returns their flags. O(n).
    pub(crate) fn up_to(&mut self, visible: SequenceNumber) -> Vec<Arc<Flag>> {
        self.0
            .extract_if(.., |(last, _)| *last <= visible)
            .map(|(_, flag)| flag)
            .collect()
    }

    /// The smallest number that a thread waits for. O(n).
    pub(crate) fn earliest(&self) -> Option<SequenceNumber> {
        self.0.iter().map(|(last, _)| *last).min()
    }
}
