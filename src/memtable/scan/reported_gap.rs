//! A gap that a walk has reported, with the positions of both its sides (WALK-1).
//!
//! Plain data; any thread.

#![forbid(unsafe_code)]

use crate::key::Direction;
use crate::memtable::scan::bounds::ScanBound;
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::search::Search;

/// A gap that was reported, and the positions of both its sides. They are copies, so later damage
/// to the entries there does not change what the walk has reported. A position is missing if the
/// entry next to the gap did not verify.
///
/// ```text
///   a@9   [ damaged ]   c@4
///       begin         end
/// ```
#[derive(Clone)]
pub(crate) struct ReportedGap {
    pub(crate) gap: Gap,
    begin: Option<ScanBound>,
    end: Option<ScanBound>,
}

impl ReportedGap {
    /// A gap with the positions of the entries next to it, as far as these verify.
    #[cold]
    #[inline(never)]
    pub(crate) fn around(search: &Search<'_>, gap: Gap) -> ReportedGap {
        let side = |node: u32, way: Direction| match search.verified(node) {
            // One entry on both sides: damage hides which range tombstone covers the entry's key.
            Ok(Some(entry)) if gap.before == gap.after => {
                Some(ScanBound::beside_key(way.opposite(), entry.key()))
            }
            Ok(Some(entry)) => Some(ScanBound::beside(way, &entry)),
            Ok(None) => Some(ScanBound::extreme(way.opposite())),
            Err(_) => None,
        };
        let (begin, end) = (
            side(gap.before, Direction::Forward),
            side(gap.after, Direction::Backward),
        );
        ReportedGap { gap, begin, end }
    }

    /// The side of the gap that is further in this direction.
    pub(crate) fn side(&self, way: Direction) -> Option<&ScanBound> {
        way.pick((&self.begin, &self.end)).as_ref()
    }
}
