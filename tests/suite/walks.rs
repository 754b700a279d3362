//! Walks of every kind over small tables with one flipped bit: before the walk, and while it is
//! parked. Every bit of every piece; both ends of double-ended ranges in all patterns of eight
//! steps.
//!
//! Debug builds take only some bits; `PARANOID_TEST_SEED` moves the choice.

use std::ops::Bound;

use paranoid_memtable::Cursor;
use paranoid_memtable::fault::{FaultInjector, Piece, Region};
use paranoid_memtable::scan::{Handle, Visibility};
use paranoid_memtable::{
    Bytewise, DuplicatePolicy, Entry, Error, Kind, Lookup, MemTable, MemTableOptions, WriteBatch,
};
use paranoid_set::{MemTableSet, SetOptions};

use crate::support::case::End;
use crate::support::model::{Model, Row};
use crate::support::rng::{Watchdog, replay_line, seed_or};
use crate::support::walks::ends::{
    Allowed, Came, Reported, Step, both_ends, check_walks, judge, one_end, steps,
};

/// A table, and the time of its freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    policy: DuplicatePolicy,
    is_frozen: bool,
    pub(crate) order_checks: bool,
    writes: &'static [(&'static str, u64, Kind, &'static str)],
}

/// Five entries, one version each.
const PLAIN: &[(&str, u64, Kind, &str)] = &[
    ("c", 5, Kind::PUT, "cc"),
    ("a", 2, Kind::PUT, "aa"),
    ("e", 9, Kind::PUT, "ee"),
    ("b", 4, Kind::PUT, ""),
    ("d", 7, Kind::PUT, "a longer value"),
];

/// Overwrites: of equal entries the last one counts.
const REPLACED: &[(&str, u64, Kind, &str)] = &[
    ("b", 3, Kind::PUT, "b0"),
    ("a", 2, Kind::PUT, "a0"),
    ("c", 4, Kind::PUT, "c0"),
    ("b", 3, Kind::PUT, "b1"),
    ("c", 4, Kind::PUT, "c1"),
    ("c", 4, Kind::PUT, "c2"),
    ("b", 6, Kind::PUT, "b6"),
    ("d", 5, Kind::PUT, "d0"),
    ("d", 5, Kind::PUT, "d1"),
];

/// Versions, deletes and range tombstones.
const VERSIONS: &[(&str, u64, Kind, &str)] = &[
    ("a", 2, Kind::PUT, "a2"),
    ("c", 3, Kind::PUT, "c3"),
    ("b", 4, Kind::PUT, "b4"),
    ("d", 5, Kind::PUT, "d5"),
    ("bb", 6, Kind::RANGE_DELETE, "cc"),
    ("c", 7, Kind::PUT, "c7"),
    ("d", 8, Kind::DELETE, ""),
    ("c", 9, Kind::PUT, "c9"),
    ("e", 10, Kind::MERGE, "e10"),
    ("a", 11, Kind::RANGE_DELETE, "aa"),
];

/// Only versions.
const OLDER: &[(&str, u64, Kind, &str)] = &[
    ("c", 3, Kind::PUT, "c3"),
    ("b", 5, Kind::PUT, "b5"),
    ("c", 7, Kind::PUT, "c7"),
    ("d", 4, Kind::PUT, "d4"),
    ("c", 9, Kind::PUT, "c9"),
];

pub(crate) const SNAPSHOTS: [u64; 4] = [4, 6, 8, u64::MAX];

impl Setup {
    pub(crate) fn all() -> Vec<Setup> {
        let mut all = vec![];
        for is_frozen in [false, true] {
            for (policy, order_checks, writes) in [
                (DuplicatePolicy::Reject, false, PLAIN),
                (DuplicatePolicy::Replace, false, REPLACED),
                (DuplicatePolicy::Reject, false, VERSIONS),
                (DuplicatePolicy::Reject, true, OLDER),
            ] {
                all.push(Setup {
                    policy,
                    is_frozen,
                    order_checks,
                    writes,
                });
            }
        }
        all
    }

