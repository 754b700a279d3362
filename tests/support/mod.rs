//! What all tests share: random numbers from a seed, a model of a table, random operations, a watchdog.
//!
//! Included by path: `#[path = "../support/mod.rs"] mod support;`. Nothing in this folder uses the internals of a
//! table.
#![allow(unreachable_pub, reason = "shared by path")]
#![allow(dead_code, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

pub mod case;
pub mod model;
pub mod orders;
pub mod rng;
pub mod sets;
pub mod walks;

use std::sync::Arc;

use paranoid_memtable::{Comparator, MemTableOptions, MemTableOptionsBuilder};
use paranoid_set::SetOptions;

/// Options with this order.
pub fn under(options: MemTableOptionsBuilder, order: impl Comparator) -> MemTableOptions {
    options.comparator(Arc::new(order)).build().unwrap()
}

/// Options of a set whose tables have this order.
pub fn set_under(order: impl Comparator) -> SetOptions {
    SetOptions::builder().table(under(MemTableOptions::builder(), order)).build().unwrap()
}
