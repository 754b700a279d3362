//! Runs the same work on two versions of the crate in turns, slice by slice, in one process.
//!
//! ```text
//!   benches/versions/run COMMIT [ENTRIES [ROUNDS [PROTECTION_BYTES]]]
//!   benches/versions/run COMMIT keys [ENTRIES [ROUNDS [PROTECTION_BYTES]]]           see `shapes`
//!   benches/versions/run COMMIT count [ENTRIES [PROTECTION_BYTES [ROWS]]]            instructions instead of time: callgrind
//!   benches/versions/run COMMIT overwrites [WRITES [ROUNDS [PROTECTION_BYTES]]]      see `overwrites`
//! ```
//! A slice is timed by the thread's own processor time. A row shows three things: the median over
//! all slices of the ratio after / before (above 1: slower than before), the quartiles of that
//! ratio, and both medians in nanoseconds an operation. Both versions fold what they read into a
//! hash; a difference ends the run.

#![forbid(unsafe_code)]

mod overwrites;
mod shapes;

use std::time::Duration;

use measure::keys::mix;
use rustix::time::{ClockId, clock_gettime};

const SLICES: usize = 25;
const VALUE_LEN: usize = 100;
const BATCH: usize = 32;
const KEYS_AT_ONCE: usize = 24;

/// The filter's share of the default write buffer: 20 bits a key at 250 000 entries.
const FILTER_SHARE: f64 = 0.0095;

type Key = [u8; 16];

/// The parts of a table beside its list.
#[derive(Clone, Copy)]
enum Accelerator {
    Nothing,
    Filter,
}

/// The work of one run: keys in ascending order, and in a random order.
struct Work {
    keys: Vec<Key>,
    shuffled: Vec<Key>,
    absent: Vec<Key>,
    value: [u8; VALUE_LEN],
    protection: u8,
    /// The seed of the tables, which is another one in each round.
    seed: u64,
}

fn key(number: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&mix(number).to_le_bytes());
    key
}

/// The absent key right after a present one.
fn absent(mut key: Key) -> Key {
    key[7] |= 1;
    key
}

impl Work {
    fn new(entries: u64, protection: u8) -> Work {
        let keys: Vec<Key> = (0..entries).map(|number| key(2 * number)).collect();
        let mut shuffled = keys.clone();
        for last in (1..shuffled.len()).rev() {
            shuffled.swap(last, (mix(last as u64) % (last as u64 + 1)) as usize);
        }
        let absent = shuffled.iter().map(|present| absent(*present)).collect();
        Work {
            keys,
            shuffled,
            absent,
            value: [0x61; VALUE_LEN],
            protection,
            seed: 0,
        }
    }

    /// The keys of one slice.
    fn slice<'a>(&self, keys: &'a [Key], slice: usize) -> &'a [Key] {
        let len = keys.len() / SLICES;
        &keys[slice * len..(slice + 1) * len]
    }
}

/// The operations of a version.
trait Version {
    fn put(&mut self, keys: &[Key], value: &[u8], first: u64);
    fn batches(&mut self, keys: &[Key], value: &[u8], first: u64);
    fn get(&self, keys: &[Key]) -> u64;
    fn multi_get(&self, keys: &[Key]) -> u64;
    fn seek(&self, keys: &[Key]) -> u64;
    fn forward(&self, from: &Key, to: &Key) -> u64;
    fn backward(&self, from: &Key, to: &Key) -> u64;
    fn delete_ranges(&mut self, starts: &[Key], first: u64);
    fn freeze(&mut self);
}

