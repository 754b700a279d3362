//! The five published tables, each beside the newest record of its command lines.

use std::fmt::Write;

use super::{Kept, Records, origin};
use crate::published::{Measured, Published};

/// What a cell shows.
#[derive(Debug, Clone, Copy)]
enum Figure {
    /// Operations per second.
    Rate,
    /// Microseconds of an operation.
    Micros,
    /// MB/s.
    Speed,
}

/// Which command line a cell belongs to.
#[derive(Debug, Clone, Copy)]
struct Cell<'a> {
    change: &'a str,
    benchmark: &'a str,
    /// Words that the command line must have.
    with: &'a [&'a str],
    /// Parts of words that it must not have.
    without: &'a [&'a str],
}

impl Cell<'_> {
    fn fits(&self, measured: &Measured) -> bool {
        let words: Vec<&str> = measured
            .words
            .split_whitespace()
            .map(|word| word.trim_start_matches('-'))
            .collect();
        measured.change == self.change
            && self.with.iter().all(|wanted| words.contains(wanted))
            && !self
                .without
                .iter()
                .any(|part| words.iter().any(|word| word.contains(part)))
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The newest record that holds a command of a change.
fn newest<'r>(records: &'r Records, change: &str) -> Option<&'r Kept<Published>> {
    records.published.iter().find(|kept| {
        kept.record
            .commands
            .iter()
            .any(|measured| measured.change == change)
    })
}

/// A figure of a candidate; `None` if no record holds it.
pub fn figure(
    record: &Published,
    candidate: usize,
    change: &str,
    benchmark: &str,
    with: &[&str],
    without: &[&str],
) -> Option<f64> {
    value(
        record,
        candidate,
        Cell {
            change,
            benchmark,
            with,
            without,
        },
        Figure::Micros,
    )
}

fn value(record: &Published, candidate: usize, cell: Cell<'_>, figure: Figure) -> Option<f64> {
    let with_benchmark = |measured: &&Measured| {
        cell.fits(measured)
            && measured
                .words
                .split(['=', ',', '[', ' '])
                .any(|word| word == cell.benchmark)
    };
    let measured = record.commands.iter().find(with_benchmark)?;
    let results = measured.results.get(candidate)?.as_ref()?;
    let results = results
        .iter()
        .find(|results| results.benchmark == cell.benchmark)?;
    median(match figure {
        Figure::Rate => &results.rates,
        Figure::Micros => &results.micros,
        Figure::Speed => &results.speeds,
    })
}

/// The cells of all candidates after the published ones.
fn measured(kept: Option<&Kept<Published>>, cell: Cell<'_>, figure: Figure) -> String {
    let Some(kept) = kept else {
        return " not measured |".into();
    };
    (0..kept.record.candidates.len())
        .map(
            |candidate| match (value(&kept.record, candidate, cell, figure), figure) {
                (None, _) => " not measured |".to_owned(),
                (Some(value), Figure::Micros) => format!(" {value:.2} |"),
                (Some(value), Figure::Rate) => format!(" {} |", thousands(value)),
                (Some(value), Figure::Speed) => format!(" {value:.0} |"),
            },
        )
        .collect()
}

/// The head of a table: published columns, then one per candidate.
fn head(page: &mut String, kept: Option<&Kept<Published>>, columns: &str) -> std::fmt::Result {
    let candidates = kept.map_or_else(
        || vec!["this crate".to_owned()],
        |kept| kept.record.candidates.clone(),
    );
    let candidates: String = candidates
        .iter()
        .map(|candidate| format!(" {candidate}, here |"))
        .collect();
    let line = format!("{columns}{candidates}");
    let count = line.matches('|').count() - 1;
    writeln!(page, "{line}\n|{}", "---|".repeat(count))
}

/// What the load of the machine says about the figures; the load after the run includes the run's
/// own threads.
fn busy(record: &Published) -> String {
    let processor = record.environment.processor.as_str();
    let threads = processor
        .split(", ")
        .find_map(|part| part.strip_suffix(" threads")?.parse::<f64>().ok());
    let threads = threads.unwrap_or(1.0);
    match record.load {
        None => " The load of the machine was not recorded.".into(),
        Some([before, after]) if before > threads * 1.5 => format!(
            " **The machine was busy (load {before:.1} before, {after:.1} after, with this run): do not rely on these figures.**"
        ),
        Some([before, after]) => {
            format!(" Load of the machine: {before:.1} before, {after:.1} after, with this run.")
        }
    }
}

fn start<'r>(
    page: &mut String,
    records: &'r Records,
    change: &str,
    title: &str,
) -> Result<Option<&'r Kept<Published>>, std::fmt::Error> {
    writeln!(page, "\n### {title}\n")?;
    let kept = newest(records, change);
    match kept {
        None => writeln!(page, "Ours: not measured.")?,
        Some(kept) => {
            let record = &kept.record;
            let scale = match record.divided_by {
                1 => "the command lines as published".to_owned(),
                by => format!("keys, reads and writes divided by {by}"),
            };
            let runs = if record.rounds == 1 {
                "one run of each".to_owned()
            } else {
                format!("medians over {} runs of each, in turns", record.rounds)
            };
            writeln!(
                page,
                "{}\nHere {scale}; {runs}.{}",
                origin(&kept.stem, &record.environment),
                busy(record)
            )?;
        }
    }
    Ok(kept)
}

