//! Curves as SVG: time of an operation against size, threads, tombstones and protection.

use std::fmt::Write;

use super::tables::figure;
use super::{Kept, Records};
use measure::record::Record;

/// One curve: its name, and points of (label, nanoseconds).
type Curve = (String, Vec<(String, f64)>);

/// A plot, or why there is none.
#[derive(Debug)]
pub struct Plot {
    pub title: &'static str,
    pub file: &'static str,
    pub svg: Option<String>,
    /// The records that it is made from, or what is missing.
    pub source: String,
}

const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#7f7f7f", "#17becf", "#8c564b"];
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;

pub fn all(records: &Records) -> Vec<Plot> {
    vec![size(records), threads(records), tombstones(records), protection(records)]
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
        return Plot { title, file, svg: None, source: missing.to_owned() };
    }
    let mut names: Vec<&str> = sources.to_vec();
    names.dedup();
    let source = format!("Nanoseconds of an operation, medians. Records: {}.", names.join(", "));
    Plot { title, file, svg: Some(svg(title, &labels, &curves)), source }
}

fn svg(title: &str, labels: &[String], curves: &[Curve]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut text, title, labels, curves);
    text
}

/// Labels evenly spaced, times on a logarithmic scale of whole powers of two.
fn draw(text: &mut String, title: &str, labels: &[String], curves: &[Curve]) -> std::fmt::Result {
    let times = || curves.iter().flat_map(|(_, points)| points.iter().map(|(_, time)| time.max(1.0)));
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
    writeln!(text, "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>")?;
    writeln!(text, "<text x=\"10\" y=\"20\" font-size=\"14\">{title}, ns</text>")?;
    let mut power = low;
    while power <= high {
        let (time, right) = (power.exp2(), LEFT + WIDTH);
        let at = y(time);
        writeln!(text, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>")?;
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
        writeln!(text, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>")?;
    }
    for (number, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> =
            points.iter().map(|(label, time)| format!("{:.1},{:.1}", x(label), y(*time))).collect();
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
        writeln!(text, "<circle cx=\"{at}\" cy=\"{down}\" r=\"4\" fill=\"{colour}\"/>")?;
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{name}</text>", at + 10.0, down + 4.0)?;
    }
    writeln!(text, "</svg>")
}

const CANDIDATES: [&str; 6] =
    ["ours-8", "ours-8-towers", "rocksdb-8", "crossbeam-skiplist", "artmap", "btreemap-rwlock"];

/// Records with default keys and values since the newest whole one, oldest first, so that newer ones replace older ones.
fn usual(records: &Records) -> impl Iterator<Item = &Kept<Record>> {
    let whole = records.usual();
    records.others().chain(whole).filter(|kept| (kept.record.keys, kept.record.values) == (16, 100))
}

fn size(records: &Records) -> Plot {
    let mut points: Vec<(u64, &str, f64)> = Vec::new();
    let mut sources = Vec::new();
    for kept in usual(records).filter(|kept| kept.record.threads == 1) {
        sources.push(kept.stem.as_str());
        for section in &kept.record.sections {
            for candidate in CANDIDATES {
                if let Some(time) = section.time(&kept.record.candidates, "get hit", candidate) {
                    points.retain(|(entries, name, _)| (*entries, *name) != (section.entries, candidate));
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
    let mut points: Vec<(u64, &str, f64)> = Vec::new();
    let mut sources = Vec::new();
    for kept in usual(records) {
        let Some(section) = kept.record.sections.iter().find(|section| section.entries == ALONG_THREADS)
        else {
            continue;
        };
        sources.push(kept.stem.as_str());
        for candidate in CANDIDATES {
            if let Some(time) = section.time(&kept.record.candidates, "insert at random", candidate) {
                let threads = kept.record.threads as u64;
                points.retain(|(count, name, _)| (*count, *name) != (threads, candidate));
                points.push((threads, candidate, time));
            }
        }
    }
    let curves = by_candidate(points);
    let title = "Insert at random against the number of threads, 250000 entries";
    plot(title, "performance-threads.svg", curves, &sources, "records hold one number of threads only")
}

/// One curve per candidate, by ascending number.
fn by_candidate(mut points: Vec<(u64, &str, f64)>) -> Vec<Curve> {
    points.sort_by_key(|(number, ..)| *number);
    let of = |candidate: &str| {
        let mine = points.iter().filter(|(_, name, _)| *name == candidate);
        mine.map(|(number, _, time)| (number.to_string(), *time)).collect::<Vec<_>>()
    };
    CANDIDATES
        .iter()
        .map(|candidate| ((*candidate).to_owned(), of(candidate)))
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

fn tombstones(records: &Records) -> Plot {
    let (title, file) = ("Get hit against the number of range tombstones", "performance-tombstones.svg");
    let missing = "no record has rows with tombstones";
    let Some(kept) = records.usual() else { return plot(title, file, Vec::new(), &[], missing) };
    let Some(section) = kept.record.sections.first() else {
        return plot(title, file, Vec::new(), &[], missing);
    };
    let rows = [
        ("0", "get hit"),
        ("1000", "get hit, 1000 range tombstones"),
        ("10000", "get hit, 10000 range tombstones"),
        ("10000, frozen", "get hit, 10000 range tombstones, frozen"),
    ];
    let curve = |candidate: &&str| {
        let point = |(label, row): &(&str, &str)| {
            Some(((*label).to_owned(), section.time(&kept.record.candidates, row, candidate)?))
        };
        ((**candidate).to_owned(), rows.iter().filter_map(point).collect::<Vec<_>>())
    };
    let curves = ["ours-8", "ours-8-towers", "rocksdb-8"].iter().map(curve).collect();
    plot(title, file, curves, &[&kept.stem], missing)
}

fn protection(records: &Records) -> Plot {
    let (title, file) =
        ("readrandom with checksum on seek against protection bytes", "performance-protection.svg");
    let missing = "no record holds the command lines of #13902";
    let has = |kept: &&Kept<crate::published::Published>| {
        kept.record.commands.iter().any(|measured| measured.change == "13902")
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
                let mut with = if bytes == "0" { Vec::new() } else { vec![word.as_str()] };
                let mut without = if bytes == "0" { vec!["memtable_protection"] } else { Vec::new() };
                if size == "100" {
                    without.push("value_size")
                } else {
                    with.push("value_size=1000")
                }
                let micros = figure(&kept.record, candidate, "13902", "readrandom", &with, &without);
                points.extend(micros.map(|micros| (bytes.to_owned(), micros * 1e3)));
            }
            if !points.is_empty() {
                curves.push((format!("{name}, {size}-byte values"), points));
            }
        }
    }
    plot(title, file, curves, &[&kept.stem], missing)
}
