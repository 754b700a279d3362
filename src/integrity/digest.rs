//! The digest algebra: parts that are XORed, and types that say what a sum covers.
//!
//! ```text
//!   K(key) V(value) O(kind) S(sequence)                                     each 64 bits, own seed
//!   F(lengths, sequence, revision, offset) under the table's secret         64 bits, of which the header check is made
//!
//!   digest of a caller       K ^ V ^ O                    Protected<Kvo>
//!   with its sequence        K ^ V ^ O ^ S                Protected<Kvos>
//!   stored key digest        K ^ O ^ S ^ F                low protection bytes
//!   stored value digest      V ^ K ^ S ^ F                low protection bytes
//!   key digest that left     K ^ O ^ S                    } StoredProtection: low protection bytes
//!   value digest that left   V ^ K ^ S                    }
//! ```
//! * DIGEST-1: the seeds of all parts but F are global, so a digest leaves its table by XORing F out. That
//!   reads no byte of key or value, so a bit that flipped since the digest was computed still disagrees with it.
//! * DIGEST-2: F binds an entry to its place and to the life of its table. It is computed once for the header check
//!   and both digests (`hash.rs`).
//! * DIGEST-3: V is bound to K and S: two entries cannot trade values.
//!
//! A width of n bytes misses random damage with probability 2^-8n. Pure functions; any thread.

#![forbid(unsafe_code)]

use std::marker::PhantomData;

use crate::integrity::hash::{hash_under, mix, splitmix};
use crate::key::{Kind, SequenceNumber};

const SEED_KEY: u64 = splitmix(101);
const SEED_VALUE: u64 = splitmix(102);
const SEED_KIND: u64 = splitmix(103);
const SEED_SEQUENCE: u64 = splitmix(104);

/// Covers key, value and kind.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::{Kvo, Protected};
/// let digest: Protected<Kvo> = Protected::of(b"key", b"value", Kind::PUT);
/// assert_eq!(digest.with_sequence(7).without_sequence(7), digest);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kvo;

/// Covers key, value, kind and sequence number.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::integrity::{Kvos, Protected};
/// let digest: Protected<Kvos> = Protected::of(b"key", b"value", Kind::PUT).with_sequence(7);
/// assert_ne!(digest, Protected::of(b"key", b"value", Kind::PUT).with_sequence(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kvos;

/// A 64-bit digest over the fields that `Cover` names. A caller computes it over its own buffers and passes it along
/// with them.
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
        Protected { bits, cover: PhantomData }
    }

    /// The 64 bits, for storing or sending the digest.
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
    /// Digest of an entry in the caller's own buffers. O(length of both).
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

    /// A digest from the bits that [`to_bits`](Self::to_bits) gave.
    #[must_use]
    pub const fn carried(bits: u64) -> Self {
        Protected::from_bits(bits)
    }

    /// Adds the sequence number to what is covered.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// use paranoid_memtable::integrity::Protected;
    /// let table = MemTable::default();
    /// let digest = Protected::of(b"key", b"value", Kind::PUT);
    /// table.insert_parts(7, Kind::PUT, b"key", &[b"value"], Some(digest))?;
    /// assert_eq!(digest.with_sequence(7).without_sequence(7), digest);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn with_sequence(self, sequence: SequenceNumber) -> Protected<Kvos> {
        Protected::from_bits(self.bits ^ sequence_part(sequence))
    }
}

impl Protected<Kvos> {
    /// Takes the sequence number out again.
    #[must_use]
    pub fn without_sequence(self, sequence: SequenceNumber) -> Protected<Kvo> {
        Protected::from_bits(self.bits ^ sequence_part(sequence))
    }
}

/// The part K. Filters and tower heights start from this hash too.
#[inline(always)]
pub(crate) fn key_part(key: &[u8]) -> u64 {
    hash_under::<SEED_KEY>(key)
}

/// V.
#[inline(always)]
pub(crate) fn value_part(value: &[u8]) -> u64 {
    hash_under::<SEED_VALUE>(value)
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
    KIND_PARTS[usize::from(kind.as_u8())]
}

#[inline(always)]
fn sequence_part(sequence: SequenceNumber) -> u64 {
    mix(sequence, SEED_SEQUENCE)
}

/// The two digests that a table stored with an entry, with the entry's place taken out. A later stage, such as a
/// block builder, compares its own copy of the bytes with them. They were computed when the entry was written;
/// handing them on reads no byte of the entry.
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
    /// Digests of 8 bytes each over an entry in the caller's own buffers, for entries that do not come from a table.
    /// O(length).
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
        StoredProtection { key: version ^ kind_part(kind), value: value_part ^ version, width: Width(8) }
    }

    /// How many bytes of each digest are compared: the table's protection bytes. With 0 every entry agrees.
    #[must_use]
    pub const fn bytes(&self) -> u8 {
        self.width.0
    }

    /// The digests of this key and value under another sequence number and kind. `from` must be what the table
    /// stored; with anything else the result agrees with no entry. O(1).
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
        StoredProtection { key: self.key ^ version ^ kinds, value: self.value ^ version, width: self.width }
    }

    /// Compares an entry, as the caller holds it now, with the stored digests, and returns its untruncated digest if
    /// they agree. O(length).
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

