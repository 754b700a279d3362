//! Cursors: a position in a table that moves both ways.
//!
//! ```text
//!             seek, first, last           next, prev
//!   Nowhere ---------------------> At(entry) <------+
//!      ^                            |   |  damage   |  goes on behind the hole
//!      +----- ran off an end -------+   +--> Hole --+
//! ```
//! * Q1: a cursor reports a hole once; the next step goes on at its other side.
//! * Q2: a cursor that stands nowhere has no entry, and steps leave it there.
//! * Q3: a step never shows an entry twice; entries inserted behind the cursor are not shown, those in front may be.
//!
//! One thread at a time moves a cursor; tables may be written meanwhile. Steps are expected O(1), seeks O(log n).

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::edge::{Edge, edges, prefix_edges};
use super::handle::sealed::Holds;
use super::handle::{Borrowed, Handle, Owned};
use super::lens::{AtSnapshot, Lens, Raw, Stand, Way};
use crate::error::{Corruption, Result};
use crate::key::{Bytewise, Comparator, SequenceNumber, Side, Target};
use crate::memtable::filter::Answer;
use crate::memtable::order::Order;
use crate::memtable::read::Entry;
use crate::memtable::representation::{END, Hole, Ordered, Spot};
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::splice::{Course, Search};
use crate::memtable::skiplist::steps::Scout;
use crate::memtable::statistics::Event;
use crate::memtable::table::{Core, TableReader};
use crate::memtable::vector::{Sorted, SortedSearch};

/// Where a cursor stands.
#[derive(Debug, Clone, Copy)]
enum State {
    Nowhere,
    At(Stand),
    Hole { before: u32, behind: u32 },
}

/// A position in a table. Made by [`TableReader::cursor`], [`TableReader::cursor_at`] and their owned twins.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"a", b"1")?;
/// table.put(2, b"b", b"2")?;
/// table.delete(3, b"a")?;
/// let mut cursor = table.cursor_at(3);
/// cursor.first()?;
/// assert_eq!(cursor.entry().map(|entry| entry.user_key()), Some(b"b".as_slice()));
/// cursor.next()?;
/// assert!(cursor.entry().is_none());
/// # Ok(()) }
/// ```
pub struct Cursor<H: Handle, L: Lens = Raw> {
    handle: H,
    lens: L,
    state: State,
    /// The table's checked values as of the last seek.
    kept: Option<(Frame, Kept)>,
    lower: Option<Edge>,
    upper: Option<Edge>,
    /// What all keys shown start with, in prefix mode.
    prefix: Option<Box<[u8]>>,
    /// How far memory was asked for in advance.
    scout: Scout,
}

/// A cursor that borrows its table.
pub type TableCursor<'t, C = Bytewise, L = Raw> = Cursor<Borrowed<'t, C>, L>;
/// A cursor that keeps its table alive: `'static`, `Send` and `Sync`.
pub type OwnedCursor<C = Bytewise, L = Raw> = Cursor<Owned<C>, L>;

impl<H: Handle, L: Lens> fmt::Debug for Cursor<H, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("lens", &self.lens)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// What a cursor keeps of its table's order.
#[derive(Debug, Clone)]
enum Kept {
    List(Course),
    Sorted(Arc<Sorted>),
}

impl<H: Handle, L: Lens> Cursor<H, L> {
    fn new(handle: H, lens: L) -> Self {
        Cursor {
            handle,
            lens,
            state: State::Nowhere,
            kept: None,
            lower: None,
            upper: None,
            prefix: None,
            scout: Scout::default(),
        }
    }

