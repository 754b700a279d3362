//! An index whose parts tests can reach: tally, tree, tree builder, and the tombstones themselves.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use crate::comparator::KeyComparator;
use crate::halves::{high, low};
use crate::integrity::index_checks::Checks;
use crate::integrity::tag::Secret;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::Tally;
use crate::tombstone::node_merge::Progress;
use crate::tombstone::query::Search;
use crate::tombstone::record_log::{COUNTS, NO_PAINTER};
use crate::tombstone::span::Source;
use crate::tombstone::tests::fixture::Nodes;
use crate::tombstone::tests::{Rng, Span, key, span};
use crate::tombstone::tree::Tree;
use crate::tombstone::tree_builder::TreeBuilder;

/// The parts of an index, and its tombstones.
pub(super) struct OpenIndex {
    pub(super) comparator: KeyComparator,
    pub(super) checks: Checks,
    pub(super) tally: Tally,
    pub(super) tree: Tree,
    pub(super) tree_builder: TreeBuilder,
    pub(super) spans: Vec<Span>,
    pub(super) nodes: Nodes,
}

impl OpenIndex {
    pub(super) fn new(comparator: KeyComparator, spans: Vec<Span>) -> Self {
        let checks = Checks::new(Secret::from_seed(1));
        let (start, end, _) = &spans[0];
        let tree = Tree::new(checks, CommonPrefix::new(checks, &comparator, [start, end]));
        OpenIndex {
            comparator,
            checks,
            tally: Tally::new(checks, COUNTS),
            tree,
            tree_builder: TreeBuilder::default(),
            spans,
            nodes: Nodes::new(),
        }
    }

    pub(super) fn push(&self, at: usize) {
        let (start, end, sequence) = &self.spans[at];
        let tombstone = self.nodes.add([start, end], *sequence);
        let log = &self.tree.log;
        log.push(self.source(), &self.tally, &tombstone).unwrap();
    }

    pub(super) fn source(&self) -> Source<'_> {
        self.nodes.source(&self.comparator)
    }

    pub(super) fn search(&self, snapshot: u64) -> Search<'_> {
        let extent = self.tally.extent().unwrap();
        Search {
            tree: &self.tree,
            source: self.source(),
            snapshot,
            extent,
        }
    }

    /// Merges until no work is left. Returns the number of steps that found work.
    pub(super) fn merge_all(&mut self, budget: u32) -> u64 {
        let (extent, mut steps) = (self.tally.extent().unwrap(), 0);
        let source = self.nodes.source(&self.comparator);
        while self.tree_builder.step(&self.tree, source, extent, budget) == Progress::Worked {
            steps += 1;
        }
        steps
    }

    pub(super) fn finish(&mut self) {
        let extent = self.tally.extent().unwrap();
        let source = self.nodes.source(&self.comparator);
        self.tree_builder.finish(&self.tree, source, extent);
    }

    /// The record that must be the painter at `key` in a node that covers `cover`.
    pub(super) fn painter(&self, cover: u64, key: &[u8]) -> u32 {
        let covers = |(_, (start, end, _)): &(u32, &Span)| {
            self.comparator.compare(start, key) != Order::Greater
                && self.comparator.compare(key, end) == Order::Less
        };
        let records =
            (high(cover)..low(cover)).map(|record| (record, &self.spans[record as usize]));
        let newest = records
            .filter(covers)
            .max_by_key(|(record, span)| (span.2, *record));
        newest.map_or(NO_PAINTER, |(record, _)| record)
    }
}

/// Draws tombstones, and other keys to ask for.
pub(super) fn draw(
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
