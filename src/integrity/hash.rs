//! The hash: bytes and a seed to 64 bits.
//!
//! ```text
//!   1..16 bytes    two overlapping words                      one folded multiply
//!   17..128        16 bytes per step, each with its own pair of constants, steps independent of each other
//!   over 128       four accumulators of 16 bytes, then the steps above for the tail
//! ```
//! The building block is the folded multiply (64 x 64 -> 128 bits, both halves XORed), known from
//! wyhash and its relatives: on 8 to 128 bytes it costs 2 to 9 ns, less than a call through run-time
//! dispatch. Outputs are this crate's own and are never written to disk.
//!
//! * HASH-1: the constants are the SplitMix64 sequence (Steele, Lea, Flood 2014) started at 0, so
//!   nobody chose them.
//! * HASH-2: the length takes part in the result, so a buffer and its zero-extended copy differ.
//!
//! Pure functions; any thread. Not promised: resistance against somebody who chooses the bytes and
//! knows the seed.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "halves of a word are folded together"
)]

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
pub(crate) const SALTS: [u64; 2 * STEPS + 2] = {
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
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

#[inline(always)]
pub(crate) fn half(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<4>) {
        Some(chunk) => u64::from(u32::from_le_bytes(*chunk)),
        None => 0,
    }
}

/// The two words of a step.
#[inline(always)]
pub(crate) fn halves(step: &[u8; STEP]) -> [u64; 2] {
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
