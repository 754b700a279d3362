//! The tree of coverage nodes over the log: which records each node covers, and where it is stored.
//!
//! ```text
//!   level 1    [0,                   32)  [32,                      64)
//!   level 0    [0,8) [8,16) [16,24) [24,32)   [32,40) ... [56,64)   [64,72)   tail: log records
//!   summary    [0,                                                   72)
//! ```
//! A node of level 0 covers a block of records. A node above it has four children, so the tree has
//! half the levels, and takes half the memory, of a binary tree. A summary node covers all records
//! before some index; queries use the newest summary node. Nodes are never removed.
//!
//! * TREE-1: a node that is missing or fails a check is replaced by its children, a node of level 0
//!   by its records.
//!
//! Any thread may read. Only one thread at a time publishes nodes: the one with the index's lock.

#![forbid(unsafe_code)]

use crate::halves::pair;
use crate::integrity::index_checks::Checks;
use crate::sync::Published;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::Counter;
use crate::tombstone::coverage_node::{CoverageNode, Head};
use crate::tombstone::record_log::{Record, RecordLog};
use crate::tombstone::segments::Segments;
use crate::tombstone::span::{Checked, damage};

/// Number of records in a block.
pub(crate) const BLOCK: u32 = if cfg!(loom) { 2 } else { 8 };
/// A node has `1 << RADIX_BITS` children.
pub(crate) const RADIX_BITS: u32 = 2;
const RADIX: u32 = 1 << RADIX_BITS;
/// The number of the counter that counts summary nodes.
const SUMMARIES: u32 = 3;
/// Above this number of records only `finish` builds a summary node.
pub(crate) const SUMMARY_RECORDS_MAX: u32 = 1 << 14;

/// The name of a node: number `index` of its level, over records from `index * RADIX^level * BLOCK`
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) level: u32,
    pub(crate) index: u32,
}

impl NodeId {
    /// The first record that the node covers.
    pub(crate) fn first(self) -> u32 {
        (self.index << (RADIX_BITS * self.level)) * BLOCK
    }

    /// The end of the records that the node covers: the first record after them.
    pub(crate) fn last(self) -> u32 {
        self.first() + (BLOCK << (RADIX_BITS * self.level))
    }

    /// The records that the node covers, as checks and heads have them: first and end.
    pub(crate) fn cover(self) -> u64 {
        pair(self.first(), self.last())
    }

    /// The index where the node is stored: its in-order number in a binary tree in which every
    /// second level is empty.
    fn kept_at(self) -> u32 {
        let level = RADIX_BITS * self.level;
        (self.index << (level + 1)) + (1 << level) - 1
    }

    /// The inverse of [`kept_at`](Self::kept_at).
    fn from_kept_at(kept_at: u32) -> NodeId {
        let level = kept_at.trailing_ones();
        NodeId {
            level: level / RADIX_BITS,
            index: kept_at >> (level + 1),
        }
    }

    /// The children of a node above level 0, oldest first.
    pub(crate) fn children(self) -> impl DoubleEndedIterator<Item = NodeId> {
        let level = self.level.saturating_sub(1);
        (0..RADIX).map(move |child| NodeId {
            level,
            index: self.index * RADIX + child,
        })
    }

    /// The parent, if this node is its newest child.
    pub(crate) fn completes(self) -> Option<NodeId> {
        let parent = NodeId {
            level: self.level + 1,
            index: self.index / RADIX,
        };
        (self.index % RADIX == RADIX - 1).then_some(parent)
    }

    /// Whether there is a node that covers exactly the first `blocks` blocks.
    pub(crate) fn one_covers(blocks: u32) -> bool {
        blocks.is_power_of_two() && blocks.trailing_zeros().is_multiple_of(RADIX_BITS)
    }

    /// The number of blocks that the largest node over at most `blocks` blocks covers; 1 if
    /// `blocks` is 0.
    pub(crate) fn blocks_below(blocks: u32) -> u32 {
        1 << (blocks.max(1).ilog2() / RADIX_BITS * RADIX_BITS)
    }

