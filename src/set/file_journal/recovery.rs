//! Recovery: finds what the files of a journal hold, decides where it ends, hands its batches out and makes them durable.
//!
//! ```text
//!   newest file .. oldest that is needed     each names the one before it, and how much of it must be there
//!   first place that does not verify:
//!     a record that was appended later knew it to be durable           damage: refused
//!     nothing after it verifies                                        a torn tail: cut
//!     it was never written, though something after it was              never synced: cut, with all after it
//!     anything else                                                    damage: refused
//! ```
//! * JOURNAL-RECOVERY-1: what a `sync` acknowledged is handed out, in order, or the recovery is refused.
//! * JOURNAL-RECOVERY-2: all files are read before one of them is changed or a batch is handed out; what is cut off was
//!   never synced.
//! * JOURNAL-RECOVERY-3: what is handed out is durable before the journal takes its first batch.
//!
//! One owner.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::batch::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::memtable::lifecycle::debug::shown;
use crate::set::file_journal::format::{
    At, FileHeader, HEADER_LEN, Record, RecordKind, name_of, report, table_of,
};
use crate::set::file_journal::scan::{Abandoned, Bad, Records, ScannedFile};
use crate::set::file_journal::storage::Storage;

/// What a recovery found.
///
/// ```
/// use paranoid_memtable::set::FileJournal;
/// # let folder = std::env::temp_dir().join(format!("replayed-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (_journal, recovery) = FileJournal::open(&folder, 40)?;
/// let replayed = recovery.replay(|_, _| Ok(()))?;
/// assert_eq!((replayed.batches, replayed.last_sequence, replayed.cut_bytes), (0, 40, 0));
/// assert!(replayed.findings.is_empty());
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of batches that were handed out.
    pub batches: u64,
    /// The largest sequence number that anything has: the engine's files, a batch, or an abandoned interval. New
    /// batches are numbered from there.
    pub last_sequence: SequenceNumber,
    /// Bytes that were cut off at the end because they had not been written whole when the machine went down.
    pub cut_bytes: u64,
    /// Damage that lost nothing, or that a salvage passed over.
    pub findings: Vec<Error>,
}

shown! {
    "Replayed": impl [] Replayed, |replayed| {
        "batches": replayed.batches,
        "last_sequence": replayed.last_sequence,
        "cut_bytes": replayed.cut_bytes,
        "findings": replayed.findings.len(),
    }
    "JournalRecovery": impl [] JournalRecovery, |recovery| { "files": recovery.files.len() }
}

/// What opening a journal does about damage.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::ChecksumKind;
/// use paranoid_memtable::set::{FileJournal, FileStorage, OnDamage};
/// # let folder = std::env::temp_dir().join(format!("on-damage-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let storage = Arc::new(FileStorage::new(&folder));
/// assert!(FileJournal::open_in(storage, 0, ChecksumKind::Crc32c, OnDamage::PassOver).is_ok());
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// It is refused, with the file and the byte offset.
    Refuse,
    /// Every batch that verifies is handed out, whatever stands between them.
    PassOver,
}

/// The first place in the order of the files that is not as it was written.
#[derive(Debug)]
struct Break {
    file: usize,
    /// The file that the report is about.
    name: String,
    bad: Bad,
}

/// What earlier journals left in a directory: read, checked and durable, and not handed out yet.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{FileJournal, Journal};
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
    tables: Vec<u64>,
    files: Vec<ScannedFile>,
    /// Whether all that verifies is handed out, and the files stay as they are.
    is_salvage: bool,
    abandoned: Vec<Abandoned>,
    cut_bytes: u64,
}

/// Where a journal goes on after its files were read.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// The tables whose files there are.
    pub(super) live: BTreeSet<u64>,
    /// The end of the newest file.
    pub(super) previous: Option<At>,
    pub(super) next_table: u64,
    /// No batch that is needed has a larger first sequence number.
    pub(super) last_sequence: SequenceNumber,
}

