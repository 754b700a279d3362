//! Lost writes: any one word, or any one line of 64 bytes, of the arena returns to any value that
//! it held before. No read gives a wrong answer, and no scan leaves an entry out without an error.
//!
//! Debug builds take every 7th case of most shapes; `PARANOID_TEST_SEED` moves the choice.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

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
/// All words of the arena that writers took, by unit.
type Image = BTreeMap<u32, u64>;

/// The table that a trial runs on.
#[derive(Debug, Clone, Copy)]
struct Shape {
    entries: u64,
    /// The longest value. With short values several entries share a line.
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

/// Tries one of this many cases.
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

/// Builds a table. Returns the table, its true content, and its memory before each write.
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

/// The cases, each with the words to put back: single words, and all changed words of a line.
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

/// Checks the answer of a read. A read that reports damage passes. Returns whether the read
/// answered.
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
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reads(&table, &rows, shape.entries)
        }));
        assert!(
            outcome.is_ok(),
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

/// No link shares a line with the back link of the node that it names, even if entries are short
/// enough to share a line (LAYOUT-2).
#[test]
fn no_link_shares_a_line_with_the_back_link_of_its_target() {
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
        while let Some(next) = list.next(node).unwrap().map(|entry| entry.offset()) {
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

/// A line that holds a link and a back link returns to an earlier state. The second copy of that
/// link is in another line, so the loss still shows.
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

/// A write into the gap of a lost link is refused or linked in the right place, and hides no entry.
#[test]
fn a_write_after_a_lost_link_hides_nothing() {
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
