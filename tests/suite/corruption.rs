//! Damage: every bit of a small table, random faults of every kind, and damage that only sums,
//! arenas or callers' digests reveal.
//!
//! Debug builds take one bit of 397; `PARANOID_TEST_SEED` moves the choice, `PARANOID_TEST_OPS`
//! sets the random faults.

use paranoid_memtable::fault::{FaultInjector, Part, Past, Region};
use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
use paranoid_memtable::integrity::{Place, Protected};
use paranoid_memtable::repair::Reach;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Corruption, Entry, Error, Kind, MemTable, MemTableOptions};

#[path = "../support/damage/mod.rs"]
pub(super) mod damage;

use crate::support::rng::{Watchdog, amount, seed_or};
use damage::model::{Accelerators, Model, Shape};
use damage::plan::{self, Area, Map, Rng};
use damage::trial::Verdict;
use damage::{Case, Frozen, History, run_case};

/// The checks of a search besides its bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seek {
    Bracket,
    EveryNode,
}

fn shape(seek: Seek, entries: usize, seed: u64) -> Shape {
    shape_with(Accelerators::Nothing, seek, entries, seed)
}

fn shape_with(accelerators: Accelerators, seek: Seek, entries: usize, seed: u64) -> Shape {
    Shape {
        on_seek: seek == Seek::EveryNode,
        accelerators,
        ..Shape::plain(entries, seed)
    }
}

fn open(table: &MemTable) -> FaultInjector<'_> {
    // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

fn map(model: &Model) -> Map {
    let table = model.table().unwrap();
    Map::of(&open(&table), &plan::Kind::ALL)
}

/// Every other table is frozen before the damage.
fn case(number: u64) -> Case {
    let frozen = if number.is_multiple_of(2) {
        Frozen::Before
    } else {
        Frozen::After
    };
    Case {
        frozen,
        history: History::Forgotten,
        turn: number / 2,
    }
}

/// Accepts no wrong answer, no endless walk, and `Corruption` only where the damage could matter.
/// The fault model admits that a lost write and another fault may hide each other.
fn accept(number: u64, seed: u64, area: Area, kind: plan::Kind, verdict: &Verdict) {
    let right = verdict.wrong.is_none() || kind == plan::Kind::StaleAndAnother;
    let fine = right && verdict.endless.is_none() && verdict.beyond.is_empty();
    assert!(
        fine,
        "fault {number}, {}, {}, seed {seed:#x}: {verdict:?}",
        area.name(),
        kind.name()
    );
}

fn every_bit(test: &str, seek: Seek) {
    let seed = seed_or(7);
    let _watchdog = Watchdog::new(test, seed);
    let model = Model::new(shape(seek, 24, 3));
    let map = map(&model);
    let stride = if cfg!(debug_assertions) { 397 } else { 1 };
    for bit in (seed % stride..map.bits).step_by(stride as usize) {
        let (area, kind, verdict) = run_case(&model, case(bit), |injector, _| {
            (map.flip_nth(injector, bit), plan::Kind::Flip)
        })
        .unwrap();
        let verdict = verdict.of_bit((bit % 8) as u8);
        accept(bit, seed, area, kind, &verdict);
        let refused = verdict.census.corruption();
        assert_eq!(refused, 0, "bit {bit}, {}: {verdict:?}", area.name());
    }
}

#[test]
fn every_bit_of_a_small_table() {
    every_bit("corruption::every_bit_of_a_small_table", Seek::Bracket);
}

#[test]
fn every_bit_of_a_small_table_with_checksum_on_seek() {
    every_bit(
        "corruption::every_bit_of_a_small_table_with_checksum_on_seek",
        Seek::EveryNode,
    );
}

/// Filters and index, together and one at a time.
#[test]
fn every_bit_of_filters_and_index() {
    let seed = seed_or(13);
    let _watchdog = Watchdog::new("corruption::every_bit_of_filters_and_index", seed);
    for accelerators in [Accelerators::Filters, Accelerators::Prefixes] {
        let model = Model::new(shape_with(accelerators, Seek::Bracket, 40, 5));
        let map = map(&model).accelerators_only();
        assert!(map.bits >= 1024);
        let stride = if cfg!(debug_assertions) { 149 } else { 1 };
        for bit in (seed % stride..map.bits).step_by(stride as usize) {
            let (area, kind, verdict) = run_case(&model, case(bit), |injector, _| {
                (map.flip_nth(injector, bit), plan::Kind::Flip)
            })
            .unwrap();
            accept(bit, seed, area, kind, &verdict);
            let noticed = verdict.detected || area.region == Region::Directory;
            assert!(
                verdict.answering.is_empty() && noticed,
                "bit {bit}: {verdict:?}"
            );
        }
    }
}

