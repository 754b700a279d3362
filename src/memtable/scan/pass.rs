//! Passes: one move of a walk in one direction, to the first entry that the walk shows. A scan
//! shows at most one entry of a run of adjacent entries. A run is the versions of one key, or,
//! under the policy `Replace`, the entries with one key and one sequence number.
//!
//! ```text
//!   a@9   m@5 r3   m@5 r2   m@5 r1   m@5 r0   z@2        a run of equals: r3 replaced the others
//!   a@9   m@8      m@7      m@6      m@5      z@2        a run of versions of one key
//!   <---- before   first             after --->          a few steps, then one search
//! ```
//! * PASS-1: a gap may have had a newer version of the entry after it, or an entry that replaced
//!   that entry. So a scan that shows one entry of a run does not show the entry after the gap, and
//!   the error of the gap, which was reported, is its report too.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyEquality;
use crate::error::{Corruption, Place, Result};
use crate::key::{Direction, SequenceNumber, Side, Target};
use crate::memtable::arena::node::{Verified, bytes_of};
use crate::memtable::arena::parked_node::Parked;
use crate::memtable::core::Core;
use crate::memtable::read::newest::newest;
use crate::memtable::scan::bounds::{ScanBound, ScanBounds};
use crate::memtable::scan::reported_gap::ReportedGap;
use crate::memtable::scan::step_limit::StepLimit;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::index::CoveringRun;
use crate::tombstone::query::Question;

/// The end of a move: on an entry, past the last entry, or in a gap.
pub(super) type Outcome<'a> = Result<Option<Verified<'a>>, Gap>;

/// One move of a walk, in one direction of the list of its table.
pub(crate) struct Pass<'s, 'a> {
    pub(crate) core: &'a Core,
    pub(crate) search: &'s Search<'a>,
    pub(crate) visible: Visible,
    pub(crate) bounds: &'s ScanBounds,
    pub(crate) way: Direction,
    /// Number of entries that the move has looked at and not shown. Entries that a search jumps
    /// over are not counted.
    pub(crate) hidden: u64,
}

/// Steps over entries of one run before a search passes the rest of the run.
const STEPS_MAX: u64 = 8;

/// The type of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// The entries with one key and one sequence number: the first has replaced the others.
    Equals,
    /// All versions of one key.
    Key,
}

