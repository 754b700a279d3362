//! Table files beside RocksDB's: costs, and whether each reads what the other wrote.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release --features rocksdb -- tables [--entries 388000] [--rounds 9] [--date 2026-01-31]
//!   cargo run --release --features rocksdb -- tables --check      only reads and writes both ways
//! ```
//! `both_ways` comes first: costs of files that the other side cannot read are worth nothing. Then `flush` and `reads`.

mod both_ways;
mod costs;
mod record;
mod shim;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use paranoid_memtable::ChecksumKind;

/// What was asked for.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Entries of the flushed table, with keys of 16 bytes and values of 100: the default makes about 64 MiB.
    #[arg(long, default_value_t = 388_000)]
    entries: u64,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Checksums of the blocks.
    #[arg(long, value_delimiter = ',', default_value = "none,crc32c,xxhash,xxhash64,xxh3")]
    kinds: Vec<ChecksumKind>,
    /// Where files are written: in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Only reads and writes both ways.
    #[arg(long)]
    check: bool,
    /// Seed of the entries that both sides write and read.
    #[arg(long, default_value_t = 14)]
    seed: u64,
    /// Day of the record; without one nothing is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "table-files")]
    name: String,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut arguments = arguments.clone();
    if std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0") {
        (arguments.entries, arguments.rounds) = (2_000, 2);
    }
    ensure!(
        arguments.entries >= 1_000 && arguments.rounds > 0,
        "--entries: at least 1000, --rounds: at least 1"
    );
    let folder = Folder::new(&arguments.folder)?;
    let checked = both_ways::check(&folder.0, arguments.seed)?;
    println!("{checked}");
    if arguments.check {
        return Ok(());
    }
    let load = record::load();
    let costs = costs::measure(&arguments, &folder.0)?;
    let record = record::Record::new(&arguments, checked, load, costs);
    println!("{}", record.markdown());
    if let Some(date) = &arguments.date {
        eprintln!("wrote {}", record.write(&format!("{date}-{}", arguments.name))?);
    }
    Ok(())
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: &Path) -> anyhow::Result<Folder> {
        let path = parent.join(format!("paranoid-table-files-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("a folder in {}", parent.display()))?;
        Ok(Folder(path))
    }

    /// An empty folder at this path.
    fn fresh(path: &Path) -> anyhow::Result<PathBuf> {
        if path.exists() {
            std::fs::remove_dir_all(path)?;
        }
        std::fs::create_dir(path)?;
        Ok(path.to_path_buf())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, what is left is in memory or in a temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The only table file of a database's folder.
fn table_in(folder: &Path) -> anyhow::Result<PathBuf> {
    let paths = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let (first, second) = (files.next(), files.next());
    ensure!(second.is_none(), "{}: more than one table file", folder.display());
    first.with_context(|| format!("{}: no table file", folder.display()))
}
