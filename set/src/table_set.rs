//! The handle of a set, which an engine calls.
//!
//! ```text
//!   MemTableSet --+-- put, .., write, write_with, replay    commit
//!                 +-- switch, flush_and_wait                switch
//!                 +-- view, view_at, snapshot, stats        view, snapshots, stats
//!                 +-- begin_flush, replace_base             flush_job
//!                 +-- start_flush_thread                    flush_thread
//! ```
//! Any thread may call any method; clones are handles of one set.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::{Error, Kind, Result, SequenceNumber, StallCause, WriteBatch, shown};

use crate::flush_job::{FlushJob, replace_base};
use crate::flush_thread::FlushThread;
use crate::journal_copy::KEPT_MAX;
use crate::options::{Durability, SetOptions, WriteOptions};
use crate::shared::Shared;
use crate::snapshots::Snapshot;
use crate::stats::SetStats;
use crate::thread_state::ThreadState;
use crate::view::{View, read_at};
use crate::write_buffer_manager::{FlushWait, Stall};

thread_local!(static BATCH: Cell<Option<WriteBatch>> = const { Cell::new(None) });

/// The write path of an engine: one active table, the immutable ones that are not flushed yet, and
/// the engine's own version of its files, the base `B`.
///
/// Batches are atomic and ordered: each gets the next sequence numbers, is in the journal before it
/// is in a table, and becomes visible after every batch before it. A full active table is replaced
/// by an empty one. A flush merges the immutable tables, verifies what it passes on, and replaces
/// them by a new base in one store.
///
/// Handles are cheap to clone and share one set. A comparator must not write to the set whose keys
/// it compares: the inner write would wait for the outer one.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{MemTableSet, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), "no files yet")?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.delete(b"pear")?;
/// assert_eq!(set.write(&batch)?, 2);
/// let view = set.view();
/// assert!(view.get(b"apple")?.value() == Some(b"red"));
/// # Ok(()) }
/// ```
pub struct MemTableSet<B> {
    shared: Arc<Shared<B>>,
}

