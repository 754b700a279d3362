//! Pairs of a range delete and a get: they would show if the index were rebuilt after each range delete.

use std::time::Instant;

use paranoid_memtable::MemTable;

use crate::Size;
use crate::report::{Candidate, Report, median, turns};
use crate::rivals::{self, Order};
use crate::tables::{self, Finder, SEED, STRIDE};

const RUNS: usize = 5;

/// The shape of the ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Disjoint,
    /// Each a hundredth of the key space, anywhere.
    Wide,
    /// Each inside all the ones before it.
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

pub(crate) fn measure(report: &mut Report, size: Size) {
    let title = "Range delete and get in turn";
    report.start_table(title, "| work; as many entries as tombstones, filled at random | figures | target |");
    for shape in [Shape::Disjoint, Shape::Wide, Shape::Nested] {
        let mut pair = Vec::new();
        for _ in 0..RUNS {
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

/// Nanoseconds of a range delete and the get after it, on average.
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
        sum = sum.wrapping_add(tables::get(&table, u64::from(pick) * STRIDE, u64::MAX));
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
        format!("{:.2} us a pair, {megabytes:.1} MiB for tombstones and index", pair / 1e3),
        "4 us, 64 MB",
        vec![(name.into(), vec![pair])],
    );
    let slice = size.slice;
    let old = |round| {
        let picks = rivals::picks(count, slice, SEED + round);
        let snapshots = rivals::picks(count, slice, SEED + 1_000 + round);
        let get = |(pick, at): (u32, u32)| {
            tables::get(&table, u64::from(pick) * STRIDE, u64::from(count) + 1 + u64::from(at))
        };
        picks.into_iter().zip(snapshots).map(get).fold(0, u64::wrapping_add)
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
