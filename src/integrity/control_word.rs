//! Control words: words that decide answers, each with a check in another cache line.
//!
//! ```text
//!   line 0        | v0 | v1 | v2 | ... |
//!   ...
//!   line n        | c0 | c1 | c2 | ... |        check of word i: v + salt + (i + 1) * STEP
//! ```
//! * CONTROL-WORD-1: the check of a word is stored before its value, so a reader that sees a value
//!   sees its check too. A word is set once, from 0 to its value.
//! * CONTROL-WORD-2: a check is bound to the index of its word, to the structure that the word
//!   belongs to, and to the table's secret; not to an address, because tables move. So these do not
//!   agree: a word or a line that was copied from another place, words of another structure or
//!   table, and a value and a check that changed places.
//!
//! Some words change more than once, and may disagree with their checks while they change:
//!
//! * a writer shard's largest number, and what the shard knows of watched range tombstones: a
//!   reader then assumes the largest number;
//! * the newest part of a filter, and the groups of hashes that a part has used, which one writer at
//!   a time changes: a reader then asks the list.
//!
//! A value and its check never share a cache line. A line that went back to what it held before (a
//! store that never reached memory) therefore disagrees with the other line.
//!
//! Any thread may read. One thread sets a word, or several set it to the same value. Damage to both
//! lines at once is outside the fault model.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::integrity::hash::splitmix;
use crate::integrity::tag::Secret;
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a cache line.
const LINE: usize = 64;
/// The marks of adjacent words differ by this much. Marks of the first words fit 31 bits, so that
/// one instruction adds salt and mark.
const STEP: u64 = 0x0131_7a65;

/// The factor of a salt that is made of a stored word. Without it, the sum of value and salt would
/// stay the same if the two changed places. It is even: then they disagree unless they are equal,
/// and a check or a spare of the stored word itself names one word only. It fits 31 bits, so that it
/// is part of an instruction.
pub(super) const SALT_FACTOR: u64 = 0x2545_f492;
const _: () = assert!(SALT_FACTOR % 8 == 2);

/// The factor of a word in its spare: see `spare_words.rs`. Its remainder by 16 makes check and spare
/// name different values if they hold one number or change places, unless all bits of the value but
/// the three highest are 0.
pub(super) const SPARE: u64 = 0x9e37_79b3;
const _: () = assert!(SPARE % 16 == 3);

/// The spare of a word.
#[inline(always)]
pub(super) fn spare_of(base: u64, value: u64) -> u64 {
    base.wrapping_add(value.wrapping_mul(SPARE))
}

/// The part of a check that is bound to the word's index.
#[inline(always)]
pub(super) fn mark(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(STEP)
}

/// The part of a check that is the same for all words of a structure. Most structures do not store
/// it: a reader makes it from the table's secret and the name of the structure that it reads.
#[derive(Clone, Copy)]
pub(crate) struct Salt(pub(crate) u64);

impl Salt {
    /// The salt of a structure. No two structures of a table have the same `name`.
    #[inline(always)]
    pub(crate) const fn new(secret: Secret, name: u64) -> Salt {
        Salt(secret.mask ^ splitmix(name))
    }

    /// The salt of a structure that stores `word`, of which the salt is made, among its own words.
    #[inline(always)]
    pub(crate) const fn of_word(word: u64) -> Salt {
        Salt(word.wrapping_mul(SALT_FACTOR))
    }
}

/// `N` control words.
#[repr(C)]
pub(crate) struct ControlWords<const N: usize> {
    values: Lines<N>,
    checks: Lines<N>,
}

/// Words on cache lines of their own.
#[repr(C, align(64))]
pub(super) struct Lines<const N: usize>(pub(super) [AtomicU64; N]);

const _: () = assert!(
    align_of::<Lines<1>>() == LINE,
    "values and checks share no line"
);

impl<const N: usize> ControlWords<N> {
    /// `N` words of 0.
    #[inline(always)]
    pub(crate) fn new(salt: Salt) -> Self {
        let checks = std::array::from_fn(|index| AtomicU64::new(salt.0.wrapping_add(mark(index))));
        let values = std::array::from_fn(|_| AtomicU64::new(0));
        ControlWords {
            values: Lines(values),
            checks: Lines(checks),
        }
    }

    /// A word, whatever its check says.
    #[inline(always)]
    pub(crate) fn unchecked(&self, index: usize) -> u64 {
        // ORDERING: Relaxed: a word that was set before the words were shared and never after, or a
        // hint.
        self.values.0[index].load(Ordering::Relaxed)
    }

