//! Random operations against two other definitions of a table: a sorted map, and another crate's skiplist.

/// Random operations against a sorted map: every policy, protection level, order and direction.
///
/// `PARANOID_TEST_OPS` scales the number of operations, `PARANOID_TEST_SEED` repeats a run: the first case of a run is
/// drawn from the seed itself, so the replay line of a failure runs the failing case first.
mod model {
    use paranoid_memtable::{
        Bytewise, DuplicatePolicy, Entry, Error, MemTable, MemTableOptions, TableReader,
    };

    use crate::support::case::{draw, run_or_report};
    use crate::support::orders::{CaseBlind, Order, Reverse};
    use crate::support::rng::{Rng, Watchdog, amount_or_few, replay_line, seed_or};

    const OPS_A_CASE: u64 = if cfg!(miri) { 12 } else { 800 };

    fn random<C: Order>(test: &str, ops: u64) {
        let test = format!("models::model::{test}");
        let mut seed = seed_or(std::process::id().into());
        println!("{test}: seed {seed:#x}, {ops} operations");
        let mut done = 0;
        while done < ops {
            let _watchdog = Watchdog::new(&test, seed);
            let case = draw(seed, OPS_A_CASE);
            run_or_report::<C>(&case, &replay_line(&test, seed));
            done += case.ops.len() as u64;
            seed = Rng::new(seed).next_u64();
        }
    }

    #[test]
    fn random_operations() {
        random::<Bytewise>("random_operations", amount_or_few(1_000_000, 2_000, 1));
    }

    #[test]
    fn random_operations_in_reverse_order() {
        random::<Reverse>("random_operations_in_reverse_order", amount_or_few(100_000, 600, 1));
    }

    #[test]
    fn random_operations_where_different_bytes_are_equal() {
        random::<CaseBlind>(
            "random_operations_where_different_bytes_are_equal",
            amount_or_few(100_000, 600, 1),
        );
    }