impl JournalRecovery {
    /// Reads all files, and cuts off or refuses what is not as it was written.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        last_sequence: SequenceNumber,
        on_damage: OnDamage,
    ) -> Result<(Self, Start)> {
        let names = storage.list().map_err(Error::io("list", "the journal's directory"))?;
        let mut tables: Vec<u64> = names.iter().filter_map(|name| table_of(name)).collect();
        tables.sort_unstable();
        let (files, abandoned) = (Vec::new(), Vec::new());
        let mut recovery = JournalRecovery {
            storage,
            last_sequence,
            tables,
            files,
            is_salvage: false,
            abandoned,
            cut_bytes: 0,
        };
        recovery.files = recovery.scan()?;
        recovery.cut(on_damage)?;
        for file in &recovery.files {
            recovery.abandoned.extend(file.abandoned.iter().filter(|it| it.at.offset < file.keeps));
        }
        recovery.cut_bytes = recovery.settle()?;
        let start = recovery.start();
        Ok((recovery, start))
    }

    /// Hands out all batches after the engine's last sequence number, in the order of their numbers and under them, each
    /// verified and with digests, and not those that were abandoned. Appends nothing. O(bytes).
    ///
    /// # Errors
    /// `DamagedFile` with the file and the byte offset if a batch is damaged by now, or has records that this crate
    /// cannot apply (a journal opened for salvage notes it and goes on); `Io`; and any error of `deliver`.
    pub fn replay(
        self,
        mut deliver: impl FnMut(SequenceNumber, WriteBatch) -> Result<()>,
    ) -> Result<Replayed> {
        let (last_sequence, cut_bytes) = (self.last_sequence, self.cut_bytes);
        let copies = self.files.iter().filter_map(|file| Some((file, file.damaged_copy?)));
        let findings = copies.map(|(file, report)| damaged(&file.name, report.into())).collect();
        let replayed = Replayed { batches: 0, last_sequence, cut_bytes, findings };
        let mut out = Delivery { deliver: &mut deliver, replayed, last_first: last_sequence };
        for file in self.files.iter().filter(|file| self.hands_out(file)) {
            self.deliver_file(file, &mut out)?;
        }
        Ok(out.replayed)
    }

    /// Whether a file stays.
    fn is_kept(&self, file: &ScannedFile) -> bool {
        self.is_salvage || file.keeps >= HEADER_LEN as u64
    }

    fn hands_out(&self, file: &ScannedFile) -> bool {
        self.is_kept(file) && (self.is_salvage || !file.is_passed_over)
    }

    /// Whether a batch is handed out.
    fn needs(&self, sequence: SequenceNumber, at: At) -> bool {
        let skips = |it: &Abandoned| at < it.at && (it.first..=it.last).contains(&sequence);
        sequence > self.last_sequence && !self.abandoned.iter().any(skips)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.storage.read(name).map_err(Error::io("read", name))
    }

    /// Reads all files that are needed, oldest first.
    fn scan(&self) -> Result<Vec<ScannedFile>> {
        let mut files = Vec::new();
        // What the file after this one says about the one before it.
        let mut newer: Option<FileHeader> = None;
        for &table in self.tables.iter().rev() {
            let previous = newer.and_then(|header| header.previous);
            // A file that no other names: its creation failed.
            if newer.is_some() && previous.is_none_or(|previous| table > previous.table) {
                continue;
            }
            let name = name_of(table);
            let bytes = self.read(&name)?;
            let end = previous.filter(|previous| previous.table == table).map(|previous| previous.offset);
            let file = ScannedFile::read(name, table, &bytes, end);
            newer = file.header;
            files.push(file);
            if newer.is_some_and(|header| header.last_sequence <= self.last_sequence) {
                break;
            }
        }
        files.reverse();
        pass_over(&mut files, self.last_sequence);
        Ok(files)
    }

    /// Decides how much of the files is handed out (JOURNAL-RECOVERY-1).
    fn cut(&mut self, on_damage: OnDamage) -> Result<()> {
        let Some(Break { file: first, name, bad }) = self.first_break() else { return Ok(()) };
        let later = || self.files.iter().skip(first + 1);
        let broken = self.files.get(first);
        let was_durable =
            broken.is_some_and(|file| file.durable > bad.at) || later().any(|file| file.durable > 0);
        let goes_on = broken.is_some_and(|file| file.goes_on || (bad.at == 0 && file.has_records))
            || later().any(|file| file.has_records);
        let lost_header = bad.at == 0 && !bad.unwritten;
        let is_damage = was_durable || lost_header || (goes_on && !bad.unwritten);
        match on_damage {
            OnDamage::Refuse if is_damage => return Err(damaged(&name, bad.report.into())),
            OnDamage::PassOver if is_damage || goes_on => self.is_salvage = true,
            _ => {
                for (index, file) in self.files.iter_mut().enumerate().skip(first) {
                    file.keeps = if index == first { bad.at } else { 0 };
                }
            }
        }
        Ok(())
    }

    fn first_break(&self) -> Option<Break> {
        let files = &self.files;
        let mut before: Option<&ScannedFile> = None;
        for (index, file) in files.iter().enumerate() {
            let previous = file.header.and_then(|header| Some((header.previous?, header.last_sequence)));
            if let Some((previous, last)) = previous
                && self.is_missing(files, before, previous, last)
            {
                let bad = Bad { at: 0, report: report(0, previous.offset, 0), unwritten: true };
                return Some(Break { file: index, name: name_of(previous.table), bad });
            }
            if let Some(bad) = file.bad.filter(|bad| excuse(files, file.table, bad.at).is_none()) {
                return Some(Break { file: index, name: file.name.clone(), bad });
            }
            before = Some(file);
        }
        None
    }

    /// Whether a file that should be there is not, and had a batch that is needed.
    fn is_missing(
        &self,
        files: &[ScannedFile],
        before: Option<&ScannedFile>,
        previous: At,
        last: SequenceNumber,
    ) -> bool {
        let is_there = before.is_some_and(|file| file.table == previous.table);
        if is_there || excuse(files, previous.table, 0).is_some() {
            return false;
        }
        // Those numbers that the engine's files do not have were all abandoned.
        let abandoned = || files.iter().flat_map(|file| &file.abandoned);
        let mut covered = self.last_sequence;
        while covered < last {
            let next = abandoned().find(|it| it.first <= covered + 1 && covered < it.last);
            let Some(next) = next else { return true };
            covered = next.last;
        }
        false
    }

    /// Hands out the batches of a file.
    fn deliver_file(&self, file: &ScannedFile, out: &mut Delivery<'_>) -> Result<()> {
        let Some(header) = file.header else {
            let bad = file.bad.filter(|_| self.is_salvage);
            return bad.map_or(Ok(()), |bad| self.found(file, bad.report.into(), out));
        };
        let bytes = self.read(&file.name)?;
        for read in Records::new(file.part(&bytes), header.checks) {
            let record = match read {
                Ok(record) if record.at as u64 >= file.keeps => break,
                Ok(record) => record,
                Err(bad) if !self.is_salvage && file.bad.is_some_and(|known| known.at <= bad.at) => break,
                // Of a salvage, or the file has changed since it was scanned.
                Err(bad) => {
                    self.found(file, bad.report.into(), out)?;
                    continue;
                }
            };
            let at = At { table: file.table, offset: record.at as u64 };
            let payload = record.payload();
            match record.kind {
                RecordKind::Abandoned => {
                    let last = Abandoned::of(&payload, at).last;
                    out.replayed.last_sequence = out.replayed.last_sequence.max(last);
                }
                RecordKind::Batch if self.needs(record.sequence(), at) => {
                    match out.read(payload, &record, &header) {
                        Ok(batch) => out.hand_out(batch)?,
                        Err(cause) => self.found(file, cause, out)?,
                    }
                }
                RecordKind::Batch => {}
            }
        }
        Ok(())
    }

    /// Refuses a file that is damaged; a salvage notes that and goes on.
    fn found(&self, file: &ScannedFile, cause: Error, out: &mut Delivery<'_>) -> Result<()> {
        let error = damaged(&file.name, cause);
        if !self.is_salvage {
            return Err(error);
        }
        out.replayed.findings.push(error);
        Ok(())
    }

    /// Cuts off what was not handed out, removes what is not needed, and makes the rest durable (JOURNAL-RECOVERY-3).
    /// Returns how many bytes were cut.
    fn settle(&self) -> Result<u64> {
        let mut cut_bytes = 0;
        // Newest first: a file is never there without the one before it.
        for file in self.files.iter().rev() {
            let name = file.name.as_str();
            cut_bytes += file.len - file.keeps;
            if !self.is_kept(file) {
                self.storage.remove(name).map_err(Error::io("remove", name))?;
                continue;
            }
            let opened = self.storage.open(name).map_err(Error::io("open", name))?;
            if file.keeps < file.len {
                opened.truncate(file.keeps).map_err(Error::io("truncate", name))?;
            }
            opened.sync().map_err(Error::io("sync", name))?;
        }
        for &table in &self.tables {
            if !self.files.iter().any(|file| file.table == table) {
                let name = name_of(table);
                self.storage.remove(&name).map_err(Error::io("remove", &name))?;
            }
        }
        self.storage.sync_dir().map_err(Error::io("sync", "the journal's directory"))?;
        Ok(cut_bytes)
    }

    /// Where the journal goes on.
    fn start(&self) -> Start {
        let kept = || self.files.iter().filter(|file| self.is_kept(file));
        Start {
            live: kept().map(|file| file.table).collect(),
            previous: kept().next_back().map(|file| At { table: file.table, offset: file.keeps }),
            next_table: self.tables.last().map_or(1, |table| table.saturating_add(1)),
            last_sequence: self.last_first(),
        }
    }

    /// The largest first sequence number of a batch that is handed out, or one that is larger by abandoned numbers.
    fn last_first(&self) -> SequenceNumber {
        let handed_out = self.files.iter().filter(|file| self.hands_out(file));
        let last_of = |file: &ScannedFile| if self.is_salvage { file.last_saved } else { file.last_batch };
        let last = handed_out.filter_map(last_of).max();
        let Some((mut last, at)) = last else { return self.last_sequence };
        for it in self.abandoned.iter().rev() {
            if at < it.at && (it.first..=it.last).contains(&last) {
                last = it.first.saturating_sub(1);
            }
        }
        last.max(self.last_sequence)
    }
}

