//! Footers of table files, format versions 0 to 7.
//!
//! ```text
//!   version 0      | metaindex, index as varints, zeros (40)            | magic (8)                       48 bytes
//!   versions 1-5   | kind (1) | metaindex, index as varints, zeros (40) | version (4) | magic (8)         53 bytes
//!   versions 6, 7  | kind (1) | 3e 00 7a 00 | checksum (4) | base (4) | metaindex size (4)
//!                  | reserved (16) | must be zero (8)                   | version (4) | magic (8)         53 bytes
//! ```
//! * FOOTER-1: the bytes are those of RocksDB and never change. All numbers are little-endian.
//! * FOOTER-2: a decoded footer of versions 0 to 5 encodes to the same bytes: varints are as short as possible, and
//!   padding is zero. These footers have no checksum, and without this rule one flipped bit of the version turns a
//!   footer of version 6 into one of version 4 with other handles.
//! * FOOTER-3: a block that a decoded handle names, with its trailer, ends at or before the footer. In versions 6 and
//!   7 the metaindex block ends exactly at the footer.
//! * FOOTER-4: the checksum of versions 6 and 7 covers all 53 bytes with the checksum itself as zero, plus the
//!   modifier of the footer's own offset.
//!
//! Plain data and pure functions; any thread. Not promised: the value of the reserved bytes, which are written as
//! zero.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

use crate::error::{Corruption, Error, Place, Result};
use crate::format::block::{BlockChecks, BlockHandle, TableMagic};
use crate::format::checksum_kind::ChecksumKind;
use crate::integrity::diagnosis;

const LEN: usize = 53;
const LEN_VERSION_0: usize = 48;
const VERSION_MAX: u32 = 7;
const VERSION_WITH_CONTEXT: u32 = 6;

const LEGACY_PLAIN: u64 = 0x4f34_18eb_7a8f_13b8;
const LEGACY_BLOCK_BASED: u64 = 0xdb47_7524_8b80_fb57;
/// Of tables in Pebble's own formats.
const PEBBLE: u64 = u64::from_le_bytes([0xf0, 0x9f, 0xaa, 0xb3, 0xf0, 0x9f, 0xaa, 0xb3]);
const EXTENDED_MAGIC: u32 = u32::from_le_bytes([0x3e, 0x00, 0x7a, 0x00]);

const HANDLES_LEN: usize = 40;
const CHECKSUM_AT: usize = 5;
const BASE_AT: usize = 9;
const METAINDEX_SIZE_AT: usize = 13;
const RESERVED_LEN: usize = 16;
const ZEROS_AT: usize = METAINDEX_SIZE_AT + 4 + RESERVED_LEN;
const VERSION_AT: usize = 41;
const MAGIC_LEN: usize = 8;

const _: () = assert!(ZEROS_AT + 8 == VERSION_AT && VERSION_AT + 4 + MAGIC_LEN == LEN);
const _: () = assert!(1 + HANDLES_LEN == VERSION_AT && HANDLES_LEN + MAGIC_LEN == LEN_VERSION_0);

/// The last bytes of a table file: the kind of table, how its blocks are checked, and the place of its metaindex
/// block.
///
/// ```
/// use paranoid_memtable::{ChecksumKind, Error};
/// use paranoid_memtable::format::{BlockChecks, BlockHandle, Footer, TableMagic};
/// use std::num::NonZeroU32;
///
/// let base = NonZeroU32::new(123_456_789).expect("not zero");
/// let checks = BlockChecks::with_context(ChecksumKind::Xxh3, base);
/// let metaindex = BlockHandle { offset: 1210, size: 300 };
/// let footer = Footer::with_context(TableMagic::BlockBased, 7, checks, metaindex)?;
///
/// let footer_offset = 1515; // after the metaindex and its trailer
/// let bytes = footer.encode(footer_offset)?;
/// let file_size = footer_offset + bytes.len() as u64;
/// assert_eq!(Footer::decode(&bytes, file_size)?, footer);
///
/// let mut bent = bytes.clone();
/// bent[14] ^= 1;
/// let report = *Footer::decode(&bent, file_size).unwrap_err().corruption().expect("a report");
/// assert_eq!((report.offset, report.flipped_bit), (footer_offset, Some(14 * 8)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Footer {
    magic: TableMagic,
    format_version: u32,
    checks: BlockChecks,
    metaindex: BlockHandle,
    index: Option<BlockHandle>,
}

