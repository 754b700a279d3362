//! Compares implementations of each block checksum at several sizes. It is the reason for the
//! choices in `checksum_kind.rs`.
//!
//! First it prints a table: all candidates of a kind take turns in one process over the same bytes,
//! and the best of many rounds counts. Read its ratios. Then Criterion measures one candidate after
//! the other. The bench prints a hash of the results, which must be equal for all candidates of a
//! kind. The first byte of a run is at every alignment within a cache line.
//! `cargo bench -p paranoid-memtable-benches --features records --bench checksum`.

#![allow(
    missing_docs,
    reason = "the macro of the harness makes a public function"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paranoid_memtable::ChecksumKind;

type Candidate = (&'static str, fn(&[u8]) -> u32);

const SIZES: [usize; 5] = [32, 64, 256, 4096, 65_536];
const ALIGNMENTS: usize = 64;

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a checksum is the low half"
)]
fn low_half(hash: u64) -> u32 {
    hash as u32
}

fn folded(data: &[u8], hash: fn(&[u8]) -> u64) -> u32 {
    let (last, rest) = data.split_last().expect("no size is zero");
    low_half(hash(rest)) ^ u32::from(*last).wrapping_mul(0x6b90_83d9)
}

fn crc_fast(algorithm: crc_fast::CrcAlgorithm, data: &[u8]) -> u32 {
    low_half(crc_fast::checksum(algorithm, data))
}

/// The implementations of each kind: this crate's first, then the candidates.
fn candidates() -> Vec<(&'static str, Vec<Candidate>)> {
    vec![
        (
            "crc32c",
            vec![
                ("own", |data| ChecksumKind::Crc32c.checksum(data)),
                ("crc32c", |data| masked(crc32c::crc32c(data))),
                ("crc-fast", |data| {
                    masked(crc_fast(crc_fast::CrcAlgorithm::Crc32Iscsi, data))
                }),
            ],
        ),
        (
            "xxhash",
            vec![
                ("own", |data| ChecksumKind::XxHash32.checksum(data)),
                ("xxhash-rust", |data| xxhash_rust::xxh32::xxh32(data, 0)),
                ("twox-hash", |data| twox_hash::XxHash32::oneshot(0, data)),
            ],
        ),
        (
            "xxhash64",
            vec![
                ("own", |data| ChecksumKind::XxHash64.checksum(data)),
                ("xxhash-rust", |data| {
                    low_half(xxhash_rust::xxh64::xxh64(data, 0))
                }),
                ("twox-hash", |data| {
                    low_half(twox_hash::XxHash64::oneshot(0, data))
                }),
            ],
        ),
        (
            "xxh3",
            vec![
                ("own", |data| ChecksumKind::Xxh3.checksum(data)),
                ("xxhash-rust", |data| {
                    folded(data, xxhash_rust::xxh3::xxh3_64)
                }),
                ("twox-hash", |data| {
                    folded(data, twox_hash::XxHash3_64::oneshot)
                }),
            ],
        ),
        (
            "crc32",
            vec![
                ("own", |data| ChecksumKind::Crc32.checksum(data)),
                ("crc32fast", crc32fast::hash),
                ("crc-fast", |data| {
                    crc_fast(crc_fast::CrcAlgorithm::Crc32IsoHdlc, data)
                }),
            ],
        ),
    ]
}

fn pattern(len: usize) -> Vec<u8> {
    (0u32..)
        .map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()[2])
        .take(len)
        .collect()
}

fn sum(bytes: &[u8], size: usize, checksum: fn(&[u8]) -> u32) -> u32 {
    (0..ALIGNMENTS)
        .map(|start| checksum(&bytes[start..start + size]))
        .fold(0, |sum: u32, value| sum.rotate_left(5) ^ value)
}

/// Best time of one call in nanoseconds, by candidate. The candidates take turns.
fn turns(bytes: &[u8], size: usize, candidates: &[Candidate]) -> Vec<f64> {
    let calls = (200_000 / size).max(4);
    let mut best = vec![f64::MAX; candidates.len()];
    for _ in 0..40 {
        for (best, (_, checksum)) in best.iter_mut().zip(candidates) {
            let begin = Instant::now();
            for call in 0..calls {
                let start = call % ALIGNMENTS;
                black_box(checksum(black_box(&bytes[start..start + size])));
            }
            *best = best.min(begin.elapsed().as_secs_f64() * 1e9 / calls as f64);
        }
    }
    best
}

fn print_ratios(bytes: &[u8]) {
    println!("best ns a call (time relative to own), bytes:");
    println!(
        "{:22}{}",
        "",
        SIZES.map(|size| format!("{size:>18}")).concat()
    );
    for (kind, candidates) in candidates() {
        let columns = SIZES.map(|size| turns(bytes, size, &candidates));
        for (row, (name, _)) in candidates.iter().enumerate() {
            let cells = columns.each_ref().map(|best| {
                let (ns, ratio) = (best[row], best[row] / best[0]);
                format!("{:>18}", format!("{ns:.1} ({ratio:.2})"))
            });
            println!("{:22}{}", format!("{kind} {name}"), cells.concat());
        }
    }
}

fn checksums(c: &mut Criterion) {
    let bytes = pattern(SIZES[SIZES.len() - 1] + ALIGNMENTS);
    if !std::env::args().any(|argument| argument == "--test") {
        print_ratios(&bytes);
    }
    for (kind, candidates) in candidates() {
        let work = |checksum| SIZES.map(|size| sum(&bytes, size, checksum));
        let own = work(candidates[0].1);
        println!("{kind}: work {own:08x?}");
        assert!(
            candidates.iter().all(|candidate| work(candidate.1) == own),
            "candidates of {kind} disagree"
        );
        let mut group = c.benchmark_group(kind);
        for size in SIZES {
            group.throughput(Throughput::Bytes(size as u64));
            for (name, checksum) in &candidates {
                let mut start = 0;
                group.bench_function(BenchmarkId::new(*name, size), |b| {
                    b.iter(|| {
                        start = (start + 1) % ALIGNMENTS;
                        checksum(black_box(&bytes[start..start + size]))
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20)
        .without_plots();
    targets = checksums
}
criterion_main!(benches);
