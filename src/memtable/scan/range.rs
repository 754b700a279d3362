//! Ranges: iterators over a cursor at each end.
//!
//! ```text
//!   front ->  a@9  a@5  [gap]  c@4  <- back        the two ends stop where they meet, once
//! ```
//! * RANGE-1: each end has a place in its own memory: how far it has come, over entries and gaps. An end stops where
//!   the place of the other one is, whatever lies there.
//! * RANGE-2: a gap is reported by the end that reaches it first.
//! * RANGE-3: a descending range never goes back to a key that is not before the last one, and reports a gap once, from
//!   whichever side it meets it.
//!
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::error::{Corruption, Error, Place, Result};
use crate::key::{Bytewise, Comparator, SequenceNumber, Side, Target};
use crate::memtable::core::Core;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::Ordered;
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::bounds::ScanBound;
use crate::memtable::scan::cursor::{Mark, TableCursor};
use crate::memtable::scan::gap::passed;
use crate::memtable::scan::runs::{StepLimit, Way};
use crate::memtable::scan::visibility::{Raw, Visibility};
use crate::planted::{Bug, planted};

/// Entries between two bounds, from both ends. A damaged place is reported once by the end that reaches it, which then
/// goes on after it.
pub struct Range<'t, C: Comparator = Bytewise, L: Visibility = Raw> {
    front: Tip<'t, C, L>,
    back: Tip<'t, C, L>,
    comparator: &'t C,
}

/// One end of a range.
struct Tip<'t, C: Comparator, L: Visibility> {
    cursor: TableCursor<'t, C, L>,
    state: End,
    /// How far it has come, once both ends have moved (RANGE-1).
    place: Option<ScanBound>,
}

/// Whether an end has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fresh,
    Moving,
    Done,
}

impl<C: Comparator, L: Visibility> fmt::Debug for Range<'_, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (front, back) = (&self.front.cursor, &self.back.cursor);
        f.debug_struct("Range").field("front", front).field("back", back).finish_non_exhaustive()
    }
}

impl<'t, C: Comparator, L: Visibility> Tip<'t, C, L> {
    fn new(cursor: TableCursor<'t, C, L>) -> Self {
        Tip { cursor, state: End::Fresh, place: None }
    }

    /// One step; the first one goes to the end of the range, in the order that the other end walks. Not called once
    /// it is done.
    #[inline(always)]
    fn advance(&mut self, way: Way, other: &Self) -> Result<Option<Entry<'t>>> {
        if self.state == End::Moving {
            return self.cursor.advance(way);
        }
        self.state = End::Moving;
        self.cursor.share_order(&other.cursor);
        self.cursor.begin(way)
    }

    /// Whether the range is over with this move: at its end, or with an error that no gap explains.
    #[inline(always)]
    fn is_over(&self, moved: &Result<Option<Entry<'t>>>) -> bool {
        match moved {
            Ok(entry) => entry.is_none(),
            Err(_) => self.cursor.gap().is_none(),
        }
    }
}

impl<'t, C: Comparator, L: Visibility> Range<'t, C, L> {
    /// The end that goes this way, and the other one.
    #[inline(always)]
    fn tips(&mut self, way: Way) -> (&mut Tip<'t, C, L>, &mut Tip<'t, C, L>) {
        match way {
            Way::Forward => (&mut self.front, &mut self.back),
            Way::Backward => (&mut self.back, &mut self.front),
        }
    }

