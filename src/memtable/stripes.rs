//! What writers own while they write: gates, counters, sub-chunks. No line of it is shared by all of them.
//!
//! ```text
//!   put()      home stripe of the thread, or the next free one, or a new one      (try_lock, never waits for a writer)
//!   writer()   a stripe of its own, leased                                        (lock, only a freeze competes)
//!   freeze()   locks each stripe once, in order, and marks it frozen              (waits out the writers inside)
//! ```
//! * E1: a write runs inside its stripe's lock; the lock's state says whether the table is frozen. One read-modify-write
//!   both enters and asks, so a freeze and a write cannot miss each other.
//! * E2: counters are written by the lock's owner alone and read by anybody; sums are exact once no writer is inside.
//! * E3: a stripe that is made after the freeze began is made frozen: making one takes the registry's lock, and the
//!   freeze says so under it before it goes from stripe to stripe. It waits for no writer while it holds that lock.
//! * E4: a stripe names the thread that is inside. Only that thread writes its own number there and takes it away again,
//!   so whoever reads its own number there is inside: a comparator that calls back into its table. It is never waited for.
//!
//! Any thread. Not promised: which stripe a write uses.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::integrity::guarded::{Guarded, Words};
use crate::integrity::tags::Secret;
use crate::invariants::{Bug, planted};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::list::Inserter;
use crate::memtable::vector::new_chain;
use crate::sync::{AtomicU64, Counter, Mutex, MutexGuard, Ordering};

/// Stripes that exist from the start.
#[cfg(not(loom))]
const FIRST: usize = 8;
#[cfg(loom)]
const FIRST: usize = 2;

/// Sums over a table's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Point entries and range tombstones that reads may find.
    pub(crate) entries: u64,
    /// Point tombstones among them.
    pub(crate) deletes: u64,
    /// Range tombstones among them.
    pub(crate) range_deletes: u64,
    /// Bytes of their keys and values.
    pub(crate) data_bytes: u64,
    /// Sum of their stored key digests, wrapping.
    pub(crate) digest_sum: u64,
    /// Entries that a replacing one hides.
    pub(crate) displaced: u64,
}

/// One stripe's counters (E2).
#[derive(Debug)]
struct Counters {
    totals: [AtomicU64; 6],
    smallest: AtomicU64,
    largest: AtomicU64,
}

impl Counters {
    fn new() -> Self {
        Counters {
            totals: std::array::from_fn(|_| AtomicU64::new(0)),
            smallest: AtomicU64::new(u64::MAX),
            largest: AtomicU64::new(0),
        }
    }

    /// Adds, as the only writer.
    #[inline(always)]
    fn add(&self, change: &Totals, sequence: u64) {
        let [entries, deletes, range_deletes, data_bytes, digest_sum, displaced] = &self.totals;
        let bump = |counter: &AtomicU64, by: u64| {
            // ORDERING: Relaxed: written by the lock's owner alone (E2); a reader that needs exact sums has
            // locked the stripe after the writer left.
            let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
            // ORDERING: Relaxed: as above.
            counter.store(sum, Ordering::Relaxed);
        };
        bump(entries, change.entries);
        bump(data_bytes, change.data_bytes);
        bump(digest_sum, change.digest_sum);
        if change.deletes | change.range_deletes | change.displaced != 0 {
            bump(deletes, change.deletes);
            bump(range_deletes, change.range_deletes);
            bump(displaced, change.displaced);
        }
        // ORDERING: Relaxed: as above.
        if sequence < self.smallest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: as above.
            self.smallest.store(sequence, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: as above.
        if sequence > self.largest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: as above.
            self.largest.store(sequence, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Totals {
        // ORDERING: Relaxed: see `add`.
        Totals::from_array(std::array::from_fn(|i| self.totals[i].load(Ordering::Relaxed)))
    }
}

impl Totals {
    pub(crate) fn as_array(&self) -> [u64; 6] {
        [self.entries, self.deletes, self.range_deletes, self.data_bytes, self.digest_sum, self.displaced]
    }

    fn from_array(from: [u64; 6]) -> Self {
        let [entries, deletes, range_deletes, data_bytes, digest_sum, displaced] = from;
        Totals { entries, deletes, range_deletes, data_bytes, digest_sum, displaced }
    }

    /// Both, wrapping.
    pub(crate) fn plus(&self, other: &Totals) -> Totals {
        let (left, right) = (self.as_array(), other.as_array());
        Totals::from_array(std::array::from_fn(|i| left[i].wrapping_add(right[i])))
    }

    /// The change that takes these away again.
    pub(crate) fn negated(&self) -> Totals {
        Totals::from_array(self.as_array().map(u64::wrapping_neg))
    }
}

/// What the lock of a stripe guards.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    frozen: Gate,
    /// The writer's sub-chunk and splice.
    pub(crate) inserter: Inserter,
}

/// Whether writes may enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Gate {
    #[default]
    Open,
    Frozen,
}

/// A stripe's control words, by index: the lock's owner sets them (E2).
type Control = Guarded<2>;
/// The sentinel of the stripe's chain (representation `Vector`); 0 until its first write.
const CHAIN: usize = 0;
/// The largest sequence number of its point entries: what tells a scan that nothing in a deleted run can be shown.
const LARGEST_POINT: usize = 1;

/// One stripe, on lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Stripe {
    inside: Mutex<Inside>,
    counters: Counters,
    control: Control,
    /// 1 while a `Writer` has it.
    leased: AtomicU64,
    /// The number of the thread that is inside, plus one; 0 without one (E4).
    holder: AtomicU64,
}

