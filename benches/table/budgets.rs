//! The targets that the crate sets itself, and whether this run reached them.

use std::fmt::Write;

use measure::record::{Row, Section};

use crate::page::{CROSSBEAM, ON_SEEK, ORDER_CHECKS, PLAIN, PROTECTED, speed};

/// One target about a row, by medians over the rounds.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// At least so many times as fast as crossbeam-skiplist, at 0 and at 8 protection bytes.
    Ahead(f64),
    /// At most so many nanoseconds more at 8 protection bytes than at 0.
    Added(f64),
    /// At most this ratio between two candidates.
    Ratio(usize, usize, f64, &'static str),
    /// At most so many nanoseconds at 8 protection bytes.
    Within(f64),
}

const TARGETS: &[(&str, Target)] = &[
    ("make and drop an empty table", Target::Within(5_000.0)),
    ("insert in order", Target::Ahead(2.0)),
    ("insert at random", Target::Ahead(2.0)),
    ("get hit", Target::Ahead(1.5)),
    ("get miss", Target::Ahead(1.5)),
    ("scan forward, filled in order", Target::Ahead(2.0)),
    ("scan forward, filled at random", Target::Ahead(2.0)),
    ("scan backward, filled in order", Target::Ahead(2.0)),
    ("scan backward, filled at random", Target::Ahead(2.0)),
    ("insert in order", Target::Added(20.0)),
    ("get hit", Target::Added(20.0)),
    ("get miss", Target::Added(20.0)),
    ("scan forward, filled in order", Target::Added(15.0)),
    ("scan forward, filled at random", Target::Added(15.0)),
    ("insert at random", Target::Ratio(PROTECTED, PLAIN, 1.03, "protection 8 / 0")),
    ("get hit", Target::Ratio(ON_SEEK, PROTECTED, 1.10, "checksum on seek / protection 8")),
    ("get hit", Target::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none")),
    ("scan forward, filled in order", Target::Ratio(ORDER_CHECKS, PLAIN, 1.05, "order checks / none")),
];

/// Whether a target was reached, as the page says it.
fn verdict(kept: &[bool]) -> &'static str {
    if kept.iter().all(|kept| *kept) { "reached" } else { "**missed**" }
}

impl Target {
    /// The target, what was measured, and whether it is enough.
    fn judge(self, row: &Row) -> (String, String, &'static str) {
        match self {
            Target::Ahead(wanted) => {
                let [plain, protected] =
                    [PLAIN, PROTECTED].map(|candidate| speed(row, CROSSBEAM, candidate)[1]);
                (
                    format!("{wanted:.1}x crossbeam-skiplist"),
                    format!("{plain:.2}x at 0, {protected:.2}x at 8"),
                    verdict(&[plain >= wanted, protected >= wanted]),
                )
            }
            Target::Added(most) => {
                let [_, added, _] = row.paired(PROTECTED, PLAIN, |a, b| a - b);
                (format!("protection 8: +{most:.0} ns"), format!("{added:+.1} ns"), verdict(&[added <= most]))
            }
            Target::Ratio(a, b, most, what) => {
                let [_, ratio, _] = row.paired(a, b, |a, b| a / b);
                (format!("{what}: {most:.2}"), format!("{ratio:.3}"), verdict(&[ratio <= most]))
            }
            Target::Within(most) => {
                let [_, time, _] = row.paired(PROTECTED, PROTECTED, |time, _| time);
                (format!("{most:.0} ns"), format!("{time:.0} ns"), verdict(&[time <= most]))
            }
        }
    }
}

/// The targets as a table.
pub(crate) fn render(text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries, budgets\n", section.entries)?;
    writeln!(text, "| work | wanted | measured | |\n|---|---|---|---|")?;
    for (name, target) in TARGETS {
        let Some(row) = section.rows.iter().find(|row| row.name == *name) else { continue };
        let (wanted, measured, verdict) = target.judge(row);
        writeln!(text, "| {name} | {wanted} | {measured} | {verdict} |")?;
    }
    let empty = section.empty_bytes.unwrap_or(0);
    let kept = verdict(&[empty <= 16 << 10]);
    writeln!(text, "| empty table | 16384 bytes | {empty} bytes | {kept} |")
}
