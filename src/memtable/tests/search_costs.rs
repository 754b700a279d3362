//! The cost of a search with a directory, without one, and with a damaged one: damage adds steps
//! and never changes an answer. Costs are counted in nodes, not in time.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

use std::sync::Arc;

use crate::comparator::{Bytewise, Comparator, KeyEquality, KeyOrder};
use crate::integrity::hash::splitmix;
use crate::key::Target;
use crate::memtable::options::{Directory, MemTableOptions};
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::splice::Trail;
use crate::memtable::table::MemTable;
use crate::sync::Ordering;

/// The number of entries of a large table.
const ENTRIES: u64 = if cfg!(debug_assertions) {
    5_000
} else {
    100_000
};

/// The order of bytes, reversed.
#[derive(Debug)]
struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Images
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        right.cmp(left)
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        !Bytewise.image(key, at)
    }
}

/// Gets every entry: the key at place n has sequence number n + 1. Returns how many nodes a search
/// reads on average.
fn nodes_per_get(table: &MemTable, keys: &[Vec<u8>]) -> f64 {
    let search = table.core().point_search().unwrap();
    let mut trail = Trail::default();
    for (sequence, key) in (1..).zip(keys) {
        let found = table.get(key, u64::MAX);
        assert!(
            matches!(found, Ok(Lookup::Value(value)) if value.sequence() == sequence),
            "entry {sequence}"
        );
        let target = Target::new(&table.core().comparator, key, u64::MAX);
        let entry = search.bracket(&target, &mut trail).unwrap().entry.unwrap();
        assert_eq!((entry.key(), entry.sequence()), (&key[..], sequence));
    }
    f64::from(trail.nodes) / keys.len() as f64
}

fn filled(order: impl Comparator, directory: Directory, keys: &[Vec<u8>]) -> MemTable {
    let options = MemTableOptions::builder()
        .write_buffer_size(32 << 20)
        .seed(0xd1ec)
        .directory(directory);
    let table = MemTable::new(options.comparator(Arc::new(order)).build().unwrap()).unwrap();
    for (sequence, key) in (1..).zip(keys) {
        table.put(sequence, key, [7; 100]).unwrap();
    }
    table
}

/// With a directory, gets read a few nodes, in the order of bytes and in an order of images.
/// Without a directory they read many.
#[test]
#[cfg_attr(any(towers, miri), ignore = "no directory, or too many entries")]
fn directories_are_used_in_orders_of_bytes_and_images() {
    let keys: Vec<Vec<u8>> = (0..4000)
        .map(|n| [b"all keys begin so/".as_slice(), &splitmix(n).to_be_bytes()].concat())
        .collect();
    for directory in [Directory::Auto, Directory::Off] {
        let tables = [
            filled(Bytewise, directory, &keys),
            filled(Reverse, directory, &keys),
        ];
        let nodes = tables.map(|table| nodes_per_get(&table, &keys) as u64);
        let expected = if directory == Directory::Off {
            12..40
        } else {
            0..6
        };
        assert!(
            nodes.iter().all(|nodes| expected.contains(nodes)),
            "{directory:?}: {nodes:?}"
        );
    }
}

/// A key is written again and again at its number, in a table whose other keys came in order. Few
/// of these entries get a name in the directory, and gets of the keys around them read a few nodes.
/// Red for `newer_revisions_unnamed`.
#[test]
#[cfg_attr(any(towers, miri), ignore = "no directory, or too many entries")]
fn replaced_entries_cost_no_search_a_step() {
    let keys: Vec<Vec<u8>> = (0..400u64).map(|n| n.to_be_bytes().to_vec()).collect();
    let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    for (sequence, key) in (1..).zip(&keys) {
        table.put(sequence, key, b"first").unwrap();
    }
    let pages = || {
        let search = table.core().point_search().unwrap();
        search.directory().pages().count()
    };
    let before = pages();
    for round in 0..2000 {
        for place in [200, 100, 301] {
            let value = format!("{round}");
            table.put(place + 1, &keys[place as usize], value).unwrap();
        }
    }
    assert!(pages() <= 2 * before, "{} pages, before {before}", pages());
    for around in [198..203, 98..103, 299..304] {
        for place in around {
            let search = table.core().point_search().unwrap();
            let target = Target::new(&table.core().comparator, &keys[place], u64::MAX);
            let mut trail = Trail::default();
            let entry = search.bracket(&target, &mut trail).unwrap().entry.unwrap();
            assert_eq!(entry.key(), keys[place]);
            assert!(trail.nodes < 8, "{place}: {} nodes", trail.nodes);
        }
    }
    assert!(table.get(&keys[100], u64::MAX).unwrap().value() == Some(b"1999"));
}

#[test]
#[cfg_attr(any(towers, miri), ignore = "no directory, or too many entries")]
fn flipped_bits_of_the_directory_cost_steps() {
    let keys: Vec<Vec<u8>> = (0..ENTRIES)
        .map(|n| splitmix(n).to_be_bytes().to_vec())
        .collect();
    let table = filled(Bytewise, Directory::Auto, &keys);
    let intact = nodes_per_get(&table, &keys);
    println!("{ENTRIES} entries; nodes per get: {intact:.2}");
    let search = table.core().point_search().unwrap();
    let pages: Vec<_> = search.directory().pages().collect();
    let words: Vec<u32> = pages
        .iter()
        .flat_map(|at| at.page..at.page + at.units())
        .chain([search.directory])
        .collect();
    assert!(words.len() as u64 > ENTRIES / 4, "{} words", words.len());
    let mut flipped = 0;
    // The limits grow with the damage. A search without a limit would read far more nodes.
    for (flips, most) in [(1, 2.0 * intact), (100, 150.0), (10_000, 1500.0)] {
        for flip in flipped..flips {
            let random = splitmix(0xd1ec + flip);
            let word = search
                .view
                .word(words[(random >> 8) as usize % words.len()])
                .unwrap();
            // ORDERING: Relaxed: one thread.
            word.fetch_xor(1 << (random % 64), Ordering::Relaxed);
        }
        flipped = flips;
        let nodes = nodes_per_get(&table, &keys);
        println!(
            "after {flips} flipped bits of {} words: {nodes:.2}",
            words.len()
        );
        assert!(
            nodes < most,
            "{nodes} nodes per get after {flips} flipped bits"
        );
    }
}
