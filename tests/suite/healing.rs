//! One flipped bit costs no answer: each bit of each entry of small tables is flipped, alone, and
//! every call answers as before the flip. Two bits of one entry end in the right answer or in
//! `Corruption`.
//!
//! Debug builds take some of the bits; `PARANOID_TEST_SEED` moves the choice.

use std::fmt::Write as _;

use paranoid_memtable::fault::{FaultInjector, Part, Region};
use paranoid_memtable::flush::{FlushItem, Versions};
use paranoid_memtable::integrity::{Place, Repair};
use paranoid_memtable::read::Base;
use paranoid_memtable::{
    Directory, DuplicatePolicy, Entry, Error, ImmutableMemTable, Kind, Lookup, MemTable,
    MemTableOptions, ParanoidOptions, Result, TableReader,
};

use crate::support::rng::{Watchdog, seed_or};

/// Regions that heal.
const HEALED: [Region; 6] = [
    Region::Header,
    Region::Key,
    Region::Digests,
    Region::Value,
    Region::Link,
    Region::HeadLink,
];

const KEYS: [&str; 6] = ["a", "apple", "apricot", "berry", "cherry", "plum"];
const SNAPSHOTS: [u64; 3] = [5, 9, 100];

/// How a table is made and used.
#[derive(Debug, Clone, Copy)]
struct Shape {
    directory: Directory,
    is_frozen: bool,
}

const SHAPES: [Shape; 4] = [
    Shape {
        directory: Directory::On,
        is_frozen: false,
    },
    Shape {
        directory: Directory::On,
        is_frozen: true,
    },
    Shape {
        directory: Directory::Off,
        is_frozen: false,
    },
    Shape {
        directory: Directory::Off,
        is_frozen: true,
    },
];

fn table(shape: Shape) -> MemTable {
    let options = MemTableOptions::builder()
        .seed(3)
        .duplicates(DuplicatePolicy::Replace)
        .directory(shape.directory);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    for (sequence, key) in (1..).zip(KEYS) {
        table
            .put(sequence, key, format!("the value of {key}"))
            .unwrap();
    }
    table.put(7, "apple", vec![7; 300]).unwrap();
    table.put(7, "apple", vec![8; 300]).unwrap();
    table.merge(8, "berry", "+1").unwrap();
    table.merge(9, "berry", "+2").unwrap();
    table.delete(10, "cherry").unwrap();
    table.delete_range(11, "p", "q").unwrap();
    table
}

fn open(table: &MemTable) -> FaultInjector<'_> {
    // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

/// The pieces of these regions, as (number, bits).
fn pieces(table: &MemTable, regions: &[Region]) -> Vec<(usize, usize)> {
    let injector = open(table);
    let pieces = injector.pieces().iter().enumerate();
    pieces
        .filter(|(_, piece)| regions.contains(&piece.region) && piece.level == 0)
        .filter(|(_, piece)| matches!(piece.part, Part::Points | Part::Ranges))
        .map(|(number, piece)| (number, 8 * piece.len()))
        .collect()
}

fn flip<const N: usize>(table: &MemTable, piece: usize, bits: [usize; N]) {
    let mut injector = open(table);
    bits.into_iter().for_each(|bit| injector.flip(piece, bit));
}

fn note(text: &mut String, entry: &Entry<'_>) -> Result<()> {
    let (key, value) = entry.parts()?;
    assert_eq!(entry.value()?, value);
    assert_eq!(entry.to_bytes()?.value(), value);
    let mut buffer = Vec::new();
    entry.value_into(&mut buffer)?;
    assert_eq!(buffer, value);
    let protection = entry.stored_protection();
    assert!(
        protection
            .check(key, value, entry.sequence(), entry.kind())
            .is_some()
    );
    let _ = write!(
        text,
        "{key:?}@{} {:?} {value:?} ",
        entry.sequence(),
        entry.kind()
    );
    Ok(())
}

