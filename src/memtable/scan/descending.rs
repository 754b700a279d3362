//! Descending ranges: keys descend, and the newest version of each key comes first.
//!
//! ```text
//!   a@9   b@7   b@4   c@2          Back: from the first version of a key to the key before it
//!         <---- first <- from      then to that key's first version, which is shown
//!         ----> ---->              Versions: and forward through the others
//! ```
//! * DESCENDING-1: a descending range never goes back to a key that is not before the last one, and reports a gap once,
//!   from whichever side it meets it.
//!
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;

use crate::error::{Corruption, Place, Result};
use crate::key::{Direction, SequenceNumber};
use crate::memtable::core::Core;
use crate::memtable::read::entry::{Entry, EntryBytes};
use crate::memtable::scan::bounds::{ScanBound, ScanBounds, key_bounds, version_bounds};
use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
use crate::memtable::scan::runs::StepLimit;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::scan::walk::{Mark, Walk};

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
                let moved = self.walk.advance(core, Direction::Forward);
                self.version(core, moved)
            }
            Phase::Back => {
                let moved = self.walk.advance(core, Direction::Backward);
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
