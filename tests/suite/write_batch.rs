//! Batches into tables: a batch is written whole or not at all, and reads answer as after single
//! writes.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::integrity::Protected;
use paranoid_memtable::{
    DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions, WriteBatch,
};

use crate::support::orders::{
    CaseBlind, Forgetful, Reverse, Script, Scripted, ScriptedLoosely, script,
};
use crate::support::under;

mod reserved {
    //! Batches that are prepared, reserved and then written: the results are those of
    //! `write_batch`, and their space is their own.

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use paranoid_memtable::batch::BatchWritten;
    use paranoid_memtable::{
        Comparator, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions, WriteBatch,
    };

    use super::{contents, options};
    use crate::support::orders::{CaseBlind, Reverse};
    use crate::support::rng::Rng;
    use crate::support::rng::Watchdog;

    /// Far less than a freeze takes if it waits for no write, and enough for it to begin to wait.
    const BLINK: Duration = Duration::from_millis(50);

    fn table_of(options: paranoid_memtable::MemTableOptionsBuilder) -> MemTable {
        MemTable::new(options.build().unwrap()).unwrap()
    }

    /// The result without its bytes, which depend on the place, or the error.
    fn verdict(written: &Result<BatchWritten, Error>) -> String {
        match written {
            Ok(written) => format!("{} {}", written.entries, written.displaced),
            Err(error) => format!("{error:?}"),
        }
    }

    /// A batch that a table may refuse: a key of 21 bytes, a key twice, a range that ends before
    /// its start.
    fn random_batch(rng: &mut Rng, round: u64) -> WriteBatch {
        let mut batch = WriteBatch::with_protection([0, 8][rng.below(2) as usize])
            .unwrap()
            .with_range_order(paranoid_memtable::batch::RangeOrder::OfTable);
        let spread = [20, 500][rng.below(2) as usize];
        for _ in 0..rng.below(if cfg!(miri) { 5 } else { 40 }) {
            let mut key = (1000 * (round % 7) + rng.below(spread))
                .to_be_bytes()
                .to_vec();
            if rng.below(300) == 0 {
                key.resize(21, 7);
            }
            let (kind, value) = match rng.below(12) {
                0 => (Kind::DELETE, Vec::new()),
                1 if rng.below(40) == 0 => (Kind::RANGE_DELETE, b"\0".to_vec()),
                1 => (Kind::RANGE_DELETE, [key.as_slice(), b"~"].concat()),
                2 => (Kind::MERGE, vec![1; 3]),
                _ => (Kind::PUT, vec![b'v'; rng.below(50) as usize]),
            };
            batch.insert(kind, &key, &value).unwrap();
        }
        batch
    }

    /// Prepares a batch with `model`, reserves and writes it in `table`, and drops another
    /// reservation before it.
    fn by_steps(
        model: &MemTable,
        table: &MemTable,
        first: u64,
        batch: &WriteBatch,
    ) -> Result<BatchWritten, Error> {
        let mut prepared = model.prepare(batch)?;
        let whole = if batch.is_empty() { 0 } else { 1 };
        assert!([whole, batch.len() as u64].contains(&prepared.numbers()));
        assert_eq!(prepared.bytes() == 0, batch.is_empty());
        drop(table.reserve(&mut prepared)?);
        let reserved = table.reserve(&mut prepared)?;
        // Others write beside it, also from its own thread.
        let beside = table.put(first, b"beside", b"b").map(|_| ());
        assert!(
            matches!(beside, Ok(()) | Err(Error::DuplicateEntry { .. })),
            "{beside:?}"
        );
        reserved.write(first)
    }

