//! RocksDB's whole write path without a log, through `shim/write_path.cc`.
#![expect(unsafe_code, reason = "the shim's functions are foreign")]

use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

// Its build script compiles and links the library that the shim calls.
use librocksdb_sys as _;

use crate::work::Entries;

unsafe extern "C" {
    fn peers_path_open(folder: *const c_char, write_buffer_size: u64, protection: u8) -> *mut c_void;
    fn peers_path_free(db: *mut c_void);
    fn peers_path_batches(
        keys: *const u8,
        key_len: usize,
        values: *const u8,
        value_len: usize,
        count: usize,
        batch: usize,
        protection: u8,
    ) -> *mut c_void;
    fn peers_path_batches_free(batches: *mut c_void);
    fn peers_path_write(db: *mut c_void, batches: *mut c_void);
}

/// A database in a folder of its own, which is removed with it.
#[derive(Debug)]
pub struct Database {
    db: *mut c_void,
    folder: PathBuf,
    protection: u8,
}

// SAFETY: any thread may write to RocksDB's databases at any time.
unsafe impl Sync for Database {}

/// Batches that the shim made. One thread writes them.
#[derive(Debug)]
pub struct Batches(*mut c_void);

impl Database {
    pub fn open(folder: &Path, write_buffer_size: u64, protection: u8) -> anyhow::Result<Database> {
        std::fs::create_dir_all(folder)?;
        let text = CString::new(folder.as_os_str().as_bytes())?;
        // SAFETY: the text lives through the call.
        let db = unsafe { peers_path_open(text.as_ptr(), write_buffer_size, protection) };
        Ok(Database { db, folder: folder.to_owned(), protection })
    }

    pub fn batches(&self, entries: &Entries, batch: usize) -> Batches {
        let (keys, values) = (&entries.keys, &entries.values);
        // SAFETY: the arrays hold `count` keys and values of the stated lengths and live through the call.
        Batches(unsafe {
            peers_path_batches(
                keys.bytes.as_ptr(),
                keys.len,
                values.as_ptr(),
                entries.value_len,
                entries.count(),
                batch,
                self.protection,
            )
        })
    }

    pub fn write(&self, batches: &Batches) {
        // SAFETY: both were made by the shim and are alive.
        unsafe { peers_path_write(self.db, batches.0) }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: made by `peers_path_open`, freed once.
        unsafe { peers_path_free(self.db) }
        // What is left of a folder below the system's own for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // SAFETY: made by `peers_path_batches`, freed once.
        unsafe { peers_path_batches_free(self.0) }
    }
}
