//! Files of other programs: old versions, compressed ones, other formats, blocks with unknown
//! names, and blocks that no writer makes.

use std::path::PathBuf;
use std::sync::Arc;

use paranoid_memtable::ChecksumKind;
use paranoid_sst::{BlockHandle, BlockKind, Error, Footer, Result, SortedTable, TableSource};

use crate::by_hand::{ByHand, block, internal, one_restart};
use crate::rocksdb::rows_of;

fn open(bytes: Vec<u8>) -> Result<SortedTable> {
    SortedTable::from_source("wild.sst", TableSource::memory(Arc::new(bytes)))
}

fn kept(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::read(folder.join(format!("{name}.sst"))).unwrap()
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::NotSupported { feature, .. }) => feature,
        other => panic!("not refused by name: {other:?}"),
    }
}

fn damage<T: std::fmt::Debug>(result: Result<T>) -> (BlockKind, &'static str) {
    match result {
        Err(Error::Corruption(report)) => (report.block, report.what),
        other => panic!("no damage was found: {other:?}"),
    }
}

fn entries(count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count)
        .map(|n| {
            (
                internal(format!("key{n:04}").as_bytes(), 9, 1),
                vec![n as u8; 5],
            )
        })
        .collect()
}

/// A file of one data block. `change` adds other blocks.
fn file(change: impl FnOnce(&mut ByHand)) -> Vec<u8> {
    let entries = entries(4);
    let mut file = ByHand::new(5, ChecksumKind::Xxh3);
    file.data(&entries[3].0, &block(&entries), 0);
    change(&mut file);
    file.finish()
}

fn property(name: &str, value: &[u8]) -> Result<SortedTable> {
    let (name, value) = (format!("rocksdb.{name}").into_bytes(), value.to_vec());
    open(file(|file| {
        file.properties.insert(name, value);
    }))
}

/// A file of RocksDB 7.8. In version 1 the size before an lz4 block has eight bytes.
#[test]
fn format_version_1_is_read() {
    let table = open(kept("format-version-1")).unwrap();
    assert_eq!(table.footer().format_version(), 1);
    assert_eq!(
        table.verify().unwrap().entries,
        rows_of(&table).len() as u64
    );
    for (compression, is_read) in [
        ("snappy", cfg!(feature = "snappy")),
        ("lz4", cfg!(feature = "lz4")),
        ("zstd", cfg!(feature = "zstd")),
    ] {
        let table = open(kept(&format!("version-1-{compression}")));
        if !is_read {
            assert!(refused(table).to_lowercase().contains(compression));
            continue;
        }
        let table = table.unwrap();
        assert_eq!(table.verify().unwrap().entries, 12);
        for number in 0..12 {
            let value = b"value ".repeat(number + 4);
            let found = table.get(format!("key{number:02}").as_bytes(), 9).unwrap();
            assert_eq!(found.value(), Some(&*value));
        }
    }
}

#[test]
fn other_formats_are_refused_by_name_at_open() {
    assert!(refused(open(kept("pebble-magic"))).contains("Pebble"));
    let mut bytes = file(|_| {});
    let version_at = bytes.len() - 12;
    bytes[version_at] = 8;
    assert!(refused(open(bytes.clone())).contains("version after 7"));
    bytes[version_at] = 5 + 8;
    damage(open(bytes));
}

