//! The record of threads, its page, and the rule that it checks: no row of this crate has fewer
//! operations a second with more threads, up to the number of processors, than 0.9 of its best.

use std::fmt::Write;

use measure::{Environment, quartiles};
use serde::{Deserialize, Serialize};

use super::crew::Took;
use crate::record::head;

/// All figures of one run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub environment: Environment,
    /// Number of processors that the program may use.
    pub processors: usize,
    /// The load of the machine before and after. `None`: the system does not report it.
    pub load: Option<[f64; 2]>,
    /// The folders of logs: on a file, in memory.
    pub folders: [String; 2],
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub rounds: usize,
    pub threads: Vec<usize>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// Number of operations of a run, of all threads together.
    pub operations: u64,
    /// The hash of all tables' entries at the end, or of what one thread read.
    pub hash: String,
    pub lanes: Vec<Lane>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Lane {
    pub name: String,
    /// One point for each number of threads.
    pub points: Vec<Point>,
}

/// The runs at one number of threads, with a figure for each round.
#[derive(Debug, Serialize, Deserialize)]
pub struct Point {
    pub threads: usize,
    /// Operations a second.
    pub rates: Vec<f64>,
    /// Voluntary context switches an operation.
    pub sleeps: Vec<f64>,
    /// Nanoseconds of processor time an operation.
    pub processor: Vec<f64>,
    /// The time of the slowest thread over that of the fastest one.
    pub spread: Vec<f64>,
}

/// The least share of its best rate that a row keeps with more threads.
const KEPT: f64 = 0.9;
/// The number of threads at which the short table shows rivals, if it was measured.
const SHOWN: usize = 16;
/// The most processor time of an operation, as a multiple of that with one thread.
const DEARER: f64 = 1.5;

/// Rivals in the short table: the beginnings of their names, and the heads of their columns.
const RIVALS: [(&str, &str); 5] = [
    ("artmap", "artmap"),
    ("masstree", "masstree"),
    ("crossbeam", "crossbeam-skiplist"),
    ("rocksdb", "RocksDB"),
    ("fjall", "fjall"),
];

impl Point {
    pub fn new(threads: usize) -> Point {
        Point {
            threads,
            rates: Vec::new(),
            sleeps: Vec::new(),
            processor: Vec::new(),
            spread: Vec::new(),
        }
    }

    pub fn add(&mut self, took: &Took, operations: u64) {
        let operations = operations as f64;
        self.rates.push(short(operations / took.wall.as_secs_f64()));
        self.sleeps.push(short(took.sleeps as f64 / operations));
        let processor = took.processor.as_secs_f64() * 1e9;
        self.processor.push(short(processor / operations));
        self.spread.push(short(took.spread));
    }

    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }
}

/// A figure with four digits.
fn short(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().unwrap_or(figure)
}

fn median(figures: &[f64]) -> f64 {
    quartiles(figures.to_vec())[1]
}

impl Lane {
    fn is_ours(&self) -> bool {
        self.name.starts_with("ours")
    }

    fn at(&self, threads: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.threads == threads)
    }

    /// The points of one thread, and of the number of threads whose operations take the most
    /// processor time. `None`: that time is within the limit.
    fn dearest(&self) -> Option<[&Point; 2]> {
        let alone = self.at(1)?;
        let time = |point: &Point| median(&point.processor);
        let by_time = |a: &&Point, b: &&Point| time(a).total_cmp(&time(b));
        let dearest = self.points.iter().max_by(by_time)?;
        (time(dearest) > DEARER * time(alone)).then_some([alone, dearest])
    }

    /// The first number of threads, up to `processors`, whose rate is below the share of the best
    /// rate with fewer threads. Returns that number and its rate, and the number and rate of the
    /// best.
    fn slower(&self, processors: usize) -> Option<[(usize, f64); 2]> {
        let mut best: Option<(usize, f64)> = None;
        for point in self
            .points
            .iter()
            .filter(|point| point.threads <= processors)
        {
            let here = (point.threads, point.rate());
            match best {
                Some(best) if here.1 < KEPT * best.1 => return Some([here, best]),
                Some(best) if here.1 <= best.1 => {}
                _ => best = Some(here),
            }
        }
        None
    }
}

impl Record {
    /// A candidate of a row, both by name.
    pub fn lane(&self, row: &str, lane: &str) -> Option<&Lane> {
        let row = self.rows.iter().find(|known| known.name == row)?;
        row.lanes.iter().find(|known| known.name == lane)
    }

