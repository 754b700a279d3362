//! Salvage: passes every entry that still verifies to a file, from the tables of a flush that met
//! damage.
//!
//! ```text
//!   table 5   a@7  (b@9 damaged)  c@8      entries are found without links
//!   table 4   a@3   b@2
//!   salvaged  a@7   a@3   b@2   c@8        one is missing; then the fragments of both tables
//! ```
//! All versions are passed, because a lost entry may have been the one that hid them. Each entry
//! verifies by its digests, each value as a copy. The fragments are verified once more after the
//! last one is passed.
//!
//! One thread at a time; the tables are frozen.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::tables::Slot;
use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushSink};
use paranoid_memtable::repair::Salvaged;
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::tombstone::Fragmenter;
use paranoid_memtable::{Corruption, Error, Kind, Result};

/// The counts of a salvage: what it passed to the sink, and what is lost. Made by
/// [`FlushJob::salvage`](crate::FlushJob::salvage).
///
/// ```
/// use paranoid_set::SalvageSummary;
/// let nothing = SalvageSummary::default();
/// assert_eq!((nothing.entries, nothing.missing, nothing.failure), (0, 0, None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SalvageSummary {
    /// Number of entries passed to the sink.
    pub entries: u64,
    /// Number of fragments of range tombstones passed to the sink.
    pub fragments: u64,
    /// Number of entries and range tombstones that were written and are lost.
    pub missing: u64,
    /// Damage that kept the salvage from searching everywhere. If there is any, `missing` may be
    /// too small.
    pub failure: Option<Corruption>,
}

/// Passes everything that verifies to a sink. O(n log n) for n entries, all bytes of the tables,
/// and the sequence numbers of all fragments; O(n) memory.
pub(crate) fn salvage_tables(
    slots: &[Arc<Slot>],
    comparator: &KeyComparator,
    sink: &mut impl FlushSink,
) -> Result<SalvageSummary> {
    let mut summary = SalvageSummary::default();
    let mut found = Vec::new();
    // A table whose freeze met damage is frozen too.
    let unfrozen = || Error::InvalidArgument("a table is not frozen".into());
    let tables = slots
        .iter()
        .map(|slot| slot.table.immutable().ok_or_else(unfrozen));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    for (slot, table) in slots.iter().zip(&tables) {
        let salvaged = table.salvage();
        summary.missing += salvaged.missing;
        summary.failure = summary.failure.or(salvaged.failure);
        // COMPACTION-4.
        let last = slot.last.get();
        found.extend(
            salvaged
                .entries
                .into_iter()
                .filter(|it| it.entry.sequence() <= last),
        );
    }
    let (ranges, mut points): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|it: &Salvaged<'_>| it.entry.kind() == Kind::RANGE_DELETE);
    points.sort_by(|left, right| {
        let order = comparator.compare(left.entry.user_key(), right.entry.user_key());
        order.then_with(|| right.entry.sequence().cmp(&left.entry.sequence()))
    });
    let mut value = Vec::new();
    for Salvaged { entry, .. } in &points {
        entry.value_into(&mut value)?;
        let (user_key, sequence, kind) = (entry.user_key(), entry.sequence(), entry.kind());
        let protection = entry.stored_protection();
        let entry = FlushEntry {
            user_key,
            sequence,
            kind,
            value: &value,
            protection,
        };
        FlushItem::Entry(entry).hand_to(sink)?;
        summary.entries += 1;
    }
    summary.fragments = pass_fragments(&ranges, comparator, sink)?;
    Ok(summary)
}

/// Cuts range tombstones into fragments and passes them to the sink. Returns their number.
fn pass_fragments(
    ranges: &[Salvaged<'_>],
    comparator: &KeyComparator,
    sink: &mut impl FlushSink,
) -> Result<u64> {
    let mut fragmenter = Fragmenter::under(comparator.clone());
    let mut end = Vec::new();
    for Salvaged { entry, .. } in ranges {
        entry.value_into(&mut end)?;
        fragmenter.add(entry.user_key(), end.as_slice(), entry.sequence())?;
    }
    let (mut fragments, mut count) = (fragmenter.finish_iter(), 0);
    while let Some(fragment) = fragments.next()? {
        FlushItem::Fragment(fragment).hand_to(sink)?;
        count += 1;
    }
    Ok(count)
}
