//! Measures the tail of inserts: each insert is timed by itself, by its thread's processor time.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release [--features rocksdb] -- tails [--entries 250000] [--values 100,1000] [--rounds 9] [--candidates ours-8,...] [--date 2026-01-31]
//! ```
//! Every fill has a process of its own, so that the memory of each table is fresh. The candidates
//! take turns. The cost of the clock (the median of two readings in a row) is subtracted. A
//! thread's time includes the system's work for a page that is touched first, interrupts, and time
//! that a host takes; it does not include other processes. The candidates are:
//!
//! * `nothing`: a loop without memory, about as long as an insert, timed in the same way. It shows
//!   how much interrupts and the host add.
//! * `..+reserve`: all space is reserved before the first insert, outside of the time.
//! * `ours-8+recycled`: a table in the memory of an earlier one that was filled and dropped, and
//!   that another thread has zeroed. Its page faults and system time are those of both.
//! * `set`: a set that switches tables of 8 MiB and flushes them in a thread, each in fresh memory.
//!   Its batches of one entry are made outside of the time.
//! * `set+recycled`: the same, but tables use the memory of flushed ones again.
//!
//! Memory by itself comes last (see `pages`).

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use measure::Environment;
use memmap2::{Advice, MmapMut, MmapOptions};
use paranoid_memtable::{ArenaRecycler, MemTable, MemTableOptions, WriteBatch};
use paranoid_set::{FlushJob, MemTableSet, SetOptions};
use serde::{Deserialize, Serialize};

use crate::record;
use crate::rivals::{Ahead, Candidate, Room};
use crate::work::{Shape, Work, mix, shuffled, thread_time};

/// The arguments of `tails`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[arg(long, default_value_t = 250_000)]
    entries: u64,
    /// Bytes of a value, at least 8.
    #[arg(long, value_delimiter = ',', default_value = "100")]
    values: Vec<usize>,
    /// Fills per candidate and order.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Candidates by their full names; those that this build lacks are left out.
    #[arg(
        long,
        alias = "lanes",
        value_delimiter = ',',
        default_value = "nothing,ours-8,ours-8+reserve,ours-0,rocksdb-8,rocksdb-0,crossbeam-skiplist,artmap"
    )]
    candidates: Vec<String>,
    /// The day of the record. Without a day no record is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "tails")]
    name: String,
    /// Makes only one fill of the only candidate, in this order: the program starts itself with
    /// this option.
    #[arg(long, value_enum, hide = true)]
    fill: Option<Order>,
}

/// The order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    Ascending,
    Random,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Ascending => "ascending",
            Order::Random => "random",
        }
    }
}

/// The object of a fill.
#[derive(Debug, Clone, Copy)]
enum Filled {
    /// No table: a loop of about the same length.
    Nothing,
    Table(Candidate, Ahead),
    /// A table in the memory of an earlier one.
    Recycled,
    /// A set that recycles this many arenas.
    Set(u64),
}

/// The quantiles, in thousandths of a percent.
const QUANTILES: [(&str, usize); 5] = [
    ("p50", 50_000),
    ("p99", 99_000),
    ("p99.9", 99_900),
    ("p99.99", 99_990),
    ("longest", 100_000),
];

/// One fill: nanoseconds at each quantile, and of all inserts together.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fill {
    quantiles: Vec<u64>,
    total: u64,
    clock: u64,
    used: Used,
}

/// The system's work for a thread.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Used {
    /// Minor page faults.
    faults: u64,
    /// Processor time inside the system, in ticks of 10 ms.
    system: u64,
}

/// The fills of one candidate in one order.
#[derive(Debug, Serialize)]
struct Row {
    order: &'static str,
    values: usize,
    candidate: String,
    fills: Vec<Fill>,
}

