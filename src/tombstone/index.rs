//! The tombstone index of a table: tombstones may be added at any time, and answers are exact at
//! any snapshot.
//!
//! ```text
//!   insert -> log, in order of arrival -> steps of merging, if no other thread is merging
//!   query  -> tail of the log, nodes newest first, summary node; ends when none can be newer
//! ```
//! A tombstone is visible to every query that begins after its `insert` returned; while the
//! `insert` is running, it may or may not be. Answers do not depend on how many nodes have been
//! built. Nothing is freed before the index is dropped, so readers need no guard.
//!
//! A word or line that again holds an earlier value hides no tombstone whose `insert` has returned,
//! unless another `insert` is running: the tally shows which records, segments and tree must be
//! there, and its two counters check each other. Nodes are derived: a query that misses one uses
//! the records.
//!
//! Costs: `insert` takes amortised O(log n), and at most four steps of merging unless many blocks
//! wait; a query takes O(log^2 n) at worst, usually one or two searches in a sorted array. Memory:
//! at worst about 21 bytes * 2 * log4(n / 2) for each tombstone, and summary nodes.
//!
//! Any thread may call everything, always with the same comparator. Readers never wait. Writers
//! wait only for a new segment of memory.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result, not_a_range};
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::key::SequenceNumber;
use crate::sync::{Alone, Mutex, Published};
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::{Extent, Tally};
use crate::tombstone::fragments::Fragments;
use crate::tombstone::node_merge::Progress;
use crate::tombstone::query::{Asked, Question, Search};
use crate::tombstone::record_log::{COUNTS, NO_PAINTER, RecordLog};
use crate::tombstone::span::{Checked, End, Source, Tombstone, damage};
use crate::tombstone::tree::{BLOCK, Tree};
use crate::tombstone::tree_builder::{STEP_PIECES, TreeBuilder};

/// Most steps of merging in one `insert`.
const STEPS_MAX: u32 = 4;
/// Most steps of merging in one `insert` while `BLOCKS_WAITING` blocks have no node: then other
/// threads have inserted while the system suspended the one that merged.
const CATCH_UP_STEPS_MAX: u32 = 1024;
const BLOCKS_WAITING: u32 = 16;

/// The interval that one tombstone covers, from `start` on and before `end`. At every key in it the
/// newest visible tombstone has at least `sequence`, so a cursor inside may skip all entries with
/// smaller sequence numbers, in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveringRun {
    pub(crate) sequence: SequenceNumber,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// The number of the tombstone: its index in the log plus 1.
    pub(crate) number: u32,
}

impl CoveringRun {
    /// Whether the interval has no key. That of a tombstone whose bounds do not verify has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A table's tombstone index.
pub(crate) struct TombstoneIndex {
    checks: Checks,
    tally: Tally,
    tree: Published<Box<Tree>>,
    /// In cache lines of its own, because each insert takes the lock.
    tree_builder: Alone<Mutex<TreeBuilder>>,
}

impl TombstoneIndex {
    /// An empty index.
    #[inline(always)]
    pub(crate) fn new(secret: Secret) -> Self {
        let (checks, tree) = (Checks::new(secret), Published::new());
        TombstoneIndex {
            checks,
            tally: Tally::new(checks, COUNTS),
            tree,
            tree_builder: Alone(Mutex::default()),
        }
    }

    /// Adds a tombstone and returns its number, which is at least 1. After an error the index may
    /// have the tombstone, a part of it, or nothing, and the caller must ask the list from then on.
    /// A place in the log that was claimed remains claimed.
    pub(crate) fn insert(&self, source: Source<'_>, tombstone: &Tombstone<'_>) -> Result<u32> {
        let (tree, index) = self.append(source, tombstone)?;
        if let Some(mut tree_builder) = self.tree_builder.try_lock() {
            // One step in each insert keeps up with one writer. The other steps make up for inserts
            // that found the lock taken.
            for steps in 1..=CATCH_UP_STEPS_MAX {
                let waiting = self.step(tree, source, &mut tree_builder);
                if waiting.is_none_or(|blocks| steps >= STEPS_MAX && blocks < BLOCKS_WAITING) {
                    break;
                }
            }
        }
        Ok(index + 1)
    }

