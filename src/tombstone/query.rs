//! The question: the newest tombstone at a key that a snapshot sees.
//!
//! ```text
//!   oldest                                                     newest
//!   [crown                     ) [node       )[node  ) tail records         asked from right to left
//! ```
//! What a node says about a key, with `max` and `min` of all its records:
//!
//! * Q1: max <= best so far, or min > snapshot: nothing to learn.
//! * Q2: painted by nobody: no record below covers the key, at any snapshot.
//! * Q3: the painter is visible: it is the newest record below that covers the key, so the answer of this node.
//! * Q4: the painter is too new: the children must be asked.
//! * Q5: the node is damaged: as if it were missing.
//!
//! Who may call what: a `Search` belongs to one call. It never waits.

#![forbid(unsafe_code)]

use super::forest::{BLOCK, Forest, NodeId};
use super::log::{Probe, Record, pair};
use super::skyline::{NOBODY, Skyline};
use crate::error::Corruption;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};

type Checked<T> = std::result::Result<T, Corruption>;

/// What a node could tell.
enum Verdict {
    Settled,
    Open,
}

/// One question under way.
#[derive(Debug)]
pub(crate) struct Search<'a, C> {
    forest: &'a Forest,
    comparator: &'a C,
    probe: Probe<'a>,
    snapshot: SequenceNumber,
    best: SequenceNumber,
    found: Option<u32>,
}

impl<'a, C: Comparator> Search<'a, C> {
    /// Looks among the first `count` records for a sequence number over `floor` and up to `snapshot`; returns the
    /// largest with its record's index.
    #[inline]
    pub(crate) fn newest(
        (forest, comparator): (&'a Forest, &'a C),
        count: u32,
        key: &'a [u8],
        (snapshot, floor): (SequenceNumber, SequenceNumber),
    ) -> Checked<Option<(SequenceNumber, u32)>> {
        let probe = Probe::new(comparator, key);
        let mut search = Search { forest, comparator, probe, snapshot, best: floor, found: None };
        let crown = forest.crown();
        let covered = crown.map_or(0, |crown| crown.covered);
        search.range(covered, count)?;
        if let Some(crown) = crown
            && !search.done()
            && !matches!(search.consult(&crown.skyline, pair(0, covered)), Ok(Verdict::Settled))
        {
            search.range(0, covered)?;
        }
        Ok(search.found.map(|index| (search.best, index)))
    }

    /// Nothing newer can be found.
    #[inline(always)]
    fn done(&self) -> bool {
        self.best >= self.snapshot
    }

    /// Asks about records `from..to`, newest first.
    #[inline(always)]
    fn range(&mut self, from: u32, to: u32) -> Checked<()> {
        if from >= to {
            return Ok(());
        }
        let tail = (to / BLOCK * BLOCK).max(from);
        let lead = from.next_multiple_of(BLOCK).min(tail);
        if !planted(Bug::TailIsForgotten) {
            self.scan(tail, to)?;
        }
        for node in NodeId::decompose(lead / BLOCK, tail / BLOCK) {
            self.node(node)?;
        }
        self.scan(from, lead)
    }

    fn node(&mut self, id: NodeId) -> Checked<()> {
        if self.done() {
            return Ok(());
        }
        if let Some(skyline) = self.forest.node(id)
            && let Ok(Verdict::Settled) = self.consult(skyline, id.cover())
        {
            return Ok(());
        }
        if id.level == 0 {
            return self.scan(id.first(), id.last());
        }
        self.node(id.newer_child())?;
        self.node(id.older_child())
    }

    /// Q1 to Q5.
    #[inline(always)]
    fn consult(&mut self, skyline: &Skyline, cover: u64) -> Checked<Verdict> {
        let Forest { log, checks, .. } = self.forest;
        let head = skyline.head(*checks, cover)?;
        if head.max <= self.best || head.min > self.snapshot {
            return Ok(Verdict::Settled);
        }
        let painter = skyline.painter(log, (*checks, cover), (self.comparator, &self.probe), &head)?;
        if painter == NOBODY {
            return Ok(Verdict::Settled);
        }
        let record = log.named(painter)?;
        if record.sequence > self.snapshot {
            return Ok(if planted(Bug::TooNewPainterEndsSearch) { Verdict::Settled } else { Verdict::Open });
        }
        self.take(&record, painter);
        Ok(Verdict::Settled)
    }

    #[inline(always)]
    fn take(&mut self, record: &Record, index: u32) {
        if record.sequence > self.best {
            self.best = record.sequence;
            self.found = Some(index);
        }
    }

    /// Asks records `from..to`, which are of one block, one by one.
    fn scan(&mut self, from: u32, to: u32) -> Checked<()> {
        let log = &self.forest.log;
        match log.run(from, to) {
            Some(run) => {
                for (stored, index) in run.iter().zip(from..to).rev() {
                    self.ask(log.decode(stored, index)?, index)?;
                }
            }
            None => {
                for index in (from..to).rev() {
                    self.ask(log.record(index)?, index)?;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn ask(&mut self, record: Option<Record>, index: u32) -> Checked<()> {
        if let Some(record) = record
            && record.sequence > self.best
            && record.sequence <= self.snapshot
            && self.forest.log.covers(self.comparator, &record, &self.probe)?
        {
            self.take(&record, index);
        }
        Ok(())
    }
}
