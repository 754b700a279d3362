//! A table file of any bytes, and whole files with any bytes patched under checksums that check nothing: opening,
//! verifying, gets and walks never panic, and walks end. Files without a patch verify and hold all of their entries.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::{Disk, SortedTable, SortedTableOptions, SortedTableWriter, TableSource};

const ENTRIES: u64 = 24;

/// Whole files of all format versions, and one to be ingested; blocks of kind `none`.
fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| (2..=6).map(file).chain([ingestible()]).collect())
}

fn ingestible() -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("paranoid-fuzz-{}-in.sst", std::process::id()));
    let options = SortedTableOptions::builder().checksum(ChecksumKind::None).block_size(80);
    let options = options.build().expect("options");
    let mut writer = SortedTableWriter::create_ingestible_in(Disk, &path, options).expect("a file");
    for number in 0..ENTRIES {
        writer.add(format!("key{number:02}").as_bytes(), 0, Kind::PUT, &[number as u8; 7]).expect("an entry");
    }
    writer.add_range(b"key03", b"key05", 0).expect("a range");
    writer.finish().expect("a whole file");
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    bytes
}

fn file(version: u32) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("paranoid-fuzz-{}-{version}.sst", std::process::id()));
    let options = SortedTableOptions::builder().format_version(version).checksum(ChecksumKind::None);
    let options = options.block_size(80).index_block_restart_interval(2).build().expect("options");
    let mut writer = SortedTableWriter::create(&path, options).expect("a file");
    for number in 0..ENTRIES {
        let key = format!("key{:02}", number / 2);
        writer.add(key.as_bytes(), 99 - number, Kind::PUT, &[number as u8; 7]).expect("an entry");
    }
    writer.add_range(b"key03", b"key05", 90).expect("a range");
    writer.add_range(b"key04", b"key09", 50).expect("a range");
    writer.finish().expect("a whole file");
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file");
    bytes
}

fn exercise(bytes: Vec<u8>) {
    let len = bytes.len();
    let Ok(table) = SortedTable::from_source("fuzz", TableSource::memory(Arc::new(bytes))) else { return };
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
    // Each step takes at least two bytes of a block, and no block is visited twice.
    for forward in [true, false] {
        let _ = if forward { cursor.first() } else { cursor.last() };
        let mut steps = 0;
        while cursor.is_valid() {
            steps += 1;
            assert!(steps <= len, "a walk without an end");
            let step = if forward { cursor.next() } else { cursor.prev() };
            if step.is_err() {
                break;
            }
        }
    }
}

fuzz_target!(|input: (u8, Vec<(u16, u8)>, &[u8])| {
    let (which, patches, raw) = input;
    let Some(mut bytes) = files().get(usize::from(which % 7)).cloned() else {
        return exercise(raw.to_vec());
    };
    if patches.is_empty() {
        let table = SortedTable::from_source("whole", TableSource::memory(Arc::new(bytes.clone())));
        let report = table.and_then(|table| table.verify()).expect("a whole file");
        assert_eq!(report.entries, ENTRIES);
    }
    let len = bytes.len();
    for (at, value) in patches {
        bytes[usize::from(at) % len] = value;
    }
    exercise(bytes);
});
