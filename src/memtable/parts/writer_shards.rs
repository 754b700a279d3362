//! Writer shards: what a writer owns while it writes, namely a gate, counters and a sub-chunk.
//! Shards are in cache lines of their own.
//!
//! ```text
//!   put()      home of the thread, or another free one, or a new one             (try_lock, never waits for a writer)
//!   writer()   a shard of its own, leased                                        (lock, only a freeze competes)
//!   freeze()   locks each shard once, in order, and marks it frozen              (waits out the writers inside)
//! ```
//! * WRITER-SHARDS-1: a write holds its shard's lock, and the state under the lock says whether the
//!   table is frozen. So one read-modify-write both enters and asks, and a freeze and a write
//!   cannot miss each other.
//! * WRITER-SHARDS-2: only the owner of the lock writes counters, and any thread reads them. Sums
//!   are exact while no writer is inside.
//! * WRITER-SHARDS-3: a shard that is made after the freeze began is made frozen: making one takes
//!   the registry's lock, and the freeze says so under it before it goes from shard to shard. It
//!   waits for no writer while it holds that lock.
//! * WRITER-SHARDS-4: a shard stores the number of the thread that is inside, which only that
//!   thread writes and clears. A thread that reads its own number there is inside already: its
//!   comparator calls back into the table. Such a thread never waits for itself.
//! * WRITER-SHARDS-6: when a shard learns of a watched tombstone, all that it has counted counts as
//!   lying under that one. It learns before it counts, so that what it counts later is compared
//!   with each tombstone that it knows. Both are done twice: a number that a processor that errs
//!   leaves too small hides entries from scans.
//! * WRITER-SHARDS-5: a refused write waits until the freeze has closed every gate: no write that
//!   begins after it returned is admitted. Only a thread that is inside a write does not wait, for
//!   the freeze waits for it.
//! * WRITER-SHARDS-7: a shard never moves and lives as long as its table, so a write borrows it
//!   from there.
//! * WRITER-SHARDS-8: threads that meet make more homes, up to [`HOMES_OF_PROCESSOR`] for each
//!   processor, and beyond that only while a write is inside each of them. A thread that met
//!   another one moves to the home that it found, and begins there from then on, in every table.
//!
//! Any thread. Not promised: which shard a write uses.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::control_word::{ControlWords, Salt, Words};
use crate::integrity::tag::Secret;
use crate::key::Kind;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::Verified;
use crate::memtable::parts::homes::{Homes, SECOND};
use crate::memtable::parts::watches::{Known, SLOTS, Watched, Watches, number_in, slot_of};
use crate::memtable::skiplist::inserter::Inserter;
use crate::sync::{
    AtomicU64, Mutex, MutexGuard, Ordering, Published, holder_number, home, move_home, processors,
    thread_number,
};
use crate::tombstone::live::CoveringRun;
use crate::tombstone::segments::high;
use crate::tombstone::tree::Load;

/// Homes that threads which meet make, for each processor.
const HOMES_OF_PROCESSOR: usize = 4;

/// A thread that finds its home taken looks at so many others before it makes more. While threads
/// are moving to places of their own, most of the others are free.
const LOOKS: usize = 4;

/// From one look to the next. Odd, so that as many looks as there are homes see each of them.
const STRIDE: usize = 5;

/// Sums over a table's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Point entries and range tombstones, without replaced ones.
    pub(crate) entries: u64,
    /// Point tombstones among them.
    pub(crate) deletes: u64,
    /// Range tombstones among them.
    pub(crate) range_deletes: u64,
    /// Bytes of their keys and values.
    pub(crate) data_bytes: u64,
    /// Sum of their stored key digests, wrapping.
    pub(crate) digest_sum: u64,
    /// Entries that were replaced.
    pub(crate) displaced: u64,
}

