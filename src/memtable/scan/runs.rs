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

use crate::error::{Corruption, Place};
use crate::key::{Comparator, KeyEquality, SequenceNumber, Side, Target, are_equal};
use crate::memtable::core::Core;
use crate::memtable::parts::representation::{END, Ordered, Spot};
use crate::memtable::read::find_entry::past_proved;
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::memtable::skiplist::parked::Parked;
use crate::memtable::skiplist::search::Gap;

/// The direction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// The entry that a walk is on, without a borrow of the table.
#[derive(Debug, Clone, Copy)]
pub struct Stand {
    pub(crate) at: u32,
    pub(crate) parked: Parked,
}

impl Stand {
    #[inline(always)]
    pub(crate) fn on(spot: &Spot<'_>) -> Self {
        Stand { at: spot.at, parked: Parked::new(&spot.entry) }
    }

    /// On an entry of a list, where a position is the node's offset.
    #[inline(always)]
    pub(crate) fn at(entry: &Verified<'_>) -> Self {
        Stand { at: entry.node().offset(), parked: Parked::new(entry) }
    }

    /// The entry, verified again (VISIBILITY-4).
    #[inline]
    pub(crate) fn spot<'a, O: Ordered<'a>>(&self, order: &O) -> Result<Spot<'a>, Gap> {
        match self.parked.verify(order.view()) {
            Ok(entry) => Ok(Spot { at: self.at, entry }),
            Err(corruption) => Err(order.gap_at(self.at, corruption)),
        }
    }

    /// Whether the entry verifies and its key is another one (VISIBILITY-4).
    #[inline(never)]
    pub(crate) fn has_key_other_than<C: Comparator>(
        &self,
        core: &Core<C>,
        frame: &Frame,
        key: &[u8],
    ) -> bool {
        let entry = frame.on(&core.arena).and_then(|view| self.parked.verify(&view).ok());
        entry.is_some_and(|entry| !are_equal(&core.comparator, entry.key(), key))
    }

    /// Whether another entry has the same key (VISIBILITY-4).
    #[inline]
    fn has_key_of<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        other: &Spot<'a>,
    ) -> Result<bool, Gap> {
        if C::EQUALITY == KeyEquality::Bytes && self.parked.has_other_key(&other.entry) {
            return Ok(false);
        }
        Ok(same_key(core, &self.spot(order)?, other))
    }
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
    pub(crate) fn count<C>(&mut self, core: &Core<C>) -> Result<(), Corruption> {
        self.taken += 1;
        if self.taken <= self.limit { Ok(()) } else { self.extend(core) }
    }

    #[cold]
    fn extend<C>(&mut self, core: &Core<C>) -> Result<(), Corruption> {
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

pub(crate) fn same_key<C: Comparator>(core: &Core<C>, left: &Spot<'_>, right: &Spot<'_>) -> bool {
    are_equal(&core.comparator, left.entry.key(), right.entry.key())
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
    pub(crate) fn holds<'a, C: Comparator, O: Ordered<'a>>(
        self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
        other: &Spot<'a>,
    ) -> Result<bool, Gap> {
        if self == Run::Equals && other.entry.node().sequence() != from.parked.sequence() {
            return Ok(false);
        }
        from.has_key_of(core, order, other)
    }

    /// The position before the run that an entry belongs to.
    fn start<'k, C: Comparator>(self, core: &Core<C>, spot: &Spot<'k>) -> Target<'k> {
        let newest = if self == Run::Key { SequenceNumber::MAX } else { spot.entry.node().sequence() };
        Target::new(&core.comparator, spot.entry.key(), newest)
    }

    /// The position after it.
    fn end<'k, C: Comparator>(self, core: &Core<C>, spot: &Spot<'k>) -> Target<'k> {
        match self {
            Run::Key => Target::behind_key(&core.comparator, spot.entry.key()),
            Run::Equals => self.start(core, spot).with_revision(0).with_side(Side::After),
        }
    }
}

/// The first entry after a run, or the last one before it: a few steps, then a search (VISIBILITY-3). `hidden` counts
/// the entries of the run that it looks at.
#[inline]
pub(crate) fn past_run<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    from: &Stand,
    run: Run,
    way: Way,
    hidden: &mut u64,
) -> Result<Option<Spot<'a>>, Gap> {
    let mut at = from.at;
    for _ in 0..STEPS_MAX {
        let next = match way {
            Way::Forward => order.next(at)?,
            Way::Backward => order.prev(at)?,
        };
        match next {
            Some(next) if run.holds(core, order, from, &next)? => {
                at = next.at;
                *hidden += 1;
            }
            next => return Ok(next),
        }
    }
    let spot = from.spot(order)?;
    match way {
        Way::Forward => Ok(order.find(&run.end(core, &spot))?.after),
        Way::Backward => order.find_before(&run.start(core, &spot)),
    }
}

/// The entry after a gap, if no damaged entry in the gap can belong to the run of `spot` (VISIBILITY-2).
#[cold]
pub(crate) fn past_gap<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    gap: Gap,
    spot: &Spot<'a>,
    run: Run,
) -> Result<Option<Spot<'a>>, Gap> {
    past_proved(order, gap, |key, sequence| {
        (run == Run::Equals && sequence != spot.entry.node().sequence())
            || !are_equal(&core.comparator, key, spot.entry.key())
    })
}

/// The first entry of the run of `spot`: a few steps, then a search (VISIBILITY-3). A gap before it whose entries are
/// proved not to belong to the run is left to the next step (VISIBILITY-2). If both a step and the search meet a gap,
/// that of the step is reported. `hidden` counts the entries of the run that it looks at and leaves.
pub(crate) fn first_of_run<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    spot: Spot<'a>,
    run: Run,
    hidden: &mut u64,
) -> Result<Spot<'a>, Gap> {
    let (mut first, mut met) = (spot, None);
    for _ in 0..STEPS_MAX {
        match order.prev(first.at) {
            Ok(Some(before)) if run.holds(core, order, &Stand::on(&first), &before)? => {
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
    let found = match order.find(&run.start(core, &first)) {
        Ok(around) => around.after,
        Err(gap) => past_gap(core, order, met.unwrap_or(gap), &first, run)?,
    };
    match found {
        Some(found) if run.holds(core, order, &Stand::on(&first), &found)? => Ok(found),
        _ => Ok(first),
    }
}

/// A gap without sides, after which the walk cannot go on.
#[cold]
pub(crate) fn no_way(corruption: Corruption) -> Gap {
    Gap { corruption, before: END, after: END }
}

/// With 0 protection bytes keys are not verified, and a scan that searches could loop over a damaged key. So each
/// move must lead further in the order of the keys as read.
#[inline(always)]
pub(crate) fn moved_on<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    from: &Stand,
    to: Option<Spot<'a>>,
    way: Ordering,
) -> Result<Option<Spot<'a>>, Gap> {
    let Some(next) = to.filter(|_| order.view().width.bytes() == 0) else { return Ok(to) };
    let from = from.spot(order)?;
    let (here, there) = (from.entry.node(), next.entry.node());
    let moved = core.comparator.compare(next.entry.key(), from.entry.key());
    let moved = moved.then(here.sequence().cmp(&there.sequence()));
    // Duplicates of a `Vector` table differ only in their places.
    let moved = moved.then(here.revision().cmp(&there.revision()));
    if moved.then(next.at.cmp(&from.at)) == way {
        return Ok(to);
    }
    let corruption = Corruption::new(Place::Order, bytes_of(here.offset()), u64::from(there.offset()), 0);
    Err(no_way(corruption))
}
