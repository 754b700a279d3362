//! Syncs of the journal: one thread syncs for all that wait.
//!
//! * SYNC-LEADER-1: a sync answers for what was appended before it began. `appended` is stored after each append and
//!   read before each sync.
//! * SYNC-LEADER-2: after a sync that failed or panicked none is tried again: everybody who waits gets its error.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::set::journal::Journal;
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// Who syncs, and what is durable.
#[derive(Debug)]
pub(crate) struct SyncLeader {
    /// The last number that was appended.
    appended: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// All appended batches up to this number are durable.
    durable: SequenceNumber,
    role: Role,
}

/// Whether somebody syncs.
#[derive(Debug)]
enum Role {
    Free,
    Taken,
    Failed(Error),
}

impl SyncLeader {
    pub(crate) fn new(durable: SequenceNumber) -> Self {
        let state = State { durable, role: Role::Free };
        SyncLeader { appended: AtomicU64::new(durable), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Notes an append. Called under the commit mutex, so numbers ascend.
    pub(crate) fn note_appended(&self, last: SequenceNumber) {
        // ORDERING: Release pairs with the Acquire in `appended`: the append is over.
        self.appended.store(last, Ordering::Release);
    }

    /// The last number that was appended. Batches that no journal gets, and replayed ones, have later numbers.
    pub(crate) fn appended(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `note_appended`: this append is over.
        self.appended.load(Ordering::Acquire)
    }

    /// Returns once all that was appended up to `last` is durable. `last` was appended.
    ///
    /// # Errors
    /// That of the sync which failed (SYNC-LEADER-2).
    pub(crate) fn wait_durable(&self, last: SequenceNumber, journal: &dyn Journal) -> Result<()> {
        let mut state = self.state.lock();
        while state.durable < last {
            match &state.role {
                Role::Failed(error) => return Err(error.clone()),
                Role::Taken => state = self.changed.wait(state),
                Role::Free => {
                    state.role = Role::Taken;
                    drop(state);
                    self.lead(journal);
                    state = self.state.lock();
                }
            }
        }
        Ok(())
    }

    /// Forgets a failed sync, after the journal was switched: from then on a later sync answers for what the failed one covered.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        if matches!(state.role, Role::Failed(_)) {
            state.role = Role::Free;
        }
    }

    /// Syncs for everybody (SYNC-LEADER-1).
    fn lead(&self, journal: &dyn Journal) {
        let mut leading = Leading { leader: self, outcome: Err(Error::WriterPanicked) };
        let covered = self.appended();
        let outcome = journal.sync();
        leading.outcome = outcome.map(|()| covered);
    }
}

/// Ends a leader's turn, also when its journal panics.
struct Leading<'l> {
    leader: &'l SyncLeader,
    outcome: Result<SequenceNumber>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.leader.state.lock();
        match &self.outcome {
            Ok(covered) => (state.durable, state.role) = (state.durable.max(*covered), Role::Free),
            Err(error) => state.role = Role::Failed(error.clone()),
        }
        drop(state);
        self.leader.changed.notify_all();
    }
}
