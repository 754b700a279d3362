//! Queries of the tombstone index: the newest tombstone that covers a key and is visible at a
//! snapshot.
//!
//! ```text
//!   oldest                                                    newest
//!   [summary node                     ) [node       )[node  ) tail records     from right to left
//! ```
//! ```text
//!   newest(key, snapshot, best):                        best begins as the caller's floor
//!     for each part, newest first, of tail records | nodes | summary node:
//!       if best >= snapshot: stop                       nothing newer is visible
//!       a record:  if best < sequence <= snapshot and it covers the key: best = sequence
//!       a node:    if max <= best or min > snapshot: next part       no answer can be better
//!                  if the key has no painter: next part              no record covers the key
//!                  if painter <= snapshot: best = max(best, painter)
//!                  else: newest(key, snapshot, best) over the node's children
//! ```
//! `min` and `max` are the smallest and the largest sequence number of the node's records. The
//! painter is the node's newest record over the key. If it is newer than the snapshot, an older
//! record may be the answer, so the children are asked. They are asked too if the node is missing
//! or damaged (TREE-1).
//!
//! A `Search` belongs to one call. It never waits.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::hint::black_box;

use crate::comparator::KeyComparator;
use crate::halves::pair;
use crate::integrity::index_checks::Cover;
use crate::key::SequenceNumber;
use crate::tombstone::common_prefix::Probe;
use crate::tombstone::counter::Extent;
use crate::tombstone::coverage_node::{CoverageNode, Head, Piece};
use crate::tombstone::record_log::{NO_PAINTER, Record};
use crate::tombstone::span::{Checked, Source, damage};
use crate::tombstone::tree::{BLOCK, NodeId, SummaryNode, Tree};

/// A question for range tombstones: which is the newest one that covers a key, up to a snapshot and
/// above a floor?
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) snapshot: SequenceNumber,
    /// 0 asks for all tombstones: one with sequence number 0 deletes nothing.
    pub(crate) floor: SequenceNumber,
}

impl<'k> Question<'k> {
    /// The question about all tombstones up to `snapshot`.
    #[inline(always)]
    pub(crate) fn new(key: &'k [u8], snapshot: SequenceNumber) -> Self {
        Question {
            key,
            snapshot,
            floor: 0,
        }
    }

    /// The question about tombstones that are newer than `floor`.
    #[inline(always)]
    pub(crate) fn above(self, floor: SequenceNumber) -> Self {
        Question { floor, ..self }
    }
}

/// One key of a query, with the best answer so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'k> {
    probe: Probe<'k>,
    pub(crate) best: SequenceNumber,
    /// The record with the best answer.
    pub(crate) found: Option<u32>,
}

impl<'k> Asked<'k> {
    /// The query of a key for sequence numbers above `floor`.
    #[inline]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8], floor: SequenceNumber) -> Self {
        Asked {
            probe: Probe::new(comparator, key),
            best: floor,
            found: None,
        }
    }

    /// The largest sequence number that was found.
    #[inline]
    pub(crate) fn answer(&self) -> Option<SequenceNumber> {
        self.found.map(|_| self.best)
    }

    /// Takes a record that covers the key as the answer, if it is newer than the best so far.
    #[inline(always)]
    fn take(&mut self, record: &Record) {
        if record.sequence > self.best {
            (self.best, self.found) = (record.sequence, Some(record.index));
        }
    }
}

/// A running query of one or several keys. Each record and node head is verified once for all keys.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) source: Source<'a>,
    pub(crate) snapshot: SequenceNumber,
    pub(crate) extent: Extent,
}

