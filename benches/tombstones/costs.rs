//! Ratios to the same work without tombstones.

use std::sync::Barrier;
use std::time::Instant;

use paranoid_memtable::{MemTable, TableReader};

use crate::Size;
use crate::report::{Candidate, Report, against, median, paired, turns};
use crate::tables::{self, Finder, STRIDE, Width};

const TOMBSTONES: u32 = 1_000;
const DELETE_EVERY: u64 = 200;
const RUNS: usize = 3;

pub(crate) fn measure(report: &mut Report, size: Size) {
    let title = "What tombstones cost";
    report.start_table(
        title,
        "| work; tombstones over the whole key space, in random order | figures | target |",
    );
    for (finder, name, targets) in
        [(Finder::List, "list", ["1.25 x", "1.1 x"]), (Finder::Directory, "directory", ["1.25 x", "1.1 x"])]
    {
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
    let width = if width == Width::Gap { "between entries" } else { "half of all keys deleted" };
    for (state, target) in ["mutable", "frozen"].into_iter().zip(targets) {
        if state == "frozen" {
            // Freezes the tables that were read before.
            let _ = (with.freeze().expect("no damage"), without.freeze().expect("no damage"));
        }
        let gets = |table: &MemTable, round| tables::gets(&table, entries, size.slice, round);
        let mut candidates: [Candidate<'_>; 2] =
            [("0", Box::new(|round| gets(&without, round))), ("1000", Box::new(|round| gets(&with, round)))];
        let samples = turns(report, size.rounds, size.slice, &mut candidates);
        let figures = against(&samples[1].1, &samples[0].1);
        report.line(format!("get, {name}, {state}, 1000 against 0, {width}"), figures, target, samples);
    }
}

/// Gets by so many threads at once, each its own slice. Returns the time from the start of the first to the end of
/// the last.
fn together(table: &TableReader, size: Size, threads: u64, round: u64) -> u64 {
    std::thread::scope(|scope| {
        let reader = |thread| {
            scope.spawn(move || tables::gets(table, size.entries, size.slice * 16, round * 64 + thread))
        };
        let readers: Vec<_> = (0..threads).map(reader).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader")).fold(0, u64::wrapping_add)
    })
}

fn two_threads(report: &mut Report, size: Size) {
    let without = tables::filled(size.entries, Finder::List);
    let with = tables::filled(size.entries, Finder::List);
    tables::spread(&with, size.entries, 100, Width::Gap);
    let mut candidates: [Candidate<'_>; 4] = [
        ("0, 1 thread", Box::new(|round| together(&without, size, 1, round))),
        ("0, 2 threads", Box::new(|round| together(&without, size, 2, round))),
        ("100, 1 thread", Box::new(|round| together(&with, size, 1, round))),
        ("100, 2 threads", Box::new(|round| together(&with, size, 2, round))),
    ];
    let samples = turns(report, size.rounds, size.slice * 16, &mut candidates);
    let scale = |one: usize| paired(&samples[one].1, &samples[one + 1].1, |one, two| 2.0 * one / two);
    let figures = format!("{:.2} x at 100, {:.2} x at 0", scale(2), scale(0));
    report.line("throughput of 2 threads over 1, get, list, mutable", figures, "as at 0", samples);
}

/// Puts in random order of keys, on request with one narrow range delete in 200 writes.
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
        (from..from + slice as u64).for_each(|sequence| write(table, sequence, size.entries, deletes));
        slice as u64
    };
    let mut candidates: [Candidate<'_>; 2] = [
        ("none", Box::new(|round| puts(&tables[0], round, Deletes::None))),
        ("one in 200", Box::new(|round| puts(&tables[1], round, Deletes::OneIn200))),
    ];
    let samples = turns(report, size.rounds, slice, &mut candidates);
    let figures = against(&samples[1].1, &samples[0].1);
    report.line("put at random, a range delete in 200 writes against none", figures, "1.05 x", samples);
}

/// Makes the same writes several times. The shortest time of each write counts: what it merges is merged each time,
/// and an interruption is not.
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
    let mut ready =
        [0, TOMBSTONES].map(|count| (0..rounds).map(|_| table_to_freeze(count)).collect::<Vec<_>>());
    let [without, with] = &mut ready;
    let freeze = |tables: &mut Vec<MemTable>| {
        tables.pop().map_or(0, |table| table.freeze().expect("no damage").len() as u64)
    };
    let mut candidates: [Candidate<'_>; 2] =
        [("0", Box::new(|_| freeze(without))), ("1000", Box::new(|_| freeze(with)))];
    let samples = turns(report, size.rounds, 1, &mut candidates);
    let us = |candidate: usize| median(&samples[candidate].1) / 1e3;
    let figures = format!("{:.0} us; {:.1} us without tombstones", us(1), us(0));
    report.line("freeze with 1000 narrow tombstones", figures, "300 us", samples);
}

/// Puts into one table while another thread freezes tables with 1000 tombstones, or freezes empty ones.
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
                samples[candidate].1.push(started.elapsed().as_secs_f64() * 1e9 / slice as f64);
            });
            next += slice;
        }
    }
    let figures = against(&samples[1].1, &samples[0].1);
    report.line("put into another table during the freeze, 1000 against 0", figures, "unaffected", samples);
}
