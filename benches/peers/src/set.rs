//! Compares a set with plain tables, and with the whole write paths of RocksDB and fjall, with a
//! log and without one.
//!
//! ```text
//!   cd benches/peers
//!   cargo run --release [--features rocksdb] -- set [--entries 250000] [--rounds 15] [--date 2026-01-31]
//! ```
//! A round gives each store a slice of the same entries. 256 batches are made at once before the
//! time begins, and dropped after it. One thread is timed by its own processor time. Rows that
//! compare two threads with one are timed by the clock.

use std::fmt::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use measure::{Record, Row, Section, quartiles};

use crate::record;
use crate::rivals::Room;
use crate::rows::SEED;
use crate::work::{Ballast, Entries, Keys, Presence, Shape, mix, picks, shuffled, thread_time};
use candidates::{ALL, Candidate, Kind, Store, Work};

/// The arguments of `set`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    #[arg(long, default_value_t = 250_000)]
    entries: u64,
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Only rows whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The day of the record. Without a day no record is written.
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

/// The clock that times a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Thread,
    Wall,
}

/// Number of batches that are made at once. They fit the caches, as in an engine that writes a
/// batch just after it is made.
const TOGETHER: usize = 256;
const SHAPE: Shape = Shape::plain(100);
const PUTS: [(&str, Order, Clock, usize); 8] = [
    ("put in order", Order::Ascending, Clock::Thread, 1),
    ("put at random", Order::Random, Clock::Thread, 1),
    (
        "put in order, batches of 32",
        Order::Ascending,
        Clock::Thread,
        32,
    ),
    (
        "put at random, batches of 32",
        Order::Random,
        Clock::Thread,
        32,
    ),
    (
        "put in order, by the clock",
        Order::Ascending,
        Clock::Wall,
        1,
    ),
    ("put at random, by the clock", Order::Random, Clock::Wall, 1),
    ("put in order, logged", Order::Ascending, Clock::Thread, 1),
    (
        "put at random, logged, by the clock",
        Order::Random,
        Clock::Wall,
        1,
    ),
];

