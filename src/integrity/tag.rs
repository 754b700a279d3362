//! Tags: small checks over links and headers. They do not depend on the protection level.
//!
//! ```text
//!   link       target offset (32) | tag (32)                       tag   = mix(slot, level, target, secret)
//!   back word  target offset (32) | tag (16) | header check (16)   check = fold(F), F = mix(lengths, sequence, revision, offset, secret)
//! ```
//! * TAG-1: a tag is bound to the slot it stands in, the level it serves and the target it names; a word copied from
//!   anywhere else, a zeroed word or a flipped bit fails with probability 1 - 2^-32 (2^-16 for the short ones).
//! * TAG-2: a link that names no target carries a tag like any other.
//! * TAG-3: each table has another secret, so words that an earlier table left in the memory fail.
//!
//! Pure functions; any thread.

#![forbid(unsafe_code)]

use crate::integrity::hash::{fold, splitmix};

/// What a table mixes into its tags and place digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret {
    /// XORed into the words that are tagged.
    pub(crate) mask: u64,
    /// The result is multiplied with this odd number.
    pub(crate) factor: u64,
}

impl Secret {
    /// A secret from a seed: a pure function.
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Secret { mask: splitmix(seed ^ 0x6c69_6e6b), factor: splitmix(seed ^ 0x7461_6773) | 1 }
    }

    /// The seed of tower heights (TAG-3).
    #[inline(always)]
    pub(crate) const fn height_seed(self) -> u64 {
        self.mask.rotate_left(23) ^ self.factor
    }

    /// Tag of a link that stands at `slot` (arena units), serves `level` and names `target` (arena units, 0 = none).
    #[inline(always)]
    pub(crate) const fn link_tag(self, slot: u32, level: u32, target: u32) -> u32 {
        let place = ((slot as u64) << 32) | target as u64;
        let factor = self.factor.wrapping_add((level as u64).wrapping_mul(0xd1b5_4a32_d192_ed02));
        let mixed = fold(place ^ self.mask, factor);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into the tag")]
        let tag = (mixed ^ (mixed >> 32)) as u32;
        tag
    }

    /// Tag of a back link of the node at `node` that names `target`.
    #[inline(always)]
    pub(crate) const fn back_tag(self, node: u32, target: u32) -> u16 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a back link is confirmed by a forward link as well"
        )]
        let tag = self.link_tag(node, u32::MAX, target) as u16;
        tag
    }

    /// The digest part F of the node at `node`: its place and its header.
    #[inline(always)]
    pub(crate) const fn header_part(self, node: u32, lengths: u64, sequence: u64, revision: u32) -> u64 {
        let place = ((node as u64) << 32) | revision as u64;
        fold(lengths ^ self.mask, sequence ^ place.rotate_left(7) ^ self.factor)
    }

    /// The check over a header, from its digest part.
    #[inline(always)]
    pub(crate) const fn header_check(header_part: u64) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "folded into the check")]
        let check = (header_part ^ (header_part >> 32)) as u16;
        check
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "tests cut numbers down to their fields")]
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

    /// Seeds that differ in one bit give secrets with nothing in common: no part repeats, and half of all bits are set.
    #[test]
    fn secrets_differ_with_every_bit_of_their_seed() {
        let seeds = std::iter::once(0).chain((0..64).map(|bit| 1 << bit)).map(Secret::from_seed);
        let secrets: Vec<Secret> = seeds.collect();
        let parts: [fn(&Secret) -> u64; 3] = [|it| it.mask, |it| it.factor, |it| it.height_seed()];
        for part in parts {
            let mut parts: Vec<u64> = secrets.iter().map(part).collect();
            let ones: u32 = parts.iter().map(|part| part.count_ones()).sum();
            assert!((1900..2260).contains(&ones), "{ones} of {} bits", 64 * parts.len());
            parts.sort_unstable();
            parts.dedup();
            assert_eq!(parts.len(), secrets.len());
        }
        assert!(secrets.iter().all(|secret| secret.factor % 2 == 1 && secret.mask != secret.factor));
    }

    /// Tags and header checks against their formulas, spelled with sums and products.
    #[test]
    fn tags_are_what_their_formulas_say() {
        for seed in 0..200 {
            let (secret, [a, b, c, d]) =
                (Secret::from_seed(seed), [1, 2, 3, 4].map(|n| splitmix(seed * 8 + n)));
            let (slot, target, level) = (a % (1 << 32), b % (1 << 32), (c % 30) as u32);
            let words = (slot * (1 << 32) + target, u64::from(level).wrapping_mul(0xd1b5_4a32_d192_ed02));
            let mixed = fold(words.0 ^ secret.mask, secret.factor.wrapping_add(words.1));
            let halves = (mixed % (1 << 32), mixed / (1 << 32));
            assert_eq!(u64::from(secret.link_tag(slot as u32, level, target as u32)), halves.0 ^ halves.1);
            let (node, next) = (slot as u32, target as u32);
            assert_eq!(secret.back_tag(node, next), secret.link_tag(node, u32::MAX, next) as u16);
            let place = (slot * (1 << 32) + target).rotate_left(7);
            let part = secret.header_part(node, c, d, next);
            assert_eq!(part, fold(secret.mask ^ c, secret.factor ^ place ^ d));
            let pieces = (part % (1 << 16), part / (1 << 32) % (1 << 16));
            assert_eq!(u64::from(Secret::header_check(part)), pieces.0 ^ pieces.1);
        }
    }
}
