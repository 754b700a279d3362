//! Runs workers under a watchdog, and reports what they found.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::damage::census::Census;
use crate::damage::plan::{Area, Kind, Rng};
use crate::damage::stretch::Outcome;
use crate::damage::trial::Verdict;
use crate::notes::Notes;
use crate::output::{Unwritten, complain, print};
use crate::{Mode, Only, Options, Stage, census, stages};

/// A result whose error may have any cause.
pub(crate) type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// Faults that one worker process runs.
const RANGE: u64 = 4000;
/// A worker without a report for this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

fn stage_of(stages: &[Stage], number: u64) -> &Stage {
    let before = stages.partition_point(|stage| stage.first <= number);
    &stages[before - 1]
}

/// A worker: runs a range of faults, one line each.
pub(crate) fn work(options: &Options, from: u64, to: u64) -> Anything<()> {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let stages = stages(options)?;
    let mut out = std::io::stdout().lock();
    // Notes of millions of faults leave out counts that are not printed.
    let text = |mut line: Line| {
        if !options.only.counts_answers() {
            line.census = Census::default();
        }
        line.encode()
    };
    let mut next = from;
    while next < to {
        let (stage, number) = (stage_of(&stages, next), next);
        if stage.mode == Mode::Stretches {
            let end = to.min(stage.first + stage.count);
            let report = |number, (area, kind, verdict): Outcome| {
                let line = match verdict {
                    Some(verdict) => Line::of(number, area, kind, &verdict),
                    None => Line::failed(number, "panic"),
                };
                // The campaign ends a worker that sends no report.
                let _ = writeln!(out, "{}", text(line)).and_then(|()| out.flush());
            };
            stage.run_stretches(number..end, report)?;
            next = end;
            continue;
        }
        next += 1;
        let line = match catch_unwind(AssertUnwindSafe(|| stage.run(number))) {
            Ok(Ok((area, kind, verdict))) => Line::of(number, area, kind, &verdict),
            Ok(Err(error)) => Line::failed(number, &error.to_string()),
            Err(_) => Line::failed(number, "panic"),
        };
        if writeln!(out, "{}", text(line))
            .and_then(|()| out.flush())
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Runs all faults in worker processes.
pub(crate) fn campaign(options: &Options) -> Anything<Report> {
    let stages = stages(options)?;
    let total = stages.last().map_or(0, |stage| stage.first + stage.count);
    let mut report = Report::new(options, &stages);
    for stage in &stages {
        report.control(&stage.control()?);
    }
    let bits = stages
        .iter()
        .filter(|stage| {
            matches!(
                stage.mode,
                Mode::EveryBit | Mode::EveryAcceleratorBit | Mode::SomeBits | Mode::SetBits
            )
        })
        .map(|stage| stage.count)
        .sum::<u64>();
    complain(format_args!(
        "{bits} bits in turn, {} other faults, {} workers",
        total - bits,
        options.workers
    ));
    let mut done = vec![false; total as usize];
    let open = |path| {
        let found = |line: Line| {
            if let Some(done) = done.get_mut(line.number as usize)
                && !std::mem::replace(done, true)
            {
                report.add(&line);
            }
        };
        Notes::open(path, &options.words, total, found)
    };
    let notes = options.notes.as_deref().map(open).transpose()?;
    let ranges = Arc::new(Mutex::new(ranges_of(&done)));
    let (lines, results) = channel();
    let threads: Vec<_> = (0..options.workers)
        .map(|_| {
            let (ranges, lines, words) =
                (Arc::clone(&ranges), lines.clone(), options.words.clone());
            std::thread::spawn(move || {
                let next = || ranges.lock().unwrap().pop_front();
                while let Some((from, to)) = next() {
                    supervise(&words, from, to, |line| {
                        // Sending fails only after the end of the campaign.
                        let _ = lines.send(line);
                    });
                }
            })
        })
        .collect();
    drop(lines);
    let known = done.iter().filter(|done| **done).count() as u64;
    collect(&mut report, &results, (known, total), notes)?;
    for thread in threads {
        thread.join().unwrap();
    }
    Ok(report)
}

/// What has no result yet, in ranges for one worker each. They are shuffled: the results of a
/// campaign that ends early are a sample of all.
fn ranges_of(done: &[bool]) -> VecDeque<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (number, _) in (0..).zip(done).filter(|(_, done)| !**done) {
        match ranges.last_mut() {
            Some((_, to)) if *to == number && number % RANGE != 0 => *to += 1,
            _ => ranges.push((number, number + 1)),
        }
    }
    Rng::new(1).shuffle(&mut ranges);
    ranges.into()
}

/// Adds results to the report and to the notes. `known`: how many of `total` the notes had before.
fn collect(
    report: &mut Report,
    results: &Receiver<Line>,
    (known, total): (u64, u64),
    mut notes: Option<Notes>,
) -> Anything<()> {
    let started = Instant::now();
    let mut shown = started;
    let total = total - known;
    for (done, line) in results.iter().enumerate() {
        report.add(&line);
        notes.iter_mut().try_for_each(|notes| notes.add(&line))?;
        if shown.elapsed() > Duration::from_secs(2) {
            shown = Instant::now();
            notes.iter_mut().try_for_each(Notes::flush)?;
            let (done, spent) = (done as f64 + 1.0, started.elapsed().as_secs_f64());
            let left = spent * (total as f64 - done) / done;
            let _ = write!(
                std::io::stderr(),
                "\r{:5.1} %  {left:5.0} s to go  {} ",
                100.0 * done / total as f64,
                report.summary()
            );
        }
    }
    notes.iter_mut().try_for_each(Notes::flush)?;
    complain(format_args!(
        "\r{total} faults in {:.0} s{:60}",
        started.elapsed().as_secs_f64(),
        ""
    ));
    Ok(())
}

/// Runs a range in workers. If a fault ends or hangs its worker, a new worker continues with the
/// next fault.
fn supervise(words: &[String], mut from: u64, to: u64, mut report: impl FnMut(Line)) {
    while from < to {
        let program = std::env::current_exe().unwrap();
        let range = ["--run".to_string(), from.to_string(), to.to_string()];
        let mut worker = Command::new(program)
            .args(words.iter().chain(&range))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(worker.stdout.take().unwrap());
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let ending = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(text) => {
                    let Some(line) = Line::decode(&text) else {
                        break Class::Crash;
                    };
                    from = line.number + 1;
                    report(line);
                }
                Err(RecvTimeoutError::Timeout) => break Class::Hang,
                Err(RecvTimeoutError::Disconnected) => break Class::Crash,
            }
        };
        // Kills the child that this function started, by its own handle.
        let _ = worker.kill();
        let _ = worker.wait();
        let _ = reader.join();
        if from < to {
            report(Line::lost(from, ending));
            from += 1;
        }
    }
}

