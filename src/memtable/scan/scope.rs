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

use crate::comparator::{KeyComparator, KeyOrder};
use crate::error::{Corruption, Place};
use crate::integrity::options::OrderChecks;
use crate::key::{Direction, SequenceNumber, Target};
use crate::memtable::core::Core;
use crate::memtable::lookup::accelerators::Event;
use crate::memtable::lookup::filter::Answer;
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, prefix_bounds};
use crate::memtable::scan::visibility::{Visible, no_way};
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::iterate::Parked;
use crate::memtable::skiplist::node::{Node, Verified};
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Course, Gap, Search};

/// The place of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    Nowhere,
    At(Parked),
    /// In the last gap.
    Gap,
}

/// Which entries a walk may show.
pub(crate) struct Scope {
    pub(crate) visibility: Visible,
    /// The table's checked values as of the last seek.
    kept: Option<(Frame, Course)>,
    bounds: ScanBounds,
    /// What all keys shown start with, in prefix mode.
    prefix: Option<Box<[u8]>>,
}

/// Where a move ended: on an entry, at an end, in a gap, or at a damaged control block.
pub(super) type Arrival = Result<Result<Option<Parked>, Gap>, Corruption>;

/// Where a move ended: on an entry, at an end, or in a gap.
type Outcome<'a> = Result<Option<Verified<'a>>, Gap>;

/// Converts an entry to what a walk keeps of it.
#[inline(always)]
fn park(entry: Option<Verified<'_>>) -> Option<Parked> {
    entry.as_ref().map(Parked::new)
}

/// Whether a backward step from `near`, the first entry beyond a gap, found a later entry: the walk has been there, and
/// the gap was reported.
#[cold]
fn leads_back<'a>(core: &Core, search: &Search<'a>, near: &Verified<'a>, found: &Outcome<'a>) -> bool {
    let bound = ScanBound::just_after(near.node());
    let bound = bound.target(&core.comparator);
    let is_after = |node: &Node<'_>| !node.order(&core.comparator, &bound).is_lt();
    match found {
        // Versions of the key before the gap are too new, and what could be seen may have stood in the gap, or in one
        // after it.
        Err(gap) if gap.after == search.sentinel => gap.before != search.sentinel,
        Err(gap) => {
            gap.before == near.offset()
                || matches!(search.verified(gap.after), Ok(Some(entry)) if is_after(entry.node()))
        }
        // The version that could be seen stands after the gap.
        Ok(shown) => shown.is_some_and(|shown| is_after(shown.node())),
    }
}

impl Scope {
    /// Everything.
    pub(super) fn new(visibility: Visible) -> Self {
        Scope { visibility, kept: None, bounds: ScanBounds::default(), prefix: None }
    }

    /// Replaces the bounds, or the prefix.
    pub(super) fn set_bounds(&mut self, bounds: ScanBounds) {
        (self.bounds, self.prefix) = (bounds, None);
    }

