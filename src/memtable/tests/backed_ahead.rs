//! Memory that the system backs ahead of writers: it stays within its limits, and changes no byte.
//!
//! `/proc/self/pagemap` tells which pages are resident. Where the system cannot back memory ahead (Linux before 5.14)
//! only the upper limits are tested.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::memtable::options::MemTableOptions;
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::control_block::ControlWord;
use crate::memtable::table::MemTable;
use crate::sync::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
const AHEAD_MAX: u64 = 8 << 20;

fn table(write_buffer_size: u64) -> MemTable {
    MemTable::new(MemTableOptions::builder().write_buffer_size(write_buffer_size).build().unwrap()).unwrap()
}

/// Number of resident bytes of a chunk.
fn resident(table: &MemTable, chunk: usize) -> u64 {
    let control = &table.core().arena.control;
    let first = control.get(ControlWord::base(chunk)).unwrap() / PAGE;
    let pages = (8 * control.get(ControlWord::units(chunk)).unwrap()).div_ceil(PAGE);
    let mut map = File::open("/proc/self/pagemap").unwrap();
    map.seek(SeekFrom::Start(8 * first)).unwrap();
    let mut words = vec![0; 8 * pages as usize];
    map.read_exact(&mut words).unwrap();
    // Bit 63 of a page's word says that the page is resident.
    words.chunks_exact(8).filter(|word| word[7] & 0x80 != 0).count() as u64 * PAGE
}

/// Whether this system can back memory ahead.
fn is_supported() -> bool {
    let map = memmap2::MmapMut::map_anon(1 << 16).unwrap();
    map.advise(memmap2::Advice::PopulateWrite).is_ok()
}

fn fill(table: &MemTable, from: u64, bytes: u64) -> u64 {
    let (until, mut next) = (table.data_bytes() + bytes, from);
    while table.data_bytes() < until {
        table.put(next, &next.to_be_bytes(), &[next as u8; 1000]).unwrap();
        next += 1;
    }
    next
}

fn whole(bytes: u64) -> u64 {
    bytes.next_multiple_of(HUGE_PAGE)
}

#[test]
fn maintain_backs_no_more_than_the_table_holds() {
    let table = table(256 << 20);
    let mut next = fill(&table, 1, 50_000);
    let small = resident(&table, 1);
    table.maintain();
    assert_eq!(resident(&table, 1), small, "a small table stays as it is");
    for megabytes in [1, 2, 3, 10, 20] {
        next = fill(&table, next, megabytes << 20);
        let handed = table.core().arena.room.handed_bytes();
        let (allocated, used) = (table.allocated_bytes(), table.used_bytes());
        let before = resident(&table, 1);
        table.maintain();
        table.maintain();
        let (after, ahead) = (resident(&table, 1), handed.min(AHEAD_MAX));
        assert!(after <= whole(handed + ahead), "{after} of {handed} and {ahead}");
        assert!(after >= before);
        if is_supported() && handed >= HUGE_PAGE {
            assert!(after + HUGE_PAGE > handed + ahead, "{after} of {handed} and {ahead}");
        }
        // Memory that is only backed does not count as allocated.
        assert_eq!((table.allocated_bytes(), table.used_bytes()), (allocated, used));
    }
    table.freeze().unwrap();
    let frozen = resident(&table, 1);
    fill_is_refused(&table, next);
    table.maintain();
    assert_eq!(resident(&table, 1), frozen, "a frozen table needs nothing ahead");
}

fn fill_is_refused(table: &MemTable, sequence: u64) {
    assert!(table.put(sequence, b"late", b"").is_err());
}

#[test]
fn nothing_beyond_the_chunk_is_backed() {
    let table = table(4 << 20);
    fill(&table, 1, 7 << 19);
    assert_eq!(table.core().arena.control.get(ControlWord::base(2)).unwrap(), 0);
    table.maintain();
    // The mapping is 2 MiB larger, to be aligned.
    assert!(resident(&table, 1) <= 4 << 20);
}

#[test]
fn a_reservation_is_backed_and_nothing_beyond_it() {
    // The second one does not fit the first large chunk.
    let table = table(8 << 20);
    let mut writers = Vec::new();
    for (chunk, bytes) in [(1, 5 << 20), (2, 11 << 20)] {
        let (used, allocated) = (table.used_bytes(), table.allocated_bytes());
        writers.push(table.try_reserve(bytes).unwrap());
        let backed = resident(&table, chunk);
        assert!(backed <= whole(bytes) + HUGE_PAGE, "{backed} of {bytes}");
        assert!(!is_supported() || backed >= bytes, "{backed} of {bytes}");
        // Reserved bytes count as allocated at once, and as used once they hold entries. A writer's shard takes some
        // memory, too.
        assert!(table.allocated_bytes() - allocated >= bytes);
        assert!(table.used_bytes() - used < 64 << 10);
    }
    assert!(table.try_reserve(u64::MAX).is_err());
    assert!(table.try_reserve(0).is_ok());
}

#[test]
fn writers_may_be_at_work_where_memory_is_backed() {
    let table = table(16 << 20);
    let (over, each) = (AtomicU64::new(0), 12_000u64);
    std::thread::scope(|scope| {
        let table = &table;
        // ORDERING: Relaxed: only ends the loop.
        let maintain = || {
            while over.load(Ordering::Relaxed) == 0 {
                table.maintain()
            }
        };
        let _ = [scope.spawn(maintain), scope.spawn(maintain)];
        let writers = [0, 1, 2].map(|writer| {
            scope.spawn(move || {
                for n in (writer * each + 1)..=(writer + 1) * each {
                    table.put(n, &n.to_be_bytes(), &[n as u8; 900]).unwrap();
                }
            })
        });
        let ended = writers.map(std::thread::ScopedJoinHandle::join);
        // ORDERING: Relaxed: only ends the loop.
        over.store(1, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
    // The table outgrew its first large chunk.
    assert!(table.core().arena.control.get(ControlWord::base(2)).unwrap() != 0);
    assert!(table.scrub(|_| ()).findings.is_empty());
    for n in 1..=3 * each {
        let Lookup::Value(value) = table.get(&n.to_be_bytes(), u64::MAX).unwrap() else { panic!("{n}") };
        assert!(*value == [n as u8; 900], "{n}");
    }
}
