//! Tests of the directory with its list: no answer depends on it, and searches take few steps.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

use crate::comparator::BYTEWISE;
use crate::integrity::digest::Width;
use crate::integrity::hash::splitmix;
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::integrity::tag::Secret;
use crate::key::{SequenceNumber, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::node::Verified;
use crate::memtable::directory::inspect::{PageAt, PageState};
use crate::memtable::directory::name::NAMED_EVERY;
use crate::memtable::directory::page::{COUNT, HEAD, LOCK, Page, SLOTS};
use crate::memtable::skiplist::find_many::find_many;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node_space::make_heads;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;
use crate::sync::{AtomicU64, Mutex, Ordering};

mod hostile_keys;
mod hostile_shapes;

use hostile_shapes::path;

struct Table {
    arena: Arena,
    list: List,
}

impl Table {
    fn new() -> Table {
        let table = Table::without_directory();
        let list = table.list.with_directory();
        Table { list, ..table }
    }

    fn without_directory() -> Table {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(
            if cfg!(miri) { 1 << 20 } else { 16 << 20 },
            1 << 30,
            width,
            secret,
        );
        make_heads(&arena).unwrap();
        let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
        Table { arena, list }
    }

    fn search(&self) -> Search<'_> {
        self.list.search(self.arena.view().unwrap(), &BYTEWISE)
    }

    fn put(&self, inserter: &mut Inserter, key: &[u8], sequence: SequenceNumber) {
        let search = self.search();
        let fields = Fields::new(sequence, Kind::PUT, key, b"value", None);
        let placed = self
            .list
            .insert(&search, inserter, &fields, DuplicatePolicy::Reject)
            .unwrap();
        self.list
            .link_tower(&search, inserter, &fields, placed.tower);
    }

    /// Entries in the order of level 0.
    fn entries(&self) -> Vec<(Vec<u8>, SequenceNumber)> {
        let (search, mut entries) = (self.search(), Vec::new());
        let mut at = search.sentinel;
        while let Some(entry) = search.next(at).unwrap() {
            entries.push((entry.key().to_vec(), entry.sequence()));
            at = entry.offset();
        }
        entries
    }

    /// Searches for every entry, by single searches and by searches for many. Returns how many
    /// nodes a single search opens.
    fn finds(&self, entries: &[(Vec<u8>, SequenceNumber)], note: &str) -> f64 {
        let search = self.search();
        let targets: Vec<Target<'_>> = entries
            .iter()
            .map(|(key, sequence)| Target::new(&BYTEWISE, key, *sequence))
            .collect();
        let mut trail = Trail::default();
        for (target, (key, sequence)) in targets.iter().zip(entries) {
            let entry = search.bracket(target, &mut trail).unwrap().entry;
            let entry = entry.unwrap_or_else(|| panic!("{note}: {key:?}@{sequence} is not there"));
            assert_eq!(
                (entry.key(), entry.sequence()),
                (&key[..], *sequence),
                "{note}"
            );
        }
        let mut found = 0;
        find_many(&search, &targets, &mut |index, hint| {
            let entry = search
                .first_at_or_after_from(hint, &targets[index])
                .unwrap()
                .unwrap();
            assert_eq!(
                (entry.key(), entry.sequence()),
                (&entries[index].0[..], entries[index].1),
                "{note}"
            );
            found += 1;
        });
        assert_eq!(found, entries.len());
        f64::from(trail.nodes) / entries.len() as f64
    }
}

/// A size: fewer entries in development builds, and very few under Miri.
fn scaled(full: u64) -> u64 {
    if cfg!(miri) {
        full / 150
    } else if cfg!(debug_assertions) {
        full / 30
    } else {
        full
    }
}

/// Whether a page of the directory keeps chosen bytes.
fn has_chosen(search: &Search<'_>) -> bool {
    let is_chosen = |at: PageAt| Page::open(&search.view, at.page).unwrap().is_chosen();
    search.directory().pages().any(is_chosen)
}

