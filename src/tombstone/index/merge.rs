//! The merger: paints nodes over blocks of records, and merges nodes into their parents and into summary nodes.
//!
//! ```text
//!   older   ----aaaa----cccc--
//!   newer   --bbbbb-----------
//!   parent  --bbbbba----cccc--      piece by piece the larger sequence number; equal neighbours become one
//! ```
//! * MERGE-1: a merge computes a digest over the pieces of each child as it reads them, and compares it with the
//!   digest in the child's verified head before it publishes the parent. A damaged child therefore gets no parent,
//!   and readers use its other descendants (TREE-1).
//! * MERGE-2: one step reads at most `STEP_PIECES` pieces, or paints one block.
//! * MERGE-3: a block with a damaged record is skipped and not tried again.
//! * MERGE-4: a summary node is built only when a ninth of the records is new, and only up to a number of records, so
//!   that summary nodes stay small beside the other nodes; and once by `finish`.
//!
//! Who may call what: a lock of the index guards its `Merger`. Readers never use it.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::ops::Range;

use crate::error::Corruption;
use crate::key::{KeyComparator, SequenceNumber};
use crate::tombstone::index::checks::{Cover, Extent, damage, high, low, pair};
use crate::tombstone::index::common_prefix::{CheckedPrefix, Lift};
use crate::tombstone::index::log::{End, Log, Record, boundary, end_of};
use crate::tombstone::index::node::{Builder, CoverageNode, Head, NOBODY, Piece, SequenceSpan};
use crate::tombstone::index::tree::{BLOCK, NodeId, OrderedTree, SUMMARY_RECORDS_MAX, SummaryNode, Tree};

/// Most pieces that one step reads.
pub(crate) const STEP_PIECES: u32 = 256;

type Checked<T> = std::result::Result<T, Corruption>;

/// Whether a step found work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Worked,
    Idle,
}

/// Where a child of a merge is kept.
#[derive(Debug)]
enum Source {
    Node(NodeId),
    SummaryNode,
    Own(Box<CoverageNode>, u64),
}

impl Source {
    fn coverage_node<'a>(&'a self, tree: &'a Tree) -> Checked<(&'a CoverageNode, u64)> {
        let found = match self {
            Source::Node(id) => tree.node(*id).map(|coverage_node| (coverage_node, id.cover())),
            Source::SummaryNode => {
                tree.summary().map(|summary| (&summary.coverage_node, pair(0, summary.covered)))
            }
            Source::Own(coverage_node, cover) => Some((&**coverage_node, *cover)),
        };
        found.ok_or_else(|| damage(0, 0, 0))
    }
}

/// Where the result of a merge is published.
#[derive(Debug, Clone, Copy)]
enum Target {
    Node(NodeId),
    SummaryNode,
}

/// Which of two children that both cover a key has the newer tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newest {
    /// The later child, because the sequence numbers of the children do not overlap.
    Later,
    /// The one with the larger sequence number.
    BySequence,
}

/// A child of a running merge that still has pieces to read.
#[derive(Debug)]
struct Side {
    source: usize,
    /// Position of the next piece; `refs` are its name and painter. The prefix where it begins is in `Job::nexts`.
    at: u32,
    refs: u64,
    /// Digest over the stored pieces up to and including the next one.
    digest: u64,
    head: Head,
    /// Turns prefixes of the child into prefixes of the result, which may leave out fewer bytes.
    lift: Lift,
}

/// The painter of one child at the current key, with its rank.
#[derive(Debug, Clone, Copy)]
struct Paint {
    /// The rank of the painter: the largest one wins, 0 if no tombstone covers the key.
    standing: u128,
    painter: u32,
}

impl Paint {
    const NONE: Paint = Paint { standing: 0, painter: NOBODY };

    /// The paint of record `painter` in child `source`. Among equal sequence numbers the later child wins.
    #[inline(always)]
    fn new(log: &Log, newest: Newest, source: usize, painter: u32) -> Checked<Paint> {
        if painter == NOBODY {
            return Ok(Paint::NONE);
        }
        let sequence = match newest {
            Newest::Later => 0,
            Newest::BySequence => log.named(painter)?.sequence,
        };
        Ok(Paint { standing: u128::from(sequence) << 64 | (source as u128 + 1), painter })
    }

    #[inline(always)]
    fn or(self, other: Paint) -> Paint {
        if other.standing > self.standing { other } else { self }
    }
}

