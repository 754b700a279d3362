//! The tree of coverage nodes over the log: which records a node covers, and where it is kept.
//!
//! ```text
//!   level 1    [0,                   32)  [32,                      64)
//!   level 0    [0,8) [8,16) [16,24) [24,32)   [32,40) ... [56,64)   [64,72)   tail: log records
//!   summary    [0,                                                   72)
//! ```
//! A node has four children, so the tree has half the levels, and takes half the memory, of a binary tree.
//!
//! * TREE-1: where a node is missing, its children are used, and below level 0 the records.
//! * TREE-2: nodes are never removed. A summary node covers all records before some index; queries use the newest
//!   one.
//! * TREE-3: a node that fails a check counts as missing.
//!
//! Who may call what: everything, any thread; only the merger adds nodes, under its lock.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::key::KeyComparator;
use crate::sync::{AtomicU64, Published};
use crate::tombstone::index::checks::{Checks, Counter, damage, pair};
use crate::tombstone::index::common_prefix::CommonPrefix;
use crate::tombstone::index::log::{FIRST_KEY_WORDS, FIRST_RECORDS, Log, RecordWords, Segments};
use crate::tombstone::index::node::CoverageNode;

/// Records of a block.
pub(crate) const BLOCK: u32 = if cfg!(loom) { 2 } else { 8 };
/// A node has `1 << RADIX_BITS` children.
const RADIX_BITS: u32 = 2;
const RADIX: u32 = 1 << RADIX_BITS;
const SUMMARIES: u32 = 3;
/// Above so many records only a merge that is the last one builds a summary node.
pub(crate) const SUMMARY_RECORDS_MAX: u32 = 1 << 14;
/// More summary nodes than an index of so many records gets, each a ninth larger than the one before.
const SUMMARY_NODES_MAX: u64 = 80;

/// The name of a node: number `index` of its level, over records from `index * RADIX^level * BLOCK` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) level: u32,
    pub(crate) index: u32,
}

impl NodeId {
    pub(crate) fn first(self) -> u32 {
        (self.index << (RADIX_BITS * self.level)) * BLOCK
    }

    pub(crate) fn last(self) -> u32 {
        self.first() + (BLOCK << (RADIX_BITS * self.level))
    }

    pub(crate) fn cover(self) -> u64 {
        pair(self.first(), self.last())
    }

    /// Where a node above level 0 is kept: its in-order number in a binary tree in which every second level is empty.
    fn kept_at(self) -> Option<u32> {
        let level = RADIX_BITS * self.level.checked_sub(1)?;
        Some((self.index << (level + 1)) + (1 << level) - 1)
    }

    fn from_kept_at(kept_at: u32) -> NodeId {
        let level = kept_at.trailing_ones();
        NodeId { level: level / RADIX_BITS + 1, index: kept_at >> (level + 1) }
    }

    /// The children of a node above level 0, oldest first.
    pub(crate) fn children(self) -> impl DoubleEndedIterator<Item = NodeId> {
        let level = self.level.saturating_sub(1);
        (0..RADIX).map(move |child| NodeId { level, index: self.index * RADIX + child })
    }

    /// The parent, if this is its youngest child.
    pub(crate) fn completes(self) -> Option<NodeId> {
        let parent = NodeId { level: self.level + 1, index: self.index / RADIX };
        (self.index % RADIX == RADIX - 1).then_some(parent)
    }

    /// Whether one node covers exactly the first `blocks` blocks.
    pub(crate) fn one_covers(blocks: u32) -> bool {
        blocks.is_power_of_two() && blocks.trailing_zeros().is_multiple_of(RADIX_BITS)
    }

    /// The fewest nodes that cover blocks `from..to`, newest first.
    pub(crate) fn decompose(from: u32, mut to: u32) -> impl Iterator<Item = NodeId> {
        std::iter::from_fn(move || {
            let room = to.checked_sub(from).filter(|&room| room > 0)?;
            let level = to.trailing_zeros().min(room.ilog2()) / RADIX_BITS;
            let node = NodeId { level, index: (to >> (RADIX_BITS * level)) - 1 };
            to -= 1 << (RADIX_BITS * level);
            Some(node)
        })
    }
}

