//! Comparators that panic, lie or call back into their table, at each of the comparisons of each operation.

use std::any::Any;
use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, KeyOrder, Lookup, MemTable, MemTableOptions, WriteBatch};

use crate::support::orders::{Script, Scripted, script};
use crate::support::rng::amount;
use crate::support::under::under;
use crate::support::watchdog::Watchdog;

type Table = MemTable;

/// What a comparator does in one of its comparisons.
#[derive(Clone, Copy)]
enum Deed {
    Panic,
    /// Returns the opposite order.
    Lie,
    /// Calls the table.
    Call(fn(&Table) -> Result<(), Error>),
}

/// Bytewise order, with a deed in one comparison.
#[derive(Default)]
struct Imp {
    /// Comparisons until the deed; it is done once.
    fuse: AtomicU64,
    deed: Mutex<Option<Deed>>,
    table: OnceLock<Weak<Table>>,
    /// The result of the call.
    answer: Mutex<Option<Result<(), Error>>>,
    images: AtomicU64,
}

impl std::fmt::Debug for Imp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Imp")
    }
}

thread_local!(static INSIDE: Cell<u32> = const { Cell::new(0) });

impl Script for Imp {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        // Comparisons of other threads, and those of the deed itself, are not counted.
        if INSIDE.get() != 1 || self.fuse.fetch_sub(1, Memory::Relaxed) != 0 {
            return left.cmp(right);
        }
        let deed = *self.deed.lock().unwrap();
        match deed {
            None => left.cmp(right),
            Some(Deed::Panic) => panic!("an imp"),
            Some(Deed::Lie) => right.cmp(left),
            Some(Deed::Call(call)) => {
                let table = self.table.get().and_then(Weak::upgrade).unwrap();
                INSIDE.set(2);
                let answer = call(&table);
                INSIDE.set(1);
                *self.answer.lock().unwrap() = Some(answer);
                left.cmp(right)
            }
        }
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Images
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        self.images.fetch_add(1, Memory::Relaxed);
        if at > 0 { 0 } else { u64::from(key.first().copied().unwrap_or(0)) << 56 }
    }
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

const BASE: u64 = 24;

fn table() -> Arc<Table> {
    let options = MemTableOptions::builder().seed(5).write_buffer_size(64 << 10);
    let table = MemTable::new(under(options, Scripted::new(Imp::default()))).unwrap();
    for n in 0..BASE {
        table.put(n, &key(n), &key(n)).unwrap();
        if n % 3 == 0 {
            let start = key(n + 1000);
            let end: Vec<u8> = [&start[..], b"\0"].concat();
            table.delete_range(n, &start, &end).unwrap();
        }
    }
    let table = Arc::new(table);
    let plan = &script::<Imp>(table.comparator());
    plan.fuse.store(u64::MAX, Memory::Relaxed);
    plan.table.set(Arc::downgrade(&table)).unwrap();
    table
}

#[derive(Default)]
struct Count(u64);

impl FlushSink for Count {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        self.0 += 1;
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        self.0 += 1;
        Ok(())
    }
}

/// Takes at most as many steps as there are entries, whatever the order says.
fn walk(table: &Table) -> Result<(), Error> {
    let steps = 4 * (table.len() + 10);
    table.range(..).take(steps).try_for_each(|entry| entry.map(|_| ()))?;
    table.range_at(u64::MAX, ..).rev().take(steps).try_for_each(|entry| entry.map(|_| ()))?;
    let mut cursor = table.cursor();
    cursor.seek(&key(7))?;
    cursor.prev().map(|_| ())
}

fn write_batch(table: &Table) -> Result<(), Error> {
    let mut batch = WriteBatch::with_protection(8)?;
    for n in 300..306 {
        batch.put(&key(n), &key(n))?;
    }
    batch.delete_range(&key(2000), &[key(2000).as_slice(), b"\0"].concat())?;
    table.write_batch(500, &batch).map(|_| ())
}

fn flush(table: &Table) -> Result<(), Error> {
    let mut count = Count::default();
    table.freeze()?.flush(&[3, 9], &mut count).map(|_| ())
}

fn scrub(table: &Table) -> Result<(), Error> {
    table.scrub(|_| ()).check()
}

/// Whether an operation is a write, for which a freeze waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Write,
    Other,
}

