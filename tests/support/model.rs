//! The right answers of a table: a sorted map of (key, descending sequence number), and a list of
//! range deletions. Point reads are compared with it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;

use paranoid_memtable::read::{Base, DeletedBy, EntryBytes, Operands};
use paranoid_memtable::{DuplicatePolicy, Entry, Error, Kind, Lookup, TableReader, ValueRef};

use super::orders::Order;

/// Key and sequence in the table's order.
#[derive(Debug, Clone)]
pub struct Slot<C>(pub Vec<u8>, pub u64, PhantomData<C>);

impl<C> Slot<C> {
    pub fn new(key: &[u8], sequence: u64) -> Self {
        Slot(key.to_vec(), sequence, PhantomData)
    }
}

impl<C: Order> Ord for Slot<C> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        C::plainly(&self.0, &other.0).then(other.1.cmp(&self.1))
    }
}

impl<C: Order> PartialOrd for Slot<C> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<C: Order> PartialEq for Slot<C> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<C: Order> Eq for Slot<C> {}

/// One entry as it was written.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    pub key: Vec<u8>,
    pub sequence: u64,
    pub kind: Kind,
    pub value: Vec<u8>,
}

impl std::fmt::Debug for Row {
    /// One line, with only the start of a long value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = &self.value[..self.value.len().min(6)];
        write!(
            f,
            "{:?}@{} {:?} {start:?}",
            self.key, self.sequence, self.kind
        )?;
        if start.len() < self.value.len() {
            write!(f, "..{} bytes", self.value.len())
        } else {
            Ok(())
        }
    }
}

/// The right result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Linked,
    Displaced { kind: Kind, data_bytes: u64 },
    Duplicate,
    InvalidArgument,
}

/// The right result of `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Value(Vec<u8>, u64, Kind),
    DeletedBy(u64, &'static str),
    Merge(Vec<(u64, Vec<u8>)>, Ground),
    NotFound,
}

/// The right base of merge operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    Value(Vec<u8>),
    Deleted,
    Below,
}

/// The right values of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub entries: u64,
    pub deletes: u64,
    pub range_deletes: u64,
    pub displaced: u64,
    pub data_bytes: u64,
    pub sequences: Option<(u64, u64)>,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Model<C> {
    pub policy: DuplicatePolicy,
    points: BTreeMap<Slot<C>, Row>,
    ranges: BTreeMap<Slot<C>, Row>,
    pub counts: Counts,
}

