//! Compression of blocks: the type byte, and bytes back with their size bounded.
//!
//! ```text
//!   type 0: the block        type 4, 5 (lz4): raw size (varint32) | lz4 block
//! ```
//! * SST-COMPRESSION-1: a compressed block is kept only if it is at most 7/8 of the raw one, as RocksDB does.
//! * SST-COMPRESSION-2: the raw size that a block states is believed only as far as lz4 can reach (255 times), so no
//!   input makes the reader allocate more than that.
//!
//! Pure functions; any thread.

use std::borrow::Cow;

#[cfg(feature = "lz4")]
use crate::coding::{put_varint, take_varint32};
use crate::options::Compression;

/// Type byte of blocks that are not compressed.
pub(crate) const RAW: u8 = 0;
#[cfg(feature = "lz4")]
const LZ4: [u8; 2] = [4, 5];
#[cfg(feature = "lz4")]
const EXPANSION_MAX: usize = 255;

/// Why a block was not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The type is not known.
    Unknown,
    /// The bytes are not what this type makes.
    #[cfg(feature = "lz4")]
    Damaged,
}

impl Compression {
    /// Its name in the properties block.
    pub(crate) fn property(self) -> &'static str {
        match self {
            Compression::None => "NoCompression",
            #[cfg(feature = "lz4")]
            Compression::Lz4 => "LZ4",
        }
    }

    /// The bytes to store for a block, and their type (SST-COMPRESSION-1).
    pub(crate) fn compress(self, raw: &[u8]) -> (Cow<'_, [u8]>, u8) {
        match self {
            Compression::None => (Cow::Borrowed(raw), RAW),
            #[cfg(feature = "lz4")]
            Compression::Lz4 => {
                let mut stored = Vec::with_capacity(raw.len() / 2);
                put_varint(&mut stored, raw.len() as u64);
                stored.extend_from_slice(&lz4_flex::block::compress(raw));
                let kept = raw.len() <= u32::MAX as usize && stored.len() <= raw.len() - raw.len() / 8;
                if kept { (Cow::Owned(stored), LZ4[0]) } else { (Cow::Borrowed(raw), RAW) }
            }
        }
    }
}

/// Decompresses a stored block of this type (SST-COMPRESSION-2).
pub(crate) fn decompress(stored: &[u8], compression: u8) -> Result<Cow<'_, [u8]>, Refusal> {
    match compression {
        RAW => Ok(Cow::Borrowed(stored)),
        #[cfg(feature = "lz4")]
        kind if LZ4.contains(&kind) => {
            let (len, packed) = take_varint32(stored).ok_or(Refusal::Damaged)?;
            let len = len as usize;
            if len > packed.len().saturating_mul(EXPANSION_MAX) {
                return Err(Refusal::Damaged);
            }
            let mut raw = vec![0; len];
            match lz4_flex::block::decompress_into(packed, &mut raw) {
                Ok(written) if written == len => Ok(Cow::Owned(raw)),
                _ => Err(Refusal::Damaged),
            }
        }
        _ => Err(Refusal::Unknown),
    }
}
