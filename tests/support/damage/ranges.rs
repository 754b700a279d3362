//! Ranges that are kept: they seek and get new bounds, and each step is compared with the row that it should return.

use std::ops::Bound;

use paranoid_memtable::scan::{EntryRange, Handle, Visibility};
use paranoid_memtable::{Error, TableReader};

use super::model::Row;
use super::trial::Trial;

/// Bounds that leave nothing out.
const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// The end of a range that seeks.
#[derive(Debug, Clone, Copy)]
enum Seek<'k> {
    Front(&'k [u8]),
    Back(&'k [u8]),
}

impl Trial<'_> {
    /// One range of each kind, which seeks around every third key.
    pub fn sought_ranges(&mut self, table: &TableReader) {
        let model = self.model();
        let (mut raw, mut resolved) = (table.owned_range(..), table.range_at(model.snapshots[1], ..));
        let rows: Vec<&Row> = model.rows.iter().collect();
        let shown = model.visible(1);
        for (probe, key) in model.probes.iter().enumerate().skip(self.turn() as usize % 3).step_by(3) {
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
        range: &mut EntryRange<H, L>,
        seek: Seek<'_>,
        rows: &[&Row],
    ) {
        range.set_bounds::<&[u8]>(ALL);
        let (answered, row) = match seek {
            Seek::Front(key) => {
                range.seek(key);
                let after = rows.partition_point(|row| row.key.as_slice() < key);
                let moved = range.next_entry();
                let answered = moved.as_ref().map(drop).map_err(drop);
                self.sought(probe, "seek of a range", moved, rows.get(after).copied());
                (answered, after)
            }
            Seek::Back(key) => {
                range.seek_for_prev(key);
                let after = rows.partition_point(|row| row.key.as_slice() <= key);
                let before = after.checked_sub(1).map(|before| rows[before]);
                let moved = range.next_back_entry();
                let answered = moved.as_ref().map(drop).map_err(drop);
                self.sought(probe, "seek_for_prev of a range", moved, before);
                (answered, after)
            }
        };
        self.status_says("a range", range.status(), answered, row);
    }

    fn status_says(&mut self, what: &str, status: Result<(), Error>, step: Result<(), ()>, row: usize) {
        if status.is_err() != step.is_err() {
            self.wrong(|| format!("status of {what} sought at row {row}: {status:?}"));
        }
    }

    /// Ranges between two versions, and from one on.
    fn sought_versions(&mut self, table: &TableReader) {
        let model = self.model();
        let (mut range, mut keys) = (table.range(..), table.owned_range_descending(..));
        for row in model.rows.iter().skip(self.turn() as usize % 3).step_by(3) {
            let Some(probe) = model.probe(&row.key) else { continue };
            let place = (row.key.as_slice(), row.sequence);
            range.set_version_bounds(place..=place);
            self.sought(probe, "set_version_bounds", range.next_back_entry(), Some(row));
            range.set_bounds::<&[u8]>(ALL);
            range.seek_version(&row.key, row.sequence);
            self.sought(probe, "seek_version of a range", range.next_entry(), Some(row));
            keys.set_version_bounds(place..=place);
            self.sought(probe, "set_version_bounds, descending", keys.next_entry(), Some(row));
        }
    }

    /// Descending ranges begin with the newest version of a key.
    fn sought_keys(&mut self, table: &TableReader) {
        let model = self.model();
        let mut range = table.range_descending(..);
        for (probe, key) in model.probes.iter().enumerate().skip(self.turn() as usize % 3).step_by(3) {
            let last = model.rows.iter().rfind(|row| row.key <= *key);
            let newest = last.and_then(|row| model.versions(&row.key).first());
            range.set_bounds::<&[u8]>(ALL);
            range.seek(key);
            let moved = range.next_entry();
            let answered = moved.as_ref().map(drop).map_err(drop);
            self.sought(probe, "seek of a descending range", moved, newest);
            self.status_says("a descending range", range.status(), answered, probe);
        }
    }
}
