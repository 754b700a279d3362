//! What a table takes from the heap. This is a test binary of its own because its allocator counts, by thread.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use allocation_counter::measure;
use paranoid_memtable::{Lookup, MemTable, MemTableOptions, ParanoidOptions, TableReader};

const EMPTY_TABLE_BYTES_MAX: u64 = 4 << 10;

fn table(protection: u8) -> MemTable {
    let paranoid = ParanoidOptions::builder().protection_bytes(protection).build().unwrap();
    MemTable::new(MemTableOptions::builder().paranoid(paranoid).seed(1).build().unwrap()).unwrap()
}

fn filled(protection: u8) -> MemTable {
    let table = table(protection);
    for n in 0..10_000u64 {
        let key = (n / 2 % 4_000).to_be_bytes();
        if n % 9 == 0 { table.delete(n, key) } else { table.put(n, key, b"a value of some length") }.unwrap();
    }
    table.delete_range(20_000, 100u64.to_be_bytes(), 200u64.to_be_bytes()).unwrap();
    table
}

/// The thread writes once before it measures: what the test harness and lazy statics take is not the table's.
#[test]
fn an_empty_table_is_small() {
    table(8).put(1, b"k", b"v").unwrap();
    let mut kept = None;
    let made = measure(|| kept = Some(table(8)));
    println!("an empty table: {} bytes in {} allocations", made.bytes_current, made.count_current);
    assert!(made.bytes_current > 0, "the allocator does not count");
    assert_eq!(made.count_total, 1, "{made:?}");
    assert!(made.bytes_max <= EMPTY_TABLE_BYTES_MAX, "{made:?}");
    let table = kept.take().unwrap();
    assert!(table.allocated_bytes() <= EMPTY_TABLE_BYTES_MAX, "{}", table.allocated_bytes());
    let dropped = measure(|| drop(table));
    assert_eq!(dropped.bytes_current + made.bytes_current as i64, 0, "all of it comes back");
}

/// No read and no freeze of an empty table takes anything from the heap.
#[test]
fn an_empty_table_stays_small() {
    let used = |table: &MemTable| {
        assert!(matches!(table.get(b"k", 9).unwrap(), Lookup::NotFound));
        assert!(
            table.cursor().first().is_ok()
                && table.range(..).next().is_none()
                && table.scrub(|_| ()).entries == 0
        );
        table.maintain();
        assert_eq!(table.freeze().unwrap().len(), 0);
    };
    used(&table(8));
    let table = table(8);
    let bytes = table.allocated_bytes();
    let read = measure(|| used(&table));
    assert!(read.bytes_current == 0 && table.allocated_bytes() == bytes, "{read:?}");
}

/// The first write makes the shards of writers, the first chunk, and where that is noted; later ones take nothing while the
/// chunk lasts.
#[test]
fn a_first_write_makes_shards_and_a_chunk() {
    table(8).put(1, b"k", b"v").unwrap();
    let table = table(8);
    let put = |sequence: u64| {
        measure(|| {
            table.put(sequence, b"k", b"v").unwrap();
        })
    };
    let (first, second) = (put(1), put(2));
    assert!(first.count_total <= 3 && first.bytes_total < 40 << 10, "{first:?}");
    assert_eq!(second.count_total, 0, "{second:?}");
}

/// What is allocated is at most three times what is in use, however large a table becomes.
#[test]
fn a_table_takes_little_ahead() {
    let table = table(8);
    for n in 0..3_000u64 {
        table.put(n, n.to_be_bytes(), [7; 100]).unwrap();
        let (allocated, used) = (table.allocated_bytes(), table.used_bytes());
        assert!(n < 50 || allocated <= 3 * used, "{n}: {allocated} of {used}");
    }
}

#[test]
fn warm_reads_allocate_nothing() {
    for protection in [0, 8] {
        let table = filled(protection);
        let frozen = table.freeze().unwrap();
        let readers: [&TableReader; 2] = [&frozen, &table];
        for reader in readers {
            let mut buffer = Vec::with_capacity(100);
            let keys: Vec<[u8; 8]> = (0..24u64).map(|n| (n * 170).to_be_bytes()).collect();
            let mut results = Vec::with_capacity(keys.len());
            reader.multi_get_into(&keys, u64::MAX, &mut results);
            let mut cursor = reader.cursor();
            let mut resolved = reader.cursor_at(15_000);
            let mut values = 0;
            let counted = measure(|| {
                for n in 0..4_200u64 {
                    let key = n.to_be_bytes();
                    values += u64::from(matches!(reader.get(key, u64::MAX).unwrap(), Lookup::Value(_)));
                    values += u64::from(reader.get_entry(key, n).unwrap().is_some());
                    let found = reader.get_into(key, u64::MAX, &mut buffer).unwrap();
                    values += u64::from(matches!(found, Lookup::Value(_)));
                }
                reader.multi_get_into(&keys, u64::MAX, &mut results);
                cursor.seek(70u64.to_be_bytes()).unwrap();
                resolved.seek_for_prev(3_000u64.to_be_bytes()).unwrap();
                for _ in 0..1_000 {
                    cursor.next().unwrap();
                    resolved.prev().unwrap();
                }
                cursor.last().unwrap();
                resolved.first().unwrap();
                for _ in 0..1_000 {
                    cursor.prev().unwrap();
                    resolved.next().unwrap();
                }
            });
            assert!(values > 1_000, "{values}");
            assert_eq!(counted.count_total, 0, "protection {protection}: {counted:?}");
        }
    }
}

/// Key and value of an entry as `Bytes` are one allocation and no copy, and nobody else's entry is taken.
#[cfg(feature = "bytes")]
#[test]
fn a_pinned_entry_is_one_allocation() {
    let (table, other) = (filled(8), filled(8));
    let entry = table.get_entry(7u64.to_be_bytes(), u64::MAX).unwrap().unwrap();
    let mut pinned = None;
    let made = measure(|| pinned = Some(table.pin(&entry).unwrap()));
    assert_eq!(made.count_total, 1, "{made:?}");
    let (key, value) = pinned.unwrap();
    assert_eq!(value.as_ptr(), entry.value().unwrap().as_ptr());
    assert_eq!((&*key, &*value), entry.parts().unwrap());
    let foreign = other.get_entry(7u64.to_be_bytes(), u64::MAX).unwrap().unwrap();
    assert!(table.pin(&foreign).is_err());
    let copy = value.clone();
    drop((table, key, value));
    assert_eq!(copy, b"a value of some length"[..]);
}
