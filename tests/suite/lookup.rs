//! Filters, point index and batched lookups against an oracle that looks at everything, for every combination.

#[cfg(feature = "fault-injection")]
mod earlier;
mod oracle;
mod rates;

use oracle::{Answer, Oracle, Random, Row, told};
use paranoid_memtable::comparator::KeyEquality;
use paranoid_memtable::filter::{CappedPrefix, FixedPrefix, PrefixExtractor};
use paranoid_memtable::read::{DeletedBy, Found};
use paranoid_memtable::{
    Comparator, Directory, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions,
    MemTableOptionsBuilder, ParanoidOptions, Representation,
};

/// The part before the first 'c'; keys without one are outside the domain.
#[derive(Debug)]
struct UpToC;

impl PrefixExtractor for UpToC {
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.iter().position(|&byte| byte == b'c').map(|at| &key[..at])
    }
}

/// Keys of 0 to 4 letters out of `letters`.
fn key(random: &mut Random, letters: u64) -> Vec<u8> {
    (0..random.below(5)).map(|_| b'a' + random.below(letters) as u8).collect()
}

const NAMES: [&str; 10] = [
    "neither",
    "keys",
    "fixed prefix",
    "capped prefix",
    "custom prefix",
    "keys and prefix",
    "small index",
    "index",
    "keys and index",
    "prefix and small index",
];

fn configured(name: &str) -> MemTableOptionsBuilder {
    let builder = MemTableOptions::builder().write_buffer_size(64 << 10).statistics(true);
    match name {
        "neither" => builder,
        "keys" => builder.whole_key_filter(0.01),
        "fixed prefix" => builder.prefix_filter(FixedPrefix::new(2), 0.01),
        "capped prefix" => builder.prefix_filter(CappedPrefix::new(3), 0.01),
        "custom prefix" => builder.prefix_filter(UpToC, 0.01),
        "keys and prefix" => builder.whole_key_filter(0.01).prefix_filter(UpToC, 0.01),
        "small index" => builder.point_index(0.008),
        "index" => builder.point_index(0.2),
        "keys and index" => builder.whole_key_filter(0.02).point_index(0.1),
        "prefix and small index" => builder.prefix_filter(FixedPrefix::new(1), 0.01).point_index(0.008),
        _ => panic!("no configuration {name}"),
    }
}

fn write(random: &mut Random, table: &MemTable, oracle: &mut Oracle, policy: DuplicatePolicy, letters: u64) {
    let sequence = random.below(60);
    let (kind, value) = match random.below(12) {
        0 | 1 => (Kind::DELETE, Vec::new()),
        2 => (Kind::SINGLE_DELETE, Vec::new()),
        3 | 4 => (Kind::MERGE, vec![b'm'; random.below(9) as usize]),
        5 => (Kind::RANGE_DELETE, key(random, letters)),
        _ => (Kind::PUT, (0..random.below(200)).map(|_| random.next() as u8).collect()),
    };
    let row = Row { key: key(random, letters), sequence, kind, value };
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
        (true, DuplicatePolicy::KeepFirst) => assert_eq!(outcome.unwrap().bytes, 0),
        (true, DuplicatePolicy::Replace) if !range => {
            assert!(outcome.unwrap().displaced.is_some());
            oracle.rows.push(row);
        }
        (true, _) => assert!(matches!(outcome, Err(Error::DuplicateEntry { .. })), "{row:?}"),
        (false, _) => {
            outcome.unwrap();
            oracle.rows.push(row);
        }
    }
}

