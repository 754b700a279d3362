//! Commits: one batch after the other gets its numbers and its space, many are written at once, all
//! become visible in the order of their numbers.
//!
//! ```text
//!   prepare    every check that does not depend on other writes, bytes counted, the journal's copy made   no lock
//!   number     space in the active table and the numbers: without a journal inside a gate        lock of the gate
//!              or space in this table or the next one, Journal::append, the numbers              commit mutex, short
//!   apply      entries into the table; Journal::write or sync by one thread for all that wait    no lock
//!   complete   visible up to here, once all commits before are done                              publication
//! ```
//! * COMMIT-1: what can be refused is refused before the batch has numbers: an error then changes
//!   nothing.
//! * COMMIT-2: a batch is in the journal before it is in its table, and both have it in the order
//!   of the numbers.
//! * COMMIT-3: a batch that has numbers and cannot be finished (damage, a panic, a failed write or
//!   sync) stops the set: nothing from its first number on becomes visible, and no batch gets
//!   numbers any more. Nobody waits for it.
//! * COMMIT-4: a table is closed, under the commit mutex, before the next one gets a number.
//! * COMMIT-5: what a replay brought is in no journal that this set has switched to. So older
//!   journals stay until every table that a replay wrote to is flushed. Whether a recovery goes on,
//!   only the journal knows: so each install passes it the last number that is flushed.
//! * COMMIT-6: what the journal has copied and not written is bounded: each time that so many bytes
//!   were appended, the batch that passes the limit waits for a write.
//! * COMMIT-7: a set that is read-only stays so. A switch closes its tables below the batch that
//!   stopped it, once every batch with a number has ended; the journal gets no further table. What
//!   is above is read and flushed by nobody.
//! * COMMIT-8: a table takes no more batches once its journal has as many bytes of them as the
//!   write buffer, though they leave few entries there or none: so what is not flushed bounds the
//!   journals.
//! * COMMIT-9: whoever needs the last number, the active table, or no batch to come closes the
//!   gates first, and has the commit mutex. The next batch that gets its numbers under it opens
//!   them again, unless the set has a journal.
//!
//! A batch reserves its space in its table before it has numbers, and holds it until its entries
//! are in.
//!
//! Any thread. No comparator runs under the commit mutex. What is waited for under it (the shards
//! of the view, the publication's lock) is held for a few instructions, and never while the commit
//! mutex is taken. A writer shard that another batch is in is not waited for: there is a free one,
//! or one is made.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::batch::PreparedBatch;
use paranoid_memtable::integrity::Place;
use paranoid_memtable::sibling::{Alone, KeyComparator, Mutex, MutexGuard, thread_number};
use paranoid_memtable::{
    Corruption, Error, MemTable, Result, SequenceNumber, StallCause, WriteBatch,
};

use crate::file_journal::journal_trait::Journal;
use crate::gates::{GATES, Gates};
use crate::journal_turns::Logged;
use crate::listener::{Reports, SetEvent};
use crate::options::{Durability, SEQUENCE_MAX, SetOptions, WriteOptions};
use crate::patience::Patience;
use crate::publication::{Publication, Taken};
use crate::snapshots::Registry;
use crate::swapped::{Pointers, Swapped};
use crate::tables::{Slot, Tables};
use crate::thread_state::ThreadState;
use crate::write_buffer_manager::{Membership, Phase, Stall};

/// The table is asked whether it is full each time that batches took this share of its write
/// buffer.
const QUESTIONS: u64 = 64;

/// Bytes of batches that may be reserved inside a gate until the next batch closes all of them.
/// Where it is less, as in a table of less than 4 MiB, gates would be opened and closed for a few
/// batches, and stay closed.
const GATE_MIN: u64 = 4 << 10;

/// Bytes of batches that are appended to the journal until one waits for a write (COMMIT-6).
const UNWRITTEN_MAX: usize = 256 << 10;

/// A thread keeps the memory of a batch of one and of the journal's copy up to this many bytes.
pub(crate) const KEPT_MAX: usize = 64 << 10;

thread_local!(static COPY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });

