//! Ranges: iterators with a walk at each end.
//!
//! ```text
//!   front ->  a@9  a@5  [gap]  c@4  <- back        the two ends stop where they meet, once
//! ```
//! * RANGE-1: each end keeps a position in its own memory: how far it has come, over entries and gaps, or where a
//!   seek put it. An end stops at the position of the other end, whatever is there.
//! * RANGE-2: a gap is reported by the end that reaches it first.
//!
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::error::{Corruption, Place, Result};
use crate::key::{Direction, KeyComparator, SequenceNumber, Side, Target};
use crate::memtable::core::Core;
use crate::memtable::read::entry::{Entry, EntryBytes};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, key_bounds, version_bounds};
use crate::memtable::scan::cursor::{Borrowed, Handle, Owned};
use crate::memtable::scan::visibility::{Raw, StepLimit, Visibility, Visible};
use crate::memtable::scan::walk::{Mark, Walk, far_end};
use crate::memtable::skiplist::search::Search;

/// A range of entries, iterated from both ends. A damaged place is reported once, by the end that reaches it first,
/// which then goes on after it. Made by [`range`](crate::TableReader::range), [`range_at`](crate::TableReader::range_at),
/// [`range_versions`](crate::TableReader::range_versions) and their owned forms.
///
/// A range that borrows its table is an iterator over entries. One that has a share in the table lends them, by
/// [`next_entry`](Self::next_entry) and [`next_back_entry`](Self::next_back_entry), and is an iterator over verified
/// copies of them.
///
/// ```
/// use paranoid_memtable::{MemTable, OwnedRange};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// for (sequence, key) in [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")] {
///     table.put(sequence, key, b"value")?;
/// }
/// let mut range: OwnedRange = table.owned_range(b"b".as_slice()..);
/// drop(table);
/// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"d".as_slice()));
/// let rest = range.map(|entry| Ok(entry?.user_key().to_vec())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
/// assert_eq!(rest, [b"b", b"c"]);
/// # Ok(()) }
/// ```
pub struct EntryRange<H: Handle, L: Visibility = Raw> {
    handle: H,
    ends: Ends,
    shows: PhantomData<L>,
}

/// A range that borrows its table.
///
/// ```
/// use paranoid_memtable::{MemTable, Range};
/// let table = MemTable::default();
/// for (sequence, key) in (1..).zip([b"a", b"b", b"c"]) {
///     table.put(sequence, key, b"")?;
/// }
/// let mut range: Range<'_> = table.range(..);
/// assert_eq!(range.next().expect("three entries")?.user_key(), b"a");
/// assert_eq!(range.next_back().expect("three entries")?.user_key(), b"c");
/// assert_eq!(range.count(), 1);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type Range<'t, L = Raw> = EntryRange<Borrowed<'t>, L>;
/// A range that keeps its table alive: `'static`, `Send` and `Sync`.
///
/// ```
/// use paranoid_memtable::{MemTable, OwnedRange};
/// let table = MemTable::default();
/// table.put(1, b"a", b"1")?;
/// let mut range: OwnedRange = table.owned_range(..);
/// drop(table); // the range keeps the memory alive
/// assert_eq!(range.next().expect("one entry")?.value(), b"1");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type OwnedRange<L = Raw> = EntryRange<Owned, L>;

impl<H: Handle, L: Visibility> fmt::Debug for EntryRange<H, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (front, back) = (&self.ends.front.walk, &self.ends.back.walk);
        f.debug_struct("EntryRange").field("front", front).field("back", back).finish_non_exhaustive()
    }
}

/// Both ends of a range, without a borrow of its table, which each call is given.
struct Ends {
    front: RangeEnd,
    back: RangeEnd,
    /// Whether the ends have met, or one has reached the other side of the range, since the last seek.
    is_over: bool,
}

/// One end of a range.
struct RangeEnd {
    walk: Walk,
    state: End,
    /// How far it has come (RANGE-1). Unknown until the other end moves, except after a seek.
    place: Option<ScanBound>,
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
}

impl RangeEnd {
    fn new(walk: Walk) -> Self {
        RangeEnd { walk, state: End::Fresh, place: None }
    }

