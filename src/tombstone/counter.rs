//! Counters with a check, and tallies: two counters on two cache lines that vouch for each other.
//!
//! ```text
//!   begun   value (32) | check (32)     incremented before a writer stores          one line
//!   ended   value (32) | check (32)     incremented once everything is stored       another line
//! ```
//! * COUNTER-1: one word holds value and check, so a reader never sees half of a change.
//! * COUNTER-2: readers load `ended` before `begun`, so `ended` <= `begun`. If `ended` is larger,
//!   `begun` went back to an earlier value.
//! * COUNTER-3: if both are equal, no writer is at work, so everything that was begun is stored, and
//!   what is missing was lost.
//! * COUNTER-4: an `ended` that went back hides no record. It looks as if a writer were at work,
//!   until a scrub waits for all writers and finds that the two still differ.
//!
//! Who may call what: everything, any thread. Not promised while a writer is at work: that a `begun`
//! that went back to `ended` or more is noticed, or that a lost record is told from one that is
//! being written.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::integrity::index_checks::Checks;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::segments::{damage, high, pair};
use crate::tombstone::span::Checked;

/// A counter (COUNTER-1) in a cache line of its own.
#[repr(align(64))]
pub(crate) struct Counter {
    word: AtomicU64,
    which: u32,
    checks: Checks,
}

impl Counter {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Counter {
            word: AtomicU64::new(sealed(checks, which, 0)),
            which,
            checks,
        }
    }

    #[inline(always)]
    fn value(&self, word: u64) -> Checked<u32> {
        let expected = sealed(self.checks, self.which, high(word));
        if word == expected {
            Ok(high(word))
        } else {
            Err(damage(0, expected, word))
        }
    }

    pub(crate) fn load(&self) -> Checked<u32> {
        // ORDERING: relaxed; what the count makes findable is published by its own word (records,
        // nodes), and a caller that is ordered after a push reads at least that push's count
        // (coherence).
        self.value(self.word.load(Ordering::Relaxed))
    }

    /// The unverified value.
    #[inline(always)]
    pub(crate) fn hint(&self) -> u32 {
        // ORDERING: relaxed; as in `load`.
        high(self.word.load(Ordering::Relaxed))
    }

    /// Calls `next` with the counter's value v, sets the counter to the second number of the
    /// result, and returns v and the first.
    pub(crate) fn advance(&self, next: impl Fn(u32) -> Result<(u32, u32)>) -> Result<(u32, u32)> {
        loop {
            // ORDERING: relaxed; as in `load`.
            let seen = self.word.load(Ordering::Relaxed);
            let value = self.value(seen)?;
            let (claimed, after) = next(value)?;
            if self.replace(seen, after) {
                return Ok((claimed, after - value));
            }
        }
    }

    /// Sets the counter to `after` if its word is `seen` still.
    fn replace(&self, seen: u64, after: u32) -> bool {
        let sealed = sealed(self.checks, self.which, after);
        // ORDERING: release; partner: the acquire load of `ended` in `Tally::read`: what a writer
        // stored before its larger `ended` is visible after it. Relaxed on failure: the word is
        // read again.
        self.word
            .compare_exchange_weak(seen, sealed, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        std::slice::from_ref(&self.word)
    }
}

/// Counter `which` with this value: value and check.
#[inline(always)]
const fn sealed(checks: Checks, which: u32, value: u32) -> u64 {
    pair(value, checks.counter(pair(which, value)))
}

/// The length of a log, as its tally tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// What was begun.
    pub(crate) count: u32,
    /// Records before this one are stored completely (COUNTER-3).
    pub(crate) complete: u32,
}

/// Two counters that vouch for each other.
pub(crate) struct Tally {
    begun: Counter,
    ended: Counter,
}

impl Tally {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Tally {
            begun: Counter::new(checks, which),
            ended: Counter::new(checks, which),
        }
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> Checked<Extent> {
        Ok(self.read()?.1)
    }

    /// The word of `begun`, and what it says.
    #[inline(always)]
    fn read(&self) -> Checked<(u64, Extent)> {
        // ORDERING: acquire; partner: the release exchange in `Counter::replace` (COUNTER-2).
        let ended = self.ended.word.load(Ordering::Acquire);
        // ORDERING: relaxed; ordered after the acquire load above.
        let begun = self.begun.word.load(Ordering::Relaxed);
        let count = self.begun.value(begun)?;
        let extent = if begun == ended {
            Extent {
                count,
                complete: count,
            }
        } else {
            self.apart(count, ended)?
        };
        Ok((begun, extent))
    }

    /// Handles counters that differ: a writer is at work, or one of them is damaged.
    #[cold]
    #[inline(never)]
    fn apart(&self, count: u32, ended: u64) -> Checked<Extent> {
        let ended = self.ended.value(ended)?;
        if ended > count {
            return Err(damage(0, u64::from(ended), u64::from(count)));
        }
        Ok(Extent { count, complete: 0 })
    }

    /// Claims the range that `next` returns, from the first number up to the second. Returns the
    /// first number, and the amount to pass to [`end`](Self::end).
    pub(crate) fn begin(&self, next: impl Fn(u32) -> Result<(u32, u32)>) -> Result<(u32, u32)> {
        loop {
            let (begun, Extent { count, .. }) = self.read()?;
            let (claimed, after) = next(count)?;
            if self.begun.replace(begun, after) {
                return Ok((claimed, after - count));
            }
        }
    }

    /// Reports that a claimed range is stored, or given up.
    pub(crate) fn end(&self, by: u32) -> Result<()> {
        self.ended
            .advance(|value| Ok((value, value.wrapping_add(by))))
            .map(|_| ())
    }

    /// Compares both counters once all writers at work have left, for which `wait` waits
    /// (COUNTER-4).
    pub(crate) fn verify(&self, wait: &mut dyn FnMut()) -> Checked<()> {
        let Extent { count, complete } = self.extent()?;
        if complete == count {
            return Ok(());
        }
        wait();
        self.extent()?;
        // ORDERING: relaxed; every writer that had begun has left.
        let ended = self.ended.value(self.ended.word.load(Ordering::Relaxed))?;
        if ended < count {
            Err(damage(0, u64::from(count), u64::from(ended)))
        } else {
            Ok(())
        }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> [&[AtomicU64]; 2] {
        [&self.begun, &self.ended].map(Counter::words)
    }
}
