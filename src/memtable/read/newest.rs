//! Searches for the versions of a key: the newest one that a snapshot sees, and older ones, as
//! stored. Callers ask for range tombstones, also if the filter says "absent".
//!
//! ```text
//!   key -> filter: "absent" --------------------> no entry
//!            | "perhaps"
//!          list: a verified bracket ------------> entry or none
//! ```
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::key::{SequenceNumber, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::core::Core;
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::search::Search;

/// The newest entry of `key` at or below `snapshot`, as stored, by filter and list.
#[inline]
pub(crate) fn locate<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    if core.filters.has_filters() && core.filters.lacks(&search.view, key) {
        return Ok(None);
    }
    Ok(newest(core, search, key, snapshot)?)
}

/// The newest entry of `key` at or below `snapshot`, as stored, by the list alone.
#[inline(never)]
pub(crate) fn newest<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>, Gap> {
    let target = Target::new(&core.comparator, key, snapshot);
    let ((), newest) = search.newest_version(&target, || Ok::<_, Gap>(()))?;
    Ok(newest.of_key(&core.comparator, key))
}

/// The next older version of the key of `entry`. Skips entries that `entry` replaced.
pub(crate) fn older<'a>(
    core: &Core,
    search: &Search<'a>,
    entry: &Verified<'a>,
) -> Result<Option<Verified<'a>>> {
    let mut at = entry.offset();
    loop {
        let next = search
            .next_or_gap(at)?
            .filter(|next| core.comparator.are_equal(next.key(), entry.key()));
        let is_replaced = |next: &Verified<'_>| next.sequence() == entry.sequence();
        match next {
            Some(next) if core.replaces() && is_replaced(&next) => at = next.offset(),
            next => return Ok(next),
        }
    }
}