/// Words of both parts of a filter that grew.
#[test]
fn every_bit_of_a_filter_that_grew() {
    let seed = seed_or(29);
    let _watchdog = Watchdog::new("corruption::every_bit_of_a_filter_that_grew", seed);
    let model = Model::new(shape_with(Accelerators::Growing, Seek::Bracket, 400, 5));
    let map = map(&model).accelerators_only();
    // More than the words of 8 lines and their control words: a second part.
    assert!(map.bits > (8 + 1) * 512);
    let stride = if cfg!(debug_assertions) { 1201 } else { 41 };
    for bit in (seed % stride..map.bits).step_by(stride as usize) {
        let (area, kind, verdict) = run_case(&model, case(bit), |injector, _| {
            (map.flip_nth(injector, bit), plan::Kind::Flip)
        })
        .unwrap();
        accept(bit, seed, area, kind, &verdict);
        assert!(
            verdict.answering.is_empty() && verdict.detected,
            "bit {bit}: {verdict:?}"
        );
    }
}

/// No answer rests on the directory, and a scrub finds the damage that matters to its searches.
#[test]
fn every_bit_of_the_directory() {
    let seed = seed_or(23);
    let _watchdog = Watchdog::new("corruption::every_bit_of_the_directory", seed);
    let model = Model::new(shape_with(Accelerators::Directory, Seek::Bracket, 150, 5));
    let map = map(&model).accelerators_only();
    assert!(map.bits >= 4 * 64 * 64);
    let stride = if cfg!(debug_assertions) { 397 } else { 3 };
    let (mut faults, mut found) = (0, 0);
    for bit in (seed % stride..map.bits).step_by(stride as usize) {
        let (area, kind, verdict) = run_case(&model, case(bit), |injector, _| {
            (map.flip_nth(injector, bit), plan::Kind::Flip)
        })
        .unwrap();
        accept(bit, seed, area, kind, &verdict);
        assert!(verdict.answering.is_empty(), "bit {bit}: {verdict:?}");
        (faults, found) = (faults + 1, found + u32::from(verdict.detected));
    }
    assert!(found > faults / 4, "a scrub found {found} of {faults}");
}

/// Words and lines are zeroed, and blocks from other places copied over them.
#[test]
fn random_faults_in_filters_and_index() {
    let seed = seed_or(17);
    let _watchdog = Watchdog::new("corruption::random_faults_in_filters_and_index", seed);
    let kinds = [
        Accelerators::Filters,
        Accelerators::Prefixes,
        Accelerators::Directory,
        Accelerators::Growing,
    ];
    for accelerators in kinds {
        let entries = if accelerators == Accelerators::Growing {
            400
        } else {
            64
        };
        let model = Model::new(shape_with(accelerators, Seek::Bracket, entries, 5));
        let mut map = map(&model);
        let areas = map.areas.clone();
        map.cells
            .retain(|(area, _)| areas[*area].0.is_accelerator());
        random(&model, &map, seed, faults(1500, 60));
    }
}

#[test]
fn random_faults_of_every_kind() {
    let seed = seed_or(11);
    let _watchdog = Watchdog::new("corruption::random_faults_of_every_kind", seed);
    for accelerators in [
        Accelerators::Nothing,
        Accelerators::Filters,
        Accelerators::Directory,
    ] {
        let model = Model::new(shape_with(accelerators, Seek::Bracket, 64, 5));
        let map = map(&model);
        random(&model, &map, seed, faults(4000, 100));
    }
}

/// The number of faults. A fault takes milliseconds in a development build, so the number from the
/// environment would take too long there.
fn faults(optimised: u64, debug: u64) -> u64 {
    if cfg!(debug_assertions) {
        debug
    } else {
        amount(optimised, debug)
    }
}

fn random(model: &Model, map: &Map, seed: u64, faults: u64) {
    for number in 0..faults {
        let cell = number as usize % map.cells.len();
        let mut rng = Rng::new(seed ^ number.wrapping_mul(0x9e37_79b9));
        let stale = map.cells[cell].1.is_stale();
        let history = if stale {
            History::Noted
        } else {
            History::Forgotten
        };
        let turn = number / map.cells.len() as u64;
        let case = Case {
            history,
            turn,
            ..case(turn)
        };
        let (area, kind, verdict) = run_case(model, case, |injector, past| {
            map.strike(injector, past, cell, &mut rng)
        })
        .unwrap();
        accept(number, seed, area, kind, &verdict);
    }
}

