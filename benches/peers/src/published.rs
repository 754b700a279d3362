//! Runs the published command lines of five changes of RocksDB through the example db_bench. If
//! another db_bench is given, both take turns. Keeps what they print.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context, ensure};
use measure::Environment;
use serde::{Deserialize, Serialize};

use crate::record;

/// The arguments of `published`.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The day of the record. Without a day no record is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "published")]
    name: String,
    /// Only these changes (10281, 13902, 9453, 10380, 9069).
    #[arg(long, value_delimiter = ',')]
    changes: Vec<String>,
    /// Divides the numbers of keys, reads and writes of the command lines.
    #[arg(long, default_value_t = 1)]
    divide: u64,
    /// Number of runs of each command line.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// RocksDB's db_bench, to run beside this repository's.
    #[arg(long)]
    rocksdb: Option<PathBuf>,
    /// This repository's db_bench (default: the release build of the example).
    #[arg(long)]
    ours: Option<PathBuf>,
    /// The folder of the databases (default: under the temporary directory).
    #[arg(long)]
    place: Option<PathBuf>,
}

impl Arguments {
    /// The command that repeats the run, without the paths of programs and databases.
    fn repeatable(&self) -> String {
        let mut words = format!(
            "cargo run --release -- published --divide {} --rounds {}",
            self.divide, self.rounds
        );
        if !self.changes.is_empty() {
            words.push_str(&format!(" --changes {}", self.changes.join(",")));
        }
        if self.rocksdb.is_some() {
            words.push_str(" --rocksdb db_bench");
        }
        if let Some(date) = &self.date {
            words.push_str(&format!(" --date {date} --name {}", self.name));
        }
        words
    }
}

/// The figures of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Published {
    pub environment: Environment,
    pub divided_by: u64,
    pub rounds: usize,
    /// The load before and after the run (processes that want a processor, averaged over a minute).
    /// `None`: the system does not report it.
    #[serde(default)]
    pub load: Option<[f64; 2]>,
    /// The program of each candidate, by the name that it prints.
    #[serde(alias = "lanes")]
    pub candidates: Vec<String>,
    pub commands: Vec<Measured>,
}

/// The load of the machine over the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The figures of one command line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub change: String,
    pub words: String,
    /// Words that were added to make it smaller.
    pub added: String,
    /// By candidate. `None`: the program refused the command line.
    pub results: Vec<Option<Vec<Results>>>,
}

