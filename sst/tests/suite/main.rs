//! The suite: one binary, one module per subject.
//!
//! `rocksdb`, `adoption`, `ages` and `gets` run RocksDB's own programs and its library, which come
//! with Debian's package `rocksdb-tools`. Without them those tests print a line and pass, unless
//! `PARANOID_SST_TOOLS=required` is set, as in the gate.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
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
