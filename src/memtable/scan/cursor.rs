//! Cursors: a walk together with its table, which is borrowed or shared.
//!
//! See `walk` for the moves and their invariants. One thread at a time moves a cursor; tables may
//! be written meanwhile.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::{Corruption, Place, Result};
use crate::key::{Comparator, Direction, Kind, SequenceNumber, Target};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::{Verified, bytes_of, misplaced};
use crate::memtable::core::Core;
use crate::memtable::read::entry::{Entry, EntryBytes, copy_verified};
use crate::memtable::read::get::Operands;
use crate::memtable::scan::bounds::{KeyRange, scan_bounds};
use crate::memtable::scan::visibility::{AtSnapshot, Raw, Visibility, Visible};
use crate::memtable::scan::walk::Walk;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::fragmenter::Fragmenter;
use crate::tombstone::fragments::Fragments;
use crate::tombstone::live::{CoveringRun, Question};

/// A position in a table that moves in both directions. Made by
/// [`cursor`](crate::TableReader::cursor) and [`cursor_at`](crate::TableReader::cursor_at);
/// [`owned`](Self::owned) gives it a share in the table.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"a", b"1")?;
/// table.put(2, b"b", b"2")?;
/// table.delete(3, b"a")?;
/// let mut cursor = table.cursor_at(3);
/// let entry = cursor.first()?.expect("b is there");
/// assert_eq!(entry.user_key(), b"b");
/// assert!(cursor.next()?.is_none());
/// # Ok(()) }
/// ```
///
/// Every move verifies the entry that it leads to and returns it. [`entry`](Self::entry) verifies
/// the entry under the cursor once more.
#[must_use]
pub struct Cursor<H: Handle, L: Visibility = Raw> {
    handle: H,
    pub(crate) walk: Walk,
    shows: PhantomData<L>,
}

/// A cursor that keeps its table alive: `'static`, `Send` and `Sync`.
///
/// ```
/// use paranoid_memtable::{MemTable, OwnedCursor};
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// let mut cursor: OwnedCursor = table.cursor().owned();
/// drop(table); // the cursor keeps the memory alive
/// assert!(cursor.seek(b"apple")?.is_some());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type OwnedCursor<L = Raw> = Cursor<Owned, L>;

impl<H: Handle, L: Visibility> Cursor<H, L> {
    pub(crate) fn new(handle: H, visible: Visible) -> Self {
        Cursor {
            handle,
            walk: Walk::new(visible, scan_bounds(&..)),
            shows: PhantomData,
        }
    }

    /// This cursor, restricted to user keys in `range` and not positioned. An inverted range is
    /// empty.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor().with_bounds("b".to_string()..);
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert!(cursor.with_bounds("b".."a").first()?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn with_bounds(mut self, range: impl KeyRange) -> Self {
        self.set_bounds(range);
        self
    }

    /// Replaces the bounds, or the prefix; see [`with_bounds`](Self::with_bounds). The cursor is
    /// not positioned afterwards.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor().owned();
    /// for (bounds, expected) in [("a".."b", b"a"), ("b".."c", b"b")] {
    ///     cursor.set_bounds(bounds);
    ///     assert_eq!(cursor.last()?.map(|entry| entry.user_key()), Some(expected.as_slice()));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_bounds(&mut self, range: impl KeyRange) {
        self.walk.set_bounds(scan_bounds(&range));
    }

