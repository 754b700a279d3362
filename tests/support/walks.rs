//! Cursors and ranges compared with the model.

use std::ops::Bound;

use paranoid_memtable::scan::{Cursor, Handle, Visibility};
use paranoid_memtable::{DuplicatePolicy, Error, TableReader};

use super::case::{End, Hold, Move};
use super::model::{Model, Row};
use super::orders::Order;
use super::reads::{Verdict, copied_row, row_of, same, told};

pub fn bound(end: &End) -> Bound<&[u8]> {
    match end.0 {
        0 => Bound::Unbounded,
        1 => Bound::Included(end.1.as_slice()),
        _ => Bound::Excluded(end.1.as_slice()),
    }
}

pub fn inside<C: Order>(row: &Row, start: &End, end: &End) -> bool {
    let (low, high) = (C::plainly(&row.key, &start.1), C::plainly(&row.key, &end.1));
    let after = match start.0 {
        0 => true,
        1 => low.is_ge(),
        _ => low.is_gt(),
    };
    let before = match end.0 {
        0 => true,
        1 => high.is_le(),
        _ => high.is_lt(),
    };
    after && before
}

fn seen<C: Order>(model: &Model<C>, snapshot: Option<u64>) -> Vec<&Row> {
    snapshot.map_or_else(|| model.raw(), |snapshot| model.resolved(snapshot))
}

/// A random walk with a cursor.
pub fn check_walk<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    (snapshot, hold): (Option<u64>, Hold),
    bounds: Option<&(End, End)>,
    moves: &[Move],
) -> Verdict {
    let mut rows = seen(model, snapshot);
    if let Some((start, end)) = bounds {
        rows.retain(|row| inside::<C>(row, start, end));
    }
    match (snapshot, hold) {
        (None, Hold::Borrowed) => walk::<C, _, _>(table.cursor(), &rows, bounds, moves),
        (None, Hold::Owned) => walk::<C, _, _>(table.owned_cursor(), &rows, bounds, moves),
        (Some(at), Hold::Borrowed) => walk::<C, _, _>(table.cursor_at(at), &rows, bounds, moves),
        (Some(at), Hold::Owned) => walk::<C, _, _>(table.owned_cursor_at(at), &rows, bounds, moves),
    }
}

fn walk<C: Order, H: Handle, L: Visibility>(
    mut cursor: Cursor<H, L>,
    rows: &[&Row],
    bounds: Option<&(End, End)>,
    moves: &[Move],
) -> Verdict {
    if let Some((start, end)) = bounds {
        cursor = cursor.with_bounds::<&[u8]>((bound(start), bound(end)));
    }
    let mut at: Option<usize> = None;
    for (step, one) in moves.iter().enumerate() {
        let before = |key: &[u8]| rows.partition_point(|row| C::plainly(&row.key, key).is_lt());
        let (result, wanted) = match one {
            Move::Seek(key) => (cursor.seek(key), Some(before(key))),
            Move::SeekVersion(key, sequence) => {
                let order = |row: &&Row| C::plainly(&row.key, key).then(sequence.cmp(&row.sequence)).is_lt();
                (cursor.seek_version(key, *sequence), Some(rows.partition_point(order)))
            }
            Move::SeekForPrev(key) => {
                let after = rows.partition_point(|row| C::plainly(&row.key, key).is_le());
                (cursor.seek_for_prev(key), after.checked_sub(1))
            }
            Move::First => (cursor.first(), Some(0)),
            Move::Last => (cursor.last(), rows.len().checked_sub(1)),
            Move::Next => (cursor.next(), at.map(|at| at + 1)),
            Move::Prev => (cursor.prev(), at.and_then(|at| at.checked_sub(1))),
        };
        let what = format!("step {step} {one:?} of a walk");
        at = wanted.filter(|wanted| *wanted < rows.len());
        let moved = told(&what, result)?.map(|entry| row_of(&entry)).transpose()?;
        same(&what, &moved.as_ref(), &at.map(|at| rows[at]))?;
        let found = told("entry", cursor.entry())?.map(|entry| row_of(&entry)).transpose()?;
        same("the entry under the cursor", &found, &moved)?;
        same("is_valid", &cursor.is_valid(), &at.is_some())?;
    }
    Ok(())
}

