//! Room: what tables and batches report about the memory that they take, and what is dropped with it.

use std::sync::Arc;

use paranoid_memtable::{
    Directory, Error, Kind, Lookup, MemTable, MemTableOptions, MemTableOptionsBuilder, ParanoidOptions,
    WriteBatch,
};

use crate::limits::counters;
use crate::support::rng::{Rng, seed_or};
use crate::support::watchdog::Watchdog;

const HARD_LIMIT: u64 = 256 << 10;

fn builder() -> MemTableOptionsBuilder {
    MemTableOptions::builder().seed(7)
}

/// Without a directory, whose pages would use a part of the hard limit.
fn bare() -> MemTableOptionsBuilder {
    builder().directory(Directory::Off)
}

fn table(options: MemTableOptionsBuilder) -> MemTable {
    MemTable::new(options.build().unwrap()).unwrap()
}

/// Where `can_fit` says yes the next insert succeeds, up to the hard limit; the error of a full table states what
/// `remaining` returned.
#[test]
fn room_that_is_promised_is_there() {
    let table = table(builder().write_buffer_size(64 << 10).hard_limit(HARD_LIMIT).value_len_max(3000));
    assert!(!table.can_fit(1 << 24, 0) && !table.can_fit(0, 3001), "beyond the limits of lengths");
    let (mut rng, mut sequence, mut full) = (Rng::new(seed_or(11)), 0, 0);
    while full < 50 {
        let value = vec![b'v'; rng.index(3000)];
        let (promised, remaining) = (table.can_fit(8, value.len() as u64), table.remaining());
        sequence += 1;
        match table.put(sequence, &sequence.to_be_bytes(), &value) {
            Ok(_) => {}
            Err(Error::MemTableFull { remaining: told, .. }) => {
                assert!(!promised, "{} bytes, {remaining} remain", value.len());
                assert_eq!(told, remaining);
                full += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(table.remaining() < MemTable::max_entry_bytes(8, 3000));
    table.freeze().unwrap();
    assert!(!table.can_fit(1, 1), "frozen");
}

/// Promises hold beside range tombstones too, for entries of both sorts.
#[test]
fn room_that_is_promised_beside_range_tombstones() {
    for seed in 0..8 {
        let table = table(builder().seed(seed).write_buffer_size(64 << 10).hard_limit(HARD_LIMIT));
        let (mut rng, mut sequence, mut full) = (Rng::new(seed_or(13) + seed), 0_u64, 0);
        while full < 40 {
            sequence += 1;
            let (is_range, len) = (rng.one_in(3), rng.below(2000));
            let (key, remaining) = (sequence.to_be_bytes(), table.remaining());
            let (promised, written) = if is_range {
                let end = [&key[..], &vec![7; 1 + len as usize]].concat();
                let promised = table.can_fit_range_delete(8, end.len() as u64);
                (promised, table.delete_range(sequence, &key, &end))
            } else {
                (table.can_fit(8, len), table.put(sequence, &key, &vec![7; len as usize]))
            };
            match written {
                Ok(_) => {}
                Err(Error::MemTableFull { remaining: told, .. }) => {
                    assert!(!promised, "{len} bytes, {remaining} remain");
                    assert_eq!((told, table.remaining()), (remaining, remaining));
                    full += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        table.freeze().unwrap();
        assert!(table.allocated_bytes() < HARD_LIMIT + (16 << 10), "{}", table.allocated_bytes());
    }
}

/// The bounds of range delete number `number`, in several shapes.
fn range_of(shape: &str, number: u64) -> (Vec<u8>, Vec<u8>) {
    let far = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    let (start, end) = match shape {
        "in order" | "long keys" => (2 * number, 2 * number + 1),
        "nested" => ((1 << 40) - number, (1 << 40) + number + 1),
        _ => (far(number), far(number) + (1 << (number % 40))),
    };
    let tail = vec![b'k'; if shape == "long keys" { (far(number) % 300) as usize } else { 0 }];
    [start, end].map(|key| [&key.to_be_bytes()[..], &tail].concat()).into()
}

/// Range deletes up to the hard limit: what they take outside of the arena, and what a freeze adds, is counted before it is
/// there, and one that is refused changes nothing.
#[test]
fn the_hard_limit_counts_range_deletes() {
    let test = "room::the_hard_limit_counts_range_deletes";
    let _watchdog = Watchdog::new(test, 0);
    for shape in ["in order", "nested", "long keys", "anywhere"] {
        for limit in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let table = table(bare().write_buffer_size(64 << 10).hard_limit(limit));
            // The table itself is not counted.
            let own = table.allocated_bytes() - (limit - table.remaining());
            let mut number = 0;
            let refused = loop {
                number += 1;
                let (start, end) = range_of(shape, number);
                let fits = table.can_fit_range_delete(start.len() as u64, end.len() as u64);
                let (before, remaining) = (table.allocated_bytes(), table.remaining());
                match table.delete_range(number, &start, &end) {
                    Ok(_) => {
                        assert!(table.allocated_bytes() <= limit + own, "{shape} under {limit}: {number}");
                        assert!(table.allocated_bytes() + table.remaining() <= limit + own);
                    }
                    Err(Error::MemTableFull { needed, remaining: told }) => {
                        assert!(!fits && needed > told, "{needed} of {told}");
                        assert_eq!((table.allocated_bytes(), table.remaining()), (before, remaining));
                        break (start, end);
                    }
                    Err(other) => panic!("{other}"),
                }
            };
            let before = counters(&table);
            assert_eq!(before.numbers[2], number - 1);
            let mut batch = WriteBatch::new();
            batch.put(b"first", b"1").unwrap();
            batch.delete_range(&refused.0, &refused.1).unwrap();
            for again in [table.write_batch(number, &batch), table.writer().write_batch(number, &batch)] {
                assert!(matches!(again, Err(Error::MemTableFull { .. })), "{again:?}");
            }
            let mut after = counters(&table);
            // The writer that was made for the batch is counted.
            after.numbers[5] = before.numbers[5];
            assert_eq!(after, before);
            if table.can_fit(8, 8) {
                table.put(number, &number.to_be_bytes(), &[7; 8]).unwrap();
            }
            table.maintain();
            assert!(table.allocated_bytes() <= limit + own + 4096, "{shape} under {limit}");
            table.freeze().unwrap();
            let (frozen, most) = (table.allocated_bytes(), limit + own + 4096);
            assert!(frozen <= most, "{shape} under {limit}: {frozen} once frozen");
            assert!(frozen > most / 4, "{shape} under {limit}: {frozen}, so much is never used");
        }
    }
}

/// The hard limit at minus one unit, exact and plus one, for the last of some range deletes: alone, of a writer, in a batch.
#[test]
fn the_last_range_delete_below_the_hard_limit() {
    const LIMIT: u64 = 1 << 20;
    let write = |table: &MemTable, path: u64, number: u64| {
        let (start, end) = range_of("in order", number);
        let mut batch = WriteBatch::new();
        batch.delete_range(&start, &end).unwrap();
        match path {
            0 => table.delete_range(number, &start, &end).map(drop),
            1 => table.write_batch(number, &batch).map(drop),
            _ => table
                .insert_parts(number, Kind::RANGE_DELETE, &start, &[&end[..3], &end[3..]], None)
                .map(drop),
        }
    };
    for (path, count) in (0..3).flat_map(|path| [1, 2, 7, 8, 9, 16].map(|count| (path, count))) {
        let made = |limit: u64| {
            let table = table(bare().write_buffer_size(4 << 10).hard_limit(limit));
            (1..count).for_each(|number| write(&table, path, number).unwrap());
            table
        };
        let probe = made(LIMIT);
        write(&probe, path, count).unwrap();
        // All of it lies in the first chunk, where nothing is taken ahead.
        let exact = LIMIT - probe.remaining();
        for (limit, fits) in [(exact - 8, false), (exact, true), (exact + 8, true)] {
            let table = made(limit);
            let before = (counters(&table), table.remaining());
            let written = write(&table, path, count);
            assert_eq!(written.is_ok(), fits, "{path} {count}: {written:?}");
            if !fits {
                assert!(matches!(written, Err(Error::MemTableFull { .. })));
                assert_eq!((counters(&table), table.remaining()), before);
            }
            table.freeze().unwrap();
            assert!(table.delete_range(99, b"a", b"b").is_err() && !table.can_fit_range_delete(1, 1));
        }
    }
}

/// Which part of memory is missing is said: here the test runs again as a process that may have 4 GiB of addresses.
#[test]
#[cfg(target_os = "linux")]
fn memory_that_the_system_refuses() {
    const CHILD: &str = "PARANOID_TEST_FEW_ADDRESSES";
    let test = "room::memory_that_the_system_refuses";
    let _watchdog = Watchdog::new(test, 0);
    if std::env::var_os(CHILD).is_none() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -v 4194304 && exec \"$0\" --exact \"$1\" --test-threads 1"]);
        let output = shell.arg(std::env::current_exe().unwrap()).arg(test).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let table = MemTable::default();
    table.put(1, b"before", b"1").unwrap();
    let (remaining, before) = (table.remaining(), counters(&table));
    assert!(remaining > 8 << 30, "the table is not full");
    let refused = table.try_reserve(8 << 30).unwrap_err();
    assert!(matches!(refused, Error::MemoryRefused { needed } if needed >= 8 << 30), "{refused:?}");
    assert!(refused.to_string().contains("system refused memory"), "{refused}");
    assert_eq!((counters(&table).raw, table.remaining()), (before.raw, remaining));
    table.put(2, b"after", b"2").unwrap();
    assert!(matches!(table.get(b"after", 2).unwrap(), Lookup::Value(value) if *value == *b"2"));
    let full = MemTable::new(bare().hard_limit(64 << 20).build().unwrap()).unwrap();
    assert!(matches!(full.try_reserve(8 << 30), Err(Error::MemTableFull { .. })));
}

/// A batch takes no more of the arena than it says.
#[test]
fn a_batch_takes_no_more_than_it_says() {
    let mut rng = Rng::new(seed_or(12));
    for protection in [0, 1, 8] {
        let paranoid = ParanoidOptions::builder().protection_bytes(protection).build().unwrap();
        let table = table(builder().paranoid(paranoid));
        let mut sequence = 1;
        for _ in 0..50 {
            let mut batch = WriteBatch::new();
            for number in 0..rng.below(20) {
                let (key, value) = (rng.bytes(9), vec![7; rng.index(200)]);
                match number % 4 {
                    0 => batch.delete(&key).unwrap(),
                    1 => batch.delete_range(&key, &[&key[..], b"x"].concat()).unwrap(),
                    _ => batch.put(&key, &value).unwrap(),
                }
            }
            let written = table.write_batch(sequence, &batch).unwrap();
            assert!(written.bytes <= batch.arena_bytes().unwrap(), "{written:?}");
            sequence += batch.len() as u64;
        }
    }
}

/// A batch for which there is no room changes nothing, also if it is the first one of its writer.
#[test]
fn a_batch_that_does_not_fit_changes_nothing() {
    let mut batch = WriteBatch::new();
    batch.put(b"one", b"1").unwrap();
    batch.put(b"two", b"2").unwrap();
    for fill in 0..400 {
        let table = table(builder().seed(fill).write_buffer_size(4 << 10).hard_limit(8 << 10));
        table.put(1, b"fill", &vec![0; usize::try_from(fill).unwrap()]).unwrap();
        let mut writers = Vec::new();
        for number in 1.. {
            let (before, mut writer) = (table.len(), table.writer());
            match writer.write_batch(10 * number, &batch) {
                Ok(_) => assert_eq!(table.len(), before + 2),
                Err(Error::MemTableFull { .. }) => {
                    assert_eq!(table.len(), before, "{fill} bytes");
                    break;
                }
                Err(other) => panic!("{fill} bytes: {other}"),
            }
            writers.push(writer);
        }
    }
}

/// An attachment is dropped with the memory, whichever handle keeps the memory alive.
#[test]
fn attachments_live_as_long_as_the_memory() {
    let permit = Arc::new(());
    let table = table(builder());
    table.attach(permit.clone());
    table.attach(permit.clone());
    table.put(1, b"k", b"v").unwrap();
    let Lookup::Value(value) = table.get(b"k", 1).unwrap() else { panic!("not there") };
    let entry = table.get_exact(b"k", 1).unwrap().unwrap();
    let keepers: Vec<Box<dyn std::any::Any>> = vec![
        Box::new(value.to_pinned()),
        Box::new(table.pin(&entry).unwrap()),
        Box::new(table.owned_cursor()),
        Box::new(table.writer()),
        Box::new(table.freeze().unwrap()),
        Box::new(table),
    ];
    for keeper in keepers {
        assert_eq!(Arc::strong_count(&permit), 3);
        drop(keeper);
    }
    assert_eq!(Arc::strong_count(&permit), 1);
}
