//! Loom models of the list: all interleavings of two or three threads, on the production code.
//!
//! Links are loom's atomics. A loom cell for each unit watches the bytes: a read of bytes without
//! the Acquire-Release pair that publishes them fails the model. Towers are at most two high. All
//! actors are spawned threads. Each model names the planted bugs that turn it red.

#![forbid(unsafe_code)]

pub(crate) mod directory;

use std::sync::Arc;

use crate::comparator::BYTEWISE;
use crate::error::{Error, Result};
use crate::integrity::digest::{Width, key_part};
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::integrity::tag::Secret;
use crate::key::{Side, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::{Arena, SubChunk, View};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::tower_height::Towers;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node_space::make_heads;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;
use crate::sync::Ordering;
use crate::sync::model::{JoinHandle, check, spawn};

const SECRET: Secret = Secret::from_seed(1);

fn arena() -> Arena {
    let width = Width::new(1).unwrap();
    Arena::new(1 << 16, 1 << 16, width, SECRET)
}

/// A list in its arena.
struct Table {
    arena: Arena,
    list: List,
}

impl Table {
    fn new() -> Arc<Table> {
        let arena = arena();
        make_heads(&arena).unwrap();
        let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::On);
        Arc::new(Table { arena, list })
    }

    fn search(&self) -> Search<'_> {
        self.list.search(self.arena.view().unwrap(), &BYTEWISE)
    }

    /// An inserter with its space already taken: another model asks how two of them take it.
    fn inserter(&self) -> Inserter {
        let mut inserter = Inserter::default();
        self.arena.reserve(&mut inserter.sub, 100).unwrap();
        inserter
    }

    /// Inserts a key with its sequence number. Returns the revision of the entry that it replaced.
    fn insert(
        &self,
        mut inserter: Inserter,
        (key, sequence): (&[u8], u64),
        policy: DuplicatePolicy,
    ) -> Result<Option<u32>> {
        let search = self.search();
        let fields = Fields::new(sequence, Kind::PUT, key, b"v", None);
        let placement = self.list.insert(&search, &mut inserter, &fields, policy)?;
        self.list
            .link_tower(&search, &mut inserter, &fields, placement.tower);
        Ok(placement.displaced.map(|old| old.revision()))
    }

    /// Whether a read finds the key. Asserts that its value is whole.
    fn holds(&self, key: &[u8]) -> bool {
        let search = self.search();
        let bracket = search
            .bracket(
                &Target::new(&BYTEWISE, key, u64::MAX),
                &mut Trail::default(),
            )
            .unwrap();
        bracket.entry.is_some_and(|entry| {
            assert_eq!(entry.value(&search.view).unwrap(), b"v");
            entry.key() == key
        })
    }

    /// (key, sequence, revision) of level 0. Asserts that both directions show the same.
    fn rows(&self) -> Vec<(Vec<u8>, u64, u32)> {
        let search = self.search();
        let row = |entry: crate::memtable::arena::node::Verified<'_>| {
            (entry.key().to_vec(), entry.sequence(), entry.revision())
        };
        let (mut rows, mut at) = (vec![], search.sentinel);
        while let Some(entry) = search.next(at).unwrap() {
            at = entry.offset();
            rows.push(row(entry));
        }
        let mut back = vec![];
        at = search.sentinel;
        while let Some(entry) = search.prev(at).unwrap() {
            at = entry.offset();
            back.push(row(entry));
        }
        back.reverse();
        assert_eq!(rows, back, "forward and backward");
        rows
    }

    /// Asserts that each back link names the node before its own, which holds while no writer is
    /// active. Follows links only, because a step would renew a late back link.
    fn assert_back_links(&self) {
        let search = self.search();
        let mut at = search.sentinel;
        loop {
            let next = search.view.link(at, 0).unwrap();
            assert_eq!(
                search.view.back_hint(next),
                Some(at),
                "the node before {next}"
            );
            if next == search.sentinel {
                return;
            }
            at = next;
        }
    }

    /// Keys of level 1, in order.
    fn upper_keys(&self) -> Vec<Vec<u8>> {
        let search = self.search();
        let (mut keys, mut at) = (vec![], search.sentinel);
        loop {
            at = search.view.link(at, 1).unwrap();
            match search.verified(at).unwrap() {
                Some(entry) => keys.push(entry.key().to_vec()),
                None => return keys,
            }
        }
    }
}

