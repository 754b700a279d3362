//! The check values of everything that the tombstone index stores, in one file that shows what each check covers.
//!
//! ```text
//!   common prefix  length, bytes                       bound to the table             64 bits
//!   log record     sequence, prefixes, what they omit  bound to its index             63 bits
//!   its keys       place, lengths                      bound to its index             32 bits
//!   log key        bytes                               bound to its place             64 bits
//!   piece          both prefixes, what they omit,
//!                  who starts and paints               bound to node and position     32 bits
//!   node head      bounds, counts, digest of pieces    bound to what the node covers  64 bits
//!   counter        value                               bound to which counter it is   32 bits
//! ```
//! * CHECKS-1: all are bound to the table's secret, so words of another table or an earlier life fail.
//! * CHECKS-2: a correct check is zero only by chance, so zeroed memory fails.
//! * CHECKS-3: the check of a record is odd and the pending mark is even, so a record that is being written never
//!   passes.
//!
//! Pure functions; any thread. Not promised: resistance against somebody who knows the secret.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::digest::{Secret, fold, hash, splitmix};
use crate::sync::{AtomicU64, Ordering};

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const PENDING: u64 = splitmix(401);
const RECORD: u64 = splitmix(402);
const KEY: u64 = splitmix(403);
const KEYS: u64 = splitmix(407);
const PIECE: u64 = splitmix(404);
const HEAD: u64 = splitmix(405);
const COUNTER: u64 = splitmix(406);
const COMMON_PREFIX: u64 = splitmix(408);
/// The bits from here on of a packed word say how many bytes its prefixes leave out.
pub(crate) const SKIP_SHIFT: u32 = 56;
const SKIP_BITS: u64 = 0xff << SKIP_SHIFT;

/// What the check of a node's piece is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover {
    /// The first and the last record that the node covers.
    pub(crate) records: u64,
    /// How many bytes the prefixes of the node leave out.
    pub(crate) skip: u32,
}

/// The check functions of one index.
#[derive(Clone, Copy)]
pub(crate) struct Checks {
    mask: u64,
    factor: u64,
}

impl Checks {
    pub(crate) const fn new(secret: Secret) -> Self {
        Checks { mask: secret.mask, factor: secret.factor }
    }

    /// The pending mark of log record `index`: its check word until the record is complete.
    #[inline(always)]
    pub(crate) const fn pending(self, index: u32) -> u64 {
        fold((index as u64) ^ self.mask ^ PENDING, self.factor) & !1
    }

    /// Check over the fields of log record `index` that decide most queries: sequence number, prefixes, and how many
    /// bytes these leave out, which is part of `lengths`.
    #[inline(always)]
    pub(crate) const fn record(self, index: u32, words: &[u64; 3], lengths: u64) -> u64 {
        let place = (index as u64).wrapping_mul(STRIDE) ^ RECORD ^ (lengths & SKIP_BITS);
        (fold(words[1] ^ self.mask, words[2] ^ self.factor)
            ^ fold(words[0] ^ self.factor.rotate_left(32), place ^ self.mask).rotate_left(21))
            | 1
    }

    /// Check over place and lengths of the keys of log record `index`.
    #[inline(always)]
    pub(crate) const fn keys(self, index: u32, place: u32, lengths: u64) -> u32 {
        let spot = ((index as u64) << 32 | place as u64) ^ KEYS;
        halved(fold(spot ^ self.mask, lengths ^ self.factor))
    }

    /// Check over key bytes stored at word `offset` of the key store.
    #[inline(always)]
    pub(crate) fn key(self, offset: u32, bytes: &[u8]) -> u64 {
        hash(bytes, self.mask ^ KEY ^ u64::from(offset).wrapping_mul(STRIDE))
    }

    /// Check over the piece at `position` of a node. It covers where the piece begins and where the next one begins.
    #[inline(always)]
    pub(crate) fn piece(
        self,
        Cover { records, skip }: Cover,
        position: u64,
        [prefix, next]: [u64; 2],
        refs: u64,
    ) -> u32 {
        let place =
            (records ^ PIECE ^ (skip as u64) << SKIP_SHIFT).wrapping_add(position.wrapping_mul(STRIDE));
        let mixed = fold(prefix ^ self.mask, next ^ self.factor ^ place.rotate_left(17))
            ^ fold(refs ^ self.factor, self.mask ^ place).rotate_left(32);
        halved(mixed)
    }