pub fn all(page: &mut String, records: &Records) -> std::fmt::Result {
    writeln!(page, "## The five published tables, and ours beside them\n")?;
    writeln!(
        page,
        "Published figures belong to their authors' machines: compare shapes and ratios. \"Here\" is the whole db_bench\n\
         on one machine: ours (`cargo run --release --example db_bench`) over tables of this crate, RocksDB's as a\n\
         distribution built it, in turns. They do not do the same work: RocksDB has a write queue, versions and files; ours\n\
         keeps full tables in memory, and without a journal and without callers' digests it puts single entries into the table\n\
         without a batch. Where the other program refuses a flag its cell is not measured. An operation is a key of MultiGet."
    )?;
    on_seek(page, records)?;
    per_key(page, records)?;
    multi_get(page, records)?;
    tombstones(page, records)?;
    checksums(page, records)
}

fn on_seek(page: &mut String, records: &Records) -> std::fmt::Result {
    let kept = start(
        page,
        records,
        "13902",
        "#13902 checksum on seek: readrandom, ops/s",
    )?;
    for (values, size, published) in [
        (
            "100",
            None,
            ["930 993", "464 577", "470 319", "468 457", "465 061"],
        ),
        (
            "1000",
            Some("value_size=1000"),
            ["607 885", "185 742", "177 167", "185 908", "183 639"],
        ),
    ] {
        writeln!(page, "\nValues of {values} bytes:\n")?;
        head(page, kept, "| setting | RocksDB, published |")?;
        let before = if size.is_none() { "928 999" } else { "601 321" };
        let blank = kept.map_or(1, |kept| kept.record.candidates.len());
        writeln!(
            page,
            "| before the change | {before} |{}",
            " - |".repeat(blank)
        )?;
        for (at, bytes) in ["0", "1", "2", "4", "8"].into_iter().enumerate() {
            let protection = format!("memtable_protection_bytes_per_key={bytes}");
            let mut with: Vec<&str> = size.into_iter().collect();
            let mut without: Vec<&str> = if size.is_some() {
                Vec::new()
            } else {
                vec!["value_size"]
            };
            match at {
                0 => without.push("memtable_protection"),
                _ => with.push(&protection),
            }
            let name = if at == 0 {
                "flag off".into()
            } else {
                format!("on, protection {bytes}")
            };
            let cell = Cell {
                change: "13902",
                benchmark: "readrandom",
                with: &with,
                without: &without,
            };
            writeln!(
                page,
                "| {name} | {} |{}",
                published[at],
                measured(kept, cell, Figure::Rate)
            )?;
        }
    }
    Ok(())
}

/// Name, published figure, benchmark, words that the command line has, parts of words that it does
/// not have.
type Row<'a> = (&'a str, &'a str, &'a str, &'a [&'a str], &'a [&'a str]);

fn per_key(page: &mut String, records: &Records) -> std::fmt::Result {
    let kept = start(
        page,
        records,
        "10281",
        "#10281 checksum of each key and value, ops/s",
    )?;
    writeln!(page)?;
    head(page, kept, "| work | RocksDB, published |")?;
    let (table, batch) = (
        "memtable_protection_bytes_per_key=2",
        "write_batch_protection_bytes_per_key=8",
    );
    let rows: [Row<'_>; 8] = [
        (
            "fillseq",
            "1 166 936",
            "fillseq",
            &["benchmarks=fillseq"],
            &["protection"],
        ),
        (
            "fillseq, 2 bytes",
            "1 116 740",
            "fillseq",
            &["benchmarks=fillseq", table],
            &["write_batch"],
        ),
        (
            "fillseq, 2 bytes, 8 in the batch",
            "1 085 790",
            "fillseq",
            &["benchmarks=fillseq", table, batch],
            &[],
        ),
        (
            "fillseq, 8 in the batch",
            "1 179 790",
            "fillseq",
            &["benchmarks=fillseq", batch],
            &["memtable_protection"],
        ),
        ("readseq", "7 573 878", "readseq", &[], &["protection"]),
        ("readseq, 2 bytes", "5 232 946", "readseq", &[table], &[]),
        ("readrandom", "140 236", "readrandom", &[], &["protection"]),
        (
            "readrandom, 2 bytes",
            "130 632",
            "readrandom",
            &[table],
            &[],
        ),
    ];
    for (name, published, benchmark, with, without) in rows {
        let cell = Cell {
            change: "10281",
            benchmark,
            with,
            without,
        };
        writeln!(
            page,
            "| {name} | {published} |{}",
            measured(kept, cell, Figure::Rate)
        )?;
    }
    Ok(())
}

