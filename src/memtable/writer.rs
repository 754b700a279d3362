//! The writer of one thread: a share in the table, and a writer shard that no other thread uses.
//!
//! A writer belongs to one thread at a time; any number of writers may write to a table at once.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::integrity::digest::{Kvos, Protected};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::parts::writer_shards::WriterShard;
use crate::memtable::write::write_batch::{BatchWritten, Take, write_batch};
use crate::memtable::write::writer::{Inserted, insert, insert_parts, writes};

/// A writer for one thread, with a splice, a sub-chunk and counters of its own: inserts in
/// ascending order take O(1). Keeps the table alive.
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
#[must_use]
pub struct Writer {
    pub(crate) core: Arc<Core>,
    pub(crate) shard: Arc<WriterShard>,
}

impl Writer {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Writer {
            shard: Arc::clone(core.shards.lease()),
            core: Arc::clone(core),
        }
    }

    /// A writer with `bytes` of arena space reserved.
    pub(crate) fn reserving(core: &Arc<Core>, bytes: u64) -> Result<Self> {
        // The control word is not used here, because a damaged one counts as frozen; the shard's
        // gate decides.
        if core.sealed.get().is_some() {
            return Err(Error::Frozen);
        }
        let writer = Writer::new(core);
        let mut entered = core.shards.enter(&writer.shard).ok_or(Error::Frozen)?;
        core.arena
            .reserve(&mut entered.inside.inserter.sub, bytes)?;
        let units = entered.inside.inserter.sub.left();
        drop(entered);
        core.arena.back(units)?;
        Ok(writer)
    }

    writes!(self: &mut Self, &self.core, Some(&*self.shard));
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shard.release();
    }
}
