//! The fault injector: pieces of a table's memory, their earlier values, and what breaks them.

pub(crate) mod piece;
pub(crate) mod past;
pub(crate) mod injector;
