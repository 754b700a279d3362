//! Compares table files with RocksDB's: costs, and whether each side reads the other's files.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release --features rocksdb -- tables [--entries 388000] [--rounds 9] [--date 2026-01-31]
//!   cargo run --release --features rocksdb -- tables --check      only reads and writes both ways
//! ```
//! `both_ways` comes first, because costs of files that the other side cannot read are worth
//! nothing. Then come `flush` and `reads`.

use std::fmt::Write;
use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use measure::{Environment, quartiles};
use paranoid_memtable::flush::Versions;
use paranoid_memtable::{ChecksumKind, ImmutableMemTable, Lookup, MemTable, MemTableOptions};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableSource};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::record::head;
use crate::shim::table_files::{Database, FileOptions, Reader};
use crate::work::{Entries, Keys, Presence, Shape, fold, mix, picks, shuffled, thread_time};

/// The arguments of `tables`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Entries of the flushed table, with keys of 16 bytes and values of 100. The default makes
    /// about 64 MiB.
    #[arg(long, default_value_t = 388_000)]
    entries: u64,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Checksums of the blocks.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,crc32c,xxhash,xxhash64,xxh3"
    )]
    kinds: Vec<ChecksumKind>,
    /// The folder of the files. The default is in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Only reads and writes both ways.
    #[arg(long)]
    check: bool,
    /// Seed of the entries that both sides write and read.
    #[arg(long, default_value_t = 14)]
    seed: u64,
    /// The day of the record. Without a day no record is written.
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
    let load = load();
    let costs = measure(&arguments, &folder.0)?;
    let record = Record::new(&arguments, checked, load, costs);
    println!("{}", record.markdown());
    if let Some(date) = &arguments.date {
        eprintln!(
            "wrote {}",
            record.write(&format!("{date}-{}", arguments.name))?
        );
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

    /// Makes an empty folder at this path.
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
        // If this fails, the rest is in memory or in a temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The only table file of a database's folder.
fn table_in(folder: &Path) -> anyhow::Result<PathBuf> {
    let paths = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let (first, second) = (files.next(), files.next());
    ensure!(
        second.is_none(),
        "{}: more than one table file",
        folder.display()
    );
    first.with_context(|| format!("{}: no table file", folder.display()))
}

// The costs of files: flushes of one table, and reads of the file that the flush wrote. The
// candidates take turns.
//
// A flush is timed by the processor time of the process, because RocksDB flushes on a thread of its
// own. Reads are timed by that of their thread. RocksDB's memtable does not outlive its flush, so a
// new one is filled at random before each flush, outside the time. The data blocks of both files
// must have equal bytes.

const SEED: u64 = 14;
/// Number of gets of a round.
const GETS: usize = 20_000;
/// Number of opens of a round.
const OPENS: usize = 8;

pub const FLUSHES: [&str; 5] = [
    "ours-8",
    "ours-8+read-back",
    "rocksdb-0",
    "rocksdb-8",
    "rocksdb-8+read-back",
];
pub const READERS: [&str; 4] = ["ours", "ours-file", "rocksdb", "rocksdb-cached"];

/// Nanoseconds of one operation, by candidate and round.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    pub name: String,
    pub candidates: Vec<&'static str>,
    pub nanoseconds: Vec<Vec<f64>>,
}

/// The rows of one checksum kind.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Costs {
    pub kind: String,
    pub rows: Vec<Row>,
}

struct Input {
    entries: Entries,
    table: ImmutableMemTable,
    hits: Vec<Keys>,
    misses: Vec<Keys>,
}

/// Processor time of all threads.
fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Nanoseconds per operation of `count` operations, by `clock`.
fn timed<T>(clock: fn() -> Duration, count: u64, act: impl FnOnce() -> T) -> (f64, T) {
    let started = clock();
    let result = black_box(act());
    (
        (clock() - started).as_secs_f64() * 1e9 / count as f64,
        result,
    )
}

