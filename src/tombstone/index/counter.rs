//! Counters with a check, and tallies: two counters on two cache lines that vouch for each other.
//!
//! ```text
//!   begun   value (32) | check (32)     incremented before a writer stores          one line
//!   ended   value (32) | check (32)     incremented once everything is stored       another line
//! ```
//! * COUNTER-1: one word holds value and check, so a reader never sees half of a change.
//! * COUNTER-2: readers load `ended` before `begun`, so `ended` <= `begun`. If `ended` is larger, `begun` went back
//!   to an earlier value.
//! * COUNTER-3: if both are equal, no writer is at work, so everything that was begun is stored, and what is missing
//!   was lost.
//! * COUNTER-4: an `ended` that went back hides no record. It looks as if a writer were at work, until a scrub waits
//!   for all writers and finds that the two still differ.
//!
//! Who may call what: everything, any thread. Not promised while a writer is at work: that a `begun` that went back
//! to `ended` or more is noticed, or that a lost record is told from one that is being written.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::checks::{Checks, damage, high, low, pair};

type Checked<T> = std::result::Result<T, Corruption>;

/// A counter (COUNTER-1) in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Counter {
    word: AtomicU64,
    which: u32,
}

impl Counter {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Counter { word: AtomicU64::new(Self::sealed(checks, which, 0)), which }
    }

    #[inline(always)]
    fn sealed(checks: Checks, which: u32, value: u32) -> u64 {
        pair(value, checks.counter(which, value))
    }

    #[inline(always)]
    fn value(&self, checks: Checks, word: u64) -> Checked<u32> {
        let value = high(word);
        let expected = checks.counter(self.which, value);
        if low(word) == expected {
            Ok(value)
        } else {
            Err(damage(0, u64::from(expected), u64::from(low(word))))
        }
    }

    pub(crate) fn load(&self, checks: Checks) -> Checked<u32> {
        // ORDERING: relaxed; what the count makes findable is published by its own word (records, nodes), and a
        // caller that is ordered after a push reads at least that push's count (coherence).
        self.value(checks, self.word.load(Ordering::Relaxed))
    }

    /// The unverified value.
    #[inline(always)]
    pub(crate) fn hint(&self) -> u32 {
        // ORDERING: relaxed; as in `load`.
        high(self.word.load(Ordering::Relaxed))
    }

    /// Calls `next` with the counter's value v, sets the counter to the second number of the result, and returns v
    /// and the first.
    pub(crate) fn advance(
        &self,
        checks: Checks,
        next: impl Fn(u32) -> Result<(u32, u32)>,
    ) -> Result<(u32, u32)> {
        // ORDERING: relaxed; as in `load`.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let value = self.value(checks, seen)?;
            let (claimed, after) = next(value)?;
            let sealed = Self::sealed(checks, self.which, after);
            // ORDERING: release; partner: the acquire load of `ended` in `extent`: what a writer stored before it
            // larger `ended` is visible after it. Relaxed on failure: the word is read again.
            match self.word.compare_exchange_weak(seen, sealed, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok((claimed, after - value)),
                Err(other) => seen = other,
            }
        }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        std::slice::from_ref(&self.word)
    }
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
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Counter,
    ended: Counter,
}

impl Tally {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Tally { begun: Counter::new(checks, which), ended: Counter::new(checks, which) }
    }

    #[inline(always)]
    pub(crate) fn extent(&self, checks: Checks) -> Checked<Extent> {
        // ORDERING: acquire; partner: the release exchange in `Counter::advance` (COUNTER-2).
        let ended = self.ended.word.load(Ordering::Acquire);
        // ORDERING: relaxed; ordered after the acquire load above.
        let begun = self.begun.word.load(Ordering::Relaxed);
        let count = self.begun.value(checks, begun)?;
        if begun == ended { Ok(Extent { count, complete: count }) } else { self.apart(checks, count, ended) }
    }

    /// Handles counters that differ: a writer is at work, or one of them is damaged.
    #[cold]
    #[inline(never)]
    fn apart(&self, checks: Checks, count: u32, ended: u64) -> Checked<Extent> {
        let ended = self.ended.value(checks, ended)?;
        if ended > count {
            return Err(damage(0, u64::from(ended), u64::from(count)));
        }
        Ok(Extent { count, complete: 0 })
    }

    /// Claims the range that `next` returns, from the first number up to the second. Returns the first number, and
    /// the amount to pass to [`end`](Self::end).
    pub(crate) fn begin(
        &self,
        checks: Checks,
        next: impl Fn(u32) -> Result<(u32, u32)>,
    ) -> Result<(u32, u32)> {
        self.extent(checks)?;
        self.begun.advance(checks, next)
    }

    /// Reports that a claimed range is stored, or given up.
    pub(crate) fn end(&self, checks: Checks, by: u32) -> Result<()> {
        self.ended.advance(checks, |value| Ok((value, value.wrapping_add(by)))).map(|_| ())
    }

    /// Compares both counters once all writers at work have left, for which `wait` waits (COUNTER-4).
    pub(crate) fn verify(&self, checks: Checks, wait: &mut dyn FnMut()) -> Checked<()> {
        let Extent { count, complete } = self.extent(checks)?;
        if complete == count {
            return Ok(());
        }
        wait();
        self.extent(checks)?;
        // ORDERING: relaxed; every writer that had begun has left.
        let ended = self.ended.value(checks, self.ended.word.load(Ordering::Relaxed))?;
        if ended < count { Err(damage(0, u64::from(count), u64::from(ended))) } else { Ok(()) }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> [&[AtomicU64]; 2] {
        [&self.begun, &self.ended].map(Counter::words)
    }
}

#[cfg(test)]
mod tests;
