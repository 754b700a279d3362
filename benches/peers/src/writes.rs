//! Counts the cache lines that several threads write. Nothing is timed.
//!
//! ```text
//!   cargo run --release -- writes                 needs valgrind, whose tool lackey prints every store
//!   thread 0    | put |                 | put |
//!   thread 1            | put |                  | put | ..      stores between the bars count
//! ```
//! The program starts itself under valgrind. Its threads take turns, one operation each. So a line
//! that one thread wrote is written again by others, as it would be on as many processors. A line
//! that only one thread writes (its stack, its writer) costs nothing on more processors. A line
//! that all of them write at every operation stops them from scaling.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use anyhow::{Context, ensure};
use clap::Args;
use paranoid_memtable::{Directory, MemTable, MemTableOptions, WriteBatch};

const LINE: u64 = 64;
const BATCH: u64 = 32;

#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[arg(long, default_value_t = 8)]
    threads: u64,
    /// Number of entries of the table before the operations that are counted.
    #[arg(long, default_value_t = 20_000)]
    entries: u64,
    /// Number of operations of each thread.
    #[arg(long, default_value_t = 250)]
    operations: u64,
    /// Does the work of one row: the program starts itself with this option.
    #[arg(long, hide = true, num_args = 2)]
    row: Vec<String>,
}

const DIRECTORIES: [&str; 2] = ["off", "on"];
const ROWS: [&str; 5] = [
    "insert at random",
    "insert in order",
    "batch of 32 at random",
    "get",
    "multi_get of 24",
];

/// Marks the begin and the end of an operation: the number of its thread, then zero.
static MARK: AtomicU64 = AtomicU64::new(0);

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let [directory, row] = &arguments.row[..] {
        return work(arguments, directory, row);
    }
    let Arguments {
        threads,
        entries,
        operations,
        ..
    } = arguments;
    println!(
        "{threads} threads in turn, {operations} operations each, a table of {entries} entries before\n"
    );
    println!(
        "| directory | work | stores | to lines of several threads | distinct lines of these | most written line | lines of all threads |"
    );
    println!("|---|---|---|---|---|---|---|");
    for directory in DIRECTORIES {
        for row in ROWS {
            println!(
                "| {directory} | {row} | {} |",
                count(arguments, directory, row)?
            );
        }
    }
    println!(
        "\nPer operation: stores, stores to lines that at least two threads write, and how many such lines it writes."
    );
    println!(
        "Then the share of operations that write the line that most of them write, and how many lines all threads wrote."
    );
    Ok(())
}

/// Counts of the lines that operations write, by thread.
#[derive(Debug, Default)]
struct Counts {
    /// For each line: a bit per thread, the operations that wrote it, and the stores.
    lines: HashMap<u64, (u64, u64, u64)>,
    operations: u64,
    stores: u64,
}

impl Counts {
    fn note(&mut self, thread: u64, stores: &[u64]) {
        self.operations += 1;
        self.stores += stores.len() as u64;
        let mut lines: Vec<u64> = stores.iter().map(|address| address / LINE).collect();
        lines.sort_unstable();
        for same in lines.chunk_by(|left, right| left == right) {
            let line = self.lines.entry(same[0]).or_default();
            *line = (line.0 | 1 << thread, line.1 + 1, line.2 + same.len() as u64);
        }
    }

    fn cells(&self, threads: u64) -> String {
        let shared = || self.lines.values().filter(|line| line.0.count_ones() > 1);
        let each = |sum: u64| sum as f64 / self.operations as f64;
        let most = shared().map(|line| line.1).max().unwrap_or(0);
        let of_all = shared()
            .filter(|line| u64::from(line.0.count_ones()) == threads)
            .count();
        format!(
            "{:.0} | {:.1} | {:.1} | {:.1} % | {of_all}",
            each(self.stores),
            each(shared().map(|line| line.2).sum()),
            each(shared().map(|line| line.1).sum()),
            100.0 * each(most)
        )
    }
}

