//! Recovery: finds what the files of a journal hold, decides where it ends, hands its batches out
//! and makes them durable.
//!
//! ```text
//!   newest file .. oldest that is needed     each names the one before it, and how much of it must be there
//!   first place that does not verify, or is not there:
//!     a note, or a record that was appended later, knew it to be durable    damage: refused
//!     nothing after it verifies                                             a torn tail: cut
//!     it was never written, though something after it was                   never synced: cut, with all after it
//!     anything else                                                         damage: refused
//! ```
//! * JOURNAL-RECOVERY-1: what a `sync` acknowledged is handed out, in order, or the recovery is
//!   refused, as long as a note or a later record knows of that sync.
//! * JOURNAL-RECOVERY-2: all files are read before one of them is changed or a batch is handed out.
//!   What is cut is reported, and stays in a file with another name.
//! * JOURNAL-RECOVERY-3: what is handed out is durable before the journal takes its first batch.
//!   What is not known to be durable is written anew: a sync of the old file proves nothing once
//!   one has failed, in this process or before it. So is the newest file, whatever is known about
//!   it: the cut of an append that failed may not be synced yet.
//! * JOURNAL-RECOVERY-4: a recovery ends when `replay` returns `Ok`: every batch was delivered and
//!   taken. Until then the journal removes no file.
//! * JOURNAL-RECOVERY-5: an opening that fails leaves no more bytes than it found. It first removes
//!   what earlier ones began and did not finish, and it removes what it began itself.
//!
//! One owner.

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Error, Result, SequenceNumber, WriteBatch, shown};

use crate::file_journal::durable_notes::{Evidence, NAME, Note};
use crate::file_journal::format::{
    At, CUT, DAMAGED, FileHeader, HEADER_LEN, Record, report, table_of, table_of_kept,
};
use crate::file_journal::scan::{Bad, Records, ScannedFile, read_file};
use crate::file_journal::storage::{COPY, Storage, remove_if_there, sync_dir, write_anew};

/// What a recovery found.
///
/// ```
/// use paranoid_set::FileJournal;
/// # let folder = std::env::temp_dir().join(format!("replayed-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (_journal, recovery) = FileJournal::open(&folder, 40)?;
/// let replayed = recovery.replay(|_, _| Ok(()))?;
/// assert_eq!((replayed.batches, replayed.last_sequence, replayed.cut_bytes), (0, 40, 0));
/// assert!(replayed.findings.is_empty());
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of batches that were handed out.
    pub batches: u64,
    /// The largest sequence number that the engine's files or a batch has.
    pub last_sequence: SequenceNumber,
    /// Bytes that were cut off. Each cut is one of the findings.
    pub cut_bytes: u64,
    /// What was cut off, is missing or was passed over, and damage that lost nothing.
    pub findings: Vec<JournalFinding>,
}

/// Something that a recovery found where it was not as it was written.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{FileJournal, FindingReason, Journal};
/// # let folder = std::env::temp_dir().join(format!("finding-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (journal, _) = FileJournal::open(&folder, 0)?;
/// journal.switch(1)?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.set_sequence(1);
/// journal.append(batch.as_bytes())?;
/// drop(journal);
/// let path = folder.join("000001.journal");
/// let mut bytes = std::fs::read(&path).expect("the file");
/// bytes.pop();
/// std::fs::write(&path, bytes).expect("written");
///
/// let (_journal, recovery) = FileJournal::open(&folder, 0)?;
/// let replayed = recovery.replay(|_, _| Ok(()))?;
/// let finding = &replayed.findings[0];
/// assert_eq!((finding.reason, finding.cut_bytes), (FindingReason::TornTail, replayed.cut_bytes));
/// assert!(finding.cut_bytes > 0 && finding.error.to_string().starts_with("000001.journal "));
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalFinding {
    /// Why.
    pub reason: FindingReason,
    /// Bytes of the file that were cut off, 0 if none were.
    pub cut_bytes: u64,
    /// `DamagedFile` with the name of the file and the byte offset, or with `Io` for one that is
    /// not there.
    pub error: Error,
}

