//! The handles of a table: what its users call. Each method is explained here and done in the file that it calls.
//!
//! ```text
//!   MemTable ----------+                    put, write_batch, writer, freeze
//!                      +--> TableReader     get, multi_get, cursor, range, scrub, counters
//!   ImmutableMemTable -+                    flush, salvage
//! ```
//! Who may call what: every method of both handles from any number of threads at once.

#![forbid(unsafe_code)]

use std::any::Any;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::batch::batch::WriteBatch;
use crate::error::Result;
use crate::integrity::digest::{Kvo, Protected};
use crate::key::{Bytewise, Comparator, Kind, SequenceNumber};
use crate::memtable::core::Core;
use crate::memtable::lifecycle::flush::{FlushIter, FlushSink, FlushSummary, HiddenVersions, flush};
use crate::memtable::lifecycle::freeze::freeze;
use crate::memtable::lifecycle::salvage::{Salvage, salvage};
use crate::memtable::lifecycle::scrub::{ScrubProgress, ScrubReport, scrub};
use crate::memtable::lookup::statistics::{Statistics, Stats};
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::entry::{Entry, PinnedEntry, pin};
use crate::memtable::read::get::{Found, Lookup, get, get_entry, get_exact, get_into};
use crate::memtable::read::multi_get::{Budget, multi_get};
use crate::memtable::scan::bounds::{key_bounds, version_bounds};
use crate::memtable::scan::cursor::{Cursor, OwnedCursor, TableCursor};
use crate::memtable::scan::descending::{Descending, DescendingRange, OwnedDescending};
use crate::memtable::scan::estimate::{RangeStats, approximate_range_stats};
use crate::memtable::scan::handle::{Borrowed, Owned};
use crate::memtable::scan::range::{EntryRange, OwnedRange, Range};
use crate::memtable::scan::tombstones::{TableOrder, range_tombstones};
use crate::memtable::scan::visibility::{AtSnapshot, Raw};
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::skiplist::layout::entry_bytes_max;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::write::own_writer::Writer;
use crate::memtable::write::write_batch::{BatchWritten, read_batch, write_batch};
use crate::memtable::write::writer::{Inserted, with_slices, write, writes};
use crate::sync::Ordering;
use crate::tombstone::fragment::fragments::Fragments;

/// The reading side of a table, mutable or frozen: see [`MemTable::reader`] and [`ImmutableMemTable::reader`].
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
    pub(crate) reader: TableReader<C>,
}

/// A frozen table: it answers reads, is flushed, and is dropped in O(chunks).
pub struct ImmutableMemTable<C = Bytewise> {
    pub(crate) reader: TableReader<C>,
}

/// Another handle of this reading side.
impl<C> Clone for TableReader<C> {
    fn clone(&self) -> Self {
        TableReader { core: Arc::clone(&self.core) }
    }
}

/// Another handle of this table: what one writes, all read.
///
/// ```
/// use paranoid_memtable::MemTable;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// let other = table.clone();
/// table.put(1, b"k", b"v")?;
/// assert_eq!(other.len(), 1);
/// # Ok(()) }
/// ```
impl<C> Clone for MemTable<C> {
    fn clone(&self) -> Self {
        MemTable { reader: self.reader.clone() }
    }
}

