//! The write batch: entries that are written together, in RocksDB's encoding, with a digest for each.
//!
//! ```text
//!  buffer    sequence (8) | count (4) | record | record | ..
//!  digests   [ K^V^O of record 0, of record 1, .. ]      beside the buffer, only with 8 protection bytes
//! ```
//! * BATCH-1: a digest is computed from the caller's slices before they are copied, so it notices what the copy does
//!   to the bytes.
//! * BATCH-2: an error changes nothing: every check comes before the first byte is appended.
//! * BATCH-3: sequence number and count are kept twice, in the buffer and as fields; reading compares them.
//! * BATCH-4: an entry is handed out only after its lengths were checked and, with protection, its digest was
//!   compared.
//!
//! Who may call what: plain data, `Send` and `Sync`; writing needs `&mut`.
//!
//! Not promised: that the start of a range is before its end, or that keys are new. Both depend on the table;
//! `MemTable::check_batch` checks them.

#![forbid(unsafe_code)]

use crate::batch::encoding::{COUNT_AT, HEADER_LEN, Header, Record, Records, append, damage};
use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::diagnosis::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::integrity::digest::{Kvo, Protected, key_part, value_part};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::skiplist::layout::{KEY_LEN_MAX, VALUE_LEN_MAX, entry_bytes_max};

/// How the entries of a batch get their sequence numbers.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::batch::SequenceMode;
/// assert_eq!(WriteBatch::new().sequence_mode(), SequenceMode::PerEntry);
/// let batch = WriteBatch::new().with_sequence_mode(SequenceMode::WholeBatch);
/// assert_eq!(batch.sequence_mode(), SequenceMode::WholeBatch);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SequenceMode {
    /// Each entry takes the next sequence number.
    #[default]
    PerEntry,
    /// All entries share one sequence number; two writes of one key are then duplicates.
    WholeBatch,
}

/// Whether entries carry digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallerDigests {
    None,
    Each,
}

/// A write batch: entries that are written together, in RocksDB's encoding.
///
/// Limits: keys (and the ends of ranges) up to 2^24 - 1 bytes, values up to 2^32 - 1 bytes, up to 2^32 - 1 entries.
/// Adding an entry takes time proportional to its length.
///
/// ```
/// use paranoid_memtable::{Kind, WriteBatch};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let mut batch = WriteBatch::with_protection(8)?;
/// batch.put(b"apple", b"red")?;
/// batch.delete(b"pear")?;
/// let logged = WriteBatch::from_bytes(batch.as_bytes())?;
/// let kinds: Vec<Kind> = logged.entries().map(|entry| Ok(entry?.kind())).collect::<Result<_, paranoid_memtable::Error>>()?;
/// assert_eq!(kinds, [Kind::PUT, Kind::DELETE]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WriteBatch {
    buffer: Vec<u8>,
    caller_digests: Vec<Protected<Kvo>>,
    header: Header,
    protection: CallerDigests,
    mode: SequenceMode,
}

impl Default for WriteBatch {
    fn default() -> Self {
        WriteBatch::new()
    }
}