    /// This cursor in prefix mode: restricted to user keys that start with `prefix`, instead of any
    /// bounds, and not positioned. If the table has a prefix filter, a seek asks it first, and
    /// finds no entry if the filter says that no key has the prefix.
    ///
    /// In the order of the bytes ([`KeyOrder::Bytes`](crate::KeyOrder::Bytes)) these keys are
    /// adjacent, and a move visits no others. In any other order they may be anywhere, and a move
    /// passes the other keys, O(entries passed).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// use paranoid_memtable::filter::FixedPrefix;
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
    pub fn with_prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.set_prefix(prefix);
        self
    }

    /// Replaces the prefix, or the bounds; see [`with_prefix`](Self::with_prefix). The cursor is
    /// not positioned afterwards.
    pub fn set_prefix(&mut self, prefix: impl AsRef<[u8]>) {
        self.walk
            .set_prefix(&self.handle.core().comparator, prefix.as_ref());
    }

    /// The error of the last seek or step, until the next move. `Ok` if the cursor is on an entry,
    /// past an end, or was not moved yet. Meant for wrappers whose own moves return nothing, such
    /// as RocksDB's iterators.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let mut cursor = MemTable::default().cursor().owned();
    /// let _ = cursor.first();
    /// assert!(!cursor.is_valid());
    /// cursor.status()?; // the end, not damage
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption`, as the move returned it.
    pub fn status(&self) -> Result<()> {
        self.walk.status()
    }

    /// Whether the cursor is on an entry.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut cursor = table.cursor();
    /// assert!(!cursor.is_valid());
    /// cursor.first()?;
    /// assert!(cursor.is_valid());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.walk.is_valid()
    }

    /// The number of stored entries that this cursor has looked at and not shown since it was made,
    /// in both directions: entries that are too new, deleted or covered, older versions of a key,
    /// and entries that others replaced. What a search leads past is not looked at. The difference
    /// between two calls tells how much the moves between them had to pass, by which an engine may
    /// decide to flush a table full of deletes. O(1).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.delete(2, b"apple")?;
    /// table.put(3, b"pear", b"green")?;
    /// let mut cursor = table.cursor_at(3);
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"pear".as_slice()));
    /// assert_eq!(cursor.hidden_entries(), 2);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn hidden_entries(&self) -> u64 {
        self.walk.hidden
    }

    /// The entry under the cursor, verified now; `None` if the cursor is not on an entry.
    ///
    /// A move verifies and returns the entry that it leads to, so a loop over moves need not call
    /// this.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut cursor = table.cursor();
    /// cursor.first()?;
    /// assert_eq!(cursor.entry()?.expect("one entry").value()?, b"red");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the entry under the cursor was damaged meanwhile. The cursor stays there,
    /// and the next step goes on along the entry's links.
    #[inline]
    pub fn entry(&self) -> Result<Option<Entry<'_>>> {
        self.walk.entry(self.handle.core())
    }

    /// Goes to the first entry shown whose user key is `key` or after it, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.seek(b"a")?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert!(cursor.seek(b"c")?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage hides the place; the next step goes on at the other side of the
    /// damage.
    #[inline]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.seek_version(key, SequenceNumber::MAX)
    }

    /// Goes to the first entry shown at or after (`key`, `sequence`), and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"old")?;
    /// table.put(5, b"a", b"new")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.seek_version(b"a", 4)?.map(|entry| entry.sequence()), Some(1));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    #[inline]
    pub fn seek_version(
        &mut self,
        key: impl AsRef<[u8]>,
        sequence: SequenceNumber,
    ) -> Result<Option<Entry<'_>>> {
        self.walk
            .seek_version(self.handle.core(), key.as_ref(), sequence)
    }

    /// Goes to the last entry shown whose user key is `key` or before it, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.seek_for_prev(b"c")?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert!(cursor.seek_for_prev(b"a")?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    #[inline]
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        let core = self.handle.core();
        self.walk.go_to(
            core,
            Direction::Backward,
            &Target::behind_key(&core.comparator, key.as_ref()),
        )
    }

    /// Goes to the last entry shown whose user key is before `key`, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.seek_before(b"b")?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// assert!(cursor.seek_before(b"a")?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        let core = self.handle.core();
        let target = Target::new(&core.comparator, key.as_ref(), SequenceNumber::MAX);
        self.walk.go_to(core, Direction::Backward, &target)
    }

    /// Goes to the first entry shown, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"")?;
    /// table.put(2, b"a", b"")?;
    /// assert_eq!(table.cursor().first()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn first(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk
            .begin(self.handle.core(), Direction::Forward, None)
    }

    /// Goes to the last entry shown, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"")?;
    /// table.put(2, b"a", b"")?;
    /// assert_eq!(table.cursor().last()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn last(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk
            .begin(self.handle.core(), Direction::Backward, None)
    }

    /// Goes to the next entry shown, and returns it.
    ///
    /// ```
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// # let table = paranoid_memtable::MemTable::new(Default::default())?;
    /// # table.put(1, b"a", b"x")?;
    /// let mut cursor = table.cursor();
    /// let mut entry = cursor.first()?;
    /// while let Some(found) = entry {
    ///     println!("{} bytes", found.value()?.len());
    ///     entry = cursor.next()?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage hides the next entry; the next step goes on after the damage.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor moves both ways and is no iterator"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk.step(self.handle.core(), Direction::Forward)
    }

    /// Goes to the previous entry shown, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor();
    /// cursor.last()?;
    /// assert_eq!(cursor.prev()?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage hides the previous entry; the next step goes on before the damage.
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk.step(self.handle.core(), Direction::Backward)
    }
}

