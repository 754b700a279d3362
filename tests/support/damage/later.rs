//! The rest of a table's life after damage: inserts and reading them back, freeze, flush, scrub, salvage.

use std::collections::BTreeSet;

use paranoid_memtable::{
    Corruption, DeletedBy, Error, FlushEntry, FlushSink, Fragment, HiddenVersions, ImmutableMemTable, Kind,
    MemTable, Reach, Representation, SinkError, TableReader, WriteBatch,
};

use super::model::{Expected, Row, order};
use super::trial::Trial;

/// Takes what a flush hands out.
#[derive(Default)]
struct Collected {
    rows: Vec<Row>,
    tombstones: Vec<Row>,
}

impl FlushSink for Collected {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
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

/// The sequence numbers at which a key is deleted by these.
fn covering(tombstones: &[Row], key: &[u8]) -> BTreeSet<u64> {
    let covers = |row: &&Row| row.key.as_slice() <= key && key < row.value.as_slice();
    tombstones.iter().filter(covers).map(|row| row.sequence).collect()
}

/// What a scrub must bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A finding.
    Finding,
    /// Whatever there is.
    Anything,
}

/// Puts in a batch.
const BATCH: usize = 4;
/// Every how many-th probe gets an insert.
const INSERT_EVERY: usize = 3;

impl<'m> Trial<'m> {
    /// Reports of a scrub count as detection; damage that matters must be among them.
    pub fn scrub(&mut self, table: &TableReader, demand: Demand) {
        let report = table.scrub(|_| {});
        self.verdict.detected |= !report.findings.is_empty();
        if demand == Demand::Finding && report.findings.is_empty() {
            self.wrong(|| "a scrub finds nothing".into());
        }
    }

    /// Inserts between and above the old entries. Returns all rows that the table must hold now.
    pub fn inserts(&mut self, table: &MemTable) -> Vec<Row> {
        let model = self.model();
        let mut rows = model.rows.clone();
        let newest = model.writes.last().map_or(0, |row| row.sequence);
        for (number, probe) in (0..model.probes.len()).step_by(INSERT_EVERY).enumerate() {
            let sequence = newest + 1 + number as u64;
            let key = model.probes[probe].clone();
            let row = Row { key, sequence, kind: Kind::PUT, value: sequence.to_le_bytes().to_vec() };
            match table.insert(row.sequence, row.kind, &row.key, &row.value) {
                Ok(_) => rows.push(row),
                Err(error) => self.refused(&error, "insert"),
            }
        }
        // A log does not look for duplicates.
        let listed = model.shape.representation == Representation::SkipList;
        for row in model.rows.iter().step_by(INSERT_EVERY).filter(|_| listed) {
            match table.insert(row.sequence, Kind::PUT, &row.key, b"again") {
                Err(Error::DuplicateEntry { .. }) => {}
                Err(error) => self.refused(&error, "second insert"),
                Ok(_) => self.wrong(|| format!("a duplicate of {} is taken", row.key.escape_ascii())),
            }
        }
        rows.sort_by(order);
        for (probe, key) in model.probes.iter().enumerate() {
            let newest_row = rows.get(rows.partition_point(|row| row.key < *key));
            let newest_row = newest_row.filter(|row| row.key == *key && row.sequence > newest);
            let want = match newest_row {
                Some(row) => Expected::Value(row.sequence, row.value.clone()),
                None => model.expected[2][probe].clone(),
            };
            self.compare(probe, &want, table.get(key, u64::MAX), "get after inserts");
        }
        self.range_delete(table, newest + 1 + model.probes.len() as u64);
        self.batches(table, newest + 2 + model.probes.len() as u64, &mut rows);
        rows
    }

    /// Batches between and above the old entries: each is in as a whole, or as far as it says.
    fn batches(&mut self, table: &MemTable, mut sequence: u64, rows: &mut Vec<Row>) {
        let model = self.model();
        let keys: Vec<usize> = (1..model.probes.len()).step_by(INSERT_EVERY).collect();
        let mut written = Vec::new();
        for keys in keys.chunks(BATCH) {
            let mut batch = WriteBatch::with_protection(8).unwrap();
            let mut new = Vec::new();
            for probe in keys {
                let (key, value) = (model.probes[*probe].clone(), sequence.to_be_bytes().to_vec());
                batch.put(&key, &value).unwrap();
                new.push((*probe, Row { key, sequence, kind: Kind::PUT, value }));
                sequence += 1;
            }
            let taken = match table.write_batch(sequence - new.len() as u64, &batch) {
                Ok(_) => new.len(),
                Err(error) => {
                    self.refused(&error, "write_batch");
                    let Error::BatchInterrupted { applied, .. } = error else { continue };
                    applied as usize
                }
            };
            written.extend(new.into_iter().take(taken));
        }
        for (probe, row) in &written {
            let want = Expected::Value(row.sequence, row.value.clone());
            self.compare(*probe, &want, table.get(&row.key, u64::MAX), "get after a batch");
        }
        rows.extend(written.into_iter().map(|(_, row)| row));
        rows.sort_by(order);
    }

