//! What cursors offer to engines that keep them: strict seeks, bounds and prefixes set anew, merge operands.
//!
//! The oracle is the scan of the whole table.

use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::read::{Base, Operands};
use paranoid_memtable::{Bytewise, Entry, Kind, Lookup, MemTable, MemTableOptions, Result};

use crate::support::orders::{CaseBlind, Order, Reverse};
use crate::support::rng::{Rng, amount, amount_or_few, seed_or};
use crate::support::under::under;
use crate::support::watchdog::{Watchdog, replay_line};

/// Keys that share beginnings, under every order.
fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.index(4)).map(|_| *rng.pick(b"aAbB\xff")).collect()
}

fn filled<C: Order>(rng: &mut Rng) -> MemTable {
    let options = MemTableOptions::builder().write_buffer_size(64 << 10);
    let table = MemTable::new(under(options.seed(rng.next_u64()), C::default())).unwrap();
    for sequence in 1..=rng.below(if cfg!(miri) { 8 } else { 60 }) {
        let kind = *rng.pick(&[Kind::PUT, Kind::PUT, Kind::MERGE, Kind::DELETE, Kind::custom(1)]);
        let value = if kind == Kind::DELETE { vec![] } else { rng.bytes(3) };
        table.insert(sequence, kind, &key(rng), &value).unwrap();
    }
    table.delete_range(70, b"A", b"b").or_else(|_| table.delete_range(70, b"b", b"A")).unwrap();
    table
}

/// Key and sequence number of everything that a walk shows.
fn shown(table: &MemTable) -> Vec<(Vec<u8>, u64)> {
    let row = |entry: Result<paranoid_memtable::Entry<'_>>| {
        let entry = entry.unwrap();
        (entry.user_key().to_vec(), entry.sequence())
    };
    table.range(..).map(row).collect()
}

fn check<C: Order>(rng: &mut Rng, replay: &str) {
    let table = filled::<C>(rng);
    let rows = shown(&table);
    let mut cursor = table.owned_cursor();
    for _ in 0..if cfg!(miri) { 2 } else { 40 } {
        let at = key(rng);
        let before = rows.iter().rfind(|(key, _)| C::plainly(key, &at).is_lt());
        let found =
            cursor.seek_before(&at).unwrap().map(|entry| (entry.user_key().to_vec(), entry.sequence()));
        assert_eq!(found.as_ref(), before, "seek_before {at:?}; {replay}");
        assert_eq!(cursor.is_valid(), before.is_some());
        cursor.status().unwrap();

        let inside: Vec<_> = rows.iter().filter(|(key, _)| key.starts_with(&at)).cloned().collect();
        cursor.set_prefix(&at);
        assert!(!cursor.is_valid());
        let mut there = vec![];
        let mut entry = cursor.first().unwrap();
        while let Some(found) = entry {
            there.push((found.user_key().to_vec(), found.sequence()));
            entry = cursor.next().unwrap();
        }
        assert_eq!(there, inside, "prefix {at:?}; {replay}");
        let mut back = vec![];
        let mut entry = cursor.last().unwrap();
        while let Some(found) = entry {
            back.push((found.user_key().to_vec(), found.sequence()));
            entry = cursor.prev().unwrap();
        }
        back.reverse();
        assert_eq!(back, inside, "prefix {at:?} backward; {replay}");
        let from = key(rng);
        let next = inside.iter().find(|(key, _)| C::plainly(key, &from).is_ge());
        let sought = cursor.seek(&from).unwrap().map(|entry| entry.sequence());
        assert_eq!(sought, next.map(|(_, sequence)| *sequence), "prefix {at:?}, seek {from:?}; {replay}");
        let mut turned = table.cursor().with_prefix(b"b");
        turned.set_bounds(at.as_slice()..);
        let first = rows.iter().find(|(key, _)| C::plainly(key, &at).is_ge());
        let found = turned.first().unwrap().map(|entry| entry.sequence());
        assert_eq!(found, first.map(|(_, sequence)| *sequence), "bounds after a prefix; {replay}");
        cursor.set_bounds::<&[u8]>(..);
    }
    operands(&table, replay);
}

