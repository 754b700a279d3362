//! The order of keys and the bounds of tombstones, which the index takes from the list of range
//! tombstones.
//!
//! ```text
//!   record of the index -- name --> node of the list: start, end, digests
//! ```
//! The index stores the name of a node, which is its offset in the arena, and reads the bounds from
//! the node. It imports no list: the list implements the trait `Spans`.
//!
//! * SPAN-1: a node is complete and linked before a record that names it is published. It never
//!   changes and is never removed.
//! * SPAN-2: a name is used only after the check of its record was verified, and a bound only after
//!   the digests of its node were verified.
//!
//! Any thread may call everything.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place};
use crate::key::SequenceNumber;

/// A value that was verified, or the report of damage.
pub(crate) type Checked<T> = std::result::Result<T, Corruption>;

/// A report of damage in the tombstone index.
#[cold]
pub(crate) fn damage(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Fragment, offset, expected, found)
}

/// The start and the end of a tombstone, which covers the keys from the start on and before the
/// end.
pub(crate) type Keys<'k> = [&'k [u8]; 2];

/// Which of a tombstone's two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Start,
    Stop,
}

/// A range tombstone in its writer's memory, with the name of its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tombstone<'k> {
    pub(crate) node: u32,
    pub(crate) keys: Keys<'k>,
    pub(crate) sequence: SequenceNumber,
}

/// Reads the nodes of the list.
pub(crate) trait Spans {
    /// A bound of the tombstone that a node stores, verified (SPAN-2).
    fn bound(&self, node: u32, end: End) -> Checked<&[u8]>;

    /// Length of both bounds in bytes, verified.
    fn key_bytes(&self, node: u32) -> Checked<u64>;
}

/// The order of the list's keys, and its nodes.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) comparator: &'t KeyComparator,
    pub(crate) spans: &'t dyn Spans,
}