    /// A step of one end. An entry goes straight to the caller while the other end has not moved; all else is decided
    /// out of the way.
    #[inline(always)]
    fn step(&mut self, way: Way) -> Option<Result<Entry<'t>>> {
        let (tip, other) = self.tips(way);
        if tip.state != End::Moving || other.state != End::Fresh {
            return self.step_with_both(way);
        }
        match tip.cursor.advance(way) {
            Ok(Some(entry)) => Some(Ok(entry)),
            moved => self.settle(way, moved),
        }
    }

    /// The first step of an end, or one of two that move.
    #[inline(never)]
    fn step_with_both(&mut self, way: Way) -> Option<Result<Entry<'t>>> {
        let (tip, other) = self.tips(way);
        if tip.state == End::Done {
            return None;
        }
        let moved = tip.advance(way, other);
        if other.state != End::Fresh { self.meet(way, moved) } else { self.settle(way, moved) }
    }

    /// What a move comes to while the other end has not moved.
    #[inline(never)]
    fn settle(&mut self, way: Way, moved: Result<Option<Entry<'t>>>) -> Option<Result<Entry<'t>>> {
        if self.tips(way).0.is_over(&moved) {
            self.finish();
        }
        moved.transpose()
    }

    /// An end has moved, and so has the other one: what it reached is shown or reported if it lies before the place
    /// of the other end (RANGE-1, RANGE-2).
    #[inline(never)]
    fn meet(&mut self, way: Way, moved: Result<Option<Entry<'t>>>) -> Option<Result<Entry<'t>>> {
        let (tip, other, opposite) = match way {
            Way::Forward => (&mut self.front, &mut self.back, Way::Backward),
            Way::Backward => (&mut self.back, &mut self.front, Way::Forward),
        };
        if other.place.is_none() {
            match other.cursor.progress(opposite) {
                Ok(place) => other.place = Some(place),
                Err(corruption) => {
                    self.finish();
                    return Some(Err(corruption.into()));
                }
            }
        }
        let inside = match (&moved, &other.place) {
            (Ok(Some(entry)), Some(limit)) => {
                entry.is_before(self.comparator, &limit.target(self.comparator)) == (way == Way::Forward)
            }
            (Err(_), Some(limit)) => {
                let begin = tip.cursor.gap_bound(way).or(tip.place.as_ref());
                let order = begin.map(|scan_bound| scan_bound.order(self.comparator, limit));
                order.is_none_or(|order| if way == Way::Forward { order.is_lt() } else { order.is_gt() })
                    || planted(Bug::EndsForgetGaps)
            }
            _ => false,
        };
        if !inside {
            self.finish();
            return None;
        }
        if tip.is_over(&moved) {
            self.finish();
            return moved.transpose();
        }
        match moved {
            Ok(entry) => {
                tip.place = entry.map(|entry| passed::<L>(way, entry.user_key(), entry.sequence()));
                entry.map(Ok)
            }
            Err(error) => {
                tip.place = tip.cursor.progress(way).ok();
                Some(Err(error))
            }
        }
    }

    fn finish(&mut self) {
        self.front.state = End::Done;
        self.back.state = End::Done;
    }
}

impl<'t, C: Comparator, L: Visibility> Iterator for Range<'t, C, L> {
    type Item = Result<Entry<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.step(Way::Forward)
    }
}

impl<C: Comparator, L: Visibility> DoubleEndedIterator for Range<'_, C, L> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Way::Backward)
    }
}

impl<C: Comparator, L: Visibility> std::iter::FusedIterator for Range<'_, C, L> {}

/// Keys descending, the newest version of each first. A damaged place is reported once; the range goes on at its other
/// side.
///
/// ```text
///   a@9   b@7   b@4   c@2          Back: from the first version of a key to the key before it
///         <---- first <- from      then to that key's first version, which is shown
///         ----> ---->              Versions: and forward through the others
/// ```
pub struct Descending<'t, C: Comparator = Bytewise> {
    cursor: TableCursor<'t, C>,
    phase: Phase,
    /// The key whose versions are shown, in the range's own memory.
    key: Option<Vec<u8>>,
    /// Its first version, or the gap before it: where the way back goes on.
    first: Option<Mark>,
    /// The sides of the gap that was reported last.
    reported: Option<(u32, u32)>,
    limit: StepLimit,
    core: &'t Core<C>,
}

/// What a descending range does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    /// The cursor goes forward through the versions of the key.
    Versions,
    /// The cursor goes back to the key before.
    Back,
    Done,
}

