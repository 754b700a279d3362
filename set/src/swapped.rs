//! One value that all threads read and that is replaced as a whole: the set's view, or its active
//! table.
//!
//! ```text
//!   shard 0   shard 1   ..   shard 15       a lock each; a thread uses the shard of its number
//!      |         |              |
//!    outer     outer          outer         an Arc of the shard's own: readers count here, in a line of its own
//!       \________|_____________/
//!                |
//!              value
//! ```
//! * SWAPPED-1: a swap locks every shard before it changes the first one. So once one thread has
//!   loaded the new value, no load that begins later returns the old one.
//! * SWAPPED-2: readers of different shards write no common cache line.
//!
//! Any thread; a load waits for at most one clone of the same shard, or for a swap. Loads under a
//! swap are not promised to be fair. A pointer swapped by a crate would need no lock at all; why
//! this one is here: ARCHITECTURE, rejected answers.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::sibling::{Alone, Mutex, thread_number};

#[cfg(not(loom))]
const SHARDS: usize = 16;
#[cfg(loom)]
const SHARDS: usize = 2;

/// A loaded value. The outer pointer is the shard's own.
pub(crate) type Loaded<T> = Arc<Alone<Arc<T>>>;

fn pointer<T>(value: &Arc<T>) -> Loaded<T> {
    Arc::new(Alone(Arc::clone(value)))
}

/// A pointer of each shard to one value, which is loaded and replaced under a lock of the caller's.
#[derive(Debug)]
pub(crate) struct Pointers<T>(Box<[Loaded<T>; SHARDS]>);

impl<T> Pointers<T> {
    pub(crate) fn to(value: &Arc<T>) -> Self {
        Pointers(Box::new(std::array::from_fn(|_| pointer(value))))
    }

    /// The pointers of all shards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Loaded<T>> {
        self.0.iter()
    }

    /// The value, by the shard of this thread.
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

    /// The value.
    pub(crate) fn load(&self) -> Loaded<T> {
        self.load_from(thread_number())
    }

    /// The value, by the shard of this thread number.
    pub(crate) fn load_from(&self, thread: usize) -> Loaded<T> {
        Arc::clone(&self.shards[thread % SHARDS].lock())
    }

    /// Replaces the value (SWAPPED-1). Returns what the shards held, to be dropped without a lock.
    pub(crate) fn swap(&self, value: &Arc<T>) -> [Loaded<T>; SHARDS] {
        let guards = self.shards.each_ref().map(|shard| shard.lock());
        guards.map(|mut guard| std::mem::replace(&mut *guard, pointer(value)))
    }
}
