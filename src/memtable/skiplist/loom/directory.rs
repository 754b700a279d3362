//! Loom models of the directory: all interleavings of two threads, on the production code with
//! pages of four slots. Each model names the planted bugs that turn it red.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::comparator::BYTEWISE;
use crate::integrity::digest::Width;
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::integrity::tag::Secret;
use crate::key::Target;
use crate::kind::Kind;
use crate::memtable::arena::arena::{Arena, SubChunk};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::directory::lookup::LeafSlot;
use crate::memtable::directory::name::Named;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::link_tower::Tower;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node_space::make_heads;
use crate::memtable::skiplist::search::Search;
use crate::sync::model::{JoinHandle, check, spawn};

/// A list whose nodes are named one by one.
pub(crate) struct Table {
    arena: Arena,
    list: List,
    keys: &'static [&'static [u8]],
    nodes: Vec<u32>,
}

const KEYS: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j"];
/// Keys for two pages: the second one leaves out the `k` that its own begin with.
const SHARED: &[&[u8]] = &[b"k1", b"k2", b"k3", b"k4", b"k5", b"k6", b"k7", b"l"];

impl Table {
    /// A table of the first `count` keys; those at the places `named` have names.
    pub(crate) fn new(count: usize, named: &[usize]) -> Arc<Table> {
        Table::of(&KEYS[..count], named)
    }

    /// A table of these keys; those at the places `named` have names.
    fn of(keys: &'static [&'static [u8]], named: &[usize]) -> Arc<Table> {
        let (width, secret) = (Width::new(0).unwrap(), Secret::from_seed(1));
        let arena = Arena::new(1 << 16, 1 << 16, width, secret);
        make_heads(&arena).unwrap();
        let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
        let list = list.with_directory();
        let mut table = Table {
            arena,
            list,
            keys,
            nodes: Vec::new(),
        };
        let mut inserter = Inserter::default();
        for key in keys {
            let fields = Fields::new(1, Kind::PUT, key, b"", None);
            let placed = table.list.insert(
                &table.search(),
                &mut inserter,
                &fields,
                DuplicatePolicy::Reject,
            );
            table.nodes.push(placed.unwrap().tower.node);
        }
        let mut slab = SubChunk::default();
        for place in named {
            assert!(is_named(table.name_from(&mut slab, *place, LeafSlot::NONE)));
        }
        Arc::new(table)
    }

    fn search(&self) -> Search<'_> {
        self.list.search(self.arena.view().unwrap(), &BYTEWISE)
    }

    fn target(&self, place: usize) -> Target<'static> {
        Target::new(&BYTEWISE, self.keys[place], 1)
    }

    fn name(&self, place: usize) -> Named {
        self.name_at(place, LeafSlot::NONE)
    }

    /// Names a key, with a guess of its slot.
    fn name_at(&self, place: usize, guess: LeafSlot) -> Named {
        self.name_from(&mut SubChunk::default(), place, guess)
    }

    fn name_from(&self, slab: &mut SubChunk, place: usize, guess: LeafSlot) -> Named {
        self.search()
            .directory()
            .name(slab, guess, self.nodes[place], &self.target(place))
    }

    /// Names a key as its writer does, and one of the writer's nodes that wait.
    pub(crate) fn name_and_link(&self, place: usize, inserter: &mut Inserter) {
        let fields = Fields::new(1, Kind::PUT, self.keys[place], b"", None);
        let search = self.search();
        let tower = Tower {
            node: self.nodes[place],
            height: 1,
            revision: 0,
            pred: search.sentinel,
        };
        inserter.name_and_link(&search, &fields, tower);
    }

    /// Two writers, each of which names one key.
    fn name_beside(self: &Arc<Self>, first: usize, second: usize) -> [Inserter; 2] {
        let threads = [first, second].map(|place| {
            let table = Arc::clone(self);
            spawn(move || {
                let mut inserter = Inserter::default();
                table.name_and_link(place, &mut inserter);
                inserter
            })
        });
        threads.map(|thread| thread.join().unwrap())
    }

    fn spawn_name(self: &Arc<Self>, place: usize) -> JoinHandle<Named> {
        let table = Arc::clone(self);
        spawn(move || table.name(place))
    }

    /// The nodes before and after a key by its hint. Asserts that the first one is before it.
    pub(crate) fn hint(&self, place: usize) -> (Option<usize>, Option<usize>) {
        let search = self.search();
        let hint = search
            .directory()
            .lookup(&self.target(place))
            .expect("a page");
        let of = |node: u32| self.nodes.iter().position(|other| *other == node);
        assert!(
            of(hint.before).is_none_or(|before| before < place),
            "{place}: {hint:?} of {:?}",
            self.nodes
        );
        (of(hint.before), of(hint.after))
    }

    /// Asserts that the hint of every named key names it, or, where a page begins, the named key
    /// before it.
    fn finds(&self, named: impl IntoIterator<Item = usize>) {
        let mut named: Vec<usize> = named.into_iter().collect();
        named.sort_unstable();
        let mut before = None;
        for place in named {
            let hint = self.hint(place);
            assert!(
                hint.1 == Some(place) || hint == (before, None),
                "{place}: {hint:?} after {before:?}"
            );
            before = Some(place);
        }
    }
}

