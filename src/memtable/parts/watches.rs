//! Watched range tombstones: the newest ones of a table, of which writer shards note the newest
//! point entry that lies in each.
//!
//! ```text
//!   tombstones   1  2  3  4  5  6        the last SLOTS are watched, each in slot (number % SLOTS)
//!   a shard      knows them up to some number; of a later one it knows only its largest point entry, wherever that lies
//!
//!   a copy       0 check | 8 number | 16 sequence | 24 length of start | 28 length of end | 32 start, end, zeros up to a word
//! ```
//! * WATCHES-1: a tombstone is known by start, end and sequence number. What writers compared with
//!   a copy of it that is damaged now is not believed: that copy differs from what the index says,
//!   or from its check, which covers the number as well. A shard learns only of copies that agree
//!   with their check.
//! * WATCHES-2: a jump over a tombstone passes no newer entry whose put returned before the reader
//!   asked. Before it returned, the put counted the entry in its shard's largest point entry, and
//!   noted it under each tombstone that the shard knew.
//!
//!   ```text
//!     shard that learns    copies the watched tombstones; notes its largest point entry under each new one; stores AWARE
//!     reader               finds the tombstone's number; loads AWARE; loads what lies under the tombstone if AWARE says that the
//!                          shard knows it, else the largest point entry
//!   ```
//!   So a reader that sees that a shard knows a tombstone sees what the shard had counted before, and what it noted since. AWARE
//!   names only tombstones of that copy. When a later tombstone takes the slot, what lies under it starts with the largest point entry,
//!   so the word never falls, and a reader that is late in loading it reads a larger number.
//! * WATCHES-3: no two tombstones get one number, even if the newest copy is damaged.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Place};
use crate::integrity::digest::hash;
use crate::key::{KeyComparator, SequenceNumber};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::tombstone::live::CoveringRun;

/// Number of tombstones that are watched: one line of control words has room for their numbers.
pub(crate) const SLOTS: usize = 4;

/// Bytes of start and end beyond which a tombstone is not watched, so that the copies stay small.
const BYTES_MAX: usize = 4096;

/// The words of a copy, and where its keys begin.
const CHECK: usize = 0;
const NUMBER: usize = 8;
const SEQUENCE: usize = 16;
const LENGTHS: usize = 24;
const KEYS: usize = 32;

/// A copy of a watched tombstone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch(Vec<u8>);

impl Watch {
    /// Makes it the copy of a tombstone whose start and end have at most `BYTES_MAX` bytes.
    fn fill(&mut self, number: u64, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        let lengths = (end.len() as u64) << 32 | start.len() as u64;
        let Watch(bytes) = self;
        bytes.clear();
        [0, number, sequence, lengths]
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend_from_slice(start);
        bytes.extend_from_slice(end);
        bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), 0);
        let check = self.check();
        self.0.splice(CHECK..NUMBER, check.to_le_bytes());
        // For the fault injector (FAULT-2).
        #[cfg(feature = "fault-injection")]
        let _ = self.0.as_mut_ptr().expose_provenance();
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().map_or(0, u64::from_le_bytes)
    }

    /// Start and end, as far as the lengths can be right.
    fn keys(&self) -> Option<(&[u8], &[u8])> {
        let lengths = self.word(LENGTHS);
        let [start, end] = [lengths & 0xffff_ffff, lengths >> 32].map(usize::try_from);
        let (start, rest) = self.0.get(KEYS..)?.split_at_checked(start.ok()?)?;
        Some((start, rest.get(..end.ok()?)?))
    }

    /// The digest over all bytes but the check.
    fn check(&self) -> u64 {
        hash(
            self.0.get(NUMBER..).unwrap_or_default(),
            0x7761_7463_6865_7321,
        )
    }

    /// Compares the copy with its check.
    pub(crate) fn verify(&self) -> Result<(), Corruption> {
        match (self.check(), self.word(CHECK)) {
            (expected, found) if expected == found => Ok(()),
            (expected, found) => Err(Corruption::new(Place::Control, 0, expected, found)),
        }
    }

    /// From 1 on.
    pub(crate) fn number(&self) -> u64 {
        self.word(NUMBER)
    }

    pub(crate) fn contains(&self, comparator: &KeyComparator, key: &[u8]) -> bool {
        self.keys().is_some_and(|(start, end)| {
            comparator.compare(start, key).is_le() && comparator.compare(key, end).is_lt()
        })
    }

    /// Whether it is an intact copy of this tombstone (WATCHES-1).
    fn is_of(&self, run: &CoveringRun) -> bool {
        let keys = Some((&*run.start, &*run.end));
        self.word(SEQUENCE) == run.sequence && self.keys() == keys && self.verify().is_ok()
    }

    /// All bytes, for the fault injector.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The watched tombstones, by slot.
pub(crate) type Slots = [Option<Arc<Watch>>; SLOTS];

/// The newest range tombstones of a table.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The last tombstone's number: a hint.
    last: AtomicU64,
    newest: Mutex<Newest>,
}

/// The newest copies, and the number of the last one, which does not rest on them (WATCHES-3).
#[derive(Debug, Default)]
struct Newest {
    slots: Slots,
    last: u64,
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
        let Newest { slots, last } = &mut *self.newest.lock();
        let sound = slots
            .iter()
            .flatten()
            .filter(|watch| watch.verify().is_ok());
        // WATCHES-3.
        let number = 1 + sound.map(|watch| watch.number()).fold(*last, u64::max);
        // A copy, if a shard knows the old one.
        let watch = Arc::make_mut(slots[slot_of(number)].get_or_insert_default());
        watch.fill(number, start, end, sequence);
        *last = number;
        // ORDERING: Relaxed: a hint, see `last`.
        self.last.store(number, Ordering::Relaxed);
    }

    /// The last tombstone's number, or an earlier one's.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        // ORDERING: Relaxed: whoever sees an earlier number does not know the later tombstones, and
        // says so.
        self.last.load(Ordering::Relaxed)
    }

    pub(crate) fn slots(&self) -> Slots {
        self.newest.lock().slots.clone()
    }

    /// The number of a tombstone, if it is watched (WATCHES-1).
    pub(crate) fn number_of(&self, run: &CoveringRun) -> Option<u64> {
        let newest = self.newest.lock();
        let watch = newest
            .slots
            .iter()
            .flatten()
            .find(|watch| watch.is_of(run))?;
        Some(watch.number())
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let bytes = |watch: &Arc<Watch>| size_of::<Watch>() + watch.0.len();
        self.newest
            .lock()
            .slots
            .iter()
            .flatten()
            .map(bytes)
            .sum::<usize>() as u64
    }
}