/// Why a recovery did not take a file as it is.
///
/// ```
/// use paranoid_set::FindingReason;
/// assert_ne!(FindingReason::TornTail, FindingReason::Damage);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingReason {
    /// It was not written whole when the machine went down, or comes after something that was not.
    /// Nothing says that it was ever synced.
    TornTail,
    /// It does not verify although it was written.
    Damage,
    /// It is not there, or comes after something that is not there.
    Missing,
}

shown! { "JournalRecovery": impl [] JournalRecovery, |recovery| { "files": recovery.files.len() } }

/// What opening a journal does about what is not as it was written, under the names of RocksDB's
/// `WALRecoveryMode`.
///
/// A *torn tail* is what nothing says to have been synced. *Damage* is everything else: what a note
/// or a later record knew to be durable, or what a record follows that verifies.
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
    /// A torn tail is cut off; damage is refused, with the file and the byte offset.
    #[default]
    TolerateCorruptedTailRecords,
    /// A torn tail is refused too.
    AbsoluteConsistency,
    /// The first place that is not as it was written ends the journal, whether it was durable or
    /// not: what comes after it is cut off and stays in files with other names.
    PointInTime,
    /// Every batch that verifies is handed out, whatever stands between them.
    SkipAnyCorrupted,
}

/// What earlier journals left in a directory: read, checked and durable, and not handed out yet.
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
#[must_use = "what earlier journals left is not in any table before it is replayed"]
pub struct JournalRecovery {
    storage: Arc<dyn Storage>,
    last_sequence: SequenceNumber,
    /// What is kept, oldest first.
    files: Vec<ScannedFile>,
    /// The files that are cut off, the first one maybe in part, and those that hold nothing.
    dropped: Vec<ScannedFile>,
    /// What the names of files that are cut off end with.
    ending: &'static str,
    /// Everything before this place was durable, and so must be there if it is needed.
    synced: At,
    note: Option<Note>,
    /// Whether all that verifies is handed out, and the files stay as they are.
    is_salvage: bool,
    replayed: Replayed,
    /// The first number of the newest batch that was handed out.
    handed_out: SequenceNumber,
    /// Shared with the journal.
    pub(super) recovered: Arc<Recovered>,
}

/// The last sequence number that a recovery delivered, once it has ended well (JOURNAL-RECOVERY-4);
/// 0 if it has nothing.
pub(super) type Recovered = OnceLock<SequenceNumber>;

