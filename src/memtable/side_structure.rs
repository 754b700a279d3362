//! The interface of the structures beside the list of entries. Each stores words that may be damaged, and takes memory.
//!
//! ```text
//!   accelerators    filters (lines in the arena), counters of reads
//!   tombstones      their index
//!   shards          the control words of every writer
//! ```
//! `Core` lists them; scrub, fault injector and the count of memory ask each for its part.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::Corruption;
use crate::integrity::control_word::Words;
use crate::integrity::tag::Secret;
use crate::memtable::skiplist::arena::Arena;

#[cfg(feature = "fault-injection")]
use crate::sync::AtomicU64;
/// Waits for the writers at work.
pub(crate) type Settle<'s> = dyn FnMut() + 's;

/// Takes a finding.
pub(crate) type Report<'r> = dyn FnMut(Corruption) + 'r;

/// Takes a run of words.
#[cfg(feature = "fault-injection")]
pub(crate) type VisitWords<'v> = dyn FnMut(FaultWords, &[AtomicU64]) + 'v;

/// A structure beside the list of entries. Most have only some of these, so all methods do nothing by default.
pub(crate) trait SideStructure {
    /// Calls `visit` with each group of control words, as those of a table with this secret.
    fn each_control(&self, _secret: Secret, _visit: &mut dyn FnMut(Words<'_>)) {}

    /// Bytes of heap memory. Memory in the arena is counted there.
    fn heap_bytes(&self) -> u64 {
        0
    }

    /// Verifies everything but control words, and reports what disagrees after writers at work have left: words may disagree
    /// while one writes. An error is damage that ended the scrub of this structure.
    fn scrub(
        &self,
        _arena: &Arena,
        _settle: &mut Settle<'_>,
        _report: &mut Report<'_>,
    ) -> Result<(), Corruption> {
        Ok(())
    }

    /// Calls `visit` with each run of words but control words, for the fault injector.
    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, _arena: &Arena, _visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        Ok(())
    }
}

/// The kind of words that a fault injector may break.
#[cfg(feature = "fault-injection")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultWords {
    /// Of a filter, in the arena.
    Filter,
    /// Of the live or the frozen tombstone index, on the heap.
    TombstoneIndex,
}

// The ground of all parts of a table: its arena and its comparator.
//
// Any thread.

/// The arena and the comparator, which the methods of all parts take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'t> {
    pub(crate) arena: &'t Arena,
    pub(crate) comparator: &'t KeyComparator,
}