/// The first later table whose file says that what lies here is not known to be durable, because a sync failed.
fn excuse(files: &[ScannedFile], table: u64, offset: u64) -> Option<u64> {
    let headers = files.iter().filter(|file| file.table > table).filter_map(|file| file.header);
    let at = At { table, offset };
    headers
        .into_iter()
        .find(|header| header.previous.is_some() && header.required <= at)
        .map(|header| header.table)
}

/// Marks the files between a place that is excused and the file that excuses it: what they have came after what is
/// lost, and was never synced either.
fn pass_over(files: &mut [ScannedFile], last_sequence: SequenceNumber) {
    let mut until = 0;
    for index in 0..files.len() {
        let Some(file) = files.get(index) else { return };
        // Files whose batches are all in the engine's files may be gone.
        let needed = file.header.filter(|header| header.last_sequence > last_sequence);
        let previous = needed.and_then(|header| header.previous);
        let before = index.checked_sub(1).and_then(|before| files.get(before)).map(|file| file.table);
        let missing = previous.filter(|previous| before != Some(previous.table));
        let missing = missing.and_then(|previous| excuse(files, previous.table, 0));
        until = until.max(missing.unwrap_or(0));
        let is_passed_over = file.table < until;
        let broken = file.bad.and_then(|bad| excuse(files, file.table, bad.at));
        until = until.max(broken.unwrap_or(0));
        if let Some(file) = files.get_mut(index) {
            file.is_passed_over = is_passed_over;
        }
    }
}

