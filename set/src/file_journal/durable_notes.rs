//! Notes of what is durable, in the file `journal.synced`, so that a later opening notices lost
//! journal files.
//!
//! ```text
//!   note    mark (2) version (1) 0 | checksum (4) | table (8) offset (8) last sequence number (8)
//! ```
//! A note is written after a journal file is durable up to an offset, with its name and all earlier
//! files. The last note that verifies counts. Only the first note in a new file of notes is synced
//! at once, because a sync of the journal should not cost a second sync; a power cut may lose the
//! newest notes. An opening without a note is not wrong, it only notices less. So a note that
//! cannot be written is no error. While no new file of notes can be created, for want of file
//! descriptors or space, the old one takes the notes.
//!
//! Before a journal file is removed or cut, the notes that name it are replaced durably, by a note
//! of what stays durable if anything does. A new file of notes is the only way: a note that was
//! partly written may become whole after a power cut, if the missing bytes are zeros.
//!
//! One owner at a time.

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
/// A new file begins after this many bytes.
const LEN_MAX: u64 = 2048 * NOTE_LEN as u64;

/// A note: the journal is durable up to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) at: At,
    /// The largest first sequence number of a batch up to this place.
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

    /// The note in these bytes. `Err` has the fields of a note that does not verify.
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
pub(super) struct DurableNotes {
    storage: Arc<dyn Storage>,
    /// `None` after a call that failed: a part of a note may be in the file, or another file may
    /// have its name.
    file: Option<Box<dyn StorageFile>>,
    len: u64,
    /// Whether a sync of the directory may have failed since the last new name (FILE-JOURNAL-3).
    has_lost_names: bool,
    /// The last note that may be in the file.
    pub(super) note: Option<Note>,
}

impl DurableNotes {
    /// Reads the notes of a storage, and returns the damage of one of them too. No note can be
    /// added before [`begin`](Self::begin).
    pub(super) fn read(storage: Arc<dyn Storage>) -> Result<(DurableNotes, Option<Error>)> {
        let bytes = match storage.read(NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read.map_err(Error::io("read", NAME))?,
        };
        let (mut note, mut damage) = (None, None);
        for (number, bytes) in bytes.chunks_exact(NOTE_LEN).enumerate() {
            match Note::read(bytes) {
                Ok(valid) => note = Some(valid),
                // A power cut left a sector unwritten.
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
        let notes = DurableNotes {
            storage,
            file: None,
            len: 0,
            has_lost_names: true,
            note,
        };
        Ok((notes, damage))
    }

    /// Begins a new file with at most this note, in place of the old file, whose notes are gone for
    /// good. If the process ends meanwhile, one of the two files exists. The new name makes the
    /// sync of the directory valid even after a failed one (FILE-JOURNAL-3): all names are durable
    /// after it. An error before the file gets its name changes nothing.
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

    /// Makes all names durable, by a new file with the last note. If no file can be created, a sync
    /// of the directory is enough, unless an earlier one failed: the names are those of files
    /// created since the last sync. So a sync of the journal needs no file that it would have to
    /// create.
    pub(super) fn renew(&mut self) -> Result<()> {
        match self.begin(self.note) {
            Err(_) if !self.has_lost_names => {
                // The old file continues; its next note is synced at once.
                self.len = 0;
                sync_dir(&*self.storage)
            }
            begun => begun,
        }
    }

    /// Whether the file takes no more notes.
    pub(super) fn is_full(&self) -> bool {
        self.file.is_none() || self.len >= LEN_MAX
    }

    /// Adds a note. A note that cannot be written is left out.
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

    /// Makes the notes durable. An error is ignored: a power cut may lose them.
    pub(super) fn sync(&self) {
        let _ = self.file.as_ref().map(|file| file.sync());
    }

    /// Whether the last note names the file of this table or of an earlier one.
    pub(super) fn names(&self, table: u64) -> bool {
        self.note.is_some_and(|note| note.at.table <= table)
    }
}