fn input(arguments: &Arguments) -> anyhow::Result<Input> {
    let shape = Shape::plain(100);
    let entries = shape.entries(&shuffled(arguments.entries, SEED), 1);
    let options = MemTableOptions::builder()
        .write_buffer_size(256 << 20)
        .protection_bytes(8);
    let table = MemTable::new(options.build()?)?;
    for (sequence, key, value) in entries.iter() {
        table.put(sequence, key, value)?;
    }
    let keys =
        |round: u64, presence| shape.keys(&picks(arguments.entries, GETS, mix(round)), presence);
    let rounds = 0..arguments.rounds as u64;
    Ok(Input {
        entries,
        table: table.freeze()?,
        hits: rounds
            .clone()
            .map(|round| keys(round, Presence::Hit))
            .collect(),
        misses: rounds.map(|round| keys(round, Presence::Miss)).collect(),
    })
}

pub fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<Vec<Costs>> {
    let input = input(arguments)?;
    eprintln!(
        "{} bytes of memory in the table",
        input.table.allocated_bytes()
    );
    let kinds = arguments.kinds.iter();
    kinds
        .map(|kind| of_kind(arguments, folder, &input, *kind))
        .collect()
}

fn of_kind(
    arguments: &Arguments,
    folder: &Path,
    input: &Input,
    kind: ChecksumKind,
) -> anyhow::Result<Costs> {
    eprintln!("{kind}");
    let count = input.entries.count() as u64;
    let file = folder.join(format!("{kind}.sst"));
    let mut flush = Row::new("flush", &FLUSHES);
    for round in 0..arguments.rounds {
        for turn in 0..FLUSHES.len() {
            let candidate = (round + turn) % FLUSHES.len();
            let nanoseconds = match candidate {
                0 | 1 => flush_ours(input, &file, kind, candidate == 1, count)?,
                _ => flush_theirs(input, folder, &file, kind, candidate, count)?,
            };
            flush.nanoseconds[candidate].push(nanoseconds);
        }
    }
    let mut rows = vec![flush];
    rows.extend(reads(arguments, input, &file, kind)?);
    std::fs::remove_file(&file)?;
    Ok(Costs {
        kind: kind.to_string(),
        rows,
    })
}

#[expect(clippy::fn_params_excessive_bools, reason = "the option of that name")]
fn flush_ours(
    input: &Input,
    file: &Path,
    kind: ChecksumKind,
    read_back: bool,
    count: u64,
) -> anyhow::Result<f64> {
    if file.exists() {
        std::fs::remove_file(file)?;
    }
    let options = SortedTableOptions::builder()
        .checksum(kind)
        .verify_after_write(read_back)
        .build()?;
    let (nanoseconds, written) = timed(process_time, count, || -> anyhow::Result<_> {
        let mut writer = SortedTableWriter::create(file, options)?;
        input.table.flush(Versions::SeenBy(&[]), &mut writer)?;
        Ok(writer.finish()?)
    });
    ensure!(written?.entries == count, "entries are missing");
    Ok(nanoseconds)
}

fn flush_theirs(
    input: &Input,
    folder: &Path,
    ours: &Path,
    kind: ChecksumKind,
    candidate: usize,
    count: u64,
) -> anyhow::Result<f64> {
    let folder = Folder::fresh(&folder.join("db"))?;
    let options = FileOptions {
        protection_bytes: if candidate == 2 { 0 } else { 8 },
        read_back: u8::from(candidate == 4),
        ..plain(kind)
    };
    let database = Database::open(&folder, options);
    database.put(&input.entries);
    let (nanoseconds, ()) = timed(process_time, count, || database.flush());
    if ours.exists() {
        let (theirs, ours) = (std::fs::read(table_in(&folder)?)?, std::fs::read(ours)?);
        let data = SortedTable::open(table_in(&folder)?)?
            .properties()
            .number("rocksdb.data.size");
        let data = usize::try_from(data.unwrap_or(0))?;
        ensure!(
            data > 0 && theirs[..data] == ours[..data],
            "the data blocks of both files differ"
        );
    }
    Ok(nanoseconds)
}

fn plain(kind: ChecksumKind) -> FileOptions {
    FileOptions {
        format_version: 5,
        checksum: kind.as_u8(),
        protection_bytes: 0,
        read_back: 0,
        cached: 0,
    }
}

