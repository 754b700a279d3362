//! RocksDB's full Bloom filters, which read one cache line per key: two forms, and the trailer says
//! which.
//!
//! ```text
//!   format version 5 and up:  line | line | .. (64 bytes each) | ff 00 probes 00 00
//!     line of a key: high half of (low 32 bits of XXPH3 x lines); bits in it: high 32 bits, multiplied a probe
//!   format versions 2 to 4:   line | line | .. (a power of two) | probes | lines (4)
//!     line of a key: `BloomHash` mod lines; bits in it: the hash, and its rotation added a probe
//! ```
//! * SST-FILTER-1: a filter block is never shorter than one line: RocksDB reads 0 to 5 bytes as
//!   "matches nothing".
//! * SST-FILTER-2: an unknown or damaged filter answers "maybe".
//! * SST-FILTER-3: a file gets the form that the oldest reader of its format version knows. One
//!   that does not know the form takes its marker for a number of probes, and denies keys that are
//!   there.
//!
//! A builder has one owner; queries are pure functions. Not promised: resistance against chosen
//! keys.

use crate::coding::u32_at;

const LINE: usize = 64;
const TRAILER: usize = 5;
const FACTOR: u32 = 0x9e37_79b9;
const LINE_BITS: u64 = 8 * LINE as u64;

/// The form of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Format versions up to 4.
    Old,
    /// Format version 5 and up.
    New,
}

impl Form {
    #[inline]
    fn hash(self, user_key: &[u8]) -> u64 {
        match self {
            Form::Old => bloom_hash(user_key).into(),
            Form::New => xxph3(user_key),
        }
    }
}

/// RocksDB's `BloomHash`. The bytes after the last whole word are signed.
fn bloom_hash(key: &[u8]) -> u32 {
    const SEED: u32 = 0xbc9f_1d34;
    const M: u32 = 0xc6a4_a793;
    let mix = |hash: u32, word: u32, shift: u32| {
        let hash = hash.wrapping_add(word).wrapping_mul(M);
        hash ^ hash >> shift
    };
    #[expect(clippy::cast_possible_truncation, reason = "RocksDB counts in 32 bits")]
    let start = SEED ^ (key.len() as u32).wrapping_mul(M);
    let words = key.chunks_exact(4);
    let rest = words.remainder();
    let hash = words
        .filter_map(|word| u32_at(word, 0))
        .fold(start, |hash, word| mix(hash, word, 16));
    let add = |word: u32, byte: &u8| {
        (word << 8).wrapping_add(i32::from(byte.cast_signed()).cast_unsigned())
    };
    if rest.is_empty() {
        hash
    } else {
        mix(hash, rest.iter().rev().fold(0, add), 24)
    }
}

/// Probes by thousandths of bits per key: RocksDB's table.
#[rustfmt::skip]
const PROBES: [(u32, u32); 12] = [
    (2_080, 1), (3_580, 2), (5_100, 3), (6_640, 4), (8_300, 5), (10_070, 6),
    (11_720, 7), (14_001, 8), (16_050, 9), (18_300, 10), (22_001, 11), (25_501, 12),
];

fn probes(millibits: u32) -> u32 {
    match PROBES.iter().find(|(limit, _)| millibits <= *limit) {
        Some((_, probes)) => *probes,
        None if millibits > 50_000 => 24,
        None => (millibits - 1) / 2000 - 1,
    }
}

/// What a trailer says of the bits before it.
#[derive(Debug, Clone, Copy)]
struct Shape {
    form: Form,
    probes: u32,
    /// At least 1.
    lines: usize,
    /// Bytes of a line: a power of two, [`LINE`] in the new form.
    line_len: usize,
}

impl Shape {
    /// The shape of a block, and its bits. `None`: of no form that is known, or damaged.
    fn of(block: &[u8]) -> Option<(Shape, &[u8])> {
        let (bits, trailer) = block.split_last_chunk::<TRAILER>()?;
        let (form, probes, lines) = match *trailer {
            [0xff, 0, probes @ 1..=30, 0, 0] => (Form::New, probes, bits.len() / LINE),
            [probes @ 1..=127, ..] => (Form::Old, probes, u32_at(trailer, 1)? as usize),
            _ => return None,
        };
        let line_len = bits.len().checked_div(lines)?;
        let whole = line_len.is_power_of_two() && line_len * lines == bits.len();
        whole.then_some((
            Shape {
                form,
                probes: probes.into(),
                lines,
                line_len,
            },
            bits,
        ))
    }

