//! Switches: when an empty table replaces the active one, and how a caller waits while none may.
//!
//! ```text
//!   caller         when the active table is replaced
//!   a batch        it or its journal is as long as a write buffer, or the manager asked for it:
//!                  checked each time that batches took a 64th of the write buffer
//!   begin_flush    the manager asked for it
//!   switch         unless it is empty; of a read-only set it is closed at the last visible number
//! ```
//! Any thread. Tables are replaced under the commit mutex, with the gates closed.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use paranoid_memtable::{Error, Result, SequenceNumber, StallCause};

use crate::journal::Journal;
use crate::listener::SetEvent;
use crate::shared::{Commit, Shared};
use crate::swapped::Pointers;
use crate::tables::Slot;
use crate::thread_state::ThreadState;
use crate::write_buffer_manager::{Phase, Stall};

/// How often the set checks, while batches fill a write buffer, whether the active table is full.
const CHECKS: u64 = 64;

impl<B> Shared<B> {
    /// Calls `act` until it does not answer `WriteStall`, or until its deadline. Between two calls,
    /// waits for a flush that is under way.
    pub(crate) fn once_there_is_room<T>(
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
            waited: reported,
            ..
        }) = &mut done
        {
            (*reported, refused) = (waited, Some(*cause));
        }
        self.reports
            .tell(|| SetEvent::StallEnded { waited, refused });
        done
    }

    /// After this many bytes of batches, the set checks whether the active table is full.
    pub(crate) fn share(&self) -> u64 {
        self.model.options().write_buffer_size() / CHECKS
    }

    /// Once batches have taken a [`share`](Self::share) since the last check, asks the manager for
    /// room, and replaces the active table if it is full, or if the manager asked for it. A table
    /// is also full once its journal has a write buffer of its batches, even if they left few
    /// entries or none: so the unflushed tables bound the journals.
    pub(crate) fn ask_sometimes(&self, commit: &mut Commit<B>, bytes: u64) -> Result<()> {
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

    /// Replaces the active table, unless the set has its maximum number of tables.
    pub(crate) fn replace_full(&self, commit: &mut Commit<B>) -> Result<()> {
        if commit.count_tables() >= self.options.tables_max {
            return Err(commit.stall(StallCause::Tables));
        }
        self.replace_active(commit)
    }

    /// Seals the active table if the manager asked for it, for the memory of another set or because
    /// of a scan.
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

    /// Closes the active table and puts an empty one in its place, under the next number.
    pub(crate) fn replace_active(&self, commit: &mut Commit<B>) -> Result<()> {
        let next = self.next_slot(commit, self.journal())?;
        self.begin_table(commit, next, commit.last);
        Ok(())
    }

    /// Closes the active table unless it is empty. Returns the number that the newest immutable
    /// table has in the manager.
    pub(crate) fn switch(&self) -> Result<Option<u64>> {
        let mut tried = None;
        let sealed = self.once_there_is_room(None, || {
            let mut commit = self.lock_commit();
            let active = commit.tables.active.number;
            if self.admit(&commit).is_err() {
                self.close(&mut commit)?;
            // If another thread closed the table meanwhile, that is enough.
            } else if *tried.get_or_insert(active) == active && !commit.is_active_empty() {
                self.replace_full(&mut commit)?;
            }
            Ok(commit.tables.immutables.first().map(|slot| slot.bytes.id()))
        });
        self.reports.deliver();
        sealed
    }

    /// Closes the tables of a read-only set at its last visible number, so that a flush can take
    /// all that is visible. Entries above are never read or flushed. The journal gets no switch.
    fn close(&self, commit: &mut Commit<B>) -> Result<()> {
        // Waits until every batch with a number has ended. The commit mutex keeps new ones away.
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

    /// Closes the tables at `end`, and puts `next` in the place of the active one. The caller has
    /// the commit mutex, so no number of `next` is given before (TABLES-1).
    fn begin_table(&self, commit: &mut Commit<B>, next: Arc<Slot>, end: SequenceNumber) {
        let sealed = Arc::clone(&commit.tables.active);
        self.buffers.take_seal();
        commit.closed = commit.last;
        (commit.unasked, commit.logged) = (0, 0);
        let active = next.number;
        commit.active = Pointers::to(&next);
        commit.tables = commit.tables.switched(next, end);
        // This drops pointers only, and no table: the new view has every table of the old one.
        drop(self.tables.swap(&commit.tables));
        self.reports.note(|| SetEvent::Switched {
            sealed: sealed.number,
            active,
        });
        sealed.leave(Phase::Sealed);
    }

    /// Makes an empty table, and switches the journal to it, if one is given.
    fn next_slot(
        &self,
        commit: &mut Commit<B>,
        journal: Option<&dyn Journal>,
    ) -> Result<Arc<Slot>> {
        let table = self.model.fork()?;
        let end = || Error::InvalidArgument("table numbers end at 2^64 - 1".into());
        let newest = commit.tables.active.number;
        let number = newest.checked_add(1).ok_or_else(end)?;
        journal.map_or(Ok(()), |journal| self.heed(commit, journal.switch(number)))?;
        Ok(Slot::new(
            number,
            table,
            self.buffers.count_table(),
            self.options.scans,
        ))
    }
}
