//! The memory of chunks: the heap for small ones, lazily committed mappings for large ones.
//!
//! ```text
//!   a mapping    | 4 KiB pages | huge page | huge page | huge page | huge page | ..    2 MiB each
//!                |=== written, or allocated ====|--- reserved, backed -|   not touched
//! ```
//! Chunks start zeroed, and at a cache line. A large chunk is aligned to 2 MiB. From its second
//! 2 MiB on, it is advised for huge pages: random reads gain 15 to 40 % from them, and a table that
//! stays small does not pay 2 MiB for one entry.
//!
//! The system backs a page when a thread first touches it, and the insert that touches it waits.
//! `back` makes the system back reserved pages earlier. It changes no byte, so writers may write to
//! these pages at the same time. It needs Linux 5.14; elsewhere it does nothing.

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
/// Words of the heap that are zeroed by one call.
const ZEROED_AT_ONCE: usize = 128;
/// Miri does not support these mappings, so all chunks come from the heap there.
const MAP_FROM: usize = if cfg!(miri) { usize::MAX } else { MAPPED_MIN };

/// The owner of a chunk's memory, dropped with the arena.
pub(crate) enum Memory {
    /// Zeroed words on the heap.
    Heap(#[expect(dead_code, reason = "held for its drop, never read")] Vec<u64>),
    /// An anonymous mapping. Shared, so that it can be backed without a lock.
    Mapping(Arc<Mapping>),
}

/// The mapping of a chunk.
pub(crate) struct Mapping {
    map: MmapMut,
    /// Index of the chunk in its arena.
    pub(crate) chunk: usize,
    /// Offset of the chunk in the mapping, in bytes.
    start: usize,
    /// Size of the chunk.
    pub(crate) bytes: usize,
    /// Number of bytes from its start that the system has backed already, for an earlier arena.
    backed: usize,
}

impl Memory {
    /// Allocates `bytes` zeroed bytes, a multiple of 8, for a chunk. Returns the owner and the
    /// address of the first byte, with its provenance exposed; `None` if the system refuses.
    pub(crate) fn allocate(chunk: usize, bytes: usize) -> Option<(Memory, usize)> {
        if bytes < MAP_FROM {
            let needed = bytes / 8 + LINE / 8 - 1;
            let mut words = Vec::new();
            if cfg!(miri) {
                // One step for Miri, which takes seconds for the loop in `resize`.
                words = vec![0u64; needed];
            } else {
                words.try_reserve_exact(needed).ok()?;
                // Long stretches are zeroed by an instruction that takes a while to start.
                while words.len() < needed {
                    words.resize(needed.min(words.len() + ZEROED_AT_ONCE), 0u64);
                }
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
    /// Makes this the memory of a chunk. Returns the owner and the address of the first byte, with
    /// its provenance exposed.
    pub(crate) fn lend(mut self, chunk: usize) -> (Memory, usize) {
        self.chunk = chunk;
        let address = self.map.as_mut_ptr().expose_provenance() + self.start;
        (Memory::Mapping(Arc::new(self)), address)
    }

    /// Returns and remembers how many bytes the system backs, given that writers have taken the
    /// first `used` bytes. It counts whole huge pages, because the system gives those where it can.
    pub(crate) fn count_backed(&mut self, used: usize) -> u64 {
        let whole = used.min(self.bytes).next_multiple_of(HUGE_PAGE);
        self.backed = whole.min(self.bytes).max(self.backed);
        self.backed as u64
    }

    /// Zeroes the first `used` bytes of the chunk.
    pub(crate) fn zero(&mut self, used: usize) {
        self.map[self.start..][..used.min(self.bytes)].fill(0);
    }

    /// Makes the system back these bytes of the chunk now, so that no insert waits for them. It
    /// asks for one huge page at a time, so that the kernel releases its locks in between.
    pub(crate) fn back(&self, bytes: Range<usize>) {
        let (mut from, end) = (bytes.start, bytes.end.min(self.bytes));
        while from < end {
            let to = (from + 1).next_multiple_of(HUGE_PAGE).min(end);
            back(&self.map, self.start + from, to - from);
            from = to;
        }
    }
}

/// Advises the system to use huge pages. A refusal costs only speed.
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

/// Makes the system back these bytes. The kernel touches the pages, and no byte changes.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn back(map: &MmapMut, offset: usize, bytes: usize) {
    let _ = map.advise_range(memmap2::Advice::PopulateWrite, offset, bytes);
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) fn back(_map: &MmapMut, _offset: usize, _bytes: usize) {}
