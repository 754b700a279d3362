//! The suite: one binary, one module per subject.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

#[path = "../support/mod.rs"]
mod support;

mod batch;
mod batch_families;
#[cfg(feature = "fault-injection")]
mod control_heals;
#[cfg(feature = "fault-injection")]
mod corruption;
mod debug_output;
mod examples;
mod file_journal;
mod filters;
mod flushes;
#[cfg(feature = "fault-injection")]
mod healing;
mod histories;
mod integrity;
mod kills;
mod limits;
mod linear_costs;
mod models;
mod one_lie;
mod orders;
mod ranges;
#[cfg(feature = "fault-injection")]
mod set_damage;
mod set_gates;
mod set_outputs;
mod set_reads;
mod set_seals;
mod set_sources;
mod set_stalls;
mod set_stops;
mod set_threads;
mod spans;
#[cfg(feature = "fault-injection")]
mod stretches;
mod surface;
mod threads;
mod tidy;
#[cfg(feature = "fault-injection")]
mod walks;
mod write_batch;
