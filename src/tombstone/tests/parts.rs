//! The parts of an index, each by itself: tallies, segments, common prefix, records, and what the
//! merger builds.

#![forbid(unsafe_code)]

use crate::comparator::{BYTEWISE, bytes_at};
use crate::error::Result;
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::{Counter, Extent, Tally};
use crate::tombstone::log::{COUNTS, Log, NOBODY};
use crate::tombstone::merger::{Job, Merger, Progress, STEP_PIECES};
use crate::tombstone::node::{Builder, Piece};
use crate::tombstone::query::{Asked, Search};
use crate::tombstone::segments::{Segments, damage, pair};
use crate::tombstone::span::Keys;
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tree::{BLOCK, Child, NodeId, SUMMARY_RECORDS_MAX, SummaryNode, Tree};

pub(in crate::tombstone) const CHECKS: Checks = Checks::new(Secret::from_seed(1));
const RANGE: Keys<'_> = [b"a", b"b"];

fn begin(tally: &Tally, by: u32) -> u32 {
    tally.begin(|count| Ok((count, count + by))).unwrap().1
}

/// COUNTER-4: what has not ended after all writers have left was lost.
#[test]
fn a_scrub_waits_for_writers() {
    let tally = Tally::new(CHECKS, 1);
    tally.verify(&mut || panic!("nobody is at work")).unwrap();
    for (at_work, left, later) in [(3, 3, 0), (3, 2, 0), (5, 5, 2), (1, 0, 1)] {
        let tally = Tally::new(CHECKS, 1);
        tally.end(begin(&tally, 10)).unwrap();
        begin(&tally, at_work);
        let found = tally.verify(&mut || {
            tally.end(left).unwrap();
            begin(&tally, later);
            tally.end(later).unwrap();
        });
        let (expected, ended) = (10 + at_work, 10 + left + later);
        let lost = damage(0, u64::from(expected), u64::from(ended));
        assert_eq!(
            found,
            if ended < expected { Err(lost) } else { Ok(()) },
            "{at_work} {left} {later}"
        );
    }
}

/// COUNTER-2: more that ended than was begun is damage, whoever asks.
#[test]
fn what_ended_was_begun() {
    let tally = Tally::new(CHECKS, 1);
    tally.end(begin(&tally, 4)).unwrap();
    assert_eq!(
        tally.extent(),
        Ok(Extent {
            count: 4,
            complete: 4
        })
    );
    let one = begin(&tally, 1);
    assert_eq!(
        (one, tally.extent()),
        (
            1,
            Ok(Extent {
                count: 5,
                complete: 0
            })
        )
    );
    tally.end(2).unwrap();
    assert_eq!(tally.extent(), Err(damage(0, 6, 5)));
    assert!(tally.begin(|count| Ok((count, count + 1))).is_err());
    let other = Counter::new(CHECKS, 2);
    assert_eq!((other.hint(), other.load()), (0, Ok(0)));
    assert_eq!(
        other.advance(|value| Ok((value + 7, value + 9))).unwrap(),
        (7, 9)
    );
    assert_eq!((other.hint(), other.load()), (9, Ok(9)));
}

/// Items are passed in order, and missing segments passed over.
#[test]
fn items_are_passed_in_order() {
    let segments = Segments::<u32, 8>::new();
    for index in [0, 3, 8, 9, 5000] {
        let cell = segments.ensure(index, |index| index, |_| ());
        assert_eq!((cell, segments.get(index)), (Some(&index), Some(&index)));
    }
    assert!(
        segments.items().all(|(index, item)| index == *item)
            && segments.items().any(|(index, _)| index == 5000)
            && segments
                .items()
                .all(|(index, _)| !(100..2000).contains(&index))
    );
}

/// Four segments of each length, and bytes that are counted once per segment.
#[test]
fn segments_are_as_long_as_their_group_says() {
    let (segments, bytes) = (Segments::<u16, 8>::new(), std::cell::Cell::new(0));
    for index in (0..8 * 4 * 15).chain(0..20) {
        let grown = |more| bytes.set(bytes.get() + more);
        assert!(
            segments
                .ensure(index, |_| 7, grown)
                .is_some_and(|cell| *cell == 7)
        );
    }
    let lengths: Vec<usize> = segments.segments().map(<[u16]>::len).collect();
    assert_eq!(lengths, [[8; 4], [16; 4], [32; 4], [64; 4]].concat());
    assert_eq!(bytes.get(), 2 * 4 * 120);
    assert!(segments.items().map(|(index, _)| index).eq(0..480));
    assert!(
        segments.run(0, 9).is_none()
            && segments.run(7, 2).is_none()
            && segments.run(480, 1).is_none()
    );
}

