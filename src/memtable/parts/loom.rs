//! Loom models of writer shards: a freeze beside writers, and a cursor that jumps over a watched
//! tombstone beside them. All actors are spawned threads.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::integrity::tag::Secret;
use crate::memtable::directory::loom as directory;
use crate::memtable::options::MemTableOptions;
use crate::memtable::parts::writer_shards::{Entered, Totals, WriterShards};
use crate::memtable::table::MemTable;
use crate::sync::model;
use crate::sync::model::{JoinHandle, spawn};
use crate::tombstone::live::CoveringRun;
use crate::tombstone::query::Question;

/// A write of two halves. No freeze may see only one of them.
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

/// A write inside a free shard. Returns whether it was admitted.
fn write(gate: &WriterShards, write: impl FnOnce(&mut Entered<'_>)) -> bool {
    gate.enter_free()
        .map(|mut entered| write(&mut entered))
        .is_some()
}

/// A write through the shared shards. Returns whether it was admitted.
fn put(gate: &Arc<WriterShards>) -> JoinHandle<bool> {
    let gate = Arc::clone(gate);
    spawn(move || write(&gate, count_twice))
}

/// A write through a shard of its own.
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

/// Freezes, and returns the totals, which include every admitted write in full.
fn freeze(gate: &Arc<WriterShards>) -> JoinHandle<Totals> {
    let gate = Arc::clone(gate);
    spawn(move || {
        gate.freeze().unwrap();
        let sealed = gate.totals();
        assert_eq!(sealed.entries % 2, 0, "a writer is still inside");
        assert!(!write(&gate, |_| ()), "the freezer itself is kept out");
        sealed
    })
}

fn check(gate: &WriterShards, writers: [JoinHandle<bool>; 2], freezer: JoinHandle<Totals>) {
    let let_in = writers
        .map(|writer| writer.join().unwrap())
        .iter()
        .filter(|entered| **entered)
        .count();
    let sealed = freezer.join().unwrap();
    assert_eq!(sealed, gate.totals(), "nothing is written after the freeze");
    assert_eq!(
        sealed.entries,
        2 * let_in as u64,
        "who was let in is counted, who was not is not"
    );
    assert_eq!(gate.sequences().is_some(), let_in > 0);
}

/// The first shards are made by one of the writers, before the freeze or after it. Red for
/// `freeze_skips_busy_shards`, `homes_born_open`.
#[test]
fn loom_a_freeze_waits_for_who_is_inside() {
    model::check(|| {
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        let (writers, freezer) = ([put(&gate), put(&gate)], freeze(&gate));
        check(&gate, writers, freezer);
    });
}

/// Red for `freeze_skips_busy_shards`, `lease_born_open`.
#[test]
fn loom_a_freeze_closes_shards_to_come() {
    model::check(|| {
        let gate = Arc::new(WriterShards::new(Secret::from_seed(1)));
        let (writers, freezer) = ([put_leased(&gate), put_leased(&gate)], freeze(&gate));
        check(&gate, writers, freezer);
    });
}

/// A writer names its node before it leaves its shard, so a freeze leaves nobody behind who writes
/// pages. Red for `freeze_skips_busy_shards`.
#[test]
fn loom_a_freeze_waits_for_names() {
    model::check(|| {
        let (gate, table) = (
            Arc::new(WriterShards::new(Secret::from_seed(1))),
            directory::Table::new(4, &[0, 3]),
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

/// A thread whose write was refused is refused by every other shard as well, also by one that the
/// freeze closes last. Red for `refused_too_early`.
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

/// The first write of a table makes shards and a chunk. A reader beside it that began with neither
/// finds the entry or nothing.
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

/// A table with an entry for tombstones to hide, a newer one beside it, and a tombstone of which no
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

/// A put that lies under no tombstone, whose shard learns of those that are watched.
fn put_z(table: &MemTable) -> JoinHandle<()> {
    let table = table.clone();
    spawn(move || table.put(6, b"z", b"").map(drop).unwrap())
}

fn assert_b_is_shown(table: &MemTable) {
    let mut entries = table
        .range_at(9, ..)
        .map(|entry| entry.unwrap().user_key() == b"b");
    assert!(
        entries.any(|is_b| is_b),
        "a jump over the tombstone passed a newer entry"
    );
}

/// A jump passes no newer entry whose put returned before, while its shard learns of the tombstone
/// (WATCHES-2). Red for `known_before_noted`.
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

/// A jump passes no newer entry where its tombstone is watched while a shard learns of an older one
/// (WATCHES-2). Red for `watch_published_relaxed`.
#[test]
fn loom_a_jump_over_what_is_watched_meanwhile() {
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

/// What a shard counted and noted is never less than its newest entry under a tombstone that is
/// watched late: until then, its slot names an older tombstone (WATCHES-3). Red for
/// `watched_number_believed`, `known_without_a_slot`.
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
