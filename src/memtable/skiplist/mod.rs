//! The skiplist: searches, inserts and iteration. It knows order only.

#![forbid(unsafe_code)]

#[cfg(all(test, not(loom)))]
mod steps;
pub(crate) mod search;
pub(crate) mod read_ahead;
pub(crate) mod inserter;
pub(crate) mod list;
pub(crate) mod iterate;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
