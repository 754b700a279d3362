//! The tables of a set, and what a view shows.
//!
//! ```text
//!   Tables    active 7   |   immutables 6, 5, 4 (newest first)   |   base: the engine's own version
//!               |                  |
//!   Slot      number, table, its bytes, the last sequence number before it, and its own last one once it is closed
//! ```
//! * TABLES-1: the sequence numbers of a table are above those of every older one. So the first
//!   table that answers, in this order, has the newest answer.
//! * TABLES-2: a table's last number is stored before the next table is given its first one. So who
//!   has seen a number of the next table sees that this one is closed.
//! * TABLES-3: each number up to the last one of the active table is in one of the tables, or in
//!   the base.
//! * TABLES-4: what a table has above its last number belongs to a batch that was not finished, or
//!   to one after it: no read and no flush passes that number.
//!
//! Any thread; `Tables` never change.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;
use std::sync::Arc;

use paranoid_memtable::sibling::{AtomicU64, Ordering};
use paranoid_memtable::{MemTable, SequenceNumber};

use crate::options::ScanTriggers;
use crate::write_buffer_manager::{Phase, TableBytes};

/// The last number of a table that is not closed.
const OPEN: SequenceNumber = SequenceNumber::MAX;

/// The last sequence number that may be in a table (TABLES-2).
#[derive(Debug)]
pub(crate) struct LastNumber(AtomicU64);

impl LastNumber {
    pub(crate) fn new() -> Self {
        LastNumber(AtomicU64::new(OPEN))
    }

    /// The number; the largest there is while the table is open. To be asked after `visible`.
    #[inline]
    pub(crate) fn get(&self) -> SequenceNumber {
        // ORDERING: Relaxed: who has seen a visible number of a later table sees this store too,
        // because the number was taken and published after it.
        self.0.load(Ordering::Relaxed)
    }

    /// No number after `last` is given to the table, or read in it.
    pub(crate) fn close(&self, last: SequenceNumber) {
        // ORDERING: Relaxed: the commit mutex and the Release in `Publication::exchange` publish
        // it, see `get`.
        self.0.store(last, Ordering::Relaxed);
    }
}

/// A table of a set.
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) table: MemTable,
    pub(crate) last: LastNumber,
    pub(crate) bytes: Arc<TableBytes>,
    pub(crate) scans: ScanTriggers,
}

impl Slot {
    /// A table without entries; `bytes` is told how many it has, and when its memory is freed.
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

    /// The number at which a view of `sequence` reads this table (TABLES-4).
    #[inline]
    pub(crate) fn read_at(&self, sequence: SequenceNumber) -> SequenceNumber {
        sequence.min(self.last.get())
    }

    /// Counts the table's bytes, as a freeze leaves them, and says where it is on its way.
    /// O(writers).
    pub(crate) fn leave(&self, phase: Phase) {
        self.bytes.leave(phase, self.table.bytes_once_frozen());
    }
}

/// What a view shows.
pub(crate) struct Tables<B> {
    pub(crate) active: Arc<Slot>,
    /// Newest first.
    pub(crate) immutables: Vec<Arc<Slot>>,
    pub(crate) base: Arc<B>,
}

impl<B> Tables<B> {
    /// All tables, newest first (TABLES-1).
    pub(crate) fn newest_first(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<Slot>> + FusedIterator {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// These tables, closed at `end`, once `next` is active.
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

    /// These tables over a new base, without those up to number `flushed`, which the new base has.
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
