//! Footers of block-based table files: LevelDB's, which is version 0, and format versions 1 to 7.
//!
//! ```text
//!   version 0               | metaindex, index as varints, zeros (40)                           | magic (8)
//!   versions 1-5   | kind (1) | metaindex, index as varints, zeros (40)            | version (4) | magic (8)
//!   versions 6, 7  | kind (1) | 3e 00 7a 00 | checksum (4) | base (4) | metaindex size (4)
//!                  | reserved (16) | must be zero (8)                              | version (4) | magic (8)
//! ```
//! All numbers are little-endian. Plain data and pure functions; any thread. Not promised: the
//! value of the reserved bytes, which are written as zero. Version 0 is only read.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::ChecksumKind;
use paranoid_memtable::integrity::BlockChecks;

use crate::coding::{BlockHandle, TRAILER_LEN, put_handle, take_handle, u32_at, u64_at};
use crate::error::{BlockKind, Corruption, Error, Result};

const LEN: usize = Footer::LEN;
const VERSION_MAX: u32 = 7;
const VERSION_WITH_CONTEXT: u32 = 6;
/// RocksDB's number for the format of LevelDB. RocksDB's own first releases wrote it too.
pub(crate) const LEVELDB_VERSION: u32 = 0;

const BLOCK_BASED: u64 = 0x88e2_41b7_85f4_cff7;
const LEVELDB: u64 = 0xdb47_7524_8b80_fb57;
/// Magic numbers of tables that this crate does not read.
const OTHERS: [(u64, &str); 4] = [
    (0x8242_2296_63bf_9564, "plain tables"),
    (0x4f34_18eb_7a8f_13b8, "plain tables"),
    (0x9267_89d0_c5f1_7873, "cuckoo tables"),
    (
        u64::from_le_bytes([0xf0, 0x9f, 0xaa, 0xb3, 0xf0, 0x9f, 0xaa, 0xb3]),
        "tables of Pebble's own formats",
    ),
];
const EXTENDED_MAGIC: u32 = u32::from_le_bytes([0x3e, 0x00, 0x7a, 0x00]);

const CHECKSUM_AT: usize = 5;
const BASE_AT: usize = 9;
const METAINDEX_SIZE_AT: usize = 13;
const ZEROS_AT: usize = 33;
const VERSION_AT: usize = 41;
const MAGIC_AT: usize = 45;
/// Where the shorter footer of version 0 begins in the last 53 bytes.
const LEVELDB_AT: usize = 5;

const _: () = assert!(
    METAINDEX_SIZE_AT + 4 + 16 == ZEROS_AT && ZEROS_AT + 8 == VERSION_AT && MAGIC_AT + 8 == LEN
);

/// The last 53 bytes of a table file, or the last 48 of a LevelDB table: the format version, the
/// checksum of its blocks, and the place of its metaindex block.
///
/// ```
/// use std::{num::NonZeroU32, path::Path, sync::Arc};
/// use paranoid_memtable::{ChecksumKind, integrity::BlockChecks};
/// use paranoid_sst::{BlockHandle, Footer};
///
/// let base = NonZeroU32::new(123_456_789).expect("not zero");
/// let checks = BlockChecks::with_context(ChecksumKind::Xxh3, base);
/// let footer = Footer::new(7, checks, BlockHandle { offset: 1210, size: 300 }, None)?;
///
/// let footer_offset = 1515; // after the metaindex and its trailer
/// let mut bytes = footer.encode(footer_offset)?;
/// let file: Arc<Path> = Path::new("a.sst").into();
/// assert_eq!(Footer::decode(&file, &bytes, footer_offset)?, footer);
///
/// bytes[14] ^= 1;
/// let error = Footer::decode(&file, &bytes, footer_offset).unwrap_err();
/// assert_eq!(error.corruption().expect("a report").flipped_bit, Some(14 * 8));
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Footer {
    format_version: u32,
    checks: BlockChecks,
    metaindex: BlockHandle,
    index: Option<BlockHandle>,
}

impl Footer {
    /// Length in bytes of a footer that [`encode`](Self::encode) writes and
    /// [`decode`](Self::decode) takes.
    pub const LEN: usize = 53;