impl Row {
    fn new(name: &str, candidates: &[&'static str]) -> Row {
        Row {
            name: name.into(),
            candidates: candidates.to_vec(),
            nanoseconds: vec![vec![]; candidates.len()],
        }
    }
}

/// An open reader of either side.
enum Open {
    Ours(SortedTable),
    Theirs(Reader),
}

fn open(file: &Path, kind: ChecksumKind, candidate: usize) -> anyhow::Result<Open> {
    let source = match candidate {
        0 => TableSource::memory(Arc::new(map(file)?)),
        1 => TableSource::file(File::open(file)?)?,
        _ => {
            let options = FileOptions {
                cached: u8::from(candidate == 3),
                ..plain(kind)
            };
            return Ok(Open::Theirs(Reader::open(file, options)));
        }
    };
    Ok(Open::Ours(SortedTable::from_source(file, source)?))
}

#[expect(unsafe_code, reason = "maps a file that does not change")]
fn map(file: &Path) -> anyhow::Result<memmap2::Mmap> {
    let file = File::open(file)?;
    // SAFETY: the file is this process's own, in a folder of its own, and is not changed.
    Ok(unsafe { memmap2::Mmap::map(&file) }?)
}

impl Open {
    fn get(&self, keys: &Keys) -> anyhow::Result<u64> {
        match self {
            Open::Theirs(reader) => Ok(reader.get(keys)),
            Open::Ours(table) => {
                keys.iter()
                    .try_fold(0, |hash, key| match table.get(key, u64::MAX)? {
                        Lookup::Value(value) => Ok(fold(hash, &value.bytes)),
                        _ => Ok(hash),
                    })
            }
        }
    }

