//! The journal of a set: where batches are kept until the tables that hold them are flushed.
//!
//! ```text
//!   switch(1)  append append append  switch(2)  append ..         under the commit mutex, in commit order
//!                  sync                     sync                  outside of it, one caller at a time
//!                                                  obsolete_before(2)     once table 1 is flushed
//! ```
//! Any thread may call any method; the set never has two calls of `append`, `switch` or `abandon` at once, nor two of
//! `sync`. No method may call the set that it belongs to.

#![forbid(unsafe_code)]

use crate::error::Error;

/// Where a set keeps its batches until the tables that hold them are flushed. The set calls `append` and `switch` in
/// commit order under its commit mutex, so they only copy; one thread calls `sync` outside of it for all that wait.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use paranoid_memtable::set::{Durability, Journal, MemTableSet, SetOptions};
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
///     fn abandon(&self, _: u64, _: u64) -> Result<(), Error> {
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
    /// Any error refuses the batch: the set gives its sequence numbers to the next one. A journal that failed half-way
    /// must make sure that a recovery does not find the batch, or fail from then on. [`Error::ReadOnly`] makes the set read-only
    /// as well: what was appended before may be lost in a crash.
    fn append(&self, batch: &[u8]) -> Result<(), Error>;

    /// Makes all that was appended before this call durable.
    ///
    /// # Errors
    /// Any error makes the set read-only. The set does not try again on what this call covered.
    fn sync(&self) -> Result<(), Error>;

    /// Batches from here on belong to table `table`. Numbers ascend. After a `sync` that failed, a resume of the set calls this
    /// first: what that sync covered is durable when this returns, or becomes so with the next sync that does not fail, so that
    /// a recovery finds a prefix. For files that means to write them anew: the system may take what it could not write for
    /// written.
    ///
    /// # Errors
    /// Any error leaves the set with its active table, and refuses the batch for which a new one was needed.
    fn switch(&self, table: u64) -> Result<(), Error>;

    /// What belongs to tables before `table` is flushed and named in the engine's own version, so that a recovery
    /// does not need it.
    ///
    /// # Errors
    /// Any error is told to the [`Listener`](crate::set::Listener) and kept for
    /// [`journal_error`](crate::set::MemTableSet::journal_error). What should be removed now must be removed by a later call.
    fn obsolete_before(&self, table: u64) -> Result<(), Error>;

    /// Sequence numbers `first..=last` were given to batches that were not acknowledged: a recovery passes over those
    /// that were appended.
    ///
    /// # Errors
    /// Any error keeps the set read-only.
    fn abandon(&self, first: u64, last: u64) -> Result<(), Error>;
}
