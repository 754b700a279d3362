//! RocksDB's databases and table files, through `shim/table_files.cc`.
#![expect(unsafe_code, reason = "the shim's functions are foreign")]

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// Its build script compiles and links the library that the shim calls.
use librocksdb_sys as _;

use crate::work::{Entries, Keys};

/// The shim's declaration in Rust.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    pub format_version: u32,
    /// The number that footers store.
    pub checksum: u8,
    pub protection_bytes: u8,
    /// 1: each new file is read back (`paranoid_file_checks`).
    pub read_back: u8,
    /// 1: blocks are kept in a cache and verified once.
    pub cached: u8,
}

#[repr(C)]
struct FlatEntries {
    keys: *const u8,
    values: *const u8,
    sequences: *const u64,
    key_len: usize,
    value_len: usize,
    count: usize,
}

unsafe extern "C" {
    fn peers_db_open(folder: *const c_char, options: *const FileOptions) -> *mut c_void;
    fn peers_db_free(db: *mut c_void);
    fn peers_db_put(db: *mut c_void, entries: *const FlatEntries);
    fn peers_db_apply(
        db: *mut c_void,
        kind: u8,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        snapshot: u8,
    );
    fn peers_db_flush(db: *mut c_void);
    fn peers_db_ingest(db: *mut c_void, path: *const c_char, db_generated: u8);
    fn peers_db_get(db: *mut c_void, key: *const u8, key_len: usize, hash: *mut u64) -> u8;
    fn peers_reader_open(path: *const c_char, options: *const FileOptions) -> *mut c_void;
    fn peers_reader_free(reader: *mut c_void);
    fn peers_reader_all(reader: *mut c_void, count: *mut u64) -> u64;
    fn peers_reader_get(reader: *mut c_void, keys: *const u8, key_len: usize, count: usize) -> u64;
    fn peers_reader_scan(reader: *mut c_void) -> u64;
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without a zero byte")
}

/// A database of its own in a folder. One thread uses it.
#[derive(Debug)]
pub struct Database(*mut c_void);

impl Database {
    pub fn open(folder: &Path, options: FileOptions) -> Database {
        let folder = text(folder);
        // SAFETY: text and options live through the call.
        Database(unsafe { peers_db_open(folder.as_ptr(), &raw const options) })
    }

    /// Puts entries; in a new database their sequence numbers count up from 1.
    pub fn put(&self, entries: &Entries) {
        let flat = FlatEntries {
            keys: entries.keys.bytes.as_ptr(),
            values: entries.values.as_ptr(),
            sequences: entries.sequences.as_ptr(),
            key_len: entries.keys.len,
            value_len: entries.value_len,
            count: entries.count(),
        };
        // SAFETY: the arrays hold `count` keys and values of the stated lengths and live through the call.
        unsafe { peers_db_put(self.0, &raw const flat) }
    }

    /// One operation by its stored number. A snapshot taken after it keeps older versions.
    pub fn apply(&self, kind: u8, key: &[u8], value: &[u8], snapshot: u8) {
        let (key, key_len, value, value_len) = (key.as_ptr(), key.len(), value.as_ptr(), value.len());
        // SAFETY: both slices live through the call.
        unsafe { peers_db_apply(self.0, kind, key, key_len, value, value_len, snapshot) }
    }

    /// Flushes all that was written into a table file, and waits.
    pub fn flush(&self) {
        // SAFETY: the database is open.
        unsafe { peers_db_flush(self.0) }
    }

    /// Ingests a copy of a file; `db_generated` is 1 for a file with its own sequence numbers.
    pub fn ingest(&self, path: &Path, db_generated: u8) {
        let path = text(path);
        // SAFETY: the text lives through the call.
        unsafe { peers_db_ingest(self.0, path.as_ptr(), db_generated) }
    }

    /// The hash of a key's value.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        let mut hash = 0;
        // SAFETY: key and hash live through the call.
        let found = unsafe { peers_db_get(self.0, key.as_ptr(), key.len(), &raw mut hash) };
        (found == 1).then_some(hash)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: made by `peers_db_open`, freed once.
        unsafe { peers_db_free(self.0) }
    }
}

/// RocksDB's reader of one table file, which it maps into memory.
#[derive(Debug)]
pub struct Reader(*mut c_void);

impl Reader {
    pub fn open(path: &Path, options: FileOptions) -> Reader {
        let path = text(path);
        // SAFETY: text and options live through the call.
        Reader(unsafe { peers_reader_open(path.as_ptr(), &raw const options) })
    }

    /// Verifies blocks and counts; hash and number of all entries as they are stored.
    pub fn all(&self) -> (u64, u64) {
        let mut count = 0;
        // SAFETY: the count lives through the call.
        let hash = unsafe { peers_reader_all(self.0, &raw mut count) };
        (hash, count)
    }

    pub fn get(&self, keys: &Keys) -> u64 {
        // SAFETY: the array holds `count` keys of this length and lives through the call.
        unsafe { peers_reader_get(self.0, keys.bytes.as_ptr(), keys.len, keys.count()) }
    }

    pub fn scan(&self) -> u64 {
        // SAFETY: the reader is open.
        unsafe { peers_reader_scan(self.0) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: made by `peers_reader_open`, freed once.
        unsafe { peers_reader_free(self.0) }
    }
}