    fn scan(&self) -> anyhow::Result<u64> {
        let Open::Ours(table) = self else {
            let Open::Theirs(reader) = self else {
                unreachable!()
            };
            return Ok(reader.scan());
        };
        let (mut cursor, mut hash) = (table.cursor(), 0);
        cursor.first()?;
        while let Some(entry) = cursor.entry() {
            hash = fold(hash, entry.value);
            cursor.next()?;
        }
        Ok(hash)
    }
}

/// The work of a round with an open reader. Returns a hash of what it read.
type Act<'a> = Box<dyn Fn(&Open, usize) -> anyhow::Result<u64> + 'a>;

fn reads(
    arguments: &Arguments,
    input: &Input,
    file: &Path,
    kind: ChecksumKind,
) -> anyhow::Result<Vec<Row>> {
    let readers: Vec<Open> = (0..READERS.len())
        .map(|candidate| open(file, kind, candidate))
        .collect::<anyhow::Result<_>>()?;
    let works: [(&str, u64, Act<'_>); 3] = [
        (
            "get, present",
            GETS as u64,
            Box::new(|reader, round| reader.get(&input.hits[round])),
        ),
        (
            "get, absent",
            GETS as u64,
            Box::new(|reader, round| reader.get(&input.misses[round])),
        ),
        (
            "scan",
            arguments.entries,
            Box::new(|reader, _| reader.scan()),
        ),
    ];
    let mut opens = Row::new("open", &READERS);
    let mut rows: Vec<Row> = works
        .iter()
        .map(|(name, ..)| Row::new(name, &READERS))
        .collect();
    for round in 0..arguments.rounds {
        let mut agreed = [None; 3];
        for turn in 0..READERS.len() {
            let candidate = (round + turn) % READERS.len();
            for (at, (name, count, act)) in works.iter().enumerate() {
                let (nanoseconds, hash) =
                    timed(thread_time, *count, || act(&readers[candidate], round));
                let hash = hash?;
                ensure!(
                    *agreed[at].get_or_insert(hash) == hash,
                    "{name}: {} differs",
                    READERS[candidate]
                );
                rows[at].nanoseconds[candidate].push(nanoseconds);
            }
            let (nanoseconds, opened) = timed(thread_time, OPENS as u64, || {
                (0..OPENS).try_for_each(|_| open(file, kind, candidate).map(drop))
            });
            opened?;
            opens.nanoseconds[candidate].push(nanoseconds);
        }
    }
    rows.push(opens);
    Ok(rows)
}

// The results of `tables`, as Markdown and JSON.

/// The target for the speed of a flush, as a multiple of RocksDB's.
const WANTED: f64 = 1.3;

#[derive(Debug, Serialize)]
pub struct Record {
    environment: Environment,
    entries: u64,
    rounds: usize,
    checked: String,
    load: [String; 2],
    costs: Vec<Costs>,
}

/// The load of the machine, as the system reports it.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

impl Row {
    fn candidate(&self, name: &str) -> Option<&Vec<f64>> {
        let at = self
            .candidates
            .iter()
            .position(|candidate| *candidate == name)?;
        self.nanoseconds.get(at)
    }

    /// How many times as fast as `rival` `ours` is, over the rounds: quartiles.
    fn speed(&self, ours: &str, rival: &str) -> Option<[f64; 3]> {
        let pairs = self.candidate(ours)?.iter().zip(self.candidate(rival)?);
        Some(quartiles(pairs.map(|(ours, rival)| rival / ours).collect()))
    }

    fn cell(&self, ours: &str, rival: &str) -> String {
        self.speed(ours, rival)
            .map_or("-".into(), |[low, median, high]| {
                format!("{median:.2} ({low:.2}..{high:.2})")
            })
    }
}

impl Record {
    pub fn new(
        arguments: &Arguments,
        checked: String,
        before: String,
        costs: Vec<Costs>,
    ) -> Record {
        Record {
            environment: crate::record::environment(arguments.date.as_deref()),
            entries: arguments.entries,
            rounds: arguments.rounds,
            checked,
            load: [before, load()],
            costs,
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.render(&mut text);
        text
    }

    fn render(&self, text: &mut String) -> std::fmt::Result {
        head(&self.environment, "Table files beside RocksDB's", text)?;
        writeln!(
            text,
            "- load of the machine (below the number of its threads if it was quiet): {} before, {} after",
            self.load[0], self.load[1]
        )?;
        let preloaded = std::env::var_os("LD_PRELOAD").is_some();
        let crc = if preloaded {
            "is preloaded"
        } else {
            "is the library's own"
        };
        writeln!(text, "- RocksDB's CRC32C {crc}")?;
        writeln!(
            text,
            "- {} entries, keys of 16 bytes, values of 100, inserted at random; format version 5, a filter of 10 bits",
            self.entries
        )?;
        writeln!(
            text,
            "- {} rounds, the candidates in turns; nanoseconds of processor time an operation (a flush: of all threads)\n",
            self.rounds
        )?;
        writeln!(text, "{}\n", self.checked)?;
        self.flushes(text)?;
        self.reads(text)?;
        self.times(text)
    }

    fn flushes(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "## Flush: how many times as fast this crate is\n")?;
        writeln!(
            text,
            "Ours with 8 protection bytes and every block compared with the stored digests. Medians over the rounds"
        )?;
        writeln!(
            text,
            "(quartiles); wanted: {WANTED} against RocksDB. `protection 8`: RocksDB with `memtable_protection_bytes_per_key`;"
        )?;
        writeln!(
            text,
            "`read back`: ours with `verify_after_write`, RocksDB with `paranoid_file_checks`.\n"
        )?;
        writeln!(
            text,
            "| checksum | RocksDB | | protection 8 | both read back | ours read back / not |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for costs in &self.costs {
            let Some(row) = costs.rows.first() else {
                continue;
            };
            let met = row
                .speed("ours-8", "rocksdb-0")
                .is_some_and(|[_, median, _]| median >= WANTED);
            let back = row
                .speed("ours-8", "ours-8+read-back")
                .map_or(f64::NAN, |[_, median, _]| median);
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {back:.2} times as long |",
                costs.kind,
                row.cell("ours-8", "rocksdb-0"),
                if met { "reached" } else { "MISSED" },
                row.cell("ours-8", "rocksdb-8"),
                row.cell("ours-8+read-back", "rocksdb-8+read-back"),
            )?;
        }
        Ok(())
    }

    fn reads(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n## Reads of that file: how many times as fast this crate is\n"
        )?;
        writeln!(
            text,
            "Both map the file and verify each block that a get or a scan fetches. `cached`: RocksDB with a block cache, which"
        )?;
        writeln!(
            text,
            "verifies a block once. `ours from a file`: by positioned reads, without a mapping.\n"
        )?;
        writeln!(
            text,
            "| checksum | work | RocksDB | RocksDB cached | ours from a file against RocksDB |"
        )?;
        writeln!(text, "|---|---|---|---|---|")?;
        for costs in &self.costs {
            for row in costs.rows.iter().skip(1) {
                let [plain, cached, file] = [
                    ("ours", "rocksdb"),
                    ("ours", "rocksdb-cached"),
                    ("ours-file", "rocksdb"),
                ]
                .map(|(ours, rival)| row.cell(ours, rival));
                writeln!(
                    text,
                    "| {} | {} | {plain} | {cached} | {file} |",
                    costs.kind, row.name
                )?;
            }
        }
        Ok(())
    }