type Merged = (Vec<(u64, Vec<u8>)>, Option<Option<Vec<u8>>>);

fn merged(operands: Operands<'_>) -> Merged {
    let base = match operands.base().unwrap() {
        Base::Value(value) => Some(Some(value.to_vec())),
        Base::Deleted => Some(None),
        Base::Below => None,
    };
    let operand = |operand: Result<paranoid_memtable::read::Operand<'_>>| {
        let operand = operand.unwrap();
        (operand.sequence, operand.value.to_vec())
    };
    (operands.map(operand).collect(), base)
}

/// At every snapshot a cursor's operands are those of the get of its key.
fn operands(table: &MemTable, replay: &str) {
    for snapshot in [5, 20, 40, 69, 70].into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
        let mut cursor = table.owned_cursor_at(snapshot);
        cursor.first().unwrap();
        while let Some(entry) = cursor.entry().unwrap() {
            let looked_up = match table.get(entry.user_key(), snapshot).unwrap() {
                Lookup::Merge(operands) => Some(merged(operands)),
                Lookup::Value(_) => None,
                other => panic!("a key that is shown: {other:?}; {replay}"),
            };
            assert_eq!(cursor.operands().unwrap().map(merged), looked_up, "at {snapshot}; {replay}");
            cursor.next().unwrap();
        }
        assert!(cursor.operands().unwrap().is_none(), "off the end");
    }
}

#[test]
fn kept_cursors_under_every_order() {
    let mut seed = seed_or(std::process::id().into());
    println!("cursors::kept_cursors_under_every_order: seed {seed:#x}");
    for _ in 0..amount(2_000, 12) {
        let (test, _watchdog) = ("cursors::kept_cursors_under_every_order", Watchdog::new("cursors", seed));
        let (mut rng, replay) = (Rng::new(seed), replay_line(test, seed));
        check::<Bytewise>(&mut rng, &replay);
        check::<Reverse>(&mut rng, &replay);
        check::<CaseBlind>(&mut rng, &replay);
        seed = rng.next_u64();
    }
}

/// The prefix filter answers for cursors under a custom order, too.
#[test]
fn a_prefix_filter_under_a_custom_order() {
    let options = MemTableOptions::builder().prefix_filter(FixedPrefix::new(2), 0.01);
    let table = MemTable::new(under(options, Reverse)).unwrap();
    for (sequence, key) in (1..).zip([b"abc", b"abd", b"bbc"]) {
        table.put(sequence, key, b"").unwrap();
    }
    let mut cursor = table.cursor();
    for (prefix, keys) in [(b"ab", &[b"abd", b"abc"][..]), (b"zz", &[]), (b"bb", &[b"bbc"])] {
        cursor.set_prefix(prefix);
        let mut found = vec![];
        let mut entry = cursor.first().unwrap();
        while let Some(there) = entry {
            found.push(there.user_key().to_vec());
            entry = cursor.next().unwrap();
        }
        assert_eq!(found, keys);
    }
}

