//! The ends of what a scan may show.
//!
//! An edge stands between entries: in front of every version of a key, behind all of them, or at one of them. Pure data;
//! any thread.

#![forbid(unsafe_code)]

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::key::{Comparator, SequenceNumber, Side, Target};

/// One end of what a cursor may show.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    key: Box<[u8]>,
    sequence: SequenceNumber,
    side: Side,
}

impl Edge {
    pub(crate) fn target<'k, C: Comparator>(&'k self, comparator: &C) -> Target<'k> {
        let target = Target::new(comparator, &self.key, self.sequence);
        if self.side == Side::After { target.with_revision(0).with_side(Side::After) } else { target }
    }

    fn before(key: &[u8], sequence: SequenceNumber) -> Edge {
        Edge { key: key.into(), sequence, side: Side::Before }
    }

    fn after(key: &[u8], sequence: SequenceNumber) -> Edge {
        Edge { key: key.into(), sequence, side: Side::After }
    }

    /// The edge in front of which a range begins.
    pub(crate) fn lower(bound: Bound<(&[u8], Option<SequenceNumber>)>) -> Option<Edge> {
        match bound {
            Bound::Included((key, sequence)) => {
                Some(Edge::before(key, sequence.unwrap_or(SequenceNumber::MAX)))
            }
            Bound::Excluded((key, sequence)) => Some(Edge::after(key, sequence.unwrap_or(0))),
            Bound::Unbounded => None,
        }
    }

    /// The edge in front of which a range ends.
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

/// The edges of a range of user keys.
pub(crate) fn edges<C: Comparator>(
    comparator: &C,
    start: Bound<&[u8]>,
    end: Bound<&[u8]>,
) -> Result<(Option<Edge>, Option<Edge>)> {
    if let (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) =
        (start, end)
        && comparator.compare(start, end).is_gt()
    {
        return Err(Error::InvalidArgument("a range must not end before its start".into()));
    }
    Ok((Edge::lower(start.map(|key| (key, None))), Edge::upper(end.map(|key| (key, None)))))
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
