//! Layer 2, intervals: spans, fragments, covering queries. Knows nothing of skiplists or tables.

#![forbid(unsafe_code)]

pub(crate) mod fragment;
pub(crate) mod index;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
