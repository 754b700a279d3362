//! The handles of a table: `MemTable`, `ImmutableMemTable`, `TableReader`, `Writer`. Each method is
//! documented here and implemented in the file that it calls.
//!
//! ```text
//!   MemTable ----------+                    put, write_batch, writer, freeze
//!                      +--> TableReader     get, multi_get, cursor, range, scrub, counters
//!   ImmutableMemTable -+                    flush, salvage
//! ```
//! Who may call what: any number of threads may call every method of all handles at once, but a
//! `Writer` belongs to one thread at a time.

#![forbid(unsafe_code)]

use std::any::Any;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use crate::comparator::{Comparator, KeyComparator};
use crate::error::Result;
use crate::integrity::digest::{Kvos, Protected};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::arena::layout::entry_bytes_max;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::lifecycle::flush::{FlushIter, FlushSink, FlushSummary, Versions, flush};
use crate::memtable::lifecycle::freeze::freeze;
use crate::memtable::lifecycle::salvage::{Salvage, salvage};
use crate::memtable::lifecycle::scrub::{ScrubProgress, ScrubReport, scrub};
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::entry::Entry;
#[cfg(feature = "bytes")]
use crate::memtable::read::get::pin;
use crate::memtable::read::get::{Lookup, Operands, ValueRef, get, get_entry, get_into};
use crate::memtable::read::multi_get::multi_get;
use crate::memtable::scan::bounds::{KeyRange, scan_bounds, version_bounds};
use crate::memtable::scan::cursor::Cursor;
use crate::memtable::scan::estimate::{RangeStats, approximate_range_stats};
use crate::memtable::scan::handle::Borrowed;
use crate::memtable::scan::range::Range;
use crate::memtable::scan::source::{SortedSource, TableSource};
use crate::memtable::scan::tombstones::range_tombstones;
use crate::memtable::scan::visibility::{AtSnapshot, Visible};
use crate::memtable::stats::Stats;
use crate::memtable::write::write_batch::{
    BatchWritten, PreparedBatch, ReservedBatch, Take, prepare, reserve, write_batch,
};
use crate::memtable::write::writer::{Inserted, insert, insert_parts, writes};
use crate::memtable::writer::Writer;
use crate::sync::Ordering;
use crate::tombstone::fragments::Fragments;
use crate::tombstone::tree::Load;

/// The reading side of a table, mutable or frozen. [`MemTable`] and [`ImmutableMemTable`]
/// dereference to it, as `Vec` does to a slice.
///
/// A read at snapshot S sees each entry with sequence number <= S whose insert returned before the
/// read began.
///
/// ```
/// use paranoid_memtable::{MemTable, TableReader};
/// fn count(table: &TableReader) -> usize {
///     table.range(..).filter(|entry| entry.is_ok()).count()
/// }
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// assert_eq!(count(&table), 1);
/// let frozen = table.freeze()?;
/// assert_eq!(count(&frozen), 1);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct TableReader {
    pub(crate) core: Arc<Core>,
}

/// A mutable table, for many writers and readers at once. This is a handle: its clones are the same
/// table.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"apple", b"red")?;
/// table.put(2, b"apple", b"green")?;
/// let Lookup::Value(value) = table.get(b"apple", 1)? else { panic!("not there") };
/// assert_eq!(&*value, b"red");
/// assert_eq!(table.clone().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemTable {
    pub(crate) reader: TableReader,
}

/// A frozen table. It takes no writes, answers reads until it is dropped, and can be flushed. This
/// is a handle: its clones are the same table. Dropping the last one takes O(chunks).
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable};
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// let frozen = table.freeze()?;
/// drop(table);
/// assert!(matches!(frozen.get(b"key", 1)?, Lookup::Value(value) if *value == *b"value"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct ImmutableMemTable {
    pub(crate) reader: TableReader,
}

/// The reading side: every read is a method of [`TableReader`].
impl Deref for MemTable {
    type Target = TableReader;

    #[inline(always)]
    fn deref(&self) -> &TableReader {
        &self.reader
    }
}

/// The reading side: every read is a method of [`TableReader`].
impl Deref for ImmutableMemTable {
    type Target = TableReader;

    #[inline(always)]
    fn deref(&self) -> &TableReader {
        &self.reader
    }
}

