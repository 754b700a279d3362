//! The merger: makes nodes over blocks of records, and merges nodes into their parents and into
//! summary nodes.
//!
//! ```text
//!   older   ----aaaa----cccc--      a node, or a record: a piece from its start to its end
//!   newer   --bbbbb-----------
//!   parent  --bbbbba----cccc--      piece by piece the larger sequence number; equal neighbours become one
//! ```
//! * MERGE-1: a merge computes a digest over the pieces of each child as it reads them, and compares
//!   it with the digest in the child's verified head before it publishes the parent. A damaged child
//!   therefore gets no parent, and readers use its other descendants (TREE-1).
//! * MERGE-2: one step reads at most `STEP_PIECES` pieces, or makes a node over one block.
//! * MERGE-3: a block with a damaged record, or in which the comparator panicked, is skipped and not
//!   tried again.
//! * MERGE-4: a summary node is built only when a ninth of the records is new, and only up to a
//!   number of records, so that summary nodes stay small beside the other nodes; and once by
//!   `finish`. It ends where a large node ends, so that few nodes cover the records behind it.
//! * MERGE-5: every record is verified. Keys are read only where prefixes are equal, and are
//!   verified then.
//! * MERGE-6: the prefixes of a node leave out as many bytes as those of the child that leaves out
//!   fewest. Prefixes of other children get bytes of the common prefix back.
//!
//! Who may call what: a lock of the index guards its `Merger`. Readers never use it.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::ops::Range;

use crate::integrity::index_checks::Cover;
use crate::key::SequenceNumber;
use crate::tombstone::common_prefix::Lift;
use crate::tombstone::counter::Extent;
use crate::tombstone::log::{Log, NOBODY};
use crate::tombstone::node::{Builder, Head, Piece};
use crate::tombstone::segments::{damage, high, low, pair};
use crate::tombstone::span::{Checked, Source};
use crate::tombstone::tree::{
    BLOCK, Child, NodeId, Pieces, SUMMARY_RECORDS_MAX, SummaryNode, Tree,
};

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
    pub(crate) next_block: u32,
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
pub(crate) fn records(
    tree: &Tree,
    range: Range<u32>,
    complete: u32,
) -> Checked<Option<Vec<Child>>> {
    let mut records = Vec::with_capacity(range.len());
    for index in range {
        let Some(record) = tree.log.record(index, complete)? else {
            return Ok(None);
        };
        records.push(Child::Record(record));
    }
    Ok(Some(records))
}