/// A thread that inserts one key.
fn insert(table: &Arc<Table>, key: &'static [u8], sequence: u64) -> JoinHandle<()> {
    let (table, inserter) = (Arc::clone(table), table.inserter());
    spawn(move || {
        table
            .insert(inserter, (key, sequence), DuplicatePolicy::Reject)
            .unwrap();
    })
}

/// A sequence number with which the key gets a tower of this height.
fn sequence_with_height(key: &[u8], height: u32) -> u64 {
    (1..1000)
        .find(|sequence| Towers::Dense.height(SECRET, key_part(key), *sequence, 0) == height)
        .unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Red for `bump_loses_race`.
#[test]
fn loom_two_writers_never_get_one_unit() {
    check(|| {
        let arena = Arc::new(arena());
        let bump = |arena: Arc<Arena>| {
            spawn(move || {
                let view = arena.view().unwrap();
                let mut sub = SubChunk::default();
                [3, 2].map(|units| {
                    let mut reservation = arena.carve(&mut sub, units).unwrap();
                    let bytes = reservation.bytes() as usize;
                    assert_eq!(bytes as u64, units * 8);
                    view.plain(&mut reservation, 0, bytes).unwrap().fill(1);
                    (u64::from(reservation.start()), units)
                })
            })
        };
        let threads = [bump(Arc::clone(&arena)), bump(Arc::clone(&arena))];
        let mut taken: Vec<(u64, u64)> = join(threads).into_iter().flatten().collect();
        taken.sort_unstable();
        assert!(
            taken
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
            "{taken:?}"
        );
        assert_eq!(
            arena.limit.taken_bytes(),
            2 * 9 * 8,
            "a sub-chunk for each, counted once"
        );
    });
}

/// Red for `publish_relaxed`, `link_load_relaxed`.
#[test]
fn loom_publish_beside_a_reader() {
    let tall = sequence_with_height(b"c", 2);
    check(move || {
        let table = Table::new();
        let writer = insert(&table, b"c", tall);
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || table.holds(b"c"))
        };
        join([writer]);
        reader.join().unwrap();
        assert!(table.holds(b"c"));
    });
}

/// Red for `link_tower_gives_up_node`.
#[test]
fn loom_publish_and_link_tower() {
    let tall = [b"a", b"c"].map(|key| sequence_with_height(key, 2));
    check(move || {
        let table = Table::new();
        join([insert(&table, b"a", tall[0]), insert(&table, b"c", tall[1])]);
        let keys: Vec<_> = table.rows().into_iter().map(|row| row.0).collect();
        assert_eq!(keys, [b"a".to_vec(), b"c".to_vec()]);
        assert_eq!(table.upper_keys(), keys, "both towers are linked");
    });
}

impl Table {
    /// Inserts a key with a tower of one link.
    fn insert_low(&self, inserter: Inserter, key: &[u8]) {
        let sequence = sequence_with_height(key, 1);
        self.insert(inserter, (key, sequence), DuplicatePolicy::Reject)
            .unwrap();
    }

    fn spawn_insert(self: &Arc<Self>, key: &'static [u8]) -> JoinHandle<()> {
        let (table, inserter) = (Arc::clone(self), self.inserter());
        spawn(move || table.insert_low(inserter, key))
    }

    /// Whether a search finds a key or reports damage, so that it does not call the key absent.
    fn admits(&self, key: &[u8]) -> bool {
        let search = self.search();
        let found = search.bracket(
            &Target::new(&BYTEWISE, key, u64::MAX),
            &mut Trail::default(),
        );
        found.is_err()
            || found.is_ok_and(|bracket| bracket.entry.is_some_and(|entry| entry.key() == key))
    }

