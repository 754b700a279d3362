//! Tables of other crates in Rust: one module per crate.

use crate::rivals::Table;
use crate::work::{Entries, Task, Way, Work};

/// A table that is searched by the bytes of a key: the operations that differ between crates.
pub trait Ordered: Sync {
    /// Puts the entries, and calls `after` after each.
    fn put_all(&self, entries: &Entries, after: impl FnMut());
    /// Folds the newest values of the keys into a hash.
    fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64;
    /// Folds `steps` values into a hash, from `key`.
    fn walk(&self, key: &[u8], steps: usize, way: Way, hash: u64) -> u64;
    /// Bytes that the table counts as its own; `None` if it does not count.
    fn counted(&self) -> Option<u64> {
        None
    }
}

/// The candidate of an [`Ordered`] table.
#[derive(Debug)]
pub struct Plain<M>(pub M);

impl<M: Ordered> Table for Plain<M> {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        let Plain(map) = self;
        Some(match work {
            Work::Insert(entries) | Work::InsertBatches(entries, _) => Box::new(|| {
                map.put_all(entries, || ());
                entries.count() as u64
            }),
            Work::Get(keys) | Work::MultiGet(keys, _) => Box::new(|| map.get_all(keys.iter(), 0)),
            Work::Seek(keys, steps) => Box::new(move || {
                keys.iter()
                    .fold(0, |hash, key| map.walk(key, steps + 1, Way::Forward, hash))
            }),
            Work::Scan(key, steps, way) => Box::new(move || map.walk(&key.bytes, steps, way, 0)),
            Work::Mix(entries, keys) => Box::new(|| {
                let (mut hash, mut asked) = (0, keys.iter());
                let share = keys.share(entries.count());
                map.put_all(entries, || {
                    hash = map.get_all(asked.by_ref().take(share), hash)
                });
                hash
            }),
            Work::DeleteRanges(_) | Work::Checksum(..) => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        self.0.counted()
    }
}

/// crossbeam-skiplist, as engines wrap it: the map owns keys and values, (key ascending, sequence
/// number descending).
///
/// Copies of keys and values are timed, because an engine copies its caller's bytes. The keys of
/// searches are made before the time begins.
pub mod crossbeam {
    use std::cmp::Reverse;
    use std::ops::Bound;

    use crossbeam_skiplist::SkipMap;

    use crate::rivals::Table;
    use crate::work::{Entries, Keys, Task, Way, Work, fold};

    /// The key of an entry in the map.
    pub type Position = (Vec<u8>, Reverse<u64>);
    pub type Owning = SkipMap<Position, Vec<u8>>;

    /// A place at or before the newest version of a key.
    pub fn newest(key: &[u8]) -> Position {
        (key.to_vec(), Reverse(u64::MAX))
    }

    /// A place at or after the oldest version of a key.
    pub fn oldest(key: &[u8]) -> Position {
        (key.to_vec(), Reverse(0))
    }

    pub fn probes(keys: &Keys) -> Vec<Position> {
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
                Work::Insert(entries) | Work::InsertBatches(entries, _) => {
                    Box::new(|| insert(self, entries))
                }
                Work::Get(keys) | Work::MultiGet(keys, _) => {
                    let probes = probes(keys);
                    Box::new(move || probes.iter().fold(0, |hash, probe| get(self, probe, hash)))
                }
                Work::Seek(keys, steps) => {
                    let probes = probes(keys);
                    Box::new(move || {
                        probes.iter().fold(0, |hash, probe| {
                            let after = self.range((Bound::Included(probe), Bound::Unbounded));
                            after
                                .take(steps + 1)
                                .fold(hash, |hash, entry| fold(hash, entry.value()))
                        })
                    })
                }
                Work::Scan(key, steps, way) => Box::new(move || scan(self, &key.bytes, steps, way)),
                Work::Mix(entries, keys) => {
                    let (probes, share) = (probes(keys), keys.share(entries.count()));
                    Box::new(move || {
                        entries.iter().zip(probes.chunks(share)).fold(
                            0,
                            |hash, ((sequence, key, value), probes)| {
                                self.insert((key.to_vec(), Reverse(sequence)), value.to_vec());
                                probes
                                    .iter()
                                    .fold(hash, |hash, probe| get(self, probe, hash))
                            },
                        )
                    })
                }
                Work::DeleteRanges(_) | Work::Checksum(..) => return None,
            })
        }

        fn counted(&self) -> Option<u64> {
            None
        }
    }
}

