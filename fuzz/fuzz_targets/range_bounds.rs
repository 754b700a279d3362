//! Walks with bounds, interleavings of both ends and one damaged place that the fuzzer chooses.
//! Every walk is compared with the rows, and has a step limit.
//!
//! ```text
//!   (kind of table, rows, bounds, interleaving, where and what is damaged)  ->  every walk  ->  rows in order, or errors
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::fault::FaultInjector;
use paranoid_memtable::{DuplicatePolicy, Kind, MemTable, MemTableOptions};

#[path = "../../tests/support/mod.rs"]
mod support;

use support::case::End;
use support::model::{Model, Row};
use support::walks::ends::{Allowed, check_walks};

/// More rows make a failure harder to read.
const ROWS_MAX: usize = 12;

fn end((side, key): (u8, u8)) -> End {
    (side % 3, vec![b'a' + key % 8])
}

fuzz_target!(|input: (
    u8,
    Vec<(u8, u8, u8)>,
    (u8, u8),
    (u8, u8),
    u64,
    Option<(u16, u16)>
)| {
    let (kind, writes, start, stop, pattern, damage) = input;
    let replaces = kind & 2 == 2;
    let policy = if replaces {
        DuplicatePolicy::Replace
    } else {
        DuplicatePolicy::Reject
    };
    let options = MemTableOptions::builder().duplicates(policy).seed(7);
    let table = MemTable::new(options.write_buffer_size(16 << 10).build().unwrap()).unwrap();
    let mut model = Model::new(policy);
    for (number, (key, version, what)) in writes.into_iter().take(ROWS_MAX).enumerate() {
        let key = vec![b'a' + key % 8];
        let sequence = if replaces {
            u64::from(version % 4)
        } else {
            number as u64 + 1
        };
        let (kind, value) = match what % 8 {
            0 => (Kind::DELETE, vec![]),
            1 => (Kind::RANGE_DELETE, vec![key[0] + 1 + what / 64]),
            2 => (Kind::MERGE, vec![number as u8; 2]),
            _ => (Kind::PUT, vec![number as u8; usize::from(what / 8)]),
        };
        if table.insert(sequence, kind, &key, &value).is_ok() {
            model.write(&Row {
                key,
                sequence,
                kind,
                value,
            });
        }
    }
    if kind & 4 == 4 {
        table.freeze().unwrap();
    }
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it while the fault
    // injector works.
    let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
    let mut allowed = Allowed::default();
    if let Some((piece, bit)) = damage {
        let piece = usize::from(piece) % injector.pieces().len();
        injector.flip(piece, usize::from(bit));
        allowed = Allowed::of(&injector);
    }
    let verdict = check_walks(
        &table,
        &model,
        &[3, u64::MAX],
        (&end(start), &end(stop)),
        (pattern, 64),
        &allowed,
    );
    if let Err(text) = verdict {
        panic!("{text}");
    }
});
