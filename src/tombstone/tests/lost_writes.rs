//! Tests with lost writes: any one word, line or published cell again has a value that it held
//! before. Each answer is right or `Corruption`, and a scrub reports the damage.
//!
//! A failure names its seed. Replay it with
//! `PARANOID_SEED=<seed> cargo test --lib tombstone::tests::lost_writes`.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::comparator::BYTEWISE;
use crate::integrity::index_checks::Checks;
use crate::integrity::tag::Secret;
use crate::tombstone::tests::faults::{Case, findings, insert, questions, spans, survey};
use crate::tombstone::tests::fixture::Index;
use crate::tombstone::tests::{Span, seeds};

/// A stored word: region and place in it.
type Word = (usize, u64);

/// All stored words, by address, with their values.
fn words(index: &Index) -> BTreeMap<usize, (Word, u64)> {
    let mut found = BTreeMap::new();
    for (number, region) in index.fault_regions().into_iter().enumerate() {
        for word in 0..region.bits / 64 {
            let value = index.overwrite(number, word, 0).unwrap();
            index.overwrite(number, word, value);
            found.insert(region.address + 8 * word as usize, ((number, word), value));
        }
    }
    found
}

/// The values that each word has held: those of fresh memory, and those before each insert.
#[derive(Default)]
struct History {
    states: Vec<BTreeMap<usize, u64>>,
}

impl History {
    fn note(&mut self, index: &Index) {
        self.states.push(
            words(index)
                .into_iter()
                .map(|(address, (_, value))| (address, value))
                .collect(),
        );
    }

    /// Notes the values that words had before their first store. `note` misses these, because a
    /// segment of records is published with its first record.
    fn born(&mut self, index: &Index, checks: Checks) {
        let first = index
            .fault_regions()
            .iter()
            .position(|region| region.name == "tombstone record");
        let mut state = BTreeMap::new();
        for (number, region) in index.fault_regions().into_iter().enumerate() {
            let record = region.name == "tombstone record";
            for word in 0..region.bits / 64 {
                let index = number.saturating_sub(first.unwrap_or(0)) as u32;
                let pending = (record && word == 4).then(|| checks.pending(index));
                if record || region.name == "tombstone keys" {
                    state.insert(region.address + 8 * word as usize, pending.unwrap_or(0));
                }
            }
        }
        self.states.insert(0, state);
    }

    /// For each line of `size` bytes, where lines are shifted by `shift`, and each earlier time:
    /// the words whose values differed then, with these values.
    fn faults(&self, index: &Index, size: usize, shift: usize) -> BTreeSet<Vec<(Word, u64)>> {
        let mut lines: BTreeMap<usize, Vec<(usize, Word, u64)>> = BTreeMap::new();
        for (address, (word, value)) in words(index) {
            lines
                .entry((address + shift) / size)
                .or_default()
                .push((address, word, value));
        }
        let mut faults = BTreeSet::new();
        for state in &self.states {
            for line in lines.values() {
                let before = line.iter().filter_map(|(address, word, value)| {
                    state
                        .get(address)
                        .filter(|old| *old != value)
                        .map(|old| (*word, *old))
                });
                faults.insert(before.collect::<Vec<_>>());
            }
        }
        faults.remove(&vec![]);
        faults
    }
}

fn restore(index: &Index, fault: &[(Word, u64)]) -> Vec<(Word, u64)> {
    let store = |((region, word), value): &(Word, u64)| {
        (
            (*region, *word),
            index.overwrite(*region, *word, *value).unwrap(),
        )
    };
    fault.iter().map(store).collect()
}

/// How an index is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Nodes are built while tombstones are inserted, as in a mutable table.
    Live,
    /// No node is built before all records are there.
    AtOnce,
}

fn put(index: &Index, life: Life, (start, end, sequence): &Span) -> crate::error::Result<()> {
    match life {
        Life::Live => index.insert(&BYTEWISE, start, end, *sequence),
        Life::AtOnce => index.append(&BYTEWISE, start, end, *sequence).map(drop),
    }
}

/// Draws tombstones in order of arrival. For every second seed their sequence numbers do not
/// ascend in that order.
fn shuffled(seed: u64, len: u64, common: &str) -> Vec<Span> {
    let mut spans = spans(seed, len, common);
    if seed.is_multiple_of(2) {
        spans
            .iter_mut()
            .for_each(|span| span.2 = (span.2 ^ 5) + 8 * (span.2 % 3));
    }
    spans
}

fn live_through(spans: &[Span], life: Life, seed: u64) -> (Index, History) {
    let (index, mut history) = (Index::new(Secret::from_seed(seed)), History::default());
    for span in spans {
        history.note(&index);
        put(&index, life, span).unwrap();
    }
    history.note(&index);
    index.finish(&BYTEWISE);
    history.born(&index, Checks::new(Secret::from_seed(seed)));
    (index, history)
}

