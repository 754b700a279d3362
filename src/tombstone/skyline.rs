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
//! In front of them fences: the last prefix of each run of `RUN`, and of each run of those, so that a search touches few
//! lines.
//!
//! * K1: boundaries ascend strictly; the last piece is painted by nobody. A node has at least two pieces.
//! * K2: min and max sequence are those of all records below, hidden ones too.
//! * K3: an answer is certified: the check of the piece that holds the key held, for the node and position; it covers
//!   where the next piece begins, too. Whatever led there (fences, bounds, other prefixes) is a hint.
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
/// Words between two fences: two lines.
const RUN: usize = 16;

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

impl Piece {
    const NONE: Piece = Piece { prefix: 0, name: 0, painter: NOBODY };

    fn refs(self) -> u64 {
        pair(self.name, self.painter)
    }
}

/// A node's bounds, verified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) min: SequenceNumber,
    pub(crate) max: SequenceNumber,
    first_prefix: u64,
    last_prefix: u64,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Skyline {
    head: [AtomicU64; HEAD_WORDS],
    /// The columns, one behind the other.
    words: Box<[AtomicU64]>,
}

/// The columns of a node, outer fences first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    outer: &'a [AtomicU64],
    inner: &'a [AtomicU64],
    prefixes: &'a [AtomicU64],
    refs: &'a [AtomicU64],
    checks: &'a [AtomicU64],
}

/// Words of a node with so many pieces. No two numbers of pieces have the same.
#[inline(always)]
const fn words_of(pieces: usize) -> usize {
    pieces / RUN / RUN + pieces / RUN + 2 * pieces + pieces.div_ceil(2)
}

impl<'a> Columns<'a> {
    #[inline(always)]
    fn split(words: &'a [AtomicU64], pieces: usize) -> Option<Self> {
        if pieces > words.len() || words_of(pieces) != words.len() {
            return None;
        }
        let (outer, words) = words.split_at_checked(pieces / RUN / RUN)?;
        let (inner, words) = words.split_at_checked(pieces / RUN)?;
        let (prefixes, words) = words.split_at_checked(pieces)?;
        let (refs, checks) = words.split_at_checked(pieces)?;
        Some(Columns { outer, inner, prefixes, refs, checks })
    }

    /// Prefix, and name with painter, as they are stored: for those who verify the digest over all of them.
    #[inline(always)]
    pub(crate) fn stored(&self, position: u32) -> Option<(u64, u64)> {
        let at = position as usize;
        Some((load(self.prefixes.get(at)?), load(self.refs.get(at)?)))
    }

    /// How many prefixes are before this one.
    #[inline(always)]
    fn before(&self, prefix: u64) -> usize {
        let outer = if self.outer.len() <= RUN {
            run_before(self.outer, 0, prefix)
        } else {
            lower_bound(self.outer, |fence| fence < prefix)
        };
        let inner = run_before(self.inner, outer * RUN, prefix);
        run_before(self.prefixes, inner * RUN, prefix)
    }

    /// The piece at `position`, verified, and the prefix where the next one begins.
    #[inline(always)]
    fn piece(&self, checks: Checks, cover: u64, at: usize) -> Checked<(Piece, u64)> {
        let position = at as u64;
        let (Some(prefix), Some(refs), Some(stored)) =
            (self.prefixes.get(at), self.refs.get(at), self.checks.get(at / 2))
        else {
            return Err(damage(position, 0, 0));
        };
        let (prefix, refs, stored) = (load(prefix), load(refs), load(stored));
        let next = self.prefixes.get(at + 1).map_or(0, load);
        let found = if position.is_multiple_of(2) { low(stored) } else { high(stored) };
        let expected = checks.piece(cover, position, [prefix, next], refs);
        if found != expected {
            return Err(damage(position, u64::from(expected), u64::from(found)));
        }
        Ok((Piece { prefix, name: high(refs), painter: low(refs) }, next))
    }
}