fn multi_get(page: &mut String, records: &Records) -> std::fmt::Result {
    let kept = start(
        page,
        records,
        "9453",
        "#9453 MultiGet with Bloom: multireadrandom, batches of 24, 8 threads, ops/s",
    )?;
    writeln!(page)?;
    head(
        page,
        kept,
        "| whole keys | prefix | RocksDB, published before | after |",
    )?;
    for (whole, prefix, before, after) in [
        ("0", "0", "5 724 844", "6 722 066"),
        ("0", "7", "9 981 319", "10 237 990"),
        ("0", "8", "12 081 715", "12 117 603"),
        ("1", "0", "11 944 354", "12 096 085"),
        ("1", "7", "9 444 299", "11 826 029"),
        ("1", "8", "11 784 465", "11 778 591"),
    ] {
        let words = [
            format!("memtable_whole_key_filtering={whole}"),
            format!("prefix_size={prefix}"),
        ];
        let with = [words[0].as_str(), words[1].as_str()];
        let cell = Cell {
            change: "9453",
            benchmark: "multireadrandom",
            with: &with,
            without: &[],
        };
        writeln!(
            page,
            "| {whole} | {prefix} | {before} | {after} |{}",
            measured(kept, cell, Figure::Rate)
        )?;
    }
    Ok(())
}

fn tombstones(page: &mut String, records: &Records) -> std::fmt::Result {
    let kept = start(
        page,
        records,
        "10380",
        "#10380 fragmented tombstones cached when a table is frozen, micros/op",
    )?;
    let one: [(&str, [&str; 6]); 5] = [
        ("0", ["6.68", "6.57", "6.72", "4.72", "4.79", "4.54"]),
        ("1", ["6.67", "6.58", "6.62", "5.41", "4.74", "4.72"]),
        ("10", ["6.59", "6.5", "6.56", "7.83", "4.69", "4.59"]),
        ("100", ["6.62", "6.75", "6.58", "29.57", "5.04", "5.09"]),
        ("1000", ["6.54", "6.82", "6.61", "320.33", "5.22", "5.21"]),
    ];
    let many: [(&str, [&str; 6]); 4] = [
        ("0", ["234.52", "260.25", "239.42", "5.06", "5.38", "5.09"]),
        ("1", ["236.46", "262.0", "231.1", "19.57", "22.14", "5.45"]),
        (
            "10",
            ["236.95", "263.84", "251.49", "151.73", "21.61", "5.73"],
        ),
        (
            "100",
            ["268.16", "296.8", "280.13", "2308.52", "22.27", "6.57"],
        ),
    ];
    for (threads, title, rows) in [
        (1, "One thread", one.as_slice()),
        (32, "32 threads, tombstones of each", &many),
    ] {
        for (benchmark, from) in [("fillrandom", 0), ("readrandom", 3)] {
            writeln!(page, "\n{title}, {benchmark}:\n")?;
            head(
                page,
                kept,
                "| tombstones | RocksDB, published before | cached at every write | after |",
            )?;
            for (count, published) in rows {
                let word = format!("max_num_range_tombstones={count}");
                let with: &[&str] = if threads == 32 {
                    &[&word, "threads=32"]
                } else {
                    &[&word]
                };
                let without: &[&str] = if threads == 32 { &[] } else { &["threads"] };
                let cell = Cell {
                    change: "10380",
                    benchmark,
                    with,
                    without,
                };
                let published = published[from..from + 3].join(" | ");
                writeln!(
                    page,
                    "| {count} | {published} |{}",
                    measured(kept, cell, Figure::Micros)
                )?;
            }
        }
    }
    Ok(())
}

fn checksums(page: &mut String, records: &Records) -> std::fmt::Result {
    let kept = start(
        page,
        records,
        "9069",
        "#9069 checksums of 4096-byte blocks, MB/s",
    )?;
    writeln!(page)?;
    head(page, kept, "| kind | RocksDB, published (three runs) |")?;
    for (kind, published) in [
        ("crc32c", "19 551.6 / 18 982.7 / 19 237.1"),
        ("xxhash", "4 837.5 / 4 925.2 / 4 657.8"),
        ("xxhash64", "9 283.3 / 9 528.1 / 9 208.6"),
        ("xxh3", "22 884.3 / 24 230.0 / 24 151.1"),
    ] {
        let cell = Cell {
            change: "9069",
            benchmark: kind,
            with: &[],
            without: &[],
        };
        writeln!(
            page,
            "| {kind} | {published} |{}",
            measured(kept, cell, Figure::Speed)
        )?;
    }
    writeln!(
        page,
        "\nfillseq into a vector table with each checksum type, ops/s; here it guards the journal's records:\n"
    )?;
    head(page, kept, "| type | RocksDB, published |")?;
    for (number, name, published) in [
        ("0", "none", "252 118"),
        ("1", "CRC32c", "251 588"),
        ("2", "xxHash", "251 863"),
        ("3", "xxHash64", "252 016"),
        ("4", "XXH3", "252 038"),
    ] {
        let word = format!("checksum_type={number}");
        let cell = Cell {
            change: "9069",
            benchmark: "fillseq",
            with: &[&word],
            without: &[],
        };
        writeln!(
            page,
            "| {name} | {published} |{}",
            measured(kept, cell, Figure::Rate)
        )?;
    }
    Ok(())
}
