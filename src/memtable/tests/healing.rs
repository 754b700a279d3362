//! Healed copies beside other threads, and after their table.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use crate::kind::Kind;
use crate::memtable::arena::layout::{BACK_AT, UNIT};
use crate::memtable::arena::node_words::{BackWord, Lengths};
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::get::PinnedValue;
use crate::memtable::table::MemTable;
use crate::sync::Ordering;

const VALUE: &[u8] = b"a value that is longer than a word";

/// A table with three entries. In the second one a bit of the value and its level-0 link flip, as
/// far as they are named.
fn damaged(units: &[i64]) -> MemTable {
    let table = MemTable::new(MemTableOptions::builder().seed(1).build().unwrap()).unwrap();
    for (sequence, key) in (1..).zip(["a", "b", "c"]) {
        table.put(sequence, key, VALUE).unwrap();
    }
    let view = table.core().arena.view().unwrap();
    for unit in units {
        let unit = u32::try_from(i64::from(second(&table)) + unit).unwrap();
        // ORDERING: Relaxed: one thread.
        view.word(unit)
            .unwrap()
            .fetch_xor(1 << 9, Ordering::Relaxed);
    }
    table
}

/// The offset of the second entry.
fn second(table: &MemTable) -> u32 {
    let search = table.core().point_search().unwrap();
    let first = search.view.link(search.sentinel, 0).unwrap();
    search.view.link(first, 0).unwrap()
}

/// The header check matches, but the lengths lead out of the chunk; the second length leads out of
/// 32 bits.
#[test]
fn an_entry_ends_inside_its_chunk() {
    let table = damaged(&[]);
    let (view, offset) = (table.core().arena.view().unwrap(), second(&table));
    for value_len in [1 << 30, u32::MAX as usize - 30] {
        let lengths = Lengths::pack(1, Kind::PUT, value_len).0;
        let (_, check) = view.secret.header(offset, lengths, 2, 0);
        let back = BackWord::pack(0, 0, check).0;
        for (at, word) in [(0, lengths), (u32::try_from(BACK_AT / UNIT).unwrap(), back)] {
            let place = view.word(offset + at).unwrap();
            // ORDERING: Relaxed: one thread.
            place.store(word, Ordering::Relaxed);
        }
        assert!(view.try_open(offset).is_none());
        assert!(view.entry(offset).is_err(), "nor is a copy made");
    }
}

/// Two threads heal one value at once. What they borrow and pin is right, also after the table.
#[test]
fn two_threads_heal_one_value_which_stays_pinned() {
    let table = damaged(&[7]);
    let before = table.allocated_bytes();
    let heal = || -> PinnedValue {
        let value = table.get("b", 9).unwrap().into_value().unwrap();
        let borrowed: &[u8] = &value;
        assert_eq!(borrowed, VALUE);
        value.to_pinned()
    };
    let pinned = std::thread::scope(|scope| {
        let other = scope.spawn(heal);
        [heal(), other.join().unwrap()]
    });
    assert_eq!(pinned[0].as_ptr(), pinned[1].as_ptr(), "one copy is kept");
    assert!(table.allocated_bytes() > before, "the copy is counted");
    assert_eq!(table.healed().len(), 1);
    #[cfg(feature = "bytes")]
    let both = {
        let entry = table.get_entry("b", 9).unwrap().unwrap();
        table.pin(&entry).unwrap()
    };
    drop(table);
    assert!(pinned.iter().all(|value| value == VALUE));
    #[cfg(feature = "bytes")]
    assert_eq!((&both.0[..], &both.1[..]), (b"b".as_slice(), VALUE));
}

/// A reader heals a link while a writer inserts in its place.
#[test]
fn a_link_heals_beside_a_writer() {
    let table = damaged(&[-1]);
    std::thread::scope(|scope| {
        scope.spawn(|| table.put(4, "bb", VALUE).unwrap());
        assert!(table.get("c", 9).unwrap().value() == Some(VALUE));
    });
    let keys: Vec<_> = table
        .range(..)
        .map(|entry| entry.unwrap().user_key().to_vec())
        .collect();
    assert_eq!(
        keys,
        [b"a".to_vec(), b"b".to_vec(), b"bb".to_vec(), b"c".to_vec()]
    );
    assert_eq!(table.healed().len(), 1);
}
