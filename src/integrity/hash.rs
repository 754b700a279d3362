//! The hash function, which turns bytes and a seed into 64 bits.
//!
//! ```text
//!   1..16 bytes    two overlapping words                      one folded multiply
//!   17..128        16 bytes a step, each with its own pair of constants; steps are independent
//!   over 128       four accumulators of 16 bytes, then the steps above for the tail
//! ```
//! The building block is the folded multiply (64 x 64 -> 128 bits, both halves XORed), known from
//! wyhash and its relatives: on 8 to 128 bytes it costs 2 to 9 ns, less than a call through
//! run-time dispatch. Outputs are this crate's own and are never written to disk. The length is
//! part of the input, so a buffer and its zero-extended copy have different hashes.
//!
//! Pure functions; any thread. The hash does not resist an attacker who knows the seed and chooses
//! the bytes.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "halves of a word are folded together"
)]

/// Element `n` of the SplitMix64 sequence (Steele, Lea, Flood 2014) from seed 0. The constants of
/// the crate's hashes and seeds are elements of it.
pub(crate) const fn splitmix(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const STEPS: usize = 8;
pub(super) const STEP: usize = 16;
/// Inputs of up to this many bytes are hashed without a loop.
pub(crate) const UNROLLED: usize = STEPS * STEP;
pub(super) const ACCUMULATORS: usize = 4;
pub(super) const BLOCK: usize = ACCUMULATORS * STEP;

/// Two constants for each step, and two for the end.
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

/// The two halves of a word, XORed.
#[inline(always)]
pub(crate) const fn halved(mixed: u64) -> u32 {
    (mixed ^ (mixed >> 32)) as u32
}

/// Hashes one word. It takes only one multiply, because every digest contains several of these.
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

/// The same as `hash(bytes, SEED)`; the compiler joins the seed and the salts. O(length).
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
        // First, middle and last byte: all bytes of an input of one to three.
        let packed =
            u64::from(bytes[0]) << 16 | u64::from(bytes[len / 2]) << 8 | u64::from(bytes[len - 1]);
        (packed, 0)
    } else {
        (0, 0)
    };
    finish(fold(left ^ SALTS[0] ^ seed, right ^ SALTS[1]), len, seed)
}

#[inline(always)]
pub(super) fn finish(sum: u64, len: usize, seed: u64) -> u64 {
    fold(
        sum ^ SALTS[2 * STEPS],
        (len as u64) ^ SALTS[2 * STEPS + 1] ^ seed.rotate_left(32),
    )
}

#[inline(never)]
fn long_under<const SEED: u64>(bytes: &[u8]) -> u64 {
    long(bytes, SEED)
}

/// Inlined also where it has several callers, so that `long_under` stays one call.
#[inline(always)]
fn long(bytes: &[u8], seed: u64) -> u64 {
    if bytes.len() <= UNROLLED {
        tail(bytes, bytes, seed, seed)
    } else {
        longest(bytes, seed)
    }
}

/// Hashes over 128 bytes. Out of line, so that shorter inputs save no registers for it.
#[inline(never)]
fn longest(bytes: &[u8], seed: u64) -> u64 {
    let blocks = blocks(bytes);
    let sum = joined(accumulate(blocks, seed));
    tail(bytes, &bytes[blocks.len() * BLOCK..], sum, seed)
}

/// The blocks of an input of over 128 bytes. At least one byte remains for the tail, whose last
/// step overlaps the blocks.
#[inline(always)]
pub(super) fn blocks(bytes: &[u8]) -> &[[u8; BLOCK]] {
    bytes[..bytes.len() - 1].as_chunks().0
}

/// The accumulators after all blocks.
#[inline(always)]
pub(super) fn accumulate(blocks: &[[u8; BLOCK]], seed: u64) -> [u64; ACCUMULATORS] {
    let mut accumulators = std::array::from_fn(|lane| first_state(lane, seed));
    for block in blocks {
        for (lane, state) in accumulators.iter_mut().enumerate() {
            *state = next_state(lane, *state, lane_of(block, lane));
        }
    }
    accumulators
}

#[inline(always)]
pub(super) fn first_state(lane: usize, seed: u64) -> u64 {
    seed ^ SALTS[STEPS + lane]
}

#[inline(always)]
pub(super) fn next_state(lane: usize, state: u64, [low, high]: [u64; 2]) -> u64 {
    fold(low ^ SALTS[lane], high ^ state)
}

/// The two words of a block that its accumulator `lane` takes.
#[inline(always)]
pub(super) fn lane_of(block: &[u8; BLOCK], lane: usize) -> [u64; 2] {
    halves(&block.as_chunks().0[lane])
}

/// The sum of the accumulators.
#[inline(always)]
pub(super) fn joined(accumulators: [u64; ACCUMULATORS]) -> u64 {
    fold(accumulators[0] ^ SALTS[12], accumulators[1] ^ SALTS[13]).wrapping_add(fold(
        accumulators[2] ^ SALTS[14],
        accumulators[3] ^ SALTS[15],
    ))
}

/// Adds the steps of `rest`, the end of `bytes`, to a sum, and ends the hash.
#[inline(always)]
fn tail(bytes: &[u8], rest: &[u8], sum: u64, seed: u64) -> u64 {
    finish(tail_sum(bytes, rest, sum, seed), bytes.len(), seed)
}

