//! All writer shards of a table: how a write enters one, how a `Writer` leases one, and how the
//! freeze closes them.
//!
//! ```text
//!   put()      home of the thread, or another free one, or a new one   (never waits for a writer)
//!   writer()   a shard of its own, leased                              (only a freeze competes)
//!   freeze()   locks each shard once, in order, and marks it frozen    (waits for writers inside)
//! ```
//! * WRITER-SHARDS-1: a write holds its shard's lock, and the state under that lock says whether
//!   the table is frozen. One read-modify-write both enters and asks, so a freeze and a write
//!   cannot miss each other.
//! * WRITER-SHARDS-2: a shard that is made after the freeze began is frozen from the start. A
//!   thread makes a shard under the registry's lock, and the freeze closes the registry under that
//!   lock before it goes from shard to shard. It waits for no writer while it holds that lock.
//! * WRITER-SHARDS-3: a refused write returns only after the freeze has closed every gate, so no
//!   write that begins later is admitted. A thread that is inside another write does not wait,
//!   because the freeze waits for that write.
//!
//! A shard never moves and lives as long as its table, so a write borrows it from there. Any
//! thread. Not promised: which shard a write uses.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::integrity::control_word::{Salt, Words};
use crate::integrity::tag::Secret;
use crate::memtable::shards::homes::{Homes, SECOND};
use crate::memtable::shards::totals::Totals;
use crate::memtable::shards::watched_tombstones::Watches;
use crate::memtable::shards::writer_shard::{Entered, Gate, WriterShard, salt_of};
use crate::sync::{
    Mutex, Ordering, Published, holder_number, home, move_home, processors, thread_number,
};
use crate::tombstone::index::CoveringRun;

/// The largest number of homes for each processor that threads make because they meet. They make
/// more only while a write is inside every home.
const HOMES_OF_PROCESSOR: usize = 4;

/// How many other homes a thread tries before it makes more. While threads are moving to places of
/// their own, most other homes are free.
const LOOKS: usize = 4;

/// The distance from one tried home to the next. It is odd, so `count` tries reach every home.
const STRIDE: usize = 5;

/// All shards of a table.
pub(crate) struct WriterShards {
    homes: Homes<WriterShard>,
    /// The shards of `Writer`s.
    owned: Link,
    /// The registry's lock, and the gate that later shards begin with.
    to_come: Mutex<Gate>,
    /// A freeze holds it while it closes gates.
    closing: Mutex<()>,
    secret: Secret,
    pub(crate) watches: Watches,
}

/// Shards of `Writer`s. Each block has as many shards as all blocks before it, so there are few.
struct Block {
    shards: Box<[Arc<WriterShard>]>,
    next: Link,
}

type Link = Published<Box<Block>>;

impl WriterShards {
    /// Open shards, for a table with this secret.
    #[inline(always)]
    pub(crate) fn new(secret: Secret) -> Self {
        let (homes, owned) = (Homes::new(), Link::new());
        let (to_come, closing) = (Mutex::default(), Mutex::default());
        // Salts of shards have larger numbers, those of filters smaller ones.
        let watches = Watches::new(Salt::new(secret, u64::from(u32::MAX)));
        WriterShards {
            homes,
            owned,
            to_come,
            closing,
            secret,
            watches,
        }
    }

