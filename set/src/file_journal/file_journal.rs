//! `FileJournal`: a journal with one file of encoded batches per table, in one directory.
//!
//! ```text
//!   append        puts the batch into the queue                           no system call, no copy
//!   write         encodes the queue; one write at the end of the file     waits for no device
//!   switch(7)     write; create 000007.journal with its header            waits for no device
//!   sync          write; sync older files that are not durable, this file, the directory
//! ```
//! * FILE-JOURNAL-1: `sync` returns only after every byte that was appended before the call is
//!   durable, with all earlier files and the names of all files. Then it adds a note about that.
//! * FILE-JOURNAL-2: after a write or a sync that failed, no file is written or synced again, and
//!   every call fails. So the batches that survive a crash are a prefix of those appended. The next
//!   opening writes the part that may not be durable to a new file.
//! * FILE-JOURNAL-3: after a sync of the directory that failed, another sync proves nothing about
//!   the old names, unless there is a new name. So a sync that needs names begins a new file of
//!   notes.
//! * FILE-JOURNAL-4: records are written in the order of the appends, and each as it was appended.
//!   A new file begins only after all batches of the earlier files are written.
//! * FILE-JOURNAL-5: no file is removed before the recovery of the files found at the opening has
//!   ended well, and the sequence numbers show that all batches it delivered are flushed. Newer
//!   files stay too, because each header names the file before.
//!
//! Any thread may call any method. Appends wait for each other, writes for each other, and syncs
//! for each other; an append waits for no write and no sync. Locks are taken in the order
//! `writing`, `notes`, `state`. Not detected: a power failure in which the disk loses bytes that it
//! reported as durable, and also all notes since the last switch.

#![forbid(unsafe_code)]

use std::any::Any;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::sibling::{Mutex, MutexGuard};
use paranoid_memtable::{ChecksumKind, Error, Result, SequenceNumber, shown};

use crate::file_journal::durable_notes::{DurableNotes, Note};
use crate::file_journal::format::{
    At, FileHeader, HEADER_LEN, SEQUENCE_LEN, checksum_of, name_of, table_of, word,
};
use crate::file_journal::queue::Queue;
use crate::file_journal::recovery::{JournalRecovery, Recovered, RecoveryMode};
use crate::file_journal::storage::{
    FileStorage, Storage, StorageFile, name_copy, remove_if_there, write_copy,
};
use crate::journal::Journal;

/// The length of an encoded batch's header, and the offset of the count in it.
const BATCH_HEADER_LEN: usize = 12;
const COUNT_AT: usize = 8;

/// The most files that are not durable. Each of them is open; at this number a switch syncs them.
const OPEN_FILES_MAX: usize = 16;

/// A file that this journal has written, and that takes batches or is not durable as a whole.
#[derive(Debug, Clone)]
struct OpenFile {
    header: FileHeader,
    file: Arc<dyn StorageFile>,
    /// The number of written bytes, without those of a failed write.
    written: u64,
    /// The number of bytes that are durable, with the file's name and all earlier files.
    durable: u64,
}

impl OpenFile {
    /// The end of the file.
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
    /// The files that are not durable, oldest first, and the newest file, which takes the appends.
    files: Vec<OpenFile>,
    /// The end of the newest file at the opening.
    previous: Option<At>,
    next_table: u64,
    /// The largest first sequence number of an appended batch with entries.
    last_sequence: SequenceNumber,
    /// The same for the written batches.
    written_sequence: SequenceNumber,
    /// The error of the first write or sync that failed.
    failure: Option<Error>,
    queue: Queue,
}

impl State {
    /// Returns the error of an earlier write or sync (FILE-JOURNAL-2).
    fn working(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Notes a failed call, after which appended batches may be lost. Every later call fails with
    /// `ReadOnly`, whose cause is the first failure.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        self.failure.get_or_insert(Error::read_only(error)).clone()
    }

    /// Notes that these files are durable up to the length that each had when the sync began.
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

    /// The end of the newest file, if there is one.
    fn end(&self) -> Option<At> {
        self.files.last().map(OpenFile::at).or(self.previous)
    }
}

