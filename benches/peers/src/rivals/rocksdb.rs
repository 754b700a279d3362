//! RocksDB's own `MemTable`, through the shim: one call per slice of work.
#![expect(unsafe_code, reason = "the shim's functions are foreign")]

use std::ffi::c_void;

// Its build script compiles and links the library that the shim calls.
use librocksdb_sys as _;

use super::{Checks, Extra, Room, Table};
use crate::work::{Entries, Keys, Ranges, Task, Way, Work};

/// The shim's declaration in Rust.
#[repr(C)]
struct PeersOptions {
    write_buffer_size: u64,
    bloom_ratio: f64,
    protection_bytes: u32,
    on_seek: u8,
    order_checks: u8,
    batch_lookup: u8,
}

#[repr(C)]
struct PeersEntries {
    keys: *const u8,
    values: *const u8,
    sequences: *const u64,
    key_len: usize,
    value_len: usize,
    count: usize,
}

unsafe extern "C" {
    fn peers_new(options: *const PeersOptions) -> *mut c_void;
    fn peers_free(peer: *mut c_void);
    fn peers_memory(peer: *mut c_void, allocated: *mut u64, used: *mut u64);
    fn peers_insert(peer: *mut c_void, entries: *const PeersEntries, promise: u8, concurrent: u8) -> u64;
    fn peers_batches_new(entries: *const PeersEntries, batch: usize, protection: u8) -> *mut c_void;
    fn peers_batches_free(batches: *mut c_void);
    fn peers_batches_write(peer: *mut c_void, batches: *mut c_void) -> u64;
    fn peers_get(peer: *mut c_void, keys: *const u8, key_len: usize, count: usize) -> u64;
    fn peers_multi_get(peer: *mut c_void, keys: *const u8, key_len: usize, count: usize, batch: usize)
    -> u64;
    fn peers_seek(peer: *mut c_void, keys: *const u8, key_len: usize, count: usize, steps: usize) -> u64;
    fn peers_scan(peer: *mut c_void, key: *const u8, key_len: usize, steps: usize, backward: u8) -> u64;
    fn peers_mix(peer: *mut c_void, entries: *const PeersEntries, keys: *const u8) -> u64;
    fn peers_delete_ranges(
        peer: *mut c_void,
        starts: *const u8,
        ends: *const u8,
        sequences: *const u64,
        keys: *const u8,
        key_len: usize,
        count: usize,
    ) -> u64;
    fn peers_freeze(peer: *mut c_void);
    fn peers_checksum(kind: u8, data: *const u8, len: usize, count: usize, passes: usize) -> u64;
}

#[derive(Debug)]
pub(super) struct RocksDb {
    peer: *mut c_void,
    protection: u8,
    promise: u8,
    concurrent: u8,
}

// SAFETY: the shim passes `allow_concurrent` where threads insert side by side, and RocksDB's reads take no lock.
unsafe impl Sync for RocksDb {}

fn flat(entries: &Entries) -> PeersEntries {
    PeersEntries {
        keys: entries.keys.bytes.as_ptr(),
        values: entries.values.as_ptr(),
        sequences: entries.sequences.as_ptr(),
        key_len: entries.keys.len,
        value_len: entries.value_len,
        count: entries.count(),
    }
}

/// Batches that the shim made.
struct Batches(*mut c_void);

impl Drop for Batches {
    fn drop(&mut self) {
        // SAFETY: made by `peers_batches_new`, freed once.
        unsafe { peers_batches_free(self.0) }
    }
}

impl RocksDb {
    pub(super) fn new(checks: Checks, extra: Extra, room: Room) -> RocksDb {
        let options = PeersOptions {
            write_buffer_size: room.write_buffer(),
            bloom_ratio: if extra == Extra::Bloom { 0.015 } else { 0.0 },
            protection_bytes: checks.protection.into(),
            on_seek: checks.on_seek.into(),
            order_checks: checks.order.into(),
            batch_lookup: (extra == Extra::BatchLookup).into(),
        };
        RocksDb {
            // SAFETY: the options live through the call.
            peer: unsafe { peers_new(&raw const options) },
            protection: checks.protection,
            promise: (extra == Extra::Promise).into(),
            concurrent: (room.threads > 1).into(),
        }
    }

    fn insert(&self, entries: &Entries) -> u64 {
        let flat = flat(entries);
        // SAFETY: the arrays hold `count` keys, values and numbers of the stated lengths and live through the call.
        unsafe { peers_insert(self.peer, &raw const flat, self.promise, self.concurrent) }
    }