/// What the handles of a set share.
pub(crate) struct Shared<B> {
    /// What the set was made with; a manager that was joined is in `buffers`.
    pub(crate) options: SetOptions,
    /// A table that stays empty: batches are checked by it, and tables are made like it.
    model: MemTable,
    /// The most bytes of a batch that an empty table takes.
    table_room: u64,
    pub(crate) registry: Arc<Registry>,
    pub(crate) tables: Swapped<Tables<B>>,
    pub(crate) logged: Logged,
    pub(crate) commit: Alone<Mutex<Commit<B>>>,
    /// Of those that wait for `commit`.
    patience: Patience,
    gates: Gates<Slot>,
    /// Held by the thread that makes a new base (FLUSH-JOB-4).
    pub(crate) installs: Mutex<()>,
    pub(crate) buffers: Arc<Membership>,
    pub(crate) reports: Reports,
}

/// What the commit mutex guards. What each batch writes or needs comes first, and so in the cache
/// line of the mutex.
#[repr(C)]
pub(crate) struct Commit<B> {
    /// The last number that was given, while the gates are closed.
    pub(crate) last: SequenceNumber,
    /// Whether numbers are given inside the gates.
    are_gates_open: bool,
    /// Bytes reserved since the active table was asked whether it is full.
    pub(crate) unasked: u64,
    /// Bytes appended to the journal since a batch waited for a write because of them.
    unwritten: usize,
    /// Bytes of batches appended to the journal for the active table (COMMIT-8).
    logged: u64,
    /// The last number before the active table's first one.
    pub(crate) closed: SequenceNumber,
    pub(crate) tables: Arc<Tables<B>>,
    /// The active one of them, for writers.
    active: Pointers<Slot>,
    /// The number of the last table that was begun. A journal that failed after a switch does not
    /// get one twice.
    pub(crate) last_table: u64,
    /// What made the set read-only, if that was no batch.
    pub(crate) refusal: Option<Error>,
    /// The last table with entries that the journals switched to since it was made do not have
    /// (COMMIT-5).
    pub(crate) replayed: Option<u64>,
}

/// What a commit needs beside the batch that passed all checks which do not depend on other writes.
struct Request<'j> {
    /// The most bytes that the batch takes; 0 without entries.
    bytes: u64,
    /// What the journal gets.
    encoded: Option<Encoded<'j>>,
    /// The first number of a replay.
    replayed: Option<SequenceNumber>,
    durability: Durability,
}

impl<B> Shared<B> {
    pub(crate) fn open(mut options: SetOptions, base: Arc<B>) -> Result<Self> {
        let buffers = options.join()?;
        let SetOptions {
            first_table,
            last_sequence: last,
            scans,
            ..
        } = options;
        let model = MemTable::new(options.table.clone())?;
        let active = Slot::new(first_table, model.fork()?, buffers.count_table(), scans);
        let tables = Arc::new(Tables {
            active,
            immutables: Vec::new(),
            base,
        });
        if let Some(journal) = &options.journal {
            journal.switch(first_table)?;
        }
        let commit = Commit {
            tables: Arc::clone(&tables),
            active: Pointers::to(&tables.active),
            last,
            are_gates_open: false,
            last_table: first_table,
            closed: last,
            unasked: 0,
            unwritten: 0,
            logged: 0,
            replayed: None,
            refusal: None,
        };
        Ok(Shared {
            table_room: model.remaining(),
            model,
            registry: Arc::new(Registry::new(Publication::new(last))),
            tables: Swapped::new(tables),
            logged: Logged::new(last),
            commit: Alone(Mutex::new(commit)),
            patience: Patience::new(),
            gates: Gates::new(),
            installs: Mutex::new(()),
            buffers,
            reports: Reports::new(options.listener.clone()),
            options,
        })
    }