/// A merge of nodes, done in steps.
#[derive(Debug)]
struct Job {
    sources: Vec<Source>,
    /// The children that have pieces left, oldest first; `nexts` holds the prefix where the next piece of each
    /// begins.
    sides: Vec<Side>,
    nexts: Vec<u64>,
    /// By source.
    paints: Vec<Paint>,
    newest: Newest,
    out: Builder,
    cover: u64,
    span: SequenceSpan,
    target: Target,
}

impl Job {
    /// Begins a merge of `sources`: at most 64 of them, over adjacent runs of records, oldest first.
    fn start(tree: &Tree, sources: Vec<Source>, target: Target) -> Checked<Job> {
        let mut sides: Vec<Side> = Vec::with_capacity(sources.len());
        let mut nexts = Vec::with_capacity(sources.len());
        let (mut first, mut last, mut pieces) = (None, 0, 0);
        let mut newest = Newest::Later;
        for (source, from) in sources.iter().enumerate() {
            let (coverage_node, cover) = from.coverage_node(tree)?;
            let head = coverage_node.head(tree.checks, cover)?;
            if first.is_some() && last != high(cover) || source >= 64 {
                return Err(damage(u64::from(last), 0, cover));
            }
            if sides.last().is_some_and(|older| older.head.bounds.max > head.bounds.min) {
                newest = Newest::BySequence;
            }
            first = first.or(Some(high(cover)));
            last = low(cover);
            pieces += usize::try_from(head.len).unwrap_or(0);
            let (prefix, refs) = coverage_node.stored(0).ok_or_else(|| damage(0, 0, 0))?;
            nexts.push(prefix);
            let digest = tree.checks.digest(0, prefix, refs);
            sides.push(Side { source, at: 0, refs, digest, head, lift: Lift::NONE });
        }
        let skip = sides.iter().map(|side| side.head.bounds.skip).min().unwrap_or(0);
        let CheckedPrefix { common_prefix, checks } = tree.log.common_prefix();
        for (side, next) in sides.iter_mut().zip(&mut nexts) {
            side.lift = common_prefix.lift(checks, side.head.bounds.skip, skip)?;
            *next = side.lift.apply(*next);
        }
        let spans = sides.iter().map(|side| side.head.bounds.span());
        let (Some(first), Some(span)) = (first, spans.reduce(SequenceSpan::join)) else {
            return Err(damage(0, 0, 0));
        };
        let cover = pair(first, last);
        let out = Builder::new(tree.checks, Cover { records: cover, skip }, pieces);
        let paints = vec![Paint::NONE; sources.len()];
        Ok(Job { sources, sides, nexts, paints, newest, out, cover, span, target })
    }

    /// Merges up to `budget` pieces, or a few more if several begin at one key. `Idle` if none are left.
    fn advance(&mut self, tree: &Tree, comparator: &KeyComparator, budget: u32) -> Checked<Progress> {
        let sources = std::mem::take(&mut self.sources);
        let nodes: Checked<Vec<&CoverageNode>> =
            sources.iter().map(|source| Ok(source.coverage_node(tree)?.0)).collect();
        let nodes = nodes?;
        let mut budget = budget;
        while budget > 0 {
            let Some(lead) = Lead::of(&self.nexts) else { return Ok(Progress::Idle) };
            let read = if lead.next == lead.prefix {
                self.enter_together(tree, comparator, lead, &nodes)?
            } else {
                self.enter_run(tree, lead, budget, &nodes)?
            };
            budget = budget.saturating_sub(read);
        }
        self.sources = sources;
        Ok(Progress::Worked)
    }

