//! A case: the options of a table and operations on it, a pure function of a seed, printed as short
//! text. It runs on a table and on the model, and differences are reported. A case that failed is
//! shrunk.

use std::panic::{AssertUnwindSafe, catch_unwind};

use paranoid_memtable::integrity::Protected;
use paranoid_memtable::{
    Displaced, DuplicatePolicy, Error, Inserted, Kind, MemTable, MemTableOptions,
    MemTableOptionsBuilder, ParanoidOptions, TableReader, Writer,
};

use super::model::{
    Model, Outcome, Row, Verdict, answered, check_counts, check_get, check_multi_get,
    check_tombstones, same,
};
use super::orders::Order;
use super::rng::Rng;
use super::under;
use super::walks::{check_descending, check_range, check_stats, check_versions, check_walk};

/// The options of a table.
#[derive(Debug, Clone)]
pub struct Setup {
    pub policy: DuplicatePolicy,
    pub protection_bytes: u8,
    pub checksum_on_seek: bool,
    pub order_checks: bool,
    pub seed: u64,
}

impl Setup {
    pub fn options(&self) -> MemTableOptionsBuilder {
        let paranoid = ParanoidOptions::builder()
            .protection_bytes(self.protection_bytes)
            .checksum_on_seek(self.checksum_on_seek)
            .order_checks(self.order_checks)
            .build()
            .unwrap();
        MemTableOptions::builder()
            .duplicates(self.policy)
            .paranoid(paranoid)
            .write_buffer_size(64 << 10)
            .seed(self.seed)
    }
}

/// A bound of a range: 0 unbounded, 1 included, 2 excluded.
pub type End = (u8, Vec<u8>);

/// One move of a cursor.
#[derive(Debug, Clone)]
pub enum Move {
    Seek(Vec<u8>),
    SeekVersion(Vec<u8>, u64),
    SeekForPrev(Vec<u8>),
    First,
    Last,
    Next,
    Prev,
}

/// The way in which a cursor holds its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Borrowed,
    Owned,
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Op {
    /// Writes through the table (0), one of two writers, or in slices (3).
    Write(Row, u8),
    /// Calls get, get_entry and get_into.
    Get(Vec<u8>, u64),
    MultiGet(Vec<Vec<u8>>, u64),
    /// A cursor over every version (no snapshot) or over the entries that a snapshot sees.
    Walk {
        snapshot: Option<u64>,
        bounds: Option<(End, End)>,
        hold: Hold,
        moves: Vec<Move>,
    },
    /// A range from both ends; the bits of the number choose the end that moves.
    Range {
        snapshot: Option<u64>,
        start: End,
        end: End,
        ends: u64,
    },
    /// Positions with sequence numbers.
    Versions {
        start: (u8, Vec<u8>, u64),
        end: (u8, Vec<u8>, u64),
        ends: u64,
    },
    Descending(End, End),
    Stats(End, End),
}

/// A table and the operations on it.
#[derive(Debug, Clone)]
pub struct Case {
    pub setup: Setup,
    pub ops: Vec<Op>,
}

impl Case {
    /// A short text of the whole case.
    pub fn text(&self) -> String {
        let mut text = format!("{:?}\n", self.setup);
        for op in &self.ops {
            text += &format!("  {op:?}\n");
        }
        text
    }
}

/// The keys of a case.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// One of a few letters, in both cases.
    Letters(u64),
    /// Up to this many bytes, each one of three values.
    Short(u64),
    /// Any bytes of any length up to this one.
    Wild(u64),
}

/// The sequence numbers of a case.
#[derive(Debug, Clone, Copy)]
enum Sequences {
    Ascending,
    Few(u64),
    /// All 64 bits, often with extreme values.
    Full,
}

/// Draws the parts of a case.
#[derive(Debug)]
pub struct Dice {
    pub rng: Rng,
    keys: Keys,
    sequences: Sequences,
    value_len_max: u64,
    /// Number of writes in a hundred operations.
    writes: u64,
    range_deletes: u64,
    last: u64,
}

const KINDS: [Kind; 9] = [
    Kind::PUT,
    Kind::PUT,
    Kind::PUT,
    Kind::DELETE,
    Kind::SINGLE_DELETE,
    Kind::MERGE,
    Kind::MERGE,
    Kind::custom(3),
    Kind::custom_delete(3),
];

