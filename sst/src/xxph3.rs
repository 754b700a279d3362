//! XXPH3: the preview of XXH3 that RocksDB's Bloom filters hash keys with. 64 bits, seed 0.
//!
//! Its hashes differ from those of the final XXH3 at all lengths. A filter made with the wrong one
//! passes its checksum, and then denies keys that are in the file.
//!
//! Pure functions; any thread.

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

/// The word at `at`; zero after the end, which no caller reaches.
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
pub(crate) fn fold(left: u64, right: u64) -> u64 {
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
pub(crate) fn mix(data: &[u8], at: usize, secret: usize) -> u64 {
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
