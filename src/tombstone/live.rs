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

use std::cmp::Ordering as Order;
use std::hint::black_box;
use std::ops::Range;

use crate::error::{Corruption, Result, not_a_range};
use crate::integrity::digest::{Checks, Cover, Secret};
use crate::key::{KeyComparator, SequenceNumber};
use crate::sync::{Alone, Mutex, Published};
use crate::tombstone::fragments::Fragments;
use crate::tombstone::log::{
    COUNTS, CommonPrefix, Extent, Lift, Log, NOBODY, Probe, Record, Tally, damage, high, low, pair,
};
use crate::tombstone::node::{
    BLOCK, Builder, Child, CoverageNode, Head, NodeId, Piece, Pieces, SUMMARY_RECORDS_MAX,
    SummaryNode, Tree,
};
use crate::tombstone::span::{Checked, End, Source, Tombstone};

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

// Queries of the tombstone index: the newest tombstone that covers a key and is visible at a
// snapshot.
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
// The four cases of a node, where `min` and `max` are the smallest and largest sequence number of
// its records:
//
// * QUERY-1: max <= best so far, or min > snapshot: the node cannot improve the answer.
// * QUERY-2: the key has no painter: no record of the node covers it, at any snapshot.
// * QUERY-3: the painter is visible: it is the newest record of the node that covers the key.
// * QUERY-4: the painter is newer than the snapshot: the children must be asked.
// * QUERY-5: a damaged node counts as missing, so its children are asked.
//
// Who may call what: a `Search` belongs to one call. It never waits.

/// What is asked of range tombstones: the newest one that covers a key, up to a snapshot and above
/// a floor.
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

/// The query of one key, with the best answer so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'k> {
    probe: Probe<'k>,
    best: SequenceNumber,
    /// The record with the best answer.
    found: Option<u32>,
}

impl<'k> Asked<'k> {
    /// A query for sequence numbers above `floor`.
    #[inline]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8], floor: SequenceNumber) -> Self {
        Asked {
            probe: Probe::new(comparator, key),
            best: floor,
            found: None,
        }
    }

    /// The largest sequence number found.
    #[inline]
    pub(crate) fn answer(&self) -> Option<SequenceNumber> {
        self.found.map(|_| self.best)
    }

    #[inline(always)]
    fn take(&mut self, record: &Record) {
        if record.sequence > self.best {
            (self.best, self.found) = (record.sequence, Some(record.index));
        }
    }
}

