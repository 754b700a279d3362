//! A `BTreeMap` behind a lock: one lock per insert, get and seek; one for a whole scan and for a whole batch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use super::Table;
use super::crossbeam::{Position, newest, oldest, probes};
use crate::work::{Entries, Keys, Task, Way, Work, fold};

type Map = BTreeMap<Position, Vec<u8>>;

#[derive(Debug, Default)]
pub(super) struct Locked(RwLock<Map>);

#[inline]
fn get(map: &Map, probe: &Position, hash: u64) -> u64 {
    match map.range((Bound::Included(probe), Bound::Unbounded)).next() {
        Some((position, value)) if position.0 == probe.0 => fold(hash, value),
        _ => hash + 1,
    }
}

impl Locked {
    fn read<R>(&self, look: impl FnOnce(&Map) -> R) -> R {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, sequence: u64, key: &[u8], value: &[u8]) {
        let (position, value) = ((key.to_vec(), Reverse(sequence)), value.to_vec());
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(position, value);
    }

    fn insert_batches(&self, entries: &Entries, batch: usize) -> u64 {
        let mut entries_left = entries.iter().peekable();
        while entries_left.peek().is_some() {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            for (sequence, key, value) in entries_left.by_ref().take(batch) {
                map.insert((key.to_vec(), Reverse(sequence)), value.to_vec());
            }
        }
        entries.count() as u64
    }

    fn multi_get(&self, keys: &[Position], batch: usize) -> u64 {
        keys.chunks(batch).fold(0, |hash, keys| {
            self.read(|map| keys.iter().fold(hash, |hash, probe| get(map, probe, hash)))
        })
    }

    fn scan(&self, key: &Keys, steps: usize, way: Way) -> u64 {
        let (low, high) = (newest(&key.bytes), oldest(&key.bytes));
        self.read(|map| match way {
            Way::Forward => map
                .range((Bound::Included(&low), Bound::Unbounded))
                .take(steps)
                .fold(0, |hash, (_, value)| fold(hash, value)),
            Way::Backward => map
                .range((Bound::Unbounded, Bound::Included(&high)))
                .rev()
                .take(steps)
                .fold(0, |hash, (_, value)| fold(hash, value)),
        })
    }
}

impl Table for Locked {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) => Box::new(|| {
                entries.iter().for_each(|(sequence, key, value)| self.put(sequence, key, value));
                entries.count() as u64
            }),
            Work::InsertBatches(entries, batch) => Box::new(move || self.insert_batches(entries, batch)),
            Work::Get(keys) => {
                let probes = probes(keys);
                Box::new(move || probes.iter().fold(0, |hash, probe| self.read(|map| get(map, probe, hash))))
            }
            Work::MultiGet(keys, batch) => {
                let probes = probes(keys);
                Box::new(move || self.multi_get(&probes, batch))
            }
            Work::Seek(keys, steps) => {
                let probes = probes(keys);
                Box::new(move || {
                    probes.iter().fold(0, |hash, probe| {
                        self.read(|map| {
                            let after = map.range((Bound::Included(probe), Bound::Unbounded));
                            after.take(steps + 1).fold(hash, |hash, (_, value)| fold(hash, value))
                        })
                    })
                })
            }
            Work::Scan(key, steps, way) => Box::new(move || self.scan(key, steps, way)),
            Work::Mix(entries, keys) => {
                let probes = probes(keys);
                Box::new(move || {
                    entries.iter().zip(&probes).fold(0, |hash, ((sequence, key, value), probe)| {
                        self.put(sequence, key, value);
                        self.read(|map| get(map, probe, hash))
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
