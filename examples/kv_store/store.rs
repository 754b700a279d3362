//! The store: the steps of an engine, and which call of the set does each of them.
//!
//! ```text
//!   write    batch -> journal -> active table -> visible                       MemTableSet::write_with
//!   flush    immutable tables -> one table file -> manifest -> base            FlushThread, FlushJob
//!   merge    files of flushes, and what they overlap in level 1 -> new files   Compaction::outputs
//!            of level 1 -> manifest -> base                                    replace_base
//!   read     tables, newest first; then files of flushes; then level 1         View, at a Snapshot too
//!   open     manifest -> files -> journal -> set; then the journal's batches   JournalRecovery::replay
//!   reopen   the same, once a set is read-only; views stay readable           MemTableSet::read_only
//! ```
//! No acknowledged write is lost, because each step waits for the one before:
//!
//! 1. A batch is in the journal before it is acknowledged.
//! 2. A table file is synced, read back and named before the manifest names it.
//! 3. The manifest is durable before the set has the new base and lets the journal drop the
//!    batches.
//!
//! A flush or a merge that fails at any step changes nothing, and its files are removed: no manifest
//! names them.
//!
//! If the journal could not write, for example because the disk was full for a moment, the set is
//! read-only for good: it is not known how much of the last batches is on the disk. Opening the set
//! again finds out. Until that succeeds there is no set, and the last view answers reads.
//!
//! One thread flushes full tables and merges files, while writers and readers run. Any thread
//! may call any method. A second process that opens the directory gets an error.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use paranoid_memtable::scan::KeyRange;
use paranoid_memtable::{Bytewise, Error, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Durability, FileJournal, FlushJob, FlushThread, JournalFinding, MemTableSet,
    MergedEntry, MergingCursor, SetOptions, Snapshot, View,
};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

use crate::files::{Base, Bounds, Counters, TableFile, is_before, number_of, path_of};
use crate::manifest::{Directory, Manifest, NamedFile, io_error};
use crate::output::complain;

/// The store merges the files of flushes if there are more than this.
const FLUSHED_MAX: usize = 3;

/// The state of the flush thread, which alone writes files into the directory.
struct Files {
    directory: Directory,
    /// Bytes of keys and values in a file of level 1.
    file_bytes: u64,
    /// The number of the last file.
    last: u64,
    /// The last manifest that is known to be durable.
    manifest: Manifest,
    /// Whether the disk may have a later manifest: a replacement failed, and the old one is not read
    /// any more. Files that either manifest names stay until another one is durable.
    has_doubt: bool,
}

/// A durable, ordered map from keys to values and counters.
pub(crate) struct Store {
    directory: Directory,
    table: MemTableOptions,
    durability: Durability,
    engine: RwLock<Engine>,
    // Dropped last.
    _lock: File,
}

/// The set of a store.
enum Engine {
    Open {
        set: MemTableSet<Base>,
        flusher: FlushThread,
    },
    /// The set was read-only, and could not be opened again yet: its last view, and the error.
    Closed { view: View<Base>, error: Error },
}

