//! A leveled engine: flushes, two levels below them, compactions that cut their output, a manifest,
//! snapshots, scans in both directions.
//!
//! ```text
//!   tables        [active] [immutable] ..                              in memory, and in the journal
//!   flushed       [a ....... z] [c ... t] [b ...... y]                 newest first, they overlap
//!   level 1       [a .. f]     [h .. m)[m .. p)     [q .. z]           they do not overlap
//!   level 2       [a .. c] [d .. k]  [l .. o]  [p .. s] [t .. z]       the lowest level
//! ```
//! Too many flushed files are merged into level 1, with the files there that they overlap. Of a
//! level 1 that is too large, the oldest file is merged into level 2. One thread flushes and
//! compacts; any thread reads and writes.

use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use paranoid_memtable::scan::{SortedSource, SourceMove};
use paranoid_memtable::{Bytewise, Error, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Durability, FileJournal, FileStorage, FlushJob, FlushThread, Level, MemTableSet,
    MergeOperator, MergingCursor, SetOptions, Snapshot, View, read_checked, replace_checked,
};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

/// How long a write waits for a flush. A flush takes seconds on a busy machine.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Flushed files before a compaction.
const FLUSHED_MAX: usize = 3;
/// Bytes of keys and values in a file of a level, and of the files of level 1. They are small, so
/// that a short run has many files.
const FILE_BYTES: u64 = 2 << 10;
const LEVEL_1_BYTES: u64 = 12 << 10;
/// Files of level 2 that a file of level 1 may overlap.
const OVERLAP_MAX: usize = 4;
const MANIFEST: &str = "MANIFEST";

type Bounds = (Vec<u8>, Bound<Vec<u8>>);

#[derive(Clone)]
struct File {
    number: u64,
    bounds: Bounds,
    bytes: u64,
    table: SortedTable,
}

/// Files that do not overlap, in order of their keys.
#[derive(Clone)]
struct Run {
    files: Arc<[File]>,
    level: Level,
}

/// The base of the set.
#[derive(Clone)]
pub(crate) struct Version {
    flushed: Vec<File>,
    levels: [Run; 2],
}

/// Merge operands are appended.
pub(crate) struct Append;

/// A durable, ordered map.
pub(crate) struct Engine {
    // Dropped first: it ends before the journal's lock is released.
    _flusher: FlushThread,
    set: MemTableSet<Version>,
}

impl Engine {
    pub(crate) fn open(directory: &Path, write_buffer: u64) -> Result<Engine> {
        let mut files = Files {
            directory: directory.into(),
            storage: FileStorage::new(directory),
            last_number: 0,
            last_sequence: 0,
        };
        let version = files.open()?;
        let (journal, recovery) = FileJournal::open(directory, files.last_sequence)?;
        let tables = MemTableOptions::builder().write_buffer_size(write_buffer);
        let options = SetOptions::builder()
            .table(tables.build()?)
            .last_sequence(files.last_sequence)
            .first_table(journal.next_table())
            .stall_timeout(STALL_TIMEOUT)
            .journal(Arc::new(journal));
        let set = MemTableSet::open(options.build()?, version)?;
        let of_thread = set.clone();
        let flusher = set.start_flush_thread(move |job| files.flush(job, &of_thread))?;
        recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
        Ok(Engine {
            _flusher: flusher,
            set,
        })
    }

    /// Writes a batch, durably.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<u64> {
        self.set.write_with(batch, Durability::Synced)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.set.snapshot()
    }

    /// The state at a snapshot, or the newest one.
    pub(crate) fn view(&self, at: Option<&Snapshot>) -> Result<View<Version>> {
        at.map_or_else(|| Ok(self.set.view()), |at| self.set.view_at(at))
    }

    /// The number of files: flushed, of level 1, of level 2.
    pub(crate) fn shape(&self) -> [usize; 3] {
        let version = Arc::clone(self.set.view().base());
        let [first, second] = &version.levels;
        [version.flushed.len(), first.files.len(), second.files.len()]
    }
}

pub(crate) fn get(view: &View<Version>, key: &str) -> Result<Option<Vec<u8>>> {
    let found = view.merging_get(key, || view.base().sources())?;
    found
        .map(|entry| entry.into_merged(&Append, None))
        .transpose()
}

pub(crate) fn cursor(view: &View<Version>) -> Result<MergingCursor<'static>> {
    view.merging_cursor(view.base().sources())
}

impl MergeOperator for Append {
    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        Ok([base.unwrap_or_default(), &operands.concat()].concat())
    }

    fn combine(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.concat())
    }
}