/// The head of `common_prefix`: a record leaves out at most as many bytes as the one before it, and
/// no fewer than it may.
#[test]
fn records_leave_out_what_they_share() {
    let log = log(b"tenant-7/users/a", b"tenant-7/users/b");
    let ends: [&[u8]; 7] = [
        b"users/b",
        b"users/cc",
        b"usual",
        b"users/b",
        b"v",
        b"users/zz",
        b"users/users/x",
    ];
    for (at, (end, skip)) in ends.into_iter().zip([15, 15, 11, 11, 9, 9, 9]).enumerate() {
        let index = push(&log, b"tenant-7/users/a", &[b"tenant-7/", end].concat()).unwrap();
        assert_eq!(index as usize, at);
        assert_eq!(
            log.log.record(index, 0).unwrap().unwrap().skip(),
            skip,
            "record {at}"
        );
    }
    for (end, skip) in [(&b"tenor"[..], 0), (b"tenant-7/users/b", 0)] {
        let index = push(&log, b"tenant-7/users/a", end).unwrap();
        assert_eq!(log.log.record(index, 0).unwrap().unwrap().skip(), skip);
    }
}

/// Records of one segment are read at once.
#[test]
fn runs_are_of_one_segment() {
    let Filled { log, .. } = filled();
    for (from, to) in [(0, 8), (0, 32), (24, 32), (32, 40), (32, 33), (31, 32)] {
        let run = log.run(from, to).unwrap();
        assert_eq!(run.len(), (to - from) as usize);
        for (stored, index) in run.iter().zip(from..to) {
            let record = log.decode(stored, index, 40).unwrap().unwrap();
            assert_eq!(record.sequence, 1000 + u64::from(index));
        }
    }
    assert!(log.run(31, 33).is_none() && log.run(5, 4).is_none() && log.run(400, 401).is_none());
}

#[test]
fn lifted_prefixes_are_prefixes() {
    let checks = Checks::new(Secret::from_seed(1));
    let key: Vec<u8> = (0..140u32).map(|byte| (byte * 37 % 251) as u8).collect();
    for len in (0..=128usize).step_by(if cfg!(miri) { 32 } else { 1 }) {
        let common_prefix = CommonPrefix::new(
            checks,
            &BYTEWISE,
            [&key[..len], &[&key[..len], b"x"].concat()],
        );
        assert_eq!(common_prefix.shared(&[]), Ok(0));
        for from in 0..=u32::try_from(len).unwrap() {
            assert_eq!(
                common_prefix.shared(&key[..from as usize]),
                Ok(from),
                "of {len}"
            );
            for to in 0..=from {
                let lift = common_prefix.lift(from, to).unwrap();
                let (deep, flat) = (bytes_at(&key, from as usize), bytes_at(&key, to as usize));
                assert_eq!(lift.apply(deep), flat, "{len}: {from} to {to}");
            }
        }
    }
}

/// A log, and the nodes that its records name.
pub(in crate::tombstone) struct Filled {
    pub(in crate::tombstone) log: Log,
    pub(in crate::tombstone) tally: Tally,
    pub(in crate::tombstone) nodes: Nodes,
}

pub(in crate::tombstone) fn log(start: &[u8], end: &[u8]) -> Filled {
    let common_prefix = CommonPrefix::new(CHECKS, &BYTEWISE, [start, end]);
    Filled {
        log: Log::new(CHECKS, common_prefix),
        tally: Tally::new(CHECKS, COUNTS),
        nodes: Nodes::new(),
    }
}

pub(in crate::tombstone) fn push(filled: &Filled, start: &[u8], end: &[u8]) -> Result<u32> {
    let Filled { log, tally, nodes } = filled;
    let sequence = 1000 + u64::from(tally.extent()?.count);
    let tombstone = nodes.add([start, end], sequence);
    log.push(nodes.source(&BYTEWISE), tally, &tombstone)
}

/// Forty records whose keys are of all lengths from 0 to 39, and of 300 bytes.
pub(in crate::tombstone) fn filled() -> Filled {
    let filled = log(b"", b"z");
    for len in 0..40 {
        let (start, end) = (
            vec![b'a'; len],
            vec![b'z'; if len == 7 { 300 } else { 40 - len }],
        );
        assert_eq!(push(&filled, &start, &end).ok(), Some(len as u32));
    }
    filled
}

