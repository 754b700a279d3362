//! Tests of the hash: against its definition, and one flipped bit after the other.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "tests cut numbers down to their fields")]

use super::*;

/// Every single flipped bit of every length up to 400 (in debug builds of each 7th) changes the hash, and so does
/// every length.
#[test]
fn a_flipped_bit_changes_the_hash() {
    let mut bytes: Vec<u8> = (0..400u32).map(|i| (splitmix(u64::from(i)) & 0xff) as u8).collect();
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

/// HASH-1: the first numbers that the authors' program prints.
#[test]
fn constants_are_splitmix64_from_seed_0() {
    let first = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
    assert_eq!([0, 1, 2].map(splitmix), first);
    assert_eq!(SALTS[..3], first);
}

/// The hash once more: bytes added up one by one, divisions in place of shifts, one loop for all lengths over 16.
fn plainly(bytes: &[u8], seed: u64) -> u64 {
    let folded = |left: u64, right: u64| {
        let product = u128::from(left) * u128::from(right);
        (product % (1 << 64)) as u64 ^ (product / (1 << 64)) as u64
    };
    let (len, salt) = (bytes.len(), |n: usize| splitmix(n as u64));
    let word = |at: usize, len: usize| (0..len).rev().fold(0, |sum, i| sum * 256 + u64::from(bytes[at + i]));
    let (left, right) = match len {
        0 => (0, 0),
        1..4 => (word(0, 1) * 65536 + word(len / 2, 1) * 256 + word(len - 1, 1), 0),
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
        sum = folded(a ^ salt(12), b ^ salt(13)).wrapping_add(folded(c ^ salt(14), d ^ salt(15)));
    }
    let mut step = 0;
    while at + 16 < len {
        let parts = (word(at, 8) ^ salt(step) ^ seed, word(at + 8, 8) ^ salt(step + 1));
        (sum, at, step) = (sum.wrapping_add(folded(parts.0, parts.1)), at + 16, step + 2);
    }
    let all = if len <= 16 {
        folded(left ^ salt(0) ^ seed, right ^ salt(1))
    } else {
        sum.wrapping_add(folded(word(len - 16, 8) ^ salt(14) ^ seed, word(len - 8, 8) ^ salt(15)))
    };
    folded(all ^ salt(16), len as u64 ^ salt(17) ^ seed.rotate_left(32))
}

#[test]
fn hashes_are_what_their_formulas_say() {
    let bytes: Vec<u8> = (0..400u32).map(|i| (splitmix(u64::from(i)) & 0xff) as u8).collect();
    for (seed, len) in [0, 7, splitmix(9)].into_iter().flat_map(|seed| (0..400).map(move |len| (seed, len))) {
        assert_eq!(hash(&bytes[..len], seed), plainly(&bytes[..len], seed), "length {len}, seed {seed}");
        assert_eq!(hash_under::<7>(&bytes[..len]), plainly(&bytes[..len], 7), "length {len}");
    }
    for seed in (0..200).map(splitmix) {
        let product = u128::from(7 ^ seed) * u128::from(seed.rotate_left(32) / 2 * 2 + 1);
        assert_eq!(mix(7, seed), (product % (1 << 64)) as u64 ^ (product / (1 << 64)) as u64);
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