macro_rules! version {
    ($name:ident) => {
        mod $name {
            use super::{Accelerator, BATCH, FILTER_SHARE, KEYS_AT_ONCE, Key, Version};
            use $name::{Lookup, MemTable, MemTableOptions, ParanoidOptions, ValueRef, WriteBatch};

            pub struct Table(MemTable);

            pub fn table(protection: u8, seed: u64, accelerator: Accelerator) -> Table {
                let paranoid = ParanoidOptions::builder()
                    .protection_bytes(protection)
                    .build()
                    .expect("options");
                let options = MemTableOptions::builder().paranoid(paranoid).seed(seed);
                let options = match accelerator {
                    Accelerator::Nothing => options,
                    Accelerator::Filter => options.whole_key_filter(FILTER_SHARE),
                };
                Table(MemTable::new(options.build().expect("options")).expect("a table"))
            }

            impl Version for Table {
                fn put(&mut self, keys: &[Key], value: &[u8], first: u64) {
                    for (key, sequence) in keys.iter().zip(first..) {
                        self.0.put(sequence, key, value).expect("a put");
                    }
                }

                fn batches(&mut self, keys: &[Key], value: &[u8], first: u64) {
                    for (keys, number) in keys.chunks(BATCH).zip(0..) {
                        let mut batch = WriteBatch::with_protection(8).expect("a batch");
                        for key in keys {
                            batch.put(key, value).expect("an entry");
                        }
                        self.0
                            .write_batch(first + number * BATCH as u64, &batch)
                            .expect("a write");
                    }
                }

                fn get(&self, keys: &[Key]) -> u64 {
                    let found = |key: &Key| match self.0.get(key, u64::MAX).expect("a get") {
                        Lookup::Value(value) => found(&value),
                        _ => 1,
                    };
                    keys.iter().map(found).sum()
                }

                fn multi_get(&self, keys: &[Key]) -> u64 {
                    let mut results = Vec::new();
                    let mut hash = 0;
                    for keys in keys.chunks(KEYS_AT_ONCE) {
                        let mut asked = [&[][..]; KEYS_AT_ONCE];
                        for (slot, key) in asked.iter_mut().zip(keys) {
                            *slot = key;
                        }
                        self.0
                            .multi_get_into(&asked[..keys.len()], u64::MAX, &mut results);
                        let found = |result: &_| match result {
                            Ok(Lookup::Value(value)) => found(value),
                            Ok(_) => 1,
                            Err(_) => panic!("a get"),
                        };
                        hash += results.iter().map(found).sum::<u64>();
                    }
                    hash
                }

                fn seek(&self, keys: &[Key]) -> u64 {
                    let mut hash = 0;
                    for key in keys.iter().step_by(10) {
                        for entry in self.0.range(key.as_slice()..).take(11) {
                            hash += u64::from(entry.expect("an entry").user_key()[15]);
                        }
                    }
                    hash
                }

                fn forward(&self, from: &Key, to: &Key) -> u64 {
                    let range = self.0.range(from.as_slice()..=to.as_slice());
                    range.map(|entry| scanned(&entry.expect("an entry"))).sum()
                }

                fn backward(&self, from: &Key, to: &Key) -> u64 {
                    let range = self.0.range(from.as_slice()..=to.as_slice()).rev();
                    range.map(|entry| scanned(&entry.expect("an entry"))).sum()
                }

                #[inline(never)]
                fn delete_ranges(&mut self, starts: &[Key], first: u64) {
                    for (start, sequence) in starts.iter().zip(first..) {
                        let end = super::absent(*start);
                        self.0.delete_range(sequence, start, end).expect("a range");
                    }
                }

                fn freeze(&mut self) {
                    self.0.freeze().expect("a freeze");
                }
            }

            /// Takes only the value, whose type both versions have.
            fn found(value: &ValueRef<'_>) -> u64 {
                value.sequence() + u64::from(value[0])
            }

            fn scanned(entry: &$name::Entry<'_>) -> u64 {
                u64::from(entry.user_key()[15]) + u64::from(entry.value().expect("a value")[0])
            }
        }
    };
}

version!(before);
version!(after);

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

/// Slices of one kind of work: nanoseconds of both versions, and a hash of what was read.
#[derive(Default)]
struct Row {
    before: Vec<f64>,
    after: Vec<f64>,
    hash: u64,
    operations: usize,
}

impl Row {
    /// Runs one slice on both versions. They take turns in beginning.
    fn slice(
        &mut self,
        operations: usize,
        number: usize,
        before: &mut dyn FnMut() -> u64,
        after: &mut dyn FnMut() -> u64,
    ) {
        let timed = |work: &mut dyn FnMut() -> u64| {
            let started = thread_time();
            let hash = std::hint::black_box(work());
            (
                (thread_time() - started).as_secs_f64() * 1e9 / operations as f64,
                hash,
            )
        };
        let (left, right) = if number % 2 == 0 {
            let left = timed(before);
            (left, timed(after))
        } else {
            let right = timed(after);
            (timed(before), right)
        };
        assert_eq!(left.1, right.1, "both versions read the same");
        self.hash = mix(self.hash ^ left.1);
        self.operations += operations;
        self.before.push(left.0);
        self.after.push(right.0);
    }

    fn print(&self, name: &str) {
        let ratios: Vec<f64> = self
            .after
            .iter()
            .zip(&self.before)
            .map(|(after, before)| after / before)
            .collect();
        println!(
            "{name:<32} {:6.3}  [{:.3} .. {:.3}]  {:8.1} -> {:8.1} ns",
            quantile(&ratios, 0.5),
            quantile(&ratios, 0.25),
            quantile(&ratios, 0.75),
            quantile(&self.before, 0.5),
            quantile(&self.after, 0.5),
        );
    }
}

