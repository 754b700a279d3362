//! `{:?}` of every public type: it has no bytes of the user and no secret of the table, is short,
//! and causes no data race beside a writer. Types that can be copied and compared are copied and
//! compared too, and all values are dropped.
//!
//! Miri finds the races: `.ci/full` runs this module under it, with few entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paranoid_memtable::Directory;
use paranoid_memtable::batch::RangeOrder;
#[cfg(feature = "fault-injection")]
use paranoid_memtable::fault::{FaultInjector, Past, Region};
use paranoid_memtable::filter::{CappedPrefix, FixedPrefix};
use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
use paranoid_memtable::integrity::{BlockChecks, Kvo, Kvos, Protected, Repair, StoredProtection};
use paranoid_memtable::read::{Base, DeletedBy};
use paranoid_memtable::repair::{Healed, ScrubProgress, ScrubReport};
use paranoid_memtable::scan::Raw;
use paranoid_memtable::tombstone::{Fragment, Fragmenter};
use paranoid_memtable::*;
use paranoid_memtable::{KeyEquality, KeyOrder};

use self::uses::*;
use crate::support::rng::Watchdog;

/// The modules whose names are public.
const DOORS: [&str; 4] = [
    include_str!("../../src/lib.rs"),
    include_str!("../../src/integrity/mod.rs"),
    include_str!("../../set/src/lib.rs"),
    include_str!("../../src/tombstone/mod.rs"),
];

/// Traits and names for other types.
const NOT_TYPES: [&str; 15] = [
    "Result",
    "SequenceNumber",
    "SinkError",
    "Comparator",
    "FlushSink",
    "Handle",
    "Journal",
    "KeyRange",
    "Listener",
    "MergeOperator",
    "SortedSource",
    "Storage",
    "StorageFile",
    "Visibility",
    "PrefixExtractor",
];

/// Types that a user cannot have alone: parameters of cursors and fragments.
const PARAMETERS: [&str; 3] = ["AtSnapshot", "Borrowed", "Owned"];

const ENTRIES: u64 = if cfg!(miri) { 4 } else { 3_000 };
/// Miri cannot make mappings for larger chunks.
const BUFFER: u64 = if cfg!(miri) { 128 << 10 } else { 256 << 10 };
const LIVE_ROUNDS: u64 = if cfg!(miri) { 0 } else { 50 };

/// The seed of a secret, which reveals as much as the secret.
const SEED: u64 = 0x5ec2_e75e_c2e7;

/// Longest output, in bytes.
const LEN_MAX: usize = 1024;

/// Every name that the crate's root and its modules export under the features of this build.
fn public_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut statement, mut built, mut module_built) = (String::new(), true, true);
    let mut is_hidden = false;
    for line in DOORS.iter().flat_map(|door| door.lines()) {
        is_hidden = line == "#[doc(hidden)]" || is_hidden && line != "}";
        if is_hidden {
            continue;
        }
        let (inside, line) = (line.starts_with(' '), line.trim_start());
        if let Some(condition) = line.strip_prefix("#[cfg(") {
            built = (!condition.contains("\"fault-injection\"")
                || cfg!(feature = "fault-injection"))
                && !condition.contains("doctest");
            continue;
        }
        if statement.is_empty() && !line.starts_with("pub use") {
            if !line.starts_with("#[") {
                (module_built, built) = (!line.starts_with("pub mod") || built, true);
            }
            continue;
        }
        built &= module_built || !inside;
        statement += line;
        if line.ends_with(';') {
            let words = statement
                .split(|c: char| !c.is_ascii_alphanumeric())
                .map(str::to_owned);
            names.extend(
                words.filter(|word| built && word.starts_with(|c: char| c.is_ascii_uppercase())),
            );
            (statement, built) = (String::new(), true);
        }
    }
    names
}

