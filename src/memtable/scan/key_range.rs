//! `KeyRange`: the ranges of keys that callers pass to scans.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range of keys: `..`, a standard range, or a pair of [`Bound`]s, over any `impl AsRef<[u8]>`.
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
    /// The bounds at both ends. An inverted range is empty.
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