    #[test]
    fn a_reserved_batch_is_written_as_write_batch_does() {
        const SEEDS: u64 = if cfg!(debug_assertions) { 6 } else { 24 };
        let (seeds, rounds) = if cfg!(miri) { (2, 3) } else { (SEEDS, 40) };
        let mut refused = 0;
        for seed in 0..seeds {
            let _watchdog = Watchdog::new(
                "write_batch::reserved::a_reserved_batch_is_written_as_write_batch_does",
                seed,
            );
            let policy = [DuplicatePolicy::Reject, DuplicatePolicy::Replace][seed as usize % 2];
            let configured = options().key_len_max(20).duplicates(policy);
            let configured = if seed % 3 == 0 {
                configured.whole_key_filter(0.02)
            } else {
                configured
            };
            let (whole, stepped) = (table_of(configured.clone()), table_of(configured));
            let (model, mut rng, mut next) = (stepped.fork().unwrap(), Rng::new(seed), 1);
            for round in 0..rounds {
                let batch = random_batch(&mut rng, round);
                let first = if rng.below(4) == 0 { next / 2 } else { next };
                let model = if round % 2 == 0 { &model } else { &stepped };
                let steps = by_steps(model, &stepped, first, &batch);
                // If the batch has got this far, the write beside it comes before it.
                let beside = stepped.get_entry(b"beside", first).unwrap();
                if beside.is_some_and(|entry| entry.sequence() == first) {
                    let _ = whole.put(first, b"beside", b"b");
                }
                let at_once = whole.write_batch(first, &batch);
                assert_eq!(
                    verdict(&steps),
                    verdict(&at_once),
                    "seed {seed}, round {round}"
                );
                refused += u64::from(steps.is_err());
                next += batch.len() as u64 + 1;
            }
            assert_eq!(contents(&stepped), contents(&whole), "seed {seed}");
            assert_eq!(
                stepped.stats().data_bytes,
                whole.stats().data_bytes,
                "seed {seed}"
            );
            let frozen = stepped.freeze().unwrap();
            assert!(frozen.scrub(|_| ()).findings.is_empty(), "seed {seed}");
        }
        assert!(refused > 2, "only {refused} batches were refused");
    }

