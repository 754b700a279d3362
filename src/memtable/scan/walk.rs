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
use crate::memtable::scan::visibility::{Outcome, Pass, Run, StepLimit, Visible};
use crate::memtable::skiplist::iterate::Parked;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Course, Gap, Search};

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

/// Which entries a walk may show. Apart from what a step changes, so that a step keeps these values in registers.
struct Scope {
    visibility: Visible,
    bounds: ScanBounds,
    /// What all keys shown start with, in prefix mode.
    prefix: Option<Box<[u8]>>,
    /// The table's checked values as of the last seek.
    kept: Option<(Frame, Course)>,
}

/// The place of a walk.
#[derive(Debug, Clone, Copy)]
enum State {
    Nowhere,
    At(Parked),
    /// In the last gap.
    Gap,
}

/// The number of slow steps that a walk has taken in one direction.
#[derive(Debug, Clone, Copy)]
struct Heading {
    way: Direction,
    limit: StepLimit,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("visibility", &self.scope.visibility)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// What cursors and ranges ask of a walk.
impl Walk {
    pub(crate) fn new(visibility: Visible, bounds: ScanBounds) -> Self {
        Walk {
            scope: Scope { visibility, bounds, prefix: None, kept: None },
            state: State::Nowhere,
            reported: None,
            heading: Heading { way: Direction::Forward, limit: StepLimit::default() },
            read_ahead: ReadAhead::default(),
            failed: None,
            sought: None,
            hidden: 0,
        }
    }

    /// Replaces the bounds, or the prefix. The walk is not positioned afterwards.
    pub(crate) fn set_bounds(&mut self, bounds: ScanBounds) {
        (self.scope.bounds, self.scope.prefix) = (bounds, None);
        self.leave();
    }

    /// Replaces the bounds, or the prefix, by this prefix. The walk is not positioned afterwards.
    pub(crate) fn set_prefix(&mut self, comparator: &KeyComparator, prefix: &[u8]) {
        self.set_bounds(match comparator.key_order() {
            KeyOrder::Bytes => prefix_bounds(prefix),
            KeyOrder::Images | KeyOrder::Custom => ScanBounds::default(),
        });
        self.scope.prefix = Some(prefix.into());
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

    /// The merge operands of the key that the walk is on, if its entry is one.
    pub(crate) fn operands<'a>(&self, core: &'a Core) -> Result<Option<Operands<'a>>> {
        let State::At(stand) = &self.state else { return Ok(None) };
        let search = self.scope.search(core)?;
        let entry = Pass::new(core, &search).resumed(stand)?;
        let is_operand = entry.kind() == Kind::MERGE;
        is_operand.then(|| operands(core, entry)).transpose()
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
                entry.sequence() > sequence && core.comparator.are_equal(entry.user_key(), key)
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
        (self.failed, self.sought, self.state) = (None, None, State::Nowhere);
        // The count of steps starts again, and the control block is read again.
        self.heading.limit = StepLimit::default();
        let search = match core.point_search() {
            Ok(search) => search,
            Err(corruption) => return self.fail(corruption),
        };
        self.scope.kept = Some((search.view.frame, search.course));
        let mut pass = Pass::new(core, &search);
        let outcome = self.scope.arrive(&mut pass, way, target, &mut self.read_ahead);
        self.stand(&pass, outcome)?;
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

    /// Takes one step of a cursor, and returns the entry that it leads to.
    #[inline(always)]
    pub(crate) fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
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

