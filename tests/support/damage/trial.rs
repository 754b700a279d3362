//! One damaged table: all reads of it, each answer compared with the model; its own counts, sizes
//! and marks; and the end of its life: freeze, flush, scrub, salvage.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::Cursor;
use paranoid_memtable::flush::{
    FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, SinkError, Versions,
};
use paranoid_memtable::integrity::Protected;
use paranoid_memtable::read::{EntryBytes, Operands};
use paranoid_memtable::repair::{Healed, Reach};
use paranoid_memtable::scan::{Handle, Visibility};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{
    DuplicatePolicy, Entry, Error, ImmutableMemTable, Kind, Lookup, MemTable, TableReader, ValueRef,
};

use super::census::{Answer, Call, Census, Near};
use super::model::{Expected, Model, Row, Size, seen};
use super::plan::Bounds;
use super::walk::{End, Walk};

/// Number of steps after a seek to a version.
const VERSION_STEPS: usize = 3;

/// The results of one fault.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Whether an operation, or the scrub, reported corruption.
    pub detected: bool,
    /// The first wrong answer without an error.
    pub wrong: Option<String>,
    /// An operation that does not end.
    pub endless: Option<String>,
    /// Probes whose get returned `Corruption`.
    pub answering: BTreeSet<usize>,
    /// Keys that returned `Corruption`, or that a scan left out, though the damage may not affect
    /// them.
    pub beyond: BTreeSet<usize>,
    /// Keys before a damaged entry for which a read went past their last version and returned
    /// `Corruption`.
    pub fronts: BTreeSet<usize>,
    /// The answers of all calls, by call.
    pub census: Census,
    /// The places that the table has put right.
    pub healed: Vec<Healed>,
}

impl Verdict {
    /// The verdict on one flipped bit of a byte: what was told must be this bit.
    #[must_use]
    pub fn of_bit(mut self, bit: u8) -> Verdict {
        let is_right = |healed: &Healed| healed.bit == Some(bit);
        if self.healed.len() > 1 || !self.healed.iter().all(is_right) {
            let text = format!("bit {bit} flipped, told: {:?}", self.healed);
            self.wrong.get_or_insert(text);
        }
        self
    }
}

impl Verdict {
    /// Adds the results of another thread on the same table.
    pub fn join(&mut self, other: Verdict) {
        self.detected |= other.detected;
        self.wrong = self.wrong.take().or(other.wrong);
        self.endless = self.endless.take().or(other.endless);
        self.answering.extend(other.answering);
        self.beyond.extend(other.beyond);
        self.fronts.extend(other.fronts);
        self.census.add(&other.census);
        // All are of the same table.
        if other.healed.len() > self.healed.len() {
            self.healed = other.healed;
        }
    }
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
    /// The value's length, if it is known without the value.
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

/// A damaged table, and the answers of its calls.
pub struct Trial<'m> {
    model: &'m Model,
    bounds: Bounds,
    /// Selects the patterns, windows and ways of writing to try.
    turn: u64,
    /// Probes of the keys whose entries were damaged.
    own: BTreeSet<usize>,
    /// Number of errors so far.
    refusals: u64,
    pub verdict: Verdict,
}

impl<'m> Trial<'m> {
    pub fn new(model: &'m Model, bounds: Bounds, turn: u64) -> Self {
        let focus = bounds.focus.iter().map(|row| &model.rows[*row].key);
        let keys = focus.chain(bounds.entries.iter().map(|(key, _)| key));
        Trial {
            own: keys.filter_map(|key| model.probe(key)).collect(),
            model,
            bounds,
            turn,
            refusals: 0,
            verdict: Verdict::default(),
        }
    }