/// Sets of keys, in the order in which they are written.
fn shapes(count: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let numbers = |number: &dyn Fn(u64) -> Vec<u8>| (0..count).map(number).collect::<Vec<_>>();
    let random = |n: u64| splitmix(n);
    vec![
        ("random", numbers(&|n| random(n).to_be_bytes().repeat(2))),
        (
            "dense, random order",
            numbers(&|n| [[0; 8], (random(n) % (4 * count)).to_be_bytes()].concat()),
        ),
        (
            "decimal",
            numbers(&|n| format!("user{:010}", random(n) % (4 * count)).into_bytes()),
        ),
        (
            "24 bytes shared",
            numbers(&|n| {
                [
                    b"all keys begin with this".as_slice(),
                    &random(n).to_be_bytes(),
                ]
                .concat()
            }),
        ),
        (
            "ascending",
            numbers(&|n| [[0; 8], n.to_be_bytes()].concat()),
        ),
        (
            "descending",
            numbers(&|n| (count - n).to_be_bytes().to_vec()),
        ),
        (
            "one key",
            numbers(&|_| b"the one key of this table".to_vec()),
        ),
        ("few keys", numbers(&|n| vec![b'k', (random(n) % 7) as u8])),
        (
            "short keys",
            numbers(&|n| random(n).to_be_bytes()[..(random(n) % 9) as usize].to_vec()),
        ),
        ("zeros", numbers(&|n| vec![0; (random(n) % 40) as usize])),
        ("ones", numbers(&|n| vec![0xff; (random(n) % 40) as usize])),
        ("paths", numbers(&|n| path(random(n)))),
        (
            "paths that end anywhere, in zeros too",
            numbers(&|n| {
                let (mut key, end) = (path(random(n)), random(!n) % 64);
                key.truncate(20 + end as usize);
                key.extend([0; 3].iter().take((end % 4) as usize));
                key
            }),
        ),
        (
            "two prefixes",
            numbers(&|n| {
                let start: &[u8] = if random(n) % 2 == 0 {
                    b"a long beginning"
                } else {
                    b"another, longer beginning"
                };
                [start, &(random(n) >> 40).to_be_bytes()].concat()
            }),
        ),
    ]
}

#[test]
fn every_entry_is_found_by_few_steps() {
    let many = scaled(20_000);
    let full = SLOTS as u64;
    for count in [1, 3, full, full + 1, many]
        .into_iter()
        .take(if cfg!(miri) { 2 } else { 5 })
    {
        for (name, keys) in shapes(count) {
            let (table, mut inserter) = (Table::new(), Inserter::default());
            (1..)
                .zip(&keys)
                .for_each(|(sequence, key)| table.put(&mut inserter, key, sequence));
            let mut want: Vec<(Vec<u8>, SequenceNumber)> = keys.into_iter().zip(1..).collect();
            want.sort_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(&left.1)));
            let note = format!("{count} entries, {name}");
            assert_eq!(table.entries(), want, "{note}");
            let nodes = table.finds(&want, &note);
            assert!(nodes < 4.0, "{note}: {nodes} nodes a search");
            let is_chosen = name == "paths" && count == many && !cfg!(miri);
            assert!(
                !is_chosen || has_chosen(&table.search()),
                "{note}: no page keeps chosen bytes"
            );
        }
    }
}

/// How many nodes have a name.
fn names(search: &Search<'_>) -> usize {
    let directory = search.directory();
    let leaves = directory.pages().filter(|at| at.level == 0);
    let count = |at: PageAt| Page::open(&search.view, at.page)?.at_rest();
    leaves.filter_map(count).map(|(_, count)| count).sum()
}

