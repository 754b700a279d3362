//! A swapped value: one that all threads load and that is replaced as a whole, such as the set's
//! view.
//!
//! ```text
//!   shard 0   shard 1   ..   shard 15    each has a lock; a thread uses the shard of its number
//!      |         |              |
//!    outer     outer          outer      an Arc of the shard: its readers count here, in a cache
//!       \________|_____________/          line that no other shard writes
//!                |
//!              value
//! ```
//! * SWAPPED-1: a swap locks every shard before it changes the first one. So after one thread has
//!   loaded the new value, no load that begins later returns the old one.
//!
//! Any thread. A load waits for a clone in the same shard, or for a swap. Loads during a swap are
//! not promised to be fair. Why the set does not use `arc-swap`: ARCHITECTURE, rejected answers.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::sibling::{Alone, Mutex, thread_number};

#[cfg(not(loom))]
const SHARDS: usize = 16;
#[cfg(loom)]
const SHARDS: usize = 2;

/// A loaded value: the outer pointer of its shard.
pub(crate) type Loaded<T> = Arc<Alone<Arc<T>>>;

/// A new outer pointer to a value.
fn pointer<T>(value: &Arc<T>) -> Loaded<T> {
    Arc::new(Alone(Arc::clone(value)))
}

/// The outer pointers of all shards to one value. The caller guards them by a lock of its own.
#[derive(Debug)]
pub(crate) struct Pointers<T>(Box<[Loaded<T>; SHARDS]>);

impl<T> Pointers<T> {
    pub(crate) fn to(value: &Arc<T>) -> Self {
        Pointers(Box::new(std::array::from_fn(|_| pointer(value))))
    }

    /// The outer pointers, shard by shard.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Loaded<T>> {
        self.0.iter()
    }

    /// The value, through the shard of this thread.
    #[inline]
    pub(crate) fn get(&self) -> Loaded<T> {
        Arc::clone(&self.0[thread_number() % SHARDS])
    }
}

/// A value that is replaced as a whole.
#[derive(Debug)]
pub(crate) struct Swapped<T> {
    shards: [Alone<Mutex<Loaded<T>>>; SHARDS],
}

impl<T> Swapped<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Swapped {
            shards: std::array::from_fn(|_| Alone(Mutex::new(pointer(&value)))),
        }
    }

    /// The value, through the shard of this thread.
    pub(crate) fn load(&self) -> Loaded<T> {
        self.load_from(thread_number())
    }

    /// The value, through the shard of the thread with this number.
    pub(crate) fn load_from(&self, thread: usize) -> Loaded<T> {
        Arc::clone(&self.shards[thread % SHARDS].lock())
    }

    /// Replaces the value (SWAPPED-1). Returns the old outer pointers: the caller drops them
    /// without a lock.
    pub(crate) fn swap(&self, value: &Arc<T>) -> [Loaded<T>; SHARDS] {
        let guards = self.shards.each_ref().map(|shard| shard.lock());
        guards.map(|mut guard| std::mem::replace(&mut *guard, pointer(value)))
    }
}
