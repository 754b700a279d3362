//! Scan bounds: positions between entries, which a walk keeps in its own memory. They limit a
//! range, and record how far a walk has come.
//!
//! ```text
//!     a@9   a@5   |   b@7      before or after all versions of a key, before or after one version,
//!            scan bound        or before or after everything
//! ```
//! Pure data; any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use crate::comparator::{KeyComparator, KeyOrder, bytes_at};
use crate::key::{Direction, SequenceNumber, Side, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::scan::key_range::KeyRange;

/// A position between entries. It has its own copy of the key, so later damage to the table does
/// not move it.
#[derive(Clone)]
pub(crate) struct ScanBound {
    key: Box<[u8]>,
    sequence: SequenceNumber,
    /// The place among entries with equal key and sequence number.
    revision: u32,
    side: Side,
    /// The first bytes of the key.
    image: u64,
}

impl ScanBound {
    /// The position as a target of searches.
    #[inline(always)]
    pub(crate) fn target<'k>(&'k self, comparator: &KeyComparator) -> Target<'k> {
        match self.side {
            Side::Start | Side::End => Target::extreme(self.side),
            Side::Before | Side::After => Target::new(comparator, &self.key, self.sequence)
                .with_revision(self.revision)
                .with_side(self.side),
        }
    }

    /// The position next to all revisions of a version of a key, on their far side in this
    /// direction.
    pub(crate) fn beside_version(
        way: Direction,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> ScanBound {
        let (revision, side) = way.pick(((u32::MAX, Side::Before), (0, Side::After)));
        ScanBound {
            key: key.into(),
            sequence,
            revision,
            side,
            image: bytes_at(key, 0),
        }
    }

    /// The position next to a stored entry, on its far side in this direction.
    pub(crate) fn beside(way: Direction, entry: &Verified<'_>) -> ScanBound {
        ScanBound {
            revision: entry.revision(),
            ..ScanBound::beside_version(way, entry.key(), entry.sequence())
        }
    }

    /// The position next to all versions of a key, on their far side in this direction.
    pub(crate) fn beside_key(way: Direction, key: &[u8]) -> ScanBound {
        ScanBound::beside_version(way, key, way.pick((SequenceNumber::MAX, 0)))
    }

    /// Whether this position has the form of `beside_key(way, ..)`.
    pub(crate) fn is_beside_key(&self, way: Direction) -> bool {
        let beside = way.pick(((Side::Before, SequenceNumber::MAX), (Side::After, 0)));
        (self.side, self.sequence) == beside
    }

    /// The key next to which the position is; none for the position before or after everything.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        (!self.is_extreme()).then_some(&*self.key)
    }

    /// Whether this position is before or after everything.
    #[inline(always)]
    pub(crate) fn is_extreme(&self) -> bool {
        matches!(self.side, Side::Start | Side::End)
    }

    /// The position on the other side of the entry next to it.
    pub(crate) fn across(&self) -> ScanBound {
        let side = match self.side {
            Side::Before => Side::After,
            Side::After => Side::Before,
            extreme => extreme,
        };
        ScanBound {
            side,
            ..self.clone()
        }
    }

    /// The position beyond everything in this direction.
    pub(crate) fn extreme(way: Direction) -> ScanBound {
        let side = way.pick((Side::Start, Side::End));
        ScanBound {
            key: Box::default(),
            sequence: 0,
            revision: 0,
            side,
            // No key of the order of bytes is beyond it by its first bytes.
            image: way.pick((0, u64::MAX)),
        }
    }

    /// Compares this position with another.
    pub(crate) fn order(&self, comparator: &KeyComparator, other: &ScanBound) -> Ordering {
        self.target(comparator)
            .order(comparator, &other.target(comparator))
    }

    /// Whether this position is further in this direction than a key, by the first bytes of both, or,
    /// in another order than that of bytes, because it is beyond everything. `false` if these do not
    /// decide.
    #[inline(always)]
    pub(crate) fn is_clearly_beyond(
        &self,
        comparator: &KeyComparator,
        way: Direction,
        key: &[u8],
    ) -> bool {
        if comparator.key_order() != KeyOrder::Bytes {
            return self.is_extreme();
        }
        // Keys of fewer than 8 bytes are rare.
        key.first_chunk().is_some_and(|first| {
            let (key, end) = (u64::from_be_bytes(*first), self.image);
            way.pick((end < key, key < end))
        })
    }

    /// Whether a stored entry comes before this position.
    #[inline(always)]
    pub(crate) fn is_after(&self, comparator: &KeyComparator, entry: &Verified<'_>) -> bool {
        entry.order(comparator, &self.target(comparator)).is_lt()
    }

    /// The position at which a range with this bound ends in this direction.
    fn of(way: Direction, bound: Bound<Position<'_>>) -> ScanBound {
        let (side, (key, sequence)) = match bound {
            Bound::Included(position) => (way, position),
            Bound::Excluded(position) => (way.opposite(), position),
            Bound::Unbounded => return ScanBound::extreme(way),
        };
        let all = side.pick((SequenceNumber::MAX, 0));
        ScanBound::beside_version(side, key, sequence.unwrap_or(all))
    }
}

/// All versions of a key, or one version.
type Position<'k> = (&'k [u8], Option<SequenceNumber>);

/// The entries that a walk may show: those between two positions.
#[derive(Clone)]
pub(crate) struct ScanBounds {
    pub(crate) lower: ScanBound,
    pub(crate) upper: ScanBound,
}

impl ScanBounds {
    fn between(start: Bound<Position<'_>>, end: Bound<Position<'_>>) -> ScanBounds {
        let (lower, upper) = (
            ScanBound::of(Direction::Backward, start),
            ScanBound::of(Direction::Forward, end),
        );
        ScanBounds { lower, upper }
    }

    /// The bound at which a walk in this direction ends.
    #[inline(always)]
    pub(crate) fn end(&self, way: Direction) -> &ScanBound {
        way.pick((&self.lower, &self.upper))
    }
}

/// The scan bounds of all versions of the keys in a range.
pub(crate) fn scan_bounds(range: &impl KeyRange) -> ScanBounds {
    let (start, end) = range.key_bounds();
    ScanBounds::between(start.map(|key| (key, None)), end.map(|key| (key, None)))
}

/// The scan bounds of the versions in a range of (user key, sequence number).
pub(crate) fn version_bounds<K: AsRef<[u8]>>(
    range: &impl RangeBounds<(K, SequenceNumber)>,
) -> ScanBounds {
    fn version<K: AsRef<[u8]>>((key, at): &(K, SequenceNumber)) -> Position<'_> {
        (key.as_ref(), Some(*at))
    }
    ScanBounds::between(
        range.start_bound().map(version),
        range.end_bound().map(version),
    )
}

/// The scan bounds of all keys that start with `prefix`, under bytewise order.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> ScanBounds {
    // The first key after all of them: the prefix up to its last byte below 255, plus 1 there.
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX);
    let end = last.map(|last| [&prefix[..last], &[prefix[last] + 1]].concat());
    scan_bounds(&(
        Bound::Included(prefix),
        end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
    ))
}