impl<'t, L: Visibility> Cursor<Borrowed<'t>, L> {
    /// This cursor with a share in the table, from where it is: `'static`, `Send` and `Sync`.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut cursor = table.cursor_at(1).owned();
    /// drop(table); // the cursor keeps the memory alive
    /// let thread = std::thread::spawn(move || cursor.first().map(|entry| entry.is_some()));
    /// assert!(thread.join().expect("no panic")?);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn owned(self) -> OwnedCursor<L> {
        Cursor {
            handle: Owned(Arc::clone(self.handle.0)),
            walk: self.walk,
            shows: self.shows,
        }
    }

    /// The entry under the cursor, verified now, with the lifetime of the table's borrow.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut cursor = table.cursor();
    /// cursor.first()?;
    /// let entry = cursor.table_entry()?.expect("one entry");
    /// drop(cursor); // the entry borrows the table
    /// assert_eq!(entry.value()?, b"red");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`entry`](Self::entry).
    #[inline]
    pub fn table_entry(&self) -> Result<Option<Entry<'t>>> {
        self.walk.entry(self.handle.0)
    }
}

impl<H: Handle> Cursor<H, AtSnapshot> {
    /// The merge operands of the key under the cursor, newest first, and their base, as
    /// [`get`](crate::TableReader::get) returns them; `None` if the cursor is not on a merge
    /// operand.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"sum", b"5")?;
    /// table.merge(2, b"sum", b"+1")?;
    /// table.merge(3, b"sum", b"+2")?;
    /// let mut cursor = table.cursor_at(3);
    /// cursor.first()?;
    /// let operands = cursor.operands()?.expect("the newest entry is an operand");
    /// let values = operands.map(|operand| Ok(operand?.value)).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
    /// assert_eq!(values, [b"+2", b"+1"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the entry under the cursor was damaged meanwhile, or if damage could change
    /// the base of the operands.
    pub fn operands(&self) -> Result<Option<Operands<'_>>> {
        self.walk.operands(self.handle.core())
    }
}

// Handles: how cursors and ranges hold their table, by a borrow or by a share in it.
//
// Any thread.

/// How a cursor or range holds its table: [`Borrowed`] or [`Owned`]. Sealed.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::Cursor;
/// use paranoid_memtable::scan::Handle;
/// fn count<H: Handle>(mut cursor: Cursor<H>) -> paranoid_memtable::Result<usize> {
///     let (mut count, mut entry) = (0, cursor.first()?.is_some());
///     while entry {
///         (count, entry) = (count + 1, cursor.next()?.is_some());
///     }
///     Ok(count)
/// }
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// assert_eq!((count(table.cursor())?, count(table.cursor().owned())?), (1, 1));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait Handle {
    /// What a range yields as an iterator: an [`Entry`], or [`EntryBytes`], which outlive the
    /// range.
    type Item;

    /// The table. Its type is private, so no other crate implements this trait.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core;

    /// Takes a step of a range, and makes of its entry what is yielded.
    #[doc(hidden)]
    #[expect(private_bounds, reason = "sealed")]
    fn yielded<F>(&self, step: F) -> Option<Result<Self::Item>>
    where
        F: for<'a> FnOnce(&'a Core) -> Option<Result<Entry<'a>>>;
}