    /// Entries of 100 bytes and a range tombstone.
    fn batch_of(entries: u64) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for n in 0..entries {
            batch.put(n.to_be_bytes(), [b'v'; 100]).unwrap();
        }
        batch.delete_range(b"x", b"y").unwrap();
        batch
    }

    #[test]
    fn what_is_reserved_stays_free_while_others_fill_the_table() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::what_is_reserved_stays_free_while_others_fill_the_table",
            0,
        );
        let entries = if cfg!(miri) { 5 } else { 400 };
        for policy in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
            let table = table_of(options().hard_limit(400 << 10).duplicates(policy));
            let batch = batch_of(entries);
            let mut prepared = table.prepare(&batch).unwrap();
            let reserved = table.reserve(&mut prepared).unwrap();
            let full =
                |error: Error| assert!(matches!(error, Error::MemTableFull { .. }), "{error}");
            let (last, deletes) = std::thread::scope(|scope| {
                let filler = || {
                    let mut next = 10_000u64;
                    for len in [1000, 100, 0] {
                        full(loop {
                            next += 1;
                            if let Err(error) = table.put(next, next.to_be_bytes(), vec![b'f'; len])
                            {
                                break error;
                            }
                        });
                    }
                    let mut deletes = 0;
                    full(loop {
                        next += 1;
                        match table.delete_range(next, b"p", b"q") {
                            Ok(_) => deletes += 1,
                            Err(error) => break error,
                        }
                    });
                    full(table.write_batch(next, &batch_of(entries)).unwrap_err());
                    (next, deletes)
                };
                scope.spawn(filler).join().unwrap()
            });
            assert!(last > 10_004, "something fitted beside the batch");
            assert_eq!(reserved.write(1).unwrap().entries, entries + 1);
            for n in 0..entries {
                assert!(
                    matches!(table.get(n.to_be_bytes(), 9000).unwrap(), Lookup::Value(_)),
                    "{n}"
                );
            }
            assert!(matches!(
                table.get(b"xx", 9000).unwrap(),
                Lookup::NotFound | Lookup::Deleted { .. }
            ));
            assert_eq!(table.stats().range_deletes, 1 + deletes);
        }
    }

    #[test]
    fn a_freeze_waits_for_a_reservation_and_has_its_batch() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::a_freeze_waits_for_a_reservation_and_has_its_batch",
            0,
        );
        for ends in ["written", "dropped", "panicked"] {
            let table = table_of(options());
            let batch = batch_of(3);
            let mut prepared = table.prepare(&batch).unwrap();
            let reserved = table.reserve(&mut prepared).unwrap();
            let own = table.freeze().unwrap_err();
            assert!(matches!(own, Error::InvalidArgument(_)), "{own}");
            let (said, heard) = channel();
            std::thread::scope(|scope| {
                let freezer = scope.spawn(|| {
                    let frozen = table.freeze();
                    said.send(()).unwrap();
                    frozen.unwrap()
                });
                assert_eq!(heard.recv_timeout(BLINK), Err(RecvTimeoutError::Timeout));
                assert!(!table.is_frozen());
                // A write of this thread does not wait for the freeze, whether it is refused or
                // not.
                let beside = table.put(50, b"beside", b"");
                match ends {
                    "written" => assert_eq!(reserved.write(1).unwrap().entries, 4),
                    "dropped" => drop(reserved),
                    _ => {
                        let in_a_panic = || {
                            let _reserved = reserved;
                            std::panic::resume_unwind(Box::new(()));
                        };
                        assert!(catch_unwind(AssertUnwindSafe(in_a_panic)).is_err());
                    }
                }
                let frozen = freezer.join().unwrap();
                let there = if ends == "written" { 4 } else { 0 };
                assert_eq!(frozen.len(), there + usize::from(beside.is_ok()), "{ends}");
                assert!(frozen.scrub(|_| ()).findings.is_empty());
            });
            assert!(matches!(table.reserve(&mut prepared), Err(Error::Frozen)));
        }
    }

    #[test]
    fn a_dropped_reservation_gives_its_place_back() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::a_dropped_reservation_gives_its_place_back",
            0,
        );
        let table = table_of(options().hard_limit(300 << 10));
        // More than half of the remaining space.
        let batch = batch_of(600);
        let mut prepared = table.prepare(&batch).unwrap();
        assert!(prepared.bytes() <= table.remaining() && prepared.bytes() > table.remaining() / 2);
        let mut after = Vec::new();
        for _ in 0..3 {
            let reserved = table.reserve(&mut prepared).unwrap();
            let held = table.remaining();
            drop(reserved);
            assert!(
                table.remaining() > held,
                "the index of range tombstones has its room again"
            );
            after.push((
                table.used_bytes(),
                table.remaining(),
                table.allocated_bytes(),
            ));
        }
        assert_eq!(after[0], after[2]);
        assert_eq!((table.len(), table.stats().largest_sequence), (0, None));
        // A batch may be written more than once, under other numbers each time.
        let small = batch_of(1);
        let mut small = table.prepare(&small).unwrap();
        for first in [70, 5, 300] {
            table.reserve(&mut small).unwrap().write(first).unwrap();
        }
        assert_eq!(
            (
                table.stats().smallest_sequence,
                table.stats().largest_sequence
            ),
            (Some(5), Some(301))
        );
        assert_eq!(
            table
                .reserve(&mut prepared)
                .unwrap()
                .write(1000)
                .unwrap()
                .entries,
            601
        );
    }

    #[test]
    fn any_number_of_reservations_is_held_at_once() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::any_number_of_reservations_is_held_at_once",
            0,
        );
        // More than a table's first writer shards.
        let count = if cfg!(miri) { 10 } else { 40 };
        let table = table_of(options().write_buffer_size(1 << 20));
        let batches: Vec<WriteBatch> = (0..count).map(|_| batch_of(2)).collect();
        let mut sizes = Vec::new();
        for round in 0..3 {
            let mut prepared: Vec<_> = batches
                .iter()
                .map(|batch| table.prepare(batch).unwrap())
                .collect();
            let reserved: Vec<_> = prepared
                .iter_mut()
                .map(|batch| table.reserve(batch).unwrap())
                .collect();
            if round < 2 {
                drop(reserved);
            } else {
                for (n, reserved) in reserved.into_iter().enumerate() {
                    reserved.write(10 * n as u64 + 1).unwrap();
                }
            }
            sizes.push(table.allocated_bytes());
        }
        assert_eq!(sizes[0], sizes[1], "homes are used again");
        let frozen = table.freeze().unwrap();
        assert_eq!(frozen.len(), 3 * count);
        assert!(frozen.scrub(|_| ()).findings.is_empty());
    }

    #[test]
    fn a_table_of_other_options_refuses_what_another_one_prepared() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::a_table_of_other_options_refuses_what_another_one_prepared",
            0,
        );
        let limits = || options().key_len_max(20).value_len_max(200);
        let reverse: Arc<dyn Comparator> = Arc::new(Reverse);
        let under = |order: &Arc<dyn Comparator>| limits().comparator(Arc::clone(order));
        let same: [(MemTableOptions, MemTableOptions); 5] = [
            (
                limits(),
                limits().seed(7).hard_limit(300 << 10).whole_key_filter(0.1),
            ),
            (limits(), limits().key_len_max(21).value_len_max(201)),
            (
                limits(),
                under(&(Arc::new(paranoid_memtable::Bytewise) as Arc<dyn Comparator>)),
            ),
            (under(&reverse), under(&reverse)),
            (limits().duplicates(DuplicatePolicy::Replace), limits()),
        ]
        .map(|(left, right)| (left.build().unwrap(), right.build().unwrap()));
        let other: [(MemTableOptions, MemTableOptions); 5] = [
            (limits(), under(&reverse)),
            (under(&reverse), limits()),
            (
                under(&(Arc::new(CaseBlind) as Arc<dyn Comparator>)),
                under(&reverse),
            ),
            (limits(), limits().key_len_max(19)),
            (limits(), limits().value_len_max(199)),
        ]
        .map(|(left, right)| (left.build().unwrap(), right.build().unwrap()));
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value").unwrap();
        for (left, right) in same {
            let (left, right) = (MemTable::new(left).unwrap(), MemTable::new(right).unwrap());
            assert_eq!(
                right
                    .reserve(&mut left.prepare(&batch).unwrap())
                    .unwrap()
                    .write(1)
                    .unwrap()
                    .entries,
                1
            );
        }
        for (left, right) in other {
            let (left, right) = (MemTable::new(left).unwrap(), MemTable::new(right).unwrap());
            let mut prepared = left.prepare(&batch).unwrap();
            let refused = right.reserve(&mut prepared).unwrap_err();
            assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
            assert_eq!(right.freeze().unwrap().len(), 0);
            left.fork()
                .unwrap()
                .reserve(&mut prepared)
                .unwrap()
                .write(1)
                .unwrap();
        }
    }

    #[test]
    fn what_a_write_can_still_refuse_changes_nothing() {
        let _watchdog = Watchdog::new(
            "write_batch::reserved::what_a_write_can_still_refuse_changes_nothing",
            0,
        );
        let table = table_of(options());
        let batch = batch_of(2);
        let mut prepared = table.prepare(&batch).unwrap();
        table.put(6, 1u64.to_be_bytes(), b"there").unwrap();
        let before = contents(&table);
        let beyond = table
            .reserve(&mut prepared)
            .unwrap()
            .write(u64::MAX - 1)
            .unwrap_err();
        assert!(matches!(beyond, Error::InvalidArgument(_)), "{beyond}");
        let there = table.reserve(&mut prepared).unwrap().write(5).unwrap_err();
        assert!(
            matches!(there, Error::DuplicateEntry { sequence: 6 }),
            "{there}"
        );
        assert_eq!(contents(&table), before);
        assert_eq!(
            table
                .reserve(&mut prepared)
                .unwrap()
                .write(u64::MAX - 2)
                .unwrap()
                .entries,
            3
        );
    }
}

