//! Measures walks past hidden entries: one key of three is written many times.
//!
//! ```text
//!   benches/versions/run COMMIT overwrites [WRITES [ROUNDS [PROTECTION_BYTES]]]
//! ```
//! The keys are a < m < y < z. a and z have one entry each, m has one for each write, y has none.
//! Either each write replaces the one before (`DuplicatePolicy::Replace`), or each is a version,
//! read at a snapshot in the middle of them or older than all of them. `seek_for_prev` starts at y,
//! so it reaches m from above.
//!
//! crossbeam-skiplist runs beside both versions, used as in an engine: the map's key is (user key,
//! sequence number descending), an insert replaces, and a walk at a snapshot searches for the
//! visible version and then for the next key.

use std::cmp::Reverse;
use std::hint::black_box;
use std::ops::Bound;

use crossbeam_skiplist::SkipMap;

use crate::{Key, key, mix, quantile, thread_time};

/// Sequence number of every write under `Replace`.
const REPLACED: u64 = 5;
/// A slice is repeated until it takes about this many nanoseconds.
const SLICE_NS: f64 = 1e6;

/// The entries that a walk shows.
#[derive(Clone, Copy)]
enum View {
    /// The newest entries of the table whose entries replace each other.
    Newest,
    /// The entries that the snapshot sees in the table with versions.
    At(u64),
}

#[derive(Clone, Copy)]
enum Way {
    Forward,
    Backward,
    SeekForPrev,
}

/// The work of all tables: a whole walk, or one seek.
trait Candidate {
    fn walk(&self, view: View, way: Way) -> u64;
}

fn keys() -> [Key; 4] {
    [0, 1, 2, 3].map(key)
}

/// Calls `put` with every entry of both tables: its view, sequence number, key and value.
fn entries(writes: u64, mut put: impl FnMut(View, u64, &Key, [u8; 8])) {
    let [a, m, _, z] = keys();
    for view in [View::Newest, View::At(0)] {
        put(view, 1, &a, [1; 8]);
        put(view, 2, &z, [2; 8]);
        for write in 0..writes {
            let sequence = if let View::Newest = view {
                REPLACED
            } else {
                3 + write
            };
            put(view, sequence, &m, mix(write).to_le_bytes());
        }
    }
}

fn fold(key: &[u8], value: &[u8]) -> u64 {
    value.iter().fold(u64::from(key[7]), |hash, byte| {
        hash.rotate_left(7) ^ u64::from(*byte)
    })
}

