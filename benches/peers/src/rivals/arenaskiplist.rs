//! arenaskiplist: a lock-free list over a growing arena; inserts go through its cached splice.

use std::sync::Arc;

use arenaskiplist::{Arena, Inserter, SkipList};

use super::Table;
use crate::work::{Entries, Keys, Task, Way, Work, fold};

pub(super) fn table() -> SkipList {
    SkipList::new(Arc::new(Arena::chunked()))
}

fn put(list: &SkipList, inserter: &mut Inserter, sequence: u64, key: &[u8], value: &[u8]) {
    if let Err(error) = list.insert_with_version_and_inserter(key, sequence, value, inserter) {
        panic!("arenaskiplist: {error:?}");
    }
}

fn insert(list: &SkipList, entries: &Entries) -> u64 {
    let mut inserter = Inserter::new();
    for (sequence, key, value) in entries.iter() {
        put(list, &mut inserter, sequence, key, value);
    }
    entries.count() as u64
}

#[inline]
fn get(list: &SkipList, key: &[u8], hash: u64) -> u64 {
    match list.get_version_le(key, u64::MAX) {
        Some(entry) => fold(hash, entry.value()),
        None => hash + 1,
    }
}

fn seek(list: &SkipList, keys: &Keys, steps: usize) -> u64 {
    let mut cursor = list.iter();
    let mut hash = 0;
    for key in keys.iter() {
        cursor.seek_ge(key);
        for _ in 0..=steps {
            let Some(value) = cursor.value() else { break };
            hash = fold(hash, value);
            cursor.advance();
        }
    }
    hash
}

fn scan(list: &SkipList, key: &Keys, steps: usize, way: Way) -> u64 {
    let mut cursor = list.iter();
    cursor.seek_ge(&key.bytes);
    let mut hash = 0;
    for _ in 0..steps {
        let Some(value) = cursor.value() else { break };
        hash = fold(hash, value);
        match way {
            Way::Forward => cursor.advance(),
            Way::Backward => cursor.prev(),
        }
    }
    hash
}

impl Table for SkipList {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) | Work::InsertBatches(entries, _) => Box::new(|| insert(self, entries)),
            Work::Get(keys) | Work::MultiGet(keys, _) => {
                Box::new(|| keys.iter().fold(0, |hash, key| get(self, key, hash)))
            }
            Work::Seek(keys, steps) => Box::new(move || seek(self, keys, steps)),
            Work::Scan(key, steps, way) => Box::new(move || scan(self, key, steps, way)),
            Work::Mix(entries, keys) => Box::new(|| {
                let mut inserter = Inserter::new();
                entries.iter().zip(keys.iter()).fold(0, |hash, ((sequence, key, value), asked)| {
                    put(self, &mut inserter, sequence, key, value);
                    get(self, asked, hash)
                })
            }),
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        Some(self.size() as u64)
    }
}
