//! Measures the gain of filters, the directory and batches.
//!
//! First it prints three tables of work done in turns in one process. Read their ratios, because
//! absolute times drift:
//!
//! ```text
//!   costs      gets, batched gets, absent keys, range tombstones, inserts, batched inserts
//!   settings   multi_get: whole-key filtering on and off, prefix size 0, 7, 8: nine keys in ten absent,
//!              batches of 24, several threads
//!   rates      filters at 10, 100, .. keys: the rate of false positives, against theory, and the cost of a get
//! ```
//! Then Criterion measures one piece of work after the other. The command is
//! `cargo bench -p paranoid-memtable-benches --features records --bench lookup`.
//! `LOOKUP_ENTRIES` is the number of entries (250000 unless set), and `LOOKUP_PARTS` the list of
//! parts (costs,settings,rates,criterion unless set). The bench prints a sum over all that was
//! read, which must not change from run to run.

#![allow(
    missing_docs,
    reason = "the macro of the harness makes a public function"
)]

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::read::Operands;
use paranoid_memtable::{
    Directory, Lookup, MemTable, MemTableOptions, MemTableOptionsBuilder, ValueRef, WriteBatch,
};

#[allow(
    unreachable_pub,
    dead_code,
    clippy::cast_possible_truncation,
    reason = "shared by path"
)]
#[path = "../tests/support/rng.rs"]
mod rng;

use rng::{filter_lines, filter_rate};

const BATCH: usize = 24;
const WRITE_BATCH: u64 = 32;
const ROUNDS: usize = 21;
const SLICE: u64 = 12_000;
const VALUE: [u8; 100] = [7; 100];

/// Key `n` of a keyspace ten times as large as the number of entries. Its first 8 bytes are a
/// number, as in db_bench.
fn key(n: u64, entries: u64) -> [u8; 16] {
    // The factor is prime: every number up to 10 * entries comes once.
    let number = (n * 2_654_435_761 + 12_345) % (entries * 10 + 1);
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// The n-th number to look up, below `limit`.
fn pick(n: u64, limit: u64) -> u64 {
    let mut z = n
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 32)) % limit
}

fn buffer(entries: u64) -> u64 {
    (entries * 160).next_power_of_two()
}

/// Options with `protection` bytes. The share gives a filter 2.5 bytes per entry.
fn plain(entries: u64, protection: u8) -> MemTableOptionsBuilder {
    MemTableOptions::builder()
        .write_buffer_size(buffer(entries))
        .protection_bytes(protection)
        .seed(11)
        .directory(Directory::Off)
}

fn filter_share(entries: u64) -> f64 {
    entries as f64 * 2.5 / buffer(entries) as f64
}

fn make(builder: MemTableOptionsBuilder) -> MemTable {
    MemTable::new(builder.build().expect("valid options")).expect("memory")
}

fn fill(builder: MemTableOptionsBuilder, entries: u64) -> MemTable {
    fill_in_part(builder, entries, entries)
}

/// Makes a table for `entries`, and puts its first `keys` entries into it.
fn fill_in_part(builder: MemTableOptionsBuilder, entries: u64, keys: u64) -> MemTable {
    let table = make(builder);
    let mut writer = table.writer();
    for n in 0..keys {
        writer.put(n, key(n, entries), VALUE).expect("an insert");
    }
    table
}

fn weigh(lookup: &Lookup<ValueRef<'_>, Operands<'_>>) -> u64 {
    match lookup {
        Lookup::Value(value) => 1 + value.sequence() % 7,
        _ => 0,
    }
}

/// The numbers to look up: present ones, nine absent ones in ten, or absent ones only.
#[derive(Clone, Copy)]
enum Asked {
    Present,
    MostlyAbsent,
    Absent,
}

impl Asked {
    fn key(self, n: u64, entries: u64) -> [u8; 16] {
        let n = match self {
            Asked::Present => pick(n, entries),
            Asked::MostlyAbsent => pick(n, entries * 10),
            Asked::Absent => entries + pick(n, entries * 9),
        };
        key(n, entries)
    }
}

fn gets(table: &MemTable, asked: Asked, entries: u64, from: u64) -> u64 {
    gets_in(table, asked, entries, from..from + SLICE)
}

