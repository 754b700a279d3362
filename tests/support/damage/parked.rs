//! Cursors and ranges that were parked before the damage, and are asked and moved after it.

use paranoid_memtable::scan::{
    AtSnapshot, Cursor, Descending, EntryRange, Handle, OwnedDescending, Visibility,
};
use paranoid_memtable::{Error, MemTable, OwnedCursor, OwnedRange, Range, TableCursor};

use super::model::{Model, Row};
use super::trial::Trial;
use super::walk::{End, Walk, WayOn};

type At<C> = Vec<(usize, C)>;

/// What was parked, and on which rows.
#[derive(Default)]
pub struct Parked<'t> {
    raw: At<TableCursor<'t>>,
    resolved: At<TableCursor<'t, AtSnapshot>>,
    owned: At<OwnedCursor>,
    owned_resolved: At<OwnedCursor<AtSnapshot>>,
    /// Rows that its front has shown, and its back; the range.
    ranges: Vec<((usize, usize), Ranged<'t>)>,
    /// Rows that it has shown, in its order.
    descending: At<Descent<'t>>,
}

/// A range of any kind with two ends.
enum Ranged<'t> {
    Raw(Range<'t>),
    Owned(OwnedRange),
    Resolved(Range<'t, AtSnapshot>),
    OwnedResolved(OwnedRange<AtSnapshot>),
}

/// A descending range of either kind.
enum Descent<'t> {
    Borrowed(Descending<'t>),
    Owned(OwnedDescending),
}

/// Steps that a parked cursor makes after the damage.
const STEPS: usize = 3;
/// The snapshot of those that read at one.
const SNAPSHOT: usize = 1;
/// Cursors of a kind, at most.
const MOST: usize = 64;

impl<'t> Parked<'t> {
    /// Parks cursors on rows all over an undamaged table: half of the kinds, chosen by `turn`.
    pub fn new(table: &'t MemTable, model: &Model, turn: u64) -> Result<Parked<'t>, Error> {
        let mut parked = Parked::default();
        let places = |rows: usize| {
            (turn as usize % rows.div_ceil(MOST).max(1)..rows).step_by(rows.div_ceil(MOST).max(1))
        };
        let shown = model.visible(SNAPSHOT);
        let snapshot = model.snapshots[SNAPSHOT];
        for place in places(model.rows.len()) {
            let row = &model.rows[place];
            if turn.is_multiple_of(2) {
                parked.raw.push((place, park(table.cursor(), row)?));
            } else {
                parked.owned.push((place, park(table.owned_cursor(), row)?));
            }
        }
        for place in places(shown.len()) {
            let row = shown[place];
            if turn.is_multiple_of(2) {
                parked.owned_resolved.push((place, park(table.owned_cursor_at(snapshot), row)?));
            } else {
                parked.resolved.push((place, park(table.cursor_at(snapshot), row)?));
            }
        }
        // One kind of range a turn, with one end on each place and the other one anywhere, or not moved yet.
        let kind = turn as usize % RANGES;
        let resolved = kind.is_multiple_of(2);
        let rows = if resolved { shown.len() } else { model.rows.len() };
        for place in places(rows + 1) {
            let other = turn as usize / RANGES % (rows - place + 1);
            let ends = [(place, 0), (0, place), (place, other)][(turn as usize / RANGES + place) % 3];
            parked.ranges.push((ends, ranged(table, snapshot, kind, ends)?));
        }
        for place in places(model.rows.len() + 1).skip(turn as usize % 4).step_by(4) {
            parked.descending.push((place, descent(table, kind, place)?));
        }
        Ok(parked)
    }
}

/// Kinds of ranges with two ends.
const RANGES: usize = 6;

/// A range of this kind whose ends have shown so many rows.
fn ranged(table: &MemTable, snapshot: u64, kind: usize, ends: (usize, usize)) -> Result<Ranged<'_>, Error> {
    Ok(match kind {
        0 => Ranged::Resolved(moved(table.range_at(snapshot, ..), ends)?),
        1 => Ranged::Raw(moved(table.range(..), ends)?),
        2 => Ranged::OwnedResolved(moved(table.owned_range_at(snapshot, ..), ends)?),
        3 => Ranged::Owned(moved(table.owned_range(..), ends)?),
        // Bounds that leave nothing out.
        4 => Ranged::Resolved(moved(table.range_at(snapshot, b"".as_slice()..), ends)?),
        _ => Ranged::Raw(moved(table.range_versions((b"".as_slice(), u64::MAX)..), ends)?),
    })
}

/// A descending range of this kind that has shown so many rows.
fn descent(table: &MemTable, kind: usize, shown: usize) -> Result<Descent<'_>, Error> {
    if kind < RANGES / 2 {
        let mut range = table.owned_range_descending(..);
        range.by_ref().take(shown).try_for_each(|entry| entry.map(drop))?;
        return Ok(Descent::Owned(range));
    }
    let mut range = table.range_descending(..);
    range.by_ref().take(shown).try_for_each(|entry| entry.map(drop))?;
    Ok(Descent::Borrowed(range))
}

