//! A set beside plain tables and beside RocksDB's whole write path, both without a log.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release [--features rocksdb] -- set [--entries 250000] [--rounds 15] [--date 2026-01-31]
//!   RUSTFLAGS="--cfg holds" cargo run --release -- set --rows hold      how long the commit mutex is held
//! ```
//! A round gives each store a slice of the same entries; batches are made before the time begins, 256 entries at once, and
//! dropped after it. One
//! thread is timed by its own processor time. Where two threads are compared with one, both are timed by the clock.

mod candidates;
mod holds;
mod page;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use measure::record::{Record, Row, Section};

use crate::ballast::Ballast;
use crate::environment;
use crate::rivals::Room;
use crate::rows::SEED;
use crate::turns::thread_time;
use crate::work::{Entries, KeyShape, Keys, Presence, Shape, mix, picks, shuffled};
use candidates::{ALL, Candidate, Kind, Store, Work};

pub use page::performance;

/// What was asked for.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[arg(long, default_value_t = 250_000)]
    entries: u64,
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Only rows whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Day of the record; without one nothing is written.
    #[arg(long)]
    date: Option<String>,
    /// Name of the record.
    #[arg(long, default_value = "set")]
    name: String,
}

/// The order in which entries are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
}

/// Which clock times a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Thread,
    Wall,
}

/// Batches that are made at once: they fit the caches, as those of an engine do when it writes them.
const TOGETHER: usize = 256;
const SHAPE: Shape = Shape { key: KeyShape::Bytes16, value_len: 100 };
const PUTS: [(&str, Order, Clock, usize); 6] = [
    ("put in order", Order::Ascending, Clock::Thread, 1),
    ("put at random", Order::Random, Clock::Thread, 1),
    ("put in order, batches of 32", Order::Ascending, Clock::Thread, 32),
    ("put at random, batches of 32", Order::Random, Clock::Thread, 32),
    ("put in order, by the clock", Order::Ascending, Clock::Wall, 1),
    ("put at random, by the clock", Order::Random, Clock::Wall, 1),
];

/// All stores of a row, and what they are filled with.
struct Stage {
    entries: u64,
    rounds: usize,
    stores: Vec<(Candidate, Box<dyn Store>)>,
    row: Row,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0");
    let (entries, rounds) = if smoke { (3_000, 2) } else { (arguments.entries, arguments.rounds) };
    ensure!(rounds > 0 && entries >= 1_000 * rounds as u64, "--entries: at least 1000 per round");
    let wants = |row: &str| arguments.rows.is_empty() || arguments.rows.iter().any(|part| row.contains(part));
    let mut rows = Vec::new();
    for (name, order, clock, batch) in PUTS.into_iter().filter(|(name, ..)| wants(name)) {
        let takes_part = |candidate: &Candidate| match clock {
            Clock::Thread => candidate.threads == 1 && candidate.kind != Kind::View,
            Clock::Wall => {
                candidate.protection == 8 && ![Kind::View, Kind::TableBatch].contains(&candidate.kind)
            }
        };
        rows.push(Stage::new(name, entries, rounds, takes_part)?.puts(order, clock, batch));
    }
    for (name, first) in [("get from the newer table", entries / 2), ("get from the older table", 0)] {
        if wants(name) {
            let is_asked = |candidate: &Candidate| {
                (candidate.protection, candidate.threads) == (8, 1)
                    && ![Kind::TableBatch, Kind::RocksDb].contains(&candidate.kind)
            };
            rows.push(Stage::new(name, entries, rounds, is_asked)?.gets(first));
        }
    }
    if wants("hold") {
        rows.extend(holds::rows(entries, rounds)?);
    }
    let record = Record {
        program: "set".into(),
        environment: environment::here(arguments.date.as_deref()),
        keys: SHAPE.key.len(),
        values: SHAPE.value_len,
        threads: 1,
        rounds,
        slice: usize::try_from(entries)? / rounds,
        candidates: ALL.iter().map(|candidate| candidate.name()).collect(),
        sections: vec![Section { entries, rows, ..Section::default() }],
    };
    let text = page::markdown(&record);
    println!("{text}");
    if let Some(date) = &arguments.date {
        eprintln!("wrote {}", record.save(&format!("{date}-{}", arguments.name), &text)?.display());
    }
    Ok(())
}

fn numbers(entries: u64, order: Order) -> Vec<u64> {
    match order {
        Order::Ascending => (0..entries).collect(),
        Order::Random => shuffled(entries, SEED),
    }
}

