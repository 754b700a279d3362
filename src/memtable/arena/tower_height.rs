//! The height of a node's tower: a pure function of the table's seed, the key's hash, the sequence
//! number and the revision. So a run replays, and a scrub recomputes each height.
//!
//! The probability of a height above n is e^-n. With branching e, a search visits a tenth fewer
//! nodes than with branching 4 (measured in pairs). Entries that replace each other differ in their
//! revisions. So each has a height of its own, and a search passes most of them on upper levels.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::integrity::hash::mix;
use crate::integrity::tag::Secret;
use crate::memtable::arena::layout::HEIGHT_MAX;

/// Element n is e^-(n+1) as a fraction of 2^64.
const THRESHOLDS: [u64; HEIGHT_MAX - 1] = {
    let mut thresholds = [0; HEIGHT_MAX - 1];
    // Each step divides by e. The 32 extra bits keep rounding errors out of the result.
    let mut n = 0;
    let mut value: u128 = (u64::MAX as u128) << 32;
    while n < thresholds.len() {
        value = value * 1_000_000_000 / 2_718_281_828;
        thresholds[n] = (value >> 32) as u64;
        n += 1;
    }
    thresholds
};

/// The share of nodes that have a tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Towers {
    /// One node in e of each level is also on the level above.
    Dense,
    /// One node in e^5 = 148 has more than level 0. A directory leads to the others.
    Sparse,
}

/// Number of levels that a sparse tower has fewer than a dense one.
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
    pub(crate) fn height(self, secret: Secret, key_part: u64, sequence: u64, revision: u32) -> u32 {
        let height = tower_height(secret, key_part, sequence, revision);
        match self {
            Towers::Dense => height,
            Towers::Sparse => height.saturating_sub(SPARSE_BY).max(1),
        }
    }
}

/// The height of a node in dense towers.
#[inline(always)]
pub(crate) fn tower_height(secret: Secret, key_part: u64, sequence: u64, revision: u32) -> u32 {
    let version = sequence
        .wrapping_add(u64::from(revision) << 40)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let draw = mix(key_part ^ version, secret.height_seed());
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
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::key_part;

    #[test]
    fn heights_fall_by_e() {
        let mut counts = [0u32; HEIGHT_MAX + 2];
        for n in 0u64..200_000 {
            let height = tower_height(Secret::from_seed(77), key_part(&n.to_be_bytes()), n, 0);
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
