//! What threads did, and the result lines in RocksDB's format.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::histogram::Histogram;

/// What a thread did.
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
    /// A clock that starts now. With a name for its operations it also keeps their times.
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

    pub(crate) fn stop(&mut self) {
        self.finished = Instant::now();
        self.busy = self.finished - self.started;
    }

    /// Adds the counts of another thread. The message of the first one stays.
    pub(crate) fn merge(&mut self, other: Stats) {
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
            text.push_str(&format!("Microseconds per {word}:\n{}\n", histogram.render()));
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

/// Whether averages or intervals are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Averages,
    Intervals,
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// Half the width of the interval that holds the mean with 95 %.
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
    /// Adds a run. Returns the lines about all runs so far, from the second one on.
    pub(crate) fn add(&mut self, stats: &Stats, name: &str, shown: Shown) -> String {
        self.rates.push(stats.rate());
        if stats.bytes > 0 {
            self.megabytes.push(stats.megabytes());
        }
        if self.rates.len() < 2 { String::new() } else { self.average(name, "", shown) }
    }

    fn average(&self, name: &str, pad: &str, shown: Shown) -> String {
        let (rate, rate_half) = (mean(&self.rates), half_width(&self.rates));
        let (speed, speed_half) = (mean(&self.megabytes), half_width(&self.megabytes));
        let (count, bytes) = (self.rates.len(), self.megabytes.len() == self.rates.len());
        let count = if pad.is_empty() { count.to_string() } else { format!("{count:4}") };
        match shown {
            Shown::Averages => {
                let latency =
                    if pad.is_empty() { String::new() } else { format!(" {:.3} ms/op;", 1e3 / rate) };
                let speed = format!("{speed:6.1} (\u{b1} {speed_half:.1}) MB/sec");
                let tail = if bytes {
                    format!(";{latency} {speed}")
                } else if latency.is_empty() {
                    String::new()
                } else {
                    format!(";{}", latency.trim_end_matches(';'))
                };
                format!("{name} [AVG {count} runs] : {rate:.0} (\u{b1} {rate_half:.0}) ops/sec{tail}\n")
            }
            Shown::Intervals => {
                let tail = if bytes {
                    format!("; ({:.1}, {:.1}) MB/sec", speed - speed_half, speed + speed_half)
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
        assert!(one.report("readrandom").ends_with("operations;   34.6 MB/s (12409 of 20000 found)\n\n"));
        let mut none = stats(20_000, 0, 64);
        assert!(none.report("readseq").ends_with(" operations;\n"));
        none.message = "(0 of 20000 found)\n".into();
        assert!(none.report("readmissing").ends_with(" operations; (0 of 20000 found)\n\n"));
    }

    #[test]
    fn repeats_are_summed_up() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.add(&stats(1_000, 1 << 20, 100), "x", Shown::Averages), "");
        let line = repeats.add(&stats(1_000, 1 << 20, 50), "x", Shown::Averages);
        assert_eq!(line, "x [AVG 2 runs] : 15000 (\u{b1} 9800) ops/sec;   15.0 (\u{b1} 9.8) MB/sec\n");
        let last = repeats.finish("x", Shown::Averages);
        let average =
            "x [AVG    2 runs] : 15000 (\u{b1} 9800) ops/sec; 0.067 ms/op;   15.0 (\u{b1} 9.8) MB/sec\n";
        let median = "x [MEDIAN 2 runs] : 15000 ops/sec;   15.0 MB/sec\n";
        assert_eq!(last, format!("\n{average}{median}"));
        let interval = "\nx [CI95    2 runs] : (5200, 24800) ops/sec; (5.2, 24.8) MB/sec\n";
        assert_eq!(repeats.finish("x", Shown::Intervals), interval);
    }
}