    fn times(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Nanoseconds of an operation, medians\n")?;
        writeln!(text, "| checksum | work | figures |\n|---|---|---|")?;
        for costs in &self.costs {
            for row in &costs.rows {
                let figure = |(candidate, samples): (&&str, &Vec<f64>)| {
                    format!("{candidate} {:.0}", quartiles(samples.clone())[1])
                };
                let figures: Vec<String> = row
                    .candidates
                    .iter()
                    .zip(&row.nanoseconds)
                    .map(figure)
                    .collect();
                writeln!(
                    text,
                    "| {} | {} | {} |",
                    costs.kind,
                    row.name,
                    figures.join(", ")
                )?;
            }
        }
        Ok(())
    }

    pub fn write(&self, stem: &str) -> anyhow::Result<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join(format!("{stem}.json")),
            serde_json::to_string(self)? + "\n",
        )?;
        std::fs::write(folder.join(format!("{stem}.md")), self.markdown())?;
        Ok(format!("{}/{stem}.md and .json", folder.display()))
    }
}

/// Checks that each side reads the other's files: every format version and every checksum.
///
/// ```text
///   RocksDB: operations -> flush -> file    our reader: verify, entries, gets; our writer: blocks of the same bytes
///   ours:    operations -> flush -> file    RocksDB: verify, entries; taken into a database: gets
/// ```
/// A seed decides the operations: puts, deletes, single deletes, merges, range deletes, empty keys
/// and values, shared prefixes, several versions of a key.
mod both_ways {
    use std::path::Path;

    use anyhow::{Context, ensure};
    use paranoid_memtable::flush::Versions;
    use paranoid_memtable::read::Base;
    use paranoid_memtable::{
        ChecksumKind, ImmutableMemTable, Kind, Lookup, MemTable, MemTableOptions, TableReader,
        WriteBatch,
    };
    use paranoid_sst::{
        BlockKind, MergeOperands, MergeOperator, SortedTable, SortedTableOptions,
        SortedTableWriter, ingestible,
    };

    use super::{Folder, table_in};
    use crate::shim::table_files::{Database, FileOptions, Reader};
    use crate::work::mix;

    /// Number of operations of one file.
    const OPERATIONS: u64 = 3_000;
    /// Number of keys of the operations. Some more keys are read.
    const KEYS: u64 = 900;

    /// Means that there is no snapshot.
    const NEWEST: usize = usize::MAX;

    /// One operation: kind, key, and value, which is the end of a range delete.
    type Operation = (Kind, Vec<u8>, Vec<u8>);

    fn key(number: u64) -> Vec<u8> {
        match number % 4 {
            _ if number == 0 => vec![],
            0 => [&[b'p'; 150][..], &number.to_be_bytes()].concat(),
            1 => number.to_be_bytes()[6..].to_vec(),
            _ => format!("user{number:06}:name").into_bytes(),
        }
    }

    fn operations(seed: u64) -> Vec<Operation> {
        let draw = |at: u64, below: u64| mix(mix(seed) ^ at) % below;
        let operation = |at: u64| {
            let (number, len) = (draw(4 * at, KEYS), draw(4 * at + 1, 60) as usize);
            let value = vec![
                at as u8;
                if draw(4 * at + 2, 97) == 0 {
                    5_000
                } else {
                    len
                }
            ];
            // RocksDB does not allow single deletes together with deletes or merges of one key.
            let single = number % 5 == 0;
            match draw(4 * at + 3, 200) {
                0 => (
                    Kind::RANGE_DELETE,
                    key(number),
                    [key(number), vec![0xff, at as u8]].concat(),
                ),
                1..=30 if single => (Kind::SINGLE_DELETE, key(number), vec![]),
                1..=30 => (Kind::DELETE, key(number), vec![]),
                31..=70 if !single => (Kind::MERGE, key(number), value),
                _ => (Kind::PUT, key(number), value),
            }
        };
        (0..OPERATIONS).map(operation).collect()
    }