/// A [`Journal`] of files in one directory: one file per table, of encoded batches with checksums.
/// An append copies the batch into a queue. A write passes the queue to the operating system, so
/// that the batches survive the end of the process. A sync makes them survive a crash of the
/// machine. A switch, a sync and the drop write first.
///
/// [`open`](Self::open) returns the journal and a [`JournalRecovery`], which delivers the batches
/// of earlier journals. Before the first append, [`switch`](Journal::switch) must name a table not
/// before [`next_table`](Self::next_table). Sequence numbers ascend from batch to batch.
///
/// If a write or a sync fails, for example for want of space, every later call fails, because an
/// unknown part of the file may be lost. After the journal is dropped, [`open`](Self::open) writes
/// the part that may not be durable to a new file. So the batches that survive a crash are always a
/// prefix of those appended. A lack of file descriptors is no such failure: writes and syncs need
/// no new one, and an opening, a switch or a removal that needs one changes nothing and can be
/// tried again.
///
/// # Detected losses
/// A later opening refuses a journal in which a durable part is not as it was written: a record
/// that is damaged or missing, or a file that is missing or too short, the newest file included.
/// The opening knows what was durable from the records, from the headers, which name the file
/// before, and from a note that each sync adds to the file `journal.synced`.
///
/// Not detected: the loss of the last batches together with these notes. It happens if the whole
/// directory is lost, or if in a power failure a disk loses bytes of the newest file that it
/// reported as durable.
///
/// # Files
/// The directory has `NNNNNN.journal` for each table, `journal.synced`, and `journal.lock`, which
/// an open journal holds. A file is removed once its table is flushed, but only after the recovery
/// has [ended](JournalRecovery::replay) and all delivered batches are flushed. Until then the disk
/// has the whole journal beside the files that the flushes of the recovery write. A recovery that
/// ends in an error, is dropped or is leaked keeps every file, old and new, until the next opening.
///
/// An opening keeps the parts that it cuts off: a torn tail as `NNNNNN.journal.cut` until the table
/// is obsolete, any other part as `NNNNNN.journal.damaged` until the user removes it. A file that
/// is being written has a name that ends in `.copy`. No other file is touched. A switch waits for
/// no device, unless there are many unsynced files: then it syncs them.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{Durability, FileJournal, MemTableSet, SetOptions};
/// # let folder = std::env::temp_dir().join(format!("file-journal-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// for run in 0..2 {
///     let (journal, recovery) = FileJournal::open(&folder, 0)?;
///     let first_table = journal.next_table();
///     let options = SetOptions::builder().journal(Arc::new(journal)).first_table(first_table).build()?;
///     let set = MemTableSet::open(options, ())?;
///     // The batches of an earlier run come back under their own numbers.
///     let replayed = recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
///     assert_eq!(replayed.batches, run);
///     let mut batch = WriteBatch::new();
///     batch.put(&[b'0' + run as u8], b"a value")?;
///     set.write_with(&batch, Durability::Synced)?;
///     assert!(set.view().get(b"0")?.value().is_some());
/// }
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub struct FileJournal {
    storage: Arc<dyn Storage>,
    checksum: ChecksumKind,
    state: Mutex<State>,
    /// Held by the thread that writes: the part of the queue that it has taken.
    writing: Mutex<Queue>,
    /// Held by the thread that syncs or removes files.
    notes: Mutex<DurableNotes>,
    /// Whether the recovery has ended, and its last number (FILE-JOURNAL-5).
    recovered: Arc<Recovered>,
    /// The lock of the directory against other journals.
    _lock: Box<dyn Any + Send + Sync>,
}

shown! { "FileJournal": impl [] FileJournal, |journal| { "checksum": journal.checksum } }

