//! Tests of the list: inserts, most of which lose their compare-and-swap, a given number of times,
//! on either side, and with damage between two attempts; searches over damage.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod directory;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::bracket::{Bracket, Gap};
use super::find_many::find_many;
use super::insert::KEPT_MAX;
use super::inserter::Inserter;
use super::list::{DuplicatePolicy, List};
use super::node_space::make_heads;
use super::search::Search;
use super::splice::Trail;
use super::test_hooks::{BETWEEN, Step};

use crate::comparator::BYTEWISE;
use crate::error::{Corruption, Error, Result};
use crate::integrity::digest::{Protected, Width, key_part};
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::integrity::tag::Secret;
use crate::key::{SequenceNumber, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::Arena;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::sync::Ordering;

const VALUE: &[u8] = b"a value";
const VICTIM: &[u8] = b"m, the key in the middle";

fn fields(key: &[u8], sequence: SequenceNumber) -> Fields<'_> {
    Fields::new(sequence, Kind::PUT, key, VALUE, None)
}

/// A list, which the test's insert and its rivals share.
struct Table {
    arena: Arena,
    list: List,
}

impl Table {
    /// A list of two keys; `make` may give it a directory.
    fn new(make: fn(List) -> List) -> Rc<Table> {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(1 << 16, 1 << 20, width, secret);
        make_heads(&arena).unwrap();
        let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
        let table = Table {
            arena,
            list: make(list),
        };
        for key in [b"a".as_slice(), b"z"] {
            table.put(&fields(key, 1), DuplicatePolicy::Reject).unwrap();
        }
        Rc::new(table)
    }

    fn search(&self) -> Search<'_> {
        self.list.search(self.arena.view().unwrap(), &BYTEWISE)
    }

    /// Inserts with a new writer, and returns the revision of the node.
    fn put(&self, fields: &Fields<'_>, policy: DuplicatePolicy) -> Result<u32> {
        let (search, mut writer) = (self.search(), Inserter::default());
        let placed = self.list.insert(&search, &mut writer, fields, policy)?;
        self.list
            .link_tower(&search, &mut writer, fields, placed.tower);
        Ok(placed.tower.revision)
    }

    /// Inserts `victim`, which loses its compare-and-swap to each of the rivals in turn. `damage`
    /// runs between two attempts, with the node.
    fn put_late(
        self: &Rc<Self>,
        (victim, policy): (&Fields<'_>, DuplicatePolicy),
        rivals: Vec<(Vec<u8>, SequenceNumber)>,
        mut damage: impl FnMut(&Table, u32) + 'static,
    ) -> Result<u32> {
        let (table, mut rivals) = (Rc::clone(self), rivals.into_iter());
        let between = move |step| match step {
            Step::Built(_) => {
                let Some((key, sequence)) = rivals.next() else {
                    return;
                };
                table.put(&fields(&key, sequence), policy).unwrap();
            }
            Step::Kept(node) => damage(&table, node),
        };
        BETWEEN.replace(Some(Box::new(between)));
        let outcome = self.put(victim, policy);
        BETWEEN.replace(None);
        outcome
    }

    /// Keys, sequence numbers and revisions of level 0. Asserts that each back link names the node
    /// before.
    fn rows(&self) -> Vec<(Vec<u8>, SequenceNumber, u32)> {
        let search = self.search();
        let (mut rows, mut at) = (Vec::new(), search.sentinel);
        loop {
            let next = search.view.link(at, 0).unwrap();
            assert_eq!(
                search.view.back_hint(next),
                Some(at),
                "after {} entries",
                rows.len()
            );
            let Some(entry) = search.verified(next).unwrap() else {
                return rows;
            };
            assert_eq!(entry.value(&search.view).unwrap(), VALUE);
            let (key, sequence) = entry.version();
            rows.push((key.to_vec(), sequence, entry.revision()));
            at = next;
        }
    }

    /// Whether the list has a key, with its value.
    fn holds(&self, key: &[u8]) -> Result<bool, Corruption> {
        let search = self.search();
        let target = Target::new(&BYTEWISE, key, SequenceNumber::MAX);
        let found = search
            .first_at_or_after(&target)
            .map_err(|gap| gap.corruption)?;
        let Some(entry) = found.filter(|entry| entry.key() == key) else {
            return Ok(false);
        };
        assert_eq!(entry.value(&search.view)?, VALUE);
        Ok(true)
    }
}

