//! Work whose instructions `benches/instructions/run` counts: keys as engines have them, and keys
//! that tell little apart.
//!
//! ```text
//!   keys       each shape of measure::keys, filled at random and in order: all calls of a row together
//!   hostile    keys that tell little apart: each call by itself
//! ```
//! callgrind counts only inside of [`counted`], and writes a total after each call of it. For each
//! row this program prints its name, the number of totals, and the operations of a total. A last
//! argument is a part of the names of the rows to count, for profiles: `paths|get miss`.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "keys are few and short")]

#[path = "../../src/memtable/skiplist/tests/directory/hostile_shapes.rs"]
mod hostile_shapes;

use std::collections::BTreeSet;
use std::hint::black_box;

use hostile_shapes::hostile_shapes;
use measure::keys::{Generator, Presence, Shape, mix as splitmix, shuffled};
use paranoid_memtable::{Lookup, MemTable, MemTableOptions};

const VALUE: [u8; 100] = [0x61; 100];

/// Bytes that an entry takes beside key, value and pages.
const ENTRY: f64 = 120.0;

/// Seeds of the order of a fill at random, and of the order of reads.
const SEEDS: [u64; 2] = [4, 5];

/// The work that callgrind counts.
#[inline(never)]
fn counted(work: &mut dyn FnMut() -> u64) -> u64 {
    work()
}

/// How many operations one total is for.
#[derive(Clone, Copy)]
enum Totals {
    OfRow,
    OfCall,
}

/// How rows are counted.
#[derive(Clone, Copy)]
struct Plan<'a> {
    entries: u64,
    totals: Totals,
    /// A part of the names of the rows that are counted.
    only: &'a str,
}

/// A table, and how its rows are counted.
struct Subject<'a> {
    table: MemTable,
    plan: Plan<'a>,
}

impl<'a> Subject<'a> {
    fn new(plan: Plan<'a>) -> Subject<'a> {
        let options = MemTableOptions::builder().seed(1).build().expect("options");
        let table = MemTable::new(options).expect("a table");
        Subject { table, plan }
    }

    /// Runs an operation with each key and its number, counted, and prints the row.
    fn row(&self, name: &str, keys: &[&[u8]], operation: impl Fn(&MemTable, u64, &[u8]) -> u64) {
        let numbered = || (1..).zip(keys.iter().copied());
        let run = |(number, key)| operation(&self.table, number, key);
        if !name.contains(self.plan.only) {
            black_box(numbered().map(run).sum::<u64>());
            return;
        }
        let (totals, hash): (usize, u64) = match self.plan.totals {
            Totals::OfRow => (1, counted(&mut || numbered().map(run).sum())),
            Totals::OfCall => {
                let run = |(number, key)| counted(&mut || operation(&self.table, number, key));
                (keys.len(), numbered().map(run).sum())
            }
        };
        println!("{name}|{totals}|{}", keys.len() / totals);
        black_box(hash);
    }

    fn insert(&self, name: &str, keys: &[&[u8]]) {
        // The first insert takes the table's memory, which is setup.
        self.table.put(1, keys[0], VALUE).expect("a put");
        self.row(
            &format!("{name}|insert"),
            &keys[1..],
            |table, number, key| {
                table.put(number + 1, key, VALUE).expect("a put");
                0
            },
        );
    }

    fn reads(&self, name: &str, present: &[&[u8]], absent: &[&[u8]]) {
        self.row(
            &format!("{name}|get hit"),
            present,
            |table, _, key| match table.get(key, u64::MAX).expect("a get") {
                Lookup::Value(value) => value.sequence() + u64::from(value[0]),
                _ => panic!("a present key is not found"),
            },
        );
        self.row(
            &format!("{name}|get miss"),
            absent,
            |table, _, key| match table.get(key, u64::MAX).expect("a get") {
                Lookup::Value(_) => panic!("an absent key is found"),
                _ => 1,
            },
        );
        self.row(&format!("{name}|seek"), present, |table, _, key| {
            let entry = table.range(key..).next().expect("a present key");
            entry.expect("intact memory").sequence()
        });
    }
}

fn engines(plan: Plan<'_>) {
    let entries = plan.entries;
    let read = shuffled(entries, SEEDS[1]);
    for shape in Shape::ALL {
        let generator = Generator::new(shape, entries);
        let present = generator.keys(&read, Presence::Hit);
        let absent = generator.keys(&read, Presence::Miss);
        let fills = [
            ("at random", shuffled(entries, SEEDS[0])),
            ("in order", (0..entries).collect()),
        ];
        for (fill, order) in fills {
            let (name, filled) = (
                format!("{} | {fill}", shape.name()),
                generator.keys(&order, Presence::Hit),
            );
            let subject = Subject::new(plan);
            subject.insert(&name, &filled.iter().collect::<Vec<_>>());
            let [present, absent] = [&present, &absent].map(|keys| keys.iter().collect::<Vec<_>>());
            subject.reads(&name, &present, &absent);
        }
    }
}

/// Absent keys beside present ones: a zero byte more, or the byte in the middle one larger.
fn absent(present: &BTreeSet<Vec<u8>>) -> Vec<Vec<u8>> {
    let longer = present.iter().map(|key| [key.as_slice(), &[0]].concat());
    let larger = present.iter().map(|key| {
        let mut key = key.clone();
        let middle = key.len() / 2;
        if let Some(byte) = key.get_mut(middle) {
            *byte = byte.wrapping_add(1);
        }
        key
    });
    let beside = longer.chain(larger).filter(|key| !present.contains(key));
    beside.step_by(2).collect()
}

fn hostile(plan: Plan<'_>) {
    for shape in hostile_shapes(plan.entries, plan.entries / 3) {
        let subject = Subject::new(plan);
        let keys: Vec<&[u8]> = shape.keys.iter().map(Vec::as_slice).collect();
        subject.insert(shape.name, &keys);
        let present: BTreeSet<Vec<u8>> = shape.keys.iter().cloned().collect();
        let absent = absent(&present);
        let absent: Vec<&[u8]> = absent.iter().map(Vec::as_slice).collect();
        subject.reads(shape.name, &keys, &absent);
        let payload: usize = keys.iter().map(|key| key.len() + VALUE.len()).sum();
        let added = (subject.table.used_bytes() as f64 - payload as f64) / keys.len() as f64;
        println!("{}|bytes added|0|{added:.0}", shape.name);
        assert!(added < shape.bytes + ENTRY, "{}: {added} bytes", shape.name);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize| arguments.get(at).map_or("", String::as_str);
    let plan = |totals| Plan {
        entries: text(1).parse().unwrap_or(300),
        totals,
        only: text(2),
    };
    // A test, or `cargo bench`, names no rows: all of them show that they run.
    if text(0) != "hostile" {
        engines(plan(Totals::OfRow));
    }
    if text(0) != "keys" {
        hostile(plan(Totals::OfCall));
    }
}
