//! Tables to measure, what is done to them, and the record of it.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use measure::{Environment, Record, Row, Section, quartiles};
use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, TableReader};

use crate::Size;
use crate::rivals::{self, Arguments, Order};

pub(crate) const SEED: u64 = 4;
const VALUE: [u8; 100] = [7; 100];
/// Distance between the numbers of two entries: ranges fit between them.
pub(crate) const STRIDE: u64 = 16;

/// What finds an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finder {
    List,
    Directory,
}

/// A key of 16 bytes.
pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// An empty table, protected by 8 bytes a key; the write buffer fits `entries`.
pub(crate) fn table(entries: u32, finder: Finder) -> MemTable {
    let buffer = (u64::from(entries) * 160).next_power_of_two().max(1 << 20);
    let directory = if finder == Finder::Directory { Directory::On } else { Directory::Off };
    let options = MemTableOptions::builder().write_buffer_size(buffer).seed(SEED).directory(directory);
    MemTable::new(options.build().expect("valid options")).expect("memory")
}

/// Inserts entries in random order, with sequence numbers from 1. An entry's number is its place in the key space.
pub(crate) fn fill(table: &MemTable, entries: u32) {
    let mut writer = table.writer();
    for (sequence, entry) in (1u64..).zip(rivals::order(entries, Order::Random, SEED)) {
        writer.put(sequence, key(u64::from(entry) * STRIDE), VALUE).expect("room");
    }
}

pub(crate) fn filled(entries: u32, finder: Finder) -> MemTable {
    let table = table(entries, finder);
    fill(&table, entries);
    table
}

pub(crate) fn put(table: &MemTable, sequence: u64, number: u64) {
    table.put(sequence, key(number), VALUE).expect("room");
}

pub(crate) fn delete_range(table: &MemTable, sequence: u64, start: u64, end: u64) {
    table.delete_range(sequence, key(start), key(end)).expect("a tombstone");
}

/// The width of tombstones that stand at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Between two entries.
    Gap,
    /// Half of the distance to the next tombstone: every second entry is deleted.
    Half,
}

/// `count` tombstones over the whole key space, in random order, newer than the entries.
pub(crate) fn spread(table: &MemTable, entries: u32, count: u32, width: Width) {
    let step = u64::from(entries) / u64::from(count.max(1)) * STRIDE;
    let width = if width == Width::Gap { STRIDE / 2 } else { step / 2 };
    for (sequence, at) in (u64::from(entries) + 1..).zip(rivals::order(count, Order::Random, SEED)) {
        let start = u64::from(at) * step + 1;
        delete_range(table, sequence, start, start + width);
    }
}

/// The result of a get, as a number.
pub(crate) fn get(table: &TableReader, number: u64, snapshot: u64) -> u64 {
    match table.get(key(number), snapshot).expect("no damage") {
        Lookup::Value(value) => 1 + value.sequence(),
        Lookup::Deleted { sequence, .. } => 2 + sequence,
        _ => 0,
    }
}

/// Gets of random present keys. Returns the sum of what was found.
pub(crate) fn gets(table: &TableReader, entries: u32, count: usize, seed: u64) -> u64 {
    let picks = rivals::picks(entries, count, seed);
    let get = |entry: &u32| get(table, u64::from(*entry) * STRIDE, u64::MAX);
    picks.iter().map(get).fold(0, u64::wrapping_add)
}

// The record: what was done, how long it took, and the target.

/// All results of a run.
#[derive(Debug)]
pub(crate) struct Report {
    size: Size,
    /// Names of everything that took a turn, in any row.
    candidates: Vec<String>,
    /// A section a table, its title followed by its columns.
    sections: Vec<Section>,
    hash: u64,
}

impl Report {
    pub(crate) fn new(size: Size) -> Report {
        Report { size, candidates: Vec::new(), sections: Vec::new(), hash: 0 }
    }

    pub(crate) fn start_table(&mut self, title: &str, columns: &str) {
        let entries = self.size.entries.into();
        self.sections.push(Section { title: format!("{title}\n\n{columns}"), entries, ..Section::default() });
    }

