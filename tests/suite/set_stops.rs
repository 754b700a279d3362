//! The causes that stop a set, and those that do not: journals that fail, writers that panic,
//! tables that are damaged. Nothing hangs, no acknowledged write is lost, and each error names its
//! cause.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{ChecksumKind, Error, Lookup, MemTable, MemTableOptions, WriteBatch};
use paranoid_set::{Durability, FileJournal, FlushJob, MemTableSet, RecoveryMode, SetOptions};

use crate::support::orders::{Forgetful, Script, Scripted, ScriptedLoosely};
use crate::support::rng::{Watchdog, amount};
use crate::support::sets::{History, Known, MemoryJournal, Plan, SimDisk, read_through};
use crate::support::{set_under, under};

fn put(key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(key, value).unwrap();
    batch
}

fn with_journal() -> (MemTableSet<History>, MemoryJournal) {
    let journal = MemoryJournal::default();
    let options = SetOptions::builder()
        .journal(Arc::new(journal.clone()))
        .build()
        .unwrap();
    (
        MemTableSet::open(options, History::default()).unwrap(),
        journal,
    )
}

fn broken_disk() -> Error {
    Error::Sink(Arc::from(Box::from("the disk is gone")))
}

fn is_broken_disk(error: &Error) -> bool {
    match error {
        Error::ReadOnly { cause } => is_broken_disk(cause),
        Error::Sink(cause) => cause.to_string() == "the disk is gone",
        _ => false,
    }
}

/// An empty range of RocksDB's log takes its number and deletes nothing, in a set as in a table.
#[test]
fn an_empty_range_takes_its_number() {
    let _watchdog = Watchdog::new("set_stops::an_empty_range_takes_its_number", 0);
    let logged = b"\0\0\0\0\0\0\0\0\x03\0\0\0\x0f\x01x\x01x\x01\x01k\x011\x0f\x01x\x01x";
    let batch = WriteBatch::from_bytes(logged).unwrap();
    let table = MemTable::default();
    table.write_batch(5, &batch).unwrap();
    assert_eq!(table.stats().largest_sequence, Some(6));
    let set =
        MemTableSet::open(SetOptions::builder().last_sequence(4).build().unwrap(), ()).unwrap();
    assert_eq!(set.write(&batch).unwrap(), 7);
    let view = set.view();
    assert!(
        view.get(b"k")
            .unwrap()
            .into_value()
            .is_some_and(|value| value.sequence() == 6)
    );
}

/// No table comes after the one with the largest number: the set keeps its active table.
#[test]
fn table_numbers_end() {
    let _watchdog = Watchdog::new("set_stops::table_numbers_end", 0);
    let set = MemTableSet::open(
        SetOptions::builder()
            .first_table(u64::MAX - 1)
            .build()
            .unwrap(),
        (),
    )
    .unwrap();
    set.write(&put(b"a", b"1")).unwrap();
    assert_eq!(set.switch().unwrap(), 1);
    set.write(&put(b"a", b"2")).unwrap();
    assert!(matches!(set.switch(), Err(Error::InvalidArgument(_))));
    set.write(&put(b"a", b"3")).unwrap();
    let view = set.view();
    assert!(view.get(b"a").unwrap().value() == Some(b"3"));
    assert_eq!(view.readers().count(), 2);
}

/// A failing append or switch refuses one batch: it takes no numbers, and the next batch gets them.
#[test]
fn a_journal_that_refuses_a_batch_changes_nothing() {
    let _watchdog = Watchdog::new(
        "set_stops::a_journal_that_refuses_a_batch_changes_nothing",
        0,
    );
    let (set, journal) = with_journal();
    assert_eq!(set.write(&put(b"a", b"1")).unwrap(), 1);
    journal.0.lock().unwrap().append_fails = Some(broken_disk());
    assert!(is_broken_disk(&set.write(&put(b"a", b"2")).unwrap_err()));
    assert_eq!(set.write(&put(b"b", b"3")).unwrap(), 2);
    journal.0.lock().unwrap().switch_fails = Some(broken_disk());
    assert!(is_broken_disk(&set.switch().unwrap_err()));
    assert_eq!(
        (set.view().readers().count(), set.switch().unwrap()),
        (1, 1)
    );
    assert_eq!(set.write(&put(b"b", b"4")).unwrap(), 3);
    assert!(set.read_only().is_none());
    let view = set.view();
    assert_eq!(read_through(&view, b"a").value, Some(b"1".to_vec()));
    assert_eq!(journal.recovered().len(), 3);
}

