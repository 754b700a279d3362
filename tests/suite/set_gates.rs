//! Sets without a journal: many threads take numbers inside gates while tables are switched and
//! flushed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use paranoid_memtable::flush::FlushItem;
use paranoid_memtable::{MemTableOptions, SequenceNumber, WriteBatch};
use paranoid_set::{MemTableSet, SetOptions};

use crate::support::rng::{Watchdog, amount_or_few, scramble};

/// More than most machines have processors.
const WRITERS: u64 = if cfg!(miri) { 3 } else { 16 };

/// Records of every fourth batch; the others are single puts.
const RECORDS: u64 = 3;

/// Each key is written once, and its value identifies the key.
fn key(writer: u64, n: u64, record: u64) -> [u8; 16] {
    let name = writer << 40 | n << 8 | record;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scramble(name).to_be_bytes());
    key[8..].copy_from_slice(&name.to_be_bytes());
    key
}

/// Writes the batches of one thread. Returns the first and the last number of each.
fn write(
    set: &MemTableSet<()>,
    writer: u64,
    batches: u64,
) -> Vec<(SequenceNumber, SequenceNumber)> {
    let write = |n: u64| {
        if !n.is_multiple_of(4) {
            let key = key(writer, n, 0);
            let number = set.put(key, key).unwrap();
            assert!(
                set.view().sequence() >= number,
                "not visible when its put returns"
            );
            return (number, number);
        }
        let mut batch = WriteBatch::new();
        for record in 0..RECORDS {
            let key = key(writer, n, record);
            batch.put(key, key).unwrap();
        }
        let last = set.write(&batch).unwrap();
        (last - RECORDS + 1, last)
    };
    (1..=batches).map(write).collect()
}

/// Flushes the sealed tables. The numbers show that each entry is in one of the job's tables.
fn flush(set: &MemTableSet<()>, flushed: &mut Vec<SequenceNumber>, end: &mut SequenceNumber) {
    while let Some(mut job) = set.begin_flush().unwrap() {
        let last = job.last_sequence();
        let mut items = job.items().unwrap();
        while let Some(item) = items.next().unwrap() {
            let FlushItem::Entry(entry) = item else {
                panic!("nothing is deleted")
            };
            assert_eq!(entry.user_key, entry.value, "a torn entry");
            let number = entry.sequence;
            assert!(
                (*end + 1..=last).contains(&number),
                "{number} in tables of {}..={last}",
                *end + 1
            );
            flushed.push(number);
        }
        drop(items);
        job.install(|()| Ok(())).unwrap();
        *end = last;
    }
}

/// Ends the flusher, also after a writer has panicked.
struct Ends<'t>(&'t AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Numbers follow each other without a gap. Each entry is flushed once, with the table of its
/// number.
fn numbers_are_those_of_their_tables(test: &str, write_buffer_size: u64) {
    let _watchdog = Watchdog::new(test, 0);
    let tables = MemTableOptions::builder()
        .write_buffer_size(write_buffer_size)
        .build()
        .unwrap();
    let options = SetOptions::builder()
        .table(tables)
        .max_write_buffer_number(u64::MAX);
    let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
    let (batches, over) = (amount_or_few(3_000, 250, 3), AtomicBool::new(false));
    let (mut flushed, mut end, mut switches) = (Vec::new(), 0, 0_u64);
    let mut commits = scope(|threads| {
        let set = &set;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| threads.spawn(move || write(set, writer, batches)))
            .collect();
        let flusher = threads.spawn(|| {
            while !over.load(Ordering::Acquire) {
                set.switch().unwrap();
                switches += 1;
                flush(set, &mut flushed, &mut end);
            }
        });
        let ends = Ends(&over);
        let commits: Vec<_> = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect();
        drop(ends);
        flusher.join().unwrap();
        commits
    });
    set.switch().unwrap();
    flush(&set, &mut flushed, &mut end);
    commits.sort_unstable();
    let mut next = 1;
    for (first, last) in commits {
        assert_eq!(first, next, "numbers follow each other");
        next = last + 1;
    }
    flushed.sort_unstable();
    assert!(flushed.into_iter().eq(1..next), "an entry twice, or never");
    println!("{} numbers, {switches} switches", next - 1);
}

/// Gates are open between two switches.
#[test]
fn many_writers_beside_switches() {
    numbers_are_those_of_their_tables("set_gates::many_writers_beside_switches", 64 << 20);
}

/// Each gate is used up after some thirty puts.
#[test]
fn many_writers_whose_gates_are_used_up() {
    numbers_are_those_of_their_tables("set_gates::many_writers_whose_gates_are_used_up", 4 << 20);
}

/// A table that is too small for gates.
#[test]
fn many_writers_of_a_small_table() {
    numbers_are_those_of_their_tables("set_gates::many_writers_of_a_small_table", 64 << 10);
}
