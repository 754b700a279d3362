//! Tests of what queries hide by passing over failed nodes: every node exists, answers alone, and
//! saves comparisons.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::cmp::Ordering as Order;

use crate::comparator::{BYTEWISE, Comparator, KeyComparator, KeyEquality};
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::{CommonPrefix, Probe};
use crate::tombstone::counter::Tally;
use crate::tombstone::log::{COUNTS, NOBODY};
use crate::tombstone::merger::{Merger, Progress, STEP_PIECES};
use crate::tombstone::node::CoverageNode;
use crate::tombstone::query::{Asked, Search};
use crate::tombstone::segments::{high, low};
use crate::tombstone::span::Source;
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tests::{Descending, Rng, Span, asked, key, span};
use crate::tombstone::tree::{BLOCK, NodeId, Tree};

/// The parts of an index, in the open.
struct Parts {
    comparator: KeyComparator,
    checks: Checks,
    tally: Tally,
    tree: Tree,
    merger: Merger,
    spans: Vec<Span>,
    nodes: Nodes,
}

impl Parts {
    fn new(comparator: KeyComparator, spans: Vec<Span>) -> Self {
        let checks = Checks::new(Secret::from_seed(1));
        let (start, end, _) = &spans[0];
        let tree = Tree::new(checks, CommonPrefix::new(checks, &comparator, [start, end]));
        Parts {
            comparator,
            checks,
            tally: Tally::new(checks, COUNTS),
            tree,
            merger: Merger::default(),
            spans,
            nodes: Nodes::new(),
        }
    }

    fn push(&self, at: usize) {
        let (start, end, sequence) = &self.spans[at];
        let tombstone = self.nodes.add([start, end], *sequence);
        let log = &self.tree.log;
        log.push(self.source(), &self.tally, &tombstone).unwrap();
    }

    fn source(&self) -> Source<'_> {
        self.nodes.source(&self.comparator)
    }

    fn search(&self, snapshot: u64) -> Search<'_> {
        let extent = self.tally.extent().unwrap();
        Search {
            tree: &self.tree,
            source: self.source(),
            snapshot,
            extent,
        }
    }

    /// Merges until there is nothing to do. Returns the number of steps that found work.
    fn merge_all(&mut self, budget: u32) -> u64 {
        let (extent, mut steps) = (self.tally.extent().unwrap(), 0);
        let source = self.nodes.source(&self.comparator);
        while self.merger.step(&self.tree, source, extent, budget) == Progress::Worked {
            steps += 1;
        }
        steps
    }

    fn finish(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&self.comparator);
        self.merger.finish(&self.tree, source, extent);
    }

    /// The record that must answer for `key` among those that a node covers.
    fn painter(&self, cover: u64, key: &[u8]) -> u32 {
        let covers = |(_, (start, end, _)): &(u32, &Span)| {
            self.comparator.compare(start, key) != Order::Greater
                && self.comparator.compare(key, end) == Order::Less
        };
        let records =
            (high(cover)..low(cover)).map(|record| (record, &self.spans[record as usize]));
        let newest = records
            .filter(covers)
            .max_by_key(|(record, span)| (span.2, *record));
        newest.map_or(NOBODY, |(record, _)| record)
    }

    /// The painter that the node itself finds. `None` if no key that it knows begins so.
    fn ask(&self, node: &CoverageNode, cover: u64, key: &[u8]) -> Option<u32> {
        let mut probe = Probe::new(&self.comparator, key);
        let skip = node.hint().skip;
        let begins_same = probe
            .leave_out(&self.tree.log.common_prefix, &self.comparator, skip)
            .unwrap();
        let painter = || {
            self.search(0)
                .painter(
                    node,
                    Cover {
                        records: cover,
                        skip,
                    },
                    &probe,
                )
                .unwrap()
        };
        begins_same.then(painter)
    }

    fn check(&self, node: &CoverageNode, cover: u64, others: &[Vec<u8>]) {
        node.verify(self.checks, cover).unwrap();
        let spans = &self.spans[high(cover) as usize..low(cover) as usize];
        let bounds = node.hint();
        let (least, most) = (
            spans.iter().map(|span| span.2).min(),
            spans.iter().map(|span| span.2).max(),
        );
        assert_eq!((Some(bounds.min), Some(bounds.max)), (least, most));
        // COVERAGE-NODE-1.
        let len = u32::try_from(node.head(self.checks, cover).unwrap().len).unwrap();
        let names = (0..len).map(|piece| high(node.stored(piece).unwrap().1));
        let begins = names.map(|name| {
            let (start, end, _) = &self.spans[name as usize / 2];
            if name % 2 == 0 { start } else { end }
        });
        assert!(
            len > 1 && begins.is_sorted_by(|one, next| self.comparator.compare(one, next).is_lt())
        );
        for key in spans
            .iter()
            .flat_map(|span| [&span.0, &span.1])
            .chain(others)
        {
            let expected = self.painter(cover, key);
            assert_eq!(
                self.ask(node, cover, key).unwrap_or(NOBODY),
                expected,
                "{cover:x} {key:?}"
            );
        }
    }
}

