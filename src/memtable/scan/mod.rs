//! Scans: cursors and ranges over a table, and which entries they show.

#![forbid(unsafe_code)]

pub(crate) mod key_range;
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
pub(crate) mod range_ends;
pub(crate) mod range;
pub(crate) mod estimate;
