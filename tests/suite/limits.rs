//! Every limit at minus one, exact and plus one, then read back; a failing insert changes nothing.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use paranoid_memtable::integrity::{Place, Protected};
use paranoid_memtable::{
    Directory, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions,
    MemTableOptionsBuilder, TableReader,
};

use crate::support::orders::{Script, Scripted, ScriptedLoosely, script};
use crate::support::rng::{Rng, Watchdog, amount, seed_or};
use crate::support::under;

const HARD_LIMIT: u64 = 256 << 10;

fn builder() -> MemTableOptionsBuilder {
    // Without a directory, whose pages would use a part of the hard limit.
    MemTableOptions::builder().directory(Directory::Off).seed(7)
}

fn table(options: MemTableOptionsBuilder) -> MemTable {
    MemTable::new(options.build().unwrap()).unwrap()
}

/// All counters that a failed insert must leave as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) numbers: [u64; 6],
    sequences: (Option<u64>, Option<u64>),
    pub(crate) raw: Vec<(Vec<u8>, u64, Vec<u8>)>,
}

pub(crate) fn counters(table: &TableReader) -> Counters {
    let raw = table.range(..).map(|entry| {
        let entry = entry.unwrap();
        (
            entry.user_key().to_vec(),
            entry.sequence(),
            entry.value().unwrap().to_vec(),
        )
    });
    Counters {
        numbers: [
            table.len() as u64,
            table.stats().deletes,
            table.stats().range_deletes,
            table.stats().displaced,
            table.stats().data_bytes,
            table.allocated_bytes(),
        ],
        sequences: (
            table.stats().smallest_sequence,
            table.stats().largest_sequence,
        ),
        raw: raw.collect(),
    }
}