fn try_life(seed: u64, len: u64, life: Life, common: &str) -> usize {
    let spans = shuffled(seed, len, common);
    let (index, history) = live_through(&spans, life, seed);
    let case = Case {
        questions: questions(&spans, common),
        index,
    };
    assert_eq!(survey(&case, "undamaged"), 0);
    assert_eq!(findings(&case.index), []);
    let mut faults = history.faults(&case.index, 8, 0);
    for shift in (0..64).step_by(if len > 40 { 40 } else { 8 }) {
        faults.append(&mut history.faults(&case.index, 64, shift));
    }
    for fault in &faults {
        let now = restore(&case.index, fault);
        let name = case.index.fault_regions()[fault[0].0.0].name;
        let note =
            format!("PARANOID_SEED={seed} {len} tombstones, {life:?}: {name} {fault:x?} went back");
        let damaged = survey(&case, &note);
        // `skip` is a hint for later records: any value is right.
        let is_hint = fault.len() == 1 && name.starts_with("skip");
        assert!(!is_hint || damaged == 0, "{note}");
        assert!(
            is_hint || !findings(&case.index).is_empty(),
            "{note}: scrub is silent"
        );
        restore(&case.index, &now);
    }
    assert_eq!(survey(&case, "repaired"), 0);
    faults.len()
}

#[test]
fn every_earlier_value_of_every_word_and_line() {
    let visibility: &[u64] = if cfg!(debug_assertions) {
        &[1, 33]
    } else {
        &[1, 2, 7, 8, 9, 31, 32, 33, 75, 200]
    };
    let mut faults = 0;
    for seed in seeds(if cfg!(debug_assertions) { 1 } else { 2 }) {
        for len in visibility {
            faults += try_life(seed, *len, Life::Live, "");
            faults += try_life(seed, *len, Life::AtOnce, "a-common-beginning-");
        }
    }
    assert!(faults > 500, "{faults}");
}

/// Inserts continue after the damage: a tombstone whose insert succeeds is found, or its query is
/// `Corruption`.
#[test]
fn writes_after_a_lost_write() {
    let step = if cfg!(debug_assertions) { 149 } else { 1 };
    for seed in seeds(2) {
        let spans = shuffled(seed, 40, "common");
        let (before, after) = spans.split_at(21);
        let (model, history) = live_through(before, Life::Live, seed);
        for (number, size) in [8, 64].into_iter().enumerate() {
            let faults = history.faults(&model, size, 0).len();
            for turn in (number..faults).step_by(step) {
                let (index, history) = live_through(before, Life::Live, seed);
                let faults = history.faults(&index, size, 0);
                let Some(fault) = faults.iter().nth(turn) else {
                    continue;
                };
                restore(&index, fault);
                let mut known = before.to_vec();
                for span in after {
                    if put(&index, Life::Live, span).is_err() {
                        break;
                    }
                    known.push(span.clone());
                }
                let case = Case {
                    questions: questions(&known, "common"),
                    index,
                };
                survey(
                    &case,
                    &format!("PARANOID_SEED={seed}: {fault:x?} went back, then writes"),
                );
                case.index.finish(&BYTEWISE);
                survey(
                    &case,
                    &format!("PARANOID_SEED={seed}: {fault:x?} went back, then all"),
                );
            }
        }
    }
}

/// A published cell reads as unpublished: the tree, a segment of records or nodes, a node, a
/// summary node.
#[test]
fn published_cells_that_went_back() {
    for len in [1, 9, 75] {
        let spans = shuffled(len, len, "common");
        for number in 0.. {
            let mut index = Index::new(Secret::from_seed(1));
            insert(&index, &spans);
            index.finish(&BYTEWISE);
            let Some(name) = index.lose_cell(number) else {
                assert!(number > 2, "only {number} cells");
                break;
            };
            let case = Case {
                questions: questions(&spans, "common"),
                index,
            };
            let note = format!("{len} tombstones, cell {number}: {name}");
            let damaged = survey(&case, &note);
            assert!(
                damaged == 0 || !findings(&case.index).is_empty(),
                "{note}: scrub is silent"
            );
            // An insert may fail. A tombstone whose insert succeeds must be found, and must hide no
            // other one.
            let span = (b"common01".to_vec(), b"common09".to_vec(), 1000);
            let mut known = spans.clone();
            if put(&case.index, Life::Live, &span).is_ok() {
                known.push(span);
            }
            let case = Case {
                questions: questions(&known, "common"),
                ..case
            };
            survey(&case, &format!("{note}, then an insert"));
        }
    }
}

/// `held` counts the records that can be read: one less after one is lost.
#[test]
fn held_counts_what_can_be_read() {
    let spans = shuffled(3, 20, "");
    let (index, history) = live_through(&spans, Life::Live, 1);
    assert_eq!(index.held(), 20);
    for fault in history.faults(&index, 8, 0) {
        let name = index.fault_regions()[fault[0].0.0].name;
        let now = restore(&index, &fault);
        let lost = name == "tombstone record" && fault[0].0.1 == 4;
        assert!(!lost || index.held() == 19, "{fault:x?}");
        restore(&index, &now);
    }
}
