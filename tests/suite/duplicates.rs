//! A `Vector` table that was given one key and sequence number twice: the freeze says so, and nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::flush::{FlushEntry, FlushSink, HiddenVersions, SinkError};
use paranoid_memtable::read::Base;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{
    Bytewise, Entry, Error, ImmutableMemTable, Kind, Lookup, MemTable, MemTableOptions, ParanoidOptions,
    Representation, TableReader,
};

use crate::support::orders::{CaseBlind, Order, Reverse};
use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

/// Key, sequence number, kind, value.
type Row = (Vec<u8>, u64, u8, Vec<u8>);

/// Few keys and numbers, so that many are equal; the kind follows from both.
fn draw(rng: &mut Rng, count: u64) -> Vec<Row> {
    let keys = count.isqrt().max(2);
    let row = |_| {
        let key = rng.below(keys);
        let mut key = vec![b"aAbBcC"[(key % 6) as usize], (key / 6) as u8];
        key.truncate(1 + rng.index(2));
        let sequence = rng.below(keys);
        let folded = u64::from(key[0].to_ascii_lowercase());
        let kind =
            [Kind::PUT, Kind::PUT, Kind::MERGE, Kind::DELETE][(scramble(folded ^ sequence) % 4) as usize];
        let value_len = if kind == Kind::DELETE { 0 } else { rng.index(30) };
        (key, sequence, kind.as_u8(), rng.bytes(value_len))
    };
    (0..count).map(row).collect()
}

fn table<C: Order>(representation: Representation, protection: u8, seed: u64) -> MemTable<C> {
    let paranoid =
        ParanoidOptions::builder().protection_bytes(protection).order_checks(true).build().unwrap();
    let options = MemTableOptions::builder().representation(representation).paranoid(paranoid).seed(seed);
    MemTable::with_comparator(options.write_buffer_size(64 << 10).build().unwrap(), C::default()).unwrap()
}

fn row_of(entry: Entry<'_>) -> Row {
    (entry.user_key().to_vec(), entry.sequence(), entry.kind().as_u8(), entry.value().unwrap().to_vec())
}

fn multiset(rows: &[Row]) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort();
    sorted
}

/// Whether rows are in the table's order, and each as often as it was written.
fn same_rows<C: Order>(found: &[Row], written: &[Row], what: &str) {
    assert_eq!(multiset(found), multiset(written), "{what}");
    let ordered = |pair: &[Row]| {
        let [left, right] = pair else { unreachable!() };
        C::plainly(&left.0, &right.0).then(right.1.cmp(&left.1)).is_le()
    };
    assert!(found.windows(2).all(ordered), "{what} is out of order: {found:?}");
}

/// What was written, by key and sequence number, in the table's order.
fn groups<C: Order>(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|left, right| C::plainly(&left.0, &right.0).then(right.1.cmp(&left.1)));
    let same = |left: &&Row, right: &&Row| left.1 == right.1 && C::plainly(&left.0, &right.0).is_eq();
    sorted.chunk_by(same).map(<[&Row]>::to_vec).collect()
}

/// Checks every read. Returns the answers of those that may choose among duplicates.
fn check_reads<C: Order>(table: &TableReader<C>, rows: &[Row]) -> Vec<Vec<u8>> {
    let raw: Vec<Row> = table.range(..).map(|entry| row_of(entry.unwrap())).collect();
    same_rows::<C>(&raw, rows, "a raw scan");
    let mut back: Vec<Row> = table.range(..).rev().map(|entry| row_of(entry.unwrap())).collect();
    back.reverse();
    assert_eq!(back, raw, "backward");
    assert_eq!(table.len(), rows.len());
    assert_eq!(table.data_bytes(), rows.iter().map(|row| (row.0.len() + row.3.len()) as u64).sum());
    let mut chosen = vec![];
    for group in groups::<C>(rows) {
        let (key, sequence) = (&group[0].0, group[0].1);
        let is_one = |value: &[u8]| assert!(group.iter().any(|row| row.3 == value), "{key:?}@{sequence}");
        match table.get(key, sequence).unwrap() {
            Lookup::Value(value) => {
                is_one(&value);
                chosen.push(value.to_vec());
            }
            Lookup::Merge(operands) => {
                let all: Vec<Vec<u8>> =
                    operands.clone().map(|operand| operand.unwrap().value.to_vec()).collect();
                all[..group.len()].iter().for_each(|operand| is_one(operand));
                assert!(!matches!(operands.base().unwrap(), Base::Value(value) if value.len() > 30));
                chosen.extend(all);
            }
            other => assert_eq!(group[0].2, Kind::DELETE.as_u8(), "{other:?}"),
        }
    }
    for snapshot in [0, 1, rows.len().isqrt() as u64 / 2, u64::MAX] {
        let forward: Vec<Row> = table.range_at(snapshot, ..).map(|entry| row_of(entry.unwrap())).collect();
        let mut back: Vec<Row> =
            table.range_at(snapshot, ..).rev().map(|entry| row_of(entry.unwrap())).collect();
        back.reverse();
        assert_eq!(forward, back, "snapshot {snapshot}");
        assert!(forward.windows(2).all(|pair| C::plainly(&pair[0].0, &pair[1].0).is_lt()));
        chosen.extend(forward.into_iter().map(|row| row.3));
    }
    chosen
}

