//! Runs the trials of one operation on as many threads as wanted, and prints what came of them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use addr2line::Loader;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::model::Random;
use crate::tracer::{Mapping, Program, Result, Round, Trial, round};
use crate::{Faults, Verdict};

/// What is tried.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The subject; it gets the name of the operation and a seed.
    pub program: PathBuf,
    /// Arguments before these two.
    pub arguments: Vec<String>,
    /// The operation.
    pub operation: String,
    /// Which faults.
    pub faults: Faults,
    /// Faults in all.
    pub trials: usize,
    /// Faults in one table; the next has other keys.
    pub trials_a_table: usize,
    /// The first table's seed.
    pub seed: u64,
    /// Threads, each with a subject of its own.
    pub jobs: usize,
    /// The one trial of the first table that is repeated.
    pub only: Option<usize>,
}

/// Counts of one operation.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By verdict.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Faults in all.
    pub trials: usize,
    /// Instructions of one operation, the mean.
    pub instructions: f64,
    /// Places in one operation that can be spoiled, the mean.
    pub sites: f64,
    /// What was silent, or hung: source line, how often, and the first as arguments that repeat it.
    pub silent: BTreeMap<String, (usize, String)>,
}

impl Outcome {
    /// Wrong answers without an error.
    #[must_use]
    pub fn silent(&self) -> usize {
        self.of(Verdict::Silent) + self.of(Verdict::Lost)
    }

    fn of(&self, verdict: Verdict) -> usize {
        self.verdicts.get(&verdict).copied().unwrap_or(0)
    }

    /// The table's row.
    #[must_use]
    pub fn row(&self, name: &str) -> String {
        let trials = self.trials as f64;
        let rate = self.silent() as f64 / trials;
        let (low, high) = interval(self.silent() as f64, trials);
        let mut row = format!("| {name} | {} |", self.trials);
        for verdict in Verdict::ALL {
            write!(row, " {} |", self.of(verdict)).unwrap_or_default();
        }
        write!(row, " {:.2} ({:.2} to {:.2}) |", rate * 100.0, low * 100.0, high * 100.0).unwrap_or_default();
        write!(row, " {:.0} | {:.0} | {:.1} |", self.instructions, self.sites, rate * self.sites)
            .unwrap_or_default();
        row
    }

    /// The heading of the rows.
    #[must_use]
    pub fn heading() -> String {
        let columns = [
            "operation",
            "faults",
            "right",
            "refused",
            "noticed by a later call",
            "by scrub alone",
            "silent",
            "lost",
            "the judge's own memory",
            "panic",
            "crash",
            "hang",
            "silent in 100 (95 %)",
            "instructions",
            "sites",
            "silent sites",
        ];
        format!("| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()))
    }
}

/// Wilson's interval of 95 % for a share.
fn interval(hits: f64, trials: f64) -> (f64, f64) {
    const Z: f64 = 1.96;
    let share = hits / trials;
    let scale = 1.0 + Z * Z / trials;
    let middle = (share + Z * Z / (2.0 * trials)) / scale;
    let half = Z / scale * (share * (1.0 - share) / trials + Z * Z / (4.0 * trials * trials)).sqrt();
    ((middle - half).max(0.0), middle + half)
}

/// Runs all of it.
///
/// # Errors
/// If a subject cannot be traced, or is wrong without a fault.
pub fn run(campaign: &Campaign) -> Result<Outcome> {
    let program = Program::open(&campaign.program)?;
    let tables = campaign.trials.div_ceil(campaign.trials_a_table);
    let (next, rounds) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = &|job: usize| -> Result<()> {
        stay_on(job)?;
        loop {
            // Relaxed: the number alone is taken; results pass through the mutex and the end of the thread.
            let table = next.fetch_add(1, Ordering::Relaxed);
            if table >= tables {
                return Ok(());
            }
            let seed = campaign.seed + table as u64;
            let mut arguments = campaign.arguments.clone();
            arguments.extend([campaign.operation.clone(), seed.to_string()]);
            let count = campaign.trials_a_table.min(campaign.trials - table * campaign.trials_a_table);
            let amount = (count, campaign.only);
            let done = round(&program, &arguments, campaign.faults, amount, Random(seed))?;
            rounds.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((seed, done));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..campaign.jobs).map(|job| scope.spawn(move || work(job))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(outcome(campaign, &rounds.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

/// Keeps this thread, and the subjects that it starts, on one processor: a step is two switches between both.
fn stay_on(job: usize) -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    let mut one = CpuSet::new();
    one.set(job % processors)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
}

fn outcome(campaign: &Campaign, rounds: &[(u64, Round)]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut sources = Sources::default();
    for (seed, round) in rounds {
        outcome.instructions += round.instructions as f64 / rounds.len() as f64;
        outcome.sites += round.sites as f64 / rounds.len() as f64;
        for trial in &round.trials {
            outcome.trials += 1;
            *outcome.verdicts.entry(trial.verdict).or_default() += 1;
            if matches!(trial.verdict, Verdict::Silent | Verdict::Lost | Verdict::Hung)
                || campaign.only.is_some()
            {
                let line = format!("{:?}: {}", trial.verdict, sources.line(trial, &round.mappings));
                let repeat =
                    format!("{} --seed {seed} --only {}: {}", campaign.operation, trial.number, trial.what);
                outcome.silent.entry(line).or_insert((0, repeat)).0 += 1;
            }
        }
    }
    outcome
}

/// Names of source lines.
#[derive(Default)]
struct Sources {
    loaders: HashMap<PathBuf, Option<Loader>>,
}

impl Sources {
    /// The innermost line of the sources that were compiled here: not of a library or the compiler's own.
    fn line(&mut self, trial: &Trial, mappings: &[Mapping]) -> String {
        let below = trial.stack.iter().rev().map(|address| address - 1);
        let mut first = None;
        for address in std::iter::once(trial.address).chain(below) {
            let (line, is_ours) = self.frame(address, mappings);
            if is_ours {
                return first.map_or(line.clone(), |first| format!("{line} ({first})"));
            }
            first.get_or_insert(line);
        }
        first.unwrap_or_default()
    }

    fn frame(&mut self, address: u64, mappings: &[Mapping]) -> (String, bool) {
        let Some(mapping) = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
        else {
            return (format!("{address:#x}"), false);
        };
        let start = mappings
            .iter()
            .find(|of| of.path == mapping.path)
            .map_or(mapping.start, |of| of.start - of.offset);
        let loader =
            self.loaders.entry(mapping.path.clone()).or_insert_with_key(|path| Loader::new(path).ok());
        let file = mapping.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(loader) = loader else { return (file, false) };
        let mut name = file;
        if let Ok(mut frames) = loader.find_frames(address - start) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(location) = frame.location else { continue };
                let (path, line) = (location.file.unwrap_or_default(), location.line.unwrap_or_default());
                if is_ours(path) {
                    return (format!("{}:{line}", short(path)), true);
                }
                if let Some(function) =
                    frame.function.and_then(|function| function.demangle().ok().map(String::from))
                {
                    name = function;
                }
            }
        }
        (name, false)
    }
}

fn is_ours(path: &str) -> bool {
    Path::new(path).is_absolute()
        && !["/rustc/", "/.cargo/", "/rustlib/"].iter().any(|part| path.contains(part))
}

/// The path from the package's folder on.
fn short(path: &str) -> &str {
    ["/set/src/", "/sst/src/", "/tools/", "/benches/", "/src/"]
        .iter()
        .find_map(|part| path.find(part))
        .map_or(path, |at| &path[at + 1..])
}
