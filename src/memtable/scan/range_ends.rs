//! The two ends of a range: a walk for each, for keys ascending or descending.
//!
//! ```text
//!   front ->  a@9  a@5  [gap]  c@4  <- back       the ends stop where they meet
//!
//!   stored    a@9   b@7   b@4   c@2               a descending range shows c@2, b@7, b@4, a@9:
//!                    <-----------                 Keys: to the key before, to its first version
//!                    ----->                       Versions: through the key's other versions
//!              <-----                             Keys: from the first version to the next key
//! ```
//! * RANGE-1: each end keeps a position in its own memory: how far it has come, over entries and
//!   gaps, or where a seek put it. An end stops at the position of the other end, also if damage
//!   is there.
//! * RANGE-2: only the end that reaches a gap first reports it.
//! * RANGE-3: the steps of a walk are plain only in an ascending range whose other end has neither
//!   moved nor been sought. Whatever moves an end slows the walk of the other one down.
//!
//! A descending range shows keys in descending order, and the newest version of each key first. Its
//! back moves through that order the other way.
//!
//! One thread at a time moves the ends; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::key::Direction;
use crate::memtable::core::Core;
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::bounds::{ScanBound, ScanBounds};
use crate::memtable::scan::step_limit::StepLimit;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::scan::walk::{State, Walk};

/// Both ends of a range, without a borrow of the table. The caller passes the table to each call.
pub(crate) struct Ends {
    pub(crate) front: RangeEnd,
    pub(crate) back: RangeEnd,
    /// The direction of keys in the range's order.
    pub(crate) keys: Direction,
    /// Whether, since the last seek, the ends have met or one end has come to the end of the range.
    is_over: bool,
}

/// One end of a range.
pub(crate) struct RangeEnd {
    pub(crate) walk: Walk,
    state: End,
    /// How far the end has come (RANGE-1), in the order of the range. If keys ascend, this is
    /// unknown until the other end moves, except after a seek.
    place: Option<ScanBound>,
    /// In a descending range, the place from which the walk leaves the key whose versions it shows:
    /// the last stored version of the key in the direction of keys, or the gap after it. Unknown
    /// after a seek.
    edge: Option<State>,
    /// In a descending range, the sides of the two gaps that were reported last. A key may have a
    /// gap on either side.
    reported: [Option<(u32, u32)>; 2],
    limit: StepLimit,
}

/// The place where the next step of an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At its end of the range.
    Fresh,
    /// At its `place`, after a seek.
    Sought,
    /// At the position of its walk.
    Moving,
    /// In a descending range: at the position of its walk, which moves among versions of a key.
    Versions,
    /// In a descending range: at the position of its walk, which moves to another key.
    Keys,
}

impl RangeEnd {
    fn new(walk: Walk) -> Self {
        let limit = StepLimit::default();
        RangeEnd {
            walk,
            state: End::Fresh,
            place: None,
            edge: None,
            reported: [None; 2],
            limit,
        }
    }

