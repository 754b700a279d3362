//! The report of a recovery: counts of the batches that it delivered, and each place that is not as
//! it was written.
//!
//! Plain data.

#![forbid(unsafe_code)]

use paranoid_memtable::{Error, SequenceNumber};

/// The result of a recovery: counts of what it delivered and cut off, and its findings.
///
/// ```
/// use paranoid_set::FileJournal;
/// # let folder = std::env::temp_dir().join(format!("replayed-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (_journal, recovery) = FileJournal::open(&folder, 40)?;
/// let replayed = recovery.replay(|_, _| Ok(()))?;
/// assert_eq!((replayed.batches, replayed.last_sequence, replayed.cut_bytes), (0, 40, 0));
/// assert!(replayed.findings.is_empty());
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of batches that were delivered.
    pub batches: u64,
    /// The largest sequence number in the engine's files and in the delivered batches.
    pub last_sequence: SequenceNumber,
    /// Number of bytes that were cut off. Each cut is one of the findings.
    pub cut_bytes: u64,
    /// Each part that was cut off, skipped or missing, and each damage that lost nothing.
    pub findings: Vec<JournalFinding>,
}

/// A place in a journal that is not as it was written.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{FileJournal, FindingReason, Journal};
/// # let folder = std::env::temp_dir().join(format!("finding-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).expect("a folder");
/// let (journal, _) = FileJournal::open(&folder, 0)?;
/// journal.switch(1)?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.set_sequence(1);
/// journal.append(batch.as_bytes())?;
/// drop(journal);
/// let path = folder.join("000001.journal");
/// let mut bytes = std::fs::read(&path).expect("the file");
/// bytes.pop();
/// std::fs::write(&path, bytes).expect("written");
///
/// let (_journal, recovery) = FileJournal::open(&folder, 0)?;
/// let replayed = recovery.replay(|_, _| Ok(()))?;
/// let finding = &replayed.findings[0];
/// assert_eq!((finding.reason, finding.cut_bytes), (FindingReason::TornTail, replayed.cut_bytes));
/// assert!(finding.cut_bytes > 0 && finding.error.to_string().starts_with("000001.journal "));
/// # std::fs::remove_dir_all(&folder).expect("removed");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalFinding {
    /// The reason for the finding.
    pub reason: FindingReason,
    /// Number of bytes of the file that were cut off.
    pub cut_bytes: u64,
    /// `DamagedFile` with the name of the file and the byte offset. Its cause is `Io` for a missing
    /// file.
    pub error: Error,
}

/// The reason why a recovery did not take a file as it is.
///
/// ```
/// use paranoid_set::FindingReason;
/// assert_ne!(FindingReason::TornTail, FindingReason::Damage);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingReason {
    /// The part was not written completely when the machine went down, or comes after such a part.
    /// No note and no record says that it was synced.
    TornTail,
    /// The part was written, and does not verify.
    Damage,
    /// The file is missing, or comes after a missing file.
    Missing,
}
