//! Loom models of control words with a third copy. All actors are spawned threads. Each model names
//! the planted bugs that turn it red.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::integrity::control_word::Salt;
use crate::integrity::spare_words::SpareWords;
use crate::integrity::tag::Secret;
use crate::sync::Ordering;
use crate::sync::model::{check, spawn};

const SALT: Salt = Salt::new(Secret::from_seed(1), 3);

/// A word of which copy `which` is damaged is set from 0 to 1, while two threads read it. They see
/// 0 or 1, and 1 once it was seen, and at last all three copies name 1. Red for
/// `word_set_without_lock`, `word_put_right_unseen`.
fn a_damaged_word_is_set(which: usize) {
    check(move || {
        let words = Arc::new(SpareWords::<1>::new(SALT));
        let copy = words.copy(which, 0);
        // ORDERING: Relaxed: no other thread runs yet.
        copy.store(copy.load(Ordering::Relaxed) ^ 1, Ordering::Relaxed);
        let get = |words: &SpareWords<1>| words.get(SALT, 0, &|_, _, _| true).unwrap();
        let reader = || {
            let words = Arc::clone(&words);
            spawn(move || {
                let first = get(&words);
                assert!(first <= 1 && get(&words) >= first);
            })
        };
        let readers = [reader(), reader()];
        let writer = {
            let words = Arc::clone(&words);
            spawn(move || words.set(SALT, 0, 1))
        };
        readers.map(|reader| reader.join().unwrap());
        writer.join().unwrap();
        assert_eq!(words.words(SALT).damages().count(), 0);
        assert_eq!(get(&words), 1);
    });
}

#[test]
fn loom_a_word_whose_value_is_damaged_is_set() {
    a_damaged_word_is_set(0);
}

#[test]
fn loom_a_word_whose_check_is_damaged_is_set() {
    a_damaged_word_is_set(1);
}

#[test]
fn loom_a_word_whose_spare_is_damaged_is_set() {
    a_damaged_word_is_set(2);
}
