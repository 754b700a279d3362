//! Tests of the merger: what `finish` builds, and what a merge begins with.

#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::comparator::BYTEWISE;
use crate::integrity::tag::Secret;
use crate::tombstone::index::checks::Checks;
use crate::tombstone::index::common_prefix::{CommonPrefix, KeyRange};
use crate::tombstone::index::counter::Tally;
use crate::tombstone::index::merge::*;

const CHECKS: Checks = Checks::new(Secret::from_seed(1));
const RANGE: KeyRange<'_> = KeyRange { start: b"a", end: b"b" };

/// An index of tombstones over one range.
struct Parts {
    tree: Tree,
    tally: Tally,
    merger: Merger,
}

impl Parts {
    fn new() -> Self {
        let tree = Tree::new(CHECKS, CommonPrefix::new(CHECKS, &BYTEWISE, RANGE));
        Parts { tree, tally: Log::tally(CHECKS), merger: Merger::default() }
    }

    fn push(&self, len: u32) {
        for sequence in 1..=u64::from(len) {
            self.tree.log.push(&BYTEWISE, &self.tally, RANGE, sequence).unwrap();
        }
    }

    fn settle(&mut self) {
        let index = OrderedTree { tree: &self.tree, comparator: &BYTEWISE };
        let extent = self.tally.extent(CHECKS).unwrap();
        while self.merger.step(index, extent, STEP_PIECES) == Progress::Worked {}
    }

    fn finish(&mut self) {
        let index = OrderedTree { tree: &self.tree, comparator: &BYTEWISE };
        self.merger.finish(index, self.tally.extent(CHECKS).unwrap());
    }

    fn covered(&self) -> Option<u32> {
        self.tree.summary().map(|summary| summary.covered)
    }
}

/// One node over all records, and below it nodes of every level.
#[test]
fn finish_builds_one_node_over_all() {
    for len in (1..=140).step_by(if cfg!(miri) { 23 } else { 1 }).chain([512, 515]) {
        let mut parts = Parts::new();
        parts.push(len);
        parts.finish();
        let blocks = len / BLOCK;
        let one = blocks * BLOCK == len && [1, 4, 16, 64].contains(&blocks);
        assert_eq!(parts.covered(), (!one).then_some(len));
        for index in 0..=blocks {
            for level in 0..4 {
                let whole = (index + 1) << (2 * level) <= blocks;
                assert_eq!(parts.tree.node(NodeId { level, index }).is_some(), whole, "{index} of {len}");
            }
        }
        let bytes = parts.tree.log.allocated_bytes();
        parts.finish();
        assert_eq!((parts.covered(), parts.tree.log.allocated_bytes()), ((!one).then_some(len), bytes));
    }
}

/// A record that is being written is covered by no node.
#[test]
fn finish_waits_for_every_record() {
    for len in [3, 2 * BLOCK, 2 * BLOCK + 3] {
        let mut parts = Parts::new();
        parts.push(len);
        let (_, one) = parts.tally.begin(CHECKS, |count| Ok((count, count + 1))).unwrap();
        parts.finish();
        assert_eq!(parts.covered(), None);
        assert_eq!(parts.tree.node(NodeId { level: 0, index: 0 }).is_some(), len >= BLOCK);
        parts.tally.end(CHECKS, one).unwrap();
    }
}

/// MERGE-4: above a number of records there are no new summary nodes, and one over all when it is finished.
#[test]
fn summary_nodes_end_with_many_records() {
    let mut parts = Parts::new();
    for _ in 0..if cfg!(miri) { 4 } else { 2400 } {
        parts.push(BLOCK);
        parts.settle();
    }
    let covered = parts.covered().unwrap();
    assert!(
        cfg!(miri) || (SUMMARY_RECORDS_MAX / 9 * 8..=SUMMARY_RECORDS_MAX).contains(&covered),
        "{covered}"
    );
    parts.finish();
    assert!(cfg!(miri) || parts.covered() == Some(2400 * BLOCK));
}

/// A summary node is built from the one before it and from what is new, unless that one covers more.
#[test]
fn a_summary_node_is_built_from_the_one_before() {
    let mut parts = Parts::new();
    assert!(sources(&parts.tree, 0).is_empty());
    for _ in 0..33 {
        parts.push(BLOCK);
        parts.settle();
    }
    assert_eq!(parts.covered(), Some(30 * BLOCK));
    let names = |blocks| {
        let name = |source: &Source| match source {
            Source::Node(NodeId { level, index }) => Some((*level, *index)),
            Source::SummaryNode => None,
            Source::Own(..) => panic!("not kept in the tree"),
        };
        sources(&parts.tree, blocks).iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(30), [None]);
    assert_eq!(names(33), [None, Some((0, 30)), Some((0, 31)), Some((0, 32))]);
    assert_eq!(names(29), [Some((2, 0)), Some((1, 4)), Some((1, 5)), Some((1, 6)), Some((0, 28))]);
    parts.push(3);
    parts.finish();
    assert_eq!(parts.covered(), Some(33 * BLOCK + 3));
    let sources = sources(&parts.tree, 33);
    assert!(matches!(sources[..], [Source::Node(NodeId { level: 2, index: 0 }), .., Source::Node(_)]));
}

/// What is merged is adjacent, and at most 64 nodes.
#[test]
fn a_merge_refuses_gaps_and_too_many() {
    let mut parts = Parts::new();
    parts.push(65 * BLOCK);
    parts.settle();
    let start = |blocks: &[u32]| {
        let sources = blocks.iter().map(|&index| Source::Node(NodeId { level: 0, index })).collect();
        Job::start(&parts.tree, sources, Target::SummaryNode).map(|job| job.cover)
    };
    assert_eq!(start(&[3, 4, 5]), Ok(pair(3 * BLOCK, 6 * BLOCK)));
    for refused in [&[3, 5][..], &[4, 3], &[3, 3], &[]] {
        assert!(start(refused).is_err(), "{refused:?}");
    }
    let all: Vec<u32> = (0..65).collect();
    assert_eq!(start(&all[1..]), Ok(pair(BLOCK, 65 * BLOCK)));
    assert!(start(&all).is_err());
}
