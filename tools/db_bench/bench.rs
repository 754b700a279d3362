//! Runs one benchmark: starts its threads, adds up their times and counts, and makes the result
//! lines.

use std::fmt::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::failure::Failure;
use crate::fills::Twister;
use crate::output::print;
use crate::settings::Settings;
use crate::tables::{Db, Session};

/// State that a benchmark's threads share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) db: &'a Db,
    pub(crate) pool: &'a [u8],
    pub(crate) bar: &'a ProgressBar,
    /// Number of this benchmark's threads that are done.
    done: AtomicUsize,
    threads: usize,
    /// Whether a thread of this benchmark failed.
    failed: AtomicBool,
    /// Number of range deletes written.
    pub(crate) range_deletes: AtomicU64,
}

/// One thread of a benchmark.
#[derive(Debug)]
pub(crate) struct Thread<'a> {
    pub(crate) shared: &'a Shared<'a>,
    /// Its index among the threads.
    pub(crate) number: usize,
    pub(crate) random: Twister,
    pub(crate) session: Session<'a>,
    pub(crate) stats: Stats,
}

impl Thread<'_> {
    #[inline]
    pub(crate) fn finished(&mut self, operations: u64) {
        self.stats.finished(operations, self.shared.bar);
    }

    /// Whether every other thread is done.
    pub(crate) fn others_done(&self) -> bool {
        // ORDERING: Relaxed: a hint to stop.
        self.shared.done.load(Ordering::Relaxed) + 1 >= self.shared.threads
    }

    /// Whether another thread failed, so that this one may stop.
    pub(crate) fn in_vain(&self) -> bool {
        // ORDERING: Relaxed: a hint to stop.
        self.shared.failed.load(Ordering::Relaxed)
    }
}

/// The end of a thread's work: after a number of operations, or after some seconds. The clock is
/// read every 1000 operations.
#[derive(Debug)]
pub(crate) struct Until {
    end: Option<Instant>,
    most: u64,
    done: u64,
}

const LOOK_EACH: u64 = 1000;

impl Until {
    pub(crate) fn new(seconds: u64, most: u64) -> Until {
        let end = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
        Until { end, most, done: 0 }
    }

    /// Counts operations before they are done. Returns whether to do them.
    pub(crate) fn more(&mut self, operations: u64) -> bool {
        let before = self.done;
        self.done += operations;
        match self.end {
            None => before < self.most,
            Some(end) => before / LOOK_EACH == self.done / LOOK_EACH || Instant::now() < end,
        }
    }
}

/// The threads that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    All,
    /// The last thread writes beside the others, and is left out.
    AllButLast,
    /// No thread: the benchmark prints text and no result line.
    Nothing,
}

/// The work of a benchmark's threads, and the name of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) run: fn(&mut Thread<'_>) -> Result<(), Failure>,
    pub(crate) operation: &'static str,
    pub(crate) measured: Measured,
    /// Whether a single thread does all of it.
    pub(crate) single: bool,
    /// Number of operations of one thread, for the progress bar.
    pub(crate) expected: u64,
}

/// Runs a benchmark once. `threads_before` is the number of threads that this command ran before;
/// seeds continue from it.
pub(crate) fn run(
    settings: &Settings,
    db: &Db,
    pool: &[u8],
    work: &Work,
    threads_before: &mut u64,
) -> Result<Stats, Failure> {
    let measured = if work.single { 1 } else { settings.threads };
    let threads = measured + usize::from(work.measured == Measured::AllButLast);
    let bar = crate::progress(work.expected.saturating_mul(measured as u64));
    let shared = Shared {
        settings,
        db,
        pool,
        bar: &bar,
        done: AtomicUsize::new(0),
        threads,
        failed: AtomicBool::new(false),
        range_deletes: AtomicU64::new(0),
    };
    let ready = Barrier::new(threads);
    let first_seed = settings.seed + *threads_before + 1;
    *threads_before += threads as u64;
    let results: Vec<Result<Stats, Failure>> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let (shared, ready) = (&shared, &ready);
            scope.spawn(move || one(shared, ready, work, number, first_seed + number as u64))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let panicked = |_| Err(Failure::Differs("a thread panicked".into()));
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect()
    });
    bar.finish_and_clear();
    let mut all: Option<Stats> = None;
    for (number, stats) in results.into_iter().enumerate() {
        let stats = stats?;
        match &mut all {
            _ if number >= measured => {}
            None => all = Some(stats),
            Some(all) => all.merge(stats),
        }
    }
    // ORDERING: Relaxed: the threads are joined.
    let range_deletes = shared.range_deletes.load(Ordering::Relaxed);
    if range_deletes > 0 {
        print(format_args!("Number of range deletions: {range_deletes}\n"))?;
    }
    all.ok_or_else(|| Failure::Cannot("a benchmark without threads".into()))
}

