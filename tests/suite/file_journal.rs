//! The journal of files: its replays, its refusals, and its salvages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
use paranoid_set::{
    FileJournal, FindingReason, Journal, MemTableSet, RecoveryMode, Replayed, SetOptions,
};

use crate::support::rng::{Rng, Watchdog, seed_or};
use crate::support::sets::{Plan, SECTOR, SimDisk};

mod checked_file;
mod install;
mod loss;
mod recoveries;

type Files = BTreeMap<String, Vec<u8>>;
/// Sequence number and encoded batch.
type Logged = (u64, Vec<u8>);

/// A batch of one entry with this value.
fn batch(sequence: u64, value: &[u8]) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch.put(sequence.to_be_bytes(), value).unwrap();
    batch.set_sequence(sequence);
    batch.as_bytes().to_vec()
}

/// Appends a batch and writes it.
fn log(journal: &FileJournal, batch: &[u8]) -> Result<(), Error> {
    journal.append(batch)?;
    journal.write()
}

/// Opens the journal of a disk and reads it.
pub(crate) fn read(
    disk: &SimDisk,
    last: u64,
    mode: RecoveryMode,
) -> Result<(FileJournal, Replayed, Vec<Logged>), Error> {
    let mut found = vec![];
    let (journal, recovery) =
        FileJournal::open_in(Arc::new(disk.clone()), last, ChecksumKind::Xxh3, mode)?;
    let keep = |sequence, batch: WriteBatch| {
        assert_eq!((batch.sequence(), batch.protection_bytes()), (sequence, 8));
        found.push((sequence, batch.as_bytes().to_vec()));
        Ok(())
    };
    let replayed = recovery.replay(keep)?;
    assert_eq!(replayed.batches, found.len() as u64);
    Ok((journal, replayed, found))
}

pub(crate) fn empty_disk() -> SimDisk {
    SimDisk::new(1, Plan::default())
}

fn disk_of(files: &Files) -> SimDisk {
    SimDisk::with_files(files.clone(), 1, Plan::default())
}

/// The files that have batches.
pub(crate) fn journals(disk: &SimDisk) -> Files {
    disk.files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".journal"))
        .collect()
}

/// Bytes of a file before its first record: the header.
const FIRST: usize = SECTOR;

/// The times at which a journal under test is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    EachBatch,
    Once,
    Never,
}

/// Two files: batches 1 to 6 in the first, 7 to 10 in the second, with long values and values of
/// zeros among them.
fn two_files(syncs: Syncs) -> (Files, Vec<Logged>) {
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
    let mut rng = Rng::new(7);
    let mut logged = vec![];
    for sequence in 1..=10 {
        if [1, 7].contains(&sequence) {
            journal.switch(journal.next_table()).unwrap();
        }
        let value = match sequence {
            2 | 8 => vec![0; 3 * SECTOR],
            3 => rng.bytes(2 * SECTOR),
            _ => rng.bytes(40),
        };
        let batch = batch(sequence, &value);
        log(&journal, &batch).unwrap();
        logged.push((sequence, batch));
        if syncs == Syncs::EachBatch || (syncs == Syncs::Once && sequence == 10) {
            journal.sync().unwrap();
        }
    }
    journal.write().unwrap();
    (disk.files(), logged)
}

#[test]
fn what_was_appended_is_replayed() {
    for syncs in [Syncs::EachBatch, Syncs::Once, Syncs::Never] {
        let (files, logged) = two_files(syncs);
        assert_eq!(
            files.keys().collect::<Vec<_>>(),
            ["000001.journal", "000002.journal", "journal.synced"]
        );
        for mode in [
            RecoveryMode::TolerateCorruptedTailRecords,
            RecoveryMode::SkipAnyCorrupted,
        ] {
            let disk = disk_of(&files);
            let (journal, replayed, found) = read(&disk, 0, mode).unwrap();
            assert_eq!(found, logged);
            assert_eq!(
                (
                    replayed.last_sequence,
                    replayed.cut_bytes,
                    journal.next_table()
                ),
                (10, 0, 3)
            );
            assert!(replayed.findings.is_empty());
            assert_eq!(
                journals(&disk),
                journals(&disk_of(&files)),
                "a replay appends nothing"
            );
            // A second journal continues after the first.
            journal.switch(3).unwrap();
            log(&journal, &batch(11, b"more")).unwrap();
            journal.sync().unwrap();
            let (_, _, found) = read(&disk, 0, mode).unwrap();
            assert_eq!(found.len(), 11);
        }
    }
}

