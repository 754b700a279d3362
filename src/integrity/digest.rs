//! The digests of entries: XORs of parts, and types that say which fields a digest covers.
//!
//! ```text
//!   K(key) V(value) O(kind) S(sequence) C(column family)     64 bits each, under seeds of their own
//!   F(lengths, sequence, revision, offset)                   64 bits, under the table's secret
//!
//!   digest of a caller       K ^ V ^ O                    Protected<Kvo>
//!   with its sequence        K ^ V ^ O ^ S                Protected<Kvos>
//!   in a batch               K ^ V ^ O ^ C                Protected<Kvoc>
//!   stored key digest        K ^ F                        low protection bytes
//!   stored value digest      V ^ K ^ F                    low protection bytes
//!   key digest outside       K ^ O ^ S                    } StoredProtection: low protection bytes
//!   value digest outside     V ^ K ^ S                    }
//! ```
//! F binds an entry to its place and to its table, and covers kind and sequence number. It is
//! computed once for the header check and both digests. The seeds of all other parts are the same
//! in all tables, so a digest can be checked outside the table once F is XORed out, and O and S are
//! XORed in. That reads no byte of key or value: a bit that flipped after the digest was computed
//! still disagrees with it. If a field of the header changed, F is another one, and what remains of
//! it disagrees too.
//!
//! The value digest contains K and F, so two entries that exchanged their values do not verify.
//!
//! A width of n bytes misses random damage with probability 2^-8n. Pure functions; any thread.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "a width is at most 8")]

use std::marker::PhantomData;

use crate::integrity::hash::{hash, hash_under, mix, splitmix};
use crate::integrity::hash_flip::flip_to;
use crate::key::SequenceNumber;
use crate::kind::Kind;

const SEED_KEY: u64 = splitmix(101);
const SEED_VALUE: u64 = splitmix(102);
const SEED_KIND: u64 = splitmix(103);
const SEED_SEQUENCE: u64 = splitmix(104);
const SEED_FAMILY: u64 = splitmix(109);

/// The fields that a [`Protected<Kvo>`] covers: key, value and kind.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::{Kvo, Protected};
/// let digest: Protected<Kvo> = Protected::of(b"key", b"value", Kind::PUT);
/// assert_eq!(digest.with_sequence(7).without_sequence(7), digest);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kvo;

/// The fields that a [`Protected<Kvos>`] covers: key, value, kind and sequence number.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::{Kvos, Protected};
/// let digest: Protected<Kvos> = Protected::of(b"key", b"value", Kind::PUT).with_sequence(7);
/// assert_ne!(digest, Protected::of(b"key", b"value", Kind::PUT).with_sequence(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kvos;

/// The fields that the digest of a batch's record covers: key, value, kind and column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kvoc;

/// A 64-bit digest over the fields that `Cover` names. A caller computes it over its own buffers
/// and passes both to the table.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::Protected;
/// let caller_digest = Protected::of(b"key", b"value", Kind::PUT);
/// assert_ne!(caller_digest, Protected::of(b"key", b"valve", Kind::PUT));
/// assert_ne!(caller_digest.with_sequence(1), caller_digest.with_sequence(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protected<Cover> {
    bits: u64,
    cover: PhantomData<Cover>,
}

impl<Cover> Protected<Cover> {
    const fn from_bits(bits: u64) -> Self {
        Protected {
            bits,
            cover: PhantomData,
        }
    }

    /// The 64 bits of the digest, to store or send them.
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::integrity::Protected;
    /// let digest = Protected::of(b"key", b"value", Kind::PUT);
    /// assert_eq!(Protected::carried(digest.to_bits()), digest);
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.bits
    }
}

impl Protected<Kvo> {
    /// Computes the digest of an entry in the caller's own buffers. O(length of both).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::integrity::Protected;
    /// let digest = Protected::of(b"key", b"value", Kind::PUT);
    /// assert_ne!(digest, Protected::of(b"key", b"value", Kind::MERGE));
    /// assert_ne!(digest, Protected::of(b"keyv", b"alue", Kind::PUT));
    /// ```
    #[must_use]
    pub fn of(key: &[u8], value: &[u8], kind: Kind) -> Self {
        Protected::of_parts(key_part(key), value_part(value), kind)
    }

    /// The digest of an entry from K and V.
    #[inline(always)]
    pub(crate) fn of_parts(key_part: u64, value_part: u64, kind: Kind) -> Self {
        Protected::from_bits(key_part ^ value_part ^ kind_part(kind))
    }

    /// Makes a digest of the bits that [`to_bits`](Self::to_bits) returned.
    #[must_use]
    pub const fn carried(bits: u64) -> Self {
        Protected::from_bits(bits)
    }