/// How a cursor or range holds its table if it borrows it.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::Cursor;
/// use paranoid_memtable::scan::Borrowed;
/// let table = MemTable::default();
/// let cursor: Cursor<Borrowed<'_>> = table.cursor();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Borrowed<'t>(pub(crate) &'t Arc<Core>);

/// How an owned cursor or range holds its table: it shares ownership, so the table's memory stays
/// as long as the cursor does.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::Cursor;
/// use paranoid_memtable::scan::Owned;
/// let table = MemTable::default();
/// let cursor: Cursor<Owned> = table.cursor().owned();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug)]
pub struct Owned(pub(crate) Arc<Core>);

impl<'t> Handle for Borrowed<'t> {
    type Item = Entry<'t>;

    #[inline(always)]
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core {
        self.0
    }

    #[inline(always)]
    #[expect(private_bounds, reason = "sealed")]
    fn yielded<F>(&self, step: F) -> Option<Result<Entry<'t>>>
    where
        F: for<'a> FnOnce(&'a Core) -> Option<Result<Entry<'a>>>,
    {
        step(self.0)
    }
}

impl Handle for Owned {
    type Item = EntryBytes;

    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core {
        &self.0
    }

    #[expect(private_bounds, reason = "sealed")]
    fn yielded<F>(&self, step: F) -> Option<Result<EntryBytes>>
    where
        F: for<'a> FnOnce(&'a Core) -> Option<Result<Entry<'a>>>,
    {
        Some(step(&self.0)?.and_then(|entry| entry.to_bytes()))
    }
}

// The range tombstones of a table as fragments. Each tombstone is read from its list and copied,
// and the copy is verified. A frozen table keeps the fragments of a snapshot that sees every
// tombstone; they are copied and verified.
//
// ```text
//   list        [a, g) @ 3   [c, k) @ 7   [m, p) @ 9
//   at 8        a--c 3   c--k 7                         one number a fragment: the newest that the snapshot sees
// ```
// Any thread; the list may be written meanwhile.

/// Passes every stored range tombstone to `take`, verified, with a verified copy of its end.
pub(crate) fn each_tombstone(
    core: &Core,
    mut take: impl FnMut(&Verified<'_>, &[u8], &View<'_>) -> Result<()>,
) -> Result<()> {
    let search = core.range_search()?;
    let mut end = Vec::new();
    let mut next = next_of(&search, search.sentinel)?;
    while let Some(entry) = next {
        next = next_of(&search, entry.offset())?;
        copy_verified(&entry, search.view.width, &mut end)?;
        // The table accepts only tombstones whose start is before their end, so a key was damaged
        // or the comparator changed.
        let is_behind =
            |next: Verified<'_>| core.comparator.compare(entry.key(), next.key()).is_gt();
        if core.comparator.compare(entry.key(), &end).is_ge() || next.is_some_and(is_behind) {
            return Err(misplaced(entry.offset(), entry.node().sequence()).into());
        }
        take(&entry, &end, &search.view)?;
    }
    Ok(())
}

/// The fragments that a snapshot sees, each with the newest sequence number that it sees.
pub(crate) fn range_tombstones(core: &Core, snapshot: SequenceNumber) -> Result<Fragments> {
    if let Some(kept) = core.tombstones.fragments(core.ground(), snapshot) {
        return Ok(kept);
    }
    let mut fragmenter = Fragmenter::under(core.comparator.clone()).with_snapshots(&[]);
    each_tombstone(core, |entry, end, _| match entry.node().sequence() {
        // A tombstone with sequence number 0 deletes nothing.
        sequence if (1..=snapshot).contains(&sequence) => {
            fragmenter.add(entry.key(), end, sequence)
        }
        _ => Ok(()),
    })?;
    Ok(fragmenter.finish())
}

/// The entry after `at`, for passes that stop at the first gap.
#[inline]
pub(crate) fn next_of<'a>(
    search: &Search<'a>,
    at: u32,
) -> Result<Option<Verified<'a>>, Corruption> {
    let next = search.next(at).map_err(|gap| gap.corruption)?;
    // A step that stays in place would never end.
    match next {
        Some(entry) if entry.offset() == at => {
            Err(Corruption::new(Place::Order, bytes_of(at), 0, 0))
        }
        next => Ok(next),
    }
}

