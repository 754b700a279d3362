//! Walks over a damaged table, from one end or from both, compared step by step with the rows that
//! they should show.
//!
//! ```text
//!   rows     a  b  c  d  e  f        an error at an end: it may continue after any number of rows,
//!            |-from      to-|        each of which must be one that the damage can hide
//! ```
//! A walk shows every row once, in order, from either end. It is over where its ends meet, and
//! remains over. Cursors and ranges that were parked before the damage are read and moved after it.
//!
//! A walk through keys in descending order may leave out more:
//!
//! ```text
//!   table order   b@7  b@4  [c@9  c@2]  d@8  d@5         a gap, from b@4 to d@8
//!   shown         d@8  d@5  error  b@7  b@4              met from d: c is next
//!                 d@8  d@5  error  c@9  b@7  b@4         c@2 alone damaged: reported before c@9, left out after it
//!                 d@8  error  d@5  b@7  b@4              met while the first version of d was looked for
//! ```
//! A gap is one stretch of the table, and its error comes when the walk reaches its far end. So a
//! walk leaves out the next rows, or the rows right before the key that it showed last, right
//! before the entry that it shows next, or more rows of the same gap. Together these are no more
//! stretches of the table than errors were reported.

use std::collections::BTreeSet;
use std::ops::Bound;

use paranoid_memtable::scan::{AtSnapshot, Borrowed, Handle, Visibility};
use paranoid_memtable::{Cursor, Error, MemTable, OwnedCursor, OwnedRange, Range, TableReader};

use super::census::Call;
use super::model::{Accelerators, Model, PREFIX_BYTES, Row};
use super::trial::{Shown, Step, Trial};

/// The end of a walk that a step moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

/// Whether a walk continues from the row where it was parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayOn {
    Sure,
    /// It may end where it was parked, after an error.
    Unsure,
}

/// The state of a checked walk.
#[derive(Debug, Clone)]
pub struct Walk<'r> {
    rows: &'r [&'r Row],
    /// The first row that no end has shown or passed.
    from: usize,
    to: usize,
    /// Whether the last step of the front, and of the back, was an error.
    gaps: [bool; 2],
    gaps_met: usize,
    way_on: WayOn,
    /// Set if keys come in descending order.
    descent: Option<Descent>,
}

impl<'r> Walk<'r> {
    pub fn new(rows: &'r [&'r Row]) -> Self {
        Walk::between(rows, 0, rows.len())
    }

    /// A walk that has begun: its front has shown the rows before `from`, its back the rows from
    /// `to`.
    pub fn between(rows: &'r [&'r Row], from: usize, to: usize) -> Self {
        Walk {
            rows,
            from,
            to,
            gaps: [false; 2],
            gaps_met: 0,
            way_on: WayOn::Sure,
            descent: None,
        }
    }

    /// Marks the walk as parked before the damage.
    #[must_use]
    pub fn parked(self, way_on: WayOn) -> Self {
        Walk { way_on, ..self }
    }

    /// A walk through keys in descending order, which has shown the rows before `from`.
    fn descending(model: &Model, rows: &'r [&'r Row], from: usize) -> Self {
        let descent = Some(Descent::after(model, &rows[..from]));
        Walk {
            descent,
            ..Walk::between(rows, from, rows.len())
        }
    }

    /// The most steps of any walk: each row twice, each after an error of its own.
    pub fn limit(&self) -> usize {
        self.rows.len() * 4 + 64
    }
}

/// A part of the rows: the keys at its ends, and its bounds.
#[derive(Debug, Clone, Copy)]
pub struct Window<'m> {
    pub start: Bound<&'m [u8]>,
    pub end: Bound<&'m [u8]>,
}

impl Window<'_> {
    pub fn holds(&self, key: &[u8]) -> bool {
        let after = match self.start {
            Bound::Included(start) => start <= key,
            Bound::Excluded(start) => start < key,
            Bound::Unbounded => true,
        };
        let before = match self.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        after && before
    }
}

/// Number of probes of a window on each side of a damaged key.
const NEAR: usize = 4;
/// The prefix of one probe in this number is scanned.
const PREFIX_EVERY: usize = 3;

