//! Levels whose files touch: a history that is cut at keys, compared with the same history in one
//! source. Both must give the same answers.
//!
//! ```text
//!   history    a@5   [b, t)@9   m@10  m@3   p@11
//!   cut at m   a@5   [b, m)@9 | [m, t)@9   m@10  m@3   p@11       bounds a .. m (excluded), m .. t (excluded)
//! ```
//! Histories are cut at each key alone, at all keys, and at some, in memtables and in table files
//! with filters. The tests are single moves of the level, cursors both ways, gets, multi-gets, and
//! compactions at an inner level and at the lowest one. All are over an older source that has every
//! key.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::read::Base;
use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
use paranoid_memtable::{Bytewise, Kind, MemTable};
use paranoid_set::{Compaction, Level, MemTableSet, MergeOperator, MergedEntry, SetOptions, View};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

use crate::disk::{Shared, SimDisk};
use crate::rng::{Rng, Watchdog, amount, seed_or};
use crate::sets::{History, Known};

type Sources<'s> = Vec<Box<dyn SortedSource + 's>>;

type FileBounds = (Vec<u8>, Bound<Vec<u8>>);

/// Keys of all histories; two are neighbours in the order of bytes.
const KEYS: [&[u8]; 11] = [
    b"a", b"b", b"c", b"c\0", b"d", b"e", b"f", b"g", b"h", b"ha", b"z",
];

/// The newest sequence number of the older source.
const OLD: u64 = KEYS.len() as u64;

fn history(rng: &mut Rng) -> History {
    let mut all = History::default();
    let inner = &KEYS[1..KEYS.len() - 1];
    let kinds = [
        Kind::PUT,
        Kind::PUT,
        Kind::PUT,
        Kind::MERGE,
        Kind::MERGE,
        Kind::DELETE,
        Kind::SINGLE_DELETE,
    ];
    for sequence in OLD + 1..OLD + 3 + rng.below(14) {
        if rng.one_in(4) {
            let (start, end) = (rng.index(inner.len() - 1), rng.index(inner.len()));
            let end = end.max(start + 1);
            all.insert(sequence, Kind::RANGE_DELETE, inner[start], inner[end]);
            continue;
        }
        let (kind, value) = (*rng.pick(&kinds), sequence.to_string());
        let value = if kind.is_point_delete() {
            b""
        } else {
            value.as_bytes()
        };
        all.insert(sequence, kind, inner[rng.index(inner.len())], value);
    }
    all
}

/// The form of a range tombstone that reaches past a part, in the file of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tombstones {
    /// Only the piece inside.
    Cut,
    /// The whole tombstone: the bounds of the file clip it.
    Whole,
}

/// Cuts a history at these keys, and returns the parts with their bounds. A part begins with a cut
/// and ends before the next one. An empty part has no file.
fn cut(
    all: &History,
    cuts: &BTreeSet<&[u8]>,
    tombstones: Tombstones,
) -> Vec<(History, FileBounds)> {
    let starts = [&b""[..]].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([&b"~"[..]]);
    let parts = starts.zip(ends).map(|(first, end)| {
        let mut part = History::default();
        for ((key, Reverse(sequence)), (kind, value)) in &all.points {
            if (first..end).contains(&key.as_slice()) {
                part.insert(*sequence, *kind, key, value);
            }
        }
        for (start, stop, sequence) in &all.ranges {
            let (start, stop) = (first.max(start), end.min(stop));
            if start < stop {
                part.insert(*sequence, Kind::RANGE_DELETE, start, stop);
            }
        }
        part
    });
    let parts = parts.filter(|part| !part.points.is_empty() || !part.ranges.is_empty());
    let with_bounds = |mut part: History| {
        let bounds = bounds_of(&part);
        if tombstones == Tombstones::Whole {
            let pieces = std::mem::take(&mut part.ranges);
            let has_piece = |sequence| pieces.iter().any(|piece| piece.2 == sequence);
            part.ranges.extend(
                all.ranges
                    .iter()
                    .filter(|range| has_piece(range.2))
                    .cloned(),
            );
        }
        (part, bounds)
    };
    parts.map(with_bounds).collect()
}

