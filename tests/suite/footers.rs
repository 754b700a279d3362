//! Block trailers and footers: literal bytes, every flipped bit, every length, arbitrary bytes.

use std::num::NonZeroU32;

use paranoid_memtable::format::{BlockChecks, BlockHandle, Footer, TableMagic};
use paranoid_memtable::integrity::Place;
use paranoid_memtable::{ChecksumKind, Corruption, Error};
use proptest::prelude::*;

const METAINDEX: BlockHandle = BlockHandle { offset: 1210, size: 300 };
const INDEX: BlockHandle = BlockHandle { offset: 1005, size: 200 };
const FOOTER_OFFSET: u64 = 1515;
const LEGACY_BLOCK_BASED: u64 = 0xdb47_7524_8b80_fb57;

fn base(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a base is not zero")
}

fn with_index(magic: TableMagic, version: u32, kind: ChecksumKind) -> Footer {
    Footer::with_index(magic, version, kind, METAINDEX, INDEX).unwrap()
}

fn with_context(version: u32, kind: ChecksumKind) -> Footer {
    let checks = BlockChecks::with_context(kind, base(123_456_789));
    Footer::with_context(TableMagic::BlockBased, version, checks, METAINDEX).unwrap()
}

/// A footer of each version and kind, and its bytes at `FOOTER_OFFSET`.
fn all_footers() -> Vec<(Footer, Vec<u8>)> {
    let mut footers = vec![with_index(TableMagic::Plain, 0, ChecksumKind::Crc32c)];
    for kind in ChecksumKind::ALL.iter().copied() {
        footers.push(with_index(TableMagic::Plain, 1, kind));
        footers.push(with_index(TableMagic::Cuckoo, 1, kind));
        footers.extend((1..=5).map(|version| with_index(TableMagic::BlockBased, version, kind)));
        footers.extend((6..=7).map(|version| with_context(version, kind)));
    }
    footers.into_iter().map(|footer| (footer, footer.encode(FOOTER_OFFSET).unwrap())).collect()
}

