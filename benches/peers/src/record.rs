//! The record: medians of ratios as Markdown, every figure as JSON, and a plot.

use std::fmt::Write;

use measure::{Environment, Record, Section, quartiles, said};

use crate::Arguments;
use crate::rivals::Candidate;
use crate::work::mix;

/// Rivals, each with the candidates of this crate that it is compared with: protection 0, 8, and 8
/// with checksums on seek.
pub const PAIRS: [(&str, [&str; 3]); 8] = [
    ("rocksdb", ["rocksdb-0", "rocksdb-8", "rocksdb-8-on-seek"]),
    ("crossbeam-skiplist", ["crossbeam-skiplist"; 3]),
    ("arenaskiplist", ["arenaskiplist"; 3]),
    ("skl", ["skl"; 3]),
    ("artmap", ["artmap"; 3]),
    ("masstree", ["masstree"; 3]),
    ("ferntree", ["ferntree"; 3]),
    ("btreemap-rwlock", ["btreemap-rwlock"; 3]),
];
pub const OURS: [&str; 3] = ["ours-0", "ours-8", "ours-8-on-seek"];

/// The record of a run.
pub fn of(arguments: &Arguments, candidates: &[Candidate], sections: Vec<Section>) -> Record {
    Record {
        program: "peers".into(),
        environment: environment(arguments.date.as_deref()),
        keys: arguments.keys.first().map_or(0, |key| key.len()),
        values: arguments.values,
        threads: 1,
        rounds: arguments.rounds,
        slice: arguments.slice,
        candidates: candidates
            .iter()
            .map(|candidate| candidate.name())
            .collect(),
        sections,
    }
}

pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(record, &mut text);
    text
}

/// The head of a page: its title and its environment.
pub fn head(environment: &Environment, title: &str, text: &mut String) -> std::fmt::Result {
    let Environment {
        processor,
        compiler,
        commit,
        command,
        date,
        rust_flags,
        cxx_flags,
    } = environment;
    writeln!(text, "# {title}\n")?;
    writeln!(
        text,
        "- command, from benches/peers: `{command}`\n- date: {date}\n- processor: {processor}"
    )?;
    writeln!(
        text,
        "- commit: {commit}\n- Rust: {compiler}, {rust_flags}\n- RocksDB: {cxx_flags}"
    )
}

fn render(record: &Record, text: &mut String) -> std::fmt::Result {
    head(&record.environment, "Rivals side by side", text)?;
    let sections = record.sections.iter();
    let named = sections.filter_map(|section| Some((section.title.as_str(), section.keys?)));
    let mut keys: Vec<String> = named
        .map(|(title, len)| format!("{title} of {len}"))
        .collect();
    keys.dedup();
    let keys = if keys.is_empty() {
        format!("keys of {} bytes", record.keys)
    } else {
        format!("keys in bytes: {}", keys.join(", "))
    };
    writeln!(
        text,
        "- {keys}, values of {}, one thread unless a row says more",
        record.values
    )?;
    writeln!(
        text,
        "- at least {} rounds of slices of at most {} operations a thread in turn; processor time of one thread, of several time on",
        record.rounds, record.slice
    )?;
    writeln!(
        text,
        "  the wall, from the first start to the last end, for each operation of all of them"
    )?;
    writeln!(
        text,
        "- new memory for inserts was touched and given back before, so that no slice waits for a host"
    )?;
    writeln!(
        text,
        "- RocksDB verifies an insert only in the candidate `promise`, ours always; its get copies the value,"
    )?;
    writeln!(
        text,
        "  ours lends it verified; owning rivals copy key and value as they insert, probes are made before;"
    )?;
    writeln!(
        text,
        "  masstree and ferntree keep one value of a key, the others every version; of what eight threads\n  insert arenaskiplist loses some, so it takes no part there"
    )?;
    for section in &record.sections {
        in_short(text, record, section)?;
        writeln!(
            text,
            "\n## {}: how many times as fast this crate is\n",
            subject(section)
        )?;
        ratios(text, record, section)?;
        render_budgets(text, &record.candidates, section)?;
        times(record, text, section)?;
        memory(record, text, section)?;
    }
    Ok(())
}