/// A failed sync makes the set read-only: acknowledged writes stay, waiting ones get the cause. Red
/// for `unfinished_hides_older`.
#[test]
fn a_failed_sync_stops_the_set() {
    let _watchdog = Watchdog::new("set_stops::a_failed_sync_stops_the_set", 0);
    let (set, journal) = with_journal();
    set.write(&put(b"a", b"1")).unwrap();
    let before = set.snapshot();
    journal.0.lock().unwrap().sync_fails = Some(broken_disk());
    let error = set
        .write_with(&put(b"a", b"2"), Durability::Synced)
        .unwrap_err();
    assert!(
        matches!(error, Error::ReadOnly { .. }) && is_broken_disk(&error),
        "{error}"
    );
    for durability in [Durability::None, Durability::Buffered, Durability::Synced] {
        assert!(is_broken_disk(
            &set.write_with(&put(b"c", b"3"), durability).unwrap_err()
        ));
    }
    assert!(is_broken_disk(
        &set.write_with(&WriteBatch::new(), Durability::Synced)
            .unwrap_err()
    ));
    assert!(is_broken_disk(&set.read_only().unwrap()));
    for view in [
        set.view(),
        set.view_at(&before).unwrap(),
        set.view_at(&set.snapshot()).unwrap(),
    ] {
        assert_eq!(
            (view.sequence(), read_through(&view, b"a").value),
            (1, Some(b"1".to_vec()))
        );
        assert_eq!(read_through(&view, b"c"), Known::default());
    }
    // All that is visible is flushed, and the journal is not changed, because its next opening may
    // find the batch. A snapshot does not change this.
    drop(before);
    let table = journal.0.lock().unwrap().table;
    assert_eq!((set.switch().unwrap(), set.switch().unwrap()), (1, 1));
    assert_eq!(
        (journal.recovered().len(), journal.0.lock().unwrap().table),
        (2, table)
    );
    let mut flushed = History::default();
    set.begin_flush()
        .unwrap()
        .expect("a closed table")
        .flush(&mut flushed)
        .unwrap();
    assert!(flushed.points.keys().eq([&(b"a".to_vec(), Reverse(1))]));
    assert!(is_broken_disk(&set.write(&put(b"c", b"3")).unwrap_err()));
}

/// Many writers run beside one whose sync fails or panics: all return, and acknowledged writes are
/// visible.
#[test]
fn writers_beside_a_stop_all_return() {
    let _watchdog = Watchdog::new("set_stops::writers_beside_a_stop_all_return", 0);
    for panics in [false, true] {
        let (set, journal) = with_journal();
        scope(|threads| {
            for writer in 0..4u8 {
                let (set, journal) = (&set, &journal);
                threads.spawn(move || {
                    let mut acknowledged = 0;
                    for n in 1..=100u8 {
                        if (writer, n) == (0, 40) {
                            let mut log = journal.0.lock().unwrap();
                            (log.sync_panics, log.sync_fails) =
                                (panics, (!panics).then(broken_disk));
                        }
                        let durability = if n % 2 == 0 {
                            Durability::Synced
                        } else {
                            Durability::Buffered
                        };
                        let batch = put(&[writer], &[n]);
                        match catch_unwind(AssertUnwindSafe(|| set.write_with(&batch, durability)))
                        {
                            Ok(Ok(_)) => acknowledged = n,
                            Ok(Err(Error::ReadOnly { cause })) => {
                                assert_eq!(
                                    matches!(*cause, Error::WriterPanicked),
                                    panics,
                                    "{cause}"
                                );
                                break;
                            }
                            Ok(Err(other)) => panic!("{other}"),
                            Err(_) => break,
                        }
                    }
                    let value = read_through(&set.view(), &[writer]).value;
                    assert_eq!(
                        value,
                        (acknowledged > 0).then(|| vec![acknowledged]),
                        "writer {writer}"
                    );
                });
            }
        });
        assert!(set.read_only().is_some());
    }
}

/// An order that panics on request.
#[derive(Debug, Clone, Default)]
struct Fragile(Arc<AtomicBool>);

impl Script for Fragile {
    fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        assert!(!self.0.load(Ordering::Relaxed), "a comparator panics");
        left.cmp(right)
    }
}

/// A comparator panics inside a batch that has its numbers: the set is read-only, and all earlier
/// batches are read.
#[test]
fn a_writer_that_panics_stops_the_set() {
    let _watchdog = Watchdog::new("set_stops::a_writer_that_panics_stops_the_set", 0);
    let order = Fragile::default();
    let set = MemTableSet::open(set_under(Scripted::new(order.clone())), ()).unwrap();
    for key in [b"a", b"c"] {
        set.write(&put(key, b"1")).unwrap();
    }
    order.0.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| set.write(&put(b"b", b"2")))).is_err());
    order.0.store(false, Ordering::Relaxed);
    let refused = set.write(&put(b"b", b"3")).unwrap_err();
    let Error::ReadOnly { cause } = &refused else {
        panic!("{refused}")
    };
    assert!(matches!(**cause, Error::WriterPanicked));
    let former = set.view();
    assert_eq!(set.switch().unwrap(), 1);
    for view in [former, set.view()] {
        assert!(view.get(b"b").unwrap().found().is_none());
        assert!(view.get(b"c").unwrap().value() == Some(b"1"));
    }
}