/// How much an index holds, or has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    records: u64,
    key_words: u64,
}

impl Load {
    /// One tombstone.
    pub(crate) fn of(start_len: u64, end_len: u64) -> Load {
        // Each key with its hash.
        Load { records: 1, key_words: start_len.div_ceil(8) + end_len.div_ceil(8) + 2 }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.records == 0 && self.key_words == 0
    }

    pub(crate) fn plus(self, more: Load) -> Load {
        Load { records: self.records + more.records, key_words: self.key_words + more.key_words }
    }

    /// What is left without `less`.
    pub(crate) fn without(self, less: Load) -> Load {
        let records = self.records.saturating_sub(less.records);
        Load { records, key_words: self.key_words.saturating_sub(less.key_words) }
    }

    /// The most bytes that the freeze adds to an index of so much: one summary node over everything.
    pub(crate) fn finish_bytes_max(self) -> u64 {
        CoverageNode::bytes_max(self.records)
    }

    /// The most bytes that an index of so much allocates before the freeze: nodes of all levels, and summary nodes
    /// again and again.
    pub(crate) fn bytes_max(self) -> u64 {
        let Load { records, key_words } = self;
        if records == 0 {
            return 0;
        }
        let block = u64::from(BLOCK);
        // A pair of keys that does not fit into the rest of a segment begins the next one, which may be twice as long.
        let keys = 3 * key_words + u64::from(FIRST_KEY_WORDS);
        let stored = size_of::<Tree>() as u64
            + Segments::<RecordWords, FIRST_RECORDS>::bytes_max(records)
            + keys * size_of::<AtomicU64>() as u64
            + Segments::<Published<CoverageNode>, 4>::bytes_max(records / block)
            + Segments::<Published<CoverageNode>, 4>::bytes_max(records / (2 * block))
            + Segments::<Published<SummaryNode>, 4>::bytes_max(SUMMARY_NODES_MAX);
        let spans = (0..).map(|level| block << (RADIX_BITS * level)).take_while(|span| *span <= records);
        let nodes: u64 = spans.map(|span| records / span * CoverageNode::bytes_max(span)).sum();
        // Each covers at least a ninth more than the one before.
        let summaries = 9 * CoverageNode::bytes_max(records.min(SUMMARY_RECORDS_MAX.into()));
        stored + nodes + summaries
    }
}

/// A node over all records before `covered`.
#[derive(Debug)]
pub(crate) struct SummaryNode {
    pub(crate) coverage_node: CoverageNode,
    pub(crate) covered: u32,
}

/// The tree of an index, and the order of its keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedTree<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) comparator: &'a KeyComparator,
}

/// Log and nodes of one index.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) log: Log,
    /// Nodes of level 0, by index.
    blocks: Segments<Published<CoverageNode>, 4>,
    /// Nodes of higher levels, by `kept_at`.
    nodes: Segments<Published<CoverageNode>, 4>,
    summaries: Segments<Published<SummaryNode>, 4>,
    summary_count: Counter,
    pub(crate) checks: Checks,
}

