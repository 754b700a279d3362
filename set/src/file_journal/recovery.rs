//! The recovery of a journal: reads its files, decides where it ends, makes the rest durable, and
//! delivers the batches.
//!
//! ```text
//!   newest file .. oldest needed file      each header names the file before, and its length
//!   the first place that is missing or does not verify:
//!     a note or a later record says that it was durable   damage: refused
//!     it is a header that was written                     damage: refused
//!     nothing after it verifies                           a torn tail: cut
//!     it was never written, but a later part was          never synced: cut, with all after it
//!     anything else                                       damage: refused
//! ```
//! All files are read before any file is changed and before any batch is delivered. Each cut is
//! reported, and the part stays in a file with another name. An opening that fails leaves no more
//! bytes than it found: it first removes the unfinished files of earlier openings, and after an
//! error its own.
//! * JOURNAL-RECOVERY-1: all batches to be delivered are durable before the journal takes its first
//!   batch. A file that may not be durable is copied to a new file, because after a failed sync, in
//!   this process or an earlier one, another sync of the old file proves nothing. The newest file
//!   is always copied: the cut after a failed append may not be synced.
//!
//! One owner.

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Error, Result, SequenceNumber, WriteBatch, shown};

use crate::file_journal::durable_notes::{DurableNotes, NAME, Note};
use crate::file_journal::findings::{FindingReason, JournalFinding, Replayed};
use crate::file_journal::format::{
    At, CUT, DAMAGED, FileHeader, HEADER_LEN, Record, report, table_of, table_of_kept,
};
use crate::file_journal::reader::{Bad, Records, ScannedFile, read_file};
use crate::file_journal::storage::{COPY, Storage, remove_if_there, replace_file, sync_dir};

/// The mode of opening a journal that is not as it was written, under the names of RocksDB's
/// `WALRecoveryMode`.
///
/// From the first place that does not verify on, the journal is a *torn tail* if no note and no
/// record says that the place was durable. Otherwise it is *damage*. It is damage, too, if the
/// place was written and a record after it verifies, or if it is a header that was written.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::ChecksumKind;
/// use paranoid_set::{FileJournal, FileStorage, RecoveryMode};
/// # let folder = std::env::temp_dir().join(format!("recovery-mode-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let storage = Arc::new(FileStorage::new(&folder));
/// assert!(FileJournal::open_in(storage, 0, ChecksumKind::Crc32c, RecoveryMode::PointInTime).is_ok());
/// assert_eq!(RecoveryMode::default(), RecoveryMode::TolerateCorruptedTailRecords);
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecoveryMode {
    /// A torn tail is cut off. Damage is refused, with the file and the byte offset.
    #[default]
    TolerateCorruptedTailRecords,
    /// A torn tail and damage are refused.
    AbsoluteConsistency,
    /// The first place that is not as it was written ends the journal, durable or not. The rest is
    /// cut off, and stays in files with other names.
    PointInTime,
    /// Every batch that verifies is delivered; damage between them is skipped.
    SkipAnyCorrupted,
}

/// The batches that earlier journals left in a directory: checked and durable, but not delivered
/// yet.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{FileJournal, Journal};
/// # let folder = std::env::temp_dir().join(format!("recovery-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (journal, _) = FileJournal::open(&folder, 0)?;
/// journal.switch(1)?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.set_sequence(1);
/// journal.append(batch.as_bytes())?;
/// journal.sync()?;
/// drop(journal);
///
/// let mut found = Vec::new();
/// let (journal, recovery) = FileJournal::open(&folder, 0)?;
/// let replayed = recovery.replay(|sequence, batch| {
///     found.push((sequence, batch.len()));
///     Ok(())
/// })?;
/// assert_eq!(found, [(1, 1)]);
/// assert_eq!((replayed.last_sequence, journal.next_table()), (1, 2));
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use = "the batches of earlier journals are in no table until they are replayed"]
pub struct JournalRecovery {
    storage: Arc<dyn Storage>,
    last_sequence: SequenceNumber,
    /// The files that are kept, oldest first.
    files: Vec<ScannedFile>,
    /// The files that are cut off, the first one maybe in part, and newest files without records.
    dropped: Vec<ScannedFile>,
    /// The ending of the names of files that are cut off.
    ending: &'static str,
    /// All parts of the journal before this place were durable, and must be intact if they are
    /// needed.
    synced: At,
    note: Option<Note>,
    /// Whether the recovery skips damage: it delivers every batch that verifies, and cuts no file.
    is_salvage: bool,
    replayed: Replayed,
    /// The first number of the newest delivered batch.
    delivered: SequenceNumber,
    /// Shared with the journal.
    pub(super) recovered: Arc<Recovered>,
}

