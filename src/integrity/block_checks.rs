//! The checksums of the blocks of table files, and the trailer after each block.
//!
//! ```text
//!   block | compression type (1) | checksum (4, little-endian)
//!
//!   checksum = value of the kind over block and type + modifier                  wrapping
//!   modifier = base ^ (low half of offset + high half of offset), or 0 without a base
//! ```
//! Bytes and values are those of RocksDB and never change. From format version 6 on a file has a
//! base, which is never 0, and the checksum of a block depends on the base and on the block's
//! offset. A block that was moved, or that belongs to another file, therefore fails.
//!
//! Plain data and pure functions; any thread. Any compression type is accepted.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

use crate::error::{Corruption, Place, Result};
use crate::integrity::checksum_kind::{ChecksumKind, low_half};
use crate::integrity::flipped_bit::single_bit;

/// Bytes of a trailer: compression type and checksum.
pub(crate) const TRAILER_LEN: usize = 5;

const CHECKSUM_LEN: usize = 4;

/// The checksums of a table file's blocks: their kind, and their base if they depend on the place
/// of a block.
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

    /// Checksums that depend on file and place, as in format versions 6 and up. `base` should be a
    /// random number, made for each file.
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

    /// The base of the checksums, if they depend on file and place.
    #[must_use]
    pub const fn context_base(&self) -> Option<NonZeroU32> {
        self.base
    }

    /// The number that is added to the checksum of a block at this offset of the file. It is 0 if
    /// there is no base.
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

    /// The five bytes to write after `block`, which begins at `offset` of its file. O(length);
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
    /// checksum does not agree. `expected` and `found` are checksums without the modifier, masked
    /// as their kind masks them. For stored blocks of at most 384 bytes `flipped_bit` names a
    /// single bit whose flip explains the damage, if there is one.
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
        report.flipped_bit = single_bit(stored, |bytes| {
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
