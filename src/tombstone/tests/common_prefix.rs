//! Tests of bounds with a common prefix:
//!
//! * of no bytes, of some, or of more than an index stores;
//! * one that shrinks while tombstones arrive;
//! * bounds that are prefixes of each other;
//! * keys that are shorter than the common prefix, or differ from it at any byte.
//!
//! A failure names its seed. Replay it with
//! `PARANOID_SEED=<seed> cargo test --lib tombstone::tests::common_prefix`.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality, KeyOrder, bytes_at};
use crate::integrity::index_checks::Checks;
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::tests::fixture::Index;
use crate::tombstone::tests::{Rng, Span, asked, at_once, brute, fragments, seeds};

/// Orders keys by their bytes and says so; all else is the default.
#[derive(Debug, Clone)]
struct Plain;

impl Comparator for Plain {
    fn name(&self) -> &str {
        "test.Plain"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Order {
        left.cmp(right)
    }
}

/// Compares keys from the last byte to the first, so prefixes may leave out no bytes.
#[derive(Debug, Clone)]
struct FromTheEnd;

impl Comparator for FromTheEnd {
    fn name(&self) -> &str {
        "test.FromTheEnd"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Order {
        left.iter().rev().cmp(right.iter().rev())
    }
}

/// The common prefix that all bounds have at first.
fn beginning(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| {
            if at % 5 == 3 {
                0
            } else {
                (at * 89 % 256) as u8
            }
        })
        .collect()
}

/// A bound: the common prefix, sometimes cut short, and a few bytes of a small alphabet. Some
/// bounds are prefixes of others.
fn bound(rng: &mut Rng, shared: &[u8], shrinks: Shrinks) -> Vec<u8> {
    let keep = match shrinks {
        Shrinks::Never => shared.len(),
        Shrinks::Sometimes if rng.below(40) > 0 => shared.len(),
        Shrinks::Sometimes => rng.below(shared.len() as u64 + 1) as usize,
    };
    let tail = (0..rng.below(12)).map(|_| [0, 1, b'm', 0xff][rng.below(4) as usize]);
    shared[..keep]
        .iter()
        .copied()
        .chain(tail.collect::<Vec<u8>>())
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shrinks {
    Never,
    Sometimes,
}

fn draw(
    comparator: &KeyComparator,
    rng: &mut Rng,
    shared: &[u8],
    shrinks: Shrinks,
    len: u64,
) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    while (spans.len() as u64) < len {
        let (left, right) = (bound(rng, shared, shrinks), bound(rng, shared, shrinks));
        let sequence = (1 + spans.len() as u64) ^ (rng.below(4) * u64::from(rng.below(5) == 0));
        match comparator.compare(&left, &right) {
            Order::Less => spans.push((left, right, sequence)),
            Order::Greater => spans.push((right, left, sequence)),
            Order::Equal => {}
        }
    }
    spans
}

/// Bounds, keys next to them, and keys that differ from the common prefix at each byte: below it,
/// above it, or because they end there.
fn keys(rng: &mut Rng, shared: &[u8], spans: &[Span]) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], vec![0xff; 160]];
    for at in 0..shared.len() {
        let at = if at > 30 {
            rng.below(shared.len() as u64) as usize
        } else {
            at
        };
        keys.push(shared[..at].to_vec());
        for byte in [shared[at].wrapping_sub(1), shared[at].wrapping_add(1)] {
            keys.push([&shared[..at], &[byte], &shared[at + 1..], b"m"].concat());
        }
    }
    for _ in 0..60 {
        let (start, end, _) = &spans[rng.below(spans.len() as u64) as usize];
        keys.extend([start.clone(), end.clone(), [start, &[0u8][..]].concat()]);
        keys.push(end[..end.len().saturating_sub(1)].to_vec());
        keys.push(bound(rng, shared, Shrinks::Sometimes));
    }
    keys
}