/// An index of tombstones over one range.
struct Parts {
    tree: Tree,
    tally: Tally,
    merger: Merger,
    nodes: Nodes,
}

impl Parts {
    fn new() -> Self {
        let tree = Tree::new(CHECKS, CommonPrefix::new(CHECKS, &BYTEWISE, RANGE));
        Parts {
            tree,
            tally: Tally::new(CHECKS, COUNTS),
            merger: Merger::default(),
            nodes: Nodes::new(),
        }
    }

    fn push(&self, len: u32) {
        for sequence in 1..=u64::from(len) {
            let tombstone = self.nodes.add(RANGE, sequence);
            let source = self.nodes.source(&BYTEWISE);
            self.tree.log.push(source, &self.tally, &tombstone).unwrap();
        }
    }

    fn merge_all(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&BYTEWISE);
        while self.merger.step(&self.tree, source, extent, STEP_PIECES) == Progress::Worked {}
    }

    fn finish(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&BYTEWISE);
        self.merger.finish(&self.tree, source, extent);
    }

    fn covered(&self) -> Option<u32> {
        self.tree.summary().map(|summary| summary.covered)
    }
}

/// One node over all records, and below it nodes of every level.
#[test]
fn finish_builds_one_node_over_all() {
    for len in (1..=140)
        .step_by(if cfg!(miri) { 23 } else { 1 })
        .chain([512, 515])
    {
        let mut parts = Parts::new();
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

/// A record that is being written is covered by no node.
#[test]
fn finish_waits_for_every_record() {
    for len in [3, 2 * BLOCK, 2 * BLOCK + 3] {
        let mut parts = Parts::new();
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

/// MERGE-4: above a number of records there are no new summary nodes, and one over all when it is
/// finished.
#[test]
fn summary_nodes_end_with_many_records() {
    let mut parts = Parts::new();
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

/// A merge over any number of blocks has a place for each child: whole nodes, the records after
/// them, and a summary node.
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

/// A flipped bit in what a summary node covers costs no walk over records that do not exist.
#[test]
fn a_damaged_cover_ends_with_the_log() {
    let tree = Tree::new(CHECKS, CommonPrefix::new(CHECKS, &BYTEWISE, [b"a", b"c"]));
    let tally = Tally::new(CHECKS, COUNTS);
    let nodes = Nodes::new();
    let source = nodes.source(&BYTEWISE);
    let tombstone = nodes.add([b"a", b"c"], 5);
    tree.log.push(source, &tally, &tombstone).unwrap();
    let mut builder = Builder::new(
        CHECKS,
        Cover {
            records: pair(0, 1),
            skip: 0,
        },
        [5, 5],
        2,
    );
    builder.push(Piece {
        prefix: u64::from(b'a') << 56,
        name: 0,
        painter: 0,
    });
    builder.push(Piece {
        prefix: u64::from(b'c') << 56,
        name: 1,
        painter: NOBODY,
    });
    tree.publish_summary(SummaryNode {
        coverage_node: builder.finish(),
        covered: 1 | 1 << 31,
    });
    let mut asked = [Asked::new(&BYTEWISE, b"b", 0)];
    let search = Search {
        tree: &tree,
        source,
        snapshot: 9,
        extent: tally.extent().unwrap(),
    };
    search.newest(&mut asked).unwrap();
    assert_eq!(asked[0].answer(), Some(5));
}

/// A summary node is built from the one before it and from what is new, unless that one covers
/// more.
#[test]
fn a_summary_node_is_built_from_the_one_before() {
    let mut parts = Parts::new();
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

/// What is merged is adjacent, and at most 64 nodes.
#[test]
fn a_merge_refuses_gaps_and_too_many() {
    let mut parts = Parts::new();
    parts.push(65 * BLOCK);
    parts.merge_all();
    let start = |blocks: &[u32]| {
        let children = blocks
            .iter()
            .map(|&index| Child::Node(NodeId { level: 0, index }))
            .collect();
        Job::start(&parts.tree, children, None).map(|job| job.out.cover.records)
    };
    assert_eq!(start(&[3, 4, 5]), Ok(pair(3 * BLOCK, 6 * BLOCK)));
    for refused in [&[3, 5][..], &[4, 3], &[3, 3], &[]] {
        assert!(start(refused).is_err(), "{refused:?}");
    }
    let all: Vec<u32> = (0..65).collect();
    assert_eq!(start(&all[1..]), Ok(pair(BLOCK, 65 * BLOCK)));
    assert!(start(&all).is_err());
}
