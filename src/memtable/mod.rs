//! Storey 4, meaning: write, read, scan, freeze, damage and repair.

pub(crate) mod aids;
pub(crate) mod batch;
mod batch_encoding;
pub(crate) mod cover;
mod debug;
pub(crate) mod edge;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod fault;
pub(crate) mod filter;
pub(crate) mod flush;
pub(crate) mod gap;
pub(crate) mod handle;
pub(crate) mod lens;
pub(crate) mod lines;
pub(crate) mod multi_get;
pub(crate) mod options;
pub(crate) mod order;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod past;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod piece;
pub(crate) mod point_index;
pub(crate) mod prefix;
pub(crate) mod probe;
pub(crate) mod range;
pub(crate) mod read;
pub(crate) mod representation;
pub(crate) mod runs;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod skiplist;
pub(crate) mod statistics;
pub(crate) mod stripes;
pub(crate) mod table;
pub(crate) mod vector;
mod walk;
pub(crate) mod write;
pub(crate) mod write_batch;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, loom))]
mod loom_lookup;
#[cfg(all(test, not(loom)))]
mod tests;
