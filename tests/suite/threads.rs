//! Stress with keys that can be checked: a reader can distinguish torn, stale, lost and reordered
//! entries without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;

use paranoid_memtable::{
    DuplicatePolicy, Entry, Error, Kind, Lookup, MemTable, MemTableOptions, TableReader,
};

use crate::support::rng::{Rng, Watchdog, amount_or_few, replay_line, scramble, seed_or};

const WRITERS: u64 = if cfg!(miri) { 2 } else { 4 };
const READERS: u64 = if cfg!(miri) { 2 } else { 4 };
/// Reads between two scans.
const READS: u64 = if cfg!(miri) { 1 } else { 200 };

fn options(seed: u64, policy: DuplicatePolicy) -> MemTableOptions {
    let protection = [0, 8][(seed & 1) as usize];
    MemTableOptions::builder()
        .duplicates(policy)
        .protection_bytes(protection)
        .order_checks(seed & 2 != 0)
        .write_buffer_size(64 << 10)
        .seed(seed)
        .build()
        .unwrap()
}

/// The key of a writer's n-th entry, after a hash over both, so that keys of all writers mix.
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
    let seed = key
        .iter()
        .fold(sequence, |hash, byte| scramble(hash ^ u64::from(*byte)));
    Rng::new(seed).bytes((seed % 60) as usize)
}

/// (writer, n) of an entry, after a check that it is whole.
fn checked_origin(entry: &Entry<'_>) -> (u64, u64) {
    let key = entry.user_key();
    let word = |at: usize| u64::from_be_bytes(key[at..at + 8].try_into().unwrap());
    let (writer, n) = (word(8), word(16));
    assert_eq!(key, key_of(writer, n), "a torn key");
    assert_eq!(
        entry.sequence(),
        sequence_of(writer, n),
        "a sequence of another entry"
    );
    assert_eq!(
        entry.value().unwrap(),
        value_of(key, entry.sequence()),
        "a torn value"
    );
    (writer, n)
}

/// The number of entries whose writes have returned, by writer.
type Progress = [AtomicU64; WRITERS as usize];

fn progress(of: &Progress) -> [u64; WRITERS as usize] {
    std::array::from_fn(|w| of[w].load(Ordering::Acquire))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// Checks a scan in one direction: the order is strict, and every entry that was written before the
/// scan began is there.
fn check_scan<'t>(
    entries: impl Iterator<Item = Result<Entry<'t>, Error>>,
    before: [u64; WRITERS as usize],
    way: Way,
) {
    let mut last: Option<Vec<u8>> = None;
    let mut seen = [0u64; WRITERS as usize];
    for entry in entries {
        let entry = entry.unwrap();
        let (writer, n) = checked_origin(&entry);
        if let Some(last) = &last {
            let order = last.as_slice().cmp(entry.user_key());
            assert!(
                if way == Way::Backward {
                    order.is_gt()
                } else {
                    order.is_lt()
                },
                "reordered"
            );
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
    let Lookup::Value(value) = table.get(key, u64::MAX).unwrap() else {
        panic!("lost {writer} {n}")
    };
    assert_eq!(
        (&*value, value.sequence()),
        (&value_of(&key, sequence)[..], sequence)
    );
    let mut cursor = table.cursor_at(u64::MAX);
    cursor.seek(key).unwrap();
    for _ in 0..rng.below(10) {
        let entry = cursor.entry().unwrap().unwrap();
        checked_origin(&entry);
        after(&entry);
        let moved = if rng.one_in(2) {
            cursor.next()
        } else {
            cursor.prev()
        };
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
            check_scan(table.range_at(.., u64::MAX).rev(), before, Way::Backward);
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
            table.put(sequence, key, &value)
        } else {
            own.put(sequence, key, &value)
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
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| threads.spawn(move || writer(table, written, id, entries)))
            .collect();
        if let Some(freeze_at) = freeze_at {
            threads.spawn(move || {
                while progress(written).iter().sum::<u64>() < freeze_at {
                    std::thread::yield_now();
                }
                let frozen = table.freeze().unwrap();
                // All writers have left: the table does not change any more.
                check_scan(
                    frozen.range(..),
                    progress(written).map(|n| n.saturating_sub(1)),
                    Way::Forward,
                );
                let sum = frozen.len();
                std::thread::yield_now();
                assert_eq!(frozen.range(..).count(), sum);
            });
        }
        let ends = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        over.store(true, Ordering::Release);
        ends
    });
    let total: u64 = ends.iter().sum();
    assert!(freeze_at.is_some() || total == entries * WRITERS);
    assert_eq!(table.len() as u64, total, "every write is counted once");
    let frozen = table.freeze().unwrap();
    check_scan(
        frozen.range(..),
        ends.as_slice().try_into().unwrap(),
        Way::Forward,
    );
    assert_eq!(
        frozen.range(..).count() as u64,
        total,
        "a refused write is not there"
    );
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
    let entries = amount_or_few(4_000, 60, 3);
    rounds("freeze_in_the_middle", 20, |seed| {
        stress(seed, entries, Some(scramble(seed) % (entries * WRITERS)));
    });
}

