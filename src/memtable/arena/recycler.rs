//! Recycled memory: the large chunks of dropped arenas, kept for new ones.
//!
//! ```text
//!   an arena is dropped --put--> used --zero--> zeroed --take--> the first large chunk of a new arena
//!                        |
//!                        +--> unmapped: enough are kept, it has another size, or nobody keeps any
//! ```
//! The pages of a chunk stay backed, so a writer that touches them again does not wait for the
//! system.
//!
//! * RECYCLER-1: a chunk is handed out only after every byte that its last arena had handed out was
//!   zeroed. So it is like fresh memory (ARENA-5): a new table with the same seed finds nothing that
//!   verifies.
//! * RECYCLER-2: a chunk comes from the drop of its arena. So nothing is borrowed from it, and no
//!   pinned value is in it.
//! * RECYCLER-3: the lock is held for a few instructions: memory is zeroed and unmapped without it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::memtable::arena::chunks::first_chunk_bytes;
use crate::memtable::arena::layout::UNIT;
use crate::memtable::arena::memory::{MAPPED_MIN, Mapping, Memory};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Keeps the memory of dropped tables for new ones, which find memory backed that an earlier table
/// had touched. An engine keeps the recycler, and gives it to the options of its tables:
/// [`MemTableOptions::with_recycler`](crate::MemTableOptions::with_recycler). A table keeps none:
/// what is left when the recycler is dropped goes back to the system.
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
/// recycler.zero(); // by a thread that has time
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
    /// Number of chunks that are kept, those that are being zeroed included, and their backed
    /// bytes.
    chunks: u64,
    backed: u64,
    /// Chunks, and how many bytes from the start of each are to be zeroed.
    used: Vec<(Mapping, usize)>,
    zeroed: Vec<Mapping>,
}

impl ArenaRecycler {
    /// Keeps the memory of at most `tables_max` dropped tables with this write buffer size: of each
    /// its first large chunk, a write buffer rounded up to a power of two.
    ///
    /// # Errors
    /// `InvalidArgument` for tables with a write buffer below 256 KiB, whose memory comes from the
    /// heap, unless none are kept.
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

    /// Takes the chunk of a dropped arena that has handed out its first `used` bytes (RECYCLER-2).
    fn put(&self, mapping: Arc<Mapping>, used: usize) {
        // An arena lends it for the length of a call, so a dropped one is the only owner.
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

    /// Zeroes what dropped tables left here, so that new tables can have it. O(bytes): a call for a
    /// thread that flushes.
    pub fn zero(&self) {
        // RECYCLER-1. A call of its own, so that the lock is not held while a mapping is zeroed and
        // put back.
        let next = || self.kept.lock().used.pop();
        while let Some((mut mapping, used)) = next() {
            mapping.zero(used);
            self.kept.lock().zeroed.push(mapping);
        }
    }

    /// A zeroed chunk of so many bytes, as [`Memory::allocate`] returns it.
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

    /// Bytes of the memory that is kept, as far as the system backs it.
    #[must_use]
    pub fn backed_bytes(&self) -> u64 {
        self.kept.lock().backed
    }
}

/// A chunk of memory, zeroed: one that was kept, or a new one; `None` if the system refuses.
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

/// Puts away the memory of an arena that is being dropped, and had handed out so many units of each
/// chunk.
pub(crate) fn hand_on(
    recycler: &Weak<ArenaRecycler>,
    owners: &Mutex<Vec<Memory>>,
    used: &[AtomicU64],
) {
    let Some(recycler) = recycler.upgrade() else {
        return;
    };
    for memory in owners.lock().drain(..) {
        if let Memory::Mapping(mapping) = memory {
            // ORDERING: Relaxed: the last owner of the arena drops it, after everything that
            // writers did.
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