impl Skyline {
    /// The columns, if the node's length is what its head says.
    #[inline(always)]
    pub(crate) fn columns(&self) -> Checked<Columns<'_>> {
        let pieces = load(&self.head[4]);
        let columns = usize::try_from(pieces).ok().and_then(|pieces| Columns::split(&self.words, pieces));
        columns.ok_or_else(|| damage(0, self.words.len() as u64, pieces))
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    /// The bounds, if their check holds for a node that covers `cover`.
    #[inline(always)]
    pub(crate) fn head(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let words: [u64; 6] = std::array::from_fn(|word| load(&self.head[word]));
        let (expected, found) = (checks.head(cover, &words), load(&self.head[6]));
        if expected != found {
            return Err(damage(cover, expected, found));
        }
        let [min, max, first_prefix, last_prefix, len, digest] = words;
        Ok(Head { min, max, first_prefix, last_prefix, len, digest })
    }

    /// Whether the node has nothing to say about the probe, or nothing over `best` that `snapshot` sees. Believed only if
    /// the head's check holds; most nodes that have something to say need no head.
    #[inline(always)]
    pub(crate) fn is_silent(
        &self,
        (checks, cover): (Checks, u64),
        probe: &Probe<'_>,
        (best, snapshot): (SequenceNumber, SequenceNumber),
    ) -> Checked<bool> {
        let silent = |min, max, first, last| {
            max <= best || min > snapshot || probe.prefix < first || probe.prefix > last
        };
        let [min, max, first, last] = std::array::from_fn(|word| load(&self.head[word]));
        if !silent(min, max, first, last) {
            return Ok(false);
        }
        let head = self.head(checks, cover)?;
        Ok(silent(head.min, head.max, head.first_prefix, head.last_prefix))
    }

    /// Who paints the probe's key: a record's index, or [`NOBODY`]. An error says that this node must not be used.
    #[inline(always)]
    pub(crate) fn painter<C: Comparator>(
        &self,
        log: &Log,
        (checks, cover): (Checks, u64),
        (comparator, probe): (&C, &Probe<'_>),
    ) -> Checked<u32> {
        let columns = self.columns()?;
        let mut reach = columns.before(probe.prefix);
        if columns.prefixes.get(reach).is_some_and(|stored| load(stored) == probe.prefix) {
            reach = self.settle(log, comparator, probe, reach)?;
        }
        // K3: the piece that begins at or before the key, and where the next one begins.
        let Some(at) = reach.checked_sub(1) else {
            let (first, _) = columns.piece(checks, cover, 0)?;
            return match place(log, comparator, probe, first)? {
                Order::Greater => Ok(NOBODY),
                _ => Err(damage(0, 0, 0)),
            };
        };
        let (piece, next) = columns.piece(checks, cover, at)?;
        if place(log, comparator, probe, piece)? == Order::Greater {
            return Err(damage(at as u64, 0, 0));
        }
        let inside = if reach == columns.prefixes.len() {
            piece.painter == NOBODY
        } else if next == probe.prefix {
            let (above, _) = columns.piece(checks, cover, reach)?;
            place(log, comparator, probe, above)? == Order::Greater
        } else {
            next > probe.prefix
        };
        if inside { Ok(piece.painter) } else { Err(damage(reach as u64, 0, 0)) }
    }

    /// How many boundaries are at or before the key, if `from` are before its prefix and the next one has the same: whole
    /// keys are compared. Unverified: the piece is verified in the end.
    #[cold]
    #[inline(never)]
    fn settle<C: Comparator>(
        &self,
        log: &Log,
        comparator: &C,
        probe: &Probe<'_>,
        from: usize,
    ) -> Checked<usize> {
        let Columns { prefixes, refs, .. } = self.columns()?;
        let same = lower_bound(prefixes.get(from..).unwrap_or_default(), |stored| stored <= probe.prefix);
        let (mut reach, mut end) = (from, from + same);
        while reach < end {
            let middle = reach + (end - reach) / 2;
            let order =
                refs.get(middle).and_then(|refs| log.boundary_hint(comparator, high(load(refs)), probe));
            match order.ok_or_else(|| damage(middle as u64, 0, 0))? {
                Order::Greater => end = middle,
                _ => reach = middle + 1,
            }
        }
        Ok(reach)
    }

    /// Verifies every piece, the digest over them, and the fences.
    pub(crate) fn verify(&self, checks: Checks, cover: u64) -> Checked<()> {
        let (head, columns) = (self.head(checks, cover)?, self.columns()?);
        let mut digest = 0;
        for position in 0..columns.prefixes.len() {
            let (piece, _) = columns.piece(checks, cover, position)?;
            digest = checks.digest(digest, piece.prefix, piece.refs());
        }
        for (fences, below) in [(columns.inner, columns.prefixes), (columns.outer, columns.inner)] {
            for (fence, run) in fences.iter().zip(below.chunks_exact(RUN)) {
                let (expected, found) = (run.last().map_or(0, load), load(fence));
                if expected != found {
                    return Err(damage(cover, expected, found));
                }
            }
        }
        if digest == head.digest { Ok(()) } else { Err(damage(cover, digest, head.digest)) }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("skyline head", &self.head);
        // Whatever the head says, which may be damaged just now.
        let pieces = (0..=self.words.len()).find(|&pieces| words_of(pieces) >= self.words.len()).unwrap_or(0);
        if let Some(columns) = Columns::split(&self.words, pieces) {
            visit("skyline prefixes", columns.prefixes);
            visit("skyline names and painters", columns.refs);
            visit("skyline checks", columns.checks);
            visit("skyline fences", columns.inner);
            visit("skyline outer fences", columns.outer);
        }
    }
}

/// Where a verified piece stands to the probe.
#[inline(always)]
fn place<C: Comparator>(log: &Log, comparator: &C, probe: &Probe<'_>, piece: Piece) -> Checked<Order> {
    match piece.prefix.cmp(&probe.prefix) {
        Order::Equal => log.boundary_order(comparator, piece.name, probe),
        order => Ok(order),
    }
}

/// How many words of an ascending column are before `prefix`, if the answer is in the run that begins at `from`.
#[inline(always)]
fn run_before(column: &[AtomicU64], from: usize, prefix: u64) -> usize {
    let rest = column.get(from..).unwrap_or_default();
    let Some(run) = rest.first_chunk::<RUN>() else { return from + lower_bound(rest, |word| word < prefix) };
    let mut base = 0;
    for half in [RUN / 2, RUN / 4, RUN / 8, RUN / 16] {
        base += if load(&run[(base + half - 1) % RUN]) < prefix { half } else { 0 };
    }
    from + base + usize::from(load(&run[base % RUN]) < prefix)
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
        Builder { buffers, checks, cover, digest: 0, last: Piece::NONE, even: 0 }
    }