fn compare(random: &mut Random, table: &MemTable, oracle: &Oracle, letters: u64, told_by: &str) {
    let snapshot = if random.below(4) == 0 { u64::MAX } else { random.below(62) };
    let keys: Vec<Vec<u8>> = (0..random.below(70)).map(|_| key(random, letters)).collect();
    let many = table.multi_get(&keys, snapshot);
    assert_eq!(many.len(), keys.len());
    let mut buffer = Vec::new();
    for (key, result) in keys.iter().zip(many) {
        let expected = oracle.get(key, snapshot);
        let single = told(table.get(key, snapshot).unwrap()).unwrap();
        assert_eq!(single, expected, "get {key:?} at {snapshot}; {told_by}");
        let batched = told(result.unwrap()).unwrap();
        assert_eq!(batched, expected, "multi_get {key:?} at {snapshot}; {told_by}");
        let found = table.get_into(key, snapshot, &mut buffer).unwrap();
        match (&expected, found) {
            (Answer::Value(value, sequence), Found::Value { sequence: got, .. }) => {
                assert_eq!((value, *sequence), (&buffer, got), "{told_by}");
            }
            (Answer::Deleted(sequence, by), Found::Deleted { sequence: got, by: got_by }) => {
                assert_eq!((*sequence, *by), (got, got_by), "{told_by}");
            }
            (Answer::Merge(..), Found::Merge) | (Answer::NotFound, Found::NotFound) => {}
            _ => panic!("get_into {key:?} at {snapshot}: {found:?}, not {expected:?}; {told_by}"),
        }
        let stored = table.get_entry(key, snapshot).unwrap().map(|entry| entry.sequence());
        let newest = oracle.versions(key, snapshot).first().map(|row| row.sequence);
        assert_eq!(stored, newest, "get_entry {key:?} at {snapshot}; {told_by}");
    }
}

fn compare_prefix(random: &mut Random, table: &MemTable, oracle: &Oracle, letters: u64, told_by: &str) {
    let prefix = key(random, letters);
    let mut cursor = table.cursor().with_prefix(&prefix);
    let mut shown = Vec::new();
    let mut entry = cursor.first().unwrap();
    while let Some(found) = entry {
        shown.push(found.user_key().to_vec());
        entry = cursor.next().unwrap();
    }
    let mut expected: Vec<(Vec<u8>, u64)> = Vec::new();
    for row in oracle.rows.iter().filter(|row| row.kind != Kind::RANGE_DELETE) {
        let entry = (row.key.clone(), row.sequence);
        if row.key.starts_with(&prefix) && !expected.contains(&entry) {
            expected.push(entry);
        }
    }
    expected.sort();
    let expected: Vec<Vec<u8>> = expected.into_iter().map(|(key, _)| key).collect();
    assert_eq!(shown, expected, "prefix {prefix:?}; {told_by}");
}

fn run(name: &str, policy: DuplicatePolicy, protection: u8, seed: u64, ops: u64) {
    let paranoid = ParanoidOptions::builder()
        .protection_bytes(protection)
        .checksum_on_seek(protection > 0 && seed.is_multiple_of(2))
        .build()
        .unwrap();
    let options = configured(name).paranoid(paranoid).duplicates(policy).build().unwrap();
    let table = MemTable::new(options).unwrap();
    let (mut random, mut oracle) = (Random(seed), Oracle::default());
    let told_by = format!(
        "{name}, {policy:?}, protection {protection}; replay: LOOKUP_SEED={seed} cargo test --test suite lookup::"
    );
    let letters = 2 + random.below(4);
    for op in 0..ops {
        write(&mut random, &table, &mut oracle, policy, letters);
        if op % 16 == 0 {
            compare(&mut random, &table, &oracle, letters, &told_by);
            compare_prefix(&mut random, &table, &oracle, letters, &told_by);
        }
    }
    let frozen = table.freeze().unwrap();
    let found = frozen.multi_get(&[b"a", b"b"], u64::MAX);
    assert!(found.iter().all(Result::is_ok));
}

fn seeds() -> Vec<u64> {
    match std::env::var("LOOKUP_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=6).collect(),
    }
}

#[test]
fn every_combination_answers_like_the_oracle() {
    for seed in seeds() {
        for name in NAMES {
            for policy in [DuplicatePolicy::Reject, DuplicatePolicy::KeepFirst, DuplicatePolicy::Replace] {
                run(name, policy, [0, 8][seed as usize % 2], seed, 200);
            }
        }
    }
}

