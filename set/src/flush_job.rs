//! Flush jobs: a job takes the oldest immutable tables, passes their merged entries on, and
//! replaces them by a new base.
//!
//! ```text
//!   begin     takes tables whose last number is visible, freezes them, then lists the snapshots
//!   items     as often as needed: an error of the sink changes nothing
//!   salvage   in place of `items`, after a pass that met damage
//!   install   one store: the tables are gone and the base is the new one; then tells the journal
//!   drop      without install: the tables stay, and the next job begins from the start
//! ```
//! * FLUSH-JOB-1: each base is made of the current one, by a flush or by `replace_base`, and is
//!   installed before the next one is begun. So none loses what another added. The commit mutex is
//!   taken only for the store.
//!
//! A set has one job at a time. One thread at a time uses it; reads and writes continue.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::flush::{FlushSink, FlushSummary};
use paranoid_memtable::{Error, ImmutableMemTable, Result, SequenceNumber, shown};

use crate::compaction::{Compaction, Ended};
use crate::listener::SetEvent;
use crate::salvage::{SalvageSummary, salvage_tables};
use crate::shared::Shared;
use crate::tables::{Slot, Tables};
use crate::write_buffer_manager::FlushEnd;

/// A flush of the oldest immutable tables, merged. Made by
/// [`begin_flush`](crate::MemTableSet::begin_flush). A job that is dropped without
/// [`install`](Self::install) leaves the set as it was. At its end the job zeroes memory of flushed
/// tables for the next ones: [`recycled_arenas`](crate::SetOptionsBuilder::recycled_arenas).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
/// use paranoid_set::{FlushJob, MemTableSet, SetOptions};
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
/// let set = MemTableSet::open(SetOptions::default(), Vec::new())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write(&batch)?;
/// set.switch()?;
/// let mut job: FlushJob<Vec<Vec<u8>>> = set.begin_flush()?.expect("an immutable table");
/// let mut keys = Keys(Vec::new());
/// assert_eq!(job.flush(&mut keys)?.entries, 1);
/// job.install(|_| Ok(keys.0))?;
/// let view = set.view();
/// assert_eq!((view.readers().count(), view.base().as_slice()), (1, &[b"k".to_vec()][..]));
/// # Ok(()) }
/// ```
pub struct FlushJob<B> {
    shared: Arc<Shared<B>>,
    /// The tables, oldest first.
    slots: Vec<Arc<Slot>>,
    snapshots: Vec<SequenceNumber>,
    /// The frozen tables; none if one could not be frozen.
    frozen: Vec<ImmutableMemTable>,
    /// How the last pass ended. A salvage sets `Ok` after a pass that met damage.
    ended: Arc<Ended>,
    end: FlushEnd,
}

impl<B> FlushJob<B> {
    /// Begins a job for the immutable tables that are complete. Returns `None` if there are none or
    /// another job exists.
    pub(crate) fn begin(shared: &Arc<Shared<B>>) -> Result<Option<Self>> {
        if !shared.buffers.begin_flush() {
            return Ok(None);
        }
        let (slots, frozen, snapshots) = (Vec::new(), Vec::new(), Vec::new());
        let (ended, end) = (Arc::default(), FlushEnd::Nothing);
        let mut job = FlushJob {
            shared: Arc::clone(shared),
            slots,
            snapshots,
            frozen,
            ended,
            end,
        };
        let sealed = shared.seal_if_asked();
        job.slots = complete(shared, &shared.tables.load())?;
        // Loaded again, after `complete`: a switch of a read-only set may have lowered it
        // meanwhile.
        let Some(last) = job.slots.last().map(|slot| slot.last.get()) else {
            return sealed.map(|()| None);
        };
        // Freezes all, also after one that fails, so that a salvage can read all.
        let all: Vec<Result<_>> = job.slots.iter().map(|slot| slot.table.freeze()).collect();
        match all.into_iter().collect() {
            Ok(frozen) => job.frozen = frozen,
            Err(error) => job.ended = Arc::new(Ended::from(Err(error))),
        }
        // Once `last` is visible: a snapshot that is not in this list sees each table of the job
        // whole (SNAPSHOT-1).
        job.snapshots = shared.registry.numbers_after(last)?;
        // Each table is read up to its last number. With `last` as a snapshot, what is above it
        // hides no older version.
        job.snapshots.push(last);
        job.end = FlushEnd::Left;
        match job.refuse_damage() {
            Err(error) if error.corruption().is_none() => Err(error),
            _ => Ok(Some(job)),
        }
    }

