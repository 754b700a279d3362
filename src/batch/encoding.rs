//! RocksDB's WriteBatch encoding: bytes to records and back.
//!
//! ```text
//!   0          8       12
//!   | sequence | count | record | record | ..          integers little-endian
//!   record:  tag (1) | varint32 length | key | varint32 length | value
//!            0 delete, 7 single delete: key only        15 range delete: start and end
//!            1 put, 2 merge, 0x80.. custom: both        3 log data: one slice, no entry
//! ```
//! * BATCH-ENCODING-1: every offset is compared with the end of the bytes, and every length with the bytes that
//!   remain, before anything is read.
//! * BATCH-ENCODING-2: a varint has its shortest spelling and at most 32 bits, so equal content has equal bytes.
//! * BATCH-ENCODING-3: every error names the offset of the field that is wrong.
//!
//! Pure functions over slices; any thread. Not promised: column families; their tags are `Corruption` here.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Place, Result};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::skiplist::layout::KEY_LEN_MAX;

/// Sequence number and count.
pub(super) const HEADER_LEN: usize = 12;
/// Byte offset of the count.
pub(super) const COUNT_AT: usize = 8;

const TAG_LOG_DATA: u8 = 3;

/// A report about encoded bytes.
#[cold]
pub(super) fn damage(offset: usize, expected: u64, found: u64) -> Error {
    Error::Corruption(Corruption::new(Place::Encoding, offset as u64, expected, found))
}

/// The fixed words at the start of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    pub(super) sequence: SequenceNumber,
    pub(super) count: u32,
}

impl Header {
    pub(super) fn read(bytes: &[u8]) -> Result<Header> {
        let Some((sequence, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(damage(0, bytes.len() as u64, HEADER_LEN as u64));
        };
        let Some(count) = rest.first_chunk::<4>() else {
            return Err(damage(COUNT_AT, bytes.len() as u64, HEADER_LEN as u64));
        };
        Ok(Header { sequence: u64::from_le_bytes(*sequence), count: u32::from_le_bytes(*count) })
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..COUNT_AT].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[COUNT_AT..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// Compares these words with those in the buffer; `Corruption` if they differ.
    pub(super) fn compare(self, stored: Header) -> Result<()> {
        compare_word(0, self.sequence, stored.sequence)?;
        compare_word(COUNT_AT, u64::from(self.count), u64::from(stored.count))
    }
}

fn compare_word(offset: usize, expected: u64, found: u64) -> Result<()> {
    let difference = expected ^ found;
    if difference == 0 {
        return Ok(());
    }
    let mut report = Corruption::new(Place::Encoding, offset as u64, expected, found);
    report.flipped_bit = difference.is_power_of_two().then(|| u64::from(difference.trailing_zeros()));
    Err(Error::Corruption(report))
}

/// Appends one record. The caller has checked kind and lengths.
pub(super) fn append(buffer: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8]) {
    // One byte of tag, and two lengths of at most five bytes each.
    buffer.reserve(1 + 5 + key.len() + 5 + value.len());
    buffer.push(kind.as_u8());
    append_slice(buffer, key);
    if !kind.is_bare() {
        append_slice(buffer, value);
    }
}

fn append_slice(buffer: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes.len();
    while rest >= 0x80 {
        buffer.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    buffer.push(rest.to_le_bytes()[0]);
    buffer.extend_from_slice(bytes);
}

/// One decoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record<'b> {
    /// An entry. Deletes and single deletes have an empty value.
    Entry { kind: Kind, key: &'b [u8], value: &'b [u8] },
    /// Bytes for readers of the log; not an entry.
    LogData,
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
        Records { bytes: batch, at: HEADER_LEN }
    }

    /// Records without a header before them.
    pub(super) fn bare(bytes: &'b [u8]) -> Self {
        Records { bytes, at: 0 }
    }

    /// Byte offset of the next record.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The next record, or `None` at the end. After an error the position is unspecified.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<Option<Record<'b>>> {
        let tag_at = self.at;
        let Some(&tag) = self.bytes.get(tag_at) else { return Ok(None) };
        self.at += 1;
        if tag == TAG_LOG_DATA {
            self.slice()?;
            return Ok(Some(Record::LogData));
        }
        let kind = Kind::from_u8(tag);
        if !kind.is_known() {
            return Err(damage(tag_at, 0, u64::from(tag)));
        }
        let key = self.key()?;
        let value = match kind {
            _ if kind.is_bare() => &[],
            Kind::RANGE_DELETE => self.key()?,
            _ => self.slice()?,
        };
        Ok(Some(Record::Entry { kind, key, value }))
    }

    #[inline]
    fn key(&mut self) -> Result<&'b [u8]> {
        let key = self.slice()?;
        match key.len() as u64 {
            len if len > KEY_LEN_MAX => Err(Error::KeyTooLarge { len, max: KEY_LEN_MAX }),
            _ => Ok(key),
        }
    }

    /// Reads a length and as many bytes as it says (BATCH-ENCODING-1).
    #[inline]
    fn slice(&mut self) -> Result<&'b [u8]> {
        let length_at = self.at;
        let len = self.varint()?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        // Compared as u64, so that no length wraps.
        if u64::from(len) > rest.len() as u64 {
            return Err(damage(length_at, rest.len() as u64, u64::from(len)));
        }
        let slice = rest.get(..len as usize).unwrap_or_default();
        self.at += slice.len();
        Ok(slice)
    }

    /// Reads a varint of up to five bytes, seven bits each, lowest first (BATCH-ENCODING-2).
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
