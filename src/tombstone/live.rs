//! The tombstone index of a mutable table: tombstones may be added at any time, and answers are
//! exact at any snapshot.
//!
//! ```text
//!   insert -> log (arrival order) -> merge steps, if nobody else is merging
//!   query  -> tail of the log, nodes newest first, summary node; stops when nothing newer can come
//! ```
//! * LIVE-INDEX-1: a tombstone is visible to every query that begins after its `insert` returned.
//! * LIVE-INDEX-2: answers do not depend on how many nodes have been merged.
//! * LIVE-INDEX-3: nothing is freed before the index is dropped, so readers need no guard.
//! * LIVE-INDEX-4: a word or line that goes back to an earlier value hides no tombstone whose
//!   `insert` has returned, unless another `insert` is running. The tally of records vouches for
//!   records, segments and tree, and its two counters vouch for each other. Nodes and summary nodes
//!   are derived: a query that misses one uses the records.
//!
//! Costs: `insert` amortised O(log n), at most four steps of merging unless the merge is far
//! behind; a query O(log^2 n) at worst, usually one or two searches in a sorted array. Memory:
//! about 21 bytes * 2 * log4(n / 2) per tombstone at worst, and summary nodes.
//!
//! Who may call what: everything, any thread, always with the same comparator. Readers never wait;
//! writers wait only for a new segment of memory. Not promised: that a tombstone whose `insert` is
//! still running is seen.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result, not_a_range};
use crate::integrity::index_checks::{Checks, Cover};
use crate::integrity::tag::Secret;
use crate::key::SequenceNumber;
use crate::sync::{Alone, Mutex, Published};
use crate::tombstone::common_prefix::CommonPrefix;
use crate::tombstone::counter::{Extent, Tally};
use crate::tombstone::fragments::Fragments;
use crate::tombstone::log::{COUNTS, Log, NOBODY};
use crate::tombstone::merger::{Merger, Progress, STEP_PIECES};
use crate::tombstone::query::{Asked, Question, Search};
use crate::tombstone::segments::damage;
use crate::tombstone::span::{Checked, End, Source, Tombstone};
use crate::tombstone::tree::{BLOCK, Tree};

/// At most so many merge steps per `insert`, unless others ran ahead while the system held up the
/// writer that merged.
const STEPS_MAX: u32 = 4;
/// At most so many while `BLOCKS_BEHIND` blocks have no node.
const CATCH_UP_STEPS_MAX: u32 = 1024;
const BLOCKS_BEHIND: u32 = 16;

/// An interval that one tombstone covers: at every key in `start..end`, `end` exclusive, the newest
/// visible covering sequence number is at least `sequence`. A cursor inside may skip all entries
/// with smaller sequence numbers, in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveringRun {
    pub(crate) sequence: SequenceNumber,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// The number of the tombstone, from 1 on in the order of the log.
    pub(crate) number: u32,
}

impl CoveringRun {
    /// Whether the interval has no key, as an unknown one.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A mutable table's tombstone index.
pub(crate) struct LiveIndex {
    checks: Checks,
    tally: Tally,
    tree: Published<Box<Tree>>,
    /// Each insert takes it: not in the cache line of the tree.
    merger: Alone<Mutex<Merger>>,
}

impl LiveIndex {
    pub(crate) fn new(secret: Secret) -> Self {
        let (checks, tree) = (Checks::new(secret), Published::new());
        LiveIndex {
            checks,
            tally: Tally::new(checks, COUNTS),
            tree,
            merger: Alone(Mutex::default()),
        }
    }

    /// Adds a tombstone and returns its number, from 1 on. After an error the index may have all of
    /// it, a part or nothing: the caller asks the list from then on. What the log took stays taken.
    pub(crate) fn insert(&self, source: Source<'_>, tombstone: &Tombstone<'_>) -> Result<u32> {
        let (tree, index) = self.append(source, tombstone)?;
        if let Some(mut merger) = self.merger.try_lock() {
            // One step per insert keeps up with one writer. The others catch up on inserts that
            // found the lock taken.
            for steps in 1..=CATCH_UP_STEPS_MAX {
                let waiting = self.step(tree, source, &mut merger);
                if waiting.is_none_or(|blocks| steps >= STEPS_MAX && blocks < BLOCKS_BEHIND) {
                    break;
                }
            }
        }
        Ok(index + 1)
    }

