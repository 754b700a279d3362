//! artmap's versioned map over an arena of fixed size: an adaptive radix tree.
//!
//! Keys and values are arrays of fixed size inside the arena, which suits it best: it would keep those of variable
//! length on the heap.

use std::ops::Bound;

use artmap::ArenaVersionedArtMap;

use super::{Room, Table};
use crate::work::{Entries, KeyShape, Task, Way, Work, fold};

type Map<const K: usize, const V: usize> = ArenaVersionedArtMap<[u8; K], [u8; V]>;

pub(super) fn table(room: Room) -> anyhow::Result<Box<dyn Table>> {
    fn with_key<const K: usize>(room: Room) -> anyhow::Result<Box<dyn Table>> {
        let capacity = room.arena();
        Ok(match room.shape.value_len {
            8 => Box::new(Map::<K, 8>::with_capacity(capacity)),
            100 => Box::new(Map::<K, 100>::with_capacity(capacity)),
            1000 => Box::new(Map::<K, 1000>::with_capacity(capacity)),
            other => anyhow::bail!("values of {other} bytes: artmap's are built for 8, 100 and 1000"),
        })
    }
    match room.shape.key {
        KeyShape::Bytes8 => with_key::<8>(room),
        KeyShape::Bytes16 => with_key::<16>(room),
        KeyShape::Bytes64 => with_key::<64>(room),
        KeyShape::Shared32 => with_key::<32>(room),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("lengths were chosen by the sizes")
}

fn insert<const K: usize, const V: usize>(map: &Map<K, V>, entries: &Entries) -> u64 {
    let mut inserter = map.inserter();
    for (sequence, key, value) in entries.iter() {
        inserter.insert(array(key), sequence, array(value));
    }
    entries.count() as u64
}

#[inline]
fn get<const K: usize, const V: usize>(map: &Map<K, V>, key: &[u8], hash: u64) -> u64 {
    match map.get_entry(key) {
        Some(entry) => fold(hash, entry.value()),
        None => hash + 1,
    }
}

fn read_from<const K: usize, const V: usize>(map: &Map<K, V>, key: &[u8], steps: usize, hash: u64) -> u64 {
    let after = map.range::<_, [u8]>((Bound::Included(key), Bound::Unbounded));
    after.take(steps).fold(hash, |hash, entry| fold(hash, entry.value()))
}

fn scan<const K: usize, const V: usize>(map: &Map<K, V>, key: &[u8], steps: usize, way: Way) -> u64 {
    if way == Way::Forward {
        return read_from(map, key, steps, 0);
    }
    let before = map.range::<_, [u8]>((Bound::Unbounded, Bound::Included(key)));
    before.rev().take(steps).fold(0, |hash, entry| fold(hash, entry.value()))
}

impl<const K: usize, const V: usize> Table for Map<K, V> {
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
                let mut inserter = self.inserter();
                entries.iter().zip(keys.iter()).fold(0, |hash, ((sequence, key, value), asked)| {
                    inserter.insert(array(key), sequence, array(value));
                    get(self, asked, hash)
                })
            }),
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        Some(self.arena().size() as u64)
    }
}