    /// Extends the digest of a node's pieces by one piece.
    #[inline(always)]
    pub(crate) const fn digest(self, so_far: u64, prefix: u64, refs: u64) -> u64 {
        fold(so_far ^ prefix ^ self.mask, refs ^ self.factor).rotate_left(5) ^ so_far.wrapping_mul(STRIDE)
    }

    /// Check over the head of a node.
    #[inline(always)]
    pub(crate) const fn head(self, cover: u64, words: &[u64; 6]) -> u64 {
        fold(words[0] ^ self.mask, words[1] ^ self.factor)
            ^ fold(words[2] ^ self.factor, words[3] ^ self.mask).rotate_left(21)
            ^ fold(words[4] ^ self.mask ^ HEAD, words[5] ^ self.factor ^ cover).rotate_left(42)
            ^ fold(cover ^ self.mask, self.factor ^ HEAD)
    }

    /// Begins the check of a common prefix of `len` bytes.
    #[inline(always)]
    pub(crate) const fn common_prefix(self, len: u64) -> u64 {
        fold(len ^ self.mask ^ COMMON_PREFIX, self.factor)
    }

    /// Extends the check of a common prefix by one word.
    #[inline(always)]
    pub(crate) const fn common_prefix_word(self, so_far: u64, word: u64) -> u64 {
        fold(so_far ^ word, self.factor ^ COMMON_PREFIX)
    }

    /// Check over counter `which`.
    #[inline(always)]
    pub(crate) const fn counter(self, which: u32, value: u32) -> u32 {
        let mixed = fold(((which as u64) << 32 | value as u64) ^ self.mask, self.factor ^ COUNTER);
        halved(mixed)
    }
}

/// Folds both halves of 64 bits into 32.
#[inline(always)]
const fn halved(mixed: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into the check")]
    let check = (mixed ^ (mixed >> 32)) as u32;
    check
}

pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cold]
pub(crate) fn damage(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Fragment, offset, expected, found)
}

// Counters with a check, and tallies: two counters on two cache lines that vouch for each other.
//
// ```text
//   begun   value (32) | check (32)     incremented before a writer stores          one line
//   ended   value (32) | check (32)     incremented once everything is stored       another line
// ```
// * COUNTER-1: one word holds value and check, so a reader never sees half of a change.
// * COUNTER-2: readers load `ended` before `begun`, so `ended` <= `begun`. If `ended` is larger, `begun` went back
//   to an earlier value.
// * COUNTER-3: if both are equal, no writer is at work, so everything that was begun is stored, and what is missing
//   was lost.
// * COUNTER-4: an `ended` that went back hides no record. It looks as if a writer were at work, until a scrub waits
//   for all writers and finds that the two still differ.
//
// Who may call what: everything, any thread. Not promised while a writer is at work: that a `begun` that went back
// to `ended` or more is noticed, or that a lost record is told from one that is being written.

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