impl<'m> Trial<'m> {
    /// Compares the result of one step with the row that it should show. `false`: the walk is over.
    pub fn meet<E: Shown>(
        &mut self,
        walk: &mut Walk<'_>,
        end: End,
        item: Result<Option<E>, Error>,
        what: &str,
    ) -> bool {
        match item {
            Err(error) => {
                self.refused(&error, what);
                walk.gaps[end as usize] = true;
                walk.gaps_met += 1;
                let last = walk.from.checked_sub(1).map(|place| walk.rows[place]);
                if let Some(descent) = &mut walk.descent {
                    descent.reported(self.model(), last, walk.rows.first().copied());
                }
                if self.bounds().lone && walk.gaps_met > 1 {
                    self.wrong(|| format!("{what} reports {} gaps, there is one", walk.gaps_met));
                }
            }
            Ok(None) => {
                self.meet_end(walk, what);
                return false;
            }
            Ok(Some(entry)) => self.meet_entry(walk, end, &entry, what),
        }
        self.verdict.wrong.is_none()
    }

    fn meet_end(&mut self, walk: &mut Walk<'_>, what: &str) {
        let gap = walk.gaps != [false; 2];
        for row in &walk.rows[walk.from..walk.to] {
            if !gap && !self.ends_late(walk, row) {
                self.wrong(|| {
                    format!(
                        "{what} ends before {}@{}",
                        row.key.escape_ascii(),
                        row.sequence
                    )
                });
            }
            if !gap || walk.way_on == WayOn::Sure {
                self.leave_out(walk, row);
            }
        }
        let stretches = walk.descent.as_ref().map_or(0, Descent::stretches);
        if stretches > walk.gaps_met {
            self.wrong(|| {
                format!(
                    "{what} leaves out {stretches} stretches after {} errors",
                    walk.gaps_met
                )
            });
        }
    }

