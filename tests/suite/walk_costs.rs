//! The costs of walks: runs of entries that are not shown, and comparators that contradict themselves. Counted in
//! comparisons and in steps, not in time.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use paranoid_memtable::{
    Bytewise, Comparator, Directory, DuplicatePolicy, MemTable, MemTableOptions, TableReader,
};
use paranoid_memtable::{KeyEquality, KeyOrder};

use super::support::orders::{Script, Scripted, script};
use super::support::rng::{scramble, seed_or};
use super::support::under::under;
use super::support::watchdog::Watchdog;

/// Bytewise order that counts its comparisons, and answers wrongly once in so many times (0: never).
#[derive(Debug, Default)]
struct Counting {
    asked: AtomicU64,
    lies: AtomicU64,
}

impl Script for Counting {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let asked = self.asked.fetch_add(1, Relaxed);
        match self.lies.load(Relaxed) {
            0 => left.cmp(right),
            lies if scramble(asked).is_multiple_of(lies) => right.cmp(left),
            _ => left.cmp(right),
        }
    }
}

/// Bytewise order by images, so that its tables have a directory; counts its comparisons.
#[derive(Debug, Default)]
struct CountingImages(AtomicU64);

impl Comparator for CountingImages {
    fn name(&self) -> &str {
        "test.CountingImages"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.0.fetch_add(1, Relaxed);
        left.cmp(right)
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Images
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        Bytewise.image(key, at)
    }
}

/// A newer version of the writer's last key is found from that one, not by the directory, where all versions tie.
#[test]
fn newer_versions_of_one_key_cost_a_few_comparisons() {
    const COUNT: u64 = 20_000;
    let _watchdog = Watchdog::new("walk_costs::newer_versions_of_one_key_cost_a_few_comparisons", 0);
    let counting = Arc::new(CountingImages::default());
    let order = Arc::<CountingImages>::clone(&counting);
    let options = MemTableOptions::builder().directory(Directory::On).comparator(order).build().unwrap();
    let table = MemTable::new(options).unwrap();
    let mut writer = table.writer();
    for n in 0..COUNT {
        writer.put(n + 1, b"key", b"").unwrap();
    }
    let each = counting.0.load(Relaxed) as f64 / COUNT as f64;
    assert!(each < 4.0, "{each:.1} comparisons per insert");
}

/// Runs every walk over all entries, and calls `step` around each step. Returns how many items there were.
fn walk_everything(table: &TableReader, snapshot: u64, mut step: impl FnMut(&str)) -> usize {
    let mut count = 0;
    let mut seen = |what: &str| {
        count += 1;
        step(what);
    };
    let names = ["range", "range_at", "range back", "range_at back", "both ends", "range_descending"];
    table.range(..).for_each(|_| seen(names[0]));
    table.range_at(snapshot, ..).for_each(|_| seen(names[1]));
    table.range(..).rev().for_each(|_| seen(names[2]));
    table.range_at(snapshot, ..).rev().for_each(|_| seen(names[3]));
    let mut both = table.range_at(snapshot, ..);
    while both.next().is_some() && both.next_back().is_some() {
        seen(names[4]);
    }
    table.range_descending(..).for_each(|_| seen(names[5]));
    let (mut raw, mut resolved) = (table.owned_cursor(), table.owned_cursor_at(snapshot));
    for key in [b"a".as_slice(), b"m", b"z"] {
        let _ = (raw.seek(key).is_ok(), seen("seek"));
        let _ = (raw.seek_for_prev(key).is_ok(), seen("seek_for_prev"));
        let _ = (resolved.seek(key).is_ok(), seen("resolved seek"));
        let _ = (resolved.seek_for_prev(key).is_ok(), seen("resolved seek_for_prev"));
    }
    count
}

/// A run of entries that are not shown costs a search and not a step per entry, in every direction and under every
/// visibility.
#[test]
fn many_overwrites_and_versions_of_one_key_cost_a_search() {
    const OVERWRITES: u64 = 20_000;
    let _watchdog = Watchdog::new("walk_costs::many_overwrites_and_versions_of_one_key_cost_a_search", 0);
    for policy in [DuplicatePolicy::Replace, DuplicatePolicy::Reject] {
        let options = MemTableOptions::builder().duplicates(policy).seed(11);
        let table = MemTable::new(under(options, Scripted::new(Counting::default()))).unwrap();
        let mut writer = table.writer();
        writer.put(1, b"a", b"").unwrap();
        writer.put(2, b"z", b"").unwrap();
        for number in 0..OVERWRITES {
            // Replaced entries, or versions that the snapshot does not see.
            let sequence = if policy == DuplicatePolicy::Replace { 5 } else { 100 + number };
            writer.put(sequence, b"m", &number.to_le_bytes()).unwrap();
        }
        let check = |table: &TableReader| {
            let raw = policy == DuplicatePolicy::Replace;
            let (mut before, mut most) = (script::<Counting>(table.comparator()).asked.load(Relaxed), 0);
            let mut step = |what: &str| {
                let now = script::<Counting>(table.comparator()).asked.load(Relaxed);
                most = most.max(now - before);
                before = now;
                assert!(most < 400, "a step of {what} under {policy:?} asks {most} times");
            };
            if raw {
                walk_everything(table, u64::MAX, &mut step);
            } else {
                // A raw scan shows all versions, so only reads at a snapshot are counted.
                table.range_at(50, ..).for_each(|_| step("range_at"));
                table.range_at(50, ..).rev().for_each(|_| step("range_at back"));
                let mut cursor = table.cursor_at(50);
                cursor.seek_for_prev(b"y").unwrap();
                step("resolved seek_for_prev");
                cursor.seek(b"b").unwrap();
                step("resolved seek");
                cursor.prev().unwrap();
                step("resolved prev");
            }
            assert!(most > 0);
        };
        check(&table);
        check(&table.freeze().unwrap());
    }
}

/// A comparator that contradicts itself makes answers meaningless, but every walk ends.
#[test]
fn a_comparator_that_lies_ends_every_walk() {
    let seed = seed_or(8);
    let _watchdog = Watchdog::new("walk_costs::a_comparator_that_lies_ends_every_walk", seed);
    const ENTRIES: u64 = 60;
    for (policy, lies) in
        [(DuplicatePolicy::Reject, 8), (DuplicatePolicy::Replace, 8), (DuplicatePolicy::Reject, 2)]
    {
        for round in 0..20 {
            let options = MemTableOptions::builder().duplicates(policy).seed(seed + round);
            let table = MemTable::new(under(options, Scripted::new(Counting::default()))).unwrap();
            for number in 0..ENTRIES {
                table.put(number / 3, &[b'a' + (number * 7 % 20) as u8], &[number as u8]).ok();
            }
            table.delete_range(ENTRIES, b"f", b"h").unwrap();
            script::<Counting>(table.comparator()).asked.store(scramble(seed ^ round) >> 1, Relaxed);
            script::<Counting>(table.comparator()).lies.store(lies, Relaxed);
            let mut steps = 0;
            let count = walk_everything(&table, ENTRIES / 4, |what| {
                steps += 1;
                assert!(steps < 40 * ENTRIES, "{what} does not end; seed {seed}, round {round}");
            });
            assert!(count > 0);
        }
    }
}
