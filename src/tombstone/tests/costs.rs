//! Prints the costs of inserts and queries. Not run by default:
//! `cargo test --release --lib tombstone::tests::costs -- --ignored --nocapture`.

#![forbid(unsafe_code)]

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

/// The median. Other programs on the machine slow single chunks, which the median ignores.
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
