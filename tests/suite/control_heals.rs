//! One flipped bit in a control word: every call answers as without it, and the word is put right
//! and told.
//!
//! ```text
//!   table --flip one bit of a value, a check or a spare--> one call == the call of an undamaged table
//!         --scrub--> no finding; the byte is what it was; `healed` names it
//! ```

use std::sync::{Arc, Mutex};

use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::flush::{FlushItem, Versions};
use paranoid_memtable::integrity::{Place, Repair};
use paranoid_memtable::repair::Healed;
use paranoid_memtable::{
    Directory, Error, ImmutableMemTable, MemTable, MemTableOptions, MemTableOptionsBuilder,
    WriteBatch,
};

use paranoid_set::{Listener, MemTableSet, SetEvent, SetOptions};

use crate::support::rng::Watchdog;

/// The control words of the arena, and of each filter.
const ARENA_WORDS: usize = 47;
const FILTER_WORDS: usize = 17;

fn open(table: &MemTable) -> FaultInjector<'_> {
    // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

/// A table: its options, its entries and range tombstones, and its number of filters.
struct Shape {
    options: fn() -> MemTableOptionsBuilder,
    entries: u64,
    ranges: u64,
    value_len: usize,
    filters: usize,
}

fn plain() -> MemTableOptionsBuilder {
    MemTableOptions::builder().directory(Directory::Off)
}

fn filtered() -> MemTableOptionsBuilder {
    let builder = MemTableOptions::builder().whole_key_filter(0.01);
    builder.prefix_filter(FixedPrefix::new(2), 0.01)
}

fn growing() -> MemTableOptionsBuilder {
    MemTableOptions::builder().whole_key_filter_bits(10)
}

const SHAPES: [Shape; 4] = [
    Shape {
        options: plain,
        entries: 0,
        ranges: 0,
        value_len: 0,
        filters: 0,
    },
    Shape {
        options: filtered,
        entries: 3,
        ranges: 1,
        value_len: 2,
        filters: 2,
    },
    Shape {
        options: growing,
        entries: 40,
        ranges: 2,
        value_len: 40,
        filters: 1,
    },
    // Two chunks.
    Shape {
        options: plain,
        entries: 60,
        ranges: 0,
        value_len: 200,
        filters: 0,
    },
];

impl Shape {
    fn table(&self, repair: Repair) -> MemTable {
        let options = (self.options)()
            .write_buffer_size(64 << 10)
            .seed(5)
            .repair(repair);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        for number in 0..self.entries {
            let key = format!("k{number:03}");
            table
                .put(number + 1, key, vec![b'v'; self.value_len])
                .unwrap();
        }
        for number in 0..self.ranges {
            table
                .delete_range(100 + number, format!("k00{number}"), "k002")
                .unwrap();
        }
        table
    }
}

/// The state of a table when the bit flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Mutable,
    Frozen,
}

/// A call with its result as text.
type Call = fn(&MemTable) -> Result<String, Error>;

fn flushed(frozen: &ImmutableMemTable) -> Result<String, Error> {
    let mut flush = frozen.flush_iter(Versions::All)?;
    let mut items = String::new();
    while let Some(item) = flush.next()? {
        match item {
            FlushItem::Entry(entry) => items += &format!("{:?} ", (entry.user_key, entry.sequence)),
            FlushItem::Fragment(cut) => items += &format!("{:?} ", (cut.start(), cut.end())),
        }
    }
    Ok(items)
}

