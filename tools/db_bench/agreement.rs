//! Tests that several tables at once agree with a model, that the keys are those of RocksDB's own
//! db_bench, and that RocksDB's published command lines run unchanged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use paranoid_memtable::{MemTableOptions, WriteBatch};

use crate::fills::{Twister, pool};
use crate::flags::Flags;
use crate::journal::{self, Journal, Sync};
use crate::reads::{Answer, MultiGet, Scan};
use crate::settings::Settings;
use crate::tables::{Db, Op, WriteOrder, Writing};
use crate::{NAMES, bench, plan};

const WRITING: Writing = Writing {
    sync: Sync::Never,
    order: WriteOrder::Concurrent,
    batch_protection: 0,
};

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pmt-db-bench-{name}-{}", std::process::id()))
}

#[test]
fn every_published_command_is_read() {
    let mut changes: BTreeMap<&str, usize> = BTreeMap::new();
    for line in include_str!("published.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [change, _, command] = parts[..] else {
            panic!("three parts: {line}")
        };
        let words: Vec<&str> = command.split_whitespace().collect();
        let flags = Flags::parse(&words).unwrap_or_else(|error| panic!("{error}: {line}"));
        let settings = Settings::of(&flags).unwrap_or_else(|error| panic!("{error:?}: {line}"));
        let entries = plan(&settings).unwrap_or_else(|error| panic!("{error:?}: {line}"));
        assert!(!entries.is_empty());
        *changes.entry(change).or_default() += 1;
    }
    assert_eq!(changes.len(), 5);
}

#[test]
fn benchmarks_are_known_or_refused_by_name() {
    let plan_of = |benchmarks: String| {
        plan(
            &Settings::of(&Flags::parse(&[format!("--benchmarks={benchmarks}")]).unwrap()).unwrap(),
        )
    };
    assert_eq!(plan_of(NAMES.join(",")).unwrap().len(), NAMES.len());
    let entries = plan_of("readrandom[-W2-X20],fillseq[X3-W4],readseq".into()).unwrap();
    let repeats: Vec<_> = entries
        .iter()
        .map(|entry| (entry.warm_ups, entry.runs))
        .collect();
    assert_eq!(repeats, [(2, 20), (4, 3), (0, 1)]);
    for (name, wanted) in [
        ("compact", "compact has no meaning here: there are no files"),
        ("nothing", "unknown benchmark 'nothing'"),
        ("readseq[-Y2]", "neither Xn nor Wn"),
        ("readseq[-X2", "not closed"),
    ] {
        let error = format!("{:?}", plan_of(name.into()).unwrap_err());
        assert!(error.contains(wanted), "{error}");
    }
}

/// With seed 5 and 20000 keys RocksDB 7.8.3's db_bench reports 12674 keys and these counts found.
#[test]
fn keys_are_those_of_rocksdb() {
    let words = [
        "--num=20000",
        "--seed=5",
        "--disable_wal",
        "--benchmarks=\
        fillrandom,readrandom,readseq,readreverse,seekrandom,multireadrandom",
    ];
    let settings = Settings::of(&Flags::parse(&words).unwrap()).unwrap();
    let db = Db::new(settings.table.clone(), settings.writing).unwrap();
    let (pool, mut threads) = (pool(100), 0);
    let mut messages = Vec::new();
    for entry in plan(&settings).unwrap() {
        let stats = bench::run(&settings, &db, &pool, &entry.benchmark.work, &mut threads).unwrap();
        messages.push(format!("{} {}", stats.done, stats.message.trim()));
    }
    let expected = [
        "20000 ",
        "20000 (12677 of 20000 found)",
        "12674 ",
        "12674 ",
        "20000 (12745 of 20000 found)",
        "20000 (12688 of 20000 found)",
    ];
    assert_eq!(messages, expected);
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Compares all entries of a database with the model: scans both ways, and a get of each key.
fn compare(db: &Db, model: &Model, keys: &[Vec<u8>], context: &str) {
    let mut session = db.session();
    let snapshot = db.snapshot();
    let version = std::sync::Arc::clone(session.version());
    for key in keys {
        let expected = model
            .get(key)
            .map_or(Answer::Absent, |value| Answer::Value(value.len()));
        assert_eq!(version.get(key).unwrap(), expected, "{context}: {key:?}");
    }
    let answers: Vec<Answer> = MultiGet::default().get(&version, keys).unwrap().collect();
    let expected = keys.iter().map(|key| {
        model
            .get(key)
            .map_or(Answer::Absent, |value| Answer::Value(value.len()))
    });
    assert!(answers.into_iter().eq(expected), "{context}: MultiGet");
    let mut scan = Scan::new(&version, snapshot, None);
    let check = |scan: &Scan<'_>, expected: Option<(&Vec<u8>, &Vec<u8>)>| {
        let shown = scan
            .entry()
            .unwrap()
            .map(|entry| (entry.user_key().to_vec(), entry.value().unwrap().to_vec()));
        assert_eq!(
            shown,
            expected.map(|(key, value)| (key.clone(), value.clone())),
            "{context}"
        );
    };
    scan.first().unwrap();
    for expected in model {
        check(&scan, Some(expected));
        scan.next().unwrap();
    }
    check(&scan, None);
    scan.last().unwrap();
    for expected in model.iter().rev() {
        check(&scan, Some(expected));
        scan.prev().unwrap();
    }
    check(&scan, None);
    for key in keys {
        scan.seek(key).unwrap();
        check(&scan, model.range(key.clone()..).next());
        if model.range(key.clone()..).next().is_some() {
            scan.prev().unwrap();
            check(&scan, model.range(..key.clone()).next_back());
            if model.range(..key.clone()).next_back().is_some() {
                scan.next().unwrap();
                check(&scan, model.range(key.clone()..).next());
            }
        }
    }
}

