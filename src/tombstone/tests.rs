//! Tests of the index against brute force: random tombstones, arrival orders, snapshots, threads,
//! and flipped bits.
//!
//! Every failure names its seed; replay with
//! `PARANOID_SEED=<seed> cargo test --lib tombstone::tests`.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

pub(super) mod fixture;
mod answers;
/// Prints what the index costs. Not run by default:
/// `cargo test --release --lib tombstone::tests::costs -- --ignored --nocapture`.
mod costs {
    use std::hint::black_box;
    use std::time::Instant;

    use crate::comparator::BYTEWISE;
    use crate::integrity::tag::Secret;
    use crate::tombstone::query::Question;
    use crate::tombstone::tests::fixture::Index;
    use crate::tombstone::tests::{Rng, Span};

    const SPACE: u64 = 1 << 40;

    fn name(number: u64, prefix: &[u8]) -> Vec<u8> {
        [
            prefix,
            &number.to_be_bytes(),
            &[b'k'; 16][..8 - prefix.len().min(8)],
        ]
        .concat()
    }

    fn shape(what: &str, rng: &mut Rng, index: u64, len: u64, prefix: &[u8]) -> Span {
        let (first, second) = match what {
            "disjoint" => {
                let slot = SPACE / len;
                let at = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % len) * slot;
                (at, at + slot / 2)
            }
            "1 % wide" => {
                let at = rng.below(SPACE);
                (at, at + SPACE / 100)
            }
            "prefix" => (0, index + 1),
            _ => (index * (SPACE / 2 / len), SPACE - index * (SPACE / 2 / len)),
        };
        (name(first, prefix), name(second, prefix), index + 1)
    }

    fn nanos(started: Instant, count: u64) -> f64 {
        started.elapsed().as_nanos() as f64 / count as f64
    }

    /// The median, which ignores what other programs on the machine take from single chunks.
    fn median(mut chunks: Vec<f64>) -> f64 {
        chunks.sort_by(f64::total_cmp);
        chunks[chunks.len() / 2]
    }

    fn reads(
        rng: &mut Rng,
        prefix: &[u8],
        count: u64,
        mut ask: impl FnMut(&[u8], u64) -> Option<u64>,
    ) -> f64 {
        let keys: Vec<Vec<u8>> = (0..4096).map(|_| name(rng.below(SPACE), prefix)).collect();
        let chunk = 1000;
        let chunks = (0..count / chunk).map(|_| {
            let started = Instant::now();
            for turn in 0..chunk {
                black_box(ask(&keys[(turn % 4096) as usize], rng.next()));
            }
            nanos(started, chunk)
        });
        median(chunks.collect())
    }

    fn measure(what: &str, len: u64, prefix: &[u8]) {
        let mut rng = Rng(len);
        let spans: Vec<Span> = (0..len)
            .map(|index| shape(what, &mut rng, index, len, prefix))
            .collect();
        let index = Index::new(Secret::from_seed(1));
        let mut worst = 0;
        let pairs = spans.chunks(50).map(|spans_now| {
            let chunk_started = Instant::now();
            for span in spans_now {
                let now = Instant::now();
                index.insert(&BYTEWISE, &span.0, &span.1, span.2).unwrap();
                worst = worst.max(now.elapsed().as_nanos());
                let key = &spans[rng.below(span.2) as usize].0;
                black_box(
                    index
                        .max_covering(&BYTEWISE, Question::new(key, u64::MAX))
                        .unwrap(),
                );
            }
            nanos(chunk_started, spans_now.len() as u64)
        });
        let pair = median(pairs.collect());
        let count = 200_000;
        let latest = reads(&mut rng, prefix, count, |key, _| {
            index
                .max_covering(&BYTEWISE, Question::new(key, u64::MAX))
                .unwrap()
        });
        let old = reads(&mut rng, prefix, count, |key, r| {
            index
                .max_covering(&BYTEWISE, Question::new(key, r % len))
                .unwrap()
        });
        let live_bytes = index.allocated_bytes() >> 10;
        let started = Instant::now();
        index.finish(&BYTEWISE);
        let build = nanos(started, 1000);
        let frozen_latest = reads(&mut rng, prefix, count, |key, _| {
            index
                .max_covering(&BYTEWISE, Question::new(key, u64::MAX))
                .unwrap()
        });
        let none = reads(&mut rng, prefix, count, |key, r| {
            Some(r ^ u64::from(key[0]))
        });
        println!(
            "{what:9} {len:7} | pair {pair:6.0} worst insert {:5} us | latest {:5.0} old {:5.0} frozen {:5.0} ns | \
         {live_bytes:6} KiB | build {build:7.0} us",
            worst / 1000,
            latest - none,
            old - none,
            frozen_latest - none,
        );
    }

    #[test]
    #[ignore = "a measurement"]
    fn print_costs() {
        for prefix in [&b""[..], b"tenant-0"] {
            println!(
                "keys of 16 bytes, common beginning {}",
                String::from_utf8_lossy(prefix)
            );
            for what in ["disjoint", "1 % wide", "nested", "prefix"] {
                for len in [100, 1000, 1010, 1024, 10_000, 100_000] {
                    measure(what, len, prefix);
                }
            }
        }
    }
}

