//! Makes range tombstones that the fuzzer chooses, and compares fragments, cursors over them and a
//! table with a search of every tombstone.
//!
//! ```text
//!   first byte    filter, style of keys, snapshots
//!   4 bytes each  operation, two keys, a sequence number (a snapshot, for questions)
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::tombstone::{Fragmenter, Fragments};
use paranoid_memtable::{Bytewise, Error, Lookup, MemTable, MemTableOptions, TableReader};

const KEYS: u8 = 24;

/// The entries, in order of arrival.
#[derive(Default)]
struct Model {
    spans: Vec<(u8, u8, u64)>,
    /// A value, or a delete.
    points: Vec<(u8, u64, bool)>,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Value(u64),
    Deleted(u64, DeletedBy),
    NotFound,
}

impl Model {
    fn over(&self, key: u8) -> impl Iterator<Item = u64> {
        self.spans
            .iter()
            .filter(move |(start, end, _)| (*start..*end).contains(&key))
            .map(|span| span.2)
    }

    fn get(&self, key: u8, snapshot: u64) -> Answer {
        let seen = self
            .points
            .iter()
            .filter(|(own, sequence, _)| *own == key && *sequence <= snapshot);
        let newest = seen.max_by_key(|point| point.1);
        // A tombstone covers what is strictly older; one with sequence number 0 covers nothing.
        let floor = newest.map_or(0, |point| point.1);
        let cover = self
            .over(key)
            .filter(|sequence| *sequence <= snapshot && *sequence > floor)
            .max();
        match (cover, newest) {
            (Some(sequence), _) => Answer::Deleted(sequence, DeletedBy::Range),
            (None, Some((_, sequence, true))) => Answer::Value(*sequence),
            (None, Some((_, sequence, false))) => Answer::Deleted(*sequence, DeletedBy::Point),
            (None, None) => Answer::NotFound,
        }
    }
}

/// A key of a style: keys are equal in their first 8 bytes, or differ in them, or are longer than a
/// lookup's buffers.
fn key(number: u8, style: u8) -> Vec<u8> {
    match style {
        0 => vec![number],
        1 => [b"a-common-prefix-", &[number][..]].concat(),
        _ => [&[7; 300][..], &[number]].concat(),
    }
}

/// The sequence number for a byte: small numbers, equal ones among them, and some large ones.
fn sequence(byte: u8) -> u64 {
    match byte {
        0..=199 => u64::from(byte) / 2,
        200..=254 => u64::from(byte) << 40,
        255 => u64::MAX,
    }
}

fn got(table: &TableReader, number: u8, style: u8, snapshot: u64) -> Answer {
    match table.get(&key(number, style), snapshot).expect("no damage") {
        Lookup::Value(value) => {
            assert_eq!(&*value, value.sequence().to_be_bytes());
            Answer::Value(value.sequence())
        }
        Lookup::Deleted { sequence, by } => Answer::Deleted(sequence, by),
        Lookup::NotFound => Answer::NotFound,
        Lookup::Merge(_) => panic!("nothing was merged"),
    }
}

/// Gets every key, and scans all keys both ways.
fn check_table(table: &TableReader, model: &Model, style: u8, snapshot: u64) {
    let mut shown = Vec::new();
    for number in 0..KEYS {
        let expected = model.get(number, snapshot);
        assert_eq!(
            got(table, number, style, snapshot),
            expected,
            "key {number} at {snapshot}"
        );
        if let Answer::Value(sequence) = expected {
            shown.push((key(number, style), sequence));
        }
    }
    let entry = |entry: Result<paranoid_memtable::Entry<'_>, Error>| {
        let entry = entry.expect("no damage");
        (entry.user_key().to_vec(), entry.sequence())
    };
    assert_eq!(
        table.range_at(.., snapshot).map(entry).collect::<Vec<_>>(),
        shown,
        "at {snapshot}"
    );
    shown.reverse();
    assert_eq!(
        table
            .range_at(.., snapshot)
            .rev()
            .map(entry)
            .collect::<Vec<_>>(),
        shown,
        "at {snapshot}"
    );
}