    pub(crate) fn make(&self) -> (MemTable, Model<Bytewise>) {
        let options = MemTableOptions::builder().duplicates(self.policy);
        let options = options
            .write_buffer_size(16 << 10)
            .order_checks(self.order_checks)
            .seed(7)
            .build()
            .unwrap();
        let (table, mut model) = (MemTable::new(options).unwrap(), Model::new(self.policy));
        for (key, sequence, kind, value) in self.writes {
            let (key, value) = (key.as_bytes(), value.as_bytes());
            table.insert(*sequence, *kind, key, value).unwrap();
            model.write(&Row {
                key: key.to_vec(),
                sequence: *sequence,
                kind: *kind,
                value: value.to_vec(),
            });
        }
        if self.is_frozen {
            table.freeze().unwrap();
        }
        (table, model)
    }
}

pub(crate) fn open(table: &MemTable) -> FaultInjector<'_> {
    // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it while
    // the fault injector works.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

const EVERYTHING: (End, End) = ((0, Vec::new()), (0, Vec::new()));

/// (piece, bit) of all pieces of a fault injector; only a few bits of long pieces without entries.
pub(crate) fn bits(injector: &FaultInjector<'_>, stride: usize, seed: u64) -> Vec<(usize, usize)> {
    let mut bits = vec![];
    for (number, piece) in injector.pieces().iter().enumerate() {
        let dull = matches!(
            piece.region,
            Region::Free | Region::TombstoneIndex | Region::Control | Region::HeadLink
        );
        let stride = if dull { 61 * stride.min(3) } else { stride };
        bits.extend(
            (0..piece.len() * 8)
                .skip((seed as usize + number) % stride)
                .step_by(stride)
                .map(|bit| (number, bit)),
        );
    }
    bits
}

pub(crate) fn stride(debug: usize) -> usize {
    if cfg!(debug_assertions) { debug } else { 1 }
}

/// The damage comes before the walk.
#[test]
fn every_flipped_bit_under_every_walk() {
    let test = "walks::every_flipped_bit_under_every_walk";
    let seed = seed_or(3);
    let _watchdog = Watchdog::new(test, seed);
    for setup in Setup::all() {
        let (table, model) = setup.make();
        let mut injector = open(&table);
        check_walks(
            &table,
            &model,
            &SNAPSHOTS,
            (&EVERYTHING.0, &EVERYTHING.1),
            (0b0110_1001, 8),
            &Allowed::default(),
        )
        .unwrap();
        for (number, (piece, bit)) in bits(&injector, stride(67), seed).into_iter().enumerate() {
            injector.flip(piece, bit);
            let allowed = Allowed::of(&injector);
            for pattern in [0x55, 0xff, seed.wrapping_add(37 * number as u64) & 0xff] {
                let ends = (&EVERYTHING.0, &EVERYTHING.1);
                let verdict = check_walks(&table, &model, &SNAPSHOTS, ends, (pattern, 8), &allowed);
                verdict.unwrap_or_else(|text| {
                    let Piece { region, part, level, owner, .. } = &injector.pieces()[piece];
                    panic!(
                        "{setup:?}\n{part:?} {region:?} level {level} of {owner:?}, bit {bit}: {text}\nreplay: {}",
                        replay_line(test, seed)
                    )
                });
            }
            injector.undo();
        }
    }
}

/// All patterns of eight steps, for one bit of each region of each entry, also between bounds.
#[test]
fn every_pattern_of_both_ends() {
    let test = "walks::every_pattern_of_both_ends";
    let seed = seed_or(4);
    let _watchdog = Watchdog::new(test, seed);
    let ends: [(End, End); 3] = [
        EVERYTHING,
        ((1, b"b".to_vec()), (2, b"e".to_vec())),
        ((2, b"a".to_vec()), (1, b"d".to_vec())),
    ];
    for setup in Setup::all() {
        let (table, model) = setup.make();
        let mut injector = open(&table);
        let pieces: Vec<usize> = (0..injector.pieces().len())
            .filter(|piece| injector.pieces()[*piece].owner.is_some())
            .collect();
        for piece in pieces {
            injector.flip(piece, seed as usize + 7 * piece);
            let allowed = Allowed::of(&injector);
            for pattern in (seed % 5..256).step_by(stride(45)) {
                let (start, end) = &ends[pattern as usize % ends.len()];
                let verdict = check_walks(
                    &table,
                    &model,
                    &SNAPSHOTS[2..],
                    (start, end),
                    (pattern, 8),
                    &allowed,
                );
                verdict.unwrap_or_else(|text| {
                    let what = &injector.pieces()[piece];
                    panic!(
                        "{setup:?}\n{what:?}: {text}\nreplay: {}",
                        replay_line(test, seed)
                    )
                });
            }
            injector.undo();
        }
    }
}