    /// Number of tables that this job flushes.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.slots.len()
    }

    /// The last sequence number of the tables that this job flushes. The new base has everything up
    /// to this number.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"b", b"2")?;
    /// set.write(&batch)?;
    /// set.switch()?;
    /// let job = set.begin_flush()?.expect("an immutable table");
    /// assert_eq!((job.tables(), job.last_sequence()), (1, 2));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn last_sequence(&self) -> SequenceNumber {
        self.slots.last().map_or(0, |slot| slot.last.get())
    }

    /// Passes to the sink all that a read at the newest sequence number or at a snapshot of the set
    /// may need. O(entries * (tables + log snapshots)).
    ///
    /// A flush may pass nothing: if the tables were sealed only for the length of their journal, or
    /// if all single deletes met their puts. The engine then writes no file, but still installs its
    /// version with [`last_sequence`](Self::last_sequence).
    ///
    /// # Errors
    /// After an error, the engine discards what the sink has:
    ///
    /// - `Sink` if the sink returns an error. The set is unchanged, and the job may try again.
    /// - `ReadOnly` because of `Corruption` if the tables are damaged. The set takes no more
    ///   writes, and keeps the tables.
    pub fn flush(&mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        let passed = self.items().and_then(|items| items.pass_to(sink));
        self.refuse_damage()?;
        passed
    }

    /// Returns the items of a flush, which the caller pulls one by one; see [`flush`](Self::flush).
    ///
    /// # Errors
    /// `ReadOnly` because of `Corruption` if the beginning of a table is damaged.
    pub fn items(&mut self) -> Result<Compaction<'_>> {
        if self.is_frozen() {
            self.ended = Arc::default();
        }
        self.refuse_damage()?;
        let FlushJob {
            shared,
            slots,
            snapshots,
            frozen,
            ended,
            ..
        } = &*self;
        let begun = Compaction::of_tables(slots, frozen, shared.comparator(), snapshots, ended);
        begun.map_err(|error| {
            ended.get_or_init(|| Err(error.clone()));
            shared.refuse(error)
        })
    }

    /// Whether the freeze of every table met no damage.
    fn is_frozen(&self) -> bool {
        self.frozen.len() == self.slots.len()
    }

    /// Passes to the sink all that still verifies, after a pass of this job met damage: every
    /// version of each entry, in the order of a flush, and the range tombstones. Afterwards
    /// [`install`](Self::install) replaces the tables by a base with what the sink has. The set
    /// stays read-only. O(n log n) for n entries.
    ///
    /// Entries that are [`missing`](SalvageSummary::missing) are lost then: a read of such a key
    /// finds an older version, or nothing. An engine with an intact journal loses nothing if it
    /// opens a set over its base and its journal instead.
    ///
    /// ```
    /// # #[cfg(feature = "fault-injection")]
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::fault::{FaultInjector, Region};
    /// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
    /// use paranoid_set::{MemTableSet, SetOptions};
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
    /// let set = MemTableSet::open(SetOptions::default(), vec![])?;
    /// let mut batch = WriteBatch::new();
    /// for key in [b"a", b"b", b"c"] {
    ///     batch.put(key, b"value")?;
    /// }
    /// set.write(&batch)?;
    /// set.switch()?;
    /// # let view = set.view();
    /// # // SAFETY: one thread, and nothing borrowed is held.
    /// # let mut injector = unsafe { FaultInjector::open(view.readers().last().expect("a table")) }?;
    /// # let value = injector.pieces().iter().position(|piece| piece.region == Region::Value).expect("a value");
    /// # [3, 4].into_iter().for_each(|bit| injector.flip(value, bit));
    /// // Two bits of the first value flip.
    /// let mut job = set.begin_flush()?.expect("an immutable table");
    /// assert!(job.flush(&mut Keys(vec![])).is_err() && set.read_only().is_some());
    /// let mut keys = Keys(vec![]);
    /// assert_eq!(job.salvage(&mut keys)?.missing, 1);
    /// job.install(|_| Ok(keys.0))?;
    /// assert_eq!(set.view().base().as_slice(), [b"b", b"c"]);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "fault-injection"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument` unless the last pass met damage.
    /// - `Sink` if the sink returns an error, or `Corruption` for damage that happens meanwhile.
    ///   The engine discards what the sink has, and may try the salvage again.
    pub fn salvage(&mut self, sink: &mut impl FlushSink) -> Result<SalvageSummary> {
        let Err(damage) = self.refuse_damage() else {
            let text = "what is salvaged are tables that a flush found damaged";
            return Err(Error::InvalidArgument(text.into()));
        };
        let mut summary = salvage_tables(&self.slots, self.shared.comparator(), sink)?;
        if !self.is_frozen() {
            summary.failure = summary.failure.or(damage.corruption().copied());
        }
        self.ended = Arc::new(Ended::from(Ok(())));
        Ok(summary)
    }

    /// If the last pass met damage, makes the set read-only and returns the error that writes get.
    fn refuse_damage(&self) -> Result<()> {
        let Some(Err(error)) = self.ended.get() else {
            return Ok(());
        };
        Err(self.shared.refuse(error.clone()))
    }

    /// Replaces the flushed tables by the base that `next` makes of the current one and the flushed
    /// items, in one store: no read misses an entry or sees it twice. `next` follows the rules of
    /// [`replace_base`](crate::MemTableSet::replace_base).
    ///
    /// Then calls [`Journal::flushed`](crate::Journal::flushed). If that fails, the job is
    /// installed nevertheless: the [`Listener`](crate::Listener) gets the error as an event, and
    /// the next install tries again.
    ///
    /// # Errors
    /// The tables stay after these errors:
    ///
    /// - `InvalidArgument` if no pass of this job reached its end.
    /// - `ReadOnly` if the last pass met damage and nothing was salvaged.
    /// - That of `next`.
    pub fn install(mut self, next: impl FnOnce(&B) -> Result<B>) -> Result<()> {
        self.refuse_damage()?;
        if !matches!(self.ended.get(), Some(Ok(()))) {
            return Err(Error::InvalidArgument(
                "a flush is installed after it has reached its end".into(),
            ));
        }
        let (shared, flushed) = (&self.shared, self.slots.last().map(|slot| slot.number));
        let kept = replace_base(shared, flushed, next)?;
        self.end = FlushEnd::Installed;
        if let (Some(table), Some(journal)) = (kept, shared.journal())
            && let Err(cause) = journal.flushed(table, self.last_sequence())
        {
            shared.reports.tell(|| SetEvent::JournalKept { cause });
        }
        Ok(())
    }
}

