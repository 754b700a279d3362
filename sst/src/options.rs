//! Options of a table file.
//!
//! Plain data; any thread. `build` returns `InvalidArgument` for an option that the format version
//! does not allow.

use std::num::NonZeroU32;

use paranoid_memtable::ChecksumKind;

use crate::block_cursor::RESTART_INTERVAL_MAX;
use crate::error::{Error, Result};

/// The largest block size option. A single large entry may make a block larger.
pub(crate) const BLOCK_SIZE_MAX: u32 = 16 << 20;

/// The compression of data blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// No compression (default).
    #[default]
    None,
    /// lz4, for blocks where it saves an eighth or more. Feature `lz4`.
    #[cfg(feature = "lz4")]
    Lz4,
    /// snappy, for blocks where it saves an eighth or more. Feature `snappy`.
    #[cfg(feature = "snappy")]
    Snappy,
    /// zstd at its fastest level, for blocks where it saves an eighth or more. Feature `zstd`.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// How the index shortens its keys, which separate blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IndexShortening {
    /// Keys are not shortened: each is the last key of its block.
    None,
    /// Keys between blocks are shortened, as RocksDB does by default (default).
    #[default]
    Separators,
    /// Keys between blocks and the last key of the file are shortened.
    SeparatorsAndSuccessor,
}

/// The column family that a file belongs to. RocksDB's repair relies on it: it moves a file of
/// another column family away.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnFamily {
    /// The number of the column family.
    pub id: u32,
    /// The name of the column family.
    pub name: String,
}

impl ColumnFamily {
    /// No particular column family, as in files for ingestion.
    #[must_use]
    pub fn unknown() -> Self {
        ColumnFamily {
            id: 0x7fff_ffff,
            name: String::new(),
        }
    }
}

impl Default for ColumnFamily {
    /// Column family 0, named `default`.
    fn default() -> Self {
        ColumnFamily {
            id: 0,
            name: "default".into(),
        }
    }
}

/// Options of a [`SortedTableWriter`](crate::SortedTableWriter).
///
/// ```
/// use paranoid_memtable::ChecksumKind;
/// use paranoid_sst::SortedTableOptions;
/// let options = SortedTableOptions::builder().checksum(ChecksumKind::Crc32c).block_size(16 << 10).build()?;
/// assert_eq!(options, SortedTableOptions::builder().checksum(ChecksumKind::Crc32c).block_size(16 << 10).build()?);
/// assert!(SortedTableOptions::builder().checksum(ChecksumKind::Crc32).build().is_err(), "RocksDB has no such kind");
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedTableOptions {
    pub(crate) format_version: u32,
    pub(crate) checksum: ChecksumKind,
    pub(crate) compression: Compression,
    pub(crate) block_size: u32,
    pub(crate) block_size_deviation: u32,
    pub(crate) block_restart_interval: u32,
    pub(crate) index_block_restart_interval: u32,
    pub(crate) index_shortening: IndexShortening,
    pub(crate) bloom_millibits: u32,
    pub(crate) column_family: ColumnFamily,
    pub(crate) creation_time: Option<u64>,
    pub(crate) context_base: Option<NonZeroU32>,
    pub(crate) verify_after_write: bool,
}

impl Default for SortedTableOptions {
    fn default() -> Self {
        SortedTableOptions {
            format_version: 5,
            checksum: ChecksumKind::Xxh3,
            compression: Compression::None,
            block_size: 4096,
            block_size_deviation: 10,
            block_restart_interval: 16,
            index_block_restart_interval: 1,
            index_shortening: IndexShortening::default(),
            bloom_millibits: 10_000,
            column_family: ColumnFamily::default(),
            creation_time: None,
            context_base: None,
            verify_after_write: true,
        }
    }
}

impl SortedTableOptions {
    /// A builder with the default options.
    pub fn builder() -> SortedTableOptionsBuilder {
        SortedTableOptionsBuilder {
            options: SortedTableOptions::default(),
        }
    }
}