/// The outputs, by the type's name.
#[derive(Default)]
struct Outputs(BTreeMap<&'static str, Vec<String>>);

impl Outputs {
    fn show(&mut self, name: &'static str, value: &dyn Debug) {
        let texts = self.0.entry(name).or_default();
        texts.push(format!("{value:?}"));
        // `dbg!` prints `{:#?}`. It reads the same memory, so Miri does not need it.
        if !cfg!(miri) {
            texts.push(format!("{value:#?}"));
        }
    }
}

/// Shows a value, and uses those of `Clone`, `PartialEq` and `PartialOrd` that its type has.
macro_rules! show {
    ($out:expr, $name:expr, $value:expr $(,)?) => {
        match $value {
            value => {
                let used = &Used(&*value);
                used.copy();
                used.equal();
                used.compare();
                $out.show($name, value);
            }
        }
    };
}

/// Bytes that are recognised in any output.
fn bytes(letter: u8, n: u64) -> Vec<u8> {
    let mut bytes = vec![letter; 12];
    bytes.extend(n.to_be_bytes());
    bytes
}

fn options(seed: u64) -> MemTableOptions {
    let accelerators = MemTableOptions::builder()
        .whole_key_filter(0.05)
        .prefix_filter(FixedPrefix::new(4), 0.05);
    accelerators
        .write_buffer_size(BUFFER)
        .key_len_max(100)
        .seed(seed)
        .build()
        .unwrap()
}

fn filled(seed: u64, letter: u8) -> MemTable {
    let table = MemTable::new(options(seed)).unwrap();
    for n in 0..ENTRIES {
        table.put(n, bytes(letter, n), bytes(letter, n)).unwrap();
    }
    for n in ENTRIES..ENTRIES + 3 {
        table
            .merge(n, bytes(letter, 1 << 40), bytes(letter, n))
            .unwrap();
    }
    table.delete(ENTRIES + 3, bytes(letter, 1 << 41)).unwrap();
    for n in 0..ENTRIES.min(100) {
        table
            .delete_range(
                n,
                bytes(letter, (1 << 50) + n),
                bytes(letter, (1 << 50) + n + 2),
            )
            .unwrap();
    }
    table
}

fn errors(table: &MemTable, letter: u8, out: &mut Outputs) {
    let (key, long) = (bytes(letter, 0), vec![letter; 101]);
    let interrupted = Error::BatchInterrupted {
        applied: 3,
        cause: Box::new(Error::Frozen),
    };
    let corruption = WriteBatch::from_bytes(&[letter; 3]).unwrap_err();
    let report = *corruption.corruption().unwrap();
    show!(out, "Corruption", &report);
    show!(out, "Place", &report.place);
    let many = |report| {
        let mut scrub = ScrubReport::default();
        scrub.findings = vec![report; if cfg!(miri) { 10 } else { 10_000 }];
        scrub
    };
    show!(out, "ScrubReport", &many(report));
    let healed = Healed {
        place: report.place,
        address: 1,
        bit: Some(1),
    };
    show!(out, "Healed", &healed);
    for error in [
        table.put(0, &key, &key).unwrap_err(),
        table.put(1 << 60, &long, &key).unwrap_err(),
        table.insert(1 << 60, Kind::DELETE, &key, &key).unwrap_err(),
        table
            .delete_range(1 << 60, bytes(letter, 9), bytes(letter, 8))
            .unwrap_err(),
        table
            .insert_parts(
                7,
                Kind::PUT,
                &key,
                &[&key],
                Some(Protected::of(&key, &long, Kind::PUT).with_sequence(7)),
            )
            .unwrap_err(),
        interrupted,
        corruption,
        Error::Sink(SinkError::from("the sink's own words").into()),
    ] {
        out.0.entry("Error").or_default().push(format!("{error}"));
        show!(out, "Error", &error);
    }
}

/// Shows a table and what its reads return.
fn reads(table: &MemTable, letter: u8, out: &mut Outputs) {
    show!(out, "MemTable", table);
    show!(out, "TableReader", &table);
    show!(
        out,
        "ArenaRecycler",
        &*ArenaRecycler::new(BUFFER, 0).unwrap()
    );
    show!(out, "Writer", &table.writer());
    show!(out, "Stats", &table.stats());
    let key = bytes(letter, 1);
    let value = table.get(&key, u64::MAX).unwrap();
    show!(out, "Lookup", &value);
    let Lookup::Value(value) = value else {
        panic!("not there")
    };
    show!(out, "ValueRef", &value);
    show!(out, "PinnedValue", &value.to_pinned());
    let merge = table.get(bytes(letter, 1 << 40), u64::MAX).unwrap();
    show!(out, "Lookup", &merge);
    let Lookup::Merge(mut operands) = merge else {
        panic!("no operands")
    };
    show!(out, "Operands", &operands);
    show!(out, "Operand", &operands.next().unwrap().unwrap());
    show!(out, "Base", &operands.base().unwrap());
    show!(out, "Base", &Base::Value(&key));
    show!(
        out,
        "Lookup",
        &table.get(bytes(letter, 1 << 41), u64::MAX).unwrap()
    );
    show!(out, "DeletedBy", &DeletedBy::Range);
    show!(
        out,
        "Lookup",
        &table.get_into(&key, u64::MAX, &mut Vec::new()).unwrap()
    );
    let entry = table.get_entry(&key, u64::MAX).unwrap().unwrap();
    show!(out, "Entry", &entry);
    show!(out, "EntryBytes", &entry.to_bytes().unwrap());
    show!(
        out,
        "RangeStats",
        &table
            .approximate_range_stats(key.as_slice()..bytes(letter, 9).as_slice())
            .unwrap(),
    );
    show!(out, "Range", &table.range(key.as_slice()..));
    show!(out, "Range", &table.range(key.as_slice()..));
    let mut owned = table.range(key.as_slice()..).owned();
    owned.next_entry().unwrap();
    show!(out, "OwnedRange", &owned);
    show!(out, "Range", &table.range_at(..=key.as_slice(), u64::MAX));
    let seen = table.range_tombstones(u64::MAX).unwrap();
    show!(out, "Fragments", &seen);
    show!(out, "Range", &table.range(key.as_slice()..).descending());
}

fn cursors(table: &MemTable, letter: u8, out: &mut Outputs) {
    let key = bytes(letter, 1);
    let mut cursor = table.cursor();
    cursor.seek(&key).unwrap();
    show!(out, "Cursor", &cursor);
    show!(out, "Cursor", &cursor);
    let mut cursor = table.cursor_at(u64::MAX).with_bounds(key.as_slice()..);
    cursor.first().unwrap();
    show!(out, "Cursor", &cursor);
    let frozen = filled(5, letter).freeze().unwrap();
    let mut owned = frozen.cursor().owned();
    owned.last().unwrap();
    show!(out, "OwnedCursor", &owned);
    show!(out, "ImmutableMemTable", &*frozen);
    let salvage = frozen.salvage();
    show!(out, "Salvaged", &salvage.entries[0]);
    show!(out, "Reach", &salvage.reach);
    show!(out, "Salvage", &salvage);
    let mut progress = ScrubProgress::default();
    show!(
        out,
        "ScrubReport",
        &frozen.scrub(|so_far| progress = so_far)
    );
    show!(out, "ScrubProgress", &progress);
    let mut flush = frozen.flush_iter(Versions::SeenBy(&[])).unwrap();
    show!(out, "FlushItem", &flush.next().unwrap().unwrap());
    show!(out, "FlushIter", &flush);
    let mut sink = Shown(out);
    let summary = frozen.flush(Versions::SeenBy(&[]), &mut sink).unwrap();
    show!(out, "FlushSummary", &summary);
}

/// Shows the items of a flush.
struct Shown<'o>(&'o mut Outputs);