/// 32 threads write their first entry at once to an empty table, beside a cursor that was opened
/// before, and a thread that may freeze it: every entry whose write returned is there, once.
#[test]
fn first_writes() {
    const THREADS: u64 = if cfg!(miri) { 3 } else { 32 };
    rounds("first_writes", 40, |seed| {
        let table = &MemTable::new(options(seed, DuplicatePolicy::Reject)).unwrap();
        let mut cursor = table.cursor();
        assert!(cursor.first().unwrap().is_none());
        let (start, freezes) = (&Barrier::new(THREADS as usize), seed.is_multiple_of(2));
        let written: Vec<u64> = scope(|threads| {
            let write = move |id: u64| {
                start.wait();
                if id == 0 && freezes {
                    return table.freeze().map(|_| None).unwrap();
                }
                let (key, sequence) = (key_of(id, 0), sequence_of(id, 0));
                let written = match id % 3 {
                    0 => table.delete_range(sequence, key, [0xff; 25]),
                    1 => table.writer().put(sequence, key, value_of(&key, sequence)),
                    _ => table.put(sequence, key, value_of(&key, sequence)),
                };
                match written {
                    Ok(_) => Some(id),
                    Err(Error::Frozen) if freezes => None,
                    Err(error) => panic!("{error}"),
                }
            };
            let writers: Vec<_> = (0..THREADS)
                .map(|id| threads.spawn(move || write(id)))
                .collect();
            writers
                .into_iter()
                .filter_map(|writer| writer.join().unwrap())
                .collect()
        });
        assert!(freezes || written.len() as u64 == THREADS);
        let puts = written.iter().filter(|id| *id % 3 != 0).count();
        let mut met = usize::from(cursor.first().unwrap().is_some());
        while cursor.next().unwrap().is_some() {
            met += 1;
        }
        assert_eq!((met, table.range(..).count()), (puts, puts));
        let frozen = table.freeze().unwrap();
        assert_eq!(
            (frozen.len(), frozen.stats().range_deletes as usize),
            (written.len(), written.len() - puts)
        );
        assert!(frozen.scrub(|_| ()).findings.is_empty());
    });
}

