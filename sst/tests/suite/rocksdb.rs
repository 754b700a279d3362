//! Compares this crate's files by RocksDB's `sst_dump`: verified, scanned, compared with the model.

use paranoid_memtable::tombstone::Fragmenter;
use paranoid_memtable::{Bytewise, ChecksumKind};
use paranoid_sst::{
    Compression, IndexShortening, SortedTable, SortedTableOptions, SortedTableOptionsBuilder,
    TableValue,
};
use std::sync::Arc;

use crate::model::{Model, Row, file_in, folder, hex};
use crate::rng::{Rng, Watchdog, amount, seed_or};
use crate::tools;

/// All rows that this crate's reader finds.
pub(crate) fn rows_of(table: &SortedTable) -> Vec<Row> {
    let mut cursor = table.cursor();
    let mut rows = vec![];
    cursor.first().unwrap();
    while let Some(entry) = cursor.entry() {
        rows.push(Row {
            key: entry.user_key.to_vec(),
            sequence: entry.sequence,
            kind: entry.kind,
            value: entry.value.to_vec(),
        });
        cursor.next().unwrap();
    }
    rows
}

/// Start and end, in hexadecimal digits, of every fragment that `raw` prints.
fn fragments_in(dump: &str) -> Vec<(String, String)> {
    let text = dump.split("Range deletions:").nth(1).unwrap_or_default();
    let text = text.split("Data Block").next().unwrap_or_default();
    let fragment = |line: &str| {
        let (start, end) = line.trim().strip_prefix("HEX")?.split_once(':')?;
        Some((start.trim().to_lowercase(), end.trim().to_lowercase()))
    };
    text.lines().filter_map(fragment).collect()
}

/// The fragments of this crate's fragmenter, one line per sequence number.
pub(crate) fn fragments_of(model: &Model) -> Vec<(String, String)> {
    let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    for (start, end, sequence) in &model.ranges {
        fragmenter
            .add(start.as_slice(), end.as_slice(), *sequence)
            .unwrap();
    }
    let fragments = fragmenter.finish();
    let lines = fragments.iter().flat_map(|fragment| {
        let line = (hex(fragment.start()), hex(fragment.end()));
        std::iter::repeat_n(line, fragment.sequences().len())
    });
    lines.collect()
}

fn agrees(model: &Model, options: SortedTableOptionsBuilder, sst_dump: Option<&std::path::Path>) {
    let folder = folder();
    let path = file_in(&folder);
    entries_agree(model, &path, options, sst_dump);
    if let Some(sst_dump) = sst_dump {
        let raw = format!("--file={}", path.display());
        tools::run(sst_dump, &[&raw, "--command=raw"]);
        let dump = std::fs::read(path.with_file_name("000007_dump.txt")).unwrap();
        let dump = String::from_utf8_lossy(&dump);
        assert!(
            fragments_in(&dump) == fragments_of(model),
            "range deletions of `raw` differ"
        );
    }
}

fn entries_agree(
    model: &Model,
    path: &std::path::Path,
    options: SortedTableOptionsBuilder,
    sst_dump: Option<&std::path::Path>,
) {
    model.write(path, options);
    let table = SortedTable::open(path).unwrap();
    table.verify().unwrap();
    assert!(rows_of(&table) == model.rows, "our own reader differs");
    if let Some(sst_dump) = sst_dump {
        tools::verify(sst_dump, path);
        assert!(
            tools::scan(sst_dump, path) == model.rows,
            "sst_dump's scan differs"
        );
    }
}

#[test]
fn every_version_and_kind() {
    let seed = seed_or(0x5e7);
    let _watchdog = Watchdog::new("rocksdb::every_version_and_kind", seed);
    let sst_dump = tools::find("sst_dump");
    let mut rng = Rng::new(seed);
    for version in 2..=6 {
        for kind in 0..=4 {
            let model = Model::random(&mut rng, amount(3_000, 300));
            let kind = ChecksumKind::try_from(kind).unwrap();
            let options = SortedTableOptions::builder()
                .format_version(version)
                .checksum(kind);
            // Debian's sst_dump knows versions up to 5.
            agrees(
                &model,
                options,
                sst_dump.as_deref().filter(|_| version <= 5),
            );
        }
    }
}

#[test]
fn every_other_option() {
    let seed = seed_or(0x0b7);
    let _watchdog = Watchdog::new("rocksdb::every_other_option", seed);
    let sst_dump = tools::find("sst_dump");
    let mut rng = Rng::new(seed);
    let new = SortedTableOptions::builder;
    for options in [
        new().block_restart_interval(1),
        new()
            .block_restart_interval(2)
            .index_block_restart_interval(4),
        new()
            .block_restart_interval(128)
            .index_block_restart_interval(16),
        new().format_version(3).index_block_restart_interval(16),
        new().index_shortening(IndexShortening::None),
        new().index_shortening(IndexShortening::SeparatorsAndSuccessor),
        new().bloom_millibits_per_key(0),
        new().bloom_millibits_per_key(3_300),
        new().block_size(1).block_size_deviation(0),
        new().block_size(100_000),
    ] {
        let model = Model::random(&mut rng, amount(1_000, 300));
        agrees(&model, options, sst_dump.as_deref());
    }
}

