//! Reads journal files record by record, past what does not verify, and says what each file has.
//!
//! * JOURNAL-SCAN-1: a record is handed out only if head and payload verify at their place in their file.
//! * JOURNAL-SCAN-2: after a place that does not verify the scan goes on at the next record that does, wherever it is.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::ErrorKind;

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Corruption, Error, Result, SequenceNumber};

use crate::file_journal::format::{
    At, FileHeader, HEADER_LEN, Record, RecordKind, Stream, is_unwritten_header, name_of, report, word,
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
    at: usize,
    /// The record after a place that was reported.
    next: Option<Record<'s>>,
}

impl<'s> Records<'s> {
    pub(super) fn new(stream: &'s Stream) -> Self {
        Records { stream, at: HEADER_LEN, next: None }
    }
}

impl<'s> Iterator for Records<'s> {
    type Item = Result<Record<'s>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        let (stream, at) = (self.stream, self.at);
        if at >= stream.len() && self.next.is_none() {
            return None;
        }
        if let Some(record) = self.next.take().or_else(|| stream.read_record(at)) {
            self.at = record.end;
            return Some(Ok(record));
        }
        self.next = stream.next_record(at);
        self.at = self.next.map_or(stream.len(), |record| record.at);
        let (report, unwritten) = stream.diagnose(at);
        Some(Err(Bad { at: at as u64, report, unwritten }))
    }
}

/// Sequence numbers that were given out and never acknowledged: first and last, and where the record lies that says so. Batches
/// before it are passed over; later ones may have these numbers again.
type Abandoned = (SequenceNumber, SequenceNumber, At);

/// The last record that abandons a number, if one does, for all numbers from one bound of an interval on up to the next one.
#[derive(Debug, Default)]
pub(super) struct AbandonedNumbers(Vec<(SequenceNumber, Option<At>)>);

impl AbandonedNumbers {
    /// All that these files know of. O(intervals x log intervals).
    pub(super) fn in_files(files: &[ScannedFile]) -> Self {
        let bounds_of =
            |(first, last, at): &Abandoned| [(*first, false, *at), (last.saturating_add(1), true, *at)];
        let mut bounds: Vec<_> = files.iter().flat_map(|it| &it.abandoned).flat_map(bounds_of).collect();
        bounds.sort_unstable();
        let mut records = BTreeSet::new();
        let steps = bounds.into_iter().map(|(number, ends, at)| {
            if ends {
                records.remove(&at)
            } else {
                records.insert(at)
            };
            (number, records.last().copied())
        });
        AbandonedNumbers(steps.collect())
    }

    fn up_to(&self, number: SequenceNumber) -> &[(SequenceNumber, Option<At>)] {
        &self.0[..self.0.partition_point(|(from, _)| *from <= number)]
    }

    /// The last record that abandons a number. O(log intervals).
    pub(super) fn of(&self, number: SequenceNumber) -> Option<At> {
        self.up_to(number).last()?.1
    }

    /// Whether all numbers after `from` up to `to` were abandoned. O(intervals).
    pub(super) fn have_all(&self, from: SequenceNumber, to: SequenceNumber) -> bool {
        let begin = self.up_to(from.saturating_add(1)).len().checked_sub(1);
        from >= to || begin.is_some_and(|begin| self.up_to(to)[begin..].iter().all(|(_, it)| it.is_some()))
    }

    /// The largest number up to this one that no record after a place abandons. O(intervals).
    pub(super) fn last_kept(&self, number: SequenceNumber, at: At) -> SequenceNumber {
        let gone = self.up_to(number).iter().rev().take_while(|(_, record)| *record > Some(at));
        gone.last().map_or(number, |(from, _)| from.saturating_sub(1))
    }

    /// The last number that was abandoned, 0 if there is none.
    pub(super) fn last(&self) -> SequenceNumber {
        self.0.last().map_or(0, |(end, _)| end.saturating_sub(1))
    }
}

/// A scanned journal file.
#[derive(Debug, Default)]
pub(super) struct ScannedFile {
    pub(super) table: u64,
    /// Its bytes, as far as they are part of the journal.
    pub(super) len: u64,
    /// It should be there and is not.
    pub(super) is_missing: bool,
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
    abandoned: Vec<Abandoned>,
    /// The largest first sequence number of a batch that verifies, and where that batch lies.
    pub(super) last_batch: Option<(SequenceNumber, At)>,
}

