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

use std::collections::BTreeMap;
use std::iter::FusedIterator;
use std::sync::Arc;

use paranoid_memtable::sibling::{AtomicU64, Mutex, Ordering};
use paranoid_memtable::{MemTable, Result, SequenceNumber, shown};

use crate::options::ScanTriggers;
use crate::publication::Publication;
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

// Snapshots: which sequence numbers somebody still wants to read at.
//
// * SNAPSHOT-1: a snapshot reads the visible number and is registered under one lock. So whoever
//   takes the list under that lock knows: every snapshot that is not in it is at least as new as
//   what was visible then.
//
// Any thread. A snapshot pins no memory.

/// The snapshots of one set, and what is visible.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) publication: Publication,
    /// How many snapshots there are of each number.
    live: Mutex<BTreeMap<SequenceNumber, u64>>,
}

impl Registry {
    pub(crate) fn new(publication: Publication) -> Self {
        Registry {
            publication,
            live: Mutex::new(BTreeMap::new()),
        }
    }

    /// A snapshot of what is visible (SNAPSHOT-1).
    pub(crate) fn register(self: &Arc<Self>) -> Snapshot {
        let mut live = self.live.lock();
        let sequence = self.publication.visible();
        *live.entry(sequence).or_default() += 1;
        drop(live);
        Snapshot {
            registry: Arc::clone(self),
            sequence,
        }
    }

    /// The numbers of all snapshots, ascending, once `last` is visible. Snapshots that are
    /// registered later see `last`.
    ///
    /// # Errors
    /// `ReadOnly` if `last` never will be visible.
    pub(crate) fn numbers_after(&self, last: SequenceNumber) -> Result<Vec<SequenceNumber>> {
        self.publication.wait_for(last)?;
        Ok(self.numbers())
    }

    /// The numbers of all snapshots, ascending.
    pub(crate) fn numbers(&self) -> Vec<SequenceNumber> {
        self.live.lock().keys().copied().collect()
    }
}

/// What was visible in a set at one moment. Reads at it see the same until it is dropped, whatever
/// is written and flushed meanwhile: a flush keeps the versions that it needs. It pins no memory.
/// Made by [`MemTableSet::snapshot`](crate::MemTableSet::snapshot).
///
/// ```
/// use paranoid_memtable::{Lookup, WriteBatch};
/// use paranoid_set::{MemTableSet, SetOptions, Snapshot};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let before: Snapshot = set.snapshot();
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// assert_eq!((before.sequence(), set.write(&batch)?), (0, 1));
/// assert!(matches!(set.view_at(&before)?.get(b"k")?, Lookup::NotFound));
/// # Ok(()) }
/// ```
pub struct Snapshot {
    pub(crate) registry: Arc<Registry>,
    sequence: SequenceNumber,
}

impl Snapshot {
    /// The last sequence number that reads at this snapshot see.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert_eq!(set.snapshot().sequence(), 0);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

shown! { "Snapshot": impl [] Snapshot, |snapshot| { "sequence": snapshot.sequence } }

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut live = self.registry.live.lock();
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}
