//! The tables of a set, and what a view shows.
//!
//! ```text
//!   Tables    active 7   |   immutables 6, 5, 4 (newest first)   |   base: the engine's own version
//!               |                  |
//!   Slot      number, table, its bytes, the last sequence number once the table is closed
//! ```
//! * TABLES-1: the sequence numbers of a table are above those of every older one. So the first table that answers, in
//!   this order, has the newest answer.
//! * TABLES-2: a table's last number is stored before the next table is given its first one. So who has seen a number
//!   of the next table sees that this one is closed.
//! * TABLES-3: each number up to the last one of the active table is in one of the tables, or in the base.
//!
//! Any thread; `Tables` never change.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::key::{Kind, SequenceNumber};
use crate::memtable::debug::shown;
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::cursor::OwnedCursor;
use crate::memtable::table::MemTable;
use crate::set::publication::Publication;
use crate::set::write_buffer_manager::{Phase, TableBytes};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::tombstone::index::live::{CoveringRun, Question};

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
        // ORDERING: Relaxed: who has seen a visible number of a later table sees this store too, because the number was
        // taken and published after it.
        self.0.load(Ordering::Relaxed)
    }

    /// No number after `last` is given to the table.
    pub(crate) fn close(&self, last: SequenceNumber) {
        // ORDERING: Relaxed: the commit mutex and the Release in `Publication::advance` publish it, see `get`.
        self.0.store(last, Ordering::Relaxed);
    }
}

/// A table of a set.
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) table: MemTable,
    pub(crate) last: LastNumber,
    pub(crate) bytes: Arc<TableBytes>,
}

impl Slot {
    /// A table without entries; `bytes` is told how many it has, and when its memory is freed.
    pub(crate) fn new(number: u64, table: MemTable, bytes: Arc<TableBytes>) -> Arc<Self> {
        table.attach(Arc::<TableBytes>::clone(&bytes));
        Arc::new(Slot { number, table, last: LastNumber::new(), bytes })
    }

    /// Counts the table's bytes, as a freeze leaves them, and says where it is on its way. O(writers).
    pub(crate) fn count(&self, phase: Phase) {
        self.bytes.count(phase, self.table.core().bytes_once_frozen());
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
    pub(crate) fn newest_first(&self) -> impl DoubleEndedIterator<Item = &Arc<Slot>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// These tables once `next` is active.
    pub(crate) fn switched(&self, next: Arc<Slot>) -> Arc<Self> {
        let older = self.immutables.iter().map(Arc::clone);
        let immutables = std::iter::once(Arc::clone(&self.active)).chain(older).collect();
        Arc::new(Tables { active: next, immutables, base: Arc::clone(&self.base) })
    }

    /// These tables without those up to number `flushed`, which the new base has.
    pub(crate) fn installed(&self, flushed: u64, base: Arc<B>) -> Arc<Self> {
        let is_flushed = |slot: &Arc<Slot>| slot.number <= flushed;
        let (gone, immutables): (Vec<_>, _) = self.immutables.iter().map(Arc::clone).partition(is_flushed);
        gone.iter().for_each(|slot| slot.count(Phase::Pinned));
        Arc::new(Tables { active: Arc::clone(&self.active), immutables, base })
    }
}

// Snapshots: which sequence numbers somebody still wants to read at.
//
// * SNAPSHOT-1: a snapshot reads the visible number and is registered under one lock. So whoever takes the list under
//   that lock knows: every snapshot that is not in it is at least as new as what was visible then.
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
        Registry { publication, live: Mutex::new(BTreeMap::new()) }
    }

    /// A snapshot of what is visible (SNAPSHOT-1).
    pub(crate) fn register(self: &Arc<Self>) -> Snapshot {
        let mut live = self.live.lock();
        let sequence = self.publication.visible();
        *live.entry(sequence).or_default() += 1;
        drop(live);
        Snapshot { registry: Arc::clone(self), sequence }
    }

    /// The numbers of all snapshots, ascending, once `last` is visible. Snapshots that are registered later see `last`.
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