/// A write that is inside the gate.
#[derive(Debug)]
pub(crate) struct Entered<'s> {
    pub(crate) inside: MutexGuard<'s, Inside>,
    stripe: &'s Stripe,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDERING: Relaxed: only this thread asks for its own number (E4).
        self.stripe.holder.store(0, Ordering::Relaxed);
    }
}

impl Entered<'_> {
    /// The stripe's chain, made if it is not there. The lock makes this writer the only one who sets it.
    pub(crate) fn chain(&mut self, view: &View<'_>) -> Result<u32> {
        let control = &self.stripe.control;
        // Nobody else sets it: 0 is believed only where its check agrees.
        let believed = planted(Bug::ChainWordBelieved);
        let known = if believed { control.get_so_far(CHAIN)? } else { control.get(CHAIN)? };
        if known != 0 {
            #[expect(clippy::cast_possible_truncation, reason = "set from 32 bits")]
            return Ok(known as u32);
        }
        let sentinel = new_chain(view, &mut self.inside.inserter.sub)?;
        control.set(CHAIN, u64::from(sentinel));
        Ok(sentinel)
    }

    /// Counts a write.
    #[inline]
    pub(crate) fn count(&self, change: &Totals, sequence: u64) {
        let control = &self.stripe.control;
        self.stripe.counters.add(change, sequence);
        let (known, mismatch) = control.get_with_mismatch(control.salt(), LARGEST_POINT);
        // A word that is damaged stays so: readers take it for the largest number there is.
        if sequence > known && mismatch == 0 && change.range_deletes == 0 {
            control.set(LARGEST_POINT, sequence);
        }
    }
}

/// What came of an attempt to enter.
enum Attempt<'s> {
    Inside(Entered<'s>),
    Busy,
    Frozen,
}

impl Stripe {
    fn new(frozen: Gate, secret: Secret, number: usize) -> Self {
        Stripe {
            inside: Mutex::new(Inside { frozen, inserter: Inserter::default() }),
            counters: Counters::new(),
            // Stretches of the arena have smaller names.
            control: Guarded::new(secret, 1 << 32 | number as u64),
            leased: AtomicU64::new(0),
            holder: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn try_enter(&self) -> Attempt<'_> {
        match self.inside.try_lock() {
            Some(inside) => self.admitted(inside),
            None => Attempt::Busy,
        }
    }

    #[inline(always)]
    fn admitted<'s>(&'s self, inside: MutexGuard<'s, Inside>) -> Attempt<'s> {
        if inside.frozen == Gate::Frozen && !planted(Bug::GateIgnoresFreeze) {
            return Attempt::Frozen;
        }
        // ORDERING: Relaxed: only this thread asks for its own number (E4).
        self.holder.store(holder_number(), Ordering::Relaxed);
        Attempt::Inside(Entered { inside, stripe: self })
    }

    /// Whether this thread is inside (E4).
    fn is_held_by_this_thread(&self) -> bool {
        // ORDERING: Relaxed: this thread's own number was written by itself.
        self.holder.load(Ordering::Relaxed) == holder_number()
    }

    /// Waits until whoever is inside now has left; for this thread itself it does not wait.
    fn wait_out_writer(&self) {
        if !self.is_held_by_this_thread() {
            drop(self.inside.lock());
        }
    }

    /// The chain's sentinel, 0 without one. A writer that is just setting it is waited out: a word that was zeroed must
    /// not read as none.
    fn settled_chain(&self) -> Result<u64, Corruption> {
        if planted(Bug::ChainWordBelieved) {
            return self.control.get_so_far(CHAIN);
        }
        self.control.get(CHAIN).or_else(|_| {
            self.wait_out_writer();
            self.control.get(CHAIN)
        })
    }

    /// Waits for its owner.
    #[inline]
    fn wait(&self) -> Attempt<'_> {
        self.admitted(self.inside.lock())
    }