    /// Takes one step; the first step goes to this end of the range, or to its place. Not called
    /// once the range is over.
    #[inline(always)]
    fn advance<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        if self.state == End::Moving {
            return self.walk.step(core, way);
        }
        self.state = End::Moving;
        self.walk.begin(core, way, self.place.as_ref())
    }

    /// Whether the last move ends the range: it came past an end, or met an error without a gap.
    #[inline(always)]
    fn is_over(&self) -> bool {
        matches!(self.walk.state, State::Nowhere | State::Failed(_))
    }

    /// Records how far the end has come.
    fn note_place(&mut self, core: &Core, way: Direction) -> Result<(), Corruption> {
        if self.state == End::Moving && self.place.is_none() {
            self.place = Some(self.walk.progress(core, way)?);
        }
        Ok(())
    }

    /// The position at which an error begins to hide entries: the near side of the gap, or, for a
    /// backward move, the near side of the entry next to it. The gap hides that entry too, unless
    /// the entry was shown before or the other end has reported the gap.
    #[cold]
    fn error_begins(
        &self,
        comparator: &KeyComparator,
        way: Direction,
        other: &Walk,
    ) -> Option<ScanBound> {
        let near = self
            .walk
            .gap()
            .and_then(|reported| reported.side(way.opposite()));
        let Some(near) = near else {
            return self.place.clone();
        };
        // The other walk may be on the damaged entry, and names another `before` then. So `after`
        // is compared.
        let after = |walk: &Walk| walk.gap().map(|reported| reported.gap.after);
        let entry = near.across();
        let begun = self
            .place
            .as_ref()
            .unwrap_or(self.walk.scope.bounds.end(way.opposite()));
        let is_new = entry.order(comparator, begun).is_le();
        let hides = way == Direction::Backward && is_new && after(&self.walk) != after(other);
        Some(if hides && entry.order(comparator, near).is_gt() {
            entry
        } else {
            near.clone()
        })
    }

    /// Undoes a move that led beyond the other end. The range neither shows nor reports its result.
    fn take_back(&mut self) {
        let (place, reported) = (self.place.take(), self.reported);
        self.reset(place);
        self.reported = reported;
    }

    /// Starts again, at the end of the range or at a place.
    fn reset(&mut self, place: Option<ScanBound>) {
        self.walk.leave();
        self.state = if place.is_some() {
            End::Sought
        } else {
            End::Fresh
        };
        (self.place, self.edge, self.reported) = (place, None, [None; 2]);
        self.limit = StepLimit::default();
    }
}