    /// The hash function of the shim.
    fn fnv(hash: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(hash, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

    fn fold_entry(hash: u64, key: &[u8], sequence: u64, kind: Kind, value: &[u8]) -> u64 {
        let tail = (sequence << 8 | u64::from(kind.as_u8())).to_le_bytes();
        fnv(fnv(fnv(hash, key), &tail), value)
    }

    /// Hash and number of all entries of a file, read by this crate.
    fn fold_file(table: &SortedTable) -> anyhow::Result<(u64, u64)> {
        let (mut cursor, mut hash, mut count) = (table.cursor(), BASIS, 0);
        cursor.first()?;
        while let Some(entry) = cursor.entry() {
            hash = fold_entry(
                hash,
                entry.user_key,
                entry.sequence,
                entry.kind,
                entry.value,
            );
            count += 1;
            cursor.next()?;
        }
        Ok((hash, count))
    }

    /// Joins operands by commas, as the merge operator of the shim does.
    #[derive(Debug)]
    struct Append;

    impl MergeOperator for Append {
        fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
            let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
            Some(parts.join(&b","[..]))
        }

        fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
            Some(operands.join(&b","[..]))
        }
    }

    fn merged(base: Option<Vec<u8>>, newest_first: Vec<Vec<u8>>) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = base
            .into_iter()
            .chain(newest_first.into_iter().rev())
            .collect();
        parts.join(&b","[..])
    }

    /// The hash of a key's value, read by this crate.
    fn get_file(table: &SortedTable, key: &[u8]) -> anyhow::Result<Option<u64>> {
        let value = match table.get(key, u64::MAX)? {
            Lookup::Value(value) => Some(value.bytes),
            Lookup::Merge(MergeOperands { operands, base }) => {
                let base = if let Base::Value(value) = base {
                    Some(value)
                } else {
                    None
                };
                Some(merged(
                    base,
                    operands.into_iter().map(|(_, value)| value).collect(),
                ))
            }
            _ => None,
        };
        Ok(value.map(|value| fnv(BASIS, &value)))
    }

    /// A key's value in this crate's memtable, at a snapshot.
    fn value_in(table: &TableReader, key: &[u8], at: u64) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(match table.get(key, at)? {
            Lookup::Value(value) => Some(value.to_vec()),
            Lookup::Merge(operands) => {
                let base = match operands.base()? {
                    Base::Value(value) => Some(value.to_vec()),
                    _ => None,
                };
                let values = operands.map(|operand| Ok(operand?.value.to_vec()));
                Some(merged(base, values.collect::<anyhow::Result<_>>()?))
            }
            _ => None,
        })
    }

    /// The hash of a key's value in this crate's memtable, at a snapshot.
    fn get_table(table: &TableReader, key: &[u8], at: u64) -> anyhow::Result<Option<u64>> {
        Ok(value_in(table, key, at)?.map(|value| fnv(BASIS, &value)))
    }

    /// The hash of all keys and values that a snapshot sees.
    fn scan_table(table: &TableReader, at: u64) -> anyhow::Result<u64> {
        let mut hash = BASIS;
        for entry in table.range_at(.., at) {
            let entry = entry?;
            let key = entry.user_key();
            let value = match entry.kind() {
                Kind::MERGE => value_in(table, key, at)?.context("operands of a key")?,
                _ => entry.value()?.to_vec(),
            };
            hash = fnv(fnv(hash, key), &value);
        }
        Ok(hash)
    }

    fn block<'a>(bytes: &'a [u8], table: &SortedTable, wanted: BlockKind) -> Option<&'a [u8]> {
        let (_, handle) = table.blocks().find(|(kind, _)| *kind == wanted)?;
        let (start, len) = (
            usize::try_from(handle.offset).ok()?,
            usize::try_from(handle.size).ok()?,
        );
        bytes.get(start..start + len)
    }

    /// Reads RocksDB's file, and writes it again.
    fn theirs(
        folder: &Path,
        options: FileOptions,
        operations: &[Operation],
    ) -> anyhow::Result<u64> {
        let folder = Folder::fresh(&folder.join("theirs"))?;
        let database = Database::open(&folder, options);
        for (at, (kind, key, value)) in operations.iter().enumerate() {
            database.add(0, kind.as_u8(), key, value);
            database.write(u8::from(at % 7 == 0));
        }
        database.flush();
        let path = table_in(&folder)?;
        let table = SortedTable::open(&path)?;
        let report = table.verify()?;
        let footer = table.footer();
        let stored = (footer.format_version(), footer.checks().kind().as_u8());
        ensure!(
            stored == (options.format_version, options.checksum),
            "footer {stored:?}"
        );
        ensure!(
            report.range_deletions > 0 && report.data_blocks > 9,
            "{report:?}"
        );
        ensure!(
            Reader::open(&path, options).all() == fold_file(&table)?,
            "entries differ"
        );
        for number in 0..KEYS + 300 {
            let key = key(number);
            ensure!(
                database.get(0, NEWEST, &key) == get_file(&table, &key)?,
                "get of {number}"
            );
        }
        if options.format_version <= 6 {
            rewrite(&folder.join("again"), &path, &table)?;
        }
        Ok(report.entries)
    }

    /// Checks that this crate's writer makes the same bytes of the same entries.
    fn rewrite(again: &Path, path: &Path, table: &SortedTable) -> anyhow::Result<()> {
        let footer = table.footer();
        let mut options = SortedTableOptions::builder()
            .format_version(footer.format_version())
            .checksum(footer.checks().kind());
        if let Some(base) = footer.checks().context_base() {
            options = options.context_base(base);
        }
        let mut writer = SortedTableWriter::create(again, options.build()?)?;
        let mut cursor = table.cursor();
        cursor.first()?;
        while let Some(entry) = cursor.entry() {
            writer.add(entry.user_key, entry.sequence, entry.kind, entry.value)?;
            cursor.next()?;
        }
        for (start, end, sequence) in table.range_tombstones() {
            writer.add_range(start, end, sequence)?;
        }
        let data = usize::try_from(writer.finish()?.data_size)?;
        let (theirs, ours) = (std::fs::read(path)?, std::fs::read(again)?);
        let again = SortedTable::open(again)?;
        ensure!(theirs.get(..data) == ours.get(..data), "data blocks differ");
        let mut kinds = vec![BlockKind::Index, BlockKind::RangeDeletions];
        // Before version 5 RocksDB writes filters of another form.
        if footer.format_version() >= 5 {
            kinds.push(BlockKind::Filter);
        }
        for kind in kinds {
            let (theirs, ours) = (block(&theirs, table, kind), block(&ours, &again, kind));
            ensure!(theirs.is_some() && theirs == ours, "{kind:?} blocks differ");
        }
        Ok(())
    }

    /// Checks that RocksDB verifies, scans and ingests this crate's file, and answers gets from it.
    fn ours(folder: &Path, options: FileOptions, table: &ImmutableMemTable) -> anyhow::Result<u64> {
        let folder = Folder::fresh(&folder.join("ours"))?;
        let path = folder.join("000001.sst");
        let new = || {
            let kind = ChecksumKind::try_from(options.checksum);
            SortedTableOptions::builder()
                .format_version(options.format_version)
                .checksum(kind.expect("a kind"))
        };
        let mut writer = SortedTableWriter::create(&path, new().build()?)?;
        table.flush(Versions::All, &mut writer)?;
        let written = writer.finish()?;
        let (mut hash, mut count) = (BASIS, 0);
        for entry in table.range(..) {
            let entry = entry?;
            hash = fold_entry(
                hash,
                entry.user_key(),
                entry.sequence(),
                entry.kind(),
                entry.value()?,
            );
            count += 1;
        }
        ensure!(
            Reader::open(&path, options).all() == (hash, count),
            "entries differ"
        );
        ensure!(
            written.range_deletions > 0 && written.data_blocks > 9,
            "{written:?}"
        );
        let newest = folder.join("newest.sst");
        ingestible(table, &newest, new().build()?, Some(&Append))?;
        for (name, path, db_generated) in [("generated", &path, 1), ("ingested", &newest, 0)] {
            let database = Database::open(&Folder::fresh(&folder.join(name))?, options);
            database.ingest(path, db_generated);
            for number in 0..KEYS + 300 {
                let key = key(number);
                ensure!(
                    database.get(0, NEWEST, &key) == get_table(table, &key, u64::MAX)?,
                    "{name}: get of {number}"
                );
            }
        }
        Ok(count)
    }

    fn memtable(operations: &[Operation]) -> anyhow::Result<ImmutableMemTable> {
        let table = MemTable::new(MemTableOptions::default())?;
        for (sequence, (kind, key, value)) in (1..).zip(operations) {
            match *kind {
                Kind::RANGE_DELETE => table.delete_range(sequence, key, value)?,
                kind => table.insert(sequence, kind, key, value)?,
            };
        }
        Ok(table.freeze()?)
    }

    /// Writes batches of two column families by RocksDB, and replays them into two tables. Gets and
    /// scans after every batch would find a number that is off by one. Returns the number of
    /// batches and of comparisons.
    fn families(folder: &Path, seed: u64) -> anyhow::Result<(usize, usize)> {
        let options = FileOptions {
            format_version: 6,
            checksum: 4,
            protection_bytes: 0,
            read_back: 0,
            cached: 0,
        };
        let database = Database::open(&Folder::fresh(&folder.join("families"))?, options);
        let tables = [(); 2].map(|()| MemTable::default());
        let operations = operations(seed);
        let (mut rest, mut last, mut batches, mut snapshots) =
            (operations.as_slice(), 0, 0, vec![]);
        while !rest.is_empty() {
            let draw = |below: u64| mix(mix(seed) ^ batches as u64) % below;
            let (now, later) = rest.split_at(rest.len().min(1 + draw(20) as usize));
            for (at, (kind, key, value)) in now.iter().enumerate() {
                // Now and then an empty range, which takes a number and has no other effect.
                let value = if *kind == Kind::RANGE_DELETE && at % 3 == 0 {
                    key
                } else {
                    value
                };
                database.add((mix(last ^ at as u64) % 2) as u8, kind.as_u8(), key, value);
            }
            let bytes = database.write(1);
            let batch = WriteBatch::from_bytes(&bytes)?;
            ensure!(
                (batch.sequence(), batch.len()) == (last + 1, now.len()),
                "numbers of batch {batches}"
            );
            for (family, table) in (0..).zip(&tables) {
                table.write_batch_of(family, batch.sequence(), &batch)?;
            }
            last += now.len() as u64;
            snapshots.push(last);
            (rest, batches) = (later, batches + 1);
        }
        for (place, at) in snapshots.iter().enumerate() {
            for (family, table) in (0..).zip(&tables) {
                let text = || format!("family {family} at {at}");
                ensure!(
                    database.scan(family, place) == scan_table(table, *at)?,
                    "scan of {}",
                    text()
                );
                for number in 0..KEYS + 300 {
                    let (key, text) = (key(number), || format!("get of {number} in {}", text()));
                    ensure!(
                        database.get(family, place, &key) == get_table(table, &key, *at)?,
                        text()
                    );
                }
            }
        }
        Ok((
            batches,
            snapshots.len() * tables.len() * (KEYS as usize + 301),
        ))
    }

    /// Checks both ways. Returns a sentence about the checks.
    pub fn check(folder: &Path, seed: u64) -> anyhow::Result<String> {
        let (mut read, mut written, mut files) = (0, 0, 0);
        for format_version in 2..=7 {
            for checksum in 0..=4 {
                let at = || format!("version {format_version}, checksum {checksum}, --seed {seed}");
                let operations =
                    operations(seed ^ u64::from(format_version) << 8 ^ u64::from(checksum));
                let options = FileOptions {
                    format_version,
                    checksum,
                    protection_bytes: 0,
                    read_back: 0,
                    cached: 0,
                };
                read += theirs(folder, options, &operations)
                    .with_context(|| format!("RocksDB's file, {}", at()))?;
                files += 1;
                if format_version <= 6 {
                    let table = memtable(&operations)?;
                    written += ours(folder, options, &table)
                        .with_context(|| format!("our file, {}", at()))?;
                    files += 2;
                }
            }
        }
        let (mut batches, mut compared) = (0, 0);
        for seed in seed..seed + 3 {
            let done = families(folder, seed)
                .with_context(|| format!("two column families, --seed {seed}"))?;
            (batches, compared) = (batches + done.0, compared + done.1);
        }
        Ok(format!(
            "Read and written both ways: {files} files of format versions 2 to 7 with five checksums. RocksDB's files \
             ({read} entries) gave our reader what RocksDB reads and gets, and our writer made the same data, index, range \
             deletion and filter blocks from them (versions 2 to 6; filters from 5 on); our files ({written} entries) were \
             verified, scanned, ingested and asked by RocksDB. {batches} batches of two column families that RocksDB wrote were \
             replayed into two tables, and {compared} gets and scans of both agreed, at snapshots too. Seed {seed}."
        ))
    }
}
