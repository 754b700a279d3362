//! A file that is replaced as a whole: crashes and failures at every call leave the old bytes or
//! the new ones, and every flipped bit and every shorter file is refused.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use paranoid_memtable::Error;
use paranoid_set::{Storage, read_checked, replace_checked};

use crate::support::rng::Rng;
use crate::support::sets::{End, Plan, SimDisk};

const NAME: &str = "MANIFEST";
const OLD: &[u8] = b"file 1\n";
const NEW: &[u8] = b"file 1\nfile 2\n";

/// A disk with the old file, all of it durable.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed, Plan::default());
    replace_checked(&disk, NAME, OLD).unwrap();
    let files = BTreeMap::from([(NAME.into(), disk.read(NAME).unwrap())]);
    SimDisk::with_files(files, seed, Plan::default())
}

fn read(disk: &SimDisk) -> Vec<u8> {
    read_checked(disk, NAME).unwrap().unwrap()
}

/// The process or the machine ends at every call of a replacement.
#[test]
fn a_crash_leaves_the_old_file_or_the_new_one() {
    let (mut is_old, mut is_new) = (0, 0);
    for seed in 0..60 {
        for crash_at in 0.. {
            let disk = disk(seed);
            disk.set_plan(Plan {
                crash_at: Some(crash_at),
                ..Plan::default()
            });
            let replaced = replace_checked(&disk, NAME, NEW);
            for end in [End::Process, End::Power] {
                let later = disk.after(end, &mut Rng::new(seed ^ crash_at));
                let found = read(&later);
                assert!(found == OLD || found == NEW, "{crash_at}: {found:?}");
                assert!(replaced.is_err() || found == NEW, "{end:?}");
                (is_old, is_new) = (
                    is_old + u64::from(found == OLD),
                    is_new + u64::from(found == NEW),
                );
                // The rest of the attempt does not disturb the next one.
                replace_checked(&later, NAME, b"3").unwrap();
                assert_eq!(read(&later.after(End::Power, &mut Rng::new(seed))), b"3");
            }
            if replaced.is_ok() {
                break;
            }
        }
    }
    assert!(is_old > 100 && is_new > 100, "{is_old} {is_new}");
}

/// Every call fails once. If the old file is read after the error, a crash does not show the new
/// one.
#[test]
fn an_error_before_the_rename_changes_nothing() {
    let mut failures = 0;
    for seed in 0..60 {
        for at in 0..20 {
            let disk = disk(seed);
            disk.set_plan(Plan {
                fails_within: Some((at, at + 1)),
                ..Plan::default()
            });
            let replaced = replace_checked(&disk, NAME, NEW);
            disk.set_plan(Plan::default());
            let (now, later) = (
                read(&disk),
                read(&disk.after(End::Power, &mut Rng::new(seed))),
            );
            match replaced {
                Ok(()) => assert!(now == NEW && later == NEW),
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    assert!(now == NEW || now == OLD && later == OLD, "{error}");
                    failures += 1;
                }
            }
        }
    }
    assert!(failures > 200, "{failures}");
}

#[test]
fn a_damaged_file_is_refused() {
    let disk = disk(1);
    let whole = disk.read(NAME).unwrap();
    let refused = |bytes: Vec<u8>| {
        let files = BTreeMap::from([(NAME.into(), bytes)]);
        let found = read_checked(&SimDisk::with_files(files, 1, Plan::default()), NAME);
        matches!(found, Err(Error::Io { source, .. }) if source.kind() == ErrorKind::InvalidData)
    };
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(refused(damaged), "bit {bit}");
    }
    assert!((0..whole.len()).all(|len| refused(whole[..len].to_vec())));
    assert!((1..whole.len()).all(|from| refused(whole[from..].to_vec())));
    assert!(refused([&whole[..], b"\n"].concat()));
    assert_eq!(read_checked(&disk, "OTHER").unwrap(), None);
    replace_checked(&disk, NAME, b"").unwrap();
    assert_eq!(read(&disk), b"");
}