fn gets_in(table: &MemTable, asked: Asked, entries: u64, numbers: Range<u64>) -> u64 {
    let get = |n| {
        weigh(
            &table
                .get(asked.key(n, entries), u64::MAX)
                .expect("no damage"),
        )
    };
    numbers.map(get).sum()
}

fn multi_gets(table: &MemTable, asked: Asked, entries: u64, from: u64, count: u64) -> u64 {
    let (mut sum, mut keys, mut results) = (0, Vec::with_capacity(BATCH), Vec::new());
    for n in from..from + count {
        keys.push(asked.key(n, entries));
        if keys.len() == BATCH || n + 1 == from + count {
            table.multi_get_into(&keys, u64::MAX, &mut results);
            sum += results
                .iter()
                .map(|result| weigh(result.as_ref().expect("no damage")))
                .sum::<u64>();
            keys.clear();
        }
    }
    sum
}

fn single_inserts(table: &MemTable, entries: u64, from: u64) -> u64 {
    let mut writer = table.writer();
    for n in from..from + SLICE / 4 {
        writer.put(n, key(n, entries), VALUE).expect("an insert");
    }
    SLICE / 4
}

fn batched_inserts(table: &MemTable, entries: u64, from: u64) -> u64 {
    let (mut writer, mut batch) = (
        table.writer(),
        WriteBatch::with_protection(0).expect("no digests"),
    );
    for n in from..from + SLICE / 4 {
        batch.put(key(n, entries), VALUE).expect("room");
        if batch.len() as u64 == WRITE_BATCH || n + 1 == from + SLICE / 4 {
            writer
                .write_batch(n + 1 - batch.len() as u64, &batch)
                .expect("an insert");
            batch.clear();
        }
    }
    SLICE / 4
}

type Work<'w> = (&'static str, Box<dyn Fn(u64) -> u64 + 'w>);

