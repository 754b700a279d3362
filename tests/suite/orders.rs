//! Orders of keys: those that lie, panic or call back, those that are chosen at run time, and
//! damage under an order other than bytewise.

/// Comparators that panic, lie or call back into their table, at each of the comparisons of each
/// operation.
mod comparators {
    use std::any::Any;
    use std::cell::Cell;
    use std::cmp::Ordering;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering as Memory};
    use std::sync::{Arc, Mutex, OnceLock, Weak};

    use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Error, KeyOrder, Lookup, MemTable, MemTableOptions, WriteBatch};

    use crate::support::orders::{Script, Scripted, script};
    use crate::support::rng::{Watchdog, amount};
    use crate::support::under;

    type Table = MemTable;

    /// The deed of a comparator in one of its comparisons.
    #[derive(Clone, Copy)]
    enum Deed {
        Panic,
        /// Returns the opposite order.
        Lie,
        /// Calls the table.
        Call(fn(&Table) -> Result<(), Error>),
    }

    /// Bytewise order, with a deed in one comparison.
    #[derive(Default)]
    struct Imp {
        /// Comparisons until the deed; it is done once.
        fuse: AtomicU64,
        deed: Mutex<Option<Deed>>,
        table: OnceLock<Weak<Table>>,
        /// The result of the call.
        answer: Mutex<Option<Result<(), Error>>>,
        images: AtomicU64,
    }

    impl std::fmt::Debug for Imp {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Imp")
        }
    }

    thread_local!(static INSIDE: Cell<u32> = const { Cell::new(0) });

    impl Script for Imp {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            // Comparisons of other threads, and those of the deed itself, are not counted.
            if INSIDE.get() != 1 || self.fuse.fetch_sub(1, Memory::Relaxed) != 0 {
                return left.cmp(right);
            }
            let deed = *self.deed.lock().unwrap();
            match deed {
                None => left.cmp(right),
                Some(Deed::Panic) => panic!("an imp"),
                Some(Deed::Lie) => right.cmp(left),
                Some(Deed::Call(call)) => {
                    let table = self.table.get().and_then(Weak::upgrade).unwrap();
                    INSIDE.set(2);
                    let answer = call(&table);
                    INSIDE.set(1);
                    *self.answer.lock().unwrap() = Some(answer);
                    left.cmp(right)
                }
            }
        }

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Images
        }

        fn image(&self, key: &[u8], at: usize) -> u64 {
            self.images.fetch_add(1, Memory::Relaxed);
            if at > 0 {
                0
            } else {
                u64::from(key.first().copied().unwrap_or(0)) << 56
            }
        }
    }

    fn key(n: u64) -> [u8; 8] {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    const BASE: u64 = 24;

    fn table() -> Arc<Table> {
        let options = MemTableOptions::builder()
            .seed(5)
            .write_buffer_size(64 << 10);
        let table = MemTable::new(under(options, Scripted::new(Imp::default()))).unwrap();
        for n in 0..BASE {
            table.put(n, key(n), key(n)).unwrap();
            if n % 3 == 0 {
                let start = key(n + 1000);
                let end: Vec<u8> = [&start[..], b"\0"].concat();
                table.delete_range(n, start, &end).unwrap();
            }
        }
        let table = Arc::new(table);
        let plan = &script::<Imp>(table.comparator());
        plan.fuse.store(u64::MAX, Memory::Relaxed);
        plan.table.set(Arc::downgrade(&table)).unwrap();
        table
    }

    #[derive(Default)]
    struct Count(u64);

    impl FlushSink for Count {
        fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
            self.0 += 1;
            Ok(())
        }
        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            self.0 += 1;
            Ok(())
        }
    }

    /// Takes a limited number of steps, for any order.
    fn walk(table: &Table) -> Result<(), Error> {
        let steps = 4 * (table.len() + 10);
        table
            .range(..)
            .take(steps)
            .try_for_each(|entry| entry.map(|_| ()))?;
        table
            .range_at(.., u64::MAX)
            .rev()
            .take(steps)
            .try_for_each(|entry| entry.map(|_| ()))?;
        let mut cursor = table.cursor();
        cursor.seek(key(7))?;
        cursor.prev().map(|_| ())
    }

    fn write_batch(table: &Table) -> Result<(), Error> {
        let mut batch = WriteBatch::with_protection(8)?;
        for n in 300..306 {
            batch.put(key(n), key(n))?;
        }
        batch.delete_range(key(2000), [key(2000).as_slice(), b"\0"].concat())?;
        table.write_batch(500, &batch).map(|_| ())
    }

    fn flush(table: &Table) -> Result<(), Error> {
        let mut count = Count::default();
        table
            .freeze()?
            .flush(Versions::SeenBy(&[3, 9]), &mut count)
            .map(|_| ())
    }

    fn scrub(table: &Table) -> Result<(), Error> {
        table.scrub(|_| ()).check()
    }

    /// Whether an operation is a write, for which a freeze waits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Sort {
        Write,
        Other,
    }

    type Operation = (&'static str, Sort, fn(&Table) -> Result<(), Error>);

    /// Every operation that compares keys.
    const OPERATIONS: &[Operation] = &[
        ("put", Sort::Write, |table| {
            table.put(200, key(200), key(200)).map(|_| ())
        }),
        ("put through a writer", Sort::Write, |table| {
            table.writer().put(201, key(201), key(201)).map(|_| ())
        }),
        ("put again", Sort::Write, |table| {
            table.put(202, key(3), key(3)).map(|_| ())
        }),
        ("delete_range", Sort::Write, |table| {
            let end = [key(3000).as_slice(), b"\0"].concat();
            table.delete_range(203, key(3000), &end).map(|_| ())
        }),
        ("write_batch", Sort::Write, write_batch),
        ("get", Sort::Other, |table| {
            table.get(key(5), u64::MAX).map(|_| ())
        }),
        ("multi_get", Sort::Other, |table| {
            let keys: Vec<[u8; 8]> = (0..30).map(key).collect();
            table
                .multi_get(&keys, 20)
                .into_iter()
                .try_for_each(|answer| answer.map(|_| ()))
        }),
        ("walk", Sort::Other, walk),
        ("approximate_range_stats", Sort::Other, |table| {
            let (start, end) = ([0; 8], [0xff; 8]);
            table
                .approximate_range_stats(&start[..]..&end[..])
                .map(|_| ())
        }),
        ("scrub", Sort::Other, scrub),
        ("freeze", Sort::Other, |table| table.freeze().map(|_| ())),
        ("flush", Sort::Other, flush),
        ("salvage", Sort::Other, |table| {
            let _ = table.freeze()?.salvage();
            Ok(())
        }),
    ];

    /// Every call that waits for another thread, or for which another thread waits.
    const CALLS: &[Operation] = &[
        ("put", Sort::Write, |table| {
            table.put(900, key(900), key(900)).map(|_| ())
        }),
        ("writer", Sort::Write, |table| {
            table.writer().put(901, key(901), key(901)).map(|_| ())
        }),
        ("delete_range", Sort::Write, |table| {
            let end = [key(4000).as_slice(), b"\0"].concat();
            table.delete_range(902, key(4000), &end).map(|_| ())
        }),
        ("freeze", Sort::Other, |table| table.freeze().map(|_| ())),
        ("immutable", Sort::Other, |table| {
            table
                .immutable()
                .map_or(Ok(()), |frozen| frozen.scrub(|_| ()).check())
        }),
        ("scrub", Sort::Other, |table| {
            let _ = table.scrub(|_| ());
            Ok(())
        }),
        ("walk", Sort::Other, walk),
        ("counts", Sort::Other, |table| {
            let _ = (
                table.len(),
                table.should_flush(),
                table.stats().largest_sequence,
                format!("{table:?}"),
            );
            Ok(())
        }),
    ];

    /// Runs an operation. `None`: it panicked.
    fn run(
        table: &Table,
        operation: fn(&Table) -> Result<(), Error>,
        deed: Deed,
        fuse: u64,
    ) -> Option<Result<(), Error>> {
        let plan = &script::<Imp>(table.comparator());
        *plan.deed.lock().unwrap() = Some(deed);
        plan.fuse.store(fuse, Memory::Relaxed);
        INSIDE.set(1);
        let outcome = catch_unwind(AssertUnwindSafe(|| operation(table)));
        INSIDE.set(0);
        outcome.map_err(|payload| assert!(is_known(&*payload))).ok()
    }

    /// Whether the panic is the comparator's, or that of the standard library's sort over a wrong
    /// order.
    fn is_known(payload: &dyn Any) -> bool {
        payload
            .downcast_ref::<&str>()
            .is_some_and(|text| *text == "an imp" || text.contains("total order"))
    }

    /// Whether the deed was done: its fuse is below zero.
    fn done(table: &Table) -> bool {
        script::<Imp>(table.comparator()).fuse.load(Memory::Relaxed) > u64::MAX / 2
    }

    /// No acknowledged entry is lost, the counts are right, and the table can be used.
    fn intact(table: &Table, what: &str) {
        for n in 0..BASE {
            let Lookup::Value(value) = table.get(key(n), n).unwrap() else {
                panic!("{what}: {n} is lost")
            };
            assert_eq!(*value, key(n), "{what}");
        }
        assert!(
            table.scrub(|_| ()).findings.is_empty(),
            "{what}: {:?}",
            table.scrub(|_| ()).findings
        );
        match table.put(1000, key(1000), b"") {
            Ok(_) => assert!(
                matches!(table.get(key(1000), 1000).unwrap(), Lookup::Value(_)),
                "{what}"
            ),
            Err(Error::Frozen) => assert!(table.is_frozen()),
            Err(other) => panic!("{what}: {other}"),
        }
        let frozen = table.freeze().unwrap();
        let mut count = Count::default();
        frozen.flush(Versions::All, &mut count).unwrap();
        assert_eq!(count.0, frozen.len() as u64, "{what}");
        assert_eq!(frozen.salvage().missing, 0, "{what}");
    }

    /// Runs each operation with the deed at its first comparison, at its second, and so on. A debug
    /// build leaves some out.
    fn everywhere(
        name: &str,
        deed: Deed,
        mut check: impl FnMut(&Table, &Operation, &str, Option<Result<(), Error>>),
    ) {
        let test = format!("orders::comparators::{name}");
        let _watchdog = Watchdog::new(&test, 0);
        for operation in OPERATIONS {
            let mut fuse = 0;
            loop {
                let table = table();
                let outcome = run(&table, operation.2, deed, fuse);
                let what = format!("{}, comparison {fuse}", operation.0);
                if !done(&table) {
                    outcome.unwrap().unwrap();
                    break;
                }
                check(&table, operation, &what, outcome);
                fuse += 1 + fuse / amount(16, 1);
            }
        }
    }

    #[test]
    fn a_panic_leaves_a_usable_table() {
        everywhere(
            "a_panic_leaves_a_usable_table",
            Deed::Panic,
            |table, _, what, outcome| {
                assert!(outcome.is_none(), "{what}: the panic comes back");
                intact(table, what);
            },
        );
    }

    /// Answers are meaningless after a lie, but every call ends, also later ones.
    #[test]
    fn a_lie_ends() {
        everywhere("a_lie_ends", Deed::Lie, |table, _, _, _| {
            let later: [Operation; 4] = [
                ("walk", Sort::Other, walk),
                ("scrub", Sort::Other, scrub),
                ("flush", Sort::Other, flush),
                ("salvage", Sort::Other, |table| {
                    table.immutable().map_or(Ok(()), |frozen| {
                        let _ = frozen.salvage();
                        Ok(())
                    })
                }),
            ];
            for (_, _, operation) in later {
                let _ = run(table, operation, Deed::Lie, u64::MAX / 4);
            }
        });
    }

    #[test]
    fn a_call_from_inside_ends() {
        for (call, sort, deed) in CALLS {
            everywhere(
                "a_call_from_inside_ends",
                Deed::Call(*deed),
                |table, operation, what, outcome| {
                    let what = format!("{what}, {call}");
                    let answer = script::<Imp>(table.comparator())
                        .answer
                        .lock()
                        .unwrap()
                        .take()
                        .expect("it was called");
                    let freezes = ["freeze", "flush", "salvage"].contains(&operation.0);
                    match (answer, *call) {
                        // The freeze would wait for the write that calls it.
                        (Err(Error::InvalidArgument(_)), "freeze") => {
                            assert_eq!(operation.1, Sort::Write, "{what}")
                        }
                        (Err(Error::Frozen), _) => {
                            assert!(freezes && *sort == Sort::Write, "{what}")
                        }
                        (answer, _) => answer.unwrap_or_else(|error| panic!("{what}: {error}")),
                    }
                    match outcome.expect("no panic") {
                        // A batch that was checked before the freeze, or a write after it.
                        Err(Error::Frozen) => {
                            assert!(*call == "freeze" && operation.1 == Sort::Write, "{what}")
                        }
                        outcome => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
                    }
                    intact(table, &what);
                },
            );
        }
    }

    /// A comparator that is called inside a write never causes a deadlock: neither with a freeze
    /// that waits for the write, nor with threads that wait for the freeze.
    #[test]
    fn a_call_from_inside_a_write_that_a_freeze_waits_for_ends() {
        let test = "orders::comparators::a_call_from_inside_a_write_that_a_freeze_waits_for_ends";
        let _watchdog = Watchdog::new(test, 0);
        for (_, _, deed) in CALLS {
            for _ in 0..20 {
                let table = table();
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        let outcome = run(
                            &table,
                            |table| table.put(7, key(77), b"").map(|_| ()),
                            Deed::Call(*deed),
                            2,
                        );
                        assert!(
                            matches!(outcome, Some(Ok(()) | Err(Error::Frozen))),
                            "{outcome:?}"
                        );
                    });
                    threads.spawn(|| table.freeze().unwrap());
                });
                intact(&table, "beside a freeze");
            }
        }
    }

    /// The flush sorts range tombstones by the comparator's prefixes before it cuts them.
    #[test]
    fn a_flush_asks_for_images() {
        let table = table();
        let frozen = table.freeze().unwrap();
        let images = &script::<Imp>(table.comparator()).images;
        let before = images.load(Memory::Relaxed);
        frozen
            .flush(Versions::SeenBy(&[]), &mut Count::default())
            .unwrap();
        let asked = images.load(Memory::Relaxed) - before;
        assert!(asked >= table.stats().range_deletes, "{asked}");
    }
}

