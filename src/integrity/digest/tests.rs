#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "tests cut numbers down to their fields"
)]

use super::*;
use crate::integrity::flipped_bit::single_bit;
use crate::integrity::hash::{SALTS, fold};
use crate::integrity::index_checks::{
    COMMON_PREFIX, COUNTER, Checks, Cover, HEAD, PENDING, PIECE, RECORD, STRIDE,
};
use crate::integrity::tag::Secret;

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
    let value = |fixed: FixedFields, value: &[u8], key: &[u8]| {
        fixed.value_digest(value_part(value), key_part(key))
    };
    let (clean, clean_value) = (digest(base, b"key"), value(base, b"v", b"key"));
    assert_ne!(clean, digest(base, b"kez"));
    assert_ne!(clean, base.key_digest(key_part(b"key"), Kind::DELETE));
    assert_ne!(clean, digest(FixedFields::new(78, header(fields)), b"key"));
    assert_ne!(clean_value, value(base, b"w", b"key"));
    assert_ne!(clean_value, value(base, b"v", b"kez"));
    assert_ne!(
        clean_value,
        value(FixedFields::new(78, header(fields)), b"v", b"key")
    );
    for (field, bits) in [32, 64, 64, 32].into_iter().enumerate() {
        for bit in 0..bits {
            let mut flipped = fields;
            flipped[field] ^= 1 << bit;
            let fixed = FixedFields::new(77, header(flipped));
            assert_ne!(clean, digest(fixed, b"key"), "field {field}, bit {bit}");
            assert_ne!(
                clean_value,
                value(fixed, b"v", b"key"),
                "field {field}, bit {bit}"
            );
        }
    }
}

/// DIGEST-1: every digest is the XOR of its parts, and one that left its table is that of the
/// caller's bytes.
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
            assert_eq!(
                caller.with_sequence(sequence).without_sequence(sequence),
                caller
            );
            let f = splitmix(n + 128);
            let fixed = FixedFields::new(sequence, f);
            let stored = (
                fixed.key_digest(k, kind),
                fixed.value_digest(value_part(&value), k),
            );
            assert_eq!(stored, (k ^ o ^ s ^ f, v ^ k ^ s ^ f));
            assert_eq!(fixed.sequence, sequence);
            let left = StoredProtection::of(&key, &value, sequence, kind);
            assert_eq!(
                (left.key, left.value, left.bytes()),
                (k ^ o ^ s, v ^ k ^ s, 8)
            );
            assert_eq!(fixed.stripped(stored.0, stored.1, Width::default()), left);
            let other = StoredProtection::of(&key, &value, 5, Kind::SINGLE_DELETE);
            assert_eq!(
                left.rewritten((sequence, kind), (5, Kind::SINGLE_DELETE)),
                other
            );
        }
    }
}

