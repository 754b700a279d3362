//! Orders that are chosen at run time: a table under a shared one answers as a table under the type that it wraps.

use std::cmp::Ordering;
use std::sync::Arc;

use paranoid_memtable::comparator::{DynComparator, KeyEquality, KeyOrder, SharedComparator};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{Bytewise, Comparator, Error, MemTable, MemTableOptions};

use crate::support::case::draw;
use crate::support::orders::{Order, Reverse};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::run::run_or_report;
use crate::support::watchdog::{Watchdog, replay_line};

/// A comparator type as a trait object.
#[derive(Debug)]
struct Named<C>(C, &'static str);

impl<C: Comparator> DynComparator for Named<C> {
    fn name(&self) -> &str {
        self.1
    }
    fn equality(&self) -> KeyEquality {
        C::EQUALITY
    }
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.0.compare(left, right)
    }
    fn key_order(&self) -> KeyOrder {
        self.0.key_order()
    }
    fn image(&self, key: &[u8], at: usize) -> u64 {
        self.0.image(key, at)
    }
}

/// A shared order for the model, whose orders are made by `default`.
macro_rules! shared {
    ($name:ident, $plain:ty, $make:expr) => {
        #[derive(Debug, Clone, Copy)]
        struct $name(&'static SharedComparator);

        impl Default for $name {
            fn default() -> Self {
                static ORDER: std::sync::OnceLock<SharedComparator> = std::sync::OnceLock::new();
                $name(ORDER.get_or_init(|| $make))
            }
        }

        impl Comparator for $name {
            const EQUALITY: KeyEquality = SharedComparator::EQUALITY;
            fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
                self.0.compare(left, right)
            }
            fn key_order(&self) -> KeyOrder {
                self.0.key_order()
            }
            fn image(&self, key: &[u8], at: usize) -> u64 {
                self.0.image(key, at)
            }
        }

        impl Order for $name {
            fn plainly(left: &[u8], right: &[u8]) -> Ordering {
                <$plain>::plainly(left, right)
            }
        }
    };
}

impl Order for SharedComparator {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering {
        Bytewise::plainly(left, right)
    }
}

shared!(Prefixed, Bytewise, SharedComparator::new(Arc::new(Named(Bytewise, "bytes"))).unwrap());
shared!(Backwards, Reverse, SharedComparator::new(Arc::new(Named(Reverse, "backwards"))).unwrap());

#[test]
fn shared_orders_against_the_model() {
    let test = "shared_order::shared_orders_against_the_model";
    let mut seed = seed_or(std::process::id().into());
    println!("{test}: seed {seed:#x}");
    for _ in 0..amount(40, 3) {
        let _watchdog = Watchdog::new(test, seed);
        let (case, replay) = (draw(seed, 400), replay_line(test, seed));
        run_or_report::<SharedComparator>(&case, &replay);
        run_or_report::<Prefixed>(&case, &replay);
        run_or_report::<Backwards>(&case, &replay);
        seed = Rng::new(seed).next_u64();
    }
}

/// One type of table for whatever order is chosen: with filters and an index, forked, cloned, moved between threads.
#[test]
fn one_type_of_table_for_every_order() {
    let backwards = SharedComparator::new(Arc::new(Named(Reverse, "backwards"))).unwrap();
    let mut tables: Vec<MemTable<SharedComparator>> = vec![];
    for order in [SharedComparator::default(), backwards.clone(), backwards] {
        let options = MemTableOptions::builder().whole_key_filter(0.01);
        let options = options.prefix_filter(FixedPrefix::new(1), 0.01).build().unwrap();
        tables.push(MemTable::with_comparator(options, order).unwrap());
    }
    tables.push(tables[1].fork().unwrap());
    for table in &tables {
        std::thread::scope(|threads| {
            threads.spawn(|| table.put(1, b"a", b"first"));
            threads.spawn(|| table.put(2, b"b", b"second"));
        });
    }
    let first = |table: &MemTable<SharedComparator>| {
        table.cursor().first().unwrap().map(|entry| entry.user_key().to_vec())
    };
    assert_eq!(tables.iter().map(first).map(Option::unwrap).collect::<Vec<_>>(), [b"a", b"b", b"b", b"b"]);
    let names: Vec<&str> = tables.iter().map(|table| table.comparator().name()).collect();
    assert_eq!(names, ["leveldb.BytewiseComparator", "backwards", "backwards", "backwards"]);
    assert!(format!("{:?}", tables[1].comparator()).contains("backwards"));
}

/// Filters hash keys: an order under which different bytes are equal is refused.
#[test]
fn orders_that_hide_bytes_are_refused() {
    use crate::support::orders::CaseBlind;
    let refused = SharedComparator::new(Arc::new(Named(CaseBlind, "case-blind")));
    assert!(matches!(refused, Err(Error::InvalidArgument(text)) if text.contains("bytes")));
}
