//! Freeze: writing ends, the sums are sealed, and what answers for a frozen table is built.
//!
//! ```text
//!   shards closed, one after the other; writers inside have left -> sums sealed -> FROZEN set
//!     -> a `Vector` table is sorted -> the tombstone index is rebuilt from the verified list
//! ```
//! Readers go on with what they have. Any thread; any number of freezers at once.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::key::Comparator;
use crate::memtable::core::Core;
use crate::memtable::skiplist::control_block::ControlWord;

/// Ends writing. Idempotent.
pub(crate) fn freeze<C: Comparator>(core: &Core<C>) -> Result<()> {
    core.shards.freeze()?;
    // All writers are out: the sums are exact, and whoever is second computes the same ones.
    let _ = core.sealed.set(core.shards.totals());
    // Before anything compares keys: a comparator that panics here leaves a frozen table.
    core.shards.while_registry_is_held(|| core.arena.control.set(ControlWord::FROZEN, 1));
    core.points.sort_once(core.ground(), &core.shards);
    core.tombstones.freeze(core.ground());
    core.check_control()?;
    match core.points.sorted().and_then(|sorted| sorted.duplicate) {
        Some(sequence) => Err(Error::DuplicateEntry { sequence }),
        None => Ok(()),
    }
}
