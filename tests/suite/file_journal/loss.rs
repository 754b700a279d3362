//! Reports of a journal about losses: syncs that failed, files that are gone or shorter, damage of
//! durable batches; and the result of each mode of recovery.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
use paranoid_set::{
    Durability, FileJournal, FindingReason, Journal, MemTableSet, RecoveryMode, SetOptions,
    Storage, StorageFile,
};

use super::{Files, Logged, Syncs, batch, disk_of, empty_disk, journals, log, read, two_files};
use crate::support::rng::{Rng, Watchdog, amount, seed_or};
use crate::support::sets::{End, Plan, SECTOR, SimDisk};

const DEFAULT: RecoveryMode = RecoveryMode::TolerateCorruptedTailRecords;
/// Every storage call that may fail fails.
const FAILING: Plan = Plan {
    crash_at: None,
    fails_one_in: Some(1),
    fails_within: None,
    without_descriptors: None,
    full_from: None,
    capacity: None,
};

fn numbers(found: &[Logged]) -> Vec<u64> {
    found.iter().map(|(sequence, _)| *sequence).collect()
}

fn append(journal: &FileJournal, sequences: std::ops::RangeInclusive<u64>) {
    sequences.for_each(|sequence| log(journal, &batch(sequence, &[sequence as u8; 300])).unwrap());
}

/// Batches 1 and 2 in a first file, 3 and 4 in a second one, all durable.
fn four_batches() -> Files {
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
    for (table, sequences) in [(1, 1..=2), (2, 3..=4)] {
        journal.switch(table).unwrap();
        append(&journal, sequences);
    }
    journal.sync().unwrap();
    drop(journal);
    disk.files()
}

/// A sync fails, and the process restarts and reads the unsynced bytes from the system's cache. A
/// batch that is acknowledged then survives a power cut, with all batches before it.
#[test]
fn bytes_of_a_failed_sync_are_written_again_by_the_next_process() {
    let test = "file_journal::loss::bytes_of_a_failed_sync_are_written_again_by_the_next_process";
    let seed = seed_or(0x1057);
    let _watchdog = Watchdog::new(test, seed);
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        let disk = SimDisk::new(rng.next_u64(), Plan::default());
        let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
        journal.switch(1).unwrap();
        append(&journal, 1..=1);
        journal.sync().unwrap();
        append(&journal, 2..=3);
        disk.set_plan(FAILING);
        journal.sync().unwrap_err();
        drop(journal);
        let disk = disk.after(End::Process, &mut rng);
        let (journal, _, found) = read(&disk, 0, DEFAULT).unwrap();
        assert_eq!(numbers(&found), [1, 2, 3]);
        journal.switch(2).unwrap();
        append(&journal, 4..=4);
        journal.sync().unwrap();
        let crashed = disk.after(End::Power, &mut rng);
        assert_eq!(
            numbers(&read(&crashed, 0, DEFAULT).unwrap().2),
            [1, 2, 3, 4],
            "seed {seed:#x}"
        );
    }
}

/// A write fails when all of its bytes may be on the disk, and the process ends. The bytes that the
/// next process finds stay, and do not mix with its own writes: after a power cut there is a
/// prefix.
#[test]
fn a_failed_write_is_there_or_not_after_a_restart() {
    let _watchdog = Watchdog::new("a_failed_write_is_there_or_not_after_a_restart", 0);
    let (disks, mut whole, mut there) = (amount(4000, 1000), 0, 0);
    for seed in 0..disks {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed, Plan::default());
        let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
        journal.switch(1).unwrap();
        journal.append(&batch(1, b"red")).unwrap();
        journal.sync().unwrap();
        // The first part is written, the second one is not.
        let second = disk.steps() + 1;
        disk.set_plan(Plan {
            fails_within: Some((second, second + 1)),
            ..Plan::default()
        });
        log(&journal, &batch(2, b"green")).unwrap_err();
        std::mem::forget(journal);
        let disk = disk.after(End::Process, &mut rng);
        let (journal, _, mut found) = read(&disk, 0, DEFAULT).unwrap();
        let written = [(1, batch(1, b"red")), (2, batch(2, b"green"))];
        assert!(
            found == written[..1] || found == written,
            "seed {seed}: {found:?}"
        );
        whole += found.len() as u64 - 1;
        let certain = found.len();
        let next = certain as u64 + 1;
        found.push((next, batch(next, b"blue")));
        journal.switch(2).unwrap();
        log(&journal, &found[certain].1).unwrap();
        let after = read(&disk.after(End::Power, &mut rng), 0, DEFAULT)
            .unwrap()
            .2;
        assert!(
            after == found[..certain] || after == found,
            "seed {seed}: {after:?}"
        );
        there += (after.len() - certain) as u64;
    }
    assert!(
        whole > 0 && there > disks / 20 && there < disks,
        "{whole} and {there} times of {disks}"
    );
}

