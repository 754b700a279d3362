//! Cursors and ranges compared with the model.

use std::ops::Bound;

use paranoid_memtable::Cursor;
use paranoid_memtable::scan::{Handle, Visibility};
use paranoid_memtable::{DuplicatePolicy, Error, TableReader};

use super::case::{End, Hold, Move};
use super::model::{Model, Row, Verdict, answered, copied_row, row_of, same};
use super::orders::Order;

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
        (None, Hold::Owned) => walk::<C, _, _>(table.cursor().owned(), &rows, bounds, moves),
        (Some(at), Hold::Borrowed) => walk::<C, _, _>(table.cursor_at(at), &rows, bounds, moves),
        (Some(at), Hold::Owned) => {
            walk::<C, _, _>(table.cursor_at(at).owned(), &rows, bounds, moves)
        }
    }
}

fn walk<C: Order, H: Handle, L: Visibility>(
    mut cursor: Cursor<H, L>,
    rows: &[&Row],
    bounds: Option<&(End, End)>,
    moves: &[Move],
) -> Verdict {
    if let Some((start, end)) = bounds {
        cursor = cursor.with_bounds((bound(start), bound(end)));
    }
    let mut at: Option<usize> = None;
    for (step, one) in moves.iter().enumerate() {
        let before = |key: &[u8]| rows.partition_point(|row| C::plainly(&row.key, key).is_lt());
        let (result, wanted) = match one {
            Move::Seek(key) => (cursor.seek(key), Some(before(key))),
            Move::SeekVersion(key, sequence) => {
                let order = |row: &&Row| {
                    C::plainly(&row.key, key)
                        .then(sequence.cmp(&row.sequence))
                        .is_lt()
                };
                (
                    cursor.seek_version(key, *sequence),
                    Some(rows.partition_point(order)),
                )
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
        let moved = answered(&what, result)?
            .map(|entry| row_of(&entry))
            .transpose()?;
        same(&what, &moved.as_ref(), &at.map(|at| rows[at]))?;
        let found = answered("entry", cursor.entry())?
            .map(|entry| row_of(&entry))
            .transpose()?;
        same("the entry under the cursor", &found, &moved)?;
        same("is_valid", &cursor.is_valid(), &at.is_some())?;
    }
    Ok(())
}

/// Takes items from both ends until they meet.
fn both_ends<E>(
    mut range: impl DoubleEndedIterator<Item = Result<E, Error>>,
    row_of: impl Fn(&E) -> Result<Row, String>,
    ends: u64,
    wanted: &[&Row],
) -> Verdict {
    let (mut front, mut back) = (0, wanted.len());
    for step in 0..wanted.len() + 2 {
        let from_front = ends.rotate_right(step as u32 % 64) & 1 == 0;
        let item = if from_front {
            range.next()
        } else {
            range.next_back()
        };
        let side = if from_front { "front" } else { "back" };
        let found = item
            .transpose()
            .map_err(|error| format!("{side} of a range: {error}"))?;
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
        same(
            &format!("{side} of a range, step {step}"),
            &found.as_ref(),
            &row,
        )?;
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
            both_ends(table.range(bounds).owned(), copied_row, ends, &rows)
        }
        Some(at) => {
            both_ends(table.range_at(bounds, at), row_of, ends, &rows)?;
            both_ends(table.range_at(bounds, at).owned(), copied_row, ends, &rows)
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
    both_ends(table.versions(bounds), row_of, ends, &rows)?;
    both_ends(table.versions(bounds).owned(), copied_row, ends, &rows)?;
    rows.sort_by(|a, b| C::plainly(&b.key, &a.key).then(b.sequence.cmp(&a.sequence)));
    descends(table.versions(bounds).descending(), row_of, &rows)?;
    descends(
        table.versions(bounds).owned().descending(),
        copied_row,
        &rows,
    )
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
    descends(table.range(bounds).descending(), row_of, &rows)?;
    descends(table.range(bounds).owned().descending(), copied_row, &rows)
}

/// Takes items from a descending range until it ends.
fn descends<E>(
    mut range: impl Iterator<Item = Result<E, Error>>,
    row_of: impl Fn(&E) -> Result<Row, String>,
    rows: &[&Row],
) -> Verdict {
    for row in rows {
        let entry = range
            .next()
            .transpose()
            .map_err(|error| format!("range_descending: {error}"))?;
        let found = entry.map(|entry| row_of(&entry)).transpose()?;
        same("range_descending", &found.as_ref(), &Some(*row))?;
    }
    same(
        "the end of range_descending",
        &range.next().is_none(),
        &true,
    )?;
    same(
        "after the end of range_descending",
        &range.next().is_none(),
        &true,
    )
}

/// Checks that estimates are exact up to ten entries. Another test measures larger errors.
pub fn check_stats<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    (start, end): (&End, &End),
) -> Verdict {
    let exact = model
        .raw()
        .iter()
        .filter(|row| inside::<C>(row, start, end))
        .count() as u64;
    let stats = answered(
        "approximate_range_stats",
        table.approximate_range_stats((bound(start), bound(end))),
    )?;
    if exact <= 10 && model.policy != DuplicatePolicy::Replace {
        same("entries of a small range", &stats.entries, &exact)?;
    }
    let most = model.counts.entries - model.counts.range_deletes + model.counts.displaced;
    same(
        "estimates stay below the total",
        &(stats.entries <= most),
        &true,
    )
}

/// Walks over a table that may be damaged, each with a step limit, compared with the table's rows.
///
/// ```text
///   front   a  b  !            ! = Corruption
///   back    e  d               taken together: a b ! d e, and c may be missing at the error's place
/// ```
/// A walk shows rows in order, each once. An error in their place announces rows that it leaves
/// out, and the damage must cover them. Each damage is reported once.
#[cfg(feature = "fault-injection")]
pub mod ends {
    use std::cmp::Reverse;
    use std::collections::BTreeSet;
    use std::ops::Bound;

    use paranoid_memtable::Cursor;
    use paranoid_memtable::fault::{FaultInjector, Part, Region};
    use paranoid_memtable::read::EntryBytes;
    use paranoid_memtable::scan::{Handle, Visibility};
    use paranoid_memtable::{Bytewise, Entry, Error, TableReader};

    use super::super::case::End;
    use super::super::model::{Model, Row, Verdict};
    use super::{bound, inside};

    /// The effects of the damage on a walk.
    #[derive(Debug, Clone, Default)]
    pub struct Allowed {
        /// Any row may be missing, if an error announces it.
        pub anything: bool,
        /// Entries whose own bytes were changed.
        pub entries: BTreeSet<(Vec<u8>, u64)>,
        /// Number of rows that may be missing: the first ones after broken links.
        pub rows: usize,
        /// Most errors of one walk.
        pub errors: usize,
        /// Whether an entry has replaced another one.
        pub replaces: bool,
    }

    impl Allowed {
        /// The possible effects of these changes.
        pub fn of(injector: &FaultInjector<'_>) -> Allowed {
            let mut headers = BTreeSet::new();
            let mut allowed = Allowed {
                replaces: injector.pieces().iter().any(|piece| {
                    let owner = piece
                        .owner
                        .as_ref()
                        .filter(|_| piece.region == Region::Header);
                    owner.is_some_and(|owner| !headers.insert((&owner.key, owner.sequence)))
                }),
                ..Allowed::default()
            };
            for piece in injector
                .changed()
                .into_keys()
                .map(|piece| &injector.pieces()[piece])
            {
                allowed.errors += 1;
                match (piece.part, piece.region, &piece.owner) {
                    (Part::Control, _, _) => allowed.anything = true,
                    (Part::Points, Region::Padding, _) | (Part::Arena | Part::Ranges, _, _) => {}
                    (Part::Points, Region::Link | Region::HeadLink | Region::BackLink, _) => {
                        allowed.rows += usize::from(piece.level == 0);
                    }
                    (_, _, Some(owner)) => {
                        allowed.entries.insert((owner.key.to_vec(), owner.sequence));
                    }
                    _ => allowed.anything = true,
                }
            }
            allowed
        }

        /// Whether a row may be missing from all versions (no snapshot), or from the rows of a
        /// snapshot.
        fn admits(&self, row: &Row, snapshot: Option<u64>) -> bool {
            let same = |(key, sequence): &(Vec<u8>, u64)| {
                *key == row.key && (snapshot.is_some() || *sequence == row.sequence)
            };
            self.anything || self.entries.iter().any(same)
        }

        /// Whether a row is the first one after a damaged entry, which may have been a newer version
        /// of it, or its replacement: a table that heals no further place cannot tell.
        fn may_be_hidden(&self, row: &Row, rows: &[&Row], snapshot: Option<u64>) -> bool {
            let is_after = |row: &Row, (key, sequence): &(Vec<u8>, u64)| {
                (&row.key, Reverse(row.sequence)) > (key, Reverse(*sequence))
            };
            let is_first = |entry: &(Vec<u8>, u64)| {
                let next = rows.iter().filter(|other| is_after(other, entry));
                let next = next.min_by_key(|other| (&other.key, Reverse(other.sequence)));
                next.is_some_and(|next| (&next.key, next.sequence) == (&row.key, row.sequence))
            };
            (snapshot.is_some() || self.replaces) && self.entries.iter().any(is_first)
        }
    }

    /// The result of one step: a row, with its value if that verified, or an error.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Came {
        Row(Vec<u8>, u64, Option<Vec<u8>>),
        Corruption,
    }

    /// An item of a range: an entry, or a copy of one.
    pub trait Item {
        fn came(self) -> Came;
    }

    impl Item for Entry<'_> {
        fn came(self) -> Came {
            let value = self.value().ok().map(<[u8]>::to_vec);
            Came::Row(self.user_key().to_vec(), self.sequence(), value)
        }
    }

    impl Item for EntryBytes {
        fn came(self) -> Came {
            Came::Row(
                self.user_key().to_vec(),
                self.sequence(),
                Some(self.value().to_vec()),
            )
        }
    }

    impl Came {
        fn of(item: Result<impl Item, Error>) -> Result<Came, String> {
            let refused = |error: Error| match error.corruption() {
                Some(_) => Ok(Came::Corruption),
                None => Err(format!("{error}")),
            };
            match item {
                Ok(entry) => Ok(entry.came()),
                Err(error) => refused(error),
            }
        }
    }

    /// The place where a walk has to report missing rows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Reported {
        /// In the place of the missing rows.
        InPlace,
        /// In their place or earlier: keys descend and versions do not, so damage between two keys
        /// is on both sides of one of them.
        InTime,
        /// Before the rows beside the missing ones, by either end.
        AtEitherEnd,
    }

    /// Compares the results of a walk, in the order of `rows`, with the rows.
    pub fn judge(
        came: &[Came],
        rows: &[&Row],
        snapshot: Option<u64>,
        allowed: &Allowed,
        reported: Reported,
    ) -> Verdict {
        let (mut at, mut gap, mut loose, mut errors) = (0, false, allowed.rows, 0);
        let is_reported = match reported {
            Reported::InPlace => |_: usize, _: usize| false,
            Reported::InTime => |before: usize, _: usize| before > 0,
            Reported::AtEitherEnd => |_: usize, all: usize| all > 0,
        };
        let all = came.iter().filter(|one| **one == Came::Corruption).count();
        let mut missed = |left_out: &[&Row], is_reported: bool| {
            for row in left_out {
                let name = format!("{}@{}", row.key.escape_ascii(), row.sequence);
                if !is_reported {
                    return Err(format!("{name} is left out without an error"));
                }
                if !allowed.admits(row, snapshot) && !allowed.may_be_hidden(row, rows, snapshot) {
                    loose = loose.checked_sub(1).ok_or(format!("{name} is lost"))?;
                }
            }
            Ok(())
        };
        for one in came {
            let Came::Row(key, sequence, value) = one else {
                (gap, errors) = (true, errors + 1);
                continue;
            };
            let name = format!("{}@{sequence}", key.escape_ascii());
            let same = |row: &&Row| row.key == *key && row.sequence == *sequence;
            let place = rows[at..]
                .iter()
                .position(same)
                .ok_or(format!("{name} is shown out of place"))?;
            if value
                .as_ref()
                .is_some_and(|value| *value != rows[at + place].value)
            {
                return Err(format!("{name} has another value"));
            }
            missed(&rows[at..at + place], gap || is_reported(errors, all))?;
            (at, gap) = (at + place + 1, false);
        }
        missed(&rows[at..], gap || is_reported(errors, all))?;
        if errors > allowed.errors {
            Err(format!("{errors} errors"))
        } else {
            Ok(())
        }
    }

    /// More steps than a walk over this many rows needs.
    fn steps_max(rows: usize) -> usize {
        4 * rows + 16
    }

    /// Takes items from both ends until they meet. Bit n of `pattern`, which repeats, selects the
    /// end of step n. `pause` is called before each step.
    pub fn both_ends<E: Item>(
        mut range: impl DoubleEndedIterator<Item = Result<E, Error>>,
        (pattern, bits): (u64, u32),
        rows: usize,
        mut pause: impl FnMut(usize),
    ) -> Result<Vec<Came>, String> {
        let (mut front, mut back) = (vec![], vec![]);
        for step in 0..steps_max(rows) {
            pause(step);
            let from_front = pattern >> (step as u32 % bits) & 1 == 0;
            match if from_front {
                range.next()
            } else {
                range.next_back()
            } {
                Some(item) if from_front => front.push(Came::of(item)?),
                Some(item) => back.push(Came::of(item)?),
                None if range.next().is_none() && range.next_back().is_none() => {
                    back.reverse();
                    front.append(&mut back);
                    return Ok(front);
                }
                None => return Err("one end goes on after the other's end".into()),
            }
        }
        Err(format!("no end: {front:?} {back:?}"))
    }

    /// Takes from an iterator until it ends.
    pub fn one_end<E: Item>(
        mut range: impl Iterator<Item = Result<E, Error>>,
        rows: usize,
        mut pause: impl FnMut(usize),
    ) -> Result<Vec<Came>, String> {
        let mut came = vec![];
        for step in 0..steps_max(rows) {
            pause(step);
            match range.next() {
                Some(item) => came.push(Came::of(item)?),
                None if range.next().is_none() => return Ok(came),
                None => return Err("it goes on after its end".into()),
            }
        }
        Err(format!("no end: {came:?}"))
    }

    /// A move of a cursor.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Step {
        Next,
        Prev,
    }

    /// Makes steps until the cursor is at no entry.
    pub fn steps<H: Handle, L: Visibility>(
        cursor: &mut Cursor<H, L>,
        step: Step,
        rows: usize,
    ) -> Result<Vec<Came>, String> {
        let mut came = vec![];
        for _ in 0..steps_max(rows) {
            let moved = match step {
                Step::Next => cursor.next(),
                Step::Prev => cursor.prev(),
            };
            match moved.transpose() {
                Some(item) => came.push(Came::of(item)?),
                None => return Ok(came),
            }
        }
        Err(format!("no end: {came:?}"))
    }

    /// A cursor's scan there or back.
    fn scan<H: Handle, L: Visibility>(
        mut cursor: Cursor<H, L>,
        step: Step,
        rows: usize,
    ) -> Result<Vec<Came>, String> {
        let first = match step {
            Step::Next => cursor.first(),
            Step::Prev => cursor.last(),
        };
        let mut came: Vec<Came> = first
            .transpose()
            .map(Came::of)
            .transpose()?
            .into_iter()
            .collect();
        came.extend(steps(&mut cursor, step, rows)?);
        if step == Step::Prev {
            came.reverse();
        }
        Ok(came)
    }

    /// Checks every kind of walk over a range. In walks with two ends, the ends move in this
    /// pattern.
    pub fn check_walks(
        table: &TableReader,
        model: &Model<Bytewise>,
        snapshots: &[u64],
        (start, end): (&End, &End),
        pattern: (u64, u32),
        allowed: &Allowed,
    ) -> Verdict {
        let mut rows = model.raw();
        rows.retain(|row| inside::<Bytewise>(row, start, end));
        let bounds = (bound(start), bound(end));
        let check =
            |what: &str, snapshot: Option<u64>, rows: &[&Row], came: Result<Vec<Came>, String>| {
                let when = match what {
                    "range_descending" => Reported::AtEitherEnd,
                    "owned_range_descending" => Reported::InTime,
                    _ => Reported::InPlace,
                };
                let verdict = came.and_then(|came| {
                    judge(&came, rows, snapshot, allowed, when)
                        .map_err(|text| format!("{text}: {came:?}"))
                });
                verdict.map_err(|text| {
                    format!("{what} at {snapshot:?}, pattern {:b}: {text}", pattern.0)
                })
            };
        let no_pause = |_| ();
        let count = rows.len();
        let came = both_ends(table.range(bounds), pattern, count, no_pause);
        check("range", None, &rows, came)?;
        let came = both_ends(table.range(bounds).owned(), pattern, count, no_pause);
        check("owned_range", None, &rows, came)?;
        let versions = (version_bound(start, 0), version_bound(end, 1));
        let came = both_ends(table.versions(versions), pattern, count, no_pause);
        check("range_versions", None, &rows, came)?;
        let came = both_ends(table.versions(versions).owned(), pattern, count, no_pause);
        check("owned_range_versions", None, &rows, came)?;
        let descending = both_ends(table.range(bounds).descending(), pattern, count, no_pause);
        let mut down = rows.clone();
        down.sort_by(|a, b| b.key.cmp(&a.key).then(b.sequence.cmp(&a.sequence)));
        check("range_descending", None, &down, descending)?;
        let descending = table.versions(versions).owned().descending();
        let came = one_end(descending, count, no_pause);
        check("owned_range_descending", None, &down, came)?;
        for step in [Step::Next, Step::Prev] {
            let cursor = table.cursor().with_bounds(bounds);
            check("a cursor", None, &rows, scan(cursor, step, count))?;
            let cursor = table.cursor().owned().with_bounds(bounds);
            check("an owned cursor", None, &rows, scan(cursor, step, count))?;
        }
        for snapshot in snapshots {
            let mut rows = model.resolved(*snapshot);
            rows.retain(|row| inside::<Bytewise>(row, start, end));
            let (at, all) = (Some(*snapshot), count);
            let range = table.range_at(bounds, *snapshot);
            check(
                "range_at",
                at,
                &rows,
                both_ends(range, pattern, all, no_pause),
            )?;
            let range = table.range_at(bounds, *snapshot).owned();
            let came = both_ends(range, pattern, all, no_pause);
            check("owned_range_at", at, &rows, came)?;
            for step in [Step::Next, Step::Prev] {
                let cursor = table.cursor_at(*snapshot).with_bounds(bounds);
                check("a resolved cursor", at, &rows, scan(cursor, step, all))?;
                let cursor = table.cursor_at(*snapshot).owned().with_bounds(bounds);
                check(
                    "an owned resolved cursor",
                    at,
                    &rows,
                    scan(cursor, step, all),
                )?;
            }
        }
        Ok(())
    }

    /// A bound of keys as a bound of versions. `side` 0 is the lower bound.
    fn version_bound(end: &End, side: u8) -> Bound<(&[u8], u64)> {
        // Included: from the first version, or up to the last one. Excluded: after the last
        // version, or before the first one.
        let newest = (end.0 == 1) == (side == 0);
        let sequence = if newest { u64::MAX } else { 0 };
        match end.0 {
            0 => Bound::Unbounded,
            1 => Bound::Included((end.1.as_slice(), sequence)),
            _ => Bound::Excluded((end.1.as_slice(), sequence)),
        }
    }
}