    /// Makes a footer. One of format version 1 to 5 names the index block. One of version 6 or 7
    /// has checks with a context; its metaindex block is the last one of the file, and names the
    /// index.
    ///
    /// # Errors
    /// `InvalidArgument` for another version, for an index or a context that the version does not
    /// have, for a checksum kind that RocksDB does not have, and for a metaindex block of 4 GiB or
    /// more in versions 6 and 7.
    pub fn new(
        format_version: u32,
        checks: BlockChecks,
        metaindex: BlockHandle,
        index: Option<BlockHandle>,
    ) -> Result<Footer> {
        let has_context = format_version >= VERSION_WITH_CONTEXT;
        let refused = if !is_known(format_version) {
            Some("no such version")
        } else if has_context != checks.context_base().is_some() {
            Some("versions 6 and 7 have a context, others none")
        } else if has_context != index.is_none() {
            Some("versions 1 to 5 name the index, others do not")
        } else if checks.kind() > ChecksumKind::Xxh3 {
            Some("a checksum kind that RocksDB has not")
        } else if has_context && metaindex.size > u64::from(u32::MAX) {
            Some("a metaindex block of 4 GiB or more")
        } else {
            None
        };
        match refused {
            Some(text) => Err(Error::InvalidArgument(format!(
                "footer of format version {format_version}: {text}"
            ))),
            None => Ok(Footer {
                format_version,
                checks,
                metaindex,
                index,
            }),
        }
    }

    /// The format version: 1 to 7, or 0 for the format of LevelDB, which RocksDB's first releases
    /// wrote too.
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

    /// The place of the index block. `None` from format version 6: there the metaindex block names
    /// it.
    #[must_use]
    pub const fn index(&self) -> Option<BlockHandle> {
        self.index
    }

    /// Length of this footer in its file, in bytes.
    pub(crate) const fn stored_len(&self) -> u64 {
        if self.format_version == LEVELDB_VERSION {
            (LEN - LEVELDB_AT) as u64
        } else {
            LEN as u64
        }
    }

    /// Whether the metaindex, the index and this footer end the file without a gap, as LevelDB
    /// writes them. A flipped bit in one of their handles makes a gap.
    pub(crate) fn is_last_of_leveldb(&self, footer_offset: u64) -> bool {
        self.index.is_some_and(|index| {
            self.metaindex.end() == index.offset && index.end() == footer_offset
        })
    }

    /// The bytes to write at `footer_offset` of the file.
    ///
    /// # Errors
    /// `InvalidArgument` for a footer that was decoded from a LevelDB table, if a block with its
    /// trailer would end after `footer_offset`, or if the metaindex block of version 6 or 7 does
    /// not end exactly there.
    pub fn encode(&self, footer_offset: u64) -> Result<[u8; LEN]> {
        if self.format_version == LEVELDB_VERSION {
            return Err(Error::InvalidArgument(
                "a footer of LevelDB is not written".into(),
            ));
        }
        for handle in std::iter::once(self.metaindex).chain(self.index) {
            if handle.end() > footer_offset || self.index.is_none() && handle.end() != footer_offset
            {
                let BlockHandle { offset, size } = handle;
                let text =
                    format!("a block of {size} bytes at {offset} and a footer at {footer_offset}");
                return Err(Error::InvalidArgument(text));
            }
        }
        let mut bytes = vec![self.checks.kind().as_u8()];
        if let Some(index) = self.index {
            put_handle(&mut bytes, self.metaindex);
            put_handle(&mut bytes, index);
        } else {
            bytes.extend(EXTENDED_MAGIC.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(
                self.checks
                    .context_base()
                    .map_or(0, NonZeroU32::get)
                    .to_le_bytes(),
            );
            // `new` refuses a size that needs more than four bytes.
            bytes.extend(&self.metaindex.size.to_le_bytes()[..4]);
        }
        bytes.resize(VERSION_AT, 0);
        bytes.extend(self.format_version.to_le_bytes());
        bytes.extend(BLOCK_BASED.to_le_bytes());
        let mut all = [0; LEN];
        all.copy_from_slice(&bytes);
        if self.index.is_none() {
            let checksum = own_checksum(&all, &self.checks, footer_offset);
            all[CHECKSUM_AT..BASE_AT].copy_from_slice(&checksum.to_le_bytes());
        }
        Ok(all)
    }

    /// Reads the last 53 bytes of a file, which are at `footer_offset`; `file` is its name in
    /// reports. The footer of a LevelDB table is the last 48 of these bytes. The bytes may be
    /// arbitrary. O(1).
    ///
    /// # Errors
    /// `Corruption` for:
    /// * an unknown magic number, format version or checksum kind. A version after 7 is corruption
    ///   if one flipped bit explains it;
    /// * a malformed handle, a block that ends after the footer, padding that is not zero;
    /// * in versions 6 and 7, a wrong extended magic, a base of zero, or a wrong checksum.
    ///
    /// In the report, `offset` is that of the damaged field, or of the footer for its checksum.
    /// `flipped_bit` is the one bit whose flip explains the damage, if there is one.
    ///
    /// `NotSupported` for plain and cuckoo tables, tables of Pebble's own formats, versions 8 to
    /// 255, and reserved bytes that a later format sets.
    pub fn decode(file: &Arc<Path>, bytes: &[u8; LEN], footer_offset: u64) -> Result<Footer> {
        Tail {
            file,
            bytes,
            at: footer_offset,
            start: footer_offset,
        }
        .decode()
    }
}

/// The last 53 bytes of a file.
#[derive(Debug, Clone, Copy)]
struct Tail<'a> {
    file: &'a Arc<Path>,
    bytes: &'a [u8; LEN],
    at: u64,
    /// Where the footer itself begins.
    start: u64,
}