/// Points that are written after range deletes, by several writers and not in the order of their numbers, end the jumps of
/// cursors over what is deleted.
#[test]
fn a_jump_over_a_range_delete_passes_nothing_that_is_shown() {
    let test = "cursors::a_jump_over_a_range_delete_passes_nothing_that_is_shown";
    let seed = seed_or(0x3a7);
    let _watchdog = Watchdog::new(test, seed);
    const KEYS: u64 = 24;
    for round in 0..amount_or_few(20_000, 300, 2) {
        let (replay, mut rng) = (replay_line(test, seed), Rng::new(seed.wrapping_add(round)));
        let table = MemTable::default();
        let mut writers = [(); 3].map(|()| table.writer());
        let mut numbers: Vec<u64> = (1..=50).collect();
        for _ in 0..rng.below(12) {
            let at = rng.index(numbers.len() - 3);
            numbers.swap(at, at + 3);
        }
        for number in numbers {
            let (writer, mut ends) = (rng.index(3), [rng.below(KEYS), rng.below(KEYS + 1)]);
            ends.sort_unstable();
            let [start, end] = ends.map(u64::to_be_bytes);
            if start < end && rng.one_in(4) {
                writers[writer].delete_range(number, &start, &end).unwrap();
            } else {
                writers[writer].put(number, &start, b"").unwrap();
            }
        }
        for snapshot in [50, 49, rng.below(50)] {
            let keys = (0..KEYS).map(u64::to_be_bytes);
            let is_shown = |key: &[u8; 8]| matches!(table.get(key, snapshot), Ok(Lookup::Value(_)));
            let expected: Vec<Vec<u8>> = keys.filter(is_shown).map(|key| key.to_vec()).collect();
            let key_of = |entry: Result<Entry<'_>>| entry.unwrap().user_key().to_vec();
            let forward: Vec<Vec<u8>> = table.range_at(snapshot, ..).map(key_of).collect();
            assert_eq!(forward, expected, "at {snapshot}, round {round}; {replay}");
            let mut backward: Vec<Vec<u8>> = table.range_at(snapshot, ..).rev().map(key_of).collect();
            backward.reverse();
            assert_eq!(backward, expected, "back at {snapshot}, round {round}; {replay}");
        }
    }
}

/// Cursors count what they look at and do not show, the same both ways, and the table sums it up if it has statistics.
#[test]
fn hidden_entries_are_counted_both_ways() {
    let options = MemTableOptions::builder().statistics(true).write_buffer_size(16 << 10);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    table.put(1, b"apple", b"").unwrap();
    table.delete(2, b"apple").unwrap();
    for (sequence, key) in [(3, b"pear"), (4, b"plum"), (5, b"plum"), (6, b"plum")] {
        table.put(sequence, key, b"").unwrap();
    }
    let key = |entry: Option<Entry<'_>>| entry.map(|entry| (entry.user_key().to_vec(), entry.sequence()));
    let (pear, plum) = (Some((b"pear".to_vec(), 3)), Some((b"plum".to_vec(), 5)));

    let mut cursor = table.cursor_at(5);
    assert_eq!(key(cursor.first().unwrap()), pear);
    assert_eq!(cursor.hidden_entries(), 2, "both versions of apple");
    assert_eq!(key(cursor.next().unwrap()), plum);
    assert_eq!(cursor.hidden_entries(), 3, "plum@6 is too new");
    assert_eq!(key(cursor.next().unwrap()), None);
    assert_eq!(cursor.hidden_entries(), 4, "plum@4 is older");
    assert_eq!(key(cursor.last().unwrap()), plum);
    assert_eq!(cursor.hidden_entries(), 5);
    assert_eq!(key(cursor.prev().unwrap()), pear);
    assert_eq!(cursor.hidden_entries(), 6);
    assert_eq!(key(cursor.prev().unwrap()), None);
    assert_eq!((cursor.hidden_entries(), table.stats().hidden_entries), (8, 8));

    table.delete_range(7, b"pear", b"quince").unwrap();
    let mut cursor = table.owned_cursor_at(7);
    assert!(cursor.first().unwrap().is_none() && cursor.hidden_entries() > 0, "covered entries");
    let (hidden, before) = (cursor.hidden_entries(), table.stats().hidden_entries);
    assert_eq!(before, 8 + hidden);
    assert_eq!(table.range_at(5, ..).rev().count(), 2);
    assert_eq!(table.stats().hidden_entries, before + 4, "ranges count as well");
    let mut raw = table.cursor();
    while raw.next().unwrap().is_some() {}
    assert_eq!(raw.hidden_entries(), 0, "a raw cursor hides only what was replaced");
}