impl<B> Clone for MemTableSet<B> {
    fn clone(&self) -> Self {
        MemTableSet {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<B> MemTableSet<B> {
    /// Opens an empty set over the engine's base, and switches the journal, if there is one, to the
    /// set's first table. The table options choose the order of keys.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::builder().last_sequence(41).build()?, ())?;
    /// assert_eq!(set.snapshot().sequence(), 41);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MemTable::new`](paranoid_memtable::MemTable::new), and errors of the journal.
    pub fn open(options: SetOptions, base: B) -> Result<Self> {
        let shared = Shared::open(options, Arc::new(base))?;
        Ok(MemTableSet {
            shared: Arc::new(shared),
        })
    }

    /// Puts one entry under the next sequence number, and returns that number. The call is a
    /// [`write`](Self::write) of a batch of one, with 8 bytes of protection from here on, as are
    /// [`delete`](Self::delete), [`merge`](Self::merge) and [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.put("apple", "red")?;
    /// set.put("banana", "yellow")?;
    /// set.delete("apple")?;
    /// set.delete_range("b", "c")?; // the end is exclusive
    /// assert!(set.view().get(b"banana")?.is_deleted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write_one(Kind::PUT, key.as_ref(), value.as_ref())
    }

    /// Deletes a key, whether it is present or not; see [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write_one(Kind::DELETE, key.as_ref(), &[])
    }

    /// Adds an operand that the engine's merge operator combines with the key's older value; see
    /// [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    #[inline]
    pub fn merge(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<SequenceNumber> {
        self.write_one(Kind::MERGE, key.as_ref(), operand.as_ref())
    }

    /// Deletes all keys from `start`, inclusive, to `end`, exclusive; see [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with), and `InvalidArgument` if `end` is not after
    /// `start`.
    #[inline]
    pub fn delete_range(
        &self,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<SequenceNumber> {
        self.write_one(Kind::RANGE_DELETE, start.as_ref(), end.as_ref())
    }

    /// Writes a batch of one entry, in the batch that this thread keeps.
    fn write_one(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<SequenceNumber> {
        let kept = BATCH.try_with(Cell::take).ok().flatten();
        let mut batch =
            kept.unwrap_or_else(|| WriteBatch::new().with_range_order(RangeOrder::OfTable));
        batch.insert(kind, key, value)?;
        let written = self.write(&batch)?;
        if batch.as_bytes().len() <= KEPT_MAX {
            batch.clear();
            // Fails while the thread ends; the batch is freed then.
            let _ = BATCH.try_with(|kept| kept.set(Some(batch)));
        }
        Ok(written)
    }

    /// Writes a batch with the default [`WriteOptions`]: `Durability::Buffered` if the set has a
    /// journal, otherwise `Durability::None`. See [`write_with`](Self::write_with).
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"b", b"2")?;
    /// assert_eq!((set.write(&batch)?, set.write(&batch)?), (2, 4));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    pub fn write(&self, batch: &WriteBatch) -> Result<SequenceNumber> {
        self.shared.write(batch, WriteOptions::default(), None)
    }

    /// Writes a batch under the next sequence numbers, and returns the last of them once this batch
    /// and all batches before it are visible. `options` are [`WriteOptions`] or a
    /// [`Durability`](crate::Durability). A batch without records takes no number, and the visible
    /// number is returned. Empty ranges take a number each. Expected O(n log n) for n entries. The
    /// [commit protocol](paranoid_memtable::guide::commit_protocol) has the steps of a write.
    ///
    /// The call waits for
    ///
    /// - batches with smaller numbers that are still being written,
    /// - the journal, as the durability says,
    /// - a flush if a budget is used up, until the batch's deadline.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{Durability, MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// let last = set.write_with(&batch, Durability::None)?;
    /// assert!(set.snapshot().sequence() >= last);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// After these errors the batch has no numbers, and nothing is changed:
    ///
    /// - Those of [`prepare`](paranoid_memtable::MemTable::prepare).
    /// - `InvalidArgument` for a durability that needs a journal the set does not have, and beyond
    ///   sequence number 2^56 - 1.
    /// - `MemTableFull` if even an empty table has too little space for the batch.
    /// - `WriteStall` if a budget is used up and no flush ends in time.
    /// - Those of [`Journal::append`](crate::Journal::append) and
    ///   [`switch`](crate::Journal::switch).
    ///
    /// `ReadOnly` if the batch or an earlier one could not be finished or written to the journal,
    /// or if the set was read-only. The batch is not visible and never will be.
    ///
    /// # Panics
    /// If the comparator or the journal panics. If the batch had numbers by then, the set is
    /// read-only.
    pub fn write_with(
        &self,
        batch: &WriteBatch,
        options: impl Into<WriteOptions>,
    ) -> Result<SequenceNumber> {
        self.shared.write(batch, options.into(), None)
    }

    /// Writes a batch that was read from a journal, under the numbers in its header, and does not
    /// append it to the set's journal. Numbers between the last batch and this one stay unused.
    ///
    /// A recovery replays its batches before it writes anything else, and after it has started a
    /// flush thread: a log of more than
    /// [`max_write_buffer_number`](crate::SetOptionsBuilder::max_write_buffer_number) tables needs
    /// flushes meanwhile, because tables are sealed as they fill. Without a flush, a replay is
    /// refused with `WriteStall`, and can be repeated after one. Tables may be flushed before the
    /// last batch is replayed: the [journal decides](crate::Journal::flushed) which older files it
    /// keeps then.
    ///
    /// Each number is taken once. A log of another engine may have two batches with one number; a
    /// set refuses the second. If the two have no key in common, the second and all batches after
    /// it can be replayed with numbers that are larger by one more.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::builder().last_sequence(6).build()?, ())?;
    /// let mut logged = WriteBatch::new();
    /// logged.put(b"a", b"1")?;
    /// logged.put(b"b", b"2")?;
    /// logged.set_sequence(9);
    /// assert_eq!(set.replay(&logged)?, 10);
    /// assert!(set.replay(&logged).is_err(), "these numbers are taken");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with), and `InvalidArgument` if the batch's first number
    /// is not above all numbers that were taken, or if another batch is being written.
    pub fn replay(&self, batch: &WriteBatch) -> Result<SequenceNumber> {
        self.shared
            .write(batch, Durability::None.into(), Some(batch.sequence()))
    }

    /// Replaces the active table by an empty one, unless it is empty. Returns how many tables can
    /// be flushed. If the set has its maximum number of tables, the call waits for a flush as a
    /// write does, for at most [`stall_timeout`](crate::SetOptionsBuilder::stall_timeout).
    ///
    /// The set also replaces a table by itself, in a write:
    ///
    /// - when [`should_flush`](paranoid_memtable::MemTable::should_flush) says that it is full,
    ///   checked each time that batches took a 64th of the write buffer;
    /// - when the journal has as many bytes of the table's batches as the write buffer.
    ///
    /// On a [read-only](Self::read_only) set, `switch` seals the tables below the batch that
    /// stopped it, so that a last flush has everything that is visible. Then the engine opens
    /// another set over that base.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert_eq!(set.switch()?, 0);
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// assert_eq!(set.switch()?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `MemoryRefused` if the system has no memory for a table.
    /// - `WriteStall` if the set has its maximum number of tables and no flush ends in time.
    /// - Those of [`Journal::switch`](crate::Journal::switch).
    pub fn switch(&self) -> Result<usize> {
        self.shared.switch()?;
        Ok(self.view().readers().count() - 1)
    }

    /// Replaces the active table, and waits until the flush thread, or a job of another thread, has
    /// flushed all that was written before this call and installed the base that has it. A flush
    /// thread that failed tries again.
    ///
    /// ```
    /// use paranoid_memtable::Error;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), Error> {
    /// let set = MemTableSet::open(SetOptions::default(), 0)?;
    /// set.put("k", "v")?;
    /// assert!(matches!(set.flush_and_wait(), Err(Error::InvalidArgument(_))), "nothing flushes it");
    /// let thread = set.start_flush_thread(|mut job| {
    ///     let mut items = job.items()?;
    ///     while let Some(_item) = items.next()? {} // into a file
    ///     drop(items);
    ///     let last = job.last_sequence();
    ///     job.install(|_| Ok(last))
    /// })?;
    /// set.flush_and_wait()?;
    /// assert_eq!((**set.view().base(), set.stats().entries), (1, 0));
    /// # thread.close()
    /// # }
    /// ```
    ///
    /// The call waits for at most [`stall_timeout`](crate::SetOptionsBuilder::stall_timeout): a job
    /// that is leaked, or kept without an install, never ends its flush.
    ///
    /// # Errors
    /// The tables stay, and can be flushed later:
    ///
    /// - Those of [`switch`](Self::switch).
    /// - That of the flush thread, if its flush fails.
    /// - `WriteStall` if the flush under way does not end in time.
    /// - `InvalidArgument` if the set has no flush thread, and no job takes the table.
    pub fn flush_and_wait(&self) -> Result<()> {
        let Shared {
            buffers,
            commit,
            options,
            ..
        } = &*self.shared;
        let deadline = Instant::now().checked_add(options.stall_timeout);
        let mut stall = Stall {
            deadline,
            ..Stall::default()
        };
        buffers.change_thread(ThreadState::retry);
        let Some(newest) = self.shared.switch()? else {
            return Ok(());
        };
        let ended = buffers.wait_for_flush(newest, &mut stall);
        if ended == FlushWait::Flushed {
            // An install counts its tables as flushed before it shows its base, both under this
            // mutex. So the base is visible after the lock.
            drop(commit.lock());
            return Ok(());
        }
        let tables = self.view().readers().count() as u64;
        let waited = stall.since.map_or(Duration::ZERO, |since| since.elapsed());
        let unflushed =
            "nothing flushes the set: start a flush thread, or begin a flush and install it";
        Err(buffers.thread_error().unwrap_or_else(|| match ended {
            FlushWait::Late => Error::WriteStall {
                cause: StallCause::Tables,
                tables,
                waited,
            },
            _ => Error::InvalidArgument(unflushed.into()),
        }))
    }

    /// A view of what is visible now. It waits for no write, except while a switch or an install
    /// replaces the tables. Tens of nanoseconds.
    #[must_use]
    pub fn view(&self) -> View<B> {
        // The tables before the number: see `read_at`.
        let tables = self.shared.tables.load();
        View {
            sequence: read_at(&self.shared.registry.publication, &tables.active.last),
            tables,
        }
    }

    /// A view at a snapshot: the current tables and base, read at the snapshot's sequence number.
    ///
    /// ```
    /// use paranoid_memtable::Error;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), Error> {
    /// let (set, other) = (
    ///     MemTableSet::open(SetOptions::default(), ())?,
    ///     MemTableSet::open(SetOptions::default(), ())?,
    /// );
    /// assert!(set.view_at(&set.snapshot()).is_ok());
    /// assert!(matches!(set.view_at(&other.snapshot()), Err(Error::InvalidArgument(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a snapshot of another set.
    pub fn view_at(&self, snapshot: &Snapshot) -> Result<View<B>> {
        if !Arc::ptr_eq(&snapshot.registry, &self.shared.registry) {
            return Err(Error::InvalidArgument(
                "the snapshot is one of another set".into(),
            ));
        }
        // The snapshot's number is at most the last one of the active table: this table or an older
        // one had the number when the snapshot was made.
        Ok(View {
            tables: self.shared.tables.load(),
            sequence: snapshot.sequence(),
        })
    }

    /// Replaces the base by the one that `next` makes of the current one, without a flush: for
    /// example after a compaction, with its new files in place of those that it read. Existing
    /// views, cursors and ranges keep the base that they began with.
    ///
    /// This call and the [`install`](FlushJob::install) of a flush run one at a time, so neither
    /// loses the other's files, and `next` may write the engine's manifest. Reads and writes
    /// continue meanwhile. `next` must not install a base itself: it would wait for itself.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), vec!["file 3", "file 2", "file 1"])?;
    /// let before = set.view();
    /// let merged = ["file 2", "file 1"]; // into file 4, with what is visible at `set.snapshots()`
    /// set.replace_base(|files| {
    ///     let kept = files.iter().filter(|file| !merged.contains(file));
    ///     Ok(kept.copied().chain(["file 4"]).collect()) // named in the engine's manifest
    /// })?;
    /// assert_eq!(set.view().base().as_slice(), ["file 3", "file 4"]);
    /// assert_eq!(before.base().len(), 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// That of `next`. The base stays then.
    pub fn replace_base(&self, next: impl FnOnce(&B) -> Result<B>) -> Result<()> {
        replace_base(&self.shared, None, next).map(drop)
    }

    /// The sequence numbers of all snapshots, ascending, each once: those at which a
    /// [compaction](crate::Compaction) of the base keeps reads unchanged. The engine asks for them
    /// after it took the view whose files it merges: a snapshot that is made later sees the newest
    /// version of each key in these files. A flush takes a list of its own.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), "files")?;
    /// let (one, _same) = (set.snapshot(), set.snapshot());
    /// set.put("k", "v")?;
    /// let later = set.snapshot();
    /// let files = set.view().base().clone();
    /// assert_eq!((*files, set.snapshots()), ("files", vec![one.sequence(), later.sequence()]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn snapshots(&self) -> Vec<SequenceNumber> {
        self.shared.registry.numbers()
    }

    /// A snapshot of what is visible now, with every batch whose write has returned.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.registry.register()
    }

