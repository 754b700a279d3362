//! A flush: takes the oldest immutable tables, hands their merged entries out, and replaces them by
//! a new base.
//!
//! ```text
//!   begin     tables whose last number is visible; frozen off every lock; then the snapshots
//!   items     as often as needed: an error of the sink changes nothing
//!   install   one store: the tables are gone and the base is the new one; then the journal may forget
//!   dropped   without install: the tables stay, and the next job begins anew
//!   salvage   after a pass that met damage, in its place: then install
//! ```
//! * FLUSH-JOB-1: the list of snapshots is taken after the tables' last number was visible. So a
//!   snapshot that is missing in it sees every table of the job as a whole (SNAPSHOT-1).
//! * FLUSH-JOB-2: there is one job at a time, and only a job whose pass reached its end may
//!   install.
//! * FLUSH-JOB-3: a switch of a read-only set closes tables below the batch that stopped it. So a
//!   job takes tables whose last number is visible, and asks for that number again.
//! * FLUSH-JOB-4: one base at a time is made of the current one, by a flush or by `replace_base`,
//!   and installed before the next one is begun: so none loses what another has brought. The commit
//!   mutex is taken for the store alone.
//!
//! One thread at a time has a job; readers and writers go on.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::flush::{FlushSink, FlushSummary};
use paranoid_memtable::{Error, ImmutableMemTable, Result, SequenceNumber, shown};

use crate::commit::Shared;
use crate::compaction::{Compaction, Ended};
use crate::listener::SetEvent;
use crate::salvage::{SalvageSummary, salvage_tables};
use crate::tables::{Slot, Tables};
use crate::write_buffer_manager::FlushEnd;

/// A flush of the oldest immutable tables, merged. Dropped without [`install`](Self::install) it
/// changes nothing. Made by [`begin_flush`](crate::MemTableSet::begin_flush). When it is dropped or
/// installed, it makes memory of flushed tables ready for the next ones:
/// [`recycled_arenas`](crate::SetOptionsBuilder::recycled_arenas).
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
    /// Oldest first.
    slots: Vec<Arc<Slot>>,
    snapshots: Vec<SequenceNumber>,
    /// The tables; none if one could not be frozen.
    frozen: Vec<ImmutableMemTable>,
    /// How the last pass ended; a salvage ends well one that has failed.
    ended: Arc<Ended>,
    end: FlushEnd,
}

impl<B> FlushJob<B> {
    /// A job for the immutable tables that are complete, if there are any and no other job has
    /// them.
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
        // FLUSH-JOB-3.
        let Some(last) = job.slots.last().map(|slot| slot.last.get()) else {
            return sealed.map(|()| None);
        };
        // Each of them, also after one that fails: all can be salvaged.
        let all: Vec<Result<_>> = job.slots.iter().map(|slot| slot.table.freeze()).collect();
        match all.into_iter().collect() {
            Ok(frozen) => job.frozen = frozen,
            Err(error) => job.ended = Arc::new(Ended::from(Err(error))),
        }
        // FLUSH-JOB-1.
        job.snapshots = shared.registry.numbers_after(last)?;
        // SET-FLUSH-3.
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
    /// to it.
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

    /// Passes everything to the sink that a read at the newest sequence number or at a snapshot of
    /// the set could need. O(entries * (tables + log snapshots)). That may be nothing: of tables
    /// that the bytes of their journal sealed, or where all single deletes met their puts. The
    /// engine then needs no file, and installs its version with
    /// [`last_sequence`](Self::last_sequence) all the same.
    ///
    /// # Errors
    /// `Sink` if the sink returns an error; the set is unchanged, and the job may try again.
    /// `ReadOnly` because of `Corruption` if the tables are damaged: the set takes no more writes,
    /// and nothing is dropped. In both cases what the sink has must be discarded.
    pub fn flush(&mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        let passed = self.items().and_then(|items| items.pass_to(sink));
        self.refuse_damage()?;
        passed
    }

    /// The items of a flush, to be pulled; see [`flush`](Self::flush).
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

    /// Passes everything to the sink that still verifies of tables that a pass of this job found
    /// damaged: all versions of every entry, in the order of a flush, and the range tombstones.
    /// Afterwards [`install`](Self::install) replaces the tables by a base with what the sink has.
    /// The set stays read-only. O(n log n) for n entries.
    ///
    /// What is [`missing`](SalvageSummary::missing) is lost then, and an older version of its key,
    /// or nothing, is read in its place. An engine whose journal is intact loses nothing if it
    /// opens the set anew from base and journal instead.
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
    /// # injector.flip(value, 3);
    /// // A bit of the first value flips.
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
    /// `InvalidArgument` unless the last pass met damage. `Sink` if the sink returns an error, and
    /// `Corruption` for what is damaged meanwhile: what the sink has must be discarded, and the
    /// salvage may be tried again.
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

    /// Makes the set read-only if the last pass met damage, and returns the error that says so.
    fn refuse_damage(&self) -> Result<()> {
        let Some(Err(error)) = self.ended.get() else {
            return Ok(());
        };
        Err(self.shared.refuse(error.clone()))
    }

    /// Replaces the flushed tables by the base that `next` makes of the current one and of what
    /// this job handed out, in one store: no reader misses an entry or has it twice. `next` runs as
    /// that of [`replace_base`](crate::MemTableSet::replace_base) does. Then the journal is told
    /// what it may forget. If it cannot, the job is installed nevertheless: the
    /// [`Listener`](crate::Listener) is told of the error, and the next install tries again.
    ///
    /// # Errors
    /// `InvalidArgument` if no pass of this job reached its end, `ReadOnly` if the last one met
    /// damage and nothing was salvaged, and the error of `next`; the tables stay then.
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

/// Replaces the base by what `next` makes of it, and takes away the tables up to number `flushed`
/// (FLUSH-JOB-4). Returns the oldest table that stays, unless an older journal may have what is in
/// it.
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
    // Without a lock: these may be the last pointers to the flushed tables.
    drop(old);
    // COMMIT-5.
    Ok(oldest.filter(|oldest| replayed.is_none_or(|replayed| replayed < *oldest)))
}

/// The immutable ones of these tables that are complete, oldest first. Waits until their last
/// numbers are visible.
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
        // The set keeps the error.
        let _ = self.refuse_damage();
        // Before writers are woken: what nobody holds does not count as pinned.
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
        // When nobody waits for this flush any more: it takes milliseconds.
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

    /// The last numbers that tables had when a job asked belong to batches that are never finished
    /// (FLUSH-JOB-3). Of the third table nothing is handed out.
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
