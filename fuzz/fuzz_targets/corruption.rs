//! Damage chosen by the fuzzer: which table, which faults; then every operation against the model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::{Door, Representation};

#[path = "../../tests/support/damage/mod.rs"]
mod damage;

use damage::model::{Aids, Model, Shape};
use damage::plan::{Kind, Map};
use damage::rng::Rng;
use damage::{Frozen, run_fault};

fuzz_target!(|input: (u8, bool, bool, u8, u64)| {
    let (seed, on_seek, before, cell, choice) = input;
    // A quarter of the tables are logs, which have neither filters nor an index.
    let vector = seed >> 6 == 3;
    let representation = if vector { Representation::Vector } else { Representation::SkipList };
    let aids = [Aids::Nothing, Aids::All, Aids::Prefixes, Aids::Index][usize::from(seed % 4)];
    let shape = Shape {
        protection: 8,
        on_seek,
        order_checks: false,
        representation,
        aids: if vector { Aids::Nothing } else { aids },
        entries: 32,
        seed: u64::from(seed),
    };
    let model = Model::new(shape);
    let table = model.table().unwrap();
    let frozen = if before { Frozen::Before } else { Frozen::After };
    if before {
        table.freeze().unwrap();
    }
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
    let map = Map::of(&unsafe { Door::open(&table) }.unwrap(), &Kind::ALL);
    let cell = usize::from(cell) % map.cells.len();
    let (area, kind, verdict) =
        run_fault(&model, frozen, |door| map.strike(door, cell, &mut Rng::new(choice))).unwrap();
    let fine = verdict.wrong.is_none() && verdict.endless.is_none() && verdict.beyond.is_empty();
    assert!(fine, "{} {}: {verdict:?}", area.name(), kind.name());
});
