//! Ranges that are kept, borrowed and owned: both ends in every interleaving, seeks, new bounds,
//! bounds of (key, sequence number).
//!
//! The oracle is a sorted map of (key, sequence number) and two places in it.

use std::ops::Bound;

use paranoid_memtable::Range;
use paranoid_memtable::integrity::Repair;
use paranoid_memtable::read::EntryBytes;
use paranoid_memtable::scan::{Handle, Raw, Visibility};
use paranoid_memtable::{Bytewise, Entry, Error, Kind, MemTable, MemTableOptions};

use crate::support::model::{Model, Row};
use crate::support::orders::{CaseBlind, Order, Reverse};
use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
use crate::support::under;

/// A version of a key.
type Place = (Vec<u8>, u64);

/// The bounds of a range.
type Bounds = (Bound<Place>, Bound<Place>);

fn place_of(entry: Entry<'_>) -> Place {
    (entry.user_key().to_vec(), entry.sequence())
}

fn copied(copy: EntryBytes) -> Place {
    (copy.user_key().to_vec(), copy.sequence())
}

fn key(rng: &mut Rng) -> Vec<u8> {
    (0..rng.index(3)).map(|_| *rng.pick(b"aAbB\xff")).collect()
}

fn order<C: Order>(left: &Place, right: &Place) -> std::cmp::Ordering {
    C::plainly(&left.0, &right.0).then(right.1.cmp(&left.1))
}

/// A table and its rows.
fn filled<C: Order>(rng: &mut Rng) -> (MemTable, Model<C>) {
    let options = MemTableOptions::builder().write_buffer_size(64 << 10);
    let options = options.seed(rng.next_u64());
    let table = MemTable::new(under(options, C::default())).unwrap();
    let mut model = Model::new(paranoid_memtable::DuplicatePolicy::default());
    for sequence in 1..=rng.below(if cfg!(miri) { 8 } else { 40 }) {
        let kind = *rng.pick(&[Kind::PUT, Kind::PUT, Kind::DELETE]);
        let value = if kind == Kind::DELETE {
            vec![]
        } else {
            rng.bytes(3)
        };
        let row = Row {
            key: key(rng),
            sequence,
            kind,
            value,
        };
        table.insert(sequence, kind, &row.key, &row.value).unwrap();
        model.write(&row);
    }
    (table, model)
}

/// The rows of a range, and the rows that its ends have not reached.
struct Oracle<C> {
    all: Vec<Place>,
    rows: Vec<Place>,
    front: usize,
    back: usize,
    is_over: bool,
    keys_descend: bool,
    order: std::marker::PhantomData<C>,
}

impl<C: Order> Oracle<C> {
    fn new(rows: &[&Row]) -> Self {
        let all: Vec<Place> = rows
            .iter()
            .map(|row| (row.key.clone(), row.sequence))
            .collect();
        let order = std::marker::PhantomData;
        Oracle {
            rows: all.clone(),
            front: 0,
            back: all.len(),
            all,
            is_over: false,
            keys_descend: false,
            order,
        }
    }

    /// The oracle of a descending range.
    fn descending(rows: &[&Row]) -> Self {
        let mut oracle = Oracle {
            keys_descend: true,
            ..Oracle::new(rows)
        };
        oracle.set_bounds(&(Bound::Unbounded, Bound::Unbounded));
        oracle
    }

    /// The order of the range.
    fn compare(&self, left: &Place, right: &Place) -> std::cmp::Ordering {
        let keys = C::plainly(&left.0, &right.0);
        let keys = if self.keys_descend {
            keys.reverse()
        } else {
            keys
        };
        keys.then(right.1.cmp(&left.1))
    }

    fn set_bounds(&mut self, (lower, upper): &Bounds) {
        self.rows = self.all.clone();
        self.rows.retain(|row| {
            (match lower {
                Bound::Included(lower) => order::<C>(row, lower).is_ge(),
                Bound::Excluded(lower) => order::<C>(row, lower).is_gt(),
                Bound::Unbounded => true,
            }) && (match upper {
                Bound::Included(upper) => order::<C>(row, upper).is_le(),
                Bound::Excluded(upper) => order::<C>(row, upper).is_lt(),
                Bound::Unbounded => true,
            })
        });
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_by(|left, right| self.compare(left, right));
        self.rows = rows;
        (self.front, self.back, self.is_over) = (0, self.rows.len(), false);
    }

    fn next(&mut self) -> Option<Place> {
        self.is_over |= self.front >= self.back;
        (!self.is_over).then(|| {
            self.front += 1;
            self.rows[self.front - 1].clone()
        })
    }

    fn next_back(&mut self) -> Option<Place> {
        self.is_over |= self.front >= self.back;
        (!self.is_over).then(|| {
            self.back -= 1;
            self.rows[self.back].clone()
        })
    }

