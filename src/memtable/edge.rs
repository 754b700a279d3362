//! Positions that a walk keeps in its own memory: the ends of what it may show, and how far it has come.
//!
//! ```text
//!     a@9   a@5   |   b@7        an edge stands between entries: before every version of a key, after all of them,
//!                edge            before or after one of them, or before or after everything
//! ```
//! Pure data; any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::Bound;

use crate::key::{Comparator, SequenceNumber, Side, Target};
use crate::memtable::skiplist::node::Node;

/// A position between entries. It owns its key: memory that is damaged later does not move it.
#[derive(Clone)]
pub(crate) struct Edge {
    key: Box<[u8]>,
    sequence: SequenceNumber,
    /// Among entries of this key and sequence number.
    revision: u32,
    side: Side,
}

impl Edge {
    #[inline(always)]
    pub(crate) fn target<'k, C: Comparator>(&'k self, comparator: &C) -> Target<'k> {
        match self.side {
            Side::Start | Side::End => Target::extreme(self.side),
            Side::Before | Side::After => Target::new(comparator, &self.key, self.sequence)
                .with_revision(self.revision)
                .with_side(self.side),
        }
    }

    /// The position before this version of a key.
    pub(crate) fn before(key: &[u8], sequence: SequenceNumber) -> Edge {
        Edge { key: key.into(), sequence, revision: u32::MAX, side: Side::Before }
    }

    /// The position after this version of a key.
    pub(crate) fn after(key: &[u8], sequence: SequenceNumber) -> Edge {
        Edge { key: key.into(), sequence, revision: 0, side: Side::After }
    }

    /// The position right before a stored entry.
    pub(crate) fn just_before(node: &Node<'_>) -> Edge {
        Edge { revision: node.revision(), ..Edge::before(node.key(), node.sequence()) }
    }

    /// The position right after a stored entry.
    pub(crate) fn just_after(node: &Node<'_>) -> Edge {
        Edge { revision: node.revision(), ..Edge::after(node.key(), node.sequence()) }
    }

    /// The position on the other side of the entry that this one is right beside.
    pub(crate) fn across(&self) -> Edge {
        let side = match self.side {
            Side::Before => Side::After,
            Side::After => Side::Before,
            extreme => extreme,
        };
        Edge { side, ..self.clone() }
    }

    /// The position before everything.
    pub(crate) fn start() -> Edge {
        Edge { key: Box::default(), sequence: 0, revision: 0, side: Side::Start }
    }

    /// The position after everything.
    pub(crate) fn end() -> Edge {
        Edge { key: Box::default(), sequence: 0, revision: 0, side: Side::End }
    }

    /// Where this position stands relative to another one.
    pub(crate) fn order<C: Comparator>(&self, comparator: &C, other: &Edge) -> Ordering {
        let rank = |edge: &Edge| match edge.side {
            Side::Start => 0,
            Side::Before | Side::After => 1,
            Side::End => 2,
        };
        let (left, right) = (rank(self), rank(other));
        if (left, right) != (1, 1) {
            return left.cmp(&right);
        }
        let version = || (other.sequence, other.revision).cmp(&(self.sequence, self.revision));
        let sides = || (self.side == Side::After).cmp(&(other.side == Side::After));
        comparator.compare(&self.key, &other.key).then_with(version).then_with(sides)
    }

    /// The edge before which a range begins.
    pub(crate) fn lower(bound: Bound<(&[u8], Option<SequenceNumber>)>) -> Option<Edge> {
        match bound {
            Bound::Included((key, sequence)) => {
                Some(Edge::before(key, sequence.unwrap_or(SequenceNumber::MAX)))
            }
            Bound::Excluded((key, sequence)) => Some(Edge::after(key, sequence.unwrap_or(0))),
            Bound::Unbounded => None,
        }
    }

    /// The edge before which a range ends.
    pub(crate) fn upper(bound: Bound<(&[u8], Option<SequenceNumber>)>) -> Option<Edge> {
        match bound {
            Bound::Included((key, sequence)) => Some(Edge::after(key, sequence.unwrap_or(0))),
            Bound::Excluded((key, sequence)) => {
                Some(Edge::before(key, sequence.unwrap_or(SequenceNumber::MAX)))
            }
            Bound::Unbounded => None,
        }
    }
}

/// The edges of all keys that start with `prefix`, under bytewise order.
pub(crate) fn prefix_edges(prefix: &[u8]) -> (Option<Edge>, Option<Edge>) {
    let upper = behind_prefix(prefix).and_then(|end| Edge::upper(Bound::Excluded((&end, None))));
    (Edge::lower(Bound::Included((prefix, None))), upper)
}

/// The first key behind all that start with `prefix`, under bytewise order.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}
