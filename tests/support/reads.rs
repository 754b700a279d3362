//! Point reads compared with the model.

use paranoid_memtable::read::{Base, DeletedBy, EntryBytes, Found};
use paranoid_memtable::{Entry, Error, Kind, Lookup, TableReader};

use super::model::{Answer, Counts, Ground, Model, Row};
use super::orders::Order;

/// `Err`: what differs, as text.
pub type Verdict = Result<(), String>;

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Verdict {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, wanted {wanted:?}")) }
}

pub fn told<T>(what: &str, result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// An entry in the model's form.
pub fn row_of(entry: &Entry<'_>) -> Result<Row, String> {
    let value = told("value", entry.value())?.to_vec();
    let mut copy = vec![1, 2, 3];
    told("value_into", entry.value_into(&mut copy))?;
    same("the copy of a value", &copy, &value)?;
    same("value_len", &entry.value_len(), &value.len())?;
    let parts = told("parts", entry.parts())?;
    let (key, sequence, kind) = (entry.user_key(), entry.sequence(), entry.kind());
    let wanted = (key, sequence, kind, value.as_slice());
    same("parts", &(parts.user_key, parts.sequence, parts.kind, parts.value), &wanted)?;
    let bytes = told("to_bytes", entry.to_bytes())?;
    same("to_bytes", &(bytes.user_key(), bytes.sequence(), bytes.kind(), bytes.value()), &wanted)?;
    Ok(Row { key: entry.user_key().to_vec(), sequence: entry.sequence(), kind: entry.kind(), value })
}

/// A copy of an entry in the model's form.
pub fn copied_row(copy: &EntryBytes) -> Result<Row, String> {
    let (key, value) = (copy.user_key().to_vec(), copy.value().to_vec());
    Ok(Row { key, sequence: copy.sequence(), kind: copy.kind(), value })
}

/// The range tombstones that a snapshot sees, compared at every key that begins or ends an entry or range.
pub fn check_tombstones<C: Order>(table: &TableReader, model: &Model<C>, snapshot: u64) -> Verdict {
    let seen = told("range_tombstones", table.range_tombstones(snapshot))?;
    told("verify", seen.verify())?;
    let mut last: Option<Vec<u8>> = None;
    for fragment in seen.iter() {
        let (start, end) = (fragment.start(), fragment.end());
        same("a fragment that starts before it ends", &C::plainly(start, end).is_lt(), &true)?;
        let apart = last.as_ref().is_none_or(|last| C::plainly(last, start).is_le());
        same("a fragment after the one before", &apart, &true)?;
        same("numbers of a fragment", &fragment.sequences().len(), &1)?;
        last = Some(end.to_vec());
    }
    let bounds = seen.iter().flat_map(|fragment| [fragment.start(), fragment.end()]);
    let keys: Vec<&[u8]> = model.bounds().chain(bounds).collect();
    for key in keys {
        let found = seen.max_covering_sequence(key, u64::MAX);
        same(&format!("the tombstone over {key:?} at {snapshot}"), &found, &model.cover(key, snapshot))?;
    }
    Ok(())
}

fn answer_of(lookup: Lookup<'_>) -> Result<Answer, String> {
    Ok(match lookup {
        Lookup::Value(value) => {
            let pinned = value.to_pinned();
            same("a pinned value", &&*pinned, &&*value)?;
            Answer::Value(value.to_vec(), value.sequence(), value.kind())
        }
        Lookup::Deleted { sequence, by } => Answer::DeletedBy(sequence, name_of(by)),
        Lookup::Merge(operands) => {
            let ground = match told("base", operands.base())? {
                Base::Value(value) => Ground::Value(value.to_vec()),
                Base::Deleted => Ground::Deleted,
                Base::Below => Ground::Below,
            };
            let mut list = vec![];
            for operand in operands {
                let operand = told("operand", operand)?;
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
            assert!(kind.is_point_delete() && kind.custom_number().is_some(), "{kind:?}");
            "Custom"
        }
    }
}

/// get, get_entry and get_into.
pub fn check_get<C: Order>(table: &TableReader, model: &Model<C>, key: &[u8], snapshot: u64) -> Verdict {
    let wanted = model.get(key, snapshot);
    same("get", &answer_of(told("get", table.get(key, snapshot))?)?, &wanted)?;
    let entry = told("get_entry", table.get_entry(key, snapshot))?;
    let entry = entry.map(|entry| row_of(&entry)).transpose()?;
    same("get_entry", &entry.as_ref(), &model.newest(key, snapshot))?;
    let exact = told("get_exact", table.get_exact(key, snapshot))?;
    let wanted_exact = model.newest(key, snapshot).filter(|row| row.sequence == snapshot);
    same("get_exact", &exact.map(|entry| row_of(&entry)).transpose()?.as_ref(), &wanted_exact)?;
    if let (Some(entry), Some(row)) = (exact, wanted_exact) {
        let pinned = told("pin", table.pin(&entry))?;
        let parts = (pinned.user_key(), pinned.sequence(), pinned.kind(), pinned.value());
        same("pin", &parts, &(entry.user_key(), row.sequence, row.kind, row.value.as_slice()))?;
    }
    let mut buffer = vec![7; 9];
    let found = told("get_into", table.get_into(key, snapshot, &mut buffer))?;
    let (wanted, wanted_buffer) = match wanted {
        Answer::Value(value, sequence, kind) => (Found::Value { sequence, kind }, value),
        Answer::DeletedBy(sequence, name) => {
            let custom = entry.as_ref().map_or(Kind::DELETE, |row| row.kind);
            let all = [DeletedBy::Point, DeletedBy::Single, DeletedBy::Range, DeletedBy::Custom(custom)];
            let by =
                if name == "Custom" { all[3] } else { *all.iter().find(|by| name_of(**by) == name).unwrap() };
            (Found::Deleted { sequence, by }, vec![])
        }
        Answer::Merge(..) => (Found::Merge, vec![]),
        Answer::NotFound => (Found::NotFound, vec![]),
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
        let found = answer_of(told("multi_get", result)?)?;
        same(&format!("multi_get of {key:?}"), &found, &model.get(key, snapshot))?;
    }
    Ok(())
}

pub fn check_counts<C: Order>(table: &TableReader, model: &Model<C>) -> Verdict {
    let sequences = table.smallest_sequence().zip(table.largest_sequence());
    let found = Counts {
        entries: table.len() as u64,
        deletes: table.num_deletes(),
        range_deletes: table.num_range_deletes(),
        displaced: table.num_displaced(),
        data_bytes: table.data_bytes(),
        sequences,
    };
    same("counts", &found, &model.counts)?;
    same("is_empty", &table.is_empty(), &(model.counts.entries == 0))
}
