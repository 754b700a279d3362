//! The journal that comes with the crate: one file of encoded batches per table, in one directory.
//!
//! ```text
//!   append        puts the batch into the queue                           no system call, no copy
//!   write         encodes the queue; one write at the end of the file     waits for no device
//!   switch(7)     write; create 000007.journal with its header            waits for no device
//!   sync          write; older files that are not durable, this one, the directory, in this order
//! ```
//! * FILE-JOURNAL-1: `sync` returns only after every byte that was appended before the call is
//!   durable, with the names of the files and all earlier files. Then a note says so in a file of
//!   its own (`evidence`).
//! * FILE-JOURNAL-2: after a write or a sync that failed nothing is written to the files or synced
//!   in them again, and every call fails: what survives a crash stays a prefix of what was
//!   appended. The next opening writes anew what is not durable.
//! * FILE-JOURNAL-3: the header of a file says where the file before it ends. So it gets its name
//!   once the header is written, and if that fails, nothing more goes to the file before it.
//! * FILE-JOURNAL-4: all files that are not durable are open. Once there are many, a switch syncs
//!   them.
//! * FILE-JOURNAL-5: after a sync of the directory that failed, another one proves nothing about
//!   names of before, unless there is a new name: a sync that needs names begins the file of the
//!   notes anew.
//! * FILE-JOURNAL-6: records are written in the order of the appends, and each as it was appended
//!   (QUEUE-1). No file is begun before all is written that belongs to earlier ones.
//! * FILE-JOURNAL-7: no file is removed before the recovery of what was there at the opening has
//!   ended well, and all that it delivered is flushed, by the sequence numbers. Files that are
//!   newer stay with them: each header names the file before.
//! * FILE-JOURNAL-8: a sync ends well without any file that it would have to open or create. What
//!   `switch` and `obsolete_before` cannot create or list changes nothing: they can be called
//!   again.
//!
//! Any thread may call any method. Appends wait for each other, so do writes and syncs, but an
//! append waits neither for a write nor for a sync. Locks are taken in the order `writing`,
//! `evidence`, `state`. What nobody notices: that a disk loses what it took while the machine lost
//! its power, and with it the notes about that since the last switch.

#![forbid(unsafe_code)]

use std::any::Any;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::sibling::{Mutex, MutexGuard};
use paranoid_memtable::{ChecksumKind, Error, Result, SequenceNumber, shown};

use crate::file_journal::durable_notes::{Evidence, Note};
use crate::file_journal::format::{
    At, FileHeader, HEADER_LEN, SEQUENCE_LEN, checksum_of, name_of, table_of, word,
};
use crate::file_journal::journal_trait::Journal;
use crate::file_journal::queue::Queue;
use crate::file_journal::recovery::{JournalRecovery, Recovered, RecoveryMode};
use crate::file_journal::storage::{
    FileStorage, Storage, StorageFile, name_copy, remove_if_there, write_copy,
};

/// Bytes of an encoded batch before its records, and where its count stands.
const BATCH_HEADER_LEN: usize = 12;
const COUNT_AT: usize = 8;

/// Most files that are not durable.
const OPEN_FILES_MAX: usize = 16;

/// A file that this journal has written and that is not durable as a whole, or takes more.
#[derive(Debug, Clone)]
struct OpenFile {
    header: FileHeader,
    file: Arc<dyn StorageFile>,
    /// Bytes that count, and those of them that are durable together with the file's name and all
    /// that comes before them.
    written: u64,
    durable: u64,
}

impl OpenFile {
    /// Where it ends.
    fn at(&self) -> At {
        At {
            table: self.header.table,
            offset: self.written,
        }
    }

    fn name(&self) -> String {
        name_of(self.header.table)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Files that are not durable yet, oldest first; the last one takes appends.
    files: Vec<OpenFile>,
    /// The end of the newest file, if this journal did not write it.
    previous: Option<At>,
    next_table: u64,
    /// Of all that was appended, and of what was written.
    last_sequence: SequenceNumber,
    written_sequence: SequenceNumber,
    /// A write or a sync that failed.
    failure: Option<Error>,
    queue: Queue,
}

impl State {
    /// Fails after a call that failed (FILE-JOURNAL-2).
    fn working(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Notes a call that failed. From then on every call fails with `ReadOnly` because of the first
    /// one: what was appended may be lost.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(Error::read_only(error)).clone()
    }

