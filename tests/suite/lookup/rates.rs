//! The share of absent keys that filters let pass, against theory, and the counters that report it.

use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{Lookup, MemTable, MemTableOptions};

use super::super::support::rng::amount;
use super::super::support::theory;
use super::oracle::Random;

/// Asks for `asked` absent keys. Returns how many of them a filter let pass.
fn let_pass(name: &str, table: &MemTable, random: &mut Random, asked: u64) -> u64 {
    let before = table.stats();
    for n in 0..asked {
        let mut key = random.next().to_be_bytes().to_vec();
        if name == "seeks" {
            let mut cursor = table.cursor().with_prefix(&key);
            cursor.first().unwrap();
            assert!(!cursor.is_valid());
            continue;
        }
        key.push(b'x');
        let lookup =
            if n % 2 == 0 { table.get(&key, u64::MAX) } else { table.multi_get(&[key], u64::MAX).remove(0) };
        assert!(matches!(lookup.unwrap(), Lookup::NotFound));
    }
    let stats = table.stats();
    let (negatives, passed) = (
        stats.filter_negatives - before.filter_negatives,
        stats.filter_false_positives - before.filter_false_positives,
    );
    if name == "seeks" {
        assert_eq!((stats.gets, passed), (before.gets, 0), "seeks are no lookups");
        return asked - negatives;
    }
    assert_eq!(negatives + passed, asked, "{name}: each key that is not there is one or the other");
    assert_eq!((stats.gets - before.gets, stats.hits), (asked, before.hits));
    passed
}

#[test]
fn false_positives_are_as_many_as_theory_says_from_the_first_key_on() {
    let buffer = 4u64 << 20;
    // 577 lines. 21 000 keys have 16 bits each.
    let lines = theory::lines(41_943) as f64;
    for name in ["keys", "prefix", "seeks"] {
        let builder = MemTableOptions::builder().write_buffer_size(buffer).statistics(true);
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
            let asked = if keys < 5000 { amount(20_000, 4_000) } else { amount(100_000, 12_000) };
            let rate = let_pass(name, &table, &mut random, asked) as f64 / asked as f64;
            let theory = theory::filter_rate(keys as f64, lines);
            println!("{name}, {keys} keys: {rate:.5} measured, {theory:.5} in theory");
            let noise = 5.0 * (theory / asked as f64).sqrt() + 1.0 / asked as f64;
            assert!((rate - theory).abs() < theory * 0.1 + noise, "{name}, {keys}: {rate} and {theory}");
        }
        assert!(table.scrub(|_| {}).findings.is_empty());
    }
}