    /// The next boundary. Without effect if the painter stays the same.
    #[inline(always)]
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.painter == self.last.painter {
            return;
        }
        if !self.buffers.prefixes.is_empty() {
            self.check_last(piece.prefix);
        }
        self.buffers.prefixes.push(piece.prefix);
        self.buffers.refs.push(piece.refs());
        self.digest = self.checks.digest(self.digest, piece.prefix, piece.refs());
        self.last = piece;
    }

    /// The check of the last piece, once it is known where the next one begins.
    #[inline(always)]
    fn check_last(&mut self, next: u64) {
        let position = self.buffers.prefixes.len() as u64 - 1;
        let check = self.checks.piece(self.cover, position, [self.last.prefix, next], self.last.refs());
        if position.is_multiple_of(2) {
            self.even = check;
        } else {
            self.buffers.checks.push(pair(check, self.even));
        }
    }

    /// The finished node, for records whose sequence numbers are within (min, max); and the room, empty again.
    pub(crate) fn finish(mut self, (min, max): (SequenceNumber, SequenceNumber)) -> (Skyline, Buffers) {
        let pieces = self.buffers.prefixes.len();
        if pieces > 0 {
            self.check_last(0);
        }
        if pieces % 2 == 1 {
            self.buffers.checks.push(pair(0, self.even));
        }
        let Buffers { prefixes, refs, checks } = &self.buffers;
        let mut words = Vec::with_capacity(words_of(pieces));
        let outer = prefixes.chunks_exact(RUN * RUN).filter_map(<[u64]>::last);
        let inner = prefixes.chunks_exact(RUN).filter_map(<[u64]>::last);
        words.extend(outer.chain(inner));
        for column in [prefixes, refs, checks] {
            words.extend_from_slice(column);
        }
        let words = words.into_iter().map(AtomicU64::new).collect();
        let first = prefixes.first().copied().unwrap_or(0);
        let head = [min, max, first, self.last.prefix, pieces as u64, self.digest];
        let check = self.checks.head(self.cover, &head);
        let [min, max, first, last, len, digest] = head.map(AtomicU64::new);
        let head = [min, max, first, last, len, digest, AtomicU64::new(check)];
        (Skyline { head, words }, self.buffers.emptied())
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
