//! The statistics of a set.
//!
//! Any thread. The counts are exact while no batch is being written.

#![forbid(unsafe_code)]

use std::time::Duration;

use paranoid_memtable::SequenceNumber;

/// Statistics of a set: see [`MemTableSet::stats`](crate::MemTableSet::stats).
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
    /// Number of unflushed tables, the active one included.
    pub tables: u64,
    /// Number of entries in these tables.
    pub entries: u64,
    /// Bytes of memory allocated to these tables.
    pub allocated_bytes: u64,
    /// Bytes of memory of flushed tables that views, cursors, jobs or pinned values still hold.
    pub pinned_bytes: u64,
    /// The time since the oldest of these tables was flushed. A long time shows a forgotten view or
    /// cursor.
    pub pinned_for: Option<Duration>,
    /// Bytes of memory of flushed tables that the set keeps for its next tables:
    /// [`recycled_arenas`](crate::SetOptionsBuilder::recycled_arenas).
    pub recycled_bytes: u64,
    /// Damaged places that the unflushed tables have put right: see [`SetEvent::Healed`](crate::SetEvent).
    pub healed: u64,
    /// Number of different sequence numbers of [snapshots](crate::MemTableSet::snapshots).
    pub snapshots: u64,
}
