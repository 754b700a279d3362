//! The suite: one binary, one module per subject.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

#[path = "../support/mod.rs"]
mod support;

mod api;
mod batch;
#[cfg(feature = "fault-injection")]
mod broken_walks;
mod checksums;
mod comparators;
#[cfg(feature = "fault-injection")]
mod control;
#[cfg(feature = "fault-injection")]
mod corruption;
mod cursors;
mod debug_output;
mod examples;
mod file_journal;
mod flush_protection;
mod growth;
mod histories;
mod integrity;
mod keys;
mod kills;
mod kv_store;
mod limits;
mod linear_costs;
mod lookup;
mod lost_race;
#[cfg(feature = "fault-injection")]
mod lost_tombstones;
mod model;
mod oracle;
#[cfg(feature = "fault-injection")]
mod orders_under_damage;
mod pulled_flush;
mod ranges;
mod reports;
mod room;
mod scrub_and_freeze;
mod set_budgets;
#[cfg(feature = "fault-injection")]
mod set_damage;
mod set_flush_thread;
mod set_listener;
mod set_model;
mod set_recycling;
mod set_scans;
mod set_stalls;
#[cfg(feature = "fault-injection")]
mod set_stopped_damage;
mod set_stops;
mod set_threads;
mod shared_order;
mod slow_freeze;
mod span_threads;
mod spans;
mod threads;
mod tidy;
mod trailers;
mod walk_costs;
#[cfg(feature = "fault-injection")]
mod walks;
mod write_batch;
