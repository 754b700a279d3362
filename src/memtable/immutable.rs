//! `ImmutableMemTable`: a frozen table, which answers reads and can be flushed or salvaged.
//!
//! Any number of threads may call every method at once.

#![forbid(unsafe_code)]

use std::ops::Deref;

use crate::error::Result;
use crate::memtable::lifecycle::flush::{FlushIter, FlushSummary, flush};
use crate::memtable::lifecycle::flush_sink::FlushSink;
use crate::memtable::lifecycle::salvage::{Salvage, salvage};
use crate::memtable::lifecycle::versions::Versions;
use crate::memtable::read::entry::Entry;
use crate::memtable::reader::TableReader;
use crate::memtable::scan::handle::Borrowed;
use crate::memtable::scan::range::Range;

/// A frozen table. It takes no writes, answers reads until it is dropped, and can be flushed. This
/// is a handle: its clones are the same table. Dropping the last handle takes O(chunks).
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// let frozen = table.freeze()?;
/// drop(table);
/// assert!(frozen.get(b"key", 1)?.value() == Some(b"value"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct ImmutableMemTable {
    pub(crate) reader: TableReader,
}

impl ImmutableMemTable {
    /// Passes every entry of these versions to the sink, in order and verified, then the range
    /// tombstones. Compares counts and sums with those that the freeze sealed. O(entries * log
    /// snapshots). The page [errors](crate::guide::errors) says what to do with an error.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
    /// use paranoid_memtable::tombstone::Fragment;
    /// struct Keys(Vec<Vec<u8>>);
    /// impl FlushSink for Keys {
    ///     fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
    ///         self.0.push(entry.user_key.to_vec());
    ///         Ok(())
    ///     }
    ///     fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
    ///         Ok(())
    ///     }
    /// }
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"b", b"old")?;
    /// table.put(2, b"b", b"new")?;
    /// table.put(3, b"a", b"1")?;
    /// let mut sink = Keys(Vec::new());
    /// let summary = table.freeze()?.flush(Versions::SeenBy(&[]), &mut sink)?;
    /// assert_eq!(sink.0, [b"a", b"b"]);
    /// assert_eq!((summary.entries, summary.hidden), (2, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` for the first damage found, also if sums differ (`Place::Sum`); `Sink` if the
    /// sink returns an error. The sink's output is then incomplete and must be discarded. The table
    /// is unchanged.
    pub fn flush(&self, versions: Versions<'_>, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        flush(self.core(), versions, sink)
    }

    /// A [`flush`](Self::flush) whose caller pulls one item after the other. The flush compares
    /// counts and sums at its end; only then may the caller keep its output.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_memtable::flush::{FlushItem, Versions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"k", b"value")?;
    /// let frozen = table.freeze()?;
    /// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
    /// let mut bytes = 0;
    /// while let Some(item) = flush.next()? {
    ///     if let FlushItem::Entry(entry) = item {
    ///         bytes += entry.value.len();
    ///     }
    /// }
    /// assert_eq!((bytes, flush.summary().map(|summary| summary.entries)), (5, Some(1)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the table's control words, or the start of its list, are damaged.
    pub fn flush_iter(&self, versions: Versions<'_>) -> Result<FlushIter<'_>> {
        FlushIter::new(self.core(), versions)
    }

    /// Recovers every entry that still verifies, even if links are damaged. O(arena bytes + entries
    /// log entries). The page [errors](crate::guide::errors) says when to call it.
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # use paranoid_memtable::repair::Reach;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"key", b"value")?;
    /// let frozen = table.freeze()?;
    /// let salvage = frozen.salvage();
    /// assert_eq!(salvage.entries[0].entry.user_key(), b"key");
    /// assert_eq!((salvage.reach, salvage.missing), (Reach::Arena, 0));
    /// # Ok(()) }
    /// ```
    pub fn salvage(&self) -> Salvage<'_> {
        salvage(self.core())
    }
}

/// The reading side: every read is a method of [`TableReader`].
impl Deref for ImmutableMemTable {
    type Target = TableReader;

    #[inline(always)]
    fn deref(&self) -> &TableReader {
        &self.reader
    }
}

impl<'t> IntoIterator for &'t ImmutableMemTable {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}
