//! Ranges: iterators with a walk at each end, keys ascending or descending.
//!
//! ```text
//!   front ->  a@9  a@5  [gap]  c@4  <- back        the two ends stop where they meet, once
//!
//!   stored      a@9   b@7   b@4   c@2              descending: c@2, b@7, b@4, a@9
//!               <---- b@7 <----- from              Keys: from the first version of a key to the key before it,
//!                     ----> ---->                  and to that key's first version; Versions: through the others
//! ```
//! * RANGE-1: each end keeps a position in its own memory: how far it has come, over entries and
//!   gaps, or where a seek put it. An end stops at the position of the other end, whatever is
//!   there.
//! * RANGE-2: a gap is reported by the end that reaches it first.
//! * RANGE-3: the order of a descending range is keys descending, and the newest version of each
//!   key first; its back goes through that order the other way. An end never goes to a key that is
//!   not beyond its last one.
//!
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::key::{Direction, SequenceNumber};
use crate::memtable::core::Core;
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::bounds::{KeyRange, ScanBound, ScanBounds, scan_bounds, version_bounds};
use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
use crate::memtable::scan::step_limit::StepLimit;
use crate::memtable::scan::visibility::{Raw, Visibility, Visible};
use crate::memtable::scan::walk::{State, Walk};

/// A range of entries, iterated from both ends. A damaged place is reported once, by the end that
/// reaches it first, which then goes on after it. Made by [`range`](crate::TableReader::range),
/// [`range_at`](crate::TableReader::range_at) and [`versions`](crate::TableReader::versions);
/// [`owned`](Self::owned) gives it a share in the table, and [`descending`](Self::descending) turns
/// the order of keys around.
///
/// A range that borrows its table is an iterator over entries. One that has a share in the table
/// lends them, by [`next_entry`](Self::next_entry) and [`next_back_entry`](Self::next_back_entry),
/// and is an iterator over verified copies of them.
///
/// ```
/// use paranoid_memtable::{MemTable, OwnedRange};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// for (sequence, key) in [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")] {
///     table.put(sequence, key, b"value")?;
/// }
/// let mut range: OwnedRange = table.range(b"b".as_slice()..).owned();
/// drop(table);
/// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"d".as_slice()));
/// let rest = range.map(|entry| Ok(entry?.user_key().to_vec())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
/// assert_eq!(rest, [b"b", b"c"]);
/// # Ok(()) }
/// ```
#[must_use]
pub struct Range<H: Handle, L: Visibility = Raw> {
    handle: H,
    pub(crate) ends: Ends,
    shows: PhantomData<L>,
}

/// A range that keeps its table alive: `'static`, `Send` and `Sync`.
///
/// ```
/// use paranoid_memtable::{MemTable, OwnedRange};
/// let table = MemTable::default();
/// table.put(1, b"a", b"1")?;
/// let mut range: OwnedRange = table.range(..).owned();
/// drop(table); // the range keeps the memory alive
/// assert_eq!(range.next().expect("one entry")?.value(), b"1");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type OwnedRange<L = Raw> = Range<Owned, L>;

/// Both ends of a range, without a borrow of its table, which each call is given.
pub(crate) struct Ends {
    pub(crate) front: RangeEnd,
    pub(crate) back: RangeEnd,
    /// The way that keys go in the range's order.
    keys: Direction,
    /// Whether the ends have met, or one has reached the other side of the range, since the last
    /// seek.
    is_over: bool,
}

/// One end of a range.
pub(crate) struct RangeEnd {
    pub(crate) walk: Walk,
    state: End,
    /// How far it has come (RANGE-1), in the order of the range. Where keys ascend it is unknown
    /// until the other end moves, except after a seek.
    place: Option<ScanBound>,
    /// Of a descending range: from where the walk leaves the key whose versions it shows: that
    /// key's last stored version in the direction of keys, or the gap behind it. Unknown after a
    /// seek.
    edge: Option<State>,
    /// Of a descending range: the sides of the gaps that were reported last: two may lie around one
    /// key.
    reported: [Option<(u32, u32)>; 2],
    limit: StepLimit,
}

