//! Turns of a journal: one thread, the leader, writes the journal for all batches that wait for a
//! write, and one syncs it for all that wait for a sync.
//!
//! * LEADER-1: a turn covers what was appended before it began. `appended` is stored after each
//!   append, and loaded before each turn.
//! * LEADER-2: the word `turn` has the last number that turns covered, whether a thread has the
//!   turn, and whether threads sleep. A thread sets the bit of the sleepers under the lock, and
//!   keeps the lock until it sleeps. The end of a turn exchanges the word under the lock. So the
//!   end sees the bit, or the thread sees the end.
//!
//! Any thread. One thread has the turn of a kind at a time; a write and a sync may run side by
//! side. A thread that waits looks at `turn` without a lock, and the first one that sees the turn
//! free takes it. The turn's lock is held while its batches are published; that takes the lock of
//! the publication only to wake threads.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{Alone, AtomicU64, Condvar, Mutex, Ordering};
use paranoid_memtable::{Error, Result, SequenceNumber};

use crate::journal::Journal;
use crate::options::Durability;
use crate::patience::Patience;
use crate::publication::{Publication, Taken};

/// The most times that the leader of a sync yields, until as many batches wait as the last sync
/// covered. The threads of those batches were just woken, and a sync takes longer than the yields.
#[cfg(not(loom))]
const GATHERING: usize = 30;
#[cfg(loom)]
const GATHERING: usize = 0;

/// The last number that a journal took, and the turns of its writes and syncs.
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
            writes: Turns::new(last, 0),
            syncs: Turns::new(last, GATHERING),
        }
    }

    /// Records an append. The caller has the commit mutex, so numbers ascend.
    pub(crate) fn note_appended(&self, last: SequenceNumber) {
        // ORDERING: Release pairs with the Acquire in `appended`: the append is over.
        self.appended.store(last, Ordering::Release);
    }

    /// The last number that was appended. Later numbers belong to batches that do not go to the
    /// journal: those with `Durability::None`, and replayed ones.
    pub(crate) fn appended(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `note_appended`: this append is over.
        self.appended.load(Ordering::Acquire)
    }

    /// Waits until the journal has written or synced everything up to a batch, as the durability
    /// says. The batch is appended, and its entries are in their table.
    ///
    /// # Errors
    /// That of the first write or sync that failed.
    pub(crate) fn wait(
        &self,
        batch: Taken,
        durability: Durability,
        journal: &dyn Journal,
        publication: &Publication,
    ) -> Result<()> {
        let (turns, act): (_, fn(&dyn Journal) -> Result<()>) = match durability {
            Durability::None | Durability::Queued => return Ok(()),
            Durability::Buffered => (&self.writes, |journal| journal.write()),
            Durability::Synced => (&self.syncs, |journal| journal.sync()),
        };
        turns.wait(batch, publication, || {
            let covered = self.appended();
            act(journal).map(|()| covered)
        })
    }
}

/// The turns of one kind: writes or syncs.
#[derive(Debug)]
struct Turns {
    /// The last number that turns covered, above the bits (LEADER-2).
    turn: Alone<AtomicU64>,
    state: Mutex<TurnState>,
    ended: Condvar,
    patience: Patience,
    /// How often a leader yields before its turn.
    gathering: usize,
}

/// Bit of `turn`: a thread has the turn.
const TAKEN: u64 = 1;
/// Bit of `turn`: threads sleep.
const ASLEEP: u64 = 2;
/// Bit of `turn`: the last turn failed.
const FAILED: u64 = 4;
/// Number of these bits.
const BITS: u32 = 3;

/// The batches that wait for a turn, under the lock.

#[derive(Debug, Default)]
struct TurnState {
    /// Batches whose entries are in and whose threads wait, in any order.
    waiting: Vec<Taken>,
    /// How many batches the last turn covered.
    covered_batches: usize,
    /// The error of a turn. No turn begins after it.
    failure: Option<Error>,
}