    /// Merges pieces of the leading child while its next key is the smallest. Returns how many.
    #[inline(always)]
    fn enter_run(&mut self, tree: &Tree, lead: Lead, budget: u32, nodes: &[&CoverageNode]) -> Checked<u32> {
        let Job { sides, nexts, paints, newest, out, .. } = self;
        let Some(side) = sides.get_mut(lead.at) else { return Err(damage(0, 0, 0)) };
        let (Some(own), Some(node)) = (paints.get_mut(side.source), nodes.get(side.source)) else {
            return Err(damage(0, 0, 0));
        };
        *own = Paint::NONE;
        let others = paints.iter().copied().fold(Paint::NONE, Paint::or);
        let (mut prefix, mut read) = (lead.prefix, 0);
        let (mut refs, mut digest) = (side.refs, side.digest);
        let (paint, over) = loop {
            let paint = Paint::new(&tree.log, *newest, side.source, low(refs))?;
            out.push(Piece { prefix, name: high(refs), painter: others.or(paint).painter });
            read += 1;
            match node.stored(side.at + read) {
                Some((stored, next)) if u64::from(side.at + read) < side.head.len => {
                    digest = tree.checks.digest(digest, stored, next);
                    (prefix, refs) = (side.lift.apply(stored), next);
                }
                _ => break (paint, true),
            }
            if prefix >= lead.next || read >= budget {
                break (paint, false);
            }
        };
        (side.at, side.refs, side.digest) = (side.at + read, refs, digest);
        if let Some(own) = paints.get_mut(side.source) {
            *own = paint;
        }
        match nexts.get_mut(lead.at) {
            Some(next) if !over => *next = prefix,
            _ => self.leave(lead.at)?,
        }
        Ok(read)
    }

    /// Merges the pieces of all children whose next key is the smallest. Returns how many.
    #[cold]
    #[inline(never)]
    fn enter_together(
        &mut self,
        tree: &Tree,
        comparator: &KeyComparator,
        lead: Lead,
        nodes: &[&CoverageNode],
    ) -> Checked<u32> {
        let mut same = self.ties(&tree.log, comparator, lead)?;
        let read = same.count_ones();
        let name = self.sides.get(same.trailing_zeros() as usize).map_or(0, |side| high(side.refs));
        // From the last child to the first, because removing a child moves those after it.
        while same != 0 {
            let at = 63 - same.leading_zeros() as usize;
            same &= !(1 << at);
            let Some(side) = self.sides.get_mut(at) else { return Err(damage(0, 0, 0)) };
            let (source, painter) = (side.source, low(side.refs));
            side.at += 1;
            match nodes.get(source).and_then(|node| node.stored(side.at)) {
                Some((stored, refs)) if u64::from(side.at) < side.head.len => {
                    side.digest = tree.checks.digest(side.digest, stored, refs);
                    side.refs = refs;
                    let prefix = side.lift.apply(stored);
                    self.nexts.iter_mut().skip(at).take(1).for_each(|next| *next = prefix);
                }
                _ => self.leave(at)?,
            }
            let paint = Paint::new(&tree.log, self.newest, source, painter)?;
            self.paints.iter_mut().skip(source).take(1).for_each(|own| *own = paint);
        }
        let winner = self.paints.iter().copied().fold(Paint::NONE, Paint::or);
        self.out.push(Piece { prefix: lead.prefix, name, painter: winner.painter });
        Ok(read)
    }