    /// Notes that all these files are durable as far as they were written.
    fn synced(&mut self, covered: &[OpenFile]) {
        for file in &mut self.files {
            let synced = covered
                .iter()
                .find(|it| it.header.table == file.header.table);
            file.durable = synced.map_or(file.durable, |it| it.written);
        }
        let newest = self.newest();
        self.files
            .retain(|file| file.durable < file.written || Some(file.header.table) == newest);
    }

    fn newest(&self) -> Option<u64> {
        self.files.last().map(|file| file.header.table)
    }

    /// The end of the newest file.
    fn end(&self) -> Option<At> {
        self.files.last().map(OpenFile::at).or(self.previous)
    }
}

/// A [`Journal`] of files in one directory: one file per table, of encoded batches with checksums.
/// An append copies the batch into a queue; a write hands the queue to the operating system, so
/// that it survives the end of the process; a sync makes it survive a crash of the machine. A
/// switch, a sync and the drop write first.
///
/// [`open`](Self::open) gives the journal and a [`JournalRecovery`], which hands out what earlier
/// journals left. Before the first append [`switch`](Journal::switch) must name a table from
/// [`next_table`](Self::next_table) on. Sequence numbers ascend from batch to batch.
///
/// If a write or a sync fails, for want of space for instance, every later call fails, because
/// nobody knows what of the file will survive. Once the journal is dropped, [`open`](Self::open)
/// writes anew what is there and not known to be durable, so what survives a crash is always a
/// prefix of what was appended. Too few file descriptors are no such failure: writes and syncs need
/// no new one, and an opening, a switch or a removal that needs one changes nothing and can be
/// tried again.
///
/// # What is noticed
/// A later opening refuses what was durable and is not as it was written: a damaged or missing
/// record, a file that is gone or shorter, the newest one too. It knows from the records, from the
/// headers, which name the file before, and from a note that each sync adds to the file
/// `journal.synced`. Nobody notices that the last batches are gone if those notes are gone as well:
/// if a disk drops what it reported as written when the power fails, up to the last file that was
/// begun, or if all of the directory is lost.
///
/// # Files
/// `NNNNNN.journal` for each table, `journal.synced`, and `journal.lock`, which one journal holds
/// as long as it is open. A file is removed once its table is flushed, but none before the recovery
/// has [ended](JournalRecovery::replay) and all that it delivered is flushed: until then the disk
/// has the whole journal beside the files that the flushes of the recovery write. A recovery that
/// ends in an error, is dropped or is leaked keeps every file, old and new, until the next opening.
///
/// What an opening cuts off, it keeps: a torn tail as `NNNNNN.journal.cut` until the table is
/// obsolete, anything else as `NNNNNN.journal.damaged` until somebody removes it. What is written
/// anew has a name that ends in `.copy` until it is whole. No other file is touched. A switch waits
/// for no device, unless there are many files that were never synced: then it syncs them.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::{Lookup, WriteBatch};
/// use paranoid_set::{Durability, FileJournal, MemTableSet, SetOptions};
/// # let folder = std::env::temp_dir().join(format!("file-journal-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// for run in 0..2 {
///     let (journal, recovery) = FileJournal::open(&folder, 0)?;
///     let first_table = journal.next_table();
///     let options = SetOptions::builder().journal(Arc::new(journal)).first_table(first_table).build()?;
///     let set = MemTableSet::open(options, ())?;
///     // What an earlier run logged comes back under its own numbers.
///     let replayed = recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
///     assert_eq!(replayed.batches, run);
///     let mut batch = WriteBatch::new();
///     batch.put(&[b'0' + run as u8], b"a value")?;
///     set.write_with(&batch, Durability::Synced)?;
///     assert!(matches!(set.view().get(b"0")?, Lookup::Value(_)));
/// }
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub struct FileJournal {
    storage: Arc<dyn Storage>,
    checksum: ChecksumKind,
    state: Mutex<State>,
    /// Held by the one thread that writes: what it has taken of the queue.
    writing: Mutex<Queue>,
    /// Held by the one thread that syncs, removes files, or writes them anew.
    evidence: Mutex<Evidence>,
    /// How far the recovery has come of what was there before (FILE-JOURNAL-7).
    recovered: Arc<Recovered>,
    /// Keeps other journals out of the directory.
    _lock: Box<dyn Any + Send + Sync>,
}

shown! { "FileJournal": impl [] FileJournal, |journal| { "checksum": journal.checksum } }

impl FileJournal {
    /// The journal of a directory that exists, with XXH3 checksums, and what earlier journals left
    /// there. `last_sequence` is the last sequence number of the tables that are in the engine's
    /// files, 0 if there are none: older batches are not handed out again. All files are read:
    /// O(bytes).
    ///
    /// What was not written whole when the machine went down is cut off, which is one of the
    /// [`findings`](crate::Replayed::findings). The newest file, and what is not known to be
    /// durable, is written anew, which needs room for a copy of the file; an opening that fails for
    /// want of room leaves no more bytes than it found. Files whose batches are all in the engine's
    /// files are removed: `last_sequence` must be that of files which a crash leaves there.
    ///
    /// ```
    /// use paranoid_set::FileJournal;
    /// assert!(FileJournal::open("/no/such/directory", 0).is_err());
    /// ```
    ///
    /// # Errors
    /// `DamagedFile` with the file and the byte offset if something that was durable does not
    /// verify or is not there; no file is changed then, and [`open_in`](Self::open_in) with
    /// [`SkipAnyCorrupted`](RecoveryMode::SkipAnyCorrupted) saves the rest. `NotSupported` for
    /// files of another version. `Io` with `WouldBlock` if another journal has the directory open,
    /// in this process or another one, and other `Io`.
    pub fn open(
        directory: impl AsRef<Path>,
        last_sequence: SequenceNumber,
    ) -> Result<(FileJournal, JournalRecovery)> {
        let storage = Arc::new(FileStorage::new(directory));
        FileJournal::open_in(
            storage,
            last_sequence,
            ChecksumKind::Xxh3,
            RecoveryMode::default(),
        )
    }

