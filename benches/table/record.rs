//! The record: medians of ratios as Markdown, and every figure behind them as JSON.

use std::fmt::Write;

use crate::budgets;
use crate::environment::{Arguments, Environment, Readme};
use crate::paper::{self, numbers, quartiles, quoted};
use crate::readme;
use crate::sizes::Extent;

/// Columns, by the order of the candidates: ours at 0, at 8, at 8 with checksums on seek, with order checks; two rivals.
pub(crate) const PLAIN: usize = 0;
pub(crate) const PROTECTED: usize = 1;
pub(crate) const ON_SEEK: usize = 2;
pub(crate) const ORDER_CHECKS: usize = 3;
pub(crate) const CROSSBEAM: usize = 4;
pub(crate) const BTREE: usize = 5;

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) environment: Environment,
    pub(crate) candidates: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) sections: Vec<Section>,
}

/// One size.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) entries: u32,
    pub(crate) rows: Vec<Row>,
    /// By candidate.
    pub(crate) memory: Vec<Memory>,
    /// Bytes that an empty table of ours counts, at 8 protection bytes.
    pub(crate) empty_bytes: u64,
}

/// One kind of work.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Nanoseconds of one operation, by candidate and round.
    pub(crate) nanoseconds: Vec<Vec<f64>>,
    pub(crate) hash: u64,
}

/// Bytes an entry, keys and values included.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What the table counts.
    pub(crate) counted: Option<f64>,
    /// By how much a process grew.
    pub(crate) resident: Option<f64>,
}

impl Row {
    /// Quartiles over the rounds of a figure made from two candidates.
    pub(crate) fn paired(&self, a: usize, b: usize, how: impl Fn(f64, f64) -> f64) -> [f64; 3] {
        let pairs = self.nanoseconds[a].iter().zip(&self.nanoseconds[b]);
        quartiles(pairs.map(|(a, b)| how(*a, *b)).collect())
    }

    /// How many times as fast `ours` is as `rival`.
    pub(crate) fn speed(&self, rival: usize, ours: usize) -> [f64; 3] {
        self.paired(rival, ours, |rival, ours| rival / ours)
    }

    /// How much longer `a` takes than `b`: nanoseconds, and percent.
    fn cost(&self, a: usize, b: usize) -> String {
        let [_, added, _] = self.paired(a, b, |a, b| a - b);
        let [_, ratio, _] = self.paired(a, b, |a, b| a / b);
        format!("{added:+.0} ns, {:+.1} %", (ratio - 1.0) * 100.0)
    }
}