/// The answers of all calls that read.
fn reads(table: &TableReader) -> Result<String> {
    let mut text = String::new();
    for snapshot in SNAPSHOTS {
        for key in KEYS.into_iter().chain(["", "banana", "z"]) {
            match table.get(key, snapshot)? {
                Lookup::Value(value) => {
                    assert_eq!(*value.to_pinned(), *value);
                    let _ = write!(text, "{}={:?} ", value.sequence(), &*value);
                }
                Lookup::Merge(operands) => {
                    if let Base::Value(value) = operands.base()? {
                        let _ = write!(text, "base {value:?} ");
                    }
                    for operand in operands {
                        let operand = operand?;
                        let _ = write!(text, "{}+{:?} ", operand.sequence, operand.value);
                    }
                }
                Lookup::Deleted { sequence, by } => {
                    let _ = write!(text, "{sequence} {by:?} ");
                }
                Lookup::NotFound => text.push('-'),
            }
            let mut buffer = Vec::new();
            let into = table.get_into(key, snapshot, &mut buffer)?;
            let _ = write!(text, "{} {buffer:?} ", into.is_deleted());
            if let Some(entry) = table.get_entry(key, snapshot)? {
                note(&mut text, &entry)?;
                #[cfg(feature = "bytes")]
                assert_eq!(table.pin(&entry)?.0, entry.user_key());
            }
        }
        for found in table.multi_get(&KEYS, snapshot) {
            let _ = write!(text, "{:?} ", found?.value());
        }
        for entry in table.range_at(.., snapshot) {
            note(&mut text, &entry?)?;
        }
        for entry in table.range_at(.., snapshot).descending() {
            note(&mut text, &entry?)?;
        }
        for fragment in table.range_tombstones(snapshot)?.iter() {
            let _ = write!(text, "{:?} {:?} ", fragment.start(), fragment.end());
        }
        let mut cursor = table.cursor_at(snapshot);
        for key in KEYS {
            for found in [
                cursor.seek(key)?.is_some(),
                cursor.seek_for_prev(key)?.is_some(),
            ] {
                let _ = write!(text, "{found} ");
            }
            if let Some(entry) = cursor.next()? {
                note(&mut text, &entry)?;
            }
            if let Some(entry) = cursor.prev()? {
                note(&mut text, &entry)?;
            }
        }
    }
    for entry in table.range(..) {
        note(&mut text, &entry?)?;
    }
    for entry in table.range(..).descending() {
        note(&mut text, &entry?)?;
    }
    Ok(text)
}

fn flushed(table: &ImmutableMemTable) -> Result<String> {
    let mut text = String::new();
    for versions in [Versions::All, Versions::SeenBy(&SNAPSHOTS)] {
        let mut items = table.flush_iter(versions)?;
        while let Some(item) = items.next()? {
            match item {
                FlushItem::Entry(entry) => {
                    let (key, value) = (entry.user_key, entry.value);
                    let checked = entry
                        .protection
                        .check(key, value, entry.sequence, entry.kind);
                    assert!(checked.is_some());
                    let _ = write!(text, "{key:?}@{} {value:?} ", entry.sequence);
                }
                FlushItem::Fragment(fragment) => {
                    let _ = write!(text, "{:?} {:?} ", fragment.start(), fragment.end());
                }
            }
        }
    }
    Ok(text)
}

/// Writes beside every entry.
fn writes(table: &MemTable) -> Result<()> {
    for key in KEYS {
        for (sequence, key) in [(20, format!("{key}!")), (21, key.into()), (2, key.into())] {
            table.insert(sequence, Kind::PUT, key, "beside")?;
        }
    }
    table.delete_range(30, "ba", "bz").map(drop)
}