/// Where batches go, and what was handed out so far.
struct Delivery<'d> {
    deliver: &'d mut dyn FnMut(SequenceNumber, WriteBatch) -> Result<()>,
    replayed: Replayed,
    /// The first number of the newest batch.
    last_first: SequenceNumber,
}

impl Delivery<'_> {
    /// The batch of a record, if that has one which comes after those before it.
    fn read(&self, payload: Vec<u8>, record: &Record<'_>, header: &FileHeader) -> Result<WriteBatch> {
        let verify = |copy: &[u8]| Ok(record.verify(copy, &header.checks)?);
        let batch = WriteBatch::from_verified(payload, verify);
        let batch = batch.map_err(|error| moved(error, record.payload_at()))?;
        if batch.sequence() <= self.last_first {
            return Err(report(record.payload_at(), self.last_first + 1, batch.sequence()).into());
        }
        Ok(batch)
    }

    fn hand_out(&mut self, batch: WriteBatch) -> Result<()> {
        let (sequence, len) = (batch.sequence(), batch.len() as u64);
        if len > 0 {
            self.last_first = sequence;
        }
        let last = sequence.saturating_add(len.saturating_sub(1));
        self.replayed.last_sequence = self.replayed.last_sequence.max(last);
        (self.deliver)(sequence, batch)?;
        self.replayed.batches += 1;
        Ok(())
    }
}

/// An error about bytes that begin at an offset of a file.
fn moved(error: Error, by: u64) -> Error {
    match error {
        Error::Corruption(mut report) => {
            report.offset += by;
            Error::Corruption(report)
        }
        other => other,
    }
}

fn damaged(file: &str, cause: Error) -> Error {
    Error::DamagedFile { file: file.into(), cause: Box::new(cause) }
}
