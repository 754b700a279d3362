//! Control words with a third copy: damage to one copy costs no answer, and is put right.
//!
//! ```text
//!   values   | v0 | v1 | v2 | ... |
//!   checks   | c0 | c1 | c2 | ... |     check of word i: b(i) + v
//!   spares   | s0 | s1 | s2 | ... |     spare of word i: b(i) + v * SPARE        b(i) = salt + (i + 1) * STEP
//! ```
//! A reader compares a value with its check, as `control_word.rs` says, and loads no spare. If the
//! two disagree, the value that two of the three copies have is the right one (SPARE-2), and the
//! third copy is exchanged for the right one. A spare that alone is damaged is put right by a look at
//! all words: `check`.
//!
//! * SPARE-1: a lock is held while a word is set. The spare is stored first, then the check, then
//!   the value. So a word that is found without the lock, while it is being set, has a spare and a
//!   check that agree on the new value, or a check and a value that agree on the old one; the spare
//!   and the check never agree on an old value once a reader has seen the new one.
//! * SPARE-2: a copy names a value only together with the index of its word and with the salt, and
//!   check and spare name it by different formulas. So one damaged place, which may be a stretch over
//!   all three copies, does not make two copies name one wrong value: not if it is cleared, filled,
//!   or copied from other words, and not if two of the copies change places.
//!
//! Any thread. A reader waits for the lock only if neither value nor spare agrees with the check.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::integrity::control_word::{
    ControlWords, Lines, SALT_FACTOR, SPARE, Salt, Words, damage, mark, spare_of,
};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Decides whether a copy of a word may be put right. It gets the address of the copy, what was
/// found there, and what it should be. It is called without a lock of the words.
pub(crate) type Admit<'a> = &'a dyn Fn(usize, u64, u64) -> bool;

/// `N` control words, each with a third copy.
pub(crate) struct SpareWords<const N: usize> {
    words: ControlWords<N>,
    spares: Lines<N>,
    /// Held while a word is set, or a copy put right.
    changing: Mutex<()>,
}

/// What the copies of a word are made with.
#[derive(Clone, Copy)]
pub(crate) enum Key {
    Salt(Salt),
    /// The word is the one of which the salt is made.
    Itself,
}

/// The three copies of a word: value, check, spare.
type Copies = [u64; 3];

/// The copies of word `index`.
fn copies_of(key: Key, index: usize, value: u64) -> Copies {
    let salt = match key {
        Key::Salt(salt) => salt,
        Key::Itself => Salt::of_word(value),
    };
    let base = salt.0.wrapping_add(mark(index));
    [value, base.wrapping_add(value), spare_of(base, value)]
}

/// The values that the three copies name.
fn named_by(key: Key, index: usize, [value, check, spare]: Copies) -> Copies {
    let base = match key {
        Key::Salt(salt) => salt.0.wrapping_add(mark(index)),
        Key::Itself => mark(index),
    };
    // The word and its salt, added, are a multiple of the word.
    let of_check = match key {
        Key::Salt(_) => 1,
        Key::Itself => const { inverse(SALT_FACTOR + 1) },
    };
    let of_spare = match key {
        Key::Salt(_) => const { inverse(SPARE) },
        Key::Itself => const { inverse(SALT_FACTOR + SPARE) },
    };
    [
        value,
        check.wrapping_sub(base).wrapping_mul(of_check),
        spare.wrapping_sub(base).wrapping_mul(of_spare),
    ]
}

/// The value that two of the three copies name.
fn named_by_two(key: Key, index: usize, copies: Copies) -> Option<u64> {
    let [value, check, spare] = named_by(key, index, copies);
    if value == check || value == spare {
        Some(value)
    } else {
        (check == spare).then_some(check)
    }
}