    /// Begins a flush of all immutable tables. Returns `None` if there are none, or if another job
    /// has them. If the [`WriteBufferManager`](crate::WriteBufferManager) asked for the active
    /// table, it is sealed and flushed too. The call waits for batches that are still being written
    /// to these tables, and freezes the tables, without any lock that reads or writes take.
    /// [`FlushJob`] has the next steps.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert!(set.begin_flush()?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly` if the oldest immutable table has a batch that could not be finished. Those of
    /// [`switch`](Self::switch) if the manager asked for the active table, it cannot be sealed, and
    /// no other table can be flushed.
    pub fn begin_flush(&self) -> Result<Option<FlushJob<B>>> {
        FlushJob::begin(&self.shared)
    }

    /// Starts a thread that calls `flush` with a job each time that a table is sealed, or that the
    /// [`WriteBufferManager`](crate::WriteBufferManager) asks for the active table. The function
    /// writes a file and installs the job. If it returns an error, or drops the job without an
    /// install, every table stays, stalled writes are refused, and the thread waits until
    /// [`retry`](FlushThread::retry). An engine with its own threads calls
    /// [`begin_flush`](Self::begin_flush) instead.
    ///
    /// A write or a switch that would wait for a flush of this set is refused at once on this
    /// thread, in `flush` and in a listener.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let thread = set.start_flush_thread(|mut job| {
    ///     let mut items = job.items()?;
    ///     while let Some(_item) = items.next()? {} // into a file
    ///     drop(items);
    ///     job.install(|_| Ok(()))
    /// })?;
    /// assert!(set.start_flush_thread(|job| job.install(|_| Ok(()))).is_err(), "one is enough");
    /// thread.close()?;
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the set has a flush thread, `Io` if the system starts none.
    pub fn start_flush_thread(
        &self,
        flush: impl FnMut(FlushJob<B>) -> Result<()> + Send + 'static,
    ) -> Result<FlushThread>
    where
        B: Send + Sync + 'static,
    {
        FlushThread::start(&self.shared, flush)
    }

