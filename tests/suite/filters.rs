//! Filters and batched lookups, compared with an oracle that reads every row, for all combinations
//! of options.

use oracle::{Answer, Oracle, Random, Row, answer_of};
use paranoid_memtable::filter::{CappedPrefix, FixedPrefix, PrefixExtractor};
use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{
    Directory, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions,
    MemTableOptionsBuilder,
};

use crate::support::orders::CaseBlind;
use crate::support::under;

/// The part before the first 'c'; a key without 'c' is outside the domain.
#[derive(Debug)]
struct UpToC;

impl PrefixExtractor for UpToC {
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.iter()
            .position(|&byte| byte == b'c')
            .map(|at| &key[..at])
    }
}

/// Keys of 0 to 4 letters out of `letters`.
fn key(random: &mut Random, letters: u64) -> Vec<u8> {
    (0..random.below(5))
        .map(|_| b'a' + random.below(letters) as u8)
        .collect()
}

const NAMES: [&str; 10] = [
    "neither",
    "keys",
    "fixed prefix",
    "capped prefix",
    "custom prefix",
    "keys and prefix",
    "directory",
    "keys and directory",
    "keys that grow",
    "keys that grow and prefix",
];

fn configured(name: &str) -> MemTableOptionsBuilder {
    let builder = MemTableOptions::builder().write_buffer_size(64 << 10);
    match name {
        "neither" => builder.directory(Directory::Off),
        "keys" => builder.whole_key_filter(0.01),
        "fixed prefix" => builder.prefix_filter(FixedPrefix::new(2), 0.01),
        "capped prefix" => builder.prefix_filter(CappedPrefix::new(3), 0.01),
        "custom prefix" => builder.prefix_filter(UpToC, 0.01),
        "keys and prefix" => builder.whole_key_filter(0.05).prefix_filter(UpToC, 0.02),
        "directory" => builder.directory(Directory::On),
        "keys that grow" => builder.whole_key_filter_bits(10),
        "keys that grow and prefix" => builder
            .write_buffer_size(10 << 10)
            .whole_key_filter_bits(64)
            .prefix_filter(UpToC, 0.05),
        "keys and directory" => builder.whole_key_filter(0.02).directory(Directory::On),
        _ => panic!("no configuration {name}"),
    }
}

fn write(
    random: &mut Random,
    table: &MemTable,
    oracle: &mut Oracle,
    policy: DuplicatePolicy,
    letters: u64,
) {
    let sequence = random.below(60);
    let (kind, value) = match random.below(12) {
        0 | 1 => (Kind::DELETE, Vec::new()),
        2 => (Kind::SINGLE_DELETE, Vec::new()),
        3 | 4 => (Kind::MERGE, vec![b'm'; random.below(9) as usize]),
        5 => (Kind::RANGE_DELETE, key(random, letters)),
        _ => (
            Kind::PUT,
            (0..random.below(200))
                .map(|_| random.next() as u8)
                .collect(),
        ),
    };
    let row = Row {
        key: key(random, letters),
        sequence,
        kind,
        value,
    };
    let outcome = table.insert(row.sequence, row.kind, &row.key, &row.value);
    let range = kind == Kind::RANGE_DELETE;
    if range && row.key >= row.value {
        assert!(matches!(outcome, Err(Error::InvalidArgument(_))), "{row:?}");
        return;
    }
    let equal = oracle.rows.iter().any(|old| {
        old.key == row.key && old.sequence == sequence && range == (old.kind == Kind::RANGE_DELETE)
    });
    match (equal, policy) {
        (true, DuplicatePolicy::Replace) if !range => {
            assert!(outcome.unwrap().displaced.is_some());
            oracle.rows.push(row);
        }
        (true, _) => assert!(
            matches!(outcome, Err(Error::DuplicateEntry { .. })),
            "{row:?}"
        ),
        (false, _) => {
            outcome.unwrap();
            oracle.rows.push(row);
        }
    }
}