/// All stores of a row, and the parameters of their entries.
struct Stage {
    entries: u64,
    rounds: usize,
    stores: Vec<(Candidate, Box<dyn Store>)>,
    row: Row,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value != "0");
    let (entries, rounds) = if smoke {
        (3_000, 2)
    } else {
        (arguments.entries, arguments.rounds)
    };
    ensure!(
        rounds > 0 && entries >= 1_000 * rounds as u64,
        "--entries: at least 1000 per round"
    );
    let wants = |row: &str| {
        arguments.rows.is_empty() || arguments.rows.iter().any(|part| row.contains(part))
    };
    let mut rows = Vec::new();
    for (name, order, clock, batch) in PUTS.into_iter().filter(|(name, ..)| wants(name)) {
        let is_logged = name.contains("logged");
        let takes_part = |candidate: &Candidate| {
            let is_base = (candidate.kind, candidate.protection) == (Kind::Set, 8);
            let is_alike = candidate.kind.is_logged() == is_logged || is_logged && is_base;
            is_alike
                && match clock {
                    Clock::Thread => candidate.threads == 1 && candidate.kind != Kind::View,
                    Clock::Wall => {
                        candidate.protection == 8
                            && ![Kind::View, Kind::TableBatch].contains(&candidate.kind)
                    }
                }
        };
        rows.push(Stage::new(name, entries, rounds, takes_part)?.puts(order, clock, batch));
    }
    for (name, first) in [
        ("get from the newer table", entries / 2),
        ("get from the older table", 0),
    ] {
        if wants(name) {
            let is_asked = |candidate: &Candidate| {
                (candidate.protection, candidate.threads) == (8, 1)
                    && [Kind::Table, Kind::Set, Kind::View].contains(&candidate.kind)
            };
            rows.push(Stage::new(name, entries, rounds, is_asked)?.gets(first));
        }
    }
    let record = Record {
        program: "set".into(),
        environment: record::environment(arguments.date.as_deref()),
        keys: SHAPE.key.len(),
        values: SHAPE.value_len,
        threads: 1,
        rounds,
        slice: usize::try_from(entries)? / rounds,
        candidates: ALL.iter().map(|candidate| candidate.name()).collect(),
        sections: vec![Section {
            entries,
            rows,
            ..Section::default()
        }],
    };
    let text = markdown(&record);
    println!("{text}");
    if let Some(date) = &arguments.date {
        eprintln!(
            "wrote {}",
            record
                .save(&format!("{date}-{}", arguments.name), &text)?
                .display()
        );
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
        let room = Room {
            shape: SHAPE,
            entries: entries * 2,
            threads: 8,
        };
        let asked = ALL.iter().filter(|candidate| is_asked(candidate));
        let stores = asked.map(|candidate| Ok((*candidate, candidate.store(room)?)));
        let row = Row {
            name: name.into(),
            nanoseconds: vec![None; ALL.len()],
            ..Row::default()
        };
        Ok(Stage {
            entries,
            rounds,
            stores: stores.collect::<anyhow::Result<_>>()?,
            row,
        })
    }

    /// Runs one round: each store does its work. Each round begins with another store.
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
            assert_eq!(
                *agreed.get_or_insert(hash),
                hash,
                "{}: {}",
                self.row.name,
                candidate.name()
            );
            let at = ALL
                .iter()
                .position(|known| known == candidate)
                .unwrap_or_default();
            let nanoseconds = elapsed.as_secs_f64() * 1e9 / operations.max(1) as f64;
            self.row.nanoseconds[at]
                .get_or_insert_default()
                .push(nanoseconds);
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
                let share = if clock == Clock::Thread {
                    TOGETHER
                } else {
                    part.len().div_ceil(candidate.threads)
                };
                let parts = part.chunks(share).enumerate();
                let parts =
                    parts.map(|(at, part)| SHAPE.entries(part, first + (at * share) as u64));
                let parts: Vec<Entries> = parts.collect();
                let parts: Vec<Work<'_>> = parts
                    .iter()
                    .map(|entries| Work::Put(entries, batch))
                    .collect();
                ballast.release(fresh);
                if clock == Clock::Thread {
                    alone(store, &parts)
                } else {
                    side_by_side(store, &parts)
                }
            });
        }
        eprintln!("  {}", self.row.name);
        self.row
    }

    /// Gets keys of half of the entries, from `first`.
    fn gets(mut self, first: u64) -> Row {
        let (older, newer) = (
            shuffled(self.entries / 2, SEED),
            shuffled(self.entries / 2, SEED + 1),
        );
        let newer: Vec<u64> = newer
            .iter()
            .map(|number| number + self.entries / 2)
            .collect();
        let (older, newer) = (
            SHAPE.entries(&older, 1),
            SHAPE.entries(&newer, 1 + self.entries),
        );
        for (_, store) in &self.stores {
            store.fill(&older, &newer);
        }
        for round in 0..self.rounds {
            let asked = picks(self.entries / 2, 20_000, mix(SEED ^ round as u64) >> 32);
            let asked: Vec<u64> = asked.iter().map(|number| number + first).collect();
            let keys: Keys = SHAPE.keys(&asked, Presence::Hit);
            self.round(round, asked.len(), |_, store| {
                alone(store, &[Work::Get(&keys)])
            });
        }
        eprintln!("  {}", self.row.name);
        self.row
    }
}

/// Runs the work of one thread, by its processor time. Entries are made just before they are put,
/// as in an engine.
fn alone(store: &dyn Store, parts: &[Work<'_>]) -> (Duration, u64) {
    parts
        .iter()
        .fold((Duration::ZERO, 0), |(sum, count), work| {
            let mut task = store.task(*work);
            let started = thread_time();
            let hash = std::hint::black_box(task());
            (
                sum + thread_time().saturating_sub(started),
                count.wrapping_add(hash),
            )
        })
}

/// Runs the work of several threads, by the clock.
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
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that works"))
            .collect()
    });
    let started = spans.iter().map(|(started, ..)| *started).min();
    let ended = spans.iter().map(|(_, ended, _)| *ended).max();
    let elapsed = started
        .zip(ended)
        .map_or(Duration::ZERO, |(started, ended)| ended - started);
    (
        elapsed,
        spans.iter().fold(0, |hash, (.., part)| hash + part),
    )
}