impl<'a> Pass<'_, 'a> {
    /// The first entry shown at or after a position, or the last one before it, inside the bounds.
    pub(crate) fn arrive(
        &mut self,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
    ) -> Outcome<'a> {
        let comparator = &self.core.comparator;
        // A walk that would begin outside its near bound begins at the bound, so that it does not
        // report damage outside.
        let near = self.bounds.end(self.way.opposite()).target(comparator);
        let is_outside = target.order(comparator, &near) == self.way.opposite().outward();
        let target = if is_outside { &near } else { target };
        *read_ahead = ReadAhead::default();
        let entry = match self.way {
            Direction::Forward => self.search.first_of_scan(target, read_ahead)?,
            Direction::Backward => self.search.last_before(target)?,
        };
        self.show(entry)
    }

    /// The next entry shown after a shown one, inside the far bound.
    #[inline(never)]
    pub(crate) fn step_from(&mut self, from: &Parked) -> Outcome<'a> {
        let next = self.beyond(from)?;
        self.show(next)
    }

    /// The first visible entry from a stored one, if it is inside the far bound.
    #[inline]
    pub(crate) fn show(&mut self, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let far = self.bounds.end(self.way);
        let entry = self.visible_from(entry)?;
        Ok(entry.filter(|entry| far.is_extreme() || is_inside(self.core, *entry, far, self.way)))
    }

    /// The first entry from `entry` that is inside the near bound.
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

    /// Continues on the far side of a gap, strictly beyond it (WALK-1).
    #[cold]
    pub(crate) fn step_over_gap(&mut self, reported: &ReportedGap) -> Outcome<'a> {
        let (gap, way) = (reported.gap, self.way);
        let at = way.pick((gap.before, gap.after));
        let entry = match self.search.verified(at) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            // The entry at the far side was damaged after the gap was reported. The next step
            // continues along its links.
            Err(corruption) => return Err(self.search.gap_at(at, corruption)),
        };
        if gap.before == gap.after {
            return self.step_from(&Parked::new(&entry));
        }
        let side = reported.side(way.opposite()).map(ScanBound::across);
        let is_after = |side: ScanBound| side.is_after(&self.core.comparator, &entry);
        if side.is_some_and(|side| is_after(side) == (way == Direction::Forward)) {
            let corruption = Corruption::new(Place::Order, gap.corruption.offset, u64::from(at), 0);
            return Err(self.no_way(corruption));
        }
        let entry = match self.first_inside(entry)? {
            Some(entry) if entry.offset() == at && way == Direction::Forward => {
                self.after_gap(entry)?
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

    /// Whether a backward step from `near`, the first entry beyond a gap, found an entry or a gap
    /// that is not before `near`, so that the walk has been there.
    #[cold]
    fn leads_back(&self, near: &Verified<'a>, found: &Outcome<'a>) -> bool {
        let comparator = &self.core.comparator;
        let bound = ScanBound::beside(Direction::Forward, near);
        let is_after = |entry: &Verified<'_>| !bound.is_after(comparator, entry);
        match found {
            // The versions of the key before the gap are too new; the visible one may have been in
            // this gap or in a later one.
            Err(gap) if gap.after == self.search.sentinel => gap.before != self.search.sentinel,
            Err(gap) => {
                gap.before == near.offset()
                    || matches!(self.search.verified(gap.after), Ok(Some(entry)) if is_after(&entry))
            }
            // The visible version is after the gap.
            Ok(shown) => shown.is_some_and(|shown| is_after(&shown)),
        }
    }

    /// The first visible entry from a stored one, inside or outside the bounds. At a snapshot a
    /// forward pass comes here with the first version of a key.
    #[inline]
    pub(super) fn visible_from(&mut self, entry: Option<Verified<'a>>) -> Outcome<'a> {
        match (self.visible, self.way, entry) {
            (Visible::At(snapshot), ..) => self.seen_from(snapshot, entry),
            (Visible::All, Direction::Backward, Some(entry)) if self.core.replaces() => {
                self.furthest_of_run(entry, Run::Equals).map(Some)
            }
            (Visible::All, ..) => Ok(entry),
        }
    }

    /// The next stored entry after a shown one that may be shown next.
    #[inline(always)]
    pub(super) fn beyond(&mut self, from: &Parked) -> Outcome<'a> {
        match self.run() {
            Some(Run::Key) => {
                let next = self.past_run(from, Run::Key)?;
                self.moved_on(from, next)
            }
            // An entry that replaces this one may have been inserted before it after it was shown.
            Some(Run::Equals) => self.past_run(from, Run::Equals),
            None => self.adjacent_rarely(from.offset()),
        }
    }

    /// The first stored entry at or after `entry`, the end of a gap, that may be shown next
    /// (PASS-1).
    pub(super) fn after_gap(&mut self, entry: Verified<'a>) -> Outcome<'a> {
        let Some(run) = self.run() else {
            return Ok(Some(entry));
        };
        self.hidden += 1;
        self.past_run(&Parked::new(&entry), run)
    }

    /// The first entry that a snapshot sees, from a stored one.
    fn seen_from(&mut self, snapshot: SequenceNumber, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        while let Some(entry) = next {
            let newest = match self.way {
                Direction::Forward => Some(entry).filter(|entry| entry.sequence() <= snapshot),
                Direction::Backward => self.newest(snapshot, &entry)?,
            };
            self.hidden += u64::from(newest.is_none_or(|newest| newest.offset() != entry.offset()));
            if let Some(newest) = newest {
                if self.shows(snapshot, &newest)? {
                    return Ok(Some(newest));
                }
                self.hidden += 1;
            }
            limit
                .count(self.core)
                .map_err(|corruption| self.no_way(corruption))?;
            next = match newest {
                Some(dead) => self.beyond_hidden(snapshot, &dead)?,
                None if self.way == Direction::Backward => {
                    self.past_run(&Parked::new(&entry), Run::Key)?
                }
                None if limit.taken.is_multiple_of(STEPS_MAX) => {
                    self.find(self.way, &self.target(entry.key(), snapshot))?
                }
                None => self.adjacent(entry.offset())?,
            };
            next = self.moved_on(&Parked::new(&entry), next)?;
        }
        Ok(None)
    }

    /// The newest visible version of the key of `entry`, where `entry` is the oldest. This takes a
    /// search unless the entry before it has another key or is newer than the snapshot.
    fn newest(&self, snapshot: SequenceNumber, entry: &Verified<'a>) -> Outcome<'a> {
        let is_alone = match self.search.prev(entry.offset()) {
            Ok(Some(before)) => {
                before.sequence() > snapshot
                    || !self.are_of_one_run(Run::Key, &Parked::new(entry), &before)?
            }
            Ok(None) => true,
            Err(_) => false,
        };
        if is_alone {
            return Ok(Some(*entry).filter(|entry| entry.sequence() <= snapshot));
        }
        newest(self.core, self.search, entry.key(), snapshot)
    }

    /// Whether a visible entry is shown: it is no tombstone, and no range tombstone covers it.
    fn shows(&self, snapshot: SequenceNumber, entry: &Verified<'_>) -> Result<bool, Gap> {
        if entry.kind().is_point_delete() {
            return Ok(false);
        }
        let question = Question::new(entry.key(), snapshot);
        match self.core.covering(question.above(entry.sequence())) {
            Ok(cover) => Ok(cover.is_none()),
            Err(corruption) => Err(Gap {
                corruption,
                before: entry.offset(),
                after: entry.offset(),
            }),
        }
    }

    /// The next stored entry that may be shown after a hidden key: the first beyond the interval of
    /// its range tombstone, if that is newer than all entries there, or else beyond the key.
    fn beyond_hidden(&mut self, snapshot: SequenceNumber, entry: &Verified<'a>) -> Outcome<'a> {
        let mut run = CoveringRun::default();
        let (core, question) = (self.core, Question::new(entry.key(), snapshot));
        let covered = core
            .tombstones
            .covering_run(core.ground(), question, &mut run)
            .ok()
            .flatten();
        if covered.is_none() || !core.is_dead(&run) {
            return self.past_run(&Parked::new(entry), Run::Key);
        }
        self.find(
            self.way,
            &self.target(self.way.pick((&run.start, &run.end)), SequenceNumber::MAX),
        )
    }

    /// The type of the runs of which this walk shows one entry each, if the table may have any.
    #[inline(always)]
    fn run(&self) -> Option<Run> {
        match self.visible {
            Visible::At(_) => Some(Run::Key),
            Visible::All => self.core.replaces().then_some(Run::Equals),
        }
    }

    /// The next entry in this direction.
    #[inline(always)]
    fn adjacent(&self, at: u32) -> Outcome<'a> {
        match self.way {
            Direction::Forward => self.search.next(at),
            Direction::Backward => self.search.prev(at),
        }
    }

    /// [`adjacent`](Self::adjacent), compiled once for steps that are rare.
    #[inline(never)]
    pub(super) fn adjacent_rarely(&self, at: u32) -> Outcome<'a> {
        self.adjacent(at)
    }

    fn target<'k>(&self, key: &'k [u8], sequence: SequenceNumber) -> Target<'k> {
        Target::new(&self.core.comparator, key, sequence)
    }

    /// The first entry at or after a position, or, backward, the last one before it.
    fn find(&self, way: Direction, target: &Target<'_>) -> Outcome<'a> {
        match way {
            Direction::Forward => self.search.first_at_or_after(target),
            Direction::Backward => self.search.last_before(target),
        }
    }

    /// The entry that a walk is on, verified again (WALK-2).
    #[inline]
    pub(crate) fn resumed(&self, from: &Parked) -> Result<Verified<'a>, Gap> {
        from.verify(&self.search.view)
            .map_err(|corruption| self.search.gap_at(from.offset(), corruption))
    }

    /// Whether another entry is in the run of `from`.
    #[inline]
    fn are_of_one_run(&self, run: Run, from: &Parked, other: &Verified<'a>) -> Result<bool, Gap> {
        if run == Run::Equals && other.sequence() != from.sequence() {
            return Ok(false);
        }
        if self.core.comparator.equality() == KeyEquality::Bytes && from.has_other_key(other) {
            return Ok(false);
        }
        Ok(self
            .core
            .comparator
            .are_equal(self.resumed(from)?.key(), other.key()))
    }

    /// The position next to the run of an entry, on its far side.
    fn position_past<'k>(&self, run: Run, entry: &Verified<'k>) -> Target<'k> {
        let sequence = match run {
            Run::Key => self.way.pick((SequenceNumber::MAX, 0)),
            Run::Equals => entry.sequence(),
        };
        let before = self.target(entry.key(), sequence);
        self.way
            .pick((before, before.with_revision(0).with_side(Side::After)))
    }

    /// The next entry in this direction beyond the run of `from`: takes a few steps, then a search.
    #[inline(never)]
    fn past_run(&mut self, from: &Parked, run: Run) -> Outcome<'a> {
        let mut at = from.offset();
        for _ in 0..STEPS_MAX {
            match self.adjacent(at)? {
                Some(next) if self.are_of_one_run(run, from, &next)? => {
                    at = next.offset();
                    self.hidden += 1;
                }
                next => return Ok(next),
            }
        }
        self.find(self.way, &self.position_past(run, &self.resumed(from)?))
    }

    /// The entry of the run of `entry` that is furthest in this direction: takes a few steps, then
    /// a search. If both a step and the search meet a gap, the gap of the step is reported.
    pub(super) fn furthest_of_run(
        &mut self,
        entry: Verified<'a>,
        run: Run,
    ) -> Result<Verified<'a>, Gap> {
        let (mut edge, mut met) = (entry, None);
        for _ in 0..STEPS_MAX {
            match self.adjacent_rarely(edge.offset()) {
                Ok(Some(next)) if self.are_of_one_run(run, &Parked::new(&edge), &next)? => {
                    edge = next;
                    self.hidden += 1;
                }
                Ok(_) => return Ok(edge),
                // A search may find a way around the gap.
                Err(gap) => {
                    met = Some(gap);
                    break;
                }
            }
        }
        let found = self.find(self.way.opposite(), &self.position_past(run, &edge));
        match found.map_err(|gap| met.unwrap_or(gap))? {
            Some(found) if self.are_of_one_run(run, &Parked::new(&edge), &found)? => Ok(found),
            _ => Ok(edge),
        }
    }

    /// A gap without sides, after which the walk cannot continue.
    #[cold]
    pub(crate) fn no_way(&self, corruption: Corruption) -> Gap {
        Gap {
            corruption,
            before: self.search.sentinel,
            after: self.search.sentinel,
        }
    }

    /// Checks, with 0 protection bytes, that a move leads further in the order of the keys as read.
    /// Such keys are not verified, and a scan that searches for a damaged key could loop.
    #[inline(always)]
    fn moved_on(&self, from: &Parked, to: Option<Verified<'a>>) -> Outcome<'a> {
        let Some(next) = to.filter(|_| self.search.view.width.bytes == 0) else {
            return Ok(to);
        };
        let from = self.resumed(from)?;
        let moved = self.core.comparator.compare(next.key(), from.key());
        let moved = moved.then(from.sequence().cmp(&next.sequence()));
        if moved.then(from.revision().cmp(&next.revision())) == self.way.outward() {
            return Ok(to);
        }
        let corruption = Corruption::new(
            Place::Order,
            bytes_of(from.offset()),
            u64::from(next.offset()),
            0,
        );
        Err(self.no_way(corruption))
    }
}

/// Whether an entry is before the bound at which a walk in this direction ends.
#[inline(never)]
pub(crate) fn is_inside(core: &Core, entry: Verified<'_>, far: &ScanBound, way: Direction) -> bool {
    far.is_after(&core.comparator, &entry) == (way == Direction::Forward)
}