impl FlushSink for Shown<'_> {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        if !self.0.0.contains_key("FlushEntry") {
            show!(self.0, "FlushEntry", &entry);
        }
        Ok(())
    }
    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        if !self.0.0.contains_key("Fragment") {
            show!(self.0, "Fragment", &fragment);
        }
        Ok(())
    }
}

fn writes(table: &MemTable, letter: u8, out: &mut Outputs) {
    let key = bytes(letter, 3);
    let mut batch = WriteBatch::with_protection(8).unwrap();
    for n in 0..ENTRIES {
        batch.put(bytes(letter, n), &key).unwrap();
    }
    show!(out, "WriteBatch", &batch);
    show!(out, "BatchEntry", &batch.entries().next().unwrap().unwrap());
    let replacing = MemTableOptions::builder()
        .duplicates(DuplicatePolicy::Replace)
        .seed(1);
    let other = MemTable::new(replacing.write_buffer_size(BUFFER).build().unwrap()).unwrap();
    let mut prepared = other.prepare(&batch).unwrap();
    show!(out, "PreparedBatch", &prepared);
    show!(out, "ReservedBatch", &other.reserve(&mut prepared).unwrap());
    show!(out, "BatchWritten", &other.write_batch(0, &batch).unwrap());
    let inserted = other.put(0, bytes(letter, 0), &key).unwrap();
    show!(out, "Inserted", &inserted);
    show!(out, "Displaced", &inserted.displaced.unwrap());
    show!(out, "MemTableOptions", table.options());
    show!(out, "Directory", &Directory::Auto);
    show!(out, "ParanoidOptions", table.options().paranoid());
    show!(out, "Repair", &Repair::default());
    show!(out, "ParanoidOptionsBuilder", &ParanoidOptions::builder());
    let builder = MemTableOptions::builder()
        .prefix_filter(CappedPrefix::new(3), 0.1)
        .seed(SEED);
    show!(out, "MemTableOptionsBuilder", &builder);
    show!(
        out,
        "Protected",
        &Protected::<Kvo>::of(&key, &key, Kind::PUT)
    );
    show!(
        out,
        "StoredProtection",
        &StoredProtection::of(&key, &key, 7, Kind::PUT)
    );
}

