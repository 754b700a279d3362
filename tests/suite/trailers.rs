//! Block trailers: literal bytes, every flipped bit, every length.

use std::num::NonZeroU32;

use paranoid_memtable::integrity::{BlockChecks, Place};
use paranoid_memtable::{ChecksumKind, Corruption, Error};

fn base(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a base is not zero")
}

fn corruption<T: std::fmt::Debug>(result: Result<T, Error>) -> Corruption {
    match result {
        Err(Error::Corruption(report)) => {
            assert_eq!((report.place, report.sequence), (Place::Encoding, None));
            report
        }
        other => panic!("want corruption, have {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn modifiers() {
    let cases = [
        (123_456_789, 0, 0x075b_cd15),
        (123_456_789, 5, 0x075b_cd10),
        (123_456_789, 1 << 32, 0x075b_cd14),
        (123_456_789, (1 << 32) + 7, 0x075b_cd1d),
        (1, 1, 0),
        (u32::MAX, u64::MAX, 1),
    ];
    for (number, offset, want) in cases {
        let checks = BlockChecks::with_context(ChecksumKind::Crc32c, base(number));
        assert_eq!(checks.modifier(offset), want, "base {number} offset {offset}");
    }
    assert_eq!(BlockChecks::new(ChecksumKind::Crc32c).modifier(123), 0);
}

#[test]
fn schema_of_trailers() {
    let plain = BlockChecks::new(ChecksumKind::Xxh3);
    assert_eq!(hex(&plain.trailer(b"", 1, 4096)), "011b174353");
    let masked = BlockChecks::new(ChecksumKind::Crc32c);
    assert_eq!(hex(&masked.trailer(b"", 7, 0)), "0746f8f711");
    // 0x5343171b + 0x075bcd10 = 0x5a9ee42b
    let bound = BlockChecks::with_context(ChecksumKind::Xxh3, base(123_456_789));
    assert_eq!(hex(&bound.trailer(b"", 1, 5)), "012be49e5a");
    // Wrapping: 0x5343171b + (0xffffffff ^ 0) = 0x5343171a
    let wrapping = BlockChecks::with_context(ChecksumKind::Xxh3, base(u32::MAX));
    assert_eq!(hex(&wrapping.trailer(b"", 1, 0)), "011a174353");
    let nothing = BlockChecks::with_context(ChecksumKind::None, base(123_456_789));
    assert_eq!(hex(&nothing.trailer(b"block", 0, 5)), "0010cd5b07");
}

#[test]
fn every_flipped_bit_of_a_stored_block_shows() {
    for kind in ChecksumKind::ALL.iter().copied() {
        for checks in [BlockChecks::new(kind), BlockChecks::with_context(kind, base(77))] {
            for len in [0, 1, 40, 379, 380, 600] {
                let block: Vec<u8> = (0..len as u32).map(|i| (i * 7 + i / 13) as u8).collect();
                let mut stored = block.clone();
                stored.extend(checks.trailer(&block, 7, 4096));
                assert_eq!(checks.verify(&stored, 4096).unwrap(), (block.as_slice(), 7));
                for bit in (0..stored.len() * 8).step_by(if len > 40 { 37 } else { 1 }) {
                    stored[bit / 8] ^= 1 << (bit % 8);
                    if kind == ChecksumKind::None && bit / 8 <= len {
                        assert!(checks.verify(&stored, 4096).is_ok());
                    } else {
                        let report = corruption(checks.verify(&stored, 4096));
                        let bit = (stored.len() <= 384).then_some(bit as u64);
                        assert_eq!((report.offset, report.flipped_bit), (4096, bit), "{kind} {len} bytes");
                        assert_ne!(report.expected, report.found);
                    }
                    stored[bit / 8] ^= 1 << (bit % 8);
                }
                let elsewhere = checks.verify(&stored, 4097).is_ok();
                assert_eq!(elsewhere, checks.context_base().is_none(), "{kind} at another place");
            }
        }
    }
}

#[test]
fn a_stored_block_without_room_for_a_trailer_is_corruption() {
    for len in 0..5u64 {
        let checks = BlockChecks::new(ChecksumKind::None);
        let report = corruption(checks.verify(&[0; 5][..len as usize], 9000));
        assert_eq!((report.offset, report.expected, report.found), (9000, 5, len));
    }
}