/// The command lines: change and words. The middle column is for short runs of the tests.
fn commands() -> Vec<(&'static str, &'static str)> {
    let text = include_str!("../../../tools/db_bench/published.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some((line.split(" | ").next()?, line.split(" | ").nth(2)?)))
        .collect()
}

/// The words that divide the numbers of a command line.
fn smaller(words: &str, divide: u64) -> String {
    let mut added = Vec::new();
    for word in words.split_whitespace() {
        let Some((name, value)) = word.trim_start_matches('-').split_once('=') else {
            continue;
        };
        if let (true, Ok(value)) = (
            ["num", "reads", "writes"].contains(&name),
            value.parse::<u64>(),
        ) {
            added.push(format!("--{name}={}", (value / divide).max(1)));
        }
    }
    if divide > 1 {
        added.join(" ")
    } else {
        String::new()
    }
}

/// The results of one program. `None`: it refused.
fn measure(
    program: &Path,
    words: &str,
    added: &str,
    more: &[String],
) -> anyhow::Result<Option<Vec<Results>>> {
    let mut process = Process::new(program);
    process
        .args(words.split_whitespace())
        .args(added.split_whitespace())
        .args(more);
    let output = process
        .output()
        .with_context(|| program.display().to_string())?;
    let results = results_in(&String::from_utf8_lossy(&output.stdout));
    Ok((output.status.success() && !results.is_empty()).then_some(results))
}

/// Adds the figures of another round.
fn join(all: &mut Option<Vec<Results>>, round: Option<Vec<Results>>) {
    match (all.as_mut(), round) {
        (None, round) => *all = round,
        (Some(all), Some(round)) => {
            for (mine, new) in all.iter_mut().zip(round) {
                mine.micros.extend(new.micros);
                mine.rates.extend(new.rates);
                mine.speeds.extend(new.speeds);
            }
        }
        _ => {}
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(
        arguments.divide > 0 && arguments.rounds > 0,
        "--divide, --rounds: at least 1"
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ours = arguments
        .ours
        .clone()
        .unwrap_or_else(|| root.join("target/release/examples/db_bench"));
    ensure!(
        ours.is_file(),
        "{} is not there: cargo build --release --example db_bench",
        ours.display()
    );
    let place = arguments.place.clone().unwrap_or_else(std::env::temp_dir);
    let mut programs = vec![(ours, "this crate".to_owned())];
    if let Some(rocksdb) = &arguments.rocksdb {
        let version = Process::new(rocksdb)
            .arg("--version")
            .output()
            .context("--rocksdb")?;
        let version = String::from_utf8_lossy(&version.stdout)
            .trim()
            .replace("db_bench version", "RocksDB");
        programs.push((rocksdb.clone(), version));
    }
    let before = load();
    let mut measured = Vec::new();
    let asked = |change: &str| {
        arguments.changes.is_empty() || arguments.changes.iter().any(|part| part == change)
    };
    for (change, words) in commands().into_iter().filter(|(change, _)| asked(change)) {
        eprintln!("{change}: {words}");
        let added = smaller(words, arguments.divide);
        let mut results = vec![None; programs.len()];
        for _ in 0..arguments.rounds {
            for (at, (program, _)) in programs.iter().enumerate() {
                let db = place.join(format!("published-db-bench-{at}"));
                let mut more = vec![format!("--db={}", db.display())];
                if at > 0 {
                    // That build has no Snappy.
                    more.push("--compression_type=none".into());
                }
                join(&mut results[at], measure(program, words, &added, &more)?);
            }
        }
        measured.push(Measured {
            change: change.into(),
            words: words.into(),
            added,
            results,
        });
    }
    let mut environment = record::environment(arguments.date.as_deref());
    environment.command = arguments.repeatable();
    let record = Published {
        environment,
        divided_by: arguments.divide,
        rounds: arguments.rounds,
        load: before.zip(load()).map(|(before, after)| [before, after]),
        candidates: programs.into_iter().map(|(_, name)| name).collect(),
        commands: measured,
    };
    let text = serde_json::to_string(&record)? + "\n";
    match &arguments.date {
        None => println!("{text}"),
        Some(date) => {
            let path = root
                .join("benches/records")
                .join(format!("{date}-{}.json", arguments.name));
            std::fs::write(&path, text)?;
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(())
}

// Reads the result lines of db_bench, as scripts for RocksDB's do.
//
// ```text
//   readrandom   :       0.904 micros/op 1104728 ops/sec 0.018 seconds 20000 operations;   75.8 MB/s (12409 of ...
// ```

/// The results of one benchmark, one figure per run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    pub benchmark: String,
    pub micros: Vec<f64>,
    pub rates: Vec<f64>,
    /// MB/s; empty if the benchmark counts no bytes.
    pub speeds: Vec<f64>,
}

/// All result lines of an output, by benchmark, in their order. Lines of averages are left out.
pub fn results_in(output: &str) -> Vec<Results> {
    let mut all: Vec<Results> = Vec::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, ":", micros, "micros/op", rate, "ops/sec", rest @ ..] = fields.as_slice() else {
            continue;
        };
        let (Ok(micros), Ok(rate)) = (micros.parse(), rate.parse()) else {
            continue;
        };
        if !all.iter().any(|results| results.benchmark == *name) {
            all.push(Results {
                benchmark: (*name).to_owned(),
                ..Results::default()
            });
        }
        if let Some(results) = all.iter_mut().find(|results| results.benchmark == *name) {
            results.micros.push(micros);
            results.rates.push(rate);
            let unit = rest.iter().position(|word| *word == "MB/s");
            results
                .speeds
                .extend(unit.and_then(|at| rest.get(at.checked_sub(1)?)?.parse::<f64>().ok()));
        }
    }
    all
}
