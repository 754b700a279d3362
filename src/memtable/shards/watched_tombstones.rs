//! Watched range tombstones: the newest range tombstones of a table. Each writer shard notes, for
//! each of them that it knows, the newest point entry inside its interval. A scan jumps over a
//! tombstone's interval if no shard has a newer entry there.
//!
//! ```text
//!   tombstones   1  2  3  4  5  6     numbers of records of the index; the last SLOTS are watched
//!   a slot       node (32) | tag of number and node (32)          slot = number % SLOTS
//!   a shard      knows some by their nodes; for the others it has only its largest point entry
//!
//!   shard that learns    loads slots; notes its largest point entry under each new tombstone;
//!                        stores AWARE
//!   reader               has the tombstone's number; loads AWARE; if AWARE has the number, loads
//!                        the shard's number under that tombstone, else its largest point entry
//! ```
//! * WATCHES-1: a jump over a tombstone passes no newer entry whose put returned before the reader
//!   asked. Before it returns, a put counts the entry in its shard's largest point entry, and notes
//!   it under each tombstone that the shard knows. A shard that learns of a tombstone notes its
//!   largest point entry under it, and only then stores AWARE, which names only tombstones whose
//!   slots the shard has loaded. So a slot's number never falls, and a late reader sees a larger
//!   one.
//! * WATCHES-2: no two tombstones have one number, because the index writes no record twice. A slot
//!   keeps the word of an older tombstone until the newer one is stored; the tag shows which.
//!
//! Writers compare keys with the node of a tombstone, which never changes, and with images of its
//! bounds that they keep under a sum. A reader takes start and end from the same node, verified, or
//! ignores what writers noted.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place};
use crate::halves::{high, low, pair};
use crate::integrity::control_word::Salt;
use crate::integrity::hash::splitmix;
use crate::memtable::arena::arena::View;
use crate::sync::{Alone, AtomicU64, Ordering};

/// The number of watched tombstones.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 4 };

/// The watched range tombstones of a table, in one cache line, which writers load.
pub(crate) struct Watches(Alone<Line>);

struct Line {
    /// The largest number (32) | how many were added (32): a hint that changes with each addition.
    news: AtomicU64,
    slots: [AtomicU64; SLOTS],
    salt: Salt,
}

/// The slot of a tombstone.
pub(crate) fn slot_of(number: u32) -> usize {
    number as usize % SLOTS
}

/// The number of the newest tombstone, up to `last`, whose slot this is; `None` if there is none.
pub(crate) fn number_in(slot: usize, last: u32) -> Option<u32> {
    let later = slot_of(last) + SLOTS - slot;
    let number = last.checked_sub(u32::try_from(later % SLOTS).ok()?)?;
    (number > 0).then_some(number)
}

/// Which watched tombstones a shard knows: a number (32), and a bit for each slot (32). The bit
/// says whether the shard knows the newest tombstone of that slot up to the number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known(pub(crate) u64);

impl Known {
    /// The largest number that the shard knows.
    pub(crate) fn last(self) -> u32 {
        high(self.0)
    }

    pub(crate) fn has(self, number: u32) -> bool {
        let slot = slot_of(number);
        number_in(slot, self.last()) == Some(number) && low(self.0) >> slot & 1 == 1
    }

    /// This set and the tombstones that the shard learns, by slot.
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

/// A watched tombstone as a shard keeps it: its node, and the images of start and end under a sum.
/// If the sum differs, the images are not made yet, or are damaged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    node: u32,
    images: [u64; 2],
    sum: u64,
}

impl Default for Watched {
    /// A tombstone that contains no key.
    fn default() -> Self {
        let mut none = Watched::new(0);
        (none.images, none.sum) = ([u64::MAX, 0], none.sum_with([u64::MAX, 0]));
        none
    }
}

impl Watched {
    /// The tombstone in this node, without images.
    pub(crate) fn new(node: u32) -> Self {
        let mut unread = Watched {
            node,
            images: [0; 2],
            sum: 0,
        };
        unread.sum = !unread.sum_with(unread.images);
        unread
    }

    /// The sum is inverted, so that memory of equal bytes never agrees: a cleared tombstone would
    /// contain no key.
    #[inline(always)]
    fn sum_with(&self, [start, end]: [u64; 2]) -> u64 {
        !(end.rotate_left(32).wrapping_add(start) ^ u64::from(self.node))
    }

    #[inline(always)]
    fn is_sound(&self) -> bool {
        self.sum == self.sum_with(self.images)
    }

    /// Whether a key with this image is in the interval. A damaged tombstone may contain every key.
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

    /// Compares whole keys, and makes the images if there are none: twice, because a wrong image
    /// hides entries from scans.
    #[inline(never)]
    fn compare(&mut self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> bool {
        // A damaged tombstone heals, and hides entries again: it is compared as reads compare it.
        let bounds = || {
            let tombstone = view.entry(self.node)?;
            Ok::<_, Corruption>([tombstone.key(), tombstone.value(view)?])
        };
        let Ok(keys) = bounds() else {
            return true;
        };
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
        // ORDERING: Release pairs with the Acquire in `news`: the slot. Relaxed on failure:
        // retried.
        let _ = self
            .0
            .news
            .fetch_update(Ordering::Release, Ordering::Relaxed, newer);
    }

    /// A word that changes with each tombstone; 0 without any. Its high half is the largest number.
    #[inline(always)]
    pub(crate) fn news(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `add`: the slot is stored before the news.
        self.0.news.load(Ordering::Acquire)
    }

    /// The node of the tombstone with this number, if it is watched (WATCHES-2).
    pub(crate) fn node_of(&self, number: u32) -> Option<u32> {
        // ORDERING: Acquire pairs with the Release in `add`: the tombstone's node.
        let word = self.0.slots[slot_of(number)].load(Ordering::Acquire);
        let node = high(word);
        (word == self.word(number, node)).then_some(node)
    }

    /// Compares each slot with its tag. `count` returns the number of tombstones in the index.
    /// O(tombstones).
    pub(crate) fn verify(
        &self,
        count: impl Fn() -> Option<u32>,
    ) -> impl Iterator<Item = Corruption> {
        (0..SLOTS)
            .zip(&self.0.slots)
            .filter_map(move |(slot, word)| {
                // ORDERING: Acquire pairs with the Release in `add`: the count has its tombstone.
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

    /// A shard notices that its copy of a tombstone consists of equal bytes, and reads the node
    /// again.
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
