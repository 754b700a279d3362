//! The index of a mutable table: one more tombstone at any time, exact answers at any snapshot.
//!
//! ```text
//!   insert -> log (arrival order) -> up to four merge steps, if nobody else is merging
//!   query  -> tail of the log, nodes newest first, summary node; stops when nothing newer can come
//! ```
//! * LIVE-INDEX-1: a tombstone is visible to every query that begins after its `insert` returned.
//! * LIVE-INDEX-2: answers do not depend on how far merging has come.
//! * LIVE-INDEX-3: nothing is freed before the index is dropped, so readers need no guard.
//! * LIVE-INDEX-4: a word or line that went back to an earlier value hides no tombstone that a returned `insert`
//!   added, unless another `insert` is running: the tally of records vouches for records, segments and tree, each
//!   half of it for the other. What else changes (nodes, summary nodes and where they are kept) is derived, and is
//!   only missed.
//!
//! Costs: `insert` amortised O(log n), at most four steps of merging; a query O(log^2 n) at worst, usually one or two
//! searches in a sorted array. Memory: about 21 bytes * 2 * log4(n / 2) a tombstone at worst, and summary nodes.
//!
//! Who may call what: everything, any thread, always with the same comparator. Readers never wait; writers wait only
//! for a new segment of memory. Not promised: that a tombstone whose `insert` is still running is seen.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::tag::Secret;
use crate::key::{Comparator, SequenceNumber};
use crate::sync::{Mutex, Published};
use crate::tombstone::fragment::span::check_order;
use crate::tombstone::index::checks::{Checks, damage};
use crate::tombstone::index::common_prefix::CommonPrefix;
use crate::tombstone::index::counter::{Extent, Tally};
use crate::tombstone::index::log::{End, Log};
use crate::tombstone::index::merge::{Merger, Progress, STEP_PIECES};
use crate::tombstone::index::query::{Asked, Search};
use crate::tombstone::index::tree::Tree;

type Checked<T> = std::result::Result<T, Corruption>;

/// Steps of merging that one `insert` takes at most.
const STEPS_MAX: u32 = 4;

/// A stretch of keys that one tombstone covers: at every key from `start` up to, not including, `end`, the newest
/// visible covering sequence number is at least `sequence`. A cursor inside may skip all entries with a smaller one,
/// in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveringRun {
    pub(crate) sequence: SequenceNumber,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    checks: Checks,
    tally: Tally,
    tree: Published<Box<Tree>>,
    merger: Mutex<Merger>,
}

impl LiveIndex {
    pub(crate) fn new(secret: Secret) -> Self {
        let checks = Checks::new(secret);
        LiveIndex { checks, tally: Log::tally(checks), tree: Published::new(), merger: Mutex::default() }
    }

