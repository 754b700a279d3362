//! RocksDB's own classes, through the functions of `shim/`: one module per file.
#![expect(unsafe_code, reason = "the shim's functions are foreign")]

// The build script of this crate compiles and links the library that the shim calls.
use librocksdb_sys as _;

/// RocksDB's own `MemTable`, through `shim/memtable.cc`: one call per slice of work.
pub mod memtable {
    use std::ffi::c_void;

    use crate::rivals::{Checks, Extra, Room, Table};
    use crate::work::{Entries, Keys, Ranges, Task, Way, Work};

    /// The shim's struct in Rust.
    #[repr(C)]
    struct PeersOptions {
        write_buffer_size: u64,
        bloom_ratio: f64,
        protection_bytes: u32,
        on_seek: u8,
        order_checks: u8,
        batch_lookup: u8,
        concurrent: u8,
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
        fn peers_insert(peer: *mut c_void, entries: *const PeersEntries, promise: u8) -> u64;
        fn peers_batches_new(
            entries: *const PeersEntries,
            batch: usize,
            protection: u8,
        ) -> *mut c_void;
        fn peers_batches_free(batches: *mut c_void);
        fn peers_batches_write(peer: *mut c_void, batches: *mut c_void) -> u64;
        fn peers_get(peer: *mut c_void, keys: *const u8, key_len: usize, count: usize) -> u64;
        fn peers_multi_get(
            peer: *mut c_void,
            keys: *const u8,
            key_len: usize,
            count: usize,
            batch: usize,
        ) -> u64;
        fn peers_seek(
            peer: *mut c_void,
            keys: *const u8,
            key_len: usize,
            count: usize,
            steps: usize,
        ) -> u64;
        fn peers_scan(
            peer: *mut c_void,
            key: *const u8,
            key_len: usize,
            steps: usize,
            backward: u8,
        ) -> u64;
        fn peers_mix(
            peer: *mut c_void,
            entries: *const PeersEntries,
            keys: *const u8,
            gets: usize,
        ) -> u64;
        fn peers_delete_ranges(
            peer: *mut c_void,
            starts: *const u8,
            ends: *const u8,
            sequences: *const u64,
            keys: *const u8,
            gets: usize,
            key_len: usize,
            count: usize,
        ) -> u64;
        fn peers_freeze(peer: *mut c_void);
        fn faults_put(peer: *mut c_void, entries: *const PeersEntries, promise: u8) -> i32;
        fn faults_write(peer: *mut c_void, batches: *mut c_void) -> i32;
        fn faults_get(
            peer: *mut c_void,
            key: *const u8,
            key_len: usize,
            context: *mut c_void,
            take: TakeValue,
        ) -> i32;
        fn faults_walk(
            peer: *mut c_void,
            backward: u8,
            context: *mut c_void,
            take: TakeEntry,
        ) -> i32;
        fn peers_checksum(
            kind: u8,
            data: *const u8,
            len: usize,
            count: usize,
            passes: usize,
        ) -> u64;
    }

    pub type TakeValue = unsafe extern "C" fn(*mut c_void, *const u8, usize);
    type TakeEntry = unsafe extern "C" fn(*mut c_void, *const u8, usize, u64, *const u8, usize);

    /// A user key, a sequence number, a value.
    pub type Version = (Vec<u8>, u64, Vec<u8>);

    pub unsafe extern "C" fn take_value(context: *mut c_void, value: *const u8, len: usize) {
        // SAFETY: every caller passes a vector as the context, and the shim passes a value of this
        // length.
        unsafe {
            (*context.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(value, len))
        }
    }

    unsafe extern "C" fn take_entry(
        context: *mut c_void,
        key: *const u8,
        key_len: usize,
        sequence: u64,
        value: *const u8,
        value_len: usize,
    ) {
        // SAFETY: `walk` passes such a vector as the context, and the shim passes a key and a value
        // of these lengths.
        unsafe {
            let key = std::slice::from_raw_parts(key, key_len).to_vec();
            let value = std::slice::from_raw_parts(value, value_len).to_vec();
            (*context.cast::<Vec<Version>>()).push((key, sequence, value));
        }
    }

    /// A status other than success.
    #[derive(Debug, Clone, Copy)]
    pub struct Refused;

    #[derive(Debug)]
    pub struct RocksDb {
        peer: *mut c_void,
        protection: u8,
        promise: u8,
    }

    // SAFETY: the shim passes `allow_concurrent` if the table has room for threads, and RocksDB's
    // reads take no lock.
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
    #[derive(Debug)]
    pub struct Batches(*mut c_void);