/// The number whose product with this odd number is 1, modulo 2^64. Each round doubles the number
/// of right bits, of which there are three at first.
const fn inverse(odd: u64) -> u64 {
    assert!(odd % 2 == 1, "only odd numbers have an inverse");
    let (mut inverse, mut bits) = (odd, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

impl<const N: usize> SpareWords<N> {
    /// `N` words of 0.
    #[inline(always)]
    pub(crate) fn new(salt: Salt) -> Self {
        let spare = |index| AtomicU64::new(copies_of(Key::Salt(salt), index, 0)[2]);
        SpareWords {
            words: ControlWords::new(salt),
            spares: Lines(std::array::from_fn(spare)),
            changing: Mutex::default(),
        }
    }

    /// A word, whatever its check says.
    #[inline(always)]
    pub(crate) fn unchecked(&self, index: usize) -> u64 {
        self.words.unchecked(index)
    }

    /// A word, and the difference of its check: see [`ControlWords::get_with_mismatch`].
    #[inline(always)]
    pub(crate) fn get_with_mismatch(&self, salt: Salt, index: usize) -> (u64, u64) {
        self.words.get_with_mismatch(salt, index)
    }

    /// Several words, and the differences of their checks: see [`ControlWords::get_all`].
    #[inline(always)]
    pub(crate) fn get_all<const K: usize>(
        &self,
        salt: Salt,
        indexes: [usize; K],
    ) -> ([u64; K], u64) {
        self.words.get_all(salt, indexes)
    }

    /// A word whose check agrees, after one damaged copy was put right, or a report of damage.
    #[inline(always)]
    pub(crate) fn get(
        &self,
        salt: Salt,
        index: usize,
        admit: Admit<'_>,
    ) -> Result<u64, Corruption> {
        let (value, mismatch) = self.words.get_with_mismatch(salt, index);
        if mismatch == 0 {
            Ok(value)
        } else {
            self.settled(Key::Salt(salt), index, admit)
        }
    }

    /// Sets a word (SPARE-1).
    pub(crate) fn set(&self, salt: Salt, index: usize, value: u64) {
        let [_, _, spare] = copies_of(Key::Salt(salt), index, value);
        let _changing = self.changing.lock();
        // ORDERING: Release pairs with the Acquire in `copies`. Stored before the check, whose
        // Release orders it: a reader that sees the new check sees this spare, or a later one.
        self.spares.0[index].store(spare, Ordering::Release);
        self.words.set(salt, index, value);
    }

    /// The word that two of its three copies name, after the third one was put right, or a report
    /// of damage. If the third one may not be put right, value and check decide.
    #[cold]
    #[inline(never)]
    pub(crate) fn settled(
        &self,
        key: Key,
        index: usize,
        admit: Admit<'_>,
    ) -> Result<u64, Corruption> {
        let mut changing = self.changing.try_lock();
        let mut found = self.copies(index);
        if changing.is_none() {
            // Another thread sets a word, perhaps this one. Then the check names the new value or the
            // old one, and another copy does, too.
            let [value, check, spare] = named_by(key, index, found);
            if check == value || check == spare {
                return Ok(check);
            }
            changing = Some(self.changing.lock());
            found = self.copies(index);
        }
        drop(changing);
        let damaged = || damage(self.salt_of(key), index, found[0], found[1]);
        let value = named_by_two(key, index, found).ok_or_else(damaged)?;
        let right = copies_of(key, index, value);
        let Some(which) = (0..3).find(|which| found[*which] != right[*which]) else {
            return Ok(value);
        };
        let copy = self.copy(which, index);
        if !admit(std::ptr::from_ref(copy).addr(), found[which], right[which]) {
            return if which == 2 {
                Ok(value)
            } else {
                Err(damaged())
            };
        }
        let _changing = self.changing.lock();
        if self.copies(index) == found {
            // ORDERING: Release pairs with the Acquire in `get_with_mismatch` and in `copies`: what
            // the thread that set the word had stored before, and `copies` has seen.
            copy.store(right[which], Ordering::Release);
        }
        Ok(value)
    }

    /// Looks at all copies of all words, and puts right what is damaged. The first word for which
    /// this is not possible is reported. `keys` has the key of each word.
    pub(crate) fn check(
        &self,
        key: impl Fn(usize) -> Key,
        admit: Admit<'_>,
    ) -> Result<(), Corruption> {
        for index in 0..N {
            let found = self.copies(index);
            if found != copies_of(key(index), index, found[0]) {
                self.settled(key(index), index, admit)?;
            }
        }
        Ok(())
    }

    fn salt_of(&self, key: Key) -> Salt {
        match key {
            Key::Salt(salt) => salt,
            Key::Itself => Salt::of_word(self.unchecked(0)),
        }
    }

    /// The copies of a word, as they are.
    fn copies(&self, index: usize) -> Copies {
        // ORDERING: Acquire pairs with the Release stores in `set`, value first: a check is at least
        // as new as the value that was seen before, a spare as the check (SPARE-1).
        [0, 1, 2].map(|which| self.copy(which, index).load(Ordering::Acquire))
    }

    pub(super) fn copy(&self, which: usize, index: usize) -> &AtomicU64 {
        match which {
            2 => &self.spares.0[index],
            _ => self.words.copy(which, index),
        }
    }

    /// All copies, for scrubs and the fault injector.
    pub(crate) fn words(&self, salt: Salt) -> Words<'_> {
        self.words.words_with(salt, &self.spares.0)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::integrity::hash::splitmix;

    const WORDS: usize = 9;
    const STORED: u64 = splitmix(77);

    /// The keys of words of which the first is the salt's.
    fn key(index: usize) -> Key {
        match index {
            0 => Key::Itself,
            _ => Key::Salt(Salt::of_word(STORED)),
        }
    }

    fn words() -> SpareWords<WORDS> {
        let salt = Salt::of_word(STORED);
        let words = SpareWords::new(salt);
        words.set(salt, 0, STORED);
        (2..WORDS).for_each(|index| words.set(salt, index, splitmix(index as u64) >> (7 * index)));
        words
    }

    fn all(words: &SpareWords<WORDS>) -> Vec<Copies> {
        (0..WORDS).map(|index| words.copies(index)).collect()
    }

    fn store(words: &SpareWords<WORDS>, which: usize, index: usize, value: u64) {
        // ORDERING: Relaxed: one thread.
        words.copy(which, index).store(value, Ordering::Relaxed);
    }

    /// Every bit of every copy, and copies that are cleared, filled, or back at their first value.
    #[test]
    fn one_damaged_copy_costs_nothing_and_is_put_right() {
        let words = words();
        let (clean, first) = (all(&words), SpareWords::<WORDS>::new(Salt::of_word(STORED)));
        for (which, index) in (0..3).flat_map(|which| (0..WORDS).map(move |index| (which, index))) {
            let flips = (0..64).map(|bit| clean[index][which] ^ 1 << bit);
            let old = first.copies(index)[which];
            for bad in flips.chain([0, u64::MAX, old]) {
                store(&words, which, index, bad);
                let told = RefCell::new(vec![]);
                let admit = |address, found, right| {
                    told.borrow_mut().push((address, found, right));
                    true
                };
                assert_eq!(
                    words.settled(key(index), index, &admit),
                    Ok(clean[index][0])
                );
                assert_eq!(all(&words), clean, "copy {which} of word {index}: {bad:#x}");
                store(&words, which, index, bad);
                words.check(key, &admit).unwrap();
                assert_eq!(all(&words), clean, "copy {which} of word {index}: {bad:#x}");
                let place = (
                    std::ptr::from_ref(words.copy(which, index)).addr(),
                    bad,
                    clean[index][which],
                );
                let times = if bad == clean[index][which] { 0 } else { 2 };
                assert_eq!(told.into_inner(), vec![place; times]);
            }
        }
    }

    /// What may not be put right stays, and is reported unless it is a spare.
    #[test]
    fn what_is_not_admitted_stays() {
        let words = words();
        for (which, index) in (0..3).flat_map(|which| (0..WORDS).map(move |index| (which, index))) {
            let clean = words.copies(index);
            store(&words, which, index, clean[which] ^ 16);
            let (found, settled) = (
                words.copies(index),
                words.settled(key(index), index, &|_, _, _| false),
            );
            assert_eq!((settled.is_ok(), words.copies(index)), (which == 2, found));
            assert_eq!(words.check(key, &|_, _, _| false).is_ok(), which == 2);
            store(&words, which, index, clean[which]);
        }
        store(&words, 0, 3, 5);
        store(&words, 1, 3, 6);
        assert!(
            words.settled(key(3), 3, &|_, _, _| true).is_err(),
            "two copies"
        );
    }
}