    /// Takes one step; the first one goes to the beginning of this end. Not called once the range is over.
    #[inline(always)]
    fn advance<'a>(&mut self, core: &'a Core, way: Direction) -> Result<Option<Entry<'a>>> {
        if self.state == End::Moving {
            return self.walk.advance_any(core, way);
        }
        self.state = End::Moving;
        self.walk.begin(core, way, self.place.as_ref())
    }

    /// Whether this move ends the range: it reached the end, or met an error without a gap.
    #[inline(always)]
    fn is_over(&self, moved: &Result<Option<Entry<'_>>>) -> bool {
        match moved {
            Ok(entry) => entry.is_none(),
            Err(_) => self.walk.gap().is_none(),
        }
    }

    /// Notes how far it has come.
    fn note_place(&mut self, core: &Core, way: Direction) -> Result<(), Corruption> {
        if self.state == End::Moving && self.place.is_none() {
            self.place = Some(self.walk.progress(core, way)?);
        }
        Ok(())
    }

    /// Where what an error hides begins: at the near side of the gap, or already with the entry there. Going back, damage
    /// before an entry hides it as well, unless that was shown before or the other end has reported the gap.
    #[cold]
    fn error_begins(&self, comparator: &KeyComparator, way: Direction, other: &Walk) -> Option<ScanBound> {
        let Some(near) = self.walk.gap_bound(way) else { return self.place.clone() };
        // A walk that stands on the damage names another near side than one that comes to it from the other end.
        let after = |walk: &Walk| walk.gap().map(|gap| gap.after);
        let entry = near.across();
        let begun = self.place.as_ref().or(self.walk.near_bound(way));
        let is_new = begun.is_none_or(|begun| entry.order(comparator, begun).is_le());
        let hides = way == Direction::Backward && is_new && after(&self.walk) != after(other);
        Some(if hides && entry.order(comparator, near).is_gt() { entry } else { near.clone() })
    }

    /// Undoes a move that led beyond the other end. Its result is neither shown nor reported.
    fn take_back(&mut self, way: Direction) {
        self.walk.leave();
        self.state = End::Sought;
        // This end has shown nothing yet.
        self.place.get_or_insert_with(|| far_end(way.opposite()));
    }

    /// Begins anew, at the end of the range or at a place.
    fn reset(&mut self, place: Option<ScanBound>) {
        self.walk.leave();
        self.state = if place.is_some() { End::Sought } else { End::Fresh };
        self.place = place;
    }
}

impl Ends {
    fn new(visible: Visible, bounds: ScanBounds) -> Self {
        let front = Walk::new(visible).between(bounds.clone());
        let back = Walk::new(visible).between(bounds);
        Ends { front: RangeEnd::new(front), back: RangeEnd::new(back), is_over: false }
    }

