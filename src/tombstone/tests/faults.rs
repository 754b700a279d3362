//! Tests with damaged words: every stored bit is flipped in turn, and each answer is right or
//! `Corruption`.

#![forbid(unsafe_code)]

use crate::comparator::BYTEWISE;
use crate::error::Corruption;
use crate::integrity::tag::Secret;
use crate::sync::Published;
use crate::tombstone::coverage_node::CoverageNode;
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

/// The reports of a scrub: those of the list first.
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

/// A node that is damaged before it is merged makes no other node wrong.
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

/// A block with a damaged record gets no node, and the blocks after it do.
#[test]
fn no_node_covers_a_damaged_record() {
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

/// A key without the common prefix is before or after all keys of a node, so none of the node's
/// records is read.
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

/// The count of summary nodes again has an earlier value: no answer depends on it, and a scrub
/// reports the number of nodes found.
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

/// Every bit of the numbers of bytes that prefixes leave out is flipped: no wrong answer follows.
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

/// All prefixes are the largest one, which padding has too, so a search depends on whole keys. A
/// damaged key that was believed would lead it to a wrong piece.
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

/// Two words exchange their places: each is valid only in its own place.
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

/// Two pieces of a node exchange their places together with their checks: only the position in the
/// check shows it.
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

/// With any flipped bit a finished index returns right fragments, `Corruption`, or none.
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

/// `allocated_bytes` is the size of the tree and of the stored words, and a little more for the
/// cells that hold nodes.
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
