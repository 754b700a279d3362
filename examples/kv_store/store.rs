//! The store: where each piece of an engine goes.
//!
//! ```text
//!   write    batch -> journal -> active table -> visible                       MemTableSet::write_with
//!   flush    immutable tables -> one table file -> manifest -> install         FlushJob
//!   read     tables, newest first; then files, newest first                    View, files
//!   open     manifest -> files -> journal -> set; then the journal's batches   JournalRecovery::replay
//! ```
//! What is acknowledged is never lost, because each step waits for the one before: a batch is in the journal before it is
//! acknowledged; a table file is synced, read back and named before the manifest names it; the manifest is durable before
//! `install` lets the journal forget the batches. A flush that fails at any step changes nothing, and its files go.
//!
//! Any thread may call any method. A second process that opens the directory gets an error.

use std::fs::{self, File, OpenOptions};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use paranoid_memtable::{Error, MemTableOptions, Result, WriteBatch};
use paranoid_set::{Durability, FileJournal, MemTableSet, SetOptions};

use crate::files::{self, Counters, TableFile, number_of, path_of};
use crate::manifest::{Manifest, io_error, sync_directory};

/// Tables that are not flushed, the active one included. A write beyond waits for a flush.
const TABLES_MAX: u64 = 4;
/// A flush that makes more files merges all of them.
const FILES_MAX: usize = 6;

/// A durable, ordered map from keys to values and counters.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// The tables, and below them the files, newest first.
    set: MemTableSet<Vec<TableFile>>,
    durability: Durability,
    next_file: AtomicU64,
    /// Held by the thread that flushes. An error is that of a manifest that may be on the disk or not: nobody knows then which files
    /// it names, and there is no flush any more.
    flushing: Mutex<Result<()>>,
    /// Keeps other processes out, until this one ends at the latest.
    _lock: File,
}

impl Store {
    /// Opens the store of a directory, or makes one. With `Durability::Synced` what is acknowledged survives a crash of
    /// the machine; with `Buffered` the end of the process.
    pub(crate) fn open(directory: &Path, write_buffer: u64, durability: Durability) -> Result<Store> {
        if !directory.is_dir() {
            fs::create_dir_all(directory).map_err(io_error("create", directory))?;
            sync_directory(directory.parent().filter(|it| it.is_dir()).unwrap_or(Path::new(".")))?;
        }
        let lock_path = directory.join("LOCK");
        let lock = OpenOptions::new().create(true).read(true).append(true).open(&lock_path);
        let lock = lock.map_err(io_error("open", &lock_path))?;
        lock.try_lock().map_err(|error| io_error("lock", &lock_path)(error.into()))?;
        let manifest = Manifest::open(directory, &lock_path)?;
        let files = manifest.files.iter().map(|number| TableFile::open(directory, *number));
        let files = files.collect::<Result<Vec<_>>>()?;
        let last_file = remove_leftovers(directory, &files)?;
        let (journal, recovery) = FileJournal::open(directory, manifest.last_sequence)?;
        let options = SetOptions::builder()
            .table(MemTableOptions::builder().write_buffer_size(write_buffer).build()?)
            .max_write_buffer_number(TABLES_MAX)
            .last_sequence(manifest.last_sequence)
            .first_table(journal.next_table())
            .journal(Arc::new(journal))
            .build()?;
        let set = MemTableSet::open(options, files)?;
        let (directory, flushing) = (directory.to_path_buf(), Mutex::new(Ok(())));
        let next_file = AtomicU64::new(1 + last_file);
        let store = Store { directory, set, durability, next_file, flushing, _lock: lock };
        let replayed =
            recovery.replay(|_, batch| store.unless_full(|| store.set.replay(&batch)).map(drop))?;
        store.set.skip_to(replayed.last_sequence)?;
        for finding in &replayed.findings {
            eprintln!(
                "journal: {}; {} bytes are cut off ({:?})",
                finding.error, finding.cut_bytes, finding.reason
            );
        }
        Ok(store)
    }

    /// Writes a batch: all of it or nothing, also after a crash. Returns once it is durable and every read sees it.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<u64> {
        self.unless_full(|| self.set.write_with(batch, self.durability))
    }

    /// Does something that needs room in the tables. If they are full and nobody flushes them, this thread does.
    fn unless_full<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match act() {
                // Also after a wait: a flush may have ended, and others have filled what it made room for.
                Err(Error::WriteStall { .. }) => self.flush()?,
                done => return done,
            }
        }
    }

    /// Whether tables wait for a flush.
    pub(crate) fn needs_flush(&self) -> bool {
        self.set.stats().tables > 1
    }

    /// Makes the active table one that can be flushed.
    pub(crate) fn switch(&self) -> Result<()> {
        self.unless_full(|| self.set.switch().map(drop))
    }

    /// Flushes all tables that are full into one file, after the flush that another thread is at.
    pub(crate) fn flush(&self) -> Result<()> {
        // Nobody else changes the base.
        let mut known = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        (*known).clone()?;
        let done = self.flush_tables(&mut known);
        if known.is_ok() {
            // The files of a flush that failed would fill the disk. What cannot be removed now is removed by the next flush.
            let _ = remove_leftovers(&self.directory, self.set.view().base());
        }
        done
    }

    fn flush_tables(&self, known: &mut Result<()>) -> Result<()> {
        let Some(mut job) = self.set.begin_flush()? else { return Ok(()) };
        let file = TableFile::write(&self.directory, self.number(), |file| job.flush(file).map(drop))?;
        let mut files = vec![file];
        files.extend(self.set.view().base().iter().cloned());
        if files.len() > FILES_MAX {
            files = vec![files::compact(&self.directory, self.number(), &files, job.snapshots())?];
        }
        let numbers = files.iter().map(|file| file.number).collect();
        Manifest { last_sequence: job.last_sequence(), files: numbers }.write(&self.directory)?;
        *known = sync_directory(&self.directory);
        (*known).clone()?;
        job.install(|_| Ok(files))
    }

    /// The number of the next file. One that is not used up is a leftover, and is never given again.
    fn number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let view = self.set.view();
        let found = view.merging_get(key, || files::sources(view.base()))?;
        found.map(|entry| entry.merged(&Counters)).transpose()
    }

    /// Shows every key from `from` up to `to`, which is not among them, and its value, as they were at one moment.
    pub(crate) fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        mut show: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let view = self.set.view();
        let mut cursor = view.merging_cursor(files::sources(view.base()))?.with_bounds((from, to));
        let mut next = cursor.first()?;
        while let Some(entry) = next {
            show(entry.user_key(), &entry.merged(&Counters)?);
            next = cursor.next()?;
        }
        Ok(())
    }

    /// Number of tables and of files.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let view = self.set.view();
        (view.readers().count(), view.base().len())
    }
}

/// Removes table files that are not these: a flush or a compaction was cut short before it was installed, or has replaced them. Returns
/// the largest number of a table file.
fn remove_leftovers(directory: &Path, files: &[TableFile]) -> Result<u64> {
    let mut last = 0;
    for entry in fs::read_dir(directory).map_err(io_error("list", directory))? {
        let path = entry.map_err(io_error("list", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(number) = number_of(name) else { continue };
        last = last.max(number);
        let is_named = files.iter().any(|file| path == path_of(directory, file.number));
        if !is_named && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(last)
}
