//! Chains and sorted arrays with damaged words.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::error::Result;
use crate::key::Bytewise;
use crate::memtable::options::{MemTableOptions, Representation};
use crate::memtable::parts::vector::chain;
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::arena::View;
use crate::memtable::table::MemTable;
use crate::sync::Ordering;

const KEYS: [&[u8]; 5] = [b"b", b"e", b"a", b"d", b"c"];

fn table() -> MemTable<Bytewise> {
    let options = MemTableOptions::builder().representation(Representation::Vector).seed(3).build();
    let table = MemTable::new(options.unwrap()).unwrap();
    let mut writer = table.writer();
    for (sequence, key) in (1..).zip(KEYS) {
        writer.put(sequence, key, key).unwrap();
    }
    table
}

fn found(table: &MemTable<Bytewise>, key: &[u8]) -> Result<bool> {
    table.get(key, u64::MAX).map(|answer| matches!(answer, Lookup::Value(value) if *value == *key))
}

/// VECTOR-1: with each link of a chain in turn naming another node, every entry is still found.
#[test]
fn a_broken_chain_is_read_from_its_other_end() {
    for broken in 0..=KEYS.len() {
        let table = table();
        let view = table.core().arena.view().unwrap();
        let sentinel = table.core().shards.chains().into_iter().map(Result::unwrap).find(|chain| *chain != 0);
        let (mut nodes, mut damage) = (Vec::new(), None);
        chain(&view, sentinel.unwrap(), &mut nodes, &mut damage);
        nodes.insert(0, sentinel.unwrap());
        let link = view.word(View::slot(nodes[broken], 0)).unwrap();
        // ORDERING: Relaxed: one thread.
        link.fetch_xor(1 << 40, Ordering::Relaxed);
        for key in KEYS {
            assert!(found(&table, key).unwrap(), "link {broken}, key {key:?}");
        }
    }
}

/// VECTOR-2: a word of the frozen array that moved to another index is noticed.
#[test]
fn a_word_at_another_index_is_noticed() {
    for (index, other) in [(0, 3), (2, 4), (4, 0)] {
        let table = table();
        table.freeze().unwrap();
        let words = table.core().points.sorted().unwrap().words();
        // ORDERING: Relaxed: one thread.
        let word = words[other].load(Ordering::Relaxed);
        // ORDERING: Relaxed: one thread.
        words[index].store(word, Ordering::Relaxed);
        let mut sorted = KEYS;
        sorted.sort_unstable();
        assert!(found(&table, sorted[index]).is_err(), "index {index}");
        assert!(found(&table, sorted[other]).unwrap_or(true), "index {other}");
    }
}