/// Every version of every key, as [`range(..)`](TableReader::range) has them.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(1, "apple", "red")?;
/// for entry in &table {
///     assert_eq!(entry?.parts()?, (b"apple".as_slice(), b"red".as_slice()));
/// }
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
impl<'t> IntoIterator for &'t TableReader {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}

impl<'t> IntoIterator for &'t MemTable {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}

impl<'t> IntoIterator for &'t ImmutableMemTable {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}

impl MemTable {
    /// An empty table, under bytewise order unless the options choose another one. It is one
    /// allocation of about 3 KiB; its first write adds 39 KiB.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// assert!(table.is_empty());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `MemoryRefused` if the system has no memory for filters.
    pub fn new(options: MemTableOptions) -> Result<Self> {
        Ok(MemTable {
            reader: TableReader {
                core: Core::new(options)?,
            },
        })
    }

    /// The most arena bytes that an entry of these lengths takes, at any tower height and
    /// protection. A reservation of the sum over all entries is always enough. `u64::MAX` if the
    /// sum of the lengths overflows.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// let inserted = table.put(1, b"key", b"value")?;
    /// assert!(inserted.bytes <= MemTable::max_entry_bytes(3, 5));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
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
/// If the system has no memory for it (about 3 KiB).
impl Default for MemTable {
    fn default() -> Self {
        let made = MemTable::new(MemTableOptions::default());
        made.unwrap_or_else(|error| panic!("a table with default options: {error}"))
    }
}

impl MemTable {
    /// An empty table with this table's options and comparator, to write to after a freeze of this
    /// one.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// let next = table.fork()?;
    /// table.freeze()?;
    /// assert!(next.is_empty());
    /// next.put(2, b"key", b"newer")?;
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MemTable::new`].
    pub fn fork(&self) -> Result<Self> {
        MemTable::new(self.core().options.clone())
    }

    /// Ends writing and returns the frozen table. Later writes return `Frozen`, and so does every
    /// write that begins after another one returned it. Idempotent; many threads may call it at
    /// once. Waits only for writes that are still running, and so do the writes that it refuses
    /// meanwhile. What an engine does before and after it: [commit
    /// protocol](crate::guide::commit_protocol).
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// let frozen = table.freeze()?;
    /// assert!(matches!(table.put(2, b"key", b"newer"), Err(Error::Frozen)));
    /// assert_eq!(frozen.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the control block is damaged: the table is frozen then, nothing is lost, and
    /// [`immutable`](Self::immutable) returns it. `InvalidArgument` if a comparator calls it inside
    /// a write to this table, because the freeze would wait for that write; the table is unchanged
    /// then.
    pub fn freeze(&self) -> Result<ImmutableMemTable> {
        freeze(self.core())?;
        Ok(ImmutableMemTable {
            reader: self.reader.clone(),
        })
    }

    /// The frozen table, even if [`freeze`](Self::freeze) returned an error; `None` if the table is
    /// not frozen.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"key", b"value")?;
    /// assert!(table.immutable().is_none());
    /// let ended = table.freeze();
    /// let frozen = table.immutable().expect("it is frozen, whatever `ended` says");
    /// assert_eq!((ended.is_ok(), frozen.len()), (true, 1));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn immutable(&self) -> Option<ImmutableMemTable> {
        let is_frozen = self.is_frozen() && self.core().sealed.get().is_some();
        is_frozen.then(|| ImmutableMemTable {
            reader: self.reader.clone(),
        })
    }

    writes!(self: &Self, self.core(), None);

    /// A writer for a thread that writes thousands of entries. It keeps a place in the list from
    /// which the next search starts, a piece of the arena, and counters of its own, so that writers
    /// of different threads seldom meet.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// let mut writer = table.writer();
    /// for sequence in 1..=3 {
    ///     writer.put(sequence, &sequence.to_be_bytes(), b"value")?;
    /// }
    /// assert_eq!(table.len(), 3);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn writer(&self) -> Writer {
        Writer::new(self.core())
    }

    /// A writer with `bytes` of arena space reserved. Its inserts cannot fail with `MemTableFull`
    /// as long as their entries fit the reservation (see [`MemTable::max_entry_bytes`]). On Linux
    /// 5.14 and later the system backs the space with memory before this returns, which takes time
    /// in proportion to it, so that the inserts do not wait for page faults.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// let mut writer = table.try_reserve(MemTable::max_entry_bytes(3, 5))?;
    /// writer.put(1, b"key", b"value")?; // cannot fail with `MemTableFull`
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `MemTableFull`, and then nothing is reserved; `Frozen`.
    pub fn try_reserve(&self, bytes: u64) -> Result<Writer> {
        Writer::reserving(self.core(), bytes)
    }

    /// Writes the entries of one column family of a batch, for an engine with a table for each
    /// family. They take the numbers that they have in the whole batch, as in RocksDB: the entries
    /// of other families are passed over and counted. All of the batch is verified, and this family
    /// alone is admitted. A family of which the batch has nothing writes nothing.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, Lookup, MemTable, WriteBatch};
    /// let (fruit, colours, mut batch) = (MemTable::default(), MemTable::default(), WriteBatch::new());
    /// batch.put(b"apple", b"red")?;
    /// batch.insert_in(3, Kind::PUT, b"red", b"apple")?;
    /// fruit.write_batch_of(0, 7, &batch)?;
    /// colours.write_batch_of(3, 7, &batch)?;
    /// assert!(matches!(fruit.get(b"apple", 7)?, Lookup::Value(value) if *value == *b"red"));
    /// assert_eq!(colours.stats().largest_sequence, Some(8));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_batch`](Self::write_batch), which refuses batches with entries of other
    /// families. An engine that has written one table and is refused by another must not publish
    /// the batch's numbers.
    ///
    /// # Panics
    /// If the comparator panics, as in `write_batch`.
    pub fn write_batch_of(
        &self,
        family: u32,
        first_sequence: SequenceNumber,
        batch: &WriteBatch,
    ) -> Result<BatchWritten> {
        write_batch(
            self.core(),
            None,
            first_sequence,
            (batch, Take::Family(family)),
        )
    }

