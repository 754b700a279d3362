//! Cursors over the tables of a set and the base below them: what they show is what the history says, in any order of
//! moves; and what they show of damaged tables is right, or comes after an error.

use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use paranoid_memtable::read::Base;
use paranoid_memtable::set::{MemTableSet, MergedEntry, MergingCursor, SetOptions, SetRange, View};
use paranoid_memtable::{Bytewise, Error, Kind, WriteBatch};

use crate::support::orders::CaseBlind;
use crate::support::rng::Rng;
use crate::support::sets::{History, HistorySource, Known};
use crate::support::under::set_under;

/// What a cursor should show: keys in order, each with what is known of it.
type Rows = Vec<(Vec<u8>, Known)>;

fn rows(all: &History, keys: &[Vec<u8>], sequence: u64) -> Rows {
    let known = |key: &Vec<u8>| (key.clone(), all.read(key, sequence, Known::default()));
    let is_shown = |row: &(Vec<u8>, Known)| row.1.value.is_some() || !row.1.operands.is_empty();
    keys.iter().map(known).filter(is_shown).collect()
}

pub(crate) fn row(entry: &MergedEntry) -> (Vec<u8>, Known) {
    let value = match (entry.operands(), entry.base()) {
        ([], _) => Some(entry.value().to_vec()),
        (_, Base::Value(value)) => Some(value.to_vec()),
        _ => None,
    };
    (entry.user_key().to_vec(), Known { operands: entry.operands().to_vec(), value })
}

/// Moves a cursor over a view and its base at random. `keys` ascend.
pub(crate) fn walk(view: &View<History>, all: &History, keys: &[Vec<u8>], rng: &mut Rng) {
    let rows = rows(all, keys, view.sequence());
    let mut cursor = view.merging_cursor(vec![Box::new(HistorySource::new(view.base()))]).unwrap();
    let mut at: Option<usize> = None;
    for _ in 0..40 {
        let key = rng.pick(keys);
        let (moved, to) = match rng.below(10) {
            0 => (cursor.first(), Some(0)),
            1 => (cursor.last(), rows.len().checked_sub(1)),
            2 => (cursor.seek(key), Some(rows.partition_point(|row| row.0 < *key))),
            3 => (cursor.seek_for_prev(key), rows.partition_point(|row| row.0 <= *key).checked_sub(1)),
            4..7 => (cursor.prev(), at.and_then(|at| at.checked_sub(1))),
            _ => (cursor.next(), at.map(|at| at + 1)),
        };
        at = to.filter(|to| *to < rows.len());
        assert_eq!(moved.unwrap().map(row), at.map(|at| rows[at].clone()), "at {}", view.sequence());
        assert_eq!(cursor.entry().map(row), at.map(|at| rows[at].clone()));
    }
    bounded(view, &rows, keys, rng);
}

/// Keys that compare equal may differ in bytes: a key is shown as its newest version has it, whichever way the cursor came.
#[test]
fn a_key_is_that_of_its_newest_version() {
    let set = MemTableSet::open(set_under(CaseBlind), ()).unwrap();
    let write = |key: &[u8], kind| {
        let mut batch = WriteBatch::new();
        batch.insert(kind, key, b"1").unwrap();
        set.write(&batch).unwrap()
    };
    write(b"a", Kind::PUT);
    write(b"key", Kind::PUT);
    set.switch().unwrap();
    write(b"Key", Kind::MERGE);
    write(b"KEY", Kind::MERGE);
    set.switch().unwrap();
    let view = set.view();
    write(b"kEY", Kind::PUT);
    for (view, shown) in [(view, b"KEY"), (set.view(), b"kEY")] {
        let mut cursor = view.cursor().unwrap();
        let name = |moved: paranoid_memtable::Result<Option<&MergedEntry>>| {
            moved.unwrap().map(|entry| entry.user_key().to_vec())
        };
        let names = [
            name(cursor.last()),
            name(cursor.prev()),
            name(cursor.next()),
            name(cursor.seek_for_prev(b"kez")),
        ];
        assert_eq!(names, [&shown[..], b"a", shown, shown].map(|name| Some(name.to_vec())));
    }
}

