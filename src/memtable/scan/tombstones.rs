//! The range tombstones of a table as fragments. Each tombstone is read from its list and copied,
//! and the copy is verified. A frozen table keeps the fragments of a snapshot that sees every
//! tombstone; a call copies these and verifies the copy.
//!
//! ```text
//!   list        [a, g) @ 3   [c, k) @ 7   [m, p) @ 9
//!   at 8        a--c 3   c--k 7               each with the newest number that the snapshot sees
//! ```
//! Any thread; the list may be written meanwhile.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::{Verified, bytes_of, misplaced};
use crate::memtable::core::Core;
use crate::memtable::read::entry::copy_verified;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::fragmenter::Fragmenter;
use crate::tombstone::fragments::Fragments;

/// Passes every stored range tombstone to `take`, verified, with a verified copy of its end.
pub(crate) fn each_tombstone(
    core: &Core,
    mut take: impl FnMut(&Verified<'_>, &[u8], &View<'_>) -> Result<()>,
) -> Result<()> {
    let search = core.range_search()?;
    let mut end = Vec::new();
    let mut next = next_of(&search, search.sentinel)?;
    while let Some(entry) = next {
        next = next_of(&search, entry.offset())?;
        copy_verified(&entry, &search.view, &mut end)?;
        // The table accepts only tombstones whose start is before their end, and the list has them
        // in the order of their starts. So a key was damaged, or the comparator changed.
        let is_out_of_order =
            |next: Verified<'_>| core.comparator.compare(entry.key(), next.key()).is_gt();
        if core.comparator.compare(entry.key(), &end).is_ge() || next.is_some_and(is_out_of_order) {
            return Err(misplaced(entry.offset(), entry.sequence()).into());
        }
        take(&entry, &end, &search.view)?;
    }
    Ok(())
}

/// The fragments that a snapshot sees, each with the newest sequence number that it sees.
pub(crate) fn range_tombstones(core: &Core, snapshot: SequenceNumber) -> Result<Fragments> {
    if let Some(kept) = core.tombstones.fragments(core.ground(), snapshot) {
        return Ok(kept);
    }
    let mut fragmenter = Fragmenter::under(core.comparator.clone()).with_snapshots(&[]);
    each_tombstone(core, |entry, end, _| match entry.sequence() {
        // A tombstone with sequence number 0 deletes nothing.
        sequence if (1..=snapshot).contains(&sequence) => {
            fragmenter.add(entry.key(), end, sequence)
        }
        _ => Ok(()),
    })?;
    Ok(fragmenter.finish())
}

/// The entry after `at`; a gap is an error.
#[inline]
pub(crate) fn next_of<'a>(
    search: &Search<'a>,
    at: u32,
) -> Result<Option<Verified<'a>>, Corruption> {
    let next = search.next(at).map_err(|gap| gap.corruption)?;
    // A link from a node to itself would make the loop of the caller endless.
    match next {
        Some(entry) if entry.offset() == at => {
            Err(Corruption::new(Place::Order, bytes_of(at), 0, 0))
        }
        next => Ok(next),
    }
}
