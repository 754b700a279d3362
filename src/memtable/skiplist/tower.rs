//! Links a published node at its higher levels.
//!
//! ```text
//!   level 2   a ---------------------------> g        a node is linked after the last one before it, level by level,
//!   level 1   a ------> c -----------------> g        from below: next of prev, new -> next, prev -> new (Release)
//!   level 0   a -> b -> c -> [new] -> e ---> g
//! ```
//! * LINK-TOWER-1: a node is linked only between two that are verified, or that its bracket has just
//!   verified, and in order.
//! * LINK-TOWER-2: if a level is damaged here, the node is not linked at it nor above it, which
//!   costs only speed.
//!
//! Any thread; lock-free. The comparator may panic here: the node is published and counted already.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::skiplist::search::{Search, Splice};

/// A published node whose higher levels are not linked yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tower {
    pub(crate) node: u32,
    pub(crate) height: u32,
    pub(crate) revision: u32,
    /// The node before it at level 0, which its bracket certified.
    pub(crate) pred: u32,
}

impl Search<'_> {
    /// Links a node at its levels above 0, each after the node that the splice names there.
    #[inline(never)]
    pub(super) fn link_tower(&self, splice: &mut Splice, fields: &Fields<'_>, tower: Tower) {
        let target = &self.target(fields).with_revision(tower.revision);
        for level in 1..tower.height {
            let Some(prev) = splice.prev.get(level as usize).copied() else {
                return;
            };
            if self.link_at(prev, tower, level, target).is_none() {
                return;
            }
            splice.record(level, tower.node);
        }
    }

    /// Links the node at one level. It searches on from `prev` if the splice was outdated or
    /// another writer was faster. `None`: damage (LINK-TOWER-2).
    fn link_at(&self, mut prev: u32, tower: Tower, level: u32, target: &Target<'_>) -> Option<()> {
        let (view, node) = (&self.view, tower.node);
        loop {
            let next = view.try_link(prev, level)?;
            if next != self.sentinel {
                let after = self.verified(next).ok()??;
                if after.node().order(self.comparator, target).is_lt() {
                    prev = next;
                    continue;
                }
            }
            if prev != tower.pred {
                self.verified(prev).ok()?;
            }
            view.set_link(node, level, next).ok()?;
            if view
                .publish_link((prev, level), next, (node, EndKeys::MAY_MATCH))
                .ok()?
            {
                return Some(());
            }
        }
    }
}
