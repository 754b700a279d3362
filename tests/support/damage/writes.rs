//! Writes to a damaged table, in every way of writing. What was acknowledged joins the model.

use paranoid_memtable::integrity::Protected;
use paranoid_memtable::{Error, Inserted, Kind, MemTable, WriteBatch, Writer};

use super::model::Row;
use super::trial::Trial;

/// Entries of a batch.
const BATCH: usize = 4;
/// Every how many-th probe is written to.
const EVERY: usize = 3;

/// A way of writing.
enum Means<'t> {
    Table(&'t MemTable),
    Writer(Writer),
    /// A writer that has reserved room.
    Reserved(Writer),
    /// With the caller's digest.
    CallerDigest(&'t MemTable),
    /// With the value in slices.
    Slices(&'t MemTable, Writer),
}

impl<'t> Means<'t> {
    fn new(table: &'t MemTable, turn: usize) -> Result<Means<'t>, Error> {
        Ok(match turn % 5 {
            0 => Means::Table(table),
            1 => Means::Writer(table.writer()),
            2 => Means::Reserved(table.try_reserve(MemTable::max_entry_bytes(64, 64) * 8)?),
            3 => Means::CallerDigest(table),
            _ => Means::Slices(table, table.writer()),
        })
    }

    fn write(&mut self, row: &Row) -> Result<Inserted, Error> {
        let Row { key, sequence, kind, value } = row;
        match (self, *kind) {
            (Means::CallerDigest(table), Kind::PUT) => {
                let caller_digest = Protected::of(key, value, *kind);
                table.insert_parts(*sequence, *kind, key, &[value], Some(caller_digest))
            }
            (Means::Slices(table, writer), kind) => {
                let (low, high) = value.split_at(value.len() / 2);
                let (slices, caller_digest) = ([low, high], Protected::of(key, value, kind));
                match sequence % 3 {
                    0 => table.insert_parts(*sequence, kind, key, &slices, None),
                    1 => table.insert_parts(*sequence, kind, key, &slices, Some(caller_digest)),
                    _ => writer.insert_parts(*sequence, kind, key, &slices, None),
                }
            }
            (Means::Table(table) | Means::CallerDigest(table), kind) => match kind {
                Kind::PUT => table.put(*sequence, key, value),
                Kind::MERGE => table.merge(*sequence, key, value),
                Kind::DELETE => table.delete(*sequence, key),
                Kind::SINGLE_DELETE => table.single_delete(*sequence, key),
                Kind::RANGE_DELETE => table.delete_range(*sequence, key, value),
                kind => table.insert(*sequence, kind, key, value),
            },
            (Means::Writer(writer) | Means::Reserved(writer), kind) => match kind {
                Kind::PUT => writer.put(*sequence, key, value),
                Kind::MERGE => writer.merge(*sequence, key, value),
                Kind::DELETE => writer.delete(*sequence, key),
                Kind::SINGLE_DELETE => writer.single_delete(*sequence, key),
                Kind::RANGE_DELETE => writer.delete_range(*sequence, key, value),
                kind => writer.insert(*sequence, kind, key, value),
            },
        }
    }
}

impl Trial<'_> {
    /// Writes between the old entries and with newer versions. Returns what was acknowledged, in the order of
    /// writing.
    pub fn writes(&mut self, table: &MemTable) -> Vec<Row> {
        let mut written = Vec::new();
        let mut sequence = self.model().newest() + 1;
        let turn = self.turn() as usize;
        match Means::new(table, turn / 2) {
            Err(error) => self.refused(&error, "try_reserve"),
            Ok(mut means) => {
                for (number, probe) in (turn % EVERY..self.model().probes.len()).step_by(EVERY).enumerate() {
                    let row = self.row(number + turn, probe, sequence);
                    sequence += 1;
                    match means.write(&row) {
                        Ok(_) => written.push(row),
                        Err(error) => self.refused(&error, "a write"),
                    }
                }
                self.range_delete(&mut means, sequence, &mut written);
            }
        }
        self.again(table, &mut written);
        self.batches(table, sequence + 1, &mut written);
        written
    }

    /// A new version of a key; its kind changes with the number.
    fn row(&self, number: usize, probe: usize, sequence: u64) -> Row {
        let (custom, sized) = (Kind::custom(0), Kind::custom_delete(0));
        let kinds = [Kind::PUT, Kind::MERGE, Kind::PUT, Kind::DELETE, custom, sized, Kind::SINGLE_DELETE];
        let kind = kinds[number % kinds.len()];
        let value = if kind.is_point_delete() { Vec::new() } else { sequence.to_le_bytes().to_vec() };
        Row { key: self.model().probes[probe].clone(), sequence, kind, value }
    }

    /// Writes keys and sequence numbers that are taken: they are refused, or they replace.
    fn again(&mut self, table: &MemTable, written: &mut Vec<Row>) {
        let model = self.model();
        let replaces = self.replaces();
        for row in model.rows.iter().step_by(EVERY) {
            let row = Row { kind: Kind::PUT, value: b"again".to_vec(), ..row.clone() };
            match table.insert(row.sequence, row.kind, &row.key, &row.value) {
                Err(Error::DuplicateEntry { .. }) if !replaces => {}
                Ok(inserted) if replaces && inserted.displaced.is_some() => written.push(row),
                Err(error) => self.refused(&error, "a second write"),
                Ok(_) => self.wrong(|| format!("a duplicate of {} is taken", row.key.escape_ascii())),
            }
        }
    }

    fn range_delete(&mut self, means: &mut Means<'_>, sequence: u64, written: &mut Vec<Row>) {
        let probes = &self.model().probes;
        let from = probes.len() / 2;
        let to = (from + 3).min(probes.len() - 1);
        let (key, value) = (probes[from].clone(), probes[to].clone());
        let row = Row { key, sequence, kind: Kind::RANGE_DELETE, value };
        match means.write(&row) {
            Ok(_) => written.push(row),
            Err(error) => self.refused(&error, "delete_range"),
        }
    }

    /// Batches between the old entries and with newer versions: each is written whole, or up to the entry that its
    /// error names.
    fn batches(&mut self, table: &MemTable, mut sequence: u64, written: &mut Vec<Row>) {
        let turn = self.turn() as usize;
        let keys: Vec<usize> = ((turn + 1) % EVERY..self.model().probes.len()).step_by(EVERY).collect();
        let mut writer = table.writer();
        for (number, keys) in keys.chunks(BATCH).enumerate() {
            let mut batch = WriteBatch::with_protection(8).unwrap();
            let first = sequence;
            let mut rows = Vec::new();
            for (place, probe) in keys.iter().enumerate() {
                let row = self.row(turn + number + place, *probe, sequence);
                add(&mut batch, &row).unwrap();
                rows.push(row);
                sequence += 1;
            }
            if let Err(error) = table.check_batch(&batch) {
                self.wrong(|| format!("check_batch: {error}"));
            }
            let wrote = match (turn + number) % 2 {
                0 => table.write_batch(first, &batch),
                _ => writer.write_batch(first, &batch),
            };
            let taken = match wrote {
                Ok(_) => rows.len(),
                Err(error) => {
                    self.refused(&error, "write_batch");
                    let Error::BatchInterrupted { applied, .. } = error else { continue };
                    applied as usize
                }
            };
            written.extend(rows.into_iter().take(taken));
        }
    }
}

fn add(batch: &mut WriteBatch, row: &Row) -> Result<(), Error> {
    match row.kind {
        Kind::PUT => batch.put(&row.key, &row.value),
        Kind::MERGE => batch.merge(&row.key, &row.value),
        Kind::DELETE => batch.delete(&row.key),
        Kind::SINGLE_DELETE => batch.single_delete(&row.key),
        kind => batch.insert(kind, &row.key, &row.value),
    }
}
