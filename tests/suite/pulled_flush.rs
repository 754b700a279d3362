//! A pulled flush hands out what a flush into a sink hands out, and ends with an error at damage.

#[cfg(feature = "fault-injection")]
use paranoid_memtable::DuplicatePolicy;
use paranoid_memtable::flush::{
    FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, HiddenVersions, SinkError,
};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Bytewise, Error, ImmutableMemTable, Kind, MemTable, MemTableOptions};

use crate::support::orders::{CaseBlind, Order, Reverse};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::under::under;
use crate::support::watchdog::{Watchdog, replay_line};

/// What a flush handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Entry(Vec<u8>, u64, Kind, Vec<u8>),
    Fragment(Vec<u8>, Vec<u8>, Vec<u64>),
}

impl Item {
    fn of(item: &FlushItem<'_>) -> Item {
        match item {
            FlushItem::Entry(entry) => {
                let stored = entry.protection.check(entry.user_key, entry.value, entry.sequence, entry.kind);
                assert!(stored.is_some(), "an entry agrees with its digests");
                Item::Entry(entry.user_key.to_vec(), entry.sequence, entry.kind, entry.value.to_vec())
            }
            FlushItem::Fragment(fragment) => Item::Fragment(
                fragment.start().to_vec(),
                fragment.end().to_vec(),
                fragment.sequences().to_vec(),
            ),
        }
    }
}

#[derive(Default)]
struct Collected(Vec<Item>);

impl FlushSink for Collected {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        self.0.push(Item::of(&FlushItem::Entry(entry)));
        Ok(())
    }
    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        self.0.push(Item::of(&FlushItem::Fragment(fragment)));
        Ok(())
    }
}

/// Everything that is handed out up to the end or the first error.
fn pulled(flush: &mut FlushIter<'_>) -> (Vec<Item>, Result<FlushSummary, Error>) {
    let mut items = vec![];
    loop {
        match flush.next() {
            Ok(Some(item)) => items.push(Item::of(&item)),
            Ok(None) => return (items, Ok(flush.summary().expect("it came to its end"))),
            Err(error) => return (items, Err(error)),
        }
        assert!(flush.summary().is_none(), "nothing is complete before the end");
    }
}

fn filled<C: Order>(rng: &mut Rng) -> MemTable {
    let options = MemTableOptions::builder().write_buffer_size(64 << 10);
    let options = options.seed(rng.next_u64());
    let table = MemTable::new(under(options, C::default())).unwrap();
    for sequence in 1..=rng.below(if cfg!(miri) { 8 } else { 50 }) {
        let kind = *rng.pick(&[Kind::PUT, Kind::PUT, Kind::MERGE, Kind::DELETE, Kind::SINGLE_DELETE]);
        let value = if kind.is_point_delete() { vec![] } else { rng.bytes(3) };
        table.insert(sequence, kind, &[*rng.pick(b"aAbBcd")], &value).unwrap();
    }
    for sequence in 100..100 + rng.below(5) {
        let ends = [[*rng.pick(b"abc")], [*rng.pick(b"bcd")]];
        let _ = table.delete_range(sequence, &ends[0], &ends[1]);
    }
    table
}

fn check(frozen: &ImmutableMemTable, snapshots: &[u64], replay: &str) {
    for hidden in [HiddenVersions::Drop, HiddenVersions::Keep] {
        let mut sink = Collected::default();
        let summary = frozen.flush_with(snapshots, hidden, &mut sink).unwrap();
        let mut flush = frozen.flush_iter_with(snapshots, hidden).unwrap();
        let (items, end) = pulled(&mut flush);
        assert_eq!((items, end.unwrap()), (sink.0, summary), "{hidden:?}, {snapshots:?}; {replay}");
        assert!(flush.next().unwrap().is_none() && flush.summary() == Some(summary), "it stays at its end");
    }
}

#[test]
fn what_is_pulled_is_what_a_sink_gets() {
    let test = "pulled_flush::what_is_pulled_is_what_a_sink_gets";
    let mut seed = seed_or(std::process::id().into());
    println!("{test}: seed {seed:#x}");
    for _ in 0..amount(2_000, 30) {
        let _watchdog = Watchdog::new(test, seed);
        let (mut rng, replay) = (Rng::new(seed), replay_line(test, seed));
        let snapshots: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(110)).collect();
        check(&filled::<Bytewise>(&mut rng).freeze().unwrap(), &snapshots, &replay);
        check(&filled::<Reverse>(&mut rng).freeze().unwrap(), &snapshots, &replay);
        check(&filled::<CaseBlind>(&mut rng).freeze().unwrap(), &snapshots, &replay);
        seed = rng.next_u64();
    }
}

