//! Keys that tell little apart: searches take few steps, and pages take few bytes. Planted bugs:
//! `appended_key_begins_so`, `copied_byte_ignored`, `end_has_bytes`, `every_node_is_last`,
//! `measured_page_keeps_words`, `measured_without_end`, `misordered_page_believed`,
//! `named_by_a_guess`, `pages_asked_at_each_name`, `reversed_beginnings`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use super::Table;
use super::hostile_shapes::{Shape, hostile_shapes};
use crate::comparator::BYTEWISE;
use crate::integrity::hash::splitmix;
use crate::key::{SequenceNumber, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::arena::opened::counted;
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::find::Newest;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;

/// Most nodes that a lookup opens: on average, and ever.
const LOOKUP: (f64, u64) = (22.0, 110);
/// Most nodes that an insert opens. Few inserts measure pages, whose keys they read: an insert that
/// splits a page leaves its halves to later ones.
const INSERT: (f64, u64) = (30.0, 180);

/// Bytes that a table with these keys takes.
fn taken(table: &Table) -> u64 {
    table.arena.limit.taken_bytes()
}

/// How many nodes calls open: on average, and the dearest call.
#[derive(Debug, Default, Clone, Copy)]
struct Opened {
    calls: u64,
    nodes: u64,
    dearest: u64,
}

impl Opened {
    /// Runs a call and counts it.
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let (result, nodes) = counted(call);
        self.calls += 1;
        self.nodes += nodes;
        self.dearest = self.dearest.max(nodes);
        result
    }

    /// Prints what calls cost, and compares it with the most that they may open.
    fn check(&self, note: &str, (mean_max, dearest_max): (f64, u64)) {
        let mean = self.nodes as f64 / self.calls as f64;
        println!("{note}: {mean:.2} nodes, {} ever", self.dearest);
        assert!(mean < mean_max, "{note}: {mean} nodes");
        assert!(
            self.dearest <= dearest_max,
            "{note}: {} nodes",
            self.dearest
        );
    }
}

/// Absent keys beside those of a table: a zero byte more, or another byte in the middle.
fn beside(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let present: BTreeSet<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let longer = keys.iter().map(|key| [key.as_slice(), &[0]].concat());
    let others = keys.iter().map(|key| {
        let (mut key, middle) = (key.clone(), key.len() / 2);
        if let Some(byte) = key.get_mut(middle) {
            *byte = byte.wrapping_add(1);
        }
        key
    });
    let absent = longer.chain(others);
    absent.filter(|key| !present.contains(&key[..])).collect()
}

/// The newest version of a key, else the next entry: what a get asks for.
fn newest<'a>(search: &Search<'a>, key: &[u8]) -> Option<Verified<'a>> {
    let target = Target::new(&BYTEWISE, key, SequenceNumber::MAX);
    let found = search.newest_version(&target, || Ok::<_, Gap>(()));
    match found.expect("intact memory").1 {
        Newest::Version(entry) => Some(entry),
        Newest::First(first) => first,
    }
}

#[test]
#[cfg_attr(miri, ignore = "many long keys")]
fn hostile_keys_cost_few_steps_and_bytes() {
    for Shape { name, keys, bytes } in hostile_shapes(6000, 2000) {
        let (table, plain) = (Table::new(), Table::without_directory());
        let mut inserters = [Inserter::default(), Inserter::default()];
        let mut entries = Vec::new();
        let mut inserts = Opened::default();
        for (sequence, key) in (1..).zip(&keys) {
            inserts.call(|| table.put(&mut inserters[0], key, sequence));
            plain.put(&mut inserters[1], key, sequence);
            entries.push((key.clone(), sequence));
        }
        let nodes = table.finds(&entries, name);
        assert!(nodes < 6.0, "{name}: {nodes} nodes a search");
        let (search, mut hits, mut misses) = (table.search(), Opened::default(), Opened::default());
        for key in &keys {
            let first = hits.call(|| newest(&search, key));
            assert_eq!(first.map(|entry| entry.key()), Some(&key[..]), "{name}");
        }
        for key in beside(&keys) {
            let first = misses.call(|| newest(&search, &key));
            let is_after = first.is_none_or(|entry| entry.key() > &key[..]);
            assert!(is_after, "{name}: {key:?} is absent");
        }
        let pages = (taken(&table) - taken(&plain)) as f64 / keys.len() as f64;
        hits.check(&format!("{name}, a hit"), LOOKUP);
        misses.check(&format!("{name}, a miss"), LOOKUP);
        inserts.check(&format!("{name}, an insert"), INSERT);
        println!("{name}: {pages:.1} bytes of pages an entry");
        assert!(
            super::is_sound(&table.search()),
            "{name}: a page is refused"
        );
        assert!(pages < bytes, "{name}: {pages} bytes of pages an entry");
    }
}

/// Keys beside the beginning that all keys of a table share are before or after all of them.
#[test]
fn keys_without_the_shared_beginning_are_found_to_be_absent_at_once() {
    let count = if cfg!(miri) { 70 } else { 2000 };
    let (table, mut inserter) = (Table::new(), Inserter::default());
    let shared = b"all keys begin with this";
    for n in 0..count {
        let key = [shared.as_slice(), &splitmix(n).to_be_bytes()].concat();
        table.put(&mut inserter, &key, n + 1);
    }
    let search = table.search();
    for at in 0..shared.len() {
        for by in [1, u8::MAX] {
            let mut key = [shared.as_slice(), &[0x80; 8]].concat();
            key[at] = key[at].wrapping_add(by);
            let mut trail = Trail::default();
            let target = Target::new(&BYTEWISE, &key, 1);
            let bracket = search.bracket(&target, &mut trail).unwrap();
            assert_eq!(bracket.entry.is_none(), by == 1, "byte {at}");
            assert!(trail.nodes <= 4, "byte {at}: {} nodes", trail.nodes);
        }
    }
}