/// How many bytes of each digest are stored with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width(u8);

impl Width {
    /// 0, 1, 2, 4 or 8.
    pub(crate) const fn new(bytes: u8) -> Option<Width> {
        match bytes {
            0 | 1 | 2 | 4 | 8 => Some(Width(bytes)),
            _ => None,
        }
    }

    /// Stored bytes of one digest.
    #[inline(always)]
    pub(crate) const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The bits of a digest that are stored.
    #[inline(always)]
    pub(crate) const fn mask(self) -> u64 {
        match self.0 {
            0 => 0,
            bytes => u64::MAX >> (64 - 8 * bytes as u32),
        }
    }
}

/// What both digests of an entry have of its fixed fields: its header, its place and its sequence number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedFields {
    sequence: SequenceNumber,
    /// S ^ F.
    bits: u64,
}

impl FixedFields {
    /// Of an entry with this sequence number and this F.
    #[inline(always)]
    pub(crate) fn new(sequence: SequenceNumber, header_part: u64) -> FixedFields {
        FixedFields { sequence, bits: sequence_part(sequence) ^ header_part }
    }

    /// The entry's sequence number.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The key digest, untruncated, from K.
    #[inline(always)]
    pub(crate) fn key_digest(&self, key_part: u64, kind: Kind) -> u64 {
        key_part ^ kind_part(kind) ^ self.bits
    }

    /// The value digest, untruncated, from the value and K.
    #[inline(always)]
    pub(crate) fn value_digest(&self, value: &[u8], key_part: u64) -> u64 {
        self.value_digest_of(value_part(value), key_part)
    }

    /// The value digest, untruncated, from V and K.
    #[inline(always)]
    pub(crate) fn value_digest_of(&self, value_part: u64, key_part: u64) -> u64 {
        value_part ^ key_part ^ self.bits
    }

    /// The stored digests without F (DIGEST-1).
    pub(crate) fn stripped(&self, key_digest: u64, value_digest: u64, width: Width) -> StoredProtection {
        let header_part = self.bits ^ sequence_part(self.sequence);
        StoredProtection { key: key_digest ^ header_part, value: value_digest ^ header_part, width }
    }
}

// Finds the single flipped bit that explains a failed check, if there is one. Runs only after a check has failed.
//
// Not promised: that the bit found is the one that flipped. It is the first one whose flip makes the check pass.

/// Longest input that is searched, in bytes. The work is quadratic in its length: at the limit about a million bytes
/// are hashed, which takes well under a millisecond.
pub(crate) const DIAGNOSIS_LEN_MAX: usize = 384;

/// The number (byte * 8 + bit) of the first bit of `bytes` whose flipping makes `holds` true.
#[cold]
pub(crate) fn single_bit(bytes: &[u8], holds: impl Fn(&[u8]) -> bool) -> Option<u64> {
    let mut buffer = [0u8; DIAGNOSIS_LEN_MAX];
    let copy = buffer.get_mut(..bytes.len())?;
    copy.copy_from_slice(bytes);
    for bit in 0..bytes.len() * 8 {
        copy[bit / 8] ^= 1 << (bit % 8);
        let explained = holds(copy);
        copy[bit / 8] ^= 1 << (bit % 8);
        if explained {
            return Some(bit as u64);
        }
    }
    None
}