/// Ends an opening of these files by a power cut, again and again. The next opening finds the same.
fn end_openings(files: &Files, wanted: &[u64]) {
    for case in 0..amount(2000, 400) {
        let disk = disk_of(files);
        disk.set_plan(Plan {
            crash_at: Some(case % 40),
            ..Plan::default()
        });
        let _ = read(&disk, 0, DEFAULT);
        let after = disk.after(End::Power, &mut Rng::new(case));
        let found = read(&after, 0, DEFAULT).map(|(.., found)| numbers(&found));
        assert!(
            matches!(&found, Ok(found) if found == wanted),
            "case {case}: {found:?}"
        );
    }
}

/// An opening removes files without batches, and cuts off a torn one after them. After the loss of
/// any of these names, no file is missed.
#[test]
fn an_opening_that_a_power_cut_ends_misses_no_file() {
    let _watchdog = Watchdog::new("an_opening_that_a_power_cut_ends_misses_no_file", 0);
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
    journal.switch(1).unwrap();
    append(&journal, 1..=1);
    (2..=5).for_each(|table| journal.switch(table).unwrap());
    journal.sync().unwrap();
    (2..=4).for_each(|number| log(&journal, &batch(number, &[7; 2 * SECTOR])).unwrap());
    drop(journal);
    let mut files = disk.files();
    // The first sector of the records was not written.
    files.get_mut("000005.journal").unwrap()[SECTOR..2 * SECTOR].fill(0);
    end_openings(&files, &[1]);
}

/// The process ends at any step of an opening. The knowledge of earlier syncs stays: the file is
/// refused without its end.
#[test]
fn an_opening_that_its_process_ends_keeps_what_is_known() {
    let _watchdog = Watchdog::new("an_opening_that_its_process_ends_keeps_what_is_known", 0);
    // After the synced batches comes nothing, a file without batches that is synced or not, or a
    // torn batch.
    for follows in 0..4 {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
        journal.switch(1).unwrap();
        append(&journal, 1..=2);
        journal.sync().unwrap();
        let len = disk.files()["000001.journal"].len();
        match follows {
            0 => {}
            3 => append(&journal, 3..=3),
            _ => journal.switch(2).unwrap(),
        }
        if follows == 1 {
            journal.sync().unwrap();
        }
        drop(journal);
        let mut files = disk.files();
        if follows == 3 {
            files.get_mut("000001.journal").unwrap().truncate(len + 20);
        }
        for crash_at in 0..100 {
            let disk = disk_of(&files);
            disk.set_plan(Plan {
                crash_at: Some(crash_at),
                ..Plan::default()
            });
            let ended = read(&disk, 0, DEFAULT).is_err();
            for left in [SECTOR, len - 1] {
                let mut files = disk.files();
                files.get_mut("000001.journal").unwrap().truncate(left);
                let found = read(&disk_of(&files), 0, DEFAULT).map(|(.., found)| numbers(&found));
                assert!(
                    found.is_err(),
                    "{follows} follows, step {crash_at}, {left} bytes of {len}: {found:?}"
                );
            }
            assert_ne!((ended, crash_at), (true, 99), "more steps");
        }
    }
}

