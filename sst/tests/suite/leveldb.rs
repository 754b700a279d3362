//! LevelDB's tables, built by hand: forms that LevelDB's writers allow, and damage that the reader
//! notices. `ages` has files of LevelDB.

use std::sync::Arc;

use paranoid_memtable::{ChecksumKind, Lookup};
use paranoid_sst::{BlockKind, Error, Result, SortedTable, TableSource};

use crate::by_hand::{ByHand, block, internal};

fn open(bytes: Vec<u8>) -> Result<SortedTable> {
    SortedTable::from_source("000005.ldb", TableSource::memory(Arc::new(bytes)))
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

/// A table of two blocks of equal size, and an index of the same size.
fn two_blocks(change: impl FnOnce(&mut ByHand)) -> ByHand {
    // The file does not store the format version.
    let mut file = ByHand::new(1, ChecksumKind::Crc32c);
    for number in [1u8, 2] {
        let key = internal(&[b'k', number], 9, 1);
        file.data(&key, &block(&[(key.clone(), vec![number; 11])]), 0);
    }
    change(&mut file);
    file
}

#[test]
fn tables_without_properties_are_read() {
    let filter = b"filter.leveldb.BuiltinBloomFilter2";
    // A filter that denies everything if it is read as one of RocksDB.
    let with_filter = two_blocks(|file| file.named(filter, &[0; 69]));
    for (file, blocks) in [(two_blocks(|_| ()), 2), (with_filter, 3)] {
        let table = open(file.finish_leveldb()).unwrap();
        let report = table.verify().unwrap();
        assert_eq!(
            (report.entries, report.data_blocks, report.unaccounted_bytes),
            (2, 2, 0)
        );
        assert_eq!(
            (
                table.footer().format_version(),
                table.properties().iter().count()
            ),
            (0, 0)
        );
        assert_eq!(table.blocks().count(), blocks);
        assert!(table.may_hold(b"of no block"));
        let value = table.get(b"k\x02", 9).unwrap().into_value().unwrap();
        assert_eq!((value.sequence, value.bytes), (9, vec![2; 11]));
        assert_eq!(table.get(b"k\x02", 8).unwrap(), Lookup::NotFound);
    }
    let empty = open(ByHand::new(1, ChecksumKind::Crc32c).finish_leveldb()).unwrap();
    assert_eq!(empty.verify().unwrap().entries, 0);
}

#[test]
fn other_compressions_are_refused_by_name() {
    for (compression, name) in [
        (
            2,
            "compression LevelDB's Zstd or Minecraft's Zlib (type 2 of a LevelDB table)",
        ),
        (
            4,
            "compression Minecraft's raw Zlib (type 4 of a LevelDB table)",
        ),
        (7, "compression of another kind (type 7 of a LevelDB table)"),
    ] {
        let key = internal(b"z", 9, 1);
        let file = two_blocks(|file| file.data(&key, b"compressed", compression));
        let table = open(file.finish_leveldb()).unwrap();
        assert_eq!(refused(table.verify()), name);
        assert_eq!(refused(table.get(b"z", 9)), name);
        assert!(table.get(b"k\x01", 9).unwrap().value().is_some());
    }
}

/// The footer has no checksum. With a flipped bit it names a block that is not one of the last
/// three of the file.
#[test]
fn a_handle_of_another_block_shows() {
    let whole = two_blocks(|_| ()).finish_leveldb();
    let footer_at = whole.len() - 48;
    let table = open(whole.clone()).unwrap();
    let (metaindex, index) = (table.footer().metaindex(), table.footer().index().unwrap());
    let data_size = metaindex.offset / 2 - 5;
    assert!(
        metaindex.offset < 128 && index.offset < 256,
        "handles of few bytes"
    );
    for (first, size) in [
        (0, data_size),
        (data_size + 5, data_size),
        (index.offset, index.size),
    ] {
        let mut bytes = whole.clone();
        bytes[footer_at..footer_at + 8].fill(0);
        let varint = |number: u64| match number {
            0..128 => vec![number as u8],
            _ => vec![number as u8 | 0x80, (number >> 7) as u8],
        };
        let as_index: Vec<u8> = [metaindex.offset, metaindex.size, first, size]
            .into_iter()
            .flat_map(varint)
            .collect();
        bytes[footer_at..footer_at + as_index.len()].copy_from_slice(&as_index);
        let opened = open(bytes);
        match first == index.offset {
            true => drop(opened.unwrap()),
            false => {
                let what = "metaindex, index and footer are not one after the other";
                assert_eq!(damage(opened), (BlockKind::Metaindex, what));
            }
        }
    }
}

/// RocksDB's first releases end their files as LevelDB does, and have properties.
#[test]
fn properties_count_where_there_are_some() {
    for name in [&b"rocksdb.properties"[..], b"rocksdb.stats"] {
        let with = |order: &[u8]| {
            let properties = [(b"rocksdb.comparator".to_vec(), order.to_vec())];
            open(two_blocks(|file| file.named(name, &block(&properties))).finish_leveldb())
        };
        let table = with(b"leveldb.BytewiseComparator").unwrap();
        assert_eq!(table.verify().unwrap().entries, 2);
        assert_eq!(table.properties().iter().count(), 1);
        assert_eq!(
            refused(with(b"rocksdb.Uint64Comparator")),
            "comparator rocksdb.Uint64Comparator"
        );
    }
}
