//! Scopes: which entries a walk may show, and where its steps lead.
//!
//! ```text
//!   arrive   position, or near bound -> find ----------------------------> show
//!   fast     entry ---------------> neighbour, if the two alone tell that it is shown
//!   step     entry ---------------> visibility ----> show
//!            gap ----------------> its far side, strictly beyond it -----> show
//!   show     visibility ----> inside the far bound
//! ```
//! A scope computes moves and `walk` makes them; see there for the invariants. A scope does not borrow its table,
//! which each call is given.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Corruption, Place};
use crate::integrity::options::OrderChecks;
use crate::key::{Comparator, KeyOrder, Target};
use crate::memtable::core::Core;
use crate::memtable::lookup::filter::Answer;
use crate::memtable::lookup::statistics::Event;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::{END, Ordered, Spot};
use crate::memtable::parts::vector::{Sorted, SortedSearch};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, prefix_bounds};
use crate::memtable::scan::gap::{ReportedGap, far_end, passed};
use crate::memtable::scan::runs::{Stand, Way};
use crate::memtable::scan::visibility::Visibility;
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::node::{Node, Verified};
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Course, Gap, Search};

/// The place of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    Nowhere,
    At(Stand),
    /// In the last gap.
    Gap,
}

/// The order of the table, as a walk keeps it between calls.
#[derive(Debug, Clone)]
enum Kept {
    List(Course),
    Sorted(Arc<Sorted>),
}

/// See the head of the file.
pub(crate) struct Scope<L> {
    pub(crate) visibility: L,
    /// The table's checked values as of the last seek.
    kept: Option<(Frame, Kept)>,
    bounds: ScanBounds,
    /// What all keys shown start with, in prefix mode.
    prefix: Option<Box<[u8]>>,
}

/// Where a move ended: on an entry, at an end, in a gap, or at a damaged control block.
pub(super) type Arrival = Result<Result<Option<Stand>, Gap>, Corruption>;

/// Where a move ended: on an entry, at an end, or in a gap.
type Outcome<'a> = Result<Option<Spot<'a>>, Gap>;

/// Converts an entry to what a walk keeps of it.
#[inline(always)]
fn park(spot: Option<Spot<'_>>) -> Option<Stand> {
    spot.as_ref().map(Stand::on)
}

/// Whether what a backward step found from the near entry on, the first one beyond a gap, lies after that entry: the
/// walk has been there, and the gap was reported.
#[cold]
fn leads_back<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    near: &Spot<'a>,
    found: &Outcome<'a>,
) -> bool {
    let bound = ScanBound::just_after(near.entry.node());
    let bound = bound.target(&core.comparator);
    let is_after = |node: &Node<'_>| !node.order(&core.comparator, &bound).is_lt();
    match found {
        // Versions of the key before the gap are too new, and what could be seen may have stood in the gap, or in one
        // after it.
        Err(gap) if gap.after == END => gap.before != END,
        Err(gap) => gap.before == near.at || order.entry(gap.after).is_ok_and(|entry| is_after(entry.node())),
        // The version that could be seen stands after the gap.
        Ok(shown) => shown.is_some_and(|shown| is_after(shown.entry.node())),
    }
}

impl<L: Visibility> Scope<L> {
    /// Everything.
    pub(super) fn new(visibility: L) -> Self {
        Scope { visibility, kept: None, bounds: ScanBounds::default(), prefix: None }
    }

    /// Replaces the bounds, or the prefix.
    pub(super) fn set_bounds(&mut self, bounds: ScanBounds) {
        (self.bounds, self.prefix) = (bounds, None);
    }

    /// Replaces the bounds, or the prefix, by this prefix.
    pub(super) fn set_prefix<C: Comparator>(&mut self, comparator: &C, prefix: &[u8]) {
        self.bounds = match comparator.key_order() {
            KeyOrder::Bytes => prefix_bounds(prefix),
            KeyOrder::Images | KeyOrder::Custom => ScanBounds::default(),
        };
        self.prefix = Some(prefix.into());
    }

    /// The prefix of all keys shown, in prefix mode.
    #[inline(always)]
    pub(super) fn prefix(&self) -> Option<&[u8]> {
        self.prefix.as_deref()
    }