/// Without digests answers may be wrong, but every scan ends, also one that searches past a damaged
/// key.
#[test]
fn without_protection_every_scan_ends() {
    let _watchdog = Watchdog::new("corruption::without_protection_every_scan_ends", 0);
    let stride = if cfg!(debug_assertions) { 13 } else { 1 };
    for entries in [24, 40] {
        let model = Model::new(Shape {
            protection: 0,
            ..shape(Seek::Bracket, entries, 1)
        });
        let table = model.table().unwrap();
        let injector = open(&table);
        let keys = (0..injector.pieces().len())
            .filter(|piece| injector.pieces()[*piece].region == Region::Key);
        let keys: Vec<(usize, usize)> = keys
            .map(|piece| (piece, injector.pieces()[piece].len()))
            .collect();
        drop(injector);
        for (piece, bit) in keys
            .into_iter()
            .flat_map(|(piece, len)| (0..8 * len).step_by(stride).map(move |bit| (piece, bit)))
        {
            let mutable = Case {
                frozen: Frozen::After,
                ..case(bit as u64)
            };
            let (area, _, verdict) = run_case(&model, mutable, |injector, _| {
                injector.flip(piece, bit);
                (Area::of(&injector.pieces()[piece]), plan::Kind::Flip)
            })
            .unwrap();
            assert_eq!(
                verdict.endless,
                None,
                "{}, piece {piece}, bit {bit}",
                area.name()
            );
        }
    }
}

type Tried = (Area, plan::Kind, Verdict);

fn flips<'m>(
    model: &'m Model,
    map: &'m Map,
    frozen: Frozen,
    seed: u64,
) -> impl Iterator<Item = (u64, Tried)> + 'm {
    let stride = if cfg!(debug_assertions) { 397 } else { 1 };
    (seed % stride..map.bits)
        .step_by(stride as usize)
        .map(move |bit| {
            let case = Case {
                frozen,
                ..case(bit)
            };
            (
                bit,
                run_case(model, case, |injector, _| {
                    (map.flip_nth(injector, bit), plan::Kind::Flip)
                })
                .unwrap(),
            )
        })
}

/// One flipped bit anywhere in an entry costs no answer, and is told.
#[test]
fn one_flipped_bit_costs_no_answer() {
    let model = Model::new(shape(Seek::Bracket, 40, 6));
    let entry = |area: Area| {
        let own = matches!(
            area.region,
            Region::Header | Region::Key | Region::Digests | Region::Value
        );
        own && area.part == Part::Points
    };
    let map = map(&model).only(entry);
    let mut flipped = 0;
    for (bit, (area, kind, verdict)) in flips(&model, &map, Frozen::Before, 0) {
        let verdict = verdict.of_bit((bit % 8) as u8);
        accept(bit, 0, area, kind, &verdict);
        assert!(
            verdict.census.corruption() == 0 && verdict.healed.len() == 1,
            "bit {bit}, {}: {verdict:?}",
            area.name()
        );
        flipped += 1;
    }
    assert!(
        flipped > if cfg!(debug_assertions) { 30 } else { 10_000 },
        "{flipped}"
    );
}

/// The control block is small, so every word of it is zeroed, in a table of one chunk and in one of
/// two.
#[test]
fn zeroed_control_words() {
    for entries in [12, 64] {
        let model = Model::new(shape(Seek::Bracket, entries, 9));
        let table = model.table().unwrap();
        let injector = open(&table);
        let words = (0..injector.pieces().len())
            .filter(|piece| injector.pieces()[*piece].region == Region::Control);
        for word in words
            .step_by(if cfg!(debug_assertions) { 3 } else { 1 })
            .collect::<Vec<_>>()
        {
            for frozen in [Frozen::Before, Frozen::After] {
                let strike = |injector: &mut FaultInjector<'_>, _: &Past| {
                    injector.zero_word(word, 0);
                    (Area::of(&injector.pieces()[word]), plan::Kind::Zero)
                };
                let case = Case {
                    frozen,
                    ..case(word as u64)
                };
                let (area, kind, verdict) = run_case(&model, case, strike).unwrap();
                accept(word as u64, entries as u64, area, kind, &verdict);
            }
        }
    }
}

/// The result of a step of a range: a key, an error (`?`), or the end (`-`).
fn printed<'t>(step: Option<Result<Entry<'t>, Error>>) -> String {
    step.map_or("-".into(), |entry| {
        entry.map_or("?".into(), |entry| {
            entry.user_key().escape_ascii().to_string()
        })
    })
}

fn flip_key(table: &MemTable, key: &[u8]) {
    let mut injector = open(table);
    let own = |piece: &paranoid_memtable::fault::Piece| {
        piece.region == Region::Key && piece.owner.as_ref().is_some_and(|owner| *owner.key == *key)
    };
    let piece = injector.pieces().iter().position(own).unwrap();
    // One bit would heal.
    [0, 1].into_iter().for_each(|bit| injector.flip(piece, bit));
}

fn of_three() -> MemTable {
    let options = MemTableOptions::builder().seed(1).build().unwrap();
    let table = MemTable::new(options).unwrap();
    for (sequence, key) in (1..).zip([b"a", b"b", b"c"]) {
        table.put(sequence, key, key).unwrap();
    }
    table
}

