//! Publication: commits end in any order, and become visible in the order of their numbers.
//!
//! ```text
//!   numbers    1..=3   4..=4   5..=9   10..=12    each number belongs to one commit
//!   ended        x       x               x        10..=12 left its mark: at the place of 10, a 12
//!   visible            ^ 4                        5..=9 is still being written
//!
//!   complete(5, 9)     exchanges visible: 4 -> 9, loads the mark at the place of 10,
//!                      exchanges visible: 9 -> 12, wakes the commit 10..=12
//! ```
//! * PUBLICATION-1: `visible` is the end of the completed prefix: each number up to it belongs to a
//!   commit whose entries are in their table. It never decreases, and never passes a commit that
//!   stopped.
//! * PUBLICATION-2: no mark is missed. A commit that is not the next one stores its mark, and then
//!   changes `visible` (to the value that it has). The thread that advances `visible` changes it,
//!   and then loads the next mark. The changes of one word have one order: if the commit's is
//!   first, the other thread loads its mark; if it is second, the commit sees that it is the next
//!   one. A mark is published by an exchange of `visible`, so by one thread only.
//! * PUBLICATION-3: a mark counts while it is larger than `visible`. A commit that begins more than
//!   [`PLACES`] numbers after `visible` waits before it leaves its mark. So two numbers that are
//!   not visible never share a place, and the mark of an earlier commit in a place is visible.
//! * PUBLICATION-4: a thread that sleeps is on the list before it sets the lowest bit of `visible`.
//!   The thread that advances `visible` while the bit is set wakes each thread whose number is
//!   visible. The bit and the list change under the lock.
//!
//! Any thread. A read of `visible` takes no lock. A commit takes the lock only if a thread sleeps
//! or a commit stopped.

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

/// Marks in a cache line. The marks of adjacent numbers are in different lines.
const LINE: usize = 8;

/// The lowest bit of `visible`: threads sleep. The number is above it, and has 56 bits.
const ASLEEP: u64 = 1;

/// The numbers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Taken {
    pub(crate) first: SequenceNumber,
    pub(crate) last: SequenceNumber,
}

impl Taken {
    /// How many numbers the batch has.
    fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Which sequence numbers are visible, and which commits have ended.
#[derive(Debug)]
pub(crate) struct Publication {
    /// The last visible number, and in the lowest bit whether threads sleep (PUBLICATION-4).
    visible: Alone<AtomicU64>,
    /// The smallest number that a thread sleeps for. Below it, `wake` does not take the lock.
    earliest: AtomicU64,
    /// Whether a commit stopped: 0 or 1.
    has_stop: AtomicU64,
    patience: Patience,
    /// For commits that ended early: the last number, at the place of the first (PUBLICATION-3).
    marks: Box<[AtomicU64; PLACES]>,
    /// In cache lines of its own, so that sleeping and waking threads do not slow down commits.
    order: Alone<Mutex<Order>>,
    /// Notified when a commit has ended that never becomes visible.
    ended: Condvar,
}

/// The state of sleeping and stopped commits, under the lock.
#[derive(Debug, Default)]
struct Order {
    sleepers: Sleepers,
    stop: Option<Stop>,
    /// How many numbers belong to ended commits that never become visible: those that stopped, and
    /// those after one that stopped.
    refused: u64,
}

/// A commit that could not be finished.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Its first number. `visible` stays below it.
    pub(crate) first: SequenceNumber,
    pub(crate) cause: Error,
}

impl Order {
    /// `ReadOnly` if `last` never becomes visible.
    fn admit(&self, last: SequenceNumber) -> Result<()> {
        match &self.stop {
            Some(stop) if stop.first <= last => Err(Error::read_only(stop.cause.clone())),
            _ => Ok(()),
        }
    }
}