/// A sync of a set fails, and the set is opened again. After a power cut there is a prefix of the
/// batches, with all acknowledged ones.
#[test]
fn a_set_that_is_opened_again_keeps_a_prefix() {
    let test = "file_journal::loss::a_set_that_is_opened_again_keeps_a_prefix";
    let seed = seed_or(0x4e5);
    let _watchdog = Watchdog::new(test, seed);
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        let disk = SimDisk::new(rng.next_u64(), Plan::default());
        let open = || {
            let storage = Arc::new(disk.clone());
            let (journal, recovery) =
                FileJournal::open_in(storage, 0, ChecksumKind::Xxh3, DEFAULT)?;
            let options = SetOptions::builder()
                .first_table(journal.next_table())
                .journal(Arc::new(journal));
            let set = MemTableSet::open(options.build()?, ())?;
            recovery.replay(|_, batch| set.replay(&batch).map(drop))?;
            Ok::<_, Error>(set)
        };
        let write = |set: &MemTableSet<()>, value: u8, durability| {
            let mut batch = WriteBatch::with_protection(8).unwrap();
            batch.put([value], [value; 300]).unwrap();
            set.write_with(&batch, durability)
        };
        let set = open().unwrap();
        write(&set, 1, Durability::Buffered).unwrap();
        set.switch().unwrap();
        write(&set, 2, Durability::Buffered).unwrap();
        // An append takes two steps.
        let fails_within = Some((disk.steps() + 2, u64::MAX));
        disk.set_plan(Plan {
            fails_within,
            ..Plan::default()
        });
        assert!(matches!(
            write(&set, 3, Durability::Synced),
            Err(Error::ReadOnly { .. })
        ));
        drop(set);
        // The device still fails.
        open().unwrap_err();
        disk.set_plan(Plan::default());
        let set = open().unwrap();
        // The batch whose sync failed was written before.
        assert_eq!(write(&set, 4, Durability::Synced).unwrap(), 4);
        let crashed = disk.after(End::Power, &mut rng);
        assert_eq!(
            numbers(&read(&crashed, 0, DEFAULT).unwrap().2),
            [1, 2, 3, 4],
            "seed {seed:#x}"
        );
    }
}

/// Runs of every byte value: in any form of the file, a damaged byte is not taken for one that was
/// never written, also if no note shows that it was written.
#[test]
fn a_value_with_runs_of_every_byte_is_written_in_one_pass() {
    let ramp: Vec<u8> = (0..=u8::MAX)
        .flat_map(|byte| std::iter::repeat_n(byte, 2 * SECTOR - 1))
        .collect();
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
    journal.switch(1).unwrap();
    journal.append(&batch(1, &ramp)).unwrap();
    log(&journal, &batch(2, b"after")).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let (whole, mut rng) = (journals(&disk), Rng::new(1));
    assert_eq!(
        read(&disk_of(&whole), 0, DEFAULT).unwrap().2[0].1,
        batch(1, &ramp)
    );
    let len = whole["000001.journal"].len();
    for _ in 0..200 {
        let at = SECTOR + rng.index(len - SECTOR - 100);
        let mut files = whole.clone();
        files.get_mut("000001.journal").unwrap()[at] ^= 1 << rng.index(8);
        let refused = read(&disk_of(&files), 0, DEFAULT).unwrap_err();
        assert!(
            matches!(refused, Error::DamagedFile { .. }),
            "byte {at}: {refused}"
        );
    }
}

