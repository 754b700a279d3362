//! Publication: commits end in any order and become visible in the order of their sequence numbers.
//!
//! ```text
//!   taken      1..=3   4..=4   5..=9   10..=12       each number belongs to one commit
//!   done         x       x               x
//!   visible            ^ 4                           5..=9 is still being written; 10..=12 waits for it
//! ```
//! * PUBLICATION-1: `visible` is the end of the completed prefix: every number up to it belongs to a commit whose
//!   entries are in their table. It never goes back, and never passes a commit that stopped.
//! * PUBLICATION-2: a commit returns once it is visible, or once it never will be.
//! * PUBLICATION-3: after a stop the numbers of every commit are accounted for, by `done` or by `stopped`, once it has
//!   ended. So whoever keeps new numbers away can wait until nothing is under way.
//! * PUBLICATION-4: a commit that follows the visible number publishes itself by one exchange, without the lock. A thread to
//!   which the next number matters (a later commit that is done, one that waits, a stop) takes the lock and sets the lowest
//!   bit of the word, so that the exchange of every commit fails and it takes the lock as well.
//!
//! Any thread. Reading `visible` takes no lock.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use paranoid_memtable::sibling::{Alone, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread_number};
use paranoid_memtable::{Error, Result, SequenceNumber};

use crate::file_journal::journal::Journal;
use crate::options::Durability;

/// How often a commit that is done looks whether those before it are, until it sleeps: several times as long as an insert takes,
/// and shorter than to sleep and to be woken.
#[cfg(not(loom))]
const LOOKS: usize = 300;
#[cfg(loom)]
const LOOKS: usize = 1;

/// The bit of a visible number that sends commits to the lock. Sequence numbers have 56 bits.
const LOCKED: u64 = 1;

/// Which sequence numbers are visible, and which commits are done.
#[derive(Debug)]
pub(crate) struct Publication {
    /// The last visible number, and in the lowest bit whether commits take the lock (PUBLICATION-4).
    visible: Alone<AtomicU64>,
    /// Whether a commit stopped: 0 or 1.
    has_stop: AtomicU64,
    order: Mutex<Order>,
    changed: Condvar,
}

#[derive(Debug)]
struct Order {
    /// What `visible` says, while it has the bit.
    visible: SequenceNumber,
    /// Commits that are done and not visible, first number to last.
    done: BTreeMap<SequenceNumber, SequenceNumber>,
    stop: Option<Stop>,
    /// How many numbers belong to commits that stopped.
    stopped: u64,
    /// Threads that wait for a change.
    waiting: u64,
}

/// A commit that could not be finished.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Its first number: `visible` stays below.
    pub(crate) first: SequenceNumber,
    pub(crate) cause: Error,
}

impl Publication {
    /// Everything up to `visible` counts as published.
    pub(crate) fn new(visible: SequenceNumber) -> Self {
        let order = Order { visible, done: BTreeMap::new(), stop: None, stopped: 0, waiting: 0 };
        Publication {
            visible: Alone(AtomicU64::new(visible << 1)),
            has_stop: AtomicU64::new(0),
            order: Mutex::new(order),
            changed: Condvar::new(),
        }
    }

