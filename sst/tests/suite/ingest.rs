//! Files for ingestion: the result of versions, merges and range deletions, and RocksDB's ingestion
//! of the files.

use std::sync::Arc;

use paranoid_memtable::{ImmutableMemTable, Kind, Lookup, MemTable, MemTableOptions};
use paranoid_sst::{
    Disk, Error, MergeOperator, SortedTable, SortedTableOptions, SortedTableWriter, TableSource,
    ingestible,
};

use crate::adoption::ask;
use crate::model::{file_in, folder, hex};
use crate::rng::{Rng, Watchdog, amount, seed_or};
use crate::tools;

/// Joins operands by commas.
struct Append;

impl MergeOperator for Append {
    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Some(parts.join(&b","[..]))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.join(&b","[..]))
    }
}

/// Makes a random table. It has merge operands only with more than five kinds of operations.
fn random(rng: &mut Rng, operations: u64) -> ImmutableMemTable {
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    let key = |rng: &mut Rng| format!("key{:03}", rng.below(300)).into_bytes();
    for sequence in 1..=1500 {
        let (key, value) = (key(rng), sequence.to_string());
        let written = match rng.below(operations) {
            0 => table.delete(sequence, &key),
            1 => table.single_delete(sequence, &key),
            5.. => table.merge(sequence, &key, value.as_bytes()),
            _ => table.put(sequence, &key, value.as_bytes()),
        };
        written.unwrap();
    }
    for sequence in 1501..1505 {
        let (low, high) = (key(rng), key(rng));
        if low < high {
            table
                .delete_range(sequence - rng.below(1400), &low, &high)
                .unwrap();
        }
    }
    table.freeze().unwrap()
}

/// The right entry of the file for a key: kind and value. `None`: no entry.
fn wanted(table: &ImmutableMemTable, key: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let joined = |operands: Vec<Vec<u8>>| {
        operands
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join(&b","[..])
    };
    match table.get(key, u64::MAX).unwrap() {
        Lookup::NotFound => None,
        Lookup::Deleted {
            by: paranoid_memtable::read::DeletedBy::Range,
            ..
        } => None,
        Lookup::Deleted { .. } => Some((Kind::DELETE, vec![])),
        Lookup::Value(value) => Some((Kind::PUT, value.to_vec())),
        Lookup::Merge(operands) => {
            let base = operands.base().unwrap();
            let mut values: Vec<Vec<u8>> = operands
                .map(|operand| operand.unwrap().value.to_vec())
                .collect();
            match base {
                paranoid_memtable::read::Base::Below => Some((Kind::MERGE, joined(values))),
                paranoid_memtable::read::Base::Value(value) => {
                    values.push(value.to_vec());
                    Some((Kind::PUT, joined(values)))
                }
                _ => Some((Kind::PUT, joined(values))),
            }
        }
    }
}

#[test]
fn each_key_comes_out_as_a_read_would_say() {
    let seed = seed_or(0x1e57);
    let _watchdog = Watchdog::new("ingest::each_key_comes_out_as_a_read_would_say", seed);
    let mut rng = Rng::new(seed);
    for _ in 0..amount(40, 8) {
        let table = random(&mut rng, 7);
        let folder = folder();
        let written = ingestible(
            &table,
            file_in(&folder),
            SortedTableOptions::default(),
            Some(&Append),
        )
        .unwrap();
        assert_eq!(written.sequences, Some((0, 0)));
        let file = SortedTable::open(file_in(&folder)).unwrap();
        let mut entries = 0;
        for number in 0..300 {
            let key = format!("key{number:03}").into_bytes();
            let mut cursor = file.cursor();
            cursor.seek(&key, u64::MAX).unwrap();
            let found = cursor.entry().filter(|entry| entry.user_key == key);
            let found = found.map(|entry| (entry.kind, entry.value.to_vec()));
            entries += u64::from(found.is_some());
            assert_eq!(found, wanted(&table, &key), "{number}");
        }
        assert_eq!(entries, written.entries);
    }
}

#[test]
fn what_cannot_be_ingested_is_refused_by_name() {
    let refused_with = |table: &MemTable, operator: Option<&dyn MergeOperator>| {
        let (folder, options) = (folder(), SortedTableOptions::default());
        let frozen = table.freeze().unwrap();
        let error = ingestible(&frozen, file_in(&folder), options, operator).unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let Error::InvalidArgument(text) = error else {
            panic!("{error}")
        };
        text
    };
    let refused = |table: &MemTable| refused_with(table, None);
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    table.merge(1, b"k", b"1").unwrap();
    table.merge(2, b"k", b"2").unwrap();
    let text = refused(&table);
    assert!(
        text.contains("\"k\" @ 2 MERGE") && text.contains("2 operands"),
        "{text}"
    );
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    table.insert(9, Kind::from_u8(0x90), b"c", b"1").unwrap();
    assert!(refused(&table).contains("\"c\" @ 9 custom(16)"));
    // Operands over the entry would have no base.
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    table.insert(9, Kind::from_u8(0x90), b"c", b"1").unwrap();
    table.merge(10, b"c", b"2").unwrap();
    assert!(refused_with(&table, Some(&Append)).contains("\"c\" @ 9 custom(16)"));
    let folder = folder();
    let options = SortedTableOptions::default();
    let mut writer =
        SortedTableWriter::create_ingestible_in(Disk, file_in(&folder), options).unwrap();
    writer.add(b"a", 0, Kind::PUT, b"").unwrap();
    for (key, sequence, kind) in [
        (&b"a"[..], 0, Kind::DELETE),
        (b"b", 1, Kind::PUT),
        (b"b", 0, Kind::SINGLE_DELETE),
    ] {
        assert!(matches!(
            writer.add(key, sequence, kind, b""),
            Err(Error::InvalidArgument(_))
        ));
    }
}

