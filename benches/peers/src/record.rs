//! The record: medians of ratios as Markdown, every figure behind them as JSON, and a plot.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::rivals::Candidate;
use crate::turns::Row;
use crate::work::mix;
use crate::{Arguments, budgets, plot};

/// Everything that was measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub environment: Environment,
    pub keys: usize,
    pub values: usize,
    pub threads: usize,
    pub rounds: usize,
    pub slice: usize,
    /// Older records say it by another name.
    #[serde(alias = "lanes")]
    pub candidates: Vec<String>,
    pub sections: Vec<Section>,
}

/// One size.
#[derive(Debug, Serialize, Deserialize)]
pub struct Section {
    pub entries: u64,
    pub rows: Vec<Row>,
    /// Bytes an entry that the table counts, and by how much a process grew, by candidate.
    pub counted: Vec<Option<f64>>,
    pub resident: Vec<Option<f64>>,
}

/// Lower quartile, median, upper quartile.
pub fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    [1, 2, 3].map(|quarter| samples.get(last * quarter / 4).copied().unwrap_or(f64::NAN))
}

impl Section {
    fn samples(&self, candidates: &[String], row: &str, candidate: &str) -> Option<&Vec<f64>> {
        let at = candidates.iter().position(|name| name == candidate)?;
        self.rows.iter().find(|candidate| candidate.name == row)?.nanoseconds[at].as_ref()
    }

    /// Quartiles over the rounds of a figure made from two candidates of a row.
    pub fn paired(
        &self,
        candidates: &[String],
        row: &str,
        pair: (&str, &str),
        how: impl Fn(f64, f64) -> f64,
    ) -> Option<[f64; 3]> {
        let (a, b) = (self.samples(candidates, row, pair.0)?, self.samples(candidates, row, pair.1)?);
        Some(quartiles(a.iter().zip(b).map(|(a, b)| how(*a, *b)).collect()))
    }

    /// How many times as fast `ours` is as `rival`.
    pub fn speed(&self, candidates: &[String], row: &str, rival: &str, ours: &str) -> Option<[f64; 3]> {
        self.paired(candidates, row, (rival, ours), |rival, ours| rival / ours)
    }

    /// Nanoseconds of an operation, the median.
    pub fn time(&self, candidates: &[String], row: &str, candidate: &str) -> Option<f64> {
        Some(quartiles(self.samples(candidates, row, candidate)?.clone())[1])
    }
}

/// Rivals that are set against ours at protection 0, 8 and 8 with checksums on seek.
pub const PAIRS: [(&str, [&str; 3]); 6] = [
    ("rocksdb", ["rocksdb-0", "rocksdb-8", "rocksdb-8-on-seek"]),
    ("crossbeam-skiplist", ["crossbeam-skiplist"; 3]),
    ("arenaskiplist", ["arenaskiplist"; 3]),
    ("skl", ["skl"; 3]),
    ("artmap", ["artmap"; 3]),
    ("btreemap-rwlock", ["btreemap-rwlock"; 3]),
];
pub const OURS: [&str; 3] = ["ours-0", "ours-8", "ours-8-on-seek"];