    /// Among the children with the smallest prefix, those with the smallest key, as one bit per child.
    fn ties(&self, log: &Log, comparator: &KeyComparator, lead: Lead) -> Checked<u64> {
        let mut first: u64 = 0;
        for (other, side) in self.sides.iter().enumerate().filter(|(at, _)| self.nexts[*at] == lead.prefix) {
            let known = self.sides.get(first.trailing_zeros() as usize);
            let order = match known {
                Some(known) => log.tie(comparator, high(side.refs), high(known.refs))?,
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
        if side.digest == side.head.digest && u64::from(side.at) == side.head.len {
            return Ok(());
        }
        Err(damage(u64::from(side.at), side.head.digest, side.digest))
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
    /// Written without branches that depend on prefixes, because the processor cannot predict which child is next.
    #[inline(always)]
    fn of(nexts: &[u64]) -> Option<Lead> {
        let (&first, others) = nexts.split_first()?;
        let mut lead = Lead { at: 0, prefix: first, next: u64::MAX };
        for (at, &prefix) in (1..).zip(others) {
            let (before, smaller, larger) =
                (prefix < lead.prefix, prefix.min(lead.prefix), prefix.max(lead.prefix));
            lead.at = if before { at } else { lead.at };
            lead.next = lead.next.min(larger);
            lead.prefix = smaller;
        }
        Some(lead)
    }
}

/// Paints and merges coverage nodes.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    /// Blocks before this one are painted or skipped.
    next_block: u32,
    /// Number of records that the newest summary node covers, even if building it failed, so that the attempt is not
    /// repeated.
    summarized: u32,
    job: Option<Box<Job>>,
}

impl Merger {
    /// Takes one step (MERGE-2) over a log of this extent.
    pub(crate) fn step(&mut self, index: OrderedTree<'_>, extent: Extent, budget: u32) -> Progress {
        match self.grow(index, extent, budget) {
            Progress::Worked => Progress::Worked,
            Progress::Idle => self.summary(index.tree),
        }
    }

    /// Takes one step of the running merge, or paints the next node.
    fn grow(&mut self, index: OrderedTree<'_>, extent: Extent, budget: u32) -> Progress {
        if let Some(mut job) = self.job.take() {
            match job.advance(index.tree, index.comparator, budget) {
                Ok(Progress::Worked) => self.job = Some(job),
                Ok(Progress::Idle) => self.complete(index.tree, *job),
                Err(_) => {} // MERGE-1
            }
            return Progress::Worked;
        }
        self.paint_next(index, extent)
    }

    /// Paints and publishes the next node over records, if all of them are complete.
    fn paint_next(&mut self, index: OrderedTree<'_>, extent: Extent) -> Progress {
        let OrderedTree { tree, comparator } = index;
        let id = NodeId { level: 0, index: self.next_block };
        if id.last() > extent.count {
            return Progress::Idle;
        }
        match paint(tree, comparator, id.first()..id.last(), extent.complete) {
            Ok(Some(coverage_node)) => {
                self.next_block += 1;
                self.publish(tree, id, coverage_node);
            }
            // A record is still being written. Its writer calls this function again once the record is complete.
            Ok(None) => return Progress::Idle,
            Err(_) => self.next_block += 1, // MERGE-3
        }
        Progress::Worked
    }

    /// Merges everything over a log of this extent, and at last builds one node over all records, without summary
    /// nodes in between.
    pub(crate) fn finish(&mut self, index: OrderedTree<'_>, extent: Extent) {
        let OrderedTree { tree, comparator } = index;
        while self.grow(index, extent, u32::MAX) == Progress::Worked {}
        let count = extent.count;
        let blocks = count / BLOCK;
        if self.summarized >= count || blocks * BLOCK == count && NodeId::one_covers(blocks) {
            return;
        }
        let tail = blocks * BLOCK;
        let mut sources = sources(tree, blocks);
        match paint(tree, comparator, tail..count, extent.complete) {
            Ok(Some(coverage_node)) => sources.push(Source::Own(Box::new(coverage_node), pair(tail, count))),
            Ok(None) if tail == count => {}
            Ok(None) | Err(_) => return,
        }
        self.start_summary(tree, sources, count);
        while self.grow(index, extent, u32::MAX) == Progress::Worked {}
    }

    /// Begins a summary node over all complete blocks if one is due (MERGE-4).
    fn summary(&mut self, tree: &Tree) -> Progress {
        let (blocks, summarized) = (self.next_block, self.summarized / BLOCK);
        let due = blocks >= 3
            && blocks.saturating_sub(summarized) > summarized / 8
            && blocks * BLOCK <= SUMMARY_RECORDS_MAX
            && self.summarized.is_multiple_of(BLOCK)
            && !NodeId::one_covers(blocks);
        if !due {
            return Progress::Idle;
        }
        let sources = sources(tree, blocks);
        self.start_summary(tree, sources, blocks * BLOCK);
        Progress::Worked
    }

    fn start_summary(&mut self, tree: &Tree, mut sources: Vec<Source>, covered: u32) {
        self.summarized = covered;
        match sources.pop() {
            Some(Source::Own(coverage_node, _)) if sources.is_empty() => {
                tree.publish_summary(SummaryNode { coverage_node: *coverage_node, covered });
            }
            Some(newest) if !sources.is_empty() => {
                sources.push(newest);
                self.start(tree, sources, Target::SummaryNode);
            }
            _ => {}
        }
    }

    /// Begins a merge, unless a child is missing or its head is damaged (MERGE-1).
    fn start(&mut self, tree: &Tree, sources: Vec<Source>, target: Target) {
        self.job = Job::start(tree, sources, target).ok().map(Box::new);
    }

    fn complete(&mut self, tree: &Tree, job: Job) {
        let coverage_node = job.out.finish(job.span);
        match job.target {
            Target::Node(id) => self.publish(tree, id, coverage_node),
            Target::SummaryNode => {
                tree.publish_summary(SummaryNode { coverage_node, covered: low(job.cover) })
            }
        }
    }

    /// Publishes a node and begins its parent if all children of the parent are there.
    fn publish(&mut self, tree: &Tree, id: NodeId, coverage_node: CoverageNode) {
        tree.publish_node(id, coverage_node);
        if let Some(parent) = id.completes()
            && parent.children().all(|child| tree.node(child).is_some())
        {
            self.start(tree, parent.children().map(Source::Node).collect(), Target::Node(parent));
        }
    }
}

/// The fewest nodes that cover the first `blocks` blocks, oldest first. The newest summary node comes first if it
/// ends at a block.
fn sources(tree: &Tree, blocks: u32) -> Vec<Source> {
    let summarized = tree.summary().map_or(0, |summary| summary.covered);
    let usable = summarized > 0 && summarized.is_multiple_of(BLOCK) && summarized / BLOCK <= blocks;
    let from = if usable { summarized / BLOCK } else { 0 };
    let mut sources: Vec<Source> = NodeId::decompose(from, blocks).map(Source::Node).collect();
    sources.extend(usable.then_some(Source::SummaryNode));
    sources.reverse();
    sources
}

// Paints a coverage node over log records: which record is the newest one that covers each key.
//
// ```text
//   records      b----------f 5           ends in order   b5  d9  f5  h9
//                     d----------h 9      painters        5   9   9   none
// ```
// * PAINT-1: every record is verified. Keys are read only where prefixes are equal, and are verified then.
// * PAINT-2: the prefixes of a node leave out as many bytes as those of the record that leaves out fewest. Prefixes
//   of other records get bytes of the common prefix back.
//
// Who may call what: pure functions over a log.

/// A node over records `first..last`, at most 64 of them. `None` if the range is empty, or if one of the records is
/// still being written, which only those at or after `complete` may be.
pub(crate) fn paint(
    tree: &Tree,
    comparator: &KeyComparator,
    records: Range<u32>,
    complete: u32,
) -> Checked<Option<CoverageNode>> {
    let cover = pair(records.start, records.end);
    let Some(canvas) = Canvas::read(tree, comparator, records, complete)? else { return Ok(None) };
    Ok(Some(canvas.paint(Builder::new(
        tree.checks,
        Cover { records: cover, skip: canvas.skip },
        canvas.boundaries.len(),
    ))))
}

/// A start or end of a record. Boundaries with equal prefixes are ordered by rank.
#[derive(Debug, Clone, Copy, Default)]
struct Boundary {
    prefix: u64,
    rank: u32,
    name: u32,
}

/// Verified records, and their starts and ends in key order.
#[derive(Debug)]
struct Canvas {
    first: u32,
    sequences: Vec<SequenceNumber>,
    boundaries: Vec<Boundary>,
    /// How many bytes the prefixes of the boundaries leave out.
    skip: u32,
    span: SequenceSpan,
}

impl Canvas {
    /// Reads and verifies records. `None` if `range` is empty or one of them is still being written.
    fn read(
        tree: &Tree,
        comparator: &KeyComparator,
        records: Range<u32>,
        complete: u32,
    ) -> Checked<Option<Canvas>> {
        let (first, len) = (records.start, records.len());
        if len > 64 {
            return Err(damage(u64::from(first), 64, len as u64));
        }
        let mut known = Vec::with_capacity(len);
        for index in records {
            match tree.log.record(index, complete)? {
                Some(record) => known.push(record),
                None => return Ok(None),
            }
        }
        let sequences: Vec<SequenceNumber> = known.iter().map(|record| record.sequence).collect();
        let spans = sequences.iter().map(|&sequence| SequenceSpan { min: sequence, max: sequence });
        let Some(span) = spans.reduce(SequenceSpan::join) else { return Ok(None) };
        let skip = known.iter().map(Record::skip).min().unwrap_or(0);
        let CheckedPrefix { common_prefix, checks } = tree.log.common_prefix();
        let mut boundaries = Vec::with_capacity(2 * len);
        for (index, record) in (first..).zip(&known) {
            let lift = common_prefix.lift(checks, record.skip(), skip)?;
            for end in [End::Start, End::Stop] {
                boundaries.push(Boundary {
                    prefix: lift.apply(record.prefix(end)),
                    rank: 0,
                    name: boundary(index, end),
                });
            }
        }
        boundaries.sort_unstable_by_key(|boundary| boundary.prefix);
        for same in
            boundaries.chunk_by_mut(|left, right| left.prefix == right.prefix).filter(|same| same.len() > 1)
        {
            rank(&tree.log, comparator, same)?;
        }
        Ok(Some(Canvas { first, sequences, boundaries, skip, span }))
    }

    /// Sweeps over the boundaries and emits a piece wherever the newest covering record changes.
    fn paint(&self, mut out: Builder) -> CoverageNode {
        // A bit a record.
        let mut active = 0u64;
        for same in
            self.boundaries.chunk_by(|left, right| (left.prefix, left.rank) == (right.prefix, right.rank))
        {
            for boundary in same {
                active ^= 1 << ((boundary.name >> 1) - self.first);
            }
            let (mut painter, mut newest, mut left) = (NOBODY, 0, active);
            while left != 0 {
                let bit = left.trailing_zeros();
                let sequence = self.sequences.get(bit as usize).copied().unwrap_or(0);
                // Among equal sequence numbers the later record wins.
                if painter == NOBODY || sequence >= newest {
                    (painter, newest) = (self.first + bit, sequence);
                }
                left &= left - 1;
            }
            if let Some(boundary) = same.first() {
                out.push(Piece { prefix: boundary.prefix, name: boundary.name, painter });
            }
        }
        out.finish(self.span)
    }
}

/// Sorts boundaries with equal prefixes by their verified keys, and ranks them.
#[cold]
fn rank(log: &Log, comparator: &KeyComparator, same: &mut [Boundary]) -> Checked<()> {
    let mut keys = Vec::new();
    let mut known = Vec::with_capacity(same.len());
    for boundary in same.iter() {
        let (from, record) = (keys.len(), log.named(boundary.name >> 1)?);
        log.with_key(&record, end_of(boundary.name), |key| keys.extend_from_slice(key))?;
        known.push((from..keys.len(), *boundary));
    }
    let key = |range: &Range<usize>| keys.get(range.clone()).unwrap_or_default();
    known.sort_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)));
    let runs = known.chunk_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)).is_eq());
    let ranked = runs
        .zip(0u32..)
        .flat_map(|(run, rank)| run.iter().map(move |(_, boundary)| Boundary { rank, ..*boundary }));
    same.iter_mut().zip(ranked).for_each(|(boundary, ranked)| *boundary = ranked);
    Ok(())
}

