//! The reader of journal files: reads them record by record, and notes what each file holds.
//!
//! A record is returned only if its head and its payload verify at their place in their file. After
//! a place where no record verifies, the reader continues at the next record that does, at any
//! offset.
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
    /// Whether the record looks as if it had never been written completely.
    pub(super) unwritten: bool,
}

/// The records of a file in order, and the places between them where no record verifies.
#[derive(Debug)]
pub(super) struct Records<'s> {
    stream: &'s Stream,
    at: usize,
    /// The record after a reported place.
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

/// The results of one scan of a journal file.
#[derive(Debug, Default)]
pub(super) struct ScannedFile {
    pub(super) table: u64,
    /// The number of its bytes that are part of the journal.
    pub(super) len: u64,
    /// Whether a header or a note names the file, and it does not exist.
    pub(super) is_missing: bool,
    /// The header. `None` if neither copy verifies; no record can be read then.
    pub(super) header: Option<FileHeader>,
    /// Damage of one copy of the header, if the other copy verifies.
    pub(super) damaged_copy: Option<Corruption>,
    /// The first place where no record verifies, or the end of a file that is too short.
    pub(super) bad: Option<Bad>,
    /// Whether a record verifies after `bad`.
    pub(super) continues: bool,
    /// The largest number of durable bytes that any record names.
    pub(super) durable: u64,
    /// The largest first sequence number of a batch that verifies; 0 if there is none.
    pub(super) last_batch: SequenceNumber,
}

impl ScannedFile {
    /// Reads header and records from the bytes of a file. `end` is the end of the journal in the
    /// file, if it is known.
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
                // A header of zeros, or a part of one, was never written completely.
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

    /// A file that does not exist, and that should have had `at.offset` bytes.
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

    /// The end of the file's part of the journal.
    pub(super) fn end(&self) -> At {
        At {
            table: self.table,
            offset: self.len,
        }
    }

    /// The error that names the file and a cause.
    pub(super) fn damaged(&self, cause: Error) -> Error {
        let gone = || Error::io("find", &self.name())(ErrorKind::NotFound.into());
        let cause = Box::new(if self.is_missing { gone() } else { cause });
        Error::DamagedFile {
            file: self.name(),
            cause,
        }
    }

    /// Notes damage at the end of the file if the file ends before `end`.
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

    /// The bytes of the file that are part of the journal, without the mask.
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
            self.continues |= self.bad.is_some();
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
