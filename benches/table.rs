//! The table of results: how this crate stands to crossbeam-skiplist and to a `BTreeMap` behind a lock.
//!
//! ```text
//!   cargo bench -p paranoid-memtable-benches --bench table    prints the table
//!   cargo bench -p paranoid-memtable-benches --bench table -- --date 2026-01-31 --name laptop
//!       also writes benches/records/DATE-NAME.{md,json}
//!   options: --entries 250000,1000000  --rounds 200
//! ```
//! Absolute times drift with the machine's mood, ratios hardly do. So all tables live in one process and work in turns: a
//! round gives each a slice of the same work, and what counts is the median over the rounds of the ratio inside a round.
//! Slices are short, so that few of them are interrupted by other processes; gets and seeks are warmed up first.
//! Keys and values that a rival owns are made outside the time, but for the rows that say that rivals copy. All tables
//! must come to the same hash of what they read.

use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use arguments::Arguments;
use measure::environment::resident_bytes;
use measure::record::{Row, Section};
use rivals::{Done, Inputs, Make, Order, Presence, Subject, Way};
use sizes::Extent;

#[path = "table/arguments.rs"]
mod arguments;
#[path = "table/budgets.rs"]
mod budgets;
#[path = "table/page.rs"]
mod page;
#[path = "rivals/mod.rs"]
mod rivals;
#[path = "rivals/sizes.rs"]
mod sizes;

const SEED: u64 = 4;

/// Everything that takes its turn, in the order of the record's columns.
const CANDIDATES: [Make; 6] =
    [Make::PLAIN, Make::PROTECTED, Make::ON_SEEK, Make::ORDER_CHECKS, Make::Crossbeam, Make::BTree];

/// How much is done in each round.
#[derive(Debug, Clone, Copy)]
struct Slices {
    rounds: usize,
    inserts: usize,
    gets: usize,
    seeks: usize,
    steps: usize,
    empties: usize,
}

impl Slices {
    fn of(extent: Extent, rounds: usize) -> Slices {
        match extent {
            Extent::Full => {
                Slices { rounds, inserts: 1_000, gets: 400, seeks: 150, steps: 2_500, empties: 50 }
            }
            Extent::Smoke => Slices { rounds: 4, inserts: 700, gets: 50, seeks: 20, steps: 200, empties: 3 },
        }
    }
}

