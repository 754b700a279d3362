//! Makes [`TableCursor`] a [`SortedSource`](paranoid_memtable::scan::SortedSource), so that a table
//! file can be a source of a set's merging cursor.
//!
//! The merging cursor asks `cover` what a file's range deletions hide. After damage the cursor is
//! at no entry: a walk shows nothing more of the file until the next seek.
//!
//! One thread at a time moves a cursor.

use std::sync::Arc;

use paranoid_memtable::scan::{Cover, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::{Comparator, Error as MemtableError, Result, SequenceNumber};

use crate::cursor::{TableCursor, TableEntry};
use crate::error::Error;

impl From<Error> for MemtableError {
    fn from(error: Error) -> Self {
        match error {
            Error::Memtable(error) => error,
            other => MemtableError::Source(Arc::new(other)),
        }
    }
}

impl SortedSource for TableCursor {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        match to {
            SourceMove::First => self.first(),
            SourceMove::Last => self.last(),
            SourceMove::Next => self.next(),
            SourceMove::Prev => self.prev(),
            SourceMove::Seek(key, sequence) => self.seek(key, sequence),
            SourceMove::SeekForPrev(key) => self.seek_for_prev(key, 0),
            SourceMove::SeekBefore(key) => self.seek_for_prev(key, SequenceNumber::MAX),
        }?;
        let here = self.entry();
        Ok(here.map(
            |TableEntry {
                 user_key,
                 sequence,
                 kind,
                 ..
             }| SourceKey {
                user_key,
                sequence,
                kind,
            },
        ))
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        value.extend_from_slice(self.entry().map_or(&[], |entry| entry.value));
        Ok(())
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        // A file may have empty ranges, which delete nothing.
        let mut ranges = self
            .table()
            .range_tombstones()
            .filter(|(start, end, _)| start < end);
        ranges.try_for_each(|(start, end, sequence)| take(start, end, sequence))
    }

    fn cover(
        &mut self,
        _: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let covering = self.table().covering_tombstone(key, snapshot)?;
        Ok(covering.map(|sequence| Cover {
            sequence,
            span: None,
            hides_own: false,
        }))
    }

    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.table().may_hold(key))
    }
}
