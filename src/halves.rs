//! Packs two 32-bit numbers into one word, and unpacks them.

#![forbid(unsafe_code)]

/// The low half of a word.
pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// The high half of a word.
pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The word with these halves.
pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
