//! RocksDB's encoding of a WriteBatch: records from bytes, and bytes from records.
//!
//! ```text
//!   0          8       12
//!   | sequence | count | record | record | ..          integers little-endian
//!   record:  tag (1) | varint32 length | key | varint32 length | value
//!            0 delete, 7 single delete: key only        15 range delete: start and end
//!            1 put, 2 merge, 0x80.. custom: both      3 log data: one slice, no entry, not counted
//!            13 no operation (first in a transaction's batch): nothing, no entry, not counted
//!   in a column family other than the default one:  tag (1) | varint32 family | key | ..
//!            4 delete, 5 put, 6 merge, 8 single delete, 14 range delete: then as the plain record
//! ```
//! Equal content has equal bytes: a varint has its shortest spelling and at most 32 bits, and a
//! record of family 0 is a plain one. Every error names the offset of the field that is wrong.
//!
//! Pure functions over slices; any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Place, Result};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::layout::KEY_LEN_MAX;

/// Sequence number and count.
pub(super) const HEADER_LEN: usize = 12;
/// Byte offset of the count.
pub(super) const COUNT_AT: usize = 8;

/// The tag of log data, which RocksDB's `PutLogData` adds for readers of the log.
const LOG_DATA: u8 = 3;
/// The tag of no operation, which RocksDB writes where a transaction may put its mark later.
const NOOP: u8 = 13;

/// RocksDB's tags in column families other than the default one, and the kind of each.
const OF_FAMILY: [(u8, Kind); 5] = [
    (0x04, Kind::DELETE),
    (0x05, Kind::PUT),
    (0x06, Kind::MERGE),
    (0x08, Kind::SINGLE_DELETE),
    (0x0e, Kind::RANGE_DELETE),
];

/// The name, for errors, of a record that only RocksDB applies: of two-phase commits, blobs,
/// timestamps, wide columns. The bytes of such a record are intact, so it is `NotSupported`; an
/// unknown tag is `Corruption`.
#[cold]
fn foreign(tag: u8) -> Option<&'static str> {
    Some(match tag {
        0x09 => "BeginPrepareXID, record 0x09 of a RocksDB batch",
        0x0a => "EndPrepareXID, record 0x0a of a RocksDB batch",
        0x0b => "CommitXID, record 0x0b of a RocksDB batch",
        0x0c => "RollbackXID, record 0x0c of a RocksDB batch",
        0x10 => "ColumnFamilyBlobIndex, record 0x10 of a RocksDB batch",
        0x11 => "BlobIndex, record 0x11 of a RocksDB batch",
        0x12 => "BeginPersistedPrepareXID, record 0x12 of a RocksDB batch; SetWithDelete of Pebble",
        0x13 => "BeginUnprepareXID, record 0x13 of a RocksDB batch; RangeKeyDelete of Pebble",
        0x14 => "DeletionWithTimestamp, record 0x14 of a RocksDB batch; RangeKeyUnset of Pebble",
        0x15 => "CommitXIDAndTimestamp, record 0x15 of a RocksDB batch; RangeKeySet of Pebble",
        0x16 => "WideColumnEntity, record 0x16 of a RocksDB batch; IngestSST of Pebble",
        0x17 => {
            "ColumnFamilyWideColumnEntity, record 0x17 of a RocksDB batch; DeleteSized of Pebble"
        }
        0x18 => "ValuePreferredSeqno, record 0x18 of a RocksDB batch; Excise of Pebble",
        0x19 => "ColumnFamilyValuePreferredSeqno, record 0x19 of a RocksDB batch",
        _ => return None,
    })
}

/// The report of damage at an offset of the encoded bytes.
#[cold]
pub(super) fn damage(offset: usize, expected: u64, found: u64) -> Error {
    Error::Corruption(Corruption::new(
        Place::Encoding,
        offset as u64,
        expected,
        found,
    ))
}

/// The fixed words at the start of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    pub(super) sequence: SequenceNumber,
    pub(super) count: u32,
}

