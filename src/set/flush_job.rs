//! A flush: takes the oldest immutable tables, hands their merged entries out, and replaces them by a new base.
//!
//! ```text
//!   begin     tables whose last number is visible; frozen off every lock; then the snapshots
//!   items     as often as needed: an error of the sink changes nothing
//!   install   one store: the tables are gone and the base is the new one; then the journal may forget
//!   dropped   without install: the tables stay, and the next job begins anew
//!   salvage   after a pass that met damage, in its place: then install, and the set may resume
//! ```
//! * FLUSH-JOB-1: the list of snapshots is taken after the tables' last number was visible. So a snapshot that is
//!   missing in it sees every table of the job as a whole (SNAPSHOT-1).
//! * FLUSH-JOB-2: there is one job at a time, and only a job whose pass reached its end may install.
//! * FLUSH-JOB-3: a resume takes a table away before the numbers that it abandoned there count as visible. So tables that are
//!   still there after their last number was visible have no abandoned numbers.
//!
//! One thread at a time has a job; readers and writers go on.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::memtable::debug::shown;
use crate::memtable::lifecycle::flush::{FlushSink, FlushSummary};
use crate::set::commit::Shared;
use crate::set::flush_merge::{Outcome, SetFlush};
use crate::set::listener::SetEvent;
use crate::set::salvage::{SalvageSummary, salvage_tables};
use crate::set::tables::{Slot, Tables};
use crate::set::write_buffer_manager::FlushEnd;

/// A flush of the oldest immutable tables, merged. Dropped without [`install`](Self::install) it changes nothing. Made
/// by [`begin_flush`](crate::set::MemTableSet::begin_flush). When it is dropped or installed, it makes memory of flushed
/// tables ready for the next ones: [`recycled_arenas`](crate::set::SetOptionsBuilder::recycled_arenas).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
/// use paranoid_memtable::set::{FlushJob, MemTableSet, SetOptions};
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
/// job.install(keys.0)?;
/// let view = set.view();
/// assert_eq!((view.tables(), view.base().as_slice()), (1, &[b"k".to_vec()][..]));
/// # Ok(()) }
/// ```
pub struct FlushJob<B> {
    shared: Arc<Shared<B>>,
    /// Oldest first.
    slots: Vec<Arc<Slot>>,
    snapshots: Vec<SequenceNumber>,
    /// Whether the tables could be frozen.
    frozen: Result<()>,
    outcome: Outcome,
    end: FlushEnd,
}

/// Ends a flush when it is dropped.
struct Begun<'s, B>(&'s Shared<B>, FlushEnd);

impl<B> Drop for Begun<'_, B> {
    fn drop(&mut self) {
        self.0.buffers.end_flush(self.1);
    }
}

impl<B> FlushJob<B> {
    /// A job for the immutable tables that are complete, if there are any and no other job has them.
    pub(crate) fn begin(shared: &Arc<Shared<B>>) -> Result<Option<Self>> {
        if !shared.buffers.begin_flush() {
            return Ok(None);
        }
        let begun = Begun(&**shared, FlushEnd::Nothing);
        let sealed = shared.seal_if_asked();
        let slots = complete(shared, &shared.tables.load())?;
        let frozen = slots.iter().map(|slot| {
            let table = slot.number;
            shared.reports.tell(|| SetEvent::FreezeBegun { table });
            let frozen = slot.table.freeze().map(drop);
            shared.reports.tell(|| SetEvent::FreezeEnded { table });
            frozen
        });
        let frozen = frozen.fold(Ok(()), Result::and);
        let Some(last) = slots.last().map(|slot| slot.last.get()) else { return sealed.map(|()| None) };
        // FLUSH-JOB-1.
        let mut snapshots = shared.registry.numbers_after(last)?;
        // SET-FLUSH-3.
        snapshots.push(last);
        shared.reports.tell(|| SetEvent::FlushBegun { tables: slots.len() as u64, last_sequence: last });
        std::mem::forget(begun);
        let (shared, outcome) = (Arc::clone(shared), Outcome::Unfinished);
        let mut job = FlushJob { shared, slots, snapshots, frozen, outcome, end: FlushEnd::Left };
        match job.begin_pass() {
            // The passes of the job return it, and the job can be salvaged.
            Err(error) if error.corruption().is_none() => Err(error),
            _ => Ok(Some(job)),
        }
    }

