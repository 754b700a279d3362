//! A second oracle: crossbeam-skiplist holds the same entries, each (key, sequence) once.

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::SkipMap;
use paranoid_memtable::{Kind, MemTable, MemTableOptions, TableReader};

use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

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
    let test = "oracle::crossbeam_skiplist_agrees";
    let seed = seed_or(u64::from(std::process::id()));
    println!("{}", replay_line(test, seed));
    let _watchdog = Watchdog::new(test, seed);
    let table = MemTable::new(MemTableOptions::builder().seed(seed).build().unwrap()).unwrap();
    let (oracle, next) = (Oracle::new(), AtomicU64::new(0));
    let mut rng = Rng::new(seed);
    let step = amount(50_000, 3_000);
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
