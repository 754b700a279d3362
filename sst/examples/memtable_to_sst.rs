//! Puts a directory or a trace into a memtable, writes the memtable to a table file, reads the file
//! back and compares it:
//! `cargo run --release -p paranoid-sst --example memtable_to_sst -- [SOURCE] [--out FILE]`.
//!
//! In a directory, each path is a key, and the beginning of the file its value. In a block-I/O
//! trace (CSV; the fields of a line are split at commas), a line's last field is the key, and the
//! line its value. Without a source, the program reads the Rust toolchain. Exit code 0: all of it
//! agrees; 2: something differs, or the work cannot be done.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use paranoid_memtable::flush::Versions;
use paranoid_memtable::{ChecksumKind, ImmutableMemTable, MemTable, MemTableOptions};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, Written};

#[path = "../../examples/shared/arguments.rs"]
mod arguments;
#[path = "../../examples/shared/output.rs"]
mod output;

use arguments::arguments;
use output::{complain, print, with_causes};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Flushes a memtable to a file that RocksDB opens, and proves that the file holds it.
#[derive(Parser)]
#[command(
    after_help = "Exit code: 0 all of it agrees; 2 something differs, or the work cannot be done"
)]
struct Arguments {
    /// A directory, or a trace.
    source: Option<PathBuf>,
    /// The file to write. Default: one in the temporary directory, which is removed.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Checksum of the blocks.
    #[arg(long, default_value = "xxh3", value_parser = PossibleValuesParser::new(CHECKSUMS).try_map(|name| name.parse::<ChecksumKind>()))]
    checksum: ChecksumKind,
    /// RocksDB's format version, 2 to 6.
    #[arg(long, default_value_t = 5)]
    format_version: u32,
    /// Most entries to take.
    #[arg(long, default_value_t = 200_000)]
    max_entries: u64,
}

/// The kinds of checksums that RocksDB knows.
const CHECKSUMS: [&str; 5] = ["none", "crc32c", "xxhash", "xxhash64", "xxh3"];

/// Longest part of a file that becomes its value.
const VALUE_LEN_MAX: u64 = 1024;

/// Puts every path below a directory.
fn put_tree(table: &MemTable, root: &Path, max: u64) -> Anything<()> {
    let mut left = vec![root.to_path_buf()];
    while let Some(folder) = left.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            if table.len() as u64 >= max {
                return Ok(());
            }
            let path = entry.path();
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let kind = entry.file_type().map_err(failed)?;
            let mut value = vec![];
            if kind.is_dir() {
                left.push(path.clone());
            } else if let Some(file) = kind.is_file().then(|| fs::File::open(&path).ok()).flatten()
            {
                file.take(VALUE_LEN_MAX)
                    .read_to_end(&mut value)
                    .map_err(failed)?;
            }
            let key = path.strip_prefix(root)?.as_os_str().as_encoded_bytes();
            table.put(table.len() as u64 + 1, key, &value)?;
        }
    }
    Ok(())
}

/// Puts every line of a trace.
fn put_trace(table: &MemTable, trace: &Path, max: u64) -> Anything<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", trace.display());
    for line in BufReader::new(fs::File::open(trace).map_err(failed)?).split(b'\n') {
        let line = line.map_err(failed)?;
        if table.len() as u64 >= max {
            break;
        }
        let key = line.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        table.put(table.len() as u64 + 1, key, &line)?;
    }
    Ok(())
}

/// The folder of the toolchain that built this program.
fn toolchain() -> Anything<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .map_err(|error| format!("rustc: {error}"))?;
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn write(table: &ImmutableMemTable, path: &Path, options: SortedTableOptions) -> Anything<Written> {
    let mut writer = SortedTableWriter::create(path, options)?;
    table.flush(Versions::All, &mut writer)?;
    Ok(writer.finish()?)
}

/// Compares the table with the file entry by entry, and then looks up each key in both.
fn compare(table: &ImmutableMemTable, file: &SortedTable) -> Anything<u64> {
    let mut cursor = file.cursor();
    cursor.first()?;
    let mut entries = 0;
    for entry in table.range(..) {
        let entry = entry?;
        let found = cursor.entry().ok_or("the file ends early")?;
        let same = (entry.user_key(), entry.sequence(), entry.kind())
            == (found.user_key, found.sequence, found.kind);
        if !same || entry.value()? != found.value {
            return Err(format!("entry {entries} differs").into());
        }
        if !file.may_hold(entry.user_key()) {
            return Err(format!("the filter denies entry {entries}").into());
        }
        entries += 1;
        cursor.next()?;
    }
    if cursor.is_valid() {
        Err("the file holds more".into())
    } else {
        Ok(entries)
    }
}

fn speed(bytes: u64, since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64();
    format!("{:.3} s, {:.0} MB/s", seconds, bytes as f64 / seconds / 1e6)
}

fn run(arguments: &Arguments) -> Anything<()> {
    let new = || {
        SortedTableOptions::builder()
            .checksum(arguments.checksum)
            .format_version(arguments.format_version)
    };
    let (quick, verified) = (new().verify_after_write(false).build()?, new().build()?);
    let source = arguments.source.clone().map_or_else(toolchain, Ok)?;
    let table = MemTable::new(MemTableOptions::default())?;
    let start = Instant::now();
    match source.is_dir() {
        true => put_tree(&table, &source, arguments.max_entries)?,
        false => put_trace(&table, &source, arguments.max_entries)?,
    }
    let (entries, bytes) = (table.len(), table.stats().data_bytes);
    print(format_args!("source          {}\n", source.display()))?;
    print(format_args!(
        "memtable        {entries} entries, {bytes} bytes: {}\n",
        speed(bytes, start)
    ))?;
    let frozen: ImmutableMemTable = table.freeze()?;
    let folder = tempfile::tempdir()?;
    let path = arguments
        .out
        .clone()
        .unwrap_or_else(|| folder.path().join("000001.sst"));
    let start = Instant::now();
    write(&frozen, &folder.path().join("000000.sst"), quick)?;
    print(format_args!("flush           {}\n", speed(bytes, start)))?;
    let start = Instant::now();
    let written = write(&frozen, &path, verified)?;
    print(format_args!("and read back   {}\n", speed(bytes, start)))?;
    print(format_args!(
        "file            {}, {} bytes\n",
        written.path.display(),
        written.file_size
    ))?;
    print(format_args!(
        "  data blocks   {} in {} bytes\n",
        written.data_blocks, written.data_size
    ))?;
    print(format_args!(
        "  filter        {} bytes\n",
        written.filter_size
    ))?;
    print(format_args!(
        "  index         {} bytes\n",
        written.index_size
    ))?;
    let start = Instant::now();
    let file = SortedTable::open(&path)?;
    let report = file.verify()?;
    print(format_args!(
        "verify          {}\n",
        speed(report.file_size, start)
    ))?;
    print(format_args!(
        "{} entries equal to the memtable\n",
        compare(&frozen, &file)?
    ))?;
    print("All of it agrees.\n")?;
    Ok(())
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("memtable_to_sst: {}", with_causes(&*error)));
            ExitCode::from(2)
        }
    }
}
