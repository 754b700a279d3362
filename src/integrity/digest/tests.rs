//! Tests of the digests.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use super::*;
use crate::integrity::tag::Secret;

/// Each field, and each bit of a header and of its place, changes the digests.
#[test]
fn every_field_is_covered() {
    let secret = Secret::from_seed(5);
    let header = |[node, lengths, sequence, revision]: [u64; 4]| {
        let halves = [node, revision].map(|half| u32::try_from(half).unwrap());
        secret.header_part(halves[0], lengths, sequence, halves[1])
    };
    let fields = [9, 0x0003_0000_0005_0001, 77, 0];
    let base = FixedFields::new(77, header(fields));
    let digest = |fixed: FixedFields, key: &[u8]| fixed.key_digest(key_part(key));
    let value = |fixed: FixedFields, value: &[u8], key: &[u8]| {
        fixed.value_digest(value_part(value), key_part(key))
    };
    let (clean, clean_value) = (digest(base, b"key"), value(base, b"v", b"key"));
    assert_ne!(clean, digest(base, b"kez"));
    assert_ne!(clean_value, value(base, b"w", b"key"));
    assert_ne!(clean_value, value(base, b"v", b"kez"));
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

/// Bits of two fields of a header that flip together, one by one or in groups of the same shape, do
/// not leave F as it was. Red for `flips_cancel_out`.
#[test]
fn no_flips_of_two_fields_cancel_out() {
    let secret = Secret::from_seed(5);
    let header = |[lengths, sequence, revision]: [u64; 3]| {
        secret.header_part(9, lengths, sequence, u32::try_from(revision).unwrap())
    };
    let fields = [0x0003_0000_0005_0001, 77, 0];
    let flips = |group: u64, bits: u32| {
        let shifted = (0..bits).map(move |bit| u128::from(group) << bit);
        shifted.filter_map(move |flips| {
            u64::try_from(flips)
                .ok()
                .filter(|flips| bits == 64 || flips >> bits == 0)
        })
    };
    for (one, other, bits) in [(0, 1, 64), (0, 2, 32), (1, 2, 32)] {
        for group in [1, 3, 0x55] {
            for (left, right) in
                flips(group, 64).flat_map(|left| flips(group, bits).map(move |right| (left, right)))
            {
                let mut flipped = fields;
                flipped[one] ^= left;
                flipped[other] ^= right;
                assert_ne!(
                    header(flipped),
                    header(fields),
                    "{one}: {left:x}, {other}: {right:x}"
                );
            }
        }
    }
}

/// Every digest is the XOR of its parts, and without F it is the digest of the caller's bytes.
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
                fixed.key_digest(k),
                fixed.value_digest(value_part(&value), k),
            );
            assert_eq!(stored, (k ^ f, v ^ k ^ f));
            assert_eq!(fixed.sequence, sequence);
            let left = StoredProtection::of(&key, &value, sequence, kind);
            assert_eq!(
                (left.key, left.value, left.bytes()),
                (k ^ o ^ s, v ^ k ^ s, 8)
            );
            let digests = [stored.0, stored.1];
            assert_eq!(fixed.outside(kind, digests, Width::default()), left);
            let other = StoredProtection::of(&key, &value, 5, Kind::SINGLE_DELETE);
            assert_eq!(
                left.rewritten((sequence, kind), (5, Kind::SINGLE_DELETE)),
                other
            );
        }
    }
}

/// Each digest is compared in the bytes that are stored, and in no other bit.
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
