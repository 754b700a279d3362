//! `Writer`: a handle for one thread that writes much, with a writer shard that no other thread
//! uses.
//!
//! A writer belongs to one thread at a time; any number of writers may write to a table at once.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::integrity::digest::{Kvos, Protected};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::shards::writer_shard::WriterShard;
use crate::memtable::write::insert::{Inserted, insert, insert_parts};
use crate::memtable::write::methods::writes;
use crate::memtable::write::read_batch::Take;
use crate::memtable::write::write_batch::{BatchWritten, write_batch};

/// A writer for one thread, with a splice, a piece of the arena and counters of its own. Inserts in
/// ascending order take O(1). A writer keeps its table alive.
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
        // The flag in the control words is not asked, because a damaged flag counts as frozen. The
        // shard's gate decides.
        if core.sealed.get().is_some() {
            return Err(Error::Frozen);
        }
        let writer = Writer::new(core);
        let mut entered = core.shards.enter(&writer.shard).ok_or(Error::Frozen)?;
        core.filters.begin(&core.arena)?;
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