/// The keys whose naming ended in a slot.
fn named(outcomes: [(usize, JoinHandle<Named>); 2]) -> impl Iterator<Item = usize> {
    outcomes
        .into_iter()
        .map(|(place, thread)| (place, thread.join().unwrap()))
        .filter(|(_, named)| is_named(*named))
        .map(|(place, _)| place)
}

fn is_named(named: Named) -> bool {
    matches!(named, Named::In(_))
}

/// Two names for one leaf: each is there, or its writer found the lock taken. Red for
/// `leaf_lock_ignored`.
#[test]
fn loom_two_names_meet_in_a_leaf() {
    check(|| {
        let table = Table::new(4, &[1]);
        let outcomes = [0, 3].map(|place| (place, table.spawn_name(place)));
        let both: Vec<usize> = named(outcomes).chain([1]).collect();
        assert!(both.len() > 1, "one of the two has the lock");
        table.finds(both);
    });
}

/// Two names with one guess: they are in order, whichever was first. Red for `leaf_lock_ignored`.
#[test]
fn loom_two_guessed_names_meet_at_a_slot() {
    check(|| {
        let table = Table::new(5, &[0, 1, 4]);
        let hint = table
            .search()
            .directory()
            .lookup(&table.target(2))
            .expect("a page");
        let spawn_name = |place| {
            let table = Arc::clone(&table);
            (place, spawn(move || table.name_at(place, hint.at)))
        };
        let all: Vec<usize> = named([2, 3].map(spawn_name)).chain([0, 1, 4]).collect();
        assert!(all.len() > 3, "one of the two has the lock");
        table.finds(all);
    });
}

/// The first two names of a table: one root.
#[test]
fn loom_two_first_names() {
    check(|| {
        let table = Table::new(2, &[]);
        let outcomes = [0, 1].map(|place| (place, table.spawn_name(place)));
        let both: Vec<usize> = named(outcomes).collect();
        table.finds(both);
    });
}

/// A name that shifts others, beside a reader: the reader may start one slot early, and misses none
/// (PAGE-2). Red for `slots_shifted_up`.
#[test]
fn loom_a_reader_misses_no_name_that_is_shifted() {
    check(|| {
        let table = Table::new(4, &[1, 2, 3]);
        let writer = table.spawn_name(0);
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || assert!(matches!(table.hint(2), (Some(0 | 1), Some(1 | 2)))))
        };
        assert!(is_named(writer.join().unwrap()));
        reader.join().unwrap();
        table.finds(0..4);
    });
}

/// A split beside a name at the end: all names are found. Red for `leaf_lock_ignored`.
#[test]
fn loom_a_split_beside_an_append() {
    check(|| {
        let table = Table::new(6, &[0, 1, 3, 4]);
        let outcomes = [2, 5].map(|place| (place, table.spawn_name(place)));
        let both: Vec<usize> = named(outcomes).chain([0, 1, 3, 4]).collect();
        table.finds(both);
    });
}

