//! Tests of the index against brute force: random tombstones, orders of arrival, and snapshots. The
//! files below test one topic each.
//!
//! Every failure names its seed. Replay it with
//! `PARANOID_SEED=<seed> cargo test --lib tombstone::tests`.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

pub(super) mod fixture;
mod threads;
mod common_prefix;
pub(super) mod regions;
mod faults;
mod lost_writes;
mod open_index;
mod coverage_node;
mod tree_builder;
mod node_merge;
mod query;
mod costs;

use std::cmp::Ordering as Order;
use std::sync::Arc;

use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality};
use crate::integrity::hash::splitmix;
use crate::integrity::tag::Secret;
use crate::tombstone::Fragmenter;
use crate::tombstone::index::CoveringRun;
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::tests::fixture::Index;

/// Orders keys by descending bytes, without prefixes: every comparison is a tie of prefixes.
#[derive(Debug, Clone)]
struct Descending;

impl Comparator for Descending {
    fn name(&self) -> &str {
        "test.Descending"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Order {
        right.cmp(left)
    }
}

/// This order, as an index takes it.
fn asked(comparator: impl Comparator) -> KeyComparator {
    let shared: Arc<dyn Comparator> = Arc::new(comparator);
    shared.into()
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix(splitmix(self.0) ^ 0x5eed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("PARANOID_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count).collect(),
    }
}

type Span = (Vec<u8>, Vec<u8>, u64);

/// A key in one of six styles: short; with a long common prefix; with a long tail; with the prefix
/// of padding; sometimes longer by 290 bytes; with the prefix of three other keys.
fn key(rng: &mut Rng, style: u64, number: u64) -> Vec<u8> {
    let number = number.to_be_bytes();
    let digits = &number[6..];
    match style {
        0 => digits.to_vec(),
        1 => [b"common-prefix-", digits].concat(),
        2 => [digits, b"-and-a-tail-that-is-longer-than-thirty-two-bytes"].concat(),
        3 => [&[0xff; 8][..], digits].concat(),
        5 => [
            &key(rng, 0, u64::from_be_bytes(number) / 4)[..],
            b"-group",
            &[number[7] % 4],
        ]
        .concat(),
        _ => [&[7; 300][..rng.0 as usize % 2 * 290], digits].concat(),
    }
}

fn span(comparator: &KeyComparator, rng: &mut Rng, style: u64, space: u64, width: u64) -> Span {
    loop {
        let first = rng.below(space);
        let second = (first + 1 + rng.below(width)).min(space);
        let (a, b) = (key(rng, style, first), key(rng, style, second));
        match comparator.compare(&a, &b) {
            Order::Less => return (a, b, 0),
            Order::Greater => return (b, a, 0),
            Order::Equal => {}
        }
    }
}

/// Draws tombstones with sequence numbers, in order of arrival.
fn draw(comparator: &KeyComparator, rng: &mut Rng, len: u64) -> (Vec<Span>, u64, u64) {
    let (style, space) = (rng.below(6), [5, 60, 3000, 60_000][rng.below(4) as usize]);
    let width = [1, 3, space / 10 + 1, space][rng.below(4) as usize];
    let mut spans: Vec<Span> = (0..len)
        .map(|_| span(comparator, rng, style, space, width))
        .collect();
    let order = rng.below(5);
    for (index, span) in spans.iter_mut().enumerate() {
        let index = index as u64;
        span.2 = match order {
            0 => index + 1,
            1 => len - index,
            2 => 1 + rng.below(len),
            3 => (index + 1) * (u64::MAX / (len + 1)),
            _ => (1 + index) ^ rng.below(32),
        };
    }
    (spans, style, space)
}

/// The right answer to a query, found by a look at every tombstone.
fn brute(
    comparator: &KeyComparator,
    spans: &[Span],
    key: &[u8],
    snapshot: u64,
    floor: u64,
) -> Option<u64> {
    let covers = |span: &&Span| {
        comparator.compare(&span.0, key) != Order::Greater
            && comparator.compare(key, &span.1) == Order::Less
    };
    let seen = spans
        .iter()
        .filter(|span| span.2 <= snapshot && span.2 > floor);
    seen.filter(covers).map(|span| span.2).max()
}

fn ask(
    comparator: &KeyComparator,
    index: &Index,
    spans: &[Span],
    (key, snapshot, floor): (&[u8], u64, u64),
    note: &str,
) {
    let expected = brute(comparator, spans, key, snapshot, floor);
    let found = index
        .max_covering(comparator, Question::new(key, snapshot).above(floor))
        .unwrap();
    assert_eq!(
        found, expected,
        "{note}: key {key:?} snapshot {snapshot} floor {floor}"
    );
    let mut run = CoveringRun::default();
    let found = index
        .covering_run(
            comparator,
            Question::new(key, snapshot).above(floor),
            &mut run,
        )
        .unwrap();
    assert_eq!(found, expected, "{note}");
    assert_eq!(run.sequence, expected.unwrap_or(0), "{note}");
    if found.is_some() {
        assert!(
            comparator.compare(&run.start, key) != Order::Greater,
            "{note}"
        );
        assert!(comparator.compare(key, &run.end) == Order::Less, "{note}");
        for probe in spans
            .iter()
            .flat_map(|span| [&span.0, &span.1])
            .take(12)
            .chain([&run.start])
        {
            let inside = comparator.compare(&run.start, probe) != Order::Greater
                && comparator.compare(probe, &run.end) == Order::Less;
            let there = brute(comparator, spans, probe, snapshot, floor);
            assert!(
                !inside || there >= Some(run.sequence),
                "{note}: run {run:?} probe {probe:?}"
            );
        }
    }
}

fn drive(comparator: KeyComparator, seed: u64, len: u64, queries: u64) {
    let mut rng = Rng(seed << 32);
    let (spans, style, space) = draw(&comparator, &mut rng, len);
    let keys = (style, space);
    let index = Index::new(Secret::from_seed(seed));
    assert_eq!(index.len(), Ok(0));
    let steps = queries / len.max(1) + 1;
    let lazy = rng.below(3);
    for (count, span) in spans.iter().enumerate() {
        match lazy {
            0 => index
                .append(&comparator, &span.0, &span.1, span.2)
                .map(drop)
                .unwrap(),
            _ => index.insert(&comparator, &span.0, &span.1, span.2).unwrap(),
        }
        match rng.below(300) {
            0 => index.merge_all(&comparator),
            1 if lazy == 2 => index.finish(&comparator),
            _ => {}
        }
        assert_eq!(index.len().unwrap() as usize, count + 1);
        for _ in 0..steps {
            question(&comparator, &index, &spans[..=count], &mut rng, keys, seed);
        }
        if rng.below(8) == 0 {
            together(&comparator, &index, &spans[..=count], &mut rng, keys, seed);
        }
    }
    index.finish(&comparator);
    index.scrub(&mut || (), &mut |corruption| {
        panic!("seed {seed}: {corruption}")
    });
    for _ in 0..queries {
        question(&comparator, &index, &spans, &mut rng, keys, seed);
    }
    together(&comparator, &index, &spans, &mut rng, keys, seed);
    let mut run = CoveringRun::default();
    let newest = spans.iter().max_by_key(|span| span.2).unwrap();
    let found = index
        .covering_run(&comparator, Question::new(&newest.0, u64::MAX), &mut run)
        .unwrap();
    assert_eq!((found, run.sequence), (Some(newest.2), newest.2));
    fragments(
        &comparator,
        &index,
        &spans,
        &format!("PARANOID_SEED={seed}"),
    );
    let finished = at_once(&comparator, seed, &spans);
    for _ in 0..queries {
        question(&comparator, &finished, &spans, &mut rng, keys, seed);
    }
    fragments(
        &comparator,
        &finished,
        &spans,
        &format!("PARANOID_SEED={seed}, at once"),
    );
}

/// A finished index that got no node before it had all records.
fn at_once(comparator: &KeyComparator, seed: u64, spans: &[Span]) -> Index {
    let index = Index::new(Secret::from_seed(seed));
    for (start, end, sequence) in spans {
        index.append(comparator, start, end, *sequence).unwrap();
    }
    index.finish(comparator);
    index.scrub(&mut || (), &mut |corruption| {
        panic!("seed {seed}: {corruption}")
    });
    index
}

/// Compares the fragments that a finished index returns with those that a fragmenter cuts.
fn fragments(comparator: &KeyComparator, index: &Index, spans: &[Span], note: &str) {
    let (oldest, newest) = spans.iter().fold((u64::MAX, 0), |(oldest, newest), span| {
        (oldest.min(span.2), newest.max(span.2))
    });
    assert!(
        newest == 0 || index.fragments(comparator, newest - 1).unwrap().is_none(),
        "{note}: one is not seen"
    );
    let kept = index.fragments(comparator, newest).unwrap();
    assert_eq!(kept.is_some(), oldest > 0, "{note}");
    let Some(kept) = kept else { return };
    let mut fragmenter = Fragmenter::under(comparator.clone()).with_snapshots(&[]);
    for (start, end, sequence) in spans {
        fragmenter
            .add(start.as_slice(), end.as_slice(), *sequence)
            .unwrap();
    }
    let cut = fragmenter.finish();
    assert!(kept.iter().eq(cut.iter()), "{note}: {kept:?} {cut:?}");
    assert_eq!(
        (kept.unfragmented_len, kept.unfragmented_bytes),
        (cut.unfragmented_len, cut.unfragmented_bytes)
    );
}

/// Asks about many keys in one query.
fn together(
    comparator: &KeyComparator,
    index: &Index,
    spans: &[Span],
    rng: &mut Rng,
    (style, space): (u64, u64),
    seed: u64,
) {
    let known = spans[rng.below(spans.len() as u64) as usize].2;
    let snapshot = [u64::MAX, known, known.saturating_sub(1)][rng.below(3) as usize];
    let mut one = || {
        let number = rng.below(space + 2);
        (
            key(rng, style, number),
            [0, known / 2, known][rng.below(3) as usize],
        )
    };
    let keys: Vec<(Vec<u8>, u64)> = (0..20).map(|_| one()).collect();
    let mut asked: Vec<_> = keys
        .iter()
        .map(|(key, floor)| Asked::new(comparator, key, *floor))
        .collect();
    index.ask(comparator, snapshot, &mut asked).unwrap();
    for ((key, floor), one) in keys.iter().zip(asked) {
        let expected = brute(comparator, spans, key, snapshot, *floor);
        let found = one.answer();
        assert_eq!(
            found, expected,
            "PARANOID_SEED={seed}: key {key:?} snapshot {snapshot} floor {floor}, of many"
        );
    }
}

fn question(
    comparator: &KeyComparator,
    index: &Index,
    spans: &[Span],
    rng: &mut Rng,
    (style, space): (u64, u64),
    seed: u64,
) {
    let number = rng.below(space + 2);
    let key = key(rng, style, number);
    let known = spans[rng.below(spans.len() as u64) as usize].2;
    let snapshot = [u64::MAX, known, known.saturating_sub(1), rng.next()][rng.below(4) as usize];
    let floor = [0, 0, known / 2, known][rng.below(4) as usize];
    ask(
        comparator,
        index,
        spans,
        (&key, snapshot, floor),
        &format!("PARANOID_SEED={seed}"),
    );
}

#[test]
fn agrees_with_brute_force() {
    let (rounds, queries) = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => (3, 3),
        (_, true) => (9, 70),
        _ => (400, 1000),
    };
    for seed in seeds(rounds) {
        let len = [1, 2, 31, 32, 33, 64, 100, 300, 700][seed as usize % 9];
        drive(BYTEWISE.clone(), seed, len, queries);
        drive(asked(Descending), seed, len, queries);
    }
}

#[test]
#[cfg_attr(miri, ignore = "many tombstones")]
fn agrees_with_brute_force_at_size() {
    let (rounds, queries) = if cfg!(debug_assertions) {
        (1, 200)
    } else {
        (4, 15_000)
    };
    for seed in seeds(rounds) {
        drive(BYTEWISE.clone(), seed + 1000, 2000, queries);
    }
}

#[test]
fn refuses_what_is_no_range() {
    let index = Index::new(Secret::from_seed(1));
    for (start, end) in [(&b"b"[..], &b"a"[..]), (b"a", b"a"), (b"", b"")] {
        assert!(matches!(
            index.insert(&BYTEWISE, start, end, 1),
            Err(crate::error::Error::InvalidArgument(_))
        ));
    }
    assert_eq!(index.len(), Ok(0));
    assert_eq!(
        index
            .max_covering(&BYTEWISE, Question::new(b"a", u64::MAX))
            .unwrap(),
        None
    );
    index.insert(&BYTEWISE, b"", &[1; 5000], 1).unwrap();
    assert_eq!(
        index
            .max_covering(&BYTEWISE, Question::new(b"", u64::MAX))
            .unwrap(),
        Some(1)
    );
}

/// An insert takes four steps of merging, or as many as there are; it takes more if 16 blocks wait.
#[test]
fn an_insert_takes_four_steps_unless_many_blocks_wait() {
    let nodes = |index: &Index| {
        index
            .fault_regions()
            .iter()
            .filter(|region| region.name == "coverage node head")
            .count()
    };
    for (waiting, built) in [
        (0, 0),
        (7, 1),
        (15, 2),
        (23, 3),
        (119, 4),
        (127, 4),
        (143, 4),
        (1999, 310),
    ] {
        let index = Index::new(Secret::from_seed(1));
        for sequence in 1..=waiting {
            index.append(&BYTEWISE, b"a", b"b", sequence).unwrap();
        }
        assert_eq!(nodes(&index), 0);
        index.insert(&BYTEWISE, b"a", b"b", waiting + 1).unwrap();
        assert_eq!(nodes(&index), built, "{waiting} tombstones waited");
    }
}