#[test]
fn a_key_under_a_range_tombstone_stays_deleted_whatever_filter_and_index_say() {
    for name in NAMES {
        let table = MemTable::new(configured(name).build().unwrap()).unwrap();
        table.put(1, b"bcd", b"v").unwrap();
        table.delete_range(2, b"a", b"c").unwrap();
        for key in [b"bcd".as_slice(), b"b", b"bb", b"azc"] {
            for lookup in [table.get(key, 9).unwrap(), table.multi_get(&[key], 9).remove(0).unwrap()] {
                assert!(
                    matches!(lookup, Lookup::Deleted { sequence: 2, by: DeletedBy::Range }),
                    "{name}, {key:?}: {lookup:?}"
                );
            }
        }
        assert!(matches!(table.get(b"bcd", 1).unwrap(), Lookup::Value(_)), "{name}");
        table.put(3, b"bcd", b"w").unwrap();
        assert!(matches!(table.get(b"bcd", 3).unwrap(), Lookup::Value(_)), "{name}");
    }
}

/// An order in which letters that differ in case are equal.
#[derive(Debug, Clone)]
struct AnyCase;

impl Comparator for AnyCase {
    const EQUALITY: KeyEquality = KeyEquality::Custom;
    fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase())
    }
}

#[test]
fn byte_tricks_are_refused_where_equality_is_not_of_bytes() {
    assert!(MemTable::with_comparator(configured("neither").build().unwrap(), AnyCase).is_ok());
    for name in &NAMES[1..] {
        let refused = MemTable::with_comparator(configured(name).build().unwrap(), AnyCase);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{name}");
    }
}

#[test]
fn shares_out_of_range_are_refused() {
    let builder = MemTableOptions::builder;
    for share in [0.0, -0.1, 0.26, f64::NAN, f64::INFINITY, 1e-9] {
        assert!(
            matches!(builder().whole_key_filter(share).build(), Err(Error::InvalidArgument(_))),
            "{share}"
        );
        let prefix = builder().prefix_filter(FixedPrefix::new(1), share).build();
        assert!(matches!(prefix, Err(Error::InvalidArgument(_))), "{share}");
    }
    for share in [0.0, -0.1, 0.51, f64::NAN, 1e-9] {
        assert!(matches!(builder().point_index(share).build(), Err(Error::InvalidArgument(_))), "{share}");
    }
    assert!(builder().whole_key_filter(0.25).point_index(0.5).build().is_ok());
    // 440 bytes hold one line wherever it starts, its control word and what keeps them apart.
    let tiny =
        |bytes: f64| builder().write_buffer_size(1 << 20).point_index(bytes / f64::from(1 << 20)).build();
    assert!(tiny(439.0).is_err() && tiny(440.0).is_ok() && tiny(441.0).is_ok());
    let vector = builder().representation(Representation::Vector).point_index(0.1).build();
    assert!(matches!(vector, Err(Error::InvalidArgument(_))));
}

#[test]
fn side_structures_stay_within_their_share() {
    for (name, share) in [("neither", 0.0), ("keys", 0.01), ("index", 0.2), ("keys and index", 0.12)] {
        let build = |name| MemTable::new(configured(name).build().unwrap()).unwrap().allocated_bytes();
        let taken = build(name) - build("neither");
        // Less than a sub-chunk is taken but not used by the structures.
        let most = (f64::from(64 << 10) * share) as u64 + 4096;
        assert!(taken <= most, "{name}: {taken} of {most}");
    }
}

