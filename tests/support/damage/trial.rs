//! One damaged table: every read on it, each answer compared with the model.

use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::{
    Bytewise, Cursor, Door, Entry, Error, Handle, Kind, Lens, Lookup, Part, Region, Representation,
    TableReader,
};

use super::Frozen;
use super::model::{Aids, Expected, Model, PREFIX_BYTES, Row, seen};
use super::plan::Area;

/// What came of one fault.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Some operation, or the scrub, reported corruption.
    pub detected: bool,
    /// The first wrong answer that nothing announced.
    pub wrong: Option<String>,
    /// An operation that does not end.
    pub endless: Option<String>,
    /// Probes that answered `Corruption` to a get.
    pub answering: BTreeSet<usize>,
    /// Keys that answered `Corruption`, or were passed by a scan, and should not have been.
    pub beyond: BTreeSet<usize>,
    /// Keys in front of a damaged entry that answered so where a read looked past their last version.
    pub fronts: BTreeSet<usize>,
    /// A damaged entry whose place nobody knows made every key uncertain.
    pub every: bool,
}

/// What damage may reach.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Probes that may answer `Corruption`; `None`: all.
    pub probes: Option<BTreeSet<usize>>,
    /// Probes that may answer `Corruption` to lookups, if one flipped bit of an entry is all that was changed.
    pub only: Option<BTreeSet<usize>>,
    /// An entry of a mutable `Vector` table: its place is not known, and every key may answer so.
    pub every: bool,
    /// Keys right in front of a damaged entry: they may answer so where a get looks past their last version.
    pub in_front: BTreeSet<usize>,
    /// (key, sequence) of entries whose own bytes were changed; `None`: any.
    pub entries: BTreeSet<(Vec<u8>, u64)>,
    /// A scrub must find something.
    pub must_find: bool,
    /// Words of filters or index are gone that later inserts cannot tell from unused ones.
    pub wiped: bool,
    /// The control block was changed.
    pub control: bool,
}

/// What was changed of one point entry.
#[derive(Debug, Clone, Copy, Default)]
struct Harm {
    /// Header, key, value or digests; or the word that names it in a sorted array.
    own: bool,
    /// That word.
    sorted: bool,
    back: bool,
    /// The highest changed link.
    link: Option<u32>,
    /// The lowest one is changed.
    next: bool,
}

impl Bounds {
    /// What the pieces that a door changed may reach.
    pub fn of(model: &Model, door: &Door<'_, Bytewise>, frozen: Frozen) -> Bounds {
        let vector = model.shape.representation == Representation::Vector;
        let mut bounds = Bounds::default();
        let mut limited = true;
        let mut harms: BTreeMap<Option<usize>, Harm> = BTreeMap::new();
        let changed = door.changed();
        let lone = changed.len() == 1;
        let wiped = |number: &&usize| {
            Area::of(&door.pieces()[**number]).is_aid() && door.bytes(**number).iter().all(|byte| *byte == 0)
        };
        bounds.wiped = changed.iter().filter(wiped).count() > 1;
        for number in changed {
            let piece = &door.pieces()[number];
            if matches!(piece.region, Region::Padding | Region::Free) {
                continue;
            }
            let own = matches!(piece.region, Region::Header | Region::Key | Region::Value | Region::Digests);
            // At width 0 nothing but headers and links can be found; a back link's tag is short.
            bounds.must_find |= match piece.region {
                // Words that are not in use yet are among those of the index.
                Region::BackLink | Region::TombstoneIndex => false,
                // A line that is zero as a whole looks like one that was never used; no read believes it.
                Region::FilterWord | Region::IndexSlot | Region::IndexControl => {
                    door.bytes(number).iter().any(|byte| *byte != 0) || lone
                }
                _ => !own || model.shape.protection > 0,
            };
            bounds.control |= piece.region == Region::Control;
            limited &= piece.part != Part::Control;
            if let (true, Some(owner)) = (own, &piece.owner) {
                bounds.entries.insert((owner.key.to_vec(), owner.sequence));
            }
            if piece.part == Part::Points {
                let row = piece.owner.as_ref().and_then(|owner| model.row(&owner.key, owner.sequence));
                let harm = harms.entry(row).or_default();
                harm.sorted |= piece.region == Region::SortedWord;
                harm.own |= own || harm.sorted;
                let linked = matches!(piece.region, Region::Link | Region::HeadLink | Region::BackLink);
                if vector {
                    // A chain with one broken link is read from its other end; an array needs none.
                    let named = matches!(piece.region, Region::Value | Region::SortedWord);
                    bounds.every |= frozen == Frozen::After && !named && !(linked && lone);
                    continue;
                }
                harm.back |= piece.region == Region::BackLink;
                if linked && piece.region != Region::BackLink {
                    harm.link = harm.link.max(Some(piece.level));
                    harm.next |= piece.level == 0;
                }
            }
        }
        let mut probes = BTreeSet::new();
        for (row, harm) in &harms {
            bounds.reach(model, door, &harms, (*row, *harm), &mut probes);
        }
        bounds.probes = (limited && !bounds.every).then_some(probes);
        let owned = |harm: &Harm| harm.own && !harm.sorted;
        if model.shape.protection == 8 && door.changed_bits() == 1 && harms.values().any(owned) {
            let row = harms.keys().copied().flatten().next();
            bounds.only = row
                .filter(|_| !bounds.every)
                .map(|row| model.probe(&model.rows[row].key).into_iter().collect());
        }
        bounds
    }

