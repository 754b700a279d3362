//! Writes: of single entries and of batches.

#![forbid(unsafe_code)]

pub(crate) mod insert;
pub(crate) mod read_batch;
pub(crate) mod write_batch;
pub(crate) mod prepared;
pub(crate) mod methods;