/// Replaces the base by the one that `next` makes of it, and removes the tables up to number
/// `flushed` (FLUSH-JOB-1). Returns the number of the oldest table that stays, unless a replayed
/// table stays: its entries may be in older journals only.
pub(crate) fn replace_base<B>(
    shared: &Shared<B>,
    flushed: Option<u64>,
    next: impl FnOnce(&B) -> Result<B>,
) -> Result<Option<u64>> {
    let turn = shared.installs.lock();
    let base = Arc::new(next(&shared.tables.load().base)?);
    let mut commit = shared.commit.lock();
    commit.tables = commit.tables.installed(flushed, base);
    let old = shared.tables.swap(&commit.tables);
    let oldest = commit.tables.newest_first().map(|slot| slot.number).min();
    let replayed = commit.replayed;
    drop(commit);
    drop(turn);
    // Dropped without a lock: these may be the last pointers to the flushed tables.
    drop(old);
    // Entries of a replay are in no journal that this set switched to. So the older journals stay
    // until each table that a replay wrote to is flushed.
    Ok(oldest.filter(|oldest| replayed.is_none_or(|replayed| replayed < *oldest)))
}

/// Waits until the last numbers of the immutable tables are visible, and returns these tables,
/// oldest first. In a stopped set the last number of a table may never be visible: this table and
/// the newer ones are left out, until a switch closes them below the batch that stopped the set. If
/// none remains, its error is returned.
fn complete<B>(shared: &Shared<B>, tables: &Tables<B>) -> Result<Vec<Arc<Slot>>> {
    let mut slots = Vec::new();
    for slot in tables.immutables.iter().rev() {
        match shared.registry.publication.wait_for(slot.last.get()) {
            Ok(()) => slots.push(Arc::clone(slot)),
            Err(error) if slots.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(slots)
}

impl<B> Drop for FlushJob<B> {
    fn drop(&mut self) {
        // The set stores the error.
        let _ = self.refuse_damage();
        // Drops the tables before it wakes writers: if this job is the last to hold them, they do
        // not count as pinned.
        let (tables, last_sequence) = (self.slots.len() as u64, self.last_sequence());
        self.slots.clear();
        self.frozen.clear();
        self.shared.buffers.end_flush(self.end);
        if self.end == FlushEnd::Nothing {
            return;
        }
        let installed = if self.end == FlushEnd::Installed {
            tables
        } else {
            0
        };
        self.shared.reports.tell(|| SetEvent::FlushEnded {
            last_sequence,
            installed,
        });
        // Last, because zeroing takes milliseconds and writers wait for the end of the flush.
        self.shared.buffers.recycler.zero();
    }
}

shown! {
    "FlushJob": impl [B] FlushJob<B>, |job| {
        "tables": job.slots.len(), "snapshots": job.snapshots.len(), "ended": job.ended
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::options::{SetOptions, WriteOptions};
    use crate::publication::Taken;
    use paranoid_memtable::WriteBatch;

    /// The last numbers that the tables had before belong to batches that are never finished. A
    /// switch lowers them: nothing of the third table is flushed.
    #[test]
    fn a_flush_of_a_stopped_set_ends_below_the_stop() {
        let shared = Shared::open(SetOptions::default(), Arc::new(())).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        for number in [1, 2, 3] {
            if number < 3 {
                assert_eq!(
                    shared.write(&batch, WriteOptions::default(), None).unwrap(),
                    number
                );
            }
            let mut commit = shared.lock_commit();
            // In the second table and in the third one a batch has a number, and is never finished.
            commit.last += u64::from(number > 1);
            shared.replace_active(&mut commit).unwrap();
        }
        let before = shared.tables.load();
        shared
            .registry
            .publication
            .stop(Taken { first: 3, last: 4 }, Error::WriterPanicked);
        assert_eq!(complete(&shared, &before).unwrap().len(), 1);
        for _ in 0..2 {
            shared.switch().unwrap();
            let complete = complete(&shared, &before).unwrap();
            let ends: Vec<_> = complete
                .iter()
                .map(|slot| (slot.number, slot.last.get()))
                .collect();
            assert_eq!(ends, [(1, 1), (2, 2), (3, 2)]);
        }
    }
}
