//! Paints a node over records: who is the newest at every key.
//!
//! ```text
//!   records      b----------f 5           ends in order   b5  d9  f5  h9
//!                     d----------h 9      painters        5   9   9   none
//! ```
//! * P1: records are verified. Keys are read, and verified, only where prefixes tie.
//! * P2: the node leaves out what the record that leaves out least does; prefixes that leave out more get bytes of the stem.
//!
//! Who may call what: pure functions over a log.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::checks::{damage, pair};
use super::forest::Forest;
use super::log::{End, Log, Record, boundary, end_of};
use super::skyline::{Builder, NOBODY, Piece, Skyline, join};
use crate::error::Corruption;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};

type Checked<T> = std::result::Result<T, Corruption>;

/// A node over records `first..last`, at most 64. Nothing if there are none, or one of them is still being written: one
/// that is not `complete`.
pub(crate) fn paint<C: Comparator>(
    forest: &Forest,
    comparator: &C,
    (first, last): (u32, u32),
    complete: u32,
) -> Checked<Option<Skyline>> {
    let Some(canvas) = Canvas::read(forest, comparator, first..last, complete)? else { return Ok(None) };
    Ok(Some(canvas.paint(Builder::new(forest.checks, (pair(first, last), canvas.skip), canvas.edges.len()))))
}

/// One boundary of a block. Those with equal prefixes are told apart by rank.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    prefix: u64,
    rank: u32,
    name: u32,
}

/// Some records, verified, and their ends in order.
#[derive(Debug)]
struct Canvas {
    first: u32,
    sequences: Vec<SequenceNumber>,
    edges: Vec<Edge>,
    /// How many bytes the prefixes of the edges leave out.
    skip: u32,
    bounds: (SequenceNumber, SequenceNumber),
}

impl Canvas {
    /// Nothing if there is nothing, or a record is still being written.
    fn read<C: Comparator>(
        forest: &Forest,
        comparator: &C,
        records: Range<u32>,
        complete: u32,
    ) -> Checked<Option<Canvas>> {
        let (first, len) = (records.start, records.len());
        if len > 64 {
            return Err(damage(u64::from(first), 64, len as u64));
        }
        let mut known = Vec::with_capacity(len);
        for index in records {
            match forest.log.record(index, complete)? {
                Some(record) => known.push(record),
                None if planted(Bug::PaintSkipsPending) => {}
                None => return Ok(None),
            }
        }
        let sequences: Vec<SequenceNumber> = known.iter().map(|record| record.sequence).collect();
        let bounds = sequences.iter().map(|&sequence| (sequence, sequence)).reduce(join);
        let Some(bounds) = bounds else { return Ok(None) };
        let skip = known.iter().map(Record::skip).min().unwrap_or(0);
        let (stem, checks) = forest.log.stem();
        let mut edges = Vec::with_capacity(2 * len);
        for (index, record) in (first..).zip(&known) {
            let lift = stem.lift(checks, record.skip(), skip)?;
            for end in [End::Start, End::Stop] {
                edges.push(Edge {
                    prefix: lift.apply(record.prefix(end)),
                    rank: 0,
                    name: boundary(index, end),
                });
            }
        }
        edges.sort_unstable_by_key(|edge| edge.prefix);
        for same in
            edges.chunk_by_mut(|left, right| left.prefix == right.prefix).filter(|same| same.len() > 1)
        {
            rank(&forest.log, comparator, same)?;
        }
        Ok(Some(Canvas { first, sequences, edges, skip, bounds }))
    }

    /// Sweeps over the ends: who paints where.
    fn paint(&self, mut out: Builder) -> Skyline {
        // A bit a record.
        let mut active = 0u64;
        for same in self.edges.chunk_by(|left, right| (left.prefix, left.rank) == (right.prefix, right.rank))
        {
            for edge in same {
                active ^= 1 << ((edge.name >> 1) - self.first);
            }
            let (mut painter, mut newest, mut left) = (NOBODY, 0, active);
            while left != 0 {
                let bit = left.trailing_zeros();
                let sequence = self.sequences.get(bit as usize).copied().unwrap_or(0);
                // Later ones win among equals.
                if painter == NOBODY || sequence >= newest {
                    (painter, newest) = (self.first + bit, sequence);
                }
                left &= left - 1;
            }
            if let Some(edge) = same.first() {
                out.push(Piece { prefix: edge.prefix, name: edge.name, painter });
            }
        }
        out.finish(self.bounds)
    }
}

/// Sorts ends with equal prefixes by their keys, which are verified, and numbers the keys.
#[cold]
fn rank<C: Comparator>(log: &Log, comparator: &C, same: &mut [Edge]) -> Checked<()> {
    let mut keys = Vec::new();
    let mut known = Vec::with_capacity(same.len());
    for edge in same.iter() {
        let (from, record) = (keys.len(), log.named(edge.name >> 1)?);
        log.with_key(&record, end_of(edge.name), |key| keys.extend_from_slice(key))?;
        known.push((from..keys.len(), *edge));
    }
    let key = |range: &Range<usize>| keys.get(range.clone()).unwrap_or_default();
    known.sort_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)));
    let runs = known.chunk_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)).is_eq());
    let ranked =
        runs.zip(0u32..).flat_map(|(run, rank)| run.iter().map(move |(_, edge)| Edge { rank, ..*edge }));
    same.iter_mut().zip(ranked).for_each(|(edge, ranked)| *edge = ranked);
    Ok(())
}