impl WriteBatch {
    /// An empty batch without digests.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let batch = WriteBatch::new();
    /// assert!(batch.is_empty());
    /// assert_eq!(batch.protection_bytes(), 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        WriteBatch::empty(CallerDigests::None)
    }

    /// An empty batch whose entries carry `bytes` bytes of digest each.
    ///
    /// # Errors
    /// `InvalidArgument` unless `bytes` is 0 or 8.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// assert!(WriteBatch::with_protection(8).is_ok());
    /// assert!(WriteBatch::with_protection(4).is_err());
    /// ```
    pub fn with_protection(bytes: u8) -> Result<Self> {
        match bytes {
            0 => Ok(WriteBatch::empty(CallerDigests::None)),
            8 => Ok(WriteBatch::empty(CallerDigests::Each)),
            _ => Err(Error::InvalidArgument(format!(
                "protection of a batch must be 0 or 8 bytes, not {bytes}"
            ))),
        }
    }

    fn empty(protection: CallerDigests) -> Self {
        WriteBatch {
            buffer: vec![0; HEADER_LEN],
            caller_digests: Vec::new(),
            header: Header::default(),
            protection,
            mode: SequenceMode::default(),
        }
    }

    /// This batch with another way of numbering. The encoding does not record it.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, WriteBatch};
    /// use paranoid_memtable::batch::SequenceMode;
    /// let mut batch = WriteBatch::new().with_sequence_mode(SequenceMode::WholeBatch);
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"b", b"2")?;
    /// let table = MemTable::default();
    /// table.write_batch(7, &batch)?;
    /// assert_eq!((table.smallest_sequence(), table.largest_sequence()), (Some(7), Some(7)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn with_sequence_mode(mut self, mode: SequenceMode) -> Self {
        self.mode = mode;
        self
    }

    /// How the entries get their sequence numbers.
    #[must_use]
    pub fn sequence_mode(&self) -> SequenceMode {
        self.mode
    }

    /// Bytes of digest per entry: 0 or 8.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// assert_eq!(WriteBatch::with_protection(8)?.protection_bytes(), 8);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn protection_bytes(&self) -> u8 {
        match self.protection {
            CallerDigests::None => 0,
            CallerDigests::Each => 8,
        }
    }

    /// Sets `key` to `value`.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"apple", b"red")?;
    /// assert_eq!(batch.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `KeyTooLarge`, `ValueTooLarge`, or `InvalidArgument` for more than 2^32 - 1 entries. The batch is then
    /// unchanged.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert(Kind::PUT, key, value)
    }

    /// Deletes `key`.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.delete(b"apple")?;
    /// let entry = batch.entries().next().expect("one entry")?;
    /// assert_eq!((entry.kind(), entry.key(), entry.value()), (Kind::DELETE, b"apple".as_slice(), b"".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.insert(Kind::DELETE, key, &[])
    }

    /// Deletes `key` under the condition that it was put exactly once.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.single_delete(b"apple")?;
    /// assert_eq!(batch.entries().next().expect("one entry")?.kind(), Kind::SINGLE_DELETE);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`].
    pub fn single_delete(&mut self, key: &[u8]) -> Result<()> {
        self.insert(Kind::SINGLE_DELETE, key, &[])
    }

    /// Adds a merge operand to `key`.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.merge(b"counter", b"+1")?;
    /// assert_eq!(batch.entries().next().expect("one entry")?.value(), b"+1");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.insert(Kind::MERGE, key, operand)
    }

    /// Deletes all keys from `start` up to `end`, exclusive. An inverted range is accepted here and refused by the
    /// table, which knows the order of keys; [`MemTable::check_batch`](crate::MemTable::check_batch) finds it.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range(b"a", b"m")?;
    /// assert!(matches!(batch.delete_range(b"a", b"a"), Err(Error::InvalidArgument(_))));
    /// let entry = batch.entries().next().expect("one entry")?;
    /// assert_eq!((entry.key(), entry.value()), (b"a".as_slice(), b"m".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`], both ends counting as keys, and `InvalidArgument` if the ends are equal.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<()> {
        self.insert(Kind::RANGE_DELETE, start, end)
    }

    /// Adds an entry of any known kind. For [`Kind::RANGE_DELETE`] the value is the end of the range.
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`], and `InvalidArgument` for an unknown kind, a point delete with a value, or a
    /// range whose ends are equal.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// assert!(batch.insert(Kind::from_u8(0x90), b"k", b"v").is_ok());
    /// assert!(batch.insert(Kind::from_u8(0x30), b"k", b"v").is_err());
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn insert(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        admit(kind, key, value, LIMITS)?;
        let Some(count) = self.header.count.checked_add(1) else {
            return Err(Error::InvalidArgument("a batch holds at most 2^32 - 1 entries".into()));
        };
        // BATCH-1: before the bytes are copied.
        let caller_digest = (self.protection == CallerDigests::Each).then(|| Protected::of(key, value, kind));
        append(&mut self.buffer, kind, key, value);
        self.caller_digests.extend(caller_digest);
        self.set_header(Header { count, ..self.header });
        Ok(())
    }

    /// Removes all entries and keeps the buffers, the protection and the mode. The sequence number becomes 0.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::with_protection(8)?;
    /// batch.put(b"k", b"v")?;
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// assert_eq!(batch.protection_bytes(), 8);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.buffer.truncate(HEADER_LEN);
        self.caller_digests.clear();
        self.set_header(Header::default());
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.count as usize
    }

    /// Whether the batch has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the encoded batch, its header of 12 bytes included.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// assert_eq!(batch.data_size(), 12);
    /// batch.put(b"k", b"v")?; // tag, length, "k", length, "v"
    /// assert_eq!(batch.data_size(), 12 + 5);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn data_size(&self) -> usize {
        self.buffer.len()
    }

    /// An upper bound of the arena bytes that the entries take in any table: reserve as many, or compare with
    /// [`remaining`](crate::TableReader::remaining), before the batch goes to the log. O(length): every entry is
    /// verified on the way.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, WriteBatch};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let (table, mut batch) = (MemTable::default(), WriteBatch::with_protection(8)?);
    /// batch.put(b"apple", b"red")?;
    /// batch.delete_range(b"b", b"c")?;
    /// table.check_batch(&batch)?;
    /// assert!(batch.arena_bytes()? <= table.remaining());
    /// let mut writer = table.try_reserve(batch.arena_bytes()?)?;
    /// writer.write_batch(1, &batch)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the batch was damaged in memory.
    pub fn arena_bytes(&self) -> Result<u64> {
        self.entries().try_fold(0u64, |sum, entry| {
            let entry = entry?;
            let (key_len, value_len) = (entry.key().len() as u64, entry.value().len() as u64);
            Ok(sum.saturating_add(entry_bytes_max(key_len, value_len)))
        })
    }

    /// The sequence number in the header, which an engine writes to its log with the batch. It is 0 in a new batch.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.header.sequence
    }

    /// Sets the sequence number in the header.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.set_sequence(100);
    /// assert_eq!(WriteBatch::from_bytes(batch.as_bytes())?.sequence(), 100);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn set_sequence(&mut self, sequence: SequenceNumber) {
        self.set_header(Header { sequence, ..self.header });
    }

    fn set_header(&mut self, header: Header) {
        self.header = header;
        if let Some(bytes) = self.buffer.first_chunk_mut::<HEADER_LEN>() {
            *bytes = header.to_bytes();
        }
    }

    /// The batch in RocksDB's WriteBatch encoding. Digests and mode are not part of it. Custom kinds are an extension
    /// of the format: their records look like those of puts.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// assert_eq!(batch.as_bytes()[12..], [1, 1, b'k', 1, b'v']); // after sequence number and count
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads an encoded batch, checks all of it, and copies it. The copy has no digests. Records of log data stay in
    /// the bytes but are not entries. O(length).
    ///
    /// # Errors
    /// `Corruption` (`Place::Encoding`) with the byte offset of the first error: a short header, an unknown tag, a
    /// column family, a length that leads past the end or is not spelled as short as possible, a wrong count.
    /// `KeyTooLarge` for a complete record with a key over the limit. Empty ranges are accepted here;
    /// [`MemTable::check_batch`](crate::MemTable::check_batch) finds them.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::integrity::Place;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// let bytes = batch.as_bytes();
    /// assert_eq!(WriteBatch::from_bytes(bytes)?.len(), 1);
    /// let error = WriteBatch::from_bytes(&bytes[..bytes.len() - 1]).unwrap_err();
    /// assert_eq!(error.corruption().map(|c| (c.place, c.offset)), Some((Place::Encoding, 15)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let header = Header::read(bytes)?;
        let batch = WriteBatch {
            buffer: bytes.to_vec(),
            caller_digests: Vec::new(),
            header,
            protection: CallerDigests::None,
            mode: SequenceMode::default(),
        };
        // The copy is checked, not the caller's bytes, because the copy is kept.
        for entry in batch.entries() {
            entry?;
        }
        Ok(batch)
    }

    /// Iterates over the entries in the order in which they were added, checking each before it is handed out. After
    /// an error the iterator ends.
    ///
    /// A batch may have been damaged in memory since it was filled. A caller that must not apply half of it reads all
    /// entries once before it applies the first.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.delete(b"b")?;
    /// let keys: Result<Vec<&[u8]>, Error> = batch.entries().map(|entry| Ok(entry?.key())).collect();
    /// assert_eq!(keys?, [b"a", b"b"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> BatchEntries<'_> {
        let agreed = match Header::read(&self.buffer) {
            Ok(stored) => self.header.compare(stored),
            Err(error) => Err(error),
        };
        BatchEntries {
            batch: self,
            records: Records::new(&self.buffer),
            read: 0,
            failed: agreed.err(),
            state: State::Reading,
        }
    }

    /// Flips one bit of the encoded buffer, counted from its start, for tests.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn flip_buffer_bit(&mut self, bit: usize) {
        if let Some(byte) = self.buffer.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// How long keys and values may be, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) key_len_max: u64,
    pub(crate) value_len_max: u64,
}

/// The limits of the encoding. Those of tables are equal or lower.
const LIMITS: Limits = Limits { key_len_max: KEY_LEN_MAX, value_len_max: VALUE_LEN_MAX };

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

/// One entry of a batch, borrowed from it. Key and value were checked when the iterator handed the entry out.
///
/// ```
/// use paranoid_memtable::{Kind, WriteBatch};
/// use paranoid_memtable::integrity::Protected;
/// let mut batch = WriteBatch::with_protection(8)?;
/// batch.delete_range(b"a", b"c")?;
/// for entry in batch.entries() {
///     let entry = entry?;
///     assert_eq!((entry.kind(), entry.key(), entry.value()), (Kind::RANGE_DELETE, b"a".as_slice(), b"c".as_slice()));
///     assert_eq!(entry.caller_digest(), Some(Protected::of(b"a", b"c", Kind::RANGE_DELETE)));
/// }
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct BatchEntry<'b> {
    kind: Kind,
    key: &'b [u8],
    value: &'b [u8],
    /// The digest part K, from the bytes that the digest was compared with.
    pub(crate) key_part: u64,
    caller_digest: Option<Protected<Kvo>>,
}

