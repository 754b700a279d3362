//! Entries that are written together, in RocksDB's encoding.

#![forbid(unsafe_code)]

pub(crate) mod encoding;
pub(crate) mod admit;
pub(crate) mod reader;
#[expect(
    clippy::module_inception,
    reason = "the room is named after what it is for"
)]
pub(crate) mod batch;
