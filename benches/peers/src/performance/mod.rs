//! Writes performance.md and its plots into benches/records: published figures beside those of the
//! newest records.
//!
//! Nothing is measured here. What no record holds is marked as not measured. Explanations are in
//! performance-notes.md beside it, which is written by hand.

mod tables;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use measure::{Record, Section};
use serde::de::DeserializeOwned;

use crate::published::Published;
use crate::record::{self, OURS, PAIRS};
use tables::figure;

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
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<anyhow::Result<_>>()?;
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        paths.sort();
        paths.reverse();
        // Records of other programs have this form, too.
        let mut peers: Vec<Kept<Record>> = kept(&paths)?;
        peers.retain(|kept| kept.record.program == "peers");
        let mut sets: Vec<Kept<Record>> = kept(&paths)?;
        sets.retain(|kept| kept.record.program == "set");
        let newest = sets
            .first()
            .map(|kept| kept.record.environment.date.clone());
        sets.retain(|kept| Some(&kept.record.environment.date) == newest.as_ref());
        Ok(Records {
            peers,
            published: kept(&paths)?,
            sets,
        })
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
                usual.stem != kept.stem
                    && usual.record.environment.date <= kept.record.environment.date
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
            let stem = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            all.push(Kept { stem, record });
        }
    }
    Ok(all)
}

/// Entries of the tables that the README's picture is about.
const SHOWN_AT: u64 = 250_000;

/// Writes `performance.md` with its plots, and the README's picture.
pub fn write() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("benches/records");
    let records = Records::read(&folder)?;
    let plots = curves(&records);
    for plot in &plots {
        if let Some(svg) = &plot.svg {
            std::fs::write(folder.join(plot.file), svg)?;
        }
    }
    let usual = records.usual();
    let front = usual.and_then(|kept| record::front_picture(&kept.record, &kept.stem, SHOWN_AT));
    if let Some(front) = front {
        std::fs::create_dir_all(root.join("docs/pictures"))?;
        std::fs::write(root.join("docs/pictures/speed.svg"), front)?;
    }
    let mut page = String::new();
    render(&mut page, &records, &plots)?;
    std::fs::write(folder.join("performance.md"), page)?;
    eprintln!("wrote benches/records/performance.md");
    Ok(())
}