    fn meet_entry(&mut self, walk: &mut Walk<'_>, end: End, entry: &impl Shown, what: &str) {
        let same = |row: &Row| row.key == entry.key() && row.sequence == entry.sequence();
        let gap = std::mem::take(&mut walk.gaps[end as usize]);
        let next = |walk: &Walk<'_>| match end {
            _ if walk.from >= walk.to => None,
            End::Front => Some(walk.from),
            End::Back => Some(walk.to - 1),
        };
        // The key whose last versions were left out.
        let mut ended: Option<&[u8]> = None;
        while let Some(place) = next(walk) {
            let row = walk.rows[place];
            match end {
                End::Front => walk.from += 1,
                End::Back => walk.to -= 1,
            }
            let late = !gap && self.ends_late(walk, row);
            if (same(row) && ended != Some(&row.key)) || !(gap || late) {
                if let Some(descent) = walk.descent.as_mut().filter(|_| gap) {
                    descent.shown_after(self.model(), row);
                }
                return self.shows(entry, row, what);
            }
            ended = late.then_some(&row.key);
            self.leave_out(walk, row);
        }
        self.wrong(|| {
            format!(
                "{what} shows {}@{}",
                entry.key().escape_ascii(),
                entry.sequence()
            )
        });
    }

    /// Whether an earlier gap may have been the last versions of a key, from this row.
    fn ends_late(&self, walk: &Walk<'_>, row: &Row) -> bool {
        walk.descent
            .as_ref()
            .is_some_and(|descent| descent.may_end_with(self.model(), row))
    }

    /// Whether a walk that is parked on this row can continue.
    pub fn way_on(&self, row: Option<&Row>) -> WayOn {
        let place = row.and_then(|row| self.model().row(&row.key, row.sequence));
        let stranded = |place| {
            self.bounds()
                .stranded
                .iter()
                .any(|places| places.contains(&place))
        };
        if place.is_some_and(stranded) {
            WayOn::Unsure
        } else {
            WayOn::Sure
        }
    }

    fn leave_out(&mut self, walk: &mut Walk<'_>, row: &Row) {
        if let Some(descent) = &mut walk.descent {
            descent.left_out(self.model(), row);
        }
        self.passed_by(row);
    }

    /// Checks a walk from its front. `step(n)` makes the n-th step.
    pub fn scan<E: Shown>(
        &mut self,
        what: &str,
        end: End,
        rows: &[&Row],
        step: impl FnMut(usize) -> Result<Option<E>, Error>,
    ) {
        self.walk(what, end, Walk::new(rows), step);
    }

    fn walk<E: Shown>(
        &mut self,
        what: &str,
        end: End,
        mut walk: Walk<'_>,
        mut step: impl FnMut(usize) -> Result<Option<E>, Error>,
    ) {
        self.call(call_of(what), |trial| {
            for number in 0..walk.limit() {
                if !trial.meet(&mut walk, end, step(number), what) {
                    return;
                }
            }
            trial.endless(what);
        });
    }

    /// Checks the rest of a descending range that has shown the first `gone` of its rows.
    pub fn descends<E: Shown>(
        &mut self,
        what: &str,
        (rows, gone): (&[&Row], usize),
        mut range: impl Iterator<Item = Result<E, Error>>,
    ) {
        let rows = descending(rows);
        let walk = Walk::descending(self.model(), &rows, gone);
        let last = gone.checked_sub(1).map(|row| rows[row]);
        // The walk continues from the first version of the key whose versions it shows.
        let first = last.and_then(|row| self.model().versions(&row.key).first());
        let unsure = [last, first]
            .map(|row| self.way_on(row))
            .contains(&WayOn::Unsure);
        let walk = walk.parked(if unsure { WayOn::Unsure } else { WayOn::Sure });
        self.walk(what, End::Front, walk, |_| range.next().transpose());
    }

    /// Checks a whole scan there and back, with a cursor that begins at no entry.
    pub fn there_and_back<E: Shown>(
        &mut self,
        names: [&str; 2],
        rows: &[&Row],
        mut step: impl FnMut(Step) -> Result<Option<E>, Error>,
    ) {
        self.scan(names[0], End::Front, rows, |n| {
            step(if n == 0 { Step::First } else { Step::Next })
        });
        self.scan(names[1], End::Back, rows, |n| {
            step(if n == 0 { Step::Last } else { Step::Prev })
        });
    }

    /// Checks a walk whose ends take turns. Bit n of the pattern, which repeats, selects the end of
    /// step n (0: the front).
    pub fn both_ends<E: Shown>(
        &mut self,
        what: &str,
        walk: Walk<'_>,
        pattern: u8,
        mut range: impl DoubleEndedIterator<Item = Result<E, Error>>,
    ) {
        let mut walk = walk;
        let call = call_of(what);
        let what = || format!("{what}, ends in turns of {pattern:#010b}");
        self.call(call, |trial| {
            for number in 0..walk.limit() {
                let end = if pattern >> (number % 8) & 1 == 0 {
                    End::Front
                } else {
                    End::Back
                };
                let item = match end {
                    End::Front => range.next(),
                    End::Back => range.next_back(),
                };
                if !trial.meet(&mut walk, end, item.transpose(), &what()) {
                    if trial.verdict.wrong.is_none()
                        && (range.next().is_some() || range.next_back().is_some())
                    {
                        trial.wrong(|| format!("{} goes on after its end", what()));
                    }
                    return;
                }
            }
            trial.endless(&what());
        });
    }

    pub fn scans(&mut self, table: &TableReader, rows: &[&Row]) {
        let mut cursor = table.cursor();
        self.there_and_back(["raw scan", "reverse raw scan"], rows, |step| {
            step.of(&mut cursor)?;
            cursor.table_entry()
        });
    }

    pub fn resolved_scans(&mut self, table: &TableReader) {
        let model = self.model();
        for (number, snapshot) in model.snapshots.iter().enumerate() {
            let mut cursor = table.cursor_at(*snapshot);
            let names = ["resolved scan", "reverse resolved scan"];
            self.there_and_back(names, &model.visible(number), |step| {
                step.of(&mut cursor)?;
                cursor.table_entry()
            });
            // Once each way, and once more after each error. Other threads may write meanwhile.
            let most = 4 * model.writes.len().max(table.len()) as u64;
            if cursor.hidden_entries() > most {
                self.wrong(|| format!("{} hidden entries were counted", cursor.hidden_entries()));
            }
        }
    }

    /// Checks cursors in prefix mode, which use the filter of prefixes.
    pub fn prefix_scans(&mut self, table: &TableReader) {
        let model = self.model();
        if model.shape.accelerators == Accelerators::Nothing {
            return;
        }
        for key in model
            .probes
            .iter()
            .filter(|key| key.len() >= PREFIX_BYTES)
            .step_by(PREFIX_EVERY)
        {
            let prefix = &key[..PREFIX_BYTES];
            let rows: Vec<&Row> = model
                .rows
                .iter()
                .filter(|row| row.key.starts_with(prefix))
                .collect();
            let mut cursor = table.cursor().with_prefix(prefix);
            self.there_and_back(["prefix scan", "reverse prefix scan"], &rows, |step| {
                step.of(&mut cursor)?;
                cursor.table_entry()
            });
        }
    }

    /// Checks ranges from both ends, whole and around the damage: of keys, at a snapshot, of
    /// versions, and descending ones.
    pub fn ranges(&mut self, table: &TableReader) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        let number = self.turn() as usize % model.snapshots.len();
        let (snapshot, shown) = (model.snapshots[number], model.visible(number));
        let whole = Window {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        };
        for (window, turn) in [(whole, 0), (self.window(0), 1), (self.window(1), 2)] {
            let bounds = (window.start, window.end);
            let inside = |rows: &[&'m Row]| -> Vec<&'m Row> {
                rows.iter()
                    .copied()
                    .filter(|row| window.holds(&row.key))
                    .collect()
            };
            let (raw, resolved) = (inside(&rows), inside(&shown));
            let patterns = (self.pattern(turn), self.pattern(turn + 3));
            let (raw_walk, walk) = (Walk::new(&raw), Walk::new(&resolved));
            if (self.turn() + turn).is_multiple_of(2) {
                self.both_ends("range", raw_walk, patterns.0, table.range(bounds));
                self.both_ends(
                    "range_at",
                    walk,
                    patterns.1,
                    table.range_at(bounds, snapshot),
                );
                self.descends(
                    "range_descending",
                    (&raw, 0),
                    table.range(bounds).descending(),
                );
            } else {
                self.both_ends(
                    "owned_range",
                    raw_walk,
                    patterns.0,
                    table.range(bounds).owned(),
                );
                self.both_ends(
                    "owned_range_at",
                    walk,
                    patterns.1,
                    table.range_at(bounds, snapshot).owned(),
                );
                self.descends(
                    "owned_range_descending",
                    (&raw, 0),
                    table.range(bounds).owned().descending(),
                );
            }
            self.estimate(table, window, raw.len());
        }
        self.versions(table, &rows);
    }

    /// The pattern for this number. Over many faults every pattern is used.
    fn pattern(&self, number: u64) -> u8 {
        (self.turn() * 7 + number) as u8
    }

    /// Some keys around the damage. If that is at no key, around a key that changes with the
    /// number.
    fn window(&self, number: usize) -> Window<'m> {
        let model = self.model();
        let turn = self.turn() as usize + number;
        let last = model.probes.len() - 1;
        let focus = self
            .bounds()
            .focus
            .iter()
            .nth(turn % self.bounds().focus.len().max(1));
        let middle = focus
            .and_then(|row| model.probe(&model.rows[*row].key))
            .unwrap_or(turn % (last + 1));
        let start = middle.saturating_sub(turn / 3 % (NEAR + 1));
        let end = (middle + turn / 7 % (NEAR + 1)).min(last);
        let (start, end) = (model.probes[start].as_slice(), model.probes[end].as_slice());
        match turn % 5 {
            0 | 1 => Window {
                start: Bound::Included(start),
                end: Bound::Included(end),
            },
            2 => Window {
                start: Bound::Included(start),
                end: Bound::Unbounded,
            },
            3 if start < end => Window {
                start: Bound::Excluded(start),
                end: Bound::Excluded(end),
            },
            _ => Window {
                start: Bound::Unbounded,
                end: Bound::Included(end),
            },
        }
    }

    /// Checks entries between two versions. The first and the last one are rows near the damage.
    fn versions(&mut self, table: &TableReader, rows: &[&Row]) {
        let turn = self.turn() as usize;
        let middle = self
            .bounds()
            .focus
            .iter()
            .next()
            .copied()
            .unwrap_or(turn % rows.len());
        let start = middle.saturating_sub(turn % NEAR);
        let end = (middle + turn / 5 % NEAR).min(rows.len() - 1);
        let place = |row: usize| (rows[row].key.as_slice(), rows[row].sequence);
        let pattern = self.pattern(6);
        if turn.is_multiple_of(2) {
            let range = table.versions(place(start)..=place(end));
            self.both_ends(
                "range_versions",
                Walk::new(&rows[start..=end]),
                pattern,
                range,
            );
        } else {
            let range = table.versions(place(start)..place(end)).owned();
            self.both_ends(
                "owned_range_versions",
                Walk::new(&rows[start..end]),
                pattern,
                range,
            );
        }
        let bounds = place(start)..=place(end);
        let range = table.versions(bounds).descending();
        self.descends(
            "range_descending of versions",
            (&rows[start..=end], 0),
            range,
        );
    }

    /// Checks the range tombstones that each snapshot sees, as fragments.
    pub fn seen_tombstones(&mut self, table: &TableReader) {
        let model = self.model();
        for snapshot in model.snapshots.iter().copied() {
            let fragments = table.range_tombstones(snapshot);
            self.call(Call::Tombstones, |trial| {
                if let Err(error) = &fragments {
                    trial.refused(error, "range_tombstones");
                }
            });
            let Ok(fragments) = fragments else {
                continue;
            };
            if fragments.verify().is_err()
                || fragments
                    .iter()
                    .any(|fragment| fragment.sequences().len() != 1)
            {
                self.wrong(|| format!("range_tombstones at {snapshot}: {fragments:?}"));
            }
            for key in &model.probes {
                let found = fragments.max_covering_sequence(key, u64::MAX);
                if found != model.cover(key, snapshot) {
                    self.wrong(|| {
                        format!("range_tombstones over {} at {snapshot}", key.escape_ascii())
                    });
                }
            }
        }
    }

    /// Checks an estimate, which is exact up to `EXACT` entries.
    fn estimate(&mut self, table: &TableReader, window: Window<'_>, entries: usize) {
        const EXACT: usize = 64;
        match table.approximate_range_stats((window.start, window.end)) {
            Err(error) => self.refused(&error, "approximate_range_stats"),
            Ok(stats)
                if entries <= EXACT && !self.replaces() && stats.entries != entries as u64 =>
            {
                self.wrong(|| {
                    format!(
                        "approximate_range_stats: {} entries, not {entries}",
                        stats.entries
                    )
                });
            }
            Ok(_) => {}
        }
    }

    /// Checks scans of the middle half of the keys, raw and resolved at each snapshot.
    pub fn bounded_scans(&mut self, table: &TableReader) {
        let model = self.model();
        let (from, to) = (model.probes.len() / 4, model.probes.len() * 3 / 4);
        let (from, to) = (model.probes[from].as_slice(), model.probes[to].as_slice());
        let inside = |row: &&Row| from <= row.key.as_slice() && row.key.as_slice() < to;
        let rows: Vec<&Row> = model.rows.iter().filter(inside).collect();
        let bounded = table.cursor().with_bounds(from..to);
        self.bounded(
            ["bounded scan", "reverse bounded scan"],
            bounded,
            &rows,
            |cursor| cursor.table_entry(),
        );
        for (number, snapshot) in model.snapshots.iter().enumerate() {
            let rows: Vec<&Row> = model.visible(number).into_iter().filter(inside).collect();
            let bounded = table.cursor_at(*snapshot).with_bounds(from..to);
            let names = ["bounded resolved scan", "reverse bounded resolved scan"];
            self.bounded(names, bounded, &rows, |cursor| cursor.table_entry());
        }
    }

    fn bounded<H: Handle, L: Visibility, E: Shown>(
        &mut self,
        names: [&str; 2],
        mut cursor: Cursor<H, L>,
        rows: &[&Row],
        entry: impl Fn(&Cursor<H, L>) -> Result<Option<E>, Error>,
    ) {
        self.there_and_back(names, rows, |step: Step| {
            step.of(&mut cursor)?;
            entry(&cursor)
        });
    }
}

