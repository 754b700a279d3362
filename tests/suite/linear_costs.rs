//! Costs that must stay linear: a case is a function from a size to the number of its steps, and a
//! line of the table. Steps are counted, not timed: comparisons of keys, or calls of a journal's
//! storage and bytes that it reads.
//!
//! ```text
//!   steps(8 * size) <= 4 * 8 * steps(size)       four times for logarithms; a quadratic cost takes 64 times as many
//! ```

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use paranoid_memtable::flush::FlushItem;
use paranoid_memtable::{ChecksumKind, MemTable, MemTableOptions, WriteBatch};
use paranoid_set::{FileJournal, FlushJob, Journal, MemTableSet, RecoveryMode, SetOptions, View};

use crate::support::orders::{Script, Scripted};
use crate::support::rng::Watchdog;
use crate::support::sets::{Plan, SimDisk};
use crate::support::under;

/// A cost: the size of its smaller case, and the steps for a size.
type Cost = (&'static str, u64, fn(u64) -> u64);

/// The costs that must stay linear.
const COSTS: &[Cost] = &[
    (
        "a cursor of a set under one range delete over all keys, by keys: constant",
        500,
        cursor_under_one,
    ),
    (
        "it, where the keys are in an older table",
        500,
        cursor_over_an_older_table,
    ),
    (
        "it, where keys beside the range are written later",
        500,
        cursor_beside_later_puts,
    ),
    (
        "a cursor of a table, likewise",
        500,
        table_beside_later_puts,
    ),
    (
        "to make a cursor of a set, by range deletes of a frozen table: constant",
        200,
        make_over_frozen,
    ),
    (
        "a range delete and a cursor in turn",
        400,
        range_deletes_and_cursors_in_turn,
    ),
    (
        "a flush job of one table, by nested range deletes under as many snapshots",
        25,
        flush_one_nested,
    ),
    ("it, of two tables", 25, flush_two_nested),
    (
        "a flush of four tables, by their entries",
        200,
        flush_four_tables,
    ),
    (
        "a walk over a set of many tables of one key each, by keys and tables",
        8,
        walk_many_tables,
    ),
    (
        "a replay of many tables of one batch each into a set, by comparisons",
        8,
        replay_many_tables,
    ),
    ("it, by calls of the storage and bytes", 8, read_many_tables),
    (
        "openings of a journal, one after the other, by calls of the storage",
        32,
        openings,
    ),
    (
        "it, with a batch written after each, by calls that change something",
        8,
        openings_with_a_batch,
    ),
];

/// Red for `jump_ends_at_any_put`, `durable_written_anew`.
#[test]
fn costs_that_must_stay_linear() {
    let _watchdog = Watchdog::new("linear_costs::costs_that_must_stay_linear", 0);
    let mut worse = Vec::new();
    for (name, size, cost) in COSTS {
        let (few, many) = (cost(*size), cost(8 * *size));
        println!("{name}: {few} steps for {size}, {many} for {}", 8 * size);
        if many > 4 * 8 * few {
            worse.push(format!(
                "{name}: {few} steps for {size}, {many} for {}",
                8 * size
            ));
        }
    }
    assert!(worse.is_empty(), "worse than linear:\n{}", worse.join("\n"));
}

/// Bytewise order that counts its comparisons.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Script for Counting {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.0.fetch_add(1, Relaxed);
        left.cmp(right)
    }
}

type Set = MemTableSet<()>;

/// Options of tables that have the same towers each time, so that the steps are the same.
fn options(order: &Scripted) -> MemTableOptions {
    under(MemTableOptions::builder().seed(3), order.clone())
}

/// A set whose comparisons are counted, and its order.
fn set() -> (Set, Scripted) {
    let order = Scripted::new(Counting::default());
    let options = SetOptions::builder()
        .table(options(&order))
        .max_write_buffer_number(u64::MAX)
        .build()
        .unwrap();
    (MemTableSet::open(options, ()).unwrap(), order)
}