/// Every file in turn is lost, or cut at every record's end, and every byte of the last record is
/// damaged. The default mode refuses such a journal and changes nothing.
#[test]
fn what_was_durable_and_is_not_there_is_refused() {
    let whole = four_batches();
    let refuse = |files: &Files, named: &str, text: &str| {
        let disk = disk_of(files);
        for mode in [DEFAULT, RecoveryMode::AbsoluteConsistency] {
            match read(&disk, 0, mode) {
                Err(Error::DamagedFile { file, .. }) => assert_eq!(file, named, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
            assert_eq!(disk.files(), *files, "{text}: changed");
        }
    };
    for name in ["000001.journal", "000002.journal"] {
        let mut files = whole.clone();
        let bytes = files.remove(name).unwrap();
        refuse(&files, name, &format!("{name} lost"));
        for len in 0..bytes.len() {
            files.insert(name.into(), bytes[..len].to_vec());
            refuse(&files, name, &format!("{name} cut to {len}"));
        }
        for at in bytes.len() - 300..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            files.insert(name.into(), damaged);
            refuse(&files, name, &format!("{name}, byte {at}"));
        }
    }
    // Batches that are in the engine's files need not be in the journal.
    let mut files = whole.clone();
    files.retain(|name, _| !name.ends_with(".journal"));
    assert!(
        read(&disk_of(&files), 4, DEFAULT)
            .unwrap()
            .1
            .findings
            .is_empty()
    );
    // Not noticed: a loss of batches together with the notes about them.
    files.clear();
    assert!(read(&disk_of(&files), 0, DEFAULT).unwrap().2.is_empty());
}

/// All batches before a synced file must be there. Batches before a file that was not synced may be
/// lost together with it, which is reported.
#[test]
fn a_file_cut_in_the_middle_of_the_journal_is_refused_if_it_was_synced() {
    let _watchdog = Watchdog::new(
        "file_journal::a_file_cut_in_the_middle_of_the_journal_is_refused",
        0,
    );
    for syncs in [Syncs::EachBatch, Syncs::Once, Syncs::Never] {
        let (files, logged) = two_files(syncs);
        let check = |files: &Files, reason: FindingReason, text: &str| match (
            syncs,
            read(
                &disk_of(files),
                0,
                RecoveryMode::TolerateCorruptedTailRecords,
            ),
        ) {
            (Syncs::EachBatch | Syncs::Once, Err(Error::DamagedFile { file, .. })) => {
                assert_eq!(file, "000001.journal");
            }
            (Syncs::Never, Ok((_, replayed, found))) => {
                assert_eq!(found, logged[..found.len()]);
                assert!(
                    found.len() < 6 && replayed.cut_bytes > 0,
                    "{text}: {replayed:?}"
                );
                assert!(
                    replayed.findings.iter().all(|it| it.reason == reason),
                    "{text}: {replayed:?}"
                );
            }
            (_, other) => panic!("{syncs:?}, {text}: {other:?}"),
        };
        for len in (0..files["000001.journal"].len()).step_by(3) {
            let mut cut = files.clone();
            cut.get_mut("000001.journal").unwrap().truncate(len);
            check(&cut, FindingReason::TornTail, &format!("{len} bytes"));
        }
        let mut gone = files.clone();
        gone.remove("000001.journal");
        check(&gone, FindingReason::Missing, "gone");
    }
}

/// The batches that each mode returns, its reports, and the files that it sets aside.
#[test]
fn modes_of_recovery() {
    let whole = four_batches();
    let open = |change: &dyn Fn(&mut Files), mode| {
        let mut files = whole.clone();
        change(&mut files);
        let disk = disk_of(&files);
        let opened = read(&disk, 0, mode);
        opened.map(|(_, replayed, found)| {
            let names: Vec<String> = disk.files().into_keys().collect();
            let reasons: Vec<_> = replayed.findings.iter().map(|it| it.reason).collect();
            let cut: u64 = replayed.findings.iter().map(|it| it.cut_bytes).sum();
            assert_eq!(cut, replayed.cut_bytes);
            // Bytes that were set aside do not come back.
            let again = read(&disk, 0, DEFAULT);
            assert!(
                mode == RecoveryMode::SkipAnyCorrupted
                    || numbers(&again.unwrap().2) == numbers(&found)
            );
            (numbers(&found), reasons, names)
        })
    };
    let damage = |files: &mut Files| files.get_mut("000001.journal").unwrap()[SECTOR + 400] ^= 1;
    let lose = |files: &mut Files| drop(files.remove("000002.journal"));
    let torn = |files: &mut Files| files.get_mut("000002.journal").unwrap().extend([7; 30]);
    let (skip, point) = (RecoveryMode::SkipAnyCorrupted, RecoveryMode::PointInTime);
    let (damaged, missing) = (FindingReason::Damage, FindingReason::Missing);
    let (first, second, notes) = ("000001.journal", "000002.journal", "journal.synced");
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| name.to_string())
            .collect::<Vec<_>>()
    };
    for change in [&damage as &dyn Fn(&mut Files), &lose] {
        assert!(
            open(change, DEFAULT).is_err()
                && open(change, RecoveryMode::AbsoluteConsistency).is_err()
        );
    }
    let all = names(&[first, second, notes]);
    assert_eq!(
        open(&damage, skip).unwrap(),
        (vec![1, 3, 4], vec![damaged], all.clone())
    );
    let aside = names(&[
        first,
        "000001.journal.damaged",
        "000002.journal.damaged",
        notes,
    ]);
    assert_eq!(
        open(&damage, point).unwrap(),
        (vec![1], vec![damaged, damaged], aside)
    );
    assert_eq!(
        open(&lose, skip).unwrap(),
        (vec![1, 2], vec![missing], names(&[first, notes]))
    );
    assert_eq!(
        open(&lose, point).unwrap(),
        (vec![1, 2], vec![missing], names(&[first, notes]))
    );
    assert!(open(&torn, RecoveryMode::AbsoluteConsistency).is_err());
    for mode in [DEFAULT, point, skip] {
        let aside = names(&[first, second, "000002.journal.cut", notes]);
        let expected = (vec![1, 2, 3, 4], vec![FindingReason::TornTail], aside);
        assert_eq!(open(&torn, mode).unwrap(), expected, "{mode:?}");
    }
}

