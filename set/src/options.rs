//! What a set is made with.
//!
//! Plain data; any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::{ArenaRecycler, Error, MemTableOptions, Result, SequenceNumber, shown};

use crate::file_journal::journal_trait::Journal;
use crate::listener::Listener;
use crate::write_buffer_manager::{Buffers, Membership, WriteBufferManager};

/// The largest sequence number that a set gives: 2^56 - 1, because table files keep it in 56 bits.
pub(crate) const SEQUENCE_MAX: SequenceNumber = (1 << 56) - 1;

/// When a batch counts as written, from the weakest on. A set without a journal knows `None` alone.
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
    /// Once it is in the table. The journal does not get it, so it is lost if the process ends
    /// before its table is flushed.
    None,
    /// Once the journal has copied it as well. If the process ends, the newest batches may be lost,
    /// acknowledged or not; none is lost where a later one is kept. The copy is written with the
    /// next batch that is `Buffered` or `Synced`, by a batch that finds 256 KiB copied since a
    /// batch waited for that reason, when the active table is replaced (for a flush too), and when
    /// the journal is dropped. A batch without records that is `Buffered` writes what was copied
    /// before.
    Queued,
    /// Once the journal has written it as well: the end of the process does not lose it. What
    /// becomes of it in a crash of the machine depends on when the journal is synced next. One
    /// write serves all batches that wait for one.
    Buffered,
    /// Once the journal has been synced after it took the batch. One sync serves all batches that
    /// wait for one.
    Synced,
}

/// How one batch is written. A [`Durability`] alone converts into it.
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
    /// When the batch counts as written (default: `Buffered` if the set has a journal, otherwise
    /// `None`).
    pub durability: Option<Durability>,
    /// The moment from which on the batch is refused with `WriteStall` instead of waiting for a
    /// flush (default: the set's [`stall_timeout`](SetOptionsBuilder::stall_timeout) after the
    /// stall began). After a moment that is over the batch never waits for one. Once the batch has
    /// its numbers it is finished, however long that takes.
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

/// What a set is made with: see [`SetOptionsBuilder`].
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

    /// Joins the manager, or a budget of its own without limits. Tables are made with what the set
    /// recycles.
    pub(crate) fn join(&mut self) -> Result<Arc<Membership>> {
        let bytes = self.table.write_buffer_size();
        let arenas = self
            .recycled_arenas
            .unwrap_or(u64::from(self.manager.is_none()));
        // By default small tables do without.
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
    /// How each table of the set is made (default: the defaults of [`MemTableOptions`]). Its write
    /// buffer size decides when the active table is replaced: once the table is as large, or once
    /// the [`journal`](Self::journal) has as many bytes of its batches. So a journal has about as
    /// many write buffers as there are tables.
    pub fn table(mut self, table: MemTableOptions) -> Self {
        self.options.table = table;
        self
    }

    /// The journal that gets each batch before it is in a table (default: none). Batches that leave
    /// no entries, such as ranges that delete nothing, seal the active table by their bytes in the
    /// journal. Its [flush](crate::FlushJob::flush) may have no items.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.options.journal = Some(journal);
        self
    }

    /// The last sequence number that the engine's base has; the first batch gets the next one
    /// (default 0, at most 2^56 - 1).
    pub fn last_sequence(mut self, last: SequenceNumber) -> Self {
        self.options.last_sequence = last;
        self
    }

    /// The most tables that are not flushed, the active one included (default: 4, at least 2). When
    /// the active table is full and this number is reached, a write waits for a flush that is under
    /// way or that a flush thread is about to begin, and is refused at once with `WriteStall` if
    /// there is none: a set that nobody flushes ends there. So the tables take about this number of
    /// write buffers of memory, and those that views keep. Reads ask each table, and a switch
    /// copies the list of them: `u64::MAX` is no limit, and makes n tables cost n^2.
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

    /// How many arenas of flushed tables are kept for the next tables at most; 0 keeps none. Each
    /// takes as much memory as a write buffer, rounded up to a power of two. The default is 1, and
    /// 0 with a [`write_buffer_manager`](Self::write_buffer_manager).
    ///
    /// The system backs new memory page by page, at the first write to each, and that write waits.
    /// A kept arena is backed already. The thread that drops or installs the next
    /// [`FlushJob`](crate::FlushJob) zeroes it. The system gets it back when the set is dropped.
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

    /// What is told about switches, flushes, stalls and stops of the set (default: nothing).
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.options.listener = Some(listener);
        self
    }

    /// The longest that a write, a switch or [`flush_and_wait`](crate::MemTableSet::flush_and_wait)
    /// waits for a flush (default: 10 seconds), if it has no [`deadline`](WriteOptions::deadline)
    /// of its own. Then it is refused with `WriteStall`.
    pub fn stall_timeout(mut self, most: Duration) -> Self {
        self.options.stall_timeout = most;
        self
    }

    /// How many hidden entries of the active table one move of a cursor or range of a
    /// [`View`](crate::View) may pass (default 0: any number). A move that passes as many, forward
    /// or back, has the table sealed if there may be another one, by the flush thread, the next
    /// [`begin_flush`](crate::MemTableSet::begin_flush) or a later write: the flush leaves out what
    /// hides and what is hidden, so scans get faster. Hidden are deleted and covered keys, older
    /// versions of a key, and versions newer than the view; a run of versions of one key counts as
    /// at most five. The name is RocksDB's.
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

    /// The same for the mean of all moves since the last seek (default 0: any mean), once they have
    /// passed as many hidden entries as one move may. The name is RocksDB's.
    pub fn memtable_avg_op_scan_flush_trigger(mut self, hidden: u64) -> Self {
        self.options.scans.mean = hidden;
        self
    }

    /// The number of the set's first table (default 1), for journals that have tables of an earlier
    /// set.
    pub fn first_table(mut self, number: u64) -> Self {
        self.options.first_table = number;
        self
    }

    /// The options.
    ///
    /// ```
    /// use paranoid_set::SetOptions;
    /// assert!(SetOptions::builder().first_table(9).build().is_ok());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the last sequence number is over 2^56 - 1, for fewer than 2 tables, and
    /// for recycled arenas where they cannot be: of tables with a write buffer below 256 KiB, whose
    /// memory comes from the heap; also for options of tables that have a recycler, because the set
    /// has its own, and for a trigger on the mean of scans that is not below the one on a single
    /// move.
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

/// How many hidden entries of the active table scans may pass before it is sealed; 0: any number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanTriggers {
    /// In one move.
    pub(crate) operation: u64,
    /// In the mean of all moves since a seek.
    pub(crate) mean: u64,
}
