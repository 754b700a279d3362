//! Flips one bit of a register or a flag at one instruction of one operation, and judges the
//! result. This is a fault of a processor; `fault_campaign` has the faults of memory.
//!
//! A *subject* is a process that makes a table, calls [`ready`], runs one operation inside
//! [`measured`], compares all answers of the table with a model, and ends with a [`Verdict`] as its
//! exit code. The *tracer* counts the operation's instructions. It copies the subject by `fork` at
//! each instruction that it has drawn; each copy gets one fault and runs to its verdict.
//!
//! [`Faults::Moves`] are the faults of RocksDB's `tools/cpu_corruption_injector`: a flag after a
//! comparison, or a bit of a register that was loaded or is about to be stored. [`Faults::Any`] are
//! all bits of every register that an instruction reads or writes.
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;

use std::hint::black_box;

/// The result of one fault, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Every answer was right, and nothing was noticed.
    Right,
    /// The operation itself returned an error.
    Refused,
    /// The operation returned `Ok`, all answers after it were right or errors.
    Noticed,
    /// Only a scrub found something.
    Scrubbed,
    /// A call answered wrongly and without an error.
    Silent,
    /// The operation returned `Ok`, and its write is missing, without an error.
    Lost,
    /// The model that the process judges by was damaged itself.
    Stray,
    /// A panic.
    Panicked,
    /// A signal ended the process.
    Crashed,
    /// The process did not end in time.
    Hung,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 10] = [
        Verdict::Right,
        Verdict::Refused,
        Verdict::Noticed,
        Verdict::Scrubbed,
        Verdict::Silent,
        Verdict::Lost,
        Verdict::Stray,
        Verdict::Panicked,
        Verdict::Crashed,
        Verdict::Hung,
    ];

    /// The exit code of a subject with this verdict. Other codes mean a panic.
    fn code(self) -> u8 {
        self as u8 + 40
    }

    /// Ends this process with this verdict.
    pub fn exit(self) -> ! {
        std::process::exit(self.code().into())
    }

    /// The verdict of a process that ended with this code.
    #[must_use]
    pub fn of_code(code: i32) -> Verdict {
        Verdict::ALL
            .into_iter()
            .find(|verdict| i32::from(verdict.code()) == code)
            .unwrap_or(Verdict::Panicked)
    }
}

/// The kind of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Faults {
    /// A flag after a comparison, or the low byte of a register that a move loads or stores (the
    /// faults of RocksDB).
    Moves,
    /// Any bit of any register that an instruction reads or writes.
    Any,
}

/// Stops this process until its tracer continues it. Without a tracer it stops for good.
///
/// # Errors
/// Those of the operating system; on systems other than Linux, every call returns an error.
pub fn ready() -> std::io::Result<()> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        nix::sys::ptrace::traceme()?;
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP)?;
        Ok(())
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Runs the operation whose instructions are counted and damaged.
pub fn measured<T>(operation: impl FnOnce() -> T) -> T {
    operation_begins();
    let answer = operation();
    operation_ends();
    answer
}

/// Marks where the tracer begins to count. The two bodies differ, so that the linker keeps both.
#[inline(never)]
extern "C" fn operation_begins() {
    black_box(1_u8);
}

/// Marks where the tracer ends.
#[inline(never)]
extern "C" fn operation_ends() {
    black_box(2_u16);
}

