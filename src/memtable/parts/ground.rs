//! What all parts of a table stand on: its memory and the order of its keys.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::memtable::skiplist::arena::Arena;

/// The memory and the order that a table's parts are called with.
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
