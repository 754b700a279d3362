//! Options of tables and sets under an order.

use std::sync::Arc;

use paranoid_memtable::set::SetOptions;
use paranoid_memtable::{Comparator, MemTableOptions, MemTableOptionsBuilder};

/// Options with this order.
pub fn under(options: MemTableOptionsBuilder, order: impl Comparator) -> MemTableOptions {
    options.comparator(Arc::new(order)).build().unwrap()
}

/// Options of a set whose tables have this order.
pub fn set_under(order: impl Comparator) -> SetOptions {
    SetOptions::builder().table(under(MemTableOptions::builder(), order)).build().unwrap()
}
