//! `Ground`: the arena and the comparator of a table, which the methods of its parts take.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::memtable::arena::arena::Arena;

/// The arena and the comparator of a table.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'t> {
    pub(crate) arena: &'t Arena,
    pub(crate) comparator: &'t KeyComparator,
}
