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
use crate::key::{Bytewise, Comparator, KeyEquality, KeyOrder, bytes_at};

/// A named order of user keys as a trait object, which an engine takes from its users at run time. It must meet the
/// contract of [`Comparator`].
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
    /// The name of this order, which an engine stores with its files, so that they are not opened under another one.
    fn name(&self) -> &str;

    /// Whether equal keys have equal bytes.
    fn equality(&self) -> KeyEquality;

    /// Compares two user keys.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

    /// What the bytes of keys tell about this order: always the same. The default is `Custom`.
    fn key_order(&self) -> KeyOrder {
        KeyOrder::Custom
    }

    /// Eight bytes of a key's image, see [`Comparator::image`]. Orders by [`KeyOrder::Images`] alone are asked for it. The
    /// default gives all keys the same image.
    fn image(&self, key: &[u8], at: usize) -> u64 {
        let _ = (key, at);
        0
    }
}

/// A shared order with a name, so that one type of table serves every order that an engine's user chooses. The
/// default is the order of bytes, which takes one branch more per comparison than in a `MemTable<Bytewise>`; any
/// other order takes a virtual call.
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
/// Equal keys must have equal bytes, because filters hash them. For another order an engine
/// implements [`Comparator`] on a type of its own.
#[derive(Clone, Default)]
pub struct SharedComparator {
    order: Order,
}

#[derive(Clone, Default)]
enum Order {
    #[default]
    Bytewise,
    Chosen {
        order: Arc<dyn DynComparator>,
        keys: KeyOrder,
    },
}

impl SharedComparator {
    /// A comparator of this order.
    ///
    /// # Errors
    /// `InvalidArgument` for an order under which different bytes may be equal.
    pub fn new(order: Arc<dyn DynComparator>) -> Result<Self> {
        if order.equality() != KeyEquality::Bytes {
            return Err(Error::InvalidArgument(
                "a shared comparator's keys are equal only if their bytes are".to_owned(),
            ));
        }
        let keys = order.key_order();
        Ok(SharedComparator { order: Order::Chosen { order, keys } })
    }

    /// The name of the order; that of the order of bytes is `leveldb.BytewiseComparator`, as in RocksDB.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.order {
            Order::Bytewise => "leveldb.BytewiseComparator",
            Order::Chosen { order, .. } => order.name(),
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
            Order::Chosen { order, .. } => order.compare(left, right),
        }
    }

    #[inline(always)]
    fn key_order(&self) -> KeyOrder {
        match &self.order {
            Order::Bytewise => KeyOrder::Bytes,
            Order::Chosen { keys, .. } => *keys,
        }
    }

    #[inline(always)]
    fn image(&self, key: &[u8], at: usize) -> u64 {
        match &self.order {
            Order::Bytewise | Order::Chosen { keys: KeyOrder::Bytes, .. } => bytes_at(key, at),
            Order::Chosen { keys: KeyOrder::Custom, .. } => 0,
            Order::Chosen { order, keys: KeyOrder::Images } => order.image(key, at),
        }
    }
}