impl Turns {
    fn new(done: SequenceNumber, gathering: usize) -> Self {
        Turns {
            gathering,
            turn: Alone(AtomicU64::new(done << BITS)),
            state: Mutex::default(),
            ended: Condvar::new(),
            patience: Patience::new(),
        }
    }

    fn look(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `Turn::drop`: the turn wrote and published.
        self.turn.load(Ordering::Acquire)
    }

    /// Waits until a turn has covered a batch. `act` writes or syncs, and returns the last number
    /// that it covers.
    fn wait(
        &self,
        batch: Taken,
        publication: &Publication,
        act: impl Fn() -> Result<SequenceNumber>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let mut seen = self.look();
        if seen & FAILED == 0 && seen >> BITS < batch.last {
            state.waiting.push(batch);
        }
        drop(state);
        while seen >> BITS < batch.last {
            if seen & FAILED != 0 {
                return Err(self.failure());
            }
            if seen & TAKEN == 0 {
                if self.take(seen) {
                    return self.lead(publication, act);
                }
            } else if !self.patience.wait(|| has_ended(self.look(), batch.last)) {
                self.sleep(batch.last);
            }
            seen = self.look();
        }
        Ok(())
    }

    /// The error of the turn that failed.
    fn failure(&self) -> Error {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or(Error::WriterPanicked)
    }

    /// Takes the turn, unless another thread has.
    fn take(&self, seen: u64) -> bool {
        // ORDERING: Acquire pairs with the Release in `Turn::drop`: one turn begins after the
        // other. Relaxed: another thread has the turn.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let turn = &self.turn;
        turn.compare_exchange(seen, seen | TAKEN, taken, failed)
            .is_ok()
    }

    /// Runs the turn that this thread took.
    fn lead(
        &self,
        publication: &Publication,
        act: impl Fn() -> Result<SequenceNumber>,
    ) -> Result<()> {
        let mut turn = Turn {
            turns: self,
            publication,
            outcome: Err(Error::WriterPanicked),
        };
        self.gather();
        turn.outcome = act();
        turn.outcome.clone().map(drop)
    }

    /// Yields, so that more batches wait when the turn begins.
    fn gather(&self) {
        for _ in 0..self.gathering {
            let state = self.state.lock();
            if state.waiting.len() >= state.covered_batches {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Sleeps until a turn ends, unless it has ended (LEADER-2).
    fn sleep(&self, last: SequenceNumber) {
        let state = self.state.lock();
        // ORDERING: Relaxed: under the lock, as the exchange in `Turn::drop`.
        if !has_ended(self.turn.fetch_or(ASLEEP, Ordering::Relaxed), last) {
            drop(self.ended.wait(state));
        }
    }
}

/// Whether a thread that waits for a number continues: the number is covered, or the turn is free.
fn has_ended(turn: u64, last: SequenceNumber) -> bool {
    turn >> BITS >= last || turn & TAKEN == 0
}

/// Ends a leader's turn, also when its journal panics.
struct Turn<'t> {
    turns: &'t Turns,
    publication: &'t Publication,
    outcome: Result<SequenceNumber>,
}

impl Turn<'_> {
    /// Publishes the waiting batches that the turn covers, up to the first number that is missing.
    /// The threads of the others publish theirs.
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
        self.publication.publish(first, last);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        let next = match &self.outcome {
            Ok(covered) => {
                let before = state.waiting.len();
                self.publish(&mut state.waiting, *covered);
                state.covered_batches = before - state.waiting.len();
                covered << BITS
            }
            // All that wait get the error. The number stays: batches that earlier turns covered are
            // acknowledged.
            Err(error) => {
                state.waiting.clear();
                state.failure = Some(error.clone());
                self.turns.look() >> BITS << BITS | FAILED
            }
        };
        // ORDERING: Release pairs with the Acquire in `look` and in `take`.
        let seen = self.turns.turn.swap(next, Ordering::Release);
        drop(state);
        if seen & ASLEEP != 0 {
            self.turns.ended.notify_all();
        }
    }
}
