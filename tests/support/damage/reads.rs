//! The reads that a trial makes besides gets, scans and seeks: copies, many keys, shared cursors, bounds.

use paranoid_memtable::read::Found;
use paranoid_memtable::scan::Visibility;
use paranoid_memtable::{Entry, Error, Kind, OwnedCursor, TableReader};

use super::model::{Expected, Row};
use super::trial::{Shown, Trial};

/// A copy of an entry from a cursor that lends it only until its next move.
struct Copied {
    row: Row,
    /// What its value answered, if that was an error.
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
    let Some(entry) = cursor.entry()? else { return Ok(None) };
    let mut value = Vec::new();
    let refused = entry.value_into(&mut value).err();
    let (key, len) = (entry.user_key().to_vec(), entry.value_len());
    let row = Row { key, sequence: entry.sequence(), kind: entry.kind(), value };
    Ok(Some(Copied { len, row, refused }))
}

impl Trial<'_> {
    /// Runs all reads of this file.
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
                let same = match table.get_into(&model.probes[probe], *snapshot, &mut buffer) {
                    Err(error) => {
                        self.refused(&error, "get_into");
                        self.uncertain(probe, *snapshot);
                        buffer.is_empty()
                    }
                    Ok(Found::Value { sequence, .. }) => {
                        matches!(want, Expected::Value(at, value) if *at == sequence && *value == buffer)
                    }
                    Ok(Found::Deleted { sequence, by }) => *want == Expected::Deleted(sequence, by),
                    Ok(Found::Merge) => matches!(want, Expected::Merge(..)),
                    Ok(Found::NotFound) => *want == Expected::NotFound,
                };
                if !same {
                    self.wrong(|| format!("get_into {} at {snapshot}", model.probes[probe].escape_ascii()));
                }
            }
        }
    }

    /// Entries as stored: range tombstones are not applied.
    fn stored_entries(&mut self, table: &TableReader) {
        let model = self.model();
        for snapshot in [model.snapshots[0], u64::MAX] {
            for (probe, key) in model.probes.iter().enumerate() {
                let want = model.versions(key).iter().find(|row| row.sequence <= snapshot);
                match (table.get_entry(key, snapshot), want) {
                    (Err(error), _) => {
                        self.refused(&error, "get_entry");
                        self.uncertain(probe, snapshot);
                    }
                    (Ok(Some(entry)), Some(row)) => {
                        self.shows(&entry, row, "get_entry");
                        self.kept(table, &entry, row);
                    }
                    (Ok(None), None) => {}
                    (Ok(entry), _) => {
                        self.wrong(|| format!("get_entry {}: {entry:?}", key.escape_ascii()));
                    }
                }
            }
        }
    }

    /// Compares what outlives the borrow of an entry: its parts, a copy, a pinned entry.
    fn kept(&mut self, table: &TableReader, entry: &Entry<'_>, row: &Row) {
        let want = (row.key.as_slice(), row.sequence, row.kind, row.value.as_slice());
        let (parts, copy, pinned) = (entry.parts(), entry.to_bytes(), table.pin(entry));
        let held = [
            parts.map(|it| (it.user_key, it.sequence, it.kind, it.value) == want),
            copy.map(|it| (it.user_key(), it.sequence(), it.kind(), it.value()) == want),
            pinned.map(|it| (it.user_key(), it.sequence(), it.kind(), it.value()) == want),
        ];
        for (same, name) in held.into_iter().zip(["parts", "to_bytes", "pin"]) {
            match same {
                Err(error) => self.refused(&error, name),
                Ok(true) => {}
                Ok(false) => self.wrong(|| format!("{name} of {}", row.key.escape_ascii())),
            }
        }
    }

    /// Each version by its own sequence number, and the numbers between them.
    fn exact_entries(&mut self, table: &TableReader) {
        let model = self.model();
        for row in model.rows.iter().skip(self.turn() as usize % 3).step_by(3) {
            let Some(probe) = model.probe(&row.key) else { continue };
            for sequence in [row.sequence, row.sequence + 1] {
                let mut versions = model.versions(&row.key).iter();
                let want = versions.find(|row| row.sequence == sequence);
                match (table.get_exact(&row.key, sequence), want) {
                    (Err(error), _) => {
                        self.refused(&error, "get_exact");
                        self.uncertain(probe, sequence);
                    }
                    (Ok(Some(entry)), Some(row)) => self.shows(&entry, row, "get_exact"),
                    (Ok(None), None) => {}
                    (Ok(entry), _) => {
                        self.wrong(|| format!("get_exact {}@{sequence}: {entry:?}", row.key.escape_ascii()))
                    }
                }
            }
        }
    }

    /// Many keys at each snapshot, into one buffer; in descending order at the last one.
    fn many(&mut self, table: &TableReader) {
        let model = self.model();
        let mut results = Vec::new();
        for (snapshot, expected) in model.snapshots.iter().zip(&model.expected) {
            let descending = *snapshot == u64::MAX;
            let mut places: Vec<usize> = (0..model.probes.len()).collect();
            if descending {
                places.reverse();
            }
            let keys: Vec<&[u8]> = places.iter().map(|probe| model.probes[*probe].as_slice()).collect();
            match self.turn() % 4 {
                0 => results = table.multi_get(&keys, *snapshot),
                1 => table.multi_get_with_budget(&keys, *snapshot, u64::MAX, &mut results),
                _ => table.multi_get_into(&keys, *snapshot, &mut results),
            }
            for (probe, got) in places.into_iter().zip(results.drain(..)) {
                self.lookup(probe, *snapshot, &expected[probe], got, "multi_get");
            }
        }
    }

    /// Cursors with a share in the table.
    fn shared_scans(&mut self, table: &TableReader) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        let mut cursor = table.owned_cursor();
        self.there_and_back(["shared scan", "reverse shared scan"], &rows, |step| {
            step.of(&mut cursor)?;
            copied(&cursor)
        });
        let mut cursor = table.owned_cursor_at(model.snapshots[1]);
        let names = ["shared resolved scan", "reverse shared resolved scan"];
        self.there_and_back(names, &model.visible(1), |step| {
            step.of(&mut cursor)?;
            copied(&cursor)
        });
    }
}
