//! Errors: the enum that calls return, and the report of damage.
//!
//! All types are plain data, `Send` and `Sync`. Not promised: the wording of messages. Match on
//! variants and fields.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use crate::trace;

/// The result of every fallible call of this crate.
///
/// ```
/// use paranoid_memtable::MemTable;
/// fn fill(table: &MemTable) -> paranoid_memtable::Result<()> {
///     table.put(1, b"k", b"v")?;
///     Ok(())
/// }
/// assert!(fill(&MemTable::default()).is_ok());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call. A call that fails leaves the table unchanged, with one exception: after
/// `BatchInterrupted`, the table holds a part of the batch, and the error says how much. Clones are
/// cheap, so that several threads can get one error. The [`source`](std::error::Error::source) of
/// an error is its cause; the text of the error does not repeat it.
///
/// All packages of the project that keep tables share this enum. A variant that only `paranoid-set`
/// returns says so: no call on a table returns it.
///
/// ```
/// use paranoid_memtable::{Error, ParanoidOptions};
/// let error = ParanoidOptions::builder().protection_bytes(3).build().unwrap_err();
/// assert!(matches!(error, Error::InvalidArgument(_)));
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid option, range or name; the text says which.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The bytes are intact, but were written with a feature that this version does not know. The
    /// text names the feature.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// A key that is longer than the table's limit.
    #[error("key of {len} bytes is over the limit of {max}")]
    KeyTooLarge {
        /// Length of the key that was refused, in bytes.
        len: u64,
        /// Longest key that this table takes, in bytes.
        max: u64,
    },
    /// A value that is longer than the table's limit.
    #[error("value of {len} bytes is over the limit of {max}")]
    ValueTooLarge {
        /// Length of the value that was refused, in bytes.
        len: u64,
        /// Longest value that this table takes, in bytes.
        max: u64,
    },
    /// The entry would exceed the table's hard limit or its address space. The table stays usable:
    /// a smaller entry may still fit, and reads are not affected.
    #[error("memtable is full: {needed} bytes needed, {remaining} remain")]
    MemTableFull {
        /// Bytes that the refused entry needs.
        needed: u64,
        /// Bytes left below the hard limit.
        remaining: u64,
    },
    /// The operating system refused memory for the table, which is not full. The table stays
    /// usable: an entry that fits into its present memory can still be written, and reads are not
    /// affected.
    #[error("the system refused memory for {needed} bytes")]
    MemoryRefused {
        /// Bytes that the refused entry needs.
        needed: u64,
    },
    /// The entries would make a write batch longer than its `max_bytes`. The batch is unchanged.
    #[error("the batch is full: {needed} bytes needed, the limit is {max}")]
    BatchFull {
        /// Bytes of the batch with the entries that were refused.
        needed: u64,
        /// The limit, in bytes.
        max: u64,
    },
    /// The table already has an entry with this user key and sequence number (policy `Reject`).
    #[error("an entry with this user key and sequence number {sequence} exists")]
    DuplicateEntry {
        /// The sequence number of both entries.
        sequence: u64,
    },
    /// The table is frozen and takes no more writes.
    #[error("the memtable is frozen")]
    Frozen,
    /// A batch passed its checks and then stopped half-way: damage was found, or another writer
    /// inserted one of its keys with the same sequence number. The caller must not publish the
    /// batch's sequence numbers.
    #[error("batch interrupted after {applied} entries")]
    BatchInterrupted {
        /// How many entries of the batch are in the table.
        applied: u64,
        /// The error that stopped the batch.
        #[source]
        cause: Box<Error>,
    },
    /// The sink of a `flush` returned an error. It is shared, so that this error can be cloned;
    /// `downcast_ref` returns the sink's own error type.
    #[error("the flush sink failed")]
    Sink(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The set takes no more writes, because a batch that had its sequence numbers was not
    /// finished, or because a flush met damage. Reads continue, and no acknowledged batch is lost.
    /// A batch that fails with this error did not become visible; a journal may contain it. Only
    /// `paranoid-set` returns it.
    #[error("the set is read-only")]
    ReadOnly {
        /// The error that stopped the set.
        #[source]
        cause: Arc<Error>,
    },
    /// A memory budget is used up. The batch has no sequence numbers, and nothing has changed.
    /// Flush, and write the batch again. Only `paranoid-set` returns it.
    #[error("write stall: {cause}; {tables} tables of the set are not flushed{}", waited_for(.waited))]
    WriteStall {
        /// The budget that is used up.
        cause: StallCause,
        /// Number of tables that are not flushed, including the active one.
        tables: u64,
        /// How long the write has waited for a flush; zero if no flush was running.
        waited: std::time::Duration,
    },
    /// The merge operator returned an error for this key. Only `paranoid-set` returns it.
    #[error("the merge operator failed")]
    Merge(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A sorted source of the engine, such as one of its files, could not be read. It is shared, so
    /// that this error can be cloned; `downcast_ref` returns the source's own error type. Only
    /// `paranoid-set` returns it, from cursors, reads and compactions over such sources.
    #[error("a sorted source could not be read")]
    Source(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A writer of the set panicked in the middle of a batch, in a comparator or a journal. Only
    /// `paranoid-set` returns it.
    #[error("a writer panicked")]
    WriterPanicked,
    /// A comparator, a merge operator or a sorted source panicked in an earlier call on this
    /// cursor, source or compaction, so its position is unknown. A seek makes a cursor usable
    /// again. Throw a compaction away, together with its output. Only `paranoid-set` returns it.
    #[error("an earlier call panicked")]
    ReaderPanicked,
    /// The function of a set's flush thread panicked. The thread has ended, and the set is
    /// unchanged. Only `paranoid-set` returns it.
    #[error("the flush thread panicked")]
    FlushPanicked,
    /// The operating system refused an operation on a file or a directory. Only `paranoid-set`
    /// returns it, for its journal, or from the engine's own code, where `?` makes it of an
    /// `std::io::Error`.
    #[error("could not {operation} {file}")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The name of the file; `a file` if `?` made the error.
        file: String,
        /// The error of the operating system. It is shared, so that this error can be cloned.
        source: Arc<std::io::Error>,
    },
    /// A file of a journal no longer holds the bytes that were written to it, or holds a batch that
    /// cannot be applied. Only `paranoid-set` returns it.
    #[error("{file} is damaged")]
    DamagedFile {
        /// The name of the file.
        file: String,
        /// The damage. The offset of a `Corruption` is an offset in the file.
        #[source]
        cause: Box<Error>,
    },
    /// Memory no longer holds the bytes that were written to it. See the
    /// [fault model](crate::guide::fault_model).
    #[error("corruption: {0}")]
    Corruption(Corruption),
}

impl Error {
    /// The report of damage, if this is a `Corruption`, or a `BatchInterrupted`, `DamagedFile` or
    /// `ReadOnly` that a `Corruption` caused.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// let error = WriteBatch::from_bytes(b"short").unwrap_err();
    /// assert!(error.corruption().is_some());
    /// assert!(Error::Frozen.corruption().is_none());
    /// ```
    #[must_use]
    pub fn corruption(&self) -> Option<&Corruption> {
        match self {
            Error::Corruption(corruption) => Some(corruption),
            Error::BatchInterrupted { cause, .. } | Error::DamagedFile { cause, .. } => {
                cause.corruption()
            }
            Error::ReadOnly { cause } => cause.corruption(),
            _ => None,
        }
    }

    /// Makes an `Io` error from an error of the operating system.
    #[doc(hidden)]
    pub fn io(operation: &'static str, file: &str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io {
            operation,
            file: file.into(),
            source: Arc::new(source),
        }
    }

    /// The error of a set that `cause` made read-only.
    #[doc(hidden)]
    #[cold]
    pub fn read_only(cause: Error) -> Error {
        match cause {
            Error::ReadOnly { .. } => cause,
            cause => Error::ReadOnly {
                cause: Arc::new(cause),
            },
        }
    }
}