/// A comparator changes its mind inside a batch that has its numbers: the set is read-only with
/// that cause. The part of the batch in its table is never visible, and never flushed.
#[test]
fn a_batch_that_is_interrupted_stops_the_set() {
    let _watchdog = Watchdog::new("set_stops::a_batch_that_is_interrupted_stops_the_set", 0);
    let mut batch = WriteBatch::new();
    // `K` is before all others, and, if case does not count, after `e`, which is present.
    let keys = [b"q", b"k", b"f", b"m", b"K", b"z"];
    keys.iter()
        .for_each(|key| batch.put(*key, b"batch").unwrap());
    let mut interrupted = 0;
    for comparisons in 0..200 {
        let order = ScriptedLoosely::new(Forgetful::new());
        let set = MemTableSet::open(set_under(order.clone()), ()).unwrap();
        set.write(&put(b"e", b"before")).unwrap();
        order.script::<Forgetful>().forget_after(comparisons);
        let written = set.write(&batch);
        order.script::<Forgetful>().forget_after(i64::MAX);
        let Err(Error::ReadOnly { cause }) = written else {
            continue;
        };
        match &*cause {
            Error::BatchInterrupted {
                applied: 1..6,
                cause,
            } => {
                assert!(matches!(**cause, Error::Corruption(_)), "{cause}");
            }
            // The contradiction is reported as an order that memory does not have.
            Error::Corruption(_) => continue,
            cause => panic!("{cause}"),
        }
        interrupted += 1;
        let former = set.view();
        assert_eq!(set.switch().unwrap(), 1);
        for view in [former, set.view()] {
            assert!(
                keys.iter()
                    .all(|key| matches!(view.get(*key).unwrap(), Lookup::NotFound))
            );
            assert!(
                matches!(view.get(b"e").unwrap(), Lookup::Value(value) if *value == *b"before")
            );
        }
        let mut flushed = History::default();
        set.begin_flush()
            .unwrap()
            .expect("what is below the stop")
            .flush(&mut flushed)
            .unwrap();
        assert!(
            flushed
                .points
                .keys()
                .map(|version| version.0.as_slice())
                .eq([b"e"]),
            "{flushed:?}"
        );
    }
    assert!(interrupted > 0);
}

/// Sets stop again and again under three writers, each is flushed, and a new one opened.
/// Acknowledged writes are visible, and a new set has only entries that were visible or in the
/// journal.
#[test]
fn sets_that_stop_again_and_again_lose_nothing() {
    let _watchdog = Watchdog::new("set_stops::sets_that_stop_again_and_again_lose_nothing", 0);
    let (mut set, journal) = with_journal();
    let mut acknowledged = [0u64; 3];
    for round in 1..=amount(60, 12) {
        // The value has the number of its round.
        scope(|threads| {
            for (writer, acknowledged) in acknowledged.iter_mut().enumerate() {
                let (set, journal) = (&set, &journal);
                threads.spawn(move || {
                    for n in 0.. {
                        if (writer, n) == (0, round % 30) {
                            journal.0.lock().unwrap().sync_fails = Some(broken_disk());
                        }
                        if n % 7 == 0 {
                            let _ = set.switch();
                        }
                        let number = round << 32 | n;
                        let durability = [Durability::Synced, Durability::Buffered][n as usize % 2];
                        match set
                            .write_with(&put(&[writer as u8], &number.to_be_bytes()), durability)
                        {
                            Ok(_) => *acknowledged = number,
                            Err(Error::WriteStall { .. }) => {
                                drop(set.begin_flush().map(|job| job.map(flush_into)))
                            }
                            Err(error) => {
                                assert!(is_broken_disk(&error), "{error}");
                                break;
                            }
                        }
                    }
                });
            }
        });
        let check = |set: &MemTableSet<History>| {
            let view = set.view();
            let read = |writer: u8| read_through(&view, &[writer]).value;
            [0, 1, 2].map(|writer| {
                read(writer).map_or(0, |it| u64::from_be_bytes(it.try_into().unwrap()))
            })
        };
        assert_eq!(check(&set), acknowledged);
        set.switch().unwrap();
        set.begin_flush().unwrap().into_iter().for_each(flush_into);
        assert_eq!((check(&set), set.stats().entries), (acknowledged, 0));
        let (last, first) = (
            set.snapshot().sequence(),
            journal.0.lock().unwrap().table + 1,
        );
        let options = SetOptions::builder()
            .journal(Arc::new(journal.clone()))
            .first_table(first);
        let base = History::clone(set.view().base());
        set = MemTableSet::open(options.last_sequence(last).build().unwrap(), base).unwrap();
        for batch in journal
            .recovered()
            .iter()
            .filter(|batch| batch.sequence() > last)
        {
            set.replay(batch).unwrap();
        }
        let found = check(&set);
        assert!(
            found
                .iter()
                .zip(&acknowledged)
                .all(|(found, known)| found >= known),
            "{found:?} {acknowledged:?}"
        );
        acknowledged = found;
    }
}

