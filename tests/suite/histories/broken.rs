//! Stores that break a few of their calls. Histories of them must be rejected, or the checks of the others say nothing.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stores::{Freezes, OneTable, Store, Tables};
use super::{Batches, Call, Change, Known, history};
use crate::support::linearizable::{Clock, Recorded, linearize};
use crate::support::rng::{Rng, seed_or};
use crate::support::watchdog::Watchdog;

/// What a broken call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// Answers with what an older snapshot sees, and says that this is what is there now.
    StaleRead,
    /// Answers with what was there before the first write, and says so.
    ReadOfTheBeginning,
    /// A batch that is said to be written and is not.
    LostWrite,
    /// Half of a batch is not written.
    TornBatch,
}

/// A store that breaks so many calls.
struct Broken<S: Store> {
    store: S,
    how: Break,
    left: AtomicU64,
    beginning: S::Pin,
    /// The last read that was not broken.
    earlier: Mutex<Option<S::Pin>>,
}

thread_local! {
    /// Whether a write of this thread has returned: the thread may not read what was there before.
    static WROTE: Cell<bool> = const { Cell::new(false) };
}

impl<S: Store> Broken<S> {
    fn new(store: S, how: Break, calls: u64) -> Self {
        let (beginning, left) = (store.pin(), AtomicU64::new(calls));
        Broken { store, how, left, beginning, earlier: Mutex::new(None) }
    }

    /// Whether one more call is to be broken.
    fn takes_one(&self) -> bool {
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
    }
}

/// A key that nobody reads, in place of an entry that is lost.
const LOST: Change = Change::Delete(u16::MAX);

impl<S: Store> Store for Broken<S>
where
    S::Pin: Sync,
{
    type Pin = S::Pin;

    fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>) {
        let mut arriving = changes.clone();
        let whole = match self.how {
            Break::LostWrite => false,
            Break::TornBatch => changes.len() < 2,
            _ => true,
        };
        if !whole && self.takes_one() {
            let kept = if self.how == Break::LostWrite { 0 } else { changes.len() / 2 };
            arriving[kept..].fill(LOST);
        }
        self.store.write(clock, arriving, calls);
        // What the caller believes.
        if let Some(Recorded { call: Call::Write { changes: told, .. }, .. }) = calls.last_mut() {
            *told = changes;
        }
        WROTE.set(true);
    }

    fn read(&self, pin: Option<&S::Pin>, keys: &[u16], rng: &mut Rng) -> (u64, Vec<(u16, Known)>) {
        let (at, found) = self.store.read(pin, keys, rng);
        if pin.is_some() || !WROTE.get() {
            return (at, found);
        }
        match self.how {
            Break::ReadOfTheBeginning if self.takes_one() => {
                return self.store.read(Some(&self.beginning), keys, rng);
            }
            Break::StaleRead => {
                let earlier = self.earlier.lock().unwrap().replace(self.store.pin());
                let stale = self.store.read(Some(earlier.as_ref().unwrap_or(&self.beginning)), keys, rng);
                if stale.1 != found && self.takes_one() {
                    return (at, stale.1);
                }
            }
            _ => {}
        }
        (at, found)
    }

    fn pin(&self) -> S::Pin {
        self.store.pin()
    }

    fn upkeep(&self, clock: &Clock, rng: &mut Rng, calls: &mut Vec<Recorded<Call>>) {
        self.store.upkeep(clock, rng, calls);
    }
}

fn is_rejected<S: Store>(store: S, how: Break, calls: u64, seed: u64) -> bool
where
    S::Pin: Sync,
{
    let broken = Broken::new(store, how, calls);
    let verdict = linearize::<Batches>(&history(&broken, seed));
    assert!(broken.left.into_inner() < calls, "a call was broken");
    verdict.is_err()
}

#[test]
fn broken_stores_are_rejected() {
    let test = "histories::broken::broken_stores_are_rejected";
    let seed = seed_or(0xb40);
    let _watchdog = Watchdog::new(test, seed);
    let ways = [Break::StaleRead, Break::ReadOfTheBeginning, Break::LostWrite, Break::TornBatch];
    for (how, calls) in ways.into_iter().flat_map(|how| [1, 2, 4].map(|calls| (how, calls))) {
        for seed in seed..seed + 6 {
            assert!(is_rejected(Tables::new(seed), how, calls, seed), "{how:?} {calls} of a set: {seed:#x}");
            assert!(
                is_rejected(OneTable::new(seed, Freezes::Never), how, calls, seed),
                "{how:?} {calls} of a table: {seed:#x}"
            );
        }
    }
}