fn compare(random: &mut Random, table: &MemTable, oracle: &Oracle, letters: u64, context: &str) {
    let snapshot = if random.below(4) == 0 {
        u64::MAX
    } else {
        random.below(62)
    };
    let keys: Vec<Vec<u8>> = (0..random.below(70))
        .map(|_| key(random, letters))
        .collect();
    let many = table.multi_get(&keys, snapshot);
    assert_eq!(many.len(), keys.len());
    let mut buffer = Vec::new();
    for (key, result) in keys.iter().zip(many) {
        let expected = oracle.get(key, snapshot);
        let single = answer_of(table.get(key, snapshot).unwrap()).unwrap();
        assert_eq!(single, expected, "get {key:?} at {snapshot}; {context}");
        let batched = answer_of(result.unwrap()).unwrap();
        assert_eq!(
            batched, expected,
            "multi_get {key:?} at {snapshot}; {context}"
        );
        let found = table.get_into(key, snapshot, &mut buffer).unwrap();
        match (&expected, found) {
            (Answer::Value(value, sequence), Lookup::Value((got, _))) => {
                assert_eq!((value, *sequence), (&buffer, got), "{context}");
            }
            (
                Answer::Deleted(sequence, by),
                Lookup::Deleted {
                    sequence: got,
                    by: got_by,
                },
            ) => {
                assert_eq!((*sequence, *by), (got, got_by), "{context}");
            }
            (Answer::Merge(..), Lookup::Merge(())) | (Answer::NotFound, Lookup::NotFound) => {}
            _ => panic!("get_into {key:?} at {snapshot}: {found:?}, not {expected:?}; {context}"),
        }
        let stored = table
            .get_entry(key, snapshot)
            .unwrap()
            .map(|entry| entry.sequence());
        let newest = oracle
            .versions(key, snapshot)
            .first()
            .map(|row| row.sequence);
        assert_eq!(stored, newest, "get_entry {key:?} at {snapshot}; {context}");
    }
}

fn compare_prefix(
    random: &mut Random,
    table: &MemTable,
    oracle: &Oracle,
    letters: u64,
    context: &str,
) {
    let prefix = key(random, letters);
    let mut cursor = table.cursor().with_prefix(&prefix);
    let mut shown = Vec::new();
    let mut entry = cursor.first().unwrap();
    while let Some(found) = entry {
        shown.push(found.user_key().to_vec());
        entry = cursor.next().unwrap();
    }
    let mut expected: Vec<(Vec<u8>, u64)> = Vec::new();
    for row in oracle
        .rows
        .iter()
        .filter(|row| row.kind != Kind::RANGE_DELETE)
    {
        let entry = (row.key.clone(), row.sequence);
        if row.key.starts_with(&prefix) && !expected.contains(&entry) {
            expected.push(entry);
        }
    }
    expected.sort();
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|(key, _)| key).collect();
    assert_eq!(shown, expected, "prefix {prefix:?}; {context}");
}

fn run(name: &str, policy: DuplicatePolicy, protection: u8, seed: u64, ops: u64) {
    let options = configured(name)
        .protection_bytes(protection)
        .checksum_on_seek(protection > 0 && seed.is_multiple_of(2))
        .duplicates(policy)
        .build()
        .unwrap();
    let table = MemTable::new(options).unwrap();
    let (mut random, mut oracle) = (Random(seed), Oracle::default());
    let context = format!(
        "{name}, {policy:?}, protection {protection}; replay: FILTERS_SEED={seed} cargo test --test suite filters::"
    );
    let letters = 2 + random.below(4);
    for op in 0..ops {
        write(&mut random, &table, &mut oracle, policy, letters);
        if op % 16 == 0 {
            compare(&mut random, &table, &oracle, letters, &context);
            compare_prefix(&mut random, &table, &oracle, letters, &context);
        }
    }
    let frozen = table.freeze().unwrap();
    let found = frozen.multi_get(&[b"a", b"b"], u64::MAX);
    assert!(found.iter().all(Result::is_ok));
}

fn seeds() -> Vec<u64> {
    match std::env::var("FILTERS_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=if cfg!(debug_assertions) { 2 } else { 6 }).collect(),
    }
}

#[test]
fn every_combination_answers_like_the_oracle() {
    for seed in seeds() {
        for name in NAMES {
            for policy in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
                run(name, policy, [0, 8][seed as usize % 2], seed, 200);
            }
        }
    }
}

#[test]
fn a_key_under_a_range_tombstone_stays_deleted_for_any_filter() {
    for name in NAMES {
        let table = MemTable::new(configured(name).build().unwrap()).unwrap();
        table.put(1, b"bcd", b"v").unwrap();
        table.delete_range(2, b"a", b"c").unwrap();
        for key in [b"bcd".as_slice(), b"b", b"bb", b"azc"] {
            for lookup in [
                table.get(key, 9).unwrap(),
                table.multi_get(&[key], 9).remove(0).unwrap(),
            ] {
                assert!(
                    matches!(
                        lookup,
                        Lookup::Deleted {
                            sequence: 2,
                            by: DeletedBy::Range
                        }
                    ),
                    "{name}, {key:?}: {lookup:?}"
                );
            }
        }
        assert!(
            matches!(table.get(b"bcd", 1).unwrap(), Lookup::Value(_)),
            "{name}"
        );
        table.put(3, b"bcd", b"w").unwrap();
        assert!(
            matches!(table.get(b"bcd", 3).unwrap(), Lookup::Value(_)),
            "{name}"
        );
    }
}

