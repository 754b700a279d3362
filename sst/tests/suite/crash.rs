//! Crashes, killed processes and full disks: no file, or a whole one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use paranoid_memtable::Kind;
use paranoid_sst::{Error, SortedTable, SortedTableOptions, SortedTableWriter, TableSource};

use crate::disk::{Fault, Shared, SimDisk};
use crate::model::folder;
use crate::rng::{Rng, Watchdog, amount, seed_or};

const NAME: &str = "folder/000007.sst";
const ENTRIES: u64 = 60;

fn write(disk: &Arc<SimDisk>) -> Result<(), Error> {
    let options = SortedTableOptions::builder()
        .creation_time(1)
        .block_size(512)
        .build()?;
    let mut writer = SortedTableWriter::create_in(Shared(Arc::clone(disk)), NAME, options)?;
    for number in 0..ENTRIES {
        writer.add(number.to_be_bytes(), 9, Kind::PUT, [number as u8; 20])?;
    }
    writer.add_range(b"b", b"c", 10)?;
    writer.finish().map(|_| ())
}

/// Writes a file and crashes at a step. Returns an error if a partial file survives.
fn crash(fault: Fault, at: u64, rng: &mut Rng) -> Result<(), String> {
    let disk = Arc::new(SimDisk {
        crash_at: Some(at),
        fault,
        ..SimDisk::default()
    });
    let acknowledged = write(&disk).is_ok();
    let Some(bytes) = disk.after_crash(Path::new(NAME), rng) else {
        return if acknowledged {
            Err("an acknowledged file is gone".into())
        } else {
            Ok(())
        };
    };
    let table = SortedTable::from_source(NAME, TableSource::memory(Arc::new(bytes)));
    match table.and_then(|table| table.verify()) {
        Ok(report) if report.entries == ENTRIES && report.range_deletions == 1 => Ok(()),
        Ok(report) => Err(format!("{report:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn steps() -> u64 {
    let disk = Arc::new(SimDisk::default());
    write(&disk).unwrap();
    disk.steps()
}

#[test]
fn a_crash_leaves_no_file_or_a_whole_one() {
    let seed = seed_or(0xc4a5);
    let _watchdog = Watchdog::new("crash::a_crash_leaves_no_file_or_a_whole_one", seed);
    let (mut rng, steps) = (Rng::new(seed), steps());
    assert!(steps > 20, "{steps} steps");
    let mut whole = 0;
    for point in 0..amount(10_000, 800) {
        // The largest number crashes after `finish` has returned.
        let at = point % (steps + 1);
        if let Err(text) = crash(Fault::None, at, &mut rng) {
            panic!("crash at step {at} of {steps}: {text}; seed {seed:#x}");
        }
        whole += u64::from(at == steps);
    }
    assert!(whole > 0);
}

/// This test fails for a writer that does not sync.
#[test]
fn a_writer_without_sync_is_caught() {
    let seed = seed_or(0xbad5);
    let _watchdog = Watchdog::new("crash::a_writer_without_sync_is_caught", seed);
    let steps = steps();
    for fault in [Fault::NoFileSync, Fault::NoDirectorySync] {
        let mut rng = Rng::new(seed);
        let caught = (0..40 * (steps + 1))
            .filter(|point| crash(fault, point % (steps + 1), &mut rng).is_err());
        assert!(caught.count() > 5, "{fault:?} is not noticed");
    }
}

#[test]
fn a_full_disk_leaves_nothing() {
    let disk = Arc::new(SimDisk::default());
    write(&disk).unwrap();
    let mut refused = 0;
    for capacity in (0..6_000).step_by(7) {
        let disk = Arc::new(SimDisk {
            capacity: Some(capacity),
            ..SimDisk::default()
        });
        match write(&disk) {
            Ok(()) => assert_eq!(disk.names(), [Path::new(NAME)]),
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
                assert!(disk.names().is_empty(), "{:?}", disk.names());
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 100 && refused < 850, "{refused}");
}

const CHILD_FOLDER: &str = "PARANOID_SST_CHILD_FOLDER";

/// The child process of a test below: writes one file after the other until it is killed. Without
/// `CHILD_FOLDER` it does nothing.
#[test]
fn a_child_that_writes() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER) else {
        return;
    };
    for number in 0..u64::MAX {
        println!("begin {number}");
        let path = Path::new(&folder).join(format!("{number:06}.sst"));
        let mut writer = SortedTableWriter::create(path, SortedTableOptions::default()).unwrap();
        for key in 0..4000u64 {
            writer
                .add(
                    key.to_be_bytes(),
                    number + 1,
                    Kind::PUT,
                    [number as u8; 100],
                )
                .unwrap();
        }
        writer.finish().unwrap();
        println!("end {number}");
    }
}

#[test]
fn a_killed_process_leaves_whole_files() {
    let seed = seed_or(0x9111);
    let _watchdog = Watchdog::new("crash::a_killed_process_leaves_whole_files", seed);
    let mut rng = Rng::new(seed);
    for _ in 0..amount(30, 6) {
        let folder = folder();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::a_child_that_writes", "--exact", "--nocapture"])
            .env(CHILD_FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stop = 2 + rng.below(8);
        let mut ended = 0;
        for line in lines {
            let line = line.unwrap();
            ended += u64::from(line.starts_with("end"));
            // The process is killed in the middle of the next file, at any instruction.
            if line == format!("begin {stop}") {
                break;
            }
        }
        (0..rng.below(2_000_000)).for_each(|turn| {
            std::hint::black_box(turn);
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let mut whole = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "sst") {
                assert_eq!(
                    SortedTable::open(&path).unwrap().verify().unwrap().entries,
                    4000
                );
                whole += 1;
            } else {
                assert!(
                    path.to_string_lossy().ends_with(".tmp"),
                    "{}",
                    path.display()
                );
            }
        }
        assert!(whole >= ended, "{whole} files, {ended} acknowledged");
    }
}
