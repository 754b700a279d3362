//! Range tombstones, and the fragments that overlapping ones are cut into.

#![forbid(unsafe_code)]

pub(crate) mod fragment;
pub(crate) mod index;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::fragment::fragmenter::Fragmenter;
pub use self::fragment::fragments::RangeTombstone;
pub use self::fragment::fragments::{Fragment, Fragments};