/// Sixteen writers write every sixteenth key each, in ascending order: in turns, so that all
/// append; or some rounds apart, so that most insert between entries of others. They name about as
/// many nodes as one writer would, and searches take few steps.
#[test]
fn writers_that_ascend_together_name_few_nodes() {
    let (writers, count) = (16_u64, if cfg!(miri) { 2 } else { 250 });
    for ahead in [0, 1, 40] {
        let (table, mut inserters) = (
            Table::new(),
            Vec::from_iter((0..writers).map(|_| Inserter::default())),
        );
        for round in 0..count + ahead * writers {
            for (writer, inserter) in (0..).zip(&mut inserters) {
                let turn = round
                    .checked_sub(ahead * writer)
                    .filter(|turn| *turn < count);
                let Some(n) = turn.map(|turn| turn * writers + writer) else {
                    continue;
                };
                table.put(inserter, &[[0; 8], n.to_be_bytes()].concat(), n + 1);
            }
        }
        let entries = table.entries();
        assert_eq!(entries.len() as u64, writers * count);
        let (named, note) = (names(&table.search()), format!("{ahead} rounds ahead"));
        let nodes = table.finds(&entries, &note);
        println!(
            "{note}: {named} of {} nodes have names, {nodes} nodes a search",
            entries.len()
        );
        // The first two nodes of each writer are named.
        let most = entries.len() * 4 / (3 * NAMED_EVERY as usize) + 2 * inserters.len();
        assert!(named <= most, "{note}: {named} names");
        assert!(nodes < 8.0, "{note}: {nodes} nodes a search");
    }
}

/// A hot key between two others, with its versions written in ascending order and in another order.
#[test]
#[cfg_attr(miri, ignore = "many entries")]
fn one_key_has_a_million_versions() {
    let many = scaled(1_000_000);
    // 7919 is prime: each number once.
    for (name, step) in [("ascending", 1), ("any order", 7919)] {
        let (table, mut inserter) = (Table::new(), Inserter::default());
        table.put(&mut inserter, b"a", 1);
        table.put(&mut inserter, b"z", 1);
        (0..many).for_each(|n| table.put(&mut inserter, b"hot", 1 + n * step % many));
        let versions = (1..=many).rev().map(|sequence| (b"hot".to_vec(), sequence));
        let want: Vec<_> = [(b"a".to_vec(), 1)]
            .into_iter()
            .chain(versions)
            .chain([(b"z".to_vec(), 1)])
            .collect();
        assert!(table.entries() == want, "{name}");
        let nodes = table.finds(&want, name);
        assert!(nodes < 4.0, "{name}: {nodes} nodes a search");
    }
}

/// Three writers write to the same leaves. Returns how many nodes a search opens afterwards, and
/// how many nodes stayed unnamed.
fn meet(name: &str, keys: &[Vec<u8>]) -> (f64, usize) {
    let (table, next) = (Table::new(), crate::sync::AtomicU64::new(1));
    let write = |thread: usize| {
        let mut inserter = Inserter::default();
        for key in keys.iter().skip(thread).step_by(3) {
            // ORDERING: Relaxed: numbers only have to differ.
            table.put(&mut inserter, key, next.fetch_add(1, Ordering::Relaxed));
            table
                .search()
                .first_at_or_after(&Target::new(&BYTEWISE, key, u64::MAX))
                .unwrap();
        }
        inserter.forgotten()
    };
    let forgotten = std::thread::scope(|scope| {
        let writers = [0, 1, 2].map(|thread| scope.spawn(move || write(thread)));
        writers
            .map(|writer| writer.join().unwrap())
            .into_iter()
            .sum()
    });
    let entries = table.entries();
    assert_eq!(entries.len(), keys.len(), "{name}");
    assert!(is_sound(&table.search()), "{name}: a page is refused");
    (table.finds(&entries, name), forgotten)
}

