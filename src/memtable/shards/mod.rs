//! Writer shards: a shard has the gate, the counters and the notes of one writer.

#![forbid(unsafe_code)]

pub(crate) mod totals;
pub(crate) mod homes;
pub(crate) mod watched_tombstones;
pub(crate) mod writer_shard;
pub(crate) mod writer_shards;
