//! Measures the cost of range tombstones.
//!
//! ```text
//!   cargo bench -p paranoid-memtable-benches --features records --bench tombstones    prints two tables
//!   cargo bench -p paranoid-memtable-benches --features records --bench tombstones -- --date 2026-01-31 --name laptop
//!       also writes benches/records/DATE-NAME.{md,json}
//!   options: --entries 250000  --rounds 200
//! ```
//! First it prints ratios to the same work without tombstones, taken in turns in one process. Then
//! it repeats the table that RocksDB published when it began to cache fragments at the freeze (pull
//! request 10380), beside its figures.

use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use paranoid_memtable::{Lookup, MemTable, TableReader};

mod rivals;

use rivals::{Arguments, Extent, Order};
use tables::{Candidate, Finder, Report, SEED, STRIDE, Width, against, median, paired, turns};

/// The amount of work.
#[derive(Debug, Clone, Copy)]
struct Size {
    entries: u32,
    rounds: usize,
    /// Gets or puts of one turn.
    slice: usize,
    /// Pairs of a range delete and a get.
    pairs: u32,
    pairs_many: u32,
    /// Writes and reads per thread in the table that RocksDB published: with one thread, and with
    /// 32.
    published: [(u32, u32); 2],
}

impl Size {
    fn of(extent: Extent, arguments: &Arguments) -> Size {
        let entries = arguments.entries.first().copied().unwrap_or(250_000);
        match extent {
            Extent::Full => Size {
                entries,
                rounds: arguments.rounds,
                // Slices are short, so that few are interrupted.
                slice: 400,
                pairs: 10_000,
                pairs_many: 100_000,
                published: [(500_000, 100_000), (15_000, 20_000)],
            },
            Extent::Smoke => Size {
                entries,
                rounds: 3,
                slice: 100,
                pairs: 300,
                pairs_many: 600,
                published: [(1_500, 200), (100, 50)],
            },
        }
    }
}