/// A batch that was queued before a switch is in the file of its own table, and is removed with
/// that file.
#[test]
fn what_is_queued_is_in_the_file_of_its_table() {
    let _watchdog = Watchdog::new(
        "file_journal::what_is_queued_is_in_the_file_of_its_table",
        0,
    );
    for queued in [1, 2, 40] {
        let disk = empty_disk();
        let mode = RecoveryMode::TolerateCorruptedTailRecords;
        let (journal, ..) = read(&disk, 0, mode).unwrap();
        journal.switch(1).unwrap();
        let append = |sequence| journal.append(&batch(sequence, b"value")).unwrap();
        (1..=queued).for_each(append);
        journal.switch(2).unwrap();
        append(queued + 1);
        journal.sync().unwrap();
        let lengths: Vec<usize> = journals(&disk).values().map(Vec::len).collect();
        let [first, second] = lengths[..] else {
            panic!("{lengths:?}")
        };
        assert!(
            first > second || queued == 1 && first == second,
            "{lengths:?}"
        );
        journal.flushed(1, queued).unwrap();
        drop(journal);
        let (_journal, _, found) = read(&disk, queued, mode).unwrap();
        let found: Vec<u64> = found.iter().map(|(sequence, _)| *sequence).collect();
        assert_eq!((found, journals(&disk).len()), (vec![queued + 1], 1));
    }
}