/// Orders that are chosen at run time: one type of table, set and cursor serves them all.
mod shared_order {
    use std::cmp::Ordering;
    use std::sync::Arc;

    use paranoid_memtable::filter::FixedPrefix;
    use paranoid_memtable::{
        Bytewise, Comparator, Error, KeyEquality, KeyOrder, MemTable, MemTableOptions,
    };

    use crate::support::case::{draw, run_or_report};
    use crate::support::orders::{Order, Reverse};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
    use crate::support::under;

    /// The order of bytes under a name of its own. Tables then compare bytes, and do not call it.
    #[derive(Debug, Clone, Copy, Default)]
    struct Named;

    impl Comparator for Named {
        fn name(&self) -> &str {
            "test.Named"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Bytes
        }

        fn compare(&self, _left: &[u8], _right: &[u8]) -> Ordering {
            unreachable!("keys in the order of bytes are compared by the table")
        }

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Bytes
        }
    }

    impl Order for Named {
        fn plainly(left: &[u8], right: &[u8]) -> Ordering {
            Bytewise::plainly(left, right)
        }
    }

    #[test]
    fn a_named_order_of_bytes_against_the_model() {
        let test = "orders::shared_order::a_named_order_of_bytes_against_the_model";
        let mut seed = seed_or(std::process::id().into());
        println!("{test}: seed {seed:#x}");
        for _ in 0..amount(40, 3) {
            let _watchdog = Watchdog::new(test, seed);
            run_or_report::<Named>(&draw(seed, 400), &replay_line(test, seed));
            seed = Rng::new(seed).next_u64();
        }
    }

    /// Keys in the order of bytes are compared by their bytes, so an equality of its own would be
    /// ignored.
    #[test]
    fn an_order_that_contradicts_itself_is_refused() {
        #[derive(Debug)]
        struct Blind;
        impl Comparator for Blind {
            fn name(&self) -> &str {
                "test.Blind"
            }

            fn equality(&self) -> KeyEquality {
                KeyEquality::Custom
            }

            fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
                left.cmp(right)
            }

            fn key_order(&self) -> KeyOrder {
                KeyOrder::Bytes
            }
        }
        let refused = MemTableOptions::builder()
            .comparator(Arc::new(Blind))
            .build();
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{refused:?}"
        );
    }

    /// One type of table for any chosen order: with filters and an index, forked, cloned, moved
    /// between threads.
    #[test]
    fn one_type_of_table_for_every_order() {
        let orders: [Arc<dyn Comparator>; 3] =
            [Arc::new(Bytewise), Arc::new(Named), Arc::new(Reverse)];
        let options = || {
            MemTableOptions::builder()
                .whole_key_filter(0.01)
                .prefix_filter(FixedPrefix::new(1), 0.01)
        };
        let mut tables = vec![MemTable::new(options().build().unwrap()).unwrap()];
        for order in orders {
            tables.push(MemTable::new(options().comparator(order).build().unwrap()).unwrap());
        }
        tables.push(tables[3].fork().unwrap());
        for table in &tables {
            std::thread::scope(|threads| {
                threads.spawn(|| table.put(1, b"a", b"first"));
                threads.spawn(|| table.put(2, b"b", b"second"));
            });
        }
        let first = |table: &MemTable| {
            table
                .cursor()
                .first()
                .unwrap()
                .map(|entry| entry.user_key().to_vec())
        };
        let firsts: Vec<_> = tables.iter().map(first).map(Option::unwrap).collect();
        assert_eq!(firsts, [b"a", b"a", b"a", b"b", b"b"]);
        let names: Vec<&str> = tables
            .iter()
            .map(|table| table.comparator().name())
            .collect();
        let bytes = "leveldb.BytewiseComparator";
        assert_eq!(
            names,
            [bytes, bytes, "test.Named", "test.Reverse", "test.Reverse"]
        );
        let options = under(MemTableOptions::builder(), Reverse);
        assert!(format!("{options:?}").contains("test.Reverse"));
    }
}

