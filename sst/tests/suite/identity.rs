//! Compares files that RocksDB wrote: this crate's reader finds the entries that `sst_dump` finds,
//! and its writer, with the same entries and options, makes the same bytes of data, index and
//! filter blocks.

use std::path::{Path, PathBuf};

use paranoid_memtable::ChecksumKind;
use paranoid_sst::{BlockKind, IndexShortening, SortedTable, SortedTableOptions};

use crate::model::{Model, file_in, folder};
use crate::rng::{Watchdog, amount, seed_or};
use crate::rocksdb::rows_of;
use crate::tools;

/// Table files below a folder.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .collect()
}

pub(crate) fn block<'a>(bytes: &'a [u8], table: &SortedTable, wanted: BlockKind) -> &'a [u8] {
    let handle = table.blocks().find(|(kind, _)| *kind == wanted).unwrap().1;
    &bytes[handle.offset as usize..][..handle.size as usize]
}

fn agree(theirs: &Path, version: u32, kind: ChecksumKind, sst_dump: &Path) {
    let table = SortedTable::open(theirs).unwrap();
    let report = table.verify().unwrap();
    assert_eq!(
        (
            table.footer().format_version(),
            table.footer().checks().kind()
        ),
        (version, kind)
    );
    let rows = rows_of(&table);
    assert!(
        rows == tools::scan(sst_dump, theirs),
        "scans of {} differ",
        theirs.display()
    );
    assert_eq!(report.unaccounted_bytes, 0);
    let ranges = table
        .range_tombstones()
        .map(|(start, end, at)| (start.to_vec(), end.to_vec(), at))
        .collect();
    let folder = folder();
    let options = SortedTableOptions::builder()
        .format_version(version)
        .checksum(kind);
    let written = Model { rows, ranges }.write(
        &file_in(&folder),
        options.index_shortening(IndexShortening::SeparatorsAndSuccessor),
    );
    let (their_bytes, our_bytes) = (
        std::fs::read(theirs).unwrap(),
        std::fs::read(&written.path).unwrap(),
    );
    let ours = SortedTable::open(&written.path).unwrap();
    assert!(written.data_blocks > 1 && report.data_size == written.data_size);
    assert!(
        their_bytes[..report.data_size as usize] == our_bytes[..report.data_size as usize],
        "data blocks"
    );
    // Before version 3 separators have a kind that changes between releases.
    if version >= 3 {
        let (their_index, our_index) = (
            block(&their_bytes, &table, BlockKind::Index),
            block(&our_bytes, &ours, BlockKind::Index),
        );
        assert!(their_index == our_index, "index, version {version}");
    }
    let (their_filter, our_filter) = (
        block(&their_bytes, &table, BlockKind::Filter),
        block(&our_bytes, &ours, BlockKind::Filter),
    );
    assert!(their_filter == our_filter, "filter, version {version}");
    if table.range_tombstones().next().is_some() {
        let (their_ranges, our_ranges) = (
            block(&their_bytes, &table, BlockKind::RangeDeletions),
            block(&our_bytes, &ours, BlockKind::RangeDeletions),
        );
        assert!(their_ranges == our_ranges, "range deletions");
    }
}

#[test]
fn files_of_rocksdb_are_read_and_written_again() {
    let seed = seed_or(0x1d);
    let _watchdog = Watchdog::new(
        "identity::files_of_rocksdb_are_read_and_written_again",
        seed,
    );
    let (Some(db_bench), Some(sst_dump)) = (tools::find("db_bench"), tools::find("sst_dump"))
    else {
        return;
    };
    let works = [
        &["--benchmarks=fillrandom,flush"][..],
        &[
            "--benchmarks=fillrandom,deleterandom,flush",
            "--value_size=7",
        ],
        &[
            "--benchmarks=mergerandom,flush",
            "--merge_operator=put",
            "--key_size=40",
        ],
        &[
            "--benchmarks=fillrandom,flush",
            "--writes_per_range_tombstone=50",
            "--range_tombstone_width=20",
            "--max_num_range_tombstones=30",
        ],
    ];
    let mut ranges = 0;
    for version in 2..=5 {
        for (turn, work) in works.iter().enumerate() {
            let number = ((turn + version as usize) % 5) as u8;
            let folder = folder();
            let flags = [
                format!("--db={}", folder.path().display()),
                format!("--num={}", amount(20_000, 1_500)),
                format!("--seed={}", seed + u64::from(version)),
                format!("--checksum_type={number}"),
                format!("--format_version={version}"),
                "--compression_type=none".into(),
                "--bloom_bits=10".into(),
                "--disable_auto_compactions=1".into(),
            ];
            let arguments: Vec<&str> = work
                .iter()
                .copied()
                .chain(flags.iter().map(String::as_str))
                .collect();
            tools::run(&db_bench, &arguments);
            let files = tables(folder.path());
            assert!(!files.is_empty());
            for file in files {
                agree(
                    &file,
                    version,
                    ChecksumKind::try_from(number).unwrap(),
                    &sst_dump,
                );
                ranges += SortedTable::open(&file).unwrap().range_tombstones().count();
            }
        }
    }
    assert!(ranges > 20, "{ranges} range deletions");
}