macro_rules! candidate {
    ($name:ident) => {
        mod $name {
            use super::{Candidate, View, Way, entries, fold, keys};
            use $name::{DuplicatePolicy, MemTable, MemTableOptions, ParanoidOptions};

            struct Tables {
                replaced: MemTable,
                versions: MemTable,
            }

            fn table(protection: u8, duplicates: DuplicatePolicy) -> MemTable {
                let paranoid = ParanoidOptions::builder()
                    .protection_bytes(protection)
                    .build()
                    .expect("options");
                let options = MemTableOptions::builder()
                    .paranoid(paranoid)
                    .duplicates(duplicates);
                let options = options
                    .write_buffer_size(256 << 20)
                    .hard_limit(4 << 30)
                    .seed(4);
                MemTable::new(options.build().expect("options")).expect("a table")
            }

            pub fn candidate(writes: u64, protection: u8) -> Box<dyn Candidate> {
                let replaced = table(protection, DuplicatePolicy::Replace);
                let versions = table(protection, DuplicatePolicy::Reject);
                entries(writes, |view, sequence, key, value| {
                    let table = if let View::Newest = view {
                        &replaced
                    } else {
                        &versions
                    };
                    table.put(sequence, key, &value).expect("room");
                });
                Box::new(Tables { replaced, versions })
            }

            fn seen(entry: Result<$name::Entry<'_>, $name::Error>) -> u64 {
                let entry = entry.expect("intact memory");
                fold(entry.user_key(), entry.value().expect("intact memory"))
            }

            impl Candidate for Tables {
                fn walk(&self, view: View, way: Way) -> u64 {
                    let y = keys()[2];
                    match (view, way) {
                        (View::Newest, Way::Forward) => self.replaced.range(..).map(seen).sum(),
                        (View::Newest, Way::Backward) => {
                            self.replaced.range(..).rev().map(seen).sum()
                        }
                        (View::Newest, Way::SeekForPrev) => {
                            let mut cursor = self.replaced.cursor();
                            assert!(cursor.seek_for_prev(&y).is_ok());
                            u64::from(cursor.is_valid())
                        }
                        (View::At(snapshot), Way::Forward) => {
                            let mut cursor = self.versions.cursor_at(snapshot);
                            let (mut sum, mut entry) = (0, cursor.first());
                            while let Some(shown) = entry.transpose() {
                                sum += seen(shown);
                                entry = cursor.next();
                            }
                            sum
                        }
                        (View::At(snapshot), Way::Backward) => {
                            let mut cursor = self.versions.cursor_at(snapshot);
                            let (mut sum, mut entry) = (0, cursor.last());
                            while let Some(shown) = entry.transpose() {
                                sum += seen(shown);
                                entry = cursor.prev();
                            }
                            sum
                        }
                        (View::At(snapshot), Way::SeekForPrev) => {
                            let mut cursor = self.versions.cursor_at(snapshot);
                            assert!(cursor.seek_for_prev(&y).is_ok());
                            u64::from(cursor.is_valid())
                        }
                    }
                }
            }
        }
    };
}

candidate!(before);
candidate!(after);

type Map = SkipMap<(Key, Reverse<u64>), [u8; 8]>;

#[derive(Default)]
struct Crossbeam {
    replaced: Map,
    versions: Map,
}

fn crossbeam(writes: u64) -> Box<dyn Candidate> {
    let maps = Crossbeam::default();
    entries(writes, |view, sequence, key, value| {
        let map = if let View::Newest = view {
            &maps.replaced
        } else {
            &maps.versions
        };
        map.insert((*key, Reverse(sequence)), value);
    });
    Box::new(maps)
}

/// The newest version of `key` that the snapshot sees.
fn visible(map: &Map, key: Key, snapshot: u64) -> Option<u64> {
    let found = map.lower_bound(Bound::Included(&(key, Reverse(snapshot))))?;
    (found.key().0 == key).then(|| fold(&key, found.value()))
}

fn forward(map: &Map, snapshot: u64) -> u64 {
    let (mut hash, mut next) = (0, map.front());
    while let Some(entry) = next {
        let key = entry.key().0;
        hash += visible(map, key, snapshot).unwrap_or(0);
        next = map.lower_bound(Bound::Excluded(&(key, Reverse(0))));
    }
    hash
}

/// The last key below `bound` with a version that the snapshot sees, and that version.
fn previous(map: &Map, mut bound: Bound<(Key, Reverse<u64>)>, snapshot: u64) -> Option<(Key, u64)> {
    loop {
        let key = map.upper_bound(bound.as_ref())?.key().0;
        if let Some(hash) = visible(map, key, snapshot) {
            return Some((key, hash));
        }
        bound = Bound::Excluded((key, Reverse(u64::MAX)));
    }
}

fn backward(map: &Map, snapshot: u64) -> u64 {
    let (mut hash, mut bound) = (0, Bound::Unbounded);
    while let Some((key, seen)) = previous(map, bound, snapshot) {
        hash += seen;
        bound = Bound::Excluded((key, Reverse(u64::MAX)));
    }
    hash
}

