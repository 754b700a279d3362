//! RocksDB's db_bench over tables of this crate: an active one, frozen ones after it, and no file
//! but a journal.
//!
//! ```text
//!   cargo run --release --example db_bench -- --benchmarks=fillseq,readrandom[-X20] --num=250000
//!   cargo run --release --example db_bench -- --help
//! ```
//! Flags, key layout, values, benchmarks and result lines are RocksDB's. So its published command
//! lines run as they are, and scripts that read its result lines can read these. With the same seed
//! the keys are those of RocksDB 7.8.3. The differences are:
//!
//! * A full table is frozen and stays in memory; nothing is flushed.
//! * The journal is one file in the directory `--db`, which `--use_existing_db` replays.
//! * Without a journal and without callers' digests, single writes go to the table without a batch.
//!
//! Exit code 0: it ran; 1: memory or journal is damaged; 2: the command cannot be run.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

mod bench;
#[path = "../../examples/shared/failure.rs"]
mod failure;
mod fills;
mod flags;
mod journal;
#[path = "../../examples/shared/output.rs"]
mod output;
mod reads;
mod settings;
mod tables;

#[cfg(test)]
mod agreement;

use bench::{Measured, Repeats, Work};
use failure::Failure;
use flags::Flags;
use journal::Journal;
use output::{complain, print};
use settings::{Journaling, Settings, Start};
use tables::Db;

