//! A writer shard: one writer's gate, counters, sub-chunk, and notes on watched range tombstones, in
//! cache lines of its own.
//!
//! ```text
//!   a put inside     learns of watched tombstones -> counts the entry
//!                    -> notes it under the tombstones that contain its key
//!   control words    LARGEST_POINT | AWARE | UNDER + slot: the largest number under a tombstone
//! ```
//! * SHARD-1: only the owner of the lock writes counters and control words, and any thread reads
//!   them. Sums are exact while no writer is inside.
//! * SHARD-2: a shard stores the number of the thread that is inside. Only that thread writes and
//!   clears it, so a thread that reads its own number there is inside: its comparator called the
//!   table.
//! * SHARD-3: a shard that learns of a watched tombstone starts it with the largest number that it
//!   has counted. It learns before it counts, so it compares each later key with each tombstone
//!   that it knows. It notes each number twice: one that a processor error leaves too small hides
//!   entries.
//!
//! Any thread may read; one thread at a time is inside.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::comparator::KeyComparator;
use crate::halves::high;
use crate::integrity::control_word::{ControlWords, Salt};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::View;
use crate::memtable::shards::totals::{Counters, Totals};
use crate::memtable::shards::watched_tombstones::{
    Known, SLOTS, Watched, Watches, number_in, slot_of,
};
use crate::memtable::skiplist::inserter::Inserter;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, holder_number};
use crate::tombstone::capacity::Load;

/// The state under the lock of a shard.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) frozen: Gate,
    /// The writer's sub-chunk and splice.
    pub(crate) inserter: Inserter,
    /// Room in the tombstone index that the writer may still use; the table's limit has counted it.
    pub(crate) index_room: Load,
    /// The watched tombstones that the shard knows, by slot. AWARE has their numbers.
    watched: [Watched; SLOTS],
    /// The news that the shard learned last: a hint.
    news: u64,
}

/// Whether the gate admits writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Gate {
    #[default]
    Open,
    Frozen,
}

/// A shard's control words, which the owner of its lock sets (SHARD-1).
type Control = ControlWords<{ UNDER + SLOTS }>;
/// The largest sequence number of the shard's point entries. If a range tombstone is newer than
/// this in every shard, a scan may skip its whole interval.
const LARGEST_POINT: usize = 0;
/// Which watched tombstones the shard knows.
const AWARE: usize = 1;
/// From here on, a word for each slot: the largest sequence number of the shard's point entries
/// under its tombstone, or a larger one.
const UNDER: usize = 2;

/// A writer shard, in cache lines of its own.
#[repr(align(128))]
pub(crate) struct WriterShard {
    pub(crate) inside: Mutex<Inside>,
    pub(crate) counters: Counters,
    pub(crate) control: Control,
    /// The salt of the control words, for their only writer. Readers compute it from the secret.
    salt: Salt,
    /// 1 while a `Writer` owns the shard.
    pub(crate) leased: AtomicU64,
    /// The number of the thread that is inside, plus one; 0 without one (SHARD-2).
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
        // ORDERING: Relaxed: only this thread looks for its own number (SHARD-2).
        self.shard.holder.store(0, Ordering::Relaxed);
    }
}

impl Entered<'_> {
    /// Counts a write.
    #[inline(always)]
    pub(crate) fn count(&self, change: &Totals, sequence: u64) {
        self.shard.counters.add(change, sequence);
        if change.range_deletes == 0 {
            // Twice: a number that is too small hides entries from scans, and no sum shows it.
            self.shard.note_largest(sequence);
            black_box(self.shard).note_largest(black_box(sequence));
        }
    }

    /// Learns of watched tombstones, before an entry is counted (SHARD-3).
    #[inline(always)]
    pub(crate) fn learn(&mut self, watches: &Watches) {
        let news = watches.news();
        if news != self.inside.news {
            self.learn_more(watches, news);
        }
    }

    #[inline(never)]
    fn learn_more(&mut self, watches: &Watches, news: u64) {
        // If AWARE is damaged, readers use the largest point entry.
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
        // Twice, as in `count`: the second pass raises a number that the first one left too small.
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

    /// Notes a point entry under each known tombstone that contains its key: twice, as in `count`.
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
            // A damaged word stays: readers take it for the largest possible number.
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

/// The salt of the control words of shard `number`. Salts of filters have smaller numbers.
pub(crate) fn salt_of(secret: Secret, number: usize) -> Salt {
    Salt::new(secret, 1 << 32 | number as u64)
}

/// A guard. It is dropped if the comparator panics; the entry then counts under every tombstone.
struct Unsure<'s>(&'s WriterShard);

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        let WriterShard { control, salt, .. } = self.0;
        (0..SLOTS).for_each(|slot| control.set(*salt, UNDER + slot, u64::MAX));
    }
}

impl WriterShard {
    /// Raises the largest sequence number of the shard's point entries. A damaged word stays:
    /// readers take it for the largest possible number.
    #[inline(always)]
    fn note_largest(&self, sequence: u64) {
        let (known, mismatch) = self.control.get_with_mismatch(self.salt, LARGEST_POINT);
        if sequence > known && mismatch == 0 {
            self.control.set(self.salt, LARGEST_POINT, sequence);
        }
    }

    /// The largest sequence number of the shard's point entries under a watched tombstone, or a
    /// larger number. A word that is being stored or is damaged counts as the largest possible
    /// number.
    pub(crate) fn largest_under(&self, salt: Salt, tombstone: u32) -> u64 {
        let aware = self.control.get(salt, AWARE);
        let is_known = aware.is_ok_and(|aware| Known(aware).has(tombstone));
        let under = UNDER + slot_of(tombstone);
        let word = if is_known { under } else { LARGEST_POINT };
        self.control.get(salt, word).unwrap_or(u64::MAX)
    }

    #[inline(never)]
    pub(crate) fn new(frozen: Gate, secret: Secret, number: usize) -> Self {
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

    /// Enters the shard if no writer is inside.
    #[inline(always)]
    pub(crate) fn try_enter(&self) -> Option<Entered<'_>> {
        self.inside.try_lock().map(|inside| self.hold(inside))
    }

    #[inline(always)]
    fn hold<'s>(&'s self, inside: MutexGuard<'s, Inside>) -> Entered<'s> {
        // ORDERING: Relaxed: only this thread looks for its own number (SHARD-2).
        self.holder.store(holder_number(), Ordering::Relaxed);
        Entered {
            inside,
            shard: self,
        }
    }

    /// Whether this thread is inside (SHARD-2).
    pub(crate) fn is_held_by(&self, this_thread: u64) -> bool {
        // ORDERING: Relaxed: this thread stored its own number itself (SHARD-2).
        self.holder.load(Ordering::Relaxed) == this_thread
    }

    /// Enters the shard after the owner of its lock has left.
    #[inline(always)]
    pub(crate) fn wait(&self) -> Entered<'_> {
        self.hold(self.inside.lock())
    }

    /// Ends the lease of a `Writer`.
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `WriterShards::lease`; the lock itself orders
        // the state under it.
        self.leased.store(0, Ordering::Release);
    }
}