impl Candidate for Crossbeam {
    fn walk(&self, view: View, way: Way) -> u64 {
        let after = (keys()[2], Reverse(0));
        match (view, way) {
            (View::Newest, Way::Forward) => self
                .replaced
                .iter()
                .map(|entry| fold(&entry.key().0, entry.value()))
                .sum(),
            (View::Newest, Way::Backward) => self
                .replaced
                .iter()
                .rev()
                .map(|entry| fold(&entry.key().0, entry.value()))
                .sum(),
            (View::Newest, Way::SeekForPrev) => {
                u64::from(self.replaced.upper_bound(Bound::Included(&after)).is_some())
            }
            (View::At(snapshot), Way::Forward) => forward(&self.versions, snapshot),
            (View::At(snapshot), Way::Backward) => backward(&self.versions, snapshot),
            (View::At(snapshot), Way::SeekForPrev) => {
                u64::from(previous(&self.versions, Bound::Included(after), snapshot).is_some())
            }
        }
    }
}

/// Nanoseconds of one call, and the hash.
fn timed(candidate: &dyn Candidate, view: View, way: Way, repeats: u32) -> (f64, u64) {
    let started = thread_time();
    let mut hash = 0;
    for _ in 0..repeats {
        hash = black_box(candidate.walk(view, way));
    }
    (
        (thread_time() - started).as_secs_f64() * 1e9 / f64::from(repeats),
        hash,
    )
}

/// Measures one row: before, after and crossbeam in turns.
fn row(name: &str, candidates: &[Box<dyn Candidate>], view: View, way: Way, rounds: usize) -> u64 {
    let mut samples = vec![Vec::new(); candidates.len()];
    let repeats: Vec<u32> = candidates
        .iter()
        .map(|candidate| {
            (SLICE_NS / timed(candidate.as_ref(), view, way, 1).0).clamp(1.0, 2_000.0) as u32
        })
        .collect();
    let mut hash = None;
    for round in 0..rounds {
        for turn in 0..candidates.len() {
            let at = (round + turn) % candidates.len();
            let (nanoseconds, seen) = timed(candidates[at].as_ref(), view, way, repeats[at]);
            assert_eq!(
                *hash.get_or_insert(seen),
                seen,
                "{name}: all tables read the same"
            );
            samples[at].push(nanoseconds);
        }
    }
    let ratio = |above: usize, below: usize| {
        let ratios: Vec<f64> = samples[above]
            .iter()
            .zip(&samples[below])
            .map(|(a, b)| a / b)
            .collect();
        quantile(&ratios, 0.5)
    };
    let medians: Vec<f64> = samples
        .iter()
        .map(|samples| quantile(samples, 0.5))
        .collect();
    println!(
        "{name:<46} {:12.0} -> {:8.0} ns  {:10.4}   crossbeam {:6.0} ns  {:6.2}",
        medians[0],
        medians[1],
        ratio(1, 0),
        medians[2],
        ratio(1, 2),
    );
    hash.unwrap_or(0)
}

pub fn run(writes: u64, rounds: usize, protection: u8) {
    let candidates = [
        before::candidate(writes, protection),
        after::candidate(writes, protection),
        crossbeam(writes),
    ];
    println!(
        "one of 3 keys written {writes} times, protection {protection}, medians over {rounds} rounds; ratios: after / \
         before, after / crossbeam-skiplist"
    );
    let views = [
        ("replaced", View::Newest),
        (
            "versions, snapshot in their middle",
            View::At(2 + writes / 2),
        ),
        ("versions, snapshot older than all", View::At(2)),
    ];
    let mut hash = 0;
    for (view_name, view) in views {
        for (way_name, way) in [
            ("forward", Way::Forward),
            ("backward", Way::Backward),
            ("seek_for_prev", Way::SeekForPrev),
        ] {
            hash = mix(hash
                ^ row(
                    &format!("{view_name}: {way_name}"),
                    &candidates,
                    view,
                    way,
                    rounds,
                ));
        }
    }
    println!("hash of the work {hash:016x}");
}
