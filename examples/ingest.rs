//! Puts the files of a directory into a memtable and proves that it holds them.
//!
//! ```text
//!   cargo run --release --example ingest                 the Rust toolchain's documentation and libraries
//!   cargo run --release --example ingest -- DIR          any directory
//! ```
//! Several writers put every path as key, with its metadata and up to 4 KiB of its content as
//! value, while readers run. Then every entry is read back and compared with its source, a
//! subdirectory is deleted by one range delete, and the frozen table is walked both ways. Exit code
//! 0: all of it agrees; 1: something differs; 2: the work cannot be done.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use paranoid_memtable::{Error, MemTable, MemTableOptions};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "shared/failure.rs"]
mod failure;
#[path = "shared/figures.rs"]
mod figures;
#[path = "ingest/load.rs"]
mod load;
#[path = "shared/output.rs"]
mod output;
#[path = "shared/report.rs"]
mod report;
#[path = "ingest/source.rs"]
mod source;
#[path = "ingest/verify.rs"]
mod verify;

use arguments::arguments;
use failure::Failure;
use figures::{a_second, bytes, count, each, entries, percentiles, time};
use load::{Load, Work};
use output::complain;
use report::{line, say};
use source::{Found, Limit, Source};
use verify::{Doomed, ReadBack, Walks};

/// Puts the files of a directory into a memtable, reads them back, and checks all of it
#[derive(Debug, Parser)]
#[command(
    name = "ingest",
    after_help = "Exit code: 0 all of it agrees; 1 something differs; 2 the work cannot be done"
)]
struct Arguments {
    /// Directory to take (default: documentation and libraries of the Rust toolchain)
    directory: Option<PathBuf>,
    /// Writer threads; half as many read meanwhile (default: one per processor, 2 to 8)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Protection bytes of each of an entry's two digests: 0, 1, 2, 4 or 8
    #[arg(long, default_value_t = 8)]
    protection: u8,
    /// Most paths to take
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_files: u32,
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let writers = arguments.threads.map_or_else(default_threads, usize::from);
    let readers = writers.div_ceil(2);
    let cannot = |error: Error| Failure::of_table("making the table", &error);
    let options = MemTableOptions::builder()
        .protection_bytes(arguments.protection)
        .build()
        .map_err(cannot)?;
    let table = MemTable::new(options).map_err(cannot)?;

    let source = match &arguments.directory {
        Some(directory) => Source::directory(directory)?,
        None => Source::toolchain()?,
    };
    let bar = progress(None, "looking for files");
    let found = source.walk(usize::try_from(arguments.max_files).unwrap_or(usize::MAX));
    bar.finish_and_clear();
    let found = found?;
    introduce(&source, &found, arguments, (writers, readers))?;

    let load = Load::new(&source, &table, &found.paths);
    let bar = progress(Some(found.paths.len()), "putting");
    let work = load.run(writers, readers, &bar);
    bar.finish_and_clear();
    let work = work?;
    let held = load.put().count() as u64;
    warn(&found, &load);
    if held == 0 {
        return Err(Failure::Cannot(format!(
            "nothing under {} could be read",
            source.base.display()
        )));
    }
    show_load(&table, held, &work)?;

    let bar = progress(usize::try_from(held).ok(), "reading back");
    let back = verify::read_back(&load, writers, &bar);
    bar.finish_and_clear();
    show_read_back(&back?)?;

    let now = load::sequence(found.paths.len());
    let doomed = Doomed::choose(&load);
    let gone = doomed.delete_and_check(&load, now)?;
    line(
        "range delete",
        format!("{} at sequence {}", doomed.name, count(now)),
    )?;
    line(
        "",
        format!(
            "{} gone; at snapshot {} nothing is",
            entries(gone),
            count(now - 1)
        ),
    )?;

    let frozen = table
        .freeze()
        .map_err(|error| Failure::of_table("freeze", &error))?;
    if !matches!(table.put(now + 1, b"late", b""), Err(Error::Frozen)) {
        return Err(Failure::Differs(
            "a put after the freeze was not refused".into(),
        ));
    }
    show_walks(&verify::walk(&frozen, &load, gone)?)?;
    say("")?;
    say("All of it agrees.")
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(2, |threads| threads.get().clamp(2, 8))
}

