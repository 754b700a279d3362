//! The parts of a table and their accounts.
//!
//! ```text
//!   MemTable ---+                    +-- arena ---- points (list or log), ranges (list)
//!               +--> TableReader --> Core -- shards (gates, counters, sub-chunks)
//!   Immutable --+                    +-- tombstones (answers), sealed sums
//! ```
//! * TABLE-1: both handles share one core; freezing changes what writes answer, never where an entry lies.
//! * TABLE-2: an insert returns only after every structure that a read asks has it.
//!
//! Who may call what: every method of both handles from any number of threads at once.

#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::error::{Corruption, Error, Result};
use crate::integrity::control_word::Words;
use crate::integrity::options::{OrderChecks, ParanoidOptions, SeekChecks};
use crate::integrity::tag::Secret;
use crate::key::{Bytewise, Comparator, SequenceNumber};
use crate::memtable::lookup::accelerators::Accelerators;
use crate::memtable::lookup::statistics::{Statistics, Stats};
use crate::memtable::options::{MemTableOptions, Representation};
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::vector::{Sorted, SortedSearch};
use crate::memtable::parts::writer_shards::{Totals, WriterShards};
use crate::memtable::skiplist::arena::{Arena, ArenaOptions, View};
use crate::memtable::skiplist::control_block::{ControlWord, Head};
use crate::memtable::skiplist::layout::{HEADER, HEIGHT_MAX, PAD_UNITS_MAX, UNIT};
use crate::memtable::skiplist::list::List;
use crate::memtable::skiplist::search::Search;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::frozen::FrozenTombstones;
use crate::tombstone::index::live::LiveIndex;

/// Everything that both handles share.
pub(crate) struct Core<C> {
    pub(crate) options: MemTableOptions,
    pub(crate) comparator: C,
    pub(crate) arena: Arena,
    pub(crate) points: List,
    /// The sorted array of a frozen `Vector` table.
    pub(crate) sorted: OnceLock<Arc<Sorted>>,
    pub(crate) ranges: List,
    /// What answers for range tombstones while the table is written.
    pub(crate) live_tombstones: LiveIndex,
    /// What answers for them once it is frozen and this is built.
    pub(crate) frozen_tombstones: OnceLock<FrozenTombstones>,
    pub(crate) shards: WriterShards,
    /// Filters, point index, statistics.
    pub(crate) accelerators: Accelerators,
    /// The sums at the freeze.
    pub(crate) sealed: OnceLock<Totals>,
    flush_mark: AtomicU64,
    tag: AtomicU64,
}

impl ParanoidOptions {
    pub(crate) fn seek_checks(&self) -> SeekChecks {
        if self.checksum_on_seek() { SeekChecks::EveryNode } else { SeekChecks::Bracket }
    }

    pub(crate) fn neighbour_checks(&self) -> OrderChecks {
        if self.order_checks() { OrderChecks::On } else { OrderChecks::Off }
    }
}

impl<C: Comparator> Core<C> {
    fn new(options: MemTableOptions, comparator: C) -> Result<Self> {
        let secret = Secret::from_seed(options.draw_seed());
        let arena = Arena::new(&ArenaOptions {
            write_buffer_size: options.write_buffer_size,
            hard_limit: options.hard_limit,
            width: options.paranoid.width(),
            secret,
        })?;
        let (seek, order) = (options.paranoid.seek_checks(), options.paranoid.neighbour_checks());
        let points = List::new(&arena, Head::Points, seek, order)?;
        let ranges = List::new(&arena, Head::Ranges, seek, order)?;
        let accelerators = Accelerators::new::<C>(&options, &arena)?;
        Ok(Core {
            options,
            comparator,
            arena,
            points,
            sorted: OnceLock::new(),
            ranges,
            live_tombstones: LiveIndex::new(secret),
            frozen_tombstones: OnceLock::new(),
            shards: WriterShards::new(secret),
            accelerators,
            sealed: OnceLock::new(),
            flush_mark: AtomicU64::new(0),
            tag: AtomicU64::new(0),
        })
    }

