//! The steps of a cursor: where a move leads, from an entry, a position or a hole.
//!
//! ```text
//!   arrive   position ------------> find ----> inside the near bound ----> show
//!   glide    entry ---------------> neighbour, if the two alone tell that it is shown
//!   step     entry ---------------> lens ----> show
//!            hole ----------------> its far side, strictly beyond it -----> show
//!   show     lens ----> inside the far bound
//! ```
//! Nothing here moves a cursor: `scan` does. Its promises are numbered there.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::edge::Edge;
use super::gap::{Gap, passed};
use super::handle::Handle;
use super::lens::Lens;
use super::runs::{Stand, Way};
use super::scan::{Arrival, Cursor, Kept, State};
use crate::error::{Corruption, Place};
use crate::key::Target;
use crate::memtable::filter::Answer;
use crate::memtable::order::Order;
use crate::memtable::representation::{END, Hole, Ordered, Spot};
use crate::memtable::skiplist::node::{Node, Verified};
use crate::memtable::skiplist::splice::Search;
use crate::memtable::skiplist::steps::Scout;
use crate::memtable::statistics::Event;
use crate::memtable::table::Core;
use crate::memtable::vector::SortedSearch;

/// Where a move ended: an entry, an end, or a hole.
type Outcome<'a> = Result<Option<Spot<'a>>, Hole>;

/// What a cursor keeps of an entry.
#[inline(always)]
fn park(spot: Option<Spot<'_>>) -> Option<Stand> {
    spot.as_ref().map(Stand::on)
}

