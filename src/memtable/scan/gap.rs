//! Reported gaps, with the positions of both sides in the walk's own memory.
//!
//! ```text
//!   a@9   [ damaged ]   c@4
//!       begin         end          scan bounds: whatever becomes of a and c, the walk knows what it has reported
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::key::{Direction, SequenceNumber};
use crate::memtable::scan::bounds::ScanBound;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::{Gap, Search};

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
pub(crate) fn passed(visible: &Visible, way: Direction, key: &[u8], sequence: SequenceNumber) -> ScanBound {
    let (newest, oldest) = visible.extent(sequence);
    if way == Direction::Forward { ScanBound::after(key, oldest) } else { ScanBound::before(key, newest) }
}

/// The end of the table for a walk in this direction.
pub(crate) fn far_end(way: Direction) -> ScanBound {
    if way == Direction::Forward { ScanBound::end() } else { ScanBound::start() }
}

impl ReportedGap {
    /// A gap with the positions of the entries beside it, as far as these verify.
    #[cold]
    pub(crate) fn around(search: Option<&Search<'_>>, gap: Gap) -> ReportedGap {
        let Some(search) = search else { return ReportedGap { gap, begin: None, end: None } };
        let side = |node: u32, end: fn() -> ScanBound, beside: &dyn Fn(&Verified<'_>) -> ScanBound| {
            search.verified(node).ok().map(|entry| entry.as_ref().map_or_else(end, beside))
        };
        // With one entry on both sides damage hides which range tombstone covers its key.
        let one = gap.before == gap.after;
        let begin = side(gap.before, ScanBound::start, &|entry| match one {
            true => ScanBound::before(entry.key(), SequenceNumber::MAX),
            false => ScanBound::just_after(entry.node()),
        });
        let end = side(gap.after, ScanBound::end, &|entry| match one {
            true => ScanBound::after(entry.key(), 0),
            false => ScanBound::just_before(entry.node()),
        });
        ReportedGap { gap, begin, end }
    }

    /// Whether an entry is beyond the gap, if the near side of the gap is known.
    pub(crate) fn is_passed_at(
        &self,
        comparator: &KeyComparator,
        way: Direction,
        entry: &Verified<'_>,
    ) -> bool {
        let is_before =
            |scan_bound: &ScanBound| entry.node().order(comparator, &scan_bound.target(comparator)).is_lt();
        match way {
            Direction::Forward => {
                self.begin.as_ref().is_none_or(|scan_bound| !is_before(&scan_bound.across()))
            }
            Direction::Backward => self.end.as_ref().is_none_or(|scan_bound| is_before(&scan_bound.across())),
        }
    }

    /// The far side of the gap for a walk in this direction.
    pub(crate) fn far(&self, way: Direction) -> Option<&ScanBound> {
        if way == Direction::Forward { self.end.as_ref() } else { self.begin.as_ref() }
    }

    /// The near side of the gap for a walk in this direction.
    pub(crate) fn near(&self, way: Direction) -> Option<&ScanBound> {
        if way == Direction::Forward { self.begin.as_ref() } else { self.end.as_ref() }
    }
}