/// Flushes a job, and installs its entries over the base.
fn flush_into(mut job: FlushJob<History>) {
    let mut flushed = History::default();
    job.flush(&mut flushed).unwrap();
    let with = |base: &History| {
        flushed.points.extend(base.points.clone());
        flushed.ranges.extend(base.ranges.clone());
        Ok(flushed)
    };
    job.install(with).unwrap();
}

/// A journal of files: the next set finds acknowledged writes again, and may find unfinished ones.
#[test]
fn a_stopped_set_is_opened_again() {
    let _watchdog = Watchdog::new("set_stops::a_stopped_set_is_opened_again", 0);
    let disk = Arc::new(SimDisk::new(1, Plan::default()));
    let order = Fragile::default();
    let open = |last| {
        let mode = RecoveryMode::TolerateCorruptedTailRecords;
        let (journal, recovery) =
            FileJournal::open_in(disk.clone(), last, ChecksumKind::Xxh3, mode).unwrap();
        let tables = under(MemTableOptions::builder(), Scripted::new(order.clone()));
        let options = SetOptions::builder()
            .table(tables)
            .first_table(journal.next_table());
        let options = options
            .last_sequence(last)
            .journal(Arc::new(journal))
            .build()
            .unwrap();
        let set = MemTableSet::open(options, ()).unwrap();
        (
            recovery
                .replay(|_, batch| set.replay(&batch).map(drop))
                .unwrap()
                .batches,
            set,
        )
    };
    let (_, set) = open(0);
    for key in [b"a", b"c"] {
        set.write_with(&put(key, b"1"), Durability::Synced).unwrap();
    }
    order.0.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| set.write(&put(b"b", b"2")))).is_err());
    order.0.store(false, Ordering::Relaxed);
    assert!(set.view().get(b"b").unwrap().found().is_none());
    drop(set);
    let (batches, set) = open(0);
    assert_eq!(batches, 3, "it was in the journal");
    assert_eq!(
        set.write_with(&put(b"d", b"3"), Durability::Synced)
            .unwrap(),
        4
    );
    // A flush of a stopped set has all that is visible.
    order.0.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| set.write(&put(b"e", b"4")))).is_err());
    order.0.store(false, Ordering::Relaxed);
    set.switch().unwrap();
    let (mut job, mut flushed) = (set.begin_flush().unwrap().unwrap(), History::default());
    job.flush(&mut flushed).unwrap();
    assert_eq!((job.last_sequence(), flushed.points.len()), (4, 4));
    job.install(|()| Ok(())).unwrap();
    drop(set);
    let (batches, set) = open(4);
    assert_eq!((batches, set.put(b"f", b"5").unwrap()), (1, 6));
}

/// A partial write stops the set. Writes that were acknowledged as written are in the journal, and
/// queued ones are read and flushed.
#[test]
fn a_failed_write_stops_the_set() {
    let _watchdog = Watchdog::new("set_stops::a_failed_write_stops_the_set", 0);
    let disk = Arc::new(SimDisk::new(1, Plan::default()));
    let open = |disk: Arc<SimDisk>| {
        FileJournal::open_in(
            disk,
            0,
            ChecksumKind::Xxh3,
            RecoveryMode::TolerateCorruptedTailRecords,
        )
        .unwrap()
    };
    let (journal, _) = open(disk.clone());
    let options = SetOptions::builder()
        .first_table(journal.next_table())
        .journal(Arc::new(journal));
    let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
    set.write(&put(b"a", b"1")).unwrap();
    set.write_with(&put(b"queued", b"1"), Durability::Queued)
        .unwrap();
    disk.set_plan(Plan {
        capacity: Some(200),
        ..Plan::default()
    });
    let is_failed = |error: &Error, call: &str| {
        matches!(error, Error::ReadOnly { cause }
            if matches!(&**cause, Error::Io { operation, .. } if *operation == call))
    };
    assert!(is_failed(
        &set.write(&put(b"b", &[2; 200])).unwrap_err(),
        "append to"
    ));
    // Nothing is tried again on a file after a write that may be partial.
    disk.set_plan(Plan::default());
    assert!(is_failed(&set.read_only().unwrap(), "append to"));
    for durability in [
        Durability::None,
        Durability::Queued,
        Durability::Buffered,
        Durability::Synced,
    ] {
        assert!(is_failed(
            &set.write_with(&put(b"c", b"3"), durability).unwrap_err(),
            "append to"
        ));
    }
    assert!(
        set.view()
            .get(b"a")
            .unwrap()
            .into_value()
            .is_some_and(|value| value.sequence() == 1)
    );
    set.switch().unwrap();
    let mut flushed = History::default();
    set.begin_flush()
        .unwrap()
        .unwrap()
        .flush(&mut flushed)
        .unwrap();
    assert_eq!(flushed.points.len(), 2, "what was queued, too");
    drop(set);
    let mut found = vec![];
    let keep = |number, _| {
        found.push(number);
        Ok(())
    };
    open(disk).1.replay(keep).unwrap();
    assert!(found.starts_with(&[1]) && found.is_sorted(), "{found:?}");
}