/// Takes from both ends until they meet.
fn both_ends<E>(
    mut range: impl DoubleEndedIterator<Item = Result<E, Error>>,
    row_of: impl Fn(&E) -> Result<Row, String>,
    ends: u64,
    wanted: &[&Row],
) -> Verdict {
    let (mut front, mut back) = (0, wanted.len());
    for step in 0..wanted.len() + 2 {
        let from_front = ends.rotate_right(step as u32 % 64) & 1 == 0;
        let item = if from_front { range.next() } else { range.next_back() };
        let side = if from_front { "front" } else { "back" };
        let found = item.transpose().map_err(|error| format!("{side} of a range: {error}"))?;
        let found = found.as_ref().map(&row_of).transpose()?;
        let row = match (front < back, from_front) {
            (false, _) => None,
            (true, true) => {
                front += 1;
                Some(wanted[front - 1])
            }
            (true, false) => {
                back -= 1;
                Some(wanted[back])
            }
        };
        same(&format!("{side} of a range, step {step}"), &found.as_ref(), &row)?;
    }
    Ok(())
}

pub fn check_range<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    snapshot: Option<u64>,
    (start, end): (&End, &End),
    ends: u64,
) -> Verdict {
    let mut rows = seen(model, snapshot);
    rows.retain(|row| inside::<C>(row, start, end));
    let bounds = (bound(start), bound(end));
    match snapshot {
        None => {
            both_ends(table.range(bounds), row_of, ends, &rows)?;
            both_ends(table.owned_range(bounds), copied_row, ends, &rows)
        }
        Some(at) => {
            both_ends(table.range_at(at, bounds), row_of, ends, &rows)?;
            both_ends(table.owned_range_at(at, bounds), copied_row, ends, &rows)
        }
    }
}

pub fn check_versions<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    start: &(u8, Vec<u8>, u64),
    end: &(u8, Vec<u8>, u64),
    ends: u64,
) -> Verdict {
    let position = |end: &(u8, Vec<u8>, u64), row: &Row| {
        C::plainly(&row.key, &end.1).then_with(|| end.2.cmp(&row.sequence))
    };
    let mut rows = model.raw();
    rows.retain(|row| {
        let (low, high) = (position(start, row), position(end, row));
        (start.0 == 0 || low.is_gt() || (start.0 == 1 && low.is_eq()))
            && (end.0 == 0 || high.is_lt() || (end.0 == 1 && high.is_eq()))
    });
    fn bound(end: &(u8, Vec<u8>, u64)) -> Bound<(&[u8], u64)> {
        match end.0 {
            0 => Bound::Unbounded,
            1 => Bound::Included((end.1.as_slice(), end.2)),
            _ => Bound::Excluded((end.1.as_slice(), end.2)),
        }
    }
    let bounds = (bound(start), bound(end));
    both_ends(table.range_versions(bounds), row_of, ends, &rows)?;
    both_ends(table.owned_range_versions(bounds), copied_row, ends, &rows)?;
    rows.sort_by(|a, b| C::plainly(&b.key, &a.key).then(b.sequence.cmp(&a.sequence)));
    descends(table.range_descending(..).with_version_bounds(bounds), row_of, &rows)?;
    descends(table.owned_range_descending(..).with_version_bounds(bounds), copied_row, &rows)
}

pub fn check_descending<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    (start, end): (&End, &End),
) -> Verdict {
    let mut rows = model.raw();
    rows.retain(|row| inside::<C>(row, start, end));
    rows.sort_by(|a, b| C::plainly(&b.key, &a.key).then(b.sequence.cmp(&a.sequence)));
    let bounds = (bound(start), bound(end));
    descends(table.range_descending(bounds), row_of, &rows)?;
    descends(table.owned_range_descending(bounds), copied_row, &rows)
}

/// Takes from a descending range until it ends.
fn descends<E>(
    mut range: impl Iterator<Item = Result<E, Error>>,
    row_of: impl Fn(&E) -> Result<Row, String>,
    rows: &[&Row],
) -> Verdict {
    for row in rows {
        let entry = range.next().transpose().map_err(|error| format!("range_descending: {error}"))?;
        let found = entry.map(|entry| row_of(&entry)).transpose()?;
        same("range_descending", &found.as_ref(), &Some(*row))?;
    }
    same("the end of range_descending", &range.next().is_none(), &true)?;
    same("after the end of range_descending", &range.next().is_none(), &true)
}

/// Estimates are exact up to ten entries; another test measures the error above.
pub fn check_stats<C: Order>(table: &TableReader, model: &Model<C>, (start, end): (&End, &End)) -> Verdict {
    let exact = model.raw().iter().filter(|row| inside::<C>(row, start, end)).count() as u64;
    let stats = told("approximate_range_stats", table.approximate_range_stats((bound(start), bound(end))))?;
    if exact <= 10 && model.policy != DuplicatePolicy::Replace {
        same("entries of a small range", &stats.entries, &exact)?;
    }
    let most = model.counts.entries - model.counts.range_deletes + model.counts.displaced;
    same("estimates stay below the total", &(stats.entries <= most), &true)
}
