//! Layer 5, meaning: write, read, scan, freeze, damage and repair.

pub(crate) mod core;
pub(crate) mod lifecycle;
pub(crate) mod lookup;
pub(crate) mod options;
pub(crate) mod parts;
pub(crate) mod prefix;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod side_structure;
pub(crate) mod skiplist;
pub(crate) mod table;
pub(crate) mod write;

#[cfg(all(test, not(loom)))]
mod tests;
