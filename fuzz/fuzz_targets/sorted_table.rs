//! Reads a table file of any bytes, and whole files with any bytes patched under checksums of kind
//! `none`. Opening, verifying, gets and walks never panic, and walks end. Files without a patch
//! verify and hold all of their entries. The blocks of a LevelDB table always have checksums, which
//! are computed again after a patch.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::{
    BlockHandle, Disk, Result, SortedTable, SortedTableOptions, SortedTableWriter, TableSource,
};

const ENTRIES: u64 = 24;

/// The inputs that patch the LevelDB table.
const LEVELDB: std::ops::Range<u8> = 0x80..0x90;
const LEVELDB_ENTRIES: u64 = 160;
/// Bytes to which one byte of a snappy block may decode.
const SNAPPY_REACH: usize = 22;

/// Whole files of all format versions, and one for ingestion. The checksum kind of their blocks is
/// `none`.
fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| (2..=6).map(file).chain([ingestible()]).collect())
}

fn ingestible() -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("paranoid-fuzz-{}-in.sst", std::process::id()));
    let options = SortedTableOptions::builder()
        .checksum(ChecksumKind::None)
        .block_size(80);
    let options = options.build().expect("options");
    let mut writer = SortedTableWriter::create_ingestible_in(Disk, &path, options).expect("a file");
    for number in 0..ENTRIES {
        writer
            .add(
                format!("key{number:02}").as_bytes(),
                0,
                Kind::PUT,
                &[number as u8; 7],
            )
            .expect("an entry");
    }
    writer.add_range(b"key03", b"key05", 0).expect("a range");
    writer.finish().expect("a whole file");
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    bytes
}

fn file(version: u32) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!(
        "paranoid-fuzz-{}-{version}.sst",
        std::process::id()
    ));
    let options = SortedTableOptions::builder()
        .format_version(version)
        .checksum(ChecksumKind::None);
    let options = options
        .block_size(80)
        .index_block_restart_interval(2)
        .build()
        .expect("options");
    let mut writer = SortedTableWriter::create(&path, options).expect("a file");
    for number in 0..ENTRIES {
        let key = format!("key{:02}", number / 2);
        writer
            .add(key.as_bytes(), 99 - number, Kind::PUT, &[number as u8; 7])
            .expect("an entry");
    }
    writer.add_range(b"key03", b"key05", 90).expect("a range");
    writer.add_range(b"key04", b"key09", 50).expect("a range");
    writer.finish().expect("a whole file");
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    bytes
}

fn open(bytes: Vec<u8>) -> Result<SortedTable> {
    SortedTable::from_source("fuzz", TableSource::memory(Arc::new(bytes)))
}

/// A file that LevelDB wrote, and its blocks.
fn leveldb() -> &'static (Vec<u8>, Vec<BlockHandle>) {
    static FILE: OnceLock<(Vec<u8>, Vec<BlockHandle>)> = OnceLock::new();
    FILE.get_or_init(|| {
        let bytes = include_bytes!("../../sst/tests/data/leveldb-1.23-snappy-filter.ldb").to_vec();
        let table = open(bytes.clone()).expect("a whole file");
        assert_eq!(
            table.verify().expect("a whole file").entries,
            LEVELDB_ENTRIES
        );
        let mut blocks: Vec<BlockHandle> = table.blocks().map(|(_, handle)| handle).collect();
        let mut cursor = table.cursor();
        cursor.first().expect("an entry");
        while let Some(block) = cursor.block().filter(|_| cursor.is_valid()) {
            blocks.push(block);
            cursor.next().expect("a step");
        }
        blocks.dedup();
        (bytes, blocks)
    })
}

/// The file with patches, and with correct checksums.
fn patched_leveldb(patches: &[(u16, u8)]) -> Vec<u8> {
    let (whole, blocks) = leveldb();
    let mut bytes = whole.clone();
    for &(at, value) in patches {
        bytes[usize::from(at) % whole.len()] = value;
    }
    for block in blocks {
        let (start, end) = (block.offset as usize, (block.offset + block.size) as usize);
        let checks = BlockChecks::new(ChecksumKind::Crc32c);
        let trailer = checks.trailer(&bytes[start..end], bytes[end], block.offset);
        bytes[end..end + trailer.len()].copy_from_slice(&trailer);
    }
    bytes
}

fn exercise(bytes: Vec<u8>) {
    let len = bytes.len();
    let Ok(table) = open(bytes) else { return };
    let _ = table.verify();
    let mut cursor = table.cursor();
    for key in [&b""[..], b"key01", b"key04", b"key99", b"\xff"] {
        let _ = table.get(key, u64::MAX);
        let _ = table.get(key, 60);
        if cursor.seek(key, 70).is_ok() {
            let _ = cursor.prev();
        }
        if cursor.seek_for_prev(key, 70).is_ok() {
            let _ = cursor.next();
        }
    }
    // Each step takes at least two bytes of a block, and no block is visited twice. Blocks may be
    // compressed.
    for forward in [true, false] {
        let _ = if forward {
            cursor.first()
        } else {
            cursor.last()
        };
        let mut steps = 0;
        while cursor.is_valid() {
            steps += 1;
            assert!(steps <= SNAPPY_REACH * len, "a walk without an end");
            let step = if forward {
                cursor.next()
            } else {
                cursor.prev()
            };
            if step.is_err() {
                break;
            }
        }
    }
}

fuzz_target!(|input: (u8, Vec<(u16, u8)>, &[u8])| {
    let (which, patches, raw) = input;
    if LEVELDB.contains(&which) {
        return exercise(patched_leveldb(&patches));
    }
    let Some(mut bytes) = files().get(usize::from(which % 7)).cloned() else {
        return exercise(raw.to_vec());
    };
    if patches.is_empty() {
        let report = open(bytes.clone())
            .and_then(|table| table.verify())
            .expect("a whole file");
        assert_eq!(report.entries, ENTRIES);
    }
    let len = bytes.len();
    for (at, value) in patches {
        bytes[usize::from(at) % len] = value;
    }
    exercise(bytes);
});
