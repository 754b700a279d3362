//! Gets: looks up a key at a snapshot. Any thread.

use crate::error::Result;
use crate::table::SortedTable;
use paranoid_memtable::read::{Base, DeletedBy};
use paranoid_memtable::{Kind, Lookup, SequenceNumber};

/// The merge operands of a key in a table, each with its sequence number, newest first, and what
/// they apply to.
///
/// ```
/// use paranoid_memtable::{Kind, Lookup};
/// use paranoid_memtable::read::Base;
/// use paranoid_sst::{MergeOperands, SortedTable, SortedTableOptions, SortedTableWriter};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// writer.add(b"count", 5, Kind::MERGE, b"+2")?;
/// writer.add(b"count", 4, Kind::MERGE, b"+1")?;
/// writer.add(b"gone", 3, Kind::DELETE, b"")?;
/// writer.finish()?;
///
/// let table = SortedTable::open(&path)?;
/// let Lookup::Merge(MergeOperands { operands, base }) = table.get(b"count", 9)? else { panic!() };
/// assert_eq!(operands, [(5, b"+2".to_vec()), (4, b"+1".to_vec())]);
/// assert_eq!(base, Base::Below);                      // their base is in an older table
/// assert!(table.get(b"gone", 9)?.is_deleted());
/// assert!(table.get(b"gone", 2)?.found().is_none());
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOperands {
    /// The operands, newest first, each with its sequence number.
    pub operands: Vec<(SequenceNumber, Vec<u8>)>,
    /// The base that the oldest operand applies to.
    pub base: Base<Vec<u8>>,
}

/// A copy of a key's value in a table, with its sequence number.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableValue};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// writer.add(b"apple", 5, Kind::PUT, b"red")?;
/// writer.finish()?;
///
/// let table = SortedTable::open(&path)?;
/// assert!(table.get(b"apple", 9)?.value() == Some(b"red"));
/// let TableValue { sequence, bytes } = table.get(b"apple", 9)?.into_value().expect("it was put");
/// assert_eq!((sequence, &bytes[..]), (5, &b"red"[..]));
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableValue {
    /// The sequence number of the entry.
    pub sequence: SequenceNumber,
    /// The value.
    pub bytes: Vec<u8>,
}

impl AsRef<[u8]> for TableValue {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The answer for a key: copies of the value or of merge operands.
type Found = Lookup<TableValue, MergeOperands>;

impl SortedTable {
    /// Looks up `user_key` for a reader at `snapshot`, and copies the value or the operands. It
    /// asks the range deletions, then the filter, which answers most absent keys, then the newest
    /// entry up to the snapshot. O(log blocks), and one block read and verified; more blocks only
    /// if merge operands continue in the next one. Any thread.
    ///
    /// # Errors
    /// `Corruption` with file, offset and block; `Io`; `NotSupported`, with number and name, for an
    /// entry of a kind that is not read (blob index, wide columns, Pebble's own kinds).
    pub fn get(&self, user_key: impl AsRef<[u8]>, snapshot: SequenceNumber) -> Result<Found> {
        self.find(user_key.as_ref(), snapshot)
    }

    fn find(&self, user_key: &[u8], snapshot: SequenceNumber) -> Result<Found> {
        // Before the filter: a range deletion may delete a key that the filter denies.
        let covering = self.covering_tombstone(user_key, snapshot)?;
        let none = match covering {
            Some(sequence) => Lookup::Deleted {
                sequence,
                by: DeletedBy::Range,
            },
            None => Lookup::NotFound,
        };
        if !self.may_hold(user_key) {
            return Ok(none);
        }
        let mut cursor = self.cursor();
        // Entries of other keys may be of any kind.
        cursor.find(user_key, snapshot)?;
        let mut operands = vec![];
        while let Some(entry) = cursor.stored().filter(|entry| entry.user_key == user_key) {
            // In an ingested file, range deletions have the sequence number of the entries and
            // delete none of them.
            if covering.is_some_and(|covering| covering > entry.sequence) {
                break;
            }
            let (sequence, value) = (entry.sequence, || entry.value.to_vec());
            let deleted = |by| Lookup::Deleted { sequence, by };
            return Ok(match entry.kind {
                Kind::MERGE => {
                    operands.push((sequence, value()));
                    cursor.step()?;
                    continue;
                }
                Kind::PUT if operands.is_empty() => Lookup::Value(TableValue {
                    sequence,
                    bytes: value(),
                }),
                Kind::PUT => Lookup::Merge(MergeOperands {
                    operands,
                    base: Base::Value(value()),
                }),
                Kind::DELETE => answer(operands, Base::Deleted, deleted(DeletedBy::Point)),
                Kind::SINGLE_DELETE => answer(operands, Base::Deleted, deleted(DeletedBy::Single)),
                kind => return Err(self.inner.not_read(kind)),
            });
        }
        let base = if covering.is_some() {
            Base::Deleted
        } else {
            Base::Below
        };
        Ok(answer(operands, base, none))
    }

    /// Looks up each of `keys`, in their order, as [`get`](Self::get) does. Damage under one key
    /// fails no other lookup.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: SequenceNumber,
    ) -> Vec<Result<Found>> {
        keys.iter()
            .map(|key| self.find(key.as_ref(), snapshot))
            .collect()
    }
}

/// The operands on `base`, or `alone` if there are no operands.
pub(crate) fn answer(
    operands: Vec<(SequenceNumber, Vec<u8>)>,
    base: Base<Vec<u8>>,
    alone: Found,
) -> Found {
    if operands.is_empty() {
        alone
    } else {
        Lookup::Merge(MergeOperands { operands, base })
    }
}