    impl Drop for Batches {
        fn drop(&mut self) {
            // SAFETY: made by `peers_batches_new`, freed once.
            unsafe { peers_batches_free(self.0) }
        }
    }

    impl RocksDb {
        pub fn new(checks: Checks, extra: Extra, room: Room) -> RocksDb {
            let options = PeersOptions {
                write_buffer_size: room.write_buffer(),
                bloom_ratio: if extra == Extra::Bloom { 0.015 } else { 0.0 },
                protection_bytes: checks.protection.into(),
                on_seek: checks.on_seek.into(),
                order_checks: checks.order.into(),
                batch_lookup: (extra == Extra::BatchLookup).into(),
                concurrent: (room.threads > 1).into(),
            };
            RocksDb {
                // SAFETY: the options live through the call.
                peer: unsafe { peers_new(&raw const options) },
                protection: checks.protection,
                promise: (extra == Extra::Promise).into(),
            }
        }

        /// Puts the first entry, with or without a caller's digest.
        pub fn put(&self, entries: &Entries, promise: u8) -> Result<(), Refused> {
            let flat = flat(entries);
            // SAFETY: as in `insert`.
            let status = unsafe { faults_put(self.peer, &raw const flat, promise) };
            if status == 0 { Ok(()) } else { Err(Refused) }
        }

        /// Writes batches of [`batches`](Self::batches).
        pub fn attempt(&self, batches: &Batches) -> Result<(), Refused> {
            // SAFETY: made by `peers_batches_new`.
            let status = unsafe { faults_write(self.peer, batches.0) };
            if status == 0 { Ok(()) } else { Err(Refused) }
        }

        /// The newest value of a key.
        pub fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
            let mut value = Vec::<u8>::new();
            let context = (&raw mut value).cast();
            // SAFETY: the key lives through the call, and so does the vector, which `take_value`
            // fills.
            match unsafe { faults_get(self.peer, key.as_ptr(), key.len(), context, take_value) } {
                0 => Ok(Some(value)),
                1 => Ok(None),
                _ => Err(Refused),
            }
        }

        /// All versions, forward (0) or backward (1).
        pub fn walk(&self, backward: u8) -> Result<Vec<Version>, Refused> {
            let mut entries = Vec::<Version>::new();
            let context = (&raw mut entries).cast();
            // SAFETY: the vector, which `take_entry` fills, lives through the call.
            match unsafe { faults_walk(self.peer, backward, context, take_entry) } {
                0 => Ok(entries),
                _ => Err(Refused),
            }
        }

        fn insert(&self, entries: &Entries) -> u64 {
            let flat = flat(entries);
            // SAFETY: the arrays hold `count` keys, values and numbers of the stated lengths and
            // live through the call.
            unsafe { peers_insert(self.peer, &raw const flat, self.promise) }
        }

        pub fn batches(&self, entries: &Entries, batch: usize) -> Batches {
            let (flat, protection) = (
                flat(entries),
                if self.promise == 1 {
                    self.protection
                } else {
                    0
                },
            );
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
            assert!(
                batch <= 32,
                "RocksDB splits larger batches before they reach a memtable"
            );
            // SAFETY: as for gets; a batch has at most 32 keys.
            unsafe {
                peers_multi_get(
                    self.peer,
                    keys.bytes.as_ptr(),
                    keys.len,
                    keys.count(),
                    batch,
                )
            }
        }

        fn seek(&self, keys: &Keys, steps: usize) -> u64 {
            // SAFETY: as for gets.
            unsafe {
                peers_seek(
                    self.peer,
                    keys.bytes.as_ptr(),
                    keys.len,
                    keys.count(),
                    steps,
                )
            }
        }

        fn scan(&self, key: &Keys, steps: usize, way: Way) -> u64 {
            // SAFETY: one key of `len` bytes.
            unsafe {
                peers_scan(
                    self.peer,
                    key.bytes.as_ptr(),
                    key.len,
                    steps,
                    (way == Way::Backward).into(),
                )
            }
        }

        fn mix(&self, entries: &Entries, keys: &Keys) -> u64 {
            let (flat, gets) = (flat(entries), keys.share(entries.count()));
            // SAFETY: as for inserts; there are `gets` keys for each entry.
            unsafe { peers_mix(self.peer, &raw const flat, keys.bytes.as_ptr(), gets) }
        }

