//! Scans: cursors and ranges, and the entries that they show.

#![forbid(unsafe_code)]

pub(crate) mod bounds;
pub(crate) mod cursor;
pub(crate) mod descending;
pub(crate) mod estimate;
pub(crate) mod gap;
pub(crate) mod handle;
pub(crate) mod range;
pub(crate) mod runs;
mod scope;
pub(crate) mod tombstones;
pub(crate) mod visibility;
mod walk;
