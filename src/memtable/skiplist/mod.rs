//! The skiplist: searches, inserts, iteration. It knows the order of entries, not their meaning.

#![forbid(unsafe_code)]

#[cfg(all(test, not(loom)))]
mod steps;
pub(crate) mod search;
pub(crate) mod find_many;
pub(crate) mod nearby;
pub(crate) mod careful;
pub(crate) mod read_ahead;
pub(crate) mod node_space;
pub(crate) mod tower;
pub(crate) mod inserter;
pub(crate) mod list;
pub(crate) mod iterate;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