    /// Replaces the bounds, or the prefix, by this prefix.
    pub(super) fn set_prefix(&mut self, comparator: &KeyComparator, prefix: &[u8]) {
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

    /// Looks at the control block again.
    pub(super) fn refresh(&mut self, core: &Core) -> Result<(), Corruption> {
        let search = core.point_search()?;
        self.kept = Some((search.view.frame, search.course));
        Ok(())
    }

    /// The table's list, opened with the values kept from the last seek, if there was one.
    #[inline(always)]
    pub(super) fn list<'a>(&self, core: &'a Core) -> Option<Search<'a>> {
        let (frame, course) = self.kept.as_ref()?;
        let view = frame.on(&core.arena)?;
        Some(Search { view, comparator: &core.comparator, course: *course })
    }

    /// The table's list, opened with the values kept from the last seek, or anew.
    #[inline]
    pub(super) fn search<'a>(&self, core: &'a Core) -> Result<Search<'a>, Corruption> {
        self.list(core).map_or_else(|| core.point_search(), Ok)
    }

    /// The first entry shown at or after a position, or the last one before it, inside the bounds.
    pub(super) fn arrive(
        &self,
        core: &Core,
        way: Direction,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Arrival {
        let search = self.search(core)?;
        if let Some(prefix) = &self.prefix
            && core.accelerators.may_start_with(&search.view, prefix) == Answer::Absent
        {
            core.accelerators.count(Event::FilterNegative, 1);
            return Ok(Ok(None));
        }
        Ok(self.arrive_in(core, &search, way, target, read_ahead, hidden).map(park))
    }

    fn arrive_in<'a>(
        &self,
        core: &'a Core,
        search: &Search<'a>,
        way: Direction,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        // A walk that would begin outside its near bound begins at the bound, because damage outside does not concern
        // it.
        let outside = if way == Direction::Forward { Ordering::Less } else { Ordering::Greater };
        let bound = self.near(way).map(|scan_bound| scan_bound.target(&core.comparator));
        let bound = bound.as_ref().filter(|bound| target.order(&core.comparator, bound) == outside);
        let target = bound.unwrap_or(target);
        let entry = match way {
            Direction::Forward => search.find_ahead(target, read_ahead)?,
            Direction::Backward => search.find_before(target)?,
        };
        self.show(core, search, way, entry, hidden)
    }

    /// This entry, or, if it lies before the lower bound, the first one after it.
    pub(super) fn after_lower<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: Verified<'a>,
    ) -> Outcome<'a> {
        let Some(bound) = self.near(Direction::Forward) else { return Ok(Some(entry)) };
        let bound = bound.target(&core.comparator);
        let is_before = entry.node().order(&core.comparator, &bound).is_lt();
        if is_before { Ok(search.find_at_or_after(&bound)?) } else { Ok(Some(entry)) }
    }

    /// The bound at which a walk in this direction begins.
    #[inline(always)]
    pub(super) fn near(&self, way: Direction) -> Option<&ScanBound> {
        match way {
            Direction::Forward => self.bounds.lower.as_ref(),
            Direction::Backward => self.bounds.upper.as_ref(),
        }
    }

    /// The first entry from a stored one on that the visibility shows, inside the far bound.
    #[inline]
    fn show<'a>(
        &self,
        core: &'a Core,
        search: &Search<'a>,
        way: Direction,
        entry: Option<Verified<'a>>,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let (entry, far) = match way {
            Direction::Forward => {
                (self.visibility.forward(core, search, entry, hidden)?, self.bounds.upper.as_ref())
            }
            Direction::Backward => {
                (self.visibility.backward(core, search, entry, hidden)?, self.bounds.lower.as_ref())
            }
        };
        let (Some(entry), Some(far)) = (entry, far) else { return Ok(entry) };
        Ok(self.is_inside(core, entry, far, way).then_some(entry))
    }

    /// A step in a list from an entry to the adjacent one, if the two entries alone show that it is visible. `None`
    /// in all other cases, which `step` handles.
    #[inline(always)]
    pub(super) fn step_fast<'a>(
        &self,
        core: &'a Core,
        state: &State,
        way: Direction,
        read_ahead: &mut ReadAhead,
    ) -> Option<Verified<'a>> {
        let State::At(stand) = state else { return None };
        if !self.visibility.is_plain(core, way) {
            return None;
        }
        match &self.visibility {
            Visible::All => self.step_adjacent(core, stand, way, read_ahead, |_| true),
            Visible::At(snapshot) => {
                let frame = self.frame()?;
                self.step_adjacent(core, stand, way, read_ahead, |entry| {
                    snapshot.shows_neighbour(core, frame, stand, entry)
                })
            }
        }
    }

    /// Nothing that is called here takes the search or a reference to the entry, so that both stay in registers.
    #[inline(always)]
    fn step_adjacent<'a>(
        &self,
        core: &'a Core,
        stand: &Parked,
        way: Direction,
        read_ahead: &mut ReadAhead,
        shows: impl Fn(&Verified<'_>) -> bool,
    ) -> Option<Verified<'a>> {
        let search = self.list(core)?;
        let (entry, far) = match way {
            Direction::Forward => (search.try_next(stand.offset())?, &self.bounds.upper),
            Direction::Backward => (search.try_prev(stand.offset())?, &self.bounds.lower),
        };
        let to = entry.node().offset();
        if search.look_on(read_ahead, stand.offset(), to) {
            self.read_on(core, read_ahead, to, way);
        }
        let is_next = shows(&entry)
            && far.as_ref().is_none_or(|far| self.is_inside(core, entry, far, way))
            && (search.order_checks == OrderChecks::Off || self.are_in_order(core, stand.offset(), to, way));
        is_next.then_some(entry)
    }

    /// Whether a step in this direction between two nodes of the list keeps their order.
    #[inline(never)]
    fn are_in_order(&self, core: &Core, at: u32, to: u32, way: Direction) -> bool {
        let (left, right) = if way == Direction::Forward { (at, to) } else { (to, at) };
        self.list(core).is_some_and(|search| search.are_in_order(left, right))
    }

    /// Whether an entry lies before the bound at which a walk in this direction ends.
    #[inline(never)]
    fn is_inside(&self, core: &Core, entry: Verified<'_>, far: &ScanBound, way: Direction) -> bool {
        let in_front = entry.node().order(&core.comparator, &far.target(&core.comparator)).is_lt();
        in_front == (way == Direction::Forward)
    }

    /// Moves the read-ahead, which is due, after a step to a node.
    #[inline(never)]
    fn read_on(&self, core: &Core, read_ahead: &mut ReadAhead, to: u32, way: Direction) {
        let Some(search) = self.list(core) else { return };
        match way {
            Direction::Forward => search.read_on(read_ahead, to),
            Direction::Backward => search.read_back(read_ahead, to),
        }
    }

    /// Any step, from the place of a walk and the gap that it reported last.
    #[inline]
    pub(super) fn step(
        &self,
        core: &Core,
        state: &State,
        reported: Option<&ReportedGap>,
        way: Direction,
        read_ahead: &mut ReadAhead,
        hidden: &mut u64,
    ) -> Arrival {
        match (state, reported) {
            (State::At(stand), _) => match self.list(core) {
                Some(search) => {
                    let outcome = self.step_from(core, &search, way, stand, hidden);
                    if let Ok(Some(to)) = &outcome
                        && search.look_on(read_ahead, stand.offset(), to.offset())
                    {
                        self.read_on(core, read_ahead, to.offset(), way);
                    }
                    Ok(outcome.map(park))
                }
                None => Ok(self.step_from(core, &core.point_search()?, way, stand, hidden).map(park)),
            },
            (State::Gap, Some(reported)) => {
                Ok(self.step_over_gap(core, &self.search(core)?, way, reported, hidden).map(park))
            }
            (State::Nowhere | State::Gap, _) => Ok(Ok(None)),
        }
    }

    #[inline(never)]
    fn step_from<'a>(
        &self,
        core: &'a Core,
        search: &Search<'a>,
        way: Direction,
        from: &Parked,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let next = self.visibility.beyond(core, search, from, way, hidden)?;
        self.show(core, search, way, next, hidden)
    }

    /// The first entry from `entry` on that is inside the near bound. Gaps outside it are passed.
    #[cold]
    fn first_inside<'a>(
        &self,
        core: &'a Core,
        search: &Search<'a>,
        way: Direction,
        mut entry: Verified<'a>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let Some(scan_bound) = self.near(way) else { return Ok(Some(entry)) };
        let scan_bound = scan_bound.target(&core.comparator);
        loop {
            let in_front = entry.node().order(&core.comparator, &scan_bound).is_lt();
            if in_front == (way == Direction::Backward) {
                return Ok(Some(entry));
            }
            let next = match way {
                Direction::Forward => search.next(entry.offset())?,
                Direction::Backward => search.prev(entry.offset())?,
            };
            let Some(next) = next else { return Ok(None) };
            entry = next;
        }
    }

    /// Goes on at the far side of a gap, strictly beyond it (WALK-1).
    #[cold]
    fn step_over_gap<'a>(
        &self,
        core: &'a Core,
        search: &Search<'a>,
        way: Direction,
        reported: &ReportedGap,
        hidden: &mut u64,
    ) -> Outcome<'a> {
        let gap = reported.gap;
        let at = if way == Direction::Forward { gap.after } else { gap.before };
        let entry = match search.verified(at) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            // The far side of the gap was damaged since it was reported, so the walk goes on along its links.
            Err(corruption) => return Err(search.gap_at(at, corruption)),
        };
        if gap.before == gap.after {
            return self.step_from(core, search, way, &Parked::new(&entry), hidden);
        }
        if !reported.is_passed_at(&core.comparator, way, &entry) {
            let corruption = Corruption::new(Place::Order, gap.corruption.offset, u64::from(at), 0);
            return Err(no_way(search, corruption));
        }
        let entry = match self.first_inside(core, search, way, entry)? {
            Some(entry) if entry.offset() == at && way == Direction::Forward => {
                self.visibility.after_gap(core, search, gap, entry, hidden)?
            }
            entry => entry,
        };
        let shown = self.show(core, search, way, entry, hidden);
        let Some(near) =
            entry.filter(|near| way == Direction::Backward && leads_back(core, search, near, &shown))
        else {
            return shown;
        };
        let before = self.visibility.beyond(core, search, &Parked::new(&near), way, hidden)?;
        self.show(core, search, way, before, hidden)
    }

    /// How far a walk in this direction has come: it is done with everything before the returned position.
    #[cold]
    pub(super) fn progress(
        &self,
        core: &Core,
        state: &State,
        reported: Option<&ReportedGap>,
        way: Direction,
    ) -> Result<ScanBound, Corruption> {
        let far = || far_end(way);
        let stand = match (state, reported) {
            (State::At(stand), _) => stand,
            (State::Gap, Some(reported)) => return Ok(reported.far(way).cloned().unwrap_or_else(far)),
            (State::Nowhere | State::Gap, _) => return Ok(far()),
        };
        let search = self.search(core)?;
        if let Ok(entry) = stand.verify(&search.view) {
            return Ok(passed(&self.visibility, way, entry.key(), entry.node().sequence()));
        }
        // The entry was damaged since the walk came to it, so the walk has come to where its link leads.
        let (next, beside) = match way {
            Direction::Forward => {
                (search.next(stand.offset()), ScanBound::just_before as fn(&Node<'_>) -> ScanBound)
            }
            Direction::Backward => {
                (search.prev(stand.offset()), ScanBound::just_after as fn(&Node<'_>) -> ScanBound)
            }
        };
        match next {
            Ok(entry) => Ok(entry.map_or_else(far, |entry| beside(entry.node()))),
            // What its link leads to is damaged, too.
            Err(gap) => Err(gap.corruption),
        }
    }
}

// Reported gaps, with the positions of both sides in the walk's own memory.
//
// ```text
//   a@9   [ damaged ]   c@4
//       begin         end          scan bounds: whatever becomes of a and c, the walk knows what it has reported
// ```
// Any thread.

/// A gap that was reported, and the positions where it begins and ends. A position is missing if the entry beside the
/// gap no longer verified.
#[derive(Clone)]
pub(crate) struct ReportedGap {
    pub(crate) gap: Gap,
    begin: Option<ScanBound>,
    end: Option<ScanBound>,
}

/// The position from which a walk goes on after it has shown an entry.
#[inline]
pub(crate) fn passed(visible: &Visible, way: Direction, key: &[u8], sequence: SequenceNumber) -> ScanBound {
    let (newest, oldest) = visible.extent(sequence);
    if way == Direction::Forward { ScanBound::after(key, oldest) } else { ScanBound::before(key, newest) }
}

/// The end of the table for a walk in this direction.
pub(crate) fn far_end(way: Direction) -> ScanBound {
    if way == Direction::Forward { ScanBound::end() } else { ScanBound::start() }
}

impl ReportedGap {
    /// A gap with the positions of the entries beside it, as far as these verify.
    #[cold]
    pub(crate) fn around(search: Option<&Search<'_>>, gap: Gap) -> ReportedGap {
        let Some(search) = search else { return ReportedGap { gap, begin: None, end: None } };
        let side = |node: u32, end: fn() -> ScanBound, beside: &dyn Fn(&Verified<'_>) -> ScanBound| {
            search.verified(node).ok().map(|entry| entry.as_ref().map_or_else(end, beside))
        };
        // With one entry on both sides damage hides which range tombstone covers its key.
        let one = gap.before == gap.after;
        let begin = side(gap.before, ScanBound::start, &|entry| match one {
            true => ScanBound::before(entry.key(), SequenceNumber::MAX),
            false => ScanBound::just_after(entry.node()),
        });
        let end = side(gap.after, ScanBound::end, &|entry| match one {
            true => ScanBound::after(entry.key(), 0),
            false => ScanBound::just_before(entry.node()),
        });
        ReportedGap { gap, begin, end }
    }

    /// Whether an entry is beyond the gap, if the near side of the gap is known.
    pub(crate) fn is_passed_at(
        &self,
        comparator: &KeyComparator,
        way: Direction,
        entry: &Verified<'_>,
    ) -> bool {
        let is_before =
            |scan_bound: &ScanBound| entry.node().order(comparator, &scan_bound.target(comparator)).is_lt();
        match way {
            Direction::Forward => {
                self.begin.as_ref().is_none_or(|scan_bound| !is_before(&scan_bound.across()))
            }
            Direction::Backward => self.end.as_ref().is_none_or(|scan_bound| is_before(&scan_bound.across())),
        }
    }

    /// The far side of the gap for a walk in this direction.
    pub(crate) fn far(&self, way: Direction) -> Option<&ScanBound> {
        if way == Direction::Forward { self.end.as_ref() } else { self.begin.as_ref() }
    }

    /// The near side of the gap for a walk in this direction.
    pub(crate) fn near(&self, way: Direction) -> Option<&ScanBound> {
        if way == Direction::Forward { self.begin.as_ref() } else { self.end.as_ref() }
    }
}
