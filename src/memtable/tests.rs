//! Tests that need access to a table's memory; here, what a search costs with a directory, without
//! one, and with a damaged one: more steps, and never an answer. Counted in nodes, not in time.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

use std::sync::Arc;

use crate::comparator::{Bytewise, Comparator, KeyEquality, KeyOrder};
use crate::integrity::hash::splitmix;
use crate::integrity::options::ParanoidOptions;
use crate::key::Target;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::options::{Directory, MemTableOptions};
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::search::Trail;
use crate::memtable::table::MemTable;
use crate::sync::Ordering;

/// Entries of a large table.
const ENTRIES: u64 = if cfg!(debug_assertions) {
    5_000
} else {
    100_000
};

/// The order of bytes, backwards.
#[derive(Debug)]
struct Reverse;

impl Comparator for Reverse {
    fn name(&self) -> &str {
        "test.Reverse"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Images
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        right.cmp(left)
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        !Bytewise.image(key, at)
    }
}

/// Gets every entry, the one at place n with sequence number n + 1; how many nodes a search looks
/// at.
fn nodes_per_get(table: &MemTable, keys: &[Vec<u8>]) -> f64 {
    let search = table.core().point_search().unwrap();
    let mut trail = Trail::default();
    for (sequence, key) in (1..).zip(keys) {
        let found = table.get(key, u64::MAX);
        assert!(
            matches!(found, Ok(Lookup::Value(value)) if value.sequence() == sequence),
            "entry {sequence}"
        );
        let target = Target::new(&table.core().comparator, key, u64::MAX);
        let entry = search.find(&target, &mut trail).unwrap().entry.unwrap();
        assert_eq!((entry.key(), entry.node().sequence()), (&key[..], sequence));
    }
    f64::from(trail.nodes) / keys.len() as f64
}

/// Every level-0 link says whether the keys at its ends differ, whatever came between them: puts,
/// batches in any order, versions of a key, entries that replace others. Red for `versions_differ`.
#[test]
fn links_say_whether_the_keys_at_their_ends_differ() {
    for protection in [0, 1, 8] {
        let paranoid = ParanoidOptions::builder()
            .protection_bytes(protection)
            .build()
            .unwrap();
        let options = MemTableOptions::builder()
            .paranoid(paranoid)
            .duplicates(DuplicatePolicy::Replace);
        let table = MemTable::new(options.seed(0xd1ff).build().unwrap()).unwrap();
        let key = |draw: u64| (splitmix(draw) % 40).to_be_bytes();
        for round in 0..if cfg!(miri) { 20 } else { 300 } {
            let sequence = 1 + 8 * (round - round % 5);
            table.put(sequence, key(20 * round), b"put").unwrap();
            let mut batch = WriteBatch::with_protection(8).unwrap();
            for place in 1..=splitmix(round) % 8 {
                batch
                    .put(key(20 * round + place / 2), b"in a batch")
                    .unwrap();
            }
            table.write_batch(sequence, &batch).unwrap();
        }
        let search = table.core().point_search().unwrap();
        let (mut at, mut left) = (search.sentinel, None);
        while let Some((next, ends)) = search
            .view
            .try_link_with_ends(at, 0)
            .filter(|(next, _)| *next != search.sentinel)
        {
            let right = search.view.open(next).unwrap().key().to_vec();
            let differ = protection > 0 && left.as_ref() != Some(&right);
            assert_eq!(ends == EndKeys::DIFFER, differ, "{left:?} {right:?}");
            (at, left) = (next, Some(right));
        }
    }
}

fn filled(order: impl Comparator, directory: Directory, keys: &[Vec<u8>]) -> MemTable {
    let options = MemTableOptions::builder()
        .write_buffer_size(32 << 20)
        .seed(0xd1ec)
        .directory(directory);
    let table = MemTable::new(options.comparator(Arc::new(order)).build().unwrap()).unwrap();
    for (sequence, key) in (1..).zip(keys) {
        table.put(sequence, key, [7; 100]).unwrap();
    }
    table
}