/// A sink whose disk is full after this many entries.
struct Full(usize);

impl FlushSink for Full {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        self.0 = self
            .0
            .checked_sub(1)
            .ok_or_else(|| std::io::Error::from(ErrorKind::StorageFull))?;
        Ok(())
    }

    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

fn is_storage_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull)
}

/// The set of a journal on this disk, with its batches replayed.
fn open_on(disk: Arc<SimDisk>, last: u64, base: History) -> MemTableSet<History> {
    let mode = RecoveryMode::TolerateCorruptedTailRecords;
    let (journal, recovery) = FileJournal::open_in(disk, last, ChecksumKind::Xxh3, mode).unwrap();
    let options = SetOptions::builder()
        .first_table(journal.next_table())
        .last_sequence(last);
    let set = MemTableSet::open(options.journal(Arc::new(journal)).build().unwrap(), base).unwrap();
    recovery
        .replay(|_, batch| set.replay(&batch).map(drop))
        .unwrap();
    set
}

/// A disk without space stops the set, and refuses flushes. Acknowledged writes are read, recovered
/// and flushed, and with space another set continues.
#[test]
fn a_full_disk_is_an_error_and_no_loss() {
    let _watchdog = Watchdog::new("set_stops::a_full_disk_is_an_error_and_no_loss", 0);
    let mut refused = 0;
    for capacity in (200..3000).step_by(71) {
        let disk = Arc::new(SimDisk::new(1, Plan::default()));
        let set = open_on(disk.clone(), 0, History::default());
        disk.set_plan(Plan {
            capacity: Some(capacity),
            ..Plan::default()
        });
        let is_full = |error: &Error| match error {
            Error::Io { .. } => is_storage_full(error),
            Error::ReadOnly { cause } => is_storage_full(cause),
            error => panic!("{error}"),
        };
        let durabilities = [Durability::Synced, Durability::Buffered, Durability::Queued];
        let (mut acknowledged, mut kept) = (vec![], 0);
        for number in 0..60u8 {
            let durability = durabilities[usize::from(number % 3)];
            match set.write_with(&put(&[number], &[number; 30]), durability) {
                Ok(_) => {
                    acknowledged.push(number);
                    kept = if durability == Durability::Queued {
                        kept
                    } else {
                        acknowledged.len()
                    };
                }
                Err(error) => refused += usize::from(is_full(&error)),
            }
            if number % 20 == 9 {
                assert!(set.switch().as_ref().err().is_none_or(is_full));
            }
        }
        if let Ok(Some(mut job)) = set.begin_flush() {
            assert!(matches!(
                job.flush(&mut Full(5)),
                Ok(_) | Err(Error::Sink(_))
            ));
        }
        // A refused batch may be in a journal.
        let check = |set: &MemTableSet<History>, acknowledged: &[u8]| {
            for number in 0..60u8 {
                let found = read_through(&set.view(), &[number]).value;
                assert!(
                    found.is_some() || !acknowledged.contains(&number),
                    "{capacity} bytes, {number}"
                );
                assert!(found.is_none_or(|found| found == [number; 30]));
            }
        };
        check(&set, &acknowledged);
        disk.set_plan(Plan::default());
        // The journal in the state for a recovery: no flush was installed.
        let copy = Arc::new(SimDisk::with_files(disk.files(), 1, Plan::default()));
        check(&open_on(copy, 0, History::default()), &acknowledged[..kept]);
        set.switch().unwrap();
        let (last, job) = (set.snapshot().sequence(), set.begin_flush().unwrap());
        job.into_iter().for_each(flush_into);
        let base = History::clone(set.view().base());
        assert!(set.view().sequence() == last && acknowledged.len() as u64 == last);
        drop(set);
        let set = open_on(disk, last, base);
        set.write_with(&put(b"after", b""), Durability::Synced)
            .unwrap();
        check(&set, &acknowledged);
    }
    assert!(refused > 500, "{refused}");
}