#[test]
fn byte_tricks_are_refused_where_equality_is_not_of_bytes() {
    assert!(MemTable::new(under(configured("neither"), CaseBlind)).is_ok());
    for name in &NAMES[1..] {
        let refused = configured(name)
            .comparator(std::sync::Arc::new(CaseBlind))
            .build();
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{name}");
    }
}

#[test]
fn shares_out_of_range_are_refused() {
    let builder = MemTableOptions::builder;
    for share in [0.0, -0.1, 0.26, f64::NAN, f64::INFINITY, 1e-9] {
        assert!(
            matches!(
                builder().whole_key_filter(share).build(),
                Err(Error::InvalidArgument(_))
            ),
            "{share}"
        );
        let prefix = builder().prefix_filter(FixedPrefix::new(1), share).build();
        assert!(matches!(prefix, Err(Error::InvalidArgument(_))), "{share}");
    }
    assert!(
        builder()
            .whole_key_filter(0.25)
            .prefix_filter(FixedPrefix::new(1), 0.25)
            .build()
            .is_ok()
    );
    // 184 bytes hold one line, wherever it starts, and its control word.
    let tiny = |bytes: f64| {
        builder()
            .write_buffer_size(1 << 20)
            .whole_key_filter(bytes / f64::from(1 << 20))
            .build()
    };
    assert!(tiny(183.0).is_err() && tiny(184.0).is_ok() && tiny(185.0).is_ok());
}

#[test]
fn bits_out_of_range_and_beside_a_share_are_refused() {
    let builder = MemTableOptions::builder;
    let is_refused =
        |builder: MemTableOptionsBuilder| matches!(builder.build(), Err(Error::InvalidArgument(_)));
    for (bits, refused) in [(0, false), (3, true), (4, false), (64, false), (65, true)] {
        let built = builder().whole_key_filter_bits(bits);
        assert_eq!(is_refused(built), refused, "{bits}");
    }
    let share = || builder().whole_key_filter(0.01);
    assert!(is_refused(share().whole_key_filter_bits(10)));
    assert!(!is_refused(share().whole_key_filter_bits(0)));
}

/// A filter that grows takes nothing before the first write, and about as many bits a key as the
/// option says; no key is lost where the hard limit leaves no room for the next part.
#[test]
fn a_filter_that_grows_takes_memory_with_the_keys() {
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
    let fill = |buffer: u64, bits, limit: u64, keys: u64| {
        let options = MemTableOptions::builder()
            .write_buffer_size(buffer)
            .hard_limit(limit)
            .whole_key_filter_bits(bits);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        let empty = table.used_bytes();
        let mut written = 0;
        while written < keys && table.put(written, key(written), b"value").is_ok() {
            written += 1;
        }
        for number in 0..written {
            let found = table.get(key(number), u64::MAX).unwrap();
            assert!(matches!(found, Lookup::Value(_)), "{number} of {written}");
            let found = table.multi_get(&[key(number)], u64::MAX).remove(0).unwrap();
            assert!(matches!(found, Lookup::Value(_)), "{number} of {written}");
        }
        assert!(table.scrub(|_| {}).findings.is_empty());
        (empty, table.used_bytes(), written)
    };
    // 15 lines, 120 and 960.
    let [plain, grown] = [0, 10].map(|bits| fill(1 << 20, bits, 64 << 20, 12_000));
    // The filter's control words are beside the arena.
    assert!(grown.0 - plain.0 < 1024, "{} bytes", grown.0 - plain.0);
    assert_eq!((plain.2, grown.2), (12_000, 12_000));
    let bits = (grown.1 - plain.1) * 8 / 12_000;
    assert!((30..=60).contains(&bits), "{bits} bits a key");
    for limit in (64..90).step_by(2) {
        let (.., written) = fill(64 << 10, 10, limit << 10, 3000);
        assert!(written > 100, "{limit} KiB, {written} keys");
    }
}