/// The numbers that a fragment must list, newest first: all of them, or the newest between two
/// snapshots.
fn kept(model: &Model, number: u8, stripes: Option<&[u64]>) -> Vec<u64> {
    let mut all: Vec<u64> = model.over(number).collect();
    all.sort_unstable_by(|left, right| right.cmp(left));
    all.dedup();
    if let Some(snapshots) = stripes {
        all.dedup_by_key(|sequence| {
            snapshots
                .iter()
                .filter(|snapshot| **snapshot < *sequence)
                .count()
        });
    }
    all
}

fn check_fragments(
    fragments: &Fragments,
    model: &Model,
    style: u8,
    stripes: Option<&[u64]>,
    snapshots: &[u64],
) {
    fragments.verify().expect("no damage");
    let list: Vec<_> = fragments.iter().collect();
    assert!(
        list.iter()
            .all(|fragment| fragment.start() < fragment.end())
    );
    assert!(
        list.windows(2).all(|two| two[0].end() <= two[1].start()),
        "fragments overlap"
    );
    for number in 0..KEYS {
        let (key, expected) = (key(number, style), kept(model, number, stripes));
        let around = list
            .iter()
            .find(|fragment| fragment.start() <= &key[..] && &key[..] < fragment.end());
        assert_eq!(
            around.map_or(&[][..], |fragment| fragment.sequences()),
            expected,
            "key {number}"
        );
        for &snapshot in snapshots {
            let newest = expected
                .iter()
                .copied()
                .find(|sequence| *sequence <= snapshot);
            assert_eq!(
                fragments.max_covering_sequence(&key, snapshot),
                newest,
                "key {number} at {snapshot}"
            );
        }
    }
}

fn written(result: Result<paranoid_memtable::Inserted, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::DuplicateEntry { .. } | Error::InvalidArgument(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, program)) = data.split_first() else {
        return;
    };
    let style = head / 2 % 3;
    let mut options = MemTableOptions::builder()
        .write_buffer_size(64 << 10)
        .seed(1);
    if head & 64 != 0 {
        options = options.whole_key_filter(0.1);
    }
    let table = MemTable::new(options.build().expect("valid")).expect("memory");
    let mut model = Model::default();
    let mut snapshots = vec![0, 1, 50, u64::MAX - 1, u64::MAX];
    for &[what, a, b, number] in program.as_chunks::<4>().0.iter().take(300) {
        let (start, end, sequence) = (a % KEYS, b % KEYS, sequence(number));
        let (from, to) = (key(start, style), key(end, style));
        match what % 8 {
            0..=3 => {
                let taken = written(table.delete_range(sequence, &from, &to));
                let twice = model
                    .spans
                    .iter()
                    .any(|span| (span.0, span.2) == (start, sequence));
                assert_eq!(
                    taken,
                    start < end && !twice,
                    "[{start}, {end}) at {sequence}"
                );
                if taken {
                    model.spans.push((start, end, sequence));
                }
            }
            4 | 5 => {
                let kind = what % 8 == 4;
                let value = sequence.to_be_bytes();
                let result = if kind {
                    table.put(sequence, &from, &value)
                } else {
                    table.delete(sequence, &from)
                };
                let twice = model
                    .points
                    .iter()
                    .any(|point| (point.0, point.1) == (start, sequence));
                assert_eq!(written(result), !twice, "key {start} at {sequence}");
                if !twice {
                    model.points.push((start, sequence, kind));
                }
            }
            6 => {
                let answer = got(&table, start, style, sequence);
                assert_eq!(
                    answer,
                    model.get(start, sequence),
                    "key {start} at {sequence}"
                );
                snapshots.push(sequence);
            }
            _ => assert!(table.scrub(|_| ()).findings.is_empty()),
        }
    }
    snapshots.truncate(12);
    for &snapshot in &snapshots {
        check_table(&table, &model, style, snapshot);
    }
    let frozen = table.freeze().expect("no damage");
    for &snapshot in &snapshots {
        check_table(&frozen, &model, style, snapshot);
    }
    let stripes = (head & 128 != 0).then_some(&snapshots[..]);
    let mut fragmenter = Fragmenter::new(std::sync::Arc::new(Bytewise));
    if let Some(stripes) = stripes {
        fragmenter = fragmenter.with_snapshots(stripes);
    }
    for &(start, end, sequence) in &model.spans {
        fragmenter
            .add(key(start, style), key(end, style), sequence)
            .expect("a range");
    }
    check_fragments(&fragmenter.finish(), &model, style, stripes, &snapshots);
});