    /// Makes the checks of [`write_batch`](Self::write_batch) that do not depend on other writes,
    /// and keeps what it read, for an engine that logs a batch before it writes it: `prepare`,
    /// [`reserve`](Self::reserve), log,
    /// [`ReservedBatch::write`](crate::batch::ReservedBatch::write). Writes nothing, and waits for
    /// nobody. O(length).
    ///
    /// It does not check whether the table is frozen or full, or has an entry with the key and
    /// sequence number of one in the batch. The order of the steps: [commit
    /// protocol](crate::guide::commit_protocol).
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions, WriteBatch};
    /// # fn main() -> Result<(), Error> {
    /// let table = MemTable::new(MemTableOptions::builder().key_len_max(100).build()?)?;
    /// let (mut batch, mut log) = (WriteBatch::new(), Vec::new());
    /// batch.put(b"apple", b"red")?;
    /// let mut prepared = table.prepare(&batch)?;
    /// let reserved = table.reserve(&mut prepared)?;
    /// log.extend_from_slice(batch.as_bytes()); // nothing but damage stops the batch from here on
    /// assert_eq!(reserved.write(1)?.entries, 1);
    ///
    /// batch.put(&[b'k'; 101], b"value")?;
    /// assert!(matches!(table.prepare(&batch), Err(Error::KeyTooLarge { len: 101, max: 100 })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `KeyTooLarge` and `ValueTooLarge` by this table's limits, `InvalidArgument` (a range that
    /// ends before its start in this table's order, an entry of a column family other than 0; the
    /// text names the entry), `Corruption` if the batch was damaged in memory.
    #[inline]
    pub fn prepare<'b>(&'b self, batch: &'b WriteBatch) -> Result<PreparedBatch<'b>> {
        prepare(self.core(), batch)
    }

    /// Takes space for a batch, so that its write is not refused for lack of it, nor because of
    /// lengths, kinds, a freeze, or equal keys in the batch. O(log n). Takes no lock that a write
    /// holds; waits for a freeze that refuses it. When to call it: [commit
    /// protocol](crate::guide::commit_protocol).
    ///
    /// The batch may be prepared with another table, if this one has the same comparator (the same
    /// `Arc`), and the same or larger limits of keys and values: a [`fork`](Self::fork) has.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, WriteBatch};
    /// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
    /// batch.put(b"apple", b"red")?;
    /// let mut prepared = table.prepare(&batch)?;
    /// let next = table.fork()?;
    /// table.freeze()?;
    /// assert!(matches!(table.reserve(&mut prepared), Err(Error::Frozen)));
    /// next.reserve(&mut prepared)?.write(1)?;
    /// assert_eq!(next.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `MemTableFull` if there is no contiguous room for the batch at its largest, `MemoryRefused`,
    /// `Frozen`, `Corruption`, and `InvalidArgument` for a batch that was prepared under options
    /// that this table does not serve. Nothing is reserved then.
    #[inline(always)]
    pub fn reserve<'t, 'b>(
        &'t self,
        batch: &'t mut PreparedBatch<'b>,
    ) -> Result<ReservedBatch<'t, 'b>> {
        reserve(self.core(), batch)
    }

    /// Whether the engine should freeze and flush this table: it was marked, or exceeds its write
    /// buffer size. O(shards).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// assert!(!table.should_flush());
    /// table.mark_for_flush();
    /// assert!(table.should_flush());
    /// ```
    #[must_use]
    pub fn should_flush(&self) -> bool {
        // ORDERING: Relaxed: advice.
        if self.core().flush_mark.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let core = self.core();
        core.taken_bytes() + core.tombstones.freeze_bytes() >= core.options.write_buffer_size
    }

    /// Bytes of allocated memory once the table is frozen, at most: what an engine adds up over its
    /// tables. O(writers).
    #[must_use]
    pub fn bytes_once_frozen(&self) -> u64 {
        self.core().bytes_once_frozen()
    }

    /// Makes `should_flush` return true from now on.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.mark_for_flush();
    /// assert!(table.should_flush());
    /// ```
    pub fn mark_for_flush(&self) {
        // ORDERING: Relaxed: advice.
        self.core().flush_mark.store(1, Ordering::Relaxed);
    }
}

