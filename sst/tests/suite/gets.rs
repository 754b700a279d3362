//! Gets every key of this crate's files by RocksDB and Pebble, and every key of their files by this
//! crate. A scan would use no filter.
//!
//! `ages/rocksdb.c` is compiled here and loads the library that comes with `rocksdb-tools`.
//! `ages/run` has other ages.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use paranoid_memtable::{ChecksumKind, Kind};
use paranoid_sst::{BlockKind, Disk, SortedTable, SortedTableOptions, SortedTableWriter};

use crate::identity::block;
use crate::model::{folder, hex};
use crate::rng::{Rng, Watchdog, seed_or};
use crate::tools;

/// Numbers of keys, and thousandths of bits of the filter per key. With these numbers earlier files
/// lost keys, or hung their reader.
const SIZES: [(usize, u32); 5] = [
    (100, 10_000),
    (1_000, 3_300),
    (1_200, 10_000),
    (2_450, 15_400),
    (5_000, 10_000),
];

/// Releases that `ages/run` fetches, and the last format version that both the release and this
/// crate know.
const AGES: [(&str, u32); 5] = [
    ("5.11.3", 2),
    ("6.29.5", 5),
    ("7.4.5", 5),
    ("9.8.4", 6),
    ("11.8.1", 6),
];

/// A program that writes table files and gets keys.
struct Age {
    program: PathBuf,
    /// Arguments before all others: the library.
    library: Vec<OsString>,
    last_version: u32,
}

/// Keys that are in a file, in order, and as many absent ones.
struct Keys {
    present: Vec<Vec<u8>>,
    absent: Vec<Vec<u8>>,
}

impl Keys {
    /// Half of the keys are alike, half have any bytes and lengths.
    fn random(rng: &mut Rng, count: usize) -> Keys {
        let mut key = |number: usize| match number % 2 {
            0 => format!("key{number:08}").into_bytes(),
            _ => {
                let len = 4 + rng.index(40);
                rng.bytes(len)
            }
        };
        let present: BTreeSet<Vec<u8>> = (0..count).map(&mut key).collect();
        let absent = (count..2 * count)
            .map(key)
            .filter(|key| !present.contains(key))
            .collect();
        Keys {
            present: present.into_iter().collect(),
            absent,
        }
    }

    /// Least number of absent keys that a filter of this many thousandths of bits per key denies.
    fn denied_at_least(&self, millibits: u32) -> usize {
        self.absent.len() * if millibits < 10_000 { 6 } else { 9 } / 10
    }

    /// A file of keys in the form that the programs read.
    fn input<'a>(folder: &Path, keys: impl Iterator<Item = &'a Vec<u8>>) -> Stdio {
        let path = folder.join("keys");
        std::fs::write(&path, keys.map(|key| hex(key) + "\n").collect::<String>()).unwrap();
        Stdio::from(File::open(path).unwrap())
    }

    fn write(&self, path: &Path, version: u32, millibits: u32) {
        // Readers before RocksDB 6.27 do not know XXH3.
        let options = SortedTableOptions::builder()
            .format_version(version)
            .checksum(ChecksumKind::Crc32c);
        let options = options.bloom_millibits_per_key(millibits).build().unwrap();
        let mut writer = SortedTableWriter::create_ingestible_in(Disk, path, options).unwrap();
        for key in &self.present {
            writer.add(key, 0, Kind::PUT, key).unwrap();
        }
        writer.finish().unwrap();
    }
}

impl Age {
    fn run(&self, action: &str, arguments: &[&Path], input: Stdio) -> String {
        let mut all = self.library.clone();
        all.push(action.into());
        all.extend(arguments.iter().map(|path| path.as_os_str().to_owned()));
        tools::run_with(&self.program, &all, input)
    }

    /// Gets every key of this crate's file.
    fn finds_every_key(&self, keys: &Keys, version: u32, millibits: u32) {
        let folder = folder();
        let file = folder.path().join("ours.sst");
        keys.write(&file, version, millibits);
        let input = Keys::input(folder.path(), keys.present.iter().chain(&keys.absent));
        let out = self.run("get", &[&folder.path().join("database"), &file], input);
        let mut lines = out.lines();
        let answers = lines.next().unwrap_or_default();
        let denied: usize = lines
            .next()
            .and_then(|line| line.parse().ok())
            .unwrap_or_default();
        let wanted = "+".repeat(keys.present.len()) + &"-".repeat(keys.absent.len());
        let missed = answers
            .bytes()
            .zip(wanted.bytes())
            .filter(|(answer, wanted)| answer != wanted)
            .count();
        let name = format!(
            "{:?}, version {version}, {} keys",
            self.library,
            keys.present.len()
        );
        assert!(answers == wanted, "{name}: {missed} wrong answers\n{out}");
        assert!(
            denied >= keys.denied_at_least(millibits),
            "{name}: the filter denied {denied} absent keys"
        );
    }

