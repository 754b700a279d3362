//! The checks of all words that the tombstone index stores, and what each check covers.
//!
//! ```text
//!   common prefix  length, bytes                       bound to the table             64 bits
//!   log record     sequence, prefixes, bytes left out,
//!                  node                                bound to its index             63 bits
//!   piece          both prefixes, bytes left out,
//!                  name of its start, painter          bound to node and position     32 bits
//!   node head      bounds, counts, digest of pieces    bound to what the node covers  64 bits
//!   counter        value                               bound to which counter it is   32 bits
//! ```
//! All checks are bound to the table's secret, so words that another table left in this memory
//! fail. A correct check is zero only by chance, so zeroed memory fails.
//!
//! Pure functions; any thread. The checks do not resist an attacker who knows the secret.

#![forbid(unsafe_code)]

use crate::integrity::hash::{fold, halved, splitmix};
use crate::integrity::tag::Secret;

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const PENDING: u64 = splitmix(401);
const RECORD: u64 = splitmix(402);
const PIECE: u64 = splitmix(404);
const HEAD: u64 = splitmix(405);
const COUNTER: u64 = splitmix(406);
const COMMON_PREFIX: u64 = splitmix(408);
/// The highest bits of a packed word, from this one on, are the number of bytes that prefixes leave
/// out.
pub(crate) const SKIP_SHIFT: u32 = 56;

/// The node to which the checks of pieces are bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover {
    /// The first record that the node covers (32) | the end of these records (32).
    pub(crate) records: u64,
    /// Number of bytes that the prefixes of the node leave out.
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
        Checks {
            mask: secret.mask,
            factor: secret.factor,
        }
    }

    /// The pending mark of log record `index`: its check word until the record is complete. It is
    /// even, and the check of a record is odd, so a record that is being written never verifies.
    #[inline(always)]
    pub(crate) const fn pending(self, index: u32) -> u64 {
        fold((index as u64) ^ self.mask ^ PENDING, self.factor) & !1
    }

    /// Check over the fields of log record `index`: sequence number, prefixes, and `place`, which
    /// is the number of bytes that the prefixes leave out and the name of the node that has the
    /// keys.
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

    /// Check over the piece at `position` of a node: the prefixes where this piece and the next one
    /// begin, and `refs`, the name of its boundary and its painter.
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

    /// Check over a counter: `value` has the number of the counter in its high half, and the
    /// counter's value in its low half.
    #[inline(always)]
    pub(crate) const fn counter(self, value: u64) -> u32 {
        halved(fold(value ^ self.mask, self.factor ^ COUNTER))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(
    clippy::cast_possible_truncation,
    reason = "tests cut numbers down to their fields"
)]
mod tests {
    use super::*;

    /// Every check again, with sums and divisions in place of bits and shifts.
    #[test]
    fn checks_are_what_their_formulas_say() {
        for n in (0..200).step_by(10) {
            let w = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| splitmix(n + at));
            let checks = Checks::new(Secret::from_seed(n));
            let (mask, factor, index, place) =
                (checks.mask, checks.factor, w[6] as u32, w[7] as u32);
            let half = |mixed: u64| (mixed as u32) ^ (mixed / (1 << 32)) as u32;
            let pending = fold(u64::from(index) ^ mask ^ PENDING, factor);
            assert_eq!(checks.pending(index), pending - pending % 2);
            let where_from = u64::from(index).wrapping_mul(STRIDE) ^ RECORD ^ (w[3]);
            let record = fold(w[1] ^ mask, w[2] ^ factor)
                ^ fold(w[0] ^ factor.rotate_left(32), where_from ^ mask).rotate_left(21);
            assert_eq!(
                checks.record(index, w[0], [w[1], w[2]], w[3]),
                record / 2 * 2 + 1
            );
            let span = u64::from(index) * (1 << 32) + u64::from(place);
            let cover = Cover {
                records: w[4],
                skip: index % 256,
            };
            let turned = (w[4] ^ PIECE ^ (u64::from(index % 256) << 56))
                .wrapping_add(w[3].wrapping_mul(STRIDE));
            let piece = fold(w[0] ^ mask, w[1] ^ factor ^ turned.rotate_left(17))
                ^ fold(w[2] ^ factor, mask ^ turned).rotate_left(32);
            assert_eq!(checks.piece(cover, w[3], [w[0], w[1]], w[2]), half(piece));
            let digest = fold(w[0] ^ w[1] ^ mask, w[2] ^ factor).rotate_left(5);
            assert_eq!(
                checks.digest(w[0], w[1], w[2]),
                digest ^ w[0].wrapping_mul(STRIDE)
            );
            let head = fold(w[0] ^ mask, w[1] ^ factor)
                ^ fold(w[2] ^ factor, w[3] ^ mask).rotate_left(21)
                ^ fold(w[4] ^ mask ^ HEAD, w[5] ^ factor ^ w[6]).rotate_left(42);
            assert_eq!(
                checks.head(w[6], &[w[0], w[1], w[2], w[3], w[4], w[5]]),
                head ^ fold(w[6] ^ mask, factor ^ HEAD)
            );
            assert_eq!(
                checks.common_prefix(w[0]),
                fold(w[0] ^ mask ^ COMMON_PREFIX, factor)
            );
            assert_eq!(
                checks.common_prefix_word(w[0], w[1]),
                fold(w[0] ^ w[1], factor ^ COMMON_PREFIX)
            );
            assert_eq!(
                checks.counter(span),
                half(fold(span ^ mask, factor ^ COUNTER))
            );
        }
    }
}
