//! The options of a set and of a write.
//!
//! Plain data; any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::{ArenaRecycler, Error, MemTableOptions, Result, SequenceNumber, shown};

use crate::journal::Journal;
use crate::listener::Listener;
use crate::write_buffer_manager::{Buffers, Membership, WriteBufferManager};

/// The largest sequence number that a set gives: 2^56 - 1, because table files keep it in 56 bits.
pub(crate) const SEQUENCE_MAX: SequenceNumber = (1 << 56) - 1;

/// The condition under which a batch counts as written, from the weakest to the strongest. A set
/// without a journal has only `None`.
///
/// ```
/// use paranoid_memtable::{Error, WriteBatch};
/// use paranoid_set::{Durability, MemTableSet, SetOptions};
/// # fn main() -> Result<(), Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// assert_eq!(set.write_with(&batch, Durability::None)?, 1);
/// assert!(matches!(set.write_with(&batch, Durability::Synced), Err(Error::InvalidArgument(_))));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The batch is in its table. The journal does not get it, so it is lost if the process ends
    /// before the table is flushed.
    None,
    /// The journal has also copied it. If the process ends, the newest batches may be lost,
    /// acknowledged or not, but no batch is lost before one that is kept. The copies are written
    ///
    /// - with the next `Buffered` or `Synced` batch, also one without records;
    /// - by the batch with which the bytes copied since the last such batch reach 256 KiB;
    /// - when the active table is replaced, for a flush for example;
    /// - when the journal is dropped.
    Queued,
    /// The journal has also written it: the end of the process does not lose it. A crash of the
    /// machine may lose it until the next sync of the journal. One write serves all batches that
    /// wait for one.
    Buffered,
    /// The journal has been synced after it took the batch. One sync serves all batches that wait
    /// for one.
    Synced,
}

/// The options of one write. A [`Durability`] converts into them.
///
/// ```
/// use std::time::{Duration, Instant};
/// use paranoid_set::{Durability, MemTableSet, SetOptions, WriteOptions};
/// use paranoid_memtable::{Error, WriteBatch};
/// # fn main() -> Result<(), Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// let soon = Instant::now() + Duration::from_millis(5);
/// let options = WriteOptions { durability: Some(Durability::None), deadline: Some(soon) };
/// assert_eq!(set.write_with(&batch, options)?, 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct WriteOptions {
    /// The durability of the batch (default: `Buffered` if the set has a journal, otherwise
    /// `None`).
    pub durability: Option<Durability>,
    /// The end of the batch's wait for a flush; then it is refused with `WriteStall` (default: the
    /// set's [`stall_timeout`](SetOptionsBuilder::stall_timeout) after the stall began). With a
    /// deadline in the past the batch does not wait for a flush. Once the batch has its numbers it
    /// is finished, however long that takes.
    ///
    /// ```
    /// use std::time::Instant;
    /// use paranoid_set::{MemTableSet, SetOptions, WriteOptions};
    /// use paranoid_memtable::{Error, WriteBatch};
    /// # fn main() -> Result<(), Error> {
    /// let tables = paranoid_memtable::MemTableOptions::builder().write_buffer_size(64 << 10).build()?;
    /// let options = SetOptions::builder().table(tables).max_write_buffer_number(2).build()?;
    /// let set = MemTableSet::open(options, ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", &[7; 64 << 10])?;
    /// set.write(&batch)?;
    /// set.write(&batch)?;
    /// let job = set.begin_flush()?; // by another thread, and it takes its time
    /// let options = WriteOptions { deadline: Some(Instant::now()), ..WriteOptions::default() };
    /// let refused = set.write_with(&batch, options);
    /// assert!(matches!(refused, Err(Error::WriteStall { .. })));
    /// # drop(job);
    /// # Ok(()) }
    /// ```
    pub deadline: Option<Instant>,
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> Self {
        WriteOptions {
            durability: Some(durability),
            deadline: None,
        }
    }
}

/// The options of a set: see [`SetOptionsBuilder`].
///
/// ```
/// use paranoid_memtable::MemTableOptions;
/// use paranoid_set::{MemTableSet, SetOptions};
/// let tables = MemTableOptions::builder().write_buffer_size(4 << 20).build()?;
/// let options = SetOptions::builder().table(tables).last_sequence(1000).build()?;
/// assert_eq!(MemTableSet::open(options, "files")?.view().sequence(), 1000);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct SetOptions {
    pub(crate) table: MemTableOptions,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) first_table: u64,
    pub(crate) tables_max: u64,
    pub(crate) recycled_arenas: Option<u64>,
    pub(crate) stall_timeout: Duration,
    pub(crate) scans: ScanTriggers,
    pub(crate) manager: Option<WriteBufferManager>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

impl Default for SetOptions {
    fn default() -> Self {
        SetOptions {
            table: MemTableOptions::default(),
            journal: None,
            last_sequence: 0,
            first_table: 1,
            tables_max: 4,
            recycled_arenas: None,
            stall_timeout: Duration::from_secs(10),
            scans: ScanTriggers::default(),
            manager: None,
            listener: None,
        }
    }
}

