//! Builds the tree: decides which node comes next, in steps of bounded work.
//!
//! ```text
//!   a complete block of records     -> its node of level 0
//!   the fourth child of a parent    -> the parent
//!   a ninth of the records is new   -> a summary node over all complete blocks
//!   the freeze                      -> one node over all records
//! ```
//! A lock of the index guards its `TreeBuilder`. Readers never use it.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::halves::low;
use crate::tombstone::counter::Extent;
use crate::tombstone::node_merge::{NodeMerge, Progress};
use crate::tombstone::span::{Checked, Source};
use crate::tombstone::tree::{BLOCK, Child, NodeId, SUMMARY_RECORDS_MAX, SummaryNode, Tree};

/// Most pieces that one step reads.
pub(crate) const STEP_PIECES: u32 = 256;

/// Builds the nodes of one index.
#[derive(Default)]
pub(crate) struct TreeBuilder {
    /// Blocks before this one have a node or are skipped.
    pub(crate) next_block: u32,
    /// Number of records that the newest summary node covers. An attempt that failed counts too, so
    /// that it is not repeated.
    summarized: u32,
    /// The merge that is not finished.
    merge: Option<Box<NodeMerge>>,
}

impl TreeBuilder {
    /// Takes one step over a log of this extent: merges at most `budget` pieces, or builds a node
    /// over one block.
    pub(crate) fn step(
        &mut self,
        tree: &Tree,
        source: Source<'_>,
        extent: Extent,
        budget: u32,
    ) -> Progress {
        match self.grow(tree, source, extent, budget) {
            Progress::Worked => Progress::Worked,
            Progress::Idle => self.summarize(tree),
        }
    }

    /// Takes one step of the running merge. If there is none, builds the node of the next block, if
    /// the block's records are complete.
    fn grow(&mut self, tree: &Tree, source: Source<'_>, extent: Extent, budget: u32) -> Progress {
        if let Some(merge) = self.merge.take() {
            self.advance(tree, source, merge, budget);
            return Progress::Worked;
        }
        let id = NodeId {
            level: 0,
            index: self.next_block,
        };
        if id.last() > extent.count {
            return Progress::Idle;
        }
        let merge = match records(tree, id.first()..id.last(), extent.complete) {
            Ok(Some(records)) => NodeMerge::start(tree, records, Some(id)),
            // A record is still being written. Its writer will take a step after it has completed
            // the record.
            Ok(None) => return Progress::Idle,
            Err(corruption) => Err(corruption),
        };
        // A block with a damaged record, or in which the comparator panics, is not tried again.
        self.next_block += 1;
        if let Ok(merge) = merge {
            self.advance(tree, source, merge, u32::MAX);
        }
        Progress::Worked
    }

    /// Merges everything over a log of this extent, without summary nodes in between, and at the
    /// end builds one node over all records.
    pub(crate) fn finish(&mut self, tree: &Tree, source: Source<'_>, extent: Extent) {
        while self.grow(tree, source, extent, u32::MAX) == Progress::Worked {}
        let Extent { count, complete } = extent;
        let blocks = count / BLOCK;
        if self.summarized >= count || blocks * BLOCK == count && NodeId::one_covers(blocks) {
            return;
        }
        let mut children = tree.children(blocks);
        let Ok(Some(tail)) = records(tree, blocks * BLOCK..count, complete) else {
            return;
        };
        children.extend(tail);
        self.start_summary(tree, children, count);
        while self.grow(tree, source, extent, u32::MAX) == Progress::Worked {}
    }

    /// Begins a summary node over all complete blocks if one is due.
    ///
    /// One is due when a ninth of the records is new, up to `SUMMARY_RECORDS_MAX` records, so that
    /// summary nodes stay small beside the nodes of the tree. It ends where a large node ends, so
    /// that few nodes cover the records after it.
    fn summarize(&mut self, tree: &Tree) -> Progress {
        let (blocks, summarized) = (self.next_block, self.summarized / BLOCK);
        let is_due = blocks >= 3
            && blocks.saturating_sub(summarized) > summarized / 8
            && blocks.is_multiple_of(NodeId::blocks_below(summarized / 8))
            && blocks * BLOCK <= SUMMARY_RECORDS_MAX
            && self.summarized.is_multiple_of(BLOCK)
            && !NodeId::one_covers(blocks);
        if !is_due {
            return Progress::Idle;
        }
        self.start_summary(tree, tree.children(blocks), blocks * BLOCK);
        Progress::Worked
    }

    /// Begins a summary node, unless a child is missing or its head is damaged.
    fn start_summary(&mut self, tree: &Tree, children: Vec<Child>, covered: u32) {
        self.summarized = covered;
        self.merge = NodeMerge::start(tree, children, None).ok();
    }

    /// Takes one step of a merge. If that completes a node, publishes it, and begins its parent if
    /// the parent has all its children.
    fn advance(&mut self, tree: &Tree, source: Source<'_>, mut merge: Box<NodeMerge>, budget: u32) {
        match merge.advance(tree, source, budget) {
            Ok(Progress::Worked) => return self.merge = Some(merge),
            Ok(Progress::Idle) => {}
            // A child or a record is damaged: this node is never built (MERGE-1).
            Err(_) => return,
        }
        let (target, records) = (merge.target, merge.out.cover.records);
        let coverage_node = merge.out.finish();
        let Some(id) = target else {
            return tree.publish_summary(SummaryNode {
                coverage_node,
                covered: low(records),
            });
        };
        tree.publish_node(id, coverage_node);
        if let Some(parent) = id.completes()
            && parent.children().all(|child| tree.node(child).is_some())
        {
            self.merge = NodeMerge::start(
                tree,
                parent.children().map(Child::Node).collect(),
                Some(parent),
            )
            .ok();
        }
    }
}

/// The records of a range, verified. `None` if one of them is still being written, which is
/// possible only from record `complete` on.
pub(crate) fn records(
    tree: &Tree,
    range: Range<u32>,
    complete: u32,
) -> Checked<Option<Vec<Child>>> {
    let mut records = Vec::with_capacity(range.len());
    for index in range {
        let Some(record) = tree.log.record(index, complete)? else {
            return Ok(None);
        };
        records.push(Child::Record(record));
    }
    Ok(Some(records))
}