/// Writers beside each other: searches take few steps, unless a writer was stopped with a leaf's
/// lock and too many nodes of the others waited.
#[test]
fn writers_meet() {
    // Under Miri, random keys alone.
    let is_tried = |shape: usize| if cfg!(miri) { shape == 0 } else { shape != 6 };
    let count = if cfg!(miri) { 24 } else { scaled(10_000) };
    for (_, (name, keys)) in shapes(count)
        .into_iter()
        .enumerate()
        .filter(|(shape, _)| is_tried(*shape))
    {
        let is_quick = (0..5).any(|_| {
            let (nodes, forgotten) = meet(name, &keys);
            println!("{name}: {nodes} nodes a search, {forgotten} names forgotten");
            assert!(
                nodes < 40.0 || forgotten > 0,
                "{name}: {nodes} nodes a search, and no name was forgotten"
            );
            nodes < 40.0
        });
        assert!(is_quick, "{name}: names are forgotten each time");
    }
}

/// Searches hop from the entry before each key to its newest version. They pass that version where
/// a flipped bit makes its key smaller, and come to an older one by a link that does not say that
/// the keys differ: it is no answer. Red for `hop_believes_any_link`.
#[test]
#[cfg_attr(miri, ignore = "two thousand careful searches")]
fn a_hop_past_the_newest_version_finds_no_older_one() {
    let (table, mut inserter) = (Table::new(), Inserter::default());
    let keys: Vec<[u8; 8]> = (1..30u64)
        .map(|n| (n * 0x0101_0101_0101_0101).to_be_bytes())
        .collect();
    for (key, sequence) in keys.iter().flat_map(|key| [(key, 2), (key, 1)]) {
        table.put(&mut inserter, key, sequence);
    }
    let (search, mut at) = (table.search(), table.search().sentinel);
    let (mut passed, mut healed) = (0, 0);
    for key in &keys {
        let target = Target::new(&BYTEWISE, key, SequenceNumber::MAX);
        let newest = search.next(at).unwrap().unwrap().offset();
        at = search.next(newest).unwrap().unwrap().offset();
        // The key starts 44 bytes after the node.
        for (unit, bit) in [(5, 32..64), (6, 0..32)] {
            let word = search.view.word(newest + unit).unwrap();
            for bit in bit {
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
                let node = search.view.try_open(newest).unwrap();
                passed += u32::from(search.is_before(&node, &target));
                let found = search.first_at_or_after(&target);
                let is_newest = |entry: Option<Verified<'_>>| {
                    entry.is_some_and(|entry| entry.version() == (key.as_slice(), 2))
                };
                // A table heals 16 places.
                assert!(
                    found.is_ok_and(is_newest) || found.is_err() && healed >= 16,
                    "bit {bit} of unit {unit}, {key:?}: {found:?}"
                );
                healed += u32::from(found.is_ok());
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
    }
    assert!(passed > 400, "{passed} damaged keys were passed");
    table.finds(&table.entries(), "after the damage");
}

/// The back link of an older version goes back to the entry before the newest version: no search takes
/// the older version for an answer. Red for `back_link_proves_alone`.
#[test]
fn a_back_link_that_went_back_proves_no_older_version() {
    let (table, mut inserter) = (Table::new(), Inserter::default());
    let keys: Vec<Vec<u8>> = (0..30).map(user_key).collect();
    for sequence in [1, 2] {
        for key in &keys {
            table.put(&mut inserter, key, sequence);
        }
    }
    let (search, mut before) = (table.search(), table.search().sentinel);
    for key in &keys {
        let target = Target::new(&BYTEWISE, key, SequenceNumber::MAX);
        let newest = search.next(before).unwrap().unwrap().offset();
        let older = search.next(newest).unwrap().unwrap().offset();
        assert!(search.proved_by_back_link(newest, &target).is_some());
        assert!(search.proved_by_back_link(older, &target).is_none());
        search.view.set_back(older, before);
        assert!(search.proved_by_back_link(older, &target).is_none());
        let found = search.first_at_or_after(&target).unwrap().unwrap();
        assert_eq!(found.offset(), newest);
        search.view.set_back(older, newest);
        before = older;
    }
}

fn user_key(n: u64) -> Vec<u8> {
    format!("user-{n:08}").into_bytes()
}

/// Flips every bit of every page and of the root word: no answer changes, also after more entries.
#[test]
#[cfg_attr(
    miri,
    ignore = "takes hours; the other tests run the same code on less"
)]
fn no_flipped_bit_changes_an_answer() {
    flip_every_bit(150, |n| splitmix(n).to_be_bytes().to_vec());
    flip_every_bit(300, |n| path(splitmix(n)));
}