/// The content of a table as a map, and the source of its keys and values.
pub mod model {
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BTreeSet};
    use std::hash::{DefaultHasher, Hash, Hasher};

    use paranoid_memtable::{Kind, SequenceNumber};

    /// The generator SplitMix64 of Sebastiano Vigna.
    #[derive(Debug, Clone)]
    pub struct Random(pub u64);

    impl Random {
        /// The next number.
        pub fn draw(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        /// A number below a bound.
        pub fn below(&mut self, bound: u64) -> u64 {
            self.draw() % bound
        }
    }

    /// A key of 16 bytes, in the order of `number`.
    pub fn key(number: u64) -> Vec<u8> {
        format!("{number:016x}").into_bytes()
    }

    /// A value of 40 bytes.
    pub fn value(number: u64) -> Vec<u8> {
        let mut random = Random(number);
        (0..5).flat_map(|_| random.draw().to_le_bytes()).collect()
    }

    /// A user key and a number, newest first.
    type Place = (Vec<u8>, Reverse<SequenceNumber>);

    /// Every version, and the range deletes.
    #[derive(Debug, Clone, Default)]
    pub struct Model {
        entries: BTreeMap<Place, (Kind, Vec<u8>)>,
        ranges: Vec<Deleted>,
    }

    /// A user key, a sequence number, a kind, a value.
    pub type Version = (Vec<u8>, SequenceNumber, Kind, Vec<u8>);

    /// Start, end and sequence number of a range delete, or of a fragment of one.
    pub type Deleted = (Vec<u8>, Vec<u8>, SequenceNumber);

    /// A fragment: start, end, and the sequence numbers over it, newest first.
    pub type Fragment = (Vec<u8>, Vec<u8>, Vec<SequenceNumber>);

    /// Entries and fragments in the order in which a flush returns them. A fragment is repeated for
    /// each of its numbers.
    pub type Collected = (Vec<Version>, Vec<Deleted>);

    /// Selects versions of a key and numbers of a fragment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Numbers {
        /// All versions and all numbers.
        All,
        /// The newest one of each key and of each fragment.
        Newest,
    }

    /// The output of a flush: entries in order, and whole fragments.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Flushed {
        entries: Vec<Version>,
        fragments: Vec<Fragment>,
    }

    impl Flushed {
        /// Makes it of the items that a flush returned.
        pub fn new((entries, pieces): Collected) -> Self {
            let mut fragments: Vec<Fragment> = Vec::new();
            for (start, end, sequence) in pieces {
                match fragments.last_mut() {
                    Some(last) if (&last.0, &last.1) == (&start, &end) => last.2.push(sequence),
                    _ => fragments.push((start, end, vec![sequence])),
                }
            }
            Flushed { entries, fragments }
        }
    }

    fn is_over((start, end, _): &Deleted, user_key: &[u8]) -> bool {
        &start[..] <= user_key && user_key < &end[..]
    }

    impl Model {
        /// Adds a version.
        pub fn insert(
            &mut self,
            user_key: Vec<u8>,
            sequence: SequenceNumber,
            kind: Kind,
            value: Vec<u8>,
        ) {
            self.entries
                .insert((user_key, Reverse(sequence)), (kind, value));
        }

        /// Adds a range delete.
        pub fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>, sequence: SequenceNumber) {
            self.ranges.push((start, end, sequence));
        }

        /// Number of point entries.
        #[must_use]
        pub fn points(&self) -> usize {
            self.entries.len()
        }

        /// Key and sequence number of the point entry at `at`, in order.
        #[must_use]
        pub fn nth(&self, at: u64) -> (Vec<u8>, SequenceNumber) {
            let at = usize::try_from(at).unwrap_or(0);
            let nth = self.entries.keys().nth(at);
            nth.map(|(user_key, sequence)| (user_key.clone(), sequence.0))
                .unwrap_or_default()
        }

        /// Whether a key has a version.
        #[must_use]
        pub fn has(&self, user_key: &[u8]) -> bool {
            self.entries
                .range((user_key.to_vec(), Reverse(SequenceNumber::MAX))..)
                .next()
                .is_some_and(|((of, _), _)| of == user_key)
        }

        /// Whether one of the last `count` range deletes is over a key.
        #[must_use]
        pub fn is_under_last(&self, count: usize, user_key: &[u8]) -> bool {
            self.ranges
                .iter()
                .rev()
                .take(count)
                .any(|range| is_over(range, user_key))
        }

        /// The range deletes, cut wherever one begins or ends. Fragments that touch differ in their
        /// numbers.
        #[must_use]
        pub fn fragments(&self, numbers: Numbers) -> Vec<Fragment> {
            let bounds: BTreeSet<&[u8]> = self
                .ranges
                .iter()
                .flat_map(|(start, end, _)| [&start[..], &end[..]])
                .collect();
            let mut fragments: Vec<Fragment> = Vec::new();
            for (start, end) in bounds.iter().zip(bounds.iter().skip(1)) {
                let over = self.ranges.iter().filter(|range| is_over(range, start));
                let mut sequences: Vec<_> = over.map(|(.., sequence)| *sequence).collect();
                sequences.sort_unstable_by_key(|sequence| Reverse(*sequence));
                if numbers == Numbers::Newest {
                    sequences.truncate(1);
                }
                match fragments.last_mut() {
                    _ if sequences.is_empty() => {}
                    Some(last) if last.1 == *start && last.2 == sequences => last.1 = end.to_vec(),
                    _ => fragments.push((start.to_vec(), end.to_vec(), sequences)),
                }
            }
            fragments
        }

        /// The value that a read at this snapshot returns.
        pub fn visible(&self, user_key: &[u8], snapshot: SequenceNumber) -> Option<&[u8]> {
            let newest = self
                .entries
                .range((user_key.to_vec(), Reverse(snapshot))..)
                .next();
            let ((_, Reverse(sequence)), (kind, value)) =
                newest.filter(|((of, _), _)| of == user_key)?;
            let over = self.ranges.iter().filter(|range| is_over(range, user_key));
            let cover = over
                .map(|(.., at)| *at)
                .filter(|at| *at <= snapshot)
                .max()
                .unwrap_or(0);
            (*kind == Kind::PUT && cover < *sequence).then_some(value)
        }

        /// Every key once, in order.
        pub fn user_keys(&self) -> impl Iterator<Item = &[u8]> {
            let mut last: Option<&[u8]> = None;
            self.entries.keys().filter_map(move |(user_key, _)| {
                let is_new = last != Some(user_key);
                last = Some(user_key);
                is_new.then_some(&user_key[..])
            })
        }

        /// Up to `count` visible entries at or after `start`.
        pub fn from(&self, start: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
            let shown = self
                .user_keys()
                .filter(|user_key| *user_key >= start)
                .filter_map(|user_key| {
                    self.visible(user_key, SequenceNumber::MAX)
                        .map(|value| (user_key.to_vec(), value.to_vec()))
                });
            shown.take(count).collect()
        }

        /// All versions, in the order of a table.
        #[must_use]
        pub fn versions(&self) -> Vec<Version> {
            let of = |((user_key, sequence), (kind, value)): (&Place, &(Kind, Vec<u8>))| {
                (user_key.clone(), sequence.0, *kind, value.clone())
            };
            self.entries.iter().map(of).collect()
        }

        /// The output of a flush of these versions.
        #[must_use]
        pub fn flushed(&self, numbers: Numbers) -> Flushed {
            let mut entries = self.versions();
            if numbers == Numbers::Newest {
                entries.dedup_by(|older, newer| older.0 == newer.0);
            }
            Flushed {
                entries,
                fragments: self.fragments(numbers),
            }
        }

        /// A sum over the whole model, to distinguish a wrong table from a damaged model.
        pub fn sum(&self) -> u64 {
            let mut hasher = DefaultHasher::new();
            self.entries.hash(&mut hasher);
            self.ranges.hash(&mut hasher);
            hasher.finish()
        }
    }
}

