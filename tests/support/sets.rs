//! What tests of sets share: a plain history of entries with an answer to every question, a journal in memory, and the
//! base that a flush fills.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::read::Base;
use paranoid_memtable::set::{Cover, Journal, SetLookup, SortedSource, SourceKey, View};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, Kind, WriteBatch};

/// A key and its sequence number, newest first.
pub type Version = (Vec<u8>, Reverse<u64>);

/// Entries and range tombstones, by key and descending sequence number.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub points: BTreeMap<Version, (Kind, Vec<u8>)>,
    /// Start, end, sequence number.
    pub ranges: BTreeSet<(Vec<u8>, Vec<u8>, u64)>,
}

/// What is known of a key: merge operands, newest first, and what they apply to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub operands: Vec<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

impl History {
    pub fn insert(&mut self, sequence: u64, kind: Kind, key: &[u8], value: &[u8]) {
        if kind == Kind::RANGE_DELETE {
            self.ranges.insert((key.to_vec(), value.to_vec(), sequence));
        } else {
            self.points.insert((key.to_vec(), Reverse(sequence)), (kind, value.to_vec()));
        }
    }

    /// The largest number up to the snapshot of a range tombstone that covers the key.
    fn cover(&self, key: &[u8], snapshot: u64) -> u64 {
        let covers = |(start, end, sequence): &&(Vec<u8>, Vec<u8>, u64)| {
            *sequence <= snapshot && start.as_slice() <= key && key < end.as_slice()
        };
        self.ranges.iter().filter(covers).map(|range| range.2).max().unwrap_or(0)
    }

    /// Adds what a read at the snapshot finds here to what newer entries said.
    pub fn read(&self, key: &[u8], snapshot: u64, mut known: Known) -> Known {
        let cover = self.cover(key, snapshot);
        let from = (key.to_vec(), Reverse(snapshot));
        for ((_, Reverse(sequence)), (kind, value)) in
            self.points.range(from..).take_while(|((other, _), _)| other == key)
        {
            if *sequence < cover {
                return known;
            }
            if *kind == Kind::MERGE {
                known.operands.push(value.clone());
                continue;
            }
            known.value = kind.is_value().then(|| value.clone());
            return known;
        }
        known
    }
}

impl FlushSink for History {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let stored = entry.protection.check(entry.user_key, entry.value, entry.sequence, entry.kind);
        assert!(stored.is_some(), "an entry agrees with its digests");
        if let Some(((key, Reverse(sequence)), _)) =
            self.points.get_key_value(&(entry.user_key.to_vec(), Reverse(entry.sequence)))
        {
            panic!("{key:?}@{sequence} twice");
        }
        self.insert(entry.sequence, entry.kind, entry.user_key, entry.value);
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        for sequence in fragment.sequences() {
            self.insert(*sequence, Kind::RANGE_DELETE, fragment.start(), fragment.end());
        }
        Ok(())
    }
}

/// What a view and its base say about a key together.
pub fn read_through(view: &View<History>, key: &[u8]) -> Known {
    finish(view, key, view.get(key).unwrap())
}

/// Adds what the base says to what the tables say.
pub fn finish(view: &View<History>, key: &[u8], lookup: SetLookup<'_>) -> Known {
    let below = |known: Known| view.base().read(key, view.sequence(), known);
    match lookup {
        SetLookup::Value(value) => Known { operands: vec![], value: Some(value.to_vec()) },
        SetLookup::Deleted { .. } => Known::default(),
        SetLookup::NotFound => below(Known::default()),
        SetLookup::Merge(pending) => {
            let operands = pending.operands().iter().map(|operand| operand.value.to_vec()).collect();
            match pending.base() {
                Base::Value(value) => Known { operands, value: Some(value.to_vec()) },
                Base::Deleted => Known { operands, value: None },
                Base::Below => below(Known { operands, value: None }),
            }
        }
    }
}

/// What a journal was told.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// By table.
    pub batches: BTreeMap<u64, Vec<Vec<u8>>>,
    pub abandoned: Vec<(u64, u64)>,
    pub appends: u64,
    pub synced: u64,
    pub table: u64,
    /// What the next calls answer, from the last one on.
    pub append_fails: Option<Error>,
    pub sync_fails: Option<Error>,
    pub switch_fails: Option<Error>,
    pub abandon_fails: Option<Error>,
    pub removal_fails: Option<Error>,
    pub sync_panics: bool,
}