    /// Enters as the stripe's lessee; waits only for a freeze.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        match self.wait() {
            Attempt::Inside(entered) => Some(entered),
            _ => None,
        }
    }

    /// Gives the lease back.
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `Stripes::lease`; the state itself is behind the lock.
        self.leased.store(0, Ordering::Release);
    }
}

/// A stripe that was leased for one write.
struct Leased(Arc<Stripe>);

impl Drop for Leased {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// All stripes of a table.
#[derive(Debug)]
pub(crate) struct Stripes {
    first: [Stripe; FIRST],
    more: Mutex<More>,
    secret: Secret,
}

#[derive(Debug, Default)]
struct More {
    stripes: Vec<Arc<Stripe>>,
    frozen: Gate,
}

/// A number for this thread, given at its first write.
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    thread_local!(static NUMBER: Cell<Option<u32>> = const { Cell::new(None) });
    NUMBER.with(|number| number.get().unwrap_or_else(|| give_number(number))) as usize
}

#[cold]
#[inline(never)]
fn give_number(number: &Cell<Option<u32>>) -> u32 {
    static THREADS: Counter = Counter::new();
    #[expect(clippy::cast_possible_truncation, reason = "only its low bits are used")]
    let new = THREADS.next() as u32;
    number.set(Some(new));
    new
}

/// What a stripe's `holder` says of this thread.
#[inline(always)]
fn holder_number() -> u64 {
    #[cfg(loom)]
    return crate::sync::model_thread();
    #[cfg(not(loom))]
    return thread_number() as u64 + 1;
}

impl Stripes {
    /// Open stripes; the secret is the table's.
    pub(crate) fn new(secret: Secret) -> Self {
        let first = std::array::from_fn(|number| Stripe::new(Gate::Open, secret, number));
        Stripes { first, more: Mutex::new(More::default()), secret }
    }