/// Where the next step of an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At its end of the range.
    Fresh,
    /// At its place.
    Sought,
    /// Where its walk stands.
    Moving,
    /// Of a descending range: at another version of the key, where its walk stands.
    Versions,
    /// Of a descending range: at another key.
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

    /// Takes one step; the first one goes to the beginning of this end. Not called once the range
    /// is over.
    #[inline(always)]
    fn advance<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        if self.state == End::Moving {
            return self.walk.advance(core, way);
        }
        self.state = End::Moving;
        self.walk.begin(core, way, self.place.as_ref())
    }

    /// Whether the last move ends the range: it reached the end, or met an error without a gap.
    #[inline(always)]
    fn is_over(&self) -> bool {
        matches!(self.walk.state, State::Nowhere | State::Failed(_))
    }

    /// Notes how far it has come.
    fn note_place(&mut self, core: &Core, way: Direction) -> Result<(), Corruption> {
        if self.state == End::Moving && self.place.is_none() {
            self.place = Some(self.walk.progress(core, way)?);
        }
        Ok(())
    }

    /// Where what an error hides begins: at the near side of the gap, or already with the entry
    /// there. Going back, damage before an entry hides it as well, unless that was shown before or
    /// the other end has reported the gap.
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
        // A walk that stands on the damage names another near side than one that comes to it from
        // the other end.
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

    /// Undoes a move that led beyond the other end. Its result is neither shown nor reported.
    fn take_back(&mut self) {
        let (place, reported) = (self.place.take(), self.reported);
        self.reset(place);
        self.reported = reported;
    }

    /// Begins anew, at the end of the range or at a place.
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

/// Steps of an end of a descending range: its keys go one way through the table, the versions of
/// each key the other way.
impl RangeEnd {
    /// Takes one step, past gaps that the other end has reported.
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

    /// Moves the walk once; goes on unless it led to an entry that the range shows, or to the end.
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
                let entry = self.walk.advance(core, keys)?;
                self.come_to_key(core, keys, entry)
            }
            End::Versions | End::Moving => {
                let entry = self.walk.advance(core, versions)?;
                self.come_to_version(core, keys, entry)
            }
        }
    }

    /// Handles a step among versions: it led to another one of the key, or the key is done.
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

    /// Begins on one side of the key that the end has come to, and goes to a key from there.
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

    /// Handles a step to another key: goes on to the version with which the range begins to show
    /// that key.
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
        // A version of the last key was inserted meanwhile.
        if is_known && !self.is_before_key(keys) {
            return Ok(ControlFlow::Continue(()));
        }
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

    /// Whether the end has shown no version of the key that it has come to.
    fn is_before_key(&self, keys: Direction) -> bool {
        self.place
            .as_ref()
            .is_none_or(|place| place.is_beside_key(keys))
    }

    /// The sides of the gap that the walk is in.
    fn sides(&self) -> Option<(u32, u32)> {
        self.walk
            .gap()
            .map(|reported| (reported.gap.before, reported.gap.after))
    }

    /// Whether the gap of the walk was reported already (RANGE-2).
    fn is_known(&self, known: [Option<(u32, u32)>; 2]) -> bool {
        let sides = self.sides();
        sides.is_some() && (self.reported.contains(&sides) || known.contains(&sides))
    }
}

/// The result of one move of a descending range.
type Turn<'a> = Result<ControlFlow<Option<Entry<'a>>>>;

impl Ends {
    fn new(visible: Visible, keys: Direction, bounds: ScanBounds) -> Self {
        let end = |bounds| RangeEnd::new(Walk::new(visible, bounds));
        Ends {
            front: end(bounds.clone()),
            back: end(bounds),
            keys,
            is_over: false,
        }
    }

    /// The end that moves in this direction, and the other one.
    #[inline(always)]
    fn moving_and_other(&mut self, way: Direction) -> (&mut RangeEnd, &mut RangeEnd) {
        match way {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        }
    }