    /// Adds a tombstone without merging. Returns the tree and the index of the record in its log.
    pub(crate) fn append(
        &self,
        source: Source<'_>,
        tombstone: &Tombstone<'_>,
    ) -> Result<(&Tree, u32)> {
        let [start, end] = tombstone.keys;
        if source.comparator.compare(start, end).is_ge() {
            return Err(not_a_range());
        }
        let tree = match self.tree.get() {
            Some(tree) => tree,
            None => {
                self.known()?;
                let common_prefix =
                    || CommonPrefix::new(self.checks, source.comparator, [start, end]);
                self.tree
                    .get_or_publish(|| Box::new(Tree::new(self.checks, common_prefix())), |_| ())
            }
        };
        let index = tree.log.push(source, &self.tally, tombstone)?;
        Ok((tree, index))
    }

    /// The tree and the length of its log. The tree may be missing only until the first `insert`
    /// has returned; later that is damage.
    #[inline(always)]
    fn known(&self) -> Checked<(Option<&Tree>, Extent)> {
        let extent = self.tally.extent()?;
        match self.tree.get() {
            Some(tree) => Ok((Some(tree), extent)),
            None if extent.complete == 0 => Ok((None, extent)),
            None => Err(damage(0, u64::from(extent.complete), 0)),
        }
    }

    /// Takes one step of merging. Returns the number of blocks that still have no node, or `None`
    /// if there was no work.
    fn step(&self, tree: &Tree, source: Source<'_>, tree_builder: &mut TreeBuilder) -> Option<u32> {
        let extent = self.tally.extent().ok()?;
        let progress = tree_builder.step(tree, source, extent, STEP_PIECES);
        (progress == Progress::Worked)
            .then(|| (extent.count / BLOCK).saturating_sub(tree_builder.next_block))
    }

    /// The sequence number of the tombstone that answers the question. It is never 0.
    #[inline]
    pub(crate) fn max_covering(
        &self,
        source: Source<'_>,
        question: Question<'_>,
    ) -> Checked<Option<SequenceNumber>> {
        let mut asked = [Asked::new(source.comparator, question.key, question.floor)];
        self.ask(source, question.snapshot, &mut asked)
            .map(|()| asked[0].answer())
    }

    /// Finds the newest tombstone over each of several keys, in any order. Records and heads of
    /// nodes are verified once for all keys.
    #[inline(never)]
    pub(crate) fn ask(
        &self,
        source: Source<'_>,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        match self.known()? {
            (Some(tree), extent) => Search {
                tree,
                source,
                snapshot,
                extent,
            }
            .newest(asked),
            (None, _) => Ok(()),
        }
    }

    /// Answers the question, and writes the interval of the tombstone to `run`. The interval is
    /// empty if a bound does not verify. If no tombstone is found, `run` does not change.
    pub(crate) fn covering_run(
        &self,
        source: Source<'_>,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Checked<Option<SequenceNumber>> {
        let mut asked = [Asked::new(source.comparator, question.key, question.floor)];
        self.ask(source, question.snapshot, &mut asked)?;
        if let (Some(index), Some(tree)) = (asked[0].found, self.tree.get()) {
            let record = tree.log.named(index)?;
            let bound = |end| record.bound(source, end);
            match (bound(End::Start), bound(End::Stop)) {
                (Ok(start), Ok(end)) => {
                    start.clone_into(&mut run.start);
                    end.clone_into(&mut run.end);
                    (run.sequence, run.number) = (asked[0].best, index + 1);
                }
                // The answer needs no bounds.
                _ => *run = CoveringRun::default(),
            }
        }
        Ok(asked[0].answer())
    }

    /// Number of tombstones, including those whose `insert` is still running.
    pub(crate) fn len(&self) -> Checked<u32> {
        self.tally.extent().map(|extent| extent.count)
    }