/// Several writers make a filter grow. No reader misses a key that it knows of.
#[test]
fn writers_that_meet_make_a_filter_grow() {
    const EACH: u64 = if cfg!(debug_assertions) { 1500 } else { 6000 };
    let options = MemTableOptions::builder().write_buffer_size(256 << 10);
    let table = MemTable::new(options.whole_key_filter_bits(12).build().unwrap()).unwrap();
    let key = |writer: u64, number: u64| (number << 8 | writer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let written: [std::sync::atomic::AtomicU64; 3] = Default::default();
    std::thread::scope(|threads| {
        for writer in 0..3 {
            let (table, written) = (&table, &written[writer as usize]);
            threads.spawn(move || {
                for number in 0..EACH {
                    let key = key(writer, number).to_be_bytes();
                    table.put(number * 3 + writer, key, b"v").unwrap();
                    written.store(number + 1, std::sync::atomic::Ordering::Release);
                }
            });
        }
        threads.spawn(|| {
            let mut random = Random(5);
            for _ in 0..EACH * 3 {
                let writer = random.below(3);
                let known = written[writer as usize].load(std::sync::atomic::Ordering::Acquire);
                if known > 0 {
                    let key = key(writer, random.below(known)).to_be_bytes();
                    assert!(matches!(
                        table.get(key, u64::MAX).unwrap(),
                        Lookup::Value(_)
                    ));
                }
            }
        });
    });
    for (writer, number) in (0..3).flat_map(|writer| (0..EACH).map(move |number| (writer, number)))
    {
        let key = key(writer, number).to_be_bytes();
        assert!(matches!(
            table.get(key, u64::MAX).unwrap(),
            Lookup::Value(_)
        ));
    }
    assert!(table.scrub(|_| {}).findings.is_empty());
}

#[test]
fn side_structures_stay_within_their_share() {
    for (name, share) in [("neither", 0.0), ("keys", 0.01), ("keys and prefix", 0.07)] {
        let build = |name| {
            MemTable::new(configured(name).build().unwrap())
                .unwrap()
                .used_bytes()
        };
        let taken = build(name) - build("neither");
        // The table takes at most one sub-chunk more than its structures use.
        let most = (f64::from(64 << 10) * share) as u64 + 4096;
        assert!(taken <= most, "{name}: {taken} of {most}");
    }
}

#[cfg(feature = "fault-injection")]
#[test]
fn damage_to_filters_changes_no_answer() {
    use paranoid_memtable::fault::Region;
    use paranoid_memtable::integrity::Place;

    let table = MemTable::new(configured("keys and prefix").build().unwrap()).unwrap();
    let mut oracle = Oracle::default();
    let mut random = Random(77);
    for _ in 0..150 {
        write(&mut random, &table, &mut oracle, DuplicatePolicy::Reject, 5);
    }
    assert!(table.scrub(|_| {}).findings.is_empty());
    let keys: Vec<Vec<u8>> = (0..12).map(|_| key(&mut random, 5)).collect();
    let expected: Vec<Answer> = keys.iter().map(|key| oracle.get(key, 40)).collect();
    let mut injector = open_injector(&table);
    let beside = |region| match region {
        Region::FilterWord => Some(Place::Filter),
        _ => None,
    };
    let pieces: Vec<_> = injector
        .pieces()
        .iter()
        .map(|piece| beside(piece.region))
        .collect();
    assert!(pieces.iter().flatten().count() > 200);
    for (piece, place) in pieces
        .iter()
        .enumerate()
        .filter_map(|(piece, place)| Some((piece, (*place)?)))
    {
        let bits = (0..64)
            .map(Some)
            .chain([None])
            .filter(|bit| bit.is_none_or(|bit| (bit + piece) % 9 == 0));
        for bit in bits {
            match bit {
                Some(bit) => injector.flip(piece, bit),
                None => injector.zero_word(piece, 0),
            }
            for (key, expected) in keys.iter().zip(&expected) {
                let answer = answer_of(table.get(key, 40).unwrap()).unwrap();
                assert_eq!(answer, *expected, "{key:?}, bit {bit:?} of piece {piece}");
            }
            if !injector.changed().is_empty() && piece % 16 == 0 {
                let found = table.scrub(|_| {}).findings;
                assert!(
                    found.iter().any(|finding| finding.place == place),
                    "piece {piece}: {found:?}"
                );
            }
            injector.undo();
        }
    }
}

#[cfg(feature = "fault-injection")]
pub(crate) fn open_injector(table: &MemTable) -> paranoid_memtable::fault::FaultInjector<'_> {
    #[expect(
        unsafe_code,
        reason = "the fault injector for breaking memory on purpose"
    )]
    // SAFETY: one thread, and no borrow from the table lives across a break.
    unsafe { paranoid_memtable::fault::FaultInjector::open(table) }.unwrap()
}