impl Store {
    /// Opens the store of a directory, or makes one, with tables of these options. With `Durability::Synced` an acknowledged
    /// write survives a crash of the machine; with `Buffered` it survives the end of the process.
    pub(crate) fn open(
        path: &Path,
        table: &MemTableOptions,
        durability: Durability,
    ) -> Result<Store> {
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(io_error("create", path))?;
            Directory::new(
                path.parent()
                    .filter(|it| it.is_dir())
                    .unwrap_or(Path::new(".")),
            )
            .sync()?;
        }
        let lock_path = lock_of(path);
        let lock = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&lock_path);
        let lock = lock.map_err(io_error("open", &lock_path))?;
        lock.try_lock()
            .map_err(|error| io_error("lock", &lock_path)(error.into()))?;
        let directory = Directory::new(path);
        let engine = RwLock::new(Engine::open(&directory, table)?);
        Ok(Store {
            directory,
            table: table.clone(),
            durability,
            engine,
            _lock: lock,
        })
    }

    /// Writes a batch: all of it or nothing, also after a crash. It returns when the batch is
    /// durable and every read sees it. A write that fails, for example because the tables are full,
    /// makes the flush thread try a failed flush again. After `ReadOnly` the batch may be in the
    /// store or not, and the store opens its set again: at once, or at the next write.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<u64> {
        if matches!(&*self.engine(), Engine::Closed { .. }) {
            self.reopen()?;
        }
        let written = match &*self.engine() {
            Engine::Closed { error, .. } => Err(error.clone()),
            Engine::Open { set, flusher } => set
                .write_with(batch, self.durability)
                .inspect_err(|_| flusher.retry()),
        };
        if let Err(Error::ReadOnly { .. }) = &written {
            // The next write tries again. An engine waits a little between attempts: each reads the
            // journal.
            let _ = self.reopen();
        }
        written
    }

    /// Opens the set again if it is read-only. The directory must be free for that, so the old set
    /// is dropped first, with its flush thread and its journal.
    fn reopen(&self) -> Result<()> {
        let mut engine = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        if let Engine::Open { set, .. } = &*engine {
            // Another thread was first.
            let Some(error) = set.read_only() else {
                return Ok(());
            };
            *engine = Engine::Closed {
                view: set.view(),
                error,
            };
        }
        *engine = Engine::open(&self.directory, &self.table)?;
        Ok(())
    }

    fn engine(&self) -> RwLockReadGuard<'_, Engine> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes all earlier writes.
    pub(crate) fn flush(&self) -> Result<()> {
        self.engine().set()?.flush_and_wait()
    }

    /// A snapshot of the store. It ends with the set.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Ok(self.engine().set()?.snapshot())
    }

    pub(crate) fn view_at(&self, at: &Snapshot) -> Result<View<Base>> {
        self.engine().set()?.view_at(at)
    }

    /// A view of the current state.
    pub(crate) fn view(&self) -> View<Base> {
        match &*self.engine() {
            Engine::Open { set, .. } => set.view(),
            Engine::Closed { view, .. } => view.clone(),
        }
    }

    /// Looks up a key. `None`: it has no value.
    pub(crate) fn get(&self, key: &str) -> Result<Option<MergedEntry>> {
        let view = self.view();
        view.merging_get(key, || view.base().sources())
    }
}

/// Scans the keys of a range in a view.
pub(crate) fn scan(view: &View<Base>, keys: impl KeyRange) -> Result<MergingCursor<'static>> {
    Ok(view
        .merging_cursor(view.base().sources())?
        .with_bounds(keys))
}

