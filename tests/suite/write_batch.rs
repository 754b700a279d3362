//! Batches into tables: all of it or nothing of it, and the same answers as entries one by one.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use paranoid_memtable::{
    Comparator, DuplicatePolicy, Error, FixedPrefix, KeyEquality, Kind, Lookup, MemTable, MemTableOptions,
    Representation, SequenceMode, WriteBatch,
};

fn options() -> paranoid_memtable::MemTableOptionsBuilder {
    MemTableOptions::builder().write_buffer_size(256 << 10)
}

fn contents<C: Comparator>(table: &MemTable<C>) -> Vec<(Vec<u8>, u64, u8, Vec<u8>)> {
    let mut cursor = table.cursor();
    let mut rows = Vec::new();
    let mut entry = cursor.first().unwrap();
    while let Some(found) = entry {
        let value = found.value().unwrap().to_vec();
        rows.push((found.user_key().to_vec(), found.sequence(), found.kind().as_u8(), value));
        entry = cursor.next().unwrap();
    }
    for tombstone in [b"b".as_slice(), b"m", b"x"] {
        let covered = matches!(table.get(tombstone, u64::MAX).unwrap(), Lookup::Deleted { .. });
        rows.push((tombstone.to_vec(), u64::from(covered), 255, Vec::new()));
    }
    rows
}

