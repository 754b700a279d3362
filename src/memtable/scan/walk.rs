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

use crate::comparator::{KeyComparator, KeyOrder};
use crate::error::{Corruption, Result};
use crate::key::{Direction, Kind, SequenceNumber, Side, Target};
use crate::memtable::core::Core;
use crate::memtable::lookup::accelerators::Event;
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::{Operands, operands};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds};
use crate::memtable::scan::scope::{Arrival, ReportedGap, Scope, State, passed};
use crate::memtable::scan::visibility::{Run, StepLimit, Visible, first_of_run, resumed};
use crate::memtable::skiplist::iterate::Parked;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Gap;

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
    /// Goes from any version of a key to the key's first version inside the bounds.
    pub(crate) fn rewind_key<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let State::At(stand) = self.state else { return Ok(None) };
        let first = self.scope.search(core).map(|search| {
            let entry = resumed(&search, &stand)?;
            // The range that goes back shows what it passes here.
            let first = first_of_run(core, &search, entry, Run::Key, &mut 0)?;
            let first = self.scope.after_lower(core, &search, first)?;
            Ok(first.as_ref().map(Parked::new))
        });
        self.stand(core, first)?;
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
}

/// A place that a walk can return to.
#[derive(Clone)]
pub(crate) struct Mark {
    state: State,
    reported: Option<Box<ReportedGap>>,
}
