//! The results of `tables`, as Markdown and JSON.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::Arguments;
use super::costs::{Costs, Row};
use measure::environment::Environment;
use measure::record::quartiles;

/// The target for the speed of a flush, as a multiple of RocksDB's.
const WANTED: f64 = 1.3;

#[derive(Debug, Serialize)]
pub struct Record {
    environment: Environment,
    entries: u64,
    rounds: usize,
    checked: String,
    load: [String; 2],
    costs: Vec<Costs>,
}

/// The load of the machine, as the system reports it.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

impl Row {
    fn candidate(&self, name: &str) -> Option<&Vec<f64>> {
        let at = self.candidates.iter().position(|candidate| *candidate == name)?;
        self.nanoseconds.get(at)
    }

    /// How many times as fast `ours` is, over the rounds: quartiles.
    fn speed(&self, ours: &str, rival: &str) -> Option<[f64; 3]> {
        let pairs = self.candidate(ours)?.iter().zip(self.candidate(rival)?);
        Some(quartiles(pairs.map(|(ours, rival)| rival / ours).collect()))
    }

    fn cell(&self, ours: &str, rival: &str) -> String {
        self.speed(ours, rival)
            .map_or("-".into(), |[low, median, high]| format!("{median:.2} ({low:.2}..{high:.2})"))
    }
}

impl Record {
    pub fn new(arguments: &Arguments, checked: String, before: String, costs: Vec<Costs>) -> Record {
        Record {
            environment: crate::environment::here(arguments.date.as_deref()),
            entries: arguments.entries,
            rounds: arguments.rounds,
            checked,
            load: [before, load()],
            costs,
        }
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.render(&mut text);
        text
    }

    fn render(&self, text: &mut String) -> std::fmt::Result {
        let Environment { processor, compiler, commit, command, date, rust_flags, cxx_flags } =
            &self.environment;
        writeln!(text, "# Table files beside RocksDB's\n")?;
        writeln!(
            text,
            "- command, from benches/peers: `{command}`\n- date: {date}\n- processor: {processor}"
        )?;
        writeln!(
            text,
            "- load of the machine (below the number of its threads if it was quiet): {} before, {} after",
            self.load[0], self.load[1]
        )?;
        writeln!(text, "- commit: {commit}\n- Rust: {compiler}, {rust_flags}\n- RocksDB: {cxx_flags}")?;
        let preloaded = std::env::var_os("LD_PRELOAD").is_some();
        let crc = if preloaded { "is preloaded" } else { "is the library's own" };
        writeln!(text, "- RocksDB's CRC32C {crc}")?;
        writeln!(
            text,
            "- {} entries, keys of 16 bytes, values of 100, inserted at random; format version 5, a filter of 10 bits",
            self.entries
        )?;
        writeln!(
            text,
            "- {} rounds, the candidates in turns; nanoseconds of processor time an operation (a flush: of all threads)\n",
            self.rounds
        )?;
        writeln!(text, "{}\n", self.checked)?;
        self.flushes(text)?;
        self.reads(text)?;
        self.times(text)
    }

    fn flushes(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "## Flush: how many times as fast this crate is\n")?;
        writeln!(
            text,
            "Ours with 8 protection bytes and every block compared with the stored digests. Medians over the rounds"
        )?;
        writeln!(
            text,
            "(quartiles); wanted: {WANTED} against RocksDB. `protection 8`: RocksDB with `memtable_protection_bytes_per_key`;"
        )?;
        writeln!(
            text,
            "`read back`: ours with `verify_after_write`, RocksDB with `paranoid_file_checks`.\n"
        )?;
        writeln!(text, "| checksum | RocksDB | | protection 8 | both read back | ours read back / not |")?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for costs in &self.costs {
            let Some(row) = costs.rows.first() else { continue };
            let met = row.speed("ours-8", "rocksdb-0").is_some_and(|[_, median, _]| median >= WANTED);
            let back = row.speed("ours-8", "ours-8+read-back").map_or(f64::NAN, |[_, median, _]| median);
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {back:.2} times as long |",
                costs.kind,
                row.cell("ours-8", "rocksdb-0"),
                if met { "reached" } else { "MISSED" },
                row.cell("ours-8", "rocksdb-8"),
                row.cell("ours-8+read-back", "rocksdb-8+read-back"),
            )?;
        }
        Ok(())
    }

    fn reads(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Reads of that file: how many times as fast this crate is\n")?;
        writeln!(
            text,
            "Both map the file and verify each block that a get or a scan fetches. `cached`: RocksDB with a block cache, which"
        )?;
        writeln!(
            text,
            "verifies a block once. `ours from a file`: by positioned reads, without a mapping.\n"
        )?;
        writeln!(text, "| checksum | work | RocksDB | RocksDB cached | ours from a file against RocksDB |")?;
        writeln!(text, "|---|---|---|---|---|")?;
        for costs in &self.costs {
            for row in costs.rows.iter().skip(1) {
                let [plain, cached, file] =
                    [("ours", "rocksdb"), ("ours", "rocksdb-cached"), ("ours-file", "rocksdb")]
                        .map(|(ours, rival)| row.cell(ours, rival));
                writeln!(text, "| {} | {} | {plain} | {cached} | {file} |", costs.kind, row.name)?;
            }
        }
        Ok(())
    }

    fn times(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Nanoseconds of an operation, medians\n")?;
        writeln!(text, "| checksum | work | figures |\n|---|---|---|")?;
        for costs in &self.costs {
            for row in &costs.rows {
                let figure = |(candidate, samples): (&&str, &Vec<f64>)| {
                    format!("{candidate} {:.0}", quartiles(samples.clone())[1])
                };
                let figures: Vec<String> = row.candidates.iter().zip(&row.nanoseconds).map(figure).collect();
                writeln!(text, "| {} | {} | {} |", costs.kind, row.name, figures.join(", "))?;
            }
        }
        Ok(())
    }

    pub fn write(&self, stem: &str) -> anyhow::Result<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{stem}.json")), serde_json::to_string(self)? + "\n")?;
        std::fs::write(folder.join(format!("{stem}.md")), self.markdown())?;
        Ok(format!("{}/{stem}.md and .json", folder.display()))
    }
}
