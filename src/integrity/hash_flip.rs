//! The search for the bit whose flip gives an input the hash that it had.
//!
//! ```text
//!   blocks of four steps    | a0 b0 c0 d0 | a1 b1 c1 d1 | ... | tail
//!   a bit of b1 changes       b's state after b1, and so one of four accumulators
//! ```
//! The other accumulators and the tail are computed once. The eight bits of a byte are tried
//! together, because their states do not depend on each other. Inputs without blocks, and the tail,
//! are hashed as a whole for each bit.
//!
//! Pure functions; any thread.

#![forbid(unsafe_code)]

use crate::integrity::hash::{
    ACCUMULATORS, BLOCK, STEP, UNROLLED, accumulate, blocks, finish, first_state, hash_under,
    joined, lane_of, next_state, tail_sum,
};

/// The first bit (byte * 8 + bit) of `bytes` whose flip gives them the hash `wanted` under `SEED`.
/// The bytes are unchanged after the call. O(length^2): the caller limits the length.
#[cold]
pub(crate) fn flip_to<const SEED: u64>(bytes: &mut [u8], wanted: u64) -> Option<usize> {
    let mut steps = 0;
    if bytes.len() > UNROLLED {
        // The last step of the tail may overlap the last step of the blocks.
        steps = ACCUMULATORS * blocks(bytes).len() - 1;
        let found = flip_in_blocks(bytes, steps, wanted, SEED);
        if found.is_some() {
            return found;
        }
    }
    (8 * steps * STEP..8 * bytes.len()).find(|bit| {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let is_it = hash_under::<SEED>(bytes) == wanted;
        bytes[bit / 8] ^= 1 << (bit % 8);
        is_it
    })
}

/// [`flip_to`] in the first `steps` steps of the blocks.
fn flip_in_blocks(bytes: &[u8], steps: usize, wanted: u64, seed: u64) -> Option<usize> {
    let blocks = blocks(bytes);
    let ends = accumulate(blocks, seed);
    let rest = tail_sum(bytes, &bytes[blocks.len() * BLOCK..], 0, seed);
    for lane in 0..ACCUMULATORS {
        let is_it = |state: &u64| {
            let mut ends = ends;
            ends[lane] = *state;
            finish(joined(ends).wrapping_add(rest), bytes.len(), seed) == wanted
        };
        let mut before = first_state(lane, seed);
        for (place, block) in blocks.iter().enumerate() {
            let step = ACCUMULATORS * place + lane;
            let words = lane_of(block, lane);
            for byte in 0..if step < steps { STEP } else { 0 } {
                let mut states: [u64; 8] = std::array::from_fn(|bit| {
                    let mut flipped = words;
                    flipped[byte / 8] ^= 1 << (8 * (byte % 8) + bit);
                    next_state(lane, before, flipped)
                });
                for later in &blocks[place + 1..] {
                    let words = lane_of(later, lane);
                    states = states.map(|state| next_state(lane, state, words));
                }
                if let Some(bit) = states.iter().position(is_it) {
                    return Some(8 * (step * STEP + byte) + bit);
                }
            }
            before = next_state(lane, before, words);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::integrity::hash::splitmix;

    /// Every bit, at lengths around every border of the hash; in debug builds some of them.
    #[test]
    #[cfg_attr(miri, ignore = "hashes millions of inputs")]
    fn a_flipped_bit_is_found_and_two_are_not() {
        let step = if cfg!(debug_assertions) { 41 } else { 1 };
        for len in [
            1, 3, 4, 8, 9, 16, 17, 32, 33, 127, 128, 129, 144, 145, 191, 192, 193, 256, 257, 400,
        ] {
            let mut bytes: Vec<u8> = (0..len).map(|at| splitmix(at).to_le_bytes()[0]).collect();
            let wanted = hash_under::<7>(&bytes);
            assert_eq!(flip_to::<7>(&mut bytes, !wanted), None, "length {len}");
            for bit in (0..8 * bytes.len()).step_by(step) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(flip_to::<7>(&mut bytes, wanted), Some(bit), "length {len}");
                let second = (bit + 77) % (8 * bytes.len());
                if second != bit {
                    bytes[second / 8] ^= 1 << (second % 8);
                    assert_eq!(flip_to::<7>(&mut bytes, wanted), None, "length {len}");
                    bytes[second / 8] ^= 1 << (second % 8);
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(hash_under::<7>(&bytes), wanted, "unchanged");
            }
        }
    }
}
