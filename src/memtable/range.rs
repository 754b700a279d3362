//! Ranges: iterators over a cursor at each end.
//!
//! ```text
//!   front ->  a@9  a@5  b@7  c@4  <- back        the two ends stop where they meet, once
//! ```
//! One thread at a time moves a range; tables may be written meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::lens::{AtSnapshot, Lens, Raw, Way};
use crate::error::Result;
use crate::invariants::{Bug, planted};
use crate::key::{Bytewise, Comparator, SequenceNumber, Side, Target};
use crate::memtable::edge::Edge;
use crate::memtable::order::Order;
use crate::memtable::read::Entry;
use crate::memtable::scan::TableCursor;
use crate::memtable::table::TableReader;

/// Entries between two bounds, from both ends. A damaged place is reported once by the end that reaches it, which then
/// goes on behind it.
pub struct Range<'t, C: Comparator = Bytewise, L: Lens = Raw> {
    front: TableCursor<'t, C, L>,
    back: TableCursor<'t, C, L>,
    front_state: End,
    back_state: End,
    comparator: &'t C,
}

/// Whether an end has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fresh,
    Moving,
    Done,
}

impl<C: Comparator, L: Lens> fmt::Debug for Range<'_, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("front", &self.front).field("back", &self.back).finish_non_exhaustive()
    }
}

impl<'t, C: Comparator, L: Lens> Range<'t, C, L> {
    /// Whether the ends have met or passed each other.
    fn crossed(&self) -> bool {
        let (Some(front), Some(back)) = (self.front.table_entry(), self.back.table_entry()) else {
            return false;
        };
        let order = self.comparator.compare(front.user_key(), back.user_key());
        let order = order.then_with(|| back.sequence().cmp(&front.sequence()));
        if planted(Bug::RangeEndsOverlap) { order.is_gt() } else { order.is_ge() }
    }

    fn finish(&mut self) {
        self.front_state = End::Done;
        self.back_state = End::Done;
    }
}

impl<'t, C: Comparator, L: Lens> Iterator for Range<'t, C, L> {
    type Item = Result<Entry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = match self.front_state {
            End::Moving => self.front.advance(Way::Forward),
            End::Fresh => self.front.first().map(|()| self.front.table_entry()),
            End::Done => return None,
        };
        self.front_state = End::Moving;
        match moved {
            Ok(Some(entry)) if self.back_state == End::Fresh || !self.crossed() => Some(Ok(entry)),
            Err(error) => Some(Err(error)),
            Ok(_) => {
                self.finish();
                None
            }
        }
    }
}

impl<C: Comparator, L: Lens> DoubleEndedIterator for Range<'_, C, L> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let moved = match self.back_state {
            End::Moving => self.back.advance(Way::Backward),
            End::Fresh => self.back.last().map(|()| self.back.table_entry()),
            End::Done => return None,
        };
        self.back_state = End::Moving;
        match moved {
            Ok(Some(entry)) if self.front_state == End::Fresh || !self.crossed() => Some(Ok(entry)),
            Err(error) => Some(Err(error)),
            Ok(_) => {
                self.finish();
                None
            }
        }
    }
}

impl<C: Comparator, L: Lens> std::iter::FusedIterator for Range<'_, C, L> {}

/// Keys descending, the newest version of each first.
pub struct Descending<'t, C: Comparator = Bytewise> {
    cursor: TableCursor<'t, C>,
    key: Option<&'t [u8]>,
    state: End,
    comparator: &'t C,
}

impl<C: Comparator> fmt::Debug for Descending<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descending").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl<'t, C: Comparator> Descending<'t, C> {
    /// Goes to the newest version of the key in front of the current one.
    fn step(&mut self) -> Result<Option<Entry<'t>>> {
        if let (Some(key), End::Moving) = (self.key, self.state) {
            self.cursor.next()?;
            if let Some(entry) = self.cursor.table_entry()
                && self.comparator.compare(entry.user_key(), key).is_eq()
            {
                return Ok(Some(entry));
            }
            self.cursor.seek_before(key)?;
        } else if self.state == End::Fresh {
            self.state = End::Moving;
            self.cursor.last()?;
        } else {
            self.cursor.prev()?;
        }
        let Some(last) = self.cursor.table_entry() else { return Ok(None) };
        self.key = Some(last.user_key());
        self.cursor.seek(last.user_key())?;
        Ok(self.cursor.table_entry())
    }
}