#[test]
fn a_batch_is_its_entries_one_by_one() {
    for seed in 0..18u64 {
        let configured = match seed % 3 {
            0 => options(),
            1 => options().whole_key_filter(0.02).point_index(0.1),
            _ => options().representation(Representation::Vector),
        };
        let configured = configured.build().unwrap();
        let (batched, single) =
            (MemTable::new(configured.clone()).unwrap(), MemTable::new(configured).unwrap());
        let mut writer = batched.writer();
        let (mut next, mut state) = (1u64, seed);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut asked = Vec::new();
        for round in 0..12 {
            let mut batch = WriteBatch::with_protection([0, 8][round % 2]).unwrap();
            let (mode, ordered) = (random() % 2, random() % 2);
            batch =
                batch.with_sequence_mode([SequenceMode::PerEntry, SequenceMode::WholeBatch][mode as usize]);
            let first = next;
            for n in 0..random() % 60 {
                let name = if ordered == 0 { 1000 * round as u64 + n } else { (random() % 997) * 64 + n };
                let key = name.to_be_bytes();
                let (kind, value) = match random() % 9 {
                    0 => (Kind::DELETE, Vec::new()),
                    1 if random() % 4 == 0 => (Kind::RANGE_DELETE, [key.as_slice(), b"~"].concat()),
                    2 => (Kind::MERGE, vec![1; 3]),
                    _ => (Kind::PUT, vec![b'v'; (random() % 50) as usize]),
                };
                batch.insert(kind, &key, &value).unwrap();
                asked.push(key);
                single.insert(next, kind, &key, &value).unwrap();
                next += 1 - mode;
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
        assert_eq!(batched.data_bytes(), single.data_bytes());
        for key in asked {
            let (left, right) = (batched.get(&key, u64::MAX), single.get(&key, u64::MAX));
            assert_eq!(format!("{left:?}"), format!("{right:?}"), "seed {seed}, key {key:?}");
        }
    }
}

/// Nothing of a refused batch is there.
fn refused(table: &MemTable, first: u64, batch: &WriteBatch) -> Error {
    let (before, count, bytes) = (contents(table), table.len(), table.data_bytes());
    let error = table.write_batch(first, batch).unwrap_err();
    assert_eq!((contents(table), table.len(), table.data_bytes()), (before, count, bytes), "{error}");
    error
}

#[test]
fn what_can_be_refused_is_refused_before_the_first_link() {
    let table = MemTable::new(options().hard_limit(300 << 10).key_len_max(20).build().unwrap()).unwrap();
    table.put(5, b"k", b"there").unwrap();
    table.delete_range(9, b"a", b"c").unwrap();
    let batch_of = |kind, key: &[u8], value: &[u8]| {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch.put(b"first", b"1").unwrap();
        batch.insert(kind, key, value).unwrap();
        batch
    };
    let long = [b'k'; 21];
    assert!(matches!(refused(&table, 7, &batch_of(Kind::PUT, &long, b"")), Error::KeyTooLarge { .. }));
    let inverted = refused(&table, 7, &batch_of(Kind::RANGE_DELETE, b"c", b"a"));
    assert!(matches!(inverted, Error::InvalidArgument(_)));
    // The second entry of a batch from 4 on has number 5.
    let there = refused(&table, 4, &batch_of(Kind::PUT, b"k", b"again"));
    assert!(matches!(there, Error::DuplicateEntry { sequence: 5 }), "{there}");
    let tombstone = refused(&table, 8, &batch_of(Kind::RANGE_DELETE, b"a", b"z"));
    assert!(matches!(tombstone, Error::DuplicateEntry { sequence: 9 }), "{tombstone}");
    assert!(matches!(refused(&table, u64::MAX, &batch_of(Kind::PUT, b"x", b"")), Error::InvalidArgument(_)));
    let twice = batch_of(Kind::PUT, b"first", b"2").with_sequence_mode(SequenceMode::WholeBatch);
    assert!(matches!(refused(&table, 20, &twice), Error::DuplicateEntry { sequence: 20 }));
    let full = refused(&table, 30, &batch_of(Kind::PUT, b"big", &vec![7; 400 << 10]));
    assert!(matches!(full, Error::MemTableFull { .. }), "{full}");
    table.write_batch(30, &batch_of(Kind::PUT, b"small", b"")).unwrap();
    table.write_batch(40, &WriteBatch::new()).unwrap();
    table.freeze().unwrap();
    assert!(matches!(refused(&table, 50, &batch_of(Kind::PUT, b"k", b"")), Error::Frozen));
}

#[test]
fn duplicates_follow_the_policy() {
    let mut batch = WriteBatch::new().with_sequence_mode(SequenceMode::WholeBatch);
    batch.put(b"k", b"1").unwrap();
    batch.put(b"k", b"2").unwrap();
    for (policy, value, entries, displaced) in
        [(DuplicatePolicy::KeepFirst, b"1", 1, 0), (DuplicatePolicy::Replace, b"2", 2, 1)]
    {
        let table = MemTable::new(options().duplicates(policy).point_index(0.1).build().unwrap()).unwrap();
        let written = table.write_batch(3, &batch).unwrap();
        assert_eq!((written.entries, written.displaced), (entries, displaced));
        let Lookup::Value(found) = table.get(b"k", 3).unwrap() else { panic!("not there") };
        assert_eq!(&*found, value);
        assert_eq!(table.len(), 1);
    }
}

#[test]
fn a_batch_that_was_damaged_changes_nothing() {
    let table = MemTable::new(options().prefix_filter(FixedPrefix::new(1), 0.01).build().unwrap()).unwrap();
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

impl Comparator for Fuse {
    const EQUALITY: KeyEquality = KeyEquality::Bytes;
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        assert_ne!(self.0.fetch_sub(1, Memory::Relaxed), 0, "the fuse has burnt down");
        left.cmp(right)
    }
}

#[test]
fn a_panic_of_the_comparator_says_how_much_was_applied() {
    let mut batch = WriteBatch::new();
    for n in 0..40u64 {
        batch.put(&(n * 7 % 40).to_be_bytes(), b"v").unwrap();
    }
    let mut interrupted = 0;
    for burns in 0..2000 {
        let table =
            MemTable::with_comparator(options().build().unwrap(), Fuse(AtomicU64::new(u64::MAX))).unwrap();
        for n in 100..140u64 {
            table.put(n, &n.to_be_bytes(), b"v").unwrap();
        }
        table.comparator().0.store(burns, Memory::Relaxed);
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.write_batch(1000, &batch)));
        table.comparator().0.store(u64::MAX, Memory::Relaxed);
        let applied = match outcome {
            Err(_) => 0,
            Ok(Err(Error::BatchInterrupted { applied, .. })) => {
                interrupted += 1;
                applied
            }
            Ok(Ok(_)) => break,
            Ok(Err(error)) => panic!("{error}"),
        };
        let rows = contents(&table).len() as u64 - 43;
        // The entry that was being linked may be in: it was not acknowledged.
        assert!(rows == applied || rows == applied + 1, "{rows} rows, {applied} applied, fuse {burns}");
    }
    assert!(interrupted > 10, "{interrupted}");
}