/// A parked cursor verifies its entry when it returns it, and when it steps from it.
fn parked<H: Handle, L: Visibility>(
    injector: &mut FaultInjector<'_>,
    (piece, bit): (usize, usize),
    mut cursor: Cursor<H, L>,
    (rows, snapshot): (&[&Row], Option<u64>),
    (stops, step): (usize, Step),
) -> Result<(), String> {
    let mut entry = cursor.first().unwrap().is_some();
    for _ in 0..stops {
        entry = cursor.next().unwrap().is_some();
    }
    assert!(entry);
    injector.flip(piece, bit);
    let allowed = Allowed {
        anything: false,
        rows: Allowed::of(injector).rows,
        ..Allowed::of(injector)
    };
    let row = rows[stops];
    match cursor.entry() {
        Err(error) if error.corruption().is_some() => {}
        Ok(Some(entry)) if entry.user_key() == row.key && entry.sequence() == row.sequence => {
            if entry.value().is_ok_and(|value| value != row.value) {
                return Err(format!("the value of {row:?} is wrong"));
            }
        }
        other => return Err(format!("{other:?} instead of {row:?}")),
    }
    let mut came = steps(&mut cursor, step, rows.len())?;
    let rest = match step {
        Step::Next => &rows[stops + 1..],
        Step::Prev => {
            came.reverse();
            &rows[..stops]
        }
    };
    judge(&came, rest, snapshot, &allowed, Reported::InPlace)
        .map_err(|text| format!("{step:?} from {row:?}: {text}: {came:?}"))
}

#[test]
fn a_parked_cursor_verifies_again() {
    let test = "walks::a_parked_cursor_verifies_again";
    let seed = seed_or(5);
    let _watchdog = Watchdog::new(test, seed);
    for setup in Setup::all() {
        let (table, model) = setup.make();
        let mut injector = open(&table);
        for (number, bit) in bits(&injector, stride(29), seed).into_iter().enumerate() {
            if injector.pieces()[bit.0].owner.is_none() {
                continue;
            }
            let step = if number % 2 == 0 {
                Step::Next
            } else {
                Step::Prev
            };
            let raw = model.raw();
            for stops in 0..raw.len() {
                let what = (raw.as_slice(), None);
                let verdict = if stops % 2 == 0 {
                    parked(&mut injector, bit, table.cursor(), what, (stops, step))
                } else {
                    parked(
                        &mut injector,
                        bit,
                        table.cursor().owned(),
                        what,
                        (stops, step),
                    )
                };
                verdict.unwrap_or_else(|text| {
                    panic!(
                        "{setup:?}\n{:?} bit {}: {text}\nreplay: {}",
                        injector.pieces()[bit.0],
                        bit.1,
                        replay_line(test, seed)
                    )
                });
                injector.undo();
            }
            for snapshot in SNAPSHOTS {
                let rows = model.resolved(snapshot);
                for stops in 0..rows.len() {
                    let what = (rows.as_slice(), Some(snapshot));
                    let verdict = parked(
                        &mut injector,
                        bit,
                        table.cursor_at(snapshot),
                        what,
                        (stops, step),
                    );
                    verdict.unwrap_or_else(|text| {
                        panic!(
                            "{setup:?}\n{:?} bit {} at {snapshot}: {text}\nreplay: {}",
                            injector.pieces()[bit.0],
                            bit.1,
                            replay_line(test, seed)
                        )
                    });
                    injector.undo();
                }
            }
        }
    }
}

