//! One damaged table: every read on it, each answer compared with the model.

use std::collections::BTreeSet;

use paranoid_memtable::read::EntryBytes;
use paranoid_memtable::scan::{Cursor, Handle, Visibility};
use paranoid_memtable::{Entry, Error, Kind, Lookup, TableReader};

use super::bounds::Bounds;
use super::model::{Expected, Model, Row, seen};
use super::walk::{End, Walk};

/// Steps from a version that was sought.
const VERSION_STEPS: usize = 3;

/// The results of one fault.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Some operation, or the scrub, reported corruption.
    pub detected: bool,
    /// The first wrong answer that no error announced.
    pub wrong: Option<String>,
    /// An operation that does not end.
    pub endless: Option<String>,
    /// Probes that answered `Corruption` to a get.
    pub answering: BTreeSet<usize>,
    /// Keys that answered `Corruption`, or that a scan left out, beyond what the damage may affect.
    pub beyond: BTreeSet<usize>,
    /// Keys before a damaged entry for which a read looked past their last version and answered `Corruption`.
    pub fronts: BTreeSet<usize>,
}

/// A move of a cursor.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    First,
    Next,
    Last,
    Prev,
}

impl Step {
    pub fn of<H: Handle, L: Visibility>(self, cursor: &mut Cursor<H, L>) -> Result<(), Error> {
        match self {
            Step::First => cursor.first().map(|_| ()),
            Step::Next => cursor.next().map(|_| ()),
            Step::Last => cursor.last().map(|_| ()),
            Step::Prev => cursor.prev().map(|_| ()),
        }
    }
}

/// An entry that a cursor shows.
pub trait Shown {
    fn key(&self) -> &[u8];
    fn sequence(&self) -> u64;
    fn kind(&self) -> Kind;
    fn shown_value(&self) -> Result<&[u8], Error>;
    /// The value's length, if that can be had without the value.
    fn len(&self) -> Option<usize>;
}

impl Shown for Entry<'_> {
    fn key(&self) -> &[u8] {
        self.user_key()
    }
    fn sequence(&self) -> u64 {
        Entry::sequence(self)
    }
    fn kind(&self) -> Kind {
        Entry::kind(self)
    }
    fn shown_value(&self) -> Result<&[u8], Error> {
        self.value()
    }
    fn len(&self) -> Option<usize> {
        Some(self.value_len())
    }
}

impl Shown for EntryBytes {
    fn key(&self) -> &[u8] {
        self.user_key()
    }
    fn sequence(&self) -> u64 {
        EntryBytes::sequence(self)
    }
    fn kind(&self) -> Kind {
        EntryBytes::kind(self)
    }
    fn shown_value(&self) -> Result<&[u8], Error> {
        Ok(self.value())
    }
    fn len(&self) -> Option<usize> {
        Some(self.value().len())
    }
}

/// A damaged table, and what its calls have answered.
pub struct Trial<'m> {
    model: &'m Model,
    bounds: Bounds,
    /// Decides which patterns, windows and means of writing are tried.
    turn: u64,
    pub verdict: Verdict,
}

impl<'m> Trial<'m> {
    pub fn new(model: &'m Model, bounds: Bounds, turn: u64) -> Self {
        Trial { model, bounds, turn, verdict: Verdict::default() }
    }