impl Search<'_> {
    /// Finds, for each key, the newest record that covers it and is visible at the snapshot.
    #[inline]
    pub(crate) fn newest(&self, asked: &mut [Asked<'_>]) -> Checked<()> {
        let Some(SummaryNode {
            coverage_node,
            covered,
        }) = self.tree.summary()
        else {
            return self.range(0, self.extent.count, asked);
        };
        self.range(*covered, self.extent.count, asked)?;
        // Records from `count` on were begun after the query, whatever the summary node says.
        let known = self.extent.count.min(*covered);
        self.consult(coverage_node, pair(0, *covered), asked, |asked| {
            self.range(0, known, asked)
        })
    }

    /// Asks about records `from..to`, newest first.
    #[inline(always)]
    fn range(&self, from: u32, to: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        if from >= to {
            return Ok(());
        }
        let tail = (to / BLOCK * BLOCK).max(from);
        let lead = from.next_multiple_of(BLOCK).min(tail);
        if tail < to {
            self.scan(tail, to, asked)?;
        }
        for node in NodeId::decompose(lead / BLOCK, tail / BLOCK) {
            self.node(node, asked)?;
        }
        if from < lead {
            self.scan(from, lead, asked)
        } else {
            Ok(())
        }
    }

    /// Asks a node of the tree, unless no key can get a newer answer.
    fn node(&self, id: NodeId, asked: &mut [Asked<'_>]) -> Checked<()> {
        if asked.iter().all(|one| one.best >= self.snapshot) {
            return Ok(());
        }
        match self.tree.node(id) {
            Some(node) => self.consult(node, id.cover(), asked, |asked| self.below(id, asked)),
            None => self.below(id, asked),
        }
    }

    /// Asks the children of a node, or its records.
    #[cold]
    #[inline(never)]
    fn below(&self, id: NodeId, asked: &mut [Asked<'_>]) -> Checked<()> {
        if id.level == 0 {
            return self.scan(id.first(), id.last(), asked);
        }
        id.children()
            .rev()
            .try_for_each(|child| self.node(child, asked))
    }

    /// Asks a node about every key, and calls `otherwise` for each key that the node does not
    /// decide.
    #[inline(always)]
    fn consult(
        &self,
        node: &CoverageNode,
        cover: u64,
        asked: &mut [Asked<'_>],
        otherwise: impl Fn(&mut [Asked<'_>]) -> Checked<()>,
    ) -> Checked<()> {
        // The head is verified only if it seems to exclude a key: because of its bounds, or because
        // the key does not begin with the bytes left out (COMMON-PREFIX-1). A lookup in the node
        // needs no head.
        let hint = node.hint();
        let mut known: Option<Head> = None;
        for one in asked.iter_mut().filter(|one| one.best < self.snapshot) {
            let begins = one
                .probe
                .leave_out(
                    &self.tree.log.common_prefix,
                    self.source.comparator,
                    hint.skip,
                )
                .ok();
            if begins != Some(true) || hint.excludes(&one.probe, one.best, self.snapshot) {
                if known.is_none() {
                    known = node.head(self.tree.checks, cover).ok();
                }
                if let (Some(head), Some(begins_same)) = (&known, begins)
                    && head.skip == hint.skip
                    && (!begins_same || head.excludes(&one.probe, one.best, self.snapshot))
                {
                    continue;
                }
            }
            let cover = Cover {
                records: cover,
                skip: hint.skip,
            };
            if begins != Some(true) || !self.decides(node, cover, one) {
                otherwise(std::slice::from_mut(one))?;
            }
        }
        Ok(())
    }

    /// Looks the key up in a node. Returns whether the node decides: its painter is visible, or
    /// there is none.
    #[inline(always)]
    fn decides(&self, node: &CoverageNode, cover: Cover, one: &mut Asked<'_>) -> bool {
        match self.painter(node, cover, &one.probe) {
            Ok(NO_PAINTER) => true,
            Ok(painter) => match self.tree.log.named(painter) {
                Ok(record) if record.sequence <= self.snapshot => {
                    one.take(&record);
                    true
                }
                _ => false,
            },
            Err(_) => false,
        }
    }

    /// The painter at the probe's key: the index of a record, or [`NO_PAINTER`]. After an error
    /// this node must not be used.
    #[inline(always)]
    pub(crate) fn painter(
        &self,
        node: &CoverageNode,
        cover: Cover,
        probe: &Probe<'_>,
    ) -> Checked<u32> {
        let checks = self.tree.checks;
        let mut reach = node.before(probe.prefix);
        if node.prefix(reach) == probe.prefix {
            reach = self.rank_among_ties(node, cover, probe, reach)?;
        }
        // Verifies the piece that begins at or before the key, and where the next one begins: the
        // key must be between the two (COVERAGE-NODE-2).
        let Some(at) = reach.checked_sub(1) else {
            let (first, _) = node.piece(checks, cover, 0)?;
            return match self.place(first, probe)? {
                Order::Greater => Ok(NO_PAINTER),
                _ => Err(damage(0, 0, 0)),
            };
        };
        let (piece, next) = node.piece(checks, cover, at)?;
        let is_inside = self.place(piece, probe)? != Order::Greater
            && match next.cmp(&probe.prefix) {
                Order::Greater => true,
                Order::Less => false,
                Order::Equal => self.is_before(node, cover, probe, reach)?,
            };
        if is_inside {
            Ok(piece.painter)
        } else {
            Err(damage(reach as u64, 0, 0))
        }
    }

    /// Compares the boundary of a verified piece with the probe's key.
    #[inline(always)]
    fn place(&self, piece: Piece, probe: &Probe<'_>) -> Checked<Order> {
        self.tree
            .log
            .boundary_order(self.source, (piece.prefix, piece.name), probe)
    }

    /// Whether the key is before the piece at `reach`, which has the key's prefix. If there is no
    /// such piece, padding has that prefix, and the result is `true`.
    #[cold]
    #[inline(never)]
    fn is_before(
        &self,
        node: &CoverageNode,
        cover: Cover,
        probe: &Probe<'_>,
        reach: usize,
    ) -> Checked<bool> {
        let checks = self.tree.checks;
        if probe.prefix == u64::MAX && node.head(checks, cover.records)?.len == reach as u64 {
            return Ok(true);
        }
        Ok(self.place(node.piece(checks, cover, reach)?.0, probe)? == Order::Greater)
    }

    /// Number of boundaries at or before the key. The first `from` boundaries have smaller
    /// prefixes, and the next one has the key's prefix. Compares whole keys.
    #[cold]
    #[inline(never)]
    fn rank_among_ties(
        &self,
        node: &CoverageNode,
        cover: Cover,
        probe: &Probe<'_>,
        from: usize,
    ) -> Checked<usize> {
        let (mut reach, mut end) = (from, node.len());
        while reach < end {
            let middle = reach.midpoint(end);
            let is_after = match node.prefix(middle).cmp(&probe.prefix) {
                Order::Equal => self
                    .place(node.piece(self.tree.checks, cover, middle)?.0, probe)?
                    .is_gt(),
                // A hint, like all prefixes that lead to the piece that proves the answer.
                order => order.is_gt(),
            };
            (reach, end) = if is_after {
                (reach, middle)
            } else {
                (middle + 1, end)
            };
        }
        Ok(reach)
    }

    /// Asks records `from..to` of one block, newest first.
    fn scan(&self, from: u32, to: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        let (log, complete) = (&self.tree.log, self.extent.complete);
        let run = log.run(from, to).unwrap_or_default();
        for index in (from..to).rev() {
            let record = match run.get((index - from) as usize) {
                Some(stored) => log.decode(stored, index, complete)?,
                // The index is past the end: a processor that errs counted down past 0.
                None if index >= black_box(to) => break,
                None => log.record(index, complete)?,
            };
            let Some(record) = record.filter(|record| record.sequence <= self.snapshot) else {
                continue;
            };
            for one in &mut *asked {
                if record.sequence > one.best && log.covers(self.source, &record, &mut one.probe)? {
                    one.take(&record);
                }
            }
        }
        Ok(())
    }
}
