//! Batches of several column families: bytes as RocksDB writes them, and each family in a table of
//! its own.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use paranoid_memtable::integrity::{Place, Protected};
use paranoid_memtable::{Error, Kind, MemTable, MemTableOptions, WriteBatch};
use paranoid_set::{Durability, MemTableSet, SetOptions};

use crate::batch::Op;
use crate::support::rng::Rng;

/// One varint byte, two and five.
const FAMILIES: [u32; 5] = [0, 1, 127, 300, u32::MAX];

/// RocksDB's kinds in records of families.
const KINDS: [Kind; 5] = [
    Kind::PUT,
    Kind::MERGE,
    Kind::DELETE,
    Kind::SINGLE_DELETE,
    Kind::RANGE_DELETE,
];

fn table() -> MemTable {
    MemTable::new(
        MemTableOptions::builder()
            .write_buffer_size(256 << 10)
            .build()
            .unwrap(),
    )
    .unwrap()
}

/// Family, kind, key and value of all entries.
fn rows(batch: &WriteBatch) -> Result<Vec<(u32, Op)>, Error> {
    let entries = batch.entries();
    entries
        .map(|e| e.map(|e| (e.family(), (e.kind(), e.key().to_vec(), e.value().to_vec()))))
        .collect()
}

/// The batch of this name in `tests/data/rocksdb_families.txt`.
fn of_rocksdb(name: &str) -> Vec<u8> {
    let lines = include_str!("../data/rocksdb_families.txt").lines();
    let hex = lines
        .filter_map(|line| line.split_once(' '))
        .find(|(of, _)| *of == name)
        .expect(name)
        .1;
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// The batch of `of_rocksdb`, written by this crate.
fn ours(name: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let mut add = |family, kind, key: &[u8], value: &[u8]| {
        batch.insert_in(family, kind, key, value).unwrap();
    };
    match name {
        "kinds" => {
            add(0, Kind::PUT, b"k", b"v");
            add(1, Kind::PUT, b"k", b"v");
            add(1, Kind::MERGE, b"m", b"+1");
            add(1, Kind::DELETE, b"d", b"");
            add(1, Kind::SINGLE_DELETE, b"s", b"");
            add(1, Kind::RANGE_DELETE, b"a", b"c");
        }
        "ids" => {
            for family in [0, 1, 2, 127, 128, 300] {
                add(family, Kind::PUT, b"k", format!("v{family}").as_bytes());
            }
        }
        _ => {
            add(1, Kind::PUT, b"k", b"1");
            add(0, Kind::PUT, b"k", b"0");
            add(2, Kind::RANGE_DELETE, b"", b"z");
            add(0, Kind::DELETE, b"j", b"");
            add(300, Kind::MERGE, b"k", &[b'x'; 200]);
            add(1, Kind::PUT, &[b'k'; 130], b"");
        }
    }
    batch
}

#[test]
fn rocksdbs_own_batches_are_read_and_written() {
    for name in ["kinds", "ids", "mixed"] {
        let (bytes, ours) = (of_rocksdb(name), ours(name));
        for read in [
            WriteBatch::from_bytes(&bytes).unwrap(),
            WriteBatch::from_verified(bytes.clone(), |_| Ok(())).unwrap(),
        ] {
            assert_eq!(rows(&read).unwrap(), rows(&ours).unwrap(), "{name}");
            assert_eq!(read.as_bytes(), bytes);
            let mut appended = WriteBatch::new();
            appended.append(&read).unwrap();
            assert_eq!(
                (rows(&appended).unwrap(), appended.as_bytes()),
                (rows(&ours).unwrap(), &*bytes)
            );
        }
        // Log data is not an entry, so it is not written again.
        let note: &[u8] = b"\x03\x04note";
        let place = bytes.windows(note.len()).position(|window| window == note);
        let mut bytes = bytes;
        place.map(|place| bytes.drain(place..place + note.len()));
        assert_eq!(
            (ours.as_bytes(), place.is_some()),
            (&*bytes, name == "mixed")
        );
    }
}

#[test]
fn entries_carry_the_digest_that_tables_know() {
    for entry in ours("mixed").entries() {
        let entry = entry.unwrap();
        let digest = Protected::of(entry.key(), entry.value(), entry.kind());
        assert_eq!(entry.caller_digest(), Some(digest));
    }
}

/// Family 0 in the longer encoding; ids that are cut off, overlong or over 32 bits; cut
/// records.
#[test]
fn what_rocksdb_would_not_write_is_corruption() {
    for family in [
        b"\x00".as_slice(),
        b"\x81\x00",
        b"\x80\x00",
        b"\xff\xff\xff\xff\x1f",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x80",
        b"",
    ] {
        let bytes = [b"\0\0\0\0\0\0\0\0\x01\0\0\0\x05", family].concat();
        let whole = [&*bytes, b"\x01k\x01v"].concat();
        for bytes in [bytes, whole] {
            if family == b"\x80" && bytes.len() > 14 || family.is_empty() && bytes.len() > 13 {
                continue;
            }
            let error = WriteBatch::from_bytes(&bytes).unwrap_err();
            let place = error
                .corruption()
                .map(|report| (report.place, report.offset));
            assert_eq!(place, Some((Place::Encoding, 13)), "{family:?}");
        }
    }
    for name in ["kinds", "ids", "mixed"] {
        let bytes = of_rocksdb(name);
        for len in 0..bytes.len() {
            assert!(
                matches!(
                    WriteBatch::from_bytes(&bytes[..len]),
                    Err(Error::Corruption(_))
                ),
                "{len}"
            );
        }
    }
}

#[test]
fn custom_kinds_and_limits() {
    let mut batch = WriteBatch::new();
    let error = batch
        .insert_in(7, Kind::FIRST_CUSTOM, b"k", b"v")
        .unwrap_err();
    assert!(
        matches!(&error, Error::InvalidArgument(text) if text.contains("family 7")),
        "{error}"
    );
    assert_eq!(batch.as_bytes(), [0; 12]);
    batch.insert_in(0, Kind::FIRST_CUSTOM, b"k", b"v").unwrap();
    assert_eq!(batch.len(), 1);
    let mut full = WriteBatch::new().with_max_bytes(12 + 6).unwrap();
    let refused = full.insert_in(300, Kind::PUT, b"k", b"v").unwrap_err();
    assert!(
        matches!(
            refused,
            Error::BatchFull {
                needed: 19,
                max: 18
            }
        ),
        "{refused}"
    );
    full.insert_in(127, Kind::PUT, b"k", b"v").unwrap();
    assert_eq!(full.as_bytes().len(), 12 + 6);
}

/// A table refuses, by name, a whole batch with entries of other families.
#[test]
fn a_batch_for_several_tables_is_refused_by_one() {
    let (table, set) = (
        table(),
        MemTableSet::open(SetOptions::default(), ()).unwrap(),
    );
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").unwrap();
    batch.insert_in(300, Kind::PUT, b"b", b"2").unwrap();
    batch.set_sequence(5);
    for error in [
        table.write_batch(5, &batch).unwrap_err(),
        table.writer().write_batch(5, &batch).unwrap_err(),
        table.prepare(&batch).map(drop).unwrap_err(),
        set.write(&batch).unwrap_err(),
        set.write_with(&batch, Durability::None).unwrap_err(),
        set.replay(&batch).unwrap_err(),
    ] {
        let Error::InvalidArgument(text) = error else {
            panic!("{error:?}")
        };
        assert!(
            text.contains("entry 1 of the batch: it is of column family 300"),
            "{text}"
        );
    }
    assert_eq!((table.len(), table.stats().largest_sequence), (0, None));
    assert_eq!(set.snapshot().sequence(), 0);
    batch.clear();
    batch.put(b"a", b"1").unwrap();
    assert_eq!(set.write(&batch).unwrap(), 1, "the set goes on");
}

/// Family, number in the whole batch, kind, key and value.
type Row = (u32, u64, Kind, Vec<u8>, Vec<u8>);

/// Family, key and number.
type Version = (u32, Vec<u8>, Reverse<u64>);

/// A batch, and a row for each of its entries.
fn random_batch(rng: &mut Rng, first: u64) -> (WriteBatch, Vec<Row>) {
    let protection = [0, 8][rng.index(2)];
    let mut batch = WriteBatch::with_protection(protection).unwrap();
    let mut rows = Vec::new();
    for n in 0..rng.below(30) {
        // Some keys are in several families, under one number too.
        let key = (rng.below(4) * 100 + n / 2 * 2).to_be_bytes().to_vec();
        let family = if n % 2 == 0 {
            FAMILIES[rng.index(2)]
        } else {
            FAMILIES[2 + rng.index(3)]
        };
        let kind = KINDS[rng.index(5)];
        let value = match kind {
            Kind::RANGE_DELETE => [&*key, b"~"].concat(),
            kind if kind.is_point_delete() => vec![],
            _ => vec![b'v'; rng.index(200)],
        };
        batch.insert_in(family, kind, &key, &value).unwrap();
        rows.push((family, first + n, kind, key, value));
    }
    (batch, rows)
}

/// Compares the tables of `write_batch_of` with one map for each family, and with a table that
/// is written entry by entry.
#[test]
fn every_family_takes_its_entries_under_their_numbers_in_the_batch() {
    for seed in 0..if cfg!(miri) { 2 } else { 40 } {
        let (mut rng, mut next) = (Rng::new(seed), 1);
        let tables: BTreeMap<u32, (MemTable, MemTable)> = FAMILIES
            .into_iter()
            .map(|family| (family, (table(), table())))
            .collect();
        let mut model: BTreeMap<Version, (Kind, Vec<u8>)> = BTreeMap::new();
        for _ in 0..if cfg!(miri) { 3 } else { 20 } {
            let (batch, rows) = random_batch(&mut rng, next);
            let logged = WriteBatch::from_verified(batch.as_bytes().to_vec(), |_| Ok(())).unwrap();
            for (family, (batched, single)) in &tables {
                let from = if rng.one_in(2) { &batch } else { &logged };
                let written = batched.write_batch_of(*family, next, from).unwrap();
                let mine = || rows.iter().filter(|(of, ..)| of == family);
                assert_eq!(written.entries, mine().count() as u64, "seed {seed}");
                for (family, number, kind, key, value) in mine() {
                    single.insert(*number, *kind, key, value).unwrap();
                    if *kind != Kind::RANGE_DELETE {
                        model.insert(
                            (*family, key.clone(), Reverse(*number)),
                            (*kind, value.clone()),
                        );
                    }
                }
            }
            next += rows.len() as u64 + 1;
        }
        for (family, (batched, single)) in tables {
            let wanted = model.iter().filter(|((of, ..), _)| *of == family);
            let mut found = batched.versions::<Vec<u8>>(..);
            for ((_, key, Reverse(number)), (kind, value)) in wanted {
                let entry = found.next().expect("an entry of the model").unwrap();
                assert_eq!(
                    (entry.user_key(), entry.sequence()),
                    (&**key, *number),
                    "seed {seed}"
                );
                assert_eq!(
                    (entry.kind(), entry.value().unwrap()),
                    (*kind, &**value),
                    "seed {seed}"
                );
            }
            assert!(found.next().is_none(), "seed {seed}, family {family}");
            for key in model.keys().map(|(_, key, _)| key) {
                for at in [next / 3, next / 2, next] {
                    let gets = [&batched, &single].map(|table| format!("{:?}", table.get(key, at)));
                    assert_eq!(gets[0], gets[1], "seed {seed}, family {family}");
                }
            }
        }
    }
}

/// A flipped bit, also of a family id, puts nothing into any table.
#[cfg(feature = "fault-injection")]
#[test]
fn no_flipped_bit_puts_an_entry_into_another_table() {
    for name in ["kinds", "ids"] {
        let mut batch = WriteBatch::from_verified(of_rocksdb(name), |_| Ok(())).unwrap();
        let tables: Vec<(u32, MemTable)> = [0, 1, 2, 3, 127, 128, 129, 300]
            .into_iter()
            .map(|family| (family, table()))
            .collect();
        for bit in 0..batch.as_bytes().len() * 8 {
            batch.flip_buffer_bit(bit);
            for (family, table) in &tables {
                let written = table.write_batch_of(*family, 1, &batch);
                assert!(
                    matches!(written, Err(Error::Corruption(_))),
                    "bit {bit}: {written:?}"
                );
                assert!(table.is_empty(), "bit {bit}");
            }
            batch.flip_buffer_bit(bit);
        }
        let entries: u64 = tables
            .iter()
            .map(|(family, table)| table.write_batch_of(*family, 1, &batch).unwrap().entries)
            .sum();
        assert_eq!(entries, batch.len() as u64);
    }
}

#[test]
fn what_a_family_does_not_have_is_not_asked_of_its_table() {
    // A key of another family may be too long for this table, and out of its order.
    let short = MemTable::new(MemTableOptions::builder().key_len_max(3).build().unwrap()).unwrap();
    let mut batch = WriteBatch::new();
    batch.insert_in(1, Kind::PUT, b"longer", b"v").unwrap();
    batch.put(b"k", b"v").unwrap();
    assert_eq!(short.write_batch_of(0, 7, &batch).unwrap().entries, 1);
    assert!(matches!(
        short.write_batch_of(1, 7, &batch),
        Err(Error::KeyTooLarge { .. })
    ));
    assert_eq!(short.write_batch_of(2, 7, &batch).unwrap().entries, 0);
    assert_eq!((short.len(), short.stats().largest_sequence), (1, Some(8)));
    // The whole batch takes numbers, also the entries that are left out.
    assert!(matches!(
        short.write_batch_of(2, u64::MAX, &batch),
        Err(Error::InvalidArgument(_))
    ));
}
