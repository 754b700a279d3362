//! The parts of a table: point entries in one of two representations, range tombstones, and writer shards.

#![forbid(unsafe_code)]

pub(crate) mod ground;
pub(crate) mod ordered;
pub(crate) mod point_entries;
pub(crate) mod range_tombstones;
pub(crate) mod representation;
pub(crate) mod vector;
pub(crate) mod watches;
pub(crate) mod writer_shards;

#[cfg(all(test, loom))]
mod loom;
