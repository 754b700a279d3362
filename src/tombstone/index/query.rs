//! The question: the newest tombstone at a key that a snapshot sees.
//!
//! ```text
//!   oldest                                                     newest
//!   [summary node                     ) [node       )[node  ) tail records         asked from right to left
//! ```
//! What a node says about a key, with `max` and `min` of all its records:
//!
//! * QUERY-1: max <= best so far, or min > snapshot: nothing to learn.
//! * QUERY-2: painted by nobody: no record below covers the key, at any snapshot.
//! * QUERY-3: the painter is visible: it is the newest record below that covers the key, so the answer of this node.
//! * QUERY-4: the painter is too new: the children must be asked.
//! * QUERY-5: the node is damaged: as if it were missing.
//!
//! Who may call what: a `Search` belongs to one call. It never waits.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::key::{Comparator, SequenceNumber};
use crate::tombstone::index::checks::pair;
use crate::tombstone::index::common_prefix::{Begins, Probe};
use crate::tombstone::index::counter::Extent;
use crate::tombstone::index::log::Record;
use crate::tombstone::index::node::{Bounds, CoverageNode, NOBODY};
use crate::tombstone::index::tree::{BLOCK, NodeId, Tree};

type Checked<T> = std::result::Result<T, Corruption>;

/// What a node could tell.
enum Verdict {
    Settled,
    Open,
}

/// One key that is asked about, and what is known so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'k> {
    probe: Probe<'k>,
    best: SequenceNumber,
    found: Option<u32>,
}

impl<'k> Asked<'k> {
    /// Asks for a sequence number over `floor`.
    #[inline]
    pub(crate) fn new<C: Comparator>(comparator: &C, key: &'k [u8], floor: SequenceNumber) -> Self {
        Asked { probe: Probe::new(comparator, key), best: floor, found: None }
    }

    /// The largest sequence number with its record's index.
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

/// A question under way, about one key or many: what is read is verified once for all of them.
#[derive(Debug)]
pub(crate) struct Search<'a, C> {
    tree: &'a Tree,
    comparator: &'a C,
    snapshot: SequenceNumber,
    /// Records before this one were stored.
    complete: u32,
}

impl<'a, C: Comparator> Search<'a, C> {
    /// Looks among the records for the newest one over each key that `snapshot` sees.
    #[inline]
    pub(crate) fn newest(
        (tree, comparator): (&'a Tree, &'a C),
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

    /// Nothing newer can be found.
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

    /// Asks the nodes under a summary node that could not tell.
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

    /// Asks what a node was made of.
    #[cold]
    #[inline(never)]
    fn below(&self, id: NodeId, asked: &mut [Asked<'_>]) -> Checked<()> {
        if id.level == 0 {
            return self.scan(id.first(), id.last(), asked);
        }
        id.children().rev().try_for_each(|child| self.node(child, asked))
    }

    /// Asks a node about every key; `otherwise` answers those that it cannot tell (QUERY-4, QUERY-5).
    #[inline(always)]
    fn consult_all(
        &self,
        coverage_node: &CoverageNode,
        cover: u64,
        asked: &mut [Asked<'_>],
        otherwise: impl Fn(&Self, &mut [Asked<'_>]) -> Checked<()>,
    ) -> Checked<()> {
        // QUERY-1. What the head says is believed only if its check holds; keys that must be looked up need no head.
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

    /// Whether a node with these verified bounds has nothing to say; `skip` is what the probe was asked to leave out.
    #[inline(always)]
    fn silent(&self, bounds: &Bounds, begins: Begins, skip: u32, one: &Asked<'_>) -> bool {
        bounds.skip == skip
            && match begins {
                Begins::Same => bounds.exclude(&one.probe, one.best, self.snapshot),
                Begins::Otherwise => true,
                Begins::Damaged => false,
            }
    }

    /// QUERY-2 to QUERY-5.
    #[inline(always)]
    fn consult(&self, coverage_node: &CoverageNode, cover: u64, one: &mut Asked<'_>) -> Checked<Verdict> {
        let Tree { log, checks, .. } = self.tree;
        let painter = coverage_node.painter(log, (*checks, cover), (self.comparator, &one.probe))?;
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

    /// Asks records `from..to`, which are of one block, one by one.
    fn scan(&self, from: u32, to: u32, asked: &mut [Asked<'_>]) -> Checked<()> {
        let log = &self.tree.log;
        match log.run(from, to) {
            Some(run) => {
                for (stored, index) in run.iter().zip(from..to).rev() {
                    self.ask(log.decode(stored, index, self.complete)?, index, asked)?;
                }
            }
            None => {
                for index in (from..to).rev() {
                    self.ask(log.record(index, self.complete)?, index, asked)?;
                }
            }
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