/// Many threads replace a few entries: a key never disappears, every value was written, and at the
/// end one of each is visible.
#[test]
fn replace_races() {
    const KEYS: u64 = 3;
    let times = amount_or_few(3_000, 300, 4);
    rounds("replace_races", 3, |seed| {
        let table = &MemTable::new(options(seed, DuplicatePolicy::Replace)).unwrap();
        for key in 0..KEYS {
            table
                .put(7, key.to_be_bytes(), value_of(b"first", 0))
                .unwrap();
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
                            let inserted = table.put(7, key, own).unwrap();
                            assert!(
                                inserted.displaced.is_some(),
                                "a replacing write displaces one"
                            );
                        }
                    })
                })
                .collect();
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            over.store(true, Ordering::Release);
        });
        assert_eq!(
            (table.len() as u64, table.stats().displaced),
            (KEYS, times * WRITERS)
        );
        let data_bytes: u64 = table
            .range(..)
            .map(Result::unwrap)
            .map(|entry| (entry.user_key().len() + entry.value_len()) as u64)
            .sum();
        assert_eq!(
            table.stats().data_bytes,
            data_bytes,
            "displaced entries do not count"
        );
        replace_reader(table, over, Rng::new(seed));
    });
}

fn replace_reader(table: &TableReader, over: &AtomicBool, mut rng: Rng) {
    let whole = |value: &[u8]| {
        let word = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().unwrap());
        assert!(
            value == value_of(b"first", 0) || value == key_of(word(8), word(16)),
            "a torn value"
        );
    };
    loop {
        let last_round = over.load(Ordering::Acquire);
        for _ in 0..READS.div_ceil(4) {
            let key = rng.below(3).to_be_bytes();
            let Lookup::Value(value) = table.get(key, 7).unwrap() else {
                panic!("a key disappeared")
            };
            whole(&value);
            let descending = rng.one_in(2);
            let keys: Vec<u8> = if descending {
                table
                    .range(..)
                    .rev()
                    .map(|entry| entry.unwrap().user_key()[7])
                    .collect()
            } else {
                table
                    .range_at(.., 7)
                    .map(|entry| entry.unwrap().user_key()[7])
                    .collect()
            };
            let wanted = if descending { [2, 1, 0] } else { [0, 1, 2] };
            assert_eq!(keys, wanted, "each key once");
        }
        if last_round {
            return;
        }
    }
}

/// All threads write one (key, sequence number): one wins, and every later read of any thread
/// returns the winner's entry.
#[test]
fn one_winner() {
    let entries = amount_or_few(5_000, 400, 4);
    rounds("one_winner", 2, |seed| {
        let table = &MemTable::new(options(seed, DuplicatePolicy::Reject)).unwrap();
        let winners: Arc<Vec<AtomicU64>> =
            Arc::new((0..entries).map(|_| AtomicU64::new(0)).collect());
        scope(|threads| {
            for id in 1..=WRITERS {
                let winners = Arc::clone(&winners);
                threads.spawn(move || compete(table, &winners, id));
            }
        });
        assert_eq!(table.len() as u64, entries);
        for n in 0..entries {
            let Lookup::Value(value) = table.get(key_of(0, n), u64::MAX).unwrap() else {
                panic!("lost {n}")
            };
            assert_eq!(
                &*value,
                winners[n as usize].load(Ordering::Relaxed).to_be_bytes(),
                "two winners"
            );
        }
        assert_eq!(table.range(..).count() as u64, entries);
        assert_eq!(table.range(..).rev().count() as u64, entries);
    });
}

fn compete(table: &MemTable, winners: &[AtomicU64], id: u64) {
    for (n, winner) in winners.iter().enumerate() {
        let key = key_of(0, n as u64);
        let won = match table.insert(n as u64, Kind::PUT, key, id.to_be_bytes()) {
            Ok(_) => true,
            Err(Error::DuplicateEntry { .. }) => false,
            Err(other) => panic!("{other}"),
        };
        if won {
            assert_eq!(winner.swap(id, Ordering::Relaxed), 0, "two winners of {n}");
        }
        let Lookup::Value(_) = table.get(key, u64::MAX).unwrap() else {
            panic!("lost {n}")
        };
    }
}

