//! Events for the crate `tracing`, with the feature of that name. Without the feature, every
//! function here is empty.
//!
//! Any thread. A caller holds no lock that a subscriber could want.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "without the feature there is no event")
)]

use std::error::Error;
use std::fmt::{Debug, Display};

/// Whether the feature `tracing` is on.
pub const IS_TRACED: bool = cfg!(feature = "tracing");

/// A call met damage in a table's memory, and returns the report.
#[cold]
pub(crate) fn damage(report: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "paranoid_memtable", %report, "damage found");
}

/// A table has put right a place of its memory.
#[cold]
pub(crate) fn healed(place: &dyn Debug, address: u64, bit: Option<u8>) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "paranoid_memtable", ?place, address, bit, "damage healed");
}

/// A table was frozen.
pub(crate) fn frozen(entries: u64, range_deletes: u64, data_bytes: u64) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "paranoid_memtable", entries, range_deletes, data_bytes, "table frozen");
}

/// A flush of a table has returned all entries, and the sums agree.
pub(crate) fn flushed(entries: u64, hidden: u64, fragments: u64, data_bytes: u64) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "paranoid_memtable", entries, hidden, fragments, data_bytes, "table flushed");
}

/// A write to a set found a memory budget used up.
#[cold]
pub fn stalled(cause: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "paranoid_set", %cause, "write stalled");
}

/// A set takes no more writes.
#[cold]
pub fn stopped(cause: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    {
        let causes = std::iter::successors(Some(cause), |&cause| cause.source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        tracing::error!(target: "paranoid_set", cause = causes.join(": "), "set stopped");
    }
}
