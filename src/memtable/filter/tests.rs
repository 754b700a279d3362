//! Tests of filters that grow: damage to any of their parts, and when they grow.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use crate::integrity::digest::{Width, key_part};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::filter::bloom::{Announced, Filter, KEYS};
use crate::sync::Ordering;

/// An arena for a write buffer and a hard limit of so many bytes.
pub(crate) fn arena(write_buffer: u64, hard_limit: u64) -> Arena {
    let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(7));
    Arena::new(write_buffer, hard_limit, width, secret)
}

/// Adds a key as a write does, and lets the filter grow.
pub(crate) fn add<const HOLDS: usize>(filter: &Filter<HOLDS>, view: &View<'_>, key: u64) {
    let mark = filter.mark(view, key).unwrap();
    if filter.add(view, &mark).unwrap() == Announced::LookAfter {
        filter.grow_if_full(view, &mark);
    }
}

/// A filter of two parts: 8 lines, and 64. Both have keys.
fn grown(arena: &Arena) -> (Filter<KEYS>, Vec<u64>) {
    let view = arena.view().unwrap();
    let filter = Filter::growing(view.secret, 10 << 10, 64);
    let salt = Filter::<KEYS>::salt(view.secret);
    let keys = (0..120u64).map(|n| key_part(&n.to_be_bytes()));
    let keys: Vec<u64> = keys.collect();
    keys[..60].iter().for_each(|key| add(&filter, &view, *key));
    filter.grow(arena, view.secret);
    keys[60..].iter().for_each(|key| add(&filter, &view, *key));
    assert_eq!(filter.parts.all(arena.heals(), salt).unwrap().len(), 2);
    (filter, keys)
}

/// Words of lines and control words of both parts are flipped, cleared, filled and copied from
/// each other, and control words go back to earlier values (PARTS-2).
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn damage_to_a_part_hides_no_key_of_any_part() {
    let arena = arena(1 << 20, 1 << 24);
    let (filter, keys) = grown(&arena);
    let view = arena.view().unwrap();
    let salt = Filter::<KEYS>::salt(view.secret);
    let mut words = filter.parts.every_word(&view, salt).unwrap();
    let lines = words.len();
    words.extend(filter.parts.control_words(salt).runs().flatten());
    // ORDERING: Relaxed: one thread.
    let clean: Vec<u64> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    let hidden = || keys.iter().filter(|key| filter.lacks(&view, **key)).count();
    assert_eq!(hidden(), 0);
    let judge = |from: usize, len: usize, to: &dyn Fn(usize) -> u64| {
        // ORDERING: Relaxed: one thread.
        (from..from + len).for_each(|at| words[at].store(to(at), Ordering::Relaxed));
        assert_eq!(hidden(), 0, "{len} words from {from} of {lines}");
        // ORDERING: Relaxed: one thread.
        (from..from + len).for_each(|at| words[at].store(clean[at], Ordering::Relaxed));
    };
    for at in 0..words.len() {
        let bits = if at < lines { 17 } else { 1 };
        (0..64)
            .step_by(bits)
            .for_each(|bit| judge(at, 1, &|at| clean[at] ^ 1 << bit));
        judge(at, 1, &|_| 0);
        judge(at, 1, &|_| u64::MAX);
    }
    // Stretches, of one part and of both, and of control words.
    for (from, len) in [(0, 64), (0, 73), (64, 9), (72, 512), (0, lines), (30, 90)] {
        judge(from, len, &|_| 0);
        judge(from, len, &|_| u64::MAX);
        for source in (0..lines - len + 1).step_by(if cfg!(debug_assertions) { 37 } else { 1 }) {
            judge(from, len, &|at| clean[source + at - from]);
        }
    }
    let control = words.len() - lines;
    for (from, len) in (0..control).flat_map(|from| (1..=control - from).map(move |n| (from, n))) {
        judge(lines + from, len, &|_| 0);
        judge(lines + from, len, &|at| {
            clean[lines + (at + 1 - lines) % control]
        });
    }
}