fn main() -> ExitCode {
    let extent = Extent::asked();
    let done = Arguments::parse(extent).and_then(|arguments| {
        let size = Size::of(extent, &arguments);
        let mut report = Report::new(size);
        measure_costs(&mut report, size);
        measure_pairs(&mut report, size);
        measure_published(&mut report, size);
        let record = report.record(&arguments);
        let page = tables::markdown(&record);
        println!("{page}");
        arguments.save(extent, &record, &page)
    });
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

// Ratios to the same work without tombstones.

const TOMBSTONES: u32 = 1_000;
const DELETE_EVERY: u64 = 200;
const RUNS: usize = 3;

fn measure_costs(report: &mut Report, size: Size) {
    let title = "What tombstones cost";
    report.start_table(
        title,
        "| work; tombstones over the whole key space, in random order | figures | target |",
    );
    for (finder, name, targets) in [
        (Finder::List, "list", ["1.25 x", "1.1 x"]),
        (Finder::Directory, "directory", ["1.25 x", "1.1 x"]),
    ] {
        for width in [Width::Gap, Width::Half] {
            gets_beside(report, size, (finder, name), width, targets);
        }
    }
    two_threads(report, size);
    puts_with_deletes(report, size);
    longest_write(report, size);
    freeze(report, size);
    puts_beside_freeze(report, size);
}

fn gets_beside(
    report: &mut Report,
    size: Size,
    (finder, name): (Finder, &str),
    width: Width,
    targets: [&str; 2],
) {
    let entries = size.entries;
    let without = tables::filled(entries, finder);
    let with = tables::filled(entries, finder);
    tables::spread(&with, entries, TOMBSTONES, width);
    let width = if width == Width::Gap {
        "between entries"
    } else {
        "half of all keys deleted"
    };
    for (state, target) in ["mutable", "frozen"].into_iter().zip(targets) {
        if state == "frozen" {
            // Freezes the tables that were read before.
            let _ = (
                with.freeze().expect("no damage"),
                without.freeze().expect("no damage"),
            );
        }
        let gets = |table: &MemTable, round| tables::gets(table, entries, size.slice, round);
        let mut candidates: [Candidate<'_>; 2] = [
            ("0", Box::new(|round| gets(&without, round))),
            ("1000", Box::new(|round| gets(&with, round))),
        ];
        let samples = turns(report, size.rounds, size.slice, &mut candidates);
        let figures = against(&samples[1].1, &samples[0].1);
        report.line(
            format!("get, {name}, {state}, 1000 against 0, {width}"),
            figures,
            target,
            samples,
        );
    }
}

/// Gets by several threads at once, each its own slice. Returns the time from the start of the
/// first thread to the end of the last.
fn together(table: &TableReader, size: Size, threads: u64, round: u64) -> u64 {
    std::thread::scope(|scope| {
        let reader = |thread| {
            scope.spawn(move || {
                tables::gets(table, size.entries, size.slice * 16, round * 64 + thread)
            })
        };
        let readers: Vec<_> = (0..threads).map(reader).collect();
        readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader"))
            .fold(0, u64::wrapping_add)
    })
}

fn two_threads(report: &mut Report, size: Size) {
    let without = tables::filled(size.entries, Finder::List);
    let with = tables::filled(size.entries, Finder::List);
    tables::spread(&with, size.entries, 100, Width::Gap);
    let mut candidates: [Candidate<'_>; 4] = [
        (
            "0, 1 thread",
            Box::new(|round| together(&without, size, 1, round)),
        ),
        (
            "0, 2 threads",
            Box::new(|round| together(&without, size, 2, round)),
        ),
        (
            "100, 1 thread",
            Box::new(|round| together(&with, size, 1, round)),
        ),
        (
            "100, 2 threads",
            Box::new(|round| together(&with, size, 2, round)),
        ),
    ];
    let samples = turns(report, size.rounds, size.slice * 16, &mut candidates);
    let scale = |one: usize| {
        paired(&samples[one].1, &samples[one + 1].1, |one, two| {
            2.0 * one / two
        })
    };
    let figures = format!("{:.2} x at 100, {:.2} x at 0", scale(2), scale(0));
    report.line(
        "throughput of 2 threads over 1, get, list, mutable",
        figures,
        "as at 0",
        samples,
    );
}

/// Puts in random order of keys. On request, one write in 200 is a narrow range delete.
fn write(table: &MemTable, sequence: u64, entries: u32, deletes: Deletes) {
    let number = crate::rivals::mix(sequence) % (u64::from(entries) * STRIDE);
    if deletes == Deletes::OneIn200 && sequence.is_multiple_of(DELETE_EVERY) {
        tables::delete_range(table, sequence, number, number + STRIDE);
    } else {
        tables::put(table, sequence, number);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletes {
    None,
    OneIn200,
}

fn puts_with_deletes(report: &mut Report, size: Size) {
    let tables = [(); 2].map(|()| tables::table(size.entries, Finder::List));
    let slice = size.entries as usize / (size.rounds + 1);
    let puts = |table: &MemTable, round: u64, deletes| {
        let from = 1 + round * slice as u64;
        (from..from + slice as u64)
            .for_each(|sequence| write(table, sequence, size.entries, deletes));
        slice as u64
    };
    let mut candidates: [Candidate<'_>; 2] = [
        (
            "none",
            Box::new(|round| puts(&tables[0], round, Deletes::None)),
        ),
        (
            "one in 200",
            Box::new(|round| puts(&tables[1], round, Deletes::OneIn200)),
        ),
    ];
    let samples = turns(report, size.rounds, slice, &mut candidates);
    let figures = against(&samples[1].1, &samples[0].1);
    report.line(
        "put at random, a range delete in 200 writes against none",
        figures,
        "1.05 x",
        samples,
    );
}

/// Makes the same writes several times. The shortest time of each write counts: a merge of the
/// index comes each time, an interruption does not.
fn longest_write(report: &mut Report, size: Size) {
    let longest = |deletes| {
        let mut shortest = vec![f64::MAX; size.entries as usize];
        for _ in 0..RUNS {
            let table = tables::table(size.entries, Finder::List);
            for (sequence, shortest) in (1u64..).zip(&mut shortest) {
                let started = Instant::now();
                write(&table, sequence, size.entries, deletes);
                *shortest = shortest.min(started.elapsed().as_secs_f64() * 1e9);
            }
        }
        shortest.into_iter().fold(0.0, f64::max)
    };
    let (with, without) = (longest(Deletes::OneIn200), longest(Deletes::None));
    report.line(
        format!(
            "longest single write of {}, with one range delete in 200 (best of {RUNS} runs of each)",
            size.entries
        ),
        format!("{:.0} us; {:.0} us without", with / 1e3, without / 1e3),
        "1 ms",
        vec![("with".into(), vec![with]), ("without".into(), vec![without])],
    );
}

fn table_to_freeze(count: u32) -> MemTable {
    let table = tables::filled(TOMBSTONES * 2, Finder::List);
    if count > 0 {
        tables::spread(&table, TOMBSTONES * 2, count, Width::Gap);
    }
    table
}

fn freeze(report: &mut Report, size: Size) {
    let rounds = size.rounds + 1;
    let mut ready = [0, TOMBSTONES].map(|count| {
        (0..rounds)
            .map(|_| table_to_freeze(count))
            .collect::<Vec<_>>()
    });
    let [without, with] = &mut ready;
    let freeze = |tables: &mut Vec<MemTable>| {
        tables
            .pop()
            .map_or(0, |table| table.freeze().expect("no damage").len() as u64)
    };
    let mut candidates: [Candidate<'_>; 2] = [
        ("0", Box::new(|_| freeze(without))),
        ("1000", Box::new(|_| freeze(with))),
    ];
    let samples = turns(report, size.rounds, 1, &mut candidates);
    let us = |candidate: usize| median(&samples[candidate].1) / 1e3;
    let figures = format!("{:.0} us; {:.1} us without tombstones", us(1), us(0));
    report.line(
        "freeze with 1000 narrow tombstones",
        figures,
        "300 us",
        samples,
    );
}

/// Puts into one table while another thread freezes tables with 1000 tombstones, or empty tables.
fn puts_beside_freeze(report: &mut Report, size: Size) {
    let other = tables::table(size.entries, Finder::List);
    let slice = size.slice as u64;
    let mut next = 1u64;
    let mut samples = vec![("0".into(), Vec::new()), ("1000".to_owned(), Vec::new())];
    for round in 0..size.rounds {
        for turn in 0..2 {
            let candidate = (round + turn) % 2;
            let table = table_to_freeze([0, TOMBSTONES][candidate]);
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    table.freeze().expect("no damage").len()
                });
                start.wait();
                let started = Instant::now();
                for sequence in next..next + slice {
                    write(&other, sequence, size.entries, Deletes::None);
                }
                samples[candidate]
                    .1
                    .push(started.elapsed().as_secs_f64() * 1e9 / slice as f64);
            });
            next += slice;
        }
    }
    let figures = against(&samples[1].1, &samples[0].1);
    report.line(
        "put into another table during the freeze, 1000 against 0",
        figures,
        "unaffected",
        samples,
    );
}