/// A file of the first version of this crate, and one of a later version, are not changed.
#[test]
fn files_of_another_version_are_not_supported() {
    let mut header = b"pmjournl\x01\x05\0\0".to_vec();
    header.extend(7u32.to_le_bytes());
    [1, u64::MAX, 0, 0, 0, 0]
        .iter()
        .for_each(|word: &u64| header.extend(word.to_le_bytes()));
    header.extend(ChecksumKind::Xxh3.checksum(&header).to_le_bytes());
    // A later version keeps place, length and checksum of the header's copies.
    let mut later = four_batches()["000001.journal"].clone();
    for copy in [0, SECTOR / 2] {
        later[copy + 8] = 6;
        let checksum = ChecksumKind::Xxh3
            .checksum(&later[copy..copy + 48])
            .to_le_bytes();
        later[copy + 48..copy + 52].copy_from_slice(&checksum);
    }
    for bytes in [
        [header.clone(), header.clone(), vec![9; 500]].concat(),
        [header.clone(), header].concat(),
        later,
    ] {
        let files = Files::from([("000001.journal".into(), bytes)]);
        let disk = disk_of(&files);
        for mode in [
            DEFAULT,
            RecoveryMode::PointInTime,
            RecoveryMode::SkipAnyCorrupted,
        ] {
            assert!(matches!(read(&disk, 0, mode), Err(Error::NotSupported(_))));
            assert_eq!(disk.files(), files);
        }
    }
}

/// Both copies of a header are damaged after its name, in the same way or not. This is damage of
/// this file, for any version that the bytes state, and the other file is salvaged.
#[test]
fn a_damaged_header_is_no_other_version() {
    let whole = four_batches();
    let bytes = &whole["000001.journal"];
    let mut rng = Rng::new(5);
    for case in 0..400 {
        let mut damaged = bytes.clone();
        for copy in [0, SECTOR / 2] {
            // The damage begins at the version, or is one byte.
            let (from, len) = if case % 2 == 0 {
                (8, SECTOR / 2 - 8)
            } else {
                (8 + rng.index(44), 1)
            };
            let filler = [0, 0xff, 5, rng.below(256) as u8][case / 2 % 4];
            let place = &mut damaged[copy + from..copy + from + len];
            place
                .iter_mut()
                .for_each(|byte| *byte = if *byte == filler { !filler } else { filler });
        }
        let mut files = whole.clone();
        files.insert("000001.journal".into(), damaged);
        for mode in [DEFAULT, RecoveryMode::AbsoluteConsistency] {
            let refused = read(&disk_of(&files), 0, mode).map(|_| ()).unwrap_err();
            assert!(
                matches!(&refused, Error::DamagedFile { file, .. } if file == "000001.journal"),
                "{refused}"
            );
        }
        let (_, replayed, found) =
            read(&disk_of(&files), 0, RecoveryMode::SkipAnyCorrupted).unwrap();
        assert_eq!(
            (numbers(&found), replayed.findings.len()),
            (vec![3, 4], 1),
            "case {case}"
        );
        assert!(
            read(&disk_of(&files), 0, RecoveryMode::PointInTime)
                .unwrap()
                .2
                .is_empty()
        );
    }
}

/// Checks that the report of an error has an expected and a found value, and that they differ.
fn check_report(error: &Error, text: &str) {
    if let Error::DamagedFile { file, cause } = error
        && let Error::Corruption(report) = &**cause
    {
        assert_ne!(report.expected, report.found, "{text}: {file}, {report}");
    }
}

/// Every byte of every file of a journal, in each mode, with one bit or all bits flipped; also
/// bytes without meaning.
#[test]
fn a_report_never_says_that_what_was_found_was_expected() {
    let _watchdog = Watchdog::new("file_journal::loss::a_report_never_says_that", 0);
    let modes = [
        DEFAULT,
        RecoveryMode::AbsoluteConsistency,
        RecoveryMode::PointInTime,
    ];
    let whole = four_batches();
    let mut reports = 0;
    for (name, bytes) in &whole {
        for (at, mode) in (0..bytes.len()).flat_map(|at| {
            modes
                .into_iter()
                .chain([RecoveryMode::SkipAnyCorrupted])
                .map(move |mode| (at, mode))
        }) {
            for flip in [1 << (at % 8), 0xff] {
                let mut files = whole.clone();
                files.get_mut(name).unwrap()[at] ^= flip;
                let text = format!("{name}, byte {at} ^ {flip:#x}, {mode:?}");
                match read(&disk_of(&files), 0, mode) {
                    Ok((_, replayed, _)) => {
                        assert!(!replayed.findings.is_empty(), "{text}");
                        reports += replayed.findings.len();
                        replayed
                            .findings
                            .iter()
                            .for_each(|it| check_report(&it.error, &text));
                    }
                    Err(error) => {
                        reports += 1;
                        check_report(&error, &text);
                    }
                }
            }
        }
    }
    assert!(reports > 10_000, "{reports}");
}