    /// A search among the point entries.
    #[inline(always)]
    pub(crate) fn point_search(&self) -> Result<Search<'_, C>, Corruption> {
        Ok(self.points.search(Head::Points, self.arena.view()?, &self.comparator))
    }

    /// The order of the point entries. A mutable `Vector` table sorts a copy: of everything, or of one key's entries.
    #[inline(always)]
    pub(crate) fn order(&self, only: Option<&[u8]>) -> Result<Order<'_, C>, Corruption> {
        match self.options.representation {
            Representation::SkipList => self.point_search().map(Order::List),
            Representation::Vector => self.sorted_order(only).map(Order::Sorted),
        }
    }

    #[cold]
    fn sorted_order(&self, only: Option<&[u8]>) -> Result<SortedSearch<'_, C>, Corruption> {
        let sorted = match self.sorted.get() {
            Some(sorted) => Arc::clone(sorted),
            None => Arc::new(self.sort(&self.arena.view()?, only)),
        };
        self.search_sorted(sorted)
    }

    /// A search in a sorted copy.
    pub(crate) fn search_sorted(&self, sorted: Arc<Sorted>) -> Result<SortedSearch<'_, C>, Corruption> {
        Ok(SortedSearch { view: self.arena.view()?, comparator: &self.comparator, sorted })
    }

    fn sort(&self, view: &View<'_>, only: Option<&[u8]>) -> Sorted {
        Sorted::collect(view, &self.comparator, self.shards.chains().into_iter(), only)
    }

    /// A search among the range tombstones.
    #[inline]
    pub(crate) fn range_search(&self) -> Result<Search<'_, C>, Corruption> {
        Ok(self.ranges.search(Head::Ranges, self.arena.view()?, &self.comparator))
    }

    /// Every control word but those of the shards.
    pub(crate) fn control_words(&self) -> impl Iterator<Item = Words<'_>> {
        std::iter::once(self.arena.control.words()).chain(self.accelerators.control_words())
    }
}

/// The reading side of a table: what [`MemTable`] and [`ImmutableMemTable`] share by `Deref`.
///
/// A read at snapshot S sees each entry with sequence number <= S whose insert returned before the read began.
pub struct TableReader<C = Bytewise> {
    pub(crate) core: Arc<Core<C>>,
}

/// A mutable table: many writers and many readers at once, from any threads. Share it by `Arc`.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"apple", b"red")?;
/// table.put(2, b"apple", b"green")?;
/// let Lookup::Value(value) = table.get(b"apple", 1)? else { panic!("not there") };
/// assert_eq!(&*value, b"red");
/// # Ok(()) }
/// ```
pub struct MemTable<C = Bytewise> {
    reader: TableReader<C>,
}

/// A frozen table: it answers reads, is flushed, and is dropped in O(chunks).
pub struct ImmutableMemTable<C = Bytewise> {
    reader: TableReader<C>,
}

impl<C> Deref for MemTable<C> {
    type Target = TableReader<C>;
    fn deref(&self) -> &TableReader<C> {
        &self.reader
    }
}

impl<C> Deref for ImmutableMemTable<C> {
    type Target = TableReader<C>;
    fn deref(&self) -> &TableReader<C> {
        &self.reader
    }
}

impl MemTable {
    /// An empty table under bytewise order. Costs a few microseconds and about 10 KiB.
    ///
    /// # Errors
    /// `MemTableFull` if the system has no memory for the first chunk.
    pub fn new(options: MemTableOptions) -> Result<Self> {
        Self::with_comparator(options, Bytewise)
    }

    /// Most bytes that an entry of these lengths takes in the arena, whatever its height and the protection. For
    /// reservations: `max_entry_bytes(key, value)` summed over entries is always enough. `u64::MAX` for lengths whose
    /// sum is beyond it.
    #[must_use]
    pub const fn max_entry_bytes(key_len: u64, value_len: u64) -> u64 {
        let fixed = ((HEIGHT_MAX + PAD_UNITS_MAX as usize) * UNIT + HEADER + 16) as u64;
        let bytes = fixed.saturating_add(key_len).saturating_add(value_len);
        match bytes.checked_next_multiple_of(UNIT as u64) {
            Some(bytes) => bytes,
            None => u64::MAX,
        }
    }
}

impl<C: Comparator> MemTable<C> {
    /// An empty table under this order.
    ///
    /// # Errors
    /// As [`MemTable::new`].
    pub fn with_comparator(options: MemTableOptions, comparator: C) -> Result<Self> {
        Ok(MemTable { reader: TableReader { core: Arc::new(Core::new(options, comparator)?) } })
    }

