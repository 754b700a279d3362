//! The tables that are compared, as implementations of one small trait, and the work of all of
//! them.
//!
//! ```text
//!   entry i:  key   = big-endian 2 * i (8 bytes), mix(i) (8 bytes)        absent keys have odd numbers
//!             value = 100 bytes made from i; sequence number i + 1
//! ```
//! Each call prepares its inputs first (owned keys and values if the rival owns them) and times
//! only the work. It folds all that it reads into a hash: tables that did the same work have the
//! same hash.

#![allow(dead_code, reason = "each bench uses a part")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "entry numbers fit 32 bits, tests of 2 to 1 000 000 entries"
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Barrier, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crossbeam_skiplist::SkipMap;
use measure::{Environment, Record, Section};
use paranoid_memtable::{Lookup, MemTable, MemTableOptions, TableReader};

/// Bytes of a key.
pub(crate) const KEY_LEN: usize = 16;
/// Bytes of a value.
pub(crate) const VALUE_LEN: usize = 100;
/// Number of entries after a seek.
pub(crate) const STEPS: usize = 10;
/// Number of keys of one `multi_get`.
const MULTI_GET: usize = 24;

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// Whether the keys of a read are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Hit,
    Miss,
}

/// The order in which a table is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Random,
}

/// Whether the time includes copies of the keys and values that a rival owns. This crate always
/// copies borrowed bytes within the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// Keys and values are made before the time begins, and moved in.
    Owned,
    /// Keys and values are copied from borrowed bytes for each put, as in an engine.
    Borrowed,
}

/// The result of a piece of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) elapsed: Duration,
    pub(crate) hash: u64,
}

/// One of the tables compared.
pub(crate) trait Subject: Sync {
    /// Puts these entries. The time begins when all threads at the barrier are ready.
    fn insert(&self, entries: &[u32], ready: &Barrier, inputs: Inputs) -> Done;
    /// Gets each of these entries.
    fn get(&self, entries: &[u32], presence: Presence) -> Done;
    /// Gets each of these entries, 24 at a time if the table has such a call.
    fn multi_get(&self, entries: &[u32]) -> Done {
        self.get(entries, Presence::Hit)
    }
    /// Seeks each of these entries, and reads it and the ten after it.
    fn seek(&self, entries: &[u32]) -> Done;
    /// Reads up to `steps` entries from this one.
    fn scan(&self, from: u32, steps: usize, way: Way) -> Done;
    /// Bytes that the table counts as its own; `None` if it does not count.
    fn allocated(&self) -> Option<u64>;
}

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    /// This crate's: protection bytes, checksum on seek (0 or 1), order checks (0 or 1).
    Ours {
        protection: u8,
        on_seek: u8,
        order: u8,
    },
    Crossbeam,
    BTree,
}

impl Make {
    /// This crate's without any protection, to compare with rivals.
    pub(crate) const PLAIN: Make = Make::Ours {
        protection: 0,
        on_seek: 0,
        order: 0,
    };
    /// This crate's with default options.
    pub(crate) const PROTECTED: Make = Make::Ours {
        protection: 8,
        on_seek: 0,
        order: 0,
    };
    /// This crate's with a checksum at every node that a seek enters.
    pub(crate) const ON_SEEK: Make = Make::Ours {
        protection: 8,
        on_seek: 1,
        order: 0,
    };
    /// This crate's with order checks.
    pub(crate) const ORDER_CHECKS: Make = Make::Ours {
        protection: 0,
        on_seek: 0,
        order: 1,
    };

    pub(crate) fn name(self) -> String {
        match self {
            Make::Ours {
                protection,
                on_seek,
                order,
            } => {
                let on_seek = if on_seek == 1 { "-on-seek" } else { "" };
                let order = if order == 1 { "-order-checks" } else { "" };
                format!("paranoid-{protection}{on_seek}{order}")
            }
            Make::Crossbeam => "crossbeam-skiplist".into(),
            Make::BTree => "btreemap-rwlock".into(),
        }
    }

    /// An empty table.
    pub(crate) fn table(self) -> Box<dyn Subject> {
        match self {
            Make::Ours {
                protection,
                on_seek,
                order,
            } => Box::new(ours(protection, on_seek, order)),
            Make::Crossbeam => Box::new(Owning::new()),
            Make::BTree => Box::new(RwLock::new(BTreeMap::<Position, Vec<u8>>::new())),
        }
    }
}

/// Splitmix64.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `0..entries` in order or shuffled by a seed.
pub(crate) fn order(entries: u32, order: Order, seed: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..entries).collect();
    if order == Order::Random {
        for at in (1..all.len()).rev() {
            all.swap(at, (mix(seed ^ at as u64) % (at as u64 + 1)) as usize);
        }
    }
    all
}

