//! A durable key-value store in one directory: a set of memtables, its journal, and table files
//! that RocksDB opens.
//!
//! ```text
//!   cargo run --release --example kv_store                                   writes, reopens and checks a store
//!   cargo run --release --example kv_store -- --dir DIR put apple red        one line of commands
//!   cargo run --release --example kv_store -- --dir DIR serve <COMMANDS      one line after the other
//! ```
//! It is written to be read. `store.rs` has the steps of an engine, `files.rs` the table files
//! below the tables, `manifest.rs` which files there are. Exit code 0: done; 1: done, but a
//! key of a `get` has no value; 2: it cannot be done.

#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader};
use std::ops::Bound;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::Parser;
use paranoid_memtable::scan::KeyRange;
use paranoid_memtable::{MemTableOptions, WriteBatch};
use paranoid_set::{Durability, MergedEntry, View};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "kv_store/files.rs"]
mod files;
#[path = "kv_store/manifest.rs"]
mod manifest;
#[path = "shared/output.rs"]
mod output;
#[path = "kv_store/store.rs"]
mod store;

use arguments::arguments;
use files::{Base, Counters, Outcome};
use output::{complain, print, with_causes};
use store::{Store, scan};

/// A durable key-value store in one directory, on memtables, a journal and table files
///
/// Commands, words without blanks; those of a line that write, joined by `;`, are one atomic batch:
///   put KEY VALUE    delete KEY    delete-range FROM TO    add KEY NUMBER
///   get KEY          scan [FROM [TO]]                      flush
/// `serve` answers line N by rows `N KEY VALUE` and then `N ok`, or `N error: ..`. A line is
/// durable once it is answered `ok`. A key without a value has no row. After an error that says
/// `read-only` the line may be there or not.
#[derive(Debug, Parser)]
#[command(
    name = "kv_store",
    verbatim_doc_comment,
    after_help = "Exit code: 0 done; 1 done, but a key of a `get` has no value; 2 it cannot be done"
)]
struct Arguments {
    /// Directory of the store (default: a new one in the temporary directory, which is removed)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Threads that execute lines of commands
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Bytes of a table before it is replaced and flushed
    #[arg(long, default_value_t = 4 << 20)]
    write_buffer: u64,
    /// Acknowledge what the operating system has: it survives the end of the process, not that of
    /// the machine
    #[arg(long)]
    buffered: bool,
    /// A line of commands, or `serve` for lines from the standard input; without one, a
    /// demonstration
    line: Vec<String>,
}

fn main() -> ExitCode {
    sigpipe::reset();
    run(&arguments()).unwrap_or_else(|error| {
        complain(format_args!("error: {}", with_causes(&*error)));
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let temporary = std::env::temp_dir().join(format!("kv_store-{}", std::process::id()));
    let directory = arguments.dir.as_ref().unwrap_or(&temporary);
    let durability = if arguments.buffered {
        Durability::Buffered
    } else {
        Durability::Synced
    };
    let open = || {
        let table = MemTableOptions::builder().write_buffer_size(arguments.write_buffer);
        Store::open(directory, &table.build()?, durability)
    };
    let done = match arguments.line.join(" ").as_str() {
        "" => demonstrate(&open).map(|()| ExitCode::SUCCESS),
        "serve" => serve(&open()?, arguments.threads).map(|()| ExitCode::SUCCESS),
        line => execute(&open()?, line).and_then(|found| show(&found)),
    };
    if arguments.dir.is_none() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    done
}

/// What the reads of a line found.
#[derive(Default)]
struct Found {
    rows: Vec<String>,
    /// Keys without a value.
    absent: Vec<String>,
}

/// Shows what was found. The exit code says whether every key has a value.
fn show(found: &Found) -> Outcome<ExitCode> {
    for row in &found.rows {
        print(format_args!("{row}\n"))?;
    }
    for key in &found.absent {
        complain(format_args!("{key}: not found"));
    }
    Ok(ExitCode::from(u8::from(!found.absent.is_empty())))
}

/// Executes the commands of a line: first all reads, then all writes as one batch.
fn execute(store: &Store, line: &str) -> Outcome<Found> {
    let mut batch = WriteBatch::new();
    let mut found = Found::default();
    for command in line.split(';') {
        match command.split_whitespace().collect::<Vec<_>>()[..] {
            ["put", key, value] => batch.put(key, value)?,
            ["delete", key] => batch.delete(key)?,
            ["delete-range", from, to] => batch.delete_range(from, to)?,
            ["add", key, number] => batch.merge(key, number.parse::<i64>()?.to_string())?,
            ["get", key] => match store.get(key)? {
                Some(entry) => found.rows.push(row(&entry)?),
                None => found.absent.push(key.into()),
            },
            ["scan", ref keys @ ..] if keys.len() <= 2 => {
                let from = keys.first().map_or(Bound::Unbounded, Bound::Included);
                let to = keys.get(1).map_or(Bound::Unbounded, Bound::Excluded);
                found.rows.extend(rows(&store.view(), (from, to))?);
            }
            ["flush"] => store.flush()?,
            [] => {}
            _ => return Err(format!("`{}` is no command, see --help", command.trim()).into()),
        }
    }
    if !batch.is_empty() {
        store.write(&batch)?;
    }
    Ok(found)
}

/// The row of a key and its value.
fn row(entry: &MergedEntry) -> Outcome<String> {
    let (key, value) = (
        String::from_utf8_lossy(entry.user_key()),
        entry.merged(&Counters, None)?,
    );
    Ok(format!("{key} {}", String::from_utf8_lossy(&value)))
}

/// The rows of a range's keys and values.
fn rows(view: &View<Base>, keys: impl KeyRange) -> Outcome<Vec<String>> {
    scan(view, keys)?
        .ascending()
        .map(|entry| row(&entry?))
        .collect()
}

/// Executes lines of the standard input, several at once, and answers each when it is done.
fn serve(store: &Store, threads: u64) -> Outcome<()> {
    let lines = Mutex::new((1u64..).zip(BufReader::new(io::stdin()).lines()));
    let work = || -> Outcome<()> {
        loop {
            let next = lines.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, line)) = next else {
                return Ok(());
            };
            let rows = execute(store, &line?).map(|it| [it.rows, vec!["ok".into()]].concat());
            let rows =
                rows.unwrap_or_else(|error| vec![format!("error: {}", with_causes(&*error))]);
            let answer: String = rows.iter().map(|row| format!("{number} {row}\n")).collect();
            print(answer)?;
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// Writes a little, flushes and merges it under a snapshot, opens the store again, and shows its
/// content.
fn demonstrate(open: &dyn Fn() -> paranoid_memtable::Result<Store>) -> Outcome<()> {
    let store = open()?;
    execute(&store, "put apple green; put pear yellow; add visits 40")?;
    let before = store.snapshot()?;
    for number in 0..10 {
        execute(
            &store,
            &format!("put apple red-{number}; add visits 1; delete-range p q"),
        )?;
        store.flush()?;
    }
    let then = rows(&store.view_at(&before)?, ..)?;
    drop((before, store));
    let now = execute(&open()?, "scan")?.rows;
    print(format_args!(
        "then   {}\nnow    {}\n",
        then.join(", "),
        now.join(", ")
    ))?;
    let agrees =
        now == ["apple red-9", "visits 50"] && then == ["apple green", "pear yellow", "visits 40"];
    if agrees {
        Ok(())
    } else {
        Err("what was read is not what was written".into())
    }
}