fn options() -> paranoid_memtable::MemTableOptionsBuilder {
    MemTableOptions::builder().write_buffer_size(256 << 10)
}

fn contents(table: &MemTable) -> Vec<(Vec<u8>, u64, u8, Vec<u8>)> {
    let mut cursor = table.cursor();
    let mut rows = Vec::new();
    let mut entry = cursor.first().unwrap();
    while let Some(found) = entry {
        let value = found.value().unwrap().to_vec();
        rows.push((
            found.user_key().to_vec(),
            found.sequence(),
            found.kind().as_u8(),
            value,
        ));
        entry = cursor.next().unwrap();
    }
    for tombstone in [b"b".as_slice(), b"m", b"x"] {
        let covered = matches!(
            table.get(tombstone, u64::MAX).unwrap(),
            Lookup::Deleted { .. }
        );
        rows.push((tombstone.to_vec(), u64::from(covered), 255, Vec::new()));
    }
    rows
}

#[test]
fn a_batch_is_its_entries_one_by_one() {
    let (seeds, rounds, longest) = if cfg!(miri) {
        (3u64, 2u64, 6)
    } else {
        (18, 12, 60)
    };
    for seed in 0..seeds {
        let configured = if seed % 2 == 0 {
            options()
        } else {
            options().whole_key_filter(0.02)
        };
        let configured = configured.build().unwrap();
        let (batched, single) = (
            MemTable::new(configured.clone()).unwrap(),
            MemTable::new(configured).unwrap(),
        );
        let mut writer = batched.writer();
        let (mut next, mut state) = (1u64, seed);
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut asked = Vec::new();
        for round in 0..rounds {
            let mut batch = WriteBatch::with_protection([0, 8][round as usize % 2]).unwrap();
            let ordered = random() % 2;
            let first = next;
            for n in 0..random() % longest {
                let name = if ordered == 0 {
                    1000 * round + n
                } else {
                    (random() % 997) * 64 + n
                };
                let key = name.to_be_bytes();
                let (kind, value) = match random() % 9 {
                    0 => (Kind::DELETE, Vec::new()),
                    1 if random() % 4 == 0 => (Kind::RANGE_DELETE, [key.as_slice(), b"~"].concat()),
                    2 => (Kind::MERGE, vec![1; 3]),
                    _ => (Kind::PUT, vec![b'v'; (random() % 50) as usize]),
                };
                batch.insert(kind, key, &value).unwrap();
                asked.push(key);
                single.insert(next, kind, key, &value).unwrap();
                next += 1;
            }
            next += 1;
            let written = match round % 3 {
                0 => writer.write_batch(first, &batch),
                _ => batched.write_batch(first, &batch),
            };
            assert_eq!(written.unwrap().entries, batch.len() as u64);
        }
        assert_eq!(contents(&batched), contents(&single), "seed {seed}");
        assert_eq!(batched.len(), single.len());
        assert_eq!(batched.stats().data_bytes, single.stats().data_bytes);
        for key in asked {
            let (left, right) = (batched.get(key, u64::MAX), single.get(key, u64::MAX));
            assert_eq!(
                format!("{left:?}"),
                format!("{right:?}"),
                "seed {seed}, key {key:?}"
            );
        }
    }
}