pub(super) mod regions;
mod faults;
pub(super) mod parts;
/// Coverage nodes of every size, and which queries they exclude.
mod nodes {
    use crate::comparator::BYTEWISE;
    use crate::integrity::index_checks::{Checks, Cover};
    use crate::integrity::tag::Secret;
    use crate::tombstone::common_prefix::{CommonPrefix, Probe};
    use crate::tombstone::counter::Extent;
    use crate::tombstone::log::NOBODY;
    use crate::tombstone::node::{Builder, CoverageNode, Piece};
    use crate::tombstone::query::Search;
    use crate::tombstone::segments::pair;
    use crate::tombstone::tests::fixture::Nodes;
    use crate::tombstone::tree::Tree;

    const COVER: u64 = pair(8, 16);

    fn checks() -> Checks {
        Checks::new(Secret::from_seed(1))
    }

    /// A node whose pieces begin at these prefixes. The last one has no painter.
    fn node(prefixes: impl Iterator<Item = u64>) -> CoverageNode {
        let mut builder = Builder::new(
            checks(),
            Cover {
                records: COVER,
                skip: 0,
            },
            [5, 9],
            0,
        );
        let mut prefixes = (0..).zip(prefixes).peekable();
        while let Some((name, prefix)) = prefixes.next() {
            let painter = if prefixes.peek().is_some() {
                name
            } else {
                NOBODY
            };
            builder.push(Piece {
                prefix,
                name,
                painter,
            });
        }
        builder.finish()
    }

    /// QUERY-1, at each bound of a node, and one below and above it.
    #[test]
    fn a_node_excludes_what_lies_outside_of_its_bounds() {
        let bounds = node([100, 150, 200].into_iter())
            .head(checks(), COVER)
            .unwrap();
        for prefix in [0, 99, 100, 101, 199, 200, 201, u64::MAX] {
            for (best, snapshot) in
                (0..12).flat_map(|best| (0..12).map(move |snapshot| (best, snapshot)))
            {
                let inside = (100..=200).contains(&prefix) && best < 9 && snapshot >= 5;
                let key = prefix.to_be_bytes();
                let probe = Probe::new(&BYTEWISE, &key);
                assert_eq!(
                    bounds.excludes(&probe, best, snapshot),
                    !inside,
                    "{prefix} {best} {snapshot}"
                );
            }
        }
    }

    /// Sizes around one block, one line of fences, and one line of outer fences.
    #[test]
    fn nodes_of_every_size_answer() {
        let tree = Tree::new(
            checks(),
            CommonPrefix::new(checks(), &BYTEWISE, [b"a", b"b"]),
        );
        let extent = Extent {
            count: 0,
            complete: 0,
        };
        let nodes = Nodes::new();
        let search = Search {
            tree: &tree,
            source: nodes.source(&BYTEWISE),
            snapshot: u64::MAX,
            extent,
        };
        let cover = Cover {
            records: COVER,
            skip: 0,
        };
        let sizes = [2..36, 254..275, 510..516, 4080..4130, 4350..4353];
        for len in sizes
            .into_iter()
            .flatten()
            .step_by(if cfg!(miri) { 40 } else { 1 })
        {
            let node = node((1..=len).map(|number| 10 * number));
            node.verify(checks(), COVER).unwrap();
            assert_eq!(node.head(checks(), COVER).unwrap().len, len);
            let (blocks, inner) = (len.div_ceil(16), len.div_ceil(16) - 1);
            assert_eq!(
                node.allocated_bytes(),
                8 * (40 * blocks + inner + inner / 16),
                "{len}"
            );
            for number in (0..=len).step_by(if len < 40 { 1 } else { 7 }).chain([len]) {
                let key = (10 * number + 5).to_be_bytes();
                let found = search.painter(&node, cover, &Probe::new(&BYTEWISE, &key));
                let painter = number.checked_sub(1).filter(|piece| piece + 1 < len);
                assert_eq!(
                    found,
                    Ok(painter.map_or(NOBODY, |piece| piece as u32)),
                    "{number} of {len}"
                );
            }
        }
    }

