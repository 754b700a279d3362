//! Shared by all measuring programs: the environment of a run, the form of a record, and the keys
//! that engines have.

#![forbid(unsafe_code)]

pub mod keys;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

// The record: every figure that was measured. It is kept as JSON beside the page for readers.

/// All figures of one run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// The program that made the record.
    #[serde(default = "of_peers")]
    pub program: String,
    /// The environment in which it ran.
    pub environment: Environment,
    /// Bytes of a key. Sections may have others.
    pub keys: usize,
    /// Bytes of a value.
    pub values: usize,
    /// Number of threads that worked at once.
    pub threads: usize,
    /// Number of rounds in which the candidates took turns.
    pub rounds: usize,
    /// Most operations of a turn.
    pub slice: usize,
    /// The candidates that took turns, by name. Older records name this field differently.
    #[serde(alias = "lanes")]
    pub candidates: Vec<String>,
    /// One section for each size, or for each subject.
    pub sections: Vec<Section>,
}

/// The program of old records, which do not name it.
fn of_peers() -> String {
    "peers".into()
}

/// The figures of one size or one subject.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Section {
    /// Its topic, if it differs from other sections in more than its size.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Number of entries of the tables.
    pub entries: u64,
    /// Bytes of a key, if they differ from the record's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<usize>,
    /// One row for each kind of work.
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

/// The figures of one kind of work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// The name of the work.
    pub name: String,
    /// Nanoseconds of one operation, by candidate and round. `None`: the candidate cannot do this
    /// work.
    pub nanoseconds: Vec<Option<Vec<f64>>>,
    /// A hash of all that was read, which is equal for all candidates.
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
    /// A candidate's time in each round; empty if it cannot do this work.
    pub fn samples(&self, candidate: usize) -> &[f64] {
        self.nanoseconds
            .get(candidate)
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }

    /// Quartiles over the rounds of a figure made from two candidates.
    pub fn paired(&self, a: usize, b: usize, how: impl Fn(f64, f64) -> f64) -> [f64; 3] {
        quartiles(
            self.samples(a)
                .iter()
                .zip(self.samples(b))
                .map(|(a, b)| how(*a, *b))
                .collect(),
        )
    }
}

impl Section {
    /// The samples of a row and a candidate, both by name.
    fn samples(&self, candidates: &[String], row: &str, candidate: &str) -> Option<&Vec<f64>> {
        let at = candidates.iter().position(|name| name == candidate)?;
        self.rows
            .iter()
            .find(|found| found.name == row)?
            .nanoseconds
            .get(at)?
            .as_ref()
    }

    /// Quartiles over the rounds of a figure made from two candidates of a row.
    pub fn paired(
        &self,
        candidates: &[String],
        row: &str,
        pair: (&str, &str),
        how: impl Fn(f64, f64) -> f64,
    ) -> Option<[f64; 3]> {
        let (a, b) = (
            self.samples(candidates, row, pair.0)?,
            self.samples(candidates, row, pair.1)?,
        );
        Some(quartiles(
            a.iter().zip(b).map(|(a, b)| how(*a, *b)).collect(),
        ))
    }

    /// How many times as fast as `rival` `ours` is.
    pub fn speed(
        &self,
        candidates: &[String],
        row: &str,
        rival: &str,
        ours: &str,
    ) -> Option<[f64; 3]> {
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
        section
            .rows
            .iter()
            .fold(0, |hash, row| mix(hash ^ number(row)))
    }

    /// Writes the page and the figures. Returns the path of both without the extension.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self, stem: &str, page: &str) -> std::io::Result<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(
            folder.join(format!("{stem}.json")),
            serde_json::to_string(self)? + "\n",
        )?;
        std::fs::write(folder.join(format!("{stem}.md")), page)?;
        Ok(folder.join(stem))
    }
}

// The environment of a record: machine and build.

/// The machine, build and command of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name, its threads and its architecture.
    pub processor: String,
    /// The output of `rustc --version`.
    pub compiler: String,
    /// The commit that was measured, and whether the tree had changes.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// The day, from the command line.
    pub date: String,
    /// Compiler flags of the crate and its Rust rivals, if they are not cargo's profile for
    /// benches.
    #[serde(default)]
    pub rust_flags: String,
    /// Compiler flags of rivals in C++.
    #[serde(default)]
    pub cxx_flags: String,
}

impl Environment {
    /// Describes this machine and this build. The arguments of this program are appended to
    /// `command`.
    pub fn here(command: &str, date: Option<&str>) -> Environment {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]);
        let changed = if changed.is_some_and(|text| !text.is_empty()) {
            " with changes"
        } else {
            ""
        };
        let commit =
            said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
        let words: Vec<String> = std::env::args()
            .skip(1)
            .filter(|word| word != "--bench")
            .collect();
        let words = if words.is_empty() {
            String::new()
        } else {
            format!(" -- {}", words.join(" "))
        };
        Environment {
            processor: format!(
                "{}, {threads} threads, {}",
                processor(),
                std::env::consts::ARCH
            ),
            compiler: said("rustc", &["--version"]).unwrap_or_else(|| "unknown".into()),
            commit: format!("{commit}{changed}"),
            command: format!("{command}{words}"),
            date: date.unwrap_or("not given").to_owned(),
            rust_flags: String::new(),
            cxx_flags: String::new(),
        }
    }
}

fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(
        || "unknown processor".into(),
        |(_, name)| name.trim().into(),
    )
}

/// The output of a program, if it succeeds.
pub fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Bytes of this process in memory; 0 if `/proc` does not report them.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