/// Keys around the victim, each closer to it, in turns before and after it.
fn rivals(count: u32) -> Vec<(Vec<u8>, SequenceNumber)> {
    let key = |n: u32| match n % 2 {
        0 => format!("b{n:04}").into_bytes(),
        _ => format!("y{:04}", 9999 - n).into_bytes(),
    };
    (0..count).map(|n| (key(n), 1)).collect()
}

const MAKERS: [fn(List) -> List; 2] = [|list| list, List::with_directory];

/// However often an insert loses, its node stays where it was built, cannot be opened until it is
/// linked, and ends between its last neighbours.
#[test]
fn a_node_that_loses_is_kept() {
    for (make, count) in MAKERS.iter().flat_map(|make| {
        [0, 1, 2, 3, 8, KEPT_MAX, KEPT_MAX + 1, KEPT_MAX + 3].map(|count| (make, count))
    }) {
        let table = Table::new(*make);
        let rivals = rivals(count);
        let mut want: Vec<_> = rivals.iter().map(|(key, _)| key.clone()).collect();
        want.extend([b"a".to_vec(), VICTIM.to_vec(), b"z".to_vec()]);
        want.sort();
        let nodes = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&nodes);
        let look = move |table: &Table, node| {
            let view = &table.search().view;
            let lengths = fields(VICTIM, 1).lengths();
            assert!(
                view.try_open(node).is_none(),
                "it opens before it is linked"
            );
            assert_eq!(view.stored_fields(node), Some((lengths, 1)), "it is kept");
            seen.borrow_mut().push(node);
        };
        let victim = (&fields(VICTIM, 1), DuplicatePolicy::Reject);
        assert_eq!(table.put_late(victim, rivals, look).unwrap(), 0);
        let rows: Vec<_> = table.rows().into_iter().map(|row| row.0).collect();
        assert_eq!(rows, want, "{count} lost exchanges");
        assert!(want.iter().all(|key| table.holds(key) == Ok(true)));
        let nodes = nodes.take();
        assert_eq!(u32::try_from(nodes.len()), Ok(count));
        assert!(nodes.windows(2).all(|pair| pair[0] == pair[1]), "one place");
    }
}

/// The rivals are versions of the victim's own key: what the links say about the keys at their ends
/// is written again.
#[test]
fn a_kept_node_among_versions_of_its_key() {
    for make in MAKERS {
        for order in [[7, 3], [3, 7]] {
            let table = Table::new(make);
            let rivals = order.map(|sequence| (VICTIM.to_vec(), sequence)).to_vec();
            let victim = (&fields(VICTIM, 5), DuplicatePolicy::Reject);
            table.put_late(victim, rivals, |_, _| ()).unwrap();
            let sequences: Vec<_> = table.rows().into_iter().map(|row| row.1).collect();
            assert_eq!(sequences, [1, 7, 5, 3, 1]);
            let search = table.search();
            for (snapshot, found) in [(9, 7), (6, 5), (4, 3)] {
                let target = Target::new(&BYTEWISE, VICTIM, snapshot);
                let entry = search.first_at_or_after(&target).unwrap().unwrap();
                assert_eq!(entry.version(), (VICTIM, found));
            }
        }
    }
}

/// The winner is an equal entry: the loser is refused and its node zeroed, or it replaces the
/// winner by a node of another revision.
#[test]
fn a_kept_node_meets_its_equal() {
    for make in MAKERS {
        let lost = Rc::new(Cell::new(0));
        let late = |table: &Rc<Table>, policy| {
            let (lost, victim) = (Rc::clone(&lost), fields(VICTIM, 5));
            let rivals = vec![(b"b".to_vec(), 1), (VICTIM.to_vec(), 5)];
            table.put_late((&victim, policy), rivals, move |_, node| lost.set(node))
        };
        let table = Table::new(make);
        let refused = late(&table, DuplicatePolicy::Reject);
        assert!(
            matches!(refused, Err(Error::DuplicateEntry { sequence: 5 })),
            "{refused:?}"
        );
        let words = lost.get() - 1..lost.get() + 9;
        let view = &table.search().view;
        // ORDERING: Relaxed: one thread.
        let is_clear = |unit| view.word(unit).unwrap().load(Ordering::Relaxed) == 0;
        assert!(words.into_iter().all(is_clear), "it is zeroed");
        assert_eq!(table.rows().len(), 4);
        let table = Table::new(make);
        assert_eq!(late(&table, DuplicatePolicy::Replace).unwrap(), 1);
        let revisions: Vec<_> = table.rows().into_iter().map(|row| row.2).collect();
        assert_eq!(revisions, [0, 0, 1, 0, 0]);
    }
}