/// A refused batch leaves no entry.
fn refused(table: &MemTable, first: u64, batch: &WriteBatch) -> Error {
    let (before, count, bytes) = (contents(table), table.len(), table.stats().data_bytes);
    let error = table.write_batch(first, batch).unwrap_err();
    assert_eq!(
        (contents(table), table.len(), table.stats().data_bytes),
        (before, count, bytes),
        "{error}"
    );
    error
}

#[test]
fn what_can_be_refused_is_refused_before_the_first_link() {
    let table = MemTable::new(
        options()
            .hard_limit(300 << 10)
            .key_len_max(20)
            .build()
            .unwrap(),
    )
    .unwrap();
    table.put(5, b"k", b"there").unwrap();
    table.delete_range(9, b"a", b"c").unwrap();
    let batch_of = |kind, key: &[u8], value: &[u8]| {
        let mut batch = WriteBatch::with_protection(8)
            .unwrap()
            .with_range_order(RangeOrder::OfTable);
        batch.put(b"first", b"1").unwrap();
        batch.insert(kind, key, value).unwrap();
        batch
    };
    let long = [b'k'; 21];
    assert!(matches!(
        refused(&table, 7, &batch_of(Kind::PUT, &long, b"")),
        Error::KeyTooLarge { .. }
    ));
    let inverted = refused(&table, 7, &batch_of(Kind::RANGE_DELETE, b"c", b"a"));
    assert!(matches!(inverted, Error::InvalidArgument(_)));
    // In a batch from sequence number 4, the second entry has number 5.
    let there = refused(&table, 4, &batch_of(Kind::PUT, b"k", b"again"));
    assert!(
        matches!(there, Error::DuplicateEntry { sequence: 5 }),
        "{there}"
    );
    let tombstone = refused(&table, 8, &batch_of(Kind::RANGE_DELETE, b"a", b"z"));
    assert!(
        matches!(tombstone, Error::DuplicateEntry { sequence: 9 }),
        "{tombstone}"
    );
    assert!(matches!(
        refused(&table, u64::MAX, &batch_of(Kind::PUT, b"x", b"")),
        Error::InvalidArgument(_)
    ));
    let full = refused(
        &table,
        30,
        &batch_of(Kind::PUT, b"big", &vec![7; 400 << 10]),
    );
    assert!(matches!(full, Error::MemTableFull { .. }), "{full}");
    table
        .write_batch(30, &batch_of(Kind::PUT, b"small", b""))
        .unwrap();
    table.write_batch(40, &WriteBatch::new()).unwrap();
    table.freeze().unwrap();
    assert!(matches!(
        refused(&table, 50, &batch_of(Kind::PUT, b"k", b"")),
        Error::Frozen
    ));
}

#[test]
fn duplicates_follow_the_policy() {
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"1").unwrap();
    batch.put(b"k", b"2").unwrap();
    let options = options()
        .duplicates(DuplicatePolicy::Replace)
        .whole_key_filter(0.1);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    for displaced in [0, 2] {
        let written = table.write_batch(3, &batch).unwrap();
        assert_eq!((written.entries, written.displaced), (2, displaced));
        let Lookup::Value(found) = table.get(b"k", 4).unwrap() else {
            panic!("not there")
        };
        assert_eq!((&*found, table.len()), (b"2".as_slice(), 2));
    }
}

#[test]
fn a_batch_that_was_damaged_changes_nothing() {
    let table = MemTable::new(
        options()
            .prefix_filter(FixedPrefix::new(1), 0.01)
            .build()
            .unwrap(),
    )
    .unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"value").unwrap();
    let mut bytes = batch.as_bytes().to_vec();
    bytes.truncate(bytes.len() - 1);
    assert!(WriteBatch::from_bytes(&bytes).is_err());
    assert!(table.is_empty());
}

