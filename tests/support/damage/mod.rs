//! Damage on purpose: a model of a table, a plan of faults, and a trial of all calls on a table
//! after a fault.
//!
//! ```text
//!   Shape -> Model (rows, tombstones, probes, expected answers)   once
//!         -> table, the same bytes every time                     for each fault
//!         -> cursors and ranges parked, and flushes pulled, here and there
//!         -> FaultInjector, Map, Past: a fault                             -> Bounds: its possible effects
//!   Trial: every call of `calls.rs` on parked objects and on the table; then writes, every read again, freeze, flush,
//!          scrub, salvage                                         -> Verdict
//! ```
//! `Case::turn` chooses patterns of ends, windows, snapshots and ways of writing, so that they
//! differ between faults. The campaign, the suite and the fuzz target include this folder by path.
#![allow(dead_code, unreachable_pub, reason = "each user takes what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

pub mod census;
pub mod plan;
pub mod reads;
pub mod trial;
pub mod walk;

use model::{Model, Row};
use paranoid_memtable::fault::{FaultInjector, Past};
use paranoid_memtable::{Error, ImmutableMemTable, MemTable};
use plan::{Area, Bounds, Kind};
use trial::{Demand, Pulled, Trial, Verdict};
use walk::Parked;

/// The time at which a table is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frozen {
    /// After the damage and the writes that follow it.
    After,
    /// Before the damage.
    Before,
}

/// Whether earlier values of memory are noted while a table is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    Forgotten,
    Noted,
}

/// The way in which one fault is tried.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub frozen: Frozen,
    pub history: History,
    /// Selects what is tried in turns.
    pub turn: u64,
}

/// Approximate number of times that memory is recorded while a table is filled.
const LOOKS: usize = 128;

fn look(table: &MemTable, past: &mut Past) -> Result<(), Error> {
    // SAFETY: this thread alone uses the table.
    #[expect(unsafe_code, reason = "looks through the fault injector")]
    unsafe {
        FaultInjector::look(table, past)
    }
}

impl Case {
    /// Writes all rows of the model.
    fn fill(self, model: &Model, table: &MemTable, past: &mut Past) -> Result<(), Error> {
        let every = model.writes.len().div_ceil(LOOKS).max(1);
        for (number, row) in model.writes.iter().enumerate() {
            if self.history == History::Noted && number.is_multiple_of(every) {
                look(table, past)?;
            }
            table.insert(row.sequence, row.kind, &row.key, &row.value)?;
        }
        if self.history == History::Noted {
            look(table, past)
        } else {
            Ok(())
        }
    }
}

