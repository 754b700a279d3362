//! Everything that can go wrong, as one enum and one small plain struct.
//!
//! Who may call what: all types here are plain data, `Send` and `Sync`.
//! Not promised: the wording of messages. Match on variants and fields.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. An error leaves the table as it was: nothing changed, nothing lost. (`BatchInterrupted` says what
/// it left.) Clones are cheap, so that several waiting threads can be told.
///
/// ```
/// use paranoid_memtable::{Error, ParanoidOptions};
/// let error = ParanoidOptions::builder().protection_bytes(3).build().unwrap_err();
/// assert!(matches!(error, Error::InvalidArgument(_)));
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, a range or a name that makes no sense. The text names it.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// Bytes that are intact but were written with a feature that this version does not know (feature `block`).
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// A key longer than the table's limit, both in bytes.
    #[error("key of {len} bytes is over the limit of {max}")]
    KeyTooLarge {
        /// Length of the key that was refused, in bytes.
        len: u64,
        /// Longest key that this table takes, in bytes.
        max: u64,
    },
    /// A value longer than the table's limit, both in bytes.
    #[error("value of {len} bytes is over the limit of {max}")]
    ValueTooLarge {
        /// Length of the value that was refused, in bytes.
        len: u64,
        /// Longest value that this table takes, in bytes.
        max: u64,
    },
    /// The hard limit (or the address space, or the machine's memory) is exhausted. The table is not poisoned: a
    /// smaller entry may still fit, and all reads go on.
    #[error("memtable is full: {needed} bytes needed, {remaining} remain")]
    MemTableFull {
        /// Bytes that the refused entry would have taken.
        needed: u64,
        /// Bytes that are left below the hard limit.
        remaining: u64,
    },
    /// An entry with this user key and sequence number is already there (policy `Reject`). From a freeze: two such
    /// entries are, in a `Vector` table; both were kept.
    #[error("an entry with this user key and sequence number {sequence} exists")]
    DuplicateEntry {
        /// The sequence number of both entries.
        sequence: u64,
    },
    /// The table was frozen; it takes no more writes.
    #[error("the memtable is frozen")]
    Frozen,
    /// A batch was stopped after its checks had passed, by damage found on the way or by a writer that took the same
    /// key and sequence number meanwhile. The caller must not publish the batch's sequence numbers.
    #[error("batch interrupted after {applied} entries: {cause}")]
    BatchInterrupted {
        /// How many entries of the batch are in the table.
        applied: u64,
        /// What stopped it.
        cause: Box<Error>,
    },
    /// `multi_get` with a budget was stopped before this key: the values before it use the budget up. Ask again.
    #[error("the value budget of {budget} bytes is used up")]
    BudgetUsedUp {
        /// Bytes of values that the caller allowed.
        budget: u64,
    },
    /// The sink given to `flush` refused an entry. The cause is shared, so that errors can be cloned:
    /// `downcast_ref` of what it points to gives the sink's own error type.
    #[error("flush sink: {0}")]
    Sink(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// Memory does not hold what was written to it.
    #[error("corruption: {0}")]
    Corruption(Corruption),
}

impl Error {
    /// The corruption report, if this is one (also inside `BatchInterrupted`).
    #[must_use]
    pub fn corruption(&self) -> Option<&Corruption> {
        match self {
            Error::Corruption(corruption) => Some(corruption),
            Error::BatchInterrupted { cause, .. } => cause.corruption(),
            _ => None,
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Error::Corruption(corruption)
    }
}

/// Which kind of memory was found damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The fixed part of an entry: lengths, kind, sequence number, header check.
    Header,
    /// An entry's key, or what its key digest covers besides.
    Entry,
    /// An entry's value.
    Value,
    /// A link of the skiplist that leaves a gap in the order.
    Link,
    /// Two neighbours are out of order (order checks).
    Order,
    /// A word of the Bloom filter.
    Filter,
    /// A slot or control word of the point index.
    Slot,
    /// A piece of the tombstone index or a fragment.
    Fragment,
    /// The table's own control block.
    Control,
    /// Counts or sums differ between what was written and what a full pass found.
    Sum,
    /// Encoded bytes handed in by the caller: a batch, a trailer, a footer.
    Encoding,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Header => "entry header",
            Place::Entry => "entry key",
            Place::Value => "entry value",
            Place::Link => "link",
            Place::Order => "order of neighbours",
            Place::Filter => "filter",
            Place::Slot => "point index",
            Place::Fragment => "tombstone index",
            Place::Control => "control block",
            Place::Sum => "sealed sums",
            Place::Encoding => "encoding",
        }
    }
}

/// Where memory lied, as data. Holds no user bytes and no heap memory: which key was hit, the caller knows, or a scan
/// at `sequence` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Corruption {
    /// What kind of memory.
    pub place: Place,
    /// Byte offset inside that memory (of the node in the arena, of the word in the filter, of the field in a batch).
    pub offset: u64,
    /// The entry's sequence number as read, if an entry is concerned. It may itself be the damaged part.
    pub sequence: Option<u64>,
    /// The check value computed from the bytes as they are.
    pub expected: u64,
    /// The check value that was stored.
    pub found: u64,
    /// If flipping one single bit explains the damage: that bit, counted from `offset` (byte * 8 + bit).
    pub flipped_bit: Option<u64>,
}

impl Corruption {
    /// A report without diagnosis.
    #[must_use]
    pub(crate) const fn new(place: Place, offset: u64, expected: u64, found: u64) -> Self {
        Corruption { place, offset, sequence: None, expected, found, flipped_bit: None }
    }

    /// This report with the sequence number as read.
    #[must_use]
    pub(crate) const fn with_sequence(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.place.name(), self.offset)?;
        if let Some(sequence) = self.sequence {
            write!(f, " (sequence {sequence})")?;
        }
        write!(f, ": check {:#x} stored, {:#x} computed", self.found, self.expected)?;
        if let Some(bit) = self.flipped_bit {
            write!(f, "; one flipped bit explains it: byte {} bit {}", bit / 8, bit % 8)?;
        }
        Ok(())
    }
}

impl std::error::Error for Corruption {}
