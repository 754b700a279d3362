//! Reads journal files record by record, past what does not verify, and says what each file has.
//!
//! * JOURNAL-SCAN-1: a record is handed out only if head and payload verify at their place in their file.
//! * JOURNAL-SCAN-2: after a place that does not verify the scan goes on at the next record that does, wherever it is.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::ErrorKind;

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Corruption, Error, Result, SequenceNumber};

use crate::file_journal::format::{
    At, FileHeader, Record, RecordKind, Stream, file_offset, is_unwritten_header, name_of, report, word,
};
use crate::file_journal::storage::{Storage, StorageFile, write_anew};

/// A place where no record verifies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bad {
    pub(super) at: u64,
    pub(super) report: Corruption,
    /// It looks as if it had never been written whole.
    pub(super) unwritten: bool,
}

/// The records of a file in their order, and the places between them where none verifies.
#[derive(Debug)]
pub(super) struct Records<'s> {
    stream: &'s Stream,
    checks: BlockChecks,
    at: usize,
    /// The record after a place that was reported.
    next: Option<Record<'s>>,
}

impl<'s> Records<'s> {
    pub(super) fn new(stream: &'s Stream, checks: BlockChecks) -> Self {
        Records { stream, checks, at: 0, next: None }
    }
}

impl<'s> Iterator for Records<'s> {
    type Item = Result<Record<'s>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        let (stream, at) = (self.stream, self.at);
        if at >= stream.len() && self.next.is_none() {
            return None;
        }
        if let Some(record) = self.next.take().or_else(|| stream.read_record(at, &self.checks)) {
            self.at = record.end;
            return Some(Ok(record));
        }
        self.next = stream.next_record(at, &self.checks);
        self.at = self.next.map_or(stream.len(), |record| record.at);
        let (report, unwritten) = stream.diagnose(at, &self.checks);
        Some(Err(Bad { at: file_offset(at), report, unwritten }))
    }
}

/// Sequence numbers that were given out and never acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abandoned {
    pub(super) first: SequenceNumber,
    pub(super) last: SequenceNumber,
    /// Where the record lies: batches before it are passed over.
    pub(super) at: At,
}

impl Abandoned {
    pub(super) fn of(payload: &[u8], at: At) -> Self {
        Abandoned { first: word(payload, 0), last: word(payload, 8), at }
    }
}

/// Abandoned intervals without overlaps, by their first number: where several meet, the last record of them counts.
#[derive(Debug, Default)]
pub(super) struct AbandonedNumbers<K = SequenceNumber>(BTreeMap<K, Abandoned>);

impl<K: Ord + From<SequenceNumber>> AbandonedNumbers<K> {
    /// Adds an interval whose record lies after those of all others. O(log intervals), amortized.
    pub(super) fn add(&mut self, new: Abandoned) {
        let Abandoned { first, last, .. } = new;
        while let Some(old) = self.0.range(..=K::from(last)).next_back().map(|(_, old)| *old)
            && old.last >= first
            && first <= last
        {
            self.0.remove(&K::from(old.first));
            if old.last > last {
                self.0.insert(K::from(last + 1), Abandoned { first: last + 1, ..old });
            }
            if old.first < first {
                self.0.insert(K::from(old.first), Abandoned { last: first - 1, ..old });
                break;
            }
        }
        if first <= last {
            self.0.insert(K::from(first), new);
        }
    }

    /// The interval that a number is in, if a record at this place is passed over for it. O(log intervals).
    pub(super) fn of(&self, number: SequenceNumber, at: At) -> Option<&Abandoned> {
        let (_, found) = self.0.range(..=K::from(number)).next_back()?;
        (number <= found.last && at < found.at).then_some(found)
    }

    /// Whether all numbers after `from` up to `to` were abandoned. O(intervals).
    pub(super) fn have_all(&self, from: SequenceNumber, to: SequenceNumber) -> bool {
        let mut covered = from;
        for it in self.0.values().filter(|it| it.last > from) {
            if covered >= to || it.first > covered + 1 {
                break;
            }
            covered = it.last;
        }
        covered >= to
    }
}

/// A scanned journal file.
#[derive(Debug, Default)]
pub(super) struct ScannedFile {
    pub(super) name: String,
    pub(super) table: u64,
    /// Its bytes, as far as they are part of the journal, and those of them that a recovery hands out and keeps.
    pub(super) len: u64,
    pub(super) keeps: u64,
    /// It holds no record, and nothing comes after it.
    pub(super) is_idle: bool,
    /// It should be there and is not.
    pub(super) is_missing: bool,
    /// What is cut off it is a torn tail.
    pub(super) is_torn: bool,
    /// `None` if neither copy verifies; nothing else of the file can be read then.
    pub(super) header: Option<FileHeader>,
    /// Damage of one copy of the header, which the other one explains.
    pub(super) damaged_copy: Option<Corruption>,
    /// The first place where no record verifies, or where the file ends too early.
    pub(super) bad: Option<Bad>,
    /// Whether a record verifies, and whether one does after `bad`.
    pub(super) has_records: bool,
    pub(super) goes_on: bool,
    /// The most bytes that any record knew to be durable.
    pub(super) durable: u64,
    pub(super) abandoned: Vec<Abandoned>,
    /// The largest first sequence number of a batch before `bad`, and where that batch lies.
    pub(super) last_batch: Option<(SequenceNumber, At)>,
    /// The largest one of all batches that verify, also after `bad`: what a salvage hands out.
    pub(super) last_saved: Option<(SequenceNumber, At)>,
}