/// One shard's counters (WRITER-SHARDS-2).
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

    /// Adds to the counters, as their only writer.
    #[inline(always)]
    fn add(&self, change: &Totals, sequence: u64) {
        let [
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        ] = &self.totals;
        let bump = |counter: &AtomicU64, by: u64| {
            // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2); a reader that
            // needs exact sums has locked the shard after the writer left.
            let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
            // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2).
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
        // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2).
        if sequence < self.smallest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2).
            self.smallest.store(sequence, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2).
        if sequence > self.largest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: written by the lock's owner alone (WRITER-SHARDS-2).
            self.largest.store(sequence, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Totals {
        // ORDERING: Relaxed: see `add`.
        Totals::from_array(std::array::from_fn(|i| {
            self.totals[i].load(Ordering::Relaxed)
        }))
    }
}

/// Whether an entry was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    No,
    Yes,
}

impl Totals {
    /// The totals of one entry.
    #[inline(always)]
    pub(crate) fn of(kind: Kind, data_bytes: u64, digest_sum: u64) -> Totals {
        Totals {
            entries: 1,
            deletes: u64::from(kind.is_point_delete()),
            range_deletes: u64::from(matches!(kind, Kind::RANGE_DELETE)),
            data_bytes,
            digest_sum,
            displaced: 0,
        }
    }

    /// Compares the totals of a full pass with the sealed ones.
    pub(crate) fn compare(&self, sealed: &Totals) -> Result<(), Corruption> {
        let differs = sealed
            .as_array()
            .into_iter()
            .zip(self.as_array())
            .find(|(sealed, seen)| sealed != seen);
        match differs {
            Some((sealed, seen)) => Err(Corruption::new(Place::Sum, 0, sealed, seen)),
            None => Ok(()),
        }
    }

    /// Adds an entry that a full pass met.
    pub(crate) fn meet(&mut self, entry: &Verified<'_>, hidden: Hidden, view: &View<'_>) {
        match hidden {
            Hidden::No => {
                let bytes = entry.node().lengths().data_len();
                *self = self.plus(&Totals::of(
                    entry.kind(),
                    bytes,
                    entry.node().stored_key_digest(view),
                ));
            }
            Hidden::Yes => self.displaced += 1,
        }
    }

    pub(crate) fn as_array(&self) -> [u64; 6] {
        [
            self.entries,
            self.deletes,
            self.range_deletes,
            self.data_bytes,
            self.digest_sum,
            self.displaced,
        ]
    }

    fn from_array(from: [u64; 6]) -> Self {
        let [
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        ] = from;
        Totals {
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        }
    }

    /// Point entries as stored, displaced ones among them.
    pub(crate) fn points(&self) -> u64 {
        self.entries
            .saturating_add(self.displaced)
            .saturating_sub(self.range_deletes)
    }

    /// The sum, wrapping.
    pub(crate) fn plus(&self, other: &Totals) -> Totals {
        let (left, right) = (self.as_array(), other.as_array());
        Totals::from_array(std::array::from_fn(|i| left[i].wrapping_add(right[i])))
    }

    /// These sums, with 0 for negative ones: a replacement may be counted before the entry that it
    /// replaced, by another writer.
    fn not_below_zero(self) -> Totals {
        let count = |sum: u64| if sum.cast_signed() < 0 { 0 } else { sum };
        Totals {
            deletes: count(self.deletes),
            data_bytes: count(self.data_bytes),
            ..self
        }
    }

    /// The change that undoes these totals.
    pub(crate) fn negated(&self) -> Totals {
        Totals::from_array(self.as_array().map(u64::wrapping_neg))
    }
}

/// The state that the lock of a shard guards.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    frozen: Gate,
    /// The writer's sub-chunk and splice.
    pub(crate) inserter: Inserter,
    /// What the writer may add to the tombstone indexes: it is counted already.
    pub(crate) index_room: Load,
    /// The watched tombstones that the shard knows, by slot. AWARE has their numbers.
    watched: [Watched; SLOTS],
    /// What the shard has learned of: a hint.
    news: u64,
}

/// Whether the gate admits writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Gate {
    #[default]
    Open,
    Frozen,
}

