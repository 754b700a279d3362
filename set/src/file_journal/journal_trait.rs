//! The journal of a set: where batches are kept until the tables that hold them are flushed.
//!
//! ```text
//!   switch(1)  append append append  switch(2)  append ..         under the commit mutex, in commit order
//!                  write  sync           write  sync              outside of it, one caller of each at a time
//!                                                  flushed(2, 30)         once table 1 is flushed, with batches up to number 30
//! ```
//! Any thread may call any method; the set never has two calls of `append` or `switch` at once, nor
//! two of `write` or of `sync`. No method may call the set that it belongs to.

#![forbid(unsafe_code)]

use paranoid_memtable::{Error, Result, SequenceNumber};

/// Where a set keeps its batches until the tables that hold them are flushed. The set calls
/// `append` and `switch` in commit order under its commit mutex, so an append only copies; outside
/// of it one thread calls `write`, and one `sync`, for all that wait. A journal that has no queue
/// needs no `write`.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use paranoid_set::{Durability, Journal, MemTableSet, SetOptions};
/// use paranoid_memtable::{Error, WriteBatch};
///
/// /// Keeps batches in memory.
/// #[derive(Default)]
/// struct InMemory(Mutex<Vec<Vec<u8>>>);
/// impl Journal for InMemory {
///     fn append(&self, batch: &[u8]) -> Result<(), Error> {
///         self.0.lock().expect("no panic").push(batch.to_vec());
///         Ok(())
///     }
///     fn sync(&self) -> Result<(), Error> {
///         Ok(())
///     }
///     fn switch(&self, _: u64) -> Result<(), Error> {
///         Ok(())
///     }
///     fn obsolete_before(&self, _: u64) -> Result<(), Error> {
///         Ok(())
///     }
/// }
/// # fn main() -> Result<(), Error> {
/// let journal = Arc::new(InMemory::default());
/// let set = MemTableSet::open(SetOptions::builder().journal(journal.clone()).build()?, ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write_with(&batch, Durability::Synced)?;
/// let logged = WriteBatch::from_bytes(&journal.0.lock().expect("no panic")[0])?;
/// assert_eq!((logged.sequence(), logged.len()), (1, 1));
/// # Ok(()) }
/// ```
pub trait Journal: Send + Sync {
    /// Takes the encoded batch, with its first sequence number in its header. Only copies.
    ///
    /// # Errors
    /// Any error refuses the batch: the set gives its sequence numbers to the next one. A journal
    /// that failed half-way must make sure that a recovery does not find the batch, or fail from
    /// then on. [`Error::ReadOnly`] makes the set read-only as well: what was appended before may
    /// be lost in a crash.
    fn append(&self, batch: &[u8]) -> Result<(), Error>;

    /// A checksum over an encoded batch without its first eight bytes, the sequence number. The set
    /// calls this without any lock, and passes the checksum on to
    /// [`append_checked`](Self::append_checked). 0 for a journal that needs none. O(length).
    fn checksum(&self, batch: &[u8]) -> u32 {
        let _ = batch;
        0
    }

    /// Takes the encoded batch as [`append`](Self::append) does, with its
    /// [`checksum`](Self::checksum). The journal may keep the batch's memory and leave other memory
    /// of any contents in its place, and then copies nothing under the set's commit mutex. The
    /// method calls `append` by itself.
    ///
    /// # Errors
    /// Those of `append`; `batch` is as it was then.
    fn append_checked(&self, batch: &mut Vec<u8>, checksum: u32) -> Result<(), Error> {
        let _ = checksum;
        self.append(batch)
    }

    /// Puts all that was appended before this call where the end of the process does not lose it,
    /// in the order of the appends. `switch` and `sync` do so first. The method does nothing by
    /// itself, for a journal whose `append` does it.
    ///
    /// # Errors
    /// Any error makes the set read-only. A recovery may find some of it, as a prefix.
    fn write(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes all that was appended before this call durable.
    ///
    /// # Errors
    /// Any error makes the set read-only. The set does not try again on what this call covered.
    fn sync(&self) -> Result<(), Error>;

    /// Batches from here on belong to table `table`. Numbers ascend. A set that is read-only does
    /// not call this.
    ///
    /// # Errors
    /// Any error leaves the set with its active table, and refuses the batch for which a new one
    /// was needed. [`Error::ReadOnly`] makes the set read-only as well, as that of `append` does.
    fn switch(&self, table: u64) -> Result<(), Error>;

    /// What belongs to tables before `table` is flushed and named in the engine's own version, so
    /// that a recovery does not need it. A set calls [`flushed`](Self::flushed).
    ///
    /// # Errors
    /// Any error is told to the [`Listener`](crate::Listener). What should be removed now must be
    /// removed by a later call.
    fn obsolete_before(&self, table: u64) -> Result<(), Error>;

    /// The tables before `table` are flushed: the engine's own version has every batch of theirs,
    /// all with numbers up to `last_sequence`. A set calls this after an install, unless a table
    /// that a replay wrote to is not flushed. The method calls
    /// [`obsolete_before`](Self::obsolete_before) by itself, which is right for a journal that was
    /// empty when it was opened.
    ///
    /// A journal that has batches of an earlier time must implement this method. The set does not
    /// know whether a recovery goes on: a flush between two replayed batches makes this call with
    /// the number of the first one. So such a journal keeps everything from before its opening
    /// until its recovery has delivered the last batch, and until `last_sequence` is at least the
    /// last number of that batch. A recovery that fails or is given up never ends, and everything
    /// stays. A journal that wraps another one passes the call on.
    ///
    /// # Errors
    /// Those of [`obsolete_before`](Self::obsolete_before).
    fn flushed(&self, table: u64, last_sequence: SequenceNumber) -> Result<(), Error> {
        let _ = last_sequence;
        self.obsolete_before(table)
    }
}
