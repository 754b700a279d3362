//! Measures tables and sets with several threads, this crate's beside rivals: rates by the clock,
//! and costs.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release [--features rocksdb] -- threads [--threads 1,2,4,8,16] [--inserts 320000]
//!            [--gets 1000000] [--rounds 3] [--rows put,set] [--candidates ours,artmap]
//!            [--folder /tmp] [--memory /dev/shm] [--date 2026-01-31]
//! ```
//! With fewer processors than threads the rates mean little. But the sleeps and the processor time
//! of an operation show what would stop threads with processors of their own.

// Bottom-up.
mod crew;
mod parts;
mod stores;
mod lanes;
mod rows;
mod page;
mod plot;
mod turns;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;

use crate::record;
use page::Record;
use parts::{SHAPE, Sizes};
use turns::Stage;

pub use stores::Folder;

/// The arguments of `threads`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Numbers of threads. Default: 1 to 16, the number of processors, and twice that.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Entries that all threads of a run put together.
    #[arg(long, default_value_t = 320_000)]
    inserts: u64,
    /// Number of gets of all threads together. Default: 25 for 8 inserts.
    #[arg(long)]
    gets: Option<u64>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only rows whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Only candidates whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    candidates: Vec<String>,
    /// The folder of logs on a file system.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: PathBuf,
    /// The folder of logs in memory.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// The day of the record. Without a day no record is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "threads")]
    name: String,
}

/// Numbers of threads that are measured on every machine.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let stage = arguments.stage()?;
    let before = load();
    let rows = arguments.rows().map(|row| stage.measure(&row));
    let rows = rows.collect::<anyhow::Result<_>>()?;
    let folder = |folder: &PathBuf| folder.display().to_string();
    let record = Record {
        environment: record::environment(arguments.date.as_deref()),
        processors: stage.processors.len(),
        load: before.zip(load()).map(|(before, after)| [before, after]),
        folders: stage.folders.each_ref().map(folder),
        key_bytes: SHAPE.key.len(),
        value_bytes: SHAPE.value_len,
        rounds: stage.rounds,
        threads: stage.threads,
        rows,
    };
    let mut text = record.markdown();
    println!("{text}");
    let Some(date) = &arguments.date else {
        return Ok(());
    };
    let stem = format!("{date}-{}", arguments.name);
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../records");
    let to = records.join(&stem);
    if let Some(plot) = plot::svg(&record) {
        text += &format!("\n![Puts at random by the number of threads]({stem}.svg)\n");
        std::fs::write(to.with_extension("svg"), plot)?;
    }
    let figures = serde_json::to_string(&record)? + "\n";
    std::fs::write(to.with_extension("json"), figures)?;
    std::fs::write(to.with_extension("md"), text)?;
    eprintln!("wrote benches/records/{stem}.md, .json and .svg");
    Ok(())
}

impl Arguments {
    /// The amount of work, its folders and its numbers of threads.
    fn stage(&self) -> anyhow::Result<Stage> {
        let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0");
        let processors = crew::processors()?;
        let inserts = if smoke { 2_000 } else { self.inserts };
        let gets = self.gets.filter(|_| !smoke).unwrap_or(inserts * 25 / 8);
        let mut threads = match &*self.threads {
            [] if smoke => vec![1, 9],
            [] => [&THREADS[..], &[processors.len(), 2 * processors.len()]].concat(),
            asked => asked.to_vec(),
        };
        threads.sort_unstable();
        threads.dedup();
        let rounds = if smoke { 2 } else { self.rounds };
        ensure!(threads.first() > Some(&0), "--threads: at least 1");
        ensure!(rounds > 0, "--rounds: at least 1");
        ensure!(
            inserts >= 1_000 && gets >= 1_000,
            "--inserts, --gets: at least 1000"
        );
        let unit = threads
            .iter()
            .fold(1, |unit, threads| lcm(unit, *threads as u64));
        Ok(Stage {
            sizes: Sizes {
                inserts,
                gets,
                unit,
            },
            rounds,
            threads,
            processors,
            folders: [self.folder.clone(), self.memory.clone()],
        })
    }

    /// The rows and candidates that the arguments select.
    fn rows(&self) -> impl Iterator<Item = rows::Row> {
        let has = |parts: &[String], name: &str| {
            parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
        };
        rows::all().into_iter().filter_map(move |mut row| {
            row.lanes.retain(|lane| has(&self.candidates, &lane.name()));
            (has(&self.rows, &row.name) && !row.lanes.is_empty()).then_some(row)
        })
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut greater, mut smaller) = (a, b);
    while smaller > 0 {
        (greater, smaller) = (smaller, greater % smaller);
    }
    a / greater * b
}

/// Number of programs that wait for a processor, averaged over the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}