fn main() -> ExitCode {
    let extent = Extent::asked();
    let arguments = match Arguments::parse(extent) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("error: {text}");
            return ExitCode::from(2);
        }
    };
    if let Some((candidate, entries)) = arguments.memory {
        println!("{}", resident_of(CANDIDATES[candidate % CANDIDATES.len()], entries));
        return ExitCode::SUCCESS;
    }
    let slices = Slices::of(extent, arguments.rounds);
    let sections = arguments.entries.iter().map(|entries| section(*entries, slices)).collect();
    let candidates = CANDIDATES.map(Make::name).to_vec();
    let record = arguments.record(candidates, slices.rounds, slices.steps, sections);
    let page = page::markdown(&record);
    println!("{page}");
    match arguments.save(extent, &record, &page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

/// All the work at one size.
fn section(entries: u32, slices: Slices) -> Section {
    let mut rows = vec![empties(slices)];
    for (order, name) in [(Order::Ascending, "in order"), (Order::Random, "at random")] {
        let name = format!("insert {name}, rivals copy their input");
        rows.push(fill(&name, entries, order, Inputs::Borrowed, slices).1);
    }
    {
        let (filled, row) = fill("insert in order", entries, Order::Ascending, Inputs::Owned, slices);
        rows.push(row);
        rows.push(scans("scan forward, filled in order", &filled, entries, Way::Forward, slices));
        rows.push(scans("scan backward, filled in order", &filled, entries, Way::Backward, slices));
    }
    let (filled, row) = fill("insert at random", entries, Order::Random, Inputs::Owned, slices);
    rows.push(row);
    let picks = |count: usize, seed: u64| rivals::picks(entries, count, SEED + seed);
    for (name, presence) in [("get hit", Presence::Hit), ("get miss", Presence::Miss)] {
        rows.push(turns(name, slices.rounds, slices.gets, |candidate, round| {
            filled[candidate].get(&picks(slices.gets / 2, 3_000 + round), presence);
            filled[candidate].get(&picks(slices.gets, round), presence)
        }));
    }
    rows.push(turns("seek + next 10", slices.rounds, slices.seeks, |candidate, round| {
        filled[candidate].seek(&picks(slices.seeks / 2, 4_000 + round));
        filled[candidate].seek(&picks(slices.seeks, 1_000 + round))
    }));
    rows.push(scans("scan forward, filled at random", &filled, entries, Way::Forward, slices));
    rows.push(scans("scan backward, filled at random", &filled, entries, Way::Backward, slices));
    let counted =
        |candidate: usize| filled[candidate].allocated().map(|bytes| bytes as f64 / f64::from(entries));
    Section {
        entries: entries.into(),
        rows,
        counted: (0..CANDIDATES.len()).map(counted).collect(),
        resident: (0..CANDIDATES.len()).map(|candidate| resident_of_child(candidate, entries)).collect(),
        empty_bytes: Make::PROTECTED.table().allocated(),
        ..Section::default()
    }
}

/// Measures one row: each round gives each candidate one slice of the same work. Another candidate begins each round.
fn turns(name: &str, rounds: usize, ops: usize, mut work: impl FnMut(usize, u64) -> Done) -> Row {
    let mut nanoseconds = vec![Vec::with_capacity(rounds); CANDIDATES.len()];
    let mut hash = 0;
    for round in 0..rounds {
        let mut agreed = None;
        for turn in 0..CANDIDATES.len() {
            let candidate = (round + turn) % CANDIDATES.len();
            let done = work(candidate, round as u64);
            nanoseconds[candidate].push(done.elapsed.as_secs_f64() * 1e9 / ops.max(1) as f64);
            let agreed = *agreed.get_or_insert(done.hash);
            assert_eq!(
                done.hash,
                agreed,
                "{name}, round {round}: {} read something else",
                CANDIDATES[candidate].name()
            );
        }
        hash = rivals::mix(hash ^ agreed.unwrap_or(0));
    }
    let nanoseconds = nanoseconds.into_iter().map(Some).collect();
    Row { name: name.into(), nanoseconds, hash: format!("{hash:016x}"), ..Row::default() }
}

/// Fills all tables side by side, a slice each in turn, so that compared tables always have one size.
fn fill(
    name: &str,
    entries: u32,
    order: Order,
    inputs: Inputs,
    slices: Slices,
) -> (Vec<Box<dyn Subject>>, Row) {
    let tables: Vec<_> = CANDIDATES.iter().map(|make| make.table()).collect();
    let all = rivals::order(entries, order, SEED);
    let parts: Vec<&[u32]> = all.chunks_exact(slices.inserts).collect();
    let row = turns(name, parts.len(), slices.inserts, |candidate, round| {
        let part = usize::try_from(round).ok().and_then(|round| parts.get(round));
        tables[candidate].insert(part.copied().unwrap_or_default(), &Barrier::new(1), inputs)
    });
    let rest = all.chunks_exact(slices.inserts).remainder();
    for table in &tables {
        table.insert(rest, &Barrier::new(1), inputs);
    }
    (tables, row)
}

fn scans(name: &str, filled: &[Box<dyn Subject>], entries: u32, way: Way, slices: Slices) -> Row {
    let steps = slices.steps.min(entries as usize / 2);
    turns(name, slices.rounds, steps, |candidate, round| {
        // Far enough from the end for all the steps.
        let from = rivals::picks(entries / 2, 1, SEED + 2_000 + round)[0];
        let from = if way == Way::Forward { from } else { entries - 1 - from };
        filled[candidate].scan(from, steps, way)
    })
}

/// Making and dropping empty tables.
fn empties(slices: Slices) -> Row {
    turns("make and drop an empty table", slices.rounds, slices.empties, |candidate, _| {
        let started = Instant::now();
        for _ in 0..slices.empties {
            std::hint::black_box(CANDIDATES[candidate].table());
        }
        Done { elapsed: started.elapsed().max(Duration::from_nanos(1)), hash: 0 }
    })
}

/// Resident bytes per entry of a table in a process of its own; `None` where the system does not tell.
fn resident_of_child(candidate: usize, entries: u32) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program).args(["--memory", &format!("{candidate},{entries}")]).output().ok()?;
    let bytes: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    (bytes > 0.0).then(|| bytes / f64::from(entries))
}

/// Fills a table at random in small slices. Returns the growth of the process.
fn resident_of(make: Make, entries: u32) -> u64 {
    let before = resident_bytes();
    let table = make.table();
    let all = rivals::order(entries, Order::Random, SEED);
    let ready = Barrier::new(1);
    for part in all.chunks(1_000) {
        table.insert(part, &ready, Inputs::Owned);
    }
    let grown = resident_bytes().saturating_sub(before);
    grown.saturating_sub(size_of_val(all.as_slice()) as u64)
}
