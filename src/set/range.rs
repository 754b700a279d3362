//! Ranges over a set: iterators with a merging cursor at each end.
//!
//! ```text
//!   front ->  a  b  [unread]  e  f  <- back        the two ends stop where they meet
//! ```
//! * SET-RANGE-1: the place of an end, which is the last key that it showed, or where it was sought, is the bound at which
//!   the other end's cursor stops.
//!
//! One thread at a time moves a range; sets may be written meanwhile.

#![forbid(unsafe_code)]

use std::ops::{Bound, RangeBounds};

use crate::error::Result;
use crate::key::Direction;
use crate::memtable::debug::shown;
use crate::set::merged_entry::MergedEntry;
use crate::set::merging_cursor::MergingCursor;

/// What a view shows between two bounds, iterated from both ends: it lends entries, by [`next_entry`](Self::next_entry)
/// and [`next_back_entry`](Self::next_back_entry), and is an iterator over copies of them. `Send`, and `'static` if the
/// engine's own sources in it are; it keeps the memory of its tables alive. Made by [`View::range`](crate::set::View::range)
/// and [`View::merging_range`](crate::set::View::merging_range).
///
/// What cannot be read is an error of the end that comes to it, which then goes on after it. The other end may report it
/// once more, and so may an end that had stopped and to which a seek of the other one gives room again.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, SetOptions, SetRange};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::builder().max_write_buffer_number(9).build()?, ())?;
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
pub struct SetRange<'s> {
    front: Tip<'s>,
    back: Tip<'s>,
}

/// One end of a range.
struct Tip<'s> {
    cursor: MergingCursor<'s>,
    /// Whether it goes on from where its cursor is, and not from its place.
    is_moving: bool,
}

impl<'s> SetRange<'s> {
    /// A range with a cursor over one set of sources at each end.
    pub(crate) fn new<'k>(cursors: [MergingCursor<'s>; 2], range: &impl RangeBounds<&'k [u8]>) -> Self {
        let bound = |bound: Bound<&&'k [u8]>| bound.map(|key| *key);
        let (lower, upper) = (bound(range.start_bound()), bound(range.end_bound()));
        let [front, back] =
            cursors.map(|cursor| Tip { cursor: cursor.with_bounds(lower, upper), is_moving: false });
        SetRange { front, back }
    }

    /// The next entry from the front, lent until the next call.
    ///
    /// # Errors
    /// Those of [`MergingCursor::first`]; the next call goes on after what could not be read.
    pub fn next_entry(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Forward)
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
    pub fn next_back_entry(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Backward)
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
        self.place(Direction::Forward, key);
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
        self.place(Direction::Backward, key);
    }

    /// The end that goes this way, and the other one.
    fn ends(&mut self, way: Direction) -> [&mut Tip<'s>; 2] {
        let SetRange { front, back } = self;
        if way == Direction::Forward { [front, back] } else { [back, front] }
    }

    fn place(&mut self, way: Direction, key: &[u8]) {
        let [own, other] = self.ends(way);
        let is_inside = !own.cursor.is_outside(way.opposite(), key);
        let place =
            if is_inside { Bound::Included(key.to_vec()) } else { own.cursor.end_of(way.opposite()).clone() };
        *other.cursor.end_of(way.opposite()) = place;
        own.is_moving = false;
        // The ends may have met there, and have room between them now.
        other.is_moving &= !other.cursor.is_nowhere();
    }

    fn step(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        let [own, other] = self.ends(way);
        let place = other.cursor.end_of(way.opposite());
        let entry = if std::mem::replace(&mut own.is_moving, true) {
            own.cursor.step(way)?
        } else {
            own.cursor.enter(way, place.as_ref().map(Vec::as_slice))?
        };
        if let Some(entry) = entry {
            *place = Bound::Excluded(entry.user_key().to_vec());
        }
        Ok(entry)
    }
}

impl Iterator for SetRange<'_> {
    type Item = Result<MergedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(Option::<&_>::cloned).transpose()
    }
}

impl DoubleEndedIterator for SetRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_entry().map(Option::<&_>::cloned).transpose()
    }
}

shown! {
    "SetRange": impl [] SetRange<'_>, |range| {
        "front": range.front.cursor, "back": range.back.cursor
    }
}
