//! Walks: a place in a table that moves both ways, without a borrow of the table.
//!
//! ```text
//!             seek, begin                 advance, go
//!   Nowhere ---------------------> At(entry) <------+
//!      ^                            |   |  damage   |  goes on strictly beyond the gap
//!      +----- ran off an end -------+   +--> Gap --+
//!   Failed(error): as Nowhere, where damage hides every way on
//! ```
//! * WALK-1: a walk reports a gap once and keeps the positions of both its sides in its own memory;
//!   the next step goes on at the other side, strictly beyond what was reported.
//! * WALK-2: a walk that is not positioned has no entry, and steps do not move it. A damaged
//!   control block makes a walk so.
//! * WALK-3: a step never shows an entry twice; entries inserted after the walk are not shown,
//!   those before it may be.
//! * WALK-4: a call returns only what it has verified itself: a move the entry that it led to,
//!   `entry` the one that the walk is parked on. From the node that it leaves a step uses only the
//!   link, whose tag is bound to the node, and the key, which it verifies again where the key
//!   decides.
//! * WALK-5: however a comparator lies, a walk in one direction ends (`StepLimit`).
//!
//! Every call is given the table that the walk was made for. Cursors and ranges hold a walk
//! together with its table, which they borrow or share.
//!
//! One thread at a time moves a walk; tables may be written meanwhile. Steps are expected O(1),
//! seeks O(log n).

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::options::OrderChecks;
use crate::key::{
    Direction, KeyComparator, KeyEquality, KeyOrder, Kind, SequenceNumber, Side, Target,
};
use crate::memtable::arena::arena::Frame;
use crate::memtable::arena::layout::Head;
use crate::memtable::arena::node::{Node, Parked, Verified};
use crate::memtable::core::Core;
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::{Operands, operands};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, prefix_bounds, scan_bounds};
use crate::memtable::scan::visibility::{Outcome, Pass, Run, StepLimit, Visible};
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Gap, Search};

/// A place that moves both ways.
pub(crate) struct Walk {
    pub(crate) scope: Scope,
    pub(crate) state: State,
    /// The direction of the last slow step, and the number of slow steps in that direction.
    heading: (Direction, StepLimit),
    /// How far memory was prefetched.
    read_ahead: ReadAhead,
    /// The node that order checks have come to, and the image of its key, which was verified.
    compared: (u32, u64),
    /// The position of a seek that met damage, until the walk has passed it.
    sought: Option<Box<ScanBound>>,
    /// Entries that the walk has passed without showing them.
    pub(crate) hidden: u64,
}

/// Which entries a walk may show. Apart from what a step changes, so that a step keeps these values
/// in registers.
pub(crate) struct Scope {
    pub(crate) visible: Visible,
    pub(crate) bounds: ScanBounds,
    /// What all keys shown start with, in prefix mode.
    prefix: Option<Box<[u8]>>,
    /// The table's checked values as of the last seek.
    kept: Option<Frame>,
}

/// The place of a walk.
#[derive(Clone)]
pub(crate) enum State {
    Nowhere,
    At(Parked),
    Gap(Box<ReportedGap>),
    /// Not positioned, because of damage outside of a gap (WALK-2).
    Failed(Corruption),
}