    /// Goes on after more was written to the table: with a new model, and with no limits to what the damage affects.
    pub fn after<'n>(self, model: &'n Model) -> Trial<'n> {
        let Trial { bounds, turn, verdict, .. } = self;
        let bounds = Bounds { probes: None, only: None, lone: false, focus: BTreeSet::new(), ..bounds };
        Trial { model, bounds, turn, verdict }
    }

    pub fn turn(&self) -> u64 {
        self.turn
    }

    pub fn model(&self) -> &'m Model {
        self.model
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.verdict.wrong.get_or_insert_with(what);
    }

    /// Notes an error; anything but corruption is wrong.
    pub fn refused(&mut self, error: &Error, what: &str) {
        self.verdict.detected = true;
        if error.corruption().is_none() {
            self.wrong(|| format!("{what}: {error}"));
        }
    }

    pub fn endless(&mut self, what: &str) {
        self.verdict.endless.get_or_insert_with(|| what.to_string());
    }

    /// A walk left out this row, after an error.
    pub fn passed_by(&mut self, row: &Row) {
        if let Some(probe) = self.model.probe(&row.key)
            && !self.may_hide(row)
        {
            self.verdict.beyond.insert(probe);
        }
    }

    /// Whether the damage may keep a walk from showing this row.
    pub fn may_hide(&self, row: &Row) -> bool {
        let Some(probe) = self.model.probe(&row.key) else { return true };
        self.bounds
            .only
            .as_ref()
            .or(self.bounds.probes.as_ref())
            .is_none_or(|allowed| allowed.contains(&probe))
    }

    fn key_passed(&mut self, probe: usize) {
        if self.bounds.probes.as_ref().is_some_and(|allowed| !allowed.contains(&probe)) {
            self.verdict.beyond.insert(probe);
        }
    }

    /// Compares as `compare` does, and counts `Corruption` for the spread.
    pub fn lookup(
        &mut self,
        probe: usize,
        snapshot: u64,
        want: &Expected,
        got: Result<Lookup<'_>, Error>,
        what: &str,
    ) {
        if !self.compare(probe, want, got, what) {
            self.uncertain(probe, snapshot);
        }
    }

    /// A lookup of this probe answered `Corruption`.
    pub fn uncertain(&mut self, probe: usize, snapshot: u64) {
        self.verdict.answering.insert(probe);
        let key = &self.model.probes[probe];
        if let Some(only) = &self.bounds.only {
            if !only.contains(&probe) {
                self.verdict.beyond.insert(probe);
            }
        } else if self.bounds.probes.is_some()
            && self.bounds.in_front.contains(&probe)
            && self.model.runs_out(key, snapshot)
        {
            self.verdict.fronts.insert(probe);
        } else {
            self.key_passed(probe);
        }
    }

    /// Compares one lookup. `false`: it answered `Corruption`, maybe from inside a chain of operands.
    pub fn compare(
        &mut self,
        probe: usize,
        want: &Expected,
        got: Result<Lookup<'_>, Error>,
        what: &str,
    ) -> bool {
        match got.and_then(|lookup| seen(&lookup)) {
            Ok(got) if got == *want => {}
            Ok(got) => {
                let key = &self.model.probes[probe];
                let text = || format!("{what} {}: {got:?}, not {want:?}", key.escape_ascii());
                self.verdict.wrong.get_or_insert_with(text);
            }
            Err(error) => {
                self.refused(&error, what);
                return false;
            }
        }
        true
    }

    pub fn gets(&mut self, table: &TableReader) {
        let model = self.model;
        for (snapshot, expected) in model.snapshots.iter().zip(&model.expected) {
            for (probe, want) in expected.iter().enumerate() {
                self.lookup(probe, *snapshot, want, table.get(&model.probes[probe], *snapshot), "get");
            }
        }
    }

    /// Compares the entry under a cursor with the row that it should show.
    pub fn shows(&mut self, entry: &impl Shown, row: &Row, what: &str) {
        let same = entry.key() == row.key && entry.sequence() == row.sequence && entry.kind() == row.kind;
        let same = same && entry.len().is_none_or(|len| len == row.value.len());
        match entry.shown_value() {
            _ if !same => self.wrong(|| {
                let (key, want) = (entry.key().escape_ascii(), row.key.escape_ascii());
                format!("{what}: {key}@{}, not {want}@{}", entry.sequence(), row.sequence)
            }),
            Ok(value) if value == row.value => {}
            Ok(_) => self.wrong(|| format!("{what}: value of {}", row.key.escape_ascii())),
            Err(error) => self.refused(&error, what),
        }
    }

    pub fn seeks(&mut self, table: &TableReader) {
        let model = self.model;
        let (mut raw, mut resolved) = (table.cursor(), table.cursor_at(model.snapshots[1]));
        let shown = model.visible(1);
        for (probe, key) in model.probes.iter().enumerate() {
            let after = model.rows.partition_point(|row| row.key < *key);
            let moved = raw.seek(key);
            self.sought(probe, "seek", moved, model.rows.get(after));
            let shown_after = shown.partition_point(|row| row.key < *key);
            let moved = resolved.seek(key);
            self.sought(probe, "resolved seek", moved, shown.get(shown_after).copied());
            let before = model.rows.partition_point(|row| row.key <= *key).checked_sub(1);
            let moved = raw.seek_for_prev(key);
            self.sought(probe, "seek_for_prev", moved, before.map(|before| &model.rows[before]));
            let shown_before = shown.partition_point(|row| row.key <= *key).checked_sub(1);
            let moved = resolved.seek_for_prev(key);
            self.sought(probe, "resolved seek_for_prev", moved, shown_before.map(|place| shown[place]));
        }
        self.version_seeks(table);
        let all: Vec<&Row> = model.rows.iter().collect();
        self.version_walks("raw", &mut raw, &all);
        self.version_walks("resolved", &mut resolved, &shown);
        self.strict_seeks(table);
        self.narrowed(table);
        self.operands_under_cursors(table);
    }

    /// Seeks strictly before keys. The cursor's status must agree with the result of the move.
    fn strict_seeks(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor();
        for (probe, key) in model.probes.iter().enumerate() {
            let before = model.rows.partition_point(|row| row.key < *key).checked_sub(1);
            let failed = cursor.seek_before(key).is_err();
            let status = cursor.status();
            if status.is_err() != failed {
                self.wrong(|| format!("status after seek_before {}: {status:?}", key.escape_ascii()));
            }
            let moved = status.and_then(|()| cursor.entry());
            self.sought(probe, "seek_before", moved, before.map(|before| &model.rows[before]));
        }
    }

    /// One cursor whose bounds and prefix are replaced for each key.
    fn narrowed(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor();
        for (probe, key) in model.probes.iter().enumerate().skip(self.turn as usize % 3).step_by(3) {
            let key = key.as_slice();
            let at = model.rows.partition_point(|row| row.key.as_slice() < key);
            let first = model.rows.get(at);
            cursor.set_bounds(key..=key);
            self.sought(probe, "set_bounds", cursor.first(), first.filter(|row| row.key == key));
            cursor.set_prefix(key);
            self.sought(probe, "set_prefix", cursor.first(), first.filter(|row| row.key.starts_with(key)));
        }
    }

    /// What merge operands stand on, asked by a cursor on the newest of them.
    fn operands_under_cursors(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor_at(model.snapshots[1]);
        for (probe, key) in model.probes.iter().enumerate() {
            let want = &model.expected[1][probe];
            if !matches!(want, Expected::Merge(..)) || !matches!(cursor.seek(key), Ok(Some(_))) {
                continue;
            }
            match cursor.operands() {
                Ok(None) => self.wrong(|| format!("operands of {}: none", key.escape_ascii())),
                Ok(Some(operands)) => {
                    self.compare(probe, want, Ok(Lookup::Merge(operands)), "operands");
                }
                Err(error) => self.refused(&error, "operands"),
            }
        }
    }

    /// Seeks to versions that exist, and to the places before them.
    fn version_seeks(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor();
        for (place, row) in model.rows.iter().enumerate().skip(self.turn as usize % 3).step_by(3) {
            let Some(probe) = model.probe(&row.key) else { continue };
            let moved = cursor.seek_version(&row.key, row.sequence);
            self.sought(probe, "seek_version", moved, Some(row));
            let moved = cursor.seek_version(&row.key, row.sequence + 1);
            self.sought(probe, "seek_version between", moved, Some(row));
            if cursor.is_valid() {
                let before = place.checked_sub(1).map(|before| &model.rows[before]);
                self.sought(probe, "prev after seek_version", cursor.prev(), before);
            }
        }
    }

    /// Some steps from each version on, and from right after it, over what damage is met there.
    fn version_walks<H: Handle, L: Visibility>(
        &mut self,
        what: &str,
        cursor: &mut Cursor<H, L>,
        rows: &[&Row],
    ) {
        let model = self.model;
        for row in model.rows.iter().skip(self.turn as usize % 3).step_by(3) {
            for sequence in [row.sequence, row.sequence - 1] {
                let is_before =
                    |shown: &&Row| shown.key.cmp(&row.key).then(sequence.cmp(&shown.sequence)).is_lt();
                let mut walk = Walk::between(rows, rows.partition_point(is_before), rows.len());
                let mut moved = cursor.seek_version(&row.key, sequence);
                for _ in 0..VERSION_STEPS {
                    let what = format!("{what} walk from {}@{sequence}", row.key.escape_ascii());
                    if !self.meet(&mut walk, End::Front, moved, &what) {
                        break;
                    }
                    moved = cursor.next();
                }
            }
        }
    }

    pub fn sought(
        &mut self,
        probe: usize,
        what: &str,
        moved: Result<Option<Entry<'_>>, Error>,
        row: Option<&Row>,
    ) {
        match (moved, row) {
            (Err(error), _) => self.refused(&error, what),
            (Ok(Some(entry)), Some(row)) => self.shows(&entry, row, what),
            (Ok(None), None) => {}
            (Ok(entry), row) => {
                let key = &self.model.probes[probe];
                self.wrong(|| {
                    format!("{what} {}: {entry:?}, not {:?}", key.escape_ascii(), row.map(|row| row.sequence))
                });
            }
        }
    }
}
