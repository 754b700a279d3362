//! The only source of atomics, locks and waiting, and of the numbers of threads. Atomics and locks
//! are those of std, or those of loom under `cfg(loom)`.
//!
//! No other file may name `std::sync::atomic` or a lock; a test checks that.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::time::Duration;

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicU32;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicU32;

/// Loom's cell, which reports data races. Only models use it.
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(loom))]
use std::sync as locks;

#[cfg(loom)]
use loom::sync as locks;

/// A mutex that ignores poisoning: every critical section leaves the data consistent even if a
/// comparator panics in it.
#[derive(Debug, Default)]
pub struct Mutex<T>(locks::Mutex<T>);

/// The guard of a [`Mutex`].
pub type MutexGuard<'a, T> = locks::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Mutex(locks::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The lock, unless it is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition variable, on which threads that hold a [`Mutex`] wait. A wait may end without a
/// notification.
#[derive(Debug)]
pub struct Condvar(locks::Condvar);

impl Condvar {
    /// A condition variable without waiting threads.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Condvar(locks::Condvar::new())
    }

    /// Releases the lock, waits, and takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits as `wait` does, for `most` at the longest. Loom has no time, and waits for a
    /// notification.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        most: Duration,
    ) -> MutexGuard<'a, T> {
        self.0
            .wait_timeout(guard, most)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .0
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A value in cache lines of its own. So a write to the memory beside it does not take these lines
/// away from other processors.
#[derive(Debug)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

impl<T> std::ops::Deref for Alone<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A cell that is filled once, by one release store, and never changes after that.
///
/// Loom does not see into `OnceLock`, so in models an atomic flag publishes the value.
pub(crate) struct Published<T> {
    #[cfg(loom)]
    ready: AtomicU32,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for Published<T> {
    fn default() -> Self {
        Published::new()
    }
}

impl<T> Published<T> {
    pub(crate) fn new() -> Self {
        Published {
            #[cfg(loom)]
            ready: AtomicU32::new(0),
            value: std::sync::OnceLock::new(),
        }
    }

    /// The published value, if there is one. One acquire load.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        #[cfg(loom)]
        // ORDERING: acquire; partner: the release store in `publish`.
        if self.ready.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.value.get()
    }

    /// Takes the published value out.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    /// The published value, for the owner of the cell.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Fills the cell, or returns `value` if another thread was first. The other thread's value may
    /// become visible a moment later.
    pub(crate) fn publish(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        #[cfg(loom)]
        // ORDERING: release; partner: the acquire load in `get`.
        self.ready.store(1, Ordering::Release);
        Ok(())
    }

    /// The published value. If there is none, publishes the result of `make`, and calls `kept` with
    /// it. If two threads call `make` at the same time, only one result is published.
    pub(crate) fn get_or_publish(&self, make: impl FnOnce() -> T, kept: impl FnOnce(&T)) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let first = self.publish(make()).is_ok();
        loop {
            if let Some(value) = self.get() {
                if first {
                    kept(value);
                }
                return value;
            }
            yield_now();
        }
    }
}

/// Yields to other threads, in loops that wait for one of them.
pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// A process-wide counter. Loom does not model it.
pub(crate) struct Counter(std::sync::atomic::AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Self {
        Counter(std::sync::atomic::AtomicU64::new(0))
    }

    /// 0, 1, 2, ...
    pub(crate) fn next(&self) -> u64 {
        // ORDERING: Relaxed: numbers only need to differ.
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// The number of this thread, which it gets at its first call.
#[inline(always)]
pub fn thread_number() -> usize {
    thread_local!(static NUMBER: Cell<Option<u32>> = const { Cell::new(None) });
    NUMBER.with(|number| number.get().unwrap_or_else(|| give_number(number))) as usize
}

#[cold]
#[inline(never)]
fn give_number(number: &Cell<Option<u32>>) -> u32 {
    static THREADS: Counter = Counter::new();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only its low bits are used"
    )]
    let new = THREADS.next() as u32;
    number.set(Some(new));
    new
}

#[cfg(not(loom))]
thread_local!(static HOME: Cell<u32> = const { Cell::new(0) });
#[cfg(loom)]
loom::thread_local!(static HOME: Cell<u32> = Cell::new(0));

/// The home of this thread: the place of its writer shards in every table. 0 until the thread
/// moves.
#[inline(always)]
pub(crate) fn home() -> usize {
    HOME.with(|home| home.get()) as usize
}

/// Moves this thread to another home.
pub(crate) fn move_home(place: usize) {
    HOME.with(|home| home.set(u32::try_from(place).unwrap_or(0)));
}

/// Number of processors that this process may use, or 1 if the system does not say. The system is
/// asked once.
pub(crate) fn processors() -> usize {
    static PROCESSORS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *PROCESSORS
        .get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// A number that no other thread has; never 0. It names the holder of a lock.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn holder_number() -> u64 {
    thread_number() as u64 + 1
}

/// A number that no other thread of a model has; never 0. Loom runs all of them on one system
/// thread.
#[cfg(loom)]
pub(crate) fn holder_number() -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() | 1
}

/// The parts of loom, besides atomics, that models use.
#[cfg(loom)]
pub mod model {
    pub use loom::sync::Arc;
    pub use loom::thread::{JoinHandle, spawn, yield_now};

    /// Runs `body` under every schedule with at most two preemptions; `LOOM_MAX_PREEMPTIONS` sets
    /// another number. `LOOM_MAX_DURATION` ends the run after so many seconds.
    pub fn check(body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.max_branches = 100_000;
        builder.check(body);
    }
}