/// The last sequence number that a recovery delivered, set when it ends well; 0 if it had no batch.
/// Until it is set, the journal removes no file (FILE-JOURNAL-5).
pub(super) type Recovered = OnceLock<SequenceNumber>;

impl JournalRecovery {
    /// Reads all files, and cuts off or refuses the parts that are not as they were written.
    /// Returns the recovery, the notes, and the smallest number that the next table may have.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        last_sequence: SequenceNumber,
        mode: RecoveryMode,
    ) -> Result<(Self, DurableNotes, u64)> {
        let mut names = storage
            .list()
            .map_err(Error::io("list", "the journal's directory"))?;
        names.sort_unstable_by_key(|name| table_of(name));
        let (mut notes, damaged_note) = DurableNotes::read(Arc::clone(&storage))?;
        let mut recovery = JournalRecovery {
            storage,
            last_sequence,
            files: Vec::new(),
            dropped: Vec::new(),
            ending: DAMAGED,
            synced: At {
                table: 0,
                offset: 0,
            },
            note: notes.note,
            is_salvage: false,
            replayed: Replayed {
                last_sequence,
                ..Replayed::default()
            },
            delivered: last_sequence,
            recovered: Arc::default(),
        };
        recovery.scan(&names)?;
        let oldest = recovery.files.first().map_or(0, |file| file.table);
        recovery.cut(mode)?;
        recovery.drop_idle();
        damaged_note
            .into_iter()
            .for_each(|error| recovery.found(FindingReason::Damage, 0, error));
        recovery.clean_up(&names, oldest, &mut notes)?;
        if !recovery.is_salvage && recovery.last_first() == last_sequence {
            // The recovery has nothing to deliver.
            recovery.recovered.get_or_init(|| 0);
        }
        let used = names
            .iter()
            .filter_map(|name| table_of(name).or_else(|| table_of_kept(name)));
        let next_table = used.max().map_or(1, |table| table.saturating_add(1));
        Ok((recovery, notes, next_table))
    }

    /// Delivers all batches after the engine's last sequence number, each with its number, in the
    /// order of the numbers. Each batch is verified and has digests. Appends nothing. O(bytes).
    ///
    /// `Ok` ends the recovery. Until then the journal keeps every file, even if its table is
    /// flushed; after that, until all delivered batches are flushed. A recovery that returns an
    /// error, panics or is dropped does not end: the next opening starts it again, and nothing is
    /// lost.
    ///
    /// # Errors
    /// - `DamagedFile` with the file and the byte offset, if a batch was damaged after the opening,
    ///   or has records that this crate cannot apply. With `SkipAnyCorrupted` these batches are
    ///   findings, and the recovery continues.
    /// - `Io`, and any error of `deliver`.
    pub fn replay(
        mut self,
        mut deliver: impl FnMut(SequenceNumber, WriteBatch) -> Result<()>,
    ) -> Result<Replayed> {
        for file in std::mem::take(&mut self.files) {
            self.deliver_file(&file, &mut deliver)?;
        }
        self.recovered.get_or_init(|| self.replayed.last_sequence);
        Ok(self.replayed)
    }

    /// Adds a finding.
    fn found(&mut self, reason: FindingReason, cut_bytes: u64, error: Error) {
        self.replayed.cut_bytes += cut_bytes;
        self.replayed.findings.push(JournalFinding {
            reason,
            cut_bytes,
            error,
        });
    }

    /// The last note, if it covers batches that the engine's files do not have.
    fn needed_note(&self) -> Option<Note> {
        self.note
            .filter(|note| note.last_sequence > self.last_sequence)
    }

    /// Reads all needed files, from the newest to the oldest.
    fn scan(&mut self, names: &[String]) -> Result<()> {
        // The header of the next newer file, which names the file before it.
        let mut newer: Option<FileHeader> = None;
        for table in names.iter().rev().filter_map(|name| table_of(name)) {
            let previous = newer.and_then(|header| header.previous);
            // No header names this file: its creation failed.
            if newer.is_some() && previous.is_none_or(|previous| table > previous.table) {
                continue;
            }
            let end = previous
                .filter(|previous| previous.table == table)
                .map(|previous| previous.offset);
            let mut file = ScannedFile::read(table, read_file(&*self.storage, table)?, end)?;
            let noted = self.needed_note().filter(|note| note.at.table == table);
            file.must_reach(noted.map_or(0, |note| note.at.offset));
            newer = file.header;
            if let Some(damage) = file.damaged_copy {
                self.found(FindingReason::Damage, 0, file.damaged(damage.into()));
            }
            self.files.push(file);
            if newer.is_some_and(|header| header.last_sequence <= self.last_sequence) {
                break;
            }
        }
        self.files.reverse();
        let durable = self.files.iter().filter(|file| file.durable > 0);
        let durable = durable.map(|file| At {
            table: file.table,
            offset: file.durable,
        });
        self.synced = durable
            .chain(self.note.map(|note| note.at))
            .max()
            .unwrap_or(self.synced);
        self.add_missing();
        Ok(())
    }

    /// Adds the files that a header or the note names, and that do not exist.
    fn add_missing(&mut self) {
        let is_there = |table: u64| {
            self.files
                .binary_search_by_key(&table, |file| file.table)
                .is_ok()
        };
        let headers = || self.files.iter().filter_map(|file| file.header);
        let named = headers().filter(|it| it.last_sequence > self.last_sequence);
        let named = named
            .filter_map(|it| it.previous)
            .filter(|at| !is_there(at.table));
        let mut missing: Vec<At> = named.collect();
        // No header names the file that was the newest at the last sync: only the note does.
        let is_newest = |note: &Note| {
            headers().all(|header| header.table < note.at.table) && !is_there(note.at.table)
        };
        missing.extend(self.needed_note().filter(is_newest).map(|note| note.at));
        self.files
            .extend(missing.into_iter().map(ScannedFile::missing));
        self.files.sort_by_key(|file| file.table);
    }

    /// Decides where the journal ends. Batches that a `sync` acknowledged are delivered, or the
    /// opening is refused, as long as a note or a later record names that sync.
    fn cut(&mut self, mode: RecoveryMode) -> Result<()> {
        let broken = self
            .files
            .iter()
            .enumerate()
            .find_map(|(index, file)| Some((index, file, file.bad?)));
        let Some((first, file, bad)) = broken else {
            return Ok(());
        };
        let continues = file.continues
            || self
                .files
                .iter()
                .skip(first + 1)
                .any(|file| file.last_batch > 0);
        let was_durable = At {
            table: file.table,
            offset: bad.at,
        } < self.synced;
        let lost_header = bad.at == 0 && !bad.unwritten;
        let is_damage = was_durable || lost_header || (continues && !bad.unwritten);
        let refuses_damage = mode == RecoveryMode::TolerateCorruptedTailRecords;
        if mode == RecoveryMode::AbsoluteConsistency || (refuses_damage && is_damage) {
            return Err(file.damaged(bad.report.into()));
        }
        if mode == RecoveryMode::SkipAnyCorrupted && (is_damage || continues) {
            self.skip_lost();
            return Ok(());
        }
        let reason = if is_damage {
            FindingReason::Damage
        } else {
            FindingReason::TornTail
        };
        self.cut_from(
            first,
            bad,
            if file.is_missing {
                FindingReason::Missing
            } else {
                reason
            },
        )
    }

    /// Adds a finding for each file that is missing, that has no header, or that ends too early.
    /// The delivery reports damage between records.
    fn skip_lost(&mut self) {
        self.is_salvage = true;
        for file in std::mem::take(&mut self.files) {
            let is_lost = |bad: &Bad| file.header.is_none() || bad.at == file.len;
            if let Some(bad) = file.bad.filter(is_lost) {
                let reason = if file.is_missing {
                    FindingReason::Missing
                } else {
                    FindingReason::Damage
                };
                self.found(reason, 0, file.damaged(bad.report.into()));
            }
            self.files.extend((!file.is_missing).then_some(file));
        }
    }

    /// Cuts off the journal from a place on.
    fn cut_from(&mut self, first: usize, bad: Bad, reason: FindingReason) -> Result<()> {
        let is_torn = reason == FindingReason::TornTail;
        self.ending = if is_torn { CUT } else { DAMAGED };
        let cut = self.files.split_off(first);
        for (index, file) in cut.iter().enumerate() {
            let (keeps, report) = if index == 0 {
                (bad.at, bad.report)
            } else {
                (0, report(0, 0, file.len))
            };
            if file.len > keeps || (index == 0 && !is_torn) {
                self.found(reason, file.len - keeps, file.damaged(report.into()));
            }
            if keeps > 0 {
                let bytes = read_file(&*self.storage, file.table)?;
                self.files
                    .push(ScannedFile::read(file.table, bytes, Some(keeps))?);
            }
        }
        self.dropped = cut;
        Ok(())
    }

    /// Drops the newest files that have only a header. Otherwise a process that crashes again and
    /// again before its first write would leave more and more of them.
    fn drop_idle(&mut self) {
        let holds = |file: &ScannedFile| file.len > HEADER_LEN as u64 || file.bad.is_some();
        let mut idle = self.files.split_off(
            self.files
                .iter()
                .rposition(holds)
                .map_or(0, |last| last + 1),
        );
        // A file that was cut after its header is dropped as a whole.
        let cut = self.dropped.first().map(|file| file.table);
        idle.retain(|file| Some(file.table) != cut);
        idle.append(&mut self.dropped);
        self.dropped = idle;
    }

    /// Delivers the batches of a file.
    fn deliver_file(
        &mut self,
        file: &ScannedFile,
        deliver: &mut dyn FnMut(SequenceNumber, WriteBatch) -> Result<()>,
    ) -> Result<()> {
        let Some(FileHeader { checks, .. }) = file.header else {
            return Ok(());
        };
        let stream = file.stream(read_file(&*self.storage, file.table)?, checks);
        for read in Records::new(&stream) {
            let read = read.map_err(|bad| bad.report.into());
            let batch = match read.and_then(|record| self.read_batch(&record, &checks)) {
                Ok(Some(batch)) => batch,
                Ok(None) => continue,
                Err(cause) if !self.is_salvage => return Err(file.damaged(cause)),
                Err(cause) => {
                    self.found(FindingReason::Damage, 0, file.damaged(cause));
                    continue;
                }
            };
            let (sequence, len) = (batch.sequence(), batch.len() as u64);
            self.delivered = if len > 0 { sequence } else { self.delivered };
            let last = sequence.saturating_add(len.saturating_sub(1));
            self.replayed.last_sequence = self.replayed.last_sequence.max(last);
            deliver(sequence, batch)?;
            self.replayed.batches += 1;
        }
        Ok(())
    }

    /// The batch of a record; `None` if the engine's files have it.
    fn read_batch(&self, record: &Record<'_>, checks: &BlockChecks) -> Result<Option<WriteBatch>> {
        let sequence = record.sequence();
        if sequence <= self.last_sequence {
            return Ok(None);
        }
        let verify = |copy: &[u8]| Ok(record.verify(copy, checks)?);
        let mut batch = WriteBatch::from_verified(record.batch(), verify);
        if let Err(Error::Corruption(report)) = &mut batch {
            report.offset = record.offset_of(report.offset);
        }
        if sequence <= self.delivered {
            return Err(report(record.offset_of(0), self.delivered + 1, sequence).into());
        }
        batch.map(Some)
    }

    /// Sets aside the parts that are cut off, removes the files that are not needed, and makes the
    /// rest durable (JOURNAL-RECOVERY-1).
    fn clean_up(&self, names: &[String], oldest: u64, notes: &mut DurableNotes) -> Result<()> {
        let storage = &*self.storage;
        // First the unfinished files of earlier openings; no note names them.
        let is_own =
            |name: &str| name == NAME || table_of(name).or_else(|| table_of_kept(name)).is_some();
        let begun = |name: &&String| name.strip_suffix(COPY).is_some_and(is_own);
        names
            .iter()
            .filter(begun)
            .try_for_each(|name| remove_if_there(storage, name))?;
        let stays = |note: &Note| {
            let file = self.files.iter().find(|file| file.table == note.at.table);
            file.is_some_and(|file| file.len >= note.at.offset)
        };
        // Before its file is removed or cut, the note is replaced by one of what stays durable.
        let end = self.end().map(|at| Note {
            at,
            last_sequence: self.last_first(),
        });
        let remaining = end.filter(|note| !self.is_salvage && note.at <= self.synced);
        notes.begin(self.note.filter(stays).or(remaining))?;
        let is_scanned = |table: &u64| {
            let is_in = |files: &[ScannedFile]| {
                files.binary_search_by_key(table, |file| file.table).is_ok()
            };
            is_in(&self.files) || is_in(&self.dropped)
        };
        // Oldest first; each removal is durable before the next one.
        for name in names {
            let is_old = |table| name.ends_with(CUT) && table < oldest;
            match table_of(name).filter(|table| !is_scanned(table)) {
                // The file may have batches, though no header and no note names it.
                Some(table) if table > oldest => set_aside(storage, name, CUT)?,
                None if !table_of_kept(name).is_some_and(is_old) => continue,
                _ => remove_if_there(storage, name)?,
            }
            sync_dir(storage)?;
        }
        // Newest first, each durably: no file exists without the file before it.
        let is_kept = |file: &&ScannedFile| self.cut_table() == Some(file.table);
        for file in self.dropped.iter().rev().filter(|file| !is_kept(file)) {
            self.drop_file(file)?;
            sync_dir(storage)?;
        }
        for file in self.files.iter().rev() {
            self.keep_file(file)?;
        }
        sync_dir(storage)?;
        end.into_iter().for_each(|note| notes.add(note));
        Ok(())
    }

    /// The table of the file that is cut in the middle.
    fn cut_table(&self) -> Option<u64> {
        let kept = self.files.last()?.table;
        self.dropped
            .first()
            .map(|file| file.table)
            .filter(|cut| *cut == kept)
    }

    /// Sets aside a file that is cut off as a whole, or removes it if it has no data.
    fn drop_file(&self, file: &ScannedFile) -> Result<()> {
        if file.len > HEADER_LEN as u64 || file.bad.is_some_and(|bad| !bad.unwritten) {
            set_aside(&*self.storage, &file.name(), self.ending)
        } else {
            remove_if_there(&*self.storage, &file.name())
        }
    }

    /// Copies a file to a new file, unless it is known to be durable and is not the newest one
    /// (JOURNAL-RECOVERY-1). The file is read and verified again, because the system's cache may
    /// have other bytes than the file after a failed sync.
    fn keep_file(&self, file: &ScannedFile) -> Result<()> {
        if file.end() <= self.synced && Some(file.end()) != self.end() {
            return Ok(());
        }
        let (storage, name) = (&*self.storage, file.name());
        let (mut bytes, aside) = (
            read_file(storage, file.table)?,
            format!("{name}{}", self.ending),
        );
        if !self.is_salvage {
            let cut = bytes.split_off(
                usize::try_from(file.len).map_or(bytes.len(), |len| len.min(bytes.len())),
            );
            let again = ScannedFile::read(file.table, bytes.clone(), Some(file.len))?;
            again
                .bad
                .map_or(Ok(()), |bad| Err(file.damaged(bad.report.into())))?;
            // The cut part is set aside durably before the file is written without it.
            if self.cut_table() == Some(file.table) && !cut.is_empty() {
                replace_file(storage, &aside, &cut)?;
                sync_dir(storage)?;
            }
        }
        replace_file(storage, &name, &bytes)
            .map(drop)
            .inspect_err(|_| {
                // An opening that fails leaves no new file. But if the old file has lost its end,
                // the part that was set aside is the only copy, and stays.
                let is_whole =
                    read_file(storage, file.table).is_ok_and(|now| now.len() > bytes.len());
                is_whole.then(|| storage.remove(&aside));
            })
    }

    /// The end of the newest file.
    pub(super) fn end(&self) -> Option<At> {
        self.files.last().map(ScannedFile::end)
    }

    /// The largest first sequence number of a batch to be delivered; that of the engine's files if
    /// there is none.
    pub(super) fn last_first(&self) -> SequenceNumber {
        self.files
            .iter()
            .map(|file| file.last_batch)
            .fold(self.last_sequence, SequenceNumber::max)
    }
}

/// Renames a file that is no longer part of the journal.
fn set_aside(storage: &dyn Storage, name: &str, ending: &str) -> Result<()> {
    storage
        .rename(name, &format!("{name}{ending}"))
        .map_err(Error::io("rename", name))
}

shown! { "JournalRecovery": impl [] JournalRecovery, |recovery| { "files": recovery.files.len() } }
