//! The store: where each piece of an engine goes.
//!
//! ```text
//!   write    batch -> journal -> active table -> visible                       MemTableSet::write_with
//!   flush    immutable tables -> one table file -> manifest -> base            FlushThread, FlushJob
//!   merge    all files -> one table file -> manifest -> base                   Compaction, replace_base
//!   read     tables, newest first; then files, newest first                    View, at a Snapshot too
//!   open     manifest -> files -> journal -> set; then the journal's batches   JournalRecovery::replay
//!   reopen   the same, once a set is read-only; reads go on in a view          MemTableSet::read_only
//! ```
//! What is acknowledged is never lost, because each step waits for the one before: a batch is in
//! the journal before it is acknowledged; a table file is synced, read back and named before the
//! manifest names it; the manifest is durable before the set has the new base and lets the journal
//! forget the batches. A flush or a merge that fails at any step changes nothing, and its file
//! goes.
//!
//! A set whose journal could not write, because the disk was full for a moment perhaps, is
//! read-only for good: nobody knows what of the last batches is on the disk. To open it again is to
//! find out. Until that succeeds there is no set, and the last view answers reads.
//!
//! One thread flushes whatever is full, and merges files, behind writers and readers. Any thread
//! may call any method. A second process that opens the directory gets an error.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use paranoid_memtable::flush::FlushSummary;
use paranoid_memtable::scan::KeyRange;
use paranoid_memtable::{Bytewise, Error, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Durability, FileJournal, FlushJob, FlushThread, JournalFinding, MemTableSet,
    MergedEntry, MergingCursor, SetOptions, Snapshot, View,
};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

use crate::files::{Counters, TableFile, number_of, path_of, sources};
use crate::manifest::{Directory, Manifest, io_error};

/// More files than that are merged.
const FILES_MAX: usize = 6;

/// The base of the set: the files that the manifest names, newest first.
pub(crate) type Base = Vec<TableFile>;

/// The directory, as the flush thread has it, which alone writes files into it.
struct Files {
    directory: Directory,
    /// The number of the last file.
    last: u64,
    /// The last manifest that is known to be durable.
    manifest: Manifest,
    /// Whether the disk may have a later one: the directory could not be synced after that was
    /// named. What either names stays, until another one is durable.
    has_doubt: bool,
}

/// A durable, ordered map from keys to values and counters.
pub(crate) struct Store {
    directory: Directory,
    write_buffer: u64,
    durability: Durability,
    engine: RwLock<Engine>,
    // Dropped last.
    _lock: File,
}

/// What a store has of its set.
enum Engine {
    Open {
        set: MemTableSet<Base>,
        flusher: FlushThread,
    },
    /// It was read-only, and could not be opened again yet: what it showed, and why.
    Closed { view: View<Base>, error: Error },
}

impl Store {
    /// Opens the store of a directory, or makes one. With `Durability::Synced` what is acknowledged
    /// survives a crash of the machine; with `Buffered` the end of the process.
    pub(crate) fn open(path: &Path, write_buffer: u64, durability: Durability) -> Result<Store> {
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
        let engine = RwLock::new(Engine::open(&directory, write_buffer)?);
        Ok(Store {
            directory,
            write_buffer,
            durability,
            engine,
            _lock: lock,
        })
    }

    /// Writes a batch: all of it or nothing, also after a crash. Returns once it is durable and
    /// every read sees it. A write that is refused, for want of room perhaps, has a flush that
    /// failed tried again. After `ReadOnly` the batch may be there or not, and the store opens its
    /// set again: at once, or at the next write.
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
    /// goes first, with its flush thread and its journal.
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
        *engine = Engine::open(&self.directory, self.write_buffer)?;
        Ok(())
    }

    fn engine(&self) -> RwLockReadGuard<'_, Engine> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes what was written before.
    pub(crate) fn flush(&self) -> Result<()> {
        self.engine().set()?.flush_and_wait()
    }

    /// A moment to read at. It ends with the set.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Ok(self.engine().set()?.snapshot())
    }

    pub(crate) fn view_at(&self, at: &Snapshot) -> Result<View<Base>> {
        self.engine().set()?.view_at(at)
    }

    /// What there is now.
    pub(crate) fn view(&self) -> View<Base> {
        match &*self.engine() {
            Engine::Open { set, .. } => set.view(),
            Engine::Closed { view, .. } => view.clone(),
        }
    }

    /// A key, if it has a value.
    pub(crate) fn get(&self, key: &str) -> Result<Option<MergedEntry>> {
        let view = self.view();
        view.merging_get(key, || sources(view.base()))
    }
}