/// Parked ranges: the damage comes after some steps.
#[test]
fn a_parked_range_verifies_again() {
    let test = "walks::a_parked_range_verifies_again";
    let seed = seed_or(6);
    let _watchdog = Watchdog::new(test, seed);
    for setup in Setup::all() {
        let (table, model) = setup.make();
        let rows = model.raw();
        let mut down = rows.clone();
        down.sort_by(|a, b| b.key.cmp(&a.key).then(b.sequence.cmp(&a.sequence)));
        let mut injector = open(&table);
        for (number, (piece, bit)) in bits(&injector, stride(29), seed).into_iter().enumerate() {
            if injector.pieces()[piece].owner.is_none() {
                continue;
            }
            let pattern = (seed + 41 * number as u64) & 0xff;
            for stops in 0..rows.len() {
                let wrong = |injector: &FaultInjector<'_>, text: &str| {
                    let piece = &injector.pieces()[piece];
                    fail(&setup, piece, bit, stops, pattern, text, test, seed)
                };
                let mut allowed = Allowed::default();
                let mut strike = |injector: &mut FaultInjector<'_>, step: usize| {
                    if step == stops {
                        injector.flip(piece, bit);
                        allowed = Allowed::of(injector);
                    }
                };
                let came = both_ends(table.range(..), (pattern, 8), rows.len(), |step| {
                    strike(&mut injector, step)
                });
                let verdict = came
                    .and_then(|came| check(&came, (&rows, Reported::InPlace), None, &mut injector));
                injector.undo();
                let descending = one_end(table.range(..).descending(), rows.len(), |step| {
                    strike(&mut injector, step)
                });
                let one_way = descending
                    .and_then(|came| check(&came, (&down, Reported::InTime), None, &mut injector));
                injector.undo();
                let keys = table.range(..).descending();
                let came = both_ends(keys, (pattern, 8), rows.len(), |step| {
                    strike(&mut injector, step)
                });
                let turned = came.and_then(|came| {
                    check(&came, (&down, Reported::AtEitherEnd), None, &mut injector)
                });
                injector.undo();
                for snapshot in [6, u64::MAX] {
                    let rows = model.resolved(snapshot);
                    let range = table.range_at(.., snapshot);
                    let came = both_ends(range, (pattern, 8), rows.len(), |step| {
                        strike(&mut injector, step)
                    });
                    let resolved = came.and_then(|came| {
                        check(
                            &came,
                            (&rows, Reported::InPlace),
                            Some(snapshot),
                            &mut injector,
                        )
                    });
                    injector.undo();
                    resolved.unwrap_or_else(|text| wrong(&injector, &text));
                }
                let verdicts = verdict.and(one_way).and(turned);
                verdicts.unwrap_or_else(|text| wrong(&injector, &text));
            }
        }
    }
}

fn check(
    came: &[Came],
    (rows, reported): (&[&Row], Reported),
    snapshot: Option<u64>,
    injector: &mut FaultInjector<'_>,
) -> Result<(), String> {
    judge(came, rows, snapshot, &Allowed::of(injector), reported)
        .map_err(|text| format!("at {snapshot:?}: {text}: {came:?}"))
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that a person needs to see"
)]
fn fail(
    setup: &Setup,
    piece: &Piece,
    bit: usize,
    stops: usize,
    pattern: u64,
    text: &str,
    test: &str,
    seed: u64,
) {
    panic!(
        "{setup:?}\n{piece:?} bit {bit} after {stops} steps, pattern {pattern:b}: {text}\nreplay: {}",
        replay_line(test, seed)
    );
}

/// An owned cursor keeps all that it needs alive.
#[test]
fn an_owned_cursor_continues_after_its_table_handle_is_gone() {
    let (table, _) = Setup::all()[0].make();
    let mut cursor = table.cursor().owned();
    assert_eq!(cursor.first().unwrap().unwrap().user_key(), b"a");
    drop(table);
    assert_eq!(cursor.next().unwrap().unwrap().user_key(), b"b");
    assert_eq!(cursor.entry().unwrap().unwrap().user_key(), b"b");
}