    /// Goes from a version of a key to the last one shown in this direction. A snapshot sees one.
    pub(crate) fn go_to_last_version<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
    ) -> Result<Option<Entry<'a>>> {
        let (State::At(stand), Visible::All) = (self.state, self.scope.visibility) else {
            return Ok(self.shown(core));
        };
        let search = self.scope.search(core)?;
        let mut pass = Pass::new(core, &search);
        let last = pass.resumed(&stand).and_then(|entry| pass.furthest_of_run(entry, Run::Key, way));
        if let (Ok(last), Some(far)) = (&last, self.scope.near(way.opposite()))
            && !is_inside(core, *last, far, way)
        {
            return self.begin(core, way.opposite(), None);
        }
        let last = last.and_then(|last| self.scope.show(&mut pass, way.opposite(), Some(last)));
        // The range shows what it has passed here.
        pass.hidden = 0;
        self.stand(&pass, last)?;
        Ok(self.shown(core))
    }

    /// The place of the walk, for `return_to`.
    pub(crate) fn mark(&self) -> Mark {
        Mark { state: self.state, reported: self.reported.clone() }
    }

    /// Returns to a marked place.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        (self.state, self.reported) = (mark.state, mark.reported);
    }

    /// The number of entries that the walk has passed without showing them.
    pub(crate) fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The gap that the walk is in, with the positions of its sides.
    pub(crate) fn gap(&self) -> Option<&ReportedGap> {
        self.reported.as_deref().filter(|_| matches!(self.state, State::Gap))
    }

    /// The bound at which a walk in this direction begins.
    pub(crate) fn near(&self, way: Direction) -> Option<&ScanBound> {
        self.scope.near(way)
    }

    /// The position from which a walk goes on after it has shown a version of a key.
    #[inline]
    pub(crate) fn passed(&self, way: Direction, key: &[u8], sequence: SequenceNumber) -> ScanBound {
        let (newest, oldest) = self.scope.visibility.extent(sequence);
        match way {
            Direction::Forward => ScanBound::after(key, oldest),
            Direction::Backward => ScanBound::before(key, newest),
        }
    }

    /// How far a walk in this direction has come: it is done with everything before the returned position.
    #[cold]
    pub(crate) fn progress(&self, core: &Core, way: Direction) -> Result<ScanBound, Corruption> {
        let stand = match (&self.state, &self.reported) {
            (State::At(stand), _) => stand,
            (State::Gap, Some(reported)) => {
                return Ok(reported.side(way).cloned().unwrap_or_else(|| ScanBound::extreme(way)));
            }
            (State::Nowhere | State::Gap, _) => return Ok(ScanBound::extreme(way)),
        };
        let search = self.scope.search(core)?;
        if let Ok(entry) = stand.verify(&search.view) {
            return Ok(self.passed(way, entry.key(), entry.node().sequence()));
        }
        // The entry was damaged since the walk came to it, so the walk has come to where its link leads.
        match Pass::new(core, &search).adjacent(stand.offset(), way) {
            Ok(Some(entry)) => Ok(ScanBound::beside(way.opposite(), entry.node())),
            Ok(None) => Ok(ScanBound::extreme(way)),
            // What its link leads to is damaged, too.
            Err(gap) => Err(gap.corruption),
        }
    }

    /// Makes the walk not positioned, because of damage outside of a gap (WALK-2).
    #[cold]
    pub(crate) fn fail<T>(&mut self, corruption: Corruption) -> Result<T> {
        self.state = State::Nowhere;
        self.failed = Some(Box::new(corruption));
        Err(corruption.into())
    }
}

/// A place that a walk can return to.
pub(crate) struct Mark {
    state: State,
    reported: Option<Box<ReportedGap>>,
}

// Moves: which entries a walk may show, and where its steps lead.
//
// ```text
//   arrive   position, or near bound -> find ----------------------------> show
//   fast     entry ---------------> neighbour, if the two alone tell that it is shown
//   slow     entry ---------------> visibility ----> show
//            gap ----------------> its far side, strictly beyond it -----> show
//   show     visibility ----> inside the far bound
// ```