    /// A builder that was given no piece makes a node that is whole and answers nothing.
    #[test]
    fn a_node_without_pieces() {
        let node = node(std::iter::empty());
        assert_eq!(
            (
                node.verify(checks(), COVER).map(drop),
                node.allocated_bytes()
            ),
            (Ok(()), 0)
        );
        assert_eq!(
            (node.stored(0), node.head(checks(), COVER).unwrap().len),
            (None, 0)
        );
    }
}

/// Bounds with a common prefix: of no bytes, some, or more than an index stores; one that shrinks
/// as tombstones arrive; bounds that are prefixes of each other; keys that are shorter than the
/// common prefix, or differ from it at any byte.
///
/// A failure names its seed; replay with
/// `PARANOID_SEED=<seed> cargo test --lib tombstone::tests::shared`.
mod shared {
    use std::cmp::Ordering as Order;

    use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality, KeyOrder};
    use crate::integrity::tag::Secret;
    use crate::tombstone::query::{Asked, Question};
    use crate::tombstone::tests::fixture::Index;
    use crate::tombstone::tests::{Rng, Span, asked, at_once, brute, fragments, seeds};

    /// Orders keys by their bytes, declares so, and leaves the rest to defaults.
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

    /// Compares from the last byte to the first, so no leading bytes may be left out.
    #[derive(Debug, Clone)]
    struct FromBehind;

    impl Comparator for FromBehind {
        fn name(&self) -> &str {
            "test.FromBehind"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Bytes
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Order {
            left.iter().rev().cmp(right.iter().rev())
        }
    }

    /// The common prefix of all bounds at first.
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

    /// A bound: the common prefix, sometimes cut short, and a few bytes of a small alphabet, so
    /// that some bounds are prefixes of others.
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

    /// The bounds, keys next to them, and keys that differ from the common prefix at each byte:
    /// below, above, and by ending there.
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

    fn check(
        comparator: &KeyComparator,
        index: &Index,
        spans: &[Span],
        keys: &[Vec<u8>],
        note: &str,
    ) {
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

    fn try_shared(
        comparator: &KeyComparator,
        seed: u64,
        shared: usize,
        shrinks: Shrinks,
        len: u64,
    ) {
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
                    try_shared(&asked(FromBehind), seed, shared, shrinks, 33);
                }
            }
        }
    }
}
/// Writers and readers at once. No reader may see a tombstone before its insert starts, every
/// reader must see it once the insert has returned, and in between either is right.
mod threads {
    use std::sync::Arc;

    use crate::comparator::BYTEWISE;
    use crate::integrity::tag::Secret;
    use crate::sync::{AtomicU64, Ordering};
    use crate::tombstone::query::Question;
    use crate::tombstone::tests::fixture::Index;
    use crate::tombstone::tests::{Rng, seeds};

    const WRITERS: u64 = 3;
    const READERS: u64 = 2;
    const SPACE: u64 = if cfg!(miri) { 8 } else { 200 };

    /// Tombstone number `turn` of `writer`: a pure function, so that readers can compute what they
    /// must see.
    fn tombstone(seed: u64, writer: u64, turn: u64) -> (u64, u64, u64) {
        let mut rng = Rng(seed << 40 | writer << 32 | turn << 4);
        let start = rng.below(SPACE - 1);
        let end = start + 1 + rng.below(SPACE - start - 1).min(rng.below(40));
        (start, end, turn * WRITERS + writer + 1)
    }

    fn name(number: u64) -> Vec<u8> {
        format!("key-{number:06}").into_bytes()
    }