fn fragments(letter: u8, out: &mut Outputs) {
    let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    for n in 0..ENTRIES {
        fragmenter
            .add(bytes(letter, n), bytes(letter, n + 2), n)
            .unwrap();
    }
    show!(out, "Fragmenter", &fragmenter);
    let mut one_by_one = fragmenter.clone().finish_iter();
    one_by_one.next().unwrap();
    show!(out, "FragmentIter", &one_by_one);
    let fragments = fragmenter.finish();
    show!(out, "Fragments", &fragments);
    show!(out, "Fragment", &fragments.get(0).unwrap());
}

/// Small types that hold no bytes of a user.
fn plain(out: &mut Outputs) {
    show!(out, "ChecksumKind", &ChecksumKind::Xxh3);
    show!(out, "Kvo", &Kvo);
    show!(out, "Kvos", &Kvos);
    show!(out, "Bytewise", &Bytewise);
    show!(out, "KeyEquality", &KeyEquality::Bytes);
    show!(out, "KeyOrder", &KeyOrder::Bytes);
    show!(out, "Kind", &Kind::from_u8(0x99));
    show!(out, "RangeOrder", &RangeOrder::OfTable);
    show!(out, "Versions", &Versions::All);
    show!(out, "Raw", &Raw);
    show!(out, "CappedPrefix", &CappedPrefix::new(3));
    show!(out, "FixedPrefix", &FixedPrefix::new(3));
    show!(out, "DuplicatePolicy", &DuplicatePolicy::Replace);
    show!(out, "BlockChecks", &BlockChecks::new(ChecksumKind::Xxh3));
}

#[cfg(feature = "fault-injection")]
fn faults(letter: u8, out: &mut Outputs) {
    let table = filled(5, letter);
    let mut past = Past::default();
    #[expect(unsafe_code, reason = "the fault injector is shown")]
    // SAFETY: one thread, and nothing borrowed is held.
    unsafe { FaultInjector::look(&table, &mut past) }.unwrap();
    #[expect(unsafe_code, reason = "the fault injector is shown")]
    // SAFETY: one thread, and nothing borrowed is held.
    let injector = unsafe { FaultInjector::open(&table) }.unwrap();
    show!(out, "FaultInjector", &injector);
    show!(out, "Past", &past);
    let piece = injector
        .pieces()
        .iter()
        .find(|piece| piece.region == Region::Key)
        .unwrap();
    show!(out, "Piece", piece);
    show!(out, "Owner", piece.owner.as_ref().unwrap());
    show!(out, "Part", &piece.part);
    show!(out, "Region", &piece.region);
}

/// Shows a value of every public type.
fn outputs(table: &MemTable, letter: u8) -> Outputs {
    let mut out = Outputs::default();
    errors(table, letter, &mut out);
    reads(table, letter, &mut out);
    cursors(table, letter, &mut out);
    writes(table, letter, &mut out);
    fragments(letter, &mut out);
    sets::sets(letter, &mut out);
    plain(&mut out);
    #[cfg(feature = "fault-injection")]
    faults(letter, &mut out);
    out
}

