//! Freezes, scrubs beside them, and flushes: the items of a flush, their digests, and the threads
//! that wait.

/// A pulled flush returns the same items as a flush into a sink, and ends with an error at damage.
mod pulled_flush {
    #[cfg(feature = "fault-injection")]
    use paranoid_memtable::DuplicatePolicy;
    use paranoid_memtable::flush::{
        FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, SinkError, Versions,
    };
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Bytewise, Error, ImmutableMemTable, Kind, MemTable, MemTableOptions};

    use crate::support::orders::{CaseBlind, Order, Reverse};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
    use crate::support::under;

    /// An item of a flush.
    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Item {
        Entry(Vec<u8>, u64, Kind, Vec<u8>),
        Fragment(Vec<u8>, Vec<u8>, Vec<u64>),
    }

    impl Item {
        fn of(item: &FlushItem<'_>) -> Item {
            match item {
                FlushItem::Entry(entry) => {
                    let stored = entry.protection.check(
                        entry.user_key,
                        entry.value,
                        entry.sequence,
                        entry.kind,
                    );
                    assert!(stored.is_some(), "an entry agrees with its digests");
                    Item::Entry(
                        entry.user_key.to_vec(),
                        entry.sequence,
                        entry.kind,
                        entry.value.to_vec(),
                    )
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

    /// All items up to the end or the first error.
    fn pulled(flush: &mut FlushIter<'_>) -> (Vec<Item>, Result<FlushSummary, Error>) {
        let mut items = vec![];
        loop {
            match flush.next() {
                Ok(Some(item)) => items.push(Item::of(&item)),
                Ok(None) => return (items, Ok(flush.summary().expect("it came to its end"))),
                Err(error) => return (items, Err(error)),
            }
            assert!(
                flush.summary().is_none(),
                "nothing is complete before the end"
            );
        }
    }

    fn filled<C: Order>(rng: &mut Rng) -> MemTable {
        let options = MemTableOptions::builder().write_buffer_size(64 << 10);
        let options = options.seed(rng.next_u64());
        let table = MemTable::new(under(options, C::default())).unwrap();
        for sequence in 1..=rng.below(if cfg!(miri) { 8 } else { 50 }) {
            let kind = *rng.pick(&[
                Kind::PUT,
                Kind::PUT,
                Kind::MERGE,
                Kind::DELETE,
                Kind::SINGLE_DELETE,
            ]);
            let value = if kind.is_point_delete() {
                vec![]
            } else {
                rng.bytes(3)
            };
            table
                .insert(sequence, kind, [*rng.pick(b"aAbBcd")], &value)
                .unwrap();
        }
        for sequence in 100..100 + rng.below(5) {
            let ends = [[*rng.pick(b"abc")], [*rng.pick(b"bcd")]];
            let _ = table.delete_range(sequence, ends[0], ends[1]);
        }
        table
    }

    fn check(frozen: &ImmutableMemTable, snapshots: &[u64], replay: &str) {
        for versions in [Versions::SeenBy(snapshots), Versions::All] {
            let mut sink = Collected::default();
            let summary = frozen.flush(versions, &mut sink).unwrap();
            let mut flush = frozen.flush_iter(versions).unwrap();
            let (items, end) = pulled(&mut flush);
            assert_eq!(
                (items, end.unwrap()),
                (sink.0, summary),
                "{versions:?}; {replay}"
            );
            assert!(
                flush.next().unwrap().is_none() && flush.summary() == Some(summary),
                "it stays at its end"
            );
        }
    }

    #[test]
    fn what_is_pulled_is_what_a_sink_gets() {
        let test = "flushes::pulled_flush::what_is_pulled_is_what_a_sink_gets";
        let mut seed = seed_or(std::process::id().into());
        println!("{test}: seed {seed:#x}");
        for _ in 0..amount(2_000, 30) {
            let _watchdog = Watchdog::new(test, seed);
            let (mut rng, replay) = (Rng::new(seed), replay_line(test, seed));
            let snapshots: Vec<u64> = (0..rng.below(3)).map(|_| rng.below(110)).collect();
            check(
                &filled::<Bytewise>(&mut rng).freeze().unwrap(),
                &snapshots,
                &replay,
            );
            check(
                &filled::<Reverse>(&mut rng).freeze().unwrap(),
                &snapshots,
                &replay,
            );
            check(
                &filled::<CaseBlind>(&mut rng).freeze().unwrap(),
                &snapshots,
                &replay,
            );
            seed = rng.next_u64();
        }
    }

    /// Several flushes of one table at once, and one that is dropped half-way.
    #[test]
    fn flushes_do_not_disturb_each_other() {
        let table = MemTable::default();
        for sequence in 0..20_u64 {
            table
                .put(sequence, sequence.to_be_bytes(), b"value")
                .unwrap();
        }
        let frozen = table.freeze().unwrap();
        let (mut left, mut right) = (
            frozen.flush_iter(Versions::SeenBy(&[])).unwrap(),
            frozen.flush_iter(Versions::SeenBy(&[])).unwrap(),
        );
        let mut dropped = frozen.flush_iter(Versions::SeenBy(&[])).unwrap();
        dropped.next().unwrap();
        drop(dropped);
        for _ in 0..20 {
            let item = left.next().unwrap().map(|item| Item::of(&item));
            assert_eq!(right.next().unwrap().map(|item| Item::of(&item)), item);
        }
        assert!(left.next().unwrap().is_none() && right.next().unwrap().is_none());
    }

    /// One bit of an entry flips, or a count of a writer is wrong: the items before it are right,
    /// the error is final, and there is no summary.
    #[cfg(feature = "fault-injection")]
    #[test]
    fn damage_ends_a_flush_for_good() {
        use paranoid_memtable::fault::Region;
        let test = "flushes::pulled_flush::damage_ends_a_flush_for_good";
        let _watchdog = Watchdog::new(test, 0);
        let options = MemTableOptions::builder().write_buffer_size(16 << 10);
        let table = MemTable::new(options.seed(9).build().unwrap()).unwrap();
        for sequence in 1..6_u64 {
            table
                .put(sequence, [b'a' + sequence as u8], b"value")
                .unwrap();
        }
        table.delete_range(7, b"x", b"z").unwrap();
        let frozen = table.freeze().unwrap();
        let whole = pulled(&mut frozen.flush_iter(Versions::SeenBy(&[])).unwrap()).0;
        let mut injector = crate::walks::open(&table);
        let entries = |piece: &usize| {
            let piece = &injector.pieces()[*piece];
            piece.owner.is_some() && matches!(piece.region, Region::Key | Region::Value)
        };
        let pieces: Vec<usize> = (0..injector.pieces().len()).filter(entries).collect();
        assert!(pieces.len() >= 12);
        for piece in pieces {
            injector.flip(piece, piece);
            injector.flip(piece, piece + 1);
            let mut flush = match frozen.flush_iter(Versions::SeenBy(&[])) {
                Ok(flush) => flush,
                Err(error) => {
                    assert!(error.corruption().is_some(), "{error}");
                    injector.undo();
                    continue;
                }
            };
            let (items, end) = pulled(&mut flush);
            let error = end.expect_err("a flipped bit is noticed");
            assert!(
                error.corruption().is_some() && whole.starts_with(&items),
                "{error}: {items:?}"
            );
            injector.undo();
            for _ in 0..2 {
                let again = flush.next().expect_err("an error is final");
                assert_eq!(again.corruption(), error.corruption());
                assert!(flush.summary().is_none());
            }
        }
    }

    /// A table of versions and, under `Replace`, of replaced entries. Its snapshot is 5.
    #[cfg(feature = "fault-injection")]
    fn of_versions(duplicates: DuplicatePolicy) -> MemTable {
        let options = MemTableOptions::builder().duplicates(duplicates);
        let table =
            MemTable::new(options.write_buffer_size(16 << 10).seed(9).build().unwrap()).unwrap();
        for (key, sequence) in [
            (b"a", 4),
            (b"b", 5),
            (b"a", 9),
            (b"b", 3),
            (b"c", 7),
            (b"b", 8),
            (b"d", 6),
        ] {
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

    /// One bit of an entry flips between two calls: each item agrees with its digests, all returned
    /// items are right, and a flush that comes to its end has returned all of them.
    #[cfg(feature = "fault-injection")]
    #[test]
    fn damage_between_two_calls_is_not_returned() {
        let test = "flushes::pulled_flush::damage_between_two_calls_is_not_returned";
        let _watchdog = Watchdog::new(test, 0);
        for (duplicates, versions) in [
            (DuplicatePolicy::Reject, Versions::SeenBy(&[5])),
            (DuplicatePolicy::Replace, Versions::All),
        ] {
            let table = of_versions(duplicates);
            let frozen = table.freeze().unwrap();
            let begin = || frozen.flush_iter(versions).unwrap();
            let whole = pulled(&mut begin()).0;
            let mut injector = crate::walks::open(&table);
            let mut ended = 0;
            for (piece, bit) in crate::walks::bits(&injector, crate::walks::stride(3), 0) {
                if injector.pieces()[piece].owner.is_none() {
                    continue;
                }
                for gone in 0..whole.len() {
                    let mut flush = begin();
                    let mut items: Vec<Item> = (0..gone)
                        .map(|_| Item::of(&flush.next().unwrap().expect("an item")))
                        .collect();
                    injector.flip(piece, bit);
                    let (rest, end) = pulled(&mut flush);
                    items.extend(rest);
                    injector.undo();
                    let what = || format!("{:?} bit {bit} after {gone} items", duplicates);
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
}

/// Flush entries carry the digests that their table stored: they disagree with an entry in which
/// any bit has changed.
mod flush_protection {
    use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
    use paranoid_memtable::integrity::StoredProtection;
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Kind, MemTable, MemTableOptions};

    /// Compares each entry, and each entry with one bit of it flipped, with the entry's stored
    /// digests.
    #[derive(Default)]
    struct Flips {
        protection: u8,
        entries: u64,
        missed: u64,
        tried: u64,
    }

    impl Flips {
        fn try_flip(&mut self, stored: &StoredProtection, entry: (&[u8], &[u8], u64, Kind)) {
            self.tried += 1;
            self.missed += u64::from(stored.check(entry.0, entry.1, entry.2, entry.3).is_some());
        }
    }

    impl FlushSink for Flips {
        fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
            let FlushEntry {
                user_key,
                sequence,
                kind,
                value,
                protection,
            } = entry;
            assert_eq!(protection.bytes(), self.protection);
            let whole = protection
                .check(user_key, value, sequence, kind)
                .expect("an intact entry agrees");
            assert_eq!(
                whole,
                paranoid_memtable::integrity::Protected::of(user_key, value, kind)
                    .with_sequence(sequence)
            );
            self.entries += 1;
            let (mut key, mut copy) = (user_key.to_vec(), value.to_vec());
            for bit in 0..8 * key.len() {
                key[bit / 8] ^= 1 << (bit % 8);
                self.try_flip(&protection, (&key, value, sequence, kind));
                key[bit / 8] ^= 1 << (bit % 8);
            }
            for bit in 0..8 * copy.len() {
                copy[bit / 8] ^= 1 << (bit % 8);
                self.try_flip(&protection, (user_key, &copy, sequence, kind));
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            for bit in 0..64 {
                self.try_flip(&protection, (user_key, value, sequence ^ 1 << bit, kind));
            }
            for bit in 0..8 {
                self.try_flip(
                    &protection,
                    (
                        user_key,
                        value,
                        sequence,
                        Kind::from_u8(kind.as_u8() ^ 1 << bit),
                    ),
                );
            }
            // A key and a value of two different entries.
            self.try_flip(
                &protection,
                (user_key, &[value, b"x"].concat(), sequence, kind),
            );
            Ok(())
        }

        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn a_flip_after_the_table_disagrees_with_the_stored_digests() {
        for protection in [0, 1, 2, 4, 8] {
            let options = MemTableOptions::builder().protection_bytes(protection);
            let table = MemTable::new(options.build().unwrap()).unwrap();
            for number in 0..60u64 {
                let kind = [Kind::PUT, Kind::MERGE, Kind::DELETE, Kind::from_u8(0x91)]
                    [number as usize % 4];
                let value = if kind == Kind::DELETE {
                    vec![]
                } else {
                    vec![number as u8; number as usize]
                };
                table
                    .insert(
                        number + 1,
                        kind,
                        format!("k{}", number / 2).as_bytes(),
                        &value,
                    )
                    .unwrap();
            }
            let mut sink = Flips {
                protection,
                ..Flips::default()
            };
            let frozen = table.freeze().unwrap();
            frozen.flush(Versions::All, &mut sink).unwrap();
            assert_eq!(sink.entries, 60);
            // A digest of n bytes misses one flip in 2^8n. Without digests nothing is compared.
            let allowed = match protection {
                0 => sink.tried,
                1 => sink.tried / 64,
                2 => 10,
                _ => 0,
            };
            assert!(
                sink.missed <= allowed,
                "{protection} bytes: {} of {}",
                sink.missed,
                sink.tried
            );
        }
    }
}

/// A scrub reports nothing if the table is frozen meanwhile. It has counted fewer entries than the
/// freeze has sealed.
mod scrub_and_freeze {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::scope;

    #[cfg(feature = "fault-injection")]
    use paranoid_memtable::fault::{FaultInjector, Region};
    #[cfg(feature = "fault-injection")]
    use paranoid_memtable::flush::{FlushItem, Versions};
    use paranoid_memtable::repair::ScrubReport;
    use paranoid_memtable::{MemTable, MemTableOptions};

    use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

    fn table(seed: u64) -> MemTable {
        let options = MemTableOptions::builder()
            .write_buffer_size(256 << 10)
            .seed(seed);
        MemTable::new(options.build().unwrap()).unwrap()
    }

    fn nothing_found(report: &ScrubReport) {
        assert!(
            report.findings.is_empty(),
            "an undamaged table: {:?}",
            report.findings
        );
    }

    /// The scrub's own callback writes entries before the scrub's position, and freezes the table.
    #[test]
    fn a_table_that_is_frozen_under_a_scrub_is_undamaged() {
        // 1024 entries are between two calls of the callback.
        for entries in [3, 1100, 5000] {
            for freeze_at_call in [1, 2, 4] {
                let table = table(7);
                let mut writer = table.writer();
                for n in 0..entries {
                    writer.put(n, (n << 1 | 1).to_be_bytes(), b"value").unwrap();
                }
                table.delete_range(9, b"x", b"y").unwrap();
                let mut calls = 0;
                let report = table.scrub(|_| {
                    calls += 1;
                    if calls == freeze_at_call {
                        table
                            .put(1, 0_u64.to_be_bytes(), b"where the scrub has been")
                            .unwrap();
                        table.delete_range(11, b"a", b"b").unwrap();
                        table.freeze().unwrap();
                    }
                });
                nothing_found(&report);
                let whole = table.freeze().unwrap().scrub(|_| ());
                nothing_found(&whole);
                assert_eq!(
                    whole.entries,
                    table.len() as u64,
                    "a scrub that begins later meets every entry"
                );
            }
        }
    }

    /// One scrub after the other while threads write and one of them freezes.
    #[test]
    fn scrubs_beside_writers_and_a_freeze() {
        let test = "flushes::scrub_and_freeze::scrubs_beside_writers_and_a_freeze";
        let mut seed = seed_or(u64::from(std::process::id()) ^ 0x7363_7275);
        println!("{}", replay_line(test, seed));
        let (rounds, entries) = (amount(60, 12), amount(4_000, 1_500));
        for _ in 0..rounds {
            let _watchdog = Watchdog::new(test, seed);
            one_round(seed, entries);
            seed = scramble(seed);
        }
    }

    fn one_round(seed: u64, entries: u64) {
        let (table, over) = (&table(seed), &AtomicBool::new(false));
        scope(|threads| {
            for id in 0..2 {
                threads.spawn(move || write_until_frozen(table, Rng::new(seed ^ id), id));
            }
            threads.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    nothing_found(&table.scrub(|_| ()));
                }
                let last = table.scrub(|_| ());
                nothing_found(&last);
                assert_eq!(last.entries, table.len() as u64);
            });
            threads.spawn(move || {
                while (table.len() as u64) < scramble(seed) % entries {
                    std::thread::yield_now();
                }
                table.freeze().unwrap();
                over.store(true, Ordering::Release);
            });
        });
    }

    fn write_until_frozen(table: &MemTable, mut rng: Rng, id: u64) {
        for n in 0.. {
            let (sequence, key) = (n * 2 + id, rng.next_u64().to_be_bytes());
            let written = match n % 50 {
                49 => table.delete_range(sequence, key, [0xff; 9]),
                _ => table.put(sequence, key, b"value"),
            };
            if written.is_err() {
                return;
            }
        }
    }

    /// Every word of the tombstone index that is not zero, also padding and records to come: a
    /// flipped bit changes no answer, and a scrub reports it.
    #[cfg(feature = "fault-injection")]
    #[test]
    fn a_flip_in_the_tombstone_index_is_reported_and_ends_no_flush() {
        let _watchdog = Watchdog::new(
            "flushes::scrub_and_freeze::a_flip_in_the_tombstone_index_is_reported_and_ends_no_flush",
            0,
        );
        for (ranges, is_frozen) in [
            (1_u64, false),
            (5, false),
            (40, false),
            (40, true),
            (75, true),
        ] {
            let table = table(7);
            for number in 0..ranges {
                let (start, end) = (number * 7 % 50, number * 7 % 50 + 1 + number % 9);
                let key = |number: u64| number.reverse_bits().to_le_bytes();
                let (start, end) = (
                    key(start << 56).min(key(end << 56)),
                    key(start << 56).max(key(end << 56)),
                );
                table.delete_range(number + 1, start, end).unwrap();
            }
            let frozen = is_frozen.then(|| table.freeze().unwrap());
            let flushed = || {
                let frozen = frozen.as_ref()?;
                let mut fragments = Vec::new();
                let mut flush = frozen.flush_iter(Versions::All).unwrap();
                while let Some(item) = flush.next().unwrap() {
                    if let FlushItem::Fragment(fragment) = item {
                        let (start, end) = (fragment.start().to_vec(), fragment.end().to_vec());
                        fragments.push((start, end, fragment.sequences().to_vec()));
                    }
                }
                Some(fragments)
            };
            let fragments = flushed();
            // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
            #[expect(unsafe_code, reason = "opens the fault injector")]
            let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
            let step = if cfg!(debug_assertions) { 61 } else { 5 };
            for piece in 0..injector.pieces().len() {
                if injector.pieces()[piece].region != Region::TombstoneIndex {
                    continue;
                }
                let bytes = injector.bytes(piece);
                let words = bytes
                    .chunks(8)
                    .enumerate()
                    .filter(|(_, word)| **word != [0; 8]);
                for bit in words
                    .map(|(word, _)| 64 * word)
                    .flat_map(|first| (first + piece % step..first + 64).step_by(step))
                {
                    injector.flip(piece, bit);
                    let found = table.scrub(|_| ()).findings;
                    assert!(
                        !found.is_empty(),
                        "{ranges} ranges, frozen: {is_frozen}, piece {piece}, bit {bit}"
                    );
                    assert_eq!(
                        flushed(),
                        fragments,
                        "{ranges} ranges, piece {piece}, bit {bit}"
                    );
                    injector.undo();
                }
            }
            nothing_found(&table.scrub(|_| ()));
        }
    }
}

/// A slow fragmenter blocks no other thread.
///
/// ```text
///   freezing thread    freeze(A) -> first comparisons of tombstone keys ... waits at the gate ........ done
///   this thread                                 reads A, writes B, reads B    opens the gate
/// ```
/// The gate is in the comparator, and only the freezing thread stops at it. No thread sleeps, no
/// time is measured.
mod slow_freeze {
    use std::cell::Cell;
    use std::cmp::Ordering as Order;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Condvar, Mutex, OnceLock};
    use std::thread::{ThreadId, scope};

    use paranoid_memtable::read::DeletedBy;
    use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions, TableReader};

    use crate::support::orders::{Script, Scripted};
    use crate::support::rng::Watchdog;
    use crate::support::under;

    const TOMBSTONES: u64 = 200;
    /// The width of every range, in keys: it overlaps the next one.
    const WIDTH: u64 = 3;
    const POINTS: u64 = TOMBSTONES * 2 + 4;
    const BOUNDARY_LEN: usize = 4;
    const POINT_LEN: usize = 5;

    thread_local! {
        static COMPARISONS: Cell<u64> = const { Cell::new(0) };
    }

    /// The place where the freezing thread stops: its `left`-th comparison of two boundaries of
    /// ranges from now.
    #[derive(Debug)]
    struct Gate {
        freezer: OnceLock<ThreadId>,
        left: AtomicU64,
        arrived: Mutex<Sender<()>>,
        open: Mutex<bool>,
        opened: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            if self.freezer.get() != Some(&std::thread::current().id()) {
                return;
            }
            if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
                self.arrived.lock().unwrap().send(()).unwrap();
                let _open = self
                    .opened
                    .wait_while(self.open.lock().unwrap(), |open| !*open)
                    .unwrap();
            }
        }

        fn open(&self) {
            *self.open.lock().unwrap() = true;
            self.opened.notify_all();
        }
    }

    /// Opens the gate when it is dropped, also if a check fails.
    struct Opens<'g>(&'g Gate);

    impl Drop for Opens<'_> {
        fn drop(&mut self) {
            self.0.open();
        }
    }

    /// Bytes in order, without prefixes; counts comparisons, and stops at the gate.
    #[derive(Debug, Clone)]
    struct Gated(Arc<Gate>);

    impl Script for Gated {
        fn compare(&self, left: &[u8], right: &[u8]) -> Order {
            COMPARISONS.set(COMPARISONS.get() + 1);
            if (left.len(), right.len()) == (BOUNDARY_LEN, BOUNDARY_LEN) {
                self.0.pass();
            }
            left.cmp(right)
        }
    }

    fn boundary(number: u64) -> [u8; BOUNDARY_LEN] {
        (number as u32).to_be_bytes()
    }

    /// The key right after a boundary.
    fn point(number: u64) -> [u8; POINT_LEN] {
        let mut key = [b'.'; POINT_LEN];
        key[..BOUNDARY_LEN].copy_from_slice(&boundary(number));
        key
    }

    fn fill(table: &MemTable) {
        for number in 0..POINTS {
            table.put(1 + number, point(number), b"value").unwrap();
        }
        for number in 0..TOMBSTONES {
            let (start, end) = (boundary(number * 2), boundary(number * 2 + WIDTH));
            table.delete_range(sequence(number), start, end).unwrap();
        }
    }

    /// Older ranges have larger keys.
    fn sequence(tombstone: u64) -> u64 {
        POINTS + TOMBSTONES - tombstone
    }

    /// The newest tombstone up to a snapshot that covers a key, found by a search of all of them.
    fn cover(key: u64, snapshot: u64) -> Option<u64> {
        let covers = |tombstone: &u64| (tombstone * 2..tombstone * 2 + WIDTH).contains(&key);
        (0..TOMBSTONES)
            .filter(covers)
            .map(sequence)
            .filter(|sequence| *sequence <= snapshot)
            .max()
    }

    fn check(table: &TableReader, snapshot: u64) {
        let mut shown = 0;
        for key in 0..POINTS {
            match (
                table.get(point(key), snapshot).unwrap(),
                cover(key, snapshot),
            ) {
                (
                    Lookup::Deleted {
                        sequence,
                        by: DeletedBy::Range,
                    },
                    Some(expected),
                ) => {
                    assert_eq!(sequence, expected, "key {key} at {snapshot}");
                }
                (Lookup::Value(_), None) => shown += 1,
                (other, expected) => panic!("key {key} at {snapshot}: {other:?}, not {expected:?}"),
            }
        }
        assert_eq!(
            table.range_at(.., snapshot).map(Result::unwrap).count(),
            shown
        );
        assert_eq!(
            table
                .range_at(.., snapshot)
                .rev()
                .map(Result::unwrap)
                .count(),
            shown
        );
    }

    /// The most comparisons of one `get`. A walk over the tombstones takes one per tombstone, an
    /// index a few.
    fn dearest_get(table: &TableReader) -> u64 {
        let price = |key| {
            let before = COMPARISONS.get();
            table.get(point(key), u64::MAX).unwrap();
            COMPARISONS.get() - before
        };
        // Keys at the far end: a walk would have to pass every tombstone.
        (POINTS - 40..POINTS).map(price).max().unwrap()
    }

    fn freeze_slowly(stop_at: u64) {
        let (arrived, at_the_gate) = channel();
        let gate = Arc::new(Gate {
            freezer: OnceLock::new(),
            left: AtomicU64::new(stop_at),
            arrived: Mutex::new(arrived),
            open: Mutex::new(false),
            opened: Condvar::new(),
        });
        let options = MemTableOptions::builder().seed(5);
        let table =
            &MemTable::new(under(options, Scripted::new(Gated(Arc::clone(&gate))))).unwrap();
        fill(table);
        let other = table.fork().unwrap();
        scope(|threads| {
            let opens = Opens(&gate);
            let freezer = threads.spawn(|| {
                gate.freezer.set(std::thread::current().id()).unwrap();
                table.freeze().unwrap()
            });
            at_the_gate.recv().unwrap();
            assert!(
                !freezer.is_finished() && table.is_frozen(),
                "writing is over, building is not"
            );
            assert!(matches!(
                table.put(u64::MAX, b"late", b""),
                Err(Error::Frozen)
            ));
            let unpublished = table.allocated_bytes();
            fill(&other);
            for snapshot in [POINTS, POINTS + TOMBSTONES / 2, u64::MAX] {
                check(table, snapshot);
                check(&other, snapshot);
            }
            let live = dearest_get(table);
            assert!(
                live < TOMBSTONES / 2,
                "{live} comparisons: a walk over the tombstones, not the live index"
            );
            assert!(!freezer.is_finished(), "it stands at the gate");
            assert_eq!(
                table.allocated_bytes(),
                unpublished,
                "nothing was published meanwhile"
            );
            drop(opens);
            let frozen = freezer.join().unwrap();
            assert!(
                frozen.allocated_bytes() > unpublished,
                "the result is published"
            );
            for snapshot in [POINTS, POINTS + TOMBSTONES / 2, u64::MAX] {
                check(&frozen, snapshot);
            }
        });
    }

    #[test]
    fn a_slow_fragmenter_delays_no_thread() {
        let _watchdog = Watchdog::new(
            "flushes::slow_freeze::a_slow_fragmenter_delays_no_thread",
            5,
        );
        for stop_at in [0, TOMBSTONES / 4] {
            freeze_slowly(stop_at);
        }
    }
}

