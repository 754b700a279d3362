//! What files cost: flushes of one table, and reads of the file that they wrote, the candidates in turns.
//!
//! A flush is timed by the processor time of the process, because RocksDB flushes on a thread of its own; reads by
//! that of their thread. RocksDB's memtable is gone after its flush, so a new one is filled at random before each
//! flush, outside the time. The data blocks of both files must have equal bytes.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use paranoid_memtable::{ChecksumKind, ImmutableMemTable, MemTable, MemTableOptions, ParanoidOptions};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableLookup, TableSource};
use rustix::time::{ClockId, clock_gettime};

use super::shim::{Database, FileOptions, Reader};
use super::{Arguments, Folder, table_in};
use crate::turns::thread_time;
use crate::work::{Entries, KeyShape, Keys, Presence, Shape, fold, mix, picks, shuffled};

const SEED: u64 = 14;
/// Gets of a round.
const GETS: usize = 20_000;
/// Opens of a round.
const OPENS: usize = 8;

pub const FLUSHES: [&str; 5] =
    ["ours-8", "ours-8+read-back", "rocksdb-0", "rocksdb-8", "rocksdb-8+read-back"];
pub const READERS: [&str; 4] = ["ours", "ours-file", "rocksdb", "rocksdb-cached"];

/// Nanoseconds of one operation, by candidate and round.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    pub name: String,
    pub candidates: Vec<&'static str>,
    pub nanoseconds: Vec<Vec<f64>>,
}

/// Rows of one kind of checksum.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Costs {
    pub kind: String,
    pub rows: Vec<Row>,
}

struct Input {
    entries: Entries,
    table: Arc<ImmutableMemTable>,
    hits: Vec<Keys>,
    misses: Vec<Keys>,
}

/// Processor time of all threads.
fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Nanoseconds per operation of `count` operations, by this clock.
fn timed<T>(clock: fn() -> Duration, count: u64, act: impl FnOnce() -> T) -> (f64, T) {
    let started = clock();
    let result = black_box(act());
    ((clock() - started).as_secs_f64() * 1e9 / count as f64, result)
}

fn input(arguments: &Arguments) -> anyhow::Result<Input> {
    let shape = Shape { key: KeyShape::Bytes16, value_len: 100 };
    let entries = shape.entries(&shuffled(arguments.entries, SEED), 1);
    let paranoid = ParanoidOptions::builder().protection_bytes(8).build()?;
    let options = MemTableOptions::builder().write_buffer_size(256 << 20).paranoid(paranoid);
    let table = MemTable::new(options.build()?)?;
    for (sequence, key, value) in entries.iter() {
        table.put(sequence, key, value)?;
    }
    let keys = |round: u64, presence| shape.keys(&picks(arguments.entries, GETS, mix(round)), presence);
    let rounds = 0..arguments.rounds as u64;
    Ok(Input {
        entries,
        table: table.freeze()?,
        hits: rounds.clone().map(|round| keys(round, Presence::Hit)).collect(),
        misses: rounds.map(|round| keys(round, Presence::Miss)).collect(),
    })
}

pub fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<Vec<Costs>> {
    let input = input(arguments)?;
    eprintln!("{} bytes of memory in the table", input.table.allocated_bytes());
    let kinds = arguments.kinds.iter();
    kinds.map(|kind| of_kind(arguments, folder, &input, *kind)).collect()
}

fn of_kind(arguments: &Arguments, folder: &Path, input: &Input, kind: ChecksumKind) -> anyhow::Result<Costs> {
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
    Ok(Costs { kind: kind.to_string(), rows })
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
    let options = SortedTableOptions::builder().checksum(kind).verify_after_write(read_back).build()?;
    let (nanoseconds, written) = timed(process_time, count, || -> anyhow::Result<_> {
        let mut writer = SortedTableWriter::create(file, options)?;
        input.table.flush(&[], &mut writer)?;
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
        let data = SortedTable::open(table_in(&folder)?)?.properties().number("rocksdb.data.size");
        let data = usize::try_from(data.unwrap_or(0))?;
        ensure!(data > 0 && theirs[..data] == ours[..data], "the data blocks of both files differ");
    }
    Ok(nanoseconds)
}

fn plain(kind: ChecksumKind) -> FileOptions {
    FileOptions { format_version: 5, checksum: kind.as_u8(), protection_bytes: 0, read_back: 0, cached: 0 }
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
            let options = FileOptions { cached: u8::from(candidate == 3), ..plain(kind) };
            return Ok(Open::Theirs(Reader::open(file, options)));
        }
    };
    Ok(Open::Ours(SortedTable::from_source(file, source)?))
}

#[expect(unsafe_code, reason = "a mapping of a file that nobody changes")]
fn map(file: &Path) -> anyhow::Result<memmap2::Mmap> {
    let file = File::open(file)?;
    // SAFETY: the file is this process's own, in a folder of its own, and stays as it is.
    Ok(unsafe { memmap2::Mmap::map(&file) }?)
}

impl Open {
    fn get(&self, keys: &Keys) -> anyhow::Result<u64> {
        match self {
            Open::Theirs(reader) => Ok(reader.get(keys)),
            Open::Ours(table) => keys.iter().try_fold(0, |hash, key| match table.get(key, u64::MAX)? {
                TableLookup::Value { value, .. } => Ok(fold(hash, &value)),
                _ => Ok(hash),
            }),
        }
    }

    fn scan(&self) -> anyhow::Result<u64> {
        let Open::Ours(table) = self else {
            let Open::Theirs(reader) = self else { unreachable!() };
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

/// The work of a round with an open reader. Returns a hash of what was read.
type Act<'a> = Box<dyn Fn(&Open, usize) -> anyhow::Result<u64> + 'a>;

fn reads(arguments: &Arguments, input: &Input, file: &Path, kind: ChecksumKind) -> anyhow::Result<Vec<Row>> {
    let readers: Vec<Open> =
        (0..READERS.len()).map(|candidate| open(file, kind, candidate)).collect::<anyhow::Result<_>>()?;
    let works: [(&str, u64, Act<'_>); 3] = [
        ("get, present", GETS as u64, Box::new(|reader, round| reader.get(&input.hits[round]))),
        ("get, absent", GETS as u64, Box::new(|reader, round| reader.get(&input.misses[round]))),
        ("scan", arguments.entries, Box::new(|reader, _| reader.scan())),
    ];
    let mut opens = Row::new("open", &READERS);
    let mut rows: Vec<Row> = works.iter().map(|(name, ..)| Row::new(name, &READERS)).collect();
    for round in 0..arguments.rounds {
        let mut agreed = [None; 3];
        for turn in 0..READERS.len() {
            let candidate = (round + turn) % READERS.len();
            for (at, (name, count, act)) in works.iter().enumerate() {
                let (nanoseconds, hash) = timed(thread_time, *count, || act(&readers[candidate], round));
                let hash = hash?;
                ensure!(*agreed[at].get_or_insert(hash) == hash, "{name}: {} differs", READERS[candidate]);
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