/// Rows in the order of a descending range: keys descend, sequence numbers descend within a key.
fn descending<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|left, right| {
        right
            .key
            .cmp(&left.key)
            .then(right.sequence.cmp(&left.sequence))
    });
    rows
}

/// The rows that a walk through descending keys may still leave out. Numbers are indexes of the
/// model's rows.
#[derive(Debug, Clone, Default)]
pub struct Descent {
    /// Rows right before which a reported gap may be.
    ends: BTreeSet<usize>,
    hidden: BTreeSet<usize>,
    /// Rows that were shown before the damage. A gap may include them.
    shown: BTreeSet<usize>,
}

impl Descent {
    /// A walk that has shown these rows before the damage.
    pub fn after(model: &Model, shown: &[&Row]) -> Descent {
        let shown = shown
            .iter()
            .filter_map(|row| model.row(&row.key, row.sequence))
            .collect();
        Descent {
            shown,
            ..Descent::default()
        }
    }

    /// Records an error. `last` is the row that was shown or left out last. Without such a row,
    /// `next` is the first row of the walk.
    pub fn reported(&mut self, model: &Model, last: Option<&Row>, next: Option<&Row>) {
        let end = match (last, next) {
            (Some(last), _) => model.rows.partition_point(|row| row.key < last.key),
            (None, Some(next)) => end_of(model, next),
            (None, None) => return,
        };
        self.ends.insert(end);
    }