/// Rows in the order of printing.
#[derive(Default)]
struct Rows {
    rows: Vec<(&'static str, Row)>,
    /// The only row to run, for profiles.
    only: Option<String>,
}

impl Rows {
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }

    fn row(&mut self, name: &'static str) -> &mut Row {
        let at = self
            .rows
            .iter()
            .position(|(known, _)| *known == name)
            .unwrap_or_else(|| {
                self.rows.push((name, Row::default()));
                self.rows.len() - 1
            });
        &mut self.rows[at].1
    }

    /// Runs one slice of a row on both versions, if the row is selected.
    fn slice(
        &mut self,
        name: &'static str,
        operations: usize,
        number: usize,
        before: &mut dyn FnMut() -> u64,
        after: &mut dyn FnMut() -> u64,
    ) {
        if self.wants(name) {
            self.row(name).slice(operations, number, before, after);
        }
    }
}

type Write = fn(&mut dyn Version, &[Key], &[u8], u64);

/// Fills a table of each version.
fn fill(
    rows: &mut Rows,
    name: &'static str,
    work: &Work,
    keys: &[Key],
    (write, accelerator): (Write, Accelerator),
) -> (before::Table, after::Table) {
    let mut before = before::table(work.protection, work.seed, accelerator);
    let mut after = after::table(work.protection, work.seed, accelerator);
    for slice in 0..SLICES {
        let keys = work.slice(keys, slice);
        let first = (slice * keys.len()) as u64 + 1;
        rows.row(name).slice(
            keys.len(),
            slice,
            &mut || {
                write(&mut before, keys, &work.value, first);
                0
            },
            &mut || {
                write(&mut after, keys, &work.value, first);
                0
            },
        );
    }
    (before, after)
}

