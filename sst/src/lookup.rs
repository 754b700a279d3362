//! Gets: what a table says about a key at a snapshot.
//!
//! Range deletions are asked before the filter: they may delete a key that the filter denies. Any thread.

use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{Kind, SequenceNumber};

use crate::error::Result;
use crate::table::SortedTable;

/// What a table says about a key at a snapshot.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_sst::{MergeBase, SortedTable, SortedTableOptions, SortedTableWriter, TableLookup};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// writer.add(b"count", 5, Kind::MERGE, b"+2")?;
/// writer.add(b"count", 4, Kind::MERGE, b"+1")?;
/// writer.add(b"gone", 3, Kind::DELETE, b"")?;
/// writer.finish()?;
///
/// let table = SortedTable::open(&path)?;
/// let TableLookup::Merge { operands, base } = table.get(b"count", 9)? else { panic!() };
/// assert_eq!(operands, [(5, b"+2".to_vec()), (4, b"+1".to_vec())]);
/// assert_eq!(base, MergeBase::Below);                      // what they stand on is in an older table
/// assert!(matches!(table.get(b"gone", 9)?, TableLookup::Deleted { sequence: 3, .. }));
/// assert_eq!(table.get(b"gone", 2)?, TableLookup::NotFound);
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableLookup {
    /// The key has this value.
    Value {
        /// The entry's sequence number.
        sequence: SequenceNumber,
        /// A copy of the value.
        value: Vec<u8>,
    },
    /// The key is deleted. Final: older tables need not be asked.
    Deleted {
        /// The tombstone's sequence number.
        sequence: SequenceNumber,
        /// What deleted the key.
        by: DeletedBy,
    },
    /// Merge operands, newest first, and what they stand on.
    Merge {
        /// The operands, each with its sequence number.
        operands: Vec<(SequenceNumber, Vec<u8>)>,
        /// What is below the last one.
        base: MergeBase,
    },
    /// The table says nothing about the key.
    NotFound,
}

/// What merge operands stand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeBase {
    /// A value.
    Value(Vec<u8>),
    /// Nothing: the key was deleted before.
    Deleted,
    /// What older tables say.
    Below,
}

impl SortedTable {
    /// What the table says about `user_key` to a reader at `snapshot`: range deletions first, then the filter, which answers
    /// most absent keys, then the newest entry up to the snapshot. O(log blocks), and one block read and verified, more
    /// only where merge operands go on in the next one. Any thread.
    ///
    /// # Errors
    /// `Corruption` with file, offset and block; `Io`; `NotSupported`, with number and name, for an entry of a kind that is
    /// not read (blob index, wide columns, Pebble's own kinds).
    pub fn get(&self, user_key: &[u8], snapshot: SequenceNumber) -> Result<TableLookup> {
        let covering = self.covering_tombstone(user_key, snapshot)?;
        let none = match covering {
            Some(sequence) => TableLookup::Deleted { sequence, by: DeletedBy::Range },
            None => TableLookup::NotFound,
        };
        if !self.may_hold(user_key) {
            return Ok(none);
        }
        let mut cursor = self.cursor();
        // Entries of other keys may be of any kind.
        cursor.find(user_key, snapshot)?;
        let mut operands = vec![];
        while let Some(entry) = cursor.stored().filter(|entry| entry.user_key == user_key) {
            // In an ingested file range deletions have the sequence number of the entries and delete none of them.
            if covering.is_some_and(|covering| covering > entry.sequence) {
                break;
            }
            let (sequence, value) = (entry.sequence, || entry.value.to_vec());
            let deleted = |by| TableLookup::Deleted { sequence, by };
            return Ok(match entry.kind {
                Kind::MERGE => {
                    operands.push((sequence, value()));
                    cursor.step()?;
                    continue;
                }
                Kind::PUT if operands.is_empty() => TableLookup::Value { sequence, value: value() },
                Kind::PUT => TableLookup::Merge { operands, base: MergeBase::Value(value()) },
                Kind::DELETE => answer(operands, MergeBase::Deleted, deleted(DeletedBy::Point)),
                Kind::SINGLE_DELETE => answer(operands, MergeBase::Deleted, deleted(DeletedBy::Single)),
                kind => return Err(self.inner.not_read(kind)),
            });
        }
        let base = if covering.is_some() { MergeBase::Deleted } else { MergeBase::Below };
        Ok(answer(operands, base, none))
    }

    /// Looks up each of `keys`, in their order, as [`get`](Self::get) does. Damage under one key fails no other.
    pub fn multi_get(&self, keys: &[&[u8]], snapshot: SequenceNumber) -> Vec<Result<TableLookup>> {
        keys.iter().map(|key| self.get(key, snapshot)).collect()
    }
}

/// `alone` without operands, else the operands on `base`.
fn answer(operands: Vec<(SequenceNumber, Vec<u8>)>, base: MergeBase, alone: TableLookup) -> TableLookup {
    if operands.is_empty() { alone } else { TableLookup::Merge { operands, base } }
}
