//! Which entries a scan shows: all of them as stored, or what a snapshot sees.
//!
//! ```text
//!   stored      a@9  a@5  b@7d  c@4 c@2          d = delete, and a range delete [c, d) @ 3
//!   raw         a@9  a@5  b@7d  c@4 c@2
//!   snapshot 8       a@5        c@4              newest version <= 8 of each key that is not deleted
//! ```
//! * V1: raw scans show the first of equals only (policy `Replace`), in both directions.
//! * V2: behind a hole a snapshot scan also passes the next key: the hole may have held a newer version of it. A raw scan
//!   passes the next entry and its equals under policy `Replace`: the hole may have held what replaced them.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::error::{Corruption, Place};
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::representation::{Around, END, Hole, Ordered, Spot};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::node::{Parked, Verified, bytes_of};
use crate::memtable::table::Core;
use crate::tombstone::live::CoveringRun;

/// Which way a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// Where a cursor stands, without a borrow.
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

    /// The entry again.
    #[inline(always)]
    pub(crate) fn spot<'a>(&self, view: &View<'a>) -> Result<Spot<'a>, Hole> {
        match self.parked.resume(view) {
            Some(entry) => Ok(Spot { at: self.at, entry }),
            None => {
                Err(Hole { corruption: Corruption::new(Place::Control, 0, 0, 0), before: END, behind: END })
            }
        }
    }
}

/// Decides which entries a scan shows.
pub trait Lens: sealed::Look {}

pub(crate) mod sealed {
    use super::{Comparator, Core, Hole, Ordered, SequenceNumber, Spot, Stand, Verified, View, Way};

    /// The workings of a lens.
    pub trait Look: Clone + std::fmt::Debug + Send + Sync {
        /// Whether steps this way from one entry shown to the next are plain: the two alone tell what is shown.
        #[expect(private_interfaces, reason = "sealed")]
        fn is_plain<C: Comparator>(&self, core: &Core<C>, way: Way) -> bool;

        /// Whether the neighbour of an entry shown is shown, where steps are plain. `false`: it takes more to tell.
        #[expect(private_interfaces, reason = "sealed")]
        fn shows_neighbour<C: Comparator>(
            &self,
            core: &Core<C>,
            view: &View<'_>,
            from: &Stand,
            neighbour: &Verified<'_>,
        ) -> bool;

        /// Where a search for (key, `sequence`) starts: at that version, or at the key's first one.
        fn search_from(sequence: SequenceNumber) -> SequenceNumber;

        /// The first entry shown at or behind a stored one, which is the first of its key unless all versions are shown.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn forward<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            spot: Option<Spot<'a>>,
        ) -> Result<Option<Spot<'a>>, Hole>;

        /// The last entry shown at or in front of a stored one.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn backward<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            spot: Option<Spot<'a>>,
        ) -> Result<Option<Spot<'a>>, Hole>;

        /// The first stored entry that could be shown behind one that was.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn behind<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            from: &Stand,
        ) -> Result<Option<Spot<'a>>, Hole>;

        /// The last stored entry that could be shown in front of one that was.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn before<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            from: &Stand,
        ) -> Result<Option<Spot<'a>>, Hole>;

        /// The first stored entry to go on with behind a hole that ends at `spot` (V2).
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn behind_hole<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            spot: Spot<'a>,
        ) -> Result<Option<Spot<'a>>, Hole>;
    }
}

/// Every version and every kind; range tombstones are not applied. What merges and flush read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

/// What a snapshot sees: the newest version of each key, deletes and range deletes applied.
#[derive(Debug, Clone, Copy)]
pub struct AtSnapshot {
    pub(crate) sequence: SequenceNumber,
}

impl Lens for Raw {}
impl Lens for AtSnapshot {}

fn position(spot: Option<Spot<'_>>) -> u32 {
    spot.map_or(END, |spot| spot.at)
}

/// Steps over versions of one key before a search takes over.
const STEPS_MAX: u32 = 8;

fn same_key<C: Comparator>(core: &Core<C>, left: &Spot<'_>, right: &Spot<'_>) -> bool {
    core.comparator.compare(left.entry.key(), right.entry.key()).is_eq()
}

fn equal<C: Comparator>(core: &Core<C>, left: &Spot<'_>, right: &Spot<'_>) -> bool {
    left.entry.node().sequence() == right.entry.node().sequence() && same_key(core, left, right)
}