    /// A step of the front, compiled in this crate.
    #[inline(never)]
    fn next<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Forward)
    }

    /// A step of the back.
    #[inline(never)]
    fn next_back<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Backward)
    }

    /// Takes a step of one end. While the other end has not moved, most steps are fast ones of its
    /// walk.
    #[inline(always)]
    fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Result<Entry<'a>>> {
        let (moving, other) = self.moving_and_other(way);
        let alone = moving.state == End::Moving && other.state == End::Fresh;
        if alone
            && !self.is_over
            && let Some(entry) = self.moving_and_other(way).0.walk.step_fast(core, way)
        {
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
        if keys == Direction::Backward {
            let moved = moving.advance_by_keys(core, way.opposite(), other.reported);
            return self.meet(core, way, moved);
        }
        if other.state == End::Fresh {
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

    /// Handles the result of a move when both ends have moved: it is shown or reported if it is
    /// before the position of the other end (RANGE-1, RANGE-2).
    #[inline(never)]
    fn meet<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        moved: Result<Option<Entry<'a>>>,
    ) -> Option<Result<Entry<'a>>> {
        let (comparator, keys) = (&core.comparator, self.keys);
        let (moving, other) = self.moving_and_other(way);
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
            // The other end has not moved, or has not reported this gap.
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
    fn seek(&mut self, way: Direction, place: ScanBound) {
        self.moving_and_other(way).0.reset(Some(place));
        self.is_over = false;
    }

    /// Restarts both ends, with this order of keys and these bounds.
    fn restart(&mut self, keys: Direction, bounds: ScanBounds) {
        *self = Ends::new(self.front.walk.scope.visible, keys, bounds);
    }
}

impl<H: Handle, L: Visibility> Range<H, L> {
    /// A range between two bounds; an inverted one is empty.
    pub(crate) fn new(handle: H, visible: Visible, bounds: ScanBounds) -> Self {
        Range {
            handle,
            ends: Ends::new(visible, Direction::Forward, bounds),
            shows: PhantomData,
        }
    }

    /// This range with keys descending and the newest version of each key first. Both ends are
    /// restarted. What a snapshot sees of a key is one version, so [`rev`](Iterator::rev) has that
    /// order too, in fewer steps.
    ///
    /// A gap among the versions of a key is reported before the key, and versions beyond the gap
    /// are left out.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// for (sequence, key) in (1..).zip(["a", "b", "b", "c"]) {
    ///     table.put(sequence, key.as_bytes(), b"")?;
    /// }
    /// let range = table.range("a".."c").descending();
    /// let versions: Result<Vec<u64>, Error> = range.map(|entry| Ok(entry?.sequence())).collect();
    /// assert_eq!(versions?, [3, 2, 1]); // b@3, b@2, a@1
    /// let mut range = table.range(..).descending().owned();
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.sequence()), Some(1));
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.sequence()), Some(2));
    /// range.seek(b"b");
    /// assert_eq!(range.next_entry()?.map(|entry| entry.sequence()), Some(3));
    /// assert!(range.next_entry()?.is_none(), "the ends have met");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn descending(mut self) -> Self {
        let bounds = self.ends.front.walk.scope.bounds.clone();
        self.ends.restart(Direction::Backward, bounds);
        self
    }

    /// The next entry from the front, borrowed until the next call; `None` once the ends have met.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"one")?;
    /// let mut range = table.range(..).owned();
    /// while let Some(entry) = range.next_entry()? {
    ///     assert_eq!(entry.value()?, b"one");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` for a damaged place that this end reaches; the next call goes on after it.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        self.ends.next(self.handle.core()).transpose()
    }

    /// The next entry from the back, borrowed until the next call; see
    /// [`next_entry`](Self::next_entry).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.range(..).owned();
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// assert!(range.next_back_entry()?.is_none(), "the ends have met");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`next_entry`](Self::next_entry).
    #[inline]
    pub fn next_back_entry(&mut self) -> Result<Option<Entry<'_>>> {
        self.ends.next_back(self.handle.core()).transpose()
    }

    /// Moves the front, forward or backward, so that its next entry is the first one of the range
    /// whose user key is at or after `key`, in the order of the range, if the back has not passed
    /// it. Reads nothing before the next step. A range at its end goes on from there, too.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// for (sequence, key) in [(1, b"a"), (2, b"c"), (3, b"e")] {
    ///     table.put(sequence, key, b"")?;
    /// }
    /// let mut range = table.range(..);
    /// range.seek(b"b");
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"c".as_slice()));
    /// range.seek_for_prev(b"d");
    /// assert!(range.next_back_entry()?.is_none(), "the front has come there");
    /// # Ok(()) }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.ends.seek(
            Direction::Forward,
            ScanBound::beside_key(Direction::Backward, key.as_ref()),
        );
    }

    /// Moves the back so that its next entry is the last one of the range whose user key is at or
    /// before `key`, in the order of the range, if the front has not passed it. Reads nothing
    /// before the next step; see [`seek`](Self::seek).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"c", b"")?;
    /// let mut range = table.range(..).owned();
    /// range.seek_for_prev(b"b");
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok(()) }
    /// ```
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.ends.seek(
            Direction::Backward,
            ScanBound::beside_key(Direction::Forward, key.as_ref()),
        );
    }

    /// Replaces the bounds and restarts both ends.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.range(..).owned();
    /// for (bounds, expected) in [("a".."b", b"a"), ("b".."c", b"b")] {
    ///     range.set_bounds(bounds);
    ///     assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(expected.as_slice()));
    ///     assert!(range.next_entry()?.is_none());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_bounds(&mut self, range: impl KeyRange) {
        self.ends.restart(self.ends.keys, scan_bounds(&range));
    }
}

