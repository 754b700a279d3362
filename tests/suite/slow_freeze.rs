//! A slow fragmenter blocks no other thread.
//!
//! ```text
//!   freezing thread    freeze(A) -> first comparisons of tombstone keys ... stands at the gate ....... done
//!   this thread                                 reads A, writes B, reads B    opens the gate
//! ```
//! The gate is in the comparator, and only the freezing thread stops at it. No thread sleeps, no time is measured.

use std::cell::Cell;
use std::cmp::Ordering as Order;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{ThreadId, scope};

use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions, TableReader};

use crate::support::orders::{Script, Scripted};
use crate::support::under::under;
use crate::support::watchdog::Watchdog;

const TOMBSTONES: u64 = 200;
/// The width of every range, in keys: it overlaps the next one.
const WIDTH: u64 = 3;
const POINTS: u64 = TOMBSTONES * 2 + 4;
const BOUNDARY_LEN: usize = 4;
const POINT_LEN: usize = 5;

thread_local! {
    static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

/// Where the freezing thread stops: at its `left`-th comparison of two boundaries of ranges from now.
#[derive(Debug)]
struct Gate {
    freezer: OnceLock<ThreadId>,
    left: AtomicU64,
    arrived: Mutex<Sender<()>>,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        if self.freezer.get() != Some(&std::thread::current().id()) {
            return;
        }
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.arrived.lock().unwrap().send(()).unwrap();
            let _open = self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens the gate when it is dropped, also if a check fails.
struct Opens<'g>(&'g Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Bytes in order, without prefixes; counts comparisons, and stops at the gate.
#[derive(Debug, Clone)]
struct Gated(Arc<Gate>);

impl Script for Gated {
    fn compare(&self, left: &[u8], right: &[u8]) -> Order {
        COMPARISONS.set(COMPARISONS.get() + 1);
        if (left.len(), right.len()) == (BOUNDARY_LEN, BOUNDARY_LEN) {
            self.0.pass();
        }
        left.cmp(right)
    }
}

fn boundary(number: u64) -> [u8; BOUNDARY_LEN] {
    (number as u32).to_be_bytes()
}

/// A key that comes right after a boundary.
fn point(number: u64) -> [u8; POINT_LEN] {
    let mut key = [b'.'; POINT_LEN];
    key[..BOUNDARY_LEN].copy_from_slice(&boundary(number));
    key
}

fn fill(table: &MemTable) {
    for number in 0..POINTS {
        table.put(1 + number, &point(number), b"value").unwrap();
    }
    for number in 0..TOMBSTONES {
        let (start, end) = (boundary(number * 2), boundary(number * 2 + WIDTH));
        table.delete_range(sequence(number), &start, &end).unwrap();
    }
}

/// Older ranges have larger keys.
fn sequence(tombstone: u64) -> u64 {
    POINTS + TOMBSTONES - tombstone
}

/// The newest tombstone up to a snapshot that covers a key, found by looking at all of them.
fn cover(key: u64, snapshot: u64) -> Option<u64> {
    let covers = |tombstone: &u64| (tombstone * 2..tombstone * 2 + WIDTH).contains(&key);
    (0..TOMBSTONES).filter(covers).map(sequence).filter(|sequence| *sequence <= snapshot).max()
}

fn check(table: &TableReader, snapshot: u64) {
    let mut shown = 0;
    for key in 0..POINTS {
        match (table.get(&point(key), snapshot).unwrap(), cover(key, snapshot)) {
            (Lookup::Deleted { sequence, by: DeletedBy::Range }, Some(expected)) => {
                assert_eq!(sequence, expected, "key {key} at {snapshot}");
            }
            (Lookup::Value(_), None) => shown += 1,
            (other, expected) => panic!("key {key} at {snapshot}: {other:?}, not {expected:?}"),
        }
    }
    assert_eq!(table.range_at(snapshot, ..).map(Result::unwrap).count(), shown);
    assert_eq!(table.range_at(snapshot, ..).rev().map(Result::unwrap).count(), shown);
}

/// The most comparisons of one `get`. A walk over the tombstones takes one per tombstone, an index a few.
fn dearest_get(table: &TableReader) -> u64 {
    let price = |key| {
        let before = COMPARISONS.get();
        table.get(&point(key), u64::MAX).unwrap();
        COMPARISONS.get() - before
    };
    // Keys at the far end: a walk would have to pass every tombstone.
    (POINTS - 40..POINTS).map(price).max().unwrap()
}

fn freeze_slowly(stop_at: u64) {
    let (arrived, at_the_gate) = channel();
    let gate = Arc::new(Gate {
        freezer: OnceLock::new(),
        left: AtomicU64::new(stop_at),
        arrived: Mutex::new(arrived),
        open: Mutex::new(false),
        opened: Condvar::new(),
    });
    let options = MemTableOptions::builder().seed(5);
    let table = &MemTable::new(under(options, Scripted::new(Gated(Arc::clone(&gate))))).unwrap();
    fill(table);
    let other = table.fork().unwrap();
    scope(|threads| {
        let opens = Opens(&gate);
        let freezer = threads.spawn(|| {
            gate.freezer.set(std::thread::current().id()).unwrap();
            table.freeze().unwrap()
        });
        at_the_gate.recv().unwrap();
        assert!(!freezer.is_finished() && table.is_frozen(), "writing is over, building is not");
        assert!(matches!(table.put(u64::MAX, b"late", b""), Err(Error::Frozen)));
        let unpublished = table.allocated_bytes();
        fill(&other);
        for snapshot in [POINTS, POINTS + TOMBSTONES / 2, u64::MAX] {
            check(table, snapshot);
            check(&other, snapshot);
        }
        let live = dearest_get(table);
        assert!(live < TOMBSTONES / 2, "{live} comparisons: a walk over the tombstones, not the live index");
        table.maintain();
        assert!(!freezer.is_finished(), "it stands at the gate");
        assert_eq!(table.allocated_bytes(), unpublished, "nothing was published meanwhile");
        drop(opens);
        let frozen = freezer.join().unwrap();
        assert!(frozen.allocated_bytes() > unpublished, "the result is published");
        for snapshot in [POINTS, POINTS + TOMBSTONES / 2, u64::MAX] {
            check(&frozen, snapshot);
        }
    });
}

#[test]
fn a_slow_fragmenter_holds_up_nobody() {
    let _watchdog = Watchdog::new("slow_freeze::a_slow_fragmenter_holds_up_nobody", 5);
    for stop_at in [0, TOMBSTONES / 4] {
        freeze_slowly(stop_at);
    }
}