impl Footer {
    /// Length of the longest footer in bytes: read so many from the end of a file before [`Footer::decode`].
    pub const LEN_MAX: usize = LEN;

    /// A footer of format versions 0 to 5, which names the index block. Version 0 exists for plain tables only.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::format::{BlockHandle, Footer, TableMagic};
    /// let metaindex = BlockHandle { offset: 1210, size: 300 };
    /// let index = BlockHandle { offset: 1005, size: 200 };
    /// let footer = Footer::with_index(TableMagic::BlockBased, 5, ChecksumKind::Crc32c, metaindex, index)?;
    /// assert_eq!(footer.index(), Some(index));
    /// assert!(Footer::with_index(TableMagic::BlockBased, 6, ChecksumKind::Crc32c, metaindex, index).is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for another version, and for another kind than `crc32c` in version 0, which implies it.
    /// `NotSupported` for block-based tables of version 0.
    pub fn with_index(
        magic: TableMagic,
        format_version: u32,
        kind: ChecksumKind,
        metaindex: BlockHandle,
        index: BlockHandle,
    ) -> Result<Footer> {
        if magic == TableMagic::BlockBased && format_version == 0 {
            return Err(LEGACY_BLOCK_BASED_REFUSED);
        }
        let known = format_version == 0 && magic == TableMagic::Plain || supported(format_version);
        if !known || format_version >= VERSION_WITH_CONTEXT {
            return Err(wrong_version(magic, format_version, "a footer with an index"));
        }
        if format_version == 0 && kind != ChecksumKind::Crc32c {
            return Err(Error::InvalidArgument(format!("format version 0 implies crc32c, not {kind}")));
        }
        let checks = BlockChecks::new(kind);
        Ok(Footer { magic, format_version, checks, metaindex, index: Some(index) })
    }

    /// A footer of format version 6 or 7, whose checksums are bound to their places. Its metaindex block must be the
    /// last one of the file, and names the index.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::format::{BlockChecks, BlockHandle, Footer, TableMagic};
    /// let metaindex = BlockHandle { offset: 1210, size: 300 };
    /// let checks = BlockChecks::with_context(ChecksumKind::Xxh3, std::num::NonZeroU32::MIN);
    /// let footer = Footer::with_context(TableMagic::BlockBased, 6, checks, metaindex)?;
    /// assert_eq!((footer.metaindex(), footer.index()), (metaindex, None));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for another version and for checks without a base. `NotSupported` for a metaindex of 4 GiB or
    /// more.
    pub fn with_context(
        magic: TableMagic,
        format_version: u32,
        checks: BlockChecks,
        metaindex: BlockHandle,
    ) -> Result<Footer> {
        if format_version < VERSION_WITH_CONTEXT || !supported(format_version) {
            return Err(wrong_version(magic, format_version, "a footer with a context"));
        }
        if checks.context_base().is_none() {
            return Err(Error::InvalidArgument(format!("format version {format_version} needs a base")));
        }
        if metaindex.size > u64::from(u32::MAX) {
            return Err(Error::NotSupported("a metaindex block of 4 GiB or more"));
        }
        Ok(Footer { magic, format_version, checks, metaindex, index: None })
    }

    /// The kind of table.
    #[must_use]
    pub const fn magic(&self) -> TableMagic {
        self.magic
    }

    /// The format version, 0 to 7.
    #[must_use]
    pub const fn format_version(&self) -> u32 {
        self.format_version
    }

    /// How the blocks of this file are checked.
    #[must_use]
    pub const fn checks(&self) -> BlockChecks {
        self.checks
    }

    /// The place of the metaindex block.
    #[must_use]
    pub const fn metaindex(&self) -> BlockHandle {
        self.metaindex
    }

    /// The place of the index block; `None` from format version 6 on, where the metaindex block names it.
    #[must_use]
    pub const fn index(&self) -> Option<BlockHandle> {
        self.index
    }