/// Gets look at a few nodes where the order has images, and at many where it has not, or no
/// directory is wanted.
#[test]
#[cfg_attr(any(towers, miri), ignore = "no directory, or too many entries")]
fn directories_are_used_in_orders_of_bytes_and_images() {
    let keys: Vec<Vec<u8>> = (0..4000)
        .map(|n| [b"all keys begin so/".as_slice(), &splitmix(n).to_be_bytes()].concat())
        .collect();
    for directory in [Directory::Auto, Directory::Off] {
        let tables = [
            filled(Bytewise, directory, &keys),
            filled(Reverse, directory, &keys),
        ];
        let nodes = tables.map(|table| nodes_per_get(&table, &keys) as u64);
        let expected = if directory == Directory::Off {
            12..40
        } else {
            0..6
        };
        assert!(
            nodes.iter().all(|nodes| expected.contains(nodes)),
            "{directory:?}: {nodes:?}"
        );
    }
}

#[test]
#[cfg_attr(any(towers, miri), ignore = "no directory, or too many entries")]
fn flipped_bits_of_the_directory_cost_steps() {
    let keys: Vec<Vec<u8>> = (0..ENTRIES)
        .map(|n| splitmix(n).to_be_bytes().to_vec())
        .collect();
    let table = filled(Bytewise, Directory::Auto, &keys);
    let intact = nodes_per_get(&table, &keys);
    println!("{ENTRIES} entries; nodes per get: {intact:.2}");
    let search = table.core().point_search().unwrap();
    let pages: Vec<_> = search.directory().pages().collect();
    let words: Vec<u32> = pages
        .iter()
        .flat_map(|at| at.page..at.page + at.units())
        .chain([search.directory])
        .collect();
    assert!(words.len() as u64 > ENTRIES / 4, "{} words", words.len());
    let mut flipped = 0;
    // More nodes than the towers of the worst case lead over would mean that a search has no limit.
    for (flips, most) in [(1, 2.0 * intact), (100, 150.0), (10_000, 1500.0)] {
        for flip in flipped..flips {
            let random = splitmix(0xd1ec + flip);
            let word = search
                .view
                .word(words[(random >> 8) as usize % words.len()])
                .unwrap();
            // ORDERING: Relaxed: one thread.
            word.fetch_xor(1 << (random % 64), Ordering::Relaxed);
        }
        flipped = flips;
        let nodes = nodes_per_get(&table, &keys);
        println!(
            "after {flips} flipped bits of {} words: {nodes:.2}",
            words.len()
        );
        assert!(
            nodes < most,
            "{nodes} nodes per get after {flips} flipped bits"
        );
    }
}

/// Memory that the system backs for a reservation: it stays within its limits.
///
/// `/proc/self/pagemap` tells which pages are resident. Where the system cannot back memory ahead
/// (Linux before 5.14) only the upper limits are tested.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]
mod backed {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom};

    use crate::memtable::arena::control::ControlWord;
    use crate::memtable::options::MemTableOptions;
    use crate::memtable::table::MemTable;

    const PAGE: u64 = 4096;
    const HUGE_PAGE: u64 = 2 << 20;

    fn table(write_buffer_size: u64) -> MemTable {
        MemTable::new(
            MemTableOptions::builder()
                .write_buffer_size(write_buffer_size)
                .build()
                .unwrap(),
        )
        .unwrap()
    }

    /// Number of resident bytes of a chunk.
    fn resident(table: &MemTable, chunk: usize) -> u64 {
        let control = &table.core().arena.control;
        let first = control.get(ControlWord::base(chunk)).unwrap() / PAGE;
        let pages = (8 * control.get(ControlWord::units(chunk)).unwrap()).div_ceil(PAGE);
        let mut map = File::open("/proc/self/pagemap").unwrap();
        map.seek(SeekFrom::Start(8 * first)).unwrap();
        let mut words = vec![0; 8 * pages as usize];
        map.read_exact(&mut words).unwrap();
        // Bit 63 of a page's word says that the page is resident.
        words
            .chunks_exact(8)
            .filter(|word| word[7] & 0x80 != 0)
            .count() as u64
            * PAGE
    }

    /// Whether this system can back memory ahead.
    fn is_supported() -> bool {
        let map = memmap2::MmapMut::map_anon(1 << 16).unwrap();
        map.advise(memmap2::Advice::PopulateWrite).is_ok()
    }

    fn whole(bytes: u64) -> u64 {
        bytes.next_multiple_of(HUGE_PAGE)
    }

    #[test]
    fn a_reservation_is_backed_and_nothing_beyond_it() {
        // The second one does not fit the first large chunk.
        let table = table(8 << 20);
        let mut writers = Vec::new();
        for (chunk, bytes) in [(1, 5 << 20), (2, 11 << 20)] {
            let (used, allocated) = (table.used_bytes(), table.allocated_bytes());
            writers.push(table.try_reserve(bytes).unwrap());
            let backed = resident(&table, chunk);
            assert!(backed <= whole(bytes) + HUGE_PAGE, "{backed} of {bytes}");
            assert!(!is_supported() || backed >= bytes, "{backed} of {bytes}");
            // Reserved bytes count as allocated at once, and as used once they hold entries. A
            // writer's shard takes some memory, too.
            assert!(table.allocated_bytes() - allocated >= bytes);
            assert!(table.used_bytes() - used < 64 << 10);
        }
        assert!(table.try_reserve(u64::MAX).is_err());
        assert!(table.try_reserve(0).is_ok());
    }
}

