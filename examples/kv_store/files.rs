//! The table files of the store: the base of its set, below all tables.

use std::path::{Path, PathBuf};

use paranoid_memtable::scan::SortedSource;
use paranoid_set::MergeOperator;
use paranoid_sst::SortedTable;

/// A result whose error may have any cause.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A table file. A view keeps the files that it began with, so a reader can continue in a file
/// whose name was removed.
#[derive(Clone)]
pub(crate) struct TableFile {
    pub(crate) number: u64,
    pub(crate) table: SortedTable,
}

/// Merge operands are whole numbers to be added.
pub(crate) struct Counters;

impl MergeOperator for Counters {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Outcome<Vec<u8>> {
        let mut sum = 0i64;
        for number in base.iter().chain(operands) {
            let number: i64 = std::str::from_utf8(number)?.parse()?;
            sum = sum.checked_add(number).ok_or("the counter is too large")?;
        }
        Ok(sum.to_string().into_bytes())
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.sst"))
}

/// The number of a file that the store has written, or began to write under a name that ends in
/// `.tmp`.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once(".sst")?;
    let is_own = rest.is_empty()
        || rest
            .strip_prefix('.')?
            .strip_suffix(".tmp")?
            .parse::<u16>()
            .is_ok();
    number
        .parse()
        .ok()
        .filter(|parsed| is_own && format!("{parsed:06}") == number)
}

/// The files as sources of a merging cursor.
pub(crate) fn sources(files: &[TableFile]) -> Vec<Box<dyn SortedSource>> {
    files
        .iter()
        .map(|file| Box::new(file.table.cursor()) as Box<dyn SortedSource>)
        .collect()
}
