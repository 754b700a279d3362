//! Literal bytes that RocksDB writes for four entries.

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::{BlockKind, SortedTable, SortedTableOptions, SortedTableWriter};

use crate::identity::block;
use crate::model::{file_in, folder, hex};

const DATA: &str = "0009016101030000000000003101090062000200000000000002090363020100000000000078797a0000000001000000";
const TRAILERS: [&str; 5] = [
    "0000000000",
    "0052a0780b",
    "003941b919",
    "0045012cb5",
    "00dd762e56",
];
const FILTER: &str = "0200000000000e000000000000400000000000000000001000000000040000402000030002400000000010000000000000000020800000000000010000004000ff00060000";
const INDEX: &str = "000361626300300000000001000000";
const RANGE_DELETIONS: &str = "000901620f09000000000000640000000001000000";

/// The filter of format versions 2 to 4: 6 probes, 1 line.
const OLD_FILTER: &str = "400000400000000000002000000000000019200000000000080000100000000000000000008001020000004000000000000000000000050000000020800000000601000000";

#[test]
fn the_bytes_of_a_small_file() {
    for (number, trailer) in TRAILERS.iter().enumerate() {
        let kind = ChecksumKind::try_from(number as u8).unwrap();
        let folder = folder();
        let path = file_in(&folder);
        let options = SortedTableOptions::builder()
            .checksum(kind)
            .build()
            .unwrap();
        let mut writer = SortedTableWriter::create(&path, options).unwrap();
        writer.add(b"a", 3, Kind::PUT, b"1").unwrap();
        writer.add(b"ab", 2, Kind::DELETE, b"").unwrap();
        writer.add(b"abc", 1, Kind::MERGE, b"xyz").unwrap();
        writer.add_range(b"b", b"d", 9).unwrap();
        let written = writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(written.file_size, bytes.len() as u64);
        assert_eq!(hex(&bytes[..48]), DATA);
        assert_eq!(hex(&bytes[48..53]), *trailer, "{kind}");
        let table = SortedTable::open(&path).unwrap();
        for (wanted, text) in [
            (BlockKind::Filter, FILTER),
            (BlockKind::Index, INDEX),
            (BlockKind::RangeDeletions, RANGE_DELETIONS),
        ] {
            let handle = table.blocks().find(|(kind, _)| *kind == wanted).unwrap().1;
            let (start, len) = (handle.offset as usize, handle.size as usize);
            assert_eq!(hex(&bytes[start..start + len]), text, "{wanted:?}");
            let stored = &bytes[start..start + len + 5];
            assert_eq!(
                BlockChecks::new(kind)
                    .verify(stored, handle.offset)
                    .unwrap()
                    .1,
                0
            );
        }
        assert_eq!(table.verify().unwrap().entries, 3);
    }
}

#[test]
fn the_old_filter_of_a_small_file() {
    for version in 2..=4 {
        let folder = folder();
        let options = SortedTableOptions::builder()
            .format_version(version)
            .build()
            .unwrap();
        let mut writer = SortedTableWriter::create(file_in(&folder), options).unwrap();
        for (key, sequence) in [(&b"a"[..], 3), (b"ab", 2), (b"abc", 1)] {
            writer.add(key, sequence, Kind::PUT, b"").unwrap();
        }
        writer.finish().unwrap();
        let (bytes, table) = (
            std::fs::read(file_in(&folder)).unwrap(),
            SortedTable::open(file_in(&folder)).unwrap(),
        );
        assert_eq!(
            hex(block(&bytes, &table, BlockKind::Filter)),
            OLD_FILTER,
            "version {version}"
        );
    }
}