fn main() -> ExitCode {
    sigpipe::reset();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_help = words
        .iter()
        .any(|word| matches!(word.trim_start_matches('-'), "help" | "h"));
    let done = if asks_for_help {
        print(flags::help()).map_err(Failure::from)
    } else {
        Flags::parse(&words)
            .map_err(Failure::Cannot)
            .and_then(|flags| run(&flags))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    let settings = Settings::of(flags)?;
    let entries = plan(&settings)?;
    for note in &settings.notes {
        print(format_args!("{note}\n"))?;
    }
    introduce(&settings)?;
    let pool = fills::pool(settings.value_size.max(fills::LARGE_VALUE));
    let mut db = open(&settings, settings.start)?;
    let mut threads_before = 0;
    for entry in entries {
        if entry.benchmark.ground == Ground::Fresh && settings.start == Start::Existing {
            print(format_args!(
                "{:<12} : skipped (--use_existing_db is true)\n",
                entry.benchmark.name
            ))?;
            continue;
        }
        if entry.benchmark.writes() && settings.journaling == Journaling::ReadOnly {
            let name = entry.benchmark.name;
            return Err(Failure::Cannot(format!(
                "{name} writes, and the database is opened with --readonly"
            )));
        }
        let mut settings = settings.clone();
        (entry.benchmark.change)(&mut settings);
        if entry.benchmark.ground == Ground::Fresh {
            // The old tables are dropped first, so that memory holds one database at a time.
            drop(db);
            db = open(&settings, Start::Empty)?;
        }
        print(format_args!(
            "DB path: [{}]\n",
            settings.directory.display()
        ))?;
        repeat(&settings, &entry, &db, &pool, &mut threads_before)?;
    }
    Ok(())
}

/// Runs one benchmark as often as the command says.
fn repeat(
    settings: &Settings,
    entry: &Entry,
    db: &Db,
    pool: &[u8],
    threads_before: &mut u64,
) -> Result<(), Failure> {
    let Entry {
        benchmark,
        warm_ups,
        runs,
    } = entry;
    let mut run = || bench::run(settings, db, pool, &benchmark.work, threads_before);
    if benchmark.work.measured == Measured::Nothing {
        return run().map(drop);
    }
    if *warm_ups > 0 {
        print(format_args!(
            "Warming up benchmark by running {warm_ups} times\n"
        ))?;
    }
    for _ in 0..*warm_ups {
        print(run()?.report(benchmark.name))?;
    }
    if *runs > 1 {
        print(format_args!("Running benchmark for {runs} times\n"))?;
    }
    let mut repeats = Repeats::default();
    for _ in 0..*runs {
        let stats = run()?;
        print(stats.report(benchmark.name))?;
        print(repeats.add(&stats, benchmark.name, settings.shown))?;
    }
    print(repeats.finish(benchmark.name, settings.shown))?;
    Ok(())
}

/// Opens a database: an empty one, or one with the content of the journal.
fn open(settings: &Settings, start: Start) -> Result<Db, Failure> {
    let db = Db::new(settings.table.clone(), settings.writing)?;
    let replayed = match start {
        Start::Empty => None,
        Start::Existing => replay(settings, &db)?,
    };
    if settings.journaling == Journaling::Off && start == Start::Empty {
        // The journal of an earlier command is not part of this database.
        journal::remove(&settings.directory)?;
    }
    Ok(match (settings.journaling, replayed) {
        (Journaling::Off | Journaling::ReadOnly, _) => db,
        (Journaling::Write, None) => {
            db.with_journal(Journal::create(&settings.directory, settings.checksum)?)
        }
        (Journaling::Write, Some(replayed)) => {
            db.with_journal(Journal::reopen(&settings.directory, &replayed)?)
        }
    })
}

/// Replays the journal and prints counts of what it read.
fn replay(settings: &Settings, db: &Db) -> Result<Option<journal::Replayed>, Failure> {
    let started = Instant::now();
    let bar = progress(0);
    let replayed = journal::replay(&settings.directory, |batch| {
        bar.inc(1);
        db.replay(batch)
    });
    bar.finish_and_clear();
    let path = journal::path(&settings.directory);
    match replayed? {
        None => Err(Failure::Cannot(format!(
            "--use_existing_db: there is no {}",
            path.display()
        ))),
        Some(replayed) => {
            let elapsed = started.elapsed().as_secs_f64();
            complain(format_args!(
                "replayed {} batches of {} in {elapsed:.3} s",
                replayed.batches,
                path.display()
            ));
            if replayed.torn > 0 {
                complain(format_args!(
                    "warning: {} ends in the middle of a record: the last {} bytes are left out",
                    path.display(),
                    replayed.torn
                ));
            }
            Ok(Some(replayed))
        }
    }
}

/// A progress bar on stderr; nothing is drawn if stderr is not a terminal.
fn progress(steps: u64) -> ProgressBar {
    let (bar, template) = match steps {
        0 => (
            ProgressBar::new_spinner(),
            "{spinner} {pos} batches {elapsed}",
        ),
        _ => (
            ProgressBar::new(steps),
            "[{bar:40}] {pos}/{len} ops  {eta} left",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn introduce(settings: &Settings) -> Result<(), Failure> {
    let keys = settings.keys;
    let entry = (keys.key_size + settings.value_size) as f64;
    let per_prefix = settings.extent.num.checked_div(keys.prefixes).unwrap_or(0);
    let raw = entry * settings.extent.num as f64 / 1_048_576.0;
    print(format_args!("Keys:       {} bytes each\n", keys.key_size))?;
    print(format_args!(
        "Values:     {} bytes each\n",
        settings.value_size
    ))?;
    print(format_args!("Entries:    {}\n", settings.extent.num))?;
    print(format_args!("Prefix:    {} bytes\n", keys.prefix_size))?;
    print(format_args!("Keys per prefix:    {per_prefix}\n"))?;
    print(format_args!("RawSize:    {raw:.1} MB (estimated)\n"))?;
    print("Compression: NoCompression\n")?;
    print("Memtablerep: SkipList\n")?;
    print(format_args!(
        "Protection: {} bytes\n",
        settings.table.paranoid().protection_bytes()
    ))?;
    if cfg!(debug_assertions) {
        print("WARNING: Assertions are enabled; benchmarks unnecessarily slow\n")?;
    }
    print("------------------------------------------------\n")?;
    Ok(())
}

// The benchmarks by name, and how often each one runs.
//
// ```text
//   readrandom            once
//   readrandom[-X20]      20 times, with averages
//   fillseq[-W2-X20]      after two runs that do not count
// ```

/// Whether a benchmark begins with an empty database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Fresh,
    Kept,
}

/// A benchmark.
#[derive(Debug, Clone, Copy)]
struct Benchmark {
    name: &'static str,
    ground: Ground,
    work: Work,
    /// Changes the settings for this benchmark.
    change: fn(&mut Settings),
}

impl Benchmark {
    /// Whether the benchmark changes the database.
    fn writes(&self) -> bool {
        let parts = ["fill", "overwrite", "delete", "whilewriting"];
        parts.iter().any(|part| self.name.contains(part))
    }
}

/// A benchmark of a command.
#[derive(Debug, Clone, Copy)]
struct Entry {
    benchmark: Benchmark,
    warm_ups: u32,
    runs: u32,
}

/// The number of operations per thread of a benchmark.
fn expected(settings: &Settings, name: &str) -> u64 {
    match name {
        "fillsync" | "fill100K" => settings.extent.writes / 1000,
        _ if name.starts_with("fill") || name == "overwrite" => settings.extent.writes,
        _ if name.starts_with("delete") => settings.extent.deletes,
        "crc32c" | "xxhash" | "xxhash64" | "xxh3" => {
            settings.checksum_bytes / settings.block_size as u64
        }
        _ => settings.extent.reads,
    }
}

/// The benchmark with this name.
fn find(settings: &Settings, name: &str) -> Option<Benchmark> {
    let work = |run, operation| Work {
        run,
        operation,
        measured: Measured::All,
        single: false,
        expected: 0,
    };
    let beside = |run, operation| Work {
        measured: Measured::AllButLast,
        ..work(run, operation)
    };
    let fresh = |work| (Ground::Fresh, work);
    let kept = |work| (Ground::Kept, work);
    let (ground, work) = match name {
        "fillseq" => fresh(work(fills::fill_seq, "write")),
        "fillrandom" => fresh(work(fills::fill_random, "write")),
        "filluniquerandom" => fresh(Work {
            single: true,
            ..work(fills::fill_unique_random, "write")
        }),
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
        "stats" => kept(Work {
            single: true,
            measured: Measured::Nothing,
            ..work(reads::stats, "other")
        }),
        "crc32c" => kept(work(reads::crc32c, "crc")),
        "xxhash" => kept(work(reads::xxhash, "hash")),
        "xxhash64" => kept(work(reads::xxhash64, "hash")),
        "xxh3" => kept(work(reads::xxh3, "hash")),
        _ => return None,
    };
    let change: fn(&mut Settings) = match name {
        // Each write is synced.
        "fillsync" => |settings| settings.writing.sync = crate::journal::Sync::EachWrite,
        _ => |_| {},
    };
    let name = NAMES.iter().find(|known| **known == name)?;
    let work = Work {
        expected: expected(settings, name),
        ..work
    };
    Some(Benchmark {
        name,
        ground,
        work,
        change,
    })
}

/// The names of all benchmarks.
const NAMES: &[&str] = &[
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
    (
        "compact compact0 compact1 compactall waitforcompaction levelstats sstables",
        "there are no files",
    ),
    (
        "flush",
        "there are no files; full tables are frozen by themselves",
    ),
    ("resetstats memstats", "tables count no reads"),
];

/// The benchmarks of a command, in order.
fn plan(settings: &Settings) -> Result<Vec<Entry>, Failure> {
    settings
        .benchmarks
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| entry(settings, word))
        .collect()
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
        match (
            part.strip_prefix('X').and_then(number),
            part.strip_prefix('W').and_then(number),
        ) {
            (Some(number), _) => runs = number,
            (_, Some(number)) => warm_ups = number,
            _ => return refuse(format!("`{word}`: `{part}` is neither Xn nor Wn")),
        }
    }
    match find(settings, name) {
        Some(benchmark) => Ok(Entry {
            benchmark,
            warm_ups,
            runs,
        }),
        None => {
            let mut about = REFUSED
                .iter()
                .filter(|(names, _)| names.split(' ').any(|known| known == name));
            match about.next() {
                Some((_, why)) => refuse(format!("benchmark {name} has no meaning here: {why}")),
                None => {
                    let meant = crate::flags::nearest(name, NAMES.iter().copied());
                    let meant =
                        meant.map_or(String::new(), |name| format!("; did you mean {name}?"));
                    refuse(format!("unknown benchmark '{name}'{meant}"))
                }
            }
        }
    }
}
