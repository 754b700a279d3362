//! `FileJournal`, the journal that comes with the crate: files of encoded batches in one directory.

#![forbid(unsafe_code)]

pub(crate) mod storage;
pub(crate) mod checked_file;
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod durable_notes;
pub(crate) mod findings;
pub(crate) mod recovery;
pub(crate) mod queue;
#[expect(
    clippy::module_inception,
    reason = "the file is named after its type, and so is the folder"
)]
pub(crate) mod file_journal;

pub use checked_file::{read_checked, replace_checked};
pub use file_journal::FileJournal;
pub use findings::{FindingReason, JournalFinding, Replayed};
pub use recovery::{JournalRecovery, RecoveryMode};
pub use storage::{FileStorage, Storage, StorageFile};