/// A process ends again and again before its first write, or after it. No opening takes more steps
/// than an earlier one, except those that read the batches of earlier files.
#[test]
fn openings_do_not_get_slower() {
    let mut disk = empty_disk();
    let mut rng = Rng::new(3);
    let open = |disk: &SimDisk, writes: u64| {
        let (journal, _, found) = read(disk, 0, DEFAULT).unwrap();
        let steps = disk.steps();
        journal.switch(journal.next_table()).unwrap();
        let next = found.len() as u64 + 1;
        append(&journal, next..=next + writes - 1);
        // The process ends without closing it.
        std::mem::forget(journal);
        (steps, found.len())
    };
    open(&disk, 1);
    let mut steps = vec![];
    for _ in 0..20 {
        disk = disk.after(End::Process, &mut rng);
        let (taken, found) = open(&disk, 0);
        assert_eq!((found, journals(&disk).len()), (1, 2));
        steps.push(taken);
    }
    assert!(steps[2..].iter().all(|it| *it == steps[2]), "{steps:?}");
    // One read for each file twice, and the steps of each opening.
    for files in 2..20 {
        disk = disk.after(End::Process, &mut rng);
        let (taken, found) = open(&disk, 1);
        assert_eq!(found, files - 1);
        assert!(
            taken <= 24 + 2 * files as u64,
            "{taken} steps with {files} files"
        );
    }
}

/// A partial note is whole again after a power cut, because its last bytes are zeros. By then the
/// file that it names was removed, because it held nothing.
#[test]
fn a_torn_note_does_not_come_back() {
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, DEFAULT).unwrap();
    journal.switch(1).unwrap();
    append(&journal, 1..=1);
    journal.sync().unwrap();
    let first = disk.files().remove("journal.synced").unwrap();
    append(&journal, 2..=2);
    journal.sync().unwrap();
    journal.switch(2).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let mut files = disk.files();
    let notes = files.get_mut("journal.synced").unwrap();
    assert_eq!((first.len(), notes.len()), (32, 2 * 32));
    // The second note is missing, and the third one without its end.
    notes[..32].copy_from_slice(&first);
    notes.truncate(32 + 26);
    let disk = disk_of(&files);
    // The process ends without closing it.
    std::mem::forget(read(&disk, 0, DEFAULT).unwrap().0);
    assert_eq!(journals(&disk).len(), 1);
    for seed in 0..40 {
        let after = disk.after(End::Power, &mut Rng::new(seed));
        assert_eq!(
            numbers(&read(&after, 0, DEFAULT).unwrap().2),
            [1, 2],
            "power cut {seed}"
        );
    }
}

/// A storage that counts its open files, and whose syncs wait as long as the device is held.
#[derive(Debug, Clone)]
struct Counted(SimDisk, Arc<AtomicUsize>, Arc<RwLock<()>>);

#[derive(Debug)]
struct CountedFile(Box<dyn StorageFile>, Counted);

impl Counted {
    fn count(&self, file: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Box::new(CountedFile(file, self.clone()))
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.1.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StorageFile for CountedFile {
    fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.append(bytes)
    }
    fn sync(&self) -> std::io::Result<()> {
        let _device = self.1.2.read().unwrap();
        self.0.sync()
    }
}

impl Storage for Counted {
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> std::io::Result<Box<dyn StorageFile>> {
        self.0.create(name).map(|file| self.count(file))
    }
    fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        self.0.read(name)
    }
    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.0.rename(from, to)
    }
    fn sync_dir(&self) -> std::io::Result<()> {
        self.0.sync_dir()
    }
}