impl<H: Handle> Range<H, Raw> {
    /// Moves the front so that its next entry is the first one at or after (`key`, `sequence`); see
    /// [`seek`](Self::seek).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(3, b"k", b"three")?;
    /// table.put(5, b"k", b"five")?;
    /// let mut range = table.range(..).owned();
    /// range.seek_version(b"k", 4);
    /// assert_eq!(range.next_entry()?.map(|entry| entry.sequence()), Some(3));
    /// # Ok(()) }
    /// ```
    pub fn seek_version(&mut self, key: impl AsRef<[u8]>, sequence: SequenceNumber) {
        let place = ScanBound::beside_version(Direction::Backward, key.as_ref(), sequence);
        self.ends.seek(Direction::Forward, place);
    }

    /// Replaces the bounds by positions (user key, sequence number) in the order of the table,
    /// where sequence numbers descend within a key: `(k, u64::MAX)` is the first position of key k,
    /// and `(k, 0)` the last one. Restarts both ends.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// for sequence in 1..=5 {
    ///     table.put(sequence, b"k", b"")?;
    /// }
    /// let mut range = table.range(..).owned();
    /// range.set_version_bounds((b"k", 4)..=(b"k", 2));
    /// let found = range.map(|copy| Ok(copy?.sequence())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
    /// assert_eq!(found, [4, 3, 2]);
    /// # Ok(()) }
    /// ```
    pub fn set_version_bounds<K: AsRef<[u8]>>(
        &mut self,
        range: impl RangeBounds<(K, SequenceNumber)>,
    ) {
        self.ends.restart(self.ends.keys, version_bounds(&range));
    }
}

impl<L: Visibility> Range<Borrowed<'_>, L> {
    /// This range with a share in the table, from where it has come to: `'static`, `Send` and
    /// `Sync`.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"one")?;
    /// table.put(5, b"a", b"new")?;
    /// let (all, at_4) = (table.range(..).owned(), table.range_at(4, ..).owned());
    /// drop(table);
    /// let reader = std::thread::spawn(move || at_4.rev().next());
    /// let entry = reader.join().unwrap().expect("it is there")?;
    /// assert_eq!((entry.user_key(), entry.value()), (b"a".as_slice(), b"one".as_slice()));
    /// assert_eq!(all.count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn owned(self) -> OwnedRange<L> {
        Range {
            handle: Owned(Arc::clone(self.handle.0)),
            ends: self.ends,
            shows: self.shows,
        }
    }
}

/// A range that borrows its table yields entries, one that owns a share yields copies of them, each
/// verified after it was made.
impl<H: Handle, L: Visibility> Iterator for Range<H, L> {
    type Item = Result<H::Item>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Range { handle, ends, .. } = self;
        handle.yielded(|core| ends.next(core))
    }
}

impl<H: Handle, L: Visibility> DoubleEndedIterator for Range<H, L> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let Range { handle, ends, .. } = self;
        handle.yielded(|core| ends.next_back(core))
    }
}

impl<H: Handle, L: Visibility> std::iter::FusedIterator for Range<H, L> {}
