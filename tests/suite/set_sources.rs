//! Sources, comparators and merge operators of an engine that misbehave: sources that do not
//! advance, entries outside the bounds of a level, and panics in every call. All cursors and
//! compactions over them end, with the right result or with an error. After a panic only a seek
//! continues.

use std::cmp::Reverse;
use std::error::Error as StdError;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use paranoid_memtable::scan::{Cover, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::{Bytewise, Comparator, Error, Kind, MemTableOptions, Result, WriteBatch};
use paranoid_set::{
    Compaction, Level, MemTableSet, MergeOperator, MergedEntry, MergingCursor, SetOptions, View,
};

use crate::support::orders::{Script, Scripted};
use crate::support::rng::Watchdog;
use crate::support::sets::{History, HistorySource};
use crate::support::under;

type Rows = Vec<(Vec<u8>, u64)>;

/// A history with every kind of entry, and several versions of its keys.
fn history() -> History {
    let mut all = History::default();
    for (sequence, kind, key, value) in [
        (1, Kind::PUT, "a", "1"),
        (2, Kind::PUT, "c", "2"),
        (3, Kind::MERGE, "c", "3"),
        (4, Kind::MERGE, "c", "4"),
        (5, Kind::PUT, "d", "5"),
        (6, Kind::RANGE_DELETE, "d", "f"),
        (7, Kind::PUT, "e", "7"),
        (8, Kind::SINGLE_DELETE, "a", ""),
        (9, Kind::PUT, "g", "9"),
        (10, Kind::DELETE, "g", ""),
        (11, Kind::PUT, "h", "11"),
    ] {
        all.insert(sequence, kind, key.as_bytes(), value.as_bytes());
    }
    all
}

/// The number of the newest version of each key that a view at this number shows.
const SHOWN: [(&[u8], u64); 3] = [(b"c", 4), (b"e", 7), (b"h", 11)];

fn shown() -> Rows {
    SHOWN
        .map(|(key, sequence)| (key.to_vec(), sequence))
        .to_vec()
}

fn row(entry: &MergedEntry) -> (Vec<u8>, u64) {
    (entry.user_key().to_vec(), entry.sequence())
}

/// An empty set's view at a number.
fn view(last: u64) -> View<()> {
    MemTableSet::open(
        SetOptions::builder().last_sequence(last).build().unwrap(),
        (),
    )
    .unwrap()
    .view()
}

/// The action of a source in place of a move.
#[derive(Debug, Clone, Copy)]
enum Instead {
    Stays,
    GoesTo(SourceMove<'static>),
}

/// A source that makes a wrong move, from one call.
struct Wayward<'h> {
    items: HistorySource<'h>,
    at: Option<(Vec<u8>, u64, Kind)>,
    instead: Instead,
    /// Number of calls before it begins.
    until: u64,
    calls: u64,
}

impl SortedSource for Wayward<'_> {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        self.calls += 1;
        assert!(self.calls < 10_000, "a loop without an end");
        let is_wrong = self.calls > self.until && self.at.is_some();
        let found = match self.instead {
            Instead::Stays if is_wrong => {
                let at = self.at.as_ref();
                return Ok(at.map(|(user_key, sequence, kind)| SourceKey {
                    user_key,
                    sequence: *sequence,
                    kind: *kind,
                }));
            }
            Instead::GoesTo(other) if is_wrong => self.items.go(other)?,
            _ => self.items.go(to)?,
        };
        self.at = found.map(|at| (at.user_key.to_vec(), at.sequence, at.kind));
        Ok(found)
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        self.items.value_into(value)
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        self.items.range_tombstones(take)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

const WAYS: [Way; 2] = [Way::Forward, Way::Backward];

/// Pulls a cursor in one direction. Returns its rows and its errors.
fn pulled(cursor: &mut MergingCursor<'_>, way: Way) -> (Rows, Vec<Error>) {
    let (mut rows, mut errors) = (vec![], vec![]);
    let mut moved = if way == Way::Forward {
        cursor.first()
    } else {
        cursor.last()
    };
    for _ in 0..1000 {
        match moved {
            Ok(Some(entry)) => rows.push(row(entry)),
            Ok(None) => return (rows, errors),
            Err(error) => errors.push(error),
        }
        moved = if way == Way::Forward {
            cursor.next()
        } else {
            cursor.prev()
        };
    }
    panic!("a scan without an end: {rows:?}");
}

/// The error names the source, which is the second one.
fn assert_named(error: &Error, what: &str) {
    let Error::InvalidArgument(text) = error else {
        panic!("{what}: {error}")
    };
    assert!(text.contains("source 1 does not go on"), "{what}: {text}");
}

/// From each of its calls, a source stays where it is, or goes back to an end. Scans both ways,
/// gets and compactions end. Those that cannot continue name the source.
#[test]
fn a_source_that_does_not_advance_is_an_error() {
    let _watchdog = Watchdog::new("set_sources::a_source_that_does_not_advance_is_an_error", 0);
    let (all, none) = (history(), History::default());
    let ways = [
        Instead::Stays,
        Instead::GoesTo(SourceMove::First),
        Instead::GoesTo(SourceMove::Last),
    ];
    for (instead, until) in ways
        .into_iter()
        .flat_map(|way| (0..30).map(move |until| (way, until)))
    {
        let what = format!("{instead:?} from call {until} on");
        let sources = || -> Vec<Box<dyn SortedSource + '_>> {
            let items = HistorySource::new(&all);
            let wayward = Wayward {
                items,
                at: None,
                instead,
                until,
                calls: 0,
            };
            vec![Box::new(HistorySource::new(&none)), Box::new(wayward)]
        };
        for way in WAYS {
            for last in [2, 6, 11] {
                let mut cursor = view(last).merging_cursor(sources()).unwrap();
                let (rows, errors) = pulled(&mut cursor, way);
                errors.iter().for_each(|error| assert_named(error, &what));
                assert!(errors.len() <= 1, "{what}: {errors:?}");
                let in_order =
                    |pair: &[(Vec<u8>, u64)]| (pair[0].0 < pair[1].0) == (way == Way::Forward);
                assert!(rows.windows(2).all(in_order), "{what}: {rows:?}");
                let stays = matches!(instead, Instead::Stays) && until <= 1;
                assert!(!stays || errors.len() == 1, "{what}: {rows:?}");
            }
        }
        for key in ["a", "c", "e", "g"] {
            if let Err(error) = view(11).merging_get(key, sources) {
                assert_named(&error, &what);
            }
        }
        for found in view(11).merging_multi_get(&["g", "c", "e", "a"], sources()) {
            found
                .err()
                .iter()
                .for_each(|error| assert_named(error, &what));
        }
        for is_lowest in [false, true] {
            let merge = Compaction::over(Arc::new(Bytewise), &[4], sources());
            let mut merge = if is_lowest {
                merge.to_lowest_level()
            } else {
                merge
            };
            let ended = loop {
                match merge.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let comes_to_it = until <= all.points.len() as u64;
            assert_eq!(ended.is_some(), comes_to_it, "{what}: a compaction");
            if let Some(error) = ended {
                assert_named(&error, &what);
                assert_named(&merge.next().map(drop).unwrap_err(), &what);
            }
        }
    }
}

/// A level's file has an entry outside its bounds: the move that meets the entry returns an error.
#[test]
fn an_entry_outside_its_bounds_is_an_error() {
    let all = history();
    for (first, end, is_inside) in [
        ("a", Bound::Included("h"), true),
        ("a", Bound::Unbounded, true),
        ("a", Bound::Excluded("h"), false),
        ("b", Bound::Included("h"), false),
    ] {
        let bounds = vec![(
            first.as_bytes().to_vec(),
            end.map(|end| end.as_bytes().to_vec()),
        )];
        let open = |_| Ok(Box::new(HistorySource::new(&all)) as Box<dyn SortedSource>);
        let mut level = Level::new(Arc::new(Bytewise), bounds).unwrap().source(open);
        let mut outside = 0;
        let mut to = SourceMove::First;
        for _ in 0..all.points.len() {
            outside += usize::from(level.go(to).is_err());
            to = SourceMove::Next;
        }
        assert!(
            level.go(SourceMove::Next).unwrap().is_none(),
            "{first} {end:?}"
        );
        assert_eq!(outside == 0, is_inside, "{first} {end:?}");
    }
}

/// Number of calls before the next panic. Below 0: no panic.
#[derive(Debug, Default)]
struct Fuse(AtomicI64);

impl Fuse {
    fn burn(&self) {
        if self.0.fetch_sub(1, Relaxed) == 1 {
            resume_unwind(Box::new("the fuse blows, without a message"));
        }
    }
}

/// A comparator, a merge operator and a source that panic at one of their calls. All other calls
/// are right.
#[derive(Debug, Clone, Default)]
struct Panics(Arc<Fuse>);

impl Script for Panics {
    fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        self.0.burn();
        left.cmp(right)
    }
}