impl Dice {
    pub fn new(mut rng: Rng) -> Dice {
        let keys = match rng.below(4) {
            0 => Keys::Letters(1 + rng.below(6)),
            1 => Keys::Short(1 + rng.below(3)),
            2 => Keys::Short(6),
            _ => Keys::Wild(40),
        };
        let sequences = match rng.below(3) {
            0 => Sequences::Ascending,
            1 => Sequences::Few(2 + rng.below(60)),
            _ => Sequences::Full,
        };
        let value_len_max = *rng.pick(&[0, 3, 30, 400]);
        let writes = *rng.pick(&[20, 50, 90]);
        let range_deletes = *rng.pick(&[0, 0, 2, 10]);
        Dice {
            rng,
            keys,
            sequences,
            value_len_max,
            writes,
            range_deletes,
            last: 0,
        }
    }

    pub fn key(&mut self) -> Vec<u8> {
        match self.keys {
            Keys::Letters(n) => {
                let letter = b'a' + self.rng.below(n) as u8;
                vec![if self.rng.one_in(2) {
                    letter.to_ascii_uppercase()
                } else {
                    letter
                }]
            }
            Keys::Short(max) => {
                let len = self.rng.below(max + 1);
                (0..len).map(|_| *self.rng.pick(&[0, b'm', 0xff])).collect()
            }
            Keys::Wild(max) => {
                let len = self.rng.below(max + 1) as usize;
                self.rng.bytes(len)
            }
        }
    }

    pub fn sequence(&mut self) -> u64 {
        match self.sequences {
            Sequences::Ascending => {
                self.last += 1;
                self.last
            }
            Sequences::Few(n) => self.rng.below(n),
            Sequences::Full => match self.rng.below(8) {
                0 => 0,
                1 => u64::MAX,
                2 => 1 << 63,
                _ => self.rng.next_u64() >> self.rng.below(64),
            },
        }
    }

    fn snapshot(&mut self) -> u64 {
        match (self.rng.below(4), self.sequences) {
            (0, _) => u64::MAX,
            (_, Sequences::Ascending) => self.rng.below(self.last + 2),
            _ => self.sequence(),
        }
    }

    fn end(&mut self) -> End {
        (self.rng.below(3) as u8, self.key())
    }

    fn write(&mut self) -> Op {
        let (key, sequence) = (self.key(), self.sequence());
        let (kind, value) = if self.rng.below(100) < self.range_deletes {
            (Kind::RANGE_DELETE, self.key())
        } else {
            let kind = *self.rng.pick(&KINDS);
            // A delete with a value is refused, unless its kind is a custom one.
            let bare = [Kind::DELETE, Kind::SINGLE_DELETE].contains(&kind);
            let is_bare = bare && !self.rng.one_in(20);
            let len = if is_bare {
                0
            } else {
                self.rng.below(self.value_len_max + 1)
            };
            (kind, self.rng.bytes(len as usize))
        };
        Op::Write(
            Row {
                key,
                sequence,
                kind,
                value,
            },
            self.rng.below(4) as u8,
        )
    }

    fn step(&mut self) -> Move {
        match self.rng.below(12) {
            0 => Move::Seek(self.key()),
            1 => Move::SeekForPrev(self.key()),
            2 => Move::SeekVersion(self.key(), self.snapshot()),
            3 => Move::First,
            4 => Move::Last,
            5..8 => Move::Prev,
            _ => Move::Next,
        }
    }

    fn walk(&mut self) -> Op {
        let len = 1 + self.rng.below(40);
        Op::Walk {
            snapshot: if self.rng.one_in(2) {
                Some(self.snapshot())
            } else {
                None
            },
            bounds: if self.rng.one_in(3) {
                Some((self.end(), self.end()))
            } else {
                None
            },
            hold: if self.rng.one_in(4) {
                Hold::Owned
            } else {
                Hold::Borrowed
            },
            moves: (0..len).map(|_| self.step()).collect(),
        }
    }

    fn range(&mut self) -> Op {
        let ends = match self.rng.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => self.rng.next_u64(),
        };
        let snapshot = if self.rng.one_in(2) {
            Some(self.snapshot())
        } else {
            None
        };
        Op::Range {
            snapshot,
            start: self.end(),
            end: self.end(),
            ends,
        }
    }

    fn versions(&mut self) -> Op {
        let (start, end) = (self.end(), self.end());
        let (from, to) = (self.snapshot(), self.snapshot());
        Op::Versions {
            start: (start.0, start.1, from),
            end: (end.0, end.1, to),
            ends: self.rng.next_u64(),
        }
    }

    fn read(&mut self) -> Op {
        match self.rng.below(20) {
            0..11 => Op::Get(self.key(), self.snapshot()),
            11 | 12 => {
                let keys = (0..self.rng.below(40)).map(|_| self.key()).collect();
                Op::MultiGet(keys, self.snapshot())
            }
            13..16 => self.walk(),
            16 => self.range(),
            17 => self.versions(),
            18 => Op::Descending(self.end(), self.end()),
            _ => Op::Stats(self.end(), self.end()),
        }
    }

    pub fn op(&mut self) -> Op {
        if self.rng.below(100) < self.writes {
            self.write()
        } else {
            self.read()
        }
    }
}