    /// The same cursor, restricted to user keys in `range`. It stands nowhere.
    ///
    /// # Errors
    /// `InvalidArgument` if the range is inverted.
    pub fn with_bounds<'k>(mut self, range: impl RangeBounds<&'k [u8]>) -> Result<Self> {
        let (start, end) = (range.start_bound().map(|key| *key), range.end_bound().map(|key| *key));
        (self.lower, self.upper) = edges(&self.handle.core().comparator, start, end)?;
        self.prefix = None;
        self.state = State::Nowhere;
        Ok(self)
    }

    /// Whether the cursor stands on an entry.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self.state, State::At(..))
    }

    /// The entry under the cursor.
    #[must_use]
    #[inline]
    pub fn entry(&self) -> Option<Entry<'_>> {
        resume(&self.state, self.kept.as_ref(), self.handle.core())
    }

    /// Goes to the first entry shown whose user key is `key` or behind it.
    ///
    /// # Errors
    /// `Corruption` if the place cannot be certified; the next step goes on at the other side of the damage.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_version(key, SequenceNumber::MAX)
    }

    /// Goes to the first entry shown at or behind (`key`, `sequence`).
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_version(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.refresh()?;
        let target = Target::new(&self.handle.core().comparator, key, L::search_from(sequence));
        let outcome = self.arrive(Way::Forward, &target)?;
        self.land(outcome)?;
        // A key's only version shown may stand in front of the position.
        let in_front = sequence < SequenceNumber::MAX
            && self.entry().is_some_and(|entry| {
                entry.sequence() > sequence
                    && self.handle.core().comparator.compare(entry.user_key(), key).is_eq()
            });
        if in_front { self.next() } else { Ok(()) }
    }

    /// Goes to the last entry shown whose user key is `key` or in front of it.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.refresh()?;
        let target = Target::behind_key(&self.handle.core().comparator, key);
        let outcome = self.arrive(Way::Backward, &target)?;
        self.land(outcome)
    }

    /// Goes to the first entry shown.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn first(&mut self) -> Result<()> {
        self.refresh()?;
        let outcome = self.arrive(Way::Forward, &Target::extreme(Side::Start))?;
        self.land(outcome)
    }

    /// Goes to the last entry shown.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn last(&mut self) -> Result<()> {
        self.refresh()?;
        let outcome = self.arrive(Way::Backward, &Target::extreme(Side::End))?;
        self.land(outcome)
    }

    /// Goes to the next entry shown.
    ///
    /// # Errors
    /// `Corruption` if what follows cannot be told; the next step goes on behind the damage.
    #[expect(clippy::should_implement_trait, reason = "a cursor moves both ways and is no iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.go(Way::Forward)
    }

    /// Goes to the previous entry shown.
    ///
    /// # Errors
    /// `Corruption` if what stands in front cannot be told; the next step goes on in front of the damage.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.go(Way::Backward)
    }

    #[inline(always)]
    fn go(&mut self, way: Way) -> Result<()> {
        let mut scout = self.scout;
        match self.glide(self.handle.core(), way, &mut scout) {
            Some(moved) => {
                self.state = moved.map_or(State::Nowhere, |entry| State::At(Stand::at(&entry)));
                self.scout = scout;
                Ok(())
            }
            None => self.decide(way),
        }
    }

    #[inline(never)]
    fn decide(&mut self, way: Way) -> Result<()> {
        let mut scout = self.scout;
        let outcome = self.step(self.handle.core(), way, &mut scout)?.map(park);
        let landed = self.land(outcome);
        self.scout = scout;
        landed
    }

    #[inline(always)]
    fn land(&mut self, outcome: Result<Option<Stand>, Hole>) -> Result<()> {
        self.scout = Scout::default();
        match outcome {
            Ok(Some(stand)) => self.state = State::At(stand),
            Ok(None) => self.state = State::Nowhere,
            Err(hole) => {
                self.state = State::Hole { before: hole.before, behind: hole.behind };
                return Err(hole.corruption.into());
            }
        }
        Ok(())
    }

    /// The table's list, if that is its order, through the values kept from the last seek.
    #[inline(always)]
    fn list<'a>(&self, core: &'a Core<H::Order>) -> Option<Search<'a, H::Order>> {
        let Some((frame, Kept::List(course))) = &self.kept else { return None };
        let view = frame.on(&core.arena)?;
        Some(Search { view, comparator: &core.comparator, course: *course })
    }

    /// The table's order through the values kept from the last seek.
    #[inline]
    fn order<'a>(&self, core: &'a Core<H::Order>) -> Result<Order<'a, H::Order>, Corruption> {
        if let Some(search) = self.list(core) {
            return Ok(Order::List(search));
        }
        let Some((frame, Kept::Sorted(sorted))) = &self.kept else { return core.order(None) };
        let Some(view) = frame.on(&core.arena) else { return core.order(None) };
        let (comparator, sorted) = (&core.comparator, Arc::clone(sorted));
        Ok(Order::Sorted(SortedSearch { view, comparator, sorted }))
    }

    /// Looks at the control block again. A copy that was sorted for this cursor is kept.
    fn refresh(&mut self) -> Result<()> {
        if let Some((_, Kept::Sorted(_))) = self.kept {
            return Ok(());
        }
        let (frame, kept) = match self.handle.core().order(None)? {
            Order::List(search) => (search.view.frame, Kept::List(search.course)),
            Order::Sorted(search) => (search.view.frame, Kept::Sorted(search.sorted)),
        };
        self.kept = Some((frame, kept));
        Ok(())
    }

    /// The entry shown at or behind a position (or in front of it), inside the bounds.
    fn arrive(&self, way: Way, target: &Target<'_>) -> Result<Result<Option<Stand>, Hole>> {
        let core = self.handle.core();
        let order = self.order(core)?;
        if let Some(prefix) = &self.prefix
            && core.aids.may_start_with(order.view(), prefix) == Answer::Absent
        {
            core.aids.count(Event::FilterNegative, 1);
            return Ok(Ok(None));
        }
        Ok(self.arrive_in(core, &order, way, target).map(park))
    }

    fn arrive_in<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        target: &Target<'_>,
    ) -> Outcome<'a> {
        let comparator = &core.comparator;
        let spot = match way {
            Way::Forward => order.find(target)?.behind,
            Way::Backward => order.find_before(target)?,
        };
        // Outside the near bound: start at the bound instead.
        let bound = match way {
            Way::Forward => self.lower.as_ref(),
            Way::Backward => self.upper.as_ref(),
        };
        let spot = match (spot, bound) {
            (Some(spot), Some(edge)) => {
                let edge = edge.target(comparator);
                let in_front = spot.entry.node().order(comparator, &edge).is_lt();
                match way {
                    Way::Forward if in_front => order.find(&edge)?.behind,
                    Way::Backward if !in_front => order.find_before(&edge)?,
                    _ => Some(spot),
                }
            }
            (spot, _) => spot,
        };
        self.show(core, order, way, spot)
    }

    /// What the lens shows from a stored entry on, inside the far bound.
    #[inline(always)]
    fn show<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        spot: Option<Spot<'a>>,
    ) -> Outcome<'a> {
        let (spot, far) = match way {
            Way::Forward => (self.lens.forward(core, order, spot)?, self.upper.as_ref()),
            Way::Backward => (self.lens.backward(core, order, spot)?, self.lower.as_ref()),
        };
        let (Some(spot), Some(edge)) = (spot, far) else { return Ok(spot) };
        let in_front = spot.entry.node().order(&core.comparator, &edge.target(&core.comparator)).is_lt();
        Ok((in_front == (way == Way::Forward)).then_some(spot))
    }

    /// A step where nothing has to be decided: in a list, from an entry to a neighbour that is shown. `None`: it is no such
    /// step, or it met something unusual; `step` decides.
    #[inline(always)]
    fn glide<'a>(
        &self,
        core: &'a Core<H::Order>,
        way: Way,
        scout: &mut Scout,
    ) -> Option<Option<Verified<'a>>> {
        let State::At(stand) = &self.state else { return None };
        if !self.lens.is_plain(core, way) {
            return None;
        }
        let search = self.list(core)?;
        let (next, far) = match way {
            Way::Forward => (search.try_next(stand.at)?, &self.upper),
            Way::Backward => (search.try_prev(stand.at)?, &self.lower),
        };
        match (&next, way) {
            (Some(entry), Way::Forward) => search.look_ahead(scout, stand.at, entry.node().offset()),
            (Some(entry), Way::Backward) => search.look_back(stand.at, entry.node().offset()),
            _ => {}
        }
        if next.is_some_and(|entry| !self.lens.shows_neighbour(core, &search.view, stand, &entry)) {
            return None;
        }
        let (Some(entry), Some(edge)) = (next, far) else { return Some(next) };
        let in_front = entry.node().order(&core.comparator, &edge.target(&core.comparator)).is_lt();
        Some((in_front == (way == Way::Forward)).then_some(entry))
    }

    #[inline]
    fn step<'a>(&self, core: &'a Core<H::Order>, way: Way, scout: &mut Scout) -> Result<Outcome<'a>> {
        match &self.state {
            State::Nowhere => Ok(Ok(None)),
            State::At(stand) => match self.list(core) {
                Some(search) => {
                    let outcome = self.step_from(core, &search, way, stand);
                    if let (Ok(Some(to)), Way::Forward) = (&outcome, way) {
                        search.look_ahead(scout, stand.at, to.at);
                    }
                    Ok(outcome)
                }
                None => Ok(self.step_from(core, &self.order(core)?, way, stand)),
            },
            State::Hole { before, behind } => {
                let order = self.order(core)?;
                Ok(self.step_over_hole(core, &order, way, (*before, *behind)))
            }
        }
    }

    #[inline(always)]
    fn step_from<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        from: &Stand,
    ) -> Outcome<'a> {
        let next = match way {
            Way::Forward => self.lens.behind(core, order, from)?,
            Way::Backward => self.lens.before(core, order, from)?,
        };
        self.show(core, order, way, next)
    }

    /// The first entry from `spot` on that is not outside the near bound: a hole may lie outside of it.
    #[cold]
    fn first_inside<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        mut spot: Spot<'a>,
    ) -> Result<Option<Spot<'a>>, Hole> {
        let bound = match way {
            Way::Forward => self.lower.as_ref(),
            Way::Backward => self.upper.as_ref(),
        };
        let Some(edge) = bound else { return Ok(Some(spot)) };
        let edge = edge.target(&core.comparator);
        loop {
            let in_front = spot.entry.node().order(&core.comparator, &edge).is_lt();
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

    /// Goes on at the far side of a hole (Q1).
    #[cold]
    fn step_over_hole<'a, O: Ordered<'a>>(
        &self,
        core: &'a Core<H::Order>,
        order: &O,
        way: Way,
        (before, behind): (u32, u32),
    ) -> Outcome<'a> {
        let at = if way == Way::Forward { behind } else { before };
        if at == END {
            return Ok(None);
        }
        let further = |moved: Result<Option<Spot<'a>>, Hole>, lost: fn(Hole) -> u32| match moved {
            Ok(spot) => spot.map_or(END, |spot| spot.at),
            Err(hole) => lost(hole),
        };
        match (order.entry(at), way) {
            (Ok(entry), _) => {
                let spot = self.first_inside(core, order, way, Spot { at, entry })?;
                let beside = spot.as_ref().is_some_and(|spot| spot.at == at);
                match spot {
                    Some(spot) if beside && way == Way::Forward => {
                        let spot = self.lens.behind_hole(core, order, spot)?;
                        self.show(core, order, way, spot)
                    }
                    spot => self.show(core, order, way, spot),
                }
            }
            (Err(corruption), Way::Forward) => {
                Err(Hole { corruption, before, behind: further(order.next(at), |hole| hole.behind) })
            }
            (Err(corruption), Way::Backward) => {
                Err(Hole { corruption, before: further(order.prev(at), |hole| hole.before), behind })
            }
        }
    }
}

