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

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::sync::{Alone, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

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

/// Whether a commit was the first one to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    First,
    Later,
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

    /// The lock, and a word that says so.
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
        let (before, after) = ((first - 1) << 1, last << 1);
        // Those before it are mostly about to end: each looks until it is next, and none needs the lock.
        for _ in 0..LOOKS {
            // ORDERING: Relaxed: decides nothing; the exchange asks again.
            if self.visible.load(Ordering::Relaxed) | LOCKED == before | LOCKED {
                break;
            }
            std::hint::spin_loop();
        }
        // ORDERING: Release pairs with the Acquire in `visible` and `lock`: all entries up to `last` are in. It follows those
        // of earlier commits, which are read with it as one sequence of exchanges. Relaxed: nothing was published.
        let published = self.visible.compare_exchange(before, after, Ordering::Release, Ordering::Relaxed);
        if published.is_ok() { Ok(()) } else { self.complete_locked(first, last) }
    }

    /// Notes it under the lock (PUBLICATION-4).
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

    /// Notes that the commit of these numbers was not finished. Commits after it never become visible.
    pub(crate) fn stop(&self, first: SequenceNumber, last: SequenceNumber, cause: Error) -> Stopped {
        let mut order = self.lock();
        let which = if order.stop.is_some() { Stopped::Later } else { Stopped::First };
        let earlier = order.stop.take().unwrap_or(Stop { first, cause });
        order.stop = Some(Stop { first: earlier.first.min(first), ..earlier });
        order.stopped += last - first + 1;
        // ORDERING: Relaxed: who takes a number and does not see it yet is told when the batch is complete.
        self.has_stop.store(1, Ordering::Relaxed);
        drop(order);
        self.changed.notify_all();
        which
    }

    /// # Errors
    /// `ReadOnly` if a commit stopped.
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
    pub(crate) fn settle(&self, last: SequenceNumber) -> Option<Stop> {
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

    /// Goes on after a stop: what is not visible never was, and the next number is the one after `last`.
    pub(crate) fn restart(&self, last: SequenceNumber) {
        let mut order = self.order.lock();
        (order.stop, order.stopped) = (None, 0);
        order.done.clear();
        // ORDERING: Relaxed: the caller has the commit mutex, under which `admit` is asked.
        self.has_stop.store(0, Ordering::Relaxed);
        order.visible = order.visible.max(last);
        self.show(&order);
    }

    /// Numbers up to this one belong to nobody: a replay goes on after them. Nothing is under way, and the caller has
    /// the commit mutex.
    pub(crate) fn skip_to(&self, last: SequenceNumber) {
        let mut order = self.lock();
        order.visible = order.visible.max(last);
        self.show(&order);
    }

    /// Stores the visible number. Without anybody to whom the next one matters, commits need no lock from here on.
    fn show(&self, order: &Order) {
        let is_quiet = order.done.is_empty() && order.stop.is_none() && order.waiting == 0;
        let bit = if is_quiet { 0 } else { LOCKED };
        // ORDERING: Release pairs with the Acquire in `visible`. All entries up to this number were inserted before
        // their commits took this lock, or were published before this thread took it.
        self.visible.store(order.visible << 1 | bit, Ordering::Release);
    }
}
