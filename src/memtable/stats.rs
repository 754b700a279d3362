//! `Stats`: counts of a table's entries.

#![forbid(unsafe_code)]

use crate::key::SequenceNumber;

/// Counts of a table's entries. Returned by [`TableReader::stats`](crate::TableReader::stats).
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.delete(1, b"k")?;
/// assert_eq!((table.stats().deletes, table.stats().smallest_sequence), (1, Some(1)));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Point tombstones among the entries: deletes, single deletes, and custom kinds that count as
    /// deletes.
    pub deletes: u64,
    /// Range tombstones among the entries.
    pub range_deletes: u64,
    /// Entries that another entry replaced (policy `Replace`).
    pub displaced: u64,
    /// Bytes of keys and values, without those of replaced entries.
    pub data_bytes: u64,
    /// Places of the table's memory that were damaged and put right:
    /// [`healed`](crate::TableReader::healed) returns them.
    pub healed: u64,
    /// The smallest sequence number of all entries.
    pub smallest_sequence: Option<SequenceNumber>,
    /// The largest sequence number of all entries.
    pub largest_sequence: Option<SequenceNumber>,
}
