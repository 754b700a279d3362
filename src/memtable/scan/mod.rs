//! Scans: cursors and ranges, and the entries that they show.

#![forbid(unsafe_code)]

pub(crate) mod bounds;
pub(crate) mod visibility;
pub(crate) mod step_limit;
pub(crate) mod reported_gap;
pub(crate) mod pass;
pub(crate) mod scope;
pub(crate) mod walk;
pub(crate) mod handle;
pub(crate) mod cursor;
pub(crate) mod tombstones;
pub(crate) mod source;
pub(crate) mod range;
pub(crate) mod estimate;
