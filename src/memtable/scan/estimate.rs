//! About how much lies in a range: counted if that is little, else from the towers of the list.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::key::{Comparator, Side, Target};
use crate::memtable::core::Core;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::Ordered;
use crate::memtable::scan::bounds::ScanBound;

/// About how much lies in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStats {
    /// Entries: exact up to 64, standard error about 1/8 beyond.
    pub entries: u64,
    /// Bytes of their keys and values, from the table's mean.
    pub data_bytes: u64,
}

/// Ranges of up to so many entries are counted entry by entry.
const EXACT_MOST: u64 = 64;

/// Entries between two positions, each verified by the step to it; `None`: more than a few.
fn count_few<'a, C: Comparator>(
    order: &impl Ordered<'a>,
    comparator: &C,
    from: &Target<'_>,
    to: &Target<'_>,
) -> Result<Option<u64>> {
    let mut next = order.find(from)?.after;
    let mut count = 0;
    while let Some(spot) = next
        && spot.entry.node().order(comparator, to).is_lt()
    {
        count += 1;
        if count > EXACT_MOST {
            return Ok(None);
        }
        next = order.next(spot.at)?;
    }
    Ok(Some(count))
}

/// About how many entries, and how many bytes of them, lie between two bounds.
pub(crate) fn approximate_range_stats<C: Comparator>(
    core: &Core<C>,
    (lower, upper): (Option<ScanBound>, Option<ScanBound>),
) -> Result<RangeStats> {
    let from =
        lower.as_ref().map_or(Target::extreme(Side::Start), |scan_bound| scan_bound.target(&core.comparator));
    let to =
        upper.as_ref().map_or(Target::extreme(Side::End), |scan_bound| scan_bound.target(&core.comparator));
    let totals = core.shards.totals();
    let points = totals.entries.wrapping_sub(totals.range_deletes).wrapping_add(totals.displaced);
    let entries = match core.order(None)? {
        Order::List(search) => match count_few(&search, &core.comparator, &from, &to)? {
            Some(count) => count,
            None => core.points.list.approximate_count(&search, &from, &to)?.max(EXACT_MOST),
        },
        Order::Sorted(search) => search.count(&from, &to)?,
    };
    let entries = entries.min(points);
    let data_bytes = u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
    Ok(RangeStats { entries, data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX) })
}
