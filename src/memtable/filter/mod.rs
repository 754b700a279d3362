//! Filters: they tell a read that the table has no entry of a key, so that no search is needed.

#![forbid(unsafe_code)]

pub(crate) mod checked_lines;
pub(crate) mod parts;
pub(crate) mod bloom;
pub(crate) mod filters;

#[cfg(all(test, not(loom)))]
mod tests;
