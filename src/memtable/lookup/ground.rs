//! The ground of all parts of a table: its arena and its comparator.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::memtable::arena::arena::Arena;

/// The arena and the comparator, which the methods of all parts take.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'t> {
    pub(crate) arena: &'t Arena,
    pub(crate) comparator: &'t KeyComparator,
}