/// Tests of digests: what they cover, and what they are made of.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::hash::Secret;
    use crate::integrity::hash::hash;

    /// Each field, and each bit of a header and its place.
    #[test]
    fn every_field_is_covered() {
        let secret = Secret::from_seed(5);
        let header = |[node, lengths, sequence, revision]: [u64; 4]| {
            let halves = [node, revision].map(|half| u32::try_from(half).unwrap());
            secret.header_part(halves[0], lengths, sequence, halves[1])
        };
        let fields = [9, 0x0003_0000_0005_0001, 77, 0];
        let base = FixedFields::new(77, header(fields));
        let digest = |fixed: FixedFields, key: &[u8]| fixed.key_digest(key_part(key), Kind::PUT);
        let value = |fixed: FixedFields, value: &[u8], key: &[u8]| fixed.value_digest(value, key_part(key));
        let (clean, clean_value) = (digest(base, b"key"), value(base, b"v", b"key"));
        assert_ne!(clean, digest(base, b"kez"));
        assert_ne!(clean, base.key_digest(key_part(b"key"), Kind::DELETE));
        assert_ne!(clean, digest(FixedFields::new(78, header(fields)), b"key"));
        assert_ne!(clean_value, value(base, b"w", b"key"));
        assert_ne!(clean_value, value(base, b"v", b"kez"));
        assert_ne!(clean_value, value(FixedFields::new(78, header(fields)), b"v", b"key"));
        for (field, bits) in [32, 64, 64, 32].into_iter().enumerate() {
            for bit in 0..bits {
                let mut flipped = fields;
                flipped[field] ^= 1 << bit;
                let fixed = FixedFields::new(77, header(flipped));
                assert_ne!(clean, digest(fixed, b"key"), "field {field}, bit {bit}");
                assert_ne!(clean_value, value(fixed, b"v", b"key"), "field {field}, bit {bit}");
            }
        }
    }

    /// DIGEST-1: every digest is the XOR of its parts, and one that left its table is that of the caller's bytes.
    #[test]
    fn digests_are_what_the_picture_says() {
        for n in 0..64 {
            let (key, value) = (splitmix(n).to_le_bytes(), splitmix(n + 64).to_le_bytes());
            let (k, v) = (hash(&key, splitmix(101)), hash(&value, splitmix(102)));
            let sequence = splitmix(n) >> 8;
            let s = mix(sequence, splitmix(104));
            for kind in [Kind::PUT, Kind::DELETE, Kind::MERGE] {
                let o = mix(u64::from(kind.as_u8()), splitmix(103));
                let caller = Protected::of(&key, &value, kind);
                assert_eq!(caller.to_bits(), k ^ v ^ o);
                assert_eq!(caller, Protected::carried(k ^ v ^ o));
                assert_eq!(caller.with_sequence(sequence).to_bits(), k ^ v ^ o ^ s);
                assert_eq!(caller.with_sequence(sequence).without_sequence(sequence), caller);
                let f = splitmix(n + 128);
                let fixed = FixedFields::new(sequence, f);
                let stored = (fixed.key_digest(k, kind), fixed.value_digest(&value, k));
                assert_eq!(stored, (k ^ o ^ s ^ f, v ^ k ^ s ^ f));
                assert_eq!(fixed.sequence(), sequence);
                let left = StoredProtection::of(&key, &value, sequence, kind);
                assert_eq!((left.key, left.value, left.bytes()), (k ^ o ^ s, v ^ k ^ s, 8));
                assert_eq!(fixed.stripped(stored.0, stored.1, Width(8)), left);
                let other = StoredProtection::of(&key, &value, 5, Kind::SINGLE_DELETE);
                assert_eq!(left.rewritten((sequence, kind), (5, Kind::SINGLE_DELETE)), other);
            }
        }
    }

    /// Of each digest as many bytes are compared as are stored, and no bit more.
    #[test]
    fn digests_are_compared_up_to_their_width() {
        for (width, bit) in [0, 1, 2, 4, 8].into_iter().flat_map(|width| (0..64).map(move |bit| (width, bit)))
        {
            let whole = StoredProtection::of(b"key", b"value", 7, Kind::PUT);
            let stored = StoredProtection { width: Width(width), ..whole };
            let caller = Protected::of(b"key", b"value", Kind::PUT).with_sequence(7);
            assert_eq!((stored.check(b"key", b"value", 7, Kind::PUT), stored.bytes()), (Some(caller), width));
            let flipped = [(1 << bit, 0), (0, 1 << bit), (1 << bit, 1 << bit)];
            for (key, value) in flipped {
                let flipped =
                    StoredProtection { key: stored.key ^ key, value: stored.value ^ value, ..stored };
                let agrees = flipped.check(b"key", b"value", 7, Kind::PUT).is_some();
                assert_eq!(agrees, bit >= 8 * width, "width {width}, bit {bit}");
            }
        }
    }

    #[test]
    fn widths_and_masks() {
        assert_eq!(
            [0u8, 1, 2, 4, 8].map(|b| Width::new(b).unwrap().mask()),
            [0, 0xff, 0xffff, 0xffff_ffff, u64::MAX]
        );
        assert!([3u8, 5, 6, 7, 9, 16].iter().all(|&b| Width::new(b).is_none()));
    }

    #[test]
    fn finds_the_bit_and_only_that() {
        let clean = [7u8, 8, 9];
        let mut bent = clean;
        bent[1] ^= 0x20;
        assert_eq!(single_bit(&bent, |bytes| bytes == clean), Some(8 + 5));
        bent[2] ^= 1;
        assert_eq!(single_bit(&bent, |bytes| bytes == clean), None);
        assert_eq!(single_bit(&[0; 4096], |_| true), None);
    }
}
