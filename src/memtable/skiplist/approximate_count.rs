//! Estimates the number of entries between two positions, by the nodes of an upper level.
//!
//! Any thread.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "an estimate is rounded down"
)]

use crate::error::Result;
use crate::key::Target;
use crate::memtable::skiplist::list::List;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::{Splice, Trail};

/// A level with at most this many nodes between two positions is too short for an estimate.
const EXACT_COUNT: u64 = 64;

impl List {
    /// Estimates the number of entries between two positions, from the nodes between them on the
    /// highest level with more than 64. Counts the entries if no level has as many. Expected
    /// O(log n), at most some 10 000 steps where towers are sparse. Standard error 1/8.
    pub(crate) fn approximate_count(
        &self,
        search: &Search<'_>,
        from: &Target<'_>,
        to: &Target<'_>,
    ) -> Result<u64> {
        let mut splice = Splice::new(search.sentinel);
        if search
            .bracket_by_towers(from, &mut Trail::from(&mut splice))
            .is_ok()
        {
            for level in (1..=search.top()).rev() {
                let count = count_level(search, &splice, level, (from, to));
                if count > EXACT_COUNT {
                    return Ok((count as f64 * search.towers().entries_for_one(level)) as u64);
                }
            }
        }
        let (mut next, mut count) = (
            search
                .first_at_or_after(from)
                .map_err(|gap| gap.corruption)?,
            0,
        );
        while let Some(entry) = next
            && entry.order(search.comparator, to).is_lt()
        {
            count += 1;
            next = search
                .next_or_gap(entry.offset())
                .map_err(|gap| gap.corruption)?;
        }
        Ok(count)
    }
}

/// The number of nodes on an upper level between two positions; 0 if damage is in the way.
fn count_level(
    search: &Search<'_>,
    splice: &Splice,
    level: u32,
    (from, to): (&Target<'_>, &Target<'_>),
) -> u64 {
    let mut at = splice
        .prev
        .get(level as usize)
        .copied()
        .unwrap_or(search.sentinel);
    let mut count = 0;
    while let Some(next) = search.view.try_link(at, level) {
        if next == search.sentinel {
            return count;
        }
        let Some(node) = search.view.try_open(next) else {
            break;
        };
        if !node.order_as_stored(search.comparator, to).is_lt() {
            return count;
        }
        count += u64::from(!node.order_as_stored(search.comparator, from).is_lt());
        at = next;
    }
    0
}