    /// Takes a step of the front, for one direction.
    #[inline]
    fn next<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Forward)
    }

    /// Takes a step of the back.
    #[inline]
    fn next_back<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        self.step(core, Direction::Backward)
    }

    /// The end that moves in this direction, and the other one.
    #[inline(always)]
    fn moving_and_other(&mut self, way: Direction) -> (&mut RangeEnd, &mut RangeEnd) {
        match way {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        }
    }

    /// Takes a step of one end. While the other end has not moved, an entry is returned at once; all other cases are
    /// handled in functions that are not inlined.
    #[inline(always)]
    fn step<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Result<Entry<'a>>> {
        let (moving, other) = self.moving_and_other(way);
        let alone = moving.state == End::Moving && other.state == End::Fresh;
        if !alone || self.is_over {
            return self.step_with_both(core, way);
        }
        let (moving, _) = self.moving_and_other(way);
        match moving.walk.advance(core, way) {
            Ok(Some(entry)) => Some(Ok(entry)),
            moved => self.finish_alone(way, moved),
        }
    }

    /// Takes the first step of an end, or any step once both ends have moved.
    #[inline(never)]
    fn step_with_both<'a>(&mut self, core: &'a Core, way: Direction) -> Option<Result<Entry<'a>>> {
        if self.is_over {
            return None;
        }
        let (moving, other) = self.moving_and_other(way);
        if other.state == End::Fresh {
            let moved = moving.advance(core, way);
            moving.place = None;
            return self.finish_alone(way, moved);
        }
        if let Err(corruption) =
            moving.note_place(core, way).and_then(|()| other.note_place(core, way.opposite()))
        {
            let failed = moving.walk.fail(corruption);
            self.is_over = true;
            return failed.err().map(Err);
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
        if moving.is_over(&moved) {
            moving.place = Some(far_end(way));
            self.is_over = true;
        }
        moved.transpose()
    }

    /// Handles the result of a move when both ends have moved: it is shown or reported if it is before the position
    /// of the other end (RANGE-1, RANGE-2).
    #[inline(never)]
    fn meet<'a>(
        &mut self,
        core: &'a Core,
        way: Direction,
        moved: Result<Option<Entry<'a>>>,
    ) -> Option<Result<Entry<'a>>> {
        let comparator = &core.comparator;
        let (moving, other) = self.moving_and_other(way);
        let inside = match (&moved, &other.place) {
            (Ok(Some(entry)), Some(limit)) => {
                entry.is_before(comparator, &limit.target(comparator)) == (way == Direction::Forward)
            }
            (Err(_), Some(limit)) => {
                let begin = moving.error_begins(comparator, way, &other.walk);
                let order = begin.map(|scan_bound| scan_bound.order(comparator, limit));
                order.is_none_or(|order| order == way.opposite().outward())
            }
            _ => false,
        };
        if !inside {
            moving.take_back(way);
            self.is_over = true;
            return None;
        }
        if moving.is_over(&moved) {
            self.is_over = true;
            return moved.transpose();
        }
        match moved {
            Ok(entry) => {
                moving.place = entry.map(|entry| moving.walk.passed(way, &entry));
                entry.map(Ok)
            }
            Err(error) => {
                moving.place = moving.walk.progress(core, way).ok();
                Some(Err(error))
            }
        }
    }

    /// Moves the end of this direction to a position.
    fn seek(&mut self, way: Direction, place: ScanBound) {
        self.moving_and_other(way).0.reset(Some(place));
        self.is_over = false;
    }

    /// Replaces the bounds and restarts both ends.
    fn set_bounds(&mut self, bounds: ScanBounds) {
        for end in [&mut self.front, &mut self.back] {
            end.reset(None);
            end.walk.set_bounds(bounds.clone());
        }
        self.is_over = false;
    }
}

impl<H: Handle, L: Visibility> EntryRange<H, L> {
    /// A range between two bounds; an inverted one is empty.
    pub(crate) fn new(handle: H, visible: Visible, bounds: ScanBounds) -> Self {
        EntryRange { handle, ends: Ends::new(visible, bounds), shows: PhantomData }
    }

    /// The next entry from the front, borrowed until the next call; `None` once the ends have met.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"one")?;
    /// let mut range = table.owned_range(..);
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

    /// The next entry from the back, borrowed until the next call; see [`next_entry`](Self::next_entry).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.owned_range(..);
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

    /// Moves the front, forward or backward, so that its next entry is the first one of the range whose user key is
    /// at or after `key`, if the back has not passed it. Reads nothing before the next step. A range at its end goes
    /// on from there, too.
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
    pub fn seek(&mut self, key: &[u8]) {
        self.ends.seek(Direction::Forward, ScanBound::before(key, SequenceNumber::MAX));
    }