    /// Sets the level-0 link of each node in turn to each later node that it may have named before.
    /// Asserts that no key becomes absent.
    fn lose_each_link(&self, keys: &[&[u8]]) {
        let search = self.search();
        // Follows links only, because steps and searches renew late back links, and none may be
        // late once the writers have returned. The last links are damaged first for that reason.
        let mut nodes = vec![search.sentinel];
        for place in 0..keys.len() {
            nodes.push(search.view.link(nodes[place], 0).unwrap());
        }
        let ring = |place: usize| nodes.get(place).copied().unwrap_or(search.sentinel);
        for place in (0..nodes.len()).rev() {
            for earlier in place + 2..=nodes.len() {
                search
                    .view
                    .set_link(nodes[place], 0, ring(earlier))
                    .unwrap();
                for key in keys {
                    assert!(
                        self.admits(key),
                        "{key:?} is hidden by link {place} to {earlier}"
                    );
                }
            }
            search
                .view
                .set_link(nodes[place], 0, ring(place + 1))
                .unwrap();
        }
        assert_eq!(self.rows().len(), keys.len());
    }
}

/// Two writers between the same neighbours: once both have returned, every lost link is noticed.
/// Red for `back_link_stored`.
#[test]
fn loom_a_lost_link_is_noticed_after_two_writers() {
    for keys in [[b"b".as_slice(), b"c"], [b"c", b"b"]] {
        check(move || {
            let table = Table::new();
            table.insert_low(table.inserter(), b"a");
            join(keys.map(|key| table.spawn_insert(key)));
            table.lose_each_link(&[b"a", b"b", b"c"]);
        });
    }
}

/// Two writers between the same neighbours: the loser's node is kept, and is linked on its own side
/// of the winner. Red for `kept_back_forgotten`, `kept_link_forgotten`.
#[test]
fn loom_a_kept_node_beside_another_insert() {
    check(|| {
        let table = Table::new();
        table.insert_low(table.inserter(), b"a");
        join([b"b".as_slice(), b"c"].map(|key| table.spawn_insert(key)));
        table.assert_back_links();
        let keys: Vec<_> = table.rows().into_iter().map(|row| row.0).collect();
        assert_eq!(keys, [b"a", b"b", b"c"].map(|key| key.to_vec()));
    });
}

/// A reader beside a kept node: a key that it finds once it finds again, and whole. Red for
/// `kept_link_forgotten`, `publish_relaxed`.
#[test]
fn loom_a_kept_node_beside_a_reader() {
    check(|| {
        let table = Table::new();
        let writers = [b"b".as_slice(), b"c"].map(|key| table.spawn_insert(key));
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || {
                let [before, after] = [(), ()].map(|()| table.holds(b"b"));
                assert!(after || !before, "a key disappeared");
                table.holds(b"c")
            })
        };
        join(writers);
        reader.join().unwrap();
        table.assert_back_links();
        assert!(table.holds(b"b") && table.holds(b"c"));
    });
}

/// Three writers between the same neighbours: once all have returned, every lost link is noticed.
#[test]
fn loom_a_lost_link_is_noticed_after_three_writers() {
    check(|| {
        let table = Table::new();
        join([b"b".as_slice(), b"a", b"c"].map(|key| table.spawn_insert(key)));
        table.lose_each_link(&[b"a", b"b", b"c"]);
    });
}

