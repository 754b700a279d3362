//! Which entries a scan shows: all of them as stored, or what a snapshot sees.
//!
//! ```text
//!   stored      a@9  a@5  b@7d  c@4 c@2          d = delete, and a range delete [c, d) @ 3
//!   raw         a@9  a@5  b@7d  c@4 c@2
//!   snapshot 8       a@5        c@4              newest version <= 8 of each key that is not deleted
//! ```
//! * VISIBILITY-1: raw scans show the first of equals only (policy `Replace`), in both directions.
//! * VISIBILITY-2: a gap may have held a newer version of the entry after it, or what replaced that entry. The entry
//!   is shown if every damaged entry of the gap is proved to have another key (or, of equals, another sequence
//!   number), as a point read does it; else it stays hidden, and the error that was reported stands for it.
//! * VISIBILITY-3: a run of entries that are not shown, of one key or equals, costs a few steps and then one search.
//! * VISIBILITY-4: what a step asks of the entry that it leaves, it verifies again; whether keys differ is told by
//!   their hashes, which the walk keeps in its own memory.
//! * VISIBILITY-5: under a comparator that contradicts itself a walk ends as well: it takes no more steps than
//!   `StepLimit` allows.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::key::{Comparator, KeyEquality, SequenceNumber, Target};
use crate::memtable::core::Core;
use crate::memtable::parts::representation::{Ordered, Spot};
use crate::memtable::scan::runs::{
    Run, STEPS_MAX, Stand, StepLimit, Way, first_of_run, moved_on, no_way, past_gap, past_run, same_key,
};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::Gap;
use crate::planted::{Bug, planted};
use crate::tombstone::index::live::CoveringRun;

/// Decides which entries a scan shows.
pub trait Visibility: sealed::Look {}

pub(crate) mod sealed {
    use super::{Comparator, Core, Gap, Ordered, SequenceNumber, Spot, Stand, Verified, View, Way};

    /// The workings of a visibility.
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

        /// The newest and the oldest version of its key that an entry shown stands for.
        fn extent(sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber);

        /// The first entry shown at or after a stored one, which is the first of its key unless all versions are shown.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn forward<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            spot: Option<Spot<'a>>,
        ) -> Result<Option<Spot<'a>>, Gap>;

        /// The last entry shown at or before a stored one.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn backward<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            spot: Option<Spot<'a>>,
        ) -> Result<Option<Spot<'a>>, Gap>;

        /// The first stored entry that could be shown after one that was.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn after<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            from: &Stand,
        ) -> Result<Option<Spot<'a>>, Gap>;

        /// The last stored entry that could be shown before one that was.
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn before<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            from: &Stand,
        ) -> Result<Option<Spot<'a>>, Gap>;

        /// The first stored entry to go on with after a gap that ends at `spot` (VISIBILITY-2).
        #[expect(private_interfaces, private_bounds, reason = "sealed")]
        fn after_gap<'a, C: Comparator, O: Ordered<'a>>(
            &self,
            core: &Core<C>,
            order: &O,
            gap: Gap,
            spot: Spot<'a>,
        ) -> Result<Option<Spot<'a>>, Gap>;
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

impl Visibility for Raw {}
impl Visibility for AtSnapshot {}

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
    fn extent(sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber) {
        (sequence, sequence)
    }

    #[inline(always)]
    fn forward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        _core: &Core<C>,
        _order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        Ok(spot)
    }

    #[inline]
    fn backward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        match spot {
            Some(spot) if replaces(core) => first_of_run(core, order, spot, Run::Equals).map(Some),
            spot => Ok(spot),
        }
    }

    #[inline(always)]
    fn after<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Gap> {
        if replaces(core) {
            return past_run(core, order, from, Run::Equals, Way::Forward);
        }
        order.next(from.at)
    }

    #[inline(always)]
    fn before<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Gap> {
        if replaces(core) {
            // An equal entry before this one was inserted after this one was shown.
            return past_run(core, order, from, Run::Equals, Way::Backward);
        }
        order.prev(from.at)
    }

    fn after_gap<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        gap: Gap,
        spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let shown = !replaces(core) || planted(Bug::GapShowsReplaced);
        if shown || past_gap(core, order, gap, &spot, Run::Equals).is_ok() {
            return Ok(Some(spot));
        }
        past_run(core, order, &Stand::on(&spot), Run::Equals, Way::Forward)
    }
}

/// Whether entries may have equals that they replaced.
#[inline(always)]
fn replaces<C>(core: &Core<C>) -> bool {
    core.options.duplicates == DuplicatePolicy::Replace
}