/// Whether a backward step from `near`, the first entry beyond a gap, found a later entry: the walk has been there, and
/// the gap was reported.
#[cold]
fn leads_back<'a>(pass: &Pass<'_, 'a>, near: &Verified<'a>, found: &Outcome<'a>) -> bool {
    let comparator = &pass.core.comparator;
    let bound = ScanBound::beside(Direction::Forward, near.node());
    let is_after = |node: &Node<'_>| !bound.is_after(comparator, node);
    match found {
        // Versions of the key before the gap are too new, and what could be seen may have stood in the gap, or in one
        // after it.
        Err(gap) if gap.after == pass.search.sentinel => gap.before != pass.search.sentinel,
        Err(gap) => {
            gap.before == near.offset()
                || matches!(pass.search.verified(gap.after), Ok(Some(entry)) if is_after(entry.node()))
        }
        // The version that could be seen stands after the gap.
        Ok(shown) => shown.is_some_and(|shown| is_after(shown.node())),
    }
}

impl Walk {
    /// The entry that the walk is on, for calls that have just verified it.
    #[inline(always)]
    fn shown<'a>(&self, core: &'a Core) -> Option<Entry<'a>> {
        let State::At(stand) = &self.state else { return None };
        let view = self.scope.frame()?.on(&core.arena)?;
        stand.resume(&view).map(|entry| Entry::new(entry, &view))
    }

    /// Whether every entry that a step leads to has the walk's prefix.
    #[inline(always)]
    fn shows_all(&self, core: &Core) -> bool {
        core.comparator.key_order() == KeyOrder::Bytes || self.scope.prefix.is_none()
    }

    /// Passes entries without the prefix, in orders where keys with a common prefix are not adjacent.
    #[cold]
    fn pass_others_by_steps(&mut self, core: &Core, way: Direction) -> Result<()> {
        let is_other = |walk: &Self| match (walk.shown(core), &walk.scope.prefix) {
            (Some(entry), Some(prefix)) => !entry.user_key().starts_with(prefix),
            _ => false,
        };
        while is_other(self) {
            self.advance_any(core, way)?;
        }
        Ok(())
    }

    /// Any step, from the place of the walk and the gap that it reported last.
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
            return self.fail(corruption);
        }
        let search = match self.scope.search(core) {
            Ok(search) => search,
            Err(corruption) => return self.fail(corruption),
        };
        let mut pass = Pass::new(core, &search);
        let outcome = match (&self.state, &self.reported) {
            (State::At(stand), _) => {
                let (at, outcome) = (stand.offset(), self.scope.step_from(&mut pass, way, stand));
                if let Ok(Some(to)) = &outcome
                    && pass.search.prefetch_beside(&mut self.read_ahead, at, to.offset())
                {
                    self.scope.read_on(core, &mut self.read_ahead, to.offset(), way);
                }
                outcome
            }
            (State::Gap, Some(reported)) => self.scope.step_over_gap(&mut pass, way, reported),
            (State::Nowhere | State::Gap, _) => Ok(None),
        };
        self.stand(&pass, outcome)?;
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

    /// Stands where a move ended, and counts the entries that it has passed. In a gap the walk copies the positions of its
    /// sides if they verify (WALK-1).
    #[inline(always)]
    fn stand(&mut self, pass: &Pass<'_, '_>, outcome: Outcome<'_>) -> Result<()> {
        if pass.hidden > 0 {
            self.hidden += pass.hidden;
            pass.core.accelerators.count(Event::Hidden, pass.hidden);
        }
        self.state = match &outcome {
            Ok(Some(entry)) => State::At(Parked::new(entry)),
            Ok(None) => State::Nowhere,
            Err(_) => State::Gap,
        };
        outcome.map(drop).map_err(|gap| {
            self.reported = Some(Box::new(ReportedGap::around(pass.search, gap)));
            gap.corruption.into()
        })
    }
}

impl Scope {
    /// The table's checked values, if there was a seek.
    #[inline(always)]
    fn frame(&self) -> Option<&Frame> {
        self.kept.as_ref().map(|(frame, _)| frame)
    }

