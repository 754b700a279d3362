//! One painted node: the newest tombstone at every key, for a run of log records.
//!
//! ```text
//!   sequence
//!     9            #####                  pieces     b      e      h      m
//!     5      ############                 painter    t5     t9     none   t2 ...
//!     2                      ======
//!            b     e    h    m    p       a piece reaches from its own boundary to the next one
//! ```
//! Three columns: prefix of the boundary; its name (record and end) with the painter's record; checks, two a word.
//! Large nodes have fences as well: the last prefix of each run of `RUN`, so that a search touches few lines.
//!
//! * K1: boundaries ascend strictly; the last piece is painted by nobody. A node has at least two pieces.
//! * K2: min and max sequence are those of all records below, hidden ones too.
//! * K3: an answer is certified: the checks of the two pieces that bracket the key held, for the node and position.
//! * K4: a node never changes once it is built. It is derived: whoever finds it damaged uses what it was built from.
//!
//! Who may call what: a `Builder` belongs to one thread; a `Skyline` may be read by any.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use super::checks::Checks;
use super::log::{Log, Probe, damage, high, low, pair};
use crate::error::Corruption;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};
use crate::sync::{AtomicU64, Ordering};

/// The painter of a piece that no tombstone covers.
pub(crate) const NOBODY: u32 = u32::MAX;
const HEAD_WORDS: usize = 7;
/// Prefixes between two fences: two lines.
const RUN: usize = 16;
/// Nodes of fewer pieces have no fences.
const FENCED: usize = 4 * RUN;

type Checked<T> = std::result::Result<T, Corruption>;

// ORDERING (whole file): relaxed; a node is published by the release store of the cell that holds it.
#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; see above.
    word.load(Ordering::Relaxed)
}

/// One piece: where it begins and who paints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) prefix: u64,
    /// Name of the boundary where it begins.
    pub(crate) name: u32,
    pub(crate) painter: u32,
}

/// A node's bounds, verified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) min: SequenceNumber,
    pub(crate) max: SequenceNumber,
    first_prefix: u64,
    last_prefix: u64,
    pub(crate) len: u32,
    pub(crate) digest: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Skyline {
    head: [AtomicU64; HEAD_WORDS],
    /// All prefixes, then all names and painters, then the checks: 5 words for 2 pieces.
    words: Box<[AtomicU64]>,
    fences: Box<[AtomicU64]>,
}

/// The columns of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) prefixes: &'a [AtomicU64],
    pub(crate) refs: &'a [AtomicU64],
    checks: &'a [AtomicU64],
}

impl Columns<'_> {
    /// Prefix, and name with painter, as they are stored: for those who verify the digest over all of them.
    #[inline(always)]
    pub(crate) fn stored(&self, position: u32) -> Option<(u64, u64)> {
        let at = position as usize;
        Some((load(self.prefixes.get(at)?), load(self.refs.get(at)?)))
    }
}

impl Skyline {
    #[inline(always)]
    fn pieces(&self) -> usize {
        self.words.len() * 2 / 5
    }