    /// Records the first entry after an error.
    pub fn shown_after(&mut self, model: &Model, row: &Row) {
        self.ends.extend(model.row(&row.key, row.sequence));
    }

    /// Whether this row and all older versions of its key may be in a reported gap.
    pub fn may_end_with(&self, model: &Model, row: &Row) -> bool {
        self.ends.contains(&end_of(model, row))
    }

    /// Records that the walk left a row out.
    pub fn left_out(&mut self, model: &Model, row: &Row) {
        let place = model.row(&row.key, row.sequence);
        self.ends.extend(place);
        self.hidden.extend(place);
    }

    /// Number of stretches of the table that were left out.
    pub fn stretches(&self) -> usize {
        let ends = |place: &&usize| {
            let next = (**place + 1..).find(|next| !self.shown.contains(next));
            next.is_none_or(|next| !self.hidden.contains(&next))
        };
        self.hidden.iter().filter(ends).count()
    }
}

/// The index after the last version of a key.
fn end_of(model: &Model, row: &Row) -> usize {
    model.rows.partition_point(|other| other.key <= row.key)
}

type At<C> = Vec<(usize, C)>;

/// Parked cursors and ranges, and their rows. On each row are two cursors: one moves forward, the
/// other one back.
#[derive(Default)]
pub struct Parked<'t> {
    raw: At<[Cursor<Borrowed<'t>>; 2]>,
    resolved: At<[Cursor<Borrowed<'t>, AtSnapshot>; 2]>,
    owned: At<[OwnedCursor; 2]>,
    owned_resolved: At<[OwnedCursor<AtSnapshot>; 2]>,
    /// Rows that the front and the back have shown; the range.
    ranges: Vec<((usize, usize), Ranged<'t>)>,
    /// Rows that the range has shown, in its order.
    descending: At<ParkedDescent<'t>>,
}

/// A range of any kind with two ends.
enum Ranged<'t> {
    Raw(Range<Borrowed<'t>>),
    Owned(OwnedRange),
    Resolved(Range<Borrowed<'t>, AtSnapshot>),
    OwnedResolved(OwnedRange<AtSnapshot>),
}

/// A descending range of either kind.
enum ParkedDescent<'t> {
    Borrowed(Range<Borrowed<'t>>),
    Owned(OwnedRange),
}

/// Number of steps of a parked cursor after the damage.
const STEPS: usize = 3;
/// The snapshot of the cursors that read at one.
const SNAPSHOT: usize = 1;
/// Most rows with cursors of a kind.
const CURSORS_MOST: usize = 512;
/// Most ranges of a kind: each takes a step for every row that it has shown.
const RANGES_MOST: usize = 64;

impl<'t> Parked<'t> {
    /// Parks cursors on rows all over an undamaged table. `turn` selects half of the kinds.
    pub fn new(table: &'t MemTable, model: &Model, turn: u64) -> Result<Parked<'t>, Error> {
        let mut parked = Parked::default();
        let places = |rows: usize, most: usize| {
            let step = rows.div_ceil(most).max(1);
            (turn as usize % step..rows).step_by(step)
        };
        let shown = model.visible(SNAPSHOT);
        let snapshot = model.snapshots[SNAPSHOT];
        for place in places(model.rows.len(), CURSORS_MOST) {
            let row = &model.rows[place];
            if turn.is_multiple_of(2) {
                parked.raw.push((place, park(|| table.cursor(), row)?));
            } else {
                parked
                    .owned
                    .push((place, park(|| table.cursor().owned(), row)?));
            }
        }
        for place in places(shown.len(), CURSORS_MOST) {
            let row = shown[place];
            if turn.is_multiple_of(2) {
                parked
                    .owned_resolved
                    .push((place, park(|| table.cursor_at(snapshot).owned(), row)?));
            } else {
                parked
                    .resolved
                    .push((place, park(|| table.cursor_at(snapshot), row)?));
            }
        }
        // One kind of range per turn. One of its ends is at each place, and the other end anywhere,
        // or has not moved yet.
        let kind = turn as usize % RANGES;
        let resolved = kind.is_multiple_of(2);
        let rows = if resolved {
            shown.len()
        } else {
            model.rows.len()
        };
        for place in places(rows + 1, RANGES_MOST) {
            let other = turn as usize / RANGES % (rows - place + 1);
            let ends =
                [(place, 0), (0, place), (place, other)][(turn as usize / RANGES + place) % 3];
            parked
                .ranges
                .push((ends, ranged(table, snapshot, kind, ends)?));
        }
        for place in places(model.rows.len() + 1, RANGES_MOST)
            .skip(turn as usize % 4)
            .step_by(4)
        {
            parked
                .descending
                .push((place, descent(table, kind, place)?));
        }
        Ok(parked)
    }
}

/// Kinds of ranges with two ends.
const RANGES: usize = 6;

/// A range of this kind whose ends have shown this many rows.
fn ranged(
    table: &MemTable,
    snapshot: u64,
    kind: usize,
    ends: (usize, usize),
) -> Result<Ranged<'_>, Error> {
    Ok(match kind {
        0 => Ranged::Resolved(moved(table.range_at(.., snapshot), ends)?),
        1 => Ranged::Raw(moved(table.range(..), ends)?),
        2 => Ranged::OwnedResolved(moved(table.range_at(.., snapshot).owned(), ends)?),
        3 => Ranged::Owned(moved(table.range(..).owned(), ends)?),
        // Bounds that leave nothing out.
        4 => Ranged::Resolved(moved(table.range_at(b"".as_slice().., snapshot), ends)?),
        _ => Ranged::Raw(moved(table.versions((b"", u64::MAX)..), ends)?),
    })
}

/// A descending range of this kind that has shown `shown` rows.
fn descent(table: &MemTable, kind: usize, shown: usize) -> Result<ParkedDescent<'_>, Error> {
    if kind < RANGES / 2 {
        let mut range = table.range(..).owned().descending();
        range
            .by_ref()
            .take(shown)
            .try_for_each(|entry| entry.map(drop))?;
        return Ok(ParkedDescent::Owned(range));
    }
    let mut range = table.range(..).descending();
    range
        .by_ref()
        .take(shown)
        .try_for_each(|entry| entry.map(drop))?;
    Ok(ParkedDescent::Borrowed(range))
}

/// A range whose ends have shown this many rows.
fn moved<H: Handle, L: Visibility>(
    mut range: Range<H, L>,
    (front, back): (usize, usize),
) -> Result<Range<H, L>, Error> {
    for _ in 0..front {
        range.next_entry()?;
    }
    for _ in 0..back {
        range.next_back_entry()?;
    }
    Ok(range)
}

/// Two cursors on a row.
fn park<H: Handle, L: Visibility>(
    cursor: impl Fn() -> Cursor<H, L>,
    row: &Row,
) -> Result<[Cursor<H, L>; 2], Error> {
    let mut cursors = [cursor(), cursor()];
    for cursor in &mut cursors {
        cursor.seek_version(&row.key, row.sequence)?;
    }
    Ok(cursors)
}

impl<'m> Trial<'m> {
    /// Checks all parked cursors and ranges, and moves them on.
    pub fn parked(&mut self, parked: Parked<'_>) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        let shown = model.visible(SNAPSHOT);
        let Parked {
            raw,
            resolved,
            owned,
            owned_resolved,
            ranges,
            descending,
        } = parked;
        raw.into_iter()
            .for_each(|(place, cursor)| self.resume("parked cursor", &rows, place, cursor));
        owned
            .into_iter()
            .for_each(|(place, cursor)| self.resume("parked owned cursor", &rows, place, cursor));
        resolved.into_iter().for_each(|(place, cursor)| {
            self.resume("parked resolved cursor", &shown, place, cursor)
        });
        owned_resolved.into_iter().for_each(|(place, cursor)| {
            self.resume("parked owned resolved cursor", &shown, place, cursor)
        });
        for ((front, back), range) in ranges {
            // An end that has not moved yet shows all that is left: the other end is where the
            // damage may be.
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
                ParkedDescent::Borrowed(range) => {
                    self.descends("parked descending", (&rows, gone), range)
                }
                ParkedDescent::Owned(range) => {
                    self.descends("parked owned descending", (&rows, gone), range)
                }
            }
        }
    }

    /// A walk whose ends have shown some rows.
    fn parked_between<'r>(&self, rows: &'r [&'r Row], front: usize, back: usize) -> Walk<'r> {
        let to = rows.len() - back;
        let ends =
            [front.checked_sub(1), Some(to)].map(|row| row.and_then(|row| rows.get(row).copied()));
        let unsure = ends.map(|row| self.way_on(row)).contains(&WayOn::Unsure);
        Walk::between(rows, front, to).parked(if unsure { WayOn::Unsure } else { WayOn::Sure })
    }

    /// Checks that both parked cursors show their row, and then takes some steps with each.
    fn resume<H: Handle, L: Visibility>(
        &mut self,
        what: &str,
        rows: &[&Row],
        place: usize,
        [mut forward, mut back]: [Cursor<H, L>; 2],
    ) {
        for cursor in [&forward, &back] {
            self.call(Call::Parked, |trial| match cursor.entry() {
                Ok(Some(entry)) => trial.shows(&entry, rows[place], what),
                Ok(None) => trial
                    .wrong(|| format!("{what} on {} has no entry", rows[place].key.escape_ascii())),
                Err(error) => trial.refused(&error, what),
            });
        }
        let way_on = self.way_on(Some(rows[place]));
        self.call(Call::Parked, |trial| {
            let mut walk = Walk::between(rows, place + 1, rows.len()).parked(way_on);
            let _ = (0..STEPS).all(|_| trial.meet(&mut walk, End::Front, forward.next(), what));
        });
        self.call(Call::Parked, |trial| {
            let mut walk = Walk::between(rows, 0, place).parked(way_on);
            let _ = (0..STEPS).all(|_| trial.meet(&mut walk, End::Back, back.prev(), what));
        });
    }
}

/// The call of a walk that has this name.
fn call_of(what: &str) -> Call {
    if what.starts_with("parked") {
        Call::Parked
    } else {
        Call::Scan
    }
}
