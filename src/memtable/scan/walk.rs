//! Walks: a place in a table that moves both ways, without a borrow of the table.
//!
//! ```text
//!             seek, begin                 advance, go
//!   Nowhere ---------------------> At(entry) <------+
//!      ^                            |   |  damage   |  goes on strictly beyond the gap
//!      +----- ran off an end -------+   +--> Gap --+
//! ```
//! * WALK-1: a walk reports a gap once and keeps the positions of both its sides in its own memory; the next step
//!   goes on at the other side, strictly beyond what was reported.
//! * WALK-2: a walk that is not positioned has no entry, and steps do not move it. A damaged control block makes a
//!   walk so.
//! * WALK-3: a step never shows an entry twice; entries inserted after the walk are not shown, those before it may
//!   be.
//! * WALK-4: a call returns only what it has verified itself: a move the entry that it led to, `entry` the one that
//!   the walk is parked on. From the node that it leaves a step uses only the link, whose tag is bound to the node,
//!   and the key, which it verifies again where the key decides.
//! * WALK-5: however a comparator lies, a walk in one direction ends (`StepLimit`).
//!
//! Every call is given the table that the walk was made for. Cursors and ranges hold a walk together with its table,
//! which they borrow or share.
//!
//! One thread at a time moves a walk; tables may be written meanwhile. Steps are expected O(1), seeks O(log n).

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Corruption, Place, Result};
use crate::integrity::options::OrderChecks;
use crate::key::{Direction, KeyComparator, KeyOrder, Kind, SequenceNumber, Side, Target};
use crate::memtable::arena::arena::Frame;
use crate::memtable::arena::node::{Node, Verified};
use crate::memtable::core::Core;
use crate::memtable::lookup::accelerators::{Answer, Event};
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::{Operands, operands};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, prefix_bounds};
use crate::memtable::scan::visibility::{STEPS_MAX, StepLimit, Visible, no_way, resumed};
use crate::memtable::skiplist::iterate::Parked;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Course, Gap, Search};

/// The number of slow steps that a walk has taken in one direction.
#[derive(Debug, Clone, Copy)]
struct Heading {
    way: Direction,
    limit: StepLimit,
}

/// A place that moves both ways.
pub(crate) struct Walk {
    scope: Scope,
    state: State,
    reported: Option<Box<ReportedGap>>,
    heading: Heading,
    /// How far memory was prefetched.
    read_ahead: ReadAhead,
    /// The damage because of which the walk is not positioned.
    failed: Option<Box<Corruption>>,
    /// The position of a seek that met damage, until the walk has passed it.
    sought: Option<Box<ScanBound>>,
    /// Entries that the walk has passed without showing them.
    hidden: u64,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("visibility", &self.scope.visibility)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

impl Walk {
    pub(crate) fn new(visibility: Visible) -> Self {
        Walk {
            scope: Scope::new(visibility),
            state: State::Nowhere,
            reported: None,
            heading: Heading { way: Direction::Forward, limit: StepLimit::default() },
            read_ahead: ReadAhead::default(),
            failed: None,
            sought: None,
            hidden: 0,
        }
    }

    /// This walk between bounds.
    pub(crate) fn between(mut self, bounds: ScanBounds) -> Self {
        self.scope.set_bounds(bounds);
        self
    }

    /// Replaces the bounds. The walk is not positioned afterwards.
    pub(crate) fn set_bounds(&mut self, bounds: ScanBounds) {
        self.scope.set_bounds(bounds);
        self.leave();
    }

    /// Replaces the prefix. The walk is not positioned afterwards.
    pub(crate) fn set_prefix(&mut self, comparator: &KeyComparator, prefix: &[u8]) {
        self.scope.set_prefix(comparator, prefix);
        self.leave();
    }

    /// Makes the walk not positioned, without an error.
    pub(crate) fn leave(&mut self) {
        (self.state, self.failed, self.sought) = (State::Nowhere, None, None);
    }