    /// Continues after more writes to the table, with a new model, and with no limits to the
    /// effects of the damage.
    pub fn after<'n>(self, model: &'n Model) -> Trial<'n> {
        let Trial {
            bounds,
            turn,
            own,
            refusals,
            verdict,
            ..
        } = self;
        let bounds = Bounds {
            probes: None,
            only: None,
            lone: false,
            focus: BTreeSet::new(),
            ..bounds
        };
        Trial {
            model,
            bounds,
            turn,
            own,
            refusals,
            verdict,
        }
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

    /// Records an error. Any error other than corruption is wrong.
    pub fn refused(&mut self, error: &Error, what: &str) {
        self.verdict.detected = true;
        self.refusals += 1;
        if error.corruption().is_none() {
            self.wrong(|| format!("{what}: {error}"));
        }
    }

    /// Makes a call and judges its answer, and counts the answer.
    pub fn call<T>(&mut self, call: Call, judge: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.refusals;
        let result = judge(self);
        let answer = if self.refusals > before {
            Answer::Corruption
        } else {
            Answer::Given
        };
        self.verdict.census.count(call, answer);
        result
    }

    /// How near a key is to the damage.
    pub fn near(&self, probe: usize) -> Near {
        let distance = self.own.iter().map(|own| own.abs_diff(probe)).min();
        match distance {
            Some(0) => Near::Own,
            Some(1 | 2) => Near::Beside,
            _ => Near::Other,
        }
    }

    pub fn endless(&mut self, what: &str) {
        self.verdict.endless.get_or_insert_with(|| what.to_string());
    }

    /// Records that a walk left out this row, after an error.
    pub fn passed_by(&mut self, row: &Row) {
        if let Some(probe) = self.model.probe(&row.key)
            && !self.may_hide(row)
        {
            self.verdict.beyond.insert(probe);
        }
    }

    /// Whether the damage may hide this row from a walk.
    pub fn may_hide(&self, row: &Row) -> bool {
        let Some(probe) = self.model.probe(&row.key) else {
            return true;
        };
        self.bounds
            .only
            .as_ref()
            .or(self.bounds.probes.as_ref())
            .is_none_or(|allowed| allowed.contains(&probe))
    }

    fn key_passed(&mut self, probe: usize) {
        if self
            .bounds
            .probes
            .as_ref()
            .is_some_and(|allowed| !allowed.contains(&probe))
        {
            self.verdict.beyond.insert(probe);
        }
    }

    /// Compares as `compare` does, and counts `Corruption` for the spread.
    pub fn lookup(
        &mut self,
        probe: usize,
        snapshot: u64,
        want: &Expected,
        got: Result<Lookup<ValueRef<'_>, Operands<'_>>, Error>,
        what: &str,
    ) {
        let call = match what {
            "multi_get" => Call::MultiGet,
            _ => Call::get(self.near(probe)),
        };
        self.call(call, |trial| {
            if !trial.compare(probe, want, got, what) {
                trial.uncertain(probe, snapshot);
            }
        });
    }

    /// Records that a lookup of this probe returned `Corruption`.
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

    /// Compares one lookup. `false`: it returned `Corruption`, maybe from inside a chain of
    /// operands.
    pub fn compare(
        &mut self,
        probe: usize,
        want: &Expected,
        got: Result<Lookup<ValueRef<'_>, Operands<'_>>, Error>,
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
                self.lookup(
                    probe,
                    *snapshot,
                    want,
                    table.get(&model.probes[probe], *snapshot),
                    "get",
                );
            }
        }
    }

    /// Compares the entry at a cursor with the row that it should show.
    pub fn shows(&mut self, entry: &impl Shown, row: &Row, what: &str) {
        let same =
            entry.key() == row.key && entry.sequence() == row.sequence && entry.kind() == row.kind;
        let same = same && entry.len().is_none_or(|len| len == row.value.len());
        match entry.shown_value() {
            _ if !same => self.wrong(|| {
                let (key, want) = (entry.key().escape_ascii(), row.key.escape_ascii());
                format!(
                    "{what}: {key}@{}, not {want}@{}",
                    entry.sequence(),
                    row.sequence
                )
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
            self.sought(
                probe,
                "resolved seek",
                moved,
                shown.get(shown_after).copied(),
            );
            let before = model
                .rows
                .partition_point(|row| row.key <= *key)
                .checked_sub(1);
            let moved = raw.seek_for_prev(key);
            self.sought(
                probe,
                "seek_for_prev",
                moved,
                before.map(|before| &model.rows[before]),
            );
            let shown_before = shown.partition_point(|row| row.key <= *key).checked_sub(1);
            let moved = resolved.seek_for_prev(key);
            self.sought(
                probe,
                "resolved seek_for_prev",
                moved,
                shown_before.map(|place| shown[place]),
            );
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
            let before = model
                .rows
                .partition_point(|row| row.key < *key)
                .checked_sub(1);
            let failed = cursor.seek_before(key).is_err();
            let status = cursor.status();
            if status.is_err() != failed {
                self.wrong(|| {
                    format!(
                        "status after seek_before {}: {status:?}",
                        key.escape_ascii()
                    )
                });
            }
            let moved = status.and_then(|()| cursor.entry());
            self.sought(
                probe,
                "seek_before",
                moved,
                before.map(|before| &model.rows[before]),
            );
        }
    }

    /// Walks with one cursor whose bounds and prefix are replaced for each key.
    fn narrowed(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor();
        for (probe, key) in model
            .probes
            .iter()
            .enumerate()
            .skip(self.turn as usize % 3)
            .step_by(3)
        {
            let key = key.as_slice();
            let at = model.rows.partition_point(|row| row.key.as_slice() < key);
            let first = model.rows.get(at);
            cursor.set_bounds(key..=key);
            self.sought(
                probe,
                "set_bounds",
                cursor.first(),
                first.filter(|row| row.key == key),
            );
            cursor.set_prefix(key);
            self.sought(
                probe,
                "set_prefix",
                cursor.first(),
                first.filter(|row| row.key.starts_with(key)),
            );
        }
    }

    /// Reads the base of merge operands by a cursor at the newest operand.
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

    /// Seeks versions that exist, and the places before them.
    fn version_seeks(&mut self, table: &TableReader) {
        let model = self.model;
        let mut cursor = table.cursor();
        for (place, row) in model
            .rows
            .iter()
            .enumerate()
            .skip(self.turn as usize % 3)
            .step_by(3)
        {
            let Some(probe) = model.probe(&row.key) else {
                continue;
            };
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

    /// Makes some steps from each version, and from right after it, past the damage there.
    fn version_walks<H: Handle, L: Visibility>(
        &mut self,
        what: &str,
        cursor: &mut Cursor<H, L>,
        rows: &[&Row],
    ) {
        let model = self.model;
        for row in model.rows.iter().skip(self.turn as usize % 3).step_by(3) {
            for sequence in [row.sequence, row.sequence - 1] {
                let is_before = |shown: &&Row| {
                    shown
                        .key
                        .cmp(&row.key)
                        .then(sequence.cmp(&shown.sequence))
                        .is_lt()
                };
                let mut walk = Walk::between(rows, rows.partition_point(is_before), rows.len());
                let what = format!("{what} walk from {}@{sequence}", row.key.escape_ascii());
                self.call(Call::Scan, |trial| {
                    let mut moved = cursor.seek_version(&row.key, sequence);
                    for _ in 0..VERSION_STEPS {
                        if !trial.meet(&mut walk, End::Front, moved, &what) {
                            break;
                        }
                        moved = cursor.next();
                    }
                });
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
        self.call(Call::Seek, |trial| match (moved, row) {
            (Err(error), _) => trial.refused(&error, what),
            (Ok(Some(entry)), Some(row)) => trial.shows(&entry, row, what),
            (Ok(None), None) => {}
            (Ok(entry), row) => {
                let key = &trial.model.probes[probe];
                trial.wrong(|| {
                    format!(
                        "{what} {}: {entry:?}, not {:?}",
                        key.escape_ascii(),
                        row.map(|row| row.sequence)
                    )
                });
            }
        });
    }
}

impl Trial<'_> {
    /// Compares counts, which are outside of the fault model: damage changes none of them.
    pub fn accounts(&mut self, table: &TableReader) {
        let model = self.model();
        let points = |kinds: fn(Kind) -> bool| {
            model.rows.iter().filter(|row| kinds(row.kind)).count() as u64
        };
        let tombstones = model.tombstones.len() as u64;
        let displaced = model.writes.len() as u64 - tombstones - model.rows.len() as u64;
        let bytes = model
            .rows
            .iter()
            .chain(&model.tombstones)
            .map(|row| row.key.len() + row.value.len());
        let smallest = model.writes.iter().map(|row| row.sequence).min();
        let same = table.len() as u64 == points(|_| true) + tombstones
            && table.is_empty() == model.writes.is_empty()
            && table.stats().deletes == points(Kind::is_point_delete)
            && table.stats().range_deletes == tombstones
            && table.stats().displaced == displaced
            && table.stats().data_bytes == bytes.sum::<usize>() as u64
            && table.used_bytes() > table.stats().data_bytes
            && table.allocated_bytes() >= table.used_bytes()
            && table.remaining() > 0
            && !table.can_fit(Kind::PUT, 0, u64::MAX)
            && !table.can_fit(Kind::RANGE_DELETE, 0, u64::MAX)
            && table.stats().smallest_sequence == smallest
            && table.stats().largest_sequence == Some(model.newest())
            && table.stats() == table.stats()
            && table.stats().healed == table.healed().len() as u64
            && table.options().write_buffer_size() > 0
            && format!("{:?}", table.comparator()) == "Bytewise";
        let attachment = std::sync::Arc::new(());
        table.attach(attachment.clone());
        let same = same && std::sync::Arc::strong_count(&attachment) == 2;
        if !same {
            self.wrong(|| "the table's accounts changed".into());
        }
    }

    /// Sets the marks that an engine sets on a mutable table.
    pub fn marks(&mut self, table: &MemTable) {
        let is_roomy = self.model().shape.entries < 100
            && table.options().write_buffer_size() >= Size::SMALL.buffer;
        let marked = table.should_flush();
        table.mark_for_flush();
        if !table.should_flush()
            || (marked && is_roomy)
            || table.bytes_once_frozen() < table.used_bytes()
        {
            self.wrong(|| "the table's marks changed".into());
        }
    }

    /// Makes the next table, which has none of the damage.
    pub fn fork(&mut self, table: &MemTable) {
        match table.fork() {
            Err(error) => self.refused(&error, "fork"),
            Ok(next) => {
                let written = next.put(1, b"key", b"value").is_ok();
                let read = next
                    .get(b"key", 1)
                    .is_ok_and(|found| found.value() == Some(b"value"));
                if !(written && read && next.len() == 1 && !next.is_frozen()) {
                    self.wrong(|| "the next table answers wrong".into());
                }
            }
        }
    }

    /// Whether equal entries replace each other in this table.
    pub fn replaces(&self) -> bool {
        self.model().shape.duplicates == DuplicatePolicy::Replace
    }
}

/// A sink that collects all items.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Collected {
    rows: Vec<Row>,
    tombstones: Vec<Row>,
    /// Entries whose digest disagrees with the bytes that the flush returned.
    torn: usize,
}

impl FlushSink for Collected {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
        let own = entry
            .protection
            .check(&key, &value, entry.sequence, entry.kind);
        let want = Protected::of(&key, &value, entry.kind).with_sequence(entry.sequence);
        self.torn += usize::from(own != Some(want));
        self.rows.push(Row {
            key,
            sequence: entry.sequence,
            kind: entry.kind,
            value,
        });
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

/// Pulls one item of a flush into the sink. `false`: the flush has ended.
fn pull_one(flush: &mut FlushIter<'_>, sink: &mut Collected) -> Result<bool, Error> {
    let Some(item) = flush.next()? else {
        return Ok(false);
    };
    let taken = match item {
        FlushItem::Entry(entry) => sink.entry(entry),
        FlushItem::Fragment(fragment) => sink.fragment(fragment),
    };
    taken
        .map(|()| true)
        .map_err(|cause| Error::Sink(cause.into()))
}

/// Pulls the rest of a flush into the sink.
fn pull(flush: &mut FlushIter<'_>, sink: &mut Collected) -> Result<FlushSummary, Error> {
    while pull_one(flush, sink)? {}
    Ok(flush.summary().expect("it came to its end"))
}

/// Pulls a flush as a merge of several tables does: first only entries, then range tombstones as
/// they are stored.
fn pull_apart(flush: &mut FlushIter<'_>, sink: &mut Collected) -> Result<FlushSummary, Error> {
    while flush.next_entry()?.is_some() {
        let entry = flush.entry().expect("the last step came to one");
        sink.entry(entry)
            .map_err(|cause| Error::Sink(cause.into()))?;
    }
    flush.end(|start, end, sequence| {
        let (key, value) = (start.to_vec(), end.to_vec());
        sink.tombstones.push(Row {
            key,
            sequence,
            kind: Kind::RANGE_DELETE,
            value,
        });
        Ok(())
    })
}

/// Flushes that were begun before the damage.
pub struct Pulled<'t> {
    flushes: Vec<(Versions<'t>, FlushIter<'t>, Collected)>,
}

/// Most flushes that are begun before the damage.
const PULLED: usize = 32;

impl<'t> Pulled<'t> {
    /// Begins flushes at regular distances in the items. The turn selects where.
    pub fn new(
        frozen: &'t ImmutableMemTable,
        model: &'t Model,
        turn: u64,
    ) -> Result<Pulled<'t>, Error> {
        let items = model.writes.len() + 1;
        let every = items.div_ceil(PULLED).max(2);
        let mut flushes = Vec::new();
        for gone in (turn as usize % every..items).step_by(every) {
            let versions = if (turn / 2 + gone as u64 / 2).is_multiple_of(2) {
                Versions::SeenBy(readers(model, turn))
            } else {
                Versions::All
            };
            let mut flush = frozen.flush_iter(versions)?;
            let mut sink = Collected::default();
            for _ in 0..gone {
                pull_one(&mut flush, &mut sink)?;
            }
            flushes.push((versions, flush, sink));
        }
        Ok(Pulled { flushes })
    }
}

/// No snapshot, one or two.
fn readers(model: &Model, turn: u64) -> &[u64] {
    &model.snapshots[..turn as usize % 3 % model.snapshots.len()]
}

/// The newest of these tombstones over a key that a reader sees.
fn newest_over(tombstones: &[Row], key: &[u8], reader: u64) -> Option<u64> {
    let covers = |row: &&Row| {
        row.sequence <= reader && row.key.as_slice() <= key && key < row.value.as_slice()
    };
    tombstones
        .iter()
        .filter(covers)
        .map(|row| row.sequence)
        .max()
}

/// The result that a scrub must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A finding.
    Finding,
    /// Findings, or none.
    Anything,
}

impl<'m> Trial<'m> {
    /// Scrubs. Its findings count as detection, as what was put right does, which the table tells.
    /// Damage that matters must be found or told.
    pub fn scrub(&mut self, table: &TableReader, demand: Demand) {
        let report = table.scrub(|_| {});
        self.told(table);
        self.verdict.detected |= !report.findings.is_empty() || !self.verdict.healed.is_empty();
        if report.check().is_ok() != report.findings.is_empty() {
            self.wrong(|| "a scrub's report contradicts itself".into());
        }
        let is_silent = report.findings.is_empty() && self.verdict.healed.is_empty();
        if demand == Demand::Finding && is_silent {
            self.wrong(|| "a scrub finds nothing, and nothing was told".into());
        }
    }

    /// Notes the places that the table has put right. They stay, and are counted.
    pub fn told(&mut self, table: &TableReader) {
        let healed = table.healed();
        let before = std::mem::replace(&mut self.verdict.healed, healed.clone());
        if !healed.starts_with(&before) || table.stats().healed != healed.len() as u64 {
            self.wrong(|| format!("healed: {healed:?}, before: {before:?}"));
        }
    }

    /// Checks that a flush returns everything, or an error: with all versions kept, and for readers
    /// at no, one and two snapshots.
    pub fn flush(&mut self, frozen: &ImmutableMemTable) {
        let model = self.model();
        let rows: Vec<&Row> = model.rows.iter().collect();
        self.flush_to(Versions::All, frozen, &rows);
        let newest = model.newest();
        let snapshots: &[u64] = match self.turn() % 3 {
            0 => &[],
            1 => &[newest / 2],
            _ => &[newest * 3 / 4, newest / 4],
        };
        self.flush_to(
            Versions::SeenBy(snapshots),
            frozen,
            &model.needed(snapshots),
        );
    }

    fn flush_to(&mut self, versions: Versions<'_>, frozen: &ImmutableMemTable, want: &[&Row]) {
        let snapshots = if let Versions::SeenBy(snapshots) = versions {
            snapshots
        } else {
            &[]
        };
        let mut sink = Collected::default();
        let flushed = match self.turn() / 3 % 3 {
            0 => frozen.flush(versions, &mut sink),
            1 => frozen
                .flush_iter(versions)
                .and_then(|mut flush| pull_apart(&mut flush, &mut sink)),
            _ => frozen
                .flush_iter(versions)
                .and_then(|mut flush| pull(&mut flush, &mut sink)),
        };
        self.call(Call::Flush, |trial| match flushed {
            Err(error) => trial.refused(&error, "flush"),
            Ok(summary) => trial.flushed(&sink, &summary, snapshots, want),
        });
    }

    /// Pulls the rest of flushes that were begun before the damage. Each returns right items, up to
    /// its end or to an error.
    pub fn pulled(&mut self, pulled: Pulled<'_>) {
        let model = self.model();
        let snapshots = readers(model, self.turn());
        let (all, needed) = (
            model.rows.iter().collect::<Vec<_>>(),
            model.needed(snapshots),
        );
        for (versions, mut flush, mut sink) in pulled.flushes {
            let want = if versions == Versions::All {
                &all
            } else {
                &needed
            };
            let gone = sink.rows.len() + sink.tombstones.len();
            let rest = pull(&mut flush, &mut sink);
            self.call(Call::Flush, |trial| match rest {
                Ok(summary) => trial.flushed(&sink, &summary, snapshots, want),
                Err(error) => {
                    trial.refused(&error, "a pulled flush");
                    let right = want.iter().copied().take(sink.rows.len());
                    if sink.torn > 0 || !sink.rows.iter().eq(right) {
                        trial.wrong(|| {
                            format!("a flush pulled {gone} times hands out other entries")
                        });
                    }
                }
            });
        }
    }

    fn flushed(
        &mut self,
        sink: &Collected,
        summary: &FlushSummary,
        snapshots: &[u64],
        want: &[&Row],
    ) {
        let model = self.model();
        if !sink.rows.iter().eq(want.iter().copied()) || sink.torn > 0 {
            self.wrong(|| format!("flush at {snapshots:?} hands out other entries"));
        }
        let counts = (summary.entries, summary.entries + summary.hidden);
        if counts != (want.len() as u64, model.rows.len() as u64) {
            self.wrong(|| format!("flush at {snapshots:?}: {summary:?}"));
        }
        for key in &model.probes {
            for reader in snapshots.iter().copied().chain([u64::MAX]) {
                let found = newest_over(&sink.tombstones, key, reader);
                if found != model.cover(key, reader) {
                    self.wrong(|| {
                        format!("flushed fragments at {} for {reader}", key.escape_ascii())
                    });
                }
            }
        }
    }

    /// Checks that each salvaged entry was written, and that no intact entry is missing.
    pub fn salvage(&mut self, frozen: &ImmutableMemTable) {
        let salvage = frozen.salvage();
        let all = written(self.model());
        self.verdict.detected |= salvage.missing > 0 || salvage.failure.is_some();
        let mut found = BTreeSet::new();
        let mut last = None;
        for salvaged in &salvage.entries {
            let entry = &salvaged.entry;
            let (key, sequence, tombstone) = (
                entry.user_key(),
                entry.sequence(),
                entry.kind() == Kind::RANGE_DELETE,
            );
            let id = (key.to_vec(), Reverse(sequence), tombstone);
            let row = all
                .get(&id)
                .and_then(|rows| rows.get(salvaged.revision as usize));
            let same = row.is_some_and(|row| {
                let is_whole = |value: &[u8]| {
                    entry
                        .stored_protection()
                        .check(key, value, sequence, row.kind)
                        .is_some()
                };
                row.kind == entry.kind()
                    && entry
                        .value()
                        .is_ok_and(|value| value == row.value && is_whole(value))
            });
            if !same {
                self.wrong(|| format!("salvage brings back {}@{sequence}", key.escape_ascii()));
            }
            let place = (
                key,
                Reverse(sequence),
                Reverse(salvaged.revision),
                tombstone,
            );
            if last.is_some_and(|last| last >= place) {
                self.wrong(|| format!("salvage is out of order at {}", key.escape_ascii()));
            }
            last = Some(place);
            found.insert((id, salvaged.revision as usize));
        }
        let blind =
            salvage.failure.is_some() || salvage.reach == Reach::Links || self.bounds().control;
        for (id, rows) in all {
            for revision in 0..rows.len() {
                let harmed = self.bounds().entries.contains(&(id.0.clone(), id.1.0));
                if !blind && !harmed && !found.contains(&(id.clone(), revision)) {
                    self.wrong(|| format!("salvage loses {}@{}", id.0.escape_ascii(), id.1.0));
                }
            }
        }
    }

    /// Freezes, or records the error. In both cases writing has ended and the frozen table exists.
    pub fn freeze(&mut self, table: &MemTable) -> Option<ImmutableMemTable> {
        self.call(Call::Freeze, |trial| {
            if let Err(error) = table.freeze() {
                trial.refused(&error, "freeze");
            }
        });
        let frozen = table.immutable();
        if frozen.is_none() {
            self.wrong(|| "a frozen table has no immutable one".into());
        }
        frozen
    }
}

/// Key, sequence number, and whether it is a range tombstone.
type Id = (Vec<u8>, Reverse<u64>, bool);

/// All writes; equal entries in the order of their revisions.
fn written(model: &Model) -> BTreeMap<Id, Vec<&Row>> {
    let mut all: BTreeMap<Id, Vec<&Row>> = BTreeMap::new();
    for row in &model.writes {
        let id = (
            row.key.clone(),
            Reverse(row.sequence),
            row.kind == Kind::RANGE_DELETE,
        );
        all.entry(id).or_default().push(row);
    }
    all
}
