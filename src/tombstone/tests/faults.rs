//! Every stored bit flipped in turn: each answer is right or `Corruption`.

#![forbid(unsafe_code)]

use crate::comparator::BYTEWISE;
use crate::error::Corruption;
use crate::integrity::tag::Secret;
use crate::sync::Published;
use crate::tombstone::node::CoverageNode;
use crate::tombstone::query::Question;
use crate::tombstone::segments::Segments;
use crate::tombstone::tests::fixture::Index;
use crate::tombstone::tests::regions::FaultRegion;
use crate::tombstone::tests::{Rng, Span, brute};
use crate::tombstone::tree::{SummaryNode, Tree};

pub(super) struct Case {
    pub(super) index: Index,
    /// Key, snapshot, floor and the right answer.
    pub(super) questions: Vec<(Vec<u8>, u64, u64, Option<u64>)>,
}

/// A key: `common`, and a number in two digits.
pub(crate) fn name(common: &(impl AsRef<[u8]> + ?Sized), number: u64) -> Vec<u8> {
    [common.as_ref(), format!("{number:02}").as_bytes()].concat()
}

pub(super) fn spans(seed: u64, len: u64, common: &(impl AsRef<[u8]> + ?Sized)) -> Vec<Span> {
    let mut rng = Rng(seed);
    let name = |number| name(common, number);
    let mut span = |sequence| {
        let start = rng.below(40);
        (name(start), name(start + 1 + rng.below(6)), sequence)
    };
    (1..=len).map(&mut span).collect()
}

pub(super) fn insert(index: &Index, spans: &[Span]) {
    for (start, end, sequence) in spans {
        index.insert(&BYTEWISE, start, end, *sequence).unwrap();
    }
    index.merge_all(&BYTEWISE);
}

fn case(seed: u64, len: u64, common: &str) -> Case {
    let index = Index::new(Secret::from_seed(seed));
    let spans = spans(seed, len, common);
    insert(&index, &spans);
    Case {
        index,
        questions: questions(&spans, common),
    }
}

pub(super) fn questions(
    spans: &[Span],
    common: &(impl AsRef<[u8]> + ?Sized),
) -> Vec<(Vec<u8>, u64, u64, Option<u64>)> {
    let len = spans.len() as u64;
    let mut questions = Vec::new();
    for number in 0..48 {
        let key = name(common, number % 46);
        for snapshot in [u64::MAX, len / 2, 7] {
            for floor in [0, len * 3 / 4] {
                let answer = brute(&BYTEWISE, spans, &key, snapshot, floor);
                questions.push((key.clone(), snapshot, floor, answer));
            }
        }
    }
    questions
}

/// Asks all queries and panics at a wrong answer. Returns how many were `Corruption`.
pub(super) fn survey(case: &Case, note: &str) -> usize {
    let mut damaged = 0;
    for (key, snapshot, floor, answer) in &case.questions {
        match case
            .index
            .max_covering(&BYTEWISE, Question::new(key, *snapshot).above(*floor))
        {
            Ok(found) => assert_eq!(found, *answer, "{note}: {key:?} at {snapshot} over {floor}"),
            Err(_) => damaged += 1,
        }
    }
    damaged
}

/// What a scrub reports: of the list first.
pub(super) fn findings(index: &Index) -> Vec<Corruption> {
    let mut found = Vec::new();
    index.nodes.scrub(&mut |corruption| found.push(corruption));
    index.scrub(&mut || (), &mut |corruption| found.push(corruption));
    found
}

fn flip_everything(case: &Case, stride: u64) {
    assert_eq!(survey(case, "undamaged"), 0);
    assert_eq!(findings(&case.index), []);
    let (mut hurt, mut flips) = (0, 0);
    for (number, region) in case.index.fault_regions().into_iter().enumerate() {
        for bit in (number as u64 % stride..region.bits).step_by(stride as usize) {
            let note = format!("{} region {number} bit {bit}", region.name);
            case.index.flip(number, bit);
            let damaged = survey(case, &note);
            let derived =
                region.name.starts_with("coverage node") || region.name.starts_with("summary node");
            assert!(
                damaged == 0 || !derived,
                "{note}: a node is derived, its damage must not be seen"
            );
            assert!(
                damaged == 0 || !findings(&case.index).is_empty(),
                "{note}: scrub is silent"
            );
            case.index.flip(number, bit);
            (hurt, flips) = (hurt + usize::from(damaged > 0), flips + 1);
        }
        for word in (0..region.bits / 64).step_by(stride.div_ceil(8) as usize) {
            for value in [0, u64::MAX, 0x1234_5678_9abc_def0] {
                let old = case.index.overwrite(number, word, value).unwrap();
                survey(
                    case,
                    &format!("{} region {number} word {word} overwritten", region.name),
                );
                case.index.overwrite(number, word, old);
            }
        }
    }
    assert!(hurt > 0, "no flip was ever noticed among {flips}");
    assert_eq!(survey(case, "repaired"), 0);
}