/// Makes one random write, to the database and to the model.
fn write(
    random: &mut Twister,
    session: &mut crate::tables::Session<'_>,
    model: &mut Model,
    keys: &[Vec<u8>],
) {
    let number = |random: &mut Twister| usize::try_from(random.below(keys.len() as u64)).unwrap();
    let key = &keys[number(random)];
    match random.below(10) {
        0..6 => {
            let len = usize::try_from(1 + random.below(400)).unwrap();
            let value = vec![u8::try_from(random.below(256)).unwrap(); len];
            session.write(Op::Put(key, &value)).unwrap();
            model.insert(key.clone(), value);
        }
        6..9 => {
            session.write(Op::Delete(key)).unwrap();
            model.remove(key);
        }
        _ => {
            let end = &keys[number(random)];
            if key < end {
                session.write(Op::DeleteRange(key, end)).unwrap();
                model.retain(|held, _| held < key || held >= end);
            }
        }
    }
}

#[test]
fn several_tables_agree_with_a_model() {
    let keys: Vec<Vec<u8>> = (0u8..40).map(|number| vec![number]).collect();
    for seed in if cfg!(debug_assertions) { 1..3 } else { 1..9 } {
        // Tables hold a few dozen writes, so that puts, deletes and range deletes of a key are in
        // different tables.
        let options = MemTableOptions::builder()
            .write_buffer_size(24 << 10)
            .build()
            .unwrap();
        let directory = folder(&format!("model-{seed}"));
        let journal = Journal::create(&directory, paranoid_memtable::ChecksumKind::Crc32c).unwrap();
        let db = Db::new(options.clone(), WRITING).unwrap();
        let db = if seed % 2 == 0 {
            db.with_journal(journal)
        } else {
            db
        };
        let (mut random, mut model, mut session) = (Twister::new(seed), Model::new(), db.session());
        for step in 0..40 {
            for _ in 0..20 {
                write(&mut random, &mut session, &mut model, &keys);
            }
            compare(&db, &model, &keys, &format!("seed {seed}, step {step}"));
        }
        assert!(
            session.version().tables.len() > 3,
            "seed {seed}: {}",
            session.version().tables.len()
        );
        if seed % 2 == 0 {
            let again = Db::new(options, WRITING).unwrap();
            let replayed =
                journal::replay(&directory, |batch: &WriteBatch| again.replay(batch)).unwrap();
            assert_eq!(replayed.map(|replayed| replayed.torn), Some(0));
            compare(&again, &model, &keys, &format!("seed {seed}, replayed"));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn threads_write_across_rotations() {
    let options = MemTableOptions::builder()
        .write_buffer_size(64 << 10)
        .build()
        .unwrap();
    let db = Db::new(options, WRITING).unwrap();
    std::thread::scope(|scope| {
        for thread in 0u64..4 {
            let db = &db;
            scope.spawn(move || {
                let mut session = db.session();
                for round in 0u64..400 {
                    let key = ((thread << 32) | (round % 50)).to_be_bytes();
                    session
                        .write(Op::Put(&key, &vec![0; usize::try_from(round).unwrap() + 1]))
                        .unwrap();
                    let read = session.version().get(&key).unwrap();
                    assert_eq!(
                        read,
                        Answer::Value(usize::try_from(round).unwrap() + 1),
                        "{thread}, {round}"
                    );
                }
            });
        }
    });
    let mut session = db.session();
    let version = session.version();
    assert!(version.tables.len() > 3);
    // Sequence numbers of a table are larger than those of the tables after it.
    for pair in version.tables.windows(2) {
        let (newer, older) = (
            pair[0].stats().smallest_sequence,
            pair[1].stats().largest_sequence,
        );
        assert!(
            newer.is_none_or(|newer| Some(newer) > older),
            "{newer:?} {older:?}"
        );
    }
}