    /// A new empty table with the same options and comparator: the next one to write to.
    ///
    /// # Errors
    /// As [`MemTable::new`].
    pub fn fork(&self) -> Result<Self>
    where
        C: Clone,
    {
        Self::with_comparator(self.core.options.clone(), self.core.comparator.clone())
    }

    /// Ends writing: later writes answer `Frozen`, and the table that reads and flush use comes back. Idempotent; many
    /// threads may call it at once. Waits for writes that are under way, no longer.
    ///
    /// # Errors
    /// `Corruption` if the control block is damaged; `DuplicateEntry` if a `Vector` table was given two entries with
    /// the same user key and sequence number. Writing has ended all the same, nothing is lost, and
    /// [`immutable`](Self::immutable) has the table. `InvalidArgument` from a comparator inside a write to this
    /// table: the freeze would wait for that write. Nothing is changed then.
    pub fn freeze(&self) -> Result<Arc<ImmutableMemTable<C>>> {
        let core = &self.reader.core;
        core.seal()?;
        core.check_control()?;
        match core.sorted.get().and_then(|sorted| sorted.duplicate) {
            Some(sequence) => Err(Error::DuplicateEntry { sequence }),
            None => Ok(self.handle()),
        }
    }

    /// The frozen table, also if [`freeze`](Self::freeze) answered an error; `None` before it has ended writing.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions, Representation};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let options = MemTableOptions::builder().representation(Representation::Vector).build()?;
    /// let table = MemTable::new(options)?;
    /// table.put(7, b"key", b"value")?;
    /// table.put(7, b"key", b"another")?;
    /// assert!(table.immutable().is_none());
    /// assert!(matches!(table.freeze(), Err(Error::DuplicateEntry { sequence: 7 })));
    /// let frozen = table.immutable().expect("it is frozen");
    /// assert_eq!((frozen.len(), frozen.salvage().entries.len()), (2, 2));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn immutable(&self) -> Option<Arc<ImmutableMemTable<C>>> {
        (self.is_frozen() && self.core.sealed.get().is_some()).then(|| self.handle())
    }

    fn handle(&self) -> Arc<ImmutableMemTable<C>> {
        Arc::new(ImmutableMemTable { reader: TableReader { core: Arc::clone(&self.reader.core) } })
    }
}

impl<C: Comparator> Core<C> {
    /// Closes the gates and keeps the sums. Idempotent.
    fn seal(&self) -> Result<()> {
        self.shards.freeze()?;
        // All writers are out: the sums are exact, and whoever is second computes the same ones.
        let _ = self.sealed.set(self.shards.totals());
        // Before anything compares keys: a comparator that panics here leaves a frozen table.
        self.shards.while_registry_is_held(|| self.arena.control.set(ControlWord::FROZEN, 1));
        if self.options.representation == Representation::Vector
            && self.sorted.get().is_none()
            && let Ok(view) = self.arena.view()
        {
            // A second freezer may sort as well; a comparator may be that second one.
            let _ = self.sorted.set(Arc::new(self.sort(&view, None)));
        }
        if self.may_have_ranges() {
            // Readers use the live index until the result is there; a second freezer may build it once more.
            if self.frozen_tombstones.get().is_none()
                && let Some(frozen) = self.freeze_tombstones()
            {
                let _ = self.frozen_tombstones.set(frozen);
            }
        }
        Ok(())
    }
}

impl<C: Comparator> TableReader<C> {
    /// The options that the table was made with.
    #[must_use]
    pub fn options(&self) -> &MemTableOptions {
        &self.core.options
    }

    /// The order of its keys.
    #[must_use]
    pub fn comparator(&self) -> &C {
        &self.core.comparator
    }