fn draw(
    comparator: &KeyComparator,
    seed: u64,
    style: u64,
    len: usize,
) -> (Vec<Span>, Vec<Vec<u8>>) {
    let mut rng = Rng(seed << 32);
    let space = if style == 0 { 60_000 } else { 90 };
    let mut spans: Vec<Span> = (0..len)
        .map(|_| span(comparator, &mut rng, style, space, 20))
        .collect();
    for (at, span) in (0..).zip(&mut spans) {
        span.2 = (at ^ rng.below(32)) + 1;
    }
    let others = (0..20)
        .map(|_| rng.below(space))
        .map(|number| key(&mut Rng(number), style, number))
        .collect();
    (spans, others)
}

/// All nodes that a log of `count` records has.
fn nodes(count: u32) -> Vec<NodeId> {
    let ids = (0..4).flat_map(|level| (0..count).map(move |index| NodeId { level, index }));
    ids.filter(|id| (id.index + 1) * BLOCK * 4u32.pow(id.level) <= count)
        .collect()
}

fn every_node_answers(comparator: KeyComparator, style: u64) {
    let (spans, others) = draw(&comparator, style + 1, style, 300);
    every_node_of_these_answers(comparator, spans, others);
}

fn every_node_of_these_answers(comparator: KeyComparator, spans: Vec<Span>, others: Vec<Vec<u8>>) {
    let len = spans.len();
    let mut parts = Parts::new(comparator, spans);
    for at in 0..140 {
        parts.push(at);
        parts.merge_all(STEP_PIECES);
    }
    for id in nodes(140) {
        assert!(parts.tree.node(id).is_some(), "{id:?}");
    }
    parts
        .tree
        .coverage_nodes()
        .for_each(|(node, cover)| parts.check(node, cover, &others));
    (140..len).for_each(|at| parts.push(at));
    parts.finish();
    let summary = parts.tree.summary().unwrap();
    assert_eq!(summary.covered as usize, len);
    parts.check(&summary.coverage_node, len as u64, &others);
}

#[test]
fn every_node_answers_alone() {
    for style in 0..6 {
        every_node_answers(BYTEWISE.clone(), style);
    }
    every_node_answers(asked(Descending), 0);
}

/// Keys that begin like padding and leave nothing out, so that all of them have its prefix.
#[test]
fn every_node_answers_alone_where_prefixes_are_those_of_padding() {
    let (mut spans, others) = draw(&BYTEWISE, 7, 3, 300);
    spans[0].0.clear();
    every_node_of_these_answers(BYTEWISE.clone(), spans, others);
}

/// MERGE-4: after how many blocks a summary node is built.
#[test]
fn summary_nodes_are_built_when_a_ninth_is_new() {
    let (spans, _) = draw(&BYTEWISE, 1, 1, 73 * BLOCK as usize);
    let (mut parts, mut found) = (Parts::new(BYTEWISE.clone(), spans), Vec::new());
    for at in 0..parts.spans.len() {
        parts.push(at);
        parts.merge_all(STEP_PIECES);
        found.extend(parts.tree.summary().map(|summary| summary.covered));
    }
    found.dedup();
    // Up to 32 blocks at any of them, then at each fourth one, where a node of level 1 ends.
    let blocks = [
        3, 5, 6, 7, 8, 10, 12, 14, 17, 20, 23, 26, 30, 34, 40, 48, 56, 68,
    ];
    assert_eq!(found, blocks.map(|blocks| blocks * BLOCK));
    parts.finish();
    assert_eq!(parts.tree.summary().unwrap().covered, 73 * BLOCK);
}

/// MERGE-2, with bounds that all differ: a step of one piece reads one.
#[test]
fn a_step_reads_no_more_than_its_budget() {
    for (budget, at_once) in [(1, 1), (3, 3), (u32::MAX, u64::MAX)] {
        let spans = (0..4 * u64::from(BLOCK)).map(|at| {
            let name = |number: u64| (number * 2654435761 % 100_003).to_be_bytes().to_vec();
            let (left, right) = (name(2 * at + 1), name(2 * at + 2));
            (left.clone().min(right.clone()), left.max(right), at + 1)
        });
        let mut parts = Parts::new(BYTEWISE.clone(), spans.collect());
        let mut steps = 0;
        for at in 0..parts.spans.len() {
            parts.push(at);
            steps += parts.merge_all(budget);
        }
        let len = |index| {
            let id = NodeId { level: 0, index };
            parts
                .tree
                .node(id)
                .unwrap()
                .head(parts.checks, id.cover())
                .unwrap()
                .len
        };
        let merge = |blocks: u32| (0..blocks).map(len).sum::<u64>() / at_once + 1;
        // Four blocks are painted; a summary node over three of them is begun and merged; the
        // parent of all is merged.
        assert_eq!(steps, 4 + 1 + merge(3) + merge(4), "budget {budget}");
    }
}