/// A split beside a reader: the hint is never after its target.
#[test]
fn loom_a_split_beside_a_reader() {
    check(|| {
        let table = Table::new(5, &[0, 1, 3, 4]);
        let writer = table.spawn_name(2);
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || table.hint(4))
        };
        assert!(is_named(writer.join().unwrap()));
        reader.join().unwrap();
        table.finds(0..5);
    });
}

/// Two splits below one parent: the new page of the writer that finds the parent locked is reached
/// through its left neighbour, and all names are found (NAME-1). Red for `leaf_lock_ignored`.
#[test]
fn loom_two_splits_update_one_parent() {
    check(|| {
        let table = Table::new(10, &[0, 1, 3, 4, 5, 6, 8, 9]);
        let outcomes = [2, 7].map(|place| (place, table.spawn_name(place)));
        let both: Vec<usize> = named(outcomes).chain([0, 1, 3, 4, 5, 6, 8, 9]).collect();
        assert!(
            both.len() > 8,
            "a writer that comes from the page before its own may find its own locked"
        );
        table.finds(both);
    });
}

/// A leaf that is measured again, beside a name for a new page before it: both names are found. Red
/// for `wrong_side_believed`.
#[test]
fn loom_a_leaf_measured_again_beside_a_name() {
    check(|| {
        let table = Table::of(SHARED, &[0, 1, 2, 3, 5]);
        let outcomes = [4, 7].map(|place| (place, table.spawn_name(place)));
        let all: Vec<usize> = named(outcomes).chain([0, 1, 2, 3, 5]).collect();
        assert!(all.len() > 5, "one of the two has the lock");
        table.finds(all);
    });
}

/// A leaf that is measured again, beside a reader, which meets old and new words: its hint may be
/// wrong, and its search finds the entry (PAGE-3).
#[test]
fn loom_a_leaf_measured_again_beside_a_reader() {
    check(|| {
        let table = Table::of(SHARED, &[0, 1, 2, 3, 5]);
        let writer = table.spawn_name(7);
        let reader = {
            let table = Arc::clone(&table);
            spawn(move || {
                let found = table.search().first_at_or_after(&table.target(5));
                let node = found.expect("intact memory").map(|entry| entry.offset());
                assert_eq!(node, Some(table.nodes[5]));
            })
        };
        assert!(is_named(writer.join().unwrap()));
        reader.join().unwrap();
        table.finds([0, 1, 2, 3, 5, 7]);
    });
}

/// A node whose leaf is locked waits for its writer's next name (INSERTER-1). Red for
/// `busy_name_forgotten`.
#[test]
fn loom_a_name_that_waits_gets_its_turn() {
    check(|| {
        let table = Table::new(9, &[2, 4, 6, 8, 7]);
        let inserters = table.name_beside(0, 3);
        for (mut inserter, place) in inserters.into_iter().zip([1, 5]) {
            table.name_and_link(place, &mut inserter);
        }
        table.finds(0..9);
    });
}

/// Only the writer that has the lock of the last leaf names its node there: the other one names its
/// next node (INSERTER-2). Red for `left_node_forgotten`.
#[test]
fn loom_the_last_leaf_is_left_to_one() {
    check(|| {
        let table = Table::new(6, &[0]);
        let inserters = table.name_beside(1, 2);
        let mut all = vec![0];
        for (mut inserter, (place, next)) in inserters.into_iter().zip([(1, 4), (2, 5)]) {
            if table.hint(place).1 == Some(place) {
                all.push(place);
            } else {
                inserter.arrive();
                table.name_and_link(next, &mut inserter);
                assert_eq!(table.hint(next).1, Some(next), "its next node has a name");
                all.push(next);
            }
        }
        assert!(
            all.contains(&1) || all.contains(&2),
            "one of the two has the lock"
        );
        table.finds(all);
    });
}
