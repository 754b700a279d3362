//! One flipped bit in a table of a set: the active table, or one of two that wait for their flush.
//!
//! ```text
//!   write all rows, with two switches and two snapshots  ->  park two cursors on every key  ->  flip
//!   ->  gets, multi_gets and scans of three views, parked cursors  ->  writes  ->  the same reads  ->  flush
//! ```
//! The flush must pass what it passes for an undamaged set after the same writes.

use std::sync::OnceLock;

use paranoid_memtable::fault::FaultInjector;
use paranoid_memtable::read::Base;
use paranoid_memtable::{Error, Kind as EntryKind, Lookup, ValueRef, WriteBatch};
use paranoid_set::{MemTableSet, MergedEntry, SetOptions, View};

use crate::damage::census::Call;
use crate::damage::model::{Expected, Model, Row};
use crate::damage::plan::{Area, Bounds, Kind, Map};
use crate::damage::trial::{Collected, Trial, Verdict};

/// One key in this number is written to after the flip.
const EVERY: usize = 3;

/// A set with all rows of a model, and a view at each of its snapshots.
struct Filled {
    set: MemTableSet<()>,
    views: Vec<View<()>>,
}

impl Filled {
    fn new(model: &Model) -> Result<Filled, Error> {
        let options = SetOptions::builder().table(model.options()?).build()?;
        let set = MemTableSet::open(options, ())?;
        let rows = model.writes.len();
        let mut snapshots = Vec::new();
        for (number, row) in model.writes.iter().enumerate() {
            if number == rows / 2 || number == rows * 5 / 6 {
                set.switch()?;
            }
            write(&set, row)?;
            if model.snapshots.contains(&row.sequence) {
                snapshots.push(set.snapshot());
            }
        }
        let views = snapshots.iter().map(|snapshot| set.view_at(snapshot));
        let mut views = views.collect::<Result<Vec<_>, _>>()?;
        views.push(set.view());
        Ok(Filled { set, views })
    }
}

/// Writes a row; the set chooses its sequence number.
fn write(set: &MemTableSet<()>, row: &Row) -> Result<u64, Error> {
    let mut batch = WriteBatch::with_protection(8)?;
    if row.kind == EntryKind::RANGE_DELETE {
        batch.delete_range(&row.key, &row.value)?;
    } else {
        batch.insert(row.kind, &row.key, &row.value)?;
    }
    set.write(&batch)
}

/// Number of bits of all tables.
pub(crate) fn bits(model: &Model) -> Result<u64, Error> {
    let filled = Filled::new(model)?;
    let view = filled.set.view();
    let mut sum = 0;
    for table in view.readers() {
        // SAFETY: this thread alone uses the set, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let injector = unsafe { FaultInjector::open(table) }?;
        sum += Map::of(&injector, &[]).bits;
    }
    Ok(sum)
}

/// Flips bit number `bit` of all tables. Returns its area and the effects that it may have.
fn strike(filled: &Filled, mut bit: u64) -> Result<(Area, Bounds), Error> {
    let view = filled.set.view();
    for table in view.readers() {
        // SAFETY: this thread alone uses the set, and holds nothing borrowed from it: cursors keep
        // offsets, and copies of entries.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(table) }?;
        let map = Map::of(&injector, &[]);
        if bit >= map.bits {
            bit -= map.bits;
            continue;
        }
        let area = map.flip_nth(&mut injector, bit);
        let changed = injector.changed();
        let owners = changed
            .keys()
            .filter_map(|piece| injector.pieces()[*piece].owner.clone());
        let entries = owners.map(|owner| (owner.key.to_vec(), owner.sequence));
        let bounds = Bounds {
            entries: entries.collect(),
            ..Bounds::default()
        };
        return Ok((area, bounds));
    }
    unreachable!("a bit beyond the last table")
}