/// Lost writes: any one word, or any one line of 64 bytes, of the arena goes back to any value that
/// it held before. No read gives a wrong answer, and no scan leaves an entry out without an error.
///
/// Debug builds take every 7th case of most shapes; `PARANOID_TEST_SEED` moves the choice.
#[allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]
mod lost_writes {
    use std::collections::{BTreeMap, BTreeSet};

    use crate::error::{Error, Result};
    use crate::integrity::hash::splitmix;
    use crate::memtable::arena::arena::View;
    use crate::memtable::arena::layout::{BACK_UNITS, LINE_UNITS};
    use crate::memtable::options::MemTableOptions;
    use crate::memtable::read::entry::Entry;
    use crate::memtable::read::get::Lookup;
    use crate::memtable::table::MemTable;
    use crate::sync::Ordering;

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
    /// All words of the arena that were handed out, by unit.
    type Image = BTreeMap<u32, u64>;

    /// The table that a trial runs on.
    #[derive(Debug, Clone, Copy)]
    struct Shape {
        entries: u64,
        /// Longest value: with short ones several entries share a line.
        value_len: u64,
        arrival: Arrival,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Arrival {
        Ascending,
        Descending,
        Mixed,
        /// Every other key, descending, then the keys between them, so that new nodes are linked
        /// between nodes that are adjacent in memory.
        Between,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Stage {
        Young,
        FrozenBefore,
        FrozenAfter,
    }

    /// One of how many cases is tried.
    const STRIDE: usize = if cfg!(debug_assertions) { 7 } else { 1 };

    /// Keys with gaps between them; the odd ones are absent.
    fn key_of(n: u64) -> Vec<u8> {
        format!("k{n:03}").into_bytes()
    }

    fn image(table: &MemTable) -> Image {
        let arena = &table.core().arena;
        let view = arena.view().unwrap();
        // ORDERING: Relaxed: one thread.
        let word = |unit: u32| view.word(unit).unwrap().load(Ordering::Relaxed);
        let units = arena
            .stretches()
            .unwrap()
            .0
            .into_iter()
            .flat_map(|(first, units)| first..first + units);
        units.map(|unit| (unit, word(unit))).collect()
    }

    fn put_back(table: &MemTable, words: impl IntoIterator<Item = (u32, u64)>) {
        let view = table.core().arena.view().unwrap();
        for (unit, value) in words {
            // ORDERING: Relaxed: one thread.
            view.word(unit).unwrap().store(value, Ordering::Relaxed);
        }
    }

    /// Builds a table. Returns it with its true content, and its memory before each write and at
    /// the end.
    fn build(shape: Shape, seed: u64) -> (MemTable, Rows, Vec<Image>) {
        let options = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .seed(seed);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        let mut numbers: Vec<u64> = (0..shape.entries).map(|n| 2 * n).collect();
        match shape.arrival {
            Arrival::Ascending => {}
            Arrival::Descending => numbers.reverse(),
            Arrival::Mixed => numbers.sort_by_key(|n| splitmix(seed ^ n)),
            Arrival::Between => numbers.sort_by_key(|n| (n % 4, u64::MAX - n)),
        }
        let (mut rows, mut past) = (Rows::new(), Vec::new());
        for (sequence, n) in (1..).zip(numbers) {
            past.push(image(&table));
            let value = vec![n as u8; (splitmix(seed + n) % (shape.value_len + 1)) as usize];
            table.put(sequence, key_of(n), &value).unwrap();
            rows.insert(key_of(n), value);
        }
        (table, rows, past)
    }

    /// The cases: for each the words to put back, first single words, then whole lines.
    fn cases(past: &[Image], last: &Image) -> Vec<Vec<(u32, u64)>> {
        let mut cases = BTreeSet::new();
        for earlier in past {
            let changed = |unit: u32| (last[&unit], earlier.get(&unit).copied().unwrap_or(0));
            let mut lines: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
            for unit in last.keys().copied() {
                let (now, before) = changed(unit);
                if now != before {
                    cases.insert(vec![(unit, before)]);
                    lines.entry(unit / 8).or_default().push((unit, before));
                }
            }
            cases.extend(lines.into_values());
        }
        cases.into_iter().collect()
    }

    /// Checks a read that answered; one that reported damage passes. Returns whether it answered.
    fn right_or_reported<T>(answer: Result<T>, check: impl FnOnce(T)) -> bool {
        match answer {
            Ok(answer) => {
                check(answer);
                true
            }
            Err(Error::Corruption(_)) => false,
            Err(other) => panic!("{other}"),
        }
    }

    fn gets(table: &MemTable, rows: &Rows, entries: u64) -> bool {
        let mut silent = true;
        for n in 0..2 * entries + 1 {
            let key = key_of(n);
            silent &= right_or_reported(table.get(&key, u64::MAX), |answer| {
                let found = match answer {
                    Lookup::Value(value) => Some(value.to_vec()),
                    Lookup::NotFound => None,
                    _ => panic!("{n}: neither deleted nor merged"),
                };
                assert_eq!(found.as_ref(), rows.get(&key), "get of key {n}");
            });
        }
        silent
    }

    /// Checks a scan: without an error it shows every entry, and with an error it shows no wrong
    /// one.
    fn scan<'t>(steps: impl Iterator<Item = Result<Entry<'t>>>, rows: &Rows) -> bool {
        let (mut shown, mut silent) = (Vec::new(), true);
        for step in steps.take(4 * rows.len() + 4) {
            silent &= right_or_reported(step, |entry| {
                right_or_reported(entry.value(), |value| {
                    assert_eq!(rows.get(entry.user_key()).map(Vec::as_slice), Some(value));
                });
                shown.push(entry.user_key().to_vec());
            });
        }
        if silent {
            shown.sort_unstable();
            assert_eq!(
                shown,
                rows.keys().cloned().collect::<Vec<_>>(),
                "a scan without an error"
            );
        }
        silent
    }