impl<H: Handle + Holds<Order = Bytewise>, L: Lens> Cursor<H, L> {
    /// The same cursor in prefix mode: restricted to user keys that start with `prefix`, in place of any bounds. If the
    /// table has a prefix filter, seeks ask it first and go nowhere when it says that there are none. It stands nowhere.
    ///
    /// ```
    /// use paranoid_memtable::{FixedPrefix, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let options = MemTableOptions::builder().prefix_filter(FixedPrefix::new(4), 0.01).build()?;
    /// let table = MemTable::new(options)?;
    /// table.put(1, b"user7", b"x")?;
    /// let mut cursor = table.cursor().with_prefix(b"user");
    /// cursor.first()?;
    /// assert!(cursor.is_valid());
    /// cursor.next()?;
    /// assert!(!cursor.is_valid());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        (self.lower, self.upper) = prefix_edges(prefix);
        self.prefix = Some(prefix.into());
        self.state = State::Nowhere;
        self
    }
}

/// Where a move ended: an entry, an end, or a hole.
type Outcome<'a> = Result<Option<Spot<'a>>, Hole>;

/// What a cursor keeps of an entry.
#[inline(always)]
fn park(spot: Option<Spot<'_>>) -> Option<Stand> {
    spot.as_ref().map(Stand::on)
}

