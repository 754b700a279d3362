//! Writes, one entry or a batch at a time.

#![forbid(unsafe_code)]

pub(crate) mod own_writer;
pub(crate) mod write_batch;
pub(crate) mod writer;
