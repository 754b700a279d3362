//! Options of integrity: getters return the values that were set, and impossible values are
//! refused. Block trailers, checksums and kinds of entries by themselves.

#[cfg(feature = "fault-injection")]
use paranoid_memtable::MemTable;
#[cfg(feature = "fault-injection")]
use paranoid_memtable::fault::{FaultInjector, Region};
#[cfg(feature = "fault-injection")]
use paranoid_memtable::integrity::Repair;
use paranoid_memtable::{Error, MemTableOptions, ParanoidOptions};

#[test]
fn options_say_what_was_asked_for() {
    for bytes in 0..=u8::MAX {
        for (seek, order) in [(false, false), (false, true), (true, false), (true, true)] {
            let builder = ParanoidOptions::builder().protection_bytes(bytes);
            let built = builder.checksum_on_seek(seek).order_checks(order).build();
            let has_width = matches!(bytes, 0 | 1 | 2 | 4 | 8);
            match built {
                Ok(options) => {
                    assert!(has_width && (bytes > 0 || !seek), "{options:?}");
                    let said = (
                        options.protection_bytes(),
                        options.checksum_on_seek(),
                        options.order_checks(),
                    );
                    assert_eq!(said, (bytes, seek, order));
                }
                Err(Error::InvalidArgument(text)) => {
                    let reason = if has_width {
                        "checksum_on_seek needs"
                    } else {
                        "must be 0, 1, 2, 4 or 8"
                    };
                    assert!(
                        (!has_width || seek && bytes == 0) && text.contains(reason),
                        "{bytes}: {text}"
                    );
                }
                Err(other) => panic!("{bytes}: {other}"),
            }
        }
    }
    let options = ParanoidOptions::default();
    assert_eq!(
        (
            options.protection_bytes(),
            options.checksum_on_seek(),
            options.order_checks()
        ),
        (8, false, false)
    );
    assert_eq!(ParanoidOptions::builder().build().unwrap(), options);
}

/// Integrity options are the same by the table's builder and by their own one. Both at once
/// must agree, in either order.
#[test]
fn integrity_options_are_set_in_one_of_two_ways() {
    let mut valid = vec![];
    for bytes in [0, 1, 2, 3, 4, 8] {
        for (on_seek, order) in [(false, false), (false, true), (true, false), (true, true)] {
            let whole = ParanoidOptions::builder()
                .protection_bytes(bytes)
                .checksum_on_seek(on_seek)
                .order_checks(order)
                .build();
            let single = MemTableOptions::builder()
                .order_checks(order)
                .checksum_on_seek(on_seek)
                .protection_bytes(bytes);
            match (whole, single.clone().build()) {
                (Ok(whole), Ok(options)) => {
                    assert_eq!(options.paranoid(), &whole);
                    valid.push((whole, single));
                }
                (Err(whole), Err(options)) => assert_eq!(refused(whole), refused(options)),
                different => panic!("{bytes}, {on_seek}, {order}: {different:?}"),
            }
        }
    }
    assert_eq!(valid.len(), 18);
    for (whole, _) in &valid {
        for (other, single) in &valid {
            let alone = MemTableOptions::builder().paranoid(whole.clone());
            assert_eq!(alone.build().unwrap().paranoid(), whole);
            let both = single.clone().paranoid(whole.clone()).build();
            if whole == other {
                assert_eq!(both.unwrap().paranoid(), whole);
            } else {
                assert!(refused(both.unwrap_err()).contains("paranoid"));
            }
        }
        let after = MemTableOptions::builder()
            .paranoid(whole.clone())
            .order_checks(!whole.order_checks());
        assert!(refused(after.build().unwrap_err()).contains("paranoid"));
    }
}

