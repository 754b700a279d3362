//! Shows what `sst_dump` shows, without RocksDB, also for tables of LevelDB:
//! `cargo run --release -p paranoid-sst --example sst_info -- FILE.. [--scan]`.
//!
//! Verifies each file first. A single file is shown whole. Several files, or the files of a folder,
//! have a line each, and a summary at the end. Exit code 0: all are intact; 1: one is damaged; 2:
//! one cannot be read, or the output cannot be written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use paranoid_sst::{BlockKind, Error, SortedTable};

#[path = "../../examples/shared/arguments.rs"]
mod arguments;
#[path = "../../examples/shared/output.rs"]
mod output;

use arguments::arguments;
use output::{Unwritten, complain, print, with_causes};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Shows a table file: footer, blocks, properties, range deletions, and on demand every entry.
/// Several files get a line each.
#[derive(Parser)]
#[command(
    after_help = "Exit code: 0 all are intact; 1 one is damaged; 2 one cannot be read, or the output not written"
)]
struct Arguments {
    /// Files of RocksDB or LevelDB; a folder means the .sst and .ldb files in it
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print every entry as well.
    #[arg(long)]
    scan: bool,
}

fn show(file: &Path, arguments: &Arguments) -> Anything<()> {
    let table = SortedTable::open(file)?;
    let report = table.verify()?;
    let footer = table.footer();
    print(format_args!(
        "file             {} ({} bytes)\n",
        file.display(),
        report.file_size
    ))?;
    print(format_args!(
        "format           {}, checksum {}\n",
        format_of(&table),
        footer.checks().kind()
    ))?;
    print(format_args!(
        "entries          {} in {} data blocks\n",
        report.entries, report.data_blocks
    ))?;
    print(format_args!(
        "range deletions  {}\n",
        report.range_deletions
    ))?;
    if let Some((low, high)) = report.sequences {
        print(format_args!("sequences        {low} to {high}\n"))?;
    }
    print(format_args!(
        "padding          {} bytes\n",
        report.unaccounted_bytes
    ))?;
    print("\nblock              offset       size\n")?;
    print(format_args!(
        "{:<16} {:>8} {:>10}\n",
        "Data", 0, report.data_size
    ))?;
    for (kind, handle) in table.blocks() {
        print(format_args!(
            "{:<16} {:>8} {:>10}\n",
            format!("{kind:?}"),
            handle.offset,
            handle.size
        ))?;
    }
    print("\nproperties\n")?;
    for (name, value) in table.properties().iter() {
        let name = String::from_utf8_lossy(name);
        let number = table.properties().number(&name);
        match number.filter(|_| !is_text(&name, value)) {
            Some(number) => print(format_args!("  {name} = {number}\n"))?,
            None => print(format_args!("  {name} = {}\n", value.escape_ascii()))?,
        }
    }
    for (start, end, sequence) in table.range_tombstones() {
        print(format_args!(
            "range [{}, {}) @ {sequence}\n",
            start.escape_ascii(),
            end.escape_ascii()
        ))?;
    }
    if arguments.scan {
        scan(&table)?;
    }
    if !table.blocks().any(|(kind, _)| kind == BlockKind::Filter) {
        print("no filter\n")?;
    }
    print("The file is ok.\n")?;
    Ok(())
}

/// Whether a property is a text. A number below 128 is one byte, and may look like a letter: only
/// the name tells the two apart.
fn is_text(name: &str, value: &[u8]) -> bool {
    const ENDS: [&str; 8] = [
        "name",
        "identity",
        "comparator",
        "operator",
        "policy",
        "filtering",
        "compression",
        "collectors",
    ];
    match name.strip_prefix("rocksdb.") {
        Some(name) => ENDS.iter().any(|end| name.ends_with(end)),
        None => value.iter().all(u8::is_ascii_graphic),
    }
}

/// The name of a file's format. RocksDB's own files of version 0 have properties, LevelDB's have
/// none.
fn format_of(table: &SortedTable) -> String {
    match table.footer().format_version() {
        0 if table.properties().iter().next().is_none() => "LevelDB".into(),
        version => format!("version {version}"),
    }
}

fn scan(table: &SortedTable) -> Anything<()> {
    let mut cursor = table.cursor();
    cursor.first()?;
    while let Some(entry) = cursor.entry() {
        let (key, value) = (entry.user_key.escape_ascii(), entry.value.escape_ascii());
        print(format_args!(
            "{key} @ {} {:?} => {value}\n",
            entry.sequence, entry.kind
        ))?;
        cursor.next()?;
    }
    Ok(())
}

/// All files of a folder, or the file itself.
fn files_of(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = vec![];
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|end| end == "sst" || end == "ldb")
        {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Writes a line for each file and a summary. Returns the exit code.
fn list(files: &[PathBuf]) -> Result<u8, Unwritten> {
    let (mut intact, mut damaged, mut unread, mut entries) = (0, 0, 0, 0);
    for file in files {
        match SortedTable::open(file).and_then(|table| Ok((table.verify()?, table))) {
            Ok((report, table)) => {
                intact += 1;
                entries += report.entries;
                let format = format_of(&table);
                let compression = table
                    .properties()
                    .get("rocksdb.compression")
                    .unwrap_or_default();
                let (points, ranges) = (report.entries, report.range_deletions);
                print(format_args!(
                    "ok            {}: {} bytes, {format}, ",
                    file.display(),
                    report.file_size
                ))?;
                print(format_args!(
                    "{} {points} entries, {ranges} range deletions\n",
                    compression.escape_ascii()
                ))?;
            }
            Err(error) => {
                let is_damage = error.corruption().is_some();
                *if is_damage { &mut damaged } else { &mut unread } += 1;
                print(format_args!(
                    "{} {}\n",
                    if is_damage {
                        "DAMAGED      "
                    } else {
                        "not read     "
                    },
                    with_causes(&error)
                ))?;
            }
        }
    }
    print(format_args!(
        "{} files: {intact} intact with {entries} entries, {damaged} damaged, {unread} not read\n",
        files.len()
    ))?;
    Ok(match (damaged, unread) {
        (0, 0) => 0,
        (0, _) => 2,
        _ => 1,
    })
}

fn run(arguments: &Arguments) -> Anything<u8> {
    let mut files = vec![];
    for path in &arguments.files {
        let found = files_of(path).map_err(|error| format!("{}: {error}", path.display()))?;
        files.extend(found);
    }
    if let ([file], [path]) = (&files[..], &arguments.files[..])
        && file == path
    {
        show(file, arguments)?;
        return Ok(0);
    }
    Ok(list(&files)?)
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&arguments()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(format_args!("sst_info: {}", with_causes(&*error)));
            let error = error.downcast_ref::<Error>();
            let is_damaged = error.is_some_and(|error| error.corruption().is_some());
            ExitCode::from(if is_damaged { 1 } else { 2 })
        }
    }
}
