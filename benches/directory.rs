//! Measures the gain and the cost of the ordered directory.
//!
//! Two tables, with a directory and without, take turns in one process. Read the ratios, because
//! absolute times drift.
//! `cargo bench -p paranoid-memtable-benches --features records --bench directory -- DATE [ENTRIES ..]`
//! (250000 unless given) writes `records/DATE-directory`. Without a date it only prints; with
//! `--test` it makes a small run. Keys have 16 bytes, values 100, protection 8. Each row has a hash
//! of the bytes that were read, which is equal for both tables.

use std::fmt::Write as _;
use std::time::Instant;

use measure::{Environment, Record, Row, Section};
use paranoid_memtable::read::Operands;
use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, ValueRef};

const CANDIDATES: [Directory; 2] = [Directory::Off, Directory::On];
const NAMES: [&str; 2] = ["without a directory", "with a directory"];
const ROUNDS: usize = 9;
const SLICE: usize = 30_000;
const BATCH: usize = 24;
const STEPS: usize = 10;
const VALUE: [u8; 100] = [7; 100];

/// A bijection of 64-bit numbers (splitmix64's finalizer).
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

type Key = [u8; 16];

/// Adjacent numbers. The other orders spread numbers over the whole keyspace.
fn dense(n: u64) -> Key {
    u128::from(n).to_be_bytes()
}

fn spread(n: u64) -> Key {
    (u128::from(mix(n + 1)) << 64 | u128::from(n)).to_be_bytes()
}

/// 64 keys, each with many versions.
fn hot(n: u64) -> Key {
    dense(n % 64)
}

/// One key for all versions.
fn single(_: u64) -> Key {
    dense(0)
}

/// All numbers below `count`, in an order that follows from the seed.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|n| mix(n ^ mix(seed)));
    numbers
}

/// Folds bytes that were read into a hash.
fn fold(hash: u64, seen: &[u8]) -> u64 {
    mix(hash
        ^ seen.iter().fold(seen.len() as u64, |sum, byte| {
            sum.rotate_left(5) ^ u64::from(*byte)
        }))
}

fn value_of(lookup: &Lookup<ValueRef<'_>, Operands<'_>>, hash: u64) -> u64 {
    match lookup {
        Lookup::Value(value) => mix(hash ^ value.sequence()),
        other => panic!("{other:?}"),
    }
}

fn gets(table: &MemTable, keys: &[Key]) -> u64 {
    keys.iter().fold(0, |hash, key| {
        value_of(&table.get(key, u64::MAX).expect("intact"), hash)
    })
}

fn multi_gets(table: &MemTable, keys: &[Key]) -> u64 {
    let mut hash = 0;
    for group in keys.chunks(BATCH) {
        for lookup in table.multi_get(group, u64::MAX) {
            hash = value_of(&lookup.expect("intact"), hash);
        }
    }
    hash
}

fn seeks(table: &MemTable, keys: &[Key]) -> u64 {
    let (mut cursor, mut hash) = (table.cursor_at(u64::MAX), 0);
    for key in keys.iter().step_by(STEPS) {
        let mut entry = cursor.seek(key).expect("intact");
        for _ in 0..STEPS {
            let Some(found) = entry else { break };
            hash = fold(hash, found.user_key());
            entry = cursor.next().expect("intact");
        }
    }
    hash
}

#[derive(Clone, Copy)]
enum Way {
    Forward,
    Backward,
}

/// Walks from the first key, with as many steps as there are keys.
fn walk(table: &MemTable, keys: &[Key], way: Way) -> u64 {
    let (mut cursor, mut hash) = (table.cursor_at(u64::MAX), 0);
    let begun = match way {
        Way::Forward => cursor.seek(keys[0]),
        Way::Backward => cursor.seek_for_prev(keys[0]),
    };
    let mut entry = begun.expect("intact");
    for _ in keys {
        let Some(found) = entry else { break };
        hash = fold(hash, found.user_key());
        let stepped = match way {
            Way::Forward => cursor.next(),
            Way::Backward => cursor.prev(),
        };
        entry = stepped.expect("intact");
    }
    hash
}

type Work = fn(&MemTable, &[Key]) -> u64;

const READS: [(&str, Work, usize); 5] = [
    ("get", gets, 1),
    ("multi_get of 24, a key", multi_gets, 1),
    ("seek and ten steps", seeks, STEPS),
    (
        "step forward",
        |table, keys| walk(table, keys, Way::Forward),
        1,
    ),
    (
        "step backward",
        |table, keys| walk(table, keys, Way::Backward),
        1,
    ),
];

fn table(directory: Directory, entries: u64) -> MemTable {
    let bytes = (entries * 200).next_power_of_two().max(1 << 16);
    let options = MemTableOptions::builder()
        .write_buffer_size(bytes)
        .directory(directory)
        .seed(7);
    MemTable::new(options.build().expect("valid options")).expect("memory")
}

fn row(name: &str) -> Row {
    Row {
        name: name.into(),
        nanoseconds: vec![Some(Vec::new()); 2],
        ..Row::default()
    }
}

fn note(row: &mut Row, candidate: usize, began: Instant, operations: usize) {
    let each = began.elapsed().as_nanos() as f64 / operations.max(1) as f64;
    if let Some(Some(samples)) = row.nanoseconds.get_mut(candidate) {
        samples.push(each);
    }
}