impl Publication {
    /// Begins with everything up to `visible` published.
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
        // ORDERING: Acquire pairs with the Release in `exchange`: entries that were published are
        // in their table, and a table that was closed before is seen as closed.
        self.visible.load(Ordering::Acquire) >> 1
    }

    /// The place for the mark of a commit that begins with this number.
    #[inline(always)]
    fn mark(&self, first: SequenceNumber) -> &AtomicU64 {
        let lines = PLACES.div_ceil(LINE);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "only the low bits are used"
        )]
        let first = first as usize;
        &self.marks[(first % lines * LINE + first / lines % LINE) % PLACES]
    }

    /// Records that the entries of a commit are in, and waits until the commit is visible, or never
    /// will be.
    ///
    /// # Errors
    /// `ReadOnly` if an earlier commit stopped.
    #[inline(always)]
    pub(crate) fn complete(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        if self.publish(first, last) {
            Ok(())
        } else {
            self.complete_later(Taken { first, last })
        }
    }

    /// Makes a commit visible whose entries are in, if it is the next one, and then those after it
    /// that left marks. Returns whether it was the next one.
    #[inline(always)]
    pub(crate) fn publish(&self, first: SequenceNumber, last: SequenceNumber) -> bool {
        let before = (first - 1) << 1;
        if self.exchange(before, last).is_err() {
            return self.publish_slowly(first - 1, last);
        }
        // ORDERING: Relaxed: `follow` loads it again. After the exchange (PUBLICATION-2).
        if self.mark(last + 1).load(Ordering::Relaxed) > last {
            self.follow(last);
        }
        true
    }

    /// `publish` if threads sleep, or if the commit is not the next one.
    #[cold]
    #[inline(never)]
    fn publish_slowly(&self, before: SequenceNumber, last: SequenceNumber) -> bool {
        let is_next = self.advance(before, last);
        if is_next {
            self.follow(last);
        }
        is_next
    }

    /// Exchanges the word `before` for the number `last`, and keeps the bit of `before`.
    #[inline(always)]
    fn exchange(&self, before: u64, last: SequenceNumber) -> Result<u64, u64> {
        // ORDERING: Release pairs with the Acquire in `visible` and here: all entries up to `last`
        // are in, also those of commits that left a mark, or that wait under the lock of a
        // journal's turn. Acquire pairs with the Release of the exchanges that published earlier
        // numbers, of `pass_on` (PUBLICATION-2), and of `sleep`. Relaxed: nothing was published.
        self.visible.compare_exchange(
            before,
            last << 1 | before & ASLEEP,
            Ordering::AcqRel,
            Ordering::Relaxed,
        )
    }

    /// Advances the visible number from `before` to `last`, and wakes the threads that sleep for
    /// it. Returns false if the visible number is not `before`.
    fn advance(&self, before: SequenceNumber, last: SequenceNumber) -> bool {
        let mut seen = before << 1;
        loop {
            match self.exchange(seen, last) {
                Ok(_) => break,
                // Only the bit of the sleepers changed.
                Err(now) if now >> 1 == before => seen = now,
                Err(_) => return false,
            }
        }
        if seen & ASLEEP != 0 {
            self.wake(last);
        }
        true
    }

    /// Publishes the commits after the number `last`, which is visible, that left marks
    /// (PUBLICATION-2).
    #[cold]
    #[inline(never)]
    fn follow(&self, mut last: SequenceNumber) {
        loop {
            let mut end = last;
            // ORDERING: Acquire pairs with the Release in `leave_mark`: the entries are in.
            while let mark = self.mark(end + 1).load(Ordering::Acquire)
                && mark > end
            {
                end = mark;
            }
            // If another thread published the first of them, it also publishes what follows.
            if end == last || !self.advance(last, end) {
                return;
            }
            last = end;
        }
    }

    /// `complete` of a commit that is not the next one. Once a commit that never becomes visible
    /// has ended, it is counted in `refused`.
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

    /// Leaves the mark of a commit once its place is free. Publishes the commit if it has become
    /// the next one meanwhile.
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

    /// Changes `visible` to the value that it has. Returns the visible number (PUBLICATION-2).
    fn pass_on(&self) -> SequenceNumber {
        // ORDERING: Release pairs with the Acquire in `exchange`: a thread that advances `visible`
        // after this sees the mark. Acquire pairs with its Release: earlier advances are seen.
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

    /// Sleeps until `last` is visible, or until a commit stops (PUBLICATION-4).
    fn sleep(&self, last: SequenceNumber) -> Result<()> {
        let mut order = self.order.lock();
        order.admit(last)?;
        let flag = order.sleepers.add(last);
        self.note_earliest(&order);
        // ORDERING: Release pairs with the Acquire in `exchange`: a thread that advances `visible`
        // after this sees the bit, and `earliest`. Acquire pairs with its Release: earlier advances
        // are seen.
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
        // ORDERING: Relaxed: it was stored before the bit that this thread's exchange saw, or later
        // by a thread that woke all sleepers of smaller numbers.
        if self.earliest.load(Ordering::Relaxed) <= last {
            self.wake_up_to(last, self.order.lock());
        }
    }

    fn wake_up_to(&self, visible: SequenceNumber, mut order: MutexGuard<'_, Order>) {
        let woken = order.sleepers.up_to(visible);
        self.note_earliest(&order);
        if order.sleepers.earliest().is_none() {
            // ORDERING: Relaxed: it publishes nothing, and it continues the release sequence of the
            // exchanges before it.
            self.visible.fetch_and(!ASLEEP, Ordering::Relaxed);
        }
        drop(order);
        woken.iter().for_each(|flag| flag.wake());
    }

    fn note_earliest(&self, order: &Order) {
        let earliest = order.sleepers.earliest().unwrap_or(u64::MAX);
        // ORDERING: Relaxed: under the lock. The bit, which is set afterwards, publishes it.
        self.earliest.store(earliest, Ordering::Relaxed);
    }

    /// Records that the commit of these numbers was not finished. Commits after it never become
    /// visible. Returns whether it is the first commit that stops.
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
        // ORDERING: Relaxed: a commit that takes a number without seeing it gets the error from
        // `complete`.
        self.has_stop.store(1, Ordering::Relaxed);
        // Wakes all: each checks again whether its number can become visible.
        self.wake_up_to(SequenceNumber::MAX, order);
        self.ended.notify_all();
        is_first
    }

    /// Fails with `ReadOnly` if a commit stopped.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        // ORDERING: Relaxed: a hint, see `stop`. The cause is under the lock.
        if self.has_stop.load(Ordering::Relaxed) == 0 {
            Ok(())
        } else {
            self.cause().map_or(Ok(()), Err)
        }
    }

    /// The error of the commit that stopped, if one did.
    #[cold]
    pub(crate) fn cause(&self) -> Option<Error> {
        self.order
            .lock()
            .stop
            .as_ref()
            .map(|stop| Error::read_only(stop.cause.clone()))
    }

    /// If a commit stopped, waits until all commits up to `last` have ended: the numbers of an
    /// ended commit are visible or counted in `refused`. `last` is the last number that was taken;
    /// the caller keeps new ones away.
    pub(crate) fn wait_until_ended(&self, last: SequenceNumber) -> Option<Stop> {
        loop {
            let order = self.order.lock();
            let stop = order.stop.clone()?;
            let before = stop.first - 1;
            if self.visible() < before {
                drop(order);
                // If one of these commits stops meanwhile, the next round finds it as the stop.
                let _ = self.wait_for(before);
            } else if order.refused < last - before {
                drop(self.ended.wait(order));
            } else {
                return Some(stop);
            }
        }
    }

    /// Makes numbers up to `last` visible without a commit: a replay continues after them. No
    /// commit is under way, and the caller has the commit mutex.
    pub(crate) fn skip_to(&self, last: SequenceNumber) {
        let visible = self.visible();
        if visible < last {
            self.advance(visible, last);
        }
    }
}