impl Record {
    pub fn new(arguments: &Arguments, candidates: &[Candidate], sections: Vec<Section>) -> Record {
        Record {
            environment: Environment::here(arguments.date.as_deref()),
            keys: arguments.keys.len(),
            values: arguments.values,
            threads: arguments.threads,
            rounds: arguments.rounds,
            slice: arguments.slice,
            candidates: candidates.iter().map(|candidate| candidate.name()).collect(),
            sections,
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.render(&mut text);
        text
    }

    fn render(&self, text: &mut String) -> std::fmt::Result {
        let Environment { processor, compiler, commit, command, date, rust_flags, cxx_flags } =
            &self.environment;
        writeln!(text, "# Rivals side by side\n")?;
        writeln!(
            text,
            "- command, from benches/peers: `{command}`\n- date: {date}\n- processor: {processor}"
        )?;
        writeln!(text, "- commit: {commit}\n- Rust: {compiler}, {rust_flags}\n- RocksDB: {cxx_flags}")?;
        writeln!(
            text,
            "- keys of {} bytes, values of {}, threads: {}",
            self.keys, self.values, self.threads
        )?;
        let clock = if self.threads == 1 { "processor time of the thread" } else { "time on the wall" };
        writeln!(
            text,
            "- at least {} rounds of slices of at most {} operations in turn; {clock}",
            self.rounds, self.slice
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
        for section in &self.sections {
            self.ratios(text, section)?;
            budgets::render(text, &self.candidates, section)?;
            self.times(text, section)?;
            self.memory(text, section)?;
        }
        Ok(())
    }

    /// Who has a candidate in this record.
    fn rivals(&self) -> Vec<&'static (&'static str, [&'static str; 3])> {
        let there = |candidate: &str| self.candidates.iter().any(|name| name == candidate);
        PAIRS.iter().filter(|(_, candidates)| candidates.iter().any(|candidate| there(candidate))).collect()
    }

    fn ratios(&self, text: &mut String, section: &Section) -> std::fmt::Result {
        writeln!(text, "\n## {} entries: how many times as fast this crate is\n", section.entries)?;
        writeln!(
            text,
            "Medians over the rounds, at protection 0 / 8 / 8 with checksums on seek (RocksDB set the same"
        )?;
        writeln!(text, "way); in brackets the quartiles at protection 8. Above 1 this crate is faster.\n")?;
        let rivals = self.rivals();
        let heads: Vec<&str> = rivals.iter().map(|(name, _)| *name).collect();
        writeln!(text, "| work | {} |\n|---{}|", heads.join(" | "), "|---".repeat(heads.len()))?;
        for row in &section.rows {
            let cells: Vec<String> =
                rivals.iter().map(|(_, candidates)| self.cell(section, &row.name, candidates)).collect();
            writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
        }
        Ok(())
    }

    /// Medians at the three settings, and the spread of the middle one.
    pub fn cell(&self, section: &Section, row: &str, rival: &[&str; 3]) -> String {
        let speeds: Vec<Option<[f64; 3]>> = rival
            .iter()
            .zip(OURS)
            .map(|(rival, ours)| section.speed(&self.candidates, row, rival, ours))
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

    fn times(&self, text: &mut String, section: &Section) -> std::fmt::Result {
        writeln!(text, "\n## {} entries: nanoseconds of an operation, medians\n", section.entries)?;
        writeln!(
            text,
            "| work | {} |\n|---{}|",
            self.candidates.join(" | "),
            "|---".repeat(self.candidates.len())
        )?;
        for row in &section.rows {
            let cells: Vec<String> = row
                .nanoseconds
                .iter()
                .map(|samples| {
                    samples
                        .as_ref()
                        .map_or("-".into(), |samples| format!("{:.0}", quartiles(samples.clone())[1]))
                })
                .collect();
            writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
        }
        Ok(())
    }

    fn memory(&self, text: &mut String, section: &Section) -> std::fmt::Result {
        let (entries, payload) = (section.entries, self.keys + self.values);
        writeln!(text, "\n## {entries} entries: bytes an entry, {payload} of them key and value\n")?;
        writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
        let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
        for (at, candidate) in self.candidates.iter().enumerate() {
            let of = |all: &[Option<f64>]| bytes(all.get(at).copied().flatten());
            writeln!(text, "| {candidate} | {} | {} |", of(&section.counted), of(&section.resident))?;
        }
        let number = |row: &Row| u64::from_str_radix(&row.hash, 16).unwrap_or(0);
        let hash = section.rows.iter().fold(0, |hash, row| mix(hash ^ number(row)));
        writeln!(text, "\nHash of the work, the same for all tables: `{hash:016x}`")
    }

    /// Writes Markdown, JSON and a plot for each size: where.
    pub fn write(&self, stem: &str) -> anyhow::Result<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{stem}.json")), serde_json::to_string(self)? + "\n")?;
        let mut text = self.markdown();
        for section in &self.sections {
            let name = format!("{stem}-{}.svg", section.entries);
            std::fs::write(folder.join(&name), plot::bars(&self.candidates, section))?;
            writeln!(text, "\n![{} entries]({name})", section.entries)?;
        }
        std::fs::write(folder.join(format!("{stem}.md")), text)?;
        Ok(format!("{}/{stem}.md, .json and .svg", folder.display()))
    }
}
