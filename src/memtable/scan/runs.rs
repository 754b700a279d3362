//! Runs: adjacent entries of which a scan shows at most one, and how a walk passes them.
//!
//! ```text
//!   a@9   m@5 r3   m@5 r2   m@5 r1   m@5 r0   z@2        a run of equals: r3 replaced the others
//!   a@9   m@8      m@7      m@6      m@5      z@2        a run of versions of one key
//!   <---- before   first             after --->          a few steps, then one search
//! ```
//! See `visibility` for the invariants, VISIBILITY-2 to VISIBILITY-5.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::comparator::KeyEquality;
use crate::error::{Corruption, Place};
use crate::key::{Direction, SequenceNumber, Side, Target};
use crate::memtable::core::Core;
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::memtable::skiplist::parked::Parked;
use crate::memtable::skiplist::search::{Gap, Search};

/// The entry that a walk is on, verified again (VISIBILITY-4).
#[inline]
pub(crate) fn resumed<'a>(search: &Search<'a>, from: &Parked) -> Result<Verified<'a>, Gap> {
    from.verify(&search.view).map_err(|corruption| search.gap_at(from.offset(), corruption))
}

/// Whether the entry that a walk is on verifies and has another key (VISIBILITY-4).
#[inline(never)]
pub(crate) fn has_key_other_than(core: &Core, frame: &Frame, from: &Parked, key: &[u8]) -> bool {
    let entry = frame.on(&core.arena).and_then(|view| from.verify(&view).ok());
    entry.is_some_and(|entry| !core.comparator.are_equal(entry.key(), key))
}

/// Steps that every walk may take, however small its table.
const STEPS_SPARE: u64 = 64;

/// The number of steps that a walk may take (VISIBILITY-5): a few more than twice the number of entries. Under a
/// consistent comparator a walk takes at most one step per entry and one per gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLimit {
    taken: u64,
    limit: u64,
}

impl Default for StepLimit {
    fn default() -> Self {
        StepLimit { taken: 0, limit: STEPS_SPARE }
    }
}

impl StepLimit {
    /// Counts a step, and fails once there were too many. The table's entries are counted only when the limit is
    /// reached, in O(shards).
    #[inline]
    pub(crate) fn count(&mut self, core: &Core) -> Result<(), Corruption> {
        self.taken += 1;
        if self.taken <= self.limit { Ok(()) } else { self.extend(core) }
    }

    #[cold]
    fn extend(&mut self, core: &Core) -> Result<(), Corruption> {
        let totals = core.shards.totals();
        let points = totals.entries.saturating_sub(totals.range_deletes).saturating_add(totals.displaced);
        self.limit = points.saturating_mul(2).saturating_add(STEPS_SPARE);
        if self.taken <= self.limit {
            return Ok(());
        }
        Err(Corruption::new(Place::Order, 0, self.limit, self.taken))
    }
}

/// Steps over entries of one run before a search takes over (VISIBILITY-3).
pub(crate) const STEPS_MAX: u32 = 8;

pub(crate) fn same_key(core: &Core, left: &Verified<'_>, right: &Verified<'_>) -> bool {
    core.comparator.are_equal(left.key(), right.key())
}

/// Which adjacent entries a scan shows at most one of (VISIBILITY-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// One key and one sequence number: the first replaced the others.
    Equals,
    /// All versions of one key.
    Key,
}

impl Run {
    /// Whether another entry belongs to the run of `from`.
    #[inline]
    pub(crate) fn holds<'a>(
        self,
        core: &Core,
        search: &Search<'a>,
        from: &Parked,
        other: &Verified<'a>,
    ) -> Result<bool, Gap> {
        if self == Run::Equals && other.node().sequence() != from.sequence() {
            return Ok(false);
        }
        if core.comparator.equality() == KeyEquality::Bytes && from.has_other_key(other) {
            return Ok(false);
        }
        Ok(same_key(core, &resumed(search, from)?, other))
    }

    /// The position before the run that an entry belongs to.
    fn start<'k>(self, core: &Core, entry: &Verified<'k>) -> Target<'k> {
        let newest = if self == Run::Key { SequenceNumber::MAX } else { entry.node().sequence() };
        Target::new(&core.comparator, entry.key(), newest)
    }

    /// The position after it.
    fn end<'k>(self, core: &Core, entry: &Verified<'k>) -> Target<'k> {
        match self {
            Run::Key => Target::behind_key(&core.comparator, entry.key()),
            Run::Equals => self.start(core, entry).with_revision(0).with_side(Side::After),
        }
    }
}