/// A comparator panics at each call of `compare` and of `image` in turn, while a table is filled
/// until its directory has pages over pages. The directory is changed in many steps, and the panic
/// may come between any two.
mod panics_while_filling {
    use std::cmp::Ordering;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicU64, Ordering as Memory};

    use paranoid_memtable::flush::Versions;
    use paranoid_memtable::{Comparator, KeyOrder, Lookup, MemTable, MemTableOptions};

    use crate::support::orders::{Reverse, Script, Scripted, script};
    use crate::support::rng::{Watchdog, amount};
    use crate::support::under;

    /// The reverse order, until the call that the fuse counts down to.
    #[derive(Debug, Default)]
    struct Fused(AtomicU64);

    impl Fused {
        fn burn(&self) {
            if self.0.load(Memory::Relaxed) != u64::MAX && self.0.fetch_sub(1, Memory::Relaxed) == 0
            {
                resume_unwind(Box::new("the fuse"));
            }
        }
    }

    impl Script for Fused {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            self.burn();
            Reverse.compare(left, right)
        }

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Images
        }

        fn image(&self, key: &[u8], at: usize) -> u64 {
            self.burn();
            Reverse.image(key, at)
        }
    }

    const KEYS: u64 = 260;

    /// A key by its number.
    type Key = fn(u64) -> String;

    /// Keys that are spread, have a long common prefix, or come in order.
    const SHAPES: [(&str, Key); 4] = [
        ("spread", |n| format!("{:05}", n * 7_919 % 10_007)),
        ("a long prefix", |n| {
            format!("/a/long/prefix/of/all/keys/{:05}", n * 7_919 % 10_007)
        }),
        ("ascending", |n| format!("/ordered/{n:05}")),
        ("descending", |n| format!("/ordered/{:05}", KEYS - n)),
    ];

    /// Fills a table. Each put panics once, at call `fuse` if it has as many, and is repeated.
    /// Returns the number of panics.
    fn fill(shape: &str, key: Key, fuse: u64) -> u64 {
        let options = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .seed(1);
        let table = MemTable::new(under(options, Scripted::new(Fused(u64::MAX.into())))).unwrap();
        let set_fuse = |calls| {
            script::<Fused>(table.comparator())
                .0
                .store(calls, Memory::Relaxed)
        };
        let mut panics = 0;
        for n in 0..KEYS {
            let what = format!("{shape}, put {n}, call {fuse}");
            set_fuse(fuse);
            let put = catch_unwind(AssertUnwindSafe(|| {
                table.put(2 * n + 1, key(n), b"first").unwrap()
            }));
            set_fuse(u64::MAX);
            if put.is_err() {
                panics += 1;
                let found = table.scrub(|_| ()).findings;
                assert!(found.is_empty(), "{what}: {found:?}");
            }
            table.put(2 * n + 2, key(n), b"again").unwrap();
            for known in [n, n / 2, 0] {
                let answer = table.get(key(known), u64::MAX).unwrap();
                assert!(
                    matches!(answer, Lookup::Value(value) if *value == *b"again"),
                    "{what}: {known}"
                );
            }
        }
        let what = format!("{shape}, call {fuse}");
        let mut rows: Vec<String> = (0..KEYS).map(key).collect();
        rows.sort_by(|left, right| Reverse.compare(left.as_bytes(), right.as_bytes()));
        let shown = table
            .range_at(.., u64::MAX)
            .map(|entry| entry.unwrap().user_key().to_vec());
        assert!(
            shown.eq(rows.iter().map(|row| row.as_bytes().to_vec())),
            "{what}: a scan"
        );
        assert!(
            (0..KEYS).all(|n| table.get_entry(key(n), 2 * n + 2).unwrap().is_some()),
            "{what}: a get"
        );
        let frozen = table.freeze().unwrap();
        assert!(frozen.scrub(|_| ()).findings.is_empty(), "{what}: a scrub");
        let mut flush = frozen.flush_iter(Versions::All).unwrap();
        while flush.next().unwrap().is_some() {}
        panics
    }

    #[test]
    fn a_panic_at_any_call_leaves_a_sound_directory() {
        let _watchdog = Watchdog::new(
            "orders::panics_while_filling::a_panic_at_any_call_leaves_a_sound_directory",
            0,
        );
        for (shape, key) in SHAPES {
            let (mut fuse, mut all) = (0, 0);
            loop {
                let panics = fill(shape, key, fuse);
                if panics == 0 {
                    break;
                }
                (all, fuse) = (all + panics, fuse + 1 + fuse / amount(1_000, 8));
            }
            println!("{shape}: {all} panics, none from call {fuse} on");
            assert!(all > 500, "{shape}: only {all} panics");
        }
    }
}