    /// The error of the last move, if it met damage.
    pub(crate) fn status(&self) -> Result<()> {
        match (&self.state, &self.reported, &self.failed) {
            (State::Gap, Some(reported), _) => Err(reported.gap.corruption.into()),
            (State::Nowhere, _, Some(corruption)) => Err((**corruption).into()),
            _ => Ok(()),
        }
    }

    /// Whether the walk is on an entry.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.state, State::At(..))
    }

    /// The entry that the walk is on, verified again (WALK-4).
    pub(crate) fn entry<'a>(&self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let State::At(stand) = &self.state else { return Ok(None) };
        let Some(view) = self.scope.frame().and_then(|frame| frame.on(&core.arena)) else { return Ok(None) };
        Ok(Some(Entry::new(stand.verify(&view)?, &view)))
    }

    /// The entry that the walk is on, for calls that have just verified it.
    #[inline(always)]
    pub(crate) fn shown<'a>(&self, core: &'a Core) -> Option<Entry<'a>> {
        let State::At(stand) = &self.state else { return None };
        let view = self.scope.frame()?.on(&core.arena)?;
        stand.resume(&view).map(|entry| Entry::new(entry, &view))
    }

    /// Goes to the first entry shown at or after (`key`, `sequence`).
    pub(crate) fn seek_version<'a>(
        &mut self,
        core: &'a Core,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<Entry<'a>>> {
        let target = Target::new(&core.comparator, key, self.scope.visibility.search_from(sequence));
        let shown = match self.go_to(core, Direction::Forward, &target) {
            Ok(shown) => shown,
            Err(error) => {
                self.sought = Some(Box::new(ScanBound::before(key, sequence)));
                return Err(error);
            }
        };
        // The only version of a key that is shown may be before the position.
        let in_front = sequence < SequenceNumber::MAX
            && shown.is_some_and(|entry| {
                entry.sequence() > sequence && core.comparator.compare(entry.user_key(), key).is_eq()
            });
        if in_front { self.step(core, Direction::Forward) } else { Ok(shown) }
    }

    /// Goes to the first entry shown at or after a position, or to the last one before it.
    pub(crate) fn go_to<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        target: &Target<'_>,
    ) -> Result<Option<Entry<'a>>> {
        self.refresh(core)?;
        let (mut read_ahead, mut hidden) = (ReadAhead::default(), 0);
        let outcome = self.scope.arrive(core, way, target, &mut read_ahead, &mut hidden);
        self.read_ahead = read_ahead;
        self.pass_by(core, hidden);
        self.land(core, outcome)?;
        if !self.shows_all(core) {
            self.pass_others_by_steps(core, way)?;
        }
        Ok(self.shown(core))
    }

    /// Goes to the first entry of a walk in this direction, from a position or from the end of the table.
    pub(crate) fn begin<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        from: Option<&ScanBound>,
    ) -> Result<Option<Entry<'a>>> {
        let side = if way == Direction::Forward { Side::Start } else { Side::End };
        let target = from.map_or(Target::extreme(side), |from| from.target(&core.comparator));
        self.go_to(core, way, &target)
    }

    /// The next entry of a cursor, for one direction.
    #[inline]
    pub(crate) fn next<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        self.step(core, Direction::Forward)
    }

    /// The previous entry of a cursor.
    #[inline]
    pub(crate) fn prev<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        self.step(core, Direction::Backward)
    }

    /// Takes one step of a cursor, and returns the entry that it leads to.
    #[inline(always)]
    fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        let shown = self.advance(core, way)?;
        if self.shows_all(core) {
            return Ok(shown);
        }
        self.pass_others_by_steps(core, way)?;
        Ok(self.shown(core))
    }

    /// Takes one step of a walk without a prefix, and returns the entry that it leads to.
    #[inline(always)]
    pub(crate) fn advance<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        if let Some(entry) = self.scope.step_fast(core, &self.state, way, &mut self.read_ahead)
            && let Some(frame) = self.scope.frame()
        {
            self.state = State::At(Parked::new(&entry));
            return Ok(Some(Entry::new(entry, frame)));
        }
        self.step_slow(core, way)
    }

    /// [`advance`](Self::advance), compiled once for walks that do more than this in each step.
    #[inline(never)]
    pub(crate) fn advance_any<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        self.advance(core, way)
    }

    /// Whether every entry that a step leads to has the walk's prefix.
    #[inline(always)]
    fn shows_all(&self, core: &Core) -> bool {
        core.comparator.key_order() == KeyOrder::Bytes || self.scope.prefix().is_none()
    }

    /// Passes entries without the prefix, in orders where keys with a common prefix are not adjacent.
    #[cold]
    fn pass_others_by_steps(&mut self, core: &Core, way: Direction) -> Result<()> {
        let is_other = |walk: &Self| match (walk.shown(core), walk.scope.prefix()) {
            (Some(entry), Some(prefix)) => !entry.user_key().starts_with(prefix),
            _ => false,
        };
        while is_other(self) {
            self.advance_any(core, way)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn step_slow<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        if matches!(self.state, State::Nowhere) {
            return Ok(None);
        }
        if let Some(sought) = self.sought.take() {
            return self.step_to(core, way, sought);
        }
        if self.heading.way != way {
            self.heading = Heading { way, limit: StepLimit::default() };
        }
        if let Err(corruption) = self.heading.limit.count(core) {
            return self.fail(corruption).map(|()| None);
        }
        let (mut read_ahead, mut hidden) = (self.read_ahead, 0);
        let reported = self.reported.as_deref();
        let outcome = self.scope.step(core, &self.state, reported, way, &mut read_ahead, &mut hidden);
        self.read_ahead = read_ahead;
        self.pass_by(core, hidden);
        self.stand(core, outcome)?;
        Ok(self.shown(core))
    }

    /// Takes a step after a seek met damage, on to its position.
    #[cold]
    fn step_to<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        sought: Box<ScanBound>,
    ) -> Result<Option<Entry<'a>>> {
        let is_before =
            |entry: &Entry<'a>| entry.is_before(&core.comparator, &sought.target(&core.comparator));
        match self.step_slow(core, way) {
            Ok(Some(entry)) if way == Direction::Forward && is_before(&entry) => self.step_slow(core, way),
            Err(error) => {
                self.sought = Some(sought).filter(|_| way == Direction::Forward);
                Err(error)
            }
            shown => shown,
        }
    }

    /// Counts entries that a move has passed, in the walk's own memory and for the table's statistics.
    #[inline]
    fn pass_by(&mut self, core: &Core, hidden: u64) {
        if hidden > 0 {
            self.hidden += hidden;
            core.accelerators.count(Event::Hidden, hidden);
        }
    }

    /// The number of entries that the walk has passed without showing them.
    pub(crate) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Ends a seek, after which the count of steps starts again.
    #[inline(always)]
    fn land(&mut self, core: &Core, outcome: Arrival) -> Result<()> {
        self.heading.limit = StepLimit::default();
        self.stand(core, outcome)
    }

    #[inline(always)]
    fn stand(&mut self, core: &Core, outcome: Arrival) -> Result<()> {
        match outcome {
            Ok(Ok(Some(stand))) => self.state = State::At(stand),
            Ok(Ok(None)) => self.state = State::Nowhere,
            Ok(Err(gap)) => return self.fall(core, gap),
            Err(corruption) => return self.fail(corruption),
        }
        Ok(())
    }

    /// Makes the walk not positioned, because of damage outside of a gap (WALK-2).
    #[cold]
    pub(crate) fn fail(&mut self, corruption: Corruption) -> Result<()> {
        self.state = State::Nowhere;
        self.failed = Some(Box::new(corruption));
        Err(corruption.into())
    }

    /// Puts the walk into a gap, and copies the positions of its sides if they verify (WALK-1).
    #[cold]
    #[inline(never)]
    fn fall(&mut self, core: &Core, gap: Gap) -> Result<()> {
        let search = self.scope.search(core).ok();
        self.reported = Some(Box::new(ReportedGap::around(search.as_ref(), gap)));
        self.state = State::Gap;
        Err(gap.corruption.into())
    }

    /// Reads the control block again.
    fn refresh(&mut self, core: &Core) -> Result<()> {
        (self.failed, self.sought) = (None, None);
        self.state = State::Nowhere;
        self.scope.refresh(core).or_else(|corruption| self.fail(corruption))
    }

    /// The gap that the walk is in, if it is in one.
    pub(crate) fn gap(&self) -> Option<Gap> {
        self.reported.as_ref().filter(|_| matches!(self.state, State::Gap)).map(|reported| reported.gap)
    }

    /// The near side, for this direction, of the gap that the walk is in.
    pub(crate) fn gap_bound(&self, way: Direction) -> Option<&ScanBound> {
        let reported = self.reported.as_ref().filter(|_| matches!(self.state, State::Gap))?;
        reported.near(way)
    }

    /// The bound at which the walk begins.
    pub(crate) fn near_bound(&self, way: Direction) -> Option<&ScanBound> {
        self.scope.near(way)
    }

    /// The position from which this walk goes on after it has shown an entry.
    pub(crate) fn passed(&self, way: Direction, entry: &Entry<'_>) -> ScanBound {
        passed(&self.scope.visibility, way, entry.user_key(), entry.sequence())
    }

    /// How far a walk in this direction has come: it is done with everything before the returned position.
    #[cold]
    pub(crate) fn progress(&self, core: &Core, way: Direction) -> Result<ScanBound, Corruption> {
        self.scope.progress(core, &self.state, self.reported.as_deref(), way)
    }
}