impl<'b> BatchEntry<'b> {
    /// The kind of the entry.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The user key; for a range delete, the start of the range.
    #[must_use]
    pub fn key(&self) -> &'b [u8] {
        self.key
    }

    /// The value; for a range delete, the end of the range; empty for point deletes.
    #[must_use]
    pub fn value(&self) -> &'b [u8] {
        self.value
    }

    /// The digest over kind, key and value that was computed when the entry was added, if the batch carries digests.
    /// It agreed when the entry was read.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// use paranoid_memtable::integrity::Protected;
    /// let mut batch = WriteBatch::with_protection(8)?;
    /// batch.put(b"k", b"v")?;
    /// let entry = batch.entries().next().expect("one entry")?;
    /// assert_eq!(entry.caller_digest(), Some(Protected::of(b"k", b"v", Kind::PUT)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn caller_digest(&self) -> Option<Protected<Kvo>> {
        self.caller_digest
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Ended,
}

/// Iterator over the entries of a [`WriteBatch`].
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// let mut batch = WriteBatch::new();
/// batch.put(b"a", b"1")?;
/// let mut entries = batch.entries();
/// assert_eq!(entries.next().expect("one entry")?.key(), b"a");
/// assert!(entries.next().is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub struct BatchEntries<'b> {
    batch: &'b WriteBatch,
    records: Records<'b>,
    /// Entries handed out.
    read: u32,
    /// An error in the header, returned by the first call of `next`.
    failed: Option<Error>,
    state: State,
}

