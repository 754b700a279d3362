//! The handle of a set: what an engine calls.
//!
//! ```text
//!   MemTableSet --+-- write, write_with, replay, switch, flush_and_wait     commit
//!                 +-- view, view_at, snapshot, stats        view, snapshot, stats
//!                 +-- begin_flush                           flush_job
//! ```
//! Any thread may call any method; clones are handles of one set.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::{Error, Kind, Result, SequenceNumber, StallCause, WriteBatch, shown};

use crate::commit::{KEPT_MAX, Shared};
use crate::flush_job::{FlushJob, replace_base};
use crate::flush_thread::FlushThread;
use crate::options::{Durability, SetOptions, WriteOptions};
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
/// by an empty one. A flush hands the immutable tables out as one, verified, and replaces them by a
/// new base in one store.
///
/// Handles are cheap to clone and share one set. A comparator must not write to the set whose keys
/// it compares: the inner write would wait for the outer one.
///
/// ```
/// use paranoid_memtable::{Lookup, WriteBatch};
/// use paranoid_set::{MemTableSet, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), "no files yet")?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.delete(b"pear")?;
/// assert_eq!(set.write(&batch)?, 2);
/// let view = set.view();
/// assert!(matches!(view.get(b"apple")?, Lookup::Value(value) if *value == *b"red"));
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
    /// An empty set over the engine's base, in the order that the options of its tables choose. Its
    /// journal, if there is one, is switched to the first table.
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

    /// Puts one entry under the next sequence number, and returns that number:
    /// [`write`](Self::write) of a batch of one, with 8 bytes of protection from here on. Other
    /// calls of this kind: [`delete`](Self::delete), [`merge`](Self::merge),
    /// [`delete_range`](Self::delete_range).
    ///
    /// ```
    /// use paranoid_memtable::Lookup;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.put("apple", "red")?;
    /// set.put("banana", "yellow")?;
    /// set.delete("apple")?;
    /// set.delete_range("b", "c")?; // the end is exclusive
    /// assert!(matches!(set.view().get(b"banana")?, Lookup::Deleted { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write_one(Kind::PUT, key.as_ref(), value.as_ref())
    }

    /// Deletes a key, present or not; see [`put`](Self::put).
    ///
    /// # Errors
    /// Those of [`write_with`](Self::write_with).
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.write_one(Kind::DELETE, key.as_ref(), &[])
    }

    /// Adds an operand that the engine's merge operator will combine with what the key has; see
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

    /// Deletes the keys from `start` on and before `end`; see [`put`](Self::put).
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

    fn write_one(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<SequenceNumber> {
        let kept = BATCH.try_with(Cell::take).ok().flatten();
        let mut batch =
            kept.unwrap_or_else(|| WriteBatch::new().with_range_order(RangeOrder::OfTable));
        batch.insert(kind, key, value)?;
        let written = self.write(&batch)?;
        if batch.as_bytes().len() <= KEPT_MAX {
            batch.clear();
            // No thread local is there while a thread ends.
            let _ = BATCH.try_with(|kept| kept.set(Some(batch)));
        }
        Ok(written)
    }

    /// Writes a batch, as [`write_with`](Self::write_with) does by default: `Buffered` if there is
    /// a journal, otherwise without one.
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

    /// Writes a batch under the next sequence numbers and returns the last of them, once it and all
    /// batches before it are visible. A batch without records takes no number; what is visible is
    /// returned. Empty ranges take theirs. Expected O(n log n) for n entries; waits for batches
    /// with smaller numbers that are still being written, for the journal, and until its deadline
    /// for a flush if a budget is used up. `options` are [`WriteOptions`] or a
    /// [`Durability`](crate::Durability). The steps of a write: [commit
    /// protocol](paranoid_memtable::guide::commit_protocol).
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
    /// Those of [`prepare`](paranoid_memtable::MemTable::prepare); `InvalidArgument` for a
    /// durability that needs a journal, and beyond sequence number 2^56 - 1; `MemTableFull` for a
    /// batch that fits no empty table, before one is sealed for it; `WriteStall` if a budget is
    /// used up and no flush ends in time; errors of [`Journal::append`](crate::Journal::append) and
    /// [`switch`](crate::Journal::switch). The batch has no numbers then, and nothing is changed.
    /// `ReadOnly` if the batch, or one before it, could not be finished or written to the journal,
    /// or if the set was read-only: the batch is not visible and never will be.
    ///
    /// # Panics
    /// If the comparator or the journal panics. The set is read-only then, unless the batch had no
    /// numbers yet.
    pub fn write_with(
        &self,
        batch: &WriteBatch,
        options: impl Into<WriteOptions>,
    ) -> Result<SequenceNumber> {
        self.shared.write(batch, options.into(), None)
    }

    /// Writes a batch that was read from a journal, under the numbers in its header, without
    /// appending it anywhere. Numbers between the last batch and this one stay unused. Tables with
    /// replayed batches may be flushed before the last batch is replayed: which older journals are
    /// kept then, the [journal decides](crate::Journal::flushed). Meant for recovery, before
    /// anything else is written, but after a flush thread was started: a log with more than
    /// [`max_write_buffer_number`](crate::SetOptionsBuilder::max_write_buffer_number) tables needs
    /// flushes on the way. Tables are sealed as they fill. If nobody flushes them, a replay is
    /// refused with `WriteStall`, and can be repeated after a flush.
    ///
    /// A number is taken once. Logs of other engines may have two batches of one number; a set
    /// refuses the second one. If no key is in both, it and all batches after it can be given
    /// numbers that are larger by one more.
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
    /// is not after all that was written, or while another batch is being written.
    pub fn replay(&self, batch: &WriteBatch) -> Result<SequenceNumber> {
        self.shared
            .write(batch, Durability::None.into(), Some(batch.sequence()))
    }

    /// Replaces the active table by an empty one, unless it is empty; returns how many tables can
    /// be flushed. The set does so by itself when the table is full: it asks
    /// [`should_flush`](paranoid_memtable::MemTable::should_flush) each time that batches took a
    /// 64th of the write buffer; and when the journal has as many bytes of the table's batches as
    /// the write buffer. Where there may be no further table, it waits for a flush as a write does,
    /// for [`stall_timeout`](crate::SetOptionsBuilder::stall_timeout) at most.
    ///
    /// Of a set that is [read-only](Self::read_only) the switch closes all tables below the batch
    /// that stopped it, so that a last flush has everything that is visible. Then the set is opened
    /// anew over that base.
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
    /// `MemoryRefused` if the system has no memory for a table, `WriteStall` if there may be no
    /// further one and no flush ends in time, and errors of
    /// [`Journal::switch`](crate::Journal::switch).
    pub fn switch(&self) -> Result<usize> {
        self.shared.switch()?;
        Ok(self.view().readers().count() - 1)
    }

    /// Replaces the active table, and waits until all that was written before this call is flushed
    /// and the base that has it is installed, by the flush thread or by a job of another thread. A
    /// flush thread that failed tries again.
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
    /// The call waits until [`stall_timeout`](crate::SetOptionsBuilder::stall_timeout) is over at
    /// most, as a stalled write does: a job that is kept without an install, or leaked, ends no
    /// flush.
    ///
    /// # Errors
    /// Those of [`switch`](Self::switch); that of the flush thread, if its flush fails;
    /// `WriteStall` if the flush under way does not end in time; `InvalidArgument` if the set has
    /// no flush thread and no job that takes the table. The table stays, and can be flushed later.
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
            // An install counts its tables, and shows its base before it lets the mutex go.
            drop(commit.lock());
            return Ok(());
        }
        let tables = self.view().readers().count() as u64;
        let waited = stall.since.map_or(Duration::ZERO, |since| since.elapsed());
        let nobody =
            "nothing flushes the set: start a flush thread, or begin a flush and install it";
        Err(buffers.thread_error().unwrap_or_else(|| match ended {
            FlushWait::Late => Error::WriteStall {
                cause: StallCause::Tables,
                tables,
                waited,
            },
            _ => Error::InvalidArgument(nobody.into()),
        }))
    }

    /// What the set shows now. Takes no lock that a writer holds; tens of nanoseconds.
    #[must_use]
    pub fn view(&self) -> View<B> {
        // VIEW-1.
        let tables = self.shared.tables.load();
        View {
            sequence: read_at(&self.shared.registry.publication, &tables.active.last),
            tables,
        }
    }

    /// What the set shows at a snapshot: the tables of now, and the snapshot's sequence number.
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
        // Its number is not over the last one of the active table: that table, or an older one, had
        // it when the snapshot was made.
        Ok(View {
            tables: self.shared.tables.load(),
            sequence: snapshot.sequence(),
        })
    }

    /// Replaces the base by what `next` makes of the current one, without a flush: the files of a
    /// compaction in place of those that it read. Views, cursors and ranges that exist go on over
    /// the base that they began with. One base at a time is made, by this call or by a flush's
    /// [`install`](FlushJob::install): no call loses what another has brought, and `next` may write
    /// the engine's manifest. Readers and writers go on meanwhile. `next` must not install a base
    /// itself: it would wait for its own end.
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
    /// That of `next`: the base stays.
    pub fn replace_base(&self, next: impl FnOnce(&B) -> Result<B>) -> Result<()> {
        replace_base(&self.shared, None, next).map(drop)
    }

    /// The sequence numbers of all snapshots, ascending, each once: what a
    /// [compaction](crate::Compaction) of the base keeps readable. They are asked for after the
    /// view whose files it merges was taken: a snapshot that is made later sees the newest version
    /// of whatever these files have. A flush takes a list of its own.
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

    /// A snapshot of what is visible now. It sees every batch whose write has returned.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.registry.register()
    }

    /// A flush of all immutable tables, oldest first; `None` if there are none, or if another job
    /// has them. The active table becomes one of them if the
    /// [`WriteBufferManager`](crate::WriteBufferManager) asked for it. Waits for batches that are
    /// still being written to these tables, and finishes the tables (sums, tombstones), off every
    /// lock that readers and writers take. How a flush goes on: [`FlushJob`].
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
    /// [`switch`](Self::switch) if the active table was asked for and is the only one.
    pub fn begin_flush(&self) -> Result<Option<FlushJob<B>>> {
        FlushJob::begin(&self.shared)
    }

    /// Starts a thread that calls `flush` with a job each time that a table is sealed, or that the
    /// [`WriteBufferManager`](crate::WriteBufferManager) asks for one. The function writes a file
    /// and installs the job. If it returns an error, or the job is dropped without an install,
    /// every table stays, writers that are stalled are refused, and the thread waits until
    /// [`retry`](FlushThread::retry). An engine with its own threads calls
    /// [`begin_flush`](Self::begin_flush) instead. A write or a switch by the function itself, or
    /// by a listener on its thread, does not wait for a flush of this set: it is refused at once.
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

    /// Counts and numbers of the set, for logs and graphs. O(tables * writers).
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
            snapshots: self.snapshots().len() as u64,
        }
    }

    /// What made the set read-only, as the error that writes get; `None` while it takes writes. It
    /// stays read-only: after a last flush ([`flush_and_wait`](Self::flush_and_wait), or a
    /// [`switch`](Self::switch) and a job) the engine drops it, and opens another one over its base
    /// and its journal. Batches whose write returned this error may be there then. Who does not
    /// want one of them replays a batch of as many deletes of a key that is never used in its
    /// place: its numbers must not be given again.
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
