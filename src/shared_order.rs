//! Orders that are chosen at run time: shared trait objects with a name.
//!
//! ```text
//!   MemTable<SharedComparator>     Bytewise: one branch, then the comparison of the default table
//!                                  an order of the engine's user: the same branch, then a virtual call
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::{Bytewise, Comparator, KeyEquality};

/// An order of user keys behind a pointer, with a name: what an engine takes from its users at run time. It keeps what
/// [`Comparator`] asks for.
///
/// ```
/// use std::cmp::Ordering;
/// use std::sync::Arc;
/// use paranoid_memtable::comparator::{DynComparator, KeyEquality, SharedComparator};
///
/// /// Numbers of 8 bytes, little-endian; shorter keys before them.
/// #[derive(Debug)]
/// struct Numbers;
/// impl DynComparator for Numbers {
///     fn name(&self) -> &str {
///         "example.Numbers"
///     }
///     fn equality(&self) -> KeyEquality {
///         KeyEquality::Bytes
///     }
///     fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
///         left.len().cmp(&right.len()).then_with(|| left.iter().rev().cmp(right.iter().rev()))
///     }
/// }
/// let order: Arc<dyn DynComparator> = Arc::new(Numbers);
/// assert_eq!(order.compare(&[0, 1], &[1, 0]), Ordering::Greater);
/// assert_eq!(SharedComparator::new(order)?.name(), "example.Numbers");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait DynComparator: fmt::Debug + Send + Sync + 'static {
    /// The name under which an engine writes down this order, so that nobody opens its files under another one.
    fn name(&self) -> &str;

    /// Whether equality under this order is equality of bytes.
    fn equality(&self) -> KeyEquality;

    /// Compares two user keys.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

    /// A number that preserves the order, as [`Comparator::prefix`] has it: answers `None` for every key, as if not
    /// said otherwise, or for none. It saves comparisons, at the price of a call.
    fn prefix(&self, key: &[u8]) -> Option<u64> {
        let _ = key;
        None
    }
}

/// A shared order with a name: one type of table for whatever order an engine's user chooses. The default is the order
/// of bytes, which costs one branch more a comparison than in a `MemTable<Bytewise>`; any other costs a virtual call.
///
/// ```
/// use std::cmp::Ordering;
/// use std::sync::Arc;
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// use paranoid_memtable::comparator::{DynComparator, KeyEquality, SharedComparator};
///
/// #[derive(Debug)]
/// struct Reverse;
/// impl DynComparator for Reverse {
///     fn name(&self) -> &str {
///         "example.Reverse"
///     }
///     fn equality(&self) -> KeyEquality {
///         KeyEquality::Bytes
///     }
///     fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
///         right.cmp(left)
///     }
/// }
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// for (order, first) in [
///     (SharedComparator::default(), b"a"),
///     (SharedComparator::new(Arc::new(Reverse))?, b"b"),
/// ] {
///     let table: MemTable<SharedComparator> = MemTable::with_comparator(MemTableOptions::default(), order)?;
///     table.put(1, b"a", b"")?;
///     table.put(2, b"b", b"")?;
///     assert_eq!(table.cursor().first()?.map(|entry| entry.user_key()), Some(first.as_slice()));
///     println!("ordered by {}", table.comparator().name());
/// }
/// # Ok(()) }
/// ```
///
/// Its keys are equal only if their bytes are, so that filters and the point index may hash them. An order that takes
/// different bytes for one key is a type of the engine's own that implements [`Comparator`].
#[derive(Clone, Default)]
pub struct SharedComparator {
    order: Order,
}

#[derive(Clone, Default)]
enum Order {
    #[default]
    Bytewise,
    /// An order without prefixes.
    Plain(Arc<dyn DynComparator>),
    Prefixed(Arc<dyn DynComparator>),
}

impl SharedComparator {
    /// This order.
    ///
    /// # Errors
    /// `InvalidArgument` for an order under which different bytes may be equal.
    pub fn new(order: Arc<dyn DynComparator>) -> Result<Self> {
        if order.equality() != KeyEquality::Bytes {
            return Err(Error::InvalidArgument(
                "a shared comparator's keys are equal only if their bytes are".to_owned(),
            ));
        }
        let order = if order.prefix(&[]).is_some() { Order::Prefixed(order) } else { Order::Plain(order) };
        Ok(SharedComparator { order })
    }

    /// Its name; that of the order of bytes is `leveldb.BytewiseComparator`, as in RocksDB.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.order {
            Order::Bytewise => "leveldb.BytewiseComparator",
            Order::Plain(order) | Order::Prefixed(order) => order.name(),
        }
    }
}

impl fmt::Debug for SharedComparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedComparator").field(&self.name()).finish()
    }
}

impl Comparator for SharedComparator {
    const EQUALITY: KeyEquality = KeyEquality::Bytes;

    #[inline(always)]
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        match &self.order {
            Order::Bytewise => Bytewise.compare(left, right),
            Order::Plain(order) | Order::Prefixed(order) => order.compare(left, right),
        }
    }

    #[inline(always)]
    fn prefix(&self, key: &[u8]) -> u64 {
        match &self.order {
            Order::Bytewise => Bytewise.prefix(key),
            Order::Plain(_) => 0,
            Order::Prefixed(order) => order.prefix(key).unwrap_or(0),
        }
    }
}
