//! The number of steps that a walk may take, so that each walk ends (VISIBILITY-5).
//!
//! One thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::memtable::core::Core;

/// Steps that every walk may take, however small its table.
const STEPS_SPARE: u64 = 64;

/// The number of steps that a walk may take (VISIBILITY-5): a few more than twice the number of
/// entries. Under a consistent comparator a walk takes at most one step per entry and one per gap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepLimit {
    pub(crate) taken: u64,
    /// Entries of the table as last counted.
    entries: u64,
}

impl StepLimit {
    /// Counts a step, and fails once there were too many. The table's entries are counted only when
    /// the limit is reached, in O(shards).
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
