//! Calls put, get and range of a crossbeam-skiplist as engines use it: keys with sequence numbers,
//! newest first.

use std::cmp::Reverse;

use crossbeam_skiplist::SkipMap;

fn main() {
    let table = SkipMap::<(Vec<u8>, Reverse<u64>), Vec<u8>>::new();
    for (sequence, word) in (1..).zip(std::env::args()) {
        table.insert((word.into_bytes(), Reverse(sequence)), b"value".to_vec());
    }
    let newest = table.range((b"word".to_vec(), Reverse(u64::MAX))..).next();
    let found = newest.is_some_and(|entry| entry.key().0 == b"word");
    let bytes: usize = table
        .range::<(Vec<u8>, Reverse<u64>), _>(..)
        .map(|entry| entry.key().0.len())
        .sum();
    println!("{found} {bytes}");
}