/// An end meets an entry that the other end has shown and that was damaged since: the range is
/// over.
#[test]
fn an_end_stops_at_what_the_other_one_has_shown() {
    let table = of_three();
    let mut range = table.range(..);
    let shown = [printed(range.next()), printed(range.next())];
    flip_key(&table, b"b");
    let rest = [
        printed(range.next_back()),
        printed(range.next_back()),
        printed(range.next()),
    ];
    assert_eq!(
        (shown.join(" "), rest.join(" ")),
        ("a b".into(), "c - -".into())
    );
}

/// An entry is verified when it is pinned, not only when it is found.
#[cfg(feature = "bytes")]
#[test]
fn a_damaged_entry_is_not_pinned() {
    let table = of_three();
    let entry = table.get_entry("b", 9).unwrap().unwrap();
    assert!(table.pin(&entry).is_ok());
    flip_key(&table, b"b");
    assert!(table.pin(&entry).unwrap_err().corruption().is_some());
}

#[test]
fn undamaged_tables_are_silent() {
    for seed in 0..5 {
        let accelerators = [
            Accelerators::Nothing,
            Accelerators::Filters,
            Accelerators::Prefixes,
            Accelerators::Directory,
            Accelerators::Growing,
        ][seed as usize % 5];
        for seek in [Seek::Bracket, Seek::EveryNode] {
            let model = Model::new(shape_with(accelerators, seek, 100, seed));
            let area = map(&model).areas[0].0;
            for frozen in [Frozen::Before, Frozen::After] {
                let case = Case {
                    frozen,
                    ..case(seed)
                };
                let (_, _, verdict) =
                    run_case(&model, case, |_, _| (area, plan::Kind::Flip)).unwrap();
                assert!(!verdict.detected, "seed {seed}: {verdict:?}");
                accept(0, seed, area, plan::Kind::Flip, &verdict);
            }
        }
    }
}

struct Nothing;

impl FlushSink for Nothing {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A table of a, b and c in which these words have the values from before b was written. No tag
/// notices that.
fn with_old_words(words: &[(Region, &[u8])]) -> MemTable {
    let table = MemTable::new(MemTableOptions::builder().seed(1).build().unwrap()).unwrap();
    let find = |injector: &FaultInjector<'_>, (region, key): (Region, &[u8])| {
        let matches = |piece: &paranoid_memtable::fault::Piece| {
            let owner = piece.owner.as_ref().map(|owner| &*owner.key);
            piece.region == region && piece.level == 0 && owner == Some(key)
        };
        injector.pieces().iter().position(matches).unwrap()
    };
    table.put(1, b"a", b"1").unwrap();
    table.put(2, b"c", b"3").unwrap();
    let injector = open(&table);
    let old: Vec<_> = words
        .iter()
        .map(|word| injector.bytes(find(&injector, *word)))
        .collect();
    drop(injector);
    table.put(3, b"b", b"2").unwrap();
    let mut injector = open(&table);
    for (word, old) in words.iter().zip(old) {
        let word = find(&injector, *word);
        injector.overwrite(word, &old);
    }
    table
}

/// The link from `a` skips `b`, and its back link agrees: only the sums show it.
fn without_a_witness() -> MemTable {
    with_old_words(&[(Region::Link, b"a"), (Region::BackLink, b"c")])
}

#[test]
fn an_old_back_link_is_confirmed() {
    let table = with_old_words(&[(Region::BackLink, b"c")]);
    let keys: Vec<Vec<u8>> = table
        .range(..)
        .rev()
        .map(|entry| entry.unwrap().user_key().to_vec())
        .collect();
    assert_eq!(keys, [b"c", b"b", b"a"]);
}

#[test]
fn an_old_link_is_noticed() {
    let is_link = |error: Error| {
        error
            .corruption()
            .is_some_and(|report| report.place == Place::Link)
    };
    let table = with_old_words(&[(Region::Link, b"a")]);
    assert!(is_link(table.get(b"b", 9).map(drop).unwrap_err()));
    assert!(is_link(table.put(4, b"aa", b"4").map(drop).unwrap_err()));
    assert!(table.get(b"c", 9).is_ok() && table.get(b"a", 9).is_ok());
    let printed: Vec<_> = table
        .range(..)
        .map(|entry| {
            entry
                .map(|entry| entry.user_key().to_vec())
                .map_err(is_link)
        })
        .collect();
    assert_eq!(
        printed,
        [
            Ok(b"a".to_vec()),
            Err(true),
            Ok(b"b".to_vec()),
            Ok(b"c".to_vec())
        ]
    );
    let report = table.scrub(|_| {});
    assert_eq!((report.entries, report.findings.len()), (3, 1));
    assert_eq!(report.findings[0].place, Place::Link);
    assert!(is_link(
        table
            .freeze()
            .unwrap()
            .flush(Versions::SeenBy(&[]), &mut Nothing)
            .map(drop)
            .unwrap_err()
    ));
}

