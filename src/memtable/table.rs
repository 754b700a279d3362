//! `MemTable`: a table that takes writes. Each method is documented here and implemented in the
//! file that it calls.
//!
//! ```text
//!   MemTable ----------+                    put, write_batch, writer, freeze
//!                      +--> TableReader     get, multi_get, cursor, range, scrub, counters
//!   ImmutableMemTable -+                    flush, salvage
//! ```
//! Any number of threads may call every method at once.

#![forbid(unsafe_code)]

use std::ops::Deref;

use crate::error::Result;
use crate::integrity::digest::{Kvos, Protected};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::layout::entry_bytes_max;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::immutable::ImmutableMemTable;
use crate::memtable::lifecycle::freeze::freeze;
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::entry::Entry;
use crate::memtable::reader::TableReader;
use crate::memtable::scan::handle::Borrowed;
use crate::memtable::scan::range::Range;
use crate::memtable::write::insert::{Inserted, insert, insert_parts};
use crate::memtable::write::methods::writes;
use crate::memtable::write::prepared::{PreparedBatch, ReservedBatch, prepare, reserve};
use crate::memtable::write::read_batch::Take;
use crate::memtable::write::write_batch::{BatchWritten, write_batch};
use crate::memtable::writer::Writer;
use crate::sync::Ordering;

/// A mutable table, for many writers and readers at once. This is a handle: its clones are the same
/// table.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"apple", b"red")?;
/// table.put(2, b"apple", b"green")?;
/// assert!(table.get(b"apple", 1)?.value() == Some(b"red"));
/// assert_eq!(table.clone().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemTable {
    pub(crate) reader: TableReader,
}

impl MemTable {
    /// An empty table with the order of the options' comparator, bytewise by default. It is one
    /// allocation of about 3 KiB; its first write adds 5 KiB.
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
    /// protection; `u64::MAX` if the sum of the lengths overflows. A reservation of the sum over
    /// all entries is always enough.
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

/// An empty table with the default options.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// assert!(table.put(1, b"k", b"v").is_ok());
/// ```
///
/// # Panics
/// If the system has no memory for the table (about 3 KiB).
impl Default for MemTable {
    fn default() -> Self {
        let made = MemTable::new(MemTableOptions::default());
        made.unwrap_or_else(|error| panic!("a table with default options: {error}"))
    }
}

impl MemTable {
    /// An empty table with this table's options and comparator, for the writes that follow this
    /// table's freeze.
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
    /// write that begins after another write returned `Frozen`. A freeze waits only for running
    /// writes; so do the writes that it refuses meanwhile. It is idempotent, and many threads may
    /// call it at once. The [commit protocol](crate::guide::commit_protocol) says what an engine
    /// does before and after it.
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
    /// - `Corruption` if the control block is damaged: the table is frozen, nothing is lost, and
    ///   [`immutable`](Self::immutable) returns it.
    /// - `InvalidArgument` if a comparator calls `freeze` inside a write to this table, because the
    ///   freeze would wait for that write. The table is unchanged.
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
    /// let frozen = table.immutable().expect("it is frozen, even if `ended` is an error");
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

    /// A writer for a thread that writes thousands of entries. It keeps the place in the list where
    /// its next search starts, a piece of the arena, and counters of its own, so writers of
    /// different threads seldom meet.
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
    /// 5.14 and later, the system backs the space with memory before this call returns, so inserts
    /// do not wait for page faults. The call takes time in proportion to the space.
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
    /// `MemTableFull` (nothing is reserved), `Frozen`.
    pub fn try_reserve(&self, bytes: u64) -> Result<Writer> {
        Writer::reserving(self.core(), bytes)
    }