fn scans(
    rows: &mut Rows,
    names: [&'static str; 2],
    work: &Work,
    before: &dyn Version,
    after: &dyn Version,
) {
    for slice in 0..SLICES {
        let keys = work.slice(&work.keys, slice);
        let (from, to, count) = (&keys[0], &keys[keys.len() - 1], keys.len());
        rows.slice(
            names[0],
            count,
            slice,
            &mut || before.forward(from, to),
            &mut || after.forward(from, to),
        );
        rows.slice(
            names[1],
            count,
            slice,
            &mut || before.backward(from, to),
            &mut || after.backward(from, to),
        );
    }
}

fn reads(rows: &mut Rows, work: &Work, before: &dyn Version, after: &dyn Version) {
    for slice in 0..SLICES {
        let (keys, absent) = (
            work.slice(&work.shuffled, slice),
            work.slice(&work.absent, slice),
        );
        let (count, seeks) = (keys.len(), keys.len().div_ceil(10));
        rows.slice(
            "get hit",
            count,
            slice,
            &mut || before.get(keys),
            &mut || after.get(keys),
        );
        rows.slice(
            "get miss",
            count,
            slice,
            &mut || before.get(absent),
            &mut || after.get(absent),
        );
        rows.slice(
            "multi_get of 24",
            count,
            slice,
            &mut || before.multi_get(keys),
            &mut || after.multi_get(keys),
        );
        rows.slice(
            "seek + next 10",
            seeks,
            slice,
            &mut || before.seek(keys),
            &mut || after.seek(keys),
        );
    }
}

const IN_ORDER: [&str; 3] = [
    "insert in order",
    "scan forward, in order",
    "scan backward, in order",
];
const BATCHES: [&str; 2] = ["batches of 32, random", "batches of 32, in order"];
const FILTERED: [&str; 2] = ["insert at random, filter", "get miss, filter"];
const AT_RANDOM: [&str; 3] = [
    "insert at random",
    "scan forward, random",
    "scan backward, random",
];

const TOMBSTONES: [&str; 3] = [
    "range deletes",
    "get, range deletes",
    "freeze, range deletes",
];

/// Deletes every tenth key by a range of its own.
fn range_deletes(rows: &mut Rows, work: &Work) {
    let mut before = before::table(work.protection, work.seed, Accelerator::Nothing);
    let mut after = after::table(work.protection, work.seed, Accelerator::Nothing);
    before.put(&work.shuffled, &work.value, 1);
    after.put(&work.shuffled, &work.value, 1);
    let deleted: Vec<Key> = work.shuffled.iter().step_by(10).copied().collect();
    for slice in 0..SLICES {
        let (starts, first) = (
            work.slice(&deleted, slice),
            (work.keys.len() * (slice + 2)) as u64,
        );
        rows.row(TOMBSTONES[0]).slice(
            starts.len(),
            slice,
            &mut || {
                before.delete_ranges(starts, first);
                0
            },
            &mut || {
                after.delete_ranges(starts, first);
                0
            },
        );
    }
    for slice in 0..SLICES {
        let keys = work.slice(&work.keys, slice);
        let (before, after) = (&mut || before.get(keys), &mut || after.get(keys));
        rows.slice(TOMBSTONES[1], keys.len(), slice, before, after);
    }
    let mut freeze = [&mut before as &mut dyn Version, &mut after].map(|table| {
        move || {
            table.freeze();
            0
        }
    });
    let [before, after] = &mut freeze;
    rows.slice(TOMBSTONES[2], 1, 0, before, after);
}

/// Runs one round of all rows.
fn round(rows: &mut Rows, work: &Work) {
    let put: Write = |table, keys, value, first| table.put(keys, value, first);
    if IN_ORDER.iter().any(|name| rows.wants(name)) {
        let (before, after) = fill(
            rows,
            IN_ORDER[0],
            work,
            &work.keys,
            (put, Accelerator::Nothing),
        );
        scans(rows, [IN_ORDER[1], IN_ORDER[2]], work, &before, &after);
    }
    let batches: Write = |table, keys, value, first| table.batches(keys, value, first);
    for (name, keys) in BATCHES.into_iter().zip([&work.shuffled, &work.keys]) {
        if rows.wants(name) {
            fill(rows, name, work, keys, (batches, Accelerator::Nothing));
        }
    }
    if FILTERED.iter().any(|name| rows.wants(name)) {
        let (before, after) = fill(
            rows,
            FILTERED[0],
            work,
            &work.shuffled,
            (put, Accelerator::Filter),
        );
        for slice in 0..SLICES {
            let absent = work.slice(&work.absent, slice);
            let (before, after) = (&mut || before.get(absent), &mut || after.get(absent));
            rows.slice(FILTERED[1], absent.len(), slice, before, after);
        }
    }
    if TOMBSTONES.iter().any(|name| rows.wants(name)) {
        range_deletes(rows, work);
    }
    let others = [IN_ORDER.as_slice(), &FILTERED, &BATCHES, &TOMBSTONES].concat();
    if rows
        .only
        .as_ref()
        .is_none_or(|only| !others.contains(&only.as_str()))
    {
        let (before, after) = fill(
            rows,
            AT_RANDOM[0],
            work,
            &work.shuffled,
            (put, Accelerator::Nothing),
        );
        reads(rows, work, &before, &after);
        scans(rows, [AT_RANDOM[1], AT_RANDOM[2]], work, &before, &after);
    }
}

fn main() {
    let mut words = std::env::args().skip(1).peekable();
    let overwrites = words.next_if(|word| word == "overwrites").is_some();
    let shapes = words.next_if(|word| word == "keys").is_some();
    let mut number = |otherwise: usize| {
        words
            .next()
            .map_or(otherwise, |word| word.parse::<usize>().expect("a number"))
    };
    let entries = number(if overwrites { 1_000_000 } else { 250_000 });
    let (rounds, protection) = (
        number(5),
        u8::try_from(number(8)).expect("protection bytes"),
    );
    if overwrites {
        return overwrites::run(entries as u64, rounds, protection);
    }
    if shapes {
        let options = shapes::Options {
            entries: entries.max(SLICES) as u64,
            rounds,
            protection,
            only: words.next(),
        };
        return shapes::run(&options);
    }
    let entries = entries.max(SLICES * KEYS_AT_ONCE);
    let mut work = Work::new(entries as u64, protection);
    let mut rows = Rows {
        only: words.next(),
        ..Rows::default()
    };
    for seed in 0..rounds as u64 {
        work.seed = seed;
        round(&mut rows, &work);
    }
    println!(
        "{entries} entries of 16 + {VALUE_LEN} bytes, protection {protection}, {rounds} rounds of {SLICES} slices; after / before"
    );
    for (name, row) in &rows.rows {
        row.print(name);
    }
    if let Some((_, row)) = rows
        .rows
        .iter()
        .find(|(name, _)| rows.only.as_deref() == Some(*name))
    {
        println!("operations {}", row.operations);
    }
    let hash = rows
        .rows
        .iter()
        .fold(0, |hash, (_, row)| mix(hash ^ row.hash));
    println!("hash of the work {hash:016x}");
}
