//! The units before chunk 0: the heads of both lists, and the root of the directory.
//!
//! ```text
//!   unit   0               24         32              56         64     72
//!          | links, points | sentinel | links, ranges | sentinel | root | chunk 0 ..
//! ```
//! The sentinel is both the head and the end of its list.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "the tallest tower fits 32 bits"
)]

use crate::kind::Kind;
use crate::memtable::arena::layout::{HEIGHT_MAX, LINE_UNITS};

/// The two lists of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// All entries but range tombstones.
    Points,
    /// Range tombstones.
    Ranges,
}

impl Head {
    /// Whether entries of this kind are in the list.
    #[inline(always)]
    pub(crate) fn holds(self, kind: Kind) -> bool {
        (kind == Kind::RANGE_DELETE) == (self == Head::Ranges)
    }

    /// The sentinel of the list. Its links are in the units before it, and no other word shares the
    /// cache line of its back word (LAYOUT-2).
    #[inline(always)]
    pub(crate) const fn sentinel(self) -> u32 {
        match self {
            Head::Points => HEAD_UNITS - LINE_UNITS,
            Head::Ranges => 2 * HEAD_UNITS - LINE_UNITS,
        }
    }
}

/// Units of a head: a cache line for each eight links, and one for the sentinel.
const HEAD_UNITS: u32 = (HEIGHT_MAX as u32).next_multiple_of(LINE_UNITS) + LINE_UNITS;
/// The root word of the directory, in a cache line of its own.
pub(crate) const ROOT: u32 = 2 * HEAD_UNITS;
/// Units of both heads and the root: all that an empty table has.
pub(crate) const HEADS_UNITS: u32 = ROOT + LINE_UNITS;