    fn trailer(&self) -> [u8; TRAILER] {
        let (probes, lines) = (self.probes.to_le_bytes()[0], self.lines.to_le_bytes());
        match self.form {
            Form::Old => [probes, lines[0], lines[1], lines[2], lines[3]],
            Form::New => [0xff, 0, probes, 0, 0],
        }
    }

    /// Calls `visit` with the byte and the bit of every probe. Stops at the first `false`.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves of the hash; places are below the filter's length"
    )]
    fn visit_bits(&self, hash: u64, mut visit: impl FnMut(usize, u8) -> bool) -> bool {
        let (line, mut word) = match self.form {
            Form::Old => (hash as usize % self.lines, hash as u32),
            Form::New => (
                ((u64::from(hash as u32) * self.lines as u64) >> 32) as usize,
                (hash >> 32) as u32,
            ),
        };
        let delta = word.rotate_right(17);
        for _ in 0..self.probes {
            let (bit, next) = match self.form {
                Form::Old => (
                    u64::from(word) & (8 * self.line_len as u64 - 1),
                    word.wrapping_add(delta),
                ),
                Form::New => (u64::from(word >> 23), word.wrapping_mul(FACTOR)),
            };
            if !visit(line * self.line_len + (bit >> 3) as usize, 1 << (bit & 7)) {
                return false;
            }
            word = next;
        }
        true
    }
}

/// Collects hashes, since the filter's size follows from their number.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    form: Form,
    millibits: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A filter for a file of this format version (SST-FILTER-3).
    pub(crate) fn new(millibits: u32, format_version: u32) -> Self {
        let form = if format_version < 5 {
            Form::Old
        } else {
            Form::New
        };
        FilterBuilder {
            form,
            millibits,
            hashes: vec![],
        }
    }

    /// Adds a user key. Versions of one key come one after the other and count once.
    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8]) {
        let hash = self.form.hash(user_key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Number of keys in the filter.
    pub(crate) fn len(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// The block, if there is any key (SST-FILTER-1).
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let (lines, probes) = match self.form {
            Form::Old => {
                let bits_per_key = (self.millibits + 500) / 1000;
                // RocksDB counts in 32 bits.
                let bits = (self.len() * u64::from(bits_per_key)).min(0xffff_0000);
                // An odd number, so that all bits of a hash decide about its line.
                (
                    bits.div_ceil(LINE_BITS) | 1,
                    (bits_per_key * 69 / 100).clamp(1, 30),
                )
            }
            Form::New => {
                let lines = self
                    .len()
                    .saturating_mul(self.millibits.into())
                    .div_ceil(1000 * LINE_BITS);
                (
                    lines.clamp(1, u64::from(u32::MAX) / LINE as u64),
                    probes(self.millibits),
                )
            }
        };
        let lines = usize::try_from(lines).unwrap_or(1);
        let shape = Shape {
            form: self.form,
            probes,
            lines,
            line_len: LINE,
        };
        let mut block = vec![0; lines * LINE];
        for hash in self.hashes {
            shape.visit_bits(hash, |byte, bit| {
                block[byte] |= bit;
                true
            });
        }
        block.extend_from_slice(&shape.trailer());
        Some(block)
    }
}

/// Whether the file of this filter block may hold a user key.
pub(crate) fn may_hold(block: &[u8], user_key: &[u8]) -> bool {
    let Some((shape, bits)) = Shape::of(block) else {
        return true;
    };
    shape.visit_bits(shape.form.hash(user_key), |byte, bit| bits[byte] & bit != 0)
}

// XXPH3: the preview of XXH3 that RocksDB's Bloom filters hash keys with. 64 bits, seed 0.
//
// Its hashes differ from those of the final XXH3 at all lengths. A filter made with the wrong one
// passes its checksum and denies keys that are there.
//
// Pure functions; any thread.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;
const Q1: u64 = 0x9e37_79b1;
const Q2: u64 = 0x85eb_ca77;
const Q3: u64 = 0xc2b2_ae3d;

/// The default secret of XXH3.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const STRIPE: usize = 64;
const STRIPES_A_BLOCK: usize = 16;

/// The word at `at`; zero beyond the end, which no caller reaches.
#[inline(always)]
fn r64(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline(always)]
fn r32(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
}

#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves are folded together"
    )]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

