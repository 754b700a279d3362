//! The shape of a table that RocksDB published: fillrandom with one range delete after each of the first writes, then
//! readrandom, by the number of range deletes.
//!
//! Its figures are microseconds an operation on its authors' machine, from 'every read fragments' (before) to 'cached at
//! the freeze' (after). Its engine writes a log and looks through many tables, so only ratios to the first row compare.

use std::time::Instant;

use paranoid_memtable::{Lookup, MemTable};

use crate::Size;
use crate::report::Report;
use crate::rivals;
use crate::tables::{self, Finder, SEED};

const COUNTS: [u32; 5] = [0, 1, 10, 100, 1000];
/// In keys.
const WIDTH: u64 = 100;
/// readrandom in the published table: before and after, for 1 and for 32 threads.
const PUBLISHED: [[Option<(f64, f64)>; 5]; 2] = [
    [Some((4.72, 4.54)), Some((5.41, 4.72)), Some((7.83, 4.59)), Some((29.57, 5.09)), Some((320.33, 5.21))],
    [Some((5.06, 5.09)), Some((19.57, 5.45)), Some((151.73, 5.73)), Some((2308.52, 6.57)), None],
];

pub(crate) fn measure(report: &mut Report, size: Size) {
    for ((threads, (writes, reads)), published) in [1u32, 32].into_iter().zip(size.published).zip(PUBLISHED) {
        let plural = if threads == 1 { "" } else { "s, tombstones per thread" };
        let title =
            format!("The published shape: {threads} thread{plural}, {writes} writes and {reads} reads each");
        report.start_table(
            &title,
            "| tombstones | fillrandom and readrandom, us an operation; readrandom to its first row | readrandom published, \
             before / after: us, to its first row |",
        );
        let mut first = None;
        for (count, published) in COUNTS.into_iter().zip(published) {
            let [write, read] = cell(report, threads, (writes, reads), count);
            let base = *first.get_or_insert(read);
            let figures = format!("{:.2}, {:.2}; {:.2} x", write / 1e3, read / 1e3, read / base);
            let (before, after) = if threads == 1 { (4.72, 4.54) } else { (5.06, 5.09) };
            let published = published.map_or("not published".into(), |(b, a)| {
                format!("{b} / {a}: {:.1} x / {:.2} x", b / before, a / after)
            });
            let samples = vec![("fillrandom".into(), vec![write]), ("readrandom".into(), vec![read])];
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
            let workers: Vec<_> =
                (0..u64::from(threads)).map(|thread| scope.spawn(move || work(thread))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker")).fold(0, u64::wrapping_add)
        });
        (started.elapsed().as_secs_f64() * 1e9, sum)
    };
    let (fill, _) = all(&|thread| fill(table, thread, (writes, count), space));
    let (read, sum) = all(&|thread| {
        let number = |at| rivals::mix(SEED << 40 ^ thread << 32 ^ at) % space;
        (0..u64::from(reads)).map(|at| found(table, number(at))).fold(0, u64::wrapping_add)
    });
    // Which thread wins a race for a key differs from run to run.
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
    match table.get(&tables::key(number), u64::MAX).expect("no damage") {
        Lookup::Value(value) => value.sequence(),
        _ => 0,
    }
}
