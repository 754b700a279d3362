//! Writes: of single entries and of batches.

#![forbid(unsafe_code)]

pub(crate) mod writer;
pub(crate) mod write_batch;
