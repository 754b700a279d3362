//! The flush thread of a set: it flushes each table that is sealed, by a function of the engine.
//!
//! ```text
//!   waits until a table is sealed or the manager asks for the active one, and flushes all of them
//!     a flush fails, or its job is dropped    waits until `retry`; writers do not wait for it
//!     a panic                                 ends; `close` returns the error
//!     close, drop                             ends after the flush under way
//! ```
//! Any thread. The thread keeps its set alive until it has ended.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;

use crate::flush_job::FlushJob;
use crate::shared::Shared;
use crate::thread_state::ThreadState;
use crate::write_buffer_manager::Membership;
use paranoid_memtable::{Error, Result, shown};

/// A thread that flushes the tables of one set as soon as they are sealed. Made by
/// [`start_flush_thread`](crate::MemTableSet::start_flush_thread). A drop of this handle ends the
/// thread after the flush under way; tables that are sealed later stay in the set.
///
/// ```
/// use std::sync::Mutex;
/// use paranoid_memtable::{Error, WriteBatch};
/// use paranoid_set::{FlushThread, MemTableSet, SetOptions};
/// # fn main() -> Result<(), Error> {
/// let set = MemTableSet::open(SetOptions::default(), 0)?;
/// let (done, flushed) = std::sync::mpsc::channel();
/// let thread: FlushThread = set.start_flush_thread(move |mut job| {
///     let mut items = job.items()?;
///     while let Some(_item) = items.next()? {} // into a file
///     drop(items);
///     let last = job.last_sequence();
///     job.install(|_| Ok(last))?;
///     done.send(last).map_err(|error| Error::Sink(std::sync::Arc::new(error)))
/// })?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write(&batch)?;
/// set.switch()?;
/// assert_eq!(flushed.recv(), Ok(1));
/// thread.close()?;
/// assert_eq!(**set.view().base(), 1);
/// # Ok(()) }
/// ```
pub struct FlushThread {
    set: Arc<Membership>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl FlushThread {
    /// Starts the thread.
    pub(crate) fn start<B>(
        shared: &Arc<Shared<B>>,
        mut flush: impl FnMut(FlushJob<B>) -> Result<()> + Send + 'static,
    ) -> Result<Self>
    where
        B: Send + Sync + 'static,
    {
        shared.buffers.begin_thread()?;
        let of_thread = Arc::clone(shared);
        let run = move || {
            let set = &*of_thread.buffers;
            let _gone = Gone(set);
            set.change_thread(ThreadState::run);
            while set.wait_for_work() {
                let flushed =
                    FlushJob::begin(&of_thread).and_then(|job| job.map_or(Ok(()), &mut flush));
                set.change_thread(|thread| thread.end_work(flushed));
            }
            set.thread_error().map_or(Ok(()), Err)
        };
        let spawned = thread::Builder::new()
            .name("memtable flush".into())
            .spawn(run);
        let thread = spawned.map_err(|error| {
            drop(Gone(&shared.buffers));
            Error::io("start", "the flush thread")(error)
        })?;
        Ok(FlushThread {
            set: Arc::clone(&shared.buffers),
            thread: Some(thread),
        })
    }

    /// Makes the thread try again after a flush failed. Does nothing without an error.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let thread = set.start_flush_thread(|_job| Err(std::io::Error::other("disk full").into()))?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// set.switch()?;
    /// while thread.error().is_none() {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(set.stats().tables, 2, "nothing is lost");
    /// thread.retry(); // once there is space again
    /// assert!(matches!(thread.close(), Ok(()) | Err(Error::Io { .. })));
    /// # Ok(()) }
    /// ```
    pub fn retry(&self) {
        self.set.change_thread(ThreadState::retry);
    }

    /// The error of the last flush, until [`retry`](Self::retry).
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.set.thread_error()
    }

    /// Ends the thread after the flush under way, and waits for its end. Sealed tables whose flush
    /// has not begun stay in the set.
    ///
    /// # Errors
    /// That of the last flush if it was not tried again, and `FlushPanicked` if the engine's
    /// function panicked.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.set.change_thread(ThreadState::close);
        // The engine's function drops the handle of its own thread: the thread ends after it
        // returns.
        if thread.thread().id() == thread::current().id() {
            return Ok(());
        }
        thread.join().unwrap_or(Err(Error::FlushPanicked))
    }
}

impl Drop for FlushThread {
    fn drop(&mut self) {
        // `close` returns the error.
        let _ = self.end();
    }
}

shown! { "FlushThread": impl [] FlushThread, |thread| { "error": thread.error() } }

/// Records the end of the thread, also when its function panics. The change wakes the writers that
/// count on the thread.
struct Gone<'s>(&'s Membership);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.change_thread(ThreadState::end);
    }
}