/// Traces the damage, which a call has met in a table's memory and returns.
impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        trace::damage(&corruption);
        Error::Corruption(corruption)
    }
}

/// Makes an `Io` error without the name of a file, so that an engine's functions that return this
/// crate's errors can use `?` on files. Build [`Error::Io`] where the name is known.
///
/// ```
/// use std::fs::File;
/// use std::io::ErrorKind;
/// use paranoid_memtable::{Error, Result};
/// fn newest_file() -> Result<File> {
///     Ok(File::open("/nowhere/1.sst")?)
/// }
/// let error = newest_file().unwrap_err();
/// assert_eq!(error.to_string(), "could not access a file");
/// assert!(matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound));
/// ```
impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Self {
        Error::io("access", "a file")(source)
    }
}

/// The part of a stall's message that says how long the write waited.
fn waited_for(waited: &std::time::Duration) -> String {
    if waited.is_zero() {
        String::new()
    } else {
        format!("; waited {waited:?} for a flush")
    }
}

/// The memory budget that stalls a write to a `paranoid_set::MemTableSet`.
///
/// ```
/// use paranoid_memtable::StallCause;
/// assert_eq!(StallCause::Tables.to_string(), "no further table may be begun");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallCause {
    /// The set already has its maximum number of unflushed tables, and the active one is full.
    Tables,
    /// The unflushed tables of all sets under one write buffer manager have reached its buffer
    /// size.
    Unflushed,
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StallCause::Tables => "no further table may be begun",
            StallCause::Unflushed => "the write buffers are full",
        })
    }
}