/// Every form of the letter's bytes in the output of a derived `Debug`, without white space:
/// several bytes in a row, or a word of them.
fn traces(letter: u8) -> Vec<String> {
    let word = u64::from_be_bytes([letter; 8]);
    let text = String::from_utf8(vec![letter; 4]).unwrap();
    let list = format!("{letter},{letter},{letter}");
    let seed = [SEED.to_string(), format!("{SEED:x}")];
    let words = [
        word.to_string(),
        format!("{word:x}"),
        (word as u32).to_string(),
    ];
    [text, list].into_iter().chain(words).chain(seed).collect()
}

fn check(out: &Outputs, letter: u8) {
    for (name, texts) in &out.0 {
        for text in texts {
            assert!(
                !text.is_empty() && text.len() < LEN_MAX,
                "{name}, {} bytes: {text}",
                text.len()
            );
            let dense: String = text.split_whitespace().collect();
            // Miri would search for minutes, and would find no other errors.
            for trace in if cfg!(miri) { vec![] } else { traces(letter) } {
                assert!(
                    !dense.contains(&trace),
                    "{name} shows bytes of its user, {trace}: {text}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "reads source text; `shown_beside_a_live_writer` shows as much"
)]
fn no_public_type_is_forgotten() {
    let names = public_names();
    assert!(names.contains("MemTable") && names.len() > 60, "{names:?}");
    let shown: BTreeSet<&str> = outputs(&filled(1, b'Q'), b'Q').0.into_keys().collect();
    let exempt = |name: &str| NOT_TYPES.contains(&name) || PARAMETERS.contains(&name);
    let is_shown = |name: &str| exempt(name) || shown.contains(name);
    let forgotten: Vec<&String> = names.iter().filter(|name| !is_shown(name)).collect();
    assert!(
        forgotten.is_empty(),
        "show these types here as well: {forgotten:?}"
    );
    let gone: Vec<&&str> = shown
        .iter()
        .filter(|name| !names.contains(**name))
        .collect();
    assert!(gone.is_empty(), "not public any more: {gone:?}");
}

/// The text without the digests of a report of corruption, which are numbers of 16 digits and more.
fn without_digests(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| word.len() < 16 || !word.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

/// With another secret and other bytes of the same lengths, no character changes.
#[test]
#[cfg_attr(
    miri,
    ignore = "compares texts; `shown_beside_a_live_writer` shows as much"
)]
fn nothing_shown_depends_on_bytes_or_secrets() {
    let test = "debug_output::nothing_shown_depends_on_bytes_or_secrets";
    let _watchdog = Watchdog::new(test, 0);
    let (one, other) = (
        outputs(&filled(1, b'Q'), b'Q'),
        outputs(&filled(0xfeed_5eed_0000_0002, b'Z'), b'Z'),
    );
    check(&one, b'Q');
    check(&other, b'Z');
    for (name, texts) in &one.0 {
        // A digest depends on the bytes, and the number of links on the seed.
        if ![
            "Protected",
            "StoredProtection",
            "FaultInjector",
            "Past",
            "BatchWritten",
            "Inserted",
        ]
        .contains(name)
        {
            let shown = |texts: &[String]| match *name {
                "Error" => texts.iter().map(|text| without_digests(text)).collect(),
                _ => texts.to_vec(),
            };
            assert_eq!(shown(texts), shown(&other.0[name]), "{name}");
        }
    }
}

/// A writer fills the table at the same time: no plain read of memory that it writes (a race that
/// Miri reports), no torn text.
#[test]
fn shown_beside_a_live_writer() {
    let _watchdog = Watchdog::new("debug_output::shown_beside_a_live_writer", 0);
    const OVER: u64 = u64::MAX;
    /// Ends the writer, also if a check fails.
    struct Ending<'r>(&'r AtomicU64);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.store(OVER, Ordering::Release);
        }
    }
    let (table, rounds) = (&filled(3, b'Q'), &AtomicU64::new(1));
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut writer = table.writer();
            for n in 1 << 20.. {
                writer.put(n, bytes(b'Q', n), bytes(b'Q', n)).unwrap();
                table.put(n, bytes(b'Q', n + (1 << 30)), b"").unwrap();
                if n % 16 == 0 {
                    table
                        .delete_range(n, bytes(b'Q', n + (1 << 31)), bytes(b'Q', n + (1 << 32)))
                        .unwrap();
                }
                // The table grows with the rounds, not with the time that they take. Under Miri a
                // turn is short.
                (0..if cfg!(miri) { 1000 } else { 1 }).for_each(|_| std::thread::yield_now());
                while (n - (1 << 20)) / 200 > rounds.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                if rounds.load(Ordering::Acquire) == OVER {
                    return;
                }
            }
        });
        let _ending = Ending(rounds);
        check(&outputs(table, b'Q'), b'Q');
        for _ in 0..LIVE_ROUNDS {
            rounds.fetch_add(1, Ordering::Release);
            let mut out = Outputs::default();
            reads(table, b'Q', &mut out);
            let mut cursor = table.cursor();
            cursor.first().unwrap();
            show!(out, "Cursor", &cursor);
            check(&out, b'Q');
        }
    });
}

