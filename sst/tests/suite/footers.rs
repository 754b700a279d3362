//! Footers: literal bytes, every flipped bit, other formats, arbitrary bytes.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::ChecksumKind;
use paranoid_memtable::integrity::BlockChecks;
use paranoid_sst::{BlockHandle, BlockKind, Corruption, Error, Footer};
use proptest::prelude::*;

const LEN: usize = Footer::LEN;
const METAINDEX: BlockHandle = BlockHandle {
    offset: 1210,
    size: 300,
};
const INDEX: BlockHandle = BlockHandle {
    offset: 1005,
    size: 200,
};
const FOOTER_OFFSET: u64 = 1515;
const KINDS: [ChecksumKind; 5] = [
    ChecksumKind::None,
    ChecksumKind::Crc32c,
    ChecksumKind::XxHash32,
    ChecksumKind::XxHash64,
    ChecksumKind::Xxh3,
];

fn base(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a base is not zero")
}

/// A footer of a version and a kind.
fn footer(version: u32, kind: ChecksumKind) -> Footer {
    let (checks, index) = match version {
        6 | 7 => (BlockChecks::with_context(kind, base(123_456_789)), None),
        _ => (BlockChecks::new(kind), Some(INDEX)),
    };
    Footer::new(version, checks, METAINDEX, index).unwrap()
}

/// The bytes of a footer at `FOOTER_OFFSET`.
fn bytes_of(version: u32, kind: ChecksumKind) -> [u8; LEN] {
    footer(version, kind).encode(FOOTER_OFFSET).unwrap()
}

/// A footer of each version and kind, and its bytes at `FOOTER_OFFSET`.
fn all_footers() -> impl Iterator<Item = (Footer, [u8; LEN])> {
    let all = KINDS
        .into_iter()
        .flat_map(|kind| (1..=7).map(move |version| (version, kind)));
    all.map(|(version, kind)| (footer(version, kind), bytes_of(version, kind)))
}

fn decode_at(bytes: &[u8; LEN], offset: u64) -> Result<Footer, Error> {
    let file: Arc<Path> = Path::new("tried.sst").into();
    Footer::decode(&file, bytes, offset)
}

fn decode(bytes: &[u8; LEN]) -> Result<Footer, Error> {
    decode_at(bytes, FOOTER_OFFSET)
}

fn corruption<T: std::fmt::Debug>(result: Result<T, Error>) -> Corruption {
    match result {
        Err(Error::Corruption(report)) => {
            assert_eq!(
                (report.block, &*report.file),
                (BlockKind::Footer, Path::new("tried.sst"))
            );
            report
        }
        other => panic!("want corruption, have {other:?}"),
    }
}

