//! The tables of a set and its base: what a view shows.
//!
//! ```text
//!   Tables    active 7  |  immutables 6, 5, 4 (newest first)  |  base: the engine's own version
//!               |               |
//!   Slot      number, table, its bytes, and its last sequence number once it is closed
//! ```
//! * TABLES-1: the last number of a table is stored before a batch takes the next table's first
//!   number. So a thread that sees a number of the next table sees that this one is closed.
//!
//! The sequence numbers of a table are above those of every older table. Each number up to the last
//! one of the active table is in a table or in the base.
//!
//! Any thread. A `Tables` does not change.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;
use std::sync::Arc;

use paranoid_memtable::sibling::{AtomicU64, Ordering};
use paranoid_memtable::{MemTable, SequenceNumber};

use crate::options::ScanTriggers;
use crate::write_buffer_manager::{Phase, TableBytes};

/// Stored as the last number of a table that is not closed.
const OPEN: SequenceNumber = SequenceNumber::MAX;

/// The last sequence number that may be in a table. Entries above it belong to the batch that
/// stopped the set, or to later ones: no read and no flush takes them.
#[derive(Debug)]
pub(crate) struct LastNumber(AtomicU64);

impl LastNumber {
    pub(crate) fn new() -> Self {
        LastNumber(AtomicU64::new(OPEN))
    }

    /// The number, or the largest there is while the table is open. A view loads it after
    /// `visible`.
    #[inline]
    pub(crate) fn get(&self) -> SequenceNumber {
        // ORDERING: Relaxed: a thread that has seen a visible number of a later table sees this
        // store too, because that number was taken and published after it (TABLES-1).
        self.0.load(Ordering::Relaxed)
    }

    /// Closes the table: no batch takes a number after `last` in it, and no read looks for one.
    pub(crate) fn close(&self, last: SequenceNumber) {
        // ORDERING: Relaxed: the commit mutex and the Release in `Publication::exchange` publish
        // it: see `get`.
        self.0.store(last, Ordering::Relaxed);
    }
}

/// A table of a set, with its number.
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) table: MemTable,
    pub(crate) last: LastNumber,
    pub(crate) bytes: Arc<TableBytes>,
    pub(crate) scans: ScanTriggers,
}

impl Slot {
    /// A table without entries. `bytes` counts its bytes, and is dropped after its memory is freed.
    pub(crate) fn new(
        number: u64,
        table: MemTable,
        bytes: Arc<TableBytes>,
        scans: ScanTriggers,
    ) -> Arc<Self> {
        table.attach(Arc::<TableBytes>::clone(&bytes));
        Arc::new(Slot {
            number,
            table,
            last: LastNumber::new(),
            bytes,
            scans,
        })
    }

    /// The number at which a view of `sequence` reads this table.
    #[inline]
    pub(crate) fn read_at(&self, sequence: SequenceNumber) -> SequenceNumber {
        sequence.min(self.last.get())
    }

    /// Sets the phase of the table, and its bytes as they are once it is frozen. O(writers).
    pub(crate) fn leave(&self, phase: Phase) {
        self.bytes.leave(phase, self.table.bytes_once_frozen());
    }
}

/// The tables and the base that a view shows.
pub(crate) struct Tables<B> {
    pub(crate) active: Arc<Slot>,
    /// Newest first.
    pub(crate) immutables: Vec<Arc<Slot>>,
    pub(crate) base: Arc<B>,
}

impl<B> Tables<B> {
    /// All tables, newest first: the first one that answers has the newest answer.
    pub(crate) fn newest_first(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<Slot>> + FusedIterator {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// Closes these tables at `end`, and returns them as immutable ones below the active `next`.
    pub(crate) fn switched(&self, next: Arc<Slot>, end: SequenceNumber) -> Arc<Self> {
        self.newest_first()
            .for_each(|slot| slot.last.close(slot.read_at(end)));
        let immutables = self.newest_first().map(Arc::clone).collect();
        Arc::new(Tables {
            active: next,
            immutables,
            base: Arc::clone(&self.base),
        })
    }

    /// These tables over a new base. The immutable ones up to number `flushed` are left out: the
    /// new base has their entries.
    pub(crate) fn installed(&self, flushed: Option<u64>, base: Arc<B>) -> Arc<Self> {
        let is_flushed = |slot: &Arc<Slot>| Some(slot.number) <= flushed;
        let (gone, immutables): (Vec<_>, _) =
            self.immutables.iter().map(Arc::clone).partition(is_flushed);
        gone.iter().for_each(|slot| slot.leave(Phase::Pinned));
        Arc::new(Tables {
            active: Arc::clone(&self.active),
            immutables,
            base,
        })
    }
}