/// A step does not show what a range delete covers that came after the step before.
#[test]
fn a_range_delete_between_two_steps_counts() {
    let table = MemTable::default();
    for (sequence, key) in (1..).zip(["a", "b", "c", "d", "e"]) {
        table.put(sequence, key.as_bytes(), b"").unwrap();
    }
    let (mut cursor, mut range) = (table.cursor_at(u64::MAX), table.range_at(.., u64::MAX));
    let mut came: Vec<_> = range.by_ref().take(2).map(Result::unwrap).collect();
    cursor.first().unwrap();
    cursor.next().unwrap();
    table.delete_range(9, b"c", b"e").unwrap();
    came.extend(range.map(Result::unwrap));
    let keys: Vec<_> = came.iter().map(|entry| entry.user_key()).collect();
    assert_eq!(keys, [b"a", b"b", b"e"]);
    let next = cursor.next().unwrap().expect("e is left");
    assert_eq!(next.user_key(), b"e");
}

/// A range in which one end steps alone, until the other end steps or seeks.
#[test]
fn an_end_is_alone_until_the_other_moves() {
    let table = MemTable::default();
    for (sequence, key) in (1..).zip(["key-of-a", "key-of-b", "key-of-c", "key-of-d", "key-of-e"]) {
        table.put(sequence, key.as_bytes(), b"").unwrap();
    }
    let shown =
        |entry: Option<Result<Entry<'_>, Error>>| entry.map(|entry| entry.unwrap().sequence());
    let mut range = table.range(..);
    assert_eq!([range.next(), range.next()].map(shown), [Some(1), Some(2)]);
    range.seek_for_prev(b"key-of-c");
    assert_eq!(
        [range.next(), range.next(), range.next_back()].map(shown),
        [Some(3), None, None]
    );
    let mut range = table.range(..);
    assert_eq!(
        [range.next_back(), range.next_back()].map(shown),
        [Some(5), Some(4)]
    );
    assert_eq!(
        [range.next(), range.next(), range.next()].map(shown),
        [Some(1), Some(2), Some(3)]
    );
    assert_eq!([range.next_back(), range.next()].map(shown), [None, None]);
}

/// An inverted range is empty for every read; writes refuse it.
#[test]
fn inverted_bounds_are_empty_for_every_read() {
    for setup in Setup::all() {
        let (table, _) = setup.make();
        let (high, low) = (b"d".as_slice(), b"b".as_slice());
        let all = (Bound::Included(high), Bound::Excluded(low));
        let mut cursor = table.cursor().with_bounds("d".to_string().."b".to_string());
        for _ in 0..2 {
            assert!(cursor.first().unwrap().is_none() && cursor.last().unwrap().is_none());
            for key in [b"a", b"b", b"c", b"d", b"e"] {
                assert!(
                    cursor.seek(key).unwrap().is_none()
                        && cursor.seek_for_prev(key).unwrap().is_none()
                );
            }
            cursor = cursor.with_bounds(high..low);
        }
        // The cursor can still be used with other bounds.
        assert!(cursor.with_bounds("b"..).first().unwrap().is_some());
        let mut resolved = table
            .cursor_at(u64::MAX)
            .owned()
            .with_bounds(b"d".to_vec()..=b"b".to_vec());
        assert!(resolved.first().unwrap().is_none() && resolved.last().unwrap().is_none());
        assert_eq!(table.range(all).count() + table.range(all).rev().count(), 0);
        assert_eq!(
            table.range_at(all, u64::MAX).count() + table.range_at(all, u64::MAX).rev().count(),
            0
        );
        assert_eq!(table.range(all).descending().count(), 0);
        assert_eq!(table.versions((high, 9)..(low, 1)).count(), 0);
        assert_eq!(table.versions((low, 1)..(low, 9)).rev().count(), 0);
        assert_eq!(table.approximate_range_stats(all).unwrap().entries, 0);
        if !setup.is_frozen {
            assert!(matches!(
                table.delete_range(50, high, low),
                Err(Error::InvalidArgument(_))
            ));
        }
    }
}

/// Walks over small tables with up to three broken places; cursors that continue after one.
///
/// Debug builds take one of 37 choices of three; `PARANOID_TEST_SEED` moves it.
mod broken_walks {
    use std::collections::BTreeSet;

    use paranoid_memtable::fault::{FaultInjector, Part, Piece, Region};
    use paranoid_memtable::{Bytewise, Entry, Error, MemTable};