// The results of all faults, as a table.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Correct,
    Detected,
    Silent,
    Crash,
    Hang,
    /// A wrong answer that the fault model admits: two places were damaged at once, one of them by
    /// a lost write; or the table has fewer protection bytes than the campaign.
    Admitted,
}

impl Class {
    const ALL: [Class; 6] = [
        Class::Correct,
        Class::Detected,
        Class::Silent,
        Class::Crash,
        Class::Hang,
        Class::Admitted,
    ];
}

/// The result of one fault, which a worker sends.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) number: u64,
    area: String,
    kind: String,
    class: Class,
    keys: usize,
    beyond: usize,
    /// Keys before a damaged entry that returned `Corruption`.
    fronts: usize,
    census: Census,
    text: String,
}

impl Line {
    pub(crate) fn of(number: u64, area: Area, kind: Kind, verdict: &Verdict) -> Line {
        let class = match verdict {
            Verdict {
                endless: Some(_), ..
            } => Class::Hang,
            Verdict { wrong: Some(_), .. } if kind == Kind::StaleAndAnother => Class::Admitted,
            Verdict { wrong: Some(_), .. } => Class::Silent,
            Verdict { detected: true, .. } => Class::Detected,
            _ => Class::Correct,
        };
        let text = verdict
            .endless
            .clone()
            .or(verdict.wrong.clone())
            .unwrap_or_default();
        Line {
            number,
            area: area.name(),
            kind: kind.name().into(),
            class,
            keys: verdict.answering.len(),
            beyond: verdict.beyond.len(),
            fronts: verdict.fronts.len(),
            census: verdict.census,
            text,
        }
    }

    /// The result of a fault whose operations panicked or could not begin.
    fn failed(number: u64, text: &str) -> Line {
        Line {
            text: text.into(),
            ..Line::lost(number, Class::Crash)
        }
    }