#[test]
fn every_flipped_bit_of_a_live_index() {
    let stride = if cfg!(debug_assertions) { 797 } else { 1 };
    flip_everything(&case(1, 5, ""), stride);
    flip_everything(&case(2, 75, ""), stride);
    flip_everything(
        &case(3, 106, "a-common-beginning-"),
        if stride == 1 { 3 } else { 1193 },
    );
}

#[test]
fn every_flipped_bit_of_a_finished_index() {
    let case = case(4, 100, "");
    case.index.finish(&BYTEWISE);
    flip_everything(&case, if cfg!(debug_assertions) { 523 } else { 1 });
}

/// A node that is damaged before it is merged spoils no other node.
#[test]
fn damaged_nodes_are_not_merged() {
    let stride = if cfg!(debug_assertions) { 331 } else { 5 };
    let spans = spans(8, 75, "");
    let (before, after) = spans.split_at(58);
    let questions = questions(&spans, "");
    let built = || {
        let index = Index::new(Secret::from_seed(8));
        insert(&index, before);
        index
    };
    let regions = built().fault_regions();
    let derived = |region: &&(usize, &FaultRegion)| region.1.name.starts_with("coverage node");
    for (number, region) in regions.iter().enumerate().filter(|region| derived(&region)) {
        for bit in (number as u64 % stride..region.bits).step_by(stride as usize) {
            let case = Case {
                index: built(),
                questions: questions.clone(),
            };
            case.index.flip(number, bit);
            insert(&case.index, after);
            let note = format!("{} region {number} bit {bit}, then merged", region.name);
            assert_eq!(survey(&case, &note), 0, "{note}");
            case.index.finish(&BYTEWISE);
            assert_eq!(survey(&case, &note), 0, "{note}, finished");
        }
    }
}

/// MERGE-3: a block with a damaged record gets no node, and those after it do.
#[test]
fn damaged_records_are_not_painted() {
    for finish in [Index::merge_all, Index::finish] {
        let (index, spans) = (Index::new(Secret::from_seed(1)), spans(1, 40, ""));
        for (start, end, sequence) in &spans {
            index.append(&BYTEWISE, start, end, *sequence).unwrap();
        }
        let named = |name| {
            let regions = index.fault_regions().into_iter().enumerate();
            regions
                .filter(|(_, region)| region.name == name)
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        };
        let damaged = named("tombstone record")[11];
        index.flip(damaged, 7);
        finish(&index, &BYTEWISE);
        assert_eq!(named("coverage node head").len(), 4, "of five blocks");
        index.flip(named("tombstone record")[11], 7);
        assert_eq!(
            survey(
                &Case {
                    questions: questions(&spans, ""),
                    index
                },
                "repaired"
            ),
            0
        );
    }
}

/// A key without the common prefix is before or after all keys of a node: no record below it is
/// read.
#[test]
fn keys_that_begin_otherwise_need_no_record() {
    let (index, common) = (Index::new(Secret::from_seed(1)), "a-common-beginning-");
    insert(&index, &spans(1, 75, common));
    index.finish(&BYTEWISE);
    let regions = index.fault_regions().into_iter().enumerate();
    for (number, _) in regions.filter(|(_, region)| region.name == "tombstone record") {
        index.flip(number, 7);
    }
    for key in (0..50).map(|number| name("", number)) {
        assert_eq!(
            index.max_covering(&BYTEWISE, Question::new(&key, u64::MAX)),
            Ok(None),
            "{key:?}"
        );
    }
    assert!(
        index
            .max_covering(&BYTEWISE, Question::new(&name(common, 20), u64::MAX))
            .is_err()
    );
}

