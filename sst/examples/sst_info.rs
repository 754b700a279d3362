//! What `sst_dump` shows, without RocksDB: `cargo run --release -p paranoid-sst --example sst_info -- FILE [--scan]`.
//!
//! Verifies the whole file first. Ends with 0 if it is intact, with 1 if it is damaged, with 2 if it cannot be read.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use paranoid_sst::{BlockKind, Error, SortedTable};

/// Shows a table file: footer, blocks, properties, range deletions, and on demand every entry.
#[derive(Parser)]
struct Arguments {
    /// The file.
    file: PathBuf,
    /// Print every entry as well.
    #[arg(long)]
    scan: bool,
}

fn show(arguments: &Arguments) -> Result<(), Error> {
    let table = SortedTable::open(&arguments.file)?;
    let report = table.verify()?;
    let footer = table.footer();
    println!("file             {} ({} bytes)", arguments.file.display(), report.file_size);
    println!("format version   {}, checksum {}", footer.format_version(), footer.checks().kind());
    println!("entries          {} in {} data blocks", report.entries, report.data_blocks);
    println!("range deletions  {}", report.range_deletions);
    if let Some((low, high)) = report.sequences {
        println!("sequences        {low} to {high}");
    }
    println!("padding          {} bytes", report.unaccounted_bytes);
    println!("\nblock              offset       size");
    println!("{:<16} {:>8} {:>10}", "Data", 0, report.data_size);
    for (kind, handle) in table.blocks() {
        println!("{:<16} {:>8} {:>10}", format!("{kind:?}"), handle.offset, handle.size);
    }
    println!("\nproperties");
    for (name, value) in table.properties().iter() {
        let name = String::from_utf8_lossy(name);
        match table.properties().number(&name).filter(|_| !value.iter().all(u8::is_ascii_graphic)) {
            Some(number) => println!("  {name} = {number}"),
            None => println!("  {name} = {}", value.escape_ascii()),
        }
    }
    for (start, end, sequence) in table.range_tombstones() {
        println!("range [{}, {}) @ {sequence}", start.escape_ascii(), end.escape_ascii());
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

fn main() -> ExitCode {
    sigpipe::reset();
    match show(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sst_info: {error}");
            ExitCode::from(if error.corruption().is_some() { 1 } else { 2 })
        }
    }
}