type Operation = (&'static str, Sort, fn(&Table) -> Result<(), Error>);

/// Every operation that compares keys.
const OPERATIONS: &[Operation] = &[
    ("put", Sort::Write, |table| table.put(200, &key(200), &key(200)).map(|_| ())),
    ("put through a writer", Sort::Write, |table| table.writer().put(201, &key(201), &key(201)).map(|_| ())),
    ("put again", Sort::Write, |table| table.put(202, &key(3), &key(3)).map(|_| ())),
    ("delete_range", Sort::Write, |table| {
        let end = [key(3000).as_slice(), b"\0"].concat();
        table.delete_range(203, &key(3000), &end).map(|_| ())
    }),
    ("write_batch", Sort::Write, write_batch),
    ("get", Sort::Other, |table| table.get(&key(5), u64::MAX).map(|_| ())),
    ("multi_get", Sort::Other, |table| {
        let keys: Vec<[u8; 8]> = (0..30).map(key).collect();
        table.multi_get(&keys, 20).into_iter().try_for_each(|answer| answer.map(|_| ()))
    }),
    ("walk", Sort::Other, walk),
    ("approximate_range_stats", Sort::Other, |table| {
        let (start, end) = ([0; 8], [0xff; 8]);
        table.approximate_range_stats(&start[..]..&end[..]).map(|_| ())
    }),
    ("scrub", Sort::Other, scrub),
    ("maintain", Sort::Other, |table| {
        table.maintain();
        Ok(())
    }),
    ("freeze", Sort::Other, |table| table.freeze().map(|_| ())),
    ("flush", Sort::Other, flush),
    ("salvage", Sort::Other, |table| {
        let _ = table.freeze()?.salvage();
        Ok(())
    }),
];

/// Every call that waits for another thread, or for which another thread waits.
const CALLS: &[Operation] = &[
    ("put", Sort::Write, |table| table.put(900, &key(900), &key(900)).map(|_| ())),
    ("writer", Sort::Write, |table| table.writer().put(901, &key(901), &key(901)).map(|_| ())),
    ("delete_range", Sort::Write, |table| {
        let end = [key(4000).as_slice(), b"\0"].concat();
        table.delete_range(902, &key(4000), &end).map(|_| ())
    }),
    ("freeze", Sort::Other, |table| table.freeze().map(|_| ())),
    ("immutable", Sort::Other, |table| {
        table.immutable().map_or(Ok(()), |frozen| frozen.scrub(|_| ()).check())
    }),
    ("scrub", Sort::Other, |table| {
        let _ = table.scrub(|_| ());
        Ok(())
    }),
    ("walk", Sort::Other, walk),
    ("counts", Sort::Other, |table| {
        let _ = (table.len(), table.should_flush(), table.largest_sequence(), format!("{table:?}"));
        table.maintain();
        Ok(())
    }),
];

/// Runs an operation. `None`: it panicked.
fn run(
    table: &Table,
    operation: fn(&Table) -> Result<(), Error>,
    deed: Deed,
    fuse: u64,
) -> Option<Result<(), Error>> {
    let plan = &script::<Imp>(table.comparator());
    *plan.deed.lock().unwrap() = Some(deed);
    plan.fuse.store(fuse, Memory::Relaxed);
    INSIDE.set(1);
    let outcome = catch_unwind(AssertUnwindSafe(|| operation(table)));
    INSIDE.set(0);
    outcome.map_err(|payload| assert!(is_known(&*payload))).ok()
}

/// Whether the panic is the comparator's, or that of the standard library's sort over a wrong order.
fn is_known(payload: &dyn Any) -> bool {
    payload.downcast_ref::<&str>().is_some_and(|text| *text == "an imp" || text.contains("total order"))
}

/// Whether the deed was done: its fuse is below zero.
fn done(table: &Table) -> bool {
    script::<Imp>(table.comparator()).fuse.load(Memory::Relaxed) > u64::MAX / 2
}

/// No acknowledged entry is lost, the counts are right, and the table can be used.
fn intact(table: &Table, what: &str) {
    for n in 0..BASE {
        let Lookup::Value(value) = table.get(&key(n), n).unwrap() else { panic!("{what}: {n} is lost") };
        assert_eq!(*value, key(n), "{what}");
    }
    assert!(table.scrub(|_| ()).findings.is_empty(), "{what}: {:?}", table.scrub(|_| ()).findings);
    match table.put(1000, &key(1000), b"") {
        Ok(_) => assert!(matches!(table.get(&key(1000), 1000).unwrap(), Lookup::Value(_)), "{what}"),
        Err(Error::Frozen) => assert!(table.is_frozen()),
        Err(other) => panic!("{what}: {other}"),
    }
    let frozen = table.freeze().unwrap();
    let mut count = Count::default();
    frozen.flush_with(&[], paranoid_memtable::flush::HiddenVersions::Keep, &mut count).unwrap();
    assert_eq!(count.0, frozen.len() as u64, "{what}");
    assert_eq!(frozen.salvage().missing, 0, "{what}");
}

/// Runs each operation with the deed at its first comparison, at its second, and so on; in a debug build not at each.
fn everywhere(
    name: &str,
    deed: Deed,
    mut check: impl FnMut(&Table, &Operation, &str, Option<Result<(), Error>>),
) {
    let test = format!("comparators::{name}");
    let _watchdog = Watchdog::new(&test, 0);
    for operation in OPERATIONS {
        let mut fuse = 0;
        loop {
            let table = table();
            let outcome = run(&table, operation.2, deed, fuse);
            let what = format!("{}, comparison {fuse}", operation.0);
            if !done(&table) {
                outcome.unwrap().unwrap();
                break;
            }
            check(&table, operation, &what, outcome);
            fuse += 1 + fuse / amount(16, 1);
        }
    }
}

#[test]
fn a_panic_leaves_a_table_that_goes_on() {
    everywhere("a_panic_leaves_a_table_that_goes_on", Deed::Panic, |table, _, what, outcome| {
        assert!(outcome.is_none(), "{what}: the panic comes back");
        intact(table, what);
    });
}

/// Answers are meaningless then, but every call ends, also later ones.
#[test]
fn a_lie_ends() {
    everywhere("a_lie_ends", Deed::Lie, |table, _, _, _| {
        let later: [Operation; 4] = [
            ("walk", Sort::Other, walk),
            ("scrub", Sort::Other, scrub),
            ("flush", Sort::Other, flush),
            ("salvage", Sort::Other, |table| {
                table.immutable().map_or(Ok(()), |frozen| {
                    let _ = frozen.salvage();
                    Ok(())
                })
            }),
        ];
        for (_, _, operation) in later {
            let _ = run(table, operation, Deed::Lie, u64::MAX / 4);
        }
    });
}

#[test]
fn a_call_from_inside_ends() {
    for (call, sort, deed) in CALLS {
        everywhere("a_call_from_inside_ends", Deed::Call(*deed), |table, operation, what, outcome| {
            let what = format!("{what}, {call}");
            let answer =
                script::<Imp>(table.comparator()).answer.lock().unwrap().take().expect("it was called");
            let freezes = ["freeze", "flush", "salvage"].contains(&operation.0);
            match (answer, *call) {
                // The freeze would wait for the write that calls it.
                (Err(Error::InvalidArgument(_)), "freeze") => assert_eq!(operation.1, Sort::Write, "{what}"),
                (Err(Error::Frozen), _) => assert!(freezes && *sort == Sort::Write, "{what}"),
                (answer, _) => answer.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            match outcome.expect("no panic") {
                // A batch that was checked before the freeze, or a write that came after it.
                Err(Error::Frozen) => assert!(*call == "freeze" && operation.1 == Sort::Write, "{what}"),
                outcome => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            intact(table, &what);
        });
    }
}

/// A comparator that is called inside a write never causes a deadlock: neither with a freeze that waits for the
/// write, nor with threads that wait for the freeze.
#[test]
fn a_call_from_inside_a_write_that_a_freeze_waits_for_ends() {
    let test = "comparators::a_call_from_inside_a_write_that_a_freeze_waits_for_ends";
    let _watchdog = Watchdog::new(test, 0);
    for (_, _, deed) in CALLS {
        for _ in 0..20 {
            let table = table();
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let outcome =
                        run(&table, |table| table.put(7, &key(77), b"").map(|_| ()), Deed::Call(*deed), 2);
                    assert!(matches!(outcome, Some(Ok(()) | Err(Error::Frozen))), "{outcome:?}");
                });
                threads.spawn(|| table.freeze().unwrap());
            });
            intact(&table, "beside a freeze");
        }
    }
}

/// The flush sorts range tombstones by the comparator's prefixes before it cuts them.
#[test]
fn a_flush_asks_for_images() {
    let table = table();
    let frozen = table.freeze().unwrap();
    let images = &script::<Imp>(table.comparator()).images;
    let before = images.load(Memory::Relaxed);
    frozen.flush(&[], &mut Count::default()).unwrap();
    let asked = images.load(Memory::Relaxed) - before;
    assert!(asked >= table.num_range_deletes(), "{asked}");
}
