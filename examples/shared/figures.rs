//! Formats numbers for people.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// `1234567` as `1 234 567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of entries.
pub(crate) fn entries(number: u64) -> String {
    format!(
        "{} {}",
        count(number),
        if number == 1 { "entry" } else { "entries" }
    )
}

/// A number of bytes in the unit that fits.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut size = number as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    format!("{size:.1} {unit}")
}

/// A time in the unit that fits.
pub(crate) fn time(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

/// Things per second; 0 if no time passed.
pub(crate) fn a_second(things: u64, duration: Duration) -> u64 {
    let scaled = u128::from(things) * 1_000_000_000;
    scaled
        .checked_div(duration.as_nanos())
        .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// The time per thing.
pub(crate) fn each(duration: Duration, things: u64) -> String {
    let things = u32::try_from(things.max(1)).unwrap_or(u32::MAX);
    time(duration / things)
}

/// Common percentiles of a histogram of nanoseconds.
pub(crate) fn percentiles(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return "none".into();
    }
    let at = |quantile: f64| time(Duration::from_nanos(histogram.value_at_quantile(quantile)));
    let max = time(Duration::from_nanos(histogram.max()));
    format!(
        "p50 {}, p99 {}, p99.9 {}, max {max}",
        at(0.5),
        at(0.99),
        at(0.999)
    )
}

/// An empty histogram of nanoseconds: up to a minute, three digits exact.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are sane"))
}

/// Records the time since `started`.
pub(crate) fn record(histogram: &mut Histogram<u64>, started: Instant) {
    histogram.saturating_record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
}
