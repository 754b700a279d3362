//! Replays a block-I/O trace into a memtable and checks every read against a model.
//!
//! ```text
//!   cargo run --release --example replay_trace                 a small sample, made by the program
//!   cargo run --release --example replay_trace -- FILE         a .csv or .csv.gz with columns op, size and lbn
//! ```
//! The key is the block number as big-endian u64. A write (SCSI opcode 2a) puts size/64 bytes. A
//! read (28) gets the block and compares it, byte by byte, with the last write. With several
//! threads, each one owns a part of the blocks; they share the table. Exit code 0: every read was
//! right; 1: something differs; 2: the work cannot be done.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use paranoid_memtable::{Error, MemTable, MemTableOptions};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "shared/failure.rs"]
mod failure;
#[path = "shared/figures.rs"]
mod figures;
#[path = "shared/output.rs"]
mod output;
#[path = "replay_trace/replay.rs"]
mod replay;
#[path = "shared/report.rs"]
mod report;
#[path = "replay_trace/trace.rs"]
mod trace;

use arguments::arguments;
use failure::Failure;
use figures::{a_second, bytes, count, each, entries, percentiles, time};
use replay::{Plan, Replayed};
use report::{line, say};
use trace::Trace;

/// Replays a block-I/O trace into a memtable and checks every read against a model
#[derive(Debug, Parser)]
#[command(
    name = "replay_trace",
    after_help = "Exit code: 0 every read was right; 1 something differs; 2 the work cannot be done"
)]
struct Arguments {
    /// Trace: CSV, or CSV packed by gzip, whose header names the columns op, size and lbn (default:
    /// a small sample)
    file: Option<PathBuf>,
    /// Threads; each owns a part of the blocks
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Times that the trace is replayed into the same table
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// A write of SIZE bytes puts a value of SIZE / SHRINK bytes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    shrink: u32,
    /// Protection bytes of each of an entry's two digests: 0, 1, 2, 4 or 8
    #[arg(long, default_value_t = 8)]
    protection: u8,
    /// Verify every node that a search enters
    #[arg(long)]
    checksum_on_seek: bool,
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let cannot = |error: Error| Failure::of_table("making the table", &error);
    let options = MemTableOptions::builder()
        .protection_bytes(arguments.protection)
        .checksum_on_seek(arguments.checksum_on_seek)
        .build()
        .map_err(cannot)?;
    let table = MemTable::new(options).map_err(cannot)?;
    let trace = arguments
        .file
        .as_deref()
        .map_or_else(|| Ok(Trace::sample()), Trace::open)?;
    introduce(&trace, arguments)?;

    let plan = Plan {
        table: &table,
        trace: &trace,
        passes: arguments.passes,
        parts: u64::from(arguments.threads),
        shrink: arguments.shrink,
    };
    let started = Instant::now();
    let parts: Vec<Result<Replayed, Failure>> = thread::scope(|scope| {
        let parts: Vec<_> = (0..plan.parts)
            .map(|part| scope.spawn(move || replay::part(&plan, part)))
            .collect();
        let panicked = |_| Err(Failure::Differs("a replaying thread panicked".into()));
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(panicked))
            .collect()
    });
    let elapsed = started.elapsed();
    let mut all = Replayed::new();
    for part in parts {
        all.add(part?);
    }
    show(&table, &all, elapsed)?;
    let blocks = replay::check_all(&plan, &all.model)?;
    line(
        "at the end",
        format!(
            "{} in order, each as its block was written last",
            entries(blocks)
        ),
    )?;
    say("")?;
    say("Every read was right.")
}

fn introduce(trace: &Trace, arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.file {
        Some(file) => say(format!("Replay of {}", file.display()))?,
        None => {
            say("Replay of a small sample, made by this program: replay_trace FILE takes a trace")?
        }
    }
    let skipped = if trace.skipped > 0 {
        format!(", {} of other kinds skipped", count(trace.skipped))
    } else {
        String::new()
    };
    line(
        "requests",
        format!("{}{skipped}", count(trace.requests.len() as u64)),
    )?;
    line(
        "replay",
        format!(
            "passes {}, threads {}, values of size / {}, protection bytes {}{}",
            arguments.passes,
            arguments.threads,
            arguments.shrink,
            arguments.protection,
            if arguments.checksum_on_seek {
                ", checksums on seek"
            } else {
                ""
            }
        ),
    )?;
    say("")
}

fn show(table: &MemTable, all: &Replayed, elapsed: Duration) -> Result<(), Failure> {
    let requests = all.writes.len() + all.hits.len() + all.misses.len();
    line(
        "throughput",
        format!(
            "{} requests/s, each checked",
            count(a_second(requests, elapsed))
        ),
    )?;
    line(
        "",
        format!(
            "{} in {}: {} each",
            count(requests),
            time(elapsed),
            each(elapsed, requests)
        ),
    )?;
    for (name, histogram) in [
        ("writes", &all.writes),
        ("read hits", &all.hits),
        ("read misses", &all.misses),
    ] {
        line(
            name,
            format!("{:>7}  {}", count(histogram.len()), percentiles(histogram)),
        )?;
    }
    let (data, allocated) = (table.stats().data_bytes, table.allocated_bytes());
    let overhead = allocated.saturating_sub(data) as f64 / table.len().max(1) as f64;
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