/// A section's size, and its keys if the sections differ in them.
fn subject(section: &Section) -> String {
    if section.title.is_empty() {
        format!("{} entries", section.entries)
    } else {
        format!("{} entries, keys {}", section.entries, section.title)
    }
}

/// The rivals with a candidate in this record.
fn rivals(record: &Record) -> Vec<&'static (&'static str, [&'static str; 3])> {
    let there = |candidate: &str| record.candidates.iter().any(|name| name == candidate);
    PAIRS
        .iter()
        .filter(|(_, candidates)| candidates.iter().any(|candidate| there(candidate)))
        .collect()
}

/// The rows of the README's picture and the rows of several threads: nanoseconds, and in brackets
/// how many times as fast this crate is.
fn in_short(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let there: Vec<_> = PAIRS
        .iter()
        .zip(RIVALS)
        .filter(|((_, rivals), _)| record.candidates.iter().any(|name| name == rivals[1]))
        .collect();
    writeln!(text, "\n## {} in short\n", subject(section))?;
    let heads: Vec<&str> = there.iter().map(|(_, (name, ..))| *name).collect();
    writeln!(
        text,
        "| work | here, unprotected | here | {} |\n|---|---|---{}|",
        heads.join(" | "),
        "|---".repeat(heads.len())
    )?;
    let time = |row: &str, candidate: &str| section.time(&record.candidates, row, candidate);
    let of_threads = section
        .rows
        .iter()
        .map(|row| row.name.as_str())
        .filter(|row| row.ends_with(" threads"));
    let rows = SHOWN.into_iter().chain(of_threads);
    for row in rows.filter(|row| time(row, "ours-8").is_some()) {
        let ours = OURS[..2]
            .iter()
            .map(|ours| time(row, ours).map_or("-".into(), |time| format!("{time:.0}")));
        let rivals = there.iter().map(|((_, rivals), _)| {
            let speed = section.speed(&record.candidates, row, rivals[1], "ours-8");
            time(row, rivals[1])
                .zip(speed)
                .map_or("-".into(), |(time, [_, speed, _])| {
                    format!("{time:.0} ({speed:.2})")
                })
        });
        writeln!(
            text,
            "| {row} | {} |",
            ours.chain(rivals).collect::<Vec<_>>().join(" | ")
        )?;
    }
    Ok(())
}

/// Every measured row of a section against every rival.
fn ratios(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    writeln!(
        text,
        "Medians over the rounds, at protection 0 / 8 / 8 with checksums on seek, RocksDB set likewise; in brackets the quartiles at"
    )?;
    writeln!(text, "protection 8. Above 1 this crate is faster.\n")?;
    let rivals = rivals(record);
    let heads: Vec<&str> = rivals.iter().map(|(name, _)| *name).collect();
    writeln!(
        text,
        "| work | {} |\n|---{}|",
        heads.join(" | "),
        "|---".repeat(heads.len())
    )?;
    for row in &section.rows {
        let cells: Vec<String> = rivals
            .iter()
            .map(|(_, candidates)| cell(record, section, &row.name, candidates))
            .collect();
        if cells.iter().any(|cell| cell != "-") {
            writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
        }
    }
    Ok(())
}

/// Medians at the three settings, and the quartiles of the middle one.
pub fn cell(record: &Record, section: &Section, row: &str, rival: &[&str; 3]) -> String {
    let speeds: Vec<Option<[f64; 3]>> = rival
        .iter()
        .zip(OURS)
        .map(|(rival, ours)| section.speed(&record.candidates, row, rival, ours))
        .collect();
    if speeds.iter().all(Option::is_none) {
        return "-".into();
    }
    let medians: Vec<String> = speeds
        .iter()
        .map(|speed| speed.map_or("-".into(), |[_, median, _]| format!("{median:.2}")))
        .collect();
    let spread = speeds[1].map_or(String::new(), |[low, _, high]| {
        format!(" ({low:.2}..{high:.2})")
    });
    format!("{}{spread}", medians.join(" / "))
}

