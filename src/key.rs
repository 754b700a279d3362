//! Sequence numbers, kinds and the one order of keys.
//!
//! ```text
//!   user key ascending (comparator) | sequence number descending | revision descending
//!   "apple"@9  <  "apple"@7 r1  <  "apple"@7 r0  <  "apple"@2  <  "pear"@11
//! ```
//! The kind takes no part in the order or in the detection of duplicates.
//!
//! Who may call what: everything here is pure and may be called from any thread.

#![forbid(unsafe_code)]

use crate::comparator::{KeyComparator, are_same};
use std::cmp::Ordering;
use std::fmt;

/// A sequence number: the engine's logical time of a write. All 64 bits belong to the engine.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable, SequenceNumber};
/// let (table, snapshot): (MemTable, SequenceNumber) = (MemTable::default(), 5);
/// table.put(snapshot + 1, b"k", b"later")?;
/// assert!(matches!(table.get(b"k", snapshot)?, Lookup::NotFound));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type SequenceNumber = u64;

/// What an entry means: a put, a delete, a merge operand and so on. Numbers from 0x80 up belong to
/// the engine: those below 0xc0 read as values ([`Kind::custom`]), the others as point tombstones
/// ([`Kind::custom_delete`]).
///
/// The named numbers are those of RocksDB's `ValueType`.
///
/// ```
/// use paranoid_memtable::Kind;
/// assert_eq!(Kind::MERGE.as_u8(), 2);
/// assert_eq!(Kind::from_u8(0x91), Kind::custom(0x11));
/// assert!(Kind::from_u8(0xc1).is_point_delete());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub(crate) u8);

impl Kind {
    /// The key is deleted: a point tombstone.
    pub const DELETE: Kind = Kind(0);
    /// The key has this value.
    pub const PUT: Kind = Kind(1);
    /// A merge operand, which the engine's merge operator applies to older versions of the key.
    pub const MERGE: Kind = Kind(2);
    /// A point tombstone for a key that was put exactly once.
    pub const SINGLE_DELETE: Kind = Kind(7);
    /// A range tombstone: the key is the start, the value the end (exclusive).
    pub const RANGE_DELETE: Kind = Kind(15);
    /// The first number that belongs to the engine.
    pub const FIRST_CUSTOM: Kind = Kind(0x80);

    /// How many custom kinds an engine has, of values and of deletes each: numbers 0 to 63.
    pub const CUSTOM_COUNT: u8 = 0x40;
    /// The first of the engine's numbers that count as deletes.
    const FIRST_CUSTOM_DELETE: Kind = Kind(0xc0);

    /// The engine's own kind `number`, which reads as a value: `get` answers `Value` with this
    /// kind. Examples are the address of a blob, a wide-column entity, and a value that expires.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, Lookup, MemTable};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// const BLOB: Kind = Kind::custom(3);
    /// let table = MemTable::default();
    /// table.insert(1, BLOB, b"k", b"file 9, offset 4096")?;
    /// let Lookup::Value(value) = table.get(b"k", 1)? else { panic!("not there") };
    /// assert_eq!((value.kind(), &*value), (BLOB, &b"file 9, offset 4096"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// For a number of 64 or more; in a constant that is a compile-time error.
    #[must_use]
    pub const fn custom(number: u8) -> Kind {
        assert!(
            number < Kind::CUSTOM_COUNT,
            "an engine has 64 kinds that read as values"
        );
        Kind(Kind::FIRST_CUSTOM.0 + number)
    }

    /// The engine's own kind `number`, which counts as a delete:
    /// [`deletes`](crate::read::Stats::deletes) counts its entries, `get` answers `Deleted` by
    /// [`DeletedBy::Custom`](crate::read::DeletedBy::Custom), newer merge operands apply to a
    /// deleted key, and cursors at a snapshot skip the key. Unlike those of `DELETE`, its entries
    /// may have a value, such as the time of the deletion, which cursors over all versions and
    /// [`get_entry`](crate::TableReader::get_entry) show.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, Lookup, MemTable};
    /// use paranoid_memtable::read::DeletedBy;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// const SIZED: Kind = Kind::custom_delete(0);
    /// let table = MemTable::default();
    /// table.put(1, b"k", b"value")?;
    /// table.insert(2, SIZED, b"k", b"5 bytes")?;
    /// assert!(matches!(table.get(b"k", 2)?, Lookup::Deleted { sequence: 2, by: DeletedBy::Custom(SIZED) }));
    /// assert_eq!(table.stats().deletes, 1);
    /// assert_eq!(table.get_entry(b"k", 2)?.expect("the tombstone").value()?, b"5 bytes");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// For a number of 64 or more; in a constant that is a compile-time error.
    #[must_use]
    pub const fn custom_delete(number: u8) -> Kind {
        assert!(
            number < Kind::CUSTOM_COUNT,
            "an engine has 64 kinds that count as deletes"
        );
        Kind(Kind::FIRST_CUSTOM_DELETE.0 + number)
    }

