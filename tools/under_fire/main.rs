//! An engine under fire: the store of the example `kv_store` in this process, and a thread that
//! flips bits of its active table, while others write, read, hold snapshots and flush.
//!
//! ```text
//!   cargo run --release --features fault-injection --example under_fire -- --seconds 600
//!   cargo run --release --features fault-injection --example under_fire -- --bits 2      two bits of one entry at once
//! ```
//! Every thread enters a gate for each call, and the flipping thread closes it: while a bit flips,
//! no other thread uses the tables. `load.rs` has the calls and their right answers, `flips.rs` the
//! flips. A batch is lost if it was acknowledged and is not read any more; at the end the store is
//! opened again, and everything is read once more. A stop is a write that returned an error.
//!
//! Exit code 0: no answer was wrong and no batch lost, and single bits cost no answer and no stop; 1:
//! one was, or they did; 2: it cannot be done.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of groups are small, and random words may lose bits"
)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use paranoid_memtable::MemTableOptions;
use paranoid_memtable::integrity::Repair;
use paranoid_set::Durability;

#[path = "../../examples/shared/arguments.rs"]
mod arguments;
#[path = "../../examples/kv_store/files.rs"]
mod files;
#[path = "../../examples/kv_store/manifest.rs"]
mod manifest;
#[path = "../../examples/shared/output.rs"]
mod output;
#[path = "../../examples/kv_store/store.rs"]
mod store;
mod flips;
mod load;

use arguments::arguments;
use files::Outcome;
use load::Group;
use output::{complain, print, with_causes};
use store::Store;

/// Writes to a store and reads it, while bits of its active table flip
#[derive(Debug, Parser)]
#[command(
    name = "under_fire",
    after_help = "Exit code: 0 no answer was wrong and no batch lost, and single bits cost nothing; 1 one was, or they did; 2 it cannot be done"
)]
struct Arguments {
    /// How long the load runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Flips a second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rate: u64,
    /// Bits of one entry that flip at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    bits: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes of a table before it is replaced and flushed
    #[arg(long, default_value_t = 1 << 20)]
    write_buffer: u64,
}

/// Counts of a run.
#[derive(Debug, Default)]
struct Counts {
    wrong: AtomicU64,
    lost: AtomicU64,
    stops: AtomicU64,
    /// Reads that answered `Corruption`.
    corruption: AtomicU64,
    flips: AtomicU64,
    /// Places that tables have put right.
    healed: AtomicU64,
    batches: AtomicU64,
    reads: AtomicU64,
    flushes: AtomicU64,
}

/// Adds one to a count.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The store, and what its threads share.
struct Shared {
    store: Store,
    gate: RwLock<()>,
    counts: Counts,
    is_over: AtomicBool,
    groups: Vec<Group>,
}

impl Shared {
    /// Keeps the flipping thread out until it is dropped. Every use of a table is inside.
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all others out until it is dropped.
    fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Counts a wrong answer, and prints it.
    fn wrong(&self, what: &str) {
        count(&self.counts.wrong);
        complain(format_args!("wrong: {what}"));
    }
}

fn main() -> ExitCode {
    sigpipe::reset();
    let directory = std::env::temp_dir().join(format!("under_fire-{}", std::process::id()));
    let done = run(&arguments(), &directory);
    let _ = std::fs::remove_dir_all(&directory);
    done.unwrap_or_else(|error| {
        complain(format_args!("error: {}", with_causes(&*error)));
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments, directory: &Path) -> Outcome<ExitCode> {
    let open = || {
        // Each table is hit more often than the default's limit of places.
        let table = MemTableOptions::builder()
            .write_buffer_size(arguments.write_buffer)
            .repair(Repair::On {
                places_max: u32::MAX,
            });
        Store::open(directory, &table.build()?, Durability::Buffered)
    };
    let shared = Shared {
        store: open()?,
        gate: RwLock::new(()),
        counts: Counts::default(),
        is_over: AtomicBool::new(false),
        groups: (0..load::GROUPS).map(Group::new).collect(),
    };
    thread::scope(|scope| {
        for writer in 0..load::WRITERS {
            let shared = &shared;
            scope.spawn(move || load::write(shared, arguments.seed, writer));
        }
        for reader in 0..load::READERS {
            let shared = &shared;
            scope.spawn(move || load::read(shared, arguments.seed, reader));
        }
        scope.spawn(|| load::hold_snapshots(&shared));
        scope.spawn(|| load::flush(&shared));
        scope.spawn(|| flips::flip(&shared, arguments));
        let end = Instant::now() + Duration::from_secs(arguments.seconds);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(100));
        }
        shared.is_over.store(true, Ordering::Relaxed);
    });
    // As a process that starts again does.
    let Shared {
        store,
        counts,
        groups,
        ..
    } = shared;
    drop(store);
    let store = open()?;
    for group in &groups {
        let found = load::contents_in(&store.view(), group.number)?;
        if !group.allows(&found) {
            count(&counts.lost);
            complain(format_args!("lost: group {}", group.number));
        }
    }
    report(&counts, arguments.bits)
}

fn report(counts: &Counts, bits: u64) -> Outcome<ExitCode> {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (wrong, lost) = (of(&counts.wrong), of(&counts.lost));
    print(format_args!(
        "{} flips, {} healed, {} batches, {} reads, {} flushes\nwrong {wrong} lost {lost} stops {} corruption {}\n",
        of(&counts.flips),
        of(&counts.healed),
        of(&counts.batches),
        of(&counts.reads),
        of(&counts.flushes),
        of(&counts.stops),
        of(&counts.corruption)
    ))?;
    let cost = match bits {
        1 => of(&counts.stops) + of(&counts.corruption),
        _ => 0,
    };
    Ok(ExitCode::from(u8::from(wrong + lost + cost > 0)))
}
