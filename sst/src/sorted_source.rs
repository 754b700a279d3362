//! A table file as a source of a set's merging cursor: [`TableCursor`] is a
//! [`SortedSource`](paranoid_memtable::scan::SortedSource).
//!
//! What a file's range deletions hide the merging cursor asks by `cover`. After damage the cursor stands nowhere, so a walk
//! shows nothing more of the file until the next seek.
//!
//! One thread at a time moves a cursor.

use std::sync::Arc;

use paranoid_memtable::scan::{Cover, SortedSource, SourceKey};
use paranoid_memtable::{Error as MemtableError, Result, SequenceNumber};

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

impl TableCursor {
    /// Where a move led.
    fn here(&self) -> Option<SourceKey<'_>> {
        let TableEntry { user_key, sequence, kind, .. } = self.entry()?;
        Some(SourceKey { user_key, sequence, kind })
    }
}

impl SortedSource for TableCursor {
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>> {
        TableCursor::seek(self, key, sequence)?;
        Ok(self.here())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        TableCursor::seek_for_prev(self, key, SequenceNumber::MAX)?;
        Ok(self.here())
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        TableCursor::seek_for_prev(self, key, 0)?;
        Ok(self.here())
    }

    fn first(&mut self) -> Result<Option<SourceKey<'_>>> {
        TableCursor::first(self)?;
        Ok(self.here())
    }

    fn last(&mut self) -> Result<Option<SourceKey<'_>>> {
        TableCursor::last(self)?;
        Ok(self.here())
    }

    fn next(&mut self) -> Result<Option<SourceKey<'_>>> {
        TableCursor::next(self)?;
        Ok(self.here())
    }

    fn prev(&mut self) -> Result<Option<SourceKey<'_>>> {
        TableCursor::prev(self)?;
        Ok(self.here())
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        value.extend_from_slice(self.entry().map_or(&[], |entry| entry.value));
        Ok(())
    }

    fn cover(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Cover<'_>>> {
        let covering = self.table().covering_tombstone(key, snapshot)?;
        Ok(covering.map(|sequence| Cover { sequence, span: None, hides_own: false }))
    }
}
