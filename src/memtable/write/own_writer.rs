//! The writer of one thread: a share in the table, and a writer shard that no other thread uses.
//!
//! A writer belongs to one thread at a time; any number of writers may write to a table at once.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::integrity::digest::{Kvo, Protected};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::{Core, frozen};
use crate::memtable::parts::writer_shards::WriterShard;
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::write::write_batch::{BatchWritten, Writes, apply_batch, read_batch};
use crate::memtable::write::writer::{Inserted, admit, apply, with_slices, writes};

/// A writer for one thread, with a splice, a sub-chunk and counters of its own: inserts in ascending order take O(1).
/// Keeps the table alive.
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
pub struct Writer {
    pub(crate) core: Arc<Core>,
    pub(crate) shard: Arc<WriterShard>,
}

impl Writer {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Writer { shard: core.shards.lease(), core: Arc::clone(core) }
    }

    /// A writer with `bytes` of arena space reserved.
    pub(crate) fn reserving(core: &Arc<Core>, bytes: u64) -> Result<Self> {
        // The control word is not used here, because a damaged one counts as frozen; the shard's gate decides.
        if core.sealed.get().is_some() {
            return Err(frozen());
        }
        let writer = Writer::new(core);
        let mut entered = core.shards.enter(&writer.shard).ok_or_else(frozen)?;
        core.arena.reserve(&mut entered.inside.inserter.sub, bytes)?;
        let units = entered.inside.inserter.sub.left();
        drop(entered);
        core.arena.back(units)?;
        Ok(writer)
    }

    writes!(self: &mut Self);

    /// Inserts an entry; see [`MemTable::insert`](crate::MemTable::insert).
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// let table = MemTable::default();
    /// let mut writer = table.writer();
    /// writer.insert(1, Kind::PUT, b"key", b"value")?;
    /// assert_eq!(table.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MemTable::insert`](crate::MemTable::insert).
    pub fn insert(
        &mut self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<Inserted> {
        self.write(&Fields::new(sequence, kind, key, value, None))
    }

    /// Inserts an entry in its general form: a value in slices, a digest of the caller; see
    /// [`MemTable::insert_parts`](crate::MemTable::insert_parts).
    ///
    /// ```
    /// use paranoid_memtable::{Kind, Lookup, MemTable};
    /// let table = MemTable::default();
    /// table.writer().insert_parts(1, Kind::PUT, b"key", &[b"head", b"body"], None)?;
    /// assert!(matches!(table.get(b"key", 1)?, Lookup::Value(value) if *value == *b"headbody"));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MemTable::insert_parts`](crate::MemTable::insert_parts).
    pub fn insert_parts(
        &mut self,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[&[u8]],
        caller_digest: Option<Protected<Kvo>>,
    ) -> Result<Inserted> {
        with_slices(sequence, kind, key, value, caller_digest, |write| self.write(write))
    }

    #[inline(always)]
    fn write(&mut self, write: &Fields<'_>) -> Result<Inserted> {
        admit(&self.core, write)?;
        let mut entered = self.core.shards.enter(&self.shard).ok_or_else(frozen)?;
        apply(&self.core, &mut entered, write)
    }

    /// Writes the entries of a batch; see [`MemTable::write_batch`](crate::MemTable::write_batch).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, WriteBatch};
    /// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
    /// batch.put(b"a", b"1")?;
    /// batch.delete(b"b")?;
    /// let written = table.writer().write_batch(7, &batch)?;
    /// assert_eq!((written.entries, table.largest_sequence()), (2, Some(8)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MemTable::write_batch`](crate::MemTable::write_batch).
    pub fn write_batch(
        &mut self,
        first_sequence: SequenceNumber,
        batch: &WriteBatch,
    ) -> Result<BatchWritten> {
        let mut writes = Writes::None;
        read_batch(&self.core, first_sequence, batch, &mut writes)?;
        let mut entered = self.core.shards.enter(&self.shard).ok_or_else(frozen)?;
        apply_batch(&self.core, &mut entered, &writes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shard.release();
    }
}
