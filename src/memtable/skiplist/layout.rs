//! The byte map of a node.
//!
//! ```text
//!   low addresses                                                                              high
//!   [link h-1] ... [link 1] [link 0] | 0 lengths | 8 sequence | 16 back word | 24 revision | 28 digests | key | value
//!                                    ^ node address, a multiple of 8
//!
//!   lengths    value length (32) | kind (8) | key length (24)
//!   back word  target (32) | tag (16) | header check (16)
//!   digests    key digest, value digest: `protection bytes` each
//! ```
//! * LAYOUT-1: everything but the links and the upper 48 bits of the back word is immutable once the node is published.
//! * LAYOUT-2: lengths and offsets have explicit widths; an arena unit is 8 bytes, so 32 bits reach 32 GiB.
//! * LAYOUT-3: a chunk starts at a cache line of 64 bytes and at a multiple of 8 units, so a unit's line is its
//!   offset / 8. The level-0 link of a node and the back word of a node that it ever named lie in two lines: units
//!   are left free before the one that is built later. A sentinel's back word has a line without any other word.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::integrity::digest::Width;
use crate::integrity::hash::mix;
use crate::key::Kind;

/// Bytes of an arena unit.
pub(crate) const UNIT: usize = 8;
/// Tallest tower. With branching e this serves e^20 = 4.8e8 entries at full speed.
#[cfg(not(loom))]
pub(crate) const HEIGHT_MAX: usize = 20;
/// Tallest tower in a model.
#[cfg(loom)]
pub(crate) const HEIGHT_MAX: usize = 2;
/// Bytes of the fixed part, before the digests.
pub(crate) const HEADER: usize = 28;
/// Offset of the sequence number.
pub(crate) const SEQUENCE_AT: usize = 8;
/// Offset of the back word.
pub(crate) const BACK_AT: usize = 16;
/// From a node to its back word, in units.
pub(crate) const BACK_UNITS: u32 = (BACK_AT / UNIT) as u32;
/// Units of a cache line.
pub(crate) const LINE_UNITS: u32 = 8;
/// Offset of the revision.
pub(crate) const REVISION_AT: usize = 24;
/// Longest key, in bytes.
pub(crate) const KEY_LEN_MAX: u64 = (1 << 24) - 1;
/// Longest value, in bytes.
pub(crate) const VALUE_LEN_MAX: u64 = (1 << 32) - 1;

const _: () =
    assert!(BACK_AT.is_multiple_of(UNIT) && SEQUENCE_AT.is_multiple_of(UNIT) && HEADER == REVISION_AT + 4);

/// Key length, kind and value length in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths(pub(crate) u64);

impl Lengths {
    /// Packs; the caller has checked both limits.
    #[inline(always)]
    pub(crate) const fn pack(key_len: usize, kind: Kind, value_len: usize) -> Self {
        Lengths((value_len as u64) << 32 | (kind.as_u8() as u64) << 24 | (key_len as u64 & KEY_LEN_MAX))
    }

    /// Key length in bytes.
    #[inline(always)]
    pub(crate) const fn key_len(self) -> usize {
        (self.0 & KEY_LEN_MAX) as usize
    }

    /// The kind.
    #[inline(always)]
    pub(crate) const fn kind(self) -> Kind {
        Kind::from_u8((self.0 >> 24) as u8)
    }

