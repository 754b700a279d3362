//! What does ordered reading cost: a seek and the ten entries after it, a scan forward, a scan backward?
//!
//! Tables are filled in order and at random. An iteration is one seek with its entries, or one scanned entry.

use std::sync::Barrier;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

mod rivals;

use rivals::{Extent, Inputs, Make, Order, Subject, Way};

const SEED: u64 = 3;
/// Number of seeks for which keys are made at once.
const BATCH: usize = 10_000;

fn seeks(table: &dyn Subject, entries: u32, mut count: u64) -> Duration {
    let mut elapsed = Duration::ZERO;
    let mut round = SEED;
    while count > 0 {
        let batch = count.min(BATCH as u64);
        let asked = rivals::picks(entries, usize::try_from(batch).unwrap_or(BATCH), round);
        elapsed += table.seek(&asked).elapsed;
        count -= batch;
        round += 1;
    }
    elapsed
}

/// Scans from end to end until `count` entries were read.
fn scans(table: &dyn Subject, entries: u32, way: Way, mut count: u64) -> Duration {
    let from = if way == Way::Forward { 0 } else { entries - 1 };
    let mut elapsed = Duration::ZERO;
    while count > 0 {
        let steps = count.min(u64::from(entries));
        elapsed += table.scan(from, usize::try_from(steps).unwrap_or(usize::MAX), way).elapsed;
        count -= steps;
    }
    elapsed
}

fn main() {
    let extent = Extent::asked();
    let mut criterion = Criterion::default().configure_from_args();
    for entries in extent.entries() {
        for (order, filled) in [(Order::Ascending, "filled_in_order"), (Order::Random, "filled_at_random")] {
            let all = rivals::order(entries, order, SEED);
            for make in [Make::PLAIN, Make::PROTECTED, Make::Crossbeam, Make::BTree] {
                let table = make.table();
                table.insert(&all, &Barrier::new(1), Inputs::Owned);
                let id = || BenchmarkId::new(make.name(), entries);
                let mut group = criterion.benchmark_group(format!("scan/{filled}"));
                group.throughput(Throughput::Elements(1));
                group.bench_function(
                    BenchmarkId::new(format!("forward/{}", make.name()), entries),
                    |bencher| {
                        bencher.iter_custom(|count| scans(&*table, entries, Way::Forward, count));
                    },
                );
                group.bench_function(
                    BenchmarkId::new(format!("backward/{}", make.name()), entries),
                    |bencher| {
                        bencher.iter_custom(|count| scans(&*table, entries, Way::Backward, count));
                    },
                );
                group.finish();
                let mut group = criterion.benchmark_group(format!("seek_and_next_10/{filled}"));
                group.bench_function(id(), |bencher| {
                    bencher.iter_custom(|count| seeks(&*table, entries, count));
                });
                group.finish();
                let forward = table.scan(0, all.len(), Way::Forward).hash;
                let backward = table.scan(entries - 1, all.len(), Way::Backward).hash;
                println!("{filled} {} of {entries}: work {forward:016x} {backward:016x}", make.name());
            }
        }
    }
    criterion.final_summary();
}
