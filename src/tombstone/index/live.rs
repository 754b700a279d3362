//! The tombstone index of a mutable table: tombstones may be added at any time, and answers are exact at any
//! snapshot.
//!
//! ```text
//!   insert -> log (arrival order) -> up to four merge steps, if nobody else is merging
//!   query  -> tail of the log, nodes newest first, summary node; stops when nothing newer can come
//! ```
//! * LIVE-INDEX-1: a tombstone is visible to every query that begins after its `insert` returned.
//! * LIVE-INDEX-2: answers do not depend on how many nodes have been merged.
//! * LIVE-INDEX-3: nothing is freed before the index is dropped, so readers need no guard.
//! * LIVE-INDEX-4: a word or line that goes back to an earlier value hides no tombstone whose `insert` has returned,
//!   unless another `insert` is running. The tally of records vouches for records, segments and tree, and its two
//!   counters vouch for each other. Nodes and summary nodes are derived: a query that misses one uses the records.
//!
//! Costs: `insert` amortised O(log n), at most four steps of merging; a query O(log^2 n) at worst, usually one or two
//! searches in a sorted array. Memory: about 21 bytes * 2 * log4(n / 2) per tombstone at worst, and summary nodes.
//!
//! Who may call what: everything, any thread, always with the same comparator. Readers never wait; writers wait only
//! for a new segment of memory. Not promised: that a tombstone whose `insert` is still running is seen.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::digest::Secret;
use crate::key::{KeyComparator, SequenceNumber};
use crate::sync::{Mutex, Published};
use crate::tombstone::fragments::{Contact, FragmentsBuilder, check_order};
use crate::tombstone::index::checks::{Checks, Cover, Extent, Tally, damage, pair};
use crate::tombstone::index::common_prefix::{Begins, CheckedPrefix, CommonPrefix, KeyRange, Probe};
use crate::tombstone::index::log::{End, Log, Record, end_of};
use crate::tombstone::index::merge::{Merger, Progress, STEP_PIECES};
use crate::tombstone::index::node::{Bounds, CoverageNode, NOBODY};
use crate::tombstone::index::tree::{BLOCK, NodeId, OrderedTree, Tree};

type Checked<T> = std::result::Result<T, Corruption>;

/// At most so many merge steps per `insert`.
const STEPS_MAX: u32 = 4;

