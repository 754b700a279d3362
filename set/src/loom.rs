//! Models of the set's small protocols: loom runs every interleaving of two or three threads. Each
//! model names the planted bugs that turn it red.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::sibling::model::{check, spawn};
use paranoid_memtable::sibling::{AtomicU64, Mutex, Ordering};
use paranoid_memtable::{ArenaRecycler, Error, StallCause};

use crate::flush_job::replace_base;
use crate::gates::Gates;
use crate::journal::Journal;
use crate::journal_turns::Logged;
use crate::options::{Durability, SetOptions};
use crate::publication::{Publication, Taken};
use crate::shared::Shared;
use crate::snapshots::Registry;
use crate::swapped::{Pointers, Swapped};
use crate::tables::LastNumber;
use crate::thread_state::ThreadState;
use crate::view::read_at;
use crate::write_buffer_manager::{Buffers, FlushEnd, FlushWait, Membership, Phase, Stall};

/// After a thread has loaded the new value, it loads no older one. Red for `swaps_shard_by_shard`.
#[test]
fn loom_a_swap_is_one_store() {
    check(|| {
        let value = Arc::new(Swapped::new(Arc::new(1)));
        let (of_writer, of_reader) = (Arc::clone(&value), Arc::clone(&value));
        let writer = spawn(move || drop(of_writer.swap(&Arc::new(2))));
        let reader = spawn(move || {
            let (first, second) = (***of_reader.load_from(0), ***of_reader.load_from(1));
            assert!(first <= second, "an older value after a newer one");
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(***value.load_from(1), 2);
    });
}

/// Entries as words, each 1 once it is inserted.
type Entries = [AtomicU64; 4];

/// Entries that are not inserted.
fn entries() -> Arc<Entries> {
    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)))
}

/// Inserts the entries of a commit, and publishes their numbers.
fn commit(entries: &Entries, publication: &Publication, first: u64, last: u64) {
    for number in first..=last {
        // ORDERING: Relaxed: `visible` publishes it.
        entries[number as usize - 1].store(1, Ordering::Relaxed);
    }
    publication.complete(first, last).unwrap();
    assert!(
        see(entries, publication) >= last,
        "a commit returns once it is visible"
    );
}

/// Returns the visible number, after it checked that all entries up to it are inserted.
fn see(entries: &Entries, publication: &Publication) -> u64 {
    let visible = publication.visible();
    for entry in &entries[..visible as usize] {
        // ORDERING: Relaxed: the Acquire in `visible` orders it.
        assert_eq!(entry.load(Ordering::Relaxed), 1, "a gap");
    }
    visible
}

/// Commits become visible whole, in order, and return once they are visible. Red for
/// `publishes_out_of_order`, `publication_wakes_no_commit`, `mark_left_in_secret`,
/// `publication_forgets_marks`.
#[test]
fn loom_numbers_become_visible_in_order() {
    check(|| {
        let (written, publication) = (entries(), Arc::new(Publication::new(0)));
        let commits = [(1, 1), (2, 3)].map(|(first, last)| {
            let (written, publication) = (Arc::clone(&written), Arc::clone(&publication));
            spawn(move || commit(&written, &publication, first, last))
        });
        let (of_reader, seen) = (Arc::clone(&written), Arc::clone(&publication));
        let reader = spawn(move || {
            assert!([0, 1, 3].contains(&see(&of_reader, &seen)), "half a batch");
        });
        for thread in commits.into_iter().chain([reader]) {
            thread.join().unwrap();
        }
    });
}