/// The answers of a table after `damage`, which comes before the writes, or after the freeze.
fn answers(shape: Shape, damage: impl Fn(&MemTable)) -> Result<String> {
    let table = table(shape);
    if shape.is_frozen {
        let frozen = table.freeze()?;
        damage(&table);
        Ok(reads(&table)? + &flushed(&frozen)?)
    } else {
        // Scans make writers watch the range tombstone, and compare their keys with it.
        reads(&table)?;
        damage(&table);
        writes(&table)?;
        let read = reads(&table)?;
        Ok(read + &flushed(&table.freeze()?)?)
    }
}

#[test]
fn any_one_bit_costs_no_answer() {
    let seed = seed_or(7) as usize;
    let _watchdog = Watchdog::new("healing::any_one_bit_costs_no_answer", seed as u64);
    let stride = if cfg!(debug_assertions) { 41 } else { 1 };
    for shape in SHAPES {
        let right = answers(shape, |_| {}).unwrap();
        let pieces = pieces(&table(shape), &HEALED);
        let bits = pieces
            .into_iter()
            .flat_map(|(piece, bits)| (0..bits).map(move |bit| (piece, bit)));
        for (piece, bit) in bits.skip(seed % stride).step_by(stride) {
            let found = answers(shape, |table| flip(table, piece, [bit]));
            let owner = || format!("{:?}", open(&table(shape)).pieces()[piece]);
            let found =
                found.unwrap_or_else(|error| panic!("{shape:?} {} bit {bit}: {error}", owner()));
            assert_eq!(found, right, "{shape:?} {} bit {bit}", owner());
        }
    }
}

#[test]
fn two_bits_of_an_entry_are_never_a_wrong_answer() {
    let seed = seed_or(7) as usize;
    let _watchdog = Watchdog::new("healing::two_bits_of_an_entry", seed as u64);
    let stride = if cfg!(debug_assertions) { 97 } else { 3 };
    let mut corrupt = 0;
    for shape in SHAPES {
        let right = answers(shape, |_| {}).unwrap();
        for (piece, bits) in pieces(&table(shape), &HEALED) {
            for bit in (seed % stride..bits).step_by(stride) {
                let second = (bit + 1 + bit % 37) % bits;
                let found = answers(shape, |table| flip(table, piece, [bit, second]));
                match found {
                    Ok(found) => assert_eq!(found, right, "{shape:?} bits {bit} and {second}"),
                    Err(Error::Corruption(_)) => corrupt += 1,
                    Err(error) => panic!("{shape:?} bits {bit} and {second}: {error}"),
                }
            }
        }
    }
    assert!(corrupt > 0, "two bits do not heal");
}

/// An entry whose key is proved and whose value is lost answers `Corruption` for its own value, and
/// for nothing else.
#[test]
fn a_lost_value_costs_no_other_answer() {
    const ROWS: [&str; 5] = ["a", "c", "e", "g", "i"];
    for (region, bit) in [
        (Region::Header, 3),
        (Region::Header, 70),
        (Region::Digests, 9),
        (Region::Key, 5),
    ] {
        let table = with_damaged_values(0, Repair::default());
        for (sequence, key) in (1..).zip(ROWS) {
            table.put(sequence, key, "the value").unwrap();
        }
        for (region, bits) in [(Region::Value, &[3, 40][..]), (region, &[bit][..])] {
            let piece = pieces(&table, &[region])
                .into_iter()
                .find(|(piece, _)| {
                    let injector = open(&table);
                    let owner = injector.pieces()[*piece].owner.as_ref();
                    owner.is_some_and(|owner| &*owner.key == b"e")
                })
                .unwrap();
            bits.iter().for_each(|bit| flip(&table, piece.0, [*bit]));
        }
        let what = format!("{region:?} bit {bit}");
        let is_lost =
            |error: Error| matches!(error, Error::Corruption(found) if found.place == Place::Value);
        for key in ["", "b", "d", "dz", "ea", "f", "h", "z"] {
            assert!(
                table.get(key, 99).unwrap().found().is_none(),
                "{what}: {key}"
            );
        }
        for (sequence, key) in (20..).zip(["d", "f"]) {
            table.put(sequence, key, "beside").unwrap();
        }
        for key in ROWS {
            let found = table
                .get(key, 99)
                .map(|lookup| lookup.value() == Some(b"the value"));
            assert!(
                found.unwrap_or_else(|error| is_lost(error) && key == "e"),
                "{what}: {key}"
            );
        }
        let keys: Vec<_> = table
            .range_at(.., 9)
            .map(|entry| entry.unwrap().user_key().to_vec())
            .collect();
        assert_eq!(keys, ROWS.map(|key| key.as_bytes().to_vec()), "{what}");
        let mut cursor = table.cursor();
        let found = cursor.seek("e").unwrap().unwrap();
        assert!(
            found.user_key() == b"e" && found.value().is_err_and(is_lost),
            "{what}"
        );
        assert_eq!(cursor.prev().unwrap().unwrap().user_key(), b"d", "{what}");
        assert_eq!(table.healed().len(), 1, "{what}");
        let frozen = table.freeze().unwrap();
        assert!(flushed(&frozen).is_err_and(is_lost), "{what}");
    }
}