/// A count of summary nodes that went back: no answer depends on it, and a scrub tells how many
/// there are.
#[test]
fn a_count_of_summary_nodes_that_went_back() {
    let (index, spans) = (Index::new(Secret::from_seed(1)), spans(1, 48, ""));
    let counter = || {
        index
            .fault_regions()
            .iter()
            .position(|region| region.name == "summary node counter")
    };
    let (before, after) = spans.split_at(24);
    insert(&index, before);
    let counter = counter().unwrap();
    let earlier = index.overwrite(counter, 0, 0).unwrap();
    index.overwrite(counter, 0, earlier);
    insert(&index, after);
    index.overwrite(counter, 0, earlier);
    assert_eq!(
        findings(&index),
        [Corruption::new(crate::error::Place::Fragment, 0, 3, 1)]
    );
    assert_eq!(
        survey(
            &Case {
                questions: questions(&spans, ""),
                index
            },
            "went back"
        ),
        0
    );
}

/// Every bit of the numbers that say how many bytes prefixes leave out, flipped: no answer depends
/// on it.
#[test]
fn damaged_skips_are_not_believed() {
    let case = case(7, 70, "a-common-beginning-");
    for (number, region) in case.index.fault_regions().into_iter().enumerate() {
        let head = region.name == "coverage node head";
        if !head && region.name != "tombstone record" {
            continue;
        }
        let shape = if head { 4 * 64 } else { 3 * 64 };
        for bit in shape + 56..shape + 64 {
            case.index.flip(number, bit);
            let damaged = survey(&case, &format!("{} region {number} bit {bit}", region.name));
            assert!(damaged == 0 || !head, "a node is derived");
            case.index.flip(number, bit);
        }
    }
    assert_eq!(survey(&case, "repaired"), 0);
}

/// Where all prefixes are the largest one, which is also that of padding, keys that are not
/// verified lead a search to the wrong piece.
#[test]
fn damaged_keys_with_the_largest_prefix() {
    let mut spans = spans(9, 75, &[0xff; 8]);
    spans[0].0.clear();
    let index = Index::new(Secret::from_seed(9));
    insert(&index, &spans);
    index.finish(&BYTEWISE);
    let case = Case {
        questions: questions(&spans, &[0xff; 8]),
        index,
    };
    for (number, region) in case.index.fault_regions().into_iter().enumerate() {
        let step = if cfg!(debug_assertions) { 5 } else { 1 };
        let keys = (region.name == "tombstone keys").then(|| (0..region.bits / 64).step_by(step));
        for (word, value) in keys
            .into_iter()
            .flatten()
            .flat_map(|word| [(word, 0), (word, u64::MAX)])
        {
            let old = case.index.overwrite(number, word, value).unwrap();
            survey(
                &case,
                &format!("word {word} of keys in region {number} is {value}"),
            );
            case.index.overwrite(number, word, old);
        }
    }
    assert_eq!(survey(&case, "repaired"), 0);
}

/// Two words exchange their places: each was valid only at its own.
#[test]
fn swapped_words() {
    let case = case(5, 70, "");
    for (number, region) in case.index.fault_regions().into_iter().enumerate() {
        for word in (1..region.bits / 64).step_by(if cfg!(debug_assertions) { 3 } else { 1 }) {
            let left = case.index.overwrite(number, word - 1, 0).unwrap();
            let right = case.index.overwrite(number, word, left).unwrap();
            case.index.overwrite(number, word - 1, right);
            survey(
                &case,
                &format!(
                    "{} region {number} words {word} and before swapped",
                    region.name
                ),
            );
            case.index.overwrite(number, word, right);
            case.index.overwrite(number, word - 1, left);
        }
    }
    assert_eq!(survey(&case, "repaired"), 0);
}