/// A commit whose place an earlier one may need waits until that one is visible (PUBLICATION-3).
/// Red for `mark_left_early`.
#[test]
fn loom_a_commit_far_ahead_waits_for_its_place() {
    check(|| {
        let (written, publication) = (entries(), Arc::new(Publication::new(0)));
        let threads = [(1, 1), (2, 3), (4, 4)].map(|(first, last)| {
            let (written, publication) = (Arc::clone(&written), Arc::clone(&publication));
            spawn(move || commit(&written, &publication, first, last))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(publication.visible(), 4);
    });
}

/// A commit after one that stopped gets the cause, and does not wait. Earlier commits become
/// visible.
#[test]
fn loom_a_stop_frees_waiting_commits() {
    check(|| {
        let publication = Arc::new(Publication::new(0));
        let (before, after, stopped) = (
            Arc::clone(&publication),
            Arc::clone(&publication),
            Arc::clone(&publication),
        );
        let threads = [
            spawn(move || before.complete(1, 1).unwrap()),
            spawn(move || {
                assert!(stopped.stop(Taken { first: 2, last: 2 }, Error::WriterPanicked))
            }),
            spawn(move || assert!(matches!(after.complete(3, 3), Err(Error::ReadOnly { .. })))),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(publication.visible(), 1);
    });
}

/// After a stop, `wait_until_ended` returns once all commits have ended, and no later commit is
/// acknowledged.
#[test]
fn loom_the_end_of_a_stopped_set_comes() {
    check(|| {
        let publication = Arc::new(Publication::new(0));
        let (after, stopped, settling) = (
            Arc::clone(&publication),
            Arc::clone(&publication),
            Arc::clone(&publication),
        );
        let threads = [
            spawn(move || {
                assert!(stopped.stop(Taken { first: 1, last: 1 }, Error::WriterPanicked))
            }),
            spawn(move || assert!(after.complete(2, 2).is_err(), "acknowledged")),
            spawn(move || {
                let stop = settling.wait_until_ended(2);
                assert!(stop.is_none_or(|stop| (stop.first, settling.visible()) == (1, 0)));
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A snapshot that is not in a flush's list sees the flushed table whole (SNAPSHOT-1). Red for
/// `flush_reads_snapshots_early`.
#[test]
fn loom_a_flush_knows_every_older_snapshot() {
    check(|| {
        let registry = Arc::new(Registry::new(Publication::new(0)));
        let (of_writer, of_flush, of_reader) = (
            Arc::clone(&registry),
            Arc::clone(&registry),
            Arc::clone(&registry),
        );
        let writer = spawn(move || {
            of_writer.publication.complete(1, 1).unwrap();
            of_writer.publication.complete(2, 2).unwrap();
        });
        let flush = spawn(move || of_flush.numbers_after(2).unwrap());
        let reader = spawn(move || of_reader.register());
        writer.join().unwrap();
        let (known, snapshot) = (flush.join().unwrap(), reader.join().unwrap());
        assert!(
            snapshot.sequence() >= 2 || known.contains(&snapshot.sequence()),
            "{snapshot:?} is lost"
        );
    });
}

/// A writer that waits for a flush returns at its end. Red for `flush_end_wakes_no_writer`.
#[test]
fn loom_the_end_of_a_flush_wakes_waiting_writers() {
    check(|| {
        let set = Arc::new(Membership::new(
            Buffers::new(u64::MAX),
            ArenaRecycler::new(0, 0).unwrap(),
        ));
        let table = set.count_table();
        table.leave(Phase::Sealed, 0);
        assert!(set.begin_flush());
        let (ending, waiting) = (Arc::clone(&set), Arc::clone(&set));
        let ender = spawn(move || ending.end_flush(FlushEnd::Left));
        let mut stall = Stall::default();
        let waiter = spawn(move || while waiting.wait(StallCause::Tables, &mut stall) {});
        ender.join().unwrap();
        waiter.join().unwrap();
        drop(table);
    });
}

/// A thread that waits for the flush of one table returns when the table is flushed, and when its
/// flush is left. Red for `flush_end_wakes_no_writer`.
#[test]
fn loom_the_end_of_a_flush_frees_waits_for_one_table() {
    for end in [FlushEnd::Installed, FlushEnd::Left] {
        check(move || {
            let set = Arc::new(Membership::new(
                Buffers::new(u64::MAX),
                ArenaRecycler::new(0, 0).unwrap(),
            ));
            let table = set.count_table();
            table.leave(Phase::Sealed, 1);
            assert!(set.begin_flush());
            let (ending, waiting, id) = (Arc::clone(&set), Arc::clone(&set), table.id());
            let ender = spawn(move || {
                if end == FlushEnd::Installed {
                    table.leave(Phase::Pinned, 1);
                }
                ending.end_flush(end);
                table
            });
            let waiter = spawn(move || waiting.wait_for_flush(id, &mut Stall::default()));
            let table = ender.join().unwrap();
            let expected = if end == FlushEnd::Installed {
                FlushWait::Flushed
            } else {
                FlushWait::Never
            };
            assert_eq!(waiter.join().unwrap(), expected);
            drop(table);
        });
    }
}

/// Waits as a writer without bytes and without a deadline. Returns whether there is room.
fn wait_for_room(set: &Membership) -> bool {
    let mut stall = Stall::default();
    while let Err(cause) = set.admit(0) {
        if !set.wait(cause, &mut stall) {
            return false;
        }
    }
    true
}

/// The flush thread works once a table is sealed, before or after the thread begins to wait. Red
/// for `seal_wakes_no_thread`.
#[test]
fn loom_a_sealed_table_wakes_the_flush_thread() {
    check(|| {
        let set = Arc::new(Membership::new(
            Buffers::new(u64::MAX),
            ArenaRecycler::new(0, 0).unwrap(),
        ));
        let (table, of_thread) = (set.count_table(), Arc::clone(&set));
        set.begin_thread().unwrap();
        let thread = spawn(move || assert!(of_thread.wait_for_work()));
        // The table is dropped last: a dropped table wakes the thread as well.
        let sealing = Arc::clone(&table);
        let writer = spawn(move || sealing.leave(Phase::Sealed, 1));
        writer.join().unwrap();
        thread.join().unwrap();
        drop(table);
    });
}

/// A flush thread that fails and then ends, beside a writer that counts on it: both return.
#[test]
fn loom_the_end_of_the_flush_thread_frees_waiting_writers() {
    check(|| {
        let set = Arc::new(Membership::new(
            Buffers::new(10),
            ArenaRecycler::new(0, 0).unwrap(),
        ));
        let table = set.count_table();
        let (of_thread, of_writer) = (Arc::clone(&set), Arc::clone(&set));
        table.leave(Phase::Sealed, 10);
        set.begin_thread().unwrap();
        let thread = spawn(move || {
            while of_thread.wait_for_work() {
                of_thread.change_thread(|thread| thread.end_work(Err(Error::Frozen)));
                of_thread.change_thread(ThreadState::close);
            }
            of_thread.change_thread(|thread| *thread = ThreadState::default());
        });
        let writer = spawn(move || wait_for_room(&of_writer));
        thread.join().unwrap();
        assert!(!writer.join().unwrap(), "no thread flushes");
        drop(table);
    });
}

/// A flush of one set makes room for a writer of another, before or after the writer begins to
/// wait.
#[test]
fn loom_a_flush_makes_room_for_another_set() {
    check(|| {
        let buffers = Buffers::new(10);
        let set = Membership::new(Arc::clone(&buffers), ArenaRecycler::new(0, 0).unwrap());
        let other = Membership::new(buffers, ArenaRecycler::new(0, 0).unwrap());
        let table = set.count_table();
        table.leave(Phase::Sealed, 10);
        assert!(set.begin_flush());
        let flusher = spawn(move || {
            table.leave(Phase::Pinned, 10);
            drop(table);
            set.end_flush(FlushEnd::Installed);
            set
        });
        let writer = spawn(move || wait_for_room(&other));
        let set = flusher.join().unwrap();
        assert!(writer.join().unwrap(), "there is room");
        assert_eq!(
            (set.stats().unflushed_bytes, set.stats().pinned_bytes),
            (0, 0)
        );
    });
}

/// The active table as a view loads it: its last number, and the numbers that its view has.
struct Active {
    last: Arc<LastNumber>,
    has: Vec<u64>,
}

/// A view reads no number of a table that it does not have (TABLES-1). Red for
/// `read_forgets_closed_table`.
#[test]
fn loom_a_view_beside_a_switch_has_no_gap() {
    check(|| {
        let first = Arc::new(LastNumber::new());
        let tables = Arc::new(Swapped::new(Arc::new(Active {
            last: Arc::clone(&first),
            has: vec![1],
        })));
        let publication = Arc::new(Publication::new(0));
        let (swapped, published) = (Arc::clone(&tables), Arc::clone(&publication));
        let writer = spawn(move || {
            published.complete(1, 1).unwrap();
            first.close(1);
            let next = Active {
                last: Arc::new(LastNumber::new()),
                has: vec![1, 2],
            };
            drop(swapped.swap(&Arc::new(next)));
            published.complete(2, 2).unwrap();
        });
        let reader = spawn(move || {
            let view = tables.load_from(1);
            let sequence = read_at(&publication, &view.last);
            assert!(
                (1..=sequence).all(|number| view.has.contains(&number)),
                "a gap"
            );
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// A journal that counts the numbers that were appended, written and synced. A write takes the
/// appended numbers, and stores them later.
#[derive(Default)]
struct Counting {
    /// The answers of the next writes, the last one first.
    outcomes: Mutex<Vec<Result<(), Error>>>,
    queue: Mutex<Vec<u64>>,
    written: Mutex<Vec<u64>>,
    synced: Mutex<u64>,
}

impl Counting {
    fn last_written(&self) -> u64 {
        self.written.lock().last().copied().unwrap_or(0)
    }
}

impl Journal for Counting {
    fn append(&self, batch: &[u8]) -> Result<(), Error> {
        self.queue
            .lock()
            .extend(batch.iter().map(|number| u64::from(*number)));
        Ok(())
    }
    fn write(&self) -> Result<(), Error> {
        self.outcomes.lock().pop().unwrap_or(Ok(()))?;
        let taken = std::mem::take(&mut *self.queue.lock());
        self.written.lock().extend(taken);
        Ok(())
    }
    fn sync(&self) -> Result<(), Error> {
        self.write()?;
        let written = self.last_written();
        *self.synced.lock() = written;
        Ok(())
    }
    fn switch(&self, _: u64) -> Result<(), Error> {
        Ok(())
    }
    fn obsolete_before(&self, _: u64) -> Result<(), Error> {
        Ok(())
    }
}

/// Appends a batch of one number.
fn append(commit: &Mutex<u64>, journal: &Counting, logged: &Logged) -> Taken {
    let mut last = commit.lock();
    *last += 1;
    journal.append(&[*last as u8]).unwrap();
    logged.note_appended(*last);
    Taken {
        first: *last,
        last: *last,
    }
}

/// Commits of two threads: visible batches are written, in order, and each commit returns once it
/// is visible.
fn append_beside(durability: Durability) {
    let (journal, logged) = (Arc::new(Counting::default()), Arc::new(Logged::new(0)));
    let (commit, order) = (Arc::new(Mutex::new(0)), Arc::new(Publication::new(0)));
    let threads = [(); 2].map(|()| {
        let (journal, commit) = (Arc::clone(&journal), Arc::clone(&commit));
        let (logged, order) = (Arc::clone(&logged), Arc::clone(&order));
        spawn(move || {
            let batch = append(&commit, &journal, &logged);
            let number = batch.last;
            logged.wait(batch, durability, &*journal, &order).unwrap();
            let kept = if durability == Durability::Synced {
                *journal.synced.lock()
            } else {
                journal.last_written()
            };
            assert!(kept >= number, "acknowledged");
            if order.visible() < number {
                order.complete(number, number).unwrap();
            }
            let visible = order.visible();
            assert!(
                (number..=journal.last_written()).contains(&visible),
                "visible, and not written"
            );
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*journal.written.lock(), [1, 2], "in order");
}

/// A sync covers only what was appended before it (LEADER-1). Red for `sync_covers_later_appends`,
/// `turn_ends_in_silence`, `turn_sleeps_in_secret`, `turn_sleeps_late`.
#[test]
fn loom_a_sync_answers_for_what_was_appended() {
    check(|| append_beside(Durability::Synced));
}

/// A batch is acknowledged once it is written, in order. Red for `acknowledged_unwritten`,
/// `sync_covers_later_appends`, `two_leaders_write`, `leader_publishes_later_batches`,
/// `turn_ends_in_silence`, `turn_sleeps_in_secret`, `turn_sleeps_late`.
#[test]
fn loom_a_buffered_batch_is_written_in_order() {
    check(|| append_beside(Durability::Buffered));
}

/// Each batch that waits for a write that fails gets its error, and no thread tries again. Red for
/// `failed_write_is_tried_again`.
#[test]
fn loom_a_failed_write_fails_all_that_wait() {
    check(|| {
        let (journal, logged) = (Arc::new(Counting::default()), Arc::new(Logged::new(0)));
        journal.outcomes.lock().push(Err(Error::Frozen));
        let order = Arc::new(Publication::new(0));
        logged.note_appended(2);
        let threads = [1, 2].map(|number| {
            let (journal, logged, order) = (
                Arc::clone(&journal),
                Arc::clone(&logged),
                Arc::clone(&order),
            );
            spawn(move || {
                let batch = Taken {
                    first: number,
                    last: number,
                };
                let waited = logged.wait(batch, Durability::Buffered, &*journal, &order);
                assert!(waited.is_err(), "acknowledged");
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(order.visible(), 0);
    });
}

/// A batch that one turn made visible is acknowledged, even if a later turn fails meanwhile. Red
/// for `failed_turn_forgets`.
#[test]
fn loom_a_failed_write_beside_one_that_was_answered_for() {
    check(|| {
        let (journal, logged) = (Arc::new(Counting::default()), Arc::new(Logged::new(0)));
        *journal.outcomes.lock() = vec![Err(Error::Frozen), Ok(())];
        let (commit, order) = (Arc::new(Mutex::new(0)), Arc::new(Publication::new(0)));
        let threads = [1, 2].map(|batches| {
            let (journal, logged) = (Arc::clone(&journal), Arc::clone(&logged));
            let (commit, order) = (Arc::clone(&commit), Arc::clone(&order));
            spawn(move || {
                for _ in 0..batches {
                    let batch = append(&commit, &journal, &logged);
                    let waited = logged.wait(batch, Durability::Buffered, &*journal, &order);
                    match waited {
                        Ok(()) => assert!(journal.last_written() >= batch.last, "acknowledged"),
                        Err(_) => assert!(order.visible() < batch.last, "visible"),
                    }
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// A number that a batch takes beside a switch belongs to the first table if it is up to that
/// table's last number, and otherwise to the next table (GATES-1). Red for `gates_left_open`.
#[test]
fn loom_numbers_inside_gates_beside_a_switch() {
    check(|| {
        let gates = Arc::new(Gates::new());
        let (first, second) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        assert!(gates.open(&Pointers::to(&first), 0));
        let writers = [0, 1].map(|thread| {
            let gates = Arc::clone(&gates);
            spawn(move || {
                let (gate, table) = gates.enter(thread, 1, 9)?;
                let taken = gates.number(gate, 1, 1);
                // ORDERING: Relaxed: read once all threads have ended.
                Some((table.fetch_add(1, Ordering::Relaxed), taken.first))
            })
        });
        let (switched, next) = (Arc::clone(&gates), Arc::clone(&second));
        let switch = spawn(move || {
            let (end, bytes) = switched.close();
            assert_eq!(end, bytes, "each batch inside has both");
            assert!(switched.open(&Pointers::to(&next), end));
            end
        });
        let numbers = writers.map(|writer| writer.join().unwrap());
        let end = switch.join().unwrap();
        let mut given: Vec<_> = numbers
            .into_iter()
            .flatten()
            .map(|(_, number)| number)
            .collect();
        given.sort_unstable();
        assert!(
            given.iter().copied().eq(1..=given.len() as u64),
            "twice or never: {given:?}"
        );
        // ORDERING: Relaxed: all threads have ended.
        let [old, new] = [first, second].map(|table| table.load(Ordering::Relaxed));
        assert_eq!(
            (old, old + new),
            (end, given.len() as u64),
            "a number of the first table after its end"
        );
    });
}

/// Two threads make bases one after the other, each of the current one (FLUSH-JOB-1). Red for
/// `bases_race`.
#[test]
fn loom_no_base_is_lost() {
    check(|| {
        let shared = Arc::new(Shared::open(SetOptions::default(), Arc::new(0)).unwrap());
        let installs = [1, 10].map(|part| {
            let shared = Arc::clone(&shared);
            spawn(move || assert!(replace_base(&shared, None, |base| Ok(base + part)).is_ok()))
        });
        for thread in installs {
            thread.join().unwrap();
        }
        assert_eq!(*shared.tables.load().base, 11);
    });
}
