//! The calls of a trial besides gets, scans and seeks: copies, many keys, shared cursors, bounds,
//! and ranges that are kept, seek and get new bounds. Then writes in every way of writing, which
//! join the model when they are acknowledged.

use std::ops::Bound;

use paranoid_memtable::batch::BatchWritten;
use paranoid_memtable::integrity::Protected;
use paranoid_memtable::scan::{Handle, Visibility};
use paranoid_memtable::{
    Entry, Error, Inserted, Kind, Lookup, MemTable, OwnedCursor, Range, TableReader, WriteBatch,
    Writer,
};

use super::census::{Call, Near};
use super::model::{Expected, Row};
use super::trial::{Shown, Trial};

/// A copy of an entry from a cursor that lends it only until its next move.
struct Copied {
    row: Row,
    /// The error of its value, if there was one.
    refused: Option<Error>,
    len: usize,
}

impl Shown for Copied {
    fn key(&self) -> &[u8] {
        &self.row.key
    }
    fn sequence(&self) -> u64 {
        self.row.sequence
    }
    fn kind(&self) -> Kind {
        self.row.kind
    }
    fn shown_value(&self) -> Result<&[u8], Error> {
        match self.refused.as_ref().and_then(Error::corruption) {
            Some(corruption) => Err((*corruption).into()),
            None => Ok(&self.row.value),
        }
    }
    fn len(&self) -> Option<usize> {
        Some(self.len)
    }
}

fn copied<L: Visibility>(cursor: &OwnedCursor<L>) -> Result<Option<Copied>, Error> {
    let Some(entry) = cursor.entry()? else {
        return Ok(None);
    };
    let mut value = Vec::new();
    let refused = entry.value_into(&mut value).err();
    let (key, len) = (entry.user_key().to_vec(), entry.value_len());
    let row = Row {
        key,
        sequence: entry.sequence(),
        kind: entry.kind(),
        value,
    };
    Ok(Some(Copied { len, row, refused }))
}