    /// Reads a file of the other program, and makes the same filter.
    fn is_read(&self, keys: &Keys, version: u32, millibits: u32) {
        let folder = folder();
        let [theirs, ours] = ["theirs.sst", "ours.sst"].map(|name| folder.path().join(name));
        // Later releases choose sizes that suit an allocator; readers take the size from the
        // trailer.
        let plain = if version < 5 {
            ""
        } else {
            ";optimize_filters_for_memory=false"
        };
        let bits = f64::from(millibits) / 1000.0;
        let options =
            format!("filter_policy=bloomfilter:{bits}:false;format_version={version}{plain}");
        let input = Keys::input(folder.path(), keys.present.iter());
        let arguments = [&theirs, Path::new(&options)];
        self.run("write", &arguments, input);
        keys.write(&ours, version, millibits);
        let tables = [&theirs, &ours].map(|path| SortedTable::open(path).unwrap());
        let bytes = [&theirs, &ours].map(|path| std::fs::read(path).unwrap());
        let filters = [0, 1].map(|at| block(&bytes[at], &tables[at], BlockKind::Filter));
        let trailers = filters.map(|filter| hex(filter.last_chunk::<5>().unwrap()));
        assert_eq!(
            trailers[0],
            trailers[1],
            "version {version}, {} keys",
            keys.present.len()
        );
        assert!(
            filters[0] == filters[1],
            "version {version}, {} keys",
            keys.present.len()
        );
        if version < 5 {
            let bits = (millibits + 500) / 1000;
            let lines = (keys.present.len() as u32 * bits).div_ceil(512) | 1;
            let layout = [&[(f64::from(bits) * 0.69) as u8][..], &lines.to_le_bytes()].concat();
            assert_eq!(trailers[0], hex(&layout), "version {version}");
        }
        for table in tables {
            assert_eq!(table.footer().format_version(), version);
            table.verify().unwrap();
            for key in &keys.present {
                assert_eq!(table.get(key, 0).unwrap().value(), Some(&**key));
            }
            let denied = keys
                .absent
                .iter()
                .filter(|key| !table.may_hold(key))
                .count();
            assert!(
                denied >= keys.denied_at_least(millibits),
                "{denied} of {}",
                keys.absent.len()
            );
        }
    }
}

/// The program with this library, or with the one of `rocksdb-tools`.
fn age(folder: &Path, library: Option<OsString>, last_version: u32) -> Option<Age> {
    let cc = tools::find("cc")?;
    let program = folder.join("rocksdb");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ages/rocksdb.c");
    tools::run(
        &cc,
        &[
            "-O1",
            "-Wall",
            "-o",
            program.to_str().unwrap(),
            source,
            "-ldl",
        ],
    );
    let library = library.or_else(tools::library)?;
    Some(Age {
        program,
        library: vec![library],
        last_version,
    })
}

fn versions_and_sizes(age: &Age, act: impl Fn(&Age, &Keys, u32, u32), rng: &mut Rng) {
    for version in 2..=age.last_version {
        for (count, millibits) in SIZES {
            act(age, &Keys::random(rng, count), version, millibits);
        }
    }
}

#[test]
fn rocksdb_gets_every_key_of_ours() {
    let seed = seed_or(0x6e75);
    let _watchdog = Watchdog::new("gets::rocksdb_gets_every_key_of_ours", seed);
    let folder = folder();
    let Some(age) = age(folder.path(), None, 5) else {
        return;
    };
    versions_and_sizes(&age, Age::finds_every_key, &mut Rng::new(seed));
}

#[test]
fn filters_are_those_of_rocksdb() {
    let seed = seed_or(0xf117);
    let _watchdog = Watchdog::new("gets::filters_are_those_of_rocksdb", seed);
    let folder = folder();
    let Some(age) = age(folder.path(), None, 5) else {
        return;
    };
    let mut rng = Rng::new(seed);
    versions_and_sizes(&age, Age::is_read, &mut rng);
    // The number is rounded up, as in RocksDB since 6.6.
    age.is_read(&Keys::random(&mut rng, 700), 4, 15_500);
}

#[test]
#[ignore = "needs what `ages/run` fetches"]
fn every_age_gets_every_key() {
    let seed = seed_or(0xa6e5);
    let _watchdog = Watchdog::new("gets::every_age_gets_every_key", seed);
    let fetched = PathBuf::from(std::env::var_os("PARANOID_SST_AGES").unwrap());
    let (folder, mut rng) = (folder(), Rng::new(seed));
    let rocksdb = AGES.map(|(name, last_version)| {
        age(
            folder.path(),
            Some(fetched.join(format!("{name}.so")).into()),
            last_version,
        )
        .unwrap()
    });
    let pebble = Age {
        program: fetched.join("pebble"),
        library: vec![],
        last_version: 2,
    };
    for age in rocksdb.iter().chain([&pebble]) {
        versions_and_sizes(age, Age::finds_every_key, &mut rng);
        versions_and_sizes(age, Age::is_read, &mut rng);
        println!(
            "{} {:?}: every key found",
            age.program.display(),
            age.library
        );
    }
}
