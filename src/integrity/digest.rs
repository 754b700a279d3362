//! The digest algebra: parts that are XORed, and types that say what a sum covers.
//!
//! ```text
//!   K(key) V(value) O(kind) S(sequence)                                     each 64 bits, own seed
//!   F(lengths, sequence, revision, offset) under the table's secret         64 bits, of which the header check is made
//!
//!   digest of a caller       K ^ V ^ O                    Protected<Kvo>
//!   with its sequence        K ^ V ^ O ^ S                Protected<Kvos>
//!   in a batch               K ^ V ^ O ^ C                Protected<Kvoc>; C(column family), 0 for the default one
//!   stored key digest        K ^ O ^ S ^ F                low protection bytes
//!   stored value digest      V ^ K ^ S ^ F                low protection bytes
//!   key digest that left     K ^ O ^ S                    } StoredProtection: low protection bytes
//!   value digest that left   V ^ K ^ S                    }
//! ```
//! * DIGEST-1: the seeds of all parts but F are global, so a digest leaves its table by XORing F
//!   out. That reads no byte of key or value, so a bit that flipped since the digest was computed
//!   still disagrees with it.
//! * DIGEST-2: F binds an entry to its place and to the life of its table. It is computed once for
//!   the header check and both digests.
//! * DIGEST-3: V is bound to K and S: two entries cannot trade values.
//!
//! A width of n bytes misses random damage with probability 2^-8n. Pure functions; any thread.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "halves of a word are folded together"
)]

use std::marker::PhantomData;

use crate::key::{Kind, SequenceNumber};

const SEED_KEY: u64 = splitmix(101);
const SEED_VALUE: u64 = splitmix(102);
const SEED_KIND: u64 = splitmix(103);
const SEED_SEQUENCE: u64 = splitmix(104);
const SEED_FAMILY: u64 = splitmix(109);

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

/// Covers key, value, kind and column family: what a batch keeps for each of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kvoc;

/// A 64-bit digest over the fields that `Cover` names. A caller computes it over its own buffers
/// and passes it along with them.
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
    /// table.insert_parts(7, Kind::PUT, b"key", &[b"value"], Some(digest.with_sequence(7)))?;
    /// assert_eq!(digest.with_sequence(7).without_sequence(7), digest);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn with_sequence(self, sequence: SequenceNumber) -> Protected<Kvos> {
        Protected::from_bits(self.bits ^ sequence_part(sequence))
    }

    /// Adds the column family to what is covered.
    #[inline(always)]
    pub(crate) fn with_family(self, family: u32) -> Protected<Kvoc> {
        Protected::from_bits(self.bits ^ family_part(family))
    }
}

impl Protected<Kvoc> {
    /// Takes the column family out again.
    #[inline(always)]
    pub(crate) fn without_family(self, family: u32) -> Protected<Kvo> {
        Protected::from_bits(self.bits ^ family_part(family))
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

/// C.
#[inline(always)]
fn family_part(family: u32) -> u64 {
    if family == 0 {
        0
    } else {
        mix(u64::from(family), SEED_FAMILY)
    }
}

/// The two digests that a table stored with an entry, with the entry's place taken out. A later
/// stage, such as a block builder, compares its own copy of the bytes with them. They were computed
/// when the entry was written; handing them on reads no byte of the entry.
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
    /// Digests of 8 bytes each over an entry in the caller's own buffers, for entries that do not
    /// come from a table. O(length).
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

    /// How many bytes of each digest are compared: the table's protection bytes. With 0 every entry
    /// agrees.
    #[must_use]
    pub const fn bytes(&self) -> u8 {
        self.width.bytes as u8
    }

    /// The digests of this key and value under another sequence number and kind. `from` must be
    /// what the table stored; with anything else the result agrees with no entry. O(1).
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

    /// Compares an entry, as the caller holds it now, with the stored digests, and returns its
    /// untruncated digest if they agree. O(length).
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
    /// 0, 1, 2, 4 or 8.
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

/// What both digests of an entry have of its fixed fields: its header, its place and its sequence
/// number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedFields {
    /// The entry's sequence number.
    pub(crate) sequence: SequenceNumber,
    /// S ^ F.
    bits: u64,
}

impl FixedFields {
    /// Of an entry with this sequence number and this F.
    #[inline(always)]
    fn new(sequence: SequenceNumber, header_part: u64) -> FixedFields {
        FixedFields {
            sequence,
            bits: sequence_part(sequence) ^ header_part,
        }
    }

