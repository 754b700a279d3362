//! The page: medians of ratios, and whether the targets were reached.

use std::fmt::Write;

use measure::environment::Environment;
use measure::record::{Record, Row, Section, quartiles};

use crate::{budgets, rivals};

/// Columns, by the order of the candidates: ours at 0, at 8, at 8 with checksums on seek, with order checks; two rivals.
pub(crate) const PLAIN: usize = 0;
pub(crate) const PROTECTED: usize = 1;
pub(crate) const ON_SEEK: usize = 2;
pub(crate) const ORDER_CHECKS: usize = 3;
pub(crate) const CROSSBEAM: usize = 4;
pub(crate) const BTREE: usize = 5;

/// How many times as fast `ours` is as `rival`.
pub(crate) fn speed(row: &Row, rival: usize, ours: usize) -> [f64; 3] {
    row.paired(rival, ours, |rival, ours| rival / ours)
}

/// How much longer `a` takes than `b`: nanoseconds, and percent.
fn cost(row: &Row, a: usize, b: usize) -> String {
    let [_, added, _] = row.paired(a, b, |a, b| a - b);
    let [_, ratio, _] = row.paired(a, b, |a, b| a / b);
    format!("{added:+.0} ns, {:+.1} %", (ratio - 1.0) * 100.0)
}

/// The page of a record.
pub(crate) fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(record, &mut text);
    text
}

fn render(record: &Record, text: &mut String) -> std::fmt::Result {
    let Environment { processor, compiler, commit, command, date, .. } = &record.environment;
    writeln!(text, "# Results: `{command}`\n")?;
    writeln!(
        text,
        "- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, default target"
    )?;
    writeln!(text, "- commit: {commit}\n- 16-byte keys, 100-byte values, one thread")?;
    writeln!(
        text,
        "- medians over {} rounds (inserts: slices) of the ratio inside a round; above 1 this crate is faster",
        record.rounds
    )?;
    for section in &record.sections {
        render_section(record, text, section)?;
    }
    Ok(())
}

fn render_section(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries\n", section.entries)?;
    writeln!(
        text,
        "Times in ns at protection 8; then how many times as fast this crate is, at 0 / 8 / 8 and checksums on seek.\n"
    )?;
    writeln!(
        text,
        "| work | ours | {0} | {1} | times {0} | times {1} |",
        record.candidates[CROSSBEAM], record.candidates[BTREE]
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for row in &section.rows {
        let time = |candidate: usize| quartiles(row.samples(candidate).to_vec())[1];
        let times = |rival: usize| {
            let ratios = [PLAIN, PROTECTED, ON_SEEK]
                .map(|candidate| format!("{:.2}", speed(row, rival, candidate)[1]));
            ratios.join(" / ")
        };
        let (ours, crossbeam, btree) = (time(PROTECTED), time(CROSSBEAM), time(BTREE));
        let times = format!("{} | {}", times(CROSSBEAM), times(BTREE));
        writeln!(text, "| {} | {ours:.0} | {crossbeam:.0} | {btree:.0} | {times} |", row.name)?;
    }
    writeln!(text, "\nSpread at protection 8, lower to upper quartile of the same ratios:\n")?;
    writeln!(
        text,
        "| work | {} | {} |\n|---|---|---|",
        record.candidates[CROSSBEAM], record.candidates[BTREE]
    )?;
    for row in &section.rows {
        let spread = |rival: usize| {
            let [low, _, high] = speed(row, rival, PROTECTED);
            format!("{low:.2} to {high:.2}")
        };
        writeln!(text, "| {} | {} | {} |", row.name, spread(CROSSBEAM), spread(BTREE))?;
    }
    budgets::render(text, section)?;
    render_costs(record, text, section)
}

fn render_costs(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries, what checks cost\n", section.entries)?;
    writeln!(text, "| work | protection 8 over 0 | checksum on seek over 8 | order checks over 0 |")?;
    writeln!(text, "|---|---|---|---|")?;
    for row in &section.rows {
        let costs = [(PROTECTED, PLAIN), (ON_SEEK, PROTECTED), (ORDER_CHECKS, PLAIN)];
        let costs = costs.map(|(a, b)| cost(row, a, b));
        writeln!(text, "| {} | {} |", row.name, costs.join(" | "))?;
    }
    writeln!(text, "\n## {} entries, bytes an entry (116 of them key and value)\n", section.entries)?;
    writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
    for (at, candidate) in record.candidates.iter().enumerate() {
        let of = |all: &[Option<f64>]| all.get(at).copied().flatten();
        let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
        writeln!(
            text,
            "| {candidate} | {} | {} |",
            bytes(of(&section.counted)),
            bytes(of(&section.resident))
        )?;
    }
    let hash = Record::hash(section, rivals::mix);
    writeln!(text, "\nHash of the work, the same for all tables: `{hash:016x}`")
}
