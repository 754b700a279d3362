//! The table files of the store: the base of its set, below all tables.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::{Bytewise, Result as TableResult};
use paranoid_set::{Level, MergeOperator};
use paranoid_sst::{SortedTable, TableCursor};

/// A result whose error may have any cause.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A table file. A view keeps the files that it began with, so a reader can continue in a file
/// whose name was removed.
#[derive(Clone)]
pub(crate) struct TableFile {
    pub(crate) number: u64,
    pub(crate) bounds: Bounds,
    pub(crate) table: SortedTable,
}

/// The first key and the end of a file.
pub(crate) type Bounds = (Vec<u8>, Bound<Vec<u8>>);

/// The base of the set: files of flushes, newest first, and below them the files of level 1, in
/// order of their keys, which do not overlap.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) flushed: Vec<TableFile>,
    pub(crate) level: Arc<[TableFile]>,
    bounds: Level,
}

impl Base {
    pub(crate) fn new(flushed: Vec<TableFile>, level: Vec<TableFile>) -> TableResult<Base> {
        Ok(Base {
            flushed,
            bounds: level_of(&level)?,
            level: level.into(),
        })
    }

    /// All files as sources of a merging cursor, newest first.
    pub(crate) fn sources(&self) -> Vec<Box<dyn SortedSource>> {
        let mut all = sources(&self.flushed);
        all.push(level_source(&self.bounds, &self.level));
        all
    }
}

/// Whether a file ends before another one begins.
pub(crate) fn is_before((_, end): &Bounds, (first, _): &Bounds) -> bool {
    match end {
        Bound::Included(last) => last < first,
        Bound::Excluded(end) => end <= first,
        Bound::Unbounded => false,
    }
}

fn level_of(files: &[TableFile]) -> TableResult<Level> {
    let bounds = files.iter().map(|file| file.bounds.clone());
    Level::new(Arc::new(Bytewise), bounds.collect::<Vec<_>>())
}

/// Files that do not overlap as one source.
fn level_source(bounds: &Level, files: &Arc<[TableFile]>) -> Box<dyn SortedSource> {
    let files = Arc::clone(files);
    let open = move |place: usize| -> TableResult<TableCursor> { Ok(files[place].table.cursor()) };
    Box::new(bounds.source(open))
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
