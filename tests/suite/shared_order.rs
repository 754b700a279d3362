//! Orders that are chosen at run time: one type of table, set and cursor serves them all.

use std::cmp::Ordering;
use std::sync::Arc;

use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{Bytewise, Comparator, Error, KeyEquality, KeyOrder, MemTable, MemTableOptions};

use crate::support::case::draw;
use crate::support::orders::{Order, Reverse};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::run::run_or_report;
use crate::support::under::under;
use crate::support::watchdog::{Watchdog, replay_line};

/// The order of bytes under a name of its own. Tables compare bytes then, and do not call it.
#[derive(Debug, Clone, Copy, Default)]
struct Named;

impl Comparator for Named {
    fn name(&self) -> &str {
        "test.Named"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, _left: &[u8], _right: &[u8]) -> Ordering {
        unreachable!("keys in the order of bytes are compared by the table")
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Bytes
    }
}

impl Order for Named {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering {
        Bytewise::plainly(left, right)
    }
}

#[test]
fn a_named_order_of_bytes_against_the_model() {
    let test = "shared_order::a_named_order_of_bytes_against_the_model";
    let mut seed = seed_or(std::process::id().into());
    println!("{test}: seed {seed:#x}");
    for _ in 0..amount(40, 3) {
        let _watchdog = Watchdog::new(test, seed);
        run_or_report::<Named>(&draw(seed, 400), &replay_line(test, seed));
        seed = Rng::new(seed).next_u64();
    }
}

/// Keys in the order of bytes are compared by their bytes, so an equality of its own would be ignored.
#[test]
fn an_order_that_contradicts_itself_is_refused() {
    #[derive(Debug)]
    struct Blind;
    impl Comparator for Blind {
        fn name(&self) -> &str {
            "test.Blind"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Custom
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            left.cmp(right)
        }

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Bytes
        }
    }
    let refused = MemTableOptions::builder().comparator(Arc::new(Blind)).build();
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
}

/// One type of table for whatever order is chosen: with filters and an index, forked, cloned, moved between threads.
#[test]
fn one_type_of_table_for_every_order() {
    let orders: [Arc<dyn Comparator>; 3] = [Arc::new(Bytewise), Arc::new(Named), Arc::new(Reverse)];
    let options =
        || MemTableOptions::builder().whole_key_filter(0.01).prefix_filter(FixedPrefix::new(1), 0.01);
    let mut tables = vec![MemTable::new(options().build().unwrap()).unwrap()];
    for order in orders {
        tables.push(MemTable::new(options().comparator(order).build().unwrap()).unwrap());
    }
    tables.push(tables[3].fork().unwrap());
    for table in &tables {
        std::thread::scope(|threads| {
            threads.spawn(|| table.put(1, b"a", b"first"));
            threads.spawn(|| table.put(2, b"b", b"second"));
        });
    }
    let first = |table: &MemTable| table.cursor().first().unwrap().map(|entry| entry.user_key().to_vec());
    let firsts: Vec<_> = tables.iter().map(first).map(Option::unwrap).collect();
    assert_eq!(firsts, [b"a", b"a", b"a", b"b", b"b"]);
    let names: Vec<&str> = tables.iter().map(|table| table.comparator().name()).collect();
    let bytes = "leveldb.BytewiseComparator";
    assert_eq!(names, [bytes, bytes, "test.Named", "test.Reverse", "test.Reverse"]);
    let options = under(MemTableOptions::builder(), Reverse);
    assert_eq!(options.comparator().name(), "test.Reverse");
    assert!(format!("{options:?}").contains("test.Reverse"));
}