fn check(comparator: &KeyComparator, index: &Index, spans: &[Span], keys: &[Vec<u8>], note: &str) {
    let newest = spans.len() as u64;
    for snapshot in [u64::MAX, newest / 2, 3] {
        let answer = |key: &Vec<u8>| brute(comparator, spans, key, snapshot, 0);
        for key in keys {
            let found = index
                .max_covering(comparator, Question::new(key, snapshot))
                .unwrap();
            assert_eq!(found, answer(key), "{note}: {key:?} at {snapshot}");
        }
        for keys in keys.chunks(16) {
            let mut asked: Vec<_> = keys
                .iter()
                .map(|key| Asked::new(comparator, key, 0))
                .collect();
            index.ask(comparator, snapshot, &mut asked).unwrap();
            for (key, one) in keys.iter().zip(asked) {
                let found = one.answer();
                assert_eq!(found, answer(key), "{note}: {key:?} at {snapshot}, of many");
            }
        }
    }
}

fn try_shared(comparator: &KeyComparator, seed: u64, shared: usize, shrinks: Shrinks, len: u64) {
    let (mut rng, shared) = (Rng(seed << 20 | shared as u64), beginning(shared));
    let spans = draw(comparator, &mut rng, &shared, shrinks, len);
    let note = format!(
        "PARANOID_SEED={seed} {} bytes shared, {shrinks:?}, {len} of {comparator:?}",
        shared.len()
    );
    let index = Index::new(Secret::from_seed(seed));
    for (count, (start, end, sequence)) in (1..).zip(&spans) {
        index.insert(comparator, start, end, *sequence).unwrap();
        if count < 10 || rng.below(60) == 0 {
            let some = keys(&mut rng, &shared, &spans[..count]);
            check(comparator, &index, &spans[..count], &some, &note);
        }
    }
    let keys = keys(&mut rng, &shared, &spans);
    check(comparator, &index, &spans, &keys, &note);
    index.finish(comparator);
    index.scrub(&mut || (), &mut |corruption| panic!("{note}: {corruption}"));
    check(comparator, &index, &spans, &keys, &note);
    fragments(comparator, &index, &spans, &note);
    check(
        comparator,
        &at_once(comparator, seed, &spans),
        &spans,
        &keys,
        &format!("{note}, at once"),
    );
}

#[test]
fn shared_beginnings_of_every_length() {
    let visibility: &[u64] = if cfg!(debug_assertions) {
        &[1, 24]
    } else {
        &[1, 2, 9, 40, 300]
    };
    let shares: &[usize] = if cfg!(debug_assertions) {
        &[0, 8, 129]
    } else {
        &[0, 1, 5, 6, 7, 8, 9, 24, 100, 127, 128, 129, 140]
    };
    for seed in seeds(if cfg!(debug_assertions) { 1 } else { 6 }) {
        for &shared in shares {
            for shrinks in [Shrinks::Never, Shrinks::Sometimes] {
                for len in visibility {
                    try_shared(&BYTEWISE, seed, shared, shrinks, *len);
                }
                try_shared(&asked(Plain), seed, shared, shrinks, 33);
                try_shared(&asked(FromTheEnd), seed, shared, shrinks, 33);
            }
        }
    }
}

/// A prefix that leaves out bytes, converted to leave out fewer, is the prefix of the same key.
#[test]
fn lifted_prefixes_are_prefixes() {
    let checks = Checks::new(Secret::from_seed(1));
    let key: Vec<u8> = (0..140u32).map(|byte| (byte * 37 % 251) as u8).collect();
    for len in (0..=128usize).step_by(if cfg!(miri) { 32 } else { 1 }) {
        let common_prefix = CommonPrefix::new(
            checks,
            &BYTEWISE,
            [&key[..len], &[&key[..len], b"x"].concat()],
        );
        assert_eq!(common_prefix.shared(&[]), Ok(0));
        for from in 0..=u32::try_from(len).unwrap() {
            assert_eq!(
                common_prefix.shared(&key[..from as usize]),
                Ok(from),
                "of {len}"
            );
            for to in 0..=from {
                let lift = common_prefix.lift(from, to).unwrap();
                let (deep, flat) = (bytes_at(&key, from as usize), bytes_at(&key, to as usize));
                assert_eq!(lift.apply(deep), flat, "{len}: {from} to {to}");
            }
        }
    }
}