#[test]
fn the_index_answers_at_any_load() {
    let (buffer, share) = (1u64 << 20, 0.1);
    // A bucket has eight slots and a control word of eight bytes.
    let slots = (buffer as f64 * share / 72.0) as u64 * 8;
    // The intended load is 60 % of the slots.
    for percent in [10u64, 100, 300] {
        let options =
            MemTableOptions::builder().write_buffer_size(buffer).point_index(share).statistics(true).build();
        let table = MemTable::new(options.unwrap()).unwrap();
        let keys = slots * 6 / 10 * percent / 100;
        let name = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        for n in 0..keys {
            table.put(2 * n + 1, &name(n), &n.to_le_bytes()).unwrap();
        }
        for n in 0..keys {
            let Lookup::Value(value) = table.get(&name(n), u64::MAX).unwrap() else {
                panic!("{n} of {keys}")
            };
            assert_eq!(*value, n.to_le_bytes());
        }
        let hits = table.stats();
        assert_eq!(hits.index_hits + hits.list_searches, keys);
        for n in keys..2 * keys {
            assert!(matches!(table.get(&name(n), u64::MAX).unwrap(), Lookup::NotFound));
        }
        let misses = table.stats();
        let listed = misses.list_searches - hits.list_searches;
        println!(
            "{percent} %: {:.3} of hits and {:.3} of misses without the list",
            hits.index_hits as f64 / keys as f64,
            1.0 - listed as f64 / keys as f64,
        );
        let least = [(10, 0.99, 0.99), (100, 0.96, 0.80), (300, 0.45, 0.0)];
        let (_, hit, miss) = least.into_iter().find(|(at, ..)| *at == percent).unwrap();
        assert!(hits.index_hits as f64 >= keys as f64 * hit, "{percent} %: {hits:?}");
        assert!(keys as f64 - listed as f64 >= keys as f64 * miss, "{percent} %: {misses:?}");
    }
}

#[test]
fn nodes_and_digests_are_counted() {
    for (protection, on_seek) in [(0, false), (8, false), (8, true)] {
        let paranoid = ParanoidOptions::builder().protection_bytes(protection).checksum_on_seek(on_seek);
        let options = MemTableOptions::builder().paranoid(paranoid.build().unwrap()).statistics(true).seed(2);
        let options = options.directory(Directory::Off);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        let keys: Vec<[u8; 8]> = (0..5000u64).map(|n| (n * 0x1234_5677).to_be_bytes()).collect();
        for (sequence, key) in (1..).zip(&keys) {
            table.put(sequence, key, b"v").unwrap();
        }
        assert_eq!(table.stats(), paranoid_memtable::read::Stats::default(), "writes count nothing");
        for key in &keys {
            table.get(key, u64::MAX).unwrap();
        }
        let single = table.stats();
        assert_eq!((single.gets, single.hits, single.list_searches), (5000, 5000, 5000));
        // Expected: 1.6 nodes a level, ln 5000 = 8.5 levels; at least two nodes, and never as many as there are.
        let nodes = single.nodes_visited as f64 / 5000.0;
        assert!((8.0..40.0).contains(&nodes), "{nodes} nodes a get");
        // Two neighbours (one before the first key) and the value, or every node, the neighbours and the value.
        let digests = match (protection, on_seek) {
            (0, _) => 0,
            (_, false) => 3 * 5000 - 1,
            (_, true) => single.nodes_visited + 3 * 5000 - 1,
        };
        assert_eq!(single.digests_verified, digests);
        for result in table.multi_get(&keys, u64::MAX) {
            result.unwrap();
        }
        let both = table.stats();
        assert_eq!(
            both.nodes_visited,
            2 * single.nodes_visited,
            "searches in flight visit what single searches visit"
        );
        assert_eq!(both.digests_verified, 2 * digests);
    }
}

#[test]
fn many_versions_and_old_snapshots() {
    let table = MemTable::new(configured("index").build().unwrap()).unwrap();
    let mut sequences: Vec<u64> = (1..=40).collect();
    let mut random = Random(5);
    for n in (1..sequences.len()).rev() {
        sequences.swap(n, random.below(n as u64 + 1) as usize);
    }
    for (n, sequence) in sequences.iter().enumerate() {
        table.put(*sequence, b"k", &sequence.to_le_bytes()).unwrap();
        for snapshot in 0..=41 {
            let newest = sequences[..=n].iter().filter(|known| **known <= snapshot).max();
            match (table.get(b"k", snapshot).unwrap(), newest) {
                (Lookup::Value(value), Some(newest)) => assert_eq!(*value, newest.to_le_bytes()),
                (Lookup::NotFound, None) => {}
                (lookup, newest) => panic!("at {snapshot}: {lookup:?}, not {newest:?}"),
            }
        }
    }
}

