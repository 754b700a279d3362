//! Recycled memory: the large chunks of dropped arenas, kept for new arenas.
//!
//! ```text
//!   an arena is dropped --put--> used --zero--> zeroed --take--> first large chunk of a new arena
//!                        |
//!                        +--> unmapped: enough are kept, its size differs, or there is no recycler
//! ```
//! The pages of a chunk stay backed, so a writer that touches them again does not wait for the
//! system.
//!
//! * RECYCLER-1: a new arena gets a chunk only after every byte that the last arena had allocated
//!   in it was zeroed. So the chunk is like fresh memory (ARENA-5), and a new table with the same
//!   seed finds nothing in it that verifies.
//!
//! Any thread. The lock is held for a few instructions: memory is zeroed and unmapped without it.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::memtable::arena::chunks::first_chunk_bytes;
use crate::memtable::arena::layout::UNIT;
use crate::memtable::arena::memory::{MAPPED_MIN, Mapping, Memory};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// A store of the memory of dropped tables, for new tables. Writers of a new table then touch pages
/// that the system has backed already, and do not wait for it. An engine keeps the recycler, and
/// passes it to the options of its tables:
/// [`MemTableOptions::with_recycler`](crate::MemTableOptions::with_recycler). Tables do not keep
/// the recycler alive: when it is dropped, the memory in it goes back to the system.
///
/// ```
/// use paranoid_memtable::{ArenaRecycler, MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let options = MemTableOptions::builder().write_buffer_size(1 << 20).build()?;
/// let recycler = ArenaRecycler::new(options.write_buffer_size(), 1)?;
/// let table = MemTable::new(options.with_recycler(&recycler))?;
/// table.put(1, b"k", &[7; 100_000])?;
/// let next = table.fork()?;
/// drop(table);
/// recycler.zero(); // on a background thread
/// assert!(recycler.backed_bytes() > 0);
/// next.put(2, b"k", &[8; 100_000])?;
/// assert_eq!(recycler.backed_bytes(), 0, "the next table has it");
/// # Ok(()) }
/// ```
pub struct ArenaRecycler {
    /// Bytes of each chunk.
    chunk_bytes: usize,
    chunks_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Number of kept chunks, including those that are being zeroed, and their backed bytes.
    chunks: u64,
    backed: u64,
    /// Chunks that are not zeroed yet, each with the number of bytes to zero from its start.
    used: Vec<(Mapping, usize)>,
    zeroed: Vec<Mapping>,
}

impl ArenaRecycler {
    /// A recycler for tables with this write buffer size. It keeps the first large chunk of at most
    /// `tables_max` dropped tables. That chunk is as large as a write buffer, rounded up to a power
    /// of two.
    ///
    /// # Errors
    /// `InvalidArgument` if that chunk is smaller than 256 KiB, and so comes from the heap, unless
    /// `tables_max` is 0.
    pub fn new(write_buffer_size: u64, tables_max: u64) -> Result<Arc<Self>> {
        let chunk_bytes = first_chunk_bytes(write_buffer_size);
        if tables_max > 0 && chunk_bytes < MAPPED_MIN {
            return Err(Error::InvalidArgument(format!(
                "memory is recycled with a write buffer of at least 256 KiB, not {write_buffer_size} bytes"
            )));
        }
        Ok(Arc::new(ArenaRecycler {
            chunk_bytes,
            chunks_max: tables_max,
            kept: Mutex::new(Kept::default()),
        }))
    }

    /// Takes a chunk of an arena that is being dropped. Writers had allocated its first `used`
    /// bytes. Nothing borrows from such a chunk, and no pinned value is in it: both keep the arena
    /// alive.
    fn put(&self, mapping: Arc<Mapping>, used: usize) {
        // An arena shares the mapping only during a call, so a dropped arena is the only owner.
        let Some(mut mapping) = Arc::into_inner(mapping) else {
            return;
        };
        let backed = mapping.count_backed(used);
        let mut kept = self.kept.lock();
        if mapping.bytes == self.chunk_bytes && kept.chunks < self.chunks_max {
            kept.chunks += 1;
            kept.backed += backed;
            kept.used.push((mapping, used));
        } else {
            drop(kept);
            drop(mapping);
        }
    }

    /// Zeroes the memory of dropped tables, so that new tables can take it. O(bytes). Call it on a
    /// background thread, such as the one that flushes.
    pub fn zero(&self) {
        // RECYCLER-1. The closure releases the lock before the mapping is zeroed and put back.
        let next = || self.kept.lock().used.pop();
        while let Some((mut mapping, used)) = next() {
            mapping.zero(used);
            self.kept.lock().zeroed.push(mapping);
        }
    }

    /// Takes a zeroed chunk of so many bytes, if one is kept, and returns it as
    /// [`Memory::allocate`] does.
    fn take(&self, chunk: usize, bytes: usize) -> Option<(Memory, usize)> {
        if bytes != self.chunk_bytes {
            return None;
        }
        let mut kept = self.kept.lock();
        let mut mapping = kept.zeroed.pop()?;
        kept.chunks -= 1;
        kept.backed -= mapping.count_backed(0);
        drop(kept);
        Some(mapping.lend(chunk))
    }

    /// Number of kept bytes that the system backs.
    #[must_use]
    pub fn backed_bytes(&self) -> u64 {
        self.kept.lock().backed
    }
}

/// A zeroed chunk, recycled or new. `None` if the system refuses the memory.
pub(crate) fn take_or_allocate(
    recycler: &Weak<ArenaRecycler>,
    chunk: usize,
    bytes: usize,
) -> Option<(Memory, usize)> {
    let kept = recycler
        .upgrade()
        .and_then(|recycler| recycler.take(chunk, bytes));
    kept.or_else(|| Memory::allocate(chunk, bytes))
}

/// Passes the mappings of an arena that is being dropped to its recycler. `used` is the number of
/// allocated units of each chunk.
pub(crate) fn recycle(
    recycler: &Weak<ArenaRecycler>,
    owners: &Mutex<Vec<Memory>>,
    used: &[AtomicU64],
) {
    let Some(recycler) = recycler.upgrade() else {
        return;
    };
    for memory in owners.lock().drain(..) {
        if let Memory::Mapping(mapping) = memory {
            // ORDERING: Relaxed: the last owner of the arena drops it, after all that its writers
            // did.
            let units = used[mapping.chunk].load(Ordering::Relaxed);
            recycler.put(
                mapping,
                usize::try_from(units)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(UNIT),
            );
        }
    }
}