/// Tests of the merger: what `finish` builds, and what a merge begins with.
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use crate::integrity::digest::Secret;
    use crate::key::BYTEWISE;
    use crate::tombstone::index::checks::Checks;
    use crate::tombstone::index::checks::Tally;
    use crate::tombstone::index::common_prefix::{CommonPrefix, KeyRange};
    use crate::tombstone::index::merge::*;

    const CHECKS: Checks = Checks::new(Secret::from_seed(1));
    const RANGE: KeyRange<'_> = KeyRange { start: b"a", end: b"b" };

    /// An index of tombstones over one range.
    struct Parts {
        tree: Tree,
        tally: Tally,
        merger: Merger,
    }

    impl Parts {
        fn new() -> Self {
            let tree = Tree::new(CHECKS, CommonPrefix::new(CHECKS, &BYTEWISE, RANGE));
            Parts { tree, tally: Log::tally(CHECKS), merger: Merger::default() }
        }

        fn push(&self, len: u32) {
            for sequence in 1..=u64::from(len) {
                self.tree.log.push(&BYTEWISE, &self.tally, RANGE, sequence).unwrap();
            }
        }

        fn merge_all(&mut self) {
            let index = OrderedTree { tree: &self.tree, comparator: &BYTEWISE };
            let extent = self.tally.extent(CHECKS).unwrap();
            while self.merger.step(index, extent, STEP_PIECES) == Progress::Worked {}
        }

        fn finish(&mut self) {
            let index = OrderedTree { tree: &self.tree, comparator: &BYTEWISE };
            self.merger.finish(index, self.tally.extent(CHECKS).unwrap());
        }

        fn covered(&self) -> Option<u32> {
            self.tree.summary().map(|summary| summary.covered)
        }
    }

    /// One node over all records, and below it nodes of every level.
    #[test]
    fn finish_builds_one_node_over_all() {
        for len in (1..=140).step_by(if cfg!(miri) { 23 } else { 1 }).chain([512, 515]) {
            let mut parts = Parts::new();
            parts.push(len);
            parts.finish();
            let blocks = len / BLOCK;
            let one = blocks * BLOCK == len && [1, 4, 16, 64].contains(&blocks);
            assert_eq!(parts.covered(), (!one).then_some(len));
            for index in 0..=blocks {
                for level in 0..4 {
                    let whole = (index + 1) << (2 * level) <= blocks;
                    assert_eq!(parts.tree.node(NodeId { level, index }).is_some(), whole, "{index} of {len}");
                }
            }
            let bytes = parts.tree.log.allocated_bytes();
            parts.finish();
            assert_eq!((parts.covered(), parts.tree.log.allocated_bytes()), ((!one).then_some(len), bytes));
        }
    }

    /// A record that is being written is covered by no node.
    #[test]
    fn finish_waits_for_every_record() {
        for len in [3, 2 * BLOCK, 2 * BLOCK + 3] {
            let mut parts = Parts::new();
            parts.push(len);
            let (_, one) = parts.tally.begin(CHECKS, |count| Ok((count, count + 1))).unwrap();
            parts.finish();
            assert_eq!(parts.covered(), None);
            assert_eq!(parts.tree.node(NodeId { level: 0, index: 0 }).is_some(), len >= BLOCK);
            parts.tally.end(CHECKS, one).unwrap();
        }
    }

    /// MERGE-4: above a number of records there are no new summary nodes, and one over all when it is finished.
    #[test]
    fn summary_nodes_end_with_many_records() {
        let mut parts = Parts::new();
        for _ in 0..if cfg!(miri) { 4 } else { 2400 } {
            parts.push(BLOCK);
            parts.merge_all();
        }
        let covered = parts.covered().unwrap();
        assert!(
            cfg!(miri) || (SUMMARY_RECORDS_MAX / 9 * 8..=SUMMARY_RECORDS_MAX).contains(&covered),
            "{covered}"
        );
        parts.finish();
        assert!(cfg!(miri) || parts.covered() == Some(2400 * BLOCK));
    }

    /// A summary node is built from the one before it and from what is new, unless that one covers more.
    #[test]
    fn a_summary_node_is_built_from_the_one_before() {
        let mut parts = Parts::new();
        assert!(sources(&parts.tree, 0).is_empty());
        for _ in 0..33 {
            parts.push(BLOCK);
            parts.merge_all();
        }
        assert_eq!(parts.covered(), Some(30 * BLOCK));
        let names = |blocks| {
            let name = |source: &Source| match source {
                Source::Node(NodeId { level, index }) => Some((*level, *index)),
                Source::SummaryNode => None,
                Source::Own(..) => panic!("not kept in the tree"),
            };
            sources(&parts.tree, blocks).iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(30), [None]);
        assert_eq!(names(33), [None, Some((0, 30)), Some((0, 31)), Some((0, 32))]);
        assert_eq!(names(29), [Some((2, 0)), Some((1, 4)), Some((1, 5)), Some((1, 6)), Some((0, 28))]);
        parts.push(3);
        parts.finish();
        assert_eq!(parts.covered(), Some(33 * BLOCK + 3));
        let sources = sources(&parts.tree, 33);
        assert!(matches!(sources[..], [Source::Node(NodeId { level: 2, index: 0 }), .., Source::Node(_)]));
    }

    /// What is merged is adjacent, and at most 64 nodes.
    #[test]
    fn a_merge_refuses_gaps_and_too_many() {
        let mut parts = Parts::new();
        parts.push(65 * BLOCK);
        parts.merge_all();
        let start = |blocks: &[u32]| {
            let sources = blocks.iter().map(|&index| Source::Node(NodeId { level: 0, index })).collect();
            Job::start(&parts.tree, sources, Target::SummaryNode).map(|job| job.cover)
        };
        assert_eq!(start(&[3, 4, 5]), Ok(pair(3 * BLOCK, 6 * BLOCK)));
        for refused in [&[3, 5][..], &[4, 3], &[3, 3], &[]] {
            assert!(start(refused).is_err(), "{refused:?}");
        }
        let all: Vec<u32> = (0..65).collect();
        assert_eq!(start(&all[1..]), Ok(pair(BLOCK, 65 * BLOCK)));
        assert!(start(&all).is_err());
    }
}
