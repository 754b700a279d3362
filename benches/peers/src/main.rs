//! Runs all rivals side by side in one process, over the same keys and rounds.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release                              Rust rivals only
//!   cargo run --release --features rocksdb           and RocksDB's own MemTable (first build: about half an hour;
//!                                                    needs a C++20 compiler and libclang)
//!   options: --entries 250000,1000000 --keys 16,tenants --values 100 --rounds 15 --slice 20000
//!            --rows insert,get,...  --candidates ours,rocksdb,...  --date 2026-01-31 --name laptop (writes a record)
//! ```
//! Times drift with the state of the machine, ratios hardly do. A round gives each table a slice of
//! the same work, and the result is the median over the rounds of the ratio inside a round. One
//! thread is timed by its own processor time. Several at once, at the largest size, are timed by
//! the clock. All tables must have the same hash of what they read. New memory is warm (see
//! `work::Ballast`). `PARANOID_BENCH_SMOKE=1` only shows that the program runs.
//!
//! The subcommands are:
//!
//! * `published` runs the published command lines of five changes of RocksDB through the example
//!   db_bench.
//! * `picture` writes the pictures of the README and the guide from the newest records.
//! * `tables` (with `--features rocksdb`) writes and reads table files beside RocksDB (see
//!   `tables`).
//! * `tails` times each insert by itself (see `tails`).
//! * `set` measures a set (see `set`).
//! * `threads` measures tables and sets at 1 to 16 threads (see `threads`).
//! * `writes` counts shared stores (see `writes`).

mod picture;
mod published;
mod record;
mod rivals;
mod rows;
mod set;
#[cfg(feature = "rocksdb")]
mod shim;
#[cfg(feature = "rocksdb")]
mod subject;
#[cfg(feature = "rocksdb")]
mod tables;
mod tails;
mod threads;
mod work;
mod writes;

use std::process::Command as Process;

use anyhow::ensure;
use clap::{Parser, Subcommand};
use measure::keys::Generator;

use rivals::{Candidate, Room};
use work::{KeyShape, Shape};

/// The arguments of the program.
#[derive(Debug, Clone, Parser)]
#[command(
    about = "Rivals side by side in one process",
    args_conflicts_with_subcommands = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Numbers of entries of the tables.
    #[arg(long, value_delimiter = ',', default_value = "250000")]
    entries: Vec<u64>,
    /// Shapes of keys. Each has a section of the record.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "16")]
    keys: Vec<KeyShape>,
    /// Bytes of a value, at least 8.
    #[arg(long, default_value_t = 100)]
    values: usize,
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Operations of a slice.
    #[arg(long, default_value_t = 20_000)]
    slice: usize,
    /// Only rows whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Only candidates whose names contain one of these.
    #[arg(long, alias = "lanes", value_delimiter = ',')]
    candidates: Vec<String>,
    /// The day of the record. Without a day no record is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "peers")]
    name: String,
    /// Only measures the memory of one candidate: the program starts itself with this option.
    #[arg(long, hide = true)]
    memory: Option<String>,
}

/// The subcommands.
#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Runs published db_bench command lines and keeps a record.
    Published(published::Arguments),
    /// Writes and reads table files beside RocksDB: checks both ways, and measures costs.
    #[cfg(feature = "rocksdb")]
    Tables(tables::Arguments),
    /// Times each insert by itself.
    Tails(tails::Arguments),
    /// Measures a set beside plain tables and RocksDB's whole write path.
    Set(set::Arguments),
    /// Counts which cache lines several threads write, under valgrind.
    Writes(writes::Arguments),
    /// Measures tables and sets at 1 to 16 threads: rates, sleeps, processor time.
    Threads(threads::Arguments),
    /// Writes the pictures of the README and the guide from the newest records.
    Picture,
    /// Runs as the subject of `tools/register_faults`: an operation on RocksDB's table, and a seed.
    #[cfg(feature = "rocksdb")]
    Subject { operation: String, seed: u64 },
}

