//! The journal: every batch that was written, in the order of sequence numbers, for the next
//! command.
//!
//! ```text
//!   file    magic (8) | checksum kind (1) | record | record ..
//!   record  length (4) | checksum of the batch (4) | the batch in its own encoding         little-endian
//! ```
//! * The last record may be torn, if the command ended while it wrote. A replay reports it and
//!   leaves it out.
//! * A record before it that does not verify is damage, and ends the replay.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use paranoid_memtable::{ChecksumKind, WriteBatch};

use crate::failure::Failure;

const MAGIC: &[u8; 8] = b"PMTJRNL1";
const FILE_HEADER: usize = 9;
const RECORD_HEADER: usize = 8;
/// No command writes a batch of this length.
const RECORD_MAX: usize = 1 << 30;

/// A journal that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    kind: ChecksumKind,
    record: Vec<u8>,
}

/// The time at which the file reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Never,
    EachWrite,
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) batches: u64,
    /// Bytes of the file up to the end of the last whole record.
    pub(crate) whole: u64,
    /// Bytes after the last whole record.
    pub(crate) torn: u64,
    kind: ChecksumKind,
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Cannot(format!("{}: {error}", path.display()))
}

/// The path of a database's journal.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join("journal.pmt")
}

/// Whether a journal exists at its path. A file of another kind is an error and stays as it is.
fn is_there(directory: &Path) -> Result<bool, Failure> {
    let path = path(directory);
    let mut magic = [0; MAGIC.len()];
    match File::open(&path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == *MAGIC => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        _ => Err(Failure::Cannot(format!(
            "{} is there and is no journal",
            path.display()
        ))),
    }
}

/// Removes the journal of an earlier command, if it exists.
pub(crate) fn remove(directory: &Path) -> Result<(), Failure> {
    if is_there(directory)? {
        let path = path(directory);
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

impl Journal {
    /// Creates an empty journal, and replaces an old one.
    pub(crate) fn create(directory: &Path, kind: ChecksumKind) -> Result<Journal, Failure> {
        remove(directory)?;
        let path = path(directory);
        std::fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        let mut header = MAGIC.to_vec();
        header.push(kind.as_u8());
        let made = File::create(&path).and_then(|mut file| file.write_all(&header).map(|()| file));
        let file = made.map_err(|error| failed(&path, &error))?;
        Ok(Journal {
            file,
            path,
            kind,
            record: Vec::new(),
        })
    }

    /// Opens a journal that was replayed, to write after its last whole record. A torn record is
    /// cut off.
    pub(crate) fn reopen(directory: &Path, replayed: &Replayed) -> Result<Journal, Failure> {
        let path = path(directory);
        let open = || {
            let file = OpenOptions::new().append(true).open(&path)?;
            file.set_len(replayed.whole)?;
            Ok(file)
        };
        let file = open().map_err(|error| failed(&path, &error))?;
        Ok(Journal {
            file,
            path,
            kind: replayed.kind,
            record: Vec::new(),
        })
    }

    /// Adds a batch in one write.
    pub(crate) fn append(&mut self, batch: &WriteBatch, sync: Sync) -> Result<(), Failure> {
        let bytes = batch.as_bytes();
        let Some(len) = u32::try_from(bytes.len())
            .ok()
            .filter(|_| bytes.len() <= RECORD_MAX)
        else {
            return Err(Failure::Cannot(format!(
                "a batch of {} bytes is too long for the journal",
                bytes.len()
            )));
        };
        self.record.clear();
        self.record.extend_from_slice(&len.to_le_bytes());
        self.record
            .extend_from_slice(&self.kind.checksum(bytes).to_le_bytes());
        self.record.extend_from_slice(bytes);
        self.file
            .write_all(&self.record)
            .map_err(|error| failed(&self.path, &error))?;
        if sync == Sync::EachWrite {
            self.file
                .sync_data()
                .map_err(|error| failed(&self.path, &error))?;
        }
        Ok(())
    }
}

/// Reads a journal from its start and calls `apply` with each batch. `None`: there is no journal.
pub(crate) fn replay(
    directory: &Path,
    mut apply: impl FnMut(&WriteBatch) -> Result<(), Failure>,
) -> Result<Option<Replayed>, Failure> {
    let path = path(directory);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&path, &error)),
    };
    let len = file
        .metadata()
        .map_err(|error| failed(&path, &error))?
        .len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let damaged = |at: u64, what: &str| {
        Failure::Differs(format!("{}: damaged at byte {at}: {what}", path.display()))
    };
    let mut header = [0; FILE_HEADER];
    let kind = file
        .read_exact(&mut header)
        .ok()
        .filter(|()| header.starts_with(MAGIC));
    let kind = kind.and_then(|()| ChecksumKind::try_from(header[8]).ok());
    let kind =
        kind.ok_or_else(|| Failure::Cannot(format!("{} is not a journal", path.display())))?;
    let mut replayed = Replayed {
        batches: 0,
        whole: FILE_HEADER as u64,
        torn: 0,
        kind,
    };
    let mut bytes = Vec::new();
    while replayed.whole < len {
        let left = len - replayed.whole;
        let Some((checksum, record)) =
            next(&mut file, left, &mut bytes).map_err(|error| failed(&path, &error))?
        else {
            break;
        };
        let batch = (kind.checksum(&bytes) == checksum).then(|| WriteBatch::from_bytes(&bytes));
        let batch = match batch {
            Some(Ok(batch)) => batch,
            _ if record == left => break,
            Some(Err(error)) => return Err(damaged(replayed.whole, &error.to_string())),
            None => return Err(damaged(replayed.whole, "the checksum differs")),
        };
        apply(&batch)?;
        replayed.batches += 1;
        replayed.whole += record;
    }
    replayed.torn = len - replayed.whole;
    Ok(Some(replayed))
}