/// A journal in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal(pub Arc<Mutex<Log>>);

impl Journal for MemoryJournal {
    fn append(&self, batch: &[u8]) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.append_fails.take() {
            return Err(error);
        }
        let table = log.table;
        log.batches.entry(table).or_default().push(batch.to_vec());
        log.appends += 1;
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(!std::mem::take(&mut log.sync_panics), "a journal panics");
        if let Some(error) = log.sync_fails.take() {
            return Err(error);
        }
        log.synced = log.appends;
        Ok(())
    }

    fn switch(&self, table: u64) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.switch_fails.take() {
            return Err(error);
        }
        assert!(table > log.table, "numbers ascend");
        log.table = table;
        Ok(())
    }

    fn obsolete_before(&self, table: u64) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.removal_fails.take() {
            return Err(error);
        }
        log.batches.retain(|number, _| *number >= table);
        Ok(())
    }

    fn abandon(&self, first: u64, last: u64) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.abandon_fails.take() {
            return Err(error);
        }
        log.abandoned.push((first, last));
        Ok(())
    }
}

impl MemoryJournal {
    /// The batches that a recovery would replay, in order.
    pub fn recovered(&self) -> Vec<WriteBatch> {
        let log = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let batches = log.batches.values().flatten();
        let batches = batches.map(|bytes| WriteBatch::from_bytes(bytes).unwrap());
        let is_abandoned = |batch: &WriteBatch| {
            log.abandoned.iter().any(|(first, last)| (*first..=*last).contains(&batch.sequence()))
        };
        batches.filter(|batch| !is_abandoned(batch)).collect()
    }
}

/// A history as a source of a merging cursor.
pub struct HistorySource<'h> {
    history: &'h History,
    at: Option<&'h Version>,
}

impl<'h> HistorySource<'h> {
    pub fn new(history: &'h History) -> Self {
        HistorySource { history, at: None }
    }

    fn go(&mut self, to: Option<(&'h Version, &'h (Kind, Vec<u8>))>) -> Result<Option<SourceKey<'_>>, Error> {
        self.at = to.map(|(version, _)| version);
        Ok(to.map(|((key, Reverse(sequence)), (kind, _))| SourceKey {
            user_key: key,
            sequence: *sequence,
            kind: *kind,
        }))
    }
}

impl SortedSource for HistorySource<'_> {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<Option<SourceKey<'_>>, Error> {
        self.go(self.history.points.range((key.to_vec(), Reverse(sequence))..).next())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>, Error> {
        self.go(self.history.points.range(..(key.to_vec(), Reverse(u64::MAX))).next_back())
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>, Error> {
        self.go(self.history.points.range(..=(key.to_vec(), Reverse(0))).next_back())
    }
    fn first(&mut self) -> Result<Option<SourceKey<'_>>, Error> {
        self.go(self.history.points.iter().next())
    }
    fn last(&mut self) -> Result<Option<SourceKey<'_>>, Error> {
        self.go(self.history.points.iter().next_back())
    }
    fn next(&mut self) -> Result<Option<SourceKey<'_>>, Error> {
        let after = self.at.map(|at| (Bound::Excluded(at.clone()), Bound::Unbounded));
        self.go(after.and_then(|after| self.history.points.range(after).next()))
    }
    fn prev(&mut self) -> Result<Option<SourceKey<'_>>, Error> {
        let before = self.at.map(|at| ..at.clone());
        self.go(before.and_then(|before| self.history.points.range(before).next_back()))
    }
    fn value_into(&self, value: &mut Vec<u8>) -> Result<(), Error> {
        value.clone_from(&self.history.points[self.at.expect("it stands on an entry")].1);
        Ok(())
    }
    fn cover(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Cover<'_>>, Error> {
        let covers = |range: &&(Vec<u8>, Vec<u8>, u64)| {
            range.2 <= snapshot && range.0.as_slice() <= key && key < range.1.as_slice()
        };
        let newest = self.history.ranges.iter().filter(covers).max_by_key(|range| range.2);
        Ok(newest.map(|(start, end, sequence)| {
            let from = (start.clone(), Reverse(u64::MAX))..(end.clone(), Reverse(u64::MAX));
            let newer = *sequence..=snapshot;
            let has_newer = self.history.points.range(from).any(|((_, point), _)| newer.contains(&point.0));
            Cover { sequence: *sequence, span: Some((start, end)), hides_own: !has_newer }
        }))
    }
}