/// The properties state the compression before the first block is read.
#[test]
fn compressions_and_indexes_are_refused_by_name_at_open() {
    property("compression", b"NoCompression")
        .unwrap()
        .verify()
        .unwrap();
    property("compression", b"").unwrap().verify().unwrap();
    property("compression", b";;").unwrap().verify().unwrap();
    for (value, wanted) in [
        ("Zlib", "compression Zlib (type 2)"),
        ("BZip2", "compression BZip2 (type 3)"),
        ("Xpress", "compression Xpress (type 6)"),
        ("ZSTDNotFinal", "compression ZSTDNotFinal"),
        ("BuiltinV2;02;", "compression Zlib (type 2)"),
        ("BuiltinV2;80;", "compression of another kind (type 128)"),
        ("Ours;07;", "compression by Ours;07;"),
    ] {
        assert_eq!(refused(property("compression", value.as_bytes())), wanted);
    }
    for (name, kind, is_read) in [
        ("Snappy", 1, cfg!(feature = "snappy")),
        ("LZ4", 4, cfg!(feature = "lz4")),
        ("LZ4HC", 5, cfg!(feature = "lz4")),
        ("ZSTD", 7, cfg!(feature = "zstd")),
    ] {
        for value in [name.to_string(), format!("BuiltinV2;{kind:02x};")] {
            let table = property("compression", value.as_bytes());
            if is_read {
                table.unwrap().verify().unwrap();
            } else {
                assert_eq!(refused(table), format!("compression {name} (type {kind})"));
            }
        }
    }
    let index = |kind: u8| property("block.based.table.index.type", &[kind, 0, 0, 0]);
    index(1).unwrap().verify().unwrap();
    assert_eq!(refused(index(2)), "index of two levels (type 2)");
    assert_eq!(refused(index(3)), "index with first keys (type 3)");
    assert_eq!(refused(index(9)), "index type 9");
}

/// A block may have another type than its file's property states.
#[test]
fn a_block_of_an_unread_type_is_refused_by_name() {
    let entries = entries(1);
    let mut file = ByHand::new(5, ChecksumKind::Crc32c);
    file.data(&entries[0].0, b"deflated", 2);
    let table = open(file.finish()).unwrap();
    assert_eq!(refused(table.verify()), "compression Zlib (type 2)");
    assert_eq!(
        refused(table.get(b"key0000", 9)),
        "compression Zlib (type 2)"
    );
}

/// A block of one zstd frame, built by hand: it holds the bytes as they are.
#[cfg(feature = "zstd")]
#[test]
fn a_zstd_block_is_one_frame_of_the_stated_size() {
    let frame = |bytes: &[u8]| {
        let start = [
            0x28,
            0xb5,
            0x2f,
            0xfd,
            0x20,
            bytes.len() as u8,
            1 | (bytes.len() as u8) << 3,
            bytes.len() as u8 >> 5,
            0,
        ];
        [&start, bytes].concat()
    };
    let with = |size: usize, frames: &[u8]| {
        let mut file = ByHand::new(5, ChecksumKind::Xxh3);
        file.data(&entries(1)[0].0, &[&[size as u8][..], frames].concat(), 7);
        open(file.finish()).unwrap().verify()
    };
    let raw = block(&entries(1));
    assert_eq!(with(raw.len(), &frame(&raw)).unwrap().entries, 1);
    let wrong = (BlockKind::Data, "a block that does not decompress");
    for size in [0, raw.len() - 1, raw.len() + 1, 127] {
        assert_eq!(damage(with(size, &frame(&raw))), wrong, "{size}");
    }
    let two = [frame(&raw[..9]), frame(&raw[9..])].concat();
    assert_eq!(damage(with(raw.len(), &two)), wrong);
}

/// Before version 6 no checksum covers the index's handle, and with a flipped bit it may name a
/// block of the same size.
#[test]
fn an_index_that_is_another_block_shows() {
    for version in 1..=5 {
        let mut file = ByHand::new(version, ChecksumKind::Xxh3);
        for part in entries(8).chunks(2) {
            file.data(&part[1].0, &block(part), 0);
        }
        let data_size = 4 * (block(&entries(2)).len() as u8 + 5);
        file.properties
            .insert(b"rocksdb.data.size".to_vec(), vec![data_size | 0x80, 1]);
        file.named(b"filter.of.somebody.else", b"its bytes");
        let whole = file.finish();
        let table = open(whole.clone()).unwrap();
        table.verify().unwrap();
        let mut others: Vec<BlockHandle> = table.blocks().map(|(_, handle)| handle).collect();
        others.pop();
        let mut cursor = table.cursor();
        cursor.first().unwrap();
        while cursor.is_valid() {
            others.extend(cursor.block());
            cursor.next().unwrap();
        }
        assert_eq!(others.len(), 3 + 8);
        let (footer, at) = (table.footer(), whole.len() - Footer::LEN);
        for other in others {
            let footer =
                Footer::new(version, footer.checks(), footer.metaindex(), Some(other)).unwrap();
            let bytes = [&whole[..at], &footer.encode(at as u64).unwrap()].concat();
            let found = open(bytes).and_then(|table| table.get(b"zebra", 9));
            assert_eq!(
                damage(found).1,
                "another block in place of the index",
                "{other:?}"
            );
        }
    }
}