    /// Value length in bytes.
    #[inline(always)]
    pub(crate) const fn value_len(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// Offset of the key from the node address, in bytes.
#[inline(always)]
pub(crate) const fn key_at(width: Width) -> usize {
    HEADER + 2 * width.bytes()
}

/// Bytes from the node address to the end of the entry.
#[inline(always)]
pub(crate) const fn entry_end(width: Width, lengths: Lengths) -> usize {
    key_at(width) + lengths.key_len() + lengths.value_len()
}

/// Units of a whole node with its tower.
#[inline(always)]
pub(crate) const fn node_units(width: Width, lengths: Lengths, height: u32) -> u64 {
    height as u64 + entry_end(width, lengths).div_ceil(UNIT) as u64
}

/// Whether a node between `pred` and `succ` keeps LAYOUT-3: pred's link and the node's back word are in different
/// cache lines, and so are the node's link and succ's back word.
#[inline(always)]
pub(crate) const fn stand_apart(pred: u32, node: u32, succ: u32) -> bool {
    let own = node.wrapping_add(BACK_UNITS) ^ pred.wrapping_sub(1);
    let next = succ.wrapping_add(BACK_UNITS) ^ node.wrapping_sub(1);
    own >= LINE_UNITS && next >= LINE_UNITS
}

/// Most units that are left free before a node whose writer owns the units after it: its link stands at least two
/// units after the back word of a node that was written before it, in the same line.
pub(crate) const PAD_UNITS_MAX: u32 = LINE_UNITS - 2;

/// The most arena bytes that an entry of these lengths takes, at any height, place and protection. `u64::MAX` if the
/// sum of the lengths overflows.
pub(crate) const fn entry_bytes_max(key_len: u64, value_len: u64) -> u64 {
    let fixed = ((HEIGHT_MAX + PAD_UNITS_MAX as usize) * UNIT + HEADER + 16) as u64;
    let bytes = fixed.saturating_add(key_len).saturating_add(value_len);
    match bytes.checked_next_multiple_of(UNIT as u64) {
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}

/// Number of units to leave free before a node, so that it stands apart (LAYOUT-3): 0 for most nodes.
#[cold]
pub(crate) fn pad_units(pred: u32, node: u32, succ: u32) -> u32 {
    (0..2 * LINE_UNITS).find(|pad| stand_apart(pred, node.wrapping_add(*pad), succ)).unwrap_or(0)
}

/// A back word's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackWord(pub(crate) u64);

impl BackWord {
    /// Packs.
    #[inline(always)]
    pub(crate) const fn pack(target: u32, tag: u16, header_check: u16) -> Self {
        BackWord((target as u64) << 32 | (tag as u64) << 16 | header_check as u64)
    }

    /// The node named.
    #[inline(always)]
    pub(crate) const fn target(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The tag over the target.
    #[inline(always)]
    pub(crate) const fn tag(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The check over the node's own header.
    #[inline(always)]
    pub(crate) const fn header_check(self) -> u16 {
        self.0 as u16
    }
}

// Tower heights: branching e, a pure function of the table's seed, the key's hash, the sequence number and the
// revision.
//
// * HEIGHT-1: the same (seed, key, sequence, revision) always gets the same height, so a run replays and a scrub can
//   recompute it. Entries that replace each other differ in their revisions: a search passes them on upper levels.
// * HEIGHT-2: P(height > n) = e^-n. Branching e visits a tenth fewer nodes than branching 4 (measured in pairs).

/// Element n is e^-(n+1) as a fraction of 2^64.
const THRESHOLDS: [u64; HEIGHT_MAX - 1] = {
    let mut thresholds = [0; HEIGHT_MAX - 1];
    // 2^64 / e, then by e again and again; integer division keeps 40 significant bits at the top of a short tower.
    let mut n = 0;
    let mut value: u128 = (u64::MAX as u128) << 32;
    while n < thresholds.len() {
        value = value * 1_000_000_000 / 2_718_281_828;
        #[expect(clippy::cast_possible_truncation, reason = "below 2^64 after the shift")]
        let threshold = (value >> 32) as u64;
        thresholds[n] = threshold;
        n += 1;
    }
    thresholds
};

/// How tall towers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Towers {
    /// One node in e is taller than another level.
    Dense,
    /// One node in e^5 = 148 has more than level 0: a directory leads to the others.
    Sparse,
}

/// Levels that a sparse tower lacks.
const SPARSE_BY: u32 = 4;

impl Towers {
    /// About how many entries one node of a level represents.
    pub(crate) fn entries_for_one(self, level: u32) -> f64 {
        match self {
            Towers::Sparse if level > 0 => f64::from(level + SPARSE_BY).exp(),
            _ => f64::from(level).exp(),
        }
    }

    /// The height of a node, 1..=HEIGHT_MAX.
    #[inline(always)]
    pub(crate) fn height(self, seed: u64, key_part: u64, sequence: u64, revision: u32) -> u32 {
        let height = tower_height(seed, key_part, sequence, revision);
        match self {
            Towers::Dense => height,
            Towers::Sparse => height.saturating_sub(SPARSE_BY).max(1),
        }
    }
}

/// The height of a node in dense towers.
#[inline(always)]
fn tower_height(seed: u64, key_part: u64, sequence: u64, revision: u32) -> u32 {
    let version = sequence.wrapping_add(u64::from(revision) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let draw = mix(key_part ^ version, seed);
    let mut height = 1;
    for threshold in THRESHOLDS {
        if draw >= threshold {
            break;
        }
        height += 1;
    }
    height
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::integrity::digest::key_part;

    #[test]
    fn heights_fall_by_e() {
        let mut counts = [0u32; HEIGHT_MAX + 2];
        for n in 0u64..200_000 {
            let height = tower_height(77, key_part(&n.to_be_bytes()), n, 0);
            for level in 1..=height {
                counts[level as usize] += 1;
            }
        }
        assert_eq!(counts[1], 200_000);
        for level in 1..6 {
            let ratio = f64::from(counts[level]) / f64::from(counts[level + 1]);
            assert!((2.5..2.95).contains(&ratio), "level {level}: {ratio}");
        }
    }
}