/// A table whose every key has one flipped bit in its value.
fn with_damaged_values(keys: u64, repair: Repair) -> MemTable {
    let paranoid = ParanoidOptions::builder().repair(repair).build().unwrap();
    let options = MemTableOptions::builder().paranoid(paranoid).seed(3);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    for key in 0..keys {
        table.put(key + 1, key.to_be_bytes(), b"value").unwrap();
    }
    for (piece, _) in pieces(&table, &[Region::Value]) {
        flip(&table, piece, [3]);
    }
    table
}

/// Each place is told once, a table heals as many as its option says, and the others are reported
/// as before.
#[test]
fn a_table_heals_up_to_its_limit_and_tells_each_place_once() {
    for (repair, limit) in [
        (Repair::Off, 0),
        (Repair::On { places_max: 1 }, 1),
        (Repair::default(), 16),
        (Repair::On { places_max: 99 }, 20),
    ] {
        let table = with_damaged_values(20, repair);
        for _ in 0..2 {
            let answers = (0..20u64).map(|key| table.get(key.to_be_bytes(), 99));
            let right = answers.filter(|answer| match answer {
                Ok(lookup) => lookup.value() == Some(b"value"),
                Err(error) => error
                    .corruption()
                    .is_none_or(|found| found.flipped_bit.is_none()),
            });
            assert_eq!(right.count(), limit, "{repair:?}");
        }
        let healed = table.healed();
        assert_eq!(healed.len(), limit, "{repair:?}");
        assert!(
            healed
                .iter()
                .all(|healed| healed.place == Place::Value && healed.bit == Some(3))
        );
        let findings = table.scrub(|_| ()).findings.len();
        assert_eq!(findings, 20, "stored bytes stay as they are");
    }
}

/// A bit of a link that flips again after each read and each write costs no answer, and is told
/// once.
#[test]
fn a_stuck_bit_of_a_link_is_told_once() {
    let table = with_damaged_values(0, Repair::default());
    table.put(1, "k", "v").unwrap();
    let link = pieces(&table, &[Region::HeadLink])[0].0;
    let is_stuck = |bytes: &[u8]| bytes[5] & 1 == 1;
    let mut injector = open(&table);
    let mut stick = || {
        if !is_stuck(&injector.bytes(link)) {
            injector.flip(link, 8 * 5);
        }
    };
    for sequence in 2..40 {
        stick();
        table
            .put(sequence, format!("a{}", 100 - sequence), "v")
            .unwrap();
        stick();
        assert!(table.get("k", 99).unwrap().value() == Some(b"v"));
        stick();
        assert_eq!(
            table.range(..).filter(Result::is_ok).count() as u64,
            sequence
        );
    }
    assert!(table.healed().len() <= 2, "{:?}", table.healed());
}
