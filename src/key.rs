//! The one order of entries, and positions in it.
//!
//! ```text
//!   user key ascending (comparator) | sequence number descending | revision descending
//!   "apple"@9  <  "apple"@7 r1  <  "apple"@7 r0  <  "apple"@2  <  "pear"@11
//! ```
//! The kind takes no part in the order, nor in the detection of duplicates.
//!
//! Any thread. All functions are pure.

#![forbid(unsafe_code)]

use crate::comparator::{KeyComparator, KeyOrder, are_same};
use std::cmp::Ordering;

/// How many bytes of two keys are compared before a function is called.
const INLINE: usize = 16;

/// A sequence number: the engine's logical time of a write. All 64 bits belong to the engine.
///
/// ```
/// use paranoid_memtable::{MemTable, SequenceNumber};
/// let (table, snapshot): (MemTable, SequenceNumber) = (MemTable::default(), 5);
/// table.put(snapshot + 1, b"k", b"later")?;
/// assert!(table.get(b"k", snapshot)?.found().is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type SequenceNumber = u64;

/// The direction of a walk or a step.
///
/// ```
/// use paranoid_memtable::scan::Direction;
/// let order = |way| if way == Direction::Forward { "ascending" } else { "descending" };
/// assert_eq!(order(Direction::Backward), "descending");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Backward,
}

impl Direction {
    /// The other direction.
    #[doc(hidden)]
    #[must_use]
    pub fn opposite(self) -> Self {
        self.pick((Direction::Forward, Direction::Backward))
    }

    /// The neighbour in this direction, out of (the one before, the one after).
    #[inline(always)]
    pub(crate) fn pick<T>(self, (before, after): (T, T)) -> T {
        match self {
            Direction::Forward => after,
            Direction::Backward => before,
        }
    }

    /// How a key compares with the keys that a walk in this direction meets before it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn outward(self) -> Ordering {
        self.pick((Ordering::Less, Ordering::Greater))
    }
}

/// Which side of an equal entry a position is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before the equal entry.
    Before,
    /// After the equal entry.
    After,
    /// Before all entries: the key of the position does not count.
    Start,
    /// After all entries: the key of the position does not count.
    End,
}

/// A position in the order of a table, for which a search looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'k> {
    /// The user key.
    pub(crate) key: &'k [u8],
    /// Entries of this key with a larger sequence number come before the position.
    pub(crate) sequence: SequenceNumber,
    /// Entries of this key and sequence number with a larger revision come before the position.
    pub(crate) revision: u32,
    /// Which side of an equal entry the position is on.
    side: Side,
    /// The first bytes of the key's image, computed once.
    pub(crate) image: u64,
}

