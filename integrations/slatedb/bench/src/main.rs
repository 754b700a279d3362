//! slatedb over a local object store: one program for the engine as published and for the one with
//! our table. Prints rows `name<tab>number`; the row `read` is a hash of everything that was read.

#[path = "../../../measure.rs"]
mod measure;

use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use measure::{Random, Read, Zipf, key, resident, row, value};
use object_store::local::LocalFileSystem;
use slatedb::Db;
use slatedb::config::{FlushOptions, FlushType, Settings};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Keys that stay in the memtable, and those of a whole database.
const LARGE: u64 = 250_000;
const KEYS: u64 = 500_000;
const OPERATIONS: u64 = 250_000;

#[tokio::main]
async fn main() -> Result<()> {
    let mut read = Read::default();
    memtable(&mut read).await?;
    database(&mut read).await?;
    println!("read\t{:016x}", read.0.finish());
    Ok(())
}

/// Everything stays in the memtable: what its work costs through the whole engine, and its memory.
async fn memtable(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let settings = Settings {
        l0_sst_size_bytes: 1 << 30,
        max_unflushed_bytes: 2 << 30,
        max_wal_flushes_before_l0_flush: u64::MAX,
        compactor_options: None,
        ..Settings::default()
    };
    let db = open(folder.path(), settings).await?;
    let before = resident();
    write(&db, "memtable: writes only", LARGE).await?;
    db.flush().await?;
    row(
        "memory of an entry, key of 16 and value of 100, bytes",
        resident().saturating_sub(before) as f64 / LARGE as f64,
    );
    ycsb(&db, "memtable: reads only", LARGE, 0, read).await?;
    scans(&db, read).await?;
    ycsb(&db, "memtable: half reads, half writes", LARGE, 50, read).await?;
    Ok(db.close().await?)
}

/// The default settings with small tables: write-ahead log, flushes and compactions go to the
/// object store.
async fn database(read: &mut Read) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let db = open(
        folder.path(),
        Settings {
            l0_sst_size_bytes: 16 << 20,
            ..Settings::default()
        },
    )
    .await?;
    write(&db, "database: writes only", KEYS).await?;
    // Reads are measured beside no flush and no compaction, which would last as long as the writes
    // before them were quick. The compactor looks for work every five seconds.
    let flush_type = FlushType::MemTable;
    db.flush_with_options(FlushOptions { flush_type }).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    ycsb(&db, "database: reads only, all in files", KEYS, 0, read).await?;
    ycsb(&db, "database: half reads, half writes", KEYS, 50, read).await?;
    Ok(db.close().await?)
}

async fn open(folder: &std::path::Path, settings: Settings) -> Result<Db> {
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder)?);
    Ok(Db::builder("db", store)
        .with_settings(settings)
        .build()
        .await?)
}

async fn write(db: &Db, name: &str, keys: u64) -> Result<()> {
    let begun = Instant::now();
    for at in 0..keys {
        db.put(key(at), value(at, 0, 100)).await?;
    }
    row(
        &format!("{name}, ns"),
        begun.elapsed().as_nanos() as f64 / keys as f64,
    );
    Ok(())
}

/// Scans of a hundred entries, from keys at random.
async fn scans(db: &Db, read: &mut Read) -> Result<()> {
    const SCANS: u64 = 2_000;
    let mut random = Random(7);
    let begun = Instant::now();
    for _ in 0..SCANS {
        let mut scan = db.scan(key(random.below(LARGE))..).await?;
        for _ in 0..100 {
            read.note(scan.next().await?.map(|entry| entry.value));
        }
    }
    row(
        "memtable: scan of 100, ns an entry",
        begun.elapsed().as_nanos() as f64 / (SCANS * 100) as f64,
    );
    Ok(())
}

/// Operations on keys of a Zipf distribution, of which so many in a hundred are writes.
async fn ycsb(db: &Db, name: &str, keys: u64, writes: u64, read: &mut Read) -> Result<()> {
    let zipf = Zipf::new(keys);
    let mut random = Random(keys + writes);
    let begun = Instant::now();
    for at in 0..OPERATIONS {
        let key = key(zipf.draw(&mut random));
        if random.below(100) < writes {
            db.put(key, value(at, at, 100)).await?;
        } else {
            read.note(db.get(key).await?);
        }
    }
    row(
        &format!("{name}, ns"),
        begun.elapsed().as_nanos() as f64 / OPERATIONS as f64,
    );
    Ok(())
}
