//! Calls put, get and range of a table.

use paranoid_memtable::MemTable;

fn main() -> Result<(), paranoid_memtable::Error> {
    let table = MemTable::default();
    for (sequence, word) in (1..).zip(std::env::args()) {
        table.put(sequence, word.as_bytes(), b"value")?;
    }
    let found = table.get(b"word", u64::MAX)?.value().is_some();
    let mut bytes = 0;
    for entry in table.range_at(.., u64::MAX) {
        bytes += entry?.user_key().len();
    }
    println!("{found} {bytes}");
    Ok(())
}