#[test]
fn a_budget_ends_a_batch() {
    let table = MemTable::new(configured("index").build().unwrap()).unwrap();
    for n in 0..100u64 {
        table.put(n, &n.to_be_bytes(), &[7; 10]).unwrap();
    }
    let keys: Vec<[u8; 8]> = (0..100u64).map(u64::to_be_bytes).collect();
    let mut results = Vec::new();
    for (budget, answered) in [(0, 0), (1, 1), (10, 1), (11, 2), (500, 50), (991, 100), (u64::MAX, 100)] {
        table.multi_get_with_budget(&keys, u64::MAX, budget, &mut results);
        let ok = results.iter().take_while(|result| result.is_ok()).count();
        assert_eq!((ok, results.len()), (answered, 100), "{budget}");
        let told = |result: &Result<_, Error>| matches!(result, Err(Error::BudgetUsedUp { budget: b }) if *b == budget);
        assert!(results[ok..].iter().all(told));
    }
}

/// Writers of the same new keys at once: afterwards every key has its newest version.
#[test]
fn writers_that_claim_the_same_keys_at_once() {
    for round in 0..20u64 {
        let table = MemTable::new(configured("small index").build().unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for n in 0..60u64 {
                        let sequence = 1 + n * 4 + (thread + round) % 4;
                        table.put(sequence, &(n % 12).to_be_bytes(), &sequence.to_le_bytes()).unwrap();
                    }
                });
            }
        });
        for n in 0..12u64 {
            let Lookup::Value(value) = table.get(&n.to_be_bytes(), u64::MAX).unwrap() else { panic!("{n}") };
            assert_eq!(*value, (4 + (n + 48) * 4).to_le_bytes(), "key {n}, round {round}");
        }
    }
}

/// Every bit of every word of filters and index flipped, and every word zeroed: answers do not change, and a scrub
/// names the damage.
#[cfg(feature = "fault-injection")]
#[test]
fn damage_to_filters_and_index_changes_no_answer() {
    use paranoid_memtable::fault::Region;
    use paranoid_memtable::integrity::Place;

    let table = MemTable::new(configured("keys and index").build().unwrap()).unwrap();
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
        Region::IndexSlot | Region::IndexControl => Some(Place::Slot),
        _ => None,
    };
    let pieces: Vec<_> = injector.pieces().iter().map(|piece| beside(piece.region)).collect();
    assert!(pieces.iter().flatten().count() > 500);
    for (piece, place) in pieces.iter().enumerate().filter_map(|(piece, place)| Some((piece, (*place)?))) {
        let bits = (0..64).map(Some).chain([None]).filter(|bit| bit.is_none_or(|bit| (bit + piece) % 9 == 0));
        for bit in bits {
            match bit {
                Some(bit) => injector.flip(piece, bit),
                None => injector.zero_word(piece, 0),
            }
            for (key, expected) in keys.iter().zip(&expected) {
                let answer = told(table.get(key, 40).unwrap()).unwrap();
                assert_eq!(answer, *expected, "{key:?}, bit {bit:?} of piece {piece}");
            }
            if !injector.changed().is_empty() && piece % 16 == 0 {
                let found = table.scrub(|_| {}).findings;
                assert!(found.iter().any(|finding| finding.place == place), "piece {piece}: {found:?}");
            }
            injector.undo();
        }
    }
}

#[cfg(feature = "fault-injection")]
fn open_injector(
    table: &MemTable,
) -> paranoid_memtable::fault::FaultInjector<'_, paranoid_memtable::Bytewise> {
    #[expect(unsafe_code, reason = "the fault injector for breaking memory on purpose")]
    // SAFETY: one thread, and nothing borrowed from the table is held across a break.
    unsafe { paranoid_memtable::fault::FaultInjector::open(table.reader()) }.unwrap()
}