/// Whole scans between two bounds, both ways.
fn bounded(view: &View<History>, rows: &Rows, keys: &[Vec<u8>], rng: &mut Rng) {
    let mut draw = || {
        let key = rng.pick(keys).as_slice();
        *rng.pick(&[Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)])
    };
    let (lower, upper) = (draw(), draw());
    let is_inside = |row: &&(Vec<u8>, Known)| {
        let (after, before) = (row.0.as_slice(), row.0.as_slice());
        let from = match lower {
            Bound::Unbounded => true,
            Bound::Included(key) => after >= key,
            Bound::Excluded(key) => after > key,
        };
        from && match upper {
            Bound::Unbounded => true,
            Bound::Included(key) => before <= key,
            Bound::Excluded(key) => before < key,
        }
    };
    let expected: Rows = rows.iter().filter(is_inside).cloned().collect();
    let sources = || HistorySource::new(view.base());
    let cursor = || view.merging_cursor(vec![Box::new(sources())]).unwrap().with_bounds(lower, upper);
    let mut backward = all_of(&mut cursor(), Way::Backward).0;
    backward.reverse();
    assert_eq!(all_of(&mut cursor(), Way::Forward).0, expected, "{lower:?} to {upper:?}");
    assert_eq!(backward, expected, "{lower:?} to {upper:?}");
    let mut range = view.merging_range(|| vec![Box::new(sources())], (lower, upper)).unwrap();
    let mut rest = expected.iter();
    loop {
        let (found, wanted) = match rng.below(4) {
            0 => (range.next_entry().unwrap().map(row), rest.next()),
            1 => (range.next_back_entry().unwrap().map(row), rest.next_back()),
            2 => (range.next().map(|entry| row(&entry.unwrap())), rest.next()),
            _ => (range.next_back().map(|entry| row(&entry.unwrap())), rest.next_back()),
        };
        assert_eq!(found.as_ref(), wanted, "{lower:?} to {upper:?}");
        if wanted.is_none() {
            break;
        }
    }
    assert!(range.next().is_none() && range.next_back().is_none(), "what is over stays over");
    let range = view.merging_range(|| vec![Box::new(sources())], (lower, upper)).unwrap();
    sought(range, &expected, keys, rng);
}

/// A range whose ends are sought and moved at random: an end shows what lies between its place and the other's.
fn sought(mut range: SetRange<'_>, expected: &Rows, keys: &[Vec<u8>], rng: &mut Rng) {
    // The rows from `front` on and before `back` may be shown, by the end that moves.
    let (mut front, mut back) = (0, expected.len());
    for _ in 0..30 {
        let key = rng.pick(keys);
        let between = |front: usize, back: usize| expected.get(front..back).unwrap_or_default();
        match rng.below(6) {
            0 => {
                range.seek(key);
                front = expected.partition_point(|row| row.0 < *key);
            }
            1 => {
                range.seek_for_prev(key);
                back = expected.partition_point(|row| row.0 <= *key);
            }
            2 | 3 => {
                let wanted = between(front, back).first();
                assert_eq!(range.next_entry().unwrap().map(row).as_ref(), wanted, "{front} to {back}");
                front += usize::from(wanted.is_some());
            }
            _ => {
                let wanted = between(front, back).last();
                assert_eq!(range.next_back_entry().unwrap().map(row).as_ref(), wanted, "{front} to {back}");
                back -= usize::from(wanted.is_some());
            }
        }
    }
}

