//! The benchmarks by name, and how often each is run.
//!
//! ```text
//!   readrandom            once
//!   readrandom[-X20]      20 times, with averages
//!   fillseq[-W2-X20]      after two runs that do not count
//! ```

use crate::bench::{Measured, Work};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::{fills, reads};

/// Whether a benchmark begins with an empty database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    Fresh,
    Kept,
}

/// A benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) ground: Ground,
    pub(crate) work: Work,
    /// How it changes the settings, if it does.
    pub(crate) change: fn(&mut Settings),
}

impl Benchmark {
    /// Whether it changes the database.
    pub(crate) fn writes(&self) -> bool {
        let parts = ["fill", "overwrite", "delete", "whilewriting"];
        parts.iter().any(|part| self.name.contains(part))
    }
}

/// A benchmark of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) benchmark: Benchmark,
    pub(crate) warm_ups: u32,
    pub(crate) runs: u32,
}

/// The number of operations of a benchmark per thread.
fn expected(settings: &Settings, name: &str) -> u64 {
    match name {
        "fillsync" | "fill100K" => settings.extent.writes / 1000,
        _ if name.starts_with("fill") || name == "overwrite" => settings.extent.writes,
        _ if name.starts_with("delete") => settings.extent.deletes,
        "crc32c" | "xxhash" | "xxhash64" | "xxh3" => settings.checksum_bytes / settings.block_size as u64,
        _ => settings.extent.reads,
    }
}

/// The benchmark of a name.
fn find(settings: &Settings, name: &str) -> Option<Benchmark> {
    let work = |run, operation| Work { run, operation, measured: Measured::All, single: false, expected: 0 };
    let beside = |run, operation| Work { measured: Measured::AllButLast, ..work(run, operation) };
    let fresh = |work| (Ground::Fresh, work);
    let kept = |work| (Ground::Kept, work);
    let (ground, work) = match name {
        "fillseq" => fresh(work(fills::fill_seq, "write")),
        "fillrandom" => fresh(work(fills::fill_random, "write")),
        "filluniquerandom" => fresh(Work { single: true, ..work(fills::fill_unique_random, "write") }),
        "fillbatch" => fresh(work(fills::fill_batch, "write")),
        "fillsync" => fresh(work(fills::fill_sync, "write")),
        "fill100K" => fresh(work(fills::fill_100k, "write")),
        "overwrite" => kept(work(fills::fill_random, "write")),
        "deleteseq" => kept(work(fills::delete_seq, "delete")),
        "deleterandom" => kept(work(fills::delete_random, "delete")),
        "readrandom" => kept(work(reads::read_random, "read")),
        "readmissing" => kept(work(reads::read_missing, "read")),
        "readseq" => kept(work(reads::read_seq, "read")),
        "readreverse" => kept(work(reads::read_reverse, "read")),
        "seekrandom" => kept(work(reads::seek_random, "seek")),
        "multireadrandom" => kept(work(reads::multi_read_random, "read")),
        "readwhilewriting" => kept(beside(reads::read_while_writing, "read")),
        "seekrandomwhilewriting" => kept(beside(reads::seek_random_while_writing, "seek")),
        "multireadwhilewriting" => kept(beside(reads::multi_read_while_writing, "read")),
        "approximatememtablestats" => kept(work(reads::approximate_stats, "other")),
        "stats" => kept(Work { single: true, measured: Measured::Nothing, ..work(reads::stats, "other") }),
        "crc32c" => kept(work(reads::crc32c, "crc")),
        "xxhash" => kept(work(reads::xxhash, "hash")),
        "xxhash64" => kept(work(reads::xxhash64, "hash")),
        "xxh3" => kept(work(reads::xxh3, "hash")),
        _ => return None,
    };
    let change: fn(&mut Settings) = match name {
        // Each write reaches the disk.
        "fillsync" => |settings| settings.writing.sync = crate::journal::Sync::EachWrite,
        _ => |_| {},
    };
    let name = NAMES.iter().find(|known| **known == name)?;
    let work = Work { expected: expected(settings, name), ..work };
    Some(Benchmark { name, ground, work, change })
}

/// Every benchmark.
pub(crate) const NAMES: &[&str] = &[
    "fillseq",
    "fillrandom",
    "filluniquerandom",
    "fillbatch",
    "fillsync",
    "fill100K",
    "overwrite",
    "deleteseq",
    "deleterandom",
    "readrandom",
    "readmissing",
    "readseq",
    "readreverse",
    "seekrandom",
    "multireadrandom",
    "readwhilewriting",
    "seekrandomwhilewriting",
    "multireadwhilewriting",
    "approximatememtablestats",
    "stats",
    "crc32c",
    "xxhash",
    "xxhash64",
    "xxh3",
];

/// Benchmarks of RocksDB's db_bench that have no meaning here.
const REFUSED: &[(&str, &str)] = &[
    ("compact compact0 compact1 compactall waitforcompaction levelstats sstables", "there are no files"),
    ("flush", "there are no files; full tables are frozen by themselves"),
    ("resetstats memstats", "--statistics prints what reads did"),
];

/// What a command runs, in order.
pub(crate) fn entries(settings: &Settings) -> Result<Vec<Entry>, Failure> {
    settings.benchmarks.split(',').filter(|word| !word.is_empty()).map(|word| entry(settings, word)).collect()
}

fn entry(settings: &Settings, word: &str) -> Result<Entry, Failure> {
    let refuse = |text: String| Err(Failure::Cannot(text));
    let (name, bracket) = match word.split_once('[') {
        None => (word, ""),
        Some((name, rest)) => match rest.strip_suffix(']') {
            Some(inside) => (name, inside),
            None => return refuse(format!("`{word}`: the bracket is not closed")),
        },
    };
    let (mut warm_ups, mut runs) = (0, 1);
    for part in bracket.split('-').filter(|part| !part.is_empty()) {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        match (part.strip_prefix('X').and_then(number), part.strip_prefix('W').and_then(number)) {
            (Some(number), _) => runs = number,
            (_, Some(number)) => warm_ups = number,
            _ => return refuse(format!("`{word}`: `{part}` is neither Xn nor Wn")),
        }
    }
    match find(settings, name) {
        Some(benchmark) => Ok(Entry { benchmark, warm_ups, runs }),
        None => {
            let mut about = REFUSED.iter().filter(|(names, _)| names.split(' ').any(|known| known == name));
            match about.next() {
                Some((_, why)) => refuse(format!("benchmark {name} has no meaning here: {why}")),
                None => {
                    let meant = crate::flags::nearest(name, NAMES.iter().copied());
                    let meant = meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
                    refuse(format!("unknown benchmark '{name}'{meant}"))
                }
            }
        }
    }
}