    /// The kind with this number. Every number is a kind; [`Kind::is_known`] tells whether tables
    /// accept it.
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// assert_eq!(Kind::from_u8(1), Kind::PUT);
    /// assert!(!Kind::from_u8(0x30).is_known());
    /// ```
    #[must_use]
    pub const fn from_u8(number: u8) -> Kind {
        Kind(number)
    }

    /// The stored number.
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// assert_eq!(Kind::RANGE_DELETE.as_u8(), 15);
    /// ```
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self.0
    }

    /// Whether this is a point tombstone: delete, single delete, or one of the engine's own.
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// assert!(Kind::SINGLE_DELETE.is_point_delete() && Kind::custom_delete(0).is_point_delete());
    /// assert!(!Kind::RANGE_DELETE.is_point_delete());
    /// ```
    #[must_use]
    pub const fn is_point_delete(self) -> bool {
        self.is_bare() || self.0 >= Kind::FIRST_CUSTOM_DELETE.0
    }

    /// Whether entries of this kind have no value: delete and single delete.
    pub(crate) const fn is_bare(self) -> bool {
        self.0 == Kind::DELETE.0 || self.0 == Kind::SINGLE_DELETE.0
    }

    /// Whether a table takes entries of this kind; others are `InvalidArgument`.
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// assert!(Kind::MERGE.is_known() && Kind::custom(63).is_known());
    /// assert!(!Kind::from_u8(0x7f).is_known());
    /// ```
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.0 >= Kind::FIRST_CUSTOM.0
            || matches!(
                self,
                Kind::PUT | Kind::DELETE | Kind::SINGLE_DELETE | Kind::MERGE | Kind::RANGE_DELETE
            )
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::DELETE => f.write_str("DELETE"),
            Kind::PUT => f.write_str("PUT"),
            Kind::MERGE => f.write_str("MERGE"),
            Kind::SINGLE_DELETE => f.write_str("SINGLE_DELETE"),
            Kind::RANGE_DELETE => f.write_str("RANGE_DELETE"),
            Kind(number @ ..0x80) => write!(f, "Kind({number:#04x})"),
            Kind(number @ ..0xc0) => write!(f, "custom({})", number - Kind::FIRST_CUSTOM.0),
            Kind(number) => write!(f, "custom_delete({})", number - Kind::FIRST_CUSTOM_DELETE.0),
        }
    }
}

/// The direction of a walk or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To larger keys.
    Forward,
    /// To smaller keys.
    Backward,
}

impl Direction {
    /// The other one.
    pub fn opposite(self) -> Self {
        self.pick((Direction::Forward, Direction::Backward))
    }

    /// Of two neighbours, the one in this direction.
    #[inline(always)]
    pub(crate) fn pick<T>(self, (before, after): (T, T)) -> T {
        match self {
            Direction::Forward => after,
            Direction::Backward => before,
        }
    }

    /// How a key that is further in this direction compares with one that is less far.
    #[inline(always)]
    pub fn outward(self) -> Ordering {
        self.pick((Ordering::Less, Ordering::Greater))
    }
}

/// Which side of an equal entry a position is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before it.
    Before,
    /// After it.
    After,
    /// Before all entries, whatever the key.
    Start,
    /// After all entries, whatever the key.
    End,
}

/// A position in the order of a table: what searches look for.
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
    pub(crate) fn behind_key(comparator: &KeyComparator, key: &'k [u8]) -> Self {
        Target {
            revision: 0,
            side: Side::After,
            ..Target::new(comparator, key, 0)
        }
    }

    /// The position before all entries, or after them.
    pub(crate) fn extreme(side: Side) -> Self {
        // No image is less than 0 or greater than `u64::MAX`, and an equal one is decided by the
        // side.
        let image = if side == Side::End { u64::MAX } else { 0 };
        Target {
            key: &[],
            sequence: 0,
            revision: 0,
            side,
            image,
        }
    }

    /// Whether this is before or after everything.
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

    /// The one comparison of entries in this crate: is the entry (key, sequence, revision) before
    /// or after the position? `Less`: before it.
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
        self.full_order(comparator, key, version)
    }

    /// Takes values, so that its callers keep them in registers.
    #[inline(never)]
    fn full_order(
        self,
        comparator: &KeyComparator,
        key: &[u8],
        (sequence, revision): (SequenceNumber, u32),
    ) -> Ordering {
        match self.side {
            Side::Start => return Ordering::Greater,
            Side::End => return Ordering::Less,
            Side::Before | Side::After => {}
        }
        let order = comparator.compare(key, self.key).then_with(|| {
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

    /// Both comparisons against a plain one: positions as (rank, key, age, side), entries as
    /// positions between sides.
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
                // An entry equals the position before it: that is where a search for it ends.
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
        let behind = Target::behind_key(&BYTEWISE, b"b");
        assert_eq!(behind.entry_order(&BYTEWISE, b"b", (0, 0)), Ordering::Less);
        assert_eq!(
            behind.entry_order(&BYTEWISE, b"c", (u64::MAX, u32::MAX)),
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