fn render(page: &mut String, records: &Records, plots: &[Plot]) -> std::fmt::Result {
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
        writeln!(page, "\n## Other sizes, keys and values")?;
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
pub fn origin(stem: &str, environment: &measure::Environment) -> String {
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
    writeln!(
        page,
        "RocksDB's own `MemTable`: `{}`.",
        record.environment.cxx_flags
    )?;
    for section in &record.sections {
        ratios(page, record, section)?;
        record::render_budgets(page, &record.candidates, section)?;
        losses(page, record, section)?;
    }
    Ok(())
}

fn ratios(page: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let Record { keys, values, .. } = record;
    writeln!(
        page,
        "\n### {} entries, {keys}-byte keys, {values}-byte values: how many times as fast\n",
        section.entries
    )?;
    record::ratios(page, record, section)
}

/// Every row in which a rival is faster at the same protection, or at 8 where it has none.
fn losses(page: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    writeln!(
        page,
        "\n### {} entries: where rivals are faster at protection 8\n",
        section.entries
    )?;
    writeln!(page, "Why: performance-notes.md.\n")?;
    writeln!(
        page,
        "| work | rival | times as fast as this crate |\n|---|---|---|"
    )?;
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

// Curves as SVG: time of an operation against size, threads, tombstones and protection.

/// One curve: its name, and points of (label, nanoseconds).
type Curve = (String, Vec<(String, f64)>);

/// A plot, or why there is none.
#[derive(Debug)]
struct Plot {
    pub title: &'static str,
    pub file: &'static str,
    pub svg: Option<String>,
    /// The records that it is made from, or what is missing.
    pub source: String,
}

const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;

fn curves(records: &Records) -> Vec<Plot> {
    vec![
        size(records),
        threads(records),
        tombstones(records),
        protection(records),
    ]
}

/// A plot of curves over common labels; at least two labels make a plot.
fn plot(
    title: &'static str,
    file: &'static str,
    curves: Vec<Curve>,
    sources: &[&str],
    missing: &str,
) -> Plot {
    let mut labels: Vec<String> = Vec::new();
    for (label, _) in curves.iter().flat_map(|(_, points)| points) {
        if !labels.contains(label) {
            labels.push(label.clone());
        }
    }
    if labels.len() < 2 {
        return Plot {
            title,
            file,
            svg: None,
            source: missing.to_owned(),
        };
    }
    let mut names: Vec<&str> = sources.to_vec();
    names.dedup();
    let source = format!(
        "Nanoseconds of an operation, medians. Records: {}.",
        names.join(", ")
    );
    Plot {
        title,
        file,
        svg: Some(svg(title, &labels, &curves)),
        source,
    }
}

fn svg(title: &str, labels: &[String], curves: &[Curve]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut text, title, labels, curves);
    text
}

/// Labels evenly spaced, times on a logarithmic scale of whole powers of two.
fn draw(text: &mut String, title: &str, labels: &[String], curves: &[Curve]) -> std::fmt::Result {
    let times = || {
        curves
            .iter()
            .flat_map(|(_, points)| points.iter().map(|(_, time)| time.max(1.0)))
    };
    let low = times().fold(f64::MAX, f64::min).log2().floor();
    let high = times().fold(1.0, f64::max).log2().ceil().max(low + 1.0);
    let y = |time: f64| TOP + HEIGHT - (time.max(1.0).log2() - low) / (high - low) * HEIGHT;
    let x = |label: &str| {
        let at = labels.iter().position(|known| known == label).unwrap_or(0);
        LEFT + 20.0 + (WIDTH - 40.0) * at as f64 / (labels.len() - 1) as f64
    };
    let (width, height) = (LEFT + WIDTH + 240.0, TOP + HEIGHT + 40.0);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(text, "<style>{}</style>", record::STYLE)?;
    writeln!(
        text,
        "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"
    )?;
    writeln!(
        text,
        "<text x=\"10\" y=\"20\" font-size=\"14\">{title}, ns</text>"
    )?;
    let mut power = low;
    while power <= high {
        let (time, right) = (power.exp2(), LEFT + WIDTH);
        let at = y(time);
        writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>"
        )?;
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{time:.0}</text>",
            LEFT - 6.0,
            at + 4.0
        )?;
        power += 1.0;
    }
    for label in labels {
        let (at, below) = (x(label), TOP + HEIGHT + 20.0);
        writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"
        )?;
    }
    for (number, (name, points)) in curves.iter().enumerate() {
        let colour = record::colour(name);
        let path: Vec<String> = points
            .iter()
            .map(|(label, time)| format!("{:.1},{:.1}", x(label), y(*time)))
            .collect();
        writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        )?;
        for (label, time) in points {
            writeln!(
                text,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(label),
                y(*time)
            )?;
        }
        let (at, down) = (LEFT + WIDTH + 12.0, TOP + 12.0 + 18.0 * number as f64);
        writeln!(
            text,
            "<circle cx=\"{at}\" cy=\"{down}\" r=\"4\" fill=\"{colour}\"/>"
        )?;
        writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            at + 10.0,
            down + 4.0
        )?;
    }
    writeln!(text, "</svg>")
}

const CANDIDATES: [&str; 6] = [
    "ours-8",
    "rocksdb-8",
    "crossbeam-skiplist",
    "artmap",
    "masstree",
    "btreemap-rwlock",
];

/// Records with default keys and values since the newest whole one, oldest first, so that newer
/// ones replace older ones.
fn usual(records: &Records) -> impl Iterator<Item = &Kept<Record>> {
    let whole = records.usual();
    records
        .others()
        .chain(whole)
        .filter(|kept| (kept.record.keys, kept.record.values) == (16, 100))
}

fn size(records: &Records) -> Plot {
    let mut points: Vec<(u64, &str, f64)> = Vec::new();
    let mut sources = Vec::new();
    for kept in usual(records).filter(|kept| kept.record.threads == 1) {
        sources.push(kept.stem.as_str());
        for section in &kept.record.sections {
            for candidate in CANDIDATES {
                if let Some(time) = section.time(&kept.record.candidates, "get hit", candidate) {
                    points.retain(|(entries, name, _)| {
                        (*entries, *name) != (section.entries, candidate)
                    });
                    points.push((section.entries, candidate, time));
                }
            }
        }
    }
    let curves = by_candidate(points);
    plot(
        "Get hit against the number of entries",
        "performance-size.svg",
        curves,
        &sources,
        "records hold one size only",
    )
}

