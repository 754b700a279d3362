//! Runs batches, switches, flushes, snapshots and scans on a set, which the fuzzer chooses, and
//! compares them with one ordered history: every key at the latest number, and at each kept
//! snapshot and view.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{arbitrary, fuzz_target};
use paranoid_memtable::{Directory, Kind, MemTableOptions, WriteBatch};
use paranoid_set::{MemTableSet, SetOptions, View};

#[path = "../../tests/support/mod.rs"]
mod support;

use support::sets::{History, HistorySource, Known, finish, read_through};

/// More steps make a failure harder to read.
const STEPS_MAX: usize = 40;
const KEYS: u8 = 8;

/// The outcome of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum Outcome {
    Installed,
    Dropped,
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// Entries: key, kind, value or end.
    Write(Vec<(u8, u8, u8)>),
    Switch,
    Flush(Outcome),
    Snapshot,
    View,
    /// Drops the snapshot or the view with this number.
    Drop(u8),
    Look,
}

fn key(n: u8) -> Vec<u8> {
    vec![b'a' + n % KEYS]
}

fn entry(key_of: u8, kind: u8, value: u8) -> (Kind, Vec<u8>, Vec<u8>) {
    let key = key(key_of);
    match kind % 8 {
        0 => (Kind::DELETE, key, vec![]),
        1 => {
            let end = vec![key[0] + 1 + value % KEYS];
            (Kind::RANGE_DELETE, key, end)
        }
        2 | 3 => (Kind::MERGE, key, vec![value; 2]),
        _ => (Kind::PUT, key, vec![value; usize::from(value % 64)]),
    }
}

fn write(set: &MemTableSet<History>, all: &mut History, entries: &[(u8, u8, u8)]) {
    let mut batch = WriteBatch::with_protection(8).expect("a width");
    let first = set.view().sequence() + 1;
    for (sequence, (key, kind, value)) in (first..).zip(entries.iter().take(8)) {
        let (kind, key, value) = entry(*key, *kind, *value);
        batch
            .insert(kind, &key, &value)
            .expect("far below the limits");
        all.insert(sequence, kind, &key, &value);
    }
    assert_eq!(
        set.write(&batch).expect("room"),
        first + batch.len() as u64 - 1
    );
}

fn flush(set: &MemTableSet<History>, outcome: Outcome) {
    let Some(mut job) = set.begin_flush().expect("no other job") else {
        return;
    };
    let mut base = History::clone(set.view().base());
    job.flush(&mut base).expect("nothing is damaged");
    if outcome == Outcome::Installed {
        job.install(|_| Ok(base)).expect("nothing is damaged");
    }
}

fn check(view: &View<History>, all: &History) {
    let at = view.sequence();
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let mut shown = 0;
    for (key, found) in keys.iter().zip(view.multi_get(&keys)) {
        let expected = all.read(key, at, Known::default());
        assert_eq!(read_through(view, key), expected, "{key:?} at {at}");
        assert_eq!(
            finish(view, key, found.expect("whole")),
            expected,
            "{key:?} at {at}"
        );
        shown += usize::from(expected != Known::default());
    }
    let cursor = || {
        view.merging_cursor(vec![Box::new(HistorySource::new(view.base()))])
            .expect("a cursor")
    };
    let forward: Vec<_> = cursor()
        .ascending()
        .map(|entry| entry.expect("whole").user_key().to_vec())
        .collect();
    let mut backward: Vec<_> = cursor()
        .descending()
        .map(|entry| entry.expect("whole").user_key().to_vec())
        .collect();
    backward.reverse();
    assert_eq!(forward, backward, "at {at}");
    assert!(
        forward.is_sorted_by(|left, right| left < right),
        "each key once, in order"
    );
    assert_eq!(forward.len(), shown, "{forward:?} at {at}");
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (how, steps) = input;
    let directory = if how & 2 == 2 {
        Directory::On
    } else {
        Directory::Off
    };
    let tables = MemTableOptions::builder().directory(directory).seed(7);
    let tables = tables.write_buffer_size(16 << 10).build().expect("options");
    let options = SetOptions::builder()
        .table(tables)
        .max_write_buffer_number(64)
        .build()
        .expect("options");
    let set = MemTableSet::open(options, History::default()).expect("a set");
    let (mut all, mut snapshots, mut views) = (History::default(), vec![], vec![]);
    for step in steps.iter().take(STEPS_MAX) {
        match step {
            Step::Write(entries) => write(&set, &mut all, entries),
            Step::Switch => drop(set.switch().expect("room")),
            Step::Flush(outcome) => flush(&set, *outcome),
            Step::Snapshot => snapshots.push(set.snapshot()),
            Step::View => views.push(set.view()),
            Step::Drop(which) if which % 2 == 0 && !snapshots.is_empty() => {
                drop(snapshots.swap_remove(usize::from(which / 2) % snapshots.len()));
            }
            Step::Drop(which) if !views.is_empty() => {
                drop(views.swap_remove(usize::from(which / 2) % views.len()));
            }
            Step::Drop(_) => {}
            Step::Look => check(&set.view(), &all),
        }
    }
    check(&set.view(), &all);
    for snapshot in &snapshots {
        check(&set.view_at(snapshot).expect("of this set"), &all);
    }
    for view in &views {
        check(view, &all);
    }
});