/// Decodes a footer at `FOOTER_OFFSET`, given a few bytes before it, too.
fn decode(bytes: &[u8]) -> Result<Footer, Error> {
    Footer::decode(&[&[0xa5; 5], bytes].concat(), FOOTER_OFFSET + bytes.len() as u64)
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

/// Puts the right checksum into the bytes of a footer of version 6 or 7, by public functions.
fn seal(bytes: &mut [u8], kind: ChecksumKind) {
    bytes[5..9].fill(0);
    let number = u32::from_le_bytes(bytes[9..13].try_into().unwrap());
    let modifier = NonZeroU32::new(number)
        .map_or(0, |base| BlockChecks::with_context(kind, base).modifier(FOOTER_OFFSET));
    let checksum = kind.checksum(bytes).wrapping_add(modifier);
    bytes[5..9].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn schema_of_footers() {
    let zeros = "0".repeat(62);
    let tail = "000000f7cff485b741e288";
    let handles = "ba09ac02ed07c801";
    for (number, kind) in
        [("01", ChecksumKind::Crc32c), ("04", ChecksumKind::Xxh3), ("80", ChecksumKind::Crc32)]
    {
        let bytes = with_index(TableMagic::BlockBased, 5, kind).encode(FOOTER_OFFSET).unwrap();
        assert_eq!(hex(&bytes), format!("{number}{handles}{zeros}0005{tail}"));
    }
    let sealed = [
        (ChecksumKind::Crc32c, "013e007a00e637db1a15cd5b072c010000"),
        (ChecksumKind::Xxh3, "043e007a00b9b9057515cd5b072c010000"),
    ];
    for (kind, start) in sealed {
        let bytes = with_context(6, kind).encode(FOOTER_OFFSET).unwrap();
        assert_eq!(hex(&bytes), format!("{start}{}06{tail}", "0".repeat(48)));
    }
    // Without a checksum, the stored value is the modifier: 123 456 789 ^ 1515.
    let bytes = with_context(7, ChecksumKind::None).encode(FOOTER_OFFSET).unwrap();
    assert_eq!(hex(&bytes[..17]), "003e007a00fec85b0715cd5b072c010000");
    let bytes = with_index(TableMagic::Plain, 0, ChecksumKind::Crc32c).encode(FOOTER_OFFSET).unwrap();
    assert_eq!(hex(&bytes), format!("{handles}{}00b8138f7aeb18344f", "0".repeat(62)));
}

#[test]
fn footers_there_and_back() {
    for (footer, bytes) in all_footers() {
        assert_eq!(bytes.len(), if footer.format_version() == 0 { 48 } else { 53 });
        assert_eq!(decode(&bytes).unwrap(), footer);
        // A longer tail, and the whole file.
        let mut file = vec![0xa5; FOOTER_OFFSET as usize];
        file.extend(&bytes);
        for start in [0, 1, 1000, 1462, FOOTER_OFFSET as usize - 5, file.len() - 53] {
            assert_eq!(Footer::decode(&file[start..], file.len() as u64).unwrap(), footer);
        }
    }
    let footer = with_context(7, ChecksumKind::Xxh3);
    assert_eq!((footer.magic(), footer.format_version()), (TableMagic::BlockBased, 7));
    assert_eq!((footer.metaindex(), footer.index()), (METAINDEX, None));
    assert_eq!(footer.checks().kind(), ChecksumKind::Xxh3);
    assert_eq!(footer.checks().context_base(), Some(base(123_456_789)));
}

#[test]
fn every_flipped_bit_of_every_footer_shows() {
    for (footer, clean) in all_footers() {
        let sealed = footer.format_version() >= 6 && footer.checks().kind() != ChecksumKind::None;
        for bit in 0..clean.len() * 8 {
            let mut bytes = clean.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Without a checksum a reader cannot know what the reserved bytes should be.
            let reserved = footer.format_version() >= 6 && !sealed && (17..33).contains(&(bit / 8));
            match decode(&bytes) {
                Ok(other) => assert!((other == footer) == reserved && !sealed, "{footer:?} bit {bit}"),
                Err(Error::Corruption(report)) if sealed && report.offset == FOOTER_OFFSET => {
                    let unknown_kind = bit < 8 && report.found == u64::from(bytes[0]);
                    assert!(unknown_kind || report.flipped_bit == Some(bit as u64), "{footer:?} bit {bit}");
                }
                Err(Error::Corruption(_)) => assert!(!reserved),
                Err(Error::NotSupported(_)) => {
                    assert!(!sealed && footer.format_version() >= 6 && (33..41).contains(&(bit / 8)));
                }
                Err(other) => panic!("{footer:?} bit {bit}: {other}"),
            }
        }
    }
}

#[test]
fn every_truncated_footer_shows() {
    for (_, clean) in all_footers() {
        for len in 0..clean.len() {
            // The file ends early.
            let file_size = FOOTER_OFFSET + len as u64;
            let mut file = vec![0; FOOTER_OFFSET as usize];
            file.extend(&clean[..len]);
            corruption(Footer::decode(&file, file_size));
            // The file is only the end or the start of a footer.
            let report = corruption(Footer::decode(&clean[clean.len() - len..], len as u64));
            let needed = if len < 48 { 48 } else { 53 };
            assert_eq!((report.offset, report.expected, report.found), (0, needed, len as u64));
            corruption(Footer::decode(&clean[..len], len as u64));
            // The caller read too little.
            let result = Footer::decode(&clean[clean.len() - len..], 1 << 20);
            assert!(matches!(result, Err(Error::InvalidArgument(_))), "{len} bytes: {result:?}");
        }
        let result = Footer::decode(&clean, clean.len() as u64 - 1);
        assert!(matches!(result, Err(Error::InvalidArgument(_))), "{result:?}");
    }
}

#[test]
fn an_unknown_kind_in_a_footer_is_corruption() {
    for version in 2..=7 {
        for number in (0..=u8::MAX).filter(|number| ChecksumKind::try_from(*number).is_err()) {
            let mut bytes = match version {
                6 | 7 => with_context(version, ChecksumKind::Xxh3).encode(FOOTER_OFFSET).unwrap(),
                _ => with_index(TableMagic::BlockBased, version, ChecksumKind::Xxh3)
                    .encode(FOOTER_OFFSET)
                    .unwrap(),
            };
            bytes[0] = number;
            let report = corruption(decode(&bytes));
            assert_eq!(
                (report.offset, report.found),
                (FOOTER_OFFSET, u64::from(number)),
                "version {version}"
            );
        }
    }
}

#[test]
fn unknown_magic_and_version_are_corruption() {
    let clean = with_context(6, ChecksumKind::Xxh3).encode(FOOTER_OFFSET).unwrap();
    let mut bytes = clean.clone();
    bytes[45] ^= 0x10;
    let report = corruption(decode(&bytes));
    assert_eq!((report.offset, report.flipped_bit), (FOOTER_OFFSET + 45, Some(4)));
    assert_eq!((report.expected, report.found), (0x88e2_41b7_85f4_cff7, 0x88e2_41b7_85f4_cfe7));
    bytes[45..].fill(0xee);
    assert_eq!(corruption(decode(&bytes)).flipped_bit, None);
    for version in [0, 256, 1 << 24, u32::MAX] {
        let report = corruption(decode(&with_version(&clean, version)));
        assert_eq!((report.offset, report.found), (FOOTER_OFFSET + 41, u64::from(version)));
    }
}

fn with_version(footer: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = footer.to_vec();
    bytes[41..45].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn refused(bytes: &[u8]) -> &'static str {
    match decode(bytes) {
        Err(Error::NotSupported(feature)) => feature,
        other => panic!("not refused by name: {other:?}"),
    }
}

/// Intact files of others are no damage, and one flipped bit of ours is not another format.
#[test]
fn other_formats_are_refused_by_name() {
    let clean = with_context(7, ChecksumKind::Xxh3).encode(FOOTER_OFFSET).unwrap();
    let old = with_index(TableMagic::BlockBased, 5, ChecksumKind::Xxh3).encode(FOOTER_OFFSET).unwrap();
    let mut bytes = clean.clone();
    bytes[45..].copy_from_slice(&LEGACY_BLOCK_BASED.to_le_bytes());
    assert!(refused(&bytes).contains("LevelDB"));
    bytes[45..].copy_from_slice(b"\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3");
    assert!(refused(&bytes).contains("Pebble"));
    for version in [8, 9, 40, 255] {
        // 9 is also 1 with a flipped bit.
        for footer in [&clean, &old].into_iter().take(if version == 9 { 1 } else { 2 }) {
            assert!(refused(&with_version(footer, version)).contains("format version after 7"), "{version}");
        }
    }
    for (footer, known) in [(clean, 7), (old, 5)] {
        for bit in 3..8 {
            let report = corruption(decode(&with_version(&footer, known ^ 1 << bit)));
            assert_eq!((report.expected, report.flipped_bit), (u64::from(known), Some(bit)));
        }
    }
}

#[test]
fn damage_under_a_right_checksum_shows() {
    let kind = ChecksumKind::Crc32c;
    let clean = with_context(7, kind).encode(FOOTER_OFFSET).unwrap();
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = clean.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        seal(&mut bytes, kind);
        decode(&bytes)
    };
    assert_eq!(corruption(changed(1, &[0x3f])).offset, FOOTER_OFFSET + 1);
    assert_eq!(corruption(changed(9, &[0; 4])).offset, FOOTER_OFFSET + 9);
    for at in 33..41 {
        let result = changed(at, &[1]);
        assert!(matches!(result, Err(Error::NotSupported(_))), "byte {at}: {result:?}");
    }
    for at in 17..33 {
        assert_eq!(changed(at, &[0xff]).unwrap(), with_context(7, kind), "byte {at} is reserved");
    }
    // A metaindex as long as there is room for, and one byte longer.
    let most = (FOOTER_OFFSET - 5) as u32;
    let footer = changed(13, &most.to_le_bytes()).unwrap();
    assert_eq!(footer.metaindex(), BlockHandle { offset: 0, size: most.into() });
    for size in [most + 1, u32::MAX] {
        assert_eq!(corruption(changed(13, &size.to_le_bytes())).offset, FOOTER_OFFSET + 13);
    }
    // The footer read from another offset than its own.
    assert_eq!(corruption(Footer::decode(&clean, FOOTER_OFFSET + 54)).offset, FOOTER_OFFSET + 1);
}

/// The bytes of a footer of version 5 with `start` after the kind.
fn version_5(start: &[u8]) -> Vec<u8> {
    let mut bytes = vec![4];
    bytes.extend(start);
    bytes.resize(41, 0);
    bytes.extend(5u32.to_le_bytes());
    bytes.extend(TableMagic::BlockBased.number().to_le_bytes());
    bytes
}

#[test]
fn handles_have_one_spelling_and_end_before_the_footer() {
    let cases: [(&[u8], u64); 9] = [
        (&[0xff; 40], 1),            // does not end within ten bytes
        (&[0x80, 0x00], 1),          // zero in two bytes
        (&[1, 0x81, 0x80, 0x00], 2), // one in three bytes
        (&[1, 2, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], 4), // over 64 bits
        (&[0, 0, 0, 0, 0, 7], 6),    // padding
        (&[0xe7, 0x0b, 0, 0, 0], 1), // metaindex ends at 1511, its trailer at 1516
        (&[0, 0, 0, 0xe7, 0x0b], 3), // the same for the index
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0], 1), // sum over 64 bits
        (&[0, 0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0], 1), // so with the trailer
    ];
    for (start, at) in cases {
        assert_eq!(corruption(decode(&version_5(start))).offset, FOOTER_OFFSET + at, "{start:02x?}");
    }
    let footer = decode(&version_5(&[0xe6, 0x0b, 0, 0, 0])).unwrap();
    let empty = |offset| BlockHandle { offset, size: 0 };
    assert_eq!((footer.metaindex(), footer.index()), (empty(1510), Some(empty(0))));
    // Version 0 begins with its handles.
    let mut bytes = with_index(TableMagic::Plain, 0, ChecksumKind::Crc32c).encode(FOOTER_OFFSET).unwrap();
    bytes[20] = 7;
    assert_eq!(corruption(decode(&bytes)).offset, FOOTER_OFFSET + 20);
    // Tables without trailers use the room to the last byte.
    let mut bytes = version_5(&[0xeb, 0x0b, 0, 0, 0]);
    bytes[45..].copy_from_slice(&TableMagic::Plain.number().to_le_bytes());
    assert_eq!(decode(&bytes).unwrap().metaindex().offset, FOOTER_OFFSET);
    // The largest numbers of all.
    let far = BlockHandle { offset: u64::MAX - 60, size: 2 };
    let footer = Footer::with_index(TableMagic::BlockBased, 2, ChecksumKind::None, far, INDEX).unwrap();
    let bytes = footer.encode(u64::MAX - 53).unwrap();
    assert_eq!(Footer::decode(&bytes, u64::MAX).unwrap(), footer);
}