/// Flushes that do not end: kept, or leaked.
mod kept {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use paranoid_memtable::{Error, StallCause};
    use paranoid_set::{FlushJob, MemTableSet, SetOptions};

    use crate::support::rng::Watchdog;
    use crate::support::sets::History;

    fn impatient() -> MemTableSet<()> {
        let options = SetOptions::builder().stall_timeout(Duration::from_millis(20));
        MemTableSet::open(options.build().unwrap(), ()).unwrap()
    }

    /// A flush is kept, by a thread of the engine or by the function of the flush thread, or
    /// leaked. A call that waits for its end returns the error of a stalled write, and the tables
    /// stay.
    #[test]
    fn a_wait_for_a_flush_has_an_end() {
        let _watchdog = Watchdog::new("flushes::kept::a_wait_for_a_flush_has_an_end", 0);
        let late = |set: &MemTableSet<()>| match set.flush_and_wait() {
            Err(Error::WriteStall {
                cause: StallCause::Tables,
                tables: 2,
                waited,
            }) => {
                assert!(!waited.is_zero())
            }
            other => panic!("{other:?}"),
        };
        let flush = |mut job: FlushJob<()>| {
            job.flush(&mut History::default())?;
            job.install(|_| Ok(()))
        };
        let begin = |set: &MemTableSet<()>| {
            set.put("k", "v").unwrap();
            set.switch().unwrap();
            set.begin_flush().unwrap().unwrap()
        };
        // The flush is kept, so nothing flushes; later the tables are flushed.
        let set = impatient();
        let job = begin(&set);
        (0..2).for_each(|_| late(&set));
        drop(job);
        assert!(matches!(
            set.flush_and_wait(),
            Err(Error::InvalidArgument(_))
        ));
        flush(set.begin_flush().unwrap().unwrap()).unwrap();
        set.flush_and_wait().unwrap();
        // The flush is leaked: nothing ends it, and all else continues.
        let set = impatient();
        std::mem::forget(begin(&set));
        (0..2).for_each(|_| late(&set));
        assert!(set.put("k", "later").is_ok() && set.read_only().is_none());
        // The flush is kept by a function that has returned. When the job is dropped, the thread
        // tries again on request.
        let set = impatient();
        let (keep, kept) = channel();
        let mut flushes = 0;
        let thread = set.start_flush_thread(move |job| {
            flushes += 1;
            if flushes == 1 {
                keep.send(job).map_err(|_| Error::FlushPanicked)
            } else {
                flush(job)
            }
        });
        set.put("k", "v").unwrap();
        late(&set);
        drop(kept.recv().unwrap());
        set.flush_and_wait().unwrap();
        assert_eq!(set.stats().tables, 1);
        thread.unwrap().close().unwrap();
    }
}
