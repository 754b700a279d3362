//! The checksums of blocks: their kinds, stored numbers, names and values.
//!
//! ```text
//!   data ............................ | last byte      the last byte is the block's compression type
//!
//!   none       0                                           kind 0
//!   crc32c     mask(CRC-32C(data | last))                  kind 1
//!   xxhash     XXH32(data | last)                          kind 2
//!   xxhash64   low half of XXH64(data | last)              kind 3
//!   xxh3       low half of XXH3(data) ^ last * 0x6b9083d9  kind 4, zero if there is no last byte
//!   crc32      CRC32(data | last)                         kind 128
//! ```
//! * CHECKSUM-KIND-1: values and numbers 0 to 4 are those of RocksDB, byte for byte. They are
//!   written to disk and never change.
//! * CHECKSUM-KIND-2: number 128 is this crate's own; RocksDB refuses it.
//! * CHECKSUM-KIND-3: which code computes a value depends on the length and on the CPU, found at
//!   run time; the value does not.
//! * CHECKSUM-KIND-4: all seeds are zero. A stored checksum is little-endian.
//!
//! Pure functions over plain data; any thread. Not promised: resistance against somebody who
//! chooses the bytes.

#![forbid(unsafe_code)]

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest;

/// The constant of CRC-32C's mask. Without a mask, the CRC of data that contains its own CRC is a
/// constant.
const MASK_DELTA: u32 = 0xa282_ead8;

/// XXH3 folds the last byte in multiplied with this. It is odd, so that different last bytes give
/// different products.
const LAST_BYTE_FACTOR: u32 = 0x6b90_83d9;

/// Longest input, in bytes, for the inlined XXH3. Longer ones are faster with the vector code,
/// which is dispatched at run time: the bench `checksum` compares them.
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
    /// `none`: always zero, checks nothing.
    None = 0,
    /// `crc32c`: CRC-32C (Castagnoli), masked.
    Crc32c = 1,
    /// `xxhash`: XXH32.
    XxHash32 = 2,
    /// `xxhash64`: the low half of XXH64.
    XxHash64 = 3,
    /// `xxh3`: the low half of the 64-bit XXH3, with the last byte folded in afterwards. The
    /// fastest kind.
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

    /// The number that files store for this kind.
    ///
    /// ```
    /// assert_eq!(paranoid_memtable::ChecksumKind::Crc32.as_u8(), 0x80);
    /// ```
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The lower-case name, which is displayed.
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

    /// The checksum of a block followed by its compression type, which is the last byte of `data`.
    /// A block trailer stores this value, plus the modifier of the context if there is one. The
    /// checksum `xxh3` of empty data is 0. O(length); allocates nothing.
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

    /// The checksum of a block and of its compression type, which is `last` if it is not stored
    /// after the block. O(length); allocates nothing.
    #[inline]
    fn checksum_of(self, data: &[u8], last: &[u8]) -> u32 {
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
const fn low_half(hash: u64) -> u32 {
    (hash & 0xffff_ffff) as u32
}

#[inline(always)]
fn xxh3_folded(data: &[u8], last: u8) -> u32 {
    low_half(xxh3(data)) ^ u32::from(last).wrapping_mul(LAST_BYTE_FACTOR)
}

/// CHECKSUM-KIND-3: two implementations that return the same value.
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
    /// `InvalidArgument`, which names the number, if no kind has it.
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
    /// `InvalidArgument`, which repeats the name, if no kind has it. Upper case is not accepted.
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

// Blocks of table files and the trailer after each of them; from format version 6 on a block's
// checksum depends on its place.
//
// ```text
//   block | compression type (1) | checksum (4, little-endian)
//
//   checksum = value of the kind over block and type + modifier                  wrapping
//   modifier = base ^ low half of offset ^ high half of offset, or 0 without a base
// ```
// * BLOCK-1: bytes and values are those of RocksDB. They never change.
// * BLOCK-2: format versions 6 and up have a base per file, never 0, and mix the block's offset in.
//   A block that was moved, or that belongs to another file, therefore fails.
//
// Plain data and pure functions; any thread. Not promised: that the compression type is a known
// one.

/// Bytes of a trailer: compression type and checksum.
pub(crate) const TRAILER_LEN: usize = 5;

const CHECKSUM_LEN: usize = 4;

/// How the blocks of a file are checked: the kind of checksum, and the base of the context if the
/// file has one.
///
/// ```
/// use paranoid_memtable::{ChecksumKind, Error};
/// use paranoid_memtable::integrity::BlockChecks;
/// use std::num::NonZeroU32;
///
/// let base = NonZeroU32::new(123_456_789).expect("not zero");
/// let checks = BlockChecks::with_context(ChecksumKind::Xxh3, base);
/// let mut stored = b"block".to_vec();
/// stored.extend(checks.trailer(b"block", 0, 4096));
///
/// assert_eq!(checks.verify(&stored, 4096)?, (b"block".as_slice(), 0));
/// assert!(checks.verify(&stored, 8192).is_err());
/// stored[2] ^= 0x10;
/// let error = checks.verify(&stored, 4096).unwrap_err();
/// assert_eq!(error.corruption().and_then(|report| report.flipped_bit), Some(2 * 8 + 4));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockChecks {
    kind: ChecksumKind,
    base: Option<NonZeroU32>,
}

