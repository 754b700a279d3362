//! What the crate promises itself, and whether this run kept it.

use std::fmt::Write;

use crate::record::{CROSSBEAM, ON_SEEK, ORDER_CHECKS, PLAIN, PROTECTED, Row, Section};

/// One promise about a row, by medians over the rounds.
#[derive(Debug, Clone, Copy)]
enum Promise {
    /// At least so many times as fast as crossbeam-skiplist, at 0 and at 8 protection bytes.
    Ahead(f64),
    /// At most so many nanoseconds more at 8 protection bytes than at 0.
    Added(f64),
    /// At most this ratio between two lanes.
    Ratio(usize, usize, f64, &'static str),
    /// At most so many nanoseconds at 8 protection bytes.
    Within(f64),
}

const PROMISES: &[(&str, Promise)] = &[
    ("make and drop an empty table", Promise::Within(5_000.0)),
    ("insert in order", Promise::Ahead(2.0)),
    ("insert at random", Promise::Ahead(2.0)),
    ("get hit", Promise::Ahead(1.5)),
    ("get miss", Promise::Ahead(1.5)),
    ("scan forward, filled in order", Promise::Ahead(2.0)),
    ("scan forward, filled at random", Promise::Ahead(2.0)),
    ("scan backward, filled in order", Promise::Ahead(2.0)),
    ("scan backward, filled at random", Promise::Ahead(2.0)),
    ("insert in order", Promise::Added(20.0)),
    ("get hit", Promise::Added(20.0)),
    ("get miss", Promise::Added(20.0)),
    ("scan forward, filled in order", Promise::Added(15.0)),
    ("scan forward, filled at random", Promise::Added(15.0)),
    ("insert at random", Promise::Ratio(PROTECTED, PLAIN, 1.03, "protection 8 / 0")),
    ("get hit", Promise::Ratio(ON_SEEK, PROTECTED, 1.10, "checksum on seek / protection 8")),
    ("get hit", Promise::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none")),
    ("scan forward, filled in order", Promise::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none")),
];

/// Whether a promise was kept, as a person reads it.
fn verdict(kept: &[bool]) -> &'static str {
    if kept.iter().all(|kept| *kept) { "reached" } else { "**missed**" }
}

impl Promise {
    /// What is wanted, what was measured, whether it is enough.
    fn judge(self, row: &Row) -> (String, String, &'static str) {
        match self {
            Promise::Ahead(wanted) => {
                let [plain, protected] = [PLAIN, PROTECTED].map(|lane| row.speed(CROSSBEAM, lane)[1]);
                (
                    format!("{wanted:.1}x crossbeam-skiplist"),
                    format!("{plain:.2}x at 0, {protected:.2}x at 8"),
                    verdict(&[plain >= wanted, protected >= wanted]),
                )
            }
            Promise::Added(most) => {
                let [_, added, _] = row.paired(PROTECTED, PLAIN, |a, b| a - b);
                (format!("protection 8: +{most:.0} ns"), format!("{added:+.1} ns"), verdict(&[added <= most]))
            }
            Promise::Ratio(a, b, most, what) => {
                let [_, ratio, _] = row.paired(a, b, |a, b| a / b);
                (format!("{what}: {most:.2}"), format!("{ratio:.3}"), verdict(&[ratio <= most]))
            }
            Promise::Within(most) => {
                let [_, time, _] = row.paired(PROTECTED, PROTECTED, |time, _| time);
                (format!("{most:.0} ns"), format!("{time:.0} ns"), verdict(&[time <= most]))
            }
        }
    }
}

/// The promise against crossbeam-skiplist about a row, and whether it was kept.
pub(crate) fn ahead(row: &Row) -> String {
    let promise = PROMISES.iter().find_map(|(name, promise)| match promise {
        Promise::Ahead(wanted) if row.name == *name => Some((*wanted, promise.judge(row).2)),
        _ => None,
    });
    promise.map_or("-".into(), |(wanted, verdict)| format!("{wanted}x: {verdict}"))
}

/// The promises as a table.
pub(crate) fn render(text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries, budgets\n", section.entries)?;
    writeln!(text, "| work | wanted | measured | |\n|---|---|---|---|")?;
    for (name, promise) in PROMISES {
        let Some(row) = section.rows.iter().find(|row| row.name == *name) else { continue };
        let (wanted, measured, verdict) = promise.judge(row);
        writeln!(text, "| {name} | {wanted} | {measured} | {verdict} |")?;
    }
    let kept = verdict(&[section.empty_bytes <= 16 << 10]);
    writeln!(text, "| empty table | 16384 bytes | {} bytes | {kept} |", section.empty_bytes)
}
