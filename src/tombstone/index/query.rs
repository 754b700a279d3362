//! Queries of the tombstone index: the newest tombstone that covers a key and is visible at a snapshot.
//!
//! ```text
//!   oldest                                                     newest
//!   [summary node                     ) [node       )[node  ) tail records         asked from right to left
//! ```
//! ```text
//!   newest(key, snapshot, best):                                best begins as the caller's floor
//!     for part, newest first, in tail records | nodes | summary node:
//!       if best >= snapshot: stop                               nothing newer is visible
//!       a record:  if best < sequence <= snapshot and it covers the key: best = sequence
//!       a node:    if max <= best or min > snapshot: next       QUERY-1
//!                  if the key has no painter: next              QUERY-2
//!                  if painter <= snapshot: best = max(best, painter)      QUERY-3
//!                  else: newest(key, snapshot, best) over its children    QUERY-4, QUERY-5
//! ```
//! The four cases of a node, where `min` and `max` are the smallest and largest sequence number of its records:
//!
//! * QUERY-1: max <= best so far, or min > snapshot: the node cannot improve the answer.
//! * QUERY-2: the key has no painter: no record of the node covers it, at any snapshot.
//! * QUERY-3: the painter is visible: it is the newest record of the node that covers the key.
//! * QUERY-4: the painter is newer than the snapshot: the children must be asked.
//! * QUERY-5: a damaged node counts as missing, so its children are asked.
//!
//! Who may call what: a `Search` belongs to one call. It never waits.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::Corruption;
use crate::key::SequenceNumber;
use crate::tombstone::index::checks::pair;
use crate::tombstone::index::common_prefix::{Begins, Probe};
use crate::tombstone::index::counter::Extent;
use crate::tombstone::index::log::Record;
use crate::tombstone::index::node::{Bounds, CoverageNode, NOBODY};
use crate::tombstone::index::tree::{BLOCK, NodeId, OrderedTree, Tree};

type Checked<T> = std::result::Result<T, Corruption>;

/// Whether a node decided a query.
enum Verdict {
    Settled,
    Open,
}

/// What is asked of range tombstones: the newest one that covers a key, up to a snapshot and above a floor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) snapshot: SequenceNumber,
    /// 0: all tombstones are asked, since one with sequence number 0 deletes nothing.
    pub(crate) floor: SequenceNumber,
}

impl<'k> Question<'k> {
    #[inline(always)]
    pub(crate) fn new(key: &'k [u8], snapshot: SequenceNumber) -> Self {
        Question { key, snapshot, floor: 0 }
    }

    /// The question about tombstones that are newer than `floor`.
    #[inline(always)]
    pub(crate) fn above(self, floor: SequenceNumber) -> Self {
        Question { floor, ..self }
    }
}

/// The query of one key, with the best answer so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'k> {
    probe: Probe<'k>,
    best: SequenceNumber,
    found: Option<u32>,
}

impl<'k> Asked<'k> {
    /// A query for sequence numbers above `floor`.
    #[inline]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8], floor: SequenceNumber) -> Self {
        Asked { probe: Probe::new(comparator, key), best: floor, found: None }
    }

    /// The largest sequence number found, and the index of its record.
    #[inline]
    pub(crate) fn answer(&self) -> Option<(SequenceNumber, u32)> {
        self.found.map(|index| (self.best, index))
    }

    #[inline(always)]
    fn take(&mut self, record: &Record, index: u32) {
        if record.sequence > self.best {
            self.best = record.sequence;
            self.found = Some(index);
        }
    }
}

/// A running query of one key or several. Each record and node head is verified once for all keys.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    tree: &'a Tree,
    comparator: &'a KeyComparator,
    snapshot: SequenceNumber,
    /// Records before this one are stored completely.
    complete: u32,
}

impl<'a> Search<'a> {
    /// Finds, for each key, the newest record that covers it and is visible at `snapshot`.
    #[inline]
    pub(crate) fn newest(
        OrderedTree { tree, comparator }: OrderedTree<'a>,
        Extent { count, complete }: Extent,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        let search = Search { tree, comparator, snapshot, complete };
        let summary = tree.summary();
        let covered = summary.map_or(0, |summary| summary.covered);
        search.range(covered, count, asked)?;
        match summary {
            Some(summary) => {
                search.consult_all(&summary.coverage_node, pair(0, covered), asked, |search, asked| {
                    search.below_summary(covered, asked)
                })
            }
            None => Ok(()),
        }
    }