    /// A range delete after damage covers what it should.
    fn range_delete(&mut self, table: &MemTable, sequence: u64) {
        let model = self.model();
        let (from, to) = (model.probes.len() / 2, model.probes.len() / 2 + 3);
        match table.delete_range(sequence, &model.probes[from], &model.probes[to]) {
            Ok(_) => {
                self.deleted = Some(Row {
                    key: model.probes[from].clone(),
                    sequence,
                    kind: Kind::RANGE_DELETE,
                    value: model.probes[to].clone(),
                });
                let want = Expected::Deleted(sequence, DeletedBy::Range);
                for probe in from..to {
                    let got = table.get(&model.probes[probe], u64::MAX);
                    self.compare(probe, &want, got, "get after range delete");
                }
            }
            Err(error) => self.refused(&error, "delete_range"),
        }
    }

    /// What a flush hands out is complete, or it fails.
    pub fn flush(&mut self, frozen: &ImmutableMemTable, rows: &[&Row]) {
        let mut tombstones = self.model().tombstones.clone();
        tombstones.extend(self.deleted.clone());
        let mut sink = Collected::default();
        match frozen.flush_with(&[], HiddenVersions::Keep, &mut sink) {
            Err(error) => self.refused(&error, "flush"),
            Ok(_) => {
                if !sink.rows.iter().eq(rows.iter().copied()) {
                    self.wrong(|| "flush hands out other entries".into());
                }
                for key in &self.model().probes {
                    if covering(&sink.tombstones, key) != covering(&tombstones, key) {
                        self.wrong(|| format!("flushed fragments at {}", key.escape_ascii()));
                    }
                }
            }
        }
    }

    /// What a salvage brings back was written, and nothing intact is missing.
    pub fn salvage(&mut self, frozen: &ImmutableMemTable, rows: &[&Row]) {
        let salvage = frozen.salvage();
        let mut tombstones = self.model().tombstones.clone();
        tombstones.extend(self.deleted.clone());
        let mut all: Vec<&Row> = rows.iter().copied().chain(&tombstones).collect();
        all.sort_by(|left, right| order(left, right));
        self.verdict.detected |= salvage.missing > 0 || salvage.failure.is_some();
        let mut found = BTreeSet::new();
        let mut last = None;
        for salvaged in &salvage.entries {
            let entry = &salvaged.entry;
            let (key, sequence) = (entry.user_key(), entry.sequence());
            let here = |row: &&Row| row.key.as_slice().cmp(key).then(sequence.cmp(&row.sequence));
            let same = all.binary_search_by(here).is_ok_and(|place| {
                let row = all[place];
                row.kind == entry.kind() && entry.value().is_ok_and(|value| value == row.value)
            });
            if !same {
                self.wrong(|| format!("salvage brings back {}@{sequence}", key.escape_ascii()));
            }
            let place = (key, std::cmp::Reverse(sequence));
            if last.is_some_and(|last| last >= place) {
                self.wrong(|| format!("salvage is out of order at {}", key.escape_ascii()));
            }
            last = Some(place);
            found.insert((key.to_vec(), sequence));
        }
        let blind = salvage.failure.is_some() || salvage.reach == Reach::Links || self.bounds().control;
        for row in all {
            let id = (row.key.clone(), row.sequence);
            if !blind && !found.contains(&id) && !self.bounds().entries.contains(&id) {
                self.wrong(|| format!("salvage loses {}@{}", row.key.escape_ascii(), row.sequence));
            }
        }
    }

    /// Freezes, or notes why that failed.
    pub fn freeze(&mut self, table: &MemTable) -> Option<std::sync::Arc<ImmutableMemTable>> {
        match table.freeze() {
            Ok(frozen) => Some(frozen),
            Err(error) => {
                self.refused(&error, "freeze");
                None
            }
        }
    }

    /// The first finding of a scrub, for a story.
    pub fn first_finding(table: &TableReader) -> Option<Corruption> {
        table.scrub(|_| {}).findings.first().copied()
    }
}
