//! Range tombstones: the fragments that overlapping ones are cut into, and the index that finds the
//! newest one over a key. The index is a log of all tombstones, and coverage nodes over it; keys
//! are read from the list's entries.

#![forbid(unsafe_code)]

pub(crate) mod fragments;
pub(crate) mod fragmenter;
pub(crate) mod span;
pub(crate) mod segments;
pub(crate) mod counter;
pub(crate) mod common_prefix;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod tree;
pub(crate) mod query;
pub(crate) mod merger;
pub(crate) mod live;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::fragmenter::{FragmentIter, Fragmenter};
pub use self::fragments::{Fragment, Fragments};
