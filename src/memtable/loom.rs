//! Loom models of a table: writers beside a freeze, a reader, a scan that jumps over a watched range
//! tombstone, and the filter. All actors are spawned threads.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::integrity::digest::key_part;
use crate::integrity::tag::Secret;
use crate::memtable::core::Core;
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::get::Lookup;
use crate::memtable::shards::totals::Totals;
use crate::memtable::shards::writer_shard::Entered;
use crate::memtable::shards::writer_shards::WriterShards;
use crate::memtable::skiplist::loom as list_models;
use crate::memtable::table::MemTable;
use crate::sync::model;
use crate::sync::model::{JoinHandle, spawn};
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::CoveringRun;
use crate::tombstone::query::Question;

/// A write of two halves. No freeze may see only one half.
fn count_twice(entered: &mut Entered<'_>) {
    let one = Totals {
        entries: 1,
        data_bytes: 8,
        ..Totals::default()
    };
    entered.count(&one, 7);
    crate::sync::model::yield_now();
    entered.count(&one, 9);
}

/// Writes inside a free shard. Returns whether the write was admitted.
fn write(gate: &WriterShards, write: impl FnOnce(&mut Entered<'_>)) -> bool {
    gate.enter_free()
        .map(|mut entered| write(&mut entered))
        .is_some()
}

/// A thread that writes in a free shard. Returns whether its write was admitted.
fn put(gate: &Arc<WriterShards>) -> JoinHandle<bool> {
    let gate = Arc::clone(gate);
    spawn(move || write(&gate, count_twice))
}

/// A thread that writes in a leased shard. Returns whether its write was admitted.
fn put_leased(gate: &Arc<WriterShards>) -> JoinHandle<bool> {
    let gate = Arc::clone(gate);
    spawn(move || {
        let shard = gate.lease();
        let entered = gate
            .enter(shard)
            .map(|mut entered| count_twice(&mut entered));
        shard.release();
        entered.is_some()
    })
}

/// A thread that freezes. Returns the totals, which contain each admitted write as a whole.
fn freeze(gate: &Arc<WriterShards>) -> JoinHandle<Totals> {
    let gate = Arc::clone(gate);
    spawn(move || {
        gate.freeze().unwrap();
        let sealed = gate.totals();
        assert_eq!(sealed.entries % 2, 0, "a writer is still inside");
        assert!(!write(&gate, |_| ()), "the freezing thread is refused too");
        sealed
    })
}

fn check(gate: &WriterShards, writers: [JoinHandle<bool>; 2], freezer: JoinHandle<Totals>) {
    let admitted = writers
        .map(|writer| writer.join().unwrap())
        .iter()
        .filter(|entered| **entered)
        .count();
    let sealed = freezer.join().unwrap();
    assert_eq!(sealed, gate.totals(), "nothing is written after the freeze");
    assert_eq!(
        sealed.entries,
        2 * admitted as u64,
        "admitted writes are counted, refused ones are not"
    );
    assert_eq!(gate.sequences().is_some(), admitted > 0);
}

/// A freeze waits for the writers inside. A writer makes the first shards, before the freeze or
/// after it. Red for `freeze_skips_busy_shards`, `homes_born_open`.
#[test]
fn loom_a_freeze_waits_for_writers_inside() {
    model::check(|| {
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        let (writers, freezer) = ([put(&gate), put(&gate)], freeze(&gate));
        check(&gate, writers, freezer);
    });
}

/// A freeze closes shards that are leased after it. Red for `freeze_skips_busy_shards`,
/// `lease_born_open`.
#[test]
fn loom_a_freeze_closes_later_shards() {
    model::check(|| {
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        let (writers, freezer) = ([put_leased(&gate), put_leased(&gate)], freeze(&gate));
        check(&gate, writers, freezer);
    });
}

/// A writer names its node before it leaves its shard, so no thread writes pages after a freeze.
/// Red for `freeze_skips_busy_shards`.
#[test]
fn loom_a_freeze_waits_for_names() {
    model::check(|| {
        let (gate, table) = (
            Arc::new(WriterShards::new(Secret::from_seed(1))),
            list_models::directory::Table::new(4, &[0, 3]),
        );
        let writer = spawn({
            let (gate, table) = (Arc::clone(&gate), Arc::clone(&table));
            move || {
                write(&gate, |entered| {
                    table.name_and_link(1, &mut entered.inside.inserter)
                })
            }
        });
        let freezer = spawn({
            let table = Arc::clone(&table);
            move || {
                gate.freeze().unwrap();
                table.hint(1)
            }
        });
        let (is_named, frozen) = (writer.join().unwrap(), freezer.join().unwrap());
        assert_eq!(frozen, (Some(0), Some(if is_named { 1 } else { 3 })));
        assert_eq!(frozen, table.hint(1), "nothing is named after the freeze");
    });
}

/// After one shard has refused a thread's write, every other shard refuses it too, even the shard
/// that the freeze closes last. Red for `refused_too_early`.
#[test]
fn loom_after_a_refusal_nothing_is_admitted() {
    model::check(|| {
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        let shard = Arc::clone(gate.lease());
        let freezer = freeze(&gate);
        let writer = spawn({
            let gate = Arc::clone(&gate);
            move || {
                let first = write(&gate, count_twice);
                let second = gate
                    .enter(&shard)
                    .map(|mut entered| count_twice(&mut entered))
                    .is_some();
                assert!(
                    first || !second,
                    "a write was admitted after another one was refused"
                );
            }
        });
        writer.join().unwrap();
        freezer.join().unwrap();
    });
}

/// The first write of a table makes shards and a chunk. A reader that began before finds the entry
/// or nothing.
#[test]
fn loom_a_first_write_beside_a_reader() {
    model::check(|| {
        let options = MemTableOptions::builder()
            .write_buffer_size(1 << 16)
            .seed(1)
            .build()
            .unwrap();
        let table = MemTable::new(options).unwrap();
        let found = |table: &MemTable| {
            table
                .get_entry(b"z", 9)
                .unwrap()
                .map(|entry| entry.sequence())
        };
        let writer = put_z(&table);
        let reader = spawn({
            let table = table.clone();
            move || found(&table)
        });
        assert!(reader.join().unwrap().is_none_or(|sequence| sequence == 6));
        writer.join().unwrap();
        assert_eq!(found(&table), Some(6));
    });
}

/// A table with an entry `a` that a tombstone may hide, a newer entry `b`, and a tombstone that no
/// shard knows yet.
fn deleted(start: &[u8], end: &[u8]) -> MemTable {
    let options = MemTableOptions::builder()
        .write_buffer_size(1 << 16)
        .seed(1)
        .build()
        .unwrap();
    let table = MemTable::new(options).unwrap();
    table.put(4, b"a", b"").unwrap();
    table.put(7, b"b", b"").unwrap();
    table.delete_range(5, start, end).unwrap();
    table
}

/// A put under no tombstone. Its shard learns of the watched tombstones.
fn put_z(table: &MemTable) -> JoinHandle<()> {
    let table = table.clone();
    spawn(move || table.put(6, b"z", b"").map(drop).unwrap())
}

fn assert_b_is_shown(table: &MemTable) {
    let mut entries = table
        .range_at(.., 9)
        .map(|entry| entry.unwrap().user_key() == b"b");
    assert!(
        entries.any(|is_b| is_b),
        "a jump over the tombstone passed a newer entry"
    );
}

/// A jump passes no newer entry whose put returned before, while the entry's shard learns of the
/// tombstone (WATCHES-1). Red for `known_before_noted`.
#[test]
fn loom_a_jump_beside_a_shard_that_learns() {
    model::check(|| {
        let table = deleted(b"a", b"c");
        let writer = put_z(&table);
        let reader = spawn(move || assert_b_is_shown(&table));
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// A jump passes no newer entry if its tombstone is added while a shard learns of an older
/// tombstone (WATCHES-1). Red for `watch_published_relaxed`.
#[test]
fn loom_a_jump_over_a_tombstone_added_meanwhile() {
    model::check(|| {
        let table = deleted(b"x", b"y");
        let writer = put_z(&table);
        let reader = spawn(move || {
            table.delete_range(5, b"a", b"c").unwrap();
            assert_b_is_shown(&table);
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// A shard's number under a tombstone is never less than its newest entry there, even if another
/// thread stores the tombstone's slot late: until then the slot names an older tombstone
/// (WATCHES-2). Red for `watched_number_believed`, `known_without_a_slot`.
#[test]
fn loom_a_slot_that_names_an_older_tombstone() {
    model::check(|| {
        let table = deleted(b"u", b"v");
        let node = |number| table.core.shards.watches.node_of(number).unwrap();
        let first = node(1);
        let [second, third, fourth] =
            [(2, b"w", b"x"), (3, b"a", b"c"), (4, b"y", b"z")].map(|(number, start, end)| {
                table.delete_range(5, start, end).unwrap();
                node(number)
            });
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        gate.watches.add(1, first);
        gate.watches.add(2, second);
        let late = spawn({
            let gate = Arc::clone(&gate);
            move || gate.watches.add(3, third)
        });
        let writer = spawn({
            let (gate, table) = (Arc::clone(&gate), table.clone());
            move || {
                gate.watches.add(4, fourth);
                let mut entered = gate.enter_free().unwrap();
                entered.learn(&gate.watches);
                entered.count(
                    &Totals {
                        entries: 1,
                        ..Totals::default()
                    },
                    7,
                );
                let view = table.core.arena.view().unwrap();
                entered.note_point(&view, &table.core.comparator, b"b", 7);
            }
        });
        late.join().unwrap();
        writer.join().unwrap();
        let mut run = CoveringRun::default();
        let (core, question) = (&table.core, Question::new(b"b", 9));
        core.tombstones
            .covering_run(core.ground(), question, &mut run)
            .unwrap();
        assert_eq!(gate.largest_under(&run), 7);
    });
}

/// Fails for the planted bug `filter_after_publication`.
#[test]
fn loom_the_filter_hides_no_entry_that_a_scan_finds() {
    model::check(|| {
        let options = MemTableOptions::builder()
            .write_buffer_size(1 << 16)
            .seed(1)
            .whole_key_filter(0.007);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        let (writing, reading) = (table.clone(), table);
        let writer = spawn(move || writing.put(1, b"k", b"v").map(|_| ()).unwrap());
        let reader = spawn(move || {
            let mut cursor = reading.cursor();
            cursor.seek(b"k").unwrap();
            if cursor.is_valid() {
                assert!(
                    matches!(reading.get(b"k", 1).unwrap(), Lookup::Value(_)),
                    "the filter hides an entry"
                );
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// Adds a key to the filters, as a write does before it publishes its node.
fn announce(core: &Core, key: &[u8]) {
    let view = core.arena.view().unwrap();
    let mark = core.filters.mark(&view, key_part(key)).unwrap();
    let announced = core.filters.announce(&view, key, mark.as_ref());
    announced.map(drop).unwrap();
}

/// A filter grows beside a writer that announces in the part before, one that announces in the new
/// part, and a reader that knows of their keys. Fails for the planted bug
/// `part_replaces_the_one_before`.
#[test]
fn loom_a_filter_that_grows_hides_no_key() {
    model::check(|| {
        let options = MemTableOptions::builder()
            .write_buffer_size(1 << 12)
            .seed(1)
            .whole_key_filter_bits(64);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        announce(&table.core, b"before");
        let published = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let [early, late, reader] = [(); 3].map(|()| (table.clone(), Arc::clone(&published)));
        // ORDERING: Release pairs with the Acquire of the reader, as `publish_link` does.
        let publish = |word: &AtomicU64| word.store(1, Ordering::Release);
        let early = spawn(move || {
            announce(&early.0.core, b"a");
            publish(&early.1[0]);
        });
        let late = spawn(move || {
            late.0.core.filters.grow(&late.0.core.arena);
            announce(&late.0.core, b"b");
            publish(&late.1[1]);
        });
        let reader = spawn(move || {
            for (key, word) in [b"a", b"b"].into_iter().zip(&*reader.1) {
                // ORDERING: Acquire pairs with the Release of the writers.
                if word.load(Ordering::Acquire) == 1 {
                    let view = reader.0.core.arena.view().unwrap();
                    assert!(
                        !reader.0.core.filters.lacks(&view, key),
                        "the filter hides a key"
                    );
                }
            }
        });
        early.join().unwrap();
        late.join().unwrap();
        reader.join().unwrap();
    });
}
