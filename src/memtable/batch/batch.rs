//! The write batch: entries that are written together, in RocksDB's encoding, with a digest for
//! each.
//!
//! ```text
//!  buffer    sequence (8) | count (4) | record | record | ..
//!  digests   [ K^V^O^C of record 0, of record 1, .. ]    only with 8 protection bytes
//! ```
//! K, V and O are the digest parts of key, value and kind. C is made of the column family and is 0
//! for the default one. An entry that is read has its digest without C, because a table has no
//! families. Sequence number and count are in the buffer and in a field; a reader compares them.
//!
//! Plain data, `Send` and `Sync`; writing needs `&mut`.
//!
//! Not promised: that keys are new, or that the start of a range is before its end in an order
//! other than that of bytes. Both depend on the table; `MemTable::prepare` checks ranges.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;

use crate::error::{Error, Result, not_a_range};
use crate::integrity::digest::{Kvoc, Protected};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::batch::admit::{LIMITS, admit};
use crate::memtable::batch::encoding::{HEADER_LEN, Header, Record, append, record_len, tag_of};
use crate::memtable::batch::reader::{BatchEntry, EntryReader};

/// The order in which a batch compares start and end of a range delete that is added to it. The
/// encoding does not record this order.
///
/// ```
/// use paranoid_memtable::{Error, WriteBatch};
/// use paranoid_memtable::batch::RangeOrder;
/// let mut batch = WriteBatch::new();
/// assert!(matches!(batch.delete_range(b"b", b"a"), Err(Error::InvalidArgument(_))));
/// let mut batch = WriteBatch::new().with_range_order(RangeOrder::OfTable);
/// batch.delete_range(b"b", b"a")?; // a range of a table in reverse order
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RangeOrder {
    /// The batch compares start and end byte by byte: `delete_range` refuses a range that ends
    /// before its start.
    #[default]
    Bytes,
    /// The table that the batch is written to compares start and end later, by its comparator:
    /// [`MemTable::prepare`](crate::MemTable::prepare) and `write_batch` refuse a range that ends
    /// before its start.
    OfTable,
}

/// Capacity of a new batch's buffer in bytes: most batches of one entry need no more.
const FIRST_BYTES: usize = 256;

/// A write batch: entries that are written together, in RocksDB's encoding.
///
/// An entry is in a column family: in the default one, unless [`insert_in`](Self::insert_in) names
/// another. [`MemTable::write_batch_of`](crate::MemTable::write_batch_of) writes one family of a
/// batch to a table.
///
/// Limits: keys (and the ends of ranges) up to 2^24 - 1 bytes, values up to 2^32 - 1 bytes, up to
/// 2^32 - 1 entries. Adding an entry takes time proportional to its length.
///
/// ```
/// use paranoid_memtable::{Kind, WriteBatch};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let mut batch = WriteBatch::new();
/// batch.put(b"apple", b"red")?;
/// batch.delete(b"pear")?;
/// let logged = WriteBatch::from_bytes(batch.as_bytes())?;
/// let kinds: Vec<Kind> = logged.entries().map(|entry| Ok(entry?.kind())).collect::<Result<_, paranoid_memtable::Error>>()?;
/// assert_eq!(kinds, [Kind::PUT, Kind::DELETE]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct WriteBatch {
    buffer: Vec<u8>,
    /// With protection, a digest for each record.
    caller_digests: Option<Vec<Protected<Kvoc>>>,
    header: Header,
    range_order: RangeOrder,
    max_bytes: usize,
}

impl Default for WriteBatch {
    fn default() -> Self {
        WriteBatch::new()
    }
}

impl WriteBatch {
    /// An empty batch whose entries carry 8 bytes of digest each.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let batch = WriteBatch::new();
    /// assert!(batch.is_empty());
    /// assert_eq!(batch.protection_bytes(), 8);
    /// ```
    pub fn new() -> Self {
        let mut buffer = Vec::with_capacity(FIRST_BYTES);
        buffer.resize(HEADER_LEN, 0);
        WriteBatch::of(buffer, Header::default(), Some(Vec::new()))
    }