/// A progress bar on the terminal; nothing is drawn if there is no terminal.
fn progress(steps: Option<usize>, what: &'static str) -> ProgressBar {
    let bar = match steps {
        Some(steps) => ProgressBar::new(steps as u64),
        None => ProgressBar::new_spinner(),
    };
    let template = match steps {
        Some(_) => "  {msg:13} [{wide_bar}] {percent:>3}% {eta:>3}",
        None => "  {spinner} {msg} {elapsed}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

fn introduce(
    source: &Source,
    found: &Found,
    arguments: &Arguments,
    threads: (usize, usize),
) -> Result<(), Failure> {
    say(format!("Ingest of {}", source.base.display()))?;
    let parts: Vec<String> = source
        .roots
        .iter()
        .map(|root| root.display().to_string())
        .collect();
    let parts = if parts == [""] {
        String::new()
    } else {
        format!(" in {}", parts.join(" and "))
    };
    let limit = if found.limit == Limit::Reached {
        " (stopped at --max-files)"
    } else {
        ""
    };
    line(
        "paths",
        format!("{}{parts}{limit}", count(found.paths.len() as u64)),
    )?;
    let (writers, readers) = threads;
    let of = |threads: usize, what: &str| {
        format!("{threads} {what}{}", if threads == 1 { "" } else { "s" })
    };
    line(
        "threads",
        format!(
            "{}, {} meanwhile; {} protection bytes",
            of(writers, "writer"),
            of(readers, "reader"),
            arguments.protection
        ),
    )
}

/// Names the first few paths that could not be read.
fn warn(found: &Found, load: &Load<'_>) {
    let skipped = load
        .warnings
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let all: Vec<&String> = found.warnings.iter().chain(skipped.iter()).collect();
    for warning in all.iter().take(10) {
        complain(format_args!("warning: {warning}"));
    }
    if all.len() > 10 {
        complain(format_args!(
            "warning: {} more paths skipped",
            all.len() - 10
        ));
    }
}

fn show_load(table: &MemTable, held: u64, work: &Work) -> Result<(), Failure> {
    if table.len() as u64 != held {
        return Err(Failure::Differs(format!(
            "{held} entries put, the table counts {}",
            table.len()
        )));
    }
    let (data, allocated) = (table.stats().data_bytes, table.allocated_bytes());
    say("")?;
    line(
        "put",
        format!(
            "{}, {} in {}",
            entries(held),
            bytes(data),
            time(work.elapsed)
        ),
    )?;
    let inside = work.inside_puts();
    line(
        "",
        format!(
            "{} entries/s, {}/s by a writer inside the table",
            count(a_second(held, inside)),
            bytes(a_second(data, inside))
        ),
    )?;
    line(
        "",
        format!(
            "{} entries/s, {}/s by all, reading the files included",
            count(a_second(held, work.elapsed)),
            bytes(a_second(data, work.elapsed))
        ),
    )?;
    line("each put", percentiles(&work.puts))?;
    line(
        "meanwhile",
        format!(
            "{} gets and {} cursor steps, each one right",
            count(work.gets),
            count(work.steps)
        ),
    )?;
    let overhead = allocated.saturating_sub(data) as f64 / held as f64;
    line(
        "memory",
        format!(
            "{} for {} of keys and values",
            bytes(allocated),
            bytes(data)
        ),
    )?;
    line("", format!("{overhead:.1} bytes of overhead an entry"))
}

fn show_read_back(back: &ReadBack) -> Result<(), Failure> {
    let text = format!(
        "{} equal to the source, in {}",
        entries(back.equal),
        time(back.elapsed)
    );
    line("read back", text)?;
    if !back.changed.is_empty() {
        let text = format!(
            "{} sources changed since; their entries are what was put",
            back.changed.len()
        );
        line("", text)?;
        for name in back.changed.iter().take(5) {
            line("", name)?;
        }
    }
    Ok(())
}

fn show_walks(walks: &Walks) -> Result<(), Failure> {
    let (forward, backward) = (
        each(walks.forward, walks.entries),
        each(walks.backward, walks.entries),
    );
    line(
        "frozen",
        format!(
            "{} in order both ways, keys and values compared",
            entries(walks.entries)
        ),
    )?;
    line(
        "",
        format!(
            "{forward} an entry forward, {backward} backward; {} visible now",
            count(walks.visible)
        ),
    )
}
