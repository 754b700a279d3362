//! Publication: commits end in any order and become visible in the order of their sequence numbers.
//!
//! ```text
//!   numbers    1..=3   4..=4   5..=9   10..=12       each number belongs to one commit
//!   ended        x       x               x           10..=12 has ended and left its mark: at the place of 10, its last number 12
//!   visible            ^ 4                           5..=9 is still being written
//!
//!   complete(5, 9)     exchanges visible: 4 -> 9, finds the mark at the place of 10, exchanges visible: 9 -> 12, wakes 10..=12
//! ```
//! * PUBLICATION-1: `visible` is the end of the completed prefix: every number up to it belongs to
//!   a commit whose entries are in their table. It never goes back, and never passes a commit that
//!   stopped.
//! * PUBLICATION-2: a commit returns once it is visible, or once it never will be.
//! * PUBLICATION-3: after a stop the numbers of every commit are accounted for once it has ended:
//!   they are visible, or counted in `refused`. So whoever keeps new numbers away can wait until
//!   nothing is under way.
//! * PUBLICATION-4: no mark is forgotten. A commit that is not the next one stores its mark, and
//!   then changes `visible` (by nothing). Whoever advances `visible` changes it, and then loads the
//!   next mark. Changes of one word have one order: if the commit's is the first one, the other
//!   thread loads its mark; if it is the second, the commit sees that it is the next one. Who
//!   publishes a mark exchanges `visible`, so that only one thread does.
//! * PUBLICATION-5: a mark is true while it is larger than `visible`. A commit that begins more
//!   than [`PLACES`] numbers after `visible` waits before it leaves its mark. So two numbers that
//!   are not visible never share a place, and what an earlier commit left in it is visible.
//! * PUBLICATION-6: a thread that sleeps is on the list before it sets the lowest bit of `visible`,
//!   and who advances `visible` while the bit is set wakes those whose number is visible. The bit
//!   and the list change under the lock.
//!
//! Any thread. Reading `visible` takes no lock, and neither does a commit, unless a thread sleeps
//! or one stopped.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{Alone, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use paranoid_memtable::{Error, Result, SequenceNumber};

use crate::patience::Patience;
use crate::sleepers::Sleepers;

/// Number of marks. A power of two.
#[cfg(not(loom))]
const PLACES: usize = 1024;
#[cfg(loom)]
const PLACES: usize = 2;

/// Marks in a cache line. Numbers that follow each other are in different lines.
const LINE: usize = 8;

/// The bit of a visible number which says that threads sleep. Sequence numbers have 56 bits.
const ASLEEP: u64 = 1;

/// The numbers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) first: SequenceNumber,
    pub(crate) last: SequenceNumber,
}

impl Taken {
    /// Number of numbers.
    fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Which sequence numbers are visible, and which commits have ended.
#[derive(Debug)]
pub(crate) struct Publication {
    /// The last visible number, and in the lowest bit whether threads sleep (PUBLICATION-6).
    visible: Alone<AtomicU64>,
    /// The smallest number that a thread sleeps for: tells whether the lock is worth taking.
    earliest: AtomicU64,
    /// Whether a commit stopped: 0 or 1.
    has_stop: AtomicU64,
    patience: Patience,
    /// The last numbers of commits that ended, at the places of their first ones (PUBLICATION-5).
    marks: Box<[AtomicU64; PLACES]>,
    /// In lines of its own: who sleeps and wakes takes the others from no commit.
    order: Alone<Mutex<Order>>,
    /// A commit ended that never becomes visible.
    ended: Condvar,
}

/// What only sleeping, stopping and waking threads need.
#[derive(Debug, Default)]
struct Order {
    sleepers: Sleepers,
    stop: Option<Stop>,
    /// How many numbers belong to commits that stopped, or that ended after one which stopped.
    refused: u64,
}

/// A commit that could not be finished.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Its first number: `visible` stays below.
    pub(crate) first: SequenceNumber,
    pub(crate) cause: Error,
}

impl Order {
    /// Fails if `last` never becomes visible.
    fn admit(&self, last: SequenceNumber) -> Result<()> {
        match &self.stop {
            Some(stop) if stop.first <= last => Err(Error::read_only(stop.cause.clone())),
            _ => Ok(()),
        }
    }
}

impl Publication {
    /// Everything up to `visible` counts as published.
    pub(crate) fn new(visible: SequenceNumber) -> Self {
        Publication {
            visible: Alone(AtomicU64::new(visible << 1)),
            earliest: AtomicU64::new(u64::MAX),
            has_stop: AtomicU64::new(0),
            patience: Patience::new(),
            marks: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            order: Alone(Mutex::default()),
            ended: Condvar::new(),
        }
    }