    /// Moves the back so that its next entry is the last one of the range whose user key is at or before `key`, if
    /// the front has not passed it. Reads nothing before the next step; see [`seek`](Self::seek).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"c", b"")?;
    /// let mut range = table.owned_range(..);
    /// range.seek_for_prev(b"b");
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok(()) }
    /// ```
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.ends.seek(Direction::Backward, ScanBound::after(key, 0));
    }

    /// Replaces the bounds and restarts both ends.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.owned_range(..);
    /// for (bounds, expected) in [("a".."b", b"a"), ("b".."c", b"b")] {
    ///     range.set_bounds(bounds);
    ///     assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(expected.as_slice()));
    ///     assert!(range.next_entry()?.is_none());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_bounds<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) {
        self.ends.set_bounds(key_bounds(&range));
    }

    /// The error of the last step of either end; see [`Cursor::status`](crate::scan::Cursor::status).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let mut range = MemTable::default().owned_range(..);
    /// assert!(!matches!(range.next_entry(), Ok(Some(_))));
    /// range.status()?; // the end, not damage
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption`, as the step returned it.
    pub fn status(&self) -> Result<()> {
        self.ends.front.walk.status().and_then(|()| self.ends.back.walk.status())
    }
}

impl<H: Handle> EntryRange<H, Raw> {
    /// Moves the front so that its next entry is the first one at or after (`key`, `sequence`); see
    /// [`seek`](Self::seek).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(3, b"k", b"three")?;
    /// table.put(5, b"k", b"five")?;
    /// let mut range = table.owned_range(..);
    /// range.seek_version(b"k", 4);
    /// assert_eq!(range.next_entry()?.map(|entry| entry.sequence()), Some(3));
    /// # Ok(()) }
    /// ```
    pub fn seek_version(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.ends.seek(Direction::Forward, ScanBound::before(key, sequence));
    }

    /// Replaces the bounds by positions (user key, sequence number), as those of
    /// [`range_versions`](crate::TableReader::range_versions), and restarts both ends.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// for sequence in 1..=5 {
    ///     table.put(sequence, b"k", b"")?;
    /// }
    /// let mut range = table.owned_range(..);
    /// range.set_version_bounds((b"k", 4)..=(b"k", 2));
    /// let found = range.map(|copy| Ok(copy?.sequence())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
    /// assert_eq!(found, [4, 3, 2]);
    /// # Ok(()) }
    /// ```
    pub fn set_version_bounds<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<(K, SequenceNumber)>) {
        self.ends.set_bounds(version_bounds(&range));
    }
}

impl<'t, L: Visibility> Iterator for EntryRange<Borrowed<'t>, L> {
    type Item = Result<Entry<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.ends.next(self.handle.0)
    }
}

impl<L: Visibility> DoubleEndedIterator for EntryRange<Borrowed<'_>, L> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.ends.next_back(self.handle.0)
    }
}

impl<L: Visibility> std::iter::FusedIterator for EntryRange<Borrowed<'_>, L> {}

/// Yields copies of entries, each verified after it was made.
impl<L: Visibility> Iterator for EntryRange<Owned, L> {
    type Item = Result<EntryBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.ends.next(&self.handle.0)?;
        Some(step.and_then(|entry| entry.to_bytes()))
    }
}

impl<L: Visibility> DoubleEndedIterator for EntryRange<Owned, L> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let step = self.ends.next_back(&self.handle.0)?;
        Some(step.and_then(|entry| entry.to_bytes()))
    }
}

impl<L: Visibility> std::iter::FusedIterator for EntryRange<Owned, L> {}

// Estimates of the size of a range: counted if it is small, else computed from the towers of the list.
//
// Any thread.

/// An estimate of the size of a range.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::RangeStats;
/// let table = MemTable::default();
/// table.put(1, b"a", b"1")?;
/// let stats: RangeStats = table.approximate_range_stats(..)?;
/// assert_eq!((stats.entries, stats.data_bytes), (1, 2));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeStats {
    /// Number of entries: exact up to 64, with a standard error of about 1/8 above.
    pub entries: u64,
    /// Bytes of their keys and values, computed from the mean of the table.
    pub data_bytes: u64,
}

/// Ranges of up to this many entries are counted.
const EXACT_MOST: u64 = 64;

/// Number of entries between two positions, each verified; `None` if there are more than `EXACT_MOST`.
fn count_few(search: &Search<'_>, from: &Target<'_>, to: &Target<'_>) -> Result<Option<u64>> {
    let mut next = search.find_at_or_after(from)?;
    let mut count = 0;
    while let Some(entry) = next
        && entry.node().order(search.comparator, to).is_lt()
    {
        count += 1;
        if count > EXACT_MOST {
            return Ok(None);
        }
        next = search.next(entry.offset())?;
    }
    Ok(Some(count))
}