const POLICIES: [DuplicatePolicy; 2] = [DuplicatePolicy::Reject, DuplicatePolicy::Replace];

/// The case of a seed: at most `ops_max` operations on a table.
pub fn draw(seed: u64, ops_max: u64) -> Case {
    let mut dice = Dice::new(Rng::new(seed));
    let setup = setup(&mut dice);
    let len = if dice.rng.one_in(2) {
        ops_max / 8
    } else {
        ops_max
    };
    let ops = (0..1 + dice.rng.below(len)).map(|_| dice.op()).collect();
    Case { setup, ops }
}

/// The case that a fuzzer's bytes choose: as many operations as there are bytes left, at most
/// `ops_max`.
pub fn choose(bytes: &[u8], ops_max: usize) -> Case {
    let mut dice = Dice::new(Rng::chosen(bytes));
    let setup = setup(&mut dice);
    let mut ops = vec![];
    while dice.rng.chosen_len() > 0 && ops.len() < ops_max {
        ops.push(dice.op());
    }
    Case { setup, ops }
}

fn setup(dice: &mut Dice) -> Setup {
    let protection_bytes = *dice.rng.pick(&[0, 1, 2, 4, 8, 8]);
    let policy = *dice.rng.pick(&POLICIES);
    Setup {
        policy,
        protection_bytes,
        checksum_on_seek: protection_bytes > 0 && dice.rng.one_in(3),
        order_checks: dice.rng.one_in(3),
        seed: dice.rng.next_u64(),
    }
}

fn write(table: &MemTable, writers: &mut [Writer], row: &Row, via: u8) -> Result<Inserted, Error> {
    let (key, value) = (&row.key, &row.value);
    if via == 3 {
        return write_slices(table, &mut writers[0], row);
    }
    if via > 0 {
        return writers[usize::from(via) - 1].insert(row.sequence, row.kind, key, value);
    }
    match row.kind {
        Kind::PUT => table.put(row.sequence, key, value),
        Kind::MERGE => table.merge(row.sequence, key, value),
        Kind::DELETE if value.is_empty() => table.delete(row.sequence, key),
        Kind::RANGE_DELETE => table.delete_range(row.sequence, key, value),
        kind => table.insert(row.sequence, kind, key, value),
    }
}

/// Writes the value in slices, some of them empty: with a digest of the whole, without one, and by
/// a writer.
fn write_slices(table: &MemTable, writer: &mut Writer, row: &Row) -> Result<Inserted, Error> {
    let Row {
        key,
        sequence,
        kind,
        value,
    } = row;
    let (low, high) = (value.len() / 3, value.len() / 2);
    let slices = [&value[..low], &value[low..high], &[], &value[high..]];
    let slices = if value.is_empty() && sequence % 2 == 0 {
        &slices[..0]
    } else {
        &slices[..]
    };
    match sequence % 3 {
        0 => table.insert_parts(*sequence, *kind, key, slices, None),
        1 => {
            let caller_digest = Protected::of(key, value, *kind).with_sequence(*sequence);
            table.insert_parts(*sequence, *kind, key, slices, Some(caller_digest))
        }
        _ => writer.insert_parts(*sequence, *kind, key, slices, None),
    }
}

fn check_write(result: &Result<Inserted, Error>, wanted: &Outcome) -> Verdict {
    let found = match result {
        Ok(Inserted {
            displaced: None, ..
        }) => Outcome::Linked,
        Ok(Inserted {
            displaced: Some(Displaced {
                kind, data_bytes, ..
            }),
            ..
        }) => Outcome::Displaced {
            kind: *kind,
            data_bytes: *data_bytes,
        },
        Err(Error::DuplicateEntry { .. }) => Outcome::Duplicate,
        Err(Error::InvalidArgument(_)) => Outcome::InvalidArgument,
        Err(error) => return Err(format!("write: {error}")),
    };
    same("write", &found, wanted)
}