#[test]
fn rocksdb_ingests_and_answers() {
    let seed = seed_or(0x1e58);
    let _watchdog = Watchdog::new("ingest::rocksdb_ingests_and_answers", seed);
    let Some(ldb) = tools::find("ldb") else {
        return;
    };
    let mut rng = Rng::new(seed);
    let table = random(&mut rng, 5);
    let folder = folder();
    let (file, database) = (folder.path().join("in.sst"), folder.path().join("db"));
    ingestible(&table, &file, SortedTableOptions::default(), None).unwrap();
    let db = format!("--db={}", database.display());
    // Older data that the file's deletions must hide.
    tools::run(
        &ldb,
        &[
            &db,
            "--create_if_missing",
            "batchput",
            "key000",
            "old",
            "key150",
            "old",
            "zzz",
            "old",
        ],
    );
    tools::run(
        &ldb,
        &[
            &db,
            "--try_load_options=false",
            "ingest_extern_sst",
            file.to_str().unwrap(),
        ],
    );
    let mut keys: Vec<Vec<u8>> = (0..40)
        .map(|_| format!("key{:03}", rng.below(320)).into_bytes())
        .collect();
    keys.extend([b"key000".to_vec(), b"key150".to_vec(), b"zzz".to_vec()]);
    for (key, answer) in keys.iter().zip(ask(&ldb, &database, &keys)) {
        let said = match table.get(key, u64::MAX).unwrap() {
            Lookup::Value(value) => Some(hex(&value)),
            Lookup::NotFound if [&b"key000"[..], b"key150", b"zzz"].contains(&key.as_slice()) => {
                Some(hex(b"old"))
            }
            _ => None,
        };
        assert_eq!(answer, said, "{}", String::from_utf8_lossy(key));
    }
    // The database wrote its sequence number into the file. This crate's reader still reads it.
    let rewritten = std::fs::read_dir(&database)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut ingested = 0;
    for path in
        rewritten.filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
    {
        // The database's own file may use a compression that this crate does not read.
        let Ok(table) = SortedTable::open(&path) else {
            continue;
        };
        let mut cursor = table.cursor();
        if table.verify().is_ok() {
            cursor.first().unwrap();
        }
        let rewritten = cursor.entry().is_some_and(|entry| entry.sequence > 0);
        ingested += u64::from(rewritten && table.properties().get(EXTERNAL).is_some());
    }
    assert_eq!(ingested, 1);
}

const EXTERNAL: &str = "rocksdb.external_sst_file.version";

#[test]
fn a_global_sequence_number_is_every_entrys_own() {
    let folder = folder();
    let options = SortedTableOptions::default();
    let mut writer =
        SortedTableWriter::create_ingestible_in(Disk, file_in(&folder), options).unwrap();
    writer.add(b"a", 0, Kind::PUT, b"1").unwrap();
    writer.add(b"c", 0, Kind::DELETE, b"").unwrap();
    writer.add_range(b"b", b"d", 0).unwrap();
    writer.finish().unwrap();
    let bytes = std::fs::read(file_in(&folder)).unwrap();
    let open = |bytes: &[u8], global| {
        SortedTable::with_global_sequence(
            "in.sst",
            TableSource::memory(Arc::new(bytes.to_vec())),
            global,
        )
    };
    // Overwrites the number in place without a new checksum, as a database does.
    let name = b"rocksdb.external_sst_file.global_seqno";
    // The name shares its beginning with the previous one, so only its end is in the file.
    let at = bytes
        .windows(12)
        .position(|window| window == &name[26..])
        .unwrap()
        + 12;
    let mut rewritten = bytes.clone();
    rewritten[at..at + 8].copy_from_slice(&77u64.to_le_bytes());
    let by_manifest = open(&bytes, Some(77)).unwrap();
    for table in [
        open(&rewritten, None).unwrap(),
        open(&rewritten, Some(77)).unwrap(),
        by_manifest,
    ] {
        table.verify().unwrap();
        let value = table.get(b"a", 77).unwrap().into_value().unwrap();
        assert_eq!(value.sequence, 77);
        assert_eq!(table.get(b"a", 76).unwrap(), Lookup::NotFound);
        assert!(matches!(
            table.get(b"c", 99).unwrap(),
            Lookup::Deleted { sequence: 77, .. }
        ));
        assert_eq!(table.covering_tombstone(b"bb", 80).unwrap(), Some(77));
        assert_eq!(table.covering_tombstone(b"bb", 76).unwrap(), None);
    }
    assert!(matches!(
        open(&rewritten, Some(78)),
        Err(Error::InvalidArgument(_))
    ));
    rewritten[at - 3] ^= 1;
    assert!(matches!(open(&rewritten, None), Err(Error::Corruption(_))));
}
