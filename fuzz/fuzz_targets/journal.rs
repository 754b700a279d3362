//! Opens a directory of any bytes, and the files of a journal that were changed, cut and mixed.
//! Opening returns an error, or batches that were written, in their order. It returns all of them
//! if nothing was changed. The journal then continues.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::{arbitrary, fuzz_target};
use paranoid_memtable::{ChecksumKind, Error, WriteBatch};
use paranoid_set::{FileJournal, Journal, RecoveryMode};

#[path = "../../tests/support/mod.rs"]
mod support;

use support::sets::{Plan, SimDisk};

type Files = BTreeMap<String, Vec<u8>>;
/// Sequence number and encoded batch.
type Logged = (u64, Vec<u8>);

#[derive(Debug, Arbitrary)]
enum Step {
    /// A batch with a value of this many bytes.
    Append(u16),
    Sync,
    Switch,
}

#[derive(Debug, Arbitrary)]
enum Change {
    /// File, offset, and the byte to XOR there.
    Xor(u8, u16, u8),
    Cut(u8, u16),
    Remove(u8),
    /// The bytes of one file under the name of another.
    Copy(u8, u8),
    /// A file of any bytes.
    Raw(u8, Vec<u8>),
    /// Any bytes in the notes about syncs.
    Notes(Vec<u8>),
}

fn batch(sequence: u64, len: usize) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch
        .put(&sequence.to_be_bytes(), &vec![sequence as u8; len])
        .expect("far below the limits");
    batch.set_sequence(sequence);
    batch.as_bytes().to_vec()
}

fn name(number: u8) -> String {
    format!("{:06}.journal", number % 8)
}

/// Opens the journal of these files and reads it.
fn read(files: &Files, mode: RecoveryMode) -> Result<(FileJournal, SimDisk, Vec<Logged>), Error> {
    let disk = SimDisk::with_files(files.clone(), 1, Plan::default());
    let (journal, recovery) =
        FileJournal::open_in(Arc::new(disk.clone()), 0, ChecksumKind::Xxh3, mode)?;
    let mut found = vec![];
    let replayed = recovery.replay(|sequence, batch| {
        found.push((sequence, batch.as_bytes().to_vec()));
        Ok(())
    })?;
    assert_eq!(replayed.batches, found.len() as u64);
    assert!(
        found
            .last()
            .is_none_or(|batch| batch.0 <= replayed.last_sequence)
    );
    assert!(
        found.is_sorted_by(|left, right| left.0 < right.0),
        "numbers ascend"
    );
    Ok((journal, disk, found))
}

/// A journal after these steps: its files, and the batches that a recovery must return.
fn written(steps: &[Step]) -> (Files, Vec<Logged>) {
    let (journal, disk, _) = read(&Files::new(), RecoveryMode::TolerateCorruptedTailRecords)
        .expect("an empty directory");
    let mut logged: Vec<Logged> = vec![];
    let mut next = 1;
    journal.switch(journal.next_table()).expect("a file");
    for step in steps.iter().take(40) {
        match step {
            Step::Append(len) => {
                let bytes = batch(next, usize::from(len % 1500));
                journal.append(&bytes).expect("a record");
                logged.push((next, bytes));
                next += 1;
            }
            Step::Sync => journal.sync().expect("durable"),
            Step::Switch if journal.next_table() < 8 => {
                journal.switch(journal.next_table()).expect("a file");
            }
            Step::Switch => {}
        }
    }
    journal.write().expect("all records");
    (disk.files(), logged)
}

fn change(files: &mut Files, change: &Change) {
    match change {
        Change::Xor(file, at, with) => {
            if let Some(bytes) = files
                .get_mut(&name(*file))
                .filter(|bytes| !bytes.is_empty())
            {
                let at = usize::from(*at) % bytes.len();
                bytes[at] ^= with;
            }
        }
        Change::Cut(file, len) => {
            if let Some(bytes) = files.get_mut(&name(*file)) {
                bytes.truncate(usize::from(*len));
            }
        }
        Change::Remove(file) => drop(files.remove(&name(*file))),
        Change::Copy(from, to) => {
            if let Some(bytes) = files.get(&name(*from)).cloned() {
                files.insert(name(*to), bytes);
            }
        }
        Change::Notes(bytes) => files
            .entry("journal.synced".into())
            .or_default()
            .extend(bytes),
        Change::Raw(file, bytes) => drop(files.insert(name(*file), bytes.clone())),
    }
}

fuzz_target!(|input: (Vec<Step>, Vec<Change>)| {
    let (steps, changes) = input;
    let (whole, logged) = written(&steps);
    let mut files = whole.clone();
    changes
        .iter()
        .take(16)
        .for_each(|it| change(&mut files, it));
    let saved = read(&files, RecoveryMode::SkipAnyCorrupted);
    let stopped = read(&files, RecoveryMode::PointInTime);
    let opened = read(&files, RecoveryMode::TolerateCorruptedTailRecords);
    if files == whole {
        assert_eq!(opened.as_ref().expect("nothing is damaged").2, logged);
    }
    for (journal, disk, found) in [saved, opened, stopped].into_iter().flatten() {
        // Each batch that was found was written.
        assert!(
            found
                .iter()
                .all(|(sequence, bytes)| *bytes == batch(*sequence, bytes.len() - overhead(bytes)))
        );
        let last = found.last().map_or(0, |batch| batch.0).max(1_000);
        journal.switch(journal.next_table()).expect("a file");
        journal.append(&batch(last + 1, 3)).expect("a record");
        journal.sync().expect("durable");
        drop(journal);
        let again = read(&disk.files(), RecoveryMode::SkipAnyCorrupted)
            .expect("it was opened")
            .2;
        let numbers = |batches: &[Logged]| batches.iter().map(|batch| batch.0).collect::<Vec<_>>();
        assert_eq!(
            [numbers(&found), vec![last + 1]].concat(),
            numbers(&again),
            "what was recovered stays"
        );
    }
});

/// Bytes of an encoded batch of one entry without its value: header, tag, key, and the lengths of
/// key and value.
fn overhead(bytes: &[u8]) -> usize {
    let beside = 12 + 1 + 1 + 8;
    let value = bytes.len() - beside;
    if value > 128 { beside + 2 } else { beside + 1 }
}