impl<C: Order> Model<C> {
    pub fn new(policy: DuplicatePolicy) -> Self {
        Model {
            policy,
            points: BTreeMap::new(),
            ranges: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    pub fn write(&mut self, row: &Row) -> Outcome {
        let slot = Slot::new(&row.key, row.sequence);
        let is_range = row.kind == Kind::RANGE_DELETE;
        let inverted = is_range && C::plainly(&row.key, &row.value).is_ge();
        if inverted
            || ([Kind::DELETE, Kind::SINGLE_DELETE].contains(&row.kind) && !row.value.is_empty())
        {
            return Outcome::InvalidArgument;
        }
        let old = if is_range {
            self.ranges.get(&slot)
        } else {
            self.points.get(&slot)
        };
        let outcome = match (old, self.policy) {
            (None, _) => Outcome::Linked,
            (Some(old), DuplicatePolicy::Replace) if !is_range => {
                let data_bytes = (old.key.len() + old.value.len()) as u64;
                let kind = old.kind;
                self.count(kind, data_bytes, u64::MAX);
                self.counts.displaced += 1;
                Outcome::Displaced { kind, data_bytes }
            }
            (Some(_), _) => return Outcome::Duplicate,
        };
        self.count(row.kind, (row.key.len() + row.value.len()) as u64, 1);
        let (low, high) = self
            .counts
            .sequences
            .unwrap_or((row.sequence, row.sequence));
        self.counts.sequences = Some((low.min(row.sequence), high.max(row.sequence)));
        if is_range {
            self.ranges.insert(slot, row.clone());
        } else {
            self.points.insert(slot, row.clone());
        }
        outcome
    }

    fn count(&mut self, kind: Kind, data_bytes: u64, sign: u64) {
        let add = |sum: &mut u64, n: u64| *sum = sum.wrapping_add(n.wrapping_mul(sign));
        add(&mut self.counts.entries, 1);
        add(&mut self.counts.deletes, u64::from(is_delete(kind)));
        add(
            &mut self.counts.range_deletes,
            u64::from(kind == Kind::RANGE_DELETE),
        );
        add(&mut self.counts.data_bytes, data_bytes);
    }

    /// The newest range deletion that covers the key at the snapshot. One with sequence number 0
    /// deletes nothing.
    pub fn cover(&self, key: &[u8], snapshot: u64) -> Option<u64> {
        let covers = |row: &&Row| {
            row.sequence <= snapshot
                && row.sequence > 0
                && C::plainly(&row.key, key).is_le()
                && C::plainly(key, &row.value).is_lt()
        };
        self.ranges
            .values()
            .filter(covers)
            .map(|row| row.sequence)
            .max()
    }

    /// Every key of an entry, and both ends of every range deletion.
    pub fn bounds(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self
            .ranges
            .values()
            .flat_map(|row| [row.key.as_slice(), row.value.as_slice()]);
        self.points
            .values()
            .map(|row| row.key.as_slice())
            .chain(ends)
    }

    /// The versions of a key at a snapshot, newest first.
    fn versions(&self, key: &[u8], snapshot: u64) -> impl Iterator<Item = &Row> {
        let from = Bound::Included(Slot::new(key, snapshot));
        let to = Bound::Included(Slot::new(key, 0));
        self.points.range((from, to)).map(|(_, row)| row)
    }

    pub fn newest(&self, key: &[u8], snapshot: u64) -> Option<&Row> {
        self.versions(key, snapshot).next()
    }

    pub fn get(&self, key: &[u8], snapshot: u64) -> Answer {
        let newest = self.newest(key, snapshot);
        let cover = self.cover(key, snapshot);
        if let Some(cover) = cover
            && newest.is_none_or(|row| row.sequence < cover)
        {
            return Answer::DeletedBy(cover, "Range");
        }
        let Some(row) = newest else {
            return Answer::NotFound;
        };
        match row.kind {
            Kind::DELETE => Answer::DeletedBy(row.sequence, "Point"),
            Kind::SINGLE_DELETE => Answer::DeletedBy(row.sequence, "Single"),
            Kind::MERGE => self.merge(key, snapshot, cover),
            kind if is_delete(kind) => Answer::DeletedBy(row.sequence, "Custom"),
            kind => Answer::Value(row.value.clone(), row.sequence, kind),
        }
    }

    fn merge(&self, key: &[u8], snapshot: u64, cover: Option<u64>) -> Answer {
        let mut operands = vec![];
        for row in self.versions(key, snapshot) {
            if cover.is_some_and(|cover| cover > row.sequence) || is_delete(row.kind) {
                return Answer::Merge(operands, Ground::Deleted);
            }
            if row.kind != Kind::MERGE {
                return Answer::Merge(operands, Ground::Value(row.value.clone()));
            }
            operands.push((row.sequence, row.value.clone()));
        }
        Answer::Merge(
            operands,
            if cover.is_some() {
                Ground::Deleted
            } else {
                Ground::Below
            },
        )
    }

    /// Every entry in order.
    pub fn raw(&self) -> Vec<&Row> {
        self.points.values().collect()
    }

    /// The rows that a snapshot sees, in order.
    pub fn resolved(&self, snapshot: u64) -> Vec<&Row> {
        let mut shown: Vec<&Row> = vec![];
        let mut last: Option<&[u8]> = None;
        for row in self.points.values().filter(|row| row.sequence <= snapshot) {
            if last.is_some_and(|last| C::plainly(last, &row.key).is_eq()) {
                continue;
            }
            last = Some(&row.key);
            let covered = self
                .cover(&row.key, snapshot)
                .is_some_and(|cover| cover > row.sequence);
            if !covered && !is_delete(row.kind) {
                shown.push(row);
            }
        }
        shown
    }
}

fn is_delete(kind: Kind) -> bool {
    kind == Kind::DELETE || kind == Kind::SINGLE_DELETE || kind.as_u8() >= 0xc0
}

/// `Err`: a text about the difference.
pub type Verdict = Result<(), String>;

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Verdict {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: found {found:?}, wanted {wanted:?}"))
    }
}

pub fn answered<T>(what: &str, result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// An entry in the model's form.
pub fn row_of(entry: &Entry<'_>) -> Result<Row, String> {
    let value = answered("value", entry.value())?.to_vec();
    let mut copy = vec![1, 2, 3];
    answered("value_into", entry.value_into(&mut copy))?;
    same("the copy of a value", &copy, &value)?;
    same("value_len", &entry.value_len(), &value.len())?;
    let (parts_key, parts_value) = answered("parts", entry.parts())?;
    let (key, sequence, kind) = (entry.user_key(), entry.sequence(), entry.kind());
    let wanted = (key, sequence, kind, value.as_slice());
    same("parts", &(parts_key, sequence, kind, parts_value), &wanted)?;
    let bytes = answered("to_bytes", entry.to_bytes())?;
    same(
        "to_bytes",
        &(
            bytes.user_key(),
            bytes.sequence(),
            bytes.kind(),
            bytes.value(),
        ),
        &wanted,
    )?;
    Ok(Row {
        key: entry.user_key().to_vec(),
        sequence: entry.sequence(),
        kind: entry.kind(),
        value,
    })
}

/// A copy of an entry in the model's form.
pub fn copied_row(copy: &EntryBytes) -> Result<Row, String> {
    let (key, value) = (copy.user_key().to_vec(), copy.value().to_vec());
    Ok(Row {
        key,
        sequence: copy.sequence(),
        kind: copy.kind(),
        value,
    })
}

/// Compares the range tombstones that a snapshot sees, at every key that begins or ends an entry or
/// range.
pub fn check_tombstones<C: Order>(table: &TableReader, model: &Model<C>, snapshot: u64) -> Verdict {
    let seen = answered("range_tombstones", table.range_tombstones(snapshot))?;
    answered("verify", seen.verify())?;
    let mut last: Option<Vec<u8>> = None;
    for fragment in seen.iter() {
        let (start, end) = (fragment.start(), fragment.end());
        same(
            "a fragment that starts before it ends",
            &C::plainly(start, end).is_lt(),
            &true,
        )?;
        let apart = last
            .as_ref()
            .is_none_or(|last| C::plainly(last, start).is_le());
        same("a fragment after the one before", &apart, &true)?;
        same("numbers of a fragment", &fragment.sequences().len(), &1)?;
        last = Some(end.to_vec());
    }
    let bounds = seen
        .iter()
        .flat_map(|fragment| [fragment.start(), fragment.end()]);
    let keys: Vec<&[u8]> = model.bounds().chain(bounds).collect();
    for key in keys {
        let found = seen.max_covering_sequence(key, u64::MAX);
        same(
            &format!("the tombstone over {key:?} at {snapshot}"),
            &found,
            &model.cover(key, snapshot),
        )?;
    }
    Ok(())
}

fn answer_of(lookup: Lookup<ValueRef<'_>, Operands<'_>>) -> Result<Answer, String> {
    Ok(match lookup {
        Lookup::Value(value) => {
            let pinned = value.to_pinned();
            same("a pinned value", &&*pinned, &&*value)?;
            Answer::Value(value.to_vec(), value.sequence(), value.kind())
        }
        Lookup::Deleted { sequence, by } => Answer::DeletedBy(sequence, name_of(by)),
        Lookup::Merge(operands) => {
            let ground = match answered("base", operands.base())? {
                Base::Value(value) => Ground::Value(value.to_vec()),
                Base::Deleted => Ground::Deleted,
                Base::Below => Ground::Below,
            };
            let mut list = vec![];
            for operand in operands {
                let operand = answered("operand", operand)?;
                list.push((operand.sequence, operand.value.to_vec()));
            }
            Answer::Merge(list, ground)
        }
        Lookup::NotFound => Answer::NotFound,
    })
}

fn name_of(by: DeletedBy) -> &'static str {
    match by {
        DeletedBy::Point => "Point",
        DeletedBy::Single => "Single",
        DeletedBy::Range => "Range",
        DeletedBy::Custom(kind) => {
            assert!(
                kind.is_point_delete() && kind > Kind::FIRST_CUSTOM,
                "{kind:?}"
            );
            "Custom"
        }
    }
}

/// Compares get, get_entry and get_into.
pub fn check_get<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    key: &[u8],
    snapshot: u64,
) -> Verdict {
    let wanted = model.get(key, snapshot);
    same(
        "get",
        &answer_of(answered("get", table.get(key, snapshot))?)?,
        &wanted,
    )?;
    let entry = answered("get_entry", table.get_entry(key, snapshot))?;
    let stored = entry.map(|entry| row_of(&entry)).transpose()?;
    same("get_entry", &stored.as_ref(), &model.newest(key, snapshot))?;
    if let (Some(entry), Some(row)) = (entry, model.newest(key, snapshot)) {
        let copy = answered("to_bytes", entry.to_bytes())?;
        let parts = (copy.user_key(), copy.sequence(), copy.kind(), copy.value());
        same(
            "to_bytes",
            &parts,
            &(
                entry.user_key(),
                row.sequence,
                row.kind,
                row.value.as_slice(),
            ),
        )?;
    }
    let mut buffer = vec![7; 9];
    let found = answered("get_into", table.get_into(key, snapshot, &mut buffer))?;
    let (wanted, wanted_buffer) = match wanted {
        Answer::Value(value, sequence, kind) => (Lookup::Value((sequence, kind)), value),
        Answer::DeletedBy(sequence, name) => {
            let custom = entry.as_ref().map_or(Kind::DELETE, Entry::kind);
            let all = [
                DeletedBy::Point,
                DeletedBy::Single,
                DeletedBy::Range,
                DeletedBy::Custom(custom),
            ];
            let by = if name == "Custom" {
                all[3]
            } else {
                *all.iter().find(|by| name_of(**by) == name).unwrap()
            };
            (Lookup::Deleted { sequence, by }, vec![])
        }
        Answer::Merge(..) => (Lookup::Merge(()), vec![]),
        Answer::NotFound => (Lookup::NotFound, vec![]),
    };
    same("get_into", &found, &wanted)?;
    same("the buffer of get_into", &buffer, &wanted_buffer)
}

pub fn check_multi_get<C: Order>(
    table: &TableReader,
    model: &Model<C>,
    keys: &[Vec<u8>],
    snapshot: u64,
) -> Verdict {
    let results = table.multi_get(keys, snapshot);
    same("results of multi_get", &results.len(), &keys.len())?;
    for (result, key) in results.into_iter().zip(keys) {
        let found = answer_of(answered("multi_get", result)?)?;
        same(
            &format!("multi_get of {key:?}"),
            &found,
            &model.get(key, snapshot),
        )?;
    }
    Ok(())
}

pub fn check_counts<C: Order>(table: &TableReader, model: &Model<C>) -> Verdict {
    let sequences = table
        .stats()
        .smallest_sequence
        .zip(table.stats().largest_sequence);
    let found = Counts {
        entries: table.len() as u64,
        deletes: table.stats().deletes,
        range_deletes: table.stats().range_deletes,
        displaced: table.stats().displaced,
        data_bytes: table.stats().data_bytes,
        sequences,
    };
    same("counts", &found, &model.counts)?;
    same("is_empty", &table.is_empty(), &(model.counts.entries == 0))
}
