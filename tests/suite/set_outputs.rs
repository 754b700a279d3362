//! Compactions that cut their output: the outputs are those of one file, cut by a simple
//! computation, and a level of them answers like the file.
//!
//! ```text
//!   history    a@5   [b, t)@9   m@10  m@3   p@11
//!   cut at m   a@5   [b, m)@9 | [m, t)@9   m@10  m@3   p@11       bounds a .. m (excluded), m .. t (excluded)
//! ```
//! Compactions at an inner level and at the lowest one are cut at every key alone, at all, at some,
//! and by bytes. Also: the filter of entries, and what is left after an error or a panic.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::scan::{Direction, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Bytewise, Error, Kind, MemTable, Result};
use paranoid_set::{Compaction, Level, MemTableSet, MergeOperator, MergedEntry, SetOptions, View};

use crate::support::rng::{Rng, Watchdog, amount, seed_or};
use crate::support::sets::{History, HistorySource};

type Sources<'s> = Vec<Box<dyn SortedSource + 's>>;
type Bounds = (Vec<u8>, Bound<Vec<u8>>);

/// Two keys are neighbours in the order of bytes.
const KEYS: [&[u8]; 9] = [b"a", b"b", b"c", b"c\0", b"d", b"e", b"f", b"g", b"z"];

/// The newest number of the level below, which has every key.
const OLD: u64 = KEYS.len() as u64;

const LAST: u64 = OLD + 24;

struct Append;

impl MergeOperator for Append {
    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
        Ok([base.unwrap_or_default(), &operands.concat()].concat())
    }
}

/// Histories, newest first.
fn histories(rng: &mut Rng) -> Vec<History> {
    let mut all = vec![History::default(), History::default()];
    let first_of_newest = OLD + rng.below(24);
    for sequence in OLD + 1..=LAST {
        let history = &mut all[usize::from(sequence <= first_of_newest)];
        let (start, end) = (rng.index(KEYS.len()), rng.index(KEYS.len()));
        let (start, end) = (start.min(end), start.max(end));
        let kind = *rng.pick(&[
            Kind::PUT,
            Kind::PUT,
            Kind::PUT,
            Kind::MERGE,
            Kind::DELETE,
            Kind::SINGLE_DELETE,
            Kind::RANGE_DELETE,
        ]);
        match kind {
            Kind::RANGE_DELETE if start < end => {
                history.insert(sequence, kind, KEYS[start], KEYS[end]);
            }
            Kind::RANGE_DELETE => {}
            Kind::DELETE | Kind::SINGLE_DELETE => history.insert(sequence, kind, KEYS[end], b""),
            _ => history.insert(sequence, kind, KEYS[end], sequence.to_string().as_bytes()),
        }
    }
    all
}

/// How a compaction is made.
struct Plan {
    histories: Vec<History>,
    snapshots: Vec<u64>,
    is_lowest: bool,
    combines: bool,
    /// The first letter of values that are refused.
    refused: u8,
    cuts: BTreeSet<&'static [u8]>,
    limit: u64,
}

impl Plan {
    fn merge(&self) -> Compaction<'_> {
        let sources: Sources<'_> = (self.histories.iter())
            .map(|history| Box::new(HistorySource::new(history)) as _)
            .collect();
        let mut merge = Compaction::over(Arc::new(Bytewise), &self.snapshots, sources);
        if self.is_lowest {
            merge = merge.to_lowest_level();
        }
        if self.combines {
            merge = merge.combining(&Append);
        }
        if self.refused > 0 {
            merge = merge.filtering(|entry| entry.value[0] != self.refused);
        }
        merge
    }

    fn whole(&self) -> History {
        let mut whole = History::default();
        self.merge().pass_to(&mut whole).unwrap();
        whole
    }

    /// The outputs, each compared with its bounds.
    fn parts(&self) -> Vec<(History, Bounds)> {
        let open = |_| Ok(History::default());
        let cuts = &self.cuts;
        let mut outputs = (self.merge().outputs(self.limit, open))
            .cutting(move |_: &History, key: &[u8]| cuts.contains(key));
        let (mut parts, mut entries, mut fragments) = (vec![], 0, 0);
        while let Some(output) = outputs.next().unwrap() {
            assert_eq!(output.bounds, bounds_of(&output.sink), "{:?}", output.sink);
            assert_eq!(output.summary.entries, output.sink.points.len() as u64);
            (entries, fragments) = (
                entries + output.summary.entries,
                fragments + output.summary.fragments,
            );
            parts.push((output.sink, output.bounds));
        }
        assert!(outputs.next().unwrap().is_none());
        let mut whole = History::default();
        let summary = self.merge().pass_to(&mut whole).unwrap();
        assert_eq!(entries, summary.entries);
        assert!(fragments >= summary.fragments);
        parts
    }
}

