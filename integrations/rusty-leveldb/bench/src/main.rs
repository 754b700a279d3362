//! rusty-leveldb with its log and its tables on a file system: one program for the engine as
//! published and for the one with our table. Prints rows `name<tab>number`; the row `read` is a
//! hash of everything that was read.

#[path = "../../../measure.rs"]
mod measure;

use std::cmp::Ordering;
use std::hash::Hasher;
use std::rc::Rc;
use std::time::Instant;

use measure::{Random, Read, Zipf, key, resident, row, value};
use rusty_leveldb::{Cmp, DB, DefaultCmp, LdbIterator, Options};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Keys of the small database whose order is the caller's.
const FEW: u64 = 20_000;
/// Keys that stay in the memtable, and those of a whole database.
const LARGE: u64 = 250_000;
const KEYS: u64 = 500_000;
const OPERATIONS: u64 = 250_000;

fn main() -> Result<()> {
    let mut read = Read::default();
    memtable(&mut read)?;
    database(&mut read)?;
    descending(&mut read)?;
    println!("read\t{:016x}", read.0.finish());
    Ok(())
}

/// Everything stays in the memtable.
fn memtable(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        write_buffer_size: 1 << 30,
        ..Options::default()
    };
    let mut db = DB::open(folder.path(), options)?;
    let before = resident();
    write(&mut db, "memtable: writes only", LARGE)?;
    row(
        "memory of an entry, key of 16 and value of 100, bytes",
        resident().saturating_sub(before) as f64 / LARGE as f64,
    );
    ycsb(&mut db, "memtable: reads only", LARGE, 0, read)?;
    scans(&mut db, read)?;
    ycsb(
        &mut db,
        "memtable: half reads, half writes",
        LARGE,
        50,
        read,
    )?;
    Ok(())
}

/// The default settings: tables of 4 MB, flushed and compacted by the thread that writes.
fn database(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut db = DB::open(folder.path(), Options::default())?;
    write(&mut db, "database: writes only", KEYS)?;
    ycsb(&mut db, "database: reads only", KEYS, 0, read)?;
    ycsb(&mut db, "database: half reads, half writes", KEYS, 50, read)?;
    Ok(db.close()?)
}

/// Keys in an order of the caller's: what is read, not how fast.
fn descending(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        cmp: Rc::new(Box::new(Descending)),
        ..Options::default()
    };
    let mut db = DB::open(folder.path(), options)?;
    for at in 0..FEW {
        db.put(&key(at), &value(at, 0, 100))?;
    }
    let mut scan = db.new_iter()?;
    while let Some((_, value)) = scan.next() {
        read.note(Some(value));
    }
    for at in 0..FEW {
        read.note(db.get(&key(at)));
    }
    Ok(db.close()?)
}

struct Descending;

impl Cmp for Descending {
    fn cmp(&self, a: &[u8], b: &[u8]) -> Ordering {
        DefaultCmp.cmp(b, a)
    }

    fn find_shortest_sep(&self, from: &[u8], _: &[u8]) -> Vec<u8> {
        from.to_vec()
    }

    fn find_short_succ(&self, key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }

    fn id(&self) -> &'static str {
        "bench.Descending"
    }
}

fn write(db: &mut DB, name: &str, keys: u64) -> Result<()> {
    let begun = Instant::now();
    for at in 0..keys {
        db.put(&key(at), &value(at, 0, 100))?;
    }
    row(
        &format!("{name}, ns"),
        begun.elapsed().as_nanos() as f64 / keys as f64,
    );
    Ok(())
}

/// Scans of a hundred entries, from keys at random.
fn scans(db: &mut DB, read: &mut Read) -> Result<()> {
    const SCANS: u64 = 2_000;
    let mut random = Random(7);
    let begun = Instant::now();
    for _ in 0..SCANS {
        let mut scan = db.new_iter()?;
        scan.seek(&key(random.below(LARGE)));
        for _ in 0..100 {
            read.note(scan.current().map(|(_, value)| value));
            scan.advance();
        }
    }
    row(
        "memtable: scan of 100, ns an entry",
        begun.elapsed().as_nanos() as f64 / (SCANS * 100) as f64,
    );
    Ok(())
}

/// Operations on keys of a Zipf distribution, of which so many in a hundred are writes.
fn ycsb(db: &mut DB, name: &str, keys: u64, writes: u64, read: &mut Read) -> Result<()> {
    let zipf = Zipf::new(keys);
    let mut random = Random(keys + writes);
    let begun = Instant::now();
    for at in 0..OPERATIONS {
        let key = key(zipf.draw(&mut random));
        if random.below(100) < writes {
            db.put(&key, &value(at, at, 100))?;
        } else {
            read.note(db.get(&key));
        }
    }
    row(
        &format!("{name}, ns"),
        begun.elapsed().as_nanos() as f64 / OPERATIONS as f64,
    );
    Ok(())
}