impl MergeOperator for Panics {
    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        self.0.burn();
        Ok([base.unwrap_or_default(), &operands.concat()].concat())
    }

    fn combine(&self, _: &[u8], _: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.burn();
        None
    }
}

struct Panicking<'h>(HistorySource<'h>, Panics);

impl SortedSource for Panicking<'_> {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        self.1.0.burn();
        self.0.go(to)
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        self.1.0.burn();
        self.0.value_into(value)
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        self.1.0.burn();
        self.0.range_tombstones(take)
    }

    fn cover(
        &mut self,
        order: &dyn Comparator,
        key: &[u8],
        snapshot: u64,
    ) -> Result<Option<Cover<'_>>> {
        self.1.0.burn();
        self.0.cover(order, key, snapshot)
    }

    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        self.1.0.burn();
        self.0.may_hold(key)
    }
}

/// A set with the newer half of the history in tables, and the older half for a source below.
struct Halves {
    panics: Panics,
    set: MemTableSet<()>,
    older: [History; 2],
}

impl Halves {
    fn new() -> Halves {
        let panics = Panics::default();
        let order = Scripted::new(panics.clone());
        let table = under(MemTableOptions::builder(), order);
        let options = SetOptions::builder()
            .table(table)
            .last_sequence(5)
            .build()
            .unwrap();
        let set = MemTableSet::open(options, ()).unwrap();
        let (all, mut older) = (history(), [History::default(), History::default()]);
        let mut newer: Vec<_> = all
            .ranges
            .iter()
            .map(|(start, end, at)| (*at, Kind::RANGE_DELETE, start, end))
            .collect();
        for ((key, Reverse(sequence)), (kind, value)) in &all.points {
            match sequence {
                ..=5 => older[usize::from(key.as_slice() > b"a".as_slice())]
                    .insert(*sequence, *kind, key, value),
                _ => newer.push((*sequence, *kind, key, value)),
            }
        }
        newer.sort_unstable();
        for (sequence, kind, key, value) in newer {
            let mut batch = WriteBatch::new();
            batch.insert(kind, key, value).unwrap();
            assert_eq!(set.write(&batch).unwrap(), sequence);
            if sequence == 8 {
                set.switch().unwrap();
            }
        }
        Halves { panics, set, older }
    }