        fn delete_ranges(&self, ranges: &Ranges) -> u64 {
            let keys = ranges
                .gets
                .as_ref()
                .map_or(std::ptr::null(), |keys| keys.bytes.as_ptr());
            let count = ranges.sequences.len();
            assert!(ranges.starts.count() == count && ranges.ends.count() == count);
            let gets = ranges.gets.as_ref().map_or(0, |keys| keys.share(count));
            // SAFETY: all arrays hold `count` items, as asserted, and `gets` keys for each of them.
            unsafe {
                peers_delete_ranges(
                    self.peer,
                    ranges.starts.bytes.as_ptr(),
                    ranges.ends.bytes.as_ptr(),
                    ranges.sequences.as_ptr(),
                    keys,
                    gets,
                    ranges.starts.len,
                    count,
                )
            }
        }
    }

    fn checksum(kind: u8, blocks: &Keys, passes: usize) -> u64 {
        // SAFETY: `bytes` holds `count` blocks of `len` bytes.
        unsafe {
            peers_checksum(
                kind,
                blocks.bytes.as_ptr(),
                blocks.len,
                blocks.count(),
                passes,
            )
        }
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
                Work::Checksum(kind, blocks, passes) => {
                    Box::new(move || checksum(kind, blocks, passes))
                }
            })
        }

        fn counted(&self) -> Option<u64> {
            let (mut allocated, mut used) = (0, 0);
            // SAFETY: both places live through the call.
            unsafe { peers_memory(self.peer, &raw mut allocated, &raw mut used) };
            Some(used)
        }

        fn freeze(&mut self) {
            // SAFETY: the table is borrowed for writing, so nothing else uses it.
            unsafe { peers_freeze(self.peer) }
        }
    }

    impl Drop for RocksDb {
        fn drop(&mut self) {
            // SAFETY: made by `peers_new`, freed once.
            unsafe { peers_free(self.peer) }
        }
    }
}

/// RocksDB's whole write path, through `shim/write_path.cc`.
pub mod write_path {
    use std::ffi::{CString, c_char, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use crate::work::{Entries, Keys};

    unsafe extern "C" {
        fn peers_path_open(
            folder: *const c_char,
            write_buffer_size: u64,
            protection: u8,
        ) -> *mut c_void;
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
        fn peers_path_write(db: *mut c_void, batches: *mut c_void, logged: u8);
        fn peers_path_put(
            db: *mut c_void,
            keys: *const u8,
            key_len: usize,
            values: *const u8,
            value_len: usize,
            count: usize,
            batch: usize,
            protection: u8,
            log: u8,
        );
        fn peers_path_get(db: *mut c_void, keys: *const u8, key_len: usize, count: usize) -> u64;
    }

    /// The state of the log for which a write waits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Log {
        Off,
        /// The log's file has the write, without a sync.
        Written,
        Synced,
    }

    /// A database in a folder of its own, which is removed with the database.
    #[derive(Debug)]
    pub struct Database {
        db: *mut c_void,
        folder: PathBuf,
        protection: u8,
        is_logged: bool,
    }

    // SAFETY: any thread may write to RocksDB's databases at any time.
    unsafe impl Sync for Database {}

    /// Batches that the shim made. One thread writes them.
    #[derive(Debug)]
    pub struct Batches(*mut c_void);

    impl Database {
        pub fn open(
            folder: &Path,
            write_buffer_size: u64,
            protection: u8,
            is_logged: bool,
        ) -> anyhow::Result<Database> {
            std::fs::create_dir_all(folder)?;
            let text = CString::new(folder.as_os_str().as_bytes())?;
            // SAFETY: the text lives through the call.
            let db = unsafe { peers_path_open(text.as_ptr(), write_buffer_size, protection) };
            Ok(Database {
                db,
                folder: folder.to_owned(),
                protection,
                is_logged,
            })
        }

        pub fn batches(&self, entries: &Entries, batch: usize) -> Batches {
            let (keys, values) = (&entries.keys, &entries.values);
            // SAFETY: the arrays hold `count` keys and values of the stated lengths and live
            // through the call.
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
            unsafe { peers_path_write(self.db, batches.0, u8::from(self.is_logged)) }
        }

        /// Writes batches of `batch` entries. Each batch is made just before it is written.
        pub fn put(&self, entries: &Entries, batch: usize, log: Log) {
            let (keys, values) = (&entries.keys, &entries.values);
            // SAFETY: the arrays hold `count` keys and values of the stated lengths and live
            // through the call.
            unsafe {
                peers_path_put(
                    self.db,
                    keys.bytes.as_ptr(),
                    keys.len,
                    values.as_ptr(),
                    entries.value_len,
                    entries.count(),
                    batch,
                    self.protection,
                    log as u8,
                )
            }
        }