/// Every control word goes back to each value that it had while the filter grew.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn a_control_word_that_goes_back_hides_no_key() {
    let arena = arena(1 << 20, 1 << 24);
    let view = arena.view().unwrap();
    let salt = Filter::<KEYS>::salt(view.secret);
    let filter = Filter::<KEYS>::growing(view.secret, 100 << 10, 64);
    let mut history: Vec<Vec<u64>> = Vec::new();
    let words = || {
        let runs = filter.parts.control_words(salt).runs();
        runs.into_iter().flatten().collect::<Vec<_>>()
    };
    let keys: Vec<u64> = (0..900u64).map(|n| key_part(&n.to_be_bytes())).collect();
    for (number, key) in keys.iter().enumerate() {
        // ORDERING: Relaxed: one thread.
        let now: Vec<u64> = words().iter().map(|w| w.load(Ordering::Relaxed)).collect();
        if history.last() != Some(&now) {
            history.push(now);
        }
        add(&filter, &view, *key);
        if number.is_multiple_of(300) {
            filter.grow(&arena, view.secret);
        }
    }
    assert!(filter.parts.all(arena.heals(), salt).unwrap().len() == 3 && history.len() > 20);
    for (at, word) in words().into_iter().enumerate() {
        // ORDERING: Relaxed: one thread.
        let clean = word.load(Ordering::Relaxed);
        for old in &history {
            // ORDERING: Relaxed: one thread.
            word.store(old[at], Ordering::Relaxed);
            assert!(keys.iter().all(|key| !filter.lacks(&view, *key)), "{at}");
        }
        // ORDERING: Relaxed: one thread.
        word.store(clean, Ordering::Relaxed);
    }
}

/// A filter has about as many bits for each key as it should, and passes few absent keys,
/// whatever the number of keys. Keys that are written again do not make it grow.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn a_filter_grows_with_its_keys() {
    let arena = arena(64 << 20, 1 << 30);
    let view = arena.view().unwrap();
    let salt = Filter::<KEYS>::salt(view.secret);
    let filter = Filter::<KEYS>::growing(view.secret, 64 << 20, 10);
    assert!(!filter.lacks(&view, 1) && filter.parts.all(arena.heals(), salt).unwrap().is_empty());
    let part = |n: u64| key_part(&n.to_be_bytes());
    let most = if cfg!(debug_assertions) {
        10_000
    } else {
        200_000
    };
    for number in 0..most {
        add(&filter, &view, part(number));
        add(&filter, &view, part(number / 2));
        assert!(!filter.lacks(&view, part(number)));
        if (number + 1).is_power_of_two() && number > 200 {
            let parts = filter.parts.all(arena.heals(), salt).unwrap();
            let lines: u64 = parts.iter().map(|part| part.lines.count()).sum();
            let bits = lines * 512 / (number + 1);
            assert!(
                (9..=100).contains(&bits),
                "{bits} bits a key, {number} keys"
            );
            let asked = 1 << 40..(1 << 40) + 5000;
            let passed = asked.filter(|n| !filter.lacks(&view, part(*n))).count();
            assert!(passed < 400, "{passed} of 5000, {number} keys");
        }
    }
    assert!((0..most).all(|number| !filter.lacks(&view, part(number))));
}

/// An arena without room for the next part: the filter is used on.
#[test]
fn a_filter_without_room_stays_as_it_is() {
    let arena = arena(64 << 10, 5 << 10);
    let view = arena.view().unwrap();
    let filter = Filter::<KEYS>::growing(view.secret, 64 << 10, 10);
    let keys: Vec<u64> = (0..3000u64).map(|n| key_part(&n.to_be_bytes())).collect();
    keys.iter().for_each(|key| add(&filter, &view, *key));
    let salt = Filter::<KEYS>::salt(view.secret);
    assert_eq!(filter.parts.all(arena.heals(), salt).unwrap().len(), 1);
    assert!(keys.iter().all(|key| !filter.lacks(&view, *key)));
}
