//! The table of results: compares this crate with crossbeam-skiplist and a `BTreeMap` in a lock.
//!
//! ```text
//!   cargo bench -p paranoid-memtable-benches --features records --bench table    prints the table
//!   cargo bench -p paranoid-memtable-benches --features records --bench table -- --date 2026-01-31 --name laptop
//!       also writes benches/records/DATE-NAME.{md,json}
//!   options: --entries 250000,1000000  --rounds 200
//! ```
//! Absolute times drift with the state of the machine, ratios hardly do. So all tables are in one
//! process and work in turns: a round gives each a slice of the same work. The result is the median
//! over the rounds of the ratio inside a round. Slices are short, so that other processes interrupt
//! few of them; gets and seeks are warmed up first. Keys and values that a rival owns are made
//! outside the time, except in the rows that say that rivals copy. All tables must have the same
//! hash of what they read.

use std::fmt::Write;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use measure::{Environment, Record, Row, Section, quartiles, resident_bytes};

mod rivals;

use rivals::{Arguments, Done, Extent, Inputs, Make, Order, Presence, Subject, Way};

const SEED: u64 = 4;

/// All candidates, in the order of the record's columns.
const CANDIDATES: [Make; 6] = [
    Make::PLAIN,
    Make::PROTECTED,
    Make::ON_SEEK,
    Make::ORDER_CHECKS,
    Make::Crossbeam,
    Make::BTree,
];

/// The amount of work of each round.
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
            Extent::Full => Slices {
                rounds,
                inserts: 1_000,
                gets: 400,
                seeks: 150,
                steps: 2_500,
                empties: 50,
            },
            Extent::Smoke => Slices {
                rounds: 4,
                inserts: 700,
                gets: 50,
                seeks: 20,
                steps: 200,
                empties: 3,
            },
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
        println!(
            "{}",
            resident_of(CANDIDATES[candidate % CANDIDATES.len()], entries)
        );
        return ExitCode::SUCCESS;
    }
    let slices = Slices::of(extent, arguments.rounds);
    let sections = arguments
        .entries
        .iter()
        .map(|entries| section(*entries, slices))
        .collect();
    let candidates = CANDIDATES.map(Make::name).to_vec();
    let record = arguments.record(candidates, slices.rounds, slices.steps, sections);
    let page = markdown(&record);
    println!("{page}");
    match arguments.save(extent, &record, &page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

fn filled_in_order(entries: u32, slices: Slices) -> Vec<Row> {
    let (filled, row) = fill(
        "insert in order",
        entries,
        Order::Ascending,
        Inputs::Owned,
        slices,
    );
    let mut rows = vec![row];
    rows.push(scans(
        "scan forward, filled in order",
        &filled,
        entries,
        Way::Forward,
        slices,
    ));
    rows.push(scans(
        "scan backward, filled in order",
        &filled,
        entries,
        Way::Backward,
        slices,
    ));
    rows
}

/// Measures all work at one size.
fn section(entries: u32, slices: Slices) -> Section {
    let mut rows = vec![empties(slices)];
    for (order, name) in [(Order::Ascending, "in order"), (Order::Random, "at random")] {
        let name = format!("insert {name}, rivals copy their input");
        rows.push(fill(&name, entries, order, Inputs::Borrowed, slices).1);
    }
    rows.extend(filled_in_order(entries, slices));
    let (filled, row) = fill(
        "insert at random",
        entries,
        Order::Random,
        Inputs::Owned,
        slices,
    );
    rows.push(row);
    let picks = |count: usize, seed: u64| rivals::picks(entries, count, SEED + seed);
    for (name, presence) in [("get hit", Presence::Hit), ("get miss", Presence::Miss)] {
        rows.push(turns(
            name,
            slices.rounds,
            slices.gets,
            |candidate, round| {
                filled[candidate].get(&picks(slices.gets / 2, 3_000 + round), presence);
                filled[candidate].get(&picks(slices.gets, round), presence)
            },
        ));
    }
    rows.push(turns(
        "seek + next 10",
        slices.rounds,
        slices.seeks,
        |candidate, round| {
            filled[candidate].seek(&picks(slices.seeks / 2, 4_000 + round));
            filled[candidate].seek(&picks(slices.seeks, 1_000 + round))
        },
    ));
    rows.push(scans(
        "scan forward, filled at random",
        &filled,
        entries,
        Way::Forward,
        slices,
    ));
    rows.push(scans(
        "scan backward, filled at random",
        &filled,
        entries,
        Way::Backward,
        slices,
    ));
    let counted = |candidate: usize| {
        filled[candidate]
            .allocated()
            .map(|bytes| bytes as f64 / f64::from(entries))
    };
    Section {
        entries: entries.into(),
        rows,
        counted: (0..CANDIDATES.len()).map(counted).collect(),
        resident: (0..CANDIDATES.len())
            .map(|candidate| resident_of_child(candidate, entries))
            .collect(),
        empty_bytes: Make::PROTECTED.table().allocated(),
        ..Section::default()
    }
}

/// Measures one row: each round gives each candidate one slice of the same work. Each round begins
/// with another candidate.
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
    Row {
        name: name.into(),
        nanoseconds,
        hash: format!("{hash:016x}"),
        ..Row::default()
    }
}

