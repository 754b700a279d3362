//! Notes of what is durable, in a file of their own, so that a later opening notices lost journal
//! files.
//!
//! ```text
//!   note    mark (2) version (1) 0 | checksum (4) | table (8) offset (8) last sequence number (8)
//! ```
//! * EVIDENCE-1: a note is written once a file is durable up to an offset, with its name and all
//!   earlier files. The last one that verifies counts.
//! * EVIDENCE-2: before a file that a note names is removed or cut, that note is gone for good, and
//!   a note of what stays durable is in its place. After a power cut there may be notes that nobody
//!   read before it: one that was half written is whole if zeros follow. So notes go with their
//!   file.
//!
//! Only the first note after a file was begun is synced at once, so that a sync costs no second one:
//! a power cut may take the newest ones. Whoever has no note knows less and is told nothing wrong.
//! So notes that cannot be written stop nothing: while no new file can be begun, for want of file
//! descriptors or of room, the old one takes them. One owner at a time.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::sync::Arc;

use crate::file_journal::format::{At, difference, word};
use crate::file_journal::storage::{Storage, StorageFile, name_copy, sync_dir, write_synced};
use paranoid_memtable::{ChecksumKind, Error, Result, SequenceNumber};

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
        let words = [self.at.table, self.at.offset, self.last_sequence]
            .map(u64::to_le_bytes)
            .concat();
        let checksum = ChecksumKind::Xxh3.checksum(&words).to_le_bytes();
        let mut bytes = [0; NOTE_LEN];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..8].copy_from_slice(&checksum);
        bytes[8..].copy_from_slice(&words);
        bytes
    }

    /// A note, or what the words say of one that is damaged.
    fn read(bytes: &[u8]) -> Result<Note, Note> {
        let at = At {
            table: word(bytes, 8),
            offset: word(bytes, 16),
        };
        let note = Note {
            at,
            last_sequence: word(bytes, 24),
        };
        if note.to_bytes() == bytes {
            Ok(note)
        } else {
            Err(note)
        }
    }
}

/// The file of the notes, open for appends.
#[derive(Debug)]
pub(super) struct Evidence {
    storage: Arc<dyn Storage>,
    /// `None` after a call that failed: a note may end within the file, or another file have its
    /// name.
    file: Option<Box<dyn StorageFile>>,
    len: u64,
    /// Whether a sync of the directory may have failed since a name was new (FILE-JOURNAL-5).
    has_lost_names: bool,
    /// The last note that may be there.
    pub(super) note: Option<Note>,
}

impl Evidence {
    /// Reads the notes of a storage. Returns damage of one of them as well. The file takes no notes
    /// before it was begun anew.
    pub(super) fn read(storage: Arc<dyn Storage>) -> Result<(Evidence, Option<Error>)> {
        let bytes = match storage.read(NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.map_err(Error::io("read", NAME))?,
        };
        let (mut note, mut damage) = (None, None);
        for (number, bytes) in bytes.chunks_exact(NOTE_LEN).enumerate() {
            match Note::read(bytes) {
                Ok(valid) => note = Some(valid),
                // A sector that was not written before a power cut.
                Err(_) if bytes.iter().all(|byte| *byte == 0) => {}
                Err(words) => {
                    let cause =
                        difference((number * NOTE_LEN) as u64, &words.to_bytes(), bytes).into();
                    damage = Some(Error::DamagedFile {
                        file: NAME.into(),
                        cause: Box::new(cause),
                    });
                }
            }
        }
        let evidence = Evidence {
            storage,
            file: None,
            len: 0,
            has_lost_names: true,
            note,
        };
        Ok((evidence, damage))
    }

    /// Begins a new file with at most this note, in place of an earlier one, none of whose notes
    /// comes back. If the process ends meanwhile, one of the two exists. The name is new, so that
    /// this sync of the directory counts even after a failed one: all names that there are survive
    /// a crash then. An error before the file gets its name changes nothing.
    pub(super) fn begin(&mut self, note: Option<Note>) -> Result<()> {
        let bytes = note.map_or_else(Vec::new, |note| note.to_bytes().to_vec());
        let file = write_synced(&*self.storage, NAME, &bytes)?;
        (self.file, self.has_lost_names) = (None, true);
        name_copy(&*self.storage, NAME)?;
        sync_dir(&*self.storage)?;
        (self.file, self.len, self.note) = (Some(file), bytes.len() as u64, note);
        self.has_lost_names = false;
        Ok(())
    }

    /// Makes all names durable that there are, by a new file with the last note. While none can be
    /// begun, the old one goes on: the names are those of files that were begun since the directory
    /// was synced, so this sync of it counts.
    pub(super) fn renew(&mut self) -> Result<()> {
        match self.begin(self.note) {
            Err(_) if !self.has_lost_names => {
                // The next note is the first one after a file was begun.
                self.len = 0;
                sync_dir(&*self.storage)
            }
            begun => begun,
        }
    }

    /// Whether the file takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.file.is_none() || self.len >= LEN_MAX
    }

    /// Adds a note (EVIDENCE-1). One that cannot be written is missing, and that is all.
    pub(super) fn add(&mut self, note: Note) {
        let is_first = self.len <= NOTE_LEN as u64;
        self.note = Some(note);
        self.len += NOTE_LEN as u64;
        self.file
            .take_if(|file| file.append(&note.to_bytes()).is_err());
        if is_first {
            self.sync();
        }
    }

    /// Makes the notes durable, if that succeeds.
    pub(super) fn sync(&self) {
        let _ = self.file.as_ref().map(|file| file.sync());
    }

    /// Whether the last note names this file or an earlier one.
    pub(super) fn names(&self, table: u64) -> bool {
        self.note.is_some_and(|note| note.at.table <= table)
    }
}