    /// The table's list, opened with the values kept from the last seek, if there was one.
    #[inline(always)]
    fn list<'a>(&self, core: &'a Core) -> Option<Search<'a>> {
        let (frame, course) = self.kept.as_ref()?;
        let view = frame.on(&core.arena)?;
        Some(Search { view, comparator: &core.comparator, course: *course })
    }

    /// The table's list, opened with the values kept from the last seek, or anew.
    #[inline]
    fn search<'a>(&self, core: &'a Core) -> Result<Search<'a>, Corruption> {
        self.list(core).map_or_else(|| core.point_search(), Ok)
    }

    /// The bound at which a walk in this direction begins.
    #[inline(always)]
    fn near(&self, way: Direction) -> Option<&ScanBound> {
        match way {
            Direction::Forward => self.bounds.lower.as_ref(),
            Direction::Backward => self.bounds.upper.as_ref(),
        }
    }

    /// A step from an entry to the adjacent one, if the two entries alone show that it is visible. `None` in all other
    /// cases, which `step_slow` handles.
    #[inline(always)]
    fn step_fast<'a>(
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
        let at = stand.offset();
        let search = self.list(core)?;
        let entry = match way {
            Direction::Forward => search.try_next(at)?,
            Direction::Backward => search.try_prev(at)?,
        };
        let to = entry.node().offset();
        if search.prefetch_beside(read_ahead, at, to) {
            self.read_on(core, read_ahead, to, way);
        }
        let far = self.near(way.opposite());
        let is_next = shows(&entry)
            && far.is_none_or(|far| is_inside(core, entry, far, way))
            && (search.order_checks == OrderChecks::Off || self.are_in_order(core, at, to, way));
        is_next.then_some(entry)
    }

    /// Whether a step in this direction between two nodes of the list keeps their order.
    #[inline(never)]
    fn are_in_order(&self, core: &Core, at: u32, to: u32, way: Direction) -> bool {
        let (left, right) = if way == Direction::Forward { (at, to) } else { (to, at) };
        self.list(core).is_some_and(|search| search.are_in_order(left, right))
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

    /// The first entry shown at or after a position, or the last one before it, inside the bounds.
    fn arrive<'a>(
        &self,
        pass: &mut Pass<'_, 'a>,
        way: Direction,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
    ) -> Outcome<'a> {
        let comparator = &pass.core.comparator;
        if let Some(prefix) = &self.prefix
            && pass.core.accelerators.may_start_with(&pass.search.view, prefix) == Answer::Absent
        {
            pass.core.accelerators.count(Event::FilterNegative, 1);
            return Ok(None);
        }
        // A walk that would begin outside its near bound begins at the bound, because damage outside does not concern
        // it.
        let outside = way.opposite().outward();
        let bound = self.near(way).map(|scan_bound| scan_bound.target(comparator));
        let bound = bound.as_ref().filter(|bound| target.order(comparator, bound) == outside);
        let target = bound.unwrap_or(target);
        *read_ahead = ReadAhead::default();
        let entry = match way {
            Direction::Forward => pass.search.find_ahead(target, read_ahead)?,
            Direction::Backward => pass.search.find_before(target)?,
        };
        self.show(pass, way, entry)
    }

    #[inline(never)]
    fn step_from<'a>(&self, pass: &mut Pass<'_, 'a>, way: Direction, from: &Parked) -> Outcome<'a> {
        let next = self.visibility.beyond(pass, from, way)?;
        self.show(pass, way, next)
    }

    /// The first entry from a stored one on that the visibility shows, inside the far bound.
    #[inline]
    fn show<'a>(&self, pass: &mut Pass<'_, 'a>, way: Direction, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let entry = self.visibility.show(pass, way, entry)?;
        let (Some(entry), Some(far)) = (entry, self.near(way.opposite())) else { return Ok(entry) };
        Ok(is_inside(pass.core, entry, far, way).then_some(entry))
    }

    /// The first entry from `entry` on that is inside the near bound. Gaps outside it are passed.
    #[cold]
    fn first_inside<'a>(&self, pass: &Pass<'_, 'a>, way: Direction, entry: Verified<'a>) -> Outcome<'a> {
        let Some(near) = self.near(way) else { return Ok(Some(entry)) };
        let mut next = Some(entry);
        while let Some(entry) = next
            && !is_inside(pass.core, entry, near, way.opposite())
        {
            next = pass.adjacent(entry.offset(), way)?;
        }
        Ok(next)
    }

    /// Goes on at the far side of a gap, strictly beyond it (WALK-1).
    #[cold]
    fn step_over_gap<'a>(
        &self,
        pass: &mut Pass<'_, 'a>,
        way: Direction,
        reported: &ReportedGap,
    ) -> Outcome<'a> {
        let gap = reported.gap;
        let at = way.pick((gap.before, gap.after));
        let entry = match pass.search.verified(at) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            // The far side of the gap was damaged since it was reported, so the walk goes on along its links.
            Err(corruption) => return Err(pass.search.gap_at(at, corruption)),
        };
        if gap.before == gap.after {
            return self.step_from(pass, way, &Parked::new(&entry));
        }
        if !reported.is_passed_at(&pass.core.comparator, way, &entry) {
            let corruption = Corruption::new(Place::Order, gap.corruption.offset, u64::from(at), 0);
            return Err(pass.no_way(corruption));
        }
        let entry = match self.first_inside(pass, way, entry)? {
            Some(entry) if entry.offset() == at && way == Direction::Forward => {
                self.visibility.after_gap(pass, gap, entry)?
            }
            entry => entry,
        };
        let shown = self.show(pass, way, entry);
        let Some(near) = entry.filter(|near| way == Direction::Backward && leads_back(pass, near, &shown))
        else {
            return shown;
        };
        self.step_from(pass, way, &Parked::new(&near))
    }
}

