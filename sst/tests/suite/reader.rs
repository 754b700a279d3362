//! The reader against the model: gets at snapshots, cursors both ways, ingested files whose sequence was rewritten.

use std::sync::Arc;

use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{Kind, SequenceNumber};
use paranoid_sst::{MergeBase, SortedTable, SortedTableOptions, TableCursor, TableLookup, TableSource};

use crate::model::{Model, Row, file_in, folder};
use crate::rng::{Rng, amount, seed_or};
use crate::watchdog::Watchdog;

/// What a get should answer.
fn wanted(model: &Model, key: &[u8], snapshot: SequenceNumber) -> TableLookup {
    let covering = model.covering(key, snapshot);
    let none = match covering {
        Some(sequence) => TableLookup::Deleted { sequence, by: DeletedBy::Range },
        None => TableLookup::NotFound,
    };
    let visible = model.rows.iter().filter(|row| row.key == key && row.sequence <= snapshot);
    let mut operands = vec![];
    for row in visible.filter(|row| covering.is_none_or(|covering| covering < row.sequence)) {
        let base = match row.kind {
            Kind::MERGE => {
                operands.push((row.sequence, row.value.clone()));
                continue;
            }
            Kind::PUT if operands.is_empty() => {
                return TableLookup::Value { sequence: row.sequence, value: row.value.clone() };
            }
            kind if operands.is_empty() => {
                let by = if kind == Kind::DELETE { DeletedBy::Point } else { DeletedBy::Single };
                return TableLookup::Deleted { sequence: row.sequence, by };
            }
            Kind::PUT => MergeBase::Value(row.value.clone()),
            _ => MergeBase::Deleted,
        };
        return TableLookup::Merge { operands, base };
    }
    match (operands.is_empty(), covering) {
        (true, _) => none,
        (false, None) => TableLookup::Merge { operands, base: MergeBase::Below },
        (false, Some(_)) => TableLookup::Merge { operands, base: MergeBase::Deleted },
    }
}

fn here(cursor: &TableCursor) -> Option<Row> {
    let entry = cursor.entry()?;
    let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
    Some(Row { key, sequence: entry.sequence, kind: entry.kind, value })
}

/// Random moves of a cursor, and gets between them.
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
                place = model.rows.partition_point(|row| before(row, true)).checked_sub(1);
            }
            5 | 6 => {
                cursor.next().unwrap();
                place = place.map(|place| place + 1);
            }
            7 => {
                cursor.prev().unwrap();
                place = place.and_then(|place| place.checked_sub(1));
            }
            _ => assert_eq!(table.get(&key, sequence).unwrap(), wanted(model, &key, sequence)),
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
        walk(&table, &model, &mut rng, &format!("seed {seed:#x} round {round}"));
        let keys: Vec<&[u8]> = model.rows.iter().map(|row| row.key.as_slice()).collect();
        for (key, found) in keys.iter().zip(table.multi_get(&keys, u64::MAX)) {
            assert_eq!(found.unwrap(), wanted(&model, key, u64::MAX));
        }
    }
}