/// Compactions give old entries the number 0: an excluded bound leaves these out as well.
#[test]
fn an_excluded_bound_leaves_out_the_number_0() {
    let mut base = History::default();
    [b"a", b"b"].iter().for_each(|key| base.insert(0, Kind::PUT, *key, b"value"));
    let cursor = MergingCursor::over(Arc::new(Bytewise), 1, vec![Box::new(HistorySource::new(&base))]);
    let mut cursor = cursor.with_bounds(Bound::Excluded(b"a"), Bound::Unbounded);
    assert_eq!(cursor.first().unwrap().map(MergedEntry::user_key), Some(b"b".as_slice()));
}

/// What a task of an async runtime holds over an `await` may move to another thread with it.
#[test]
fn a_future_that_holds_a_view_or_a_cursor_is_send() {
    fn is_send<T: Send + 'static>(task: T) -> T {
        task
    }
    let set = MemTableSet::open(SetOptions::default(), History::default()).unwrap();
    let (view, snapshot) = (set.view(), set.snapshot());
    let task = is_send(async move {
        let mut cursor = view.cursor()?;
        std::future::ready(()).await;
        let mut range = view.range(..)?;
        let first = cursor.first()?.is_none();
        std::future::ready(()).await;
        let is_empty = first && range.next().is_none() && snapshot.sequence() == 0;
        let job = set.begin_flush()?;
        std::future::ready(()).await;
        Ok::<_, Error>(is_empty && job.is_none())
    });
    let mut task = Box::pin(task);
    let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(true))));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// Everything that a cursor shows one way, and how many errors it met.
fn all_of(cursor: &mut MergingCursor<'_>, way: Way) -> (Rows, usize) {
    let (mut shown, mut errors) = (vec![], 0);
    let mut moved = if way == Way::Forward { cursor.first() } else { cursor.last() };
    loop {
        match moved {
            Ok(Some(entry)) => shown.push(row(entry)),
            Ok(None) => return (shown, errors),
            Err(error) => {
                assert!(error.corruption().is_some(), "{error}");
                errors += 1;
                assert!(errors < 1000, "a scan ends");
            }
        }
        moved = if way == Way::Forward { cursor.next() } else { cursor.prev() };
    }
}

#[cfg(feature = "fault-injection")]
mod damaged {
    use std::sync::Arc;

    use paranoid_memtable::MemTableOptions;
    use paranoid_memtable::fault::FaultInjector;
    use paranoid_memtable::set::FlushJob;

    use super::*;
    use crate::support::rng::amount;
    use crate::support::sets::finish;
    use crate::support::watchdog::Watchdog;

    /// Three immutable tables whose entries hide each other.
    fn made() -> (MemTableSet<History>, History) {
        let tables = MemTableOptions::builder().write_buffer_size(64 << 10).seed(3).build().unwrap();
        let options = SetOptions::builder().table(tables).build().unwrap();
        let set = MemTableSet::open(options, History::default()).unwrap();
        let mut all = History::default();
        let mut sequence = 0;
        for table in [
            [(Kind::PUT, "a", "1"), (Kind::PUT, "b", "2"), (Kind::PUT, "d", "3"), (Kind::PUT, "f", "4")],
            [(Kind::DELETE, "b", ""), (Kind::MERGE, "d", "+"), (Kind::PUT, "e", "5"), (Kind::PUT, "a", "6")],
            [
                (Kind::RANGE_DELETE, "e", "g"),
                (Kind::PUT, "c", "7"),
                (Kind::PUT, "f", "8"),
                (Kind::MERGE, "d", "x"),
            ],
        ] {
            let mut batch = WriteBatch::with_protection(8).unwrap();
            for (kind, key, value) in table {
                sequence += 1;
                batch.insert(kind, key.as_bytes(), value.as_bytes()).unwrap();
                all.insert(sequence, kind, key.as_bytes(), value.as_bytes());
            }
            set.write(&batch).unwrap();
            set.switch().unwrap();
        }
        (set, all)
    }

    fn keys() -> Vec<Vec<u8>> {
        (b'a'..=b'h').map(|letter| vec![letter]).collect()
    }

