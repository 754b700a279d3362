//! Where chunks come from: the heap for small ones, lazily committed mappings for large ones.
//!
//! Chunks start zeroed and at a cache line. Large ones are aligned to 2 MiB and, after their first 2 MiB, advised for
//! huge pages: random reads gain 15 to 40 % from them, and a table that stays small does not pay 2 MiB for one entry.

#![forbid(unsafe_code)]

use memmap2::{MmapMut, MmapOptions};

/// Size and alignment of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Chunks of at least this many bytes are mapped, smaller ones come from the heap.
const MAP_FROM: usize = 256 << 10;

/// The owner of a chunk's memory. Dropped with the arena, never earlier.
#[expect(dead_code, reason = "held for their drop, never asked")]
pub(crate) enum Memory {
    /// Zeroed words on the heap.
    Heap(Vec<u64>),
    /// An anonymous mapping.
    Mapping(MmapMut),
}

impl Memory {
    /// `bytes` zeroed bytes (a multiple of 8), or `None` if the system refuses. Returns the owner and the address of
    /// the first byte, with its provenance exposed.
    pub(crate) fn allocate(bytes: usize) -> Option<(Memory, usize)> {
        if bytes < MAP_FROM {
            let mut words = Vec::new();
            let needed = bytes / 8 + LINE / 8 - 1;
            words.try_reserve_exact(needed).ok()?;
            words.resize(needed, 0u64);
            let address = words.as_mut_ptr().expose_provenance();
            return Some((Memory::Heap(words), address.next_multiple_of(LINE)));
        }
        let mut map =
            MmapOptions::new().len(bytes.checked_add(HUGE_PAGE)?).no_reserve_swap().map_anon().ok()?;
        let start = map.as_mut_ptr().expose_provenance();
        let aligned = start.next_multiple_of(HUGE_PAGE);
        advise(&map, aligned - start, bytes);
        Some((Memory::Mapping(map), aligned))
    }
}

/// Asks for huge pages. A refusal costs speed, nothing else.
#[cfg(target_os = "linux")]
fn advise(map: &MmapMut, offset: usize, bytes: usize) {
    if bytes > 2 * HUGE_PAGE {
        let _ = map.advise_range(memmap2::Advice::HugePage, offset + HUGE_PAGE, bytes - HUGE_PAGE);
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_map: &MmapMut, _offset: usize, _bytes: usize) {}