#[test]
fn sums_notice_what_is_not_there() {
    let frozen = without_a_witness().freeze().unwrap();
    let error = frozen
        .flush(Versions::SeenBy(&[]), &mut Nothing)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Corruption(Corruption {
                place: Place::Sum,
                ..
            })
        ),
        "{error}"
    );
    let findings = frozen.scrub(|_| {}).findings;
    assert!(
        findings.iter().any(|finding| finding.place == Place::Sum),
        "{findings:?}"
    );
}

#[test]
fn a_salvage_looks_through_the_arena() {
    let frozen = without_a_witness().freeze().unwrap();
    let salvage = frozen.salvage();
    let keys: Vec<&[u8]> = salvage
        .entries
        .iter()
        .map(|salvaged| salvaged.entry.user_key())
        .collect();
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert_eq!((salvage.reach, salvage.missing), (Reach::Arena, 0));
}

#[test]
fn a_scrub_reports_every_finding() {
    let model = Model::new(shape(Seek::Bracket, 40, 1));
    let table = model.table().unwrap();
    let mut injector = open(&table);
    let values = injector
        .pieces()
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.region == Region::Value);
    let values: Vec<usize> = values.map(|(place, _)| place).collect();
    values.iter().for_each(|value| injector.flip(*value, 5));
    let points = values
        .iter()
        .filter(|value| injector.pieces()[**value].part == Part::Points)
        .count();
    assert!(points > 10);
    let findings = table.scrub(|_| {}).findings;
    let found = findings
        .iter()
        .filter(|finding| finding.place == Place::Value);
    assert_eq!(found.clone().count(), values.len());
    assert!(found.clone().all(|finding| finding.flipped_bit.is_some()));
    injector.undo();
    assert!(table.scrub(|_| {}).check().is_ok());
}

#[test]
fn the_injector_undoes_what_it_did() {
    let model = Model::new(shape(Seek::Bracket, 30, 2));
    let table = model.table().unwrap();
    let map = map(&model);
    let mut injector = open(&table);
    let whole = |injector: &FaultInjector<'_>| {
        (0..injector.pieces().len())
            .map(|p| injector.bytes(p))
            .collect::<Vec<_>>()
    };
    let before = whole(&injector);
    for number in 0..300u64 {
        map.strike(
            &mut injector,
            &Past::default(),
            number as usize % map.cells.len(),
            &mut Rng::new(number),
        );
    }
    assert!(!injector.changed().is_empty());
    injector.undo();
    assert!(injector.changed().is_empty());
    assert_eq!(whole(&injector), before);
}

#[test]
fn a_flush_keeps_what_was_asked_for() {
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    for sequence in 1..=9 {
        table.put(sequence, b"key", [sequence as u8]).unwrap();
    }
    let frozen = table.freeze().unwrap();
    let kept = |versions| frozen.flush(versions, &mut Nothing).unwrap().entries;
    assert_eq!(kept(Versions::All), 9);
    assert_eq!(kept(Versions::SeenBy(&[])), 1);
    assert_eq!(kept(Versions::SeenBy(&[8, 2, 5])), 4);
}

#[test]
fn a_caller_digest_is_compared_before_publication() {
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    let caller_digest = Protected::of(b"key", b"value", Kind::PUT).with_sequence(1);
    let error = table
        .insert_parts(1, Kind::PUT, b"key", &[b"valuf"], Some(caller_digest))
        .unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    assert_eq!(table.len(), 0);
    table
        .insert_parts(1, Kind::PUT, b"key", &[b"value"], Some(caller_digest))
        .unwrap();
}

/// The control block: a word that was copied from another place of it, exchanged, flipped, or has
/// an earlier value again, is not used.
///
/// The faults are every 16 aligned bytes and every line of 64 bytes over every other one, every
/// pair of words exchanged, every bit, and each word and line as before each write. Release builds
/// run all of them, debug builds a share that `PARANOID_TEST_SEED` selects. The tables have one
/// chunk, two or many, and are frozen or not. Longer copies, which include all words and checks of
/// a filter or a writer shard, have a test of their own.
mod control {
    use paranoid_memtable::fault::{FaultInjector, Part};
    use paranoid_memtable::integrity::Repair;
    use paranoid_memtable::{Error, MemTable, MemTableOptions, WriteBatch};

    use super::damage::model::{Accelerators, Model, Shape};
    use super::damage::plan::{Area, Kind, copy_pieces, swap};
    use super::damage::{Frozen, run_fault, run_fault_on};
    use crate::support::rng::{Watchdog, seed_or};

