//! Stretches of up to a page are overwritten, cleared, filled or copied from other places. No
//! answer is wrong.

use paranoid_memtable::fault::{FaultInjector, Owner, Part, Piece, Region};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{Lookup, MemTable, MemTableOptions};

use crate::corruption::damage::model::{Accelerators, Model, Row, Shape, Size};
use crate::corruption::damage::plan::{Area, Kind};
use crate::corruption::damage::stretch::each_stretch;
use crate::corruption::damage::{Frozen, run_fault};
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

/// The heads, an entry, and the highest link of a tower are cleared, in a table that has no
/// directory: no level leads from one of them past the other.
#[test]
fn towers_that_are_cut_hide_what_is_after_them() {
    let _watchdog = Watchdog::new("stretches::towers_that_are_cut_hide_what_is_after_them", 0);
    let model = Model::new(Shape::plain(64, 1));
    let step = if cfg!(debug_assertions) { 13 } else { 1 };
    let of_row = |piece: &Piece, row: &Row| {
        let is_owner = |owner: &Owner| *owner.key == *row.key && owner.sequence == row.sequence;
        piece.part == Part::Points && piece.owner.as_ref().is_some_and(is_owner)
    };
    let mut trials = 0;
    for cut in &model.rows {
        for cleared in model.rows.iter().step_by(step) {
            let strike = |injector: &mut FaultInjector<'_>| {
                let pieces = injector.pieces();
                let top = (0..pieces.len())
                    .filter(|piece| of_row(&pieces[*piece], cut))
                    .max_by_key(|piece| pieces[*piece].level)
                    .filter(|piece| pieces[*piece].level > 1);
                let is_hit = |piece: &usize| {
                    let found = &pieces[*piece];
                    let of_heads = found.owner.is_none()
                        && matches!(found.region, Region::HeadLink | Region::BackLink)
                        && found.level < 2;
                    top == Some(*piece) || of_heads || of_row(found, cleared)
                };
                let hit: Vec<usize> = (0..pieces.len()).filter(is_hit).collect();
                trials += u32::from(top.is_some());
                for piece in hit {
                    let zeros = vec![0; injector.pieces()[piece].len()];
                    injector.overwrite(piece, &zeros);
                }
                let area = Area::of(&injector.pieces()[0]);
                (area, Kind::StretchClear)
            };
            let (_, _, verdict) = run_fault(&model, Frozen::After, strike).unwrap();
            assert_eq!((verdict.wrong, verdict.endless), (None, None));
            assert!(
                verdict.beyond.is_empty(),
                "cut {}, cleared {}: {:?}",
                cut.key.escape_ascii(),
                cleared.key.escape_ascii(),
                verdict.beyond
            );
        }
    }
    assert!(trials > 30, "only {trials} tables had a tower that was cut");
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
            (Accelerators::Growing, Frozen::After),
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