impl ScannedFile {
    /// Reads header and records of a file, whose part of the journal ends at `end` if that is known.
    ///
    /// # Errors
    /// `NotSupported` for a file of another version.
    pub(super) fn read(table: u64, bytes: Vec<u8>, end: Option<u64>) -> Result<Self> {
        let there = bytes.len() as u64;
        let len = end.map_or(there, |end| end.min(there));
        let mut file = ScannedFile { table, len, ..ScannedFile::default() };
        match FileHeader::read(&bytes, table) {
            Ok((header, damaged)) => {
                (file.header, file.damaged_copy) = (Some(header), damaged);
                file.scan(bytes, header.checks);
            }
            Err(Error::Corruption(report)) => {
                file.bad = Some(Bad { at: 0, report, unwritten: is_unwritten_header(&bytes) });
            }
            Err(error) => return Err(error),
        }
        file.must_reach(end.unwrap_or(0));
        Ok(file)
    }

    /// A file that is not there.
    pub(super) fn missing(at: At) -> Self {
        let mut file = ScannedFile { table: at.table, is_missing: true, ..ScannedFile::default() };
        file.must_reach(at.offset);
        file
    }

    pub(super) fn name(&self) -> String {
        name_of(self.table)
    }

    /// Where it ends.
    pub(super) fn end(&self) -> At {
        At { table: self.table, offset: self.len }
    }

    /// An error about the file.
    pub(super) fn damaged(&self, cause: Error) -> Error {
        let gone = || Error::io("find", &self.name())(ErrorKind::NotFound.into());
        let cause = Box::new(if self.is_missing { gone() } else { cause });
        Error::DamagedFile { file: self.name(), cause }
    }

    /// Notes that the file ends too early, if it ends before a place.
    pub(super) fn must_reach(&mut self, end: u64) {
        if self.len < end {
            let report = report(self.len, end, self.len);
            self.bad.get_or_insert(Bad { at: self.len, report, unwritten: true });
        }
    }

    /// The records of the file, as far as they are part of the journal.
    pub(super) fn stream(&self, mut bytes: Vec<u8>, checks: BlockChecks) -> Stream {
        bytes.truncate(usize::try_from(self.len).unwrap_or(usize::MAX));
        Stream::new(bytes, checks)
    }

    fn scan(&mut self, bytes: Vec<u8>, checks: BlockChecks) {
        let stream = self.stream(bytes, checks);
        for read in Records::new(&stream) {
            let record = match read {
                Ok(record) => record,
                Err(bad) => {
                    self.bad.get_or_insert(bad);
                    continue;
                }
            };
            self.has_records = true;
            self.goes_on |= self.bad.is_some();
            self.durable = self.durable.max(record.durable);
            let at = At { table: self.table, offset: record.at as u64 };
            let (first, last) = (record.sequence(), word(record.payload, 8));
            match record.kind {
                RecordKind::Batch => self.last_batch = self.last_batch.max(Some((first, at))),
                RecordKind::Abandoned if first <= last => self.abandoned.push((first, last, at)),
                RecordKind::Abandoned => {}
            }
        }
    }
}

/// All bytes of a table's file.
pub(super) fn read_file(storage: &dyn Storage, table: u64) -> Result<Vec<u8>> {
    let name = name_of(table);
    storage.read(&name).map_err(Error::io("read", &name))
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
    let mut bytes = read_file(storage, table)?;
    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    let file = ScannedFile::read(table, bytes.clone(), Some(len))?;
    if let Some(Bad { report, .. }) = file.bad {
        return Err(file.damaged(report.into()));
    }
    write_anew(storage, &file.name(), &bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Intervals over each other, each with a record of its own: what is said about each number, compared with all records.
    #[test]
    fn the_last_record_of_a_number_counts() {
        let at = |offset: u64| At { table: 1, offset };
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) % below
        };
        for count in (0..400).map(|case| case % 7) {
            let abandoned = (0..count).map(|record| {
                let first = draw(12);
                (first, first + draw(6), at(2 * record + 1))
            });
            let file = ScannedFile { abandoned: abandoned.collect(), ..ScannedFile::default() };
            let last_of = |number: u64| {
                let has = |it: &&Abandoned| (it.0..=it.1).contains(&number);
                file.abandoned.iter().filter(has).map(|it| it.2).max()
            };
            let numbers = AbandonedNumbers::in_files(std::slice::from_ref(&file));
            assert_eq!(numbers.last(), file.abandoned.iter().map(|it| it.1).max().unwrap_or(0));
            for number in 0..20 {
                assert_eq!(numbers.of(number), last_of(number), "{number}: {file:?}");
                for from in 0..20 {
                    let all = (from + 1..=number).all(|it| last_of(it).is_some());
                    assert_eq!(numbers.have_all(from, number), all, "{from} to {number}: {file:?}");
                }
                for place in 0..=2 * count {
                    let is_kept = |it: &u64| last_of(*it) <= Some(at(place));
                    let kept = (0..=number).rev().find(is_kept).unwrap_or(0);
                    assert_eq!(numbers.last_kept(number, at(place)), kept, "{number}, {place}: {file:?}");
                }
            }
        }
    }
}