impl Tail<'_> {
    fn decode(self) -> Result<Footer> {
        let magic = u64_at(self.bytes, MAGIC_AT).unwrap_or(0);
        if let Some((_, name)) = OTHERS.iter().find(|(number, _)| *number == magic) {
            return Err(self.not_supported(name));
        }
        if magic == LEVELDB {
            let tail = Tail {
                start: self.at.saturating_add(LEVELDB_AT as u64),
                ..self
            };
            return tail.decode_plain(LEVELDB_VERSION, ChecksumKind::Crc32c, LEVELDB_AT..MAGIC_AT);
        }
        if magic != BLOCK_BASED {
            let near = [BLOCK_BASED, LEVELDB]
                .into_iter()
                .find(|known| (magic ^ known).is_power_of_two());
            let bit = near.map(|known| u64::from((magic ^ known).trailing_zeros()));
            let values = (near.unwrap_or(BLOCK_BASED), magic);
            return Err(self.damaged("no magic number of a table file", MAGIC_AT, values, bit));
        }
        let version = self.word(VERSION_AT);
        if !is_known(version) {
            return Err(self.unknown_version(version));
        }
        let Some(kind) = ChecksumKind::try_from(self.bytes[0])
            .ok()
            .filter(|kind| *kind <= ChecksumKind::Xxh3)
        else {
            let values = (ChecksumKind::Xxh3.as_u8().into(), self.bytes[0].into());
            return Err(self.damaged("a checksum kind that RocksDB has not", 0, values, None));
        };
        if version >= VERSION_WITH_CONTEXT {
            return self.decode_with_context(version, kind);
        }
        self.decode_plain(version, kind, 1..VERSION_AT)
    }

    /// Reads two handles, and zeros up to the end of `place`. The footers of versions 0 to 5 have
    /// no checksum, so a decoded footer must encode to the same bytes: varints are as short as
    /// possible, and padding is zero. Otherwise one flipped bit of the version would turn a footer
    /// of version 6 into one of version 4 with other handles.
    fn decode_plain(
        self,
        format_version: u32,
        kind: ChecksumKind,
        place: Range<usize>,
    ) -> Result<Footer> {
        let (metaindex, rest) = self.handle(place.clone())?;
        let (index, rest) = self.handle(rest)?;
        if let Some(found) = self.bytes[rest.clone()].iter().position(|&byte| byte != 0) {
            let at = rest.start + found;
            return Err(self.damaged(
                "padding that is not zero",
                at,
                (0, self.bytes[at].into()),
                None,
            ));
        }
        Ok(Footer {
            format_version,
            checks: BlockChecks::new(kind),
            metaindex,
            index: Some(index),
        })
    }

    fn decode_with_context(self, version: u32, kind: ChecksumKind) -> Result<Footer> {
        let extended = self.word(1);
        if extended != EXTENDED_MAGIC {
            let values = (EXTENDED_MAGIC.into(), extended.into());
            return Err(self.damaged("no extended magic number", 1, values, None));
        }
        let Some(base) = NonZeroU32::new(self.word(BASE_AT)) else {
            return Err(self.damaged("a context base of zero", BASE_AT, (1, 0), None));
        };
        let checks = BlockChecks::with_context(kind, base);
        let (expected, found) = (
            own_checksum(self.bytes, &checks, self.at),
            self.word(CHECKSUM_AT),
        );
        if expected != found {
            let holds = |bit: &usize| own_checksum_holds(&with_flip(self.bytes, *bit), self.at);
            let bit = (0..LEN * 8).find(holds).map(|bit| bit as u64);
            return Err(self.damaged("checksum mismatch", 0, (expected.into(), found.into()), bit));
        }
        if self.bytes[ZEROS_AT..VERSION_AT] != [0; 8] {
            return Err(self.not_supported("a footer with a feature of a later format version"));
        }
        let size = u64::from(self.word(METAINDEX_SIZE_AT));
        let end = size + TRAILER_LEN;
        let Some(offset) = self.at.checked_sub(end) else {
            let what = "a block that ends in the footer";
            return Err(self.damaged(what, METAINDEX_SIZE_AT, (self.at, end), None));
        };
        Footer::new(version, checks, BlockHandle { offset, size }, None)
    }

    /// The handle at the start of `place`, and the rest of `place`. The block with its trailer must
    /// end at or before the footer.
    fn handle(&self, place: Range<usize>) -> Result<(BlockHandle, Range<usize>)> {
        let bytes = &self.bytes[place.clone()];
        let Some((handle, rest)) = take_handle(bytes) else {
            let values = (0, bytes.first().copied().unwrap_or(0).into());
            return Err(self.damaged("no handle of a block", place.start, values, None));
        };
        if handle.end() > self.start {
            let values = (self.start, handle.end());
            return Err(self.damaged("a block that ends in the footer", place.start, values, None));
        }
        Ok((handle, place.end - rest.len()..place.end))
    }

    fn word(&self, at: usize) -> u32 {
        u32_at(self.bytes, at).unwrap_or(0)
    }

    /// Reports a version that this crate does not know as a later one, unless one flipped bit
    /// explains it.
    #[cold]
    fn unknown_version(self, version: u32) -> Error {
        let is_footer = |bit: &usize| {
            let bytes = with_flip(self.bytes, VERSION_AT * 8 + bit);
            is_known(version ^ 1 << bit)
                && Tail {
                    bytes: &bytes,
                    ..self
                }
                .decode()
                .is_ok()
        };
        let bit = (0..32).find(is_footer);
        if bit.is_none() && (VERSION_MAX + 1..=u8::MAX.into()).contains(&version) {
            return self.not_supported("block-based tables of a format version after 7");
        }
        let expected = bit.map_or(VERSION_MAX, |bit| version ^ 1 << bit);
        let bit = bit.map(|bit| bit as u64);
        self.damaged(
            "an unknown format version",
            VERSION_AT,
            (expected.into(), version.into()),
            bit,
        )
    }

    #[cold]
    fn damaged(
        &self,
        what: &'static str,
        at: usize,
        values: (u64, u64),
        flipped_bit: Option<u64>,
    ) -> Error {
        let (file, block) = (Arc::clone(self.file), BlockKind::Footer);
        let (offset, values) = (self.at.saturating_add(at as u64), Some(values));
        Error::Corruption(Corruption {
            file,
            block,
            offset,
            what,
            values,
            flipped_bit,
        })
    }

    #[cold]
    fn not_supported(&self, feature: &str) -> Error {
        Error::NotSupported {
            file: Arc::clone(self.file),
            feature: feature.into(),
        }
    }
}