/// Every block that the metaindex names is verified, also one with an unknown name.
#[test]
fn blocks_with_other_names_are_verified() {
    damage(open(kept("old-filter-damaged")).and_then(|table| table.verify()));
    for (name, kind) in [
        (&b"filter.rocksdb.BuiltinBloomFilter"[..], BlockKind::Filter),
        (b"fullfilter.of.somebody.else", BlockKind::Filter),
        (
            b"partitionedfilter.rocksdb.BuiltinBloomFilter",
            BlockKind::Filter,
        ),
        (b"rocksdb.hashindex.prefixes", BlockKind::Other),
    ] {
        let whole = file(|file| file.named(name, b"its bytes"));
        let at = whole
            .windows(9)
            .position(|window| window == b"its bytes")
            .unwrap();
        let table = open(whole.clone()).unwrap();
        assert_eq!(table.verify().unwrap().unaccounted_bytes, 0);
        assert!(
            table
                .blocks()
                .any(|(found, handle)| found == kind && handle.offset == at as u64)
        );
        for bit in 0..8 * (9 + 5) {
            let mut bytes = whole.clone();
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                damage(open(bytes).unwrap().verify()),
                (kind, "checksum mismatch")
            );
        }
    }
}

/// Range deletions are among the entries, or, as in RocksDB 5.15 to 5.18, only in a count of their
/// own.
#[test]
fn counts_in_the_properties_are_those_of_the_file() {
    let verified = |counts: &[(&str, Option<u64>)]| {
        let file = file(|file| {
            file.named(
                b"rocksdb.range_del",
                &block(&[(internal(b"a", 7, 15), b"bc".to_vec())]),
            );
            let stated = counts
                .iter()
                .filter_map(|(name, count)| Some((*name, (*count)? as u8)));
            let stated =
                stated.map(|(name, count)| (format!("rocksdb.{name}").into_bytes(), vec![count]));
            file.properties.extend(stated);
        });
        open(file).unwrap().verify()
    };
    for entries in 0..8 {
        for ranges in [None, Some(0), Some(1), Some(2)] {
            let holds = entries == 5 && matches!(ranges, None | Some(1))
                || (entries, ranges) == (4, Some(1));
            let report = verified(&[
                ("num.entries", Some(entries)),
                ("num.range-deletions", ranges),
            ]);
            match holds {
                true => assert_eq!(report.unwrap().entries, 4),
                false => assert_eq!(
                    damage(report).0,
                    BlockKind::Properties,
                    "{entries} {ranges:?}"
                ),
            }
        }
    }
    for (name, right) in [
        ("num.data.blocks", 1),
        ("raw.key.size", 4 * 15 + 9),
        ("raw.value.size", 4 * 5 + 2),
        ("key.smallest.seqno", 7),
        ("key.largest.seqno", 9),
    ] {
        verified(&[(name, Some(right))]).unwrap();
        for wrong in [right - 1, right + 1] {
            let what = "a count that the file does not hold";
            assert_eq!(
                damage(verified(&[(name, Some(wrong))])),
                (BlockKind::Properties, what),
                "{name}"
            );
        }
    }
}

/// A block is read once for all of its names. Otherwise reading could take time quadratic in the
/// size of the file.
#[test]
fn a_block_has_one_name() {
    let table = open(file(|file| {
        file.named(b"some.block", b"its bytes");
        file.renamed(b"some.block", b"some.other");
    }));
    assert_eq!(damage(table.unwrap().verify()).1, "blocks that overlap");
}

