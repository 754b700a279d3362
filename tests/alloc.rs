//! The heap memory of a table. This is a test binary of its own because its allocator counts, by
//! thread.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use std::ops::Bound;
use std::sync::Arc;

use allocation_counter::measure;
use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{
    Bytewise, Lookup, MemTable, MemTableOptions, Result, TableReader, WriteBatch,
};
use paranoid_set::{Durability, FileJournal, Level, MemTableSet, SetOptions};

const EMPTY_TABLE_BYTES_MAX: u64 = 4 << 10;

fn table(protection: u8) -> MemTable {
    MemTable::new(
        MemTableOptions::builder()
            .protection_bytes(protection)
            .seed(1)
            .build()
            .unwrap(),
    )
    .unwrap()
}

fn filled(protection: u8) -> MemTable {
    let table = table(protection);
    for n in 0..10_000u64 {
        let key = (n / 2 % 4_000).to_be_bytes();
        if n % 9 == 0 {
            table.delete(n, key)
        } else {
            table.put(n, key, b"a value of some length")
        }
        .unwrap();
    }
    table
        .delete_range(20_000, 100u64.to_be_bytes(), 200u64.to_be_bytes())
        .unwrap();
    table
}

/// The thread writes once before it measures, because the memory of the test harness and of lazy
/// statics is not the table's.
#[test]
fn an_empty_table_is_small() {
    table(8).put(1, b"k", b"v").unwrap();
    let mut kept = None;
    let made = measure(|| kept = Some(table(8)));
    println!(
        "an empty table: {} bytes in {} allocations",
        made.bytes_current, made.count_current
    );
    assert!(made.bytes_current > 0, "the allocator does not count");
    assert_eq!(made.count_total, 1, "{made:?}");
    assert!(made.bytes_max <= EMPTY_TABLE_BYTES_MAX, "{made:?}");
    let table = kept.take().unwrap();
    assert!(
        table.allocated_bytes() <= EMPTY_TABLE_BYTES_MAX,
        "{}",
        table.allocated_bytes()
    );
    let dropped = measure(|| drop(table));
    assert_eq!(
        dropped.bytes_current + made.bytes_current as i64,
        0,
        "all of it comes back"
    );
}

/// No read and no freeze of an empty table takes memory from the heap.
#[test]
fn an_empty_table_stays_small() {
    let used = |table: &MemTable| {
        assert!(table.get(b"k", 9).unwrap().found().is_none());
        assert!(
            table.cursor().first().is_ok()
                && table.range(..).next().is_none()
                && table.scrub(|_| ()).entries == 0
        );
        assert_eq!(table.freeze().unwrap().len(), 0);
    };
    used(&table(8));
    let table = table(8);
    let bytes = table.allocated_bytes();
    let read = measure(|| used(&table));
    assert!(
        read.bytes_current == 0 && table.allocated_bytes() == bytes,
        "{read:?}"
    );
}

/// A file without an entry.
struct Empty;

impl SortedSource for Empty {
    fn go(&mut self, _: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        Ok(None)
    }

    fn value_into(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn range_tombstones(
        &mut self,
        _: &mut dyn FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }
}

/// A cursor and a get over a level of a thousand files take what they take over one of ten, and a
/// get takes nothing for each of many sources of one type.
#[test]
fn files_of_a_level_take_no_memory() {
    let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
    let view = set.view();
    let level = |files: u32| {
        let key = |number: u32| number.to_be_bytes().to_vec();
        let bounds = (0..files).map(|place| (key(place), Bound::Included(key(place))));
        Level::new(Arc::new(Bytewise), bounds.collect::<Vec<_>>()).unwrap()
    };
    let used = |level: &Level| {
        let source = || level.source(|_| Ok(Empty));
        let cursor = measure(|| drop(view.merging_cursor(vec![Box::new(source())]).unwrap()));
        let get = measure(|| assert!(view.merging_get("k", || [source()]).unwrap().is_none()));
        [cursor, get].map(|it| (it.count_total, it.bytes_total))
    };
    let (few, many) = (level(10), level(1_000));
    used(&few);
    println!("a cursor and a get over 1 000 files: {:?}", used(&many));
    assert_eq!(used(&few), used(&many));
    let get = |sources: usize| {
        let made = || std::iter::repeat_with(|| Empty).take(sources);
        measure(|| assert!(view.merging_get("k", made).unwrap().is_none())).count_total
    };
    assert_eq!(get(100), get(1), "no allocation for each source");
}

/// The first write makes the shards of writers, the first chunk, and the record of it. Later writes
/// take nothing while the chunk lasts.
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
    assert!(
        first.count_total <= 3 && first.bytes_total < 5 << 10,
        "{first:?}"
    );
    assert_eq!(second.count_total, 0, "{second:?}");
}

