//! Writers, readers and a flush at once: each snapshot equals a prefix of the commit order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::scope;

use paranoid_memtable::set::{Durability, MemTableSet, SetOptions, View};
use paranoid_memtable::{MemTableOptions, WriteBatch};

use crate::support::rng::{Rng, amount_or_few, scramble, seed_or};
use crate::support::sets::{History, MemoryJournal, read_through};
use crate::support::watchdog::{Watchdog, replay_line};

const WRITERS: u64 = if cfg!(miri) { 2 } else { 3 };

/// A batch: who wrote it, as its n-th, and its numbers.
type Commit = (u64, u64, u64, u64);

/// What a snapshot showed: its number, and the last batch of each writer.
type Seen = (u64, [u64; WRITERS as usize]);

fn key(writer: u64, half: u64) -> Vec<u8> {
    [scramble(writer * 2 + half).to_be_bytes(), writer.to_be_bytes()].concat()
}

/// The n-th batch of a writer: both halves of its key say n, and what it deleted says n as well.
fn batch_of(writer: u64, n: u64) -> WriteBatch {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    let value = [n.to_be_bytes(), scramble(writer << 40 | n).to_be_bytes()].concat();
    batch.put(&key(writer, 0), &value).unwrap();
    let own = [b"own".as_slice(), &writer.to_be_bytes()].concat();
    let numbered = |n: u64| [own.as_slice(), &n.to_be_bytes()].concat();
    if n.is_multiple_of(5) {
        batch.delete_range(&numbered(0), &numbered(n)).unwrap();
    } else {
        batch.delete(&numbered(n - 1)).unwrap();
    }
    batch.put(&numbered(n), &value).unwrap();
    batch.put(&key(writer, 1), &value).unwrap();
    batch
}

/// The last batch of a writer in this view: every trace of it agrees.
fn last_of(view: &View<History>, writer: u64) -> u64 {
    let values = [0, 1].map(|half| read_through(view, &key(writer, half)).value);
    assert_eq!(values[0], values[1], "half a batch of {writer} at {}", view.sequence());
    let Some(value) = &values[0] else { return 0 };
    let n = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value[8..], scramble(writer << 40 | n).to_be_bytes(), "a torn value");
    let own = |n: u64| [b"own".as_slice(), &writer.to_be_bytes(), &n.to_be_bytes()].concat();
    assert_eq!(read_through(view, &own(n)).value.as_ref(), Some(value));
    assert_eq!(read_through(view, &own(n - 1)).value, None, "deleted by the same batch");
    n
}

fn write(set: &MemTableSet<History>, writer: u64, batches: u64, done: &AtomicU64) -> Vec<Commit> {
    let mut rng = Rng::new(writer);
    let mut commits = vec![];
    for n in 1..=batches {
        let batch = batch_of(writer, n);
        let durability = *rng.pick(&[Durability::Buffered, Durability::Buffered, Durability::Synced]);
        let last = set.write_with(&batch, durability).unwrap();
        commits.push((writer, n, last + 1 - batch.len() as u64, last));
        if n % 7 == 0 {
            assert!(last_of(&set.view(), writer) >= n, "a writer sees what it wrote");
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
        assert!(snapshot.sequence() >= before, "what is visible never goes back");
        before = snapshot.sequence();
        let view = set.view_at(&snapshot).unwrap();
        let first = std::array::from_fn(|writer| last_of(&view, writer as u64));
        // Once more over other tables, perhaps flushed ones.
        let again = set.view_at(&snapshot).unwrap();
        assert_eq!(first, std::array::from_fn(|writer| last_of(&again, writer as u64)), "a snapshot changed");
        seen.push((snapshot.sequence(), first));
        let latest = set.view();
        seen.push((latest.sequence(), std::array::from_fn(|writer| last_of(&latest, writer as u64))));
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
        job.install(base).unwrap();
    }
}

/// The commits follow each other without a gap, and each snapshot is what the commits up to it left.
fn check(mut commits: Vec<Commit>, seen: &[Seen]) {
    commits.sort_by_key(|commit| commit.2);
    let mut prefixes = vec![(0, [0; WRITERS as usize])];
    for (writer, n, first, last) in commits {
        let (end, mut state) = *prefixes.last().unwrap();
        assert_eq!(first, end + 1, "numbers follow each other");
        assert_eq!(state[writer as usize] + 1, n, "a writer's batches are in order");
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
    let tables = MemTableOptions::builder().write_buffer_size(64 << 10).seed(seed).build().unwrap();
    let journal = MemoryJournal::default();
    let options = SetOptions::builder().table(tables).journal(Arc::new(journal));
    let options = options.max_write_buffer_number(u64::MAX).build().unwrap();
    let set = MemTableSet::open(options, History::default()).unwrap();
    let (batches, over, done) = (amount_or_few(10_000, 2000, 2), AtomicBool::new(false), AtomicU64::new(0));
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