/// A shard's control words, which the owner of its lock sets (WRITER-SHARDS-2).
type Control = ControlWords<{ UNDER + SLOTS }>;
/// The largest sequence number of its point entries. If a range tombstone is newer, a scan may skip
/// its whole interval.
const LARGEST_POINT: usize = 0;
/// Which watched tombstones the shard knows.
const AWARE: usize = 1;
/// From here on: the largest sequence number of its point entries under the tombstone in each slot,
/// or a larger one.
const UNDER: usize = 2;

/// A writer shard, in cache lines of its own.
#[repr(align(128))]
pub(crate) struct WriterShard {
    inside: Mutex<Inside>,
    counters: Counters,
    control: Control,
    /// The salt of the control words, for their only writer. Readers make it anew.
    salt: Salt,
    /// 1 while a `Writer` owns the shard.
    leased: AtomicU64,
    /// The number of the thread that is inside, plus one; 0 without one (WRITER-SHARDS-4).
    holder: AtomicU64,
}

/// A write that is inside the gate.
pub(crate) struct Entered<'s> {
    pub(crate) inside: MutexGuard<'s, Inside>,
    shard: &'s WriterShard,
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDERING: Relaxed: only this thread asks for its own number (WRITER-SHARDS-4).
        self.shard.holder.store(0, Ordering::Relaxed);
    }
}

impl Entered<'_> {
    /// Counts a write.
    #[inline(always)]
    pub(crate) fn count(&self, change: &Totals, sequence: u64) {
        self.shard.counters.add(change, sequence);
        if change.range_deletes == 0 {
            // Twice: a number that is too small hides entries from scans, and no sum tells.
            self.shard.note_largest(sequence);
            black_box(self.shard).note_largest(black_box(sequence));
        }
    }

    /// Learns of tombstones that are watched, before an entry is counted (WRITER-SHARDS-6).
    #[inline(always)]
    pub(crate) fn learn(&mut self, watches: &Watches) {
        let news = watches.news();
        if news != self.inside.news {
            self.learn_more(watches, news);
        }
    }

    #[inline(never)]
    fn learn_more(&mut self, watches: &Watches, news: u64) {
        // Where this is damaged, readers take the largest point entry.
        let Ok(known) = self.shard.control.get(self.shard.salt, AWARE).map(Known) else {
            return;
        };
        let last = high(news).max(known.last());
        let mut learnt = [None; SLOTS];
        for (slot, learnt) in learnt.iter_mut().enumerate() {
            let number = number_in(slot, last).filter(|number| !known.has(*number));
            if let Some((number, node)) = number.and_then(|n| Some((n, watches.node_of(n)?))) {
                (*learnt, self.inside.watched[slot]) = (Some(number), Watched::new(node));
            }
        }
        // Twice, as in `count`. The second pass raises a number that the first one left too small.
        for WriterShard { control, salt, .. } in [self.shard, black_box(self.shard)] {
            let largest = control.get(*salt, LARGEST_POINT).unwrap_or(u64::MAX);
            for number in learnt.into_iter().flatten() {
                let word = UNDER + slot_of(number);
                if !control.get(*salt, word).is_ok_and(|known| known >= largest) {
                    control.set(*salt, word, largest);
                }
            }
        }
        let Known(aware) = known.with(learnt);
        self.shard.control.set(self.shard.salt, AWARE, aware);
        self.inside.news = news;
    }

    /// Notes under which tombstones that the shard knows a point entry lies: twice, as in `count`.
    #[inline(always)]
    pub(crate) fn note_point(
        &mut self,
        view: &View<'_>,
        comparator: &KeyComparator,
        key: &[u8],
        sequence: u64,
    ) {
        if self.inside.news != 0 {
            self.note_under(view, comparator, key, sequence);
        }
        let again = black_box(self);
        if again.inside.news != 0 {
            again.note_under(view, comparator, black_box(key), black_box(sequence));
        }
    }

    #[inline(never)]
    fn note_under(
        &mut self,
        view: &View<'_>,
        comparator: &KeyComparator,
        key: &[u8],
        sequence: u64,
    ) {
        let WriterShard { control, salt, .. } = self.shard;
        let unsure = Unsure(self.shard);
        let asked = (key, comparator.image(key, 0));
        for (slot, tombstone) in self.inside.watched.iter_mut().enumerate() {
            // A damaged word is left as it is, and readers take it for the largest possible number.
            if tombstone.may_contain(view, comparator, asked)
                && control
                    .get(*salt, UNDER + slot)
                    .is_ok_and(|known| known < sequence)
            {
                control.set(*salt, UNDER + slot, sequence);
            }
        }
        std::mem::forget(unsure);
    }
}