/// The bounds of a part, by a simple computation.
fn bounds_of(part: &History) -> Bounds {
    let keys = part.points.keys().map(|(key, _)| key);
    let first = (keys.clone())
        .chain(part.ranges.iter().map(|range| &range.0))
        .min();
    let (last, end) = (keys.max(), part.ranges.iter().map(|range| &range.1).max());
    let end = if last >= end {
        Bound::Included(last)
    } else {
        Bound::Excluded(end)
    };
    (first.unwrap().clone(), end.map(|key| key.unwrap().clone()))
}

/// The range tombstones over each key, and over the gap after it.
fn over_keys<'r>(
    ranges: impl Iterator<Item = &'r (Vec<u8>, Vec<u8>, u64)> + Clone,
) -> Vec<BTreeSet<u64>> {
    let places = KEYS
        .iter()
        .flat_map(|key| [key.to_vec(), [key, &b"\0\0"[..]].concat()]);
    let over = |key: Vec<u8>| {
        (ranges.clone())
            .filter(|range| range.0 <= key && key < range.1)
            .map(|range| range.2)
            .collect()
    };
    places.map(over).collect()
}

fn view(last: u64) -> View<()> {
    let options = SetOptions::builder().last_sequence(last).build().unwrap();
    MemTableSet::open(options, ()).unwrap().view()
}

type Row = (Vec<u8>, u64, Option<Vec<u8>>, Vec<Vec<u8>>);

fn row(entry: &MergedEntry) -> Row {
    let value = entry.operands().is_empty().then(|| entry.value().to_vec());
    (
        entry.user_key().to_vec(),
        entry.sequence(),
        value,
        entry.operands().to_vec(),
    )
}

/// All scans and gets of a view at a number.
fn answers<'s>(snapshot: u64, sources: impl Fn() -> Sources<'s>) -> Vec<Vec<Row>> {
    let view = view(snapshot);
    let scan = |way| {
        let mut cursor = view.merging_cursor(sources()).unwrap();
        let (mut rows, mut entry) = (vec![], cursor.start(way).unwrap());
        while let Some(found) = entry {
            rows.push(row(found));
            entry = cursor.step(way).unwrap();
        }
        rows
    };
    let get = |key: &&[u8]| view.merging_get(key, &sources).unwrap().as_ref().map(row);
    let mut backward = scan(Direction::Backward);
    backward.reverse();
    vec![
        scan(Direction::Forward),
        backward,
        KEYS.iter().filter_map(get).collect(),
    ]
}

/// A file or a level, over the older level if there is one.
fn over<'s>(low: Option<&MemTable>, upper: Box<dyn SortedSource + 's>) -> Sources<'s> {
    let low = low.map(|low| low.source());
    [upper].into_iter().chain(low.map(|low| low as _)).collect()
}

/// The cuts of a test: at each key alone, at all, at some, and by bytes.
fn cuts(rng: &mut Rng) -> Vec<(BTreeSet<&'static [u8]>, u64)> {
    let some = KEYS.into_iter().filter(|_| rng.one_in(3)).collect();
    let mut all: Vec<_> = KEYS
        .into_iter()
        .map(|key| ([key].into(), u64::MAX))
        .collect();
    all.extend([(KEYS.into_iter().collect(), u64::MAX), (some, u64::MAX)]);
    all.extend([0, 1, rng.below(40)].map(|limit| (BTreeSet::new(), limit)));
    all
}

