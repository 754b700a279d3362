//! Coverage nodes. A node tells for every key which tombstone of a run of log records is the newest one that covers
//! it.
//!
//! ```text
//!   sequence
//!     9            #####                  pieces     b      e      h      m
//!     5      ############                 painter    t5     t9     none   t2 ...
//!     2                      ======
//!            b     e    h    m    p       a piece reaches from its own boundary to the next one
//! ```
//! Pieces are stored in blocks of `RUN`, each with three columns: the prefix of the boundary; the boundary's name
//! (record and end) with the painter's record; and the checks, two per word. Fences hold the last prefix of each
//! block but the last, and of each group of `RUN` blocks, so that a search touches few cache lines and one block.
//! Padding with the largest prefix follows the last piece.
//!
//! * COVERAGE-NODE-1: boundaries ascend strictly. A node has at least two pieces, and the last one has no painter.
//! * COVERAGE-NODE-2: min and max are those of the sequence numbers of all records that the node covers, even of
//!   those that no piece names.
//! * COVERAGE-NODE-3: an answer is proved by the check of the piece that contains the key. This check covers node,
//!   position, and where the next piece begins. Fences, bounds and other prefixes, which led the search there, are
//!   hints.
//! * COVERAGE-NODE-4: all prefixes of a node leave out one number of bytes of the common prefix. The head stores this
//!   number, and both its check and that of each piece cover it, so an answer needs no check of the head.
//! * COVERAGE-NODE-5: a node never changes once it is built. A reader that finds it damaged uses the nodes or records
//!   that it was built from.
//!
//! Who may call what: a `Builder` belongs to one thread; any thread may read a `CoverageNode`.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use crate::error::Corruption;
use crate::key::{KeyComparator, SequenceNumber};
use crate::prefetch::prefetch_read;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::checks::{Checks, Cover, SKIP_SHIFT, damage, high, low, pair};
use crate::tombstone::index::common_prefix::Probe;
use crate::tombstone::index::log::Log;

/// The painter of a piece that no tombstone covers.
pub(crate) const NOBODY: u32 = u32::MAX;
const HEAD_WORDS: usize = 7;
/// Pieces per block, and inner fences per outer one: two cache lines of prefixes.
const RUN: usize = 16;
const BLOCK_WORDS: usize = 2 * RUN + RUN / 2;

type Checked<T> = std::result::Result<T, Corruption>;

// ORDERING (whole file): relaxed; a node is published by the release store of the cell that holds it.
#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; a node is published by the release store of the cell that holds it.
    word.load(Ordering::Relaxed)
}

/// One piece: where it begins, and the record that is the newest one there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) prefix: u64,
    /// Name of the boundary where it begins.
    pub(crate) name: u32,
    pub(crate) painter: u32,
}

impl Piece {
    const NONE: Piece = Piece { prefix: 0, name: 0, painter: NOBODY };

    fn refs(self) -> u64 {
        pair(self.name, self.painter)
    }
}

/// The sequence numbers and prefixes for which a node can have an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) min: SequenceNumber,
    pub(crate) max: SequenceNumber,
    first_prefix: u64,
    last_prefix: u64,
    /// Number of bytes that all prefixes leave out.
    pub(crate) skip: u32,
}

impl Bounds {
    fn of([min, max, first_prefix, last_prefix, shape]: [u64; 5]) -> Bounds {
        Bounds { min, max, first_prefix, last_prefix, skip: high(shape) >> (SKIP_SHIFT - 32) }
    }

    /// The sequence numbers alone.
    pub(crate) fn span(&self) -> SequenceSpan {
        SequenceSpan { min: self.min, max: self.max }
    }

    /// Whether the node cannot improve the answer: the probe is outside its prefixes, or no sequence number is above
    /// `best` and visible at `snapshot`. Probe and node must leave out equally many bytes.
    #[inline(always)]
    pub(crate) fn exclude(&self, probe: &Probe<'_>, best: SequenceNumber, snapshot: SequenceNumber) -> bool {
        let prefix = probe.prefix;
        self.max <= best || self.min > snapshot || prefix < self.first_prefix || prefix > self.last_prefix
    }
}

/// The verified head of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) bounds: Bounds,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