/// The size at which numbers of threads are compared.
const ALONG_THREADS: u64 = 250_000;

fn threads(records: &Records) -> Plot {
    let rows = [
        ("1", "insert at random"),
        ("2", "insert at random, 2 threads"),
        ("8", "insert at random, 8 threads"),
    ];
    let title = "Insert at random against the number of threads, 250000 entries";
    let at = |section: &&Section| section.entries == ALONG_THREADS;
    let section = records
        .usual()
        .and_then(|kept| kept.record.sections.iter().find(at));
    along(
        records,
        section,
        &rows,
        &CANDIDATES,
        (title, "performance-threads.svg"),
    )
}

/// Times along rows of one section.
fn along(
    records: &Records,
    section: Option<&Section>,
    rows: &[(&str, &str)],
    candidates: &[&str],
    (title, file): (&'static str, &'static str),
) -> Plot {
    let missing = "the newest record has no such rows";
    let Some((kept, section)) = records.usual().zip(section) else {
        return plot(title, file, Vec::new(), &[], missing);
    };
    let curve = |candidate: &&str| {
        let point = |(label, row): &(&str, &str)| {
            Some((
                (*label).to_owned(),
                section.time(&kept.record.candidates, row, candidate)?,
            ))
        };
        (
            (**candidate).to_owned(),
            rows.iter().filter_map(point).collect::<Vec<_>>(),
        )
    };
    let curves = candidates
        .iter()
        .map(curve)
        .filter(|(_, points)| !points.is_empty())
        .collect();
    plot(title, file, curves, &[&kept.stem], missing)
}

/// One curve per candidate, by ascending number.
fn by_candidate(mut points: Vec<(u64, &str, f64)>) -> Vec<Curve> {
    points.sort_by_key(|(number, ..)| *number);
    let of = |candidate: &str| {
        let mine = points.iter().filter(|(_, name, _)| *name == candidate);
        mine.map(|(number, _, time)| (number.to_string(), *time))
            .collect::<Vec<_>>()
    };
    CANDIDATES
        .iter()
        .map(|candidate| ((*candidate).to_owned(), of(candidate)))
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

fn tombstones(records: &Records) -> Plot {
    let rows = [
        ("0", "get hit"),
        ("1000", "get hit, 1000 range tombstones"),
        ("10000", "get hit, 10000 range tombstones"),
        ("10000, frozen", "get hit, 10000 range tombstones, frozen"),
    ];
    let section = records
        .usual()
        .and_then(|kept| kept.record.sections.first());
    let names = (
        "Get hit against the number of range tombstones",
        "performance-tombstones.svg",
    );
    along(records, section, &rows, &["ours-8", "rocksdb-8"], names)
}

fn protection(records: &Records) -> Plot {
    let (title, file) = (
        "readrandom with checksum on seek against protection bytes",
        "performance-protection.svg",
    );
    let missing = "no record holds the command lines of #13902";
    let has = |kept: &&Kept<crate::published::Published>| {
        kept.record
            .commands
            .iter()
            .any(|measured| measured.change == "13902")
    };
    let Some(kept) = records.published.iter().find(has) else {
        return plot(title, file, Vec::new(), &[], missing);
    };
    let mut curves: Vec<Curve> = Vec::new();
    for (candidate, name) in kept.record.candidates.iter().enumerate() {
        for size in ["100", "1000"] {
            let mut points = Vec::new();
            for bytes in ["0", "1", "2", "4", "8"] {
                let word = format!("memtable_protection_bytes_per_key={bytes}");
                let mut with = if bytes == "0" {
                    Vec::new()
                } else {
                    vec![word.as_str()]
                };
                let mut without = if bytes == "0" {
                    vec!["memtable_protection"]
                } else {
                    Vec::new()
                };
                if size == "100" {
                    without.push("value_size")
                } else {
                    with.push("value_size=1000")
                }
                let micros = figure(
                    &kept.record,
                    candidate,
                    "13902",
                    "readrandom",
                    &with,
                    &without,
                );
                points.extend(micros.map(|micros| (bytes.to_owned(), micros * 1e3)));
            }
            if !points.is_empty() {
                curves.push((format!("{name}, {size}-byte values"), points));
            }
        }
    }
    plot(title, file, curves, &[&kept.stem], missing)
}