    /// The fewest nodes that cover blocks `from..to`, newest first.
    pub(crate) fn decompose(from: u32, mut to: u32) -> impl Iterator<Item = NodeId> {
        std::iter::from_fn(move || {
            let room = to.checked_sub(from).filter(|&room| room > 0)?;
            let level = to.trailing_zeros().min(room.ilog2()) / RADIX_BITS;
            let node = NodeId {
                level,
                index: (to >> (RADIX_BITS * level)) - 1,
            };
            to -= 1 << (RADIX_BITS * level);
            Some(node)
        })
    }
}

/// A coverage node over all records before `covered`.
pub(crate) struct SummaryNode {
    pub(crate) coverage_node: CoverageNode,
    pub(crate) covered: u32,
}

/// The log and the nodes of one index.
pub(crate) struct Tree {
    pub(crate) log: RecordLog,
    /// The nodes, by `kept_at`.
    nodes: Segments<Published<CoverageNode>, 4>,
    summaries: Segments<Published<SummaryNode>, 4>,
    summary_count: Counter,
    pub(crate) checks: Checks,
}

impl Tree {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        Tree {
            log: RecordLog::new(checks, common_prefix),
            nodes: Segments::new(),
            summaries: Segments::new(),
            summary_count: Counter::new(checks, SUMMARIES),
            checks,
        }
    }

    #[inline(always)]
    pub(crate) fn node(&self, id: NodeId) -> Option<&CoverageNode> {
        self.nodes.get(id.kept_at())?.get()
    }

    /// The newest summary node. The count of summary nodes is only a hint: an answer does not
    /// depend on which summary node is used, or whether one is.
    #[inline(always)]
    pub(crate) fn summary(&self) -> Option<&SummaryNode> {
        let count = self.summary_count.hint();
        self.summaries.get(count.checked_sub(1)?)?.get()
    }

    /// The fewest nodes that cover the first `blocks` blocks, oldest first. They begin with the
    /// newest summary node if it ends where a block ends.
    pub(crate) fn children(&self, blocks: u32) -> Vec<Child> {
        let summarized = self.summary().map_or(0, |summary| summary.covered);
        // Above this number of records the nodes of the tree are few enough, and a summary node
        // would make the children of a merge too many.
        let is_usable = summarized > 0
            && summarized.is_multiple_of(BLOCK)
            && summarized / BLOCK <= blocks
            && blocks * BLOCK <= SUMMARY_RECORDS_MAX;
        let from = if is_usable { summarized / BLOCK } else { 0 };
        let mut children: Vec<Child> = NodeId::decompose(from, blocks).map(Child::Node).collect();
        children.extend(is_usable.then_some(Child::Summary));
        children.reverse();
        children
    }

    /// The node over exactly the first `count` records, which the freeze builds, and what it
    /// covers.
    pub(crate) fn whole(&self, count: u32) -> Option<(&CoverageNode, u64)> {
        let blocks = count / BLOCK;
        if count.is_multiple_of(BLOCK) && NodeId::one_covers(blocks) {
            let id = NodeId {
                level: blocks.trailing_zeros() / RADIX_BITS,
                index: 0,
            };
            return Some((self.node(id)?, id.cover()));
        }
        let summary = self.summary().filter(|summary| summary.covered == count)?;
        Some((&summary.coverage_node, pair(0, count)))
    }

    /// Publishes a node of the tree.
    pub(crate) fn publish_node(&self, id: NodeId, node: CoverageNode) {
        let bytes = node.allocated_bytes();
        self.publish(&self.nodes, id.kept_at(), node, bytes);
    }

    /// Publishes a summary node. Its place is counted first; a reader that comes in between finds
    /// no summary node there, and uses the nodes of the tree.
    pub(crate) fn publish_summary(&self, summary: SummaryNode) {
        let claimed = self
            .summary_count
            .advance(|count| Ok((count, count.saturating_add(1))));
        if let Ok((place, _)) = claimed {
            let bytes = summary.coverage_node.allocated_bytes();
            self.publish(&self.summaries, place, summary, bytes);
        }
    }

    fn publish<T>(&self, nodes: &Segments<Published<T>, 4>, at: u32, node: T, bytes: u64) {
        let slot = nodes.ensure(at, |_| Published::new(), |bytes| self.log.grown(bytes));
        if let Some(slot) = slot
            && slot.publish(node).is_ok()
        {
            self.log.grown(bytes);
        }
    }

    /// Verifies the count of summary nodes, on which only writers depend.
    pub(crate) fn verify_counter(&self) -> Checked<()> {
        let summarized = self
            .summaries
            .items()
            .filter(|(_, slot)| slot.get().is_some())
            .last();
        let count = self.summary_count.load()?;
        // A summary node is published after it is counted, so each one's index is below the count.
        match summarized.filter(|(last, _)| *last >= count) {
            Some((last, _)) => Err(damage(0, u64::from(last) + 1, u64::from(count))),
            None => Ok(()),
        }
    }

    /// Iterates over all nodes and summary nodes, with the records that each covers.
    pub(crate) fn coverage_nodes(&self) -> impl Iterator<Item = (&CoverageNode, u64)> {
        let nodes = self.nodes.items();
        let nodes =
            nodes.filter_map(|(at, slot)| Some((slot.get()?, NodeId::from_kept_at(at).cover())));
        let summaries = self
            .summaries
            .segments()
            .flatten()
            .filter_map(Published::get);
        nodes.chain(summaries.map(|summary| (&summary.coverage_node, pair(0, summary.covered))))
    }

    /// Calls `visit` for each published node or segment, with a function that makes it read as
    /// unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        self.log.cells(visit);
        self.nodes.items_cells(&mut |lose| visit("node", lose));
        self.nodes
            .cells(&mut |lose| visit("segment of nodes", lose));
        self.summaries
            .items_cells(&mut |lose| visit("summary node", lose));
        self.summaries
            .cells(&mut |lose| visit("segment of summary nodes", lose));
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(
        &'a self,
        visit: &mut dyn FnMut(&'static str, &'a [crate::sync::AtomicU64]),
    ) {
        visit("summary node counter", self.summary_count.words());
        self.log.regions(visit);
        self.coverage_nodes()
            .for_each(|(coverage_node, _)| coverage_node.regions(visit));
    }
}

