//! Tests of the tree builder: which nodes it builds, of what, and in how many steps.

#![forbid(unsafe_code)]

use crate::comparator::BYTEWISE;
use crate::integrity::index_checks::Checks;
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::Tally;
use crate::tombstone::node_merge::Progress;
use crate::tombstone::record_log::COUNTS;
use crate::tombstone::span::Keys;
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tests::open_index::{OpenIndex, draw};
use crate::tombstone::tree::{BLOCK, Child, NodeId, SUMMARY_RECORDS_MAX, Tree};
use crate::tombstone::tree_builder::{STEP_PIECES, TreeBuilder};

const CHECKS: Checks = Checks::new(Secret::from_seed(1));
const RANGE: Keys<'_> = [b"a", b"b"];

/// The parts of an index whose tombstones all have one range.
pub(super) struct OneRange {
    pub(super) tree: Tree,
    tally: Tally,
    tree_builder: TreeBuilder,
    nodes: Nodes,
}

impl OneRange {
    pub(super) fn new() -> Self {
        let tree = Tree::new(CHECKS, CommonPrefix::new(CHECKS, &BYTEWISE, RANGE));
        OneRange {
            tree,
            tally: Tally::new(CHECKS, COUNTS),
            tree_builder: TreeBuilder::default(),
            nodes: Nodes::new(),
        }
    }

    pub(super) fn push(&self, len: u32) {
        for sequence in 1..=u64::from(len) {
            let tombstone = self.nodes.add(RANGE, sequence);
            let source = self.nodes.source(&BYTEWISE);
            self.tree.log.push(source, &self.tally, &tombstone).unwrap();
        }
    }

    pub(super) fn merge_all(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&BYTEWISE);
        while self
            .tree_builder
            .step(&self.tree, source, extent, STEP_PIECES)
            == Progress::Worked
        {}
    }

    fn finish(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&BYTEWISE);
        self.tree_builder.finish(&self.tree, source, extent);
    }

    fn covered(&self) -> Option<u32> {
        self.tree.summary().map(|summary| summary.covered)
    }
}

/// There is one node over all records, and nodes of every level below it.
#[test]
fn finish_builds_one_node_over_all() {
    for len in (1..=140)
        .step_by(if cfg!(miri) { 23 } else { 1 })
        .chain([512, 515])
    {
        let mut parts = OneRange::new();
        parts.push(len);
        parts.finish();
        let blocks = len / BLOCK;
        let one = blocks * BLOCK == len && [1, 4, 16, 64].contains(&blocks);
        assert_eq!(parts.covered(), (!one).then_some(len));
        for index in 0..=blocks {
            for level in 0..4 {
                let whole = (index + 1) << (2 * level) <= blocks;
                assert_eq!(
                    parts.tree.node(NodeId { level, index }).is_some(),
                    whole,
                    "{index} of {len}"
                );
            }
        }
        let bytes = parts.tree.log.allocated_bytes();
        parts.finish();
        assert_eq!(
            (parts.covered(), parts.tree.log.allocated_bytes()),
            ((!one).then_some(len), bytes)
        );
    }
}

/// No node covers a record that is being written.
#[test]
fn finish_waits_for_every_record() {
    for len in [3, 2 * BLOCK, 2 * BLOCK + 3] {
        let mut parts = OneRange::new();
        parts.push(len);
        let (_, one) = parts.tally.begin(|count| Ok((count, count + 1))).unwrap();
        parts.finish();
        assert_eq!(parts.covered(), None);
        assert_eq!(
            parts.tree.node(NodeId { level: 0, index: 0 }).is_some(),
            len >= BLOCK
        );
        parts.tally.end(one).unwrap();
    }
}

/// Above `SUMMARY_RECORDS_MAX` records no summary node is built until `finish`, which builds one
/// over all.
#[test]
fn summary_nodes_end_with_many_records() {
    let mut parts = OneRange::new();
    for _ in 0..if cfg!(miri) { 4 } else { 2400 } {
        parts.push(BLOCK);
        parts.merge_all();
    }
    let covered = parts.covered().unwrap();
    assert!(
        cfg!(miri) || (SUMMARY_RECORDS_MAX / 9 * 8..=SUMMARY_RECORDS_MAX).contains(&covered),
        "{covered}"
    );
    parts.finish();
    assert!(cfg!(miri) || parts.covered() == Some(2400 * BLOCK));
}

