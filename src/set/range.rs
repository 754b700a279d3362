//! Ranges over a set: iterators with a merging cursor at each end.
//!
//! ```text
//!   front ->  a  b  [unread]  e  f  <- back        the two ends stop where they meet
//! ```
//! * SET-RANGE-1: each end keeps the last key that it showed. The other end shows nothing at or beyond it.
//!
//! One thread at a time moves a range; sets may be written meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::error::Result;
use crate::key::{Bytewise, Comparator};
use crate::set::merge_head::Way;
use crate::set::merged_entry::{MergedEntry, MergedEntryBytes};
use crate::set::merging_cursor::MergingCursor;

/// What a view shows between two bounds, iterated from both ends: it lends entries, by [`next_entry`](Self::next_entry)
/// and [`next_back_entry`](Self::next_back_entry), and is an iterator over copies of them. `Send`, and `'static` if the
/// engine's own sources in it are; it keeps the memory of its tables alive. Made by [`View::range`](crate::set::View::range)
/// and [`View::merging_range`](crate::set::View::merging_range).
///
/// What cannot be read is an error of the end that comes to it, which then goes on after it; the other end may report it
/// once more.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, SetOptions, SetRange};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// for key in [b"a", b"b", b"c", b"d"] {
///     let mut batch = WriteBatch::new();
///     batch.put(key, b"value")?;
///     set.write(&batch)?;
///     set.switch()?;
/// }
/// let mut range: SetRange<'static> = set.view().range(b"b".as_slice()..)?;
/// drop(set);
/// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"d".as_slice()));
/// let rest = range.map(|entry| Ok(entry?.user_key().to_vec())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
/// assert_eq!(rest, [b"b", b"c"]);
/// # Ok(()) }
/// ```
pub struct SetRange<'s, C: Comparator = Bytewise> {
    comparator: C,
    front: Tip<'s, C>,
    back: Tip<'s, C>,
    is_over: bool,
}

/// One end of a range.
struct Tip<'s, C: Comparator> {
    cursor: MergingCursor<'s, C>,
    state: End,
    /// The last key that it showed (SET-RANGE-1).
    place: Option<Vec<u8>>,
}

/// Where the next step of an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At its end of the range.
    Fresh,
    /// Where its cursor stands.
    Moving,
}

impl<'s, C: Comparator> Tip<'s, C> {
    fn new(cursor: MergingCursor<'s, C>) -> Self {
        Tip { cursor, state: End::Fresh, place: None }
    }

    fn advance(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        let state = std::mem::replace(&mut self.state, End::Moving);
        match (state, way) {
            (End::Fresh, Way::Forward) => self.cursor.first(),
            (End::Fresh, Way::Backward) => self.cursor.last(),
            (End::Moving, Way::Forward) => self.cursor.next(),
            (End::Moving, Way::Backward) => self.cursor.prev(),
        }
    }
}

impl<'s, C: Comparator + Clone> SetRange<'s, C> {
    /// A range with a cursor over one set of sources at each end.
    pub(crate) fn new<'k>(
        comparator: &C,
        cursors: [MergingCursor<'s, C>; 2],
        range: &impl RangeBounds<&'k [u8]>,
    ) -> Self {
        let bound = |bound: Bound<&&'k [u8]>| bound.map(|key| *key);
        let (lower, upper) = (bound(range.start_bound()), bound(range.end_bound()));
        let [front, back] = cursors.map(|cursor| Tip::new(cursor.with_bounds(lower, upper)));
        SetRange { comparator: comparator.clone(), front, back, is_over: false }
    }
}

impl<C: Comparator> SetRange<'_, C> {
    /// The next entry from the front, lent until the next call.
    ///
    /// # Errors
    /// Those of [`MergingCursor::first`]; the next call goes on after what could not be read.
    pub fn next_entry(&mut self) -> Result<Option<MergedEntry<'_>>> {
        self.step(Way::Forward)
    }

    /// The next entry from the back, lent until the next call.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// set.write(&batch)?;
    /// let mut range = set.view().range(..)?;
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.value()), Some(b"1".as_slice()));
    /// assert!(range.next_entry()?.is_none(), "the ends have met");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`next_entry`](Self::next_entry).
    pub fn next_back_entry(&mut self) -> Result<Option<MergedEntry<'_>>> {
        self.step(Way::Backward)
    }

    fn step(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        if self.is_over {
            return Ok(None);
        }
        let (own, other) = match way {
            Way::Forward => (&mut self.front, &self.back),
            Way::Backward => (&mut self.back, &self.front),
        };
        let Some(entry) = own.advance(way)? else {
            self.is_over = true;
            return Ok(None);
        };
        let have_met = other.place.as_ref().is_some_and(|place| {
            let order = self.comparator.compare(entry.user_key(), place);
            if way == Way::Forward { order.is_ge() } else { order.is_le() }
        });
        if have_met {
            self.is_over = true;
            return Ok(None);
        }
        let entry = own.cursor.entry();
        own.place = entry.map(|entry| entry.user_key().to_vec());
        Ok(entry)
    }
}

impl<C: Comparator> Iterator for SetRange<'_, C> {
    type Item = Result<MergedEntryBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| entry.map(|entry| entry.to_bytes())).transpose()
    }
}

impl<C: Comparator> DoubleEndedIterator for SetRange<'_, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_entry().map(|entry| entry.map(|entry| entry.to_bytes())).transpose()
    }
}

impl<C: Comparator> fmt::Debug for SetRange<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetRange")
            .field("front", &self.front.cursor)
            .field("back", &self.back.cursor)
            .finish_non_exhaustive()
    }
}