    /// Bytes of heap memory that the index takes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let fixed = (size_of::<Tree>() - size_of::<RecordLog>()) as u64;
        self.tree
            .get()
            .map_or(0, |tree| fixed + tree.log.allocated_bytes())
    }

    /// Merges everything that can be merged, step by step, unless another thread is merging.
    #[cfg(test)]
    pub(crate) fn merge_all(&self, source: Source<'_>) {
        let Some(tree) = self.tree.get() else { return };
        while let Some(mut tree_builder) = self.tree_builder.try_lock() {
            if self.step(tree, source, &mut tree_builder).is_none() {
                return;
            }
        }
    }

    /// Merges everything and builds one node over all records. Waits for another thread's step of
    /// merging.
    pub(crate) fn finish(&self, source: Source<'_>) {
        let mut tree_builder = self.tree_builder.lock();
        if let Ok((Some(tree), extent)) = self.known() {
            tree_builder.finish(tree, source, extent);
        }
    }

    /// The fragments of all tombstones, each with its newest sequence number: the verified pieces
    /// of the node that the freeze built. `None` before the freeze, or if a tombstone is newer than
    /// `snapshot` or has sequence number 0. O(tombstones).
    pub(crate) fn fragments(
        &self,
        source: Source<'_>,
        snapshot: SequenceNumber,
    ) -> Checked<Option<Fragments>> {
        let (Some(tree), Extent { count, complete }) = self.known()? else {
            return Ok(None);
        };
        let Some((node, records)) = tree.whole(count).filter(|_| count == complete) else {
            return Ok(None);
        };
        let head = node.verify(self.checks, records)?;
        if head.max > snapshot || head.min == 0 {
            return Ok(None);
        }
        let cover = Cover {
            records,
            skip: head.skip,
        };
        let mut fragments = Fragments::new(source.comparator.clone());
        for index in 0..count {
            fragments.count(tree.log.named(index)?.key_bytes(source)?);
        }
        // The newest sequence number from `start` on.
        let mut newest = None;
        let (mut start, mut end) = (Vec::new(), Vec::new());
        for at in (0..head.len).map_while(|at| usize::try_from(at).ok()) {
            let (piece, _) = node.piece(self.checks, cover, at)?;
            tree.log
                .boundary_key(source, piece.name)?
                .clone_into(&mut end);
            if let Some(sequence) = newest {
                fragments.push(&start, &end, &[sequence]);
            }
            let painter = (piece.painter != NO_PAINTER)
                .then(|| tree.log.named(piece.painter))
                .transpose()?;
            newest = painter.map(|record| record.sequence);
            std::mem::swap(&mut start, &mut end);
        }
        Ok(Some(fragments.seal()))
    }

    /// Number of records that can be read, to be compared with the number of entries in the list.
    /// It is 0 if the two counters of the tally differ, as while an `insert` is running.
    pub(crate) fn held(&self) -> u64 {
        let Ok((Some(tree), Extent { complete, .. })) = self.known() else {
            return 0;
        };
        let records = (0..complete).take_while(|&index| tree.log.has_place(index));
        records
            .filter(|&index| tree.log.named(index).is_ok())
            .count() as u64
    }

    /// Verifies every stored word and reports all damage. `wait` must return only after all writers
    /// that are at work when it is called have left.
    pub(crate) fn scrub(&self, wait: &mut dyn FnMut(), report: &mut dyn FnMut(Corruption)) {
        let mut check = |checked: Checked<()>| checked.err().into_iter().for_each(&mut *report);
        check(self.tally.verify(wait));
        check(self.known().map(|_| ()));
        let Some(tree) = self.tree.get() else { return };
        if let Ok(extent) = self.tally.extent() {
            for index in 0..extent.count {
                check(tree.log.record(index, extent.complete).map(|_| ()));
                if !tree.log.has_place(index) {
                    break;
                }
            }
        }
        check(tree.verify_counter());
        check(tree.log.common_prefix.shared(&[]).map(|_| ()));
        check(self.verify_unwritten(tree, wait));
        for (node, cover) in tree.coverage_nodes() {
            check(node.verify(self.checks, cover).map(|_| ()));
        }
    }

    /// Verifies the words of the records that no writer has begun.
    fn verify_unwritten(&self, tree: &Tree, wait: &mut dyn FnMut()) -> Checked<()> {
        let mut begun = self.tally.extent()?.count;
        while let Some((index, damaged)) = tree.log.first_written(begun) {
            wait();
            begun = self.tally.extent()?.count;
            if index >= begun {
                return Err(damaged);
            }
        }
        Ok(())
    }

    /// Calls `visit` for each published cell, with a function that makes it read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        if let Some(tree) = self.tree.get_mut() {
            tree.cells(visit);
            visit("tree", &mut || self.tree = Published::new());
        }
    }

    /// Calls `visit` for every region of stored words, in an order that does not change while no
    /// thread inserts.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(
        &'a self,
        visit: &mut dyn FnMut(&'static str, &'a [crate::sync::AtomicU64]),
    ) {
        for words in self.tally.words() {
            visit("tombstone counter", words);
        }
        if let Some(tree) = self.tree.get() {
            tree.regions(visit);
        }
    }
}