    /// K of a key, and the key digest, untruncated.
    #[inline(always)]
    pub(crate) fn of_key(&self, key: &[u8], kind: Kind) -> (u64, u64) {
        let key_part = key_part(key);
        (key_part, self.key_digest(key_part, kind))
    }

    /// The key digest, untruncated, from K.
    #[inline(always)]
    pub(crate) fn key_digest(&self, key_part: u64, kind: Kind) -> u64 {
        key_part ^ kind_part(kind) ^ self.bits
    }

    /// Both digests, untruncated, and the K and V that these are made of.
    #[inline(always)]
    pub(crate) fn digests(&self, kind: Kind, key: &[u8], value: &[u8]) -> ([u64; 2], Parts) {
        let parts = Parts {
            key: key_part(key),
            value: value_part_here(value),
        };
        let digests = [
            self.key_digest(parts.key, kind),
            self.value_digest(parts.value, parts.key),
        ];
        (digests, parts)
    }

    /// The value digest, untruncated, from V and K.
    #[inline(always)]
    pub(crate) fn value_digest(&self, value_part: u64, key_part: u64) -> u64 {
        value_part ^ key_part ^ self.bits
    }

    /// The stored digests without F (DIGEST-1).
    pub(crate) fn stripped(
        &self,
        key_digest: u64,
        value_digest: u64,
        width: Width,
    ) -> StoredProtection {
        let header_part = self.bits ^ sequence_part(self.sequence);
        StoredProtection {
            key: key_digest ^ header_part,
            value: value_digest ^ header_part,
            width,
        }
    }
}

// Finds the single flipped bit that explains a failed check, if there is one. Runs only after a
// check has failed.
//
// Not promised: that the bit found is the one that flipped. It is the first one whose flip makes
// the check pass.

/// Longest input that is searched, in bytes. The work is quadratic in its length: at the limit
/// about a million bytes are hashed, which takes well under a millisecond.
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

// The hash: bytes and a seed to 64 bits.
//
// ```text
//   1..16 bytes    two overlapping words                      one folded multiply
//   17..128        16 bytes per step, each with its own pair of constants, steps independent of each other
//   over 128       four accumulators of 16 bytes, then the steps above for the tail
// ```
// The building block is the folded multiply (64 x 64 -> 128 bits, both halves XORed), known from
// wyhash and its relatives: on 8 to 128 bytes it costs 2 to 9 ns, less than a call through run-time
// dispatch. Outputs are this crate's own and are never written to disk.
//
// * HASH-1: the constants are the SplitMix64 sequence (Steele, Lea, Flood 2014) started at 0, so
//   nobody chose them.
// * HASH-2: the length takes part in the result, so a buffer and its zero-extended copy differ.
//
// Pure functions; any thread. Not promised: resistance against somebody who chooses the bytes and
// knows the seed.

/// HASH-1: element `n` of the SplitMix64 sequence from seed 0.
pub(crate) const fn splitmix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const STEPS: usize = 8;
const STEP: usize = 16;
/// Inputs of up to this many bytes are hashed without a loop.
pub(crate) const UNROLLED: usize = STEPS * STEP;
const ACCUMULATORS: usize = 4;
const BLOCK: usize = ACCUMULATORS * STEP;

/// Two constants per step, and two for the end.
const SALTS: [u64; 2 * STEPS + 2] = {
    let mut salts = [0; 2 * STEPS + 2];
    let mut i = 0;
    while i < salts.len() {
        salts[i] = splitmix(i as u64);
        i += 1;
    }
    salts
};

/// The folded multiply.
#[inline(always)]
pub(crate) const fn fold(left: u64, right: u64) -> u64 {
    let product = (left as u128) * (right as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The two halves of a word, folded together.
#[inline(always)]
pub(crate) const fn halved(mixed: u64) -> u32 {
    (mixed ^ (mixed >> 32)) as u32
}

/// Hashes one word, for fields of that size. It takes one multiply only, because every digest
/// contains four of these.
#[inline(always)]
pub(crate) const fn mix(word: u64, seed: u64) -> u64 {
    fold(word ^ seed, seed.rotate_left(32) | 1)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        Some(chunk) => u64::from(u32::from_le_bytes(*chunk)),
        None => 0,
    }
}

/// The two words of a step.
#[inline(always)]
fn halves(step: &[u8; STEP]) -> [u64; 2] {
    let (words, _) = step.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// Hashes `bytes` under `seed`. O(length).
#[inline(always)]
pub(crate) fn hash(bytes: &[u8], seed: u64) -> u64 {
    if bytes.len() <= STEP {
        short(bytes, seed)
    } else {
        long(bytes, seed)
    }
}

/// `hash(bytes, SEED)`, with the seed and the salts joined when it is compiled. O(length).
#[inline(always)]
pub(crate) fn hash_under<const SEED: u64>(bytes: &[u8]) -> u64 {
    if bytes.len() <= STEP {
        short(bytes, SEED)
    } else {
        long_under::<SEED>(bytes)
    }
}

#[inline(always)]
fn short(bytes: &[u8], seed: u64) -> u64 {
    let len = bytes.len();
    let (left, right) = if len >= 8 {
        (word(bytes, 0), word(bytes, len - 8))
    } else if len >= 4 {
        (half(bytes, 0), half(bytes, len - 4))
    } else if len > 0 {
        // First, middle and last byte are all bytes of an input of one to three.
        let packed =
            u64::from(bytes[0]) << 16 | u64::from(bytes[len / 2]) << 8 | u64::from(bytes[len - 1]);
        (packed, 0)
    } else {
        (0, 0)
    };
    finish(fold(left ^ SALTS[0] ^ seed, right ^ SALTS[1]), len, seed)
}

#[inline(always)]
fn finish(sum: u64, len: usize, seed: u64) -> u64 {
    fold(
        sum ^ SALTS[2 * STEPS],
        (len as u64) ^ SALTS[2 * STEPS + 1] ^ seed.rotate_left(32),
    )
}

#[inline(never)]
fn long_under<const SEED: u64>(bytes: &[u8]) -> u64 {
    long(bytes, SEED)
}

#[inline]
fn long(bytes: &[u8], seed: u64) -> u64 {
    if bytes.len() <= UNROLLED {
        tail(bytes, bytes, seed, seed)
    } else {
        longest(bytes, seed)
    }
}

/// Out of line, so that shorter inputs save no registers for it.
#[inline(never)]
fn longest(bytes: &[u8], seed: u64) -> u64 {
    let mut accumulators = [
        seed ^ SALTS[8],
        seed ^ SALTS[9],
        seed ^ SALTS[10],
        seed ^ SALTS[11],
    ];
    // At least one byte stays for the tail, whose last step overlaps what came before.
    let (blocks, _) = bytes[..bytes.len() - 1].as_chunks::<BLOCK>();
    for block in blocks {
        for ((state, step), salt) in accumulators
            .iter_mut()
            .zip(block.as_chunks::<STEP>().0)
            .zip(SALTS)
        {
            let [low, high] = halves(step);
            *state = fold(low ^ salt, high ^ *state);
        }
    }
    let sum = fold(accumulators[0] ^ SALTS[12], accumulators[1] ^ SALTS[13]).wrapping_add(fold(
        accumulators[2] ^ SALTS[14],
        accumulators[3] ^ SALTS[15],
    ));
    tail(bytes, &bytes[blocks.len() * BLOCK..], sum, seed)
}

/// Adds the steps of `rest`, the end of `bytes`, to a sum.
#[inline(always)]
fn tail(bytes: &[u8], rest: &[u8], mut sum: u64, seed: u64) -> u64 {
    let len = bytes.len();
    for (step, salts) in SALTS.as_chunks::<2>().0[..STEPS - 1].iter().enumerate() {
        // The last step, below, takes the last 16 bytes, so this loop stops while more than one
        // step is left.
        let left = rest
            .get(step * STEP..)
            .and_then(<[u8]>::first_chunk::<{ STEP + 1 }>);
        let Some([bytes @ .., _]) = left else { break };
        let [low, high] = halves(bytes);
        sum = sum.wrapping_add(fold(low ^ salts[0] ^ seed, high ^ salts[1]));
    }
    let last = sum.wrapping_add(fold(
        word(bytes, len - 16) ^ SALTS[2 * STEPS - 2] ^ seed,
        word(bytes, len - 8) ^ SALTS[2 * STEPS - 1],
    ));
    finish(last, len, seed)
}

// Tags: small checks over links and headers. They do not depend on the protection level.
//
// ```text
//   link       target offset (32) | tag (32)                       tag   = mix(slot, level, target, secret)
//   back word  target offset (32) | tag (16) | header check (16)   check = fold(F), F = mix(lengths, sequence, revision, offset, secret)
// ```
// * TAG-1: a tag is bound to the slot it stands in, the level it serves and the target it names; a
//   word copied from anywhere else, a zeroed word or a flipped bit fails with probability 1 - 2^-32
//   (2^-16 for the short ones).
// * TAG-2: a link that names no target carries a tag like any other.
// * TAG-3: each table has another secret, so words that an earlier table left in the memory fail.
//
// Pure functions; any thread.

/// What a table mixes into its tags and place digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret {
    /// XORed into the words that are tagged.
    pub(crate) mask: u64,
    /// The result is multiplied with this odd number.
    pub(crate) factor: u64,
}

impl Secret {
    /// A secret from a seed: a pure function.
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Secret {
            mask: splitmix(seed ^ 0x6c69_6e6b),
            factor: splitmix(seed ^ 0x7461_6773) | 1,
        }
    }

    /// The seed of tower heights (TAG-3).
    #[inline(always)]
    pub(crate) const fn height_seed(self) -> u64 {
        self.mask.rotate_left(23) ^ self.factor
    }

    /// Tag of a link that stands at `slot` (arena units), serves `level` and names `target` (arena
    /// units, 0 = none).
    #[inline(always)]
    pub(crate) const fn link_tag(self, slot: u32, level: u32, target: u32) -> u32 {
        let place = ((slot as u64) << 32) | target as u64;
        let factor = self
            .factor
            .wrapping_add((level as u64).wrapping_mul(0xd1b5_4a32_d192_ed02));
        halved(fold(place ^ self.mask, factor))
    }

    /// Tag of a back link of the node at `node` that names `target`.
    #[inline(always)]
    pub(crate) const fn back_tag(self, node: u32, target: u32) -> u16 {
        self.link_tag(node, u32::MAX, target) as u16
    }

    /// What both digests have of the header of the node at `node`, and the check over this header.
    #[inline(always)]
    pub(crate) fn header(
        self,
        node: u32,
        lengths: u64,
        sequence: SequenceNumber,
        revision: u32,
    ) -> (FixedFields, u16) {
        let header_part = self.header_part(node, lengths, sequence, revision);
        (
            FixedFields::new(sequence, header_part),
            halved(header_part) as u16,
        )
    }

    /// The digest part F of the node at `node`: its place and its header.
    #[inline(always)]
    const fn header_part(self, node: u32, lengths: u64, sequence: u64, revision: u32) -> u64 {
        let place = ((node as u64) << 32) | revision as u64;
        fold(
            lengths ^ self.mask,
            sequence ^ place.rotate_left(7) ^ self.factor,
        )
    }
}

// The check values of everything that the tombstone index stores, in one place that shows what each
// check covers.
//
// ```text
//   common prefix  length, bytes                       bound to the table             64 bits
//   log record     sequence, prefixes, what they omit,
//                  node                               bound to its index             63 bits
//   piece          both prefixes, what they omit,
//                  who starts and paints               bound to node and position     32 bits
//   node head      bounds, counts, digest of pieces    bound to what the node covers  64 bits
//   counter        value                               bound to which counter it is   32 bits
// ```
// * CHECKS-1: all are bound to the table's secret, so words of another table or an earlier life
//   fail.
// * CHECKS-2: a correct check is zero only by chance, so zeroed memory fails.
// * CHECKS-3: the check of a record is odd and the pending mark is even, so a record that is being
//   written never passes.
//
// Pure functions; any thread. Not promised: resistance against somebody who knows the secret.

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const PENDING: u64 = splitmix(401);
const RECORD: u64 = splitmix(402);
const PIECE: u64 = splitmix(404);
const HEAD: u64 = splitmix(405);
const COUNTER: u64 = splitmix(406);
const COMMON_PREFIX: u64 = splitmix(408);
/// The bits from here on of a packed word say how many bytes its prefixes leave out.
pub(crate) const SKIP_SHIFT: u32 = 56;

/// What the check of a node's piece is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cover {
    /// The first and the last record that the node covers.
    pub(crate) records: u64,
    /// How many bytes the prefixes of the node leave out.
    pub(crate) skip: u32,
}

