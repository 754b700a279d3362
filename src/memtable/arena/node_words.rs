//! The packed words of a node, and its sizes, which follow from them. `layout.rs` has the byte map.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::integrity::digest::Width;
use crate::kind::Kind;
use crate::memtable::arena::layout::{HEADER, KEY_LEN_MAX, UNIT};

/// Key length, kind and value length in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths(pub(crate) u64);

impl Lengths {
    /// Packs the fields. The caller has compared both lengths with their limits.
    #[inline(always)]
    pub(crate) const fn pack(key_len: usize, kind: Kind, value_len: usize) -> Self {
        Lengths((value_len as u64) << 32 | (kind.0 as u64) << 24 | (key_len as u64 & KEY_LEN_MAX))
    }

    /// Key length in bytes.
    #[inline(always)]
    pub(crate) const fn key_len(self) -> usize {
        (self.0 & KEY_LEN_MAX) as usize
    }

    /// The kind.
    #[inline(always)]
    pub(crate) const fn kind(self) -> Kind {
        Kind((self.0 >> 24) as u8)
    }

    /// Value length in bytes.
    #[inline(always)]
    pub(crate) const fn value_len(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Length of key and value together, in bytes. Damaged lengths may add up to more than a
    /// `usize` of 32 bits holds.
    #[inline(always)]
    pub(crate) const fn data_len(self) -> u64 {
        self.key_len() as u64 + self.value_len() as u64
    }
}

/// Offset of the key from the node address, in bytes.
#[inline(always)]
pub(crate) const fn key_at(width: Width) -> usize {
    HEADER + 2 * width.bytes
}

/// Bytes from the node address to the end of the entry.
#[inline(always)]
pub(crate) const fn entry_end(width: Width, lengths: Lengths) -> u64 {
    key_at(width) as u64 + lengths.data_len()
}

/// Units of a node with its links.
#[inline(always)]
pub(crate) const fn node_units(width: Width, lengths: Lengths, height: u32) -> u64 {
    height as u64 + entry_end(width, lengths).div_ceil(UNIT as u64)
}

/// The back word of a node: its back link, with a tag, and the check of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackWord(pub(crate) u64);

impl BackWord {
    /// Packs the three parts.
    #[inline(always)]
    pub(crate) const fn pack(target: u32, tag: u16, header_check: u16) -> Self {
        BackWord((target as u64) << 32 | (tag as u64) << 16 | header_check as u64)
    }

    /// The node that the back link names.
    #[inline(always)]
    pub(crate) const fn target(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The tag of the target.
    #[inline(always)]
    pub(crate) const fn tag(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The check of the node's own header.
    #[inline(always)]
    pub(crate) const fn header_check(self) -> u16 {
        self.0 as u16
    }
}
