//! Estimates of the size of a range: counted if it is small, else computed from the towers of the list.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::key::{Side, Target};
use crate::memtable::core::Core;
use crate::memtable::scan::bounds::ScanBounds;
use crate::memtable::skiplist::search::Search;

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
    /// Bytes of their keys and values, computed from the mean of the table.
    pub data_bytes: u64,
}

/// Ranges of up to this many entries are counted.
const EXACT_MOST: u64 = 64;

/// Number of entries between two positions, each verified; `None` if there are more than `EXACT_MOST`.
fn count_few(search: &Search<'_>, from: &Target<'_>, to: &Target<'_>) -> Result<Option<u64>> {
    let mut next = search.find_at_or_after(from)?;
    let mut count = 0;
    while let Some(entry) = next
        && entry.node().order(search.comparator, to).is_lt()
    {
        count += 1;
        if count > EXACT_MOST {
            return Ok(None);
        }
        next = search.next(entry.offset())?;
    }
    Ok(Some(count))
}

/// Estimates the number and the bytes of the entries between two bounds.
pub(crate) fn approximate_range_stats(
    core: &Core,
    ScanBounds { lower, upper }: ScanBounds,
) -> Result<RangeStats> {
    let from =
        lower.as_ref().map_or(Target::extreme(Side::Start), |scan_bound| scan_bound.target(&core.comparator));
    let to =
        upper.as_ref().map_or(Target::extreme(Side::End), |scan_bound| scan_bound.target(&core.comparator));
    let totals = core.shards.totals();
    let points = totals.entries.wrapping_sub(totals.range_deletes).wrapping_add(totals.displaced);
    let search = core.point_search()?;
    let entries = match count_few(&search, &from, &to)? {
        Some(count) => count,
        None => core.points.list.approximate_count(&search, &from, &to)?.max(EXACT_MOST),
    };
    let entries = entries.min(points);
    let data_bytes = u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
    Ok(RangeStats { entries, data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX) })
}