/// Tables of a set in memory of earlier ones: their reads, the memory that is kept and the time of
/// its release, reasons not to use it again, and damage in it.
mod set_recycling {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::scope;

    use paranoid_memtable::flush::FlushItem;
    use paranoid_memtable::{Error, Lookup, MemTableOptions, MemTableOptionsBuilder, WriteBatch};
    use paranoid_set::{FlushJob, MemTableSet, SetOptions, View, WriteBufferManager};

    use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

    /// Bytes of the first large chunk of a table.
    const CHUNK: u64 = 256 << 10;

    /// The flushed entries of an engine: the newest value of each key.
    type Files = BTreeMap<Vec<u8>, Vec<u8>>;

    fn tables() -> MemTableOptionsBuilder {
        MemTableOptions::builder().write_buffer_size(CHUNK)
    }

    fn open(table: MemTableOptionsBuilder, arenas: u64) -> MemTableSet<Files> {
        let options = SetOptions::builder()
            .table(table.build().unwrap())
            .recycled_arenas(arenas)
            .max_write_buffer_number(u64::MAX);
        MemTableSet::open(options.build().unwrap(), Files::new()).unwrap()
    }

    fn key(n: u64) -> [u8; 8] {
        scramble(n).to_be_bytes()
    }

    /// A value that identifies its key and version.
    fn value(key: u64, version: u64) -> Vec<u8> {
        let seed = scramble(key << 32 | version);
        seed.to_be_bytes().repeat(2 + seed as usize % 60)
    }

    fn put(set: &MemTableSet<Files>, n: u64, version: u64) {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch.put(key(n), value(n, version)).unwrap();
        set.write(&batch).unwrap();
    }

    /// The base, without the tables that a view of it would hold.
    fn files(set: &MemTableSet<Files>) -> Files {
        set.view().base().as_ref().clone()
    }

    fn finish(mut job: FlushJob<Files>, mut files: Files) -> Result<(), Error> {
        let mut flushed: Files = BTreeMap::new();
        let mut items = job.items()?;
        while let Some(item) = items.next()? {
            let FlushItem::Entry(entry) = item else {
                continue;
            };
            flushed
                .entry(entry.user_key.to_vec())
                .or_insert_with(|| entry.value.to_vec());
        }
        drop(items);
        files.append(&mut flushed);
        job.install(|_| Ok(files))
    }

    /// Flushes the sealed tables, and the active one too.
    fn flush(set: &MemTableSet<Files>) {
        set.switch().unwrap();
        let Some(job) = set.begin_flush().unwrap() else {
            return;
        };
        let files = files(set);
        finish(job, files).unwrap();
    }

    fn read(view: &View<Files>, n: u64) -> Result<Option<Vec<u8>>, Error> {
        Ok(match view.get(key(n))? {
            Lookup::Value(value) => Some(value.to_vec()),
            Lookup::NotFound => view.base().get(key(n).as_slice()).cloned(),
            other => panic!("only values are put: {other:?}"),
        })
    }

    /// Puts until the active table has used about this many bytes.
    fn fill(set: &MemTableSet<Files>, bytes: u64, version: u64) {
        let from = set.stats().visible;
        for n in from.. {
            put(set, n % 500, version);
            if set.view().readers().next().unwrap().allocated_bytes() >= bytes {
                return;
            }
        }
    }

    /// Entries of earlier tables never come back, although all tables have one seed, with which the
    /// rest of an earlier table would verify in the next one. Filters and directories find their
    /// memory zeroed too.
    #[test]
    fn tables_in_recycled_memory_agree_with_a_model() {
        let seed = seed_or(1);
        let _watchdog = Watchdog::new(
            "set_stops::set_recycling::tables_in_recycled_memory_agree_with_a_model",
            seed,
        );
        let mut rng = Rng::new(seed);
        let set = open(tables().seed(7).whole_key_filter(0.1), 1 + rng.below(2));
        let (mut versions, mut recycled) = (BTreeMap::new(), 0);
        for rotation in 0..amount(60, 12).clamp(12, 60) {
            for _ in 0..rng.below(2 * CHUNK / 250) {
                let (n, version) = (rng.below(2000), rng.next_u64() >> 32);
                put(&set, n, version);
                versions.insert(n, version);
            }
            let view = set.view();
            for (n, version) in &versions {
                assert_eq!(read(&view, *n).unwrap(), Some(value(*n, *version)), "{n}");
            }
            for table in view.readers() {
                let report = table.scrub(|_| {});
                assert!(
                    report.findings.is_empty(),
                    "rotation {rotation}: {:?}",
                    report.findings
                );
            }
            drop(view);
            let before = set.stats().recycled_bytes;
            flush(&set);
            recycled += u64::from(before < set.stats().recycled_bytes);
        }
        assert!(
            recycled > 5,
            "{recycled}, {}",
            replay_line("set_stops::set_recycling::tables_in", seed)
        );
    }