/// Flips a bit of a set, or none, and makes every call.
pub(crate) fn run(
    model: &Model,
    turn: u64,
    bit: Option<u64>,
) -> Result<(Option<Area>, Kind, Verdict), Error> {
    let filled = Filled::new(model)?;
    let newest = model.snapshots.len() - 1;
    let mut parked = Vec::new();
    for row in model.visible(newest) {
        let mut cursors = [
            filled.views[newest].cursor()?,
            filled.views[newest].cursor()?,
        ];
        for cursor in &mut cursors {
            cursor.seek(&row.key)?;
        }
        parked.push(cursors);
    }
    let (area, bounds) = match bit {
        Some(bit) => strike(&filled, bit).map(|(area, bounds)| (Some(area), bounds))?,
        None => (None, Bounds::default()),
    };
    let mut trial = Trial::new(model, bounds, turn);
    let shown = model.visible(newest);
    for (place, [mut forward, mut back]) in parked.into_iter().enumerate() {
        let what = "a parked cursor of a set";
        trial.call(Call::Parked, |trial| {
            let rows = &shown[place + 1..];
            meet(trial, what, rows, || Ok(forward.next()?.cloned()));
        });
        trial.call(Call::Parked, |trial| {
            let rows: Vec<&Row> = shown[..place].iter().copied().rev().collect();
            meet(trial, what, &rows, || Ok(back.prev()?.cloned()));
        });
    }
    for (number, view) in filled.views.iter().enumerate() {
        reads(&mut trial, view, number);
    }
    let (rows, refused) = writes(&mut trial, &filled.set, turn);
    let grown = model.after(rows);
    let mut trial = trial.after(&grown);
    reads(&mut trial, &filled.set.view(), 1);
    if let Some(flushed) = flush(&mut trial, &filled.set) {
        let control = if refused == 0 && bit.is_some() {
            Some(control(model, turn)?)
        } else {
            None
        };
        if control.is_some_and(|control| *control != flushed) {
            trial.wrong(|| "a flush of a set passes something else".into());
        }
    }
    Ok((area, Kind::Flip, trial.verdict))
}

/// A lookup as plain data, without the sequence numbers of operands.
fn seen(lookup: &Lookup<ValueRef<'_>, Box<MergedEntry>>) -> Expected {
    match lookup {
        Lookup::Value(value) => Expected::Value(value.sequence(), value.to_pinned().to_vec()),
        Lookup::Deleted { sequence, by } => Expected::Deleted(*sequence, *by),
        Lookup::NotFound => Expected::NotFound,
        Lookup::Merge(entry) => {
            let base = match entry.base() {
                Base::Value(value) => Some(Some(value.to_vec())),
                Base::Deleted => Some(None),
                Base::Below => None,
            };
            let operands = entry.operands().iter().map(|operand| (0, operand.clone()));
            Expected::Merge(operands.collect(), base)
        }
    }
}

fn without_numbers(want: &Expected) -> Expected {
    match want.clone() {
        Expected::Merge(operands, base) => {
            let operands = operands.into_iter().map(|(_, operand)| (0, operand));
            Expected::Merge(operands.collect(), base)
        }
        want => want,
    }
}

/// Reads every key by a view at snapshot `number` of the model, alone and together, and scans.
fn reads(trial: &mut Trial<'_>, view: &View<()>, number: usize) {
    let model = trial.model();
    let judge = |trial: &mut Trial<'_>, probe: usize, got: Result<Expected, Error>| match got {
        Err(error) => trial.refused(&error, "get of a set"),
        Ok(got) => {
            let want = without_numbers(&model.expected[number][probe]);
            if got != want {
                let key = model.probes[probe].escape_ascii();
                trial.wrong(|| format!("get of a set, {key}: {got:?}, not {want:?}"));
            }
        }
    };
    for (probe, key) in model.probes.iter().enumerate() {
        let got = view.get(key).map(|lookup| seen(&lookup));
        trial.call(Call::get(trial.near(probe)), |trial| {
            judge(trial, probe, got);
        });
    }
    for (probe, got) in view.multi_get(&model.probes).into_iter().enumerate() {
        let got = got.map(|lookup| seen(&lookup));
        trial.call(Call::MultiGet, |trial| judge(trial, probe, got));
    }
    let mut rows = model.visible(number);
    match view.cursor() {
        Err(error) => trial.refused(&error, "cursor of a set"),
        Ok(cursor) => {
            let mut entries = cursor.ascending();
            trial.call(Call::Scan, |trial| {
                meet(trial, "a scan of a set", &rows, || {
                    entries.next().transpose()
                });
            });
        }
    }
    rows.reverse();
    match view.cursor() {
        Err(error) => trial.refused(&error, "cursor of a set"),
        Ok(cursor) => {
            let mut entries = cursor.descending();
            trial.call(Call::Scan, |trial| {
                meet(trial, "a scan of a set, back", &rows, || {
                    entries.next().transpose()
                });
            });
        }
    }
}

