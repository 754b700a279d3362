//! crossbeam-skiplist, as engines wrap it: the map owns keys and values, (key ascending, sequence number descending).
//!
//! Copies of keys and values are timed, as an engine copies what its caller lends it. The keys of searches are made
//! before the time begins.

use std::cmp::Reverse;
use std::ops::Bound;

use crossbeam_skiplist::SkipMap;

use super::Table;
use crate::work::{Entries, Keys, Task, Way, Work, fold};

/// The key of an entry in the map.
pub(super) type Position = (Vec<u8>, Reverse<u64>);
pub(super) type Owning = SkipMap<Position, Vec<u8>>;

/// The newest version of a key stands at or after this.
pub(super) fn newest(key: &[u8]) -> Position {
    (key.to_vec(), Reverse(u64::MAX))
}

/// The oldest version of a key stands at or before this.
pub(super) fn oldest(key: &[u8]) -> Position {
    (key.to_vec(), Reverse(0))
}

pub(super) fn probes(keys: &Keys) -> Vec<Position> {
    keys.iter().map(newest).collect()
}

fn insert(map: &Owning, entries: &Entries) -> u64 {
    for (sequence, key, value) in entries.iter() {
        map.insert((key.to_vec(), Reverse(sequence)), value.to_vec());
    }
    entries.count() as u64
}

#[inline]
fn get(map: &Owning, probe: &Position, hash: u64) -> u64 {
    match map.lower_bound(Bound::Included(probe)) {
        Some(entry) if entry.key().0 == probe.0 => fold(hash, entry.value()),
        _ => hash + 1,
    }
}

fn scan(map: &Owning, key: &[u8], steps: usize, way: Way) -> u64 {
    let (low, high) = (newest(key), oldest(key));
    match way {
        Way::Forward => map
            .range((Bound::Included(&low), Bound::Unbounded))
            .take(steps)
            .fold(0, |hash, entry| fold(hash, entry.value())),
        Way::Backward => map
            .range((Bound::Unbounded, Bound::Included(&high)))
            .rev()
            .take(steps)
            .fold(0, |hash, entry| fold(hash, entry.value())),
    }
}

impl Table for Owning {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) | Work::InsertBatches(entries, _) => Box::new(|| insert(self, entries)),
            Work::Get(keys) | Work::MultiGet(keys, _) => {
                let probes = probes(keys);
                Box::new(move || probes.iter().fold(0, |hash, probe| get(self, probe, hash)))
            }
            Work::Seek(keys, steps) => {
                let probes = probes(keys);
                Box::new(move || {
                    probes.iter().fold(0, |hash, probe| {
                        let after = self.range((Bound::Included(probe), Bound::Unbounded));
                        after.take(steps + 1).fold(hash, |hash, entry| fold(hash, entry.value()))
                    })
                })
            }
            Work::Scan(key, steps, way) => Box::new(move || scan(self, &key.bytes, steps, way)),
            Work::Mix(entries, keys) => {
                let probes = probes(keys);
                Box::new(move || {
                    entries.iter().zip(&probes).fold(0, |hash, ((sequence, key, value), probe)| {
                        self.insert((key.to_vec(), Reverse(sequence)), value.to_vec());
                        get(self, probe, hash)
                    })
                })
            }
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        None
    }
}