    /// Writes a batch, under its own numbers if a journal `replayed` it. Returns its last sequence
    /// number, or what is visible for a batch without records.
    pub(crate) fn write(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        replayed: Option<SequenceNumber>,
    ) -> Result<SequenceNumber> {
        let durability = self.durability(options)?;
        let encoded = match self.journal() {
            Some(journal) if durability != Durability::None => {
                Some(Encoded::copy(batch.as_bytes(), journal))
            }
            _ => None,
        };
        // Every check that does not depend on other writes (COMMIT-1). Used where it lies: it is
        // large.
        let mut prepared = self.model.prepare(batch);
        let prepared = prepared.as_mut().map_err(|error| error.clone())?;
        if let Some(copy) = &encoded {
            copy.compare(batch.as_bytes())?;
        }
        let bytes = prepared.bytes();
        if bytes > self.table_room {
            // It fits no empty table, and no table is sealed for it.
            return Err(Error::MemTableFull {
                needed: bytes,
                remaining: self.table_room,
            });
        }
        if replayed.is_none()
            && let Some(written) = self.commit_inside_gate(prepared, bytes)
        {
            self.reports.deliver();
            return written;
        }
        let mut request = Request {
            bytes,
            encoded,
            replayed,
            durability,
        };
        let written = if prepared.numbers() == 0 {
            self.commit_nothing(&request)
        } else {
            self.once_there_is_room(options.deadline, || self.try_commit(prepared, &mut request))
        };
        // A batch with numbers has ended: a listener may wait for all of them.
        self.reports.deliver();
        if let Some(copy) = request.encoded {
            copy.keep();
        }
        written
    }

    /// The durability of a batch.
    fn durability(&self, options: WriteOptions) -> Result<Durability> {
        let usual = if self.options.journal.is_some() {
            Durability::Buffered
        } else {
            Durability::None
        };
        let durability = options.durability.unwrap_or(usual);
        if durability != Durability::None && self.options.journal.is_none() {
            return Err(Error::InvalidArgument(format!(
                "{durability:?} needs a journal"
            )));
        }
        Ok(durability)
    }

    /// Does something that needs room. While there is none, waits for the flush that is under way.
    fn once_there_is_room<T>(
        &self,
        deadline: Option<Instant>,
        mut act: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut done = act();
        let Err(Error::WriteStall { cause, .. }) = done else {
            return done;
        };
        self.reports.tell(|| SetEvent::StallBegun { cause });
        let deadline = deadline.or_else(|| Instant::now().checked_add(self.options.stall_timeout));
        let mut stall = Stall {
            deadline,
            ..Stall::default()
        };
        while let Err(Error::WriteStall { cause, .. }) = &done
            && self.buffers.wait(*cause, &mut stall)
        {
            done = act();
        }
        let waited = stall.since.map_or(Duration::ZERO, |since| since.elapsed());
        let mut refused = None;
        if let Err(Error::WriteStall {
            cause,
            waited: told,
            ..
        }) = &mut done
        {
            (*told, refused) = (waited, Some(*cause));
        }
        self.reports
            .tell(|| SetEvent::StallEnded { waited, refused });
        done
    }

    /// Numbers a batch inside the gate of this thread, writes it, and publishes it. `None` if it
    /// has to go by the commit mutex (GATES-2); nothing has changed then.
    #[inline(always)]
    fn commit_inside_gate(
        &self,
        batch: &mut PreparedBatch<'_>,
        bytes: u64,
    ) -> Option<Result<SequenceNumber>> {
        // Numbers without entries change what the table counts as empty.
        if self.options.journal.is_some()
            || bytes == 0
            || self.registry.publication.admit().is_err()
        {
            return None;
        }
        let (count, most) = (batch.numbers(), self.share() / GATES as u64);
        // Numbers of empty ranges take no bytes.
        let bytes = bytes.max(count);
        let (gate, slot) = self.gates.enter(thread_number(), bytes, most)?;
        let reserved = slot.table.reserve(batch).ok()?;
        let taken = self.gates.number(gate, count, bytes);
        let unfinished = Unfinished {
            shared: self,
            taken,
            cause: None,
        };
        let written = reserved.write(taken.first);
        drop(slot);
        Some(self.publish(unfinished, written.map(drop)))
    }

    /// [`commit_inside_gate`](Self::commit_inside_gate), where another batch may have opened the
    /// gates while this one waited for the mutex.
    #[inline(never)]
    fn commit_inside_opened_gate(
        &self,
        batch: &mut PreparedBatch<'_>,
        request: &Request<'_>,
    ) -> Option<Result<SequenceNumber>> {
        if request.replayed.is_some() {
            None
        } else {
            self.commit_inside_gate(batch, request.bytes)
        }
    }