    /// Opens a journal in a storage, which need not be a directory, and says what a recovery does
    /// about damage. `checksum` is the kind that new files get; files that exist are read whatever
    /// kind they have.
    ///
    /// A damaged journal opens with `SkipAnyCorrupted`: the recovery hands out every batch that
    /// verifies, before and behind the damage. Damaged files are left as they are until
    /// [`obsolete_before`](Journal::obsolete_before) removes them. Until then only this mode opens
    /// the journal.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
    /// use paranoid_set::{FileJournal, FileStorage, Journal, RecoveryMode};
    /// # let folder = std::env::temp_dir().join(format!("salvage-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).expect("a folder");
    /// let (journal, _) = FileJournal::open(&folder, 0)?;
    /// journal.switch(1)?;
    /// for number in 1..=3 {
    ///     let mut batch = WriteBatch::new();
    ///     batch.put(b"key", &[number; 10])?;
    ///     batch.set_sequence(number.into());
    ///     journal.append(batch.as_bytes())?;
    ///     journal.sync()?;
    /// }
    /// drop(journal);
    /// let path = folder.join("000001.journal");
    /// let mut bytes = std::fs::read(&path).expect("the file");
    /// bytes[600] ^= 4;
    /// std::fs::write(&path, bytes).expect("written");
    ///
    /// let refused = FileJournal::open(&folder, 0).unwrap_err();
    /// assert!(matches!(&refused, Error::DamagedFile { file, .. } if file == "000001.journal"));
    /// let mut saved = Vec::new();
    /// let (storage, mode) = (Arc::new(FileStorage::new(&folder)), RecoveryMode::SkipAnyCorrupted);
    /// let (_journal, recovery) = FileJournal::open_in(storage, 0, ChecksumKind::Xxh3, mode)?;
    /// let replayed = recovery.replay(|sequence, _| {
    ///     saved.push(sequence);
    ///     Ok(())
    /// })?;
    /// assert_eq!((saved.as_slice(), replayed.findings.len()), ([1, 3].as_slice(), 1));
    /// # std::fs::remove_dir_all(&folder).expect("removed");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and `InvalidArgument` for [`ChecksumKind::None`].
    pub fn open_in(
        storage: Arc<dyn Storage>,
        last_sequence: SequenceNumber,
        checksum: ChecksumKind,
        mode: RecoveryMode,
    ) -> Result<(FileJournal, JournalRecovery)> {
        if checksum == ChecksumKind::None {
            return Err(Error::InvalidArgument(
                "a journal without checksums cannot tell where it ends".into(),
            ));
        }
        let lock = storage
            .lock()
            .map_err(Error::io("lock", "the journal's directory"))?;
        let (recovery, evidence, next_table) =
            JournalRecovery::open(Arc::clone(&storage), last_sequence, mode)?;
        let last_sequence = recovery.last_first();
        let (previous, written_sequence) = (recovery.end(), last_sequence);
        let state = State {
            previous,
            next_table,
            last_sequence,
            written_sequence,
            ..State::default()
        };
        let (state, writing, evidence) =
            (Mutex::new(state), Mutex::default(), Mutex::new(evidence));
        let recovered = Arc::clone(&recovery.recovered);
        Ok((
            FileJournal {
                storage,
                checksum,
                state,
                writing,
                evidence,
                recovered,
                _lock: lock,
            },
            recovery,
        ))
    }

