//! Every bit flipped in turn, every length, and blocks of any bytes under right checksums.

use std::sync::Arc;

use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::{
    Error, Result, SortedTable, SortedTableOptions, SortedTableOptionsBuilder, TableSource,
};

use crate::model::{Model, Row, file_in, folder};
use crate::reader::wanted;
use crate::rng::{Rng, Watchdog, amount, seed_or};

fn small() -> Model {
    let row = |key: &[u8], sequence, kind, value: &[u8]| Row {
        key: key.to_vec(),
        sequence,
        kind,
        value: value.to_vec(),
    };
    let rows = (0..9u64).map(|n| {
        row(
            format!("key{}", n / 2).as_bytes(),
            9 - n,
            Kind::PUT,
            &[n as u8; 9],
        )
    });
    let mut model = Model::from_rows(rows.chain([row(b"", 4, Kind::DELETE, b"")]).collect());
    model.ranges.push((b"key3".to_vec(), b"key5".to_vec(), 7));
    model
}

fn bytes_of(model: &Model, options: SortedTableOptionsBuilder) -> Vec<u8> {
    let folder = folder();
    model.write(&file_in(&folder), options);
    std::fs::read(file_in(&folder)).unwrap()
}

fn open(bytes: &[u8]) -> Result<SortedTable> {
    SortedTable::from_source("damaged.sst", TableSource::memory(Arc::new(bytes.to_vec())))
}

/// Makes all calls of a table, with gets of every `step`th row. Each answer is right, or an error
/// that reports damage.
pub(crate) fn is_right_or_says_so(table: &SortedTable, model: &Model, first: usize, step: usize) {
    for row in model.rows.iter().skip(first).step_by(step) {
        let Ok(found) = table.get(&row.key, row.sequence) else {
            continue;
        };
        assert_eq!(found, wanted(model, &row.key, row.sequence));
    }
    let mut cursor = table.cursor();
    let mut rows = vec![];
    let mut step = cursor.first();
    while let (Ok(()), Some(entry)) = (&step, cursor.entry()) {
        rows.push((
            entry.user_key.to_vec(),
            entry.sequence,
            entry.value.to_vec(),
        ));
        step = cursor.next();
    }
    if step.is_ok() {
        let all = model
            .rows
            .iter()
            .map(|row| (row.key.clone(), row.sequence, row.value.clone()));
        assert!(rows.iter().cloned().eq(all));
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let _watchdog = Watchdog::new("damage::every_flipped_bit_is_found", 0);
    let model = small();
    // Development builds take every 61st bit, beginning with another one for each version.
    let stride = if cfg!(debug_assertions) { 61 } else { 1 };
    for version in 2..=6 {
        for kind in [
            ChecksumKind::Crc32c,
            ChecksumKind::XxHash32,
            ChecksumKind::XxHash64,
            ChecksumKind::Xxh3,
        ] {
            let options = SortedTableOptions::builder()
                .format_version(version)
                .checksum(kind)
                .block_size(60);
            let mut bytes = bytes_of(&model, options);
            open(&bytes).unwrap().verify().unwrap();
            for bit in (version as usize % stride..8 * bytes.len()).step_by(stride) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(table) = open(&bytes) {
                    let verdict = table.verify();
                    // The reserved bytes of a version 6 footer are under its checksum too.
                    assert!(
                        verdict.is_err(),
                        "version {version} {kind} bit {bit} of {}",
                        8 * bytes.len()
                    );
                    is_right_or_says_so(&table, &model, 0, 1);
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let model = small();
    for version in 2..=6 {
        let bytes = bytes_of(
            &model,
            SortedTableOptions::builder().format_version(version),
        );
        for len in 0..bytes.len() {
            let verdict = open(&bytes[..len]).and_then(|table| table.verify());
            assert!(
                matches!(verdict, Err(Error::Corruption(_))),
                "version {version} length {len}: {verdict:?}"
            );
        }
    }
}

#[test]
fn a_report_names_the_place() {
    let model = small();
    let mut bytes = bytes_of(&model, SortedTableOptions::builder());
    bytes[20] ^= 4;
    let error = open(&bytes).unwrap().verify().unwrap_err();
    let report = error.corruption().unwrap();
    assert_eq!(
        (report.block, report.offset),
        (paranoid_sst::BlockKind::Data, 0)
    );
    assert_eq!(report.flipped_bit, Some(20 * 8 + 2));
    assert!(
        error
            .to_string()
            .starts_with("corruption: damaged.sst: Data block at offset 0"),
        "{error}"
    );
}

/// Damage that checksums do not show: for any content of blocks, nothing panics, hangs or takes
/// memory without bounds.
#[test]
fn any_bytes_under_right_checksums_are_survived() {
    let seed = seed_or(0xda6);
    let _watchdog = Watchdog::new("damage::any_bytes_under_right_checksums_are_survived", seed);
    let mut rng = Rng::new(seed);
    let mut files = vec![];
    for version in 2..=6 {
        for interval in [1, 2, 16] {
            // Blocks of kind `none` verify with any content.
            let options = SortedTableOptions::builder()
                .format_version(version)
                .checksum(ChecksumKind::None);
            files.push(bytes_of(
                &small(),
                options
                    .block_size(60)
                    .index_block_restart_interval(interval),
            ));
        }
    }
    for _ in 0..amount(60_000, 2_000) {
        let mut bytes = rng.pick(&files).clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.index(bytes.len() - 53);
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = *rng.pick(&[0, 0x7f, 0x80, 0xff, 1]),
                _ => bytes[at] = rng.below(256) as u8,
            }
        }
        if let Ok(table) = open(&bytes) {
            exercise(&table, &mut rng);
        }
    }
}

fn exercise(table: &SortedTable, rng: &mut Rng) {
    let _ = table.verify();
    let mut cursor = table.cursor();
    for _ in 0..20 {
        let key = format!("key{}", rng.below(6));
        let _ = match rng.below(7) {
            0 => cursor.first(),
            1 => cursor.last(),
            2 => cursor.seek(key.as_bytes(), rng.below(12)),
            3 => cursor.seek_for_prev(key.as_bytes(), rng.below(12)),
            4 => table.get(key.as_bytes(), rng.below(12)).map(|_| ()),
            5 => cursor.next(),
            _ => cursor.prev(),
        };
        let _ = cursor.entry();
    }
    let mut steps = 0;
    let _ = cursor.first();
    while cursor.is_valid() && cursor.next().is_ok() {
        steps += 1;
        assert!(steps < 10_000, "a walk without an end");
    }
}
