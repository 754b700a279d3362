//! A model of the filter: what a reader may find while a writer is between its steps.
//!
//! Words are loom's atomics and a cell a unit watches the bytes of nodes, on the production code. All actors are
//! spawned threads. Each model names the planted bugs that turn it red.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::memtable::options::MemTableOptions;
use crate::memtable::read::get::Lookup;
use crate::memtable::table::MemTable;
use crate::sync::model::{self, spawn};

/// Red for `filter_after_publication`.
#[test]
fn loom_who_sees_an_entry_finds_it_through_the_filter() {
    model::check(|| {
        let options = MemTableOptions::builder().write_buffer_size(1 << 16).seed(1).whole_key_filter(0.007);
        let table = Arc::new(MemTable::new(options.build().unwrap()).unwrap());
        let (writing, reading) = (Arc::clone(&table), Arc::clone(&table));
        let writer = spawn(move || writing.put(1, b"k", b"v").map(|_| ()).unwrap());
        let reader = spawn(move || {
            let mut cursor = reading.cursor();
            cursor.seek(b"k").unwrap();
            if cursor.is_valid() {
                assert!(
                    matches!(reading.get(b"k", 1).unwrap(), Lookup::Value(_)),
                    "the filter hides an entry"
                );
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}