    /// The keys that one damaged entry, or its broken level-0 link, may make uncertain.
    fn reach(
        &mut self,
        model: &Model,
        door: &Door<'_, Bytewise>,
        harms: &BTreeMap<Option<usize>, Harm>,
        (row, harm): (Option<usize>, Harm),
        probes: &mut BTreeSet<usize>,
    ) {
        let place = row.and_then(|row| model.probe(&model.rows[row].key));
        if let (true, Some(place)) = (harm.own, place) {
            probes.extend(place.saturating_sub(1)..=place + 2);
            self.in_front.extend(place.checked_sub(2));
        }
        if !harm.next {
            return;
        }
        probes.extend(place.unwrap_or(0)..=place.map_or(1, |place| place + 2));
        // Upper levels lead to the next intact entry that is tall enough; the way back from there ends at the last
        // damaged one in front of it.
        let levels = harm.link.unwrap_or(0) + 2;
        for next in row.map_or(0, |row| row + 1)..model.rows.len() {
            if harms.get(&Some(next)).is_some_and(|harm| harm.own || harm.back || harm.next) {
                let end = model.probe(&model.rows[next].key).unwrap_or(0) + 2;
                probes.extend(place.unwrap_or(0)..=end);
                continue;
            }
            if model.height(door, next) >= levels {
                return;
            }
        }
        if harms.get(&None).is_some_and(|harm| harm.back) {
            probes.extend(place.unwrap_or(0)..model.probes.len());
        }
    }
}

/// Every how many-th probe's prefix is scanned.
const PREFIX_EVERY: usize = 3;

/// A move of a cursor.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    First,
    Next,
    Last,
    Prev,
}

impl Step {
    pub fn of<H: Handle, L: Lens>(self, cursor: &mut Cursor<H, L>) -> Result<(), Error> {
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
}

/// A damaged table under examination.
pub struct Trial<'m> {
    model: &'m Model,
    bounds: Bounds,
    pub verdict: Verdict,
    /// The range tombstone that was added after the damage.
    pub deleted: Option<Row>,
}

