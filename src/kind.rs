//! The kinds of entries: put, delete, merge operand, range tombstone, and the kinds of the engine.

#![forbid(unsafe_code)]

use std::fmt;

/// The kind of an entry: a put, a delete, a merge operand and so on. Numbers from 0x80 up belong to
/// the engine: below 0xc0 they read as values ([`Kind::custom`]), from there on as point tombstones
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

    /// Number of custom kinds that read as values, and of those that count as deletes: each has the
    /// numbers 0 to 63.
    pub const CUSTOM_COUNT: u8 = 0x40;
    /// The first of the engine's numbers that count as deletes.
    const FIRST_CUSTOM_DELETE: Kind = Kind(0xc0);

    /// The engine's own kind `number`, which reads as a value: `get` answers `Value` with this
    /// kind. Examples are the address of a blob, a wide-column entity, and a value that expires.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// const BLOB: Kind = Kind::custom(3);
    /// let table = MemTable::default();
    /// table.insert(1, BLOB, b"k", b"file 9, offset 4096")?;
    /// let value = table.get(b"k", 1)?.into_value().expect("it was written");
    /// assert!(value.kind() == BLOB && value == b"file 9, offset 4096");
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
    /// - [`deletes`](crate::Stats::deletes) counts its entries;
    /// - `get` answers `Deleted` by [`DeletedBy::Custom`](crate::read::DeletedBy::Custom);
    /// - newer merge operands apply to a deleted key;
    /// - cursors at a snapshot skip the key.
    ///
    /// Unlike a `DELETE`, its entries may have a value, such as the time of the deletion. Cursors
    /// over all versions and [`get_entry`](crate::TableReader::get_entry) show the value.
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

    /// The kind with this number. Every number is a kind; [`Kind::is_known`] returns whether tables
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

    /// Whether a table takes entries of this kind. A write of another kind is `InvalidArgument`.
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