/// What cursors and ranges ask of a walk.
impl Walk {
    pub(crate) fn new(visible: Visible, bounds: ScanBounds) -> Self {
        Walk {
            scope: Scope {
                visible,
                bounds,
                prefix: None,
                kept: None,
            },
            state: State::Nowhere,
            heading: (Direction::Forward, StepLimit::default()),
            read_ahead: ReadAhead::default(),
            compared: (0, 0),
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
            KeyOrder::Images | KeyOrder::Custom => scan_bounds(&..),
        });
        self.scope.prefix = Some(prefix.into());
    }

    /// Makes the walk not positioned, without an error.
    pub(crate) fn leave(&mut self) {
        (self.state, self.sought) = (State::Nowhere, None);
    }

    /// The error of the last move, if it met damage.
    pub(crate) fn status(&self) -> Result<()> {
        match &self.state {
            State::Gap(reported) => Err(Error::Corruption(reported.gap.corruption)),
            State::Failed(corruption) => Err(Error::Corruption(*corruption)),
            State::Nowhere | State::At(_) => Ok(()),
        }
    }

    /// Whether the walk is on an entry.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.state, State::At(_))
    }

    /// The entry that the walk is on, verified again (WALK-4).
    pub(crate) fn entry<'a>(&self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let State::At(stand) = &self.state else {
            return Ok(None);
        };
        let Some(search) = self.scope.list(core) else {
            return Ok(None);
        };
        Ok(Some(Entry::new(stand.verify(&search.view)?, &search.view)))
    }

    /// The merge operands of the key that the walk is on, if its entry is one.
    pub(crate) fn operands<'a>(&self, core: &'a Core) -> Result<Option<Operands<'a>>> {
        let State::At(stand) = &self.state else {
            return Ok(None);
        };
        let search = self.scope.search(core)?;
        let entry = stand.verify(&search.view)?;
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
        let target = Target::new(&core.comparator, key, self.scope.visible.extent(sequence).0);
        let place = || {
            Box::new(ScanBound::beside_version(
                Direction::Backward,
                key,
                sequence,
            ))
        };
        let shown = self.go_to(core, Direction::Forward, &target);
        let shown = shown.inspect_err(|_| self.sought = Some(place()))?;
        // The only version of a key that is shown may be before the position.
        let in_front = sequence < SequenceNumber::MAX
            && shown.is_some_and(|entry| {
                entry.sequence() > sequence && core.comparator.are_equal(entry.user_key(), key)
            });
        if in_front {
            self.step(core, Direction::Forward)
        } else {
            Ok(shown)
        }
    }

    /// Goes to the first entry shown at or after a position, or to the last one before it.
    pub(crate) fn go_to<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        target: &Target<'_>,
    ) -> Result<Option<Entry<'a>>> {
        self.leave();
        // The count of steps starts again, and the control block is read again.
        self.heading.1 = StepLimit::default();
        let search = core
            .point_search()
            .or_else(|corruption| self.fail(corruption))?;
        self.scope.kept = Some(search.view.frame());
        let mut pass = self.scope.pass(core, &search, way);
        let prefix = self.scope.prefix.as_ref();
        let is_absent =
            prefix.is_some_and(|prefix| core.accelerators.lacks_prefix(&search.view, prefix));
        let outcome = if is_absent {
            Ok(None)
        } else {
            pass.arrive(target, &mut self.read_ahead)
        };
        match self.settle(&search, pass.hidden, outcome) {
            Ok(shown) if core.comparator.key_order() != KeyOrder::Bytes => {
                self.past_others(core, way, shown)
            }
            shown => shown,
        }
    }

    /// Goes to the first entry of a walk in this direction, from a position or from the end of the
    /// table.
    pub(crate) fn begin<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        from: Option<&ScanBound>,
    ) -> Result<Option<Entry<'a>>> {
        let start = Target::extreme(way.pick((Side::End, Side::Start)));
        self.go_to(
            core,
            way,
            &from.map_or(start, |from| from.target(&core.comparator)),
        )
    }

    /// Takes one step of a cursor, and returns the entry that it leads to.
    #[inline(always)]
    pub(crate) fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        match self.advance(core, way) {
            Ok(shown) if core.comparator.key_order() != KeyOrder::Bytes => {
                self.past_others(core, way, shown)
            }
            shown => shown,
        }
    }

    /// Takes one step of a walk without a prefix, and returns the entry that it leads to.
    #[inline(always)]
    pub(crate) fn advance<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
    ) -> Result<Option<Entry<'a>>> {
        match way {
            Direction::Forward => self.next(core),
            Direction::Backward => self.prev(core),
        }
    }

    /// A step forward, compiled in this crate.
    #[inline(never)]
    fn next<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let fast = self.step_fast(core, Direction::Forward);
        if fast.is_some() {
            Ok(fast)
        } else {
            self.step_slow(core, Direction::Forward)
        }
    }

    /// A step backward.
    #[inline(never)]
    fn prev<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let fast = self.step_fast(core, Direction::Backward);
        if fast.is_some() {
            Ok(fast)
        } else {
            self.step_slow(core, Direction::Backward)
        }
    }

    /// Goes from `entry`, a version of a key on which the walk is, to the last one shown in this
    /// direction. A snapshot sees one.
    pub(crate) fn go_to_last_version<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        entry: Entry<'a>,
    ) -> Result<Option<Entry<'a>>> {
        let (&State::At(stand), Visible::All) = (&self.state, self.scope.visible) else {
            return Ok(Some(entry));
        };
        let search = self
            .scope
            .search(core)
            .or_else(|corruption| self.fail(corruption))?;
        let mut pass = self.scope.pass(core, &search, way);
        let last = pass
            .resumed(&stand)
            .and_then(|entry| pass.furthest_of_run(entry, Run::Key));
        pass.way = way.opposite();
        if let Ok(last) = &last
            && !is_inside(core, *last, self.scope.bounds.end(way), way)
        {
            return self.begin(core, way.opposite(), None);
        }
        let last = last.and_then(|last| pass.show(Some(last)));
        // The range shows what it has passed here.
        self.settle(&search, 0, last)
    }

    /// The gap that the walk is in, with the positions of its sides.
    pub(crate) fn gap(&self) -> Option<&ReportedGap> {
        match &self.state {
            State::Gap(reported) => Some(reported),
            State::Nowhere | State::At(_) | State::Failed(_) => None,
        }
    }

    /// The position from which a walk goes on after it has shown a version of a key.
    #[inline]
    pub(crate) fn passed(&self, way: Direction, key: &[u8], sequence: SequenceNumber) -> ScanBound {
        ScanBound::beside_version(way, key, way.pick(self.scope.visible.extent(sequence)))
    }

    /// How far a walk in this direction has come: it is done with everything before the returned
    /// position.
    #[cold]
    pub(crate) fn progress(&self, core: &Core, way: Direction) -> Result<ScanBound, Corruption> {
        let stand = match &self.state {
            State::At(stand) => stand,
            State::Gap(reported) => {
                return Ok(reported
                    .side(way)
                    .cloned()
                    .unwrap_or_else(|| ScanBound::extreme(way)));
            }
            State::Nowhere | State::Failed(_) => return Ok(ScanBound::extreme(way)),
        };
        let search = self.scope.search(core)?;
        if let Ok(entry) = stand.verify(&search.view) {
            return Ok(self.passed(way, entry.key(), entry.node().sequence()));
        }
        // The entry was damaged since the walk came to it, so the walk has come to where its link
        // leads.
        match self
            .scope
            .pass(core, &search, way)
            .adjacent_rarely(stand.offset())
        {
            Ok(Some(entry)) => Ok(ScanBound::beside(way.opposite(), entry.node())),
            Ok(None) => Ok(ScanBound::extreme(way)),
            // What its link leads to is damaged, too.
            Err(gap) => Err(gap.corruption),
        }
    }

    /// Makes the walk not positioned, because of damage outside of a gap (WALK-2).
    #[cold]
    pub(crate) fn fail<T>(&mut self, corruption: Corruption) -> Result<T> {
        self.state = State::Failed(corruption);
        Err(corruption.into())
    }
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