    /// Adds a tombstone without merging. Returns the tree that has it, and its index there.
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
    /// has returned (LIVE-INDEX-4).
    #[inline(always)]
    fn known(&self) -> Checked<(Option<&Tree>, Extent)> {
        let extent = self.tally.extent()?;
        match self.tree.get() {
            Some(tree) => Ok((Some(tree), extent)),
            None if extent.complete == 0 => Ok((None, extent)),
            None => Err(damage(0, u64::from(extent.complete), 0)),
        }
    }

    /// Takes one step of merging. Returns the number of blocks that still have no node; `None` if
    /// there was nothing to do.
    fn step(&self, tree: &Tree, source: Source<'_>, merger: &mut Merger) -> Option<u32> {
        let extent = self.tally.extent().ok()?;
        let progress = merger.step(tree, source, extent, STEP_PIECES);
        (progress == Progress::Worked)
            .then(|| (extent.count / BLOCK).saturating_sub(merger.next_block))
    }

    /// The sequence number of the tombstone that the question is about. It is never 0.
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

    /// Finds the newest tombstone over each of several keys, in any order. Every word read is
    /// verified once for all keys.
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

    /// Writes the interval of the tombstone that the question is about; it is empty if a bound does
    /// not verify. Without a tombstone, `run` is unchanged.
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
                // The answer needs no key.
                _ => *run = CoveringRun::default(),
            }
        }
        Ok(asked[0].answer())
    }

    /// Number of tombstones, including those whose insert is still running.
    pub(crate) fn len(&self) -> Checked<u32> {
        self.tally.extent().map(|extent| extent.count)
    }

    /// Bytes of heap memory.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let fixed = (size_of::<Tree>() - size_of::<Log>()) as u64;
        self.tree
            .get()
            .map_or(0, |tree| fixed + tree.log.allocated_bytes())
    }

    /// Merges everything that can be merged, step by step, unless another thread is merging.
    #[cfg(test)]
    pub(crate) fn merge_all(&self, source: Source<'_>) {
        let Some(tree) = self.tree.get() else { return };
        while let Some(mut merger) = self.merger.try_lock() {
            if self.step(tree, source, &mut merger).is_none() {
                return;
            }
        }
    }

    /// Merges everything and builds one node over all records. Waits for a step that is running on
    /// another thread.
    pub(crate) fn finish(&self, source: Source<'_>) {
        let mut merger = self.merger.lock();
        if let Ok((Some(tree), extent)) = self.known() {
            merger.finish(tree, source, extent);
        }
    }

    /// The fragments of all tombstones, each with its newest sequence number, verified piece by
    /// piece. `None` before the freeze, and if a tombstone is newer than `snapshot` or has sequence
    /// number 0. O(tombstones).
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
            let painter = (piece.painter != NOBODY)
                .then(|| tree.log.named(piece.painter))
                .transpose()?;
            newest = painter.map(|record| record.sequence);
            std::mem::swap(&mut start, &mut end);
        }
        Ok(Some(fragments.seal()))
    }

    /// Number of readable tombstones while no `insert` is running, for a comparison with the
    /// entries in the arena. It is 0 if the two counters of the tally differ.
    pub(crate) fn held(&self) -> u64 {
        let Ok((Some(tree), Extent { complete, .. })) = self.known() else {
            return 0;
        };
        let records = (0..complete).take_while(|&index| tree.log.has_place(index));
        records
            .filter(|&index| tree.log.named(index).is_ok())
            .count() as u64
    }

    /// Verifies every stored word and reports each finding. `wait` waits until all writers that are
    /// at work when it is called have left.
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

    /// Verifies the records that nobody has begun.
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

    /// Passes each published cell to `visit`, as a function that makes the cell read as
    /// unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        if let Some(tree) = self.tree.get_mut() {
            tree.cells(visit);
            visit("tree", &mut || self.tree = Published::new());
        }
    }

    /// Passes every region of stored words to `visit`, in an order that stays the same while no
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