/// Words and cache lines of filters that go back to earlier values, as after a store that never
/// reached memory.
///
/// The test fills and overwrites a table, and records every word of the filters after each write.
/// Then each word, and each cache line, goes back to each value that it ever had, one at a time. If
/// one write changed several words of a line, any part of them may have arrived. Every read still
/// answers like the oracle, and a scrub reports the damage.
#[cfg(feature = "fault-injection")]
mod earlier {
    use std::collections::BTreeSet;

    use paranoid_memtable::fault::{FaultInjector, Region};
    use paranoid_memtable::filter::FixedPrefix;
    use paranoid_memtable::integrity::Place;
    use paranoid_memtable::{DuplicatePolicy, Kind, MemTable, MemTableOptions};

    use super::open_injector;
    use super::oracle::{Answer, Oracle, Random, Row, answer_of};

    /// Words of a cache line.
    const LINE_WORDS: usize = 8;
    /// The newest snapshot.
    const NOW: u64 = u64::MAX;

    type Words = Vec<[u8; 8]>;

    /// A table, its expected answers, and the earlier values of its words.
    struct Life {
        table: MemTable,
        oracle: Oracle,
        /// All words of filters, after each write.
        history: Vec<Words>,
        keys: Vec<Vec<u8>>,
        seed: u64,
    }

    /// The pieces of filters, in the order of their addresses: whole cache lines.
    fn beside(injector: &FaultInjector<'_>) -> Vec<usize> {
        let is_beside = |region| region == Region::FilterWord;
        let pieces: Vec<usize> = (0..injector.pieces().len())
            .filter(|n| is_beside(injector.pieces()[*n].region))
            .collect();
        assert!(pieces.len().is_multiple_of(LINE_WORDS));
        assert!(
            pieces
                .iter()
                .enumerate()
                .all(|(n, piece)| injector.place_in_line(*piece) == n % LINE_WORDS)
        );
        pieces
    }

    fn key_of(n: u64) -> Vec<u8> {
        // Some three keys share a prefix of one byte.
        vec![b'a' + (n / 3) as u8, b'k', n as u8]
    }

    impl Life {
        fn new(seed: u64, keys: u64) -> Life {
            let options = MemTableOptions::builder()
                .write_buffer_size(64 << 10)
                .duplicates(DuplicatePolicy::Replace)
                .whole_key_filter(0.008)
                .prefix_filter(FixedPrefix::new(1), 0.008)
                .seed(seed);
            let table = MemTable::new(options.build().unwrap()).unwrap();
            // The last few keys are never written.
            let keys = (0..keys + 8).map(key_of).collect();
            let mut life = Life {
                table,
                oracle: Oracle::default(),
                history: Vec::new(),
                keys,
                seed,
            };
            life.record();
            life
        }

        fn record(&mut self) {
            let injector = open_injector(&self.table);
            let word = |piece: usize| <[u8; 8]>::try_from(injector.bytes(piece)).unwrap();
            let words = beside(&injector).into_iter().map(word).collect();
            drop(injector);
            self.history.push(words);
        }

        /// Writes a version of a key: the newest, an older one, or one that replaces an equal one.
        fn write(&mut self, random: &mut Random) {
            let key = self.keys[random.below(self.keys.len() as u64 - 8) as usize].clone();
            let kind = if random.below(6) == 0 {
                Kind::DELETE
            } else {
                Kind::PUT
            };
            let value = if kind == Kind::PUT {
                random.next().to_be_bytes().to_vec()
            } else {
                Vec::new()
            };
            let row = Row {
                key,
                sequence: 1 + random.below(40),
                kind,
                value,
            };
            self.table
                .insert(row.sequence, row.kind, &row.key, &row.value)
                .unwrap();
            self.oracle.rows.push(row);
            self.record();
        }

        /// The answer for each key, at an old snapshot and at the newest.
        fn expected(&self) -> Vec<(u64, Vec<Answer>)> {
            let at = |snapshot| {
                self.keys
                    .iter()
                    .map(|key| self.oracle.get(key, snapshot))
                    .collect()
            };
            [20, NOW].map(|snapshot| (snapshot, at(snapshot))).into()
        }

