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
//!
//! Any thread. Reading `visible` takes no lock.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::planted::{Bug, planted};
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// Which sequence numbers are visible, and which commits are done.
#[derive(Debug)]
pub(crate) struct Publication {
    visible: AtomicU64,
    order: Mutex<Order>,
    changed: Condvar,
}

#[derive(Debug)]
struct Order {
    /// What `visible` says.
    visible: SequenceNumber,
    /// Commits that are done and not visible, first number to last.
    done: BTreeMap<SequenceNumber, SequenceNumber>,
    stop: Option<Stop>,
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
        let order = Order { visible, done: BTreeMap::new(), stop: None, waiting: 0 };
        Publication { visible: AtomicU64::new(visible), order: Mutex::new(order), changed: Condvar::new() }
    }

    /// The last visible sequence number.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        // ORDERING: Acquire pairs with the Release in `advance`: what was published is in its table, and a table that
        // was closed before says so.
        self.visible.load(Ordering::Acquire)
    }

    /// Notes that the commit of these numbers is done, and waits until it is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit before it stopped.
    pub(crate) fn complete(&self, first: SequenceNumber, last: SequenceNumber) -> Result<()> {
        let mut order = self.order.lock();
        order.done.insert(first, last);
        self.advance(&mut order);
        self.wait(order, last)
    }

    /// Waits until `last` is visible.
    ///
    /// # Errors
    /// `ReadOnly` if a commit up to it stopped.
    pub(crate) fn wait_for(&self, last: SequenceNumber) -> Result<()> {
        self.wait(self.order.lock(), last)
    }

    fn wait(&self, mut order: MutexGuard<'_, Order>, last: SequenceNumber) -> Result<()> {
        while order.visible < last {
            if let Some(stop) = order.stop.as_ref().filter(|stop| stop.first <= last) {
                return Err(Error::read_only(stop.cause.clone()));
            }
            order.waiting += 1;
            order = self.changed.wait(order);
            order.waiting -= 1;
        }
        Ok(())
    }

    /// Makes the completed prefix visible (PUBLICATION-1).
    fn advance(&self, order: &mut Order) {
        let before = order.visible;
        while let Some(entry) = order.done.first_entry() {
            let follows = *entry.key() == order.visible + 1 || planted(Bug::PublishesOutOfOrder);
            if !follows {
                break;
            }
            order.visible = entry.remove();
        }
        if order.visible == before {
            return;
        }
        // ORDERING: Release pairs with the Acquire in `visible`. All entries up to this number were inserted before
        // their commits took this lock.
        self.visible.store(order.visible, Ordering::Release);
        if order.waiting > 0 && !planted(Bug::PublicationWakesNobody) {
            self.changed.notify_all();
        }
    }

    /// Notes that the commit with this first number was not finished. Commits after it never become visible.
    pub(crate) fn stop(&self, first: SequenceNumber, cause: Error) {
        let mut order = self.order.lock();
        let earlier = order.stop.take().unwrap_or(Stop { first, cause });
        order.stop = Some(Stop { first: earlier.first.min(first), ..earlier });
        self.changed.notify_all();
    }
}

impl Publication {
    /// Numbers up to this one belong to nobody: a replay goes on after them. Nothing is under way, and the caller has
    /// the commit mutex.
    pub(crate) fn skip_to(&self, last: SequenceNumber) {
        let mut order = self.order.lock();
        order.visible = order.visible.max(last);
        // ORDERING: Release pairs with the Acquire in `visible`, as that in `advance`.
        self.visible.store(order.visible, Ordering::Release);
    }
}
