//! Point reads: of one key or of many, with range tombstones applied.

#![forbid(unsafe_code)]

pub(crate) mod entry;
pub(crate) mod newest;
pub(crate) mod get;
pub(crate) mod multi_get;