impl FileJournal {
    /// Opens a journal with XXH3 checksums in a directory, which must exist. Returns the journal,
    /// and a recovery of the batches that earlier journals left there. `last_sequence` is the last
    /// sequence number in the engine's files, 0 if there are none; the recovery does not deliver
    /// batches up to this number. Reads all files: O(bytes).
    ///
    /// A tail that was not written completely when the machine went down is cut off, and is one of
    /// the [`findings`](crate::Replayed::findings). The newest file, and each file that may not be
    /// durable, is copied to a new file, which needs space for a copy of it. An opening that fails
    /// for want of space leaves no more bytes than it found. Files whose batches are all in the
    /// engine's files are removed, so the engine's files up to `last_sequence` must survive a
    /// crash.
    ///
    /// ```
    /// use paranoid_set::FileJournal;
    /// assert!(FileJournal::open("/no/such/directory", 0).is_err());
    /// ```
    ///
    /// # Errors
    /// - `DamagedFile` with the file and the byte offset, if a durable part does not verify or is
    ///   missing. No file is changed, and [`open_in`](Self::open_in) with
    ///   [`SkipAnyCorrupted`](RecoveryMode::SkipAnyCorrupted) recovers the rest.
    /// - `NotSupported` for files of another version.
    /// - `Io` with `WouldBlock` if another journal has the directory open, in this process or in
    ///   another one, and other `Io`.
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

    /// Opens a journal in a storage, which may be something else than a directory. `mode` says what
    /// the opening does about damage. New files get the checksum kind `checksum`; existing files
    /// may have any kind.
    ///
    /// With `SkipAnyCorrupted` a damaged journal opens too: the recovery delivers every batch that
    /// verifies, before and after the damage. Damaged files stay as they are until
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
        let (recovery, notes, next_table) =
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
        let (state, writing, notes) = (Mutex::new(state), Mutex::default(), Mutex::new(notes));
        let recovered = Arc::clone(&recovery.recovered);
        Ok((
            FileJournal {
                storage,
                checksum,
                state,
                writing,
                notes,
                recovered,
                _lock: lock,
            },
            recovery,
        ))
    }

    /// Returns the smallest number that the next table may have; 1 in an empty directory.
    #[must_use]
    pub fn next_table(&self) -> u64 {
        self.state.lock().next_table
    }

    /// Writes the batches that were queued before this call by one system call, and locks the
    /// state.
    fn write_queue(&self, taken: &mut Queue) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if !taken.is_empty() {
            // The last write failed, which is noted, or it panicked.
            return Err(state.failed(Error::WriterPanicked));
        }
        state.working()?;
        std::mem::swap(taken, &mut state.queue);
        taken.last_sequence = state.last_sequence;
        if let Some(newest) = state.files.last().filter(|_| !taken.is_empty()).cloned() {
            drop(state);
            // Other threads append meanwhile.
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

    /// Makes these files durable, oldest first, then their names (FILE-JOURNAL-1, FILE-JOURNAL-3).
    fn sync_files(&self, files: &[OpenFile], notes: &mut DurableNotes) -> Result<()> {
        for file in files {
            file.file.sync().map_err(Error::io("sync", &file.name()))?;
        }
        let has_new_names = files.iter().any(|file| file.durable == 0);
        if has_new_names || notes.is_full() {
            notes.renew()
        } else {
            Ok(())
        }
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        // A caller that needs the error calls `write` before the drop.
        let _ = self.write();
        self.notes.lock().sync();
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
        let mut notes = self.notes.lock();
        let state = self.state.lock();
        state.working()?;
        let last_sequence = state.written_sequence;
        let is_open = |file: &&OpenFile| file.durable < file.written;
        let covered: Vec<OpenFile> = state.files.iter().filter(is_open).cloned().collect();
        drop(state);
        let Some(last) = covered.last() else {
            return Ok(());
        };
        let synced = self.sync_files(&covered, &mut notes);
        synced.map_err(|error| self.state.lock().failed(error))?;
        self.state.lock().synced(&covered);
        notes.add(Note {
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
        // From here on the file may exist. Its header fixes the end of the file before, so after an
        // error nothing more may be written to that one.
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

    /// Removes nothing if the recovery delivered any batch, because no sequence number shows that
    /// it is flushed.
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
        // Only `notes` is locked while files are removed, so appends do not wait.
        let mut notes = self.notes.lock();
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
            if notes.names(oldest) {
                notes.begin(None)?;
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

    /// A batch with a bit that flipped in the queue is not written.
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
