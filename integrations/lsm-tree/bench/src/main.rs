//! The memtable of lsm-tree by itself, and fjall as a whole: one program for the engine as
//! published and for the one with our table. Prints rows `name<tab>number`; the row `read` is a
//! hash of everything that was read.

#[path = "../../../measure.rs"]
mod measure;

use std::hash::Hasher;
use std::hint::black_box;
use std::time::Instant;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use lsm_tree::{InternalValue, Memtable, SeqNo, ValueType};
use measure::{Random, Read, Zipf, key, resident, row, value};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Entries of a large table.
const LARGE: u64 = 250_000;
/// Keys that are written again and again.
const FEW: u64 = 16;
/// Keys, and operations on them, of a whole database.
const KEYS: u64 = 500_000;
const OPERATIONS: u64 = 500_000;

fn main() -> Result<()> {
    let mut read = Read::default();
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("overwrites") => {
            overwrites(&mut read);
            return Ok(());
        }
        Some(holding) => {
            println!("{:.0}", held_bytes(holding)?);
            return Ok(());
        }
    }
    memory()?;
    small_tables(&mut read);
    latency(&mut read);
    overwrites(&mut read);
    database(&mut read)?;
    println!("read\t{:016x}", read.0.finish());
    Ok(())
}

/// Number of small tables.
const TABLES: u64 = 5_000;

/// What tables take, each kind in a process of its own: memory that was freed is no measure.
fn memory() -> Result<()> {
    let rows = [
        (
            "small values",
            "memory of an entry, key of 16 and value of 8, bytes",
        ),
        (
            "values",
            "memory of an entry, key of 16 and value of 100, bytes",
        ),
        (
            "versions",
            "memory of a new version of one of 16 keys, bytes",
        ),
        (
            "replaced",
            "memory of a write that replaces one at its number, bytes",
        ),
        ("tables of 0", "memory of an empty table, bytes"),
        ("tables of 1", "memory of a table of 1 entry, bytes"),
        ("tables of 10", "memory of a table of 10 entries, bytes"),
    ];
    for (holding, name) in rows {
        let child = std::process::Command::new(std::env::current_exe()?)
            .arg(holding)
            .output()?;
        row(name, String::from_utf8(child.stdout)?.trim().parse()?);
    }
    Ok(())
}

/// Bytes for each entry, or table, of what this process now makes.
fn held_bytes(holding: &str) -> Result<f64> {
    let before = resident();
    let (table, mut tables) = (Memtable::new(0), Vec::new());
    let count = match holding.strip_prefix("tables of ") {
        Some(entries) => {
            let entries = entries.parse()?;
            tables.extend((0..TABLES).map(|id| filled(id, entries)));
            TABLES
        }
        None => {
            for at in 0..LARGE {
                table.insert(match holding {
                    "small values" => entry(at, 0, 8),
                    "versions" => entry(at % FEW, at / FEW, 100),
                    "replaced" => entry(at % FEW, 0, 100),
                    _ => entry(at, 0, 100),
                });
            }
            LARGE
        }
    };
    Ok(resident().saturating_sub(before) as f64 / count as f64)
}

/// What an empty table and a small one cost; transactions make one each.
fn small_tables(read: &mut Read) {
    for entries in [0, 1, 10] {
        let begun = Instant::now();
        for id in 0..TABLES {
            read.0.write_usize(filled(id, entries).len());
        }
        let nanos = begun.elapsed().as_nanos() as f64 / TABLES as f64;
        row(
            &format!("table of {entries} entries: made, filled and dropped, ns"),
            nanos,
        );
    }
}

fn filled(id: u64, entries: u64) -> Memtable {
    let table = Memtable::new(id);
    for at in 0..entries {
        table.insert(entry(at, 0, 100));
    }
    table
}