impl<'t, C: Comparator> Iterator for Descending<'t, C> {
    type Item = Result<Entry<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == End::Done {
            return None;
        }
        let step = self.step();
        match &step {
            Ok(None) => self.state = End::Done,
            // The rest of a damaged key is left out: the error stands for it.
            Err(_) => self.key = None,
            Ok(Some(_)) => {}
        }
        step.transpose()
    }
}

/// About how much lies in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeStats {
    /// Entries: exact up to 64, standard error about 1/8 beyond.
    pub entries: u64,
    /// Bytes of their keys and values, from the table's mean.
    pub data_bytes: u64,
}

type KeyBound<'k> = Bound<(&'k [u8], Option<SequenceNumber>)>;

fn keys<'k>(range: &impl RangeBounds<&'k [u8]>) -> (KeyBound<'k>, KeyBound<'k>) {
    (range.start_bound().map(|key| (*key, None)), range.end_bound().map(|key| (*key, None)))
}

impl<C: Comparator> TableReader<C> {
    fn range_with<'t, L: Lens + Copy>(
        &'t self,
        lens: L,
        (start, end): (KeyBound<'_>, KeyBound<'_>),
    ) -> Range<'t, C, L> {
        let cursor = || {
            let (lower, upper) = (Edge::lower(start), Edge::upper(end));
            TableCursor::with_lens(&self.core, lens).with_edges(lower, upper)
        };
        Range {
            front: cursor(),
            back: cursor(),
            front_state: End::Fresh,
            back_state: End::Fresh,
            comparator: &self.core.comparator,
        }
    }

    /// Every version of the keys in a range, from both ends. An inverted range is empty.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Range<'_, C> {
        self.range_with(Raw, keys(&range))
    }

    /// What a snapshot sees of the keys in a range, from both ends. An inverted range is empty.
    pub fn range_at<'k>(
        &self,
        snapshot: SequenceNumber,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Range<'_, C, AtSnapshot> {
        self.range_with(AtSnapshot { sequence: snapshot }, keys(&range))
    }

    /// Every entry between two positions (user key, sequence number); sequence numbers descend within a key, so
    /// `(k, u64::MAX)` stands in front of every version of k and `(k, 0)` is its last.
    pub fn range_versions<'k>(&self, range: impl RangeBounds<(&'k [u8], SequenceNumber)>) -> Range<'_, C> {
        let versions =
            |bound: Bound<&(&'k [u8], SequenceNumber)>| bound.map(|(key, sequence)| (*key, Some(*sequence)));
        self.range_with(Raw, (versions(range.start_bound()), versions(range.end_bound())))
    }

    /// Every version of the keys in a range, keys descending, the newest version of each first.
    pub fn range_descending<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Descending<'_, C> {
        let (start, end) = keys(&range);
        let cursor = TableCursor::with_lens(&self.core, Raw).with_edges(Edge::lower(start), Edge::upper(end));
        Descending { cursor, key: None, state: End::Fresh, comparator: &self.core.comparator }
    }

    /// About how many entries, and how many bytes of them, lie in a range of keys. Expected O(log n).
    ///
    /// # Errors
    /// `Corruption` if damage makes counting impossible.
    pub fn approximate_range_stats<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Result<RangeStats> {
        let (start, end) = keys(&range);
        let (lower, upper) = (Edge::lower(start), Edge::upper(end));
        let core = &*self.core;
        let from = lower.as_ref().map_or(Target::extreme(Side::Start), |edge| edge.target(&core.comparator));
        let to = upper.as_ref().map_or(Target::extreme(Side::End), |edge| edge.target(&core.comparator));
        let totals = core.stripes.totals();
        let points = totals.entries.wrapping_sub(totals.range_deletes).wrapping_add(totals.displaced);
        let entries = match core.order(None)? {
            Order::List(search) => core.points.approximate_count(&search, &from, &to)?,
            Order::Sorted(search) => search.count(&from, &to)?,
        };
        let entries = entries.min(points);
        let data_bytes =
            u128::from(entries) * u128::from(totals.data_bytes) / u128::from(totals.entries.max(1));
        Ok(RangeStats { entries, data_bytes: u64::try_from(data_bytes).unwrap_or(u64::MAX) })
    }
}