    fn order(&self) -> Arc<dyn Comparator> {
        Arc::new(Scripted::new(self.panics.clone()))
    }

    /// The older half, as a level of two files that touch.
    fn below(&self) -> Vec<Box<dyn SortedSource + '_>> {
        let bounds = vec![
            (b"a".to_vec(), Bound::Excluded(b"b".to_vec())),
            (b"b".to_vec(), Bound::Included(b"d".to_vec())),
        ];
        let open = |place: usize| {
            self.panics.0.burn();
            let items = HistorySource::new(&self.older[place]);
            Ok(Box::new(Panicking(items, self.panics.clone())) as Box<dyn SortedSource>)
        };
        vec![Box::new(
            Level::new(self.order(), bounds).unwrap().source(open),
        )]
    }

    /// Runs `act` with a panic at each of its calls, until there is no such call. `act` gets a
    /// function for calls that may panic, which returns `None` after a panic.
    fn at_every_call(&self, mut act: impl FnMut(&Fuse)) {
        for call in 1.. {
            assert!(call < 10_000, "calls without an end");
            self.panics.0.0.store(call, Relaxed);
            act(&self.panics.0);
            if self.panics.0.0.swap(0, Relaxed) > 0 {
                return;
            }
        }
    }
}

/// The result of a call. `None`: it panicked.
fn caught<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