// Pairs of a range delete and a get. They would be slow if each range delete made the index be
// built again.

const PAIR_RUNS: usize = 5;

/// The shape of the ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Disjoint,
    /// Each range is a hundredth of the key space, anywhere.
    Wide,
    /// Each range is inside all earlier ones.
    Nested,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Disjoint => "disjoint",
            Shape::Wide => "1 % wide",
            Shape::Nested => "nested",
        }
    }

    /// Start and end number of the `at`-th of `count` ranges among `entries`.
    fn range(self, at: u32, count: u32, entries: u32) -> (u64, u64) {
        let space = u64::from(entries) * STRIDE;
        let (at, count) = (u64::from(at), u64::from(count));
        match self {
            Shape::Disjoint => {
                let step = space / count;
                (at * step + 1, at * step + 1 + step / 2)
            }
            Shape::Wide => {
                let start = rivals::mix(SEED ^ at) % (space - space / 100);
                (start, start + space / 100)
            }
            Shape::Nested => (at, space * 2 - at),
        }
    }
}

fn measure_pairs(report: &mut Report, size: Size) {
    let title = "Range delete and get in turn";
    report.start_table(
        title,
        "| work; as many entries as tombstones, filled at random | figures | target |",
    );
    for shape in [Shape::Disjoint, Shape::Wide, Shape::Nested] {
        let mut pair = Vec::new();
        for _ in 0..PAIR_RUNS {
            let table = tables::filled(size.pairs, Finder::List);
            pair.push(pairs(report, &table, shape, size.pairs));
        }
        let figures = format!("{:.2} us a pair", median(&pair) / 1e3);
        let work = format!("{} pairs, {}", size.pairs, shape.name());
        report.line(work, figures, "2 us", vec![(shape.name().into(), pair)]);
    }
    for shape in [Shape::Disjoint, Shape::Wide, Shape::Nested] {
        many(report, size, shape);
    }
}