/// The checksum and the length on disk of the next record. `None`: the file ends inside it.
fn next(
    file: &mut impl Read,
    left: u64,
    bytes: &mut Vec<u8>,
) -> Result<Option<(u32, u64)>, std::io::Error> {
    if left < RECORD_HEADER as u64 {
        return Ok(None);
    }
    let mut numbers = [[0; 4]; 2];
    file.read_exact(numbers.as_flattened_mut())?;
    let [len, checksum] = numbers.map(u32::from_le_bytes);
    let record = RECORD_HEADER as u64 + u64::from(len);
    if record > left {
        return Ok(None);
    }
    bytes.clear();
    bytes.resize(usize::try_from(len).unwrap_or(0), 0);
    file.read_exact(bytes)?;
    Ok(Some((checksum, record)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64) -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.set_sequence(number);
        batch.put(number.to_be_bytes(), [7; 100]).unwrap();
        batch
    }

    /// The sequence numbers of the batches of a replay, and its result.
    fn read(directory: &Path) -> Result<(Vec<u64>, Replayed), Failure> {
        let mut sequences = Vec::new();
        let replayed = replay(directory, |batch| {
            sequences.push(batch.sequence());
            Ok(())
        })?;
        Ok((sequences, replayed.unwrap()))
    }

    #[test]
    fn torn_tails_are_reported_and_damage_is_refused() {
        let directory = std::env::temp_dir().join(format!("pmt-journal-{}", std::process::id()));
        assert_eq!(replay(&directory, |_| Ok(())).unwrap(), None);
        let mut journal = Journal::create(&directory, ChecksumKind::Xxh3).unwrap();
        for number in 0..3 {
            journal.append(&batch(number), Sync::EachWrite).unwrap();
        }
        let (sequences, whole) = read(&directory).unwrap();
        assert_eq!(
            (sequences, whole.batches, whole.torn),
            (vec![0, 1, 2], 3, 0)
        );
        let path = path(&directory);
        let bytes = std::fs::read(&path).unwrap();
        let record = (bytes.len() - 9) / 3;
        for cut in 9..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (sequences, replayed) = read(&directory).unwrap();
            let (records, torn) = ((cut - 9) / record, (cut - 9) % record);
            assert_eq!(
                (sequences.len(), replayed.torn),
                (records, torn as u64),
                "cut at {cut}"
            );
            let mut journal = Journal::reopen(&directory, &replayed).unwrap();
            journal.append(&batch(9), Sync::Never).unwrap();
            let (sequences, replayed) = read(&directory).unwrap();
            assert_eq!(
                (sequences.last(), replayed.torn),
                (Some(&9), 0),
                "cut at {cut}"
            );
        }
        for at in 9 + 8..9 + record {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert!(
                matches!(read(&directory), Err(Failure::Differs(_))),
                "damage at {at}"
            );
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() - 1] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(read(&directory).unwrap().1.torn, record as u64);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