#[derive(Default)]
struct Rows(Vec<Row>);

impl FlushSink for Rows {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
        self.0.push((key, entry.sequence, entry.kind.as_u8(), value));
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A flush hands out all that was written. One that drops hidden versions hands out all duplicates of a sequence
/// number or none, and those numbers that a table without duplicates hands out.
fn check_flush<C: Order>(frozen: &ImmutableMemTable<C>, rows: &[Row], snapshots: &[u64]) {
    let mut all = Rows::default();
    frozen.flush_with(&[], HiddenVersions::Keep, &mut all).unwrap();
    same_rows::<C>(&all.0, rows, "a flush");
    let single = table::<C>(Representation::SkipList, 8, 1);
    for group in groups::<C>(rows) {
        let (key, sequence, kind, value) = group[0];
        single.insert(*sequence, Kind::from_u8(*kind), key, value).unwrap();
    }
    let (mut found, mut wanted) = (Rows::default(), Rows::default());
    let summary = frozen.flush(snapshots, &mut found).unwrap();
    single.freeze().unwrap().flush(snapshots, &mut wanted).unwrap();
    assert_eq!(summary.entries + summary.hidden, rows.len() as u64);
    let kept: BTreeSet<(Vec<u8>, u64)> = wanted.0.into_iter().map(|row| (row.0, row.1)).collect();
    let wanted: Vec<Row> = groups::<C>(rows)
        .into_iter()
        .filter(|group| kept.contains(&(group[0].0.clone(), group[0].1)))
        .flatten()
        .cloned()
        .collect();
    same_rows::<C>(&found.0, &wanted, "a flush that drops");
}

fn one<C: Order>(seed: u64, count: u64, protection: u8) {
    let mut rng = Rng::new(seed);
    let mut rows = draw(&mut rng, count);
    if rng.one_in(4) {
        // Some tables have no duplicates.
        let mut seen = BTreeMap::new();
        for row in rows {
            seen.entry((row.0.to_ascii_lowercase(), row.1)).or_insert(row);
        }
        rows = seen.into_values().collect();
    }
    let table = table::<C>(Representation::Vector, protection, seed);
    let mut writers = [table.writer(), table.writer()];
    for (key, sequence, kind, value) in &rows {
        let kind = Kind::from_u8(*kind);
        match rng.index(3) {
            2 => table.insert(*sequence, kind, key, value),
            own => writers[own].insert(*sequence, kind, key, value),
        }
        .unwrap();
    }
    let young = check_reads(table.reader(), &rows);
    assert!(table.immutable().is_none());
    let first = groups::<C>(&rows).into_iter().find(|group| group.len() > 1).map(|group| group[0].1);
    for _ in 0..2 {
        match (table.freeze(), first) {
            (Ok(_), None) => {}
            (Err(Error::DuplicateEntry { sequence }), Some(first)) => assert_eq!(sequence, first),
            (answer, first) => panic!("{answer:?}, first duplicate {first:?}"),
        }
    }
    let frozen = table.immutable().unwrap();
    assert_eq!(check_reads(frozen.reader(), &rows), young, "the freeze changes no answer");
    check_flush(&frozen, &rows, &[]);
    check_flush(&frozen, &rows, &[rng.below(count), rng.below(count.isqrt())]);
    let report = frozen.scrub(|_| ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let salvage = frozen.salvage();
    assert_eq!((salvage.missing, salvage.failure), (0, None));
    let salvaged: Vec<Row> = salvage.entries.into_iter().map(|salvaged| row_of(salvaged.entry)).collect();
    same_rows::<C>(&salvaged, &rows, "a salvage");
}

#[test]
fn what_a_log_took_twice_is_named_and_not_lost() {
    let test = "duplicates::what_a_log_took_twice_is_named_and_not_lost";
    let mut seed = seed_or(u64::from(std::process::id()) ^ 0x6475_706c);
    println!("{}", replay_line(test, seed));
    for _ in 0..amount(30, 1) {
        let _watchdog = Watchdog::new(test, seed);
        for count in [1, 2, 5, 40, 900] {
            for protection in [0, 4, 8] {
                one::<Bytewise>(seed, count, protection);
                one::<Reverse>(seed, count, protection);
                one::<CaseBlind>(seed, count, protection);
            }
        }
        seed = scramble(seed);
    }
}