impl Record {
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.render(&mut text);
        text
    }

    fn render(&self, text: &mut String) -> std::fmt::Result {
        let Environment { processor, compiler, commit, command, date } = &self.environment;
        writeln!(text, "# Results: `{command}`\n")?;
        writeln!(
            text,
            "- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, default target"
        )?;
        writeln!(text, "- commit: {commit}\n- 16-byte keys, 100-byte values, one thread")?;
        writeln!(
            text,
            "- medians over {} rounds (inserts: slices) of the ratio inside a round; above 1 this crate is faster",
            self.rounds
        )?;
        for section in &self.sections {
            self.render_section(text, section)?;
        }
        Ok(())
    }

    fn render_section(&self, text: &mut String, section: &Section) -> std::fmt::Result {
        writeln!(text, "\n## {} entries\n", section.entries)?;
        writeln!(
            text,
            "Times in ns at protection 8; then how many times as fast this crate is, at 0 / 8 / 8 and checksums on seek.\n"
        )?;
        writeln!(
            text,
            "| work | ours | {0} | {1} | times {0} | times {1} |",
            self.candidates[CROSSBEAM], self.candidates[BTREE]
        )?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for row in &section.rows {
            let time = |candidate: usize| quartiles(row.nanoseconds[candidate].clone())[1];
            let times = |rival: usize| {
                let ratios = [PLAIN, PROTECTED, ON_SEEK]
                    .map(|candidate| format!("{:.2}", row.speed(rival, candidate)[1]));
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
            self.candidates[CROSSBEAM], self.candidates[BTREE]
        )?;
        for row in &section.rows {
            let spread = |rival: usize| {
                let [low, _, high] = row.speed(rival, PROTECTED);
                format!("{low:.2} to {high:.2}")
            };
            writeln!(text, "| {} | {} | {} |", row.name, spread(CROSSBEAM), spread(BTREE))?;
        }
        budgets::render(text, section)?;
        self.render_costs(text, section)
    }

    fn render_costs(&self, text: &mut String, section: &Section) -> std::fmt::Result {
        writeln!(text, "\n## {} entries, what checks cost\n", section.entries)?;
        writeln!(text, "| work | protection 8 over 0 | checksum on seek over 8 | order checks over 0 |")?;
        writeln!(text, "|---|---|---|---|")?;
        for row in &section.rows {
            let costs = [(PROTECTED, PLAIN), (ON_SEEK, PROTECTED), (ORDER_CHECKS, PLAIN)];
            let costs = costs.map(|(a, b)| row.cost(a, b));
            writeln!(text, "| {} | {} |", row.name, costs.join(" | "))?;
        }
        writeln!(text, "\n## {} entries, bytes an entry (116 of them key and value)\n", section.entries)?;
        writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
        for (candidate, memory) in self.candidates.iter().zip(&section.memory) {
            let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
            writeln!(text, "| {candidate} | {} | {} |", bytes(memory.counted), bytes(memory.resident))?;
        }
        let hash = section.rows.iter().fold(0u64, |hash, row| hash.rotate_left(5) ^ row.hash);
        writeln!(text, "\nHash of the work, the same for all tables: `{hash:016x}`")
    }

    fn json(&self) -> Result<String, std::fmt::Error> {
        let Environment { processor, compiler, commit, command, date } = &self.environment;
        let mut text = String::from("{\n");
        for (name, value) in [
            ("date", date),
            ("processor", processor),
            ("compiler", compiler),
            ("commit", commit),
            ("command", command),
        ] {
            writeln!(text, "  {}: {},", quoted(name), quoted(value))?;
        }
        writeln!(text, "  \"key_bytes\": 16, \"value_bytes\": 100, \"rounds\": {},", self.rounds)?;
        let candidates: Vec<String> = self.candidates.iter().map(|candidate| quoted(candidate)).collect();
        writeln!(text, "  \"candidates\": [{}],\n  \"sections\": [", candidates.join(", "))?;
        for (at, section) in self.sections.iter().enumerate() {
            writeln!(text, "    {{\"entries\": {}, \"rows\": [", section.entries)?;
            for (at, row) in section.rows.iter().enumerate() {
                let candidates: Vec<String> = row
                    .nanoseconds
                    .iter()
                    .map(|candidate| numbers(candidate.iter().copied().map(Some)))
                    .collect();
                let end = if at + 1 < section.rows.len() { "," } else { "" };
                writeln!(
                    text,
                    "      {{\"work\": {}, \"hash\": \"{:016x}\", \"nanoseconds\": [{}]}}{end}",
                    quoted(&row.name),
                    row.hash,
                    candidates.join(", ")
                )?;
            }
            let counted = numbers(section.memory.iter().map(|memory| memory.counted));
            let resident = numbers(section.memory.iter().map(|memory| memory.resident));
            let end = if at + 1 < self.sections.len() { "," } else { "" };
            writeln!(
                text,
                "    ], \"empty_bytes\": {}, \"counted_bytes\": {counted}, \"resident_bytes\": {resident}}}{end}",
                section.empty_bytes
            )?;
        }
        writeln!(text, "  ]\n}}")?;
        Ok(text)
    }

    /// Writes both files if a date was given: what was written. A quick look is tried out and thrown away.
    pub(crate) fn write(&self, arguments: &Arguments, extent: Extent) -> Result<Option<String>, String> {
        let json = self.json().map_err(|error| error.to_string())?;
        let _ = readme::block(self, "tried-out").map_err(|error| error.to_string())?;
        let Some(stem) = paper::save(arguments, extent, &self.markdown(), &json)? else { return Ok(None) };
        if arguments.readme == Readme::Rewrite {
            readme::rewrite(self, &stem)?;
        }
        Ok(Some(format!("{stem}.md and .json")))
    }
}