/// Flips every bit of every key in turn: searches for many keys end where single searches end,
/// in a bracket or a gap, and never in a wrong answer.
#[test]
fn many_searches_end_where_single_ones_end_also_over_damage() {
    let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
    let arena = Arena::new(1 << 20, 1 << 24, width, secret);
    make_heads(&arena).unwrap();
    let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
    let list = list.with_directory();
    let search = list.search(arena.view().unwrap(), &BYTEWISE);
    let mut inserter = Inserter::default();
    let keys: Vec<[u8; 8]> = (0..40u64)
        .map(|n| (n * 0x0101_0204).to_be_bytes())
        .collect();
    for key in &keys {
        let fields = Fields::new(1, Kind::PUT, key, b"v", None);
        let placed = list
            .insert(&search, &mut inserter, &fields, DuplicatePolicy::Reject)
            .unwrap();
        list.link_tower(&search, &mut inserter, &fields, placed.tower);
    }
    let targets: Vec<_> = keys
        .iter()
        .map(|key| Target::new(&BYTEWISE, key, u64::MAX))
        .collect();
    let key_or_report = |outcome: Result<Bracket<'_>, Gap>| {
        outcome
            .map(|bracket| bracket.entry.map(|entry| entry.key().to_vec()))
            .map_err(|gap| gap.corruption)
    };
    let answers = || {
        let mut answers = vec![None; targets.len()];
        find_many(&search, &targets, &mut |index, hint| {
            let outcome = search.bracket_from(hint, &targets[index], &mut Trail::default());
            let first = search
                .first_at_or_after_from(hint, &targets[index])
                .map_err(|gap| gap.corruption);
            let outcome = key_or_report(outcome);
            // A link alone may give the answer where no bracket does, and never another one.
            let first = first.map(|entry| entry.map(|entry| entry.key().to_vec()));
            assert!(
                first == outcome || outcome.is_err() && first == Ok(Some(keys[index].to_vec()))
            );
            assert!(
                answers[index].replace(outcome).is_none(),
                "{index} was answered twice"
            );
        });
        answers
    };
    let stride = if cfg!(debug_assertions) { 3 } else { 1 };
    let mut at = search.sentinel;
    while let Some(entry) = search.next(at).unwrap() {
        at = entry.offset();
        // The key starts 44 bytes after the node and is 8 long: two words hold it.
        for (unit, bit) in
            (0..2).flat_map(|word| (0..64).step_by(stride).map(move |bit| (at + 5 + word, bit)))
        {
            let word = search.view.word(unit).unwrap();
            // ORDERING: Relaxed: one thread.
            word.fetch_xor(1 << bit, Ordering::Relaxed);
            for ((target, key), answer) in targets.iter().zip(&keys).zip(answers()) {
                let answer = answer.unwrap();
                assert_eq!(
                    answer,
                    key_or_report(search.bracket(target, &mut Trail::default())),
                    "bit {bit} of {unit}"
                );
                assert!(
                    !answer.is_ok_and(|found| found.as_deref() != Some(key)),
                    "bit {bit} of {unit}"
                );
            }
            // ORDERING: Relaxed: one thread.
            word.fetch_xor(1 << bit, Ordering::Relaxed);
        }
    }
}

/// The damaged node: the kept one, the one after which it lost, the winner (after which it belongs
/// now), or the node after both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    Kept,
    Start,
    Before,
    After,
}

/// The units of the victim, relative to its offset: one link before it; header, digests, key and
/// value from it on. The other nodes are shorter.
const UNITS: std::ops::Range<i64> = -1..10;

/// Every bit of the kept node and of its neighbours flips between two attempts: each read answers
/// right or by `Corruption`, and what the build had verified is verified again.
#[test]
fn damage_between_two_attempts() {
    let step = if cfg!(miri) { 61 } else { 1 };
    let bits: Vec<_> = UNITS
        .flat_map(|unit| (0..64).map(move |bit| (unit, bit)))
        .collect();
    for make in MAKERS {
        for hit in [Hit::Kept, Hit::Start, Hit::Before, Hit::After] {
            let outcomes: Vec<_> = bits
                .iter()
                .step_by(step)
                .map(|(unit, bit)| damaged(make, hit, *unit, *bit))
                .collect();
            assert!(
                outcomes.iter().any(|outcome| *outcome),
                "{hit:?}: no insert succeeds"
            );
            let is_refused = outcomes.iter().any(|outcome| !*outcome);
            // A published node heals.
            assert_eq!(is_refused, hit == Hit::Kept, "{hit:?}");
        }
    }
}

