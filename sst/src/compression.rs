//! Compression of blocks: the type byte, and decompression into bounded memory.
//!
//! ```text
//!   type 0: the block        1 (snappy): a snappy block, which begins with its raw size
//!   4, 5 (lz4): raw size (varint32; 8 bytes in format version 1) | lz4 block        7 (zstd): raw size (varint32) | frame
//! ```
//! Pure functions; any thread. Not promised: that zstd's decoder keeps to the bound of its result.
//! A frame that lies about its size makes it take up to 2^17 times the stored bytes before it is
//! refused.

use std::borrow::Cow;

use crate::coding::{take_varint32, u64_at};
use crate::options::Compression;

/// The type byte of blocks that are not compressed.
pub(crate) const RAW: u8 = 0;
const SNAPPY: u8 = 1;
const LZ4: u8 = 4;
const LZ4_HC: u8 = 5;
const ZSTD: u8 = 7;

/// The first format version whose lz4 blocks have the form that [`Compression::compress`] writes.
pub(crate) const PORTABLE_VERSION: u32 = 2;

/// RocksDB's types, their names in the properties block, and whether this build reads them, which
/// depends on the features.
const TYPES: [(u8, &str, bool); 8] = [
    (RAW, "NoCompression", true),
    (SNAPPY, "Snappy", cfg!(feature = "snappy")),
    (2, "Zlib", false),
    (3, "BZip2", false),
    (LZ4, "LZ4", cfg!(feature = "lz4")),
    (LZ4_HC, "LZ4HC", cfg!(feature = "lz4")),
    (6, "Xpress", false),
    (ZSTD, "ZSTD", cfg!(feature = "zstd")),
];

/// Why a block was not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This build does not read the type.
    Unknown,
    /// The bytes are not a block of this type.
    Damaged,
}

impl Compression {
    /// The name in the properties block.
    pub(crate) fn property(self) -> &'static str {
        match self {
            Compression::None => "NoCompression",
            #[cfg(feature = "snappy")]
            Compression::Snappy => "Snappy",
            #[cfg(feature = "lz4")]
            Compression::Lz4 => "LZ4",
            #[cfg(feature = "zstd")]
            Compression::Zstd => "ZSTD",
        }
    }

    /// The bytes to store for a block, and their type. As in RocksDB, a block stays raw unless
    /// compression saves at least an eighth of it.
    pub(crate) fn compress(self, raw: &[u8]) -> (Cow<'_, [u8]>, u8) {
        let packed: Option<(Vec<u8>, u8)> = match self {
            Compression::None => None,
            #[cfg(feature = "snappy")]
            Compression::Snappy => snap::raw::Encoder::new()
                .compress_vec(raw)
                .ok()
                .map(|stored| (stored, SNAPPY)),
            #[cfg(feature = "lz4")]
            Compression::Lz4 => Some((after_size(raw, &lz4_flex::block::compress(raw)), LZ4)),
            #[cfg(feature = "zstd")]
            Compression::Zstd => {
                use ruzstd::encoding::{CompressionLevel::Fastest, compress_to_vec};
                Some((after_size(raw, &compress_to_vec(raw, Fastest)), ZSTD))
            }
        };
        let (fits, most) = (raw.len() <= u32::MAX as usize, raw.len() - raw.len() / 8);
        match packed {
            Some((stored, kind)) if fits && stored.len() <= most => (Cow::Owned(stored), kind),
            _ => (Cow::Borrowed(raw), RAW),
        }
    }
}

#[cfg(any(feature = "lz4", feature = "zstd"))]
fn after_size(raw: &[u8], packed: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(packed.len() + 5);
    crate::coding::put_varint(&mut stored, raw.len() as u64);
    stored.extend_from_slice(packed);
    stored
}

fn is_readable(compression: u8) -> bool {
    TYPES
        .iter()
        .any(|(kind, _, is_readable)| *kind == compression && *is_readable)
}

/// The name of a compression type in messages.
pub(crate) fn name(compression: u8) -> String {
    let known = TYPES.iter().find(|(kind, ..)| *kind == compression);
    format!(
        "compression {} (type {compression})",
        known.map_or("of another kind", |(_, name, _)| name)
    )
}