    /// Sets a word that was 0.
    pub(crate) fn set(&self, salt: Salt, index: usize, value: u64) {
        let check = value.wrapping_add(salt.0).wrapping_add(mark(index));
        // ORDERING: Release pairs with the Acquire in `get_with_mismatch`: a reader that sees the
        // value sees what the caller stored before.
        self.checks.0[index].store(check, Ordering::Release);
        // ORDERING: Release pairs with the Acquire in `get_with_mismatch`: the check is visible
        // before the value (CONTROL-WORD-1).
        self.values.0[index].store(value, Ordering::Release);
    }

    /// A word, and the difference between its check and what the check should be: 0 if they agree.
    /// The differences of several words can be tested with one branch.
    #[inline(always)]
    pub(crate) fn get_with_mismatch(&self, salt: Salt, index: usize) -> (u64, u64) {
        // ORDERING: Acquire pairs with the Release stores in `set`.
        let value = self.values.0[index].load(Ordering::Acquire);
        // ORDERING: Relaxed: ordered after the Acquire load above (CONTROL-WORD-1).
        let check = self.checks.0[index].load(Ordering::Relaxed);
        (
            value,
            check ^ value.wrapping_add(salt.0).wrapping_add(mark(index)),
        )
    }

    /// Several words, and the differences of their checks in one number: 0 if all agree.
    #[inline(always)]
    pub(crate) fn get_all<const K: usize>(
        &self,
        salt: Salt,
        indexes: [usize; K],
    ) -> ([u64; K], u64) {
        let (mut values, mut mismatches) = ([0; K], 0);
        for (value, index) in values.iter_mut().zip(indexes) {
            let (word, mismatch) = self.get_with_mismatch(salt, index);
            *value = word;
            mismatches |= mismatch;
        }
        (values, mismatches)
    }

    /// A word whose check agrees, or a report of damage.
    #[inline(always)]
    pub(crate) fn get(&self, salt: Salt, index: usize) -> Result<u64, Corruption> {
        let (value, mismatch) = self.get_with_mismatch(salt, index);
        if mismatch == 0 {
            Ok(value)
        } else {
            Err(self.damage(salt, index, value))
        }
    }

    /// All words and their checks, for scrubs and the fault injector.
    pub(crate) fn words(&self, salt: Salt) -> Words<'_> {
        self.words_with(salt, &[])
    }

    /// All words with their checks and spares.
    pub(super) fn words_with<'a>(&'a self, salt: Salt, spares: &'a [AtomicU64]) -> Words<'a> {
        Words {
            salt,
            values: &self.values.0,
            checks: &self.checks.0,
            spares,
        }
    }

    /// The value of a word, at 0, or its check, at 1.
    pub(super) fn copy(&self, which: usize, index: usize) -> &AtomicU64 {
        &[&self.values, &self.checks][which].0[index]
    }

    #[cold]
    fn damage(&self, salt: Salt, index: usize, value: u64) -> Corruption {
        // ORDERING: Relaxed: for a report.
        damage(
            salt,
            index,
            value,
            self.checks.0[index].load(Ordering::Relaxed),
        )
    }
}

/// Any number of control words, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    salt: Salt,
    values: &'a [AtomicU64],
    checks: &'a [AtomicU64],
    /// None, or one for each word: see `spare_words.rs`.
    spares: &'a [AtomicU64],
}

impl<'a> Words<'a> {
    /// A report for each word that disagrees with its check or its spare. Call it while no word is
    /// being set.
    pub(crate) fn damages(self) -> impl Iterator<Item = Corruption> + 'a {
        // ORDERING: Relaxed: no word is set during this pass, or its caller looks again.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        (0..self.values.len()).filter_map(move |index| {
            let [value, check] = [self.values, self.checks].map(|words| load(&words[index]));
            let base = self.salt.0.wrapping_add(mark(index));
            if check != base.wrapping_add(value) {
                return Some(damage(self.salt, index, value, check));
            }
            let (spare, expected) = (self.spares.get(index).map(load)?, spare_of(base, value));
            let report = || Corruption::of_word(Place::Control, 8 * index as u64, expected, spare);
            (spare != expected).then(report)
        })
    }

    /// The values, then the checks, then the spares, if the words have any; for tests and the fault
    /// injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn runs(self) -> impl Iterator<Item = &'a [AtomicU64]> {
        let runs = [self.values, self.checks, self.spares];
        runs.into_iter().filter(|run| !run.is_empty())
    }
}

#[cold]
pub(super) fn damage(salt: Salt, index: usize, value: u64, check: u64) -> Corruption {
    let expected = check.wrapping_sub(salt.0).wrapping_sub(mark(index));
    Corruption::of_word(Place::Control, 8 * index as u64, expected, value)
}