/// The first entry after a run, or the last one before it: a few steps, then a search (VISIBILITY-3). `hidden` counts
/// the entries of the run that it looks at.
#[inline]
pub(crate) fn past_run<'a>(
    core: &Core,
    search: &Search<'a>,
    from: &Parked,
    run: Run,
    way: Direction,
    hidden: &mut u64,
) -> Result<Option<Verified<'a>>, Gap> {
    let mut at = from.offset();
    for _ in 0..STEPS_MAX {
        let next = match way {
            Direction::Forward => search.next(at)?,
            Direction::Backward => search.prev(at)?,
        };
        match next {
            Some(next) if run.holds(core, search, from, &next)? => {
                at = next.offset();
                *hidden += 1;
            }
            next => return Ok(next),
        }
    }
    let entry = resumed(search, from)?;
    match way {
        Direction::Forward => Ok(search.find_at_or_after(&run.end(core, &entry))?),
        Direction::Backward => search.find_before(&run.start(core, &entry)),
    }
}

/// The entry after a gap, if no damaged entry in the gap can belong to the run of `entry` (VISIBILITY-2).
#[cold]
pub(crate) fn past_gap<'a>(
    core: &Core,
    search: &Search<'a>,
    gap: Gap,
    entry: &Verified<'a>,
    run: Run,
) -> Result<Option<Verified<'a>>, Gap> {
    search.past_gap(gap, |key, sequence| {
        (run == Run::Equals && sequence != entry.node().sequence())
            || !core.comparator.are_equal(key, entry.key())
    })
}

/// The first entry of the run of `entry`: a few steps, then a search (VISIBILITY-3). A gap before it whose entries are
/// proved not to belong to the run is left to the next step (VISIBILITY-2). If both a step and the search meet a gap,
/// that of the step is reported. `hidden` counts the entries of the run that it looks at and leaves.
pub(crate) fn first_of_run<'a>(
    core: &Core,
    search: &Search<'a>,
    entry: Verified<'a>,
    run: Run,
    hidden: &mut u64,
) -> Result<Verified<'a>, Gap> {
    let (mut first, mut met) = (entry, None);
    for _ in 0..STEPS_MAX {
        match search.prev(first.offset()) {
            Ok(Some(before)) if run.holds(core, search, &Parked::new(&first), &before)? => {
                first = before;
                *hidden += 1;
            }
            Ok(_) => return Ok(first),
            // A search may find a way around the gap.
            Err(gap) => {
                met = Some(gap);
                break;
            }
        }
    }
    let found = match search.find_at_or_after(&run.start(core, &first)) {
        Ok(found) => found,
        Err(gap) => past_gap(core, search, met.unwrap_or(gap), &first, run)?,
    };
    match found {
        Some(found) if run.holds(core, search, &Parked::new(&first), &found)? => Ok(found),
        _ => Ok(first),
    }
}

/// A gap without sides, after which the walk cannot go on.
#[cold]
pub(crate) fn no_way(search: &Search<'_>, corruption: Corruption) -> Gap {
    Gap { corruption, before: search.sentinel, after: search.sentinel }
}

/// With 0 protection bytes keys are not verified, and a scan that searches could loop over a damaged key. So each
/// move must lead further in the order of the keys as read.
#[inline(always)]
pub(crate) fn moved_on<'a>(
    core: &Core,
    search: &Search<'a>,
    from: &Parked,
    to: Option<Verified<'a>>,
    way: Ordering,
) -> Result<Option<Verified<'a>>, Gap> {
    let Some(next) = to.filter(|_| search.view.width.bytes() == 0) else { return Ok(to) };
    let from = resumed(search, from)?;
    let (here, there) = (from.node(), next.node());
    let moved = core.comparator.compare(next.key(), from.key());
    let moved = moved.then(here.sequence().cmp(&there.sequence()));
    if moved.then(here.revision().cmp(&there.revision())) == way {
        return Ok(to);
    }
    let corruption = Corruption::new(Place::Order, bytes_of(here.offset()), u64::from(there.offset()), 0);
    Err(no_way(search, corruption))
}
