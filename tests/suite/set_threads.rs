//! Writers, readers and a flush at once: each snapshot equals a prefix of the commit order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::scope;

use paranoid_memtable::{MemTableOptions, WriteBatch};
use paranoid_set::{Durability, MemTableSet, SetOptions, View};

use crate::support::rng::{Rng, Watchdog, amount_or_few, replay_line, scramble, seed_or};
use crate::support::sets::{History, MemoryJournal, read_through};

const WRITERS: u64 = if cfg!(miri) { 2 } else { 3 };

/// A batch: its writer, its index among the writer's batches, and its first and last number.
type Commit = (u64, u64, u64, u64);

/// The result of a snapshot: its number, and the last batch of each writer.
type Seen = (u64, [u64; WRITERS as usize]);

fn key(writer: u64, half: u64) -> Vec<u8> {
    [
        scramble(writer * 2 + half).to_be_bytes(),
        writer.to_be_bytes(),
    ]
    .concat()
}

/// The n-th batch of a writer: n is in both halves of its key, and in the entries that it deletes.
fn batch_of(writer: u64, n: u64) -> WriteBatch {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    let value = [n.to_be_bytes(), scramble(writer << 40 | n).to_be_bytes()].concat();
    batch.put(key(writer, 0), &value).unwrap();
    let own = [b"own".as_slice(), &writer.to_be_bytes()].concat();
    let numbered = |n: u64| [own.as_slice(), &n.to_be_bytes()].concat();
    if n.is_multiple_of(5) {
        batch.delete_range(numbered(0), numbered(n)).unwrap();
    } else {
        batch.delete(numbered(n - 1)).unwrap();
    }
    batch.put(numbered(n), &value).unwrap();
    batch.put(key(writer, 1), &value).unwrap();
    batch
}

/// The last batch of a writer in this view. All traces of it must agree.
fn last_of(view: &View<History>, writer: u64) -> u64 {
    let values = [0, 1].map(|half| read_through(view, &key(writer, half)).value);
    assert_eq!(
        values[0],
        values[1],
        "half a batch of {writer} at {}",
        view.sequence()
    );
    let Some(value) = &values[0] else { return 0 };
    let n = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(
        value[8..],
        scramble(writer << 40 | n).to_be_bytes(),
        "a torn value"
    );
    let own = |n: u64| [b"own".as_slice(), &writer.to_be_bytes(), &n.to_be_bytes()].concat();
    assert_eq!(read_through(view, &own(n)).value.as_ref(), Some(value));
    assert_eq!(
        read_through(view, &own(n - 1)).value,
        None,
        "deleted by the same batch"
    );
    n
}

fn write(set: &MemTableSet<History>, writer: u64, batches: u64, done: &AtomicU64) -> Vec<Commit> {
    let mut rng = Rng::new(writer);
    let mut commits = vec![];
    for n in 1..=batches {
        let batch = batch_of(writer, n);
        let durability = *rng.pick(&[
            Durability::Buffered,
            Durability::Buffered,
            Durability::Synced,
        ]);
        let last = set.write_with(&batch, durability).unwrap();
        commits.push((writer, n, last + 1 - batch.len() as u64, last));
        if n % 7 == 0 {
            assert!(
                last_of(&set.view(), writer) >= n,
                "a writer sees what it wrote"
            );
        }
    }
    done.fetch_add(1, Ordering::AcqRel);
    commits
}

fn read(set: &MemTableSet<History>, over: &AtomicBool) -> Vec<Seen> {
    let (mut seen, mut before) = (vec![], 0);
    let mut rounds = 0;
    while !over.load(Ordering::Acquire) || rounds < 3 {
        rounds += 1;
        let snapshot = set.snapshot();
        assert!(
            snapshot.sequence() >= before,
            "what is visible never goes back"
        );
        before = snapshot.sequence();
        let view = set.view_at(&snapshot).unwrap();
        let first = std::array::from_fn(|writer| last_of(&view, writer as u64));
        // Reads again over other tables, perhaps flushed ones.
        let again = set.view_at(&snapshot).unwrap();
        assert_eq!(
            first,
            std::array::from_fn(|writer| last_of(&again, writer as u64)),
            "a snapshot changed"
        );
        seen.push((snapshot.sequence(), first));
        let latest = set.view();
        seen.push((
            latest.sequence(),
            std::array::from_fn(|writer| last_of(&latest, writer as u64)),
        ));
    }
    seen
}

