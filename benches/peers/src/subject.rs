//! Runs RocksDB's table as a subject of `tools/register_faults`, with all of its checks: 8
//! protection bytes, checksums on seek, order checks.

use anyhow::bail;
use register_faults::model::{Model, Random, key, value};
use register_faults::{Verdict, measured, ready};

use paranoid_memtable::Kind;

use crate::rivals::{Checks, Extra, Room};
use crate::shim::memtable::{Refused, RocksDb, Version};
use crate::work::{Entries, Keys, Shape};

const KEYS: u64 = 300;
const ENTRIES: u64 = KEYS + KEYS / 3;
const VALUE_LEN: usize = 40;

fn entries(versions: &[(Vec<u8>, u64)]) -> Entries {
    Entries {
        keys: Keys {
            bytes: versions
                .iter()
                .flat_map(|(user_key, _)| user_key.clone())
                .collect(),
            len: 16,
        },
        values: versions
            .iter()
            .flat_map(|(_, sequence)| value(*sequence))
            .collect(),
        value_len: VALUE_LEN,
        sequences: versions.iter().map(|(_, sequence)| *sequence).collect(),
    }
}

/// Makes a table with this seed, waits for the tracer, runs the operation and judges.
pub fn run(operation: &str, seed: u64) -> anyhow::Result<Verdict> {
    let shape = Shape::plain(VALUE_LEN);
    let checks = Checks {
        protection: 8,
        on_seek: true,
        order: true,
    };
    let table = RocksDb::new(
        checks,
        Extra::Nothing,
        Room {
            shape,
            entries: 2 * ENTRIES,
            threads: 1,
        },
    );
    let (mut before, mut random) = (Model::default(), Random(seed));
    let insert = |model: &mut Model, (user_key, sequence): &(Vec<u8>, u64)| {
        model.insert(user_key.clone(), *sequence, Kind::PUT, value(*sequence));
    };
    for at in 0..ENTRIES {
        let version = (key(Random(at % KEYS).draw()), at + 1);
        if table
            .put(&entries(std::slice::from_ref(&version)), 0)
            .is_err()
        {
            bail!("a put without a fault was refused");
        }
        insert(&mut before, &version);
    }
    let mut draw = |at: u64| (key(Random(random.below(2 * KEYS)).draw()), ENTRIES + 1 + at);
    let versions: Vec<_> = match operation {
        "batch8" => (0..8).map(&mut draw).collect(),
        "batch1000" => (0..1000).map(&mut draw).collect(),
        _ => vec![draw(0)],
    };
    let written = entries(&versions);
    let sought = &versions[0].0;
    let mut after = before.clone();
    if !operation.starts_with("get") && operation != "scan" {
        versions
            .iter()
            .for_each(|version| insert(&mut after, version));
    }
    let batch = table.batches(&written, versions.len());
    ready()?;
    let outcome = match operation {
        "put" => measured(|| table.put(&written, 0)).map(|()| true),
        "put-with-digest" => measured(|| table.put(&written, 1)).map(|()| true),
        "batch8" | "batch1000" => measured(|| table.attempt(&batch)).map(|()| true),
        "get" => measured(|| table.find(sought)).map(|found| found == shown(&before, sought)),
        "scan" => measured(|| table.walk(0)).map(|found| found == all(&before)),
        _ => bail!("no operation of this name"),
    };
    Ok(judge(&table, &before, &after, outcome))
}

fn shown(model: &Model, user_key: &[u8]) -> Option<Vec<u8>> {
    model.visible(user_key, u64::MAX).map(<[u8]>::to_vec)
}

fn all(model: &Model) -> Vec<Version> {
    model
        .versions()
        .into_iter()
        .map(|(user_key, sequence, _, value)| (user_key, sequence, value))
        .collect()
}

/// Judges by gets of all keys and scans both ways. After an error each key may have its old state.
fn judge(
    table: &RocksDb,
    before: &Model,
    after: &Model,
    outcome: Result<bool, Refused>,
) -> Verdict {
    let sums = (before.sum(), after.sum());
    let (mut wrong, mut missing, mut errors) =
        (u32::from(outcome.is_ok_and(|is_right| !is_right)), 0, 0);
    for user_key in after.user_keys() {
        match table.find(user_key) {
            Err(Refused) => errors += 1,
            Ok(found) if found == shown(after, user_key) => {}
            Ok(found) if found == shown(before, user_key) => missing += u32::from(outcome.is_ok()),
            Ok(_) => wrong += 1,
        }
    }
    for backward in [0, 1] {
        match table.walk(backward) {
            Err(Refused) => errors += 1,
            Ok(_) if outcome.is_err() => {}
            Ok(mut found) => {
                if backward == 1 {
                    found.reverse();
                }
                wrong += u32::from(found != all(after));
            }
        }
    }
    match (wrong + missing, outcome) {
        (1.., _) if sums != (before.sum(), after.sum()) => Verdict::Stray,
        (1.., _) if missing > 0 => Verdict::Lost,
        (1.., _) => Verdict::Silent,
        (0, Err(Refused)) => Verdict::Refused,
        (0, Ok(_)) if errors > 0 => Verdict::Noticed,
        (0, Ok(_)) => Verdict::Right,
    }
}