    /// The table's checked values, if there was a seek.
    #[inline(always)]
    pub(super) fn frame(&self) -> Option<&Frame> {
        self.kept.as_ref().map(|(frame, _)| frame)
    }

    /// Whether this walk has a sorted copy of its own.
    pub(super) fn has_sorted(&self) -> bool {
        matches!(self.kept, Some((_, Kept::Sorted(_))))
    }

    /// Looks at the control block again.
    pub(super) fn refresh<C: Comparator>(&mut self, core: &Core<C>) -> Result<(), Corruption> {
        self.kept = Some(match core.order(None)? {
            Order::List(search) => (search.view.frame, Kept::List(search.course)),
            Order::Sorted(search) => (search.view.frame, Kept::Sorted(search.sorted)),
        });
        Ok(())
    }

    /// Takes over the sorted copy of another walk, if it has one, so that both meet the same gaps.
    pub(super) fn share_order(&mut self, other: &Self) {
        if let Some((frame, Kept::Sorted(sorted))) = &other.kept {
            self.kept = Some((*frame, Kept::Sorted(Arc::clone(sorted))));
        }
    }

    /// The table's list, if it is kept as one, opened with the values kept from the last seek.
    #[inline(always)]
    pub(super) fn list<'a, C: Comparator>(&self, core: &'a Core<C>) -> Option<Search<'a, C>> {
        let Some((frame, Kept::List(course))) = &self.kept else { return None };
        let view = frame.on(&core.arena)?;
        Some(Search { view, comparator: &core.comparator, course: *course })
    }

    /// The table's order, opened with the values kept from the last seek.
    #[inline]
    pub(super) fn order<'a, C: Comparator>(&self, core: &'a Core<C>) -> Result<Order<'a, C>, Corruption> {
        if let Some(search) = self.list(core) {
            return Ok(Order::List(search));
        }
        let Some((frame, Kept::Sorted(sorted))) = &self.kept else { return core.order(None) };
        let Some(view) = frame.on(&core.arena) else { return core.order(None) };
        let (comparator, sorted) = (&core.comparator, Arc::clone(sorted));
        Ok(Order::Sorted(SortedSearch { view, comparator, sorted }))
    }

    /// The first entry shown at or after a position, or the last one before it, inside the bounds.
    pub(super) fn arrive<C: Comparator>(
        &self,
        core: &Core<C>,
        way: Way,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Arrival {
        let order = self.order(core)?;
        if let Some(prefix) = &self.prefix
            && core.accelerators.may_start_with(order.view(), prefix) == Answer::Absent
        {
            core.accelerators.count(Event::FilterNegative, 1);
            return Ok(Ok(None));
        }
        Ok(self.arrive_in(core, &order, way, target, read_ahead, hidden).map(park))
    }

    fn arrive_in<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &'a Core<C>,
        order: &O,
        way: Way,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        // A walk that would begin outside its near bound begins at the bound, because damage outside does not concern
        // it.
        let outside = if way == Way::Forward { Ordering::Less } else { Ordering::Greater };
        let bound = self.near(way).map(|scan_bound| scan_bound.target(&core.comparator));
        let bound = bound.as_ref().filter(|bound| target.order(&core.comparator, bound) == outside);
        let target = bound.unwrap_or(target);
        let spot = match way {
            Way::Forward => order.seek(target, read_ahead)?.after,
            Way::Backward => order.find_before(target)?,
        };
        self.show(core, order, way, spot, hidden)
    }

    /// This entry, or, if it lies before the lower bound, the first one after it.
    pub(super) fn after_lower<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &Core<C>,
        order: &O,
        spot: Spot<'a>,
    ) -> Outcome<'a> {
        let Some(bound) = self.near(Way::Forward) else { return Ok(Some(spot)) };
        let bound = bound.target(&core.comparator);
        let is_before = spot.entry.node().order(&core.comparator, &bound).is_lt();
        if is_before { Ok(order.find(&bound)?.after) } else { Ok(Some(spot)) }
    }

    /// The bound at which a walk in this direction begins.
    #[inline(always)]
    pub(super) fn near(&self, way: Way) -> Option<&ScanBound> {
        match way {
            Way::Forward => self.bounds.lower.as_ref(),
            Way::Backward => self.bounds.upper.as_ref(),
        }
    }

    /// The first entry from a stored one on that the visibility shows, inside the far bound.
    #[inline(always)]
    fn show<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &'a Core<C>,
        order: &O,
        way: Way,
        spot: Option<Spot<'a>>,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let (spot, far) = match way {
            Way::Forward => (self.visibility.forward(core, order, spot, hidden)?, self.bounds.upper.as_ref()),
            Way::Backward => {
                (self.visibility.backward(core, order, spot, hidden)?, self.bounds.lower.as_ref())
            }
        };
        let (Some(spot), Some(far)) = (spot, far) else { return Ok(spot) };
        Ok(self.is_inside(core, spot.entry, far, way).then_some(spot))
    }

    /// A step in a list from an entry to the adjacent one, if the two entries alone show that it is visible. `None`
    /// in all other cases, which `step` handles.
    ///
    /// Nothing that is called here takes the search or a reference to the entry, so that both stay in registers.
    #[inline(always)]
    pub(super) fn step_fast<'a, C: Comparator>(
        &self,
        core: &'a Core<C>,
        state: &State,
        way: Way,
        read_ahead: &mut ReadAhead,
    ) -> Option<Verified<'a>> {
        let State::At(stand) = state else { return None };
        if !self.visibility.is_plain(core, way) {
            return None;
        }
        let search = self.list(core)?;
        let (entry, far) = match way {
            Way::Forward => (search.try_next(stand.at)?, &self.bounds.upper),
            Way::Backward => (search.try_prev(stand.at)?, &self.bounds.lower),
        };
        let to = entry.node().offset();
        if search.look_on(read_ahead, stand.at, to) {
            self.read_on(core, read_ahead, to, way);
        }
        let is_next = self.visibility.shows_neighbour(core, self.frame()?, stand, &entry)
            && far.as_ref().is_none_or(|far| self.is_inside(core, entry, far, way))
            && (search.order_checks == OrderChecks::Off || self.are_in_order(core, stand.at, to, way));
        is_next.then_some(entry)
    }

    /// Whether a step in this direction between two nodes of the list keeps their order.
    #[inline(never)]
    fn are_in_order<C: Comparator>(&self, core: &Core<C>, at: u32, to: u32, way: Way) -> bool {
        let (left, right) = if way == Way::Forward { (at, to) } else { (to, at) };
        self.list(core).is_some_and(|search| search.are_in_order(left, right))
    }

    /// Whether an entry lies before the bound at which a walk in this direction ends.
    #[inline(never)]
    fn is_inside<C: Comparator>(
        &self,
        core: &Core<C>,
        entry: Verified<'_>,
        far: &ScanBound,
        way: Way,
    ) -> bool {
        let in_front = entry.node().order(&core.comparator, &far.target(&core.comparator)).is_lt();
        in_front == (way == Way::Forward)
    }

    /// Moves the read-ahead, which is due, after a step to a node.
    #[inline(never)]
    fn read_on<C: Comparator>(&self, core: &Core<C>, read_ahead: &mut ReadAhead, to: u32, way: Way) {
        let Some(search) = self.list(core) else { return };
        match way {
            Way::Forward => search.read_on(read_ahead, to),
            Way::Backward => search.read_back(read_ahead, to),
        }
    }

    /// Any step, from the place of a walk and the gap that it reported last.
    #[inline]
    pub(super) fn step<C: Comparator>(
        &self,
        core: &Core<C>,
        state: &State,
        reported: Option<&ReportedGap>,
        way: Way,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Arrival {
        match (state, reported) {
            (State::At(stand), _) => match self.list(core) {
                Some(search) => {
                    let outcome = self.step_from(core, &search, way, stand, hidden);
                    if let Ok(Some(to)) = &outcome
                        && search.look_on(read_ahead, stand.at, to.at)
                    {
                        self.read_on(core, read_ahead, to.at, way);
                    }
                    Ok(outcome.map(park))
                }
                None => Ok(self.step_from(core, &self.order(core)?, way, stand, hidden).map(park)),
            },
            (State::Gap, Some(reported)) => {
                Ok(self.step_over_gap(core, &self.order(core)?, way, reported, hidden).map(park))
            }
            (State::Nowhere | State::Gap, _) => Ok(Ok(None)),
        }
    }

    #[inline(always)]
    fn step_from<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &'a Core<C>,
        order: &O,
        way: Way,
        from: &Stand,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let next = match way {
            Way::Forward => self.visibility.after(core, order, from, hidden)?,
            Way::Backward => self.visibility.before(core, order, from, hidden)?,
        };
        self.show(core, order, way, next, hidden)
    }

    /// The first entry from `spot` on that is inside the near bound. Gaps outside it are passed.
    #[cold]
    fn first_inside<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &'a Core<C>,
        order: &O,
        way: Way,
        mut spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Gap> {
        let Some(scan_bound) = self.near(way) else { return Ok(Some(spot)) };
        let scan_bound = scan_bound.target(&core.comparator);
        loop {
            let in_front = spot.entry.node().order(&core.comparator, &scan_bound).is_lt();
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

    /// Goes on at the far side of a gap, strictly beyond it (WALK-1).
    #[cold]
    fn step_over_gap<'a, C: Comparator, O: Ordered<'a>>(
        &self,
        core: &'a Core<C>,
        order: &O,
        way: Way,
        reported: &ReportedGap,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let gap = reported.gap;
        let at = if way == Way::Forward { gap.after } else { gap.before };
        if at == END {
            return Ok(None);
        }
        let entry = match order.entry(at) {
            Ok(entry) => entry,
            // The far side of the gap was damaged since it was reported, so the walk goes on along its links.
            Err(corruption) => return Err(order.gap_at(at, corruption)),
        };
        let spot = Spot { at, entry };
        if gap.before == gap.after {
            return self.step_from(core, order, way, &Stand::on(&spot), hidden);
        }
        if !reported.is_passed_at(&core.comparator, way, &entry) {
            let corruption = Corruption::new(Place::Order, gap.corruption.offset, u64::from(at), 0);
            return Err(Gap { corruption, before: END, after: END });
        }
        let spot = match self.first_inside(core, order, way, spot)? {
            Some(spot) if spot.at == at && way == Way::Forward => {
                self.visibility.after_gap(core, order, gap, spot, hidden)?
            }
            spot => spot,
        };
        let shown = self.show(core, order, way, spot, hidden);
        let Some(near) = spot.filter(|near| way == Way::Backward && leads_back(core, order, near, &shown))
        else {
            return shown;
        };
        let before = self.visibility.before(core, order, &Stand::on(&near), hidden)?;
        self.show(core, order, way, before, hidden)
    }

    /// How far a walk in this direction has come: it is done with everything before the returned position.
    #[cold]
    pub(super) fn progress<C: Comparator>(
        &self,
        core: &Core<C>,
        state: &State,
        reported: Option<&ReportedGap>,
        way: Way,
    ) -> Result<ScanBound, Corruption> {
        let far = || far_end(way);
        let stand = match (state, reported) {
            (State::At(stand), _) => stand,
            (State::Gap, Some(reported)) => return Ok(reported.far(way).cloned().unwrap_or_else(far)),
            (State::Nowhere | State::Gap, _) => return Ok(far()),
        };
        let order = self.order(core)?;
        if let Ok(entry) = stand.parked.verify(order.view()) {
            return Ok(passed::<L>(way, entry.key(), entry.node().sequence()));
        }
        // The entry was damaged since the walk came to it, so the walk has come to where its link leads.
        let (next, beside) = match way {
            Way::Forward => (order.next(stand.at), ScanBound::just_before as fn(&Node<'_>) -> ScanBound),
            Way::Backward => (order.prev(stand.at), ScanBound::just_after as fn(&Node<'_>) -> ScanBound),
        };
        match next {
            Ok(spot) => Ok(spot.map_or_else(far, |spot| beside(spot.entry.node()))),
            // The entry that its link leads to is damaged, too: the walk has passed the intact entry on the near
            // side.
            Err(gap) => {
                let gap = ReportedGap::around(Some(&order), gap);
                gap.near(way).cloned().ok_or(gap.gap.corruption)
            }
        }
    }
}