/// An engine may have a table for each of thousands of keyspaces. A table with ten entries of 116
/// bytes takes no more than one with a single entry.
#[test]
fn a_thousand_tables_of_few_entries_take_eight_kilobytes_each() {
    table(8).put(1, b"k", b"v").unwrap();
    for entries in [1u8, 10] {
        let mut kept = Vec::with_capacity(1_000);
        let made = measure(|| {
            for _ in 0..1_000 {
                let table = table(8);
                for n in 0..entries {
                    table.put(n.into(), [n; 16], [7; 100]).unwrap();
                }
                kept.push(table);
            }
        });
        println!("1 000 tables of {entries} entries: {made:?}");
        assert!(
            made.bytes_current <= 1_000 * (8 << 10),
            "{entries}: {made:?}"
        );
        let says: u64 = kept.iter().map(|table| table.allocated_bytes()).sum();
        assert!(says <= made.bytes_current as u64 && says > made.bytes_current as u64 * 9 / 10);
    }
}

/// Allocated memory is at most three times the memory in use, for a table of any size.
#[test]
fn a_table_takes_little_ahead() {
    let table = table(8);
    for n in 0..3_000u64 {
        table.put(n, n.to_be_bytes(), [7; 100]).unwrap();
        let (allocated, used) = (table.allocated_bytes(), table.used_bytes());
        assert!(
            n < 50 || allocated <= 3 * used,
            "{n}: {allocated} of {used}"
        );
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
                    values += u64::from(matches!(
                        reader.get(key, u64::MAX).unwrap(),
                        Lookup::Value(_)
                    ));
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
            assert_eq!(
                counted.count_total, 0,
                "protection {protection}: {counted:?}"
            );
        }
    }
}