/// Fills all tables side by side, a slice each in turn, so that compared tables always have the
/// same size.
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
        let part = usize::try_from(round)
            .ok()
            .and_then(|round| parts.get(round));
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
        // Far enough from the end for all steps.
        let from = rivals::picks(entries / 2, 1, SEED + 2_000 + round)[0];
        let from = if way == Way::Forward {
            from
        } else {
            entries - 1 - from
        };
        filled[candidate].scan(from, steps, way)
    })
}

/// Making and dropping empty tables.
fn empties(slices: Slices) -> Row {
    turns(
        "make and drop an empty table",
        slices.rounds,
        slices.empties,
        |candidate, _| {
            let started = Instant::now();
            for _ in 0..slices.empties {
                std::hint::black_box(CANDIDATES[candidate].table());
            }
            Done {
                elapsed: started.elapsed().max(Duration::from_nanos(1)),
                hash: 0,
            }
        },
    )
}

/// Resident bytes per entry of a table in a process of its own. `None`: the system does not report
/// them.
fn resident_of_child(candidate: usize, entries: u32) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program)
        .args(["--memory", &format!("{candidate},{entries}")])
        .output()
        .ok()?;
    let bytes: f64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .ok()?;
    (bytes > 0.0).then(|| bytes / f64::from(entries))
}

/// Fills a table at random in small slices. Returns by how much the process has grown.
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

// The page: medians of ratios, and whether the targets were reached.

/// Columns in the order of the candidates: this crate with 0 protection bytes, with 8, with 8 and
/// checksums on seek, with order checks; then the two rivals.
const PLAIN: usize = 0;
const PROTECTED: usize = 1;
const ON_SEEK: usize = 2;
const ORDER_CHECKS: usize = 3;
const CROSSBEAM: usize = 4;
const BTREE: usize = 5;

/// How many times as fast as `rival` `ours` is.
fn speed(row: &Row, rival: usize, ours: usize) -> [f64; 3] {
    row.paired(rival, ours, |rival, ours| rival / ours)
}

/// How much longer `a` takes than `b`: in nanoseconds and in percent.
fn cost(row: &Row, a: usize, b: usize) -> String {
    let [_, added, _] = row.paired(a, b, |a, b| a - b);
    let [_, ratio, _] = row.paired(a, b, |a, b| a / b);
    format!("{added:+.0} ns, {:+.1} %", (ratio - 1.0) * 100.0)
}

/// The page of a record.
fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(record, &mut text);
    text
}

