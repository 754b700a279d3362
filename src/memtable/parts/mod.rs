//! The parts of a table: point entries, range tombstones, and writer shards.

#![forbid(unsafe_code)]

pub(crate) mod homes;
pub(crate) mod watches;
pub(crate) mod writer_shards;
pub(crate) mod range_tombstones;
#[cfg(all(test, loom))]
mod loom;
