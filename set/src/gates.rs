//! Gates: where a set without a journal gives numbers to batches of many threads at once.
//!
//! ```text
//!   closed   no gate has a table: numbers are given under the commit mutex
//!   open     each gate has the active table. A batch locks the gate of its thread, reserves its space there, takes its numbers by one
//!            addition, and unlocks the gate
//! ```
//! * GATES-1: gates are opened and closed under the commit mutex. Closing locks each gate once. So
//!   after it every number that was given inside a gate counts, its batch has space in the table
//!   that the gate had, and no number is given until the gates are opened.
//! * GATES-2: a batch that has numbers cannot be refused. Whatever may be refused, must wait, or
//!   changes tables goes by the commit mutex.
//!
//! Any thread. A gate is locked for as long as it takes to reserve space, and no comparator runs
//! meanwhile.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::SequenceNumber;
use paranoid_memtable::sibling::{Alone, AtomicU64, Mutex, MutexGuard, Ordering};

use crate::options::SEQUENCE_MAX;
use crate::publication::Taken;
use crate::swapped::{Loaded, Pointers};

/// Number of gates.
#[cfg(not(loom))]
pub(crate) const GATES: usize = 16;
#[cfg(loom)]
pub(crate) const GATES: usize = 2;

/// So many numbers before the last one there is the gates stay closed, and the commit mutex refuses
/// what does not fit: more numbers than are given while they are open.
const NUMBERS_LEFT: u64 = 1 << 40;

/// The gates of a set, to tables of type `T`.
#[derive(Debug)]
pub(crate) struct Gates<T> {
    gates: [Alone<Mutex<Gate<T>>>; GATES],
    /// The last number that was given inside a gate, while they are open.
    last: Alone<AtomicU64>,
}

/// What a thread holds while it takes numbers.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    /// The active table, for as long as the gate is open.
    active: Option<Loaded<T>>,
    /// Bytes reserved inside this gate since it was opened.
    reserved: u64,
}

impl<T> Gates<T> {
    /// Closed gates.
    pub(crate) fn new() -> Self {
        let gate = || {
            Alone(Mutex::new(Gate {
                active: None,
                reserved: 0,
            }))
        };
        Gates {
            gates: std::array::from_fn(|_| gate()),
            last: Alone(AtomicU64::new(0)),
        }
    }

    /// Enters the gate of the thread of this number for a batch of so many bytes, and returns the
    /// active table too. `None` if the gate is closed, or if batches would have reserved more than
    /// `most` bytes inside it.
    #[inline(always)]
    pub(crate) fn enter(
        &self,
        thread: usize,
        bytes: u64,
        most: u64,
    ) -> Option<(MutexGuard<'_, Gate<T>>, Loaded<T>)> {
        let gate = self.gates[thread % GATES].lock();
        let active = Arc::clone(gate.active.as_ref()?);
        (gate.reserved.saturating_add(bytes) <= most).then_some((gate, active))
    }

    /// Gives numbers to a batch that has its space, and leaves the gate.
    #[inline(always)]
    pub(crate) fn number(
        &self,
        mut gate: MutexGuard<'_, Gate<T>>,
        count: u64,
        bytes: u64,
    ) -> Taken {
        gate.reserved += bytes;
        // ORDERING: Relaxed: numbers only need to differ; the lock of the gate orders them with
        // what opens and closes it.
        let before = self.last.fetch_add(count, Ordering::Relaxed);
        Taken {
            first: before + 1,
            last: before + count,
        }
    }

    /// Opens all gates to the active table, after the number `last`, unless numbers are about to
    /// end. Returns whether they are open. Under the commit mutex.
    pub(crate) fn open(&self, active: &Pointers<T>, last: SequenceNumber) -> bool {
        if last > SEQUENCE_MAX - NUMBERS_LEFT {
            return false;
        }
        // ORDERING: Relaxed: the locks of the gates publish it.
        self.last.store(last, Ordering::Relaxed);
        for (gate, table) in self.gates.iter().zip(active.iter()) {
            gate.lock().active = Some(Arc::clone(table));
        }
        true
    }

    /// Closes all gates (GATES-1). Returns the last number, and the bytes reserved since they were
    /// opened.
    pub(crate) fn close(&self) -> (SequenceNumber, u64) {
        let mut reserved = 0;
        for gate in &self.gates {
            let mut gate = gate.lock();
            gate.active = None;
            reserved += std::mem::take(&mut gate.reserved);
        }
        // ORDERING: Relaxed: the locks of the gates order it after every addition.
        (self.last.load(Ordering::Relaxed), reserved)
    }
}