impl<C: Comparator> fmt::Debug for Descending<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descending").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// What comes of one move of a descending range.
enum Came<'t> {
    /// An entry, an error, or the end.
    Out(Option<Result<Entry<'t>>>),
    /// Nothing to show: it goes on.
    On,
}

impl<'t, C: Comparator> Descending<'t, C> {
    fn step(&mut self) -> Came<'t> {
        if let Err(corruption) = self.limit.count(self.core) {
            return self.end_with(corruption);
        }
        match self.phase {
            Phase::Done => Came::Out(None),
            Phase::Versions => {
                let moved = self.cursor.advance(Way::Forward);
                self.version(moved)
            }
            Phase::Back => {
                let moved = self.cursor.advance(Way::Backward);
                self.key_before(moved)
            }
            Phase::Fresh => {
                self.phase = Phase::Back;
                let moved = self.cursor.begin(Way::Backward);
                self.key_before(moved)
            }
        }
    }

    /// The cursor went forward: another version of the key, or the key is done.
    fn version(&mut self, moved: Result<Option<Entry<'t>>>) -> Came<'t> {
        match moved {
            Ok(Some(entry)) if self.order_of(&entry).is_eq() => return Came::Out(Some(Ok(entry))),
            Err(error) if !self.knows_gap() => return Came::Out(Some(Err(error))),
            _ => {}
        }
        self.phase = Phase::Back;
        if let Some(first) = self.first.take() {
            self.cursor.return_to(first);
        }
        Came::On
    }

    /// The cursor went back: on to the first version of the key that it came to.
    fn key_before(&mut self, moved: Result<Option<Entry<'t>>>) -> Came<'t> {
        let entry = match moved {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                self.phase = Phase::Done;
                return Came::Out(None);
            }
            Err(_) if self.knows_gap() => return Came::On,
            Err(error) => return Came::Out(Some(Err(error))),
        };
        if self.key.is_some() {
            let order = self.order_of(&entry);
            // A newer version of the key was inserted meanwhile.
            if order.is_eq() {
                return Came::On;
            }
            if order.is_gt() {
                return self.end_with(Corruption::new(Place::Order, 0, 0, 0).with_sequence(entry.sequence()));
            }
        }
        let key = self.key.get_or_insert_default();
        key.clear();
        key.extend_from_slice(entry.user_key());
        let first = self.cursor.rewind_key();
        self.phase = Phase::Versions;
        self.first = Some(self.cursor.mark());
        match first {
            Err(_) if self.knows_gap() => Came::On,
            first => first.transpose().map_or(Came::On, |first| Came::Out(Some(first))),
        }
    }

    /// How an entry's key stands to the one that is shown.
    fn order_of(&self, entry: &Entry<'t>) -> std::cmp::Ordering {
        let key = self.key.as_deref().unwrap_or_default();
        self.core.comparator.compare(entry.user_key(), key)
    }

    /// Whether the cursor is in a gap that was reported (RANGE-3). If not, it is from now on.
    fn knows_gap(&mut self) -> bool {
        let sides = self.cursor.gap().map(|gap| (gap.before, gap.after));
        let known = sides.is_some() && sides == self.reported && !planted(Bug::DescendingForgetsGap);
        self.reported = sides.or(self.reported);
        known
    }

    #[cold]
    fn end_with(&mut self, corruption: Corruption) -> Came<'t> {
        let error = (self.phase != Phase::Done).then_some(Err(Error::Corruption(corruption)));
        self.phase = Phase::Done;
        Came::Out(error)
    }
}

impl<'t, C: Comparator> Iterator for Descending<'t, C> {
    type Item = Result<Entry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Came::Out(item) = self.step() {
                return item;
            }
        }
    }
}

impl<C: Comparator> std::iter::FusedIterator for Descending<'_, C> {}

/// About how much lies in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStats {
    /// Entries: exact up to 64, standard error about 1/8 beyond.
    pub entries: u64,
    /// Bytes of their keys and values, from the table's mean.
    pub data_bytes: u64,
}