impl AtSnapshot {
    /// The newest visible entry of the key that the stored entry `spot` belongs to.
    fn newest<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let target = Target::new(&core.comparator, spot.entry.key(), self.sequence);
        let after = match order.find(&target) {
            Ok(around) => around.after,
            Err(gap) => past_gap(core, order, gap, spot, Run::Key)?,
        };
        Ok(after.filter(|found| same_key(core, found, spot)))
    }

    /// Whether the stored entry `spot`, the oldest version of its key, is the only one to look at: the one before it
    /// belongs to another key or is too new. Before a gap it takes a search to tell.
    fn is_alone<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<bool, Gap> {
        match order.prev(spot.at) {
            Ok(Some(before)) => Ok(before.entry.node().sequence() > self.sequence
                || !Run::Key.holds(core, order, &Stand::on(spot), &before)?),
            Ok(None) => Ok(true),
            Err(_) => Ok(false),
        }
    }

    /// Whether a visible entry is shown: not a tombstone, not covered by one.
    fn shows<C: Comparator>(&self, core: &Core<C>, spot: &Spot<'_>) -> Result<bool, Gap> {
        if spot.entry.kind().is_point_delete() {
            return Ok(false);
        }
        let floor = Some(spot.entry.node().sequence());
        match core.covering(spot.entry.key(), self.sequence, floor) {
            Ok(cover) => Ok(cover.is_none()),
            Err(corruption) => Err(Gap { corruption, before: spot.at, after: spot.at }),
        }
    }

    /// The first stored entry that may be shown after a hidden key: after the whole run if its tombstone is newer
    /// than every entry that the snapshot sees, else after the key.
    fn behind_hidden<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        match self.dead_run(core, spot) {
            Some(run) => Ok(order.find(&Target::new(&core.comparator, &run.end, SequenceNumber::MAX))?.after),
            None => past_run(core, order, &Stand::on(spot), Run::Key, Way::Forward),
        }
    }

    /// Passes what is hidden in the other direction.
    fn before_hidden<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: &Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        match self.dead_run(core, spot) {
            Some(run) => order.find_before(&Target::new(&core.comparator, &run.start, SequenceNumber::MAX)),
            None => past_run(core, order, &Stand::on(spot), Run::Key, Way::Backward),
        }
    }

    /// The run around a hidden key in which nothing can be shown.
    fn dead_run<C: Comparator>(&self, core: &Core<C>, spot: &Spot<'_>) -> Option<CoveringRun> {
        let mut run = CoveringRun::default();
        if !core.tombstones.may_be_any(&core.arena)
            || !core.tombstones.covering_run(core.ground(), spot.entry.key(), self.sequence, &mut run)
        {
            return None;
        }
        // Strictly newer: an entry of the tombstone's own sequence number is not covered.
        let newest = core.shards.largest_point().min(self.sequence);
        (run.sequence > newest).then_some(run)
    }
}

#[expect(private_interfaces, private_bounds, reason = "sealed")]
impl sealed::Look for AtSnapshot {
    #[inline(always)]
    fn is_plain<C: Comparator>(&self, core: &Core<C>, way: Way) -> bool {
        way == Way::Forward && !core.tombstones.may_be_any(&core.arena)
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
        let other_key = || {
            if C::EQUALITY == KeyEquality::Bytes && from.parked.has_other_key(neighbour) {
                return true;
            }
            let from = from.parked.verify(view);
            from.is_ok_and(|from| core.comparator.compare(from.key(), neighbour.key()).is_ne())
        };
        neighbour.node().sequence() <= self.sequence && !neighbour.kind().is_point_delete() && other_key()
    }

    #[inline(always)]
    fn search_from(_sequence: SequenceNumber) -> SequenceNumber {
        SequenceNumber::MAX
    }

    #[inline(always)]
    fn extent(_sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber) {
        (SequenceNumber::MAX, 0)
    }

    fn forward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let (mut next, mut limit) = (spot, StepLimit::default());
        let mut steps = 0;
        while let Some(spot) = next {
            let visible = spot.entry.node().sequence() <= self.sequence;
            if visible && self.shows(core, &spot)? {
                return Ok(Some(spot));
            }
            limit.count(core).map_err(no_way)?;
            steps += 1;
            next = if visible {
                self.behind_hidden(core, order, &spot)?
            } else if steps % STEPS_MAX == 0 {
                order.find(&Target::new(&core.comparator, spot.entry.key(), self.sequence))?.after
            } else {
                order.next(spot.at)?
            };
            next = moved_on(core, order, &Stand::on(&spot), next, Ordering::Greater)?;
        }
        Ok(None)
    }

    fn backward<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Option<Spot<'a>>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let (mut next, mut limit) = (spot, StepLimit::default());
        while let Some(spot) = next {
            let alone = self.is_alone(core, order, &spot)?;
            let visible = if alone {
                Some(spot).filter(|spot| spot.entry.node().sequence() <= self.sequence)
            } else {
                self.newest(core, order, &spot)?
            };
            if let Some(visible) = visible
                && self.shows(core, &visible)?
            {
                return Ok(Some(visible));
            }
            limit.count(core).map_err(no_way)?;
            next = match visible {
                Some(hidden) => self.before_hidden(core, order, &hidden)?,
                None => past_run(core, order, &Stand::on(&spot), Run::Key, Way::Backward)?,
            };
            next = moved_on(core, order, &Stand::on(&spot), next, Ordering::Less)?;
        }
        Ok(None)
    }

    fn after<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let next = past_run(core, order, from, Run::Key, Way::Forward)?;
        moved_on(core, order, from, next, Ordering::Greater)
    }

    fn before<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        from: &Stand,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let prev = past_run(core, order, from, Run::Key, Way::Backward)?;
        moved_on(core, order, from, prev, Ordering::Less)
    }

    fn after_gap<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        gap: Gap,
        spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let shown = planted(Bug::GapShowsReplaced);
        if shown || past_gap(core, order, gap, &spot, Run::Key).is_ok() {
            return Ok(Some(spot));
        }
        past_run(core, order, &Stand::on(&spot), Run::Key, Way::Forward)
    }
}