impl<'t, C: Comparator, L: Lens> Cursor<Borrowed<'t, C>, L> {
    /// The entry under the cursor, for as long as the table is borrowed.
    #[must_use]
    #[inline]
    pub fn table_entry(&self) -> Option<Entry<'t>> {
        resume(&self.state, self.kept.as_ref(), self.handle.0)
    }

    /// One step, and the entry that it led to.
    #[inline(always)]
    pub(crate) fn advance(&mut self, way: Way) -> Result<Option<Entry<'t>>> {
        let mut scout = self.scout;
        if let Some(moved) = self.glide(self.handle.0, way, &mut scout)
            && let Some((frame, _)) = &self.kept
        {
            self.scout = scout;
            let entry = moved.map(|entry| Entry::new(entry, frame));
            self.state = moved.map_or(State::Nowhere, |entry| State::At(Stand::at(&entry)));
            return Ok(entry);
        }
        self.decide(way)?;
        Ok(self.table_entry())
    }

    pub(crate) fn with_lens(core: &'t Core<C>, lens: L) -> Self {
        Cursor::new(Borrowed(core), lens)
    }

    /// Goes to the last entry shown in front of every version of `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.refresh()?;
        let target = Target::new(&self.handle.0.comparator, key, SequenceNumber::MAX);
        let outcome = self.arrive(Way::Backward, &target)?;
        self.land(outcome)
    }

    pub(crate) fn with_edges(mut self, lower: Option<Edge>, upper: Option<Edge>) -> Self {
        self.lower = lower;
        self.upper = upper;
        self
    }
}