    /// Tries the thread's home stripe and then the others.
    #[inline(always)]
    fn try_enter(&self) -> Attempt<'_> {
        let home = thread_number();
        for i in 0..FIRST {
            match self.first[(home + i) % FIRST].try_enter() {
                Attempt::Busy => {}
                attempt => return attempt,
            }
        }
        Attempt::Busy
    }

    /// Runs a write inside a stripe that is free; makes one if none is. A frozen table answers what `frozen` says.
    #[inline]
    pub(crate) fn write<R>(
        &self,
        write: impl FnOnce(&mut Entered<'_>) -> R,
        frozen: impl FnOnce() -> R,
    ) -> R {
        // Given back after the write has left it, also where a comparator panics.
        let leased;
        let mut attempt = self.try_enter();
        if let Attempt::Busy = attempt {
            leased = Leased(self.lease());
            attempt = leased.0.wait();
        }
        match attempt {
            Attempt::Inside(mut entered) => write(&mut entered),
            _ => frozen(),
        }
    }

    /// A stripe for one writer alone.
    pub(crate) fn lease(&self) -> Arc<Stripe> {
        let mut more = self.more.lock();
        for stripe in &more.stripes {
            // ORDERING: Acquire pairs with the Release in `release`; Relaxed on failure: the next one is tried.
            if stripe.leased.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Arc::clone(stripe);
            }
        }
        let gate = if planted(Bug::LeaseBornOpen) { Gate::Open } else { more.frozen };
        let stripe = Arc::new(Stripe::new(gate, self.secret, FIRST + more.stripes.len()));
        // ORDERING: Relaxed: the registry's lock publishes it.
        stripe.leased.store(1, Ordering::Relaxed);
        more.stripes.push(Arc::clone(&stripe));
        stripe
    }

    /// Closes every gate and waits out the writers inside (E1, E3). Afterwards sums are exact.
    ///
    /// # Errors
    /// `InvalidArgument` from inside a write: it would wait for itself (E4). Nothing is closed then.
    pub(crate) fn freeze(&self) -> Result<()> {
        if self.fold(false, |inside, stripe| inside || stripe.is_held_by_this_thread()) {
            return Err(Error::InvalidArgument(
                "freeze was called from inside a write of this thread, as by a comparator".into(),
            ));
        }
        let mut more = self.more.lock();
        more.frozen = Gate::Frozen;
        let made = more.stripes.clone();
        drop(more);
        for stripe in self.first.iter().chain(made.iter().map(|stripe| &**stripe)) {
            if planted(Bug::FreezeSkipsBusyStripes) {
                if let Some(mut inside) = stripe.inside.try_lock() {
                    inside.frozen = Gate::Frozen;
                }
                continue;
            }
            stripe.inside.lock().frozen = Gate::Frozen;
        }
        Ok(())
    }

    /// Runs `set` where [`wait_out_writers`](Self::wait_out_writers) waits for it, as it does for writers.
    pub(crate) fn while_registry_is_held(&self, set: impl FnOnce()) {
        let _more = self.more.lock();
        set();
    }

    /// Waits until every writer that is inside now has left, this thread apart. New ones may enter meanwhile.
    pub(crate) fn wait_out_writers(&self) {
        let more: Vec<Arc<Stripe>> = self.more.lock().stripes.clone();
        for stripe in self.first.iter().chain(more.iter().map(|stripe| &**stripe)) {
            stripe.wait_out_writer();
        }
    }

    /// The sums, exact once no writer is inside.
    pub(crate) fn totals(&self) -> Totals {
        self.fold(Totals::default(), |sum, stripe| sum.plus(&stripe.counters.read()))
    }

    /// Smallest and largest sequence number written, if any was.
    pub(crate) fn sequences(&self) -> Option<(u64, u64)> {
        let (smallest, largest) = self.fold((u64::MAX, 0), |(smallest, largest), stripe| {
            // ORDERING: Relaxed: see `Counters::add`.
            let low = stripe.counters.smallest.load(Ordering::Relaxed);
            // ORDERING: Relaxed: see `Counters::add`.
            let high = stripe.counters.largest.load(Ordering::Relaxed);
            (low.min(smallest), high.max(largest))
        });
        (smallest <= largest).then_some((smallest, largest))
    }

    /// Largest sequence number of a point entry; 0 without any. One that is being raised, or is damaged, counts as the
    /// largest number there is.
    pub(crate) fn largest_point(&self) -> u64 {
        self.fold(0, |largest, stripe| largest.max(stripe.control.get(LARGEST_POINT).unwrap_or(u64::MAX)))
    }

    fn fold<T>(&self, start: T, add: impl Fn(T, &Stripe) -> T) -> T {
        let sum = self.first.iter().fold(start, &add);
        self.more.lock().stripes.iter().fold(sum, |sum, stripe| add(sum, stripe))
    }

    /// The sentinels of all chains; 0 for a stripe without one.
    pub(crate) fn chains(&self) -> Vec<Result<u32, Corruption>> {
        let chain = |stripe: &Stripe| {
            #[expect(clippy::cast_possible_truncation, reason = "set from 32 bits")]
            let chain = stripe.settled_chain().map(|chain| chain as u32);
            chain
        };
        self.fold(Vec::new(), |mut chains, stripe| {
            chains.push(chain(stripe));
            chains
        })
    }

    /// The control words of every stripe.
    pub(crate) fn each_control(&self, mut visit: impl FnMut(Words<'_>)) {
        // Outside of the registry's lock: a visitor may wait for writers.
        let more: Vec<Arc<Stripe>> = self.more.lock().stripes.clone();
        self.first.iter().for_each(|stripe| visit(stripe.control.words()));
        more.iter().for_each(|stripe| visit(stripe.control.words()));
    }

    /// Arena bytes that writers took ahead and have not used; those of a writer who is inside right now are left out.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.fold(0, |sum, stripe| {
            sum + stripe.inside.try_lock().map_or(0, |inside| inside.inserter.sub.left_bytes())
        })
    }

    /// Heap bytes of stripes made beyond the first ones.
    pub(crate) fn extra_bytes(&self) -> u64 {
        (self.more.lock().stripes.len() * size_of::<Stripe>()) as u64
    }
}