/// Adds the steps of `rest`, the end of `bytes`, to a sum.
#[inline(always)]
pub(super) fn tail_sum(bytes: &[u8], rest: &[u8], mut sum: u64, seed: u64) -> u64 {
    let len = bytes.len();
    for (step, salts) in SALTS.as_chunks::<2>().0[..STEPS - 1].iter().enumerate() {
        // The step after the loop takes the last 16 bytes, so the loop ends at 16 bytes or fewer.
        let left = rest
            .get(step * STEP..)
            .and_then(<[u8]>::first_chunk::<{ STEP + 1 }>);
        let Some([bytes @ .., _]) = left else { break };
        let [low, high] = halves(bytes);
        sum = sum.wrapping_add(fold(low ^ salts[0] ^ seed, high ^ salts[1]));
    }
    sum.wrapping_add(fold(
        word(bytes, len - 16) ^ SALTS[2 * STEPS - 2] ^ seed,
        word(bytes, len - 8) ^ SALTS[2 * STEPS - 1],
    ))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Every flipped bit of every length up to 400 (in debug builds of every 7th length) changes
    /// the hash, and so does every length.
    #[test]
    fn a_flipped_bit_changes_the_hash() {
        let mut bytes: Vec<u8> = (0..400u32)
            .map(|i| (splitmix(u64::from(i)) & 0xff) as u8)
            .collect();
        let mut seen = std::collections::HashSet::new();
        for len in 0..400 {
            let clean = hash(&bytes[..len], 7);
            assert!(seen.insert(clean), "length {len}");
            if cfg!(debug_assertions) && len % 7 != 0 {
                continue;
            }
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(clean, hash(&bytes[..len], 7), "length {len} bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// The first numbers that the authors' program prints.
    #[test]
    fn constants_are_splitmix64_from_seed_0() {
        let first = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!([0, 1, 2].map(splitmix), first);
        assert_eq!(SALTS[..3], first);
    }

    /// The same hash, written plainly: bytes added up one by one, divisions in place of shifts, one
    /// loop for all lengths over 16.
    fn plainly(bytes: &[u8], seed: u64) -> u64 {
        let folded = |left: u64, right: u64| {
            let product = u128::from(left) * u128::from(right);
            (product % (1 << 64)) as u64 ^ (product / (1 << 64)) as u64
        };
        let (len, salt) = (bytes.len(), |n: usize| splitmix(n as u64));
        let word = |at: usize, len: usize| {
            (0..len)
                .rev()
                .fold(0, |sum, i| sum * 256 + u64::from(bytes[at + i]))
        };
        let (left, right) = match len {
            0 => (0, 0),
            1..4 => (
                word(0, 1) * 65536 + word(len / 2, 1) * 256 + word(len - 1, 1),
                0,
            ),
            4..8 => (word(0, 4), word(len - 4, 4)),
            _ => (word(0, 8), word(len - 8, 8)),
        };
        let (mut sum, mut at) = (seed, 0);
        if len > 128 {
            let mut states = [8, 9, 10, 11].map(|n| seed ^ salt(n));
            while at + 64 < len {
                for (n, state) in states.iter_mut().enumerate() {
                    *state = folded(word(at, 8) ^ salt(n), word(at + 8, 8) ^ *state);
                    at += 16;
                }
            }
            let [a, b, c, d] = states;
            sum =
                folded(a ^ salt(12), b ^ salt(13)).wrapping_add(folded(c ^ salt(14), d ^ salt(15)));
        }
        let mut step = 0;
        while at + 16 < len {
            let parts = (
                word(at, 8) ^ salt(step) ^ seed,
                word(at + 8, 8) ^ salt(step + 1),
            );
            (sum, at, step) = (
                sum.wrapping_add(folded(parts.0, parts.1)),
                at + 16,
                step + 2,
            );
        }
        let all = if len <= 16 {
            folded(left ^ salt(0) ^ seed, right ^ salt(1))
        } else {
            sum.wrapping_add(folded(
                word(len - 16, 8) ^ salt(14) ^ seed,
                word(len - 8, 8) ^ salt(15),
            ))
        };
        folded(all ^ salt(16), len as u64 ^ salt(17) ^ seed.rotate_left(32))
    }

    #[test]
    fn hashes_are_what_their_formulas_say() {
        let bytes: Vec<u8> = (0..400u32)
            .map(|i| (splitmix(u64::from(i)) & 0xff) as u8)
            .collect();
        for (seed, len) in [0, 7, splitmix(9)]
            .into_iter()
            .flat_map(|seed| (0..400).map(move |len| (seed, len)))
        {
            assert_eq!(
                hash(&bytes[..len], seed),
                plainly(&bytes[..len], seed),
                "length {len}, seed {seed}"
            );
            assert_eq!(
                hash_under::<7>(&bytes[..len]),
                plainly(&bytes[..len], 7),
                "length {len}"
            );
        }
        for seed in (0..200).map(splitmix) {
            let product = u128::from(7 ^ seed) * u128::from(seed.rotate_left(32) / 2 * 2 + 1);
            assert_eq!(
                mix(7, seed),
                (product % (1 << 64)) as u64 ^ (product / (1 << 64)) as u64
            );
        }
    }

    #[test]
    fn zero_buffers_differ_by_length_and_seed() {
        let zeros = [0u8; 300];
        let mut seen = std::collections::HashSet::new();
        for len in 0..300 {
            assert!(seen.insert(hash(&zeros[..len], 1)));
            assert!(seen.insert(hash(&zeros[..len], 2)));
        }
    }
}
