//! The keys of tombstones, which the index reads from the list's nodes: it has the names of nodes
//! alone, and imports no list.
//!
//! ```text
//!   record of the index -- name --> node of the list: start, end, digests
//! ```
//! * TRUTH-1: a node is complete, and its writer has linked it, before a record that names it is
//!   published. It never changes and is never removed.
//! * TRUTH-2: a name is used only after the check of the record that holds it was verified, and a
//!   key only after the digests of its node were.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::Corruption;
use crate::key::SequenceNumber;

pub(crate) type Checked<T> = std::result::Result<T, Corruption>;

/// The start and the end of a tombstone: it covers the keys from the first one on and before the
/// second one.
pub(crate) type Keys<'k> = [&'k [u8]; 2];

/// One of a tombstone's two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Start,
    Stop,
}

/// A range tombstone as its writer has it, with the name of its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tombstone<'k> {
    pub(crate) node: u32,
    pub(crate) keys: Keys<'k>,
    pub(crate) sequence: SequenceNumber,
}

/// Where the nodes are.
pub(crate) trait Spans {
    /// A bound of the tombstone of a node, verified (TRUTH-2).
    fn bound(&self, node: u32, end: End) -> Checked<&[u8]>;

    /// Length of both its keys in bytes, verified.
    fn key_bytes(&self, node: u32) -> Checked<u64>;
}

/// What the index takes of the list: its order, and its nodes.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) comparator: &'t KeyComparator,
    pub(crate) spans: &'t dyn Spans,
}