fn refused(bytes: &[u8; LEN]) -> String {
    match decode(bytes) {
        Err(Error::NotSupported { feature, .. }) => feature,
        other => panic!("not refused by name: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn with(mut bytes: [u8; LEN], at: usize, new: &[u8]) -> [u8; LEN] {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Puts the right checksum into the bytes of a footer of version 6 or 7, by public functions.
fn sealed(bytes: [u8; LEN], kind: ChecksumKind) -> [u8; LEN] {
    let bytes = with(bytes, 5, &[0; 4]);
    let number = u32::from_le_bytes(bytes[9..13].try_into().unwrap());
    let modifier = NonZeroU32::new(number).map_or(0, |base| {
        BlockChecks::with_context(kind, base).modifier(FOOTER_OFFSET)
    });
    with(
        bytes,
        5,
        &kind.checksum(&bytes).wrapping_add(modifier).to_le_bytes(),
    )
}

#[test]
fn schema_of_footers() {
    let zeros = "0".repeat(62);
    let tail = "000000f7cff485b741e288";
    let handles = "ba09ac02ed07c801";
    for (number, kind) in [("01", ChecksumKind::Crc32c), ("04", ChecksumKind::Xxh3)] {
        assert_eq!(
            hex(&bytes_of(5, kind)),
            format!("{number}{handles}{zeros}0005{tail}")
        );
    }
    let starts = [
        (ChecksumKind::Crc32c, "013e007a00e637db1a15cd5b072c010000"),
        (ChecksumKind::Xxh3, "043e007a00b9b9057515cd5b072c010000"),
    ];
    for (kind, start) in starts {
        assert_eq!(
            hex(&bytes_of(6, kind)),
            format!("{start}{}06{tail}", "0".repeat(48))
        );
    }
    // Without a checksum, the stored value is the modifier: 123 456 789 ^ 1515.
    assert_eq!(
        hex(&bytes_of(7, ChecksumKind::None)[..17]),
        "003e007a00fec85b0715cd5b072c010000"
    );
}

#[test]
fn footers_there_and_back() {
    for (footer, bytes) in all_footers() {
        assert_eq!(decode(&bytes).unwrap(), footer);
    }
    let footer = footer(7, ChecksumKind::Xxh3);
    assert_eq!(
        (footer.format_version(), footer.metaindex(), footer.index()),
        (7, METAINDEX, None)
    );
    assert_eq!(footer.checks().kind(), ChecksumKind::Xxh3);
    assert_eq!(footer.checks().context_base(), Some(base(123_456_789)));
}

#[test]
fn every_flipped_bit_of_every_footer_shows() {
    for (footer, clean) in all_footers() {
        let sealed = footer.format_version() >= 6 && footer.checks().kind() != ChecksumKind::None;
        for bit in 0..LEN * 8 {
            let mut bytes = clean;
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Without a checksum a reader cannot know the reserved bytes.
            let reserved = footer.format_version() >= 6 && !sealed && (17..33).contains(&(bit / 8));
            match decode(&bytes) {
                Ok(other) => assert!(
                    (other == footer) == reserved && !sealed,
                    "{footer:?} bit {bit}"
                ),
                Err(Error::Corruption(report)) if sealed && report.offset == FOOTER_OFFSET => {
                    let unknown_kind = bit < 8 && report.values.unwrap().1 == u64::from(bytes[0]);
                    assert!(
                        unknown_kind || report.flipped_bit == Some(bit as u64),
                        "{footer:?} bit {bit}"
                    );
                }
                Err(Error::Corruption(_)) => assert!(!reserved),
                Err(Error::NotSupported { .. }) => {
                    assert!(
                        !sealed && footer.format_version() >= 6 && (33..41).contains(&(bit / 8))
                    );
                }
                Err(other) => panic!("{footer:?} bit {bit}: {other}"),
            }
        }
    }
}

#[test]
fn unknown_kinds_magic_numbers_and_versions_are_corruption() {
    for (_, bytes) in all_footers() {
        for number in
            (0..=u8::MAX).filter(|number| KINDS.iter().all(|kind| kind.as_u8() != *number))
        {
            let report = corruption(decode(&with(bytes, 0, &[number])));
            assert_eq!(
                (report.offset, report.values),
                (FOOTER_OFFSET, Some((4, number.into())))
            );
        }
    }
    let clean = bytes_of(6, ChecksumKind::Xxh3);
    let report = corruption(decode(&with(clean, 45, &[clean[45] ^ 0x10])));
    assert_eq!(
        (report.offset, report.flipped_bit),
        (FOOTER_OFFSET + 45, Some(4))
    );
    assert_eq!(
        report.values,
        Some((0x88e2_41b7_85f4_cff7, 0x88e2_41b7_85f4_cfe7))
    );
    assert_eq!(
        corruption(decode(&with(clean, 45, &[0xee; 8]))).flipped_bit,
        None
    );
    for version in [0, 256, 1 << 24, u32::MAX] {
        let report = corruption(decode(&with_version(clean, version)));
        assert_eq!(
            (report.offset, report.values.unwrap().1),
            (FOOTER_OFFSET + 41, u64::from(version))
        );
    }
}

fn with_version(footer: [u8; LEN], version: u32) -> [u8; LEN] {
    with(footer, 41, &version.to_le_bytes())
}

const LEVELDB: u64 = 0xdb47_7524_8b80_fb57;

/// The last 53 bytes of a LevelDB table, whose footer is 48 bytes long.
fn leveldb(start: &[u8]) -> [u8; LEN] {
    with(with([0; LEN], 45, &LEVELDB.to_le_bytes()), 5, start)
}

#[test]
fn footers_of_leveldb_are_read_and_not_written() {
    let handles = [0xba, 0x09, 0xac, 0x02, 0xed, 0x07, 0xc8, 0x01];
    // The bytes before the footer are not part of it.
    for before in [0, 0xff] {
        let footer = decode(&with(leveldb(&handles), 0, &[before; 5])).unwrap();
        assert_eq!(
            (footer.format_version(), footer.metaindex(), footer.index()),
            (0, METAINDEX, Some(INDEX))
        );
        assert_eq!(footer.checks(), BlockChecks::new(ChecksumKind::Crc32c));
        assert!(is_argument_error(footer.encode(FOOTER_OFFSET)));
    }
    // A block may end where the footer begins, which is five bytes later than in other versions.
    let at = |size: u8| decode(&leveldb(&[0, 0, 0xe7, 0x0b, size]));
    assert_eq!(
        at(4).unwrap().index(),
        Some(BlockHandle {
            offset: 1511,
            size: 4
        })
    );
    let report = corruption(at(5));
    assert_eq!(
        (report.offset, report.values),
        (FOOTER_OFFSET + 7, Some((1520, 1521)))
    );
    assert_eq!(
        corruption(decode(&leveldb(&[0xff; 40]))).offset,
        FOOTER_OFFSET + 5
    );
    for padding in 9..45 {
        let report = corruption(decode(&with(leveldb(&[0, 0, 0, 0]), padding, &[1])));
        assert_eq!(
            (report.offset, report.what),
            (FOOTER_OFFSET + padding as u64, "padding that is not zero")
        );
    }
    for bit in 0..64 {
        let report = corruption(decode(&with(
            leveldb(&handles),
            45,
            &(LEVELDB ^ 1 << bit).to_le_bytes(),
        )));
        assert_eq!(
            (report.offset, report.flipped_bit),
            (FOOTER_OFFSET + 45, Some(bit))
        );
        assert_eq!(report.values, Some((LEVELDB, LEVELDB ^ 1 << bit)));
    }
}

/// Intact files of other programs are no damage, and one flipped bit of a footer of this crate is
/// not another format.
#[test]
fn other_formats_are_refused_by_name() {
    let (clean, old) = (
        bytes_of(7, ChecksumKind::Xxh3),
        bytes_of(5, ChecksumKind::Xxh3),
    );
    let others: [(u64, &str); 4] = [
        (
            u64::from_le_bytes(*b"\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"),
            "Pebble",
        ),
        (0x8242_2296_63bf_9564, "plain"),
        (0x4f34_18eb_7a8f_13b8, "plain"),
        (0x9267_89d0_c5f1_7873, "cuckoo"),
    ];
    for (magic, name) in others {
        assert!(refused(&with(clean, 45, &magic.to_le_bytes())).contains(name));
    }
    for version in [8, 9, 40, 255] {
        // 9 is also 1 with a flipped bit.
        for footer in [clean, old]
            .into_iter()
            .take(if version == 9 { 1 } else { 2 })
        {
            assert!(
                refused(&with_version(footer, version)).contains("format version after 7"),
                "{version}"
            );
        }
    }
    for (footer, known) in [(clean, 7), (old, 5)] {
        for bit in 3..8 {
            let report = corruption(decode(&with_version(footer, known ^ 1 << bit)));
            assert_eq!(
                (report.values.unwrap().0, report.flipped_bit),
                (u64::from(known), Some(bit))
            );
        }
    }
}

#[test]
fn damage_under_a_right_checksum_shows() {
    let kind = ChecksumKind::Crc32c;
    let clean = bytes_of(7, kind);
    let changed = |at: usize, new: &[u8]| decode(&sealed(with(clean, at, new), kind));
    assert_eq!(corruption(changed(1, &[0x3f])).offset, FOOTER_OFFSET + 1);
    assert_eq!(corruption(changed(9, &[0; 4])).offset, FOOTER_OFFSET + 9);
    for at in 33..41 {
        let result = changed(at, &[1]);
        assert!(
            matches!(result, Err(Error::NotSupported { .. })),
            "byte {at}: {result:?}"
        );
    }
    for at in 17..33 {
        assert_eq!(
            changed(at, &[0xff]).unwrap(),
            footer(7, kind),
            "byte {at} is reserved"
        );
    }
    // A metaindex that fills the file, and one that is a byte longer.
    let most = (FOOTER_OFFSET - 5) as u32;
    let longest = changed(13, &most.to_le_bytes()).unwrap();
    assert_eq!(
        longest.metaindex(),
        BlockHandle {
            offset: 0,
            size: most.into()
        }
    );
    for size in [most + 1, u32::MAX] {
        assert_eq!(
            corruption(changed(13, &size.to_le_bytes())).offset,
            FOOTER_OFFSET + 13
        );
    }
    // The footer, read from another offset than its own.
    assert_eq!(
        corruption(decode_at(&clean, FOOTER_OFFSET + 1)).offset,
        FOOTER_OFFSET + 1
    );
}

#[test]
fn handles_have_one_spelling_and_end_before_the_footer() {
    let version_5 = |start: &[u8]| {
        let mut bytes = bytes_of(5, ChecksumKind::Xxh3);
        bytes[1..41].fill(0);
        with(bytes, 1, start)
    };
    let cases: [(&[u8], u64); 9] = [
        (&[0xff; 40], 1),            // does not end within ten bytes
        (&[0x80, 0x00], 1),          // zero in two bytes
        (&[1, 0x81, 0x80, 0x00], 1), // one in three bytes
        (
            &[
                1, 2, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2,
            ],
            3,
        ), // over 64 bits
        (&[0, 0, 0, 0, 0, 7], 6),    // padding
        (&[0xe7, 0x0b, 0, 0, 0], 1), // metaindex ends at 1511, its trailer at 1516
        (&[0, 0, 0, 0xe7, 0x0b], 3), // the index, too
        (
            &[
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0, 0,
            ],
            1,
        ), // sum over 64 bits
        (
            &[
                0, 0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0,
            ],
            1,
        ), // so with the trailer
    ];
    for (start, at) in cases {
        assert_eq!(
            corruption(decode(&version_5(start))).offset,
            FOOTER_OFFSET + at,
            "{start:02x?}"
        );
    }
    let longest = decode(&version_5(&[0xe6, 0x0b, 0, 0, 0])).unwrap();
    let empty = |offset| BlockHandle { offset, size: 0 };
    assert_eq!(
        (longest.metaindex(), longest.index()),
        (empty(1510), Some(empty(0)))
    );
    // The largest possible numbers.
    let far = BlockHandle {
        offset: u64::MAX - 60,
        size: 2,
    };
    let footer = Footer::new(2, BlockChecks::new(ChecksumKind::None), far, Some(INDEX)).unwrap();
    assert_eq!(
        decode_at(&footer.encode(u64::MAX - 53).unwrap(), u64::MAX - 53).unwrap(),
        footer
    );
}

fn is_argument_error<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::InvalidArgument(_)))
}