/// The bounds of a part, by a simple computation.
fn bounds_of(part: &History) -> FileBounds {
    let keys = part.points.keys().map(|(key, _)| key);
    let first = keys
        .clone()
        .chain(part.ranges.iter().map(|range| &range.0))
        .min()
        .unwrap();
    let (last, end) = (keys.max(), part.ranges.iter().map(|range| &range.1).max());
    let end = if last >= end {
        Bound::Included(last)
    } else {
        Bound::Excluded(end)
    };
    (first.clone(), end.map(|key| key.unwrap().clone()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Memtable,
    File,
}

enum File {
    Memtable(MemTable),
    File(SortedTable),
}

impl File {
    fn memtable(part: &History) -> MemTable {
        let table = MemTable::default();
        for ((key, Reverse(sequence)), (kind, value)) in &part.points {
            table.insert(*sequence, *kind, key, value).unwrap();
        }
        for (start, end, sequence) in &part.ranges {
            table.delete_range(*sequence, start, end).unwrap();
        }
        table
    }

    fn new(part: &History, form: Form) -> File {
        if form == Form::Memtable {
            return File::Memtable(File::memtable(part));
        }
        let (disk, path) = (Shared(Arc::new(SimDisk::default())), Path::new("d/f.sst"));
        let options = SortedTableOptions::builder()
            .block_size(64)
            .verify_after_write(false);
        let mut writer =
            SortedTableWriter::create_in(disk.clone(), path, options.build().unwrap()).unwrap();
        for ((key, Reverse(sequence)), (kind, value)) in &part.points {
            writer.add(key, *sequence, *kind, value).unwrap();
        }
        let mut ranges: Vec<_> = part.ranges.iter().collect();
        ranges.sort_by_key(|(start, _, sequence)| (start, Reverse(*sequence)));
        for (start, end, sequence) in ranges {
            writer.add_range(start, end, *sequence).unwrap();
        }
        assert_eq!(writer.finish().unwrap().bounds, Some(bounds_of(part)));
        let bytes = paranoid_sst::Storage::open(&disk, path).unwrap();
        File::File(SortedTable::from_source("f.sst", bytes).unwrap())
    }

    fn source(&self) -> Box<dyn SortedSource> {
        match self {
            File::Memtable(table) => table.source(),
            File::File(table) => Box::new(table.cursor()),
        }
    }
}

type RawRow = (Vec<u8>, u64, Kind);

fn raw(at: Option<SourceKey<'_>>) -> Option<RawRow> {
    at.map(|at| (at.user_key.to_vec(), at.sequence, at.kind))
}

/// All data that an entry shows.
type Row = (Vec<u8>, u64, Kind, Vec<Vec<u8>>, Option<Option<Vec<u8>>>);

fn row(entry: &MergedEntry) -> Row {
    let base = match (entry.operands(), entry.base()) {
        ([], _) => Some(Some(entry.value().to_vec())),
        (_, Base::Value(value)) => Some(Some(value.to_vec())),
        (_, Base::Deleted) => Some(None),
        _ => None,
    };
    (
        entry.user_key().to_vec(),
        entry.sequence(),
        entry.kind(),
        entry.operands().to_vec(),
        base,
    )
}

/// The range tombstones over each key.
fn over_keys(ranges: &BTreeSet<(Vec<u8>, Vec<u8>, u64)>) -> BTreeMap<&'static [u8], BTreeSet<u64>> {
    let over = |key: &'static [u8]| {
        let covers = |range: &&(Vec<u8>, Vec<u8>, u64)| *range.0 <= *key && *key < *range.1;
        (
            key,
            ranges.iter().filter(covers).map(|range| range.2).collect(),
        )
    };
    KEYS.into_iter().map(over).collect()
}

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

/// The source above the older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upper {
    Level,
    Whole,
}

/// A history in one file, the same history as a level, and the older source.
struct Pair<'p> {
    all: &'p History,
    whole: File,
    files: Vec<File>,
    bounds: Vec<FileBounds>,
    low: &'p MemTable,
    answers: u64,
}