    /// Adds a tombstone. Nothing changes on an error.
    pub(crate) fn insert<C: Comparator>(
        &self,
        comparator: &C,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.append(comparator, start, end, sequence)?;
        if let Some(mut merger) = self.merger.try_lock() {
            // One step keeps up with one writer; the others make up for writers who found the lock taken.
            for _ in 0..STEPS_MAX {
                if self.step(comparator, &mut merger) == Progress::Idle {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds a tombstone and leaves merging for later.
    pub(crate) fn append<C: Comparator>(
        &self,
        comparator: &C,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        check_order(comparator, start, end)?;
        let tree = match self.known()? {
            (Some(tree), _) => tree,
            (None, _) => {
                let common_prefix = || CommonPrefix::new::<C>(self.checks, (start, end));
                self.tree.get_or_publish(|| Box::new(Tree::new(self.checks, common_prefix())), |_| ())
            }
        };
        tree.log.push(comparator, &self.tally, (start, end, sequence))?;
        Ok(())
    }

    /// How far the log goes, and the tree that holds it, which can only be missing before the first `insert` has
    /// returned (LIVE-INDEX-4).
    #[inline(always)]
    fn known(&self) -> Checked<(Option<&Tree>, Extent)> {
        let extent = self.tally.extent(self.checks)?;
        match self.tree.get() {
            Some(tree) => Ok((Some(tree), extent)),
            None if extent.complete == 0 => Ok((None, extent)),
            None => Err(damage(0, u64::from(extent.complete), 0)),
        }
    }

    fn step<C: Comparator>(&self, comparator: &C, merger: &mut Merger) -> Progress {
        match self.known() {
            Ok((Some(tree), extent)) => merger.step((tree, comparator), extent, STEP_PIECES),
            _ => Progress::Idle,
        }
    }

    /// The largest sequence number over `floor` and up to `snapshot` among tombstones that cover `key`. A tombstone
    /// with sequence number 0 deletes nothing and is never an answer.
    #[inline]
    pub(crate) fn max_covering<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Checked<Option<SequenceNumber>> {
        Ok(self.search(comparator, key, snapshot, floor)?.map(|(sequence, _)| sequence))
    }

    #[inline]
    fn search<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Checked<Option<(SequenceNumber, u32)>> {
        let mut asked = [Asked::new(comparator, key, floor)];
        self.ask(comparator, snapshot, &mut asked)?;
        Ok(asked[0].answer())
    }

    /// The newest tombstone over each of many keys, in any order: what is read is verified once for all of them.
    #[inline]
    pub(crate) fn ask<C: Comparator>(
        &self,
        comparator: &C,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        match self.known()? {
            (Some(tree), extent) => Search::newest((tree, comparator), extent, snapshot, asked),
            (None, _) => Ok(()),
        }
    }

    /// The stretch around `key` that its newest visible covering tombstone covers.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn covering_run<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Checked<Option<CoveringRun>> {
        let mut run = CoveringRun::default();
        Ok(self.covering_run_into(comparator, key, snapshot, floor, &mut run)?.map(|()| run))
    }

    /// Fills buffers that are used again. Without an answer the buffers stay as they are.
    pub(crate) fn covering_run_into<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
        run: &mut CoveringRun,
    ) -> Checked<Option<()>> {
        let (Some((sequence, index)), Some(tree)) =
            (self.search(comparator, key, snapshot, floor)?, self.tree.get())
        else {
            return Ok(None);
        };
        let record = tree.log.named(index)?;
        run.sequence = sequence;
        for (end, buffer) in [(End::Start, &mut run.start), (End::Stop, &mut run.end)] {
            tree.log.with_key(&record, end, |key| {
                buffer.clear();
                buffer.extend_from_slice(key);
            })?;
        }
        Ok(Some(()))
    }

    /// How many tombstones were added, those being added included.
    pub(crate) fn len(&self) -> Checked<u32> {
        self.tally.extent(self.checks).map(|extent| extent.count)
    }

    /// Bytes of heap memory.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let fixed = (size_of::<Tree>() - size_of::<Log>()) as u64;
        self.tree.get().map_or(0, |tree| fixed + tree.log.allocated_bytes())
    }

    /// Merges what can be merged, step by step, unless somebody else does. For a background thread.
    pub(crate) fn maintain<C: Comparator>(&self, comparator: &C) {
        while let Some(mut merger) = self.merger.try_lock() {
            if self.step(comparator, &mut merger) == Progress::Idle {
                return;
            }
        }
    }

    /// Completes all merging and builds one node over everything. Waits for a step that is running.
    pub(crate) fn finish<C: Comparator>(&self, comparator: &C) {
        let mut merger = self.merger.lock();
        if let Ok((Some(tree), extent)) = self.known() {
            merger.finish((tree, comparator), extent);
        }
    }

    /// Gives every tombstone to `visit`, in the order of arrival, verified.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Checked<(&[u8], &[u8], SequenceNumber)>)) {
        let (tree, extent) = match self.known() {
            Ok((Some(tree), extent)) => (tree, extent),
            Ok((None, _)) => return,
            Err(corruption) => return visit(Err(corruption)),
        };
        for index in 0..extent.count {
            let visited = tree.log.record(index, extent.complete).and_then(|record| {
                let Some(record) = record else {
                    return Ok(());
                };
                tree.log.with_key(&record, End::Start, |start| {
                    tree.log.with_key(&record, End::Stop, |end| visit(Ok((start, end, record.sequence))))
                })?
            });
            if let Err(corruption) = visited {
                visit(Err(corruption));
            }
        }
    }

    /// How many tombstones can be read, where no `insert` is running: for comparing with the truth. A tally whose
    /// halves differ vouches for none.
    pub(crate) fn held(&self) -> u64 {
        let Ok((Some(tree), Extent { complete, .. })) = self.known() else { return 0 };
        let held = (0..complete).filter(|&index| tree.log.named(index).is_ok());
        held.count() as u64
    }

    /// Verifies every word that is stored and reports each finding. `wait` waits until every writer that is at work
    /// when it is called has left.
    pub(crate) fn scrub(&self, wait: &mut dyn FnMut(), report: &mut dyn FnMut(Corruption)) {
        if let Err(corruption) = self.tally.verify(self.checks, wait) {
            report(corruption);
        }
        self.for_each(|tombstone| {
            if let Err(corruption) = tombstone {
                report(corruption);
            }
        });
        let Some(tree) = self.tree.get() else {
            return;
        };
        let (common_prefix, checks) = tree.log.common_prefix();
        for checked in [tree.verify_counters(wait), common_prefix.verify(checks)] {
            if let Err(corruption) = checked {
                report(corruption);
            }
        }
        for (coverage_node, cover) in tree.coverage_nodes() {
            if let Err(corruption) = coverage_node.verify(self.checks, cover) {
                report(corruption);
            }
        }
    }

    /// Every cell that was published, as what makes it read as if it were not.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        if let Some(tree) = self.tree.get_mut() {
            tree.cells(visit);
            visit("tree", &mut || self.tree = Published::new());
        }
    }

    /// Every stored word, by region, in an order that does not change while nobody inserts.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [crate::sync::AtomicU64])) {
        for words in self.tally.words() {
            visit("tombstone counter", words);
        }
        if let Some(tree) = self.tree.get() {
            tree.regions(visit);
        }
    }
}