    /// The last visible sequence number.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `complete` and `show`: what was published is in its table, and a
        // table that was closed before says so.
        self.visible.load(Ordering::Acquire) >> 1
    }

    /// Takes the lock, and marks it in `visible`.
    fn lock(&self) -> MutexGuard<'_, Order> {
        let mut order = self.order.lock();
        // ORDERING: Acquire pairs with the Release in `complete`: what was published without the lock is in its table
        // before this thread publishes more.
        let bit = LOCKED;
        order.visible = self.visible.fetch_or(bit, Ordering::Acquire) >> 1;
        order
    }

    /// Notes that the commit of these numbers is done, and waits until it is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit before it stopped.
    #[inline(always)]
    pub(crate) fn complete(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        let before = (first - 1) << 1;
        // Those before it are mostly about to end: each looks until it is next, and none needs the lock.
        for _ in 0..LOOKS {
            // ORDERING: Relaxed: decides nothing; the exchange asks again.
            if self.visible.load(Ordering::Relaxed) | LOCKED == before | LOCKED {
                break;
            }
            std::hint::spin_loop();
        }
        if self.publish(first, last) { Ok(()) } else { self.complete_locked(first, last) }
    }

    /// Makes commits visible that are done, if they are the next ones and no thread depends on the lock.
    #[inline(always)]
    fn publish(&self, first: SequenceNumber, last: SequenceNumber) -> bool {
        let (before, after) = ((first - 1) << 1, last << 1);
        // ORDERING: Release pairs with the Acquire in `visible` and `lock`: all entries up to `last` are in, also those of threads
        // that said so under the lock of `Turns`. It follows those of earlier commits, which are read with it as one sequence
        // of exchanges. Relaxed: nothing was published.
        self.visible.compare_exchange(before, after, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// `complete`, under the lock (PUBLICATION-4).
    #[cold]
    fn complete_locked(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        let mut order = self.lock();
        if first == order.visible + 1 {
            order.visible = order.visible.max(last);
            self.advance(&mut order);
        } else {
            order.done.insert(first, last);
        }
        if order.stop.is_some() {
            self.changed.notify_all();
        }
        self.wait(order, last)
    }

    /// Waits until `last` is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit up to it stopped.
    pub(crate) fn wait_for(&self, last: SequenceNumber) -> Result<()> {
        if self.visible() >= last { Ok(()) } else { self.wait(self.lock(), last) }
    }

    fn wait(&self, mut order: MutexGuard<'_, Order>, last: SequenceNumber) -> Result<()> {
        while order.visible < last {
            if let Some(stop) = order.stop.as_ref().filter(|stop| stop.first <= last) {
                return Err(Error::read_only(stop.cause.clone()));
            }
            order.waiting += 1;
            order = self.changed.wait(order);
            order.waiting -= 1;
            if order.stop.is_some() {
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Makes the completed prefix visible (PUBLICATION-1): what was waiting for the commit that is visible now follows.
    fn advance(&self, order: &mut Order) {
        while let Some(entry) = order.done.first_entry()
            && *entry.key() == order.visible + 1
        {
            order.visible = entry.remove();
        }
        self.show(order);
        if order.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Notes that the commit of these numbers was not finished. Commits after it never become visible. Returns whether it is the first
    /// one to stop.
    pub(crate) fn stop(&self, Taken { first, last }: Taken, cause: Error) -> bool {
        let mut order = self.lock();
        let is_first = order.stop.is_none();
        let earlier = order.stop.take().unwrap_or(Stop { first, cause });
        order.stop = Some(Stop { first: earlier.first.min(first), ..earlier });
        order.stopped += last - first + 1;
        // ORDERING: Relaxed: who takes a number and does not see it yet is told when the batch is complete.
        self.has_stop.store(1, Ordering::Relaxed);
        drop(order);
        self.changed.notify_all();
        is_first
    }

    /// Fails with `ReadOnly` if a commit stopped.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        // ORDERING: Relaxed: a hint, see `stop`; the cause is behind the lock.
        if self.has_stop.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.cause().map_or(Ok(()), Err) }
    }

    /// The error of a commit that stopped.
    #[cold]
    pub(crate) fn cause(&self) -> Option<Error> {
        self.order.lock().stop.as_ref().map(|stop| Error::read_only(stop.cause.clone()))
    }

    /// If a commit stopped: waits until all commits up to `last`, the last number taken, have ended and returned
    /// (PUBLICATION-3). The caller keeps new numbers away.
    pub(crate) fn wait_until_ended(&self, last: SequenceNumber) -> Option<Stop> {
        let mut order = self.order.lock();
        order.stop.as_ref()?;
        loop {
            let done: u64 = order.done.iter().map(|(first, last)| last - first + 1).sum();
            if order.waiting == 0 && order.visible + done + order.stopped >= last {
                return order.stop.clone();
            }
            order = self.changed.wait(order);
        }
    }

    /// Leaves numbers up to this one unused: a replay goes on after them. Nothing is under way, and the caller has the
    /// commit mutex.
    pub(crate) fn skip_to(&self, last: SequenceNumber) {
        let mut order = self.lock();
        order.visible = order.visible.max(last);
        self.show(&order);
    }

    /// Stores the visible number. If no thread depends on the next one, commits need no lock from here on.
    fn show(&self, order: &Order) {
        let is_quiet = order.done.is_empty() && order.stop.is_none() && order.waiting == 0;
        let bit = if is_quiet { 0 } else { LOCKED };
        // ORDERING: Release pairs with the Acquire in `visible`. All entries up to this number were inserted before
        // their commits took this lock, or were published before this thread took it.
        self.visible.store(order.visible << 1 | bit, Ordering::Release);
    }
}

// One value that all threads read and that is replaced as a whole: the set's view, or its active table.
//
// ```text
//   shard 0   shard 1   ..   shard 15       a lock each; a thread uses the shard of its number
//      |         |              |
//    outer     outer          outer         an Arc of the shard's own: readers count here, in a line of its own
//       \________|_____________/
//                |
//              value
// ```
// * SWAPPED-1: a swap locks every shard before it changes the first one. So once one thread has loaded the new value,
//   no load that begins later returns the old one.
// * SWAPPED-2: readers of different shards write no common cache line.
//
// Any thread; a load waits for at most one clone of the same shard, or for a swap. Loads under a swap are not
// promised to be fair. A pointer swapped by a crate would need no lock at all; why this one is here: ARCHITECTURE,
// rejected answers.

#[cfg(not(loom))]
const SHARDS: usize = 16;
#[cfg(loom)]
const SHARDS: usize = 2;

/// A loaded value. The outer pointer is the shard's own.
pub(crate) type Loaded<T> = Arc<Alone<Arc<T>>>;

fn pointer<T>(value: &Arc<T>) -> Loaded<T> {
    Arc::new(Alone(Arc::clone(value)))
}

/// A pointer of each shard to one value, which is loaded and replaced under a lock of the caller's.
#[derive(Debug)]
pub(crate) struct Pointers<T>(Box<[Loaded<T>; SHARDS]>);

impl<T> Pointers<T> {
    pub(crate) fn to(value: &Arc<T>) -> Self {
        Pointers(Box::new(std::array::from_fn(|_| pointer(value))))
    }

    /// The value, by the shard of this thread.
    #[inline]
    pub(crate) fn get(&self) -> Loaded<T> {
        Arc::clone(&self.0[thread_number() % SHARDS])
    }
}

/// A value that is replaced as a whole.
#[derive(Debug)]
pub(crate) struct Swapped<T> {
    shards: [Alone<Mutex<Loaded<T>>>; SHARDS],
}

impl<T> Swapped<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Swapped { shards: std::array::from_fn(|_| Alone(Mutex::new(pointer(&value)))) }
    }

    /// The value.
    pub(crate) fn load(&self) -> Loaded<T> {
        self.load_from(thread_number())
    }

    /// The value, by the shard of this thread number.
    pub(crate) fn load_from(&self, thread: usize) -> Loaded<T> {
        Arc::clone(&self.shards[thread % SHARDS].lock())
    }

    /// Replaces the value (SWAPPED-1). Returns what the shards held, to be dropped without a lock.
    pub(crate) fn swap(&self, value: &Arc<T>) -> [Loaded<T>; SHARDS] {
        let guards = self.shards.each_ref().map(|shard| shard.lock());
        guards.map(|mut guard| std::mem::replace(&mut *guard, pointer(value)))
    }
}

// What batches wait for in the journal: one thread writes for all that wait, and one syncs.
//
// * LEADER-1: a turn answers for what was appended before it began. `appended` is stored after each append and read
//   before each turn.
// * LEADER-2: after a turn that failed or panicked none is tried again: everybody who waits gets its error.
// * LEADER-3: one thread has a turn of a kind at a time. A sync and a write may be under way together.
// * LEADER-4: a leader makes the batches visible that it answers for and whose threads wait, up to the first one that is missing.
//   What it does not make visible, its own thread does.
//
// Any thread. A turn's lock is held while a batch is published without the lock of the publication.

/// How often a thread lets others run while it waits for a leader, until it sleeps: a write is shorter than to sleep and to be
/// woken.
#[cfg(not(loom))]
const YIELDS: usize = 30;
#[cfg(loom)]
const YIELDS: usize = 0;

/// If so many batches waited at the end of a turn, the leader of the next one lets others run before it begins, so that they come along:
/// for fewer a system call takes less time than to change threads.
const GROUP: usize = 4;

/// The numbers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) first: SequenceNumber,
    pub(crate) last: SequenceNumber,
}

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
        Logged { appended: AtomicU64::new(last), writes: Turns::new(last), syncs: Turns::new(last) }
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

    /// Returns once the journal has all that was appended up to a batch, as the durability says: once it is written, or durable. The
    /// batch's numbers were appended, and its entries are in.
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
        let state = State { done, role: Role::Free, waiting: Vec::new(), asleep: 0, is_shared: false };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns once a turn has answered for a batch. `act` is one turn, and returns what it answers for.
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
                    let mut turn = Turn { turns: self, order, outcome: Err(Error::WriterPanicked) };
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
        let Some(Taken { first, mut last }) = ready.next() else { return };
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