impl Arguments {
    fn check(mut self) -> anyhow::Result<Arguments> {
        if std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0") {
            self.entries = vec![2_000];
            self.rounds = 2;
            self.slice = 240;
        }
        ensure!(
            self.entries.iter().all(|entries| *entries >= 1_000),
            "--entries: at least 1000"
        );
        ensure!(
            self.keys
                .iter()
                .all(|key| self.entries.iter().all(|entries| key.fits(*entries))),
            "--keys: keys as in engines are for at most {} entries",
            Generator::ENTRIES_MAX
        );
        ensure!(self.values >= 8, "--values: at least 8 bytes");
        ensure!(self.rounds > 0, "--rounds: at least 1");
        ensure!(self.slice >= 100, "--slice: at least 100");
        let plain = |text: &str| {
            text.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
        };
        ensure!(
            plain(&self.name) && self.date.as_deref().is_none_or(plain),
            "--name, --date: plain words"
        );
        Ok(self)
    }

    fn room(&self, key: KeyShape, entries: u64) -> Room {
        let shape = Shape {
            key,
            value_len: self.values,
            entries,
        };
        // The mixed row puts more entries.
        Room {
            shape,
            entries: entries * 2,
            threads: 1,
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let asked = |candidate: &Candidate| {
            self.candidates.is_empty()
                || self
                    .candidates
                    .iter()
                    .any(|part| candidate.name().contains(part))
        };
        Candidate::all().into_iter().filter(asked).collect()
    }

    /// Whether the arguments select a row.
    fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|part| row.contains(part.as_str()))
    }

    /// Whether to make rows of several threads: at the largest size, unless the arguments select
    /// only other rows.
    fn wants_threads(&self, entries: u64) -> bool {
        let asked = self.rows.is_empty() || self.rows.iter().any(|part| part.contains("threads"));
        asked && self.entries.iter().max() == Some(&entries)
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse().check()?;
    match &arguments.command {
        Some(Command::Published(arguments)) => return published::run(arguments),
        #[cfg(feature = "rocksdb")]
        Some(Command::Tables(arguments)) => return tables::run(arguments),
        Some(Command::Tails(arguments)) => return tails::run(arguments),
        Some(Command::Set(arguments)) => return set::run(arguments),
        Some(Command::Writes(arguments)) => return writes::run(arguments),
        Some(Command::Threads(arguments)) => return threads::run(arguments),
        Some(Command::Picture) => return picture::write(),
        #[cfg(feature = "rocksdb")]
        Some(Command::Subject { operation, seed }) => subject::run(operation, *seed)?.exit(),
        None => {}
    }
    let candidates = arguments.candidates();
    ensure!(!candidates.is_empty(), "--candidates: none of that name");
    if let Some(name) = &arguments.memory {
        return print_resident(&arguments, name);
    }
    let mut sections = Vec::new();
    for key in &arguments.keys {
        for entries in &arguments.entries {
            eprintln!("{entries} entries, keys {}", key.name());
            let mut section = rows::section(&arguments, &candidates, *key, *entries)?;
            section.resident = candidates
                .iter()
                .map(|candidate| resident_of_child(&arguments, *candidate, *key, *entries))
                .collect();
            sections.push(section);
        }
    }
    let record = record::of(&arguments, &candidates, sections);
    println!("{}", record::markdown(&record));
    if let Some(date) = &arguments.date {
        eprintln!(
            "wrote {}",
            record::write(&record, &format!("{date}-{}", arguments.name))?
        );
    }
    Ok(())
}

/// Resident bytes per entry of a table in a process of its own. `None`: the system does not report
/// them.
fn resident_of_child(
    arguments: &Arguments,
    candidate: Candidate,
    key: KeyShape,
    entries: u64,
) -> Option<f64> {
    let output = Process::new(std::env::current_exe().ok()?)
        .args([
            "--memory",
            &candidate.name(),
            "--entries",
            &entries.to_string(),
            "--keys",
            &key.name(),
        ])
        .args(["--values", &arguments.values.to_string()])
        .output()
        .ok()?;
    let bytes: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .ok()?;
    (bytes > 0.0).then(|| bytes / entries as f64)
}

/// Fills one table at random and prints the growth of the process in bytes.
fn print_resident(arguments: &Arguments, name: &str) -> anyhow::Result<()> {
    let candidate = Candidate::all()
        .into_iter()
        .find(|candidate| candidate.name() == name);
    let candidate = candidate.ok_or_else(|| anyhow::anyhow!("no candidate {name}"))?;
    let (Some(key), Some(entries)) = (arguments.keys.first(), arguments.entries.first()) else {
        anyhow::bail!("--keys, --entries: one of each");
    };
    let (room, order) = (
        arguments.room(*key, *entries),
        work::shuffled(*entries, rows::SEED),
    );
    let before = measure::resident_bytes();
    let table = candidate.table(room)?;
    for (at, part) in order.chunks(1_000).enumerate() {
        let part = room.shape.entries(part, 1 + 1_000 * at as u64);
        if let Some(task) = table.prepare(work::Work::Insert(&part)) {
            task();
        }
    }
    println!("{}", measure::resident_bytes().saturating_sub(before));
    Ok(())
}