impl Walk {
    /// Passes entries without the walk's prefix from one that a move led to on, in orders where
    /// keys with a common prefix are not adjacent.
    #[inline(never)]
    fn past_others<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        mut shown: Option<Entry<'a>>,
    ) -> Result<Option<Entry<'a>>> {
        while let (Some(entry), Some(prefix)) = (shown, &self.scope.prefix)
            && !entry.user_key().starts_with(prefix)
        {
            shown = self.advance(core, way)?;
        }
        Ok(shown)
    }

    /// A step from an entry to the adjacent one, if the two entries alone show that it is visible:
    /// the walk then stands on that entry. `None` in all other cases, which `step_slow` handles.
    /// Nothing that is called here and not inlined takes the search or a reference to the entry, so
    /// that both stay in registers.
    #[inline(always)]
    pub(crate) fn step_fast<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Entry<'a>> {
        let State::At(stand) = &mut self.state else {
            return None;
        };
        let (scope, at) = (&self.scope, stand.offset());
        if !scope.visible.is_plain(core, way) {
            return None;
        }
        let search = scope.list(core)?;
        let entry = match way {
            Direction::Forward => search.try_next(at)?,
            Direction::Backward => search.try_prev(at)?,
        };
        let to = entry.offset();
        if search.prefetch_beside(&mut self.read_ahead, at, &entry) {
            scope.read_on(core, &mut self.read_ahead, to, way);
        }
        let far = scope.bounds.end(way);
        let is_next = scope.shows_neighbour(core, stand, &entry)
            && (far.is_clearly_beyond(&core.comparator, way, entry.key())
                || is_inside(core, entry, far, way))
            && (search.order_checks == OrderChecks::Off
                || scope.come_in_order(core, way, &mut self.compared, (at, &entry)));
        is_next.then(|| {
            *stand = Parked::new(&entry);
            Entry::new(entry, &search.view)
        })
    }

    /// Any step, from the place of the walk.
    #[inline(never)]
    pub(crate) fn step_slow<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
    ) -> Result<Option<Entry<'a>>> {
        if matches!(self.state, State::Nowhere | State::Failed(_)) {
            return Ok(None);
        }
        if let Some(sought) = self.sought.take() {
            return self.step_to(core, way, sought);
        }
        if self.heading.0 != way {
            self.heading = (way, StepLimit::default());
        }
        let counted = self
            .heading
            .1
            .count(core)
            .and_then(|()| self.scope.search(core));
        let search = counted.or_else(|corruption| self.fail(corruption))?;
        let mut pass = self.scope.pass(core, &search, way);
        let outcome = match &self.state {
            State::At(stand) => {
                let (at, outcome) = (stand.offset(), pass.step_from(stand));
                if let Ok(Some(to)) = &outcome
                    && search.prefetch_beside(&mut self.read_ahead, at, to)
                {
                    self.scope
                        .read_on(core, &mut self.read_ahead, to.offset(), way);
                }
                outcome
            }
            State::Gap(reported) => pass.step_over_gap(reported),
            State::Nowhere | State::Failed(_) => Ok(None),
        };
        self.settle(&search, pass.hidden, outcome)
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
            Ok(Some(entry)) if way == Direction::Forward && is_before(&entry) => {
                self.step_slow(core, way)
            }
            Err(error) => {
                self.sought = Some(sought).filter(|_| way == Direction::Forward);
                Err(error)
            }
            shown => shown,
        }
    }

    /// Stands where a move ended, and counts the entries that it has passed. In a gap the walk
    /// copies the positions of its sides if they verify (WALK-1).
    #[inline(always)]
    fn settle<'a>(
        &mut self,
        search: &Search<'a>,
        hidden: u64,
        outcome: Outcome<'a>,
    ) -> Result<Option<Entry<'a>>> {
        self.hidden += hidden;
        self.state = match &outcome {
            Ok(Some(entry)) => State::At(Parked::new(entry)),
            Ok(None) => State::Nowhere,
            Err(gap) => State::Gap(Box::new(ReportedGap::around(search, *gap))),
        };
        Ok(outcome?.map(|entry| Entry::new(entry, &search.view)))
    }
}

