//! Tables to measure, and what is done to them.

use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, TableReader};

use crate::rivals::{self, Order};

pub(crate) const SEED: u64 = 4;
const VALUE: [u8; 100] = [7; 100];
/// Distance between the numbers of two entries: ranges fit between them.
pub(crate) const STRIDE: u64 = 16;

/// What finds an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finder {
    List,
    Directory,
}

/// A key of 16 bytes.
pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// An empty table, protected by 8 bytes a key; the write buffer fits `entries`.
pub(crate) fn table(entries: u32, finder: Finder) -> MemTable {
    let buffer = (u64::from(entries) * 160).next_power_of_two().max(1 << 20);
    let directory = if finder == Finder::Directory { Directory::On } else { Directory::Off };
    let options = MemTableOptions::builder().write_buffer_size(buffer).seed(SEED).directory(directory);
    MemTable::new(options.build().expect("valid options")).expect("memory")
}

/// Inserts entries in random order, with sequence numbers from 1. An entry's number is its place in the key space.
pub(crate) fn fill(table: &MemTable, entries: u32) {
    let mut writer = table.writer();
    for (sequence, entry) in (1u64..).zip(rivals::order(entries, Order::Random, SEED)) {
        writer.put(sequence, &key(u64::from(entry) * STRIDE), &VALUE).expect("room");
    }
}

pub(crate) fn filled(entries: u32, finder: Finder) -> MemTable {
    let table = table(entries, finder);
    fill(&table, entries);
    table
}

pub(crate) fn put(table: &MemTable, sequence: u64, number: u64) {
    table.put(sequence, &key(number), &VALUE).expect("room");
}

pub(crate) fn delete_range(table: &MemTable, sequence: u64, start: u64, end: u64) {
    table.delete_range(sequence, &key(start), &key(end)).expect("a tombstone");
}

/// The width of tombstones that stand at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// Between two entries.
    Gap,
    /// Half of the distance to the next tombstone: every second entry is deleted.
    Half,
}

/// `count` tombstones over the whole key space, in random order, newer than the entries.
pub(crate) fn spread(table: &MemTable, entries: u32, count: u32, width: Width) {
    let step = u64::from(entries) / u64::from(count.max(1)) * STRIDE;
    let width = if width == Width::Gap { STRIDE / 2 } else { step / 2 };
    for (sequence, at) in (u64::from(entries) + 1..).zip(rivals::order(count, Order::Random, SEED)) {
        let start = u64::from(at) * step + 1;
        delete_range(table, sequence, start, start + width);
    }
}

/// The result of a get, as a number.
pub(crate) fn get(table: &TableReader, number: u64, snapshot: u64) -> u64 {
    match table.get(&key(number), snapshot).expect("no damage") {
        Lookup::Value(value) => 1 + value.sequence(),
        Lookup::Deleted { sequence, .. } => 2 + sequence,
        _ => 0,
    }
}

/// Gets of random present keys. Returns the sum of what was found.
pub(crate) fn gets(table: &TableReader, entries: u32, count: usize, seed: u64) -> u64 {
    let picks = rivals::picks(entries, count, seed);
    let get = |entry: &u32| get(table, u64::from(*entry) * STRIDE, u64::MAX);
    picks.iter().map(get).fold(0, u64::wrapping_add)
}