    /// A fault of the control block. Numbers are indexes of pieces.
    #[derive(Debug, Clone, Copy)]
    enum Fault {
        Copy {
            from: usize,
            to: usize,
            len: usize,
        },
        /// Copies several lines of the block, each over the line at the same distance from the
        /// target.
        CopyLines {
            from: usize,
            to: usize,
            count: usize,
        },
        Swap {
            left: usize,
            right: usize,
        },
        SwapLines {
            left: usize,
            right: usize,
        },
        Flip {
            piece: usize,
            bit: usize,
        },
    }

    /// A table's life up to the damage.
    #[derive(Debug, Clone, Copy)]
    struct Stage {
        entries: usize,
        accelerators: Accelerators,
        frozen: Frozen,
        /// One fault in this number is tried: in a debug build, and in a release build.
        share: (usize, usize),
    }

    const fn stage(entries: usize, frozen: Frozen, share: (usize, usize)) -> Stage {
        Stage {
            entries,
            accelerators: Accelerators::Nothing,
            frozen,
            share,
        }
    }

    const STAGES: [Stage; 7] = [
        stage(12, Frozen::After, (151, 1)),
        stage(12, Frozen::Before, (151, 1)),
        stage(40, Frozen::After, (521, 5)),
        stage(40, Frozen::Before, (521, 5)),
        stage(1300, Frozen::After, (50_021, 2003)),
        stage(1300, Frozen::Before, (50_021, 2003)),
        Stage {
            accelerators: Accelerators::Filters,
            ..stage(20, Frozen::After, (521, 5))
        },
    ];

    fn model_of(stage: &Stage) -> Model {
        let Stage {
            entries,
            accelerators,
            ..
        } = *stage;
        let (on_seek, order_checks) = (false, false);
        Model::new(Shape {
            on_seek,
            order_checks,
            accelerators,
            ..Shape::plain(entries, 7)
        })
    }