    /// An empty batch whose entries carry `bytes` bytes of digest each: 8, as those of a
    /// [`new`](Self::new) batch, or 0.
    ///
    /// # Errors
    /// `InvalidArgument` unless `bytes` is 0 or 8.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// assert_eq!(WriteBatch::with_protection(0)?.protection_bytes(), 0);
    /// assert!(WriteBatch::with_protection(4).is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn with_protection(bytes: u8) -> Result<Self> {
        match bytes {
            0 => Ok(WriteBatch {
                caller_digests: None,
                ..WriteBatch::new()
            }),
            8 => Ok(WriteBatch::new()),
            _ => Err(Error::InvalidArgument(format!(
                "protection of a batch must be 0 or 8 bytes, not {bytes}"
            ))),
        }
    }

    fn of(buffer: Vec<u8>, header: Header, caller_digests: Option<Vec<Protected<Kvoc>>>) -> Self {
        WriteBatch {
            buffer,
            caller_digests,
            header,
            range_order: RangeOrder::default(),
            max_bytes: usize::MAX,
        }
    }

    /// Sets the order in which the batch compares start and end of ranges that are added later.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::batch::RangeOrder;
    /// let mut batch = WriteBatch::new().with_range_order(RangeOrder::OfTable);
    /// assert!(batch.delete_range(b"z", b"a").is_ok());
    /// ```
    pub fn with_range_order(mut self, order: RangeOrder) -> Self {
        self.range_order = order;
        self
    }

    /// Sets a limit of the encoded length, the length of [`as_bytes`](Self::as_bytes). The batch
    /// refuses an entry that would make it longer with [`Error::BatchFull`], and is then unchanged.
    /// A new batch has no limit.
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// let mut batch = WriteBatch::new().with_max_bytes(12 + 5)?; // the header and one entry of 5 bytes
    /// batch.put(b"k", b"v")?;
    /// assert!(matches!(batch.put(b"l", b"w"), Err(Error::BatchFull { needed: 22, max: 17 })));
    /// assert_eq!(batch.len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the batch is longer than that already.
    pub fn with_max_bytes(mut self, max: usize) -> Result<Self> {
        if max < self.buffer.len() {
            let len = self.buffer.len();
            return Err(Error::InvalidArgument(format!(
                "max_bytes of {max} for a batch of {len} bytes"
            )));
        }
        self.max_bytes = max;
        Ok(self)
    }

    /// Bytes of digest per entry: 0 or 8.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// assert_eq!(WriteBatch::new().protection_bytes(), 8);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn protection_bytes(&self) -> u8 {
        if self.caller_digests.is_some() { 8 } else { 0 }
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
    /// `KeyTooLarge`, `ValueTooLarge`, `BatchFull` beyond [`max_bytes`](Self::with_max_bytes), or
    /// `InvalidArgument` for more than 2^32 - 1 entries. The batch is then unchanged.
    #[inline]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
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
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.insert(Kind::DELETE, key, [])
    }

    /// Deletes `key`, provided that it was put exactly once.
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
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.insert(Kind::SINGLE_DELETE, key, [])
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
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.insert(Kind::MERGE, key, operand)
    }

    /// Deletes all keys from `start` up to `end`, exclusive. A batch for a table that orders keys
    /// otherwise than by bytes needs [`RangeOrder::OfTable`].
    ///
    /// ```
    /// use paranoid_memtable::{Error, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range(b"a", b"m")?;
    /// assert!(matches!(batch.delete_range(b"a", b"a"), Err(Error::InvalidArgument(_))));
    /// assert!(matches!(batch.delete_range(b"m", b"a"), Err(Error::InvalidArgument(_))));
    /// let entry = batch.entries().next().expect("one entry")?;
    /// assert_eq!((entry.key(), entry.value()), (b"a".as_slice(), b"m".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`], with `start` and `end` as keys, and `InvalidArgument` if `end`
    /// is not after `start` (under `OfTable`, if both are equal).
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.insert(Kind::RANGE_DELETE, start, end)
    }

    /// Adds an entry of any known kind. For [`Kind::RANGE_DELETE`] the value is the end of the
    /// range.
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`], and `InvalidArgument` for an unknown kind, a point delete with
    /// a value, or a range that [`delete_range`](Self::delete_range) refuses.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// assert!(batch.insert(Kind::from_u8(0x90), b"k", b"v").is_ok());
    /// assert!(batch.insert(Kind::from_u8(0x30), b"k", b"v").is_err());
    /// assert_eq!(batch.len(), 1);
    /// ```
    #[inline]
    pub fn insert(
        &mut self,
        kind: Kind,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.insert_record(Record {
            family: 0,
            kind,
            key: key.as_ref(),
            value: value.as_ref(),
        })
    }

    /// Adds an entry of a column family, numbered as in RocksDB. All other methods add entries of
    /// family 0, the default one. A table takes one family of a batch:
    /// [`MemTable::write_batch_of`](crate::MemTable::write_batch_of).
    ///
    /// # Errors
    /// Those of [`WriteBatch::insert`], and `InvalidArgument` for a custom kind in a family other
    /// than 0: RocksDB's encoding has no record for it.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.insert_in(7, Kind::PUT, b"k", b"v")?;
    /// assert_eq!(batch.as_bytes()[12..], [5, 7, 1, b'k', 1, b'v']);
    /// assert_eq!(batch.entries().next().expect("one entry")?.family(), 7);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn insert_in(
        &mut self,
        family: u32,
        kind: Kind,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.insert_record(Record {
            family,
            kind,
            key: key.as_ref(),
            value: value.as_ref(),
        })
    }

    fn insert_record(&mut self, record: Record<'_>) -> Result<()> {
        let Record {
            family,
            kind,
            key,
            value,
        } = record;
        // Every check comes before the first change, so an error changes nothing.
        admit(kind, key, value, LIMITS)?;
        if kind == Kind::RANGE_DELETE && self.range_order == RangeOrder::Bytes && key > value {
            return Err(not_a_range());
        }
        let tag = tag_of(family, kind)?;
        let count = self.grown(1, record_len(&record))?;
        // The digest is of the caller's slices, not of the copy, so it shows what the copy did.
        if let Some(digests) = &mut self.caller_digests {
            digests.push(Protected::of(key, value, kind).with_family(family));
        }
        append(&mut self.buffer, tag, &record);
        self.set_header(Header {
            count,
            ..self.header
        });
        Ok(())
    }

    /// The count of entries after `entries` more, if they and their `bytes` fit.
    #[inline]
    fn grown(&self, entries: u32, bytes: usize) -> Result<u32> {
        let needed = self.buffer.len().saturating_add(bytes);
        if needed > self.max_bytes {
            return Err(Error::BatchFull {
                needed: needed as u64,
                max: self.max_bytes as u64,
            });
        }
        let count = self.header.count.checked_add(entries);
        count.ok_or_else(|| Error::InvalidArgument("a batch holds at most 2^32 - 1 entries".into()))
    }

    /// Adds all entries of another batch after the last one, with their digests, so that a reader
    /// of this batch notices a flip in either batch. If only this batch has digests, `append`
    /// computes them from the other batch's bytes before it copies these. It verifies the whole
    /// other batch before it copies the first byte. Sequence number, range order and limit of this
    /// batch stay. O(length of the other batch).
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let (mut batch, mut more) = (WriteBatch::new(), WriteBatch::new());
    /// batch.put(b"a", b"1")?;
    /// more.put(b"b", b"2")?;
    /// more.delete(b"c")?;
    /// batch.append(&more)?;
    /// let keys: Vec<Vec<u8>> = batch.entries().map(|entry| Ok(entry?.key().to_vec())).collect::<Result<_, paranoid_memtable::Error>>()?;
    /// assert_eq!(keys, [b"a", b"b", b"c"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `BatchFull` and `InvalidArgument` as for [`WriteBatch::put`], and `Corruption` if the other
    /// batch was damaged in memory. This batch is then unchanged.
    pub fn append(&mut self, other: &WriteBatch) -> Result<()> {
        let count = self.grown(other.header.count, other.buffer.len() - HEADER_LEN)?;
        let caller_digests = other.reader()?.record_digests()?;
        if let Some(digests) = &mut self.caller_digests {
            digests.extend(caller_digests);
        }
        self.buffer
            .extend_from_slice(other.buffer.get(HEADER_LEN..).unwrap_or_default());
        self.set_header(Header {
            count,
            ..self.header
        });
        Ok(())
    }

    /// Removes all entries, and keeps the buffers, the protection, the range order and the limit.
    /// The sequence number becomes 0.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// assert_eq!(batch.protection_bytes(), 8);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.buffer.truncate(HEADER_LEN);
        if let Some(digests) = &mut self.caller_digests {
            digests.clear();
        }
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

    /// The sequence number of entry `number`, if that of entry 0 is `first`.
    #[inline]
    pub(crate) fn sequence_of(&self, number: u64, first: SequenceNumber) -> Result<SequenceNumber> {
        first.checked_add(number).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "entry {number} after sequence number {first} is over 2^64 - 1"
            ))
        })
    }

    /// The sequence number in the header, which an engine writes to its log with the batch. A new
    /// batch has 0.
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
        self.set_header(Header {
            sequence,
            ..self.header
        });
    }

    fn set_header(&mut self, header: Header) {
        self.header = header;
        if let Some(bytes) = self.buffer.first_chunk_mut::<HEADER_LEN>() {
            *bytes = header.to_bytes();
        }
    }

    /// The batch in RocksDB's WriteBatch encoding, without digests and range order. Custom kinds
    /// are an extension of the format: their records have the form of puts.
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

    /// Copies an encoded batch, and checks the copy. The copy has no digests; a batch made by
    /// [`from_verified`](Self::from_verified) has them. O(length).
    ///
    /// Records have the meaning that RocksDB gives them:
    /// - Log data (`PutLogData`) and the `Noop` of a transaction stay in the bytes and are no
    ///   entries.
    /// - An empty range, whose start and end are equal, is an entry that takes its sequence number
    ///   and deletes nothing.
    /// - The batch takes a range that ends before its start; the table, which knows the order of
    ///   keys, refuses it.
    ///
    /// # Errors
    /// - `Corruption` (`Place::Encoding`) with the byte offset of the first error: a short header,
    ///   an unknown tag, a length that leads past the end, a length or family that is not in its
    ///   shortest spelling, a wrong count.
    /// - `NotSupported` with the record's name, for a record of RocksDB's two-phase commits, blobs,
    ///   timestamps or wide columns.
    /// - `KeyTooLarge` for a complete record with a key over the limit.
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
        // The check is of the copy, because the batch keeps the copy.
        let buffer = bytes.to_vec();
        let header = Header::read(&buffer)?;
        let batch = WriteBatch::of(buffer, header, None);
        for entry in batch.entries() {
            entry?;
        }
        Ok(batch)
    }

    /// Makes a batch of a buffer from a log, without a copy; its entries carry 8 bytes of digest
    /// each. `verify` compares the buffer with the checksum of the log, after the digests were
    /// computed. So a bit that flips before `verify` fails there, and a later flip fails the digest
    /// when the batch is read. O(length).
    ///
    /// ```
    /// use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
    /// let encoded = b"\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\x01k\x01v".to_vec();
    /// let logged = ChecksumKind::Xxh3.checksum(&encoded);
    /// let verify = |bytes: &[u8]| match ChecksumKind::Xxh3.checksum(bytes) == logged {
    ///     true => Ok(()),
    ///     false => Err(Error::InvalidArgument("the log's checksum differs".into())),
    /// };
    /// let batch = WriteBatch::from_verified(encoded.clone(), verify)?;
    /// assert_eq!(batch.protection_bytes(), 8);
    ///
    /// let mut damaged = encoded;
    /// damaged[15] ^= 1;
    /// assert!(WriteBatch::from_verified(damaged, verify).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// That of `verify`, or else those of [`from_bytes`](Self::from_bytes).
    pub fn from_verified(
        buffer: Vec<u8>,
        verify: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<Self> {
        // The digests come first: between `verify` and them a flip would go unnoticed.
        let read = Header::read(&buffer).and_then(|header| {
            let reader = EntryReader::open(&buffer, header, None)?;
            Ok((header, reader.record_digests()?))
        });
        verify(&buffer)?;
        let (header, caller_digests) = read?;
        Ok(WriteBatch::of(buffer, header, Some(caller_digests)))
    }

    /// Iterates over the entries in the order in which they were added, and checks each before it
    /// returns it. After an error the iterator ends.
    ///
    /// A batch may be damaged in memory after it was filled. A caller that must not apply half of a
    /// batch reads all entries once before it applies the first.
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
    #[inline]
    pub fn entries(&self) -> impl FusedIterator<Item = Result<BatchEntry<'_>>> + Send + Sync {
        let mut reader = Some(self.reader());
        let entries = std::iter::from_fn(move || {
            let step = match reader.as_mut()? {
                Ok(open) => open.step(),
                Err(error) => Err(error.clone()),
            };
            reader.take_if(|_| !matches!(step, Ok(Some(_))));
            step.transpose()
        });
        entries.fuse()
    }

    /// A reader of the entries.
    #[inline(always)]
    pub(crate) fn reader(&self) -> Result<EntryReader<'_>> {
        EntryReader::open(&self.buffer, self.header, self.caller_digests.as_deref())
    }

    /// Flips bit `bit` of the encoded buffer, for tests.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn flip_buffer_bit(&mut self, bit: usize) {
        if let Some(byte) = self.buffer.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    fn protected() -> Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        batch.put(b"apple", b"red")?;
        batch.put([0; 9], [0; 9])?;
        batch.delete(b"")?;
        batch.put(b"", b"")?;
        batch.put(b"", b"")?;
        batch.merge(b"count", b"+1")?;
        batch.delete_range(b"a", b"c")?;
        batch.single_delete([0; 3])?;
        batch.insert(Kind::from_u8(0x83), b"k", [7; 150])?;
        batch.insert_in(1, Kind::PUT, b"k", b"v")?;
        batch.insert_in(300, Kind::DELETE, b"k", [])?;
        batch.insert_in(u32::MAX, Kind::RANGE_DELETE, b"a", b"c")?;
        batch.set_sequence(77);
        Ok(batch)
    }

    #[test]
    fn every_flipped_bit_of_the_buffer_is_found_and_named() {
        let clean = protected().unwrap();
        assert!(
            clean
                .entries()
                .all(|entry| entry.is_ok_and(|entry| entry.caller_digest().is_some()))
        );
        for bit in 0..clean.buffer.len() * 8 {
            let mut bent = clean.clone();
            bent.buffer[bit / 8] ^= 1 << (bit % 8);
            let errors: Vec<Error> = bent.entries().filter_map(Result::err).collect();
            let [Error::Corruption(report)] = errors.as_slice() else {
                panic!("bit {bit}: {errors:?}")
            };
            assert_eq!(report.place, Place::Encoding, "bit {bit}");
            assert_eq!(
                report.flipped_bit.map(|b| report.offset * 8 + b),
                Some(bit as u64),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_damaged_caller_digest_or_field_is_found() {
        let clean = protected().unwrap();
        for (entry, digest) in clean.caller_digests.iter().flatten().enumerate() {
            let mut bent = clean.clone();
            let flipped = Protected::carried(digest.to_bits() ^ 1 << 40).with_family(0);
            bent.caller_digests.as_mut().unwrap()[entry] = flipped;
            assert_eq!(bent.entries().position(|entry| entry.is_err()), Some(entry));
        }
        let mut bent = clean.clone();
        bent.header.sequence ^= 4;
        assert!(bent.entries().next().is_some_and(|entry| entry.is_err()));
        bent = clean.clone();
        bent.caller_digests.as_mut().unwrap().pop();
        assert!(bent.entries().any(|entry| entry.is_err()));
    }

    #[test]
    fn one_entry_too_many_is_refused() {
        let mut batch = WriteBatch::new();
        batch.set_header(Header {
            count: u32::MAX,
            ..batch.header
        });
        let before = batch.buffer.clone();
        assert!(matches!(
            batch.put(b"k", b"v"),
            Err(Error::InvalidArgument(_))
        ));
        assert_eq!((batch.buffer, batch.header.count), (before, u32::MAX));
    }
}