/// The salt of the control words of shard `number`; filters have smaller names.
fn salt_of(secret: Secret, number: usize) -> Salt {
    Salt::new(secret, 1 << 32 | number as u64)
}

/// A guard, dropped if the comparator panics: the entry counts under every tombstone.
struct Unsure<'s>(&'s WriterShard);

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        let WriterShard { control, salt, .. } = self.0;
        (0..SLOTS).for_each(|slot| control.set(*salt, UNDER + slot, u64::MAX));
    }
}

impl WriterShard {
    /// Notes the largest sequence number of its point entries. A damaged word is left as it is, and
    /// readers take it for the largest possible number.
    #[inline(always)]
    fn note_largest(&self, sequence: u64) {
        let (known, mismatch) = self.control.get_with_mismatch(self.salt, LARGEST_POINT);
        if sequence > known && mismatch == 0 {
            self.control.set(self.salt, LARGEST_POINT, sequence);
        }
    }

    /// The largest sequence number of its point entries under a watched tombstone, or a larger one.
    /// What is being stored, or is damaged, counts as the largest possible number.
    fn largest_under(&self, salt: Salt, tombstone: u32) -> u64 {
        let aware = self.control.get(salt, AWARE);
        let is_known = aware.is_ok_and(|aware| Known(aware).has(tombstone));
        let under = UNDER + slot_of(tombstone);
        let word = if is_known { under } else { LARGEST_POINT };
        self.control.get(salt, word).unwrap_or(u64::MAX)
    }

    #[inline(never)]
    fn new(frozen: Gate, secret: Secret, number: usize) -> Self {
        let salt = salt_of(secret, number);
        WriterShard {
            inside: Mutex::new(Inside {
                frozen,
                ..Inside::default()
            }),
            counters: Counters::new(),
            control: ControlWords::new(salt),
            salt,
            leased: AtomicU64::new(0),
            holder: AtomicU64::new(0),
        }
    }

    /// Enters if no writer is inside.
    #[inline(always)]
    fn try_enter(&self) -> Option<Entered<'_>> {
        self.inside.try_lock().map(|inside| self.hold(inside))
    }

    #[inline(always)]
    fn hold<'s>(&'s self, inside: MutexGuard<'s, Inside>) -> Entered<'s> {
        // ORDERING: Relaxed: only this thread asks for its own number (WRITER-SHARDS-4).
        self.holder.store(holder_number(), Ordering::Relaxed);
        Entered {
            inside,
            shard: self,
        }
    }

    /// Whether this thread is inside (WRITER-SHARDS-4).
    fn is_held_by(&self, this_thread: u64) -> bool {
        // ORDERING: Relaxed: this thread's own number was written by itself.
        self.holder.load(Ordering::Relaxed) == this_thread
    }

    /// Waits for the owner of the lock.
    #[inline(always)]
    fn wait(&self) -> Entered<'_> {
        self.hold(self.inside.lock())
    }

    /// Gives the lease back.
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `WriterShards::lease`; the state itself is
        // behind the lock.
        self.leased.store(0, Ordering::Release);
    }
}

/// All shards of a table.
pub(crate) struct WriterShards {
    homes: Homes<WriterShard>,
    /// The shards of `Writer`s.
    owned: Link,
    /// The registry's lock: the gate of shards to come.
    to_come: Mutex<Gate>,
    /// Held by a freeze while it closes gates.
    closing: Mutex<()>,
    secret: Secret,
    pub(crate) watches: Watches,
}

/// Shards of `Writer`s. Each block has as many as all before it, so that there are few blocks.
struct Block {
    shards: Box<[Arc<WriterShard>]>,
    next: Link,
}

type Link = Published<Box<Block>>;