    /// Numbers a batch under the commit mutex, once it has space in the active table, writes it
    /// there, and publishes it.
    #[inline(never)]
    fn try_commit(
        &self,
        batch: &mut PreparedBatch<'_>,
        request: &mut Request<'_>,
    ) -> Result<SequenceNumber> {
        let mut commit = self.wait_for_commit();
        if commit.are_gates_open {
            drop(commit);
            if let Some(written) = self.commit_inside_opened_gate(batch, request) {
                return written;
            }
            commit = self.lock_commit();
        }
        self.admit(&commit)?;
        let taken = self.numbers(&commit, batch.numbers(), request.replayed)?;
        self.ask_sometimes(&mut commit, request.bytes)?;
        loop {
            let slot = commit.active.get();
            let reserved = slot.table.reserve(batch);
            if let Err(error) = &reserved {
                if !matches!(error, Error::MemTableFull { .. }) || commit.is_active_empty() {
                    return Err(error.clone());
                }
                self.replace_full(&mut commit)?;
                continue;
            }
            self.number(&mut commit, request, taken)?;
            let unfinished = Unfinished {
                shared: self,
                taken,
                cause: None,
            };
            let is_worth_it = self.share() / GATES as u64 >= GATE_MIN;
            if is_worth_it && request.replayed.is_none() && self.journal().is_none() {
                commit.are_gates_open = self.gates.open(&commit.active, commit.last);
            }
            drop(commit);
            let written = reserved.and_then(|reserved| reserved.write(taken.first));
            // While this thread waits for others, it holds neither a shard nor a table.
            drop(slot);
            let logged = written.and_then(|_| self.wait_for_journal(request, taken));
            // The leader may have made it visible.
            let is_visible = || self.registry.publication.visible() >= taken.last;
            if logged.is_ok() && request.durability >= Durability::Buffered && is_visible() {
                std::mem::forget(unfinished);
                return Ok(taken.last);
            }
            return self.publish(unfinished, logged);
        }
    }

    /// Publishes a batch whose entries are in, or stops the set.
    #[inline(always)]
    fn publish(
        &self,
        unfinished: Unfinished<'_, B>,
        written: Result<()>,
    ) -> Result<SequenceNumber> {
        let Taken { first, last } = unfinished.taken;
        match written {
            Err(error) => Err(unfinished.stop(error)),
            Ok(()) => {
                std::mem::forget(unfinished);
                self.registry
                    .publication
                    .complete(first, last)
                    .map(|()| last)
            }
        }
    }