fn refused(error: Error) -> String {
    match error {
        Error::InvalidArgument(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Every bit of an entry is flipped while a cursor is parked on it. Getters that return the same
/// parts agree on whether the entry verifies, and a scrub always reports the damage.
#[cfg(feature = "fault-injection")]
#[test]
fn getters_of_an_entry_verify_what_they_return() {
    for protection in [1, 8] {
        // The entry is damaged anew for each bit; a table that heals would answer from its copy.
        let paranoid = ParanoidOptions::builder()
            .protection_bytes(protection)
            .repair(Repair::Off)
            .build()
            .unwrap();
        let options = MemTableOptions::builder().paranoid(paranoid).seed(3);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        table.put(5, b"apple", b"red and round").unwrap();
        let mut cursor = table.cursor();
        cursor.first().unwrap();
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from its memory: a
        // cursor holds offsets.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let regions = [Region::Header, Region::Digests, Region::Key, Region::Value];
        let pieces: Vec<usize> = (0..injector.pieces().len())
            .filter(|piece| regions.contains(&injector.pieces()[*piece].region))
            .collect();
        let mut refused = 0;
        for (piece, bit) in pieces
            .into_iter()
            .flat_map(|piece| (0..8 * 24).map(move |bit| (piece, bit)))
        {
            if bit >= 8 * injector.bytes(piece).len() {
                continue;
            }
            injector.flip(piece, bit);
            let note = format!("{:?} bit {bit}", injector.pieces()[piece].region);
            if let Ok(Some(entry)) = cursor.entry() {
                assert_eq!(
                    (entry.user_key(), entry.sequence()),
                    (b"apple".as_slice(), 5),
                    "{note}"
                );
                let value = entry.value().map(<[u8]>::to_vec);
                let parts = entry.parts().map(|(_, value)| value.to_vec());
                let copy = entry.to_bytes().map(|copy| copy.value().to_vec());
                let mut buffer = Vec::new();
                let into = entry.value_into(&mut buffer).map(|()| buffer);
                for same in [&parts, &copy, &into] {
                    assert_eq!(same.is_ok(), value.is_ok(), "{note}");
                }
                for got in [value, parts, copy, into] {
                    refused += u32::from(got.is_err());
                    assert!(
                        got.is_err() || got.is_ok_and(|value| value == b"red and round"),
                        "{note}"
                    );
                }
            }
            assert!(!table.scrub(|_| ()).findings.is_empty(), "{note}");
            injector.undo();
        }
        assert!(refused > 0);
    }
}

/// Block trailers: literal bytes, every flipped bit, every length.
mod trailers {
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
            assert_eq!(
                checks.modifier(offset),
                want,
                "base {number} offset {offset}"
            );
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
            for checks in [
                BlockChecks::new(kind),
                BlockChecks::with_context(kind, base(77)),
            ] {
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
                            assert_eq!(
                                (report.offset, report.flipped_bit),
                                (4096, bit),
                                "{kind} {len} bytes"
                            );
                            assert_ne!(report.expected, report.found);
                        }
                        stored[bit / 8] ^= 1 << (bit % 8);
                    }
                    let elsewhere = checks.verify(&stored, 4097).is_ok();
                    assert_eq!(
                        elsewhere,
                        checks.context_base().is_none(),
                        "{kind} at another place"
                    );
                }
            }
        }
    }

    #[test]
    fn a_stored_block_without_room_for_a_trailer_is_corruption() {
        for len in 0..5u64 {
            let checks = BlockChecks::new(ChecksumKind::None);
            let report = corruption(checks.verify(&[0; 5][..len as usize], 9000));
            assert_eq!(
                (report.offset, report.expected, report.found),
                (9000, 5, len)
            );
        }
    }
}

/// The checksums of blocks: literal values, which are on disks and never change, and a second
/// implementation of each.
mod checksums {
    use paranoid_memtable::integrity::BlockChecks;
    use paranoid_memtable::{ChecksumKind, Error};
    use proptest::prelude::*;

    const KINDS: [(ChecksumKind, u8, &str); 6] = [
        (ChecksumKind::None, 0, "none"),
        (ChecksumKind::Crc32c, 1, "crc32c"),
        (ChecksumKind::XxHash32, 2, "xxhash"),
        (ChecksumKind::XxHash64, 3, "xxhash64"),
        (ChecksumKind::Xxh3, 4, "xxh3"),
        (ChecksumKind::Crc32, 0x80, "crc32"),
    ];

    /// A reflected CRC of 32 bits, one bit at a time, from the definition.
    fn crc_by_bits(polynomial: u32, data: &[u8]) -> u32 {
        let mut rest = !0u32;
        for byte in data {
            rest ^= u32::from(*byte);
            for _ in 0..8 {
                rest = if rest & 1 == 1 {
                    (rest >> 1) ^ polynomial
                } else {
                    rest >> 1
                };
            }
        }
        !rest
    }

    /// Undoes the mask of CRC-32C.
    fn unmask(stored: u32) -> u32 {
        stored.wrapping_sub(0xa282_ead8).rotate_left(15)
    }

    fn unmasked_crc32c(data: &[u8]) -> u32 {
        unmask(ChecksumKind::Crc32c.checksum(data))
    }