/// A `BTreeMap` in a lock, which is taken once for an insert, a get, a seek, a whole scan or a whole
/// batch.
pub mod btree {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::ops::Bound;
    use std::sync::{PoisonError, RwLock};

    use super::crossbeam::{Position, newest, oldest, probes};
    use crate::rivals::Table;
    use crate::work::{Entries, Keys, Task, Way, Work, fold};

    type Map = BTreeMap<Position, Vec<u8>>;

    #[derive(Debug, Default)]
    pub struct Locked(RwLock<Map>);

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
            self.0
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(position, value);
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
                    entries
                        .iter()
                        .for_each(|(sequence, key, value)| self.put(sequence, key, value));
                    entries.count() as u64
                }),
                Work::InsertBatches(entries, batch) => {
                    Box::new(move || self.insert_batches(entries, batch))
                }
                Work::Get(keys) => {
                    let probes = probes(keys);
                    Box::new(move || {
                        probes
                            .iter()
                            .fold(0, |hash, probe| self.read(|map| get(map, probe, hash)))
                    })
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
                                after
                                    .take(steps + 1)
                                    .fold(hash, |hash, (_, value)| fold(hash, value))
                            })
                        })
                    })
                }
                Work::Scan(key, steps, way) => Box::new(move || self.scan(key, steps, way)),
                Work::Mix(entries, keys) => {
                    let (probes, share) = (probes(keys), keys.share(entries.count()));
                    Box::new(move || {
                        entries.iter().zip(probes.chunks(share)).fold(
                            0,
                            |hash, ((sequence, key, value), probes)| {
                                self.put(sequence, key, value);
                                probes.iter().fold(hash, |hash, probe| {
                                    self.read(|map| get(map, probe, hash))
                                })
                            },
                        )
                    })
                }
                Work::DeleteRanges(_) | Work::Checksum(..) => return None,
            })
        }

        fn counted(&self) -> Option<u64> {
            None
        }
    }
}

/// arenaskiplist: a lock-free list over a growing arena; inserts go through its cached splice.
pub mod arenaskiplist {
    use std::sync::Arc;

    use arenaskiplist::{Arena, Inserter, SkipList};

    use super::{Ordered, Plain};
    use crate::work::{Entries, Way, fold};

    pub fn table() -> Plain<SkipList> {
        Plain(SkipList::new(Arc::new(Arena::chunked())))
    }

    impl Ordered for SkipList {
        fn put_all(&self, entries: &Entries, mut after: impl FnMut()) {
            let mut inserter = Inserter::new();
            for (sequence, key, value) in entries.iter() {
                if let Err(error) =
                    self.insert_with_version_and_inserter(key, sequence, value, &mut inserter)
                {
                    panic!("arenaskiplist: {error:?}");
                }
                after();
            }
        }

        #[inline]
        fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64 {
            keys.fold(hash, |hash, key| match self.get_version_le(key, u64::MAX) {
                Some(entry) => fold(hash, entry.value()),
                None => hash + 1,
            })
        }

        fn walk(&self, key: &[u8], steps: usize, way: Way, mut hash: u64) -> u64 {
            let mut cursor = self.iter();
            cursor.seek_ge(key);
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

        fn counted(&self) -> Option<u64> {
            Some(self.size() as u64)
        }
    }
}

/// skl: a list with versions over an arena of fixed size.
pub mod skl {
    use std::ops::Bound::{Included, Unbounded};

    use skl::Arena;
    use skl::generic::Builder;
    use skl::generic::multiple_version::Map;
    use skl::generic::multiple_version::sync::SkipMap;

    use super::{Ordered, Plain};
    use crate::rivals::Room;
    use crate::work::{Entries, Way, fold};

    type List = SkipMap<[u8], [u8]>;