/// Runs one row under valgrind and counts its stores.
fn count(arguments: &Arguments, directory: &str, row: &str) -> anyhow::Result<String> {
    let Arguments {
        threads,
        entries,
        operations,
        ..
    } = arguments;
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=lackey",
        "--trace-mem=yes",
        "--basic-counts=no",
        "--log-fd=2",
    ]);
    command
        .arg(std::env::current_exe()?)
        .arg("writes")
        .args(["--threads", &threads.to_string()]);
    command.args([
        "--entries",
        &entries.to_string(),
        "--operations",
        &operations.to_string(),
    ]);
    command
        .args(["--row", directory, row])
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("valgrind")?;
    let mut lines = BufReader::new(child.stderr.take().context("no output")?);
    let (mut line, mut mark, mut counts) = (String::new(), None, Counts::default());
    let (mut thread, mut stores): (Option<u64>, Vec<u64>) = (None, Vec::new());
    while lines.read_line(&mut line)? > 0 {
        if let Some(address) = line.strip_prefix("mark ") {
            mark = Some(u64::from_str_radix(address.trim(), 16)?);
        } else if let Some(place) = line
            .strip_prefix(" S ")
            .or_else(|| line.strip_prefix(" M "))
        {
            let address = place.trim().split(',').next().unwrap_or_default();
            let address = u64::from_str_radix(address, 16)?;
            match thread {
                // The mark is stored once before and once after each operation.
                Some(of) if Some(address) == mark => {
                    counts.note(of, &stores);
                    (thread, stores) = (None, Vec::new());
                }
                None if Some(address) == mark => thread = Some(counts.operations % threads),
                Some(_) => stores.push(address),
                None => {}
            }
        }
        line.clear();
    }
    ensure!(child.wait()?.success(), "the program failed under valgrind");
    ensure!(
        counts.operations == threads * operations,
        "{} operations were seen",
        counts.operations
    );
    Ok(counts.cells(*threads))
}

fn scramble(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.to_be_bytes());
    key
}

/// The program under valgrind: threads take turns, one operation each.
fn work(arguments: &Arguments, directory: &str, row: &str) -> anyhow::Result<()> {
    let Arguments {
        threads,
        entries,
        operations,
        ..
    } = *arguments;
    let directory = if directory == "on" {
        Directory::On
    } else {
        Directory::Off
    };
    let table = &MemTable::new(
        MemTableOptions::builder()
            .directory(directory)
            .seed(7)
            .build()?,
    )?;
    let in_order = row == "insert in order";
    let place = |n: u64| if in_order { n } else { scramble(n) };
    for n in 0..entries {
        table.put(n, &key(place(n)), &[7; 100])?;
    }
    // In one call, because the tool prints between two calls.
    std::io::stderr().write_all(format!("mark {:x}\n", MARK.as_ptr() as usize).as_bytes())?;
    let (turn, passed) = (&Mutex::new(0u64), &Condvar::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for _ in 0..operations {
                    let mut now = turn.lock().expect("nobody panics");
                    while *now % threads != thread {
                        now = passed.wait(now).expect("nobody panics");
                    }
                    one(table, row, entries, *now, place).expect("the table takes it");
                    *now += 1;
                    passed.notify_all();
                }
            });
        }
    });
    Ok(())
}

/// Runs one operation between two stores of the mark.
fn one(
    table: &MemTable,
    row: &str,
    entries: u64,
    turn: u64,
    place: impl Fn(u64) -> u64,
) -> paranoid_memtable::Result<()> {
    let mut batch = WriteBatch::with_protection(0)?;
    let number = entries + turn * BATCH;
    for n in 0..BATCH {
        batch.put(&key(place(number + n)), &[7; 100])?;
    }
    let present = |n: u64| key(place(scramble(turn ^ n << 32) % entries));
    let keys: Vec<[u8; 16]> = (0..24).map(present).collect();
    MARK.store(turn + 1, Ordering::SeqCst);
    match row {
        "get" => drop(table.get(&keys[0], u64::MAX)?),
        "multi_get of 24" => drop(table.multi_get(&keys, u64::MAX)),
        "batch of 32 at random" => drop(table.write_batch(number, &batch)?),
        _ => drop(table.put(number, &key(place(number)), &[7; 100])?),
    }
    MARK.store(0, Ordering::SeqCst);
    Ok(())
}
