//! What does a get cost, of keys that are there and of keys that are not?
//!
//! Tables are filled at random and keys asked at random; an iteration is one get.

use std::sync::Barrier;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

mod rivals;

use rivals::{Extent, Inputs, Make, Order, Presence, Subject};

const SEED: u64 = 2;
/// Number of gets for which keys are made at once.
const BATCH: usize = 10_000;

fn measure(table: &dyn Subject, entries: u32, presence: Presence, mut gets: u64) -> Duration {
    let mut elapsed = Duration::ZERO;
    let mut round = SEED;
    while gets > 0 {
        let count = gets.min(BATCH as u64);
        let asked = rivals::picks(entries, usize::try_from(count).unwrap_or(BATCH), round);
        elapsed += table.get(&asked, presence).elapsed;
        gets -= count;
        round += 1;
    }
    elapsed
}

fn main() {
    let extent = Extent::asked();
    let mut criterion = Criterion::default().configure_from_args();
    for entries in extent.entries() {
        let all = rivals::order(entries, Order::Random, SEED);
        for make in [Make::PLAIN, Make::PROTECTED, Make::Crossbeam, Make::BTree] {
            let table = make.table();
            table.insert(&all, &Barrier::new(1), Inputs::Owned);
            for (presence, name) in [(Presence::Hit, "get/hit"), (Presence::Miss, "get/miss")] {
                let mut group = criterion.benchmark_group(name);
                group.throughput(Throughput::Elements(1));
                group.bench_function(BenchmarkId::new(make.name(), entries), |bencher| {
                    bencher.iter_custom(|gets| measure(&*table, entries, presence, gets));
                });
                group.finish();
                let hash = table.get(&rivals::picks(entries, 1_000, SEED), presence).hash;
                println!("{name} {} of {entries}: work {hash:016x}", make.name());
            }
        }
    }
    criterion.final_summary();
}
