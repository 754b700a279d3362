//! Tests of control words: what disagrees with its check, and what is reported.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

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

/// Checks are what the picture says, and what is shown of words holds none of them.
#[test]
fn checks_are_sums_and_words_are_not_shown() {
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
    assert_eq!(format!("{words:?}"), "ControlWords { words: 46, .. }");
}

/// A report names the word, what its check says, what it holds, and the bit if it is one.
#[test]
fn a_changed_word_is_reported_by_name() {
    let salt = salt(6, 0);
    let words = words(salt);
    for (index, bit) in (0..WORDS).flat_map(|index| (0..64).map(move |bit| (index, bit))) {
        let clean = words.get(salt, index).unwrap();
        for (change, flipped_bit) in [(1 << bit, Some(bit)), (1 << bit | 1 << ((bit + 1) % 64), None)] {
            // ORDERING: Relaxed: one thread.
            words.values.0[index].store(clean ^ change, Ordering::Relaxed);
            let mut wanted = Corruption::new(Place::Control, 8 * index as u64, clean, clean ^ change);
            wanted.flipped_bit = flipped_bit;
            assert_eq!(words.get(salt, index), Err(wanted));
            assert_eq!(words.words(salt).damages().collect::<Vec<_>>(), [wanted]);
            assert_eq!(words.words(salt).check(), Err(wanted));
        }
        // ORDERING: Relaxed: one thread.
        words.values.0[index].store(clean, Ordering::Relaxed);
    }
    assert_eq!(words.words(salt).damages().count(), 0);
}

/// CONTROL-WORD-3: all words of another structure or table, values and checks, in the place of these.
#[test]
fn no_word_of_another_structure_is_believed() {
    for other in [salt(1, 7), salt(2, 0)] {
        let words = words(other);
        assert!((0..WORDS).all(|index| words.get(salt(1, 0), index).is_err()));
        assert_eq!(words.words(salt(1, 0)).damages().count(), WORDS);
        words.words(other).check().unwrap();
    }
}

/// CONTROL-WORD-3: a value with its check, and a check alone, taken from every word of these words and of others.
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
            for (value, check) in [taken, (taken.1, taken.0), (kept.1, kept.0), (kept.0, taken.1)] {
                // ORDERING: Relaxed: one thread.
                own.values.0[to].store(value, Ordering::Relaxed);
                // ORDERING: Relaxed: one thread.
                own.checks.0[to].store(check, Ordering::Relaxed);
                let agrees = own.get(salt, to).is_ok() || own.words(salt).check().is_ok();
                assert!(!agrees || (value, check) == kept, "{from} over {to}");
            }
            // ORDERING: Relaxed: one thread.
            own.values.0[to].store(kept.0, Ordering::Relaxed);
            // ORDERING: Relaxed: one thread.
            own.checks.0[to].store(kept.1, Ordering::Relaxed);
        }
    }
    own.words(salt).check().unwrap();
}

/// CONTROL-WORD-2, CONTROL-WORD-4: a store that never arrived, of the value or of the check.
#[test]
fn half_of_a_set_is_not_believed() {
    let salt = salt(3, 0);
    let words = ControlWords::<2>::new(salt);
    // ORDERING: Relaxed: one thread.
    let old = words.checks.0[1].load(Ordering::Relaxed);
    assert_eq!((words.get(salt, 1), words.get_or_unset(salt, 1)), (Ok(0), Ok(0)));
    words.set(salt, 1, 5);
    assert_eq!((words.get(salt, 1), words.get_or_unset(salt, 1)), (Ok(5), Ok(5)));
    // ORDERING: Relaxed: one thread.
    words.values.0[1].store(0, Ordering::Relaxed);
    assert_eq!((words.get(salt, 1).unwrap_err().expected, words.get_or_unset(salt, 1)), (5, Ok(0)));
    words.set(salt, 1, 5);
    // ORDERING: Relaxed: one thread.
    words.checks.0[1].store(old, Ordering::Relaxed);
    assert!(words.get(salt, 1).is_err() && words.get_or_unset(salt, 1).is_err());
}
