//! Shared by all tests: random numbers from a seed, a model of a table, random operations, a
//! watchdog.
//!
//! Included by path: `#[path = "../support/mod.rs"] mod support;`. Nothing in this folder uses the
//! internals of a table.
#![allow(unreachable_pub, reason = "shared by path")]
#![allow(dead_code, reason = "each user takes what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

pub mod case;
pub mod model;
pub mod rng;
pub mod sets;
pub mod walks;

use std::sync::Arc;

use paranoid_memtable::{Comparator, MemTableOptions, MemTableOptionsBuilder};
use paranoid_set::SetOptions;

/// Options with this order.
pub fn under(options: MemTableOptionsBuilder, order: impl Comparator) -> MemTableOptions {
    options.comparator(Arc::new(order)).build().unwrap()
}

/// Options of a set whose tables have this order.
pub fn set_under(order: impl Comparator) -> SetOptions {
    SetOptions::builder()
        .table(under(MemTableOptions::builder(), order))
        .build()
        .unwrap()
}

/// The orders that tables are tested under, each with a second definition for the model.
pub mod orders {
    use std::any::Any;
    use std::cmp::Ordering;
    use std::fmt::Debug;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    use paranoid_memtable::{Bytewise, Comparator, KeyEquality, KeyOrder};

    /// An order with a second, plain definition for the model.
    pub trait Order: Comparator + Clone + Default {
        fn plainly(left: &[u8], right: &[u8]) -> Ordering;
    }

    impl Order for Bytewise {
        fn plainly(left: &[u8], right: &[u8]) -> Ordering {
            left.iter().cmp(right.iter())
        }
    }

    /// Bytewise, backwards.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Reverse;

    impl Comparator for Reverse {
        fn name(&self) -> &str {
            "test.Reverse"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Bytes
        }

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Images
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            right.cmp(left)
        }

        fn image(&self, key: &[u8], at: usize) -> u64 {
            !Bytewise.image(key, at)
        }
    }

    impl Order for Reverse {
        fn plainly(left: &[u8], right: &[u8]) -> Ordering {
            right.iter().cmp(left.iter())
        }
    }

    /// ASCII letters that differ in case are equal.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct CaseBlind;

    impl Comparator for CaseBlind {
        fn name(&self) -> &str {
            "test.CaseBlind"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Custom
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            let lower = |byte: &u8| byte.to_ascii_lowercase();
            left.iter().map(lower).cmp(right.iter().map(lower))
        }
    }

    impl Order for CaseBlind {
        fn plainly(left: &[u8], right: &[u8]) -> Ordering {
            left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase())
        }
    }

    /// The functions of an order that is made for one test.
    pub trait Script: Any + Debug + Send + Sync {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

        fn key_order(&self) -> KeyOrder {
            KeyOrder::Custom
        }

        fn image(&self, _key: &[u8], _at: usize) -> u64 {
            0
        }
    }

    /// The orders of single tests as one type, so that the table is compiled once for all of them.
    #[derive(Debug, Clone)]
    pub struct Scripted(Arc<dyn Script>);

    impl Scripted {
        pub fn new(script: impl Script) -> Self {
            Scripted(Arc::new(script))
        }

        pub fn script<S: Script>(&self) -> &S {
            let script: &dyn Any = &*self.0;
            script
                .downcast_ref()
                .expect("the script that it was made of")
        }
    }

    impl Comparator for Scripted {
        fn name(&self) -> &str {
            "test.Scripted"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Bytes
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

    /// The script of an order that is [`Scripted`].
    pub fn script<S: Script>(order: &dyn Comparator) -> &S {
        let order: &dyn Any = order;
        order
            .downcast_ref::<Scripted>()
            .expect("an order that is made for one test")
            .script()
    }

    /// As [`Scripted`], but keys with different bytes may be equal.
    #[derive(Debug, Clone)]
    pub struct ScriptedLoosely(Scripted);

    impl ScriptedLoosely {
        pub fn new(script: impl Script) -> Self {
            ScriptedLoosely(Scripted::new(script))
        }

        pub fn script<S: Script>(&self) -> &S {
            self.0.script()
        }
    }

    impl Comparator for ScriptedLoosely {
        fn name(&self) -> &str {
            "test.ScriptedLoosely"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Custom
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            self.0.compare(left, right)
        }
    }

    /// An order that distinguishes upper case from lower case only for a number of comparisons.
    #[derive(Debug)]
    pub struct Forgetful(AtomicI64);

    impl Forgetful {
        /// An order that forgets only after `forget_after`.
        pub fn new() -> Self {
            Forgetful(AtomicI64::new(i64::MAX))
        }

        /// Makes the order forget after this many comparisons.
        pub fn forget_after(&self, comparisons: i64) {
            self.0.store(comparisons, Relaxed);
        }
    }

    impl Script for Forgetful {
        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            if self.0.fetch_sub(1, Relaxed) > 0 {
                left.cmp(right)
            } else {
                CaseBlind.compare(left, right)
            }
        }
    }
}
