//! Scans: cursors and ranges, and what they show.

#![forbid(unsafe_code)]

pub(crate) mod bounds;
pub(crate) mod cursor;
pub(crate) mod gap;
pub(crate) mod handle;
pub(crate) mod range;
pub(crate) mod runs;
pub(crate) mod visibility;
mod walk;
