//! Damages a table by faults that the fuzzer chooses, and compares every operation with the model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::DuplicatePolicy;
use paranoid_memtable::fault::FaultInjector;

#[path = "../../tests/support/damage/mod.rs"]
mod damage;

use damage::model::{Accelerators, Keys, Model, Shape, Size};
use damage::plan::{Kind, Map, Rng};
use damage::{Case, Frozen, History, run_case};

fuzz_target!(|input: (u8, bool, bool, u8, u64, u16)| {
    let (seed, on_seek, before, cell, choice, turn) = input;
    let accelerators = [
        Accelerators::Nothing,
        Accelerators::Filters,
        Accelerators::Prefixes,
        Accelerators::Directory,
    ][usize::from(seed % 4)];
    let shape = Shape {
        protection: 8,
        on_seek,
        order_checks: false,
        duplicates: if seed >> 5 == 2 {
            DuplicatePolicy::Replace
        } else {
            DuplicatePolicy::Reject
        },
        accelerators,
        keys: Keys::Numbered,
        entries: if seed >> 4 == 5 { 5 } else { 32 },
        size: Size::SMALL,
        seed: u64::from(seed),
    };
    let model = Model::new(shape);
    let table = model.table().unwrap();
    let frozen = if before {
        Frozen::Before
    } else {
        Frozen::After
    };
    if before {
        table.freeze().unwrap();
    }
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
    let map = Map::of(&unsafe { FaultInjector::open(&table) }.unwrap(), &Kind::ALL);
    let cell = usize::from(cell) % map.cells.len();
    let stale = map.cells[cell].1.is_stale();
    let history = if stale {
        History::Noted
    } else {
        History::Forgotten
    };
    let case = Case {
        frozen,
        history,
        turn: u64::from(turn),
    };
    let (area, kind, verdict) = run_case(&model, case, |injector, past| {
        map.strike(injector, past, cell, &mut Rng::new(choice))
    })
    .unwrap();
    // The fault model admits that a lost write and another fault may hide each other.
    let admitted = kind == Kind::StaleAndAnother;
    let fine = (verdict.wrong.is_none() || admitted)
        && verdict.endless.is_none()
        && verdict.beyond.is_empty();
    assert!(fine, "{} {}: {verdict:?}", area.name(), kind.name());
});