fn check_read<C: Order>(table: &TableReader, model: &Model<C>, op: &Op) -> Verdict {
    match op {
        Op::Write(..) => Ok(()),
        Op::Get(key, snapshot) => check_get(table, model, key, *snapshot),
        Op::MultiGet(keys, snapshot) => check_multi_get(table, model, keys, *snapshot),
        Op::Walk {
            snapshot,
            bounds,
            hold,
            moves,
        } => check_walk(table, model, (*snapshot, *hold), bounds.as_ref(), moves),
        Op::Range {
            snapshot,
            start,
            end,
            ends,
        } => check_range(table, model, *snapshot, (start, end), *ends),
        Op::Versions { start, end, ends } => check_versions(table, model, start, end, *ends),
        Op::Descending(start, end) => check_descending(table, model, (start, end)),
        Op::Stats(start, end) => check_stats(table, model, (start, end)),
    }
}

/// Compares every entry, and a scan each way.
fn check_all<C: Order>(table: &TableReader, model: &Model<C>) -> Verdict {
    check_counts(table, model)?;
    let all = ((0, vec![]), (0, vec![]));
    for snapshot in [
        None,
        Some(u64::MAX),
        model.counts.sequences.map(|(low, high)| low / 2 + high / 2),
    ] {
        for ends in [0, u64::MAX, 0x5555_5555_5555_5555] {
            check_range(table, model, snapshot, (&all.0, &all.1), ends)?;
        }
    }
    check_descending(table, model, (&all.0, &all.1))?;
    for snapshot in [0, u64::MAX]
        .into_iter()
        .chain(model.counts.sequences.map(|(low, high)| low / 2 + high / 2))
    {
        check_tombstones(table, model, snapshot)?;
    }
    for row in model.raw() {
        check_get(table, model, &row.key, row.sequence)?;
        check_get(table, model, &row.key, row.sequence.saturating_sub(1))?;
    }
    check_walk(table, model, (None, Hold::Owned), None, &[])
}

/// Compares everything again after the freeze, and checks that writes are refused.
fn check_frozen<C: Order>(
    table: &MemTable,
    writers: &mut [Writer],
    model: &Model<C>,
    case: &Case,
) -> Verdict {
    let frozen = answered("freeze", table.freeze())?;
    let again = answered("second freeze", table.freeze())?;
    same(
        "is_frozen",
        &(table.is_frozen() && again.is_frozen()),
        &true,
    )?;
    let row = Row {
        key: b"late".to_vec(),
        sequence: 3,
        kind: Kind::PUT,
        value: vec![],
    };
    for via in 0..3 {
        let refused = matches!(write(table, writers, &row, via), Err(Error::Frozen));
        same("a write after the freeze is refused", &refused, &true)?;
    }
    for op in &case.ops {
        check_read(&frozen, model, op)?;
    }
    check_all(&frozen, model)
}

/// Runs a case: answers are compared during the run, at its end, and again on the frozen table.
pub fn run<C: Order>(case: &Case) -> Verdict {
    let table = answered(
        "new table",
        MemTable::new(under(case.setup.options(), C::default())),
    )?;
    let mut writers = [table.writer(), table.writer()];
    let mut model = Model::<C>::new(case.setup.policy);
    for (index, op) in case.ops.iter().enumerate() {
        let verdict = match op {
            Op::Write(row, via) => {
                let result = write(&table, &mut writers, row, *via);
                check_write(&result, &model.write(row)).and_then(|()| check_counts(&table, &model))
            }
            read => check_read(&table, &model, read),
        };
        verdict.map_err(|text| format!("operation {index}: {text}"))?;
    }
    check_all(&table, &model).map_err(|text| format!("at the end: {text}"))?;
    check_frozen(&table, &mut writers, &model, case).map_err(|text| format!("frozen: {text}"))
}

fn run_caught<C: Order>(case: &Case) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| run::<C>(case))).unwrap_or_else(|_| Err("panicked".into()))
}

/// Leaves out operations as long as the case still fails.
fn shrink<C: Order>(mut case: Case) -> Case {
    let mut piece = case.ops.len().div_ceil(2);
    loop {
        let (mut start, before) = (0, case.ops.len());
        while start < case.ops.len() {
            let mut smaller = case.clone();
            smaller
                .ops
                .drain(start..(start + piece).min(case.ops.len()));
            if run_caught::<C>(&smaller).is_err() {
                case = smaller;
            } else {
                start += piece;
            }
        }
        if piece == 1 && case.ops.len() == before {
            return case;
        }
        piece = (piece / 2).max(1);
    }
}

/// Runs a case; panics with the shrunk case and `replay` if table and model differ.
pub fn run_or_report<C: Order>(case: &Case, replay: &str) {
    if let Err(text) = run_caught::<C>(case) {
        let small = shrink::<C>(case.clone());
        let text = run_caught::<C>(&small).err().unwrap_or(text);
        panic!("{text}\n{}replay: {replay}", small.text());
    }
}