    /// The newest tombstone over `number` among the first `turns[w]` of each writer.
    fn expected(seed: u64, turns: &[u64], number: u64, snapshot: u64) -> Option<u64> {
        let all = (0..)
            .zip(turns)
            .flat_map(|(writer, &turns)| (0..turns).map(move |turn| (writer, turn)));
        let spans = all.map(|(writer, turn)| tombstone(seed, writer, turn));
        spans
            .filter(|&(start, end, sequence)| {
                (start..end).contains(&number) && sequence <= snapshot
            })
            .map(|(_, _, sequence)| sequence)
            .max()
    }

    #[test]
    fn readers_see_every_returned_insert() {
        let (turns, asks, rounds) = match (cfg!(miri), cfg!(debug_assertions)) {
            (true, _) => (4, 4, 1),
            (_, true) => (250, 300, 2),
            _ => (900, 1500, 6),
        };
        for seed in seeds(rounds) {
            let index = Arc::new(Index::new(Secret::from_seed(seed)));
            let started: Arc<Vec<AtomicU64>> =
                Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
            let returned: Arc<Vec<AtomicU64>> =
                Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (index, started, returned) =
                        (index.clone(), started.clone(), returned.clone());
                    scope.spawn(move || {
                        for turn in 0..turns {
                            let (start, end, sequence) = tombstone(seed, writer, turn);
                            // ORDERING: release; partner: the acquire load in `look`.
                            started[writer as usize].store(turn + 1, Ordering::Release);
                            index
                                .insert(&BYTEWISE, &name(start), &name(end), sequence)
                                .unwrap();
                            // ORDERING: release; partner: the acquire load in `look`.
                            returned[writer as usize].store(turn + 1, Ordering::Release);
                        }
                    });
                }
                for reader in 0..READERS {
                    let (index, started, returned) =
                        (index.clone(), started.clone(), returned.clone());
                    scope.spawn(move || {
                    let mut rng = Rng(seed << 20 | reader);
                    // ORDERING: acquire; partner: the writers' release stores.
                    let look = |counts: &[AtomicU64]| -> Vec<u64> {
                        counts.iter().map(|count| count.load(Ordering::Acquire)).collect()
                    };
                    for _ in 0..asks {
                        let number = rng.below(SPACE);
                        let snapshot = [u64::MAX, rng.below(turns * WRITERS)][rng.below(2) as usize];
                        let least = look(&returned);
                        let found = index.max_covering(&BYTEWISE, Question::new(&name(number), snapshot)).unwrap();
                        let most = look(&started);
                        let low = expected(seed, &least, number, snapshot);
                        let high = expected(seed, &most, number, snapshot);
                        assert!(low <= found && found <= high, "PARANOID_SEED={seed} key {number} at {snapshot}: {low:?} <= {found:?} <= {high:?}");
                        if reader == 0 && rng.below(50) == 0 {
                            index.merge_all(&BYTEWISE);
                        }
                    }
                });
                }
            });
            index.finish(&BYTEWISE);
            for number in 0..SPACE {
                for snapshot in [u64::MAX, turns, turns * 2] {
                    let found = index
                        .max_covering(&BYTEWISE, Question::new(&name(number), snapshot))
                        .unwrap();
                    assert_eq!(
                        found,
                        expected(seed, &[turns; WRITERS as usize], number, snapshot)
                    );
                }
            }
        }
    }
}

use std::cmp::Ordering as Order;
use std::sync::Arc;

use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality};
use crate::integrity::hash::splitmix;
use crate::integrity::tag::Secret;
use crate::tombstone::Fragmenter;
use crate::tombstone::live::CoveringRun;
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::tests::fixture::Index;

/// Bytes in descending order, without prefixes: every comparison is a tie of prefixes.
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

/// What an index asks of this order.
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

/// A key of one of these styles: short, with a long common prefix, with a long tail, beginning like
/// padding, longer than the buffer on the stack, four with one prefix.
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

/// The right answer to a query, found by looking at every tombstone.
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

/// A finished index that got no node before all records were there.
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

/// The fragments that a finished index keeps are those that a fragmenter cuts.
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

/// An insert catches up on what was not merged, by four blocks or merges, and by no more than there
/// are; by more if 16 blocks wait.
#[test]
fn an_insert_takes_four_steps_unless_it_is_far_behind() {
    let nodes = |index: &Index| {
        index
            .fault_regions()
            .iter()
            .filter(|region| region.name == "coverage node head")
            .count()
    };
    for (waiting, painted) in [
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
        assert_eq!(nodes(&index), painted, "{waiting} tombstones waited");
    }
}