/// Up to `RUN` pieces: their prefixes, names with painters, and checks.
#[derive(Debug)]
#[repr(align(64))]
struct Block([AtomicU64; BLOCK_WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Block>() == 5 * 64, "two lines of prefixes, two of names, one of checks");

impl Block {
    const PADDING: [u64; BLOCK_WORDS] = {
        let mut words = [0; BLOCK_WORDS];
        let mut at = 0;
        while at < RUN {
            words[at] = u64::MAX;
            at += 1;
        }
        words
    };

    #[inline(always)]
    fn prefix(&self, at: usize) -> u64 {
        load(&self.0[at % RUN])
    }

    #[inline(always)]
    fn refs(&self, at: usize) -> u64 {
        load(&self.0[RUN + at % RUN])
    }

    #[inline(always)]
    fn check(&self, at: usize) -> u32 {
        let both = load(&self.0[2 * RUN + at % RUN / 2]);
        if at.is_multiple_of(2) { low(both) } else { high(both) }
    }

    /// Number of its prefixes that are less than `prefix`.
    #[inline(always)]
    fn before(&self, prefix: u64) -> usize {
        self.0.first_chunk().map_or(0, |run| run_before(run, prefix))
    }
}

/// The newest record over each key.
#[derive(Debug)]
pub(crate) struct CoverageNode {
    head: [AtomicU64; HEAD_WORDS],
    blocks: Box<[Block]>,
    /// The outer fences, then the inner ones.
    fences: Box<[AtomicU64]>,
}

impl CoverageNode {
    pub(crate) fn allocated_bytes(&self) -> u64 {
        (size_of_val(&*self.blocks) + size_of_val(&*self.fences)) as u64
    }

    /// The most bytes that a node over so many records allocates: each has two boundaries.
    pub(crate) fn bytes_max(records: u64) -> u64 {
        let blocks = (2 * records).div_ceil(RUN as u64);
        let fences = blocks.saturating_sub(1);
        blocks * size_of::<Block>() as u64 + 8 * (fences + fences / RUN as u64)
    }

    /// Outer and inner fences.
    #[inline(always)]
    fn fences(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let inner = self.blocks.len().saturating_sub(1);
        self.fences.split_at_checked(inner / RUN).unwrap_or_default()
    }

    /// The stored prefix, and name with painter, of a piece. Not verified: a merge verifies the digest over all
    /// pieces.
    #[inline(always)]
    pub(crate) fn stored(&self, position: u32) -> Option<(u64, u64)> {
        let at = position as usize;
        self.blocks.get(at / RUN).map(|block| (block.prefix(at), block.refs(at)))
    }

    #[inline(always)]
    fn prefix(&self, at: usize) -> u64 {
        self.blocks.get(at / RUN).map_or(u64::MAX, |block| block.prefix(at))
    }

    /// Number of prefixes that are less than `prefix`: a hint.
    #[inline(always)]
    fn before(&self, prefix: u64) -> usize {
        let (outer, inner) = self.fences();
        let mut number = 0;
        if !inner.is_empty() {
            number =
                RUN * lower_bound(outer.len(), |at| outer.get(at).is_some_and(|fence| load(fence) < prefix));
            let inner = inner.get(number..).unwrap_or_default();
            number += match inner.first_chunk() {
                Some(run) => run_before(run, prefix),
                None => {
                    lower_bound(inner.len(), |at| inner.get(at).is_some_and(|fence| load(fence) < prefix))
                }
            };
        }
        let Some(block) = self.blocks.get(number) else { return 0 };
        // Prefetches the other lines of the block that the answer is in.
        for at in [RUN, RUN + RUN / 2, 2 * RUN] {
            prefetch_read(std::ptr::from_ref(&block.0[at]).cast());
        }
        number * RUN + block.before(prefix)
    }

    /// The verified piece at `position`, and the prefix where the next one begins.
    #[inline(always)]
    pub(crate) fn piece(&self, checks: Checks, cover: Cover, at: usize) -> Checked<(Piece, u64)> {
        let Some(block) = self.blocks.get(at / RUN) else { return Err(damage(at as u64, 0, 0)) };
        let (prefix, refs, next) = (block.prefix(at), block.refs(at), self.prefix(at + 1));
        let (expected, found) = (checks.piece(cover, at as u64, [prefix, next], refs), block.check(at));
        if found != expected {
            return Err(damage(at as u64, u64::from(expected), u64::from(found)));
        }
        Ok((Piece { prefix, name: high(refs), painter: low(refs) }, next))
    }

    /// The head, verified for a node that covers `cover`.
    #[inline(always)]
    pub(crate) fn head(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let words: [u64; 6] = std::array::from_fn(|word| load(&self.head[word]));
        let (expected, found) = (checks.head(cover, &words), load(&self.head[6]));
        if expected != found {
            return Err(damage(cover, expected, found));
        }
        let [bounds @ .., digest] = words;
        Ok(Head { bounds: Bounds::of(bounds), len: len_of(bounds[4]), digest })
    }

    /// The stored bounds: hints that are not verified.
    #[inline(always)]
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds::of(std::array::from_fn(|word| load(&self.head[word])))
    }

    /// The painter at the probe's key: the index of a record, or [`NOBODY`]. On an error this node must not be used.
    #[inline(always)]
    pub(crate) fn painter(
        &self,
        log: &Log,
        checks: Checks,
        records: u64,
        comparator: &KeyComparator,
        probe: &Probe<'_>,
    ) -> Checked<u32> {
        let cover = Cover { records, skip: probe.skip() };
        let mut reach = self.before(probe.prefix);
        if self.prefix(reach) == probe.prefix {
            reach = self.rank_among_ties(log, comparator, probe, reach)?;
        }
        // COVERAGE-NODE-3: verifies the piece that begins at or before the key, and where the next one begins.
        let Some(at) = reach.checked_sub(1) else {
            let (first, _) = self.piece(checks, cover, 0)?;
            return match place(log, comparator, probe, first)? {
                Order::Greater => Ok(NOBODY),
                _ => Err(damage(0, 0, 0)),
            };
        };
        let (piece, next) = self.piece(checks, cover, at)?;
        if place(log, comparator, probe, piece)? == Order::Greater {
            return Err(damage(at as u64, 0, 0));
        }
        let inside = match next.cmp(&probe.prefix) {
            Order::Greater => true,
            Order::Less => false,
            Order::Equal => self.is_before(log, checks, cover, comparator, probe, reach)?,
        };
        if inside { Ok(piece.painter) } else { Err(damage(reach as u64, 0, 0)) }
    }

    /// Whether the key is before the piece at `reach`, which has the key's prefix, or after all pieces.
    #[cold]
    #[inline(never)]
    fn is_before(
        &self,
        log: &Log,
        checks: Checks,
        cover: Cover,
        comparator: &KeyComparator,
        probe: &Probe<'_>,
        reach: usize,
    ) -> Checked<bool> {
        if probe.prefix == u64::MAX && self.head(checks, cover.records)?.len == reach as u64 {
            return Ok(true);
        }
        let (above, _) = self.piece(checks, cover, reach)?;
        Ok(place(log, comparator, probe, above)? == Order::Greater)
    }

    /// Number of boundaries at or before the key, where the first `from` have smaller prefixes and the next one has
    /// the key's prefix. Compares whole keys without verifying them, because the caller verifies the piece.
    #[cold]
    #[inline(never)]
    fn rank_among_ties(
        &self,
        log: &Log,
        comparator: &KeyComparator,
        probe: &Probe<'_>,
        from: usize,
    ) -> Checked<usize> {
        let len = usize::try_from(len_of(load(&self.head[4]))).unwrap_or(0).min(self.blocks.len() * RUN);
        let same = lower_bound(len.saturating_sub(from), |at| self.prefix(from + at) <= probe.prefix);
        let (mut reach, mut end) = (from, from + same);
        while reach < end {
            let middle = reach + (end - reach) / 2;
            let name = self.blocks.get(middle / RUN).map(|block| high(block.refs(middle)));
            let order = name.and_then(|name| log.boundary_hint(comparator, name, probe));
            match order.ok_or_else(|| damage(middle as u64, 0, 0))? {
                Order::Greater => end = middle,
                _ => reach = middle + 1,
            }
        }
        Ok(reach)
    }

    /// Verifies every piece, the digest over them, and the fences. Returns the head.
    pub(crate) fn verify(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let head = self.head(checks, cover)?;
        let mut digest = 0;
        for at in (0..head.len).map_while(|at| usize::try_from(at).ok()) {
            let (piece, _) = self.piece(checks, Cover { records: cover, skip: head.bounds.skip }, at)?;
            digest = checks.digest(digest, piece.prefix, piece.refs());
        }
        let len = usize::try_from(head.len).unwrap_or(usize::MAX);
        for at in len..self.blocks.len() * RUN {
            let Some(block) = self.blocks.get(at / RUN) else { break };
            let padding = (block.prefix(at), block.refs(at), block.check(at));
            if padding != (u64::MAX, 0, 0) {
                return Err(damage(cover, u64::MAX, padding.0));
            }
        }
        let (outer, inner) = self.fences();
        for (fences, step) in [(inner, RUN), (outer, RUN * RUN)] {
            for (number, fence) in (1..).zip(fences) {
                let (expected, found) = (self.prefix(number * step - 1), load(fence));
                if expected != found {
                    return Err(damage(cover, expected, found));
                }
            }
        }
        if digest == head.digest { Ok(head) } else { Err(damage(cover, digest, head.digest)) }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("coverage node head", &self.head);
        visit("coverage node fences", &self.fences);
        for Block(words) in &self.blocks {
            let (prefixes, words) = words.split_at(RUN);
            let (refs, checks) = words.split_at(RUN);
            visit("coverage node prefixes", prefixes);
            visit("coverage node names and painters", refs);
            visit("coverage node checks", checks);
        }
    }
}

