//! Waiting by looking: for what another thread does within microseconds.
//!
//! ```text
//!   look .. look      `pause` in between: helps where there are processors to spare
//!   yield .. yield    helps where there are more threads than processors
//!   sleep             is up to the caller: to sleep and to be woken takes longer than all of that
//! ```
//! How often a thread looks and yields adapts (as in RocksDB's `AdaptiveWaitByYield`): more often
//! each time that it helped, less often each time that it did not.
//!
//! Any thread. Under loom nothing but a sleep waits.

#![forbid(unsafe_code)]

use paranoid_memtable::sibling::{AtomicU64, Ordering};

/// The most looks: some microseconds.
const LOOKS: u64 = 32;
/// The `pause` instructions of a look.
const PAUSES: u64 = 4;
/// The most yields.
const YIELDS: u64 = 100;
/// Parts of a look, or of a yield. Where none helped lately, one is tried again after so many
/// waits.
const PARTS: u64 = 16;

/// How long it helps to wait for one kind of event.
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

    /// Looks until `is_over` says so. Returns false once it is time to sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(&self, mut is_over: impl FnMut() -> bool) -> bool {
        let look = || (0..PAUSES).for_each(|_| std::hint::spin_loop());
        !cfg!(loom)
            && (repeat(&self.looks, LOOKS, look, &mut is_over)
                || repeat(&self.yields, YIELDS, std::thread::yield_now, &mut is_over))
    }
}

/// Passes time and asks, as often as that helped lately. `often` counts parts.
fn repeat(
    often: &AtomicU64,
    most: u64,
    mut pass: impl FnMut(),
    is_over: &mut impl FnMut() -> bool,
) -> bool {
    // ORDERING: Relaxed: a hint; no thread relies on what another one noted.
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

    /// A thread that waits in vain soon looks no longer, and notices when looking helps again.
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