fn times(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    writeln!(
        text,
        "\n## {}: nanoseconds of an operation, medians\n",
        subject(section)
    )?;
    writeln!(
        text,
        "| work | {} |\n|---{}|",
        record.candidates.join(" | "),
        "|---".repeat(record.candidates.len())
    )?;
    for row in &section.rows {
        let cells: Vec<String> = row
            .nanoseconds
            .iter()
            .map(|samples| {
                samples.as_ref().map_or("-".into(), |samples| {
                    format!("{:.0}", quartiles(samples.clone())[1])
                })
            })
            .collect();
        writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}

fn memory(record: &Record, text: &mut String, section: &Section) -> std::fmt::Result {
    let payload = section.keys.unwrap_or(record.keys) + record.values;
    writeln!(
        text,
        "\n## {}: bytes an entry, {payload} of them key and value\n",
        subject(section)
    )?;
    writeln!(text, "| table | counted | resident |\n|---|---|---|")?;
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.1}"));
    for (at, candidate) in record.candidates.iter().enumerate() {
        let of = |all: &[Option<f64>]| bytes(all.get(at).copied().flatten());
        writeln!(
            text,
            "| {candidate} | {} | {} |",
            of(&section.counted),
            of(&section.resident)
        )?;
    }
    let hash = Record::hash(section, mix);
    writeln!(
        text,
        "\nHash of the work, the same for all tables: `{hash:016x}`"
    )
}

/// Writes Markdown, JSON and a plot for each size. Returns the path.
pub fn write(record: &Record, stem: &str) -> anyhow::Result<String> {
    let mut page = markdown(record);
    let mut plots = Vec::new();
    for section in &record.sections {
        let subject = subject(section);
        let of_keys = if section.title.is_empty() {
            String::new()
        } else {
            format!("-{}", section.title)
        };
        let name = format!("{stem}{of_keys}-{}.svg", section.entries);
        writeln!(page, "\n![{subject}]({name})")?;
        plots.push((name, all_dots(&record.candidates, section, stem)));
    }
    let path = record.save(stem, &page)?;
    for (name, plot) in plots {
        std::fs::write(path.with_file_name(name), plot)?;
    }
    Ok(format!("{}.md, .json and .svg", path.display()))
}

// The targets of the crate against its rivals, and whether this run reached them.

/// One target about a row.
enum Target {
    /// The first candidate is at least this many times as fast as the second one.
    Ahead(f64, &'static str, &'static str),
    /// The first candidate takes at most this many nanoseconds more than the second one.
    Added(f64, &'static str, &'static str),
    /// The first candidate takes at most this many times as long as the second one.
    Times(f64, &'static str, &'static str),
    /// The row takes at most this many times as long as another row of the same candidate.
    Row(f64, &'static str, &'static str),
    /// The row takes at most this many nanoseconds more than another row of the same candidate.
    RowAdded(f64, &'static str, &'static str),
}

use Target::{Added, Ahead, Row, RowAdded, Times};

const IN_ORDER: &str = "insert in order";
const AT_RANDOM: &str = "insert at random";
const BATCHES: &str = "insert at random, batches of 32";
const BATCHES_IN_ORDER: &str = "insert in order, batches of 32";
const HIT: &str = "get hit";
const MISS: &str = "get miss";
const MULTI: &str = "multi_get of 24";
const SEEK: &str = "seek + next 10";
const FORWARD_ORDER: &str = "scan forward, filled in order";
const FORWARD_RANDOM: &str = "scan forward, filled at random";
const BACKWARD_ORDER: &str = "scan backward, filled in order";
const BACKWARD_RANDOM: &str = "scan backward, filled at random";