#[test]
fn what_the_engine_has_is_not_replayed() {
    let (files, logged) = two_files(Syncs::EachBatch);
    for last in 0..=12 {
        let disk = disk_of(&files);
        let (_, replayed, found) =
            read(&disk, last, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        assert_eq!(found, logged[(last as usize).min(10)..]);
        assert_eq!(replayed.last_sequence, last.max(10));
        // A file whose batches are all in the engine's files is not needed.
        assert_eq!(disk.files().contains_key("000001.journal"), last < 6);
    }
    let disk = disk_of(&files);
    let (journal, ..) = read(&disk, 6, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
    journal.switch(3).unwrap();
    log(&journal, &batch(11, b"more")).unwrap();
    journal.flushed(3, 10).unwrap();
    assert_eq!(
        journals(&disk).keys().collect::<Vec<_>>(),
        ["000003.journal"]
    );
    assert_eq!(
        read(
            &disk_of(&disk.files()),
            10,
            RecoveryMode::TolerateCorruptedTailRecords
        )
        .unwrap()
        .2
        .len(),
        1
    );
    // Without the engine's files batches are missing. A later record shows that this is not a torn
    // tail.
    journal.sync().unwrap();
    log(&journal, &batch(12, b"more")).unwrap();
    let error = read(
        &disk_of(&disk.files()),
        9,
        RecoveryMode::TolerateCorruptedTailRecords,
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::DamagedFile { file, .. } if file == "000002.journal"),
        "{error}"
    );
    assert_eq!(
        read(&disk_of(&disk.files()), 9, RecoveryMode::SkipAnyCorrupted)
            .unwrap()
            .2
            .len(),
        2
    );
}

/// An engine leaves out the last batch of a journal. Deletes of a key that it never uses take the
/// batch's numbers, and the journal continues.
#[test]
fn a_batch_that_is_left_out_leaves_its_numbers_to_deletes() {
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
    let mut unwanted = WriteBatch::new();
    unwanted.put(b"a", b"").unwrap();
    unwanted.put(b"b", b"").unwrap();
    unwanted.set_sequence(1);
    journal.switch(1).unwrap();
    log(&journal, unwanted.as_bytes()).unwrap();
    drop(journal);
    for run in 0..3 {
        let storage = Arc::new(disk.clone());
        let (journal, recovery) =
            FileJournal::open_in(storage, 0, ChecksumKind::Xxh3, RecoveryMode::default()).unwrap();
        let options = SetOptions::builder()
            .first_table(journal.next_table())
            .journal(Arc::new(journal));
        let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
        let replay = |sequence, batch: WriteBatch| {
            if batch.as_bytes() != unwanted.as_bytes() {
                return set.replay(&batch).map(drop);
            }
            let mut deletes = WriteBatch::new();
            (0..batch.len()).try_for_each(|_| deletes.delete(b"never"))?;
            deletes.set_sequence(sequence);
            set.replay(&deletes).map(drop)
        };
        assert_eq!(recovery.replay(replay).unwrap().batches, 1 + run);
        assert!(set.view().get(b"a").unwrap().found().is_none());
        let mut more = WriteBatch::new();
        more.put(run.to_be_bytes(), b"").unwrap();
        assert_eq!(set.write(&more).unwrap(), 3 + run);
        assert_eq!(
            set.view().cursor().unwrap().ascending().count() as u64,
            1 + run
        );
    }
}

#[test]
fn misuse_is_an_invalid_argument() {
    let disk = empty_disk();
    let (journal, ..) = read(&disk, 5, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
    let refused = |result: Result<(), Error>| {
        assert!(
            matches!(result, Err(Error::InvalidArgument(_))),
            "{result:?}"
        )
    };
    refused(log(&journal, &batch(6, b"")));
    journal.switch(4).unwrap();
    refused(journal.switch(3));
    refused(journal.switch(u64::MAX));
    refused(log(&journal, b"eleven byte"));
    refused(log(&journal, &batch(5, b"")));
    log(&journal, &batch(6, b"")).unwrap();
    refused(log(&journal, &batch(6, b"")));
    refused(journal.switch(4));
    // An empty batch takes no number.
    let mut empty = WriteBatch::new();
    empty.set_sequence(7);
    log(&journal, empty.as_bytes()).unwrap();
    log(&journal, &batch(7, b"")).unwrap();
    assert_eq!(
        read(&disk, 5, RecoveryMode::TolerateCorruptedTailRecords)
            .unwrap()
            .2
            .len(),
        3
    );
    let none = FileJournal::open_in(
        Arc::new(disk),
        0,
        ChecksumKind::None,
        RecoveryMode::TolerateCorruptedTailRecords,
    );
    assert!(matches!(none, Err(Error::InvalidArgument(_))));
}

/// Checks a damaged journal: it returns no wrong batch, and a salvage returns all intact ones.
fn check_damaged(files: &Files, logged: &[Logged], file: &str, at: usize, text: &str) {
    let salvaged = read(&disk_of(files), 0, RecoveryMode::SkipAnyCorrupted).unwrap();
    let lost: Vec<u64> = logged
        .iter()
        .filter(|batch| !salvaged.2.contains(batch))
        .map(|(sequence, _)| *sequence)
        .collect();
    assert!(
        lost.len() <= 1 && salvaged.2.iter().all(|batch| logged.contains(batch)),
        "{text}: {lost:?} lost"
    );
    match read(
        &disk_of(files),
        0,
        RecoveryMode::TolerateCorruptedTailRecords,
    ) {
        Ok((_, replayed, found)) => {
            // One copy of a header is enough, and the last record may be one that was not written
            // whole.
            assert_eq!(found, logged[..logged.len() - lost.len()], "{text}");
            assert!(
                lost.is_empty() || (lost == [10] && replayed.cut_bytes > 0),
                "{text}: {lost:?}"
            );
            assert_eq!(
                lost.is_empty(),
                replayed.findings.len() == 1,
                "{text}: {replayed:?}"
            );
        }
        Err(error @ Error::DamagedFile { .. }) => {
            let Error::DamagedFile { file: named, .. } = &error else {
                unreachable!()
            };
            let offset = error.corruption().expect("a place").offset;
            assert!(
                named == file && offset <= at as u64 && lost.len() == 1,
                "{text}: {error}"
            );
            assert!(salvaged.1.findings.len() == 1, "{text}");
        }
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Flips one bit, and all bits, of every byte of a journal that was synced after each batch, or
/// once at the end.
#[test]
fn every_flipped_byte_is_harmless_or_refused() {
    let _watchdog = Watchdog::new("file_journal::every_flipped_byte_is_harmless_or_refused", 0);
    for syncs in [Syncs::EachBatch, Syncs::Once] {
        let (files, logged) = two_files(syncs);
        for (name, bytes) in &files {
            for at in 0..bytes.len() {
                // Long values need not be tried at each of their bytes.
                if at > 400 && at % SECTOR > 60 && at % 19 != 0 && cfg!(debug_assertions) {
                    continue;
                }
                for flip in [1 << (at % 8), 0xff] {
                    let mut damaged = files.clone();
                    damaged.get_mut(name).unwrap()[at] ^= flip;
                    check_damaged(
                        &damaged,
                        &logged,
                        name,
                        at,
                        &format!("{syncs:?}, {name}, {at} ^ {flip:#x}"),
                    );
                }
            }
        }
    }
}

/// A journal continues after a salvage: the next salvage returns the same batches, and the later
/// ones.
#[test]
fn what_was_saved_is_saved_again() {
    let (mut files, logged) = two_files(Syncs::EachBatch);
    files.get_mut("000002.journal").unwrap()[FIRST + 50] ^= 4;
    for last in [0, 6] {
        let disk = disk_of(&files);
        let (journal, _, saved) = read(&disk, last, RecoveryMode::SkipAnyCorrupted).unwrap();
        let wanted = logged
            .iter()
            .filter(|logged| logged.0 > last && logged.0 != 7);
        assert!(saved.iter().eq(wanted));
        journal.switch(journal.next_table()).unwrap();
        log(&journal, &batch(11, b"more")).unwrap();
        journal.sync().unwrap();
        let (_, _, again) = read(&disk, last, RecoveryMode::SkipAnyCorrupted).unwrap();
        assert!(
            again[..saved.len()] == saved && again.len() == saved.len() + 1,
            "{} batches",
            again.len()
        );
    }
}

/// Number of batches whose records end within this many bytes of the second file.
fn whole_within(logged: &[Logged], len: usize) -> usize {
    // Every sector has at least 8 bytes of a record.
    let (mut end, mut whole) = (FIRST, 6);
    for (_, batch) in &logged[6..] {
        end += batch.len() + 28;
        end += match end % SECTOR {
            part @ 1..8 => 8 - part,
            part @ 505.. => SECTOR - part,
            _ => 0,
        };
        whole += usize::from(end <= len);
    }
    whole
}

#[test]
fn a_tail_cut_at_any_length_is_cut_to_whole_records_or_refused_if_it_was_synced() {
    let _watchdog = Watchdog::new("file_journal::a_tail_cut_at_any_length", 0);
    for syncs in [Syncs::EachBatch, Syncs::Once, Syncs::Never] {
        let (files, logged) = two_files(syncs);
        for len in 0..=files["000002.journal"].len() {
            let mut cut = files.clone();
            cut.get_mut("000002.journal").unwrap().truncate(len);
            let whole = whole_within(&logged, len);
            if syncs != Syncs::Never {
                let refused = read(
                    &disk_of(&cut),
                    0,
                    RecoveryMode::TolerateCorruptedTailRecords,
                );
                assert_eq!(refused.is_err(), whole < 10, "{syncs:?}, {len} bytes");
                // Without the notes, nothing shows that the file was synced.
                cut.remove("journal.synced");
                if syncs == Syncs::EachBatch && whole < 7 {
                    continue;
                }
            }
            let disk = disk_of(&cut);
            let (journal, replayed, found) =
                read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
            assert_eq!(found, logged[..whole], "{syncs:?}, {len} bytes");
            assert!(
                replayed
                    .findings
                    .iter()
                    .all(|it| it.reason == FindingReason::TornTail)
            );
            assert_eq!(
                replayed.findings.is_empty(),
                replayed.cut_bytes == 0,
                "{syncs:?}, {len} bytes"
            );
            assert_eq!(replayed.last_sequence, whole as u64);
            // The torn end was removed, so that later files do not make it look like damage.
            journal.switch(3).unwrap();
            log(&journal, &batch(11, b"more")).unwrap();
            journal.sync().unwrap();
            let (_, replayed, found) =
                read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
            assert_eq!(
                (found.len(), replayed.cut_bytes),
                (whole + 1, 0),
                "{syncs:?}, {len} bytes"
            );
        }
    }
}

/// Records of equal length changed places, or a file of another journal has this one's name.
#[test]
fn a_moved_or_stale_record_does_not_verify() {
    let write = || {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        journal.switch(1).unwrap();
        for sequence in 1..=3 {
            log(&journal, &batch(sequence, b"twenty bytes of value")).unwrap();
            journal.sync().unwrap();
        }
        disk.files()
    };
    let (one, other) = (write(), write());
    let bytes = &one["000001.journal"];
    let len = (bytes.len() - FIRST) / 3;
    let (first, second) = (FIRST..FIRST + len, FIRST + len..FIRST + 2 * len);
    let mut swapped = bytes.clone();
    swapped[first.clone()].copy_from_slice(&bytes[second.clone()]);
    swapped[second.clone()].copy_from_slice(&bytes[first]);
    let mut stale = bytes.clone();
    stale[second.clone()].copy_from_slice(&other["000001.journal"][second]);
    for bytes in [swapped, stale] {
        let files = Files::from([("000001.journal".into(), bytes)]);
        let error = read(
            &disk_of(&files),
            0,
            RecoveryMode::TolerateCorruptedTailRecords,
        )
        .unwrap_err();
        assert!(matches!(error, Error::DamagedFile { .. }), "{error}");
    }
    let renamed = Files::from([("000002.journal".into(), bytes.clone())]);
    assert!(
        read(
            &disk_of(&renamed),
            0,
            RecoveryMode::TolerateCorruptedTailRecords
        )
        .is_err()
    );
}

#[test]
fn a_full_disk_is_an_error_and_no_loss() {
    let mut refused = 0;
    for capacity in (100..4000).step_by(13) {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        disk.set_plan(Plan {
            capacity: Some(capacity),
            ..Plan::default()
        });
        let mut kept = vec![];
        let mut is_full = |result: Result<(), Error>| match result {
            Ok(()) => false,
            // Every call of a journal that has failed returns an error.
            Err(error) => {
                let cause = if let Error::ReadOnly { cause } = &error {
                    cause
                } else {
                    &error
                };
                let Error::Io { source, .. } = cause else {
                    panic!("{error}")
                };
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
                refused += 1;
                true
            }
        };
        if !is_full(journal.switch(1)) {
            for sequence in 1..=40 {
                let batch = batch(sequence, &[sequence as u8; 60]);
                if is_full(log(&journal, &batch)) {
                    // Every later call fails.
                    assert!(is_full(journal.write()) && is_full(journal.switch(2)));
                    break;
                }
                kept.push((sequence, batch));
            }
            is_full(journal.sync());
        }
        drop(journal);
        // The disk has space again: the next opening finds all that was written, and continues.
        disk.set_plan(Plan::default());
        let (journal, _, found) =
            read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        assert_eq!(found, kept, "capacity {capacity}");
        journal.switch(journal.next_table()).unwrap();
        let next = batch(kept.len() as u64 + 1, b"after");
        log(&journal, &next).unwrap();
        kept.push((kept.len() as u64 + 1, next));
        assert_eq!(
            read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords)
                .unwrap()
                .2,
            kept,
            "capacity {capacity}"
        );
    }
    assert!(refused > 150, "{refused}");
}

/// Writers append one after the other, as under a commit mutex, and sync beside each other.
#[test]
fn syncs_beside_appends_cover_what_came_before_them() {
    let test = "file_journal::syncs_beside_appends_cover_what_came_before_them";
    let seed = seed_or(0x5ec);
    let _watchdog = Watchdog::new(test, seed);
    let disk = SimDisk::new(seed, Plan::default());
    let (journal, ..) = read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
    journal.switch(1).unwrap();
    let (journal, commit, synced) = (&journal, &Mutex::new(0u64), &Mutex::new(vec![]));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(move || {
                for turn in 0..60 {
                    let sequence = {
                        let mut last = commit.lock().unwrap();
                        *last += 1;
                        if last.is_multiple_of(50) {
                            journal.switch(journal.next_table()).unwrap();
                        }
                        journal.append(&batch(*last, b"value")).unwrap();
                        *last
                    };
                    if turn < 50 {
                        journal.sync().unwrap();
                        synced.lock().unwrap().push(sequence);
                    }
                }
            });
        }
    });
    let mut rng = Rng::new(seed);
    for _ in 0..20 {
        let crashed = disk_of(&disk.after_crash(&mut rng));
        let (_, _, found) = read(&crashed, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        assert_eq!(
            found
                .iter()
                .map(|(sequence, _)| *sequence)
                .collect::<Vec<_>>(),
            (1..=found.len() as u64).collect::<Vec<_>>()
        );
        let missing: Vec<u64> = synced
            .lock()
            .unwrap()
            .iter()
            .copied()
            .filter(|it| *it > found.len() as u64)
            .collect();
        assert!(missing.is_empty(), "{missing:?} missing, seed {seed:#x}");
    }
}

/// Crashes: synced batches are replayed in order, and no partial batch is visible.
mod crash {
    use std::sync::Arc;

    use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
    use paranoid_set::{FileJournal, Journal, RecoveryMode};

    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
    use crate::support::sets::{End, Plan, SECTOR, SimDisk};

    /// The certainty that a batch survives a crash.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fate {
        /// A later sync has returned.
        Certain,
        /// A later write has returned: the batch survives the end of the process.
        Written,
        /// It was appended, or may have been.
        Open,
        /// Its append failed: it may survive if no other batch has its number.
        Refused,
    }

    impl Fate {
        /// Whether a batch survives an end of the process, or a power cut.
        fn survives(self, end: End) -> bool {
            self == Fate::Certain || (self == Fate::Written && end == End::Process)
        }
    }

    #[derive(Debug)]
    struct Batch {
        sequence: u64,
        bytes: Vec<u8>,
        fate: Fate,
    }

    /// The knowledge of an engine that writes to a journal.
    #[derive(Debug, Default)]
    struct Engine {
        batches: Vec<Batch>,
        /// The last number in its files.
        flushed: u64,
        next: u64,
        /// The newest table and the last number before it.
        table: (u64, u64),
        /// The worst end since the last recovery.
        end: Option<End>,
        /// A call failed: the journal may fail until it is opened again.
        has_failed: bool,
    }

    impl Engine {
        fn draw(&self, rng: &mut Rng) -> (Vec<u8>, u64) {
            let mut batch = WriteBatch::new();
            for entry in 0..1 + rng.below(3) {
                let len = if rng.one_in(6) { 3 * SECTOR } else { 60 };
                let len = rng.index(len);
                let mut value = if rng.one_in(5) {
                    vec![0; len]
                } else {
                    rng.bytes(len)
                };
                // No two batches are equal.
                value.extend(rng.next_u64().to_le_bytes());
                batch
                    .put((self.next + entry).to_be_bytes(), &value)
                    .unwrap();
            }
            batch.set_sequence(self.next);
            (batch.as_bytes().to_vec(), batch.len() as u64)
        }

        fn append(&mut self, journal: &FileJournal, rng: &mut Rng) -> Result<(), Error> {
            let (bytes, len) = self.draw(rng);
            let appended = journal.append(&bytes);
            let (sequence, is_taken) = (self.next, appended.is_ok());
            let fate = if is_taken { Fate::Open } else { Fate::Refused };
            self.batches.push(Batch {
                sequence,
                bytes,
                fate,
            });
            self.next += if is_taken { len } else { 0 };
            appended
        }

        fn write(&mut self, journal: &FileJournal) -> Result<(), Error> {
            journal.write()?;
            let open = self
                .batches
                .iter_mut()
                .filter(|batch| batch.fate == Fate::Open);
            open.for_each(|batch| batch.fate = Fate::Written);
            Ok(())
        }

        fn sync(&mut self, journal: &FileJournal) -> Result<(), Error> {
            journal.sync()?;
            let there = self
                .batches
                .iter_mut()
                .filter(|batch| batch.fate != Fate::Refused);
            there.for_each(|batch| batch.fate = Fate::Certain);
            Ok(())
        }

        fn switch(&mut self, journal: &FileJournal) -> Result<(), Error> {
            let table = journal.next_table();
            journal.switch(table)?;
            self.table = (table, self.next - 1);
            Ok(())
        }

        /// Says that the tables before the newest one are in files.
        fn flush(&mut self, journal: &FileJournal) -> Result<(), Error> {
            self.flushed = self.flushed.max(self.table.1);
            journal.flushed(self.table.0, self.flushed)
        }

        /// Makes one call; only a machine that is down ends the work.
        fn work(&mut self, journal: &FileJournal, rng: &mut Rng) {
            let done = match rng.below(20) {
                0..=9 => self.append(journal, rng),
                10..=12 => self.write(journal),
                13..=16 => self.sync(journal),
                17 | 18 => self.switch(journal),
                _ => self.flush(journal),
            };
            self.has_failed |= done.is_err();
        }

        /// Compares the replayed batches with the written ones.
        fn compare(&self, found: &[(u64, Vec<u8>)]) -> Result<(), String> {
            let wanted: Vec<&Batch> = self
                .batches
                .iter()
                .filter(|batch| batch.sequence > self.flushed)
                .collect();
            let (mut left, end) = (wanted.iter(), self.end.unwrap_or(End::Process));
            let mut skipped = None;
            for (sequence, bytes) in found {
                let same = |batch: &Batch| batch.sequence == *sequence && batch.bytes == *bytes;
                loop {
                    let batch = left
                        .next()
                        .ok_or(format!("batch {sequence} was not written so, or not there"))?;
                    if same(batch) {
                        if let Some(skipped) = skipped {
                            return Err(format!(
                                "batch {sequence} without batch {skipped} before it"
                            ));
                        }
                        break;
                    }
                    match batch.fate {
                        fate if fate.survives(end) => {
                            return Err(format!(
                                "batch {} was {fate:?} and is missing",
                                batch.sequence
                            ));
                        }
                        Fate::Certain | Fate::Written | Fate::Open => {
                            skipped = Some(batch.sequence)
                        }
                        Fate::Refused => {}
                    }
                }
            }
            match left.find(|batch| batch.fate.survives(end)) {
                Some(Batch { sequence, fate, .. }) => Err(format!(
                    "batch {sequence} was {fate:?} and is missing at the end"
                )),
                None => Ok(()),
            }
        }

        /// After a recovery all replayed batches are durable.
        fn restart(&mut self, found: Vec<(u64, Vec<u8>)>, last_sequence: u64) {
            let durable = |(sequence, bytes)| Batch {
                sequence,
                bytes,
                fate: Fate::Certain,
            };
            self.batches = found.into_iter().map(durable).collect();
            (self.next, self.has_failed, self.end) = (last_sequence + 1, false, None);
        }
    }

    /// Opens the journal of a disk and reads it. `None`: the machine went down meanwhile.
    fn recover(disk: &SimDisk, engine: &mut Engine) -> Result<Option<FileJournal>, String> {
        let mut found = vec![];
        let storage = Arc::new(disk.clone());
        let opened = FileJournal::open_in(
            storage,
            engine.flushed,
            ChecksumKind::Crc32c,
            RecoveryMode::TolerateCorruptedTailRecords,
        );
        let recovered = opened.and_then(|(journal, recovery)| {
            let replayed = recovery.replay(|sequence, batch| {
                found.push((sequence, batch.as_bytes().to_vec()));
                Ok(())
            });
            Ok((journal, replayed?))
        });
        match recovered {
            Err(_) if disk.is_down() => Ok(None),
            Err(error) => Err(format!("{error:?}")),
            Ok((journal, replayed)) => {
                engine.compare(&found)?;
                engine.restart(found, replayed.last_sequence);
                Ok(Some(journal))
            }
        }
    }

    /// Works, crashes, recovers, and continues, a few times.
    fn crash(seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let fails_one_in = [None, None, Some(40), Some(12)][rng.index(4)];
        let mut engine = Engine {
            next: 1,
            ..Engine::default()
        };
        let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
        for _ in 0..4 {
            disk.set_plan(Plan {
                crash_at: Some(rng.below(150)),
                ..Plan::default()
            });
            let crash_at = Some(disk.steps() + rng.below(150));
            // After each failed call the journal is opened again, by the same process or another
            // one.
            while let Some(journal) = recover(&disk, &mut engine)? {
                disk.set_plan(Plan {
                    crash_at,
                    fails_one_in,
                    ..Plan::default()
                });
                engine.has_failed = engine.switch(&journal).is_err();
                while !(disk.is_down() || engine.has_failed && rng.one_in(2)) {
                    engine.work(&journal, &mut rng);
                }
                drop(journal);
                disk.set_plan(Plan {
                    crash_at,
                    ..Plan::default()
                });
            }
            let end = *rng.pick(&[End::Process, End::Power, End::Power]);
            engine.end = engine.end.filter(|end| *end == End::Power).or(Some(end));
            disk = disk.after(end, &mut rng);
        }
        recover(&disk, &mut engine).map(drop)
    }

    #[test]
    fn what_was_synced_is_replayed_after_a_crash() {
        let test = "file_journal::crash::what_was_synced_is_replayed_after_a_crash";
        let mut seed = seed_or(std::process::id().into());
        let crashes = amount(10_000, 600);
        println!("{test}: seed {seed:#x}, {crashes} crashes");
        let _watchdog = Watchdog::new(test, seed);
        for _ in 0..crashes / 3 {
            if let Err(text) = crash(seed) {
                panic!("{text}\nreplay: {}", replay_line(test, seed));
            }
            seed = Rng::new(seed).next_u64();
        }
    }

    /// Makes a few calls, switches to a table or tries to, and syncs at last. Calls of the storage
    /// with numbers in the interval fail. The last sync may have a plan of its own. Returns whether
    /// batch 2 was acknowledged.
    fn sync_after_trouble(
        disk: &SimDisk,
        next: u64,
        fails_within: (u64, u64),
        last: Option<Plan>,
    ) -> Result<bool, Error> {
        let storage = Arc::new(disk.clone());
        let (journal, _) =
            FileJournal::open_in(storage, 0, ChecksumKind::Crc32c, RecoveryMode::default())?;
        journal.switch(1)?;
        journal.append(&super::batch(1, b"red"))?;
        journal.sync()?;
        disk.set_plan(Plan {
            fails_within: Some(fails_within),
            ..Plan::default()
        });
        journal.switch(2)?;
        journal.append(&super::batch(2, b"green"))?;
        // Each of these may fail, in any state. The last sync still has to be right.
        let _ = journal.obsolete_before(2);
        let _ = journal.switch(next);
        last.into_iter().for_each(|plan| disk.set_plan(plan));
        Ok(journal.sync().is_ok())
    }

    /// The directory's sync may fail in a call that needs it for another purpose.
    #[test]
    fn a_sync_means_names_that_a_failed_call_left_unwritten() {
        let _watchdog = Watchdog::new("a_sync_means_names_that_a_failed_call_left_unwritten", 0);
        let mut acknowledged = 0;
        // A switch to table 2 is refused, and no name is new.
        let without_descriptors = Plan {
            without_descriptors: Some((0, u64::MAX)),
            ..Plan::default()
        };
        for case in 0..50 * 4 * 2 * 2 {
            let (next, calls, from) = (2 + case % 2, 1 + case / 2 % 4, case / 8 % 50);
            let last = (case >= 50 * 4 * 2).then_some(without_descriptors);
            let disk = super::empty_disk();
            if !sync_after_trouble(&disk, next, (from, from + calls), last).unwrap_or(false) {
                continue;
            }
            acknowledged += 1;
            for seed in 0..20 {
                let after = disk.after(End::Power, &mut Rng::new(seed));
                let (_, _, found) = super::read(&after, 1, RecoveryMode::default()).unwrap();
                let found: Vec<u64> = found.iter().map(|(sequence, _)| *sequence).collect();
                assert_eq!(
                    found,
                    [2],
                    "calls {from} to {} failed, table {next}, power cut {seed}",
                    from + calls - 1
                );
            }
        }
        assert!(acknowledged > 320, "{acknowledged} runs");
    }
}
