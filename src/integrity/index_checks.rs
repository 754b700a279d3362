//! The check values of everything that the tombstone index stores, in one place that shows what each
//! check covers.
//!
//! ```text
//!   common prefix  length, bytes                       bound to the table             64 bits
//!   log record     sequence, prefixes, what they omit,
//!                  node                               bound to its index             63 bits
//!   piece          both prefixes, what they omit,
//!                  who starts and paints               bound to node and position     32 bits
//!   node head      bounds, counts, digest of pieces    bound to what the node covers  64 bits
//!   counter        value                               bound to which counter it is   32 bits
//! ```
//! * CHECKS-1: all are bound to the table's secret, so words of another table or an earlier life
//!   fail.
//! * CHECKS-2: a correct check is zero only by chance, so zeroed memory fails.
//! * CHECKS-3: the check of a record is odd and the pending mark is even, so a record that is being
//!   written never passes.
//!
//! Pure functions; any thread. Not promised: resistance against somebody who knows the secret.

#![forbid(unsafe_code)]

use crate::integrity::hash::{fold, halved, splitmix};
use crate::integrity::tag::Secret;

pub(crate) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const PENDING: u64 = splitmix(401);
pub(crate) const RECORD: u64 = splitmix(402);
pub(crate) const PIECE: u64 = splitmix(404);
pub(crate) const HEAD: u64 = splitmix(405);
pub(crate) const COUNTER: u64 = splitmix(406);
pub(crate) const COMMON_PREFIX: u64 = splitmix(408);
/// The bits from here on of a packed word say how many bytes its prefixes leave out.
pub(crate) const SKIP_SHIFT: u32 = 56;

/// What the check of a node's piece is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover {
    /// The first and the last record that the node covers.
    pub(crate) records: u64,
    /// How many bytes the prefixes of the node leave out.
    pub(crate) skip: u32,
}

/// The check functions of one index.
#[derive(Clone, Copy)]
pub(crate) struct Checks {
    pub(crate) mask: u64,
    pub(crate) factor: u64,
}

impl Checks {
    pub(crate) const fn new(secret: Secret) -> Self {
        Checks {
            mask: secret.mask,
            factor: secret.factor,
        }
    }

    /// The pending mark of log record `index`: its check word until the record is complete.
    #[inline(always)]
    pub(crate) const fn pending(self, index: u32) -> u64 {
        fold((index as u64) ^ self.mask ^ PENDING, self.factor) & !1
    }

    /// Check over the fields of log record `index`: sequence number, prefixes, and `place`: how many
    /// bytes the prefixes leave out, and the node that has the keys.
    #[inline(always)]
    pub(crate) const fn record(
        self,
        index: u32,
        sequence: u64,
        [start, end]: [u64; 2],
        place: u64,
    ) -> u64 {
        let place = (index as u64).wrapping_mul(STRIDE) ^ RECORD ^ place;
        (fold(start ^ self.mask, end ^ self.factor)
            ^ fold(sequence ^ self.factor.rotate_left(32), place ^ self.mask).rotate_left(21))
            | 1
    }

    /// Check over the piece at `position` of a node. It covers where the piece begins and where the
    /// next one begins.
    #[inline(always)]
    pub(crate) fn piece(
        self,
        Cover { records, skip }: Cover,
        position: u64,
        [prefix, next]: [u64; 2],
        refs: u64,
    ) -> u32 {
        let place = (records ^ PIECE ^ (skip as u64) << SKIP_SHIFT)
            .wrapping_add(position.wrapping_mul(STRIDE));
        let mixed = fold(
            prefix ^ self.mask,
            next ^ self.factor ^ place.rotate_left(17),
        ) ^ fold(refs ^ self.factor, self.mask ^ place).rotate_left(32);
        halved(mixed)
    }

    /// Extends the digest of a node's pieces by one piece.
    #[inline(always)]
    pub(crate) const fn digest(self, so_far: u64, prefix: u64, refs: u64) -> u64 {
        fold(so_far ^ prefix ^ self.mask, refs ^ self.factor).rotate_left(5)
            ^ so_far.wrapping_mul(STRIDE)
    }

    /// Check over the head of a node.
    #[inline(always)]
    pub(crate) const fn head(self, cover: u64, words: &[u64; 6]) -> u64 {
        fold(words[0] ^ self.mask, words[1] ^ self.factor)
            ^ fold(words[2] ^ self.factor, words[3] ^ self.mask).rotate_left(21)
            ^ fold(words[4] ^ self.mask ^ HEAD, words[5] ^ self.factor ^ cover).rotate_left(42)
            ^ fold(cover ^ self.mask, self.factor ^ HEAD)
    }

    /// Begins the check of a common prefix of `len` bytes.
    #[inline(always)]
    pub(crate) const fn common_prefix(self, len: u64) -> u64 {
        fold(len ^ self.mask ^ COMMON_PREFIX, self.factor)
    }

    /// Extends the check of a common prefix by one word.
    #[inline(always)]
    pub(crate) const fn common_prefix_word(self, so_far: u64, word: u64) -> u64 {
        fold(so_far ^ word, self.factor ^ COMMON_PREFIX)
    }

    /// Check over a counter: which one it is, and its value in the low half.
    #[inline(always)]
    pub(crate) const fn counter(self, value: u64) -> u32 {
        halved(fold(value ^ self.mask, self.factor ^ COUNTER))
    }
}