    use crate::support::model::Model;
    use crate::support::rng::{Watchdog, replay_line, seed_or};
    use crate::walks::{SNAPSHOTS, Setup, bits, open, stride};

    /// Up to three places of the point entries are broken. Every walk still ends, shows no entry
    /// twice, keeps the order, and shows only entries that the snapshot sees.
    #[test]
    fn three_broken_places_turn_no_walk_round() {
        let test = "walks::broken_walks::three_broken_places_turn_no_walk_round";
        let seed = seed_or(5);
        let _watchdog = Watchdog::new(test, seed);
        let mut number = seed;
        for setup in Setup::all() {
            let (table, model) = setup.make();
            let mut injector = open(&table);
            let pieces: Vec<usize> = injector
                .pieces()
                .iter()
                .enumerate()
                .filter(decides)
                .map(|(at, _)| at)
                .collect();
            for (first, second, third) in triples(pieces.len()) {
                number += 1;
                if first != second && !number.is_multiple_of(stride(37) as u64) {
                    continue;
                }
                let broken = BTreeSet::from([pieces[first], pieces[second], pieces[third]]);
                broken.iter().for_each(|piece| injector.flip(*piece, 3));
                for snapshot in SNAPSHOTS {
                    walk_both_ways(&table, &model, snapshot).unwrap_or_else(|text| {
                        let broken: Vec<&Piece> = broken
                            .iter()
                            .map(|piece| &injector.pieces()[*piece])
                            .collect();
                        panic!(
                            "{setup:?}, {broken:?}, snapshot {snapshot}: {text}\nreplay: {}",
                            replay_line(test, seed)
                        )
                    });
                }
                injector.undo();
            }
        }
    }

    /// Two places are broken under a range of which one end has moved: once it has ended it remains
    /// ended, at both ends.
    #[test]
    fn a_range_that_is_over_stays_over() {
        let test = "walks::broken_walks::a_range_that_is_over_stays_over";
        let _watchdog = Watchdog::new(test, 0);
        for setup in Setup::all() {
            let (table, _) = setup.make();
            let mut injector = open(&table);
            let pieces: Vec<usize> = injector
                .pieces()
                .iter()
                .enumerate()
                .filter(decides)
                .map(|(at, _)| at)
                .collect();
            for (first, second, moved) in
                triples(pieces.len()).filter(|(first, second, _)| first != second)
            {
                let steps = moved % 5;
                for forward in [true, false] {
                    let mut range = table.range(..);
                    for _ in 0..steps {
                        let _ = if forward {
                            range.next()
                        } else {
                            range.next_back()
                        };
                    }
                    injector.flip(pieces[first], 3);
                    injector.flip(pieces[second], 3);
                    let mut rest = 0;
                    // Moves the other end until it meets this one.
                    while if forward {
                        range.next_back().is_some()
                    } else {
                        range.next().is_some()
                    } {
                        rest += 1;
                        assert!(rest < 1000, "{setup:?}: a range without an end");
                    }
                    let after = [
                        range.next().is_some(),
                        range.next_back().is_some(),
                        range.next().is_some(),
                    ];
                    assert_eq!(
                        after, [false; 3],
                        "{setup:?}, {steps} steps forward {forward}, then {first} and {second}"
                    );
                    injector.undo();
                }
            }
        }
    }

    /// Whether a piece decides where a walk goes: level-0 links, back links, and the parts that
    /// prove keys.
    fn decides((_, piece): &(usize, &Piece)) -> bool {
        let link = matches!(piece.region, Region::Link | Region::HeadLink) && piece.level == 0;
        piece.part == Part::Points
            && (link || matches!(piece.region, Region::BackLink | Region::Key))
    }

    /// All choices of three places, which may repeat.
    fn triples(places: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let pairs = move |first| (first..places).map(move |second| (first, second));
        let thirds =
            move |(first, second)| (second..places).map(move |third| (first, second, third));
        (0..places).flat_map(pairs).flat_map(thirds)
    }