/// An interval that one tombstone covers: at every key in `start..end`, `end` exclusive, the newest visible covering
/// sequence number is at least `sequence`. A cursor inside may skip all entries with smaller sequence numbers, in
/// both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CoveringRun {
    pub(crate) sequence: SequenceNumber,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl CoveringRun {
    /// Whether the interval has no key, as an unknown one.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// A mutable table's tombstone index.
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

    /// Adds a tombstone. An error leaves the index unchanged.
    pub(crate) fn insert(
        &self,
        comparator: &KeyComparator,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.append(comparator, start, end, sequence)?;
        if let Some(mut merger) = self.merger.try_lock() {
            // One step per insert keeps up with one writer. The others catch up on inserts that found the lock taken.
            for _ in 0..STEPS_MAX {
                if self.step(comparator, &mut merger) == Progress::Idle {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds a tombstone without merging.
    pub(crate) fn append(
        &self,
        comparator: &KeyComparator,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        check_order(comparator.compare(start, end))?;
        let range = KeyRange { start, end };
        let tree = match self.known()? {
            (Some(tree), _) => tree,
            (None, _) => {
                let common_prefix = || CommonPrefix::new(self.checks, comparator, range);
                self.tree.get_or_publish(|| Box::new(Tree::new(self.checks, common_prefix())), |_| ())
            }
        };
        tree.log.push(comparator, &self.tally, range, sequence)?;
        Ok(())
    }

    /// The tree and the length of its log. The tree may be missing only until the first `insert` has returned
    /// (LIVE-INDEX-4).
    #[inline(always)]
    fn known(&self) -> Checked<(Option<&Tree>, Extent)> {
        let extent = self.tally.extent(self.checks)?;
        match self.tree.get() {
            Some(tree) => Ok((Some(tree), extent)),
            None if extent.complete == 0 => Ok((None, extent)),
            None => Err(damage(0, u64::from(extent.complete), 0)),
        }
    }

    fn step(&self, comparator: &KeyComparator, merger: &mut Merger) -> Progress {
        match self.known() {
            Ok((Some(tree), extent)) => merger.step(OrderedTree { tree, comparator }, extent, STEP_PIECES),
            _ => Progress::Idle,
        }
    }

    /// The sequence number of the tombstone that the question is about. It is never 0.
    #[inline]
    pub(crate) fn max_covering(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
    ) -> Checked<Option<SequenceNumber>> {
        Ok(self.search(comparator, question)?.map(|(sequence, _)| sequence))
    }

    #[inline]
    fn search(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
    ) -> Checked<Option<(SequenceNumber, u32)>> {
        let mut asked = [Asked::new(comparator, question.key, question.floor)];
        self.ask(comparator, question.snapshot, &mut asked)?;
        Ok(asked[0].answer())
    }

    /// Finds the newest tombstone over each of several keys, in any order. Every word read is verified once for all
    /// keys.
    #[inline]
    pub(crate) fn ask(
        &self,
        comparator: &KeyComparator,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        match self.known()? {
            (Some(tree), extent) => Search::newest(OrderedTree { tree, comparator }, extent, snapshot, asked),
            (None, _) => Ok(()),
        }
    }

    /// The interval of the tombstone that the question is about.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn covering_run(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
    ) -> Checked<Option<CoveringRun>> {
        let mut run = CoveringRun::default();
        Ok(self.covering_run_into(comparator, question, &mut run)?.map(|()| run))
    }

    /// Writes the bounds of that interval into the caller's buffers. Without such a tombstone they are unchanged.
    pub(crate) fn covering_run_into(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Checked<Option<()>> {
        let (Some((sequence, index)), Some(tree)) = (self.search(comparator, question)?, self.tree.get())
        else {
            return Ok(None);
        };
        let record = tree.log.named(index)?;
        run.sequence = sequence;
        for (end, buffer) in [(End::Start, &mut run.start), (End::Stop, &mut run.end)] {
            tree.log.copy_key(&record, end, buffer)?;
        }
        Ok(Some(()))
    }

    /// Number of tombstones, including those whose insert is still running.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> Checked<u32> {
        self.tally.extent(self.checks).map(|extent| extent.count)
    }

    /// Bytes of heap memory.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let fixed = (size_of::<Tree>() - size_of::<Log>()) as u64;
        self.tree.get().map_or(0, |tree| fixed + tree.log.allocated_bytes())
    }

    /// Merges everything that can be merged, step by step, unless another thread is merging. Meant for a background
    /// thread.
    pub(crate) fn maintain(&self, comparator: &KeyComparator) {
        while let Some(mut merger) = self.merger.try_lock() {
            if self.step(comparator, &mut merger) == Progress::Idle {
                return;
            }
        }
    }

    /// Merges everything and builds one node over all records. Waits for a step that is running on another thread.
    pub(crate) fn finish(&self, comparator: &KeyComparator) {
        let mut merger = self.merger.lock();
        if let Ok((Some(tree), extent)) = self.known() {
            merger.finish(OrderedTree { tree, comparator }, extent);
        }
    }

    /// The fragments of all tombstones, each with its newest sequence number, verified piece by piece. `None` before
    /// the freeze, and if a tombstone is newer than `snapshot` or has sequence number 0. O(tombstones).
    pub(crate) fn fragments(&self, snapshot: SequenceNumber) -> Checked<Option<FragmentsBuilder>> {
        let (Some(tree), Extent { count, complete }) = self.known()? else { return Ok(None) };
        let Some((node, records)) = tree.whole(count).filter(|_| count == complete) else { return Ok(None) };
        let head = node.verify(self.checks, records)?;
        if head.bounds.max > snapshot || head.bounds.min == 0 {
            return Ok(None);
        }
        let cover = Cover { records, skip: head.bounds.skip };
        let mut fragments = FragmentsBuilder::default();
        for index in 0..count {
            fragments.count(tree.log.key_bytes(&tree.log.named(index)?)?);
        }
        // The newest sequence number from `start` on, and whether there was one before `start`.
        let (mut newest, mut contact) = (None, Contact::Apart);
        let (mut start, mut end) = (Vec::new(), Vec::new());
        for at in (0..head.len).map_while(|at| usize::try_from(at).ok()) {
            let (piece, _) = node.piece(self.checks, cover, at)?;
            tree.log.copy_key(&tree.log.named(piece.name >> 1)?, end_of(piece.name), &mut end)?;
            contact = match newest {
                Some(sequence) => {
                    fragments.push(&start, &end, &[sequence], contact);
                    Contact::Touching
                }
                None => Contact::Apart,
            };
            newest = match piece.painter {
                NOBODY => None,
                painter => Some(tree.log.named(painter)?.sequence),
            };
            std::mem::swap(&mut start, &mut end);
        }
        Ok(Some(fragments))
    }

    /// Passes every tombstone to `visit`, verified, in order of arrival.
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

    /// Number of readable tombstones while no `insert` is running, for a comparison with the entries in the arena. It
    /// is 0 if the two counters of the tally differ.
    pub(crate) fn held(&self) -> u64 {
        let Ok((Some(tree), Extent { complete, .. })) = self.known() else { return 0 };
        let held = (0..complete).filter(|&index| tree.log.named(index).is_ok());
        held.count() as u64
    }

    /// Verifies every stored word and reports each finding. `wait` waits until all writers that are at work when it
    /// is called have left.
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
        let CheckedPrefix { common_prefix, checks } = tree.log.common_prefix();
        let counters = tree.verify_counters(wait);
        for checked in [counters, common_prefix.verify(checks), self.verify_unwritten(tree, wait)] {
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

    /// Verifies the records that nobody has begun.
    fn verify_unwritten(&self, tree: &Tree, wait: &mut dyn FnMut()) -> Checked<()> {
        let count = || self.tally.extent(self.checks).map(|extent| extent.count);
        let mut begun = count()?;
        while let Some((index, damaged)) = tree.log.first_written(begun) {
            wait();
            begun = count()?;
            if index >= begun {
                return Err(damaged);
            }
        }
        Ok(())
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        if let Some(tree) = self.tree.get_mut() {
            tree.cells(visit);
            visit("tree", &mut || self.tree = Published::new());
        }
    }

    /// Passes every region of stored words to `visit`, in an order that stays the same while no thread inserts.
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

// Queries of the tombstone index: the newest tombstone that covers a key and is visible at a snapshot.
//
// ```text
//   oldest                                                     newest
//   [summary node                     ) [node       )[node  ) tail records         asked from right to left
// ```
// ```text
//   newest(key, snapshot, best):                                best begins as the caller's floor
//     for part, newest first, in tail records | nodes | summary node:
//       if best >= snapshot: stop                               nothing newer is visible
//       a record:  if best < sequence <= snapshot and it covers the key: best = sequence
//       a node:    if max <= best or min > snapshot: next       QUERY-1
//                  if the key has no painter: next              QUERY-2
//                  if painter <= snapshot: best = max(best, painter)      QUERY-3
//                  else: newest(key, snapshot, best) over its children    QUERY-4, QUERY-5
// ```
// The four cases of a node, where `min` and `max` are the smallest and largest sequence number of its records:
//
// * QUERY-1: max <= best so far, or min > snapshot: the node cannot improve the answer.
// * QUERY-2: the key has no painter: no record of the node covers it, at any snapshot.
// * QUERY-3: the painter is visible: it is the newest record of the node that covers the key.
// * QUERY-4: the painter is newer than the snapshot: the children must be asked.
// * QUERY-5: a damaged node counts as missing, so its children are asked.
//
// Who may call what: a `Search` belongs to one call. It never waits.

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
