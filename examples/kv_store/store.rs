//! The store: where each piece of an engine goes.
//!
//! ```text
//!   write    batch -> journal -> active table -> visible                       MemTableSet::write_with
//!   flush    immutable tables -> one table file -> manifest -> base            FlushThread, FlushJob
//!   merge    all files -> one table file -> manifest -> base                   Compaction, replace_base
//!   read     tables, newest first; then files, newest first                    View, at a Snapshot too
//!   open     manifest -> files -> journal -> set; then the journal's batches   JournalRecovery::replay
//! ```
//! What is acknowledged is never lost, because each step waits for the one before: a batch is in the journal before it is
//! acknowledged; a table file is synced, read back and named before the manifest names it; the manifest is durable before
//! the set has the new base and lets the journal forget the batches. A flush or a merge that fails at any step changes nothing, and its file goes.
//!
//! Any thread may call any method. A second process that opens the directory gets an error.

use std::fs::{self, File, OpenOptions};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use paranoid_memtable::{Bytewise, Error, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Durability, FileJournal, FlushJob, FlushThread, MemTableSet, SetOptions, Snapshot,
};

use crate::files::{Counters, TableFile, number_of, sources};
use crate::manifest::{Manifest, io_error, sync_directory};

/// More files than that are merged.
const FILES_MAX: usize = 6;

/// The base of the set: what the manifest says.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// Everything up to this number is in the files.
    last_sequence: u64,
    /// Newest first.
    files: Vec<TableFile>,
}

/// The directory, for the threads that write files into it.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    next_file: AtomicU64,
    /// Held by the thread that merges.
    merging: Mutex<()>,
    /// An error is that of a manifest that may be on the disk or not: nobody knows then which files it names, and there is no new base
    /// any more.
    named: Mutex<Result<()>>,
}

/// A durable, ordered map from keys to values and counters.
#[derive(Debug)]
pub(crate) struct Store {
    set: MemTableSet<Base>,
    directory: Arc<Directory>,
    durability: Durability,
    // Threads end in this order, and then the lock.
    flusher: FlushThread,
    _merger: Merger,
    _lock: File,
}

/// The thread that merges files. It ends when the flush thread is gone.
#[derive(Debug)]
struct Merger(Option<JoinHandle<()>>);

impl Drop for Merger {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl Store {
    /// Opens the store of a directory, or makes one. With `Durability::Synced` what is acknowledged survives a crash of
    /// the machine; with `Buffered` the end of the process.
    pub(crate) fn open(path: &Path, write_buffer: u64, durability: Durability) -> Result<Store> {
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(io_error("create", path))?;
            sync_directory(path.parent().filter(|it| it.is_dir()).unwrap_or(Path::new(".")))?;
        }
        let lock_path = path.join("LOCK");
        let lock = OpenOptions::new().create(true).read(true).append(true).open(&lock_path);
        let lock = lock.map_err(io_error("open", &lock_path))?;
        lock.try_lock().map_err(|error| io_error("lock", &lock_path)(error.into()))?;
        let Manifest { last_sequence, files } = Manifest::open(path, &lock_path)?;
        // What was written and never named, or named no more.
        let last_file = remove_files(path, |number| !files.contains(&number))?;
        let files = files.iter().map(|number| TableFile::open(path, *number)).collect::<Result<_>>()?;
        let (journal, recovery) = FileJournal::open(path, last_sequence)?;
        let options = SetOptions::builder()
            .table(MemTableOptions::builder().write_buffer_size(write_buffer).build()?)
            .last_sequence(last_sequence)
            .first_table(journal.next_table())
            .journal(Arc::new(journal))
            .build()?;
        let set = MemTableSet::open(options, Base { last_sequence, files })?;
        let directory = Arc::new(Directory {
            path: path.to_path_buf(),
            next_file: AtomicU64::new(1 + last_file),
            merging: Mutex::new(()),
            named: Mutex::new(Ok(())),
        });
        let (flusher, merger) = start_threads(&set, &directory)?;
        // From here on an error ends the threads in their order.
        let store = Store { set, directory, durability, flusher, _merger: merger, _lock: lock };
        let replayed = recovery.replay(|_, batch| store.set.replay(&batch).map(drop))?;
        store.set.skip_to(replayed.last_sequence)?;
        for finding in &replayed.findings {
            let (error, bytes, reason) = (&finding.error, finding.cut_bytes, finding.reason);
            eprintln!("journal: {error}; {bytes} bytes are cut off ({reason:?})");
        }
        Ok(store)
    }

