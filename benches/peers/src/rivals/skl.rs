//! skl: a list with versions over an arena of fixed size.

use std::ops::Bound;

use skl::Arena;
use skl::generic::Builder;
use skl::generic::multiple_version::{Map, sync::SkipMap};

use super::{Room, Table};
use crate::work::{Entries, Task, Way, Work, fold};

type List = SkipMap<[u8], [u8]>;

pub(super) fn table(room: Room) -> anyhow::Result<List> {
    let capacity = u32::try_from(room.arena())?;
    Builder::new().with_capacity(capacity).alloc::<List>().map_err(|error| anyhow::anyhow!("skl: {error}"))
}

fn put(list: &List, sequence: u64, key: &[u8], value: &[u8]) {
    if list.insert(sequence, key, value).is_err() {
        panic!("skl: no room for the entry");
    }
}

fn insert(list: &List, entries: &Entries) -> u64 {
    entries.iter().for_each(|(sequence, key, value)| put(list, sequence, key, value));
    entries.count() as u64
}

#[inline]
fn get(list: &List, key: &[u8], hash: u64) -> u64 {
    match list.get(u64::MAX, key) {
        Some(entry) => fold(hash, &entry.value()),
        None => hash + 1,
    }
}

fn read_from(list: &List, key: &[u8], steps: usize, hash: u64) -> u64 {
    let after = list.range::<[u8], _>(u64::MAX, (Bound::Included(key), Bound::Unbounded));
    after.take(steps).fold(hash, |hash, entry| fold(hash, &entry.value()))
}

fn scan(list: &List, key: &[u8], steps: usize, way: Way) -> u64 {
    if way == Way::Forward {
        return read_from(list, key, steps, 0);
    }
    let before = list.range::<[u8], _>(u64::MAX, (Bound::Unbounded, Bound::Included(key)));
    before.rev().take(steps).fold(0, |hash, entry| fold(hash, &entry.value()))
}

impl Table for List {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) | Work::InsertBatches(entries, _) => Box::new(|| insert(self, entries)),
            Work::Get(keys) | Work::MultiGet(keys, _) => {
                Box::new(|| keys.iter().fold(0, |hash, key| get(self, key, hash)))
            }
            Work::Seek(keys, steps) => {
                Box::new(move || keys.iter().fold(0, |hash, key| read_from(self, key, steps + 1, hash)))
            }
            Work::Scan(key, steps, way) => Box::new(move || scan(self, &key.bytes, steps, way)),
            Work::Mix(entries, keys) => Box::new(|| {
                entries.iter().zip(keys.iter()).fold(0, |hash, ((sequence, key, value), asked)| {
                    put(self, sequence, key, value);
                    get(self, asked, hash)
                })
            }),
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        Some(self.allocated() as u64)
    }
}
