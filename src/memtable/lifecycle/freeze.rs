//! Freeze: ends writing, seals the sums, and builds the structures of a frozen table.
//!
//! ```text
//!   shards closed, one after the other; writers inside have left -> sums sealed -> FROZEN set
//!     -> the tombstone index gets one node over all tombstones, which is checked against the list
//! ```
//! Running reads finish with the structures that they use. Any number of threads may freeze at
//! once.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::core::Core;
use crate::trace;

/// Ends writing. Idempotent.
pub(crate) fn freeze(core: &Core) -> Result<()> {
    core.shards.freeze()?;
    // All writers have left, so the sums are exact, and a second thread computes the same sums.
    let totals = core.shards.totals();
    let is_first = core.sealed.set(totals).is_ok();
    // The flag is set before keys are compared, so that a comparator that panics leaves a frozen
    // table.
    core.shards
        .while_registry_is_held(|| core.arena.control.set(ControlWord::FROZEN, 1));
    core.tombstones.freeze(core.ground());
    if is_first {
        trace::frozen(totals.entries, totals.range_deletes, totals.data_bytes);
    }
    Ok(core.arena.control.check()?)
}
