//! Calls put, get and range of a table.

use paranoid_memtable::{Lookup, MemTable};

fn main() -> Result<(), paranoid_memtable::Error> {
    let table = MemTable::default();
    for (sequence, word) in (1..).zip(std::env::args()) {
        table.put(sequence, word.as_bytes(), b"value")?;
    }
    let found = matches!(table.get(b"word", u64::MAX)?, Lookup::Value(_));
    let mut bytes = 0;
    for entry in table.range_at(u64::MAX, ..) {
        bytes += entry?.user_key().len();
    }
    println!("{found} {bytes}");
    Ok(())
}
