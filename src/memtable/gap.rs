//! Gaps: holes that were reported, with their sides in the walk's own memory.
//!
//! ```text
//!   a@9   [ damaged ]   c@4
//!       begin         end          edges: whatever becomes of a and c, the walk knows what it has reported
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use super::edge::Edge;
use super::lens::Lens;
use super::runs::Way;
use crate::key::{Comparator, SequenceNumber};
use crate::memtable::representation::{END, Hole, Ordered};
use crate::memtable::skiplist::node::Verified;

/// A hole that was reported, and where it begins and ends, in the cursor's own memory. An edge is missing where the
/// entry beside the hole did not verify any more.
#[derive(Clone)]
pub(crate) struct Gap {
    pub(crate) hole: Hole,
    begin: Option<Edge>,
    end: Option<Edge>,
}

/// The position after which a walk goes on that has shown an entry.
#[inline]
pub(crate) fn passed<L: Lens>(way: Way, key: &[u8], sequence: SequenceNumber) -> Edge {
    let (newest, oldest) = L::extent(sequence);
    if way == Way::Forward { Edge::after(key, oldest) } else { Edge::before(key, newest) }
}

impl Gap {
    /// A hole and the positions of the entries beside it, as far as they verify.
    #[cold]
    pub(crate) fn around<'a, O: Ordered<'a>>(order: Option<&O>, hole: Hole) -> Gap {
        let beside = |at: u32| order.and_then(|order| order.entry(at).ok()).filter(|_| at != END);
        let (before, behind) = (beside(hole.before), beside(hole.behind));
        let (begin, end) = if hole.before == hole.behind {
            // One entry on both sides: what covers its key cannot be told.
            let begin = before.map(|entry| Edge::before(entry.key(), SequenceNumber::MAX));
            (begin, behind.map(|entry| Edge::after(entry.key(), 0)))
        } else {
            (
                before.map(|entry| Edge::just_after(entry.node())),
                behind.map(|entry| Edge::just_before(entry.node())),
            )
        };
        let begin = if hole.before == END { Some(Edge::start()) } else { begin };
        let end = if hole.behind == END { Some(Edge::end()) } else { end };
        Gap { hole, begin, end }
    }

    /// Whether an entry lies beyond the hole, as far as its near side is known. Duplicates of a `Vector` table stand at the
    /// same position.
    pub(crate) fn is_passed_at<C: Comparator>(&self, comparator: &C, way: Way, entry: &Verified<'_>) -> bool {
        let is_before = |edge: &Edge| entry.node().order(comparator, &edge.target(comparator)).is_lt();
        match way {
            Way::Forward => self.begin.as_ref().is_none_or(|edge| !is_before(&edge.across())),
            Way::Backward => self.end.as_ref().is_none_or(|edge| is_before(&edge.across())),
        }
    }

    /// The far side of the hole for a walk in this direction.
    pub(crate) fn far(&self, way: Way) -> Option<&Edge> {
        if way == Way::Forward { self.end.as_ref() } else { self.begin.as_ref() }
    }
}