const TARGETS: &[(&str, Target)] = &[
    (HIT, Ahead(4.0, "ours-8", "rocksdb-8")),
    (HIT, Ahead(5.0, "ours-8-on-seek", "rocksdb-8-on-seek")),
    (MISS, Ahead(2.0, "ours-0-filter", "rocksdb-0-bloom")),
    (MISS, Ahead(2.0, "ours-8-filter", "rocksdb-8-bloom")),
    (AT_RANDOM, Ahead(2.8, "ours-8", "rocksdb-8")),
    (BATCHES, Ahead(6.0, "ours-8", "rocksdb-8")),
    (MULTI, Ahead(13.0, "ours-8", "rocksdb-8")),
    (MULTI, Ahead(13.0, "ours-8", "rocksdb-8-batch-lookup")),
    (SEEK, Ahead(2.8, "ours-8", "rocksdb-8")),
    (FORWARD_RANDOM, Ahead(3.2, "ours-8", "rocksdb-8")),
    (BACKWARD_RANDOM, Ahead(9.0, "ours-8", "rocksdb-8")),
    (IN_ORDER, Ahead(1.7, "ours-8", "rocksdb-8")),
    (BATCHES_IN_ORDER, Ahead(1.6, "ours-8", "rocksdb-8")),
    (FORWARD_ORDER, Ahead(1.5, "ours-0", "rocksdb-0")),
    (FORWARD_ORDER, Ahead(1.5, "ours-8", "rocksdb-8")),
    (BACKWARD_ORDER, Ahead(8.0, "ours-8", "rocksdb-8")),
    (HIT, Ahead(0.7, "ours-8", "artmap")),
    (AT_RANDOM, Ahead(0.9, "ours-8", "artmap")),
    (BATCHES, Ahead(2.0, "ours-8", "artmap")),
    (MULTI, Ahead(2.5, "ours-8", "artmap")),
    (SEEK, Ahead(0.9, "ours-8", "artmap")),
    (FORWARD_RANDOM, Ahead(1.0, "ours-8", "artmap")),
    (BACKWARD_RANDOM, Ahead(1.0, "ours-8", "artmap")),
    (IN_ORDER, Ahead(1.5, "ours-8", "artmap")),
    (IN_ORDER, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (AT_RANDOM, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (FORWARD_ORDER, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (FORWARD_RANDOM, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (HIT, Ahead(1.5, "ours-8", "crossbeam-skiplist")),
    (IN_ORDER, Added(20.0, "ours-8", "ours-0")),
    (HIT, Added(20.0, "ours-8", "ours-0")),
    (FORWARD_ORDER, Added(15.0, "ours-8", "ours-0")),
    (FORWARD_RANDOM, Added(15.0, "ours-8", "ours-0")),
    (AT_RANDOM, Times(1.03, "ours-8", "ours-0")),
    (HIT, Times(1.10, "ours-8-on-seek", "ours-8")),
    (HIT, Times(1.05, "ours-8-order", "ours-8")),
    (FORWARD_ORDER, Times(1.05, "ours-8-order", "ours-8")),
    ("get hit, 1000 range tombstones", Row(1.25, HIT, "ours-8")),
    (
        "get hit, 10000 range tombstones, frozen",
        Row(1.1, HIT, "ours-8"),
    ),
    (
        "multi_get of 24, 1000 range tombstones",
        RowAdded(30.0, MULTI, "ours-8"),
    ),
    (IN_ORDER, Added(45.0, "ours-0-filter", "ours-0")),
];

/// Bytes per entry that tables of this crate may count beyond RocksDB's.
const MEMORY: [(f64, &str, &str); 2] =
    [(12.0, "ours-0", "rocksdb-0"), (20.0, "ours-8", "rocksdb-8")];

impl Target {
    /// The target, its candidates, the measured figures, and the verdict.
    fn judge(
        &self,
        candidates: &[String],
        section: &Section,
        row: &str,
    ) -> (String, Option<(String, bool)>) {
        match *self {
            Ahead(wanted, ours, rival) => {
                let speed = section.speed(candidates, row, rival, ours);
                let measured = speed.map(|[low, median, high]| {
                    (
                        format!("{median:.2}x ({low:.2}..{high:.2})"),
                        median >= wanted,
                    )
                });
                (format!("{ours}: {wanted}x {rival}"), measured)
            }
            Added(most, dear, cheap) => {
                let added =
                    section.paired(candidates, row, (dear, cheap), |dear, cheap| dear - cheap);
                let measured =
                    added.map(|[_, added, _]| (format!("{added:+.1} ns"), added <= most));
                (format!("{dear}: {cheap} +{most:.0} ns"), measured)
            }
            Times(most, dear, cheap) => {
                let ratio =
                    section.paired(candidates, row, (dear, cheap), |dear, cheap| dear / cheap);
                let measured = ratio.map(|[_, ratio, _]| (format!("{ratio:.3}"), ratio <= most));
                (format!("{dear}: at most {most} times {cheap}"), measured)
            }
            Row(most, other, candidate) => {
                let (this, other_time) = (
                    section.time(candidates, row, candidate),
                    section.time(candidates, other, candidate),
                );
                let ratio = this.zip(other_time).map(|(this, other)| this / other);
                let measured = ratio.map(|ratio| (format!("{ratio:.2}"), ratio <= most));
                (
                    format!("{candidate}: at most {most} times `{other}`"),
                    measured,
                )
            }
            RowAdded(most, other, candidate) => {
                let (this, other_time) = (
                    section.time(candidates, row, candidate),
                    section.time(candidates, other, candidate),
                );
                let added = this.zip(other_time).map(|(this, other)| this - other);
                let measured = added.map(|added| (format!("{added:+.1} ns"), added <= most));
                (format!("{candidate}: `{other}` +{most:.0} ns"), measured)
            }
        }
    }
}

fn verdict(kept: bool) -> &'static str {
    if kept { "reached" } else { "**missed**" }
}

/// The table of targets. It marks those whose candidates or rows are not in this run.
pub fn render_budgets(
    text: &mut String,
    candidates: &[String],
    section: &Section,
) -> std::fmt::Result {
    writeln!(text, "\n## {}: budgets\n", subject(section))?;
    writeln!(text, "| work | wanted | measured | |\n|---|---|---|---|")?;
    for (row, target) in TARGETS {
        let (wanted, measured) = target.judge(candidates, section, row);
        match measured {
            Some((measured, kept)) => writeln!(
                text,
                "| {row} | {wanted} | {measured} | {} |",
                verdict(kept)
            )?,
            None => writeln!(text, "| {row} | {wanted} | not measured | |")?,
        }
    }
    for (most, ours, rival) in MEMORY {
        let of = |candidate: &str| {
            let at = candidates.iter().position(|name| name == candidate)?;
            section.counted.get(at).copied().flatten()
        };
        if let Some((ours_bytes, theirs)) = of(ours).zip(of(rival)) {
            let added = ours_bytes - theirs;
            let kept = verdict(added <= most);
            writeln!(
                text,
                "| bytes an entry | {ours}: {rival} +{most:.0} | {added:+.1} | {kept} |"
            )?;
        }
    }
    Ok(())
}

// A picture of one size: how many times as fast this crate is as each rival, one line per kind of
// work, on a logarithmic scale. It has its own colours for dark pages. Each dot has a label with
// its figure, which `tidy` compares with the record.

const LINE: f64 = 26.0;
const LEFT: f64 = 236.0;
const WIDTH: f64 = 350.0;
const TOP: f64 = 104.0;
/// The lower end of the scale, and the lowest upper end, in powers of two.
const LOW: f64 = -4.0;
const HIGH_LEAST: f64 = 4.0;
/// Well-known names of the rivals, their colours (Okabe and Ito's, distinct to the colour-blind)
/// and shapes.
const RIVALS: [(&str, &str, &str); 8] = [
    ("RocksDB's memtable", "#e69f00", "M-5,-5H5V5H-5Z"),
    (
        "crossbeam-skiplist",
        "#0072b2",
        "M0,-6.5L6.5,0L0,6.5L-6.5,0Z",
    ),
    ("arenaskiplist", "#56b4e9", "M-5.5,5H5.5L0,-6Z"),
    ("skl", "#8c8c8c", "M-5.5,-5H5.5L0,6Z"),
    ("artmap", "#009e73", "M-6,5H6L0,-6Z"),
    ("masstree", "#785ef0", "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z"),
    ("ferntree", "#8c510a", "M-5.5,-5.5H5.5L-5.5,5.5H5.5Z"),
    (
        "BTreeMap in a RwLock",
        "#cc79a7",
        "M-5.5,0A5.5,5.5 0 1 0 5.5,0A5.5,5.5 0 1 0 -5.5,0Z",
    ),
];
/// Colours of light pages and of dark ones.
pub const STYLE: &str = "text{fill:#1f2328}.page{fill:#fff}.lost{fill:#f3f4f6}.grid{stroke:#d8dbe0}.one{stroke:#1f2328}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.lost{fill:#1a212b}.grid{stroke:#313945}.one{stroke:#e6edf3}}";

/// The kinds of work that the README shows.
pub const SHOWN: [&str; 10] = [
    IN_ORDER,
    AT_RANDOM,
    BATCHES,
    HIT,
    MISS,
    MULTI,
    SEEK,
    FORWARD_ORDER,
    FORWARD_RANDOM,
    BACKWARD_RANDOM,
];

/// Those of them that it shows for decimal ids too.
pub const SHOWN_OF_DECIMALS: [&str; 5] = [IN_ORDER, AT_RANDOM, HIT, MISS, SEEK];

/// The place of a ratio on a scale that ends at this power of two.
fn x(ratio: f64, high: f64) -> f64 {
    LEFT + (ratio.log2().clamp(LOW, high) - LOW) / (high - LOW) * WIDTH
}

/// A record of which a picture shows some rows.
pub struct Shown<'r> {
    pub record: &'r Record,
    /// The kind of the record: the end of its name.
    pub kind: &'r str,
    /// The rows, of those that the other records of the picture show too.
    pub rows: &'r [&'r str],
    /// What follows a row's name in the picture.
    pub suffix: &'r str,
}

/// A line of a picture.
struct Line<'r> {
    candidates: &'r [String],
    section: &'r Section,
    kind: &'r str,
    row: &'r str,
    label: String,
}