/// A journal's copy of a batch, its queue and its encodings use existing memory.
#[test]
fn warm_writes_to_a_journal_allocate_nothing() {
    let folder = std::env::temp_dir().join(format!("paranoid-warm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (journal, _) = FileJournal::open(&folder, 0).unwrap();
    let options = SetOptions::builder().journal(Arc::new(journal));
    let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
    // Queued batches are written twice, so that both queues have memory.
    for (durability, warm) in [(Durability::Buffered, 100), (Durability::Queued, 20_000)] {
        let mut batch = WriteBatch::new();
        batch.put(b"key", [7; 40]).unwrap();
        let put = || _ = set.write_with(&batch, durability).unwrap();
        (0..warm).for_each(|_| put());
        let counted = measure(|| (0..100).for_each(|_| put()));
        // The table takes a chunk now and then.
        assert!(counted.count_total <= 4, "{durability:?}: {counted:?}");
    }
    drop(set);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Key and value of an entry as `Bytes` take one allocation and no copy, and no other entry is
/// affected.
#[cfg(feature = "bytes")]
#[test]
fn a_pinned_entry_is_one_allocation() {
    let (table, other) = (filled(8), filled(8));
    let entry = table
        .get_entry(7u64.to_be_bytes(), u64::MAX)
        .unwrap()
        .unwrap();
    let mut pinned = None;
    let made = measure(|| pinned = Some(table.pin(&entry).unwrap()));
    assert_eq!(made.count_total, 1, "{made:?}");
    let (key, value) = pinned.unwrap();
    assert_eq!(value.as_ptr(), entry.value().unwrap().as_ptr());
    assert_eq!((&*key, &*value), entry.parts().unwrap());
    let foreign = other
        .get_entry(7u64.to_be_bytes(), u64::MAX)
        .unwrap()
        .unwrap();
    assert!(table.pin(&foreign).is_err());
    let copy = value.clone();
    drop((table, key, value));
    assert_eq!(copy, b"a value of some length"[..]);
}

/// Range deletes that overlap so that n of them have some n * n pairs of a fragment and a sequence
/// number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// A queue: `[0, n)` is deleted at `n`.
    Queue,
    /// Each range is inside the one before it.
    Inward,
    /// Each range is around the one before it.
    Outward,
}

impl Shape {
    /// The range with a sequence number from 1 to `count`.
    fn range(self, number: u64, count: u64) -> (u64, u64) {
        match self {
            Shape::Queue => (0, number),
            Shape::Inward => (number, 2 * count + 1 - number),
            Shape::Outward => (count - number, count + number),
        }
    }
}

/// Compares fragments with the ranges, and stores no fragment.
struct Oracle {
    shape: Shape,
    count: u64,
    /// The end of the last fragment, and the number of fragments.
    end: u64,
    fragments: u64,
    /// The snapshots. A fragment has the newest of the numbers between two of them. `None`: it has
    /// all numbers.
    snapshots: Option<Vec<u64>>,
}

impl Oracle {
    fn new(shape: Shape, count: u64, snapshots: Option<Vec<u64>>) -> Self {
        Oracle {
            shape,
            count,
            end: shape.range(count, count).0.min(shape.range(1, count).0),
            fragments: 0,
            snapshots,
        }
    }

    fn judge(&mut self, fragment: Fragment<'_>) {
        let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
        let (start, end) = (number(fragment.start()), number(fragment.end()));
        assert!(
            start == self.end && start < end,
            "{:?}: {start}..{end} after {}",
            self.shape,
            self.end
        );
        let covers = |sequence: &u64| {
            let (from, to) = self.shape.range(*sequence, self.count);
            from <= start && end <= to
        };
        let all = (1..=self.count).rev().filter(covers);
        let mut stripe = None;
        let is_kept = |sequence: &u64| {
            let Some(snapshots) = &self.snapshots else {
                return true;
            };
            let of = snapshots.partition_point(|snapshot| snapshot < sequence);
            stripe.replace(of) != Some(of)
        };
        assert!(
            all.filter(is_kept).eq(fragment.sequences().iter().copied()),
            "{:?}: {start}..{end}",
            self.shape
        );
        (self.end, self.fragments) = (end, self.fragments + 1);
    }

    /// Checks that the fragments reached the last end.
    fn finish(&self) {
        let last = self
            .shape
            .range(self.count, self.count)
            .1
            .max(self.shape.range(1, self.count).1);
        assert_eq!(self.end, last, "{:?}", self.shape);
        assert!(
            self.fragments >= self.count / 2,
            "{:?}: {} fragments",
            self.shape,
            self.fragments
        );
    }
}

impl FlushSink for Oracle {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        self.judge(fragment);
        Ok(())
    }
}

/// The most heap bytes in use at a time, for a number of range deletes of a shape.
type Peak = fn(Shape, u64) -> u64;

/// With this seed no place of the arena looks like an entry with a key of megabytes, which a
/// salvage would copy for a moment.
fn open_set() -> MemTableSet<()> {
    let tables = MemTableOptions::builder().seed(2).build().unwrap();
    MemTableSet::open(SetOptions::builder().table(tables).build().unwrap(), ()).unwrap()
}

fn nested(shape: Shape, count: u64) -> MemTable {
    let table = table(8);
    for number in 1..=count {
        let (start, end) = shape.range(number, count);
        table
            .delete_range(number, start.to_be_bytes(), end.to_be_bytes())
            .unwrap();
    }
    table
}

fn peak_of_a_flush(shape: Shape, count: u64) -> u64 {
    let frozen = nested(shape, count).freeze().unwrap();
    let mut oracle = Oracle::new(shape, count, None);
    let counted = measure(|| {
        frozen.flush(Versions::All, &mut oracle).unwrap();
    });
    oracle.finish();
    counted.bytes_max
}

/// A snapshot for each of 64 numbers would keep few numbers in a fragment, so each range delete has
/// a snapshot.
fn peak_of_a_flush_under_snapshots(shape: Shape, count: u64) -> u64 {
    let count = count / 8;
    let frozen = nested(shape, count).freeze().unwrap();
    let snapshots: Vec<u64> = (1..count).collect();
    let mut oracle = Oracle::new(shape, count, Some(snapshots.clone()));
    let counted = measure(|| {
        frozen
            .flush(Versions::SeenBy(&snapshots), &mut oracle)
            .unwrap();
    });
    oracle.finish();
    counted.bytes_max
}

fn peak_of_a_flush_job(shape: Shape, count: u64) -> u64 {
    let count = count / 8;
    let set = open_set();
    let mut snapshots = Vec::new();
    for number in 1..=count {
        let (start, end) = shape.range(number, count);
        set.delete_range(start.to_be_bytes(), end.to_be_bytes())
            .unwrap();
        snapshots.push(set.snapshot());
    }
    set.switch().unwrap();
    let mut job = set.begin_flush().unwrap().unwrap();
    let mut oracle = Oracle::new(shape, count, Some((1..=count).collect()));
    let counted = measure(|| {
        job.flush(&mut oracle).unwrap();
    });
    oracle.finish();
    counted.bytes_max
}

/// A bit of the value of a put flips, and the engine salvages the rest.
#[cfg(feature = "fault-injection")]
#[expect(unsafe_code, reason = "a test that breaks memory")]
fn peak_of_a_salvage(shape: Shape, count: u64) -> u64 {
    use paranoid_memtable::fault::{FaultInjector, Region};
    let set = open_set();
    for number in 1..=count {
        let (start, end) = shape.range(number, count);
        set.delete_range(start.to_be_bytes(), end.to_be_bytes())
            .unwrap();
    }
    set.put(b"k", b"value").unwrap();
    set.switch().unwrap();
    let view = set.view();
    // SAFETY: one thread, and nothing borrowed is held.
    let mut injector = unsafe { FaultInjector::open(view.readers().last().unwrap()) }.unwrap();
    let is_point =
        |piece: &paranoid_memtable::fault::Piece| piece.region == Region::Value && piece.len() == 5;
    let value = injector.pieces().iter().position(is_point).unwrap();
    [3, 4].into_iter().for_each(|bit| injector.flip(value, bit));
    drop(injector);
    let mut job = set.begin_flush().unwrap().unwrap();
    assert!(
        job.flush(&mut Oracle::new(shape, count, Some(vec![])))
            .is_err()
    );
    let mut oracle = Oracle::new(shape, count, None);
    let mut missing = 0;
    let counted = measure(|| missing = job.salvage(&mut oracle).unwrap().missing);
    oracle.finish();
    assert_eq!(missing, 1);
    counted.bytes_max
}

/// A flush returns overlapping range deletes one fragment after the other: the memory in use grows
/// with their number, not with the pairs of a fragment and a sequence number. The fragments are
/// compared with brute force.
#[test]
fn nested_range_deletes_take_linear_memory() {
    let cases: &[(&str, Peak)] = &[
        ("a flush of all versions", peak_of_a_flush),
        ("a flush under snapshots", peak_of_a_flush_under_snapshots),
        ("a flush job under snapshots", peak_of_a_flush_job),
        #[cfg(feature = "fault-injection")]
        ("a salvage", peak_of_a_salvage),
    ];
    let count = if cfg!(debug_assertions) { 1_600 } else { 8_000 };
    for (name, peak) in cases {
        for shape in [Shape::Queue, Shape::Inward, Shape::Outward] {
            let (few, many) = (peak(shape, count / 8), peak(shape, count));
            let found = format!(
                "{name}, {shape:?}: {few} bytes for {}, {many} for {count}",
                count / 8
            );
            println!("{found}");
            assert!(many <= 12 * few, "{found}");
        }
    }
}
