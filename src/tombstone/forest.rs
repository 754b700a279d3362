//! The nodes that stand over the log: who covers which records, and where a node is kept.
//!
//! ```text
//!   level 2                 [0, 128)
//!   level 1        [0, 64)          [64, 128)          [128, 192)
//!   level 0    [0,32)  [32,64)   [64,96) [96,128)   [128,160) [160,192)   tail: log records
//!   crown      [0,                                      160)
//!   kept at     0   1    2   3    4   5    6   ...      in-order numbers of the binary tree
//! ```
//! * F1: a missing node means: use its children; below level 0, the records.
//! * F2: nodes are only added. A crown covers all records before some index; the newest one is used.
//! * F3: a node that fails its checks is missing.
//!
//! Who may call what: everything, any thread; only the merger adds nodes, under its lock.

#![forbid(unsafe_code)]

use super::checks::Checks;
use super::log::{Counter, Log, pair};
use super::segments::Segments;
use super::skyline::Skyline;
use crate::sync::Published;

/// Records of a block.
pub(crate) const BLOCK: u32 = if cfg!(loom) { 2 } else { 32 };
const CROWNS: u32 = 3;

/// A node of the binary tree: covers records `index * 2^level * BLOCK` and following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) level: u32,
    pub(crate) index: u32,
}

impl NodeId {
    pub(crate) fn first(self) -> u32 {
        (self.index << self.level) * BLOCK
    }

    pub(crate) fn last(self) -> u32 {
        self.first() + (BLOCK << self.level)
    }

    pub(crate) fn cover(self) -> u64 {
        pair(self.first(), self.last())
    }

    fn kept_at(self) -> u32 {
        (self.index << (self.level + 1)) + (1 << self.level) - 1
    }

    pub(crate) fn older_child(self) -> NodeId {
        NodeId { level: self.level - 1, index: self.index * 2 }
    }

    pub(crate) fn newer_child(self) -> NodeId {
        NodeId { level: self.level - 1, index: self.index * 2 + 1 }
    }

    /// The fewest nodes that cover blocks `from..to`, newest first.
    pub(crate) fn decompose(from: u32, mut to: u32) -> impl Iterator<Item = NodeId> {
        std::iter::from_fn(move || {
            let room = to.checked_sub(from).filter(|&room| room > 0)?;
            let level = to.trailing_zeros().min(room.ilog2());
            let node = NodeId { level, index: (to >> level) - 1 };
            to -= 1 << level;
            Some(node)
        })
    }
}

/// A node over all records before `covered`.
#[derive(Debug)]
pub(crate) struct Crown {
    pub(crate) skyline: Skyline,
    pub(crate) covered: u32,
}

/// Log and nodes of one index.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) log: Log,
    nodes: Segments<Published<Skyline>, 4>,
    crowns: Segments<Published<Crown>, 4>,
    crown_count: Counter,
    pub(crate) checks: Checks,
}

impl Forest {
    pub(crate) fn new(checks: Checks) -> Self {
        Forest {
            log: Log::new(checks),
            nodes: Segments::new(),
            crowns: Segments::new(),
            crown_count: Counter::new(checks, CROWNS),
            checks,
        }
    }

    #[inline(always)]
    pub(crate) fn node(&self, id: NodeId) -> Option<&Skyline> {
        self.nodes.get(id.kept_at())?.get()
    }

    /// The newest crown, if the counter and the crown say so.
    #[inline(always)]
    pub(crate) fn crown(&self) -> Option<&Crown> {
        let count = self.crown_count.load(self.checks).ok()?;
        self.crowns.get(count.checked_sub(1)?)?.get()
    }

    pub(crate) fn publish_node(&self, id: NodeId, skyline: Skyline) {
        let bytes = skyline.allocated_bytes();
        let kept_at = id.kept_at();
        let slot = self.nodes.ensure_run(kept_at, 1, |_| Published::new(), |bytes| self.log.grown(bytes));
        if let Some([slot]) = slot
            && slot.publish(skyline).is_ok()
        {
            self.log.grown(bytes);
        }
    }

    pub(crate) fn publish_crown(&self, crown: Crown) {
        let bytes = crown.skyline.allocated_bytes();
        // A crown becomes visible after its place is claimed; a reader in between finds no crown and uses nodes.
        let Ok(place) = self.crown_count.advance(self.checks, |count| Ok((count, count.saturating_add(1))))
        else {
            return;
        };
        let slot = self.crowns.ensure_run(place, 1, |_| Published::new(), |bytes| self.log.grown(bytes));
        if let Some([slot]) = slot
            && slot.publish(crown).is_ok()
        {
            self.log.grown(bytes);
        }
    }

    /// Every node and crown with what it covers.
    pub(crate) fn skylines(&self) -> impl Iterator<Item = (&Skyline, u64)> {
        let nodes = self.nodes.segments().flatten().zip(0u32..).filter_map(|(slot, kept_at)| {
            let level = kept_at.trailing_ones();
            let id = NodeId { level, index: kept_at >> (level + 1) };
            Some((slot.get()?, id.cover()))
        });
        let crowns = self.crowns.segments().flatten().filter_map(Published::get);
        nodes.chain(crowns.map(|crown| (&crown.skyline, pair(0, crown.covered))))
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [crate::sync::AtomicU64])) {
        visit("crown counter", self.crown_count.words());
        self.log.regions(visit);
        self.skylines().for_each(|(skyline, _)| skyline.regions(visit));
    }
}
