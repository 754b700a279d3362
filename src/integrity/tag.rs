//! Tags: small checks over links and headers. They do not depend on the protection level.
//!
//! ```text
//!   link       target offset (32) | tag (32)                       tag   = mix(slot, level, target, secret)
//!   back word  target offset (32) | tag (16) | header check (16)   check = fold(F), F = mix(lengths, sequence, revision, offset, secret)
//! ```
//! * TAG-1: a tag is bound to the slot it stands in, the level it serves and the target it names; a
//!   word copied from anywhere else, a zeroed word or a flipped bit fails with probability 1 - 2^-32
//!   (2^-16 for the short ones).
//! * TAG-2: a link that names no target carries a tag like any other.
//! * TAG-3: each table has another secret, so words that an earlier table left in the memory fail.
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
        Secret {
            mask: splitmix(seed ^ 0x6c69_6e6b),
            factor: splitmix(seed ^ 0x7461_6773) | 1,
        }
    }

    /// The seed of tower heights (TAG-3).
    #[inline(always)]
    pub(crate) const fn height_seed(self) -> u64 {
        self.mask.rotate_left(23) ^ self.factor
    }

    /// Tag of a link that stands at `slot` (arena units), serves `level` and names `target` (arena
    /// units, 0 = none).
    #[inline(always)]
    pub(crate) const fn link_tag(self, slot: u32, level: u32, target: u32) -> u32 {
        let place = ((slot as u64) << 32) | target as u64;
        let factor = self
            .factor
            .wrapping_add((level as u64).wrapping_mul(0xd1b5_4a32_d192_ed02));
        halved(fold(place ^ self.mask, factor))
    }

    /// Tag of a back link of the node at `node` that names `target`.
    #[inline(always)]
    pub(crate) const fn back_tag(self, node: u32, target: u32) -> u16 {
        self.link_tag(node, u32::MAX, target) as u16
    }

    /// What both digests have of the header of the node at `node`, and the check over this header.
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

    /// The digest part F of the node at `node`: its place and its header.
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
            sequence ^ place.rotate_left(7) ^ self.factor,
        )
    }
}