    /// Writes the entries of one column family of a batch, for an engine with a table for each
    /// family. Each entry takes the sequence number of its place in the whole batch, as in RocksDB.
    /// The whole batch is verified, and only this family's entries are checked against the table's
    /// limits. If the batch has no entry of the family, nothing is written.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable, WriteBatch};
    /// let (fruit, colours, mut batch) = (MemTable::default(), MemTable::default(), WriteBatch::new());
    /// batch.put(b"apple", b"red")?;
    /// batch.insert_in(3, Kind::PUT, b"red", b"apple")?;
    /// fruit.write_batch_of(0, 7, &batch)?;
    /// colours.write_batch_of(3, 7, &batch)?;
    /// assert!(fruit.get(b"apple", 7)?.value() == Some(b"red"));
    /// assert_eq!(colours.stats().largest_sequence, Some(8));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_batch`](Self::write_batch), except the one for entries of other families.
    /// If an engine has written a batch to one table and another table refuses it, the engine must
    /// not publish the batch's sequence numbers.
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
            batch,
            Take::Family(family),
        )
    }

    /// Prepares a batch: makes the checks of [`write_batch`](Self::write_batch) that do not depend
    /// on other writes, and keeps the decoded entries. It is for an engine that logs a batch before
    /// it writes it: `prepare`, [`reserve`](Self::reserve), log,
    /// [`ReservedBatch::write`](crate::batch::ReservedBatch::write). Writes nothing and never
    /// waits. O(length).
    ///
    /// It does not check whether the table is frozen or full, or has an entry with the key and
    /// sequence number of an entry of the batch. The [commit
    /// protocol](crate::guide::commit_protocol) has the order of the steps.
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
    /// - `KeyTooLarge` and `ValueTooLarge` by this table's limits;
    /// - `InvalidArgument` for a range that ends before its start in this table's order, or an
    ///   entry of a column family other than 0 (the text names the entry);
    /// - `Corruption` if the batch was damaged in memory.
    #[inline]
    pub fn prepare<'b>(&'b self, batch: &'b WriteBatch) -> Result<PreparedBatch<'b>> {
        prepare(self.core(), batch)
    }

    /// Reserves space for a prepared batch. Its write can then not be refused for lack of space,
    /// nor because of lengths, kinds, a freeze, or equal keys in the batch. Takes no lock that a
    /// write holds; waits only for a freeze that refuses it. O(log n). The [commit
    /// protocol](crate::guide::commit_protocol) says when to call it.
    ///
    /// The batch may be prepared with another table, if this table has the same comparator (the
    /// same `Arc`) and the same or larger limits of keys and values, as a [`fork`](Self::fork) has.
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
    /// `Frozen`, `Corruption`, and `InvalidArgument` for a batch that was prepared with another
    /// comparator or larger limits. After an error nothing is reserved.
    #[inline(always)]
    pub fn reserve<'t, 'b>(
        &'t self,
        batch: &'t mut PreparedBatch<'b>,
    ) -> Result<ReservedBatch<'t, 'b>> {
        reserve(self.core(), batch)
    }

    /// Whether the engine should freeze and flush this table, because it was marked or has reached
    /// its write buffer size. O(shards).
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
        // ORDERING: Relaxed: a hint.
        if self.core().flush_mark.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let core = self.core();
        core.taken_bytes() + core.tombstones.freeze_bytes() >= core.options.write_buffer_size
    }

    /// The most bytes of allocated memory that the table has once it is frozen, for an engine that
    /// adds up its tables. O(writers).
    #[must_use]
    pub fn bytes_once_frozen(&self) -> u64 {
        self.core().bytes_once_frozen()
    }

    /// Marks the table for a flush: `should_flush` returns true from now on.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.mark_for_flush();
    /// assert!(table.should_flush());
    /// ```
    pub fn mark_for_flush(&self) {
        // ORDERING: Relaxed: a hint.
        self.core().flush_mark.store(1, Ordering::Relaxed);
    }
}

/// The reading side: every read is a method of [`TableReader`].
impl Deref for MemTable {
    type Target = TableReader;

    #[inline(always)]
    fn deref(&self) -> &TableReader {
        &self.reader
    }
}

impl<'t> IntoIterator for &'t MemTable {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}