    #[inline(always)]
    pub(crate) fn columns(&self) -> Columns<'_> {
        let (prefixes, rest) = self.words.split_at(self.pieces());
        let (refs, checks) = rest.split_at(prefixes.len());
        Columns { prefixes, refs, checks }
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        8 * (self.words.len() + self.fences.len()) as u64
    }

    /// The bounds, if their check holds for a node that covers `cover`.
    #[inline(always)]
    pub(crate) fn head(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let words: [u64; 6] = std::array::from_fn(|word| load(&self.head[word]));
        let (expected, found) = (checks.head(cover, &words), load(&self.head[6]));
        if expected != found || words[4] != self.pieces() as u64 {
            return Err(damage(cover, expected, found));
        }
        let [min, max, first_prefix, last_prefix, len, digest] = words;
        Ok(Head { min, max, first_prefix, last_prefix, len: low(len), digest })
    }

    /// The piece at `position`, verified.
    #[inline(always)]
    pub(crate) fn piece(&self, checks: Checks, cover: u64, position: u32) -> Checked<Piece> {
        let (at, columns) = (position as usize, self.columns());
        let (Some(prefix), Some(refs), Some(stored)) =
            (columns.prefixes.get(at), columns.refs.get(at), columns.checks.get(at / 2))
        else {
            return Err(damage(u64::from(position), 0, 0));
        };
        let (prefix, refs, stored) = (load(prefix), load(refs), load(stored));
        let found = if position.is_multiple_of(2) { low(stored) } else { high(stored) };
        let expected = checks.piece(cover, position, prefix, refs);
        if found != expected {
            return Err(damage(u64::from(position), u64::from(expected), u64::from(found)));
        }
        Ok(Piece { prefix, name: high(refs), painter: low(refs) })
    }

    /// Who paints the probe's key: a record's index, or [`NOBODY`]. An error says that this node must not be used.
    #[inline(always)]
    pub(crate) fn painter<C: Comparator>(
        &self,
        log: &Log,
        (checks, cover): (Checks, u64),
        (comparator, probe): (&C, &Probe<'_>),
        head: &Head,
    ) -> Checked<u32> {
        if probe.prefix < head.first_prefix || probe.prefix > head.last_prefix {
            return Ok(NOBODY);
        }
        let mut bracket = Bracket::around(self.columns().prefixes, &self.fences, probe.prefix);
        if bracket.ties() {
            self.settle(log, comparator, probe, &mut bracket)?;
        }
        // K3: pieces `reach - 1` and `reach`.
        let mut painter = NOBODY;
        if bracket.reach > 0 {
            let below = self.piece(checks, cover, bracket.reach - 1)?;
            let order = self.place(log, comparator, probe, below)?;
            if order == Order::Greater {
                return Err(damage(u64::from(bracket.reach - 1), 0, 0));
            }
            painter = below.painter;
        }
        if bracket.reach < head.len {
            let above = self.piece(checks, cover, bracket.reach)?;
            if self.place(log, comparator, probe, above)? != Order::Greater {
                return Err(damage(u64::from(bracket.reach), 0, 0));
            }
        } else if painter != NOBODY {
            return Err(damage(u64::from(bracket.reach), 0, 0));
        }
        Ok(painter)
    }

    /// Where a verified piece stands to the probe.
    #[inline(always)]
    fn place<C: Comparator>(
        &self,
        log: &Log,
        comparator: &C,
        probe: &Probe<'_>,
        piece: Piece,
    ) -> Checked<Order> {
        match piece.prefix.cmp(&probe.prefix) {
            Order::Equal => log.boundary_order(comparator, piece.name, probe),
            order => Ok(order),
        }
    }

    /// Narrows a run of equal prefixes by comparing whole keys. Unverified: the bracket is verified in the end.
    fn settle<C: Comparator>(
        &self,
        log: &Log,
        comparator: &C,
        probe: &Probe<'_>,
        bracket: &mut Bracket,
    ) -> Checked<()> {
        while bracket.reach < bracket.ties_end {
            let middle = bracket.reach + (bracket.ties_end - bracket.reach) / 2;
            let refs = self.columns().refs.get(middle as usize);
            let order = refs.and_then(|refs| log.boundary_hint(comparator, high(load(refs)), probe));
            match order.ok_or_else(|| damage(u64::from(middle), 0, 0))? {
                Order::Greater => bracket.ties_end = middle,
                _ => bracket.reach = middle + 1,
            }
        }
        Ok(())
    }

    /// Verifies every piece and the digest over them.
    pub(crate) fn verify(&self, checks: Checks, cover: u64) -> Checked<()> {
        let head = self.head(checks, cover)?;
        let mut digest = 0;
        for position in 0..head.len {
            let piece = self.piece(checks, cover, position)?;
            digest = checks.digest(digest, piece.prefix, pair(piece.name, piece.painter));
        }
        let prefixes = self.columns().prefixes;
        for (run, fence) in prefixes.chunks_exact(RUN).zip(&self.fences) {
            let (expected, found) = (run.last().map_or(0, load), load(fence));
            if expected != found {
                return Err(damage(cover, expected, found));
            }
        }
        if digest == head.digest { Ok(()) } else { Err(damage(cover, digest, head.digest)) }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("skyline head", &self.head);
        let columns = self.columns();
        visit("skyline prefixes", columns.prefixes);
        visit("skyline names and painters", columns.refs);
        visit("skyline checks", columns.checks);
        if !self.fences.is_empty() {
            visit("skyline fences", &self.fences);
        }
    }
}

/// Where a search stands: `reach` boundaries are at or before the key, as far as is known; those up to `ties_end` have
/// the key's prefix.
#[derive(Debug)]
struct Bracket {
    reach: u32,
    ties_end: u32,
}

impl Bracket {
    #[inline(always)]
    fn around(prefixes: &[AtomicU64], fences: &[AtomicU64], prefix: u64) -> Bracket {
        let reach = if fences.is_empty() {
            lower_bound(prefixes, |stored| stored < prefix)
        } else {
            // Fences are hints like all prefixes: the bracket is verified in the end (K3).
            let from = lower_bound(fences, |fence| fence < prefix) * RUN;
            let rest = prefixes.get(from..).unwrap_or_default();
            let run = rest.get(..RUN).unwrap_or(rest);
            from + run.iter().map(|stored| usize::from(load(stored) < prefix)).sum::<usize>()
        };
        let ties = match prefixes.get(reach) {
            Some(first) if load(first) == prefix => {
                lower_bound(prefixes.get(reach..).unwrap_or_default(), |stored| stored <= prefix)
            }
            _ => 0,
        };
        let narrow = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        Bracket { reach: narrow(reach), ties_end: narrow(reach + ties) }
    }

