//! Times of single operations, shown as RocksDB shows them.

use std::fmt::Write;

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

/// The value with its digits after the second one made 0.
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
        Histogram { bounds, counts, count: 0, sum: 0.0, squares: 0.0, min: u64::MAX, max: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value).min(self.bounds.len() - 1);
        self.counts[at] += 1;
        self.count += 1;
        self.sum += value as f64;
        self.squares += value as f64 * value as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
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
        let _ = writeln!(text, "Count: {} Average: {average:.4}  StdDev: {deviation:.2}", self.count);
        let _ = writeln!(text, "Min: {min}  Median: {:.4}  Max: {}", self.percentile(50.0), self.max);
        let [p50, p75, p99, p999, p9999] = [50.0, 75.0, 99.0, 99.9, 99.99].map(|p| self.percentile(p));
        let _ = writeln!(
            text,
            "Percentiles: P50: {p50:.2} P75: {p75:.2} P99: {p99:.2} P99.9: {p999:.2} P99.99: {p9999:.2}"
        );
        let _ = writeln!(text, "------------------------------------------------------");
        let mut passed = 0.0;
        for (at, bucket) in self.counts.iter().enumerate().filter(|(_, bucket)| **bucket > 0) {
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

    #[test]
    fn buckets_are_those_of_rocksdb() {
        let mut histogram = Histogram::new();
        let first = [1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580, 870, 1300, 1900, 2900];
        assert_eq!(histogram.bounds[..20], first);
        for value in 0..1_000 {
            histogram.add(value);
        }
        let text = histogram.render();
        assert!(text.starts_with("Count: 1000 Average: 499.5000  StdDev: 288.67\n"), "{text}");
        assert!(text.contains("\n(     380,     580 ]      200  20.000%  58.100% ####\n"), "{text}");
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!(twice.render().lines().next(), Some("Count: 2000 Average: 499.5000  StdDev: 288.67"));
    }
}
