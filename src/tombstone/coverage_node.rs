//! Coverage nodes: for every key, the newest range tombstone that covers it, among those of a run
//! of log records.
//!
//! ```text
//!   sequence
//!     9            #####                  pieces     b      e      h      m
//!     5      ############                 painter    t5     t9     none   t2 ...
//!     2                      ======
//!            b     e    h    m    p       a piece reaches from its own boundary to the next one
//! ```
//! The painter of a piece is the newest record that covers it. Boundaries ascend strictly. A node
//! has at least two pieces, and the last one has no painter.
//!
//! Pieces are stored in blocks of `RUN`. A block has three columns: the prefixes of the boundaries;
//! their names (record and end) with the painters; and the checks, two in a word. Fences hold the
//! last prefix of each block but the last, and of each group of `RUN` blocks, so a search reads few
//! cache lines and one block. Padding with the largest prefix follows the last piece.
//!
//! * COVERAGE-NODE-1: min and max in the head are the smallest and the largest sequence number of
//!   all records that the node covers, including records that no piece names.
//! * COVERAGE-NODE-2: an answer is proved by the check of the piece that contains the key. This
//!   check covers the node, the position, and where the next piece begins. Fences and the other
//!   prefixes, which led the search there, are hints.
//!
//! All prefixes of a node leave out the same number of bytes of the common prefix. The head stores
//! this number. The checks of the head and of each piece cover it, so a lookup of a key needs no
//! check of the head.
//!
//! A `Builder` belongs to one thread. A node never changes after it is built; any thread may read
//! it.

#![forbid(unsafe_code)]

use crate::halves::{high, low, pair};
use crate::integrity::index_checks::{Checks, Cover, SKIP_SHIFT};
use crate::key::SequenceNumber;
use crate::prefetch::prefetch_lines;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::common_prefix::Probe;
use crate::tombstone::record_log::{NO_PAINTER, Record};
use crate::tombstone::span::{Checked, damage};

const HEAD_WORDS: usize = 7;
/// Pieces of a block, and inner fences of an outer one: two cache lines of prefixes.
const RUN: usize = 16;
const BLOCK_WORDS: usize = 2 * RUN + RUN / 2;

/// Loads a word of a node.
#[inline(always)]
pub(crate) fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; a node is published by the release store of the cell that holds it.
    word.load(Ordering::Relaxed)
}

/// One piece: where it begins, and its painter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) prefix: u64,
    /// Name of the boundary where the piece begins.
    pub(crate) name: u32,
    pub(crate) painter: u32,
}

impl Piece {
    const NONE: Piece = Piece {
        prefix: 0,
        name: 0,
        painter: NO_PAINTER,
    };

    fn refs(self) -> u64 {
        pair(self.name, self.painter)
    }
}

/// The head of a node: the sequence numbers and prefixes for which the node can have an answer, the
/// number of bytes that its prefixes leave out, the number of its pieces, and the digest over them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) min: SequenceNumber,
    pub(crate) max: SequenceNumber,
    first_prefix: u64,
    last_prefix: u64,
    pub(crate) skip: u32,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

impl Head {
    #[inline(always)]
    fn of([min, max, first_prefix, last_prefix, shape, digest]: [u64; 6]) -> Head {
        let (skip, len) = (
            u32::from(shape.to_be_bytes()[0]),
            shape & ((1 << SKIP_SHIFT) - 1),
        );
        Head {
            min,
            max,
            first_prefix,
            last_prefix,
            skip,
            len,
            digest,
        }
    }

    /// The head of a node whose two pieces begin at the start and at the end of `record`.
    pub(crate) fn of_record(checks: Checks, record: &Record) -> Head {
        let sequence = record.sequence;
        let [(first, start), (last, end)] = record.pieces();
        let digest = checks.digest(checks.digest(0, first, start), last, end);
        let shape = u64::from(record.skip()) << SKIP_SHIFT | 2;
        Head::of([sequence, sequence, first, last, shape, digest])
    }

    /// Whether the node cannot improve the answer: the probe is outside the node's prefixes, or the
    /// node has no sequence number above `best`, or none visible at `snapshot` (COVERAGE-NODE-1).
    /// The prefixes of probe and node must leave out the same number of bytes.
    #[inline(always)]
    pub(crate) fn excludes(
        &self,
        probe: &Probe<'_>,
        best: SequenceNumber,
        snapshot: SequenceNumber,
    ) -> bool {
        let prefix = probe.prefix;
        self.max <= best
            || self.min > snapshot
            || prefix < self.first_prefix
            || prefix > self.last_prefix
    }
}

