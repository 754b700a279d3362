//! Ranges: iterators over the entries of a table from both ends, keys ascending or descending.
//!
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::error::Result;
use crate::key::{Direction, SequenceNumber};
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, scan_bounds, version_bounds};
use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
use crate::memtable::scan::key_range::KeyRange;
use crate::memtable::scan::range_ends::Ends;
use crate::memtable::scan::visibility::{Raw, Visibility, Visible};

/// A range of entries, iterated from both ends, made by [`range`](crate::TableReader::range),
/// [`range_at`](crate::TableReader::range_at) and [`versions`](crate::TableReader::versions).
/// [`owned`](Self::owned) gives it a share in the table, and [`descending`](Self::descending)
/// reverses the order of keys. The end that reaches a damaged place first reports it, once, and
/// then continues after it.
///
/// A range that borrows its table is an iterator over entries. A range with a share in the table
/// lends entries, by [`next_entry`](Self::next_entry) and
/// [`next_back_entry`](Self::next_back_entry), and is an iterator over verified copies of them.
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

/// A range that keeps its table alive. It is `'static`, `Send` and `Sync`.
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

impl<H: Handle, L: Visibility> Range<H, L> {
    /// A range between two bounds; an inverted range is empty.
    pub(crate) fn new(handle: H, visible: Visible, bounds: ScanBounds) -> Self {
        Range {
            handle,
            ends: Ends::new(visible, Direction::Forward, bounds),
            shows: PhantomData,
        }
    }

    /// This range with keys descending and the newest version of each key first. Both ends are
    /// restarted. A snapshot sees one version of a key, so at a snapshot [`rev`](Iterator::rev) has
    /// the same order, in fewer steps.
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
    /// `Corruption` for a damaged place that this end reaches; the next call continues after it.
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
    /// it. Reads nothing before the next step. A range that has ended continues from there, too.
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
    /// This range with a share in the table, from its present place: `'static`, `Send` and `Sync`.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"one")?;
    /// table.put(5, b"a", b"new")?;
    /// let (all, at_4) = (table.range(..).owned(), table.range_at(.., 4).owned());
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

/// A range that borrows its table yields entries. A range with a share yields copies of them, each
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
