//! The kinds of block checksums: their stored numbers, names and values.
//!
//! ```text
//!   data ................. | last byte      the last byte is the block's compression type
//!
//!   none       0                                           kind 0
//!   crc32c     mask(CRC-32C(data | last))                  kind 1
//!   xxhash     XXH32(data | last)                          kind 2
//!   xxhash64   low half of XXH64(data | last)              kind 3
//!   xxh3       low half of XXH3(data) ^ last * 0x6b9083d9  kind 4, zero if there is no last byte
//!   crc32      CRC32(data | last)                          kind 128
//! ```
//! Kinds 0 to 4 have RocksDB's numbers and values, byte for byte. Kind 128 is this crate's own;
//! RocksDB refuses it. Numbers and values are written to disk and never change. All seeds are zero.
//! A stored checksum is little-endian.
//!
//! Pure functions over plain data; any thread. No kind resists an attacker who chooses the bytes.

#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The constant of CRC-32C's mask. Without a mask, the CRC of data that contains its own CRC is a
/// constant.
const MASK_DELTA: u32 = 0xa282_ead8;

/// The kind `xxh3` multiplies the last byte by this before it folds it in. The factor is odd, so
/// different last bytes have different products.
const LAST_BYTE_FACTOR: u32 = 0x6b90_83d9;

/// Longest input, in bytes, for the inlined XXH3. Longer inputs are faster with vector code, which
/// is chosen at run time: the bench `checksum` compares the two.
const XXH3_INLINE_LEN_MAX: usize = 128;

/// A kind of block checksum. Files store its number; options and text use its name.
///
/// ```
/// use paranoid_memtable::{ChecksumKind, Error};
/// assert_eq!(ChecksumKind::try_from(4u8)?, ChecksumKind::Xxh3);
/// assert_eq!("xxh3".parse::<ChecksumKind>()?, ChecksumKind::Xxh3);
/// assert_eq!(ChecksumKind::Xxh3.to_string(), "xxh3");
/// assert!(matches!(ChecksumKind::try_from(123u8), Err(Error::InvalidArgument(_))));
/// assert!(matches!("md5".parse::<ChecksumKind>(), Err(Error::InvalidArgument(_))));
/// # Ok::<(), Error>(())
/// ```
///
/// The feature `serde` serializes a kind as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum ChecksumKind {
    /// `none`: always zero. It detects nothing.
    None = 0,
    /// `crc32c`: CRC-32C (Castagnoli), masked.
    Crc32c = 1,
    /// `xxhash`: XXH32.
    XxHash32 = 2,
    /// `xxhash64`: the low half of XXH64.
    XxHash64 = 3,
    /// `xxh3`: the low half of the 64-bit XXH3 of all bytes but the last, which is folded in
    /// afterwards. The fastest kind.
    Xxh3 = 4,
    /// `crc32`: CRC32 (IEEE 802.3), unmasked. RocksDB does not read it.
    Crc32 = 0x80,
}

const _: () = assert!(size_of::<ChecksumKind>() == 1);

