//! Room: what tables and batches report about the memory that they take, and what is dropped with it.

use std::sync::Arc;

use paranoid_memtable::{
    Error, Lookup, MemTable, MemTableOptions, MemTableOptionsBuilder, ParanoidOptions, Representation,
    WriteBatch,
};

use crate::support::rng::{Rng, seed_or};

const HARD_LIMIT: u64 = 256 << 10;

fn builder() -> MemTableOptionsBuilder {
    MemTableOptions::builder().seed(7)
}

fn table(options: MemTableOptionsBuilder) -> MemTable {
    MemTable::new(options.build().unwrap()).unwrap()
}

/// Where `can_fit` says yes the next insert succeeds, up to the hard limit; the error of a full table states what
/// `remaining` returned.
#[test]
fn room_that_is_promised_is_there() {
    for representation in [Representation::SkipList, Representation::Vector] {
        let options = builder().representation(representation);
        let table = table(options.write_buffer_size(64 << 10).hard_limit(HARD_LIMIT).value_len_max(3000));
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
    for representation in [Representation::SkipList, Representation::Vector] {
        for fill in 0..400 {
            let options = builder().seed(fill).representation(representation);
            let table = table(options.write_buffer_size(4 << 10).hard_limit(8 << 10));
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
                    Err(other) => panic!("{representation:?}, {fill} bytes: {other}"),
                }
                writers.push(writer);
            }
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
