//! Merges adjacent nodes, or records, of the index into one coverage node.
//!
//! ```text
//!   older   ----aaaa----cccc--      a node, or a record: a piece from its start to its end
//!   newer   --bbbbb-----------
//!   result  --bbbbba----cccc--      at each key the larger sequence number; equal neighbours join
//! ```
//! * MERGE-1: a merge computes a digest over the pieces of each child as it reads them, and
//!   compares it with the digest in the child's verified head before the result is published. A
//!   damaged child therefore gets no parent, and readers use its intact descendants (TREE-1).
//!
//! The result covers the records of all its children, and has the smallest and the largest of their
//! sequence numbers (COVERAGE-NODE-1). Its prefixes leave out as many bytes as those of the child
//! that leaves out fewest; prefixes of other children get bytes of the common prefix back. Keys are
//! read, and verified, only where prefixes are equal.
//!
//! A merge belongs to the one thread that has the lock of the index.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use crate::halves::{high, low, pair};
use crate::integrity::index_checks::Cover;
use crate::key::SequenceNumber;
use crate::tombstone::common_prefix::Lift;
use crate::tombstone::coverage_node::{Builder, Head, Piece};
use crate::tombstone::record_log::{NO_PAINTER, RecordLog};
use crate::tombstone::span::{Checked, Source, damage};
use crate::tombstone::tree::{Child, NodeId, Pieces, Tree};

/// Whether a step of merging found work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Worked,
    Idle,
}

/// A child of a running merge that still has pieces to read.
struct Side {
    child: usize,
    /// Whether the sequence numbers of the children overlap. If not, a later child has no tombstone
    /// that is older than one of an earlier child.
    overlaps: bool,
    /// Position of the next piece. The prefix where it begins is in `NodeMerge::nexts`.
    at: u32,
    /// Name and painter of the next piece.
    refs: u64,
    /// Digest over the stored pieces up to and including the next one.
    digest: u64,
    /// From the child's head: number of pieces.
    len: u64,
    /// From the child's head: the digest over all pieces.
    whole: u64,
    /// From the child's head: number of bytes that prefixes leave out.
    skip: u32,
    /// Converts prefixes of the child into prefixes of the result, which may leave out fewer bytes.
    lift: Lift,
}

impl Side {
    /// The rank of a piece: the sequence number of its painter, the child, the painter. Among equal
    /// sequence numbers the later child has the larger rank.
    #[inline(always)]
    fn rank(&self, log: &RecordLog, refs: u64) -> Checked<u128> {
        let sequence = match low(refs) {
            NO_PAINTER => return Ok(UNCOVERED),
            painter if self.overlaps => log.named(painter)?.sequence,
            _ => 0,
        };
        Ok(u128::from(sequence) << 64 | (self.child as u128 + 1) << 32 | u128::from(low(refs)))
    }
}

/// A merge of nodes and records, done in steps.
pub(crate) struct NodeMerge {
    children: Vec<Child>,
    /// The children that have pieces left, oldest first.
    sides: Vec<Side>,
    /// For each of `sides`, the prefix where its next piece begins.
    nexts: Vec<u64>,
    /// For each child, the rank of its piece at the current key. The piece with the largest rank is
    /// part of the result.
    ranks: Vec<u128>,
    pub(crate) out: Builder,
    /// The node of the tree that is built; `None` for a summary node.
    pub(crate) target: Option<NodeId>,
}

/// The rank of a piece without a painter. The low 32 bits of a rank are the painter.
const UNCOVERED: u128 = NO_PAINTER as u128;

const fn painter_of(rank: u128) -> u32 {
    (rank & 0xffff_ffff) as u32
}

impl NodeMerge {
    /// Begins a merge of at most 64 children over adjacent runs of records, oldest first. Reads the
    /// heads of the children.
    pub(crate) fn start(
        tree: &Tree,
        children: Vec<Child>,
        target: Option<NodeId>,
    ) -> Checked<Box<NodeMerge>> {
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
        Ok(Box::new(NodeMerge {
            children,
            sides,
            nexts,
            ranks: vec![UNCOVERED; len],
            out,
            target,
        }))
    }

    /// Merges up to `budget` pieces, or a few more if several begin at one key. Returns `Idle` if
    /// no pieces are left.
    pub(crate) fn advance(
        &mut self,
        tree: &Tree,
        source: Source<'_>,
        mut budget: u32,
    ) -> Checked<Progress> {
        let children = std::mem::take(&mut self.children);
        let pieces = children
            .iter()
            .map(|child| Ok(child.read(tree)?.0))
            .collect::<Checked<Vec<_>>>()?;
        // Between two calls the numbers of children were in memory, where a bit may flip.
        if self
            .sides
            .iter()
            .any(|side| side.child >= pieces.len().min(self.ranks.len()))
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

    /// Merges pieces of the leading child while its next prefix is the smallest. Returns their
    /// number.
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
        self.ranks[child] = UNCOVERED;
        let others = self.ranks.iter().copied().fold(UNCOVERED, u128::max);
        let (mut prefix, mut read) = (lead.prefix, 0);
        let (mut refs, mut digest) = (side.refs, side.digest);
        let (rank, is_over) = loop {
            let rank = side.rank(&tree.log, refs)?;
            self.out.push(Piece {
                prefix,
                name: high(refs),
                painter: painter_of(others.max(rank)),
            });
            read += 1;
            match stored.stored(side.at + read) {
                Some((next, next_refs)) if u64::from(side.at + read) < side.len => {
                    digest = tree.checks.digest(digest, next, next_refs);
                    (prefix, refs) = (side.lift.apply(next), next_refs);
                }
                _ => break (rank, true),
            }
            if prefix >= lead.next || read >= budget {
                break (rank, false);
            }
        };
        (side.at, side.refs, side.digest) = (side.at + read, refs, digest);
        (self.ranks[child], self.nexts[lead.at]) = (rank, prefix);
        if is_over {
            self.leave(lead.at)?;
        }
        Ok(read)
    }

    /// Merges the pieces of all children whose next key is the smallest one. Returns their number.
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
            self.ranks[side.child] = side.rank(&tree.log, side.refs)?;
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
        let winner = self.ranks.iter().copied().fold(UNCOVERED, u128::max);
        self.out.push(Piece {
            prefix: lead.prefix,
            name,
            painter: painter_of(winner),
        });
        Ok(read)
    }

    /// The sides whose next key is the smallest, among those with the smallest prefix: one bit for
    /// each side.
    fn ties(&self, log: &RecordLog, source: Source<'_>, lead: Lead) -> Checked<u64> {
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

    /// Removes a child that has no pieces left, and verifies the digest over all its pieces
    /// (MERGE-1).
    fn leave(&mut self, at: usize) -> Checked<()> {
        self.nexts.remove(at);
        let side = self.sides.remove(at);
        if side.digest == side.whole && u64::from(side.at) == side.len {
            return Ok(());
        }
        Err(damage(u64::from(side.at), side.whole, side.digest))
    }
}

/// The child whose next piece begins first: its place in `sides`, the prefix where the piece
/// begins, and the smallest prefix among the other children.
#[derive(Debug, Clone, Copy)]
struct Lead {
    at: usize,
    prefix: u64,
    next: u64,
}

impl Lead {
    /// The lead among these prefixes. No branch depends on a prefix, because the processor cannot
    /// predict which child is next.
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