    pub fn table(room: Room) -> anyhow::Result<Plain<List>> {
        let capacity = u32::try_from(room.arena())?;
        let list = Builder::new().with_capacity(capacity).alloc::<List>();
        list.map(Plain)
            .map_err(|error| anyhow::anyhow!("skl: {error}"))
    }

    impl Ordered for List {
        fn put_all(&self, entries: &Entries, mut after: impl FnMut()) {
            for (sequence, key, value) in entries.iter() {
                if self.insert(sequence, key, value).is_err() {
                    panic!("skl: no room for the entry");
                }
                after();
            }
        }

        #[inline]
        fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64 {
            keys.fold(hash, |hash, key| match self.get(u64::MAX, key) {
                Some(entry) => fold(hash, &entry.value()),
                None => hash + 1,
            })
        }

        fn walk(&self, key: &[u8], steps: usize, way: Way, hash: u64) -> u64 {
            let from = self.range::<[u8], _>(u64::MAX, (Included(key), Unbounded));
            let until = self.range::<[u8], _>(u64::MAX, (Unbounded, Included(key)));
            match way {
                Way::Forward => from
                    .take(steps)
                    .fold(hash, |hash, entry| fold(hash, &entry.value())),
                Way::Backward => until
                    .rev()
                    .take(steps)
                    .fold(hash, |hash, entry| fold(hash, &entry.value())),
            }
        }

        fn counted(&self) -> Option<u64> {
            Some(self.allocated() as u64)
        }
    }
}

/// artmap's versioned map over an arena of fixed size: an adaptive radix tree.
///
/// It runs in two forms. As in an engine, with keys and values of any length, which it keeps on the
/// heap. And with arrays of fixed size inside the arena, which suits it best, and which a table of
/// keys of any length cannot use.
pub mod artmap {
    use std::borrow::Borrow;
    use std::ops::Bound::{Included, Unbounded};

    use artmap::{ArenaVersionedArtMap, AsBytes};

    use super::{Ordered, Plain};
    use crate::rivals::{Room, Table};
    use crate::work::{Entries, Way, fold};

    /// The form in which the map keeps bytes.
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
            *bytes
                .first_chunk()
                .expect("lengths were chosen by the sizes")
        }
    }

    pub fn of_any_length(room: Room) -> Box<dyn Table> {
        Box::new(Plain(
            ArenaVersionedArtMap::<Vec<u8>, Vec<u8>>::with_capacity(room.arena()),
        ))
    }

    pub fn of_arrays(room: Room) -> anyhow::Result<Box<dyn Table>> {
        fn with_key<const K: usize>(room: Room) -> anyhow::Result<Box<dyn Table>> {
            let capacity = room.arena();
            Ok(match room.shape.value_len {
                8 => Box::new(Plain(
                    ArenaVersionedArtMap::<[u8; K], [u8; 8]>::with_capacity(capacity),
                )),
                100 => Box::new(Plain(
                    ArenaVersionedArtMap::<[u8; K], [u8; 100]>::with_capacity(capacity),
                )),
                1000 => Box::new(Plain(
                    ArenaVersionedArtMap::<[u8; K], [u8; 1000]>::with_capacity(capacity),
                )),
                other => {
                    anyhow::bail!("values of {other} bytes: artmap's are built for 8, 100 and 1000")
                }
            })
        }
        match room.shape.key.len() {
            8 => with_key::<8>(room),
            14 => with_key::<14>(room),
            16 => with_key::<16>(room),
            27 => with_key::<27>(room),
            32 => with_key::<32>(room),
            36 => with_key::<36>(room),
            62 => with_key::<62>(room),
            64 => with_key::<64>(room),
            92 => with_key::<92>(room),
            97 => with_key::<97>(room),
            other => anyhow::bail!("keys of {other} bytes: artmap's are not built for them"),
        }
    }

    impl<K, V> Ordered for ArenaVersionedArtMap<K, V>
    where
        K: AsBytes + Kept + Send + Sync,
        V: Kept + Send + Sync,
    {
        fn put_all(&self, entries: &Entries, mut after: impl FnMut()) {
            let mut inserter = self.inserter();
            for (sequence, key, value) in entries.iter() {
                inserter.insert(K::of(key), sequence, V::of(value));
                after();
            }
        }

        #[inline]
        fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64 {
            keys.fold(hash, |hash, key| match self.get_entry::<[u8]>(key) {
                Some(entry) => fold(hash, entry.value().as_ref()),
                None => hash + 1,
            })
        }

        fn walk(&self, key: &[u8], steps: usize, way: Way, hash: u64) -> u64 {
            let folded = |hash, value: &V| fold(hash, value.as_ref());
            match way {
                Way::Forward => {
                    let after = self.range::<_, [u8]>((Included(key), Unbounded));
                    after
                        .take(steps)
                        .fold(hash, |hash, entry| folded(hash, entry.value()))
                }
                Way::Backward => {
                    let before = self.range::<_, [u8]>((Unbounded, Included(key)));
                    before
                        .rev()
                        .take(steps)
                        .fold(hash, |hash, entry| folded(hash, entry.value()))
                }
            }
        }

        /// Bytes on the heap are not counted.
        fn counted(&self) -> Option<u64> {
            let heap =
                size_of::<K>() == size_of::<Vec<u8>>() && size_of::<V>() == size_of::<Vec<u8>>();
            (!heap).then(|| self.arena().size() as u64)
        }
    }
}