/// Steps of an end of a descending range: keys in one direction of the table, and the versions of
/// each key in the other.
impl RangeEnd {
    /// Takes one step. Passes gaps that either end has reported.
    fn advance_by_keys<'a>(
        &mut self,
        core: &'a Core,
        keys: Direction,
        known: [Option<(u32, u32)>; 2],
    ) -> Result<Option<Entry<'a>>> {
        loop {
            self.limit
                .count(core)
                .or_else(|corruption| self.walk.fail(corruption))?;
            match self.turn(core, keys) {
                Ok(ControlFlow::Break(entry)) => return Ok(entry),
                Ok(ControlFlow::Continue(())) => {}
                Err(_) if self.is_known(known) => {}
                Err(error) => {
                    self.reported = [self.sides(), self.reported[0]];
                    return Err(error);
                }
            }
        }
    }

    /// Moves the walk once. Continues unless the move led to an entry that the range shows, or past
    /// the end.
    fn turn<'a>(&mut self, core: &'a Core, keys: Direction) -> Turn<'a> {
        let versions = keys.opposite();
        match self.state {
            End::Fresh | End::Sought if self.is_before_key(keys) => {
                self.begin_beside_key(core, keys, versions)
            }
            End::Fresh | End::Sought => {
                self.state = End::Versions;
                let entry = self.walk.begin(core, versions, self.place.as_ref())?;
                self.come_to_version(core, keys, entry)
            }
            End::Keys => {
                let entry = self.walk.step(core, keys)?;
                self.come_to_key(core, keys, entry)
            }
            End::Versions | End::Moving => {
                let entry = self.walk.step(core, versions)?;
                self.come_to_version(core, keys, entry)
            }
        }
    }

    /// Handles a step among versions: it led to another version of the key, or the key has no more.
    fn come_to_version<'a>(
        &mut self,
        core: &'a Core,
        keys: Direction,
        entry: Option<Entry<'a>>,
    ) -> Turn<'a> {
        let key = self.key();
        let is_same = |entry: &Entry<'_>, key| core.comparator.are_equal(entry.user_key(), key);
        if let Some(entry) = entry.filter(|entry| key.is_some_and(|key| is_same(entry, key))) {
            return Ok(ControlFlow::Break(Some(entry)));
        }
        let Some(edge) = self.edge.take() else {
            return self.begin_beside_key(core, keys, keys);
        };
        (self.state, self.walk.state) = (End::Keys, edge);
        Ok(ControlFlow::Continue(()))
    }

    /// Begins on one side of the key that the end has come to, and moves to a key from there.
    fn begin_beside_key<'a>(
        &mut self,
        core: &'a Core,
        keys: Direction,
        side: Direction,
    ) -> Turn<'a> {
        self.state = End::Keys;
        let from = self.key().map(|key| ScanBound::beside_key(side, key));
        let entry = self.walk.begin(core, keys, from.as_ref())?;
        self.come_to_key(core, keys, entry)
    }

    /// Handles a step to another key: continues to the first version of that key that the range
    /// shows.
    fn come_to_key<'a>(
        &mut self,
        core: &'a Core,
        keys: Direction,
        entry: Option<Entry<'a>>,
    ) -> Turn<'a> {
        let Some(entry) = entry else {
            return Ok(ControlFlow::Break(None));
        };
        let order = self
            .key()
            .map(|key| core.comparator.compare(entry.user_key(), key));
        let is_known = order.is_some_and(Ordering::is_eq);
        // A version of the last key was inserted meanwhile; the range has finished that key.
        if is_known && !self.is_before_key(keys) {
            return Ok(ControlFlow::Continue(()));
        }
        // An end never moves to a key that is not beyond its last one.
        if !is_known && order.is_some_and(|order| order != keys.outward()) {
            let corruption = Corruption::new(Place::Order, 0, 0, 0).with_sequence(entry.sequence());
            return self.walk.fail(corruption);
        }
        self.place = Some(ScanBound::beside_key(keys, entry.user_key()));
        self.state = End::Versions;
        let first = self.walk.go_to_last_version(core, keys, entry);
        self.edge = Some(self.walk.state.clone());
        Ok(first?.map_or(ControlFlow::Continue(()), |entry| {
            ControlFlow::Break(Some(entry))
        }))
    }

    /// The key that the end has come to.
    fn key(&self) -> Option<&[u8]> {
        self.place.as_ref().and_then(ScanBound::key)
    }

    /// Whether the end has not shown any version of the key that it has come to.
    fn is_before_key(&self, keys: Direction) -> bool {
        self.place
            .as_ref()
            .is_none_or(|place| place.is_beside_key(keys))
    }

    /// The nodes on both sides of the gap that the walk is in.
    fn sides(&self) -> Option<(u32, u32)> {
        self.walk
            .gap()
            .map(|reported| (reported.gap.before, reported.gap.after))
    }

    /// Whether an end has already reported the gap of this walk (RANGE-2).
    fn is_known(&self, known: [Option<(u32, u32)>; 2]) -> bool {
        let sides = self.sides();
        sides.is_some() && (self.reported.contains(&sides) || known.contains(&sides))
    }
}

/// The result of one move of a descending range.
type Turn<'a> = Result<ControlFlow<Option<Entry<'a>>>>;

impl Ends {
    pub(crate) fn new(visible: Visible, keys: Direction, bounds: ScanBounds) -> Self {
        let end = |bounds| RangeEnd::new(Walk::new(visible, bounds));
        Ends {
            front: end(bounds.clone()),
            back: end(bounds),
            keys,
            is_over: false,
        }
    }

    /// The end that moves in this direction, and the other end.
    #[inline(always)]
    fn moving_and_other(&mut self, way: Direction) -> (&mut RangeEnd, &mut RangeEnd) {
        match way {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        }
    }