impl Line<'_> {
    /// How many times as fast this crate is as a rival, at 8 protection bytes.
    fn speed(&self, rival: &str) -> Option<f64> {
        Some(
            self.section
                .speed(self.candidates, self.row, rival, "ours-8")?[1],
        )
    }
}

/// The picture of the README, for tables of this many entries: each row of the first record, and
/// after it the same row of the others.
pub fn front_picture(shown: &[Shown<'_>], title: &str, entries: u64) -> Option<String> {
    let sections: Vec<&Section> = shown
        .iter()
        .map(|shown| {
            let sections = &shown.record.sections;
            sections.iter().find(|section| section.entries == entries)
        })
        .collect::<Option<_>>()?;
    let lines_of = |row: &&'static str| {
        let row: &'static str = row;
        let with_row = shown
            .iter()
            .zip(&sections)
            .filter(move |(shown, _)| shown.rows.contains(&row));
        with_row.map(move |(shown, section)| Line {
            candidates: &shown.record.candidates,
            section,
            kind: shown.kind,
            row,
            label: format!("{row}{}", shown.suffix),
        })
    };
    let lines: Vec<Line<'_>> = SHOWN.iter().flat_map(lines_of).collect();
    Some(dots(&lines, title))
}

/// The picture of every row of a section in which this crate, at 8 protection bytes, has a rival.
pub fn all_dots(candidates: &[String], section: &Section, stem: &str) -> String {
    let has_rival = |line: &Line<'_>| {
        PAIRS
            .iter()
            .any(|(_, rivals)| line.speed(rivals[1]).is_some())
    };
    let lines = section.rows.iter().map(|row| Line {
        candidates,
        section,
        kind: "",
        row: &row.name,
        label: row.name.clone(),
    });
    let lines: Vec<Line<'_>> = lines.filter(has_rival).collect();
    dots(&lines, &format!("{}: {stem}", subject(section)))
}

