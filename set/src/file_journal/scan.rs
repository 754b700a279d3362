//! Reads journal files record by record, past what does not verify, and says what each file has.
//!
//! * JOURNAL-SCAN-1: a record is handed out only if head and payload verify at their place in their
//!   file.
//! * JOURNAL-SCAN-2: after a place that does not verify the scan goes on at the next record that
//!   does, wherever it is.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::io::ErrorKind;

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Corruption, Error, Result, SequenceNumber};

use crate::file_journal::format::{
    At, FileHeader, HEADER_LEN, Record, Stream, is_zero, name_of, report,
};
use crate::file_journal::storage::Storage;

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
        Records {
            stream,
            at: HEADER_LEN,
            next: None,
        }
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
        Some(Err(Bad {
            at: at as u64,
            report,
            unwritten,
        }))
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
    /// Whether a record verifies after `bad`.
    pub(super) goes_on: bool,
    /// The most bytes that any record knew to be durable.
    pub(super) durable: u64,
    /// The largest first sequence number of a batch that verifies; 0 if none does.
    pub(super) last_batch: SequenceNumber,
}

impl ScannedFile {
    /// Reads header and records of a file, whose part of the journal ends at `end` if that is
    /// known.
    ///
    /// # Errors
    /// `NotSupported` for a file of another version.
    pub(super) fn read(table: u64, bytes: Vec<u8>, end: Option<u64>) -> Result<Self> {
        let there = bytes.len() as u64;
        let len = end.map_or(there, |end| end.min(there));
        let mut file = ScannedFile {
            table,
            len,
            ..ScannedFile::default()
        };
        match FileHeader::read(&bytes, table) {
            Ok((header, damaged)) => {
                (file.header, file.damaged_copy) = (Some(header), damaged);
                file.scan(bytes, header.checks);
            }
            Err(Error::Corruption(report)) => {
                // It looks as if it had never been written whole.
                let unwritten = bytes.get(..HEADER_LEN).is_none_or(is_zero);
                file.bad = Some(Bad {
                    at: 0,
                    report,
                    unwritten,
                });
            }
            Err(error) => return Err(error),
        }
        file.must_reach(end.unwrap_or(0));
        Ok(file)
    }

    /// A file that is not there.
    pub(super) fn missing(at: At) -> Self {
        let mut file = ScannedFile {
            table: at.table,
            is_missing: true,
            ..ScannedFile::default()
        };
        file.must_reach(at.offset);
        file
    }

    pub(super) fn name(&self) -> String {
        name_of(self.table)
    }

    /// Where it ends.
    pub(super) fn end(&self) -> At {
        At {
            table: self.table,
            offset: self.len,
        }
    }

    /// An error about the file.
    pub(super) fn damaged(&self, cause: Error) -> Error {
        let gone = || Error::io("find", &self.name())(ErrorKind::NotFound.into());
        let cause = Box::new(if self.is_missing { gone() } else { cause });
        Error::DamagedFile {
            file: self.name(),
            cause,
        }
    }

    /// Notes that the file ends too early, if it ends before a place.
    pub(super) fn must_reach(&mut self, end: u64) {
        if self.len < end {
            let report = report(self.len, end, self.len);
            self.bad.get_or_insert(Bad {
                at: self.len,
                report,
                unwritten: true,
            });
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
            self.goes_on |= self.bad.is_some();
            self.durable = self.durable.max(record.durable());
            self.last_batch = self.last_batch.max(record.sequence());
        }
    }
}

/// All bytes of a table's file.
pub(super) fn read_file(storage: &dyn Storage, table: u64) -> Result<Vec<u8>> {
    let name = name_of(table);
    storage.read(&name).map_err(Error::io("read", &name))
}