/// Damage in tables of another order, with replaced equals: each bit of each entry and link in
/// turn. Every read returns the answer that was written, or `Corruption`.
#[cfg(feature = "fault-injection")]
mod orders_under_damage {
    use std::cmp::Ordering;

    use paranoid_memtable::fault::{FaultInjector, Part};
    use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{DuplicatePolicy, Error, Lookup, MemTable, MemTableOptions};

    use crate::support::orders::{Script, ScriptedLoosely};
    use crate::support::rng::Watchdog;
    use crate::support::under;

    /// An order that ignores case and descends: keys with different bytes may be equal.
    #[derive(Debug, Clone, Copy)]
    struct Folded;

    impl Script for Folded {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            right.to_ascii_lowercase().cmp(&left.to_ascii_lowercase())
        }
    }

    /// (key, sequence number, value), in the order of inserts. Of equal entries the last one
    /// counts.
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
        let options = MemTableOptions::builder()
            .duplicates(DuplicatePolicy::Replace)
            .seed(5);
        let table = MemTable::new(under(options, ScriptedLoosely::new(Folded))).unwrap();
        for (key, sequence, value) in WRITES {
            table
                .put(sequence, key.as_bytes(), value.as_bytes())
                .unwrap();
        }
        table
    }

    /// The right result of a read of `key` at `snapshot`.
    fn newest(key: &str, snapshot: u64) -> Option<(u64, &'static str)> {
        let same =
            |write: &&(&str, u64, &str)| write.0.eq_ignore_ascii_case(key) && write.1 <= snapshot;
        WRITES
            .iter()
            .filter(same)
            .max_by_key(|write| write.1)
            .map(|(_, sequence, value)| (*sequence, *value))
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
            self.0
                .push(row(entry.user_key, entry.sequence, entry.value));
            Ok(())
        }
        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    /// The keys that returned `Corruption`. Panics at a wrong answer.
    fn uncertain(table: &MemTable, what: &str) -> Vec<&'static str> {
        let mut uncertain = Vec::new();
        for key in [
            "alpha", "aa", "bravo", "c", "charlie", "delta", "echo", "foxtrot", "golf", "zulu",
        ] {
            for snapshot in [0, 1, 2, 4, 6, 8, u64::MAX] {
                match table.get(key.as_bytes(), snapshot) {
                    Ok(Lookup::Value(value)) => {
                        let found = (value.sequence(), std::str::from_utf8(&value).unwrap());
                        assert_eq!(
                            Some(found),
                            newest(key, snapshot),
                            "{what}: {key} at {snapshot}"
                        );
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

    /// Checks that a scan shows the rows in order, and leaves rows out only after an error.
    fn scan(table: &MemTable, rows: &[(String, u64, String)], what: &str) {
        let mut rest = rows.iter();
        let mut gap = false;
        for entry in table.range(..).take(4 * rows.len()) {
            let shown =
                entry.and_then(|entry| Ok(row(entry.user_key(), entry.sequence(), entry.value()?)));
            let Ok(shown) = shown else {
                gap = true;
                continue;
            };
            let found = if gap {
                rest.any(|row| *row == shown)
            } else {
                rest.next() == Some(&shown)
            };
            assert!(found, "{what}: a scan shows {shown:?}");
            gap = false;
        }
        assert!(gap || rest.next().is_none(), "{what}: a scan ends early");
    }

    #[test]
    fn every_bit_under_another_order_with_replaced_equals() {
        let _watchdog = Watchdog::new("orders::orders_under_damage::every_bit", 0);
        let rows = rows();
        let pieces = {
            let table = table();
            assert_eq!(uncertain(&table, "undamaged"), [""; 0]);
            scan(&table, &rows, "undamaged");
            // SAFETY: one thread, and nothing borrowed is held.
            #[expect(unsafe_code, reason = "opens the fault injector")]
            let injector = unsafe { FaultInjector::open(&table) }.unwrap();
            let visibility = injector
                .pieces()
                .iter()
                .map(|piece| (piece.part, piece.len()));
            visibility.collect::<Vec<_>>()
        };
        let table = table();
        // SAFETY: one thread, and nothing borrowed is held while the fault injector works.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let stride = if cfg!(debug_assertions) { 5 } else { 1 };
        let (mut tried, mut most) = (0, 0);
        for (piece, (part, len)) in pieces
            .into_iter()
            .enumerate()
            .filter(|(_, (part, _))| *part == Part::Points)
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
        frozen.flush(Versions::All, &mut sink).unwrap();
        assert_eq!(sink.0, rows);
    }

    #[test]
    fn a_damaged_replacing_entry_never_shows_the_replaced_one() {
        let table = table();
        // SAFETY: one thread, and nothing borrowed is held while the fault injector works.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let owned = |piece: &paranoid_memtable::fault::Piece| {
            piece
                .owner
                .as_ref()
                .is_some_and(|owner| owner.key.eq_ignore_ascii_case(b"charlie"))
        };
        let pieces: Vec<usize> = (0..injector.pieces().len())
            .filter(|piece| owned(&injector.pieces()[*piece]))
            .collect();
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
}
