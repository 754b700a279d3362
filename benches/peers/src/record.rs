//! The record: medians of ratios as Markdown, every figure behind them as JSON, and a plot.

use std::fmt::Write;

use measure::environment::Environment;
use measure::record::{Record, Section, quartiles};

use crate::rivals::Candidate;
use crate::work::mix;
use crate::{Arguments, budgets, environment, plot};

/// Rivals, each with the candidates of this crate that it is compared with: protection 0, 8, and 8 with checksums on
/// seek.
pub const PAIRS: [(&str, [&str; 3]); 6] = [
    ("rocksdb", ["rocksdb-0", "rocksdb-8", "rocksdb-8-on-seek"]),
    ("crossbeam-skiplist", ["crossbeam-skiplist"; 3]),
    ("arenaskiplist", ["arenaskiplist"; 3]),
    ("skl", ["skl"; 3]),
    ("artmap", ["artmap"; 3]),
    ("btreemap-rwlock", ["btreemap-rwlock"; 3]),
];
pub const OURS: [&str; 3] = ["ours-0", "ours-8", "ours-8-on-seek"];

/// The record of a run.
pub fn of(arguments: &Arguments, candidates: &[Candidate], sections: Vec<Section>) -> Record {
    Record {
        program: "peers".into(),
        environment: environment::here(arguments.date.as_deref()),
        keys: arguments.keys.len(),
        values: arguments.values,
        threads: arguments.threads,
        rounds: arguments.rounds,
        slice: arguments.slice,
        candidates: candidates.iter().map(|candidate| candidate.name()).collect(),
        sections,
    }
}

pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(record, &mut text);
    text
}

fn render(record: &Record, text: &mut String) -> std::fmt::Result {
    let Environment { processor, compiler, commit, command, date, rust_flags, cxx_flags } =
        &record.environment;
    writeln!(text, "# Rivals side by side\n")?;
    writeln!(text, "- command, from benches/peers: `{command}`\n- date: {date}\n- processor: {processor}")?;
    writeln!(text, "- commit: {commit}\n- Rust: {compiler}, {rust_flags}\n- RocksDB: {cxx_flags}")?;
    writeln!(
        text,
        "- keys of {} bytes, values of {}, threads: {}",
        record.keys, record.values, record.threads
    )?;
    let clock = if record.threads == 1 { "processor time of the thread" } else { "time on the wall" };
    writeln!(
        text,
        "- at least {} rounds of slices of at most {} operations in turn; {clock}",
        record.rounds, record.slice
    )?;
    writeln!(
        text,
        "- new memory for inserts was touched and given back before, so that no slice waits for a host"
    )?;
    writeln!(
        text,
        "- RocksDB verifies an insert only in the candidate `promise`, ours always; its get copies the value,"
    )?;
    writeln!(
        text,
        "  ours lends it verified; owning rivals copy key and value as they insert, probes are made before"
    )?;
    for section in &record.sections {
        writeln!(text, "\n## {} entries: how many times as fast this crate is\n", section.entries)?;
        ratios(text, record, section)?;
        budgets::render(text, &record.candidates, section)?;
        times(record, text, section)?;
        memory(record, text, section)?;
    }
    Ok(())
}

/// The rivals of which this record has a candidate.
fn rivals(record: &Record) -> Vec<&'static (&'static str, [&'static str; 3])> {
    let there = |candidate: &str| record.candidates.iter().any(|name| name == candidate);
    PAIRS.iter().filter(|(_, candidates)| candidates.iter().any(|candidate| there(candidate))).collect()
}

/// Every measured row of a section against every rival.
pub fn ratios(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    writeln!(
        text,
        "Medians over the rounds, at protection 0 / 8 / 8 with checksums on seek, RocksDB set likewise; in brackets the quartiles at"
    )?;
    writeln!(text, "protection 8. Above 1 this crate is faster.\n")?;
    let rivals = rivals(record);
    let heads: Vec<&str> = rivals.iter().map(|(name, _)| *name).collect();
    writeln!(text, "| work | {} |\n|---{}|", heads.join(" | "), "|---".repeat(heads.len()))?;
    for row in &section.rows {
        let cells: Vec<String> =
            rivals.iter().map(|(_, candidates)| cell(record, section, &row.name, candidates)).collect();
        if cells.iter().any(|cell| cell != "-") {
            writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
        }
    }
    Ok(())
}

/// Medians at the three settings, and the spread of the middle one.
pub fn cell(record: &Record, section: &Section, row: &str, rival: &[&str; 3]) -> String {
    let speeds: Vec<Option<[f64; 3]>> = rival
        .iter()
        .zip(OURS)
        .map(|(rival, ours)| section.speed(&record.candidates, row, rival, ours))
        .collect();
    if speeds.iter().all(Option::is_none) {
        return "-".into();
    }
    let medians: Vec<String> = speeds
        .iter()
        .map(|speed| speed.map_or("-".into(), |[_, median, _]| format!("{median:.2}")))
        .collect();
    let spread = speeds[1].map_or(String::new(), |[low, _, high]| format!(" ({low:.2}..{high:.2})"));
    format!("{}{spread}", medians.join(" / "))
}

fn times(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries: nanoseconds of an operation, medians\n", section.entries)?;
    writeln!(
        text,
        "| work | {} |\n|---{}|",
        record.candidates.join(" | "),
        "|---".repeat(record.candidates.len())
    )?;
    for row in &section.rows {
        let cells: Vec<String> = row
            .nanoseconds
            .iter()
            .map(|samples| {
                samples.as_ref().map_or("-".into(), |samples| format!("{:.0}", quartiles(samples.clone())[1]))
            })
            .collect();
        writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}

fn memory(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    let (entries, payload) = (section.entries, record.keys + record.values);
    writeln!(text, "\n## {entries} entries: bytes an entry, {payload} of them key and value\n")?;
    writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
    for (at, candidate) in record.candidates.iter().enumerate() {
        let of = |all: &[Option<f64>]| bytes(all.get(at).copied().flatten());
        writeln!(text, "| {candidate} | {} | {} |", of(&section.counted), of(&section.resident))?;
    }
    let hash = Record::hash(section, mix);
    writeln!(text, "\nHash of the work, the same for all tables: `{hash:016x}`")
}

/// Writes Markdown, JSON and a plot for each size. Returns where.
pub fn write(record: &Record, stem: &str) -> anyhow::Result<String> {
    let mut page = markdown(record);
    let mut plots = Vec::new();
    for section in &record.sections {
        let name = format!("{stem}-{}.svg", section.entries);
        writeln!(page, "\n![{} entries]({name})", section.entries)?;
        plots.push((name, plot::bars(&record.candidates, section)));
    }
    let path = record.save(stem, &page)?;
    for (name, plot) in plots {
        std::fs::write(path.with_file_name(name), plot)?;
    }
    Ok(format!("{}.md, .json and .svg", path.display()))
}