/// Two whole pieces exchange their places, checks included: only the position in the check shows
/// it.
#[test]
fn swapped_pieces() {
    let case = case(6, 64, "");
    let regions = case.index.fault_regions();
    for (first, region) in regions.iter().enumerate() {
        if region.name != "coverage node prefixes" {
            continue;
        }
        let words = region.bits / 64;
        for (left, right) in (0..words - 2)
            .map(|word| (word, word + 2))
            .filter(|(left, _)| left % 2 == 0)
        {
            let swap = |region: usize, left: u64, right: u64| {
                let one = case.index.overwrite(region, left, 0).unwrap();
                let other = case.index.overwrite(region, right, one).unwrap();
                case.index.overwrite(region, left, other);
            };
            let both = || {
                for piece in 0..(words - right).min(2) {
                    swap(first, left + piece, right + piece);
                    swap(first + 1, left + piece, right + piece);
                }
                swap(first + 2, left / 2, right / 2);
            };
            both();
            assert_eq!(
                survey(
                    &case,
                    &format!("region {first} pieces {left} and {right} swapped")
                ),
                0
            );
            both();
        }
    }
}

/// Every flipped bit of a finished index: the fragments that it keeps are right, or `Corruption`,
/// or none.
#[test]
fn kept_fragments_are_right_or_corruption() {
    let step = if cfg!(debug_assertions) { 61 } else { 3 };
    for (len, common) in [(9, ""), (32, "a-common-beginning-"), (75, "")] {
        let index = case(len, len, common).index;
        index.finish(&BYTEWISE);
        let kept = || index.fragments(&BYTEWISE, len);
        let cut = kept().unwrap().unwrap();
        let (mut hurt, mut flips) = (0, 0);
        for (number, region) in index.fault_regions().into_iter().enumerate() {
            for bit in (number as u64 % step..region.bits).step_by(step as usize) {
                index.flip(number, bit);
                match kept() {
                    Ok(Some(kept)) => {
                        assert!(kept.iter().eq(cut.iter()), "{} bit {bit}", region.name)
                    }
                    Ok(None) | Err(_) => hurt += 1,
                }
                index.flip(number, bit);
                flips += 1;
            }
        }
        assert!(hurt > 0 && hurt < flips, "{hurt} of {flips}");
    }
}

/// What the index says that it takes: its tree, the stored words, and little more for the cells
/// that hold nodes.
#[test]
fn allocated_bytes_are_those_of_the_stored_words() {
    assert_eq!(Index::new(Secret::from_seed(1)).allocated_bytes(), 0);
    for len in [1, 20, 75, 300] {
        let index = case(len, len, "").index;
        let stored: u64 = index
            .fault_regions()
            .iter()
            .filter(|region| region.name != "tombstone keys")
            .map(|region| region.bits / 8)
            .sum();
        let found = index.allocated_bytes() - size_of::<Tree>() as u64;
        // Heads of nodes are in cells, and a few words in the tree.
        let cells = Segments::<Published<CoverageNode>, 4>::bytes_max(len / 4)
            + Segments::<Published<SummaryNode>, 4>::bytes_max(16);
        assert!(
            (stored - 256..=stored + cells).contains(&found),
            "{len}: {found} for {stored}, cells {cells}"
        );
    }
}

/// Lost writes: any one word, line or published cell goes back to a value that it held before. Each
/// answer is right or `Corruption`, and a scrub reports it.
///
/// A failure names its seed; replay with
/// `PARANOID_SEED=<seed> cargo test --lib tombstone::tests::faults::lost`.
mod lost {
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

    /// The values that each word held: those of fresh memory, and those before each insert.
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

        /// Notes the values of words before their first store, because a segment of records is
        /// published with its first record.
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

        /// For each line of `size` bytes, lines shifted by `shift`: its words, with the values that
        /// they held at one earlier time, if those differ from the present ones.
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
        /// As the live index of a mutable table.
        Live,
        /// No node before all records are there.
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
            let note = format!(
                "PARANOID_SEED={seed} {len} tombstones, {life:?}: {name} {fault:x?} went back"
            );
            let damaged = survey(&case, &note);
            // `skip` is a hint for later records: any value is right.
            let advice = fault.len() == 1 && name.starts_with("skip");
            assert!(!advice || damaged == 0, "{note}");
            assert!(
                advice || !findings(&case.index).is_empty(),
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

    /// Writing goes on after the damage: a tombstone whose insert succeeds is found, or its query
    /// is `Corruption`.
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

    /// A published cell reads as unpublished: the tree, segments of records and keys, nodes,
    /// summary nodes.
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
                // An insert may fail. A tombstone whose insert succeeds must be found, and must
                // hide no other.
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

    /// `held` counts the readable tombstones: one less after one is lost.
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
}