impl TableReader {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The options that the table was made with.
    #[must_use]
    pub fn options(&self) -> &MemTableOptions {
        &self.core().options
    }

    /// The comparator that orders the keys.
    #[must_use]
    pub fn comparator(&self) -> &dyn Comparator {
        self.core().comparator.get()
    }

    /// The order of keys, with the order of bytes inlined.
    #[doc(hidden)]
    #[must_use]
    pub fn key_comparator(&self) -> &KeyComparator {
        &self.core().comparator
    }

    /// Whether the table is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.core().is_frozen()
    }

    /// Number of entries: point entries and range tombstones, without replaced ones. Exact while no
    /// write is running. O(shards).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// table.delete_range(2, b"a", b"b")?;
    /// assert_eq!(table.len(), 2);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.core().shards.totals().entries).unwrap_or(usize::MAX)
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of allocated memory: arena, side structures, and the table itself. Never shrinks. The
    /// first chunk of the arena, 32 KiB that the first write makes, counts as a whole; later ones
    /// as far as they were given to writers, who take up to 256 KiB at a time, but at most a
    /// quarter of what they have; see [`used_bytes`](Self::used_bytes). `should_flush` counts what
    /// writers were given, the side structures, what a freeze will add, and the table itself; the
    /// hard limit does so but for the table itself.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.core().allocated_bytes()
    }

    /// Bytes of memory in use: [`allocated_bytes`](Self::allocated_bytes) without what is left of
    /// the first chunk, and without the space that writers took or reserved and have not used yet.
    /// Use it to add up many small tables. Exact while no write is running; never waits.
    /// O(writers).
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// for sequence in 0..50 {
    ///     table.put(sequence, b"key", &[7; 100])?;
    /// }
    /// assert!(table.used_bytes() < 24 << 10 && table.allocated_bytes() > 32 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.core()
            .taken_bytes()
            .saturating_sub(self.core().shards.unused_bytes())
    }

    /// Bytes below the hard limit, as `MemTableFull` reports them: that limit without the allocated
    /// memory, and without what range tombstones may still add to it, most of them at the freeze.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let options = MemTableOptions::builder().write_buffer_size(1 << 20).hard_limit(2 << 20).build()?;
    /// let table = MemTable::new(options)?;
    /// assert!(table.remaining() <= 2 << 20);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.core().arena.room.remaining_bytes()
    }

    /// Whether an entry of this kind and these lengths, at any tower height, is within the table's
    /// limits and fits below the hard limit: a range tombstone (whose value is the end of its
    /// range) with what it adds to the index of range tombstones, and to the one that the freeze
    /// will build. If `true`, an insert cannot fail for size unless another writer takes the space
    /// or the machine runs out of memory. If `false`, the entry may still fit the space that its
    /// writer has reserved.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let options = MemTableOptions::builder().write_buffer_size(64 << 10).hard_limit(128 << 10).build()?;
    /// let table = MemTable::new(options)?;
    /// assert!(table.can_fit(Kind::PUT, 10, 1000) && !table.can_fit(Kind::PUT, 10, 128 << 10));
    /// let mut sequence = 0;
    /// while table.can_fit(Kind::RANGE_DELETE, 1, 1) {
    ///     sequence += 1;
    ///     table.delete_range(sequence, b"a", b"b")?;
    /// }
    /// table.freeze()?;
    /// assert!(sequence > 9 && table.allocated_bytes() < 144 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn can_fit(&self, kind: Kind, key_len: u64, value_len: u64) -> bool {
        let MemTableOptions {
            key_len_max,
            value_len_max,
            ..
        } = self.core().options;
        let is_range = kind == Kind::RANGE_DELETE;
        let value_len_max = if is_range {
            value_len_max.min(key_len_max)
        } else {
            value_len_max
        };
        if self.is_frozen() || key_len > key_len_max || value_len > value_len_max {
            return false;
        }
        let range = is_range.then(|| Load::of(1));
        let beside = range.map_or(0, |range| self.core().tombstones.bytes_for(range));
        entry_bytes_max(key_len, value_len).saturating_add(beside) <= self.remaining()
    }

    /// Keeps a value alive as long as the table's memory, such as a permit of a memory budget or a
    /// lock on a log file. It is dropped after the memory is freed, so after the last handle,
    /// writer, owned cursor and pinned value.
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
    pub fn attach(&self, attachment: Arc<dyn Any + Send + Sync>) {
        self.core().attached.lock().push(attachment);
    }

    /// Counts of what the table holds. O(shards).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// table.delete_range(2, b"a", b"b")?;
    /// let stats = table.stats();
    /// assert_eq!((stats.range_deletes, stats.data_bytes, stats.largest_sequence), (1, 10, Some(2)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let (totals, sequences) = (core.shards.totals(), core.shards.sequences());
        Stats {
            deletes: totals.deletes,
            range_deletes: totals.range_deletes,
            displaced: totals.displaced,
            data_bytes: totals.data_bytes,
            smallest_sequence: sequences.map(|(smallest, _)| smallest),
            largest_sequence: sequences.map(|(_, largest)| largest),
        }
    }

    /// What the table knows about `key` at `snapshot` (inclusive): its value, that it is deleted,
    /// merge operands, or nothing. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(5, b"apple", b"green")?;
    /// assert!(matches!(table.get(b"apple", 4)?, Lookup::Value(value) if *value == *b"red"));
    /// assert!(matches!(table.get(b"apple", 5)?, Lookup::Value(value) if *value == *b"green"));
    /// assert!(matches!(table.get(b"pear", 5)?, Lookup::NotFound));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damaged memory could change the answer; which damage is noticed: [fault
    /// model](crate::guide::fault_model).
    #[inline]
    pub fn get(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Result<Lookup<ValueRef<'_>, Operands<'_>>> {
        get(self.core(), key.as_ref(), snapshot)
    }

    /// The newest entry of `key` at or below `snapshot`, as stored; range tombstones are not
    /// applied. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.delete(5, b"apple")?;
    /// let entry = table.get_entry(b"apple", 9)?.expect("two versions");
    /// assert_eq!((entry.sequence(), entry.kind()), (5, Kind::DELETE));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damaged memory could change the answer.
    #[inline]
    pub fn get_entry(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Result<Option<Entry<'_>>> {
        get_entry(self.core(), key.as_ref(), snapshot)
    }

    /// Key and value of an entry of this table, verified now, as `Bytes` that keep the table's
    /// memory alive. Copies nothing, and allocates once for both. O(length).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"apple", b"red")?;
    /// let (key, value) = table.pin(&table.get_entry(b"apple", 7)?.expect("it was put"))?;
    /// drop(table); // key and value keep the memory alive
    /// assert_eq!((&*key, &*value), (b"apple".as_slice(), b"red".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if key or value is damaged; `InvalidArgument` for an entry of another table.
    #[cfg(feature = "bytes")]
    #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
    pub fn pin(&self, entry: &Entry<'_>) -> Result<(bytes::Bytes, bytes::Bytes)> {
        pin(self.core(), entry)
    }

    /// Copies the value of `key` at `snapshot` into `buffer`, which is cleared first, and verifies
    /// the copy. Allocates only if the buffer is too small.
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut buffer = Vec::with_capacity(16);
    /// assert!(matches!(table.get_into(b"apple", 1, &mut buffer)?, Lookup::Value(_)));
    /// assert_eq!(buffer, b"red");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get); the buffer is then empty.
    #[inline]
    pub fn get_into(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
        buffer: &mut Vec<u8>,
    ) -> Result<Lookup<(SequenceNumber, Kind), ()>> {
        get_into(self.core(), key.as_ref(), snapshot, buffer)
    }

    /// What the table knows about several keys at one snapshot, in the order of `keys`, which need
    /// not be sorted or distinct. Each result is what [`get`](Self::get) returns for its key, and
    /// damage affects only the keys that it touches ([fault model](crate::guide::fault_model)).
    /// Much faster than a loop of gets, because the searches overlap.
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
        &self,
        keys: &[K],
        snapshot: SequenceNumber,
    ) -> Vec<Result<Lookup<ValueRef<'_>, Operands<'_>>>> {
        let mut results = Vec::with_capacity(keys.len());
        self.multi_get_into(keys, snapshot, &mut results);
        results
    }

    /// Looks up several keys, as [`multi_get`](Self::multi_get) does, into a buffer that is cleared
    /// first. Allocates only if the buffer is too small.
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut lookups = Vec::with_capacity(2);
    /// table.multi_get_into(&[b"apple".as_slice(), b"pear"], 1, &mut lookups);
    /// assert!(matches!(&lookups[0], Ok(Lookup::Value(value)) if **value == *b"red"));
    /// assert!(matches!(lookups[1], Ok(Lookup::NotFound)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn multi_get_into<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        snapshot: SequenceNumber,
        results: &mut Vec<Result<Lookup<ValueRef<'a>, Operands<'a>>>>,
    ) {
        multi_get(self.core(), keys, snapshot, results);
    }

    /// Iterates over every version of the keys in a range, from both ends. An inverted range is
    /// empty.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// for (sequence, key) in (1..).zip([b"a", b"b", b"c"]) {
    ///     table.put(sequence, key, b"")?;
    /// }
    /// let range = table.range("a".."c");
    /// let keys: Result<Vec<&[u8]>, Error> = range.map(|entry| Ok(entry?.user_key())).collect();
    /// assert_eq!(keys?, [b"a", b"b"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range<Borrowed<'_>> {
        Range::new(Borrowed(self.core()), Visible::All, scan_bounds(&range))
    }

    /// Iterates over the versions in a range of (user key, sequence number), from both ends. In the
    /// order of the table the sequence numbers of a key descend: `(k, u64::MAX)` is the first
    /// position of key k, and `(k, 0)` the last one.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// for sequence in 1..=3 {
    ///     table.put(sequence, b"k", b"")?;
    /// }
    /// let versions: Result<Vec<u64>, Error> = table.versions(("k", 2)..).map(|entry| Ok(entry?.sequence())).collect();
    /// assert_eq!(versions?, [2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn versions<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<(K, SequenceNumber)>,
    ) -> Range<Borrowed<'_>> {
        Range::new(Borrowed(self.core()), Visible::All, version_bounds(&range))
    }

    /// Iterates over what a snapshot sees of the keys in a range, from both ends. An inverted range
    /// is empty.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// table.delete(3, b"a")?;
    /// let keys: Result<Vec<&[u8]>, Error> = table.range_at(3, ..).map(|entry| Ok(entry?.user_key())).collect();
    /// assert_eq!(keys?, [b"b"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn range_at(
        &self,
        snapshot: SequenceNumber,
        range: impl KeyRange,
    ) -> Range<Borrowed<'_>, AtSnapshot> {
        let visible = Visible::At(snapshot);
        Range::new(Borrowed(self.core()), visible, scan_bounds(&range))
    }

    /// The range tombstones that a snapshot (inclusive) sees, as fragments with the newest visible
    /// sequence number each, for engines that merge this table with other sources. Every tombstone
    /// is verified. O(n log n) for n range tombstones; those of a frozen table never change, so the
    /// result may be kept. It owns a share in the table.
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
    /// `Corruption` if a stored range tombstone is damaged.
    pub fn range_tombstones(&self, snapshot: SequenceNumber) -> Result<Fragments> {
        range_tombstones(self.core(), snapshot)
    }

    /// Estimates the number and the bytes of the entries in a range of keys. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"1")?;
    /// table.put(2, b"b", b"2")?;
    /// let stats = table.approximate_range_stats("a".."b")?;
    /// assert_eq!((stats.entries, stats.data_bytes), (1, 2)); // exact for few entries
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage makes an estimate impossible.
    pub fn approximate_range_stats(&self, range: impl KeyRange) -> Result<RangeStats> {
        approximate_range_stats(self.core(), scan_bounds(&range))
    }

    /// A cursor over every version of every key, except range tombstones, which are not applied
    /// either. It is not positioned yet.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(2, b"apple", b"green")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.first()?.map(|entry| entry.sequence()), Some(2)); // newest version first
    /// assert_eq!(cursor.next()?.map(|entry| entry.sequence()), Some(1));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn cursor(&self) -> Cursor<Borrowed<'_>> {
        Cursor::new(Borrowed(self.core()), Visible::All)
    }

    /// A cursor over what a snapshot (inclusive) sees: the newest visible version of each key,
    /// deletes and range deletes applied. For a key with merge operands it shows the newest
    /// operand. It is not positioned yet.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(2, b"apple", b"green")?;
    /// let mut cursor = table.cursor_at(1);
    /// assert_eq!(cursor.first()?.map(|entry| entry.sequence()), Some(1));
    /// assert!(cursor.next()?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn cursor_at(&self, snapshot: SequenceNumber) -> Cursor<Borrowed<'_>, AtSnapshot> {
        Cursor::new(Borrowed(self.core()), Visible::At(snapshot))
    }

    /// All versions of all keys, and the range tombstones, as a source of a merge, which keeps the
    /// table's memory.
    ///
    /// ```
    /// use paranoid_memtable::{Bytewise, MemTable};
    /// use paranoid_memtable::scan::SourceMove;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"value")?;
    /// table.delete_range(2, b"a", b"c")?;
    /// let mut source = table.source();
    /// assert_eq!(source.go(SourceMove::First)?.map(|key| key.user_key), Some(&b"b"[..]));
    /// let cover = source.cover(&Bytewise, b"b", u64::MAX)?.expect("a range tombstone");
    /// assert_eq!((cover.sequence, cover.span), (2, Some((&b"a"[..], &b"c"[..]))));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn source(&self) -> Box<dyn SortedSource> {
        Box::new(TableSource::new(self.cursor().owned()))
    }

    /// Verifies every entry, link and control word and reports every finding (see the [fault
    /// model](crate::guide::fault_model)). In a frozen table it also compares counts and digest
    /// sums with those sealed by the freeze. `progress` is called every 1024 entries and at the
    /// end. O(entries).
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
    pub fn scrub(&self, mut progress: impl FnMut(ScrubProgress)) -> ScrubReport {
        scrub(self.core(), &mut progress)
    }
}