#[derive(Debug, Serialize)]
struct Record {
    environment: Environment,
    /// The system's setting for huge pages, and its load.
    huge_pages: String,
    load: String,
    entries: u64,
    rounds: usize,
    rows: Vec<Row>,
    memory: Vec<Span>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0");
    let (entries, rounds) = if smoke {
        (5_000, 2)
    } else {
        (arguments.entries, arguments.rounds)
    };
    ensure!(
        entries >= 1_000 && rounds > 0,
        "--entries: at least 1000; --rounds: at least 1"
    );
    ensure!(
        arguments.values.iter().all(|values| *values >= 8),
        "--values: at least 8 bytes"
    );
    if let Some(order) = arguments.fill {
        let name = arguments.candidates.first().context("--candidates: one")?;
        let shape = Shape::plain(arguments.values[0]);
        println!(
            "{}",
            serde_json::to_string(&filled(name)?.fill(entries, order, shape)?)?
        );
        return Ok(());
    }
    let mut rows = Vec::new();
    for order in [Order::Ascending, Order::Random] {
        for values in &arguments.values {
            for candidate in arguments
                .candidates
                .iter()
                .filter(|name| filled(name).is_ok())
            {
                let (candidate, values) = (candidate.clone(), *values);
                rows.push((
                    order,
                    Row {
                        order: order.name(),
                        values,
                        candidate,
                        fills: Vec::new(),
                    },
                ));
            }
        }
    }
    for round in 0..rounds {
        let begins = round % rows.len().max(1);
        rows.rotate_left(begins);
        for (order, row) in &mut rows {
            row.fills.push(child(row, entries, *order)?);
        }
        rows.rotate_right(begins);
        eprintln!("round {round}");
    }
    let record = Record {
        environment: record::environment(arguments.date.as_deref()),
        huge_pages: system("/sys/kernel/mm/transparent_hugepage/enabled"),
        load: system("/proc/loadavg"),
        entries,
        rounds,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        memory: spans()?,
    };
    let text = record.markdown()?;
    println!("{text}");
    if let Some(date) = &arguments.date {
        let to = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../records/{date}-{}", arguments.name));
        std::fs::write(
            to.with_extension("json"),
            serde_json::to_string(&record)? + "\n",
        )?;
        std::fs::write(to.with_extension("md"), text)?;
    }
    Ok(())
}

fn filled(name: &str) -> anyhow::Result<Filled> {
    if name == "nothing" {
        return Ok(Filled::Nothing);
    }
    if let "set" | "set+recycled" = name {
        return Ok(Filled::Set(u64::from(name != "set")));
    }
    if name == "ours-8+recycled" {
        return Ok(Filled::Recycled);
    }
    let (candidate, ahead) = match name.split_once('+') {
        None => (name, Ahead::Nothing),
        Some((candidate, "reserve")) => (candidate, Ahead::Reserve),
        Some(_) => anyhow::bail!("no candidate {name}"),
    };
    let candidate = Candidate::all()
        .into_iter()
        .find(|known| known.name() == candidate);
    Ok(Filled::Table(
        candidate.with_context(|| format!("no candidate {name}"))?,
        ahead,
    ))
}

