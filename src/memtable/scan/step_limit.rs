//! The limit of steps that a walk may take, so that each walk ends (WALK-3).
//!
//! One thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::memtable::core::Core;

/// Number of steps that every walk may take, however small its table is.
const STEPS_SPARE: u64 = 64;

/// Counts the steps of a walk, and allows a few more than twice the number of entries. Under a
/// consistent comparator a walk takes at most one step for each entry and one for each gap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepLimit {
    pub(crate) taken: u64,
    /// Number of entries of the table, as last counted.
    entries: u64,
}

impl StepLimit {
    /// Counts a step, and fails after too many. It counts the table's entries only when the limit
    /// is reached, in O(shards).
    #[inline]
    pub(crate) fn count(&mut self, core: &Core) -> Result<(), Corruption> {
        self.taken += 1;
        if self.taken > self.most() {
            self.entries = core.shards.totals().points();
        }
        let most = self.most();
        if self.taken <= most {
            Ok(())
        } else {
            Err(Corruption::new(Place::Order, 0, most, self.taken))
        }
    }

    fn most(&self) -> u64 {
        self.entries.saturating_mul(2).saturating_add(STEPS_SPARE)
    }
}
