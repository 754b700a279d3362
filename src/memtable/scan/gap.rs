//! Reported gaps, with the positions of both sides in the walk's own memory.
//!
//! ```text
//!   a@9   [ damaged ]   c@4
//!       begin         end          scan bounds: whatever becomes of a and c, the walk knows what it has reported
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use crate::key::{Comparator, SequenceNumber};
use crate::memtable::parts::representation::{END, Ordered};
use crate::memtable::scan::bounds::ScanBound;
use crate::memtable::scan::runs::Way;
use crate::memtable::scan::visibility::Visibility;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::Gap;

/// A gap that was reported, and the positions where it begins and ends. A position is missing if the entry beside the
/// gap no longer verified.
#[derive(Clone)]
pub(crate) struct ReportedGap {
    pub(crate) gap: Gap,
    begin: Option<ScanBound>,
    end: Option<ScanBound>,
}

/// The position from which a walk goes on after it has shown an entry.
#[inline]
pub(crate) fn passed<L: Visibility>(way: Way, key: &[u8], sequence: SequenceNumber) -> ScanBound {
    let (newest, oldest) = L::extent(sequence);
    if way == Way::Forward { ScanBound::after(key, oldest) } else { ScanBound::before(key, newest) }
}

/// The end of the table for a walk in this direction.
pub(crate) fn far_end(way: Way) -> ScanBound {
    if way == Way::Forward { ScanBound::end() } else { ScanBound::start() }
}

impl ReportedGap {
    /// A gap with the positions of the entries beside it, as far as these verify.
    #[cold]
    pub(crate) fn around<'a, O: Ordered<'a>>(order: Option<&O>, gap: Gap) -> ReportedGap {
        let beside = |at: u32| order.and_then(|order| order.entry(at).ok()).filter(|_| at != END);
        let (before, after) = (beside(gap.before), beside(gap.after));
        let (begin, end) = if gap.before == gap.after {
            // One entry is on both sides: damage hides which range tombstone covers its key.
            let begin = before.map(|entry| ScanBound::before(entry.key(), SequenceNumber::MAX));
            (begin, after.map(|entry| ScanBound::after(entry.key(), 0)))
        } else {
            (
                before.map(|entry| ScanBound::just_after(entry.node())),
                after.map(|entry| ScanBound::just_before(entry.node())),
            )
        };
        let begin = if gap.before == END { Some(ScanBound::start()) } else { begin };
        let end = if gap.after == END { Some(ScanBound::end()) } else { end };
        ReportedGap { gap, begin, end }
    }

    /// Whether an entry is beyond the gap, if the near side of the gap is known. Duplicates of a `Vector` table have
    /// equal positions.
    pub(crate) fn is_passed_at<C: Comparator>(&self, comparator: &C, way: Way, entry: &Verified<'_>) -> bool {
        let is_before =
            |scan_bound: &ScanBound| entry.node().order(comparator, &scan_bound.target(comparator)).is_lt();
        match way {
            Way::Forward => self.begin.as_ref().is_none_or(|scan_bound| !is_before(&scan_bound.across())),
            Way::Backward => self.end.as_ref().is_none_or(|scan_bound| is_before(&scan_bound.across())),
        }
    }

    /// The far side of the gap for a walk in this direction.
    pub(crate) fn far(&self, way: Way) -> Option<&ScanBound> {
        if way == Way::Forward { self.end.as_ref() } else { self.begin.as_ref() }
    }

    /// The near side of the gap for a walk in this direction.
    pub(crate) fn near(&self, way: Way) -> Option<&ScanBound> {
        if way == Way::Forward { self.begin.as_ref() } else { self.end.as_ref() }
    }
}