    /// Adds the sequence number to the fields that the digest covers.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// use paranoid_memtable::integrity::Protected;
    /// let table = MemTable::default();
    /// let digest = Protected::of(b"key", b"value", Kind::PUT);
    /// table.insert_parts(7, Kind::PUT, b"key", &[b"value"], Some(digest.with_sequence(7)))?;
    /// assert_eq!(digest.with_sequence(7).without_sequence(7), digest);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn with_sequence(self, sequence: SequenceNumber) -> Protected<Kvos> {
        Protected::from_bits(self.bits ^ sequence_part(sequence))
    }

    /// Adds the column family to the fields that the digest covers.
    #[inline(always)]
    pub(crate) fn with_family(self, family: u32) -> Protected<Kvoc> {
        Protected::from_bits(self.bits ^ family_part(family))
    }
}

impl Protected<Kvoc> {
    /// Removes the column family from the fields that the digest covers.
    #[inline(always)]
    pub(crate) fn without_family(self, family: u32) -> Protected<Kvo> {
        Protected::from_bits(self.bits ^ family_part(family))
    }
}

impl Protected<Kvos> {
    /// Removes the sequence number from the fields that the digest covers.
    #[must_use]
    pub fn without_sequence(self, sequence: SequenceNumber) -> Protected<Kvo> {
        Protected::from_bits(self.bits ^ sequence_part(sequence))
    }
}

/// K. Filters and tower heights are made of this hash too.
#[inline(always)]
pub(crate) fn key_part(key: &[u8]) -> u64 {
    hash_under::<SEED_KEY>(key)
}

/// V.
#[inline(always)]
pub(crate) fn value_part(value: &[u8]) -> u64 {
    hash_under::<SEED_VALUE>(value)
}

/// The bit of a key whose flip gives it this K.
pub(crate) fn key_flip(key: &mut [u8], part: u64) -> Option<usize> {
    flip_to::<SEED_KEY>(key, part)
}

/// The bit of a value whose flip gives it this V.
pub(crate) fn value_flip(value: &mut [u8], part: u64) -> Option<usize> {
    flip_to::<SEED_VALUE>(value, part)
}

/// V, computed without a call for values of at most [`UNROLLED`] bytes.
#[inline(always)]
pub(crate) fn value_part_here(value: &[u8]) -> u64 {
    hash(value, SEED_VALUE)
}

/// O of every kind.
static KIND_PARTS: [u64; 256] = {
    let mut parts = [0; 256];
    let mut kind = 0;
    while kind < parts.len() {
        parts[kind] = mix(kind as u64, SEED_KIND);
        kind += 1;
    }
    parts
};

#[inline(always)]
fn kind_part(kind: Kind) -> u64 {
    KIND_PARTS[usize::from(kind.0)]
}

#[inline(always)]
fn sequence_part(sequence: SequenceNumber) -> u64 {
    mix(sequence, SEED_SEQUENCE)
}

/// C, which is 0 for the default column family.
#[inline(always)]
fn family_part(family: u32) -> u64 {
    if family == 0 {
        0
    } else {
        mix(u64::from(family), SEED_FAMILY)
    }
}

/// The two digests that a table stored with an entry, without the entry's place in the table. A
/// later stage, such as a block builder, compares its own copy of the bytes with them. They were
/// computed when the entry was written: no byte of the entry is read to pass them on.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::{Protected, StoredProtection};
/// let caller_digest = StoredProtection::of(b"key", b"value", 7, Kind::PUT);
/// assert_eq!(caller_digest.bytes(), 8);
/// let whole = Protected::of(b"key", b"value", Kind::PUT).with_sequence(7);
/// assert_eq!(caller_digest.check(b"key", b"value", 7, Kind::PUT), Some(whole));
/// assert_eq!(caller_digest.check(b"key", b"valve", 7, Kind::PUT), None);
/// assert_eq!(caller_digest.check(b"key", b"value", 7, Kind::MERGE), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredProtection {
    key: u64,
    value: u64,
    width: Width,
}

impl StoredProtection {
    /// Computes digests of 8 bytes each over an entry in the caller's own buffers, for entries that
    /// do not come from a table. O(length).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::integrity::StoredProtection;
    /// let stored = StoredProtection::of(b"key", b"value", 7, Kind::PUT);
    /// assert!(stored.check(b"key", b"value", 7, Kind::PUT).is_some());
    /// assert!(stored.check(b"key", b"valve", 7, Kind::PUT).is_none());
    /// ```
    #[must_use]
    pub fn of(key: &[u8], value: &[u8], sequence: SequenceNumber, kind: Kind) -> Self {
        StoredProtection::of_parts(key_part(key), value_part(value), sequence, kind)
    }

    fn of_parts(key_part: u64, value_part: u64, sequence: SequenceNumber, kind: Kind) -> Self {
        let version = key_part ^ sequence_part(sequence);
        StoredProtection {
            key: version ^ kind_part(kind),
            value: value_part ^ version,
            width: Width::default(),
        }
    }

    /// The number of bytes that are compared of each digest: the table's protection bytes. With 0
    /// every entry agrees.
    #[must_use]
    pub const fn bytes(&self) -> u8 {
        self.width.bytes as u8
    }