impl<'b> BatchEntries<'b> {
    /// The next entry, with log data skipped; `None` at the end of the bytes.
    #[inline]
    fn step(&mut self) -> Result<Option<BatchEntry<'b>>> {
        if self.failed.is_some() {
            return self.failed.take().map_or(Ok(None), Err);
        }
        loop {
            let at = self.records.offset();
            match self.records.advance().map_err(|error| self.diagnosed(at, error))? {
                None => return self.end().map(|()| None),
                Some(Record::LogData) if self.batch.protection == CallerDigests::Each => {
                    return Err(self.diagnosed(at, damage(at, 0, 3)));
                }
                Some(Record::LogData) => {}
                Some(Record::Entry { kind, key, value }) => {
                    let key_part = key_part(key);
                    let caller_digest = self.check_caller_digest(at, kind, key_part, value)?;
                    // Does not overflow, because a batch with this many entries has failed the check of its count
                    // before.
                    self.read = self.read.saturating_add(1);
                    return Ok(Some(BatchEntry { kind, key, value, key_part, caller_digest }));
                }
            }
        }
    }

    /// Compares the number of entries read with the count in the header.
    fn end(&self) -> Result<()> {
        if self.read == self.batch.header.count {
            return Ok(());
        }
        Err(damage(COUNT_AT, u64::from(self.read), u64::from(self.batch.header.count)))
    }

    /// BATCH-4: compares the entry with its digest.
    #[inline]
    fn check_caller_digest(
        &self,
        at: usize,
        kind: Kind,
        key_part: u64,
        value: &[u8],
    ) -> Result<Option<Protected<Kvo>>> {
        if self.batch.protection == CallerDigests::None {
            return Ok(None);
        }
        let Some(&caller_digest) = self.batch.caller_digests.get(self.read as usize) else {
            return Err(damage(at, u64::from(self.read) + 1, self.batch.caller_digests.len() as u64));
        };
        let computed = Protected::of_parts(key_part, value_part(value), kind);
        if computed != caller_digest {
            return Err(self.diagnosed(at, damage(at, computed.to_bits(), caller_digest.to_bits())));
        }
        Ok(Some(caller_digest))
    }

    /// The error for the record at `at`. In a batch with digests a length over the limit counts as damage, and the
    /// report names the one bit whose flip explains it, if there is one.
    #[cold]
    fn diagnosed(&self, at: usize, error: Error) -> Error {
        let Some(&caller_digest) = self.batch.caller_digests.get(self.read as usize) else { return error };
        let mut report = match error {
            Error::Corruption(report) => report,
            Error::KeyTooLarge { len, max } => Corruption::new(Place::Encoding, at as u64, max, len),
            other => return other,
        };
        let end = self.batch.buffer.len().min(at + DIAGNOSIS_LEN_MAX);
        let bytes = self.batch.buffer.get(at..end).unwrap_or_default();
        let matches_caller_digest = |bytes: &[u8]| match Records::bare(bytes).advance() {
            Ok(Some(Record::Entry { kind, key, value })) => Protected::of(key, value, kind) == caller_digest,
            _ => false,
        };
        if let Some(bit) = single_bit(bytes, matches_caller_digest) {
            (report.offset, report.flipped_bit) = (at as u64, Some(bit));
        }
        Error::Corruption(report)
    }
}