/// Estimates the number and the bytes of the entries between two bounds.
pub(crate) fn approximate_range_stats(
    core: &Core,
    ScanBounds { lower, upper }: ScanBounds,
) -> Result<RangeStats> {
    let from =
        lower.as_ref().map_or(Target::extreme(Side::Start), |scan_bound| scan_bound.target(&core.comparator));
    let to =
        upper.as_ref().map_or(Target::extreme(Side::End), |scan_bound| scan_bound.target(&core.comparator));
    let totals = core.shards.totals();
    let points = totals.entries.wrapping_sub(totals.range_deletes).wrapping_add(totals.displaced);
    let search = core.point_search()?;
    let entries = match count_few(&search, &from, &to)? {
        Some(count) => count,
        None => core.points.list.approximate_count(&search, &from, &to)?.max(EXACT_MOST),
    };
    let entries = entries.min(points);
    let data_bytes = u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
    Ok(RangeStats { entries, data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX) })
}

// Descending ranges: keys descend, and the newest version of each key comes first.
//
// ```text
//   a@9   b@7   b@4   c@2          Back: from the first version of a key to the key before it
//         <---- first <- from      then to that key's first version, which is shown
//         ----> ---->              Versions: and forward through the others
// ```
// * DESCENDING-1: a descending range never goes back to a key that is not before the last one, and reports a gap once,
//   from whichever side it meets it.
//
// One thread at a time moves a range; tables may be written meanwhile.

/// A range with keys descending and the newest version of each key first. A damaged place is reported once, and the
/// range goes on at its other side. Made by [`range_descending`](crate::TableReader::range_descending) and
/// [`owned_range_descending`](crate::TableReader::owned_range_descending).
///
/// A range that borrows its table is an iterator over entries. One that has a share in the table lends them, by
/// [`next_entry`](Self::next_entry), and is an iterator over verified copies of them.
///
/// ```
/// use paranoid_memtable::MemTable;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// for (sequence, key) in [(1, b"a"), (2, b"b"), (3, b"b"), (4, b"c")] {
///     table.put(sequence, key, b"value")?;
/// }
/// let mut range = table.owned_range_descending(..).with_version_bounds((b"a", u64::MAX)..=(b"b", 3));
/// drop(table);
/// assert_eq!(range.next_entry()?.map(|entry| (entry.user_key(), entry.sequence())), Some((b"b".as_slice(), 3)));
/// let rest = range.map(|entry| Ok(entry?.user_key().to_vec())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
/// assert_eq!(rest, [b"a"], "b@2 is after the upper bound, b@3");
/// # Ok(()) }
/// ```
pub struct DescendingRange<H: Handle> {
    handle: H,
    descent: Descent,
}

/// A descending range that borrows its table.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::Descending;
/// let table = MemTable::default();
/// table.put(1, b"a", b"")?;
/// table.put(2, b"b", b"")?;
/// let mut range: Descending<'_> = table.range_descending(..);
/// assert_eq!(range.next().expect("two entries")?.user_key(), b"b");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type Descending<'t> = DescendingRange<Borrowed<'t>>;
/// A descending range that keeps its table alive: `'static`, `Send` and `Sync`.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::OwnedDescending;
/// let table = MemTable::default();
/// table.put(1, b"a", b"1")?;
/// let mut range: OwnedDescending = table.owned_range_descending(..);
/// drop(table); // the range keeps the memory alive
/// assert_eq!(range.next().expect("one entry")?.value(), b"1");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type OwnedDescending = DescendingRange<Owned>;

impl<H: Handle> fmt::Debug for DescendingRange<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescendingRange").field("walk", &self.descent.walk).finish_non_exhaustive()
    }
}

