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

use crate::comparator::KeyComparator;
use crate::error::Corruption;
use crate::tombstone::index::build::paint;
use crate::tombstone::index::checks::{Cover, damage, high, low, pair};
use crate::tombstone::index::common_prefix::{CheckedPrefix, Lift};
use crate::tombstone::index::counter::Extent;
use crate::tombstone::index::log::Log;
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

#[cfg(test)]
mod tests;