    fn reads(table: &MemTable, rows: &Rows, entries: u64) -> bool {
        let (forward, backward) = (
            scan(table.range(..), rows),
            scan(table.range(..).rev(), rows),
        );
        gets(table, rows, entries) && forward && backward
    }

    fn every_case(shape: Shape, stage: Stage, seed: u64) {
        let (table, rows, past) = build(shape, seed);
        if stage == Stage::FrozenBefore {
            table.freeze().unwrap();
        }
        let last = image(&table);
        assert!(
            reads(&table, &rows, shape.entries),
            "{shape:?}: an undamaged table reports damage"
        );
        let (stride, cases) = (
            if shape.arrival == Arrival::Between {
                1
            } else {
                STRIDE
            },
            cases(&past, &last),
        );
        for case in cases.iter().skip(seed as usize % stride).step_by(stride) {
            put_back(&table, case.iter().copied());
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                reads(&table, &rows, shape.entries)
            }));
            assert!(
                told.is_ok(),
                "{shape:?}, {stage:?}, seed {seed:#x}, put back {case:x?}"
            );
            put_back(&table, last.iter().map(|(unit, word)| (*unit, *word)));
        }
        if stage == Stage::FrozenAfter {
            let Some(case) = cases.get(seed as usize % cases.len()) else {
                return;
            };
            put_back(&table, case.iter().copied());
            if table.freeze().is_ok() {
                reads(&table, &rows, shape.entries);
            }
        }
    }

    fn seed() -> u64 {
        std::env::var("PARANOID_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(5)
    }

    fn shapes() -> impl Iterator<Item = Shape> {
        let arrivals = [Arrival::Ascending, Arrival::Descending, Arrival::Mixed];
        let sizes = [(1, 100), (3, 0), (18, 8), (54, 40)];
        sizes.into_iter().flat_map(move |(entries, value_len)| {
            arrivals.map(|arrival| Shape {
                entries,
                value_len,
                arrival,
            })
        })
    }

    #[test]
    fn a_word_or_line_of_a_list_that_went_back_hides_nothing() {
        for shape in shapes() {
            for stage in [Stage::Young, Stage::FrozenBefore, Stage::FrozenAfter] {
                every_case(shape, stage, seed());
            }
        }
    }

    /// LAYOUT-3, although entries are short enough to share a line.
    #[test]
    fn no_link_shares_a_line_with_the_back_link_that_vouches_for_it() {
        for arrival in [
            Arrival::Ascending,
            Arrival::Descending,
            Arrival::Mixed,
            Arrival::Between,
        ] {
            let shape = Shape {
                entries: 54,
                value_len: 0,
                arrival,
            };
            let (table, ..) = build(shape, seed());
            let list = table.core().point_search().unwrap();
            let (mut node, mut passed) = (list.sentinel, 0);
            while let Some(next) = list.next(node).unwrap().map(|entry| entry.node().offset()) {
                let (link, back_link) = (View::slot(node, 0), next + BACK_UNITS);
                assert_ne!(
                    link / LINE_UNITS,
                    back_link / LINE_UNITS,
                    "{arrival:?}, entry {passed}"
                );
                (node, passed) = (next, passed + 1);
            }
            assert_eq!(passed, shape.entries);
        }
    }

    /// No line holds both a link and the back link that vouches for it.
    #[test]
    fn a_line_with_a_link_and_a_back_link_that_went_back_hides_nothing() {
        for seed in seed()..seed() + 3 {
            every_case(
                Shape {
                    entries: 18,
                    value_len: 0,
                    arrival: Arrival::Between,
                },
                Stage::Young,
                seed,
            );
        }
    }

    /// A write into the gap of a lost link is refused, or linked where it belongs, and hides no
    /// entry.
    #[test]
    fn a_write_behind_a_lost_link_buries_nothing() {
        let shape = Shape {
            entries: 12,
            value_len: 20,
            arrival: Arrival::Mixed,
        };
        let (table, mut rows, past) = build(shape, seed());
        let last = image(&table);
        let links = cases(&past, &last)
            .into_iter()
            .filter(|case| case.len() == 1);
        let links = links.skip(seed() as usize % STRIDE).step_by(STRIDE);
        let mut sequence = 1000;
        for case in links {
            for n in 0..shape.entries {
                put_back(&table, case.iter().copied());
                sequence += 1;
                let key = key_of(2 * n + 1);
                if right_or_reported(table.put(sequence, &key, b"new"), |_| {}) {
                    rows.insert(key.clone(), b"new".to_vec());
                }
                reads(&table, &rows, shape.entries);
                rows.remove(&key);
                put_back(
                    &table,
                    image(&table)
                        .into_keys()
                        .map(|unit| (unit, last.get(&unit).copied().unwrap_or(0))),
                );
            }
        }
    }
}