impl Stage {
    fn new(
        name: &str,
        entries: u64,
        rounds: usize,
        is_asked: impl Fn(&Candidate) -> bool,
    ) -> anyhow::Result<Stage> {
        let room = Room { shape: SHAPE, entries: entries * 2, threads: 2 };
        let asked = ALL.iter().filter(|candidate| is_asked(candidate));
        let stores = asked.map(|candidate| Ok((*candidate, candidate.store(room)?)));
        let row = Row { name: name.into(), nanoseconds: vec![None; ALL.len()], ..Row::default() };
        Ok(Stage { entries, rounds, stores: stores.collect::<anyhow::Result<_>>()?, row })
    }

    /// One round: each store does its work, another one first each time.
    fn round(
        &mut self,
        round: usize,
        operations: usize,
        mut time: impl FnMut(Candidate, &dyn Store) -> (Duration, u64),
    ) {
        let mut agreed = None;
        for turn in 0..self.stores.len() {
            let (candidate, store) = &self.stores[(round + turn) % self.stores.len()];
            let (elapsed, hash) = time(*candidate, store.as_ref());
            assert_eq!(*agreed.get_or_insert(hash), hash, "{}: {}", self.row.name, candidate.name());
            let at = ALL.iter().position(|known| known == candidate).unwrap_or_default();
            let nanoseconds = elapsed.as_secs_f64() * 1e9 / operations.max(1) as f64;
            self.row.nanoseconds[at].get_or_insert_default().push(nanoseconds);
        }
        self.row.hash = format!("{:016x}", mix(agreed.unwrap_or(0)));
    }

    fn puts(mut self, order: Order, clock: Clock, batch: usize) -> Row {
        let order = numbers(self.entries, order);
        let slice = order.len() / self.rounds;
        let fresh = slice * 220;
        let mut ballast = Ballast::hold(fresh * self.rounds * self.stores.len());
        for (round, part) in order.chunks_exact(slice).take(self.rounds).enumerate() {
            let first = 1 + (round * slice) as u64;
            self.round(round, slice, |candidate, store| {
                let share =
                    if clock == Clock::Thread { TOGETHER } else { part.len().div_ceil(candidate.threads) };
                let parts = part.chunks(share).enumerate();
                let parts = parts.map(|(at, part)| SHAPE.entries(part, first + (at * share) as u64));
                let parts: Vec<Entries> = parts.collect();
                let parts: Vec<Work<'_>> = parts.iter().map(|entries| Work::Put(entries, batch)).collect();
                ballast.release(fresh);
                if clock == Clock::Thread { alone(store, &parts) } else { side_by_side(store, &parts) }
            });
        }
        eprintln!("  {}", self.row.name);
        self.row
    }

    /// Gets of keys of half of the entries, from `first` on.
    fn gets(mut self, first: u64) -> Row {
        let (older, newer) = (shuffled(self.entries / 2, SEED), shuffled(self.entries / 2, SEED + 1));
        let newer: Vec<u64> = newer.iter().map(|number| number + self.entries / 2).collect();
        let (older, newer) = (SHAPE.entries(&older, 1), SHAPE.entries(&newer, 1 + self.entries));
        for (_, store) in &self.stores {
            store.fill(&older, &newer);
        }
        for round in 0..self.rounds {
            let asked = picks(self.entries / 2, 20_000, mix(SEED ^ round as u64) >> 32);
            let asked: Vec<u64> = asked.iter().map(|number| number + first).collect();
            let keys: Keys = SHAPE.keys(&asked, Presence::Hit);
            self.round(round, asked.len(), |_, store| alone(store, &[Work::Get(&keys)]));
        }
        eprintln!("  {}", self.row.name);
        self.row
    }
}

/// The work of one thread, by its processor time. Entries are made just before they are put, as an engine does it.
fn alone(store: &dyn Store, parts: &[Work<'_>]) -> (Duration, u64) {
    parts.iter().fold((Duration::ZERO, 0), |(sum, count), work| {
        let mut task = store.task(*work);
        let started = thread_time();
        let hash = std::hint::black_box(task());
        (sum + thread_time().saturating_sub(started), count.wrapping_add(hash))
    })
}

/// The work of several threads, by the clock.
fn side_by_side(store: &dyn Store, parts: &[Work<'_>]) -> (Duration, u64) {
    let ready = Barrier::new(parts.len());
    let spans: Vec<(Instant, Instant, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|work| {
                let ready = &ready;
                scope.spawn(move || {
                    let mut task = store.task(*work);
                    ready.wait();
                    let started = Instant::now();
                    let hash = std::hint::black_box(task());
                    (started, Instant::now(), hash)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that works")).collect()
    });
    let started = spans.iter().map(|(started, ..)| *started).min();
    let ended = spans.iter().map(|(_, ended, _)| *ended).max();
    let elapsed = started.zip(ended).map_or(Duration::ZERO, |(started, ended)| ended - started);
    (elapsed, spans.iter().fold(0, |hash, (.., part)| hash + part))
}
