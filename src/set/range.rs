//! Ranges over a set: iterators with a merging cursor at each end.
//!
//! ```text
//!   front ->  a  b  [unread]  e  f  <- back        the two ends stop where they meet
//! ```
//! * SET-RANGE-1: each end keeps the last key that it showed, or where it was sought. The other end shows nothing beyond that,
//!   and not what was shown.
//!
//! One thread at a time moves a range; sets may be written meanwhile.

#![forbid(unsafe_code)]

use std::ops::{Bound, RangeBounds};

use crate::error::Result;
use crate::key::{Bytewise, Comparator};
use crate::memtable::lifecycle::debug::shown;
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
}

/// One end of a range.
struct Tip<'s, C: Comparator> {
    cursor: MergingCursor<'s, C>,
    state: End,
    /// SET-RANGE-1.
    place: Option<(Vec<u8>, Place)>,
}

/// What a key is to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Shown,
    Sought,
}

/// Where the next step of an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At its end of the range.
    Fresh,
    /// At the key that was sought.
    Sought,
    /// On the entry under its cursor, which was not shown because the ends had met.
    Held,
    /// After the entry under its cursor.
    Moving,
}

impl<'s, C: Comparator> Tip<'s, C> {
    fn new(cursor: MergingCursor<'s, C>) -> Self {
        Tip { cursor, state: End::Fresh, place: None }
    }

    fn advance(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        let state = std::mem::replace(&mut self.state, End::Moving);
        let sought = self.place.as_ref().map_or(&[][..], |(key, _)| key);
        match (state, way) {
            (End::Held, _) => Ok(self.cursor.entry()),
            (End::Sought, Way::Forward) => self.cursor.seek(sought),
            (End::Sought, Way::Backward) => self.cursor.seek_for_prev(sought),
            (End::Fresh, Way::Forward) => self.cursor.first(),
            (End::Fresh, Way::Backward) => self.cursor.last(),
            (End::Moving, Way::Forward) => self.cursor.next(),
            (End::Moving, Way::Backward) => self.cursor.prev(),
        }
    }

    fn seek(&mut self, key: &[u8]) {
        self.state = End::Sought;
        self.place = Some((key.to_vec(), Place::Sought));
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
        SetRange { comparator: comparator.clone(), front, back }
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

    /// Moves the front, forward or backward, so that its next entry is the first one of the range whose user key is at or
    /// after `key`, if the back has not passed it. Reads nothing before the next step. A range at its end goes on from there,
    /// too.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// for key in [b"a", b"c", b"e"] {
    ///     batch.put(key, b"value")?;
    /// }
    /// set.write(&batch)?;
    /// let mut range = set.view().range(..)?;
    /// range.seek(b"b");
    /// assert_eq!(range.next_entry()?.map(|entry| entry.user_key()), Some(b"c".as_slice()));
    /// range.seek_for_prev(b"d");
    /// assert!(range.next_back_entry()?.is_none(), "the front has come there");
    /// # Ok(()) }
    /// ```
    pub fn seek(&mut self, key: &[u8]) {
        self.front.seek(key);
    }

    /// Moves the back so that its next entry is the last one of the range whose user key is at or before `key`, if the front
    /// has not passed it. Reads nothing before the next step; see [`seek`](Self::seek).
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"c", b"2")?;
    /// set.write(&batch)?;
    /// let mut range = set.view().range(..)?;
    /// range.seek_for_prev(b"b");
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok(()) }
    /// ```
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.back.seek(key);
    }

    fn step(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        let (own, other) = match way {
            Way::Forward => (&mut self.front, &self.back),
            Way::Backward => (&mut self.back, &self.front),
        };
        let Some(entry) = own.advance(way)? else { return Ok(None) };
        let have_met = other.place.as_ref().is_some_and(|(key, place)| {
            let order = self.comparator.compare(entry.user_key(), key);
            let order = if way == Way::Forward { order } else { order.reverse() };
            order.is_gt() || order.is_eq() && *place == Place::Shown
        });
        if have_met {
            own.state = End::Held;
            return Ok(None);
        }
        let entry = own.cursor.entry();
        own.place = entry.map(|entry| (entry.user_key().to_vec(), Place::Shown));
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

shown! {
    "SetRange": impl [C: Comparator] SetRange<'_, C>, |range| {
        "front": range.front.cursor, "back": range.back.cursor
    }
}
