//! The tree of coverage nodes over the log: which records a node covers, and where it is kept.
//!
//! ```text
//!   level 1    [0,                   32)  [32,                      64)
//!   level 0    [0,8) [8,16) [16,24) [24,32)   [32,40) ... [56,64)   [64,72)   tail: log records
//!   summary    [0,                                                   72)
//! ```
//! A node has four children, so the tree has half the levels, and takes half the memory, of a binary
//! tree.
//!
//! * TREE-1: where a node is missing, its children are used, and below level 0 the records.
//! * TREE-2: nodes are never removed. A summary node covers all records before some index; queries
//!   use the newest one.
//! * TREE-3: a node that fails a check counts as missing.

#![forbid(unsafe_code)]

use crate::integrity::index_checks::Checks;
use crate::sync::Published;
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::Counter;
use crate::tombstone::log::{FIRST_RECORDS, Log, Record, RecordWords};
use crate::tombstone::node::{CoverageNode, Head};
use crate::tombstone::segments::{Segments, damage, pair};
use crate::tombstone::span::Checked;

/// Records of a block.
pub(crate) const BLOCK: u32 = if cfg!(loom) { 2 } else { 8 };
/// A node has `1 << RADIX_BITS` children.
const RADIX_BITS: u32 = 2;
const RADIX: u32 = 1 << RADIX_BITS;
const SUMMARIES: u32 = 3;
/// Above so many records only a merge that is the last one builds a summary node.
pub(crate) const SUMMARY_RECORDS_MAX: u32 = 1 << 14;
/// More summary nodes than an index of so many records gets, each a ninth larger than the one
/// before.
const SUMMARY_NODES_MAX: u64 = 80;

/// The name of a node: number `index` of its level, over records from `index * RADIX^level * BLOCK`
/// on.
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

    /// Where a node is kept: its in-order number in a binary tree in which every second level is
    /// empty.
    fn kept_at(self) -> u32 {
        let level = RADIX_BITS * self.level;
        (self.index << (level + 1)) + (1 << level) - 1
    }

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

    /// The parent, if this is its youngest child.
    pub(crate) fn completes(self) -> Option<NodeId> {
        let parent = NodeId {
            level: self.level + 1,
            index: self.index / RADIX,
        };
        (self.index % RADIX == RADIX - 1).then_some(parent)
    }

    /// Whether one node covers exactly the first `blocks` blocks.
    pub(crate) fn one_covers(blocks: u32) -> bool {
        blocks.is_power_of_two() && blocks.trailing_zeros().is_multiple_of(RADIX_BITS)
    }

    /// How many blocks the largest node over at most `blocks` covers; 1 if there are none.
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

/// How many records an index holds, or has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load(u64);

impl Load {
    /// So many tombstones.
    pub(crate) fn of(tombstones: u64) -> Load {
        Load(tombstones)
    }

    pub(crate) fn plus(self, more: Load) -> Load {
        Load(self.0 + more.0)
    }

    /// This and `more`, and the most bytes that an index of both allocates.
    pub(crate) fn with(self, more: Load) -> (Load, u64) {
        let load = self.plus(more);
        (load, load.bytes_max())
    }

    /// What is left without `less`.
    pub(crate) fn without(self, less: Load) -> Load {
        Load(self.0.saturating_sub(less.0))
    }

    /// What `room` lacks for this much; `None` if it is large enough.
    pub(crate) fn missing_in(self, room: Load) -> Option<Load> {
        Some(self.without(room)).filter(|missing| *missing != Load::default())
    }

    /// The most bytes that the freeze adds to an index of so much: one summary node over
    /// everything.
    pub(crate) fn finish_bytes_max(self) -> u64 {
        CoverageNode::bytes_max(self.0)
    }

    /// The most bytes that an index of so much allocates: nodes of all levels, summary nodes again
    /// and again, and what the freeze adds.
    pub(crate) fn bytes_max(self) -> u64 {
        let Load(records) = self;
        if records == 0 {
            return 0;
        }
        let block = u64::from(BLOCK);
        let stored = size_of::<Tree>() as u64
            + Segments::<RecordWords, FIRST_RECORDS>::bytes_max(records)
            + Segments::<Published<CoverageNode>, 4>::bytes_max(2 * records / block)
            + Segments::<Published<SummaryNode>, 4>::bytes_max(SUMMARY_NODES_MAX);
        let spans = (0..)
            .map(|level| block << (RADIX_BITS * level))
            .take_while(|span| *span <= records);
        let nodes: u64 = spans
            .map(|span| records / span * CoverageNode::bytes_max(span))
            .sum();
        // Each covers at least a ninth more than the one before.
        let summaries = 9 * CoverageNode::bytes_max(records.min(SUMMARY_RECORDS_MAX.into()));
        stored + nodes + summaries + self.finish_bytes_max()
    }
}

/// A node over all records before `covered`.
pub(crate) struct SummaryNode {
    pub(crate) coverage_node: CoverageNode,
    pub(crate) covered: u32,
}

/// Log and nodes of one index.
pub(crate) struct Tree {
    pub(crate) log: Log,
    /// By `kept_at`.
    nodes: Segments<Published<CoverageNode>, 4>,
    summaries: Segments<Published<SummaryNode>, 4>,
    summary_count: Counter,
    pub(crate) checks: Checks,
}

impl Tree {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        Tree {
            log: Log::new(checks, common_prefix),
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

    /// The newest summary node. The count of summary nodes is a hint, because an answer does not
    /// depend on which summary node is used, if any.
    #[inline(always)]
    pub(crate) fn summary(&self) -> Option<&SummaryNode> {
        let count = self.summary_count.hint();
        self.summaries.get(count.checked_sub(1)?)?.get()
    }

    /// The fewest nodes that cover the first `blocks` blocks, oldest first. The newest summary node
    /// comes first if it ends at a block.
    pub(crate) fn children(&self, blocks: u32) -> Vec<Child> {
        let summarized = self.summary().map_or(0, |summary| summary.covered);
        // Beyond these records the other nodes are few enough, and the summary node beside them
        // would make too many children.
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

    /// The node over all of the first `count` records, and what it covers. The freeze makes one.
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

    pub(crate) fn publish_node(&self, id: NodeId, node: CoverageNode) {
        let bytes = node.allocated_bytes();
        self.publish(&self.nodes, id.kept_at(), node, bytes);
    }

    /// Publishes a summary node. Its place is claimed before: a reader in between finds no summary
    /// node there, and uses nodes.
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

    /// Verifies the counter of summary nodes, which only writers depend on.
    pub(crate) fn verify_counter(&self) -> Checked<()> {
        let summarized = self
            .summaries
            .items()
            .filter(|(_, slot)| slot.get().is_some())
            .last();
        let count = self.summary_count.load()?;
        // A summary node is published after it is counted.
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

    /// Passes each published cell to `visit`, as a function that makes the cell read as
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

/// A child of a merge, and where it is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Child {
    Node(NodeId),
    Summary,
    Record(Record),
}

impl Child {
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
    pub(crate) fn head(self, checks: Checks, cover: u64) -> Checked<Head> {
        match self {
            Pieces::Node(node) => node.head(checks, cover),
            Pieces::Record(record) => Ok(Head::of_record(checks, record)),
        }
    }

    #[inline(always)]
    pub(crate) fn stored(self, position: u32) -> Option<(u64, u64)> {
        match self {
            Pieces::Node(node) => node.stored(position),
            Pieces::Record(record) => record.pieces().get(position as usize).copied(),
        }
    }
}