/// Tests of control words: which words disagree with their checks, and the reports.
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;

    const WORDS: usize = 46;

    fn salt(seed: u64, name: u64) -> Salt {
        Salt::new(Secret::from_seed(seed), name)
    }

    fn words(salt: Salt) -> ControlWords<WORDS> {
        let words = ControlWords::new(salt);
        for index in (0..WORDS).step_by(2) {
            words.set(salt, index, splitmix(index as u64) >> (index % 40));
        }
        words
    }

    /// Checks are the sums that the head of the file shows.
    #[test]
    fn checks_are_sums() {
        let salt = salt(5, 3);
        let words = words(salt);
        // ORDERING: Relaxed: one thread.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        for index in 0..WORDS {
            let sum = u128::from(words.get(salt, index).unwrap())
                + u128::from(salt.0)
                + (index as u128 + 1) * 0x0131_7a65;
            assert_eq!(u128::from(load(&words.checks.0[index])), sum % (1 << 64));
        }
    }

    /// A report names the word, the value that its check expects, the value found, and the flipped
    /// bit if it is a single one.
    #[test]
    fn a_changed_word_is_reported_by_name() {
        let salt = salt(6, 0);
        let words = words(salt);
        for (index, bit) in (0..WORDS).flat_map(|index| (0..64).map(move |bit| (index, bit))) {
            let clean = words.get(salt, index).unwrap();
            for (change, flipped_bit) in [
                (1 << bit, Some(bit)),
                (1 << bit | 1 << ((bit + 1) % 64), None),
            ] {
                // ORDERING: Relaxed: one thread.
                words.values.0[index].store(clean ^ change, Ordering::Relaxed);
                let mut wanted =
                    Corruption::new(Place::Control, 8 * index as u64, clean, clean ^ change);
                wanted.flipped_bit = flipped_bit;
                assert_eq!(words.get(salt, index), Err(wanted));
                assert_eq!(words.words(salt).damages().collect::<Vec<_>>(), [wanted]);
            }
            // ORDERING: Relaxed: one thread.
            words.values.0[index].store(clean, Ordering::Relaxed);
        }
        assert_eq!(words.words(salt).damages().count(), 0);
    }

    /// All words of another structure or table, values and checks, in the place of these
    /// (CONTROL-WORD-2).
    #[test]
    fn no_word_of_another_structure_is_believed() {
        for other in [salt(1, 7), salt(2, 0)] {
            let words = words(other);
            assert!((0..WORDS).all(|index| words.get(salt(1, 0), index).is_err()));
            assert_eq!(words.words(salt(1, 0)).damages().count(), WORDS);
            assert_eq!(words.words(other).damages().count(), 0);
        }
    }

    /// A value with its check, and a check alone, taken from every word of these words and of
    /// others (CONTROL-WORD-2).
    #[test]
    fn no_word_agrees_with_the_check_of_another() {
        let salt = self::salt(1, 0);
        let own = words(salt);
        for other in [salt, self::salt(1, 7), self::salt(2, 0)].map(words) {
            for (from, to) in (0..WORDS).flat_map(|from| (0..WORDS).map(move |to| (from, to))) {
                // ORDERING: Relaxed: one thread.
                let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
                let taken = (load(&other.values.0[from]), load(&other.checks.0[from]));
                let kept = (load(&own.values.0[to]), load(&own.checks.0[to]));
                if taken == kept {
                    continue;
                }
                for (value, check) in [
                    taken,
                    (taken.1, taken.0),
                    (kept.1, kept.0),
                    (kept.0, taken.1),
                ] {
                    // ORDERING: Relaxed: one thread.
                    own.values.0[to].store(value, Ordering::Relaxed);
                    // ORDERING: Relaxed: one thread.
                    own.checks.0[to].store(check, Ordering::Relaxed);
                    let agrees =
                        own.get(salt, to).is_ok() || own.words(salt).damages().count() == 0;
                    assert!(!agrees || (value, check) == kept, "{from} over {to}");
                }
                // ORDERING: Relaxed: one thread.
                own.values.0[to].store(kept.0, Ordering::Relaxed);
                // ORDERING: Relaxed: one thread.
                own.checks.0[to].store(kept.1, Ordering::Relaxed);
            }
        }
        assert_eq!(own.words(salt).damages().count(), 0);
    }

    /// A store that never reached memory, of the value or of the check.
    #[test]
    fn half_of_a_set_is_not_believed() {
        let salt = salt(3, 0);
        let words = ControlWords::<2>::new(salt);
        // ORDERING: Relaxed: one thread.
        let old = words.checks.0[1].load(Ordering::Relaxed);
        assert_eq!(words.get(salt, 1), Ok(0));
        words.set(salt, 1, 5);
        assert_eq!(words.get(salt, 1), Ok(5));
        // ORDERING: Relaxed: one thread.
        words.values.0[1].store(0, Ordering::Relaxed);
        assert_eq!(words.get(salt, 1).unwrap_err().expected, 5);
        words.set(salt, 1, 5);
        // ORDERING: Relaxed: one thread.
        words.checks.0[1].store(old, Ordering::Relaxed);
        assert!(words.get(salt, 1).is_err());
    }
}