#[test]
fn footers_that_make_no_sense_are_refused() {
    let plain = BlockChecks::new(ChecksumKind::Xxh3);
    let bound = BlockChecks::with_context(ChecksumKind::Xxh3, base(1));
    for version in [0, 1, 2, 5, 6, 7, 8, u32::MAX] {
        let is_old = (1..=5).contains(&version);
        let is_new = (6..=7).contains(&version);
        for (checks, index, fits) in [
            (plain, Some(INDEX), is_old),
            (bound, None, is_new),
            (plain, None, false),
            (bound, Some(INDEX), false),
            (BlockChecks::new(ChecksumKind::Crc32), Some(INDEX), false),
        ] {
            let made = Footer::new(version, checks, METAINDEX, index);
            assert!(
                if fits {
                    made.is_ok()
                } else {
                    is_argument_error(made)
                },
                "{version} {checks:?} {index:?}"
            );
        }
    }
    assert!(is_argument_error(Footer::new(
        6,
        bound,
        BlockHandle {
            offset: 0,
            size: 1 << 32
        },
        None
    )));
    let most = BlockHandle {
        offset: 0,
        size: (1 << 32) - 1,
    };
    assert!(
        Footer::new(6, bound, most, None)
            .unwrap()
            .encode((1 << 32) + 4)
            .is_ok()
    );
    for footer_offset in [0, FOOTER_OFFSET - 1, FOOTER_OFFSET + 1, u64::MAX] {
        assert!(
            is_argument_error(footer(6, ChecksumKind::Xxh3).encode(footer_offset)),
            "at {footer_offset}"
        );
    }
    let old = footer(5, ChecksumKind::Xxh3);
    assert!(is_argument_error(old.encode(FOOTER_OFFSET - 1)));
    assert!(old.encode(FOOTER_OFFSET + 1).is_ok());
    let far = BlockHandle {
        offset: u64::MAX,
        size: 1,
    };
    assert!(is_argument_error(
        Footer::new(5, plain, METAINDEX, Some(far))
            .unwrap()
            .encode(u64::MAX - 1)
    ));
}

