//! Scans: cursors and ranges, and the entries that they show.

#![forbid(unsafe_code)]

pub(crate) mod handle;
pub(crate) mod bounds;
pub(crate) mod runs;
pub(crate) mod visibility;
pub(crate) mod gap;
mod scope;
mod walk;
pub(crate) mod cursor;
pub(crate) mod range;
pub(crate) mod descending;
pub(crate) mod tombstones;
pub(crate) mod estimate;