/// Makes the table, breaks it, and makes every call on it, in turn 0.
pub fn run_fault(
    model: &Model,
    frozen: Frozen,
    strike: impl FnOnce(&mut FaultInjector<'_>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    run_fault_on(model, frozen, &model.table()?, strike)
}

/// Damages a table that the caller made, and makes every call on it.
pub fn run_fault_on(
    model: &Model,
    frozen: Frozen,
    table: &MemTable,
    strike: impl FnOnce(&mut FaultInjector<'_>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    let case = Case {
        frozen,
        history: History::Forgotten,
        turn: 0,
    };
    case.run(model, table, Past::default(), |injector, _| {
        strike(injector)
    })
}

/// Makes the table, breaks it, and makes every call on it.
pub fn run_case(
    model: &Model,
    case: Case,
    strike: impl FnOnce(&mut FaultInjector<'_>, &Past) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    let (table, mut past) = (model.empty_table()?, Past::default());
    case.fill(model, &table, &mut past)?;
    case.run(model, &table, past, strike)
}

impl Case {
    /// Parks cursors before the freeze or after it, freezes, breaks the table, and makes every call
    /// on it.
    fn run(
        self,
        model: &Model,
        table: &MemTable,
        mut past: Past,
        strike: impl FnOnce(&mut FaultInjector<'_>, &Past) -> (Area, Kind),
    ) -> Result<(Area, Kind, Verdict), Error> {
        let park = || Parked::new(table, model, self.turn / 2);
        let early = self.turn.is_multiple_of(4).then(park).transpose()?;
        let frozen = if self.frozen == Frozen::Before {
            Some(table.freeze()?)
        } else {
            None
        };
        if self.history == History::Noted && frozen.is_some() {
            look(table, &mut past)?;
        }
        let parked = early.map_or_else(park, Ok)?;
        let pulled = frozen
            .as_ref()
            .map(|frozen| Pulled::new(frozen, model, self.turn))
            .transpose()?;
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from its memory:
        // parked cursors and pulled flushes hold offsets.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(table) }?;
        let (area, kind) = strike(&mut injector, &past);
        let mut trial = Trial::new(model, Bounds::of(model, &injector, kind), self.turn);
        drop(injector);
        if let Some(pulled) = pulled {
            trial.pulled(pulled);
        }
        let verdict = match &frozen {
            Some(frozen) => of_frozen(trial, table, frozen, parked),
            None => of_mutable(trial, table, parked),
        };
        Ok((area, kind, verdict))
    }
}

/// Makes every read, by every call.
fn reads(trial: &mut Trial<'_>, table: &MemTable, parked: Parked<'_>) {
    let model = trial.model();
    let rows: Vec<&Row> = model.rows.iter().collect();
    trial.parked(parked);
    let demand = if trial.bounds().must_find {
        Demand::Finding
    } else {
        Demand::Anything
    };
    trial.gets(table);
    trial.scrub(table, demand);
    trial.scans(table, &rows);
    trial.resolved_scans(table);
    trial.seeks(table);
    trial.prefix_scans(table);
    trial.bounded_scans(table);
    trial.ranges(table);
    trial.sought_ranges(table);
    trial.seen_tombstones(table);
    trial.further_reads(table);
    if trial.turn().is_multiple_of(4) {
        trial.accounts(table);
        trial.marks(table);
        trial.fork(table);
    }
}

fn of_frozen(
    mut trial: Trial<'_>,
    table: &MemTable,
    frozen: &ImmutableMemTable,
    parked: Parked<'_>,
) -> Verdict {
    reads(&mut trial, table, parked);
    trial.flush(frozen);
    trial.salvage(frozen);
    trial.told(frozen);
    trial.verdict
}

fn of_mutable(mut trial: Trial<'_>, table: &MemTable, parked: Parked<'_>) -> Verdict {
    reads(&mut trial, table, parked);
    let first = trial.model().newest() + 1;
    let more = trial.writes(table, first);
    after_writes(trial, table, more)
}

/// Reads everything once more after these writes, and ends the table's life.
pub fn after_writes(trial: Trial<'_>, table: &MemTable, more: Vec<Row>) -> Verdict {
    let grown = trial.model().after(more);
    let rows: Vec<&Row> = grown.rows.iter().collect();
    let mut trial = trial.after(&grown);
    trial.gets(table);
    trial.scans(table, &rows);
    trial.resolved_scans(table);
    trial.ranges(table);
    if let Some(frozen) = trial.freeze(table) {
        trial.gets(&frozen);
        trial.scans(&frozen, &rows);
        trial.flush(&frozen);
        trial.scrub(&frozen, Demand::Anything);
        trial.salvage(&frozen);
    }
    trial.verdict
}

/// The content of a table, and the right answer of every read.
pub mod model {
    use std::collections::BTreeSet;

    use paranoid_memtable::fault::{FaultInjector, Part, Region};
    use paranoid_memtable::filter::FixedPrefix;
    use paranoid_memtable::read::{Base, DeletedBy, Operands};
    use paranoid_memtable::{
        Directory, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions, ValueRef,
        WriteBatch,
    };

    use super::plan::Rng;

    /// The parts of a table beside its list.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Accelerators {
        Nothing,
        /// Filters of whole keys and of prefixes.
        Filters,
        /// Only a directory.
        Directory,
        /// Only a filter of prefixes, which point reads use.
        Prefixes,
        /// Both filters and a directory.
        All,
        /// A filter of whole keys that grows, from 64 keys on in two parts.
        Growing,
    }

    /// Bytes of prefixes in the filter.
    pub const PREFIX_BYTES: usize = 8;

    /// Makes two writes at once, so that the table has as many writer shards as one with several
    /// writers. Their control words are damaged too.
    fn with_many_homes(table: &MemTable) -> Result<(), Error> {
        let nothing = WriteBatch::new();
        let (mut first, mut second) = (table.prepare(&nothing)?, table.prepare(&nothing)?);
        let inside = table.reserve(&mut first)?;
        table.reserve(&mut second).map(drop)?;
        drop(inside);
        Ok(())
    }

    /// The sizes of a table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Size {
        /// Bytes of the write buffer.
        pub buffer: u64,
        /// Bytes of a filter.
        pub filter: u64,
        /// Factor by which values are longer.
        pub values: usize,
    }

    impl Size {
        /// The smallest write buffer, and two lines per filter.
        pub const SMALL: Size = Size {
            buffer: 64 << 10,
            filter: 248,
            values: 1,
        };
    }

    /// The keys of a table. All are in the order of their numbers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Keys {
        /// Numbers in decimal, some with a tail; one to three versions each. Number 0 is empty.
        Numbered,
        /// As `Numbered`, with twelve versions each.
        Versions,
        /// Bytes that share no beginning.
        Binary,
        /// Paths, whose neighbours differ in many places: pages of the directory choose bytes.
        Paths,
        /// Up to 8 KiB.
        Long,
    }

    impl Keys {
        pub fn name(self, number: usize) -> Vec<u8> {
            match (self, number) {
                (Keys::Binary, n) => {
                    let rest = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12;
                    ((n as u64) << 52 | rest).to_be_bytes().to_vec()
                }
                (Keys::Paths, n) => format!(
                    "tenant-{:02}/a-folder-{}/objects/{}/part-{}.of-eight",
                    n / 256,
                    n / 64 % 4,
                    n / 8 % 8,
                    n % 8
                )
                .into_bytes(),
                (Keys::Long, n) => {
                    let tail = [0, 40, 140, 240, 1000, 4000, 8000][n % 7];
                    [format!("key{n:05}").into_bytes(), vec![b'x'; tail]].concat()
                }
                (Keys::Numbered | Keys::Versions, 0) => Vec::new(),
                (Keys::Numbered | Keys::Versions, n) if n.is_multiple_of(5) => {
                    format!("key{n:05}-with-a-longer-tail").into_bytes()
                }
                (Keys::Numbered | Keys::Versions, n) => format!("key{n:05}").into_bytes(),
            }
        }

        /// How many versions a key may have: one of these numbers, at random.
        fn versions(self) -> [u8; 4] {
            match self {
                Keys::Versions => [12; 4],
                _ => [1, 1, 2, 3],
            }
        }
    }

    /// The options of the table of a trial.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Shape {
        pub protection: u8,
        pub on_seek: bool,
        pub order_checks: bool,
        /// Under `Replace` a third of the entries are overwritten, some of them several times.
        pub duplicates: DuplicatePolicy,
        pub accelerators: Accelerators,
        pub keys: Keys,
        pub entries: usize,
        pub size: Size,
        pub seed: u64,
    }

    impl Shape {
        /// A skiplist that protects its entries with 8 bytes each, without filters.
        pub fn plain(entries: usize, seed: u64) -> Shape {
            Shape {
                protection: 8,
                on_seek: false,
                order_checks: false,
                duplicates: DuplicatePolicy::Reject,
                accelerators: Accelerators::Nothing,
                keys: Keys::Numbered,
                entries,
                size: Size::SMALL,
                seed,
            }
        }
    }

    /// A stored entry.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Row {
        pub key: Vec<u8>,
        pub sequence: u64,
        pub kind: Kind,
        pub value: Vec<u8>,
    }

    /// The right answer of a get.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Expected {
        Value(u64, Vec<u8>),
        Deleted(u64, DeletedBy),
        /// Operands, newest first, and the base: a value, deleted (`Some(None)`), or below
        /// (`None`).
        Merge(Vec<(u64, Vec<u8>)>, Option<Option<Vec<u8>>>),
        NotFound,
    }

    /// The whole content of a table.
    #[derive(Debug, Clone)]
    pub struct Model {
        pub shape: Shape,
        /// In the order of inserts, range tombstones included.
        pub writes: Vec<Row>,
        /// In table order, without entries that were overwritten.
        pub rows: Vec<Row>,
        pub tombstones: Vec<Row>,
        /// Present and absent keys in order. Absent keys are between present ones.
        pub probes: Vec<Vec<u8>>,
        pub snapshots: Vec<u64>,
        /// By snapshot, then by probe.
        pub expected: Vec<Vec<Expected>>,
        /// By snapshot: indexes of the rows that a resolved scan shows.
        pub resolved: Vec<Vec<usize>>,
    }

    pub fn order(left: &Row, right: &Row) -> std::cmp::Ordering {
        left.key
            .cmp(&right.key)
            .then(right.sequence.cmp(&left.sequence))
    }

    fn writes_of(shape: &Shape) -> Vec<Row> {
        let mut rng = Rng::new(shape.seed);
        let mut writes = Vec::new();
        let mut group = 0;
        while writes.len() < shape.entries {
            let versions = shape.keys.versions()[rng.below(4)];
            for version in 0..versions {
                let kind = match rng.below(10) {
                    0 => Kind::DELETE,
                    1 => Kind::SINGLE_DELETE,
                    2 | 3 => Kind::MERGE,
                    4 if version == 1 => Kind::custom_delete(1),
                    4 => Kind::custom(version),
                    _ => Kind::PUT,
                };
                let len = if kind.is_point_delete() {
                    0
                } else {
                    [0, 3, 24, 61, 100][rng.below(5)] * shape.size.values
                };
                let value = (0..len).map(|_| rng.next() as u8).collect();
                writes.push(Row {
                    key: shape.keys.name(group * 2),
                    sequence: 0,
                    kind,
                    value,
                });
            }
            group += 1;
        }
        for _ in 0..3 + shape.entries / 100 {
            let start = rng.below(group);
            let end = start + 1 + rng.below(group / 6 + 2);
            let (key, value) = (shape.keys.name(start * 2 + 1), shape.keys.name(end * 2 + 1));
            writes.push(Row {
                key,
                sequence: 0,
                kind: Kind::RANGE_DELETE,
                value,
            });
        }
        rng.shuffle(&mut writes);
        for (i, write) in writes.iter_mut().enumerate() {
            write.sequence = 10 + 3 * i as u64;
        }
        if shape.duplicates == DuplicatePolicy::Replace {
            overwrite(&mut writes, &mut rng);
        }
        writes
    }

    /// Later writes of the same keys and sequence numbers: one to three for a third of the entries.
    fn overwrite(writes: &mut Vec<Row>, rng: &mut Rng) {
        let points = writes.iter().filter(|row| row.kind != Kind::RANGE_DELETE);
        for row in points.step_by(3).cloned().collect::<Vec<_>>() {
            for _ in 0..1 + rng.below(3) {
                let first = writes
                    .iter()
                    .position(|write| same_place(write, &row))
                    .unwrap_or(0);
                let place = first + 1 + rng.below(writes.len() - first);
                let value = (0..rng.below(40)).map(|_| rng.next() as u8).collect();
                writes.insert(
                    place,
                    Row {
                        kind: Kind::PUT,
                        value,
                        ..row.clone()
                    },
                );
            }
        }
    }

    fn same_place(left: &Row, right: &Row) -> bool {
        left.key == right.key && left.sequence == right.sequence && left.kind != Kind::RANGE_DELETE
    }

    /// Point entries in table order, the last write of each key and sequence number; and the range
    /// tombstones.
    fn sorted(writes: &[Row]) -> (Vec<Row>, Vec<Row>) {
        let (mut tombstones, mut rows): (Vec<Row>, Vec<Row>) = writes
            .iter()
            .rev()
            .cloned()
            .partition(|row| row.kind == Kind::RANGE_DELETE);
        rows.sort_by(order);
        rows.dedup_by(|later, first| same_place(later, first));
        tombstones.sort_by(order);
        (rows, tombstones)
    }

    impl Model {
        pub fn new(shape: Shape) -> Model {
            let writes = writes_of(&shape);
            let groups = writes
                .iter()
                .filter(|row| row.kind != Kind::RANGE_DELETE)
                .map(|row| row.key.clone());
            let groups = groups.collect::<BTreeSet<_>>().len();
            let probes: Vec<Vec<u8>> = (0..2 * groups)
                .map(|number| shape.keys.name(number))
                .collect();
            let newest = writes.iter().map(|row| row.sequence).max().unwrap_or(0);
            Model::of(
                shape,
                writes,
                probes,
                vec![newest / 3, newest * 2 / 3, u64::MAX],
            )
        }

        fn of(shape: Shape, writes: Vec<Row>, probes: Vec<Vec<u8>>, snapshots: Vec<u64>) -> Model {
            let (rows, tombstones) = sorted(&writes);
            let (expected, resolved) = (Vec::new(), Vec::new());
            let mut model = Model {
                shape,
                writes,
                rows,
                tombstones,
                probes,
                snapshots,
                expected,
                resolved,
            };
            for snapshot in model.snapshots.clone() {
                let answers: Vec<Expected> = model
                    .probes
                    .iter()
                    .map(|key| model.answer(key, snapshot))
                    .collect();
                model.expected.push(answers);
                model.resolved.push(model.shown(snapshot));
            }
            model
        }

        /// The model after more writes.
        #[must_use]
        pub fn after(&self, more: Vec<Row>) -> Model {
            let snapshots = vec![self.newest(), u64::MAX];
            let mut writes = self.writes.clone();
            writes.extend(more);
            Model::of(self.shape, writes, self.probes.clone(), snapshots)
        }

        /// The model with the sequence numbers of a set, which are 1, 2, 3 ..
        #[must_use]
        pub fn numbered(&self) -> Model {
            let mut writes = self.writes.clone();
            for (write, sequence) in writes.iter_mut().zip(1..) {
                write.sequence = sequence;
            }
            let newest = writes.len() as u64;
            Model::of(
                self.shape,
                writes,
                self.probes.clone(),
                vec![newest / 3, newest * 2 / 3, u64::MAX],
            )
        }

        /// The model for readers beside writers: no snapshot sees what is written later.
        #[must_use]
        pub fn beside_writers(&self) -> Model {
            let newest = self.newest();
            Model::of(
                self.shape,
                self.writes.clone(),
                self.probes.clone(),
                vec![newest / 3, newest * 2 / 3, newest],
            )
        }

        /// The largest sequence number.
        pub fn newest(&self) -> u64 {
            self.writes
                .iter()
                .map(|row| row.sequence)
                .max()
                .unwrap_or(0)
        }

        /// The rows that a scan at one of the snapshots shows.
        pub fn visible(&self, snapshot: usize) -> Vec<&Row> {
            self.resolved[snapshot]
                .iter()
                .map(|row| &self.rows[*row])
                .collect()
        }

        /// The rows that a reader at the newest sequence number or at one of `snapshots` could
        /// need. A version is left out if a newer one is between it and every reader. The base of
        /// operands, single deletes, and all versions below one, stay.
        pub fn needed(&self, snapshots: &[u64]) -> Vec<&Row> {
            let readers: Vec<u64> = snapshots.iter().copied().chain([u64::MAX]).collect();
            let needs = |row: &&Row| {
                let newer = self
                    .versions(&row.key)
                    .iter()
                    .take_while(|newer| newer.sequence > row.sequence);
                let single = newer
                    .clone()
                    .chain([*row])
                    .any(|newer| newer.kind == Kind::SINGLE_DELETE);
                let hides = |newer: &Row, reader: u64| {
                    newer.kind != Kind::MERGE && newer.sequence <= reader
                };
                let reads = |reader: &u64| {
                    row.sequence <= *reader && !newer.clone().any(|newer| hides(newer, *reader))
                };
                single || readers.iter().any(reads)
            };
            self.rows.iter().filter(needs).collect()
        }

        pub fn cover(&self, key: &[u8], snapshot: u64) -> Option<u64> {
            let covers = |row: &&Row| {
                row.sequence <= snapshot && row.key.as_slice() <= key && key < row.value.as_slice()
            };
            self.tombstones
                .iter()
                .filter(covers)
                .map(|row| row.sequence)
                .max()
        }

        fn answer(&self, key: &[u8], snapshot: u64) -> Expected {
            let cover = self.cover(key, snapshot);
            let versions: Vec<&Row> = self
                .versions(key)
                .iter()
                .filter(|row| row.sequence <= snapshot)
                .collect();
            let Some(newest) = versions
                .first()
                .filter(|row| cover.is_none_or(|cover| cover < row.sequence))
            else {
                return cover.map_or(Expected::NotFound, |cover| {
                    Expected::Deleted(cover, DeletedBy::Range)
                });
            };
            match newest.kind {
                Kind::DELETE => Expected::Deleted(newest.sequence, DeletedBy::Point),
                Kind::SINGLE_DELETE => Expected::Deleted(newest.sequence, DeletedBy::Single),
                Kind::MERGE => self.chain(&versions, cover),
                kind if kind.is_point_delete() => {
                    Expected::Deleted(newest.sequence, DeletedBy::Custom(kind))
                }
                _ => Expected::Value(newest.sequence, newest.value.clone()),
            }
        }

        fn chain(&self, versions: &[&Row], cover: Option<u64>) -> Expected {
            let mut operands = Vec::new();
            for row in versions {
                if cover.is_some_and(|cover| cover > row.sequence) {
                    return Expected::Merge(operands, Some(None));
                }
                match row.kind {
                    Kind::MERGE => operands.push((row.sequence, row.value.clone())),
                    kind if kind.is_point_delete() => return Expected::Merge(operands, Some(None)),
                    _ => return Expected::Merge(operands, Some(Some(row.value.clone()))),
                }
            }
            // A tombstone below the last operand is a base too.
            Expected::Merge(operands, cover.map(|_| None))
        }

        fn shown(&self, snapshot: u64) -> Vec<usize> {
            let mut shown = Vec::new();
            let mut last: Option<&[u8]> = None;
            for (i, row) in self
                .rows
                .iter()
                .enumerate()
                .filter(|(_, row)| row.sequence <= snapshot)
            {
                if last == Some(&row.key) {
                    continue;
                }
                last = Some(&row.key);
                let covered = self
                    .cover(&row.key, snapshot)
                    .is_some_and(|cover| cover > row.sequence);
                if !covered && !row.kind.is_point_delete() {
                    shown.push(i);
                }
            }
            shown
        }

        /// Makes a table with all writes of the model. All such tables are equal.
        pub fn table(&self) -> Result<MemTable, Error> {
            self.table_watched(|_, _| ())
        }

        /// Makes a [`table`](Self::table), and calls `watch` with it and the write's number before
        /// each write.
        pub fn table_watched(
            &self,
            mut watch: impl FnMut(usize, &MemTable),
        ) -> Result<MemTable, Error> {
            let table = self.empty_table()?;
            for (number, row) in self.writes.iter().enumerate() {
                watch(number, &table);
                table.insert(row.sequence, row.kind, &row.key, &row.value)?;
            }
            Ok(table)
        }

        /// An empty table of this shape.
        pub fn empty_table(&self) -> Result<MemTable, Error> {
            let table = MemTable::new(self.options()?);
            table.and_then(|table| with_many_homes(&table).map(|()| table))
        }

        pub fn options(&self) -> Result<MemTableOptions, Error> {
            let mut options = MemTableOptions::builder()
                .write_buffer_size(self.shape.size.buffer)
                .protection_bytes(self.shape.protection)
                .checksum_on_seek(self.shape.on_seek && self.shape.protection > 0)
                .order_checks(self.shape.order_checks)
                .duplicates(self.shape.duplicates)
                .seed(self.shape.seed);
            let share = self.shape.size.filter as f64 / self.shape.size.buffer as f64;
            let has = |kinds: &[Accelerators]| kinds.contains(&self.shape.accelerators);
            if has(&[Accelerators::Filters, Accelerators::All]) {
                options = options.whole_key_filter(share);
            }
            if has(&[
                Accelerators::Filters,
                Accelerators::Prefixes,
                Accelerators::All,
            ]) {
                options = options.prefix_filter(FixedPrefix::new(PREFIX_BYTES), share);
            }
            if has(&[Accelerators::Growing]) {
                options = options
                    .write_buffer_size(10 << 10)
                    .whole_key_filter_bits(64);
            }
            let has_directory = has(&[Accelerators::Directory, Accelerators::All]);
            options
                .directory(if has_directory {
                    Directory::On
                } else {
                    Directory::Off
                })
                .build()
        }

        /// Whether a get reads past the last version of a key, because no version is visible, or
        /// because all visible ones are operands.
        pub fn runs_out(&self, key: &[u8], snapshot: u64) -> bool {
            self.versions(key)
                .iter()
                .filter(|row| row.sequence <= snapshot)
                .all(|row| row.kind == Kind::MERGE)
        }

        /// All versions of a key, newest first.
        pub fn versions(&self, key: &[u8]) -> &[Row] {
            let from = self.rows.partition_point(|row| row.key.as_slice() < key);
            let len = self.rows[from..].partition_point(|row| row.key == key);
            &self.rows[from..from + len]
        }

        /// The index of an entry among the rows.
        pub fn row(&self, key: &[u8], sequence: u64) -> Option<usize> {
            let here = |row: &Row| {
                row.key
                    .as_slice()
                    .cmp(key)
                    .then(sequence.cmp(&row.sequence))
            };
            self.rows.binary_search_by(here).ok()
        }

        /// Number of levels on which an entry is linked.
        pub fn height(&self, injector: &FaultInjector<'_>, row: usize) -> u32 {
            let row = &self.rows[row];
            let own = injector.pieces().iter().filter(|piece| {
                piece.part == Part::Points
                    && piece.region == Region::Link
                    && piece.owner.as_ref().is_some_and(|owner| {
                        *owner.key == *row.key && owner.sequence == row.sequence
                    })
            });
            own.map(|piece| piece.level + 1).max().unwrap_or(0)
        }

        /// The index of a key among the probes.
        pub fn probe(&self, key: &[u8]) -> Option<usize> {
            self.probes
                .binary_search_by(|probe| probe.as_slice().cmp(key))
                .ok()
        }
    }

    /// A lookup as plain data, after all calls of its methods.
    pub fn seen(lookup: &Lookup<ValueRef<'_>, Operands<'_>>) -> Result<Expected, Error> {
        Ok(match lookup {
            Lookup::Value(value) => Expected::Value(value.sequence(), value.to_pinned().to_vec()),
            Lookup::Deleted { sequence, by } => Expected::Deleted(*sequence, *by),
            Lookup::NotFound => Expected::NotFound,
            Lookup::Merge(operands) => {
                let base = match operands.base()? {
                    Base::Value(value) => Some(Some(value.to_vec())),
                    Base::Deleted => Some(None),
                    Base::Below => None,
                };
                let operands: Result<Vec<_>, Error> = operands
                    .clone()
                    .map(|operand| {
                        operand.map(|operand| (operand.sequence, operand.value.to_vec()))
                    })
                    .collect();
                Expected::Merge(operands?, base)
            }
        })
    }
}