    /// The checksum by another implementation than this crate's: bit by bit, or from another crate.
    fn oracle(kind: ChecksumKind, data: &[u8]) -> u32 {
        match kind {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32c => crc_by_bits(0x82f6_3b78, data)
                .rotate_right(15)
                .wrapping_add(0xa282_ead8),
            ChecksumKind::XxHash32 => twox_hash::XxHash32::oneshot(0, data),
            ChecksumKind::XxHash64 => twox_hash::XxHash64::oneshot(0, data) as u32,
            ChecksumKind::Xxh3 => data.split_last().map_or(0, |(last, rest)| {
                let (one, two) = (
                    xxhash_rust::xxh3::xxh3_64(rest),
                    twox_hash::XxHash3_64::oneshot(rest),
                );
                assert_eq!(
                    one,
                    two,
                    "two implementations of XXH3 at {} bytes",
                    rest.len()
                );
                one as u32 ^ u32::from(*last).wrapping_mul(0x6b90_83d9)
            }),
            ChecksumKind::Crc32 => crc_by_bits(0xedb8_8320, data),
            other => panic!("no oracle for {other}"),
        }
    }

    /// Bytes without a short period.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len as u32)
            .map(|i| (i.wrapping_mul(0x9e37_79b1) >> 19) as u8)
            .collect()
    }

    #[test]
    fn numbers_and_names() {
        assert_eq!(ChecksumKind::ALL.len(), KINDS.len());
        for ((kind, number, name), listed) in
            KINDS.into_iter().zip(ChecksumKind::ALL.iter().copied())
        {
            assert_eq!(kind, listed);
            assert_eq!(
                (kind as u8, kind.as_u8(), u8::from(kind)),
                (number, number, number)
            );
            assert_eq!(ChecksumKind::try_from(number).unwrap(), kind);
            assert_eq!(kind.to_string(), name);
            assert_eq!(name.parse::<ChecksumKind>().unwrap(), kind);
        }
        assert_eq!(format!("[{:>6}]", ChecksumKind::Xxh3), "[  xxh3]");
    }

    #[test]
    fn unknown_numbers_and_names_are_invalid_arguments_that_name_them() {
        for number in (0..=u8::MAX).filter(|number| KINDS.iter().all(|known| known.1 != *number)) {
            match ChecksumKind::try_from(number) {
                Err(Error::InvalidArgument(text)) => {
                    assert!(
                        text.starts_with(&format!("unknown checksum kind {number};")),
                        "{text}"
                    );
                }
                other => panic!("{number} gave {other:?}"),
            }
        }
        for name in [
            "", "XXH3", " xxh3", "xxh3 ", "xxhash32", "md5", "4", "crc32c\0", "crc-32c", "kXXH3",
        ] {
            match name.parse::<ChecksumKind>() {
                Err(Error::InvalidArgument(text)) => {
                    assert!(text.contains(&format!("{name:?}")), "{text}")
                }
                other => panic!("{name:?} gave {other:?}"),
            }
        }
    }

    /// The four stored bytes as hex, in the order of `KINDS`.
    fn stored(data: &[u8]) -> [String; 6] {
        KINDS.map(|(kind, ..)| {
            kind.checksum(data)
                .to_le_bytes()
                .map(|byte| format!("{byte:02X}"))
                .concat()
        })
    }

    /// RocksDB's own vectors, and those of `crc32`.
    #[test]
    fn schema_of_nothing_and_of_empty_blocks() {
        assert_eq!(
            stored(b""),
            [
                "00000000", "D8EA82A2", "055DCC02", "99E9D851", "00000000", "00000000"
            ]
        );
        assert_eq!(
            stored(&[0]),
            [
                "00000000", "D28F2549", "3EB065CF", "682705DB", "C294D338", "8DEF02D2"
            ]
        );
        assert_eq!(
            stored(&[1]),
            [
                "00000000", "052B2843", "31F79238", "30E7211B", "1B174353", "1BDF05A5"
            ]
        );
        assert_eq!(
            stored(&[7]),
            [
                "00000000", "46F8F711", "320D2E00", "B7BB58E8", "2D0E20C8", "2E7A664C"
            ]
        );
    }

    const LONGER_BLOCKS: [(usize, [&str; 6]); 13] = [
        (
            3,
            [
                "00000000", "1B60197F", "9FC6D5E5", "BC322B94", "BC42F8B6", "4B462FA4",
            ],
        ),
        (
            15,
            [
                "00000000", "467D829E", "7CB062DB", "F1F7EC98", "392815D5", "F57FC88F",
            ],
        ),
        (
            16,
            [
                "00000000", "3C7BA323", "EF2366F8", "B9D8EBC9", "3640D9D2", "E414A1A8",
            ],
        ),
        (
            17,
            [
                "00000000", "D31FCBB0", "04F1507D", "5000D4CB", "3DA252BC", "B52D965F",
            ],
        ),
        (
            64,
            [
                "00000000", "AC769A97", "2F99E20F", "92C0BAD2", "BB9BC47D", "242DA47C",
            ],
        ),
        (
            128,
            [
                "00000000", "36388E64", "7C5E6FC7", "1FAA8C4B", "A8CD28F3", "37E138C4",
            ],
        ),
        (
            129,
            [
                "00000000", "4A040353", "3F144A83", "75C3F298", "2C5D5738", "369E20DB",
            ],
        ),
        (
            240,
            [
                "00000000", "0A037D30", "723605BB", "3817DC2F", "40FFEE02", "2312A84E",
            ],
        ),
        (
            241,
            [
                "00000000", "7E814F20", "DBC44590", "8CE8FABE", "11325A77", "C2AD8D9A",
            ],
        ),
        (
            1023,
            [
                "00000000", "A6E6248F", "1FDF9F00", "8DBBC174", "B9A182CE", "CA01AF36",
            ],
        ),
        (
            1024,
            [
                "00000000", "3854A2CB", "4172F52D", "F68C7CBE", "E86C8666", "BE7D6B11",
            ],
        ),
        (
            4096,
            [
                "00000000", "1F30347C", "04A895DF", "421E5194", "49B45FDE", "17F12E7C",
            ],
        ),
        (
            65536,
            [
                "00000000", "F56C5CB2", "4355743A", "98FCE154", "B1B038A8", "50993FE6",
            ],
        ),
    ];

    /// One literal for each code path of the implementations: up to 16, 128 and 240 bytes, and
    /// more. The block is `pattern(length)`, the last byte 7.
    #[test]
    fn schema_of_longer_blocks() {
        for (len, want) in LONGER_BLOCKS {
            let mut data = pattern(len);
            data.push(7);
            assert_eq!(stored(&data), want, "{len} bytes");
        }
    }

    #[test]
    fn published_values() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        let crc32c: [(&[u8], u32, u32); 8] = [
            (b"123456789", 0xe306_9283, 0xc78a_b0e5),
            (b"a", 0xc1d0_4330, 0x28e4_6e78),
            (b"foo", 0xcfc4_ae1d, 0xfebe_8a61),
            (b"hello world", 0xc994_65aa, 0x6dd8_7e00),
            (&[0; 32], 0x8a91_36aa, 0x0fd7_fffa),
            (&[0xff; 32], 0x62a8_ab43, 0xf909_b029),
            (&up, 0x46dd_794e, 0x951f_7892),
            (&down, 0x113f_db5c, 0x593b_0d57),
        ];
        for (data, plain, masked) in crc32c {
            assert_eq!(ChecksumKind::Crc32c.checksum(data), masked, "{data:?}");
            assert_eq!(unmasked_crc32c(data), plain, "{data:?}");
        }
        assert_eq!(ChecksumKind::Crc32.checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(ChecksumKind::XxHash32.checksum(b"abc"), 0x32d1_53ff);
        assert_eq!(ChecksumKind::XxHash64.checksum(b"abc"), 0xad77_0999);
        // The last byte is 0, so nothing is added to the hash.
        assert_eq!(ChecksumKind::Xxh3.checksum(b"abc\0"), 0x892f_3950);
    }

    #[test]
    fn the_iscsi_read_command() {
        let mut data = [0u8; 48];
        data[0] = 0x01;
        data[1] = 0xc0;
        data[16] = 0x14;
        data[22] = 0x04;
        data[27] = 0x14;
        data[31] = 0x18;
        data[32] = 0x28;
        data[40] = 0x02;
        assert_eq!(unmasked_crc32c(&data), 0xd996_3a56);
    }

    #[test]
    fn every_length_and_alignment_agrees_with_the_oracle() {
        let bytes = pattern(70_000);
        let lengths = (0..=1100).chain([2047, 4096, 4097, 8193, 65_537]);
        for len in lengths {
            // Lengths up to 260 are tried at all alignments of a word, each longer one at a single
            // alignment.
            let starts = if len <= 260 {
                0..8
            } else {
                len % 64..len % 64 + 1
            };
            for data in starts.map(|start| &bytes[start..start + len]) {
                for (kind, ..) in KINDS {
                    let want = oracle(kind, data);
                    assert_eq!(kind.checksum(data), want, "{kind} of {len} bytes");
                    if let Some((&last, rest)) = data.split_last() {
                        let apart = with_last_byte(kind, rest, last);
                        assert_eq!(apart, want, "{kind} of {len} bytes, the last one apart");
                    }
                }
            }
        }
    }

    #[test]
    fn a_third_implementation_agrees_on_crcs() {
        let bytes = pattern(9000);
        for len in (0..600).chain([1024, 4097, 9000]) {
            let data = &bytes[9000 - len..];
            let castagnoli = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data);
            assert_eq!(u64::from(unmasked_crc32c(data)), castagnoli, "{len} bytes");
            let ieee = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, data);
            assert_eq!(
                u64::from(ChecksumKind::Crc32.checksum(data)),
                ieee,
                "{len} bytes"
            );
        }
    }

    /// A torn write leaves zeros, which must not verify as a block.
    #[test]
    fn zeros_do_not_give_zero() {
        let zeros = vec![0u8; 20_000];
        for (kind, ..) in KINDS
            .into_iter()
            .filter(|known| known.0 != ChecksumKind::None)
        {
            for len in (0..3000).chain([4096, 8191, 16_384, 20_000]) {
                let nothing = matches!(kind, ChecksumKind::Xxh3 | ChecksumKind::Crc32) && len == 0;
                assert_eq!(
                    kind.checksum(&zeros[..len]) == 0,
                    nothing,
                    "{kind} of {len} zeros"
                );
            }
        }
    }

    /// The checksum of a block and the compression type after it, passed separately.
    fn with_last_byte(kind: ChecksumKind, block: &[u8], last: u8) -> u32 {
        let [_, checksum @ ..] = BlockChecks::new(kind).trailer(block, last, 0);
        u32::from_le_bytes(checksum)
    }

    #[test]
    fn the_last_byte_alone_always_changes_the_checksum() {
        for len in [0, 1, 16, 100, 129, 300, 5000] {
            let block = pattern(len);
            for (kind, ..) in KINDS
                .into_iter()
                .filter(|known| known.0 != ChecksumKind::None)
            {
                let values: std::collections::HashSet<u32> = (0..=255)
                    .map(|last| with_last_byte(kind, &block, last))
                    .collect();
                assert_eq!(values.len(), 256, "{kind} of {len} bytes");
            }
        }
    }

    #[test]
    fn none_checks_nothing() {
        assert_eq!(ChecksumKind::None.checksum(b"block"), 0);
        assert_eq!(with_last_byte(ChecksumKind::None, b"block", 9), 0);
    }

    proptest! {


        /// A checksum over data and last byte apart equals that of both together. So does the CRC
        /// of two parts, one after the other, by the definition: CRC(a . b) = CRC(a . zeros) ^
        /// CRC(b) ^ CRC(zeros).
        #[test]
        fn continuation(a in prop::collection::vec(any::<u8>(), 0..700), b in prop::collection::vec(any::<u8>(), 1..300)) {
            let whole = [a.as_slice(), &b].concat();
            let (last, rest) = whole.split_last().unwrap();
            for (kind, ..) in KINDS {
                prop_assert_eq!(with_last_byte(kind, rest, *last), kind.checksum(&whole));
                prop_assert_eq!(kind.checksum(&whole), oracle(kind, &whole));
            }
            let zeros = vec![0; b.len()];
            let padded = [a.as_slice(), &zeros].concat();
            for crc in [unmasked_crc32c as fn(&[u8]) -> u32, |data| ChecksumKind::Crc32.checksum(data)] {
                prop_assert_eq!(crc(&whole), crc(&padded) ^ crc(&b) ^ crc(&zeros));
            }
        }

        /// A flipped bit always changes a CRC, and a hash of 32 bits in all but one of 2^32 cases.
        #[test]
        fn a_flipped_bit_shows(mut data in prop::collection::vec(any::<u8>(), 1..600), at in any::<prop::sample::Index>()) {
            let clean = KINDS.map(|(kind, ..)| kind.checksum(&data));
            let bit = at.index(data.len() * 8);
            data[bit / 8] ^= 1 << (bit % 8);
            for ((kind, ..), before) in KINDS.into_iter().zip(clean) {
                prop_assert_eq!(kind.checksum(&data) == before, kind == ChecksumKind::None);
            }
        }
    }

    #[cfg(feature = "serde")]
    mod serde_form {
        use super::{ChecksumKind, KINDS};
        use serde::de::value::{Error as ValueError, StrDeserializer, U8Deserializer};
        use serde::de::{Deserialize, IntoDeserializer};

        /// Writes only strings.
        struct Shown(ChecksumKind);

        impl std::fmt::Display for Shown {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(&self.0, f)
            }
        }

        fn read(name: &str) -> Result<ChecksumKind, ValueError> {
            let source: StrDeserializer<'_, ValueError> = name.into_deserializer();
            ChecksumKind::deserialize(source)
        }

        #[test]
        fn names_there_and_back() {
            for (kind, _, name) in KINDS {
                assert_eq!(Shown(kind).to_string(), name);
                assert_eq!(read(name), Ok(kind));
            }
        }

        #[test]
        fn unknown_names_are_named() {
            for name in ["XXH3", "", "md5"] {
                let text = read(name).unwrap_err().to_string();
                let known = "none, crc32c, xxhash, xxhash64, xxh3, crc32";
                let listed = format!("unknown checksum kind {name:?}; the known ones are {known}");
                assert!(text.ends_with(&listed), "{text}");
            }
        }

        #[test]
        fn numbers_are_refused() {
            let source: U8Deserializer<ValueError> = 4u8.into_deserializer();
            let text = ChecksumKind::deserialize(source).unwrap_err().to_string();
            assert!(text.contains("expected a string"), "{text}");
        }
    }
}