impl ChecksumKind {
    /// All kinds, by number.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// let names: Vec<String> = ChecksumKind::ALL.iter().map(ToString::to_string).collect();
    /// assert_eq!(names, ["none", "crc32c", "xxhash", "xxhash64", "xxh3", "crc32"]);
    /// ```
    pub const ALL: &'static [ChecksumKind] = &[
        ChecksumKind::None,
        ChecksumKind::Crc32c,
        ChecksumKind::XxHash32,
        ChecksumKind::XxHash64,
        ChecksumKind::Xxh3,
        ChecksumKind::Crc32,
    ];

    /// The number of this kind, which files store.
    ///
    /// ```
    /// assert_eq!(paranoid_memtable::ChecksumKind::Crc32.as_u8(), 0x80);
    /// ```
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The lower-case name.
    const fn name(self) -> &'static str {
        match self {
            ChecksumKind::None => "none",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::XxHash32 => "xxhash",
            ChecksumKind::XxHash64 => "xxhash64",
            ChecksumKind::Xxh3 => "xxh3",
            ChecksumKind::Crc32 => "crc32",
        }
    }

    /// The checksum of `data`: a block followed by its compression type, which is the last byte. A
    /// block trailer stores this value plus
    /// [`BlockChecks::modifier`](crate::integrity::BlockChecks::modifier). The checksum `xxh3` of
    /// empty data is 0. O(length); allocates nothing.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// assert_eq!(ChecksumKind::Xxh3.checksum(b"\x01").to_le_bytes(), [0x1b, 0x17, 0x43, 0x53]);
    /// assert_eq!(ChecksumKind::Crc32c.checksum(b"").to_le_bytes(), [0xd8, 0xea, 0x82, 0xa2]);
    /// assert_eq!(ChecksumKind::Xxh3.checksum(b""), 0);
    /// ```
    #[inline]
    #[must_use]
    pub fn checksum(self, data: &[u8]) -> u32 {
        self.checksum_of(data, &[])
    }

    /// The checksum of `data` followed by `last`, which is one byte, or none if `data` contains the
    /// compression type. O(length); allocates nothing.
    #[inline]
    pub(crate) fn checksum_of(self, data: &[u8], last: &[u8]) -> u32 {
        match self {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32c => mask(crc32c::crc32c_append(crc32c::crc32c(data), last)),
            ChecksumKind::XxHash32 => {
                let mut state = xxhash_rust::xxh32::Xxh32::new(0);
                state.update(data);
                state.update(last);
                state.digest()
            }
            ChecksumKind::XxHash64 => {
                let mut state = xxhash_rust::xxh64::Xxh64::new(0);
                state.update(data);
                state.update(last);
                low_half(state.digest())
            }
            ChecksumKind::Xxh3 => match (last, data) {
                ([last], data) | (_, [data @ .., last]) => xxh3_folded(data, *last),
                _ => 0,
            },
            ChecksumKind::Crc32 => {
                let mut state = crc32fast::Hasher::new();
                state.update(data);
                state.update(last);
                state.finalize()
            }
        }
    }
}

#[inline(always)]
fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[inline(always)]
pub(crate) const fn low_half(hash: u64) -> u32 {
    (hash & 0xffff_ffff) as u32
}

#[inline(always)]
fn xxh3_folded(data: &[u8], last: u8) -> u32 {
    low_half(xxh3(data)) ^ u32::from(last).wrapping_mul(LAST_BYTE_FACTOR)
}

/// Two implementations that return the same value: the length decides which one is faster.
#[inline(always)]
fn xxh3(data: &[u8]) -> u64 {
    if data.len() <= XXH3_INLINE_LEN_MAX {
        xxhash_rust::xxh3::xxh3_64(data)
    } else {
        twox_hash::XxHash3_64::oneshot(data)
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<ChecksumKind> for u8 {
    fn from(kind: ChecksumKind) -> u8 {
        kind.as_u8()
    }
}

impl TryFrom<u8> for ChecksumKind {
    type Error = Error;

    /// # Errors
    /// `InvalidArgument` with the number in its text, if no kind has this number.
    fn try_from(number: u8) -> Result<Self> {
        ChecksumKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_u8() == number)
            .ok_or_else(|| {
                let known = "0, 1, 2, 3, 4 and 128";
                Error::InvalidArgument(format!(
                    "unknown checksum kind {number}; the known ones are {known}"
                ))
            })
    }
}

impl FromStr for ChecksumKind {
    type Err = Error;

    /// # Errors
    /// `InvalidArgument` with the name in its text, if no kind has this name. Names are lower case.
    fn from_str(name: &str) -> Result<Self> {
        ChecksumKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                let known: Vec<&str> = ChecksumKind::ALL.iter().map(|kind| kind.name()).collect();
                let known = known.join(", ");
                Error::InvalidArgument(format!(
                    "unknown checksum kind {name:?}; the known ones are {known}"
                ))
            })
    }
}

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl serde::Serialize for ChecksumKind {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> serde::Deserialize<'de> for ChecksumKind {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let name = <String as serde::Deserialize>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}