    fn batches(&self, entries: &Entries, batch: usize) -> Batches {
        let (flat, protection) = (flat(entries), if self.promise == 1 { self.protection } else { 0 });
        // SAFETY: as for inserts.
        Batches(unsafe { peers_batches_new(&raw const flat, batch, protection) })
    }

    fn write(&self, batches: &Batches) -> u64 {
        // SAFETY: both were made by the shim and are alive.
        unsafe { peers_batches_write(self.peer, batches.0) }
    }

    fn get(&self, keys: &Keys) -> u64 {
        // SAFETY: `bytes` holds `count` keys of `len` bytes.
        unsafe { peers_get(self.peer, keys.bytes.as_ptr(), keys.len, keys.count()) }
    }

    fn multi_get(&self, keys: &Keys, batch: usize) -> u64 {
        assert!(batch <= 32, "RocksDB splits larger batches before they reach a memtable");
        // SAFETY: as for gets; a batch has at most 32 keys.
        unsafe { peers_multi_get(self.peer, keys.bytes.as_ptr(), keys.len, keys.count(), batch) }
    }

    fn seek(&self, keys: &Keys, steps: usize) -> u64 {
        // SAFETY: as for gets.
        unsafe { peers_seek(self.peer, keys.bytes.as_ptr(), keys.len, keys.count(), steps) }
    }

    fn scan(&self, key: &Keys, steps: usize, way: Way) -> u64 {
        // SAFETY: one key of `len` bytes.
        unsafe { peers_scan(self.peer, key.bytes.as_ptr(), key.len, steps, (way == Way::Backward).into()) }
    }

    fn mix(&self, entries: &Entries, keys: &Keys) -> u64 {
        assert_eq!(keys.count(), entries.count());
        let flat = flat(entries);
        // SAFETY: as for inserts; there is a key for each entry.
        unsafe { peers_mix(self.peer, &raw const flat, keys.bytes.as_ptr()) }
    }

    fn delete_ranges(&self, ranges: &Ranges) -> u64 {
        let keys = ranges.gets.as_ref().map_or(std::ptr::null(), |keys| keys.bytes.as_ptr());
        let count = ranges.sequences.len();
        assert!(ranges.starts.count() == count && ranges.ends.count() == count);
        assert!(ranges.gets.as_ref().is_none_or(|keys| keys.count() == count));
        // SAFETY: all arrays hold `count` items, as asserted.
        unsafe {
            peers_delete_ranges(
                self.peer,
                ranges.starts.bytes.as_ptr(),
                ranges.ends.bytes.as_ptr(),
                ranges.sequences.as_ptr(),
                keys,
                ranges.starts.len,
                count,
            )
        }
    }
}

fn checksum(kind: u8, blocks: &Keys, passes: usize) -> u64 {
    // SAFETY: `bytes` holds `count` blocks of `len` bytes.
    unsafe { peers_checksum(kind, blocks.bytes.as_ptr(), blocks.len, blocks.count(), passes) }
}

impl Table for RocksDb {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) => Box::new(|| self.insert(entries)),
            Work::InsertBatches(entries, batch) => {
                let batches = self.batches(entries, batch);
                Box::new(move || self.write(&batches))
            }
            Work::Get(keys) => Box::new(|| self.get(keys)),
            Work::MultiGet(keys, batch) => Box::new(move || self.multi_get(keys, batch)),
            Work::Seek(keys, steps) => Box::new(move || self.seek(keys, steps)),
            Work::Scan(key, steps, way) => Box::new(move || self.scan(key, steps, way)),
            Work::Mix(entries, keys) => Box::new(|| self.mix(entries, keys)),
            Work::DeleteRanges(ranges) => Box::new(|| self.delete_ranges(ranges)),
            Work::Checksum(kind, blocks, passes) => Box::new(move || checksum(kind, blocks, passes)),
        })
    }

    fn counted(&self) -> Option<u64> {
        let (mut allocated, mut used) = (0, 0);
        // SAFETY: both places live through the call.
        unsafe { peers_memory(self.peer, &raw mut allocated, &raw mut used) };
        Some(used)
    }

    fn freeze(&mut self) {
        // SAFETY: nobody else uses the table: it is borrowed for writing.
        unsafe { peers_freeze(self.peer) }
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: made by `peers_new`, freed once.
        unsafe { peers_free(self.peer) }
    }
}
