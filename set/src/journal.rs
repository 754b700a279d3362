//! The trait of journals: a journal keeps the batches of a set until their tables are flushed.
//!
//! ```text
//!   switch(1)  append append append  switch(2)  append ..  in commit order, under the commit mutex
//!                  write  sync           write  sync       outside of it, one call of each a time
//!                                    flushed(2, 30)        table 1 is flushed, up to number 30
//! ```
//! Any thread may call any method. The set never has two calls of `append` or `switch` at once, nor
//! two of `write`, nor two of `sync`. No method may call the set that the journal belongs to.

#![forbid(unsafe_code)]

use paranoid_memtable::{Error, Result, SequenceNumber};

/// A journal keeps the batches of a set until their tables are flushed. The set calls `append` and
/// `switch` in commit order under its commit mutex, so `append` should only copy. Outside of the
/// mutex one thread calls `write`, and one calls `sync`, for all threads that wait. A journal
/// without a queue needs no `write`.
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
    /// Appends an encoded batch, whose header has its first sequence number. Only copies.
    ///
    /// # Errors
    /// Any error refuses the batch: the set gives its sequence numbers to the next batch. After an
    /// append that fails half-way, a journal must make sure that no recovery finds the batch, or
    /// fail every later call. [`Error::ReadOnly`] also makes the set read-only: a crash may lose
    /// batches that were appended before.
    fn append(&self, batch: &[u8]) -> Result<(), Error>;

    /// Returns a checksum over an encoded batch without its first eight bytes, the sequence number.
    /// The set calls this without any lock, and passes the checksum to
    /// [`append_checked`](Self::append_checked). A journal that needs no checksum returns 0.
    /// O(length).
    fn checksum(&self, batch: &[u8]) -> u32 {
        let _ = batch;
        0
    }

    /// Appends an encoded batch as [`append`](Self::append) does, with its
    /// [`checksum`](Self::checksum). The journal may keep the batch's memory and leave other memory
    /// of any contents in its place. Then it copies nothing under the set's commit mutex. The
    /// default calls `append`.
    ///
    /// # Errors
    /// Those of `append`. After an error `batch` is unchanged.
    fn append_checked(&self, batch: &mut Vec<u8>, checksum: u32) -> Result<(), Error> {
        let _ = checksum;
        self.append(batch)
    }

    /// Writes all batches that were appended before this call, in their order, so that the end of
    /// the process does not lose them. `switch` and `sync` do this first. The default does nothing,
    /// for a journal whose `append` writes.
    ///
    /// # Errors
    /// Any error makes the set read-only. A recovery may find a prefix of the batches.
    fn write(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes all batches durable that were appended before this call.
    ///
    /// # Errors
    /// Any error makes the set read-only. The set does not call again for the same batches.
    fn sync(&self) -> Result<(), Error>;

    /// Begins a table: later batches belong to table `table`. Table numbers ascend. A read-only set
    /// does not call this.
    ///
    /// # Errors
    /// Any error leaves the set with its active table, and refuses the batch that needed a new one.
    /// [`Error::ReadOnly`] also makes the set read-only, as in `append`.
    fn switch(&self, table: u64) -> Result<(), Error>;

    /// Removes the batches of the tables before `table`: the tables are flushed, and the engine's
    /// own version names their files, so no recovery needs the batches. A set calls
    /// [`flushed`](Self::flushed) instead.
    ///
    /// # Errors
    /// The [`Listener`](crate::Listener) gets any error. A later call must remove what this call
    /// did not.
    fn obsolete_before(&self, table: u64) -> Result<(), Error>;

    /// Reports that the tables before `table` are flushed: the engine's own version has all their
    /// batches, with numbers up to `last_sequence`. A set calls this after an install, unless a
    /// table with replayed batches is not flushed. The default calls
    /// [`obsolete_before`](Self::obsolete_before), which is right for a journal that was empty when
    /// it was opened.
    ///
    /// A journal that has batches of earlier runs must implement this method. The set does not know
    /// whether a recovery still runs: after a flush between two replayed batches, `last_sequence`
    /// is the number of the first one. So such a journal keeps everything from before its opening
    /// until both are true:
    ///
    /// - its recovery has delivered the last batch;
    /// - `last_sequence` is at least the last number of that batch.
    ///
    /// A recovery that fails or is abandoned never ends, and everything stays. A journal that wraps
    /// another one passes the call on.
    ///
    /// # Errors
    /// Those of [`obsolete_before`](Self::obsolete_before).
    fn flushed(&self, table: u64, last_sequence: SequenceNumber) -> Result<(), Error> {
        let _ = last_sequence;
        self.obsolete_before(table)
    }
}
