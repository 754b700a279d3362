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
//! * LAYOUT-1: everything but the links and the upper 48 bits of the back word is immutable once
//!   the node is published.
//! * LAYOUT-2: lengths and offsets have explicit widths; an arena unit is 8 bytes, so 32 bits reach
//!   32 GiB.
//! * LAYOUT-3: a chunk starts at a cache line of 64 bytes and at a multiple of 8 units, so a unit's
//!   line is its offset / 8. The level-0 link of a node and the back word of a node that it ever
//!   named lie in two lines: units are left free before the one that is built later. A sentinel's
//!   back word has a line without any other word.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

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

const _: () = assert!(
    BACK_AT.is_multiple_of(UNIT) && SEQUENCE_AT.is_multiple_of(UNIT) && HEADER == REVISION_AT + 4
);

/// Most units that are left free before a node whose writer owns the units after it: its link
/// stands at least two units after the back word of a node that was written before it, in the same
/// line.
pub(crate) const PAD_UNITS_MAX: u32 = LINE_UNITS - 2;

/// The most arena bytes that an entry of these lengths takes, at any height, place and protection.
/// `u64::MAX` if the sum of the lengths overflows.
pub(crate) const fn entry_bytes_max(key_len: u64, value_len: u64) -> u64 {
    let fixed = ((HEIGHT_MAX + PAD_UNITS_MAX as usize) * UNIT + HEADER + 16) as u64;
    let bytes = fixed.saturating_add(key_len).saturating_add(value_len);
    match bytes.checked_next_multiple_of(UNIT as u64) {
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}