/// What was visible in a set at one moment. Reads at it see the same until it is dropped, whatever is written and
/// flushed meanwhile: a flush keeps the versions that it needs. It pins no memory. Made by
/// [`MemTableSet::snapshot`](crate::set::MemTableSet::snapshot).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, SetLookup, SetOptions, Snapshot};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let before: Snapshot = set.snapshot();
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// assert_eq!((before.sequence(), set.write(&batch)?), (0, 1));
/// assert!(matches!(set.view_at(&before)?.get(b"k")?, SetLookup::NotFound));
/// # Ok(()) }
/// ```
pub struct Snapshot {
    registry: Arc<Registry>,
    sequence: SequenceNumber,
}

impl Snapshot {
    /// The last sequence number that reads at this snapshot see.
    ///
    /// ```
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert_eq!(set.snapshot().sequence(), 0);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Whether it is one of this registry.
    pub(crate) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        Arc::ptr_eq(&self.registry, registry)
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

// Sorted sources: what a merging cursor merges. The tables of a set are such sources, and an engine's files can be.
//
// ```text
//   a@9  a@4  b@7  d@2  d@1        user keys ascend, the versions of each descend
//        ^
//        where the source stands   every move returns the entry that it leads to, or none past an end
// ```
// One thread at a time moves a source.

/// Where a sorted source stands: an entry without its value.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::set::SourceKey;
/// let key = SourceKey { user_key: b"k", sequence: 7, kind: Kind::PUT };
/// assert_eq!(key.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct SourceKey<'s> {
    /// The user key.
    pub user_key: &'s [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind: any but a range delete.
    pub kind: Kind,
}

/// A range tombstone that covers a key.
///
/// ```
/// use paranoid_memtable::set::Cover;
/// let cover = Cover { sequence: 7, span: Some((b"a", b"c")), hides_own: false };
/// assert_eq!(cover.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct Cover<'s> {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// If known, keys around the one that was asked for, start to end (exclusive), which tombstones of this number or
    /// newer ones of the same source cover as well. A cursor passes them in older sources by one seek.
    pub span: Option<(&'s [u8], &'s [u8])>,
    /// Whether every visible entry of this source in the span is older than the tombstone, so that a cursor passes them by a seek, too.
    /// `false` if that is not known.
    pub hides_own: bool,
}

