//! The short table of docs/measured.md, between its two marks.

use std::fmt::Write;
use std::path::Path;

use measure::record::{Record, Section};

use crate::budgets;
use crate::page::{BTREE, CROSSBEAM, PLAIN, PROTECTED, speed};

const BEGIN: &str = "<!-- results: begin -->\n";
const END: &str = "<!-- results: end -->";

/// Puts the results of a record into docs/measured.md.
pub(crate) fn rewrite(record: &Record, stem: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let old = std::fs::read_to_string(&path).map_err(failed)?;
    let (front, rest) = old.split_once(BEGIN).ok_or_else(|| format!("{}: no {BEGIN}", path.display()))?;
    let (_, back) = rest.split_once(END).ok_or_else(|| format!("{}: no {END}", path.display()))?;
    let new = format!("{front}{BEGIN}{}{END}{back}", block(record, stem).map_err(|error| error.to_string())?);
    std::fs::write(&path, new).map_err(failed)
}

/// The text between the marks.
pub(crate) fn block(record: &Record, stem: &str) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for section in &record.sections {
        table(&mut text, section)?;
    }
    let environment = &record.environment;
    writeln!(text, "\nMade by `{}`", environment.command)?;
    writeln!(text, "on {} ({}, {}).", environment.processor, environment.compiler, environment.date)?;
    writeln!(
        text,
        "Spreads, times, the cost of each check and all budgets: [{stem}](../benches/records/{stem}.md)."
    )?;
    Ok(text)
}

fn table(text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(text, "\n{} entries:\n", section.entries)?;
    writeln!(text, "| work | crossbeam-skiplist: 0 | 8 | `BTreeMap`, `RwLock`: 0 | 8 | budget |")?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for row in section.rows.iter().skip(1) {
        let times = |rival: usize, ours: usize| format!("{:.2}", speed(row, rival, ours)[1]);
        let times = [(CROSSBEAM, PLAIN), (CROSSBEAM, PROTECTED), (BTREE, PLAIN), (BTREE, PROTECTED)]
            .map(|(rival, ours)| times(rival, ours));
        writeln!(text, "| {} | {} | {} |", row.name, times.join(" | "), budgets::ahead(row))?;
    }
    let [plain, protected, crossbeam, btree] =
        [PLAIN, PROTECTED, CROSSBEAM, BTREE].map(|candidate| section.resident[candidate].unwrap_or(f64::NAN));
    writeln!(
        text,
        "\nBytes of memory an entry, 116 of them key and value: {plain:.0} at protection 0, {protected:.0} at 8;"
    )?;
    writeln!(
        text,
        "crossbeam-skiplist {crossbeam:.0}, `BTreeMap` {btree:.0}. An empty table: {} bytes.",
        section.empty_bytes.unwrap_or(0)
    )
}
