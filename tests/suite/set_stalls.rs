//! Budgets: a write waits only during a flush, and never longer than its limit.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::scope;
use std::time::{Duration, Instant};

use paranoid_memtable::StallCause;
use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, Lookup, MemTableOptions, WriteBatch};
use paranoid_set::{MemTableSet, MergeOperator, SetOptions, WriteOptions};

use crate::support::rng::Watchdog;

const TIMEOUT: Duration = Duration::from_millis(20);

/// A set of at most two tables, and a batch of which a few fill a table.
fn small(timeout: Duration) -> (MemTableSet<()>, WriteBatch) {
    let tables = MemTableOptions::builder()
        .write_buffer_size(256 << 10)
        .build()
        .unwrap();
    let options = SetOptions::builder()
        .table(tables)
        .max_write_buffer_number(2)
        .stall_timeout(timeout);
    let mut batch = WriteBatch::new();
    batch.put(b"k", vec![7; 50 << 10]).unwrap();
    (
        MemTableSet::open(options.build().unwrap(), ()).unwrap(),
        batch,
    )
}

/// Writes until the budget is used up.
fn fill(set: &MemTableSet<()>, batch: &WriteBatch) -> (u64, Duration) {
    for _ in 0..1000 {
        match set.write(batch) {
            Ok(_) => {}
            Err(Error::WriteStall { tables, waited, .. }) => return (tables, waited),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no stall after 50 MB");
}

/// A sink that reports when it begins, and continues on request.
struct Gate(Sender<()>, Receiver<()>);

impl FlushSink for Gate {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        self.0.send(())?;
        self.1.recv()?;
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

#[test]
fn without_a_flush_the_answer_comes_at_once() {
    let _watchdog = Watchdog::new("set_stalls::without_a_flush_the_answer_comes_at_once", 0);
    let (set, batch) = small(Duration::from_secs(3600));
    for _ in 0..3 {
        assert_eq!(fill(&set, &batch), (2, Duration::ZERO));
        assert!(matches!(
            set.switch(),
            Err(Error::WriteStall { tables: 2, .. })
        ));
        let last = set.snapshot().sequence();
        let mut job = set.begin_flush().unwrap().unwrap();
        job.flush(&mut Everything).unwrap();
        job.install(|_| Ok(())).unwrap();
        assert_eq!(
            set.write(&batch).unwrap(),
            last + 1,
            "a refused batch takes no number"
        );
    }
    assert!(set.read_only().is_none());
}

struct Everything;

impl FlushSink for Everything {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Writers wait for a running flush. Its install lets them in; without an install they get an
/// error.
#[test]
fn writers_wait_for_the_flush_that_is_under_way() {
    let _watchdog = Watchdog::new(
        "set_stalls::writers_wait_for_the_flush_that_is_under_way",
        0,
    );
    for installs in [true, false] {
        let (set, batch) = small(Duration::from_secs(3600));
        fill(&set, &batch);
        let (begun, wait_for_begin) = channel();
        let (go_on, gate) = channel();
        scope(|threads| {
            let flusher = threads.spawn(|| {
                let mut job = set.begin_flush().unwrap().unwrap();
                let flushed = job.flush(&mut Gate(begun, gate));
                assert_eq!(flushed.is_ok(), installs);
                if installs {
                    job.install(|_| Ok(())).unwrap()
                }
            });
            wait_for_begin.recv().unwrap();
            let writers = [(); 2].map(|()| threads.spawn(|| set.write(&batch)));
            if installs {
                go_on.send(()).unwrap();
                while wait_for_begin.recv().is_ok() {
                    go_on.send(()).unwrap();
                }
            }
            drop(go_on);
            for writer in writers {
                let written = writer.join().unwrap();
                assert_eq!(written.is_ok(), installs, "{written:?}");
                assert!(installs || matches!(written, Err(Error::WriteStall { tables: 2, .. })));
            }
            flusher.join().unwrap();
        });
    }
}

/// A thread keeps its flush and writes: it waits until the timeout, and no longer.
#[test]
fn a_stall_has_an_end() {
    let _watchdog = Watchdog::new("set_stalls::a_stall_has_an_end", 0);
    let (set, batch) = small(TIMEOUT);
    fill(&set, &batch);
    let job = set.begin_flush().unwrap().unwrap();
    let (tables, waited) = fill(&set, &batch);
    assert!(tables == 2 && waited >= TIMEOUT, "{tables} {waited:?}");
    // Deadlines of single batches are kept, for any timeout of the set. A batch whose deadline is
    // over never waits.
    let patient = small(Duration::MAX).0;
    fill(&patient, &batch);
    let other = patient.begin_flush().unwrap().unwrap();
    for least in [Duration::ZERO, TIMEOUT] {
        let begun = Instant::now();
        let refused = patient
            .write_with(
                &batch,
                WriteOptions {
                    deadline: Some(begun + least),
                    ..WriteOptions::default()
                },
            )
            .unwrap_err();
        let Error::WriteStall { cause, waited, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(cause, StallCause::Tables);
        assert_eq!(
            refused.to_string().contains("waited"),
            !waited.is_zero(),
            "{refused}"
        );
        assert!(
            begun.elapsed() >= least && (waited.is_zero() || !least.is_zero()),
            "{waited:?}"
        );
    }
    drop((job, other));
    assert_eq!(fill(&set, &batch), (2, Duration::ZERO));
    assert!(
        SetOptions::builder()
            .max_write_buffer_number(1)
            .build()
            .is_err()
    );
}

/// Joins operands; refuses some.
struct Join;

impl MergeOperator for Join {
    fn merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
        if operands.contains(&b"refused".as_slice()) {
            return Err(format!("{} bytes of key", key.len()).into());
        }
        Ok([base.unwrap_or(b"-"), &operands.concat()].concat())
    }
}

/// Operands of several tables are applied oldest first, to the base below them. An error belongs
/// only to its key.
#[test]
fn operands_are_applied_across_tables() {
    let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
    let merge = |key: &[u8], operands: &[&[u8]]| {
        let mut batch = WriteBatch::new();
        operands
            .iter()
            .for_each(|operand| batch.merge(key, operand).unwrap());
        set.write(&batch).unwrap();
    };
    let mut first = WriteBatch::new();
    first.put(b"a", b"0").unwrap();
    first.delete(b"b").unwrap();
    set.write(&first).unwrap();
    for key in [b"a", b"b", b"c", b"d"] {
        merge(key, &[b"1", b"2"]);
    }
    set.switch().unwrap();
    for key in [b"a", b"b", b"c"] {
        merge(key, &[b"3"]);
    }
    merge(b"d", &[b"refused"]);
    let view = set.view();
    let get = |key: &[u8]| match view.get(key).unwrap() {
        Lookup::Merge(entry) => entry.into_merged(&Join, Some(b"below")),
        other => panic!("{other:?}"),
    };
    assert_eq!(get(b"a").unwrap(), b"0123");
    assert_eq!(get(b"b").unwrap(), b"-123");
    assert_eq!(get(b"c").unwrap(), b"below123");
    assert!(matches!(get(b"d"), Err(Error::Merge(cause)) if cause.to_string() == "1 bytes of key"));
    let mut cursor = view.cursor().unwrap();
    let mut merged = vec![];
    let mut entry = cursor.first().unwrap();
    while let Some(found) = entry {
        merged.push(found.merged(&Join, None).unwrap_or_default().into_owned());
        entry = cursor.next().unwrap();
    }
    assert_eq!(merged, [b"0123".as_slice(), b"-123", b"-123", b""]);
}

/// A budget of memory that sets share: bytes of idle sets, bytes that views and cursors keep, sets
/// that are dropped, and writers that wait for the flush of another set. Every stall ends once the
/// requested tables are flushed.
mod set_budgets {
    use std::sync::mpsc::channel;
    use std::thread::scope;
    use std::time::Duration;

    use paranoid_memtable::StallCause;
    use paranoid_memtable::{Error, Lookup, MemTableOptions, WriteBatch};
    use paranoid_set::{FlushJob, MemTableSet, SetOptions, View, WriteBufferManager};

    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};

    const BUFFER: u64 = 2 << 20;

    /// A set whose tables are far from full when the manager's buffer is.
    fn open(manager: &WriteBufferManager) -> MemTableSet<u64> {
        let tables = MemTableOptions::builder()
            .write_buffer_size(1 << 20)
            .build()
            .unwrap();
        let options = SetOptions::builder()
            .table(tables)
            .write_buffer_manager(manager)
            .max_write_buffer_number(u64::MAX);
        let options = options
            .stall_timeout(Duration::from_secs(3600))
            .build()
            .unwrap();
        MemTableSet::open(options, 0).unwrap()
    }

    fn batch(kib: usize) -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.put(b"k", vec![7; kib << 10]).unwrap();
        batch
    }

    fn finish(mut job: FlushJob<u64>) {
        let mut items = job.items().unwrap();
        while items.next().unwrap().is_some() {}
        drop(items);
        let base = job.last_sequence();
        job.install(|_| Ok(base)).unwrap();
    }

    /// Flushes all sealed tables. Returns their number.
    fn flush(set: &MemTableSet<u64>) -> usize {
        let Some(job) = set.begin_flush().unwrap() else {
            return 0;
        };
        let tables = job.tables();
        finish(job);
        tables
    }

    /// Writes until the manager refuses. Returns the cause.
    fn fill(set: &MemTableSet<u64>, batch: &WriteBatch) -> StallCause {
        for _ in 0..1000 {
            match set.write(batch) {
                Ok(_) => {}
                Err(Error::WriteStall { cause, waited, .. }) => {
                    assert_eq!(waited, Duration::ZERO, "nobody flushes, so nobody waits");
                    return cause;
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("no stall");
    }

    /// The tables of an idle set stall the others, and a flush of the requested table is enough.
    #[test]
    fn an_idle_set_is_asked_for_its_table() {
        let _watchdog = Watchdog::new(
            "set_stalls::set_budgets::an_idle_set_is_asked_for_its_table",
            0,
        );
        let manager = WriteBufferManager::new(BUFFER).unwrap();
        let (idle, busy) = (open(&manager), open(&manager));
        for _ in 0..9 {
            idle.write(&batch(100)).unwrap();
        }
        let last = idle.snapshot().sequence();
        assert_eq!(fill(&busy, &batch(50)), StallCause::Unflushed);
        let stats = manager.stats();
        assert!(
            stats.unflushed_bytes >= BUFFER && stats.unflushed_bytes < 2 * BUFFER,
            "{stats:?}"
        );
        assert_eq!((stats.sets, stats.pinned_bytes, stats.waiting), (2, 0, 0));
        let refused = busy.write(&batch(50)).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::WriteStall {
                    cause: StallCause::Unflushed,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(flush(&busy) + flush(&idle) > 0);
        assert_eq!(idle.write(&batch(1)).unwrap(), last + 1);
        busy.write(&batch(50)).unwrap();
    }

    /// An empty active table is not requested, and does not count: one batch as large as the whole
    /// buffer is written.
    #[test]
    fn empty_tables_stall_no_writer() {
        let _watchdog = Watchdog::new("set_stalls::set_budgets::empty_tables_stall_no_writer", 0);
        let manager = WriteBufferManager::new(1).unwrap();
        let sets = [(); 3].map(|()| open(&manager));
        assert_eq!(
            (manager.stats().tables, manager.stats().unflushed_bytes),
            (3, 0)
        );
        for set in &sets {
            set.write(&batch(3000)).unwrap();
            assert_eq!(fill(set, &batch(3000)), StallCause::Unflushed);
            assert_eq!(flush(set), 1, "the only one with bytes is asked");
        }
        assert!(matches!(
            WriteBufferManager::new(0),
            Err(Error::InvalidArgument(_))
        ));
    }

    /// An object that keeps flushed memory.
    enum Holder {
        View(View<u64>),
        Cursor(paranoid_set::MergingCursor<'static>),
        Value(paranoid_memtable::read::PinnedValue),
    }

    fn hold(set: &MemTableSet<u64>, kind: u64) -> Holder {
        let view = set.view();
        match kind {
            0 => Holder::View(view),
            1 => Holder::Cursor(view.cursor().unwrap()),
            _ => {
                let Lookup::Value(value) = view.get(b"k").unwrap() else {
                    panic!("it was put")
                };
                Holder::Value(value.to_pinned())
            }
        }
    }

    fn len(holder: Holder) -> usize {
        match holder {
            Holder::View(view) => view.readers().map(|table| table.len()).sum(),
            Holder::Cursor(mut cursor) => usize::from(cursor.first().unwrap().is_some()),
            Holder::Value(value) => usize::from(!value.is_empty()),
        }
    }

    /// Flushed memory that an object holds is reported separately, and stalls no writer.
    #[test]
    fn held_memory_stalls_no_writer() {
        let _watchdog = Watchdog::new("set_stalls::set_budgets::held_memory_stalls_no_writer", 0);
        for kind in 0..3 {
            let manager = WriteBufferManager::new(BUFFER).unwrap();
            let set = open(&manager);
            let mut held = vec![];
            for _ in 0..100 {
                set.write(&batch(300)).unwrap();
                set.switch().unwrap();
                held.push(hold(&set, kind));
                flush(&set);
            }
            let stats = manager.stats();
            assert_eq!(stats.pinned_bytes, set.stats().pinned_bytes);
            assert!(
                stats.unflushed_bytes < BUFFER && stats.pinned_bytes > 10 * BUFFER,
                "{stats:?}"
            );
            assert!(
                set.stats().pinned_for >= stats.pinned_for,
                "the first is held on"
            );
            assert!(held.drain(..).map(len).sum::<usize>() > 0);
            assert_eq!(
                (manager.stats().pinned_bytes, manager.stats().pinned_for),
                (0, None)
            );
        }
    }

    /// A dropped set takes its bytes with it, or leaves them to their holders: they stall no
    /// writer.
    #[test]
    fn a_dropped_set_stalls_no_writer() {
        let _watchdog = Watchdog::new("set_stalls::set_budgets::a_dropped_set_stalls_no_writer", 0);
        let manager = WriteBufferManager::new(BUFFER).unwrap();
        let (dropped, busy) = (open(&manager), open(&manager));
        assert_eq!(fill(&dropped, &batch(100)), StallCause::Unflushed);
        assert!(busy.write(&batch(100)).is_err());
        let view = dropped.view();
        let job = dropped.begin_flush().unwrap();
        drop((dropped, job));
        let stats = manager.stats();
        assert!(
            (stats.sets, stats.unflushed_bytes) == (1, 0) && stats.pinned_bytes > 0,
            "{stats:?}"
        );
        busy.write(&batch(100)).unwrap();
        drop(view);
        assert_eq!(
            (manager.stats().pinned_bytes, manager.stats().tables),
            (0, 1)
        );
    }

    /// Writers of one set wait for the flush of another, and its end lets them in. Without an
    /// install they are refused.
    #[test]
    fn writers_wait_for_the_flush_of_another_set() {
        let _watchdog = Watchdog::new(
            "set_stalls::set_budgets::writers_wait_for_the_flush_of_another_set",
            0,
        );
        for installs in [true, false] {
            let manager = WriteBufferManager::new(BUFFER).unwrap();
            let (idle, busy) = (open(&manager), open(&manager));
            fill(&idle, &batch(100));
            let job = idle.begin_flush().unwrap().unwrap();
            let (begin, begun) = channel();
            scope(|threads| {
                let writers = [(); 2].map(|()| {
                    let begin = begin.clone();
                    let busy = &busy;
                    threads.spawn(move || {
                        begin.send(()).unwrap();
                        busy.write(&batch(100))
                    })
                });
                writers.iter().for_each(|_| begun.recv().unwrap());
                while manager.stats().waiting < 2 {
                    std::thread::yield_now();
                }
                if installs {
                    finish(job)
                } else {
                    drop(job)
                }
                for writer in writers {
                    let written = writer.join().unwrap();
                    assert_eq!(written.is_ok(), installs, "{written:?}");
                    let is_stall = matches!(written, Err(Error::WriteStall { cause: StallCause::Unflushed, waited, .. }) if !waited.is_zero());
                    assert!(installs || is_stall, "{written:?}");
                }
            });
        }
    }

    /// One thread, several sets, one budget, and holders that come and go: after each refusal a
    /// flush of every set lets the batch in, and the counted bytes are the real ones.
    #[test]
    fn a_flush_of_all_sets_ends_every_stall() {
        let test = "set_stalls::set_budgets::a_flush_of_all_sets_ends_every_stall";
        let seed = seed_or(0xb0d6e7);
        let _watchdog = Watchdog::new(test, seed);
        for round in 0..amount(30, 3) {
            let seed = seed.wrapping_add(round);
            println!("{}", replay_line(test, seed));
            let mut rng = Rng::new(seed);
            let manager = WriteBufferManager::new(BUFFER >> rng.below(4)).unwrap();
            let sets: Vec<_> = (0..1 + rng.below(4)).map(|_| open(&manager)).collect();
            let (mut held, mut last) = (vec![], vec![0; sets.len()]);
            for _ in 0..300 {
                let place = rng.index(sets.len());
                let set = &sets[place];
                match rng.below(12) {
                    0 => drop(set.switch().unwrap()),
                    1 => drop(flush(set)),
                    2 => held.push(set.view()),
                    3 if !held.is_empty() => drop(held.swap_remove(rng.index(held.len()))),
                    _ => {
                        let batch = batch(rng.index(200));
                        let written = set.write(&batch).or_else(|refused| {
                            assert!(matches!(
                                refused,
                                Error::WriteStall {
                                    cause: StallCause::Unflushed,
                                    ..
                                }
                            ));
                            assert!(
                                sets.iter().map(flush).sum::<usize>() > 0,
                                "nothing was sealed"
                            );
                            set.write(&batch)
                        });
                        last[place] += 1;
                        assert_eq!(written.unwrap(), last[place]);
                    }
                }
            }
            let tables: usize = sets.iter().map(|set| set.view().readers().count()).sum();
            assert!(manager.stats().tables >= tables as u64);
            held.clear();
            for set in &sets {
                set.switch().unwrap();
                flush(set);
            }
            let stats = manager.stats();
            assert_eq!(
                (stats.tables, stats.unflushed_bytes),
                (sets.len() as u64, 0),
                "{stats:?}"
            );
            assert_eq!(stats.pinned_bytes, 0, "{stats:?}");
            drop(sets);
            assert_eq!((manager.stats().tables, manager.stats().sets), (0, 0));
        }
    }

    /// Range deletes take more than their entries do, and a freeze adds a little: the manager
    /// counts this in advance.
    #[test]
    fn tables_with_range_deletes_count_as_a_freeze_leaves_them() {
        let _watchdog = Watchdog::new(
            "set_stalls::set_budgets::tables_with_range_deletes_count_as_a_freeze_leaves_them",
            0,
        );
        // Beside each other, one in the other, and all from one start; at the sizes of blocks and
        // nodes, and between them.
        for len in [1, 7, 8, 9, 31, 32, 33, 127, 129, 500, 513, 900, 1100] {
            counted_as_frozen(len, |number| (2 * number, 2 * number + 1));
            counted_as_frozen(len, |number| (number, 2 * len - number));
            counted_as_frozen(len, |number| (0, number + 1));
        }
    }

    fn counted_as_frozen(len: u64, range: impl Fn(u64) -> (u64, u64)) {
        let manager = WriteBufferManager::new(64 << 20).unwrap();
        let set = open(&manager);
        for number in 0..len {
            let (start, end) = range(number);
            let mut batch = WriteBatch::new();
            batch
                .delete_range(start.to_be_bytes(), end.to_be_bytes())
                .unwrap();
            set.write(&batch).unwrap();
        }
        set.switch().unwrap();
        let view = set.view();
        // The table before the active one, whose bytes reach the manager with a delay.
        let allocated = || {
            view.readers()
                .next_back()
                .expect("two tables")
                .allocated_bytes()
        };
        let active = allocated();
        assert!(
            manager.stats().unflushed_bytes + (64 << 10) > active,
            "{len}: {:?} {active}",
            manager.stats()
        );
        let job = set.begin_flush().unwrap().unwrap();
        let (counted, frozen) = (manager.stats().unflushed_bytes, allocated());
        assert!(
            (len < 100 || frozen > active) && frozen >= active && frozen < active + active / 4,
            "{len}: {active}, then {frozen}"
        );
        assert!(
            counted >= frozen && counted < 2 * frozen,
            "{len}: {counted} counted, {frozen} there"
        );
        finish(job);
        let pinned = manager.stats().pinned_bytes;
        assert!(
            (len < 100 || pinned > active) && pinned >= active && pinned <= frozen,
            "{len}: {pinned} of {frozen}"
        );
    }
}

/// Events for subscribers of the crate `tracing`.
#[cfg(all(feature = "tracing", feature = "fault-injection"))]
mod events {
    use std::sync::{Arc, Mutex};

    use paranoid_memtable::fault::{FaultInjector, Region};
    use paranoid_memtable::flush::Versions;
    use paranoid_memtable::{Error, MemTable, MemTableOptions, TableReader};
    use paranoid_set::{MemTableSet, SetOptions};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// A line for each event.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!(" {field}={value:?}");
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().target().into());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn lines(act: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        // With a single subscriber, the first thread to reach an event decides for all whether it
        // is recorded. With two, each is asked.
        let _second = tracing::Dispatch::new(lines.clone());
        tracing::subscriber::with_default(lines.clone(), act);
        std::mem::take(&mut lines.0.lock().unwrap())
    }

    #[test]
    fn a_table_tells_of_freezes_flushes_and_damage() {
        let table = MemTable::default();
        table.put(1, "key", "value").unwrap();
        let printed = lines(|| {
            table
                .freeze()
                .unwrap()
                .flush_iter(Versions::All)
                .unwrap()
                .next()
                .unwrap();
            let frozen = table.freeze().unwrap();
            let mut items = frozen.flush_iter(Versions::All).unwrap();
            while items.next().unwrap().is_some() {}
        });
        let counts = "entries=1 range_deletes=0 data_bytes=8";
        let flushed = "entries=1 hidden=0 fragments=0 data_bytes=8";
        assert_eq!(
            printed,
            [
                format!("paranoid_memtable message=table frozen {counts}"),
                format!("paranoid_memtable message=table flushed {flushed}"),
            ]
        );
        flip_a_value(&table);
        let printed = lines(|| {
            assert!(table.get("key", 1).is_err());
        });
        assert_eq!(printed.len(), 1, "{printed:?}");
        assert!(
            printed[0].contains("damage found") && printed[0].contains("entry value at offset"),
            "{printed:?}"
        );
        assert_eq!(lines(|| drop(table.scrub(|_| {}).check())).len(), 1);
    }

    #[test]
    fn a_set_tells_of_stalls_and_stops() {
        struct Broken;
        impl paranoid_set::Journal for Broken {
            fn append(&self, _: &[u8]) -> Result<(), Error> {
                Ok(())
            }
            fn sync(&self) -> Result<(), Error> {
                Err(Error::io("sync", "7.journal")(std::io::Error::other(
                    "no disk",
                )))
            }
            fn switch(&self, _: u64) -> Result<(), Error> {
                Ok(())
            }
            fn obsolete_before(&self, _: u64) -> Result<(), Error> {
                Ok(())
            }
        }
        let options = SetOptions::builder().journal(Arc::new(Broken));
        let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
        set.put("key", "value").unwrap();
        let printed = lines(|| {
            let mut batch = paranoid_memtable::WriteBatch::new();
            batch.put("key", "value").unwrap();
            set.write_with(&batch, paranoid_set::Durability::Synced)
                .unwrap_err();
        });
        let cause = "the set is read-only: could not sync 7.journal: no disk";
        assert_eq!(
            printed,
            [format!("paranoid_set message=set stopped cause={cause:?}")]
        );
        let table = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .build()
            .unwrap();
        let options = SetOptions::builder()
            .table(table)
            .max_write_buffer_number(2);
        let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
        let printed = lines(|| {
            let refused = (0..100).find_map(|n: u8| set.put([n], [n; 4096]).err());
            assert!(
                matches!(refused, Some(Error::WriteStall { .. })),
                "{refused:?}"
            );
        });
        assert_eq!(
            printed,
            ["paranoid_set message=write stalled cause=no further table may be begun"]
        );
        let view = set.view();
        flip_a_value(view.readers().next_back().unwrap());
        let printed = lines(|| drop(set.begin_flush().unwrap().unwrap().items().unwrap_err()));
        let [_, found, stopped] = printed.as_slice() else {
            panic!("{printed:?}")
        };
        assert!(
            found.starts_with("paranoid_memtable message=damage found"),
            "{printed:?}"
        );
        assert!(
            stopped.starts_with("paranoid_set message=set stopped cause="),
            "{printed:?}"
        );
    }

    #[expect(unsafe_code, reason = "the fault injector's door")]
    fn flip_a_value(table: &TableReader) {
        // SAFETY: no other thread uses the table until the injector is dropped.
        let mut injector = unsafe { FaultInjector::open(table) }.unwrap();
        let piece = injector
            .pieces()
            .iter()
            .position(|piece| piece.region == Region::Value)
            .unwrap();
        [0, 1].into_iter().for_each(|bit| injector.flip(piece, bit));
    }
}
