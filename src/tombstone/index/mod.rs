//! The tombstone index, which finds the newest range tombstone over a key: a log of all tombstones, and coverage
//! nodes over it.

#![forbid(unsafe_code)]

pub(crate) mod checks;
pub(crate) mod common_prefix;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod tree;
pub(crate) mod merge;
pub(crate) mod live;