        fn check(&self, expected: &[(u64, Vec<Answer>)], context: &str) {
            for (snapshot, answers) in expected {
                let many = self.table.multi_get(&self.keys, *snapshot);
                for ((key, answer), batched) in self.keys.iter().zip(answers).zip(many) {
                    let single = answer_of(self.table.get(key, *snapshot).unwrap()).unwrap();
                    assert_eq!(single, *answer, "get {key:?} at {snapshot}; {context}");
                    let batched = answer_of(batched.unwrap()).unwrap();
                    assert_eq!(
                        batched, *answer,
                        "multi_get {key:?} at {snapshot}; {context}"
                    );
                }
            }
            for start in self.keys.iter().map(|key| key[0]).collect::<BTreeSet<u8>>() {
                let mut cursor = self.table.cursor().with_prefix([start]);
                let shown = cursor
                    .first()
                    .unwrap()
                    .map(|entry| entry.user_key().to_vec());
                let first = self
                    .oracle
                    .rows
                    .iter()
                    .map(|row| &row.key)
                    .filter(|key| key[0] == start)
                    .min();
                assert_eq!(shown.as_ref(), first, "prefix {start}; {context}");
            }
        }

        /// Every value that a cache line may have had: as recorded, and with some of the words that
        /// one write changed.
        fn lines(&self, first: usize) -> BTreeSet<Words> {
            let mut lines = BTreeSet::new();
            for (before, after) in self.history.iter().zip(&self.history[1..]) {
                let (before, after) = (
                    &before[first..first + LINE_WORDS],
                    &after[first..first + LINE_WORDS],
                );
                let changed: Vec<usize> = (0..LINE_WORDS)
                    .filter(|word| before[*word] != after[*word])
                    .collect();
                for arrived in 0..1u32 << changed.len() {
                    let mut line = before.to_vec();
                    for (n, word) in changed
                        .iter()
                        .enumerate()
                        .filter(|(n, _)| arrived >> n & 1 == 1)
                    {
                        let _ = n;
                        line[*word] = after[*word];
                    }
                    lines.insert(line);
                }
            }
            lines
        }

        /// Gives every word and every line each of its earlier contents again. Returns how many
        /// differed.
        fn go_back(&self, stage: &str) -> usize {
            let expected = self.expected();
            let context = format!(
                "seed {}, {stage}; replay: FILTERS_SEED={} cargo test --all-features --test suite filters::earlier",
                self.seed, self.seed
            );
            self.check(&expected, &context);
            assert!(self.table.scrub(|_| {}).findings.is_empty(), "{context}");
            let mut injector = open_injector(&self.table);
            let (pieces, mut tried) = (beside(&injector), 0);
            for first in (0..pieces.len()).step_by(LINE_WORDS) {
                let words = |line: &Words| {
                    (0..LINE_WORDS)
                        .map(|n| vec![(first + n, line[n])])
                        .collect::<Vec<_>>()
                };
                let lines = self.lines(first);
                let single: BTreeSet<Vec<(usize, [u8; 8])>> =
                    lines.iter().flat_map(words).collect();
                let whole = lines
                    .iter()
                    .map(|line| (first..).zip(line.iter().copied()).collect());
                for case in single.into_iter().chain(whole) {
                    case.iter()
                        .for_each(|(word, old)| injector.overwrite(pieces[*word], old));
                    if injector.changed().is_empty() {
                        injector.undo();
                        continue;
                    }
                    tried += 1;
                    let context = format!(
                        "word {} of {}, {} back; {context}",
                        case[0].0,
                        pieces.len(),
                        case.len()
                    );
                    self.check(&expected, &context);
                    let found = self.table.scrub(|_| {}).findings;
                    assert!(
                        found.iter().any(|finding| finding.place == Place::Filter),
                        "{found:?}; {context}"
                    );
                    injector.undo();
                }
            }
            tried
        }
    }

    /// Young tables have a few keys, full ones as many as the filters are made for, and overflowed
    /// ones three times as many.
    #[test]
    fn an_earlier_value_of_a_word_changes_no_answer() {
        let seeds =
            std::env::var("FILTERS_SEED").map_or(vec![1, 2, 3], |seed| vec![seed.parse().unwrap()]);
        for seed in seeds {
            for (keys, writes) in [(3, 12), (16, 40), (48, 130)] {
                let (mut life, mut random) = (Life::new(seed, keys), Random(seed));
                for write in 0..writes {
                    life.write(&mut random);
                    if write + 1 == writes / 2 {
                        life.go_back("half way");
                    }
                }
                let tried = life.go_back("mutable");
                life.table.freeze().unwrap();
                assert_eq!(life.go_back("frozen"), tried);
                println!("seed {seed}, {keys} keys: {tried} values that differ");
                assert!(tried > 10, "{tried}");
            }
        }
    }
}

