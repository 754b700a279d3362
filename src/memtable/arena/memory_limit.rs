//! The hard limit of a table, and the memory that is counted against it.
//!
//! ```text
//!   limit    | taken from chunks by writers | beside the arena, built or reserved | remaining |
//! ```
//! Units are counted before they are used, and never more than the limit.
//!
//! Any thread. Counts are exact once no writer is inside a writer shard.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::memtable::arena::layout::UNIT;
use crate::sync::{AtomicU64, Ordering};

/// The hard limit of a table, with the units that are counted against it.
pub(crate) struct MemoryLimit {
    /// All units that are counted.
    counted: AtomicU64,
    /// The part of `counted` that is not in the arena.
    beside: AtomicU64,
    limit: u64,
}

impl MemoryLimit {
    /// A limit against which nothing is counted yet.
    pub(crate) fn new(limit_bytes: u64) -> MemoryLimit {
        let limit = (limit_bytes / UNIT as u64).min(1 << 32);
        MemoryLimit {
            counted: AtomicU64::new(0),
            beside: AtomicU64::new(0),
            limit,
        }
    }

    /// Counts `wish` units, or `least` if the limit does not allow `wish`. Returns the number, or
    /// `None` if the limit does not allow `least`.
    pub(crate) fn admit(&self, wish: u64, least: u64) -> Option<u64> {
        for units in [wish, least] {
            // ORDERING: Relaxed: only a count. `Arena::used` decides which thread owns which units.
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

    /// Takes admitted units out of the count.
    pub(crate) fn give_back(&self, units: u64) {
        // ORDERING: Relaxed: a count only.
        self.counted.fetch_sub(units, Ordering::Relaxed);
    }

    /// Counts `after` bytes of memory beside the arena in place of `before`. Fails if the limit
    /// does not allow the difference. The caller holds the lock of the structure that has this
    /// memory.
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

    /// Bytes that writers have taken from chunks, including the unused rest of their sub-chunks.
    pub(crate) fn taken_bytes(&self) -> u64 {
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

    /// The error for an entry that needs so many units.
    pub(crate) fn full(&self, units: u64) -> Error {
        let needed = units.saturating_mul(UNIT as u64);
        Error::MemTableFull {
            needed,
            remaining: self.remaining_bytes(),
        }
    }
}
