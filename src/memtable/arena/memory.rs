//! The memory of chunks: the heap for small ones, lazily committed mappings for large ones.
//!
//! ```text
//!   a mapping    | 4 KiB pages | huge page | huge page | huge page | huge page |  ...      2 MiB each
//!                |=== written, or handed out ====|--- reserved, backed -|   not touched
//! ```
//! Chunks start zeroed and at a cache line. Large ones are aligned to 2 MiB and, after their first
//! 2 MiB, advised for huge pages: random reads gain 15 to 40 % from them, and a table that stays
//! small does not pay 2 MiB for one entry.
//!
//! The system backs a page when it is first touched, and the insert that touches it waits, unless
//! the page was reserved, and so backed before. Backing changes no byte, so writers may be at work
//! in these pages. Linux supports it from 5.14 on; elsewhere it does nothing, and inserts wait.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};

/// Size and alignment of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Chunks of at least this many bytes are mapped, smaller ones come from the heap.
pub(crate) const MAPPED_MIN: usize = 256 << 10;
/// Miri has no mappings without a reserve, so all are on the heap there.
const MAP_FROM: usize = if cfg!(miri) { usize::MAX } else { MAPPED_MIN };

/// The owner of a chunk's memory, dropped with the arena.
pub(crate) enum Memory {
    /// Zeroed words on the heap.
    Heap(#[expect(dead_code, reason = "held for its drop, never asked")] Vec<u64>),
    /// An anonymous mapping. Shared, so that it can be backed without a lock.
    Mapping(Arc<Mapping>),
}

/// The mapping of a chunk.
pub(crate) struct Mapping {
    map: MmapMut,
    /// The chunk, where it begins in the mapping, and its bytes.
    pub(crate) chunk: usize,
    start: usize,
    pub(crate) bytes: usize,
    /// Number of bytes from its start that the system backed for an earlier arena.
    backed: usize,
}

impl Memory {
    /// `bytes` zeroed bytes (a multiple of 8) for a chunk, or `None` if the system refuses. Returns
    /// the owner and the address of the first byte, with its provenance exposed.
    pub(crate) fn allocate(chunk: usize, bytes: usize) -> Option<(Memory, usize)> {
        if bytes < MAP_FROM {
            let needed = bytes / 8 + LINE / 8 - 1;
            let mut words = Vec::new();
            if cfg!(miri) {
                // One step of Miri, where the loop in `resize` takes seconds.
                words = vec![0u64; needed];
            } else {
                words.try_reserve_exact(needed).ok()?;
                words.resize(needed, 0u64);
            }
            let address = words.as_mut_ptr().expose_provenance();
            return Some((Memory::Heap(words), address.next_multiple_of(LINE)));
        }
        let mut map = MmapOptions::new()
            .len(bytes.checked_add(HUGE_PAGE)?)
            .no_reserve_swap()
            .map_anon()
            .ok()?;
        let address = map.as_mut_ptr().addr();
        let start = address.next_multiple_of(HUGE_PAGE) - address;
        advise(&map, start, bytes);
        Some(
            Mapping {
                map,
                chunk,
                start,
                bytes,
                backed: 0,
            }
            .lend(chunk),
        )
    }

    /// The mapping, for chunks that have one.
    pub(crate) fn mapping(&self) -> Option<&Arc<Mapping>> {
        match self {
            Memory::Heap(_) => None,
            Memory::Mapping(mapping) => Some(mapping),
        }
    }
}

impl Mapping {
    /// The owner of this memory as a chunk, and the address of the chunk's first byte, with its
    /// provenance exposed.
    pub(crate) fn lend(mut self, chunk: usize) -> (Memory, usize) {
        self.chunk = chunk;
        let address = self.map.as_mut_ptr().expose_provenance() + self.start;
        (Memory::Mapping(Arc::new(self)), address)
    }

    /// How many bytes the system backs, if writers have taken the first `used` ones: whole huge
    /// pages, because it gives those where it can.
    pub(crate) fn count_backed(&mut self, used: usize) -> u64 {
        let whole = used.min(self.bytes).next_multiple_of(HUGE_PAGE);
        self.backed = whole.min(self.bytes).max(self.backed);
        self.backed as u64
    }

    /// Zeroes the first `used` bytes of the chunk.
    pub(crate) fn zero(&mut self, used: usize) {
        self.map[self.start..][..used.min(self.bytes)].fill(0);
    }

    /// Has the system back these bytes of the chunk now, so that no insert waits for them. One huge
    /// page at a time, so that the kernel's locks are released in between.
    pub(crate) fn back(&self, bytes: Range<usize>) {
        let (mut from, end) = (bytes.start, bytes.end.min(self.bytes));
        while from < end {
            let to = (from + 1).next_multiple_of(HUGE_PAGE).min(end);
            back(&self.map, self.start + from, to - from);
            from = to;
        }
    }
}

/// Asks for huge pages. A refusal costs speed, nothing else.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, offset: usize, bytes: usize) {
    if bytes > 2 * HUGE_PAGE {
        let _ = map.advise_range(
            memmap2::Advice::HugePage,
            offset + HUGE_PAGE,
            bytes - HUGE_PAGE,
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_map: &MmapMut, _offset: usize, _bytes: usize) {}

/// The kernel touches the pages; this writes no byte.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn back(map: &MmapMut, offset: usize, bytes: usize) {
    let _ = map.advise_range(memmap2::Advice::PopulateWrite, offset, bytes);
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn back(_map: &MmapMut, _offset: usize, _bytes: usize) {}