impl SetOptions {
    /// A builder that starts from the defaults.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::builder().build()?, ())?;
    /// assert_eq!(set.view().sequence(), 0);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn builder() -> SetOptionsBuilder {
        SetOptionsBuilder {
            options: SetOptions::default(),
        }
    }

    /// Joins the manager, or without one a budget of its own that has no limit. Gives the table
    /// options the set's recycler.
    pub(crate) fn join(&mut self) -> Result<Arc<Membership>> {
        let bytes = self.table.write_buffer_size();
        let arenas = self
            .recycled_arenas
            .unwrap_or(u64::from(self.manager.is_none()));
        // Small tables have no arena to recycle: by default they get a recycler that keeps none.
        let recycler =
            ArenaRecycler::new(bytes, arenas).or_else(|_| ArenaRecycler::new(bytes, 0))?;
        self.table = self.table.clone().with_recycler(&recycler);
        let shared = self
            .manager
            .as_ref()
            .map(|manager| Arc::clone(&manager.buffers));
        let buffers = shared.unwrap_or_else(|| Buffers::new(u64::MAX));
        Ok(Arc::new(Membership::new(buffers, recycler)))
    }
}

shown! {
    "SetOptions": impl [] SetOptions, |options| {
        "table": options.table,
        "last_sequence": options.last_sequence,
        "first_table": options.first_table,
        "tables_max": options.tables_max,
        "recycled_arenas": options.recycled_arenas,
        "stall_timeout": options.stall_timeout,
        "scans": options.scans,
    }
}

/// Builds [`SetOptions`].
///
/// ```
/// use paranoid_memtable::Error;
/// use paranoid_set::SetOptions;
/// let builder = SetOptions::builder().last_sequence(1 << 56);
/// assert!(matches!(builder.build(), Err(Error::InvalidArgument(_))));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SetOptionsBuilder {
    options: SetOptions,
}

impl SetOptionsBuilder {
    /// The options of each table (default: those of [`MemTableOptions`]). Their write buffer size
    /// decides when the active table is replaced: once it has that many bytes, or once the
    /// [`journal`](Self::journal) has that many bytes of its batches. So a journal has about one
    /// write buffer of bytes for each table.
    pub fn table(mut self, table: MemTableOptions) -> Self {
        self.options.table = table;
        self
    }