/// A link is lost right after its writer has returned, beside a second writer: the loss is noticed.
#[test]
fn loom_a_link_that_is_lost_meanwhile_is_noticed() {
    for [first, second] in [[b"b".as_slice(), b"c"], [b"c", b"b"]] {
        check(move || {
            let table = Table::new();
            table.insert_low(table.inserter(), b"a");
            let victim = {
                let (table, inserter) = (Arc::clone(&table), table.inserter());
                spawn(move || {
                    table.insert_low(inserter, first);
                    let search = table.search();
                    let a = search.view.link(search.sentinel, 0).unwrap();
                    search.view.set_link(a, 0, search.sentinel).unwrap();
                })
            };
            let other = {
                let (table, inserter) = (Arc::clone(&table), table.inserter());
                spawn(move || {
                    let (key, sequence) = (second, sequence_with_height(second, 1));
                    match table.insert(inserter, (key, sequence), DuplicatePolicy::Reject) {
                        Ok(_) => true,
                        Err(Error::Corruption(_)) => false,
                        Err(other) => panic!("{other}"),
                    }
                })
            };
            victim.join().unwrap();
            let linked = other.join().unwrap();
            assert!(
                table.admits(b"a") && table.admits(first),
                "an entry is hidden"
            );
            assert!(!linked || table.admits(second), "an entry is hidden");
        });
    }
}

/// A reader heals a link while a writer links a node in its place: neither is lost, and the read
/// answers. Red for `healed_link_stored`.
#[test]
fn loom_a_healed_link_loses_no_entry() {
    check(|| {
        let table = Table::new();
        table.insert_low(table.inserter(), b"b");
        let view = table.search().view;
        let word = view.word(View::slot(table.search().sentinel, 0)).unwrap();
        // ORDERING: Relaxed: one thread.
        word.fetch_xor(1 << 40, Ordering::Relaxed);
        let writer = table.spawn_insert(b"a");
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || assert!(table.holds(b"b"), "a present key disappeared"))
        };
        join([writer]);
        reader.join().unwrap();
        assert_eq!(table.rows().len(), 2);
        table.assert_back_links();
    });
}

/// Readers beside writers report no damage.
#[test]
fn loom_readers_report_no_damage() {
    check(|| {
        let table = Table::new();
        table.insert_low(table.inserter(), b"a");
        let writers = [table.spawn_insert(b"b"), table.spawn_insert(b"c")];
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || {
                let search = table.search();
                let first = search.next(search.sentinel).unwrap().unwrap();
                search.next(first.offset()).unwrap();
                search
                    .bracket(&Target::extreme(Side::End), &mut Trail::default())
                    .unwrap();
            })
        };
        join(writers);
        reader.join().unwrap();
        assert_eq!(table.rows().len(), 3);
    });
}

/// Red for `lost_race_believed`.
#[test]
fn loom_one_duplicate_wins() {
    check(|| {
        let table = Table::new();
        let insert = || {
            let (table, inserter) = (Arc::clone(&table), table.inserter());
            spawn(
                move || match table.insert(inserter, (b"k", 5), DuplicatePolicy::Reject) {
                    Ok(_) => true,
                    Err(Error::DuplicateEntry { sequence: 5 }) => false,
                    Err(other) => panic!("{other}"),
                },
            )
        };
        let won = join([insert(), insert()]);
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
        assert_eq!(table.rows(), [(b"k".to_vec(), 5, 0)]);
    });
}

/// Red for `lost_race_believed`.
#[test]
fn loom_replace_never_hides_a_key() {
    check(|| {
        let table = Table::new();
        table
            .insert(table.inserter(), (b"k", 5), DuplicatePolicy::Replace)
            .unwrap();
        let replace = || {
            let (table, inserter) = (Arc::clone(&table), table.inserter());
            spawn(move || {
                table
                    .insert(inserter, (b"k", 5), DuplicatePolicy::Replace)
                    .unwrap()
            })
        };
        let writers = [replace(), replace()];
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || assert!(table.holds(b"k"), "a present key disappeared"))
        };
        let mut displaced = join(writers);
        reader.join().unwrap();
        displaced.sort_unstable();
        assert_eq!(displaced, [Some(0), Some(1)], "each displaces one");
        let rows = [2, 1, 0].map(|revision| (b"k".to_vec(), 5, revision));
        assert_eq!(table.rows(), rows, "the newest is the first of equals");
        let search = table.search();
        let around = search
            .bracket(&Target::extreme(Side::Start), &mut Trail::default())
            .unwrap();
        assert_eq!(around.entry.map(|entry| entry.revision()), Some(2));
    });
}
