//! Writes files for ingestion: one entry per key, every sequence number 0.
//!
//! ```text
//!   first pass   range deletions of the table, cut into fragments
//!   second pass  versions of a key, newest first -> what a read returns -> put, delete or a single merge operand
//!                  covered by a range deletion of the table   left out (the file's range deletions would not hide it)
//!                  merge operands over a base                 the result of the operator, a put
//!                  several merge operands over nothing        the partial result of the operator, a merge
//!                  single delete                              a delete
//! ```
//! One owner.

use std::path::Path;

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
use paranoid_memtable::integrity::StoredProtection;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{ImmutableMemTable, Kind, SequenceNumber};

use crate::error::{Error, Result};
use crate::finish::Written;
use crate::limits::{EntryName, limits};
use crate::options::SortedTableOptions;
use crate::storage::{Disk, Storage};
use crate::writer::{Purpose, SortedTableWriter};

/// Combines merge operands as the database that ingests the file does. The thread that writes the
/// file calls it, for one key after the other. A result begins a new chain of trust: its digest is
/// computed from the result.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// use paranoid_sst::{MergeOperator, SortedTable, SortedTableOptions, ingestible};
///
/// struct Append;
/// impl MergeOperator for Append {
///     fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
///         Some([&[base.unwrap_or_default()], operands].concat().concat())
///     }
/// }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("in.sst");
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"k", b"a")?;
/// table.merge(2, b"k", b"b")?;
/// table.merge(3, b"k", b"c")?;
/// ingestible(&table.freeze()?, &path, SortedTableOptions::default(), Some(&Append))?;
/// let file = SortedTable::open(&path)?;
/// assert!(file.get(b"k", 0)?.value() == Some(b"abc"));
/// # Ok(()) }
/// ```
pub trait MergeOperator {
    /// Applies `operands` (oldest first) to `base`, which is `None` for a key without a value.
    /// `None`: the operands cannot be combined.
    fn full_merge(
        &self,
        user_key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>>;

    /// Combines `operands` (oldest first) into one operand with the same effect. `None` (default):
    /// there is no such operand.
    fn partial_merge(&self, user_key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (user_key, operands);
        None
    }
}

/// Writes a frozen table to a file for RocksDB's `IngestExternalFile`: the newest state of each
/// key, at sequence 0. Older versions are left out. The table is verified once, and twice if it
/// holds range deletions.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// use paranoid_sst::{SortedTable, SortedTableOptions, ingestible};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("in.sst");
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"a", b"old")?;
/// table.put(2, b"a", b"new")?;
/// table.put(3, b"b", b"gone")?;
/// table.delete_range(4, b"b", b"c")?;
/// let written = ingestible(&table.freeze()?, &path, SortedTableOptions::default(), None)?;
/// assert_eq!((written.entries, written.range_deletions, written.sequences), (1, 1, Some((0, 0))));
/// # Ok(()) }
/// ```
///
/// # Errors
/// `InvalidArgument`, which names the entry, for merge operands that cannot be combined and for
/// what RocksDB cannot hold; `Corruption` and `Memtable` for damage; `Io`. After an error there is
/// no file.
pub fn ingestible(
    table: &ImmutableMemTable,
    path: impl AsRef<Path>,
    options: SortedTableOptions,
    operator: Option<&dyn MergeOperator>,
) -> Result<Written> {
    ingestible_in(Disk, table, path, options, operator)
}

/// Writes a file as [`ingestible`] does, to a storage other than the machine's file system.
///
/// # Errors
/// As [`ingestible`].
pub fn ingestible_in<S: Storage>(
    storage: S,
    table: &ImmutableMemTable,
    path: impl AsRef<Path>,
    options: SortedTableOptions,
    operator: Option<&dyn MergeOperator>,
) -> Result<Written> {
    let mut ranges = Ranges::default();
    if table.stats().range_deletes > 0 {
        table.flush(Versions::SeenBy(&[]), &mut ranges)?;
    }
    let writer = SortedTableWriter::begin(storage, path.as_ref(), options, Purpose::Ingestible)?;
    let mut sink = Newest {
        writer,
        ranges,
        at: 0,
        operator,
        key: None,
        refused: None,
    };
    if let Err(error) = table.flush(Versions::SeenBy(&[]), &mut sink) {
        return Err(sink.refused.unwrap_or_else(|| error.into()));
    }
    sink.end_key()?;
    sink.writer.finish()
}

/// The fragments of a table: start, end, newest sequence number. They ascend and do not overlap.
#[derive(Debug, Default)]
struct Ranges(Vec<(Vec<u8>, Vec<u8>, SequenceNumber)>);

impl FlushSink for Ranges {
    fn entry(&mut self, _: FlushEntry<'_>) -> std::result::Result<(), SinkError> {
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError> {
        self.0.push((
            fragment.start().to_vec(),
            fragment.end().to_vec(),
            fragment.newest(),
        ));
        Ok(())
    }
}

/// The key whose versions are being read.
#[derive(Debug)]
struct Current {
    user_key: Vec<u8>,
    /// Merge operands, newest first.
    operands: Vec<Vec<u8>>,
    /// Sequence number and digests of the newest operand.
    newest: (SequenceNumber, StoredProtection),
    answered: bool,
}

/// Reduces the versions of each key to one entry.
struct Newest<'a, S: Storage> {
    writer: SortedTableWriter<S>,
    ranges: Ranges,
    /// The first fragment that does not end before the current key.
    at: usize,
    operator: Option<&'a dyn MergeOperator>,
    key: Option<Current>,
    /// Why this sink stopped the flush.
    refused: Option<Error>,
}