    /// Number of tables that this job flushes.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.slots.len()
    }

    /// The sequence numbers at which a compaction that is installed with this job must keep what is read: those of all snapshots when
    /// the job began, in ascending order, and then [`last_sequence`](Self::last_sequence), from which on later snapshots read.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// let before = set.snapshot();
    /// set.write(&batch)?;
    /// set.switch()?;
    /// let job = set.begin_flush()?.expect("an immutable table");
    /// assert_eq!(job.snapshots(), [before.sequence(), 2]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn snapshots(&self) -> &[SequenceNumber] {
        &self.snapshots
    }

    /// The last sequence number of the tables that this job flushes. The new base has everything up to it.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
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

    /// Passes everything to the sink that a read at the newest sequence number or at a snapshot of the set could need.
    /// O(entries * (tables + log snapshots)).
    ///
    /// # Errors
    /// `Sink` if the sink returns an error; the set is unchanged, and the job may try again. `ReadOnly` because of
    /// `Corruption` if the tables are damaged: the set takes no more writes, and nothing is dropped. In both cases what
    /// the sink has must be discarded.
    pub fn flush(&mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        let passed = self.merge().and_then(|items| items.pass_to(sink));
        self.settle()?;
        passed
    }

    /// The items of a flush, to be pulled; see [`flush`](Self::flush).
    ///
    /// # Errors
    /// `ReadOnly` because of `Corruption` if the beginning of a table, or what an earlier pass met, is damaged.
    pub fn items(&mut self) -> Result<SetFlush<'_>> {
        self.settle()?;
        self.merge()
    }

    fn merge(&mut self) -> Result<SetFlush<'_>> {
        self.begin_pass()?;
        let FlushJob { shared, slots, snapshots, outcome, .. } = self;
        let begun = SetFlush::new(slots, shared.comparator(), snapshots, outcome);
        begun.map_err(|error| shared.refuse_damage(error, slots.last().map_or(0, |slot| slot.number)))
    }

    /// What the freeze met counts as met by each pass.
    fn begin_pass(&mut self) -> Result<()> {
        let unfrozen = self.frozen.as_ref().err().cloned();
        self.outcome = unfrozen.map_or(Outcome::Unfinished, Outcome::Failed);
        self.settle()
    }

    /// Passes everything to the sink that still verifies of tables that a pass of this job found damaged: all versions of
    /// every entry, in the order of a flush, and the range tombstones. Afterwards [`install`](Self::install) replaces the
    /// tables by a base with what the sink has, and [`resume`](crate::set::MemTableSet::resume) lets the set take writes
    /// again. O(n log n) for n entries.
    ///
    /// What is [`missing`](SalvageSummary::missing) is lost then, and an older version of its key, or nothing, is read in
    /// its place. An engine whose journal is intact loses nothing if it opens the set anew from base and journal instead.
    ///
    /// ```
    /// # #[cfg(feature = "fault-injection")]
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::fault::{FaultInjector, Region};
    /// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
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
    /// assert!(job.flush(&mut Keys(vec![])).is_err() && set.resume().is_err());
    /// let mut keys = Keys(vec![]);
    /// assert_eq!(job.salvage(&mut keys)?.missing, 1);
    /// job.install(keys.0)?;
    /// assert_eq!(set.resume()?, None);
    /// assert_eq!(set.view().base().as_slice(), [b"b", b"c"]);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "fault-injection"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` unless the last pass met damage. `Sink` if the sink returns an error, and `Corruption` for what is
    /// damaged meanwhile: what the sink has must be discarded, and the salvage may be tried again.
    pub fn salvage(&mut self, sink: &mut impl FlushSink) -> Result<SalvageSummary> {
        if self.settle().is_ok() {
            let text = "what is salvaged are tables that a flush found damaged";
            return Err(Error::InvalidArgument(text.into()));
        }
        let mut summary = salvage_tables(&self.slots, self.shared.comparator(), sink)?;
        let unfrozen = self.frozen.as_ref().err().and_then(Error::corruption);
        summary.failure = summary.failure.or(unfrozen.copied());
        self.outcome = Outcome::Salvaged;
        Ok(summary)
    }

    /// Makes the set read-only if the last pass met damage, and returns the error that says so.
    fn settle(&self) -> Result<()> {
        match (&self.outcome, self.slots.last()) {
            (Outcome::Failed(error), Some(last)) => {
                Err(self.shared.refuse_damage(error.clone(), last.number))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the flushed tables by `base`, which has what this job handed out, in one store: no reader misses an
    /// entry or has it twice. Then the journal is told what it may forget. If it cannot, the job is installed nevertheless: the
    /// error goes to the [`Listener`](crate::set::Listener) and to [`journal_error`](crate::set::MemTableSet::journal_error), and
    /// the next install tries again.
    ///
    /// # Errors
    /// `InvalidArgument` if no pass of this job reached its end, and `ReadOnly` if the last one met damage and nothing was
    /// salvaged; the tables stay then.
    pub fn install(mut self, base: B) -> Result<()> {
        self.settle()?;
        if !matches!(self.outcome, Outcome::Finished | Outcome::Salvaged) {
            return Err(Error::InvalidArgument("a flush is installed after it has reached its end".into()));
        }
        let (shared, base) = (&self.shared, Arc::new(base));
        let Some(flushed) = self.slots.last().map(|slot| slot.number) else { return Ok(()) };
        let mut commit = shared.commit.lock();
        commit.tables = commit.tables.installed(flushed, base);
        let old = shared.tables.swap(&commit.tables);
        let oldest = commit.tables.newest_first().map(|slot| slot.number).min();
        let replayed = commit.replayed;
        commit.damaged = commit.damaged.filter(|damaged| *damaged > flushed);
        drop(commit);
        // Without a lock: these may be the last pointers to the flushed tables.
        drop(old);
        self.end = FlushEnd::Installed;
        // COMMIT-5.
        let forgotten = oldest.filter(|oldest| replayed.is_none_or(|replayed| replayed < *oldest));
        if let (Some(table), Some(journal)) = (forgotten, shared.journal()) {
            let failed = journal.obsolete_before(table).err();
            shared.journal_error.lock().clone_from(&failed);
            if let Some(cause) = failed {
                shared.reports.tell(|| SetEvent::JournalKept { cause });
            }
        }
        Ok(())
    }
}

/// The immutable ones of these tables that are complete, oldest first. Waits until their last numbers are visible.
fn complete<B>(shared: &Shared<B>, tables: &Tables<B>) -> Result<Vec<Arc<Slot>>> {
    let mut slots = Vec::new();
    for slot in tables.immutables.iter().rev() {
        match shared.registry.publication.wait_for(slot.last.get()) {
            Ok(()) => slots.push(Arc::clone(slot)),
            Err(error) if slots.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    // FLUSH-JOB-3.
    let now = shared.tables.load();
    slots.retain(|slot| now.immutables.iter().any(|there| Arc::ptr_eq(there, slot)));
    Ok(slots)
}

impl<B> Drop for FlushJob<B> {
    fn drop(&mut self) {
        // The set keeps the error.
        let _ = self.settle();
        // Before writers are woken: what nobody holds does not count as pinned.
        let (tables, last_sequence) = (self.slots.len() as u64, self.last_sequence());
        self.slots.clear();
        drop(Begun(&self.shared, self.end));
        let installed = if self.end == FlushEnd::Installed { tables } else { 0 };
        self.shared.reports.tell(|| SetEvent::FlushEnded { last_sequence, installed });
        // When nobody waits for this flush any more: it takes milliseconds.
        self.shared.buffers.recycler.zero();
    }
}

shown! {
    "FlushJob": impl [B] FlushJob<B>, |job| {
        "tables": job.slots.len(), "snapshots": job.snapshots.len(), "outcome": job.outcome
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memtable::batch::batch::WriteBatch;
    use crate::set::options::{SetOptions, WriteOptions};
    use crate::set::resume::resume;

    /// The last number of a table that a resume has replaced counts as visible, and belongs to an abandoned batch (FLUSH-JOB-3).
    #[test]
    fn a_table_that_a_resume_has_replaced_is_not_flushed() {
        let shared = Shared::open(SetOptions::default(), Arc::new(())).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        for number in [1, 2] {
            assert_eq!(shared.write(&batch, WriteOptions::new(), None).unwrap(), number);
            let mut commit = shared.commit.lock();
            // In the second table a batch has a number, and is never finished.
            commit.last += number - 1;
            shared.replace_active(&mut commit).unwrap();
        }
        let before = shared.tables.load();
        shared.registry.publication.stop(3, 3, Error::WriterPanicked);
        assert_eq!(complete(&shared, &before).unwrap().len(), 1);
        assert_eq!(resume(&shared).unwrap(), Some((3, 3)));
        let numbers: Vec<u64> = complete(&shared, &before).unwrap().iter().map(|slot| slot.number).collect();
        assert_eq!(numbers, [1]);
    }
}
