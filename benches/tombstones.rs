//! What do range tombstones cost?
//!
//! ```text
//!   cargo bench -p paranoid-memtable-benches --bench tombstones    prints two tables
//!   cargo bench -p paranoid-memtable-benches --bench tombstones -- --date 2026-01-31 --name laptop
//!       also writes benches/records/DATE-NAME.{md,json}
//!   options: --entries 250000  --rounds 200
//! ```
//! First ratios to the same work without tombstones, taken in turns in one process; then the shape of the table that
//! RocksDB published when it began to cache fragments at the freeze (pull request 10380), beside its figures.

use std::process::ExitCode;

use arguments::Arguments;
use report::Report;
use sizes::Extent;

#[allow(dead_code, reason = "each bench uses a part")]
#[path = "table/arguments.rs"]
mod arguments;
#[path = "tombstones/costs.rs"]
mod costs;
#[path = "tombstones/pairs.rs"]
mod pairs;
#[path = "tombstones/published.rs"]
mod published;
#[path = "tombstones/report.rs"]
mod report;
#[path = "rivals/mod.rs"]
mod rivals;
#[path = "rivals/sizes.rs"]
mod sizes;
#[path = "tombstones/tables.rs"]
mod tables;

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct Size {
    entries: u32,
    rounds: usize,
    /// Gets or puts of one turn.
    slice: usize,
    /// Pairs of a range delete and a get.
    pairs: u32,
    pairs_many: u32,
    /// Writes and reads per thread in the published shape: with one thread, and with 32.
    published: [(u32, u32); 2],
}

impl Size {
    fn of(extent: Extent, arguments: &Arguments) -> Size {
        let entries = arguments.entries.first().copied().unwrap_or(250_000);
        match extent {
            Extent::Full => Size {
                entries,
                rounds: arguments.rounds,
                // Short, so that few slices are interrupted.
                slice: 400,
                pairs: 10_000,
                pairs_many: 100_000,
                published: [(500_000, 100_000), (15_000, 20_000)],
            },
            Extent::Smoke => Size {
                entries,
                rounds: 3,
                slice: 100,
                pairs: 300,
                pairs_many: 600,
                published: [(1_500, 200), (100, 50)],
            },
        }
    }
}

fn main() -> ExitCode {
    let extent = Extent::asked();
    let done = Arguments::parse(extent).and_then(|arguments| {
        let size = Size::of(extent, &arguments);
        let mut report = Report::new(size);
        costs::measure(&mut report, size);
        pairs::measure(&mut report, size);
        published::measure(&mut report, size);
        let record = report.record(&arguments);
        let page = report::markdown(&record);
        println!("{page}");
        arguments.save(extent, &record, &page)
    });
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}