fn value_of(table: &MemTable, key: &[u8]) -> Vec<u8> {
    match table.get(key, u64::MAX).unwrap() {
        Lookup::Value(value) => value.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn key_lengths() {
    for max in [1u64, 2, 7, 8, 9, 63, 64, 65, 4096] {
        let table = table(builder().key_len_max(max));
        for len in [max - 1, max] {
            let key = vec![b'k'; len as usize];
            table.put(1 + len, &key, b"v").unwrap();
            assert_eq!(value_of(&table, &key), b"v");
        }
        let before = counters(&table);
        let long = vec![b'k'; max as usize + 1];
        for kind in [
            Kind::PUT,
            Kind::DELETE,
            Kind::SINGLE_DELETE,
            Kind::MERGE,
            Kind::custom(0),
        ] {
            let refused = table.insert(9, kind, &long, b"");
            assert!(
                matches!(refused, Err(Error::KeyTooLarge { len, max: m }) if len == max + 1 && m == max)
            );
        }
        for (start, end) in [(&b""[..], &long[..]), (&long[..], &b"z"[..])] {
            let refused = table.delete_range(9, start, end);
            assert!(
                matches!(refused, Err(Error::KeyTooLarge { len, .. }) if len == max + 1),
                "{refused:?}"
            );
        }
        table.delete_range(9, b"", &long[..max as usize]).unwrap();
        let mut after = counters(&table);
        assert_eq!(after.numbers[2], 1);
        after.numbers = before.numbers;
        after.sequences = before.sequences;
        assert_eq!(after, before);
    }
}

#[test]
fn value_lengths() {
    for max in [0u64, 1, 7, 8, 9, 100, 70_000] {
        let table = table(builder().value_len_max(max).write_buffer_size(64 << 10));
        let mut writer = table.writer();
        for len in [max.saturating_sub(1), max] {
            let value = vec![b'v'; len as usize];
            writer.put(len, b"k", &value).ok();
            assert_eq!(value_of(&table, b"k"), value);
        }
        let before = counters(&table);
        for kind in [
            Kind::PUT,
            Kind::MERGE,
            Kind::custom(0),
            Kind::custom_delete(63),
        ] {
            let refused = writer.insert(max + 5, kind, b"k", vec![b'v'; max as usize + 1]);
            assert!(
                matches!(refused, Err(Error::ValueTooLarge { len, max: m }) if len == max + 1 && m == max)
            );
        }
        assert_eq!(counters(&table), before);
    }
}

#[test]
fn sequences_at_both_ends() {
    let table = table(builder());
    for sequence in [
        0,
        1,
        u64::MAX - 1,
        u64::MAX,
        1 << 63,
        (1 << 63) - 1,
        1 << 56,
    ] {
        table.put(sequence, b"k", sequence.to_le_bytes()).unwrap();
        let Lookup::Value(value) = table.get(b"k", sequence).unwrap() else {
            panic!("{sequence}")
        };
        assert_eq!(
            (value.sequence(), &*value),
            (sequence, &sequence.to_le_bytes()[..])
        );
    }
    assert_eq!(
        (
            table.stats().smallest_sequence,
            table.stats().largest_sequence
        ),
        (Some(0), Some(u64::MAX))
    );
}

/// Fills until the hard limit refuses, with entries of sizes that are no multiple of a unit. Every
/// entry can be read back, and a smaller one still fits.
#[test]
fn a_full_table_refuses_and_continues() {
    let test = "limits::a_full_table_refuses_and_continues";
    let seed = seed_or(3);
    let _watchdog = Watchdog::new(test, seed);
    for protection in [0, 8] {
        for limit in [4 << 10, (4 << 10) + 8, 64 << 10, HARD_LIMIT - 8, HARD_LIMIT] {
            let options = builder()
                .write_buffer_size(limit.min(64 << 10))
                .hard_limit(limit);
            let table = table(options.protection_bytes(protection));
            fill(&table, limit, &mut Rng::new(seed));
        }
    }
}

fn fill(table: &MemTable, limit: u64, rng: &mut Rng) {
    let mut sequence = 0;
    let refused = loop {
        sequence += 1;
        let (key, value) = (rng.next_u64().to_be_bytes(), vec![b'v'; rng.index(900)]);
        let before = table.allocated_bytes();
        match table.put(sequence, key, &value) {
            Ok(inserted) => assert!(inserted.bytes >= 36 + value.len() as u64),
            Err(Error::MemTableFull { needed, remaining }) => {
                assert!(needed > 0 && remaining < limit, "{needed} {remaining}");
                assert_eq!(table.allocated_bytes(), before);
                break (key, value);
            }
            Err(other) => panic!("{other} at entry {sequence} under limit {limit}"),
        }
    };
    let before = counters(table);
    assert_eq!(before.numbers[0], sequence - 1);
    for kind in [Kind::PUT, Kind::MERGE, Kind::from_u8(0xff)] {
        let again = table.insert(sequence, kind, refused.0, vec![b'v'; limit as usize]);
        assert!(
            matches!(again, Err(Error::MemTableFull { .. })),
            "{again:?}"
        );
        assert_eq!(counters(table), before);
    }
    let reserved = table.try_reserve(limit);
    assert!(
        matches!(reserved, Err(Error::MemTableFull { .. })),
        "{reserved:?}"
    );
    // The smallest entries fit until `can_fit` says that they do not.
    let (mut small, fits) = (0u64, table.can_fit(Kind::PUT, 0, 0));
    while table.put(sequence + small, [], b"").is_ok() {
        small += 1;
        assert!(small < limit, "no end");
    }
    assert!(small > 0 || !fits, "an entry that fits was refused");
    let scanned: Vec<u64> = table
        .range(..)
        .map(|entry| entry.unwrap().sequence())
        .collect();
    assert_eq!(scanned.len() as u64, sequence - 1 + small);
    assert!(table.should_flush() || table.allocated_bytes() < 64 << 10);
}

/// Chunks fill up to their last unit: no entry is in two of them.
#[test]
fn many_chunks() {
    for extra in (0..16).step_by(if cfg!(debug_assertions) { 5 } else { 1 }) {
        let table = table(builder().write_buffer_size(64 << 10));
        let value = vec![b'v'; 200 + extra];
        let mut writers = [table.writer(), table.writer()];
        for n in 0..6000u64 {
            let writer = &mut writers[usize::from(n % 7 == 0)];
            writer
                .put(n, n.to_be_bytes(), &value)
                .unwrap_or_else(|error| panic!("entry {n}: {error}"));
        }
        for n in 0..6000u64 {
            assert_eq!(value_of(&table, &n.to_be_bytes()), value);
        }
    }
}

/// The largest numbers are refused or saturate, also in builds with overflow checks.
#[test]
fn sizes_beyond_all_limits() {
    for key in [0, 1, u64::MAX / 2, u64::MAX - 8, u64::MAX] {
        for value in [0, 7, u64::MAX / 2 + 1, u64::MAX - 200, u64::MAX] {
            let bytes = MemTable::max_entry_bytes(key, value);
            assert!(
                bytes == u64::MAX || bytes.is_multiple_of(8) && bytes > key.max(value),
                "{key} {value}: {bytes}"
            );
        }
    }
    assert_eq!(MemTable::max_entry_bytes(u64::MAX, u64::MAX), u64::MAX);
    for entries in [0u64, 1, 2000] {
        let table = table(builder().write_buffer_size(64 << 10));
        for n in 0..entries {
            table.put(n, n.to_be_bytes(), [b'v'; 100]).unwrap();
        }
        let before = counters(&table);
        for bytes in [
            u64::MAX,
            u64::MAX - 7,
            u64::MAX - 8,
            1 << 63,
            1 << 35,
            (32 << 30) + 1,
        ] {
            match table.try_reserve(bytes) {
                Err(Error::MemTableFull { needed, remaining }) => {
                    assert!(
                        needed >= bytes && remaining <= 32 << 30,
                        "{bytes}: {needed} {remaining}"
                    );
                }
                other => panic!("{bytes}: {other:?}"),
            }
        }
        let mut after = counters(&table);
        // The writer of the reservation keeps some units.
        after.numbers[5] = before.numbers[5];
        assert_eq!(after, before);
        table.put(entries, entries.to_be_bytes(), b"v").unwrap();
    }
}

/// `used_bytes` counts the entries, without the space that writers took in advance.
/// `allocated_bytes` includes that space.
#[test]
fn used_and_allocated() {
    for (entries, threads) in [(0u64, 1), (50, 1), (50, 3), (40_000, 1), (40_000, 3)] {
        let table = table(MemTableOptions::builder().directory(Directory::Off));
        let empty = table.used_bytes();
        let mut writers: Vec<_> = (0..threads).map(|_| table.writer()).collect();
        let made = table.used_bytes() - empty;
        let mut taken = 0;
        for n in 0..entries {
            taken += writers[n as usize % threads]
                .put(n, n.to_be_bytes(), [b'v'; 100])
                .unwrap()
                .bytes;
        }
        let used = table.used_bytes() - empty - made;
        // The rest of a chunk is lost if the next entry does not fit into it.
        assert!(
            used >= taken && used < taken + 1024 * (1 + entries / 100),
            "{entries}: {used}, {taken} taken"
        );
        assert!(table.used_bytes() <= table.allocated_bytes());
        assert!(table.allocated_bytes() <= table.used_bytes() + (threads as u64) * (256 << 10));
    }
}

#[test]
fn a_reservation_is_enough() {
    for bytes_a_value in [0u64, 1, 100, 5000] {
        let one = MemTable::max_entry_bytes(8, bytes_a_value);
        let table = table(builder().write_buffer_size(64 << 10).hard_limit(HARD_LIMIT));
        let mut writer = table.try_reserve(one * 20).unwrap();
        let mut hog = 0u64;
        while table.put(hog, hog.to_be_bytes(), b"").is_ok() {
            hog += 1;
        }
        for n in 0..20 {
            let value = vec![b'v'; bytes_a_value as usize];
            writer.put(u64::MAX - n, n.to_be_bytes(), &value).unwrap();
        }
        assert_eq!(table.len() as u64, hog + 20);
    }
}

#[test]
fn larger_than_the_write_buffer() {
    const LARGEST: u64 = if cfg!(debug_assertions) {
        10 << 20
    } else {
        100 << 20
    };
    let table = table(builder().write_buffer_size(64 << 10));
    table.put(1, b"small", b"v").unwrap();
    let mut rng = Rng::new(5);
    for (n, len) in [65_536u64, 131_071, 1 << 20, LARGEST]
        .into_iter()
        .enumerate()
    {
        let value = rng
            .bytes(len.min(1 << 20) as usize)
            .repeat((len >> 20).max(1) as usize);
        let sequence = n as u64 + 2;
        table.put(sequence, b"large", &value).unwrap();
        table
            .put(sequence, sequence.to_be_bytes(), b"behind")
            .unwrap();
        assert!(value_of(&table, b"large") == value, "{len}");
        assert_eq!(value_of(&table, &sequence.to_be_bytes()), b"behind");
    }
    assert_eq!(table.range(..).count(), 9);
    assert!(
        table
            .freeze()
            .unwrap()
            .range(..)
            .rev()
            .all(|entry| entry.unwrap().value().is_ok())
    );
}

/// One entry of the longest key and the longest value: 4 GiB. Run it by name on a machine with 10
/// GiB of free memory.
#[test]
#[ignore = "takes 10 GiB of memory"]
fn the_largest_entry() {
    let table = table(builder());
    let (key, value) = (vec![b'k'; (1 << 24) - 1], vec![b'v'; u32::MAX as usize]);
    table.put(1, &key, &value).unwrap();
    let Lookup::Value(found) = table.get(&key, 1).unwrap() else {
        panic!("lost")
    };
    assert!(*found == value[..]);
    drop(value);
    assert!(matches!(
        table.put(2, vec![b'k'; 1 << 24], b""),
        Err(Error::KeyTooLarge { len, max }) if len == 1 << 24 && max == (1 << 24) - 1
    ));
    assert_eq!(table.len(), 1);
}

#[test]
fn ten_thousand_empty_tables() {
    let tables: Vec<MemTable> = (0..10_000)
        .map(|_| MemTable::new(MemTableOptions::default()).unwrap())
        .collect();
    for (n, table) in tables.iter().enumerate() {
        table.put(1, b"k", n.to_le_bytes()).unwrap();
    }
    for (n, table) in tables.iter().enumerate() {
        assert_eq!(value_of(table, b"k"), n.to_le_bytes());
    }
}

#[test]
fn failing_inserts_change_nothing() {
    for duplicates in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
        let table = table(
            builder()
                .duplicates(duplicates)
                .key_len_max(100)
                .value_len_max(100),
        );
        table.put(5, b"k", b"v").unwrap();
        table.merge(6, b"m", b"o").unwrap();
        table.delete(7, b"d").unwrap();
        table.delete_range(8, b"x", b"z").unwrap();
        let mut writer = table.writer();
        let before = counters(&table);
        let long = [b'l'; 101];
        let caller_digest = Protected::of(b"k", b"another", Kind::PUT).with_sequence(10);
        let is_invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
        assert!(is_invalid(&table.delete_range(9, b"b", b"a").unwrap_err()));
        assert!(is_invalid(&writer.delete_range(9, b"b", b"b").unwrap_err()));
        assert!(is_invalid(
            &table
                .insert(9, Kind::from_u8(0x7f), b"k", b"v")
                .unwrap_err()
        ));
        assert!(matches!(
            table.put(9, long, b"v"),
            Err(Error::KeyTooLarge { .. })
        ));
        assert!(matches!(
            writer.put(9, b"k", long),
            Err(Error::ValueTooLarge { .. })
        ));
        let again = table.delete_range(8, b"x", b"y");
        assert!(
            matches!(again, Err(Error::DuplicateEntry { sequence: 8 })),
            "{again:?}"
        );
        if duplicates == DuplicatePolicy::Reject {
            for kind in [Kind::PUT, Kind::DELETE, Kind::SINGLE_DELETE, Kind::MERGE] {
                let value: &[u8] = if kind.is_point_delete() { b"" } else { b"v" };
                let again = writer.insert(5, kind, b"k", value);
                assert!(matches!(again, Err(Error::DuplicateEntry { sequence: 5 })));
            }
        }
        assert_eq!(counters(&table), before);
        let broken = table
            .insert_parts(10, Kind::PUT, b"k", &[b"v"], Some(caller_digest))
            .unwrap_err();
        assert!(matches!(broken, Error::Corruption(report) if report.place == Place::Entry));
        let mut after = counters(&table);
        // The arena bytes of the failed insert are zero again, and the writer's next entry takes
        // them.
        after.numbers[5] = before.numbers[5];
        assert_eq!(after, before);
        table.freeze().unwrap();
        let frozen = counters(&table);
        assert!(matches!(table.put(11, b"k", b"v"), Err(Error::Frozen)));
        assert!(matches!(writer.put(11, b"k", b"v"), Err(Error::Frozen)));
        assert!(matches!(table.try_reserve(8), Err(Error::Frozen)));
        assert_eq!(counters(&table), frozen);
    }
}

/// Panics at its n-th comparison.
#[derive(Debug)]
struct Fuse(Mutex<Option<u32>>);

impl Script for Fuse {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let mut fuse = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match fuse.as_mut() {
            Some(0) => {
                *fuse = None;
                drop(fuse);
                std::panic::resume_unwind(Box::new("the fuse blows, without a message"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        left.cmp(right)
    }
}

/// An insert that panics is both in the table and counted, or neither. Later calls work.
#[test]
fn a_panicking_comparator_leaves_the_table_valid() {
    let _watchdog = Watchdog::new("limits::a_panicking_comparator_leaves_the_table_valid", 0);
    for policy in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
        let options = builder().duplicates(policy);
        let table = MemTable::new(under(options, Scripted::new(Fuse(Mutex::new(None))))).unwrap();
        let mut writer = table.writer();
        let mut rng = Rng::new(11);
        let (mut panics, inserts) = (0, amount(3_000, 800).max(200));
        for n in 0..inserts {
            let (key, sequence) = (rng.below(500).to_be_bytes(), rng.below(20));
            let fuse = if n % 3 == 0 {
                Some(rng.below(40) as u32)
            } else {
                None
            };
            *script::<Fuse>(table.comparator())
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = fuse;
            let via_writer = rng.one_in(2);
            let before = table.len();
            let result = catch_unwind(AssertUnwindSafe(|| {
                if via_writer {
                    writer.put(sequence, key, b"v")
                } else {
                    table.put(sequence, key, b"v")
                }
            }));
            *script::<Fuse>(table.comparator())
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = None;
            panics += u32::from(result.is_err());
            let scanned = table
                .range(..)
                .inspect(|entry| assert!(entry.is_ok()))
                .count();
            assert_eq!(
                scanned,
                table.len(),
                "insert {n}, panicked: {}, before {before}",
                result.is_err()
            );
        }
        assert!(u64::from(panics) > inserts / 30, "{panics} panics");
        let forward: Vec<_> = counters(&table).raw;
        assert!(
            forward
                .windows(2)
                .all(|pair| (&pair[0].0, pair[1].1) < (&pair[1].0, pair[0].1))
        );
        let mut backward: Vec<_> = table
            .range(..)
            .rev()
            .map(|entry| entry.unwrap().sequence())
            .collect();
        backward.reverse();
        assert_eq!(
            backward,
            forward.iter().map(|row| row.1).collect::<Vec<_>>()
        );
    }
}

/// An order that answers at random.
#[derive(Debug)]
struct Liar(Mutex<Rng>);

impl Script for Liar {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let mut rng = self.0.lock().unwrap();
        match rng.below(10) {
            0 => Ordering::Less,
            1 => Ordering::Greater,
            2 => Ordering::Equal,
            _ => left.cmp(right),
        }
    }
}

/// Nothing hangs or panics. With order checks on, the contradiction is reported.
#[test]
fn a_comparator_that_disagrees_with_itself() {
    let seed = seed_or(13);
    let _watchdog = Watchdog::new("limits::a_comparator_that_disagrees_with_itself", seed);
    for order_checks in [false, true] {
        let options = builder().order_checks(order_checks);
        let table = MemTable::new(under(
            options,
            ScriptedLoosely::new(Liar(Mutex::new(Rng::new(seed)))),
        ))
        .unwrap();
        let mut rng = Rng::new(seed);
        let mut reports = 0;
        let mut note = |result: Result<(), Error>| match result {
            Ok(()) | Err(Error::DuplicateEntry { .. } | Error::InvalidArgument(_)) => {}
            Err(Error::Corruption(_)) => reports += 1,
            Err(other) => panic!("{other}"),
        };
        for n in 0..2000 {
            let key = rng.below(300).to_be_bytes();
            note(table.put(n, key, b"v").map(|_| ()));
            if n % 40 == 0 {
                note(
                    table
                        .delete_range(n, key, (rng.below(300)).to_be_bytes())
                        .map(|_| ()),
                );
            }
            note(table.get(key, n).map(|_| ()));
            if n % 100 == 0 {
                for end in [table.range(..).take(5000).find_map(Result::err), None] {
                    note(end.map_or(Ok(()), Err));
                }
                note(
                    table
                        .range_at(.., n)
                        .rev()
                        .take(5000)
                        .find_map(Result::err)
                        .map_or(Ok(()), Err),
                );
                note(
                    table
                        .range(..)
                        .descending()
                        .take(5000)
                        .find_map(Result::err)
                        .map_or(Ok(()), Err),
                );
                note(table.approximate_range_stats(key.as_slice()..).map(|_| ()));
            }
        }
        assert!(!order_checks || reports > 0, "order checks saw nothing");
    }
}

/// Tables that outgrow their write buffer: entries of many sizes across every chunk boundary, then
/// read back.
mod growth {
    use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, Result};

    use crate::support::rng::{Watchdog, scramble};

    fn value_of(sequence: u64, len_max: u64) -> Vec<u8> {
        let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        vec![mixed as u8; (mixed >> 40) as usize % len_max as usize]
    }

    /// Fills 20 times the write buffer by one writer, then reads every entry.
    fn outgrow(seed: u64, len_max: u64) -> Result<()> {
        let options = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .seed(seed)
            .build()?;
        let table = MemTable::new(options)?;
        let mut writer = table.writer();
        let mut sequence = 0;
        while table.stats().data_bytes < 20 * (64 << 10) {
            sequence += 1;
            writer.put(
                sequence,
                sequence.to_be_bytes(),
                value_of(sequence, len_max),
            )?;
        }
        for wanted in 1..=sequence {
            let Lookup::Value(value) = table.get(wanted.to_be_bytes(), u64::MAX)? else {
                panic!("entry {wanted} of {sequence} is lost: seed {seed}, values below {len_max}");
            };
            assert_eq!(
                *value,
                *value_of(wanted, len_max),
                "entry {wanted}, seed {seed}, values below {len_max}"
            );
        }
        assert_eq!(table.range(..).count() as u64, sequence);
        Ok(())
    }

    #[test]
    fn no_entry_lies_across_two_chunks() {
        for (seed, len_max) in [(1, 60), (2, 200), (3, 1500), (4, 5000)] {
            if let Err(error) = outgrow(seed, len_max) {
                panic!(
                    "seed {seed}, values below {len_max}: {error}; replay: cargo test --test suite growth"
                );
            }
        }
    }

    /// Keys whose common prefixes grow and shrink as they ascend.
    fn shapes(n: u64, count: u64) -> [Vec<u8>; 6] {
        let text = |text: String| text.into_bytes();
        [
            text(format!("user{n:010}")),
            text(format!("user{:010}", count - n)),
            text(format!("user{:010}", scramble(n) % 1_000_000_000)),
            // From the middle to both ends.
            text(format!(
                "user{:010}",
                if n.is_multiple_of(2) {
                    count + n
                } else {
                    count - n
                }
            )),
            text(format!("{}/{}/{n}", n % 7, n % 100)),
            text(format!("{n}")),
        ]
    }

    /// A directory takes a few bytes per entry, for any keys in any order.
    #[test]
    fn a_directory_takes_a_few_bytes_per_entry() {
        const COUNT: u64 = if cfg!(debug_assertions) {
            12_000
        } else {
            400_000
        };
        let _watchdog = Watchdog::new("limits::growth::a_directory_takes_a_few_bytes_per_entry", 0);
        for shape in 0..6 {
            let used = [Directory::Off, Directory::Auto].map(|directory| {
                let options = MemTableOptions::builder()
                    .write_buffer_size(64 << 20)
                    .seed(1)
                    .directory(directory);
                let table = MemTable::new(options.build().unwrap()).unwrap();
                for n in 0..COUNT {
                    table
                        .put(n + 1, &shapes(n, COUNT)[shape], b"value")
                        .unwrap();
                }
                table.used_bytes()
            });
            let more = used[1] as f64 / COUNT as f64 - used[0] as f64 / COUNT as f64;
            println!("shape {shape}: {more:.1} bytes per entry more with a directory");
            assert!(
                more < 20.0,
                "shape {shape}: {more:.1} bytes per entry more with a directory"
            );
        }
    }
}
