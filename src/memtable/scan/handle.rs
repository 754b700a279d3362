//! Handles: how cursors and ranges hold their table, by a borrow or by a share in it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::memtable::core::Core;

/// How a cursor or range holds its table: [`Borrowed`] or [`Owned`]. Sealed.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::{Cursor, Handle};
/// fn count<H: Handle>(mut cursor: Cursor<H>) -> paranoid_memtable::Result<usize> {
///     let (mut count, mut entry) = (0, cursor.first()?.is_some());
///     while entry {
///         (count, entry) = (count + 1, cursor.next()?.is_some());
///     }
///     Ok(count)
/// }
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// assert_eq!((count(table.cursor())?, count(table.owned_cursor())?), (1, 1));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait Handle: sealed::Holds {}

pub(crate) mod sealed {
    /// Access to the table.
    pub trait Holds {
        /// The table.
        #[expect(private_interfaces, reason = "sealed")]
        fn core(&self) -> &super::Core;
    }
}

/// A borrowed table.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::{Borrowed, Cursor};
/// let table = MemTable::default();
/// let cursor: Cursor<Borrowed<'_>> = table.cursor();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Borrowed<'t>(pub(crate) &'t Core);

/// A share in a table.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::{Cursor, Owned};
/// let table = MemTable::default();
/// let cursor: Cursor<Owned> = table.owned_cursor();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug)]
pub struct Owned(pub(crate) Arc<Core>);

impl sealed::Holds for Borrowed<'_> {
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core {
        self.0
    }
}

impl sealed::Holds for Owned {
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core {
        &self.0
    }
}

impl Handle for Borrowed<'_> {}
impl Handle for Owned {}
