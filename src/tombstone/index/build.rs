//! Paints a coverage node over log records: which record is the newest one that covers each key.
//!
//! ```text
//!   records      b----------f 5           ends in order   b5  d9  f5  h9
//!                     d----------h 9      painters        5   9   9   none
//! ```
//! * PAINT-1: every record is verified. Keys are read only where prefixes are equal, and are verified then.
//! * PAINT-2: the prefixes of a node leave out as many bytes as those of the record that leaves out fewest. Prefixes
//!   of other records get bytes of the common prefix back.
//!
//! Who may call what: pure functions over a log.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::comparator::KeyComparator;
use crate::error::Corruption;
use crate::key::SequenceNumber;
use crate::tombstone::index::checks::{Cover, damage, pair};
use crate::tombstone::index::common_prefix::CheckedPrefix;
use crate::tombstone::index::log::{End, Log, Record, boundary, end_of};
use crate::tombstone::index::node::{Builder, CoverageNode, NOBODY, Piece, SequenceSpan};
use crate::tombstone::index::tree::Tree;

type Checked<T> = std::result::Result<T, Corruption>;

/// A node over records `first..last`, at most 64 of them. `None` if the range is empty, or if one of the records is
/// still being written, which only those at or after `complete` may be.
pub(crate) fn paint(
    tree: &Tree,
    comparator: &KeyComparator,
    records: Range<u32>,
    complete: u32,
) -> Checked<Option<CoverageNode>> {
    let cover = pair(records.start, records.end);
    let Some(canvas) = Canvas::read(tree, comparator, records, complete)? else { return Ok(None) };
    Ok(Some(canvas.paint(Builder::new(
        tree.checks,
        Cover { records: cover, skip: canvas.skip },
        canvas.boundaries.len(),
    ))))
}

/// A start or end of a record. Boundaries with equal prefixes are ordered by rank.
#[derive(Debug, Clone, Copy, Default)]
struct Boundary {
    prefix: u64,
    rank: u32,
    name: u32,
}

/// Verified records, and their starts and ends in key order.
#[derive(Debug)]
struct Canvas {
    first: u32,
    sequences: Vec<SequenceNumber>,
    boundaries: Vec<Boundary>,
    /// How many bytes the prefixes of the boundaries leave out.
    skip: u32,
    span: SequenceSpan,
}

impl Canvas {
    /// Reads and verifies records. `None` if `range` is empty or one of them is still being written.
    fn read(
        tree: &Tree,
        comparator: &KeyComparator,
        records: Range<u32>,
        complete: u32,
    ) -> Checked<Option<Canvas>> {
        let (first, len) = (records.start, records.len());
        if len > 64 {
            return Err(damage(u64::from(first), 64, len as u64));
        }
        let mut known = Vec::with_capacity(len);
        for index in records {
            match tree.log.record(index, complete)? {
                Some(record) => known.push(record),
                None => return Ok(None),
            }
        }
        let sequences: Vec<SequenceNumber> = known.iter().map(|record| record.sequence).collect();
        let spans = sequences.iter().map(|&sequence| SequenceSpan { min: sequence, max: sequence });
        let Some(span) = spans.reduce(SequenceSpan::join) else { return Ok(None) };
        let skip = known.iter().map(Record::skip).min().unwrap_or(0);
        let CheckedPrefix { common_prefix, checks } = tree.log.common_prefix();
        let mut boundaries = Vec::with_capacity(2 * len);
        for (index, record) in (first..).zip(&known) {
            let lift = common_prefix.lift(checks, record.skip(), skip)?;
            for end in [End::Start, End::Stop] {
                boundaries.push(Boundary {
                    prefix: lift.apply(record.prefix(end)),
                    rank: 0,
                    name: boundary(index, end),
                });
            }
        }
        boundaries.sort_unstable_by_key(|boundary| boundary.prefix);
        for same in
            boundaries.chunk_by_mut(|left, right| left.prefix == right.prefix).filter(|same| same.len() > 1)
        {
            rank(&tree.log, comparator, same)?;
        }
        Ok(Some(Canvas { first, sequences, boundaries, skip, span }))
    }

    /// Sweeps over the boundaries and emits a piece wherever the newest covering record changes.
    fn paint(&self, mut out: Builder) -> CoverageNode {
        // A bit a record.
        let mut active = 0u64;
        for same in
            self.boundaries.chunk_by(|left, right| (left.prefix, left.rank) == (right.prefix, right.rank))
        {
            for boundary in same {
                active ^= 1 << ((boundary.name >> 1) - self.first);
            }
            let (mut painter, mut newest, mut left) = (NOBODY, 0, active);
            while left != 0 {
                let bit = left.trailing_zeros();
                let sequence = self.sequences.get(bit as usize).copied().unwrap_or(0);
                // Among equal sequence numbers the later record wins.
                if painter == NOBODY || sequence >= newest {
                    (painter, newest) = (self.first + bit, sequence);
                }
                left &= left - 1;
            }
            if let Some(boundary) = same.first() {
                out.push(Piece { prefix: boundary.prefix, name: boundary.name, painter });
            }
        }
        out.finish(self.span)
    }
}

/// Sorts boundaries with equal prefixes by their verified keys, and ranks them.
#[cold]
fn rank(log: &Log, comparator: &KeyComparator, same: &mut [Boundary]) -> Checked<()> {
    let mut keys = Vec::new();
    let mut known = Vec::with_capacity(same.len());
    for boundary in same.iter() {
        let (from, record) = (keys.len(), log.named(boundary.name >> 1)?);
        log.with_key(&record, end_of(boundary.name), |key| keys.extend_from_slice(key))?;
        known.push((from..keys.len(), *boundary));
    }
    let key = |range: &Range<usize>| keys.get(range.clone()).unwrap_or_default();
    known.sort_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)));
    let runs = known.chunk_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)).is_eq());
    let ranked = runs
        .zip(0u32..)
        .flat_map(|(run, rank)| run.iter().map(move |(_, boundary)| Boundary { rank, ..*boundary }));
    same.iter_mut().zip(ranked).for_each(|(boundary, ranked)| *boundary = ranked);
    Ok(())
}