/// Average nanoseconds of a range delete and the get after it.
fn pairs(report: &mut Report, table: &MemTable, shape: Shape, count: u32) -> f64 {
    let order = match shape {
        Shape::Disjoint => rivals::order(count, Order::Random, SEED + 1),
        Shape::Wide | Shape::Nested => (0..count).collect(),
    };
    let picks = rivals::picks(count, count as usize, SEED + 2);
    let mut sum = 0u64;
    let started = Instant::now();
    for ((sequence, at), pick) in (u64::from(count) + 1..).zip(order).zip(picks) {
        let (start, end) = shape.range(at, count, count);
        tables::delete_range(table, sequence, start, end);
        sum = sum.wrapping_add(tables::get(table, u64::from(pick) * STRIDE, u64::MAX));
    }
    let elapsed = started.elapsed().as_secs_f64() * 1e9;
    report.saw(sum);
    elapsed / f64::from(count)
}

/// Many tombstones: the time of a pair, memory, and then gets at snapshots in the middle of them.
fn many(report: &mut Report, size: Size, shape: Shape) {
    let count = size.pairs_many;
    let table = tables::filled(count, Finder::List);
    let before = table.allocated_bytes();
    let pair = pairs(report, &table, shape, count);
    let megabytes = (table.allocated_bytes() - before) as f64 / f64::from(1 << 20);
    let name = shape.name();
    report.line(
        format!("{count} pairs, {name}"),
        format!(
            "{:.2} us a pair, {megabytes:.1} MiB for tombstones and index",
            pair / 1e3
        ),
        "4 us, 64 MB",
        vec![(name.into(), vec![pair])],
    );
    let slice = size.slice;
    let old = |round| {
        let picks = rivals::picks(count, slice, SEED + round);
        let snapshots = rivals::picks(count, slice, SEED + 1_000 + round);
        let get = |(pick, at): (u32, u32)| {
            tables::get(
                &table,
                u64::from(pick) * STRIDE,
                u64::from(count) + 1 + u64::from(at),
            )
        };
        picks
            .into_iter()
            .zip(snapshots)
            .map(get)
            .fold(0, u64::wrapping_add)
    };
    for state in ["mutable", "frozen"] {
        if state == "frozen" {
            let _ = table.freeze().expect("no damage");
        }
        let mut candidates: [Candidate<'_>; 1] = [("old snapshots", Box::new(old))];
        let samples = turns(report, size.rounds, slice, &mut candidates);
        let figures = format!("{:.2} us", median(&samples[0].1) / 1e3);
        let work = format!("get at random old snapshots, {count} {name}, {state}");
        report.line(work, figures, "8 us", samples);
    }
}

// The table that RocksDB published: fillrandom with one range delete after each of the first
// writes, then readrandom, by the number of range deletes.
//
// Its figures are microseconds an operation on its authors' machine, before ('every read
// fragments') and after ('cached at the freeze'). RocksDB writes a log and reads many tables, so
// only ratios to the first row are comparable.

const COUNTS: [u32; 5] = [0, 1, 10, 100, 1000];
/// Width of a range in keys.
const WIDTH: u64 = 100;
/// readrandom in the published table: before and after, for 1 and for 32 threads.
const PUBLISHED: [[Option<(f64, f64)>; 5]; 2] = [
    [
        Some((4.72, 4.54)),
        Some((5.41, 4.72)),
        Some((7.83, 4.59)),
        Some((29.57, 5.09)),
        Some((320.33, 5.21)),
    ],
    [
        Some((5.06, 5.09)),
        Some((19.57, 5.45)),
        Some((151.73, 5.73)),
        Some((2308.52, 6.57)),
        None,
    ],
];

fn measure_published(report: &mut Report, size: Size) {
    for ((threads, (writes, reads)), published) in
        [1u32, 32].into_iter().zip(size.published).zip(PUBLISHED)
    {
        let plural = if threads == 1 {
            ""
        } else {
            "s, tombstones per thread"
        };
        let title = format!(
            "The published shape: {threads} thread{plural}, {writes} writes and {reads} reads each"
        );
        report.start_table(
            &title,
            "| tombstones | fillrandom and readrandom, us an operation; readrandom to its first row | readrandom published, \
             before / after: us, to its first row |",
        );
        let mut first = None;
        for (count, published) in COUNTS.into_iter().zip(published) {
            let [write, read] = cell(report, threads, (writes, reads), count);
            let base = *first.get_or_insert(read);
            let figures = format!(
                "{:.2}, {:.2}; {:.2} x",
                write / 1e3,
                read / 1e3,
                read / base
            );
            let (before, after) = if threads == 1 {
                (4.72, 4.54)
            } else {
                (5.06, 5.09)
            };
            let published = published.map_or("not published".into(), |(b, a)| {
                format!("{b} / {a}: {:.1} x / {:.2} x", b / before, a / after)
            });
            let samples = vec![
                ("fillrandom".into(), vec![write]),
                ("readrandom".into(), vec![read]),
            ];
            report.line(count.to_string(), figures, published, samples);
        }
    }
}

/// Nanoseconds of a write and of a read in one thread while all threads write or read.
fn cell(report: &mut Report, threads: u32, (writes, reads): (u32, u32), count: u32) -> [f64; 2] {
    let space = u64::from(writes * threads);
    let table = &tables::table(writes * threads + count * threads, Finder::List);
    let all = |work: &(dyn Fn(u64) -> u64 + Sync)| {
        let started = Instant::now();
        let sum = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..u64::from(threads))
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker"))
                .fold(0, u64::wrapping_add)
        });
        (started.elapsed().as_secs_f64() * 1e9, sum)
    };
    let (fill, _) = all(&|thread| fill(table, thread, (writes, count), space));
    let (read, sum) = all(&|thread| {
        let number = |at| rivals::mix(SEED << 40 ^ thread << 32 ^ at) % space;
        (0..u64::from(reads))
            .map(|at| found(table, number(at)))
            .fold(0, u64::wrapping_add)
    });
    // The thread that wins a race for a key differs from run to run.
    report.saw(if threads == 1 { sum } else { 0 });
    [fill / f64::from(writes), read / f64::from(reads)]
}

