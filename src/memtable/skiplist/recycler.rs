//! Recycled memory: the large chunks of dropped arenas, kept for new ones.
//!
//! ```text
//!   an arena is dropped --put--> used --zero--> zeroed --take--> the first large chunk of a new arena
//!                        |
//!                        +--> unmapped: enough are kept, it has another size, or nobody keeps any
//! ```
//! The pages of a chunk stay backed, so a writer that touches them again does not wait for the system.
//!
//! * RECYCLER-1: a chunk is handed out only after every byte that its last arena had handed out was zeroed. So it is like
//!   fresh memory (ARENA-5): a new table with the same seed finds nothing that verifies.
//! * RECYCLER-2: a chunk comes from the drop of its arena. So nothing is borrowed from it, and no pinned value is in it.
//! * RECYCLER-3: the lock is held for a few instructions: memory is zeroed and unmapped without it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use crate::memtable::skiplist::layout::UNIT;
use crate::memtable::skiplist::memory::{Mapping, Memory};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// See the head of the file.
pub(crate) struct Recycler {
    /// Bytes of each chunk.
    chunk_bytes: usize,
    chunks_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Number of chunks that are kept, those that are being zeroed included, and their backed bytes.
    chunks: u64,
    backed: u64,
    /// Chunks, and how many bytes from the start of each are to be zeroed.
    used: Vec<(Mapping, usize)>,
    zeroed: Vec<Mapping>,
}

impl Recycler {
    /// Keeps at most `chunks_max` chunks of `chunk_bytes` each.
    pub(crate) fn new(chunk_bytes: usize, chunks_max: u64) -> Arc<Self> {
        Arc::new(Recycler { chunk_bytes, chunks_max, kept: Mutex::new(Kept::default()) })
    }

    /// Takes the chunk of a dropped arena that has handed out its first `used` bytes (RECYCLER-2).
    fn put(&self, mapping: Arc<Mapping>, used: usize) {
        // An arena lends it for the length of a call, so a dropped one is the only owner.
        let Some(mut mapping) = Arc::into_inner(mapping) else { return };
        let backed = mapping.count_backed(used);
        let mut kept = self.kept.lock();
        if mapping.bytes() == self.chunk_bytes && kept.chunks < self.chunks_max {
            kept.chunks += 1;
            kept.backed += backed;
            kept.used.push((mapping, used));
        } else {
            drop(kept);
            drop(mapping);
        }
    }

    /// Zeroes what was put here (RECYCLER-1). Called by threads that flush.
    pub(crate) fn zero(&self) {
        while let Some((mut mapping, used)) = self.take_used() {
            mapping.zero(used);
            self.kept.lock().zeroed.push(mapping);
        }
    }

    fn take_used(&self) -> Option<(Mapping, usize)> {
        self.kept.lock().used.pop()
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

    /// Backed bytes of the chunks that are kept.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.kept.lock().backed
    }
}

/// A chunk of memory, zeroed: one that was kept, or a new one; `None` if the system refuses.
pub(crate) fn take_or_allocate(
    recycler: &Weak<Recycler>,
    chunk: usize,
    bytes: usize,
) -> Option<(Memory, usize)> {
    let kept = recycler.upgrade().and_then(|recycler| recycler.take(chunk, bytes));
    kept.or_else(|| Memory::allocate(chunk, bytes))
}

/// Puts away the memory of an arena that is being dropped, and had handed out so many units of each chunk.
pub(crate) fn hand_on(recycler: &Weak<Recycler>, owners: &Mutex<Vec<Memory>>, used: &[AtomicU64]) {
    let Some(recycler) = recycler.upgrade() else { return };
    for memory in owners.lock().drain(..) {
        if let Memory::Mapping(mapping) = memory {
            // ORDERING: Relaxed: the last owner of the arena drops it, after everything that writers did.
            let units = used[mapping.chunk()].load(Ordering::Relaxed);
            recycler.put(mapping, usize::try_from(units).unwrap_or(usize::MAX).saturating_mul(UNIT));
        }
    }
}
