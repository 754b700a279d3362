//! What batches and tables refuse whatever the order of keys, and what a sink of flushed entries can hold.
//!
//! Pure functions and plain data; any thread.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::skiplist::layout::{KEY_LEN_MAX, VALUE_LEN_MAX};

/// How long keys and values may be, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) key_len_max: u64,
    pub(crate) value_len_max: u64,
}

/// The limits of the encoding. Those of tables are equal or lower.
pub(super) const LIMITS: Limits = Limits { key_len_max: KEY_LEN_MAX, value_len_max: VALUE_LEN_MAX };

/// Refuses entries that are invalid under every order of keys. Batches and tables share this rule.
pub(crate) fn admit(kind: Kind, key: &[u8], value: &[u8], limits: Limits) -> Result<()> {
    admit_lengths(kind, key.len(), value.len(), limits)?;
    if kind == Kind::RANGE_DELETE && key == value { Err(not_a_range()) } else { Ok(()) }
}

/// Refuses unknown kinds, lengths over the limits, and a point delete with a value.
pub(crate) fn admit_lengths(kind: Kind, key_len: usize, value_len: usize, limits: Limits) -> Result<()> {
    if !kind.is_known() {
        return Err(Error::InvalidArgument(format!("{kind:?} is not a kind that tables take")));
    }
    let Limits { key_len_max, value_len_max } = limits;
    let end_len = if kind == Kind::RANGE_DELETE { value_len } else { 0 };
    let len = key_len.max(end_len) as u64;
    if len > key_len_max {
        return Err(Error::KeyTooLarge { len, max: key_len_max });
    }
    let len = value_len as u64;
    if kind.is_bare() && len > 0 {
        return Err(Error::InvalidArgument(format!("{kind:?} takes no value, {len} bytes given")));
    }
    if len > value_len_max && kind != Kind::RANGE_DELETE {
        return Err(Error::ValueTooLarge { len, max: value_len_max });
    }
    Ok(())
}

/// The error for a range that deletes nothing.
#[cold]
pub(crate) fn not_a_range() -> Error {
    Error::InvalidArgument("a range must end after its start".into())
}

/// What a sink of flushed entries can hold. An engine compares each batch with it before the batch is numbered and
/// logged: what is in the log must be writable to a file later.
///
/// ```
/// use paranoid_memtable::batch::SinkLimits;
/// use paranoid_memtable::{Error, Kind, WriteBatch};
/// // Table files of RocksDB: sequence numbers of 56 bits, no custom kinds.
/// const KINDS: &[Kind] = &[Kind::PUT, Kind::DELETE, Kind::SINGLE_DELETE, Kind::MERGE, Kind::RANGE_DELETE];
/// let files = SinkLimits::NONE.with_sequence_max((1 << 56) - 1).with_kinds(KINDS);
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.put(b"pear", b"green")?;
/// assert_eq!(batch.check_limits(7, &files)?, Some(8)); // the last number that the batch takes
/// assert!(matches!(batch.check_limits((1 << 56) - 1, &files), Err(Error::InvalidArgument(_))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkLimits {
    /// Largest sequence number.
    pub sequence_max: SequenceNumber,
    /// Most bytes of key and value together.
    pub entry_len_max: u64,
    /// The kinds that the sink can hold; `None` for all that tables take.
    pub kinds: Option<&'static [Kind]>,
}

impl SinkLimits {
    /// No limits but those of tables.
    pub const NONE: SinkLimits =
        SinkLimits { sequence_max: SequenceNumber::MAX, entry_len_max: u64::MAX, kinds: None };

    /// These limits with another largest sequence number.
    ///
    /// ```
    /// use paranoid_memtable::batch::SinkLimits;
    /// assert_eq!(SinkLimits::NONE.with_sequence_max(99).sequence_max, 99);
    /// ```
    #[must_use]
    pub const fn with_sequence_max(mut self, sequence_max: SequenceNumber) -> Self {
        self.sequence_max = sequence_max;
        self
    }

    /// These limits with another sum of the lengths of key and value.
    ///
    /// ```
    /// use paranoid_memtable::batch::SinkLimits;
    /// assert_eq!(SinkLimits::NONE.with_entry_len_max(1 << 30).entry_len_max, 1 << 30);
    /// ```
    #[must_use]
    pub const fn with_entry_len_max(mut self, entry_len_max: u64) -> Self {
        self.entry_len_max = entry_len_max;
        self
    }

    /// These limits with another list of kinds.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, batch::SinkLimits};
    /// assert_eq!(SinkLimits::NONE.with_kinds(&[Kind::PUT]).kinds, Some([Kind::PUT].as_slice()));
    /// ```
    #[must_use]
    pub const fn with_kinds(mut self, kinds: &'static [Kind]) -> Self {
        self.kinds = Some(kinds);
        self
    }

    /// Why the sink cannot hold this entry, if it cannot.
    pub(super) fn refuses(
        &self,
        kind: Kind,
        entry_len: u64,
        sequence: SequenceNumber,
    ) -> Option<&'static str> {
        if sequence > self.sequence_max {
            return Some("its sequence number is over the sink's limit");
        }
        if entry_len > self.entry_len_max {
            return Some("key and value together are over the sink's limit");
        }
        let has_kind = self.kinds.is_none_or(|kinds| kinds.contains(&kind));
        (!has_kind).then_some("the sink has no such kind")
    }
}
