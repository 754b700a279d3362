//! Writes performance.md and its plots into benches/records: published figures beside those of the newest records.
//!
//! Nothing is measured here. What no record holds is marked as not measured. Explanations are in
//! performance-notes.md beside it, which is written by hand.

mod curves;
mod tables;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use measure::record::{Record, Section};
use serde::de::DeserializeOwned;

use crate::budgets;
use crate::published::Published;
use crate::record::{self, OURS, PAIRS};

/// A record and the stem of its file's name.
#[derive(Debug)]
pub struct Kept<R> {
    pub stem: String,
    pub record: R,
}

/// Everything that the page is made from, newest first.
#[derive(Debug)]
pub struct Records {
    pub peers: Vec<Kept<Record>>,
    pub published: Vec<Kept<Published>>,
    /// Records of sets.
    pub sets: Vec<Kept<Record>>,
}

impl Records {
    fn read(folder: &Path) -> anyhow::Result<Records> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        paths.reverse();
        // Records of other programs have this form, too.
        let mut peers: Vec<Kept<Record>> = kept(&paths)?;
        peers.retain(|kept| kept.record.program == "peers");
        let mut sets: Vec<Kept<Record>> = kept(&paths)?;
        sets.retain(|kept| kept.record.program == "set");
        let newest = sets.first().map(|kept| kept.record.environment.date.clone());
        sets.retain(|kept| Some(&kept.record.environment.date) == newest.as_ref());
        Ok(Records { peers, published: kept(&paths)?, sets })
    }

    /// The newest record of all rivals and rows: the one that was given no name.
    fn usual(&self) -> Option<&Kept<Record>> {
        self.peers.iter().find(|kept| kept.stem.ends_with("-peers"))
    }

    /// The other records since that day.
    fn others(&self) -> impl Iterator<Item = &Kept<Record>> {
        let usual = self.usual();
        self.peers.iter().rev().filter(move |kept| {
            usual.is_some_and(|usual| {
                usual.stem != kept.stem && usual.record.environment.date <= kept.record.environment.date
            })
        })
    }
}

/// The files that hold a record of this kind.
fn kept<R: DeserializeOwned>(paths: &[PathBuf]) -> anyhow::Result<Vec<Kept<R>>> {
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        if let Ok(record) = serde_json::from_str(&text) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            all.push(Kept { stem, record });
        }
    }
    Ok(all)
}

pub fn write() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("benches/records");
    let records = Records::read(&folder)?;
    let plots = curves::all(&records);
    for plot in &plots {
        if let Some(svg) = &plot.svg {
            std::fs::write(folder.join(plot.file), svg)?;
        }
    }
    let mut page = String::new();
    render(&mut page, &records, &plots)?;
    std::fs::write(folder.join("performance.md"), page)?;
    eprintln!("wrote benches/records/performance.md");
    Ok(())
}

fn render(page: &mut String, records: &Records, plots: &[curves::Plot]) -> std::fmt::Result {
    writeln!(page, "# Performance\n")?;
    writeln!(
        page,
        "Written by `cargo run -- performance` in benches/peers from the newest records of this folder, which"
    )?;
    writeln!(
        page,
        "hold every figure, the machine and the build. Do not edit: what is written by hand stands in"
    )?;
    writeln!(page, "[performance-notes.md](performance-notes.md).\n")?;
    tables::all(page, records)?;
    writeln!(page, "\n## Against other tables in one process\n")?;
    match records.usual() {
        None => writeln!(page, "Not measured.")?,
        Some(kept) => peers(page, kept)?,
    }
    let others: Vec<_> = records.others().collect();
    if !others.is_empty() {
        writeln!(page, "\n## Other sizes, keys, values and threads")?;
    }
    for kept in others {
        writeln!(page, "\n{}", origin(&kept.stem, &kept.record.environment))?;
        for section in &kept.record.sections {
            ratios(page, &kept.record, section)?;
        }
    }
    writeln!(page, "\n## A set of tables\n")?;
    for kept in &records.sets {
        writeln!(page, "{}", origin(&kept.stem, &kept.record.environment))?;
        crate::set::performance(page, &kept.record)?;
    }
    writeln!(page, "\n## Curves")?;
    for plot in plots {
        writeln!(page, "\n### {}\n", plot.title)?;
        match &plot.svg {
            Some(_) => writeln!(page, "![{}]({})\n\n{}", plot.title, plot.file, plot.source)?,
            None => writeln!(page, "Not measured: {}", plot.source)?,
        }
    }
    Ok(())
}

/// The origin of a record, so that a reader can repeat it.
pub fn origin(stem: &str, environment: &measure::environment::Environment) -> String {
    format!(
        "Record [{stem}]({stem}.json): {}, {}, {}; commit {}; in benches/peers `{}`.",
        environment.date,
        environment.processor,
        environment.compiler,
        environment.commit,
        environment.command
    )
}

fn peers(page: &mut String, kept: &Kept<Record>) -> std::fmt::Result {
    let Kept { stem, record } = kept;
    writeln!(page, "{}", origin(stem, &record.environment))?;
    writeln!(page, "RocksDB's own `MemTable`: `{}`.", record.environment.cxx_flags)?;
    for section in &record.sections {
        ratios(page, record, section)?;
        budgets::render(page, &record.candidates, section)?;
        losses(page, record, section)?;
    }
    Ok(())
}

fn ratios(page: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let Record { keys, values, threads, .. } = record;
    let plural = if *threads == 1 { "" } else { "s" };
    writeln!(
        page,
        "\n### {} entries, {keys}-byte keys, {values}-byte values, {threads} thread{plural}: how many times as fast\n",
        section.entries
    )?;
    record::ratios(page, record, section)
}

/// Every row in which a rival is faster at the same protection, or at 8 where it has none.
fn losses(page: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    writeln!(page, "\n### {} entries: where rivals are faster at protection 8\n", section.entries)?;
    writeln!(page, "Why: performance-notes.md.\n")?;
    writeln!(page, "| work | rival | times as fast as this crate |\n|---|---|---|")?;
    for row in &section.rows {
        for (name, candidates) in PAIRS {
            let speed = section.speed(&record.candidates, &row.name, candidates[1], OURS[1]);
            if let Some([_, median, _]) = speed.filter(|speed| speed[1] < 0.995) {
                writeln!(page, "| {} | {name} | {:.2} |", row.name, 1.0 / median)?;
            }
        }
    }
    Ok(())
}