fn one(
    shared: &Shared<'_>,
    ready: &Barrier,
    work: &Work,
    number: usize,
    seed: u64,
) -> Result<Stats, Failure> {
    let timed = shared.settings.timed.then_some(work.operation);
    let random = Twister::new(seed);
    let mut thread = Thread {
        shared,
        number,
        random,
        session: shared.db.session(),
        stats: Stats::start(timed),
    };
    ready.wait();
    thread.stats = Stats::start(timed);
    let result = (work.run)(&mut thread);
    thread.stats.stop();
    // ORDERING: Relaxed: a hint for the others.
    shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
    // ORDERING: Relaxed: a hint for the others.
    shared.done.fetch_add(1, Ordering::Relaxed);
    result.map(|()| thread.stats)
}

// The results of threads, and the result lines in RocksDB's format.

/// The results of a thread.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) started: Instant,
    finished: Instant,
    /// Sum over the threads.
    busy: Duration,
    pub(crate) done: u64,
    pub(crate) bytes: u64,
    pub(crate) message: String,
    last: Instant,
    times: Option<(&'static str, Histogram)>,
    shown: u64,
}

/// Operations between two updates of the progress bar.
const SHOW_EACH: u64 = 4096;

impl Stats {
    /// Starts the clock. With a name for its operations it also keeps their times.
    pub(crate) fn start(timed: Option<&'static str>) -> Stats {
        let now = Instant::now();
        Stats {
            started: now,
            finished: now,
            busy: Duration::ZERO,
            done: 0,
            bytes: 0,
            message: String::new(),
            last: now,
            times: timed.map(|word| (word, Histogram::new())),
            shown: 0,
        }
    }

    /// Counts more operations, timed as one.
    #[inline]
    pub(crate) fn finished(&mut self, operations: u64, bar: &ProgressBar) {
        if let Some((_, histogram)) = &mut self.times {
            let now = Instant::now();
            let micros = now.duration_since(self.last).as_micros();
            histogram.add(u64::try_from(micros).unwrap_or(u64::MAX));
            self.last = now;
        }
        self.done += operations;
        if self.done - self.shown >= SHOW_EACH {
            bar.inc(self.done - self.shown);
            self.shown = self.done;
        }
    }

    fn stop(&mut self) {
        self.finished = Instant::now();
        self.busy = self.finished - self.started;
    }

    /// Adds the counts of another thread. The message of the first one stays.
    fn merge(&mut self, other: Stats) {
        self.started = self.started.min(other.started);
        self.finished = self.finished.max(other.finished);
        self.busy += other.busy;
        self.done += other.done;
        self.bytes += other.bytes;
        if self.message.is_empty() {
            self.message = other.message;
        }
        match (&mut self.times, other.times) {
            (Some((_, mine)), Some((_, theirs))) => mine.merge(&theirs),
            (mine @ None, theirs) => *mine = theirs,
            _ => {}
        }
    }

    fn elapsed(&self) -> f64 {
        (self.finished - self.started).as_secs_f64().max(1e-9)
    }

    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1_048_576.0 / self.elapsed()
    }

    /// The result line, and the times after it.
    pub(crate) fn report(&self, name: &str) -> String {
        let done = self.done.max(1);
        let micros = self.busy.as_secs_f64() * 1e6 / done as f64;
        let mut extra = String::new();
        if self.bytes > 0 {
            extra = format!("{:6.1} MB/s", self.megabytes());
        }
        if !extra.is_empty() && !self.message.is_empty() {
            extra.push(' ');
        }
        extra.push_str(&self.message);
        let (rate, elapsed) = (self.rate(), self.elapsed());
        let space = if extra.is_empty() { "" } else { " " };
        let mut text = format!(
            "{name:<12} : {micros:11.3} micros/op {rate:.0} ops/sec {elapsed:.3} seconds {done} operations;{space}{extra}\n"
        );
        if let Some((word, histogram)) = &self.times {
            text.push_str(&format!(
                "Microseconds per {word}:\n{}\n",
                histogram.render()
            ));
        }
        text
    }

    /// Operations per second.
    fn rate(&self) -> f64 {
        (self.done.max(1) as f64 / self.elapsed()).trunc()
    }
}

/// The results of repeated runs.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    rates: Vec<f64>,
    megabytes: Vec<f64>,
}

/// Selects averages or intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Averages,
    Intervals,
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// Half the width of the 95 % confidence interval of the mean.
fn half_width(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let (mean, count) = (mean(samples), samples.len() as f64);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    1.96 * (squares / (count - 1.0)).sqrt() / count.sqrt()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        Some(upper) if sorted.len().is_multiple_of(2) => (sorted[middle - 1] + upper) / 2.0,
        Some(middle) => *middle,
        None => 0.0,
    }
}