    fn walk_both_ways(
        table: &MemTable,
        model: &Model<Bytewise>,
        snapshot: u64,
    ) -> Result<(), String> {
        let visible = model.resolved(snapshot);
        for forward in [true, false] {
            let mut cursor = table.cursor_at(snapshot);
            let mut came = if forward {
                cursor.first()
            } else {
                cursor.last()
            }
            .map(|entry| entry.map(place_of));
            let (mut last, mut steps) = (None, 0);
            while !matches!(came, Ok(None)) {
                steps += 1;
                if steps > 4 * model.raw().len() {
                    return Err(format!("forward {forward}: a walk without an end"));
                }
                if let Ok(Some(entry)) = &came {
                    let place = visible
                        .iter()
                        .position(|row| (row.key.as_slice(), row.sequence) == (&entry.0, entry.1));
                    let place =
                        place.ok_or_else(|| format!("forward {forward}: shows {entry:?}"))?;
                    if last.is_some_and(|last| {
                        if forward {
                            place <= last
                        } else {
                            place >= last
                        }
                    }) {
                        return Err(format!(
                            "forward {forward}: shows {entry:?} after another one in its place"
                        ));
                    }
                    last = Some(place);
                }
                came = if forward {
                    cursor.next()
                } else {
                    cursor.prev()
                }
                .map(|entry| entry.map(place_of));
            }
        }
        Ok(())
    }

    /// A frozen table with an entry for each of these keys.
    fn frozen(keys: &str) -> MemTable {
        let table = MemTable::default();
        for (sequence, key) in (1..).zip(keys.bytes()) {
            table.put(sequence, [key], b"").unwrap();
        }
        table.freeze().unwrap();
        table
    }

    /// Damages the entries of these keys.
    fn damage(injector: &mut FaultInjector<'_>, keys: &str) {
        let is_theirs = |piece: &Piece| {
            let owner = piece.owner.as_ref().filter(|_| piece.region == Region::Key);
            owner.is_some_and(|owner| keys.as_bytes().contains(&owner.key[0]))
        };
        for number in 0..injector.pieces().len() {
            if is_theirs(&injector.pieces()[number]) {
                injector.flip(number, 3);
            }
        }
    }

