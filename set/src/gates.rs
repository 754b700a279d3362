//! Gates: where a set without a journal gives numbers to batches of many threads at once.
//!
//! ```text
//!   closed   no gate has a table: batches take their numbers under the commit mutex
//!   open     each gate has the active table. A batch locks the gate of its thread, reserves its
//!            space in the table, takes its numbers by one addition, and unlocks the gate
//! ```
//! * GATES-1: gates are opened and closed under the commit mutex, and closing locks each gate once.
//!   So after it, no number that was taken inside a gate is above the returned one, each of those
//!   batches has space in the table of the gate, and no further number is taken inside a gate until
//!   `open`.
//!
//! A batch that has its numbers cannot be refused any more. So a batch that may be refused, must
//! wait, or changes tables takes the commit mutex instead.
//!
//! Any thread. A gate is locked while one batch reserves its space; no comparator runs meanwhile.

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

/// Gates stay closed once fewer than this many sequence numbers are left, and a batch under the
/// commit mutex is refused at their end. More than can be taken while gates are open.
const NUMBERS_LEFT: u64 = 1 << 40;

/// The gates of a set, to tables of type `T`.
#[derive(Debug)]
pub(crate) struct Gates<T> {
    gates: [Alone<Mutex<Gate<T>>>; GATES],
    /// The last number that a batch took, while the gates are open.
    last: Alone<AtomicU64>,
}

/// The state of one gate, which a batch locks while it takes its numbers.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    /// The active table while the gate is open.
    active: Option<Loaded<T>>,
    /// Bytes reserved inside this gate since it was opened.
    reserved: u64,
}

impl<T> Gates<T> {
    /// Gates that are closed.
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

    /// Locks the gate of a thread, by the thread's number, for a batch of so many bytes. Returns
    /// the gate and the active table, or `None` if the gate is closed or batches would have
    /// reserved more than `most` bytes inside it.
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

    /// Gives numbers to a batch that has its space, and unlocks the gate.
    #[inline(always)]
    pub(crate) fn number(
        &self,
        mut gate: MutexGuard<'_, Gate<T>>,
        count: u64,
        bytes: u64,
    ) -> Taken {
        gate.reserved += bytes;
        // ORDERING: Relaxed: numbers only need to differ. The lock of the gate orders them with
        // `open` and `close`.
        let before = self.last.fetch_add(count, Ordering::Relaxed);
        Taken {
            first: before + 1,
            last: before + count,
        }
    }

    /// Opens all gates to the active table, for numbers after `last`. Returns false, with the gates
    /// closed, if too few numbers are left. The caller has the commit mutex.
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

    /// Closes all gates (GATES-1). Returns the last number that was taken, and the bytes reserved
    /// since they were opened.
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