/// A running query of one key or several. Each record and node head is verified once for all keys.
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
        // Records from `count` on were begun after the question, whatever the summary node says.
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

    /// Asks a node, unless no key can get a newer answer.
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

    /// Asks a node about every key, and calls `otherwise` for keys that it does not decide
    /// (QUERY-4, QUERY-5).
    #[inline(always)]
    fn consult(
        &self,
        node: &CoverageNode,
        cover: u64,
        asked: &mut [Asked<'_>],
        otherwise: impl Fn(&mut [Asked<'_>]) -> Checked<()>,
    ) -> Checked<()> {
        // QUERY-1. The head is verified only when it seems to exclude a key; a lookup in the node
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

    /// Looks the key up in a node. Whether the node decides (QUERY-2, QUERY-3).
    #[inline(always)]
    fn decides(&self, node: &CoverageNode, cover: Cover, one: &mut Asked<'_>) -> bool {
        match self.painter(node, cover, &one.probe) {
            Ok(NOBODY) => true,
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

    /// The painter at the probe's key: the index of a record, or [`NOBODY`]. On an error this node
    /// must not be used.
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
        // COVERAGE-NODE-3: verifies the piece that begins at or before the key, and where the next
        // one begins.
        let Some(at) = reach.checked_sub(1) else {
            let (first, _) = node.piece(checks, cover, 0)?;
            return match self.place(first, probe)? {
                Order::Greater => Ok(NOBODY),
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

    /// Whether the key is before the piece at `reach`, which has the key's prefix, or after all
    /// pieces.
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

    /// Number of boundaries at or before the key, where the first `from` have smaller prefixes and
    /// the next one has the key's prefix. Compares whole keys.
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
                // A hint, as all prefixes that lead to the piece which proves the answer.
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
                // A processor that errs counts on below 0: records that are not there are no
                // damage, and no end.
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

// The merger: makes nodes over blocks of records, and merges nodes into their parents and into
// summary nodes.
//
// ```text
//   older   ----aaaa----cccc--      a node, or a record: a piece from its start to its end
//   newer   --bbbbb-----------
//   parent  --bbbbba----cccc--      piece by piece the larger sequence number; equal neighbours become one
// ```
// * MERGE-1: a merge computes a digest over the pieces of each child as it reads them, and compares
//   it with the digest in the child's verified head before it publishes the parent. A damaged child
//   therefore gets no parent, and readers use its other descendants (TREE-1).
// * MERGE-2: one step reads at most `STEP_PIECES` pieces, or makes a node over one block.
// * MERGE-3: a block with a damaged record, or in which the comparator panicked, is skipped and not
//   tried again.
// * MERGE-4: a summary node is built only when a ninth of the records is new, and only up to a
//   number of records, so that summary nodes stay small beside the other nodes; and once by
//   `finish`. It ends where a large node ends, so that few nodes cover the records behind it.
// * MERGE-5: every record is verified. Keys are read only where prefixes are equal, and are
//   verified then.
// * MERGE-6: the prefixes of a node leave out as many bytes as those of the child that leaves out
//   fewest. Prefixes of other children get bytes of the common prefix back.
//
// Who may call what: a lock of the index guards its `Merger`. Readers never use it.

/// Most pieces that one step reads.
pub(crate) const STEP_PIECES: u32 = 256;

/// Whether a step found work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Worked,
    Idle,
}

/// A child of a running merge that still has pieces to read.
struct Side {
    child: usize,
    /// Whether the sequence numbers of the children overlap. If not, the later child has the newer
    /// tombstone.
    overlaps: bool,
    /// Position of the next piece; `refs` are its name and painter. The prefix where it begins is
    /// in `Job::nexts`.
    at: u32,
    refs: u64,
    /// Digest over the stored pieces up to and including the next one.
    digest: u64,
    /// What the head says: the number of pieces, the digest over all of them, and how much their
    /// prefixes leave out.
    len: u64,
    whole: u64,
    skip: u32,
    /// Turns prefixes of the child into prefixes of the result, which may leave out fewer bytes.
    lift: Lift,
}

impl Side {
    /// The paint of the painter of a piece. Among equal sequence numbers the later child wins.
    #[inline(always)]
    fn paint(&self, log: &Log, refs: u64) -> Checked<u128> {
        let sequence = match low(refs) {
            NOBODY => return Ok(UNPAINTED),
            painter if self.overlaps => log.named(painter)?.sequence,
            _ => 0,
        };
        Ok(u128::from(sequence) << 64 | (self.child as u128 + 1) << 32 | u128::from(low(refs)))
    }
}

/// A merge of nodes and records, done in steps.
pub(crate) struct Job {
    children: Vec<Child>,
    /// The children that have pieces left, oldest first; `nexts` holds the prefix where the next
    /// piece of each begins.
    sides: Vec<Side>,
    nexts: Vec<u64>,
    /// By child: its painter at the current key with its rank. The largest one wins.
    paints: Vec<u128>,
    pub(crate) out: Builder,
    /// The node that is made. `None`: a summary node.
    target: Option<NodeId>,
}

/// The paint where no tombstone is. The low bits of a paint are its painter.
const UNPAINTED: u128 = NOBODY as u128;

const fn painter_of(paint: u128) -> u32 {
    (paint & 0xffff_ffff) as u32
}

impl Job {
    /// Begins a merge of at most 64 children over adjacent runs of records, oldest first.
    pub(crate) fn start(
        tree: &Tree,
        children: Vec<Child>,
        target: Option<NodeId>,
    ) -> Checked<Box<Job>> {
        let len = children.len();
        let (mut sides, mut nexts) = (Vec::with_capacity(len), Vec::with_capacity(len));
        let (mut first, mut last, mut pieces, mut overlaps) = (None, 0, 0, false);
        let (mut skip, mut sequences, mut newest) = (u32::MAX, [SequenceNumber::MAX, 0], 0);
        for (child, from) in children.iter().enumerate() {
            let (stored, cover) = from.read(tree)?;
            let head = stored.head(tree.checks, cover)?;
            if first.is_some() && last != high(cover) || child >= 64 {
                return Err(damage(u64::from(last), 0, cover));
            }
            (first, last) = (first.or(Some(high(cover))), low(cover));
            pieces += usize::try_from(head.len).unwrap_or(0);
            skip = skip.min(head.skip);
            overlaps |= newest > head.min;
            newest = head.max;
            sequences = [sequences[0].min(head.min), sequences[1].max(head.max)];
            let (prefix, refs) = stored.stored(0).ok_or_else(|| damage(0, 0, 0))?;
            nexts.push(prefix);
            let digest = tree.checks.digest(0, prefix, refs);
            let Head {
                len,
                digest: whole,
                skip,
                ..
            } = head;
            sides.push(Side {
                child,
                overlaps,
                at: 0,
                refs,
                digest,
                len,
                whole,
                skip,
                lift: Lift::NONE,
            });
        }
        for (side, next) in sides.iter_mut().zip(&mut nexts) {
            side.overlaps = overlaps;
            if side.skip != skip {
                side.lift = tree.log.common_prefix.lift(side.skip, skip)?;
                *next = side.lift.apply(*next);
            }
        }
        let cover = pair(first.ok_or_else(|| damage(0, 0, 0))?, last);
        let out = Builder::new(
            tree.checks,
            Cover {
                records: cover,
                skip,
            },
            sequences,
            pieces,
        );
        Ok(Box::new(Job {
            children,
            sides,
            nexts,
            paints: vec![UNPAINTED; len],
            out,
            target,
        }))
    }

    /// Merges up to `budget` pieces, or a few more if several begin at one key. `Idle` if none are
    /// left.
    fn advance(&mut self, tree: &Tree, source: Source<'_>, mut budget: u32) -> Checked<Progress> {
        let children = std::mem::take(&mut self.children);
        let pieces = children
            .iter()
            .map(|child| Ok(child.read(tree)?.0))
            .collect::<Checked<Vec<_>>>()?;
        // Sides wait in memory between two calls.
        if self
            .sides
            .iter()
            .any(|side| side.child >= pieces.len().min(self.paints.len()))
        {
            return Err(damage(0, 0, 0));
        }
        while budget > 0 {
            let Some(lead) = Lead::of(&self.nexts) else {
                return Ok(Progress::Idle);
            };
            let read = if lead.next == lead.prefix {
                self.enter_together(tree, source, lead, &pieces)?
            } else {
                self.enter_run(tree, lead, budget, &pieces)?
            };
            budget = budget.saturating_sub(read);
        }
        self.children = children;
        Ok(Progress::Worked)
    }

    /// Merges pieces of the leading child while its next key is the smallest. Returns how many.
    #[inline(always)]
    fn enter_run(
        &mut self,
        tree: &Tree,
        lead: Lead,
        budget: u32,
        pieces: &[Pieces<'_>],
    ) -> Checked<u32> {
        let side = &mut self.sides[lead.at];
        let (child, stored) = (side.child, pieces[side.child]);
        self.paints[child] = UNPAINTED;
        let others = self.paints.iter().copied().fold(UNPAINTED, u128::max);
        let (mut prefix, mut read) = (lead.prefix, 0);
        let (mut refs, mut digest) = (side.refs, side.digest);
        let (paint, is_over) = loop {
            let paint = side.paint(&tree.log, refs)?;
            self.out.push(Piece {
                prefix,
                name: high(refs),
                painter: painter_of(others.max(paint)),
            });
            read += 1;
            match stored.stored(side.at + read) {
                Some((next, next_refs)) if u64::from(side.at + read) < side.len => {
                    digest = tree.checks.digest(digest, next, next_refs);
                    (prefix, refs) = (side.lift.apply(next), next_refs);
                }
                _ => break (paint, true),
            }
            if prefix >= lead.next || read >= budget {
                break (paint, false);
            }
        };
        (side.at, side.refs, side.digest) = (side.at + read, refs, digest);
        (self.paints[child], self.nexts[lead.at]) = (paint, prefix);
        if is_over {
            self.leave(lead.at)?;
        }
        Ok(read)
    }

    /// Merges the pieces of all children whose next key is the smallest. Returns how many.
    #[cold]
    #[inline(never)]
    fn enter_together(
        &mut self,
        tree: &Tree,
        source: Source<'_>,
        lead: Lead,
        pieces: &[Pieces<'_>],
    ) -> Checked<u32> {
        let mut same = self.ties(&tree.log, source, lead)?;
        let read = same.count_ones();
        let name = high(self.sides[same.trailing_zeros() as usize].refs);
        // From the last child to the first, because removing a child moves those after it.
        while same != 0 {
            let at = 63 - same.leading_zeros() as usize;
            same &= !(1 << at);
            let side = &mut self.sides[at];
            self.paints[side.child] = side.paint(&tree.log, side.refs)?;
            side.at += 1;
            match pieces[side.child].stored(side.at) {
                Some((next, refs)) if u64::from(side.at) < side.len => {
                    side.digest = tree.checks.digest(side.digest, next, refs);
                    side.refs = refs;
                    self.nexts[at] = side.lift.apply(next);
                }
                _ => self.leave(at)?,
            }
        }
        let winner = self.paints.iter().copied().fold(UNPAINTED, u128::max);
        self.out.push(Piece {
            prefix: lead.prefix,
            name,
            painter: painter_of(winner),
        });
        Ok(read)
    }

    /// Among the children with the smallest prefix, those with the smallest key, as one bit per
    /// child.
    fn ties(&self, log: &Log, source: Source<'_>, lead: Lead) -> Checked<u64> {
        let mut first = 0u64;
        for (other, side) in self
            .sides
            .iter()
            .enumerate()
            .filter(|(at, _)| self.nexts[*at] == lead.prefix)
        {
            let order = match self.sides.get(first.trailing_zeros() as usize) {
                Some(known) => {
                    let left = log.boundary_key(source, high(side.refs))?;
                    let right = log.boundary_key(source, high(known.refs))?;
                    source.comparator.compare(left, right)
                }
                None => Order::Less,
            };
            match order {
                Order::Less => first = 1 << other,
                Order::Equal => first |= 1 << other,
                Order::Greater => {}
            }
        }
        Ok(first)
    }

    /// Removes a child without pieces, and verifies the digest over all that were read (MERGE-1).
    fn leave(&mut self, at: usize) -> Checked<()> {
        self.nexts.remove(at);
        let side = self.sides.remove(at);
        if side.digest == side.whole && u64::from(side.at) == side.len {
            return Ok(());
        }
        Err(damage(u64::from(side.at), side.whole, side.digest))
    }
}

/// The child whose next piece begins first, and the smallest prefix among the other children.
#[derive(Debug, Clone, Copy)]
struct Lead {
    at: usize,
    prefix: u64,
    next: u64,
}

impl Lead {
    /// Written without branches that depend on prefixes, because the processor cannot predict which
    /// child is next.
    #[inline(always)]
    fn of(nexts: &[u64]) -> Option<Lead> {
        let (&first, others) = nexts.split_first()?;
        let mut lead = Lead {
            at: 0,
            prefix: first,
            next: u64::MAX,
        };
        for (at, &prefix) in (1..).zip(others) {
            let (before, smaller, larger) = (
                prefix < lead.prefix,
                prefix.min(lead.prefix),
                prefix.max(lead.prefix),
            );
            lead.at = if before { at } else { lead.at };
            lead.next = lead.next.min(larger);
            lead.prefix = smaller;
        }
        Some(lead)
    }
}

/// Makes and merges coverage nodes.
#[derive(Default)]
pub(crate) struct Merger {
    /// Blocks before this one have a node or are skipped.
    next_block: u32,
    /// Number of records that the newest summary node covers, even if building it failed, so that
    /// the attempt is not repeated.
    summarized: u32,
    job: Option<Box<Job>>,
}

impl Merger {
    /// Takes one step (MERGE-2) over a log of this extent.
    pub(crate) fn step(
        &mut self,
        tree: &Tree,
        source: Source<'_>,
        extent: Extent,
        budget: u32,
    ) -> Progress {
        match self.grow(tree, source, extent, budget) {
            Progress::Worked => Progress::Worked,
            Progress::Idle => self.summarize(tree),
        }
    }

    /// Takes one step of the running merge, or makes the next node over records, if all of them are
    /// complete.
    fn grow(&mut self, tree: &Tree, source: Source<'_>, extent: Extent, budget: u32) -> Progress {
        if let Some(job) = self.job.take() {
            self.advance(tree, source, job, budget);
            return Progress::Worked;
        }
        let id = NodeId {
            level: 0,
            index: self.next_block,
        };
        if id.last() > extent.count {
            return Progress::Idle;
        }
        let job = match records(tree, id.first()..id.last(), extent.complete) {
            Ok(Some(records)) => Job::start(tree, records, Some(id)),
            // A record is still being written. Its writer calls this function again once the record
            // is complete.
            Ok(None) => return Progress::Idle,
            Err(corruption) => Err(corruption),
        };
        self.next_block += 1; // MERGE-3
        if let Ok(job) = job {
            self.advance(tree, source, job, u32::MAX);
        }
        Progress::Worked
    }

    /// Merges everything over a log of this extent, and at last builds one node over all records,
    /// without summary nodes in between.
    pub(crate) fn finish(&mut self, tree: &Tree, source: Source<'_>, extent: Extent) {
        while self.grow(tree, source, extent, u32::MAX) == Progress::Worked {}
        let Extent { count, complete } = extent;
        let blocks = count / BLOCK;
        if self.summarized >= count || blocks * BLOCK == count && NodeId::one_covers(blocks) {
            return;
        }
        let mut children = tree.children(blocks);
        let Ok(Some(tail)) = records(tree, blocks * BLOCK..count, complete) else {
            return;
        };
        children.extend(tail);
        self.start_summary(tree, children, count);
        while self.grow(tree, source, extent, u32::MAX) == Progress::Worked {}
    }

    /// Begins a summary node over all complete blocks if one is due (MERGE-4).
    fn summarize(&mut self, tree: &Tree) -> Progress {
        let (blocks, summarized) = (self.next_block, self.summarized / BLOCK);
        let is_due = blocks >= 3
            && blocks.saturating_sub(summarized) > summarized / 8
            && blocks.is_multiple_of(NodeId::blocks_below(summarized / 8))
            && blocks * BLOCK <= SUMMARY_RECORDS_MAX
            && self.summarized.is_multiple_of(BLOCK)
            && !NodeId::one_covers(blocks);
        if !is_due {
            return Progress::Idle;
        }
        self.start_summary(tree, tree.children(blocks), blocks * BLOCK);
        Progress::Worked
    }

    /// Begins a summary node, unless a child is missing or its head is damaged (MERGE-1).
    fn start_summary(&mut self, tree: &Tree, children: Vec<Child>, covered: u32) {
        self.summarized = covered;
        self.job = Job::start(tree, children, None).ok();
    }

    /// Takes one step of a merge. Publishes the node that is made, and begins its parent if all
    /// children of the parent are there.
    fn advance(&mut self, tree: &Tree, source: Source<'_>, mut job: Box<Job>, budget: u32) {
        match job.advance(tree, source, budget) {
            Ok(Progress::Worked) => return self.job = Some(job),
            Ok(Progress::Idle) => {}
            Err(_) => return, // MERGE-1
        }
        let (target, records) = (job.target, job.out.cover.records);
        let coverage_node = job.out.finish();
        let Some(id) = target else {
            return tree.publish_summary(SummaryNode {
                coverage_node,
                covered: low(records),
            });
        };
        tree.publish_node(id, coverage_node);
        if let Some(parent) = id.completes()
            && parent.children().all(|child| tree.node(child).is_some())
        {
            self.job = Job::start(
                tree,
                parent.children().map(Child::Node).collect(),
                Some(parent),
            )
            .ok();
        }
    }
}

/// The verified records of a range. `None` if one of them is still being written, which only those
/// at or after `complete` may be.
fn records(tree: &Tree, range: Range<u32>, complete: u32) -> Checked<Option<Vec<Child>>> {
    let mut records = Vec::with_capacity(range.len());
    for index in range {
        let Some(record) = tree.log.record(index, complete)? else {
            return Ok(None);
        };
        records.push(Child::Record(record));
    }
    Ok(Some(records))
}