impl ImmutableMemTable {
    /// Passes every entry, of these versions, to the sink, in order and verified, then the range
    /// tombstones. Compares counts and sums with those sealed by the freeze. O(entries * log
    /// snapshots). What to do with an error: [errors](crate::guide::errors).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
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
    /// let summary = table.freeze()?.flush(Versions::SeenBy(&[]), &mut sink)?;
    /// assert_eq!(sink.0, [b"a", b"b"]);
    /// assert_eq!((summary.entries, summary.hidden), (2, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` for the first damage found, also if sums differ (`Place::Sum`); `Sink` if the
    /// sink returns an error. The sink's output is then incomplete (FLUSH-2), and the table is
    /// unchanged.
    pub fn flush(&self, versions: Versions<'_>, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        flush(self.core(), versions, sink)
    }

    /// A [`flush`](Self::flush) whose caller pulls one item after the other. Counts and sums are
    /// compared at the end, and only then may the caller keep what it made of the items.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_memtable::flush::{FlushItem, Versions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"k", b"value")?;
    /// let frozen = table.freeze()?;
    /// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
    /// let mut bytes = 0;
    /// while let Some(item) = flush.next()? {
    ///     if let FlushItem::Entry(entry) = item {
    ///         bytes += entry.value.len();
    ///     }
    /// }
    /// assert_eq!((bytes, flush.summary().map(|summary| summary.entries)), (5, Some(1)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the table's control words, or the start of its list, are damaged.
    pub fn flush_iter(&self, versions: Versions<'_>) -> Result<FlushIter<'_>> {
        FlushIter::new(self.core(), versions)
    }

    /// Recovers every entry that still verifies, even if links are damaged. O(arena bytes + entries
    /// log entries). When to call it: [errors](crate::guide::errors).
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