    /// The number of threads at which the short table shows rivals.
    fn shown(&self) -> usize {
        let most = self.threads.iter().max().copied().unwrap_or(1);
        if self.threads.contains(&SHOWN) {
            SHOWN
        } else {
            most
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.render(&mut text);
        text
    }

    fn render(&self, text: &mut String) -> std::fmt::Result {
        head(&self.environment, "Threads", text)?;
        self.circumstances(text)?;
        self.short(text)?;
        let all = |text: &mut String, title: &str, cell: &dyn Fn(&Point) -> String| {
            writeln!(text, "\n## {title}\n")?;
            self.table(text, |_| true, cell)
        };
        all(text, "Million operations a second", &|point| {
            millions(point.rate())
        })?;
        all(text, "Voluntary sleeps an operation", &|point| {
            sleeps(median(&point.sleeps))
        })?;
        all(
            text,
            "Nanoseconds of processor time an operation",
            &|point| format!("{:.0}", median(&point.processor)),
        )?;
        all(
            text,
            "The slowest thread's time over the fastest one's",
            &|point| format!("{:.2}", median(&point.spread)),
        )?;
        writeln!(
            text,
            "\n## Operations of a run\n\n| work | operations | hash |\n|---|---|---|"
        )?;
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | `{}` |",
                row.name, row.operations, row.hash
            )?;
        }
        Ok(())
    }

    fn circumstances(&self, text: &mut String) -> std::fmt::Result {
        let Record {
            processors,
            key_bytes,
            value_bytes,
            rounds,
            ..
        } = self;
        writeln!(
            text,
            "- processors: {processors}. With more threads than that, rates say how the system shares them out"
        )?;
        if let Some([before, after]) = self.load {
            writeln!(
                text,
                "- load of the machine: {before:.1} before, {after:.1} after, with this run"
            )?;
            if before > 0.5 {
                let what =
                    "**Other programs ran: rates are noise; sleeps and processor time tell more**";
                writeln!(text, "- {what}")?;
            }
        }
        writeln!(
            text,
            "- keys of {key_bytes} bytes, values of {value_bytes}, 8 protection bytes here and in RocksDB, at random unless a row says\n  \
             more; medians of {rounds} rounds, in which numbers of threads and candidates take turns"
        )?;
        writeln!(
            text,
            "- threads are new in each run, pinned to the processors in turn, and start together; rates are by the clock,\n  \
             from the first start to the last end; tables are fresh, and all ended with the same entries"
        )?;
        writeln!(
            text,
            "- `ours`: `MemTable::put` and `write_batch`, or a set; `ours-writer`: a `Writer` for each thread;\n  \
             `ours-modulo-8`: the numbers that this crate gives to the threads are multiples of eight;\n  \
             `ours-filter`, `rocksdb-8-bloom`: filters of 0.015 of the write buffer"
        )?;
        let [file, memory] = &self.folders;
        writeln!(
            text,
            "- `rocksdb-write`: `DB::Write` and `DB::Get`, without a log, with one (`Buffered`) and with `sync` (`Synced`); `fjall`:\n  \
             `insert` and batches, persisted with `Buffer` and `SyncData`; batches are made inside the time; logs on a file\n  \
             are in `{file}`, in memory in `{memory}`"
        )
    }

    /// The rows of the short table. A log in memory equals one on a file whose syncs cost nothing.
    fn shortened(&self) -> impl Iterator<Item = &Row> {
        let is_short = |row: &&Row| !row.name.ends_with("in memory");
        self.rows.iter().filter(is_short)
    }

    /// The short tables and the rules.
    fn short(&self, text: &mut String) -> std::fmt::Result {
        let shown = self.shown();
        writeln!(text, "\n## In short: million operations a second\n")?;
        let heads = RIVALS.map(|(_, head)| format!("{head}, {shown}"));
        self.head(text, "work", "", &format!(" {} |", heads.join(" | ")))?;
        for row in self.shortened() {
            let Some(lane) = row.lanes.iter().find(|lane| lane.is_ours()) else {
                continue;
            };
            let name = lane.name.trim_start_matches("ours").replacen('-', ", ", 1);
            let rates = lane.points.iter().map(|point| millions(point.rate()));
            let rivals = RIVALS.iter().map(|(rival, _)| {
                let mut lanes = row.lanes.iter();
                let rival = lanes.find(|lane| lane.name.starts_with(rival));
                let point = rival.and_then(|lane| lane.at(shown));
                point.map_or("-".into(), |point| millions(point.rate()))
            });
            let cells: Vec<String> = rates.chain(rivals).collect();
            writeln!(text, "| {}{name} | {} |", row.name, cells.join(" | "))?;
        }
        writeln!(
            text,
            "\n## In short: voluntary sleeps and nanoseconds of processor time an operation\n"
        )?;
        self.table(text, Lane::is_ours, &|point| {
            format!(
                "{}, {:.0}",
                sleeps(median(&point.sleeps)),
                median(&point.processor)
            )
        })?;
        self.rule(text)
    }

    /// The head of a table with a column for each number of threads.
    fn head(&self, text: &mut String, first: &str, who: &str, more: &str) -> std::fmt::Result {
        let threads = |threads: &usize| match threads {
            1 => "1 thread".to_owned(),
            threads => threads.to_string(),
        };
        let threads: Vec<String> = self.threads.iter().map(threads).collect();
        let line = format!("| {first} |{who} {} |{more}", threads.join(" | "));
        let columns = line.matches('|').count() - 1;
        writeln!(text, "{line}\n|{}", "---|".repeat(columns))
    }

    fn table(
        &self,
        text: &mut String,
        is_shown: impl Fn(&Lane) -> bool,
        cell: &dyn Fn(&Point) -> String,
    ) -> std::fmt::Result {
        self.head(text, "work", " who |", "")?;
        for row in &self.rows {
            for lane in row.lanes.iter().filter(|lane| is_shown(lane)) {
                let cells: Vec<String> = lane.points.iter().map(cell).collect();
                writeln!(
                    text,
                    "| {} | {} | {} |",
                    row.name,
                    lane.name,
                    cells.join(" | ")
                )?;
            }
        }
        Ok(())
    }

    fn rule(&self, text: &mut String) -> std::fmt::Result {
        let processors = self.processors;
        writeln!(text, "\n## No row slower with more threads\n")?;
        writeln!(
            text,
            "Up to as many threads as processors ({processors}), a row of this crate has at least {KEPT} of its best rate with fewer.\n"
        )?;
        let mut is_kept = true;
        for row in &self.rows {
            for lane in row.lanes.iter().filter(|lane| lane.is_ours()) {
                let Some([(here, rate), (best, most)]) = lane.slower(processors) else {
                    continue;
                };
                is_kept = false;
                let (rate, most, share) = (millions(rate), millions(most), rate / most);
                writeln!(
                    text,
                    "- **{}, {}**: {rate} with {here} threads, {most} with {best}: {share:.2}",
                    row.name, lane.name
                )?;
            }
        }
        if is_kept {
            writeln!(text, "Every row does.")?;
        }
        self.dearer(text)
    }

    /// The effect of more threads than processors.
    fn dearer(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\nRows of this crate whose operations take more than {DEARER} times the processor time of one thread:\n"
        )?;
        let mut found = false;
        for row in &self.rows {
            for lane in row.lanes.iter().filter(|lane| lane.is_ours()) {
                let Some([alone, here]) = lane.dearest() else {
                    continue;
                };
                let times = median(&here.processor) / median(&alone.processor);
                let (name, threads) = (&lane.name, here.threads);
                let asleep = sleeps(median(&here.sleeps));
                found = true;
                writeln!(
                    text,
                    "- {}, {name}: {times:.2} times with {threads} threads, {asleep} sleeps",
                    row.name
                )?;
            }
        }
        if !found {
            writeln!(text, "None.")?;
        }
        Ok(())
    }
}

/// Millions of operations a second, with three digits.
fn millions(rate: f64) -> String {
    let rate = rate / 1e6;
    match rate {
        rate if rate < 0.000_995 => format!("{rate:.6}"),
        rate if rate < 0.0995 => format!("{rate:.4}"),
        rate if rate < 0.995 => format!("{rate:.3}"),
        rate if rate < 9.95 => format!("{rate:.2}"),
        rate => format!("{rate:.1}"),
    }
}

fn sleeps(sleeps: f64) -> String {
    match sleeps {
        sleeps if sleeps < 0.000_05 => "0".into(),
        sleeps if sleeps < 0.1 => format!("{sleeps:.4}"),
        sleeps => format!("{sleeps:.2}"),
    }
}
