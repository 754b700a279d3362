//! The check values of everything that the tombstone index stores, in one file that shows what each check covers.
//!
//! ```text
//!   common prefix  length, bytes                       bound to the table             64 bits
//!   log record     sequence, prefixes, what they omit  bound to its index             63 bits
//!   its keys       place, lengths                      bound to its index             32 bits
//!   log key        bytes                               bound to its place             64 bits
//!   piece          both prefixes, what they omit,
//!                  who starts and paints               bound to node and position     32 bits
//!   node head      bounds, counts, digest of pieces    bound to what the node covers  64 bits
//!   counter        value                               bound to which counter it is   32 bits
//! ```
//! * CHECKS-1: all are bound to the table's secret, so words of another table or an earlier life fail.
//! * CHECKS-2: a correct check is zero only by chance, so zeroed memory fails.
//! * CHECKS-3: the check of a record is odd and the pending mark is even, so a record that is being written never
//!   passes.
//!
//! Pure functions; any thread. Not promised: resistance against somebody who knows the secret.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::integrity::hash::{fold, hash, splitmix};
use crate::integrity::tag::Secret;

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const PENDING: u64 = splitmix(401);
const RECORD: u64 = splitmix(402);
const KEY: u64 = splitmix(403);
const KEYS: u64 = splitmix(407);
const PIECE: u64 = splitmix(404);
const HEAD: u64 = splitmix(405);
const COUNTER: u64 = splitmix(406);
const COMMON_PREFIX: u64 = splitmix(408);
/// The bits from here on of a packed word say how many bytes its prefixes leave out.
pub(crate) const SKIP_SHIFT: u32 = 56;
const SKIP_BITS: u64 = 0xff << SKIP_SHIFT;

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
    mask: u64,
    factor: u64,
}

impl Checks {
    pub(crate) const fn new(secret: Secret) -> Self {
        Checks { mask: secret.mask, factor: secret.factor }
    }

    /// The pending mark of log record `index`: its check word until the record is complete.
    #[inline(always)]
    pub(crate) const fn pending(self, index: u32) -> u64 {
        fold((index as u64) ^ self.mask ^ PENDING, self.factor) & !1
    }

    /// Check over the fields of log record `index` that decide most queries: sequence number, prefixes, and how many
    /// bytes these leave out, which is part of `lengths`.
    #[inline(always)]
    pub(crate) const fn record(self, index: u32, words: &[u64; 3], lengths: u64) -> u64 {
        let place = (index as u64).wrapping_mul(STRIDE) ^ RECORD ^ (lengths & SKIP_BITS);
        (fold(words[1] ^ self.mask, words[2] ^ self.factor)
            ^ fold(words[0] ^ self.factor.rotate_left(32), place ^ self.mask).rotate_left(21))
            | 1
    }

    /// Check over place and lengths of the keys of log record `index`.
    #[inline(always)]
    pub(crate) const fn keys(self, index: u32, place: u32, lengths: u64) -> u32 {
        let spot = ((index as u64) << 32 | place as u64) ^ KEYS;
        halved(fold(spot ^ self.mask, lengths ^ self.factor))
    }

    /// Check over key bytes stored at word `offset` of the key store.
    #[inline(always)]
    pub(crate) fn key(self, offset: u32, bytes: &[u8]) -> u64 {
        hash(bytes, self.mask ^ KEY ^ u64::from(offset).wrapping_mul(STRIDE))
    }

    /// Check over the piece at `position` of a node. It covers where the piece begins and where the next one begins.
    #[inline(always)]
    pub(crate) fn piece(
        self,
        Cover { records, skip }: Cover,
        position: u64,
        [prefix, next]: [u64; 2],
        refs: u64,
    ) -> u32 {
        let place =
            (records ^ PIECE ^ (skip as u64) << SKIP_SHIFT).wrapping_add(position.wrapping_mul(STRIDE));
        let mixed = fold(prefix ^ self.mask, next ^ self.factor ^ place.rotate_left(17))
            ^ fold(refs ^ self.factor, self.mask ^ place).rotate_left(32);
        halved(mixed)
    }

