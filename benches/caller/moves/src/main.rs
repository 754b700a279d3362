//! Makes one call of each kind, each from a function of its own, in a table with a few entries.
//! `tools/moves` follows these calls.
use paranoid_memtable::{MemTable, MemTableOptions, WriteBatch};
use paranoid_set::{MemTableSet, SetOptions};

const ENTRIES: u64 = 200;

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

#[inline(never)]
fn step_put(table: &MemTable) {
    table.put(ENTRIES + 9, &key(ENTRIES + 1), b"value").unwrap();
}
#[inline(never)]
fn step_get(table: &MemTable) {
    table.get(&key(7), u64::MAX).unwrap();
}
#[inline(never)]
fn step_delete_range(table: &MemTable) {
    table.delete_range(ENTRIES + 2, &[3], &[4]).unwrap();
}
#[inline(never)]
fn step_freeze(table: &MemTable) {
    table.freeze().unwrap();
}
#[inline(never)]
fn step_set_write(set: &MemTableSet<()>, batch: &WriteBatch) {
    set.write(batch).unwrap();
}

fn main() {
    let options = MemTableOptions::builder().seed(1).build().unwrap();
    let table = MemTable::new(options.clone()).unwrap();
    for n in 0..ENTRIES {
        table.put(n + 1, &key(n), b"value").unwrap();
    }
    table.delete_range(ENTRIES + 1, &[1], &[2]).unwrap();
    step_put(&table);
    step_get(&table);
    step_delete_range(&table);
    step_freeze(&table);
    let set = MemTableSet::open(SetOptions::builder().table(options).build().unwrap(), ()).unwrap();
    let mut batch = WriteBatch::with_protection(0).unwrap();
    batch.put(b"key", b"value").unwrap();
    set.write(&batch).unwrap();
    step_set_write(&set, &batch);
}