impl Header {
    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Result<Header> {
        let Some((sequence, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(damage(0, bytes.len() as u64, HEADER_LEN as u64));
        };
        let Some(count) = rest.first_chunk::<4>() else {
            return Err(damage(COUNT_AT, bytes.len() as u64, HEADER_LEN as u64));
        };
        Ok(Header {
            sequence: u64::from_le_bytes(*sequence),
            count: u32::from_le_bytes(*count),
        })
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..COUNT_AT].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[COUNT_AT..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Compares this header with the one in the buffer; `Corruption` if they differ.
    pub(super) fn compare(self, stored: Header) -> Result<()> {
        compare_word(0, self.sequence, stored.sequence)?;
        compare_word(COUNT_AT, u64::from(self.count), u64::from(stored.count))
    }
}

fn compare_word(offset: usize, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Corruption(Corruption::of_word(
        Place::Encoding,
        offset as u64,
        expected,
        found,
    )))
}

/// The tag of records of this kind in this family. Outside the default family only RocksDB's kinds
/// have a tag.
#[inline(always)]
pub(super) fn tag_of(family: u32, kind: Kind) -> Result<u8> {
    if family == 0 {
        Ok(kind.as_u8())
    } else {
        tag_of_family(family, kind)
    }
}

#[cold]
fn tag_of_family(family: u32, kind: Kind) -> Result<u8> {
    let record = OF_FAMILY.iter().find(|(_, of)| *of == kind);
    record.map(|&(tag, _)| tag).ok_or_else(|| {
        Error::InvalidArgument(format!(
            "{kind:?} has no record in column family {family}, only in the default one"
        ))
    })
}

/// Number of bytes that [`append`] adds.
pub(super) fn record_len(record: &Record<'_>) -> usize {
    let varint_len =
        |value: usize| (usize::BITS - value.leading_zeros()).max(1).div_ceil(7) as usize;
    let slice_len = |bytes: &[u8]| varint_len(bytes.len()) + bytes.len();
    let family_len = if record.family == 0 {
        0
    } else {
        varint_len(record.family as usize)
    };
    1 + family_len
        + slice_len(record.key)
        + if record.kind.is_bare() {
            0
        } else {
            slice_len(record.value)
        }
}

/// Appends one record with the tag that [`tag_of`] gave. The caller has checked kind and lengths.
pub(super) fn append(buffer: &mut Vec<u8>, tag: u8, record: &Record<'_>) {
    let Record {
        family,
        kind,
        key,
        value,
    } = *record;
    // The tag is one byte; the family and both lengths are at most five bytes each.
    buffer.reserve(1 + 5 + 5 + key.len() + 5 + value.len());
    buffer.push(tag);
    if family != 0 {
        append_varint(buffer, family as usize);
    }
    append_slice(buffer, key);
    if !kind.is_bare() {
        append_slice(buffer, value);
    }
}

#[inline(always)]
fn append_slice(buffer: &mut Vec<u8>, bytes: &[u8]) {
    append_varint(buffer, bytes.len());
    buffer.extend_from_slice(bytes);
}

#[inline(always)]
fn append_varint(buffer: &mut Vec<u8>, mut rest: usize) {
    while rest >= 0x80 {
        buffer.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    buffer.push(rest.to_le_bytes()[0]);
}

/// One decoded record. A record whose kind is not known is no entry: log data, whose bytes are its
/// value, or no operation. Deletes and single deletes have an empty value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'b> {
    /// The column family; 0 is the default one.
    pub(super) family: u32,
    pub(super) kind: Kind,
    pub(super) key: &'b [u8],
    pub(super) value: &'b [u8],
}

/// Reads records one after the other.
#[derive(Debug, Clone)]
pub(super) struct Records<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Records<'b> {
    /// The records of a whole batch.
    pub(super) fn new(batch: &'b [u8]) -> Self {
        Records {
            bytes: batch,
            at: HEADER_LEN,
        }
    }

    /// The records of bytes that have no header.
    pub(super) fn bare(bytes: &'b [u8]) -> Self {
        Records { bytes, at: 0 }
    }

    /// Byte offset of the next record.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The next record, or `None` at the end. After an error the position is unspecified.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> Result<Option<Record<'b>>> {
        let tag_at = self.at;
        let Some(&tag) = self.bytes.get(tag_at) else {
            return Ok(None);
        };
        self.at += 1;
        let kind = Kind::from_u8(tag);
        if kind.is_known() {
            self.entry(0, kind).map(Some)
        } else {
            self.other(tag_at, tag).map(Some)
        }
    }

    /// The key and value of an entry.
    #[inline(always)]
    fn entry(&mut self, family: u32, kind: Kind) -> Result<Record<'b>> {
        let key = self.key()?;
        let value = match kind {
            _ if kind.is_bare() => &[],
            Kind::RANGE_DELETE => self.key()?,
            _ => self.slice()?,
        };
        Ok(Record {
            family,
            kind,
            key,
            value,
        })
    }

    /// Any other record: an entry of another column family, log data, or no operation.
    #[cold]
    fn other(&mut self, tag_at: usize, tag: u8) -> Result<Record<'b>> {
        if let Some(&(_, kind)) = OF_FAMILY.iter().find(|(of, _)| *of == tag) {
            let family_at = self.at;
            return match self.varint()? {
                0 => Err(damage(family_at, 1, 0)),
                family => self.entry(family, kind),
            };
        }
        let value = match tag {
            LOG_DATA => self.slice()?,
            NOOP => &[],
            _ => {
                return Err(foreign(tag)
                    .map_or_else(|| damage(tag_at, 0, u64::from(tag)), Error::NotSupported));
            }
        };
        Ok(Record {
            family: 0,
            kind: Kind::from_u8(tag),
            key: &[],
            value,
        })
    }

    #[inline]
    fn key(&mut self) -> Result<&'b [u8]> {
        let key = self.slice()?;
        match key.len() as u64 {
            len if len > KEY_LEN_MAX => Err(Error::KeyTooLarge {
                len,
                max: KEY_LEN_MAX,
            }),
            _ => Ok(key),
        }
    }

    /// Reads a length, and as many bytes as it says, if that many remain.
    #[inline]
    fn slice(&mut self) -> Result<&'b [u8]> {
        let length_at = self.at;
        let len = self.varint()?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        // The comparison is one of u64, so that no length wraps.
        if u64::from(len) > rest.len() as u64 {
            return Err(damage(length_at, rest.len() as u64, u64::from(len)));
        }
        let slice = rest.get(..len as usize).unwrap_or_default();
        self.at += slice.len();
        Ok(slice)
    }

    /// Reads a varint: up to five bytes of seven bits each, lowest first, in its shortest spelling.
    #[inline]
    fn varint(&mut self) -> Result<u32> {
        let start = self.at;
        // Most lengths are one byte long.
        if let Some(&byte) = self.bytes.get(start).filter(|&&byte| byte < 0x80) {
            self.at += 1;
            return Ok(u32::from(byte));
        }
        self.long_varint(start)
    }

    fn long_varint(&mut self, start: usize) -> Result<u32> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(damage(start, 0, (self.at - start) as u64));
            };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let overlong = byte == 0 && shift > 0;
                return match u32::try_from(value) {
                    Ok(value) if !overlong => Ok(value),
                    _ => Err(damage(start, 0, value)),
                };
            }
        }
        Err(damage(start, 0, value))
    }
}