    /// Statistics of the set, for logs and graphs. O(tables * writers).
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// let _snapshot = set.snapshot();
    /// let stats = set.stats();
    /// assert_eq!((stats.visible, stats.tables, stats.entries, stats.snapshots), (1, 1, 1, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> SetStats {
        let (view, counted) = (self.view(), self.shared.buffers.stats());
        SetStats {
            visible: view.sequence(),
            tables: view.readers().count() as u64,
            entries: view.readers().map(|table| table.len() as u64).sum(),
            allocated_bytes: view.readers().map(|table| table.allocated_bytes()).sum(),
            pinned_bytes: counted.pinned_bytes,
            pinned_for: counted.pinned_for,
            recycled_bytes: counted.recycled_bytes,
            healed: view.readers().map(|table| table.stats().healed).sum(),
            snapshots: self.snapshots().len() as u64,
        }
    }

    /// The error that writes get if the set is read-only; `None` while it takes writes. A set stays
    /// read-only. The engine flushes it a last time ([`flush_and_wait`](Self::flush_and_wait), or
    /// [`switch`](Self::switch) and a job), drops it, and opens another set over its base and its
    /// journal.
    ///
    /// The recovery may find batches whose write returned this error. To leave one out, the engine
    /// replays in its place a batch of as many deletes of a key that it never uses, because its
    /// numbers must not be given again.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert!(set.read_only().is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn read_only(&self) -> Option<Error> {
        self.shared
            .registry
            .publication
            .cause()
            .or_else(|| self.shared.commit.lock().refusal.clone())
    }
}

shown! {
    "MemTableSet": impl [B] MemTableSet<B>, |set| {
        "visible": set.shared.registry.publication.visible()
    }
}