    /// Whether writes are over.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        // Damage reads as frozen: nothing acknowledged is lost, and the next write tells.
        !matches!(self.core.arena.control.get(ControlWord::FROZEN), Ok(0))
    }

    /// Entries that reads may find: point entries and range tombstones, without replaced ones. Exact once no write is
    /// under way. O(shards).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.core.shards.totals().entries
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Point tombstones (deletes and single deletes) among the entries.
    #[must_use]
    pub fn num_deletes(&self) -> u64 {
        self.core.shards.totals().deletes
    }

    /// Range tombstones among the entries.
    #[must_use]
    pub fn num_range_deletes(&self) -> u64 {
        self.core.shards.totals().range_deletes
    }

    /// Entries that a replacing one hides (policy `Replace`).
    #[must_use]
    pub fn num_displaced(&self) -> u64 {
        self.core.shards.totals().displaced
    }

    /// Bytes of the keys and values that reads may find.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.core.shards.totals().data_bytes
    }

    /// Bytes of memory set aside: arena handed out to writers, side structures, the table itself. Never shrinks. It
    /// is what `should_flush` and the hard limit count. Writers take up to 256 KiB ahead: memory that is not touched
    /// before it is used, so a table of few entries holds less; see [`used_bytes`](Self::used_bytes). What
    /// [`maintain`](Self::maintain) has the system back ahead of writers is counted once they take it.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let core = &*self.core;
        let sorted = core.sorted.get().map_or(0, |sorted| sorted.bytes());
        let frozen = core.frozen_tombstones.get().map_or(0, FrozenTombstones::allocated_bytes);
        let sides = sorted + frozen + core.live_tombstones.allocated_bytes() + core.shards.extra_bytes();
        core.arena.handed_bytes() + sides + core.accelerators.heap_bytes() + size_of::<Core<C>>() as u64
    }

    /// Bytes of memory in use: [`allocated_bytes`](Self::allocated_bytes) without what writers took ahead and have not
    /// used yet, reservations included. What to add up over many small tables. Exact once no write is under way; never
    /// waits. O(writers).
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// for sequence in 0..50 {
    ///     table.put(sequence, b"key", &[7; 100])?;
    /// }
    /// assert!(table.used_bytes() < 24 << 10 && table.allocated_bytes() > 256 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.allocated_bytes().saturating_sub(self.core.shards.unused_bytes())
    }

    /// What reads did so far; all zero unless the table was made to count. O(shards).
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.accelerators.statistics.as_ref().map_or_else(Stats::default, Statistics::sums)
    }

    /// Smallest sequence number written.
    #[must_use]
    pub fn smallest_sequence(&self) -> Option<SequenceNumber> {
        self.core.shards.sequences().map(|(smallest, _)| smallest)
    }

    /// Largest sequence number written.
    #[must_use]
    pub fn largest_sequence(&self) -> Option<SequenceNumber> {
        self.core.shards.sequences().map(|(_, largest)| largest)
    }

    /// Whether the engine should freeze and flush this table: it was marked, is over its write buffer size, or holds
    /// `max_range_deletions` range tombstones. O(shards).
    #[must_use]
    pub fn should_flush(&self) -> bool {
        // ORDERING: Relaxed: advice.
        if self.core.flush_mark.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let options = &self.core.options;
        if options.range_deletions_max > 0 && self.num_range_deletes() >= options.range_deletions_max {
            return true;
        }
        self.allocated_bytes() >= options.write_buffer_size
    }

    /// Does what inserts leave undone: merges the tombstone index further, and has the system back memory ahead of
    /// writers, so that inserts do not wait for it (Linux 5.14 and later; elsewhere they touch it first). That is
    /// whole huge pages of 2 MiB: as much as writers were given so far, at most 8 MiB, and nothing for a table of
    /// less than 2 MiB. Every millisecond, say, by an engine's background thread; returns at once if another one is
    /// at it. Reads and writes never wait for it.
    pub fn maintain(&self) {
        if !self.is_frozen() {
            self.core.arena.back_ahead();
        }
        self.core.live_tombstones.maintain(&self.core.comparator);
    }

    /// Makes `should_flush` say yes from now on.
    pub fn mark_for_flush(&self) {
        // ORDERING: Relaxed: advice.
        self.core.flush_mark.store(1, Ordering::Relaxed);
    }

    /// A word that belongs to the engine (a log number, an id). 0 at first.
    #[must_use]
    pub fn tag(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `set_tag`.
        self.core.tag.load(Ordering::Acquire)
    }

    /// Sets the engine's word.
    pub fn set_tag(&self, tag: u64) {
        // ORDERING: Release pairs with the Acquire in `tag`.
        self.core.tag.store(tag, Ordering::Release);
    }
}

/// A write to a table that is frozen.
#[cold]
pub(crate) fn frozen() -> Error {
    Error::Frozen
}
