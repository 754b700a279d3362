//! Compares random operations with two other definitions of a table: a sorted map, and another
//! crate's skiplist. Also compares what compactions keep with cases and an oracle.

/// Random operations, compared with a sorted map: every policy, protection level, order and
/// direction.
///
/// `PARANOID_TEST_OPS` scales the number of operations. `PARANOID_TEST_SEED` repeats a run: the
/// first case of a run is drawn from the seed itself, so the replay line of a failure runs the
/// failing case first.
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
        random::<Reverse>(
            "random_operations_in_reverse_order",
            amount_or_few(100_000, 600, 1),
        );
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
        let options = MemTableOptions::builder()
            .duplicates(DuplicatePolicy::Replace)
            .seed(3)
            .build()
            .unwrap();
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
            assert_eq!(
                table.range(..).rev().map(shown).collect::<Vec<_>>(),
                reversed
            );
            assert_eq!(
                table.range_at(.., 7).rev().map(shown).collect::<Vec<_>>(),
                reversed
            );
            let mut cursor = table.cursor();
            assert_eq!(
                cursor
                    .seek_for_prev(b"bb")
                    .unwrap()
                    .unwrap()
                    .value()
                    .unwrap(),
                [4]
            );
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
                let stats = table
                    .approximate_range_stats(start.as_slice()..end.as_slice())
                    .unwrap();
                let exact = (high - low) as f64;
                assert!(stats.data_bytes >= stats.entries * 12, "{stats:?}");
                (stats.entries as f64 - exact).abs() / exact
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        let median = errors[errors.len() / 2];
        println!(
            "median error {:.1} %, largest {:.1} %",
            median * 100.0,
            errors[ASKED - 1] * 100.0
        );
        assert!(
            median <= 0.20,
            "median error {median}; replay: {}",
            replay_line(test, seed)
        );
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
            let key = if rng.one_in(2) {
                rng.bytes(len)
            } else {
                rng.below(50).to_be_bytes().to_vec()
            };
            let (kind, len) = (*rng.pick(&KINDS), rng.index(100));
            let value = if kind.is_point_delete() {
                vec![]
            } else {
                rng.bytes(len)
            };
            // Odd sequence numbers descend, so the order of arrival is not that of sequence
            // numbers.
            let sequence = if sequence.is_multiple_of(2) {
                sequence
            } else {
                u64::MAX - sequence
            };
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
            assert_eq!(
                (ours.kind(), ours.value().unwrap()),
                (theirs.value().0, &theirs.value().1[..])
            );
        }
        assert!(ours.next().is_none(), "an entry too many");
        let ours = table.range(..).rev().map(|entry| entry.unwrap().sequence());
        assert!(
            ours.eq(oracle.iter().rev().map(|entry| entry.key().1.0)),
            "backwards"
        );
        for _ in 0..2_000 {
            let len = rng.index(12);
            let key = if rng.one_in(2) {
                rng.bytes(len)
            } else {
                rng.below(60).to_be_bytes().to_vec()
            };
            let snapshot = rng.next_u64() >> rng.below(64);
            let theirs = oracle.lower_bound(Bound::Included(&(key.clone(), Reverse(snapshot))));
            let theirs = theirs.filter(|entry| entry.key().0 == key);
            let ours = table.get_entry(&key, snapshot).unwrap();
            let ours = ours.map(|entry| (entry.sequence(), entry.value().unwrap().to_vec()));
            assert_eq!(
                ours,
                theirs.map(|entry| (entry.key().1.0, entry.value().1.clone()))
            );
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

/// Compactions: cases of Pebble's and RocksDB's compaction iterators, and reads of the output
/// compared with reads of the input.
mod compactions {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::error::Error as StdError;
    use std::sync::Arc;

    use paranoid_memtable::scan::SortedSource;
    use paranoid_memtable::{Bytewise, Kind};
    use paranoid_set::{Compaction, MergeOperator};

    use crate::support::sets::{History, HistorySource, Known};

    /// The kind of the level, which says whether there are older levels.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Level {
        Inner,
        Lowest,
    }

    /// Appends operands, and refuses question marks.
    struct Append;

    impl Append {
        fn join(parts: &[&[u8]]) -> Option<Vec<u8>> {
            let joined = parts.concat();
            (!joined.contains(&b'?')).then_some(joined)
        }
    }

    impl MergeOperator for Append {
        fn merge(
            &self,
            _: &[u8],
            base: Option<&[u8]>,
            operands: &[&[u8]],
        ) -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> {
            let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
            Append::join(&parts).ok_or("a question mark".into())
        }

        fn combine(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
            Append::join(operands)
        }
    }

    /// The output of a compaction of these sources, newest first.
    fn compacted(
        sources: &[History],
        snapshots: &[u64],
        level: Level,
        operator: Option<&dyn MergeOperator>,
    ) -> History {
        let sources = sources
            .iter()
            .map(|source| Box::new(HistorySource::new(source)) as Box<dyn SortedSource>);
        let mut merge = Compaction::over(Arc::new(Bytewise), snapshots, sources.collect());
        if level == Level::Lowest {
            merge = merge.to_lowest_level();
        }
        if let Some(operator) = operator {
            merge = merge.combining(operator);
        }
        let mut out = History::default();
        let summary = merge.pass_to(&mut out).unwrap();
        assert_eq!(summary.entries, out.points.len() as u64);
        out
    }

    /// One source for each number, newest first.
    fn apart(all: &History) -> Vec<History> {
        let mut parts: BTreeMap<Reverse<u64>, History> = BTreeMap::new();
        for ((key, Reverse(sequence)), (kind, value)) in &all.points {
            parts
                .entry(Reverse(*sequence))
                .or_default()
                .insert(*sequence, *kind, key, value);
        }
        for (start, end, sequence) in &all.ranges {
            parts.entry(Reverse(*sequence)).or_default().insert(
                *sequence,
                Kind::RANGE_DELETE,
                start,
                end,
            );
        }
        parts.into_values().collect()
    }

    /// The final answer of a read of these sources, newest first.
    fn read(sources: &[&History], key: &[u8], snapshot: u64) -> Option<Vec<u8>> {
        let mut known = Known::default();
        for source in sources {
            let (more, is_over) = source.read_on(key, snapshot, known);
            known = more;
            if is_over {
                break;
            }
        }
        let Known { operands, value } = known;
        if operands.is_empty() && value.is_none() {
            return None;
        }
        let mut whole = value.unwrap_or_default();
        operands
            .iter()
            .rev()
            .for_each(|operand| whole.extend_from_slice(operand));
        Some(whole)
    }

    /// Compares all reads, over older sources.
    fn assert_same_reads(
        before: &[&History],
        after: &[&History],
        keys: &[Vec<u8>],
        snapshots: &[u64],
        what: &str,
    ) {
        for key in keys {
            for snapshot in snapshots.iter().copied().chain([u64::MAX >> 8]) {
                let (before, after) = (read(before, key, snapshot), read(after, key, snapshot));
                assert_eq!(
                    before,
                    after,
                    "{} at {snapshot}: {what}",
                    key.escape_ascii()
                );
            }
        }
    }

    mod cases {
        use super::*;

        const CASES: &str = include_str!("../data/compactions.txt");

        /// Adds an entry, or a range tombstone with several numbers.
        fn parse(text: &str, into: &mut History) {
            let (key, rest) = text.split_once('#').unwrap();
            if let Some((start, end)) = key.split_once('~') {
                for number in rest.split(',') {
                    into.insert(
                        number.parse().unwrap(),
                        Kind::RANGE_DELETE,
                        start.as_bytes(),
                        end.as_bytes(),
                    );
                }
                return;
            }
            let at = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap();
            let kind = match &rest[at..=at] {
                "=" => Kind::PUT,
                "+" => Kind::MERGE,
                "-" => Kind::DELETE,
                "!" => Kind::SINGLE_DELETE,
                other => panic!("{other} is no kind"),
            };
            into.insert(
                rest[..at].parse().unwrap(),
                kind,
                key.as_bytes(),
                &rest.as_bytes()[at + 1..],
            );
        }

        fn history(text: &str) -> History {
            let mut all = History::default();
            text.split_whitespace()
                .for_each(|entry| parse(entry, &mut all));
            all
        }

        fn shown(all: &History) -> String {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let points = all
                .points
                .iter()
                .map(|((key, Reverse(sequence)), (kind, value))| {
                    let sign = match *kind {
                        Kind::PUT => "=",
                        Kind::MERGE => "+",
                        Kind::DELETE => "-",
                        _ => "!",
                    };
                    format!("{}#{sequence}{sign}{}", text(key), text(value))
                });
            let mut ranges: BTreeMap<_, Vec<String>> = BTreeMap::new();
            for (start, end, sequence) in all.ranges.iter().rev() {
                ranges
                    .entry((start, end))
                    .or_default()
                    .push(sequence.to_string());
            }
            let ranges = ranges.into_iter();
            let ranges = ranges.map(|((start, end), numbers)| {
                format!("{}~{}#{}", text(start), text(end), numbers.join(","))
            });
            points.chain(ranges).collect::<Vec<_>>().join(" ")
        }

        /// Runs a case, with all entries in one source and with one source for each number. Returns
        /// the difference.
        fn run(line: &str) -> Option<String> {
            let (what, wanted) = line.split_once("=>").unwrap();
            let (how, entries) = what.split_once(':').unwrap();
            let numbers = how.split_once('@').map_or("", |(_, numbers)| numbers);
            let snapshots: Vec<u64> = numbers
                .trim()
                .split(',')
                .filter_map(|number| number.parse().ok())
                .collect();
            let level = if how.contains("lowest") {
                Level::Lowest
            } else {
                Level::Inner
            };
            let all = history(entries);
            for sources in [vec![all.clone()], apart(&all)] {
                let out = compacted(&sources, &snapshots, level, Some(&Append));
                let keys: Vec<Vec<u8>> = all.points.keys().map(|(key, _)| key.clone()).collect();
                assert_same_reads(&[&all], &[&out], &keys, &snapshots, line);
                let found = shown(&out);
                if found != wanted.trim() {
                    return Some(format!("{line}\n    found {found}"));
                }
            }
            None
        }

        #[test]
        fn cases_of_other_engines() {
            let lines = CASES
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            let lines: Vec<&str> = lines.collect();
            let of_others = lines
                .iter()
                .filter(|line| line.starts_with(['p', 'r']))
                .count();
            assert!(of_others >= 150, "{of_others} cases of Pebble and RocksDB");
            let wrong: Vec<String> = lines.iter().filter_map(|line| run(line)).collect();
            assert!(
                wrong.is_empty(),
                "{} of {}\n{}",
                wrong.len(),
                lines.len(),
                wrong.join("\n")
            );
        }
    }

    mod oracle {
        use proptest::prelude::*;

        use super::*;

        const KEYS: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"x", b"y"];

        /// The entry of a step of the history: its key, operation and value. Keys from `x` are put
        /// and single-deleted in turn, as the contract of single deletes requires. No range
        /// tombstone covers them.
        fn entry(
            step: (usize, u8, u8),
            singles: &mut BTreeMap<usize, bool>,
        ) -> (Kind, Vec<u8>, Vec<u8>) {
            let (at, kind, value) = step;
            let (key, value) = (KEYS[at].to_vec(), vec![b'a' + value % 26]);
            if at >= 4 {
                let is_there = singles.entry(at).or_default();
                *is_there = !*is_there;
                return if *is_there {
                    (Kind::PUT, key, value)
                } else {
                    (Kind::SINGLE_DELETE, key, vec![])
                };
            }
            match kind {
                0 | 1 => (Kind::DELETE, key, vec![]),
                2 => (Kind::RANGE_DELETE, key, KEYS[at + 1].to_vec()),
                3 => (Kind::RANGE_DELETE, b"a".to_vec(), b"e".to_vec()),
                4 => (Kind::MERGE, key, b"?".to_vec()),
                5..=8 => (Kind::MERGE, key, value),
                _ => (Kind::PUT, key, value),
            }
        }

        /// A history, cut at some numbers: parts, newest first.
        fn parts(steps: &[(usize, u8, u8)], cuts: &[usize]) -> Vec<History> {
            let mut singles = BTreeMap::new();
            let mut parts = vec![History::default()];
            for (number, step) in (1..).zip(steps) {
                if cuts.contains(&(number as usize)) {
                    parts.insert(0, History::default());
                }
                let (kind, key, value) = entry(*step, &mut singles);
                parts[0].insert(number, kind, &key, &value);
            }
            parts
        }

        fn all(parts: &[History]) -> Vec<&History> {
            parts.iter().collect()
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 4_000 }, failure_persistence: None, ..Default::default() })]

            /// Each time a snapshot is dropped, any run of adjacent parts is merged, between newer
            /// and older ones. At last all parts are, at the lowest level.
            #[test]
            fn reads_stay_as_they_were(
                steps in prop::collection::vec((0..KEYS.len(), 0u8..16, 0u8..), 1..50),
                cuts in prop::collection::vec(0..50usize, 0..6),
                runs in prop::collection::vec((0..6usize, 1..5usize), 1..4),
                mut snapshots in prop::collection::vec(0..52u64, 0..6),
                combines in any::<bool>(),
            ) {
                let before = parts(&steps, &cuts);
                let mut now = before.clone();
                let keys: Vec<Vec<u8>> = KEYS.iter().map(|key| key.to_vec()).collect();
                let operator: Option<&dyn MergeOperator> = if combines { Some(&Append) } else { None };
                for (first, many) in runs {
                    let first = first.min(now.len() - 1);
                    let merged = first..(first + many).min(now.len());
                    let level = if merged.end == now.len() { Level::Lowest } else { Level::Inner };
                    let inner = compacted(&now[merged.clone()], &snapshots, Level::Inner, operator);
                    let kept = (now[..first].iter().chain([&inner]).chain(&now[merged.end..])).collect::<Vec<_>>();
                    assert_same_reads(&all(&before), &kept, &keys, &snapshots, "at an inner level");
                    let out = compacted(&now[merged.clone()], &snapshots, level, operator);
                    assert!(out.points.len() <= now[merged.clone()].iter().map(|part| part.points.len()).sum());
                    now.splice(merged, [out]);
                    assert_same_reads(&all(&before), &all(&now), &keys, &snapshots, "at its level");
                    snapshots.pop();
                }
                let last = compacted(&now, &snapshots, Level::Lowest, operator);
                assert_same_reads(&all(&before), &[&last], &keys, &snapshots, "at last");
                let last = compacted(&[last], &[], Level::Lowest, Some(&Append));
                assert_same_reads(&all(&before), &[&last], &keys, &[], "without snapshots");
                assert!(last.ranges.is_empty() && last.points.values().all(|(kind, _)| !kind.is_point_delete()));
            }
        }
    }

    /// Files of a level as one source: the answers are those of one file, and only needed files are
    /// opened.
    mod level {
        use std::ops::Bound;
        use std::sync::Mutex;

        use paranoid_memtable::Error;
        use paranoid_memtable::scan::SourceMove;
        use paranoid_set::{Level as Files, MemTableSet, MergedEntry, SetOptions};

        use super::*;
        use crate::support::rng::{Rng, seed_or};

        type Bounds = Vec<(Vec<u8>, Bound<Vec<u8>>)>;

        /// A history, and its files: each has a run of letters, with all versions and a range
        /// tombstone inside it. The runs touch, or have gaps between them.
        fn files(rng: &mut Rng) -> (History, Vec<History>, Bounds) {
            let (mut all, mut files, mut bounds) = (History::default(), vec![], vec![]);
            for letter in rng.pick(&[b"cgkp", b"cfil", b"cfkn"]).iter() {
                let mut file = History::default();
                for sequence in 1..=rng.below(6) {
                    let key = [letter + rng.below(3) as u8];
                    let kind = *rng.pick(&[Kind::PUT, Kind::PUT, Kind::MERGE, Kind::DELETE]);
                    file.insert(sequence, kind, &key, b"v");
                }
                let mut end = Bound::Included(vec![letter + 2]);
                if rng.one_in(2) {
                    file.insert(3, Kind::RANGE_DELETE, &[*letter], &[letter + 3]);
                    end = Bound::Excluded(vec![letter + 3]);
                }
                all.points.extend(file.points.clone());
                all.ranges.extend(file.ranges.clone());
                files.push(file);
                bounds.push((vec![*letter], end));
            }
            (all, files, bounds)
        }

        #[test]
        fn a_level_is_one_source() {
            let mut rng = Rng::new(seed_or(0x1e7e1));
            for _ in 0..300 {
                let (all, files, bounds) = files(&mut rng);
                let open = |place: usize| {
                    Ok(Box::new(HistorySource::new(&files[place])) as Box<dyn SortedSource>)
                };
                let mut level = Files::new(Arc::new(Bytewise), bounds.clone())
                    .unwrap()
                    .source(open);
                let mut whole = HistorySource::new(&all);
                let mut stands = false;
                for _ in 0..40 {
                    let key = [b'a' + rng.below(20) as u8];
                    let to = match rng.below(8) {
                        0 => SourceMove::First,
                        1 => SourceMove::Last,
                        2 => SourceMove::Seek(&key, rng.below(8)),
                        3 => SourceMove::SeekForPrev(&key),
                        4 => SourceMove::SeekBefore(&key),
                        5 if stands => SourceMove::Prev,
                        _ if stands => SourceMove::Next,
                        _ => SourceMove::First,
                    };
                    let wanted = whole
                        .go(to)
                        .unwrap()
                        .map(|at| (at.user_key.to_vec(), at.sequence, at.kind));
                    let found = level
                        .go(to)
                        .unwrap()
                        .map(|at| (at.user_key.to_vec(), at.sequence, at.kind));
                    assert_eq!(found, wanted);
                    stands = found.is_some();
                    let cover = |source: &mut dyn SortedSource, snapshot| {
                        source
                            .cover(&Bytewise, &key, snapshot)
                            .unwrap()
                            .map(|cover| cover.sequence)
                    };
                    assert_eq!(cover(&mut level, 9), cover(&mut whole, 9));
                    if rng.one_in(4) {
                        // The next move begins where the last one ended.
                        let mut ranges = History::default();
                        let mut take = |start: &[u8], end: &[u8], sequence| {
                            ranges.insert(sequence, Kind::RANGE_DELETE, start, end);
                            Ok(())
                        };
                        level.range_tombstones(&mut take).unwrap();
                        assert_eq!(ranges.ranges, all.ranges);
                    }
                }
                let snapshots = [2, 4];
                let levels: Vec<Box<dyn SortedSource>> = vec![Box::new(level)];
                let mut out = History::default();
                Compaction::over(Arc::new(Bytewise), &snapshots, levels)
                    .pass_to(&mut out)
                    .unwrap();
                let one = compacted(&[all], &snapshots, Level::Inner, None);
                assert_eq!((out.points, out.ranges), (one.points, one.ranges));
            }
        }

        #[test]
        fn a_file_is_opened_when_it_is_reached() {
            let mut file = [History::default(), History::default(), History::default()];
            for (place, key) in [b"b", b"g", b"m"].iter().enumerate() {
                file[place].insert(1, Kind::PUT, *key, b"v");
            }
            let bounds: Bounds = [(b"a", b"c"), (b"f", b"h"), (b"k", b"m")]
                .map(|(first, last)| (first.to_vec(), Bound::Included(last.to_vec())))
                .into();
            let opened = Mutex::new(vec![]);
            let level = || {
                opened.lock().unwrap().clear();
                let open = |place: usize| {
                    opened.lock().unwrap().push(place);
                    Ok(Box::new(HistorySource::new(&file[place])) as Box<dyn SortedSource>)
                };
                vec![Box::new(
                    Files::new(Arc::new(Bytewise), bounds.clone())
                        .unwrap()
                        .source(open),
                ) as Box<dyn SortedSource>]
            };
            let set =
                MemTableSet::open(SetOptions::builder().last_sequence(1).build().unwrap(), ())
                    .unwrap();
            set.put("z", "v").unwrap();
            let view = set.view();
            for (key, found, files) in [
                ("g", 1, vec![1]),
                ("d", 0, vec![]),
                ("z", 1, vec![]),
                ("l", 0, vec![2]),
                ("b", 1, vec![0]),
            ] {
                opened.lock().unwrap().clear();
                let read = view.merging_get(key, level).unwrap();
                assert_eq!(
                    (read.iter().count(), &*opened.lock().unwrap()),
                    (found, &files),
                    "{key}"
                );
            }
            let mut cursor = view
                .merging_cursor(level())
                .unwrap()
                .with_bounds((Bound::Included("f"), Bound::Unbounded));
            assert_eq!(
                cursor.first().unwrap().map(MergedEntry::user_key),
                Some(b"g".as_slice())
            );
            assert_eq!(*opened.lock().unwrap(), [1]);
            cursor.next().unwrap();
            assert_eq!(*opened.lock().unwrap(), [1, 2]);
        }

        /// A file that cannot be opened is reported once, and passed.
        #[test]
        fn a_file_that_cannot_be_opened_is_passed() {
            let mut file = [History::default(), History::default(), History::default()];
            for (place, key) in [b"b", b"g", b"m"].iter().enumerate() {
                file[place].insert(1, Kind::PUT, *key, b"v");
            }
            let bounds = [(b"a", b"c"), (b"f", b"h"), (b"k", b"m")]
                .map(|(first, last)| (first.to_vec(), Bound::Included(last.to_vec())));
            let open = |place: usize| match place {
                1 => Err(Error::Frozen),
                _ => Ok(Box::new(HistorySource::new(&file[place])) as Box<dyn SortedSource>),
            };
            let mut level = Files::new(Arc::new(Bytewise), bounds).unwrap().source(open);
            // There is no closure around `go`. If one is called twice with equal arguments,
            // optimised code may pass to the second call what the first one made of its own
            // argument (rust-lang/rust#155241).
            for (to, wanted) in [
                (SourceMove::First, Some(b"b")),
                (SourceMove::Next, None),
                (SourceMove::Next, Some(b"m")),
                (SourceMove::Prev, None),
                (SourceMove::Prev, Some(b"b")),
            ] {
                let found = level.go(to);
                assert_eq!(found.is_err(), wanted.is_none());
                let found = found.ok().flatten().map(|at| at.user_key.to_vec());
                assert_eq!(found.as_deref(), wanted.map(|key| key.as_slice()));
            }
        }
    }

    /// Files of a level that touch: a range tombstone over both is cut where the second one begins.
    mod touching {
        use std::ops::Bound;

        use paranoid_memtable::scan::SourceMove;
        use paranoid_memtable::{Error, MemTable};
        use paranoid_set::{Level, MemTableSet, MergedEntry, SetOptions, View};

        use super::*;

        type Sources<'s> = Vec<Box<dyn SortedSource + 's>>;

        /// A level of memtables with these bounds.
        fn level_of<'f>(
            files: &'f [MemTable],
            bounds: &[(&str, Bound<&str>)],
        ) -> Result<Box<dyn SortedSource + 'f>, Error> {
            let key = |key: &str| key.as_bytes().to_vec();
            let bounds = bounds
                .iter()
                .map(|(first, end)| (key(first), end.map(key)))
                .collect::<Vec<_>>();
            let open = |place: usize| Ok(files[place].source());
            let level = Level::new(Arc::new(Bytewise), bounds)?;
            Ok(Box::new(level.source(open)))
        }

        fn view(last: u64) -> View<()> {
            MemTableSet::open(
                SetOptions::builder().last_sequence(last).build().unwrap(),
                (),
            )
            .unwrap()
            .view()
        }

        /// The keys and numbers that scans both ways show, ascending.
        fn scanned<'s>(last: u64, sources: impl Fn() -> Sources<'s>) -> Vec<(String, u64)> {
            let name = |entry: MergedEntry| {
                (
                    String::from_utf8_lossy(entry.user_key()).into_owned(),
                    entry.sequence(),
                )
            };
            let cursor = || view(last).merging_cursor(sources()).unwrap();
            let rows: Vec<_> = cursor()
                .ascending()
                .map(|entry| name(entry.unwrap()))
                .collect();
            let mut back: Vec<_> = cursor()
                .descending()
                .map(|entry| name(entry.unwrap()))
                .collect();
            back.reverse();
            assert_eq!(rows, back, "both ways, at {last}");
            rows
        }

        /// [b, z) is cut at `m`, where the second file begins. Older entries are deleted in both
        /// files, newer ones are shown.
        #[test]
        fn a_range_delete_over_two_files_deletes_in_both() {
            let [left, right, low] = [(); 3].map(|()| MemTable::default());
            left.put(5, "a", "v").unwrap();
            left.delete_range(9, "b", "m").unwrap();
            right.delete_range(9, "m", "z").unwrap();
            right.put(10, "p", "v").unwrap();
            right.put(11, "m2", "v").unwrap();
            for (sequence, key) in [(1, "c"), (2, "lzz"), (3, "m"), (4, "x")] {
                low.put(sequence, key, "old").unwrap();
            }
            let files = [left, right];
            let sources = || {
                let bounds = [("a", Bound::Excluded("m")), ("m", Bound::Excluded("z"))];
                vec![level_of(&files, &bounds).unwrap(), low.source()]
            };
            for key in ["c", "lzz", "m", "x"] {
                assert!(
                    view(20).merging_get(key, sources).unwrap().is_none(),
                    "{key}"
                );
            }
            let shown = [("a", 5), ("m2", 11), ("p", 10)]
                .map(|(key, sequence)| (key.to_string(), sequence));
            assert_eq!(scanned(20, sources), shown);
            let mut out = History::default();
            Compaction::over(Arc::new(Bytewise), &[], sources())
                .to_lowest_level()
                .pass_to(&mut out)
                .unwrap();
            let keys = out
                .points
                .keys()
                .map(|(key, _)| String::from_utf8_lossy(key).into_owned());
            assert!(keys.eq(shown.map(|row| row.0)) && out.ranges.is_empty());
        }

        /// A view that does not see the newest version at a bound: seeks end at the version that it
        /// sees.
        #[test]
        fn a_seek_at_a_bound_ends_at_what_the_view_sees() {
            let (left, right) = (MemTable::default(), MemTable::default());
            left.put(1, "a", "v").unwrap();
            left.delete_range(2, "b", "m").unwrap();
            right.put(7, "m", "too new").unwrap();
            right.put(3, "m", "seen").unwrap();
            right.delete_range(2, "m", "t").unwrap();
            right.put(4, "p", "v").unwrap();
            let files = [left, right];
            let level = || {
                level_of(
                    &files,
                    &[("a", Bound::Excluded("m")), ("m", Bound::Excluded("t"))],
                )
                .unwrap()
            };
            assert_eq!(
                level()
                    .go(SourceMove::Seek(b"m", 5))
                    .unwrap()
                    .map(|at| at.sequence),
                Some(3)
            );
            for (last, shown) in [
                (2, &[("a", 1)][..]),
                (5, &[("a", 1), ("m", 3), ("p", 4)]),
                (9, &[("a", 1), ("m", 7), ("p", 4)]),
            ] {
                let rows = scanned(last, || vec![level()]);
                assert!(
                    rows.iter()
                        .map(|(key, at)| (key.as_str(), *at))
                        .eq(shown.iter().copied()),
                    "{last}: {rows:?}"
                );
            }
        }

        /// The bounds that make a level. Versions of one key are never in two files.
        #[test]
        fn bounds_that_overlap_are_refused() {
            use Bound::{Excluded, Included, Unbounded};
            let files = [(); 3].map(|()| MemTable::default());
            for (bounds, is_level) in [
                (vec![], true),
                (
                    vec![("a", Excluded("m")), ("m", Included("m")), ("n", Unbounded)],
                    true,
                ),
                (vec![("a", Included("l")), ("m", Excluded("z"))], true),
                (vec![("a", Included("m")), ("m", Included("z"))], false),
                (vec![("a", Excluded("n")), ("m", Included("z"))], false),
                (vec![("a", Unbounded), ("m", Included("z"))], false),
                (vec![("m", Included("z")), ("a", Excluded("m"))], false),
                (vec![("m", Included("a"))], false),
                (vec![("m", Excluded("m"))], false),
            ] {
                match level_of(&files, &bounds) {
                    Ok(_) => assert!(is_level, "{bounds:?}"),
                    Err(Error::InvalidArgument(_)) => assert!(!is_level, "{bounds:?}"),
                    Err(other) => panic!("{other}"),
                }
            }
        }

        /// A range tombstone that reaches past the bounds of its file deletes nothing outside: not
        /// in the next file, not in the gap before it, and not in the output of a compaction of the
        /// level.
        #[test]
        fn a_range_tombstone_past_its_bounds_is_clipped() {
            let (left, right, low) = (
                MemTable::default(),
                MemTable::default(),
                MemTable::default(),
            );
            left.delete_range(9, "a", "z").unwrap();
            right.put(3, "p", "v").unwrap();
            for (sequence, key) in [(1, "a"), (2, "k"), (4, "m"), (5, "n"), (6, "x")] {
                low.put(sequence, key, "old").unwrap();
            }
            let files = [left, right];
            let shown = |end| {
                let bounds = [("b", end), ("o", Bound::Included("p"))];
                let sources = || vec![level_of(&files, &bounds).unwrap(), low.source()];
                let rows = scanned(20, sources);
                for key in ["a", "k", "m", "n", "p", "x"] {
                    let found = view(20).merging_get(key, sources).unwrap();
                    assert_eq!(
                        found.is_some(),
                        rows.iter().any(|row| row.0 == key),
                        "{key}"
                    );
                }
                let mut out = History::default();
                let merged = Compaction::over(Arc::new(Bytewise), &[], sources()).pass_to(&mut out);
                (
                    rows.into_iter().map(|row| row.0).collect::<String>(),
                    merged.map(|_| out.ranges),
                )
            };
            let (rows, ranges) = shown(Bound::Excluded("m"));
            assert_eq!(
                (rows.as_str(), ranges.unwrap()),
                ("amnpx", [(b"b".to_vec(), b"m".to_vec(), 9)].into())
            );
            // A range cannot end after `m` with `m` inside, so a compaction cannot say what is
            // deleted.
            let (rows, ranges) = shown(Bound::Included("m"));
            assert_eq!(rows, "anpx");
            let Err(Error::InvalidArgument(text)) = ranges else {
                panic!("{ranges:?}")
            };
            assert!(text.contains("file 0 of a level"), "{text}");
        }
    }

    /// Sources that cannot be read, and keys that are equal but have different bytes.
    mod others {
        use std::ops::Bound;

        use paranoid_memtable::{Error, MemTable, MemTableOptions};
        use paranoid_set::Level;

        use super::*;
        use crate::support::orders::CaseBlind;
        use crate::support::under;

        /// An error is final, and the result is not complete.
        #[test]
        fn an_error_is_final() {
            let table = MemTable::default();
            table.put(1, "a", "v").unwrap();
            let open = |place: usize| {
                if place == 0 {
                    Ok(table.source())
                } else {
                    Err(Error::Frozen)
                }
            };
            let bounds = [(b"a", b"b"), (b"c", b"d")]
                .map(|(first, last)| (first.to_vec(), Bound::Included(last.to_vec())));
            let level = Level::new(Arc::new(Bytewise), bounds).unwrap().source(open);
            let mut merge = Compaction::over(Arc::new(Bytewise), &[], vec![Box::new(level)]);
            assert!(merge.next().unwrap().is_some());
            assert!((0..3).all(|_| matches!(merge.next(), Err(Error::Frozen))));
        }

        #[test]
        fn equal_keys_are_one_key() {
            let table = |entries: &[(u64, Kind, &str, &str)]| {
                let table = MemTable::new(under(MemTableOptions::builder(), CaseBlind)).unwrap();
                for (sequence, kind, key, value) in entries {
                    table.insert(*sequence, *kind, key, value).unwrap();
                }
                table
            };
            let newer = table(&[
                (9, Kind::MERGE, "Key", "c"),
                (8, Kind::SINGLE_DELETE, "ONE", ""),
                (7, Kind::PUT, "Two", "b"),
            ]);
            let older = table(&[
                (3, Kind::PUT, "kEY", "a"),
                (2, Kind::PUT, "one", "a"),
                (1, Kind::PUT, "two", "a"),
            ]);
            older.delete_range(4, "TW", "u").unwrap();
            for (snapshots, keys) in [
                (&[][..], vec!["Key", "Two"]),
                (&[5], vec!["Key", "kEY", "ONE", "one", "Two"]),
            ] {
                let merge = Compaction::over(
                    Arc::new(CaseBlind),
                    snapshots,
                    vec![newer.source(), older.source()],
                );
                let mut out = History::default();
                merge.combining(&Append).pass_to(&mut out).unwrap();
                let mut found: Vec<&[u8]> =
                    out.points.keys().map(|(key, _)| key.as_slice()).collect();
                found.sort_unstable();
                let mut keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
                keys.sort_unstable();
                assert_eq!(found, keys, "{snapshots:?}");
            }
        }
    }
}