    /// What is shown is right and in order, and what is missing comes with an error.
    fn check(view: &View<History>, all: &History, what: &str) {
        let expected = rows(all, &keys(), view.sequence());
        for way in [Way::Forward, Way::Backward] {
            let Ok(mut cursor) = view.cursor() else { continue };
            let (shown, errors) = all_of(&mut cursor, way);
            let mut rest = expected.clone();
            if way == Way::Backward {
                rest.reverse();
            }
            let mut rest = rest.iter();
            for row in &shown {
                assert!(rest.any(|expected| expected == row), "{what}: {row:?}");
            }
            assert!(errors > 0 || shown.len() == expected.len(), "{what}: rows are missing");
            let Ok(mut range) = view.range(..) else { continue };
            let (mut kept, mut failed) = (0, 0);
            while let Some(entry) = if way == Way::Forward { range.next() } else { range.next_back() } {
                match entry {
                    Ok(entry) => {
                        assert!(expected.contains(&row(&entry)), "{what}: {entry:?}");
                        kept += 1;
                    }
                    Err(error) => {
                        assert!(error.corruption().is_some(), "{what}: {error}");
                        failed += 1;
                    }
                }
            }
            assert!(failed > 0 || kept == expected.len(), "{what}: rows are missing");
        }
        for key in keys() {
            match view.get(&key) {
                Ok(found) => {
                    let expected = all.read(&key, view.sequence(), Known::default());
                    assert_eq!(finish(view, &key, found), expected, "{what}: {key:?}");
                }
                Err(error) => assert!(error.corruption().is_some(), "{what}: {error}"),
            }
        }
    }

    /// A flush hands out everything, or says what is damaged.
    fn flush(job: &mut FlushJob<History>, all: &History, what: &str) {
        let mut base = History::default();
        match job.flush(&mut base) {
            Ok(_) => {
                for key in keys() {
                    let last = job.last_sequence();
                    let read = |history: &History| history.read(&key, last, Known::default());
                    assert_eq!(read(&base), read(all), "{what}: {key:?}");
                }
            }
            Err(Error::ReadOnly { cause }) => assert!(cause.corruption().is_some(), "{what}: {cause}"),
            Err(other) => panic!("{what}: {other}"),
        }
    }

    /// Bits of every entry, link and control word of every immutable table of a set, one after the other.
    #[test]
    fn no_flipped_bit_of_a_table_turns_an_answer() {
        let _watchdog = Watchdog::new("set_scans::damaged::no_flipped_bit_of_a_table_turns_an_answer", 0);
        let (set, all) = made();
        let mut job = set.begin_flush().unwrap().expect("three tables");
        let view = set.view();
        check(&view, &all, "intact");
        let (mut number, stride) = (0u64, 6000 / amount(6000, 400));
        for (place, reader) in view.readers().enumerate().skip(1) {
            #[expect(unsafe_code, reason = "the fault injector breaks the memory on purpose")]
            // SAFETY: one thread, and nothing borrowed is held while a bit is changed.
            let mut injector = unsafe { FaultInjector::open(reader) }.unwrap();
            for piece in 0..injector.pieces().len() {
                for bit in 0..injector.pieces()[piece].len() * 8 {
                    number += 1;
                    if !number.is_multiple_of(stride) {
                        continue;
                    }
                    injector.flip(piece, bit);
                    let what = format!("table {place}, {:?}, bit {bit}", injector.pieces()[piece]);
                    check(&view, &all, &what);
                    flush(&mut job, &all, &what);
                    injector.undo();
                }
            }
        }
        check(&view, &all, "mended");
        let refused = set.write(&WriteBatch::new()).unwrap_err();
        assert!(refused.corruption().is_some(), "a flush that met damage made the set read-only: {refused}");
        flush(&mut job, &all, "mended");
        assert!(job.install(Arc::unwrap_or_clone(Arc::new(History::default()))).is_ok());
    }
}