fn flush(set: &MemTableSet<History>, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        set.switch().unwrap();
        let Some(mut job) = set.begin_flush().unwrap() else {
            std::thread::yield_now();
            continue;
        };
        let mut base = History::clone(set.view().base());
        job.flush(&mut base).unwrap();
        job.install(|_| Ok(base)).unwrap();
    }
}

/// The commits follow each other without a gap, and each snapshot is the state after the commits up
/// to it.
fn check(mut commits: Vec<Commit>, seen: &[Seen]) {
    commits.sort_by_key(|commit| commit.2);
    let mut prefixes = vec![(0, [0; WRITERS as usize])];
    for (writer, n, first, last) in commits {
        let (end, mut state) = *prefixes.last().unwrap();
        assert_eq!(first, end + 1, "numbers follow each other");
        assert_eq!(
            state[writer as usize] + 1,
            n,
            "a writer's batches are in order"
        );
        state[writer as usize] = n;
        prefixes.push((last, state));
    }
    for (sequence, state) in seen {
        let place = prefixes.binary_search_by_key(sequence, |prefix| prefix.0);
        let place = place.unwrap_or_else(|_| panic!("{sequence} is in the middle of a batch"));
        assert_eq!(prefixes[place].1, *state, "at {sequence}");
    }
}

#[test]
fn each_snapshot_is_a_prefix_of_the_commits() {
    let test = "set_threads::each_snapshot_is_a_prefix_of_the_commits";
    let seed = seed_or(1);
    let _watchdog = Watchdog::new(test, seed);
    println!("{}", replay_line(test, seed));
    let tables = MemTableOptions::builder()
        .write_buffer_size(64 << 10)
        .seed(seed)
        .build()
        .unwrap();
    let journal = MemoryJournal::default();
    let options = SetOptions::builder()
        .table(tables)
        .journal(Arc::new(journal));
    let options = options.max_write_buffer_number(u64::MAX).build().unwrap();
    let set = MemTableSet::open(options, History::default()).unwrap();
    let (batches, over, done) = (
        amount_or_few(10_000, 700, 2),
        AtomicBool::new(false),
        AtomicU64::new(0),
    );
    let commits = Mutex::new(vec![]);
    let seen = scope(|threads| {
        let (set, over, done, commits) = (&set, &over, &done, &commits);
        for writer in 0..WRITERS {
            threads.spawn(move || {
                let own = write(set, writer, batches, done);
                commits.lock().unwrap().extend(own);
                if done.load(Ordering::Acquire) == WRITERS {
                    over.store(true, Ordering::Release);
                }
            });
        }
        threads.spawn(move || flush(set, over));
        let readers = [(); 2].map(|()| threads.spawn(move || read(set, over)));
        readers.map(|reader| reader.join().unwrap()).concat()
    });
    check(commits.into_inner().unwrap(), &seen);
}

/// The flush thread: writers continue while it flushes, and no end of it leaves a writer waiting.
/// Failing sinks, panics, shutdown in the middle, several sets under one budget.
mod set_flush_thread {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::thread::{scope, yield_now};
    use std::time::Duration;

    use paranoid_memtable::StallCause;
    use paranoid_memtable::{Error, MemTableOptions, WriteBatch};
    use paranoid_set::{
        FlushJob, FlushThread, Listener, MemTableSet, SetEvent, SetOptions, SetOptionsBuilder,
        WriteBufferManager,
    };

    use crate::support::rng::{Watchdog, amount_or_few};
    use crate::support::sets::{History, MemoryJournal, read_through};

    type Set = MemTableSet<History>;

    /// Under Miri, tables, budgets and numbers of writes are this many times smaller.
    const FEWER: u64 = if cfg!(miri) { 8 } else { 1 };

    /// Small tables, and writers that wait longer than the test may take.
    fn options() -> SetOptionsBuilder {
        let tables = MemTableOptions::builder()
            .write_buffer_size((64 << 10) / FEWER)
            .build()
            .unwrap();
        SetOptions::builder()
            .table(tables)
            .stall_timeout(Duration::MAX)
    }