/// The number of pieces, from the word that also holds how many bytes their prefixes leave out.
#[inline(always)]
const fn len_of(shape: u64) -> u64 {
    shape & ((1 << SKIP_SHIFT) - 1)
}

/// Compares the boundary of a verified piece with the probe's key.
#[inline(always)]
fn place(log: &Log, comparator: &KeyComparator, probe: &Probe<'_>, piece: Piece) -> Checked<Order> {
    match piece.prefix.cmp(&probe.prefix) {
        Order::Equal => log.boundary_order(comparator, piece.name, probe),
        order => Ok(order),
    }
}

/// Number of words in an ascending run that are less than `prefix`. No branch depends on the words.
#[inline(always)]
fn run_before(run: &[AtomicU64; RUN], prefix: u64) -> usize {
    let mut base = 0;
    for half in [RUN / 2, RUN / 4, RUN / 8, RUN / 16] {
        base += if load(&run[(base + half - 1) % RUN]) < prefix { half } else { 0 };
    }
    base + usize::from(load(&run[base % RUN]) < prefix)
}

/// A binary search over `len` places: the number of leading places for which `before` is true. No branch depends on
/// the result of `before`.
#[inline(always)]
fn lower_bound(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut base, mut len) = (0, len);
    while len > 1 {
        let half = len / 2;
        base += if before(base + half - 1) { half } else { 0 };
        len -= half;
    }
    base + usize::from(len == 1 && before(base))
}