    /// A step of the front, compiled in this crate and not in the caller's.
    #[inline(never)]
    pub(crate) fn next<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Forward)
    }

    /// A step of the back.
    #[inline(never)]
    pub(crate) fn next_back<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Backward)
    }

    /// Takes a step of one end. While the other end has not moved, most steps are plain steps of the
    /// walk (RANGE-3).
    #[inline(always)]
    fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Result<Entry<'a>>> {
        let (moving, _) = self.moving_and_other(way);
        if let Some(entry) = moving.walk.step_plain(core, way) {
            return Some(Ok(entry));
        }
        self.step_any(core, way)
    }

    /// Takes any step of an end.
    #[inline(never)]
    fn step_any<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Result<Entry<'a>>> {
        if self.is_over {
            return None;
        }
        let keys = self.keys;
        let (moving, other) = self.moving_and_other(way);
        other.walk.slow_down();
        if keys == Direction::Backward {
            let moved = moving.advance_by_keys(core, way.opposite(), other.reported);
            return self.meet(core, way, moved);
        }
        if other.state == End::Fresh {
            if moving.state == End::Moving
                && let Some(entry) = moving.walk.step_fast(core, way)
            {
                return Some(Ok(entry));
            }
            let moved = moving.advance(core, way);
            moving.place = None;
            return self.finish_alone(way, moved);
        }
        if let Err(corruption) = moving
            .note_place(core, way)
            .and_then(|()| other.note_place(core, way.opposite()))
        {
            let failed = moving.walk.fail(corruption);
            self.is_over = true;
            return Some(failed);
        }
        let moved = moving.advance(core, way);
        self.meet(core, way, moved)
    }

    /// Handles the result of a move while the other end has not moved.
    #[inline(never)]
    fn finish_alone<'a>(
        &mut self,
        way: Direction,
        moved: Result<Option<Entry<'a>>>,
    ) -> Option<Result<Entry<'a>>> {
        let (moving, _) = self.moving_and_other(way);
        if moving.is_over() {
            moving.place = Some(ScanBound::extreme(way));
            self.is_over = true;
        }
        moved.transpose()
    }

    /// Handles the result of a move when both ends have moved: shows or reports it if it is before
    /// the position of the other end (RANGE-1).
    #[inline(never)]
    fn meet<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        moved: Result<Option<Entry<'a>>>,
    ) -> Option<Result<Entry<'a>>> {
        let (comparator, keys) = (&core.comparator, self.keys);
        let (moving, other) = self.moving_and_other(way);
        moving.walk.slow_down();
        let inside = match (&moved, &other.place) {
            (Ok(None), _) => false,
            (Ok(Some(entry)), Some(limit)) => {
                let is_turned = keys == Direction::Backward
                    && limit
                        .key()
                        .is_some_and(|key| !comparator.are_equal(entry.user_key(), key));
                let is_before = entry.is_before(comparator, &limit.target(comparator)) != is_turned;
                is_before == (way == Direction::Forward)
            }
            (Err(_), Some(limit)) if keys == Direction::Forward => {
                let begin = moving.error_begins(comparator, way, &other.walk);
                let order = begin.map(|scan_bound| scan_bound.order(comparator, limit));
                order.is_none_or(|order| order == way.opposite().outward())
            }
            // The other end has not moved, or, in a descending range, has not reported this gap.
            _ => true,
        };
        if !inside {
            moving.take_back();
            self.is_over = true;
            return None;
        }
        if moving.is_over() {
            self.is_over = true;
            return moved.transpose();
        }
        match &moved {
            Ok(entry) => {
                moving.place =
                    entry.map(|entry| moving.walk.passed(way, entry.user_key(), entry.sequence()))
            }
            Err(_) if keys == Direction::Forward => {
                moving.place = moving.walk.progress(core, way).ok()
            }
            Err(_) => {}
        }
        moved.transpose()
    }

    /// Moves the end of this direction to a position.
    pub(crate) fn seek(&mut self, way: Direction, place: ScanBound) {
        let (moving, other) = self.moving_and_other(way);
        moving.reset(Some(place));
        other.walk.slow_down();
        self.is_over = false;
    }

    /// Restarts both ends, with another order of keys and other bounds.
    pub(crate) fn restart(&mut self, keys: Direction, bounds: ScanBounds) {
        *self = Ends::new(self.front.walk.scope.visible, keys, bounds);
    }
}
