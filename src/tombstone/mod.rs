//! Range tombstones: cuts overlapping ones into fragments that do not overlap.
//!
//! Inside a table, an index finds the newest range tombstone over a key: a log of records, one for
//! each tombstone, and a tree of nodes over it. The index reads keys from the list's entries.

#![forbid(unsafe_code)]

pub(crate) mod fragments;
pub(crate) mod fragmenter;
pub(crate) mod span;
pub(crate) mod segments;
pub(crate) mod counter;
pub(crate) mod common_prefix;
pub(crate) mod record_log;
pub(crate) mod coverage_node;
pub(crate) mod tree;
pub(crate) mod capacity;
pub(crate) mod query;
pub(crate) mod node_merge;
pub(crate) mod tree_builder;
pub(crate) mod index;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::fragmenter::{FragmentIter, Fragmenter};
pub use self::fragments::{Fragment, Fragments};