    #[inline(always)]
    fn ties(&self) -> bool {
        self.reach < self.ties_end
    }
}

/// How many words of an ascending column are before the answer. Without branches on what is read.
#[inline(always)]
fn lower_bound(column: &[AtomicU64], before: impl Fn(u64) -> bool) -> usize {
    let (mut base, mut len) = (0, column.len());
    while len > 1 {
        let half = len / 2;
        base += if before(load(&column[base + half - 1])) { half } else { 0 };
        len -= half;
    }
    base + usize::from(len == 1 && before(load(&column[base])))
}

/// Room for the columns of a node that is being built, used again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    prefixes: Vec<u64>,
    refs: Vec<u64>,
    checks: Vec<u64>,
}

impl Buffers {
    /// More pieces than this are not kept room for.
    const KEPT: usize = 1 << 12;

    fn emptied(mut self) -> Buffers {
        if self.prefixes.capacity() > Self::KEPT {
            return Buffers::default();
        }
        self.prefixes.clear();
        self.refs.clear();
        self.checks.clear();
        self
    }
}

/// Collects the pieces of a node, in order.
#[derive(Debug)]
pub(crate) struct Builder {
    buffers: Buffers,
    checks: Checks,
    cover: u64,
    digest: u64,
    last: Piece,
    even: u32,
}

impl Builder {
    /// A builder in empty `buffers`.
    pub(crate) fn new(checks: Checks, cover: u64, mut buffers: Buffers, pieces_max: usize) -> Self {
        buffers.prefixes.reserve(pieces_max);
        buffers.refs.reserve(pieces_max);
        buffers.checks.reserve(pieces_max.div_ceil(2));
        let last = Piece { prefix: 0, name: 0, painter: NOBODY };
        Builder { buffers, checks, cover, digest: 0, last, even: 0 }
    }

    /// The next boundary. Without effect if the painter stays the same.
    #[inline(always)]
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.painter == self.last.painter {
            return;
        }
        let position = u32::try_from(self.buffers.prefixes.len()).unwrap_or(u32::MAX);
        let refs = pair(piece.name, piece.painter);
        self.buffers.prefixes.push(piece.prefix);
        self.buffers.refs.push(refs);
        self.digest = self.checks.digest(self.digest, piece.prefix, refs);
        let check = self.checks.piece(self.cover, position, piece.prefix, refs);
        if position.is_multiple_of(2) {
            self.even = check;
        } else {
            self.buffers.checks.push(pair(check, self.even));
        }
        self.last = piece;
    }

    /// The finished node, for records whose sequence numbers are within (min, max); and the room, empty again.
    pub(crate) fn finish(self, (min, max): (SequenceNumber, SequenceNumber)) -> (Skyline, Buffers) {
        let Buffers { prefixes, refs, checks } = &self.buffers;
        let odd = (prefixes.len() % 2 == 1).then_some(pair(0, self.even));
        let mut columns = Vec::with_capacity(prefixes.len() * 2 + prefixes.len().div_ceil(2));
        for column in [prefixes, refs, checks] {
            columns.extend(column.iter().map(|&word| AtomicU64::new(word)));
        }
        columns.extend(odd.map(AtomicU64::new));
        let fenced = if prefixes.len() < FENCED { &[][..] } else { prefixes };
        let lasts = fenced.chunks_exact(RUN).filter_map(<[u64]>::last);
        let fences = lasts.map(|&last| AtomicU64::new(last)).collect();
        let first = prefixes.first().copied().unwrap_or(0);
        let words = [min, max, first, self.last.prefix, prefixes.len() as u64, self.digest];
        let check = self.checks.head(self.cover, &words);
        let [min, max, first, last, len, digest] = words.map(AtomicU64::new);
        let head = [min, max, first, last, len, digest, AtomicU64::new(check)];
        (Skyline { head, words: columns.into_boxed_slice(), fences }, self.buffers.emptied())
    }
}

/// Bounds of two groups of records together (K2).
pub(crate) fn join(
    left: (SequenceNumber, SequenceNumber),
    right: (SequenceNumber, SequenceNumber),
) -> (SequenceNumber, SequenceNumber) {
    let min = if planted(Bug::NodeMinIsNewest) { left.0.max(right.0) } else { left.0.min(right.0) };
    (min, left.1.max(right.1))
}
