//! Watched range tombstones: the newest ones of a table, of which writer shards note the newest
//! point entry that lies in each.
//!
//! ```text
//!   tombstones   1  2  3  4  5  6        the number counts records of the index; the last SLOTS are watched
//!   a slot       node of tombstone (32) | tag (32)        tag: of number and node; slot = number % SLOTS
//!   a shard      knows some of them by their nodes; of others it knows only its largest point entry, wherever that lies
//! ```
//! * WATCHES-1: writers compare keys with the node of a tombstone, which never changes, and with
//!   images that they made of it and keep under a sum. A reader has the tombstone's start and end
//!   from the same node, verified, or does not believe what writers noted. A shard finds the node by
//!   a slot that agrees with its tag.
//! * WATCHES-2: a jump over a tombstone passes no newer entry whose put returned before the reader
//!   asked. Before it returned, the put counted the entry in its shard's largest point entry, and
//!   noted it under each tombstone that the shard knew.
//!
//!   ```text
//!     shard that learns    loads slots; notes its largest point entry under each new tombstone; stores AWARE
//!     reader               has the tombstone's number; loads AWARE; loads what lies under the tombstone if AWARE says that the
//!                          shard knows it, else the largest point entry
//!   ```
//!   So a reader that sees that a shard knows a tombstone sees what the shard had counted before,
//!   and what it noted since. AWARE names only tombstones whose slots the shard has loaded. When a
//!   later tombstone takes the slot, what lies under it starts with the largest point entry, so the
//!   word never falls, and a reader that is late in loading it reads a larger number.
//! * WATCHES-3: no two tombstones have one number: the index writes no record twice. The tag tells
//!   a tombstone's word from that of an earlier one, which the slot still has while its own is being
//!   stored.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place};
use crate::integrity::control_word::Salt;
use crate::integrity::hash::splitmix;
use crate::memtable::arena::arena::View;
use crate::sync::{Alone, AtomicU64, Ordering};
use crate::tombstone::segments::{high, low, pair};

/// Number of tombstones that are watched.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 4 };

/// The newest range tombstones of a table, in a cache line that writers load.
pub(crate) struct Watches(Alone<Line>);

struct Line {
    /// The largest number (32) | how many were added (32): a hint. It changes with each one.
    news: AtomicU64,
    slots: [AtomicU64; SLOTS],
    salt: Salt,
}

/// The slot of a tombstone.
pub(crate) fn slot_of(number: u32) -> usize {
    number as usize % SLOTS
}

/// The number, up to `last`, of the tombstone that is watched in a slot. `None`: there is none.
pub(crate) fn number_in(slot: usize, last: u32) -> Option<u32> {
    let later = slot_of(last) + SLOTS - slot;
    let number = last.checked_sub(u32::try_from(later % SLOTS).ok()?)?;
    (number > 0).then_some(number)
}

/// Which watched tombstones a shard knows: a number (32), and a bit for each slot (32): whether it
/// knows the last tombstone there that has at most this number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known(pub(crate) u64);

impl Known {
    /// The largest number that it knows.
    pub(crate) fn last(self) -> u32 {
        high(self.0)
    }

    pub(crate) fn has(self, number: u32) -> bool {
        let slot = slot_of(number);
        number_in(slot, self.last()) == Some(number) && low(self.0) >> slot & 1 == 1
    }

    /// With tombstones that it learns, by slot.
    pub(crate) fn with(self, learnt: [Option<u32>; SLOTS]) -> Known {
        let last = learnt.into_iter().flatten().fold(self.last(), u32::max);
        let knows = |slot| {
            let number = number_in(slot, last);
            number.is_some_and(|number| self.has(number))
                || number.is_some() && learnt[slot] == number
        };
        let bits = (0..SLOTS).map(|slot| u32::from(knows(slot)) << slot);
        Known(pair(last, bits.sum()))
    }
}

/// A watched tombstone as a shard knows it: its node, and the images of start and end under a sum.
/// What has another sum was not read yet, or is damaged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    node: u32,
    images: [u64; 2],
    sum: u64,
}

impl Default for Watched {
    /// One that contains no key.
    fn default() -> Self {
        let mut none = Watched::new(0);
        (none.images, none.sum) = ([u64::MAX, 0], none.sum_with([u64::MAX, 0]));
        none
    }
}

impl Watched {
    /// The tombstone in this node, which was not read yet.
    pub(crate) fn new(node: u32) -> Self {
        let mut unread = Watched {
            node,
            images: [0; 2],
            sum: 0,
        };
        unread.sum = !unread.sum_with(unread.images);
        unread
    }