// Sorted sources: what a merging cursor of an engine merges. A table is such a source, and an
// engine's files can be.
//
// ```text
//   a@9  a@4  b@7  d@2  d@1        user keys ascend, the versions of each descend
//        ^
//        where the source stands   every move returns the entry that it leads to, or none past an end
// ```
// One thread at a time moves a source.

/// Where a sorted source stands: an entry without its value.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::scan::SourceKey;
/// let key = SourceKey { user_key: b"k", sequence: 7, kind: Kind::PUT };
/// assert_eq!(key.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct SourceKey<'s> {
    /// The user key.
    pub user_key: &'s [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind: any but a range delete.
    pub kind: Kind,
}

/// A range tombstone that covers a key.
///
/// ```
/// use paranoid_memtable::scan::Cover;
/// let cover = Cover { sequence: 7, span: Some((b"a", b"c")), hides_own: false };
/// assert_eq!(cover.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct Cover<'s> {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// If known, keys around the one that was asked for, start to end (exclusive), which tombstones
    /// of this number or newer ones of the same source cover as well. A cursor passes them in older
    /// sources by one seek.
    pub span: Option<(&'s [u8], &'s [u8])>,
    /// Whether every visible entry of this source in the span is older than the tombstone, so that
    /// a cursor passes them by a seek, too. `false` if that is not known.
    pub hides_own: bool,
}

/// Where a sorted source is to go.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::{SortedSource, SourceMove};
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// table.put(2, b"pear", b"green")?;
/// let mut source = table.source();
/// let mut key = |to| Ok::<_, paranoid_memtable::Error>(source.go(to)?.map(|key| key.user_key.to_vec()));
/// assert_eq!(key(SourceMove::Seek(b"b", u64::MAX))?, Some(b"pear".to_vec()));
/// assert_eq!(key(SourceMove::Prev)?, Some(b"apple".to_vec()));
/// assert_eq!(key(SourceMove::SeekBefore(b"apple"))?, None);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SourceMove<'k> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the next entry.
    Next,
    /// To the entry before.
    Prev,
    /// To the first entry at or after a key and a sequence number: the newest version of the key up
    /// to that number, or else the newest one of the next key.
    Seek(&'k [u8], SequenceNumber),
    /// To the last entry whose user key is this one or before it.
    SeekForPrev(&'k [u8]),
    /// To the last entry whose user key is before this one.
    SeekBefore(&'k [u8]),
}

/// A sorted source of entries: a table, a table file, all files of a level. User keys ascend, the
/// versions of a key descend. The merging cursor and the compactions of `paranoid-set` merge such
/// sources, and `paranoid-sst` has one of a table file.
///
/// A move that fails returns its error once; the next one goes on at the other side of what could
/// not be read, or stands past the end if nothing is known to be there. A step leads strictly on, a
/// seek never to the wrong side of its key: the merging cursor and the compactions check that, and
/// return `InvalidArgument` with the place of a source that does not.
///
/// ```
/// use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
/// use paranoid_memtable::{Kind, Result, SequenceNumber};
///
/// /// Keys with one version each, in memory. Positions are from 0 to the length, inclusive.
/// struct Level(Vec<(&'static str, &'static str)>, usize);
/// impl SortedSource for Level {
///     fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
///         let count = |is_passed: &dyn Fn(&[u8]) -> bool| self.0.partition_point(|it| is_passed(it.0.as_bytes()));
///         self.1 = match to {
///             SourceMove::First => 0,
///             SourceMove::Last => self.0.len().wrapping_sub(1),
///             SourceMove::Next => self.1.wrapping_add(1),
///             SourceMove::Prev => self.1.wrapping_sub(1),
///             SourceMove::Seek(key, sequence) => count(&|it| it < key || it == key && sequence < 1),
///             SourceMove::SeekForPrev(key) => count(&|it| it <= key).wrapping_sub(1),
///             SourceMove::SeekBefore(key) => count(&|it| it < key).wrapping_sub(1),
///         };
///         let entry = self.0.get(self.1);
///         Ok(entry.map(|(key, _)| SourceKey { user_key: key.as_bytes(), sequence: 1, kind: Kind::PUT }))
///     }
///     fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
///         value.clear();
///         value.extend_from_slice(self.0[self.1].1.as_bytes());
///         Ok(())
///     }
///     fn range_tombstones(&mut self, _: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>) -> Result<()> {
///         Ok(())
///     }
/// }
/// # fn main() -> Result<()> {
/// let mut level = Level(vec![("a", "1"), ("b", "2")], 0);
/// assert_eq!(level.go(SourceMove::Seek(b"aa", 9))?.map(|key| key.user_key), Some(&b"b"[..]));
/// assert!(level.go(SourceMove::Next)?.is_none());
/// # Ok(()) }
/// ```
pub trait SortedSource: Send {
    /// Makes a move, and returns the entry that it leads to.
    ///
    /// # Errors
    /// What could not be read.
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>>;

    /// Clears the buffer and copies the value of the entry into it on which the source stands; the
    /// copy is verified. Called only while it stands on one.
    ///
    /// # Errors
    /// What could not be read.
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()>;

    /// Passes start, end and sequence number of every range tombstone to `take`, in any order. The
    /// source stands where it stood.
    ///
    /// # Errors
    /// What could not be read, and errors of `take`.
    #[expect(
        clippy::type_complexity,
        reason = "a name for it would be one more to be known"
    )]
    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()>;

    /// The newest range tombstone up to `snapshot` that covers `key` in this order of keys. The
    /// answer does not depend on where the source stands. O(range tombstones), unless a source has
    /// its own.
    ///
    /// # Errors
    /// What could not be read.
    fn cover(
        &mut self,
        order: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let mut newest = None;
        self.range_tombstones(&mut |start, end, sequence| {
            let covers = order.compare(start, key).is_le() && order.compare(key, end).is_lt();
            newest = newest.max((covers && sequence <= snapshot).then_some(sequence));
            Ok(())
        })?;
        Ok(newest.map(|sequence| Cover {
            sequence,
            span: None,
            hides_own: false,
        }))
    }

    /// Whether there may be versions of `key`: what a filter says. Point reads ask it first.
    ///
    /// # Errors
    /// What could not be read.
    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        let _ = key;
        Ok(true)
    }
}

