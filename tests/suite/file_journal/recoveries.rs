//! Recoveries with events between their batches: tables are flushed, sealed or full before the last
//! batch is replayed. Recoveries end in several ways. All acknowledged batches are read after a
//! later opening has replayed them.

use std::sync::Arc;

use paranoid_memtable::{ChecksumKind, Error, MemTableOptions, WriteBatch};
use paranoid_set::{
    Durability, FileJournal, FlushThread, Journal, JournalRecovery, MemTableSet, RecoveryMode,
    SetOptions, SetOptionsBuilder, WriteBufferManager,
};

use super::install::{Engine, Forgets, Written};
use super::{disk_of, empty_disk, journals};
use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
use crate::support::sets::{End, Plan, SimDisk};

/// The write buffer of the engine, and the memory of all sets under its manager.
const WRITE_BUFFER: u64 = 16 << 10;
const MANAGED: u64 = 48 << 10;

/// The way in which an engine uses its recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Replays each batch as it comes.
    Replay,
    /// Takes all batches, and replays them when the recovery has ended.
    Collect,
    /// Fails at some batch.
    Fail,
    Panic,
    Drop,
    Leak,
}

/// Counts of the ends of recoveries, and of the events between their batches.
#[derive(Debug, Default)]
struct Counts {
    recoveries: u64,
    batches: u64,
    ended: u64,
    /// A batch that fits no table.
    full: u64,
    failed: u64,
    given_up: u64,
    flushes: u64,
}

/// Another set under the manager of the engine.
type Neighbour = MemTableSet<()>;

/// One opening: the objects that the engine may use, and the events between two batches.
struct Opening {
    neighbour: Option<Neighbour>,
    flusher: Option<FlushThread>,
    /// One in this number of batches is followed by an event.
    between: u64,
    rng: Rng,
}

/// The limits of an opening, at random.
fn options(
    rng: &mut Rng,
    manager: Option<&WriteBufferManager>,
) -> Result<SetOptionsBuilder, Error> {
    let mut tables = MemTableOptions::builder().write_buffer_size(WRITE_BUFFER);
    if rng.one_in(2) {
        tables = tables.hard_limit(WRITE_BUFFER * (1 + rng.below(2)));
    }
    let mut options = SetOptions::builder().table(tables.build()?);
    options = options.max_write_buffer_number(*rng.pick(&[3, 8, u64::MAX, u64::MAX]));
    Ok(if let Some(manager) = manager {
        options.write_buffer_manager(manager)
    } else {
        options
    })
}

/// Whether an error only says that a set has no room now, or that nothing flushes it.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::WriteStall { .. } | Error::InvalidArgument(_))
}

impl Opening {
    /// Draws the set that shares the engine's memory, and the thread that flushes it.
    fn new(
        engine: &Engine,
        manager: Option<&WriteBufferManager>,
        rng: &mut Rng,
    ) -> Result<Self, Error> {
        let neighbour = manager.filter(|_| rng.one_in(2)).map(|manager| {
            let tables = MemTableOptions::builder()
                .write_buffer_size(WRITE_BUFFER)
                .build()?;
            let options = SetOptions::builder()
                .table(tables)
                .write_buffer_manager(manager)
                .build()?;
            MemTableSet::open(options, ())
        });
        let files = Arc::clone(&engine.files);
        let flush = move |job| files.lock().unwrap().flush(job);
        let flusher = rng
            .one_in(3)
            .then(|| engine.set.start_flush_thread(flush))
            .transpose()?;
        let between = *rng.pick(&[1, 2, 6, u64::MAX]);
        Ok(Opening {
            neighbour: neighbour.transpose()?,
            flusher,
            between,
            rng: Rng::new(rng.next_u64()),
        })
    }

    /// Replays a batch. If there is no space for it, flushes and tries again, as an engine does.
    fn replay(
        &mut self,
        engine: &Engine,
        batch: &WriteBatch,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        counts.batches += 1;
        let mut replayed = engine.set.replay(batch);
        for _ in 0..8 {
            if !matches!(replayed, Err(Error::WriteStall { .. })) {
                break;
            }
            self.neighbour.iter().try_for_each(empty)?;
            engine.flush()?;
            replayed = engine.set.replay(batch);
        }
        replayed?;
        if self.rng.one_in(self.between) {
            self.come_between(engine, counts)?;
        }
        Ok(())
    }