    /// The number of kept arenas is limited, none of them outlives its set, and none is kept
    /// without a use.
    #[test]
    fn what_is_kept_is_bounded_and_let_go_with_the_set() {
        let _watchdog = Watchdog::new(
            "set_stops::set_recycling::what_is_kept_is_bounded_and_let_go_with_the_set",
            0,
        );
        let manager = WriteBufferManager::new(64 << 20).unwrap();
        for arenas in [0, 1, 3] {
            let options = SetOptions::builder()
                .table(tables().build().unwrap())
                .write_buffer_manager(&manager);
            let options = options.max_write_buffer_number(u64::MAX);
            let set = MemTableSet::open(
                options.recycled_arenas(arenas).build().unwrap(),
                Files::new(),
            )
            .unwrap();
            for version in 0..6 {
                fill(&set, CHUNK / 2, version);
                set.switch().unwrap();
            }
            fill(&set, CHUNK / 2, 6);
            flush(&set);
            for version in 7..9 {
                assert_eq!(set.stats().recycled_bytes, arenas * CHUNK);
                assert_eq!(
                    (manager.stats().recycled_bytes, manager.stats().pinned_bytes),
                    (arenas * CHUNK, 0)
                );
                fill(&set, CHUNK / 2, version);
                assert_eq!(
                    set.stats().recycled_bytes,
                    arenas.saturating_sub(1) * CHUNK,
                    "the table took one"
                );
                flush(&set);
            }
            fill(&set, CHUNK / 2, 9);
            let view = set.view();
            drop(set);
            assert!(manager.stats().pinned_bytes > 0);
            assert_eq!(
                (manager.stats().sets, manager.stats().recycled_bytes),
                (0, 0)
            );
            drop(view);
            assert_eq!(manager.stats(), WriteBufferManager::new(1).unwrap().stats());
        }
    }

    /// The memory of a pinned value is not used again while it is pinned.
    #[test]
    fn pinned_memory_is_not_recycled() {
        let _watchdog = Watchdog::new("set_stops::set_recycling::pinned_memory_is_not_recycled", 0);
        let set = open(tables(), 4);
        put(&set, 1000, 0);
        fill(&set, CHUNK / 2, 0);
        let view = set.view();
        let Lookup::Value(found) = view.get(key(1000)).unwrap() else {
            panic!("it was put")
        };
        let pinned = found.to_pinned();
        drop(view);
        for version in 1..6 {
            flush(&set);
            assert_eq!(
                set.stats().recycled_bytes,
                if version == 1 { 0 } else { CHUNK }
            );
            fill(&set, CHUNK / 2, version);
            assert_eq!(*pinned, *value(1000, 0));
        }
        assert_eq!(set.stats().recycled_bytes, 0);
        drop(pinned);
        assert_eq!(
            set.stats().recycled_bytes,
            CHUNK,
            "kept, although its last owner was a reader"
        );
        flush(&set);
        assert_eq!(set.stats().recycled_bytes, 2 * CHUNK);
    }