/// Runs the trials of one operation on several threads, and prints the results.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod report {
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

    /// The parameters of a campaign.
    #[derive(Debug, Clone)]
    pub struct Campaign {
        /// The subject. Its last two arguments are the name of the operation and a seed.
        pub program: PathBuf,
        /// Arguments before these two.
        pub arguments: Vec<String>,
        /// The operation.
        pub operation: String,
        /// The kind of faults.
        pub faults: Faults,
        /// Total number of faults.
        pub trials: usize,
        /// Faults in one table; the next table has other keys.
        pub trials_a_table: usize,
        /// The first table's seed.
        pub seed: u64,
        /// Threads, each with a subject of its own.
        pub jobs: usize,
        /// Repeats only this trial of the first table.
        pub only: Option<usize>,
    }

    /// Counts of one operation.
    #[derive(Debug, Default)]
    pub struct Outcome {
        /// Counts by verdict.
        pub verdicts: BTreeMap<Verdict, usize>,
        /// Total number of faults.
        pub trials: usize,
        /// Mean number of instructions of one operation.
        pub instructions: f64,
        /// Mean number of places in one operation where a fault is possible.
        pub sites: f64,
        /// Faults that were silent or hung, by source line: how many, and the arguments that repeat
        /// the first one.
        pub silent: BTreeMap<String, (usize, String)>,
    }

    impl Outcome {
        /// Number of wrong answers without an error.
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
            write!(
                row,
                " {:.2} ({:.2} to {:.2}) |",
                rate * 100.0,
                low * 100.0,
                high * 100.0
            )
            .unwrap_or_default();
            write!(
                row,
                " {:.0} | {:.0} | {:.1} |",
                self.instructions,
                self.sites,
                rate * self.sites
            )
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
            format!(
                "| {} |\n|{}",
                columns.join(" | "),
                "---|".repeat(columns.len())
            )
        }
    }

    /// Wilson's interval of 95 % for a share.
    fn interval(hits: f64, trials: f64) -> (f64, f64) {
        const Z: f64 = 1.96;
        let share = hits / trials;
        let scale = 1.0 + Z * Z / trials;
        let middle = (share + Z * Z / (2.0 * trials)) / scale;
        let half =
            Z / scale * (share * (1.0 - share) / trials + Z * Z / (4.0 * trials * trials)).sqrt();
        ((middle - half).max(0.0), middle + half)
    }

    /// Runs the campaign.
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
                // Relaxed: only the number is taken; results pass through the mutex and the end of
                // the thread.
                let table = next.fetch_add(1, Ordering::Relaxed);
                if table >= tables {
                    return Ok(());
                }
                let seed = campaign.seed + table as u64;
                let mut arguments = campaign.arguments.clone();
                arguments.extend([campaign.operation.clone(), seed.to_string()]);
                let count = campaign
                    .trials_a_table
                    .min(campaign.trials - table * campaign.trials_a_table);
                let amount = (count, campaign.only);
                let done = round(&program, &arguments, campaign.faults, amount, Random(seed))?;
                rounds
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push((seed, done));
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..campaign.jobs)
                .map(|job| scope.spawn(move || work(job)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
        Ok(outcome(
            campaign,
            &rounds
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        ))
    }

    /// Keeps this thread and its subjects on one processor, because each step switches twice
    /// between them.
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
                if matches!(
                    trial.verdict,
                    Verdict::Silent | Verdict::Lost | Verdict::Hung
                ) || campaign.only.is_some()
                {
                    let mut line = format!(
                        "{:?}: {}",
                        trial.verdict,
                        sources.line(trial, &round.mappings)
                    );
                    if !trial.loops.is_empty() {
                        write!(
                            line,
                            ", loops in {}",
                            sources.lines(&trial.loops, &round.mappings)
                        )
                        .unwrap_or_default();
                    }
                    let repeat = format!(
                        "{} --seed {seed} --only {}: {}",
                        campaign.operation, trial.number, trial.what
                    );
                    outcome.silent.entry(line).or_insert((0, repeat)).0 += 1;
                }
            }
        }
        outcome
    }

    /// Number of lines of a loop that are named.
    const LINES_MAX: usize = 8;

    /// Names of source lines.
    #[derive(Default)]
    struct Sources {
        loaders: HashMap<PathBuf, Option<Loader>>,
    }

    impl Sources {
        /// The innermost source line of this repository, not of a library or the compiler.
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

        /// The lines of this repository that a copy passed before it was ended, in order.
        fn lines(&mut self, addresses: &[u64], mappings: &[Mapping]) -> String {
            let lines = addresses
                .iter()
                .map(|address| self.frame(*address, mappings));
            let mut ours: Vec<String> = lines
                .filter(|(_, is_ours)| *is_ours)
                .map(|(line, _)| line)
                .collect();
            ours.dedup();
            ours.truncate(LINES_MAX);
            ours.join(" ")
        }

        fn frame(&mut self, address: u64, mappings: &[Mapping]) -> (String, bool) {
            let Some(mapping) = mappings
                .iter()
                .find(|mapping| (mapping.start..mapping.end).contains(&address))
            else {
                return (format!("{address:#x}"), false);
            };
            let start = mappings
                .iter()
                .find(|of| of.path == mapping.path)
                .map_or(mapping.start, |of| of.start - of.offset);
            let loader = self
                .loaders
                .entry(mapping.path.clone())
                .or_insert_with_key(|path| Loader::new(path).ok());
            let file = mapping
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let Some(loader) = loader else {
                return (file, false);
            };
            let mut name = file;
            if let Ok(mut frames) = loader.find_frames(address - start) {
                while let Ok(Some(frame)) = frames.next() {
                    let Some(location) = frame.location else {
                        continue;
                    };
                    let (path, line) = (
                        location.file.unwrap_or_default(),
                        location.line.unwrap_or_default(),
                    );
                    if is_ours(path) {
                        return (format!("{}:{line}", short(path)), true);
                    }
                    if let Some(function) = frame
                        .function
                        .and_then(|function| function.demangle().ok().map(String::from))
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
            && !["/rustc/", "/.cargo/", "/rustlib/"]
                .iter()
                .any(|part| path.contains(part))
    }

    /// The path from the package's folder on.
    fn short(path: &str) -> &str {
        ["/set/src/", "/sst/src/", "/tools/", "/benches/", "/src/"]
            .iter()
            .find_map(|part| path.find(part))
            .map_or(path, |at| &path[at + 1..])
    }
}