impl Scope {
    /// The table's list, opened with the values kept from the last seek, if there was one.
    #[inline(always)]
    fn list<'a>(&self, core: &'a Core) -> Option<Search<'a>> {
        let view = self.kept.as_ref()?.on(&core.arena)?;
        let sentinel = Head::Points.sentinel();
        Some(Search {
            sentinel,
            ..core.points.search(view, &core.comparator)
        })
    }

    /// The table's list, opened with the values kept from the last seek, or anew.
    #[inline]
    fn search<'a>(&self, core: &'a Core) -> Result<Search<'a>, Corruption> {
        self.list(core).map_or_else(|| core.point_search(), Ok)
    }

    /// A move in this direction.
    #[inline(always)]
    fn pass<'s, 'a>(
        &'s self,
        core: &'a Core,
        search: &'s Search<'a>,
        way: Direction,
    ) -> Pass<'s, 'a> {
        Pass {
            core,
            search,
            visible: self.visible,
            bounds: &self.bounds,
            way,
            hidden: 0,
        }
    }

    /// Whether the entry after a shown one is shown, too: at a snapshot, if it is the first version
    /// of another key that is visible and no tombstone. `false` if deciding takes more.
    #[inline(always)]
    fn shows_neighbour(&self, core: &Core, stand: &Parked, next: &Verified<'_>) -> bool {
        let Visible::At(snapshot) = self.visible else {
            return true;
        };
        let is_seen = next.node().sequence() <= snapshot && !next.kind().is_point_delete();
        let differs = core.comparator.equality() == KeyEquality::Bytes && stand.has_other_key(next);
        is_seen && (differs || self.has_other_key(core, stand, next.key()))
    }

    /// Whether the entry that a walk is on verifies and has another key (VISIBILITY-4).
    #[inline(never)]
    fn has_other_key(&self, core: &Core, stand: &Parked, key: &[u8]) -> bool {
        let entry = self
            .list(core)
            .and_then(|search| stand.verify(&search.view).ok());
        entry.is_some_and(|entry| !core.comparator.are_equal(entry.key(), key))
    }

    /// Whether a step in this direction from a node keeps the order: by the image of its key, if
    /// that was compared last, or by both nodes.
    #[inline(always)]
    fn come_in_order(
        &self,
        core: &Core,
        way: Direction,
        compared: &mut (u32, u64),
        (at, next): (u32, &Verified<'_>),
    ) -> bool {
        let (left, right) = (*compared, core.comparator.image(next.key(), 0));
        *compared = (next.offset(), right);
        let is_clear = left.0 == at && way.pick((right < left.1, left.1 < right));
        is_clear || self.are_in_order(core, at, next.offset(), way)
    }

    /// Whether a step in this direction between two nodes of the list keeps their order.
    #[inline(never)]
    fn are_in_order(&self, core: &Core, at: u32, to: u32, way: Direction) -> bool {
        let (left, right) = way.pick(((to, at), (at, to)));
        self.list(core)
            .is_some_and(|search| search.are_in_order(left, right))
    }

    /// Moves the read-ahead, which is due, after a step to a node.
    #[inline(never)]
    fn read_on(&self, core: &Core, read_ahead: &mut ReadAhead, to: u32, way: Direction) {
        if let Some(search) = self.list(core) {
            search.read_on(read_ahead, to, way);
        }
    }
}