/// Puts, deletes, range deletes and snapshots at once, compared with a model that is known before
/// the first write.
///
/// ```text
///   batch n     sequence numbers n * BATCH + 1 ..= (n + 1) * BATCH, written by writer n % WRITERS
///   published   the number of batches before the first unfinished one: a snapshot at published * BATCH is complete
/// ```
/// Writers may run far apart, so range tombstones arrive out of order.
mod span_threads {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread::scope;

    use paranoid_memtable::read::{DeletedBy, Operands};
    use paranoid_memtable::{
        Error, Kind, Lookup, MemTable, MemTableOptions, TableReader, ValueRef, WriteBatch,
    };

    use crate::support::rng::{Rng, Watchdog, amount_or_few, replay_line, scramble, seed_or};

    const WRITERS: u64 = if cfg!(miri) { 2 } else { 3 };
    const READERS: u64 = if cfg!(miri) { 1 } else { 3 };
    const BATCH: u64 = 8;
    const KEYS: u64 = if cfg!(miri) { 6 } else { 60 };
    /// Reads between two passes over all keys.
    const READS: u64 = if cfg!(miri) { 2 } else { 100 };
    /// Number of snapshots of the frozen table to compare.
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
        /// The write with this sequence number, which depends only on the seed.
        fn of(seed: u64, sequence: u64) -> Write {
            let mut rng = Rng::new(seed ^ scramble(sequence));
            let (act, start) = (rng.below(10), rng.below(KEYS));
            let widest = *rng.pick(&[2, 5, KEYS]);
            let width = 1 + rng.below(widest);
            match act {
                0..6 => Write {
                    act: Act::Put,
                    start,
                    end: start + 1,
                },
                6 | 7 => Write {
                    act: Act::Delete,
                    start,
                    end: start + 1,
                },
                _ => Write {
                    act: Act::DeleteRange,
                    start,
                    end: (start + width).min(KEYS),
                },
            }
        }
    }

    /// All writes of each key, by ascending sequence number.
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

        fn check_lookup(
            &self,
            lookup: &Lookup<ValueRef<'_>, Operands<'_>>,
            key: u64,
            snapshot: u64,
        ) {
            let found = match lookup {
                Lookup::Value(found) => {
                    assert_eq!(
                        **found,
                        value(found.sequence()),
                        "a torn value of key {key} at {snapshot}"
                    );
                    Some((found.sequence(), Act::Put))
                }
                Lookup::Deleted {
                    sequence,
                    by: DeletedBy::Range,
                } => Some((*sequence, Act::DeleteRange)),
                Lookup::Deleted { sequence, .. } => Some((*sequence, Act::Delete)),
                Lookup::NotFound => None,
                Lookup::Merge(_) => panic!("nothing was merged"),
            };
            assert_eq!(found, self.newest(key, snapshot), "key {key} at {snapshot}");
        }

        fn check_get(&self, table: &TableReader, key_number: u64, snapshot: u64) {
            self.check_lookup(
                &table.get(key(key_number), snapshot).unwrap(),
                key_number,
                snapshot,
            );
        }

        /// Checks all that a snapshot sees: by single gets, by many at once, and in scans both
        /// ways.
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
            assert_eq!(
                table.range_at(.., snapshot).map(entry).collect::<Vec<_>>(),
                expected,
                "at {snapshot}"
            );
            expected.reverse();
            let backward: Vec<_> = table.range_at(.., snapshot).rev().map(entry).collect();
            assert_eq!(backward, expected, "at {snapshot}, backward");
        }
    }

    /// Batches that each writer has finished.
    #[derive(Default)]
    struct Progress([AtomicU64; WRITERS as usize]);

    impl Progress {
        /// The newest snapshot up to which every write is acknowledged.
        fn snapshot(&self) -> u64 {
            let first_open =
                |(writer, done): (u64, &AtomicU64)| done.load(Ordering::Acquire) * WRITERS + writer;
            (0..).zip(&self.0).map(first_open).min().unwrap() * BATCH
        }

        fn finish(&self, writer: u64) {
            self.0[writer as usize].fetch_add(1, Ordering::Release);
        }
    }

    /// Writes one batch in this writer's way. `Err`: the entries that were acknowledged before the
    /// freeze.
    fn write(table: &MemTable, seed: u64, batch: u64) -> Result<(), (u64, Error)> {
        let first = batch * BATCH + 1;
        if batch.is_multiple_of(WRITERS) {
            let mut whole = WriteBatch::new();
            for sequence in first..first + BATCH {
                let Write { act, start, end } = Write::of(seed, sequence);
                match act {
                    Act::Put => whole.put(key(start), value(sequence)).unwrap(),
                    Act::Delete => whole.delete(key(start)).unwrap(),
                    Act::DeleteRange => whole.delete_range(key(start), key(end)).unwrap(),
                }
            }
            return table
                .write_batch(first, &whole)
                .map(|_| ())
                .map_err(|error| (0, error));
        }
        for sequence in first..first + BATCH {
            let Write { act, start, end } = Write::of(seed, sequence);
            let result = match act {
                Act::Put => table.put(sequence, key(start), value(sequence)),
                Act::Delete => table.insert(sequence, Kind::DELETE, key(start), []),
                Act::DeleteRange => table.delete_range(sequence, key(start), key(end)),
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

    fn reader(
        table: &MemTable,
        model: &Model,
        progress: &Progress,
        over: &AtomicBool,
        mut rng: Rng,
    ) {
        loop {
            let last_round = over.load(Ordering::Acquire);
            for _ in 0..READS {
                let newest = progress.snapshot();
                let snapshot = if rng.one_in(2) {
                    newest
                } else {
                    rng.below(newest + 1)
                };
                model.check_get(table, rng.below(KEYS), snapshot);
            }
            let newest = progress.snapshot();
            model.check_all(
                table,
                if rng.one_in(2) {
                    newest
                } else {
                    rng.below(newest + 1)
                },
            );
            if last_round {
                return;
            }
        }
    }

    fn options(seed: u64) -> MemTableOptions {
        let mut builder = MemTableOptions::builder()
            .protection_bytes([0, 8][(seed & 1) as usize])
            .write_buffer_size(1 << 20)
            .seed(seed);
        if seed & 2 != 0 {
            builder = builder.whole_key_filter(0.01);
        }
        builder.build().unwrap()
    }

    /// Runs three writers and three readers. One thread may freeze once a snapshot this new is
    /// complete.
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
            let ends = writers
                .into_iter()
                .flat_map(|writer| writer.join().unwrap())
                .collect();
            over.store(true, Ordering::Release);
            ends
        });
        acknowledged.sort_unstable();
        assert!(freeze_at.is_some() || acknowledged.len() as u64 == batches * BATCH);
        assert_eq!(
            table.len(),
            acknowledged.len(),
            "every write is counted once"
        );
        let exact = Model::new(seed, acknowledged.into_iter());
        exact.check_all(table, u64::MAX);
        let frozen = table.freeze().unwrap();
        let mut rng = Rng::new(seed);
        for snapshot in [0, 1, u64::MAX]
            .into_iter()
            .chain((0..SNAPSHOTS).map(|_| rng.below(batches * BATCH)))
        {
            exact.check_all(&frozen, snapshot);
        }
    }

    fn rounds(test: &str, count: u64, one: impl Fn(u64)) {
        let test = format!("threads::span_threads::{test}");
        let mut seed = seed_or(u64::from(std::process::id()) ^ 0x7370_616e);
        println!("{}", replay_line(&test, seed));
        for _ in 0..if cfg!(miri) { 1 } else { count } {
            let _watchdog = Watchdog::new(&test, seed);
            one(seed);
            seed = scramble(seed);
        }
    }

    fn batches() -> u64 {
        amount_or_few(1_500, 80, 2).max(2)
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
}