fn flip_every_bit(count: u64, key_of: impl Fn(u64) -> Vec<u8>) {
    let (table, mut inserter) = (Table::new(), Inserter::default());
    for (sequence, n) in (1..).zip(0..count) {
        table.put(&mut inserter, &key_of(n), sequence);
    }
    assert_eq!(has_chosen(&table.search()), count == 300);
    let mut entries = table.entries();
    let search = table.search();
    let pages: Vec<PageAt> = search.directory().pages().collect();
    let units = pages
        .iter()
        .flat_map(|at| at.page..at.page + at.units())
        .chain([search.directory]);
    let mut sequence = 1000;
    for (number, unit) in units.enumerate() {
        let word = search.view.word(unit).unwrap();
        let step = if cfg!(debug_assertions) { 37 } else { 1 };
        for bit in (number % step..64).step_by(step) {
            // ORDERING: Relaxed: one thread.
            let before = word.fetch_xor(1 << bit, Ordering::Relaxed);
            table.finds(&entries, &format!("bit {bit} of word {number}"));
            if bit % 16 == number % 16 {
                sequence += 1;
                let key = key_of(sequence);
                table.put(&mut Inserter::default(), &key, sequence);
                let place = entries.partition_point(|(other, _)| *other < key);
                entries.insert(place, (key, sequence));
                assert_eq!(table.entries(), entries);
                table.finds(
                    &entries,
                    &format!("bit {bit} of word {number}, one more entry"),
                );
            }
            // ORDERING: Relaxed: one thread.
            let after = word.load(Ordering::Relaxed);
            if after == before ^ 1 << bit {
                // ORDERING: Relaxed: one thread.
                word.store(before, Ordering::Relaxed);
            }
        }
    }
}

/// The most nodes that the search for one of these entries opens.
fn dearest(table: &Table, entries: &[(Vec<u8>, SequenceNumber)]) -> u32 {
    let search = table.search();
    let nodes = entries.iter().map(|(key, sequence)| {
        let mut trail = Trail::default();
        search
            .bracket(&Target::new(&BYTEWISE, key, *sequence), &mut trail)
            .unwrap();
        trail.nodes
    });
    nodes.max().unwrap()
}

fn is_sound(search: &Search<'_>) -> bool {
    !search.directory().is_lost()
        && search
            .directory()
            .pages()
            .all(|at| search.directory().inspect(at) == PageState::Sound)
}

/// Keys that share long and short beginnings, for neighbouring pages of all measures.
fn measured_keys() -> Vec<Vec<u8>> {
    let random = |n: u64| splitmix(n).to_be_bytes();
    let shared = (0..90).map(|n| [b"a long beginning of keys, ".as_slice(), &random(n)].concat());
    let shared = shared.chain((0..200).map(|n| path(splitmix(n))));
    shared.chain((0..60).map(|n| random(n).to_vec())).collect()
}