#[test]
fn few_entries_and_one_key_over_many_blocks() {
    let _watchdog = Watchdog::new("rocksdb::few_entries_and_one_key_over_many_blocks", 0);
    let sst_dump = tools::find("sst_dump");
    let row = |key: &[u8], value: &[u8]| {
        let (key, value) = (key.to_vec(), value.to_vec());
        Row {
            key,
            sequence: 5,
            kind: paranoid_memtable::Kind::PUT,
            value,
        }
    };
    let single = [
        row(b"", b""),
        row(b"one", &[7; 100_000]),
        row(&[b'k'; 70_000], b"v"),
    ];
    for row in single {
        agrees(
            &Model {
                rows: vec![row],
                ranges: vec![],
            },
            SortedTableOptions::builder(),
            sst_dump.as_deref(),
        );
    }
    let only_ranges = Model {
        rows: vec![],
        ranges: vec![(vec![], b"z".to_vec(), 3), (b"q".into(), b"r".into(), 9)],
    };
    agrees(
        &only_ranges,
        SortedTableOptions::builder(),
        sst_dump.as_deref(),
    );
    // One key over many blocks: the index must use internal keys.
    let versions = (1..3_000)
        .map(|sequence| Row {
            sequence,
            ..row(b"same", &[1; 30])
        })
        .collect();
    agrees(
        &Model::from_rows(versions),
        SortedTableOptions::builder(),
        sst_dump.as_deref(),
    );
}

#[test]
fn a_million_entries() {
    let seed = seed_or(0xfe4);
    let _watchdog = Watchdog::new("rocksdb::a_million_entries", seed);
    let sst_dump = tools::find("sst_dump");
    let many = Model::random(&mut Rng::new(seed), amount(1_000_000, 10_000));
    let folder = folder();
    // Without `sst_dump --command=raw`, which takes longest. Smaller files compare range deletions.
    entries_agree(
        &many,
        &file_in(&folder),
        SortedTableOptions::builder(),
        sst_dump.as_deref(),
    );
}

/// The compressions of this build, with the names that `ldb` has for those that it reads.
const COMPRESSIONS: &[(Compression, &[&str])] = &[
    #[cfg(feature = "lz4")]
    (Compression::Lz4, &["lz4", "lz4hc"]),
    #[cfg(feature = "snappy")]
    (Compression::Snappy, &["snappy"]),
    #[cfg(feature = "zstd")]
    (Compression::Zstd, &["zstd"]),
];

/// Only blocks that compression makes smaller by an eighth or more are compressed, also within one
/// file.
#[test]
fn compressed_blocks_among_others() {
    let seed = seed_or(0x124);
    let _watchdog = Watchdog::new("rocksdb::compressed_blocks_among_others", seed);
    let sst_dump = tools::find("sst_dump");
    let mut rng = Rng::new(seed);
    let mut model = Model::random(&mut rng, amount(3_000, 600));
    for (number, row) in model.rows.iter_mut().enumerate() {
        if number % 200 < 120 && row.kind == paranoid_memtable::Kind::PUT {
            row.value = vec![number as u8; 100];
        }
    }
    for (compression, _) in COMPRESSIONS {
        let new = || SortedTableOptions::builder().compression(*compression);
        for version in 2..=6 {
            let options = new().format_version(version);
            agrees(
                &model,
                options,
                sst_dump.as_deref().filter(|_| version <= 5),
            );
        }
        let folder = folder();
        let path = file_in(&folder);
        let small = model.write(&path, new());
        std::fs::remove_file(&path).unwrap();
        assert!(small.file_size < model.write(&path, SortedTableOptions::builder()).file_size);
        // Under checksum kind `none`: bytes that do not decompress, and wrong sizes.
        std::fs::remove_file(&path).unwrap();
        model.write(&path, new().checksum(ChecksumKind::None));
        let whole = std::fs::read(&path).unwrap();
        for _ in 0..amount(5_000, 500) {
            let mut bytes = whole.clone();
            let at = rng.index(bytes.len() - 53);
            bytes[at] ^= 1 << rng.below(8);
            let source = paranoid_sst::TableSource::memory(std::sync::Arc::new(bytes));
            if let Ok(table) = SortedTable::from_source("flipped", source) {
                let _ = table.verify();
            }
        }
    }
}

/// This crate reads blocks that RocksDB compressed: every entry, also by gets.
#[test]
fn blocks_that_rocksdb_compressed() {
    let _watchdog = Watchdog::new("rocksdb::blocks_that_rocksdb_compressed", 0);
    let (Some(ldb), Some(sst_dump)) = (tools::find("ldb"), tools::find("sst_dump")) else {
        return;
    };
    let lines: String = (0..900)
        .map(|n| format!("key{n:04} ==> {}\n", format!("{n} ").repeat(n % 40)))
        .collect();
    for name in COMPRESSIONS.iter().flat_map(|(_, names)| *names) {
        let folder = folder();
        let database = format!("--db={}", folder.path().display());
        let compression = format!("--compression_type={name}");
        let arguments = [
            &database,
            "--create_if_missing",
            &compression,
            "--disable_wal",
            "--block_size=3000",
            "load",
        ];
        tools::output(&ldb, &arguments, &lines);
        let files = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().path());
        let path = files
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "sst"))
            .unwrap();
        let table = SortedTable::open(&path).unwrap();
        let report = table.verify().unwrap();
        let raw: usize = rows_of(&table)
            .iter()
            .map(|row| row.key.len() + row.value.len())
            .sum();
        assert!(
            report.data_size < raw as u64,
            "{name}: nothing was compressed"
        );
        let rows = rows_of(&table);
        assert!(
            rows.len() == 900 && rows == tools::scan(&sst_dump, &path),
            "{name}: sst_dump's scan differs"
        );
        for row in rows {
            let wanted = TableValue {
                sequence: row.sequence,
                bytes: row.value,
            };
            let found = table.get(&row.key, u64::MAX).unwrap();
            assert_eq!(found.into_value(), Some(wanted), "{name}");
        }
    }
}