/// The state of a descending range, without a borrow of its table, which each call is given.
struct Descent {
    walk: Walk,
    phase: Phase,
    /// Where it begins, after a seek.
    from: Option<ScanBound>,
    /// The key whose versions are shown, in the range's own memory.
    key: Option<Vec<u8>>,
    /// The key's first version, or the gap before it, from where the walk goes back.
    first: Option<Mark>,
    /// The sides of the gap that was reported last.
    reported: Option<(u32, u32)>,
    limit: StepLimit,
}

/// What a descending range does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    /// The walk goes forward through the versions of the key.
    Versions,
    /// The walk goes back to the key before.
    Back,
    Done,
}

/// The result of one move of a descending range.
enum Came<'a> {
    /// An entry, an error, or the end.
    Out(Option<Result<Entry<'a>>>),
    /// The move led to no entry that is shown, so the range moves on.
    On,
}

impl Descent {
    fn new(walk: Walk) -> Self {
        Descent {
            walk,
            phase: Phase::Fresh,
            from: None,
            key: None,
            first: None,
            reported: None,
            limit: StepLimit::default(),
        }
    }

    /// Restarts at the end of the range or at a position.
    fn reset(&mut self, from: Option<ScanBound>) {
        self.walk.leave();
        (self.phase, self.from, self.key) = (Phase::Fresh, from, None);
        (self.first, self.reported, self.limit) = (None, None, StepLimit::default());
    }

    /// Replaces the bounds.
    fn set_bounds(&mut self, bounds: ScanBounds) {
        self.reset(None);
        self.walk.set_bounds(bounds);
    }

    fn next<'a>(&mut self, core: &'a Core) -> Option<Result<Entry<'a>>> {
        loop {
            if let Came::Out(item) = self.step(core) {
                return item;
            }
        }
    }

    fn step<'a>(&mut self, core: &'a Core) -> Came<'a> {
        if let Err(corruption) = self.limit.count(core) {
            return self.end_with(corruption);
        }
        match self.phase {
            Phase::Done => Came::Out(None),
            Phase::Versions => {
                let moved = self.walk.advance_any(core, Direction::Forward);
                self.version(core, moved)
            }
            Phase::Back => {
                let moved = self.walk.advance_any(core, Direction::Backward);
                self.key_before(core, moved)
            }
            Phase::Fresh => {
                self.phase = Phase::Back;
                let moved = self.walk.begin(core, Direction::Backward, self.from.as_ref());
                self.key_before(core, moved)
            }
        }
    }

    /// Handles a step forward: it led to another version of the key, or the key is done.
    fn version<'a>(&mut self, core: &'a Core, moved: Result<Option<Entry<'a>>>) -> Came<'a> {
        match moved {
            Ok(Some(entry)) if self.order_of(core, &entry).is_eq() => return Came::Out(Some(Ok(entry))),
            Err(error) if !self.knows_gap() => return Came::Out(Some(Err(error))),
            _ => {}
        }
        self.phase = Phase::Back;
        if let Some(first) = self.first.take() {
            self.walk.return_to(first);
        }
        Came::On
    }

    /// Handles a step back: goes on to the first version of the key that it led to.
    fn key_before<'a>(&mut self, core: &'a Core, moved: Result<Option<Entry<'a>>>) -> Came<'a> {
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
            let order = self.order_of(core, &entry);
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
        let first = self.walk.rewind_key(core);
        self.phase = Phase::Versions;
        self.first = Some(self.walk.mark());
        match first {
            Err(_) if self.knows_gap() => Came::On,
            first => first.transpose().map_or(Came::On, |first| Came::Out(Some(first))),
        }
    }

    /// Compares an entry's key with the one whose versions are being shown.
    fn order_of(&self, core: &Core, entry: &Entry<'_>) -> std::cmp::Ordering {
        let key = self.key.as_deref().unwrap_or_default();
        core.comparator.compare(entry.user_key(), key)
    }

    /// Whether the gap of the walk was reported already (DESCENDING-1); marks it as reported.
    fn knows_gap(&mut self) -> bool {
        let sides = self.walk.gap().map(|gap| (gap.before, gap.after));
        let known = sides.is_some() && sides == self.reported;
        self.reported = sides.or(self.reported);
        known
    }

    #[cold]
    fn end_with<'a>(&mut self, corruption: Corruption) -> Came<'a> {
        if self.phase == Phase::Done {
            return Came::Out(None);
        }
        self.phase = Phase::Done;
        Came::Out(self.walk.fail(corruption).err().map(Err))
    }
}