/// Makes one fill in a process of its own.
fn child(row: &Row, entries: u64, order: Order) -> anyhow::Result<Fill> {
    let (candidate, values) = (&row.candidate, row.values.to_string());
    let output = Command::new(std::env::current_exe()?)
        .args([
            "tails",
            "--candidates",
            candidate,
            "--fill",
            order.name(),
            "--values",
            &values,
        ])
        .args(["--entries", &entries.to_string()])
        .output()?;
    ensure!(
        output.status.success(),
        "{candidate}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn system(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "not known".into(), |text| text.trim().to_owned())
}

fn nanoseconds(from: Duration, to: Duration) -> u64 {
    u64::try_from(to.saturating_sub(from).as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds between two consecutive readings of the clock.
fn clock_cost() -> u64 {
    let mut spans: Vec<u64> = (0..10_001)
        .map(|_| nanoseconds(thread_time(), thread_time()))
        .collect();
    spans.sort_unstable();
    spans[spans.len() / 2]
}

impl Filled {
    fn fill(self, entries: u64, order: Order, shape: Shape) -> anyhow::Result<Fill> {
        let numbers = match order {
            Order::Ascending => (0..entries).collect(),
            Order::Random => shuffled(entries, crate::rows::SEED),
        };
        // The spans are touched in advance, so that their page faults are not timed.
        let mut spans = vec![1u64; numbers.len()];
        let clock = clock_cost();
        let before = used();
        match self {
            Filled::Nothing => time_nothing(order, &mut spans),
            Filled::Table(candidate, ahead) => {
                time_inserts((candidate, ahead), shape, &numbers, &mut spans)?
            }
            Filled::Recycled => time_recycled(shape, &numbers, &mut spans)?,
            Filled::Set(arenas) => time_set(arenas, shape, &numbers, &mut spans)?,
        }
        let after = used();
        let used = Used {
            faults: after.faults - before.faults,
            system: after.system - before.system,
        };
        spans
            .iter_mut()
            .for_each(|span| *span = span.saturating_sub(clock));
        let total = spans.iter().sum();
        spans.sort_unstable();
        let quantiles = QUANTILES
            .iter()
            .map(|(_, share)| spans[(spans.len() - 1) * share / 100_000])
            .collect();
        Ok(Fill {
            quantiles,
            total,
            clock,
            used,
        })
    }
}

/// A loop about as long as an insert.
fn time_nothing(order: Order, spans: &mut [u64]) {
    let steps = match order {
        Order::Ascending => 60,
        Order::Random => 900,
    };
    let mut number = 0;
    for span in spans {
        let started = thread_time();
        number = std::hint::black_box((0..steps).fold(number, |number, _| mix(number)));
        *span = nanoseconds(started, thread_time());
    }
}

fn time_inserts(
    (candidate, ahead): (Candidate, Ahead),
    shape: Shape,
    numbers: &[u64],
    spans: &mut [u64],
) -> anyhow::Result<()> {
    let table = candidate.table(Room {
        shape,
        entries: numbers.len() as u64,
        threads: 1,
    })?;
    table.ahead(ahead);
    for (at, (number, span)) in numbers.iter().zip(spans).enumerate() {
        let one = shape.entries(&[*number], 1 + at as u64);
        let Some(task) = table.prepare(Work::Insert(&one)) else {
            break;
        };
        let started = thread_time();
        std::hint::black_box(task());
        *span = nanoseconds(started, thread_time());
    }
    Ok(())
}

fn time_recycled(shape: Shape, numbers: &[u64], spans: &mut [u64]) -> anyhow::Result<()> {
    let room = Room {
        shape,
        entries: numbers.len() as u64,
        threads: 1,
    };
    let options = MemTableOptions::builder()
        .write_buffer_size(room.write_buffer())
        .build()?;
    let recycler = ArenaRecycler::new(options.write_buffer_size(), 1)?;
    let mut fill = |table: &MemTable| -> anyhow::Result<()> {
        for (at, (number, span)) in numbers.iter().zip(&mut *spans).enumerate() {
            let one = shape.entries(&[*number], 1 + at as u64);
            let (sequence, key, value) = one.iter().next().context("one entry")?;
            let started = thread_time();
            table.writer().put(sequence, key, value)?;
            *span = nanoseconds(started, thread_time());
        }
        Ok(())
    };
    let before = MemTable::new(options.with_recycler(&recycler))?;
    fill(&before)?;
    let table = before.fork()?;
    drop(before);
    std::thread::scope(|scope| {
        scope.spawn(|| recycler.zero());
    });
    fill(&table)
}

/// Reads all items of a flush, and keeps none.
pub fn flush_away(mut job: FlushJob<()>) -> paranoid_memtable::Result<()> {
    let mut items = job.items()?;
    while items.next()?.is_some() {}
    drop(items);
    job.install(|_| Ok(()))
}

fn time_set(arenas: u64, shape: Shape, numbers: &[u64], spans: &mut [u64]) -> anyhow::Result<()> {
    let table = MemTableOptions::builder()
        .write_buffer_size(8 << 20)
        .build()?;
    let options = SetOptions::builder()
        .table(table)
        .max_write_buffer_number(3)
        .recycled_arenas(arenas);
    let set = MemTableSet::open(options.build()?, ())?;
    let flusher = set.start_flush_thread(flush_away)?;
    let mut batch = WriteBatch::with_protection(8)?;
    for (at, (number, span)) in numbers.iter().zip(spans).enumerate() {
        let one = shape.entries(&[*number], 1 + at as u64);
        batch.clear();
        for (_, key, value) in one.iter() {
            batch.put(key, value)?;
        }
        let started = thread_time();
        set.write(&batch)?;
        *span = nanoseconds(started, thread_time());
    }
    flusher.close()?;
    Ok(())
}

/// The system's work for this thread so far.
fn used() -> Used {
    let line = system("/proc/thread-self/stat");
    let after_name = line.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |at| {
        after_name
            .split_whitespace()
            .nth(at)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    Used {
        faults: field(7),
        system: field(12),
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

impl Row {
    /// Medians over the fills, the longest insert of all, and the time of a fill.
    fn cells(&self) -> String {
        let fills = &self.fills;
        let at = |place: usize| {
            fills
                .iter()
                .map(|fill| fill.quantiles[place])
                .collect::<Vec<_>>()
        };
        let micros = |nanoseconds: u64| format!("{:.2}", nanoseconds as f64 / 1e3);
        let millis = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e6);
        let mut cells: Vec<String> = (0..QUANTILES.len())
            .map(|place| micros(median(at(place))))
            .collect();
        cells.push(micros(
            at(QUANTILES.len() - 1).into_iter().max().unwrap_or(0),
        ));
        cells.push(median(fills.iter().map(|fill| fill.used.faults).collect()).to_string());
        cells.push((10 * median(fills.iter().map(|fill| fill.used.system).collect())).to_string());
        let totals = || fills.iter().map(|fill| fill.total);
        cells.extend(
            [
                totals().min(),
                Some(median(totals().collect())),
                totals().max(),
            ]
            .map(|total| millis(total.unwrap_or(0))),
        );
        cells.join(" | ")
    }
}

impl Record {
    fn markdown(&self) -> anyhow::Result<String> {
        let Environment {
            processor,
            compiler,
            commit,
            command,
            date,
            cxx_flags,
            ..
        } = &self.environment;
        let clock = median(
            self.rows
                .iter()
                .flat_map(|row| &row.fills)
                .map(|fill| fill.clock)
                .collect(),
        );
        let mut text =
            format!("# The tail of inserts\n\n- command: in benches/peers `{command}`\n");
        writeln!(
            text,
            "- date: {date}\n- processor: {processor}\n- commit: {commit}; {compiler}"
        )?;
        writeln!(text, "- RocksDB: {cxx_flags}")?;
        writeln!(
            text,
            "- transparent huge pages: {}; load of the machine at the end: {}",
            self.huge_pages, self.load
        )?;
        writeln!(
            text,
            "- {} entries, 16-byte keys, one writer; {} fills of each candidate in turns, each in a process \
             of its own",
            self.entries, self.rounds
        )?;
        writeln!(
            text,
            "- microseconds of the writer's thread time an insert, medians over the fills; {clock} ns of clock subtracted; \
             `worst` is the longest insert of all fills; page faults and system time (ticks of 10 ms) of the \
             writer in a fill; all inserts of a fill in milliseconds\n"
        )?;
        let names: Vec<&str> = QUANTILES.iter().map(|(name, _)| *name).collect();
        writeln!(
            text,
            "| order | values | candidate | {} | worst | faults | system | fastest fill | median | slowest |",
            names.join(" | ")
        )?;
        writeln!(text, "|---|---|---|{}", "---|".repeat(QUANTILES.len() + 6))?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {} | {} |",
                row.order,
                row.values,
                row.candidate,
                row.cells()
            )?;
        }
        writeln!(
            text,
            "\nMemory by itself, microseconds for 2 MiB (64 MiB at a time; thread time):\n"
        )?;
        writeln!(
            text,
            "| what | least | p10 | median | p90 | most |\n|---|---|---|---|---|---|"
        )?;
        for Span { what, micros } in &self.memory {
            let mut micros = micros.clone();
            micros.sort_by(f64::total_cmp);
            let at = |tenths: usize| {
                micros
                    .get((micros.len().saturating_sub(1)) * tenths / 10)
                    .copied()
                    .unwrap_or(0.0)
            };
            let cells = [0, 1, 5, 9, 10].map(|tenths| format!("{:.0}", at(tenths)));
            writeln!(text, "| {what} | {} |", cells.join(" | "))?;
        }
        Ok(text)
    }
}

// Memory by itself, in thread time: the cost of 2 MiB that the system backs, clears and takes back.
//
// A guest whose kernel reports free pages to its host (`page_reporting`, virtio balloon) gives them
// up after some seconds. At the next touch the host has to find them again, small page by small
// page. So memory that was given back just now is cheap, and the same memory some seconds later is
// not.

const HUGE_PAGE: usize = 2 << 20;
const BYTES: usize = 64 << 20;
const PAUSES: [u64; 6] = [0, 0, 0, 4, 4, 4];

/// Microseconds for each 2 MiB, in the order of measurement.
#[derive(Debug, Serialize)]
pub struct Span {
    pub what: String,
    pub micros: Vec<f64>,
}

fn timed(work: impl FnOnce()) -> f64 {
    let started = thread_time();
    work();
    thread_time().saturating_sub(started).as_secs_f64() * 1e6
}

/// A mapping, and the offset of its first huge page.
fn mapping(pages: Advice) -> anyhow::Result<(MmapMut, usize)> {
    let map = MmapOptions::new()
        .len(BYTES + HUGE_PAGE)
        .no_reserve_swap()
        .map_anon()?;
    let start = map.as_ptr().addr().next_multiple_of(HUGE_PAGE) - map.as_ptr().addr();
    map.advise_range(pages, start, BYTES)?;
    Ok((map, start))
}

/// Measures all spans, with pauses during which nothing is mapped.
pub fn spans() -> anyhow::Result<Vec<Span>> {
    let mut spans = Vec::new();
    for (name, pages) in [("2 MiB", Advice::HugePage), ("4 KiB", Advice::NoHugePage)] {
        let (mut at_once, mut later, mut cleared) = (Vec::new(), Vec::new(), Vec::new());
        for pause in PAUSES {
            std::thread::sleep(Duration::from_secs(pause));
            let (mut map, start) = mapping(pages)?;
            let to = if pause == 0 { &mut at_once } else { &mut later };
            for at in (start..start + BYTES).step_by(HUGE_PAGE) {
                let mut backed = Ok(());
                to.push(timed(|| {
                    backed = map.advise_range(Advice::PopulateWrite, at, HUGE_PAGE)
                }));
                backed.context("the system cannot back memory ahead")?;
                let piece = &mut map[at..at + HUGE_PAGE];
                cleared.push(timed(|| black_box(piece).fill(0)));
            }
        }
        // The first pages come from any place in the system.
        at_once.drain(..BYTES / HUGE_PAGE);
        for (what, micros) in [
            ("given back just before", at_once),
            ("given back 4 s before", later),
            ("mapped, only cleared", cleared),
        ] {
            spans.push(Span {
                what: format!("pages of {name}, {what}"),
                micros,
            });
        }
    }
    Ok(spans)
}
