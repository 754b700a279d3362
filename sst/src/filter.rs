//! RocksDB's full Bloom filters, which read one cache line per key. The trailer says which of two
//! forms a filter has.
//!
//! ```text
//!   format version 5 and up:  line | line | .. (64 bytes each) | ff 00 probes 00 00
//!     line of a key: high half of (low 32 bits of XXPH3 x lines); bits in it: high 32 bits, multiplied a probe
//!   format versions 2 to 4:   line | line | .. (a power of two) | probes | lines (4)
//!     line of a key: `BloomHash` mod lines; bits in it: the hash, and its rotation added a probe
//! ```
//! A builder has one owner; queries are pure functions. Not promised: resistance to chosen keys.

use crate::coding::u32_at;
use crate::xxph3::xxph3;

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

/// Number of probes by thousandths of bits per key: RocksDB's table.
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

/// The form, probes and lines of a filter, as its trailer states them.
#[derive(Debug, Clone, Copy)]
struct Shape {
    form: Form,
    probes: u32,
    /// At least 1.
    lines: usize,
    /// Bytes of a line: a power of two. In the new form it is [`LINE`].
    line_len: usize,
}

impl Shape {
    /// The shape of a block, and its bits. `None`: the form is unknown, or the block is damaged.
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

/// Collects the hashes of keys. The size of the filter follows from their number.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    form: Form,
    millibits: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A filter in the form that the oldest reader of this format version knows. A reader that does
    /// not know a form takes its marker for a number of probes, and denies keys that are in the
    /// file.
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

    /// Adds a user key. Versions of one key are adjacent, and count once.
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

    /// The block, if the filter has a key. It has at least one line: RocksDB reads 0 to 5 bytes as
    /// "matches nothing".
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let (lines, probes) = match self.form {
            Form::Old => {
                let bits_per_key = (self.millibits + 500) / 1000;
                // RocksDB counts in 32 bits.
                let bits = (self.len() * u64::from(bits_per_key)).min(0xffff_0000);
                // The number is odd, so that all bits of a hash choose its line.
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

/// Whether the file of this filter block may hold a user key. An unknown or damaged filter answers
/// `true`.
pub(crate) fn may_hold(block: &[u8], user_key: &[u8]) -> bool {
    let Some((shape, bits)) = Shape::of(block) else {
        return true;
    };
    shape.visit_bits(shape.form.hash(user_key), |byte, bit| bits[byte] & bit != 0)
}

#[cfg(test)]
mod tests {
    use crate::filter::FilterBuilder;

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

    /// Processors with cache lines of 128 bytes wrote files too.
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
