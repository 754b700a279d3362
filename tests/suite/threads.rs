//! Stress with keys that carry proof: a reader can tell torn, stale, lost and reordered entries apart without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use paranoid_memtable::{
    DuplicatePolicy, Entry, Error, Kind, Lookup, MemTable, MemTableOptions, ParanoidOptions, TableReader,
};

use crate::support::rng::{Rng, amount_or_few, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

const WRITERS: u64 = if cfg!(miri) { 2 } else { 4 };
const READERS: u64 = if cfg!(miri) { 2 } else { 4 };
/// Reads between two scans.
const READS: u64 = if cfg!(miri) { 1 } else { 200 };

fn options(seed: u64, policy: DuplicatePolicy) -> MemTableOptions {
    let protection = [0, 8][(seed & 1) as usize];
    let paranoid = ParanoidOptions::builder().protection_bytes(protection).order_checks(seed & 2 != 0);
    MemTableOptions::builder()
        .duplicates(policy)
        .paranoid(paranoid.build().unwrap())
        .write_buffer_size(64 << 10)
        .seed(seed)
        .build()
        .unwrap()
}

/// Generation (who wrote it, as its n-th), and a hash over it in front, so that keys of all writers mix.
fn key_of(writer: u64, n: u64) -> [u8; 24] {
    let mut key = [0; 24];
    let hash = scramble(writer << 48 ^ n);
    key[..8].copy_from_slice(&hash.to_be_bytes());
    key[8..16].copy_from_slice(&writer.to_be_bytes());
    key[16..].copy_from_slice(&n.to_be_bytes());
    key
}

fn sequence_of(writer: u64, n: u64) -> u64 {
    n * WRITERS + writer
}

fn value_of(key: &[u8], sequence: u64) -> Vec<u8> {
    let seed = key.iter().fold(sequence, |hash, byte| scramble(hash ^ u64::from(*byte)));
    Rng::new(seed).bytes((seed % 60) as usize)
}

/// (writer, n) of an entry, after a check that it is whole.
fn testimony(entry: &Entry<'_>) -> (u64, u64) {
    let key = entry.user_key();
    let word = |at: usize| u64::from_be_bytes(key[at..at + 8].try_into().unwrap());
    let (writer, n) = (word(8), word(16));
    assert_eq!(key, key_of(writer, n), "a torn key");
    assert_eq!(entry.sequence(), sequence_of(writer, n), "a sequence of another entry");
    assert_eq!(entry.value().unwrap(), value_of(key, entry.sequence()), "a torn value");
    (writer, n)
}

/// By writer, the number of entries whose writes have returned.
type Progress = [AtomicU64; WRITERS as usize];

fn progress(of: &Progress) -> [u64; WRITERS as usize] {
    std::array::from_fn(|w| of[w].load(Ordering::Acquire))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// Scans one way: the order is strict, and every entry that was written before the scan began is there.
fn check_scan<'t>(
    entries: impl Iterator<Item = Result<Entry<'t>, Error>>,
    before: [u64; WRITERS as usize],
    way: Way,
) {
    let mut last: Option<Vec<u8>> = None;
    let mut seen = [0u64; WRITERS as usize];
    for entry in entries {
        let entry = entry.unwrap();
        let (writer, n) = testimony(&entry);
        if let Some(last) = &last {
            let order = last.as_slice().cmp(entry.user_key());
            assert!(if way == Way::Backward { order.is_gt() } else { order.is_lt() }, "reordered");
        }
        last = Some(entry.user_key().to_vec());
        seen[writer as usize] += u64::from(n < before[writer as usize]);
    }
    assert_eq!(seen, before, "lost entries");
}

fn read_at_random<T>(
    table: &TableReader,
    written: &Progress,
    rng: &mut Rng,
    mut after: impl FnMut(&Entry<'_>) -> T,
) {
    let before = progress(written);
    let writer = rng.below(WRITERS);
    let n = before[writer as usize];
    if n == 0 {
        return;
    }
    let n = if rng.one_in(2) { n - 1 } else { rng.below(n) };
    let (key, sequence) = (key_of(writer, n), sequence_of(writer, n));
    let Lookup::Value(value) = table.get(&key, u64::MAX).unwrap() else { panic!("lost {writer} {n}") };
    assert_eq!((&*value, value.sequence()), (&value_of(&key, sequence)[..], sequence));
    let mut cursor = table.cursor_at(u64::MAX);
    cursor.seek(&key).unwrap();
    for _ in 0..rng.below(10) {
        let entry = cursor.entry().unwrap().unwrap();
        testimony(&entry);
        after(&entry);
        let moved = if rng.one_in(2) { cursor.next() } else { cursor.prev() };
        if moved.unwrap().is_none() {
            break;
        }
    }
}

fn reader(table: &TableReader, written: &Progress, over: &AtomicBool, mut rng: Rng) {
    loop {
        let last_round = over.load(Ordering::Acquire);
        for _ in 0..READS {
            read_at_random(table, written, &mut rng, |_| ());
        }
        let before = progress(written);
        if rng.one_in(2) {
            check_scan(table.range(..), before, Way::Forward);
        } else {
            check_scan(table.range_at(u64::MAX, ..).rev(), before, Way::Backward);
        }
        if last_round {
            return;
        }
    }
}

/// Writes until done, or until the table is frozen; half of the threads through a `Writer`.
fn writer(table: &MemTable, written: &Progress, id: u64, entries: u64) -> u64 {
    let mut own = table.writer();
    for n in 0..entries {
        let (key, sequence) = (key_of(id, n), sequence_of(id, n));
        let value = value_of(&key, sequence);
        let result = if id.is_multiple_of(2) {
            table.put(sequence, &key, &value)
        } else {
            own.put(sequence, &key, &value)
        };
        match result {
            Ok(_) => written[id as usize].store(n + 1, Ordering::Release),
            Err(Error::Frozen) => return n,
            Err(other) => panic!("{other}"),
        }
    }
    entries
}

/// 4 writers, 4 readers; one thread may freeze after `freeze_at` entries.
fn stress(seed: u64, entries: u64, freeze_at: Option<u64>) {
    let table = MemTable::new(options(seed, DuplicatePolicy::Reject)).unwrap();
    let (written, over) = (Progress::default(), AtomicBool::new(false));
    let (table, written, over) = (&table, &written, &over);
    let ends: Vec<u64> = scope(|threads| {
        for id in 0..READERS {
            let rng = Rng::new(seed ^ scramble(id));
            threads.spawn(move || reader(table, written, over, rng));
        }
        let writers: Vec<_> =
            (0..WRITERS).map(|id| threads.spawn(move || writer(table, written, id, entries))).collect();
        if let Some(freeze_at) = freeze_at {
            threads.spawn(move || {
                while progress(written).iter().sum::<u64>() < freeze_at {
                    std::thread::yield_now();
                }
                let frozen = table.freeze().unwrap();
                // All writers have left: the table does not change any more.
                check_scan(frozen.range(..), progress(written).map(|n| n.saturating_sub(1)), Way::Forward);
                let sum = frozen.len();
                std::thread::yield_now();
                assert_eq!(frozen.range(..).count(), sum);
            });
        }
        let ends = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Release);
        ends
    });
    let total: u64 = ends.iter().sum();
    assert!(freeze_at.is_some() || total == entries * WRITERS);
    assert_eq!(table.len() as u64, total, "every write is counted once");
    let frozen = table.freeze().unwrap();
    check_scan(frozen.range(..), ends.as_slice().try_into().unwrap(), Way::Forward);
    assert_eq!(frozen.range(..).count() as u64, total, "a refused write is not there");
}

fn rounds(test: &str, count: u64, one: impl Fn(u64)) {
    let test = format!("threads::{test}");
    let mut seed = seed_or(u64::from(std::process::id()) ^ 0x7468_7265);
    println!("{}", replay_line(&test, seed));
    for _ in 0..if cfg!(miri) { 1 } else { count } {
        let _watchdog = Watchdog::new(&test, seed);
        one(seed);
        seed = scramble(seed);
    }
}

#[test]
fn writers_and_readers() {
    let count = if cfg!(debug_assertions) { 1 } else { 3 };
    rounds("writers_and_readers", count, |seed| {
        stress(seed, amount_or_few(20_000, 300, 3), None);
    });
}

#[test]
fn freeze_in_the_middle() {
    let entries = amount_or_few(4_000, 150, 3);
    rounds("freeze_in_the_middle", 20, |seed| {
        stress(seed, entries, Some(scramble(seed) % (entries * WRITERS)));
    });
}

/// Many threads replace a few entries: a key never disappears, every value is one that was written, and at the end one
/// of each is visible.
#[test]
fn replace_races() {
    const KEYS: u64 = 3;
    let times = amount_or_few(3_000, 300, 4);
    rounds("replace_races", 3, |seed| {
        let table = &MemTable::new(options(seed, DuplicatePolicy::Replace)).unwrap();
        for key in 0..KEYS {
            table.put(7, &key.to_be_bytes(), &value_of(b"first", 0)).unwrap();
        }
        let over = &AtomicBool::new(false);
        scope(|threads| {
            for id in 0..READERS {
                threads.spawn(move || replace_reader(table, over, Rng::new(seed ^ id)));
            }
            let writers: Vec<_> = (0..WRITERS)
                .map(|id| {
                    threads.spawn(move || {
                        for n in 0..times {
                            let key = ((n + id) % KEYS).to_be_bytes();
                            let own = key_of(id, n);
                            let inserted = table.put(7, &key, &own).unwrap();
                            assert!(inserted.displaced.is_some(), "a replacing write displaces one");
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            over.store(true, Ordering::Release);
        });
        assert_eq!((table.len() as u64, table.num_displaced()), (KEYS, times * WRITERS));
        let data_bytes: u64 = table
            .range(..)
            .map(Result::unwrap)
            .map(|entry| (entry.user_key().len() + entry.value_len()) as u64)
            .sum();
        assert_eq!(table.data_bytes(), data_bytes, "displaced entries do not count");
        replace_reader(table, over, Rng::new(seed));
    });
}

fn replace_reader(table: &TableReader, over: &AtomicBool, mut rng: Rng) {
    let whole = |value: &[u8]| {
        let word = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().unwrap());
        assert!(value == value_of(b"first", 0) || value == key_of(word(8), word(16)), "a torn value");
    };
    loop {
        let last_round = over.load(Ordering::Acquire);
        for _ in 0..READS.div_ceil(4) {
            let key = rng.below(3).to_be_bytes();
            let Lookup::Value(value) = table.get(&key, 7).unwrap() else { panic!("a key disappeared") };
            whole(&value);
            let descending = rng.one_in(2);
            let keys: Vec<u8> = if descending {
                table.range(..).rev().map(|entry| entry.unwrap().user_key()[7]).collect()
            } else {
                table.range_at(7, ..).map(|entry| entry.unwrap().user_key()[7]).collect()
            };
            let wanted = if descending { [2, 1, 0] } else { [0, 1, 2] };
            assert_eq!(keys, wanted, "each key once");
        }
        if last_round {
            return;
        }
    }
}

/// All threads write one (key, sequence number): one wins, and every thread sees the winner's entry from then on.
#[test]
fn one_winner() {
    let entries = amount_or_few(5_000, 400, 4);
    rounds("one_winner", 2, |seed| {
        let table = &MemTable::new(options(seed, DuplicatePolicy::Reject)).unwrap();
        let winners: Arc<Vec<AtomicU64>> = Arc::new((0..entries).map(|_| AtomicU64::new(0)).collect());
        scope(|threads| {
            for id in 1..=WRITERS {
                let winners = Arc::clone(&winners);
                threads.spawn(move || compete(table, &winners, id));
            }
        });
        assert_eq!(table.len() as u64, entries);
        for n in 0..entries {
            let Lookup::Value(value) = table.get(&key_of(0, n), u64::MAX).unwrap() else {
                panic!("lost {n}")
            };
            assert_eq!(&*value, winners[n as usize].load(Ordering::Relaxed).to_be_bytes(), "two winners");
        }
        assert_eq!(table.range(..).count() as u64, entries);
        assert_eq!(table.range(..).rev().count() as u64, entries);
    });
}

fn compete(table: &MemTable, winners: &[AtomicU64], id: u64) {
    for (n, winner) in winners.iter().enumerate() {
        let key = key_of(0, n as u64);
        let won = match table.insert(n as u64, Kind::PUT, &key, &id.to_be_bytes()) {
            Ok(_) => true,
            Err(Error::DuplicateEntry { .. }) => false,
            Err(other) => panic!("{other}"),
        };
        if won {
            assert_eq!(winner.swap(id, Ordering::Relaxed), 0, "two winners of {n}");
        }
        let Lookup::Value(_) = table.get(&key, u64::MAX).unwrap() else { panic!("lost {n}") };
    }
}
