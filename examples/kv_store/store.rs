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
//! One thread flushes whatever is full, and merges files, behind writers and readers. Any thread may call any method. A second process
//! that opens the directory gets an error.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::flush::FlushSummary;
use paranoid_memtable::scan::KeyRange;
use paranoid_memtable::{Bytewise, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Durability, FileJournal, FlushJob, FlushThread, JournalFinding, MemTableSet, MergedEntry,
    MergingCursor, SetOptions, Snapshot,
};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

use crate::files::{Counters, TableFile, number_of, path_of, sources};
use crate::manifest::{Manifest, io_error, sync_directory};

/// More files than that are merged.
const FILES_MAX: usize = 6;

/// The base of the set: the files that the manifest names, newest first.
type Base = Vec<TableFile>;

/// The directory, as the flush thread has it, which alone writes files into it.
struct Files {
    directory: PathBuf,
    /// The number of the last file.
    last: u64,
    /// An error is that of a manifest that may be on the disk or not: nobody knows then which files it names, and there is no new base
    /// any more.
    manifest: Result<Manifest>,
}

/// A durable, ordered map from keys to values and counters.
pub(crate) struct Store {
    set: MemTableSet<Base>,
    durability: Durability,
    // The thread ends, and then the lock.
    flusher: FlushThread,
    _lock: File,
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
        let manifest = Manifest::open(path, &lock_path)?;
        let last_sequence = manifest.last_sequence;
        let open = |&number| Ok(TableFile { number, table: SortedTable::open(path_of(path, number))? });
        let tables = manifest.files.iter().map(open).collect::<Result<Base>>()?;
        let mut files = Files { directory: path.to_path_buf(), last: 0, manifest: Ok(manifest) };
        files.last = files.remove_unnamed()?;
        let (journal, recovery) = FileJournal::open(path, last_sequence)?;
        let options = SetOptions::builder()
            .table(MemTableOptions::builder().write_buffer_size(write_buffer).build()?)
            .last_sequence(last_sequence)
            .first_table(journal.next_table())
            .journal(Arc::new(journal))
            .build()?;
        let set = MemTableSet::open(options, tables)?;
        let of_thread = set.clone();
        let flusher = set.start_flush_thread(move |job| files.flush(job, &of_thread))?;
        // From here on an error ends the thread before the lock.
        let store = Store { set, durability, flusher, _lock: lock };
        let replayed = recovery.replay(|_, batch| store.set.replay(&batch).map(drop))?;
        for JournalFinding { error, cut_bytes, reason, .. } in &replayed.findings {
            eprintln!("journal: {error}; {cut_bytes} bytes are cut off ({reason:?})");
        }
        Ok(store)
    }

    /// Writes a batch: all of it or nothing, also after a crash. Returns once it is durable and every read sees it. A write that is
    /// refused, for want of room perhaps, has a flush that failed tried again.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<u64> {
        self.set.write_with(batch, self.durability).inspect_err(|_| self.flusher.retry())
    }

    /// Flushes what was written before.
    pub(crate) fn flush(&self) -> Result<()> {
        self.set.flush_and_wait()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.set.snapshot()
    }

    /// A key, if it has a value.
    pub(crate) fn get(&self, key: &str) -> Result<Option<MergedEntry>> {
        let view = self.set.view();
        view.merging_get(key, || sources(view.base()))
    }

    /// The keys of a range as they were at one moment.
    pub(crate) fn scan(&self, at: &Snapshot, keys: impl KeyRange) -> Result<MergingCursor<'static>> {
        let view = self.set.view_at(at)?;
        Ok(view.merging_cursor(sources(view.base()))?.with_bounds(keys))
    }
}

impl Files {
    /// Writes the tables of a job into a file, in front of the others, and merges files if there are many.
    fn flush(&mut self, mut job: FlushJob<Base>, set: &MemTableSet<Base>) -> Result<()> {
        let last = job.last_sequence();
        let written = self.write(|file| job.flush(file));
        let installed = written.and_then(|new| {
            job.install(|files| self.name(last, new.into_iter().chain(files.iter().cloned()).collect()))
        });
        // If that fails, nothing is lost: the old files stay.
        self.merge(set).unwrap_or_else(|error| eprintln!("merge: {error}"));
        // What cannot be removed now is removed later.
        let _ = self.remove_unnamed();
        installed
    }

    /// Merges all files into one if there are too many, behind writers and readers. Flushes wait meanwhile; an engine of large files keeps
    /// those that came since in front of the new one.
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
        let last = self.manifest.clone()?.last_sequence;
        set.replace_base(|_| self.name(last, new.into_iter().collect()))
    }

    /// Writes a new file, or none if there is nothing to be written. It has its name only once it is whole: synced, read back and
    /// compared.
    fn write(
        &mut self,
        fill: impl FnOnce(&mut SortedTableWriter) -> Result<FlushSummary>,
    ) -> Result<Option<TableFile>> {
        self.last += 1;
        let path = path_of(&self.directory, self.last);
        let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
        let filled = fill(&mut writer)?;
        if filled.entries + filled.fragments == 0 {
            return Ok(None);
        }
        writer.finish()?;
        Ok(Some(TableFile { number: self.last, table: SortedTable::open(path)? }))
    }

    /// Has the manifest name these files, durably, which have everything up to a sequence number.
    fn name(&mut self, last_sequence: u64, files: Base) -> Result<Base> {
        self.manifest.clone()?;
        let manifest = Manifest { last_sequence, files: files.iter().map(|file| file.number).collect() };
        manifest.write(&self.directory)?;
        self.manifest = sync_directory(&self.directory).map(|()| manifest);
        self.manifest.clone().map(|_| files)
    }

    /// Removes table files that the manifest does not name: it never did, or does no more. Returns the largest number of one.
    fn remove_unnamed(&self) -> Result<u64> {
        let (manifest, mut last) = (self.manifest.clone()?, 0);
        for entry in fs::read_dir(&self.directory).map_err(io_error("list", &self.directory))? {
            let path = entry.map_err(io_error("list", &self.directory))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(number) = number_of(name) else { continue };
            last = last.max(number);
            if !manifest.files.contains(&number) && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
            }
        }
        Ok(last)
    }
}
