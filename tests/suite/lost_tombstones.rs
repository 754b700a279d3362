//! Lost writes in the tombstone index of a table: a piece of it goes back to what it held before a range delete.
//! Reads stay right, a scrub reports it, and a flush fails.

use paranoid_memtable::fault::{FaultInjector, Part, Region};
use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions, ParanoidOptions};

use super::support::watchdog::Watchdog;

const KEYS: u64 = 12;

fn key(number: u64) -> Vec<u8> {
    format!("a/shared/beginning/{number:02}").into_bytes()
}

/// Range delete number `turn`: start, end, sequence number; not in the order of sequence numbers.
fn range(turn: u64) -> (u64, u64, u64) {
    let start = turn * 5 % (KEYS - 2);
    (start, start + 1 + turn % 3, 100 + (turn ^ 1))
}

fn keys_only() -> MemTable {
    let table = MemTable::new(MemTableOptions::builder().seed(9).build().unwrap()).unwrap();
    for number in 0..KEYS {
        table.put(number + 1, &key(number), b"value").unwrap();
    }
    table
}

fn delete(table: &MemTable, turn: u64) {
    let (start, end, sequence) = range(turn);
    table.delete_range(sequence, &key(start), &key(end)).unwrap();
}

fn open_injector(table: &MemTable) -> FaultInjector<'_> {
    #[expect(unsafe_code, reason = "the fault injector for breaking memory on purpose")]
    // SAFETY: one thread, and nothing borrowed from the table is held across a break.
    unsafe { FaultInjector::open(table) }.unwrap()
}

/// The two counters of the tally, which come first, and every record: 48 bytes each.
fn pieces_of_index(injector: &FaultInjector<'_>) -> Vec<usize> {
    let pieces =
        injector.pieces().iter().enumerate().filter(|(_, piece)| piece.region == Region::TombstoneIndex);
    let wanted = pieces.enumerate().filter(|(place, (_, piece))| *place < 2 || piece.len() == 48);
    wanted.map(|(_, (number, _))| number).collect()
}

fn bytes_of_index(table: &MemTable) -> Vec<Vec<u8>> {
    let injector = open_injector(table);
    pieces_of_index(&injector).into_iter().map(|number| injector.bytes(number)).collect()
}

fn read_everything(table: &MemTable, turns: u64, note: &str) {
    for number in 0..KEYS {
        for snapshot in [50].into_iter().chain(100..102 + turns) {
            let deleted = (0..turns)
                .map(range)
                .any(|(start, end, sequence)| (start..end).contains(&number) && sequence <= snapshot);
            match table.get(&key(number), snapshot) {
                Ok(Lookup::Value(_)) => assert!(!deleted, "{note}: key {number} at {snapshot} is deleted"),
                Ok(_) => assert!(deleted, "{note}: key {number} at {snapshot} is not deleted"),
                Err(Error::Corruption(_)) => {}
                Err(error) => panic!("{note}: {error}"),
            }
        }
    }
}

/// A sink that drops what it is given.
struct Forget;

impl FlushSink for Forget {
    fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// One piece of the index of a table with `turns` range deletes goes back to what it held before one of them.
fn went_back(turns: u64, piece: usize, old: &[u8], note: &str) {
    let table = keys_only();
    (0..turns).for_each(|turn| delete(&table, turn));
    let mut injector = open_injector(&table);
    let number = pieces_of_index(&injector)[piece];
    injector.overwrite(number, old);
    drop(injector);
    read_everything(&table, turns, note);
    assert!(table.scrub(|_| {}).check().is_err(), "{note}: scrub is silent");
    let frozen = table.freeze().unwrap();
    read_everything(&table, turns, &format!("{note}, frozen"));
    assert!(frozen.scrub(|_| {}).check().is_err(), "{note}: scrub of the frozen table is silent");
    match frozen.flush(&[], &mut Forget) {
        Err(Error::Corruption(_)) => {}
        other => panic!("{note}: flush says {other:?}"),
    }
}

#[test]
fn a_tombstone_index_that_lost_a_write_hides_nothing() {
    let _watchdog = Watchdog::new("lost_tombstones::", 9);
    let turns = 20;
    let (table, mut history) = (keys_only(), Vec::new());
    for turn in 0..turns {
        history.push(bytes_of_index(&table));
        delete(&table, turn);
    }
    let now = bytes_of_index(&table);
    read_everything(&table, turns, "undamaged");
    assert!(table.scrub(|_| {}).check().is_ok());
    let mut tried = 0;
    for (turn, before) in history.iter().enumerate() {
        for (piece, (old, new)) in before.iter().zip(&now).enumerate() {
            if old != new {
                went_back(turns, piece, old, &format!("piece {piece} as before range delete {turn}"));
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
    let frozen = table.freeze().unwrap();
    frozen.flush(&[], &mut Forget).unwrap();
}

/// Indexes of the pieces that hold the starts of range tombstones.
fn starts_of_ranges(injector: &FaultInjector<'_>) -> Vec<usize> {
    let pieces = injector.pieces().iter().enumerate();
    let wanted = pieces.filter(|(_, piece)| piece.region == Region::Key && piece.part == Part::Ranges);
    wanted.map(|(number, _)| number).collect()
}

/// The start of a range tombstone, and what lies after it in memory, is overwritten by a copy of another one's. Then
/// come more range deletes, and the freeze.
fn copied_start(protection: u8, [from, to, len]: [usize; 3]) {
    let paranoid = ParanoidOptions::builder().protection_bytes(protection).build().unwrap();
    let options = MemTableOptions::builder().seed(2).paranoid(paranoid).build().unwrap();
    let table = MemTable::new(options).unwrap();
    let delete = |sequence, start| table.delete_range(sequence, &key(start), &key(12));
    for (sequence, start) in (100..).zip([1, 3, 3, 8]) {
        delete(sequence, start).unwrap();
    }
    let mut injector = open_injector(&table);
    let starts = starts_of_ranges(&injector);
    let intact = injector.bytes(starts[to]);
    injector.copy(starts[from], starts[to], len);
    let changed = injector.bytes(starts[to]) != intact;
    drop(injector);
    for (sequence, start) in (200..).zip([6, 8]) {
        let _ = delete(sequence, start);
    }
    let _ = table.freeze();
    let frozen = table.immutable().expect("writing has ended");
    let _ = frozen.flush(&[], &mut Forget);
    let damaged = !frozen.scrub(|_| {}).findings.is_empty();
    assert!(damaged || protection == 0 || !changed, "{len} bytes from {from} over {to}");
}

/// The freeze ends, whatever the list reads as. Without protection bytes it cannot know that the list is wrong.
#[test]
fn a_freeze_ends_over_a_copied_start() {
    let _watchdog = Watchdog::new("lost_tombstones::a_freeze_ends_over_a_copied_start", 2);
    for protection in [0, 8] {
        for from in 0..4 {
            for to in 0..4 {
                [16, 48, 96].into_iter().for_each(|len| copied_start(protection, [from, to, len]));
            }
        }
    }
}