/// Runs the candidates in turns. Prints the median nanoseconds of an operation, and the median of
/// each round's ratio to the first candidate.
fn turns(title: &str, ops: u64, works: &[Work<'_>]) {
    let mut times = vec![Vec::new(); works.len()];
    for round in 0..=ROUNDS as u64 {
        for turn in 0..works.len() {
            let candidate = (turn + usize::try_from(round).unwrap_or(0)) % works.len();
            let begin = Instant::now();
            black_box(works[candidate].1(round * SLICE));
            // The first round warms up.
            if round > 0 {
                times[candidate].push(begin.elapsed().as_secs_f64() * 1e9 / ops as f64);
            }
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{title}");
    for (candidate, (name, _)) in works.iter().enumerate() {
        let ratios = times[0]
            .iter()
            .zip(&times[candidate])
            .map(|(first, own)| first / own)
            .collect();
        let more = times[0]
            .iter()
            .zip(&times[candidate])
            .map(|(first, own)| own - first)
            .collect();
        println!(
            "    {name:34} {:8.1} ns   {:6.2} x the first   {:+8.1} ns",
            median(times[candidate].clone()),
            median(ratios),
            median(more)
        );
    }
}

fn print_costs(entries: u64, protection: u8) {
    println!("costs: {entries} entries, random fill, protection {protection}");
    let list = fill(plain(entries, protection), entries);
    let directory = fill(plain(entries, protection).directory(Directory::On), entries);
    let filter = fill(
        plain(entries, protection).whole_key_filter(filter_share(entries)),
        entries,
    );
    let (listed, directed, filtered) = (&list, &directory, &filter);
    turns(
        "  get of a present key",
        SLICE,
        &[
            (
                "list",
                Box::new(move |at| gets(listed, Asked::Present, entries, at)),
            ),
            (
                "directory",
                Box::new(move |at| gets(directed, Asked::Present, entries, at)),
            ),
            (
                "multi_get of 24, list",
                Box::new(move |at| multi_gets(listed, Asked::Present, entries, at, SLICE)),
            ),
            (
                "multi_get of 24, directory",
                Box::new(move |at| multi_gets(directed, Asked::Present, entries, at, SLICE)),
            ),
        ],
    );
    turns(
        "  get of an absent key",
        SLICE,
        &[
            (
                "list",
                Box::new(move |at| gets(listed, Asked::Absent, entries, at)),
            ),
            (
                "filter",
                Box::new(move |at| gets(filtered, Asked::Absent, entries, at)),
            ),
            (
                "directory",
                Box::new(move |at| gets(directed, Asked::Absent, entries, at)),
            ),
        ],
    );
    print_covered(entries, protection, filtered);
    print_inserts(entries, protection);
}

fn print_covered(entries: u64, protection: u8, filtered: &MemTable) {
    let covered = [1u64, 100, 1000].map(|count| {
        let table = fill(
            plain(entries, protection).whole_key_filter(filter_share(entries)),
            entries,
        );
        for n in 0..count {
            let start = (entries * 10 / count * n).to_be_bytes();
            let end = (entries * 10 / count * n + 1).to_be_bytes();
            table
                .delete_range(entries + n, start, end)
                .expect("a tombstone");
        }
        table
    });
    let tombstones = |table| move |at| multi_gets(table, Asked::MostlyAbsent, entries, at, SLICE);
    let [one, hundred, thousand] = &covered;
    turns(
        "  multi_get of 24 with filter, 90 % absent",
        SLICE,
        &[
            ("no range tombstone", Box::new(tombstones(filtered))),
            ("1", Box::new(tombstones(one))),
            ("100", Box::new(tombstones(hundred))),
            ("1000", Box::new(tombstones(thousand))),
        ],
    );
}

fn print_inserts(entries: u64, protection: u8) {
    let start = |builder| fill(builder, entries);
    let (single, batched) = (
        start(plain(entries, protection)),
        start(plain(entries, protection)),
    );
    let with_filter = start(plain(entries, protection).whole_key_filter(filter_share(entries)));
    let with_directory = start(plain(entries, protection).directory(Directory::On));
    let (single, batched, with_filter, with_directory) =
        (&single, &batched, &with_filter, &with_directory);
    turns(
        "  random insert into a full table",
        SLICE / 4,
        &[
            (
                "single",
                Box::new(move |at| single_inserts(single, entries, entries + at)),
            ),
            (
                "write_batch of 32",
                Box::new(move |at| batched_inserts(batched, entries, entries + at)),
            ),
            (
                "single, filter",
                Box::new(move |at| single_inserts(with_filter, entries, entries + at)),
            ),
            (
                "single, directory",
                Box::new(move |at| single_inserts(with_directory, entries, entries + at)),
            ),
        ],
    );
}

/// The six settings: whole-key filtering times prefix size.
fn settings(entries: u64) -> Vec<(String, MemTableOptionsBuilder)> {
    let mut settings = Vec::new();
    for whole in ["off", "on"] {
        for prefix in [0, 7, 8] {
            let mut builder = plain(entries, 8);
            if whole == "on" {
                builder = builder.whole_key_filter(filter_share(entries));
            }
            if prefix > 0 {
                builder = builder.prefix_filter(FixedPrefix::new(prefix), filter_share(entries));
            }
            settings.push((format!("whole-key {whole}, prefix {prefix}"), builder));
        }
    }
    settings
}

fn print_settings(entries: u64) {
    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(2, 8) as u64;
    println!(
        "multi_get of {BATCH}, 10 x more keys asked than present, {threads} threads, {entries} entries"
    );
    for (name, builder) in settings(entries) {
        let table = fill(builder, entries);
        let asked = 20 * SLICE;
        let begin = Instant::now();
        let sum: u64 = std::thread::scope(|scope| {
            let reader = |thread| {
                let table = &table;
                scope.spawn(move || {
                    multi_gets(table, Asked::MostlyAbsent, entries, thread * asked, asked)
                })
            };
            let readers: Vec<_> = (0..threads).map(reader).collect();
            readers
                .into_iter()
                .map(|reader| reader.join().expect("a reader"))
                .sum()
        });
        let rate = (threads * asked) as f64 / begin.elapsed().as_secs_f64() / 1e6;
        println!("    {name:28} {rate:7.2} million keys a second   (sum {sum})");
    }
}

fn lookups(c: &mut Criterion) {
    let smoke = std::env::args().any(|argument| argument == "--test");
    let wanted = std::env::var("LOOKUP_ENTRIES")
        .ok()
        .and_then(|entries| entries.parse().ok());
    let entries = if smoke {
        5_000
    } else {
        wanted.unwrap_or(250_000)
    };
    let parts = std::env::var("LOOKUP_PARTS").unwrap_or("costs,settings,rates,criterion".into());
    let wants = |part: &str| parts.split(',').any(|wanted| wanted == part);
    if !smoke && wants("costs") {
        print_costs(entries, 0);
        print_costs(entries, 8);
    }
    if !smoke && wants("settings") {
        print_settings(entries);
    }
    if smoke || wants("rates") {
        print_rates(if smoke { 1 } else { usize::MAX });
    }
    if !wants("criterion") {
        return;
    }
    for (name, builder) in settings(entries) {
        let table = fill(builder, entries);
        println!(
            "{name}: sum {}",
            multi_gets(&table, Asked::MostlyAbsent, entries, 0, SLICE)
        );
        let mut at = 0;
        c.bench_function(&format!("multi_get/{name}"), |b| {
            b.iter(|| {
                at += BATCH as u64;
                black_box(multi_gets(
                    &table,
                    Asked::MostlyAbsent,
                    entries,
                    at,
                    BATCH as u64,
                ))
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20)
        .without_plots();
    targets = lookups
}
criterion_main!(benches);

// Filters of tables that hold far fewer entries than they were made for: the share of absent keys
// that pass, compared with theory, and the cost of a get of an absent key.
//
// The table is made for 100 000 entries (20 bits of filter each) and holds 10, 100, .. of them.
// Rates are those of theory, which `tests/suite/filters.rs` holds filters to.

/// Number of entries that the table is made for.
const ENTRIES: u64 = 100_000;
/// Numbers of entries that it holds.
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Gets of a turn. They are few, so that some turns are not interrupted.
const TURN: u64 = 500;
/// Keys of the bench differ in their first 8 bytes.
const PREFIX: usize = 8;

/// The part that answers for an absent key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    List,
    KeyFilter,
    PrefixFilter,
}

impl Accelerator {
    const ALL: [Accelerator; 3] = [
        Accelerator::List,
        Accelerator::KeyFilter,
        Accelerator::PrefixFilter,
    ];

    fn name(self) -> &'static str {
        match self {
            Accelerator::List => "list",
            Accelerator::KeyFilter => "whole-key filter",
            Accelerator::PrefixFilter => "prefix filter",
        }
    }

    fn builder(self) -> MemTableOptionsBuilder {
        let builder = plain(ENTRIES, 8);
        match self {
            Accelerator::List => builder,
            Accelerator::KeyFilter => builder.whole_key_filter(filter_share(ENTRIES)),
            Accelerator::PrefixFilter => {
                builder.prefix_filter(FixedPrefix::new(PREFIX), filter_share(ENTRIES))
            }
        }
    }

    /// The share of absent keys that passes a filter in theory.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share of the write buffer"
    )]
    fn theory(self, keys: u64) -> f64 {
        let lines = |share: f64| filter_lines((buffer(ENTRIES) as f64 * share) as u64) as f64;
        match self {
            Accelerator::List => 1.0,
            Accelerator::KeyFilter | Accelerator::PrefixFilter => {
                filter_rate(keys as f64, lines(filter_share(ENTRIES)))
            }
        }
    }
}

/// Prints all sizes; a quick run takes only the first one.
fn print_rates(sizes: usize) {
    println!("absent keys, a table for {ENTRIES} entries, protection 8");
    for keys in SIZES.into_iter().take(sizes) {
        println!("  {keys} keys, % of absent keys that reach the list in theory");
        for accelerator in Accelerator::ALL
            .into_iter()
            .filter(|accelerator| *accelerator != Accelerator::List)
        {
            println!(
                "    {:34} {:.4}",
                accelerator.name(),
                accelerator.theory(keys) * 100.0
            );
        }
        let tables: Vec<MemTable> = Accelerator::ALL
            .iter()
            .map(|accelerator| fill_in_part(accelerator.builder(), ENTRIES, keys))
            .collect();
        let works: Vec<Work<'_>> = Accelerator::ALL
            .iter()
            .zip(&tables)
            .map(|(accelerator, table)| -> Work<'_> {
                (
                    accelerator.name(),
                    Box::new(move |at| gets_in(table, Asked::Absent, ENTRIES, at..at + TURN)),
                )
            })
            .collect();
        turns(
            &format!("  {keys} keys, get of an absent key"),
            TURN,
            &works,
        );
    }
}
