//! What all tests share: random numbers from a seed, a model of a table, random operations, a watchdog.
//!
//! Included by path: `#[path = "../support/mod.rs"] mod support;`. Nothing in this folder uses the internals of a
//! table.
#![allow(unreachable_pub, reason = "shared by path")]
#![allow(dead_code, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

pub mod case;
pub mod disk;
#[cfg(feature = "fault-injection")]
pub mod ends;
pub mod linearizable;
pub mod model;
pub mod orders;
pub mod reads;
pub mod rng;
pub mod run;
pub mod sets;
pub mod theory;
pub mod under;
pub mod walks;
pub mod watchdog;