/// Collects the pieces of a node, in order.
#[derive(Debug)]
pub(crate) struct Builder {
    blocks: Vec<Block>,
    /// The block that is being filled.
    words: [u64; BLOCK_WORDS],
    len: usize,
    checks: Checks,
    cover: Cover,
    digest: u64,
    first_prefix: u64,
    last: Piece,
}

impl Builder {
    pub(crate) fn new(checks: Checks, cover: Cover, pieces_max: usize) -> Self {
        let blocks = Vec::with_capacity(pieces_max.div_ceil(RUN));
        let (words, last) = (Block::PADDING, Piece::NONE);
        Builder { blocks, words, len: 0, checks, cover, digest: 0, first_prefix: 0, last }
    }

    /// Appends a boundary. Does nothing if the painter is that of the piece before.
    #[inline(always)]
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.painter == self.last.painter {
            return;
        }
        if self.len == 0 {
            self.first_prefix = piece.prefix;
        } else {
            self.check_last(piece.prefix);
        }
        let at = self.len % RUN;
        self.words[at] = piece.prefix;
        self.words[RUN + at] = piece.refs();
        self.digest = self.checks.digest(self.digest, piece.prefix, piece.refs());
        self.last = piece;
        self.len += 1;
    }

    /// Stores the check of the last piece, which covers where the next one begins.
    #[inline(always)]
    fn check_last(&mut self, next: u64) {
        let at = self.len - 1;
        let check = self.checks.piece(self.cover, at as u64, [self.last.prefix, next], self.last.refs());
        self.words[2 * RUN + at % RUN / 2] |= u64::from(check) << (at % 2 * 32);
        if at % RUN == RUN - 1 {
            self.close_block();
        }
    }

    #[inline(never)]
    fn close_block(&mut self) {
        self.blocks.push(Block(self.words.map(AtomicU64::new)));
        self.words = Block::PADDING;
    }

    /// Finishes the node, whose records have these sequence numbers.
    pub(crate) fn finish(mut self, SequenceSpan { min, max }: SequenceSpan) -> CoverageNode {
        if self.len > 0 {
            self.check_last(u64::MAX);
        }
        if !self.len.is_multiple_of(RUN) {
            self.close_block();
        }
        let fence = |block: &Block| AtomicU64::new(block.prefix(RUN - 1));
        let inner = self.blocks.split_last().map_or(&[][..], |(_, inner)| inner);
        let outer = inner.chunks_exact(RUN).filter_map(<[Block]>::last);
        let mut fences = Vec::with_capacity(inner.len() / RUN + inner.len());
        fences.extend(outer.chain(inner).map(fence));
        let Cover { records: cover, skip } = self.cover;
        let shape = u64::from(skip) << SKIP_SHIFT | self.len as u64;
        let head = [min, max, self.first_prefix, self.last.prefix, shape, self.digest];
        let check = self.checks.head(cover, &head);
        let [min, max, first, last, shape, digest] = head.map(AtomicU64::new);
        let head = [min, max, first, last, shape, digest, AtomicU64::new(check)];
        CoverageNode { head, blocks: self.blocks.into_boxed_slice(), fences: fences.into_boxed_slice() }
    }
}

/// The smallest and the largest sequence number of some records (COVERAGE-NODE-2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceSpan {
    pub(crate) min: SequenceNumber,
    pub(crate) max: SequenceNumber,
}

impl SequenceSpan {
    /// The span of the records of both.
    pub(crate) fn join(self, other: Self) -> Self {
        SequenceSpan { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
