//! What does an insert cost: in order, at random, by one thread and by two?
//!
//! An iteration fills an empty table. Dropping it is not timed, nor making keys and values that a rival owns.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

mod rivals;

use rivals::{Extent, Inputs, Make, Order, Subject};

const SEED: u64 = 1;

/// Fills an empty table by so many threads. Returns the time of the slowest.
fn fill(make: Make, entries: &[u32], threads: usize) -> (Box<dyn Subject>, Duration) {
    let table = make.table();
    let ready = Arc::new(Barrier::new(threads));
    let slowest = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|thread| {
                let part: Vec<u32> = entries.iter().skip(thread).step_by(threads).copied().collect();
                let (table, ready) = (&table, &ready);
                scope.spawn(move || table.insert(&part, ready, Inputs::Owned).elapsed)
            })
            .collect();
        parts.into_iter().map(|part| part.join().expect("a writer")).max()
    });
    (table, slowest.unwrap_or_default())
}

fn main() {
    let extent = Extent::asked();
    let mut criterion = Criterion::default().configure_from_args();
    for entries in extent.entries() {
        for (order, name) in [(Order::Ascending, "in_order"), (Order::Random, "at_random")] {
            let all = rivals::order(entries, order, SEED);
            for threads in [1, 2] {
                let mut group = criterion.benchmark_group(format!("insert/{name}/threads_{threads}"));
                group.sampling_mode(SamplingMode::Flat).sample_size(10);
                group.throughput(Throughput::Elements(u64::from(entries)));
                for make in [Make::PLAIN, Make::PROTECTED, Make::Crossbeam, Make::BTree] {
                    group.bench_function(BenchmarkId::new(make.name(), entries), |bencher| {
                        bencher.iter_custom(|count| (0..count).map(|_| fill(make, &all, threads).1).sum());
                    });
                    let (table, _) = fill(make, &all, threads);
                    let hash = table.scan(0, all.len(), rivals::Way::Forward).hash;
                    let each = table.allocated().map(|bytes| bytes as f64 / f64::from(entries));
                    let each = each.map_or("not counted".into(), |bytes| format!("{bytes:.1}"));
                    println!("{} of {entries}: work {hash:016x}, bytes an entry {each}", make.name());
                }
                group.finish();
            }
        }
    }
    criterion.final_summary();
}