    fn open(options: SetOptionsBuilder) -> Set {
        MemTableSet::open(options.build().unwrap(), History::default()).unwrap()
    }

    fn put(key: u64, n: u64) -> WriteBatch {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch
            .put(
                key.to_be_bytes(),
                [&n.to_be_bytes()[..], &[7; 3000]].concat(),
            )
            .unwrap();
        batch
    }

    /// Adds the job's tables to the base.
    fn flush(set: &Set, mut job: FlushJob<History>) -> Result<(), Error> {
        let mut base = History::clone(set.view().base());
        job.flush(&mut base)?;
        job.install(|_| Ok(base))
    }

    fn start(set: &Set) -> FlushThread {
        let of_thread = set.clone();
        set.start_flush_thread(move |job| flush(&of_thread, job))
            .unwrap()
    }

    fn value(set: &Set, key: u64) -> Option<u64> {
        let value = read_through(&set.view(), &key.to_be_bytes()).value;
        value.map(|value| u64::from_be_bytes(value[..8].try_into().unwrap()))
    }

    fn broken_disk() -> Error {
        Error::Sink(Arc::from(Box::from("the disk is gone")))
    }

    /// Writes until a stall. Returns the number of written batches, and the cause.
    fn fill(set: &Set, key: u64) -> (u64, StallCause) {
        for n in 1..10_000 {
            match set.write(&put(key, n)) {
                Ok(_) => {}
                Err(Error::WriteStall { cause, .. }) => return (n - 1, cause),
                Err(other) => panic!("{other}"),
            }
        }
        panic!("no stall");
    }

