//! Watched range tombstones: the newest ones of a table, of which writer shards note the newest point entry that lies in each.
//!
//! ```text
//!   tombstones   1  2  3  4  5  6        the last SLOTS are watched, each in slot (number % SLOTS)
//!   a shard      knows them up to some number; of a later one it knows only its largest point entry, wherever that lies
//! ```
//! * WATCHES-1: a tombstone is known by start, end and sequence number. What writers compared with a copy of it that is damaged
//!   now is not believed, because that copy differs from what the index says.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::comparator::KeyComparator;
use crate::key::SequenceNumber;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::tombstone::index::live::CoveringRun;

/// Number of tombstones that are watched: one line of control words has room for their numbers.
pub(crate) const SLOTS: usize = 4;

/// Bytes of start and end beyond which a tombstone is not watched, so that the copies stay small.
const BYTES_MAX: usize = 4096;

/// A watched tombstone, and its number, from 1 on.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) number: u64,
    run: CoveringRun,
}

impl Watch {
    pub(crate) fn contains(&self, comparator: &KeyComparator, key: &[u8]) -> bool {
        comparator.compare(&self.run.start, key).is_le() && comparator.compare(key, &self.run.end).is_lt()
    }
}

/// The watched tombstones, by slot.
pub(crate) type Slots = [Option<Arc<Watch>>; SLOTS];

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The number of the last one: a hint.
    last: AtomicU64,
    slots: Mutex<Slots>,
}

/// The slot of a tombstone.
pub(crate) fn slot_of(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

impl Watches {
    /// Watches a tombstone in place of the oldest one.
    pub(crate) fn add(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start.len() + end.len() > BYTES_MAX {
            return;
        }
        let mut slots = self.slots.lock();
        let number = 1 + slots.iter().flatten().map(|watch| watch.number).max().unwrap_or(0);
        let mut watch = slots[slot_of(number)].take().unwrap_or_default();
        if Arc::get_mut(&mut watch).is_none() {
            // A shard knows the old one.
            watch = Arc::default();
        }
        if let Some(Watch { number: known, run }) = Arc::get_mut(&mut watch) {
            (*known, run.sequence) = (number, sequence);
            run.start.clear();
            run.start.extend_from_slice(start);
            run.end.clear();
            run.end.extend_from_slice(end);
        }
        slots[slot_of(number)] = Some(watch);
        // ORDERING: Relaxed: a hint, see `last`.
        self.last.store(number, Ordering::Relaxed);
    }

    /// The number of the last one, or an earlier one's.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        // ORDERING: Relaxed: whoever sees an earlier number does not know the later tombstones, and says so.
        self.last.load(Ordering::Relaxed)
    }

    pub(crate) fn slots(&self) -> Slots {
        self.slots.lock().clone()
    }

    /// The number of a tombstone, if it is watched (WATCHES-1).
    pub(crate) fn number_of(&self, run: &CoveringRun) -> Option<u64> {
        self.slots.lock().iter().flatten().find(|watch| watch.run == *run).map(|watch| watch.number)
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let bytes = |watch: &Arc<Watch>| size_of::<Watch>() + watch.run.start.len() + watch.run.end.len();
        self.slots.lock().iter().flatten().map(bytes).sum::<usize>() as u64
    }
}