    /// Extends the digest of a node's pieces by one piece.
    #[inline(always)]
    pub(crate) const fn digest(self, so_far: u64, prefix: u64, refs: u64) -> u64 {
        fold(so_far ^ prefix ^ self.mask, refs ^ self.factor).rotate_left(5) ^ so_far.wrapping_mul(STRIDE)
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

    /// Check over counter `which`.
    #[inline(always)]
    pub(crate) const fn counter(self, which: u32, value: u32) -> u32 {
        let mixed = fold(((which as u64) << 32 | value as u64) ^ self.mask, self.factor ^ COUNTER);
        halved(mixed)
    }
}

/// Folds both halves of 64 bits into 32.
#[inline(always)]
const fn halved(mixed: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into the check")]
    let check = (mixed ^ (mixed >> 32)) as u32;
    check
}

pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cold]
pub(crate) fn damage(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Fragment, offset, expected, found)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// CHECKS-3, and every function once more: sums and divisions in place of bits and shifts.
    #[test]
    fn checks_are_what_their_formulas_say() {
        for n in (0..200).step_by(10) {
            let w = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| splitmix(n + at));
            let checks = Checks::new(Secret::from_seed(n));
            let (mask, factor, index, place) = (checks.mask, checks.factor, low(w[6]), low(w[7]));
            let both = u64::from(high(w[5])) * (1 << 32) + u64::from(low(w[5]));
            assert_eq!((pair(high(w[5]), low(w[5])), both), (w[5], w[5]));
            let half = |mixed: u64| low(mixed) ^ high(mixed);
            let pending = fold(u64::from(index) ^ mask ^ PENDING, factor);
            assert_eq!(checks.pending(index), pending - pending % 2);
            let where_from = u64::from(index).wrapping_mul(STRIDE) ^ RECORD ^ (w[3] >> 56 << 56);
            let record = fold(w[1] ^ mask, w[2] ^ factor)
                ^ fold(w[0] ^ factor.rotate_left(32), where_from ^ mask).rotate_left(21);
            assert_eq!(checks.record(index, &[w[0], w[1], w[2]], w[3]), record / 2 * 2 + 1);
            let spot = u64::from(index) * (1 << 32) + u64::from(place);
            assert_eq!(checks.keys(index, place, w[3]), half(fold(spot ^ KEYS ^ mask, w[3] ^ factor)));
            let seed = mask ^ KEY ^ u64::from(place).wrapping_mul(STRIDE);
            assert_eq!(checks.key(place, &w[0].to_le_bytes()), hash(&w[0].to_le_bytes(), seed));
            let cover = Cover { records: w[4], skip: index % 256 };
            let turned =
                (w[4] ^ PIECE ^ (u64::from(index % 256) << 56)).wrapping_add(w[3].wrapping_mul(STRIDE));
            let piece = fold(w[0] ^ mask, w[1] ^ factor ^ turned.rotate_left(17))
                ^ fold(w[2] ^ factor, mask ^ turned).rotate_left(32);
            assert_eq!(checks.piece(cover, w[3], [w[0], w[1]], w[2]), half(piece));
            let digest = fold(w[0] ^ w[1] ^ mask, w[2] ^ factor).rotate_left(5);
            assert_eq!(checks.digest(w[0], w[1], w[2]), digest ^ w[0].wrapping_mul(STRIDE));
            let head = fold(w[0] ^ mask, w[1] ^ factor)
                ^ fold(w[2] ^ factor, w[3] ^ mask).rotate_left(21)
                ^ fold(w[4] ^ mask ^ HEAD, w[5] ^ factor ^ w[6]).rotate_left(42);
            assert_eq!(
                checks.head(w[6], &[w[0], w[1], w[2], w[3], w[4], w[5]]),
                head ^ fold(w[6] ^ mask, factor ^ HEAD)
            );
            assert_eq!(checks.common_prefix(w[0]), fold(w[0] ^ mask ^ COMMON_PREFIX, factor));
            assert_eq!(checks.common_prefix_word(w[0], w[1]), fold(w[0] ^ w[1], factor ^ COMMON_PREFIX));
            assert_eq!(checks.counter(index, place), half(fold(spot ^ mask, factor ^ COUNTER)));
        }
    }
}