    /// Several sets under one budget, each with a thread, two writers and few tables: every write
    /// succeeds.
    #[test]
    fn writers_continue_while_threads_flush() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::writers_continue_while_threads_flush",
            0,
        );
        let manager = WriteBufferManager::new((300 << 10) / FEWER).unwrap();
        let sets = [(); 2].map(|()| {
            open(
                options()
                    .max_write_buffer_number(2)
                    .write_buffer_manager(&manager),
            )
        });
        let threads = sets.each_ref().map(start);
        let writes = amount_or_few(2000, 400, 4);
        scope(|threads| {
            for (set, key) in sets.iter().flat_map(|set| [(set, 1), (set, 2)]) {
                threads.spawn(move || {
                    for n in 1..=writes {
                        set.write(&put(key, n)).unwrap();
                    }
                });
            }
        });
        let stats = manager.stats();
        assert!(
            stats.unflushed_bytes < 2 << 20 && stats.waiting == 0,
            "{stats:?}"
        );
        for (set, thread) in sets.iter().zip(threads) {
            thread.close().unwrap();
            assert_eq!([1, 2].map(|key| value(set, key)), [Some(writes); 2]);
            assert!(!set.view().base().points.is_empty());
            assert!(
                matches!(start(set).close(), Ok(())),
                "another thread may follow"
            );
        }
    }

    /// Keeps the errors of removals, and counts flushes.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Error>>, AtomicU64);

    impl Listener for Kept {
        fn event(&self, event: &SetEvent) {
            match event {
                SetEvent::JournalKept { cause, .. } => self.0.lock().unwrap().push(cause.clone()),
                SetEvent::FlushEnded { .. } => drop(self.1.fetch_add(1, Ordering::AcqRel)),
                _ => {}
            }
        }
    }

    /// A journal that cannot remove flushed files reports it, and stops no thread. The next install
    /// tries again.
    #[test]
    fn a_failed_removal_is_reported_and_tried_again() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_failed_removal_is_reported_and_tried_again",
            0,
        );
        let (journal, kept) = (MemoryJournal::default(), Arc::new(Kept::default()));
        let set = open(
            options()
                .journal(Arc::new(journal.clone()))
                .listener(kept.clone()),
        );
        journal.0.lock().unwrap().removal_fails = Some(broken_disk());
        let thread = start(&set);
        for n in 1..=3 {
            set.write(&put(1, n)).unwrap();
            set.switch().unwrap();
            // The thread reports the end of a flush after the call of the journal.
            while kept.1.load(Ordering::Acquire) < n {
                yield_now();
            }
            assert_eq!(kept.0.lock().unwrap().len(), 1, "install {n}");
            assert_eq!(
                journal.0.lock().unwrap().batches.contains_key(&1),
                n == 1,
                "install {n}"
            );
            assert!(set.read_only().is_none() && thread.error().is_none());
        }
        assert!(matches!(&kept.0.lock().unwrap()[0], Error::Sink(_)));
        thread.close().unwrap();
        assert_eq!(value(&set, 1), Some(3));
    }

    fn flush_to_a_full_disk(mut job: FlushJob<History>) -> Result<(), Error> {
        let mut items = job.items()?;
        assert!(items.next()?.is_some());
        Err(broken_disk())
    }

    /// A failed sink is tried again only on request. Until then writers are refused, and nothing is
    /// lost.
    #[test]
    fn a_failing_sink_is_tried_again_when_asked() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_failing_sink_is_tried_again_when_asked",
            0,
        );
        let set = open(options().max_write_buffer_number(2));
        let (of_thread, fails) = (set.clone(), Arc::new(AtomicU64::new(3)));
        let (left, calls) = (Arc::clone(&fails), Arc::new(AtomicU64::new(0)));
        let called = Arc::clone(&calls);
        let thread = set.start_flush_thread(move |job| {
            called.fetch_add(1, Ordering::AcqRel);
            match left.load(Ordering::Acquire) {
                3 => Err(broken_disk()),
                2 => Ok(()),
                1 => flush_to_a_full_disk(job),
                _ => flush(&of_thread, job),
            }
        });
        let thread = thread.unwrap();
        let (mut last, mut expected) = (0, 0);
        for failing in [3, 2, 1] {
            fails.store(failing, Ordering::Release);
            thread.retry();
            let (written, cause) = fill(&set, 1);
            last = if written > 0 { written } else { last };
            assert_eq!(cause, StallCause::Tables);
            while thread.error().is_none() {
                yield_now();
            }
            let error = thread.error().unwrap();
            assert_eq!(
                matches!(error, Error::InvalidArgument(_)),
                failing == 2,
                "{error}"
            );
            assert!(
                set.write(&put(1, 0)).is_err(),
                "refused at once: nobody flushes"
            );
            expected += 1;
            assert_eq!(
                calls.load(Ordering::Acquire),
                expected,
                "not without being asked"
            );
        }
        fails.store(0, Ordering::Release);
        thread.retry();
        while set.view().readers().count() > 1 {
            yield_now();
        }
        assert_eq!(value(&set, 1), Some(last));
        set.write(&put(1, last + 1)).unwrap();
        assert!(thread.error().is_none());
        thread.close().unwrap();
        assert_eq!(value(&set, 1), Some(last + 1));
    }

    /// A switch waits for the flush thread if there may be no further table, as a write does.
    #[test]
    fn a_switch_waits_for_the_flush_thread() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_switch_waits_for_the_flush_thread",
            0,
        );
        let set = open(options().max_write_buffer_number(2));
        let thread = start(&set);
        let rounds = amount_or_few(1000, 100, 4);
        scope(|threads| {
            for key in [1, 2] {
                let set = &set;
                threads.spawn(move || {
                    for n in 1..=rounds {
                        set.write(&put(key, n)).unwrap();
                        set.switch().unwrap();
                    }
                });
            }
        });
        set.flush_and_wait().unwrap();
        assert_eq!((set.stats().tables, set.stats().entries), (1, 0));
        assert_eq!([1, 2].map(|key| value(&set, key)), [Some(rounds); 2]);
        thread.close().unwrap();
    }

    /// The action of a flush function.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Does {
        Fails,
        Leaves,
        Flushes,
        AsksItself,
        Panics,
    }

    /// A call that waits for a flush returns when it is done, or with its error. No call waits if
    /// there is nothing to flush, or for itself.
    #[test]
    fn a_flush_that_is_waited_for_is_done_or_an_error() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_flush_that_is_waited_for_is_done_or_an_error",
            0,
        );
        let set = open(options().max_write_buffer_number(3));
        set.flush_and_wait().unwrap();
        set.write(&put(1, 1)).unwrap();
        let nobody = set.flush_and_wait().unwrap_err();
        assert!(
            matches!(&nobody, Error::InvalidArgument(text) if text.contains("flush thread")),
            "{nobody}"
        );
        let (of_thread, (send, next)) = (set.clone(), channel());
        let thread =
            set.start_flush_thread(move |job| match next.try_recv().unwrap_or(Does::Flushes) {
                Does::Fails => Err(broken_disk()),
                Does::Leaves => Ok(()),
                Does::Flushes => flush(&of_thread, job),
                Does::AsksItself => {
                    let refused = of_thread.flush_and_wait();
                    assert!(
                        matches!(refused, Err(Error::InvalidArgument(_))),
                        "{refused:?}"
                    );
                    while of_thread.write(&put(1, 1)).is_ok() {}
                    flush(&of_thread, job)
                }
                Does::Panics => panic!("the function of a flush thread panics"),
            });
        let thread = thread.unwrap();
        // The earlier table.
        while set.stats().tables > 1 {
            yield_now();
        }
        use Does::{AsksItself, Fails, Flushes, Leaves, Panics};
        for (n, does) in (2..).zip([Fails, Flushes, Leaves, Flushes, AsksItself, Flushes, Panics]) {
            set.write(&put(2, n)).unwrap();
            send.send(does).unwrap();
            let waited = set.flush_and_wait();
            let is_expected = match (does, &waited) {
                (Fails, Err(error)) => matches!(error, Error::Sink(_)),
                (Leaves, Err(error)) => matches!(error, Error::InvalidArgument(_)),
                (Panics, Err(error)) => matches!(error, Error::FlushPanicked),
                (Flushes | AsksItself, Ok(())) => true,
                _ => false,
            };
            assert!(is_expected, "{does:?}: {waited:?}");
            let flushed = set
                .view()
                .base()
                .read(&2u64.to_be_bytes(), u64::MAX, Default::default())
                .value;
            let is_flushed = flushed.is_some_and(|value| value[..8] == n.to_be_bytes());
            assert_eq!(is_flushed, waited.is_ok(), "{does:?}");
        }
        assert!(matches!(thread.close(), Err(Error::FlushPanicked)));
        // Jobs of another thread.
        for installs in [true, false] {
            set.write(&put(3, 1)).unwrap();
            set.switch().unwrap();
            let job = set.begin_flush().unwrap().unwrap();
            scope(|threads| {
                let waits = threads.spawn(|| set.flush_and_wait());
                yield_now();
                match installs {
                    true => flush(&set, job).unwrap(),
                    false => drop(job),
                }
                assert_eq!(waits.join().unwrap().is_ok(), installs);
            });
        }
        assert_eq!(value(&set, 3), Some(1));
    }

    /// An event that ends a thread, or keeps it from flushing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Event {
        Panics,
        Fails,
        IsClosed,
        IsDropped,
    }

    /// Writers wait for a thread that panics, fails or is shut down: each gets a result, nothing is
    /// lost, and the set continues with another flush.
    #[test]
    fn no_thread_waits_for_one_that_is_gone() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::no_thread_waits_for_one_that_is_gone",
            0,
        );
        for event in [
            Event::Panics,
            Event::Fails,
            Event::IsClosed,
            Event::IsDropped,
        ] {
            let manager = WriteBufferManager::new((150 << 10) / FEWER).unwrap();
            let set = open(options().write_buffer_manager(&manager));
            let (begin, begun) = channel();
            let (go_on, gate) = channel::<()>();
            let thread = set.start_flush_thread(move |job| {
                begin.send(()).unwrap();
                let _ = gate.recv();
                assert_ne!(
                    event,
                    Event::Panics,
                    "the function of a flush thread panics"
                );
                drop(job);
                Err(broken_disk())
            });
            let thread = thread.unwrap();
            let acknowledged = Mutex::new([0; 2]);
            scope(|threads| {
                let writers = [0, 1].map(|writer| {
                    let (set, acknowledged) = (&set, &acknowledged);
                    threads.spawn(move || {
                        let (written, cause) = fill(set, writer);
                        acknowledged.lock().unwrap()[writer as usize] = written;
                        cause
                    })
                });
                begun.recv().unwrap();
                while manager.stats().waiting < 2 {
                    yield_now();
                }
                drop(go_on);
                let ended = match event {
                    Event::IsDropped => {
                        drop(thread);
                        Ok(())
                    }
                    Event::IsClosed => thread.close(),
                    Event::Panics | Event::Fails => {
                        let causes = writers.map(|writer| writer.join().unwrap());
                        assert_eq!(causes, [StallCause::Unflushed; 2]);
                        thread.close()
                    }
                };
                let is_expected = match event {
                    Event::Panics => matches!(ended, Err(Error::FlushPanicked)),
                    Event::Fails | Event::IsClosed => matches!(ended, Err(Error::Sink(_))),
                    Event::IsDropped => ended.is_ok(),
                };
                assert!(is_expected, "{event:?}: {ended:?}");
            });
            assert!(set.read_only().is_none());
            let acknowledged = *acknowledged.lock().unwrap();
            assert_eq!(
                [0, 1].map(|key| value(&set, key).unwrap_or(0)),
                acknowledged
            );
            flush(&set, set.begin_flush().unwrap().unwrap()).unwrap();
            set.write(&put(0, 0)).unwrap();
            assert_eq!(value(&set, 1).unwrap_or(0), acknowledged[1]);
        }
    }

    /// Idle sets without flushes hold most of a budget. A set with a thread continues as long as
    /// its own bytes can make room, and then is refused. A flush of the idle sets lets it in.
    #[test]
    fn a_thread_makes_room_beside_sets_without_one() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_thread_makes_room_beside_sets_without_one",
            0,
        );
        let manager = WriteBufferManager::new((400 << 10) / FEWER).unwrap();
        let sets = [(); 3].map(|()| open(options().write_buffer_manager(&manager)));
        const BUSY: u64 = if cfg!(miri) { 8 } else { 300 };
        let [idle, other, busy] = &sets;
        let thread = start(busy);
        for n in 1..=15 / FEWER {
            idle.write(&put(1, n)).unwrap();
            other.write(&put(1, n)).unwrap();
        }
        for n in 1..=BUSY {
            busy.write(&put(1, n)).unwrap();
        }
        assert!(!busy.view().base().points.is_empty());
        // Larger than the room beside them.
        let mut idle_batches = 0;
        while !matches!(idle.write(&put(2, 1)), Err(Error::WriteStall { .. })) {
            idle_batches += 1;
            assert!(idle_batches < 1000);
        }
        assert!(matches!(
            busy.write(&put(1, BUSY + 1)),
            Ok(_) | Err(Error::WriteStall { .. })
        ));
        for set in [idle, other] {
            if let Some(job) = set.begin_flush().unwrap() {
                flush(set, job).unwrap();
            }
        }
        busy.write(&put(1, BUSY + 2)).unwrap();
        thread.close().unwrap();
        assert_eq!(
            [value(idle, 1), value(other, 1), value(busy, 1)],
            [Some(15 / FEWER), Some(15 / FEWER), Some(BUSY + 2)]
        );
    }

    /// A set keeps its thread, and the thread its set, until it is closed; a second one is refused.
    #[test]
    fn a_thread_outlives_the_handles_of_its_set() {
        let _watchdog = Watchdog::new(
            "set_threads::set_flush_thread::a_thread_outlives_the_handles_of_its_set",
            0,
        );
        let manager = WriteBufferManager::new(1 << 20).unwrap();
        let set = MemTableSet::open(options().write_buffer_manager(&manager).build().unwrap(), 0)
            .unwrap();
        let (done, flushed) = channel();
        let thread = set.start_flush_thread(move |mut job| {
            let mut items = job.items()?;
            while items.next()?.is_some() {}
            drop(items);
            let tables = job.tables();
            job.install(|_| Ok(tables))?;
            done.send(tables).map_err(|_| broken_disk())
        });
        let thread = thread.unwrap();
        assert!(matches!(
            set.start_flush_thread(|job| job.install(|_| Ok(0))),
            Err(Error::InvalidArgument(_))
        ));
        set.write(&put(1, 1)).unwrap();
        set.switch().unwrap();
        drop(set);
        assert_eq!(flushed.recv(), Ok(1));
        assert_eq!(manager.stats().sets, 1);
        thread.close().unwrap();
        assert_eq!((manager.stats().sets, manager.stats().tables), (0, 0));
    }
}