fn dots(lines: &[Line<'_>], title: &str) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render_dots(&mut text, lines, title);
    text
}

fn render_dots(text: &mut String, lines: &[Line<'_>], title: &str) -> std::fmt::Result {
    let bottom = TOP + LINE * lines.len() as f64;
    // The picture begins further to the left if a row has a long name.
    let longest = lines.iter().map(|line| line.label.len()).max().unwrap_or(0);
    let left = (LEFT - 24.0 - 7.7 * longest as f64).min(0.0);
    let (width, height) = (LEFT + WIDTH + 30.0 - left, bottom + 46.0);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} 0 {width} {height}\" role=\"img\""
    )?;
    writeln!(
        text,
        " font-family=\"system-ui,sans-serif\" font-size=\"15\">"
    )?;
    writeln!(
        text,
        "<title>How many times as fast this crate is, {title}</title>"
    )?;
    writeln!(
        text,
        "<style>{STYLE}</style>\n<rect class=\"page\" x=\"{left}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
    )?;
    if let Some(line) = lines.first() {
        legend(text, line.candidates)?;
    }
    let all = lines
        .iter()
        .flat_map(|line| PAIRS.iter().filter_map(|(_, rivals)| line.speed(rivals[1])));
    let high = all
        .map(|speed| speed.log2().ceil())
        .fold(HIGH_LEAST, f64::max);
    scale(text, bottom, high)?;
    for (line, number) in lines.iter().zip(0..) {
        let y = TOP + LINE * (f64::from(number) + 0.5);
        let Line {
            kind, row, label, ..
        } = line;
        writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
            LEFT - 14.0,
            y + 5.0
        )?;
        for ((rival, candidate), (name, colour, shape)) in PAIRS.iter().zip(RIVALS) {
            let Some(median) = line.speed(candidate[1]) else {
                continue;
            };
            let at = x(median, high);
            writeln!(
                text,
                "<path transform=\"translate({at:.1} {y})\" d=\"{shape}\" fill=\"{colour}\" data-record=\"{kind}\" data-row=\"{row}\" data-rival=\"{rival}\">"
            )?;
            writeln!(
                text,
                "<title>{label}: {median:.2} times as fast as {name}</title></path>"
            )?;
        }
    }
    writeln!(text, "</svg>")
}

