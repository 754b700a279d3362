//! Shows what `sst_dump` shows, without RocksDB, also for tables of LevelDB:
//! `cargo run --release -p paranoid-sst --example sst_info -- FILE.. [--scan]`.
//!
//! Verifies each file first. A single file is shown whole. Several files, or the files of a folder,
//! have a line each, and a summary at the end. The exit code is 0 if all are intact, 1 if one is
//! damaged, 2 if one cannot be read.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use paranoid_sst::{BlockKind, Error, SortedTable};

/// Shows a table file: footer, blocks, properties, range deletions, and on demand every entry.
/// Several files get a line each.
#[derive(Parser)]
struct Arguments {
    /// Files of RocksDB or LevelDB; a folder means the .sst and .ldb files in it
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print every entry as well.
    #[arg(long)]
    scan: bool,
}

fn show(file: &Path, arguments: &Arguments) -> Result<(), Error> {
    let table = SortedTable::open(file)?;
    let report = table.verify()?;
    let footer = table.footer();
    println!(
        "file             {} ({} bytes)",
        file.display(),
        report.file_size
    );
    println!(
        "format           {}, checksum {}",
        format_of(&table),
        footer.checks().kind()
    );
    println!(
        "entries          {} in {} data blocks",
        report.entries, report.data_blocks
    );
    println!("range deletions  {}", report.range_deletions);
    if let Some((low, high)) = report.sequences {
        println!("sequences        {low} to {high}");
    }
    println!("padding          {} bytes", report.unaccounted_bytes);
    println!("\nblock              offset       size");
    println!("{:<16} {:>8} {:>10}", "Data", 0, report.data_size);
    for (kind, handle) in table.blocks() {
        println!(
            "{:<16} {:>8} {:>10}",
            format!("{kind:?}"),
            handle.offset,
            handle.size
        );
    }
    println!("\nproperties");
    for (name, value) in table.properties().iter() {
        let name = String::from_utf8_lossy(name);
        match table
            .properties()
            .number(&name)
            .filter(|_| !value.iter().all(u8::is_ascii_graphic))
        {
            Some(number) => println!("  {name} = {number}"),
            None => println!("  {name} = {}", value.escape_ascii()),
        }
    }
    for (start, end, sequence) in table.range_tombstones() {
        println!(
            "range [{}, {}) @ {sequence}",
            start.escape_ascii(),
            end.escape_ascii()
        );
    }
    if arguments.scan {
        scan(&table)?;
    }
    if !table.blocks().any(|(kind, _)| kind == BlockKind::Filter) {
        println!("no filter");
    }
    println!("The file is ok.");
    Ok(())
}

/// The name of a file's format. RocksDB's own files of version 0 have properties, LevelDB's have
/// none.
fn format_of(table: &SortedTable) -> String {
    match table.footer().format_version() {
        0 if table.properties().iter().next().is_none() => "LevelDB".into(),
        version => format!("version {version}"),
    }
}

fn scan(table: &SortedTable) -> Result<(), Error> {
    let mut cursor = table.cursor();
    cursor.first()?;
    while let Some(entry) = cursor.entry() {
        let (key, value) = (entry.user_key.escape_ascii(), entry.value.escape_ascii());
        println!("{key} @ {} {:?} => {value}", entry.sequence, entry.kind);
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
fn list(files: &[PathBuf]) -> u8 {
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
                print!(
                    "ok            {}: {} bytes, {format}, ",
                    file.display(),
                    report.file_size
                );
                println!(
                    "{} {points} entries, {ranges} range deletions",
                    compression.escape_ascii()
                );
            }
            Err(error) => {
                let is_damage = error.corruption().is_some();
                *if is_damage { &mut damaged } else { &mut unread } += 1;
                println!(
                    "{} {}",
                    if is_damage {
                        "DAMAGED      "
                    } else {
                        "not read     "
                    },
                    with_causes(&error)
                );
            }
        }
    }
    println!(
        "{} files: {intact} intact with {entries} entries, {damaged} damaged, {unread} not read",
        files.len()
    );
    match (damaged, unread) {
        (0, 0) => 0,
        (0, _) => 2,
        _ => 1,
    }
}

/// The text of an error and of its causes.
fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn main() -> ExitCode {
    sigpipe::reset();
    let arguments = Arguments::parse();
    let mut files = vec![];
    for path in &arguments.files {
        match files_of(path) {
            Ok(more) => files.extend(more),
            Err(error) => {
                eprintln!("sst_info: {}: {}", path.display(), with_causes(&error));
                return ExitCode::from(2);
            }
        }
    }
    if let ([file], [path]) = (&files[..], &arguments.files[..])
        && file == path
    {
        return match show(file, &arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("sst_info: {}", with_causes(&error));
                ExitCode::from(if error.corruption().is_some() { 1 } else { 2 })
            }
        };
    }
    ExitCode::from(list(&files))
}
