//! Calls put, get and range of artmap's versioned map.

use artmap::ArenaVersionedArtMap;

fn main() {
    let table = ArenaVersionedArtMap::<Vec<u8>, Vec<u8>>::with_capacity(64 << 20);
    let mut inserter = table.inserter();
    for (sequence, word) in (1..).zip(std::env::args()) {
        inserter.insert(word.into_bytes(), sequence, b"value".to_vec());
    }
    let found = table.get_entry::<[u8]>(b"word".as_slice()).is_some();
    let bytes: usize = table
        .range::<_, [u8]>(..)
        .map(|entry| entry.key().len())
        .sum();
    println!("{found} {bytes}");
}