/// Ranges of up to so many entries are counted entry by entry.
const EXACT_MOST: u64 = 64;

/// Entries between two positions, each verified by the step to it; `None`: more than a few.
fn count_few<'a, C: Comparator>(
    order: &impl Ordered<'a>,
    comparator: &C,
    from: &Target<'_>,
    to: &Target<'_>,
) -> Result<Option<u64>> {
    let mut next = order.find(from)?.after;
    let mut count = 0;
    while let Some(spot) = next
        && spot.entry.node().order(comparator, to).is_lt()
    {
        count += 1;
        if count > EXACT_MOST {
            return Ok(None);
        }
        next = order.next(spot.at)?;
    }
    Ok(Some(count))
}

pub(crate) type KeyBound<'k> = Bound<(&'k [u8], Option<SequenceNumber>)>;

/// The bounds of all versions of the keys in a range.
pub(crate) fn keys<'k>(range: &impl RangeBounds<&'k [u8]>) -> (KeyBound<'k>, KeyBound<'k>) {
    (range.start_bound().map(|key| (*key, None)), range.end_bound().map(|key| (*key, None)))
}

/// The bounds of a range of versions.
pub(crate) fn versions<'k>(
    range: &impl RangeBounds<(&'k [u8], SequenceNumber)>,
) -> (KeyBound<'k>, KeyBound<'k>) {
    let version =
        |bound: Bound<&(&'k [u8], SequenceNumber)>| bound.map(|(key, sequence)| (*key, Some(*sequence)));
    (version(range.start_bound()), version(range.end_bound()))
}

impl<'t, C: Comparator, L: Visibility + Copy> Range<'t, C, L> {
    /// A range of a table between two bounds; an inverted one is empty.
    pub(crate) fn new(core: &'t Core<C>, visibility: L, (start, end): (KeyBound<'_>, KeyBound<'_>)) -> Self {
        let cursor = || {
            let (lower, upper) = (ScanBound::lower(start), ScanBound::upper(end));
            TableCursor::with_visibility(core, visibility).with_scan_bounds(lower, upper)
        };
        Range { front: Tip::new(cursor()), back: Tip::new(cursor()), comparator: &core.comparator }
    }
}

impl<'t, C: Comparator> Descending<'t, C> {
    /// A descending range of a table between two bounds; an inverted one is empty.
    pub(crate) fn new(core: &'t Core<C>, (start, end): (KeyBound<'_>, KeyBound<'_>)) -> Self {
        let cursor = TableCursor::with_visibility(core, Raw)
            .with_scan_bounds(ScanBound::lower(start), ScanBound::upper(end));
        Descending {
            cursor,
            phase: Phase::Fresh,
            key: None,
            first: None,
            reported: None,
            limit: StepLimit::default(),
            core,
        }
    }
}

/// About how many entries, and how many bytes of them, lie between two bounds.
pub(crate) fn approximate_range_stats<C: Comparator>(
    core: &Core<C>,
    (start, end): (KeyBound<'_>, KeyBound<'_>),
) -> Result<RangeStats> {
    let (lower, upper) = (ScanBound::lower(start), ScanBound::upper(end));
    let from =
        lower.as_ref().map_or(Target::extreme(Side::Start), |scan_bound| scan_bound.target(&core.comparator));
    let to =
        upper.as_ref().map_or(Target::extreme(Side::End), |scan_bound| scan_bound.target(&core.comparator));
    let totals = core.shards.totals();
    let points = totals.entries.wrapping_sub(totals.range_deletes).wrapping_add(totals.displaced);
    let entries = match core.order(None)? {
        Order::List(search) => match count_few(&search, &core.comparator, &from, &to)? {
            Some(count) => count,
            None => core.points.list.approximate_count(&search, &from, &to)?.max(EXACT_MOST),
        },
        Order::Sorted(search) => search.count(&from, &to)?,
    };
    let entries = entries.min(points);
    let data_bytes = u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
    Ok(RangeStats { entries, data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX) })
}
