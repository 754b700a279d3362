//! Counts and numbers of a set.
//!
//! Any thread; the counts are exact while nothing is written.

#![forbid(unsafe_code)]

use std::time::Duration;

use paranoid_memtable::SequenceNumber;

/// Counts and numbers of a set: see [`MemTableSet::stats`](crate::MemTableSet::stats).
///
/// ```
/// use paranoid_set::{MemTableSet, SetOptions, SetStats};
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let stats: SetStats = set.stats();
/// assert_eq!((stats.tables, stats.entries, stats.snapshots), (1, 0, 0));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetStats {
    /// The last visible sequence number.
    pub visible: SequenceNumber,
    /// Number of tables that are not flushed, the active one included.
    pub tables: u64,
    /// Number of entries in them.
    pub entries: u64,
    /// Bytes of memory allocated to them.
    pub allocated_bytes: u64,
    /// Bytes of memory of flushed tables that views, cursors, jobs or pinned values still hold.
    pub pinned_bytes: u64,
    /// How long the first of these tables has been held since it was flushed: a view or cursor that
    /// somebody forgot.
    pub pinned_for: Option<Duration>,
    /// Bytes of memory of flushed tables that the set keeps for the next ones:
    /// [`recycled_arenas`](crate::SetOptionsBuilder::recycled_arenas).
    pub recycled_bytes: u64,
    /// Number of different sequence numbers at which there are
    /// [snapshots](crate::MemTableSet::snapshots).
    pub snapshots: u64,
}