/// Builds [`SortedTableOptions`].
#[derive(Debug, Clone)]
#[must_use]
pub struct SortedTableOptionsBuilder {
    options: SortedTableOptions,
}

macro_rules! setters {
    ($($(#[$about:meta])* $name:ident: $kind:ty => $field:ident;)*) => {
        impl SortedTableOptionsBuilder {
            $($(#[$about])*
            pub fn $name(mut self, value: $kind) -> Self {
                self.options.$field = value.into();
                self
            })*
        }
    };
}

setters! {
    /// RocksDB's format version, 2 to 6. Default 5, which every RocksDB since 6.27 opens, or since
    /// 6.6 if the checksum is not XXH3. Older readers need a lower version and the checksum
    /// `Crc32c`. Pebble needs version 2 in stores of its oldest format.
    format_version: u32 => format_version;
    /// The checksum of every block. Default XXH3. `Crc32` is refused, because RocksDB does not have
    /// it.
    checksum: ChecksumKind => checksum;
    /// The compression of data blocks. Default none.
    compression: Compression => compression;
    /// Approximate bytes of a data block. Default 4096.
    block_size: u32 => block_size;
    /// A block may end this many per cent below its size, if the next entry would make it larger
    /// than that. Default 10.
    block_size_deviation: u32 => block_size_deviation;
    /// Restart interval of data blocks: the number of entries from one key that is stored whole to
    /// the next, 1 to 128. Default 16.
    block_restart_interval: u32 => block_restart_interval;
    /// Restart interval of the index: the number of entries from one key that is stored whole to
    /// the next, 1 to 128. Default 1.
    index_block_restart_interval: u32 => index_block_restart_interval;
    /// How the index shortens its keys.
    index_shortening: IndexShortening => index_shortening;
    /// Thousandths of bits of the Bloom filter per key. Default 10000, which is 10 bits. 0: no
    /// filter.
    bloom_millibits_per_key: u32 => bloom_millibits;
    /// The column family. Default number 0, name `default`.
    column_family: ColumnFamily => column_family;
    /// The time of creation to store, in seconds since 1970. Default: the clock when the file is
    /// begun.
    creation_time: u64 => creation_time;
    /// The context of the checksums of format version 6; older versions have none. Default: a
    /// random number for each file.
    context_base: NonZeroU32 => context_base;
    /// Whether every byte of the file is read back before the file gets its name. Default yes.
    verify_after_write: bool => verify_after_write;
}

impl SortedTableOptionsBuilder {
    /// Checks and returns the options.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the option.
    pub fn build(self) -> Result<SortedTableOptions> {
        let options = self.options;
        let (bits, percent) = (options.bloom_millibits, options.block_size_deviation);
        let intervals = [
            options.block_restart_interval,
            options.index_block_restart_interval,
        ];
        let wrong = intervals
            .into_iter()
            .find(|interval| !(1..=RESTART_INTERVAL_MAX).contains(interval));
        for (holds, what, value) in [
            (
                (2..=6).contains(&options.format_version),
                "format version",
                options.format_version,
            ),
            (
                options.checksum <= ChecksumKind::Xxh3,
                "checksum kind",
                options.checksum.as_u8().into(),
            ),
            (
                (1..=BLOCK_SIZE_MAX).contains(&options.block_size),
                "block size",
                options.block_size,
            ),
            (percent <= 100, "block size deviation", percent),
            (wrong.is_none(), "restart interval", wrong.unwrap_or(0)),
            (
                options.context_base.is_none() || options.format_version >= 6,
                "a context base with format version",
                options.format_version,
            ),
            (
                bits == 0 || (1000..=1_000_000).contains(&bits),
                "thousandths of bits per key",
                bits,
            ),
        ] {
            if !holds {
                return Err(Error::InvalidArgument(format!("{what} {value}")));
            }
        }
        Ok(options)
    }
}