    /// Writes a batch: all of it or nothing, also after a crash. Returns once it is durable and every read sees it. A write that finds
    /// no room has a flush that failed tried again.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<u64> {
        let written = self.set.write_with(batch, self.durability);
        if matches!(written, Err(Error::WriteStall { .. })) {
            self.flusher.retry();
        }
        written
    }

    /// Flushes what was written before, and merges files if there are many.
    pub(crate) fn flush(&self) -> Result<()> {
        self.set.flush_and_wait()?;
        self.directory.merge(&self.set)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.set.snapshot()
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let view = self.set.view();
        let found = view.merging_get(key, || sources(&view.base().files))?;
        found.map(|entry| entry.merged(&Counters)).transpose()
    }

    /// Shows every key between two bounds, and its value, as they were at one moment.
    pub(crate) fn scan(
        &self,
        at: &Snapshot,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut show: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let view = self.set.view_at(at)?;
        for entry in view.merging_cursor(sources(&view.base().files))?.with_bounds(bounds).ascending() {
            let entry = entry?;
            show(entry.user_key(), &entry.merged(&Counters)?);
        }
        Ok(())
    }

    /// Number of tables and of files.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let view = self.set.view();
        (view.readers().count(), view.base().files.len())
    }
}

/// Starts the thread that flushes whatever is full, and the one that merges files after a flush.
fn start_threads(set: &MemTableSet<Base>, directory: &Arc<Directory>) -> Result<(FlushThread, Merger)> {
    let (wake, woken) = mpsc::channel();
    let of_flusher = Arc::clone(directory);
    let flusher = set.start_flush_thread(move |job| {
        of_flusher.flush(job)?;
        let _ = wake.send(());
        Ok(())
    })?;
    let (set, directory) = (set.clone(), Arc::clone(directory));
    let merger = thread::spawn(move || {
        for () in woken {
            // Nothing is lost: the old files stay.
            directory.merge(&set).unwrap_or_else(|error| eprintln!("merge: {error}"));
        }
    });
    Ok((flusher, Merger(Some(merger))))
}

impl Directory {
    /// Writes the tables of a job into a file, in front of the others.
    fn flush(&self, mut job: FlushJob<Base>) -> Result<()> {
        let (number, last_sequence) = (self.next_file.fetch_add(1, Ordering::Relaxed), job.last_sequence());
        let written = TableFile::write(&self.path, number, |file| job.flush(file).map(drop));
        let installed = written.and_then(|new| {
            job.install(|base| self.name(Base { last_sequence, files: [&[new], &base.files[..]].concat() }))
        });
        self.remove_unnamed(installed, number, &[])
    }

    /// Merges all files into one, if there are too many. Flushes go on meanwhile: their files stay, in front of the new one.
    fn merge(&self, set: &MemTableSet<Base>) -> Result<()> {
        let _turn = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        let view = set.view();
        let old = view.base().files.as_slice();
        if old.len() <= FILES_MAX {
            return Ok(());
        }
        // The snapshots after the view, so that none of them is missed.
        let merge = Compaction::over(Arc::new(Bytewise), &set.snapshots(), sources(old));
        let merge = merge.combining(&Counters).to_lowest_level();
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let written = TableFile::write(&self.path, number, |file| merge.pass_to(file).map(drop));
        let replaced = written.and_then(|new| {
            set.replace_base(|base| {
                let newer = &base.files[..base.files.len() - old.len()];
                self.name(Base { files: [newer, &[new]].concat(), ..*base })
            })
        });
        self.remove_unnamed(replaced, number, old)
    }

    /// Removes the files that a new one replaced, or the new one if it was not named.
    fn remove_unnamed(&self, done: Result<()>, new: u64, old: &[TableFile]) -> Result<()> {
        if self.named.lock().unwrap_or_else(PoisonError::into_inner).is_ok() {
            let is_old = |number| old.iter().any(|file| file.number == number);
            // What cannot be removed now is removed by the next opening.
            let _ = remove_files(&self.path, |it| if done.is_ok() { is_old(it) } else { it == new });
        }
        done
    }

    /// Has the manifest name the files of a base, durably.
    fn name(&self, base: Base) -> Result<Base> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        (*named).clone()?;
        let numbers = base.files.iter().map(|file| file.number).collect();
        Manifest { last_sequence: base.last_sequence, files: numbers }.write(&self.path)?;
        *named = sync_directory(&self.path);
        (*named).clone().map(|()| base)
    }
}

/// Removes table files by their numbers. Returns the largest number of a table file.
fn remove_files(directory: &Path, is_gone: impl Fn(u64) -> bool) -> Result<u64> {
    let mut last = 0;
    for entry in fs::read_dir(directory).map_err(io_error("list", directory))? {
        let path = entry.map_err(io_error("list", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(number) = number_of(name) else { continue };
        last = last.max(number);
        if is_gone(number) && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(last)
}
