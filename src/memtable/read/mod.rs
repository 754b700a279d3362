//! Point reads: one key, many keys, and what range tombstones say about them.

#![forbid(unsafe_code)]

pub(crate) mod entry;
pub(crate) mod find_entry;
pub(crate) mod get;
pub(crate) mod multi_get;