    /// One line; `samples` are nanoseconds of one operation by candidate.
    pub(crate) fn line(
        &mut self,
        work: impl Into<String>,
        figures: impl Into<String>,
        target: impl Into<String>,
        samples: Vec<(String, Vec<f64>)>,
    ) {
        let mut row =
            Row { name: work.into(), figures: figures.into(), target: target.into(), ..Row::default() };
        eprintln!("{}: {}", row.name, row.figures);
        for (name, samples) in samples {
            let known = self.candidates.iter().position(|candidate| *candidate == name);
            let at = known.unwrap_or_else(|| {
                self.candidates.push(name);
                self.candidates.len() - 1
            });
            row.nanoseconds.resize(row.nanoseconds.len().max(at + 1), None);
            row.nanoseconds[at] = Some(samples);
        }
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(row);
        }
    }

    /// Adds a sum over what was read to the hash of the work.
    pub(crate) fn saw(&mut self, sum: u64) {
        self.hash = rivals::mix(self.hash ^ sum);
    }

    /// The record, once everything is measured.
    pub(crate) fn record(mut self, arguments: &Arguments) -> Record {
        if let Some(row) = self.sections.last_mut().and_then(|section| section.rows.last_mut()) {
            row.hash = format!("{:016x}", self.hash);
        }
        arguments.record(self.candidates, self.size.rounds, self.size.slice, self.sections)
    }
}

/// The page of a record.
pub(crate) fn markdown(record: &Record) -> String {
    let Environment { processor, compiler, commit, command, date, .. } = &record.environment;
    let entries = record.sections.first().map_or(0, |section| section.entries);
    let mut text = format!(
        "# Results: `{command}`\n\n- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, \
         default target\n- commit: {commit}\n- 16-byte keys, 100-byte values, {entries} entries inserted at random, \
         protection 8, medians over {} rounds\n",
        record.rounds
    );
    for section in &record.sections {
        let columns = section.title.lines().last().unwrap_or_default();
        let count = columns.matches('|').count().saturating_sub(1);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n|{}\n", section.title, "---|".repeat(count));
        for row in &section.rows {
            let _ = writeln!(text, "| {} | {} | {} |", row.name, row.figures, row.target);
        }
    }
    let mut hash = record.sections.iter().flat_map(|section| &section.rows).map(|row| row.hash.as_str());
    let _ = writeln!(text, "\nHash of the work: `{}`", hash.next_back().unwrap_or_default());
    text
}

/// A candidate: a name, and work that returns a sum over what it read.
pub(crate) type Candidate<'w> = (&'static str, Box<dyn FnMut(u64) -> u64 + 'w>);

/// Nanoseconds of one operation by candidate, with the candidates' names. Each round gives each candidate one slice
/// of the same work.
pub(crate) fn turns(
    report: &mut Report,
    rounds: usize,
    ops: usize,
    candidates: &mut [Candidate<'_>],
) -> Vec<(String, Vec<f64>)> {
    let mut samples: Vec<(String, Vec<f64>)> =
        candidates.iter().map(|(name, _)| ((*name).into(), Vec::with_capacity(rounds))).collect();
    let mut sum = 0u64;
    // The first round warms up.
    for round in 0..=rounds {
        for turn in 0..candidates.len() {
            let candidate = (round + turn) % candidates.len();
            let started = Instant::now();
            sum = sum.wrapping_add(black_box(candidates[candidate].1(round as u64)));
            if round > 0 {
                samples[candidate].1.push(started.elapsed().as_secs_f64() * 1e9 / ops.max(1) as f64);
            }
        }
    }
    report.saw(sum);
    samples
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    quartiles(samples.to_vec())[1]
}

/// The median over the rounds of a figure made of two candidates' times.
pub(crate) fn paired(a: &[f64], b: &[f64], how: impl Fn(f64, f64) -> f64) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| how(*a, *b)).collect::<Vec<_>>())
}

/// The first candidate against the second one: times, ratio, difference.
pub(crate) fn against(with: &[f64], without: &[f64]) -> String {
    format!(
        "{:.0} ns against {:.0}: {:.2} x, {:+.0} ns",
        median(with),
        median(without),
        paired(with, without, |with, without| with / without),
        paired(with, without, |with, without| with - without)
    )
}
