//! Scan bounds: positions between entries, which a walk keeps in its own memory. They are the ends
//! of a range, and mark how far a walk has come.
//!
//! ```text
//!     a@9   a@5   |   b@7        a scan bound stands between entries: before every version of a key, after all of them,
//!                scan bound            before or after one of them, or before or after everything
//! ```
//! Pure data; any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::comparator::{KeyComparator, KeyOrder, bytes_at};
use crate::key::{Direction, SequenceNumber, Side, Target};
use crate::memtable::arena::node::Node;

/// A position between entries. It owns a copy of its key, so later damage of the table does not
/// move it.
#[derive(Clone)]
pub(crate) struct ScanBound {
    key: Box<[u8]>,
    sequence: SequenceNumber,
    /// Among entries of this key and sequence number.
    revision: u32,
    side: Side,
    /// The first bytes of the key.
    image: u64,
}

impl ScanBound {
    #[inline(always)]
    pub(crate) fn target<'k>(&'k self, comparator: &KeyComparator) -> Target<'k> {
        match self.side {
            Side::Start | Side::End => Target::extreme(self.side),
            Side::Before | Side::After => Target::new(comparator, &self.key, self.sequence)
                .with_revision(self.revision)
                .with_side(self.side),
        }
    }

    /// The position beside all revisions of a version of a key, on their far side in this
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

    /// The position right beside a stored entry, on its far side in this direction.
    pub(crate) fn beside(way: Direction, node: &Node<'_>) -> ScanBound {
        ScanBound {
            revision: node.revision(),
            ..ScanBound::beside_version(way, node.key(), node.sequence())
        }
    }

    /// The position before all versions of a key, or after them, on the far side in this direction.
    pub(crate) fn beside_key(way: Direction, key: &[u8]) -> ScanBound {
        ScanBound::beside_version(way, key, way.pick((SequenceNumber::MAX, 0)))
    }

    /// Whether all versions of the key are on one side, as `beside_key` leaves them.
    pub(crate) fn is_beside_key(&self, way: Direction) -> bool {
        let beside = way.pick(((Side::Before, SequenceNumber::MAX), (Side::After, 0)));
        (self.side, self.sequence) == beside
    }

    /// The key beside which the position is; none for the position before or after everything.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        (!self.is_extreme()).then_some(&*self.key)
    }

    /// Whether this is before or after everything.
    #[inline(always)]
    pub(crate) fn is_extreme(&self) -> bool {
        matches!(self.side, Side::Start | Side::End)
    }

    /// The position on the other side of the adjacent entry.
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
            image: 0,
        }
    }

    /// Compares this position with another one.
    pub(crate) fn order(&self, comparator: &KeyComparator, other: &ScanBound) -> Ordering {
        self.target(comparator)
            .order(comparator, &other.target(comparator))
    }

    /// Whether this position is further in this direction than a key: than every one, or by the
    /// first bytes of both.
    #[inline(always)]
    pub(crate) fn is_clearly_beyond(
        &self,
        comparator: &KeyComparator,
        way: Direction,
        key: &[u8],
    ) -> bool {
        if self.is_extreme() || comparator.key_order() != KeyOrder::Bytes {
            return self.is_extreme();
        }
        let (key, end) = (bytes_at(key, 0), self.image);
        way.pick((end < key, key < end))
    }

    /// Whether a stored entry comes before this position.
    #[inline(always)]
    pub(crate) fn is_after(&self, comparator: &KeyComparator, node: &Node<'_>) -> bool {
        node.order(comparator, &self.target(comparator)).is_lt()
    }

    /// The position of a bound, of keys or of versions: the one at which a range ends in this
    /// direction.
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

/// All versions of a key, or one of them.
type Position<'k> = (&'k [u8], Option<SequenceNumber>);

/// What a walk may show: the entries between two positions.
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

/// A range of keys: `..`, one of the standard ranges, or a pair of [`Bound`]s, over anything that
/// is bytes.
///
/// ```
/// use std::ops::Bound::{self, Excluded, Included, Unbounded};
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::KeyRange;
/// let table = MemTable::default();
/// for (sequence, key) in (1..).zip(["a", "b", "c"]) {
///     table.put(sequence, key.as_bytes(), b"")?;
/// }
/// fn count(table: &MemTable, range: impl KeyRange) -> usize {
///     table.range(range).count()
/// }
/// let (a, b) = (vec![b'a'], vec![b'b']);
/// assert_eq!(count(&table, ..), 3);
/// assert_eq!(count(&table, "b"..), 2);
/// assert_eq!(count(&table, .."b"), 1);
/// assert_eq!(count(&table, ..=b"b"), 2);
/// assert_eq!(count(&table, &a..&b), 1);
/// assert_eq!(count(&table, a.as_slice()..=b.as_slice()), 2);
/// assert_eq!(count(&table, (Excluded(a), Included(b))), 1);
/// let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Included(b"b"), Unbounded);
/// assert_eq!(count(&table, bounds), 2);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait KeyRange {
    /// The two bounds. An inverted range is empty.
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl KeyRange for RangeFull {
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// Implements [`KeyRange`] for standard ranges.
macro_rules! key_ranges {
    ($($range:ty),+) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                (self.start_bound().map(K::as_ref), self.end_bound().map(K::as_ref))
            }
        }
    )+};
}

key_ranges!(
    Range<K>,
    RangeFrom<K>,
    RangeInclusive<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

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
    // The first key after all of them: the last byte that has a larger one is that.
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX);
    let end = last.map(|last| [&prefix[..last], &[prefix[last] + 1]].concat());
    scan_bounds(&(
        Bound::Included(prefix),
        end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
    ))
}
