//! Crashes: what was synced is replayed, in order, and nothing half-written is visible.

use std::sync::Arc;

use paranoid_memtable::set::{FileJournal, Journal, RecoveryMode};
use paranoid_memtable::{ChecksumKind, Error, WriteBatch};

use crate::support::disk::{End, Plan, SECTOR, SimDisk};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

/// How sure it is that a batch survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A sync that came after it returned.
    Certain,
    /// It was appended, or may have been.
    Open,
    /// Its numbers were abandoned, and that may be known after a crash.
    Leaving,
    /// Its numbers were abandoned, and that was synced.
    Gone,
    /// Its append failed: it may be there as long as nothing else has its number.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Again,
}

#[derive(Debug)]
struct Batch {
    sequence: u64,
    bytes: Vec<u8>,
    fate: Fate,
}

/// What an engine knows that writes to a journal.
#[derive(Debug, Default)]
struct Engine {
    batches: Vec<Batch>,
    /// The last number that its files have.
    flushed: u64,
    next: u64,
    /// The newest table and the last number before it.
    table: (u64, u64),
    /// A call failed, and the numbers that it left open are not abandoned yet.
    has_failed: bool,
}

impl Engine {
    fn draw(&self, rng: &mut Rng) -> (Vec<u8>, u64) {
        let mut batch = WriteBatch::new();
        for entry in 0..1 + rng.below(3) {
            let len = if rng.one_in(6) { 3 * SECTOR } else { 60 };
            let len = rng.index(len);
            let mut value = if rng.one_in(5) { vec![0; len] } else { rng.bytes(len) };
            // No two batches are equal.
            value.extend(rng.next_u64().to_le_bytes());
            batch.put(&(self.next + entry).to_be_bytes(), &value).unwrap();
        }
        batch.set_sequence(self.next);
        (batch.as_bytes().to_vec(), batch.len() as u64)
    }

    fn append(&mut self, journal: &FileJournal, rng: &mut Rng) -> Result<(), Error> {
        let (bytes, len) = self.draw(rng);
        let appended = journal.append(&bytes);
        let (sequence, is_taken) = (self.next, appended.is_ok());
        let fate = if is_taken { Fate::Open } else { Fate::Refused };
        self.batches.push(Batch { sequence, bytes, fate });
        self.next += if is_taken { len } else { 0 };
        appended
    }

    fn sync(&mut self, journal: &FileJournal) -> Result<(), Error> {
        journal.sync()?;
        for batch in &mut self.batches {
            batch.fate = match batch.fate {
                Fate::Open | Fate::Certain => Fate::Certain,
                Fate::Leaving if self.has_failed => Fate::Leaving,
                Fate::Leaving | Fate::Gone => Fate::Gone,
                Fate::Refused => Fate::Refused,
            };
        }
        Ok(())
    }

    fn switch(&mut self, journal: &FileJournal) -> Result<(), Error> {
        let table = journal.next_table();
        journal.switch(table)?;
        self.table = (table, self.next - 1);
        Ok(())
    }

    /// After a sync that failed: a new file, and what was not synced is abandoned.
    fn resume(&mut self, journal: &FileJournal, attempt: Attempt) -> Result<(), Error> {
        match attempt {
            Attempt::First => self.switch(journal)?,
            // A set that could not tell the journal what it abandons tries again with the table of before.
            Attempt::Again => journal.switch(self.table.0).or_else(|_| self.switch(journal))?,
        }
        let open = |batch: &&mut Batch| matches!(batch.fate, Fate::Open | Fate::Leaving);
        let mut open: Vec<&mut Batch> = self.batches.iter_mut().filter(open).collect();
        // Those that a failed sync covered and that nobody waited for stay.
        let is_leaving = |batch: &&mut Batch| batch.fate == Fate::Leaving;
        let leaving = open.iter().position(is_leaving).unwrap_or(open.len());
        let mut open = open.split_off(self.next as usize % (leaving + 1));
        if let Some(first) = open.first().map(|batch| batch.sequence) {
            open.iter_mut().for_each(|batch| batch.fate = Fate::Leaving);
            journal.abandon(first, self.next - 1)?;
        }
        self.has_failed = false;
        let synced = self.sync(journal);
        self.has_failed = synced.is_err();
        synced
    }

    /// The tables before the newest one are in files.
    fn flush(&mut self, journal: &FileJournal) -> Result<(), Error> {
        self.flushed = self.flushed.max(self.table.1);
        journal.obsolete_before(self.table.0)
    }

