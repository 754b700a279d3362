//! The ground of all parts of a table: its arena and its comparator.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::memtable::skiplist::arena::Arena;

/// The arena and the comparator, which the methods of all parts take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'t> {
    pub(crate) arena: &'t Arena,
    pub(crate) comparator: &'t KeyComparator,
}