fn panicked<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::ReaderPanicked))
}

/// After a panic at any call, steps of a cursor are errors until a seek, which finds everything.
#[test]
fn a_cursor_continues_with_a_seek_after_a_panic() {
    let _watchdog = Watchdog::new(
        "set_sources::a_cursor_continues_with_a_seek_after_a_panic",
        0,
    );
    let halves = Halves::new();
    let view = halves.set.view();
    for way in WAYS {
        let mut wanted = shown();
        if way == Way::Backward {
            wanted.reverse();
        }
        let mut panics = 0;
        halves.at_every_call(|fuse| {
            let Some(mut cursor) = caught(|| view.merging_cursor(halves.below()).unwrap()) else {
                return;
            };
            let mut rows = vec![];
            let has_panicked = loop {
                let moved = caught(|| {
                    let moved = match (way, rows.is_empty()) {
                        (Way::Forward, true) => cursor.first(),
                        (Way::Forward, false) => cursor.next(),
                        (Way::Backward, true) => cursor.last(),
                        (Way::Backward, false) => cursor.prev(),
                    };
                    moved.unwrap().map(row)
                });
                match moved {
                    Some(Some(at)) => rows.push(at),
                    Some(None) => break false,
                    None => break true,
                }
            };
            assert_eq!(rows, wanted[..rows.len()]);
            if has_panicked {
                panics += 1;
                for _ in 0..2 {
                    assert!(
                        panicked(cursor.next())
                            && panicked(cursor.prev())
                            && cursor.entry().is_none()
                    );
                }
                assert_eq!(pulled(&mut cursor, way).0, wanted);
                assert!(fuse.0.load(Relaxed) <= 0);
            } else {
                assert_eq!(rows, wanted);
            }
        });
        assert!(panics > 50, "{panics} panics");
    }
}

#[test]
fn an_iterator_is_over_after_a_panic() {
    let halves = Halves::new();
    let view = halves.set.view();
    halves.at_every_call(|_| {
        let Some(cursor) = caught(|| view.merging_cursor(halves.below()).unwrap()) else {
            return;
        };
        let (mut entries, mut rows) = (cursor.ascending(), vec![]);
        loop {
            match caught(|| entries.next()) {
                Some(Some(entry)) => rows.push(row(&entry.unwrap())),
                Some(None) => {
                    assert_eq!(rows, shown());
                    break;
                }
                None => {
                    assert!(entries.next().is_some_and(panicked));
                    break;
                }
            }
        }
    });
}

/// A get keeps no state: the next one after a panic is right.
#[test]
fn a_get_after_a_panic_is_right() {
    let halves = Halves::new();
    let view = halves.set.view();
    let keys: Vec<&[u8]> = vec![b"a", b"c", b"d", b"e", b"h"];
    let wanted = [None, Some(4), None, Some(7), Some(11)];
    let get = |key: &&[u8]| {
        view.merging_get(key, || halves.below())
            .unwrap()
            .map(|entry| entry.sequence())
    };
    halves.at_every_call(|_| {
        let found: Option<Vec<_>> = caught(|| keys.iter().map(get).collect());
        assert_eq!(
            found.unwrap_or_else(|| keys.iter().map(get).collect()),
            wanted
        );
    });
    halves.at_every_call(|_| {
        let found = caught(|| view.merging_multi_get(&keys, halves.below()));
        let number = |found: &Result<Option<MergedEntry>>| {
            found.as_ref().unwrap().as_ref().map(|it| it.sequence())
        };
        assert!(found.is_none_or(|found| found.iter().map(number).eq(wanted)));
    });
}

