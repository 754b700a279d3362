//! Tests of queries: that they compare few keys, and end where the log ends.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::cmp::Ordering as Order;

use crate::comparator::{BYTEWISE, Comparator, KeyEquality};
use crate::halves::pair;
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::Tally;
use crate::tombstone::coverage_node::{Builder, Piece};
use crate::tombstone::query::{Asked, Search};
use crate::tombstone::record_log::{COUNTS, NO_PAINTER};
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tests::open_index::{OpenIndex, draw};
use crate::tombstone::tests::{Span, asked};
use crate::tombstone::tree::{BLOCK, SummaryNode, Tree};
use crate::tombstone::tree_builder::STEP_PIECES;

const CHECKS: Checks = Checks::new(Secret::from_seed(1));

thread_local! {
    /// Comparisons of this thread by `Counting`.
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// Orders keys by their bytes without saying so, and counts comparisons.
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

impl OpenIndex {
    fn counting(mut spans: Vec<Span>) -> Self {
        // Leaves room for snapshots before the first tombstone.
        spans.iter_mut().for_each(|span| span.2 += 5);
        OpenIndex::new(asked(Counting), spans)
    }

    /// Number of comparisons in one query.
    fn cost(&self, key: &[u8], snapshot: u64, floor: u64) -> u64 {
        let mut asked = [Asked::new(&self.comparator, key, floor)];
        COMPARED.set(0);
        self.search(snapshot).newest(&mut asked).unwrap();
        COMPARED.get()
    }
}

/// A query asks no part of the index that cannot change its answer. All keys have one prefix, so
/// each step of a search compares keys.
#[test]
fn queries_compare_little() {
    let len = 300;
    let mut parts = OpenIndex::counting(draw(&BYTEWISE, 9, 0, len).0);
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

/// Only nodes and records after the summary node are asked: here three nodes of level 0, and four
/// records.
#[test]
fn queries_ask_no_node_below_the_summary_node() {
    let mut parts = OpenIndex::counting(draw(&BYTEWISE, 9, 0, 300).0);
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

/// A record that no node covers is compared only if it is visible and newer than the floor.
#[test]
fn records_are_compared_only_if_they_can_answer() {
    let parts = OpenIndex::counting(draw(&BYTEWISE, 9, 0, 1).0);
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

/// A flipped bit in the number of records that a summary node covers makes no query visit records
/// that do not exist.
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
        painter: NO_PAINTER,
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