/// Where keys are not verified (0 protection bytes), a scan that searches its way could go round in a circle over a
/// damaged key: each move must lead further in the order of the keys as they read.
#[inline(always)]
fn moved_on<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    from: &Spot<'a>,
    to: Option<Spot<'a>>,
    way: Ordering,
) -> Result<Option<Spot<'a>>, Hole> {
    let Some(next) = to.filter(|_| order.view().width.bytes() == 0) else { return Ok(to) };
    let (here, there) = (from.entry.node(), next.entry.node());
    let moved = core.comparator.compare(next.entry.key(), from.entry.key());
    let moved = moved.then(here.sequence().cmp(&there.sequence()));
    // Duplicates of a `Vector` table differ in their places only.
    let moved = moved.then(here.revision().cmp(&there.revision()));
    if moved.then(next.at.cmp(&from.at)) == way {
        return Ok(to);
    }
    let corruption = Corruption::new(Place::Order, bytes_of(here.offset()), u64::from(there.offset()), 0);
    Err(Hole { corruption, before: END, behind: END })
}

#[expect(private_interfaces, private_bounds, reason = "sealed")]
impl sealed::Look for Raw {
    #[inline(always)]
    fn is_plain<C: Comparator>(&self, core: &Core<C>, _way: Way) -> bool {
        core.options.duplicates != DuplicatePolicy::Replace
    }

    #[inline(always)]
    fn shows_neighbour<C: Comparator>(&self, _: &Core<C>, _: &View<'_>, _: &Stand, _: &Verified<'_>) -> bool {
        true
    }

    #[inline(always)]
    fn search_from(sequence: SequenceNumber) -> SequenceNumber {
        sequence
    }

    #[inline(always)]
    fn forward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        _core: &Core<C>,
        _order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        Ok(spot)
    }

    #[inline]
    fn backward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let Some(mut spot) = spot else { return Ok(None) };
        if core.options.duplicates == DuplicatePolicy::Replace && !planted(Bug::ReverseShowsLastOfEquals) {
            while let Some(before) = order.prev(spot.at)?.filter(|before| equal(core, before, &spot)) {
                spot = before;
            }
        }
        Ok(Some(spot))
    }

    #[inline(always)]
    fn behind<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut next = order.next(from.at)?;
        if core.options.duplicates == DuplicatePolicy::Replace {
            let spot = &from.spot(order.view())?;
            while let Some(equal_one) = next.filter(|next| equal(core, next, spot)) {
                next = order.next(equal_one.at)?;
            }
        }
        Ok(next)
    }

    #[inline(always)]
    fn before<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut prev = order.prev(from.at)?;
        if core.options.duplicates == DuplicatePolicy::Replace {
            // An equal entry in front was inserted after this one was shown.
            let spot = &from.spot(order.view())?;
            while let Some(newer) = prev.filter(|prev| equal(core, prev, spot)) {
                prev = order.prev(newer.at)?;
            }
        }
        Ok(prev)
    }

    fn behind_hole<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        if core.options.duplicates != DuplicatePolicy::Replace || planted(Bug::HoleShowsReplaced) {
            return Ok(Some(spot));
        }
        let mut next = order.next(spot.at)?;
        while let Some(replaced) = next.filter(|next| equal(core, next, &spot)) {
            next = order.next(replaced.at)?;
        }
        Ok(next)
    }
}