/// Kinds: the meaning and the name of each number. Images of an order that has none.
mod keys {
    use paranoid_memtable::{Bytewise, KeyOrder};
    use paranoid_memtable::{Comparator, Kind};

    use crate::support::orders::CaseBlind;

    /// Name and meaning of a kind, from the table in the documents.
    fn listed(number: u8) -> (String, &'static str) {
        match number {
            0 => ("DELETE".to_owned(), "point delete"),
            1 => ("PUT".to_owned(), "value"),
            2 => ("MERGE".to_owned(), "neither"),
            7 => ("SINGLE_DELETE".to_owned(), "point delete"),
            15 => ("RANGE_DELETE".to_owned(), "neither"),
            0x80..0xc0 => (format!("custom({})", number - 0x80), "value"),
            0xc0.. => (format!("custom_delete({})", number - 0xc0), "point delete"),
            _ => (format!("Kind({number:#04x})"), "unknown"),
        }
    }

    #[test]
    fn every_kind_is_what_its_number_says() {
        for number in 0..=u8::MAX {
            let (kind, (name, meaning)) = (Kind::from_u8(number), listed(number));
            assert_eq!((kind.as_u8(), format!("{kind:?}")), (number, name));
            assert_eq!(
                kind.is_point_delete(),
                meaning == "point delete",
                "{kind:?}"
            );
            assert_eq!(kind.is_known(), meaning != "unknown", "{kind:?}");
        }
        let named = [
            Kind::DELETE,
            Kind::PUT,
            Kind::MERGE,
            Kind::SINGLE_DELETE,
            Kind::RANGE_DELETE,
        ];
        assert_eq!(named.map(Kind::as_u8), [0, 1, 2, 7, 15]);
    }

