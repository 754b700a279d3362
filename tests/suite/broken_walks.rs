//! Walks over small tables of which up to three places are broken; cursors that go on after one.
//!
//! Debug builds take one of 37 choices of three; `PARANOID_TEST_SEED` moves it.

use std::collections::BTreeSet;

use paranoid_memtable::fault::{FaultInjector, Part, Piece, Region};
use paranoid_memtable::{Bytewise, Entry, Error, MemTable};

use super::support::model::Model;
use super::support::rng::seed_or;
use super::support::watchdog::{Watchdog, replay_line};
use super::walks::{SNAPSHOTS, Setup, bits, open, stride};

/// Up to three places of the point entries are broken: every walk still ends, shows no entry twice, keeps the order,
/// and shows nothing that the snapshot does not see.
#[test]
fn three_broken_places_turn_no_walk_round() {
    let test = "broken_walks::three_broken_places_turn_no_walk_round";
    let seed = seed_or(5);
    let _watchdog = Watchdog::new(test, seed);
    let mut number = seed;
    for setup in Setup::all() {
        let (table, model) = setup.make();
        let mut injector = open(&table);
        let pieces: Vec<usize> =
            injector.pieces().iter().enumerate().filter(decides).map(|(at, _)| at).collect();
        for (first, second, third) in triples(pieces.len()) {
            number += 1;
            if first != second && !number.is_multiple_of(stride(37) as u64) {
                continue;
            }
            let broken = BTreeSet::from([pieces[first], pieces[second], pieces[third]]);
            broken.iter().for_each(|piece| injector.flip(*piece, 3));
            for snapshot in SNAPSHOTS {
                walk_both_ways(&table, &model, snapshot).unwrap_or_else(|text| {
                    let broken: Vec<&Piece> = broken.iter().map(|piece| &injector.pieces()[*piece]).collect();
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

/// Two places are broken under a range of which one end has moved: once it has ended it stays ended, at both ends.
#[test]
fn a_range_that_is_over_stays_over() {
    let test = "broken_walks::a_range_that_is_over_stays_over";
    let _watchdog = Watchdog::new(test, 0);
    for setup in Setup::all() {
        let (table, _) = setup.make();
        let mut injector = open(&table);
        let pieces: Vec<usize> =
            injector.pieces().iter().enumerate().filter(decides).map(|(at, _)| at).collect();
        for (first, second, moved) in triples(pieces.len()).filter(|(first, second, _)| first != second) {
            let steps = moved % 5;
            for forward in [true, false] {
                let mut range = table.range(..);
                for _ in 0..steps {
                    let _ = if forward { range.next() } else { range.next_back() };
                }
                injector.flip(pieces[first], 3);
                injector.flip(pieces[second], 3);
                let mut rest = 0;
                // Moves the other end until it meets this one.
                while if forward { range.next_back().is_some() } else { range.next().is_some() } {
                    rest += 1;
                    assert!(rest < 1000, "{setup:?}: a range without an end");
                }
                let after = [range.next().is_some(), range.next_back().is_some(), range.next().is_some()];
                assert_eq!(
                    after, [false; 3],
                    "{setup:?}, {steps} steps forward {forward}, then {first} and {second}"
                );
                injector.undo();
            }
        }
    }
}

/// Whether a piece decides where a walk goes: level-0 links, back links, and what proves keys.
fn decides((_, piece): &(usize, &Piece)) -> bool {
    let link = matches!(piece.region, Region::Link | Region::HeadLink) && piece.level == 0;
    piece.part == Part::Points && (link || matches!(piece.region, Region::BackLink | Region::Key))
}

/// All choices of three out of so many places; places may repeat.
fn triples(places: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let pairs = move |first| (first..places).map(move |second| (first, second));
    let thirds = move |(first, second)| (second..places).map(move |third| (first, second, third));
    (0..places).flat_map(pairs).flat_map(thirds)
}

fn walk_both_ways(table: &MemTable, model: &Model<Bytewise>, snapshot: u64) -> Result<(), String> {
    let visible = model.resolved(snapshot);
    for forward in [true, false] {
        let mut cursor = table.cursor_at(snapshot);
        let mut came = if forward { cursor.first() } else { cursor.last() }.map(|entry| entry.map(place_of));
        let (mut last, mut steps) = (None, 0);
        while !matches!(came, Ok(None)) {
            steps += 1;
            if steps > 4 * model.raw().len() {
                return Err(format!("forward {forward}: a walk without an end"));
            }
            if let Ok(Some(entry)) = &came {
                let place =
                    visible.iter().position(|row| (row.key.as_slice(), row.sequence) == (&entry.0, entry.1));
                let place = place.ok_or_else(|| format!("forward {forward}: shows {entry:?}"))?;
                if last.is_some_and(|last| if forward { place <= last } else { place >= last }) {
                    return Err(format!("forward {forward}: shows {entry:?} after another one in its place"));
                }
                last = Some(place);
            }
            came = if forward { cursor.next() } else { cursor.prev() }.map(|entry| entry.map(place_of));
        }
    }
    Ok(())
}

/// A frozen table with an entry for each of these keys.
fn frozen(keys: &str) -> MemTable {
    let table = MemTable::default();
    for (sequence, key) in (1..).zip(keys.bytes()) {
        table.put(sequence, &[key], b"").unwrap();
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

/// The keys that are shown, with `!` for an error.
fn shown<'t>(entries: impl Iterator<Item = Result<Entry<'t>, Error>>) -> String {
    entries.map(|entry| entry.map_or('!', |entry| char::from(entry.user_key()[0]))).collect()
}

/// A walk between bounds reports no damage that lies outside of them, unless it is next to them.
#[test]
fn damage_outside_of_its_bounds_is_none_of_a_walk() {
    let table = frozen("abcdefg");
    let mut injector = open(&table);
    damage(&mut injector, "ag");
    let inside = || b"c".as_slice()..b"e".as_slice();
    assert_eq!(shown(table.range(inside())), "cd");
    assert_eq!(shown(table.range(inside()).rev()), "dc");
    assert_eq!(shown(table.range_descending(inside())), "dc");
    assert_eq!(shown(table.range_at(9, inside()).rev()), "dc");
    let mut cursor = table.cursor().with_bounds(inside());
    assert_eq!(cursor.seek(b"a").unwrap().map(place_of), Some((b"c".to_vec(), 3)));
    assert_eq!(cursor.seek_for_prev(b"g").unwrap().map(place_of), Some((b"d".to_vec(), 4)));
    assert_eq!(cursor.seek_before(b"h").unwrap().map(place_of), Some((b"d".to_vec(), 4)));
    injector.undo();
}

fn place_of(entry: Entry<'_>) -> (Vec<u8>, u64) {
    (entry.user_key().to_vec(), entry.sequence())
}

/// A cursor at a snapshot is parked on c@7, which is damaged then: with order checks on it shows c@3 no more than without.
#[test]
fn order_checks_uncover_no_older_version() {
    let _watchdog = Watchdog::new("broken_walks::order_checks_uncover_no_older_version", 0);
    for setup in Setup::all().into_iter().filter(|setup| setup.order_checks) {
        let (table, _) = setup.make();
        let mut injector = open(&table);
        let is_parked = |piece: &Piece| {
            piece.owner.as_ref().is_some_and(|owner| (&*owner.key, owner.sequence) == (b"c".as_slice(), 7))
        };
        for (piece, bit) in bits(&injector, 1, 0) {
            if !is_parked(&injector.pieces()[piece]) {
                continue;
            }
            let mut cursor = table.cursor_at(8);
            assert_eq!(cursor.seek(b"c").unwrap().map(|entry| entry.sequence()), Some(7));
            injector.flip(piece, bit);
            for _ in 0..3 {
                if let Ok(Some(entry)) = cursor.next() {
                    let region = injector.pieces()[piece].region;
                    assert!(entry.user_key() > b"c".as_slice(), "{setup:?}, {region:?} bit {bit}: {entry:?}");
                }
            }
            injector.undo();
        }
    }
}

/// A seek to a version meets damage: whatever comes after the error is at or after that version.
#[test]
fn a_seek_to_a_version_goes_on_behind_it() {
    let test = "broken_walks::a_seek_to_a_version_goes_on_behind_it";
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
            for (row, snapshot) in
                model.raw().iter().flat_map(|row| SNAPSHOTS.map(|snapshot| (row, snapshot)))
            {
                let (key, sequence) = (row.key.as_slice(), row.sequence - 1);
                let mut cursor = table.cursor_at(snapshot);
                let mut came = cursor.seek_version(key, sequence);
                errors += usize::from(came.is_err());
                for _ in 0..3 {
                    if let Ok(Some(entry)) = came {
                        let order = entry.user_key().cmp(key).then(sequence.cmp(&entry.sequence()));
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
