//! Damage in tables of another order, with replaced equals: each bit of each entry and link in turn. Every read gives
//! the answer that was written, or `Corruption`.

use std::cmp::Ordering;

use paranoid_memtable::fault::{FaultInjector, Part};
use paranoid_memtable::flush::{FlushEntry, FlushSink, HiddenVersions, SinkError};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{DuplicatePolicy, Error, Lookup, MemTable, MemTableOptions};

use super::support::orders::{Script, ScriptedLoosely};
use super::support::under::under;
use super::support::watchdog::Watchdog;

/// An order that ignores case and descends: keys that differ in bytes may be equal.
#[derive(Debug, Clone, Copy)]
struct Folded;

impl Script for Folded {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        right.to_ascii_lowercase().cmp(&left.to_ascii_lowercase())
    }
}

/// (key, sequence number, value), in the order of inserts: of equal entries the last one counts.
const WRITES: [(&str, u64, &str); 12] = [
    ("delta", 1, "old"),
    ("Delta", 1, "new"),
    ("bravo", 2, "b2"),
    ("BRAVO", 5, "b5"),
    ("alpha", 3, "a"),
    ("Echo", 4, ""),
    ("charlie", 6, "c-first"),
    ("charlie", 6, "c-second"),
    ("CHARLIE", 6, "c-third"),
    ("golf", 7, "a longer value than the others have"),
    ("foxtrot", 8, "f"),
    ("bravo", 9, "b9"),
];

fn table() -> MemTable {
    let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).seed(5);
    let table = MemTable::new(under(options, ScriptedLoosely::new(Folded))).unwrap();
    for (key, sequence, value) in WRITES {
        table.put(sequence, key.as_bytes(), value.as_bytes()).unwrap();
    }
    table
}

/// What a read of `key` at `snapshot` must find.
fn newest(key: &str, snapshot: u64) -> Option<(u64, &'static str)> {
    let same = |write: &&(&str, u64, &str)| write.0.eq_ignore_ascii_case(key) && write.1 <= snapshot;
    WRITES.iter().filter(same).max_by_key(|write| write.1).map(|(_, sequence, value)| (*sequence, *value))
}

/// (lower-case key, sequence number, value) in table order, without replaced ones.
fn rows() -> Vec<(String, u64, String)> {
    let mut rows: Vec<(String, u64, String)> = Vec::new();
    for (key, sequence, value) in WRITES {
        let key = key.to_ascii_lowercase();
        rows.retain(|row| (&row.0, row.1) != (&key, sequence));
        rows.push((key, sequence, value.into()));
    }
    rows.sort_by(|left, right| right.0.cmp(&left.0).then(right.1.cmp(&left.1)));
    rows
}

#[derive(Default)]
struct Collected(Vec<(String, u64, String)>);

fn row(key: &[u8], sequence: u64, value: &[u8]) -> (String, u64, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(key).to_ascii_lowercase(), sequence, text(value))
}

impl FlushSink for Collected {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        self.0.push(row(entry.user_key, entry.sequence, entry.value));
        Ok(())
    }
    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The keys that answered `Corruption`; panics at a wrong answer.
fn uncertain(table: &MemTable, what: &str) -> Vec<&'static str> {
    let mut uncertain = Vec::new();
    for key in ["alpha", "aa", "bravo", "c", "charlie", "delta", "echo", "foxtrot", "golf", "zulu"] {
        for snapshot in [0, 1, 2, 4, 6, 8, u64::MAX] {
            match table.get(key.as_bytes(), snapshot) {
                Ok(Lookup::Value(value)) => {
                    let found = (value.sequence(), std::str::from_utf8(&value).unwrap());
                    assert_eq!(Some(found), newest(key, snapshot), "{what}: {key} at {snapshot}");
                }
                Ok(Lookup::NotFound) => {
                    assert_eq!(newest(key, snapshot), None, "{what}: {key} at {snapshot}")
                }
                Ok(other) => panic!("{what}: {key} at {snapshot}: {other:?}"),
                Err(error) => {
                    assert!(error.corruption().is_some(), "{what}: {error}");
                    uncertain.push(key);
                }
            }
        }
    }
    uncertain.dedup();
    uncertain
}

/// A scan shows the rows in order; each row that it leaves out comes after an error.
fn scan(table: &MemTable, rows: &[(String, u64, String)], what: &str) {
    let mut rest = rows.iter();
    let mut gap = false;
    for entry in table.range(..).take(4 * rows.len()) {
        let shown = entry.and_then(|entry| Ok(row(entry.user_key(), entry.sequence(), entry.value()?)));
        let Ok(shown) = shown else {
            gap = true;
            continue;
        };
        let found = if gap { rest.any(|row| *row == shown) } else { rest.next() == Some(&shown) };
        assert!(found, "{what}: a scan shows {shown:?}");
        gap = false;
    }
    assert!(gap || rest.next().is_none(), "{what}: a scan ends early");
}

#[test]
fn every_bit_under_another_order_with_replaced_equals() {
    let _watchdog = Watchdog::new("orders_under_damage::every_bit", 0);
    let rows = rows();
    let pieces = {
        let table = table();
        assert_eq!(uncertain(&table, "undamaged"), [""; 0]);
        scan(&table, &rows, "undamaged");
        // SAFETY: one thread, and nothing borrowed is held.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let visibility = injector.pieces().iter().map(|piece| (piece.part, piece.len()));
        visibility.collect::<Vec<_>>()
    };
    let table = table();
    // SAFETY: one thread, and nothing borrowed is held while the fault injector works.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
    let stride = if cfg!(debug_assertions) { 5 } else { 1 };
    let (mut tried, mut most) = (0, 0);
    for (piece, (part, len)) in pieces.into_iter().enumerate().filter(|(_, (part, _))| *part == Part::Points)
    {
        for bit in (0..len * 8).step_by(stride) {
            let what = format!("{part:?} {:?}, bit {bit}", injector.pieces()[piece].region);
            injector.flip(piece, bit);
            most = most.max(uncertain(&table, &what).len());
            scan(&table, &rows, &what);
            injector.undo();
            tried += 1;
        }
    }
    assert!(tried > 500 && most >= 1, "{tried} {most}");
    // The damage is undone: all rows are there, and the sums agree.
    let frozen = table.freeze().unwrap();
    let mut sink = Collected::default();
    frozen.flush_with(&[], HiddenVersions::Keep, &mut sink).unwrap();
    assert_eq!(sink.0, rows);
}

#[test]
fn a_damaged_replacing_entry_never_shows_the_replaced_one() {
    let table = table();
    // SAFETY: one thread, and nothing borrowed is held while the fault injector works.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
    let owned = |piece: &paranoid_memtable::fault::Piece| {
        piece.owner.as_ref().is_some_and(|owner| owner.key.eq_ignore_ascii_case(b"charlie"))
    };
    let pieces: Vec<usize> =
        (0..injector.pieces().len()).filter(|piece| owned(&injector.pieces()[*piece])).collect();
    for piece in pieces {
        for byte in 0..injector.pieces()[piece].len() {
            injector.zero_word(piece, byte);
            match table.get(b"Charlie", 6) {
                Ok(Lookup::Value(value)) => assert_eq!(&*value, b"c-third"),
                Ok(other) => panic!("{other:?}"),
                Err(Error::Corruption(_)) => {}
                Err(error) => panic!("{error}"),
            }
            injector.undo();
        }
    }
}