impl Pair<'_> {
    fn level(&self) -> Box<dyn SortedSource + '_> {
        let open = |place: usize| Ok(self.files[place].source());
        Box::new(
            Level::new(Arc::new(Bytewise), self.bounds.clone())
                .unwrap()
                .source(open),
        )
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, found: T, wanted: T, what: &str) {
        self.answers += 1;
        assert_eq!(found, wanted, "{what}: {:?} of {:?}", self.bounds, self.all);
    }

    /// Moves the level alone, with reads between the moves.
    fn single_moves(&mut self, rng: &mut Rng) {
        let mut found = vec![];
        {
            let (mut level, mut whole, mut stands) = (self.level(), self.whole.source(), false);
            for _ in 0..16 {
                let key = *rng.pick(&KEYS);
                let to = match rng.below(8) {
                    0 => SourceMove::First,
                    1 => SourceMove::Last,
                    2 => SourceMove::Seek(key, rng.below(OLD + 18)),
                    3 => SourceMove::SeekForPrev(key),
                    4 => SourceMove::SeekBefore(key),
                    5 if stands => SourceMove::Prev,
                    _ if stands => SourceMove::Next,
                    _ => SourceMove::First,
                };
                let (at, wanted) = (raw(level.go(to).unwrap()), raw(whole.go(to).unwrap()));
                stands = at.is_some();
                let asked = *rng.pick(&KEYS);
                let snapshot = rng.below(OLD + 18);
                let cover = |source: &mut dyn SortedSource| {
                    source
                        .cover(&Bytewise, asked, snapshot)
                        .unwrap()
                        .map(|cover| cover.sequence)
                };
                let covers = (cover(&mut *level), cover(&mut *whole));
                let has_key = self.all.points.keys().any(|(key, _)| key == asked);
                assert!(level.may_hold(asked).unwrap() || !has_key);
                if rng.one_in(8) {
                    let mut ranges = BTreeSet::new();
                    let mut take = |start: &[u8], end: &[u8], sequence| {
                        ranges.insert((start.to_vec(), end.to_vec(), sequence));
                        Ok(())
                    };
                    level.range_tombstones(&mut take).unwrap();
                    assert_eq!(over_keys(&ranges), over_keys(&self.all.ranges));
                }
                let (mut value, mut wanted_value) = (vec![], vec![]);
                if stands && wanted.is_some() {
                    level.value_into(&mut value).unwrap();
                    whole.value_into(&mut wanted_value).unwrap();
                }
                found.push(((at, covers.0, value), (wanted, covers.1, wanted_value)));
            }
        }
        found
            .into_iter()
            .for_each(|(found, wanted)| self.same(found, wanted, "a move of the level"));
    }

    /// Compares both as sources of a view at this number: cursors at random and both ways, gets and
    /// multi-gets.
    fn reads(&mut self, snapshot: u64, rng: &mut Rng) {
        let view = view(snapshot);
        let sources = [Upper::Level, Upper::Whole].map(|upper| self.sources(upper));
        let [mut level, mut whole] = sources.map(|sources| view.merging_cursor(sources).unwrap());
        let mut found = vec![];
        for _ in 0..24 {
            let key = *rng.pick(&KEYS);
            let how = rng.below(10);
            let mut moved = [&mut level, &mut whole].into_iter().map(|cursor| {
                let moved = match how {
                    0 => cursor.first(),
                    1 => cursor.last(),
                    2 => cursor.seek(key),
                    3 => cursor.seek_for_prev(key),
                    4..7 => cursor.prev(),
                    _ => cursor.next(),
                };
                moved.unwrap().map(row)
            });
            found.push((moved.next().unwrap(), moved.next().unwrap()));
        }
        let scans = |upper| {
            let cursor = || view.merging_cursor(self.sources(upper)).unwrap();
            let ascending: Vec<Row> = cursor()
                .ascending()
                .map(|entry| row(&entry.unwrap()))
                .collect();
            let descending: Vec<Row> = cursor()
                .descending()
                .map(|entry| row(&entry.unwrap()))
                .collect();
            (ascending, descending)
        };
        let scans = (scans(Upper::Level), scans(Upper::Whole));
        let gets = |upper| {
            let one = |key: &&[u8]| view.merging_get(key, || self.sources(upper)).unwrap();
            let singly: Vec<Option<Row>> =
                KEYS.iter().map(|key| one(key).as_ref().map(row)).collect();
            let found = view
                .merging_multi_get(&KEYS, self.sources(upper))
                .into_iter();
            let many: Vec<Option<Row>> = found
                .map(|found| found.unwrap().as_ref().map(row))
                .collect();
            assert_eq!(singly, many);
            singly
        };
        let gets = (gets(Upper::Level), gets(Upper::Whole));
        let by_history: Vec<Known> = KEYS
            .iter()
            .map(|key| self.all.read(key, snapshot, Known::default()))
            .collect();
        drop((level, whole));
        found
            .into_iter()
            .for_each(|(found, wanted)| self.same(found, wanted, "a move of a cursor"));
        self.same(scans.0, scans.1, "a scan");
        for ((found, wanted), known) in gets.0.into_iter().zip(gets.1).zip(by_history) {
            let values = found.as_ref().map_or(vec![], |row| row.3.clone());
            assert!(
                values.len() >= known.operands.len(),
                "operands of the history"
            );
            self.same(found, wanted, "a get");
        }
    }

    fn sources(&self, upper: Upper) -> Sources<'_> {
        let upper = if upper == Upper::Level {
            self.level()
        } else {
            self.whole.source()
        };
        vec![upper, self.low.source()]
    }

    /// Compares both as sources of a compaction, alone or over the older source.
    fn compactions(&mut self, rng: &mut Rng) {
        let snapshots: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(OLD + 18)).collect();
        let (to_lowest, combines, is_alone) = (rng.one_in(2), rng.one_in(2), rng.one_in(3));
        let compacted = |upper| {
            let mut sources = self.sources(upper);
            sources.truncate(if is_alone { 1 } else { 2 });
            let mut merge = Compaction::over(Arc::new(Bytewise), &snapshots, sources);
            if to_lowest {
                merge = merge.to_lowest_level();
            }
            if combines {
                merge = merge.combining(&Append);
            }
            let mut out = History::default();
            merge.pass_to(&mut out).unwrap();
            out
        };
        let (found, wanted) = (compacted(Upper::Level), compacted(Upper::Whole));
        self.same(found.points, wanted.points, "entries of a compaction");
        self.same(
            over_keys(&found.ranges),
            over_keys(&wanted.ranges),
            "range tombstones of a compaction",
        );
    }
}

