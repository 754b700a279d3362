//! Notes of what is durable, in a file of their own, so that a later opening notices lost journal files.
//!
//! ```text
//!   note    mark (2) version (1) 0 | checksum (4) | table (8) offset (8) last sequence number (8)
//! ```
//! * EVIDENCE-1: a note is written once a file is durable up to an offset, with its name and all earlier files. The last
//!   one that verifies counts.
//! * EVIDENCE-2: before a file that a note names is removed or cut, that note is gone for good, and a note of what stays durable
//!   is in its place. After a power cut there may be notes that nobody read before it: one that was half written is whole if
//!   zeros follow. So notes go with their file.
//!
//! Notes are appended and not synced at once, so that a sync costs no second one: a power cut may take the newest ones.
//! Whoever has no note knows less and is told nothing wrong. One owner at a time.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::integrity::checksum_kind::ChecksumKind;
use crate::key::SequenceNumber;
use crate::set::file_journal::format::{At, report, word};
use crate::set::file_journal::storage::{Storage, StorageFile, sync_dir, write_anew};

/// The file of the notes.
pub(super) const NAME: &str = "journal.synced";

const MARK: [u8; 4] = [b'j', b's', 1, 0];
const NOTE_LEN: usize = 32;
/// The file begins anew after so many bytes.
const LEN_MAX: u64 = 2048 * NOTE_LEN as u64;

/// Everything up to here is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) at: At,
    /// The largest first sequence number of a batch up to there.
    pub(super) last_sequence: SequenceNumber,
}

impl Note {
    fn to_bytes(self) -> [u8; NOTE_LEN] {
        let words = [self.at.table, self.at.offset, self.last_sequence].map(u64::to_le_bytes).concat();
        let checksum = ChecksumKind::Xxh3.checksum(&words).to_le_bytes();
        let mut bytes = [0; NOTE_LEN];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..8].copy_from_slice(&checksum);
        bytes[8..].copy_from_slice(&words);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Note> {
        let at = At { table: word(bytes, 8), offset: word(bytes, 16) };
        let note = Note { at, last_sequence: word(bytes, 24) };
        (note.to_bytes() == bytes).then_some(note)
    }
}

/// The notes of a storage.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The last valid note.
    pub(super) last: Option<Note>,
    /// A note that does not verify.
    pub(super) damage: Option<Error>,
    len: u64,
}

impl Notes {
    pub(super) fn read(storage: &dyn Storage) -> Result<Notes> {
        let bytes = match storage.read(NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Notes::default()),
            read => read.map_err(Error::io("read", NAME))?,
        };
        let mut notes = Notes { len: bytes.len() as u64, ..Notes::default() };
        for (number, bytes) in bytes.chunks_exact(NOTE_LEN).enumerate() {
            match Note::read(bytes) {
                Some(note) => notes.last = Some(note),
                // A sector that was not written before a power cut.
                None if bytes.iter().all(|byte| *byte == 0) => {}
                None => {
                    let cause = report((number * NOTE_LEN) as u64, MARK[0].into(), bytes[0].into()).into();
                    notes.damage = Some(Error::DamagedFile { file: NAME.into(), cause: Box::new(cause) });
                }
            }
        }
        Ok(notes)
    }
}

/// The file of the notes, open for appends.
#[derive(Debug)]
pub(super) struct Evidence {
    storage: Arc<dyn Storage>,
    /// `None` if it may end within a note: it takes no appends.
    file: Option<Box<dyn StorageFile>>,
    len: u64,
    /// The last note that may be there.
    note: Option<Note>,
}

impl Evidence {
    /// Begins a new file with at most this note, in place of an earlier one, none of whose notes comes back. If the
    /// process ends meanwhile, one of the two exists. The name is new, so that this sync of the directory counts even
    /// after a failed one.
    pub(super) fn begin(storage: Arc<dyn Storage>, note: Option<Note>) -> Result<Evidence> {
        let bytes = note.map_or_else(Vec::new, |note| note.to_bytes().to_vec());
        let file = write_anew(&*storage, NAME, &bytes)?;
        sync_dir(&*storage)?;
        Ok(Evidence { storage, file: Some(file), len: bytes.len() as u64, note })
    }

    /// Opens the existing file for appends.
    pub(super) fn open(storage: Arc<dyn Storage>, notes: &Notes) -> Result<Evidence> {
        let file = storage.open(NAME).map_err(Error::io("open", NAME))?;
        let len = notes.len - notes.len % NOTE_LEN as u64;
        if len < notes.len {
            file.truncate(len).map_err(Error::io("truncate", NAME))?;
        }
        Ok(Evidence { storage, file: Some(file), len, note: notes.last })
    }

    /// Adds a note (EVIDENCE-1). One that cannot be written is missing, and that is all.
    pub(super) fn add(&mut self, note: Note) {
        if self.note == Some(note) {
            return;
        }
        self.note = Some(note);
        let Some(file) = &self.file else { return };
        if self.len >= LEN_MAX && file.truncate(0).is_ok() {
            self.len = 0;
        }
        match file.append(&note.to_bytes()) {
            Ok(()) => self.len += NOTE_LEN as u64,
            Err(_) if file.truncate(self.len).is_ok() => {}
            Err(_) => self.file = None,
        }
    }

    /// Makes the notes durable, if that succeeds.
    pub(super) fn sync(&self) {
        let _ = self.file.as_ref().map(|file| file.sync());
    }

    /// Whether a note names this file or a later one.
    pub(super) fn names(&self, table: u64) -> bool {
        self.note.is_some_and(|note| note.at.table <= table)
    }

    /// Removes all notes for good (EVIDENCE-2).
    pub(super) fn forget(&mut self) -> Result<()> {
        *self = Evidence::begin(Arc::clone(&self.storage), None)?;
        Ok(())
    }
}