/// The check functions of one index.
#[derive(Clone, Copy)]
pub(crate) struct Checks {
    mask: u64,
    factor: u64,
}

impl Checks {
    pub(crate) const fn new(secret: Secret) -> Self {
        Checks {
            mask: secret.mask,
            factor: secret.factor,
        }
    }

    /// The pending mark of log record `index`: its check word until the record is complete.
    #[inline(always)]
    pub(crate) const fn pending(self, index: u32) -> u64 {
        fold((index as u64) ^ self.mask ^ PENDING, self.factor) & !1
    }

    /// Check over the fields of log record `index`: sequence number, prefixes, and `place`: how many
    /// bytes the prefixes leave out, and the node that has the keys.
    #[inline(always)]
    pub(crate) const fn record(
        self,
        index: u32,
        sequence: u64,
        [start, end]: [u64; 2],
        place: u64,
    ) -> u64 {
        let place = (index as u64).wrapping_mul(STRIDE) ^ RECORD ^ place;
        (fold(start ^ self.mask, end ^ self.factor)
            ^ fold(sequence ^ self.factor.rotate_left(32), place ^ self.mask).rotate_left(21))
            | 1
    }

    /// Check over the piece at `position` of a node. It covers where the piece begins and where the
    /// next one begins.
    #[inline(always)]
    pub(crate) fn piece(
        self,
        Cover { records, skip }: Cover,
        position: u64,
        [prefix, next]: [u64; 2],
        refs: u64,
    ) -> u32 {
        let place = (records ^ PIECE ^ (skip as u64) << SKIP_SHIFT)
            .wrapping_add(position.wrapping_mul(STRIDE));
        let mixed = fold(
            prefix ^ self.mask,
            next ^ self.factor ^ place.rotate_left(17),
        ) ^ fold(refs ^ self.factor, self.mask ^ place).rotate_left(32);
        halved(mixed)
    }