/// Every entry of a file for ingestion has the global sequence number. An entry with another one is
/// damage.
#[test]
fn an_ingested_file_with_sequence_numbers_is_refused() {
    let what = "a sequence number in an ingested file";
    let table = open(kept("external-with-sequences")).unwrap();
    let mut cursor = table.cursor();
    assert_eq!(damage(table.verify()).1, what);
    assert_eq!(damage(cursor.first()).1, what);
    assert_eq!(damage(cursor.last()).1, what);
    assert!(cursor.entry().is_none());
    let keys: Vec<_> = [&b"key"[..], b"k", b"a"]
        .into_iter()
        .map(|key| table.get(key, 3))
        .collect();
    assert!(
        keys.iter()
            .any(|found| matches!(found, Err(Error::Corruption(_)))),
        "{keys:?}"
    );
    let ranges = file(|file| {
        file.properties.insert(
            b"rocksdb.external_sst_file.version".to_vec(),
            vec![2, 0, 0, 0],
        );
        file.properties.insert(
            b"rocksdb.external_sst_file.global_seqno".to_vec(),
            vec![0; 8],
        );
        file.named(
            b"rocksdb.range_del",
            &block(&[(internal(b"a", 7, 15), b"b".to_vec())]),
        );
    });
    assert_eq!(damage(open(ranges)), (BlockKind::RangeDeletions, what));
}

/// A block of one restart whose keys share one long key would make a walk take time quadratic in
/// its size.
#[test]
fn keys_that_share_without_bound_are_refused() {
    let long = |count: u64| -> Vec<(Vec<u8>, Vec<u8>)> {
        let key = vec![b'k'; 2000];
        let key = |n: u64| internal(&[&key[..], &n.to_be_bytes()].concat(), 9, 1);
        (0..count).map(|n| (key(n), vec![])).collect()
    };
    let with = |entries: &[(Vec<u8>, Vec<u8>)]| {
        let mut file = ByHand::new(5, ChecksumKind::Xxh3);
        file.data(&entries[entries.len() - 1].0, &one_restart(entries), 0);
        open(file.finish()).unwrap()
    };
    let entries = long(100);
    let table = with(&entries);
    table.verify().unwrap();
    assert_eq!(rows_of(&table).len(), 100);
    let table = with(&long(5_000));
    assert_eq!(
        damage(table.verify()),
        (
            BlockKind::Data,
            "keys that share more than 128 times the block"
        )
    );
    damage(table.cursor().last());
    // Such a file is not written either.
    for interval in [0, 129] {
        let options = paranoid_sst::SortedTableOptions::builder();
        assert!(
            options
                .clone()
                .block_restart_interval(interval)
                .build()
                .is_err()
        );
        assert!(
            options
                .index_block_restart_interval(interval)
                .build()
                .is_err()
        );
    }
}

#[test]
fn walks_back_over_one_restart_are_those_forth() {
    let entries = entries(300);
    let mut file = ByHand::new(4, ChecksumKind::XxHash32);
    for part in entries.chunks(100) {
        file.data(&part[99].0, &one_restart(part), 0);
    }
    let table = open(file.finish()).unwrap();
    let rows = rows_of(&table);
    let (mut cursor, mut back) = (table.cursor(), vec![]);
    cursor.last().unwrap();
    while let Some(entry) = cursor.entry() {
        back.push((entry.user_key.to_vec(), entry.value.to_vec()));
        // A step back and forth on the way.
        if back.len() % 7 == 0 {
            cursor.prev().unwrap();
            cursor.next().unwrap();
        }
        cursor.prev().unwrap();
    }
    back.reverse();
    assert_eq!(
        back,
        rows.iter()
            .map(|row| (row.key.clone(), row.value.clone()))
            .collect::<Vec<_>>()
    );
}

#[test]
fn short_files_are_called_short() {
    assert_eq!(
        damage(open(vec![])),
        (BlockKind::Footer, "a file of 0 bytes is too short")
    );
    assert_eq!(
        damage(open(vec![0; 52])),
        (BlockKind::Footer, "a file that is too short for a footer")
    );
}