/// Up to `RUN` pieces: prefixes, names with painters, checks.
#[repr(align(64))]
struct Block([AtomicU64; BLOCK_WORDS]);

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<Block>() == 5 * 64,
    "two lines of prefixes, two of names, one of checks"
);

impl Block {
    /// A block without pieces.
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
        if at.is_multiple_of(2) {
            low(both)
        } else {
            high(both)
        }
    }

    /// Number of prefixes in the block that are less than `prefix`.
    #[inline(always)]
    fn before(&self, prefix: u64) -> usize {
        self.0
            .first_chunk()
            .map_or(0, |run| run_before(run, prefix))
    }
}

/// A coverage node.
pub(crate) struct CoverageNode {
    /// min | max | first prefix | last prefix | skip (8), length (56) | digest of pieces | check.
    head: [AtomicU64; HEAD_WORDS],
    blocks: Box<[Block]>,
    /// The outer fences, then the inner ones.
    fences: Box<[AtomicU64]>,
}

impl CoverageNode {
    pub(crate) fn allocated_bytes(&self) -> u64 {
        (size_of_val(&*self.blocks) + size_of_val(&*self.fences)) as u64
    }

    /// The most bytes that a node over `records` records allocates: each record has two boundaries.
    pub(crate) fn bytes_max(records: u64) -> u64 {
        let blocks = (2 * records).div_ceil(RUN as u64);
        let fences = blocks.saturating_sub(1);
        blocks * size_of::<Block>() as u64 + 8 * (fences + fences / RUN as u64)
    }

    /// The outer and the inner fences.
    #[inline(always)]
    fn fences(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let inner = self.blocks.len().saturating_sub(1);
        self.fences
            .split_at_checked(inner / RUN)
            .unwrap_or_default()
    }

    /// The stored prefix of a piece, and the word with name and painter. Not verified: a merge
    /// verifies the digest over all pieces.
    #[inline(always)]
    pub(crate) fn stored(&self, position: u32) -> Option<(u64, u64)> {
        let at = position as usize;
        self.blocks
            .get(at / RUN)
            .map(|block| (block.prefix(at), block.refs(at)))
    }

    #[inline(always)]
    pub(crate) fn prefix(&self, at: usize) -> u64 {
        self.blocks
            .get(at / RUN)
            .map_or(u64::MAX, |block| block.prefix(at))
    }

    /// Number of prefixes in the node that are less than `prefix`: a hint.
    #[inline(always)]
    pub(crate) fn before(&self, prefix: u64) -> usize {
        let (outer, inner) = self.fences();
        let mut number = 0;
        if !inner.is_empty() {
            let is_before = |fence: &AtomicU64| load(fence) < prefix;
            number = RUN * outer.partition_point(is_before);
            let inner = inner.get(number..).unwrap_or_default();
            number += match inner.first_chunk() {
                Some(run) => run_before(run, prefix),
                None => inner.partition_point(is_before),
            };
        }
        let Some(block) = self.blocks.get(number) else {
            return 0;
        };
        // Prefetches the other lines of this block, which has the answer.
        prefetch_lines(std::ptr::from_ref(&block.0[RUN]).addr(), 3);
        number * RUN + block.before(prefix)
    }

    /// The piece at `at`, verified, and the prefix where the next piece begins.
    #[inline(always)]
    pub(crate) fn piece(&self, checks: Checks, cover: Cover, at: usize) -> Checked<(Piece, u64)> {
        let Some(block) = self.blocks.get(at / RUN) else {
            return Err(damage(at as u64, 0, 0));
        };
        let (prefix, refs, next) = (block.prefix(at), block.refs(at), self.prefix(at + 1));
        let (expected, found) = (
            checks.piece(cover, at as u64, [prefix, next], refs),
            block.check(at),
        );
        if found != expected {
            return Err(damage(at as u64, u64::from(expected), u64::from(found)));
        }
        Ok((
            Piece {
                prefix,
                name: high(refs),
                painter: low(refs),
            },
            next,
        ))
    }

    /// The head of a node that covers `cover`, verified.
    #[inline(always)]
    pub(crate) fn head(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let words: [u64; 6] = std::array::from_fn(|word| load(&self.head[word]));
        let (expected, found) = (checks.head(cover, &words), load(&self.head[6]));
        if expected == found {
            Ok(Head::of(words))
        } else {
            Err(damage(cover, expected, found))
        }
    }

    /// The stored head, not verified: a hint.
    #[inline(always)]
    pub(crate) fn hint(&self) -> Head {
        Head::of(std::array::from_fn(|word| load(&self.head[word])))
    }