fn is_argument_error<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::InvalidArgument(_)))
}

#[test]
fn footers_that_make_no_sense_are_refused() {
    use ChecksumKind::{Crc32c, Xxh3};
    let indexed = |magic, version, kind| Footer::with_index(magic, version, kind, METAINDEX, INDEX);
    assert!(matches!(indexed(TableMagic::BlockBased, 0, Crc32c), Err(Error::NotSupported(_))));
    for (magic, version, kind) in [
        (TableMagic::BlockBased, 6, Crc32c),
        (TableMagic::BlockBased, 8, Crc32c),
        (TableMagic::Cuckoo, 0, Crc32c),
        (TableMagic::Plain, 0, Xxh3),
        (TableMagic::Plain, 7, Xxh3),
    ] {
        assert!(is_argument_error(indexed(magic, version, kind)), "{magic:?} {version} {kind}");
    }
    let sealed =
        |version, checks, metaindex| Footer::with_context(TableMagic::BlockBased, version, checks, metaindex);
    let checks = BlockChecks::with_context(Xxh3, base(1));
    for version in [0, 2, 5, 8, u32::MAX] {
        assert!(is_argument_error(sealed(version, checks, METAINDEX)), "version {version}");
    }
    assert!(is_argument_error(sealed(6, BlockChecks::new(Xxh3), METAINDEX)));
    let huge = BlockHandle { offset: 0, size: 1 << 32 };
    assert!(matches!(sealed(6, checks, huge), Err(Error::NotSupported(_))));
    let most = BlockHandle { offset: 0, size: (1 << 32) - 1 };
    assert!(sealed(6, checks, most).unwrap().encode((1 << 32) + 4).is_ok());
    for footer_offset in [0, FOOTER_OFFSET - 1, FOOTER_OFFSET + 1, u64::MAX] {
        assert!(is_argument_error(with_context(6, Xxh3).encode(footer_offset)), "at {footer_offset}");
    }
    let footer = indexed(TableMagic::BlockBased, 5, Xxh3).unwrap();
    assert!(is_argument_error(footer.encode(FOOTER_OFFSET - 1)));
    assert!(footer.encode(FOOTER_OFFSET + 1).is_ok());
    let far = BlockHandle { offset: u64::MAX, size: 1 };
    let footer = Footer::with_index(TableMagic::BlockBased, 5, Xxh3, METAINDEX, far).unwrap();
    assert!(is_argument_error(footer.encode(u64::MAX)));
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

/// Bytes that come close: a real footer with a few bytes changed.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (any::<prop::sample::Index>(), edits, any::<bool>()).prop_map(|(which, edits, resealed)| {
        let footers = all_footers();
        let (footer, mut bytes) = footers[which.index(footers.len())].clone();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if resealed && footer.format_version() >= 6 {
            seal(&mut bytes, footer.checks().kind());
        }
        bytes
    })
}