impl AtSnapshot {
    /// The newest visible entry of the key that the stored entry `spot` belongs to.
    fn newest<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let target = Target::new(&core.comparator, spot.entry.key(), self.sequence);
        let Around { behind, .. } = order.find(&target)?;
        Ok(behind.filter(|found| same_key(core, found, spot)))
    }

    /// Whether a visible entry is shown: not a tombstone, not covered by one.
    fn shows<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<bool, Hole> {
        if spot.entry.kind().is_point_delete() {
            return Ok(false);
        }
        let floor = Some(spot.entry.node().sequence());
        match core.covering(spot.entry.key(), self.sequence, floor) {
            Ok(cover) => Ok(cover.is_none()),
            Err(corruption) => {
                let before = Self::prev_key(core, order, spot).map_or_else(|hole| hole.before, position);
                Err(Hole { corruption, before, behind: spot.at })
            }
        }
    }

    /// The first stored entry that may be shown behind a hidden key: behind the whole run if its tombstone is newer
    /// than every entry that the snapshot sees, else behind the key.
    fn behind_hidden<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        match self.dead_run(core, spot) {
            Some(run) => {
                Ok(order.find(&Target::new(&core.comparator, &run.end, SequenceNumber::MAX))?.behind)
            }
            None => Self::next_key(core, order, spot),
        }
    }

    /// The same in the other direction.
    fn before_hidden<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        match self.dead_run(core, spot) {
            Some(run) => order.find_before(&Target::new(&core.comparator, &run.start, SequenceNumber::MAX)),
            None => Self::prev_key(core, order, spot),
        }
    }

    /// The run around a hidden key in which nothing can be shown.
    fn dead_run<C: Comparator>(&self, core: &Core<C>, spot: &Spot<'_>) -> Option<CoveringRun> {
        let mut run = CoveringRun::default();
        if !core.may_have_ranges() || !core.covering_run(spot.entry.key(), self.sequence, &mut run) {
            return None;
        }
        // Strictly newer: an entry of the tombstone's own sequence number is not covered.
        let newest = core.stripes.largest_point().min(self.sequence);
        (run.sequence > newest || planted(Bug::RunHidesNewerEntries)).then_some(run)
    }

    /// The last stored entry of the key in front.
    fn prev_key<'a, C: Comparator, O: Ordered<'a>>(
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut at = spot.at;
        for _ in 0..STEPS_MAX {
            match order.prev(at)? {
                Some(prev) if same_key(core, &prev, spot) => at = prev.at,
                prev => return Ok(prev),
            }
        }
        order.find_before(&Target::new(&core.comparator, spot.entry.key(), SequenceNumber::MAX))
    }

    /// The first stored entry of the next key.
    fn next_key<'a, C: Comparator, O: Ordered<'a>>(
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut at = spot.at;
        for _ in 0..STEPS_MAX {
            match order.next(at)? {
                Some(next) if same_key(core, &next, spot) => at = next.at,
                next => return Ok(next),
            }
        }
        Ok(order.find(&Target::behind_key(&core.comparator, spot.entry.key()))?.behind)
    }
}

#[expect(private_interfaces, private_bounds, reason = "sealed")]
impl sealed::Look for AtSnapshot {
    #[inline(always)]
    fn is_plain<C: Comparator>(&self, core: &Core<C>, way: Way) -> bool {
        way == Way::Forward && !core.may_have_ranges()
    }

    /// The first version of another key, visible and no tombstone.
    #[inline(always)]
    fn shows_neighbour<C: Comparator>(
        &self,
        core: &Core<C>,
        view: &View<'_>,
        from: &Stand,
        neighbour: &Verified<'_>,
    ) -> bool {
        neighbour.node().sequence() <= self.sequence
            && !neighbour.kind().is_point_delete()
            && from
                .parked
                .resume(view)
                .is_some_and(|from| core.comparator.compare(from.key(), neighbour.key()).is_ne())
    }

    #[inline(always)]
    fn search_from(_sequence: SequenceNumber) -> SequenceNumber {
        SequenceNumber::MAX
    }

    fn forward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut next = spot;
        let mut steps = 0;
        while let Some(spot) = next {
            let visible = spot.entry.node().sequence() <= self.sequence;
            if visible && self.shows(core, order, &spot)? {
                return Ok(Some(spot));
            }
            steps += 1;
            next = if visible {
                self.behind_hidden(core, order, &spot)?
            } else if steps % STEPS_MAX == 0 {
                order.find(&Target::new(&core.comparator, spot.entry.key(), self.sequence))?.behind
            } else {
                order.next(spot.at)?
            };
            next = moved_on(core, order, &spot, next, Ordering::Greater)?;
        }
        Ok(None)
    }

    fn backward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let mut next = spot;
        while let Some(spot) = next {
            // The stored entry is the oldest version of its key: it is the newest visible one if the one in front of
            // it belongs to another key or is too new.
            let before = order.prev(spot.at)?;
            let alone = before.is_none_or(|before| {
                !same_key(core, &before, &spot) || before.entry.node().sequence() > self.sequence
            });
            let visible = if alone {
                Some(spot).filter(|spot| spot.entry.node().sequence() <= self.sequence)
            } else {
                self.newest(core, order, &spot)?
            };
            if let Some(visible) = visible
                && self.shows(core, order, &visible)?
            {
                return Ok(Some(visible));
            }
            next = match visible {
                Some(hidden) => self.before_hidden(core, order, &hidden)?,
                None => Self::prev_key(core, order, &spot)?,
            };
            next = moved_on(core, order, &spot, next, Ordering::Less)?;
        }
        Ok(None)
    }

    fn behind<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let from = from.spot(order.view())?;
        moved_on(core, order, &from, Self::next_key(core, order, &from)?, Ordering::Greater)
    }

    fn before<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let from = from.spot(order.view())?;
        moved_on(core, order, &from, Self::prev_key(core, order, &from)?, Ordering::Less)
    }

    fn behind_hole<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        Self::next_key(core, order, &spot)
    }
}