/// The oracle: it reads every row that was ever written.
mod oracle {
    use paranoid_memtable::read::{Base, DeletedBy, Operands};
    use paranoid_memtable::{Error, Kind, Lookup, ValueRef};

    /// SplitMix64, so that a run can be repeated from its seed.
    pub(super) struct Random(pub(super) u64);

    impl Random {
        pub(super) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        pub(super) fn below(&mut self, limit: u64) -> u64 {
            self.next() % limit
        }
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) enum Answer {
        Value(Vec<u8>, u64),
        Deleted(u64, DeletedBy),
        Merge(Vec<Vec<u8>>, &'static str),
        NotFound,
    }

    #[derive(Debug, Clone)]
    pub(super) struct Row {
        pub(super) key: Vec<u8>,
        pub(super) sequence: u64,
        pub(super) kind: Kind,
        pub(super) value: Vec<u8>,
    }

    /// Every row, in the order of arrival.
    #[derive(Debug, Default)]
    pub(super) struct Oracle {
        pub(super) rows: Vec<Row>,
    }

    impl Oracle {
        fn cover(&self, key: &[u8], snapshot: u64) -> Option<u64> {
            let covers = |row: &&Row| {
                row.kind == Kind::RANGE_DELETE
                    && row.sequence <= snapshot
                    && row.key.as_slice() <= key
                    && key < row.value.as_slice()
            };
            self.rows
                .iter()
                .filter(covers)
                .map(|row| row.sequence)
                .max()
        }

        /// The visible versions, newest first. The last of equal rows replaces the others.
        pub(super) fn versions(&self, key: &[u8], snapshot: u64) -> Vec<&Row> {
            let mut versions: Vec<&Row> = Vec::new();
            for row in self.rows.iter().rev() {
                let known = versions.iter().any(|seen| seen.sequence == row.sequence);
                if row.key == key
                    && row.kind != Kind::RANGE_DELETE
                    && row.sequence <= snapshot
                    && !known
                {
                    versions.push(row);
                }
            }
            versions.sort_by_key(|row| std::cmp::Reverse(row.sequence));
            versions
        }

        pub(super) fn get(&self, key: &[u8], snapshot: u64) -> Answer {
            let versions = self.versions(key, snapshot);
            let cover = self.cover(key, snapshot);
            let Some(newest) = versions.first() else {
                return cover.map_or(Answer::NotFound, |sequence| {
                    Answer::Deleted(sequence, DeletedBy::Range)
                });
            };
            match (cover, newest.kind) {
                (Some(cover), _) if cover > newest.sequence => {
                    Answer::Deleted(cover, DeletedBy::Range)
                }
                (_, Kind::DELETE) => Answer::Deleted(newest.sequence, DeletedBy::Point),
                (_, Kind::SINGLE_DELETE) => Answer::Deleted(newest.sequence, DeletedBy::Single),
                (_, kind) if kind.as_u8() >= 0xc0 => {
                    Answer::Deleted(newest.sequence, DeletedBy::Custom(kind))
                }
                (_, Kind::MERGE) => {
                    let cover = self.cover(key, newest.sequence);
                    let mut operands = Vec::new();
                    for row in &versions {
                        if cover.is_some_and(|cover| cover > row.sequence)
                            || row.kind.is_point_delete()
                        {
                            return Answer::Merge(operands, "deleted");
                        }
                        operands.push(row.value.clone());
                        if row.kind != Kind::MERGE {
                            return Answer::Merge(operands, "value");
                        }
                    }
                    Answer::Merge(operands, if cover.is_some() { "deleted" } else { "below" })
                }
                _ => Answer::Value(newest.value.clone(), newest.sequence),
            }
        }
    }

    /// The answer of a lookup, in the form of the oracle's.
    pub(super) fn answer_of(lookup: Lookup<ValueRef<'_>, Operands<'_>>) -> Result<Answer, Error> {
        Ok(match lookup {
            Lookup::Value(value) => Answer::Value(value.to_vec(), value.sequence()),
            Lookup::Deleted { sequence, by } => Answer::Deleted(sequence, by),
            Lookup::NotFound => Answer::NotFound,
            Lookup::Merge(operands) => {
                let base = operands.base()?;
                let mut values = Vec::new();
                for operand in operands {
                    values.push(operand?.value.to_vec());
                }
                match base {
                    Base::Value(value) => {
                        values.push(value.to_vec());
                        Answer::Merge(values, "value")
                    }
                    Base::Deleted => Answer::Merge(values, "deleted"),
                    Base::Below => Answer::Merge(values, "below"),
                }
            }
        })
    }
}

/// The share of absent keys that filters pass, compared with theory.
#[cfg(feature = "fault-injection")]
mod rates {
    use paranoid_memtable::fault::{Part, Piece, Region};
    use paranoid_memtable::filter::FixedPrefix;
    use paranoid_memtable::integrity::Repair;
    use paranoid_memtable::{Directory, Error, Lookup, MemTable, MemTableOptions};