    /// The journal that gets each batch before it is in a table (default: none). Batches that leave
    /// no entries, such as ranges that delete nothing, still seal the active table by their bytes
    /// in the journal; the [flush](crate::FlushJob::flush) of such a table may have no items.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.options.journal = Some(journal);
        self
    }

    /// The last sequence number in the engine's base (default 0, at most 2^56 - 1). The first batch
    /// gets the next number.
    pub fn last_sequence(mut self, last: SequenceNumber) -> Self {
        self.options.last_sequence = last;
        self
    }

    /// The maximum number of unflushed tables, the active one included (default: 4, at least 2).
    /// Tables take about this many write buffers of memory, besides those that views keep.
    ///
    /// A write that finds the active table full, with this many tables in the set, waits for a
    /// flush that is under way or that a flush thread is about to begin. If there is none, the
    /// write is refused at once with `WriteStall`. `u64::MAX` is no limit; as each read asks all
    /// tables and each switch copies their list, n tables cost n^2.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), Error> {
    /// let set = MemTableSet::open(SetOptions::builder().max_write_buffer_number(2).build()?, ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// set.switch()?;
    /// set.write(&batch)?;
    /// assert!(matches!(set.switch(), Err(Error::WriteStall { tables: 2, .. })));
    /// # Ok(()) }
    /// ```
    pub fn max_write_buffer_number(mut self, tables: u64) -> Self {
        self.options.tables_max = tables;
        self
    }

    /// The maximum number of arenas of flushed tables that the set keeps for its next tables; 0
    /// keeps none. Each has the memory of a write buffer, rounded up to a power of two. The default
    /// is 1, or 0 with a [`write_buffer_manager`](Self::write_buffer_manager).
    ///
    /// The system backs new memory page by page, at the first write to each page, and that write
    /// waits. A kept arena is backed already. The thread that drops or installs the next
    /// [`FlushJob`](crate::FlushJob) zeroes it, and the drop of the set frees it.
    /// [`SetStats::recycled_bytes`](crate::SetStats::recycled_bytes) counts kept arenas; budgets do
    /// not.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// for (arenas, is_kept) in [(1, true), (0, false)] {
    ///     let set = MemTableSet::open(SetOptions::builder().recycled_arenas(arenas).build()?, ())?;
    ///     let mut batch = WriteBatch::new();
    ///     batch.put(b"k", &[7; 100_000])?;
    ///     set.write(&batch)?;
    ///     set.switch()?;
    ///     let mut job = set.begin_flush()?.expect("an immutable table");
    ///     let mut items = job.items()?;
    ///     while let Some(_item) = items.next()? {} // into a file
    ///     drop(items);
    ///     job.install(|_| Ok(()))?;
    ///     assert_eq!(set.stats().recycled_bytes > 0, is_kept);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn recycled_arenas(mut self, arenas: u64) -> Self {
        self.options.recycled_arenas = Some(arenas);
        self
    }

    /// The memory budget that this set shares with others (default: none).
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions, WriteBufferManager};
    /// let manager = WriteBufferManager::new(256 << 20)?;
    /// let options = SetOptions::builder().write_buffer_manager(&manager).build()?;
    /// let sets = [MemTableSet::open(options.clone(), "one"), MemTableSet::open(options, "two")];
    /// assert_eq!(manager.stats().sets, 2);
    /// # drop(sets);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn write_buffer_manager(mut self, manager: &WriteBufferManager) -> Self {
        self.options.manager = Some(manager.clone());
        self
    }

    /// The listener that receives switches, flushes, stalls and stops of the set (default: none).
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.options.listener = Some(listener);
        self
    }

    /// How long a write, a switch or [`flush_and_wait`](crate::MemTableSet::flush_and_wait) waits
    /// for a flush before it is refused with `WriteStall` (default: 10 seconds). A write with a
    /// [`deadline`](WriteOptions::deadline) waits until that instead.
    pub fn stall_timeout(mut self, most: Duration) -> Self {
        self.options.stall_timeout = most;
        self
    }

    /// If one move of a cursor or range of a [`View`](crate::View) passes this many hidden entries
    /// of the active table, forward or back, the table is to be sealed (default 0: never). The
    /// flush thread, the next [`begin_flush`](crate::MemTableSet::begin_flush) or a later write
    /// seals it, unless the set has its maximum number of tables. A flush leaves out hidden entries
    /// and the tombstones over them, so scans get faster.
    ///
    /// Hidden entries are deleted and covered keys, older versions of a key, and versions newer
    /// than the view. A run of versions of one key counts as at most five. The option has RocksDB's
    /// name.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::builder().memtable_op_scan_flush_trigger(100).build()?, ())?;
    /// for key in 0..100_u32 {
    ///     set.delete(key.to_be_bytes())?;
    /// }
    /// assert!(set.view().cursor()?.first()?.is_none());
    /// assert!(set.begin_flush()?.is_some(), "the table of deletes is sealed");
    /// # Ok(()) }
    /// ```
    pub fn memtable_op_scan_flush_trigger(mut self, hidden: u64) -> Self {
        self.options.scans.operation = hidden;
        self
    }

    /// If the moves since the last seek pass this many hidden entries of the active table on
    /// average, and in all as many as
    /// [`memtable_op_scan_flush_trigger`](Self::memtable_op_scan_flush_trigger) sets for one move,
    /// the table is to be sealed (default 0: never). The option has RocksDB's name.
    pub fn memtable_avg_op_scan_flush_trigger(mut self, hidden: u64) -> Self {
        self.options.scans.mean = hidden;
        self
    }

    /// The number of the set's first table (default 1). A journal that has tables of an earlier set
    /// needs a number after theirs.
    pub fn first_table(mut self, number: u64) -> Self {
        self.options.first_table = number;
        self
    }

    /// Checks and returns the options.
    ///
    /// ```
    /// use paranoid_set::SetOptions;
    /// assert!(SetOptions::builder().first_table(9).build().is_ok());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` in these cases:
    ///
    /// - The last sequence number is over 2^56 - 1.
    /// - The maximum number of tables is below 2.
    /// - There are recycled arenas for a write buffer below 256 KiB, whose memory is from the heap.
    /// - The table options have a recycler; the set has its own.
    /// - The trigger for the mean of scans is not below the one for a single move.
    pub fn build(self) -> Result<SetOptions> {
        let SetOptions {
            ref table,
            last_sequence,
            tables_max,
            ..
        } = self.options;
        let ScanTriggers { operation, mean } = self.options.scans;
        let arenas = self.options.recycled_arenas.unwrap_or(0);
        ArenaRecycler::new(table.write_buffer_size(), arenas)?;
        let refused = if tables_max < 2 {
            format!(
                "a set needs at least 2 tables, the active one and one to be flushed, not {tables_max}"
            )
        } else if last_sequence > SEQUENCE_MAX {
            format!("the last sequence number must be at most 2^56 - 1, not {last_sequence}")
        } else if table.has_recycler() {
            "a set has a recycler of its own: see recycled_arenas".into()
        } else if mean > 0 && mean >= operation {
            format!(
                "a mean of {mean} hidden entries asks for a trigger above it on one move, not {operation}"
            )
        } else {
            return Ok(self.options);
        };
        Err(Error::InvalidArgument(refused))
    }
}

/// How many hidden entries of the active table a scan passes before the table is sealed; 0: never.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanTriggers {
    /// In one move.
    pub(crate) operation: u64,
    /// On average over all moves since a seek.
    pub(crate) mean: u64,
}