// The page of a set's costs, and the targets of the crate.

/// A target about two candidates of a row: the first is judged by comparison with the second.
enum Target {
    /// It takes at most this many times as long.
    Times(f64),
    /// It takes at most this many nanoseconds more.
    Added(f64),
    /// It is at least this many times as fast.
    Ahead(f64),
}

use Target::{Added, Ahead, Times};

const TARGETS: [(&str, &str, &str, Target); 7] = [
    ("put at random", "set-8", "table-8", Times(1.15)),
    ("put in order", "set-8", "table-8", Added(45.0)),
    ("put in order, logged", "queued-8", "set-8", Added(150.0)),
    (
        "put at random, by the clock",
        "set-8-two-threads",
        "set-8",
        Ahead(1.6),
    ),
    ("get from the older table", "set-8", "table-8", Times(1.15)),
    ("put at random", "set-8", "rocksdb-8", Ahead(1.5)),
    ("put in order", "set-8", "rocksdb-8", Ahead(1.5)),
];

impl Target {
    /// The target, the measured figures with quartiles in brackets, and the verdict.
    fn judge(
        &self,
        record: &Record,
        section: &Section,
        row: &str,
        pair: (&str, &str),
    ) -> Option<[String; 3]> {
        let paired = |how: fn(f64, f64) -> f64| section.paired(&record.candidates, row, pair, how);
        let (wanted, [low, median, high], is_kept) = match *self {
            Times(most) => {
                let found = paired(|judged, other| judged / other)?;
                (
                    format!("at most {most} times {}", pair.1),
                    found,
                    found[1] <= most,
                )
            }
            Added(most) => {
                let found = paired(|judged, other| judged - other)?;
                (format!("{} +{most:.0} ns", pair.1), found, found[1] <= most)
            }
            Ahead(least) => {
                let found = paired(|judged, other| other / judged)?;
                (
                    format!("at least {least} times as fast as {}", pair.1),
                    found,
                    found[1] >= least,
                )
            }
        };
        let verdict = if is_kept { "reached" } else { "**missed**" };
        let [wanted, verdict] = [wanted, verdict.into()];
        Some([
            wanted,
            format!("{median:.2} ({low:.2}..{high:.2})"),
            verdict,
        ])
    }
}

pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = record::head(&record.environment, "What a set costs", &mut text)
        .and_then(|()| performance(&mut text, record));
    text
}

/// Targets and times, without the head of a page.
pub fn performance(text: &mut String, record: &Record) -> std::fmt::Result {
    for section in &record.sections {
        let Record {
            keys,
            values,
            rounds,
            ..
        } = record;
        writeln!(
            text,
            "\n{} entries, {keys}-byte keys, {values}-byte values, {rounds} rounds in turn; tables are not switched. \
             Batches are made before the time begins. `table`: `Writer::put`; `table-batch`: `Writer::write_batch`; `rocksdb`: \
             `DB::Write` with `disableWAL`; `view`: one view for all gets; the number: protection bytes. Logged, each write is \
             in the file of the log before it returns, without a sync: `journal`: a set with a `FileJournal`; `queued`: only copied into its queue; `rocksdb-logged`: \
             `DB::Write`; `fjall`: `Keyspace::insert`. Medians, in brackets quartiles.\n",
            section.entries
        )?;
        budgets(text, record, section)?;
        times(text, record, section)?;
    }
    Ok(())
}

fn budgets(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let judged = TARGETS.iter().filter_map(|(row, judged, other, target)| {
        let figures = target.judge(record, section, row, (*judged, *other))?;
        Some(format!("| {row} | {judged} | {} |", figures.join(" | ")))
    });
    let judged: Vec<String> = judged.collect();
    if !judged.is_empty() {
        writeln!(
            text,
            "| work | | wanted | measured | |\n|---|---|---|---|---|\n{}\n",
            judged.join("\n")
        )?;
    }
    Ok(())
}