impl Repeats {
    /// Adds a run. Returns the lines about all runs so far, once there are two.
    pub(crate) fn add(&mut self, stats: &Stats, name: &str, shown: Shown) -> String {
        self.rates.push(stats.rate());
        if stats.bytes > 0 {
            self.megabytes.push(stats.megabytes());
        }
        if self.rates.len() < 2 {
            String::new()
        } else {
            self.average(name, "", shown)
        }
    }

    fn average(&self, name: &str, pad: &str, shown: Shown) -> String {
        let (rate, rate_half) = (mean(&self.rates), half_width(&self.rates));
        let (speed, speed_half) = (mean(&self.megabytes), half_width(&self.megabytes));
        let (count, bytes) = (self.rates.len(), self.megabytes.len() == self.rates.len());
        let count = if pad.is_empty() {
            count.to_string()
        } else {
            format!("{count:4}")
        };
        match shown {
            Shown::Averages => {
                let latency = if pad.is_empty() {
                    String::new()
                } else {
                    format!(" {:.3} ms/op;", 1e3 / rate)
                };
                let speed = format!("{speed:6.1} (\u{b1} {speed_half:.1}) MB/sec");
                let tail = if bytes {
                    format!(";{latency} {speed}")
                } else if latency.is_empty() {
                    String::new()
                } else {
                    format!(";{}", latency.trim_end_matches(';'))
                };
                format!(
                    "{name} [AVG {count} runs] : {rate:.0} (\u{b1} {rate_half:.0}) ops/sec{tail}\n"
                )
            }
            Shown::Intervals => {
                let tail = if bytes {
                    format!(
                        "; ({:.1}, {:.1}) MB/sec",
                        speed - speed_half,
                        speed + speed_half
                    )
                } else {
                    String::new()
                };
                format!(
                    "{name} [CI95 {count} runs] : ({:.0}, {:.0}) ops/sec{tail}\n",
                    rate - rate_half,
                    rate + rate_half
                )
            }
        }
    }

    /// The closing lines about all runs.
    pub(crate) fn finish(&self, name: &str, shown: Shown) -> String {
        if self.rates.len() < 2 {
            return String::new();
        }
        let mut text = format!("\n{}", self.average(name, "    ", shown));
        if shown == Shown::Averages {
            let speed = if self.megabytes.len() == self.rates.len() {
                format!("; {:6.1} MB/sec", median(&self.megabytes))
            } else {
                String::new()
            };
            text.push_str(&format!(
                "{name} [MEDIAN {} runs] : {:.0} ops/sec{speed}\n",
                self.rates.len(),
                median(&self.rates)
            ));
        }
        text
    }
}

// Times of single operations, shown as RocksDB shows them.

/// Counts of values in buckets whose bounds grow by half and keep two digits.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bounds: Vec<u64>,
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    squares: f64,
    min: u64,
    max: u64,
}

/// The value with all digits after the second one set to 0.
fn two_digits(value: u64) -> u64 {
    let (mut head, mut scale) = (value, 1);
    while head / 10 > 10 {
        head /= 10;
        scale *= 10;
    }
    head * scale
}

impl Histogram {
    pub(crate) fn new() -> Self {
        let mut bounds = vec![1, 2];
        let mut bound = 2.0f64;
        while bound < 1e18 {
            bound *= 1.5;
            #[expect(clippy::cast_possible_truncation, reason = "below 2^63")]
            bounds.push(two_digits(bound as u64));
        }
        let counts = vec![0; bounds.len()];
        Histogram {
            bounds,
            counts,
            count: 0,
            sum: 0.0,
            squares: 0.0,
            min: u64::MAX,
            max: 0,
        }
    }

    pub(crate) fn add(&mut self, value: u64) {
        let at = self
            .bounds
            .partition_point(|bound| *bound < value)
            .min(self.bounds.len() - 1);
        self.counts[at] += 1;
        self.count += 1;
        self.sum += value as f64;
        self.squares += value as f64 * value as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The value that `percent` of all values do not exceed, interpolated inside its bucket.
    fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count as f64 * percent / 100.0;
        let mut passed = 0.0;
        for (at, count) in self.counts.iter().enumerate() {
            let count = *count as f64;
            if passed + count >= threshold && count > 0.0 {
                let left = if at == 0 { 0 } else { self.bounds[at - 1] } as f64;
                let right = self.bounds[at] as f64;
                let value = left + (right - left) * (threshold - passed) / count;
                return value.clamp(self.min as f64, self.max as f64);
            }
            passed += count;
        }
        self.max as f64
    }