    /// The commit mutex, which another thread has for a moment.
    fn wait_for_commit(&self) -> MutexGuard<'_, Commit<B>> {
        let mut commit = self.commit.try_lock();
        if commit.is_none() {
            self.patience.wait(|| {
                commit = self.commit.try_lock();
                commit.is_some()
            });
        }
        commit.unwrap_or_else(|| self.commit.lock())
    }

    /// The commit mutex, with the gates closed (COMMIT-9).
    pub(crate) fn lock_commit(&self) -> MutexGuard<'_, Commit<B>> {
        let mut commit = self.commit.lock();
        self.close_gates(&mut commit);
        commit
    }

    /// Closes the gates, and counts what was numbered inside them.
    fn close_gates(&self, commit: &mut Commit<B>) {
        if commit.are_gates_open {
            commit.are_gates_open = false;
            let (last, reserved) = self.gates.close();
            commit.last = last;
            commit.unasked = commit.unasked.saturating_add(reserved);
        }
    }

    /// Bytes of batches after which the table is asked whether it is full.
    fn share(&self) -> u64 {
        self.model.options().write_buffer_size() / QUESTIONS
    }

    /// Commits a batch without records. It takes no number; a write or a sync that it asks for
    /// covers earlier batches.
    fn commit_nothing(&self, request: &Request<'_>) -> Result<SequenceNumber> {
        self.admit(&self.commit.lock())?;
        let last = self.logged.appended();
        let waited = self.wait_for_journal(
            request,
            Taken {
                first: last + 1,
                last,
            },
        );
        waited.map_err(|error| self.refuse(error))?;
        Ok(self.registry.publication.visible())
    }

    /// Waits until the journal has numbers up to `last`, as the durability of the batch says.
    fn wait_for_journal(&self, request: &Request<'_>, batch: Taken) -> Result<()> {
        let Some(journal) = self.journal() else {
            return Ok(());
        };
        self.logged.wait(
            batch,
            request.durability,
            journal,
            &self.registry.publication,
        )
    }

    /// The numbers of a batch, first and last. A replay goes on after everything that was written
    /// before, with nothing under way.
    fn numbers(
        &self,
        commit: &Commit<B>,
        count: u64,
        replayed: Option<SequenceNumber>,
    ) -> Result<Taken> {
        let next = commit.last + 1;
        let first = match replayed {
            None => next,
            Some(first) if first < next => {
                return Err(Error::InvalidArgument(format!(
                    "a replayed batch must begin at sequence number {next} or later, not {first}"
                )));
            }
            Some(_) if self.registry.publication.visible() != commit.last => {
                return Err(Error::InvalidArgument(
                    "a batch is replayed while others are written".into(),
                ));
            }
            Some(first) => first,
        };
        match first
            .checked_add(count.saturating_sub(1))
            .filter(|last| *last <= SEQUENCE_MAX)
        {
            Some(last) => Ok(Taken { first, last }),
            None => Err(Error::InvalidArgument(
                "sequence numbers end at 2^56 - 1".into(),
            )),
        }
    }

    /// Appends a batch that has space to the journal, and takes its numbers.
    fn number(
        &self,
        commit: &mut Commit<B>,
        request: &mut Request<'_>,
        Taken { first, last }: Taken,
    ) -> Result<()> {
        if let Some(encoded) = &mut request.encoded {
            let len = encoded.bytes.len();
            self.heed(commit, encoded.append(first))?;
            self.logged.note_appended(last);
            commit.logged += len as u64;
            commit.unwritten += len;
            if commit.unwritten >= UNWRITTEN_MAX {
                commit.unwritten = 0;
                request.durability = request.durability.max(Durability::Buffered);
            }
        }
        if request.replayed.is_some() {
            self.registry.publication.skip_to(first - 1);
            commit.replayed = Some(commit.tables.active.number);
        }
        if request.bytes == 0 {
            // Numbers of empty ranges alone leave an empty table empty.
            commit.closed = if commit.is_active_empty() {
                last
            } else {
                commit.closed
            };
        } else if commit.unasked == 0 {
            // It has entries (WRITE-BUFFERS-2).
            let active = &commit.tables.active;
            active.bytes.count(active.table.bytes_once_frozen());
        }
        commit.last = last;
        Ok(())
    }

    /// Each time that batches took a share of the write buffer, asks for room, and replaces the
    /// active table if it is full or due to be flushed, or if its journal is as long as the write
    /// buffer (COMMIT-8).
    fn ask_sometimes(&self, commit: &mut Commit<B>, bytes: u64) -> Result<()> {
        let write_buffer_size = self.model.options().write_buffer_size();
        commit.unasked = commit.unasked.saturating_add(bytes);
        let is_logged_full = commit.logged >= write_buffer_size;
        if !is_logged_full && commit.unasked < self.share() {
            return Ok(());
        }
        let is_to_seal = self
            .buffers
            .admit(bytes)
            .map_err(|cause| commit.stall(cause))?;
        let has_entries = !commit.is_active_empty();
        if is_logged_full || has_entries && commit.tables.active.table.should_flush() {
            self.replace_full(commit)?;
        } else if has_entries && is_to_seal && commit.count_tables() < self.options.tables_max {
            self.replace_active(commit)?;
        }
        commit.unasked = 0;
        Ok(())
    }

    /// Replaces the active table if there may be another one.
    fn replace_full(&self, commit: &mut Commit<B>) -> Result<()> {
        if commit.count_tables() >= self.options.tables_max {
            return Err(commit.stall(StallCause::Tables));
        }
        self.replace_active(commit)
    }

    /// Seals the active table if another set needs its memory, or scans pass too much of it.
    pub(crate) fn seal_if_asked(&self) -> Result<()> {
        if !self.buffers.take_seal() {
            return Ok(());
        }
        let mut commit = self.lock_commit();
        let is_possible =
            self.admit(&commit).is_ok() && commit.count_tables() < self.options.tables_max;
        let sealed = if commit.is_active_empty() || !is_possible {
            Ok(())
        } else {
            self.replace_active(&mut commit)
        };
        drop(commit);
        self.reports.deliver();
        sealed
    }

    /// Closes the active table and puts an empty one in its place.
    pub(crate) fn replace_active(&self, commit: &mut Commit<B>) -> Result<()> {
        let next = self.next_slot(commit, self.journal())?;
        self.begin_table(commit, next, commit.last);
        Ok(())
    }

    /// Closes the tables of a read-only set where its visible numbers end, so that all that is
    /// visible can be flushed (COMMIT-7).
    fn close(&self, commit: &mut Commit<B>) -> Result<()> {
        // The commit mutex is held, so no number is given meanwhile.
        let stop = self.registry.publication.wait_until_ended(commit.last);
        let end = stop.map_or(commit.last, |stop| stop.first - 1);
        if !commit.is_active_empty() || end < commit.last {
            let next = self.next_slot(commit, None)?;
            commit.last = end;
            self.begin_table(commit, next, end);
            self.buffers.change_thread(ThreadState::retry);
        }
        Ok(())
    }

    /// Closes the tables at `end`, and puts an empty one in the place of the active one (COMMIT-4).
    fn begin_table(&self, commit: &mut Commit<B>, next: Arc<Slot>, end: SequenceNumber) {
        let sealed = Arc::clone(&commit.tables.active);
        self.buffers.take_seal();
        commit.closed = commit.last;
        (commit.unasked, commit.logged) = (0, 0);
        let active = next.number;
        commit.active = Pointers::to(&next);
        commit.tables = commit.tables.switched(next, end);
        // What the shards held are pointers: all tables are in the new view as well.
        drop(self.tables.swap(&commit.tables));
        self.reports.note(|| SetEvent::Switched {
            sealed: sealed.number,
            active,
        });
        sealed.leave(Phase::Sealed);
    }

    /// Closes the active table unless it is empty. Returns the newest of the immutable ones, by its
    /// number in the buffers.
    pub(crate) fn switch(&self) -> Result<Option<u64>> {
        let mut tried = None;
        let sealed = self.once_there_is_room(None, || {
            let mut commit = self.lock_commit();
            let active = commit.tables.active.number;
            if self.admit(&commit).is_err() {
                self.close(&mut commit)?;
            // Another thread may have closed the table meanwhile.
            } else if *tried.get_or_insert(active) == active && !commit.is_active_empty() {
                self.replace_full(&mut commit)?;
            }
            Ok(commit.tables.immutables.first().map(|slot| slot.bytes.id()))
        });
        self.reports.deliver();
        sealed
    }

    pub(crate) fn journal(&self) -> Option<&dyn Journal> {
        self.options.journal.as_deref()
    }

    pub(crate) fn comparator(&self) -> &KeyComparator {
        self.model.key_comparator()
    }

    /// Makes the set read-only; returns the error that says so.
    pub(crate) fn refuse(&self, cause: Error) -> Error {
        let error = Error::read_only(cause);
        let mut commit = self.lock_commit();
        self.refuse_because(&mut commit, &error);
        drop(commit);
        self.reports.deliver();
        error
    }

    /// The answer of a journal. One that has failed may lose what it has taken: the set is
    /// read-only then.
    fn heed(&self, commit: &mut Commit<B>, answer: Result<()>) -> Result<()> {
        if let Err(error @ Error::ReadOnly { .. }) = &answer {
            self.refuse_because(commit, error);
        }
        answer
    }

    /// Makes the set read-only; what is noted is still to be delivered.
    #[cold]
    fn refuse_because(&self, commit: &mut Commit<B>, error: &Error) {
        if commit.refusal.is_none() {
            commit.refusal = Some(error.clone());
            self.reports.note(|| SetEvent::Stopped {
                cause: error.clone(),
            });
        }
    }

    /// Fails if the set is read-only.
    fn admit(&self, commit: &Commit<B>) -> Result<()> {
        if let Some(refusal) = &commit.refusal {
            return Err(refusal.clone());
        }
        self.registry.publication.admit()
    }

    /// Makes an empty table and tells the journal, if there is one to be told.
    fn next_slot(
        &self,
        commit: &mut Commit<B>,
        journal: Option<&dyn Journal>,
    ) -> Result<Arc<Slot>> {
        let table = self.model.fork()?;
        let end = || Error::InvalidArgument("table numbers end at 2^64 - 1".into());
        let number = commit.last_table.checked_add(1).ok_or_else(end)?;
        journal.map_or(Ok(()), |journal| self.heed(commit, journal.switch(number)))?;
        commit.last_table = number;
        Ok(Slot::new(
            number,
            table,
            self.buffers.count_table(),
            self.options.scans,
        ))
    }
}