    /// The bytes to write at `footer_offset` of the file: 48 in version 0, 53 in all others.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::format::{BlockHandle, Footer, TableMagic};
    /// let (metaindex, index) = (BlockHandle { offset: 1210, size: 300 }, BlockHandle { offset: 1005, size: 200 });
    /// let footer = Footer::with_index(TableMagic::BlockBased, 5, ChecksumKind::Crc32c, metaindex, index)?;
    /// assert_eq!(footer.encode(1515)?.len(), 53);
    /// assert!(footer.encode(1400).is_err()); // before the end of the metaindex block
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if a block with its trailer would end after `footer_offset`, or, in versions 6 and 7, if the
    /// metaindex block does not end exactly there.
    pub fn encode(&self, footer_offset: u64) -> Result<Vec<u8>> {
        self.check_places(footer_offset)?;
        let mut bytes = Vec::with_capacity(LEN);
        if self.format_version > 0 {
            bytes.push(self.checks.kind().as_u8());
        }
        let part = bytes.len();
        match (self.index, self.checks.context_base()) {
            (Some(index), _) => {
                for number in [self.metaindex.offset, self.metaindex.size, index.offset, index.size] {
                    put_varint(&mut bytes, number);
                }
            }
            (None, base) => {
                bytes.extend(EXTENDED_MAGIC.to_le_bytes());
                bytes.extend([0; 4]);
                bytes.extend(base.map_or(0, NonZeroU32::get).to_le_bytes());
                // `with_context` and `decode` admit only sizes that fit four bytes.
                bytes.extend(&self.metaindex.size.to_le_bytes()[..4]);
            }
        }
        bytes.resize(part + HANDLES_LEN, 0);
        if self.format_version == 0 {
            bytes.extend(LEGACY_PLAIN.to_le_bytes());
            return Ok(bytes);
        }
        bytes.extend(self.format_version.to_le_bytes());
        bytes.extend(self.magic.number().to_le_bytes());
        if self.index.is_none() {
            let checksum = own_checksum(&bytes, &self.checks, footer_offset).to_le_bytes();
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum);
        }
        Ok(bytes)
    }

    fn check_places(&self, footer_offset: u64) -> Result<()> {
        for handle in std::iter::once(self.metaindex).chain(self.index) {
            let end = handle.end(self.magic.trailer_len());
            if end.is_none_or(|end| end > footer_offset) {
                return Err(misplaced(handle, "ends after the footer", footer_offset));
            }
            if self.index.is_none() && end != Some(footer_offset) {
                return Err(misplaced(handle, "is not the last one before the footer", footer_offset));
            }
        }
        Ok(())
    }

    /// Reads the footer at the end of `tail`, which holds the last bytes of a file of `file_size` bytes: all of a
    /// short file, at least [`Footer::LEN_MAX`] bytes of a longer one. Arbitrary bytes are safe. O(1); allocates
    /// nothing unless it fails.
    ///
    /// ```
    /// use paranoid_memtable::ChecksumKind;
    /// use paranoid_memtable::format::{BlockHandle, Footer, TableMagic};
    /// let (metaindex, index) = (BlockHandle { offset: 1210, size: 300 }, BlockHandle { offset: 1005, size: 200 });
    /// let footer = Footer::with_index(TableMagic::BlockBased, 5, ChecksumKind::Crc32c, metaindex, index)?;
    /// let bytes = footer.encode(1515)?;
    /// assert_eq!(Footer::decode(&bytes, 1515 + 53)?, footer);
    /// assert!(Footer::decode(&bytes[1..], 1515 + 53).is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` whose `offset` is counted in the file, for: a file too short, an unknown magic number, format
    /// version (also a later one that one flipped bit explains) or checksum kind, a malformed handle, a block that ends after the footer, padding that is not zero; in
    /// versions 6 and 7 also a wrong extended magic, a base of zero, and a checksum that does not agree (`offset` is
    /// then that of the footer's first byte, and `flipped_bit` names the one bit whose flip explains the damage, if
    /// there is one). `NotSupported` for block-based tables of version 0 (LevelDB's), for Pebble's own tables, for
    /// versions 8 to 255 and for reserved bytes that a later format sets. `InvalidArgument` for a `tail` that is longer than the file, or too short although the file is not.
    pub fn decode(tail: &[u8], file_size: u64) -> Result<Footer> {
        let tail_len = tail.len() as u64;
        if tail_len > file_size || tail.len() < LEN && tail_len < file_size {
            return Err(Error::InvalidArgument(format!(
                "{tail_len} bytes are not the tail of a file of {file_size} bytes: at least {LEN} are needed, or all"
            )));
        }
        let (Some(old), Some(magic)) = (tail.last_chunk::<LEN_VERSION_0>(), tail.last_chunk::<MAGIC_LEN>())
        else {
            return Err(corrupt(0, LEN_VERSION_0 as u64, tail_len));
        };
        let magic_at = file_size - MAGIC_LEN as u64;
        let magic = match u64::from_le_bytes(*magic) {
            LEGACY_PLAIN => return decode_version_0(old, file_size - LEN_VERSION_0 as u64),
            LEGACY_BLOCK_BASED => return Err(LEGACY_BLOCK_BASED_REFUSED),
            PEBBLE => return Err(Error::NotSupported("tables of Pebble's own formats")),
            number => match TableMagic::ALL.into_iter().find(|magic| magic.number() == number) {
                Some(magic) => magic,
                None => return Err(unknown_magic(number, magic_at)),
            },
        };
        let Some(bytes) = tail.last_chunk::<LEN>() else {
            return Err(corrupt(0, LEN as u64, tail_len));
        };
        let at = file_size - LEN as u64;
        let version = u32_at(bytes, VERSION_AT);
        if !supported(version) {
            return Err(unknown_version(bytes, magic, at));
        }
        let Some(kind) = ChecksumKind::from_number(bytes[0]) else {
            return Err(corrupt(at, ChecksumKind::Xxh3.as_u8().into(), bytes[0].into()));
        };
        if version >= VERSION_WITH_CONTEXT {
            return decode_with_context(bytes, at, magic, kind);
        }
        let (metaindex, index) = handles(&bytes[1..VERSION_AT], at + 1, at, magic)?;
        Footer::with_index(magic, version, kind, metaindex, index)
    }
}