/// `{:?}` of a set, a journal, and their results.
mod sets {
    use std::ops::Bound;
    use std::sync::Arc;

    use paranoid_memtable::StallCause;
    use paranoid_memtable::scan::{Cover, Direction, SourceKey, SourceMove};
    use paranoid_memtable::{Bytewise, ChecksumKind, Kind, MemTable, WriteBatch};
    use paranoid_set::{
        Compaction, Durability, FileJournal, FileStorage, Level, Listener, MemTableSet,
        RecoveryMode, SalvageSummary, SetEvent, SetOptions, WriteBufferManager, WriteOptions,
    };

    use super::uses::*;
    use super::{Outputs, bytes, options};
    use crate::support::sets::{History, Plan, SimDisk};

    /// The first event that a listener receives.
    fn event(letter: u8) -> SetEvent {
        let heard = std::sync::Arc::new(Heard::default());
        let options = SetOptions::builder()
            .listener(heard.clone())
            .build()
            .unwrap();
        let set = MemTableSet::open(options, ()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(bytes(letter, 0), b"").unwrap();
        set.write(&batch).unwrap();
        set.switch().unwrap();
        let events = heard.0.lock().unwrap();
        events[0].clone()
    }

    /// Keeps the events that it receives.
    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<SetEvent>>);

    impl Listener for Heard {
        fn event(&self, event: &SetEvent) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    /// A set, and the types of its results.
    pub(super) fn sets(letter: u8, out: &mut Outputs) {
        let manager = WriteBufferManager::new(1 << 20).unwrap();
        show!(out, "WriteBufferManager", &manager);
        show!(out, "WriteBufferStats", &manager.stats());
        show!(out, "StallCause", &StallCause::Unflushed);
        show!(out, "WriteOptions", &WriteOptions::default());
        let builder = SetOptions::builder()
            .table(options(1))
            .write_buffer_manager(&manager);
        show!(out, "SetOptionsBuilder", &builder);
        let options = builder.build().unwrap();
        show!(out, "SetOptions", &options);
        show!(out, "Durability", &Durability::Buffered);
        let set = MemTableSet::open(options, bytes(letter, 0)).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(bytes(letter, 1), bytes(letter, 2)).unwrap();
        for n in 0..if cfg!(miri) { 4 } else { 100 } {
            batch.merge(bytes(letter, 3), bytes(letter, n)).unwrap();
        }
        set.write(&batch).unwrap();
        show!(out, "MemTableSet", &set);
        show!(out, "Snapshot", &set.snapshot());
        show!(out, "SetStats", &set.stats());
        let view = set.view();
        show!(out, "View", &view);
        show!(out, "Lookup", &view.get(bytes(letter, 1)).unwrap());
        let mut cursor = view.cursor().unwrap();
        let entry = cursor.first().unwrap().unwrap();
        show!(out, "MergedEntry", entry);
        show!(
            out,
            "SourceKey",
            &SourceKey {
                user_key: entry.user_key(),
                sequence: 1,
                kind: Kind::PUT
            }
        );
        show!(
            out,
            "SourceMove",
            &SourceMove::SeekForPrev(entry.user_key())
        );
        show!(
            out,
            "Cover",
            &Cover {
                sequence: 1,
                span: Some((entry.user_key(), entry.value())),
                hides_own: true
            }
        );
        show!(out, "MergingCursor", &cursor);
        show!(out, "SetEvent", &event(letter));
        show!(
            out,
            "FlushThread",
            &set.start_flush_thread(|job| job.install(|_| Ok(vec![])))
                .unwrap()
        );
        set.switch().unwrap();
        let mut job = set.begin_flush().unwrap().unwrap();
        show!(out, "Compaction", &job.items().unwrap());
        show!(out, "FlushJob", &job);
        show!(out, "SalvageSummary", &SalvageSummary::default());
        levels(letter, out);
        journals(out);
    }