    /// An action of an engine during a recovery.
    fn come_between(&mut self, engine: &Engine, counts: &mut Counts) -> Result<(), Error> {
        counts.flushes += 1;
        let done = match self.rng.below(6) {
            0 => engine.set.switch().map(drop),
            1 => engine.flush(),
            2 => engine.set.switch().and_then(|_| engine.flush()),
            3 => engine.set.flush_and_wait(),
            _ => self.neighbour.as_ref().map_or(Ok(()), |set| {
                set.put(self.rng.next_u64().to_be_bytes(), [7; 10_000])?;
                engine.flush()
            }),
        };
        done.or_else(|error| {
            if is_refusal(&error) {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    /// Recovers an engine in this way. Returns whether all batches are in the engine's tables.
    fn recover(
        &mut self,
        engine: &Engine,
        recovery: JournalRecovery,
        way: Way,
        counts: &mut Counts,
    ) -> Result<bool, Error> {
        let fails_at = self.rng.below(12);
        let (mut number, mut collected) = (0, vec![]);
        let deliver = |_, batch: WriteBatch| {
            number += 1;
            match way {
                Way::Collect => {
                    collected.push(batch);
                    Ok(())
                }
                Way::Fail if number > fails_at => Err(Error::Frozen),
                Way::Panic if number > fails_at => std::panic::resume_unwind(Box::new(())),
                _ => self.replay(engine, &batch, counts),
            }
        };
        match way {
            Way::Drop => drop(recovery),
            Way::Leak => std::mem::forget(recovery),
            Way::Panic => {
                let act = std::panic::AssertUnwindSafe(|| recovery.replay(deliver));
                return std::panic::catch_unwind(act).map_or(Ok(false), |done| done.map(|_| true));
            }
            _ => {
                recovery.replay(deliver)?;
                collected
                    .iter()
                    .try_for_each(|batch| self.replay(engine, batch, counts))?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Flushes the neighbour, and drops its entries.
fn empty(set: &Neighbour) -> Result<(), Error> {
    set.switch()?;
    let Some(mut job) = set.begin_flush()? else {
        return Ok(());
    };
    let mut items = job.items()?;
    while items.next()?.is_some() {}
    drop(items);
    job.install(|()| Ok(()))
}

/// Opens, recovers in some way, and works if all batches are there. Returns whether the opening
/// ended, which cuts off the torn end after a loss of power.
fn live(
    disk: &SimDisk,
    written: &mut Written,
    end: End,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Result<bool, String> {
    let manager = rng
        .one_in(2)
        .then(|| WriteBufferManager::new(MANAGED).unwrap());
    // A salvage returns batches after a lost one.
    let mode = if end == End::Process && rng.one_in(4) {
        RecoveryMode::SkipAnyCorrupted
    } else {
        *rng.pick(&[
            RecoveryMode::TolerateCorruptedTailRecords,
            RecoveryMode::PointInTime,
        ])
    };
    let opened = options(rng, manager.as_ref())
        .and_then(|options| Engine::begin(disk, Forgets::Nothing, options, mode));
    let (mut engine, recovery) = match opened {
        Err(_) if disk.is_down() => return Ok(false),
        opened => opened.map_err(|error| format!("open: {error}"))?,
    };
    counts.recoveries += 1;
    let mut opening =
        Opening::new(&engine, manager.as_ref(), rng).map_err(|error| error.to_string())?;
    let way = *rng.pick(&[
        Way::Replay,
        Way::Replay,
        Way::Collect,
        Way::Fail,
        Way::Panic,
        Way::Drop,
        Way::Leak,
    ]);
    let recovered = opening.recover(&engine, recovery, way, counts);
    let is_whole = match recovered {
        _ if disk.is_down() => return Ok(true),
        Ok(is_whole) => is_whole,
        Err(Error::MemTableFull { .. }) => {
            counts.full += 1;
            false
        }
        Err(Error::Frozen | Error::WriteStall { .. }) => false,
        Err(error) => return Err(format!("{way:?}: {error}")),
    };
    if is_whole {
        counts.ended += 1;
        engine.opened(written)?;
    } else if matches!(way, Way::Drop | Way::Leak) {
        counts.given_up += 1;
    } else {
        counts.failed += 1;
    }
    engine.long = *rng.pick(&[80, 3_000, 20_000]);
    let flushes_one_in = *rng.pick(&[2, 20]);
    for _ in 0..rng.below(40) {
        let done = if is_whole && !rng.one_in(flushes_one_in) {
            engine.write(written, rng)
        } else {
            opening.come_between(&engine, counts)
        };
        match done {
            _ if disk.is_down() => break,
            Err(
                Error::WriteStall { .. } | Error::MemTableFull { .. } | Error::InvalidArgument(_),
            )
            | Ok(()) => {}
            Err(error) => return Err(format!("work: {error}")),
        }
    }
    drop(opening.flusher.take().map(FlushThread::close));
    Ok(true)
}

/// A few lives on one disk, and at last an opening without limits.
fn lives(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut written = Written::default();
    let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
    let mut end = End::Process;
    for _ in 0..5 {
        let crash_at = rng.one_in(2).then(|| rng.below(300));
        disk.set_plan(Plan {
            crash_at,
            ..Plan::default()
        });
        let has_opened = live(&disk, &mut written, end, &mut rng, counts)?;
        let next = *rng.pick(&[End::Process, End::Power]);
        written.ended(next);
        disk = disk.after(next, &mut rng);
        // The torn end after a loss of power stays until an opening has ended.
        if has_opened || next == End::Power {
            end = next;
        }
    }
    let engine =
        Engine::open(&disk, Forgets::Nothing).map_err(|error| format!("at last: {error}"))?;
    engine.opened(&mut written)
}

#[test]
fn what_comes_between_replayed_batches_loses_none() {
    let test = "file_journal::recoveries::what_comes_between_replayed_batches_loses_none";
    let mut seed = seed_or(std::process::id().into());
    let wanted = amount(20_000, 300);
    println!("{test}: seed {seed:#x}, {wanted} recoveries");
    let mut counts = Counts::default();
    while counts.recoveries < wanted {
        let _watchdog = Watchdog::new(test, seed);
        if let Err(text) = lives(seed, &mut counts) {
            panic!("{text}\n{counts:?}\nreplay: {}", replay_line(test, seed));
        }
        seed = Rng::new(seed).next_u64();
    }
    println!("{counts:?}: 0 lost");
}

/// Thirty batches of which number 13 fits no table of 512 KiB.
fn thirty_batches() -> SimDisk {
    let disk = empty_disk();
    let (set, recovery) = open(&disk, 0, 8 << 20).unwrap();
    recovery.replay(|_, _| Ok(())).unwrap();
    for number in 1..=30_u8 {
        let mut batch = WriteBatch::new();
        batch
            .put(
                [number],
                vec![7; if number == 13 { 900_000 } else { 3_000 }],
            )
            .unwrap();
        set.write_with(&batch, Durability::Synced).unwrap();
    }
    disk
}

/// A set whose base is the last number that it has.
fn open(
    disk: &SimDisk,
    base: u64,
    limit: u64,
) -> Result<(MemTableSet<u64>, JournalRecovery), Error> {
    let mode = RecoveryMode::default();
    let (journal, recovery) =
        FileJournal::open_in(Arc::new(disk.clone()), base, ChecksumKind::Xxh3, mode)?;
    let tables = MemTableOptions::builder()
        .write_buffer_size(256 << 10)
        .hard_limit(limit)
        .build()?;
    let options = SetOptions::builder()
        .table(tables)
        .last_sequence(base)
        .first_table(journal.next_table());
    Ok((
        MemTableSet::open(options.journal(Arc::new(journal)).build()?, base)?,
        recovery,
    ))
}

/// Flushes all tables of a set.
fn flush(set: &MemTableSet<u64>) -> u64 {
    set.switch().unwrap();
    let mut job = set.begin_flush().unwrap().expect("a table");
    let mut items = job.items().unwrap();
    while items.next().unwrap().is_some() {}
    drop(items);
    let last = job.last_sequence();
    job.install(|_| Ok(last)).unwrap();
    last
}

/// The numbers of the batches of a recovery.
fn numbers(recovery: JournalRecovery) -> Vec<u64> {
    let mut numbers = vec![];
    recovery
        .replay(|number, _| {
            numbers.push(number);
            Ok(())
        })
        .unwrap();
    numbers
}

/// A replay that ends in `MemTableFull`, between batches that were flushed and batches that were
/// not replayed.
#[test]
fn a_replay_that_fills_a_table_keeps_what_was_not_replayed() {
    for switches in [true, false] {
        let disk = thirty_batches();
        let (set, recovery) = open(&disk, 0, 512 << 10).unwrap();
        let replay = |number, batch: WriteBatch| {
            if number == 13 && switches {
                flush(&set);
            }
            set.replay(&batch).map(drop)
        };
        assert!(matches!(
            recovery.replay(replay),
            Err(Error::MemTableFull { .. })
        ));
        let base = if switches {
            **set.view().base()
        } else {
            flush(&set)
        };
        assert_eq!(base, 12);
        drop(set);
        let (_set, recovery) = open(&disk, base, 8 << 20).unwrap();
        assert_eq!(numbers(recovery), (13..=30).collect::<Vec<_>>());
    }
}

/// The files that a journal removes after each kind of end of its recovery, by the last flushed
/// number.
#[test]
fn a_recovery_without_an_end_keeps_every_file() {
    let files = thirty_batches().files();
    let names = |disk: &SimDisk| journals(disk).into_keys().collect::<Vec<_>>();
    for way in [Way::Drop, Way::Leak, Way::Panic, Way::Fail, Way::Replay] {
        for mode in [
            RecoveryMode::default(),
            RecoveryMode::PointInTime,
            RecoveryMode::SkipAnyCorrupted,
        ] {
            let disk = disk_of(&files);
            let storage = Arc::new(disk.clone());
            let (journal, recovery) =
                FileJournal::open_in(storage, 0, ChecksumKind::Xxh3, mode).unwrap();
            let (before, table) = (names(&disk).len(), journal.next_table() + 1);
            journal.switch(table - 1).unwrap();
            journal.switch(table).unwrap();
            journal.flushed(table, u64::MAX).unwrap();
            let deliver = |number, _| match way {
                Way::Fail if number == 30 => Err(Error::Frozen),
                Way::Panic if number == 30 => std::panic::resume_unwind(Box::new(())),
                _ => {
                    assert_eq!(names(&disk).len(), before + 2, "{way:?}: batch {number}");
                    journal.flushed(table, number)
                }
            };
            match way {
                Way::Drop => drop(recovery),
                Way::Leak => std::mem::forget(recovery),
                _ => {
                    let act = std::panic::AssertUnwindSafe(|| recovery.replay(deliver).is_ok());
                    let done = std::panic::catch_unwind(act);
                    assert_eq!(done.unwrap_or(false), way == Way::Replay);
                }
            }
            // Number 30 may be returned and not flushed.
            journal.obsolete_before(table).unwrap();
            journal.flushed(table, 29).unwrap();
            assert_eq!(names(&disk).len(), before + 2, "{way:?}");
            journal.flushed(table, 30).unwrap();
            let left = if way == Way::Replay { 1 } else { before + 2 };
            assert_eq!(names(&disk).len(), left, "{way:?}, {mode:?}");
            // No remaining file names a removed one.
            drop(journal);
            for last in [12, 30] {
                let (_set, recovery) = open(&disk_of(&disk.files()), last, 8 << 20).unwrap();
                assert!(
                    left == 1 || numbers(recovery).len() as u64 == 30 - last,
                    "{way:?}, {last}"
                );
            }
        }
    }
}

/// A recovery without batches need not be replayed.
#[test]
fn an_empty_recovery_has_ended() {
    for files in [empty_disk().files(), thirty_batches().files()] {
        let disk = disk_of(&files);
        let (set, recovery) = open(&disk, 30, 8 << 20).unwrap();
        drop(recovery);
        set.put("key", "value").unwrap();
        assert_eq!(flush(&set), 31);
        assert_eq!(journals(&disk).len(), 1);
    }
}

/// Batches that an engine takes at once, and replays after the recovery has ended, with flushes
/// between them.
#[test]
fn batches_returned_and_not_replayed_are_kept() {
    let disk = thirty_batches();
    let (set, recovery) = open(&disk, 0, 8 << 20).unwrap();
    let mut batches = vec![];
    recovery
        .replay(|_, batch| {
            batches.push(batch);
            Ok(())
        })
        .unwrap();
    for batch in batches {
        let killed = disk.after(End::Process, &mut Rng::new(0));
        let base = **set.view().base();
        assert_eq!(
            numbers(open(&killed, base, 8 << 20).unwrap().1),
            (base + 1..=30).collect::<Vec<_>>()
        );
        set.replay(&batch).unwrap();
        flush(&set);
    }
    assert_eq!((**set.view().base(), journals(&disk).len()), (30, 1));
}