/// Flips one bit between two attempts. Whether the insert succeeds.
fn damaged(make: fn(List) -> List, hit: Hit, unit: i64, bit: u32) -> bool {
    let table = Table::new(make);
    let note = format!("bit {bit} of unit {unit}, {hit:?}");
    let strike = move |table: &Table, node: u32| {
        let view = &table.search().view;
        let first = view.link(table.search().sentinel, 0).unwrap();
        let at = match hit {
            Hit::Kept => node,
            Hit::Start => first,
            Hit::Before => view.link(first, 0).unwrap(),
            Hit::After => view.back_hint(table.search().sentinel).unwrap(),
        };
        let unit = u32::try_from(i64::from(at) + unit).unwrap();
        // ORDERING: Relaxed: one thread.
        view.word(unit)
            .unwrap()
            .fetch_xor(1 << bit, Ordering::Relaxed);
    };
    let digest = bit
        .is_multiple_of(2)
        .then(|| Protected::of(VICTIM, VALUE, Kind::PUT));
    let victim = Fields {
        caller_digest: digest,
        ..fields(VICTIM, 5)
    };
    let rivals = vec![(VICTIM.to_vec(), 9)];
    let outcome = table.put_late((&victim, DuplicatePolicy::Reject), rivals, strike);
    let refused = outcome.as_ref().err().and_then(Error::corruption);
    assert!(outcome.is_ok() || refused.is_some(), "{note}: {outcome:?}");
    if hit == Hit::Kept {
        // Its link and its back word are written again; the last bytes of its space are padding.
        let is_read =
            !matches!(unit, -1 | 2) && unit * 64 + i64::from(bit) < 8 * (28 + 16 + 24 + 7);
        assert_eq!(outcome.is_err(), is_read, "{note}");
    }
    for key in [b"a".as_slice(), VICTIM, b"z"] {
        assert!(
            matches!(table.holds(key), Ok(true) | Err(_)),
            "{note}: {key:?} is absent"
        );
    }
    let search = table.search();
    let version = search.first_at_or_after(&Target::new(&BYTEWISE, VICTIM, 5));
    let found = version.map(|entry| entry.map(|entry| entry.version()));
    match (outcome.is_ok(), found) {
        (_, Err(_)) | (true, Ok(Some((VICTIM, 5)))) | (false, Ok(Some((b"z", 1)))) => {}
        (inserted, found) => panic!("{note}: inserted: {inserted}, {found:?}"),
    }
    outcome.is_ok()
}

/// Keys of every length around the ends of the short copy, with the hash of their own or of
/// another key.
#[test]
fn a_key_that_is_not_what_was_hashed_is_not_published() {
    let (width, secret) = (Width::new(1).unwrap(), Secret::from_seed(5));
    let arena = Arena::new(1 << 20, 1 << 24, width, secret);
    make_heads(&arena).unwrap();
    let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
    let search = list.search(arena.view().unwrap(), &BYTEWISE);
    let mut inserter = Inserter::default();
    let bytes: Vec<u8> = (1..=40).collect();
    for len in 0..bytes.len() {
        let key = &bytes[..len];
        let fields = Fields::new(1, Kind::PUT, key, b"v", None);
        let mut insert = |fields: &Fields<'_>| {
            list.insert(&search, &mut inserter, fields, DuplicatePolicy::Reject)
                .map(drop)
        };
        let other = insert(&Fields {
            key_part: key_part(&bytes[..=len]),
            ..fields
        });
        assert!(
            matches!(other, Err(Error::Corruption(_))),
            "{len}: {other:?}"
        );
        insert(&fields).unwrap();
    }
    let mut at = search.sentinel;
    for len in 0..bytes.len() {
        let entry = search.next(at).unwrap().unwrap();
        assert_eq!(entry.key(), &bytes[..len]);
        at = entry.offset();
    }
    assert!(search.next(at).unwrap().is_none());
}