fn fill(table: &MemTable, thread: u64, (writes, count): (u32, u32), space: u64) -> u64 {
    let number = |at: u64| rivals::mix(thread << 32 ^ at) % space;
    let first = thread * u64::from(writes + count);
    let mut sequence = first;
    for at in 0..u64::from(writes) {
        sequence += 1;
        tables::put(table, sequence, number(at));
        if at < u64::from(count) {
            sequence += 1;
            let start = number(at + u64::from(writes));
            tables::delete_range(table, sequence, start, start + WIDTH);
        }
    }
    sequence - first
}

fn found(table: &MemTable, number: u64) -> u64 {
    match table.get(tables::key(number), u64::MAX).expect("no damage") {
        Lookup::Value(value) => value.sequence(),
        _ => 0,
    }
}

/// The tables to measure, the work on them, and the record.
mod tables {
    use std::fmt::Write;
    use std::hint::black_box;
    use std::time::Instant;

    use measure::{Environment, Record, Row, Section, quartiles};
    use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, TableReader};

    use crate::Size;
    use crate::rivals::{self, Arguments, Order};

    pub(crate) const SEED: u64 = 4;
    const VALUE: [u8; 100] = [7; 100];
    /// Distance between the numbers of two entries: ranges fit between them.
    pub(crate) const STRIDE: u64 = 16;

    /// The part that finds an entry.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Finder {
        List,
        Directory,
    }

    /// A key of 16 bytes.
    pub(crate) fn key(number: u64) -> [u8; 16] {
        let mut key = [b'0'; 16];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// An empty table with 8 protection bytes; `entries` fit its write buffer.
    pub(crate) fn table(entries: u32, finder: Finder) -> MemTable {
        let buffer = (u64::from(entries) * 160).next_power_of_two().max(1 << 20);
        let directory = if finder == Finder::Directory {
            Directory::On
        } else {
            Directory::Off
        };
        let options = MemTableOptions::builder()
            .write_buffer_size(buffer)
            .seed(SEED)
            .directory(directory);
        MemTable::new(options.build().expect("valid options")).expect("memory")
    }

    /// Inserts entries in random order, with sequence numbers from 1. The number of an entry is its
    /// place in the key space.
    pub(crate) fn fill(table: &MemTable, entries: u32) {
        let mut writer = table.writer();
        for (sequence, entry) in (1u64..).zip(rivals::order(entries, Order::Random, SEED)) {
            writer
                .put(sequence, key(u64::from(entry) * STRIDE), VALUE)
                .expect("room");
        }
    }

    pub(crate) fn filled(entries: u32, finder: Finder) -> MemTable {
        let table = table(entries, finder);
        fill(&table, entries);
        table
    }

    pub(crate) fn put(table: &MemTable, sequence: u64, number: u64) {
        table.put(sequence, key(number), VALUE).expect("room");
    }

    pub(crate) fn delete_range(table: &MemTable, sequence: u64, start: u64, end: u64) {
        table
            .delete_range(sequence, key(start), key(end))
            .expect("a tombstone");
    }

    /// The width of tombstones at equal distances.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Width {
        /// Each tombstone is between two entries.
        Gap,
        /// Each tombstone covers half of the distance to the next one: every second entry is
        /// deleted.
        Half,
    }

    /// `count` tombstones over the whole key space, in random order, newer than the entries.
    pub(crate) fn spread(table: &MemTable, entries: u32, count: u32, width: Width) {
        let step = u64::from(entries) / u64::from(count.max(1)) * STRIDE;
        let width = if width == Width::Gap {
            STRIDE / 2
        } else {
            step / 2
        };
        for (sequence, at) in
            (u64::from(entries) + 1..).zip(rivals::order(count, Order::Random, SEED))
        {
            let start = u64::from(at) * step + 1;
            delete_range(table, sequence, start, start + width);
        }
    }

    /// The result of a get, as a number.
    pub(crate) fn get(table: &TableReader, number: u64, snapshot: u64) -> u64 {
        match table.get(key(number), snapshot).expect("no damage") {
            Lookup::Value(value) => 1 + value.sequence(),
            Lookup::Deleted { sequence, .. } => 2 + sequence,
            _ => 0,
        }
    }

    /// Gets random present keys. Returns a sum of the results.
    pub(crate) fn gets(table: &TableReader, entries: u32, count: usize, seed: u64) -> u64 {
        let picks = rivals::picks(entries, count, seed);
        let get = |entry: &u32| get(table, u64::from(*entry) * STRIDE, u64::MAX);
        picks.iter().map(get).fold(0, u64::wrapping_add)
    }

    // The record: the work, its time, and the target.

    /// All results of a run.
    #[derive(Debug)]
    pub(crate) struct Report {
        size: Size,
        /// Names of all candidates of any row.
        candidates: Vec<String>,
        /// One section for each table, with a title and then the names of its columns.
        sections: Vec<Section>,
        hash: u64,
    }

    impl Report {
        pub(crate) fn new(size: Size) -> Report {
            Report {
                size,
                candidates: Vec::new(),
                sections: Vec::new(),
                hash: 0,
            }
        }

        pub(crate) fn start_table(&mut self, title: &str, columns: &str) {
            let entries = self.size.entries.into();
            self.sections.push(Section {
                title: format!("{title}\n\n{columns}"),
                entries,
                ..Section::default()
            });
        }

        /// Adds a line. `samples` are nanoseconds of one operation by candidate.
        pub(crate) fn line(
            &mut self,
            work: impl Into<String>,
            figures: impl Into<String>,
            target: impl Into<String>,
            samples: Vec<(String, Vec<f64>)>,
        ) {
            let mut row = Row {
                name: work.into(),
                figures: figures.into(),
                target: target.into(),
                ..Row::default()
            };
            eprintln!("{}: {}", row.name, row.figures);
            for (name, samples) in samples {
                let known = self
                    .candidates
                    .iter()
                    .position(|candidate| *candidate == name);
                let at = known.unwrap_or_else(|| {
                    self.candidates.push(name);
                    self.candidates.len() - 1
                });
                row.nanoseconds
                    .resize(row.nanoseconds.len().max(at + 1), None);
                row.nanoseconds[at] = Some(samples);
            }
            if let Some(section) = self.sections.last_mut() {
                section.rows.push(row);
            }
        }

        /// Adds a sum of what was read to the hash of the work.
        pub(crate) fn saw(&mut self, sum: u64) {
            self.hash = rivals::mix(self.hash ^ sum);
        }

        /// The record, after all measurements.
        pub(crate) fn record(mut self, arguments: &Arguments) -> Record {
            if let Some(row) = self
                .sections
                .last_mut()
                .and_then(|section| section.rows.last_mut())
            {
                row.hash = format!("{:016x}", self.hash);
            }
            arguments.record(
                self.candidates,
                self.size.rounds,
                self.size.slice,
                self.sections,
            )
        }
    }

    /// The page of a record.
    pub(crate) fn markdown(record: &Record) -> String {
        let Environment {
            processor,
            compiler,
            commit,
            command,
            date,
            ..
        } = &record.environment;
        let entries = record.sections.first().map_or(0, |section| section.entries);
        let mut text = format!(
            "# Results: `{command}`\n\n- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, \
             default target\n- commit: {commit}\n- 16-byte keys, 100-byte values, {entries} entries inserted at random, \
             protection 8, medians over {} rounds\n",
            record.rounds
        );
        for section in &record.sections {
            let columns = section.title.lines().last().unwrap_or_default();
            let count = columns.matches('|').count().saturating_sub(1);
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {}\n|{}\n", section.title, "---|".repeat(count));
            for row in &section.rows {
                let _ = writeln!(text, "| {} | {} | {} |", row.name, row.figures, row.target);
            }
        }
        let mut hash = record
            .sections
            .iter()
            .flat_map(|section| &section.rows)
            .map(|row| row.hash.as_str());
        let _ = writeln!(
            text,
            "\nHash of the work: `{}`",
            hash.next_back().unwrap_or_default()
        );
        text
    }

    /// A candidate: a name, and work that returns a sum of what it read.
    pub(crate) type Candidate<'w> = (&'static str, Box<dyn FnMut(u64) -> u64 + 'w>);

    /// Nanoseconds of one operation by candidate, with the candidates' names. Each round gives each
    /// candidate one slice of the same work.
    pub(crate) fn turns(
        report: &mut Report,
        rounds: usize,
        ops: usize,
        candidates: &mut [Candidate<'_>],
    ) -> Vec<(String, Vec<f64>)> {
        let mut samples: Vec<(String, Vec<f64>)> = candidates
            .iter()
            .map(|(name, _)| ((*name).into(), Vec::with_capacity(rounds)))
            .collect();
        let mut sum = 0u64;
        // The first round warms up.
        for round in 0..=rounds {
            for turn in 0..candidates.len() {
                let candidate = (round + turn) % candidates.len();
                let started = Instant::now();
                sum = sum.wrapping_add(black_box(candidates[candidate].1(round as u64)));
                if round > 0 {
                    samples[candidate]
                        .1
                        .push(started.elapsed().as_secs_f64() * 1e9 / ops.max(1) as f64);
                }
            }
        }
        report.saw(sum);
        samples
    }

    pub(crate) fn median(samples: &[f64]) -> f64 {
        quartiles(samples.to_vec())[1]
    }

    /// The median over the rounds of a figure made of two candidates' times.
    pub(crate) fn paired(a: &[f64], b: &[f64], how: impl Fn(f64, f64) -> f64) -> f64 {
        median(
            &a.iter()
                .zip(b)
                .map(|(a, b)| how(*a, *b))
                .collect::<Vec<_>>(),
        )
    }

    /// Compares the first candidate with the second one: times, ratio, difference.
    pub(crate) fn against(with: &[f64], without: &[f64]) -> String {
        format!(
            "{:.0} ns against {:.0}: {:.2} x, {:+.0} ns",
            median(with),
            median(without),
            paired(with, without, |with, without| with / without),
            paired(with, without, |with, without| with - without)
        )
    }
}
