//! What is counted against the hard limit of a table.
//!
//! ```text
//!   limit    | handed out of chunks | beside the arena, built or still to be built | remaining |
//! ```
//! * ROOM-1: units are counted before they are used, and never more than the limit.
//!
//! Any thread. Counts are exact once no writer is inside.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::memtable::arena::layout::UNIT;
use crate::sync::{AtomicU64, Ordering};

/// Units counted against the hard limit.
pub(crate) struct Room {
    /// All that is counted.
    counted: AtomicU64,
    /// Of that, what is not in the arena.
    beside: AtomicU64,
    limit: u64,
}

impl Room {
    /// Room of which nothing is taken.
    pub(crate) fn new(limit_bytes: u64) -> Room {
        let limit = (limit_bytes / UNIT as u64).min(1 << 32);
        Room {
            counted: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            limit,
        }
    }

    /// Counts `wish` units, or `least` if the limit allows no more.
    pub(crate) fn admit(&self, wish: u64, least: u64) -> Option<u64> {
        for units in [wish, least] {
            // ORDERING: Relaxed: a count only; who owns which units is decided elsewhere.
            let admitted =
                self.counted
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counted| {
                        (counted + units <= self.limit).then_some(counted + units)
                    });
            if admitted.is_ok() {
                return Some(units);
            }
        }
        None
    }

    /// Undoes an admission.
    pub(crate) fn give_back(&self, units: u64) {
        // ORDERING: Relaxed: a count only.
        self.counted.fetch_sub(units, Ordering::Relaxed);
    }

    /// Counts memory beside the arena: from now on so many bytes instead of `before`. More of them
    /// only if the limit allows them. The caller has a lock for the owner of such memory.
    pub(crate) fn count_beside(&self, before: u64, after: u64) -> Result<()> {
        let [before, after] = [before, after].map(|bytes| bytes.div_ceil(UNIT as u64));
        let more = after.saturating_sub(before);
        self.admit(more, more).ok_or_else(|| self.full(more))?;
        self.give_back(before.saturating_sub(after));
        // ORDERING: Relaxed: a count only.
        self.beside
            .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        Ok(())
    }

    /// Bytes handed out to writers, including the unused rest of their sub-chunks.
    pub(crate) fn handed_bytes(&self) -> u64 {
        // ORDERING: Relaxed: a count, exact once no writer is inside (their exit is the partner).
        let beside = self.beside.load(Ordering::Relaxed);
        // ORDERING: Relaxed: a count, exact once no writer is inside (their exit is the partner).
        self.counted.load(Ordering::Relaxed).saturating_sub(beside) * UNIT as u64
    }

    /// Bytes between what is counted and the limit.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        // ORDERING: Relaxed: a count, exact once no writer is inside (their exit is the partner).
        self.limit
            .saturating_sub(self.counted.load(Ordering::Relaxed))
            * UNIT as u64
    }

    /// The error of an entry that needs so many units.
    pub(crate) fn full(&self, units: u64) -> Error {
        let needed = units.saturating_mul(UNIT as u64);
        Error::MemTableFull {
            needed,
            remaining: self.remaining_bytes(),
        }
    }
}
