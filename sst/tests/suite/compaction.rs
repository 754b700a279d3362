//! Checks compactions of table files, with the helpers of the example `kv_store`: all that is read
//! at each snapshot stays, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::{Bytewise, Error, Kind};
use paranoid_set::{Compaction, MemTableSet, MergedEntry, SetOptions, View};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableCursor};

use crate::model::folder;
use crate::rng::{Rng, Watchdog, amount, seed_or};

#[path = "../../../examples/kv_store/files.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared by path")]
mod files;

use files::{Counters, TableFile, path_of, sources};

const KEYS: u64 = 12;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

fn write_file(
    directory: &Path,
    number: u64,
    fill: impl FnOnce(&mut SortedTableWriter) -> Result<(), Error>,
) -> TableFile {
    let path = path_of(directory, number);
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    fill(&mut writer).unwrap();
    let bounds = writer.finish().unwrap().bounds.unwrap();
    TableFile {
        number,
        bounds,
        table: SortedTable::open(path).unwrap(),
    }
}

/// A file of some versions with these numbers.
fn file(
    directory: &Path,
    number: u64,
    sequences: std::ops::Range<u64>,
    rng: &mut Rng,
) -> TableFile {
    let mut rows: Vec<_> = sequences
        .map(|sequence| (rng.below(KEYS), sequence, rng.below(5)))
        .collect();
    rows.sort_by_key(|(key, sequence, _)| (*key, u64::MAX - sequence));
    let write = |writer: &mut SortedTableWriter| {
        for (number, sequence, kind) in &rows {
            let value = sequence.to_string().into_bytes();
            match kind {
                0 => writer.add(key(*number), *sequence, Kind::DELETE, b"")?,
                1 | 2 => writer.add(key(*number), *sequence, Kind::MERGE, &value)?,
                _ => writer.add(key(*number), *sequence, Kind::PUT, &value)?,
            }
        }
        let (_, sequence, start) = rows[0];
        Ok(writer.add_range(key(start), key(start + 1 + sequence % 3), sequence)?)
    };
    write_file(directory, number, write)
}

fn scan(files: &[TableFile], snapshot: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let cursor = at(snapshot).merging_cursor(sources(files)).unwrap();
    let row = |entry: &MergedEntry| {
        (
            entry.user_key().to_vec(),
            entry.merged(&Counters, None).unwrap().into_owned(),
        )
    };
    cursor
        .ascending()
        .map(|entry| row(&entry.unwrap()))
        .collect()
}

/// The view of an empty set at a sequence number.
fn at(snapshot: u64) -> View<()> {
    let options = SetOptions::builder()
        .last_sequence(snapshot)
        .build()
        .unwrap();
    MemTableSet::open(options, ()).unwrap().view()
}

/// Compacts all files into one.
fn compact(directory: &Path, number: u64, files: &[TableFile], snapshots: &[u64]) -> TableFile {
    let merge = Compaction::over(Arc::new(Bytewise), snapshots, sources(files));
    let merge = merge.combining(&Counters).to_lowest_level();
    write_file(directory, number, |writer| merge.pass_to(writer).map(drop))
}

fn get(files: &[TableFile], key: &[u8], snapshot: u64) -> Option<Vec<u8>> {
    let found = at(snapshot).merging_get(key, || sources(files)).unwrap();
    found.map(|entry| entry.into_merged(&Counters, None).unwrap())
}

#[test]
fn a_compaction_keeps_what_snapshots_read() {
    let test = "compaction::a_compaction_keeps_what_snapshots_read";
    let seed = seed_or(0xc0de);
    println!("{test}: seed {seed:#x}");
    let _watchdog = Watchdog::new(test, seed);
    let mut rng = Rng::new(seed);
    for round in 0..amount(300, 12) {
        let folder = folder();
        let directory = folder.path();
        let mut old: Vec<TableFile> = (0..3)
            .map(|number| {
                file(
                    directory,
                    number,
                    1 + number * 40..(number + 1) * 40,
                    &mut rng,
                )
            })
            .collect();
        // Newest first.
        old.reverse();
        let mut snapshots: BTreeSet<u64> = (0..rng.below(5)).map(|_| rng.below(121)).collect();
        snapshots.insert(120);
        let new = [compact(
            directory,
            9,
            &old,
            &snapshots.iter().copied().collect::<Vec<_>>(),
        )];
        for snapshot in &snapshots {
            assert_eq!(
                scan(&new, *snapshot),
                scan(&old, *snapshot),
                "round {round} at {snapshot}, seed {seed:#x}"
            );
            for number in 0..KEYS {
                let read = |files: &[TableFile]| get(files, &key(number), *snapshot);
                assert_eq!(
                    read(&new),
                    read(&old),
                    "round {round}, {number} at {snapshot}, seed {seed:#x}"
                );
            }
        }
        let (mut cursor, mut entries): (TableCursor, u64) = (new[0].table.cursor(), 0);
        cursor.first().unwrap();
        while cursor.is_valid() {
            entries += 1;
            cursor.next().unwrap();
        }
        assert!(
            entries <= KEYS * snapshots.len() as u64,
            "{entries} entries for {snapshots:?}"
        );
    }
}