const CALLS: [(&str, Call); 17] = [
    ("get", |table| {
        let keys = ["k000", "k001", "k020", "k059", "x"];
        let found = keys.map(|key| Ok(table.get(key, 500)?.value().map(<[u8]>::to_vec)));
        found
            .into_iter()
            .collect::<Result<Vec<_>, Error>>()
            .map(|found| format!("{found:?}"))
    }),
    ("multi_get", |table| {
        let found = table.multi_get(&["k000", "k030", "k031", "x"], 500);
        let found = found
            .into_iter()
            .map(|found| Ok(found?.value().map(<[u8]>::to_vec)));
        found
            .collect::<Result<Vec<_>, Error>>()
            .map(|found| format!("{found:?}"))
    }),
    ("range", |table| {
        let keys = table
            .range_at(.., 500)
            .map(|entry| Ok(entry?.user_key().to_vec()));
        keys.collect::<Result<Vec<_>, Error>>()
            .map(|keys| format!("{keys:?}"))
    }),
    ("backwards", |table| {
        let mut cursor = table.cursor();
        let mut keys = vec![cursor.last()?.map(|entry| entry.user_key().to_vec())];
        while let Some(entry) = cursor.prev()? {
            keys.push(Some(entry.user_key().to_vec()));
        }
        Ok(format!("{keys:?}"))
    }),
    ("range_tombstones", |table| {
        Ok(table.range_tombstones(500)?.len().to_string())
    }),
    ("estimate", |table| {
        Ok(format!("{:?}", table.approximate_range_stats(..)?))
    }),
    ("counts", |table| {
        let counts = (
            table.len(),
            table.is_frozen(),
            table.allocated_bytes(),
            table.remaining(),
        );
        Ok(format!("{counts:?} {:?}", table.stats().data_bytes))
    }),
    ("put", |table| {
        table.put(300, "k0005", "new")?;
        Ok(format!("{:?}", table.get("k0005", 300)?.value()))
    }),
    ("put that needs a chunk", |table| {
        table.put(300, "k0005", vec![7; 40_000])?;
        Ok(format!(
            "{:?}",
            table.get("k0005", 300)?.value().map(<[u8]>::len)
        ))
    }),
    ("delete_range", |table| {
        table.delete_range(300, "k010", "k030")?;
        Ok(format!("{:?}", table.get("k020", 300)?.is_deleted()))
    }),
    ("write_batch", |table| {
        let mut batch = WriteBatch::new();
        batch.put("k0005", "new")?;
        batch.delete_range("k010", "k030")?;
        table.write_batch(300, &batch)?;
        Ok(format!("{:?}", table.get("k0005", 500)?.value()))
    }),
    ("reserve", |table| {
        let mut writer = table.try_reserve(20_000)?;
        writer.put(300, "k0005", vec![7; 10_000])?;
        Ok(format!(
            "{:?}",
            table.get("k0005", 300)?.value().map(<[u8]>::len)
        ))
    }),
    ("should_flush", |table| {
        Ok(format!(
            "{:?}",
            (table.should_flush(), table.bytes_once_frozen())
        ))
    }),
    ("freeze", |table| {
        let frozen = table.freeze()?;
        Ok(format!(
            "{} {:?}",
            frozen.len(),
            frozen.get("k001", 500)?.value().is_some()
        ))
    }),
    ("flush", |table| flushed(&table.freeze()?)),
    ("salvage", |table| {
        let frozen = table.freeze()?;
        let salvage = frozen.salvage();
        Ok(format!(
            "{} {:?} {}",
            salvage.entries.len(),
            salvage.reach,
            salvage.missing
        ))
    }),
    ("scrub", |table| {
        Ok(format!("{:?}", table.scrub(|_| ()).findings))
    }),
];

const UNLIMITED: Repair = Repair::On {
    places_max: u32::MAX,
};

/// Whether the table was frozen before the flip: then only calls that read, or freeze again.
fn is_for_frozen(call: &str) -> bool {
    !["put", "delete_range", "write_batch", "reserve"]
        .iter()
        .any(|write| call.starts_with(write))
}

fn every_call(shape: &Shape, state: State) {
    let is_frozen = state == State::Frozen;
    let step = if cfg!(debug_assertions) { 509 } else { 1 };
    let words = 3 * (ARENA_WORDS + FILTER_WORDS * shape.filters);
    for (number, (name, call)) in CALLS.iter().enumerate() {
        if is_frozen && !is_for_frozen(name) {
            continue;
        }
        let make = || {
            let table = shape.table(UNLIMITED);
            if is_frozen {
                table.freeze().unwrap();
            }
            table
        };
        let right = call(&make()).unwrap();
        for flip in (number % step..64 * words).step_by(step) {
            let table = make();
            let (piece, bit) = {
                let injector = open(&table);
                let pieces = injector.pieces();
                let control = |piece: &usize| pieces[*piece].region == Region::Control;
                let piece = (0..pieces.len()).filter(control).nth(flip / 64).unwrap();
                (piece, flip % 64)
            };
            let what = format!("{name}, frozen {is_frozen}, word {}, bit {bit}", flip / 64);
            let clean = {
                let mut injector = open(&table);
                let clean = injector.bytes(piece);
                injector.flip(piece, bit);
                clean
            };
            let found = call(&table);
            assert!(
                found.as_ref().is_ok_and(|found| *found == right),
                "{what}: {found:?} {right}"
            );
            assert_eq!(table.scrub(|_| ()).findings, [], "{what}");
            let healed = table.healed();
            // A call may set the damaged word, which needs no repair.
            assert!(healed.len() <= 1, "{what}: {healed:?}");
            if let Some(healed) = healed.first() {
                assert_eq!(
                    (healed.place, healed.bit),
                    (Place::Control, Some(bit as u8 % 8)),
                    "{what}"
                );
                assert_eq!(table.stats().healed, 1);
            }
            let is_as_before = open(&table).bytes(piece) == clean;
            let may_set = !is_for_frozen(name) || ["freeze", "flush", "salvage"].contains(name);
            assert!(
                is_as_before && healed.len() == 1 || may_set,
                "{what}: {healed:?}"
            );
        }
    }
}

