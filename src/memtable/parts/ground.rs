//! The ground of all parts of a table: its arena and its comparator.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::memtable::skiplist::arena::Arena;

/// The arena and the comparator, which the methods of all parts take.
#[derive(Debug)]
pub(crate) struct Ground<'t, C> {
    pub(crate) arena: &'t Arena,
    pub(crate) comparator: &'t C,
}

impl<C> Clone for Ground<'_, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Ground<'_, C> {}