/// `count` random numbers below `entries`, which follow from a seed.
pub(crate) fn picks(entries: u32, count: usize, seed: u64) -> Vec<u32> {
    (0..count as u64)
        .map(|at| (mix(seed.wrapping_mul(1 << 32) ^ at) % u64::from(entries)) as u32)
        .collect()
}

pub(crate) fn key(entry: u32, presence: Presence) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let number = 2 * u64::from(entry) + u64::from(presence == Presence::Miss);
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&mix(u64::from(entry)).to_be_bytes());
    key
}

fn value(entry: u32) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    for (at, part) in value.chunks_mut(8).enumerate() {
        let word = mix(u64::from(entry) << 8 | at as u64).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
    value
}

/// Sequence numbers, keys and values of these entries.
fn borrowed(entries: &[u32]) -> Vec<(u64, [u8; KEY_LEN], [u8; VALUE_LEN])> {
    entries
        .iter()
        .map(|at| (sequence(*at), key(*at, Presence::Hit), value(*at)))
        .collect()
}

fn sequence(entry: u32) -> u64 {
    u64::from(entry) + 1
}

/// Folds both ends of a value, which a caller would read, into a hash.
#[inline]
fn fold(hash: u64, value: &[u8]) -> u64 {
    let word = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_le_bytes(*part));
    hash.rotate_left(7) ^ word(value.first_chunk()) ^ word(value.last_chunk()).rotate_left(32)
}

fn timed(work: impl FnOnce() -> u64) -> Done {
    let started = Instant::now();
    let hash = std::hint::black_box(work());
    Done {
        elapsed: started.elapsed(),
        hash,
    }
}

fn ours(protection: u8, on_seek: u8, order: u8) -> MemTable {
    let options = MemTableOptions::builder()
        .protection_bytes(protection)
        .checksum_on_seek(on_seek == 1)
        .order_checks(order == 1)
        .build()
        .expect("valid options");
    MemTable::new(options).expect("memory for a table")
}

impl Subject for MemTable {
    fn insert(&self, entries: &[u32], ready: &Barrier, _inputs: Inputs) -> Done {
        let inputs = borrowed(entries);
        let mut writer = self.writer();
        ready.wait();
        timed(|| {
            for (sequence, key, value) in &inputs {
                writer
                    .put(*sequence, key, value)
                    .expect("room for the entry");
            }
            inputs.len() as u64
        })
    }

    fn get(&self, entries: &[u32], presence: Presence) -> Done {
        let keys: Vec<_> = entries.iter().map(|at| key(*at, presence)).collect();
        timed(|| {
            keys.iter().fold(0, |hash, key| {
                match TableReader::get(self, key, u64::MAX).expect("intact memory") {
                    Lookup::Value(value) => fold(hash, &value),
                    _ => hash + 1,
                }
            })
        })
    }

    fn multi_get(&self, entries: &[u32]) -> Done {
        let keys: Vec<_> = entries.iter().map(|at| key(*at, Presence::Hit)).collect();
        timed(|| {
            let found = keys
                .chunks(MULTI_GET)
                .flat_map(|keys| TableReader::multi_get(self, keys, u64::MAX));
            found.fold(0, |hash, found| match found.expect("intact memory") {
                Lookup::Value(value) => fold(hash, &value),
                _ => hash + 1,
            })
        })
    }

    fn seek(&self, entries: &[u32]) -> Done {
        let keys: Vec<_> = entries.iter().map(|at| key(*at, Presence::Hit)).collect();
        timed(|| {
            let mut hash = 0;
            let mut cursor = self.cursor();
            for key in &keys {
                let mut moved = cursor.seek(key);
                for _ in 0..=STEPS {
                    let Some(entry) = moved.expect("intact memory") else {
                        break;
                    };
                    hash = fold(hash, entry.value().expect("intact memory"));
                    moved = cursor.next();
                }
            }
            hash
        })
    }

    fn scan(&self, from: u32, steps: usize, way: Way) -> Done {
        let key = key(from, Presence::Hit);
        timed(|| {
            let mut hash = 0;
            let mut cursor = self.cursor();
            let mut moved = match way {
                Way::Forward => cursor.seek(key),
                Way::Backward => cursor.seek_for_prev(key),
            };
            for _ in 0..steps {
                let Some(entry) = moved.expect("intact memory") else {
                    break;
                };
                hash = fold(hash, entry.value().expect("intact memory"));
                moved = match way {
                    Way::Forward => cursor.next(),
                    Way::Backward => cursor.prev(),
                };
            }
            hash
        })
    }

    fn allocated(&self) -> Option<u64> {
        Some(self.allocated_bytes())
    }
}