proptest! {
    /// What decodes is encoded to the bytes that were read, except the reserved ones; nothing panics.
    #[test]
    fn any_bytes(tail in prop_oneof![nearly(), prop::collection::vec(any::<u8>(), 0..80)], before in 0..4000u64) {
        for file_size in [tail.len() as u64, tail.len() as u64 + before, u64::MAX] {
            let Ok(footer) = Footer::decode(&tail, file_size) else { continue };
            let len = if footer.format_version() == 0 { 48 } else { 53 };
            let mut own = tail[tail.len() - len..].to_vec();
            let footer_offset = file_size - len as u64;
            let again = footer.encode(footer_offset).unwrap();
            if footer.format_version() >= 6 {
                prop_assert_eq!(Footer::decode(&again, file_size).unwrap(), footer);
                own[17..33].fill(0);
                own[5..9].copy_from_slice(&again[5..9]);
            }
            prop_assert_eq!(again, own);
        }
    }

    /// Any footer that can be built comes back.
    #[test]
    fn any_footer(
        version in 2..=7u32,
        kind in prop::sample::select(ChecksumKind::ALL.to_vec()),
        (at, size, gap) in (any::<u64>(), any::<u32>(), 0..1000u64),
        index in any::<u64>(),
        number in 1..=u32::MAX,
    ) {
        let metaindex = BlockHandle { offset: at >> (at % 60) >> 3, size: size.into() };
        let end = metaindex.offset + metaindex.size + 5;
        let (footer, footer_offset) = if version < 6 {
            let index = BlockHandle { offset: index % end, size: 0 };
            let footer = Footer::with_index(TableMagic::BlockBased, version, kind, metaindex, index);
            (footer.unwrap(), end + 5 + gap)
        } else {
            let checks = BlockChecks::with_context(kind, base(number));
            (Footer::with_context(TableMagic::BlockBased, version, checks, metaindex).unwrap(), end)
        };
        let bytes = footer.encode(footer_offset).unwrap();
        prop_assert_eq!(Footer::decode(&bytes, footer_offset + 53).unwrap(), footer);
    }
}
