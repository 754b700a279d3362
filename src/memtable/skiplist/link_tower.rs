//! Links a published node at its higher levels.
//!
//! ```text
//!   level 2   a ---------------------------> g        a node is linked after the last one before it, level by level,
//!   level 1   a ------> c -----------------> g        from below: next of prev, new -> next, prev -> new (Release)
//!   level 0   a -> b -> c -> [new] -> e ---> g
//! ```
//! * LINK-TOWER-1: a node is linked only between two that are verified, or that its bracket has just verified, and in
//!   order.
//! * LINK-TOWER-2: if a level is damaged here, the node is not linked at it nor above it, which costs only speed.
//!
//! Any thread; lock-free. The comparator may panic here: the node is published and counted already.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::skiplist::search::{Search, Splice, Trail};

/// A published node whose higher levels are not linked yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tower {
    pub(crate) node: u32,
    pub(crate) height: u32,
    pub(crate) revision: u32,
    /// The node before it at level 0, which its bracket certified.
    pub(crate) pred: u32,
}

/// How an attempt to link a node at a level ended.
#[derive(Debug, Clone, Copy)]
enum LevelLink {
    Linked,
    /// Not linked: try again after this node.
    Not {
        after: u32,
    },
}

impl Search<'_> {
    /// Links a node at its levels above 0, each after the node that the splice names there.
    #[inline(always)]
    pub(super) fn link_tower(&self, splice: &mut Splice, fields: &Fields<'_>, tower: Tower) {
        let target = &Target::new(self.comparator, fields.key, fields.sequence).with_revision(tower.revision);
        for level in 1..tower.height {
            let Some(prev) = splice.prev.get(level as usize).copied() else { return };
            let raised = match self.link_after(prev, tower, level, target) {
                Some(LevelLink::Not { after }) => self.link_from(after, tower, level, target),
                linked => linked.map(drop),
            };
            if raised.is_none() {
                return;
            }
            splice.record(level, tower.node);
        }
    }

    /// Searches on from `prev` and links, if the splice was outdated or another writer was faster.
    #[cold]
    #[inline(never)]
    fn link_from(&self, mut prev: u32, tower: Tower, level: u32, target: &Target<'_>) -> Option<()> {
        loop {
            match self.link_after(prev, tower, level, target)? {
                LevelLink::Linked => return Some(()),
                LevelLink::Not { after } => prev = after,
            }
        }
    }

    /// Links the node at one level after this one, if the next one there is after it. `None`: damage (LINK-TOWER-2).
    #[inline(always)]
    fn link_after(&self, prev: u32, tower: Tower, level: u32, target: &Target<'_>) -> Option<LevelLink> {
        let (view, node) = (&self.view, tower.node);
        let next = view.try_link(prev, level)?;
        if next != self.sentinel {
            let after = view.try_open(next)?.try_verify(view)?;
            if after.node().order(self.comparator, target).is_lt() {
                return Some(LevelLink::Not { after: next });
            }
        }
        if prev != self.sentinel && prev != tower.pred {
            view.try_open(prev)?.try_verify(view)?;
        }
        view.set_link(node, level, next).ok()?;
        if view.publish_link(prev, level, next, node).ok()? {
            return Some(LevelLink::Linked);
        }
        Some(LevelLink::Not { after: prev })
    }
}