fn decode_version_0(bytes: &[u8; LEN_VERSION_0], at: u64) -> Result<Footer> {
    let (metaindex, index) = handles(&bytes[..HANDLES_LEN], at, at, TableMagic::Plain)?;
    Footer::with_index(TableMagic::Plain, 0, ChecksumKind::Crc32c, metaindex, index)
}

fn decode_with_context(bytes: &[u8; LEN], at: u64, magic: TableMagic, kind: ChecksumKind) -> Result<Footer> {
    let extended = u32_at(bytes, 1);
    if extended != EXTENDED_MAGIC {
        return Err(corrupt(at + 1, EXTENDED_MAGIC.into(), extended.into()));
    }
    let Some(base) = NonZeroU32::new(u32_at(bytes, BASE_AT)) else {
        return Err(corrupt(at + BASE_AT as u64, 1, 0));
    };
    let checks = BlockChecks::with_context(kind, base);
    let (expected, found) = (own_checksum(bytes, &checks, at), u32_at(bytes, CHECKSUM_AT));
    if expected != found {
        let mut report = Corruption::new(Place::Encoding, at, expected.into(), found.into());
        report.flipped_bit = diagnosis::single_bit(bytes, |bytes| own_checksum_holds(bytes, at));
        return Err(report.into());
    }
    if bytes[ZEROS_AT..VERSION_AT] != [0; 8] {
        return Err(Error::NotSupported("a footer with a feature of a later format version"));
    }
    let size = u64::from(u32_at(bytes, METAINDEX_SIZE_AT));
    let end = size + magic.trailer_len();
    let Some(offset) = at.checked_sub(end) else {
        return Err(corrupt(at + METAINDEX_SIZE_AT as u64, at, end));
    };
    Footer::with_context(magic, u32_at(bytes, VERSION_AT), checks, BlockHandle { offset, size })
}

/// FOOTER-4: the footer's checksum, computed with the checksum field as zero.
fn own_checksum(bytes: &[u8], checks: &BlockChecks, at: u64) -> u32 {
    let mut copy = [0; LEN];
    for (i, (to, from)) in copy.iter_mut().zip(bytes).enumerate() {
        let stored = (CHECKSUM_AT..CHECKSUM_AT + 4).contains(&i);
        *to = if stored { 0 } else { *from };
    }
    checks.kind().checksum(&copy).wrapping_add(checks.modifier(at))
}

/// Whether the checksum of `bytes`, taken as a footer with context, agrees.
#[cold]
fn own_checksum_holds(bytes: &[u8], at: u64) -> bool {
    let kind = bytes.first().and_then(|&number| ChecksumKind::from_number(number));
    let (Some(kind), Some(base)) = (kind, NonZeroU32::new(u32_at(bytes, BASE_AT))) else { return false };
    own_checksum(bytes, &BlockChecks::with_context(kind, base), at) == u32_at(bytes, CHECKSUM_AT)
}