/// The lines of the scale, and the labels of both sides of 1.
fn scale(text: &mut String, bottom: f64, high: f64) -> std::fmt::Result {
    let one = x(1.0, high);
    writeln!(
        text,
        "<rect class=\"lost\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/>",
        one - LEFT,
        bottom - TOP
    )?;
    for power in (LOW as i32)..=(high as i32) {
        let at = x(f64::from(power).exp2(), high);
        let class = if power == 0 { "one" } else { "grid" };
        writeln!(
            text,
            "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
        )?;
        let label = if power < 0 {
            format!("1/{}", 1 << -power)
        } else {
            format!("{}", 1 << power)
        };
        writeln!(
            text,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            bottom + 19.0
        )?;
    }
    writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">the other is faster</text>",
        one - 8.0,
        TOP - 8.0
    )?;
    writeln!(
        text,
        "<text x=\"{}\" y=\"{}\">this crate is faster</text>",
        one + 8.0,
        TOP - 8.0
    )?;
    writeln!(
        text,
        "<text x=\"{one}\" y=\"{}\" text-anchor=\"middle\">times as fast</text>",
        bottom + 37.0
    )
}

fn legend(text: &mut String, candidates: &[String]) -> std::fmt::Result {
    let (mut at, mut y) = (20.0, 26.0);
    for ((_, rivals), (name, colour, shape)) in PAIRS.iter().zip(RIVALS) {
        if candidates.iter().any(|candidate| candidate == rivals[1]) {
            writeln!(
                text,
                "<path transform=\"translate({at} {y})\" d=\"{shape}\" fill=\"{colour}\"/>"
            )?;
            writeln!(
                text,
                "<text x=\"{}\" y=\"{}\">{name}</text>",
                at + 12.0,
                y + 5.0
            )?;
            at += 40.0 + 9.0 * name.len() as f64;
            (at, y) = if at > LEFT + WIDTH - 120.0 {
                (20.0, y + 26.0)
            } else {
                (at, y)
            };
        }
    }
    Ok(())
}

// The environment of a record, and the flags of both builds.

/// Describes this machine and this build.
pub fn environment(date: Option<&str>) -> Environment {
    let features = if cfg!(feature = "rocksdb") {
        " --features rocksdb"
    } else {
        ""
    };
    let cxx = env!("PEERS_CXX_FLAGS");
    let version = cxx
        .split(' ')
        .next()
        .and_then(|program| said(program, &["--version"]));
    let version = version
        .as_deref()
        .and_then(|text| text.lines().next())
        .unwrap_or("no C++ compiler");
    let default_target = format!("-C {}", env!("PEERS_RUST_FLAGS").trim());
    Environment {
        rust_flags: format!(
            "{default_target}, default target; this crate chooses SSE4.2 when it runs"
        ),
        cxx_flags: format!("{cxx} ({version})"),
        ..Environment::here(&format!("cargo run --release{features}"), date)
    }
}
