//! Measures puts, gets, scans, range tombstones and checksums, beside crossbeam-skiplist and
//! `BTreeMap` in a lock.
//!
//! ```text
//!   cargo bench                      all of it, in less than five minutes; the report is in target/criterion/report
//!   cargo bench -- get               only benchmarks with `get` in their names
//! ```
//! It measures one kind of work after the other, in tables of 100 000 entries. Ratios that differ
//! by less than a tenth need turns, as in `benches/peers`. An iteration is one put, one get, one
//! key of a `multi_get`, one seek with the ten entries after it, or one step of a scan; inputs are
//! made before. Each table folds what it reads into a hash, and the run ends if the hashes differ.

use std::sync::Barrier;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use paranoid_memtable::{ChecksumKind, MemTable};

mod rivals;

use rivals::{Done, Extent, Inputs, Make, Order, Presence, Subject, Way};

const SEED: u64 = 1;
const MAKES: [Make; 4] = [Make::PLAIN, Make::PROTECTED, Make::Crossbeam, Make::BTree];
/// Number of keys that are made at once.
const BATCH: u64 = 10_000;
const RANGE_TOMBSTONES: u32 = 1_000;
const BLOCK: [u8; 4096] = [7; 4096];

/// A kind of work on a full table. Its arguments are the table, its number of entries, and the
/// numbers of the entries to read.
type Work = fn(&dyn Subject, u32, &[u32]) -> Done;

const READS: [(&str, Work); 6] = [
    ("get hit", |table, _, asked| table.get(asked, Presence::Hit)),
    ("get miss", |table, _, asked| {
        table.get(asked, Presence::Miss)
    }),
    ("multi_get of 24", |table, _, asked| table.multi_get(asked)),
    ("seek + next 10", |table, _, asked| table.seek(asked)),
    ("scan forward, filled at random", |table, _, asked| {
        table.scan(asked[0] / 2, asked.len(), Way::Forward)
    }),
    (
        "scan backward, filled at random",
        |table, entries, asked| table.scan(entries - 1 - asked[0] / 2, asked.len(), Way::Backward),
    ),
];

/// The time of `count` operations, in pieces. The entries of a piece are drawn before its time
/// begins.
fn timed(table: &dyn Subject, entries: u32, work: Work, count: u64) -> Duration {
    let pieces = (0..count.div_ceil(BATCH)).map(|piece| BATCH.min(count - piece * BATCH));
    let time = |(round, piece): (u64, u64)| {
        let asked = rivals::picks(
            entries,
            usize::try_from(piece).unwrap_or(usize::MAX),
            SEED + round,
        );
        work(table, entries, &asked).elapsed
    };
    (0..).zip(pieces).map(time).sum()
}

fn full(make: Make, order: &[u32]) -> Box<dyn Subject> {
    let table = make.table();
    table.insert(order, &Barrier::new(1), Inputs::Owned);
    table
}

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(1));
    group
}

/// Puts into empty tables, for whose memory the system has no pages yet.
fn puts(criterion: &mut Criterion, entries: u32) {
    for (order, name) in [
        (Order::Ascending, "insert in order"),
        (Order::Random, "insert at random"),
    ] {
        let all = rivals::order(entries, order, SEED);
        let mut group = group(criterion, name);
        group
            .sampling_mode(SamplingMode::Flat)
            .sample_size(10)
            .throughput(Throughput::Elements(all.len() as u64));
        for make in MAKES {
            group.bench_function(make.name(), |bencher| {
                let fill = || {
                    make.table()
                        .insert(&all, &Barrier::new(1), Inputs::Owned)
                        .elapsed
                };
                bencher.iter_custom(|count| (0..count).map(|_| fill()).sum());
            });
        }
    }
}

/// Reads of tables that were filled at random.
fn reads(criterion: &mut Criterion, entries: u32) {
    let order = rivals::order(entries, Order::Random, SEED);
    let tables = MAKES.map(|make| (make.name(), full(make, &order)));
    let asked = rivals::picks(entries, 1_000, SEED);
    for (name, work) in READS {
        let mut hashes = tables
            .iter()
            .map(|(_, table)| work(&**table, entries, &asked).hash);
        let first = hashes.next();
        assert!(
            hashes.all(|hash| Some(hash) == first),
            "{name}: the tables read different things"
        );
        let mut group = group(criterion, name);
        for (make, table) in &tables {
            group.bench_function(make, |bencher| {
                bencher.iter_custom(|count| timed(&**table, entries, work, count));
            });
        }
    }
}

/// Gets of present keys over range tombstones, which the rivals do not have.
fn range_tombstones(criterion: &mut Criterion, entries: u32) {
    let order = rivals::order(entries, Order::Random, SEED);
    let mut group = group(criterion, "get hit, range tombstones");
    for tombstones in [0, 10, RANGE_TOMBSTONES] {
        let table = MemTable::default();
        Subject::insert(&table, &order, &Barrier::new(1), Inputs::Owned);
        for at in 0..tombstones {
            let number = u64::from(entries) + 1 + u64::from(at);
            let start = [
                rivals::key(at * (entries / RANGE_TOMBSTONES), Presence::Hit).as_slice(),
                b"+",
            ]
            .concat();
            let end = [&*start, b"+"].concat();
            table
                .delete_range(number, &start, &end)
                .expect("room for a range");
        }
        group.bench_function(format!("{tombstones} range tombstones"), |bencher| {
            bencher.iter_custom(|count| timed(&table, entries, READS[0].1, count));
        });
    }
}

fn checksums(criterion: &mut Criterion) {
    let mut group = group(criterion, "checksum of 4 KiB");
    group.throughput(Throughput::Bytes(BLOCK.len() as u64));
    for kind in ChecksumKind::ALL {
        group.bench_function(format!("{kind:?}"), |bencher| {
            bencher.iter(|| kind.checksum(std::hint::black_box(&BLOCK)));
        });
    }
}

fn main() {
    let entries = if Extent::asked() == Extent::Full {
        100_000
    } else {
        2_000
    };
    let mut criterion = Criterion::default().configure_from_args();
    puts(&mut criterion, entries);
    reads(&mut criterion, entries);
    range_tombstones(&mut criterion, entries);
    checksums(&mut criterion);
    criterion.final_summary();
    if Extent::asked() == Extent::Full {
        println!("report: target/criterion/report/index.html");
    }
}