    /// The smallest number that the next table may have: 1 in an empty directory.
    #[must_use]
    pub fn next_table(&self) -> u64 {
        self.state.lock().next_table
    }

    /// Writes what was queued before this call, by one write, and locks the state.
    fn write_queue(&self, taken: &mut Queue) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if !taken.is_empty() {
            // Unless the last write failed, it panicked.
            return Err(state.failed(Error::WriterPanicked));
        }
        state.working()?;
        std::mem::swap(taken, &mut state.queue);
        taken.last_sequence = state.last_sequence;
        if let Some(newest) = state.files.last().filter(|_| !taken.is_empty()).cloned() {
            drop(state);
            // Appends go on meanwhile.
            let written = taken
                .encode(&newest.header.checks, newest.written, newest.durable)
                .and_then(|bytes| {
                    let appended = newest.file.append(bytes);
                    appended.map_err(|error| Error::io("append to", &newest.name())(error))?;
                    Ok(bytes.len() as u64)
                });
            state = self.state.lock();
            let len = written.map_err(|error| state.failed(error))?;
            if let Some(newest) = state.files.last_mut() {
                newest.written += len;
            }
            state.written_sequence = taken.last_sequence;
            taken.clear();
        }
        Ok(state)
    }

    /// Makes these files durable, oldest first, and their names last (FILE-JOURNAL-1 and 5).
    fn sync_files(&self, files: &[OpenFile], evidence: &mut Evidence) -> Result<()> {
        for file in files {
            file.file.sync().map_err(Error::io("sync", &file.name()))?;
        }
        let has_new_names = files.iter().any(|file| file.durable == 0);
        if has_new_names || evidence.is_full() {
            evidence.renew()
        } else {
            Ok(())
        }
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        // Who wants to know whether that fails asks for a write before.
        let _ = self.write();
        self.evidence.lock().sync();
    }
}

impl Journal for FileJournal {
    fn append(&self, batch: &[u8]) -> Result<()> {
        self.append_checked(&mut batch.to_vec(), Journal::checksum(self, batch))
    }

    fn checksum(&self, batch: &[u8]) -> u32 {
        checksum_of(batch.get(SEQUENCE_LEN..).unwrap_or_default(), self.checksum)
    }

