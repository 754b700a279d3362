//! A durable key-value store in one directory: a set of memtables, its journal, and table files that RocksDB opens.
//!
//! ```text
//!   cargo run --release --example kv_store                                   writes, reopens and checks a store
//!   cargo run --release --example kv_store -- --dir DIR put apple red        one line of commands
//!   cargo run --release --example kv_store -- --dir DIR serve <COMMANDS      one line after the other
//! ```
//! It is written to be read. `store.rs` says where each piece of an engine goes, `files.rs` what lies below the tables,
//! `manifest.rs` how a file is replaced safely. Exit code 0: done; 1: what was read is not what was written; 2: it cannot
//! be done.

#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use clap::Parser;
use paranoid_memtable::WriteBatch;
use paranoid_set::Durability;

#[path = "kv_store/files.rs"]
mod files;
#[path = "kv_store/manifest.rs"]
mod manifest;
#[path = "kv_store/store.rs"]
mod store;

use store::Store;

/// A durable key-value store in one directory, on memtables, a journal and table files.
#[derive(Debug, Parser)]
#[command(name = "kv_store", after_help = COMMANDS)]
struct Arguments {
    /// Directory of the store (default: a new one in the temporary directory, which is removed)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Threads that execute lines of commands, or that write
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Bytes of a table before it is replaced and flushed
    #[arg(long, default_value_t = 4 << 20)]
    write_buffer: u64,
    /// Acknowledge what the operating system has: it survives the end of the process, not that of the machine
    #[arg(long)]
    buffered: bool,
    /// A line of commands, or `serve` for lines from the standard input; without one, a demonstration
    line: Vec<String>,
}

const COMMANDS: &str = "\
Commands, words without blanks; those of a line that write, joined by `;`, are one atomic batch:
  put KEY VALUE    delete KEY    delete-range FROM TO    add KEY NUMBER
  get KEY          scan [FROM [TO]]                      flush
`serve` answers line N by rows `N KEY VALUE` and then `N ok`, or `N error: ..`. A line is durable once it is answered.";

type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", told(&*error));
            ExitCode::from(2)
        }
    }
}

/// The text of an error, and of what caused it.
fn told(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let temporary = std::env::temp_dir().join(format!("kv_store-{}", std::process::id()));
    let directory = arguments.dir.as_ref().unwrap_or(&temporary);
    let durability = if arguments.buffered { Durability::Buffered } else { Durability::Synced };
    let open = || Store::open(directory, arguments.write_buffer, durability);
    let done = match arguments.line.join(" ").as_str() {
        "" => demonstrate(&open, arguments.threads.into(), directory),
        "serve" => serve(&open()?, arguments.threads).map(|()| ExitCode::SUCCESS),
        line => execute(&open()?, line).map(|rows| {
            rows.iter().for_each(|row| println!("{row}"));
            ExitCode::SUCCESS
        }),
    };
    if arguments.dir.is_none() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    done
}

/// Executes the commands of a line: those that read, and then all that write, as one batch.
fn execute(store: &Store, line: &str) -> Outcome<Vec<String>> {
    let mut batch = WriteBatch::new();
    let mut rows = vec![];
    for command in line.split(';') {
        let mut scan = |from, to| {
            let text = String::from_utf8_lossy;
            let mut show = |key: &[u8], value: &[u8]| rows.push(format!("{} {}", text(key), text(value)));
            store.scan(from, to, &mut show)
        };
        match command.split_whitespace().collect::<Vec<_>>()[..] {
            ["put", key, value] => batch.put(key.as_bytes(), value.as_bytes())?,
            ["delete", key] => batch.delete(key.as_bytes())?,
            ["delete-range", from, to] => batch.delete_range(from.as_bytes(), to.as_bytes())?,
            ["add", key, number] => {
                batch.merge(key.as_bytes(), number.parse::<i64>()?.to_string().as_bytes())?
            }
            ["get", key] => {
                let value = store.get(key.as_bytes())?;
                rows.extend(value.map(|value| format!("{key} {}", String::from_utf8_lossy(&value))));
            }
            ["scan"] => scan(Bound::Unbounded, Bound::Unbounded)?,
            ["scan", from] => scan(Bound::Included(from.as_bytes()), Bound::Unbounded)?,
            ["scan", from, to] => {
                scan(Bound::Included(from.as_bytes()), Bound::Excluded(to.as_bytes()))?;
            }
            ["flush"] => store.switch().and_then(|()| store.flush())?,
            [] => {}
            _ => return Err(format!("`{}` is no command, see --help", command.trim()).into()),
        }
    }
    if !batch.is_empty() {
        store.write(&batch)?;
    }
    Ok(rows)
}