    fn open(table: &MemTable) -> FaultInjector<'_> {
        // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let injector = unsafe { FaultInjector::open(table) };
        injector.unwrap()
    }

    fn control_pieces(injector: &FaultInjector<'_>) -> Vec<usize> {
        let control = |piece: &usize| injector.pieces()[*piece].part == Part::Control;
        (0..injector.pieces().len()).filter(control).collect()
    }

    /// The pieces of the control block, by line.
    fn lines(injector: &FaultInjector<'_>) -> Vec<Vec<usize>> {
        let mut lines: Vec<Vec<usize>> = Vec::new();
        for piece in control_pieces(injector) {
            let place = |piece: &usize| injector.place_in_line(*piece);
            match lines.last_mut() {
                Some(line) if line.last().is_some_and(|last| place(last) < place(&piece)) => {
                    line.push(piece)
                }
                _ => lines.push(vec![piece]),
            }
        }
        lines
    }

    /// Every fault that changes something.
    fn faults(model: &Model, frozen: Frozen) -> Vec<Fault> {
        let table = model.table().unwrap();
        if frozen == Frozen::Before {
            table.freeze().unwrap();
        }
        let injector = open(&table);
        let pieces = control_pieces(&injector);
        let mut faults = Vec::new();
        let starts = |len: usize| pieces.iter().copied().filter(move |_| len > 0);
        for (len, step) in [(16, 2), (64, 8)] {
            let aligned = |piece: &usize| injector.place_in_line(*piece).is_multiple_of(step);
            let starts: Vec<usize> = starts(len).filter(aligned).collect();
            for from in &starts {
                let others = starts.iter().filter(|to| *to != from);
                faults.extend(others.map(|to| Fault::Copy {
                    from: *from,
                    to: *to,
                    len,
                }));
            }
        }
        for (index, left) in pieces.iter().enumerate() {
            let others = pieces[index + 1..]
                .iter()
                .filter(|right| injector.bytes(*left) != injector.bytes(**right));
            faults.extend(others.map(|right| Fault::Swap {
                left: *left,
                right: *right,
            }));
        }
        let bits = pieces
            .iter()
            .flat_map(|piece| (0..8 * injector.bytes(*piece).len()).map(move |bit| (*piece, bit)));
        faults.extend(bits.map(|(piece, bit)| Fault::Flip { piece, bit }));
        faults
    }

    fn strike(injector: &mut FaultInjector<'_>, fault: Fault) -> (Area, Kind) {
        let (piece, kind) = match fault {
            Fault::Copy { from, to, len } => {
                injector.copy(from, to, len);
                (to, Kind::Copy)
            }
            Fault::CopyLines { from, to, count } => {
                let lines = lines(injector);
                for (from, to) in lines[from..].iter().zip(&lines[to..]).take(count) {
                    copy_pieces(injector, from[0], to[0], from.len().min(to.len()));
                }
                (lines[to][0], Kind::Copy)
            }
            Fault::Swap { left, right } => {
                swap(injector, left, right);
                (left, Kind::SwapLinks)
            }
            Fault::SwapLines { left, right } => {
                let lines = lines(injector);
                for (left, right) in lines[left].iter().zip(&lines[right]) {
                    swap(injector, *left, *right);
                }
                (lines[left][0], Kind::SwapControl)
            }
            Fault::Flip { piece, bit } => {
                injector.flip(piece, bit);
                (piece, Kind::Flip)
            }
        };
        (Area::of(&injector.pieces()[piece]), kind)
    }

    fn try_stages(test: &str, stages: &[Stage]) {
        for stage in stages {
            let model = model_of(stage);
            let faults = faults(&model, stage.frozen);
            assert!(faults.len() > 5000, "{}", faults.len());
            try_faults(test, stage, &model, &faults);
        }
    }

    fn try_faults(test: &str, stage: &Stage, model: &Model, faults: &[Fault]) {
        let seed = seed_or(29);
        let _watchdog = Watchdog::new(test, seed);
        let share = if cfg!(debug_assertions) {
            stage.share.0
        } else {
            stage.share.1
        };
        for fault in faults.iter().skip(seed as usize % share).step_by(share) {
            let verdict = run_fault(model, stage.frozen, |injector| strike(injector, *fault));
            let (_, _, verdict) = verdict.unwrap();
            let fine = verdict.wrong.is_none() && verdict.endless.is_none();
            assert!(fine, "{fault:?}, {stage:?}, seed {seed:#x}: {verdict:?}");
        }
    }

    /// Words and lines are copied from another place of the block, words exchanged, and every bit
    /// flipped.
    #[test]
    fn no_place_of_the_control_block_passes_for_another() {
        try_stages(
            "corruption::control::no_place_of_the_control_block_passes_for_another",
            &STAGES[..4],
        );
    }

    #[test]
    fn no_place_of_a_large_tables_control_block_passes_for_another() {
        try_stages(
            "corruption::control::no_place_of_a_large_tables_control_block_passes_for_another",
            &STAGES[4..6],
        );
    }

    /// Lines of the control block change places; the salt's changes with each other one. Bounds
    /// rest on the sizes there.
    #[test]
    fn no_line_of_the_control_block_changes_places() {
        let test = "corruption::control::no_line_of_the_control_block_changes_places";
        for stage in [
            stage(20, Frozen::After, (3, 1)),
            stage(20, Frozen::Before, (3, 1)),
        ] {
            let model = model_of(&stage);
            let lines = lines(&open(&model.table().unwrap())).len();
            let pairs =
                (0..lines).flat_map(|left| (left + 1..lines).map(move |right| (left, right)));
            let swaps = pairs.map(|(left, right)| Fault::SwapLines { left, right });
            let (salt, others): (Vec<Fault>, Vec<Fault>) =
                swaps.partition(|swap| matches!(swap, Fault::SwapLines { left: 0, .. }));
            try_faults(
                test,
                &Stage {
                    share: (1, 1),
                    ..stage
                },
                &model,
                &salt,
            );
            try_faults(test, &stage, &model, &others);
        }
    }

    #[test]
    fn no_control_word_of_filters_and_index_passes_for_another() {
        try_stages(
            "corruption::control::no_control_word_of_filters_and_index_passes_for_another",
            &STAGES[6..],
        );
    }

    /// Words move together with their checks if a copy is long enough: 2 to 8 lines of 64 bytes.
    /// Whole filters and shards, which are two lines each at the end of the list, are copied over
    /// each other: this test always runs all of these.
    #[test]
    fn no_group_of_control_words_passes_for_another() {
        let test = "corruption::control::no_group_of_control_words_passes_for_another";
        let stages = [
            Stage {
                accelerators: Accelerators::Filters,
                ..stage(20, Frozen::After, (499, 1))
            },
            Stage {
                accelerators: Accelerators::Filters,
                ..stage(20, Frozen::Before, (997, 1))
            },
        ];
        for stage in stages {
            let model = model_of(&stage);
            let table = model.table().unwrap();
            let lines = lines(&open(&table)).len();
            let groups = lines - 2 * 10;
            let pairs = (0..lines).flat_map(|from| (0..lines).map(move |to| (from, to)));
            let pairs = pairs.filter(|(from, to)| from != to);
            let copies =
                |(from, to)| [2, 3, 4, 6, 8].map(|count| Fault::CopyLines { from, to, count });
            let is_whole = |fault: &Fault| match *fault {
                Fault::CopyLines { from, to, count: 2 } => [from, to]
                    .iter()
                    .all(|line| *line >= groups && (line - groups).is_multiple_of(2)),
                _ => false,
            };
            let (whole, others): (Vec<Fault>, Vec<Fault>) =
                pairs.flat_map(copies).partition(is_whole);
            try_faults(
                test,
                &Stage {
                    share: (1, 1),
                    ..stage
                },
                &model,
                &whole,
            );
            try_faults(test, &stage, &model, &others);
        }
    }

    /// The contents of some pieces before a write.
    type Old = Vec<(usize, Vec<u8>)>;

    /// The words and lines of the control block that had another content before some write, and the
    /// number of that write. The freeze has the last number.
    fn earlier(model: &Model, frozen: Frozen) -> Vec<(usize, Vec<usize>)> {
        let lines = lines(&open(&model.table().unwrap()));
        let mut groups: Vec<Vec<usize>> =
            lines.iter().flatten().map(|piece| vec![*piece]).collect();
        groups.extend(lines.into_iter().filter(|line| line.len() > 1));
        let first = groups[0][0];
        // A group has no content before its words are made. Those of writer shards are made by the
        // first write.
        let mut history: Vec<Vec<Option<Vec<u8>>>> = Vec::new();
        let mut look = |table: &MemTable| {
            let injector = open(table);
            let pieces = control_pieces(&injector);
            // Pieces of the arena come and go with entries, so the block is found from the end of
            // the list.
            let bytes = |piece: &usize| {
                pieces
                    .get(piece - first)
                    .map(|piece| injector.bytes(*piece))
            };
            let held = |group: &Vec<usize>| {
                Some(
                    group
                        .iter()
                        .map(bytes)
                        .collect::<Option<Vec<_>>>()?
                        .concat(),
                )
            };
            history.push(groups.iter().map(held).collect());
        };
        let table = model.table_watched(|_, table| look(table)).unwrap();
        look(&table);
        if frozen == Frozen::Before {
            table.freeze().unwrap();
            look(&table);
        }
        let now = history.pop().unwrap();
        let mut found = Vec::new();
        for (number, then) in history.iter().enumerate() {
            for (group, held) in then.iter().enumerate() {
                let known = history[..number]
                    .iter()
                    .any(|before| before[group] == *held);
                if !known && held.is_some() && *held != now[group] {
                    found.push((
                        number,
                        groups[group].iter().map(|piece| piece - first).collect(),
                    ));
                }
            }
        }
        found
    }

    /// The fault model's lost write: a word or a line has its content from before some write.
    #[test]
    fn a_control_word_that_went_back_is_noticed() {
        let seed = seed_or(31);
        let mut tried = 0;
        for stage in [&STAGES[..4], &STAGES[6..]].concat() {
            let _watchdog = Watchdog::new(
                "corruption::control::a_control_word_that_went_back_is_noticed",
                seed,
            );
            let model = model_of(&stage);
            let share = if cfg!(debug_assertions) && stage.entries > 12 {
                11
            } else {
                1
            };
            let all = earlier(&model, stage.frozen);
            for (number, group) in all.iter().skip(seed as usize % share).step_by(share) {
                let mut old: Old = Vec::new();
                let mut look = |table: &MemTable| {
                    let injector = open(table);
                    let first = control_pieces(&injector)[0];
                    old = group
                        .iter()
                        .map(|piece| (*piece, injector.bytes(first + piece)))
                        .collect();
                };
                let table = model
                    .table_watched(|now, table| {
                        if now == *number {
                            look(table)
                        }
                    })
                    .unwrap();
                if *number == model.writes.len() {
                    look(&table);
                }
                let (_, _, verdict) = run_fault_on(&model, stage.frozen, &table, |injector| {
                    let first = control_pieces(injector)[0];
                    old.iter()
                        .for_each(|(piece, bytes)| injector.overwrite(first + piece, bytes));
                    (Area::of(&injector.pieces()[first]), Kind::Zero)
                })
                .unwrap();
                let fine = verdict.wrong.is_none() && verdict.endless.is_none();
                assert!(
                    fine,
                    "{group:?} as before write {number}, {stage:?}, seed {seed:#x}: {verdict:?}"
                );
                tried += 1;
            }
        }
        assert!(tried > 50, "{tried}");
    }

    /// A range deletion reads a control word that no put reads. A batch with such a word damaged is
    /// refused before its first put is linked.
    #[test]
    fn a_batch_with_a_range_asks_every_control_word_first() {
        let test = "corruption::control::a_batch_with_a_range_asks_every_control_word_first";
        let _watchdog = Watchdog::new(test, 0);
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        batch.delete_range(b"b", b"c").unwrap();
        let mut refused = 0;
        // With repair, the word is put right.
        let options = MemTableOptions::builder().repair(Repair::Off);
        let table = || MemTable::new(options.clone().build().unwrap()).unwrap();
        for piece in control_pieces(&open(&table())) {
            let table = table();
            let mut injector = open(&table);
            injector.flip(piece, 5);
            drop(injector);
            if let Err(error) = table.write_batch(1, &batch) {
                assert!(matches!(error, Error::Corruption(_)), "{error}");
                assert_eq!(table.len(), 0);
                refused += 1;
            }
        }
        assert!(refused > 3, "{refused}");
    }
}
