//! Write batches: entries that are written together, in RocksDB's encoding.

#![forbid(unsafe_code)]

pub(crate) mod encoding;
pub(crate) mod admit;
pub(crate) mod reader;
#[expect(
    clippy::module_inception,
    reason = "`batch::batch` holds `WriteBatch`, the subject of the folder"
)]
pub(crate) mod batch;
