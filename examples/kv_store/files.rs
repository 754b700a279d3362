//! The table files of the store: the base of its set, below all tables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::read::Base;
use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::{Bytewise, Kind, Lookup, Result};
use paranoid_set::{MergeOperator, MergingCursor};
use paranoid_sst::{MergeOperands, SortedTable, SortedTableOptions, SortedTableWriter};

/// A table file. A view keeps the files that it began with, so a reader can go on in one whose name is gone.
#[derive(Debug, Clone)]
pub(crate) struct TableFile {
    pub(crate) number: u64,
    pub(crate) table: SortedTable,
}

/// Merge operands are whole numbers to be added.
pub(crate) struct Counters;

impl MergeOperator for Counters {
    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        let mut sum = 0i64;
        for number in base.iter().chain(operands) {
            let number: i64 = std::str::from_utf8(number)?.parse()?;
            sum = sum.checked_add(number).ok_or("the counter is too large")?;
        }
        Ok(sum.to_string().into_bytes())
    }
}

pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.sst"))
}

/// The number of a file that `TableFile::write` has written, or began to write under a name that ends in `.tmp`.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once(".sst")?;
    let is_own = rest.is_empty() || rest.strip_prefix('.')?.strip_suffix(".tmp")?.parse::<u16>().is_ok();
    number.parse().ok().filter(|parsed| is_own && format!("{parsed:06}") == number)
}

impl TableFile {
    pub(crate) fn open(directory: &Path, number: u64) -> Result<TableFile> {
        Ok(TableFile { number, table: SortedTable::open(path_of(directory, number))? })
    }

    /// Writes a new file. It has its name only once it is whole: synced, read back and compared.
    pub(crate) fn write(
        directory: &Path,
        number: u64,
        fill: impl FnOnce(&mut SortedTableWriter) -> Result<()>,
    ) -> Result<TableFile> {
        let path = path_of(directory, number);
        let mut writer = SortedTableWriter::create(path, SortedTableOptions::default())?;
        fill(&mut writer)?;
        writer.finish()?;
        TableFile::open(directory, number)
    }
}

/// The files as sources of a merging cursor.
pub(crate) fn sources(files: &[TableFile]) -> Vec<Box<dyn SortedSource>> {
    files.iter().map(|file| Box::new(file.table.cursor()) as Box<dyn SortedSource>).collect()
}

/// What the files, newest first, say about a key: its value, with the merge operands of newer files applied.
pub(crate) fn get(files: &[TableFile], key: &[u8], sequence: u64) -> Result<Option<Vec<u8>>> {
    let mut operands: Vec<Vec<u8>> = vec![];
    let mut value = None;
    for file in files {
        let base = match file.table.get(key, sequence)? {
            Lookup::NotFound => continue,
            Lookup::Value((_, value)) => Base::Value(value),
            Lookup::Deleted { .. } => Base::Deleted,
            Lookup::Merge(MergeOperands { operands: more, base }) => {
                operands.extend(more.into_iter().map(|(_, operand)| operand));
                base
            }
        };
        match base {
            Base::Below => continue,
            Base::Deleted => {}
            Base::Value(found) => value = Some(found),
        }
        break;
    }
    if operands.is_empty() {
        return Ok(value);
    }
    let oldest_first: Vec<&[u8]> = operands.iter().rev().map(Vec::as_slice).collect();
    let merged = Counters.merge(key, value.as_deref(), &oldest_first);
    merged.map(Some).map_err(|cause| paranoid_memtable::Error::Merge(cause.into()))
}

/// Merges all files into one: of each key what is read at these sequence numbers, with deletes and merge operands applied. A view
/// reads at another number, but in the files that it began with.
pub(crate) fn compact(
    directory: &Path,
    number: u64,
    files: &[TableFile],
    snapshots: &BTreeSet<u64>,
) -> Result<TableFile> {
    let over =
        |snapshot: &u64| (*snapshot, MergingCursor::over(Arc::new(Bytewise), *snapshot, sources(files)));
    let mut cursors: Vec<_> = snapshots.iter().map(over).collect();
    TableFile::write(directory, number, |writer| {
        for (_, cursor) in &mut cursors {
            cursor.first()?;
        }
        let keys =
            |(_, cursor): &(u64, MergingCursor<'_>)| cursor.entry().map(|entry| entry.user_key().to_vec());
        while let Some(key) = cursors.iter().filter_map(keys).min() {
            // Oldest first. Deleted is what the snapshot before saw, and this one does not see any more.
            let (mut versions, mut before) = (Vec::<(u64, Kind, Vec<u8>)>::new(), 0);
            for (snapshot, cursor) in &mut cursors {
                let last = versions.last();
                match cursor.entry().filter(|entry| entry.user_key() == key) {
                    Some(entry) => {
                        if last.is_none_or(|(sequence, ..)| *sequence != entry.sequence()) {
                            versions.push((entry.sequence(), Kind::PUT, entry.merged(&Counters)?));
                        }
                        cursor.next()?;
                    }
                    None if last.is_some_and(|(_, kind, _)| *kind == Kind::PUT) => {
                        versions.push((before + 1, Kind::DELETE, vec![]));
                    }
                    None => {}
                }
                before = *snapshot;
            }
            for (sequence, kind, value) in versions.iter().rev() {
                writer.add(&key, *sequence, *kind, value)?;
            }
        }
        Ok(())
    })
}