    /// The digests of the same key and value under another sequence number and kind. `from` must be
    /// the sequence number and kind that the table stored; otherwise the result agrees with no
    /// entry. O(1).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::integrity::StoredProtection;
    /// let stored = StoredProtection::of(b"key", b"", 7, Kind::SINGLE_DELETE);
    /// let rewritten = stored.rewritten((7, Kind::SINGLE_DELETE), (0, Kind::DELETE));
    /// assert_eq!(rewritten, StoredProtection::of(b"key", b"", 0, Kind::DELETE));
    /// ```
    #[must_use]
    pub fn rewritten(self, from: (SequenceNumber, Kind), to: (SequenceNumber, Kind)) -> Self {
        let version = sequence_part(from.0) ^ sequence_part(to.0);
        let kinds = kind_part(from.1) ^ kind_part(to.1);
        StoredProtection {
            key: self.key ^ version ^ kinds,
            value: self.value ^ version,
            width: self.width,
        }
    }

    /// Compares the caller's copy of an entry with the stored digests. Returns the untruncated
    /// digest of the entry if they agree. O(length).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::integrity::{Protected, StoredProtection};
    /// let stored = StoredProtection::of(b"key", b"value", 7, Kind::PUT);
    /// let digest = stored.check(b"key", b"value", 7, Kind::PUT).expect("all agree");
    /// assert_eq!(digest, Protected::of(b"key", b"value", Kind::PUT).with_sequence(7));
    /// assert!(stored.check(b"key", b"value", 8, Kind::PUT).is_none());
    /// ```
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        key: &[u8],
        value: &[u8],
        sequence: SequenceNumber,
        kind: Kind,
    ) -> Option<Protected<Kvos>> {
        let (key_part, value_part) = (key_part(key), value_part(value));
        let found = StoredProtection::of_parts(key_part, value_part, sequence, kind);
        let differs = (found.key ^ self.key) | (found.value ^ self.value);
        (differs & self.width.mask() == 0)
            .then(|| Protected::of_parts(key_part, value_part, kind).with_sequence(sequence))
    }
}

/// The number of bytes of each digest that are stored with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    /// Stored bytes of one digest.
    pub(crate) bytes: usize,
}

impl Default for Width {
    fn default() -> Self {
        Width { bytes: 8 }
    }
}

impl Width {
    /// A width of 0, 1, 2, 4 or 8 bytes.
    pub(crate) const fn new(bytes: u8) -> Option<Width> {
        match bytes {
            0 | 1 | 2 | 4 | 8 => Some(Width {
                bytes: bytes as usize,
            }),
            _ => None,
        }
    }

    /// The bits of a digest that are stored.
    #[inline(always)]
    pub(crate) const fn mask(self) -> u64 {
        match self.bytes {
            0 => 0,
            bytes => u64::MAX >> (64 - 8 * bytes),
        }
    }
}

/// K and V of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// F of an entry, which is part of both digests, and the sequence number, which F covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedFields {
    /// The entry's sequence number.
    pub(crate) sequence: SequenceNumber,
    /// F.
    header_part: u64,
}

impl FixedFields {
    /// The fields of an entry with this sequence number and this F.
    #[inline(always)]
    pub(crate) fn new(sequence: SequenceNumber, header_part: u64) -> FixedFields {
        FixedFields {
            sequence,
            header_part,
        }
    }

    /// K and the untruncated key digest.
    #[inline(always)]
    pub(crate) fn of_key(&self, key: &[u8]) -> (u64, u64) {
        let key_part = key_part(key);
        (key_part, self.key_digest(key_part))
    }

    /// The untruncated key digest, computed from K.
    #[inline(always)]
    pub(crate) fn key_digest(&self, key_part: u64) -> u64 {
        key_part ^ self.header_part
    }

    /// Both untruncated digests, and the K and V that they contain.
    #[inline(always)]
    pub(crate) fn digests(&self, key: &[u8], value: &[u8]) -> ([u64; 2], Parts) {
        let parts = Parts {
            key: key_part(key),
            value: value_part_here(value),
        };
        let digests = [
            self.key_digest(parts.key),
            self.value_digest(parts.value, parts.key),
        ];
        (digests, parts)
    }

    /// The untruncated value digest, computed from V and K.
    #[inline(always)]
    pub(crate) fn value_digest(&self, value_part: u64, key_part: u64) -> u64 {
        value_part ^ key_part ^ self.header_part
    }

    /// The stored digests of an entry of this kind, with O and S in place of F. Reads neither key
    /// nor value.
    pub(crate) fn outside(&self, kind: Kind, stored: [u64; 2], width: Width) -> StoredProtection {
        let [key, value] = stored.map(|digest| digest ^ self.header_part);
        let version = sequence_part(self.sequence);
        StoredProtection {
            key: key ^ version ^ kind_part(kind),
            value: value ^ version,
            width,
        }
    }
}

#[cfg(test)]
mod tests;