/// Tests of tallies: what a scrub says of writers that it waits for.
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::Secret;

    const CHECKS: Checks = Checks::new(Secret::from_seed(1));

    fn begin(tally: &Tally, by: u32) -> u32 {
        tally.begin(CHECKS, |count| Ok((count, count + by))).unwrap().1
    }

    /// COUNTER-4: what has not ended after all writers have left was lost.
    #[test]
    fn a_scrub_waits_for_writers() {
        let tally = Tally::new(CHECKS, 1);
        tally.verify(CHECKS, &mut || panic!("nobody is at work")).unwrap();
        for (at_work, left, later) in [(3, 3, 0), (3, 2, 0), (5, 5, 2), (1, 0, 1)] {
            let tally = Tally::new(CHECKS, 1);
            tally.end(CHECKS, begin(&tally, 10)).unwrap();
            begin(&tally, at_work);
            let found = tally.verify(CHECKS, &mut || {
                tally.end(CHECKS, left).unwrap();
                begin(&tally, later);
                tally.end(CHECKS, later).unwrap();
            });
            let (expected, ended) = (10 + at_work, 10 + left + later);
            let lost = damage(0, u64::from(expected), u64::from(ended));
            assert_eq!(found, if ended < expected { Err(lost) } else { Ok(()) }, "{at_work} {left} {later}");
        }
    }

    /// COUNTER-2: more that ended than was begun is damage, whoever asks.
    #[test]
    fn what_ended_was_begun() {
        let tally = Tally::new(CHECKS, 1);
        tally.end(CHECKS, begin(&tally, 4)).unwrap();
        assert_eq!(tally.extent(CHECKS), Ok(Extent { count: 4, complete: 4 }));
        let one = begin(&tally, 1);
        assert_eq!((one, tally.extent(CHECKS)), (1, Ok(Extent { count: 5, complete: 0 })));
        tally.end(CHECKS, 2).unwrap();
        assert_eq!(tally.extent(CHECKS), Err(damage(0, 6, 5)));
        assert!(tally.begin(CHECKS, |count| Ok((count, count + 1))).is_err());
        let other = Counter::new(CHECKS, 2);
        assert_eq!((other.hint(), other.load(CHECKS)), (0, Ok(0)));
        assert_eq!(other.advance(CHECKS, |value| Ok((value + 7, value + 9))).unwrap(), (7, 9));
        assert_eq!((other.hint(), other.load(CHECKS)), (9, Ok(9)));
    }

    /// CHECKS-3, and every function once more: sums and divisions in place of bits and shifts.
    #[test]
    fn checks_are_what_their_formulas_say() {
        for n in (0..200).step_by(10) {
            let w = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| splitmix(n + at));
            let checks = Checks::new(Secret::from_seed(n));
            let (mask, factor, index, place) = (checks.mask, checks.factor, low(w[6]), low(w[7]));
            let both = u64::from(high(w[5])) * (1 << 32) + u64::from(low(w[5]));
            assert_eq!((pair(high(w[5]), low(w[5])), both), (w[5], w[5]));
            let half = |mixed: u64| low(mixed) ^ high(mixed);
            let pending = fold(u64::from(index) ^ mask ^ PENDING, factor);
            assert_eq!(checks.pending(index), pending - pending % 2);
            let where_from = u64::from(index).wrapping_mul(STRIDE) ^ RECORD ^ (w[3] >> 56 << 56);
            let record = fold(w[1] ^ mask, w[2] ^ factor)
                ^ fold(w[0] ^ factor.rotate_left(32), where_from ^ mask).rotate_left(21);
            assert_eq!(checks.record(index, &[w[0], w[1], w[2]], w[3]), record / 2 * 2 + 1);
            let spot = u64::from(index) * (1 << 32) + u64::from(place);
            assert_eq!(checks.keys(index, place, w[3]), half(fold(spot ^ KEYS ^ mask, w[3] ^ factor)));
            let seed = mask ^ KEY ^ u64::from(place).wrapping_mul(STRIDE);
            assert_eq!(checks.key(place, &w[0].to_le_bytes()), hash(&w[0].to_le_bytes(), seed));
            let cover = Cover { records: w[4], skip: index % 256 };
            let turned =
                (w[4] ^ PIECE ^ (u64::from(index % 256) << 56)).wrapping_add(w[3].wrapping_mul(STRIDE));
            let piece = fold(w[0] ^ mask, w[1] ^ factor ^ turned.rotate_left(17))
                ^ fold(w[2] ^ factor, mask ^ turned).rotate_left(32);
            assert_eq!(checks.piece(cover, w[3], [w[0], w[1]], w[2]), half(piece));
            let digest = fold(w[0] ^ w[1] ^ mask, w[2] ^ factor).rotate_left(5);
            assert_eq!(checks.digest(w[0], w[1], w[2]), digest ^ w[0].wrapping_mul(STRIDE));
            let head = fold(w[0] ^ mask, w[1] ^ factor)
                ^ fold(w[2] ^ factor, w[3] ^ mask).rotate_left(21)
                ^ fold(w[4] ^ mask ^ HEAD, w[5] ^ factor ^ w[6]).rotate_left(42);
            assert_eq!(
                checks.head(w[6], &[w[0], w[1], w[2], w[3], w[4], w[5]]),
                head ^ fold(w[6] ^ mask, factor ^ HEAD)
            );
            assert_eq!(checks.common_prefix(w[0]), fold(w[0] ^ mask ^ COMMON_PREFIX, factor));
            assert_eq!(checks.common_prefix_word(w[0], w[1]), fold(w[0] ^ w[1], factor ^ COMMON_PREFIX));
            assert_eq!(checks.counter(index, place), half(fold(spot ^ mask, factor ^ COUNTER)));
        }
    }
}
