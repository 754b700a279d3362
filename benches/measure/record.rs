//! The record: every figure that was measured. As JSON it is kept beside the page that a person reads.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;

/// Everything that one run measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// The program that made it.
    #[serde(default = "of_peers")]
    pub program: String,
    /// The environment in which it ran.
    pub environment: Environment,
    /// Bytes of a key.
    pub keys: usize,
    /// Bytes of a value.
    pub values: usize,
    /// Threads that worked at once.
    pub threads: usize,
    /// Rounds in which the candidates took turns.
    pub rounds: usize,
    /// Most operations of a turn.
    pub slice: usize,
    /// The candidates that took turns, by name. Older records name this field differently.
    #[serde(alias = "lanes")]
    pub candidates: Vec<String>,
    /// One a size, or one a subject.
    pub sections: Vec<Section>,
}

/// The program of old records that do not name one.
fn of_peers() -> String {
    "peers".into()
}

/// One size, or one subject.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Section {
    /// What it is about, if it differs from other sections in more than its size.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Entries of the tables.
    pub entries: u64,
    /// One a kind of work.
    pub rows: Vec<Row>,
    /// Bytes per entry that the table counts, by candidate.
    #[serde(default)]
    pub counted: Vec<Option<f64>>,
    /// The growth of a process in bytes per entry, by candidate.
    #[serde(default)]
    pub resident: Vec<Option<f64>>,
    /// The bytes that an empty table of this crate counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_bytes: Option<u64>,
}

/// One kind of work, measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// Nanoseconds of one operation, by candidate and round; `None` where a candidate has no such work.
    pub nanoseconds: Vec<Option<Vec<f64>>>,
    /// A hash of all that was read, equal for all candidates.
    #[serde(default)]
    pub hash: String,
    /// The row's figures on the page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub figures: String,
    /// The target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
}

/// Lower quartile, median, upper quartile.
pub fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    [1, 2, 3].map(|quarter| samples.get(last * quarter / 4).copied().unwrap_or(f64::NAN))
}

impl Row {
    /// A candidate's time in each round; empty if it has no such work.
    pub fn samples(&self, candidate: usize) -> &[f64] {
        self.nanoseconds.get(candidate).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Quartiles over the rounds of a figure made from two candidates.
    pub fn paired(&self, a: usize, b: usize, how: impl Fn(f64, f64) -> f64) -> [f64; 3] {
        quartiles(self.samples(a).iter().zip(self.samples(b)).map(|(a, b)| how(*a, *b)).collect())
    }
}

impl Section {
    /// A row's samples of a candidate, both by name.
    fn samples(&self, candidates: &[String], row: &str, candidate: &str) -> Option<&Vec<f64>> {
        let at = candidates.iter().position(|name| name == candidate)?;
        self.rows.iter().find(|found| found.name == row)?.nanoseconds.get(at)?.as_ref()
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

    /// Median nanoseconds of an operation.
    pub fn time(&self, candidates: &[String], row: &str, candidate: &str) -> Option<f64> {
        Some(quartiles(self.samples(candidates, row, candidate)?.clone())[1])
    }
}

impl Record {
    /// The hash of all rows, folded by `mix`.
    pub fn hash(section: &Section, mix: impl Fn(u64) -> u64) -> u64 {
        let number = |row: &Row| u64::from_str_radix(&row.hash, 16).unwrap_or(0);
        section.rows.iter().fold(0, |hash, row| mix(hash ^ number(row)))
    }

    /// Writes the page and the figures. Returns the path of both without the extension.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, stem: &str, page: &str) -> std::io::Result<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/records");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{stem}.json")), serde_json::to_string(self)? + "\n")?;
        std::fs::write(folder.join(format!("{stem}.md")), page)?;
        Ok(folder.join(stem))
    }
}