    /// One call or another; only a machine that is down ends the work.
    fn work(&mut self, journal: &FileJournal, disk: &SimDisk, rng: &mut Rng) {
        let done = match rng.below(20) {
            0..=11 => self.append(journal, rng),
            12..=16 => self.sync(journal),
            17 | 18 if self.has_failed => Ok(()),
            17 | 18 => self.switch(journal),
            _ => self.flush(journal),
        };
        self.has_failed |= done.is_err();
        // After an append that failed the file may go on; after a sync that failed all calls fail until the switch.
        let mut resumes = self.has_failed && rng.one_in(2);
        let mut attempt = Attempt::First;
        while resumes && !disk.is_down() {
            resumes = self.resume(journal, attempt).is_err();
            attempt = if rng.one_in(2) { Attempt::First } else { Attempt::Again };
        }
    }

    /// Compares what was replayed with what was written.
    fn compare(&self, found: &[(u64, Vec<u8>)]) -> Result<(), String> {
        let wanted: Vec<&Batch> = self.batches.iter().filter(|batch| batch.sequence > self.flushed).collect();
        let mut left = wanted.iter();
        let mut skipped = None;
        for (sequence, bytes) in found {
            let same = |batch: &Batch| batch.sequence == *sequence && batch.bytes == *bytes;
            loop {
                let batch =
                    left.next().ok_or(format!("batch {sequence} was not written so, or not there"))?;
                if same(batch) {
                    if batch.fate == Fate::Gone {
                        return Err(format!("batch {sequence} was abandoned"));
                    }
                    if let Some(skipped) = skipped {
                        return Err(format!("batch {sequence} without batch {skipped} before it"));
                    }
                    break;
                }
                match batch.fate {
                    Fate::Certain => {
                        return Err(format!("batch {} was synced and is missing", batch.sequence));
                    }
                    Fate::Open => skipped = Some(batch.sequence),
                    Fate::Leaving | Fate::Gone | Fate::Refused => {}
                }
            }
        }
        match left.find(|batch| batch.fate == Fate::Certain) {
            Some(batch) => Err(format!("batch {} was synced and is missing at the end", batch.sequence)),
            None => Ok(()),
        }
    }

    /// After a recovery all that was replayed is durable.
    fn restart(&mut self, found: Vec<(u64, Vec<u8>)>, last_sequence: u64) {
        let durable = |(sequence, bytes)| Batch { sequence, bytes, fate: Fate::Certain };
        self.batches = found.into_iter().map(durable).collect();
        (self.next, self.has_failed) = (last_sequence + 1, false);
    }
}

/// Opens the journal of a disk and reads it; `None` if the machine went down meanwhile.
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

/// Works, crashes, recovers, and works on, a few times.
fn crash(seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let fails_one_in = [None, None, Some(40), Some(12)][rng.index(4)];
    let mut engine = Engine { next: 1, ..Engine::default() };
    let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
    for _ in 0..4 {
        disk.set_plan(Plan { crash_at: Some(rng.below(150)), ..Plan::default() });
        if let Some(journal) = recover(&disk, &mut engine)? {
            let crash_at = Some(disk.steps() + rng.below(100));
            disk.set_plan(Plan { crash_at, fails_one_in, ..Plan::default() });
            let mut ready = engine.switch(&journal).is_ok();
            while !ready && !disk.is_down() {
                ready = engine.switch(&journal).is_ok();
            }
            while !disk.is_down() {
                engine.work(&journal, &disk, &mut rng);
            }
        }
        let end = *rng.pick(&[End::Process, End::Power, End::Power]);
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

/// Does a few things, switches to a table or tries to, and syncs at last; calls of the storage fail whose numbers are in the
/// interval. Whether batch 2 was acknowledged.
fn sync_after_trouble(disk: &SimDisk, next: u64, fails_within: (u64, u64)) -> Result<bool, Error> {
    let storage = Arc::new(disk.clone());
    let (journal, _) = FileJournal::open_in(storage, 0, ChecksumKind::Crc32c, RecoveryMode::default())?;
    journal.switch(1)?;
    journal.append(&super::batch(1, b"red"))?;
    journal.sync()?;
    disk.set_plan(Plan { fails_within: Some(fails_within), ..Plan::default() });
    journal.switch(2)?;
    journal.append(&super::batch(2, b"green"))?;
    // Whichever of these fails, and whatever it leaves: the last sync means what it says.
    let _ = journal.obsolete_before(2);
    let _ = journal.switch(next);
    Ok(journal.sync().is_ok())
}

/// The directory's sync may fail for a call that needs it for something else.
#[test]
fn a_sync_means_names_that_a_failed_call_left_unwritten() {
    let _watchdog = Watchdog::new("a_sync_means_names_that_a_failed_call_left_unwritten", 0);
    let mut acknowledged = 0;
    // A switch to table 2 is refused, and no name is new.
    for case in 0..40 * 4 * 2 {
        let (next, calls, from) = (2 + case % 2, 1 + case / 2 % 4, case / 8);
        let disk = super::empty_disk();
        if !sync_after_trouble(&disk, next, (from, from + calls)).unwrap_or(false) {
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
    assert!(acknowledged > 160, "{acknowledged} runs");
}
