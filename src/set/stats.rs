//! Counts and numbers of a set.
//!
//! Any thread; the counts are exact while nothing is written.

#![forbid(unsafe_code)]

use crate::key::SequenceNumber;
use crate::set::snapshot::Registry;
use crate::set::view::View;
use crate::set::write_buffer_manager::Membership;

/// Counts and numbers of a set: see [`MemTableSet::stats`](crate::set::MemTableSet::stats).
///
/// ```
/// use paranoid_memtable::set::{MemTableSet, SetOptions, SetStats};
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let stats: SetStats = set.stats();
/// assert_eq!((stats.tables, stats.entries, stats.oldest_snapshot), (1, 0, None));
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
    /// Bytes of memory of flushed tables that the set keeps for the next ones:
    /// [`recycled_arenas`](crate::set::SetOptionsBuilder::recycled_arenas).
    pub recycled_bytes: u64,
    /// Number of stalls so far: of writes that waited for memory, and of those that were refused.
    pub stalls: u64,
    /// Number of flushes that were installed so far.
    pub flushes: u64,
    /// Number of different sequence numbers at which there are snapshots.
    pub snapshots: u64,
    /// The sequence number of the oldest snapshot.
    pub oldest_snapshot: Option<SequenceNumber>,
}

impl SetStats {
    pub(crate) fn of<B>(view: &View<B>, registry: &Registry, buffers: &Membership) -> Self {
        let (snapshots, counted) = (registry.numbers(), buffers.stats());
        SetStats {
            visible: view.sequence(),
            tables: view.tables() as u64,
            entries: view.readers().map(|table| table.len() as u64).sum(),
            allocated_bytes: view.readers().map(|table| table.allocated_bytes()).sum(),
            pinned_bytes: counted.pinned_bytes,
            recycled_bytes: counted.recycled_bytes,
            stalls: counted.stalls,
            flushes: counted.flushes,
            snapshots: snapshots.len() as u64,
            oldest_snapshot: snapshots.first().copied(),
        }
    }
}