impl BlockChecks {
    /// Checksums that do not depend on file or place, as in format versions up to 5.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::integrity::BlockChecks;
    /// let checks = BlockChecks::new(ChecksumKind::Xxh3);
    /// assert_eq!((checks.kind(), checks.context_base()), (ChecksumKind::Xxh3, None));
    /// ```
    #[must_use]
    pub const fn new(kind: ChecksumKind) -> Self {
        BlockChecks { kind, base: None }
    }

    /// Checksums that depend on file and place, as in format versions 6 and up. `base` should be
    /// random, and another one per file.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::integrity::BlockChecks;
    /// let base = std::num::NonZeroU32::MIN;
    /// let checks = BlockChecks::with_context(ChecksumKind::Xxh3, base);
    /// assert_ne!(checks.trailer(b"block", 0, 0), checks.trailer(b"block", 0, 4096)); // bound to the place
    /// ```
    #[must_use]
    pub const fn with_context(kind: ChecksumKind, base: NonZeroU32) -> Self {
        BlockChecks {
            kind,
            base: Some(base),
        }
    }

    /// The kind of checksum.
    #[must_use]
    pub const fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// The base of the context, if there is one.
    #[must_use]
    pub const fn context_base(&self) -> Option<NonZeroU32> {
        self.base
    }

    /// The number that is added to the checksum of a block at this offset of the file: 0 without a
    /// context.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::integrity::BlockChecks;
    /// let base = std::num::NonZeroU32::new(123_456_789).expect("not zero");
    /// let checks = BlockChecks::with_context(ChecksumKind::Crc32c, base);
    /// assert_eq!(checks.modifier((1 << 32) + 7), 0x075b_cd1d);
    /// assert_eq!(BlockChecks::new(ChecksumKind::Crc32c).modifier(7), 0);
    /// ```
    #[must_use]
    pub fn modifier(&self, offset: u64) -> u32 {
        let Some(base) = self.base else { return 0 };
        base.get() ^ low_half(offset).wrapping_add(low_half(offset >> 32))
    }

    /// The five bytes to write after `block`, which lies at `offset` of its file. O(length);
    /// allocates nothing.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::integrity::BlockChecks;
    /// let checks = BlockChecks::new(ChecksumKind::Crc32c);
    /// let [kind, checksum @ ..] = checks.trailer(b"block", 7, 0);
    /// assert_eq!(kind, 7);
    /// assert_eq!(u32::from_le_bytes(checksum), ChecksumKind::Crc32c.checksum(b"block\x07"));
    /// ```
    #[must_use]
    pub fn trailer(&self, block: &[u8], compression: u8, offset: u64) -> [u8; 5] {
        let value = self.kind.checksum_of(block, &[compression]);
        let [a, b, c, d] = value.wrapping_add(self.modifier(offset)).to_le_bytes();
        [compression, a, b, c, d]
    }

    /// Verifies a block with its trailer, as read from `offset` of its file, and returns the block
    /// and its compression type. O(length); allocates nothing.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::integrity::BlockChecks;
    /// let checks = BlockChecks::new(ChecksumKind::Crc32c);
    /// let mut stored = [b"block".as_slice(), &checks.trailer(b"block", 0, 0)].concat();
    /// assert_eq!(checks.verify(&stored, 0)?, (b"block".as_slice(), 0));
    /// stored[1] ^= 4;
    /// assert_eq!(checks.verify(&stored, 0).unwrap_err().corruption().unwrap().flipped_bit, Some(8 + 2));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` at `offset` (counted in the file) if there is no room for a trailer, or if the
    /// checksum does not agree. `expected` and `found` are checksums without their context, masked
    /// as their kind masks them. For stored blocks of at most 384 bytes `flipped_bit` names the one
    /// bit whose flip explains the damage, if there is one.
    pub fn verify<'a>(&self, stored: &'a [u8], offset: u64) -> Result<(&'a [u8], u8)> {
        let (Some((block, &[compression, ..])), Some((data, checksum))) = (
            stored.split_last_chunk::<TRAILER_LEN>(),
            stored.split_last_chunk::<CHECKSUM_LEN>(),
        ) else {
            let len = stored.len() as u64;
            return Err(Corruption::new(Place::Encoding, offset, TRAILER_LEN as u64, len).into());
        };
        let found = u32::from_le_bytes(*checksum).wrapping_sub(self.modifier(offset));
        let expected = self.kind.checksum(data);
        if found == expected {
            return Ok((block, compression));
        }
        Err(self.mismatch(stored, offset, expected, found).into())
    }

    #[cold]
    fn mismatch(&self, stored: &[u8], offset: u64, expected: u32, found: u32) -> Corruption {
        let mut report = Corruption::new(Place::Encoding, offset, expected.into(), found.into());
        report.flipped_bit = digest::single_bit(stored, |bytes| {
            bytes
                .split_last_chunk::<CHECKSUM_LEN>()
                .is_some_and(|(data, checksum)| {
                    u32::from_le_bytes(*checksum).wrapping_sub(self.modifier(offset))
                        == self.kind.checksum(data)
                })
        });
        report
    }
}
