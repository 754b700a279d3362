//! Links a published node at the levels above 0.
//!
//! ```text
//!   level 2   a ---------------------------> g        from level 1 up, after the last node before the new one:
//!   level 1   a ------> c -----------------> g        read prev -> next, set new -> next, exchange prev -> new (Release)
//!   level 0   a -> b -> c -> [new] -> e ---> g
//! ```
//! A level with damage at the node's place, and the levels above it, stay without the node. That
//! costs only speed.
//!
//! Any thread; lock-free. The comparator may panic here: the node is published and counted.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Splice;

/// A published node whose higher levels are not linked yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tower {
    pub(crate) node: u32,
    pub(crate) height: u32,
    pub(crate) revision: u32,
    /// The node before it at level 0, which its bracket verified.
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

    /// Links the node at one level. Walks from `prev` to the node's place if the splice is outdated
    /// or another writer was faster. `None`: damage.
    fn link_at(&self, mut prev: u32, tower: Tower, level: u32, target: &Target<'_>) -> Option<()> {
        let (view, node) = (&self.view, tower.node);
        loop {
            let next = view.try_link(prev, level)?;
            // Both neighbours are verified and in order before the node is linked between them; its
            // bracket has verified `tower.pred`.
            if next != self.sentinel {
                let after = self.verified(next).ok()??;
                if after.order(self.comparator, target).is_lt() {
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