impl Walk {
    /// The merge operands of the key that the walk is on, if its entry is one.
    pub(crate) fn operands<'a>(&self, core: &'a Core) -> Result<Option<Operands<'a>>> {
        let State::At(stand) = &self.state else { return Ok(None) };
        let search = self.scope.search(core)?;
        let entry = resumed(&search, stand)?;
        let is_operand = entry.kind() == Kind::MERGE;
        is_operand.then(|| operands(core, entry)).transpose()
    }
}

impl Walk {
    /// Goes from a version of a key to the key's last one in this direction: a few steps, then a search.
    pub(crate) fn go_to_last_version<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        mut last: Entry<'a>,
    ) -> Result<Option<Entry<'a>>> {
        for _ in 0..STEPS_MAX {
            let state = self.state;
            match self.advance_any(core, way) {
                Ok(Some(entry)) if core.comparator.are_equal(entry.user_key(), last.user_key()) => {
                    last = entry;
                }
                Ok(_) => {
                    self.state = state;
                    return Ok(Some(last));
                }
                // A search may find a way around the gap.
                Err(_) => break,
            }
        }
        let edge = ScanBound::beside_key(way, last.user_key());
        self.begin(core, way.opposite(), Some(&edge))
    }

    /// The place of the walk, for `return_to`.
    pub(crate) fn mark(&self) -> Mark {
        Mark { state: self.state, reported: self.reported.clone() }
    }

    /// Returns to a marked place.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        (self.state, self.reported) = (mark.state, mark.reported);
    }
}

/// A place that a walk can return to.
#[derive(Clone)]
pub(crate) struct Mark {
    state: State,
    reported: Option<Box<ReportedGap>>,
}

// Scopes: which entries a walk may show, and where its steps lead.
//
// ```text
//   arrive   position, or near bound -> find ----------------------------> show
//   fast     entry ---------------> neighbour, if the two alone tell that it is shown
//   step     entry ---------------> visibility ----> show
//            gap ----------------> its far side, strictly beyond it -----> show
//   show     visibility ----> inside the far bound
// ```
// A scope computes moves and `walk` makes them; see there for the invariants. A scope does not borrow its table,
// which each call is given.
//
// Any thread.

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
        if search.prefetch_beside(read_ahead, stand.offset(), to) {
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
                        && search.prefetch_beside(read_ahead, stand.offset(), to.offset())
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