    use super::oracle::Random;
    use crate::support::rng::{amount, filter_lines, filter_rate};

    /// Asks for `asked` absent keys of a table whose list cannot be searched: both ends are broken,
    /// so a key that the filter passes ends in `Corruption`. Returns the number of these keys.
    fn let_pass(name: &str, table: &MemTable, random: &mut Random, asked: u64) -> u64 {
        let mut injector = super::open_injector(table);
        let is_head = |piece: &Piece| piece.part == Part::Points && piece.owner.is_none();
        let heads = injector
            .pieces()
            .iter()
            .enumerate()
            .filter(|(_, piece)| is_head(piece));
        let links =
            heads.filter(|(_, piece)| matches!(piece.region, Region::HeadLink | Region::BackLink));
        let links: Vec<usize> = links.map(|(place, _)| place).collect();
        links.into_iter().for_each(|link| injector.flip(link, 1));
        let mut passed = 0;
        for n in 0..asked {
            let mut key = random.next().to_be_bytes().to_vec();
            let answer = if name == "seeks" {
                let mut cursor = table.cursor().with_prefix(&key);
                cursor.first().map(|found| assert!(found.is_none()))
            } else {
                key.push(b'x');
                let lookup = match n % 2 {
                    0 => table.get(&key, u64::MAX),
                    _ => table.multi_get(&[key], u64::MAX).remove(0),
                };
                lookup.map(|found| assert!(matches!(found, Lookup::NotFound)))
            };
            passed += u64::from(matches!(answer, Err(Error::Corruption(_))));
            assert!(
                answer.is_ok() || matches!(answer, Err(Error::Corruption(_))),
                "{answer:?}"
            );
        }
        injector.undo();
        passed
    }

    #[test]
    fn false_positives_are_as_many_as_theory_says_from_the_first_key_on() {
        let buffer = 4u64 << 20;
        // 577 lines with their control words: 16 bits for each of 21 000 keys.
        let lines = filter_lines(41_943) as f64;
        for name in ["keys", "prefix", "seeks"] {
            let builder = MemTableOptions::builder()
                .write_buffer_size(buffer)
                .directory(Directory::Off)
                .repair(Repair::Off);
            let builder = match name {
                "keys" => builder.whole_key_filter(0.01),
                _ => builder.prefix_filter(FixedPrefix::new(8), 0.01),
            };
            let table = MemTable::new(builder.build().unwrap()).unwrap();
            let (mut random, mut written) = (Random(11), 0);
            let mut writer = table.writer();
            for keys in [0u64, 1, 10, 100, 1000, 5000, 10_000, 21_000, 42_000] {
                for sequence in written..keys {
                    let mut key = random.next().to_be_bytes().to_vec();
                    key.push(b'x');
                    writer.put(sequence, &key, b"").unwrap();
                }
                written = keys;
                let asked = if keys < 5000 {
                    amount(20_000, 1_500)
                } else {
                    amount(100_000, 5_000)
                };
                let rate = let_pass(name, &table, &mut random, asked) as f64 / asked as f64;
                let theory = filter_rate(keys as f64, lines);
                println!("{name}, {keys} keys: {rate:.5} measured, {theory:.5} in theory");
                let noise = 5.0 * (theory / asked as f64).sqrt() + 1.0 / asked as f64;
                assert!(
                    (rate - theory).abs() < theory * 0.1 + noise,
                    "{name}, {keys}: {rate} and {theory}"
                );
            }
            assert!(table.scrub(|_| {}).findings.is_empty());
        }
    }
}