/// The name in messages of a type that LevelDB's tables have and this crate does not read.
pub(crate) fn foreign_to_leveldb(compression: u8) -> Option<String> {
    let name = match compression {
        RAW | SNAPPY => return None,
        2 => "LevelDB's Zstd or Minecraft's Zlib",
        4 => "Minecraft's raw Zlib",
        _ => "of another kind",
    };
    Some(format!(
        "compression {name} (type {compression} of a LevelDB table)"
    ))
}

/// The first compression that a file's property names and this build does not read. RocksDB writes
/// one of its names, or, from format version 7, the compression manager and the types in
/// hexadecimal digits: `BuiltinV2;0407;`.
pub(crate) fn unreadable(property: &str) -> Option<String> {
    let kinds: Vec<u8> = match property.split_once(';') {
        Some(("" | "BuiltinV2", kinds)) => {
            let digits = kinds.trim_end_matches(';').as_bytes().chunks(2);
            let kind = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            digits.map(|pair| kind(pair).unwrap_or(u8::MAX)).collect()
        }
        None => match TYPES.iter().find(|(_, name, _)| *name == property) {
            Some((kind, ..)) => vec![*kind],
            None if property.is_empty() => vec![],
            None => return Some(format!("compression {property}")),
        },
        Some(_) => return Some(format!("compression by {property}")),
    };
    kinds.into_iter().find(|kind| !is_readable(*kind)).map(name)
}

/// Decompresses a stored block of this type, from a file of this format version.
pub(crate) fn decompress(
    stored: &[u8],
    compression: u8,
    version: u32,
) -> Result<Cow<'_, [u8]>, Refusal> {
    if compression == RAW {
        return Ok(Cow::Borrowed(stored));
    }
    if !is_readable(compression) {
        return Err(Refusal::Unknown);
    }
    expand(stored, compression, version)
        .map(Cow::Owned)
        .ok_or(Refusal::Damaged)
}

fn expand(stored: &[u8], compression: u8, version: u32) -> Option<Vec<u8>> {
    let (len, rest) = match compression {
        LZ4 | LZ4_HC if version < PORTABLE_VERSION => (u64_at(stored, 0)?, &stored[8..]),
        _ => take_varint32(stored).map(|(len, rest)| (u64::from(len), rest))?,
    };
    let (packed, reach) = match compression {
        SNAPPY => (stored, 22),
        ZSTD => (rest, 1 << 15),
        _ => (rest, 255),
    };
    let len = usize::try_from(len)
        // The raw size that a block states is compared with what its format can reach before memory
        // is allocated. Four bytes of zstd can be a block of 128 KiB.
        .ok()
        .filter(|len| *len <= packed.len().saturating_mul(reach))?;
    let mut raw = vec![0; len];
    let written: Option<usize> = match compression {
        #[cfg(feature = "snappy")]
        SNAPPY => snap::raw::Decoder::new().decompress(packed, &mut raw).ok(),
        #[cfg(feature = "lz4")]
        LZ4 | LZ4_HC => lz4_flex::block::decompress_into(packed, &mut raw).ok(),
        #[cfg(feature = "zstd")]
        ZSTD => one_frame(packed, &mut raw),
        _ => {
            raw.clear();
            None
        }
    };
    (written == Some(len)).then_some(raw)
}

/// Decompresses a single frame. A second frame would make the decoder allocate a window that is not
/// compared with any limit.
#[cfg(feature = "zstd")]
fn one_frame(mut packed: &[u8], raw: &mut [u8]) -> Option<usize> {
    use ruzstd::decoding::{BlockDecodingStrategy::All, FrameDecoder};
    let mut decoder = FrameDecoder::new();
    decoder.init(&mut packed).ok()?;
    decoder.decode_blocks(&mut packed, All).ok()?;
    let fits = packed.is_empty() && decoder.can_collect() == raw.len();
    fits.then(|| std::io::Read::read(&mut decoder, raw).ok())?
}
