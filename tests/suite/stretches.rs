//! Stretches of up to a page are overwritten, cleared, filled or copied from other places. No
//! answer is wrong.

use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{Lookup, MemTable, MemTableOptions};

use crate::corruption::damage::Frozen;
use crate::corruption::damage::model::{Accelerators, Model, Shape, Size};
use crate::corruption::damage::stretch::each_stretch;
use crate::support::rng::{Watchdog, amount, seed_or};

const KEYS: u64 = 40;

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// A table of present keys. The last one is under an older range tombstone.
fn filled() -> MemTable {
    let options = MemTableOptions::builder()
        .write_buffer_size(64 << 10)
        .whole_key_filter(0.01)
        .seed(9);
    let table = MemTable::new(
        options
            .prefix_filter(FixedPrefix::new(4), 0.01)
            .build()
            .unwrap(),
    )
    .unwrap();
    table.delete_range(1, key(9), key(99)).unwrap();
    for number in 0..KEYS {
        table.put(number + 2, key(number), b"value").unwrap();
    }
    table
}

/// Each run of words of two small filters is cleared. A present key is never absent, and the range
/// tombstone under it is never its newest entry.
#[test]
fn no_cleared_part_of_a_filter_hides_a_key() {
    let _watchdog = Watchdog::new("stretches::no_cleared_part_of_a_filter_hides_a_key", 0);
    let table = filled();
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it across a call.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
    let is_word = |piece: &usize| injector.pieces()[*piece].region == Region::FilterWord;
    let words: Vec<usize> = (0..injector.pieces().len()).filter(is_word).collect();
    assert!(words.len() > 100);
    let step = if cfg!(debug_assertions) { 7 } else { 1 };
    for first in (0..words.len()).step_by(step) {
        for last in (first..words.len()).step_by(step) {
            words[first..=last]
                .iter()
                .for_each(|word| injector.overwrite(*word, &[0; 8]));
            for number in 0..KEYS {
                match table.get(key(number), u64::MAX) {
                    Ok(Lookup::Value(value)) => assert!(*value == *b"value"),
                    other => panic!("words {first} to {last}, key {number}: {other:?}"),
                }
            }
            injector.undo();
        }
    }
}

/// Stretches over everything, in small and large tables with filters.
#[test]
fn stretches_up_to_a_page_are_noticed_or_harmless() {
    let seed = seed_or(31);
    let _watchdog = Watchdog::new(
        "stretches::stretches_up_to_a_page_are_noticed_or_harmless",
        seed,
    );
    let faults = if cfg!(debug_assertions) {
        40
    } else {
        amount(1500, 40)
    };
    for (buffer, filter, values) in [
        (64 << 10, 248, 1),
        (64 << 10, 3 << 10, 1),
        (1 << 20, 20 << 10, 16),
    ] {
        for (accelerators, frozen) in [
            (Accelerators::All, Frozen::After),
            (Accelerators::Filters, Frozen::Before),
        ] {
            let size = Size {
                buffer,
                filter,
                values,
            };
            let model = Model::new(Shape {
                accelerators,
                size,
                ..Shape::plain(100, seed)
            });
            each_stretch(
                &model,
                frozen,
                0..faults,
                |number, (area, kind, verdict)| {
                    let what = format!(
                        "fault {number}, {}, {}, {size:?}, seed {seed:#x}",
                        area.name(),
                        kind.name()
                    );
                    let verdict = verdict.unwrap_or_else(|| panic!("{what}: a read panicked"));
                    let fine = verdict.wrong.is_none()
                        && verdict.endless.is_none()
                        && verdict.beyond.is_empty();
                    assert!(fine, "{what}: {verdict:?}");
                },
            )
            .unwrap();
        }
    }
}
