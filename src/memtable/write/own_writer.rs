//! A thread's own way into a table: a writer shard that it holds, and the table.
//!
//! One thread at a time has a writer; any number of writers work on a table at once.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::batch::batch::WriteBatch;
use crate::error::Result;
use crate::key::{Bytewise, Comparator, Kind, SequenceNumber};
use crate::memtable::core::{Core, frozen};
use crate::memtable::parts::writer_shards::WriterShard;
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::write::write_batch::{BatchWritten, apply_batch, read_batch};
use crate::memtable::write::writer::{Inserted, admit, apply, with_slices, writes};

/// A thread's own way into a table: inserts that follow each other in order cost O(1). Keeps the table alive.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// let mut writer = table.writer();
/// std::thread::spawn(move || writer.put(1, b"k", b"v")).join().unwrap()?;
/// assert_eq!(table.len(), 1);
/// # Ok(()) }
/// ```
pub struct Writer<C: Comparator = Bytewise> {
    pub(crate) core: Arc<Core<C>>,
    pub(crate) shard: Arc<WriterShard>,
}

impl<C: Comparator> Writer<C> {
    pub(crate) fn new(core: &Arc<Core<C>>) -> Self {
        Writer { shard: core.shards.lease(), core: Arc::clone(core) }
    }

    /// A writer with `bytes` of arena space taken.
    pub(crate) fn reserving(core: &Arc<Core<C>>, bytes: u64) -> Result<Self> {
        // Not the control word: a damaged one counts as frozen, and the shard decides.
        if core.sealed.get().is_some() {
            return Err(frozen());
        }
        let writer = Writer::new(core);
        let mut entered = writer.shard.enter().ok_or_else(frozen)?;
        core.arena.reserve(&mut entered.inside.inserter.sub, bytes)?;
        let units = entered.inside.inserter.sub.left();
        drop(entered);
        core.arena.back(units)?;
        Ok(writer)
    }

    writes!(self: &mut Self);

    /// Inserts an entry: as [`MemTable::insert`](crate::MemTable::insert).
    ///
    /// # Errors
    /// As [`MemTable::insert`](crate::MemTable::insert).
    pub fn insert(
        &mut self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted> {
        self.write(&Fields::new(sequence, kind, key, value, None))
    }

    /// Inserts an entry whose value lies in several slices: as [`MemTable::insert_parts`](crate::MemTable::insert_parts).
    ///
    /// # Errors
    /// As [`MemTable::insert_parts`](crate::MemTable::insert_parts).
    pub fn insert_parts(
        &mut self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<Inserted> {
        with_slices((sequence, kind), key, value, None, |write| self.write(write))
    }

    #[inline(always)]
    fn write(&mut self, write: &Fields<'_>) -> Result<Inserted> {
        admit(&self.core, write)?;
        let mut entered = self.shard.enter().ok_or_else(frozen)?;
        apply(&self.core, &mut entered, write)
    }

    /// Writes the entries of a batch: as [`MemTable::write_batch`](crate::MemTable::write_batch).
    ///
    /// # Errors
    /// As [`MemTable::write_batch`](crate::MemTable::write_batch).
    pub fn write_batch(
        &mut self,
        first_sequence: SequenceNumber,
        batch: &WriteBatch,
    ) -> Result<BatchWritten> {
        let writes = read_batch(&self.core, first_sequence, batch)?;
        let mut entered = self.shard.enter().ok_or_else(frozen)?;
        apply_batch(&self.core, &mut entered, &writes)
    }
}

impl<C: Comparator> Drop for Writer<C> {
    fn drop(&mut self) {
        self.shard.release();
    }
}
