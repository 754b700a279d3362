//! The page of a set's costs, and the targets that the crate sets itself.

use std::fmt::Write;

use measure::environment::Environment;
use measure::record::{Record, Section, quartiles};

/// A target about two candidates of a row: the one that is judged, and what it is compared with.
enum Target {
    /// At most so many times the time.
    Times(f64),
    /// At most so many nanoseconds more.
    Added(f64),
    /// At least so many times as fast.
    Ahead(f64),
}

use Target::{Added, Ahead, Times};

const TARGETS: [(&str, &str, &str, Target); 6] = [
    ("put at random", "set-8", "table-8", Times(1.25)),
    ("put in order", "set-8", "table-8", Added(60.0)),
    ("put at random, by the clock", "set-8-two-threads", "set-8", Ahead(1.6)),
    ("get from the older table", "set-8", "table-8", Times(1.15)),
    ("put at random", "set-8", "rocksdb-8", Ahead(1.5)),
    ("put in order", "set-8", "rocksdb-8", Ahead(1.5)),
];

impl Target {
    /// What is wanted, what was measured, and whether that is enough; the quartiles are in brackets.
    fn judge(
        &self,
        record: &Record,
        section: &Section,
        row: &str,
        pair: (&str, &str),
    ) -> Option<[String; 3]> {
        let paired = |how: fn(f64, f64) -> f64| section.paired(&record.candidates, row, pair, how);
        let (wanted, [low, median, high], is_kept) = match *self {
            Times(most) => {
                let found = paired(|judged, other| judged / other)?;
                (format!("at most {most} times {}", pair.1), found, found[1] <= most)
            }
            Added(most) => {
                let found = paired(|judged, other| judged - other)?;
                (format!("{} +{most:.0} ns", pair.1), found, found[1] <= most)
            }
            Ahead(least) => {
                let found = paired(|judged, other| other / judged)?;
                (format!("at least {least} times as fast as {}", pair.1), found, found[1] >= least)
            }
        };
        let verdict = if is_kept { "reached" } else { "**missed**" };
        let [wanted, verdict] = [wanted, verdict.into()];
        Some([wanted, format!("{median:.2} ({low:.2}..{high:.2})"), verdict])
    }
}

pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(record, &mut text).and_then(|()| performance(&mut text, record));
    text
}

fn head(record: &Record, text: &mut String) -> std::fmt::Result {
    let Environment { processor, compiler, commit, command, date, rust_flags, cxx_flags } =
        &record.environment;
    writeln!(text, "# What a set costs\n")?;
    writeln!(text, "- command, from benches/peers: `{command}`\n- date: {date}\n- processor: {processor}")?;
    writeln!(text, "- commit: {commit}\n- Rust: {compiler}, {rust_flags}\n- RocksDB: {cxx_flags}")
}

/// Budgets and times, without the head of a page.
pub fn performance(text: &mut String, record: &Record) -> std::fmt::Result {
    for section in &record.sections {
        let Record { keys, values, rounds, .. } = record;
        writeln!(
            text,
            "\n{} entries, {keys}-byte keys, {values}-byte values, {rounds} rounds in turn; nothing is logged, and tables are \
             not switched except where holds are timed. Batches are made before the time begins. `table`: `Writer::put`; \
             `table-batch`: `Writer::write_batch`; `rocksdb`: `DB::Write` with `disableWAL`; `view`: one view for all gets; the \
             number: protection bytes. Medians, in brackets quartiles.\n",
            section.entries
        )?;
        budgets(text, record, section)?;
        times(text, record, section)?;
    }
    Ok(())
}

fn budgets(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let judged = TARGETS.iter().filter_map(|(row, judged, other, target)| {
        let figures = target.judge(record, section, row, (*judged, *other))?;
        Some(format!("| {row} | {judged} | {} |", figures.join(" | ")))
    });
    let judged: Vec<String> = judged.collect();
    if !judged.is_empty() {
        writeln!(text, "| work | | wanted | measured | |\n|---|---|---|---|---|\n{}\n", judged.join("\n"))?;
    }
    Ok(())
}

/// Median nanoseconds per operation of the candidates that have samples.
fn times(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let has_samples = |at: &usize| section.rows.iter().any(|row| !row.samples(*at).is_empty());
    let shown: Vec<usize> = (0..record.candidates.len()).filter(has_samples).collect();
    let names: Vec<&str> = shown.iter().map(|at| record.candidates[*at].as_str()).collect();
    writeln!(text, "| nanoseconds | {} |\n|---{}|", names.join(" | "), "|---".repeat(shown.len()))?;
    for row in &section.rows {
        let cell = |at: &usize| match row.samples(*at) {
            [] => "-".to_owned(),
            samples => format!("{:.0}", quartiles(samples.to_vec())[1]),
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}