fn render(record: &Record, text: &mut String) -> std::fmt::Result {
    let Environment {
        processor,
        compiler,
        commit,
        command,
        date,
        ..
    } = &record.environment;
    writeln!(text, "# Results: `{command}`\n")?;
    writeln!(
        text,
        "- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, default target"
    )?;
    writeln!(
        text,
        "- commit: {commit}\n- 16-byte keys, 100-byte values, one thread"
    )?;
    writeln!(
        text,
        "- medians over {} rounds (inserts: slices) of the ratio inside a round; above 1 this crate is faster",
        record.rounds
    )?;
    for section in &record.sections {
        render_section(record, text, section)?;
    }
    Ok(())
}

fn render_section(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries\n", section.entries)?;
    writeln!(
        text,
        "Times in ns at protection 8; then how many times as fast this crate is, at 0 / 8 / 8 and checksums on seek.\n"
    )?;
    writeln!(
        text,
        "| work | ours | {0} | {1} | times {0} | times {1} |",
        record.candidates[CROSSBEAM], record.candidates[BTREE]
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for row in &section.rows {
        let time = |candidate: usize| quartiles(row.samples(candidate).to_vec())[1];
        let times = |rival: usize| {
            let ratios = [PLAIN, PROTECTED, ON_SEEK]
                .map(|candidate| format!("{:.2}", speed(row, rival, candidate)[1]));
            ratios.join(" / ")
        };
        let (ours, crossbeam, btree) = (time(PROTECTED), time(CROSSBEAM), time(BTREE));
        let times = format!("{} | {}", times(CROSSBEAM), times(BTREE));
        writeln!(
            text,
            "| {} | {ours:.0} | {crossbeam:.0} | {btree:.0} | {times} |",
            row.name
        )?;
    }
    writeln!(
        text,
        "\nSpread at protection 8, lower to upper quartile of the same ratios:\n"
    )?;
    writeln!(
        text,
        "| work | {} | {} |\n|---|---|---|",
        record.candidates[CROSSBEAM], record.candidates[BTREE]
    )?;
    for row in &section.rows {
        let spread = |rival: usize| {
            let [low, _, high] = speed(row, rival, PROTECTED);
            format!("{low:.2} to {high:.2}")
        };
        writeln!(
            text,
            "| {} | {} | {} |",
            row.name,
            spread(CROSSBEAM),
            spread(BTREE)
        )?;
    }
    render_budgets(text, section)?;
    render_costs(record, text, section)
}

fn render_costs(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries, what checks cost\n", section.entries)?;
    writeln!(
        text,
        "| work | protection 8 over 0 | checksum on seek over 8 | order checks over 0 |"
    )?;
    writeln!(text, "|---|---|---|---|")?;
    for row in &section.rows {
        let costs = [
            (PROTECTED, PLAIN),
            (ON_SEEK, PROTECTED),
            (ORDER_CHECKS, PLAIN),
        ];
        let costs = costs.map(|(a, b)| cost(row, a, b));
        writeln!(text, "| {} | {} |", row.name, costs.join(" | "))?;
    }
    writeln!(
        text,
        "\n## {} entries, bytes an entry (116 of them key and value)\n",
        section.entries
    )?;
    writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
    for (at, candidate) in record.candidates.iter().enumerate() {
        let of = |all: &[Option<f64>]| all.get(at).copied().flatten();
        let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
        writeln!(
            text,
            "| {candidate} | {} | {} |",
            bytes(of(&section.counted)),
            bytes(of(&section.resident))
        )?;
    }
    let hash = Record::hash(section, rivals::mix);
    writeln!(
        text,
        "\nHash of the work, the same for all tables: `{hash:016x}`"
    )
}

// The targets of the crate, and whether this run reached them.

/// One target about a row, by medians over the rounds.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// This crate is at least this many times as fast as crossbeam-skiplist, at 0 and at 8
    /// protection bytes.
    Ahead(f64),
    /// The cost of 8 protection bytes is at most this many nanoseconds.
    Added(f64),
    /// The ratio between two candidates is at most this.
    Ratio(usize, usize, f64, &'static str),
    /// With 8 protection bytes, the work takes at most this many nanoseconds.
    Within(f64),
}

const TARGETS: &[(&str, Target)] = &[
    ("make and drop an empty table", Target::Within(5_000.0)),
    ("insert in order", Target::Ahead(2.0)),
    ("insert at random", Target::Ahead(2.0)),
    ("get hit", Target::Ahead(1.5)),
    ("get miss", Target::Ahead(1.5)),
    ("scan forward, filled in order", Target::Ahead(2.0)),
    ("scan forward, filled at random", Target::Ahead(2.0)),
    ("scan backward, filled in order", Target::Ahead(2.0)),
    ("scan backward, filled at random", Target::Ahead(2.0)),
    ("insert in order", Target::Added(20.0)),
    ("get hit", Target::Added(20.0)),
    ("get miss", Target::Added(20.0)),
    ("scan forward, filled in order", Target::Added(15.0)),
    ("scan forward, filled at random", Target::Added(15.0)),
    (
        "insert at random",
        Target::Ratio(PROTECTED, PLAIN, 1.03, "protection 8 / 0"),
    ),
    (
        "get hit",
        Target::Ratio(ON_SEEK, PROTECTED, 1.10, "checksum on seek / protection 8"),
    ),
    (
        "get hit",
        Target::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none"),
    ),
    (
        "scan forward, filled in order",
        Target::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none"),
    ),
];

/// Whether a target was reached, in the words of the page.
fn verdict(kept: &[bool]) -> &'static str {
    if kept.iter().all(|kept| *kept) {
        "reached"
    } else {
        "**missed**"
    }
}