    /// Whether no key can get a newer answer.
    #[inline(always)]
    fn done(&self, asked: &[Asked<'_>]) -> bool {
        asked.iter().all(|one| one.best >= self.snapshot)
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
        if from < lead { self.scan(from, lead, asked) } else { Ok(()) }
    }

    /// Asks the nodes over the records of a summary node that did not decide the query.
    #[cold]
    #[inline(never)]
    fn below_summary(&self, covered: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        self.range(0, covered, asked)
    }

    fn node(&self, id: NodeId, asked: &mut [Asked<'_>]) -> Checked<()> {
        if self.done(asked) {
            return Ok(());
        }
        match self.tree.node(id) {
            Some(coverage_node) => {
                self.consult_all(coverage_node, id.cover(), asked, |search, asked| search.below(id, asked))
            }
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
        id.children().rev().try_for_each(|child| self.node(child, asked))
    }

    /// Asks a node about every key, and calls `otherwise` for keys that it does not decide (QUERY-4, QUERY-5).
    #[inline(always)]
    fn consult_all(
        &self,
        coverage_node: &CoverageNode,
        cover: u64,
        asked: &mut [Asked<'_>],
        otherwise: impl Fn(&Self, &mut [Asked<'_>]) -> Checked<()>,
    ) -> Checked<()> {
        // QUERY-1. The head is verified only when it seems to exclude a key; a lookup in the node needs no head.
        let hints = coverage_node.bounds();
        let mut known: Option<Bounds> = None;
        for one in asked {
            if one.best >= self.snapshot {
                continue;
            }
            let begins = one.probe.leave_out(self.tree.log.common_prefix(), self.comparator, hints.skip);
            if begins != Begins::Same || hints.exclude(&one.probe, one.best, self.snapshot) {
                known = known.or_else(|| Some(coverage_node.head(self.tree.checks, cover).ok()?.bounds));
                if known.is_some_and(|bounds| self.silent(&bounds, begins, hints.skip, one)) {
                    continue;
                }
            }
            if begins != Begins::Same
                || !matches!(self.consult(coverage_node, cover, one), Ok(Verdict::Settled))
            {
                otherwise(self, std::slice::from_mut(one))?;
            }
        }
        Ok(())
    }

    /// Whether a node with these verified bounds cannot improve the answer. The probe was made to leave out `skip`
    /// bytes.
    #[inline(always)]
    fn silent(&self, bounds: &Bounds, begins: Begins, skip: u32, one: &Asked<'_>) -> bool {
        bounds.skip == skip
            && match begins {
                Begins::Same => bounds.exclude(&one.probe, one.best, self.snapshot),
                Begins::Otherwise => true,
                Begins::Damaged => false,
            }
    }

    /// Looks the key up in a node (QUERY-2 to QUERY-5).
    #[inline(always)]
    fn consult(&self, coverage_node: &CoverageNode, cover: u64, one: &mut Asked<'_>) -> Checked<Verdict> {
        let Tree { log, checks, .. } = self.tree;
        let painter = coverage_node.painter(log, *checks, cover, self.comparator, &one.probe)?;
        if painter == NOBODY {
            return Ok(Verdict::Settled);
        }
        let record = log.named(painter)?;
        if record.sequence > self.snapshot {
            return Ok(Verdict::Open);
        }
        one.take(&record, painter);
        Ok(Verdict::Settled)
    }

    /// Asks records `from..to` of one block, newest first.
    fn scan(&self, from: u32, to: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        let log = &self.tree.log;
        let run = log.run(from, to).unwrap_or_default();
        for index in (from..to).rev() {
            let record = match run.get((index - from) as usize) {
                Some(stored) => log.decode(stored, index, self.complete)?,
                None => log.record(index, self.complete)?,
            };
            self.ask(record, index, asked)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn ask(&self, record: Option<Record>, index: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        let Some(record) = record.filter(|record| record.sequence <= self.snapshot) else { return Ok(()) };
        for one in asked {
            if record.sequence > one.best && self.tree.log.covers(self.comparator, &record, &mut one.probe)? {
                one.take(&record, index);
            }
        }
        Ok(())
    }
}