    /// Extends the digest of a node's pieces by one piece.
    #[inline(always)]
    pub(crate) const fn digest(self, so_far: u64, prefix: u64, refs: u64) -> u64 {
        fold(so_far ^ prefix ^ self.mask, refs ^ self.factor).rotate_left(5)
            ^ so_far.wrapping_mul(STRIDE)
    }

    /// Check over the head of a node.
    #[inline(always)]
    pub(crate) const fn head(self, cover: u64, words: &[u64; 6]) -> u64 {
        fold(words[0] ^ self.mask, words[1] ^ self.factor)
            ^ fold(words[2] ^ self.factor, words[3] ^ self.mask).rotate_left(21)
            ^ fold(words[4] ^ self.mask ^ HEAD, words[5] ^ self.factor ^ cover).rotate_left(42)
            ^ fold(cover ^ self.mask, self.factor ^ HEAD)
    }

    /// Begins the check of a common prefix of `len` bytes.
    #[inline(always)]
    pub(crate) const fn common_prefix(self, len: u64) -> u64 {
        fold(len ^ self.mask ^ COMMON_PREFIX, self.factor)
    }

    /// Extends the check of a common prefix by one word.
    #[inline(always)]
    pub(crate) const fn common_prefix_word(self, so_far: u64, word: u64) -> u64 {
        fold(so_far ^ word, self.factor ^ COMMON_PREFIX)
    }

    /// Check over a counter: which one it is, and its value in the low half.
    #[inline(always)]
    pub(crate) const fn counter(self, value: u64) -> u32 {
        halved(fold(value ^ self.mask, self.factor ^ COUNTER))
    }
}

#[cfg(test)]
mod tests;