/// Whether an entry lies before the bound at which a walk in this direction ends.
#[inline(never)]
fn is_inside(core: &Core, entry: Verified<'_>, far: &ScanBound, way: Direction) -> bool {
    far.is_after(&core.comparator, entry.node()) == (way == Direction::Forward)
}

/// A gap that was reported, and the positions of both its sides: whatever becomes of the entries there, the walk knows
/// what it has reported. A position is missing if the entry beside the gap no longer verified.
///
/// ```text
///   a@9   [ damaged ]   c@4
///       begin         end
/// ```
#[derive(Clone)]
pub(crate) struct ReportedGap {
    pub(crate) gap: Gap,
    begin: Option<ScanBound>,
    end: Option<ScanBound>,
}

impl ReportedGap {
    /// A gap with the positions of the entries beside it, as far as these verify.
    #[cold]
    #[inline(never)]
    fn around(search: &Search<'_>, gap: Gap) -> ReportedGap {
        let side = |node: u32, way: Direction| match search.verified(node) {
            // With one entry on both sides damage hides which range tombstone covers its key.
            Ok(Some(entry)) if gap.before == gap.after => {
                Some(ScanBound::beside_key(way.opposite(), entry.key()))
            }
            Ok(Some(entry)) => Some(ScanBound::beside(way, entry.node())),
            Ok(None) => Some(ScanBound::extreme(way.opposite())),
            Err(_) => None,
        };
        let (begin, end) = (side(gap.before, Direction::Forward), side(gap.after, Direction::Backward));
        ReportedGap { gap, begin, end }
    }

    /// Whether an entry is beyond the gap, if the near side of the gap is known.
    fn is_passed_at(&self, comparator: &KeyComparator, way: Direction, entry: &Verified<'_>) -> bool {
        let near = self.side(way.opposite());
        near.is_none_or(|near| {
            near.across().is_after(comparator, entry.node()) == (way == Direction::Backward)
        })
    }

    /// The side of the gap that is further in this direction.
    pub(crate) fn side(&self, way: Direction) -> Option<&ScanBound> {
        if way == Direction::Forward { self.end.as_ref() } else { self.begin.as_ref() }
    }
}