/// masstree: a trie of B+ trees over eight bytes of a key each. It keeps one value of a key, on the
/// heap, without a number.
pub mod masstree {
    use masstree::{MassTree15, RangeBound};

    use super::Ordered;
    use crate::work::{Entries, Way, fold};

    pub type Tree = MassTree15<Vec<u8>>;

    impl Ordered for Tree {
        fn put_all(&self, entries: &Entries, mut after: impl FnMut()) {
            let guard = self.guard();
            for (_, key, value) in entries.iter() {
                self.insert_with_guard(key, value.to_vec(), &guard);
                after();
            }
        }

        #[inline]
        fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64 {
            let guard = self.guard();
            keys.fold(hash, |hash, key| match self.get_ref(key, &guard) {
                Some(value) => fold(hash, &value),
                None => hash + 1,
            })
        }

        fn walk(&self, key: &[u8], steps: usize, way: Way, mut hash: u64) -> u64 {
            let (guard, mut left) = (self.guard(), steps);
            let (included, unbounded) = (RangeBound::Included(key), RangeBound::Unbounded);
            let visit = |_: &[u8], value: &Vec<u8>| {
                hash = fold(hash, value);
                left -= 1;
                left > 0
            };
            match way {
                Way::Forward => self.scan_intra_leaf_batch_ref(included, unbounded, visit, &guard),
                Way::Backward => self.scan_rev_batch_ref(unbounded, included, visit, &guard),
            };
            hash
        }
    }
}

/// ferntree: a B+ tree with optimistic locks. It keeps one value of a key, on the heap, without a
/// number.
pub mod ferntree {
    use super::Ordered;
    use crate::work::{Entries, Way, fold};

    pub type Tree = ferntree::Tree<Vec<u8>, Vec<u8>>;

    impl Ordered for Tree {
        fn put_all(&self, entries: &Entries, mut after: impl FnMut()) {
            for (_, key, value) in entries.iter() {
                self.insert(key.to_vec(), value.to_vec());
                after();
            }
        }

        #[inline]
        fn get_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, hash: u64) -> u64 {
            keys.fold(hash, |hash, key| {
                self.lookup(key, |value| fold(hash, value))
                    .unwrap_or(hash + 1)
            })
        }

        fn walk(&self, key: &[u8], steps: usize, way: Way, mut hash: u64) -> u64 {
            let mut cursor = self.raw_iter();
            match way {
                Way::Forward => cursor.seek(key),
                Way::Backward => cursor.seek_for_prev(key),
            }
            for _ in 0..steps {
                let entry = match way {
                    Way::Forward => cursor.next(),
                    Way::Backward => cursor.prev(),
                };
                let Some((_, value)) = entry else { break };
                hash = fold(hash, value);
            }
            hash
        }
    }
}
