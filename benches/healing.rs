//! Measures the first and the second get after a flipped bit, by place and by length.
//!
//! ```text
//!   a table of 200 entries, made anew  ->  one bit of an entry in its middle flips  ->  get, get
//!   median of all rounds, in microseconds; beside it a get of an entry without damage
//! ```
//! The command is `cargo bench -p paranoid-memtable-benches --features records,fault-injection --bench healing`.
//! It prints a table for a record. An answer is right, or `Corruption`; any other one ends the bench.

#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "numbers are small; a bench that cannot continue panics"
)]

use std::hint::black_box;
use std::time::Instant;

use paranoid_memtable::fault::{FaultInjector, Part, Region};
use paranoid_memtable::{Directory, Error, MemTable, MemTableOptions};

/// Entries of a table, and which of them is damaged.
const ENTRIES: u64 = 200;
const VICTIM: u64 = 100;

/// Bytes of keys and values.
const LENGTHS: [(usize, usize); 7] = [
    (16, 16),
    (16, 100),
    (16, 1000),
    (16, 4000),
    (16, 8192),
    (256, 100),
    (4000, 100),
];

/// Where a bit flips.
#[derive(Debug, Clone, Copy)]
enum Place {
    Nothing,
    Header,
    Key,
    KeyDigest,
    Value,
    ValueDigest,
    /// The level-0 link to the entry.
    Link,
    ControlWord,
}

const PLACES: [(Place, &str); 8] = [
    (Place::Nothing, "nothing"),
    (Place::Header, "header"),
    (Place::Key, "key"),
    (Place::KeyDigest, "key digest"),
    (Place::Value, "value"),
    (Place::ValueDigest, "value digest"),
    (Place::Link, "level-0 link"),
    (Place::ControlWord, "control word"),
];

impl Place {
    /// The region, the number of the entry, and the first bit and the number of bits; 0: all.
    fn bits(self) -> Option<(Region, u64, usize, usize)> {
        Some(match self {
            Place::Nothing => return None,
            Place::Header => (Region::Header, VICTIM, 0, 0),
            Place::Key => (Region::Key, VICTIM, 0, 0),
            Place::KeyDigest => (Region::Digests, VICTIM, 0, 64),
            Place::Value => (Region::Value, VICTIM, 0, 0),
            Place::ValueDigest => (Region::Digests, VICTIM, 64, 64),
            Place::Link => (Region::Link, VICTIM - 1, 0, 0),
            Place::ControlWord => (Region::Control, 0, 0, 0),
        })
    }
}

fn key(number: u64, len: usize) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(len, b'k');
    key
}

fn table((key_len, value_len): (usize, usize)) -> MemTable {
    let options = MemTableOptions::builder()
        .seed(1)
        .directory(Directory::On)
        .build();
    let table = MemTable::new(options.unwrap()).unwrap();
    for number in 0..ENTRIES {
        let value = vec![number as u8; value_len];
        table.put(number + 1, key(number, key_len), value).unwrap();
    }
    table
}

/// Flips a bit that the round selects.
fn flip(table: &MemTable, place: Place, round: u64) {
    let Some((region, entry, first, bits)) = place.bits() else {
        return;
    };
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector = unsafe { FaultInjector::open(table) }.unwrap();
    let is_meant = |piece: &usize| {
        let piece = &injector.pieces()[*piece];
        let owner = piece.owner.as_ref().map(|owner| owner.sequence);
        let is_own = match region {
            Region::Control => piece.part == Part::Control,
            _ => piece.part == Part::Points && owner == Some(entry + 1),
        };
        piece.region == region && piece.level == 0 && is_own
    };
    let pieces: Vec<usize> = (0..injector.pieces().len()).filter(is_meant).collect();
    let turn = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let piece = pieces[turn as usize % pieces.len()];
    let all = injector.pieces()[piece].len() * 8;
    let bits = if bits == 0 { all } else { bits };
    injector.flip(piece, first + (turn >> 12) as usize % bits);
}

/// Microseconds of a get of the damaged entry, and whether its answer was right.
fn get(table: &MemTable, (key_len, value_len): (usize, usize)) -> (f64, bool) {
    let key = key(VICTIM, key_len);
    let begun = Instant::now();
    let found = black_box(table.get(black_box(&key), u64::MAX));
    let spent = begun.elapsed().as_secs_f64() * 1e6;
    match found {
        Ok(found) => {
            let is_right = found.value() == Some(&vec![VICTIM as u8; value_len]);
            assert!(is_right, "a wrong answer");
            (spent, true)
        }
        Err(Error::Corruption(_)) => (spent, false),
        Err(error) => panic!("{error}"),
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    // Under `cargo test` it is only tried.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let rounds = if is_bench { 201 } else { 3 };
    println!("| key, value: bytes | bit of | first get: us | second get: us | right |");
    println!("|---|---|---|---|---|");
    for lengths in LENGTHS {
        for (place, name) in PLACES {
            let (mut first, mut second, mut right) = (Vec::new(), Vec::new(), 0);
            for round in 0..rounds {
                let table = table(lengths);
                flip(&table, place, round);
                let (once, again) = (get(&table, lengths), get(&table, lengths));
                first.push(once.0);
                second.push(again.0);
                right += u64::from(once.1 && again.1);
            }
            println!(
                "| {}, {} | {name} | {:.2} | {:.2} | {right} of {rounds} |",
                lengths.0,
                lengths.1,
                median(&mut first),
                median(&mut second)
            );
        }
    }
}