/// Pulls a compaction. Returns the number of its entries, or `None` if it panicked; then every
/// further pull is an error.
fn entries_of(merge: &mut Compaction<'_>) -> Option<usize> {
    let mut entries = 0;
    loop {
        match caught(|| merge.next().map(|item| item.is_some())) {
            Some(Ok(true)) => entries += 1,
            Some(Ok(false)) => return Some(entries),
            Some(Err(error)) => panic!("{error}"),
            None => {
                assert!(
                    (0..3).all(|_| panicked(merge.next())),
                    "a compaction is over after a panic"
                );
                return None;
            }
        }
    }
}

/// A compaction whose comparator, operator or source panicked never ends well.
#[test]
fn a_compaction_is_over_after_a_panic() {
    let _watchdog = Watchdog::new("set_sources::a_compaction_is_over_after_a_panic", 0);
    let halves = Halves::new();
    for (is_lowest, snapshots) in [(false, &[4, 8][..]), (true, &[]), (true, &[6])] {
        let (mut panics, mut whole) = (0, None);
        halves.at_every_call(|_| {
            let view = halves.set.view();
            let merge = caught(|| {
                let mut sources: Vec<Box<dyn SortedSource>> =
                    view.readers().map(|table| table.source()).collect();
                sources.extend(halves.below());
                let merge =
                    Compaction::over(halves.order(), snapshots, sources).combining(&halves.panics);
                if is_lowest {
                    merge.to_lowest_level()
                } else {
                    merge
                }
            });
            match merge.and_then(|mut merge| entries_of(&mut merge)) {
                Some(entries) => whole = Some(entries),
                None => panics += 1,
            }
        });
        assert!(
            panics > 50 && whole.is_some_and(|entries| entries > 0),
            "{panics} panics, {whole:?}"
        );
    }
}

/// A flush that panicked is not installed, and stops nothing: the next pass reaches its end.
#[test]
fn a_flush_that_panicked_is_done_again() {
    let _watchdog = Watchdog::new("set_sources::a_flush_that_panicked_is_done_again", 0);
    let mut panics = 0;
    for call in 1.. {
        let halves = Halves::new();
        halves.set.switch().unwrap();
        let mut job = halves.set.begin_flush().unwrap().unwrap();
        let fuse = &halves.panics.0.0;
        fuse.store(call, Relaxed);
        let pulled = caught(|| job.items().unwrap()).and_then(|mut items| entries_of(&mut items));
        if fuse.swap(0, Relaxed) > 0 {
            break;
        }
        assert!(pulled.is_none());
        panics += 1;
        if call % 2 == 0 {
            assert!(matches!(
                job.install(|_| Ok(())),
                Err(Error::InvalidArgument(_))
            ));
            job = halves.set.begin_flush().unwrap().unwrap();
        }
        assert!(halves.set.read_only().is_none());
        assert!(entries_of(&mut job.items().unwrap()).is_some());
        job.install(|_| Ok(())).unwrap();
    }
    assert!(panics > 10, "{panics} panics");
}

/// A level alone: a step after a move that panicked is an error, and a seek continues.
#[test]
fn a_level_continues_with_a_seek_after_a_panic() {
    let halves = Halves::new();
    let wanted = ["a", "c", "c", "c", "d"];
    halves.at_every_call(|_| {
        let Some(mut below) = caught(|| halves.below()) else {
            return;
        };
        let level = &mut below[0];
        let mut to = SourceMove::First;
        for key in wanted {
            let Some(found) = caught(|| level.go(to).unwrap().map(|at| at.user_key.to_vec()))
            else {
                if to != SourceMove::First {
                    assert!(
                        panicked(level.go(SourceMove::Next))
                            && panicked(level.go(SourceMove::Prev))
                    );
                }
                let again = level
                    .go(SourceMove::Seek(key.as_bytes(), u64::MAX))
                    .unwrap();
                assert_eq!(
                    again.map(|at| at.user_key.to_vec()).as_deref(),
                    Some(key.as_bytes())
                );
                return;
            };
            assert_eq!(found.as_deref(), Some(key.as_bytes()));
            to = SourceMove::Next;
        }
    });
}