impl ScannedFile {
    /// Reads header and records of a file, whose part of the journal ends at `end` if that is known.
    ///
    /// # Errors
    /// `NotSupported` for a file of another version.
    pub(super) fn read(name: String, table: u64, bytes: Vec<u8>, end: Option<u64>) -> Result<Self> {
        let there = bytes.len() as u64;
        let len = end.map_or(there, |end| end.min(there));
        let mut file = ScannedFile { name, table, len, keeps: len, ..ScannedFile::default() };
        match FileHeader::read(&bytes) {
            Ok((header, _)) if header.table != table => {
                let report = report(16, table, header.table);
                file.is_bad(Bad { at: 0, report, unwritten: false });
            }
            Ok((header, damaged)) => {
                (file.header, file.damaged_copy) = (Some(header), damaged);
                file.scan(bytes, header.checks);
            }
            Err(Error::Corruption(report)) => {
                file.is_bad(Bad { at: 0, report, unwritten: is_unwritten_header(&bytes) });
            }
            Err(error) => return Err(error),
        }
        if let Some(end) = end {
            file.is_short(end);
        }
        Ok(file)
    }

    /// A file that is not there.
    pub(super) fn missing(at: At) -> Self {
        let (name, is_missing) = (name_of(at.table), true);
        let mut file = ScannedFile { name, table: at.table, is_missing, ..ScannedFile::default() };
        file.is_short(at.offset);
        file
    }

    /// An error about the file.
    pub(super) fn damaged(&self, cause: Error) -> Error {
        let gone = || Error::io("find", &self.name)(ErrorKind::NotFound.into());
        let cause = Box::new(if self.is_missing { gone() } else { cause });
        Error::DamagedFile { file: self.name.clone(), cause }
    }

    /// Notes that the file ends too early, if it ends before a place.
    pub(super) fn is_short(&mut self, end: u64) {
        if self.len < end {
            self.is_bad(Bad { at: self.len, report: report(self.len, end, self.len), unwritten: true });
        }
    }

    /// Notes the first place where something is wrong.
    fn is_bad(&mut self, bad: Bad) {
        self.bad.get_or_insert(bad);
    }

    /// The records of the file, as far as they are part of the journal.
    pub(super) fn stream(&self, mut bytes: Vec<u8>) -> Stream {
        bytes.truncate(usize::try_from(self.len).unwrap_or(usize::MAX));
        Stream::new(bytes)
    }

    fn scan(&mut self, bytes: Vec<u8>, checks: BlockChecks) {
        let stream = self.stream(bytes);
        for read in Records::new(&stream, checks) {
            match read {
                Err(bad) => self.is_bad(bad),
                Ok(record) => {
                    self.has_records = true;
                    self.goes_on |= self.bad.is_some();
                    self.durable = self.durable.max(record.durable);
                    let at = At { table: self.table, offset: record.offset };
                    match record.kind {
                        RecordKind::Abandoned => self.abandoned.push(Abandoned::of(record.payload, at)),
                        RecordKind::Batch => {
                            self.last_saved = self.last_saved.max(Some((record.sequence(), at)));
                            self.last_batch =
                                if self.bad.is_none() { self.last_saved } else { self.last_batch };
                        }
                    }
                }
            }
        }
    }
}

/// Writes the first `len` bytes of a table's file anew, in a new file with the name of the old one, and syncs it. They are
/// read and verified once more: what the system has in its cache after a sync that failed need not be what was written.
/// Durable once the directory is synced as well.
///
/// # Errors
/// `DamagedFile`, and `Io`; the old file is there then.
pub(super) fn write_verified_anew(
    storage: &dyn Storage,
    table: u64,
    len: u64,
) -> Result<Box<dyn StorageFile>> {
    let name = name_of(table);
    let mut bytes = storage.read(&name).map_err(Error::io("read", &name))?;
    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    let file = ScannedFile::read(name, table, bytes.clone(), Some(len))?;
    if let Some(Bad { report, .. }) = file.bad {
        return Err(file.damaged(report.into()));
    }
    write_anew(storage, &file.name, &bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    std::thread_local! {
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    /// A number that counts its comparisons.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Counted(SequenceNumber);

    impl From<SequenceNumber> for Counted {
        fn from(number: SequenceNumber) -> Self {
            Counted(number)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    /// The comparisons for so many intervals and twice as many batches before them.
    fn comparisons(intervals: u64) -> u64 {
        let before = COMPARISONS.get();
        let at = |offset| At { table: 1, offset };
        let mut numbers = AbandonedNumbers::<Counted>::default();
        for number in 1..=intervals {
            numbers.add(Abandoned { first: 2 * number, last: 2 * number, at: at(9) });
        }
        for number in 1..=2 * intervals {
            assert_eq!(numbers.of(number, at(1)).is_some(), number % 2 == 0);
        }
        COMPARISONS.get() - before
    }

    #[test]
    fn batches_and_abandoned_intervals_do_not_multiply() {
        let (few, many) = (comparisons(200), comparisons(8 * 200));
        assert!(few >= 3 * 200 && many <= 4 * 8 * few, "{few} comparisons, {many} for eight times as many");
    }
}
