//! Listeners: what they are told and when; one that panics, one that calls the set, and many threads at once.

use std::sync::{Arc, Mutex};
use std::thread::{scope, yield_now};
use std::time::Duration;

use paranoid_memtable::set::{
    Durability, Listener, MemTableSet, SetEvent, SetOptions, SetOptionsBuilder, StallCause,
};
use paranoid_memtable::{Error, MemTableOptions, WriteBatch};

use crate::support::rng::amount_or_few;
use crate::support::sets::{History, MemoryJournal, read_through};
use crate::support::watchdog::Watchdog;

type Set = MemTableSet<History>;

fn put(n: u64) -> WriteBatch {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"k", &[&n.to_be_bytes()[..], &[7; 3000]].concat()).unwrap();
    batch
}

fn options(listener: Arc<dyn Listener>) -> SetOptionsBuilder {
    let tables = MemTableOptions::builder()
        .write_buffer_size(if cfg!(miri) { 6 << 10 } else { 64 << 10 })
        .build()
        .unwrap();
    SetOptions::builder().table(tables).listener(listener).stall_timeout(Duration::MAX)
}

fn open(options: SetOptionsBuilder) -> Set {
    MemTableSet::open(options.build().unwrap(), History::default()).unwrap()
}

fn flush(set: &Set) -> usize {
    let Some(mut job) = set.begin_flush().unwrap() else { return 0 };
    let mut base = History::clone(set.view().base());
    job.flush(&mut base).unwrap();
    let tables = job.tables();
    job.install(base).unwrap();
    tables
}

/// Writes down what it is told.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Listener for Diary {
    fn event(&self, event: &SetEvent) {
        let line = match event {
            SetEvent::Switched { sealed, active, .. } => format!("switched {sealed} {active}"),
            SetEvent::FreezeBegun { table, .. } => format!("freeze begun {table}"),
            SetEvent::FreezeEnded { table, .. } => format!("freeze ended {table}"),
            SetEvent::FlushBegun { tables, last_sequence, .. } => {
                format!("flush begun {tables} {last_sequence}")
            }
            SetEvent::FlushEnded { last_sequence, installed, .. } => {
                format!("flush ended {last_sequence} {installed}")
            }
            SetEvent::StallBegun { cause, .. } => format!("stall begun {cause:?}"),
            SetEvent::StallEnded { waited, refused, .. } => {
                format!("stall ended {} {refused:?}", waited.is_zero())
            }
            SetEvent::Stopped { cause, .. } => format!("stopped {}", matches!(cause, Error::ReadOnly { .. })),
            SetEvent::Resumed { abandoned, .. } => format!("resumed {abandoned:?}"),
            other => panic!("{other:?}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn a_listener_is_told_what_begins_and_ends() {
    let _watchdog = Watchdog::new("set_listener::a_listener_is_told_what_begins_and_ends", 0);
    let (diary, journal) = (Arc::new(Diary::default()), MemoryJournal::default());
    let set = open(options(diary.clone()).max_write_buffer_number(2).journal(Arc::new(journal.clone())));
    let told = || std::mem::take(&mut *diary.0.lock().unwrap());
    set.write(&put(1)).unwrap();
    assert!(told().is_empty(), "a write alone is nothing to be told");
    set.switch().unwrap();
    assert_eq!(told(), ["switched 1 2"]);
    drop(set.begin_flush().unwrap());
    assert_eq!(told(), ["freeze begun 1", "freeze ended 1", "flush begun 1 1", "flush ended 1 0"]);
    assert_eq!(flush(&set), 1);
    assert_eq!(told(), ["freeze begun 1", "freeze ended 1", "flush begun 1 1", "flush ended 1 1"]);
    journal.0.lock().unwrap().sync_fails = Some(Error::Frozen);
    assert!(set.write_with(&put(2), Durability::Synced).is_err());
    assert!(set.write(&put(3)).is_err());
    assert_eq!(told(), ["stopped true"]);
    set.resume().unwrap();
    assert_eq!(told(), ["resumed Some((2, 2))"]);
    while set.write(&put(4)).is_ok() {}
    let (stalls, flushes) = (set.stats().stalls, set.stats().flushes);
    assert_eq!((stalls, flushes), (1, 1));
    let events = told();
    assert_eq!(
        events.last_chunk(),
        Some(&["stall begun Tables".into(), "stall ended true Some(Tables)".into()])
    );
    assert_eq!(flush(&set), 1);
    assert_eq!(set.stats().flushes, 2);
}

/// Panics at every event, or calls the set from it.
struct Rude {
    /// Taken at the end: the set holds its listener, and nobody would drop the two.
    set: Mutex<Option<Set>>,
    told: Mutex<u64>,
    panics: Panics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Never,
    Always,
}

impl Listener for Rude {
    fn event(&self, event: &SetEvent) {
        *self.told.lock().unwrap() += 1;
        assert_ne!(self.panics, Panics::Always, "a listener panics at {event:?}");
        let Some(set) = self.set.lock().unwrap().clone() else { return };
        let _ = (set.view().get(b"k").unwrap(), set.snapshot(), set.stats(), set.read_only());
        if matches!(event, SetEvent::Switched { .. }) {
            drop(set.begin_flush());
        }
        if matches!(event, SetEvent::FlushEnded { .. }) {
            let _ = set.switch();
        }
    }
}

/// Writers, a flush thread and a listener that panics or calls the set: nobody waits for ever, and nothing is lost.
#[test]
fn a_rude_listener_harms_nobody() {
    let _watchdog = Watchdog::new("set_listener::a_rude_listener_harms_nobody", 0);
    for panics in [Panics::Never, Panics::Always] {
        let rude = Arc::new(Rude { set: Mutex::default(), told: Mutex::new(0), panics });
        let set = open(options(rude.clone()).max_write_buffer_number(3));
        *rude.set.lock().unwrap() = Some(set.clone());
        let of_thread = set.clone();
        let thread = set.start_flush_thread(move |mut job| {
            let mut base = History::clone(of_thread.view().base());
            job.flush(&mut base)?;
            job.install(base)
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
                                Err(Error::WriteStall { cause: StallCause::Tables, .. }) => {
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
        assert!(*rude.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) > 3);
        assert_eq!(set.snapshot().sequence(), 2 * writes);
        rude.set.lock().unwrap().take();
    }
}