/// Panics at one comparison.
#[derive(Debug)]
struct Fuse(AtomicU64);

impl Script for Fuse {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        assert_ne!(
            self.0.fetch_sub(1, Memory::Relaxed),
            0,
            "the fuse has burnt down"
        );
        left.cmp(right)
    }
}

/// Forty puts out of order, and two range tombstones.
fn mixed_batch() -> WriteBatch {
    let mut batch = WriteBatch::new();
    for n in 0..40u64 {
        batch.put((n * 7 % 40).to_be_bytes(), b"v").unwrap();
        if n % 20 == 10 {
            batch
                .delete_range(n.to_be_bytes(), (n + 1).to_be_bytes())
                .unwrap();
        }
    }
    batch
}

/// Number of entries of a table before such a batch.
const BEFORE: u64 = if cfg!(miri) { 4 } else { 40 };

/// The panic's payload reaches the caller, after any number of linked entries. Linked entries are
/// counted, and the rest can still be written.
#[test]
fn a_panic_of_the_comparator_reaches_the_caller() {
    const STEP: u64 = if cfg!(debug_assertions) { 5 } else { 1 };
    let batch = mixed_batch();
    let (mut partly, mut burns) = (0, 0);
    loop {
        let table = MemTable::new(under(
            options(),
            Scripted::new(Fuse(AtomicU64::new(u64::MAX))),
        ))
        .unwrap();
        for n in 100..100 + BEFORE {
            table.put(n, n.to_be_bytes(), b"v").unwrap();
        }
        let mut writer = table.writer();
        script::<Fuse>(table.comparator())
            .0
            .store(burns, Memory::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| match burns % 2 {
            0 => table.write_batch(1000, &batch),
            _ => writer.write_batch(1000, &batch),
        }));
        script::<Fuse>(table.comparator())
            .0
            .store(u64::MAX, Memory::Relaxed);
        match outcome {
            Ok(written) => {
                assert_eq!(written.unwrap().entries, 42);
                break;
            }
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map_or("", String::as_str);
                assert!(text.contains("the fuse has burnt down"), "{text:?}");
            }
        }
        let there = table.len() as u64 - BEFORE;
        partly += u64::from((1..42).contains(&there));
        writes_continue(&table, &batch, there);
        // Odd, so that the table and the writer take turns.
        burns += if cfg!(miri) { 141 } else { STEP };
    }
    assert!(
        partly > if cfg!(miri) { 1 } else { 10 },
        "{partly} of {burns}"
    );
}

/// After a panic there is no finding, the rest can be written, and a flush returns all entries.
fn writes_continue(table: &MemTable, batch: &WriteBatch, there: u64) {
    assert!(table.scrub(|_| ()).findings.is_empty());
    for (sequence, entry) in (1000u64..).zip(batch.entries()).skip(there as usize) {
        let entry = entry.unwrap();
        table
            .insert(sequence, entry.kind(), entry.key(), entry.value())
            .unwrap();
    }
    let all = BEFORE as usize + 42;
    assert_eq!(table.len(), all);
    let frozen = table.freeze().unwrap();
    assert!(frozen.scrub(|_| ()).findings.is_empty());
    let salvage = frozen.salvage();
    assert_eq!((salvage.entries.len(), salvage.missing), (all, 0));
}

/// The result as the name of its error, or "taken".
fn verdict<T>(result: Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "taken",
        Err(Error::InvalidArgument(_)) => "InvalidArgument",
        Err(Error::KeyTooLarge { .. }) => "KeyTooLarge",
        Err(Error::ValueTooLarge { .. }) => "ValueTooLarge",
        Err(other) => panic!("{other}"),
    }
}