    /// Inverted, so that bytes that are all alike agree with no sum: a cleared tombstone would
    /// contain no key.
    #[inline(always)]
    fn sum_with(&self, [start, end]: [u64; 2]) -> u64 {
        !(end.rotate_left(32).wrapping_add(start) ^ u64::from(self.node))
    }

    #[inline(always)]
    fn is_sound(&self) -> bool {
        self.sum == self.sum_with(self.images)
    }

    /// Whether a key with this image is in its interval, or may be: the tombstone is damaged.
    #[inline(always)]
    pub(crate) fn may_contain(
        &mut self,
        view: &View<'_>,
        comparator: &KeyComparator,
        (key, image): (&[u8], u64),
    ) -> bool {
        let [start, end] = self.images;
        if self.is_sound() && image != start && image != end {
            return start < image && image < end;
        }
        self.compare(view, comparator, key)
    }

    /// Compares whole keys, and reads the images if they are unknown: twice, because a wrong one hides
    /// entries from scans.
    #[inline(never)]
    fn compare(&mut self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> bool {
        let Some(tombstone) = view.reload(self.node) else {
            return true;
        };
        let keys = [tombstone.key(), tombstone.value_bytes()];
        let images = keys.map(|key| comparator.image(key, 0));
        if !self.is_sound() && black_box(keys).map(|key| comparator.image(key, 0)) == images {
            (self.images, self.sum) = (images, self.sum_with(images));
        }
        comparator.compare(keys[0], key).is_le() && comparator.compare(key, keys[1]).is_lt()
    }
}

impl Watches {
    pub(crate) fn new(salt: Salt) -> Self {
        Watches(Alone(Line {
            news: AtomicU64::new(0),
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            salt,
        }))
    }

    fn word(&self, number: u32, node: u32) -> u64 {
        pair(node, high(splitmix(self.0.salt.0 ^ pair(number, node))))
    }

    /// Watches a tombstone in place of an older one.
    pub(crate) fn add(&self, number: u32, node: u32) {
        // ORDERING: Release pairs with the Acquire in `node_of`: the tombstone's node.
        self.0.slots[slot_of(number)].store(self.word(number, node), Ordering::Release);
        let newer = |news| Some(pair(high(news).max(number), low(news).wrapping_add(1)));
        // ORDERING: Release pairs with the Acquire in `news`: the slot. Relaxed on failure: tried again.
        let _ = self
            .0
            .news
            .fetch_update(Ordering::Release, Ordering::Relaxed, newer);
    }

    /// What changes with each tombstone; 0 without any. The high half is the largest number: a hint.
    #[inline(always)]
    pub(crate) fn news(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `add`: who sees the news sees the slot.
        self.0.news.load(Ordering::Acquire)
    }

    /// The node of the tombstone with this number, if it is watched (WATCHES-3).
    pub(crate) fn node_of(&self, number: u32) -> Option<u32> {
        // ORDERING: Acquire pairs with the Release in `add`: the tombstone's node.
        let word = self.0.slots[slot_of(number)].load(Ordering::Acquire);
        let node = high(word);
        (word == self.word(number, node)).then_some(node)
    }

    /// Compares each slot with its tag. `count` returns how many tombstones have numbers by now.
    /// O(tombstones).
    pub(crate) fn verify(
        &self,
        count: impl Fn() -> Option<u32>,
    ) -> impl Iterator<Item = Corruption> {
        (0..SLOTS)
            .zip(&self.0.slots)
            .filter_map(move |(slot, word)| {
                // ORDERING: Acquire pairs with the Release in `add`: who sees a number is counted.
                let word = word.load(Ordering::Acquire);
                let newest = number_in(slot, count()?);
                let older = |number: &u32| number_in(slot, number - 1);
                let is_sound = word == 0
                    || std::iter::successors(newest, older)
                        .any(|number| word == self.word(number, high(word)));
                (!is_sound).then(|| Corruption::new(Place::Control, 0, 0, word))
            })
    }

    /// The slots, for the fault injector.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn slots(&self) -> &[AtomicU64] {
        &self.0.slots
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Equal bytes over what a shard knows of a tombstone are noticed: its node is read again.
    #[test]
    fn equal_bytes_are_no_watched_tombstone() {
        for byte in 0..=u8::MAX {
            let word = u64::from_ne_bytes([byte; 8]);
            let watched = Watched {
                node: u32::from_ne_bytes([byte; 4]),
                images: [word; 2],
                sum: word,
            };
            assert!(!watched.is_sound(), "{byte:#x}");
        }
    }
}
