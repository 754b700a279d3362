//! Handles: how cursors and ranges hold their table, by a borrow or by a share in it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::key::Comparator;
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
        /// The table's order.
        type Order: super::Comparator;
        /// The table.
        #[expect(private_interfaces, reason = "sealed")]
        fn core(&self) -> &super::Core<Self::Order>;
    }
}

/// A borrowed table.
///
/// ```
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_memtable::scan::{Borrowed, Cursor};
/// let table = MemTable::default();
/// let cursor: Cursor<Borrowed<'_, Bytewise>> = table.cursor();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug)]
pub struct Borrowed<'t, C>(pub(crate) &'t Core<C>);

impl<C> Clone for Borrowed<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Borrowed<'_, C> {}

/// A share in a table.
///
/// ```
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_memtable::scan::{Cursor, Owned};
/// let table = MemTable::default();
/// let cursor: Cursor<Owned<Bytewise>> = table.owned_cursor();
/// assert!(!cursor.is_valid());
/// ```
#[derive(Debug)]
pub struct Owned<C>(pub(crate) Arc<Core<C>>);

impl<C: Comparator> sealed::Holds for Borrowed<'_, C> {
    type Order = C;
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core<C> {
        self.0
    }
}

impl<C: Comparator> sealed::Holds for Owned<C> {
    type Order = C;
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core<C> {
        &self.0
    }
}

impl<C: Comparator> Handle for Borrowed<'_, C> {}
impl<C: Comparator> Handle for Owned<C> {}
