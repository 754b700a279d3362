//! The suite: one binary, one module per subject.
//!
//! `rocksdb`, `adoption`, `ages` and `gets` ask RocksDB's own programs and its library. They come
//! with Debian's package `rocksdb-tools`; without them those tests say so and pass, unless
//! `PARANOID_SST_TOOLS=required` is set, as the gate does.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

#[path = "../../../tests/support/rng.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared by path")]
mod rng;
#[path = "../../../tests/support/sets.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared by path")]
mod sets;

mod by_hand;
mod disk;
mod model;
mod tools;

mod adoption;
mod ages;
mod chain;
mod compaction;
mod crash;
mod damage;
mod footers;
mod gets;
mod identity;
mod ingest;
mod leveldb;
mod levels;
mod merging;
mod reader;
mod rocksdb;
mod vectors;
mod wild;
mod writer;