    fn seek(&mut self, to: &Place) {
        (self.front, self.is_over) = (
            self.rows
                .partition_point(|row| self.compare(row, to).is_lt()),
            false,
        );
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        let last = (key.to_vec(), 0);
        let back = self
            .rows
            .partition_point(|row| self.compare(row, &last).is_le());
        (self.back, self.is_over) = (back, false);
    }
}

/// Bounds of all versions of keys, and of versions.
fn key_bounds(rng: &mut Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    };
    (bound(), bound())
}

/// Bounds of keys as bounds of versions.
fn as_versions((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Bounds {
    let all = |bound: &Bound<Vec<u8>>, included: u64| match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included((key.clone(), included)),
        Bound::Excluded(key) => Bound::Excluded((key.clone(), u64::MAX - included)),
    };
    (all(lower, u64::MAX), all(upper, 0))
}

fn version_bounds(rng: &mut Rng) -> Bounds {
    let mut bound = || match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included((key(rng), rng.below(42))),
        _ => Bound::Excluded((key(rng), rng.below(42))),
    };
    (bound(), bound())
}

/// Makes random moves of a kept range, of the moves that all ranges have.
fn moves<C: Order, H: Handle, L: Visibility>(
    rng: &mut Rng,
    range: &mut Range<H, L>,
    oracle: &mut Oracle<C>,
    replay: &str,
) {
    for step in 0..if cfg!(miri) { 3 } else { 12 } {
        let (found, wanted, what) = match rng.below(8) {
            0 => {
                let to = key(rng);
                range.seek(&to);
                oracle.seek(&(to, u64::MAX));
                continue;
            }
            1 => {
                let to = key(rng);
                range.seek_for_prev(&to);
                oracle.seek_for_prev(&to);
                continue;
            }
            2 if rng.one_in(3) => {
                let bounds = key_bounds(rng);
                oracle.set_bounds(&as_versions(&bounds));
                range.set_bounds(bounds);
                continue;
            }
            at if at < 5 => (range.next_back_entry(), oracle.next_back(), "back"),
            _ => (range.next_entry(), oracle.next(), "front"),
        };
        assert_eq!(
            found.unwrap().map(place_of),
            wanted,
            "step {step}, {what}; {replay}"
        );
    }
}

/// Makes the random moves of `moves`, and moves by versions.
fn raw_moves<C: Order, H: Handle>(
    rng: &mut Rng,
    range: &mut Range<H, Raw>,
    oracle: &mut Oracle<C>,
    replay: &str,
) {
    for _ in 0..if cfg!(miri) { 1 } else { 4 } {
        if rng.one_in(2) {
            let to = (key(rng), rng.below(42));
            range.seek_version(&to.0, to.1);
            oracle.seek(&to);
        } else {
            let bounds = version_bounds(rng);
            oracle.set_bounds(&bounds);
            range.set_version_bounds(bounds);
        }
        moves(rng, range, oracle, replay);
    }
}

fn check<C: Order>(rng: &mut Rng, replay: &str) {
    let (table, model) = filled::<C>(rng);
    for is_frozen in [false, true] {
        if is_frozen {
            table.freeze().unwrap();
        }
        let raw = model.raw();
        raw_moves(
            rng,
            &mut table.range(..),
            &mut Oracle::<C>::new(&raw),
            replay,
        );
        raw_moves(
            rng,
            &mut table.range(..).owned(),
            &mut Oracle::<C>::new(&raw),
            replay,
        );
        raw_moves(
            rng,
            &mut table.range(..).descending(),
            &mut Oracle::<C>::descending(&raw),
            replay,
        );
        raw_moves(
            rng,
            &mut table.range(..).owned().descending(),
            &mut Oracle::<C>::descending(&raw),
            replay,
        );
        for snapshot in [rng.below(42), u64::MAX] {
            let rows = model.resolved(snapshot);
            moves(
                rng,
                &mut table.range_at(.., snapshot),
                &mut Oracle::<C>::new(&rows),
                replay,
            );
            moves(
                rng,
                &mut table.range_at(.., snapshot).owned(),
                &mut Oracle::<C>::new(&rows),
                replay,
            );
            let mut range = table.range_at(.., snapshot).descending();
            moves(rng, &mut range, &mut Oracle::<C>::descending(&rows), replay);
        }
    }
}

#[test]
fn kept_ranges_under_every_order() {
    let test = "ranges::kept_ranges_under_every_order";
    let mut seed = seed_or(std::process::id().into());
    println!("{test}: seed {seed:#x}");
    for _ in 0..amount(2_000, 20) {
        let _watchdog = Watchdog::new(test, seed);
        let (mut rng, replay) = (Rng::new(seed), replay_line(test, seed));
        check::<Bytewise>(&mut rng, &replay);
        check::<Reverse>(&mut rng, &replay);
        check::<CaseBlind>(&mut rng, &replay);
        seed = rng.next_u64();
    }
}

