//! Tables that outgrow their write buffer: entries of many sizes across every chunk boundary, then read back.

use paranoid_memtable::{Lookup, MemTable, MemTableOptions, Result};

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