/// A sorted source of entries beside the tables of a set, such as a table file or all files of a level. Its entries are
/// in the set's order: user keys ascend, the versions of a key descend.
///
/// A move that fails returns its error once; the next one goes on at the other side of what could not be read, or stands
/// past the end if nothing is known to be there.
///
/// ```
/// use paranoid_memtable::set::{Cover, MemTableSet, SetOptions, SortedSource, SourceKey};
/// use paranoid_memtable::{Kind, Result, SequenceNumber, WriteBatch};
///
/// /// Keys with one version each, in memory. Positions are from 0 to the length, inclusive.
/// struct Level(Vec<(&'static str, &'static str)>, usize);
/// impl Level {
///     fn go(&mut self, place: usize) -> Result<Option<SourceKey<'_>>> {
///         self.1 = place;
///         let entry = self.0.get(place);
///         Ok(entry.map(|(key, _)| SourceKey { user_key: key.as_bytes(), sequence: 1, kind: Kind::PUT }))
///     }
/// }
/// impl SortedSource for Level {
///     fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() < key || it.0.as_bytes() == key && sequence < 1))
///     }
///     fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() < key).wrapping_sub(1))
///     }
///     fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() <= key).wrapping_sub(1))
///     }
///     fn first(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(0)
///     }
///     fn last(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.len().wrapping_sub(1))
///     }
///     fn next(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.1.wrapping_add(1))
///     }
///     fn prev(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.1.wrapping_sub(1))
///     }
///     fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
///         value.clear();
///         value.extend_from_slice(self.0[self.1].1.as_bytes());
///         Ok(())
///     }
///     fn cover(&mut self, _: &[u8], _: SequenceNumber) -> Result<Option<Cover<'_>>> {
///         Ok(None)
///     }
/// }
/// # fn main() -> Result<()> {
/// let set = MemTableSet::open(SetOptions::builder().last_sequence(1).build()?, ())?;
/// let mut batch = WriteBatch::new();
/// batch.delete(b"b")?;
/// batch.put(b"c", b"new")?;
/// set.write(&batch)?;
/// let level = Level(vec![("a", "1"), ("b", "2"), ("c", "old")], 0);
/// let mut cursor = set.view().merging_cursor(vec![Box::new(level)])?;
/// assert_eq!(cursor.first()?.map(|entry| (entry.user_key(), entry.value())), Some((&b"a"[..], &b"1"[..])));
/// assert_eq!(cursor.next()?.map(|entry| (entry.user_key(), entry.value())), Some((&b"c"[..], &b"new"[..])));
/// assert!(cursor.next()?.is_none());
/// # Ok(()) }
/// ```
pub trait SortedSource: Send {
    /// Goes to the first entry at or after (`key`, `sequence`): the newest version of `key` up to `sequence`, or else
    /// the newest one of the next key.
    ///
    /// # Errors
    /// What could not be read, as for every move.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry whose user key is before `key`.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry whose user key is `key` or before it.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the first entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn first(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn last(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the next entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn next(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the entry before.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn prev(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Clears the buffer and copies the value of the entry into it on which the source stands; the copy is verified.
    /// Called only while it stands on one.
    ///
    /// # Errors
    /// What could not be read.
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()>;

    /// The newest range tombstone up to `snapshot` that covers `key`. The answer does not depend on where the source
    /// stands.
    ///
    /// # Errors
    /// What could not be read.
    fn cover(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Cover<'_>>>;
}

/// A table of a set as a source. Whether a key is covered, and how far, is asked of the table's index.
pub(crate) struct TableSource {
    cursor: OwnedCursor,
    slot: Arc<Slot>,
    /// The interval of the tombstone that was asked for last.
    run: CoveringRun,
}

impl TableSource {
    pub(crate) fn new(slot: &Arc<Slot>) -> Self {
        TableSource { cursor: slot.table.owned_cursor(), slot: Arc::clone(slot), run: CoveringRun::default() }
    }
}

fn key_of(entry: Option<Entry<'_>>) -> Option<SourceKey<'_>> {
    let entry = entry?;
    Some(SourceKey { user_key: entry.user_key(), sequence: entry.sequence(), kind: entry.kind() })
}

shown! {
    "SourceKey": impl [] SourceKey<'_>, |key| { "sequence": key.sequence, "kind": key.kind }
    "Cover": impl [] Cover<'_>, |cover| { "sequence": cover.sequence }
}

impl SortedSource for TableSource {
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_version(key, sequence).map(key_of)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_before(key).map(key_of)
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_for_prev(key).map(key_of)
    }
    fn first(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.first().map(key_of)
    }
    fn last(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.last().map(key_of)
    }
    fn next(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.next().map(key_of)
    }
    fn prev(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.prev().map(key_of)
    }
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.cursor.entry()?.map_or(Ok(()), |entry| entry.value_into(value))
    }
    fn cover(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Cover<'_>>> {
        let core = self.slot.table.core();
        let question = Question::new(key, snapshot);
        let covering = core.tombstones.covering_run(core.ground(), question, &mut self.run)?;
        Ok(covering.map(|sequence| Cover {
            sequence,
            span: (!self.run.is_empty()).then_some((&self.run.start, &self.run.end)),
            hides_own: core.is_dead(&self.run, snapshot),
        }))
    }
}
