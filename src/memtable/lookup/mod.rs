//! What stands beside the entries and answers before they are searched: filters, the point index, counters.

#![forbid(unsafe_code)]

pub(crate) mod accelerators;
pub(crate) mod filter;
pub(crate) mod lines;
pub(crate) mod point_index;
pub(crate) mod statistics;

#[cfg(all(test, loom))]
mod loom;