    /// The shown keys, with `!` for an error.
    fn shown<'t>(entries: impl Iterator<Item = Result<Entry<'t>, Error>>) -> String {
        entries
            .map(|entry| entry.map_or('!', |entry| char::from(entry.user_key()[0])))
            .collect()
    }

    /// A walk between bounds reports no damage outside of them, unless it is next to them.
    #[test]
    fn damage_outside_of_its_bounds_is_none_of_a_walk() {
        let table = frozen("abcdefg");
        let mut injector = open(&table);
        damage(&mut injector, "ag");
        let inside = || b"c".as_slice()..b"e".as_slice();
        assert_eq!(shown(table.range(inside())), "cd");
        assert_eq!(shown(table.range(inside()).rev()), "dc");
        assert_eq!(shown(table.range(inside()).descending()), "dc");
        assert_eq!(shown(table.range_at(inside(), 9).rev()), "dc");
        let mut cursor = table.cursor().with_bounds(inside());
        assert_eq!(
            cursor.seek(b"a").unwrap().map(place_of),
            Some((b"c".to_vec(), 3))
        );
        assert_eq!(
            cursor.seek_for_prev(b"g").unwrap().map(place_of),
            Some((b"d".to_vec(), 4))
        );
        assert_eq!(
            cursor.seek_before(b"h").unwrap().map(place_of),
            Some((b"d".to_vec(), 4))
        );
        injector.undo();
    }

    fn place_of(entry: Entry<'_>) -> (Vec<u8>, u64) {
        (entry.user_key().to_vec(), entry.sequence())
    }

    /// A cursor at a snapshot is parked on c@7, which is then damaged. It does not show c@3, with
    /// or without order checks.
    #[test]
    fn order_checks_uncover_no_older_version() {
        let _watchdog = Watchdog::new(
            "walks::broken_walks::order_checks_uncover_no_older_version",
            0,
        );
        for setup in Setup::all().into_iter().filter(|setup| setup.order_checks) {
            let (table, _) = setup.make();
            let mut injector = open(&table);
            let is_parked = |piece: &Piece| {
                piece
                    .owner
                    .as_ref()
                    .is_some_and(|owner| (&*owner.key, owner.sequence) == (b"c".as_slice(), 7))
            };
            for (piece, bit) in bits(&injector, 1, 0) {
                if !is_parked(&injector.pieces()[piece]) {
                    continue;
                }
                let mut cursor = table.cursor_at(8);
                assert_eq!(
                    cursor.seek(b"c").unwrap().map(|entry| entry.sequence()),
                    Some(7)
                );
                injector.flip(piece, bit);
                for _ in 0..3 {
                    if let Ok(Some(entry)) = cursor.next() {
                        let region = injector.pieces()[piece].region;
                        assert!(
                            entry.user_key() > b"c".as_slice(),
                            "{setup:?}, {region:?} bit {bit}: {entry:?}"
                        );
                    }
                }
                injector.undo();
            }
        }
    }

    /// A seek to a version meets damage: the entries after the error are at or after that version.
    #[test]
    fn a_seek_to_a_version_continues_after_it() {
        let test = "walks::broken_walks::a_seek_to_a_version_continues_after_it";
        let seed = seed_or(7);
        let _watchdog = Watchdog::new(test, seed);
        let mut errors = 0;
        for setup in Setup::all() {
            let (table, model) = setup.make();
            let mut injector = open(&table);
            for (piece, bit) in bits(&injector, stride(11), seed) {
                if injector.pieces()[piece].owner.is_none() {
                    continue;
                }
                injector.flip(piece, bit);
                for (row, snapshot) in model
                    .raw()
                    .iter()
                    .flat_map(|row| SNAPSHOTS.map(|snapshot| (row, snapshot)))
                {
                    let (key, sequence) = (row.key.as_slice(), row.sequence - 1);
                    let mut cursor = table.cursor_at(snapshot);
                    let mut came = cursor.seek_version(key, sequence);
                    errors += usize::from(came.is_err());
                    for _ in 0..3 {
                        if let Ok(Some(entry)) = came {
                            let order = entry
                                .user_key()
                                .cmp(key)
                                .then(sequence.cmp(&entry.sequence()));
                            assert!(
                                order.is_ge(),
                                "{setup:?}, {:?} bit {bit}, at {snapshot}: {entry:?} is before {}@{sequence}\nreplay: {}",
                                injector.pieces()[piece],
                                key.escape_ascii(),
                                replay_line(test, seed)
                            );
                        }
                        came = cursor.next();
                    }
                }
                injector.undo();
            }
        }
        assert!(errors > 100, "{errors} seeks met damage");
    }
}

/// A finished iterator remains finished, at both ends.
#[test]
fn a_finished_iterator_stays_finished() {
    fn ends<T>(mut iterator: impl std::iter::FusedIterator<Item = T>, count: usize) {
        assert_eq!(iterator.by_ref().count(), count);
        assert!((0..3).all(|_| iterator.next().is_none()));
    }
    let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
    let table = MemTable::default();
    let mut batch = WriteBatch::new();
    for (sequence, key) in (1..).zip(["a", "b", "b"]) {
        table.put(sequence, key, "value").unwrap();
        batch.put(key, "value").unwrap();
    }
    table.merge(4, "c", "1").unwrap();
    table.delete_range(5, "x", "y").unwrap();
    set.write(&batch).unwrap();
    ends(table.range(..), 4);
    ends(table.range(..).rev(), 4);
    ends(table.range(..).descending(), 4);
    ends(table.range(..).owned(), 4);
    ends(table.range_at(.."c", 9), 2);
    ends(table.versions(("b", 2)..), 2);
    ends((&table).into_iter(), 4);
    ends(batch.entries(), 3);
    ends(set.view().cursor().unwrap().ascending(), 2);
    ends(set.view().cursor().unwrap().descending(), 2);
    ends(set.view().readers(), 1);
    ends(table.range_tombstones(9).unwrap().iter(), 1);
    let Lookup::Merge(operands) = table.get("c", 9).unwrap() else {
        panic!("it was merged")
    };
    ends(operands, 1);
    let mut range = table.range(..);
    range.by_ref().for_each(drop);
    assert!(range.next_back().is_none(), "the ends have met");
}
