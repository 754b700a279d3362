//! Handles: a cursor or range holds its table by a borrow or by a share in it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::memtable::core::Core;
use crate::memtable::read::entry::{Entry, EntryBytes};
use std::sync::Arc;

/// The way in which a cursor or range holds its table: [`Borrowed`] or [`Owned`]. Sealed.
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
    /// The item of a range as an iterator: an [`Entry`], or [`EntryBytes`], which outlive the
    /// range.
    type Item;

    /// The table. Its type is private, so no other crate implements this trait.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core;

    /// Takes a step of a range, and makes the iterator's item of its entry.
    #[doc(hidden)]
    #[expect(private_bounds, reason = "sealed")]
    fn yielded<F>(&self, step: F) -> Option<Result<Self::Item>>
    where
        F: for<'a> FnOnce(&'a Core) -> Option<Result<Entry<'a>>>;
}

/// The handle of a cursor or range that borrows its table.
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

/// The handle of an owned cursor or range. It shares ownership of the table, so the table's memory
/// lives at least as long as the cursor.
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
