//! Checks this crate's files inside a database of RocksDB by gets, key by key, also of absent keys:
//! a scan would not notice a wrong filter hash, a wrong form of the index or wrong properties.

use std::path::Path;

use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::SortedTableOptions;

use crate::model::{Model, file_in, folder, hex};
use crate::rng::{Rng, Watchdog, seed_or};
use crate::rocksdb::fragments_of;
use crate::tools;

/// A model without merges, which a database without an operator cannot answer.
pub(crate) fn without_merges(rng: &mut Rng, entries: u64) -> Model {
    let mut model = Model::random(rng, entries);
    for row in &mut model.rows {
        if row.kind == Kind::MERGE {
            row.kind = Kind::PUT;
        }
    }
    model
}

/// Keys of the model, and keys near them.
fn questions(model: &Model, rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![]];
    for _ in 0..count {
        let key = rng.pick(&model.rows).key.clone();
        keys.push([key.as_slice(), &[rng.below(256) as u8]].concat());
        keys.push(key);
        keys.push(rng.bytes(4));
    }
    keys
}

/// Gets each key from a database with a filter policy. The program ends at the first absent key
/// (with a code that means nothing), so it is started again for the keys after it.
pub(crate) fn ask(ldb: &Path, database: &Path, keys: &[Vec<u8>]) -> Vec<Option<String>> {
    let database = format!("--db={}", database.display());
    let arguments = [
        &database,
        "--hex",
        "--bloom_bits=10",
        "--try_load_options=false",
        "query",
    ];
    let mut answers = vec![];
    while answers.len() < keys.len() {
        let left = &keys[answers.len()..];
        let input: String = left
            .iter()
            .map(|key| format!("get 0x{}\n", hex(key)))
            .collect();
        let out = tools::output(ldb, &arguments, &input);
        let before = answers.len();
        for line in out.lines() {
            if line.starts_with("Not found 0x") {
                answers.push(None);
            } else if let Some((_, value)) = line.split_once(" ==> 0x") {
                answers.push(Some(value.to_lowercase()));
            }
        }
        assert!(
            answers.len() > before && answers.len() <= keys.len(),
            "{out}"
        );
    }
    answers
}

#[test]
fn repair_adopts_a_file_and_the_database_answers_every_get() {
    let seed = seed_or(0xad0);
    let _watchdog = Watchdog::new("adoption::repair_adopts_a_file", seed);
    let Some(ldb) = tools::find("ldb") else {
        return;
    };
    let mut rng = Rng::new(seed);
    for (version, kind) in [(2, 1), (3, 2), (5, 4)] {
        let model = without_merges(&mut rng, 700);
        let folder = folder();
        let kind = ChecksumKind::try_from(kind).unwrap();
        model.write(
            &file_in(&folder),
            SortedTableOptions::builder()
                .format_version(version)
                .checksum(kind),
        );
        let database = format!("--db={}", folder.path().display());
        let out = tools::run(&ldb, &[&database, "repair"]);
        assert!(out.contains("recovered 1 files"), "{out}");
        let keys = questions(&model, &mut rng, 12);
        let answers = ask(&ldb, folder.path(), &keys);
        assert_eq!(answers.len(), keys.len(), "version {version}");
        for (key, answer) in keys.iter().zip(answers) {
            let wanted = model.newest(key).map(|row| hex(&row.value));
            assert_eq!(answer, wanted, "version {version} key {}", hex(key));
        }
        let out = tools::run(
            &ldb,
            &[
                &database,
                "--try_load_options=false",
                "list_file_range_deletes",
            ],
        );
        let listed: Vec<(String, String)> = out.lines().filter_map(range).collect();
        assert_eq!(listed, fragments_of(&model), "{out}");
        tools::run(
            &ldb,
            &[&database, "--try_load_options=false", "checkconsistency"],
        );
    }
}

/// `start: 61 end: 62 seq: 3` in hexadecimal digits.
fn range(line: &str) -> Option<(String, String)> {
    let (start, rest) = line.strip_prefix("start:")?.split_once(" end:")?;
    let (end, _) = rest.split_once(" seq:")?;
    Some((start.trim().to_lowercase(), end.trim().to_lowercase()))
}
