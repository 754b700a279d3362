//! Layer 6: the write path of an engine.
//!
//! A [`MemTableSet`] keeps one active table and those that are not flushed yet. It numbers batches, hands them to a
//! [`Journal`] and writes them to the active table, and makes them visible in order. [`View`]s and [`Snapshot`]s read all
//! tables at once; a [`FlushJob`] empties them into the engine's files.

#![forbid(unsafe_code)]

pub(crate) mod commit;
pub(crate) mod file_journal;
pub(crate) mod flush_job;
pub(crate) mod flush_merge;
pub(crate) mod flushes;
pub(crate) mod journal;
#[cfg(all(test, loom))]
mod loom;
pub(crate) mod merge_head;
pub(crate) mod merge_operator;
pub(crate) mod merged_entry;
pub(crate) mod merging_cursor;
pub(crate) mod options;
pub(crate) mod publication;
pub(crate) mod resume;
pub(crate) mod snapshot;
pub(crate) mod source;
pub(crate) mod swapped;
pub(crate) mod sync_leader;
pub(crate) mod table_set;
pub(crate) mod tables;
pub(crate) mod view;

pub use file_journal::{FileJournal, FileStorage, JournalRecovery, OnDamage, Replayed, Storage, StorageFile};
pub use flush_job::FlushJob;
pub use flush_merge::SetFlush;
pub use journal::Journal;
pub use merge_operator::{MergeError, MergeOperator};
pub use merged_entry::{MergeBase, MergedEntry};
pub use merging_cursor::MergingCursor;
pub use options::{Durability, SetOptions, SetOptionsBuilder};
pub use snapshot::Snapshot;
pub use source::{Cover, SortedSource, SourceKey};
pub use table_set::MemTableSet;
pub use view::{PendingMerge, SetLookup, View};
