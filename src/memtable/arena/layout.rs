//! The byte map of a node.
//!
//! ```text
//!   low addresses                                                                       high
//!   [link h-1] .. [link 0] | 0 lengths | 8 sequence | 16 back word | 24 revision | 28 digests |
//!                          ^ node address, a multiple of 8                  | key | value
//!
//!   lengths    value length (32) | kind (8) | key length (24)
//!   back word  target (32) | tag (16) | header check (16)
//!   digests    key digest, value digest: `protection bytes` each
//! ```
//! * LAYOUT-1: after publication, a node changes only in its links and in the upper 48 bits of its
//!   back word.
//! * LAYOUT-2: the level-0 link of a node and the back word of every node that the link ever names
//!   are in different cache lines: units are left free before the node that is built later. The
//!   back word of a sentinel shares its line with no other word.
//!
//! An arena unit is 8 bytes, so offsets of 32 bits reach 32 GiB. A chunk starts at a cache line of
//! 64 bytes and at a multiple of 8 units, so the cache line of a unit is its offset / 8.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

/// Bytes of an arena unit.
pub(crate) const UNIT: usize = 8;
/// Levels of the tallest tower. With branching e, they serve e^20 = 4.8e8 entries at full speed.
#[cfg(not(loom))]
pub(crate) const HEIGHT_MAX: usize = 20;
/// Levels of the tallest tower in a model.
#[cfg(loom)]
pub(crate) const HEIGHT_MAX: usize = 2;
/// Bytes of the fixed part, before the digests.
pub(crate) const HEADER: usize = 28;
/// Offset of the sequence number.
pub(crate) const SEQUENCE_AT: usize = 8;
/// Offset of the back word.
pub(crate) const BACK_AT: usize = 16;
/// Units from a node to its back word.
pub(crate) const BACK_UNITS: u32 = (BACK_AT / UNIT) as u32;
/// Units of a cache line.
pub(crate) const LINE_UNITS: u32 = 8;
/// Offset of the revision.
pub(crate) const REVISION_AT: usize = 24;
/// Longest key, in bytes.
pub(crate) const KEY_LEN_MAX: u64 = (1 << 24) - 1;
/// Longest value, in bytes.
pub(crate) const VALUE_LEN_MAX: u64 = (1 << 32) - 1;

const _: () = assert!(
    BACK_AT.is_multiple_of(UNIT) && SEQUENCE_AT.is_multiple_of(UNIT) && HEADER == REVISION_AT + 4
);

/// Most units that are left free before a node, if its writer owns the units after it. A link that
/// shares a line with the back word of an earlier node comes at least two units after that word, so
/// at most six units lead to the next line.
pub(crate) const PAD_UNITS_MAX: u32 = LINE_UNITS - 2;

/// The most arena bytes that an entry of these lengths takes, for any height, place and number of
/// protection bytes. `u64::MAX` if the sum of the lengths overflows.
pub(crate) const fn entry_bytes_max(key_len: u64, value_len: u64) -> u64 {
    let fixed = ((HEIGHT_MAX + PAD_UNITS_MAX as usize) * UNIT + HEADER + 16) as u64;
    let bytes = fixed.saturating_add(key_len).saturating_add(value_len);
    match bytes.checked_next_multiple_of(UNIT as u64) {
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}