    /// Writers, readers that keep values of flushed tables, and a flush thread.
    #[test]
    fn threads_find_what_was_written() {
        let seed = seed_or(2);
        let _watchdog = Watchdog::new(
            "set_stops::set_recycling::threads_find_what_was_written",
            seed,
        );
        let options = SetOptions::builder()
            .table(tables().seed(9).build().unwrap())
            .max_write_buffer_number(3);
        let set =
            MemTableSet::open(options.recycled_arenas(2).build().unwrap(), Files::new()).unwrap();
        let view_of = set.clone();
        let thread = set
            .start_flush_thread(move |job| {
                let files = files(&view_of);
                finish(job, files)
            })
            .unwrap();
        let is_over = AtomicBool::new(false);
        let rounds = amount(12_000, 1_500).max(50);
        scope(|scope| {
            let writers = [0, 1].map(|writer| {
                let set = &set;
                scope.spawn(move || {
                    (1..=rounds).for_each(|round| put(set, writer * 50 + round % 50, round))
                })
            });
            let (set, is_over) = (&set, &is_over);
            let reader = scope.spawn(move || {
                let (mut rng, mut kept) = (Rng::new(seed), vec![]);
                while !is_over.load(Ordering::Relaxed) {
                    let (n, view) = (rng.below(100), set.view());
                    if let Lookup::Value(value) = view.get(key(n)).unwrap() {
                        kept.push((n, value.to_pinned()));
                    }
                    if kept.len() > 20 {
                        let (n, held) = kept.swap_remove(rng.index(kept.len()));
                        let is_a_value = (1..=rounds).any(|round| *value(n, round) == *held);
                        assert!(
                            is_a_value,
                            "{n}, {}",
                            replay_line("set_stops::set_recycling::threads", seed)
                        );
                    }
                }
            });
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        thread.close().unwrap();
        let view = set.view();
        for n in 0..100 {
            let last = (1..=rounds)
                .rev()
                .find(|round| round % 50 == n % 50)
                .unwrap();
            assert_eq!(read(&view, n).unwrap(), Some(value(n, last)));
        }
    }

    /// Arenas are not recycled if a budget could not be kept, or if tables have none.
    #[test]
    fn what_cannot_be_recycled_is_refused() {
        let small = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .build()
            .unwrap();
        let free = WriteBufferManager::new(1 << 20).unwrap();
        let refused = SetOptions::builder()
            .table(small.clone())
            .recycled_arenas(1)
            .build();
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        let taken = [
            SetOptions::builder().table(small).recycled_arenas(0),
            SetOptions::builder().write_buffer_manager(&free),
            SetOptions::builder()
                .write_buffer_manager(&free)
                .recycled_arenas(9),
        ];
        assert!(taken.into_iter().all(|options| options.build().is_ok()));
    }

    /// Two neighbouring bits of a place of the newest table flip. Returns the region of the place.
    #[cfg(feature = "fault-injection")]
    fn flip_two(view: &View<Files>, rng: &mut Rng) -> paranoid_memtable::fault::Region {
        use std::collections::BTreeSet;

        use paranoid_memtable::fault::{FaultInjector, Region};
        // SAFETY: one thread, and nothing borrowed from the table is held.
        #[expect(unsafe_code, reason = "breaks memory on purpose")]
        let injector = unsafe { FaultInjector::open(view.readers().next().unwrap()) };
        let mut injector = injector.unwrap();
        let regions: BTreeSet<Region> =
            injector.pieces().iter().map(|piece| piece.region).collect();
        let region = *rng.pick(&Vec::from_iter(regions));
        let pieces = injector
            .pieces()
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.region == region);
        let pieces: Vec<usize> = pieces.map(|(at, _)| at).collect();
        let piece = *rng.pick(&pieces);
        let bits = 8 * injector.pieces()[piece].len();
        let bit = rng.index(bits);
        injector.flip(piece, bit);
        injector.flip(piece, (bit + 1) % bits);
        region
    }

    /// Two bits flip in recycled memory, before or after an entry is put there, and hides nothing:
    /// reads are right or refused.
    #[cfg(feature = "fault-injection")]
    #[test]
    fn damage_in_recycled_memory_is_noticed() {
        let seed = seed_or(3);
        let _watchdog = Watchdog::new(
            "set_stops::set_recycling::damage_in_recycled_memory_is_noticed",
            seed,
        );
        let mut rng = Rng::new(seed);
        let (mut met, mut free) = (0, 0);
        for _ in 0..amount(400, 40).max(10) {
            let set = open(tables().seed(7).whole_key_filter(0.2), 1);
            fill(&set, CHUNK / 2, 0);
            flush(&set);
            fill(&set, CHUNK / 2, 1);
            assert_eq!(
                (set.stats().recycled_bytes, set.switch().unwrap()),
                (CHUNK, 1)
            );
            assert_eq!(set.stats().recycled_bytes, 0, "the active table has it");
            (0..30).for_each(|n| put(&set, n, 2));
            let view = set.view();
            let region = flip_two(&view, &mut rng);
            drop(view);
            let mut last = 2;
            for n in 0..30 {
                let mut batch = WriteBatch::with_protection(8).unwrap();
                batch.put(key(n), value(n, 3)).unwrap();
                match set.write(&batch) {
                    Ok(_) => last = 3,
                    Err(Error::ReadOnly { .. } | Error::Corruption(_)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let view = set.view();
            let found: Vec<_> = (0..30).map(|n| read(&view, n)).collect();
            for (n, found) in found.iter().enumerate() {
                match found {
                    Ok(found) => {
                        let expected = [2, last].map(|version| Some(value(n as u64, version)));
                        assert!(
                            expected.contains(found),
                            "{n} after {region:?}, {}",
                            replay_line("set_stops::set_recycling::damage", seed)
                        );
                    }
                    Err(error) => {
                        assert!(error.corruption().is_some(), "{error}");
                        met += 1;
                    }
                }
            }
            free += u64::from(region == paranoid_memtable::fault::Region::Free);
        }
        assert!(met > 0 && free > 0, "{met} refused, {free} in free memory");
    }
}