#[test]
fn outputs_are_one_file_that_is_cut() {
    let test = "set_outputs::outputs_are_one_file_that_is_cut";
    let seed = seed_or(0xc075);
    println!("{test}: seed {seed:#x}");
    let _watchdog = Watchdog::new(test, seed);
    let mut rng = Rng::new(seed);
    let low = MemTable::default();
    for (sequence, key) in (1..).zip(KEYS) {
        low.put(sequence, key, b"old").unwrap();
    }
    let (mut compared, wanted) = (0, amount(60_000, 6_000));
    while compared < wanted {
        let histories = histories(&mut rng);
        let snapshots: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(LAST)).collect();
        let (is_lowest, combines) = (rng.one_in(2), rng.one_in(2));
        let refused = if rng.one_in(3) { b'2' } else { 0 };
        for (cuts, limit) in cuts(&mut rng) {
            let plan = Plan {
                histories: histories.clone(),
                snapshots: snapshots.clone(),
                is_lowest,
                combines,
                refused,
                cuts,
                limit,
            };
            let (whole, parts) = (plan.whole(), plan.parts());
            let what = format!("{:?} {limit} {snapshots:?} {histories:?}", plan.cuts);
            let points = parts.iter().flat_map(|(part, _)| &part.points);
            assert!(points.eq(&whole.points), "{what}");
            let ranges = parts.iter().flat_map(|(part, _)| &part.ranges);
            assert_eq!(over_keys(ranges), over_keys(whole.ranges.iter()), "{what}");
            for (part, _) in &parts {
                let mut keys = part.points.keys().map(|(key, _)| key.as_slice());
                let first = keys.next();
                assert!(
                    keys.all(|key| Some(key) == first || !plan.cuts.contains(key)),
                    "{what}"
                );
            }
            let (files, bounds): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let level = Level::new(Arc::new(Bytewise), bounds).unwrap();
            let older = (!is_lowest).then_some(&low);
            for snapshot in snapshots.iter().copied().chain([LAST]) {
                let level = answers(snapshot, || {
                    over(
                        older,
                        Box::new(
                            level.source(|place: usize| Ok(HistorySource::new(&files[place]))),
                        ),
                    )
                });
                let one = answers(snapshot, || {
                    over(older, Box::new(HistorySource::new(&whole)))
                });
                assert_eq!(level, one, "at {snapshot}: {what}");
                compared += 3 * KEYS.len() as u64;
            }
        }
    }
}

/// A filter hides refused values from the newest reader, with all older versions, and changes
/// nothing for the snapshots of its list.
#[test]
fn a_filter_refuses_values_that_no_snapshot_sees() {
    let mut rng = Rng::new(seed_or(0xf117e5));
    let low = MemTable::default();
    for (sequence, key) in (1..).zip(KEYS) {
        low.put(sequence, key, b"old").unwrap();
    }
    for _ in 0..amount(2_000, 200) {
        let plan = Plan {
            histories: histories(&mut rng),
            snapshots: (0..rng.below(3)).map(|_| rng.below(LAST - 1)).collect(),
            is_lowest: false,
            combines: rng.one_in(2),
            refused: *rng.pick(b"123"),
            cuts: BTreeSet::new(),
            limit: u64::MAX,
        };
        let kept = plan.whole();
        let all = Plan { refused: 0, ..plan };
        let unfiltered = all.whole();
        let at = |snapshot, file| {
            answers(snapshot, || {
                vec![Box::new(HistorySource::new(file)), low.source()]
            })
        };
        for snapshot in &all.snapshots {
            assert_eq!(at(*snapshot, &kept), at(*snapshot, &unfiltered));
        }
        let newest = all.snapshots.iter().max().copied().unwrap_or(0);
        let is_refused = |(_, sequence, value, _): &Row| {
            *sequence > newest.max(OLD) && value.as_ref().is_some_and(|it| it[0] == plan.refused)
        };
        let has_operands = |row: &Row| {
            (all.histories.iter()).any(|it| {
                it.points
                    .get(&(row.0.clone(), Reverse(row.1)))
                    .is_some_and(|it| it.0 == Kind::MERGE)
            })
        };
        let rows = at(LAST, &unfiltered).into_iter();
        let wanted: Vec<Vec<Row>> = rows
            .map(|rows| {
                rows.into_iter()
                    .filter(|row| !is_refused(row) || has_operands(row))
                    .collect()
            })
            .collect();
        assert_eq!(at(LAST, &kept), wanted, "{:?}", all.histories);
    }
}

/// A sink that fails or panics at one of its calls, and counts the open sinks.
struct Failing<'f> {
    taken: History,
    calls: &'f AtomicI64,
    open: &'f AtomicI64,
    panics: bool,
}