/// A record that is being written keeps its block from being painted, for now.
#[test]
fn a_block_waits_for_its_records() {
    let (spans, _) = draw(&BYTEWISE, 1, 1, BLOCK as usize);
    for complete in [BLOCK - 1, BLOCK] {
        let mut parts = Parts::new(BYTEWISE.clone(), spans.clone());
        (0..complete as usize).for_each(|at| parts.push(at));
        if complete < BLOCK {
            parts.tally.begin(|count| Ok((count, count + 1))).unwrap();
        }
        assert_eq!(parts.merge_all(STEP_PIECES), u64::from(complete / BLOCK));
    }
}

thread_local! {
    /// Comparisons of this thread by `Counting`.
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes in their order, which it does not tell; counts comparisons.
#[derive(Debug)]
struct Counting;

impl Comparator for Counting {
    fn name(&self) -> &str {
        "test.Counting"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Order {
        COMPARED.set(COMPARED.get() + 1);
        left.cmp(right)
    }
}

impl Parts {
    fn counting(mut spans: Vec<Span>) -> Self {
        // Room for snapshots before the first one.
        spans.iter_mut().for_each(|span| span.2 += 5);
        Parts::new(asked(Counting), spans)
    }

    /// Comparisons of one query.
    fn cost(&self, key: &[u8], snapshot: u64, floor: u64) -> u64 {
        let mut asked = [Asked::new(&self.comparator, key, floor)];
        COMPARED.set(0);
        self.search(snapshot).newest(&mut asked).unwrap();
        COMPARED.get()
    }
}

/// The head of `query`: what decides a query, and that nothing else is asked. All keys have one
/// prefix, so each step of a search compares.
#[test]
fn queries_compare_little() {
    let len = 300;
    let mut parts = Parts::counting(draw(&BYTEWISE, 9, 0, len).0);
    (0..len).for_each(|at| parts.push(at));
    parts.finish();
    let oldest = parts.spans.iter().map(|span| span.2).min().unwrap();
    let newest = parts.spans.iter().map(|span| span.2).max().unwrap();
    for number in 0..400u64 {
        let key = (number * 150).to_be_bytes()[6..].to_vec();
        assert!(
            parts.cost(&key, newest, 0) <= 12,
            "one search among at most 600 boundaries"
        );
        for (snapshot, floor) in [(newest, newest), (newest + 1, newest), (u64::MAX, newest)] {
            assert_eq!(
                parts.cost(&key, snapshot, floor),
                0,
                "nothing is newer than the floor"
            );
        }
        assert_eq!(parts.cost(&key, 0, 0), 0, "nothing is visible");
        assert_eq!(parts.cost(&key, oldest - 1, 0), 0, "nothing is visible");
        assert!(
            parts.cost(&key, newest / 2, 0) <= 90,
            "{}",
            parts.cost(&key, newest / 2, 0)
        );
    }
    for (start, _, _) in &parts.spans {
        let painter = parts.painter(len as u64, start);
        let visible = parts.spans[painter as usize].2;
        assert!(
            parts.cost(start, visible, 0) <= 12,
            "the painter is visible"
        );
    }
}

/// Nodes are asked only about records that are newer than the summary node: here three of level 0,
/// and four records.
#[test]
fn queries_ask_no_node_below_the_summary_node() {
    let mut parts = Parts::counting(draw(&BYTEWISE, 9, 0, 300).0);
    for at in 0..300 {
        parts.push(at);
        parts.merge_all(STEP_PIECES);
    }
    assert_eq!(parts.tree.summary().unwrap().covered, 34 * BLOCK);
    let costs = [0, 0xff].map(|byte| parts.cost(&[byte; 3], u64::MAX, 0));
    assert!(
        costs.into_iter().all(|cost| cost <= 3 * 6 + 2 * 4 + 12),
        "{costs:?}"
    );
}

/// Records that no node covers yet: one is compared only if it is visible and newer than the floor.
#[test]
fn records_are_compared_only_if_they_can_answer() {
    let parts = Parts::counting(draw(&BYTEWISE, 9, 0, 1).0);
    parts.push(0);
    let (start, _, sequence) = &parts.spans[0];
    for (snapshot, floor) in [
        (sequence - 1, 0),
        (*sequence, *sequence),
        (sequence + 1, *sequence),
    ] {
        assert_eq!(parts.cost(start, snapshot, floor), 0, "{snapshot} {floor}");
    }
    assert_eq!(parts.cost(start, *sequence, sequence - 1), 2);
}
