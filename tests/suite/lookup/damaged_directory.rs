//! What a damaged directory costs: more steps per get, and never an answer. Counted in nodes, not in time.

use paranoid_memtable::fault::Region;
use paranoid_memtable::{Lookup, MemTable, MemTableOptions};

use super::open_injector;
use crate::support::rng::{Rng, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

const ENTRIES: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

/// Gets every entry; how many nodes were looked at per get.
fn nodes_per_get(table: &MemTable) -> f64 {
    let before = table.stats().nodes_visited;
    for n in 0..ENTRIES {
        let found = table.get(&scramble(n).to_be_bytes(), u64::MAX);
        assert!(matches!(found, Ok(Lookup::Value(value)) if value.sequence() == n + 1), "entry {n}");
    }
    (table.stats().nodes_visited - before) as f64 / ENTRIES as f64
}

#[test]
fn flipped_bits_of_the_directory_cost_steps() {
    let test = "lookup::damaged_directory::flipped_bits_of_the_directory_cost_steps";
    let seed = seed_or(0xd1ec);
    let _watchdog = Watchdog::new(test, seed);
    println!("{}", replay_line(test, seed));
    let options = MemTableOptions::builder().write_buffer_size(32 << 20).seed(seed).statistics(true);
    let table = MemTable::new(options.build().unwrap()).unwrap();
    for n in 0..ENTRIES {
        table.put(n + 1, &scramble(n).to_be_bytes(), &[7; 100]).unwrap();
    }
    let (intact, mut rng) = (nodes_per_get(&table), Rng::new(seed));
    println!("{ENTRIES} entries; nodes per get: {intact:.2}");
    let mut injector = open_injector(&table);
    let pages: Vec<(usize, u64)> = (0..injector.pieces().len())
        .filter(|piece| injector.pieces()[*piece].region == Region::Directory)
        .map(|piece| (piece, 8 * injector.bytes(piece).len() as u64))
        .collect();
    let mut flipped = 0;
    // More nodes than the towers of the worst case lead over would mean that a search has no limit.
    for (flips, most) in [(1, 2.0 * intact), (100, 150.0), (10_000, 1500.0)] {
        for _ in flipped..flips {
            let (piece, bits) = *rng.pick(&pages);
            injector.flip(piece, rng.below(bits) as usize);
        }
        flipped = flips;
        let nodes = nodes_per_get(&table);
        println!("after {flips} flipped bits of {} pieces: {nodes:.2}", pages.len());
        assert!(nodes < most, "{nodes} nodes per get after {flips} flipped bits");
    }
    drop(injector);
    // Each call looks at some pages; one that finds damage builds the directory anew.
    for _ in 0..100 {
        table.maintain();
    }
    let renewed = nodes_per_get(&table);
    println!("built anew: {renewed:.2}");
    assert!(renewed < 2.0 * intact + 1.0, "{renewed} nodes per get, {intact} before the damage");
}