/// Flushes tables whenever one is full, while `work` runs.
fn with_flusher<T>(store: &Store, work: impl FnOnce(&Thread) -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        let flusher = threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if store.needs_flush()
                    && let Err(error) = store.flush()
                {
                    // Nothing is lost. Who finds the tables full tries again and gets the error.
                    eprintln!("flush: {}", told(&error));
                }
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        let done = work(flusher.thread());
        is_over.store(true, Ordering::Relaxed);
        flusher.thread().unpark();
        done
    })
}

/// Executes lines of the standard input, several at once, and answers each when it is done.
fn serve(store: &Store, workers: u16) -> Outcome<()> {
    let last_line = Mutex::new(0u64);
    let next = || {
        let mut last_line = last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = String::new();
        match io::stdin().read_line(&mut line) {
            Ok(0) => None,
            read => {
                *last_line += 1;
                Some((*last_line, read.map(|_| line)))
            }
        }
    };
    let work = |flusher: &Thread| -> Outcome<()> {
        while let Some((number, line)) = next() {
            let answer = match execute(store, &line?) {
                Ok(rows) => rows
                    .iter()
                    .map(|row| format!("{number} {row}\n"))
                    .chain([format!("{number} ok\n")])
                    .collect(),
                Err(error) => format!("{number} error: {}\n", told(&*error)),
            };
            io::stdout().write_all(answer.as_bytes())?;
            if store.needs_flush() {
                flusher.unpark();
            }
        }
        Ok(())
    };
    with_flusher(store, |flusher| {
        thread::scope(|threads| {
            let workers: Vec<_> = (0..workers).map(|_| threads.spawn(|| work(flusher))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
        })
    })
}

/// Entries that each thread of the demonstration writes, and how many of them are one batch.
const ENTRIES: u64 = 50_000;
const BATCH: u64 = 100;
/// What it deletes of the first thread's.
const GONE: (&str, &str, u64) = ("t0-01", "t0-02", 10_000);

/// Writes with several threads, deletes a range, opens the store anew, and compares what is there.
fn demonstrate(
    open: &dyn Fn() -> paranoid_memtable::Result<Store>,
    threads: u64,
    directory: &Path,
) -> Outcome<ExitCode> {
    println!("A store in {}", directory.display());
    fill_all(&open()?, threads)?;
    let began = Instant::now();
    let store = open()?;
    println!("  opened anew   in {:.3} s", began.elapsed().as_secs_f64());
    let (mut found, mut wrong) = (0, 0);
    store.scan(Bound::Included(b"t"), Bound::Unbounded, |key, value| {
        found += 1;
        wrong += u64::from(value != value_of(key).as_bytes());
    })?;
    let counted = store.get(b"batches")?.unwrap_or_default();
    println!("  found         {found} entries, and {} batches counted", String::from_utf8_lossy(&counted));
    let is_counted = counted == (threads * ENTRIES / BATCH).to_string().as_bytes();
    let is_whole = wrong == 0 && found == threads * ENTRIES - GONE.2;
    if is_counted && is_whole && store.get(b"t0-010000")?.is_none() {
        println!("All of it agrees.");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("DIFFERENCE: {wrong} values are wrong, and entries or batches are missing");
    Ok(ExitCode::from(1))
}

fn fill_all(store: &Store, threads: u64) -> Outcome<()> {
    let (entries, began) = (threads * ENTRIES, Instant::now());
    with_flusher(store, |flusher| {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || fill(store, thread, flusher))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })
    })?;
    let rate = entries as f64 / began.elapsed().as_secs_f64();
    println!(
        "  written       {entries} entries in batches of {BATCH}, by {threads} threads: {rate:.0} a second"
    );
    let (from, to, gone) = GONE;
    execute(store, &format!("delete-range {from} {to}"))?;
    println!("  deleted       {gone} entries by one range delete");
    let (tables, files) = store.sizes();
    println!("  kept in       {tables} tables, their journal, and {files} files");
    Ok(())
}

fn value_of(key: &[u8]) -> String {
    format!("value-of-{}", String::from_utf8_lossy(key))
}

/// Writes the entries of a thread; each batch adds 1 to a counter.
fn fill(store: &Store, thread: u64, flusher: &Thread) -> Outcome<()> {
    for number in 0..ENTRIES / BATCH {
        let mut batch = WriteBatch::new();
        batch.merge(b"batches", b"1")?;
        for number in number * BATCH..(number + 1) * BATCH {
            // Shuffled, so that keys of all batches lie side by side.
            let key = format!("t{thread}-{:06}", number * 7919 % ENTRIES);
            batch.put(key.as_bytes(), value_of(key.as_bytes()).as_bytes())?;
        }
        store.write(&batch)?;
        if store.needs_flush() {
            flusher.unpark();
        }
    }
    Ok(())
}