#[inline(always)]
fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 37)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[inline(always)]
fn mix(data: &[u8], at: usize, secret: usize) -> u64 {
    fold(
        r64(data, at) ^ r64(&SECRET, secret),
        r64(data, at + 8) ^ r64(&SECRET, secret + 8),
    )
}

/// The hash of `data`. O(length).
#[inline]
pub(crate) fn xxph3(data: &[u8]) -> u64 {
    match data.len() {
        0..=16 => short(data),
        17..=128 => medium(data),
        129..=240 => longer(data),
        _ => long(data),
    }
}

#[inline(always)]
fn short(data: &[u8]) -> u64 {
    let len = data.len();
    let n = len as u64;
    match len {
        0 => fold(r64(&SECRET, 0), P2),
        1..=3 => {
            let [first, middle, last] = [data[0], data[len / 2], data[len - 1]].map(u64::from);
            let word = first | middle << 8 | last << 16 | n << 24;
            avalanche((word ^ r32(&SECRET, 0)).wrapping_mul(P1))
        }
        4..=8 => {
            let word = (r32(data, 0) | r32(data, len - 4) << 32) ^ r64(&SECRET, 0);
            let mixed = n.wrapping_add((word ^ (word >> 51)).wrapping_mul(Q1));
            avalanche((mixed ^ (mixed >> 47)).wrapping_mul(P2))
        }
        _ => {
            let left = r64(data, 0) ^ r64(&SECRET, 0);
            let right = r64(data, len - 8) ^ r64(&SECRET, 8);
            avalanche(
                n.wrapping_add(left)
                    .wrapping_add(right)
                    .wrapping_add(fold(left, right)),
            )
        }
    }
}

fn medium(data: &[u8]) -> u64 {
    let len = data.len();
    let mut sum = (len as u64).wrapping_mul(P1);
    for i in 0..=(len - 1) / 32 {
        sum = sum.wrapping_add(mix(data, 16 * i, 32 * i));
        sum = sum.wrapping_add(mix(data, len - 16 * (i + 1), 32 * i + 16));
    }
    avalanche(sum)
}

fn longer(data: &[u8]) -> u64 {
    let len = data.len();
    let first = (0..8).fold((len as u64).wrapping_mul(P1), |sum, i| {
        sum.wrapping_add(mix(data, 16 * i, 16 * i))
    });
    let rest = (8..len / 16).fold(avalanche(first), |sum, i| {
        sum.wrapping_add(mix(data, 16 * i, 16 * (i - 8) + 3))
    });
    avalanche(rest.wrapping_add(mix(data, len - 16, 119)))
}

fn stripe(accumulators: &mut [u64; 8], data: &[u8], secret: usize) {
    for (i, accumulator) in accumulators.iter_mut().enumerate() {
        let value = r64(data, 8 * i);
        let keyed = value ^ r64(&SECRET, secret + 8 * i);
        let product = (keyed & 0xffff_ffff).wrapping_mul(keyed >> 32);
        *accumulator = accumulator.wrapping_add(value).wrapping_add(product);
    }
}