impl Version {
    fn new(flushed: Vec<File>, levels: [Vec<File>; 2]) -> Result<Version> {
        let [first, second] = levels.map(Run::new);
        Ok(Version {
            flushed,
            levels: [first?, second?],
        })
    }

    /// All files as sources, newest first.
    fn sources(&self) -> Vec<Box<dyn SortedSource>> {
        let flushed = self.flushed.iter();
        let flushed = flushed.map(|file| Box::new(file.table.cursor()) as Box<dyn SortedSource>);
        flushed.chain(self.levels.iter().map(Run::source)).collect()
    }
}

impl Run {
    fn new(mut files: Vec<File>) -> Result<Run> {
        files.sort_by(|left, right| left.bounds.0.cmp(&right.bounds.0));
        let bounds = files.iter().map(|file| file.bounds.clone());
        let level = Level::new(Arc::new(Bytewise), bounds.collect::<Vec<_>>())?;
        Ok(Run {
            files: files.into(),
            level,
        })
    }

    fn source(&self) -> Box<dyn SortedSource> {
        let files = Arc::clone(&self.files);
        Box::new(
            self.level
                .source(move |place: usize| Ok(files[place].table.cursor())),
        )
    }

    /// Divides the files: those before or after all of these keys, and the others.
    fn apart(&self, keys: &[Bounds]) -> (Vec<File>, Vec<File>) {
        let is_apart = |file: &File| {
            keys.iter().all(|it| is_before(it, &file.bounds))
                || keys.iter().all(|it| is_before(&file.bounds, it))
        };
        self.files.iter().cloned().partition(is_apart)
    }
}

/// Whether a file ends before another one begins.
fn is_before((_, end): &Bounds, (first, _): &Bounds) -> bool {
    match end {
        Bound::Included(last) => last < first,
        Bound::Excluded(end) => end <= first,
        Bound::Unbounded => false,
    }
}

/// The state of the thread that flushes and compacts, which alone writes files.
struct Files {
    directory: PathBuf,
    storage: FileStorage,
    last_number: u64,
    /// Everything up to this number is in files.
    last_sequence: u64,
}