/// All versions of a table as a source. Whether a key is covered, and how far, is asked of the
/// table's index.
pub(crate) struct TableSource {
    cursor: OwnedCursor,
    /// The interval of the tombstone that was asked for last.
    run: CoveringRun,
}

impl TableSource {
    pub(crate) fn new(cursor: OwnedCursor) -> Self {
        TableSource {
            cursor,
            run: CoveringRun::default(),
        }
    }
}

impl SortedSource for TableSource {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        let entry = match to {
            SourceMove::First => self.cursor.first(),
            SourceMove::Last => self.cursor.last(),
            SourceMove::Next => self.cursor.next(),
            SourceMove::Prev => self.cursor.prev(),
            SourceMove::Seek(key, sequence) => self.cursor.seek_version(key, sequence),
            SourceMove::SeekForPrev(key) => self.cursor.seek_for_prev(key),
            SourceMove::SeekBefore(key) => self.cursor.seek_before(key),
        };
        let (user_key, sequence, kind) = match entry? {
            Some(entry) => (entry.user_key(), entry.sequence(), entry.kind()),
            None => return Ok(None),
        };
        Ok(Some(SourceKey {
            user_key,
            sequence,
            kind,
        }))
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.cursor
            .entry()?
            .map_or(Ok(()), |entry| entry.value_into(value))
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        let core = &self.cursor.handle.0;
        each_tombstone(core, |entry, end, _| {
            take(entry.key(), end, entry.node().sequence())
        })
    }

    fn cover(
        &mut self,
        _: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let core = &self.cursor.handle.0;
        let question = Question::new(key, snapshot);
        let covering = core
            .tombstones
            .covering_run(core.ground(), question, &mut self.run)?;
        Ok(covering.map(|sequence| Cover {
            sequence,
            span: (!self.run.is_empty()).then_some((&self.run.start, &self.run.end)),
            hides_own: core.is_dead(&self.run),
        }))
    }
}
