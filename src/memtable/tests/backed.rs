//! The memory that the system backs for a reservation: at least the reserved bytes, and not much
//! more.
//!
//! `/proc/self/pagemap` says which pages are resident. Where the system cannot back memory ahead
//! (Linux before 5.14), only the upper limits are tested.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::memtable::arena::chunks::SMALL;
use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::options::MemTableOptions;
use crate::memtable::table::MemTable;

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;

fn table(write_buffer_size: u64) -> MemTable {
    MemTable::new(
        MemTableOptions::builder()
            .write_buffer_size(write_buffer_size)
            .build()
            .unwrap(),
    )
    .unwrap()
}

/// The number of resident bytes of a chunk.
fn resident(table: &MemTable, chunk: usize) -> u64 {
    let control = &table.core().arena.control;
    let first = control.get(ControlWord::base(chunk)).unwrap() / PAGE;
    let pages = (8 * control.get(ControlWord::units(chunk)).unwrap()).div_ceil(PAGE);
    let mut map = File::open("/proc/self/pagemap").unwrap();
    map.seek(SeekFrom::Start(8 * first)).unwrap();
    let mut words = vec![0; 8 * pages as usize];
    map.read_exact(&mut words).unwrap();
    // Bit 63 of a page's word says that the page is resident.
    words
        .chunks_exact(8)
        .filter(|word| word[7] & 0x80 != 0)
        .count() as u64
        * PAGE
}

/// Whether this system can back memory ahead.
fn is_supported() -> bool {
    let map = memmap2::MmapMut::map_anon(1 << 16).unwrap();
    map.advise(memmap2::Advice::PopulateWrite).is_ok()
}

fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(HUGE_PAGE)
}

#[test]
fn a_reservation_is_backed_and_nothing_beyond_it() {
    // The second reservation does not fit the first large chunk.
    let table = table(8 << 20);
    let mut writers = Vec::new();
    for (chunk, bytes) in [(SMALL, 5 << 20), (SMALL + 1, 11 << 20)] {
        let (used, allocated) = (table.used_bytes(), table.allocated_bytes());
        writers.push(table.try_reserve(bytes).unwrap());
        let backed = resident(&table, chunk);
        assert!(backed <= whole(bytes) + HUGE_PAGE, "{backed} of {bytes}");
        assert!(!is_supported() || backed >= bytes, "{backed} of {bytes}");
        // Reserved bytes count as allocated at once, and as used only when they hold entries. A
        // writer's shard takes some memory too.
        assert!(table.allocated_bytes() - allocated >= bytes);
        assert!(table.used_bytes() - used < 64 << 10);
    }
    assert!(table.try_reserve(u64::MAX).is_err());
    assert!(table.try_reserve(0).is_ok());
}