/// Median nanoseconds per operation of the candidates that have samples.
fn times(text: &mut String, record: &Record, section: &Section) -> std::fmt::Result {
    let has_samples = |at: &usize| section.rows.iter().any(|row| !row.samples(*at).is_empty());
    let shown: Vec<usize> = (0..record.candidates.len()).filter(has_samples).collect();
    let names: Vec<&str> = shown
        .iter()
        .map(|at| record.candidates[*at].as_str())
        .collect();
    writeln!(
        text,
        "| nanoseconds | {} |\n|---{}|",
        names.join(" | "),
        "|---".repeat(shown.len())
    )?;
    for row in &section.rows {
        let cell = |at: &usize| match row.samples(*at) {
            [] => "-".to_owned(),
            samples => format!("{:.0}", quartiles(samples.to_vec())[1]),
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}

/// The candidates: plain tables, a set, and RocksDB's database.
mod candidates {
    use std::sync::Arc;

    use paranoid_memtable::{Lookup, MemTable, MemTableOptions, WriteBatch};
    use paranoid_set::{Durability, FileJournal, MemTableSet, SetOptions, View};

    use crate::rivals::Room;
    use crate::threads::Folder;
    use crate::work::{Entries, Keys, fold};

    /// One slice of work of one thread.
    #[derive(Debug, Clone, Copy)]
    pub enum Work<'w> {
        /// In batches of this many entries, which are made before the time begins.
        Put(&'w Entries, usize),
        Get(&'w Keys),
    }

    /// Work that is ready to be timed. It is dropped after the time has ended.
    pub type Task<'a> = Box<dyn FnMut() -> u64 + 'a>;

    /// A store that takes entries and answers gets.
    pub trait Store: Sync {
        fn task<'a>(&'a self, work: Work<'a>) -> Task<'a>;
        /// Puts older entries into a table of their own, and then newer ones.
        fn fill(&self, older: &Entries, newer: &Entries);
    }

    /// A kind of store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
        /// `Writer::put`.
        Table,
        /// `Writer::write_batch`.
        TableBatch,
        Set,
        /// A set; all gets use one view.
        View,
        #[cfg_attr(
            not(feature = "rocksdb"),
            expect(dead_code, reason = "made where RocksDB is built")
        )]
        RocksDb,
        /// A set with a journal of files, `Durability::Buffered`.
        Journal,
        /// A set with a journal of files, `Durability::Queued`.
        Queued,
        RocksDbLogged,
        Fjall,
    }

    impl Kind {
        pub fn is_logged(self) -> bool {
            [
                Kind::Journal,
                Kind::Queued,
                Kind::RocksDbLogged,
                Kind::Fjall,
            ]
            .contains(&self)
        }
    }

    /// A store with its protection bytes, and the number of threads that put entries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Candidate {
        pub kind: Kind,
        pub protection: u8,
        pub threads: usize,
    }

    const fn candidate(kind: Kind, protection: u8, threads: usize) -> Candidate {
        Candidate {
            kind,
            protection,
            threads,
        }
    }

    pub const ALL: &[Candidate] = &[
        candidate(Kind::Table, 8, 1),
        candidate(Kind::TableBatch, 8, 1),
        candidate(Kind::Set, 8, 1),
        candidate(Kind::View, 8, 1),
        candidate(Kind::Table, 0, 1),
        candidate(Kind::Set, 0, 1),
        candidate(Kind::Table, 8, 2),
        candidate(Kind::Set, 8, 2),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDb, 8, 1),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDb, 0, 1),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDb, 8, 2),
        candidate(Kind::Journal, 8, 1),
        candidate(Kind::Journal, 8, 2),
        candidate(Kind::Journal, 8, 8),
        candidate(Kind::Queued, 8, 1),
        candidate(Kind::Queued, 8, 2),
        candidate(Kind::Queued, 8, 8),
        candidate(Kind::Fjall, 8, 1),
        candidate(Kind::Fjall, 8, 2),
        candidate(Kind::Fjall, 8, 8),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDbLogged, 8, 1),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDbLogged, 8, 2),
        #[cfg(feature = "rocksdb")]
        candidate(Kind::RocksDbLogged, 8, 8),
    ];

    impl Candidate {
        pub fn name(self) -> String {
            let kind = match self.kind {
                Kind::Table => "table",
                Kind::TableBatch => "table-batch",
                Kind::Set => "set",
                Kind::View => "view",
                Kind::RocksDb => "rocksdb",
                Kind::Journal => "journal",
                Kind::Queued => "queued",
                Kind::RocksDbLogged => "rocksdb-logged",
                Kind::Fjall => return format!("fjall{}", self.threads()),
            };
            format!("{kind}-{}{}", self.protection, self.threads())
        }

        fn threads(self) -> &'static str {
            match self.threads {
                1 => "",
                2 => "-two-threads",
                _ => "-eight-threads",
            }
        }

        /// An empty store.
        pub fn store(self, room: Room) -> anyhow::Result<Box<dyn Store>> {
            let options = MemTableOptions::builder()
                .protection_bytes(self.protection)
                .write_buffer_size(room.write_buffer());
            let options = options.build()?;
            Ok(match self.kind {
                Kind::Table | Kind::TableBatch => {
                    let tables = [MemTable::new(options.clone())?, MemTable::new(options)?];
                    Box::new(Tables {
                        tables,
                        candidate: self,
                    })
                }
                Kind::Set | Kind::View => {
                    let set = MemTableSet::open(SetOptions::builder().table(options).build()?, ())?;
                    Box::new(Set {
                        set,
                        candidate: self,
                        _folder: None,
                    })
                }
                Kind::Journal | Kind::Queued => {
                    let folder = Folder::new(&std::env::temp_dir(), &self.name())?;
                    let (journal, _) = FileJournal::open(folder.path(), 0)?;
                    let options = SetOptions::builder()
                        .table(options)
                        .journal(Arc::new(journal));
                    let set = MemTableSet::open(options.build()?, ())?;
                    Box::new(Set {
                        set,
                        candidate: self,
                        _folder: Some(folder),
                    })
                }
                Kind::Fjall => {
                    let folder = Folder::new(&std::env::temp_dir(), &self.name())?;
                    let database = fjall::Database::builder(folder.path()).open()?;
                    let options = || {
                        fjall::KeyspaceCreateOptions::default()
                            .max_memtable_size(room.write_buffer())
                    };
                    let keyspace = database.keyspace("entries", options)?;
                    Box::new(Fjall {
                        keyspace,
                        _database: database,
                        _folder: folder,
                    })
                }
                Kind::RocksDb | Kind::RocksDbLogged => rocksdb(self, room)?,
            })
        }

        /// Makes batches, with digests if the tables have digests.
        pub fn batches(self, entries: &Entries, batch: usize) -> Vec<WriteBatch> {
            let mut made: Vec<WriteBatch> = Vec::new();
            for (at, (_, key, value)) in entries.iter().enumerate() {
                if at % batch == 0 {
                    made.push(WriteBatch::with_protection(self.protection).expect("0 or 8"));
                }
                if let Some(batch) = made.last_mut() {
                    batch.put(key, value).expect("room for the entry");
                }
            }
            made
        }
    }

    /// Two tables, the newer one first.
    struct Tables {
        tables: [MemTable; 2],
        candidate: Candidate,
    }

    impl Store for Tables {
        fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
            let [newer, older] = &self.tables;
            match work {
                Work::Put(entries, batch) if self.candidate.kind == Kind::TableBatch => {
                    let batches = self.candidate.batches(entries, batch);
                    let first = entries.sequences.first().copied().unwrap_or(1);
                    let mut writer = newer.writer();
                    Box::new(move || {
                        let mut sequence = first;
                        for batch in &batches {
                            writer
                                .write_batch(sequence, batch)
                                .expect("room for the batch");
                            sequence += batch.len() as u64;
                        }
                        sequence - first
                    })
                }
                Work::Put(entries, _) => {
                    let mut writer = newer.writer();
                    Box::new(move || {
                        for (sequence, key, value) in entries.iter() {
                            writer
                                .put(sequence, key, value)
                                .expect("room for the entry");
                        }
                        entries.count() as u64
                    })
                }
                Work::Get(keys) => Box::new(move || {
                    keys.iter().fold(0, |hash, key| {
                        let found =
                            |table: &'a MemTable| table.get(key, u64::MAX).expect("intact memory");
                        let lookup = match found(newer) {
                            Lookup::NotFound => found(older),
                            lookup => lookup,
                        };
                        if let Lookup::Value(value) = lookup {
                            fold(hash, &value)
                        } else {
                            hash + 1
                        }
                    })
                }),
            }
        }

        fn fill(&self, older: &Entries, newer: &Entries) {
            for (table, entries) in self.tables.iter().zip([newer, older]) {
                for (sequence, key, value) in entries.iter() {
                    table.put(sequence, key, value).expect("room for the entry");
                }
            }
        }
    }

    struct Set {
        set: MemTableSet<()>,
        candidate: Candidate,
        _folder: Option<Folder>,
    }

    impl Set {
        fn write(&self, batches: &[WriteBatch]) -> u64 {
            let durability = match self.candidate.kind {
                Kind::Journal => Durability::Buffered,
                Kind::Queued => Durability::Queued,
                _ => Durability::None,
            };
            batches.iter().fold(0, |count, batch| {
                self.set
                    .write_with(batch, durability)
                    .expect("room for the batch");
                count + batch.len() as u64
            })
        }
    }

    impl Store for Set {
        fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
            match work {
                Work::Put(entries, batch) => {
                    let batches = self.candidate.batches(entries, batch);
                    Box::new(move || self.write(&batches))
                }
                Work::Get(keys) if self.candidate.kind == Kind::View => {
                    let view = self.set.view();
                    Box::new(move || keys.iter().fold(0, |hash, key| get(&view, key, hash)))
                }
                Work::Get(keys) => Box::new(|| {
                    keys.iter()
                        .fold(0, |hash, key| get(&self.set.view(), key, hash))
                }),
            }
        }

        fn fill(&self, older: &Entries, newer: &Entries) {
            self.write(&self.candidate.batches(older, 32));
            self.set.switch().expect("room for a table");
            self.write(&self.candidate.batches(newer, 32));
        }
    }

    fn get(view: &View<()>, key: &[u8], hash: u64) -> u64 {
        match view.get(key).expect("intact memory") {
            Lookup::Value(value) => fold(hash, &value),
            _ => hash + 1,
        }
    }

    /// fjall's database, whose keyspace is never flushed.
    struct Fjall {
        keyspace: fjall::Keyspace,
        _database: fjall::Database,
        _folder: Folder,
    }

    impl Store for Fjall {
        fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
            let Work::Put(entries, _) = work else {
                unreachable!("only its writes are compared")
            };
            Box::new(move || {
                for (_, key, value) in entries.iter() {
                    self.keyspace
                        .insert(key, value)
                        .expect("a disk that takes it");
                }
                entries.count() as u64
            })
        }

        fn fill(&self, _: &Entries, _: &Entries) {
            unreachable!("only its writes are compared")
        }
    }

    #[cfg(not(feature = "rocksdb"))]
    fn rocksdb(_: Candidate, _: Room) -> anyhow::Result<Box<dyn Store>> {
        anyhow::bail!("RocksDB is not built")
    }

    #[cfg(feature = "rocksdb")]
    fn rocksdb(candidate: Candidate, room: Room) -> anyhow::Result<Box<dyn Store>> {
        let name = format!("paranoid-peers-{}-{}", std::process::id(), candidate.name());
        let folder = std::env::temp_dir().join(name);
        Ok(Box::new(crate::shim::write_path::Database::open(
            &folder,
            room.write_buffer(),
            candidate.protection,
            candidate.kind.is_logged(),
        )?))
    }

    #[cfg(feature = "rocksdb")]
    impl Store for crate::shim::write_path::Database {
        fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
            let Work::Put(entries, batch) = work else {
                unreachable!("only its writes are compared")
            };
            let batches = self.batches(entries, batch);
            Box::new(move || {
                self.write(&batches);
                entries.count() as u64
            })
        }

        fn fill(&self, _: &Entries, _: &Entries) {
            unreachable!("only its writes are compared")
        }
    }
}