/// Entries are inserted meanwhile: an owned range shows all entries that were there before it, and
/// none twice.
#[test]
fn ranges_beside_writes() {
    let table = MemTable::default();
    for key in [b"b", b"d", b"f"] {
        table.put(1, key, b"").unwrap();
    }
    let mut range = table.range(..).owned();
    assert_eq!(copied(range.next().unwrap().unwrap()).0, b"b");
    assert_eq!(copied(range.next_back().unwrap().unwrap()).0, b"f");
    for key in [b"a", b"c", b"e", b"g"] {
        table.put(2, key, b"").unwrap();
    }
    let rest: Vec<_> = range.by_ref().map(|copy| copied(copy.unwrap()).0).collect();
    assert_eq!(rest, [b"c", b"d", b"e"]);
    range.seek_for_prev(b"z");
    assert_eq!(
        range
            .map(|copy| copied(copy.unwrap()).0)
            .collect::<Vec<_>>(),
        [b"f", b"g"]
    );
}

/// One way of taking from both ends: bit n of `pattern` selects the end of step n.
fn taken<T>(
    pattern: u32,
    steps: usize,
    mut step: impl FnMut(bool) -> Option<Result<T, Error>>,
    place: impl Fn(T) -> Place,
) -> Vec<Result<Place, ()>> {
    let (mut front, mut back) = (vec![], vec![]);
    for number in 0..steps {
        let from_front = pattern >> number & 1 == 0;
        let item = step(from_front).map(|item| match item {
            Ok(entry) => Ok(place(entry)),
            Err(error) => {
                assert!(error.corruption().is_some(), "{error}");
                Err(())
            }
        });
        if from_front {
            front.extend(item)
        } else {
            back.extend(item)
        }
    }
    back.reverse();
    front.append(&mut back);
    front
}

/// Rows of the tables that both ends walk in every interleaving.
const ROWS: [(&[u8], u64); 6] = [
    (b"a", 9),
    (b"a", 4),
    (b"b", 7),
    (b"b", 2),
    (b"c", 8),
    (b"d", 1),
];

fn six_rows(repair: Repair) -> MemTable {
    let options = MemTableOptions::builder()
        .write_buffer_size(16 << 10)
        .repair(repair);
    let table = MemTable::new(options.seed(5).build().unwrap()).unwrap();
    for (key, sequence) in [ROWS[3], ROWS[0], ROWS[5], ROWS[1], ROWS[4], ROWS[2]] {
        table.put(sequence, key, b"value").unwrap();
    }
    table
}

/// Compares every kind of range, both ends in all interleavings, with the wanted items.
fn interleave(table: &MemTable, wanted: &[Result<Place, ()>], what: &str) {
    let steps = wanted.len() + 2;
    // Under Miri, only from the front, and in turn.
    for pattern in (0..1u32 << steps).step_by(if cfg!(miri) { 0b1010_1010 } else { 1 }) {
        let mut range = table.range(..);
        let step = |front| {
            if front {
                range.next()
            } else {
                range.next_back()
            }
        };
        assert_eq!(
            taken(pattern, steps, step, place_of),
            wanted,
            "range, {what}, {pattern:b}"
        );
        let mut range = table.range(..).owned();
        let step = |front| {
            if front {
                range.next()
            } else {
                range.next_back()
            }
        };
        assert_eq!(
            taken(pattern, steps, step, copied),
            wanted,
            "owned_range, {what}, {pattern:b}"
        );
        let mut range = table.range(..).owned();
        let step = |front| {
            let lent = if front {
                range.next_entry()
            } else {
                range.next_back_entry()
            };
            lent.map(|entry| entry.map(place_of)).transpose()
        };
        assert_eq!(
            taken(pattern, steps, step, |place| place),
            wanted,
            "lent, {what}, {pattern:b}"
        );
        let mut range = table.range(..).descending();
        let step = |front| {
            if front {
                range.next()
            } else {
                range.next_back()
            }
        };
        let (came, wanted) = (taken(pattern, steps, step, place_of), descending(wanted));
        let rows =
            |steps: &[Result<Place, ()>]| steps.iter().flatten().cloned().collect::<Vec<_>>();
        assert_eq!(
            rows(&came),
            rows(&wanted),
            "descending, {what}, {pattern:b}"
        );
        // An end meets a gap beside a key before it shows the key.
        assert_eq!(
            came.len(),
            wanted.len(),
            "descending, {what}, {pattern:b}: {came:?}"
        );
    }
}

/// Rows in the order of a descending range.
fn descending(rows: &[Result<Place, ()>]) -> Vec<Result<Place, ()>> {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| {
        row.clone()
            .map(|(key, at)| (std::cmp::Reverse(key), std::cmp::Reverse(at)))
    });
    rows
}

#[test]
fn every_interleaving() {
    let _watchdog = Watchdog::new("ranges::every_interleaving", 0);
    let table = six_rows(Repair::default());
    let wanted: Vec<_> = ROWS
        .iter()
        .map(|(key, sequence)| Ok((key.to_vec(), *sequence)))
        .collect();
    interleave(&table, &wanted, "mutable");
    table.freeze().unwrap();
    interleave(&table, &wanted, "frozen");
}