impl Trial<'_> {
    /// Makes all reads of this file.
    pub fn further_reads(&mut self, table: &TableReader) {
        self.gets_into(table);
        self.stored_entries(table);
        self.exact_entries(table);
        self.many(table);
        self.shared_scans(table);
    }

    fn gets_into(&mut self, table: &TableReader) {
        let model = self.model();
        let mut buffer = Vec::new();
        for (snapshot, expected) in model.snapshots.iter().zip(&model.expected) {
            for (probe, want) in expected.iter().enumerate() {
                let got = table.get_into(&model.probes[probe], *snapshot, &mut buffer);
                self.call(Call::get(self.near(probe)), |trial| {
                    if let Err(error) = &got {
                        trial.refused(error, "get_into");
                        trial.uncertain(probe, *snapshot);
                    }
                });
                let same = match got {
                    Err(_) => buffer.is_empty(),
                    Ok(Lookup::Value((sequence, _))) => {
                        matches!(want, Expected::Value(at, value) if *at == sequence && *value == buffer)
                    }
                    Ok(Lookup::Deleted { sequence, by }) => {
                        *want == Expected::Deleted(sequence, by)
                    }
                    Ok(Lookup::Merge(())) => matches!(want, Expected::Merge(..)),
                    Ok(Lookup::NotFound) => *want == Expected::NotFound,
                };
                if !same {
                    self.wrong(|| {
                        format!(
                            "get_into {} at {snapshot}",
                            model.probes[probe].escape_ascii()
                        )
                    });
                }
            }
        }
    }

    /// Compares entries as stored: range tombstones are not applied.
    fn stored_entries(&mut self, table: &TableReader) {
        let model = self.model();
        for snapshot in [model.snapshots[0], u64::MAX] {
            for (probe, key) in model.probes.iter().enumerate() {
                let want = model
                    .versions(key)
                    .iter()
                    .find(|row| row.sequence <= snapshot);
                self.call(Call::get(self.near(probe)), |trial| {
                    match (table.get_entry(key, snapshot), want) {
                        (Err(error), _) => {
                            trial.refused(&error, "get_entry");
                            trial.uncertain(probe, snapshot);
                        }
                        (Ok(Some(entry)), Some(row)) => {
                            trial.shows(&entry, row, "get_entry");
                            trial.kept(&entry, row);
                        }
                        (Ok(None), None) => {}
                        (Ok(entry), _) => {
                            trial.wrong(|| format!("get_entry {}: {entry:?}", key.escape_ascii()));
                        }
                    }
                });
            }
        }
    }

    /// Compares the data that outlive the borrow of an entry: its parts, and a copy.
    fn kept(&mut self, entry: &Entry<'_>, row: &Row) {
        let want = (
            row.key.as_slice(),
            row.sequence,
            row.kind,
            row.value.as_slice(),
        );
        let (parts, copy) = (entry.parts(), entry.to_bytes());
        let held = [
            parts.map(|(key, value)| (key, entry.sequence(), entry.kind(), value) == want),
            copy.map(|it| (it.user_key(), it.sequence(), it.kind(), it.value()) == want),
        ];
        for (same, name) in held.into_iter().zip(["parts", "to_bytes"]) {
            match same {
                Err(error) => self.refused(&error, name),
                Ok(true) => {}
                Ok(false) => self.wrong(|| format!("{name} of {}", row.key.escape_ascii())),
            }
        }
    }

    /// Reads each version by its own sequence number, and by the numbers between them.
    fn exact_entries(&mut self, table: &TableReader) {
        let model = self.model();
        for row in model.rows.iter().skip(self.turn() as usize % 3).step_by(3) {
            let Some(probe) = model.probe(&row.key) else {
                continue;
            };
            for sequence in [row.sequence, row.sequence + 1] {
                let mut versions = model.versions(&row.key).iter();
                let want = versions.find(|row| row.sequence == sequence);
                let found = table.get_entry(&row.key, sequence);
                let found = found.map(|entry| entry.filter(|entry| entry.sequence() == sequence));
                self.call(Call::get(self.near(probe)), |trial| match (found, want) {
                    (Err(error), _) => {
                        trial.refused(&error, "get_entry");
                        trial.uncertain(probe, sequence);
                    }
                    (Ok(Some(entry)), Some(row)) => trial.shows(&entry, row, "get_entry"),
                    (Ok(None), None) => {}
                    (Ok(entry), _) => trial.wrong(|| {
                        format!("get_entry {}@{sequence}: {entry:?}", row.key.escape_ascii())
                    }),
                });
            }
        }
    }

    /// Reads many keys at each snapshot into one buffer, in descending order at the last one.
    pub fn many(&mut self, table: &TableReader) {
        let model = self.model();
        let mut results = Vec::new();
        for (snapshot, expected) in model.snapshots.iter().zip(&model.expected) {
            let descending = *snapshot == u64::MAX;
            let mut places: Vec<usize> = (0..model.probes.len()).collect();
            if descending {
                places.reverse();
            }
            let keys: Vec<&[u8]> = places
                .iter()
                .map(|probe| model.probes[*probe].as_slice())
                .collect();
            match self.turn() % 4 {
                0 => results = table.multi_get(&keys, *snapshot),
                _ => table.multi_get_into(&keys, *snapshot, &mut results),
            }
            for (probe, got) in places.into_iter().zip(results.drain(..)) {
                self.lookup(probe, *snapshot, &expected[probe], got, "multi_get");
            }
        }
    }

    /// Walks with cursors that share the table.
    fn shared_scans(&mut self, table: &TableReader) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        let mut cursor = table.cursor().owned();
        self.there_and_back(["shared scan", "reverse shared scan"], &rows, |step| {
            step.of(&mut cursor)?;
            copied(&cursor)
        });
        let mut cursor = table.cursor_at(model.snapshots[1]).owned();
        let names = ["shared resolved scan", "reverse shared resolved scan"];
        self.there_and_back(names, &model.visible(1), |step| {
            step.of(&mut cursor)?;
            copied(&cursor)
        });
        let mut source = table.source();
        for key in &model.probes {
            let found = source.cover(table.comparator(), key, model.snapshots[1]);
            self.call(Call::Tombstones, |trial| match found {
                Err(error) => trial.refused(&error, "cover"),
                Ok(found)
                    if found.map(|cover| cover.sequence)
                        == model.cover(key, model.snapshots[1]) => {}
                Ok(_) => trial.wrong(|| format!("cover of {}", key.escape_ascii())),
            });
        }
    }
}