impl<H: Handle, L: Lens> Cursor<H, L> {
    /// The table's list, if that is its order, through the values kept from the last seek.
    #[inline(always)]
    pub(super) fn list<'a>(&self, core: &'a Core<H::Order>) -> Option<Search<'a, H::Order>> {
        let Some((frame, Kept::List(course))) = &self.kept else { return None };
        let view = frame.on(&core.arena)?;
        Some(Search { view, comparator: &core.comparator, course: *course })
    }

    /// The table's order through the values kept from the last seek.
    #[inline]
    pub(super) fn order<'a>(&self, core: &'a Core<H::Order>) -> Result<Order<'a, H::Order>, Corruption> {
        if let Some(search) = self.list(core) {
            return Ok(Order::List(search));
        }
        let Some((frame, Kept::Sorted(sorted))) = &self.kept else { return core.order(None) };
        let Some(view) = frame.on(&core.arena) else { return core.order(None) };
        let (comparator, sorted) = (&core.comparator, Arc::clone(sorted));
        Ok(Order::Sorted(SortedSearch { view, comparator, sorted }))
    }

    /// The entry shown at or behind a position (or in front of it), inside the bounds.
    pub(super) fn arrive(&self, way: Way, target: &Target<'_>) -> Arrival {
        let core = self.handle.core();
        let order = self.order(core)?;
        if let Some(prefix) = &self.prefix
            && core.aids.may_start_with(order.view(), prefix) == Answer::Absent
        {
            core.aids.count(Event::FilterNegative, 1);
            return Ok(Ok(None));
        }
        Ok(self.arrive_in(core, &order, way, target).map(park))
    }

    fn arrive_in<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        target: &Target<'_>,
    ) -> Outcome<'a> {
        let comparator = &core.comparator;
        let spot = match way {
            Way::Forward => order.find(target)?.behind,
            Way::Backward => order.find_before(target)?,
        };
        // Outside the near bound: start at the bound instead.
        let bound = match way {
            Way::Forward => self.lower.as_ref(),
            Way::Backward => self.upper.as_ref(),
        };
        let spot = match (spot, bound) {
            (Some(spot), Some(edge)) => {
                let edge = edge.target(comparator);
                let in_front = spot.entry.node().order(comparator, &edge).is_lt();
                match way {
                    Way::Forward if in_front => order.find(&edge)?.behind,
                    Way::Backward if !in_front => order.find_before(&edge)?,
                    _ => Some(spot),
                }
            }
            (spot, _) => spot,
        };
        self.show(core, order, way, spot)
    }

    /// What the lens shows from a stored entry on, inside the far bound.
    #[inline(always)]
    fn show<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        spot: Option<Spot<'a>>,
    ) -> Outcome<'a> {
        let (spot, far) = match way {
            Way::Forward => (self.lens.forward(core, order, spot)?, self.upper.as_ref()),
            Way::Backward => (self.lens.backward(core, order, spot)?, self.lower.as_ref()),
        };
        let (Some(spot), Some(edge)) = (spot, far) else { return Ok(spot) };
        let in_front = spot.entry.node().order(&core.comparator, &edge.target(&core.comparator)).is_lt();
        Ok((in_front == (way == Way::Forward)).then_some(spot))
    }

    /// A step where nothing has to be decided: in a list, from an entry to a neighbour that is shown. `None`: it is no such
    /// step, or it met something unusual; `step` decides.
    #[inline(always)]
    pub(super) fn glide<'a>(
        &self,
        core: &'a Core<H::Order>,
        way: Way,
        scout: &mut Scout,
    ) -> Option<Option<Verified<'a>>> {
        let State::At(stand) = &self.state else { return None };
        if !self.lens.is_plain(core, way) {
            return None;
        }
        let search = self.list(core)?;
        let (next, far) = match way {
            Way::Forward => (search.try_next(stand.at)?, &self.upper),
            Way::Backward => (search.try_prev(stand.at)?, &self.lower),
        };
        match (&next, way) {
            (Some(entry), Way::Forward) => search.look_ahead(scout, stand.at, entry.node().offset()),
            (Some(entry), Way::Backward) => search.look_back(stand.at, entry.node().offset()),
            _ => {}
        }
        if next.is_some_and(|entry| !self.lens.shows_neighbour(core, &search.view, stand, &entry)) {
            return None;
        }
        let (Some(entry), Some(edge)) = (next, far) else { return Some(next) };
        let in_front = entry.node().order(&core.comparator, &edge.target(&core.comparator)).is_lt();
        Some((in_front == (way == Way::Forward)).then_some(entry))
    }

    #[inline]
    pub(super) fn step(&self, core: &Core<H::Order>, way: Way, scout: &mut Scout) -> Arrival {
        match (&self.state, &self.gap) {
            (State::At(stand), _) => match self.list(core) {
                Some(search) => {
                    let outcome = self.step_from(core, &search, way, stand);
                    if let (Ok(Some(to)), Way::Forward) = (&outcome, way) {
                        search.look_ahead(scout, stand.at, to.at);
                    }
                    Ok(outcome.map(park))
                }
                None => Ok(self.step_from(core, &self.order(core)?, way, stand).map(park)),
            },
            (State::Hole, Some(gap)) => Ok(self.step_over_hole(core, &self.order(core)?, way, gap).map(park)),
            (State::Nowhere | State::Hole, _) => Ok(Ok(None)),
        }
    }

    #[inline(always)]
    fn step_from<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        from: &Stand,
    ) -> Outcome<'a> {
        let next = match way {
            Way::Forward => self.lens.behind(core, order, from)?,
            Way::Backward => self.lens.before(core, order, from)?,
        };
        self.show(core, order, way, next)
    }

    /// The first entry from `spot` on that is not outside the near bound: a hole may lie outside of it.
    #[cold]
    fn first_inside<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        mut spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let bound = match way {
            Way::Forward => self.lower.as_ref(),
            Way::Backward => self.upper.as_ref(),
        };
        let Some(edge) = bound else { return Ok(Some(spot)) };
        let edge = edge.target(&core.comparator);
        loop {
            let in_front = spot.entry.node().order(&core.comparator, &edge).is_lt();
            if in_front == (way == Way::Backward) {
                return Ok(Some(spot));
            }
            let next = match way {
                Way::Forward => order.next(spot.at)?,
                Way::Backward => order.prev(spot.at)?,
            };
            let Some(next) = next else { return Ok(None) };
            spot = next;
        }
    }

    /// Goes on at the far side of a hole, strictly beyond it (Q1).
    #[cold]
    fn step_over_hole<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        gap: &Gap,
    ) -> Outcome<'a> {
        let hole = gap.hole;
        let at = if way == Way::Forward { hole.behind } else { hole.before };
        if at == END {
            return Ok(None);
        }
        let entry = match order.entry(at) {
            Ok(entry) => entry,
            // The far side was damaged since then: on along its links.
            Err(corruption) => return Err(order.hole_at(at, corruption)),
        };
        let spot = Spot { at, entry };
        if hole.before == hole.behind {
            return self.step_from(core, order, way, &Stand::on(&spot));
        }
        if !gap.is_passed_at(&core.comparator, way, &entry) {
            let corruption = Corruption::new(Place::Order, hole.corruption.offset, u64::from(at), 0);
            return Err(Hole { corruption, before: END, behind: END });
        }
        let spot = match self.first_inside(core, order, way, spot)? {
            Some(spot) if spot.at == at && way == Way::Forward => {
                self.lens.behind_hole(core, order, hole, spot)?
            }
            spot => spot,
        };
        let near = spot.as_ref().map(Stand::on);
        match (self.show(core, order, way, spot), near) {
            // Its versions before the hole are too new, and what could be seen may have stood in the hole: that was reported.
            (Err(again), Some(near)) if way == Way::Backward && again.before == near.at => {
                let before = self.lens.before(core, order, &near)?;
                self.show(core, order, way, before)
            }
            (shown, _) => shown,
        }
    }

    /// How far a walk in this direction has come: all that lies on the near side of the edge is done.
    #[cold]
    pub(crate) fn progress(&self, way: Way) -> Result<Edge, Corruption> {
        let core = self.handle.core();
        let far = || if way == Way::Forward { Edge::end() } else { Edge::start() };
        let stand = match (&self.state, &self.gap) {
            (State::At(stand), _) => stand,
            (State::Hole, Some(gap)) => return Ok(gap.far(way).cloned().unwrap_or_else(far)),
            (State::Nowhere | State::Hole, _) => return Ok(far()),
        };
        let order = self.order(core)?;
        if let Ok(entry) = stand.parked.verify(order.view()) {
            return Ok(passed::<L>(way, entry.key(), entry.node().sequence()));
        }
        // Damaged since then: the walk has come to where its link leads.
        let (next, beside) = match way {
            Way::Forward => (order.next(stand.at), Edge::just_before as fn(&Node<'_>) -> Edge),
            Way::Backward => (order.prev(stand.at), Edge::just_after as fn(&Node<'_>) -> Edge),
        };
        match next {
            Ok(spot) => Ok(spot.map_or_else(far, |spot| beside(spot.entry.node()))),
            Err(hole) => Err(hole.corruption),
        }
    }
}