/// The keys of a range as a view shows them.
pub(crate) fn scan(view: &View<Base>, keys: impl KeyRange) -> Result<MergingCursor<'static>> {
    Ok(view.merging_cursor(sources(view.base()))?.with_bounds(keys))
}

fn lock_of(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

impl Engine {
    /// Opens the set over what the directory has.
    fn open(directory: &Directory, write_buffer: u64) -> Result<Engine> {
        let path = &*directory.path;
        let manifest = Manifest::open(directory, &lock_of(path))?;
        let last_sequence = manifest.last_sequence;
        let open = |&number| {
            Ok(TableFile {
                number,
                table: SortedTable::open(path_of(path, number))?,
            })
        };
        let tables = manifest.files.iter().map(open).collect::<Result<Base>>()?;
        let mut files = Files {
            directory: directory.clone(),
            last: 0,
            manifest,
            has_doubt: false,
        };
        files.last = files.remove_unnamed()?;
        let (journal, recovery) = FileJournal::open(path, last_sequence)?;
        let options = SetOptions::builder()
            .table(
                MemTableOptions::builder()
                    .write_buffer_size(write_buffer)
                    .build()?,
            )
            .last_sequence(last_sequence)
            .first_table(journal.next_table())
            .journal(Arc::new(journal))
            .build()?;
        let set = MemTableSet::open(options, tables)?;
        let of_thread = set.clone();
        // After an error the thread ends before the store's lock.
        let flusher = set.start_flush_thread(move |job| files.flush(job, &of_thread))?;
        let replayed = recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
        for JournalFinding {
            error,
            cut_bytes,
            reason,
            ..
        } in &replayed.findings
        {
            eprintln!("journal: {error}; {cut_bytes} bytes are cut off ({reason:?})");
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
    /// Writes the tables of a job into a file, in front of the others, and merges files if there
    /// are many.
    fn flush(&mut self, mut job: FlushJob<Base>, set: &MemTableSet<Base>) -> Result<()> {
        let last = job.last_sequence();
        let written = self.write(|file| job.flush(file));
        let installed = written.and_then(|new| {
            job.install(|files| {
                self.name(last, new.into_iter().chain(files.iter().cloned()).collect())
            })
        });
        // If that fails, nothing is lost: the old files stay.
        self.merge(set)
            .unwrap_or_else(|error| eprintln!("merge: {error}"));
        // What cannot be removed now is removed later.
        let _ = self.remove_unnamed();
        installed
    }

    /// Merges all files into one if there are too many, behind writers and readers. Flushes wait
    /// meanwhile; an engine of large files keeps those that came since in front of the new one.
    fn merge(&mut self, set: &MemTableSet<Base>) -> Result<()> {
        let view = set.view();
        let files = view.base();
        if files.len() <= FILES_MAX {
            return Ok(());
        }
        // The snapshots after the view that has the files, so that none of them is missed.
        let merge = Compaction::over(Arc::new(Bytewise), &set.snapshots(), sources(files));
        let merge = merge.combining(&Counters).to_lowest_level();
        let new = self.write(|file| merge.pass_to(file))?;
        let last = self.manifest.last_sequence;
        set.replace_base(|_| self.name(last, new.into_iter().collect()))
    }

    /// Writes a new file, or none if there is nothing to be written. It has its name only once it
    /// is whole: synced, read back and compared.
    fn write(
        &mut self,
        fill: impl FnOnce(&mut SortedTableWriter) -> Result<FlushSummary>,
    ) -> Result<Option<TableFile>> {
        self.last += 1;
        let path = path_of(&self.directory.path, self.last);
        let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
        let filled = fill(&mut writer)?;
        if filled.entries + filled.fragments == 0 {
            return Ok(None);
        }
        writer.finish()?;
        Ok(Some(TableFile {
            number: self.last,
            table: SortedTable::open(path)?,
        }))
    }

    /// Has the manifest name these files, durably, which have everything up to a sequence number.
    fn name(&mut self, last_sequence: u64, files: Base) -> Result<Base> {
        let manifest = Manifest {
            last_sequence,
            files: files.iter().map(|file| file.number).collect(),
        };
        manifest.write(&self.directory.path)?;
        self.has_doubt = true;
        self.directory.sync()?;
        (self.manifest, self.has_doubt) = (manifest, false);
        Ok(files)
    }

    /// Removes table files that the manifest does not name: it never did, or does no more. Returns
    /// the largest number of one.
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
            if !self.manifest.files.contains(&number)
                && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file())
            {
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
            }
        }
        Ok(last)
    }
}