/// Bounds that leave nothing out.
const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// The end of a range that seeks.
#[derive(Debug, Clone, Copy)]
enum Seek<'k> {
    Front(&'k [u8]),
    Back(&'k [u8]),
}

impl Trial<'_> {
    /// Seeks with one range of each kind around every third key.
    pub fn sought_ranges(&mut self, table: &TableReader) {
        let model = self.model();
        let (mut raw, mut resolved) = (
            table.range(..).owned(),
            table.range_at(.., model.snapshots[1]),
        );
        let rows: Vec<&Row> = model.rows.iter().collect();
        let shown = model.visible(1);
        for (probe, key) in model
            .probes
            .iter()
            .enumerate()
            .skip(self.turn() as usize % 3)
            .step_by(3)
        {
            for seek in [Seek::Front(key), Seek::Back(key)] {
                self.sought_end(probe, &mut raw, seek, &rows);
                self.sought_end(probe, &mut resolved, seek, &shown);
            }
        }
        self.sought_versions(table);
        self.sought_keys(table);
    }

    fn sought_end<H: Handle, L: Visibility>(
        &mut self,
        probe: usize,
        range: &mut Range<H, L>,
        seek: Seek<'_>,
        rows: &[&Row],
    ) {
        range.set_bounds(ALL);
        match seek {
            Seek::Front(key) => {
                range.seek(key);
                let after = rows.partition_point(|row| row.key.as_slice() < key);
                self.sought(
                    probe,
                    "seek of a range",
                    range.next_entry(),
                    rows.get(after).copied(),
                );
            }
            Seek::Back(key) => {
                range.seek_for_prev(key);
                let after = rows.partition_point(|row| row.key.as_slice() <= key);
                let before = after.checked_sub(1).map(|before| rows[before]);
                self.sought(
                    probe,
                    "seek_for_prev of a range",
                    range.next_back_entry(),
                    before,
                );
            }
        }
    }

    /// Walks ranges between two versions, and from one version.
    fn sought_versions(&mut self, table: &TableReader) {
        let model = self.model();
        let (mut range, mut keys) = (table.range(..), table.range(..).owned().descending());
        for row in model.rows.iter().skip(self.turn() as usize % 3).step_by(3) {
            let Some(probe) = model.probe(&row.key) else {
                continue;
            };
            let place = (row.key.as_slice(), row.sequence);
            range.set_version_bounds(place..=place);
            self.sought(
                probe,
                "set_version_bounds",
                range.next_back_entry(),
                Some(row),
            );
            range.set_bounds(ALL);
            range.seek_version(&row.key, row.sequence);
            self.sought(
                probe,
                "seek_version of a range",
                range.next_entry(),
                Some(row),
            );
            keys.set_version_bounds(place..=place);
            self.sought(
                probe,
                "set_version_bounds, descending",
                keys.next_entry(),
                Some(row),
            );
        }
    }

    /// Descending ranges begin with the newest version of a key.
    fn sought_keys(&mut self, table: &TableReader) {
        let model = self.model();
        let mut range = table.range(..).descending();
        for (probe, key) in model
            .probes
            .iter()
            .enumerate()
            .skip(self.turn() as usize % 3)
            .step_by(3)
        {
            let last = model.rows.iter().rfind(|row| row.key <= *key);
            let newest = last.and_then(|row| model.versions(&row.key).first());
            range.set_bounds(ALL);
            range.seek(key);
            self.sought(
                probe,
                "seek of a descending range",
                range.next_entry(),
                newest,
            );
        }
    }
}