    /// The result of a fault that ended its worker.
    fn lost(number: u64, class: Class) -> Line {
        let (area, kind) = ("unknown".to_string(), "unknown".to_string());
        let text = "the worker ended or hung".into();
        Line {
            number,
            area,
            kind,
            class,
            keys: 0,
            beyond: 0,
            fronts: 0,
            census: Census::default(),
            text,
        }
    }

    pub(crate) fn encode(&self) -> String {
        let class = Class::ALL
            .iter()
            .position(|class| *class == self.class)
            .unwrap_or(0);
        let Line {
            number,
            area,
            kind,
            keys,
            beyond,
            fronts,
            census,
            text,
            ..
        } = self;
        let (census, text) = (census.encode(), text.escape_default());
        format!("{number}\t{area}\t{kind}\t{class}\t{keys}\t{beyond}\t{fronts}\t{census}\t{text}")
    }

    pub(crate) fn decode(text: &str) -> Option<Line> {
        let mut fields = text.splitn(9, '\t');
        Some(Line {
            number: fields.next()?.parse().ok()?,
            area: fields.next()?.into(),
            kind: fields.next()?.into(),
            class: *Class::ALL.get(fields.next()?.parse::<usize>().ok()?)?,
            keys: fields.next()?.parse().ok()?,
            beyond: fields.next()?.parse().ok()?,
            fronts: fields.next()?.parse().ok()?,
            census: Census::decode(fields.next()?)?,
            text: fields.next()?.into(),
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    classes: [u64; 6],
    spread: u64,
    /// Faults after which a key before a damaged entry returned `Corruption` too.
    fronts: u64,
    /// The largest number of keys that returned an error after one fault.
    keys_most: usize,
    /// The answers of all calls.
    pub(crate) census: Census,
}

impl Tally {
    fn add(&mut self, line: &Line) {
        self.classes[line.class as usize] += 1;
        self.spread += u64::from(line.beyond > 0);
        self.fronts += u64::from(line.fronts > 0);
        self.keys_most = self.keys_most.max(line.keys);
        self.census.add(&line.census);
    }

    pub(crate) fn faults(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Random faults of one region and kind, without and with `checksum_on_seek`, and those after which
/// a key before a damaged entry returned `Corruption`.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    faults: [u64; 2],
    fronts: u64,
}

/// Number of failures that are printed as examples.
const EXAMPLES: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct Report {
    areas: BTreeMap<String, Tally>,
    /// Random faults by region and kind.
    cells: BTreeMap<(String, String), Cell>,
    /// The first and last fault of each stage of random faults, and whether its tables verify every
    /// node of a seek.
    random: Vec<(Range<u64>, bool)>,
    /// Stages of tables with fewer protection bytes than the campaign, and that number of bytes.
    fewer: Vec<(Range<u64>, u8)>,
    /// Faults and wrong answers by protection bytes.
    widths: BTreeMap<u8, (u64, u64)>,
    /// The command line.
    words: Vec<String>,
    all: Tally,
    bytes: BTreeMap<String, usize>,
    excluded: usize,
    entries: usize,
    controls_failed: u64,
    examples: Vec<String>,
}

impl Report {
    pub(crate) fn new(options: &Options, stages: &[Stage]) -> Report {
        let mut report = Report {
            words: options.words.clone(),
            ..Report::default()
        };
        if let Some(stage) = stages.first() {
            report.excluded = stage.excluded;
            report.entries = options.small();
        }
        // Each region at its largest size: with filters and index, and with the additions of a
        // freeze.
        for stage in stages {
            if stage.shape.protection < options.protection {
                let range = stage.first..stage.first + stage.count;
                report.fewer.push((range, stage.shape.protection));
                continue;
            }
            let counts = stage.shape.entries == report.entries || options.only != Only::Usual;
            for (area, pieces) in stage.map.areas.iter().filter(|_| counts) {
                let bytes = report.bytes.entry(area.name()).or_default();
                *bytes = stage.map.bytes(pieces).max(*bytes);
            }
            if matches!(stage.mode, Mode::Random | Mode::Stretches) {
                report
                    .random
                    .push((stage.first..stage.first + stage.count, stage.shape.on_seek));
            }
        }
        report
    }

    /// Counts the verdict on an undamaged table, which must report nothing.
    pub(crate) fn control(&mut self, verdict: &Verdict) {
        let clean = !verdict.detected && verdict.wrong.is_none() && verdict.endless.is_none();
        self.controls_failed += u64::from(!clean);
        if !clean {
            self.examples.push(format!("undamaged: {verdict:?}"));
        }
    }

    fn add(&mut self, line: &Line) {
        if let Some((_, width)) = self
            .fewer
            .iter()
            .find(|(range, _)| range.contains(&line.number))
        {
            let (faults, silent) = self.widths.entry(*width).or_default();
            *faults += 1;
            *silent += u64::from(line.class == Class::Silent);
            let class = if line.class == Class::Silent {
                Class::Admitted
            } else {
                line.class
            };
            let line = Line {
                class,
                beyond: 0,
                ..line.clone()
            };
            self.all.add(&line);
            return self.keep_example(&line);
        }
        self.areas.entry(line.area.clone()).or_default().add(line);
        if let Some((_, on_seek)) = self
            .random
            .iter()
            .find(|(range, _)| range.contains(&line.number))
        {
            let cell = self
                .cells
                .entry((line.area.clone(), line.kind.clone()))
                .or_default();
            cell.faults[usize::from(*on_seek)] += 1;
            cell.fronts += u64::from(line.fronts > 0);
        }
        self.all.add(line);
        self.keep_example(line);
    }

    fn keep_example(&mut self, line: &Line) {
        let bad =
            line.beyond > 0 || matches!(line.class, Class::Silent | Class::Crash | Class::Hang);
        let worst = matches!(line.class, Class::Crash | Class::Hang);
        if bad && (worst || self.examples.len() < EXAMPLES) {
            let Line {
                number,
                area,
                kind,
                class,
                beyond,
                text,
                ..
            } = line;
            let (words, next) = (self.words.join(" "), number + 1);
            self.examples.push(format!(
                "fault {number}, {area}, {kind}: {class:?}, {beyond} beyond; {text}"
            ));
            self.examples.push(format!(
                "  replay: cargo run --release --features fault-injection --example fault_campaign -- {words} --run {number} {next}"
            ));
        }
    }

    /// The same for a campaign that counts the answers of each call.
    fn counted(&self) -> String {
        let [_, _, wrong, crash, hang, _] = self.all.classes;
        let corruption = self.all.census.corruption();
        format!("wrong {wrong} corruption {corruption} crash {crash} hang {hang}")
    }

    fn summary(&self) -> String {
        let [_, _, silent, crash, hang, _] = self.all.classes;
        let total: u64 = self.all.classes.iter().sum();
        format!(
            "silent {silent} crash {crash} hang {hang} spread {} of {total}",
            self.all.spread
        )
    }

    /// Whether the contract held: with 8 protection bytes nothing may go wrong, and one flipped bit
    /// costs no answer; with fewer there is no crash and no hang.
    pub(crate) fn acceptable(&self, options: &Options) -> bool {
        let [_, _, silent, crash, hang, _] = self.all.classes;
        let fatal = crash + hang + self.controls_failed;
        let lax = options.protection < 8;
        let refused = if matches!(options.only, Only::Bits { .. }) {
            self.all.census.corruption()
        } else {
            0
        };
        fatal == 0 && (lax || silent + self.all.spread + refused == 0)
    }

    pub(crate) fn print(&self, options: &Options) -> Result<(), Unwritten> {
        if options.only.counts_answers() {
            census::print_table(&self.areas, &self.all, self.all.spread)?;
            self.print_failures()?;
            return print(format_args!("{}\n", self.counted()));
        }
        print(format_args!(
            "protection {}, checksum_on_seek {:?}, order checks {}, filters and index {:?}, seed {}; bytes of the {}-entry table\n",
            options.protection,
            options.on_seek,
            options.order_checks,
            options.accelerators,
            options.seed,
            self.entries
        ))?;
        self.print_regions()?;
        let covered: usize = self.bytes.values().sum();
        print(format_args!(
            "bytes covered {covered}, excluded {} (locks, counters, hints, options)\n",
            self.excluded
        ))?;
        self.print_cells()?;
        if self.all.fronts > 0 {
            print(format_args!(
                "accepted: {} faults in entries after which the key in front answered as well (never after one flipped bit)\n",
                self.all.fronts
            ))?;
        }
        if let Some(tally) = self.admitted() {
            print(format_args!(
                "accepted: {tally} wrong answers after two places at once, one of them by a lost write\n"
            ))?;
        }
        for (width, (faults, silent)) in &self.widths {
            print(format_args!(
                "accepted: {silent} wrong answers to {faults} faults at {width} protection bytes\n"
            ))?;
        }
        if options.protection < 8 {
            self.print_rates(options.protection)?;
        }
        self.print_failures()?;
        print(format_args!("{}\n", self.summary()))
    }

    fn print_failures(&self) -> Result<(), Unwritten> {
        for example in &self.examples {
            print(format_args!("  {example}\n"))?;
        }
        if self.controls_failed > 0 {
            print(format_args!(
                "undamaged tables that reported something: {}\n",
                self.controls_failed
            ))?;
        }
        Ok(())
    }

    /// Wrong answers after two faults at once, if there are any.
    fn admitted(&self) -> Option<u64> {
        let sum = self
            .areas
            .values()
            .map(|tally| tally.classes[Class::Admitted as usize])
            .sum();
        (sum > 0).then_some(sum)
    }

    fn print_regions(&self) -> Result<(), Unwritten> {
        print(format_args!(
            "{:<26}{:>8}{:>9}{:>9}{:>9}{:>8}{:>7}{:>6}{:>8}{:>7}{:>10}\n",
            "region",
            "bytes",
            "faults",
            "correct",
            "detected",
            "silent",
            "crash",
            "hang",
            "spread",
            "front",
            "most keys"
        ))?;
        for (area, tally) in &self.areas {
            let [correct, detected, silent, crash, hang, _] = tally.classes;
            let faults: u64 = tally.classes.iter().sum();
            let bytes = self
                .bytes
                .get(area)
                .map_or(String::from("-"), ToString::to_string);
            let (spread, front, most) = (tally.spread, tally.fronts, tally.keys_most);
            print(format_args!(
                "{area:<26}{bytes:>8}{faults:>9}{correct:>9}{detected:>9}{silent:>8}{crash:>7}{hang:>6}{spread:>8}{front:>7}{most:>10}\n"
            ))?;
        }
        Ok(())
    }

    /// Prints random faults by region and kind, and the smallest number of them.
    fn print_cells(&self) -> Result<(), Unwritten> {
        print(format_args!("{:<26}", "random faults"))?;
        for kind in Kind::ALL {
            print(format_args!("{:>13}", kind.name()))?;
        }
        print("\n")?;
        for area in self.areas.keys() {
            print(format_args!("{area:<26}"))?;
            for kind in Kind::ALL {
                let cell = self.cells.get(&(area.clone(), kind.name().to_string()));
                let text = cell.map_or(String::from("-"), |cell| {
                    (cell.faults[0] + cell.faults[1]).to_string()
                });
                print(format_args!("{text:>13}"))?;
            }
            print("\n")?;
        }
        let sum = |cell: &Cell| cell.faults[0] + cell.faults[1];
        let total: u64 = self.cells.values().map(sum).sum();
        if let Some(((area, kind), least)) = self.cells.iter().min_by_key(|(_, cell)| sum(cell)) {
            let [off, on] = least.faults;
            print(format_args!(
                "random faults {total}; fewest in a region and kind: {} ({area}, {kind}; {off} with checksum_on_seek off, {on} on)\n",
                off + on
            ))?;
        }
        Ok(())
    }

    /// Compares the number of silent faults in entry bytes with the number that follows from the
    /// width of the digests.
    fn print_rates(&self, protection: u8) -> Result<(), Unwritten> {
        let own = ["header", "key", "value", "digests"];
        let entry = |area: &&String| own.iter().any(|name| area.ends_with(&format!(" {name}")));
        let tallies = self
            .areas
            .iter()
            .filter(|(area, _)| entry(area))
            .map(|(_, tally)| tally);
        let (silent, faults) = tallies.fold((0, 0), |(silent, faults), tally| {
            (
                silent + tally.classes[Class::Silent as usize],
                faults + tally.classes.iter().sum::<u64>(),
            )
        });
        let expected = 2f64.powi(-8 * i32::from(protection));
        print(format_args!(
            "entry bytes: silent rate {:.2e} ({silent} of {faults}), expected about {expected:.2e} a digest\n",
            silent as f64 / (faults as f64).max(1.0)
        ))
    }
}
