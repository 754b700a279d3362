//! Range tombstones, and the fragments that overlapping ones are cut into.

#![forbid(unsafe_code)]

pub(crate) mod fragments;
pub(crate) mod index;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::fragments::Fragmenter;
pub use self::fragments::{Fragment, Fragments};