/// Flips every bit of every page: damage that an inspection passes costs a search at most eight
/// nodes.
#[test]
#[cfg_attr(
    miri,
    ignore = "takes hours; the other tests run the same code on less"
)]
fn damage_that_inspections_pass_costs_few_steps() {
    let keys = measured_keys();
    let (table, mut inserter) = (Table::new(), Inserter::default());
    (1..)
        .zip(&keys)
        .for_each(|(sequence, key)| table.put(&mut inserter, key, sequence));
    let (entries, search) = (table.entries(), table.search());
    assert!(is_sound(&search), "an undamaged directory");
    let pages: Vec<PageAt> = search.directory().pages().collect();
    let units = pages
        .iter()
        .flat_map(|at| at.page..at.page + at.units())
        .chain([search.directory]);
    let (mut found, mut passed) = (0, 0);
    for (number, unit) in units.enumerate() {
        let step = if cfg!(debug_assertions) { 113 } else { 3 };
        for bit in (number % step..64).step_by(step) {
            let word = search.view.word(unit).unwrap();
            // ORDERING: Relaxed: one thread.
            let before = word.fetch_xor(1 << bit, Ordering::Relaxed);
            let note = format!("bit {bit} of word {number}");
            if is_sound(&search) {
                passed += 1;
                let nodes = dearest(&table, &entries);
                assert!(
                    nodes <= 8,
                    "{note} is passed, and a search looks at {nodes} nodes"
                );
            } else {
                found += 1;
            }
            // ORDERING: Relaxed: one thread.
            word.store(before, Ordering::Relaxed);
        }
    }
    assert!(
        found > passed / 4,
        "{found} of {} are found",
        found + passed
    );
}

/// Inspections beside writers call no page damaged. After the root is damaged, writers and readers
/// continue without it, and `is_lost` reports it.
#[test]
fn inspections_run_beside_writers() {
    let table = Table::new();
    let writers: [Mutex<Inserter>; 2] = std::array::from_fn(|_| Mutex::default());
    let wait_out_writers = || writers.iter().for_each(|writer| drop(writer.lock()));
    let count = if cfg!(miri) { 16 } else { scaled(15_000) };
    let key = |n: u64| splitmix(n).to_be_bytes();
    std::thread::scope(|scope| {
        for (thread, writer) in (0..).zip(&writers) {
            let table = &table;
            scope.spawn(move || {
                for n in (thread..count).step_by(2) {
                    table.put(&mut writer.lock(), &key(n), n + 1);
                    table
                        .search()
                        .first_at_or_after(&Target::new(&BYTEWISE, &key(n), u64::MAX))
                        .unwrap();
                }
            });
        }
        for turn in 0..count / 4 {
            if turn == count / 8 {
                let search = table.search();
                // ORDERING: Relaxed: damage.
                search
                    .view
                    .word(search.directory)
                    .unwrap()
                    .fetch_xor(1 << 40, Ordering::Relaxed);
            }
            let search = table.search();
            let directory = search.directory();
            let damaged = |at| matches!(directory.inspect(at), PageState::Damaged(_));
            let found: Vec<PageAt> = directory
                .pages()
                .take(8)
                .filter(|at| damaged(*at))
                .collect();
            wait_out_writers();
            assert!(!found.into_iter().any(damaged), "turn {turn}");
        }
    });
    let entries = table.entries();
    assert_eq!(entries.len() as u64, count);
    table.finds(&entries, "after inspections");
    assert!(table.search().directory().is_lost());
}

/// The nodes that the directory names lead around a link with two flipped bits, so a gap ends at
/// the next entry.
#[test]
fn slots_lead_around_a_broken_link() {
    let (table, mut inserter) = (Table::new(), Inserter::default());
    for n in 0..if cfg!(miri) { 8 } else { scaled(6000) } {
        table.put(&mut inserter, &splitmix(n).to_be_bytes(), n + 1);
    }
    let (entries, search) = (table.entries(), table.search());
    let mut nodes = vec![search.sentinel];
    while let Some(entry) = search.next(nodes[nodes.len() - 1]).unwrap() {
        nodes.push(entry.offset());
    }
    for (place, pair) in nodes.windows(2).enumerate() {
        let link = search.view.word(View::slot(pair[0], 0)).unwrap();
        // ORDERING: Relaxed: one thread.
        let before = link.fetch_xor(3, Ordering::Relaxed);
        let (key, sequence) = &entries[place];
        let found = search.bracket(
            &Target::new(&BYTEWISE, key, *sequence),
            &mut Trail::default(),
        );
        let gap = found.expect_err("a broken link hides what follows");
        assert_eq!((gap.before, gap.after), (pair[0], pair[1]), "link {place}");
        // ORDERING: Relaxed: one thread.
        link.store(before, Ordering::Relaxed);
    }
}

