//! Reads files that RocksDB and LevelDB of many ages wrote: every version of every key, and every
//! flipped bit of the files in `data`.
//!
//! `ages/history.c` and `ages/goleveldb` make them from the operations here. `ages/run` fetches the
//! libraries; with `PARANOID_REWRITE` set it keeps the files of [`KEPT`] in `data`.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use paranoid_memtable::Kind;
use paranoid_sst::{Error, Result, SortedTable, TableSource};

use crate::damage::is_right_or_says_so;
use crate::model::{Model, Row, folder, hex};
use crate::reader::wanted;
use crate::rng::Watchdog;
use crate::rocksdb::rows_of;
use crate::tools;

/// Files of [`History`]: name, program, options, operations, and whether snappy compressed the
/// file.
const KEPT: [(&str, &str, &str, &str, bool); 4] = [
    ("leveldb-1.23.ldb", "leveldb", "", "PD", false),
    (
        "leveldb-1.23-snappy-filter.ldb",
        "leveldb",
        "snappy,filter",
        "PD",
        true,
    ),
    (
        "goleveldb-1.0-snappy-filter.ldb",
        "goleveldb",
        "snappy,filter",
        "PD",
        true,
    ),
    (
        "rocksdb-3.13.1-version-0.sst",
        "3.13.1",
        "compression=kNoCompression",
        "PDM",
        false,
    ),
];

/// Releases of RocksDB that `ages/run` fetches, the operations of their C functions, and the first
/// and the last format version that they write. RocksDB 9 writes 1 for an earlier first one.
const AGES: [(&str, &str, u32, u32); 8] = [
    ("4.13.5", "PDM", 0, 2),
    ("5.11.3", "PDMR", 0, 2),
    ("5.15.10", "PDMR", 0, 3),
    ("5.18.4", "PDMR", 0, 4),
    ("6.29.5", "PDMRS", 0, 5),
    ("7.4.5", "PDMRS", 0, 5),
    ("9.8.4", "PDMRS", 1, 6),
    ("11.8.1", "PDMRS", 2, 7),
];

/// Options of filters: none, one of the whole file, and one of each block. Releases since 7.0 take
/// the last for the second.
const FILTERS: [&str; 3] = [
    "",
    ";filter_policy=bloomfilter:10:false",
    ";filter_policy=bloomfilter:10:true",
];

/// Operations as `ages/history.c` reads them, and their versions if none is dropped.
struct History {
    lines: String,
    model: Model,
}

impl History {
    /// Operations of these kinds: P put, D delete, M merge of a number, S single delete, R range
    /// delete.
    fn of(letters: &str) -> History {
        let (mut lines, mut rows, mut ranges) = (String::new(), vec![], vec![]);
        for n in 0..160u64 {
            let letter = if n % 2 == 0 {
                'P'
            } else {
                letters.chars().cycle().nth(n as usize / 2).unwrap()
            };
            let key = format!(
                "{}{:02}",
                if letter == 'M' { "sum" } else { "key" },
                n * 7 % 19
            )
            .into_bytes();
            let (kind, value) = match letter {
                'P' => (Kind::PUT, vec![b'a' + n as u8 % 26; n as usize % 23]),
                'M' => (Kind::MERGE, n.to_le_bytes().to_vec()),
                'S' => (Kind::SINGLE_DELETE, vec![]),
                'R' => (
                    Kind::RANGE_DELETE,
                    format!("key{:02}", n * 7 % 19 + 2 + n % 3).into_bytes(),
                ),
                _ => (Kind::DELETE, vec![]),
            };
            lines += &format!("{letter} {} {}\n", hex(&key), hex(&value));
            match kind {
                Kind::RANGE_DELETE => ranges.push((key, value, n + 1)),
                _ => rows.push(Row {
                    key,
                    sequence: n + 1,
                    kind,
                    value,
                }),
            }
        }
        History {
            lines,
            model: Model {
                ranges,
                ..Model::from_rows(rows)
            },
        }
    }

