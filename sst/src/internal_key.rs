//! Internal keys and their order. An internal key is a user key, followed by eight bytes of
//! sequence number and kind.
//!
//! ```text
//!   user key | sequence number (56) kind (8), little-endian
//!   order: user key ascending (bytewise), then that number descending
//! ```
//! Pure functions; any thread.

use std::cmp::Ordering;

use paranoid_memtable::{Kind, SequenceNumber};

/// Bytes of an internal key after the user key.
pub(crate) const TAIL_LEN: usize = 8;

/// Largest sequence number that fits into 56 bits.
pub(crate) const SEQUENCE_MAX: SequenceNumber = (1 << 56) - 1;

/// The kind of shortened separators: RocksDB's type for seeks, the largest kind in data blocks.
pub(crate) const SEEK_KIND: u8 = 0x18;

/// The kinds of entries that this crate reads from data blocks and writes to them.
pub(crate) const DATA_KINDS: [Kind; 4] =
    [Kind::DELETE, Kind::PUT, Kind::MERGE, Kind::SINGLE_DELETE];

/// The name of a kind that data blocks of RocksDB or Pebble may hold and that this crate does not
/// read.
pub(crate) const fn foreign_name(kind: Kind) -> &'static str {
    match kind.as_u8() {
        15 => "a range deletion among entries",
        17 => "RocksDB's blob index",
        18 => "Pebble's set with delete",
        20 => "RocksDB's deletion with timestamp",
        22 => "RocksDB's wide columns",
        23 => "Pebble's sized delete",
        24 => "RocksDB's value with preferred sequence number",
        _ => "without a name here",
    }
}

/// Sequence number and kind as one number.
pub(crate) const fn pack(sequence: SequenceNumber, kind: u8) -> u64 {
    sequence << 8 | kind as u64
}

/// The user key and the packed number of an internal key. `None`: the key is too short.
#[inline]
pub(crate) fn split(key: &[u8]) -> Option<(&[u8], u64)> {
    let (user_key, tail) = key.split_last_chunk::<TAIL_LEN>()?;
    Some((user_key, u64::from_le_bytes(*tail)))
}

/// The user key of an internal key; a key that is too short is returned whole.
#[inline]
pub(crate) fn user_key(key: &[u8]) -> &[u8] {
    split(key).map_or(key, |(user_key, _)| user_key)
}

/// The sequence number of a packed number.
pub(crate) const fn sequence_of(packed: u64) -> SequenceNumber {
    packed >> 8
}

/// The kind of a packed number.
pub(crate) const fn kind_of(packed: u64) -> Kind {
    Kind::from_u8(packed.to_le_bytes()[0])
}

/// The order of internal keys. A key that is too short to be one is before all others.
pub(crate) fn compare(left: &[u8], right: &[u8]) -> Ordering {
    match (split(left), split(right)) {
        (Some((left, left_tail)), Some((right, right_tail))) => {
            left.cmp(right).then(right_tail.cmp(&left_tail))
        }
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}