/// Number of entries of a batch.
const BATCH: usize = 4;
/// One probe in this number is written to.
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
        let Row {
            key,
            sequence,
            kind,
            value,
        } = row;
        match (self, *kind) {
            (Means::CallerDigest(table), Kind::PUT) => {
                let caller_digest = Protected::of(key, value, *kind).with_sequence(*sequence);
                table.insert_parts(*sequence, *kind, key, &[value], Some(caller_digest))
            }
            (Means::Slices(table, writer), kind) => {
                let (low, high) = value.split_at(value.len() / 2);
                let caller_digest = Protected::of(key, value, kind).with_sequence(*sequence);
                let slices = [low, high];
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
    /// Writes between the old entries and with newer versions, from this sequence number on.
    /// Returns the acknowledged writes, in order.
    pub fn writes(&mut self, table: &MemTable, first: u64) -> Vec<Row> {
        let mut written = Vec::new();
        let mut sequence = first;
        let turn = self.turn() as usize;
        match Means::new(table, turn / 2) {
            Err(error) => self.refused(&error, "try_reserve"),
            Ok(mut means) => {
                for (number, probe) in (turn % EVERY..self.model().probes.len())
                    .step_by(EVERY)
                    .enumerate()
                {
                    let row = self.row(number + turn, probe, sequence);
                    sequence += 1;
                    self.call(Call::put(self.near(probe)), |trial| {
                        match means.write(&row) {
                            Ok(_) => written.push(row),
                            Err(error) => trial.refused(&error, "a write"),
                        }
                    });
                }
                self.range_delete(&mut means, sequence, &mut written);
            }
        }
        self.again(table, &mut written);
        self.batches(table, sequence + 1, &mut written);
        written
    }

    /// A new version of a key. Its kind follows from the number.
    fn row(&self, number: usize, probe: usize, sequence: u64) -> Row {
        let (custom, sized) = (Kind::custom(0), Kind::custom_delete(0));
        let kinds = [
            Kind::PUT,
            Kind::MERGE,
            Kind::PUT,
            Kind::DELETE,
            custom,
            sized,
            Kind::SINGLE_DELETE,
        ];
        let kind = kinds[number % kinds.len()];
        let value = if kind.is_point_delete() {
            Vec::new()
        } else {
            sequence.to_le_bytes().to_vec()
        };
        Row {
            key: self.model().probes[probe].clone(),
            sequence,
            kind,
            value,
        }
    }

    /// Writes keys and sequence numbers that exist: such writes are refused, or they replace.
    fn again(&mut self, table: &MemTable, written: &mut Vec<Row>) {
        let model = self.model();
        let replaces = self.replaces();
        for row in model.rows.iter().step_by(EVERY) {
            let row = Row {
                kind: Kind::PUT,
                value: b"again".to_vec(),
                ..row.clone()
            };
            let near = model.probe(&row.key).map(|probe| self.near(probe));
            let inserted = table.insert(row.sequence, row.kind, &row.key, &row.value);
            self.call(
                Call::put(near.unwrap_or(Near::Other)),
                |trial| match inserted {
                    Err(Error::DuplicateEntry { .. }) if !replaces => {}
                    Ok(inserted) if replaces && inserted.displaced.is_some() => written.push(row),
                    Err(error) => trial.refused(&error, "a second write"),
                    Ok(_) => {
                        trial.wrong(|| {
                            format!("a duplicate of {} is taken", row.key.escape_ascii())
                        });
                    }
                },
            );
        }
    }

    fn range_delete(&mut self, means: &mut Means<'_>, sequence: u64, written: &mut Vec<Row>) {
        let probes = &self.model().probes;
        let last = probes.len() - 1;
        let from = (probes.len() / 2).min(last - 1);
        let to = (from + 3).min(last);
        let (key, value) = (probes[from].clone(), probes[to].clone());
        let row = Row {
            key,
            sequence,
            kind: Kind::RANGE_DELETE,
            value,
        };
        self.call(Call::RangeDelete, |trial| match means.write(&row) {
            Ok(_) => written.push(row),
            Err(error) => trial.refused(&error, "delete_range"),
        });
    }

    /// Writes batches between the old entries and with newer versions. Each is written whole, or up
    /// to the entry that its error names.
    fn batches(&mut self, table: &MemTable, mut sequence: u64, written: &mut Vec<Row>) {
        let turn = self.turn() as usize;
        let keys: Vec<usize> = ((turn + 1) % EVERY..self.model().probes.len())
            .step_by(EVERY)
            .collect();
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
            if let Err(error) = table.prepare(&batch).map(drop) {
                self.wrong(|| format!("prepare: {error}"));
            }
            let wrote = match (turn + number) % 4 {
                0 => table.write_batch(first, &batch),
                1 => writer.write_batch(first, &batch),
                2 => by_family(table, first, &batch),
                _ => by_steps(table, first, &batch),
            };
            let taken = self.call(Call::Batch, |trial| match wrote {
                Ok(_) => rows.len(),
                Err(error) => {
                    trial.refused(&error, "write_batch");
                    match error {
                        Error::BatchInterrupted { applied, .. } => applied as usize,
                        _ => 0,
                    }
                }
            });
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

/// Writes a batch as the default family of a batch with an entry of another family.
fn by_family(table: &MemTable, first: u64, batch: &WriteBatch) -> Result<BatchWritten, Error> {
    let mut batch = batch.clone();
    batch.insert_in(1, Kind::PUT, b"of another table", b"")?;
    table.write_batch_of(0, first, &batch)
}

/// Writes a batch into space that was reserved for it.
fn by_steps(table: &MemTable, first: u64, batch: &WriteBatch) -> Result<BatchWritten, Error> {
    let mut prepared = table.prepare(batch)?;
    assert!(prepared.numbers() == batch.len() as u64 && prepared.bytes() > 0);
    table.reserve(&mut prepared)?.write(first)
}
