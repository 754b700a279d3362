//! The limits of RocksDB's table files, with which an engine refuses a write before it acknowledges
//! it.
//!
//! Plain data and pure functions; any thread.

use std::fmt;

use crate::error::{Error, Result};
use crate::internal_key::SEQUENCE_MAX;
use crate::options::BLOCK_SIZE_MAX;
use paranoid_memtable::flush::FlushEntry;
use paranoid_memtable::{Kind, SequenceNumber};

/// The limits of a table file. If all entries of a table pass [`Limits::check`], the table can be
/// written to a file.
///
/// ```
/// use paranoid_memtable::Kind;
/// let limits = paranoid_sst::limits();
/// limits.check(b"key", limits.sequence_max, Kind::PUT, 5)?;
/// let error = limits.check(b"key", limits.sequence_max + 1, Kind::PUT, 5).unwrap_err();
/// assert!(error.to_string().contains("\"key\" @ 72057594037927936 PUT"), "{error}");
/// assert!(limits.check(b"key", 1, Kind::from_u8(0x80), 5).is_err());
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest sequence number: 56 bits.
    pub sequence_max: SequenceNumber,
    /// Most bytes of key and value together. A block must be smaller than 4 GiB.
    pub entry_len_max: u64,
    /// The kinds of entries that a file can hold.
    pub kinds: &'static [Kind],
}

/// Returns the limits of a table file.
#[must_use]
pub const fn limits() -> Limits {
    const KINDS: &[Kind] = &[
        Kind::DELETE,
        Kind::PUT,
        Kind::MERGE,
        Kind::SINGLE_DELETE,
        Kind::RANGE_DELETE,
    ];
    // Room for a block that is not full yet, and for what is stored beside the entry.
    let beside = BLOCK_SIZE_MAX as u64 + 4096;
    Limits {
        sequence_max: SEQUENCE_MAX,
        entry_len_max: u32::MAX as u64 - beside,
        kinds: KINDS,
    }
}

impl Limits {
    /// Checks that an entry can be written to a file. O(1).
    ///
    /// # Errors
    /// `InvalidArgument`, which names the entry.
    #[inline]
    pub fn check(
        &self,
        user_key: &[u8],
        sequence: SequenceNumber,
        kind: Kind,
        value_len: u64,
    ) -> Result<()> {
        let fits = (user_key.len() as u64).saturating_add(value_len) <= self.entry_len_max;
        if sequence <= self.sequence_max && fits && self.kinds.contains(&kind) {
            return Ok(());
        }
        Err(EntryName {
            user_key,
            sequence,
            kind,
        }
        .refused(if sequence > self.sequence_max {
            "the sequence number needs more than 56 bits"
        } else if fits {
            "RocksDB has no such kind"
        } else {
            "key and value are over the limit of a block"
        }))
    }
}

/// Longest part of a key that a message repeats.
const SHOWN_MAX: usize = 64;

/// The name of an entry in messages.
pub(crate) struct EntryName<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: Kind,
}

impl EntryName<'_> {
    #[cold]
    pub(crate) fn refused(&self, reason: &str) -> Error {
        Error::InvalidArgument(format!("entry {self}: {reason}"))
    }
}

impl<'a> From<&FlushEntry<'a>> for EntryName<'a> {
    fn from(entry: &FlushEntry<'a>) -> Self {
        EntryName {
            user_key: entry.user_key,
            sequence: entry.sequence,
            kind: entry.kind,
        }
    }
}

impl fmt::Display for EntryName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.user_key[..self.user_key.len().min(SHOWN_MAX)];
        let dots = if shown.len() < self.user_key.len() {
            ".."
        } else {
            ""
        };
        write!(
            f,
            "\"{}{dots}\" @ {} {:?}",
            shown.escape_ascii(),
            self.sequence,
            self.kind
        )
    }
}
