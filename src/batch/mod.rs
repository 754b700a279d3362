//! Entries that are written together, in RocksDB's encoding.

#![forbid(unsafe_code)]

#[expect(clippy::module_inception, reason = "the room is named after what it is for")]
pub(crate) mod batch;
pub(crate) mod encoding;
pub(crate) mod entries;
pub(crate) mod limits;

pub use self::batch::{RangeOrder, SequenceMode};
pub use self::entries::{BatchEntries, BatchEntry};
pub use self::limits::SinkLimits;