/// Several flushes of one table at once, and one that is dropped half-way.
#[test]
fn flushes_do_not_disturb_each_other() {
    let table = MemTable::default();
    for sequence in 0..20_u64 {
        table.put(sequence, &sequence.to_be_bytes(), b"value").unwrap();
    }
    let frozen = table.freeze().unwrap();
    let (mut left, mut right) = (frozen.flush_iter(&[]).unwrap(), frozen.flush_iter(&[]).unwrap());
    let mut dropped = frozen.flush_iter(&[]).unwrap();
    dropped.next().unwrap();
    drop(dropped);
    for _ in 0..20 {
        let item = left.next().unwrap().map(|item| Item::of(&item));
        assert_eq!(right.next().unwrap().map(|item| Item::of(&item)), item);
    }
    assert!(left.next().unwrap().is_none() && right.next().unwrap().is_none());
}

/// One flipped bit of an entry, or a wrong count of a writer: what was pulled before is right, the error is final,
/// and there is no summary.
#[cfg(feature = "fault-injection")]
#[test]
fn damage_ends_a_flush_for_good() {
    use paranoid_memtable::fault::Region;
    let test = "pulled_flush::damage_ends_a_flush_for_good";
    let _watchdog = Watchdog::new(test, 0);
    let options = MemTableOptions::builder().write_buffer_size(16 << 10);
    let table = MemTable::new(options.seed(9).build().unwrap()).unwrap();
    for sequence in 1..6_u64 {
        table.put(sequence, &[b'a' + sequence as u8], b"value").unwrap();
    }
    table.delete_range(7, b"x", b"z").unwrap();
    let frozen = table.freeze().unwrap();
    let whole = pulled(&mut frozen.flush_iter(&[]).unwrap()).0;
    let mut injector = crate::walks::open(&table);
    let entries = |piece: &usize| {
        let piece = &injector.pieces()[*piece];
        piece.owner.is_some() && matches!(piece.region, Region::Key | Region::Value)
    };
    let pieces: Vec<usize> = (0..injector.pieces().len()).filter(entries).collect();
    assert!(pieces.len() >= 12);
    for piece in pieces {
        injector.flip(piece, piece);
        let mut flush = match frozen.flush_iter(&[]) {
            Ok(flush) => flush,
            Err(error) => {
                assert!(error.corruption().is_some(), "{error}");
                injector.undo();
                continue;
            }
        };
        let (items, end) = pulled(&mut flush);
        let error = end.expect_err("a flipped bit is noticed");
        assert!(error.corruption().is_some() && whole.starts_with(&items), "{error}: {items:?}");
        injector.undo();
        for _ in 0..2 {
            let again = flush.next().expect_err("an error is final");
            assert_eq!(again.corruption(), error.corruption());
            assert!(flush.summary().is_none());
        }
    }
}

/// A table of versions and, under `Replace`, of entries that were replaced; its snapshot is 5.
#[cfg(feature = "fault-injection")]
fn of_versions(duplicates: DuplicatePolicy) -> MemTable {
    let options = MemTableOptions::builder().duplicates(duplicates);
    let table = MemTable::new(options.write_buffer_size(16 << 10).seed(9).build().unwrap()).unwrap();
    for (key, sequence) in [(b"a", 4), (b"b", 5), (b"a", 9), (b"b", 3), (b"c", 7), (b"b", 8), (b"d", 6)] {
        table.put(sequence, key, b"value").unwrap();
    }
    if duplicates == DuplicatePolicy::Replace {
        for (key, sequence) in [(b"a", 4), (b"b", 8), (b"d", 6)] {
            table.put(sequence, key, b"newer").unwrap();
        }
    }
    table.delete_range(10, b"x", b"z").unwrap();
    table
}

/// One bit of an entry flips between two calls: each item agrees with its digests, all items are right as far as they
/// go, and a flush that comes to its end has handed out all of them.
#[cfg(feature = "fault-injection")]
#[test]
fn damage_between_two_calls_is_not_handed_out() {
    let test = "pulled_flush::damage_between_two_calls_is_not_handed_out";
    let _watchdog = Watchdog::new(test, 0);
    for (duplicates, hidden) in
        [(DuplicatePolicy::Reject, HiddenVersions::Drop), (DuplicatePolicy::Replace, HiddenVersions::Keep)]
    {
        let table = of_versions(duplicates);
        let frozen = table.freeze().unwrap();
        let begin = || frozen.flush_iter_with(&[5], hidden).unwrap();
        let whole = pulled(&mut begin()).0;
        let mut injector = crate::walks::open(&table);
        let mut ended = 0;
        for (piece, bit) in crate::walks::bits(&injector, crate::walks::stride(3), 0) {
            if injector.pieces()[piece].owner.is_none() {
                continue;
            }
            for gone in 0..whole.len() {
                let mut flush = begin();
                let mut items: Vec<Item> =
                    (0..gone).map(|_| Item::of(&flush.next().unwrap().expect("an item"))).collect();
                injector.flip(piece, bit);
                let (rest, end) = pulled(&mut flush);
                items.extend(rest);
                injector.undo();
                let what = || format!("{:?} bit {bit} after {gone} items", &table.options().duplicates());
                assert!(whole.starts_with(&items), "{}: {items:?}", what());
                if end.is_ok() {
                    assert_eq!(items, whole, "{}", what());
                    ended += 1;
                }
            }
        }
        assert!(ended > 0, "an entry that was handed out may be damaged");
    }
}