impl<S: Storage> Newest<'_, S> {
    /// Keeps the error for the caller; the error of the flush holds only its text.
    fn refuse(&mut self, error: Error) -> SinkError {
        let text = error.to_string().into();
        self.refused = Some(error);
        text
    }

    fn meet(&mut self, entry: FlushEntry<'_>) -> Result<()> {
        if self
            .key
            .as_ref()
            .is_none_or(|key| key.user_key != entry.user_key)
        {
            self.end_key()?;
            self.key = Some(Current {
                user_key: entry.user_key.to_vec(),
                operands: vec![],
                newest: (entry.sequence, entry.protection),
                answered: false,
            });
        }
        let covered = self
            .covering(entry.user_key)
            .is_some_and(|range| range > entry.sequence);
        let Some(key) = self.key.as_mut().filter(|key| !key.answered) else {
            return Ok(());
        };
        if entry.kind == Kind::MERGE && !covered {
            key.operands.push(entry.value.to_vec());
            return Ok(());
        }
        key.answered = true;
        if !covered {
            // Custom kinds are refused here, with the sequence number that they have in the table.
            let value_len = entry.value.len() as u64;
            limits().check(entry.user_key, entry.sequence, entry.kind, value_len)?;
        }
        if !key.operands.is_empty() {
            let base = (entry.kind == Kind::PUT && !covered).then_some(entry.value);
            let Some(key) = self.key.take() else {
                return Ok(());
            };
            self.merge_over(&key, base)?;
            self.key = Some(key);
            return Ok(());
        }
        if covered {
            return Ok(());
        }
        let kind = if entry.kind == Kind::SINGLE_DELETE {
            Kind::DELETE
        } else {
            entry.kind
        };
        let protection = entry
            .protection
            .rewritten((entry.sequence, entry.kind), (0, kind));
        self.writer.add_entry(FlushEntry {
            sequence: 0,
            kind,
            protection,
            ..entry
        })
    }

    /// The newest range deletion of the table over a key. Keys must ascend from call to call.
    fn covering(&mut self, user_key: &[u8]) -> Option<SequenceNumber> {
        let ranges = &self.ranges.0;
        while ranges
            .get(self.at)
            .is_some_and(|(_, end, _)| end.as_slice() <= user_key)
        {
            self.at += 1;
        }
        let (start, _, sequence) = ranges.get(self.at)?;
        (start.as_slice() <= user_key).then_some(*sequence)
    }

    /// Ends the current key. The operands that are left have no base in this table.
    fn end_key(&mut self) -> Result<()> {
        let Some(key) = self.key.take().filter(|key| !key.answered) else {
            return Ok(());
        };
        // An older range deletion of this table deletes what older tables hold, so the operands
        // have no base at all.
        if self.operator.is_some() && self.covering(&key.user_key).is_some() {
            return self.merge_over(&key, None);
        }
        let (sequence, protection) = key.newest;
        if let [value] = key.operands.as_slice() {
            let (user_key, kind) = (key.user_key.as_slice(), Kind::MERGE);
            let protection = protection.rewritten((sequence, kind), (0, kind));
            return self.writer.add_entry(FlushEntry {
                user_key,
                sequence: 0,
                kind,
                value,
                protection,
            });
        }
        let operands = key.oldest_first();
        let merged = self
            .operator
            .and_then(|operator| operator.partial_merge(&key.user_key, &operands));
        self.writer.add(
            &key.user_key,
            0,
            Kind::MERGE,
            &merged.ok_or_else(|| no_answer(&key))?,
        )
    }

    fn merge_over(&mut self, key: &Current, base: Option<&[u8]>) -> Result<()> {
        let operands = key.oldest_first();
        let merged = self
            .operator
            .and_then(|operator| operator.full_merge(&key.user_key, base, &operands));
        self.writer.add(
            &key.user_key,
            0,
            Kind::PUT,
            &merged.ok_or_else(|| no_answer(key))?,
        )
    }
}

impl Current {
    fn oldest_first(&self) -> Vec<&[u8]> {
        self.operands.iter().rev().map(Vec::as_slice).collect()
    }
}

/// The error for operands that cannot be combined. It ends the file.
#[cold]
fn no_answer(key: &Current) -> Error {
    let name = EntryName {
        user_key: &key.user_key,
        sequence: key.newest.0,
        kind: Kind::MERGE,
    };
    Error::InvalidArgument(format!(
        "entry {name}: no merge operator combines its {} operands",
        key.operands.len()
    ))
}

impl<S: Storage> FlushSink for Newest<'_, S> {
    fn entry(&mut self, entry: FlushEntry<'_>) -> std::result::Result<(), SinkError> {
        self.meet(entry).map_err(|error| self.refuse(error))
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError> {
        let added = self
            .end_key()
            .and_then(|()| self.writer.add_range(fragment.start(), fragment.end(), 0));
        added.map_err(|error| self.refuse(error))
    }
}