/// Of each digest as many bytes are compared as are stored, and no bit more.
#[test]
fn digests_are_compared_up_to_their_width() {
    for (width, bit) in [0, 1, 2, 4, 8]
        .into_iter()
        .flat_map(|width| (0..64).map(move |bit| (width, bit)))
    {
        let whole = StoredProtection::of(b"key", b"value", 7, Kind::PUT);
        let stored = StoredProtection {
            width: Width::new(width).unwrap(),
            ..whole
        };
        let caller = Protected::of(b"key", b"value", Kind::PUT).with_sequence(7);
        assert_eq!(
            (stored.check(b"key", b"value", 7, Kind::PUT), stored.bytes()),
            (Some(caller), width)
        );
        let flipped = [(1 << bit, 0), (0, 1 << bit), (1 << bit, 1 << bit)];
        for (key, value) in flipped {
            let flipped = StoredProtection {
                key: stored.key ^ key,
                value: stored.value ^ value,
                ..stored
            };
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
    assert!(
        [3u8, 5, 6, 7, 9, 16]
            .iter()
            .all(|&b| Width::new(b).is_none())
    );
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

#[test]
fn tags_notice_each_part() {
    let secret = Secret::from_seed(1);
    let tag = secret.link_tag(1000, 2, 5000);
    for bit in 0..32 {
        assert_ne!(tag, secret.link_tag(1000 ^ (1 << bit), 2, 5000));
        assert_ne!(tag, secret.link_tag(1000, 2, 5000 ^ (1 << bit)));
    }
    for level in (0..24).filter(|&level| level != 2) {
        assert_ne!(tag, secret.link_tag(1000, level, 5000));
    }
    assert_ne!(tag, Secret::from_seed(2).link_tag(1000, 2, 5000));
    assert_ne!(secret.link_tag(1000, 0, 0), 0);
}

/// Seeds that differ in one bit give secrets with nothing in common: no part repeats, and half of
/// all bits are set.
#[test]
fn secrets_differ_with_every_bit_of_their_seed() {
    let seeds = std::iter::once(0)
        .chain((0..64).map(|bit| 1 << bit))
        .map(Secret::from_seed);
    let secrets: Vec<Secret> = seeds.collect();
    let parts: [fn(&Secret) -> u64; 3] = [|it| it.mask, |it| it.factor, |it| it.height_seed()];
    for part in parts {
        let mut parts: Vec<u64> = secrets.iter().map(part).collect();
        let ones: u32 = parts.iter().map(|part| part.count_ones()).sum();
        assert!(
            (1900..2260).contains(&ones),
            "{ones} of {} bits",
            64 * parts.len()
        );
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), secrets.len());
    }
    assert!(
        secrets
            .iter()
            .all(|secret| secret.factor % 2 == 1 && secret.mask != secret.factor)
    );
}

/// Tags and header checks against their formulas, spelled with sums and products.
#[test]
fn tags_are_what_their_formulas_say() {
    for seed in 0..200 {
        let (secret, [a, b, c, d]) = (
            Secret::from_seed(seed),
            [1, 2, 3, 4].map(|n| splitmix(seed * 8 + n)),
        );
        let (slot, target, level) = (a % (1 << 32), b % (1 << 32), (c % 30) as u32);
        let words = (
            slot * (1 << 32) + target,
            u64::from(level).wrapping_mul(0xd1b5_4a32_d192_ed02),
        );
        let mixed = fold(words.0 ^ secret.mask, secret.factor.wrapping_add(words.1));
        let halves = (mixed % (1 << 32), mixed / (1 << 32));
        assert_eq!(
            u64::from(secret.link_tag(slot as u32, level, target as u32)),
            halves.0 ^ halves.1
        );
        let (node, next) = (slot as u32, target as u32);
        assert_eq!(
            secret.back_tag(node, next),
            secret.link_tag(node, u32::MAX, next) as u16
        );
        let place = (slot * (1 << 32) + target).rotate_left(7);
        let part = secret.header_part(node, c, d, next);
        assert_eq!(part, fold(secret.mask ^ c, secret.factor ^ place ^ d));
        let pieces = (part % (1 << 16), part / (1 << 32) % (1 << 16));
        assert_eq!(
            u64::from(secret.header(node, c, d, next).1),
            pieces.0 ^ pieces.1
        );
    }
}

/// Every single flipped bit of every length up to 400 (in debug builds of each 7th) changes the
/// hash, and so does every length.
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

/// HASH-1: the first numbers that the authors' program prints.
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

/// The hash once more: bytes added up one by one, divisions in place of shifts, one loop for all
/// lengths over 16.
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
        sum = folded(a ^ salt(12), b ^ salt(13)).wrapping_add(folded(c ^ salt(14), d ^ salt(15)));
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

/// CHECKS-3, and every function once more: sums and divisions in place of bits and shifts.
#[test]
fn checks_are_what_their_formulas_say() {
    for n in (0..200).step_by(10) {
        let w = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| splitmix(n + at));
        let checks = Checks::new(Secret::from_seed(n));
        let (mask, factor, index, place) = (checks.mask, checks.factor, w[6] as u32, w[7] as u32);
        let half = |mixed: u64| (mixed as u32) ^ (mixed / (1 << 32)) as u32;
        let pending = fold(u64::from(index) ^ mask ^ PENDING, factor);
        assert_eq!(checks.pending(index), pending - pending % 2);
        let where_from = u64::from(index).wrapping_mul(STRIDE) ^ RECORD ^ (w[3]);
        let record = fold(w[1] ^ mask, w[2] ^ factor)
            ^ fold(w[0] ^ factor.rotate_left(32), where_from ^ mask).rotate_left(21);
        assert_eq!(
            checks.record(index, w[0], [w[1], w[2]], w[3]),
            record / 2 * 2 + 1
        );
        let span = u64::from(index) * (1 << 32) + u64::from(place);
        let cover = Cover {
            records: w[4],
            skip: index % 256,
        };
        let turned =
            (w[4] ^ PIECE ^ (u64::from(index % 256) << 56)).wrapping_add(w[3].wrapping_mul(STRIDE));
        let piece = fold(w[0] ^ mask, w[1] ^ factor ^ turned.rotate_left(17))
            ^ fold(w[2] ^ factor, mask ^ turned).rotate_left(32);
        assert_eq!(checks.piece(cover, w[3], [w[0], w[1]], w[2]), half(piece));
        let digest = fold(w[0] ^ w[1] ^ mask, w[2] ^ factor).rotate_left(5);
        assert_eq!(
            checks.digest(w[0], w[1], w[2]),
            digest ^ w[0].wrapping_mul(STRIDE)
        );
        let head = fold(w[0] ^ mask, w[1] ^ factor)
            ^ fold(w[2] ^ factor, w[3] ^ mask).rotate_left(21)
            ^ fold(w[4] ^ mask ^ HEAD, w[5] ^ factor ^ w[6]).rotate_left(42);
        assert_eq!(
            checks.head(w[6], &[w[0], w[1], w[2], w[3], w[4], w[5]]),
            head ^ fold(w[6] ^ mask, factor ^ HEAD)
        );
        assert_eq!(
            checks.common_prefix(w[0]),
            fold(w[0] ^ mask ^ COMMON_PREFIX, factor)
        );
        assert_eq!(
            checks.common_prefix_word(w[0], w[1]),
            fold(w[0] ^ w[1], factor ^ COMMON_PREFIX)
        );
        assert_eq!(
            checks.counter(span),
            half(fold(span ^ mask, factor ^ COUNTER))
        );
    }
}
