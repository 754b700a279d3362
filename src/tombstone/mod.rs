//! Storey 2, intervals: spans, fragments, covering queries. Knows nothing of skiplists or tables.

#![forbid(unsafe_code)]

pub(crate) mod checks;
pub(crate) mod counter;
#[cfg(all(test, not(loom)))]
pub(crate) mod fault;
pub(crate) mod forest;
pub(crate) mod fragment_cursor;
pub(crate) mod fragmenter;
pub(crate) mod fragments;
pub(crate) mod frozen;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod merge;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod paint;
pub(crate) mod query;
pub(crate) mod segments;
pub(crate) mod skyline;
pub(crate) mod span;
pub(crate) mod stem;
#[cfg(all(test, not(loom)))]
mod tests;
