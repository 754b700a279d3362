//! Walks: a position in a table that moves both ways, without a borrow of the table.
//!
//! ```text
//!             go_to, begin                   step
//!   Nowhere ---------------------> At(entry) <------+
//!      ^                            |   |  damage   |  continues strictly beyond the gap
//!      +----- past an end ----------+   +--> Gap ---+
//!   Failed(error): as Nowhere, after damage that left no way to continue
//!
//!   go_to       position, or near bound -> search -------------------> show
//!   step_plain  entry -> neighbour, if the two entries decide alone, in a table without options
//!   step_fast   the same, in any table
//!   step_slow   entry -> beyond it, and beyond its run --------------> show
//!               gap ---> its far side, strictly beyond it -----------> show
//!   show        the first visible entry from here, if inside the far bound
//! ```
//! * WALK-1: a walk reports a gap once, and keeps the positions of both its sides in its own
//!   memory. The next step continues on the other side, strictly beyond what was reported.
//! * WALK-2: a call returns only an entry that it has verified itself. From the node that it leaves
//!   a step uses only the link, whose tag is bound to the node, and the key. It verifies the key
//!   again, unless the keys' hashes, which the walk keeps in its own memory, decide.
//! * WALK-3: a walk in one direction ends under every comparator, because a `StepLimit` counts its
//!   steps.
//!
//! A step never shows an entry twice. Entries that are inserted where the walk has been are not
//! shown; entries that are inserted further on may be.
//!
//! The caller passes the table that the walk was made for to every call. Cursors and ranges have a
//! walk and its table, which they borrow or share.
//!
//! One thread at a time moves a walk; tables may be written meanwhile. Steps are expected O(1),
//! seeks O(log n).

#![forbid(unsafe_code)]

use crate::comparator::{KeyComparator, KeyOrder};
use crate::error::{Corruption, Error, Result};
use crate::integrity::options::OrderChecks;
use crate::key::{Direction, SequenceNumber, Side, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::Frame;
use crate::memtable::arena::parked_node::Parked;
use crate::memtable::core::Core;
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::{Operands, operands};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, prefix_bounds, scan_bounds};
use crate::memtable::scan::pass::{Outcome, Run, is_inside};
use crate::memtable::scan::reported_gap::ReportedGap;
use crate::memtable::scan::scope::{Plain, Scope};
use crate::memtable::scan::step_limit::StepLimit;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Search;

/// A position in a table that moves both ways.
pub(crate) struct Walk {
    pub(crate) scope: Scope,
    pub(crate) state: State,
    /// The direction of the last slow step, and the count of slow steps in that direction.
    heading: (Direction, StepLimit),
    /// How far ahead memory was prefetched.
    read_ahead: ReadAhead,
    /// The node that the order check compared last, and the image of its verified key.
    compared: (u32, u64),
    /// After a seek that met damage: its position, until a forward step has come to it.
    sought: Option<Box<ScanBound>>,
    /// Number of entries that the walk has looked at and not shown.
    pub(crate) hidden: u64,
}

/// The position of a walk.
#[derive(Clone)]
pub(crate) enum State {
    /// Not positioned: there is no entry, and a step does not move the walk.
    Nowhere,
    /// On an entry, with the steps from it that may be plain.
    At(Parked, Plain),
    Gap(Box<ReportedGap>),
    /// Not positioned, because of damage outside of a gap, as in a control word.
    Failed(Corruption),
}

impl Walk {
    pub(crate) fn new(visible: Visible, bounds: ScanBounds) -> Self {
        Walk {
            scope: Scope {
                visible,
                bounds,
                prefix: None,
                kept: Frame::NONE,
            },
            state: State::Nowhere,
            heading: (Direction::Forward, StepLimit::default()),
            read_ahead: ReadAhead::default(),
            compared: (0, 0),
            sought: None,
            hidden: 0,
        }
    }

    /// Replaces bounds and prefix by these bounds. The walk is not positioned afterwards.
    pub(crate) fn set_bounds(&mut self, bounds: ScanBounds) {
        (self.scope.bounds, self.scope.prefix) = (bounds, None);
        self.leave();
    }