/// The footer's checksum. It covers all 53 bytes, with zeros in place of the checksum itself, and
/// adds the modifier of the footer's own offset.
fn own_checksum(bytes: &[u8; LEN], checks: &BlockChecks, at: u64) -> u32 {
    let mut copy = *bytes;
    copy[CHECKSUM_AT..BASE_AT].fill(0);
    checks
        .kind()
        .checksum(&copy)
        .wrapping_add(checks.modifier(at))
}

/// Whether the checksum of `bytes` is right, if they are a footer with a context.
#[cold]
fn own_checksum_holds(bytes: &[u8; LEN], at: u64) -> bool {
    let kind = ChecksumKind::try_from(bytes[0]).ok();
    let (Some(kind), Some(base)) = (kind, u32_at(bytes, BASE_AT).and_then(NonZeroU32::new)) else {
        return false;
    };
    Some(own_checksum(
        bytes,
        &BlockChecks::with_context(kind, base),
        at,
    )) == u32_at(bytes, CHECKSUM_AT)
}

fn with_flip(bytes: &[u8; LEN], bit: usize) -> [u8; LEN] {
    let mut copy = *bytes;
    copy[bit / 8] ^= 1 << (bit % 8);
    copy
}

/// Whether this is a format version whose footer this crate knows.
const fn is_known(version: u32) -> bool {
    1 <= version && version <= VERSION_MAX
}