impl<B> Commit<B> {
    fn is_active_empty(&self) -> bool {
        self.last == self.closed
    }

    /// Number of tables that are not flushed, the active one included.
    fn count_tables(&self) -> u64 {
        1 + self.tables.immutables.len() as u64
    }

    fn stall(&self, cause: StallCause) -> Error {
        Error::WriteStall {
            cause,
            tables: self.count_tables(),
            waited: Duration::ZERO,
        }
    }
}

/// The journal's copy of a batch: what the batch was when it agreed with its digests.
struct Encoded<'j> {
    journal: &'j dyn Journal,
    bytes: Vec<u8>,
    checksum: u32,
}

impl<'j> Encoded<'j> {
    /// Copies a batch, into memory that the thread has.
    fn copy(batch: &[u8], journal: &'j dyn Journal) -> Self {
        let mut bytes = COPY.try_with(Cell::take).unwrap_or_default();
        batch.clone_into(&mut bytes);
        let checksum = journal.checksum(batch);
        Encoded {
            journal,
            bytes,
            checksum,
        }
    }

    /// Compares the copy with the batch, which agrees with its digests, and its checksum with the
    /// copy.
    fn compare(&self, batch: &[u8]) -> Result<()> {
        if self.bytes != batch {
            return Err(first_difference(batch, &self.bytes).into());
        }
        let [expected, found] = [self.checksum, self.journal.checksum(&self.bytes)].map(u64::from);
        if expected == found {
            Ok(())
        } else {
            Err(Corruption::new(Place::Encoding, 0, expected, found).into())
        }
    }