impl Files {
    /// Reads the manifest: the last number, then the files of each level, a line each.
    fn open(&mut self) -> Result<Version> {
        let bytes = read_checked(&self.storage, MANIFEST)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines().map(|line| -> Vec<u64> {
            line.split(' ')
                .filter_map(|number| number.parse().ok())
                .collect()
        });
        let mut next = || lines.next().unwrap_or_default();
        let (last, numbers) = (next(), [next(), next(), next()]);
        self.last_sequence = last.first().copied().unwrap_or(0);
        let open = |numbers: Vec<u64>| -> Result<Vec<File>> {
            numbers
                .into_iter()
                .map(|number| self.open_file(number))
                .collect()
        };
        let [flushed, first, second] = numbers.map(open);
        // The manifest that was read may be only in the system's cache.
        self.name(&Version::new(flushed?, [first?, second?])?)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:06}.sst"))
    }

    /// Opens a file. Its bounds follow from its first and last entry and its range tombstones.
    fn open_file(&self, number: u64) -> Result<File> {
        let table = SortedTable::open(self.path(number))?;
        let mut cursor = table.cursor();
        let mut key = |to| Ok::<_, Error>(cursor.go(to)?.map(|at| at.user_key.to_vec()));
        let (first, last) = (key(SourceMove::First)?, key(SourceMove::Last)?);
        let start = table
            .range_tombstones()
            .map(|(start, ..)| start.to_vec())
            .min();
        let end = table
            .range_tombstones()
            .map(|(_, end, _)| end.to_vec())
            .max();
        let first = first.into_iter().chain(start).min().unwrap_or_default();
        let end = match (last, end) {
            (Some(last), end) if end.as_ref().is_none_or(|end| *end <= last) => {
                Bound::Included(last)
            }
            (_, end) => Bound::Excluded(end.unwrap_or_default()),
        };
        let bytes = fs::metadata(self.path(number)).map_or(0, |it| it.len());
        Ok(File {
            number,
            bounds: (first, end),
            bytes,
            table,
        })
    }

    /// Makes the manifest name the files of a version, durably, and removes all other files.
    fn name(&mut self, version: &Version) -> Result<Version> {
        let [first, second] = &version.levels;
        let named = [&version.flushed[..], &first.files, &second.files];
        let lines = named.map(|files| {
            let numbers: Vec<_> = files.iter().map(|file| file.number.to_string()).collect();
            numbers.join(" ") + "\n"
        });
        let text = format!("{}\n{}", self.last_sequence, lines.concat());
        replace_checked(&self.storage, MANIFEST, text.as_bytes())?;
        let is_named = |number| named.concat().iter().any(|file| file.number == number);
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((number, rest)) = name.split_once(".sst") else {
                continue;
            };
            let number = number.parse().unwrap_or(0);
            self.last_number = self.last_number.max(number);
            if !rest.is_empty() || !is_named(number) {
                // What cannot be removed now is removed later.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(version.clone())
    }

    fn flush(&mut self, mut job: FlushJob<Version>, set: &MemTableSet<Version>) -> Result<()> {
        self.last_number += 1;
        let number = self.last_number;
        let mut file = SortedTableWriter::create(self.path(number), SortedTableOptions::default())?;
        let filled = job.flush(&mut file)?;
        let mut new = vec![];
        if filled.entries + filled.fragments > 0 {
            file.finish()?;
            new.push(self.open_file(number)?);
        }
        let last = job.last_sequence();
        job.install(|version| {
            self.last_sequence = last;
            let flushed = [&new[..], &version.flushed].concat();
            self.name(&Version {
                flushed,
                ..version.clone()
            })
        })?;
        while self.compact(set)? {}
        Ok(())
    }

    /// Makes one compaction. Returns whether there was one to be made.
    fn compact(&mut self, set: &MemTableSet<Version>) -> Result<bool> {
        let view = set.view();
        let version = view.base();
        let [first, second] = &version.levels;
        let is_flush = version.flushed.len() > FLUSHED_MAX;
        let is_large = first.files.iter().map(|file| file.bytes).sum::<u64>() > LEVEL_1_BYTES;
        let oldest = first.files.iter().min_by_key(|file| file.number);
        let upper = match oldest.filter(|_| is_large) {
            _ if is_flush => version.flushed.clone(),
            Some(file) => vec![file.clone()],
            None => return Ok(false),
        };
        let keys: Vec<Bounds> = upper.iter().map(|file| file.bounds.clone()).collect();
        let (mut kept, lower) = if is_flush { first } else { second }.apart(&keys);
        let merged = lower.iter().map(|file| file.bounds.clone()).chain(keys);
        let (_, below) = second.apart(&merged.collect::<Vec<_>>());
        // A file of level 1 has its bounds, which clip its range tombstones.
        let inputs = if is_flush {
            Version::new(upper, [lower, vec![]])?
        } else {
            Version::new(vec![], [upper, lower])?
        };
        // The snapshots are taken after the view of the files, so that none is missed.
        let mut merge = Compaction::over(Arc::new(Bytewise), &set.snapshots(), inputs.sources())
            .combining(&Append);
        if !is_flush || below.is_empty() {
            merge = merge.to_lowest_level();
        }
        kept.extend(self.write_outputs(merge, if is_flush { &below } else { &[] })?);
        let is_merged = |file: &&File| {
            inputs.levels[0]
                .files
                .iter()
                .any(|it| it.number == file.number)
        };
        let stay = first.files.iter().filter(|file| !is_merged(file)).cloned();
        let new = if is_flush {
            Version::new(vec![], [kept, second.files.to_vec()])?
        } else {
            Version::new(version.flushed.clone(), [stay.collect(), kept])?
        };
        set.replace_base(|_| self.name(&new))?;
        Ok(true)
    }

    /// Writes the outputs of a compaction, none of which overlaps many files of the level below.
    /// After an error no manifest names them, and `name` removes them.
    fn write_outputs(&mut self, merge: Compaction<'_>, below: &[File]) -> Result<Vec<File>> {
        let (directory, begun) = (self.directory.clone(), self.last_number + 1);
        let create = |number| {
            let path = directory.join(format!("{:06}.sst", begun + number));
            Ok(SortedTableWriter::create(
                path,
                SortedTableOptions::default(),
            )?)
        };
        let mut begin = 0;
        let mut outputs = merge.outputs(FILE_BYTES, create).cutting(|_, key| {
            let passed = below.partition_point(|file| file.bounds.0.as_slice() <= key);
            let is_cut = passed - begin > OVERLAP_MAX;
            begin = if is_cut { passed } else { begin };
            is_cut
        });
        let mut files = vec![];
        while let Some(output) = outputs.next()? {
            self.last_number += 1;
            output.sink.finish()?;
            files.push(self.open_file(self.last_number)?);
        }
        Ok(files)
    }
}