/// Another handle of this table.
impl<C> Clone for ImmutableMemTable<C> {
    fn clone(&self) -> Self {
        ImmutableMemTable { reader: self.reader.clone() }
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

    /// An empty table that refuses a second entry with the same user key and sequence number: these options with
    /// [`DuplicatePolicy::Reject`].
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), Error> {
    /// let table = MemTable::rejecting(MemTableOptions::default())?;
    /// table.put(1, b"k", b"first")?;
    /// assert!(matches!(table.put(1, b"k", b"second"), Err(Error::DuplicateEntry { sequence: 1 })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`MemTable::new`]; `InvalidArgument` if the options name another policy.
    pub fn rejecting(options: MemTableOptions) -> Result<Self> {
        MemTable::new(options.with_policy(DuplicatePolicy::Reject)?)
    }

    /// An empty table that keeps the first entry with a user key and sequence number and ignores later ones: these
    /// options with [`DuplicatePolicy::KeepFirst`].
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::keeping_first(MemTableOptions::default())?;
    /// table.put(1, b"k", b"first")?;
    /// table.put(1, b"k", b"second")?;
    /// assert!(matches!(table.get(b"k", 1)?, Lookup::Value(value) if &*value == b"first"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`MemTable::new`]; `InvalidArgument` if the options name another policy than the default and this one, and
    /// for the representation `Vector`.
    pub fn keeping_first(options: MemTableOptions) -> Result<Self> {
        MemTable::new(options.with_policy(DuplicatePolicy::KeepFirst)?)
    }

    /// An empty table in which the last entry with a user key and sequence number replaces those before it: these
    /// options with [`DuplicatePolicy::Replace`].
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::replacing(MemTableOptions::default())?;
    /// table.put(1, b"k", b"first")?;
    /// table.put(1, b"k", b"second")?;
    /// assert!(matches!(table.get(b"k", 1)?, Lookup::Value(value) if &*value == b"second"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`keeping_first`](Self::keeping_first).
    pub fn replacing(options: MemTableOptions) -> Result<Self> {
        MemTable::new(options.with_policy(DuplicatePolicy::Replace)?)
    }

    /// Most bytes that an entry of these lengths takes in the arena, whatever its height and the protection. For
    /// reservations: `max_entry_bytes(key, value)` summed over entries is always enough. `u64::MAX` for lengths whose
    /// sum is beyond it.
    #[must_use]
    pub const fn max_entry_bytes(key_len: u64, value_len: u64) -> u64 {
        entry_bytes_max(key_len, value_len)
    }
}

/// A table with the default options under bytewise order.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// assert!(table.put(1, b"k", b"v").is_ok());
/// ```
///
/// # Panics
/// If the system has no memory for the first chunk (about 10 KiB); [`MemTable::new`] tells instead.
impl Default for MemTable {
    fn default() -> Self {
        match MemTable::new(MemTableOptions::default()) {
            Ok(table) => table,
            Err(error) => panic!("a table with default options: {error}"),
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
        Self::with_comparator(self.core().options.clone(), self.core().comparator.clone())
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
        freeze(self.core())?;
        Ok(self.handle())
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
        (self.is_frozen() && self.core().sealed.get().is_some()).then(|| self.handle())
    }

    fn handle(&self) -> Arc<ImmutableMemTable<C>> {
        Arc::new(ImmutableMemTable { reader: TableReader { core: Arc::clone(self.core()) } })
    }

    writes!(self: &Self);

    /// Inserts an entry. Any thread. Expected O(log n), O(1) after the previous insert of the same shard. When it
    /// returns, every read at or above `sequence` sees the entry.
    ///
    /// # Errors
    /// `KeyTooLarge`, `ValueTooLarge`, `InvalidArgument` (a kind that is not known, a point delete with a value, an
    /// empty or inverted range), `Frozen`, `DuplicateEntry`, `MemTableFull`, and `Corruption` if the place of the
    /// insert cannot be certified. None of them changes anything.
    ///
    /// # Panics
    /// Where the comparator does. The table is intact then; the entry may be in it or not.
    pub fn insert(&self, sequence: SequenceNumber, kind: Kind, key: &[u8], value: &[u8]) -> Result<Inserted> {
        write(self.core(), &Fields::new(sequence, kind, key, value, None))
    }

    /// Inserts an entry with a digest that the caller computed over its own buffers. It is compared with what the arena
    /// holds before the entry becomes visible.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); `Corruption` if the bytes do not have that digest.
    pub fn insert_protected(
        &self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        caller_digest: Protected<Kvo>,
    ) -> Result<Inserted> {
        write(self.core(), &Fields::new(sequence, kind, key, value, Some(caller_digest)))
    }

    /// Inserts an entry whose value lies in several slices, one after the other: they are copied straight into the
    /// arena, and the entry is the one that [`insert`](Self::insert) would make of all of them in one.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, Lookup, MemTable};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.insert_parts(1, Kind::PUT, b"k", &[b"head", b"", b"body"])?;
    /// assert!(matches!(table.get(b"k", 1)?, Lookup::Value(value) if &*value == b"headbody"));
    /// # Ok(()) }
    /// ```
    ///
    /// The digests are computed from the arena's bytes after the copy, as for every insert. A flip in the caller's key
    /// is noticed; one in the caller's slices before they are copied is not, unless a digest says what they held:
    /// [`insert_parts_protected`](Self::insert_parts_protected).
    ///
    /// # Errors
    /// As [`insert`](Self::insert); `ValueTooLarge` for all slices together.
    pub fn insert_parts(
        &self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<Inserted> {
        with_slices((sequence, kind), key, value, None, |fields| write(self.core(), fields))
    }

    /// As [`insert_parts`](Self::insert_parts), with a digest over key, kind and the whole value that the caller
    /// computed or carried along. It is compared with what the arena holds before the entry becomes visible.
    ///
    /// # Errors
    /// As [`insert_parts`](Self::insert_parts); `Corruption` if the bytes do not have that digest.
    pub fn insert_parts_protected(
        &self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
        caller_digest: Protected<Kvo>,
    ) -> Result<Inserted> {
        let digest = Some(caller_digest);
        with_slices((sequence, kind), key, value, digest, |fields| write(self.core(), fields))
    }

    /// A writer with its own splice, sub-chunk and counters, for a thread that writes much.
    #[must_use]
    pub fn writer(&self) -> Writer<C> {
        Writer::new(self.core())
    }

    /// A writer with `bytes` of arena space taken: as long as the entries written fit in it (see
    /// [`MemTable::max_entry_bytes`]) they cannot fail with `MemTableFull`. The system backs the space before this
    /// returns (Linux 5.14 and later), which takes time in proportion to it, so that these inserts do not wait for
    /// memory; elsewhere they touch it first.
    ///
    /// # Errors
    /// `MemTableFull` (nothing is taken), `Frozen`.
    pub fn try_reserve(&self, bytes: u64) -> Result<Writer<C>> {
        Writer::reserving(self.core(), bytes)
    }

    /// Writes the entries of a batch. The first one gets `first_sequence`, each further one the next number (or all the
    /// same one, see [`SequenceMode`](crate::batch::SequenceMode)). Any thread. O(n log n) expected; the searches of a
    /// batch overlap, which makes a batch cheaper than its entries one by one.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions, WriteBatch};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// let mut batch = WriteBatch::with_protection(8)?;
    /// batch.put(b"apple", b"red")?;
    /// batch.delete(b"pear")?;
    /// assert_eq!(table.write_batch(7, &batch)?.entries, 2);
    /// assert_eq!(table.largest_sequence(), Some(8));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`insert`](Self::insert), for any entry, and `Corruption` if the batch is not what was put into it: nothing
    /// is changed then. `MemTableFull` also if there is no room for the batch in one piece. `BatchInterrupted` if it
    /// was stopped after the first entry had been linked: by damage that appeared meanwhile, or by another writer
    /// that took the same key and sequence number. The caller must not publish the batch's sequence numbers then.
    ///
    /// # Panics
    /// Where the comparator does. The table is intact then, but any number of the batch's entries may be in it: the
    /// caller must not publish their sequence numbers.
    pub fn write_batch(&self, first_sequence: SequenceNumber, batch: &WriteBatch) -> Result<BatchWritten> {
        write_batch(self.core(), first_sequence, batch)
    }

    /// Whether [`write_batch`](Self::write_batch) would take this batch, as far as that does not depend on what else is
    /// written: for callers that log a batch before they write it. Any thread; writes nothing. O(length), and
    /// O(n log n) comparisons under [`SequenceMode::WholeBatch`](crate::batch::SequenceMode::WholeBatch).
    ///
    /// Not asked: whether the table is frozen or full, and whether it has an entry of the same key and sequence number.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions, WriteBatch};
    /// # fn main() -> Result<(), Error> {
    /// let table = MemTable::new(MemTableOptions::builder().key_len_max(100).build()?)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"apple", b"red")?;
    /// table.check_batch(&batch)?;
    /// batch.delete_range(b"z", b"a")?;
    /// assert!(matches!(table.check_batch(&batch), Err(Error::InvalidArgument(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `KeyTooLarge` and `ValueTooLarge` by this table's limits, `InvalidArgument` (a range that is empty or inverted
    /// in this table's order), `DuplicateEntry` for two entries of one key that share the batch's only sequence
    /// number, `Corruption` if the batch is not what was put into it.
    pub fn check_batch(&self, batch: &WriteBatch) -> Result<()> {
        // Numbers from 0 on never run over.
        read_batch(self.core(), 0, batch).map(|_| ())
    }

    /// Whether the engine should freeze and flush this table: it was marked, is over its write buffer size, or holds
    /// `max_range_deletions` range tombstones. O(shards).
    #[must_use]
    pub fn should_flush(&self) -> bool {
        // ORDERING: Relaxed: advice.
        if self.core().flush_mark.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let options = &self.core().options;
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
            self.core().arena.back_ahead();
        }
        self.core().tombstones.live.maintain(&self.core().comparator);
    }

    /// Makes `should_flush` say yes from now on.
    pub fn mark_for_flush(&self) {
        // ORDERING: Relaxed: advice.
        self.core().flush_mark.store(1, Ordering::Relaxed);
    }

    /// Sets the engine's word.
    pub fn set_tag(&self, tag: u64) {
        // ORDERING: Release pairs with the Acquire in `tag`.
        self.core().tag.store(tag, Ordering::Release);
    }
}

/// What every handle of a table can read.
macro_rules! reads {
    ($self:ident) => {
        /// The options that the table was made with.
        #[must_use]
        pub fn options(&$self) -> &MemTableOptions {
            &$self.core().options
        }

        /// The order of its keys.
        #[must_use]
        pub fn comparator(&$self) -> &C {
            &$self.core().comparator
        }

        /// Whether writes are over.
        #[must_use]
        pub fn is_frozen(&$self) -> bool {
            $self.core().is_frozen()
        }

        /// Entries that reads may find: point entries and range tombstones, without replaced ones. Exact once no write is
        /// under way. O(shards).
        #[must_use]
        pub fn len(&$self) -> usize {
            usize::try_from($self.core().shards.totals().entries).unwrap_or(usize::MAX)
        }

        /// Whether nothing was written.
        #[must_use]
        pub fn is_empty(&$self) -> bool {
            $self.len() == 0
        }

        /// Point tombstones (deletes and single deletes) among the entries.
        #[must_use]
        pub fn num_deletes(&$self) -> u64 {
            $self.core().shards.totals().deletes
        }

        /// Range tombstones among the entries.
        #[must_use]
        pub fn num_range_deletes(&$self) -> u64 {
            $self.core().shards.totals().range_deletes
        }

        /// Entries that a replacing one hides (policy `Replace`).
        #[must_use]
        pub fn num_displaced(&$self) -> u64 {
            $self.core().shards.totals().displaced
        }

        /// Bytes of the keys and values that reads may find.
        #[must_use]
        pub fn data_bytes(&$self) -> u64 {
            $self.core().shards.totals().data_bytes
        }

        /// Bytes of memory set aside: arena handed out to writers, side structures, the table itself. Never shrinks. It
        /// is what `should_flush` and the hard limit count. Writers take up to 256 KiB ahead: memory that is not touched
        /// before it is used, so a table of few entries holds less; see [`used_bytes`](Self::used_bytes). What
        /// [`maintain`](crate::MemTable::maintain) has the system back ahead of writers is counted once they take it.
        #[must_use]
        pub fn allocated_bytes(&$self) -> u64 {
            $self.core().allocated_bytes()
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
        pub fn used_bytes(&$self) -> u64 {
            $self.allocated_bytes().saturating_sub($self.core().shards.unused_bytes())
        }

        /// Bytes between what writers were given and the hard limit: what `MemTableFull` reports as `remaining`.
        #[must_use]
        pub fn remaining(&$self) -> u64 {
            $self.core().arena.remaining_bytes()
        }

        /// Whether an entry of these lengths is within the table's limits and has room below the hard limit, whatever its
        /// height: an insert that begins now is not refused for its size, as long as no other writer takes the room
        /// meanwhile and the machine has the memory. `false` for room is careful: the entry may still fit into what its
        /// writer took ahead.
        ///
        /// ```
        /// use paranoid_memtable::{MemTable, MemTableOptions};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let options = MemTableOptions::builder().write_buffer_size(64 << 10).hard_limit(64 << 10).build()?;
        /// let table = MemTable::new(options)?;
        /// assert!(table.can_fit(10, 1000) && !table.can_fit(10, 64 << 10));
        /// assert!(table.remaining() < 64 << 10);
        /// # Ok(()) }
        /// ```
        #[must_use]
        pub fn can_fit(&$self, key_len: u64, value_len: u64) -> bool {
            let MemTableOptions { key_len_max, value_len_max, .. } = $self.core().options;
            let in_limits = key_len <= key_len_max && value_len <= value_len_max;
            in_limits && !$self.is_frozen() && entry_bytes_max(key_len, value_len) <= $self.remaining()
        }

        /// Keeps something alive for as long as the table's memory: a permit of a memory budget, a lock on a log file. It
        /// is dropped after the memory was given back, so later than the last handle, writer, owned cursor and pinned
        /// value.
        ///
        /// ```
        /// use std::sync::Arc;
        /// use paranoid_memtable::{Lookup, MemTable};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let permit = Arc::new("64 MiB of the budget");
        /// let table = MemTable::default();
        /// table.attach(permit.clone());
        /// table.put(1, b"k", b"v")?;
        /// let Lookup::Value(value) = table.get(b"k", 1)? else { panic!("not there") };
        /// let pinned = value.to_pinned();
        /// drop(table);
        /// assert_eq!(Arc::strong_count(&permit), 2, "the value keeps the memory, and the memory the permit");
        /// drop(pinned);
        /// assert_eq!(Arc::strong_count(&permit), 1);
        /// # Ok(()) }
        /// ```
        pub fn attach(&$self, attachment: Arc<dyn Any + Send + Sync>) {
            $self.core().attached.lock().push(attachment);
        }

        /// What reads did so far; all zero unless the table was made to count. O(shards).
        #[must_use]
        pub fn stats(&$self) -> Stats {
            $self.core().accelerators.statistics.as_ref().map_or_else(Stats::default, Statistics::sums)
        }

        /// Smallest sequence number written.
        #[must_use]
        pub fn smallest_sequence(&$self) -> Option<SequenceNumber> {
            $self.core().shards.sequences().map(|(smallest, _)| smallest)
        }

        /// Largest sequence number written.
        #[must_use]
        pub fn largest_sequence(&$self) -> Option<SequenceNumber> {
            $self.core().shards.sequences().map(|(_, largest)| largest)
        }

        /// A word that belongs to the engine (a log number, an id). 0 at first.
        #[must_use]
        pub fn tag(&$self) -> u64 {
            // ORDERING: Acquire pairs with the Release in `set_tag`.
            $self.core().tag.load(Ordering::Acquire)
        }

        /// What the table knows about `key` at `snapshot` (inclusive). Expected O(log n).
        ///
        /// # Errors
        /// `Corruption` if damaged memory could matter for this answer.
        pub fn get(&$self, key: &[u8], snapshot: SequenceNumber) -> Result<Lookup<'_, C>> {
            get($self.core(), key, snapshot)
        }

        /// The newest entry of `key` at or below `snapshot` as stored; range tombstones are not applied. Expected O(log n).
        ///
        /// # Errors
        /// `Corruption` if damaged memory could matter for this answer.
        pub fn get_entry(&$self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Entry<'_>>> {
            get_entry($self.core(), key, snapshot)
        }

        /// The entry of `key` with exactly this sequence number, as stored; range tombstones are not applied, and are not
        /// among the answers. Of equals under `Replace` it is the last one written. Expected O(log n).
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::default();
        /// table.put(3, b"k", b"three")?;
        /// table.put(5, b"k", b"five")?;
        /// let entry = table.get_exact(b"k", 3)?.expect("it was put");
        /// assert_eq!(entry.value()?, b"three");
        /// assert!(table.get_exact(b"k", 4)?.is_none(), "no older version answers");
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// As [`get_entry`](Self::get_entry).
        pub fn get_exact(&$self, key: &[u8], sequence: SequenceNumber) -> Result<Option<Entry<'_>>> {
            get_exact($self.core(), key, sequence)
        }

        /// This entry with a share in the table, verified now: nothing is copied, but the memory of the whole table lives
        /// as long. O(length).
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::default();
        /// table.put(7, b"apple", b"red")?;
        /// let entry = table.get_exact(b"apple", 7)?.expect("it was put");
        /// let pinned = table.pin(&entry)?;
        /// drop(table);
        /// assert_eq!((pinned.user_key(), pinned.value()), (b"apple".as_slice(), b"red".as_slice()));
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// `Corruption` if the entry is not what was written; `InvalidArgument` for an entry of another table.
        pub fn pin(&$self, entry: &Entry<'_>) -> Result<PinnedEntry> {
            pin($self.core(), entry)
        }

        /// Copies the value of `key` at `snapshot` into a buffer that is cleared first, and verifies the copy. Allocates
        /// only if the buffer is too small.
        ///
        /// # Errors
        /// As [`get`](Self::get); the buffer is then empty.
        pub fn get_into(&$self, key: &[u8], snapshot: SequenceNumber, buffer: &mut Vec<u8>) -> Result<Found> {
            get_into($self.core(), key, snapshot, buffer)
        }

        /// What the table knows about many keys at one snapshot, in the order asked. Any number, in any order, duplicates
        /// allowed. Each result is what [`get`](Self::get) would return; damage answers for its own key only. Much faster
        /// than a loop of gets: searches and probes wait for memory together.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::default())?;
        /// table.put(1, b"a", b"x")?;
        /// let results = table.multi_get(&[b"b", b"a"], 1);
        /// assert!(matches!(results[0], Ok(Lookup::NotFound)));
        /// assert!(matches!(results[1], Ok(Lookup::Value(_))));
        /// # Ok(()) }
        /// ```
        #[must_use]
        pub fn multi_get<K: AsRef<[u8]>>(
            &$self,
            keys: &[K],
            snapshot: SequenceNumber,
        ) -> Vec<Result<Lookup<'_, C>>> {
            let mut results = Vec::with_capacity(keys.len());
            $self.multi_get_into(keys, snapshot, &mut results);
            results
        }