impl<'k> Target<'k> {
    /// The position before every revision of (key, sequence).
    #[inline]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8], sequence: SequenceNumber) -> Self {
        Target {
            key,
            sequence,
            revision: u32::MAX,
            side: Side::Before,
            image: comparator.image(key, 0),
        }
    }

    /// The position after every version of a key.
    #[inline]
    pub(crate) fn after_key(comparator: &KeyComparator, key: &'k [u8]) -> Self {
        Target {
            revision: 0,
            side: Side::After,
            ..Target::new(comparator, key, 0)
        }
    }

    /// The position before all entries, or after them.
    pub(crate) fn extreme(side: Side) -> Self {
        // No image is less than 0 or greater than `u64::MAX`. For an equal image, the side decides.
        let image = if side == Side::End { u64::MAX } else { 0 };
        Target {
            key: &[],
            sequence: 0,
            revision: 0,
            side,
            image,
        }
    }

    /// Whether this position is before all entries, or after all entries.
    #[inline(always)]
    pub(crate) fn is_extreme(&self) -> bool {
        matches!(self.side, Side::Start | Side::End)
    }

    /// This position, moved to `revision` among the entries of its key and sequence number.
    #[inline]
    pub(crate) fn with_revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// This position on the chosen side of an equal entry.
    #[inline]
    pub(crate) fn with_side(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    /// Whether an entry has the bytes of this position's key and is not before the position.
    #[inline(always)]
    pub(crate) fn is_version(&self, key: &[u8], version: (SequenceNumber, u32)) -> bool {
        are_same(key, self.key)
            && self.side == Side::Before
            && version <= (self.sequence, self.revision)
    }

    /// Compares this position with another one.
    pub(crate) fn order(&self, comparator: &KeyComparator, other: &Target<'_>) -> Ordering {
        let rank = |side| match side {
            Side::Start => 0,
            Side::Before | Side::After => 1,
            Side::End => 2,
        };
        let (left, right) = (rank(self.side), rank(other.side));
        if (left, right) != (1, 1) {
            return left.cmp(&right);
        }
        let version = || (other.sequence, other.revision).cmp(&(self.sequence, self.revision));
        let sides = || (self.side == Side::After).cmp(&(other.side == Side::After));
        comparator
            .compare(self.key, other.key)
            .then_with(version)
            .then_with(sides)
    }

    /// Compares the entry (key, sequence, revision) with this position: `Less` if the entry is
    /// before it. This crate has no other comparison of entries.
    #[inline(always)]
    pub(crate) fn entry_order(
        &self,
        comparator: &KeyComparator,
        key: &[u8],
        version: (SequenceNumber, u32),
    ) -> Ordering {
        let image = comparator.image(key, 0);
        if image != self.image {
            return image.cmp(&self.image);
        }
        if comparator.key_order() == KeyOrder::Bytes {
            // The next 8 bytes of both. An extreme position has a first image alone.
            let [next, wanted] = [key, self.key].map(|key| comparator.image(key, INLINE / 2));
            if next != wanted && !self.is_extreme() {
                return next.cmp(&wanted);
            }
        }
        self.full_order(comparator, key, version)
    }

    /// Compares an entry whose image equals that of this position; under the order of bytes, its
    /// first [`INLINE`] bytes do.
    #[inline(never)]
    fn full_order(
        &self,
        comparator: &KeyComparator,
        key: &[u8],
        (sequence, revision): (SequenceNumber, u32),
    ) -> Ordering {
        match self.side {
            Side::Start => return Ordering::Greater,
            Side::End => return Ordering::Less,
            Side::Before | Side::After => {}
        }
        // Of keys that are shorter, the images do not show the length.
        let order = match (
            comparator.key_order(),
            key.get(INLINE..),
            self.key.get(INLINE..),
        ) {
            // Out of line already, so `memcmp` is worth its call for shorter keys than in `compare`.
            (KeyOrder::Bytes, Some(rest), Some(wanted)) if rest.len() > INLINE => rest.cmp(wanted),
            (KeyOrder::Bytes, Some(rest), Some(wanted)) => comparator.compare(rest, wanted),
            _ => comparator.compare(key, self.key),
        };
        let order = order.then_with(|| {
            self.sequence
                .cmp(&sequence)
                .then(self.revision.cmp(&revision))
        });
        if order.is_eq() && self.side == Side::After {
            Ordering::Less
        } else {
            order
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::comparator::BYTEWISE;

    use super::*;

    #[test]
    fn newer_sequences_and_revisions_come_first() {
        let target = Target::new(&BYTEWISE, b"k", 5).with_revision(3);
        assert_eq!(target.entry_order(&BYTEWISE, b"k", (6, 0)), Ordering::Less);
        assert_eq!(
            target.entry_order(&BYTEWISE, b"k", (4, 9)),
            Ordering::Greater
        );
        assert_eq!(target.entry_order(&BYTEWISE, b"k", (5, 4)), Ordering::Less);
        assert_eq!(target.entry_order(&BYTEWISE, b"k", (5, 3)), Ordering::Equal);
        assert_eq!(target.entry_order(&BYTEWISE, b"j", (0, 0)), Ordering::Less);
    }

    /// Compares each position with each other one, and each entry with each position. The positions
    /// are listed in order.
    #[test]
    fn positions_are_in_order() {
        let entries = [
            (b"a", 9, 0),
            (b"b", 7, 1),
            (b"b", 7, 0),
            (b"b", 2, 5),
            (b"c", 2, 5),
        ];
        let mut positions = vec![Target::extreme(Side::Start)];
        for (key, sequence, revision) in entries {
            let target = Target::new(&BYTEWISE, key, sequence).with_revision(revision);
            positions.extend([Side::Before, Side::After].map(|side| target.with_side(side)));
        }
        positions.push(Target::extreme(Side::End));
        for (at, left) in positions.iter().enumerate() {
            for (other, right) in positions.iter().enumerate() {
                assert_eq!(
                    left.order(&BYTEWISE, right),
                    at.cmp(&other),
                    "{left:?} {right:?}"
                );
                if left.is_extreme() {
                    continue;
                }
                // An entry equals the position before it: there, a search for the entry ends.
                let entry = right.entry_order(&BYTEWISE, left.key, (left.sequence, left.revision));
                let wanted = if left.side == Side::Before {
                    at.cmp(&other)
                } else {
                    (at - 1).cmp(&other)
                };
                assert_eq!(entry, wanted, "{left:?} {right:?}");
            }
        }
        assert_eq!(
            positions
                .iter()
                .filter(|position| position.is_extreme())
                .count(),
            2
        );
        let after = Target::after_key(&BYTEWISE, b"b");
        assert_eq!(after.entry_order(&BYTEWISE, b"b", (0, 0)), Ordering::Less);
        assert_eq!(
            after.entry_order(&BYTEWISE, b"c", (u64::MAX, u32::MAX)),
            Ordering::Greater
        );
        // Keys whose images equal those of the extremes.
        for key in [[0; 8], [0xff; 8]] {
            let entry = |side| Target::extreme(side).entry_order(&BYTEWISE, &key, (0, 0));
            assert_eq!(
                [Side::Start, Side::End].map(entry),
                [Ordering::Greater, Ordering::Less]
            );
        }
    }
}