fn lock_of(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

impl Engine {
    /// Opens the set over the files of the directory.
    fn open(directory: &Directory, table: &MemTableOptions) -> Result<Engine> {
        let path = &*directory.path;
        let manifest = Manifest::open(directory, &lock_of(path))?;
        let last_sequence = manifest.last_sequence;
        let open = |named: &[NamedFile]| -> Result<Vec<TableFile>> {
            let open = |(number, bounds): &NamedFile| {
                Ok(TableFile {
                    number: *number,
                    bounds: bounds.clone(),
                    table: SortedTable::open(path_of(path, *number))?,
                })
            };
            named.iter().map(open).collect()
        };
        let base = Base::new(open(&manifest.flushed)?, open(&manifest.level)?)?;
        let mut files = Files {
            directory: directory.clone(),
            file_bytes: table.write_buffer_size() / 4,
            last: 0,
            manifest,
            has_doubt: false,
        };
        files.last = files.remove_unnamed()?;
        let (journal, recovery) = FileJournal::open(path, last_sequence)?;
        let options = SetOptions::builder()
            .table(table.clone())
            .last_sequence(last_sequence)
            .first_table(journal.next_table())
            .journal(Arc::new(journal))
            .build()?;
        let set = MemTableSet::open(options, base)?;
        let of_thread = set.clone();
        // After an error, the thread ends before the store's lock is released.
        let flusher = set.start_flush_thread(move |job| files.flush(job, &of_thread))?;
        let replayed = recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
        for JournalFinding {
            error,
            cut_bytes,
            reason,
            ..
        } in &replayed.findings
        {
            complain(format_args!(
                "journal: {error}; {cut_bytes} bytes are cut off ({reason:?})"
            ));
        }
        Ok(Engine::Open { set, flusher })
    }

    fn set(&self) -> Result<&MemTableSet<Base>> {
        match self {
            Engine::Open { set, .. } => Ok(set),
            Engine::Closed { error, .. } => Err(error.clone()),
        }
    }
}

impl Files {
    /// Writes the tables of a job into a file, in front of the other files, and merges files if
    /// there are many.
    fn flush(&mut self, mut job: FlushJob<Base>, set: &MemTableSet<Base>) -> Result<()> {
        let last = job.last_sequence();
        let written = self.write(&mut job);
        let installed = written.and_then(|new| {
            job.install(|base| {
                let flushed = new.into_iter().chain(base.flushed.iter().cloned());
                self.name(last, Base::new(flushed.collect(), base.level.to_vec())?)
            })
        });
        // A merge that fails loses nothing: the old files stay.
        self.merge(set)
            .unwrap_or_else(|error| complain(format_args!("merge: {error}")));
        // A file that cannot be removed now is removed later.
        let _ = self.remove_unnamed();
        installed
    }

    /// Merges the files of flushes into level 1 if there are too many, while writers and readers
    /// run. Flushes wait; an engine of large files would keep the files of later flushes.
    fn merge(&mut self, set: &MemTableSet<Base>) -> Result<()> {
        let view = set.view();
        let base = view.base();
        if base.flushed.len() <= FLUSHED_MAX {
            return Ok(());
        }
        // Files that are before all merged keys, or after them, stay.
        let is_apart = |file: &TableFile| {
            let mut flushed = base.flushed.iter().map(|it| &it.bounds);
            flushed.clone().all(|it| is_before(it, &file.bounds))
                || flushed.all(|it| is_before(&file.bounds, it))
        };
        let (mut kept, old): (Vec<_>, Vec<_>) = base.level.iter().cloned().partition(is_apart);
        let merged = Base::new(base.flushed.clone(), old)?;
        // The snapshots are taken after the view of the files, so that none is missed. No other
        // file has a key of the merged ones.
        let merge = Compaction::over(Arc::new(Bytewise), &set.snapshots(), merged.sources());
        let merge = merge.combining(&Counters).to_lowest_level();
        let (path, first) = (self.directory.path.clone(), self.last + 1);
        let mut outputs = merge.outputs(self.file_bytes, |number| {
            Ok(SortedTableWriter::create(
                path_of(&path, first + number),
                SortedTableOptions::default(),
            )?)
        });
        while let Some(output) = outputs.next()? {
            self.last += 1;
            output.sink.finish()?;
            kept.push(self.open_file(self.last, output.bounds)?);
        }
        kept.sort_by(|left, right| left.bounds.0.cmp(&right.bounds.0));
        let last = self.manifest.last_sequence;
        set.replace_base(|_| self.name(last, Base::new(vec![], kept)?))
    }

    /// Writes the file of a flush, or none if it would be empty. The file has its name only once it
    /// is synced, read back and compared.
    fn write(&mut self, job: &mut FlushJob<Base>) -> Result<Option<TableFile>> {
        self.last += 1;
        let path = path_of(&self.directory.path, self.last);
        let mut writer = SortedTableWriter::create(path, SortedTableOptions::default())?;
        let filled = job.flush(&mut writer)?;
        if filled.entries + filled.fragments == 0 {
            return Ok(None);
        }
        let bounds = writer.finish()?.bounds;
        bounds
            .map(|bounds| self.open_file(self.last, bounds))
            .transpose()
    }

    fn open_file(&self, number: u64, bounds: Bounds) -> Result<TableFile> {
        let table = SortedTable::open(path_of(&self.directory.path, number))?;
        Ok(TableFile {
            number,
            bounds,
            table,
        })
    }

    /// Makes the manifest name these files, durably. They have everything up to `last_sequence`.
    fn name(&mut self, last_sequence: u64, base: Base) -> Result<Base> {
        let named = |files: &[TableFile]| {
            let named = files.iter().map(|file| (file.number, file.bounds.clone()));
            named.collect()
        };
        let manifest = Manifest {
            last_sequence,
            flushed: named(&base.flushed),
            level: named(&base.level),
        };
        if let Err(error) = manifest.write(&self.directory) {
            let is_old =
                Manifest::read(&self.directory).is_ok_and(|it| it.as_ref() == Some(&self.manifest));
            self.has_doubt |= !is_old;
            return Err(error);
        }
        (self.manifest, self.has_doubt) = (manifest, false);
        Ok(base)
    }

    /// Removes table files that the manifest does not name (any more). Returns the largest number
    /// of a file.
    fn remove_unnamed(&self) -> Result<u64> {
        let (path, mut last) = (&self.directory.path, self.last);
        if self.has_doubt {
            return Ok(last);
        }
        for entry in fs::read_dir(path).map_err(io_error("list", path))? {
            let path = entry.map_err(io_error("list", path))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some(number) = number_of(name) else {
                continue;
            };
            last = last.max(number);
            if !self.manifest.names(number)
                && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file())
            {
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
            }
        }
        Ok(last)
    }
}