    #[test]
    fn an_engine_has_64_kinds_of_each_sort() {
        assert_eq!(Kind::CUSTOM_COUNT, 64);
        for number in 0..64 {
            assert_eq!(Kind::custom(number).as_u8(), 0x80 + number);
            assert_eq!(Kind::custom_delete(number).as_u8(), 0xc0 + number);
        }
        for make in [Kind::custom, Kind::custom_delete] {
            assert!(std::panic::catch_unwind(|| make(64)).is_err());
        }
    }

    #[test]
    fn an_order_without_images_gives_all_keys_the_same() {
        assert_eq!(CaseBlind.key_order(), KeyOrder::Custom);
        for key in [&b""[..], b"a", &[0xff; 9]] {
            assert_eq!([0, 1, 8, 9].map(|at| CaseBlind.image(key, at)), [0; 4]);
        }
    }

    #[test]
    fn the_image_of_bytes_in_order_is_the_key_and_zeros() {
        let image = |key: &[u8], at| Bytewise.image(key, at).to_be_bytes();
        assert_eq!(
            (image(b"abcdefghij", 1), image(b"abc", 1)),
            (*b"bcdefghi", *b"bc\0\0\0\0\0\0")
        );
        assert_eq!((image(b"abc", 3), image(b"", 9)), ([0; 8], [0; 8]));
    }
}