/// The kind of memory in which damage was found.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::integrity::Place;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// let cut = &batch.as_bytes()[..14];
/// let report = *WriteBatch::from_bytes(cut).unwrap_err().corruption().expect("a report");
/// assert_eq!(report.place, Place::Encoding);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The fixed part of an entry: lengths, kind, sequence number, header check.
    Header,
    /// An entry's key, or another field that the key digest covers.
    Entry,
    /// An entry's value.
    Value,
    /// A damaged link of the skiplist; entries may be missing after it.
    Link,
    /// Two adjacent entries are out of order. A flush finds this, and with order checks every step.
    Order,
    /// A word of the Bloom filter.
    Filter,
    /// A page of the ordered directory. No answer depends on it.
    Directory,
    /// A piece of the tombstone index or a fragment.
    Fragment,
    /// The table's own control block.
    Control,
    /// The counts or sums that a full pass found differ from those of the writers.
    Sum,
    /// Encoded bytes that the caller passed in: a batch, a block trailer or a footer.
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
            Place::Directory => "directory",
            Place::Fragment => "tombstone index",
            Place::Control => "control block",
            Place::Sum => "sealed sums",
            Place::Encoding => "encoding",
        }
    }
}

/// A report of damage: the kind of memory, the offset in it, and both check values. It contains no
/// bytes of a key or a value, so it may be logged, and it has no heap memory.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::integrity::Place;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// let cut = &batch.as_bytes()[..16];
/// let report = *WriteBatch::from_bytes(cut).unwrap_err().corruption().expect("a report");
/// assert_eq!((report.place, report.offset, report.flipped_bit), (Place::Encoding, 15, None));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Corruption {
    /// The kind of memory that is damaged.
    pub place: Place,
    /// Byte offset inside that memory: of the node in the arena, of the word in the filter, of the
    /// field in the batch.
    pub offset: u64,
    /// The sequence number of the damaged entry as read, if an entry is damaged. It may itself be
    /// the damaged part.
    pub sequence: Option<u64>,
    /// The checksum, tag or count that was computed from the bytes as they are now.
    pub expected: u64,
    /// The checksum, tag or count that is stored in memory.
    pub found: u64,
    /// The one bit whose flip explains the damage, if there is one, counted from `offset`
    /// (byte * 8 + bit).
    pub flipped_bit: Option<u64>,
}

impl Corruption {
    /// A report without a flipped bit.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(place: Place, offset: u64, expected: u64, found: u64) -> Self {
        Corruption {
            place,
            offset,
            sequence: None,
            expected,
            found,
            flipped_bit: None,
        }
    }

    /// A report of a word, with the flipped bit if the two values differ in one bit.
    pub(crate) const fn of_word(place: Place, offset: u64, expected: u64, found: u64) -> Self {
        let mut report = Corruption::new(place, offset, expected, found);
        if (expected ^ found).is_power_of_two() {
            report.flipped_bit = Some((expected ^ found).trailing_zeros() as u64);
        }
        report
    }

    /// This report with the sequence number as read.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_sequence(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

/// The error for a range whose end is not after its start.
#[cold]
pub(crate) fn not_a_range() -> Error {
    Error::InvalidArgument("a range must end after its start".into())
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.place.name(), self.offset)?;
        if let Some(sequence) = self.sequence {
            write!(f, " (sequence {sequence})")?;
        }
        write!(
            f,
            ": check {:#x} stored, {:#x} computed",
            self.found, self.expected
        )?;
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