/// Reads the two handles and their padding from `bytes`, which stand at `at` of a file whose footer is at
/// `footer_offset`.
fn handles(
    bytes: &[u8],
    at: u64,
    footer_offset: u64,
    magic: TableMagic,
) -> Result<(BlockHandle, BlockHandle)> {
    let mut rest = bytes;
    let place = |rest: &[u8]| at + (bytes.len() - rest.len()) as u64;
    let mut numbers = [0; 4];
    let mut starts = [0; 4];
    for (number, start) in numbers.iter_mut().zip(&mut starts) {
        *start = place(rest);
        let Some((value, tail)) = take_varint(rest) else {
            return Err(corrupt(*start, 0, rest.first().copied().unwrap_or(0).into()));
        };
        (*number, rest) = (value, tail);
    }
    if let Some(found) = rest.iter().position(|&byte| byte != 0) {
        return Err(corrupt(place(&rest[found..]), 0, rest[found].into()));
    }
    let metaindex = BlockHandle { offset: numbers[0], size: numbers[1] };
    let index = BlockHandle { offset: numbers[2], size: numbers[3] };
    for (handle, start) in [(metaindex, starts[0]), (index, starts[2])] {
        let end = handle.end(magic.trailer_len()).unwrap_or(u64::MAX);
        if end > footer_offset {
            return Err(corrupt(start, footer_offset, end));
        }
    }
    Ok((metaindex, index))
}

/// Appends a varint: seven bits per byte, lowest first; the high bit says that more follow.
fn put_varint(out: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left >= 0x80 {
        out.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    out.push(left.to_le_bytes()[0]);
}

/// The varint at the start of `bytes`, and the bytes after it. `None` for one that does not end, exceeds 64 bits, or
/// is not the shortest spelling (FOOTER-2).
fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * i);
        if byte & 0x80 == 0 {
            let longer_than_need_be = byte == 0 && i > 0;
            return if longer_than_need_be { None } else { Some((number, &bytes[i + 1..])) };
        }
    }
    None
}

/// Whether this is a format version whose footer is 53 bytes long.
const fn supported(version: u32) -> bool {
    1 <= version && version <= VERSION_MAX
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

const LEGACY_BLOCK_BASED_REFUSED: Error =
    Error::NotSupported("block-based tables of format version 0 (LevelDB's tables)");

#[cold]
fn corrupt(offset: u64, expected: u64, found: u64) -> Error {
    Corruption::new(Place::Encoding, offset, expected, found).into()
}

#[cold]
fn unknown_magic(found: u64, at: u64) -> Error {
    let known = TableMagic::ALL.map(TableMagic::number).into_iter().chain([LEGACY_PLAIN]);
    let near = known.clone().find(|number| (number ^ found).is_power_of_two());
    let mut report =
        Corruption::new(Place::Encoding, at, near.unwrap_or(TableMagic::BlockBased.number()), found);
    report.flipped_bit = near.map(|number| u64::from((number ^ found).trailing_zeros()));
    report.into()
}

/// A version that this crate does not know is a later one, unless one flipped bit explains it.
#[cold]
fn unknown_version(bytes: &[u8; LEN], magic: TableMagic, at: u64) -> Error {
    let version = u32_at(bytes, VERSION_AT);
    let mut report =
        Corruption::new(Place::Encoding, at + VERSION_AT as u64, VERSION_MAX.into(), version.into());
    for bit in 0..u32::BITS {
        let known = version ^ 1 << bit;
        let mut unflipped = *bytes;
        unflipped[VERSION_AT..VERSION_AT + 4].copy_from_slice(&known.to_le_bytes());
        if supported(known) && Footer::decode(&unflipped, at + LEN as u64).is_ok() {
            (report.expected, report.flipped_bit) = (known.into(), Some(bit.into()));
            return report.into();
        }
    }
    if magic == TableMagic::BlockBased && (VERSION_MAX + 1..=u8::MAX.into()).contains(&version) {
        return Error::NotSupported("block-based tables of a format version after 7");
    }
    report.into()
}

#[cold]
fn wrong_version(magic: TableMagic, version: u32, wanted: &str) -> Error {
    Error::InvalidArgument(format!("format version {version} of {magic:?} tables has not {wanted}"))
}

#[cold]
fn misplaced(handle: BlockHandle, what: &str, footer_offset: u64) -> Error {
    let BlockHandle { offset, size } = handle;
    Error::InvalidArgument(format!("block of {size} bytes at {offset} {what} at {footer_offset}"))
}
