//! Tags: small checks over links and headers, which every protection level has.
//!
//! ```text
//!   link       target offset (32) | tag (32)
//!   back word  target offset (32) | tag (16) | header check (16)
//!
//!   tag = mix(slot, level, target, secret)
//!   header check = fold(F)     F = mix(lengths, sequence, revision, offset, secret)
//! ```
//! A tag is bound to the slot of the link, its level, its target and the table's secret. A zeroed
//! word, a flipped bit, a word copied from another place, or a word that an earlier table left in
//! this memory passes with probability 2^-32 (2^-16 for the tags of 16 bits). A link without a
//! target has a tag too.
//!
//! Pure functions; any thread.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "halves of a word are folded together"
)]

use crate::integrity::digest::FixedFields;
use crate::integrity::hash::{fold, halved, splitmix};
use crate::key::SequenceNumber;

/// Spreads the bits of a node's place and revision; odd.
const SPREAD: u64 = splitmix(110) | 1;

/// The secret of a table, which its tags, checks and digests contain. Each table has another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret {
    /// XORed into the words that are tagged.
    pub(crate) mask: u64,
    /// The odd number by which the result is multiplied.
    pub(crate) factor: u64,
}

impl Secret {
    /// The secret that belongs to a seed: a pure function.
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Secret {
            mask: splitmix(seed ^ 0x6c69_6e6b),
            factor: splitmix(seed ^ 0x7461_6773) | 1,
        }
    }

    /// The seed of tower heights.
    #[inline(always)]
    pub(crate) const fn height_seed(self) -> u64 {
        self.mask.rotate_left(23) ^ self.factor
    }

    /// Tag of the link of `level` in `slot` that names `target`. Slot and target are in arena
    /// units; target 0 is none.
    #[inline(always)]
    pub(crate) const fn link_tag(self, slot: u32, level: u32, target: u32) -> u32 {
        let place = ((slot as u64) << 32) | target as u64;
        let factor = self
            .factor
            .wrapping_add((level as u64).wrapping_mul(0xd1b5_4a32_d192_ed02));
        halved(fold(place ^ self.mask, factor))
    }

    /// Tag of the back link of the node at `node` that names `target`.
    #[inline(always)]
    pub(crate) const fn back_tag(self, node: u32, target: u32) -> u16 {
        self.link_tag(node, u32::MAX, target) as u16
    }

    /// F of the node at `node`, with its sequence number, and the check over its header.
    #[inline(always)]
    pub(crate) fn header(
        self,
        node: u32,
        lengths: u64,
        sequence: SequenceNumber,
        revision: u32,
    ) -> (FixedFields, u16) {
        let header_part = self.header_part(node, lengths, sequence, revision);
        (
            FixedFields::new(sequence, header_part),
            halved(header_part) as u16,
        )
    }

    /// F of the node at `node`: a digest over its place and its header. Both digests of an entry
    /// rest on it alone for sequence number, kind and lengths. The multiply spreads the place: bits
    /// of sequence number and revision that flip together do not cancel out.
    #[inline(always)]
    pub(crate) const fn header_part(
        self,
        node: u32,
        lengths: u64,
        sequence: u64,
        revision: u32,
    ) -> u64 {
        let place = ((node as u64) << 32) | revision as u64;
        fold(
            lengths ^ self.mask,
            sequence ^ place.wrapping_mul(SPREAD) ^ self.factor,
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tags_notice_each_part() {
        let secret = Secret::from_seed(1);
        let tag = secret.link_tag(1000, 2, 5000);
        for bit in 0..32 {
            assert_ne!(tag, secret.link_tag(1000 ^ (1 << bit), 2, 5000));
            assert_ne!(tag, secret.link_tag(1000, 2, 5000 ^ (1 << bit)));
        }
        for level in (0..24).filter(|&level| level != 2) {
            assert_ne!(tag, secret.link_tag(1000, level, 5000));
        }
        assert_ne!(tag, Secret::from_seed(2).link_tag(1000, 2, 5000));
        assert_ne!(secret.link_tag(1000, 0, 0), 0);
    }

    /// Seeds that differ in one bit have unrelated secrets: no part repeats, and half of all bits
    /// are set.
    #[test]
    fn secrets_differ_with_every_bit_of_their_seed() {
        let seeds = std::iter::once(0)
            .chain((0..64).map(|bit| 1 << bit))
            .map(Secret::from_seed);
        let secrets: Vec<Secret> = seeds.collect();
        let parts: [fn(&Secret) -> u64; 3] = [|it| it.mask, |it| it.factor, |it| it.height_seed()];
        for part in parts {
            let mut parts: Vec<u64> = secrets.iter().map(part).collect();
            let ones: u32 = parts.iter().map(|part| part.count_ones()).sum();
            assert!(
                (1900..2260).contains(&ones),
                "{ones} of {} bits",
                64 * parts.len()
            );
            parts.sort_unstable();
            parts.dedup();
            assert_eq!(parts.len(), secrets.len());
        }
        assert!(
            secrets
                .iter()
                .all(|secret| secret.factor % 2 == 1 && secret.mask != secret.factor)
        );
    }

    /// Tags and header checks agree with their formulas, written with sums and products.
    #[test]
    fn tags_are_what_their_formulas_say() {
        for seed in 0..200 {
            let (secret, [a, b, c, d]) = (
                Secret::from_seed(seed),
                [1, 2, 3, 4].map(|n| splitmix(seed * 8 + n)),
            );
            let (slot, target, level) = (a % (1 << 32), b % (1 << 32), (c % 30) as u32);
            let words = (
                slot * (1 << 32) + target,
                u64::from(level).wrapping_mul(0xd1b5_4a32_d192_ed02),
            );
            let mixed = fold(words.0 ^ secret.mask, secret.factor.wrapping_add(words.1));
            let halves = (mixed % (1 << 32), mixed / (1 << 32));
            assert_eq!(
                u64::from(secret.link_tag(slot as u32, level, target as u32)),
                halves.0 ^ halves.1
            );
            let (node, next) = (slot as u32, target as u32);
            assert_eq!(
                secret.back_tag(node, next),
                secret.link_tag(node, u32::MAX, next) as u16
            );
            let place = (slot * (1 << 32) + target).wrapping_mul(splitmix(110) | 1);
            let part = secret.header_part(node, c, d, next);
            assert_eq!(part, fold(secret.mask ^ c, secret.factor ^ place ^ d));
            let pieces = (part % (1 << 16), part / (1 << 32) % (1 << 16));
            assert_eq!(
                u64::from(secret.header(node, c, d, next).1),
                pieces.0 ^ pieces.1
            );
        }
    }
}