/// Keys up to 20 bytes, values up to 30.
const ENTRIES: &[(Kind, &[u8], &[u8], &str)] = &[
    (Kind::PUT, b"k", &[7; 30], "taken"),
    (Kind::PUT, b"k", &[7; 31], "ValueTooLarge"),
    (Kind::PUT, &[7; 20], b"", "taken"),
    (Kind::PUT, &[7; 21], b"", "KeyTooLarge"),
    (Kind::MERGE, b"k", &[7; 31], "ValueTooLarge"),
    (Kind::DELETE, b"k", b"", "taken"),
    (Kind::DELETE, b"k", b"value", "InvalidArgument"),
    (Kind::SINGLE_DELETE, b"k", b"v", "InvalidArgument"),
    (Kind::SINGLE_DELETE, &[7; 21], b"", "KeyTooLarge"),
    (Kind::RANGE_DELETE, b"a", b"b", "taken"),
    (Kind::RANGE_DELETE, b"b", b"a", "InvalidArgument"),
    (Kind::RANGE_DELETE, b"a", &[b'b'; 20], "taken"),
    (Kind::RANGE_DELETE, b"a", &[b'b'; 21], "KeyTooLarge"),
    (Kind::RANGE_DELETE, &[b'b'; 21], b"c", "KeyTooLarge"),
    (Kind::from_u8(0x80), b"k", b"v", "taken"),
    (Kind::from_u8(0x30), b"k", b"v", "InvalidArgument"),
];

/// A batch with this entry after another one. Ranges that a batch refuses come from encoded bytes,
/// as from a log.
fn batch_with(kind: Kind, key: &[u8], value: &[u8]) -> Option<WriteBatch> {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"first", b"1").unwrap();
    if batch.insert(kind, key, value).is_ok() {
        return Some(batch);
    }
    if kind != Kind::RANGE_DELETE {
        return None;
    }
    let mut bytes = batch.as_bytes().to_vec();
    bytes[8] += 1;
    bytes.extend([kind.as_u8(), key.len() as u8]);
    bytes.extend(key);
    bytes.push(value.len() as u8);
    bytes.extend(value);
    Some(WriteBatch::from_bytes(&bytes).unwrap())
}

#[test]
fn every_entrance_refuses_the_same_entries() {
    for (n, &(kind, key, value, wanted)) in ENTRIES.iter().enumerate() {
        let options = options().key_len_max(20).value_len_max(30);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        let caller_digest = Protected::of(key, value, kind).with_sequence(2);
        let mut injectors = vec![
            verdict(table.insert(1, kind, key, value)),
            verdict(table.insert_parts(2, kind, key, &[value], Some(caller_digest))),
            verdict(table.writer().insert(3, kind, key, value)),
        ];
        let taken = table.len();
        if let Some(batch) = batch_with(kind, key, value) {
            injectors.push(verdict(table.prepare(&batch).map(drop)));
            assert_eq!(table.len(), taken, "a check writes nothing");
            injectors.push(verdict(table.write_batch(10, &batch)));
            injectors.push(verdict(table.writer().write_batch(20, &batch)));
        }
        assert!(
            injectors.iter().all(|injector| *injector == wanted),
            "entry {n}: {injectors:?}, wanted {wanted}"
        );
        let refused = wanted != "taken";
        assert_eq!(table.is_empty(), refused, "entry {n}");
    }
}

/// RocksDB logs empty ranges and counts them: in a batch each takes its sequence number and leaves
/// no entry in the table.
#[test]
fn an_empty_range_of_a_log_takes_its_number() {
    for key in [b"a".as_slice(), b""] {
        let table = MemTable::new(options().build().unwrap()).unwrap();
        let batch = batch_with(Kind::RANGE_DELETE, key, key).unwrap();
        let mut rest = WriteBatch::new();
        rest.put(b"after", b"2").unwrap();
        let mut batch = batch;
        batch.append(&rest).unwrap();
        table.prepare(&batch).map(drop).unwrap();
        assert_eq!(table.write_batch(10, &batch).unwrap().entries, 2);
        assert_eq!((table.len(), table.stats().range_deletes), (2, 0));
        let sequence = |key: &[u8]| match table.get(key, u64::MAX).unwrap() {
            Lookup::Value(value) => value.sequence(),
            other => panic!("{other:?}"),
        };
        assert_eq!((sequence(b"first"), sequence(b"after")), (10, 12));
        for insert in [
            table.insert(1, Kind::RANGE_DELETE, key, key),
            table.delete_range(2, key, key),
        ] {
            assert!(
                matches!(insert, Err(Error::InvalidArgument(_))),
                "{insert:?}"
            );
        }
    }
}

/// The text of a refused range names the entry of the batch.
#[test]
fn an_inverted_range_of_a_log_is_named() {
    let table = MemTable::new(options().build().unwrap()).unwrap();
    let batch = batch_with(Kind::RANGE_DELETE, b"b", b"a").unwrap();
    for error in [
        table.prepare(&batch).map(drop).unwrap_err(),
        table.write_batch(1, &batch).unwrap_err(),
    ] {
        assert!(
            error
                .to_string()
                .contains("entry 1 of the batch: a range must end after"),
            "{error}"
        );
    }
    assert!(table.is_empty());
}

