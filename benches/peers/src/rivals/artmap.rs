//! artmap's versioned map over an arena of fixed size: an adaptive radix tree.
//!
//! As an engine uses it, with keys and values of any length: it keeps those on the heap. And with arrays of fixed size inside the
//! arena, which suits it best, and which a table of keys of any length cannot use.

use std::borrow::Borrow;
use std::ops::Bound;

use artmap::{ArenaVersionedArtMap, AsBytes};

use super::{Room, Table};
use crate::work::{Entries, KeyShape, Task, Way, Work, fold};

type Map<K, V> = ArenaVersionedArtMap<K, V>;

/// What the map keeps of bytes.
trait Kept: AsRef<[u8]> + Borrow<[u8]> {
    fn of(bytes: &[u8]) -> Self;
}

impl Kept for Vec<u8> {
    fn of(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }
}

impl<const N: usize> Kept for [u8; N] {
    fn of(bytes: &[u8]) -> Self {
        *bytes.first_chunk().expect("lengths were chosen by the sizes")
    }
}

pub(super) fn of_any_length(room: Room) -> Box<dyn Table> {
    Box::new(Map::<Vec<u8>, Vec<u8>>::with_capacity(room.arena()))
}

pub(super) fn of_arrays(room: Room) -> anyhow::Result<Box<dyn Table>> {
    fn with_key<const K: usize>(room: Room) -> anyhow::Result<Box<dyn Table>> {
        let capacity = room.arena();
        Ok(match room.shape.value_len {
            8 => Box::new(Map::<[u8; K], [u8; 8]>::with_capacity(capacity)),
            100 => Box::new(Map::<[u8; K], [u8; 100]>::with_capacity(capacity)),
            1000 => Box::new(Map::<[u8; K], [u8; 1000]>::with_capacity(capacity)),
            other => anyhow::bail!("values of {other} bytes: artmap's are built for 8, 100 and 1000"),
        })
    }
    match room.shape.key {
        KeyShape::Bytes8 => with_key::<8>(room),
        KeyShape::Bytes16 | KeyShape::Dense16 | KeyShape::Random16 => with_key::<16>(room),
        KeyShape::Decimal14 => with_key::<14>(room),
        KeyShape::Bytes64 => with_key::<64>(room),
        KeyShape::Shared32 => with_key::<32>(room),
    }
}

fn insert<K: AsBytes + Kept, V: Kept>(map: &Map<K, V>, entries: &Entries) -> u64 {
    let mut inserter = map.inserter();
    for (sequence, key, value) in entries.iter() {
        inserter.insert(K::of(key), sequence, V::of(value));
    }
    entries.count() as u64
}

#[inline]
fn get<K: AsBytes + Kept, V: Kept>(map: &Map<K, V>, key: &[u8], hash: u64) -> u64 {
    match map.get_entry::<[u8]>(key) {
        Some(entry) => fold(hash, entry.value().as_ref()),
        None => hash + 1,
    }
}

fn read_from<K: AsBytes + Kept, V: Kept>(map: &Map<K, V>, key: &[u8], steps: usize, hash: u64) -> u64 {
    let after = map.range::<_, [u8]>((Bound::Included(key), Bound::Unbounded));
    after.take(steps).fold(hash, |hash, entry| fold(hash, entry.value().as_ref()))
}

fn scan<K: AsBytes + Kept, V: Kept>(map: &Map<K, V>, key: &[u8], steps: usize, way: Way) -> u64 {
    if way == Way::Forward {
        return read_from(map, key, steps, 0);
    }
    let before = map.range::<_, [u8]>((Bound::Unbounded, Bound::Included(key)));
    before.rev().take(steps).fold(0, |hash, entry| fold(hash, entry.value().as_ref()))
}

impl<K, V> Table for Map<K, V>
where
    K: AsBytes + Kept + Send + Sync,
    V: Kept + Send + Sync,
{
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
                    inserter.insert(K::of(key), sequence, V::of(value));
                    get(self, asked, hash)
                })
            }),
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    /// What is on the heap is not counted.
    fn counted(&self) -> Option<u64> {
        let heap = size_of::<K>() == size_of::<Vec<u8>>() && size_of::<V>() == size_of::<Vec<u8>>();
        (!heap).then(|| self.arena().size() as u64)
    }
}
