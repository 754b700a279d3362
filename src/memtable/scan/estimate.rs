//! Estimates of the size of a range. A small range is counted; the size of a larger one is computed
//! from the towers of the list.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::memtable::core::Core;
use crate::memtable::scan::bounds::ScanBounds;

/// An estimate of the size of a range.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::RangeStats;
/// let table = MemTable::default();
/// table.put(1, b"a", b"1")?;
/// let stats: RangeStats = table.approximate_range_stats(..)?;
/// assert_eq!((stats.entries, stats.data_bytes), (1, 2));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStats {
    /// Number of entries: exact up to 64, with a standard error of about 1/8 above.
    pub entries: u64,
    /// Bytes of keys and values of these entries, computed from the mean over the table.
    pub data_bytes: u64,
}

/// Estimates the number and the bytes of the entries between two bounds.
pub(crate) fn approximate_range_stats(
    core: &Core,
    ScanBounds { lower, upper }: ScanBounds,
) -> Result<RangeStats> {
    let (from, to) = (
        lower.target(&core.comparator),
        upper.target(&core.comparator),
    );
    let totals = core.shards.totals();
    let search = core.point_search()?;
    let entries = core
        .points
        .approximate_count(&search, &from, &to)?
        .min(totals.points());
    let data_bytes =
        u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
    Ok(RangeStats {
        entries,
        data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX),
    })
}