/// A damaged entry is in the middle: both ends in all interleavings, and ranges that seek past it.
#[cfg(feature = "fault-injection")]
#[test]
fn every_interleaving_with_a_gap() {
    use paranoid_memtable::fault::Region;
    let _watchdog = Watchdog::new("ranges::every_interleaving_with_a_gap", 0);
    for is_frozen in [false, true] {
        let table = six_rows(Repair::Off);
        if is_frozen {
            table.freeze().unwrap();
        }
        let mut injector = crate::walks::open(&table);
        let damaged = |piece: &paranoid_memtable::fault::Piece| {
            piece.region == Region::Key
                && piece
                    .owner
                    .as_ref()
                    .is_some_and(|owner| *owner.key == *b"b")
        };
        let piece = injector
            .pieces()
            .iter()
            .position(damaged)
            .expect("a key in the middle");
        let sequence = injector.pieces()[piece]
            .owner
            .as_ref()
            .expect("its owner")
            .sequence;
        injector.flip(piece, 1);
        drop(injector);
        let row = |(key, at): &(&[u8], u64)| {
            if *key == b"b" && *at == sequence {
                Err(())
            } else {
                Ok((key.to_vec(), *at))
            }
        };
        let wanted: Vec<_> = ROWS.iter().map(row).collect();
        interleave(&table, &wanted, "with a gap");
        sought_beyond(&table);
    }
}

/// A descending range shows every version of a key beside a damaged key. The damage was there
/// before, or comes while the other end is at the key, or two gaps surround one version.
#[cfg(feature = "fault-injection")]
#[test]
fn descending_ends_lose_no_version_beside_a_gap() {
    use paranoid_memtable::fault::{FaultInjector, Region};
    let _watchdog = Watchdog::new("ranges::descending_ends_lose_no_version_beside_a_gap", 0);
    let table_of = |rows: &[(&str, std::ops::RangeInclusive<u64>)]| {
        let table = MemTable::default();
        for (key, versions) in rows {
            for version in versions.clone() {
                table.put(version, key.as_bytes(), b"").unwrap();
            }
        }
        table
    };
    let damage = |injector: &mut FaultInjector<'_>, key: &str, version: u64| {
        let is_key = |piece: &paranoid_memtable::fault::Piece| {
            let of = |owner: &paranoid_memtable::fault::Owner| {
                *owner.key == *key.as_bytes() && owner.sequence == version
            };
            piece.region == Region::Key && piece.owner.as_ref().is_some_and(of)
        };
        let piece = injector.pieces().iter().position(is_key).expect("a key");
        [3, 4].into_iter().for_each(|bit| injector.flip(piece, bit));
    };
    let shown = |entry: Option<Result<Entry<'_>, Error>>| {
        entry.map(|entry| entry.map_or(0, |entry| entry.sequence()))
    };
    // The damaged key is after the versions that the back counts, and the front is at it or past
    // it.
    for (versions, is_struck_later) in
        (2..30).flat_map(|versions| [(versions, false), (versions, true)])
    {
        let table = table_of(&[("c", 1..=versions), ("e", 40..=40), ("z", 41..=41)]);
        let mut injector = crate::walks::open(&table);
        let mut keys = table.range(..).descending();
        let mut came = Vec::new();
        if is_struck_later {
            came.extend((0..3).map(|_| shown(keys.next())));
        }
        damage(&mut injector, "e", 40);
        came.extend(std::iter::from_fn(|| {
            Some(shown(keys.next_back())).filter(Option::is_some)
        }));
        let mut versions_shown: Vec<u64> = came
            .iter()
            .flatten()
            .copied()
            .filter(|at| (1..40).contains(at))
            .collect();
        versions_shown.sort_unstable();
        let errors = came.iter().flatten().filter(|at| **at == 0).count();
        let is_whole = versions_shown.into_iter().eq(1..=versions);
        assert!(
            is_whole || is_struck_later && errors > 0,
            "{versions} {is_struck_later}: {came:?}"
        );
    }
    let table = table_of(&[("a", 1..=3), ("b", 4..=4)]);
    let mut injector = crate::walks::open(&table);
    damage(&mut injector, "a", 2);
    damage(&mut injector, "b", 4);
    let mut keys = table.range(..).descending();
    let mut came = vec![shown(keys.next_back())];
    came.extend((0..6).map(|_| shown(keys.next())));
    let count = |of: u64| came.iter().flatten().filter(|at| **at == of).count();
    assert_eq!([count(1), count(3), count(0)], [1, 1, 2], "{came:?}");
}