impl<'b> Iterator for BatchEntries<'b> {
    type Item = Result<BatchEntry<'b>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let end = match self.step() {
            Ok(Some(entry)) => return Some(Ok(entry)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        self.state = State::Ended;
        end
    }
}

impl std::iter::FusedIterator for BatchEntries<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected() -> Result<WriteBatch> {
        let mut batch = WriteBatch::with_protection(8)?;
        batch.put(b"apple", b"red")?;
        batch.put(&[0; 9], &[0; 9])?;
        batch.delete(b"")?;
        batch.put(b"", b"")?;
        batch.put(b"", b"")?;
        batch.merge(b"count", b"+1")?;
        batch.delete_range(b"a", b"c")?;
        batch.single_delete(&[0; 3])?;
        batch.insert(Kind::from_u8(0x83), b"k", &[7; 150])?;
        batch.set_sequence(77);
        Ok(batch)
    }

    #[test]
    fn every_flipped_bit_of_the_buffer_is_found_and_named() {
        let clean = protected().unwrap();
        assert!(clean.entries().all(|entry| entry.is_ok_and(|entry| entry.caller_digest().is_some())));
        for bit in 0..clean.buffer.len() * 8 {
            let mut bent = clean.clone();
            bent.buffer[bit / 8] ^= 1 << (bit % 8);
            let errors: Vec<Error> = bent.entries().filter_map(Result::err).collect();
            let [Error::Corruption(report)] = errors.as_slice() else { panic!("bit {bit}: {errors:?}") };
            assert_eq!(report.place, Place::Encoding, "bit {bit}");
            assert_eq!(report.flipped_bit.map(|b| report.offset * 8 + b), Some(bit as u64), "bit {bit}");
        }
    }

    #[test]
    fn a_damaged_caller_digest_or_field_is_found() {
        let clean = protected().unwrap();
        for entry in 0..clean.caller_digests.len() {
            let mut bent = clean.clone();
            bent.caller_digests[entry] = Protected::carried(bent.caller_digests[entry].to_bits() ^ 1 << 40);
            assert_eq!(bent.entries().position(|entry| entry.is_err()), Some(entry));
        }
        let mut bent = clean.clone();
        bent.header.sequence ^= 4;
        assert!(bent.entries().next().is_some_and(|entry| entry.is_err()));
        bent = clean.clone();
        bent.caller_digests.pop();
        assert!(bent.entries().any(|entry| entry.is_err()));
    }

    #[test]
    fn one_entry_too_many_is_refused() {
        let mut batch = WriteBatch::new();
        batch.set_header(Header { count: u32::MAX, ..batch.header });
        let before = batch.buffer.clone();
        assert!(matches!(batch.put(b"k", b"v"), Err(Error::InvalidArgument(_))));
        assert_eq!((batch.buffer, batch.header.count), (before, u32::MAX));
    }
}
