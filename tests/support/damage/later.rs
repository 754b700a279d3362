//! The end of a table's life after damage: freeze, flush, scrub, salvage.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::flush::{
    FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, HiddenVersions, SinkError,
};
use paranoid_memtable::integrity::Protected;
use paranoid_memtable::repair::Reach;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, ImmutableMemTable, Kind, MemTable, TableReader};

use super::model::{Model, Row};
use super::trial::Trial;

/// A sink that keeps what it is given.
#[derive(Default)]
struct Collected {
    rows: Vec<Row>,
    tombstones: Vec<Row>,
    /// Entries whose digest disagrees with what was handed out.
    torn: usize,
}

impl FlushSink for Collected {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
        let own = entry.protection.check(&key, &value, entry.sequence, entry.kind);
        let want = Protected::of(&key, &value, entry.kind).with_sequence(entry.sequence);
        self.torn += usize::from(own != Some(want));
        self.rows.push(Row { key, sequence: entry.sequence, kind: entry.kind, value });
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        let row = |sequence: &u64| Row {
            key: fragment.start().to_vec(),
            sequence: *sequence,
            kind: Kind::RANGE_DELETE,
            value: fragment.end().to_vec(),
        };
        self.tombstones.extend(fragment.sequences().iter().map(row));
        Ok(())
    }
}

/// Pulls one item of a flush into the sink. `false`: it has come to its end.
fn pull_one(flush: &mut FlushIter<'_>, sink: &mut Collected) -> Result<bool, Error> {
    let Some(item) = flush.next()? else { return Ok(false) };
    let taken = match item {
        FlushItem::Entry(entry) => sink.entry(entry),
        FlushItem::Fragment(fragment) => sink.fragment(fragment),
    };
    taken.map(|()| true).map_err(|cause| Error::Sink(cause.into()))
}

/// Pulls the rest of a flush into the sink.
fn pull(flush: &mut FlushIter<'_>, sink: &mut Collected) -> Result<FlushSummary, Error> {
    while pull_one(flush, sink)? {}
    Ok(flush.summary().expect("it came to its end"))
}

/// Flushes that were pulled before the damage.
pub struct Pulled<'t> {
    flushes: Vec<(HiddenVersions, FlushIter<'t>, Collected)>,
}

/// Flushes that are pulled before the damage, at most.
const PULLED: usize = 32;

impl<'t> Pulled<'t> {
    /// One flush for every so many-th number of items; the turn says where they begin.
    pub fn new(frozen: &'t ImmutableMemTable, model: &Model, turn: u64) -> Result<Pulled<'t>, Error> {
        let items = model.writes.len() + 1;
        let every = items.div_ceil(PULLED).max(2);
        let mut flushes = Vec::new();
        for gone in (turn as usize % every..items).step_by(every) {
            let hidden = if (turn / 2 + gone as u64 / 2).is_multiple_of(2) {
                HiddenVersions::Drop
            } else {
                HiddenVersions::Keep
            };
            let mut flush = frozen.flush_iter_with(readers(model, turn), hidden)?;
            let mut sink = Collected::default();
            for _ in 0..gone {
                pull_one(&mut flush, &mut sink)?;
            }
            flushes.push((hidden, flush, sink));
        }
        Ok(Pulled { flushes })
    }
}

/// No snapshot, one or two.
fn readers(model: &Model, turn: u64) -> &[u64] {
    &model.snapshots[..turn as usize % 3 % model.snapshots.len()]
}

/// The newest of these tombstones over a key that a reader sees.
fn newest_over(tombstones: &[Row], key: &[u8], reader: u64) -> Option<u64> {
    let covers =
        |row: &&Row| row.sequence <= reader && row.key.as_slice() <= key && key < row.value.as_slice();
    tombstones.iter().filter(covers).map(|row| row.sequence).max()
}

/// What a scrub must report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A finding.
    Finding,
    /// Anything, or nothing.
    Anything,
}

impl<'m> Trial<'m> {
    /// Scrubs. Its findings count as detection; damage that matters must be among them.
    pub fn scrub(&mut self, table: &TableReader, demand: Demand) {
        let report = table.scrub(|_| {});
        self.verdict.detected |= !report.findings.is_empty();
        if report.check().is_ok() != report.findings.is_empty() {
            self.wrong(|| "a scrub's report contradicts itself".into());
        }
        if demand == Demand::Finding && report.findings.is_empty() {
            self.wrong(|| "a scrub finds nothing".into());
        }
    }