        /// Looks up many keys and fills a buffer, which is cleared first: one that is large enough is not grown, and
        /// nothing else is allocated.
        pub fn multi_get_into<'a, K: AsRef<[u8]>>(
            &'a $self,
            keys: &[K],
            snapshot: SequenceNumber,
            results: &mut Vec<Result<Lookup<'a, C>>>,
        ) {
            multi_get($self.core(), keys, snapshot, Budget::Unlimited, results);
        }

        /// Looks up many keys until the values found take up `budget` bytes: the keys after the one that reaches it answer
        /// `BudgetUsedUp`. Merge operands do not count.
        ///
        /// ```
        /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::default())?;
        /// table.put(1, b"a", b"1234")?;
        /// let mut results = Vec::new();
        /// table.multi_get_with_budget(&[b"a", b"a", b"a"], 1, 5, &mut results);
        /// assert!(results[1].is_ok());
        /// assert!(matches!(results[2], Err(Error::BudgetUsedUp { budget: 5 })));
        /// # Ok(()) }
        /// ```
        pub fn multi_get_with_budget<'a, K: AsRef<[u8]>>(
            &'a $self,
            keys: &[K],
            snapshot: SequenceNumber,
            budget: u64,
            results: &mut Vec<Result<Lookup<'a, C>>>,
        ) {
            multi_get($self.core(), keys, snapshot, Budget::Of { bytes: budget, used: 0 }, results);
        }

        /// Every version of the keys in a range, from both ends. An inverted range is empty.
        pub fn range<'k>(&$self, range: impl RangeBounds<&'k [u8]>) -> Range<'_, C> {
            EntryRange::new(Borrowed(&**$self.core()), Raw, key_bounds(&range))
        }

        /// What a snapshot sees of the keys in a range, from both ends. An inverted range is empty.
        pub fn range_at<'k>(
            &$self,
            snapshot: SequenceNumber,
            range: impl RangeBounds<&'k [u8]>,
        ) -> Range<'_, C, AtSnapshot> {
            let visibility = AtSnapshot { sequence: snapshot };
            EntryRange::new(Borrowed(&**$self.core()), visibility, key_bounds(&range))
        }

        /// Every entry between two positions (user key, sequence number); sequence numbers descend within a key, so
        /// `(k, u64::MAX)` stands before every version of k and `(k, 0)` is its last.
        pub fn range_versions<'k>(&$self, range: impl RangeBounds<(&'k [u8], SequenceNumber)>) -> Range<'_, C> {
            EntryRange::new(Borrowed(&**$self.core()), Raw, version_bounds(&range))
        }

        /// Every version of the keys in a range, keys descending, the newest version of each first.
        pub fn range_descending<'k>(&$self, range: impl RangeBounds<&'k [u8]>) -> Descending<'_, C> {
            DescendingRange::new(Borrowed(&**$self.core()), key_bounds(&range))
        }

        /// As [`range`](Self::range), with a share in the table: `'static`, `Send` and `Sync`.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::default();
        /// table.put(1, b"a", b"one")?;
        /// let range = table.owned_range(..);
        /// drop(table);
        /// let reader = std::thread::spawn(move || range.rev().next());
        /// let entry = reader.join().unwrap().expect("it is there")?;
        /// assert_eq!((entry.user_key(), entry.value()), (b"a".as_slice(), b"one".as_slice()));
        /// # Ok(()) }
        /// ```
        pub fn owned_range<'k>(&$self, range: impl RangeBounds<&'k [u8]>) -> OwnedRange<C> {
            EntryRange::new(Owned(Arc::clone($self.core())), Raw, key_bounds(&range))
        }

        /// As [`range_at`](Self::range_at), with a share in the table: `'static`, `Send` and `Sync`.
        pub fn owned_range_at<'k>(
            &$self,
            snapshot: SequenceNumber,
            range: impl RangeBounds<&'k [u8]>,
        ) -> OwnedRange<C, AtSnapshot> {
            let visibility = AtSnapshot { sequence: snapshot };
            EntryRange::new(Owned(Arc::clone($self.core())), visibility, key_bounds(&range))
        }

        /// As [`range_versions`](Self::range_versions), with a share in the table: `'static`, `Send` and `Sync`.
        pub fn owned_range_versions<'k>(
            &$self,
            range: impl RangeBounds<(&'k [u8], SequenceNumber)>,
        ) -> OwnedRange<C> {
            EntryRange::new(Owned(Arc::clone($self.core())), Raw, version_bounds(&range))
        }

        /// As [`range_descending`](Self::range_descending), with a share in the table: `'static`, `Send` and `Sync`.
        pub fn owned_range_descending<'k>(&$self, range: impl RangeBounds<&'k [u8]>) -> OwnedDescending<C> {
            DescendingRange::new(Owned(Arc::clone($self.core())), key_bounds(&range))
        }

        /// The range tombstones that a snapshot (inclusive) sees, as fragments, each with the newest sequence number that
        /// it sees: for engines that merge this table with other sources. Each was read from the table's list and
        /// verified. O(n log n) for n range tombstones: those of a frozen table do not change, so keep them. They have a
        /// share in the table.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::default();
        /// table.delete_range(3, b"a", b"g")?;
        /// table.delete_range(7, b"c", b"k")?;
        /// let seen = table.range_tombstones(u64::MAX)?;
        /// let shown: Vec<_> = seen.iter().map(|it| (it.start(), it.end(), it.newest())).collect();
        /// assert_eq!(shown, [(&b"a"[..], &b"c"[..], 3), (b"c", b"k", 7)]);
        /// assert_eq!(table.range_tombstones(6)?.max_covering_sequence(b"d", u64::MAX), Some(3));
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// `Corruption` if one of the stored range tombstones is not what was written.
        pub fn range_tombstones(&$self, snapshot: SequenceNumber) -> Result<Fragments<TableOrder<C>>> {
            range_tombstones($self.core(), snapshot)
        }

        /// About how many entries, and how many bytes of them, lie in a range of keys. Expected O(log n).
        ///
        /// # Errors
        /// `Corruption` if damage makes counting impossible.
        pub fn approximate_range_stats<'k>(&$self, range: impl RangeBounds<&'k [u8]>) -> Result<RangeStats> {
            approximate_range_stats($self.core(), key_bounds(&range))
        }

        /// A cursor over every version and kind; range tombstones are not among them and are not applied. Stands nowhere.
        #[must_use]
        pub fn cursor(&$self) -> TableCursor<'_, C> {
            Cursor::new(Borrowed(&*$self.core()), Raw)
        }

        /// A cursor over what a snapshot (inclusive) sees: the newest visible version of each key, deletes and range
        /// deletes applied; of a key with merge operands it shows the newest operand. Stands nowhere.
        #[must_use]
        pub fn cursor_at(&$self, snapshot: SequenceNumber) -> TableCursor<'_, C, AtSnapshot> {
            Cursor::new(Borrowed(&*$self.core()), AtSnapshot { sequence: snapshot })
        }

        /// As [`cursor`](Self::cursor), with a share in the table: `'static`, `Send` and `Sync`.
        #[must_use]
        pub fn owned_cursor(&$self) -> OwnedCursor<C> {
            Cursor::new(Owned(Arc::clone($self.core())), Raw)
        }

        /// As [`cursor_at`](Self::cursor_at), with a share in the table: `'static`, `Send` and `Sync`.
        #[must_use]
        pub fn owned_cursor_at(&$self, snapshot: SequenceNumber) -> OwnedCursor<C, AtSnapshot> {
            Cursor::new(Owned(Arc::clone($self.core())), AtSnapshot { sequence: snapshot })
        }

        /// Looks at every entry, link and control word and reports every finding; of a frozen table also whether all that
        /// was written is there. `progress` is called every 1024 entries and at the end. O(entries).
        ///
        /// ```
        /// # use paranoid_memtable::{MemTable, MemTableOptions};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::default())?;
        /// table.put(1, b"key", b"value")?;
        /// let report = table.scrub(|_| {});
        /// assert!(report.findings.is_empty());
        /// assert_eq!(report.entries, 1);
        /// # Ok(()) }
        /// ```
        pub fn scrub(&$self, progress: impl FnMut(ScrubProgress)) -> ScrubReport {
            scrub($self.core(), progress)
        }
    };
}