    /// Enters the thread's home for one write, or another free home, or a new one. `None` if the
    /// table is frozen.
    #[inline(always)]
    pub(crate) fn enter_free(&self) -> Option<Entered<'_>> {
        match self.homes.at(home()).and_then(WriterShard::try_enter) {
            Some(entered) => self.admit(entered),
            None => self.admit(self.enter_elsewhere()),
        }
    }

    /// Enters another home than the thread's, or a new one. A thread that met another thread moves
    /// to the home that it found, and begins there from then on, in every table.
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(&self) -> Entered<'_> {
        loop {
            let count = self.homes.count();
            // A thread that is inside its own home (a comparator that writes) has met no other
            // thread: it takes the first free home and does not move.
            let is_met = !self
                .homes
                .at(home())
                .is_some_and(|shard| shard.is_held_by(holder_number()));
            let is_to_grow = count < SECOND || count < HOMES_OF_PROCESSOR * processors();
            let looks = if is_met && is_to_grow {
                LOOKS.min(count)
            } else {
                count
            };
            let (first, stride) = if is_met {
                (thread_number(), STRIDE)
            } else {
                (0, 1)
            };
            for place in (0..looks).map(|look| first.wrapping_add(look * stride) % count) {
                if let Some(entered) = self.homes.at(place).and_then(WriterShard::try_enter) {
                    // A table that has not made the thread's home does not show that it is taken.
                    if is_met && home() < count {
                        move_home(place);
                    }
                    return entered;
                }
            }
            // Under the registry's lock: the new homes have the gate of this moment
            // (WRITER-SHARDS-2).
            let gate = self.to_come.lock();
            self.homes.grow(count, |place| {
                WriterShard::new(*gate, self.secret, 2 * place)
            });
        }
    }

    /// Enters a leased shard. Waits only for a freeze. `None` if the table is frozen.
    #[inline(always)]
    pub(crate) fn enter<'s>(&self, shard: &'s WriterShard) -> Option<Entered<'s>> {
        self.admit(shard.wait())
    }

    /// Admits a write if its gate is open.
    #[inline(always)]
    fn admit<'s>(&self, entered: Entered<'s>) -> Option<Entered<'s>> {
        if entered.inside.frozen == Gate::Open {
            return Some(entered);
        }
        drop(entered);
        self.refuse();
        None
    }

    /// Waits, after a write found its gate closed, until all gates are closed (WRITER-SHARDS-3).
    #[cold]
    fn refuse(&self) {
        if !self.holds_this_thread() {
            drop(self.closing.lock());
        }
    }

    /// Whether this thread is inside a write (SHARD-2).
    fn holds_this_thread(&self) -> bool {
        let this_thread = holder_number();
        self.all().any(|shard| shard.is_held_by(this_thread))
    }

    /// Leases a shard that no `Writer` has, or makes new ones.
    pub(crate) fn lease(&self) -> &Arc<WriterShard> {
        let gate = self.to_come.lock();
        loop {
            // ORDERING: Acquire pairs with the Release in `release`; Relaxed on failure: the next
            // shard is tried.
            let take = |shard: &WriterShard| {
                shard
                    .leased
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            };
            if let Some(free) = self.owned().find(|shard| take(shard).is_ok()) {
                return free;
            }
            let made = self.owned().count();
            let new = |place| Arc::new(WriterShard::new(*gate, self.secret, 2 * place + 1));
            let block = Block {
                shards: (made..made + made.max(1)).map(new).collect(),
                next: Link::new(),
            };
            // Only the owner of the lock publishes a block.
            let _ = self
                .blocks()
                .last()
                .map_or(&self.owned, |last| &last.next)
                .publish(Box::new(block));
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        std::iter::successors(self.owned.get(), |block| block.next.get()).map(|block| &**block)
    }

    /// The shards of `Writer`s.
    fn owned(&self) -> impl Iterator<Item = &Arc<WriterShard>> {
        self.blocks().flat_map(|block| &block.shards)
    }

    /// All shards with their numbers: even for homes, odd for shards of `Writer`s.
    fn numbered(&self) -> impl Iterator<Item = (usize, &WriterShard)> {
        let homes = (0..).step_by(2).zip(self.homes.iter());
        homes.chain((1..).step_by(2).zip(self.owned().map(|shard| &**shard)))
    }

    fn all(&self) -> impl Iterator<Item = &WriterShard> {
        self.numbered().map(|(_, shard)| shard)
    }

    /// Closes every gate and waits for the writers inside (WRITER-SHARDS-1). Sums are exact
    /// afterwards.
    ///
    /// # Errors
    /// `InvalidArgument` from inside a write of this thread, which would wait for itself (SHARD-2).
    /// No gate is closed then.
    pub(crate) fn freeze(&self) -> Result<()> {
        if self.holds_this_thread() {
            return Err(Error::InvalidArgument(
                "freeze was called from inside a write of this thread, as by a comparator".into(),
            ));
        }
        // Refused writes wait for this lock (WRITER-SHARDS-3).
        let _closing = self.closing.lock();
        *self.to_come.lock() = Gate::Frozen;
        for shard in self.all() {
            shard.inside.lock().frozen = Gate::Frozen;
        }
        Ok(())
    }

    /// Runs `set` under the lock of the registry, so that
    /// [`wait_out_writers`](Self::wait_out_writers) waits for it.
    pub(crate) fn while_registry_is_held(&self, set: impl FnOnce()) {
        let _registry = self.to_come.lock();
        set();
    }

    /// Waits until every writer that is inside now has left, except this thread. New writers may
    /// enter meanwhile.
    pub(crate) fn wait_out_writers(&self) {
        drop(self.to_come.lock());
        let this_thread = holder_number();
        let others = self.all().filter(|shard| !shard.is_held_by(this_thread));
        others.for_each(|shard| drop(shard.inside.lock()));
    }

    /// The sums over all shards, exact while no writer is inside.
    pub(crate) fn totals(&self) -> Totals {
        let sums = self.all().map(|shard| shard.counters.read());
        sums.fold(Totals::default(), |sum, shard| sum.plus(&shard))
            .not_below_zero()
    }

    /// The smallest and the largest sequence number written, if any was.
    pub(crate) fn sequences(&self) -> Option<(u64, u64)> {
        let (smallest, largest) = self
            .all()
            .fold((u64::MAX, 0), |(smallest, largest), shard| {
                // ORDERING: Relaxed: see `Counters::add`.
                let low = shard.counters.smallest.load(Ordering::Relaxed);
                // ORDERING: Relaxed: see `Counters::add`.
                let high = shard.counters.largest.load(Ordering::Relaxed);
                (low.min(smallest), high.max(largest))
            });
        (smallest <= largest).then_some((smallest, largest))
    }

    /// The largest sequence number of a point entry in the interval of a tombstone, or a larger
    /// number; 0 without entries. It is larger if the tombstone is not watched, if a shard does not
    /// know it, or if damage or a running store hides the number.
    pub(crate) fn largest_under(&self, run: &CoveringRun) -> u64 {
        let largest = |(number, shard): (usize, &WriterShard)| {
            shard.largest_under(salt_of(self.secret, number), run.number)
        };
        self.numbered().map(largest).max().unwrap_or(0)
    }

    /// Arena bytes that writers have taken and not used, without those of writers inside.
    pub(crate) fn unused_bytes(&self) -> u64 {
        let inside = self.all().filter_map(|shard| shard.inside.try_lock());
        inside.map(|inside| inside.inserter.unused_bytes()).sum()
    }

    /// The control words of every shard.
    pub(crate) fn each_control(&self, secret: Secret, visit: &mut dyn FnMut(Words<'_>)) {
        self.numbered()
            .for_each(|(number, shard)| visit(shard.control.words(salt_of(secret, number))));
    }

    /// Bytes of the shards.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let owned = self.owned().count() * size_of::<WriterShard>();
        (self.homes.heap_bytes() + owned) as u64
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::kind::Kind;

    #[test]
    fn no_sum_is_below_zero_while_a_replacement_is_counted_before_what_it_replaced() {
        let shards = WriterShards::new(Secret::from_seed(1));
        let [first, second] = [(); 2].map(|()| shards.enter_free().unwrap());
        let (old, new) = (Totals::of(Kind::DELETE, 9, 5), Totals::of(Kind::PUT, 4, 7));
        second.count(&new.plus(&old.negated()), 1);
        assert_eq!(
            (shards.totals().deletes, shards.totals().data_bytes),
            (0, 0)
        );
        first.count(&old, 1);
        assert_eq!(shards.totals(), new);
    }
}
