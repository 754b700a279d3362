//! The errors of files: one enum and one plain struct.
//!
//! All types are plain data, `Send` and `Sync`. Match on variants and fields: the wording of
//! messages may change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
///
/// ```
/// use paranoid_sst::{Error, SortedTableOptions};
/// let error = SortedTableOptions::builder().format_version(7).build().unwrap_err();
/// assert!(matches!(error, Error::InvalidArgument(_)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option that makes no sense, or an entry that RocksDB's files cannot hold. The text names
    /// it.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// An intact file that uses a feature which this reader does not support. The text names it.
    #[error("{file}: not supported: {feature}", file = file.display())]
    NotSupported {
        /// The file.
        file: Arc<Path>,
        /// The feature that the file uses.
        feature: String,
    },
    /// The operating system refused a call.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file, or a block that is about to become part of one, does not hold what was written.
    #[error("corruption: {0}")]
    Corruption(Corruption),
    /// The memtable refused a call, or is damaged.
    #[error(transparent)]
    Memtable(#[from] paranoid_memtable::Error),
}

impl Error {
    /// The corruption report, if this is one.
    #[must_use]
    pub fn corruption(&self) -> Option<&Corruption> {
        match self {
            Error::Corruption(corruption) => Some(corruption),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BlockKind {
    /// The footer: the last 53 bytes, or the last 48 of a LevelDB table.
    Footer,
    /// The block that names the other blocks.
    Metaindex,
    /// The properties.
    Properties,
    /// The index.
    Index,
    /// A filter: the Bloom filter that gets use, or another one, which is only verified.
    Filter,
    /// The range tombstones.
    RangeDeletions,
    /// The compression dictionary.
    Dictionary,
    /// A block of entries.
    Data,
    /// A block that the metaindex names by a name unknown to this reader.
    Other,
}

/// A report of a file that does not hold what was written to it. It has no bytes of keys or values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The file.
    pub file: Arc<Path>,
    /// The damaged part of the file.
    pub block: BlockKind,
    /// Offset in the file: of the block, or in the footer of the damaged field.
    pub offset: u64,
    /// The fact that does not hold.
    pub what: &'static str,
    /// The value that was computed and the value in the file, if two values differ.
    pub values: Option<(u64, u64)>,
    /// The one bit whose flip explains the damage, if there is one. It is counted from the block's
    /// start (byte times 8, plus bit).
    pub flipped_bit: Option<u64>,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:?} block at offset {}: {}",
            self.file.display(),
            self.block,
            self.offset,
            self.what
        )?;
        if let Some((expected, found)) = self.values {
            write!(f, ": {found:#x} stored, {expected:#x} computed")?;
        }
        if let Some(bit) = self.flipped_bit {
            write!(
                f,
                "; one flipped bit explains it: byte {} bit {}",
                bit / 8,
                bit % 8
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Corruption {}

/// Damage inside a block, before its block and file are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

impl Damage {
    /// Makes the report for a block at `offset` of `file`.
    #[cold]
    pub(crate) fn in_file(self, file: &Arc<Path>, block: BlockKind, offset: u64) -> Error {
        let (file, what) = (Arc::clone(file), self.0);
        Error::Corruption(Corruption {
            file,
            block,
            offset,
            what,
            values: None,
            flipped_bit: None,
        })
    }
}