/// Fills and reads both tables in turns.
fn section(title: &str, order: &[u64], key: fn(u64) -> Key, rounds: usize) -> Section {
    let entries = order.len() as u64;
    let keys: Vec<Key> = order.iter().map(|n| key(*n)).collect();
    let asked: Vec<Key> = shuffled(entries, 3).into_iter().map(key).collect();
    let mut rows = vec![row("insert")];
    rows.extend(READS.map(|(name, ..)| row(name)));
    let mut counted = Vec::new();
    let mut made = CANDIDATES.map(|directory| table(directory, entries));
    for round in 0..rounds {
        if round % 3 == 0 {
            // New tables, filled in turns of one slice.
            made = CANDIDATES.map(|directory| table(directory, entries));
            for (first, slice) in keys.chunks(SLICE).enumerate() {
                for (candidate, table) in made.iter().enumerate() {
                    let began = Instant::now();
                    for (sequence, key) in ((first * SLICE) as u64 + 1..).zip(slice) {
                        table.put(sequence, key, VALUE).expect("an insert");
                    }
                    note(&mut rows[0], candidate, began, slice.len());
                }
            }
            counted = made
                .iter()
                .map(|table| Some(table.used_bytes() as f64 / entries as f64))
                .collect();
        }
        let first = (round * SLICE) % asked.len();
        let slice: Vec<Key> = asked
            .iter()
            .cycle()
            .skip(first)
            .take(SLICE.min(asked.len()))
            .copied()
            .collect();
        for (row, (_, work, every)) in rows[1..].iter_mut().zip(READS) {
            let hashes = [0, 1].map(|turn| {
                let candidate = (turn + round) % 2;
                let began = Instant::now();
                let hash = work(&made[candidate], &slice);
                note(row, candidate, began, slice.len() / every);
                hash
            });
            assert_eq!(
                hashes[0], hashes[1],
                "{title}, {}: both tables hold the same",
                row.name
            );
            row.hash = format!("{:016x}", hashes[0]);
        }
    }
    Section {
        title: title.into(),
        entries,
        rows,
        counted,
        ..Section::default()
    }
}

fn page(record: &Record) -> String {
    let Environment {
        processor,
        compiler,
        commit,
        command,
        date,
        ..
    } = &record.environment;
    let mut page = format!(
        "# The ordered directory, {date}\n\n{processor}; {compiler}; commit {commit}; `{command}`. Keys of 16 bytes, values of \
         100, 8 protection bytes.\nMedians over {} rounds in turns, in nanoseconds; the last column is the quartiles of the ratios \
         of paired rounds.\n",
        record.rounds
    );
    for section in &record.sections {
        let bytes: Vec<f64> = section.counted.iter().flatten().copied().collect();
        let _ = write!(
            page,
            "\n## {}, {} entries\n\nUsed bytes per entry: {:.1} without, {:.1} with.\n\n| work | without | with | times as fast |\n\
             |---|---|---|---|\n",
            section.title, section.entries, bytes[0], bytes[1]
        );
        for row in &section.rows {
            let time = |candidate: &str| section.time(&record.candidates, &row.name, candidate);
            let [low, middle, high] = row.paired(0, 1, |without, with| without / with);
            let (without, with) = (
                time(NAMES[0]).unwrap_or(f64::NAN),
                time(NAMES[1]).unwrap_or(f64::NAN),
            );
            let _ = writeln!(
                page,
                "| {} | {without:.0} | {with:.0} | {middle:.2} ({low:.2} to {high:.2}) |",
                row.name
            );
        }
    }
    page
}

/// One section for each order of filling.
fn orders(entries: u64, rounds: usize) -> [Section; 6] {
    let in_order: Vec<u64> = (0..entries).collect();
    let descending: Vec<u64> = (0..entries).rev().collect();
    let random = shuffled(entries, 1);
    let of = |title: &str, order: &[u64], key: fn(u64) -> Key| section(title, order, key, rounds);
    [
        of("Dense keys, filled at random", &random, dense),
        of("Spread keys, filled at random", &random, spread),
        of("Dense keys, filled in order", &in_order, dense),
        of("Dense keys, filled in descending order", &descending, dense),
        of("64 keys, many versions of each", &random, hot),
        of("One key, many versions", &in_order, single),
    ]
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let small = words.iter().any(|word| word == "--test");
    let date = words
        .iter()
        .find(|word| word.contains('-') && !word.starts_with("--"));
    let mut sizes: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes.push(if small { 2000 } else { 250_000 });
    }
    let rounds = if small { 1 } else { ROUNDS };
    let mut sections = Vec::new();
    for entries in sizes {
        sections.extend(orders(entries, rounds));
    }
    let record = Record {
        program: "directory".into(),
        environment: Environment::here(
            "cargo bench -p paranoid-memtable-benches --features records --bench directory",
            date.map(String::as_str),
        ),
        keys: 16,
        values: VALUE.len(),
        threads: 1,
        rounds,
        slice: SLICE,
        candidates: NAMES.map(String::from).to_vec(),
        sections,
    };
    let page = page(&record);
    println!("{page}");
    if let Some(date) = date {
        record
            .save(&format!("{date}-directory"), &page)
            .expect("the record is written");
    }
}
