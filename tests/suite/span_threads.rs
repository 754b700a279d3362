//! Puts, deletes, range deletes and snapshots at once, against a model that is known before the first write.
//!
//! ```text
//!   batch n     sequence numbers n * BATCH + 1 ..= (n + 1) * BATCH, written by writer n % WRITERS
//!   published   the number of batches before the first unfinished one: a snapshot at published * BATCH is complete
//! ```
//! Writers run as far apart as they like, so that range tombstones arrive out of order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{
    Error, Kind, Lookup, MemTable, MemTableOptions, ParanoidOptions, TableReader, WriteBatch,
};

use crate::support::rng::{Rng, amount_or_few, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

const WRITERS: u64 = if cfg!(miri) { 2 } else { 3 };
const READERS: u64 = if cfg!(miri) { 1 } else { 3 };
const BATCH: u64 = 8;
const KEYS: u64 = if cfg!(miri) { 6 } else { 60 };
/// Reads between two passes over all keys.
const READS: u64 = if cfg!(miri) { 2 } else { 100 };
/// Snapshots of the frozen table that are compared.
const SNAPSHOTS: u64 = if cfg!(miri) { 1 } else { 20 };

fn key(number: u64) -> [u8; 11] {
    let mut key = *b"key-....-..";
    key[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

fn value(sequence: u64) -> Vec<u8> {
    Rng::new(sequence).bytes((sequence % 50) as usize)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Put,
    Delete,
    DeleteRange,
}

/// One write: of one key, or of all keys up to `end`.
#[derive(Debug, Clone, Copy)]
struct Write {
    act: Act,
    start: u64,
    end: u64,
}

impl Write {
    /// The write with this sequence number, which depends on the seed alone.
    fn of(seed: u64, sequence: u64) -> Write {
        let mut rng = Rng::new(seed ^ scramble(sequence));
        let (act, start) = (rng.below(10), rng.below(KEYS));
        let widest = *rng.pick(&[2, 5, KEYS]);
        let width = 1 + rng.below(widest);
        match act {
            0..6 => Write { act: Act::Put, start, end: start + 1 },
            6 | 7 => Write { act: Act::Delete, start, end: start + 1 },
            _ => Write { act: Act::DeleteRange, start, end: (start + width).min(KEYS) },
        }
    }
}

/// For each key, all that was written over it, by ascending sequence number.
struct Model(Vec<Vec<(u64, Act)>>);

impl Model {
    fn new(seed: u64, sequences: impl Iterator<Item = u64>) -> Model {
        let mut events = vec![Vec::new(); KEYS as usize];
        for sequence in sequences {
            let Write { act, start, end } = Write::of(seed, sequence);
            for key in start..end {
                events[key as usize].push((sequence, act));
            }
        }
        Model(events)
    }

    /// The newest write that a snapshot sees of a key. No two writes have one sequence number.
    fn newest(&self, key: u64, snapshot: u64) -> Option<(u64, Act)> {
        let events = &self.0[key as usize];
        let seen = events.partition_point(|event| event.0 <= snapshot);
        seen.checked_sub(1).map(|newest| events[newest])
    }

    fn check_lookup(&self, lookup: &Lookup<'_>, key: u64, snapshot: u64) {
        let found = match lookup {
            Lookup::Value(found) => {
                assert_eq!(**found, value(found.sequence()), "a torn value of key {key} at {snapshot}");
                Some((found.sequence(), Act::Put))
            }
            Lookup::Deleted { sequence, by: DeletedBy::Range } => Some((*sequence, Act::DeleteRange)),
            Lookup::Deleted { sequence, .. } => Some((*sequence, Act::Delete)),
            Lookup::NotFound => None,
            Lookup::Merge(_) => panic!("nothing was merged"),
        };
        assert_eq!(found, self.newest(key, snapshot), "key {key} at {snapshot}");
    }

    fn check_get(&self, table: &TableReader, key_number: u64, snapshot: u64) {
        self.check_lookup(&table.get(&key(key_number), snapshot).unwrap(), key_number, snapshot);
    }

    /// Checks all that a snapshot sees: by single gets, by many at once, and in scans both ways.
    fn check_all(&self, table: &TableReader, snapshot: u64) {
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        for (number, lookup) in table.multi_get(&keys, snapshot).into_iter().enumerate() {
            self.check_lookup(&lookup.unwrap(), number as u64, snapshot);
        }
        let mut expected: Vec<_> = (0..KEYS)
            .filter_map(|number| match self.newest(number, snapshot)? {
                (sequence, Act::Put) => Some((key(number).to_vec(), sequence)),
                _ => None,
            })
            .collect();
        let entry = |entry: Result<paranoid_memtable::Entry<'_>, Error>| {
            let entry = entry.unwrap();
            (entry.user_key().to_vec(), entry.sequence())
        };
        assert_eq!(table.range_at(snapshot, ..).map(entry).collect::<Vec<_>>(), expected, "at {snapshot}");
        expected.reverse();
        let backward: Vec<_> = table.range_at(snapshot, ..).rev().map(entry).collect();
        assert_eq!(backward, expected, "at {snapshot}, backward");
    }
}

/// Batches that each writer has finished.
#[derive(Default)]
struct Progress([AtomicU64; WRITERS as usize]);

impl Progress {
    /// The newest snapshot up to which every write is acknowledged.
    fn snapshot(&self) -> u64 {
        let first_open = |(writer, done): (u64, &AtomicU64)| done.load(Ordering::Acquire) * WRITERS + writer;
        (0..).zip(&self.0).map(first_open).min().unwrap() * BATCH
    }

    fn finish(&self, writer: u64) {
        self.0[writer as usize].fetch_add(1, Ordering::Release);
    }
}

/// Writes one batch in this writer's way. `Err`: what was acknowledged before the table was frozen.
fn write(table: &MemTable, seed: u64, batch: u64) -> Result<(), (u64, Error)> {
    let first = batch * BATCH + 1;
    if batch.is_multiple_of(WRITERS) {
        let mut whole = WriteBatch::new();
        for sequence in first..first + BATCH {
            let Write { act, start, end } = Write::of(seed, sequence);
            match act {
                Act::Put => whole.put(&key(start), &value(sequence)).unwrap(),
                Act::Delete => whole.delete(&key(start)).unwrap(),
                Act::DeleteRange => whole.delete_range(&key(start), &key(end)).unwrap(),
            }
        }
        return table.write_batch(first, &whole).map(|_| ()).map_err(|error| (0, error));
    }
    for sequence in first..first + BATCH {
        let Write { act, start, end } = Write::of(seed, sequence);
        let result = match act {
            Act::Put => table.put(sequence, &key(start), &value(sequence)),
            Act::Delete => table.insert(sequence, Kind::DELETE, &key(start), &[]),
            Act::DeleteRange => table.delete_range(sequence, &key(start), &key(end)),
        };
        result.map_err(|error| (sequence - first, error))?;
    }
    Ok(())
}

/// Writes until done or frozen. Returns the sequence numbers that were acknowledged.
fn writer(table: &MemTable, progress: &Progress, seed: u64, id: u64, batches: u64) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for batch in (id..batches).step_by(WRITERS as usize) {
        let first = batch * BATCH + 1;
        match write(table, seed, batch) {
            Ok(()) => acknowledged.extend(first..first + BATCH),
            Err((written, Error::Frozen)) => {
                acknowledged.extend(first..first + written);
                return acknowledged;
            }
            Err((_, other)) => panic!("{other}"),
        }
        progress.finish(id);
    }
    acknowledged
}

fn reader(table: &MemTable, model: &Model, progress: &Progress, over: &AtomicBool, mut rng: Rng) {
    loop {
        let last_round = over.load(Ordering::Acquire);
        for _ in 0..READS {
            let newest = progress.snapshot();
            let snapshot = if rng.one_in(2) { newest } else { rng.below(newest + 1) };
            model.check_get(table, rng.below(KEYS), snapshot);
        }
        let newest = progress.snapshot();
        model.check_all(table, if rng.one_in(2) { newest } else { rng.below(newest + 1) });
        if rng.one_in(3) {
            table.maintain();
        }
        if last_round {
            return;
        }
    }
}

fn options(seed: u64) -> MemTableOptions {
    let paranoid = ParanoidOptions::builder().protection_bytes([0, 8][(seed & 1) as usize]);
    let mut builder =
        MemTableOptions::builder().paranoid(paranoid.build().unwrap()).write_buffer_size(1 << 20).seed(seed);
    if seed & 2 != 0 {
        builder = builder.whole_key_filter(0.01);
    }
    builder.build().unwrap()
}

/// Three writers, three readers; one thread may freeze once a snapshot this new is complete.
fn stress(seed: u64, batches: u64, freeze_at: Option<u64>) {
    let table = &MemTable::new(options(seed)).unwrap();
    let model = &Model::new(seed, 1..=batches * BATCH);
    let (progress, over) = (&Progress::default(), &AtomicBool::new(false));
    let mut acknowledged: Vec<u64> = scope(|threads| {
        for id in 0..READERS {
            let rng = Rng::new(seed ^ scramble(id + 1));
            threads.spawn(move || reader(table, model, progress, over, rng));
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| threads.spawn(move || writer(table, progress, seed, id, batches)))
            .collect();
        if let Some(freeze_at) = freeze_at {
            threads.spawn(move || {
                while progress.snapshot() < freeze_at {
                    std::thread::yield_now();
                }
                let frozen = table.freeze().unwrap();
                model.check_all(&frozen, progress.snapshot());
            });
        }
        let ends = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Release);
        ends
    });
    acknowledged.sort_unstable();
    assert!(freeze_at.is_some() || acknowledged.len() as u64 == batches * BATCH);
    assert_eq!(table.len(), acknowledged.len(), "every write is counted once");
    let exact = Model::new(seed, acknowledged.into_iter());
    exact.check_all(table, u64::MAX);
    let frozen = table.freeze().unwrap();
    let mut rng = Rng::new(seed);
    for snapshot in [0, 1, u64::MAX].into_iter().chain((0..SNAPSHOTS).map(|_| rng.below(batches * BATCH))) {
        exact.check_all(&frozen, snapshot);
    }
}

fn rounds(test: &str, count: u64, one: impl Fn(u64)) {
    let test = format!("span_threads::{test}");
    let mut seed = seed_or(u64::from(std::process::id()) ^ 0x7370_616e);
    println!("{}", replay_line(&test, seed));
    for _ in 0..if cfg!(miri) { 1 } else { count } {
        let _watchdog = Watchdog::new(&test, seed);
        one(seed);
        seed = scramble(seed);
    }
}

fn batches() -> u64 {
    amount_or_few(1_500, 200, 2).max(2)
}

#[test]
fn snapshots_of_a_table_that_is_written() {
    rounds("snapshots_of_a_table_that_is_written", 3, |seed| {
        stress(seed, batches(), None);
    });
}

#[test]
fn freeze_in_the_middle() {
    rounds("freeze_in_the_middle", 5, |seed| {
        let batches = batches() / 2;
        stress(seed, batches, Some(scramble(seed) % (batches * BATCH)));
    });
}
