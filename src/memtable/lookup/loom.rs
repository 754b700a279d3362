//! Models of filter and index: what a reader may find while writers are between their steps.
//!
//! Words are loom's atomics and a cell a unit watches the bytes of nodes, on the production code. All actors are
//! spawned threads. Each model names the planted bugs that turn it red.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::integrity::digest::{Width, key_part};
use crate::integrity::tag::Secret;
use crate::key::{Bytewise, Kind};
use crate::memtable::lookup::point_index::{Known, PointIndex, Version};
use crate::memtable::options::{LINES_BYTES_MIN, MemTableOptions};
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::arena::{Arena, ArenaOptions, SubChunk};
use crate::memtable::skiplist::encode::{Fields, Shape};
use crate::memtable::table::MemTable;
use crate::sync::model::{self, JoinHandle, spawn};

/// An index of one bucket.
struct Bucket {
    arena: Arena,
    index: PointIndex,
}

impl Bucket {
    fn new() -> Arc<Bucket> {
        let (width, secret) = (Width::new(1).unwrap(), Secret::from_seed(1));
        let options = ArenaOptions { write_buffer_size: 1 << 16, hard_limit: 1 << 16, width, secret };
        let arena = Arena::new(&options).unwrap();
        let index = PointIndex::new(&arena, &mut SubChunk::default(), LINES_BYTES_MIN).unwrap();
        Arc::new(Bucket { arena, index })
    }

    /// Writes the versions of a key one after the other, as an insert does after its publication.
    fn note(self: &Arc<Bucket>, key: &'static [u8], sequences: &'static [u64]) -> JoinHandle<()> {
        let bucket = Arc::clone(self);
        spawn(move || {
            let view = bucket.arena.view().unwrap();
            for sequence in sequences {
                let mut reservation = bucket.arena.carve(&mut SubChunk::default(), 8).unwrap();
                let fields = Fields::new(*sequence, Kind::PUT, key, b"v", None);
                let node = view.build(&mut reservation, &fields, Shape::LOW).unwrap().offset;
                let version = Version { node, key, sequence: *sequence, revision: 0 };
                bucket.index.note(&view, &Bytewise, &version, key_part(key));
            }
        })
    }

    /// The newest version that the index knows: `None` if it is unsure, 0 if it has none.
    fn newest(&self, key: &[u8]) -> Option<u64> {
        let view = self.arena.view().unwrap();
        let sight = self.index.look(&view, self.index.bucket(key_part(key)).unwrap())?;
        match sight.judge(&view, &Bytewise, key) {
            Known::Newest(entry) => {
                assert_eq!((entry.key(), entry.value(view.seal()).unwrap()), (key, b"v".as_slice()));
                Some(entry.node().sequence())
            }
            Known::Absent => Some(0),
            Known::Unsure => None,
        }
    }

    /// Checks that the newest known version never gets older, and is complete.
    fn watch(self: &Arc<Bucket>, key: &'static [u8]) -> JoinHandle<()> {
        let bucket = Arc::clone(self);
        spawn(move || {
            let (first, second) = (bucket.newest(key), bucket.newest(key));
            assert!(second.is_none() || second >= first, "{second:?} after {first:?}");
        })
    }
}

/// Red for `IndexLoserGoesOn`, `SlotLoadRelaxed`.
#[test]
fn loom_one_slot_for_writers_of_one_new_key() {
    model::check(|| {
        let bucket = Bucket::new();
        let actors = [bucket.note(b"k", &[5]), bucket.note(b"k", &[9]), bucket.watch(b"k")];
        for actor in actors {
            actor.join().unwrap();
        }
        assert_eq!(bucket.newest(b"k"), Some(9));
        assert_eq!(bucket.index.filled(&bucket.arena.view().unwrap()), 1, "slots of one key");
    });
}

/// Red for `IndexKeepsFirstVersion`.
#[test]
fn loom_a_slot_moves_to_newer_versions_only() {
    model::check(|| {
        let bucket = Bucket::new();
        let actors = [bucket.note(b"k", &[3, 9]), bucket.note(b"k", &[7])];
        for actor in actors {
            actor.join().unwrap();
        }
        assert_eq!(bucket.newest(b"k"), Some(9));
    });
}

#[test]
fn loom_two_keys_of_one_bucket_do_not_lose_each_other() {
    model::check(|| {
        let bucket = Bucket::new();
        let actors = [bucket.note(b"k", &[5]), bucket.note(b"l", &[6])];
        for actor in actors {
            actor.join().unwrap();
        }
        assert_eq!((bucket.newest(b"k"), bucket.newest(b"l")), (Some(5), Some(6)));
        assert_eq!(bucket.newest(b"m"), Some(0));
    });
}

/// Red for `FilterAfterPublication`.
#[test]
fn loom_who_sees_an_entry_finds_it_through_the_filter() {
    model::check(|| {
        let options = MemTableOptions::builder().write_buffer_size(1 << 16).seed(1).whole_key_filter(0.007);
        let table = Arc::new(MemTable::new(options.build().unwrap()).unwrap());
        let (writing, reading) = (Arc::clone(&table), Arc::clone(&table));
        let writer = spawn(move || writing.put(1, b"k", b"v").map(|_| ()).unwrap());
        let reader = spawn(move || {
            let mut cursor = reading.cursor();
            cursor.seek(b"k").unwrap();
            if cursor.is_valid() {
                assert!(
                    matches!(reading.get(b"k", 1).unwrap(), Lookup::Value(_)),
                    "the filter hides an entry"
                );
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}