/// The only page, with some slots: whatever number of slots its lock word counts, and however many
/// it seems to have, writers that append to it and that insert into it lose nothing.
#[test]
#[cfg_attr(
    miri,
    ignore = "takes hours; the other tests run the same code on less"
)]
fn no_number_of_slots_is_believed() {
    let step = if cfg!(debug_assertions) { 21 } else { 1 };
    let page_with = |slots: usize, damage: &dyn Fn(&[&AtomicU64])| {
        let (table, mut inserter) = (Table::new(), Inserter::default());
        let (search, mut puts) = (table.search(), 0);
        while names(&search) < slots {
            puts += 1;
            table.put(&mut inserter, &(splitmix(puts) >> 1).to_be_bytes(), puts);
        }
        let at = search.directory().pages().next().unwrap();
        let words: Vec<_> = (at.page..at.page + at.units())
            .map(|unit| search.view.word(unit).unwrap())
            .collect();
        damage(&words);
        for (sequence, key) in (puts + 1..).zip([3 << 62, u64::MAX, 1 << 62, 0]) {
            table.put(&mut inserter, &key.to_be_bytes(), sequence);
        }
        let entries = table.entries();
        assert_eq!(entries.len() as u64, puts + 4);
        table.finds(&entries, &format!("a page with {slots} slots"));
    };
    for slots in (SLOTS - 2..=SLOTS).chain((1..SLOTS - 2).step_by(step)) {
        for count in 0..128 {
            page_with(slots, &|words| {
                // ORDERING: Relaxed: one thread.
                let word = words[LOCK].load(Ordering::Relaxed);
                // ORDERING: Relaxed: one thread.
                words[LOCK].store(word & !COUNT | count, Ordering::Relaxed);
            });
        }
        for seen in slots..SLOTS {
            page_with(slots, &|words| {
                for word in &words[HEAD + slots..=HEAD + seen] {
                    // ORDERING: Relaxed: one thread.
                    word.store(0, Ordering::Relaxed);
                }
            });
        }
    }
}

/// With all pages zeroed, or every lock taken, the list answers and takes more entries.
#[test]
fn a_directory_without_any_use_costs_steps_only() {
    for locked in [1 << 7, 0] {
        let (table, mut inserter) = (Table::new(), Inserter::default());
        let half = if cfg!(miri) { 8 } else { 1000 };
        for n in 0..half {
            table.put(&mut inserter, &splitmix(n).to_be_bytes(), n + 1);
        }
        let search = table.search();
        for at in search.directory().pages().collect::<Vec<_>>() {
            let words = if locked == 0 {
                at.page..at.page + at.units()
            } else {
                at.page + 3..at.page + 4
            };
            for word in words.map(|unit| search.view.word(unit).unwrap()) {
                // ORDERING: Relaxed: one thread.
                let old = word.load(Ordering::Relaxed);
                // ORDERING: Relaxed: one thread.
                word.store(
                    if locked == 0 { 0 } else { old | locked },
                    Ordering::Relaxed,
                );
            }
        }
        for n in half..2 * half {
            table.put(&mut inserter, &splitmix(n).to_be_bytes(), n + 1);
        }
        let entries = table.entries();
        assert_eq!(entries.len() as u64, 2 * half);
        table.finds(&entries, "without a directory");
    }
}
