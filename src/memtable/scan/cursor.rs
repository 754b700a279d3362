//! Cursors: a walk, with its table, which the cursor borrows or shares.
//!
//! The moves are in `walk`. One thread at a time moves a cursor; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::Result;
use crate::key::{Direction, SequenceNumber, Target};
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::Operands;
use crate::memtable::scan::bounds::scan_bounds;
use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
use crate::memtable::scan::key_range::KeyRange;
use crate::memtable::scan::visibility::{AtSnapshot, Raw, Visibility, Visible};
use crate::memtable::scan::walk::Walk;

/// A position in a table that moves in both directions, made by
/// [`cursor`](crate::TableReader::cursor) and [`cursor_at`](crate::TableReader::cursor_at).
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
    pub(crate) handle: H,
    pub(crate) walk: Walk,
    shows: PhantomData<L>,
}

/// A cursor that keeps its table alive. It is `'static`, `Send` and `Sync`.
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

    /// This cursor in prefix mode: restricted to user keys that start with `prefix`, in place of
    /// any bounds, and not positioned. If the table has a prefix filter, a seek asks it first, and
    /// finds no entry if the filter says that no key has the prefix.
    ///
    /// In the order of bytes ([`KeyOrder::Bytes`](crate::KeyOrder::Bytes)) these keys are adjacent,
    /// and a move visits no others. In any other order they may be anywhere, and a move passes the
    /// other keys, in O(entries passed).
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

    /// The error of the last move, if it failed. `Ok` if the cursor is on an entry, past an end, or
    /// was not moved yet. Meant for wrappers whose own moves return nothing, such as RocksDB's
    /// iterators.
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
    /// and replaced entries. Entries that a search jumps over are not counted. The difference
    /// between two calls is the number of entries that the moves between them passed: from it an
    /// engine may decide to flush a table full of deletes. O(1).
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
    /// and the next step follows the entry's links.
    #[inline]
    pub fn entry(&self) -> Result<Option<Entry<'_>>> {
        self.walk.entry(self.handle.core())
    }

    /// Moves to the first entry shown whose user key is `key` or after it, and returns the entry.
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
    /// `Corruption` if damage hides the place; the next step continues on the other side of the
    /// damage.
    #[inline]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.seek_version(key, SequenceNumber::MAX)
    }

    /// Moves to the first entry shown at or after (`key`, `sequence`), and returns the entry.
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

    /// Moves to the last entry shown whose user key is `key` or before it, and returns the entry.
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
            &Target::after_key(&core.comparator, key.as_ref()),
        )
    }

    /// Moves to the last entry shown whose user key is before `key`, and returns the entry.
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

    /// Moves to the first entry shown, and returns the entry.
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

    /// Moves to the last entry shown, and returns the entry.
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

    /// Moves to the next entry shown, and returns the entry.
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
    /// `Corruption` if damage hides the next entry; the next step continues after the damage.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor moves both ways and is no iterator"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk.step(self.handle.core(), Direction::Forward)
    }

    /// Moves to the previous entry shown, and returns the entry.
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
    /// `Corruption` if damage hides the previous entry; the next step continues before the damage.
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>> {
        self.walk.step(self.handle.core(), Direction::Backward)
    }
}

impl<'t, L: Visibility> Cursor<Borrowed<'t>, L> {
    /// This cursor with a share in the table, at the same place: `'static`, `Send` and `Sync`.
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
    /// The merge operands of the key under the cursor, newest first, with their base, as
    /// [`get`](crate::TableReader::get) returns them. `None` if the cursor is not on a merge
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