    /// Replaces bounds and prefix by this prefix. The walk is not positioned afterwards.
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
            State::Nowhere | State::At(..) => Ok(()),
        }
    }

    /// Whether the walk is on an entry.
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.state, State::At(..))
    }

    /// Makes the next step one that is not plain.
    pub(crate) fn slow_down(&mut self) {
        if let State::At(_, plain) = &mut self.state {
            *plain = Plain::Never;
        }
    }

    /// The entry that the walk is on, verified again (WALK-2).
    pub(crate) fn entry<'a>(&self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let State::At(parked, _) = &self.state else {
            return Ok(None);
        };
        let Some(search) = self.scope.list(core) else {
            return Ok(None);
        };
        Ok(Some(Entry::new(parked.verify(&search.view)?, core)))
    }

    /// The merge operands of the key that the walk is on, if its entry is one.
    pub(crate) fn operands<'a>(&self, core: &'a Core) -> Result<Option<Operands<'a>>> {
        let State::At(parked, _) = &self.state else {
            return Ok(None);
        };
        let search = self.scope.search(core)?;
        let entry = parked.verify(&search.view)?;
        let is_operand = entry.kind() == Kind::MERGE;
        is_operand.then(|| operands(core, entry)).transpose()
    }

    /// Moves to the first entry shown at or after (`key`, `sequence`).
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
        // At a snapshot a key has one shown version, which may be before the position.
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

    /// Moves to the first entry shown at or after a position, or backward to the last one before
    /// it.
    pub(crate) fn go_to<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        target: &Target<'_>,
    ) -> Result<Option<Entry<'a>>> {
        self.leave();
        // A seek counts steps from 0, and reads the table's checked values again.
        self.heading.1 = StepLimit::default();
        let search = core
            .point_search()
            .or_else(|corruption| self.fail(corruption))?;
        self.scope.kept = search.view.frame();
        let mut pass = self.scope.pass(core, &search, way);
        let prefix = self.scope.prefix.as_ref();
        let is_absent =
            prefix.is_some_and(|prefix| core.filters.lacks_prefix(&search.view, prefix));
        let outcome = if is_absent {
            Ok(None)
        } else {
            pass.arrive(target, &mut self.read_ahead)
        };
        match self.settle(core, &search, pass.hidden, outcome) {
            Ok(shown) if core.comparator.key_order() != KeyOrder::Bytes => {
                self.past_others(core, way, shown)
            }
            shown => shown,
        }
    }

    /// Moves to the first entry shown in this direction, from a position or from the end of the
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

    /// Takes one step, and returns the entry that it leads to.
    #[inline(always)]
    pub(crate) fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        match way {
            Direction::Forward => self.next(core),
            Direction::Backward => self.prev(core),
        }
    }

    /// A step forward, compiled in this crate and not in the caller's.
    #[inline(never)]
    fn next<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let plain = self.step_plain(core, Direction::Forward);
        if plain.is_some() {
            Ok(plain)
        } else {
            self.step_any(core, Direction::Forward)
        }
    }

    /// A step backward.
    #[inline(never)]
    fn prev<'a>(&mut self, core: &'a Core) -> Result<Option<Entry<'a>>> {
        let plain = self.step_plain(core, Direction::Backward);
        if plain.is_some() {
            Ok(plain)
        } else {
            self.step_any(core, Direction::Backward)
        }
    }

    /// A step that is not plain.
    #[inline(never)]
    fn step_any<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        match self.advance(core, way) {
            Ok(shown) if core.comparator.key_order() != KeyOrder::Bytes => {
                self.past_others(core, way, shown)
            }
            shown => shown,
        }
    }

    /// A step that is not plain, without regard to the prefix.
    fn advance<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        let fast = self.step_fast(core, way);
        if fast.is_some() {
            Ok(fast)
        } else {
            self.step_slow(core, way)
        }
    }

    /// Moves from `entry`, on which the walk is, to the last version shown of its key in this
    /// direction. A snapshot sees one version.
    pub(crate) fn go_to_last_version<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        entry: Entry<'a>,
    ) -> Result<Option<Entry<'a>>> {
        let (&State::At(parked, _), Visible::All) = (&self.state, self.scope.visible) else {
            return Ok(Some(entry));
        };
        let search = self
            .scope
            .search(core)
            .or_else(|corruption| self.fail(corruption))?;
        let mut pass = self.scope.pass(core, &search, way);
        let last = pass
            .resumed(&parked)
            .and_then(|entry| pass.furthest_of_run(entry, Run::Key));
        pass.way = way.opposite();
        if let Ok(last) = &last
            && !is_inside(core, *last, self.scope.bounds.end(way), way)
        {
            return self.begin(core, way.opposite(), None);
        }
        let last = last.and_then(|last| pass.show(Some(last)));
        // These entries are not counted as hidden, because the range shows them later.
        self.settle(core, &search, 0, last)
    }

    /// The gap that the walk is in, with the positions of its sides.
    pub(crate) fn gap(&self) -> Option<&ReportedGap> {
        match &self.state {
            State::Gap(reported) => Some(reported),
            State::Nowhere | State::At(..) | State::Failed(_) => None,
        }
    }

    /// The position from which a walk continues after it has shown a version of a key.
    #[inline]
    pub(crate) fn passed(&self, way: Direction, key: &[u8], sequence: SequenceNumber) -> ScanBound {
        ScanBound::beside_version(way, key, way.pick(self.scope.visible.extent(sequence)))
    }

    /// How far a walk in this direction has come: it has passed everything before the returned
    /// position.
    #[cold]
    pub(crate) fn progress(&self, core: &Core, way: Direction) -> Result<ScanBound, Corruption> {
        let parked = match &self.state {
            State::At(parked, _) => parked,
            State::Gap(reported) => {
                return Ok(reported
                    .side(way)
                    .cloned()
                    .unwrap_or_else(|| ScanBound::extreme(way)));
            }
            State::Nowhere | State::Failed(_) => return Ok(ScanBound::extreme(way)),
        };
        let search = self.scope.search(core)?;
        if let Ok(entry) = parked.verify(&search.view) {
            return Ok(self.passed(way, entry.key(), entry.sequence()));
        }
        // The entry was damaged after the walk came to it. The position is then next to the entry
        // that its link names.
        match self
            .scope
            .pass(core, &search, way)
            .adjacent_rarely(parked.offset())
        {
            Ok(Some(entry)) => Ok(ScanBound::beside(way.opposite(), &entry)),
            Ok(None) => Ok(ScanBound::extreme(way)),
            // The entry that its link names is damaged, too.
            Err(gap) => Err(gap.corruption),
        }
    }

    /// Makes the walk not positioned, because of damage outside of a gap.
    #[cold]
    pub(crate) fn fail<T>(&mut self, corruption: Corruption) -> Result<T> {
        self.state = State::Failed(corruption);
        Err(corruption.into())
    }

    /// Steps from `shown` to the first entry with the walk's prefix, for orders in which keys with
    /// a common prefix are not adjacent.
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

    /// Steps from an entry to the adjacent one, if the step may be plain, and if the two entries
    /// alone decide that it is shown. `None` in all other cases, which `step_fast` and `step_slow`
    /// handle.
    #[inline(always)]
    pub(crate) fn step_plain<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Entry<'a>> {
        match &self.state {
            State::At(_, plain) if plain.holds(way) => {}
            _ => return None,
        }
        let search = self.scope.list(core)?.plain();
        self.step_in(core, search, OrderChecks::Off, way)
    }

    /// [`step_plain`](Self::step_plain) for a step that may not be plain. Compiled once for each
    /// direction.
    #[inline(never)]
    pub(crate) fn step_fast<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Entry<'a>> {
        let (search, checks) = (self.scope.list(core)?, core.points.order_checks);
        match &self.state {
            State::At(_, plain) if !plain.holds(way) => {}
            _ => return None,
        }
        if !self.scope.visible.is_plain(core, way) {
            return None;
        }
        match way {
            Direction::Forward => self.step_in(core, search, checks, Direction::Forward),
            Direction::Backward => self.step_in(core, search, checks, Direction::Backward),
        }
    }

    /// Steps from an entry to the adjacent one in an open list, if the two decide alone. No function
    /// that is called here and not inlined takes the search or a reference to the entry, so both
    /// stay in registers.
    #[inline(always)]
    fn step_in<'a>(
        &mut self,
        core: &'a Core,
        search: Search<'a>,
        checks: OrderChecks,
        way: Direction,
    ) -> Option<Entry<'a>> {
        let State::At(parked, _) = &mut self.state else {
            return None;
        };
        let (scope, at) = (&self.scope, parked.offset());
        let entry = match way {
            Direction::Forward => search.try_next(at)?,
            Direction::Backward => search.try_prev(at)?,
        };
        let to = entry.offset();
        if search.prefetch_beside(&mut self.read_ahead, at, &entry, way) {
            scope.read_on(core, &mut self.read_ahead, to, way);
        }
        let far = scope.bounds.end(way);
        let is_next = scope.shows_neighbour(core, search.comparator.equality(), parked, &entry)
            && (far.is_clearly_beyond(search.comparator, way, entry.key())
                || is_inside(core, entry, far, way))
            && (checks == OrderChecks::Off
                || scope.come_in_order(core, way, &mut self.compared, (at, &entry)));
        is_next.then(|| {
            *parked = Parked::new(&entry);
            Entry::new(entry, core)
        })
    }

    /// Takes any step.
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
            State::At(parked, _) => {
                let (at, outcome) = (parked.offset(), pass.step_from(parked));
                if let Ok(Some(to)) = &outcome
                    && search.prefetch_beside(&mut self.read_ahead, at, to, way)
                {
                    self.scope
                        .read_on(core, &mut self.read_ahead, to.offset(), way);
                }
                outcome
            }
            State::Gap(reported) => pass.step_over_gap(reported),
            State::Nowhere | State::Failed(_) => Ok(None),
        };
        self.settle(core, &search, pass.hidden, outcome)
    }

    /// Takes a step after a seek that met damage. A forward step does not show an entry before the
    /// position of the seek.
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

    /// Sets the walk to where a move ended, and counts the entries that the move has not shown. For
    /// a gap it copies the positions of both sides, if they verify (WALK-1).
    #[inline(always)]
    fn settle<'a>(
        &mut self,
        core: &'a Core,
        search: &Search<'a>,
        hidden: u64,
        outcome: Outcome<'a>,
    ) -> Result<Option<Entry<'a>>> {
        self.hidden += hidden;
        self.state = match &outcome {
            Ok(Some(entry)) => State::At(Parked::new(entry), self.scope.plain(core)),
            Ok(None) => State::Nowhere,
            Err(gap) => State::Gap(Box::new(ReportedGap::around(search, *gap))),
        };
        Ok(outcome?.map(|entry| Entry::new(entry, core)))
    }
}
