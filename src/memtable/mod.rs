//! The memtable: its layers, from the arena up to the handles that users call.

pub(crate) mod heals;
pub(crate) mod arena;
pub(crate) mod ground;
pub(crate) mod directory;
pub(crate) mod skiplist;
pub(crate) mod batch;
pub(crate) mod extractor;
pub(crate) mod options;
pub(crate) mod filter;
pub(crate) mod shards;
pub(crate) mod range_tombstones;
pub(crate) mod core;
pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod scan;
pub(crate) mod lifecycle;
pub(crate) mod stats;
pub(crate) mod reader;
pub(crate) mod writer;
pub(crate) mod immutable;
pub(crate) mod table;
pub(crate) mod debug;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod fault;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