impl<H: Handle> DescendingRange<H> {
    /// A descending range between two bounds; an inverted one is empty.
    pub(crate) fn new(handle: H, bounds: ScanBounds) -> Self {
        DescendingRange { handle, descent: Descent::new(Walk::new(Visible::All).between(bounds)) }
    }

    /// The next entry, borrowed until the next call; `None` at the end of the range.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.owned_range_descending(..);
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// assert!(range.next_entry()?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` for a damaged place; the next call goes on at its other side.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        self.descent.next(self.handle.core()).transpose()
    }

    /// Moves the range to the last of its keys that is at or before `key`: the next entry is that key's newest
    /// version. Reads nothing before the next step. A range at its end goes on from there, too.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// for (sequence, key) in [(1, b"a"), (2, b"c"), (3, b"c"), (4, b"e")] {
    ///     table.put(sequence, key, b"")?;
    /// }
    /// let mut range = table.range_descending(..);
    /// range.seek(b"d");
    /// let found = range.next_entry()?.map(|entry| (entry.user_key(), entry.sequence()));
    /// assert_eq!(found, Some((b"c".as_slice(), 3)));
    /// # Ok(()) }
    /// ```
    pub fn seek(&mut self, key: &[u8]) {
        self.descent.reset(Some(ScanBound::after(key, 0)));
    }

    /// Replaces the bounds and restarts the range.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut range = table.owned_range_descending(..);
    /// range.set_bounds(.."b");
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok(()) }
    /// ```
    pub fn set_bounds<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) {
        self.descent.set_bounds(key_bounds(&range));
    }

    /// Replaces the bounds by positions (user key, sequence number) in the table's order, as for
    /// [`range_versions`](crate::TableReader::range_versions), and restarts the range. It shows the entries between
    /// them, in its own order.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// for (sequence, key) in [(1, b"a"), (2, b"a"), (3, b"b"), (4, b"b")] {
    ///     table.put(sequence, key, b"")?;
    /// }
    /// let mut range = table.owned_range_descending(..);
    /// range.set_version_bounds((b"a", 1)..(b"b", 3));
    /// let found = range.map(|copy| Ok(copy?.sequence())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
    /// assert_eq!(found, [4, 1], "a@2 stands before the lower bound, b@3 at the upper one");
    /// # Ok(()) }
    /// ```
    pub fn set_version_bounds<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<(K, SequenceNumber)>) {
        self.descent.set_bounds(version_bounds(&range));
    }

    /// This range with bounds of (user key, sequence number); see [`set_version_bounds`](Self::set_version_bounds).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"a", b"")?;
    /// let range = table.range_descending(..).with_version_bounds((b"a", 1)..);
    /// assert_eq!(range.count(), 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_version_bounds<K: AsRef<[u8]>>(
        mut self,
        range: impl RangeBounds<(K, SequenceNumber)>,
    ) -> Self {
        self.set_version_bounds(range);
        self
    }

    /// The error of the last step; see [`Cursor::status`](crate::scan::Cursor::status).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let mut range = MemTable::default().owned_range_descending(..);
    /// assert!(!matches!(range.next_entry(), Ok(Some(_))));
    /// range.status()?; // the end, not damage
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption`, as the step returned it.
    pub fn status(&self) -> Result<()> {
        self.descent.walk.status()
    }
}

impl<'t> Iterator for DescendingRange<Borrowed<'t>> {
    type Item = Result<Entry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.descent.next(self.handle.0)
    }
}

impl std::iter::FusedIterator for DescendingRange<Borrowed<'_>> {}

/// Yields copies of entries, each verified after it was made.
impl Iterator for DescendingRange<Owned> {
    type Item = Result<EntryBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.descent.next(&self.handle.0)?;
        Some(step.and_then(|entry| entry.to_bytes()))
    }
}

impl std::iter::FusedIterator for DescendingRange<Owned> {}