impl<C: Comparator> TableReader<C> {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core<C>> {
        &self.core
    }

    reads!(self);
}

impl<C: Comparator> MemTable<C> {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core<C>> {
        &self.reader.core
    }

    /// The reading side of this table, for code that reads mutable and frozen tables alike.
    #[must_use]
    pub fn reader(&self) -> &TableReader<C> {
        &self.reader
    }

    reads!(self);
}

impl<C: Comparator> ImmutableMemTable<C> {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core<C>> {
        &self.reader.core
    }

    /// The reading side of this table, for code that reads mutable and frozen tables alike.
    #[must_use]
    pub fn reader(&self) -> &TableReader<C> {
        &self.reader
    }

    reads!(self);

    /// Hands every entry that a read at the newest sequence number or at one of `snapshots` (any order) could need to
    /// the sink, in order and verified, then the range tombstones; compares counts and sums with those sealed at the
    /// freeze. O(entries * log snapshots).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
    /// use paranoid_memtable::tombstone::Fragment;
    /// struct Keys(Vec<Vec<u8>>);
    /// impl FlushSink for Keys {
    ///     fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
    ///         self.0.push(entry.user_key.to_vec());
    ///         Ok(())
    ///     }
    ///     fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
    ///         Ok(())
    ///     }
    /// }
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"b", b"old")?;
    /// table.put(2, b"b", b"new")?;
    /// table.put(3, b"a", b"1")?;
    /// let mut sink = Keys(Vec::new());
    /// let summary = table.freeze()?.flush(&[], &mut sink)?;
    /// assert_eq!(sink.0, [b"a", b"b"]);
    /// assert_eq!((summary.entries, summary.hidden), (2, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` for the first damage met, also if sums differ (`Place::Sum`); `Sink` if the sink refuses. The
    /// sink's output is then incomplete (FLUSH-2); the table is as before.
    pub fn flush(&self, snapshots: &[SequenceNumber], sink: &mut impl FlushSink) -> Result<FlushSummary> {
        self.flush_with(snapshots, HiddenVersions::Drop, sink)
    }

    /// As [`flush`](Self::flush); `hidden` says what happens to versions that no snapshot sees.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_with(
        &self,
        snapshots: &[SequenceNumber],
        hidden: HiddenVersions,
        sink: &mut impl FlushSink,
    ) -> Result<FlushSummary> {
        flush(self.core(), snapshots, hidden, sink)
    }

    /// As [`flush`](Self::flush), pulled: the caller takes one item after the other, and holds what was made of them
    /// back until the end, where counts and sums are compared. See [`FlushIter`](crate::flush::FlushIter).
    ///
    /// # Errors
    /// `Corruption` if the table's control words, or its beginning, are damaged.
    pub fn flush_iter(&self, snapshots: &[SequenceNumber]) -> Result<FlushIter<'_, C>> {
        self.flush_iter_with(snapshots, HiddenVersions::Drop)
    }

    /// As [`flush_iter`](Self::flush_iter); `hidden` says what happens to versions that no snapshot sees.
    ///
    /// # Errors
    /// As [`flush_iter`](Self::flush_iter).
    pub fn flush_iter_with(
        &self,
        snapshots: &[SequenceNumber],
        hidden: HiddenVersions,
    ) -> Result<FlushIter<'_, C>> {
        FlushIter::new(self.core(), snapshots, hidden)
    }

    /// Every entry that still verifies. O(bytes handed out + entries log entries).
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # use paranoid_memtable::repair::Reach;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"key", b"value")?;
    /// let frozen = table.freeze()?;
    /// let salvage = frozen.salvage();
    /// assert_eq!(salvage.entries[0].entry.user_key(), b"key");
    /// assert_eq!((salvage.reach, salvage.missing), (Reach::Arena, 0));
    /// # Ok(()) }
    /// ```
    pub fn salvage(&self) -> Salvage<'_> {
        salvage(self.core())
    }
}