    /// Number of pieces: a hint.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.hint().len)
            .unwrap_or(0)
            .min(self.blocks.len() * RUN)
    }

    /// Verifies every piece, the digest over the pieces, padding and fences. Returns the head.
    pub(crate) fn verify(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let head = self.head(checks, cover)?;
        let compare = |expected, found| match expected == found {
            true => Ok(()),
            false => Err(damage(cover, expected, found)),
        };
        let (len, mut digest) = (usize::try_from(head.len).unwrap_or(usize::MAX), 0);
        for at in 0..len {
            let (piece, _) = self.piece(
                checks,
                Cover {
                    records: cover,
                    skip: head.skip,
                },
                at,
            )?;
            digest = checks.digest(digest, piece.prefix, piece.refs());
        }
        compare(digest, head.digest)?;
        for (at, block) in
            (len..self.blocks.len() * RUN).map_while(|at| Some((at, self.blocks.get(at / RUN)?)))
        {
            compare(u64::MAX, block.prefix(at))?;
            compare(0, block.refs(at) | u64::from(block.check(at)))?;
        }
        let (outer, inner) = self.fences();
        for (fences, step) in [(inner, RUN), (outer, RUN * RUN)] {
            for (number, fence) in (1..).zip(fences) {
                compare(self.prefix(number * step - 1), load(fence))?;
            }
        }
        Ok(head)
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

/// Number of words less than `prefix` in an ascending run. No branch depends on the words.
#[inline(always)]
fn run_before(run: &[AtomicU64; RUN], prefix: u64) -> usize {
    let mut base = 0;
    for half in [RUN / 2, RUN / 4, RUN / 8, RUN / 16] {
        base += if load(&run[(base + half - 1) % RUN]) < prefix {
            half
        } else {
            0
        };
    }
    base + usize::from(load(&run[base % RUN]) < prefix)
}

/// Builds a node of pieces that are appended in order.
pub(crate) struct Builder {
    blocks: Vec<Block>,
    /// The block that is being filled.
    words: [u64; BLOCK_WORDS],
    len: usize,
    checks: Checks,
    pub(crate) cover: Cover,
    /// The smallest and the largest sequence number of the records (COVERAGE-NODE-1).
    sequences: [SequenceNumber; 2],
    digest: u64,
    first_prefix: u64,
    last: Piece,
}

impl Builder {
    pub(crate) fn new(
        checks: Checks,
        cover: Cover,
        sequences: [SequenceNumber; 2],
        len_max: usize,
    ) -> Self {
        let blocks = Vec::with_capacity(len_max.div_ceil(RUN));
        let (words, last) = (Block::PADDING, Piece::NONE);
        Builder {
            blocks,
            words,
            len: 0,
            checks,
            cover,
            sequences,
            digest: 0,
            first_prefix: 0,
            last,
        }
    }

    /// Appends a piece. Does nothing if the piece before has the same painter: then that piece
    /// continues.
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
        let refs = piece.refs();
        self.words[at] = piece.prefix;
        self.words[RUN + at] = refs;
        self.digest = self.checks.digest(self.digest, piece.prefix, refs);
        self.last = piece;
        self.len += 1;
    }

    /// Stores the check of the last piece. The check covers where the next piece begins.
    #[inline(always)]
    fn check_last(&mut self, next: u64) {
        let at = self.len - 1;
        let check = self.checks.piece(
            self.cover,
            at as u64,
            [self.last.prefix, next],
            self.last.refs(),
        );
        self.words[2 * RUN + at % RUN / 2] |= u64::from(check) << (at % 2 * 32);
        if at % RUN == RUN - 1 {
            self.close_block();
        }
    }

    /// Appends the block that is full, or the last one, to the node.
    #[inline(never)]
    fn close_block(&mut self) {
        self.blocks.push(Block(self.words.map(AtomicU64::new)));
        self.words = Block::PADDING;
    }

    /// Completes the node: the last check, the last block, fences and head.
    pub(crate) fn finish(mut self) -> CoverageNode {
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
        let Cover {
            records: cover,
            skip,
        } = self.cover;
        let shape = u64::from(skip) << SKIP_SHIFT | self.len as u64;
        let [min, max] = self.sequences;
        let words = [
            min,
            max,
            self.first_prefix,
            self.last.prefix,
            shape,
            self.digest,
        ];
        let check = AtomicU64::new(self.checks.head(cover, &words));
        let [min, max, first, last, shape, digest] = words.map(AtomicU64::new);
        let head = [min, max, first, last, shape, digest, check];
        CoverageNode {
            head,
            blocks: self.blocks.into_boxed_slice(),
            fences: fences.into_boxed_slice(),
        }
    }
}
