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
//! * LEADER-5: `turn` says who is answered for, whether a thread has a turn, and whether threads
//!   sleep. A thread sets the bit of the sleepers under the lock, and holds the lock until it sleeps.
//!   The end of a turn exchanges the word under the lock: so it meets the bit, or the thread sees the
//!   end.
//!
//! Any thread. A thread that waits looks at `turn` without a lock; the first one that sees it free
//! takes the next turn. A turn's lock is held while its batches are published, which takes the lock
//! of the publication only to wake threads.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{Alone, AtomicU64, Condvar, Mutex, Ordering};
use paranoid_memtable::{Error, Result, SequenceNumber};

use crate::file_journal::journal_trait::Journal;
use crate::options::Durability;
use crate::patience::Patience;
use crate::publication::{Publication, Taken};

/// How often the leader of a sync lets others run, until as many batches wait as the last sync
/// answered for: their threads were just woken, and a sync takes longer than all of that.
#[cfg(not(loom))]
const GATHERING: usize = 30;
#[cfg(loom)]
const GATHERING: usize = 0;

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
            writes: Turns::new(last, 0),
            syncs: Turns::new(last, GATHERING),
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
    /// The last number that turns have answered for, above the bits (LEADER-5).
    turn: Alone<AtomicU64>,
    state: Mutex<State>,
    ended: Condvar,
    patience: Patience,
    /// How often a leader lets others run before its turn.
    gathering: usize,
}

/// Bits of `turn`: a thread has a turn; threads sleep; the last turn failed.
const TAKEN: u64 = 1;
const ASLEEP: u64 = 2;
const FAILED: u64 = 4;
const BITS: u32 = 3;

#[derive(Debug, Default)]
struct State {
    /// Batches whose entries are in and whose threads wait.
    waiting: Vec<Taken>,
    /// How many of them the last turn answered for.
    answered: usize,
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
        // ORDERING: Acquire pairs with the Release in `Turn::drop`: what the turn did and published.
        self.turn.load(Ordering::Acquire)
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
                    return self.lead(order, act);
                }
            } else if !self.patience.wait(|| has_ended(self.look(), batch.last)) {
                self.sleep(batch.last);
            }
            seen = self.look();
        }
        Ok(())
    }

    fn failure(&self) -> Error {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or(Error::WriterPanicked)
    }

    /// Takes the turn, unless another thread has.
    fn take(&self, seen: u64) -> bool {
        // ORDERING: Acquire pairs with the Release in `Turn::drop`: one turn begins after the
        // other. Relaxed: another thread has it.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let turn = &self.turn;
        turn.compare_exchange(seen, seen | TAKEN, taken, failed)
            .is_ok()
    }

    fn lead(&self, order: &Publication, act: impl Fn() -> Result<SequenceNumber>) -> Result<()> {
        let mut turn = Turn {
            turns: self,
            order,
            outcome: Err(Error::WriterPanicked),
        };
        self.gather();
        turn.outcome = act();
        turn.outcome.clone().map(drop)
    }

    /// Lets others come along.
    fn gather(&self) {
        for _ in 0..self.gathering {
            let state = self.state.lock();
            if state.waiting.len() >= state.answered {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Sleeps until a turn ends, unless it has (LEADER-5).
    fn sleep(&self, last: SequenceNumber) {
        let state = self.state.lock();
        // ORDERING: Relaxed: under the lock, as the exchange in `Turn::drop`.
        if !has_ended(self.turn.fetch_or(ASLEEP, Ordering::Relaxed), last) {
            drop(self.ended.wait(state));
        }
    }
}

/// Whether a thread that waits for a number goes on: it is answered for, or the turn is free.
fn has_ended(turn: u64, last: SequenceNumber) -> bool {
    turn >> BITS >= last || turn & TAKEN == 0
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
        let next = match &self.outcome {
            Ok(covered) => {
                let before = state.waiting.len();
                self.publish(&mut state.waiting, *covered);
                state.answered = before - state.waiting.len();
                covered << BITS
            }
            Err(error) => {
                state.waiting.clear();
                state.failure = Some(error.clone());
                self.turns.look() >> BITS << BITS | FAILED
            }
        };
        // ORDERING: Release pairs with the Acquire in `look` and in `take`. A failure keeps the
        // number: what earlier turns answered for is acknowledged.
        let seen = self.turns.turn.swap(next, Ordering::Release);
        drop(state);
        if seen & ASLEEP != 0 {
            self.turns.ended.notify_all();
        }
    }
}