/// An end that seeks past the gap does not report it. An end that seeks before it reports it again.
#[cfg(feature = "fault-injection")]
fn sought_beyond(table: &MemTable) {
    let mut range = table.range(..).owned();
    for _ in 0..2 {
        range.seek(b"d");
        assert_eq!(
            range.next_entry().unwrap().map(place_of),
            Some((b"d".to_vec(), 1))
        );
        range.seek(b"a");
        let front: Vec<_> = range
            .by_ref()
            .take(4)
            .map(|copy| copy.map(copied).ok())
            .collect();
        assert_eq!(
            front.iter().filter(|row| row.is_none()).count(),
            1,
            "{front:?}"
        );
        assert!(
            front
                .iter()
                .flatten()
                .is_sorted_by(|l, r| order::<Bytewise>(l, r).is_lt()),
            "{front:?}"
        );
        range.seek_for_prev(b"d");
        let back: Vec<_> = range
            .by_ref()
            .rev()
            .map(|copy| copied(copy.unwrap()).0)
            .collect();
        assert_eq!(
            back,
            [b"d", b"c"],
            "the gap was reported by the front, which has passed it"
        );
        range.set_bounds(..);
    }
    let mut keys = table.range(..).owned().descending();
    for _ in 0..2 {
        keys.seek(b"a");
        assert_eq!(
            keys.next_entry().unwrap().map(place_of),
            Some((b"a".to_vec(), 9))
        );
        keys.seek(b"c");
        let came: Vec<_> = keys.by_ref().map(|copy| copy.map(copied).ok()).collect();
        assert_eq!(
            came.iter().filter(|row| row.is_none()).count(),
            1,
            "{came:?}"
        );
        // A seek by towers meets the gap itself, so its report comes before the entry.
        let first = usize::from(cfg!(towers) && came[0].is_none());
        assert!(
            came.len() >= 4 && came[first] == Some((b"c".to_vec(), 8)),
            "{came:?}"
        );
    }
}

/// The front shows an entry, whose key can then no longer be proved because of damage. The back
/// reaches the entry after it. The damaged one may be a newer version or a replacement of it, so
/// the back shows the entry, or reports that it cannot.
#[cfg(feature = "fault-injection")]
#[test]
fn an_end_reports_what_damage_under_the_other_end_hides() {
    use paranoid_memtable::DuplicatePolicy;
    use paranoid_memtable::fault::Region;
    let _watchdog = Watchdog::new(
        "ranges::an_end_reports_what_damage_under_the_other_end_hides",
        0,
    );
    let keys: [&[u8]; 5] = [b"alpha", b"bravo", b"delta", b"gamma", b"omega"];
    for duplicates in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
        let options = MemTableOptions::builder()
            .duplicates(duplicates)
            .write_buffer_size(16 << 10);
        let table = MemTable::new(options.seed(5).build().unwrap()).unwrap();
        for (key, sequence) in keys.into_iter().zip(1..) {
            table.put(sequence, key, b"value").unwrap();
        }
        for is_frozen in [false, true] {
            if is_frozen {
                table.freeze().unwrap();
            }
            let mut injector = crate::walks::open(&table);
            for (shown, key) in keys.iter().enumerate() {
                let damaged = |piece: &paranoid_memtable::fault::Piece| {
                    piece.region == Region::Key
                        && piece
                            .owner
                            .as_ref()
                            .is_some_and(|owner| *owner.key == **key)
                };
                let piece = injector.pieces().iter().position(damaged).expect("its key");
                let mut strike = || {
                    [3, 12]
                        .into_iter()
                        .for_each(|bit| injector.flip(piece, bit))
                };
                let what = format!("{duplicates:?}, {} shown by the front", key.escape_ascii());
                met_from_the_back(table.range(..), shown, &mut strike, &what, place_of);
                injector.undo();
                let mut strike = || {
                    [3, 12]
                        .into_iter()
                        .for_each(|bit| injector.flip(piece, bit))
                };
                met_from_the_back(table.range_at(.., 9), shown, &mut strike, &what, place_of);
                injector.undo();
                let mut strike = || {
                    [3, 12]
                        .into_iter()
                        .for_each(|bit| injector.flip(piece, bit))
                };
                met_from_the_back(
                    table.range_at(.., 9).owned(),
                    shown,
                    &mut strike,
                    &what,
                    copied,
                );
                injector.undo();
            }
        }
    }
}