    /// Appends the batch under its first number.
    fn append(&mut self, first: SequenceNumber) -> Result<()> {
        if let Some(number) = self.bytes.first_chunk_mut::<8>() {
            *number = first.to_le_bytes();
        }
        self.journal.append_checked(&mut self.bytes, self.checksum)
    }

    /// Keeps the memory for the next batch of this thread.
    fn keep(self) {
        if self.bytes.capacity() <= KEPT_MAX {
            // No thread local is there while a thread ends.
            let _ = COPY.try_with(|kept| kept.set(self.bytes));
        }
    }
}

/// The first byte of a copy that is not as the original's. 256 is no byte: one of the two ends
/// there.
#[cold]
fn first_difference(original: &[u8], copy: &[u8]) -> Corruption {
    let at = original
        .iter()
        .zip(copy)
        .take_while(|(original, copy)| original == copy)
        .count();
    let byte = |bytes: &[u8]| bytes.get(at).map_or(256, |byte| u64::from(*byte));
    Corruption::new(Place::Encoding, at as u64, byte(original), byte(copy))
}

/// Stops the set if a batch that has numbers is left without being finished (COMMIT-3).
struct Unfinished<'s, B> {
    shared: &'s Shared<B>,
    taken: Taken,
    /// `None`: a panic.
    cause: Option<Error>,
}

impl<B> Unfinished<'_, B> {
    fn stop(mut self, cause: Error) -> Error {
        self.cause = Some(cause.clone());
        Error::read_only(cause)
    }
}

impl<B> Drop for Unfinished<'_, B> {
    fn drop(&mut self) {
        let cause = self.cause.take().unwrap_or(Error::WriterPanicked);
        if self
            .shared
            .registry
            .publication
            .stop(self.taken, cause.clone())
        {
            self.shared.reports.note(|| SetEvent::Stopped {
                cause: Error::read_only(cause),
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A report never says that what was found was expected.
    #[test]
    fn a_copy_that_differs_is_reported_with_both_bytes() {
        let original = [7, 8, 9];
        for (copy, at, expected, found) in [
            (&[7, 0, 9][..], 1, 8, 0),
            (&[7, 8], 2, 9, 256),
            (&[7, 8, 9, 1], 3, 256, 1),
        ] {
            let report = first_difference(&original, copy);
            assert_eq!(
                (report.offset, report.expected, report.found),
                (at, expected, found)
            );
        }
    }
}
