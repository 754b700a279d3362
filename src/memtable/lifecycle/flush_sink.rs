//! The output of a flush: entries and range tombstone fragments, and the sink that takes them.

#![forbid(unsafe_code)]

use std::error::Error as StdError;

use crate::error::{Error, Result};
use crate::integrity::digest::StoredProtection;
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::tombstone::fragments::Fragment;

/// The error type of a sink.
///
/// ```
/// use paranoid_memtable::flush::SinkError;
/// let error: SinkError = "the disk is full".into();
/// assert_eq!(error.to_string(), "the disk is full");
/// ```
pub type SinkError = Box<dyn StdError + Send + Sync>;

/// A sink, which receives the output of a flush: first all entries, then all fragments, both in
/// ascending order.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
/// use paranoid_memtable::tombstone::Fragment;
/// #[derive(Default)]
/// struct Keys(Vec<Vec<u8>>);
/// impl FlushSink for Keys {
///     fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
///         self.0.push(entry.user_key.to_vec());
///         Ok(())
///     }
///     fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
///         Ok(())
///     }
/// }
/// let table = MemTable::default();
/// table.put(2, b"b", b"")?;
/// table.put(1, b"a", b"")?;
/// let mut keys = Keys::default();
/// table.freeze()?.flush(Versions::SeenBy(&[]), &mut keys)?;
/// assert_eq!(keys.0, [b"a", b"b"]);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait FlushSink {
    /// Receives the next entry. User keys ascend, and sequence numbers descend within a key; no two
    /// entries are equal in both.
    ///
    /// # Errors
    /// Any error stops the flush, which returns it as `Error::Sink`.
    fn entry(&mut self, entry: FlushEntry<'_>) -> std::result::Result<(), SinkError>;

    /// Receives the next fragment of range tombstones. Starts ascend.
    ///
    /// # Errors
    /// Any error stops the flush, which returns it as `Error::Sink`.
    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError>;
}

/// A verified entry on its way to a file.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::flush::FlushEntry;
/// let entry = FlushEntry::new(b"key", 7, Kind::PUT, b"value");
/// assert!(entry.protection.check(entry.user_key, entry.value, entry.sequence, entry.kind).is_some());
/// ```
#[derive(Clone, Copy)]
pub struct FlushEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: Kind,
    /// A copy of the value, verified after it was made.
    pub value: &'a [u8],
    /// The digests that the table stored when the entry was written. The receiver compares its own
    /// bytes with them.
    pub protection: StoredProtection,
}

impl<'a> FlushEntry<'a> {
    /// An entry that does not come from a table. Computes its digests over the caller's bytes.
    /// O(length).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::flush::FlushEntry;
    /// let entry = FlushEntry::new(b"key", 7, Kind::PUT, b"value");
    /// assert_eq!(entry.protection.bytes(), 8);
    /// ```
    #[must_use]
    pub fn new(user_key: &'a [u8], sequence: SequenceNumber, kind: Kind, value: &'a [u8]) -> Self {
        let protection = StoredProtection::of(user_key, value, sequence, kind);
        FlushEntry {
            user_key,
            sequence,
            kind,
            value,
            protection,
        }
    }
}

/// One item of a flush. All entries come first, then all fragments, both in ascending order.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::{FlushItem, Versions};
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// table.delete_range(2, b"a", b"b")?;
/// let frozen = table.freeze()?;
/// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
/// assert!(matches!(flush.next()?, Some(FlushItem::Entry(entry)) if entry.user_key == b"key"));
/// assert!(matches!(flush.next()?, Some(FlushItem::Fragment(fragment)) if fragment.start() == b"a"));
/// assert!(flush.next()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum FlushItem<'a> {
    /// A verified entry, as [`FlushSink::entry`] receives it.
    Entry(FlushEntry<'a>),
    /// A range tombstone fragment, as [`FlushSink::fragment`] receives it.
    Fragment(Fragment<'a>),
}

impl FlushItem<'_> {
    /// Passes the item to a sink.
    #[doc(hidden)]
    #[inline]
    pub fn hand_to(self, sink: &mut impl FlushSink) -> Result<()> {
        let taken = match self {
            FlushItem::Entry(entry) => sink.entry(entry),
            FlushItem::Fragment(fragment) => sink.fragment(fragment),
        };
        taken.map_err(|cause| Error::Sink(cause.into()))
    }
}