    /// A flush hands out everything, or fails: with all versions kept, and for readers at no, one and two snapshots.
    pub fn flush(&mut self, frozen: &ImmutableMemTable) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        self.flush_to(HiddenVersions::Keep, frozen, &[], &rows);
        let newest = model.newest();
        let snapshots: &[u64] = match self.turn() % 3 {
            0 => &[],
            1 => &[newest / 2],
            _ => &[newest * 3 / 4, newest / 4],
        };
        self.flush_to(HiddenVersions::Drop, frozen, snapshots, &model.needed(snapshots));
    }

    fn flush_to(
        &mut self,
        hidden: HiddenVersions,
        frozen: &ImmutableMemTable,
        snapshots: &[u64],
        want: &[&Row],
    ) {
        let mut sink = Collected::default();
        let flushed = match (hidden, self.turn() / 3 % 2) {
            (HiddenVersions::Drop, 0) => frozen.flush(snapshots, &mut sink),
            (HiddenVersions::Keep, 0) => frozen.flush_with(snapshots, hidden, &mut sink),
            (HiddenVersions::Drop, _) => {
                frozen.flush_iter(snapshots).and_then(|mut flush| pull(&mut flush, &mut sink))
            }
            (HiddenVersions::Keep, _) => {
                frozen.flush_iter_with(snapshots, hidden).and_then(|mut flush| pull(&mut flush, &mut sink))
            }
        };
        match flushed {
            Err(error) => self.refused(&error, "flush"),
            Ok(summary) => self.flushed(&sink, &summary, snapshots, want),
        }
    }

    /// Pulls the rest of flushes that were begun before the damage: each hands out what is right, up to its end or to
    /// an error.
    pub fn pulled(&mut self, pulled: Pulled<'_>) {
        let model = self.model();
        let snapshots = readers(model, self.turn());
        let (all, needed) = (model.rows.iter().collect::<Vec<_>>(), model.needed(snapshots));
        for (hidden, mut flush, mut sink) in pulled.flushes {
            let want = if hidden == HiddenVersions::Keep { &all } else { &needed };
            let gone = sink.rows.len() + sink.tombstones.len();
            match pull(&mut flush, &mut sink) {
                Ok(summary) => self.flushed(&sink, &summary, snapshots, want),
                Err(error) => {
                    self.refused(&error, "a pulled flush");
                    let right = want.iter().copied().take(sink.rows.len());
                    if sink.torn > 0 || !sink.rows.iter().eq(right) {
                        self.wrong(|| format!("a flush pulled {gone} times hands out other entries"));
                    }
                }
            }
        }
    }

    fn flushed(&mut self, sink: &Collected, summary: &FlushSummary, snapshots: &[u64], want: &[&Row]) {
        let model = self.model();
        if !sink.rows.iter().eq(want.iter().copied()) || sink.torn > 0 {
            self.wrong(|| format!("flush at {snapshots:?} hands out other entries"));
        }
        let counts = (summary.entries, summary.entries + summary.hidden);
        if counts != (want.len() as u64, model.rows.len() as u64) {
            self.wrong(|| format!("flush at {snapshots:?}: {summary:?}"));
        }
        for key in &model.probes {
            for reader in snapshots.iter().copied().chain([u64::MAX]) {
                let found = newest_over(&sink.tombstones, key, reader);
                if found != model.cover(key, reader) {
                    self.wrong(|| format!("flushed fragments at {} for {reader}", key.escape_ascii()));
                }
            }
        }
    }

    /// Each entry that a salvage brings back was written, and no intact one is missing.
    pub fn salvage(&mut self, frozen: &ImmutableMemTable) {
        let salvage = frozen.salvage();
        let all = written(self.model());
        self.verdict.detected |= salvage.missing > 0 || salvage.failure.is_some();
        let mut found = BTreeSet::new();
        let mut last = None;
        for salvaged in &salvage.entries {
            let entry = &salvaged.entry;
            let (key, sequence, tombstone) =
                (entry.user_key(), entry.sequence(), entry.kind() == Kind::RANGE_DELETE);
            let id = (key.to_vec(), Reverse(sequence), tombstone);
            let row = all.get(&id).and_then(|rows| rows.get(salvaged.revision as usize));
            let same = row.is_some_and(|row| {
                row.kind == entry.kind() && entry.value().is_ok_and(|value| value == row.value)
            });
            if !same {
                self.wrong(|| format!("salvage brings back {}@{sequence}", key.escape_ascii()));
            }
            let place = (key, Reverse(sequence), Reverse(salvaged.revision), tombstone);
            if last.is_some_and(|last| last >= place) {
                self.wrong(|| format!("salvage is out of order at {}", key.escape_ascii()));
            }
            last = Some(place);
            found.insert((id, salvaged.revision as usize));
        }
        let blind = salvage.failure.is_some() || salvage.reach == Reach::Links || self.bounds().control;
        for (id, rows) in all {
            for revision in 0..rows.len() {
                let harmed = self.bounds().entries.contains(&(id.0.clone(), id.1.0));
                if !blind && !harmed && !found.contains(&(id.clone(), revision)) {
                    self.wrong(|| format!("salvage loses {}@{}", id.0.escape_ascii(), id.1.0));
                }
            }
        }
    }

    /// Freezes, or notes why that failed; either way writing has ended and the frozen table exists.
    pub fn freeze(&mut self, table: &MemTable) -> Option<std::sync::Arc<ImmutableMemTable>> {
        if let Err(error) = table.freeze() {
            self.refused(&error, "freeze");
        }
        let frozen = table.immutable();
        if frozen.is_none() {
            self.wrong(|| "a frozen table has no immutable one".into());
        }
        frozen
    }
}

/// Key, sequence number, and whether it is a range tombstone.
type Id = (Vec<u8>, Reverse<u64>, bool);

/// All that was written; equal entries in the order of their revisions.
fn written(model: &Model) -> BTreeMap<Id, Vec<&Row>> {
    let mut all: BTreeMap<Id, Vec<&Row>> = BTreeMap::new();
    for row in &model.writes {
        let id = (row.key.clone(), Reverse(row.sequence), row.kind == Kind::RANGE_DELETE);
        all.entry(id).or_default().push(row);
    }
    all
}