/// Compares a walk with the rows that it must show, up to its first error.
fn meet(
    trial: &mut Trial<'_>,
    what: &str,
    rows: &[&Row],
    mut step: impl FnMut() -> Result<Option<MergedEntry>, Error>,
) {
    for row in rows {
        let is_right = |entry: &MergedEntry| {
            entry.user_key() == row.key
                && entry.sequence() == row.sequence
                && entry.kind() == row.kind
                && entry.value() == row.value
        };
        match step() {
            Err(error) => return trial.refused(&error, what),
            Ok(Some(entry)) if is_right(&entry) => {}
            Ok(entry) => {
                return trial
                    .wrong(|| format!("{what}: {entry:?}, not {}", row.key.escape_ascii()));
            }
        }
    }
    match step() {
        Err(error) => trial.refused(&error, what),
        Ok(None) => {}
        Ok(Some(entry)) => trial.wrong(|| format!("{what} goes on: {entry:?}")),
    }
}

/// Writes new versions. Returns the acknowledged ones, and the number of the others.
fn writes(trial: &mut Trial<'_>, set: &MemTableSet<()>, turn: u64) -> (Vec<Row>, usize) {
    let model = trial.model();
    let (mut written, mut refused) = (Vec::new(), 0);
    let mut put = |trial: &mut Trial<'_>, call: Call, mut row: Row| {
        let wrote = write(set, &row);
        trial.call(call, |trial| match wrote {
            Ok(sequence) => {
                row.sequence = sequence;
                written.push(row);
            }
            Err(error) => {
                refused += 1;
                trial.refused(&error, "a write of a set");
            }
        });
    };
    let kinds = [EntryKind::PUT, EntryKind::MERGE, EntryKind::DELETE];
    for (number, probe) in (turn as usize % EVERY..model.probes.len())
        .step_by(EVERY)
        .enumerate()
    {
        let kind = kinds[number % kinds.len()];
        let value = if kind.is_point_delete() {
            Vec::new()
        } else {
            vec![number as u8; 9]
        };
        let row = Row {
            key: model.probes[probe].clone(),
            sequence: 0,
            kind,
            value,
        };
        put(trial, Call::put(trial.near(probe)), row);
    }
    let (from, to) = (model.probes.len() / 2, model.probes.len() - 1);
    let row = Row {
        key: model.probes[from].clone(),
        sequence: 0,
        kind: EntryKind::RANGE_DELETE,
        value: model.probes[to].clone(),
    };
    put(trial, Call::RangeDelete, row);
    (written, refused)
}

/// Flushes all tables. `None` after an error.
fn flush(trial: &mut Trial<'_>, set: &MemTableSet<()>) -> Option<Collected> {
    let begun = set.switch().and_then(|_| set.begin_flush());
    let job = trial.call(Call::Freeze, |trial| {
        begun
            .inspect_err(|error| trial.refused(error, "begin_flush"))
            .ok()
    });
    let Some(mut job) = job? else {
        trial.wrong(|| "a set has nothing to flush".into());
        return None;
    };
    let mut sink = Collected::default();
    let passed = job.flush(&mut sink);
    trial.call(Call::Flush, |trial| {
        let passed = passed.inspect_err(|error| trial.refused(error, "flush of a set"));
        passed.ok().map(|_| sink)
    })
}

/// What the flush of the undamaged set passes.
fn control(model: &Model, turn: u64) -> Result<&'static Collected, Error> {
    static CONTROLS: [OnceLock<Collected>; EVERY] = [const { OnceLock::new() }; EVERY];
    let known = &CONTROLS[turn as usize % EVERY];
    if let Some(known) = known.get() {
        return Ok(known);
    }
    let filled = Filled::new(model)?;
    let mut trial = Trial::new(model, Bounds::default(), turn);
    writes(&mut trial, &filled.set, turn);
    let flushed = flush(&mut trial, &filled.set).unwrap_or_default();
    Ok(known.get_or_init(|| flushed))
}
