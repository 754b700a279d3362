//! Commits: each batch gets its numbers and its space, is written, and becomes visible.
//!
//! ```text
//!   step       what it does                                                     under
//!   prepare    checks that do not depend on other writes; the journal's copy    no lock
//!   number     without a journal: space in the active table, numbers            the thread's gate
//!              else: space in this table or the next, Journal::append, numbers  the commit mutex
//!   apply      entries into the table; then Journal::write or sync, which one   no lock
//!              thread calls for all that wait
//!   complete   visible, once all commits before it are                          `publication`
//! ```
//! A batch can be refused only before it has numbers, and a refusal changes nothing. The journal
//! takes batches in the order of their numbers, and each before its entries are in the table. A
//! batch that has numbers and cannot be finished (damage, a panic, a failed write or sync) stops
//! the set: nothing from its first number on becomes visible, and no later batch gets numbers.
//!
//! Any thread.

#![forbid(unsafe_code)]

use paranoid_memtable::batch::PreparedBatch;
use paranoid_memtable::sibling::thread_number;
use paranoid_memtable::{Error, Result, SequenceNumber, WriteBatch};

use crate::gates::GATES;
use crate::journal_copy::JournalCopy;
use crate::listener::SetEvent;
use crate::options::{Durability, SEQUENCE_MAX, WriteOptions};
use crate::publication::Taken;
use crate::shared::{Commit, Shared};

/// Gates are opened only if at least this many bytes may be reserved inside each, before the next
/// batch closes them all. Tables below 4 MiB allow less: their gates would open for a few batches.
const GATE_MIN: u64 = 4 << 10;

/// The batch with which the appended bytes reach this many waits for a write of the journal. This
/// bounds what the journal has copied and not written.
const UNWRITTEN_MAX: usize = 256 << 10;

/// What a commit needs beside its prepared batch.
struct Request<'j> {
    /// The most bytes that the batch takes in a table; 0 without entries.
    bytes: u64,
    /// The copy that the journal gets.
    copy: Option<JournalCopy<'j>>,
    /// The batch's first number, if it is a replay.
    replayed: Option<SequenceNumber>,
    durability: Durability,
}

impl<B> Shared<B> {
    /// Writes a batch, from the number `replayed` on if a journal replays it. Returns its last
    /// sequence number, or the visible number for a batch without records.
    pub(crate) fn write(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
        replayed: Option<SequenceNumber>,
    ) -> Result<SequenceNumber> {
        let durability = self.durability(options)?;
        let copy = match self.journal() {
            Some(journal) if durability != Durability::None => {
                Some(JournalCopy::copy(batch.as_bytes(), journal))
            }
            _ => None,
        };
        // Every check that does not depend on other writes. A prepared batch is large and stays in
        // place.
        let mut prepared = self.model.prepare(batch);
        let prepared = prepared.as_mut().map_err(|error| error.clone())?;
        if let Some(copy) = &copy {
            copy.compare(batch.as_bytes())?;
        }
        let bytes = prepared.bytes();
        if bytes > self.table_room {
            // Not even an empty table has space for it, so no table is sealed for it.
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
            copy,
            replayed,
            durability,
        };
        let written = if prepared.numbers() == 0 {
            self.commit_nothing(&request)
        } else {
            self.once_there_is_room(options.deadline, || self.try_commit(prepared, &mut request))
        };
        // The batch has ended by now: a listener may wait until all numbers are visible.
        self.reports.deliver();
        if let Some(copy) = request.copy {
            copy.keep();
        }
        written
    }

    /// The durability of a batch with these options.
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

    /// Numbers a batch inside the gate of this thread, writes it, and publishes it. Returns `None`,
    /// with nothing changed, for a batch that may be refused, must wait, or changes tables: it
    /// takes the commit mutex.
    #[inline(always)]
    fn commit_inside_gate(
        &self,
        batch: &mut PreparedBatch<'_>,
        bytes: u64,
    ) -> Option<Result<SequenceNumber>> {
        // A batch without entries may move `closed`, which needs the commit mutex.
        if self.options.journal.is_some()
            || bytes == 0
            || self.registry.publication.admit().is_err()
        {
            return None;
        }
        let (count, most) = (batch.numbers(), self.share() / GATES as u64);
        // Empty ranges take no bytes. At least a byte is counted for each number, which bounds the
        // numbers that are given until the gates close.
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

    /// [`commit_inside_gate`](Self::commit_inside_gate), after another batch opened the gates while
    /// this one waited for the mutex.
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

    /// Numbers a batch under the commit mutex, once it has space in the active table. Then writes
    /// it there without the mutex, and publishes it.
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
            // From here on this thread may wait for others: it holds neither a shard nor a table.
            drop(slot);
            let logged = written.and_then(|_| self.wait_for_journal(request, taken));
            // The thread that wrote the journal for all may have made this batch visible as well.
            let is_visible = || self.registry.publication.visible() >= taken.last;
            if logged.is_ok() && request.durability >= Durability::Buffered && is_visible() {
                std::mem::forget(unfinished);
                return Ok(taken.last);
            }
            return self.publish(unfinished, logged);
        }
    }

    /// Publishes a batch whose entries are in, and stops the set if `written` is an error.
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

    /// Commits a batch without records. It takes no number; its durability applies to the batches
    /// before it.
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

    /// Waits until the journal has the batch as its durability says: written, or synced.
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

    /// The numbers of a batch. A replay must begin after all numbers that were given, and only
    /// while no other batch is being written.
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

    /// Appends a batch that has its space to the journal, and takes its numbers.
    fn number(
        &self,
        commit: &mut Commit<B>,
        request: &mut Request<'_>,
        Taken { first, last }: Taken,
    ) -> Result<()> {
        if let Some(copy) = &mut request.copy {
            let len = copy.bytes.len();
            self.heed(commit, copy.append(first))?;
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
            // Empty ranges alone leave an empty table empty.
            commit.closed = if commit.is_active_empty() {
                last
            } else {
                commit.closed
            };
        } else if commit.unasked == 0 {
            // The table has entries, so a flush can take its bytes: they count as unflushed.
            let active = &commit.tables.active;
            active.bytes.count(active.table.bytes_once_frozen());
        }
        commit.last = last;
        Ok(())
    }
}

/// A batch that has numbers. Dropped before the batch is finished, it stops the set.
struct Unfinished<'s, B> {
    shared: &'s Shared<B>,
    taken: Taken,
    /// Why the batch is not finished. `None` if its thread panicked.
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