fn long(data: &[u8]) -> u64 {
    let mut accumulators = [Q3, P1, P2, P3, P4, Q2, P5, Q1];
    let blocks = data.chunks_exact(STRIPE * STRIPES_A_BLOCK);
    let tail = blocks.remainder();
    for block in blocks {
        for (i, part) in block.chunks_exact(STRIPE).enumerate() {
            stripe(&mut accumulators, part, 8 * i);
        }
        for (i, accumulator) in accumulators.iter_mut().enumerate() {
            *accumulator =
                (*accumulator ^ (*accumulator >> 47) ^ r64(&SECRET, 128 + 8 * i)).wrapping_mul(Q1);
        }
    }
    for (i, part) in tail.chunks_exact(STRIPE).enumerate() {
        stripe(&mut accumulators, part, 8 * i);
    }
    if !data.len().is_multiple_of(STRIPE) {
        stripe(&mut accumulators, &data[data.len() - STRIPE..], 121);
    }
    let mut sum = (data.len() as u64).wrapping_mul(P1);
    for i in 0..4 {
        let left = accumulators[2 * i] ^ r64(&SECRET, 11 + 16 * i);
        let right = accumulators[2 * i + 1] ^ r64(&SECRET, 19 + 16 * i);
        sum = sum.wrapping_add(fold(left, right));
    }
    avalanche(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let vectors: [(&[u8], u64); 8] = [
            (b"", 0x5342_c301_0fe1_dd04),
            (b"a", 0x88d8_68bf_6076_81c7),
            (b"abcd", 0x97a5_ba1d_02e8_378c),
            (b"key0000000", 0xf4b0_94c5_b07a_fa7b),
            (b"0123456789abcdef", 0x402c_83c1_955d_056d),
            (b"0123456789abcdef0", 0x2a46_d2a5_399b_9114),
            (&[b'x'; 129], 0x47a8_8963_4586_ea83),
            (&[b'x'; 241], 0x9f0e_6f7c_bbce_9b3d),
        ];
        for (data, hash) in vectors {
            assert_eq!(xxph3(data), hash, "length {}", data.len());
        }
    }

    #[test]
    fn keys_that_are_there_are_never_denied() {
        for (keys, millibits) in [
            (1usize, 10_000),
            (7, 1_000),
            (5_000, 10_000),
            (3_000, 60_000),
            (900, 24_000),
        ] {
            for version in [4, 5] {
                let mut builder = FilterBuilder::new(millibits, version);
                (0..keys).for_each(|key| builder.add(&key.to_le_bytes()));
                let block = builder.finish().unwrap();
                assert!((0..keys).all(|key| may_hold(&block, &key.to_le_bytes())));
                let denied = (keys..keys + 2000)
                    .filter(|key| !may_hold(&block, &key.to_le_bytes()))
                    .count();
                assert!(
                    denied > 0 && (millibits < 10_000 || denied > 1900),
                    "{denied} of 2000"
                );
            }
        }
        assert!(FilterBuilder::new(10_000, 5).finish().is_none());
    }

    #[test]
    fn what_is_not_known_says_maybe() {
        let no_line = [&[0; 64][..], &[6, 0, 0, 0, 0]].concat();
        let odd_lines = [&[0; 96][..], &[6, 1, 0, 0, 0]].concat();
        for block in [
            &[][..],
            &[0; 5],
            &[0; 69],
            &[0xff; 4],
            &[1; 70],
            &no_line,
            &odd_lines,
        ] {
            assert!(may_hold(block, b"key"), "{block:?}");
        }
    }

    /// Values of RocksDB's own tests (`util/hash_test.cc`).
    #[test]
    fn bloom_hashes() {
        for (key, hash) in [
            (&b""[..], 3_164_544_308u32),
            (b"\x08", 422_599_524),
            (b"\x9a", 3_195_034_349),
            (b"\x52\xd5", 3_854_228_105),
            (b"\x56\xdc\xd6", 2_157_698_265),
            (b"\x1e\x84\xaf\x2d", 3_315_003_572),
            (b"\xb7\x46\xbb\x77\xce", 2_048_907_743),
        ] {
            assert_eq!(bloom_hash(key), hash, "{key:?}");
        }
    }

    /// Processors with lines of 128 bytes wrote files, too.
    #[test]
    fn lines_of_other_processors() {
        let (lines, line_len, probes) = (3usize, 128usize, 6);
        let mut block = vec![0; lines * line_len];
        let shape = Shape {
            form: Form::Old,
            probes,
            lines,
            line_len,
        };
        let set = |key: u32| {
            shape.visit_bits(Form::Old.hash(&key.to_le_bytes()), |byte, bit| {
                block[byte] |= bit;
                true
            })
        };
        (0..200).map(set).for_each(drop);
        block.extend_from_slice(&shape.trailer());
        assert!((0..200u32).all(|key| may_hold(&block, &key.to_le_bytes())));
        assert!(
            (200..400u32)
                .filter(|key| !may_hold(&block, &key.to_le_bytes()))
                .count()
                > 190
        );
    }
}