#[test]
fn a_flip_in_a_control_word_costs_no_answer() {
    let _watchdog = Watchdog::new("control_heals::a_flip_in_a_control_word_costs_no_answer", 0);
    for shape in &SHAPES {
        every_call(shape, State::Mutable);
        every_call(shape, State::Frozen);
    }
}

/// A table without repair answers as it did before there were spares, and its scrub reports the
/// flip. A table at its limit does the same.
#[test]
fn without_repair_a_flip_is_reported() {
    for (repair, filled) in [(Repair::Off, 0), (Repair::On { places_max: 2 }, 2)] {
        let (mut errors, mut reported) = (0, 0);
        for word in 0..3 * ARENA_WORDS {
            let table = SHAPES[1].table(repair);
            let mut injector = open(&table);
            let pieces = injector.pieces();
            let control = |piece: &usize| pieces[*piece].region == Region::Control;
            let pieces: Vec<usize> = (0..pieces.len()).filter(control).collect();
            for place in 0..filled {
                injector.flip(pieces[(word + 1 + place) % (3 * ARENA_WORDS)], 3);
                assert_eq!(table.scrub(|_| ()).findings, []);
            }
            assert_eq!(table.stats().healed, filled as u64);
            injector.flip(pieces[word], 5);
            let found = table
                .get("k002", 500)
                .map(|found| found.value().map(<[u8]>::len));
            match found {
                Ok(found) => assert_eq!(found, Some(2)),
                Err(error) => errors += usize::from(error.corruption().is_some()),
            }
            reported += usize::from(table.scrub(|_| ()).check().is_err());
        }
        assert!(
            errors > 5 && reported == 3 * ARENA_WORDS,
            "{errors} {reported}"
        );
    }
}

/// A bit that is stuck is put right each time, and told once.
#[test]
fn a_stuck_bit_is_told_once() {
    let table = SHAPES[1].table(Repair::default());
    for _ in 0..40 {
        let mut injector = open(&table);
        let pieces = injector.pieces();
        let piece = (0..pieces.len()).find(|piece| pieces[*piece].region == Region::Control);
        injector.flip(piece.unwrap() + 1, 9);
        assert_eq!(table.get("k002", 500).unwrap().value(), Some(&b"vv"[..]));
    }
    assert_eq!((table.healed().len(), table.stats().healed), (1, 1));
}

/// Three copies of each control word are most of an empty table.
#[test]
fn an_empty_table_takes_three_and_a_half_kilobytes() {
    let bytes = MemTable::new(plain().build().unwrap())
        .unwrap()
        .allocated_bytes();
    assert!(bytes <= 3584, "{bytes}");
}

/// The places that a set's listener is told.
#[derive(Default)]
struct Heard(Mutex<Vec<Healed>>);

impl Listener for Heard {
    fn event(&self, event: &SetEvent) {
        if let SetEvent::Healed { place, .. } = event {
            self.0.lock().unwrap().push(*place);
        }
    }
}

/// A read puts a word right; the listener is told by the next write, once.
#[test]
fn a_set_tells_its_listener() {
    let heard = Arc::new(Heard::default());
    let options = SetOptions::builder().listener(heard.clone()).build();
    let set = MemTableSet::open(options.unwrap(), ()).unwrap();
    let write = || {
        let mut batch = WriteBatch::new();
        batch.put("k", "v").unwrap();
        set.write(&batch).unwrap();
    };
    write();
    for _ in 0..2 {
        let view = set.view();
        // SAFETY: this thread alone uses the set, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(view.readers().next().unwrap()) }.unwrap();
        let pieces = injector.pieces();
        let piece = (0..pieces.len()).find(|piece| pieces[*piece].region == Region::Control);
        injector.flip(piece.unwrap() + 1, 9);
        drop(injector);
        assert_eq!(view.get("k").unwrap().value(), Some(&b"v"[..]));
        write();
    }
    let heard = heard.0.lock().unwrap();
    assert_eq!((heard.len(), set.stats().healed), (1, 1));
    assert_eq!((heard[0].place, heard[0].bit), (Place::Control, Some(1)));
}