impl Failing<'_> {
    fn call(&self) -> Result<(), SinkError> {
        match self.calls.fetch_sub(1, Relaxed) {
            1 if self.panics => resume_unwind(Box::new("a sink panics, without a message")),
            1 => Err("the disk is full".into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl FlushSink for Failing<'_> {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        self.call()?;
        self.taken.entry(entry)
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        self.call()?;
        self.taken.fragment(fragment)
    }
}

/// After an error or a panic of any call, the finished outputs are with the caller, no other sink is
/// open, and every later call fails.
#[test]
fn an_error_leaves_finished_outputs() {
    let plan = Plan {
        histories: histories(&mut Rng::new(7)),
        snapshots: vec![OLD + 12],
        is_lowest: false,
        combines: false,
        refused: 0,
        cuts: KEYS.into_iter().collect(),
        limit: u64::MAX,
    };
    let all: Vec<History> = plan.parts().into_iter().map(|part| part.0).collect();
    for (call, panics) in (1..).flat_map(|call| [(call, false), (call, true)]) {
        let (calls, open) = (AtomicI64::new(call), AtomicI64::new(0));
        let make = |_| {
            let outcome = calls.fetch_sub(1, Relaxed);
            assert_eq!(open.fetch_add(1, Relaxed), 0, "one sink is open");
            let sink = Failing {
                taken: History::default(),
                calls: &calls,
                open: &open,
                panics,
            };
            if outcome == 1 {
                Err(Error::Frozen)
            } else {
                Ok(sink)
            }
        };
        let cuts = &plan.cuts;
        let mut outputs = plan
            .merge()
            .outputs(u64::MAX, make)
            .cutting(|_, key| cuts.contains(key));
        let mut finished = vec![];
        let outcome = loop {
            match catch_unwind(AssertUnwindSafe(|| outputs.next())) {
                Ok(Ok(Some(output))) => {
                    finished.push(output.sink.taken.clone());
                    drop(output);
                }
                Ok(Ok(None)) => break None,
                Ok(Err(error)) => break Some(error.to_string()),
                Err(_) => break Some(Error::ReaderPanicked.to_string()),
            }
        };
        assert_eq!(open.load(Relaxed), 0);
        let is_same = finished
            .iter()
            .zip(&all)
            .all(|(left, right)| left.points == right.points && left.ranges == right.ranges);
        assert!(is_same);
        let Some(error) = outcome else {
            assert!(finished.len() == all.len() && calls.load(Relaxed) > 0);
            return;
        };
        assert!(finished.len() < all.len());
        assert!((0..3).all(|_| outputs.next().is_err_and(|it| it.to_string() == error)));
    }
}

/// A source that forgets a range tombstone when it is asked again.
struct Forgetful<'h>(HistorySource<'h>, u32);

impl SortedSource for Forgetful<'_> {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        self.0.go(to)
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        self.0.value_into(value)
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], u64) -> Result<()>,
    ) -> Result<()> {
        self.1 += 1;
        let mut is_left_out = self.1 == 2;
        self.0.range_tombstones(
            &mut |start, end, sequence| match std::mem::take(&mut is_left_out) {
                true => Ok(()),
                false => take(start, end, sequence),
            },
        )
    }

    fn cover(
        &mut self,
        order: &dyn paranoid_memtable::Comparator,
        key: &[u8],
        snapshot: u64,
    ) -> Result<Option<paranoid_memtable::scan::Cover<'_>>> {
        self.0.cover(order, key, snapshot)
    }
}

#[test]
fn tombstones_that_change_are_an_error() {
    let mut all = History::default();
    all.insert(1, Kind::PUT, b"a", b"v");
    all.insert(2, Kind::RANGE_DELETE, b"b", b"k");
    all.insert(3, Kind::PUT, b"f", b"v");
    let source = Forgetful(HistorySource::new(&all), 0);
    let merge = Compaction::over(Arc::new(Bytewise), &[], vec![Box::new(source)]);
    let mut outputs = merge.outputs(0, |_| Ok(History::default()));
    let finished = std::iter::from_fn(|| outputs.next().unwrap_or(None)).count();
    assert_eq!(finished, 2, "a, and f with the rest of the range");
    assert!((0..2).all(|_| matches!(outputs.next(), Err(Error::Corruption(_)))));
}

/// A flush is cut like a compaction, and may be installed after its last output.
#[test]
fn a_flush_may_be_cut() {
    let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
    for key in KEYS {
        set.put(key, b"value").unwrap();
    }
    set.delete_range(b"b", b"d").unwrap();
    set.put(b"c", b"again").unwrap();
    set.switch().unwrap();
    let mut job = set.begin_flush().unwrap().unwrap();
    let mut outputs = (job.items().unwrap())
        .outputs(u64::MAX, |_| Ok(History::default()))
        .cutting(|_, key| key == b"c" || key == b"e");
    let mut parts = vec![];
    while let Some(output) = outputs.next().unwrap() {
        assert_eq!(output.bounds, bounds_of(&output.sink));
        parts.push(output.sink);
    }
    drop(outputs);
    let ranges: Vec<_> = parts
        .iter()
        .flat_map(|part| &part.ranges)
        .cloned()
        .collect();
    let [c, d] = [b"c".to_vec(), b"d".to_vec()];
    assert_eq!(ranges, [(b"b".to_vec(), c.clone(), 10), (c, d, 10)]);
    assert_eq!(
        parts
            .iter()
            .map(|part| part.points.len())
            .collect::<Vec<_>>(),
        [1, 2, 4]
    );
    job.install(|()| Ok(())).unwrap();
}
