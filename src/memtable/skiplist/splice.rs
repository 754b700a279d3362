//! The record of a search: where it left each level. An insert links its node there.
//!
//! One thread.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::directory::lookup::{Hint, LeafSlot};

/// The last node before a position on each level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Splice {
    pub(crate) prev: [u32; HEIGHT_MAX],
    /// How many levels are known, from level 0 on.
    pub(crate) levels: u32,
    /// The slot of the directory before which the next node belongs: a guess.
    pub(crate) named: LeafSlot,
    /// How many level-0 nodes the search passed after its first one.
    pub(crate) hops: u32,
}

impl Splice {
    /// The splice of a search from the top of a list.
    pub(crate) fn new(sentinel: u32) -> Splice {
        Splice {
            prev: [sentinel; HEIGHT_MAX],
            levels: HEIGHT_MAX as u32,
            named: LeafSlot::NONE,
            hops: 0,
        }
    }

    /// Sets the last node on a level.
    #[inline(always)]
    pub(crate) fn record(&mut self, level: u32, at: u32) {
        if let Some(prev) = self.prev.get_mut(level as usize) {
            *prev = at;
        }
    }
}

/// The record of a search: for a writer its splice, in tests its number of nodes.
#[derive(Debug, Default)]
pub(crate) struct Trail<'w> {
    /// The splice that the search fills in.
    pub(crate) splice: Option<&'w mut Splice>,
    /// How many nodes the search opened.
    #[cfg(test)]
    pub(crate) nodes: u32,
}

impl<'w> From<&'w mut Splice> for Trail<'w> {
    #[inline(always)]
    fn from(splice: &'w mut Splice) -> Trail<'w> {
        Trail {
            splice: Some(splice),
            #[cfg(test)]
            nodes: 0,
        }
    }
}

impl Trail<'_> {
    /// Records the node at which the search leaves a level.
    #[inline(always)]
    pub(super) fn record(&mut self, level: u32, at: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(level, at);
        }
    }

    /// Records that the search passed `hops` nodes on level 0 and ended after `at`.
    #[inline(always)]
    pub(crate) fn end_at(&mut self, at: u32, hops: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(0, at);
            splice.hops = hops;
        }
    }

    /// Counts a node, in tests.
    #[inline(always)]
    pub(super) fn visit(&mut self) {
        #[cfg(test)]
        {
            self.nodes += 1;
        }
    }

    /// Records a start at a hint: the splice knows level 0 only.
    #[inline(always)]
    pub(super) fn start_at(&mut self, hint: &Hint) {
        if let Some(splice) = &mut self.splice {
            (splice.named, splice.levels) = (hint.at, 1);
        }
    }
}