    pub(crate) fn render(&self) -> String {
        let count = self.count.max(1) as f64;
        let average = self.sum / count;
        let deviation = (self.squares / count - average * average).max(0.0).sqrt();
        let min = if self.count == 0 { 0 } else { self.min };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "Count: {} Average: {average:.4}  StdDev: {deviation:.2}",
            self.count
        );
        let _ = writeln!(
            text,
            "Min: {min}  Median: {:.4}  Max: {}",
            self.percentile(50.0),
            self.max
        );
        let [p50, p75, p99, p999, p9999] =
            [50.0, 75.0, 99.0, 99.9, 99.99].map(|p| self.percentile(p));
        let _ = writeln!(
            text,
            "Percentiles: P50: {p50:.2} P75: {p75:.2} P99: {p99:.2} P99.9: {p999:.2} P99.99: {p9999:.2}"
        );
        let _ = writeln!(
            text,
            "------------------------------------------------------"
        );
        let mut passed = 0.0;
        for (at, bucket) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, bucket)| **bucket > 0)
        {
            let left = if at == 0 { 0 } else { self.bounds[at - 1] };
            let bracket = if at == 0 { '[' } else { '(' };
            let share = *bucket as f64 / count * 100.0;
            passed += share;
            #[expect(clippy::cast_possible_truncation, reason = "at most 20")]
            let marks = "#".repeat((share / 5.0 + 0.5) as usize);
            let right = self.bounds[at];
            let _ = writeln!(
                text,
                "{bracket} {left:>7}, {right:>7} ] {bucket:>8} {share:>7.3}% {passed:>7.3}% {marks}"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(done: u64, bytes: u64, millis: u64) -> Stats {
        let mut stats = Stats::start(None);
        stats.done = done;
        stats.bytes = bytes;
        stats.finished = stats.started + Duration::from_millis(millis);
        stats.busy = stats.finished - stats.started;
        stats
    }

    #[test]
    fn lines_are_those_of_rocksdb() {
        let mut one = stats(20_000, 116 * 20_000, 64);
        let line = "fillrandom   :       3.200 micros/op 312500 ops/sec 0.064 seconds 20000 operations;   34.6 MB/s\n";
        assert_eq!(one.report("fillrandom"), line);
        one.message = "(12409 of 20000 found)\n".into();
        assert!(
            one.report("readrandom")
                .ends_with("operations;   34.6 MB/s (12409 of 20000 found)\n\n")
        );
        let mut none = stats(20_000, 0, 64);
        assert!(none.report("readseq").ends_with(" operations;\n"));
        none.message = "(0 of 20000 found)\n".into();
        assert!(
            none.report("readmissing")
                .ends_with(" operations; (0 of 20000 found)\n\n")
        );
    }

    #[test]
    fn repeats_are_summed_up() {
        let mut repeats = Repeats::default();
        assert_eq!(
            repeats.add(&stats(1_000, 1 << 20, 100), "x", Shown::Averages),
            ""
        );
        let line = repeats.add(&stats(1_000, 1 << 20, 50), "x", Shown::Averages);
        assert_eq!(
            line,
            "x [AVG 2 runs] : 15000 (\u{b1} 9800) ops/sec;   15.0 (\u{b1} 9.8) MB/sec\n"
        );
        let last = repeats.finish("x", Shown::Averages);
        let average = "x [AVG    2 runs] : 15000 (\u{b1} 9800) ops/sec; 0.067 ms/op;   15.0 (\u{b1} 9.8) MB/sec\n";
        let median = "x [MEDIAN 2 runs] : 15000 ops/sec;   15.0 MB/sec\n";
        assert_eq!(last, format!("\n{average}{median}"));
        let interval = "\nx [CI95    2 runs] : (5200, 24800) ops/sec; (5.2, 24.8) MB/sec\n";
        assert_eq!(repeats.finish("x", Shown::Intervals), interval);
    }

    #[test]
    fn buckets_are_those_of_rocksdb() {
        let mut histogram = Histogram::new();
        let first = [
            1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580, 870, 1300, 1900, 2900,
        ];
        assert_eq!(histogram.bounds[..20], first);
        for value in 0..1_000 {
            histogram.add(value);
        }
        let text = histogram.render();
        assert!(
            text.starts_with("Count: 1000 Average: 499.5000  StdDev: 288.67\n"),
            "{text}"
        );
        assert!(
            text.contains("\n(     380,     580 ]      200  20.000%  58.100% ####\n"),
            "{text}"
        );
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!(
            twice.render().lines().next(),
            Some("Count: 2000 Average: 499.5000  StdDev: 288.67")
        );
    }
}
