//! Compares the reader with the model: gets at snapshots, cursors both ways, ingested files whose
//! sequence number was rewritten.

use std::sync::Arc;

use paranoid_memtable::read::{Base, DeletedBy};
use paranoid_memtable::scan::{SortedSource, SourceMove};
use paranoid_memtable::{ChecksumKind, Kind, Lookup, SequenceNumber};
use paranoid_sst::{
    Error, MergeOperands, Result, SortedTable, SortedTableOptions, TableCursor, TableSource,
    TableValue,
};

use crate::model::{Model, Row, file_in, folder};
use crate::rng::{Rng, Watchdog, amount, seed_or};

/// The right answer of a get.
pub(crate) fn wanted(
    model: &Model,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Lookup<TableValue, MergeOperands> {
    let covering = model.covering(key, snapshot);
    let none = match covering {
        Some(sequence) => Lookup::Deleted {
            sequence,
            by: DeletedBy::Range,
        },
        None => Lookup::NotFound,
    };
    let visible = model
        .rows
        .iter()
        .filter(|row| row.key == key && row.sequence <= snapshot);
    let mut operands = vec![];
    for row in visible.filter(|row| covering.is_none_or(|covering| covering < row.sequence)) {
        let base = match row.kind {
            Kind::MERGE => {
                operands.push((row.sequence, row.value.clone()));
                continue;
            }
            Kind::PUT if operands.is_empty() => {
                return Lookup::Value(TableValue {
                    sequence: row.sequence,
                    bytes: row.value.clone(),
                });
            }
            kind if operands.is_empty() => {
                let by = if kind == Kind::DELETE {
                    DeletedBy::Point
                } else {
                    DeletedBy::Single
                };
                return Lookup::Deleted {
                    sequence: row.sequence,
                    by,
                };
            }
            Kind::PUT => Base::Value(row.value.clone()),
            _ => Base::Deleted,
        };
        return Lookup::Merge(MergeOperands { operands, base });
    }
    match (operands.is_empty(), covering) {
        (true, _) => none,
        (false, None) => Lookup::Merge(MergeOperands {
            operands,
            base: Base::Below,
        }),
        (false, Some(_)) => Lookup::Merge(MergeOperands {
            operands,
            base: Base::Deleted,
        }),
    }
}

fn here(cursor: &TableCursor) -> Option<Row> {
    let entry = cursor.entry()?;
    let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
    Some(Row {
        key,
        sequence: entry.sequence,
        kind: entry.kind,
        value,
    })
}

/// Makes random moves of a cursor, and gets between them.
fn walk(table: &SortedTable, model: &Model, rng: &mut Rng, name: &str) {
    let mut place: Option<usize> = None;
    let mut cursor = table.cursor();
    for step in 0..400 {
        let row = rng.pick(&model.rows);
        let mut key = row.key.clone();
        if rng.one_in(4) {
            key.push(rng.below(256) as u8);
        }
        let sequence = match rng.below(4) {
            0 => u64::MAX,
            1 => rng.below(1 << 40),
            _ => row.sequence.wrapping_add(rng.below(3)).wrapping_sub(1),
        };
        let before = |row: &Row, after_equal| match row.key.as_slice().cmp(&key) {
            std::cmp::Ordering::Equal if after_equal => row.sequence >= sequence,
            std::cmp::Ordering::Equal => row.sequence > sequence,
            order => order.is_lt(),
        };
        match rng.below(9) {
            0 => {
                cursor.first().unwrap();
                place = Some(0);
            }
            1 => {
                cursor.last().unwrap();
                place = model.rows.len().checked_sub(1);
            }
            2 | 3 => {
                cursor.seek(&key, sequence).unwrap();
                place = Some(model.rows.partition_point(|row| before(row, false)));
            }
            4 => {
                cursor.seek_for_prev(&key, sequence).unwrap();
                place = model
                    .rows
                    .partition_point(|row| before(row, true))
                    .checked_sub(1);
            }
            5 | 6 => {
                cursor.next().unwrap();
                place = place.map(|place| place + 1);
            }
            7 => {
                cursor.prev().unwrap();
                place = place.and_then(|place| place.checked_sub(1));
            }
            _ => assert_eq!(
                table.get(&key, sequence).unwrap(),
                wanted(model, &key, sequence)
            ),
        }
        place = place.filter(|place| *place < model.rows.len());
        let row = place.map(|place| &model.rows[place]);
        assert_eq!(here(&cursor).as_ref(), row, "{name} step {step}");
    }
}

#[test]
fn gets_and_cursors_agree_with_the_model() {
    let seed = seed_or(0x6e7);
    let _watchdog = Watchdog::new("reader::gets_and_cursors_agree_with_the_model", seed);
    let mut rng = Rng::new(seed);
    for round in 0..amount(40, 10) {
        let model = Model::random(&mut rng, 400);
        let folder = folder();
        let options = SortedTableOptions::builder()
            .format_version(2 + (round % 5) as u32)
            .block_size(*rng.pick(&[1, 200, 4096]))
            .block_restart_interval(*rng.pick(&[1, 3, 16]))
            .index_block_restart_interval(*rng.pick(&[1, 4]));
        model.write(&file_in(&folder), options);
        let table = if rng.one_in(2) {
            SortedTable::open(file_in(&folder)).unwrap()
        } else {
            let bytes = std::fs::read(file_in(&folder)).unwrap();
            SortedTable::from_source("memory", TableSource::memory(Arc::new(bytes))).unwrap()
        };
        walk(
            &table,
            &model,
            &mut rng,
            &format!("seed {seed:#x} round {round}"),
        );
        let keys: Vec<&[u8]> = model.rows.iter().map(|row| row.key.as_slice()).collect();
        for (key, found) in keys.iter().zip(table.multi_get(&keys, u64::MAX)) {
            assert_eq!(found.unwrap(), wanted(&model, key, u64::MAX));
        }
    }
}

fn open(bytes: Vec<u8>) -> SortedTable {
    SortedTable::from_source("memory", TableSource::memory(Arc::new(bytes))).unwrap()
}

/// Kinds in data blocks of RocksDB and Pebble that this crate does not read: number, and name in
/// messages.
const FOREIGN: [(u8, &str); 7] = [
    (15, "range deletion"),
    (17, "blob index"),
    (18, "set with delete"),
    (20, "deletion with timestamp"),
    (22, "wide columns"),
    (23, "sized delete"),
    (24, "preferred sequence number"),
];

/// A read that meets an entry of a kind that is not read returns an error. Other keys are read, and
/// cursors continue past the entry.
#[test]
fn kinds_that_are_not_read_are_refused_by_number_and_name() {
    let row = |key: &[u8], sequence| Row {
        key: key.to_vec(),
        sequence,
        kind: Kind::PUT,
        value: b"1".to_vec(),
    };
    let model = Model::from_rows(vec![row(b"a", 9), row(b"b", 8), row(b"c", 7)]);
    let folder = folder();
    model.write(
        &file_in(&folder),
        SortedTableOptions::builder().checksum(ChecksumKind::None),
    );
    let mut bytes = std::fs::read(file_in(&folder)).unwrap();
    // Before the kind of each entry are three lengths and a key of one byte; after it are the
    // sequence number and a value of one byte.
    let kind_of_b = 4 + 13;
    assert_eq!(bytes[kind_of_b..][..2], [1, 8]);
    bytes[4] = Kind::MERGE.as_u8();
    for kind in (0..=255).map(Kind::from_u8) {
        bytes[kind_of_b] = kind.as_u8();
        let table = open(bytes.clone());
        if [Kind::DELETE, Kind::PUT, Kind::MERGE, Kind::SINGLE_DELETE].contains(&kind) {
            table.verify().unwrap();
            table.get(b"b", 9).unwrap();
            continue;
        }
        let name = FOREIGN
            .iter()
            .find(|(number, _)| *number == kind.as_u8())
            .map_or("", |(_, name)| name);
        let refused = |error: Option<Error>, asked: &str| match error {
            Some(Error::NotSupported { feature, .. }) => {
                assert!(
                    feature.contains(&format!("kind {} (", kind.as_u8())),
                    "{asked}: {feature}"
                );
                assert!(feature.contains(name), "{asked}: {feature}");
            }
            other => panic!("{asked} {kind:?}: {other:?}"),
        };
        refused(table.verify().err(), "verify");
        refused(table.get(b"b", 9).err(), "get");
        assert!(matches!(
            table.get(b"a", 9).unwrap(),
            Lookup::Merge(MergeOperands {
                base: Base::Below,
                ..
            })
        ));
        assert!(table.get(b"c", 9).unwrap().value().is_some());
        assert_eq!(table.get(b"b", 7).unwrap(), Lookup::NotFound);
        assert_eq!(table.get(b"aa", 9).unwrap(), Lookup::NotFound);
        cursor_passes(&table, &refused);
    }
}

/// Every move to the entry of `b` is refused, and the next one continues.
fn cursor_passes(table: &SortedTable, refused: &dyn Fn(Option<Error>, &str)) {
    type Move = fn(&mut TableCursor) -> Result<()>;
    let moves: [(&str, Move, Move, Move); 4] = [
        (
            "next",
            TableCursor::first,
            TableCursor::next,
            TableCursor::next,
        ),
        (
            "prev",
            TableCursor::last,
            TableCursor::prev,
            TableCursor::next,
        ),
        (
            "seek",
            TableCursor::last,
            |cursor| cursor.seek(b"b", 9),
            TableCursor::next,
        ),
        (
            "seek_for_prev",
            TableCursor::first,
            |cursor| cursor.seek_for_prev(b"bb", 9),
            TableCursor::next,
        ),
    ];
    for (name, before, there, on) in moves {
        let mut cursor = table.cursor();
        before(&mut cursor).unwrap();
        refused(there(&mut cursor).err(), name);
        assert!(!cursor.is_valid() && cursor.entry().is_none());
        on(&mut cursor).unwrap();
        assert_eq!(cursor.entry().unwrap().user_key, b"c");
        refused(cursor.prev().err(), "prev");
        cursor.prev().unwrap();
        assert_eq!(cursor.entry().unwrap().user_key, b"a");
    }
    let mut source = table.cursor();
    assert!(source.go(SourceMove::Seek(b"b", 9)).is_err());
    assert_eq!(source.go(SourceMove::Next).unwrap().unwrap().user_key, b"c");
}

/// A store of Pebble 1.1 deleted the range from `b` to `d`, and flushed: the file has a data block
/// without entries.
#[test]
fn a_flush_of_range_deletions_alone_by_pebble() {
    let table = open(include_bytes!("../data/pebble_range_deletion.sst").to_vec());
    let report = table.verify().unwrap();
    assert_eq!(
        (report.entries, report.range_deletions, report.data_blocks),
        (0, 1, 1)
    );
    assert_eq!(
        (report.unaccounted_bytes, report.sequences),
        (0, Some((10, 10)))
    );
    let deleted = Lookup::Deleted {
        sequence: 10,
        by: DeletedBy::Range,
    };
    assert_eq!(table.get(b"c", 10).unwrap(), deleted);
    assert_eq!(table.get(b"d", 10).unwrap(), Lookup::NotFound);
    let mut cursor = table.cursor();
    for step in [
        TableCursor::first,
        TableCursor::last,
        TableCursor::next,
        TableCursor::prev,
    ] {
        step(&mut cursor).unwrap();
        assert!(!cursor.is_valid());
    }
    cursor.seek(b"c", 10).unwrap();
    assert!(!cursor.is_valid());
}