    fn levels(letter: u8, out: &mut Outputs) {
        let bounds = vec![(bytes(letter, 1), Bound::Excluded(bytes(letter, 2)))];
        let level = Level::new(Arc::new(Bytewise), bounds).unwrap();
        show!(out, "Direction", &Direction::Forward);
        show!(out, "Level", &level);
        let source = level.source(|_| Ok(MemTable::default().source()));
        show!(out, "LevelSource", &source);
        let table = MemTable::default();
        table.put(1, bytes(letter, 1), b"").unwrap();
        let merge = Compaction::over(Arc::new(Bytewise), &[], vec![table.source()]);
        let mut outputs = merge.outputs(1 << 20, |_| Ok(History::default()));
        show!(out, "Output", &outputs.next().unwrap().unwrap());
        show!(out, "Outputs", &outputs);
    }

    fn journals(out: &mut Outputs) {
        let torn = [("000001.journal".to_string(), b"torn".to_vec())].into();
        let disk = Arc::new(SimDisk::with_files(torn, 1, Plan::default()));
        let opened = FileJournal::open_in(
            disk,
            0,
            ChecksumKind::Xxh3,
            RecoveryMode::TolerateCorruptedTailRecords,
        );
        let (journal, recovery) = opened.unwrap();
        show!(out, "FileJournal", &journal);
        show!(out, "JournalRecovery", &recovery);
        let replayed = recovery.replay(|_, _| Ok(())).unwrap();
        show!(out, "Replayed", &replayed);
        show!(out, "JournalFinding", &replayed.findings[0]);
        show!(out, "FindingReason", &replayed.findings[0].reason);
        show!(out, "RecoveryMode", &RecoveryMode::SkipAnyCorrupted);
        show!(out, "FileStorage", &FileStorage::new("/"));
    }
}

/// Uses of a value that its type need not support. A method returns whether it did anything.
mod uses {
    /// A value of any type.
    pub(super) struct Used<'v, T>(pub(super) &'v T);

    /// The method of the first trait is found first, unless the type of the value lacks the bound.
    /// The method of the second trait needs one more reference.
    macro_rules! optional {
        ($method:ident, $with:ident: $bound:ident, $without:ident, $value:ident => $used:expr) => {
            pub(super) trait $with {
                fn $method(&self) -> bool;
            }
            impl<T: $bound> $with for Used<'_, T> {
                fn $method(&self) -> bool {
                    let $value = self.0;
                    $used;
                    true
                }
            }
            pub(super) trait $without {
                fn $method(&self) -> bool;
            }
            impl<T> $without for &Used<'_, T> {
                fn $method(&self) -> bool {
                    false
                }
            }
        };
    }

    optional!(copy, Copies: Clone, CopiesNot, value => drop(value.clone()));
    optional!(equal, Equals: PartialEq, EqualsNot, value => assert!(value.eq(value)));
    optional!(compare, Compares: PartialOrd, ComparesNot, value => assert!(value.le(value)));

    #[test]
    fn only_what_a_type_lacks_is_left_out() {
        let all = &Used(&7);
        assert_eq!([all.copy(), all.equal(), all.compare()], [true; 3]);
        struct None;
        let none = &Used(&None);
        assert_eq!([none.copy(), none.equal(), none.compare()], [false; 3]);
        #[derive(Clone)]
        struct Cloned;
        let cloned = &Used(&Cloned);
        assert_eq!(
            [cloned.copy(), cloned.equal(), cloned.compare()],
            [true, false, false]
        );
    }
}