#[inline(always)]
fn resume<'a, C>(state: &State, kept: Option<&(Frame, Kept)>, core: &'a Core<C>) -> Option<Entry<'a>> {
    let State::At(stand) = state else { return None };
    let view = kept?.0.on(&core.arena)?;
    stand.parked.resume(&view).map(|entry| Entry::new(entry, &view))
}

impl<C: Comparator> TableReader<C> {
    /// A cursor over every version and kind; range tombstones are not among them and are not applied. Stands nowhere.
    #[must_use]
    pub fn cursor(&self) -> TableCursor<'_, C> {
        Cursor::new(Borrowed(&*self.core), Raw)
    }

    /// A cursor over what a snapshot (inclusive) sees: the newest visible version of each key, deletes and range deletes
    /// applied; of a key with merge operands it shows the newest operand. Stands nowhere.
    #[must_use]
    pub fn cursor_at(&self, snapshot: SequenceNumber) -> TableCursor<'_, C, AtSnapshot> {
        Cursor::new(Borrowed(&*self.core), AtSnapshot { sequence: snapshot })
    }

    /// As [`cursor`](Self::cursor), with a share in the table: `'static`, `Send` and `Sync`.
    #[must_use]
    pub fn owned_cursor(&self) -> OwnedCursor<C> {
        Cursor::new(Owned(Arc::clone(&self.core)), Raw)
    }

    /// As [`cursor_at`](Self::cursor_at), with a share in the table: `'static`, `Send` and `Sync`.
    #[must_use]
    pub fn owned_cursor_at(&self, snapshot: SequenceNumber) -> OwnedCursor<C, AtSnapshot> {
        Cursor::new(Owned(Arc::clone(&self.core)), AtSnapshot { sequence: snapshot })
    }
}