/// Many files were never synced: few of them are open, and one sync makes all of them durable.
#[test]
fn few_files_are_open() {
    let _watchdog = Watchdog::new("file_journal::loss::few_files_are_open", 0);
    let storage = Counted(empty_disk(), Arc::default(), Arc::default());
    let (journal, recovery) =
        FileJournal::open_in(Arc::new(storage.clone()), 0, ChecksumKind::Xxh3, DEFAULT).unwrap();
    drop(recovery);
    for table in 1..=60 {
        journal.switch(table).unwrap();
        append(&journal, table..=table);
        assert!(storage.1.load(Ordering::Relaxed) <= 20, "{table} tables");
    }
    journal.obsolete_before(3).unwrap();
    journal.sync().unwrap();
    assert!(storage.1.load(Ordering::Relaxed) <= 3);
    for seed in 0..10 {
        let crashed = storage.0.after(End::Power, &mut Rng::new(seed));
        assert_eq!(
            numbers(&read(&crashed, 2, DEFAULT).unwrap().2),
            (3..=60).collect::<Vec<_>>()
        );
    }
}

/// While the device syncs, appends, writes and switches continue.
#[test]
fn a_sync_is_waited_for_by_syncs_alone() {
    let _watchdog = Watchdog::new("file_journal::loss::a_sync_is_waited_for_by_syncs_alone", 0);
    let storage = Counted(empty_disk(), Arc::default(), Arc::default());
    let (journal, _) =
        FileJournal::open_in(Arc::new(storage.clone()), 0, ChecksumKind::Xxh3, DEFAULT).unwrap();
    journal.switch(1).unwrap();
    append(&journal, 1..=1);
    let device = storage.2.write().unwrap();
    std::thread::scope(|threads| {
        let sync = threads.spawn(|| journal.sync().unwrap());
        // Its batch is written; then it waits.
        while journals(&storage.0)["000001.journal"].len() == SECTOR {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        append(&journal, 2..=2);
        journal.switch(2).unwrap();
        append(&journal, 3..=3);
        assert!(!sync.is_finished());
        drop(device);
        sync.join().unwrap();
    });
    assert_eq!(numbers(&read(&storage.0, 0, DEFAULT).unwrap().2), [1, 2, 3]);
}

/// The journal in a directory of the file system: synced batches are replayed, a torn tail is cut
/// off the file, damage is refused, and a salvage returns the rest. Files that are no longer needed
/// are gone.
mod directory {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use paranoid_memtable::{ChecksumKind, Error, Result};
    use paranoid_set::{
        FileJournal, FileStorage, FindingReason, Journal, JournalRecovery, RecoveryMode, Replayed,
    };

    use super::{Logged, batch};
    use crate::support::rng::Watchdog;

    /// A directory of its own, removed at the end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir()
                .join(format!("paranoid-journal-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        /// Opens its journal in the mode that skips damage.
        fn salvage(&self) -> Result<(FileJournal, JournalRecovery)> {
            let storage = Arc::new(FileStorage::new(&self.0));
            FileJournal::open_in(
                storage,
                0,
                ChecksumKind::Xxh3,
                RecoveryMode::SkipAnyCorrupted,
            )
        }

        fn files(&self) -> Vec<PathBuf> {
            let files = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let mut files: Vec<_> = files
                .filter(|path| path.extension().is_some_and(|it| it == "journal"))
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    type Opened = Result<(FileJournal, JournalRecovery), Error>;

    /// The batches of a journal.
    fn replay(opened: Opened) -> Result<(FileJournal, Replayed, Vec<Logged>), Error> {
        let (journal, recovery) = opened?;
        let mut found = vec![];
        let replayed = recovery.replay(|sequence, batch| {
            found.push((sequence, batch.as_bytes().to_vec()));
            Ok(())
        })?;
        Ok((journal, replayed, found))
    }

    fn append(path: &Path, bytes: &[u8]) {
        let old = fs::read(path).unwrap();
        fs::write(path, [&old, bytes].concat()).unwrap();
    }

    #[test]
    fn a_directory_of_the_file_system() {
        let _watchdog = Watchdog::new(
            "file_journal::loss::directory::a_directory_of_the_file_system",
            0,
        );
        let directory = Directory::new("whole");
        let logged: Vec<Logged> = (1..=4).map(|n| (n, batch(n, &[n as u8; 40]))).collect();
        let (journal, _, found) = replay(FileJournal::open(&directory.0, 0)).unwrap();
        assert!(found.is_empty());
        for (table, batches) in (1..).zip(logged.chunks(2)) {
            journal.switch(table).unwrap();
            batches
                .iter()
                .for_each(|(_, bytes)| journal.append(bytes).unwrap());
        }
        journal.sync().unwrap();
        drop(journal);
        assert_eq!(directory.files().len(), 2);
        // A partial record is cut off.
        append(&directory.files()[1], &[1, 40, 0]);
        let (journal, replayed, found) = replay(FileJournal::open(&directory.0, 0)).unwrap();
        assert_eq!(
            (found, replayed.last_sequence, replayed.cut_bytes),
            (logged.clone(), 4, 3)
        );
        assert!(
            matches!(&*replayed.findings, [it] if it.reason == FindingReason::TornTail && it.cut_bytes == 3)
        );
        assert_eq!(
            fs::read(directory.0.join("000002.journal.cut")).unwrap(),
            [1, 40, 0]
        );
        // The file of a flushed table stays until all its batches are flushed, or until an opening
        // does not need it.
        let next = journal.next_table();
        journal.switch(next).unwrap();
        journal.append(&batch(5, b"five")).unwrap();
        journal.sync().unwrap();
        journal.flushed(2, 2).unwrap();
        drop(journal);
        let first = directory.0.join("000001.journal");
        assert!(first.exists());
        let (journal, _, found) = replay(FileJournal::open(&directory.0, 2)).unwrap();
        assert_eq!(
            found.iter().map(|batch| batch.0).collect::<Vec<_>>(),
            [3, 4, 5]
        );
        assert!(!first.exists());
        journal.switch(next + 1).unwrap();
        journal.flushed(next + 1, 5).unwrap();
        assert_eq!(directory.files().len(), 1);
    }

    /// Each byte of a record in turn.
    #[test]
    fn damage_in_a_directory_is_refused_and_saved_around() {
        let _watchdog = Watchdog::new("file_journal::loss::directory::damage_in_a_directory", 0);
        let directory = Directory::new("damaged");
        let (journal, _, _) = replay(FileJournal::open(&directory.0, 0)).unwrap();
        journal.switch(1).unwrap();
        let mut ends = vec![];
        for n in 1..=3 {
            journal.append(&batch(n, &[n as u8; 20])).unwrap();
            journal.sync().unwrap();
            ends.push(fs::read(&directory.files()[0]).unwrap().len());
        }
        drop(journal);
        let file = directory.files().remove(0);
        let whole = fs::read(&file).unwrap();
        for at in ends[0]..ends[1] {
            directory
                .files()
                .into_iter()
                .for_each(|file| fs::remove_file(file).unwrap());
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&file, &bytes).unwrap();
            let refused = replay(FileJournal::open(&directory.0, 0)).map(|_| ());
            let Err(Error::DamagedFile { file: named, cause }) = refused else {
                panic!("byte {at}: {refused:?}");
            };
            assert!(
                file.ends_with(&named) && matches!(*cause, Error::Corruption(_)),
                "byte {at}: {named}"
            );
            assert_eq!(fs::read(&file).unwrap(), bytes, "nothing was changed");
            let (_, replayed, found) = replay(directory.salvage()).unwrap();
            let numbers: Vec<u64> = found.iter().map(|batch| batch.0).collect();
            assert_eq!(
                (numbers.as_slice(), replayed.findings.len()),
                (&[1, 3][..], 1),
                "byte {at}"
            );
        }
    }

    /// An open journal has its directory for itself.
    #[test]
    fn a_second_journal_of_a_directory_is_refused() {
        let _watchdog = Watchdog::new(
            "file_journal::loss::directory::a_second_journal_of_a_directory",
            0,
        );
        let directory = Directory::new("locked");
        let (journal, _) = FileJournal::open(&directory.0, 0).unwrap();
        for again in [FileJournal::open(&directory.0, 0), directory.salvage()] {
            let refused = again.map(drop).unwrap_err();
            let Error::Io {
                operation: "lock",
                source,
                ..
            } = &refused
            else {
                panic!("{refused}")
            };
            assert_eq!(source.kind(), std::io::ErrorKind::WouldBlock);
        }
        drop(journal);
        assert!(FileJournal::open(&directory.0, 0).is_ok());
    }

    /// A pipe with the name of a journal's file causes no wait.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused() {
        let _watchdog = Watchdog::new("file_journal::loss::directory::a_pipe_is_refused", 0);
        let directory = Directory::new("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(directory.0.join("000001.journal"))
            .status();
        if made.is_ok_and(|status| status.success()) {
            let refused = FileJournal::open(&directory.0, 0).map(drop).unwrap_err();
            assert!(
                matches!(
                    refused,
                    Error::Io {
                        operation: "read",
                        ..
                    }
                ),
                "{refused}"
            );
        }
    }
}