/// Nearly right bytes: a real footer with a few bytes changed.
fn nearly() -> impl Strategy<Value = [u8; LEN]> {
    let edits = prop::collection::vec((0..LEN, any::<u8>()), 0..4);
    (
        1..=7u32,
        prop::sample::select(KINDS.to_vec()),
        edits,
        any::<bool>(),
    )
        .prop_map(|(version, kind, edits, resealed)| {
            let bytes = edits
                .into_iter()
                .fold(bytes_of(version, kind), |bytes, (at, byte)| {
                    with(bytes, at, &[byte])
                });
            if resealed && version >= 6 {
                sealed(bytes, kind)
            } else {
                bytes
            }
        })
}

fn any_tail() -> impl Strategy<Value = [u8; LEN]> {
    let bytes = prop::collection::vec(any::<u8>(), LEN).prop_map(|bytes| bytes.try_into().unwrap());
    let start = prop::collection::vec(any::<u8>(), 0..9).prop_map(|start| leveldb(&start));
    prop_oneof![nearly(), bytes, start]
}

proptest! {
    /// A decoded footer encodes to the bytes that were read, except the reserved ones. Nothing
    /// panics.
    #[test]
    fn any_bytes(tail in any_tail(), offset in 0..4000u64) {
        for offset in [0, offset, FOOTER_OFFSET, u64::MAX - 53] {
            let Ok(footer) = decode_at(&tail, offset) else { continue };
            if footer.format_version() == 0 {
                prop_assert!(footer.encode(offset).is_err());
                continue;
            }
            let again = footer.encode(offset).unwrap();
            let mut own = tail;
            if footer.format_version() >= 6 {
                prop_assert_eq!(decode_at(&again, offset).unwrap(), footer);
                own[17..33].fill(0);
                own[5..9].copy_from_slice(&again[5..9]);
            }
            prop_assert_eq!(again, own);
        }
    }

    /// Any footer that can be built is decoded again.
    #[test]
    fn any_footer(
        version in 1..=7u32,
        kind in prop::sample::select(KINDS.to_vec()),
        (at, size, gap) in (any::<u64>(), any::<u32>(), 0..1000u64),
        index in any::<u64>(),
        number in 1..=u32::MAX,
    ) {
        let metaindex = BlockHandle { offset: at >> (at % 60) >> 3, size: size.into() };
        let end = metaindex.offset + metaindex.size + 5;
        let (footer, footer_offset) = if version < 6 {
            let index = BlockHandle { offset: index % end, size: 0 };
            (Footer::new(version, BlockChecks::new(kind), metaindex, Some(index)), end + 5 + gap)
        } else {
            (Footer::new(version, BlockChecks::with_context(kind, base(number)), metaindex, None), end)
        };
        let footer = footer.unwrap();
        prop_assert_eq!(decode_at(&footer.encode(footer_offset).unwrap(), footer_offset).unwrap(), footer);
    }
}