/// Stretches of memory that are overwritten, cleared, filled or copied, in a table that is made
/// once and restored after each fault.
///
/// ```text
///   for each number:   strike 8 to 4 096 bytes  ->  gets at every snapshot, and some of the other reads in turn  ->  undo
///   now and then:      the undamaged table must be silent
/// ```
/// Damage to filters and directory must leave every answer right.
pub mod stretch {
    use std::collections::BTreeSet;
    use std::ops::Range;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use paranoid_memtable::fault::{FaultInjector, Past};
    use paranoid_memtable::{Error, ImmutableMemTable, MemTable};

    use super::Frozen;
    use super::model::{Model, Row};
    use super::plan::{Area, Bounds, Kind, Map, Rng};
    use super::trial::{Demand, Trial, Verdict};

    /// The undamaged table is checked once in this number of faults.
    const CONTROL: u64 = 500;

    /// The result of one fault. `None`: a read panicked.
    pub type Outcome = (Area, Kind, Option<Verdict>);

    /// Runs the faults with these numbers on one table, and passes each outcome to `report`.
    pub fn each_stretch(
        model: &Model,
        frozen: Frozen,
        numbers: Range<u64>,
        mut report: impl FnMut(u64, Outcome),
    ) -> Result<(), Error> {
        let table = model.table()?;
        let frozen = if frozen == Frozen::Before {
            Some(table.freeze()?)
        } else {
            None
        };
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from it between two
        // reads.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }?;
        let map = Map::of(&injector, &Kind::STRETCHES);
        let is_accelerator = |cell: &usize| map.areas[map.cells[*cell].0].0.is_accelerator();
        let accelerators: Vec<usize> = (0..map.cells.len()).filter(is_accelerator).collect();
        for number in numbers {
            let mut rng = Rng::new(model.shape.seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
            // A quarter of the faults hits filters and directory.
            let cell = match rng.below(4) {
                0 => accelerators[rng.below(accelerators.len())],
                _ => rng.below(map.cells.len()),
            };
            let (area, kind) = map.strike_here(&mut injector, &Past::default(), cell, &mut rng);
            let trial = Trial::new(model, bounds(&injector), number);
            let tried = AssertUnwindSafe(|| reads(trial, &table, frozen.as_ref()));
            let mut verdict = catch_unwind(tried).ok();
            injector.undo();
            if let Some(verdict) = verdict.as_mut().filter(|_| number.is_multiple_of(CONTROL)) {
                let found = reads(
                    Trial::new(model, Bounds::default(), number),
                    &table,
                    frozen.as_ref(),
                );
                if found.detected || found.wrong.is_some() {
                    verdict
                        .wrong
                        .get_or_insert_with(|| format!("the table that was put back: {found:?}"));
                }
            }
            report(number, (area, kind, verdict));
        }
        Ok(())
    }

    /// A stretch may affect everything, unless no answer rests on the memory that it hit.
    fn bounds(injector: &FaultInjector<'_>) -> Bounds {
        let changed = injector.changed();
        let harmless = |piece: &usize| Area::of(&injector.pieces()[*piece]).is_accelerator();
        let probes = changed.keys().all(harmless).then(BTreeSet::new);
        Bounds {
            probes,
            ..Bounds::default()
        }
    }

    fn reads(
        mut trial: Trial<'_>,
        table: &MemTable,
        frozen: Option<&ImmutableMemTable>,
    ) -> Verdict {
        let model = trial.model();
        trial.gets(table);
        match trial.turn() % 8 {
            0 => trial.scans(table, &model.rows.iter().collect::<Vec<&Row>>()),
            1 => trial.resolved_scans(table),
            2 => trial.seeks(table),
            3 => trial.prefix_scans(table),
            4 => trial.ranges(table),
            5 => trial.further_reads(table),
            6 => trial.seen_tombstones(table),
            _ => match frozen {
                Some(frozen) => trial.flush(frozen),
                None => trial.scrub(table, Demand::Anything),
            },
        }
        trial.verdict
    }
}