/// A writer loses its race for a place, and its comparator panics while it searches for another
/// one.
mod lost_race {
    use std::cmp::Ordering;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

    use paranoid_memtable::{MemTable, MemTableOptions};

    use crate::support::orders::{Script, Scripted, script};
    use crate::support::rng::Watchdog;
    use crate::support::under;

    /// The action of a comparator during an insert.
    #[derive(Debug, Clone, Copy)]
    enum Plot {
        /// After `after` comparisons it writes another entry. After `then` more, it panics.
        Rival {
            after: u32,
            then: u32,
        },
        Panic {
            after: u32,
        },
        Over,
    }

    /// Makes a writer lose its race, and panics while the writer searches for another place.
    #[derive(Debug)]
    struct Ambush {
        plot: Mutex<Plot>,
        table: OnceLock<Weak<MemTable>>,
    }

    impl Ambush {
        fn lock(&self) -> MutexGuard<'_, Plot> {
            self.plot.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Script for Ambush {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            let plot = *self.lock();
            *self.lock() = match plot {
                Plot::Rival { after: 0, .. } | Plot::Panic { after: 0 } | Plot::Over => Plot::Over,
                Plot::Rival { after, then } => Plot::Rival {
                    after: after - 1,
                    then,
                },
                Plot::Panic { after } => Plot::Panic { after: after - 1 },
            };
            match plot {
                Plot::Rival { after: 0, then } => {
                    self.table
                        .get()
                        .and_then(Weak::upgrade)
                        .unwrap()
                        .put(9, b"b", b"rival")
                        .unwrap();
                    *self.lock() = Plot::Panic { after: then };
                }
                Plot::Panic { after: 0 } => {
                    std::panic::resume_unwind(Box::new("without a message"))
                }
                _ => {}
            }
            left.cmp(right)
        }
    }