/// One thread on a large table: writes at random, gets, a scan.
fn latency(read: &mut Read) {
    let table = Memtable::new(0);
    let mut times = Times::default();
    for at in 0..LARGE {
        let item = entry(at, at, 100);
        times.of(|| table.insert(item));
    }
    times.rows("memtable: insert at random");
    let mut random = Random(1);
    for _ in 0..LARGE {
        let key = key(random.below(LARGE));
        read.note(
            times
                .of(|| table.get(&key, SeqNo::MAX))
                .map(|found| found.value),
        );
    }
    times.rows("memtable: get");
    for _ in 0..LARGE {
        let key = key(LARGE + random.below(LARGE));
        read.note(
            times
                .of(|| table.get(&key, SeqNo::MAX))
                .map(|found| found.value),
        );
    }
    times.rows("memtable: get of an absent key");
    let begun = Instant::now();
    for item in table.iter() {
        read.0.write(black_box(&item.value));
    }
    row(
        "memtable: scan, ns an entry",
        begun.elapsed().as_nanos() as f64 / LARGE as f64,
    );
}

/// A few keys written again and again: with new numbers, and by a transaction with one.
fn overwrites(read: &mut Read) {
    for (name, step) in [
        ("new versions of 16 keys", 1),
        ("16 keys replaced at one number", 0),
    ] {
        let table = Memtable::new(0);
        let mut times = Times::default();
        for at in 0..LARGE {
            let item = entry(at % FEW, at / FEW * step, 100);
            times.of(|| table.insert(item));
        }
        times.rows(&format!("{name}: insert"));
        for at in 0..LARGE {
            let key = key(at % FEW);
            read.note(
                times
                    .of(|| table.get(&key, SeqNo::MAX))
                    .map(|found| found.value),
            );
        }
        times.rows(&format!("{name}: get"));
    }
}

/// fjall with its journal, its threads and a cache that holds everything: writes only, reads only
/// (YCSB C), half and half (A).
fn database(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = Database::builder(folder.path())
        .cache_size(512 << 20)
        .open()?;
    let small = database.keyspace("small", KeyspaceCreateOptions::default)?;
    for at in 0..KEYS / 4 {
        small.insert(key(at), value(at, 0, 100))?;
    }
    ycsb(
        &small,
        "fjall: reads only, all in the memtable",
        KEYS / 4,
        0,
        read,
    )?;
    let large = database.keyspace("large", KeyspaceCreateOptions::default)?;
    let begun = Instant::now();
    for at in 0..KEYS {
        large.insert(key(at), value(at, 0, 100))?;
    }
    row(
        "fjall: writes only, ns",
        begun.elapsed().as_nanos() as f64 / KEYS as f64,
    );
    ycsb(&large, "fjall: reads only, most in tables", KEYS, 0, read)?;
    ycsb(&large, "fjall: half reads, half writes", KEYS, 50, read)
}

/// Operations on keys of a Zipf distribution, of which so many in a hundred are writes.
fn ycsb(keyspace: &Keyspace, name: &str, keys: u64, writes: u64, read: &mut Read) -> Result<()> {
    let zipf = Zipf::new(keys);
    let mut random = Random(keys + writes);
    let begun = Instant::now();
    for at in 0..OPERATIONS {
        let key = key(zipf.draw(&mut random));
        if random.below(100) < writes {
            keyspace.insert(key, value(at, at, 100))?;
        } else {
            read.note(keyspace.get(key)?);
        }
    }
    row(
        &format!("{name}, ns"),
        begun.elapsed().as_nanos() as f64 / OPERATIONS as f64,
    );
    Ok(())
}

/// Times of single calls.
#[derive(Default)]
struct Times(Vec<u32>);

impl Times {
    fn of<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = black_box(call());
        self.0
            .push(begun.elapsed().as_nanos().try_into().unwrap_or(u32::MAX));
        answer
    }

    fn rows(&mut self, name: &str) {
        self.0.sort_unstable();
        for percent in [50, 99] {
            row(
                &format!("{name}, ns, p{percent}"),
                f64::from(self.0[self.0.len() * percent / 100]),
            );
        }
        self.0.clear();
    }
}

fn entry(at: u64, seqno: SeqNo, value_len: usize) -> InternalValue {
    InternalValue::from_components(
        key(at),
        value(at, seqno, value_len),
        seqno,
        ValueType::Value,
    )
}