/// The key of an entry in a rival's map: key ascending, sequence number descending.
type Position = (Vec<u8>, Reverse<u64>);
type Owning = SkipMap<Position, Vec<u8>>;

/// A place at or before the newest version of a key.
fn newest(entry: u32, presence: Presence) -> Position {
    (key(entry, presence).to_vec(), Reverse(u64::MAX))
}

/// A place at or after the oldest version of a key.
fn oldest(entry: u32) -> Position {
    (key(entry, Presence::Hit).to_vec(), Reverse(0))
}

/// Inserts into a table that owns its keys and values.
fn insert_owned(
    entries: &[u32],
    ready: &Barrier,
    inputs: Inputs,
    mut insert: impl FnMut(Position, Vec<u8>),
) -> Done {
    let from = borrowed(entries);
    let own = |sequence: u64, key: &[u8], value: &[u8]| {
        ((key.to_vec(), Reverse(sequence)), value.to_vec())
    };
    let count = from.len() as u64;
    if inputs == Inputs::Owned {
        let owned: Vec<_> = from
            .iter()
            .map(|(sequence, key, value)| own(*sequence, key, value))
            .collect();
        ready.wait();
        return timed(|| {
            owned
                .into_iter()
                .for_each(|(position, value)| insert(position, value));
            count
        });
    }
    ready.wait();
    timed(|| {
        for (sequence, key, value) in &from {
            let (position, value) = own(*sequence, key, value);
            insert(position, value);
        }
        count
    })
}

impl Subject for Owning {
    fn insert(&self, entries: &[u32], ready: &Barrier, inputs: Inputs) -> Done {
        insert_owned(entries, ready, inputs, |position, value| {
            self.insert(position, value);
        })
    }

    fn get(&self, entries: &[u32], presence: Presence) -> Done {
        let probes: Vec<_> = entries.iter().map(|at| newest(*at, presence)).collect();
        timed(|| {
            probes.iter().fold(0, |hash, probe| {
                match self.lower_bound(Bound::Included(probe)) {
                    Some(entry) if entry.key().0 == probe.0 => fold(hash, entry.value()),
                    _ => hash + 1,
                }
            })
        })
    }

    fn seek(&self, entries: &[u32]) -> Done {
        let probes: Vec<_> = entries
            .iter()
            .map(|at| newest(*at, Presence::Hit))
            .collect();
        timed(|| {
            let mut hash = 0;
            for probe in &probes {
                let after = self.range((Bound::Included(probe), Bound::Unbounded));
                hash = after
                    .take(STEPS + 1)
                    .fold(hash, |hash, entry| fold(hash, entry.value()));
            }
            hash
        })
    }

    fn scan(&self, from: u32, steps: usize, way: Way) -> Done {
        let (low, high) = (newest(from, Presence::Hit), oldest(from));
        timed(|| match way {
            Way::Forward => self
                .range((Bound::Included(&low), Bound::Unbounded))
                .take(steps)
                .fold(0, |hash, entry| fold(hash, entry.value())),
            Way::Backward => self
                .range((Bound::Unbounded, Bound::Included(&high)))
                .rev()
                .take(steps)
                .fold(0, |hash, entry| fold(hash, entry.value())),
        })
    }

    fn allocated(&self) -> Option<u64> {
        None
    }
}

/// One lock per insert, get and seek; one for a whole scan.
impl Subject for RwLock<BTreeMap<Position, Vec<u8>>> {
    fn insert(&self, entries: &[u32], ready: &Barrier, inputs: Inputs) -> Done {
        insert_owned(entries, ready, inputs, |position, value| {
            self.write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(position, value);
        })
    }

    fn get(&self, entries: &[u32], presence: Presence) -> Done {
        let probes: Vec<_> = entries.iter().map(|at| newest(*at, presence)).collect();
        timed(|| {
            probes.iter().fold(0, |hash, probe| {
                let map = self.read().unwrap_or_else(PoisonError::into_inner);
                match map.range((Bound::Included(probe), Bound::Unbounded)).next() {
                    Some((position, value)) if position.0 == probe.0 => fold(hash, value),
                    _ => hash + 1,
                }
            })
        })
    }

    fn seek(&self, entries: &[u32]) -> Done {
        let probes: Vec<_> = entries
            .iter()
            .map(|at| newest(*at, Presence::Hit))
            .collect();
        timed(|| {
            let mut hash = 0;
            for probe in &probes {
                let map = self.read().unwrap_or_else(PoisonError::into_inner);
                let after = map.range((Bound::Included(probe), Bound::Unbounded));
                hash = after
                    .take(STEPS + 1)
                    .fold(hash, |hash, (_, value)| fold(hash, value));
            }
            hash
        })
    }

