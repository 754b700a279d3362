//! What a table is made of: entries in order, in one of two representations, and what belongs to its writers.

#![forbid(unsafe_code)]

pub(crate) mod ground;
pub(crate) mod ordered;
pub(crate) mod point_entries;
pub(crate) mod range_tombstones;
pub(crate) mod representation;
pub(crate) mod vector;
pub(crate) mod writer_shards;

#[cfg(all(test, loom))]
mod loom;
