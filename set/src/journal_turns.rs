//! What batches wait for in the journal: one thread writes for all that wait, and one syncs.
//!
//! * LEADER-1: a turn answers for what was appended before it began. `appended` is stored after
//!   each append and read before each turn.
//! * LEADER-2: after a turn that failed or panicked none is tried again: everybody who waits gets
//!   its error.
//! * LEADER-3: one thread has a turn of a kind at a time. A sync and a write may be under way
//!   together.
//! * LEADER-4: a leader makes the batches visible that it answers for and whose threads wait, up to
//!   the first one that is missing. What it does not make visible, its own thread does.
//!
//! Any thread. A turn's lock is held while its batches are published, which takes the lock of the
//! publication only to wake threads.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{AtomicU64, Condvar, Mutex, Ordering};
use paranoid_memtable::{Error, Result, SequenceNumber};

use crate::file_journal::journal::Journal;
use crate::options::Durability;
use crate::publication::{Publication, Taken};

/// How often a thread lets others run while it waits for a leader, until it sleeps: a write is
/// shorter than to sleep and to be woken.
#[cfg(not(loom))]
const YIELDS: usize = 30;
#[cfg(loom)]
const YIELDS: usize = 0;

/// If so many batches waited at the end of a turn, the leader of the next one lets others run
/// before it begins, so that they come along: for fewer a system call takes less time than to
/// change threads.
const GROUP: usize = 4;

/// What a journal was given, and who writes and who syncs it.
#[derive(Debug)]
pub(crate) struct Logged {
    /// The last number that was appended.
    appended: AtomicU64,
    writes: Turns,
    syncs: Turns,
}

impl Logged {
    pub(crate) fn new(last: SequenceNumber) -> Self {
        Logged {
            appended: AtomicU64::new(last),
            writes: Turns::new(last),
            syncs: Turns::new(last),
        }
    }

    /// Notes an append. Called under the commit mutex, so numbers ascend.
    pub(crate) fn note_appended(&self, last: SequenceNumber) {
        // ORDERING: Release pairs with the Acquire in `appended`: the append is over.
        self.appended.store(last, Ordering::Release);
    }

    /// The last number that was appended. Batches that no journal gets, and replayed ones, have
    /// later numbers.
    pub(crate) fn appended(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `note_appended`: this append is over.
        self.appended.load(Ordering::Acquire)
    }

    /// Returns once the journal has all that was appended up to a batch, as the durability says:
    /// once it is written, or durable. The batch's numbers were appended, and its entries are in.
    ///
    /// # Errors
    /// That of the write or the sync which failed (LEADER-2).
    pub(crate) fn wait(
        &self,
        batch: Taken,
        durability: Durability,
        journal: &dyn Journal,
        order: &Publication,
    ) -> Result<()> {
        let (turns, act): (_, fn(&dyn Journal) -> Result<()>) = match durability {
            Durability::None | Durability::Queued => return Ok(()),
            Durability::Buffered => (&self.writes, |journal| journal.write()),
            Durability::Synced => (&self.syncs, |journal| journal.sync()),
        };
        turns.wait(batch, order, || {
            let covered = self.appended();
            act(journal).map(|()| covered)
        })
    }
}

/// The turns of one kind.
#[derive(Debug)]
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// What turns have answered for: all appended batches up to this number.
    done: SequenceNumber,
    role: Role,
    /// Batches whose entries are in and whose threads wait.
    waiting: Vec<Taken>,
    /// Threads that sleep.
    asleep: u64,
    /// Whether `GROUP` batches waited at the end of the last turn.
    is_shared: bool,
}

/// Whether somebody has a turn.
#[derive(Debug)]
enum Role {
    Free,
    Taken,
    Failed(Error),
}

impl Turns {
    fn new(done: SequenceNumber) -> Self {
        let state = State {
            done,
            role: Role::Free,
            waiting: Vec::new(),
            asleep: 0,
            is_shared: false,
        };
        Turns {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Returns once a turn has answered for a batch. `act` is one turn, and returns what it answers
    /// for.
    fn wait(
        &self,
        batch: Taken,
        order: &Publication,
        act: impl Fn() -> Result<SequenceNumber>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if !matches!(state.role, Role::Failed(_)) && state.done < batch.last {
            state.waiting.push(batch);
        }
        let mut yields = 0;
        while state.done < batch.last {
            match &state.role {
                Role::Failed(error) => return Err(error.clone()),
                Role::Free => {
                    state.role = Role::Taken;
                    let is_shared = state.is_shared;
                    drop(state);
                    let mut turn = Turn {
                        turns: self,
                        order,
                        outcome: Err(Error::WriterPanicked),
                    };
                    if is_shared {
                        // Others come along.
                        std::thread::yield_now();
                    }
                    turn.outcome = act();
                    return turn.outcome.clone().map(drop);
                }
                Role::Taken if yields < YIELDS => {
                    drop(state);
                    yields += 1;
                    std::thread::yield_now();
                    state = self.state.lock();
                }
                Role::Taken => {
                    state.asleep += 1;
                    state = self.changed.wait(state);
                    state.asleep -= 1;
                }
            }
        }
        Ok(())
    }
}

/// Ends a leader's turn, also when its journal panics.
struct Turn<'t> {
    turns: &'t Turns,
    order: &'t Publication,
    outcome: Result<SequenceNumber>,
}

impl Turn<'_> {
    /// Publishes the batches that wait and that the turn answers for (LEADER-4).
    fn publish(&self, waiting: &mut Vec<Taken>, covered: SequenceNumber) {
        waiting.sort_unstable();
        let ready = waiting.partition_point(|batch| batch.last <= covered);
        let mut ready = waiting.drain(..ready);
        let Some(Taken { first, mut last }) = ready.next() else {
            return;
        };
        for batch in ready {
            if batch.first != last + 1 {
                break;
            }
            last = batch.last;
        }
        self.order.publish(first, last);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.is_shared = state.waiting.len() >= GROUP;
        match &self.outcome {
            Ok(covered) => {
                self.publish(&mut state.waiting, *covered);
                (state.done, state.role) = (*covered, Role::Free);
            }
            Err(error) => {
                state.waiting.clear();
                state.role = Role::Failed(error.clone());
            }
        }
        let has_sleepers = state.asleep > 0;
        drop(state);
        if has_sleepers {
            self.turns.changed.notify_all();
        }
    }
}