impl Tree {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        Tree {
            log: Log::new(checks, common_prefix),
            blocks: Segments::new(),
            nodes: Segments::new(),
            summaries: Segments::new(),
            summary_count: Counter::new(checks, SUMMARIES),
            checks,
        }
    }

    #[inline(always)]
    pub(crate) fn node(&self, id: NodeId) -> Option<&CoverageNode> {
        match id.kept_at() {
            None => self.blocks.get(id.index)?.get(),
            Some(kept_at) => self.nodes.get(kept_at)?.get(),
        }
    }

    /// The newest summary node. The count of summary nodes is a hint, because an answer does not depend on which
    /// summary node is used, if any.
    #[inline(always)]
    pub(crate) fn summary(&self) -> Option<&SummaryNode> {
        let count = self.summary_count.hint();
        self.summaries.get(count.checked_sub(1)?)?.get()
    }

    /// The node over all of the first `count` records, and what it covers. The freeze makes one.
    pub(crate) fn whole(&self, count: u32) -> Option<(&CoverageNode, u64)> {
        let blocks = count / BLOCK;
        if count.is_multiple_of(BLOCK) && NodeId::one_covers(blocks) {
            let id = NodeId { level: blocks.trailing_zeros() / RADIX_BITS, index: 0 };
            return Some((self.node(id)?, id.cover()));
        }
        let summary = self.summary().filter(|summary| summary.covered == count)?;
        Some((&summary.coverage_node, pair(0, count)))
    }

    pub(crate) fn publish_node(&self, id: NodeId, coverage_node: CoverageNode) {
        let bytes = coverage_node.allocated_bytes();
        let (nodes, at) = match id.kept_at() {
            None => (&self.blocks, id.index),
            Some(kept_at) => (&self.nodes, kept_at),
        };
        let slot = nodes.ensure_run(at, 1, |_| Published::new(), |bytes| self.log.grown(bytes));
        if let Some([slot]) = slot
            && slot.publish(coverage_node).is_ok()
        {
            self.log.grown(bytes);
        }
    }

    pub(crate) fn publish_summary(&self, summary: SummaryNode) {
        let bytes = summary.coverage_node.allocated_bytes();
        // The place is claimed before the summary node is published. A reader in between finds no summary node there
        // and uses nodes.
        let Ok((place, _)) =
            self.summary_count.advance(self.checks, |count| Ok((count, count.saturating_add(1))))
        else {
            return;
        };
        let slot = self.summaries.ensure_run(place, 1, |_| Published::new(), |bytes| self.log.grown(bytes));
        if let Some([slot]) = slot
            && slot.publish(summary).is_ok()
        {
            self.log.grown(bytes);
        }
    }

    /// Verifies the counters, which only writers depend on. `wait` waits for writers at work.
    pub(crate) fn verify_counters(&self, wait: &mut dyn FnMut()) -> Result<(), Corruption> {
        let summarized = self.summaries.items().filter(|(_, slot)| slot.get().is_some()).last();
        let count = self.summary_count.load(self.checks)?;
        // A summary node is published after it is counted.
        if let Some((last, _)) = summarized.filter(|(last, _)| *last >= count) {
            return Err(damage(0, u64::from(last) + 1, u64::from(count)));
        }
        self.log.verify_tally(wait)
    }

    /// Iterates over all nodes and summary nodes, with the records that each covers.
    pub(crate) fn coverage_nodes(&self) -> impl Iterator<Item = (&CoverageNode, u64)> {
        let blocks = self.blocks.items().map(|(index, slot)| (slot, NodeId { level: 0, index }));
        let nodes = self.nodes.items().map(|(kept_at, slot)| (slot, NodeId::from_kept_at(kept_at)));
        let nodes = blocks.chain(nodes);
        let nodes = nodes.filter_map(|(slot, id)| Some((slot.get()?, id.cover())));
        let summaries = self.summaries.segments().flatten().filter_map(Published::get);
        nodes.chain(summaries.map(|summary| (&summary.coverage_node, pair(0, summary.covered))))
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        self.log.cells(visit);
        for nodes in [&mut self.blocks, &mut self.nodes] {
            nodes.items_cells(&mut |lose| visit("node", lose));
            nodes.cells(&mut |lose| visit("segment of nodes", lose));
        }
        self.summaries.items_cells(&mut |lose| visit("summary node", lose));
        self.summaries.cells(&mut |lose| visit("segment of summary nodes", lose));
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [crate::sync::AtomicU64])) {
        visit("summary node counter", self.summary_count.words());
        self.log.regions(visit);
        self.coverage_nodes().for_each(|(coverage_node, _)| coverage_node.regions(visit));
    }
}