/// The front shows entries up to the one with this number. Then comes the damage, and the back
/// shows the rest.
#[cfg(feature = "fault-injection")]
fn met_from_the_back<T>(
    mut range: impl DoubleEndedIterator<Item = Result<T, Error>>,
    shown: usize,
    strike: &mut impl FnMut(),
    what: &str,
    place: impl Fn(T) -> Place,
) {
    for _ in 0..=shown {
        drop(range.next().expect("a row").map(&place).unwrap());
    }
    strike();
    let (mut rows, mut errors) = (0, 0);
    for step in std::iter::from_fn(|| range.next_back()) {
        match step {
            Ok(_) => rows += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(
        rows + errors >= 4 - shown && rows <= 4 - shown,
        "{what}: {rows} rows, {errors} errors"
    );
    assert!(errors <= 1, "{what}: one gap, {errors} errors");
}

/// Sequence numbers up to 5 are shown, later ones hidden.
#[cfg(feature = "fault-injection")]
const HIDDEN_AND_SHOWN: [&[(&str, u64)]; 3] = [
    &[("aa", 1), ("bb", 2), ("cc", 9), ("dd", 3)],
    &[
        ("aa", 1),
        ("bb", 9),
        ("bb", 2),
        ("cc", 9),
        ("cc", 8),
        ("dd", 3),
    ],
    &[
        ("aa", 9),
        ("aa", 1),
        ("bb", 2),
        ("bb", 1),
        ("cc", 3),
        ("cc", 2),
    ],
];

/// Both ends have shown all rows, and two pieces of an entry, which may be a hidden one, are
/// damaged. One end reports it, and the other one does not report it again.
#[cfg(feature = "fault-injection")]
#[test]
fn damage_between_the_ends_is_reported_once() {
    let _watchdog = Watchdog::new("ranges::damage_between_the_ends_is_reported_once", 0);
    let mut most = 0;
    for rows in HIDDEN_AND_SHOWN {
        let table = MemTable::new(MemTableOptions::builder().seed(5).build().unwrap()).unwrap();
        for (key, sequence) in rows {
            table.put(*sequence, key.as_bytes(), b"value").unwrap();
        }
        let mut injector = crate::walks::open(&table);
        let shown = table.range_at(.., 5).count();
        let owners: Vec<_> = injector
            .pieces()
            .iter()
            .map(|piece| piece.owner.clone())
            .collect();
        let of_entry = |at: &usize| owners[*at].is_some();
        for first in (0..owners.len()).filter(of_entry) {
            for (second, front) in (first..owners.len())
                .flat_map(|second| (0..=shown).map(move |front| (second, front)))
            {
                if owners[second] != owners[first] {
                    continue;
                }
                let mut range = table.range_at(.., 5);
                let before = (0..front).map(|_| range.next()).collect::<Vec<_>>();
                let passed = (front..shown)
                    .map(|_| range.next_back())
                    .collect::<Vec<_>>();
                assert!(
                    before
                        .iter()
                        .chain(&passed)
                        .all(|row| matches!(row, Some(Ok(_))))
                );
                drop((before, passed));
                let bits = [(first, 1), (first, 12), (second, 3), (second, 14)];
                bits.into_iter()
                    .for_each(|(piece, bit)| injector.flip(piece, bit));
                let after = [
                    range.next().map(|row| row.is_err()),
                    range.next_back().map(|row| row.is_err()),
                ];
                let what = format!(
                    "{rows:?} {:?} {:?} {front}: {after:?}",
                    injector.pieces()[first],
                    injector.pieces()[second]
                );
                assert!(after.iter().all(|row| *row != Some(false)), "{what}: a row");
                let errors = after.iter().flatten().count();
                assert!(errors <= 1, "{what}: one place is damaged");
                most = most.max(errors);
                bits.into_iter()
                    .for_each(|(piece, bit)| injector.flip(piece, bit));
            }
        }
    }
    assert_eq!(most, 1, "no damage was noticed");
}

/// Calls of cursors for engines that keep them: strict seeks, new bounds and prefixes, merge
/// operands.
///
/// The oracle is the scan of the whole table.
mod cursors {
    use paranoid_memtable::filter::FixedPrefix;
    use paranoid_memtable::read::{Base, Operands};
    use paranoid_memtable::{Bytewise, Entry, Kind, Lookup, MemTable, MemTableOptions, Result};

    use crate::support::orders::{CaseBlind, Order, Reverse};
    use crate::support::rng::{Rng, Watchdog, amount, amount_or_few, replay_line, seed_or};
    use crate::support::under;

    /// Keys with common prefixes, under every order.
    fn key(rng: &mut Rng) -> Vec<u8> {
        (0..rng.index(4)).map(|_| *rng.pick(b"aAbB\xff")).collect()
    }

    fn filled<C: Order>(rng: &mut Rng) -> MemTable {
        let options = MemTableOptions::builder().write_buffer_size(64 << 10);
        let table = MemTable::new(under(options.seed(rng.next_u64()), C::default())).unwrap();
        for sequence in 1..=rng.below(if cfg!(miri) { 8 } else { 60 }) {
            let kind = *rng.pick(&[
                Kind::PUT,
                Kind::PUT,
                Kind::MERGE,
                Kind::DELETE,
                Kind::custom(1),
            ]);
            let value = if kind == Kind::DELETE {
                vec![]
            } else {
                rng.bytes(3)
            };
            table.insert(sequence, kind, key(rng), &value).unwrap();
        }
        table
            .delete_range(70, b"A", b"b")
            .or_else(|_| table.delete_range(70, b"b", b"A"))
            .unwrap();
        table
    }

    /// Key and sequence number of all entries of a walk.
    fn shown(table: &MemTable) -> Vec<(Vec<u8>, u64)> {
        let row = |entry: Result<paranoid_memtable::Entry<'_>>| {
            let entry = entry.unwrap();
            (entry.user_key().to_vec(), entry.sequence())
        };
        table.range(..).map(row).collect()
    }

    fn check<C: Order>(rng: &mut Rng, replay: &str) {
        let table = filled::<C>(rng);
        let rows = shown(&table);
        let mut cursor = table.cursor().owned();
        for _ in 0..if cfg!(miri) { 2 } else { 40 } {
            let at = key(rng);
            let before = rows.iter().rfind(|(key, _)| C::plainly(key, &at).is_lt());
            let found = cursor
                .seek_before(&at)
                .unwrap()
                .map(|entry| (entry.user_key().to_vec(), entry.sequence()));
            assert_eq!(found.as_ref(), before, "seek_before {at:?}; {replay}");
            assert_eq!(cursor.is_valid(), before.is_some());
            cursor.status().unwrap();

            let inside: Vec<_> = rows
                .iter()
                .filter(|(key, _)| key.starts_with(&at))
                .cloned()
                .collect();
            cursor.set_prefix(&at);
            assert!(!cursor.is_valid());
            let mut there = vec![];
            let mut entry = cursor.first().unwrap();
            while let Some(found) = entry {
                there.push((found.user_key().to_vec(), found.sequence()));
                entry = cursor.next().unwrap();
            }
            assert_eq!(there, inside, "prefix {at:?}; {replay}");
            let mut back = vec![];
            let mut entry = cursor.last().unwrap();
            while let Some(found) = entry {
                back.push((found.user_key().to_vec(), found.sequence()));
                entry = cursor.prev().unwrap();
            }
            back.reverse();
            assert_eq!(back, inside, "prefix {at:?} backward; {replay}");
            let from = key(rng);
            let next = inside
                .iter()
                .find(|(key, _)| C::plainly(key, &from).is_ge());
            let sought = cursor.seek(&from).unwrap().map(|entry| entry.sequence());
            assert_eq!(
                sought,
                next.map(|(_, sequence)| *sequence),
                "prefix {at:?}, seek {from:?}; {replay}"
            );
            let mut turned = table.cursor().with_prefix(b"b");
            turned.set_bounds(at.as_slice()..);
            let first = rows.iter().find(|(key, _)| C::plainly(key, &at).is_ge());
            let found = turned.first().unwrap().map(|entry| entry.sequence());
            assert_eq!(
                found,
                first.map(|(_, sequence)| *sequence),
                "bounds after a prefix; {replay}"
            );
            cursor.set_bounds(..);
        }
        operands(&table, replay);
    }

    type Merged = (Vec<(u64, Vec<u8>)>, Option<Option<Vec<u8>>>);

    fn merged(operands: Operands<'_>) -> Merged {
        let base = match operands.base().unwrap() {
            Base::Value(value) => Some(Some(value.to_vec())),
            Base::Deleted => Some(None),
            Base::Below => None,
        };
        let operand = |operand: Result<paranoid_memtable::read::Operand<'_>>| {
            let operand = operand.unwrap();
            (operand.sequence, operand.value.to_vec())
        };
        (operands.map(operand).collect(), base)
    }

    /// At every snapshot the operands of a cursor are those of a get of its key.
    fn operands(table: &MemTable, replay: &str) {
        for snapshot in [5, 20, 40, 69, 70]
            .into_iter()
            .step_by(if cfg!(miri) { 4 } else { 1 })
        {
            let mut cursor = table.cursor_at(snapshot).owned();
            cursor.first().unwrap();
            while let Some(entry) = cursor.entry().unwrap() {
                let looked_up = match table.get(entry.user_key(), snapshot).unwrap() {
                    Lookup::Merge(operands) => Some(merged(operands)),
                    Lookup::Value(_) => None,
                    other => panic!("a key that is shown: {other:?}; {replay}"),
                };
                assert_eq!(
                    cursor.operands().unwrap().map(merged),
                    looked_up,
                    "at {snapshot}; {replay}"
                );
                cursor.next().unwrap();
            }
            assert!(cursor.operands().unwrap().is_none(), "off the end");
        }
    }

    #[test]
    fn kept_cursors_under_every_order() {
        let mut seed = seed_or(std::process::id().into());
        println!("ranges::cursors::kept_cursors_under_every_order: seed {seed:#x}");
        for _ in 0..amount(2_000, 12) {
            let (test, _watchdog) = (
                "ranges::cursors::kept_cursors_under_every_order",
                Watchdog::new("cursors", seed),
            );
            let (mut rng, replay) = (Rng::new(seed), replay_line(test, seed));
            check::<Bytewise>(&mut rng, &replay);
            check::<Reverse>(&mut rng, &replay);
            check::<CaseBlind>(&mut rng, &replay);
            seed = rng.next_u64();
        }
    }

    /// Cursors under a custom order use the prefix filter too.
    #[test]
    fn a_prefix_filter_under_a_custom_order() {
        let options = MemTableOptions::builder().prefix_filter(FixedPrefix::new(2), 0.01);
        let table = MemTable::new(under(options, Reverse)).unwrap();
        for (sequence, key) in (1..).zip([b"abc", b"abd", b"bbc"]) {
            table.put(sequence, key, b"").unwrap();
        }
        let mut cursor = table.cursor();
        for (prefix, keys) in [
            (b"ab", &[b"abd", b"abc"][..]),
            (b"zz", &[]),
            (b"bb", &[b"bbc"]),
        ] {
            cursor.set_prefix(prefix);
            let mut found = vec![];
            let mut entry = cursor.first().unwrap();
            while let Some(there) = entry {
                found.push(there.user_key().to_vec());
                entry = cursor.next().unwrap();
            }
            assert_eq!(found, keys);
        }
    }

    /// Puts after range deletes, by several writers and not in the order of their numbers, end the
    /// jumps of cursors over deleted keys.
    #[test]
    fn a_jump_over_a_range_delete_passes_nothing_that_is_shown() {
        let test = "ranges::cursors::a_jump_over_a_range_delete_passes_nothing_that_is_shown";
        let seed = seed_or(0x3a7);
        let _watchdog = Watchdog::new(test, seed);
        const KEYS: u64 = 24;
        for round in 0..amount_or_few(20_000, 100, 2) {
            let (replay, mut rng) = (replay_line(test, seed), Rng::new(seed.wrapping_add(round)));
            let table = MemTable::default();
            let mut writers = [(); 3].map(|()| table.writer());
            let mut numbers: Vec<u64> = (1..=50).collect();
            for _ in 0..rng.below(12) {
                let at = rng.index(numbers.len() - 3);
                numbers.swap(at, at + 3);
            }
            for number in numbers {
                let (writer, mut ends) = (rng.index(3), [rng.below(KEYS), rng.below(KEYS + 1)]);
                ends.sort_unstable();
                let [start, end] = ends.map(u64::to_be_bytes);
                if start < end && rng.one_in(4) {
                    writers[writer].delete_range(number, start, end).unwrap();
                } else {
                    writers[writer].put(number, start, b"").unwrap();
                }
            }
            for snapshot in [50, 49, rng.below(50)] {
                let keys = (0..KEYS).map(u64::to_be_bytes);
                let is_shown =
                    |key: &[u8; 8]| matches!(table.get(key, snapshot), Ok(Lookup::Value(_)));
                let expected: Vec<Vec<u8>> =
                    keys.filter(is_shown).map(|key| key.to_vec()).collect();
                let key_of = |entry: Result<Entry<'_>>| entry.unwrap().user_key().to_vec();
                let forward: Vec<Vec<u8>> = table.range_at(.., snapshot).map(key_of).collect();
                assert_eq!(forward, expected, "at {snapshot}, round {round}; {replay}");
                let mut backward: Vec<Vec<u8>> =
                    table.range_at(.., snapshot).rev().map(key_of).collect();
                backward.reverse();
                assert_eq!(
                    backward, expected,
                    "back at {snapshot}, round {round}; {replay}"
                );
            }
        }
    }

    /// Cursors count hidden entries, the same number both ways.
    #[test]
    fn hidden_entries_are_counted_both_ways() {
        let table = MemTable::default();
        table.put(1, b"apple", b"").unwrap();
        table.delete(2, b"apple").unwrap();
        for (sequence, key) in [(3, b"pear"), (4, b"plum"), (5, b"plum"), (6, b"plum")] {
            table.put(sequence, key, b"").unwrap();
        }
        let key = |entry: Option<Entry<'_>>| {
            entry.map(|entry| (entry.user_key().to_vec(), entry.sequence()))
        };
        let (pear, plum) = (Some((b"pear".to_vec(), 3)), Some((b"plum".to_vec(), 5)));

        let mut cursor = table.cursor_at(5);
        assert_eq!(key(cursor.first().unwrap()), pear);
        assert_eq!(cursor.hidden_entries(), 2, "both versions of apple");
        assert_eq!(key(cursor.next().unwrap()), plum);
        assert_eq!(cursor.hidden_entries(), 3, "plum@6 is too new");
        assert_eq!(key(cursor.next().unwrap()), None);
        assert_eq!(cursor.hidden_entries(), 4, "plum@4 is older");
        assert_eq!(key(cursor.last().unwrap()), plum);
        assert_eq!(cursor.hidden_entries(), 5);
        assert_eq!(key(cursor.prev().unwrap()), pear);
        assert_eq!(cursor.hidden_entries(), 6);
        assert_eq!(key(cursor.prev().unwrap()), None);
        assert_eq!(cursor.hidden_entries(), 8);

        table.delete_range(7, b"pear", b"quince").unwrap();
        let mut cursor = table.cursor_at(7).owned();
        assert!(
            cursor.first().unwrap().is_none() && cursor.hidden_entries() > 0,
            "covered entries"
        );
        assert_eq!(table.range_at(.., 5).rev().count(), 2);
        let mut raw = table.cursor();
        while raw.next().unwrap().is_some() {}
        assert_eq!(
            raw.hidden_entries(),
            0,
            "a raw cursor hides only what was replaced"
        );
    }
}
