//! Prepared and reserved batches, for an engine that logs a batch before it writes it.
//!
//! ```text
//!   prepare   read and admit the batch; nothing of the table is touched
//!   reserve   enter a shard; take arena space and index room for the largest possible entries
//!   write     numbers, then search and link, as `write_batch` does; it needs no further space
//! ```
//! Any thread; a reserved batch stays on its thread, inside its shard.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::entry_bytes_max;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::shards::writer_shard::Entered;
use crate::memtable::write::insert::enter;
use crate::memtable::write::read_batch::{LeftOut, Take, Writes, check_read, load, read_batch};
use crate::memtable::write::write_batch::{BatchWritten, apply_batch};
use crate::tombstone::capacity::Load;

/// A batch that a table has checked. [`MemTable::prepare`](crate::MemTable::prepare) returns it,
/// and [`MemTable::reserve`](crate::MemTable::reserve) takes it.
///
/// It borrows the batch, which therefore cannot change, and the handle of the table. It may be sent
/// to other threads, and written more than once.
///
/// ```
/// use paranoid_memtable::{MemTable, WriteBatch};
/// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
/// batch.put(b"a", b"1")?;
/// batch.delete(b"b")?;
/// let prepared = table.prepare(&batch)?;
/// assert_eq!(prepared.numbers(), 2);
/// assert!(prepared.bytes() <= table.remaining());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use]
pub struct PreparedBatch<'b> {
    /// The table that checked it.
    core: &'b Core,
    batch: &'b WriteBatch,
    /// The entries, numbered from `first` on.
    writes: Writes<'b>,
    left_out: LeftOut,
    first: SequenceNumber,
    /// The most arena bytes that the entries take.
    arena_bytes: u64,
    load: Load,
}

impl PreparedBatch<'_> {
    /// The number of sequence numbers that the batch takes: one per record, empty ranges included.
    /// O(1).
    #[must_use]
    pub fn numbers(&self) -> u64 {
        self.batch.len() as u64
    }

    /// The most bytes of a table's hard limit that the batch takes, for the arena and for the index
    /// of range tombstones. 0 if it has only empty ranges. O(log n).
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arena_bytes.saturating_add(self.load.bytes_max())
    }

    /// Gives the first entry this sequence number, and each further entry the next one.
    fn count_from(&mut self, first: SequenceNumber) -> Result<()> {
        self.batch
            .sequence_of((self.batch.len() as u64).saturating_sub(1), first)?;
        let by = first.wrapping_sub(std::mem::replace(&mut self.first, first));
        self.writes
            .iter_mut()
            .for_each(|write| write.sequence = write.sequence.wrapping_add(by));
        check_read(self.batch, first, black_box(&self.writes), &self.left_out)
    }

    /// Whether this table admits every batch that the checking table admits.
    fn serves(&self, core: &Core) -> bool {
        let (checked, options) = (&self.core.options, &core.options);
        options.key_len_max >= checked.key_len_max
            && options.value_len_max >= checked.value_len_max
            && options.comparator.is_same(&checked.comparator)
    }
}

/// A prepared batch with reserved space in a table. [`MemTable::reserve`](crate::MemTable::reserve)
/// returns it. If it is dropped unwritten, the table gets back the room in the index of range
/// tombstones, and later writes in the same writer shard, mostly of the same thread, use the arena
/// space.
///
/// It counts as a running write, and a freeze of the table waits for it, so keep it for a short
/// time. It stays on its thread. Meanwhile that thread may write to the table and read it. Its
/// `freeze` returns `InvalidArgument`, and it must not call `scrub`, which waits for other threads'
/// writes.
///
/// ```
/// use paranoid_memtable::{MemTable, WriteBatch};
/// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
/// batch.put(b"apple", b"red")?;
/// let mut prepared = table.prepare(&batch)?;
/// let reserved = table.reserve(&mut prepared)?;
/// // Here the engine logs the batch. If that fails, it drops `reserved`.
/// reserved.write(7)?;
/// assert!(table.get(b"apple", 7)?.value() == Some(b"red"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// # let (table, batch) = (paranoid_memtable::MemTable::default(), paranoid_memtable::WriteBatch::new());
/// # let mut prepared = table.prepare(&batch)?;
/// send(table.reserve(&mut prepared)?);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use]
pub struct ReservedBatch<'t, 'b> {
    core: &'t Core,
    entered: Entered<'t>,
    pub(crate) batch: &'t mut PreparedBatch<'b>,
}

impl ReservedBatch<'_, '_> {
    /// Writes the batch, as [`MemTable::write_batch`](crate::MemTable::write_batch) does, in the
    /// reserved space and without the checks that `prepare` has made. Expected O(n log n). Never
    /// waits. The [commit protocol](crate::guide::commit_protocol) says when readers may see the
    /// batch.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, WriteBatch};
    /// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
    /// batch.put(b"a", b"1")?;
    /// batch.delete(b"b")?;
    /// let mut prepared = table.prepare(&batch)?;
    /// let written = table.reserve(&mut prepared)?.write(7)?;
    /// assert_eq!((written.entries, table.stats().largest_sequence), (2, Some(8)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// The table is unchanged after `DuplicateEntry` (the table has an entry with the key and
    /// sequence number of an entry of the batch), `Corruption`, and `InvalidArgument` (the numbers
    /// end beyond 2^64 - 1). `BatchInterrupted` as from `write_batch`.
    ///
    /// # Panics
    /// If the comparator panics, as in `write_batch`.
    pub fn write(mut self, first_sequence: SequenceNumber) -> Result<BatchWritten> {
        self.batch.count_from(first_sequence)?;
        let PreparedBatch {
            batch,
            writes,
            left_out,
            ..
        } = &*self.batch;
        apply_batch(self.core, &mut self.entered, writes, left_out.of(batch))
    }
}

impl Drop for ReservedBatch<'_, '_> {
    /// Gives the index room back. The arena space stays in the shard, for its next writes.
    fn drop(&mut self) {
        let room = &mut self.entered.inside.index_room;
        if *room != Load::default() {
            self.core.tombstones.give_back(&self.core.arena, room);
        }
    }
}

/// Makes every check of a batch that does not depend on other writes.
#[inline]
pub(crate) fn prepare<'b>(core: &'b Core, batch: &'b WriteBatch) -> Result<PreparedBatch<'b>> {
    let mut writes = Writes::default();
    // With a first sequence number of 0, no number overflows.
    let left_out = read_batch(core, 0, batch, Take::All, &mut writes)?;
    let bytes =
        |write: &Fields<'_>| entry_bytes_max(write.key.len() as u64, write.value_len as u64);
    let arena_bytes = writes.iter().map(bytes).fold(0, u64::saturating_add);
    let load = load(&writes);
    Ok(PreparedBatch {
        core,
        batch,
        writes,
        left_out,
        first: 0,
        arena_bytes,
        load,
    })
}

/// Enters a shard and reserves the largest space that the batch can need.
#[inline(always)]
pub(crate) fn reserve<'t, 'b>(
    core: &'t Core,
    batch: &'t mut PreparedBatch<'b>,
) -> Result<ReservedBatch<'t, 'b>> {
    if !batch.serves(core) {
        return Err(Error::InvalidArgument(
            "a batch was prepared with a table of another comparator or larger limits".into(),
        ));
    }
    let mut entered = enter(core, None)?;
    core.reserve(&mut entered.inside, batch.arena_bytes, batch.load)?;
    Ok(ReservedBatch {
        core,
        entered,
        batch,
    })
}
