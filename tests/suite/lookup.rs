//! Filters and batched lookups against an oracle that looks at everything, for every combination.

mod budget;
#[cfg(all(feature = "fault-injection", not(towers)))]
mod damaged_directory;
#[cfg(feature = "fault-injection")]
mod earlier;
mod oracle;
mod rates;

use oracle::{Answer, Oracle, Random, Row, told};
use paranoid_memtable::filter::{CappedPrefix, FixedPrefix, PrefixExtractor};
use paranoid_memtable::read::{DeletedBy, Found};
use paranoid_memtable::{
    Bytewise, Comparator, Directory, DuplicatePolicy, Error, Kind, Lookup, MemTable, MemTableOptions,
    MemTableOptionsBuilder, ParanoidOptions,
};

use crate::support::orders::{CaseBlind, Reverse};
use crate::support::rng::scramble;
use crate::support::under::under;

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

const NAMES: [&str; 8] = [
    "neither",
    "keys",
    "fixed prefix",
    "capped prefix",
    "custom prefix",
    "keys and prefix",
    "directory",
    "keys and directory",
];

fn configured(name: &str) -> MemTableOptionsBuilder {
    let builder = MemTableOptions::builder().write_buffer_size(64 << 10).statistics(true);
    match name {
        "neither" => builder.directory(Directory::Off),
        "keys" => builder.whole_key_filter(0.01),
        "fixed prefix" => builder.prefix_filter(FixedPrefix::new(2), 0.01),
        "capped prefix" => builder.prefix_filter(CappedPrefix::new(3), 0.01),
        "custom prefix" => builder.prefix_filter(UpToC, 0.01),
        "keys and prefix" => builder.whole_key_filter(0.05).prefix_filter(UpToC, 0.02),
        "directory" => builder.directory(Directory::On),
        "keys and directory" => builder.whole_key_filter(0.02).directory(Directory::On),
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
            for policy in [DuplicatePolicy::Reject, DuplicatePolicy::Replace] {
                run(name, policy, [0, 8][seed as usize % 2], seed, 200);
            }
        }
    }
}

#[test]
fn a_key_under_a_range_tombstone_stays_deleted_whatever_the_filter_says() {
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

#[test]
fn byte_tricks_are_refused_where_equality_is_not_of_bytes() {
    assert!(MemTable::new(under(configured("neither"), CaseBlind)).is_ok());
    for name in &NAMES[1..] {
        let refused = configured(name).comparator(std::sync::Arc::new(CaseBlind)).build();
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
    assert!(builder().whole_key_filter(0.25).prefix_filter(FixedPrefix::new(1), 0.25).build().is_ok());
    // 440 bytes hold one line wherever it starts, its control word and what keeps them apart.
    let tiny = |bytes: f64| {
        builder().write_buffer_size(1 << 20).whole_key_filter(bytes / f64::from(1 << 20)).build()
    };
    assert!(tiny(439.0).is_err() && tiny(440.0).is_ok() && tiny(441.0).is_ok());
}

#[test]
fn side_structures_stay_within_their_share() {
    for (name, share) in [("neither", 0.0), ("keys", 0.01), ("keys and prefix", 0.07)] {
        let build = |name| MemTable::new(configured(name).build().unwrap()).unwrap().allocated_bytes();
        let taken = build(name) - build("neither");
        // Less than a sub-chunk is taken but not used by the structures.
        let most = (f64::from(64 << 10) * share) as u64 + 4096;
        assert!(taken <= most, "{name}: {taken} of {most}");
    }
}

/// Gets look at a few nodes where the order has images, and at many where it has not, or no directory is wanted.
#[test]
fn directories_are_used_in_orders_of_bytes_and_images() {
    const ENTRIES: u64 = 4000;
    let keys: Vec<Vec<u8>> = (0..ENTRIES)
        .map(|n| [b"all keys begin so/".as_slice(), &scramble(n).to_be_bytes()].concat())
        .collect();
    fn nodes_per_get(order: impl Comparator, directory: Directory, keys: &[Vec<u8>]) -> u64 {
        let options = MemTableOptions::builder().seed(3).statistics(true).directory(directory);
        let table = MemTable::new(under(options, order)).unwrap();
        for (sequence, key) in (1..).zip(keys) {
            table.put(sequence, key, b"value").unwrap();
        }
        for (sequence, key) in (1..).zip(keys) {
            assert!(
                matches!(table.get(key, u64::MAX), Ok(Lookup::Value(value)) if value.sequence() == sequence)
            );
        }
        table.stats().nodes_visited / keys.len() as u64
    }
    for directory in [Directory::Auto, Directory::Off] {
        let nodes = [nodes_per_get(Bytewise, directory, &keys), nodes_per_get(Reverse, directory, &keys)];
        let expected = if directory == Directory::Off { 12..40 } else { 0..6 };
        assert!(nodes.iter().all(|nodes| expected.contains(nodes)), "{directory:?}: {nodes:?}");
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
    let pieces: Vec<_> = injector.pieces().iter().map(|piece| beside(piece.region)).collect();
    assert!(pieces.iter().flatten().count() > 200);
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
fn open_injector(table: &MemTable) -> paranoid_memtable::fault::FaultInjector<'_> {
    #[expect(unsafe_code, reason = "the fault injector for breaking memory on purpose")]
    // SAFETY: one thread, and nothing borrowed from the table is held across a break.
    unsafe { paranoid_memtable::fault::FaultInjector::open(table) }.unwrap()
}