/// The nodes over any number of blocks, the records after them, and a summary node are no more
/// children than one merge takes.
#[test]
fn no_freeze_has_more_children_than_a_merge() {
    let below = |blocks| NodeId::decompose(0, blocks).count() as u32;
    let most = (0..16)
        .map(|level| below((1 << (2 * level)) - 1))
        .max()
        .unwrap();
    assert!(
        most.max(below(u32::MAX / BLOCK)) + BLOCK - 1 <= 64,
        "{most}"
    );
    let summarized = 1 + (0..=SUMMARY_RECORDS_MAX / BLOCK).map(below).max().unwrap();
    assert!(2 * summarized + BLOCK - 1 <= 64, "{summarized}");
}

/// A summary node is built from the one before it and from the nodes after that, unless the one
/// before covers more.
#[test]
fn a_summary_node_is_built_from_the_one_before() {
    let mut parts = OneRange::new();
    assert!(parts.tree.children(0).is_empty());
    for _ in 0..33 {
        parts.push(BLOCK);
        parts.merge_all();
    }
    assert_eq!(parts.covered(), Some(30 * BLOCK));
    let names = |blocks| {
        let name = |child: &Child| match child {
            Child::Node(NodeId { level, index }) => Some((*level, *index)),
            Child::Summary => None,
            Child::Record(_) => panic!("not kept in the tree"),
        };
        parts
            .tree
            .children(blocks)
            .iter()
            .map(name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(30), [None]);
    assert_eq!(
        names(33),
        [None, Some((0, 30)), Some((0, 31)), Some((0, 32))]
    );
    assert_eq!(
        names(29),
        [
            Some((2, 0)),
            Some((1, 4)),
            Some((1, 5)),
            Some((1, 6)),
            Some((0, 28))
        ]
    );
    parts.push(3);
    parts.finish();
    assert_eq!(parts.covered(), Some(33 * BLOCK + 3));
    let found = parts.tree.children(33);
    assert!(matches!(
        found[..],
        [
            Child::Node(NodeId { level: 2, index: 0 }),
            ..,
            Child::Node(_)
        ]
    ));
}

/// A summary node is built after these numbers of blocks.
#[test]
fn summary_nodes_are_built_when_a_ninth_is_new() {
    let (spans, _) = draw(&BYTEWISE, 1, 1, 73 * BLOCK as usize);
    let (mut parts, mut found) = (OpenIndex::new(BYTEWISE.clone(), spans), Vec::new());
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

/// With bounds that all differ, a step with a budget of one piece reads one piece.
#[test]
fn a_step_reads_no_more_than_its_budget() {
    for (budget, at_once) in [(1, 1), (3, 3), (u32::MAX, u64::MAX)] {
        let spans = (0..4 * u64::from(BLOCK)).map(|at| {
            let name = |number: u64| (number * 2654435761 % 100_003).to_be_bytes().to_vec();
            let (left, right) = (name(2 * at + 1), name(2 * at + 2));
            (left.clone().min(right.clone()), left.max(right), at + 1)
        });
        let mut parts = OpenIndex::new(BYTEWISE.clone(), spans.collect());
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
        // Nodes are built over four blocks; a summary node over three of them is begun and merged;
        // the parent of all four is merged.
        assert_eq!(steps, 4 + 1 + merge(3) + merge(4), "budget {budget}");
    }
}

/// No node is built over a block while one of its records is being written.
#[test]
fn a_block_waits_for_its_records() {
    let (spans, _) = draw(&BYTEWISE, 1, 1, BLOCK as usize);
    for complete in [BLOCK - 1, BLOCK] {
        let mut parts = OpenIndex::new(BYTEWISE.clone(), spans.clone());
        (0..complete as usize).for_each(|at| parts.push(at));
        if complete < BLOCK {
            parts.tally.begin(|count| Ok((count, count + 1))).unwrap();
        }
        assert_eq!(parts.merge_all(STEP_PIECES), u64::from(complete / BLOCK));
    }
}