/// A child of a merge: a node by its place in the tree, or a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Child {
    Node(NodeId),
    Summary,
    Record(Record),
}

impl Child {
    /// The pieces of the child, and the records that it covers.
    pub(crate) fn read<'a>(&'a self, tree: &'a Tree) -> Checked<(Pieces<'a>, u64)> {
        let found = match self {
            Child::Node(id) => tree.node(*id).map(|node| (Pieces::Node(node), id.cover())),
            Child::Summary => tree.summary().map(|summary| {
                (
                    Pieces::Node(&summary.coverage_node),
                    pair(0, summary.covered),
                )
            }),
            Child::Record(record) => {
                Some((Pieces::Record(record), pair(record.index, record.index + 1)))
            }
        };
        found.ok_or_else(|| damage(0, 0, 0))
    }
}

/// The pieces of a child.
#[derive(Clone, Copy)]
pub(crate) enum Pieces<'a> {
    Node(&'a CoverageNode),
    Record(&'a Record),
}

impl Pieces<'_> {
    /// The head of the child, verified.
    pub(crate) fn head(self, checks: Checks, cover: u64) -> Checked<Head> {
        match self {
            Pieces::Node(node) => node.head(checks, cover),
            Pieces::Record(record) => Ok(Head::of_record(checks, record)),
        }
    }

    /// The prefix of a piece, and the word with name and painter, not verified.
    #[inline(always)]
    pub(crate) fn stored(self, position: u32) -> Option<(u64, u64)> {
        match self {
            Pieces::Node(node) => node.stored(position),
            Pieces::Record(record) => record.pieces().get(position as usize).copied(),
        }
    }
}