    fn scan(&self, from: u32, steps: usize, way: Way) -> Done {
        let (low, high) = (newest(from, Presence::Hit), oldest(from));
        timed(|| {
            let map = self.read().unwrap_or_else(PoisonError::into_inner);
            match way {
                Way::Forward => map
                    .range((Bound::Included(&low), Bound::Unbounded))
                    .take(steps)
                    .fold(0, |hash, (_, value)| fold(hash, value)),
                Way::Backward => map
                    .range((Bound::Unbounded, Bound::Included(&high)))
                    .rev()
                    .take(steps)
                    .fold(0, |hash, (_, value)| fold(hash, value)),
            }
        })
    }

    fn allocated(&self) -> Option<u64> {
        None
    }
}

// The amount of work of a bench: all of it under `cargo bench`, little when it runs as a test.

/// Selects full work, or a quick run that shows that the bench works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    Smoke,
}

impl Extent {
    /// The extent that the command line selects. Cargo passes `--bench` only under `cargo bench`;
    /// `--test` and `PARANOID_BENCH_SMOKE=1` select the quick run.
    pub(crate) fn asked() -> Extent {
        let said = |flag: &str| std::env::args().any(|argument| argument == flag);
        let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value == "1");
        if said("--bench") && !said("--test") && !smoke {
            Extent::Full
        } else {
            Extent::Smoke
        }
    }

    /// Entries of the tables.
    pub(crate) fn entries(self) -> Vec<u32> {
        match self {
            Extent::Full => vec![250_000, 1_000_000],
            Extent::Smoke => vec![2_000],
        }
    }
}

// The command line, and the record of the run.

/// The arguments of a bench.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// The day of the record. Without a day no record is written.
    pub(crate) date: Option<String>,
    /// Name of the record.
    pub(crate) name: String,
    pub(crate) entries: Vec<u32>,
    pub(crate) rounds: usize,
    /// Measures only the memory of (candidate, entries): the bench starts itself with this option.
    pub(crate) memory: Option<(usize, u32)>,
}

impl Arguments {
    pub(crate) fn parse(extent: Extent) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            name: env!("CARGO_CRATE_NAME").into(),
            entries: extent.entries(),
            rounds: 200,
            ..Arguments::default()
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--bench" | "--test" => {}
                "--date" => arguments.date = Some(plain("--date", value()?)?),
                "--name" => arguments.name = plain("--name", value()?)?,
                "--rounds" => arguments.rounds = number::<usize>(&word, &value()?)?.max(1),
                "--entries" => {
                    let sizes: Result<Vec<u32>, String> = value()?
                        .split(',')
                        .map(|size| number(&word, size))
                        .collect();
                    arguments.entries = sizes?;
                }
                "--memory" => {
                    let text = value()?;
                    let (candidate, entries) =
                        text.split_once(',').ok_or("--memory CANDIDATE,ENTRIES")?;
                    arguments.memory = Some((number(&word, candidate)?, number(&word, entries)?));
                }
                // A bare `cargo bench` passes filters and flags of other benches.
                _ => eprintln!("ignored argument: {word}"),
            }
        }
        if arguments.entries.iter().any(|entries| *entries < 1_000) {
            return Err("--entries: at least 1000".into());
        }
        Ok(arguments)
    }

    /// The record of this run.
    pub(crate) fn record(
        &self,
        candidates: Vec<String>,
        rounds: usize,
        slice: usize,
        sections: Vec<Section>,
    ) -> Record {
        let program = env!("CARGO_CRATE_NAME");
        Record {
            program: program.into(),
            environment: Environment::here(
                &format!(
                    "cargo bench -p paranoid-memtable-benches --features records --bench {program}"
                ),
                self.date.as_deref(),
            ),
            keys: KEY_LEN,
            values: VALUE_LEN,
            threads: 1,
            rounds,
            slice,
            candidates,
            sections,
        }
    }

    /// Writes the record and its page if there is a date and this is not a quick run.
    pub(crate) fn save(&self, extent: Extent, record: &Record, page: &str) -> Result<(), String> {
        let Some(date) = self.date.as_ref().filter(|_| extent == Extent::Full) else {
            return Ok(());
        };
        let stem = format!("{date}-{}", self.name);
        let path = record
            .save(&stem, page)
            .map_err(|error| format!("{stem}: {error}"))?;
        eprintln!("wrote {}.md and .json", path.display());
        Ok(())
    }
}

/// Refuses a word that cannot be part of a file's name.
fn plain(what: &str, text: String) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !text.is_empty() && !text.starts_with('.') && text.chars().all(fits) {
        Ok(text)
    } else {
        Err(format!(
            "{what} `{text}`: letters, digits, `-`, `_` and `.` only"
        ))
    }
}

fn number<N: std::str::FromStr>(what: &str, text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| format!("{what}: `{text}` is not a number that fits"))
}
