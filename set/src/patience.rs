//! Patience: how long a thread looks and yields before it sleeps, for events within microseconds.
//!
//! ```text
//!   look .. look      with `pause` in between: helps where processors are idle
//!   yield .. yield    helps where there are more threads than processors
//!   sleep             by the caller: to sleep and wake takes longer than all of the above
//! ```
//! How often a thread looks and yields adapts, as in RocksDB's `AdaptiveWaitByYield`: more often
//! after each time that it helped, less often after each time that it did not.
//!
//! Any thread. Under loom, threads do not look or yield.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{AtomicU64, Ordering};

/// The most looks of a wait: some microseconds.
const LOOKS: u64 = 32;
/// `pause` instructions before each look.
const PAUSES: u64 = 4;
/// The most yields of a wait.
const YIELDS: u64 = 100;
/// Parts of a look or a yield, in which counts are kept. Below one look, each wait adds a part, so
/// a look is tried again after at most this many waits.
const PARTS: u64 = 16;

/// How often to look and to yield for one kind of event, in `PARTS`.
#[derive(Debug)]
pub(crate) struct Patience {
    looks: AtomicU64,
    yields: AtomicU64,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Patience {
            looks: AtomicU64::new(LOOKS * PARTS),
            yields: AtomicU64::new(YIELDS * PARTS),
        }
    }

    /// Looks and yields until `is_over` returns true. Returns false when it is time to sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(&self, mut is_over: impl FnMut() -> bool) -> bool {
        let look = || (0..PAUSES).for_each(|_| std::hint::spin_loop());
        !cfg!(loom)
            && (repeat(&self.looks, LOOKS, look, &mut is_over)
                || repeat(&self.yields, YIELDS, std::thread::yield_now, &mut is_over))
    }
}

/// Calls `pass` and then `is_over`, as often as helped lately. `often` counts parts.
fn repeat(
    often: &AtomicU64,
    most: u64,
    mut pass: impl FnMut(),
    is_over: &mut impl FnMut() -> bool,
) -> bool {
    // ORDERING: Relaxed: a hint. No thread relies on the count of another.
    let parts = often.load(Ordering::Relaxed);
    let times = parts / PARTS;
    let has_helped = (0..times).any(|_| {
        pass();
        is_over()
    });
    let next = match times {
        _ if has_helped => (parts + parts / 8 + PARTS).min(most * PARTS),
        0 => parts + 1,
        _ => parts / 2,
    };
    if next != parts {
        // ORDERING: Relaxed: a hint, as above.
        often.store(next, Ordering::Relaxed);
    }
    has_helped
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread that looks in vain soon stops looking, and looks again once it helps.
    #[test]
    fn patience_adapts() {
        let patience = Patience::new();
        let looks = |helps: bool| {
            let mut looks = 0;
            let is_over = || {
                looks += 1;
                helps
            };
            assert!(!patience.wait(is_over) || helps);
            looks
        };
        assert_eq!(looks(false), LOOKS + YIELDS);
        let vain: Vec<u64> = (0..1000).map(|_| looks(false)).collect();
        assert!(vain.iter().sum::<u64>() < 1000, "{vain:?}");
        let helped: u64 = (0..100).map(|_| looks(true)).sum();
        assert!(helped > 50, "{helped}");
        let often = looks(false);
        assert!((LOOKS / 2..=LOOKS + YIELDS).contains(&often), "{often}");
    }
}
