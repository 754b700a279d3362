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
    pub(crate) digest: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Skyline {
    head: [AtomicU64; HEAD_WORDS],
    prefixes: Vec<AtomicU64>,
    refs: Vec<AtomicU64>,
    checks: Vec<AtomicU64>,
}

impl Skyline {
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.prefixes.len()).unwrap_or(0)
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        8 * (self.prefixes.capacity() + self.refs.capacity() + self.checks.capacity()) as u64
    }

    /// The bounds, if their check holds for a node that covers `cover`.
    #[inline(always)]
    pub(crate) fn head(&self, checks: Checks, cover: u64) -> Checked<Head> {
        let words: [u64; 6] = std::array::from_fn(|word| load(&self.head[word]));
        let (expected, found) = (checks.head(cover, &words), load(&self.head[6]));
        if expected != found || words[4] != self.prefixes.len() as u64 {
            return Err(damage(cover, expected, found));
        }
        let [min, max, first_prefix, last_prefix, _, digest] = words;
        Ok(Head { min, max, first_prefix, last_prefix, digest })
    }

    /// The piece at `position`, verified.
    #[inline(always)]
    pub(crate) fn piece(&self, checks: Checks, cover: u64, position: u32) -> Checked<Piece> {
        let at = position as usize;
        let (Some(prefix), Some(refs), Some(stored)) =
            (self.prefixes.get(at), self.refs.get(at), self.checks.get(at / 2))
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
        let mut bracket = Bracket::around(&self.prefixes, probe.prefix);
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
        if bracket.reach < self.len() {
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
            let refs = self.refs.get(middle as usize);
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
        for position in 0..self.len() {
            let piece = self.piece(checks, cover, position)?;
            digest = checks.digest(digest, piece.prefix, pair(piece.name, piece.painter));
        }
        if digest == head.digest { Ok(()) } else { Err(damage(cover, digest, head.digest)) }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("skyline head", &self.head);
        visit("skyline prefixes", &self.prefixes);
        visit("skyline names and painters", &self.refs);
        visit("skyline checks", &self.checks);
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
    fn around(prefixes: &[AtomicU64], prefix: u64) -> Bracket {
        let reach = lower_bound(prefixes, |stored| stored < prefix);
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

/// Collects the pieces of a node, in order.
#[derive(Debug)]
pub(crate) struct Builder {
    prefixes: Vec<AtomicU64>,
    refs: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
    checks: Checks,
    cover: u64,
    digest: u64,
    last: Piece,
    even: u32,
    first_prefix: u64,
}

impl Builder {
    pub(crate) fn new(checks: Checks, cover: u64, pieces_max: usize) -> Self {
        Builder {
            prefixes: Vec::with_capacity(pieces_max),
            refs: Vec::with_capacity(pieces_max),
            words: Vec::with_capacity(pieces_max.div_ceil(2)),
            checks,
            cover,
            digest: 0,
            last: Piece { prefix: 0, name: 0, painter: NOBODY },
            even: 0,
            first_prefix: 0,
        }
    }

    /// The next boundary. Without effect if the painter stays the same.
    pub(crate) fn push(&mut self, piece: Piece) {
        if piece.painter == self.last.painter {
            return;
        }
        let position = u32::try_from(self.prefixes.len()).unwrap_or(u32::MAX);
        if position == 0 {
            self.first_prefix = piece.prefix;
        }
        let refs = pair(piece.name, piece.painter);
        self.prefixes.push(AtomicU64::new(piece.prefix));
        self.refs.push(AtomicU64::new(refs));
        self.digest = self.checks.digest(self.digest, piece.prefix, refs);
        let check = self.checks.piece(self.cover, position, piece.prefix, refs);
        if position.is_multiple_of(2) {
            self.even = check;
        } else {
            self.words.push(AtomicU64::new(pair(check, self.even)));
        }
        self.last = piece;
    }

    /// The finished node, for records whose sequence numbers are within (min, max).
    pub(crate) fn finish(mut self, (min, max): (SequenceNumber, SequenceNumber)) -> Skyline {
        if self.prefixes.len() % 2 == 1 {
            self.words.push(AtomicU64::new(pair(0, self.even)));
        }
        self.prefixes.shrink_to_fit();
        self.refs.shrink_to_fit();
        self.words.shrink_to_fit();
        let len = self.prefixes.len() as u64;
        let words = [min, max, self.first_prefix, self.last.prefix, len, self.digest];
        let check = self.checks.head(self.cover, &words);
        let [min, max, first, last, len, digest] = words.map(AtomicU64::new);
        Skyline {
            head: [min, max, first, last, len, digest, AtomicU64::new(check)],
            prefixes: self.prefixes,
            refs: self.refs,
            checks: self.words,
        }
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