impl<'m> Trial<'m> {
    pub fn new(model: &'m Model, bounds: Bounds) -> Self {
        Trial { model, bounds, verdict: Verdict::default(), deleted: None }
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

    fn passed_by(&mut self, key: &[u8]) {
        if let (Some(allowed), Some(probe)) = (&self.bounds.probes, self.model.probe(key))
            && !allowed.contains(&probe)
        {
            self.verdict.beyond.insert(probe);
        }
    }

    /// As `compare`; `Corruption` counts for the spread.
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
        self.verdict.every |= self.bounds.every;
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
            self.passed_by(key);
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

    /// A scan in one direction against the rows that it should show, in its order.
    pub fn scan<E: Shown>(
        &mut self,
        what: &str,
        want: &[&Row],
        mut step: impl FnMut(usize) -> Result<Option<E>, Error>,
    ) {
        let (mut at, mut gap) = (0, false);
        for number in 0..want.len() * 4 + 64 {
            match step(number) {
                Err(error) => {
                    self.refused(&error, what);
                    gap = true;
                }
                Ok(None) => {
                    for row in &want[at..] {
                        if !gap {
                            self.wrong(|| format!("{what} ends before {}", row.key.escape_ascii()));
                        }
                        self.passed_by(&row.key);
                    }
                    return;
                }
                Ok(Some(entry)) => {
                    let same = |row: &&Row| row.key == entry.key() && row.sequence == entry.sequence();
                    while gap && at < want.len() && !same(&want[at]) {
                        self.passed_by(&want[at].key);
                        at += 1;
                    }
                    match want.get(at) {
                        Some(row) => self.shows(&entry, row, what),
                        None => self.wrong(|| format!("{what} shows {}", entry.key().escape_ascii())),
                    }
                    if self.verdict.wrong.is_some() {
                        return;
                    }
                    (at, gap) = (at + 1, false);
                }
            }
        }
        self.verdict.endless.get_or_insert_with(|| what.to_string());
    }

    /// A whole scan there and back, with a cursor that stands nowhere.
    pub fn there_and_back<E: Shown>(
        &mut self,
        names: [&str; 2],
        rows: &[&Row],
        mut step: impl FnMut(Step) -> Result<Option<E>, Error>,
    ) {
        self.scan(names[0], rows, |n| step(if n == 0 { Step::First } else { Step::Next }));
        let reversed: Vec<&Row> = rows.iter().rev().copied().collect();
        self.scan(names[1], &reversed, |n| step(if n == 0 { Step::Last } else { Step::Prev }));
    }

    pub fn scans(&mut self, table: &TableReader, rows: &[&Row]) {
        let mut cursor = table.cursor();
        self.there_and_back(["raw scan", "reverse raw scan"], rows, |step| {
            step.of(&mut cursor)?;
            cursor.table_entry()
        });
    }

    pub fn resolved_scans(&mut self, table: &TableReader) {
        let model = self.model;
        for (snapshot, shown) in model.snapshots.iter().zip(&model.resolved) {
            let rows: Vec<&Row> = shown.iter().map(|row| &model.rows[*row]).collect();
            let mut cursor = table.cursor_at(*snapshot);
            self.there_and_back(["resolved scan", "reverse resolved scan"], &rows, |step| {
                step.of(&mut cursor)?;
                cursor.table_entry()
            });
        }
    }

    /// A cursor in prefix mode asks the filter of prefixes.
    fn prefix_scan(&mut self, table: &TableReader, prefix: &[u8]) {
        let all = &self.model.rows;
        let from = all.partition_point(|row| row.key.as_slice() < prefix);
        let rows: Vec<&Row> = all[from..].iter().take_while(|row| row.key.starts_with(prefix)).collect();
        let mut cursor = table.cursor().with_prefix(prefix);
        self.scan("prefix scan", &rows, |n| {
            if n == 0 {
                cursor.first()?
            } else {
                cursor.next()?
            };
            cursor.table_entry()
        });
    }

    pub fn seeks(&mut self, table: &TableReader) {
        if self.model.shape.aids != Aids::Nothing {
            let keys = self.model.probes.iter().filter(|key| key.len() >= PREFIX_BYTES);
            for key in keys.step_by(PREFIX_EVERY) {
                self.prefix_scan(table, &key[..PREFIX_BYTES]);
            }
        }
        let model = self.model;
        let (mut raw, mut resolved) = (table.cursor(), table.cursor_at(model.snapshots[1]));
        let shown = &model.resolved[1];
        for (probe, key) in model.probes.iter().enumerate() {
            let behind = model.rows.partition_point(|row| row.key < *key);
            let moved = raw.seek(key);
            self.sought(probe, "seek", moved, model.rows.get(behind));
            let shown_behind = shown.get(shown.partition_point(|row| model.rows[*row].key < *key));
            let moved = resolved.seek(key);
            self.sought(probe, "resolved seek", moved, shown_behind.map(|row| &model.rows[*row]));
            let last = model.rows.partition_point(|row| row.key <= *key).checked_sub(1);
            let moved = raw.seek_for_prev(key);
            self.sought(probe, "seek_for_prev", moved, last.map(|last| &model.rows[last]));
            let shown_before = shown.partition_point(|row| model.rows[*row].key <= *key).checked_sub(1);
            let shown_before = shown_before.map(|place| shown[place]);
            let moved = resolved.seek_for_prev(key);
            self.sought(probe, "resolved seek_for_prev", moved, shown_before.map(|row| &model.rows[row]));
        }
    }

    fn sought(
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
