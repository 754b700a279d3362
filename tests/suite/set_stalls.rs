//! Budgets: a write waits only while somebody flushes, and never for longer than it may.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::scope;
use std::time::{Duration, Instant};

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::set::{
    MemTableSet, MergeError, MergeOperator, SetLookup, SetOptions, StallCause, WriteOptions,
};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, MemTableOptions, WriteBatch};

use crate::support::watchdog::Watchdog;

const TIMEOUT: Duration = Duration::from_millis(20);

/// A set of two tables at most, and a batch of which a few fill one.
fn small(timeout: Duration) -> (MemTableSet<()>, WriteBatch) {
    let tables = MemTableOptions::builder().write_buffer_size(256 << 10).build().unwrap();
    let options = SetOptions::builder().table(tables).max_write_buffer_number(2).stall_timeout(timeout);
    let mut batch = WriteBatch::new();
    batch.put(b"k", &vec![7; 50 << 10]).unwrap();
    (MemTableSet::open(options.build().unwrap(), ()).unwrap(), batch)
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

/// A sink that says when it begins, and goes on when it is told to.
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
        assert!(matches!(set.switch(), Err(Error::WriteStall { tables: 2, .. })));
        let last = set.snapshot().sequence();
        let mut job = set.begin_flush().unwrap().unwrap();
        job.flush(&mut Everything).unwrap();
        job.install(()).unwrap();
        assert_eq!(set.write(&batch).unwrap(), last + 1, "a refused batch takes no number");
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

/// Writers wait for a flush that is under way: its install lets them in, and without one they are answered.
#[test]
fn writers_wait_for_the_flush_that_is_under_way() {
    let _watchdog = Watchdog::new("set_stalls::writers_wait_for_the_flush_that_is_under_way", 0);
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
                    job.install(()).unwrap()
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

/// A thread that keeps its flush to itself, and writes: it waits as long as it may, and no longer.
#[test]
fn a_stall_has_an_end() {
    let _watchdog = Watchdog::new("set_stalls::a_stall_has_an_end", 0);
    let (set, batch) = small(TIMEOUT);
    fill(&set, &batch);
    let job = set.begin_flush().unwrap().unwrap();
    let (tables, waited) = fill(&set, &batch);
    assert!(tables == 2 && waited >= TIMEOUT, "{tables} {waited:?}");
    // Deadlines of single batches are kept, whatever the set's is; one that is over never waits.
    let patient = small(Duration::MAX).0;
    fill(&patient, &batch);
    let other = patient.begin_flush().unwrap().unwrap();
    for least in [Duration::ZERO, TIMEOUT] {
        let begun = Instant::now();
        let refused = patient.write_with(&batch, WriteOptions::new().deadline(begun + least)).unwrap_err();
        let Error::WriteStall { cause, waited, .. } = refused else { panic!("{refused}") };
        assert_eq!(cause, StallCause::Tables);
        assert!(begun.elapsed() >= least && (waited.is_zero() || !least.is_zero()), "{waited:?}");
    }
    drop((job, other));
    assert_eq!(fill(&set, &batch), (2, Duration::ZERO));
    assert!(SetOptions::builder().max_write_buffer_number(1).build().is_err());
}

/// Joins operands; refuses some.
struct Join;

impl MergeOperator for Join {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        if operands.contains(&b"refused".as_slice()) {
            return Err(format!("{} bytes of key", key.len()).into());
        }
        Ok([base.unwrap_or(b"-"), &operands.concat()].concat())
    }
}

/// Operands of several tables are applied oldest first, to what is below them; an error is one of its key alone.
#[test]
fn operands_are_applied_across_tables() {
    let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
    let merge = |key: &[u8], operands: &[&[u8]]| {
        let mut batch = WriteBatch::new();
        operands.iter().for_each(|operand| batch.merge(key, operand).unwrap());
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
        SetLookup::Merge(pending) => pending.apply(&Join, key, Some(b"below")),
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
        merged.push(found.merged(&Join).unwrap_or_default());
        entry = cursor.next().unwrap();
    }
    assert_eq!(merged, [b"0123".as_slice(), b"-123", b"-123", b""]);
}