    /// The cases under Miri: panics at the first and at a later comparison after a lost race, no
    /// panic, and no lost race.
    const FEW: [(u32, u32); 4] = [(0, 0), (1, 2), (1, 4), (3, 0)];

    /// The entry that a writer built before it lost its race is wiped before the comparator is
    /// called again: a salvage does not find it.
    #[test]
    fn a_panic_after_a_lost_race_leaves_no_entry() {
        let _watchdog = Watchdog::new(
            "threads::lost_race::a_panic_after_a_lost_race_leaves_no_entry",
            0,
        );
        let mut panics = 0;
        let all = (0..6).flat_map(|after| (0..6).map(move |then| (after, then)));
        for (after, then) in all.filter(|plot| !cfg!(miri) || FEW.contains(plot)) {
            let comparator = Ambush {
                plot: Mutex::new(Plot::Over),
                table: OnceLock::new(),
            };
            let table = Arc::new(
                MemTable::new(under(MemTableOptions::builder(), Scripted::new(comparator)))
                    .unwrap(),
            );
            script::<Ambush>(table.comparator())
                .table
                .set(Arc::downgrade(&table))
                .unwrap();
            table.put(1, b"a", b"first").unwrap();
            table.put(2, b"d", b"last").unwrap();
            *script::<Ambush>(table.comparator()).lock() = Plot::Rival { after, then };
            panics += u32::from(
                catch_unwind(AssertUnwindSafe(|| table.put(3, b"c", b"victim"))).is_err(),
            );
            *script::<Ambush>(table.comparator()).lock() = Plot::Over;
            let stored: Vec<Vec<u8>> = table
                .range(..)
                .map(|entry| entry.unwrap().user_key().to_vec())
                .collect();
            let frozen = table.freeze().unwrap();
            let salvage = frozen.salvage();
            let salvaged: Vec<_> = salvage
                .entries
                .iter()
                .map(|found| found.entry.user_key().to_vec())
                .collect();
            assert_eq!(
                salvaged, stored,
                "a rival after {after} comparisons, a panic after {then} more"
            );
        }
        assert!(panics > 0);
    }
}