/// A range whose ends have shown so many rows.
fn moved<H: Handle, L: Visibility>(
    mut range: EntryRange<H, L>,
    (front, back): (usize, usize),
) -> Result<EntryRange<H, L>, Error> {
    for _ in 0..front {
        range.next_entry()?;
    }
    for _ in 0..back {
        range.next_back_entry()?;
    }
    Ok(range)
}

fn park<H: Handle, L: Visibility>(mut cursor: Cursor<H, L>, row: &Row) -> Result<Cursor<H, L>, Error> {
    cursor.seek_version(&row.key, row.sequence)?;
    Ok(cursor)
}

impl<'m> Trial<'m> {
    /// Asks all that was parked, and moves it on.
    pub fn parked(&mut self, parked: Parked<'_>) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        let shown = model.visible(SNAPSHOT);
        let Parked { raw, resolved, owned, owned_resolved, ranges, descending } = parked;
        raw.into_iter().for_each(|(place, cursor)| self.resume("parked cursor", &rows, place, cursor));
        owned
            .into_iter()
            .for_each(|(place, cursor)| self.resume("parked owned cursor", &rows, place, cursor));
        resolved
            .into_iter()
            .for_each(|(place, cursor)| self.resume("parked resolved cursor", &shown, place, cursor));
        owned_resolved
            .into_iter()
            .for_each(|(place, cursor)| self.resume("parked owned resolved cursor", &shown, place, cursor));
        for ((front, back), range) in ranges {
            // An end that has not moved yet shows all that is left: the other one stays where the damage may be.
            let pattern = match (front, back) {
                (_, 0) => 0b1111_1111,
                (0, _) => 0,
                _ => (self.turn() * 5) as u8,
            };
            let raw = matches!(range, Ranged::Raw(_) | Ranged::Owned(_));
            let walk = self.parked_between(if raw { &rows } else { &shown }, front, back);
            match range {
                Ranged::Raw(range) => self.both_ends("parked range", walk, pattern, range),
                Ranged::Owned(range) => self.both_ends("parked owned range", walk, pattern, range),
                Ranged::Resolved(range) => self.both_ends("parked range_at", walk, pattern, range),
                Ranged::OwnedResolved(range) => {
                    self.both_ends("parked owned range_at", walk, pattern, range);
                }
            }
        }
        for (gone, range) in descending {
            match range {
                Descent::Borrowed(range) => self.descends("parked descending", (&rows, gone), range),
                Descent::Owned(range) => self.descends("parked owned descending", (&rows, gone), range),
            }
        }
    }

    /// A walk whose ends have shown some rows.
    fn parked_between<'r>(&self, rows: &'r [&'r Row], front: usize, back: usize) -> Walk<'r> {
        let to = rows.len() - back;
        let ends = [front.checked_sub(1), Some(to)].map(|row| row.and_then(|row| rows.get(row).copied()));
        let unsure = ends.map(|row| self.way_on(row)).contains(&WayOn::Unsure);
        Walk::between(rows, front, to).parked(if unsure { WayOn::Unsure } else { WayOn::Sure })
    }

    /// A cursor that was parked on a row shows that row or nothing, and then takes some steps either way.
    fn resume<H: Handle, L: Visibility>(
        &mut self,
        what: &str,
        rows: &[&Row],
        place: usize,
        mut cursor: Cursor<H, L>,
    ) {
        match cursor.entry() {
            Ok(Some(entry)) => self.shows(&entry, rows[place], what),
            Ok(None) => self.wrong(|| format!("{what} on {} has no entry", rows[place].key.escape_ascii())),
            Err(error) => self.refused(&error, what),
        }
        let forward = (self.turn() as usize / 2 + place).is_multiple_of(2);
        let (mut walk, end) = if forward {
            (Walk::between(rows, place + 1, rows.len()), End::Front)
        } else {
            (Walk::between(rows, 0, place), End::Back)
        };
        walk = walk.parked(self.way_on(Some(rows[place])));
        for _ in 0..STEPS {
            let moved = if forward { cursor.next() } else { cursor.prev() };
            if !self.meet(&mut walk, end, moved, what) {
                return;
            }
        }
    }
}
