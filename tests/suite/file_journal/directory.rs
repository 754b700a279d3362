//! The journal in a directory of the file system: what was synced is replayed, a torn tail is cut off the file, damage is refused
//! and saved around, and files that are no longer needed are gone.

use std::fs;
use std::path::{Path, PathBuf};

use paranoid_memtable::Error;
use paranoid_memtable::set::{FileJournal, FindingReason, Journal, JournalRecovery, Replayed};

use super::{Logged, batch};
use crate::support::watchdog::Watchdog;

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("paranoid-journal-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|it| it == "journal")).collect();
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

/// What a journal hands out.
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
    let _watchdog = Watchdog::new("file_journal::directory::a_directory_of_the_file_system", 0);
    let directory = Directory::new("whole");
    let logged: Vec<Logged> = (1..=4).map(|n| (n, batch(n, &[n as u8; 40]))).collect();
    let (journal, _, found) = replay(FileJournal::open(&directory.0, 0)).unwrap();
    assert!(found.is_empty());
    for (table, batches) in (1..).zip(logged.chunks(2)) {
        journal.switch(table).unwrap();
        batches.iter().for_each(|(_, bytes)| journal.append(bytes).unwrap());
    }
    journal.sync().unwrap();
    drop(journal);
    assert_eq!(directory.files().len(), 2);
    // What was not written whole is cut off.
    append(&directory.files()[1], &[1, 40, 0]);
    let (journal, replayed, found) = replay(FileJournal::open(&directory.0, 0)).unwrap();
    assert_eq!((found, replayed.last_sequence, replayed.cut_bytes), (logged.clone(), 4, 3));
    assert!(matches!(&*replayed.findings, [it] if it.reason == FindingReason::TornTail && it.cut_bytes == 3));
    assert_eq!(fs::read(directory.0.join("000002.journal.cut")).unwrap(), [1, 40, 0]);
    // A flushed table's file goes.
    let next = journal.next_table();
    journal.switch(next).unwrap();
    journal.append(&batch(5, b"five")).unwrap();
    journal.sync().unwrap();
    journal.obsolete_before(2).unwrap();
    drop(journal);
    let (_, _, found) = replay(FileJournal::open(&directory.0, 2)).unwrap();
    assert_eq!(found.iter().map(|batch| batch.0).collect::<Vec<_>>(), [3, 4, 5]);
}

/// Each byte of a record in turn.
#[test]
fn damage_in_a_directory_is_refused_and_saved_around() {
    let _watchdog = Watchdog::new("file_journal::directory::damage_in_a_directory", 0);
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
        directory.files().into_iter().for_each(|file| fs::remove_file(file).unwrap());
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&file, &bytes).unwrap();
        let refused = replay(FileJournal::open(&directory.0, 0)).map(|_| ());
        let Err(Error::DamagedFile { file: named, cause }) = refused else {
            panic!("byte {at}: {refused:?}");
        };
        assert!(file.ends_with(&named) && matches!(*cause, Error::Corruption(_)), "byte {at}: {named}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "nothing was changed");
        let (_, replayed, found) = replay(FileJournal::salvage(&directory.0, 0)).unwrap();
        let numbers: Vec<u64> = found.iter().map(|batch| batch.0).collect();
        assert_eq!((numbers.as_slice(), replayed.findings.len()), (&[1, 3][..], 1), "byte {at}");
    }
}

/// A journal has its directory for itself, as long as it is open.
#[test]
fn a_second_journal_of_a_directory_is_refused() {
    let _watchdog = Watchdog::new("file_journal::directory::a_second_journal_of_a_directory", 0);
    let directory = Directory::new("locked");
    let (journal, _) = FileJournal::open(&directory.0, 0).unwrap();
    for again in [FileJournal::open(&directory.0, 0), FileJournal::salvage(&directory.0, 0)] {
        let refused = again.map(drop).unwrap_err();
        let Error::Io { operation: "lock", source, .. } = &refused else { panic!("{refused}") };
        assert_eq!(source.kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(journal);
    assert!(FileJournal::open(&directory.0, 0).is_ok());
}

/// A pipe with the name of a journal's file is no reason to wait.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused() {
    let _watchdog = Watchdog::new("file_journal::directory::a_pipe_is_refused", 0);
    let directory = Directory::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(directory.0.join("000001.journal")).status();
    if made.is_ok_and(|status| status.success()) {
        let refused = FileJournal::open(&directory.0, 0).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Io { operation: "read", .. }), "{refused}");
    }
}