/// The number of comparisons of a call.
fn comparisons<T>(order: &Scripted, call: impl FnOnce() -> T) -> u64 {
    let asked = &order.script::<Counting>().0;
    let before = asked.load(Relaxed);
    call();
    asked.load(Relaxed) - before
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A batch of puts.
fn puts(numbers: impl Iterator<Item = u64>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    numbers.for_each(|number| batch.put(key(number), b"v").unwrap());
    batch
}

fn range_delete(set: &Set, from: u64, to: u64) {
    let mut batch = WriteBatch::new();
    batch.delete_range(key(from), key(to)).unwrap();
    set.write(&batch).unwrap();
}

/// Walks over all that a view shows, both ways. Returns the number of entries.
fn walk(view: &View<()>) -> u64 {
    let (mut count, mut cursor) = (0, view.cursor().unwrap());
    let mut entry = cursor.first().unwrap().is_some();
    while entry {
        count += 1;
        entry = cursor.next().unwrap().is_some();
    }
    let mut entry = cursor.last().unwrap().is_some();
    while entry {
        count += 1;
        entry = cursor.prev().unwrap().is_some();
    }
    count
}

/// Turns a cost that may only grow by logarithms into one that may grow with the size.
fn constant(size: u64, steps: u64) -> u64 {
    size * steps.max(1)
}

fn cursor_under_one(keys: u64) -> u64 {
    let (set, order) = set();
    set.write(&puts(0..keys)).unwrap();
    range_delete(&set, 0, keys);
    let view = set.view();
    constant(keys, comparisons(&order, || assert_eq!(walk(&view), 0)))
}

fn cursor_over_an_older_table(keys: u64) -> u64 {
    let (set, order) = set();
    set.write(&puts(0..keys)).unwrap();
    set.switch().unwrap();
    range_delete(&set, 0, keys);
    let view = set.view();
    constant(keys, comparisons(&order, || assert_eq!(walk(&view), 0)))
}

/// Puts before and after all other keys.
fn beside(keys: u64) -> WriteBatch {
    puts([0, keys].into_iter())
}

fn cursor_beside_later_puts(keys: u64) -> u64 {
    let (set, order) = set();
    set.write(&puts(1..keys)).unwrap();
    range_delete(&set, 1, keys);
    set.write(&beside(keys)).unwrap();
    let view = set.view();
    constant(keys, comparisons(&order, || assert_eq!(walk(&view), 4)))
}

fn table_beside_later_puts(keys: u64) -> u64 {
    let order = Scripted::new(Counting::default());
    let table = MemTable::new(options(&order)).unwrap();
    table.write_batch(1, &puts(1..keys)).unwrap();
    table.delete_range(keys, key(1), key(keys)).unwrap();
    table.write_batch(keys + 1, &beside(keys)).unwrap();
    constant(
        keys,
        comparisons(&order, || {
            assert_eq!(table.range_at(.., keys + 2).count(), 2)
        }),
    )
}

fn make_over_frozen(ranges: u64) -> u64 {
    let (set, order) = set();
    (0..ranges).for_each(|number| range_delete(&set, 2 * number, 2 * number + 1));
    set.switch().unwrap();
    drop(set.begin_flush().unwrap());
    let view = set.view();
    constant(ranges, comparisons(&order, || view.cursor().unwrap()))
}

fn range_deletes_and_cursors_in_turn(turns: u64) -> u64 {
    let (set, order) = set();
    comparisons(&order, || {
        for number in 0..turns {
            range_delete(&set, 2 * number, 2 * number + 1);
            let mut cursor = set.view().cursor().unwrap();
            assert!(cursor.seek(key(number)).unwrap().is_none());
        }
    })
}

/// The number of comparisons of a flush.
fn flush(set: &Set, order: &Scripted) -> u64 {
    let mut job: FlushJob<()> = set.begin_flush().unwrap().expect("a sealed table");
    let mut sequences = 0;
    let steps = comparisons(order, || {
        let mut items = job.items().unwrap();
        while let Some(item) = items.next().unwrap() {
            if let FlushItem::Fragment(fragment) = item {
                sequences += fragment.sequences().len();
            }
        }
    });
    job.install(|_| Ok(())).unwrap();
    assert!(sequences > 0 || steps > 0);
    steps
}

/// The comparisons of a flush of nested range deletes in some tables, with a snapshot after each.
fn flush_nested(ranges: u64, tables: u64) -> u64 {
    let (set, order) = set();
    let mut snapshots = Vec::new();
    for number in 0..ranges {
        range_delete(&set, number, 2 * ranges + 1 - number);
        snapshots.push(set.snapshot());
        if (number + 1) % (ranges / tables) == 0 {
            set.switch().unwrap();
        }
    }
    flush(&set, &order)
}

fn flush_one_nested(ranges: u64) -> u64 {
    flush_nested(ranges, 1)
}

fn flush_two_nested(ranges: u64) -> u64 {
    flush_nested(ranges, 2)
}

fn flush_four_tables(entries: u64) -> u64 {
    let (set, order) = set();
    for table in 0..4 {
        set.write(&puts((0..entries).filter(|number| number % 4 == table)))
            .unwrap();
        set.switch().unwrap();
    }
    flush(&set, &order)
}

fn walk_many_tables(tables: u64) -> u64 {
    let (set, order) = set();
    for table in 0..tables {
        set.write(&puts(table..table + 1)).unwrap();
        set.switch().unwrap();
    }
    let view = set.view();
    comparisons(&order, || assert_eq!(walk(&view), 2 * tables)) / tables
}

/// Opens a journal and replays its batches into a set. Returns the number of batches.
fn replay(disk: &SimDisk, set: &Set) -> (FileJournal, u64) {
    let (journal, recovery) = FileJournal::open_in(
        Arc::new(disk.clone()),
        0,
        ChecksumKind::Xxh3,
        RecoveryMode::AbsoluteConsistency,
    )
    .unwrap();
    let replayed = recovery
        .replay(|_, batch| set.replay(&batch).map(drop))
        .unwrap();
    (journal, replayed.batches)
}

/// Writes a batch of one key with this number.
fn log(journal: &FileJournal, number: u64) {
    let mut batch = puts(number..number + 1);
    batch.set_sequence(number);
    journal.append(batch.as_bytes()).unwrap();
    journal.write().unwrap();
}

/// The calls of the storage, and the bytes, of an opening.
fn opening(disk: &SimDisk, batches: u64) -> u64 {
    let (steps, bytes) = (disk.steps(), disk.reads().bytes);
    assert_eq!(replay(disk, &set().0).1, batches);
    disk.steps() - steps + disk.reads().bytes - bytes
}

/// A disk with a journal of many tables of one batch each.
fn many_tables(tables: u64) -> SimDisk {
    let disk = SimDisk::new(1, Plan::default());
    let (journal, _) = replay(&disk, &set().0);
    for table in 1..=tables {
        journal.switch(table).unwrap();
        log(&journal, table);
        journal.sync().unwrap();
    }
    disk
}

fn replay_many_tables(tables: u64) -> u64 {
    let (set, order) = set();
    let disk = many_tables(tables);
    comparisons(&order, || assert_eq!(replay(&disk, &set).1, tables))
}

fn read_many_tables(tables: u64) -> u64 {
    opening(&many_tables(tables), tables)
}

/// Opens a journal `openings` times and switches, as processes do that end without closing it.
/// Writes `batches` batches each time.
fn open_again_and_again(openings: u64, batches: u64) -> SimDisk {
    let disk = many_tables(1);
    for number in 0..openings {
        let (journal, found) = replay(&disk, &set().0);
        assert_eq!(found, 1 + number * batches);
        journal.switch(journal.next_table()).unwrap();
        (1..=batches).for_each(|batch| log(&journal, found + batch));
        std::mem::forget(journal);
    }
    disk
}

fn openings(openings: u64) -> u64 {
    open_again_and_again(openings, 0).steps()
}

fn openings_with_a_batch(openings: u64) -> u64 {
    let disk = open_again_and_again(openings, 1);
    disk.steps() - disk.reads().calls
}

/// The costs of walks: runs of hidden entries, and comparators that contradict themselves. They are
/// counted in comparisons and in steps, not in time.
mod walk_costs {
    use std::cmp::Ordering;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use paranoid_memtable::{
        Bytewise, Comparator, Directory, DuplicatePolicy, MemTable, MemTableOptions, TableReader,
    };
    use paranoid_memtable::{KeyEquality, KeyOrder};

    use crate::support::orders::{Script, Scripted, script};
    use crate::support::rng::{Watchdog, scramble, seed_or};
    use crate::support::under;

    /// Bytewise order that counts its comparisons, and one in a number of answers is wrong (0:
    /// none).
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

    /// Bytewise order by images, so that its tables have a directory. It counts its comparisons.
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

    /// A newer version of the writer's last key is found from that key, not by the directory, in
    /// which all versions are equal.
    #[test]
    fn newer_versions_of_one_key_cost_a_few_comparisons() {
        const COUNT: u64 = 20_000;
        let _watchdog = Watchdog::new(
            "linear_costs::walk_costs::newer_versions_of_one_key_cost_a_few_comparisons",
            0,
        );
        let counting = Arc::new(CountingImages::default());
        let order = Arc::<CountingImages>::clone(&counting);
        let options = MemTableOptions::builder()
            .directory(Directory::On)
            .comparator(order)
            .build()
            .unwrap();
        let table = MemTable::new(options).unwrap();
        let mut writer = table.writer();
        for n in 0..COUNT {
            writer.put(n + 1, b"key", b"").unwrap();
        }
        let each = counting.0.load(Relaxed) as f64 / COUNT as f64;
        assert!(each < 4.0, "{each:.1} comparisons per insert");
    }

    /// Runs every walk over all entries, and calls `step` around each step. Returns the number of
    /// items.
    fn walk_everything(table: &TableReader, snapshot: u64, mut step: impl FnMut(&str)) -> usize {
        let mut count = 0;
        let mut seen = |what: &str| {
            count += 1;
            step(what);
        };
        let names = [
            "range",
            "range_at",
            "range back",
            "range_at back",
            "both ends",
            "range_descending",
        ];
        table.range(..).for_each(|_| seen(names[0]));
        table.range_at(.., snapshot).for_each(|_| seen(names[1]));
        table.range(..).rev().for_each(|_| seen(names[2]));
        table
            .range_at(.., snapshot)
            .rev()
            .for_each(|_| seen(names[3]));
        let mut both = table.range_at(.., snapshot);
        while both.next().is_some() && both.next_back().is_some() {
            seen(names[4]);
        }
        table.range(..).descending().for_each(|_| seen(names[5]));
        let (mut raw, mut resolved) = (table.cursor().owned(), table.cursor_at(snapshot).owned());
        for key in [b"a".as_slice(), b"m", b"z"] {
            let _ = (raw.seek(key).is_ok(), seen("seek"));
            let _ = (raw.seek_for_prev(key).is_ok(), seen("seek_for_prev"));
            let _ = (resolved.seek(key).is_ok(), seen("resolved seek"));
            let _ = (
                resolved.seek_for_prev(key).is_ok(),
                seen("resolved seek_for_prev"),
            );
        }
        count
    }

    /// A run of hidden entries costs a search and not a step per entry, in every direction and
    /// under every visibility.
    #[test]
    fn many_overwrites_and_versions_of_one_key_cost_a_search() {
        const OVERWRITES: u64 = 20_000;
        let _watchdog = Watchdog::new(
            "linear_costs::walk_costs::many_overwrites_and_versions_of_one_key_cost_a_search",
            0,
        );
        for policy in [DuplicatePolicy::Replace, DuplicatePolicy::Reject] {
            let options = MemTableOptions::builder().duplicates(policy).seed(11);
            let table = MemTable::new(under(options, Scripted::new(Counting::default()))).unwrap();
            let mut writer = table.writer();
            writer.put(1, b"a", b"").unwrap();
            writer.put(2, b"z", b"").unwrap();
            for number in 0..OVERWRITES {
                // The entries are replaced, or are versions that the snapshot does not see.
                let sequence = if policy == DuplicatePolicy::Replace {
                    5
                } else {
                    100 + number
                };
                writer.put(sequence, b"m", number.to_le_bytes()).unwrap();
            }
            let check = |table: &TableReader| {
                let raw = policy == DuplicatePolicy::Replace;
                let (mut before, mut most) = (
                    script::<Counting>(table.comparator()).asked.load(Relaxed),
                    0,
                );
                let mut step = |what: &str| {
                    let now = script::<Counting>(table.comparator()).asked.load(Relaxed);
                    most = most.max(now - before);
                    before = now;
                    assert!(
                        most < 400,
                        "a step of {what} under {policy:?} asks {most} times"
                    );
                };
                if raw {
                    walk_everything(table, u64::MAX, &mut step);
                } else {
                    // A raw scan shows all versions, so only reads at a snapshot are counted.
                    table.range_at(.., 50).for_each(|_| step("range_at"));
                    table
                        .range_at(.., 50)
                        .rev()
                        .for_each(|_| step("range_at back"));
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
        let _watchdog = Watchdog::new(
            "linear_costs::walk_costs::a_comparator_that_lies_ends_every_walk",
            seed,
        );
        const ENTRIES: u64 = 60;
        for (policy, lies) in [
            (DuplicatePolicy::Reject, 8),
            (DuplicatePolicy::Replace, 8),
            (DuplicatePolicy::Reject, 2),
        ] {
            for round in 0..20 {
                let options = MemTableOptions::builder()
                    .duplicates(policy)
                    .seed(seed + round);
                let table =
                    MemTable::new(under(options, Scripted::new(Counting::default()))).unwrap();
                for number in 0..ENTRIES {
                    table
                        .put(number / 3, [b'a' + (number * 7 % 20) as u8], [number as u8])
                        .ok();
                }
                table.delete_range(ENTRIES, b"f", b"h").unwrap();
                script::<Counting>(table.comparator())
                    .asked
                    .store(scramble(seed ^ round) >> 1, Relaxed);
                script::<Counting>(table.comparator())
                    .lies
                    .store(lies, Relaxed);
                let mut steps = 0;
                let count = walk_everything(&table, ENTRIES / 4, |what| {
                    steps += 1;
                    assert!(
                        steps < 40 * ENTRIES,
                        "{what} does not end; seed {seed}, round {round}"
                    );
                });
                assert!(count > 0);
            }
        }
    }
}