/// Listeners: their events and the times of these; one that panics, one that calls the set, and
/// many threads at once.
mod set_listener {
    use std::sync::{Arc, Mutex};
    use std::thread::{scope, yield_now};
    use std::time::Duration;

    use paranoid_memtable::StallCause;
    use paranoid_memtable::{Error, MemTableOptions, WriteBatch};
    use paranoid_set::{
        Durability, Listener, MemTableSet, SetEvent, SetOptions, SetOptionsBuilder,
    };

    use crate::support::rng::{Watchdog, amount_or_few};
    use crate::support::sets::{History, MemoryJournal, read_through};

    type Set = MemTableSet<History>;

    fn put(n: u64) -> WriteBatch {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch
            .put(b"k", [&n.to_be_bytes()[..], &[7; 3000]].concat())
            .unwrap();
        batch
    }

    fn options(listener: Arc<dyn Listener>) -> SetOptionsBuilder {
        let tables = MemTableOptions::builder()
            .write_buffer_size(if cfg!(miri) { 6 << 10 } else { 64 << 10 })
            .build()
            .unwrap();
        SetOptions::builder()
            .table(tables)
            .listener(listener)
            .stall_timeout(Duration::MAX)
    }

    fn open(options: SetOptionsBuilder) -> Set {
        MemTableSet::open(options.build().unwrap(), History::default()).unwrap()
    }