impl WriterShards {
    /// Open shards, for a table with this secret.
    pub(crate) fn new(secret: Secret) -> Self {
        let (homes, owned) = (Homes::new(), Link::new());
        let (to_come, closing) = (Mutex::default(), Mutex::default());
        // Shards have larger names, filters smaller ones.
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

    /// Enters the thread's home for one write, or another free one; if there is none, one is made.
    /// `None`: frozen.
    #[inline(always)]
    pub(crate) fn enter_free(&self) -> Option<Entered<'_>> {
        match self.homes.at(home()).and_then(WriterShard::try_enter) {
            Some(entered) => self.admit(entered),
            None => self.admit(self.enter_elsewhere()),
        }
    }

    /// Enters another home than the thread's, or one that is made now (WRITER-SHARDS-3,
    /// WRITER-SHARDS-8).
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(&self) -> Entered<'_> {
        loop {
            let count = self.homes.count();
            // A thread that is inside its own home has met no other one: it takes the first that is
            // free.
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
                    // In a table without the thread's home nothing says that it is taken.
                    if is_met && home() < count {
                        move_home(place);
                    }
                    return entered;
                }
            }
            let gate = self.to_come.lock();
            self.homes.grow(count, |place| {
                WriterShard::new(*gate, self.secret, 2 * place)
            });
        }
    }

    /// Enters a shard as its lessee. Waits only for a freeze. `None`: frozen.
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

    /// After a write found its gate closed: waits until all gates are closed (WRITER-SHARDS-5).
    #[cold]
    fn refuse(&self) {
        if !self.holds_this_thread() {
            drop(self.closing.lock());
        }
    }

    /// Whether this thread is inside a write (WRITER-SHARDS-4).
    fn holds_this_thread(&self) -> bool {
        let this_thread = holder_number();
        self.all().any(|shard| shard.is_held_by(this_thread))
    }

    /// A shard that one `Writer` owns.
    pub(crate) fn lease(&self) -> &Arc<WriterShard> {
        let gate = self.to_come.lock();
        loop {
            // ORDERING: Acquire pairs with the Release in `release`; Relaxed on failure: the next
            // one is tried.
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
            // Only the owner of the lock makes one.
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

    /// All shards with their numbers: those of homes are even.
    fn numbered(&self) -> impl Iterator<Item = (usize, &WriterShard)> {
        let homes = (0..).step_by(2).zip(self.homes.iter());
        homes.chain((1..).step_by(2).zip(self.owned().map(|shard| &**shard)))
    }

    fn all(&self) -> impl Iterator<Item = &WriterShard> {
        self.numbered().map(|(_, shard)| shard)
    }

    /// Closes every gate and waits for the writers inside (WRITER-SHARDS-1, WRITER-SHARDS-3,
    /// WRITER-SHARDS-5). Sums are exact afterwards.
    ///
    /// # Errors
    /// `InvalidArgument` from inside a write, which would wait for itself (WRITER-SHARDS-4). No
    /// gate is closed then.
    pub(crate) fn freeze(&self) -> Result<()> {
        if self.holds_this_thread() {
            return Err(Error::InvalidArgument(
                "freeze was called from inside a write of this thread, as by a comparator".into(),
            ));
        }
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

    /// The sums, exact while no writer is inside.
    pub(crate) fn totals(&self) -> Totals {
        let sums = self.all().map(|shard| shard.counters.read());
        sums.fold(Totals::default(), |sum, shard| sum.plus(&shard))
            .not_below_zero()
    }

    /// Smallest and largest sequence number written, if any was.
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

    /// Largest sequence number of a point entry in the interval of a tombstone, 0 without any. It
    /// is larger if the tombstone is not watched, where a shard does not know it, and where damage
    /// or a store that is under way hides the number.
    pub(crate) fn largest_under(&self, run: &CoveringRun) -> u64 {
        let largest = |(number, shard): (usize, &WriterShard)| {
            shard.largest_under(salt_of(self.secret, number), run.number)
        };
        self.numbered().map(largest).max().unwrap_or(0)
    }

    /// Arena bytes that writers have taken and not used, without those of writers that are inside
    /// now.
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
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;

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