        /// The hash of the newest values.
        pub fn get(&self, keys: &Keys) -> u64 {
            // SAFETY: the array holds `count` keys of this length and lives through the call.
            unsafe { peers_path_get(self.db, keys.bytes.as_ptr(), keys.len, keys.count()) }
        }
    }

    impl Drop for Database {
        fn drop(&mut self) {
            // SAFETY: made by `peers_path_open`, freed once.
            unsafe { peers_path_free(self.db) }
            // The rest of a folder in the system's temporary folder does no harm.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    impl Drop for Batches {
        fn drop(&mut self) {
            // SAFETY: made by `peers_path_batches`, freed once.
            unsafe { peers_path_batches_free(self.0) }
        }
    }
}

/// RocksDB's databases and table files, through `shim/table_files.cc`.
pub mod table_files {
    use std::ffi::{CString, c_char, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::memtable::{TakeValue, take_value};
    use crate::work::{Entries, Keys};

    /// The shim's struct in Rust.
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
        fn peers_db_add(
            db: *mut c_void,
            family: u8,
            kind: u8,
            key: *const u8,
            key_len: usize,
            value: *const u8,
            value_len: usize,
        );
        fn peers_db_write(db: *mut c_void, snapshot: u8, context: *mut c_void, take: TakeValue);
        fn peers_db_flush(db: *mut c_void);
        fn peers_db_ingest(db: *mut c_void, path: *const c_char, db_generated: u8);
        fn peers_db_get(
            db: *mut c_void,
            family: u8,
            snapshot: usize,
            key: *const u8,
            key_len: usize,
            hash: *mut u64,
        ) -> u8;
        fn peers_db_scan(db: *mut c_void, family: u8, snapshot: usize) -> u64;
        fn peers_reader_open(path: *const c_char, options: *const FileOptions) -> *mut c_void;
        fn peers_reader_free(reader: *mut c_void);
        fn peers_reader_all(reader: *mut c_void, count: *mut u64) -> u64;
        fn peers_reader_get(
            reader: *mut c_void,
            keys: *const u8,
            key_len: usize,
            count: usize,
        ) -> u64;
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

        /// Puts entries. In a new database their sequence numbers count up from 1.
        pub fn put(&self, entries: &Entries) {
            let flat = FlatEntries {
                keys: entries.keys.bytes.as_ptr(),
                values: entries.values.as_ptr(),
                sequences: entries.sequences.as_ptr(),
                key_len: entries.keys.len,
                value_len: entries.value_len,
                count: entries.count(),
            };
            // SAFETY: the arrays hold `count` keys and values of the stated lengths and live
            // through the call.
            unsafe { peers_db_put(self.0, &raw const flat) }
        }

        /// Adds an operation on a family, 0 or 1, to the next batch. `kind` is the stored number.
        pub fn add(&self, family: u8, kind: u8, key: &[u8], value: &[u8]) {
            let (key, key_len, value, value_len) =
                (key.as_ptr(), key.len(), value.as_ptr(), value.len());
            // SAFETY: both slices live through the call.
            unsafe { peers_db_add(self.0, family, kind, key, key_len, value, value_len) }
        }

        /// Writes the batch, and returns its bytes. A snapshot after it keeps older versions.
        pub fn write(&self, snapshot: u8) -> Vec<u8> {
            let mut bytes = Vec::<u8>::new();
            let context = (&raw mut bytes).cast();
            // SAFETY: the vector, which `take_value` fills, lives through the call.
            unsafe { peers_db_write(self.0, snapshot, context, take_value) }
            bytes
        }

        /// Flushes all writes into a table file, and waits.
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

        /// The hash of a key's value in a family, at the snapshot with this index, or after all of
        /// them.
        pub fn get(&self, family: u8, snapshot: usize, key: &[u8]) -> Option<u64> {
            let mut hash = 0;
            // SAFETY: key and hash live through the call.
            let found = unsafe {
                peers_db_get(
                    self.0,
                    family,
                    snapshot,
                    key.as_ptr(),
                    key.len(),
                    &raw mut hash,
                )
            };
            (found == 1).then_some(hash)
        }

        /// The hash of all keys and values of a family, as `get` sees them.
        pub fn scan(&self, family: u8, snapshot: usize) -> u64 {
            // SAFETY: the database is open.
            unsafe { peers_db_scan(self.0, family, snapshot) }
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

        /// Verifies and counts. Returns the hash and number of all entries as they are stored.
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
}