/// The cuts of a history: at each key alone, at all, and at some.
fn cuts(rng: &mut Rng) -> Vec<BTreeSet<&'static [u8]>> {
    let some = KEYS.into_iter().filter(|_| rng.one_in(3)).collect();
    let mut all: Vec<BTreeSet<_>> = KEYS.into_iter().map(|key| [key].into()).collect();
    all.extend([KEYS.into_iter().collect(), some]);
    all
}

#[test]
fn a_level_cut_at_every_key_is_one_file() {
    let test = "levels::a_level_cut_at_every_key_is_one_file";
    let seed = seed_or(0x1e7e1);
    println!("{test}: seed {seed:#x}");
    let _watchdog = Watchdog::new(test, seed);
    let mut rng = Rng::new(seed);
    let low = MemTable::default();
    for (sequence, key) in (1..=OLD).zip(KEYS) {
        low.put(sequence, key, b"old").unwrap();
    }
    let (mut answers, wanted) = (0, amount(100_000, 20_000));
    while answers < wanted {
        let all = history(&mut rng);
        for cuts in cuts(&mut rng) {
            let form = *rng.pick(&[Form::Memtable, Form::File]);
            let parts = cut(
                &all,
                &cuts,
                *rng.pick(&[Tombstones::Cut, Tombstones::Whole]),
            );
            let (files, bounds) = parts
                .into_iter()
                .map(|(part, bounds)| (File::new(&part, form), bounds))
                .unzip();
            let whole = File::new(&all, form);
            let mut pair = Pair {
                all: &all,
                whole,
                files,
                bounds,
                low: &low,
                answers: 0,
            };
            pair.single_moves(&mut rng);
            for snapshot in [OLD + rng.below(9), OLD + 9 + rng.below(9)] {
                pair.reads(snapshot, &mut rng);
            }
            pair.compactions(&mut rng);
            answers += pair.answers;
        }
    }
    println!("{answers} answers");
}

fn view(last: u64) -> View<()> {
    MemTableSet::open(
        SetOptions::builder().last_sequence(last).build().unwrap(),
        (),
    )
    .unwrap()
    .view()
}

/// `m` is the end of the first file's range delete and the first key of the second file. A get of
/// it uses the filter of the second file.
#[test]
fn a_key_at_a_bound_is_asked_of_its_own_file() {
    let (mut left, mut right) = (History::default(), History::default());
    left.insert(5, Kind::PUT, b"a", b"v");
    left.insert(9, Kind::RANGE_DELETE, b"b", b"m");
    right.insert(10, Kind::PUT, b"m", b"new");
    right.insert(11, Kind::PUT, b"p", b"v");
    let low = MemTable::default();
    low.put(1, "m", "old").unwrap();
    let files = [&left, &right].map(|part| File::new(part, Form::File));
    let sources = || -> Sources<'_> {
        let open = |place: usize| Ok(files[place].source());
        let bounds = vec![bounds_of(&left), bounds_of(&right)];
        vec![
            Box::new(Level::new(Arc::new(Bytewise), bounds).unwrap().source(open)),
            low.source(),
        ]
    };
    assert_eq!(
        view(20).merging_get("m", sources).unwrap().unwrap().value(),
        b"new"
    );
    let many = view(20).merging_multi_get(&["m", "a"], sources());
    let values: Vec<_> = many
        .into_iter()
        .map(|found| found.unwrap().unwrap().value().to_vec())
        .collect();
    assert_eq!(values, [&b"new"[..], b"v"]);
}