#[test]
fn a_batch_is_checked_in_the_order_of_its_table() {
    let forward = MemTable::new(options().build().unwrap()).unwrap();
    let reverse = MemTable::new(under(options(), Reverse)).unwrap();
    let blind = MemTable::new(under(options(), CaseBlind)).unwrap();
    let range = |start: &[u8], end: &[u8]| {
        let mut batch = WriteBatch::new().with_range_order(RangeOrder::OfTable);
        batch.delete_range(start, end).map(|()| batch)
    };
    let verdicts = |batch: &WriteBatch| {
        [
            forward.prepare(batch).map(drop),
            reverse.prepare(batch).map(drop),
            blind.prepare(batch).map(drop),
        ]
        .map(verdict)
    };
    assert_eq!(
        verdicts(&range(b"a", b"b").unwrap()),
        ["taken", "InvalidArgument", "taken"]
    );
    assert_eq!(
        verdicts(&range(b"b", b"a").unwrap()),
        ["InvalidArgument", "taken", "InvalidArgument"]
    );
    // The range is empty if case does not count, and deletes nothing there.
    assert_eq!(
        verdicts(&range(b"A", b"a").unwrap()),
        ["taken", "InvalidArgument", "taken"]
    );
    let mut twice = WriteBatch::new();
    twice.put(b"k", b"1").unwrap();
    twice.put(b"K", b"2").unwrap();
    assert!(forward.prepare(&twice).map(drop).is_ok() && blind.prepare(&twice).map(drop).is_ok());
    // The content of the table does not matter.
    forward.put(0, b"k", b"there").unwrap();
    assert!(forward.prepare(&twice).map(drop).is_ok());
    forward.freeze().unwrap();
    assert!(forward.prepare(&twice).map(drop).is_ok());
}

#[cfg(feature = "fault-injection")]
#[test]
fn a_check_finds_what_was_damaged() {
    let table = MemTable::new(options().build().unwrap()).unwrap();
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"key", b"value").unwrap();
    table.prepare(&batch).map(drop).unwrap();
    for bit in 0..batch.as_bytes().len() * 8 {
        batch.flip_buffer_bit(bit);
        assert!(
            matches!(table.prepare(&batch), Err(Error::Corruption(_))),
            "bit {bit}"
        );
        batch.flip_buffer_bit(bit);
    }
}

/// A comparator changes its mind while a batch is linked: the error has the number of linked
/// entries, and these are the first ones. Before the first link it changes nothing.
#[test]
fn a_batch_that_is_interrupted_says_what_it_left() {
    let mut batch = WriteBatch::new();
    let keys = [b"q", b"k", b"b", b"m", b"K", b"z"];
    keys.iter()
        .for_each(|key| batch.put(*key, b"batch").unwrap());
    let (mut refused, mut interrupted, mut whole) = (0, 0, 0);
    for comparisons in (0..200).step_by(if cfg!(miri) { 10 } else { 1 }) {
        let order = ScriptedLoosely::new(Forgetful::new());
        let table = MemTable::new(under(options(), order.clone())).unwrap();
        table.put(1, b"e", b"before").unwrap();
        table
            .put(6, b"k", b"before, under the number of K")
            .unwrap();
        order.script::<Forgetful>().forget_after(comparisons);
        let applied = match table.write_batch(2, &batch) {
            Ok(_) => keys.len(),
            Err(Error::BatchInterrupted { applied, cause }) => {
                assert!(
                    matches!(
                        *cause,
                        Error::DuplicateEntry { sequence: 6 } | Error::Corruption(_)
                    ),
                    "{cause}"
                );
                applied as usize
            }
            // The contradiction may be reported as an order that memory does not have.
            Err(Error::DuplicateEntry { sequence: 6 } | Error::Corruption(_)) => 0,
            Err(error) => panic!("{error}"),
        };
        match applied {
            0 => refused += 1,
            6 => whole += 1,
            _ => interrupted += 1,
        }
        order.script::<Forgetful>().forget_after(i64::MAX);
        assert_eq!(table.len(), 2 + applied, "after {comparisons} comparisons");
        for (place, key) in keys.into_iter().enumerate() {
            let number = 2 + place as u64;
            let is_found = matches!(table.get(key, number).unwrap(), Lookup::Value(found) if *found == *b"batch");
            assert_eq!(is_found, place < applied, "after {comparisons} comparisons");
        }
    }
    assert!(
        refused > 0 && interrupted > 0 && whole > 0,
        "{refused} {interrupted} {whole}"
    );
}