    /// Makes a program write a database of these operations in `folder`. Returns its table file.
    fn file(&self, program: &Path, arguments: &[&OsStr], folder: &Path, options: &str) -> PathBuf {
        let operations = folder.join("operations");
        std::fs::write(&operations, &self.lines).unwrap();
        let database = folder.join("database");
        let mut all = arguments.to_vec();
        all.extend([database.as_os_str(), OsStr::new(options)]);
        tools::run_with(program, &all, Stdio::from(File::open(operations).unwrap()));
        let files = std::fs::read_dir(database)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let is_table = |path: &PathBuf| {
            path.extension()
                .is_some_and(|end| end == "sst" || end == "ldb")
        };
        let tables: Vec<_> = files.filter(is_table).collect();
        assert_eq!(tables.len(), 1, "{tables:?}");
        tables[0].clone()
    }

    /// Asserts that a table holds every version, and that gets at every one of them are right.
    fn is_in(&self, table: &SortedTable, name: &str) {
        let report = table
            .verify()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(report.entries, self.model.rows.len() as u64, "{name}");
        assert_eq!(
            report.range_deletions > 0,
            !self.model.ranges.is_empty(),
            "{name}"
        );
        assert_eq!(rows_of(table), self.model.rows, "{name}");
        for row in &self.model.rows {
            for snapshot in [row.sequence, row.sequence - 1, u64::MAX] {
                let found = table.get(&row.key, snapshot).unwrap();
                assert_eq!(found, wanted(&self.model, &row.key, snapshot), "{name}");
            }
        }
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn open(bytes: &[u8]) -> Result<SortedTable> {
    SortedTable::from_source("kept", TableSource::memory(Arc::new(bytes.to_vec())))
}

/// The content of a file that another program wrote, as this crate reads it.
fn model_of(table: &SortedTable) -> Model {
    let ranges = table
        .range_tombstones()
        .map(|(start, end, sequence)| (start.into(), end.into(), sequence));
    Model {
        rows: rows_of(table),
        ranges: ranges.collect(),
    }
}

#[test]
fn kept_files_have_every_version() {
    for (name, _, _, letters, is_snappy) in KEPT {
        match SortedTable::open(data(name)) {
            Ok(table) => {
                assert_eq!(table.footer().format_version(), 0, "{name}");
                assert_eq!(
                    table.properties().iter().next().is_none(),
                    name.ends_with(".ldb"),
                    "{name}"
                );
                History::of(letters).is_in(&table, name);
            }
            Err(Error::NotSupported { feature, .. }) if is_snappy && !cfg!(feature = "snappy") => {
                assert_eq!(feature, "compression Snappy (type 1)");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// RocksDB 5.15 to 5.18 count range deletions only under their own name.
#[test]
fn range_deletions_that_are_counted_apart_are_no_damage() {
    let table = SortedTable::open(data("rocksdb-5.18.4-range-deletion.sst")).unwrap();
    let report = table.verify().unwrap();
    assert_eq!((report.entries, report.range_deletions), (90, 1));
    assert_eq!(table.properties().number("rocksdb.num.entries"), Some(90));
}

#[test]
fn the_comparator_of_rocksdb_4_is_read() {
    let table = SortedTable::open(data("rocksdb-4.13.5.sst")).unwrap();
    let comparator = table.properties().get("rocksdb.comparator").unwrap();
    assert_eq!(
        comparator,
        b"rocksdb.InternalKeyComparator:leveldb.BytewiseComparator"
    );
    let report = table.verify().unwrap();
    assert_eq!((report.entries, report.range_deletions), (101, 0));
}

#[test]
fn every_flipped_bit_of_a_kept_file_shows() {
    let _watchdog = Watchdog::new("ages::every_flipped_bit_of_a_kept_file_shows", 0);
    // Development builds take every 61st bit, beginning with another one for each file.
    let stride = if cfg!(debug_assertions) { 61 } else { 1 };
    let others = ["rocksdb-4.13.5.sst", "rocksdb-5.18.4-range-deletion.sst"];
    let names = KEPT
        .iter()
        .filter(|kept| cfg!(feature = "snappy") || !kept.4)
        .map(|kept| kept.0);
    for (first, name) in names.chain(others).enumerate() {
        let mut bytes = std::fs::read(data(name)).unwrap();
        let whole = open(&bytes).unwrap();
        let (model, report) = (model_of(&whole), whole.verify().unwrap());
        // The properties of old files do not state the format version, and between 2 and 5 all is
        // read in the same way.
        let version = bytes.len() - 12..if whole.footer().format_version() == 2 {
            bytes.len()
        } else {
            0
        };
        for bit in (first..8 * bytes.len()).step_by(stride) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let verdict = open(&bytes).and_then(|table| {
                is_right_or_says_so(&table, &model, bit % 9, 9);
                table.verify()
            });
            match verdict {
                Ok(found) if version.contains(&(bit / 8)) => {
                    assert_eq!(found, report, "{name} bit {bit}")
                }
                verdict => {
                    assert!(
                        matches!(verdict, Err(Error::Corruption(_))),
                        "{name} bit {bit}: {verdict:?}"
                    )
                }
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in (0..bytes.len()).step_by(if stride == 1 { 1 } else { 7 }) {
            let verdict = open(&bytes[..len]).and_then(|table| table.verify());
            assert!(
                matches!(verdict, Err(Error::Corruption(_))),
                "{name} length {len}: {verdict:?}"
            );
        }
    }
}

/// The program of `ages/history.c`.
fn history_program(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("history");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ages/history.c");
    tools::run(
        &tools::find("cc")?,
        &[
            "-O1",
            "-Wall",
            "-o",
            program.to_str().unwrap(),
            source,
            "-ldl",
        ],
    );
    Some(program)
}

/// Makes a RocksDB write the operations in all format versions up to `last`, in every compression.
fn rocksdb_keeps(
    program: &Path,
    library: &OsStr,
    letters: &str,
    versions: std::ops::RangeInclusive<u32>,
) {
    let history = History::of(letters);
    for version in versions {
        for compression in [
            "kNoCompression",
            "kSnappyCompression",
            "kLZ4Compression",
            "kZSTD",
        ] {
            let is_read = match compression {
                "kSnappyCompression" => cfg!(feature = "snappy"),
                "kLZ4Compression" => cfg!(feature = "lz4"),
                // Earlier releases have another name for it.
                "kZSTD" => cfg!(feature = "zstd") && letters.contains('R'),
                _ => true,
            };
            let filters = if compression == "kNoCompression" {
                &FILTERS[..]
            } else {
                &FILTERS[..1]
            };
            for filter in filters.iter().filter(|_| is_read) {
                let folder = folder();
                let options = format!(
                    "compression={compression};block_based_table_factory={{format_version={version};block_size=256{filter}}}"
                );
                let arguments = [library, OsStr::new("rocksdb")];
                let file = history.file(program, &arguments, folder.path(), &options);
                let table = SortedTable::open(file).unwrap();
                assert_eq!(table.footer().format_version(), version);
                history.is_in(&table, &format!("{library:?} {options}"));
            }
        }
    }
}

/// The library that comes with `rocksdb-tools`.
#[test]
fn the_installed_rocksdb_keeps_every_version() {
    let _watchdog = Watchdog::new("ages::the_installed_rocksdb_keeps_every_version", 0);
    let folder = folder();
    let (Some(program), Some(library)) = (history_program(folder.path()), tools::library()) else {
        return;
    };
    rocksdb_keeps(&program, &library, "PDMRS", 1..=5);
}

#[test]
#[ignore = "needs what `ages/run` fetches"]
fn every_age_keeps_every_version() {
    let watchdog = || Watchdog::new("ages::every_age_keeps_every_version", 0);
    let fetched = PathBuf::from(std::env::var_os("PARANOID_SST_AGES").unwrap());
    let programs = folder();
    let program = history_program(programs.path()).unwrap();
    for (name, maker, options, letters, _) in KEPT {
        let _watchdog = watchdog();
        let (history, folder) = (History::of(letters), folder());
        let library = fetched.join(format!("{maker}.so"));
        let api = if maker == "leveldb" {
            "leveldb"
        } else {
            "rocksdb"
        };
        let file = match maker {
            "goleveldb" => history.file(&fetched.join(maker), &[], folder.path(), options),
            _ => history.file(
                &program,
                &[library.as_os_str(), OsStr::new(api)],
                folder.path(),
                options,
            ),
        };
        history.is_in(&SortedTable::open(&file).unwrap(), name);
        if std::env::var_os("PARANOID_REWRITE").is_some() {
            std::fs::copy(&file, data(name)).unwrap();
        }
        println!("{maker} {options}: every version found");
    }
    for (age, letters, first, last) in AGES {
        let _watchdog = watchdog();
        let library = fetched.join(format!("{age}.so"));
        rocksdb_keeps(&program, library.as_os_str(), letters, first..=last);
        println!("RocksDB {age}: every version found");
    }
}