    fn append_checked(&self, batch: &mut Vec<u8>, checksum: u32) -> Result<()> {
        let Some(count) = batch.get(COUNT_AT..BATCH_HEADER_LEN) else {
            return Err(Error::InvalidArgument(format!(
                "{} bytes are no batch",
                batch.len()
            )));
        };
        let (sequence, is_empty) = (word(batch, 0), count == [0; 4]);
        let mut state = self.state.lock();
        let last = state.last_sequence;
        if sequence <= last {
            return Err(Error::InvalidArgument(format!(
                "batch {sequence} after batch {last}"
            )));
        }
        state.working()?;
        if state.files.is_empty() {
            return Err(Error::InvalidArgument(
                "a journal takes batches after its first `switch`".into(),
            ));
        }
        state.queue.push(batch, sequence, checksum);
        if !is_empty {
            state.last_sequence = sequence;
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        self.write_queue(&mut self.writing.lock()).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.write()?;
        let mut evidence = self.evidence.lock();
        let state = self.state.lock();
        state.working()?;
        let last_sequence = state.written_sequence;
        let is_open = |file: &&OpenFile| file.durable < file.written;
        let covered: Vec<OpenFile> = state.files.iter().filter(is_open).cloned().collect();
        drop(state);
        let Some(last) = covered.last() else {
            return Ok(());
        };
        let synced = self.sync_files(&covered, &mut evidence);
        synced.map_err(|error| self.state.lock().failed(error))?;
        self.state.lock().synced(&covered);
        evidence.add(Note {
            at: last.at(),
            last_sequence,
        });
        Ok(())
    }

    fn switch(&self, table: u64) -> Result<()> {
        if self.state.lock().files.len() >= OPEN_FILES_MAX {
            self.sync()?;
        }
        let mut taken = self.writing.lock();
        let mut state = self.write_queue(&mut taken)?;
        while !state.queue.is_empty() {
            drop(state);
            state = self.write_queue(&mut taken)?;
        }
        if table < state.next_table || table == u64::MAX {
            let next = state.next_table;
            return Err(Error::InvalidArgument(format!(
                "table {table} where {next} is the next one"
            )));
        }
        let random = RandomState::new().hash_one(table);
        let header = FileHeader {
            previous: state.end(),
            last_sequence: state.last_sequence,
            ..FileHeader::new(self.checksum, random, table)
        };
        let name = name_of(table);
        let file = write_copy(&*self.storage, &name, &header.to_bytes())?.into();
        name_copy(&*self.storage, &name).map_err(|error| state.failed(error))?;
        state.files.push(OpenFile {
            header,
            file,
            written: HEADER_LEN as u64,
            durable: 0,
        });
        state.next_table = table + 1;
        Ok(())
    }

    /// Without a sequence number: if the recovery delivered anything, nothing is removed.
    fn obsolete_before(&self, table: u64) -> Result<()> {
        self.flushed(table, 0)
    }

    fn flushed(&self, table: u64, last_sequence: SequenceNumber) -> Result<()> {
        if self
            .recovered
            .get()
            .is_none_or(|recovered| last_sequence < *recovered)
        {
            return Ok(());
        }
        // Appends do not wait while files are removed.
        let mut evidence = self.evidence.lock();
        let newest = self.state.lock().newest();
        let names = self
            .storage
            .list()
            .map_err(Error::io("list", "the journal's directory"))?;
        let is_old = |it: &u64| *it < table && Some(*it) != newest;
        let old: BTreeSet<u64> = names
            .iter()
            .filter_map(|name| table_of(name))
            .filter(is_old)
            .collect();
        for oldest in old {
            if evidence.names(oldest) {
                evidence.begin(None)?;
            }
            remove_if_there(&*self.storage, &name_of(oldest))?;
            self.state
                .lock()
                .files
                .retain(|file| file.header.table != oldest);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use paranoid_memtable::WriteBatch;

    /// A bit that flips in the queue is not written (FILE-JOURNAL-6).
    #[test]
    fn a_damaged_copy_is_refused() {
        let folder = std::env::temp_dir().join(format!("paranoid-queue-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (journal, _) = FileJournal::open(&folder, 0).unwrap();
        journal.switch(1).unwrap();
        let append = |number| {
            let mut batch = WriteBatch::new();
            batch.put(b"key", b"value").unwrap();
            batch.set_sequence(number);
            journal.append(batch.as_bytes()).unwrap();
        };
        append(1);
        journal.write().unwrap();
        (2..=4).for_each(append);
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"damage").unwrap();
        batch.set_sequence(5);
        let checksum = Journal::checksum(&journal, batch.as_bytes());
        let mut damaged = batch.as_bytes().to_vec();
        damaged[20] ^= 4;
        journal.append_checked(&mut damaged, checksum).unwrap();
        for _ in 0..2 {
            assert!(journal.write().unwrap_err().corruption().is_some());
        }
        assert!(journal.switch(2).is_err());
        drop(journal);
        let mut found = vec![];
        let (_journal, recovery) = FileJournal::open(&folder, 0).unwrap();
        let keep = |number, _| {
            found.push(number);
            Ok(())
        };
        recovery.replay(keep).unwrap();
        assert_eq!(found, [1]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
