//! Runs a case on a table and on the model, reports what differs, and shrinks a case that failed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use paranoid_memtable::integrity::Protected;
use paranoid_memtable::{Displaced, Error, Inserted, Kind, MemTable, TableReader, Writer};

use super::case::{Case, Hold, Op};
use super::model::{Model, Outcome, Row};
use super::orders::Order;
use super::reads::{Verdict, check_counts, check_get, check_multi_get, check_tombstones, same, told};
use super::under::under;
use super::walks::{check_descending, check_range, check_stats, check_versions, check_walk};

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

/// The value in slices, some of them empty; with a digest over the whole, without one, and by a writer.
fn write_slices(table: &MemTable, writer: &mut Writer, row: &Row) -> Result<Inserted, Error> {
    let Row { key, sequence, kind, value } = row;
    let (low, high) = (value.len() / 3, value.len() / 2);
    let slices = [&value[..low], &value[low..high], &[], &value[high..]];
    let slices = if value.is_empty() && sequence % 2 == 0 { &slices[..0] } else { &slices[..] };
    match sequence % 3 {
        0 => table.insert_parts(*sequence, *kind, key, slices, None),
        1 => {
            let caller_digest = Protected::of(key, value, *kind);
            table.insert_parts(*sequence, *kind, key, slices, Some(caller_digest))
        }
        _ => writer.insert_parts(*sequence, *kind, key, slices, None),
    }
}

fn check_write(result: &Result<Inserted, Error>, wanted: &Outcome) -> Verdict {
    let found = match result {
        Ok(Inserted { displaced: None, .. }) => Outcome::Linked,
        Ok(Inserted { displaced: Some(Displaced { kind, data_bytes, .. }), .. }) => {
            Outcome::Displaced { kind: *kind, data_bytes: *data_bytes }
        }
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
        Op::Walk { snapshot, bounds, hold, moves } => {
            check_walk(table, model, (*snapshot, *hold), bounds.as_ref(), moves)
        }
        Op::Range { snapshot, start, end, ends } => check_range(table, model, *snapshot, (start, end), *ends),
        Op::Versions { start, end, ends } => check_versions(table, model, start, end, *ends),
        Op::Descending(start, end) => check_descending(table, model, (start, end)),
        Op::Stats(start, end) => check_stats(table, model, (start, end)),
    }
}

/// Compares every entry, and a scan each way.
fn check_all<C: Order>(table: &TableReader, model: &Model<C>) -> Verdict {
    check_counts(table, model)?;
    let all = ((0, vec![]), (0, vec![]));
    for snapshot in [None, Some(u64::MAX), model.counts.sequences.map(|(low, high)| low / 2 + high / 2)] {
        for ends in [0, u64::MAX, 0x5555_5555_5555_5555] {
            check_range(table, model, snapshot, (&all.0, &all.1), ends)?;
        }
    }
    check_descending(table, model, (&all.0, &all.1))?;
    for snapshot in
        [0, u64::MAX].into_iter().chain(model.counts.sequences.map(|(low, high)| low / 2 + high / 2))
    {
        check_tombstones(table, model, snapshot)?;
    }
    for row in model.raw() {
        check_get(table, model, &row.key, row.sequence)?;
        check_get(table, model, &row.key, row.sequence.saturating_sub(1))?;
    }
    check_walk(table, model, (None, Hold::Owned), None, &[])
}

/// Compares everything again once the table is frozen, and checks that writes are refused.
fn check_frozen<C: Order>(
    table: &MemTable,
    writers: &mut [Writer],
    model: &Model<C>,
    case: &Case,
) -> Verdict {
    let frozen = told("freeze", table.freeze())?;
    let again = told("second freeze", table.freeze())?;
    same("is_frozen", &(table.is_frozen() && again.is_frozen()), &true)?;
    let row = Row { key: b"late".to_vec(), sequence: 3, kind: Kind::PUT, value: vec![] };
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
    let table = told("new table", MemTable::new(under(case.setup.options(), C::default())))?;
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

/// Leaves out operations as long as the case goes on failing.
fn shrink<C: Order>(mut case: Case) -> Case {
    let mut piece = case.ops.len().div_ceil(2);
    loop {
        let (mut start, before) = (0, case.ops.len());
        while start < case.ops.len() {
            let mut smaller = case.clone();
            smaller.ops.drain(start..(start + piece).min(case.ops.len()));
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