impl Target {
    /// The target, the measured figures, and the verdict.
    fn judge(self, row: &Row) -> (String, String, &'static str) {
        match self {
            Target::Ahead(wanted) => {
                let [plain, protected] =
                    [PLAIN, PROTECTED].map(|candidate| speed(row, CROSSBEAM, candidate)[1]);
                (
                    format!("{wanted:.1}x crossbeam-skiplist"),
                    format!("{plain:.2}x at 0, {protected:.2}x at 8"),
                    verdict(&[plain >= wanted, protected >= wanted]),
                )
            }
            Target::Added(most) => {
                let [_, added, _] = row.paired(PROTECTED, PLAIN, |a, b| a - b);
                (
                    format!("protection 8: +{most:.0} ns"),
                    format!("{added:+.1} ns"),
                    verdict(&[added <= most]),
                )
            }
            Target::Ratio(a, b, most, what) => {
                let [_, ratio, _] = row.paired(a, b, |a, b| a / b);
                (
                    format!("{what}: {most:.2}"),
                    format!("{ratio:.3}"),
                    verdict(&[ratio <= most]),
                )
            }
            Target::Within(most) => {
                let [_, time, _] = row.paired(PROTECTED, PROTECTED, |time, _| time);
                (
                    format!("{most:.0} ns"),
                    format!("{time:.0} ns"),
                    verdict(&[time <= most]),
                )
            }
        }
    }
}

/// The targets as a table.
fn render_budgets(text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries, budgets\n", section.entries)?;
    writeln!(text, "| work | wanted | measured | |\n|---|---|---|---|")?;
    for (name, target) in TARGETS {
        let Some(row) = section.rows.iter().find(|row| row.name == *name) else {
            continue;
        };
        let (wanted, measured, verdict) = target.judge(row);
        writeln!(text, "| {name} | {wanted} | {measured} | {verdict} |")?;
    }
    let empty = section.empty_bytes.unwrap_or(0);
    let kept = verdict(&[empty <= 16 << 10]);
    writeln!(
        text,
        "| empty table | 16384 bytes | {empty} bytes | {kept} |"
    )
}
