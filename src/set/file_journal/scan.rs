//! Reads journal files record by record, past what does not verify, and says what each file has.
//!
//! * JOURNAL-SCAN-1: a record is handed out only if head and payload verify at their place in their file.
//! * JOURNAL-SCAN-2: after a place that does not verify the scan goes on at the next record that does, wherever it is.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::format::block::BlockChecks;
use crate::key::SequenceNumber;
use crate::set::file_journal::format::{
    At, FileHeader, HEADER_LEN, Record, RecordKind, diagnose, is_unwritten_header, next_record, read_record,
    report, word,
};

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
pub(super) struct Records<'b> {
    bytes: &'b [u8],
    checks: BlockChecks,
    at: usize,
    /// The record after a place that was reported.
    next: Option<Record<'b>>,
}

impl<'b> Records<'b> {
    pub(super) fn new(bytes: &'b [u8], checks: BlockChecks) -> Self {
        Records { bytes, checks, at: HEADER_LEN, next: None }
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<Record<'b>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.bytes.len() && self.next.is_none() {
            return None;
        }
        if let Some(record) = self.next.take().or_else(|| read_record(self.bytes, at, &self.checks)) {
            self.at = record.end;
            return Some(Ok(record));
        }
        self.next = next_record(self.bytes, at, &self.checks);
        self.at = self.next.map_or(self.bytes.len(), |record| record.at);
        let (report, unwritten) = diagnose(self.bytes, at, &self.checks);
        Some(Err(Bad { at: at as u64, report, unwritten }))
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

/// What a file has.
#[derive(Debug, Default)]
pub(super) struct ScannedFile {
    pub(super) name: String,
    pub(super) table: u64,
    /// Its bytes, as far as they are part of the journal, and those of them that a recovery hands out and keeps.
    pub(super) len: u64,
    pub(super) keeps: u64,
    /// It was never synced, and came after something that is lost.
    pub(super) is_passed_over: bool,
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
    pub(super) fn read(name: String, table: u64, bytes: &[u8], end: Option<u64>) -> Self {
        let read = FileHeader::read(bytes).and_then(|(header, damaged)| match header.table == table {
            true => Ok((header, damaged)),
            false => Err(report(16, table, header.table)),
        });
        let bad = read.err().map(|report| Bad { at: 0, report, unwritten: is_unwritten_header(bytes) });
        let (header, damaged_copy) = read.map_or((None, None), |(header, copy)| (Some(header), copy));
        let there = bytes.len() as u64;
        let len = end.map_or(there, |end| end.min(there));
        let mut file =
            ScannedFile { name, table, len, keeps: len, header, damaged_copy, bad, ..ScannedFile::default() };
        if let Some(header) = header {
            file.scan(bytes, header.checks);
        }
        if end.is_some_and(|end| there < end) {
            file.bad = file.bad.or(Some(Bad { at: len, report: report(len, 0, len), unwritten: true }));
        }
        file
    }

    /// The bytes of the file that are part of the journal.
    pub(super) fn part<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        bytes.get(..len).unwrap_or(bytes)
    }

    fn scan(&mut self, bytes: &[u8], checks: BlockChecks) {
        for read in Records::new(self.part(bytes), checks) {
            match read {
                Err(bad) => self.bad = self.bad.or(Some(bad)),
                Ok(record) => {
                    self.has_records = true;
                    self.goes_on |= self.bad.is_some();
                    self.durable = self.durable.max(record.durable);
                    let at = At { table: self.table, offset: record.at as u64 };
                    match record.kind {
                        RecordKind::Abandoned => self.abandoned.push(Abandoned::of(&record.payload(), at)),
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
