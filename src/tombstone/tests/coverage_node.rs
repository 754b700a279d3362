//! Tests of coverage nodes: of every size, what they exclude, and that each answers alone. Queries
//! pass over a node that fails, so they would hide a missing or wrong node.

#![forbid(unsafe_code)]

use crate::comparator::{BYTEWISE, KeyComparator};
use crate::halves::{high, low, pair};
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::{CommonPrefix, Probe};
use crate::tombstone::counter::Extent;
use crate::tombstone::coverage_node::{Builder, CoverageNode, Piece};
use crate::tombstone::query::Search;
use crate::tombstone::record_log::NO_PAINTER;
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tests::open_index::{OpenIndex, draw};
use crate::tombstone::tests::{Descending, Span, asked};
use crate::tombstone::tree::{BLOCK, NodeId, Tree};
use crate::tombstone::tree_builder::STEP_PIECES;

const COVER: u64 = pair(8, 16);

fn checks() -> Checks {
    Checks::new(Secret::from_seed(1))
}

/// A node whose pieces begin at these prefixes. The last one has no painter.
fn node(prefixes: impl Iterator<Item = u64>) -> CoverageNode {
    let mut builder = Builder::new(
        checks(),
        Cover {
            records: COVER,
            skip: 0,
        },
        [5, 9],
        0,
    );
    let mut prefixes = (0..).zip(prefixes).peekable();
    while let Some((name, prefix)) = prefixes.next() {
        let painter = if prefixes.peek().is_some() {
            name
        } else {
            NO_PAINTER
        };
        builder.push(Piece {
            prefix,
            name,
            painter,
        });
    }
    builder.finish()
}

/// At each bound of a node, and one below and above it.
#[test]
fn a_node_excludes_what_is_outside_its_bounds() {
    let bounds = node([100, 150, 200].into_iter())
        .head(checks(), COVER)
        .unwrap();
    for prefix in [0, 99, 100, 101, 199, 200, 201, u64::MAX] {
        for (best, snapshot) in
            (0..12).flat_map(|best| (0..12).map(move |snapshot| (best, snapshot)))
        {
            let inside = (100..=200).contains(&prefix) && best < 9 && snapshot >= 5;
            let key = prefix.to_be_bytes();
            let probe = Probe::new(&BYTEWISE, &key);
            assert_eq!(
                bounds.excludes(&probe, best, snapshot),
                !inside,
                "{prefix} {best} {snapshot}"
            );
        }
    }
}

/// Sizes around one block, one line of fences, and one line of outer fences.
#[test]
fn nodes_of_every_size_answer() {
    let tree = Tree::new(
        checks(),
        CommonPrefix::new(checks(), &BYTEWISE, [b"a", b"b"]),
    );
    let extent = Extent {
        count: 0,
        complete: 0,
    };
    let nodes = Nodes::new();
    let search = Search {
        tree: &tree,
        source: nodes.source(&BYTEWISE),
        snapshot: u64::MAX,
        extent,
    };
    let cover = Cover {
        records: COVER,
        skip: 0,
    };
    let sizes = [2..36, 254..275, 510..516, 4080..4130, 4350..4353];
    for len in sizes
        .into_iter()
        .flatten()
        .step_by(if cfg!(miri) { 40 } else { 1 })
    {
        let node = node((1..=len).map(|number| 10 * number));
        node.verify(checks(), COVER).unwrap();
        assert_eq!(node.head(checks(), COVER).unwrap().len, len);
        let (blocks, inner) = (len.div_ceil(16), len.div_ceil(16) - 1);
        assert_eq!(
            node.allocated_bytes(),
            8 * (40 * blocks + inner + inner / 16),
            "{len}"
        );
        for number in (0..=len).step_by(if len < 40 { 1 } else { 7 }).chain([len]) {
            let key = (10 * number + 5).to_be_bytes();
            let found = search.painter(&node, cover, &Probe::new(&BYTEWISE, &key));
            let painter = number.checked_sub(1).filter(|piece| piece + 1 < len);
            assert_eq!(
                found,
                Ok(painter.map_or(NO_PAINTER, |piece| piece as u32)),
                "{number} of {len}"
            );
        }
    }
}

/// A builder without pieces makes a node that verifies and has no answers.
#[test]
fn a_node_without_pieces() {
    let node = node(std::iter::empty());
    assert_eq!(
        (
            node.verify(checks(), COVER).map(drop),
            node.allocated_bytes()
        ),
        (Ok(()), 0)
    );
    assert_eq!(
        (node.stored(0), node.head(checks(), COVER).unwrap().len),
        (None, 0)
    );
}

impl OpenIndex {
    /// The painter that the node finds. `None` if the key does not begin with the bytes that the
    /// node leaves out.
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
        // There are at least two pieces, and their boundaries ascend strictly.
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
                self.ask(node, cover, key).unwrap_or(NO_PAINTER),
                expected,
                "{cover:x} {key:?}"
            );
        }
    }
}

/// All nodes of the tree over a log of `count` records.
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
    let mut parts = OpenIndex::new(comparator, spans);
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

/// Keys that begin with the prefix of padding, in an index that leaves no bytes out.
#[test]
fn every_node_answers_alone_where_prefixes_are_those_of_padding() {
    let (mut spans, others) = draw(&BYTEWISE, 7, 3, 300);
    spans[0].0.clear();
    every_node_of_these_answers(BYTEWISE.clone(), spans, others);
}