    fn flush(set: &Set) -> usize {
        let Some(mut job) = set.begin_flush().unwrap() else {
            return 0;
        };
        let mut base = History::clone(set.view().base());
        job.flush(&mut base).unwrap();
        let tables = job.tables();
        job.install(|_| Ok(base)).unwrap();
        tables
    }

    /// Records the events that it receives.
    #[derive(Default)]
    struct Diary(Mutex<Vec<String>>);

    impl Listener for Diary {
        fn event(&self, event: &SetEvent) {
            let line = match event {
                SetEvent::Switched { sealed, active, .. } => format!("switched {sealed} {active}"),
                SetEvent::FlushEnded {
                    last_sequence,
                    installed,
                    ..
                } => {
                    format!("flush ended {last_sequence} {installed}")
                }
                SetEvent::StallBegun { cause, .. } => format!("stall begun {cause:?}"),
                SetEvent::StallEnded {
                    waited, refused, ..
                } => {
                    format!("stall ended {} {refused:?}", waited.is_zero())
                }
                SetEvent::Stopped { cause, .. } => {
                    format!("stopped {}", matches!(cause, Error::ReadOnly { .. }))
                }
                other => panic!("{other:?}"),
            };
            self.0.lock().unwrap().push(line);
        }
    }

    #[test]
    fn a_listener_hears_what_begins_and_ends() {
        let _watchdog = Watchdog::new(
            "set_threads::set_listener::a_listener_hears_what_begins_and_ends",
            0,
        );
        let (diary, journal) = (Arc::new(Diary::default()), MemoryJournal::default());
        let set = open(
            options(diary.clone())
                .max_write_buffer_number(2)
                .journal(Arc::new(journal.clone())),
        );
        let heard = || std::mem::take(&mut *diary.0.lock().unwrap());
        set.write(&put(1)).unwrap();
        assert!(heard().is_empty(), "a write alone causes no event");
        set.switch().unwrap();
        assert_eq!(heard(), ["switched 1 2"]);
        drop(set.begin_flush().unwrap());
        assert_eq!(heard(), ["flush ended 1 0"]);
        assert_eq!(flush(&set), 1);
        assert_eq!(heard(), ["flush ended 1 1"]);
        while set.write(&put(4)).is_ok() {}
        let events = heard();
        assert_eq!(
            events.last_chunk(),
            Some(&[
                "stall begun Tables".into(),
                "stall ended true Some(Tables)".into()
            ])
        );
        assert_eq!(flush(&set), 1);
        heard();
        journal.0.lock().unwrap().sync_fails = Some(Error::Frozen);
        assert!(set.write_with(&put(2), Durability::Synced).is_err());
        assert!(set.write(&put(3)).is_err());
        assert_eq!(heard(), ["switched 3 4", "stopped true"]);
        assert_eq!(set.switch().unwrap(), 2);
        assert_eq!(heard(), ["switched 4 5"]);
    }