    #[test]
    fn the_newest_of_equals_is_shown_in_both_directions() {
        let options =
            MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).seed(3).build().unwrap();
        let table = MemTable::new(options).unwrap();
        for revision in 0..5_u8 {
            for key in [b"a", b"b", b"c"] {
                table.put(7, key, [revision]).unwrap();
            }
        }
        let check = |table: &TableReader| {
            let shown = |entry: Result<Entry<'_>, Error>| {
                let entry = entry.unwrap();
                (entry.user_key().to_vec(), entry.value().unwrap().to_vec())
            };
            let wanted: Vec<_> = [b"a", b"b", b"c"].map(|key| (key.to_vec(), vec![4])).into();
            let reversed: Vec<_> = wanted.iter().rev().cloned().collect();
            assert_eq!(table.range(..).map(shown).collect::<Vec<_>>(), wanted);
            assert_eq!(table.range(..).rev().map(shown).collect::<Vec<_>>(), reversed);
            assert_eq!(table.range_at(7, ..).rev().map(shown).collect::<Vec<_>>(), reversed);
            let mut cursor = table.cursor();
            assert_eq!(cursor.seek_for_prev(b"bb").unwrap().unwrap().value().unwrap(), [4]);
        };
        check(&table);
        check(&table.freeze().unwrap());
    }

    #[test]
    fn range_estimates_err_by_a_fifth_at_most() {
        let test = "models::model::range_estimates_err_by_a_fifth_at_most";
        let seed = seed_or(20);
        let _watchdog = Watchdog::new(test, seed);
        const ENTRIES: u64 = match (cfg!(miri), cfg!(debug_assertions)) {
            (true, _) => 60,
            (false, true) => 30_000,
            (false, false) => 100_000,
        };
        const ASKED: usize = if cfg!(miri) { 20 } else { 1000 };
        let table = MemTable::new(MemTableOptions::builder().seed(seed).build().unwrap()).unwrap();
        let mut writer = table.writer();
        for n in 0..ENTRIES {
            let key = (n * 7_919 % ENTRIES).to_be_bytes();
            writer.put(n, key, b"value").unwrap();
        }
        let mut rng = Rng::new(seed);
        let mut errors: Vec<f64> = (0..ASKED)
            .map(|_| {
                let (a, b) = (rng.below(ENTRIES), rng.below(ENTRIES));
                let (low, high) = (a.min(b), a.max(b) + 1);
                let (start, end) = (low.to_be_bytes(), high.to_be_bytes());
                let stats = table.approximate_range_stats(start.as_slice()..end.as_slice()).unwrap();
                let exact = (high - low) as f64;
                assert!(stats.data_bytes >= stats.entries * 12, "{stats:?}");
                (stats.entries as f64 - exact).abs() / exact
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!("median error {:.1} %, largest {:.1} %", median * 100.0, errors[ASKED - 1] * 100.0);
        assert!(median <= 0.20, "median error {median}; replay: {}", replay_line(test, seed));
    }
}

/// A second oracle: crossbeam-skiplist holds the same entries, each (key, sequence) once.
mod oracle {
    use std::cmp::Reverse;
    use std::ops::Bound;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crossbeam_skiplist::SkipMap;
    use paranoid_memtable::{Kind, MemTable, MemTableOptions, TableReader};

    use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

    type Oracle = SkipMap<(Vec<u8>, Reverse<u64>), (Kind, Vec<u8>)>;

    const THREADS: u64 = 4;
    const KINDS: [Kind; 4] = [Kind::PUT, Kind::DELETE, Kind::MERGE, Kind::from_u8(0x99)];

    fn fill(table: &MemTable, oracle: &Oracle, next: &AtomicU64, until: u64, mut rng: Rng) {
        let mut writer = table.writer();
        loop {
            let sequence = next.fetch_add(1, Ordering::Relaxed);
            if sequence >= until {
                return;
            }
            let len = rng.index(12);
            let key = if rng.one_in(2) { rng.bytes(len) } else { rng.below(50).to_be_bytes().to_vec() };
            let (kind, len) = (*rng.pick(&KINDS), rng.index(100));
            let value = if kind.is_point_delete() { vec![] } else { rng.bytes(len) };
            // Odd sequence numbers descend: arrival order is not sequence order.
            let sequence = if sequence.is_multiple_of(2) { sequence } else { u64::MAX - sequence };
            writer.insert(sequence, kind, &key, &value).unwrap();
            oracle.insert((key, Reverse(sequence)), (kind, value));
        }
    }

    fn compare(table: &TableReader, oracle: &Oracle, rng: &mut Rng) {
        assert_eq!(table.len(), oracle.len());
        let mut ours = table.range(..);
        for theirs in oracle.iter() {
            let ours = ours.next().expect("an entry is missing").unwrap();
            let (key, Reverse(sequence)) = theirs.key();
            assert_eq!((ours.user_key(), ours.sequence()), (&key[..], *sequence));
            assert_eq!((ours.kind(), ours.value().unwrap()), (theirs.value().0, &theirs.value().1[..]));
        }
        assert!(ours.next().is_none(), "an entry too many");
        let ours = table.range(..).rev().map(|entry| entry.unwrap().sequence());
        assert!(ours.eq(oracle.iter().rev().map(|entry| entry.key().1.0)), "backwards");
        for _ in 0..2_000 {
            let len = rng.index(12);
            let key = if rng.one_in(2) { rng.bytes(len) } else { rng.below(60).to_be_bytes().to_vec() };
            let snapshot = rng.next_u64() >> rng.below(64);
            let theirs = oracle.lower_bound(Bound::Included(&(key.clone(), Reverse(snapshot))));
            let theirs = theirs.filter(|entry| entry.key().0 == key);
            let ours = table.get_entry(&key, snapshot).unwrap();
            let ours = ours.map(|entry| (entry.sequence(), entry.value().unwrap().to_vec()));
            assert_eq!(ours, theirs.map(|entry| (entry.key().1.0, entry.value().1.clone())));
        }
    }

    #[test]
    fn crossbeam_skiplist_agrees() {
        let test = "models::oracle::crossbeam_skiplist_agrees";
        let seed = seed_or(u64::from(std::process::id()));
        println!("{}", replay_line(test, seed));
        let _watchdog = Watchdog::new(test, seed);
        let table = MemTable::new(MemTableOptions::builder().seed(seed).build().unwrap()).unwrap();
        let (oracle, next) = (Oracle::new(), AtomicU64::new(0));
        let mut rng = Rng::new(seed);
        let step = amount(50_000, 1_500);
        for round in 1..=4 {
            std::thread::scope(|threads| {
                for id in 0..THREADS {
                    let rng = Rng::new(scramble(seed ^ round << 8 ^ id));
                    let (table, oracle, next) = (&table, &oracle, &next);
                    threads.spawn(move || fill(table, oracle, next, step * round, rng));
                }
            });
            next.store(step * round, Ordering::Relaxed);
            compare(&table, &oracle, &mut rng);
        }
        compare(&table.freeze().unwrap(), &oracle, &mut rng);
    }
}
