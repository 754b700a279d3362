//! The journal that comes with the crate: files of encoded batches in one directory.

#![forbid(unsafe_code)]

pub(crate) mod storage;
pub(crate) mod format;
pub(crate) mod scan;
pub(crate) mod durable_notes;
pub(crate) mod recovery;
pub(crate) mod queue;
pub(crate) mod journal_trait;
pub(crate) mod journal;

pub use journal::FileJournal;
pub use recovery::{FindingReason, JournalFinding, JournalRecovery, RecoveryMode, Replayed};
pub use storage::{FileStorage, Storage, StorageFile};