    /// The last visible sequence number.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `exchange`: what was published is in its
        // table, and a table that was closed before says so.
        self.visible.load(Ordering::Acquire) >> 1
    }

    /// The mark of the commit that begins with this number.
    #[inline(always)]
    fn mark(&self, first: SequenceNumber) -> &AtomicU64 {
        let lines = PLACES.div_ceil(LINE);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "only its low bits are used"
        )]
        let first = first as usize;
        &self.marks[(first % lines * LINE + first / lines % LINE) % PLACES]
    }

    /// Notes that the commit of these numbers has ended well, and waits until it is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit before it stopped.
    #[inline(always)]
    pub(crate) fn complete(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        if self.publish(first, last) {
            Ok(())
        } else {
            self.complete_later(Taken { first, last })
        }
    }

    /// Makes commits visible that have ended, and those that follow them, if they are the next
    /// ones.
    #[inline(always)]
    pub(crate) fn publish(&self, first: SequenceNumber, last: SequenceNumber) -> bool {
        let before = (first - 1) << 1;
        if self.exchange(before, last).is_err() {
            return self.publish_slowly(first - 1, last);
        }
        // ORDERING: Relaxed: `follow` asks again. After the exchange (PUBLICATION-4).
        if self.mark(last + 1).load(Ordering::Relaxed) > last {
            self.follow(last);
        }
        true
    }

    /// `publish` where threads sleep, or where it is not the next one.
    #[cold]
    #[inline(never)]
    fn publish_slowly(&self, before: SequenceNumber, last: SequenceNumber) -> bool {
        let is_next = self.advance(before, last);
        if is_next {
            self.follow(last);
        }
        is_next
    }

    /// Exchanges the visible number, and keeps the bit of `before`.
    #[inline(always)]
    fn exchange(&self, before: u64, last: SequenceNumber) -> Result<u64, u64> {
        // ORDERING: Release pairs with the Acquire in `visible` and here: all entries up to `last`
        // are in, also those whose commits said so by a mark or under the lock of a journal's turn.
        // Acquire pairs with the Release of those exchanges that published earlier numbers, of
        // `pass_on` (PUBLICATION-4), and of `sleep`. Relaxed: nothing was published.
        self.visible.compare_exchange(
            before,
            last << 1 | before & ASLEEP,
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
    }

    /// Makes everything up to `last` visible, if everything up to `before` is, and nothing else.
    /// Wakes those who sleep for it.
    fn advance(&self, before: SequenceNumber, last: SequenceNumber) -> bool {
        let mut seen = before << 1;
        loop {
            match self.exchange(seen, last) {
                Ok(_) => break,
                // A thread begins or ends to sleep.
                Err(now) if now >> 1 == before => seen = now,
                Err(_) => return false,
            }
        }
        if seen & ASLEEP != 0 {
            self.wake(last);
        }
        true
    }

    /// Publishes the commits that have ended and follow the number `last`, which is visible
    /// (PUBLICATION-4).
    #[cold]
    #[inline(never)]
    fn follow(&self, mut last: SequenceNumber) {
        loop {
            let mut end = last;
            // ORDERING: Acquire pairs with the Release in `complete_later`: its entries are in.
            while let mark = self.mark(end + 1).load(Ordering::Acquire)
                && mark > end
            {
                end = mark;
            }
            // Another thread that published the first of them looks for what follows.
            if end == last || !self.advance(last, end) {
                return;
            }
            last = end;
        }
    }

    /// `complete` of a commit that is not the next one.
    #[cold]
    #[inline(never)]
    fn complete_later(&self, taken: Taken) -> Result<()> {
        let waited = self
            .leave_mark(taken)
            .and_then(|()| self.wait_for(taken.last));
        if waited.is_err() {
            self.order.lock().refused += taken.count();
            self.ended.notify_all();
        }
        waited
    }

    /// Leaves the mark of a commit once its place is free, and publishes it if it is the next one
    /// by now.
    fn leave_mark(&self, Taken { first, last }: Taken) -> Result<()> {
        self.wait_for(first.saturating_sub(PLACES as u64))?;
        // ORDERING: Release pairs with the Acquire in `follow`: the entries are in.
        self.mark(first).store(last, Ordering::Release);
        let seen = self.pass_on();
        if seen + 1 == first {
            self.follow(seen);
        }
        Ok(())
    }

    /// Changes `visible` by nothing, and returns the visible number (PUBLICATION-4).
    fn pass_on(&self) -> SequenceNumber {
        // ORDERING: Release pairs with the Acquire in `exchange`: who advances `visible` after this
        // sees the mark. Acquire pairs with its Release: who advanced it before is seen.
        self.visible.fetch_or(0, Ordering::AcqRel) >> 1
    }

    /// Waits until `last` is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit up to it stopped.
    pub(crate) fn wait_for(&self, last: SequenceNumber) -> Result<()> {
        let is_visible = || self.visible() >= last;
        if !is_visible() && !self.patience.wait(is_visible) {
            while !is_visible() {
                self.sleep(last)?;
            }
        }
        Ok(())
    }

    /// Sleeps until `last` is visible, or until a commit stopped (PUBLICATION-6).
    fn sleep(&self, last: SequenceNumber) -> Result<()> {
        let mut order = self.order.lock();
        order.admit(last)?;
        let flag = order.sleepers.add(last);
        self.note_earliest(&order);
        // ORDERING: Release pairs with the Acquire in `exchange`: who advances `visible` after this
        // sees the bit, and `earliest`. Acquire pairs with its Release: who advanced it before is
        // seen.
        let visible = self.visible.fetch_or(ASLEEP, Ordering::AcqRel) >> 1;
        if visible < last {
            drop(order);
            flag.wait();
            return Ok(());
        }
        self.wake_up_to(visible, order);
        Ok(())
    }

    /// Wakes the threads that sleep for a number up to `last`, which is visible.
    #[cold]
    #[inline(never)]
    fn wake(&self, last: SequenceNumber) {
        // ORDERING: Relaxed: it was stored before the bit that this thread's exchange met, or later
        // by a thread that woke who slept for less.
        if self.earliest.load(Ordering::Relaxed) <= last {
            self.wake_up_to(last, self.order.lock());
        }
    }

    fn wake_up_to(&self, visible: SequenceNumber, mut order: MutexGuard<'_, Order>) {
        let woken = order.sleepers.up_to(visible);
        self.note_earliest(&order);
        if order.sleepers.earliest().is_none() {
            // ORDERING: Relaxed: it publishes nothing, and the exchanges before it are read with it
            // as one sequence.
            self.visible.fetch_and(!ASLEEP, Ordering::Relaxed);
        }
        drop(order);
        woken.iter().for_each(|flag| flag.wake());
    }

    fn note_earliest(&self, order: &Order) {
        let earliest = order.sleepers.earliest().unwrap_or(u64::MAX);
        // ORDERING: Relaxed: under the lock; the bit, which is set after it, publishes it.
        self.earliest.store(earliest, Ordering::Relaxed);
    }

    /// Notes that the commit of these numbers was not finished. Commits after it never become
    /// visible. Returns whether it is the first one to stop.
    pub(crate) fn stop(&self, taken: Taken, cause: Error) -> bool {
        let mut order = self.order.lock();
        let is_first = order.stop.is_none();
        let earlier = order.stop.take().unwrap_or(Stop {
            first: taken.first,
            cause,
        });
        order.stop = Some(Stop {
            first: earlier.first.min(taken.first),
            ..earlier
        });
        order.refused += taken.count();
        // ORDERING: Relaxed: who takes a number and does not see it yet is told when the batch is
        // complete.
        self.has_stop.store(1, Ordering::Relaxed);
        // Each of them asks again whether its number becomes visible.
        self.wake_up_to(SequenceNumber::MAX, order);
        self.ended.notify_all();
        is_first
    }

    /// Fails with `ReadOnly` if a commit stopped.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        // ORDERING: Relaxed: a hint, see `stop`; the cause is behind the lock.
        if self.has_stop.load(Ordering::Relaxed) == 0 {
            Ok(())
        } else {
            self.cause().map_or(Ok(()), Err)
        }
    }

    /// The error of a commit that stopped.
    #[cold]
    pub(crate) fn cause(&self) -> Option<Error> {
        self.order
            .lock()
            .stop
            .as_ref()
            .map(|stop| Error::read_only(stop.cause.clone()))
    }

    /// If a commit stopped: waits until all commits up to `last`, the last number taken, have ended
    /// (PUBLICATION-3). The caller keeps new numbers away.
    pub(crate) fn wait_until_ended(&self, last: SequenceNumber) -> Option<Stop> {
        loop {
            let order = self.order.lock();
            let stop = order.stop.clone()?;
            let before = stop.first - 1;
            if self.visible() < before {
                drop(order);
                // If one of them stops meanwhile, that one is the stop.
                let _ = self.wait_for(before);
            } else if order.refused < last - before {
                drop(self.ended.wait(order));
            } else {
                return Some(stop);
            }
        }
    }

    /// Leaves numbers up to this one unused: a replay goes on after them. Nothing is under way, and
    /// the caller has the commit mutex.
    pub(crate) fn skip_to(&self, last: SequenceNumber) {
        let visible = self.visible();
        if visible < last {
            self.advance(visible, last);
        }
    }
}
