//! The memtable: write, read, scan, freeze, flush, salvage.

pub(crate) mod arena;
pub(crate) mod directory;
pub(crate) mod skiplist;
pub(crate) mod batch;
pub(crate) mod extractor;
pub(crate) mod options;
pub(crate) mod lookup;
pub(crate) mod parts;
pub(crate) mod core;
pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod scan;
pub(crate) mod lifecycle;
pub(crate) mod stats;
pub(crate) mod writer;
pub(crate) mod table;
pub(crate) mod debug;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod piece;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod past;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod fault;
#[cfg(all(test, not(loom)))]
mod tests;
