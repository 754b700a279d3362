//! Counters with a check, and tallies: two counters in two cache lines that check each other.
//!
//! ```text
//!   begun   value (32) | check (32)     incremented before a writer stores          one line
//!   ended   value (32) | check (32)     incremented after everything is stored      another line
//! ```
//! * COUNTER-1: a writer increments `begun`, stores its records, and increments `ended`; a reader
//!   loads `ended` first. So `ended` is at most `begun`, and if the two are equal, no writer is at
//!   work and everything that was begun is stored.
//!
//! Damage shows as follows, where "went back" means that memory again holds an earlier value:
//!
//! * `begun` went back: `ended` is larger. While a writer is at work this goes unnoticed if `begun`
//!   is still at least `ended`.
//! * `ended` went back: this hides no record, but looks as if a writer were at work. A scrub waits
//!   for all writers and reports that the two still differ.
//! * A record is missing although both are equal: it was lost. While a writer is at work, a lost
//!   record looks like one that is being written.
//!
//! Any thread may call everything.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::halves::{high, pair};
use crate::integrity::index_checks::Checks;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::span::{Checked, damage};

/// A counter in a cache line of its own. One word has value and check, so a reader never sees half
/// of a change.
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

    /// The verified value.
    pub(crate) fn load(&self) -> Checked<u32> {
        // ORDERING: relaxed; records and nodes are published by words of their own, and a thread
        // that is ordered after a change of the counter reads that value or a later one.
        self.value(self.word.load(Ordering::Relaxed))
    }

    /// The unverified value.
    #[inline(always)]
    pub(crate) fn hint(&self) -> u32 {
        // ORDERING: relaxed; as in `load`.
        high(self.word.load(Ordering::Relaxed))
    }

    /// Calls `next` with the counter's value and sets the counter to the second number of its
    /// result. Returns the first number, and by how much the counter grew.
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

    /// Sets the counter to `after` if its word is still `seen`.
    fn replace(&self, seen: u64, after: u32) -> bool {
        let sealed = sealed(self.checks, self.which, after);
        // ORDERING: release; partner: the acquire load of `ended` in `Tally::read`: a reader that
        // sees the new `ended` sees what the writer stored before (COUNTER-1). Relaxed on failure:
        // the word is read again.
        self.word
            .compare_exchange_weak(seen, sealed, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        std::slice::from_ref(&self.word)
    }
}

/// The word of counter `which` at this value: value and check.
#[inline(always)]
const fn sealed(checks: Checks, which: u32, value: u32) -> u64 {
    pair(value, checks.counter(pair(which, value)))
}

/// The length of a log, according to its tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of records that were begun.
    pub(crate) count: u32,
    /// Records before this one are stored completely. It is 0 while a writer is at work.
    pub(crate) complete: u32,
}

/// Two counters that check each other.
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

    /// The length of the log that this tally counts.
    #[inline(always)]
    pub(crate) fn extent(&self) -> Checked<Extent> {
        Ok(self.read()?.1)
    }

    /// The word of `begun`, and the length of the log.
    #[inline(always)]
    fn read(&self) -> Checked<(u64, Extent)> {
        // ORDERING: acquire; partner: the release exchange in `Counter::replace` (COUNTER-1).
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

    /// Calls `next` with the number of records begun, and claims the range that it returns: from
    /// the first number up to the second. Returns the first number, and the amount to pass to
    /// [`end`](Self::end).
    pub(crate) fn begin(&self, next: impl Fn(u32) -> Result<(u32, u32)>) -> Result<(u32, u32)> {
        loop {
            let (begun, Extent { count, .. }) = self.read()?;
            let (claimed, after) = next(count)?;
            if self.begun.replace(begun, after) {
                return Ok((claimed, after - count));
            }
        }
    }

    /// Reports that a claimed range of `by` records is stored.
    pub(crate) fn end(&self, by: u32) -> Result<()> {
        self.ended
            .advance(|value| Ok((value, value.wrapping_add(by))))
            .map(|_| ())
    }

    /// Compares both counters. If they differ, `wait` waits until all writers at work have left;
    /// then `ended` must have reached the earlier value of `begun`.
    pub(crate) fn verify(&self, wait: &mut dyn FnMut()) -> Checked<()> {
        let Extent { count, complete } = self.extent()?;
        if complete == count {
            return Ok(());
        }
        wait();
        self.extent()?;
        // ORDERING: relaxed; `wait` returned after every writer that had begun left.
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::integrity::tag::Secret;

    const CHECKS: Checks = Checks::new(Secret::from_seed(1));

    fn begin(tally: &Tally, by: u32) -> u32 {
        tally.begin(|count| Ok((count, count + by))).unwrap().1
    }

    /// A change of `ended` that is missing after all writers have left was lost.
    #[test]
    fn a_scrub_waits_for_writers() {
        let tally = Tally::new(CHECKS, 1);
        tally
            .verify(&mut || panic!("no writer is at work"))
            .unwrap();
        for (at_work, left, later) in [(3, 3, 0), (3, 2, 0), (5, 5, 2), (1, 0, 1)] {
            let tally = Tally::new(CHECKS, 1);
            tally.end(begin(&tally, 10)).unwrap();
            begin(&tally, at_work);
            let found = tally.verify(&mut || {
                tally.end(left).unwrap();
                begin(&tally, later);
                tally.end(later).unwrap();
            });
            let (expected, ended) = (10 + at_work, 10 + left + later);
            let lost = damage(0, u64::from(expected), u64::from(ended));
            assert_eq!(
                found,
                if ended < expected { Err(lost) } else { Ok(()) },
                "{at_work} {left} {later}"
            );
        }
    }

    /// A larger `ended` than `begun` is damage for every caller (COUNTER-1).
    #[test]
    fn what_ended_was_begun() {
        let tally = Tally::new(CHECKS, 1);
        tally.end(begin(&tally, 4)).unwrap();
        assert_eq!(
            tally.extent(),
            Ok(Extent {
                count: 4,
                complete: 4
            })
        );
        let one = begin(&tally, 1);
        assert_eq!(
            (one, tally.extent()),
            (
                1,
                Ok(Extent {
                    count: 5,
                    complete: 0
                })
            )
        );
        tally.end(2).unwrap();
        assert_eq!(tally.extent(), Err(damage(0, 6, 5)));
        assert!(tally.begin(|count| Ok((count, count + 1))).is_err());
        let other = Counter::new(CHECKS, 2);
        assert_eq!((other.hint(), other.load()), (0, Ok(0)));
        assert_eq!(
            other.advance(|value| Ok((value + 7, value + 9))).unwrap(),
            (7, 9)
        );
        assert_eq!((other.hint(), other.load()), (9, Ok(9)));
    }
}
