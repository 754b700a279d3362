//! Tables that outgrow their write buffer: entries of many sizes across every chunk boundary, then read back.

use paranoid_memtable::{Directory, Lookup, MemTable, MemTableOptions, Result};

use crate::support::rng::scramble;
use crate::support::watchdog::Watchdog;

fn value_of(sequence: u64, len_max: u64) -> Vec<u8> {
    let mixed = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    vec![mixed as u8; (mixed >> 40) as usize % len_max as usize]
}

/// Fills 20 times the write buffer by one writer, then reads every entry.
fn outgrow(seed: u64, len_max: u64) -> Result<()> {
    let options = MemTableOptions::builder().write_buffer_size(64 << 10).seed(seed).build()?;
    let table = MemTable::new(options)?;
    let mut writer = table.writer();
    let mut sequence = 0;
    while table.data_bytes() < 20 * (64 << 10) {
        sequence += 1;
        writer.put(sequence, &sequence.to_be_bytes(), &value_of(sequence, len_max))?;
    }
    for wanted in 1..=sequence {
        let Lookup::Value(value) = table.get(&wanted.to_be_bytes(), u64::MAX)? else {
            panic!("entry {wanted} of {sequence} is lost: seed {seed}, values below {len_max}");
        };
        assert_eq!(*value, *value_of(wanted, len_max), "entry {wanted}, seed {seed}, values below {len_max}");
    }
    assert_eq!(table.range(..).count() as u64, sequence);
    Ok(())
}

#[test]
fn no_entry_lies_across_two_chunks() {
    for (seed, len_max) in [(1, 60), (2, 200), (3, 1500), (4, 5000)] {
        if let Err(error) = outgrow(seed, len_max) {
            panic!("seed {seed}, values below {len_max}: {error}; replay: cargo test --test suite growth");
        }
    }
}

/// Keys whose common beginnings grow and shrink as they ascend.
fn shapes(n: u64, count: u64) -> [Vec<u8>; 6] {
    let text = |text: String| text.into_bytes();
    [
        text(format!("user{n:010}")),
        text(format!("user{:010}", count - n)),
        text(format!("user{:010}", scramble(n) % 1_000_000_000)),
        // From the middle to both ends.
        text(format!("user{:010}", if n.is_multiple_of(2) { count + n } else { count - n })),
        text(format!("{}/{}/{n}", n % 7, n % 100)),
        text(format!("{n}")),
    ]
}

/// A directory takes some bytes per entry, whatever the keys are and in which order they come.
#[test]
fn a_directory_takes_a_few_bytes_per_entry() {
    const COUNT: u64 = if cfg!(debug_assertions) { 34_000 } else { 400_000 };
    let _watchdog = Watchdog::new("growth::a_directory_takes_a_few_bytes_per_entry", 0);
    for shape in 0..6 {
        let used = [Directory::Off, Directory::Auto].map(|directory| {
            let options = MemTableOptions::builder().write_buffer_size(64 << 20).seed(1).directory(directory);
            let table = MemTable::new(options.build().unwrap()).unwrap();
            for n in 0..COUNT {
                table.put(n + 1, &shapes(n, COUNT)[shape], b"value").unwrap();
            }
            table.used_bytes()
        });
        let more = used[1] as f64 / COUNT as f64 - used[0] as f64 / COUNT as f64;
        println!("shape {shape}: {more:.1} bytes per entry more with a directory");
        assert!(more < 20.0, "shape {shape}: {more:.1} bytes per entry more with a directory");
    }
}