    /// Panics at every event, or calls the set from it.
    struct Rude {
        /// Taken out at the end: the set holds its listener, so the two would never be dropped.
        set: Mutex<Option<Set>>,
        heard: Mutex<u64>,
        panics: Panics,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Panics {
        Never,
        Always,
    }

    impl Listener for Rude {
        fn event(&self, event: &SetEvent) {
            *self.heard.lock().unwrap() += 1;
            assert_ne!(
                self.panics,
                Panics::Always,
                "a listener panics at {event:?}"
            );
            let Some(set) = self.set.lock().unwrap().clone() else {
                return;
            };
            let _ = (
                set.view().get(b"k").unwrap(),
                set.snapshot(),
                set.stats(),
                set.read_only(),
            );
            if matches!(event, SetEvent::Switched { .. }) {
                drop(set.begin_flush());
            }
            if matches!(event, SetEvent::FlushEnded { .. }) {
                let _ = set.switch();
            }
        }
    }

    /// Writers, a flush thread, and a listener that panics or calls the set: no thread waits for
    /// ever, and nothing is lost.
    #[test]
    fn a_rude_listener_harms_no_thread() {
        let _watchdog = Watchdog::new(
            "set_threads::set_listener::a_rude_listener_harms_no_thread",
            0,
        );
        for panics in [Panics::Never, Panics::Always] {
            let rude = Arc::new(Rude {
                set: Mutex::default(),
                heard: Mutex::new(0),
                panics,
            });
            let set = open(options(rude.clone()).max_write_buffer_number(3));
            *rude.set.lock().unwrap() = Some(set.clone());
            let of_thread = set.clone();
            let thread = set.start_flush_thread(move |mut job| {
                let mut base = History::clone(of_thread.view().base());
                job.flush(&mut base)?;
                job.install(|_| Ok(base))
            });
            let thread = thread.unwrap();
            let writes = amount_or_few(500, 60, 4);
            scope(|threads| {
                for _ in 0..2 {
                    threads.spawn(|| {
                        for n in 1..=writes {
                            loop {
                                match set.write(&put(n)) {
                                    Ok(_) => break,
                                    // A job that the listener dropped stops the thread.
                                    Err(Error::WriteStall {
                                        cause: StallCause::Tables,
                                        ..
                                    }) => {
                                        thread.retry();
                                        yield_now();
                                    }
                                    Err(other) => panic!("{other}"),
                                }
                            }
                        }
                    });
                }
            });
            let _ = thread.close();
            assert!(set.read_only().is_none());
            let value = read_through(&set.view(), b"k").value.unwrap();
            assert_eq!(value[..8], writes.to_be_bytes());
            assert!(
                *rude
                    .heard
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    > 3
            );
            assert_eq!(set.snapshot().sequence(), 2 * writes);
            rude.set.lock().unwrap().take();
        }
    }
}

/// Flushes and compactions install bases at once: none loses the files of another, and old views
/// continue.
#[test]
fn no_base_is_lost() {
    let test = "set_threads::no_base_is_lost";
    let _watchdog = Watchdog::new(test, 0);
    // Long enough for the other thread to come in between, if no lock prevents it.
    let dawdle = || (0..100).for_each(|_| std::thread::yield_now());
    let rounds = if cfg!(miri) { 5 } else { 200 };
    // The base: files, oldest first, each with the last numbers of its flushes.
    let set = MemTableSet::open(SetOptions::default(), Vec::<Vec<u64>>::new()).unwrap();
    let is_over = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let view = set.view();
                let [first, second, ..] = view.base().as_slice() else {
                    continue;
                };
                let merged = [first.as_slice(), second].concat();
                set.replace_base(|files| {
                    dawdle();
                    Ok([&[merged], &files[2..]].concat())
                })
                .unwrap();
            }
        });
        for _ in 0..rounds {
            set.put("k", "v").unwrap();
            set.switch().unwrap();
            let mut job = set.begin_flush().unwrap().unwrap();
            let mut items = job.items().unwrap();
            while items.next().unwrap().is_some() {}
            drop(items);
            let last = job.last_sequence();
            job.install(|files| {
                dawdle();
                Ok([files.as_slice(), &[vec![last]]].concat())
            })
            .unwrap();
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(
        set.view().base().concat(),
        (1..=rounds).collect::<Vec<u64>>()
    );
}