impl JournalRecovery {
    /// Reads all files, and cuts off or refuses what is not as it was written. Returns the smallest
    /// number that the next table may have as well.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        last_sequence: SequenceNumber,
        mode: RecoveryMode,
    ) -> Result<(Self, Evidence, u64)> {
        let mut names = storage
            .list()
            .map_err(Error::io("list", "the journal's directory"))?;
        names.sort_unstable_by_key(|name| table_of(name));
        let (mut evidence, damaged_note) = Evidence::read(Arc::clone(&storage))?;
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
            note: evidence.note,
            is_salvage: false,
            replayed: Replayed {
                last_sequence,
                ..Replayed::default()
            },
            handed_out: last_sequence,
            recovered: Arc::default(),
        };
        recovery.scan(&names)?;
        let oldest = recovery.files.first().map_or(0, |file| file.table);
        recovery.cut(mode)?;
        recovery.drop_idle();
        damaged_note
            .into_iter()
            .for_each(|error| recovery.found(FindingReason::Damage, 0, error));
        recovery.clean_up(&names, oldest, &mut evidence)?;
        if !recovery.is_salvage && recovery.last_first() == last_sequence {
            // It has nothing to deliver.
            recovery.recovered.get_or_init(|| 0);
        }
        let used = names
            .iter()
            .filter_map(|name| table_of(name).or_else(|| table_of_kept(name)));
        let next_table = used.max().map_or(1, |table| table.saturating_add(1));
        Ok((recovery, evidence, next_table))
    }

    /// Hands out all batches after the engine's last sequence number, in the order of their numbers
    /// and under them, each verified and with digests. Appends nothing. O(bytes).
    ///
    /// `Ok` is the end of the recovery. Until then the journal keeps every file, whatever is
    /// flushed, and afterwards until all that was delivered is flushed. A recovery that ends in an
    /// error or a panic, or is dropped, has no such end: the next opening starts it again, and
    /// nothing is lost.
    ///
    /// # Errors
    /// `DamagedFile` with the file and the byte offset if a batch is damaged by now, or has records
    /// that this crate cannot apply (a journal opened for salvage notes it and goes on); `Io`; and
    /// any error of `deliver`.
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

    /// Notes something that is not as it was written.
    fn found(&mut self, reason: FindingReason, cut_bytes: u64, error: Error) {
        self.replayed.cut_bytes += cut_bytes;
        self.replayed.findings.push(JournalFinding {
            reason,
            cut_bytes,
            error,
        });
    }

    /// The last note, if it names what the engine's files do not have.
    fn needed_note(&self) -> Option<Note> {
        self.note
            .filter(|note| note.last_sequence > self.last_sequence)
    }

    /// Reads all files that are needed, oldest first.
    fn scan(&mut self, names: &[String]) -> Result<()> {
        // What the file after this one says about the one before it.
        let mut newer: Option<FileHeader> = None;
        for table in names.iter().rev().filter_map(|name| table_of(name)) {
            let previous = newer.and_then(|header| header.previous);
            // A file that no other names: its creation failed.
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

    /// Adds the missing files to the others.
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
        // No file names the one that was the newest when it was synced last.
        let is_newest = |note: &Note| {
            headers().all(|header| header.table < note.at.table) && !is_there(note.at.table)
        };
        missing.extend(self.needed_note().filter(is_newest).map(|note| note.at));
        self.files
            .extend(missing.into_iter().map(ScannedFile::missing));
        self.files.sort_by_key(|file| file.table);
    }

    /// Decides how much of the files is handed out (JOURNAL-RECOVERY-1).
    fn cut(&mut self, mode: RecoveryMode) -> Result<()> {
        let broken = self
            .files
            .iter()
            .enumerate()
            .find_map(|(index, file)| Some((index, file, file.bad?)));
        let Some((first, file, bad)) = broken else {
            return Ok(());
        };
        let goes_on = file.goes_on
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
        let is_damage = was_durable || lost_header || (goes_on && !bad.unwritten);
        let refuses_damage = mode == RecoveryMode::TolerateCorruptedTailRecords;
        if mode == RecoveryMode::AbsoluteConsistency || (refuses_damage && is_damage) {
            return Err(file.damaged(bad.report.into()));
        }
        if mode == RecoveryMode::SkipAnyCorrupted && (is_damage || goes_on) {
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

    /// Notes what a salvage cannot read. What it meets between records is reported when it is read
    /// again.
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

    /// Cuts off what lies at a place and after it.
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

    /// Drops the newest files if they hold nothing but a header, or a process that ends again and
    /// again before its first write leaves ever more of them.
    fn drop_idle(&mut self) {
        let holds = |file: &ScannedFile| file.len > HEADER_LEN as u64 || file.bad.is_some();
        let mut idle = self.files.split_off(
            self.files
                .iter()
                .rposition(holds)
                .map_or(0, |last| last + 1),
        );
        // One that was cut there is dropped as a whole.
        let cut = self.dropped.first().map(|file| file.table);
        idle.retain(|file| Some(file.table) != cut);
        idle.append(&mut self.dropped);
        self.dropped = idle;
    }

    /// Hands out the batches of a file.
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
            self.handed_out = if len > 0 { sequence } else { self.handed_out };
            let last = sequence.saturating_add(len.saturating_sub(1));
            self.replayed.last_sequence = self.replayed.last_sequence.max(last);
            deliver(sequence, batch)?;
            self.replayed.batches += 1;
        }
        Ok(())
    }

    /// The batch of a record, if it is one that is handed out.
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
        if sequence <= self.handed_out {
            return Err(report(record.offset_of(0), self.handed_out + 1, sequence).into());
        }
        batch.map(Some)
    }

    /// Sets aside what is cut off, removes what is not needed, and makes the rest durable
    /// (JOURNAL-RECOVERY-3).
    fn clean_up(&self, names: &[String], oldest: u64, evidence: &mut Evidence) -> Result<()> {
        let storage = &*self.storage;
        // JOURNAL-RECOVERY-5. No note names such a file.
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
        // EVIDENCE-2. Where the note goes with its file, one of what stays durable takes its place.
        let end = self.end().map(|at| Note {
            at,
            last_sequence: self.last_first(),
        });
        let remaining = end.filter(|note| !self.is_salvage && note.at <= self.synced);
        evidence.begin(self.note.filter(stays).or(remaining))?;
        let is_scanned = |table: &u64| {
            let is_in = |files: &[ScannedFile]| {
                files.binary_search_by_key(table, |file| file.table).is_ok()
            };
            is_in(&self.files) || is_in(&self.dropped)
        };
        // Oldest first, each gone for good before the next one.
        for name in names {
            let is_old = |table| name.ends_with(CUT) && table < oldest;
            match table_of(name).filter(|table| !is_scanned(table)) {
                // It may hold something, though nobody says so.
                Some(table) if table > oldest => set_aside(storage, name, CUT)?,
                None if !table_of_kept(name).is_some_and(is_old) => continue,
                _ => remove_if_there(storage, name)?,
            }
            sync_dir(storage)?;
        }
        // Newest first, likewise: a file is never there without the one before it.
        let is_kept = |file: &&ScannedFile| self.cut_table() == Some(file.table);
        for file in self.dropped.iter().rev().filter(|file| !is_kept(file)) {
            self.drop_file(file)?;
            sync_dir(storage)?;
        }
        for file in self.files.iter().rev() {
            self.keep_file(file)?;
        }
        sync_dir(storage)?;
        end.into_iter().for_each(|note| evidence.add(note));
        Ok(())
    }

    /// The table of a file of which a part is kept, and a part is cut off.
    fn cut_table(&self) -> Option<u64> {
        let kept = self.files.last()?.table;
        self.dropped
            .first()
            .map(|file| file.table)
            .filter(|cut| *cut == kept)
    }

    /// Sets aside a file of which nothing is kept, or removes one that holds nothing.
    fn drop_file(&self, file: &ScannedFile) -> Result<()> {
        if file.len > HEADER_LEN as u64 || file.bad.is_some_and(|bad| !bad.unwritten) {
            set_aside(&*self.storage, &file.name(), self.ending)
        } else {
            remove_if_there(&*self.storage, &file.name())
        }
    }

    /// Writes a file anew, unless it is known to be durable and the journal went on after it
    /// (JOURNAL-RECOVERY-3). It is read and verified once more: what the system has in its cache
    /// after a sync that failed need not be what was written.
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
            // The end is set aside, durably, before the file is written without it.
            if self.cut_table() == Some(file.table) && !cut.is_empty() {
                write_anew(storage, &aside, &cut)?;
                sync_dir(storage)?;
            }
        }
        write_anew(storage, &name, &bytes)
            .map(drop)
            .inspect_err(|_| {
                // JOURNAL-RECOVERY-5. Unless the file has its end, what was set aside is all that
                // is left of it.
                let is_whole =
                    read_file(storage, file.table).is_ok_and(|now| now.len() > bytes.len());
                is_whole.then(|| storage.remove(&aside));
            })
    }

    /// The end of the newest file.
    pub(super) fn end(&self) -> Option<At> {
        self.files.last().map(ScannedFile::end)
    }

    /// The largest first sequence number of a batch that is handed out.
    pub(super) fn last_first(&self) -> SequenceNumber {
        self.files
            .iter()
            .map(|file| file.last_batch)
            .fold(self.last_sequence, SequenceNumber::max)
    }
}

/// Gives a file that is no longer part of the journal another name.
fn set_aside(storage: &dyn Storage, name: &str, ending: &str) -> Result<()> {
    storage
        .rename(name, &format!("{name}{ending}"))
        .map_err(Error::io("rename", name))
}