impl<'a> Pass<'_, 'a> {
    /// The first entry shown at or after a position, or the last one before it, inside the bounds.
    fn arrive(&mut self, target: &Target<'_>, read_ahead: &mut ReadAhead) -> Outcome<'a> {
        let comparator = &self.core.comparator;
        // A walk that would begin outside its near bound begins at the bound, because damage
        // outside does not concern it.
        let near = self.bounds.end(self.way.opposite()).target(comparator);
        let is_outside = target.order(comparator, &near) == self.way.opposite().outward();
        let target = if is_outside { &near } else { target };
        *read_ahead = ReadAhead::default();
        let entry = match self.way {
            Direction::Forward => self.search.find_ahead(target, read_ahead)?,
            Direction::Backward => self.search.find_before(target)?,
        };
        self.show(entry)
    }

    #[inline(never)]
    fn step_from(&mut self, from: &Parked) -> Outcome<'a> {
        let next = self.beyond(from)?;
        self.show(next)
    }

    /// The first entry from a stored one on that is visible, inside the far bound.
    #[inline]
    fn show(&mut self, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let far = self.bounds.end(self.way);
        let entry = self.visible_from(entry)?;
        Ok(entry.filter(|entry| far.is_extreme() || is_inside(self.core, *entry, far, self.way)))
    }

    /// The first entry from `entry` on that is inside the near bound. Gaps outside it are passed.
    #[cold]
    fn first_inside(&self, entry: Verified<'a>) -> Outcome<'a> {
        let back = self.way.opposite();
        let mut next = Some(entry);
        while let Some(entry) = next
            && !is_inside(self.core, entry, self.bounds.end(back), back)
        {
            next = self.adjacent_rarely(entry.offset())?;
        }
        Ok(next)
    }

    /// Goes on at the far side of a gap, strictly beyond it (WALK-1).
    #[cold]
    fn step_over_gap(&mut self, reported: &ReportedGap) -> Outcome<'a> {
        let (gap, way) = (reported.gap, self.way);
        let at = way.pick((gap.before, gap.after));
        let entry = match self.search.verified(at) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            // The far side of the gap was damaged since it was reported, so the walk goes on along
            // its links.
            Err(corruption) => return Err(self.search.gap_at(at, corruption)),
        };
        if gap.before == gap.after {
            return self.step_from(&Parked::new(&entry));
        }
        let side = reported.side(way.opposite()).map(ScanBound::across);
        let is_after = |side: ScanBound| side.is_after(&self.core.comparator, entry.node());
        if side.is_some_and(|side| is_after(side) == (way == Direction::Forward)) {
            let corruption = Corruption::new(Place::Order, gap.corruption.offset, u64::from(at), 0);
            return Err(self.no_way(corruption));
        }
        let entry = match self.first_inside(entry)? {
            Some(entry) if entry.offset() == at && way == Direction::Forward => {
                self.after_gap(gap, entry)?
            }
            entry => entry,
        };
        let shown = self.show(entry);
        match entry {
            Some(near) if way == Direction::Backward && self.leads_back(&near, &shown) => {
                self.step_from(&Parked::new(&near))
            }
            _ => shown,
        }
    }

    /// Whether a backward step from `near`, the first entry beyond a gap, found a later entry: the
    /// walk has been there, and the gap was reported.
    #[cold]
    fn leads_back(&self, near: &Verified<'a>, found: &Outcome<'a>) -> bool {
        let comparator = &self.core.comparator;
        let bound = ScanBound::beside(Direction::Forward, near.node());
        let is_after = |node: &Node<'_>| !bound.is_after(comparator, node);
        match found {
            // Versions of the key before the gap are too new, and what could be seen may have stood
            // in the gap, or in one after it.
            Err(gap) if gap.after == self.search.sentinel => gap.before != self.search.sentinel,
            Err(gap) => {
                gap.before == near.offset()
                    || matches!(self.search.verified(gap.after), Ok(Some(entry)) if is_after(entry.node()))
            }
            // The version that could be seen stands after the gap.
            Ok(shown) => shown.is_some_and(|shown| is_after(shown.node())),
        }
    }
}

/// Whether an entry lies before the bound at which a walk in this direction ends.
#[inline(never)]
fn is_inside(core: &Core, entry: Verified<'_>, far: &ScanBound, way: Direction) -> bool {
    far.is_after(&core.comparator, entry.node()) == (way == Direction::Forward)
}

/// A gap that was reported, and the positions of both its sides: whatever becomes of the entries
/// there, the walk knows what it has reported. A position is missing if the entry beside the gap no
/// longer verified.
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
        let (begin, end) = (
            side(gap.before, Direction::Forward),
            side(gap.after, Direction::Backward),
        );
        ReportedGap { gap, begin, end }
    }

    /// The side of the gap that is further in this direction.
    pub(crate) fn side(&self, way: Direction) -> Option<&ScanBound> {
        way.pick((&self.begin, &self.end)).as_ref()
    }
}
